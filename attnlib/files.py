"""Files and folders that appear whole or not at all, files for the user, the sha256 of a file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attnlib.errors import BadValue

TEMPORARY = ".tmp-"  # the folders that a killed process leaves behind begin with this


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """An empty folder inside `parent` for the time of the block."""
    with tempfile.TemporaryDirectory(
        prefix=TEMPORARY, dir=parent, ignore_cleanup_errors=True
    ) as scratch:
        yield Path(scratch)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Where to write a file, or to make a folder, that becomes `path` when the block has ended.

    Until then, and after any error, `path` is what it was. The draft has the same name in a
    temporary folder next to `path`, so two processes may write at once: the last one wins.
    """
    with scratch_folder(path.parent) as room:
        draft, old = room / path.name, room / "old"
        yield draft
        if draft.is_dir() and path.is_dir():  # a folder cannot be put in the place of a full one
            os.replace(path, old)
        try:
            os.replace(draft, path)
        except BaseException:
            if old.is_dir():
                os.replace(old, path)  # what was there is better than nothing
            raise


def sha256_of(path: Path) -> str:
    """The sha256 of a file's content."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


PAGES = (".html", ".htm")


def check_out(path: Path, endings: Sequence[str] = PAGES) -> None:
    """Refuse a file that could not be written, or whose name ends in none of these."""
    if path.suffix not in endings:
        wanted = " or ".join(endings)
        raise BadValue(f"--out '{path}' ends in '{path.suffix}'; expected {wanted}.")
    if path.is_dir():
        raise BadValue(f"--out '{path}' is a folder; expected the name of a file in it.")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise BadValue(f"--out '{path}': its folder does not exist. Create it first.")
    if not os.access(folder, os.W_OK):
        raise BadValue(f"--out '{path}': its folder cannot be written to. Choose another place.")


def write_whole(path: Path, content: str | Callable[[Path], object]) -> Path:
    """Write a text, or what a function writes to the path it is given, for the user."""
    try:
        with written_whole(path) as draft:
            if isinstance(content, str):
                draft.write_text(content, encoding="utf-8")
            else:
                content(draft)
    except OSError as error:
        raise BadValue(
            f"--out '{path}' cannot be written ({error.strerror}). Choose another place."
        ) from None
    return path
