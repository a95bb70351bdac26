"""The few errors the kit raises: a message says what was given, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BookError(Exception):
    """Anything the user can mend; the command line prints it as one sentence and exits with 2."""

    exit_code = 2


class UnknownName(BookError):
    """An edition, chapter, paper, claim, result or parameter that does not exist."""


class BadValue(BookError):
    """A value of the wrong type, or outside its range."""


class MissingResult(BookError):
    """A result that is neither kept nor published."""


class ClaimError(BookError):
    """A row of a claims file that does not say what a row must say."""


class NotebookError(BookError):
    """A notebook that is not there, cannot be read, or stopped in one of its cells."""


class BuildError(BookError):
    """A book that does not build without a warning, or a page that needs another host."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'pocket'? ` for the nearest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'? " if near else ""


def unknown(what: str, name: str, known: Iterable[str], where: str = "") -> UnknownName:
    """The error for a name that does not exist, with the nearest one and all that do.

    what, where  before and after the name: "parameter", " of first_look.ipynb"
    """
    names = list(known)
    listed = ", ".join(names) or "none"
    return UnknownName(f"{what} '{name}'{where}. {did_you_mean(name, names)}Known: {listed}.")
