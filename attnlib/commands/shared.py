"""What all commands use: two consoles, the option for JSON, a bar, what other packages add."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console(width=None if sys.stdout.isatty() else 160)
messages = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def added(group: str) -> list[Any]:
    """What other packages add to the command; nothing where only the library is installed."""
    entries = entry_points(group=group)
    return [entry.load() for entry in entries if find_spec(entry.module.partition(".")[0])]


def progress() -> Progress:
    """A bar on stderr that leaves nothing behind, and none where nobody looks."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=messages,
        transient=True,
        disable=not messages.is_terminal,
    )
