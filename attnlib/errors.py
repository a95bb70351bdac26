"""The few errors attnlib raises: a message says what was given, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AttnlibError(Exception):
    """Anything the user can mend; the command line prints it as one sentence and exits with 2."""

    exit_code = 2


class UnknownName(AttnlibError):
    """A model, corpus, metric, relation, asset or parameter that does not exist."""


class UnknownModel(UnknownName):
    """A model name that is neither known here, nor a folder, nor reachable on the hub."""


class AssetError(AttnlibError):
    """An asset that is missing, damaged, or cannot be written where it belongs."""


class ChecksumError(AssetError):
    """A file whose content is not the one that was pinned."""


class CorpusError(AttnlibError):
    """A corpus file that cannot be read: empty, not text, or malformed at a named line."""


class TooLong(AttnlibError):
    """An example longer than the limit, while nothing was said about long examples."""


class Unobservable(AttnlibError):
    """A model whose attention weights cannot be seen from outside."""


class BadValue(AttnlibError):
    """A parameter outside its range, or a number that is not finite."""


def first_line(error: object) -> str:
    """What an error says first, without its full stop; its kind if it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".:")[:200]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean 'entropy'? ` for the nearest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{near[0]}'? " if near else ""


def check_known(what: str, names: Iterable[str], known: Iterable[str], listed: str = "") -> None:
    """Refuse the first name that is not known; `listed` says where all are, if not behind it."""
    choices = list(known)
    for name in names:
        if name not in choices:
            raise unknown(f"{what} '{name}'", name, choices, listed)


def unknown(what: str, name: str, known: Iterable[str], listed: str = "") -> UnknownName:
    """What is wrong with a name, the nearest one that is known, and all of them."""
    choices = list(known)
    listed = listed or f"Known: {', '.join(choices) or 'none'}."
    return UnknownName(f"{what}. {did_you_mean(name, choices)}{listed}")


def check_choice(name: str, given: str, choices: Iterable[str]) -> None:
    """Refuse a word that is none of the choices."""
    if given not in choices:
        raise BadValue(f"{name} is '{given}'; expected one of {', '.join(choices)}.")
