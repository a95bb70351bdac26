"""Answers that a file can hold without showing them: hashes of words, and of cells of a grid.

This is a nudge, not security. Whoever wants an answer can read the folded solution in the book, or
try all numbers; a student who opens the file by chance should just not trip over it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from numbers import Real
from typing import Any

from attnlib.errors import BadValue

SALT = "what attention heads do"
LENGTH = 12  # of a seal: short enough to read past, long enough that two do not meet by chance

MOST = 6
"""No list of numbers that is asked for is longer."""

Settled = float | str | Sequence[float] | Sequence[str]
"""A number, a word, or several of one of them, in the form in which answers are compared."""


def seal(place: str, answer: Settled, tolerance: float = 0.0) -> str:
    """The hash of an answer; `place` (label and part) makes equal answers look different."""
    (text,) = _texts(answer, tolerance, reach=0)
    return _hash(place, text)


def hit(sealed: str, place: str, given: Settled, tolerance: float = 0.0, *, reach: int = 1) -> bool:
    """Whether this is the sealed answer.

    A number within the tolerance always is; one that is twice as far away never is. In between the
    grid decides, since the exact answer is not known here.
    """
    return any(_hash(place, text) == sealed for text in _texts(given, tolerance, reach))


def _texts(answer: Any, tolerance: float, reach: int) -> Iterator[str]:
    """What is hashed: words as they are; of numbers the cells they fall into, and the next ones."""
    parts = [answer] if isinstance(answer, str | Real) else list(answer)
    if not parts or isinstance(parts[0], str):
        yield "|".join(map(str, parts))
        return
    if len(parts) > MOST:  # no answer is that long, and the neighbours of each would be tried
        reach = 0
    near = range(-reach, reach + 1)
    cells = [[cell(float(one), tolerance) + step for step in near] for one in parts]
    for chosen in product(*cells):
        yield "|".join(map(str, chosen))


def cell(value: float, tolerance: float) -> int:
    """The number of the grid cell in which a value lies; cells are as wide as the tolerance."""
    return math.floor(value / tolerance + 0.5)


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


def shifted(given: float) -> Iterator[tuple[str, float]]:
    """The usual slips: a hint, and what the number would be without the slip."""
    yield "This looks like percent. Give a share: 1 is all.", given / 100
    yield "This looks like a share of 1. Read again which unit is asked for.", given * 100
    yield "The size is right. Look at the sign, or at the direction.", -given
    yield "This looks like the rest to 1: the other side of what was asked.", 1 - given
    yield "This looks like bits. The book takes the natural logarithm.", given * math.log(2)
    if given:
        yield "This looks upside down: exchange what you divide and what you divide by.", 1 / given


def _hash(place: str, text: str) -> str:
    return hashlib.sha256(f"{SALT}\0{place}\0{text}".encode()).hexdigest()[:LENGTH]
