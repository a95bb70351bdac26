"""What experiments make of a measurement: rows per head, and numbers with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlib.measuring.bootstrap import LEVEL, Estimate, estimate
from attnlib.measuring.stream import Measurement
from bookkit.papers import Finding

TAIL = 100 * (1 - LEVEL) / 2
"""Percent of the draws below an interval, and as many above it."""


def head_rows(**columns: np.ndarray) -> pd.DataFrame:
    """One row per head, counted from 1, with the values of some grids (layer, head)."""
    shape = next(iter(columns.values())).shape
    layer, head = (place.ravel() + 1 for place in np.indices(shape))
    told = {name: np.asarray(grid).ravel() for name, grid in columns.items()}
    return pd.DataFrame({"layer": layer, "head": head, **told})


def drawn(values: Sequence[float] | np.ndarray) -> Finding:
    """The first value with the interval of the others, which come from inputs drawn again."""
    whole = np.asarray(values, float)
    rest = whole[1:][~np.isnan(whole[1:])]
    if not len(rest):
        return Finding(float(whole[0]))
    low, high = np.percentile(rest, [TAIL, 100 - TAIL])
    return Finding(float(whole[0]), float(low), float(high))


def values_of(found: Measurement, key: str) -> np.ndarray:
    """(example, layer, head) of a metric, NaN where an input does not define it."""
    total, weight = found.rows(key)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(weight > 0, total / weight, np.nan)


def mean_ends(values: np.ndarray, seed: int) -> Estimate:
    """Mean and interval over the inputs (first axis) that define a value."""
    has = ~np.isnan(values)
    return estimate(np.where(has, values, 0.0), has.astype(float), seed=seed)
