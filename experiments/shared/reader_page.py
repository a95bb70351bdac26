"""The Reader as a page of the book: every passage with its annotation drawn."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from attnlib.data.reader.markup import REGISTERS, Passage

INTRODUCTION = Path(__file__).with_suffix(".md")
N_COLOURS = 8
"""Entities of a passage take turns with so many colours; the label beside a mention decides."""


def page(passages: Sequence[Passage]) -> str:
    """A page in MyST: one section per register, one drawn passage after the other."""
    parts = [INTRODUCTION.read_text(encoding="utf-8")]
    for register in REGISTERS:
        chosen = [one for one in passages if one.register == register]
        parts.append(f"## {register.capitalize()}\n")
        parts += [f"(reader-{one.id})=\n### {one.title}\n\n{drawn(one)}\n" for one in chosen]
    return "\n".join(parts)


def drawn(passage: Passage) -> str:
    """One passage as HTML that needs no script."""
    facts = f"{len(passage.plain_words)} words · {len(passage.mentions)} mentions of "
    facts += f"{len(passage.clusters)} entities · <code>{passage.id}</code>"
    middle = passage.sentences[passage.second_paragraph][0]
    pieces = [
        '<div class="attn-reader">',
        f'<p class="facts">{facts}</p>',
        f"<p>{_paragraph(passage, 0, middle)}</p>",
        f"<p>{_paragraph(passage, middle, len(passage.words))}</p>",
        _frames(passage),
        _questions(passage),
        "</div>",
    ]
    return "```{raw} html\n" + "\n".join(pieces) + "\n```"


def _paragraph(passage: Passage, start: int, end: int) -> str:
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


def _frames(passage: Passage) -> str:
    rows = []
    for frame in passage.frames:
        elements = ", ".join(
            f"<i>{escape(name)}</i> {escape(passage.surface(*span))}"
            for name, span in frame.elements
        )
        target = escape(passage.surface(*frame.target))
        rows.append(f"<li><b>{target}</b> <span>{escape(frame.frame)}</span> {elements}</li>")
    return f'<ul class="frames">{"".join(rows)}</ul>' if rows else ""


def _questions(passage: Passage) -> str:
    rows = []
    for question in passage.questions:
        hard = " <em>hard</em>" if question.hard else ""
        answer = escape(passage.surface(*question.answer))
        summary = f"<summary>{escape(question.text)}{hard}</summary>"
        rows.append(f"<details>{summary}<p>{answer}</p></details>")
    return "".join(rows)
