"""The exercises of the book: a catalogue, and a check that answers with a hint at most."""

from __future__ import annotations

import html
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from attnlib.errors import AttnlibError, BadValue, UnknownName, did_you_mean
from bookkit.teach.answerseals import hit, number_of, shifted

FILE = Path(__file__).with_name("exercises.toml")
LEVELS = {1: "warm-up", 2: "core", 3: "project"}
NEEDS = ("paper and pencil", "pocket", "standard")
SINGLE = ("number", "word")
KINDS = (*SINGLE, "set", "list")


class ExerciseError(AttnlibError):
    """An entry of the catalogue that does not say what it must say."""


@dataclass(frozen=True)
class Part:
    """One thing a computer can check in an answer.

    sealed  the right answer, hashed: see `answerseals`
    wrong   (hashed answer, hint) for mistakes that were foreseen
    hint    for all other mistakes
    """

    name: str
    asks: str
    kind: str
    sealed: str
    hint: str
    wrong: tuple[tuple[str, str], ...] = ()
    tolerance: float = 0.0
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exercise:
    """One exercise of a chapter, as a teacher plans with it."""

    label: str
    number: int  # its place in the chapter, from 1
    chapter: str
    title: str
    level: int
    minutes: int
    needs: str
    parts: tuple[Part, ...]

    @property
    def short(self) -> str:
        """The name by number, such as `clark-3`."""
        return f"{prefix(self.chapter)}-{self.number}"


@cache
def catalogue(file: Path = FILE) -> Mapping[str, Exercise]:
    """Every exercise by its label, in the order of the chapters."""
    with file.open("rb") as opened:
        content = tomllib.load(opened)
    seen: dict[str, int] = {}
    found = {}
    for label, entry in content.items():
        seen[entry["chapter"]] = number = seen.get(entry["chapter"], 0) + 1
        found[label] = _exercise(label, number, entry)
    return found


def of_chapter(chapter: str) -> list[Exercise]:
    """The exercises of one chapter, in their order."""
    return [one for one in catalogue().values() if one.chapter == chapter]


def prefix(chapter: str) -> str:
    """What the labels of a chapter begin with: `clark` for clark2019."""
    return re.sub(r"\d+$", "", chapter).replace("_", "-")


def exercise(name: str) -> Exercise:
    """An exercise by its label (`clark-offsets`) or its number in its chapter (`clark-3`)."""
    known = catalogue()
    if name in known:
        return known[name]
    by_number = {one.short: one for one in known.values()}
    by_number |= {f"{one.chapter}-{one.number}": one for one in known.values()}
    if name in by_number:
        return by_number[name]
    hint = did_you_mean(name, [*known, *by_number]) or f"Known: {', '.join(known)}."
    raise UnknownName(f"exercise '{name}'. {hint.strip()}")


def check(name: str, answer: Any) -> Feedback:
    """Is an answer right? If not, a hint.

    name    the label of the exercise, or its number in its chapter: `clark-3`
    answer  a number, a word, a set or a list; where an exercise has several parts, a dict by part,
            or a list in the order of the parts
    """
    found = exercise(name)
    given = _by_part(found, answer)
    if isinstance(given, str):
        return Feedback(found, False, given)
    remarks = tuple(_remark(found, part, given.get(part.name, ...)) for part in found.parts)
    wrong = [one for one in remarks if one.state == "wrong"]
    left = [one.part for one in remarks if one.state == "open"]
    if wrong:
        single = len(found.parts) == 1
        hint = " ".join(one.hint if single else f"{one.part}: {one.hint}" for one in wrong)
    elif left:
        hint = f"Still open: {', '.join(left)}. Put your answer in place of the dots."
    else:
        hint = ""
    return Feedback(found, not wrong and not left, hint, remarks)


@dataclass(frozen=True)
class Remark:
    """What the check says of one part: right, wrong (with a hint) or open (with what it asks)."""

    part: str
    state: str
    hint: str = ""


@dataclass(frozen=True, repr=False)
class Feedback:
    """The outcome of a check: `ok`, and if it is not ok a `hint`."""

    exercise: Exercise
    ok: bool
    hint: str
    remarks: tuple[Remark, ...] = ()

    def __repr__(self) -> str:
        lines = [f"{'✓' if self.ok else '✗'} {self._headline()}"]
        if self.remarks:
            lines += [f"  {MARKS[r.state]} {r.part}  {r.hint}".rstrip() for r in self.remarks]
        elif self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)

    def _headline(self) -> str:
        name = f"{self.exercise.short}, {self.exercise.title}"
        n_right = sum(one.state == "right" for one in self.remarks)
        if self.ok:
            return f"{name}: right."
        return f"{name}: {n_right} of {len(self.exercise.parts)} right so far."

    def _repr_html_(self) -> str:
        colour = "#1b7a45" if self.ok else "#b06000"
        rows = "".join(
            f"<li><b>{MARKS[r.state]} {html.escape(r.part)}</b> {html.escape(r.hint)}</li>"
            for r in self.remarks
        )
        body = f'<ul style="list-style:none;margin:.3em 0 0;padding:0">{rows}</ul>'
        if not self.remarks:
            body = f'<p style="margin:.3em 0 0">{html.escape(self.hint)}</p>'
        box = f"border-left:4px solid {colour};padding:.4em .9em;margin:.4em 0;line-height:1.5"
        return f'<div style="{box}"><b>{html.escape(self._headline())}</b>{body}</div>'


