"""A passage on the terminal: mentions in the colour of their entity, frames, questions."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.text import Text

from attnlib.data.reader.markup import Passage

INKS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")


def shown(passage: Passage) -> Group:
    """The passage with its annotation, to be printed."""
    return Group(
        Text(f"{passage.title}  ", style="bold").append(f"({passage.register})\n", style="dim"),
        _text(passage),
        _entities(passage),
        _frames(passage),
        _questions(passage),
    )


def _ink(passage: Passage, entity: str) -> str:
    return INKS[list(passage.clusters).index(entity) % len(INKS)]


def _text(passage: Passage) -> Text:
    """Outer mentions first, so that an inner one keeps its own colour."""
    text = Text(passage.text + "\n")
    for mention in sorted(passage.mentions, key=lambda m: m.start - m.end):
        start, end = passage.offsets[mention.start][0], passage.offsets[mention.end - 1][1]
        text.stylize(_ink(passage, mention.entity), start, end)
    return text


def _entities(passage: Passage) -> Text:
    lines = Text("Entities\n", style="bold")
    for entity, mentions in passage.clusters.items():
        words = " · ".join(passage.surface(m.start, m.end) for m in mentions)
        lines.append(f"  {entity}: {words}\n", style=_ink(passage, entity))
    return lines


def _frames(passage: Passage) -> Text:
    lines = Text("Frames\n", style="bold")
    for frame in passage.frames:
        parts = "; ".join(f"{name}: {passage.surface(*span)}" for name, span in frame.elements)
        lines.append(f"  {passage.surface(*frame.target)} ({frame.frame}) {parts}\n", style="none")
    return lines


def _questions(passage: Passage) -> Text:
    lines = Text("Questions\n", style="bold")
    for question in passage.questions:
        mark = " (hard)" if question.hard else ""
        answer = passage.surface(*question.answer)
        lines.append(f"  {question.text} {answer}{mark}\n", style="none")
    return lines


def listed(value: Any) -> str:
    """A count, or counts by name from the largest down."""
    if not isinstance(value, dict):
        return str(value)
    ordered = sorted(value.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count}" for name, count in ordered)
