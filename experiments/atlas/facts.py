"""What is known of every head: a fact is one column of evidence, checked, and without words."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlib.errors import BadValue, check_choice

FACTS: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "facts.toml").read_text(encoding="utf-8")
)
DIGITS = 8
"""Significant digits of a fact. With five, one number in a few hundred would be rounded twice and
differ in its last shown digit from the table it came from."""

KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "number": (lambda value: not isinstance(value, str) and math.isfinite(value),
               "is not a finite number"),
    "class": (lambda value: isinstance(value, str), "is not a word"),
    "flag": (lambda value: not isinstance(value, str) and value in (0, 1), "is neither 0 nor 1"),
}  # fmt: skip
"""Kinds of facts: which values they may have, and what is wrong with the others."""


@dataclass(frozen=True)
class Skill:
    """How often a head finds a relation, and how often the best fixed offset does, in percent.

    direction  who attends: "dep->head", the dependent, or "head->dep"
    """

    relation: str
    direction: str
    accuracy: float
    baseline: float


@dataclass(frozen=True, eq=False)
class Fact:
    """One thing that is known of every head of a model. Its words are made in `words`.

    A column may be given as any sequence; it is kept as an array.

    key        as in tables and addresses: "mass_to_next", "guan_label", "disabled_rte"
    value      one per head, layer by layer; NaN, or None for a label, where nothing is known
    low, high  ends of the 95% interval
    detail     further numbers of each head: n, p, q, bias, stability (a share), accuracy (percent)
    skills     of each head, the relations on which it is furthest ahead, the best first
    settings   numbers that hold for all heads: inputs, threshold, ...
    source     the name of the result it was read from

    These are declared in facts.toml, unless they are given:

    paper      who asks this: clark2019, kovaleva2019, guan2020, pande2021, agreement
    kind       "number", "class" (a label), or "flag" (0 or 1, such as having a role)
    unit       "share" (0 to 1, shown in percent), "percent", "points", "nats", ...
    diverging  numbers have a sign that matters: colours and bars start from 0

    Facts whose key begins with `disabled_` are changes of a score, in points: below 0 the model is
    worse without the head.
    """

    key: str
    value: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    detail: Mapping[str, np.ndarray] = field(default_factory=dict)
    skills: tuple[tuple[Skill, ...], ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    paper: str = ""
    kind: str = ""
    unit: str = ""
    diverging: bool = False

    def __post_init__(self) -> None:
        """Bring all columns to arrays: a fact from a file equals the one that was saved."""
        if not self.key:
            raise BadValue("a fact has no key; expected a name such as entropy.")
        known = {"paper": "", "kind": "number", "unit": "", "diverging": False} | self.declared
        parts = ("paper", "kind", "unit", "diverging")
        vars(self).update({part: getattr(self, part) or known[part] for part in parts})
        check_choice(f"kind of fact '{self.key}'", self.kind, KINDS)
        if (self.low is None) != (self.high is None):
            raise BadValue(f"fact '{self.key}' has one end of an interval; expected both or none.")
        vars(self).update(
            value=self._column("value", self.value, self.kind),
            low=None if self.low is None else self._column("low", self.low),
            high=None if self.high is None else self._column("high", self.high),
            detail={name: self._column(name, self.detail[name]) for name in self.detail},
            skills=tuple(tuple(map(_skill, listed)) for listed in self.skills),
        )
        if self.skills:
            self._check_length("skills", self.skills)
        if self.low is not None and self.high is not None:
            for low, high in zip(self.low, self.high, strict=True):
                if low > high:
                    what = f"an interval from {low} to {high}"
                    raise BadValue(f"fact '{self.key}' has {what}; expected the lower end first.")

    def _column(self, name: str, given: Iterable[Any], kind: str = "number") -> np.ndarray:
        plain_values = np.asarray(given, dtype=object)  # numbers and strings as Python has them
        values = [None if pd.isna(value) or value == "" else value for value in plain_values]
        self._check_length(name, values)
        fits, fault = KINDS[kind]
        for value in values:
            if value is not None and not fits(value):
                raise BadValue(f"fact '{self.key}', column '{name}': {value!r} {fault}.")
        if kind == "class":
            return np.array(values, dtype=object)
        return significant(np.array(values, dtype=float), DIGITS)

    def _check_length(self, name: str, column: Sequence[Any]) -> None:
        if len(column) != len(self.value):
            what = f"{len(column)} entries of '{name}' and {len(self.value)} values"
            raise BadValue(f"fact '{self.key}' has {what}; expected one of each per head.")

    @cached_property
    def declared(self) -> dict[str, Any]:
        """What facts.toml says of it, or of all facts that begin alike; of others nothing."""
        families = [name for name in FACTS if name.endswith("_") and self.key.startswith(name)]
        return FACTS.get(self.key) or (FACTS[families[0]] if families else {})

    @cached_property
    def numbers(self) -> np.ndarray:
        """The numbers that are known, in the order of the heads; none of a class."""
        if self.kind == "class":
            return np.array([])
        values = np.asarray(self.value, dtype=float)
        return values[np.isfinite(values)]

    @cached_property
    def decimals(self) -> int:
        """Decimals that tell heads apart: three digits of their spread; one of a percentage."""
        if self.unit in ("share", "percent"):
            return 1
        if (self.numbers == self.numbers.round()).all():
            return 0
        spread = np.abs(self.numbers).max() if self.diverging else np.ptp(self.numbers)
        return min(6, max(0, 2 - math.floor(math.log10(spread)))) if spread else 2

    def rank(self, head: int) -> int | None:
        """The place of a head from the highest, 1 for the first; equal numbers share a place."""
        if self.kind != "number" or np.isnan(self.value[head]):
            return None
        return 1 + int((self.numbers > self.value[head]).sum())

    def as_json(self) -> dict[str, Any]:
        """All parts but those that it does not have."""
        parts = {one.name: getattr(self, one.name) for one in fields(self)}
        return {n: part for n, part in parts.items() if isinstance(part, np.ndarray) or part}


def _skill(given: Any) -> Skill:
    return given if isinstance(given, Skill) else Skill(**given)


def significant(numbers: Any, digits: int) -> np.ndarray:
    """Numbers with so many significant digits, as a file keeps them."""
    given = np.asarray(numbers, dtype=float)
    return np.array([float(f"{one:.{digits}g}") for one in given.ravel()]).reshape(given.shape)


def plain(part: Any) -> Any:
    """What JSON does not know: an array, in which null is what is not known, and a record."""
    if not isinstance(part, np.ndarray):
        return asdict(part)
    if part.ndim > 1:
        return list(part)
    known = [None if pd.isna(one) else one for one in part.tolist()]
    return [int(one) if isinstance(one, float) and one.is_integer() else one for one in known]
