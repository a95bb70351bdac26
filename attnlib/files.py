"""Files and folders that appear whole or not at all, and the sha256 of a file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
