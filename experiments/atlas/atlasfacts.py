"""What is known of every head: one column of the atlas, checked, and in the words a card shows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from attnlib.errors import BadValue, check_choice
from bookkit.pagetables import number_text

KINDS = ("number", "class", "flag")
DIGITS = 8
"""Significant digits of a fact. With five, one number in a few hundred would be rounded twice and
differ in its last shown digit from the table it came from."""

UNITS = {"share": " %", "percent": " %", "": ""}
MISSING = "not measured"
DETAILS = {
    "n": "{} inputs",
    "stability": "called so in {}\u00a0% of the redraws",
    "accuracy": "finds {}\u00a0%",
    "baseline": "best offset {}\u00a0%",
    "bias": "bias {}",
}
"""Further columns of a fact as they are said; others by their name."""
SMALL = 0.001
"""Below this a p or q is only said to be below it: its digits would mean nothing."""

Value = float | int | str | None


@dataclass(frozen=True, eq=False)
class Fact:
    """One thing that is known of every head of a model.

    key        as in tables and addresses: "mass_to_next", "guan_type", "disabled_rte"
    name       in words: "attention to the next token"
    paper      who asks this: clark2019, kovaleva2019, guan2020, pande2021, agreement
    kind       "number", "class" (a word), or "flag" (0 or 1, such as having a role)
    unit       "share" (0 to 1, shown in percent), "percent", "points", "nats", ...
    group      heading on the card and in the menu of colours: "Where it looks", "Roles", ...
    value      one per head, layer by layer; None, or NaN, where nothing is known
    low, high  ends of the 95% interval
    note       evidence in words, per head: "det 62.1 %, fixed offset 41.0 %"
    detail     further columns: n, p, q, bias, stability (a share), accuracy (percent), ...
    diverging  numbers have a sign that matters: colours and bars start from 0
    where      the place in the book that discusses it, "notebooks/clark2019.html#surface-patterns"
    source     the name of the result it was read from
    about      one sentence: how it is measured
    words      more words by which a reader may look for it

    Facts whose key begins with `disabled_` are changes of a score, in points: below 0 the model is
    worse without the head.
    """

    key: str
    name: str
    paper: str
    kind: str
    unit: str
    group: str
    value: Sequence[Value]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None
    note: Sequence[str | None] | None = None
    detail: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    diverging: bool = False
    where: str = ""
    source: str = ""
    about: str = ""
    words: str = ""

    def __post_init__(self) -> None:
        """Bring all columns to plain numbers and words: a fact from a file equals the one saved."""
        check_choice(f"kind of fact '{self.key}'", self.kind, KINDS)
        if not self.key or not self.name or not self.group:
            raise BadValue(f"fact '{self.key}' has no key, name or group; expected all three.")
        if re.match(r"\s*([a-z][\w+.-]*:|/)", self.where, re.I):
            raise BadValue(
                f"fact '{self.key}' is discussed at '{self.where}'; expected a page of the book, "
                "such as notebooks/clark2019.html#surface-patterns."
            )
        read = {"number": _number, "class": _word, "flag": _flag}[self.kind]
        self._keep("value", read, self.value)
        if (self.low is None) != (self.high is None):
            raise BadValue(f"fact '{self.key}' has one end of an interval; expected both or none.")
        for end in ("low", "high"):
            self._keep(end, _number, getattr(self, end))
        self._keep("note", _word, self.note)
        columns = {str(name): self._column(name, _plain, self.detail[name]) for name in self.detail}
        object.__setattr__(self, "detail", columns)
        for low, high in zip(self.low or (), self.high or (), strict=True):
            if low is not None and high is not None and low > high:
                raise BadValue(
                    f"fact '{self.key}' has an interval from {low} to {high}; expected the lower "
                    "end first."
                )

    def _keep(self, column: str, read: Any, given: Sequence[Any] | None) -> None:
        if given is not None:
            object.__setattr__(self, column, self._column(column, read, given))

    def _column(self, name: str, read: Any, given: Sequence[Any]) -> tuple[Any, ...]:
        listed = given.tolist() if hasattr(given, "tolist") else given
        values = [value.item() if hasattr(value, "item") else value for value in listed]
        if len(values) != len(self.value):
            raise BadValue(
                f"fact '{self.key}' has {len(values)} entries of '{name}' and {len(self.value)} "
                "values; expected one of each per head."
            )
        try:
            return tuple(None if _missing(value) else read(value) for value in values)
        except (TypeError, ValueError) as error:
            raise BadValue(
                f"fact '{self.key}', column '{name}': {error}; its kind is '{self.kind}'."
            ) from None

    # In words

    def text(self, head: int) -> str:
        """The value of a head as its card shows it; heads are numbered over all layers, from 0."""
        value = self.value[head]
        if value is None:
            return MISSING
        if self.kind == "flag":
            return "yes" if value else "no"
        if isinstance(value, str):
            return value
        return self.number(value) + UNITS.get(self.unit, f" {self.unit}")

    def interval(self, head: int) -> str:
        """The 95% interval of a head, in the unit of its value; empty if there is none."""
        if self.low is None or self.high is None:
            return ""
        low, high, value = self.low[head], self.high[head], self.value[head]
        if low is None or high is None:
            return ""
        ends = [self.number(low), self.number(high)]
        if isinstance(value, int | float) and {*ends} == {self.number(value)}:
            return self._narrow(max(high - value, value - low))
        return " to ".join(ends)

    def _narrow(self, width: float) -> str:
        """An interval that is not seen in the decimals shown: smaller than half of the last one,
        or else than a whole one."""
        digit = 10.0**-self.decimals
        if (100 * width if self.unit == "share" else width) < digit / 2:
            return f"± < {digit / 2:.{self.decimals + 1}f}"
        return f"± < {digit:.{self.decimals}f}"

    def number(self, value: float) -> str:
        """A number of this fact, with the decimals that all its numbers have."""
        scaled = 100 * value if self.unit == "share" else value
        text = f"{scaled:{'+' if self.diverging else ''}.{self.decimals}f}"
        if not any(digit in text for digit in "123456789"):
            text = text.lstrip("+-")  # what rounds to nothing has no sign
        return text.replace("-", "−")

    @cached_property
    def decimals(self) -> int:
        """Three digits of the spread between heads; one decimal of a percentage."""
        if self.unit in ("share", "percent"):
            return 1
        numbers = self.numbers
        if all(number == int(number) for number in numbers):
            return 0
        spread = max(map(abs, numbers)) if self.diverging else max(numbers) - min(numbers)
        return min(6, max(0, 2 - math.floor(math.log10(spread)))) if spread else 2

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        """The numbers that are known, in the order of the heads; none of a class."""
        return tuple(float(value) for value in self.value if isinstance(value, int | float))

    @cached_property
    def ranks(self) -> tuple[int | None, ...]:
        """Of each head its place from the highest, 1 for the first; equal numbers share a place."""
        if self.kind != "number":
            return (None,) * len(self.value)
        place: dict[Value, int] = {}
        for at, number in enumerate(sorted(self.numbers, reverse=True), start=1):
            place.setdefault(number, at)
        return tuple(place.get(value) for value in self.value)

    def told(self, head: int) -> dict[str, str]:
        """The further columns of a head, in words; what is missing is left out."""
        found = {name: column[head] for name, column in self.detail.items()}
        return {name: _told(name, value) for name, value in found.items() if value is not None}


def _told(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return f"{name} {value}"
    if name in ("p", "q") and value < SMALL:
        return f"{name} < {SMALL}"
    if name in ("accuracy", "baseline"):
        return DETAILS[name].format(f"{value:.1f}")
    number = number_text(100 * value if name == "stability" else float(value))
    return DETAILS.get(name, name + " {}").format(number)


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _number(value: Any) -> float:
    if isinstance(value, str) or not math.isfinite(value):
        raise ValueError(f"'{value}' is not a finite number")
    return rounded(float(value), DIGITS)


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a word")
    # Spaces that must not break are kept: they hold a number and its unit together.
    return re.sub(r"[^\S\u00a0]+", " ", value).strip()


def _flag(value: Any) -> int:
    if isinstance(value, str) or value not in (0, 1):
        raise ValueError(f"{value!r} is neither 0 nor 1")
    return int(value)


def _plain(value: Any) -> Value:
    if isinstance(value, str):
        return _word(value)
    return int(value) if isinstance(value, bool | int) else _number(value)


def rounded(value: float, digits: int) -> float:
    """A number with so many significant digits, as a file keeps it."""
    return float(f"{value:.{digits}g}")
