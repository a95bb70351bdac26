"""Tables with one row per head: their names, their layers, their rows for a program."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import rankdata


def head_rows(**columns: np.ndarray) -> pd.DataFrame:
    """One row per head, counted from 1, with the values of some grids (layer, head)."""
    shape = next(iter(columns.values())).shape
    layer, head = np.indices(shape).reshape(2, -1) + 1
    values = {name: np.asarray(grid).ravel() for name, grid in columns.items()}
    return pd.DataFrame({"layer": layer, "head": head, **values})


def head_places(heads: Iterable[tuple[int, int]]) -> pd.DataFrame:
    """One row per (layer, head), both from 0: layer and head as people count them, from 1."""
    return pd.DataFrame(np.array(list(heads)) + 1, columns=["layer", "head"])


def head_name(row: Any) -> str:
    """A head as people write it: 5-4 is the fourth head of the fifth layer (see `head_named`)."""
    return f"{int(row['layer'])}-{int(row['head'])}"


def head_names(table: pd.DataFrame) -> list[str]:
    """The names of all heads of a table."""
    return [f"{layer:.0f}-{head:.0f}" for layer, head in table[["layer", "head"]].to_numpy()]


def layer_means(
    table: pd.DataFrame, column: str = "mean", *, metric: str | None = None
) -> pd.Series:
    """The mean of a column over the heads of each layer, NaN left out; of one metric if named."""
    rows = table if metric is None else table[table["metric"] == metric]
    return rows.groupby("layer")[column].mean()


def profiles_beside(ours: pd.Series, authors: pd.Series, seed: int = 0) -> pd.DataFrame:
    """Two profiles over the same layers: layer, ours, authors, rho and p (layers permuted).

    Empty if they have not as many layers, or nothing of ours is defined.
    """
    if ours.isna().all() or len(ours) != len(authors):
        return pd.DataFrame()
    rho, p = rank_correlation(ours.to_numpy(), authors.to_numpy(), seed)
    return pd.DataFrame({"ours": ours, "authors": authors}).reset_index().assign(rho=rho, p=p)


def rank_correlation(
    one: Float[np.ndarray, " place"],
    other: Float[np.ndarray, " place"],
    seed: int = 0,
    permutations: int = 10_000,
) -> tuple[float, float]:
    """Spearman's rho of two layer profiles, and how often one permuted at random reaches it.

    Heads of two models have no common numbering, so that only layers can be compared.
    """
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan, math.nan  # a flat profile has no order to compare
    first, second = (rankdata(part) - (len(part) + 1) / 2 for part in (one, other))
    size = np.sqrt((first**2).sum() * (second**2).sum())
    rho = float(first @ second / size)
    generator = np.random.default_rng(seed)
    order = generator.permuted(np.tile(np.arange(len(one)), (permutations, 1)), axis=1)
    drawn = second[order] @ first / size
    return rho, float((1 + (drawn >= rho - 1e-12).sum()) / (1 + permutations))


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as programs read them; what is undefined or infinite is None."""
    plain = table.astype(object)
    known = table.notna() & ~table.isin([math.inf, -math.inf])
    return plain.where(known, None).to_dict("records")
