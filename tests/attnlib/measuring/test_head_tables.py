"""Tables of heads: names, layer means, rank correlation of profiles, rows for a program."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from attnlib.measuring.head_tables import (
    head_name,
    head_names,
    head_rows,
    layer_means,
    rank_correlation,
    records,
)

TABLE = pd.DataFrame(
    {
        "metric": ["entropy"] * 4 + ["mass_to_sep"] * 2,
        "layer": [1, 1, 2, 12, 1, 2],
        "head": [1, 2, 1, 10, 1, 1],
        "mean": [1.0, 2.0, math.nan, 4.0, 10.0, 20.0],
    }
)


def test_heads_are_named_from_one() -> None:
    assert head_names(TABLE) == ["1-1", "1-2", "2-1", "12-10", "1-1", "2-1"]
    assert head_names(TABLE.astype({"layer": float})) == head_names(TABLE)
    assert [head_name(row) for _, row in TABLE.iterrows()] == head_names(TABLE)
    assert head_names(TABLE[:0]) == []


def test_layer_means_leave_out_what_is_undefined() -> None:
    found = layer_means(TABLE, metric="entropy")
    assert found.index.tolist() == [1, 2, 12]
    assert found[1] == 1.5 and math.isnan(found[2]) and found[12] == 4.0
    assert layer_means(TABLE)[1] == 13 / 3  # all rows if no metric is named
    assert layer_means(TABLE, "head")[12] == 10


def test_rows_for_programs_hold_neither_nan_nor_infinity() -> None:
    rows = records(TABLE.assign(effect=[math.inf, -math.inf, 1.0, 2.0, 3.0, 4.0], is_so=True))
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert rows[0]["effect"] is None and rows[1]["effect"] is None and rows[2]["mean"] is None
    assert rows[3] == {
        **{"metric": "entropy", "layer": 12, "head": 10, "mean": 4.0, "effect": 2.0},
        "is_so": True,
    }


def exact_p(one: Sequence[float], other: Sequence[float]) -> float:
    """Of all orders of one profile, the share whose rho is at least that of the real one."""
    rho = spearmanr(one, other).statistic
    orders = list(itertools.permutations(other))
    return sum(spearmanr(one, list(order)).statistic >= rho - 1e-9 for order in orders) / len(
        orders
    )


PROFILES = {
    "alike": ([1.0, 3.0, 2.0, 9.0, 4.0], [0.1, 0.2, 0.4, 0.9, 0.5]),
    "against": ([1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 7.0, 8.0, 3.0, 1.0]),
    "ties": ([1.0, 5.0, 2.0, 4.0, 3.0], [3.0, 4.0, 3.0, 3.0, 3.5]),
}


@pytest.mark.parametrize("name", PROFILES)
def test_rank_correlation_is_that_of_scipy(name: str) -> None:
    """Also with ties: where the authors' colour scale ends, many layers have the same value."""
    one, other = (np.array(profile) for profile in PROFILES[name])
    rho, p = rank_correlation(one, other)
    assert rho == pytest.approx(spearmanr(one, other).statistic)
    assert p == pytest.approx(exact_p(one.tolist(), other.tolist()), abs=0.02)
    assert rank_correlation(one, other) == (rho, p)


@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_a_profile_without_ranks_has_no_p() -> None:
    rho, p = rank_correlation(np.arange(5.0), np.full(5, 3.0))
    assert math.isnan(rho) and math.isnan(p)


def test_a_grid_goes_into_rows_and_back() -> None:
    grid = np.arange(6.0).reshape(2, 3)
    table = head_rows(value=grid)
    assert table[["layer", "head"]].iloc[-1].tolist() == [2, 3]
    again = table.pivot(index="layer", columns="head", values="value")
    assert np.array_equal(again.to_numpy(), grid)
