"""Rows of a long pass, kept on disk: the memory of a pass does not grow with the corpus."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from attnlib.errors import AttnlibError
from attnlib.metrics.registry import Partial

Exported = tuple[list[int], dict[str, np.ndarray]]

READ_BYTES = 32 * 2**20
"""How much of a file is looked at together when a part of its rows is picked out."""


class Shard:
    """One file of rows per metric, written batch by batch and read part by part.

    A row is (2, *axes) in single precision: the sum, and its weight in the same shape.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="attnlib-", ignore_cleanup_errors=True)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.index: list[int] = []

    def append(self, index: tuple[int, ...], partials: dict[str, Partial]) -> None:
        """Add the rows of one batch; every call brings the same metrics."""
        for key, partial in partials.items():
            shape, weight = tuple(partial.total.shape[1:]), partial.spread_weight()
            if self._shapes.setdefault(key, shape) != shape:
                raise ValueError(f"rows of '{key}' are {shape}, earlier ones {self._shapes[key]}")
            total = partial.total.masked_fill(weight == 0, 0.0)  # undefined adds nothing
            rows = torch.stack([total, weight], dim=1)
            self._write(key, rows.to(torch.float32).cpu().contiguous().numpy())
        self.index.extend(index)

    def _write(self, key: str, rows: np.ndarray) -> None:
        try:
            with self._path(key).open("ab") as file:
                file.write(rows.tobytes())
        except OSError as error:
            raise AttnlibError(
                f"the rows of '{key}' cannot be written ({error.strerror}); expected room in the "
                "temporary folder. Free some, or point TMPDIR elsewhere."
            ) from None

    def exported(self, start: int = 0) -> Exported:
        """Everything in here, to be sent elsewhere; `start` is added to every example's index."""
        rows = {key: np.concatenate(list(self._blocks(key))) for key in self._shapes}
        return [start + i for i in self.index], rows

    def extend(self, exported: Exported) -> None:
        """Add the rows that another shard exported."""
        index, rows = exported
        for key, block in rows.items():
            self._shapes[key] = block.shape[2:]
            self._write(key, block)
        self.index.extend(index)

    def parts(self, key: str) -> Iterator[slice]:
        """Slices of a metric's first axis, each small enough to be read at once."""
        length, *rest = self._shapes[key]
        at_once = max(1, READ_BYTES // (16 * len(self.index) * math.prod(rest)))
        return (slice(i, min(i + at_once, length)) for i in range(0, length, at_once))

    def read(self, key: str, part: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Sums and weights, each (example, *axes), examples in the order of the corpus.

        `part` picks a range of the first axis, without holding the others in memory.
        Windows of one long example are added up: they are one example.
        """
        examples, place = np.unique(np.asarray(self.index), return_inverse=True)
        first = range(self._shapes[key][0])[part]
        merged = np.zeros((len(examples), 2, len(first), *self._shapes[key][1:]))
        start = 0
        for rows in self._blocks(key):
            np.add.at(merged, place[start : start + len(rows)], rows[:, :, part])
            start += len(rows)
        return merged[:, 0], merged[:, 1]

    def _blocks(self, key: str) -> Iterator[np.ndarray]:
        row = (2, *self._shapes[key])
        at_once = max(1, READ_BYTES // (4 * math.prod(row)))
        with self._path(key).open("rb") as file:
            while (block := np.fromfile(file, np.float32, at_once * math.prod(row))).size:
                yield block.reshape(-1, *row)

    def _path(self, key: str) -> Path:
        return Path(self._folder.name) / f"{key}.f32"
