"""How far long work is: loops that count, and how much of an asset has come, and how fast."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as rich_progress
from rich.console import Console

Tick = Callable[[int, int], None]
"""Takes how much is done, and how much there is."""
_WATCHING: list[Tick] = []


@contextmanager
def watched(tick: Tick) -> Iterator[None]:
    """Loops that count inside tell `tick` how far they are."""
    _WATCHING.append(tick)
    try:
        yield
    finally:
        _WATCHING.remove(tick)


@contextmanager
def counting() -> Iterator[Tick]:
    """For a long loop: what it tells how far it is. A loop inside another one is not heard."""
    tick: Tick = _WATCHING[-1] if _WATCHING else lambda done, total: None
    with watched(lambda done, total: None):
        yield tick


class Progress:
    """Shows how much of an asset has come; silent by default where nobody is watching.

    `show=None`: bars on a terminal, nothing elsewhere. `show=True`: bars on a terminal, elsewhere
    one line per asset. `show=False`: nothing.
    """

    def __init__(self, show: bool | None = None) -> None:
        terminal = sys.stderr.isatty()
        self.bars = terminal and show is not False
        self.lines = bool(show) and not terminal
        self.came = 0  # bytes of the current asset
        self._live = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.DownloadColumn(),
            rich_progress.TransferSpeedColumn(),
            rich_progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not self.bars,
        )
        self._task = self._live.add_task("", total=None)

    @contextmanager
    def asset(self, name: str) -> Iterator[None]:
        """One asset: its bar, or its line when it is done."""
        self.came, start = 0, time.perf_counter()
        self._live.remove_task(self._task)
        self._task = self._live.add_task(name, total=None)
        with self._live:
            yield
        seconds = time.perf_counter() - start
        if self.lines:
            rate = self.came / 1e6 / max(seconds, 1e-9)
            self.say(f"{name}: {self.came / 1e6:.1f} MB in {seconds:.1f} s ({rate:.1f} MB/s)")

    def step(self, what: str, total: int | None = None) -> None:
        """A new part of the work: downloading this archive, converting that file."""
        self._live.reset(self._task, description=what, total=total)

    def received(self, count: int) -> None:
        """So many bytes have come."""
        self.came += count
        self._live.advance(self._task, count)

    def say(self, sentence: str) -> None:
        """A sentence for whoever is watching, such as why it is waiting."""
        if self.bars or self.lines:
            print(sentence, file=sys.stderr, flush=True)
