"""Write book/exercises.toml: the teacher's copy with every answer replaced by its hash.

Run `python tests/seal_exercises.py` after a change in tests/exercises_with_answers.toml.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from bookkit.teach.exercises import plain, seals

FILE = Path(__file__).parents[1] / "book" / "exercises.toml"
SOURCE = Path(__file__).with_name("exercises_with_answers.toml")
HEAD = """\
# Written by `python tests/seal_exercises.py`; edit tests/exercises_with_answers.toml instead.
#
# Answers are hashed, so that a student who opens this file does not trip over them. It is a nudge,
# not security: the solutions stand, folded, in the book.
"""


def teachers_copy() -> dict[str, dict[str, Any]]:
    """Every exercise with its answers, as a teacher edits them."""
    return tomllib.loads(SOURCE.read_text(encoding="utf-8"))


def settled(answer: Any, kind: str) -> Any:
    """An answer of the teacher's copy in the form in which answers are compared."""
    if isinstance(answer, str):
        return plain(answer)
    if isinstance(answer, list):
        parts = [settled(one, kind) for one in answer]
        return sorted(set(parts)) if kind == "set" else parts
    return float(answer)


def seal(place: str, answer: Any, tolerance: float = 0.0) -> str:
    """The one hash under which an answer is stored."""
    (sealed,) = seals(place, answer, tolerance)
    return sealed


def sealed_part(label: str, part: dict[str, Any]) -> dict[str, Any]:
    """A part without its answers."""
    place, tolerance = f"{label}/{part['name']}", part.get("tolerance", 0.0)

    def closed(answer: Any) -> str:
        return seal(place, settled(answer, part["kind"]), tolerance)

    kept = {
        key: part[key] for key in ("name", "asks", "kind", "choices", "tolerance") if key in part
    }
    wrong = [[closed(answer), hint] for answer, hint in part.get("wrong", [])]
    return {**kept, "sealed": closed(part["answer"]), "hint": part["hint"], "wrong": wrong}


def sealed_text(source: dict[str, dict[str, Any]]) -> str:
    """The file that students get. JSON writes numbers, strings and lists as TOML reads them."""
    blocks = [HEAD]
    for label, entry in source.items():
        keys = ("chapter", "title", "level", "minutes", "needs")
        lines = [f"[{label}]", *(f"{key} = {_toml(entry[key])}" for key in keys)]
        for part in entry["part"]:
            lines.append(f"[[{label}.part]]")
            lines += [f"{key} = {_toml(value)}" for key, value in sealed_part(label, part).items()]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    FILE.write_text(sealed_text(teachers_copy()), encoding="utf-8")
    print(f"{len(teachers_copy())} exercises in {FILE.name}")
