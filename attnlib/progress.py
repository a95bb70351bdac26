"""How much of an asset has come, and how fast: a bar on a terminal, a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any


class Progress:
    """Says how much of an asset has come, how fast; silent by default where nobody is watching.

    `show=None`: bars on a terminal, nothing elsewhere. `show=True`: bars on a terminal, elsewhere
    one line per asset. `show=False`: nothing.
    """

    def __init__(self, show: bool | None = None, stream: IO[str] | None = None) -> None:
        self.stream = stream or sys.stderr
        terminal = bool(getattr(self.stream, "isatty", lambda: False)())
        self.bars = terminal and show is not False
        self.lines = bool(show) and not terminal
        self._live: Any = None
        self._task: Any = None

    @contextmanager
    def asset(self, name: str) -> Iterator[None]:
        """One asset: its bar, or its line when it is done."""
        self._came, start = 0, time.perf_counter()
        with self._bar(name):
            yield
        seconds = time.perf_counter() - start
        if self.lines:
            rate = self._came / 1e6 / max(seconds, 1e-9)
            print(
                f"{name}: {self._came / 1e6:.1f} MB in {seconds:.1f} s ({rate:.1f} MB/s)",
                file=self.stream,
                flush=True,
            )

    @contextmanager
    def _bar(self, name: str) -> Iterator[None]:
        if not self.bars:
            yield
            return
        from rich import progress as rich_progress
        from rich.console import Console

        columns = (
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.DownloadColumn(),
            rich_progress.TransferSpeedColumn(),
            rich_progress.TimeRemainingColumn(),
        )
        with rich_progress.Progress(*columns, console=Console(file=self.stream)) as live:
            self._live, self._task = live, live.add_task(name, total=None)
            try:
                yield
            finally:
                self._live = self._task = None

    def step(self, what: str, total: int | None = None) -> None:
        """A new part of the work: downloading this archive, reading it, converting it."""
        if self._live is not None:
            self._live.reset(self._task, description=what, total=total)

    def say(self, sentence: str) -> None:
        """A sentence for whoever watches, such as why it is waiting."""
        if self._live is not None:
            self._live.console.print(sentence)
        elif self.lines or self.bars:
            print(sentence, file=self.stream, flush=True)

    def received(self, count: int) -> None:
        """Bytes that came from outside: they count for the speed."""
        self._came += count
        self.worked(count)

    def worked(self, count: int) -> None:
        """Bytes handled here (unpacked, hashed): they move the bar only."""
        if self._live is not None:
            self._live.advance(self._task, count)

    _came = 0
