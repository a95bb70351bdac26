"""The exercises of the book: a catalogue, and a check that answers with a hint at most.

Answers are hashed in book/exercises.toml: words as they are, numbers as the cells of a grid. This
is a nudge, not security. Whoever wants an answer can read the folded solution in the book, or try
all numbers; a student who opens the file by chance should just not see it.
"""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cache
from itertools import product
from numbers import Real
from pathlib import Path
from typing import Any, Literal

from bookkit.checking import check_keys
from bookkit.errors import BadValue, UnknownName, did_you_mean
from bookkit.project import project_root
from bookkit.templates import filled

LEVELS = {1: "warm-up", 2: "core", 3: "project"}
MARKS = {"right": "✓", "wrong": "✗", "open": "…"}


@dataclass(frozen=True)
class Part:
    """One thing a computer can check in an answer.

    sealed  the right answer, hashed
    wrong   (hashed answer, hint) for mistakes that were foreseen
    hint    for all other mistakes
    """

    name: str
    asks: str
    kind: Literal["number", "word", "set", "list"]
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
    level: Literal[1, 2, 3]
    minutes: int
    needs: Literal["paper and pencil", "pocket", "standard"]
    parts: tuple[Part, ...]

    @property
    def short(self) -> str:
        """The name by number, such as `clark-3`."""
        return f"{prefix(self.chapter)}-{self.number}"


def catalogue() -> Mapping[str, Exercise]:
    """Every exercise by its label, in the order of the chapters; empty for a book without any."""
    file = project_root() / "book" / "exercises.toml"
    return read_exercises(file) if file.is_file() else {}


@cache
def read_exercises(file: Path) -> Mapping[str, Exercise]:
    """The exercises of a file; every entry is checked."""
    found: dict[str, Exercise] = {}
    for label, entry in tomllib.loads(file.read_text(encoding="utf-8")).items():
        number = 1 + sum(one.chapter == entry["chapter"] for one in found.values())
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
    labels = catalogue()
    numbers = {one.short: one for one in labels.values()}
    numbers |= {f"{one.chapter}-{one.number}": one for one in labels.values()}
    known = {**numbers, **labels}
    if name in known:
        return known[name]
    hint = did_you_mean(name, [*labels, *numbers]) or f"Known: {', '.join(labels) or 'none'}."
    raise UnknownName(f"exercise '{name}'. {hint.strip()}")


def check(name: str, answer: Any) -> Feedback:
    """Is an answer right? If not, a hint.

    name    the label of the exercise, or its number in its chapter: `clark-3`
    answer  a number, a word, a set or a list; where an exercise has several parts, a dict by part,
            or a list in the order of the parts
    """
    found = exercise(name)
    try:
        given = _by_part(found, answer)
    except BadValue as error:
        return Feedback(found, False, str(error))
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
        n_right = sum(one.state == "right" for one in self.remarks)
        state = "right" if self.ok else f"{n_right} of {len(self.exercise.parts)} right so far"
        return f"{self.exercise.short}, {self.exercise.title}: {state}."

    def _repr_html_(self) -> str:
        page = Path(__file__).with_name("feedback.html")
        return filled(page, headline=self._headline(), marks=MARKS, **vars(self))


def _by_part(found: Exercise, answer: Any) -> dict[str, Any]:
    """The answer by part: a dict by name, a list in order, or one answer for the first part."""
    names = [part.name for part in found.parts]
    if isinstance(answer, Mapping):
        for name in answer:
            if name not in names:
                near = did_you_mean(str(name), names)
                known = ", ".join(names)
                raise BadValue(f"There is no part '{name}'. {near}The parts are: {known}.")
        return dict(answer)
    several = len(names) > 1 and all(part.kind in ("number", "word") for part in found.parts)
    if not several or not isinstance(answer, list | tuple):
        return {names[0]: answer}
    if len(answer) != len(names):
        blanks = ", ".join(f'"{name}": ...' for name in names)
        count = f"Given {len(answer)} answers for {len(names)} parts."
        raise BadValue(f"{count} Name them: {{{blanks}}}.")
    return dict(zip(names, answer, strict=True))


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
    for hint, value in _slips(given) if part.kind == "number" else ():
        # Without the neighbouring cells: a slip is only named when it explains the number well.
        explains = hit(part.sealed, place, value, part.tolerance, reach=0)
        if explains and abs(value) > 2 * part.tolerance:
            return Remark(part.name, "wrong", hint)
    return Remark(part.name, "wrong", part.hint)


