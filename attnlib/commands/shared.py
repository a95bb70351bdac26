"""What all commands use: two consoles, the option for JSON, a bar."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console(width=None if sys.stdout.isatty() else 160)
messages = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


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
