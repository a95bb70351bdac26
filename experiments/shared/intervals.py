"""Numbers with their intervals, as claims are judged by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlib.measuring.bootstrap import LEVEL, REPLICATES, Estimate, estimate, percentile_interval
from bookkit.claims import Finding

TAIL = 100 * (1 - LEVEL) / 2
"""Percent of the draws below an interval, and as many above it."""


def drawn(values: Sequence[float] | np.ndarray) -> Finding:
    """The first value with the interval of the others, which come from inputs drawn again."""
    whole = np.asarray(values, float)
    if np.isnan(whole[0]) or np.isnan(whole[1:]).all():
        return Finding(float(whole[0]))
    return Finding(float(whole[0]), *map(float, percentile_interval(whole[1:])))


def drawn_places(n: int, generator: np.random.Generator) -> np.ndarray:
    """Places of all of n things, then of things drawn again: (1 + draw, n)."""
    return np.vstack([np.arange(n), generator.integers(0, n, (REPLICATES, n))])


def chance_p(seen: float, by_chance: np.ndarray) -> float:
    """How often chance goes as far, what was seen counted: (1 + draws as high) / (1 + draws).

    NaN where nothing was seen. A draw that repeats what was seen may add its numbers in another
    order, and still counts.
    """
    if np.isnan(seen):
        return float("nan")
    return float((1 + (by_chance >= seen - 1e-12).sum()) / (1 + len(by_chance)))


def columns_of(name: str, found: Estimate, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Columns of a table: means under their name, and their intervals, <name>_low and _high."""
    ends = {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
    return {column: scale * values for column, values in ends.items()}


def mean_ends(values: np.ndarray, seed: int) -> Estimate:
    """Mean and interval over the inputs (first axis) that define a value."""
    has = ~np.isnan(values)
    return estimate(np.where(has, values, 0.0), has.astype(float), seed=seed)