MARKS = {"right": "✓", "wrong": "✗", "open": "…"}


def _by_part(found: Exercise, answer: Any) -> dict[str, Any] | str:
    """The answer by part: a dict by name, a list in order, and a single answer for the first part.

    A sentence where it cannot be told which part an answer is for.
    """
    names = [part.name for part in found.parts]
    if isinstance(answer, Mapping):
        for name in answer:
            if name not in names:
                near = did_you_mean(str(name), names)
                return f"There is no part '{name}'. {near}The parts are: {', '.join(names)}."
        return dict(answer)
    if answer is ... or len(names) == 1:
        return {names[0]: answer}
    several = isinstance(answer, list | tuple) and all(p.kind in SINGLE for p in found.parts)
    if several and len(answer) == len(names):
        return dict(zip(names, answer, strict=True))
    if several:
        blanks = ", ".join(f'"{name}": ...' for name in names)
        return f"Given {len(answer)} answers for {len(names)} parts. Name them: {{{blanks}}}."
    return {names[0]: answer}


def _remark(found: Exercise, part: Part, answer: Any) -> Remark:
    """Right, wrong or open; the first mistake that fits gives the hint."""
    if answer is ... or answer is None:
        return Remark(part.name, "open", part.asks)
    try:
        given = _settled(part, answer)
    except BadValue as error:
        return Remark(part.name, "wrong", str(error))
    place = f"{found.label}/{part.name}"
    if hit(part.sealed, place, given, part.tolerance):
        return Remark(part.name, "right")
    for sealed, hint in part.wrong:
        if hit(sealed, place, given, part.tolerance):
            return Remark(part.name, "wrong", hint)
    for hint, value in _slips(part, given):
        # Without the neighbouring cells: a slip is only named when it explains the number well.
        if hit(part.sealed, place, value, part.tolerance, reach=0):
            return Remark(part.name, "wrong", hint)
    return Remark(part.name, "wrong", part.hint)


def _slips(part: Part, given: Any) -> Iterator[tuple[str, float]]:
    """What the number would be without one of the usual slips."""
    if part.kind == "number":
        for hint, value in shifted(given):
            if abs(value) > 2 * part.tolerance:
                yield hint, value


def _settled(part: Part, answer: Any) -> Any:
    """An answer in the form in which it is compared; a sentence if it is of another kind."""
    if part.kind == "number":
        return number_of(answer)
    if part.kind == "word":
        return _word(part, answer)
    if isinstance(answer, str) or not hasattr(answer, "__iter__"):
        raise BadValue(f"This is one {type(answer).__name__}; expected a {part.kind}: {part.asks}.")
    if part.kind == "list":
        return [number_of(one) if part.tolerance else _word(part, one) for one in answer]
    return sorted({_word(part, one) for one in answer})


def _word(part: Part, answer: Any) -> str:
    """A word without the accidents of typing; one that is no choice is refused."""
    if not isinstance(answer, str):
        raise BadValue(f"This is {answer!r}; expected a word, in quotes: {part.asks}.")
    word = plain(answer)
    if part.choices and word not in map(plain, part.choices):
        near = did_you_mean(word, part.choices)
        raise BadValue(f"'{answer}' is no choice. {near}Choose from: {', '.join(part.choices)}.")
    return word


def plain(word: str) -> str:
    """Lower case, one blank, plain arrows and hyphens."""
    word = word.replace("→", "->").replace("–", "-").replace("−", "-")
    return " ".join(word.casefold().split())


def _exercise(label: str, number: int, entry: Mapping[str, Any]) -> Exercise:
    """One entry of the file; what is missing or unknown is said at once."""
    for key, known in (("level", LEVELS), ("needs", NEEDS)):
        if entry.get(key) not in known:
            expected = ", ".join(map(str, known))
            raise ExerciseError(f"{label}: {key} is {entry.get(key)!r}; expected {expected}.")
    parts = tuple(_part(label, one) for one in entry["part"])
    if len({one.name for one in parts}) < len(parts):
        raise ExerciseError(f"{label}: two parts have the same name. Give each its own.")
    told = {key: entry[key] for key in ("chapter", "title", "level", "minutes", "needs")}
    return Exercise(label=label, number=number, parts=parts, **told)


def _part(label: str, entry: Mapping[str, Any]) -> Part:
    if entry["kind"] not in KINDS:
        raise ExerciseError(f"{label}: kind '{entry['kind']}'; expected {', '.join(KINDS)}.")
    if entry["kind"] == "number" and not entry.get("tolerance", 0) > 0:
        raise ExerciseError(f"{label}: part '{entry['name']}' has no tolerance above 0. Give one.")
    wrong = tuple((sealed, hint) for sealed, hint in entry.get("wrong", []))
    return Part(**{**entry, "wrong": wrong, "choices": tuple(entry.get("choices", []))})
