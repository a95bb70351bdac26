"""Intervals of numbers that were drawn again."""

from __future__ import annotations

import math

import pytest

from experiments.shared.intervals import drawn


def test_an_interval_is_that_of_the_draws_not_of_the_value() -> None:
    found = drawn([5.0, *range(101), math.nan])
    assert [found.value, found.low, found.high] == pytest.approx([5.0, 2.5, 97.5])
    assert math.isnan(drawn([1.0]).low)
