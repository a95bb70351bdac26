"""The few errors the kit raises: a message says what was given, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BookError(Exception):
    """Anything the user can mend; the command line prints it as one sentence and exits with 2."""

    exit_code = 2


class UnknownName(BookError):
    """An edition, chapter, paper, claim or parameter that does not exist."""


class BadValue(BookError):
    """A value of the wrong type, or outside its range."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'pocket'? ` for the nearest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'? " if near else ""
