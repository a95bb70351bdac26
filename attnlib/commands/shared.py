"""What all commands use: consoles, JSON, tables, a bar, common options, what other packages add."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from attnlib.progress import watched

console = Console(width=None if sys.stdout.isatty() else 160)
messages = Console(stderr=True)

Model = Annotated[str, typer.Argument(help="A model's name, its folder, or a hub id.")]
CorpusName = Annotated[str, typer.Argument(help="A corpus, or a .txt, .jsonl or .conllu file.")]
Limit = Annotated[int | None, typer.Option(help="At most this many inputs.")]
MaxLength = Annotated[int, typer.Option(help="Pieces per input, special ones too.")]
OnLong = Annotated[str, typer.Option(help="Longer inputs: error, skip or truncate.")]
BatchSize = Annotated[int, typer.Option(help="Inputs per forward pass.")]
Seed = Annotated[int, typer.Option(help="Of the inputs a limit picks, and of the intervals.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def added(group: str) -> list[Any]:
    """What other packages add to the command; nothing where only the library is installed."""
    entries = entry_points(group=group)
    return [entry.load() for entry in entries if find_spec(entry.module.partition(".")[0])]


def print_json(value: Any) -> None:
    """JSON on stdout; a NaN that slipped through is an error, not an invalid document."""
    print(json.dumps(value, allow_nan=False, ensure_ascii=False))


def print_table(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table for a person."""
    table = Table(*headings, box=None)
    for row in rows:
        table.add_row(*map(str, row))
    console.print(table)


@contextmanager
def bar(what: str) -> Iterator[None]:
    """A bar on stderr for what is counted inside; it leaves nothing behind."""
    from rich.progress import Progress

    with Progress(console=messages, transient=True, disable=not messages.is_terminal) as live:
        task = live.add_task(what, total=None)
        with watched(lambda done, total: live.update(task, completed=done, total=total)):
            yield
