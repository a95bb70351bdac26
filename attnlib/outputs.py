"""Files for the user: refused before anything is computed, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from attnlib.errors import BadValue

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
    """Write a text, or what a function writes to the path it is given."""
    draft = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        if isinstance(content, str):
            draft.write_text(content, encoding="utf-8")
        else:
            content(draft)
        os.replace(draft, path)
    except OSError as error:
        raise BadValue(
            f"--out '{path}' cannot be written ({error.strerror}). Choose another place."
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return path
