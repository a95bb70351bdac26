"""The Reader as a page of the book: every passage with its annotation drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from attnlib.data.reader.markup import REGISTERS, Frame, Mention, Passage, Query

N_COLOURS = 8
"""Entities of a passage take turns with so many colours; the label beside a mention decides."""


def page(passages: Sequence[Passage]) -> str:
    """A page in MyST: one section per register, one drawn passage after the other."""
    parts = [INTRODUCTION]
    for register in REGISTERS:
        chosen = [one for one in passages if one.register == register]
        parts.append(f"## {register.capitalize()}\n")
        parts += [f"(reader-{one.id})=\n### {one.title}\n\n{drawn(one)}\n" for one in chosen]
    return "\n".join(parts)


INTRODUCTION = """# The passages of the Reader

Underlined words are *mentions*: they speak of an entity that the passage mentions at least twice.
All mentions of one entity have one colour and one label; the **bold** word is the head of its
mention. Below the text stand the frames (a predicate and its core elements) and the questions;
click a question to see its answer. The [data card](reader) says how all this was made.
"""


def drawn(passage: Passage) -> str:
    """One passage as HTML that needs no script."""
    facts = f"{len(passage.plain_words)} words · {len(passage.mentions)} mentions of "
    facts += f"{len(passage.clusters)} entities · <code>{passage.id}</code>"
    pieces = [
        '<div class="attn-reader">',
        f'<p class="facts">{facts}</p>',
        *(f"<p>{_paragraph(passage, *span)}</p>" for span in _paragraphs(passage)),
        _frames(passage),
        _questions(passage),
        "</div>",
    ]
    return "```{raw} html\n" + "\n".join(pieces) + "\n```"


def _paragraphs(passage: Passage) -> Iterable[tuple[int, int]]:
    """Words of the first and of the second paragraph."""
    middle = passage.sentences[passage.second_paragraph][0]
    return (0, middle), (middle, len(passage.words))


def _paragraph(passage: Passage, start: int, end: int) -> str:
    """Words with their spaces as printed, wrapped in the mentions that open and close there."""
    colour = {entity: i % N_COLOURS for i, entity in enumerate(passage.clusters)}
    heads = {mention.head for mention in passage.mentions}
    out = []
    for word in range(start, end):
        if word > start:
            out.append(passage.text[passage.offsets[word - 1][1] : passage.offsets[word][0]])
        opening = (m for m in passage.mentions if m.start == word)
        out += [_open(m, colour) for m in sorted(opening, key=lambda m: -m.end)]
        text = escape(passage.words[word])
        out.append(f"<b>{text}</b>" if word in heads else text)
        closing = (m for m in passage.mentions if m.end == word + 1)
        out += [_close(m) for m in sorted(closing, key=lambda m: -m.start)]
    return "".join(out)


def _open(mention: Mention, colour: dict[str, int]) -> str:
    return f'<span class="mention c{colour[mention.entity]}">'


def _close(mention: Mention) -> str:
    return f"<sub>{escape(mention.entity)}</sub></span>"


def _frames(passage: Passage) -> str:
    if not passage.frames:
        return ""
    return '<ul class="frames">' + "".join(_frame(passage, f) for f in passage.frames) + "</ul>"


def _frame(passage: Passage, frame: Frame) -> str:
    elements = ", ".join(
        f"<i>{escape(name)}</i> {escape(passage.surface(*span))}" for name, span in frame.elements
    )
    target = escape(passage.surface(*frame.target))
    return f"<li><b>{target}</b> <span>{escape(frame.frame)}</span> {elements}</li>"


def _questions(passage: Passage) -> str:
    return "".join(_question(passage, question) for question in passage.questions)


def _question(passage: Passage, question: Query) -> str:
    hard = " <em>hard</em>" if question.hard else ""
    answer = escape(passage.surface(*question.answer))
    summary = f"<summary>{escape(question.text)}{hard}</summary>"
    return f"<details>{summary}<p>{answer}</p></details>"
