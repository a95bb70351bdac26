"""The errors of the kit: one sentence that says what was given, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BookError(Exception):
    """Anything the user can mend; the command line prints it as one sentence."""

    exit_code = 2


class UnknownName(BookError):
    """A paper, claim, chapter, edition, result or parameter that does not exist."""


class BadValue(BookError):
    """A value outside its range or of another type than expected."""


class MissingResult(BookError):
    """A result that is neither kept nor published."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'clark2019'? ` for the nearest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'? " if near else ""
