"""Rows per head, and intervals of numbers that were drawn again."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.shared.head_tables import drawn, head_rows


def test_a_grid_goes_into_rows_and_back() -> None:
    grid = np.arange(6.0).reshape(2, 3)
    table = head_rows(value=grid)
    assert table[["layer", "head"]].iloc[-1].tolist() == [2, 3]
    again = table.pivot(index="layer", columns="head", values="value")
    assert np.array_equal(again.to_numpy(), grid)


def test_an_interval_is_that_of_the_draws_not_of_the_value() -> None:
    found = drawn([5.0, *range(101), math.nan])
    assert [found.value, found.low, found.high] == pytest.approx([5.0, 2.5, 97.5])
    assert math.isnan(drawn([1.0]).low)
