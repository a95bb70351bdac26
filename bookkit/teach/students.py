"""Student copies of the chapters: the same notebooks, with blanks in place of the solutions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nbformat.v4 import new_code_cell, new_markdown_cell

from bookkit.errors import NotebookError
from bookkit.teach.exercises import LEVELS, Exercise, Part, exercise
from bookkit.teach.plain_markdown import BLANK, Words, equation_numbers, plain_markdown
from bookkit.templates import filled

Cell = dict[str, Any]

_FENCE = re.compile(
    r"^(?P<fence>`{3,})\{(?P<kind>exercise|solution)\}(?P<inside>.*?)^(?P=fence)[ \t]*$",
    re.M | re.S,
)
GUIDE = Path(__file__).with_name("students.md")
_LABEL = re.compile(r"^:label: (\S+)\n", re.M)


def student_copy(
    book: Mapping[str, Any], papers: Mapping[str, tuple[str, str]] | None = None
) -> dict[str, Any]:
    """A notebook without outputs and solutions, and with cells for answers and checks.

    papers  names and years by key, for citations
    """
    texts = ["".join(cell["source"]) for cell in book["cells"]]
    words = Words(papers or {}, equation_numbers(texts))
    made: list[Cell] = []
    for number, (cell, text) in enumerate(zip(book["cells"], texts, strict=True), start=1):
        name = cell.get("id") or f"cell-{number}"
        if cell["cell_type"] == "markdown":
            made += _open_text(name, text, words)
        else:
            made.append(_emptied(cell, name, text))
        if number == 1:
            made.append(new_markdown_cell(filled(GUIDE, blank=BLANK), id="how-to-use-this-copy"))
    kept = ("kernelspec", "language_info")
    metadata = {key: value for key, value in book["metadata"].items() if key in kept}
    return {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _emptied(cell: Cell, name: str, text: str) -> Cell:
    """A code cell as it was before it ran. Cells that the book hides are folded."""
    tags = list(cell["metadata"].get("tags", []))
    metadata: dict[str, Any] = {"tags": tags} if tags else {}
    if {"remove-cell", "remove-input", "hide-input"} & set(tags):
        metadata["jupyter"] = {"source_hidden": True}
    return new_code_cell(text, id=name, metadata=metadata)


def _open_text(name: str, text: str, words: Words) -> Iterator[Cell]:
    """The cells that a text becomes: text as it is, exercises with blanks, no solutions."""
    at, count = 0, 0
    for found in [*_FENCE.finditer(text), None]:
        between = text[at : found.start() if found else len(text)].strip()
        if between:
            count += 1
            own = name if count == 1 else f"{name}-{count}"
            yield new_markdown_cell(plain_markdown(between, words), id=own)
        if found and found["kind"] == "exercise":
            yield from _exercise_cells(found["inside"], words)
        at = found.end() if found else len(text)


def _exercise_cells(inside: str, words: Words) -> Iterator[Cell]:
    label = _LABEL.search(inside)
    if label is None:
        raise NotebookError("an exercise has no label. Give it one, and an entry in the catalogue.")
    entry = exercise(label[1])
    pencil = entry.needs == "paper and pencil"
    needs = entry.needs if pencil else f"data of the {entry.needs} edition"
    about = f"*{LEVELS[entry.level]} · about {entry.minutes} minutes · {needs}*"
    task = plain_markdown(_LABEL.sub("", inside, count=1).strip(), words)
    head = f"### Exercise {entry.number}: {entry.title}"
    yield new_markdown_cell(f"{head}\n\n{about}\n\n{task}", id=entry.label)
    yield new_code_cell("# Your work", id=f"{entry.label}-work", metadata={"tags": ["answer"]})
    checks = check_source(entry)
    yield new_code_cell(checks, id=f"{entry.label}-check", metadata={"tags": ["check"]})


def check_source(entry: Exercise) -> str:
    """The code of a check cell, with a blank for every part and what it asks for above it."""
    start = "from bookkit import check\n\n"
    if len(entry.parts) == 1:
        (part,) = entry.parts
        return f'{start}# {_asked(part)}\ncheck("{entry.label}", ...)'
    blanks = "".join(
        f'        # {_asked(part)}\n        "{part.name}": ...,\n' for part in entry.parts
    )
    return f'{start}check(\n    "{entry.label}",\n    {{\n{blanks}    }},\n)'


def _asked(part: Part) -> str:
    """What a part asks for, with its choices unless the question names them already."""
    if all(choice in part.asks for choice in part.choices):
        return part.asks
    return f"{part.asks} ({'; '.join(part.choices)})"
