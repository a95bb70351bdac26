"""The Reader: the book's own passages, annotated for coreference, frames and questions."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from attnlib.data.reader.check import problems
from attnlib.data.reader.markup import Passage, ReaderError, parse
from attnlib.errors import check_known

__all__ = ["Passage", "ReaderError", "frame_table", "passage", "passages", "problems"]

FOLDER = Path(__file__).with_name("passages")


@cache
def passages(folder: Path = FOLDER) -> tuple[Passage, ...]:
    """Every passage, by the order of their names."""
    return tuple(parse(path) for path in sorted(folder.glob("*.txt")))


def passage(name: str) -> Passage:
    """One passage by its id."""
    known = {one.id: one for one in passages()}
    check_known("passage", [name], known, "`attnlib reader` lists all of them.")
    return known[name]


@cache
def frame_table() -> Mapping[str, Sequence[str]]:
    """The frames the Reader uses, each with its core elements as FrameNet 1.7 has them."""
    return tomllib.loads(Path(__file__).with_name("frames.toml").read_text(encoding="utf-8"))
