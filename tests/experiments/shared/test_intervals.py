"""Intervals of numbers that were drawn again."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.shared.intervals import drawn, drawn_weights


def test_an_interval_is_that_of_the_draws_not_of_the_value() -> None:
    found = drawn([5.0, *range(101), math.nan])
    assert [found.value, found.low, found.high] == pytest.approx([5.0, 2.5, 97.5])
    assert math.isnan(drawn([1.0]).low)


def test_a_number_that_is_often_undefined_has_no_interval() -> None:
    values = [1.0, *[2.0] * 90, *[math.nan] * 10]
    assert math.isnan(drawn(values, missing=0.05).low)
    assert drawn(values, missing=0.1).low == drawn(values).low == 2


def test_things_of_one_group_are_drawn_together() -> None:
    """Means of drawn groups, group by group, have the spread that a plain loop gives."""
    groups, values = list("abacbd"), np.array([1.0, 5.0, 2.0, 9.0, 4.0, 0.0])
    weights = drawn_weights(groups, 4000, seed=1)
    assert weights.shape == (4001, 6) and (weights[0] == 1).all()
    assert (weights[:, 0] == weights[:, 2]).all() and (weights[:, 1] == weights[:, 4]).all()
    first = weights[1:][:, [0, 1, 3, 5]]
    assert (first.sum(1) == 4).all()  # as many groups as there are
    found = weights @ values / weights.sum(1)
    assert found[0] == values.mean()
    generator, naive = np.random.default_rng(2), []
    for _ in range(4000):
        chosen = generator.choice(list("abcd"), 4)
        naive.append(
            np.mean([v for one in chosen for v, g in zip(values, groups, strict=True) if g == one])
        )
    assert found[1:].std() == pytest.approx(np.std(naive), rel=0.05)
    single = np.random.default_rng(3).multinomial(6, np.full(6, 1 / 6), 4000) @ values / 6
    assert abs(single.std() - np.std(naive)) > 0.1  # values drawn one by one would be another


def test_one_group_tells_nothing_about_others() -> None:
    assert drawn_weights(["a", "a"]).tolist() == [[1, 1]]