def _slips(given: float) -> Iterator[tuple[str, float]]:
    """The usual slips: a hint, and what the number would be without the slip."""
    yield "This looks like percent. Give a share: 1 is all.", given / 100
    yield "This looks like a share of 1. Read again which unit is asked for.", given * 100
    yield "The size is right. Look at the sign, or at the direction.", -given
    yield "This looks like the rest to 1: the other side of what was asked.", 1 - given
    yield "This looks like bits. The book takes the natural logarithm.", given * math.log(2)
    if given:
        yield "This looks upside down: exchange what you divide and what you divide by.", 1 / given


def _settled(part: Part, answer: Any) -> Any:
    """An answer in the form in which it is compared; an error if it is of another kind."""
    if part.kind == "number":
        return number_of(answer)
    if part.kind == "word":
        return _word(part, answer)
    if isinstance(answer, str) or not hasattr(answer, "__iter__"):
        raise BadValue(f"This is one {type(answer).__name__}; expected a {part.kind}: {part.asks}.")
    if part.kind == "list":
        return [number_of(one) if part.tolerance else _word(part, one) for one in answer]
    return sorted({_word(part, one) for one in answer})


def number_of(answer: Any) -> float:
    """A number as people give it: 0.25, 1/4, "25%", or a numpy number."""
    if isinstance(answer, str):
        text = answer.strip().replace("−", "-").replace(",", "")
        percent = text.endswith("%")
        try:
            value = float(Fraction(text.rstrip("% ")))
        except (ValueError, ZeroDivisionError):
            raise BadValue(f"'{answer}' is no number; expected one such as 0.25.") from None
        return value / 100 if percent else value
    if hasattr(answer, "item") and getattr(answer, "size", 1) == 1:
        answer = answer.item()
    if isinstance(answer, bool) or not isinstance(answer, Real):
        raise BadValue(f"This is a {type(answer).__name__}; expected a number.")
    if not math.isfinite(answer):
        raise BadValue(f"This is {float(answer)}; expected a finite number. A mean of nothing?")
    return float(answer)


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


# --- sealed answers -------------------------------------------------------------------------------

SALT = "what attention heads do"
LENGTH = 12  # of a seal: short enough to read past, long enough that two do not meet by chance
MOST = 6  # no list of numbers that is asked for is longer


def seals(place: str, answer: Any, tolerance: float = 0.0, *, reach: int = 0) -> Iterator[str]:
    """The hash of an answer in the form in which it is compared.

    place  label and part; makes equal answers look different
    reach  how many neighbouring cells of each number are hashed too
    """
    parts = [answer] if isinstance(answer, str | Real) else list(answer)
    if len(parts) > MOST:  # no answer is that long, and the neighbours of each would be tried
        reach = 0
    near = range(-reach, reach + 1)
    choices = [
        [one] if isinstance(one, str) else [cell(float(one), tolerance) + step for step in near]
        for one in parts
    ]
    for text in product(*choices):
        hashed = f"{SALT}\0{place}\0{'|'.join(map(str, text))}"
        yield hashlib.sha256(hashed.encode()).hexdigest()[:LENGTH]


def hit(sealed: str, place: str, given: Any, tolerance: float = 0.0, *, reach: int = 1) -> bool:
    """Whether this is the sealed answer.

    A number within the tolerance always is; one that is twice as far away never is. In between the
    grid decides, since the exact answer is not known here.
    """
    return sealed in seals(place, given, tolerance, reach=reach)


def cell(value: float, tolerance: float) -> int:
    """The number of the grid cell that holds a value; cells are as wide as the tolerance."""
    return math.floor(value / tolerance + 0.5)


# --- entries of the file --------------------------------------------------------------------------

PART = {one.name: str(one.type) for one in fields(Part)}
ENTRY = {one.name: str(one.type) for one in fields(Exercise) if one.name not in ("label", "number")}
"""What an entry of the file must say, and of which type."""


def _exercise(label: str, number: int, entry: Mapping[str, Any]) -> Exercise:
    """One entry of the file; what is missing or unknown is said at once."""
    given = {("parts" if key == "part" else key): value for key, value in entry.items()}
    check_keys(given, ENTRY, label)
    parts = tuple(_part(label, one) for one in given["parts"])
    if len({one.name for one in parts}) < len(parts):
        raise BadValue(f"{label}: two parts have the same name. Give each its own.")
    return Exercise(**{**given, "label": label, "number": number, "parts": parts})


def _part(label: str, entry: Mapping[str, Any]) -> Part:
    check_keys(entry, PART, label, optional=("wrong", "tolerance", "choices"))
    if entry["kind"] == "number" and not entry.get("tolerance", 0) > 0:
        raise BadValue(f"{label}: part '{entry['name']}' has no tolerance above 0. Give one.")
    wrong = tuple((sealed, hint) for sealed, hint in entry.get("wrong", []))
    return Part(**{**entry, "wrong": wrong, "choices": tuple(entry.get("choices", []))})
