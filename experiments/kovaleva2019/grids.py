"""Small tables that every experiment makes: one row per head, and findings over tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.measuring.bootstrap import LEVEL, Estimate, estimate
from attnlib.measuring.stream import Measurement, Progress, stream
from attnlib.metrics.registry import Metric
from attnlib.models import Encoder
from bookkit.claims import Finding

TAIL = 100 * (1 - LEVEL) / 2


def head_rows(**columns: np.ndarray) -> pd.DataFrame:
    """One row per head, counted from 1, with the values of some grids (layer, head)."""
    shape = next(iter(columns.values())).shape
    layer, head = (place.ravel() + 1 for place in np.indices(shape))
    told = {name: np.asarray(grid).ravel() for name, grid in columns.items()}
    return pd.DataFrame({"layer": layer, "head": head, **told})


def grid_of(table: pd.DataFrame, column: str) -> np.ndarray:
    """A column of `head_rows` as a grid (layer, head)."""
    return table.pivot(index="layer", columns="head", values=column).to_numpy(float)


def drawn(values: Sequence[float] | np.ndarray) -> Finding:
    """The first value with the interval of the others, which come from inputs drawn again."""
    whole = np.asarray(values, float)
    rest = whole[1:][~np.isnan(whole[1:])]
    if not len(rest):
        return Finding(float(whole[0]))
    low, high = np.percentile(rest, [TAIL, 100 - TAIL])
    return Finding(float(whole[0]), float(low), float(high))


def measured(
    encoder: Encoder,
    corpus: Corpus,
    metrics: Sequence[Metric],
    recipe: Mapping[str, Any],
    progress: Progress | None,
) -> Measurement:
    """Some metrics on inputs that are cut to the length of the training."""
    length = int(recipe["max_length"])
    options: Any = {"max_length": length, "on_long": "truncate", "progress": progress}
    return stream(encoder, corpus, metrics, **options).not_empty()


def mean_ends(values: np.ndarray, seed: int) -> Estimate:
    """Mean and interval over the inputs (first axis) that define a value."""
    has = ~np.isnan(values)
    return estimate(np.where(has, values, 0.0), has.astype(float), seed=seed)
