"""Numbers with their intervals, as claims are judged by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlib.measuring.bootstrap import LEVEL, Estimate, estimate
from bookkit.claims import Finding

TAIL = 100 * (1 - LEVEL) / 2
"""Percent of the draws below an interval, and as many above it."""


def drawn(values: Sequence[float] | np.ndarray) -> Finding:
    """The first value with the interval of the others, which come from inputs drawn again."""
    whole = np.asarray(values, float)
    rest = whole[1:][~np.isnan(whole[1:])]
    if not len(rest):
        return Finding(float(whole[0]))
    low, high = np.percentile(rest, [TAIL, 100 - TAIL])
    return Finding(float(whole[0]), float(low), float(high))


def mean_ends(values: np.ndarray, seed: int) -> Estimate:
    """Mean and interval over the inputs (first axis) that define a value."""
    has = ~np.isnan(values)
    return estimate(np.where(has, values, 0.0), has.astype(float), seed=seed)
