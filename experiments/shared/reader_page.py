"""The Reader as a page of the book: every passage with its annotation drawn."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from attnlib.data.reader.markup import REGISTERS, Passage
from bookkit.templates import filled

N_COLOURS = 8
"""Entities of a passage take turns with so many colours; the label beside a mention decides."""


def page(passages: Sequence[Passage]) -> str:
    """A page in MyST: one section per register, one passage after the other, as HTML."""
    source = Path(__file__).with_suffix(".md")
    return filled(source, registers=REGISTERS, passages=passages, paragraphs=_paragraphs)


def _paragraphs(passage: Passage) -> list[str]:
    """Both paragraphs of a passage, with its mentions marked."""
    ends = (0, passage.sentences[passage.second_paragraph][0], len(passage.words))
    return [_marked(passage, *both) for both in pairwise(ends)]


def _marked(passage: Passage, start: int, end: int) -> str:
    """Words with their spaces as printed, wrapped in the mentions that open and close there."""
    colour = {entity: i % N_COLOURS for i, entity in enumerate(passage.clusters)}
    heads = {mention.head for mention in passage.mentions}
    out = []
    for word in range(start, end):
        if word > start:
            out.append(passage.text[passage.offsets[word - 1][1] : passage.offsets[word][0]])
        opening = (m for m in passage.mentions if m.start == word)
        for mention in sorted(opening, key=lambda m: -m.end):
            out.append(f'<span class="mention c{colour[mention.entity]}">')
        text = escape(passage.words[word])
        out.append(f"<b>{text}</b>" if word in heads else text)
        closing = (m for m in passage.mentions if m.end == word + 1)
        for mention in sorted(closing, key=lambda m: -m.start):
            out.append(f"<sub>{escape(mention.entity)}</sub></span>")
    return "".join(out)
