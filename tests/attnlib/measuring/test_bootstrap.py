"""Means and intervals: against closed forms, against scipy, and in their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from attnlib.errors import BadValue
from attnlib.measuring.bootstrap import estimate

RNG = np.random.default_rng(7)


def test_macro_and_micro_by_hand() -> None:
    total, weight = np.array([[1.0], [6.0]]), np.array([[1.0], [3.0]])
    assert estimate(total, weight).mean == pytest.approx(1.5)
    assert estimate(total, weight, micro=True).mean == pytest.approx(7 / 4)


def test_the_width_is_that_of_the_standard_error() -> None:
    """A percentile interval of a mean of n values is about 1.96 standard errors to each side."""
    values = RNG.normal(size=(400, 1))
    found = estimate(values, np.ones_like(values), replicates=4000)
    error = values.std(ddof=0) / np.sqrt(len(values))
    assert (found.high - found.low)[0] == pytest.approx(2 * 1.96 * error, rel=0.06)


@pytest.mark.parametrize("micro", [False, True])
def test_intervals_agree_with_scipy(micro: bool) -> None:
    weight = RNG.integers(1, 9, size=60).astype(float)
    total = weight * RNG.gamma(2.0, size=60)
    found = estimate(total[:, None], weight[:, None], micro=micro, replicates=5000)

    def mean(t: np.ndarray, w: np.ndarray, axis: int = -1) -> np.ndarray:
        return t.sum(axis) / w.sum(axis) if micro else (t / w).mean(axis)

    theirs = scipy_stats.bootstrap(
        (total, weight), mean, paired=True, method="percentile", n_resamples=5000, rng=1
    ).confidence_interval
    spread = theirs.high - theirs.low
    assert found.low[0] == pytest.approx(theirs.low, abs=0.08 * spread)
    assert found.high[0] == pytest.approx(theirs.high, abs=0.08 * spread)


def test_nineteen_intervals_of_twenty_hold_the_truth() -> None:
    draws = RNG.normal(loc=3.0, size=(80, 600))
    found = estimate(draws, np.ones_like(draws), replicates=800)
    covered = np.mean((found.low <= 3.0) & (found.high >= 3.0))
    assert 0.91 < covered < 0.975


def test_examples_without_weight_say_nothing() -> None:
    values = RNG.normal(size=(30, 2))
    weight = np.ones_like(values)
    weight[10:, 0] = 0
    values[10:, 0] = 99.0
    found = estimate(values, weight)
    assert found.mean[0] == pytest.approx(values[:10, 0].mean())
    assert found.n.tolist() == [10, 30]
    assert found.high[0] < 50


def test_nothing_defined_is_nan_and_one_example_has_no_interval() -> None:
    total, weight = np.array([[1.0, 5.0], [2.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    found = estimate(total, weight)
    assert np.isnan(found.mean[0]) and found.mean[1] == 5.0
    assert np.isnan([*found.low, *found.high]).all()
    assert found.n.tolist() == [0, 1]


def test_the_seed_decides_and_the_order_of_axes_does_not() -> None:
    values = RNG.normal(size=(25, 3, 2))
    weight = np.ones_like(values)
    first, again = estimate(values, weight, seed=3), estimate(values, weight, seed=3)
    assert np.array_equal(first.low, again.low)
    assert not np.array_equal(first.low, estimate(values, weight, seed=4).low)
    parts = [estimate(values[:, i : i + 1], weight[:, i : i + 1], seed=3) for i in range(3)]
    assert np.allclose(np.concatenate([part.low for part in parts]), first.low)


def test_no_example_is_refused() -> None:
    with pytest.raises(BadValue, match="no example"):
        estimate(np.zeros((0, 2)), np.zeros((0, 2)))
