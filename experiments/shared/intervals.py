"""Numbers with their intervals, as claims are judged by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlib.measuring.bootstrap import LEVEL, REPLICATES, Estimate, estimate, percentile_interval
from bookkit.claims import Finding

TAIL = 100 * (1 - LEVEL) / 2
"""Percent of the draws below an interval, and as many above it."""


def drawn(values: Sequence[float] | np.ndarray, *, missing: float = 1.0) -> Finding:
    """The first value with the interval of the others, which come from inputs drawn again.

    missing  the largest share of draws that may be undefined; beyond it there is no interval
    """
    whole = np.asarray(values, float)
    undefined = np.isnan(whole[1:])
    if np.isnan(whole[0]) or undefined.all() or undefined.mean() > missing:
        return Finding(float(whole[0]))
    return Finding(float(whole[0]), *map(float, percentile_interval(whole[1:])))


def drawn_weights(
    groups: Sequence[object] | np.ndarray, draws: int = REPLICATES, *, seed: int = 0
) -> np.ndarray:
    """How often each thing counts: once, then as often as its group is drawn again.

    groups   of each thing, what is drawn again as a whole, such as its article
    returns  (1 + draw, thing); the first row alone where all things are of one group, which tells
             nothing about others

    The weighted mean of each row is the number and its draws, as `drawn` takes them.
    """
    group = pd.factorize(np.asarray(groups, dtype=object))[0]
    n = int(group.max()) + 1
    if n < 2:
        return np.ones((1, len(group)))
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), draws)
    return np.vstack([np.ones(len(group)), counts[:, group]])


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
