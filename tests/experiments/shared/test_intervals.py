"""Intervals of numbers that were drawn again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from attnlib.measuring.bootstrap import REPLICATES
from experiments.shared.intervals import (
    SPLITS,
    UNDEFINED,
    chance_p,
    drawn,
    drawn_counts,
    drawn_weights,
    elsewhere,
    halved,
    largest_of,
    means,
    rank_correlations,
    settled,
    smallest_of,
)


def test_an_interval_is_that_of_the_draws_not_of_the_value() -> None:
    found = drawn([5.0, *range(101), math.nan])
    assert [found.value, found.low, found.high] == pytest.approx([5.0, 2.5, 97.5])
    assert math.isnan(drawn([1.0]).low)


# --- numbers on things drawn again ----------------------------------------------------------------


def test_halves_split_distinct_things() -> None:
    counts = drawn_counts(9, seed=0)
    halves = halved(counts, seed=0)
    assert counts.shape == (1 + REPLICATES, 9) and (counts[0] == 1).all()
    assert (counts.sum(1) == 9).all() and halves.shape == (2, SPLITS + REPLICATES, 9)
    assert np.array_equal(halves.sum(0)[SPLITS:], counts[1:])  # a copy is on one side only
    assert (halves.prod(0) == 0).all()
    sizes = (halves > 0).sum(2)
    assert (abs(sizes[0] - sizes[1]) <= 1).all()


def test_means_leave_out_what_is_undefined() -> None:
    values = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 7.0]])
    counts = np.array([[1.0, 1, 1], [2, 1, 0], [0, 0, 3]])
    found = means(counts, values)
    assert np.allclose(found, [[2, 6], [5 / 3, 5], [np.nan, 7]], equal_nan=True)
    assert np.array_equal(means(np.stack([counts, counts]), values)[1], found, equal_nan=True)


def test_a_choice_is_scored_on_the_other_half() -> None:
    chosen = np.array([[[1.0, 9, 5, np.nan]], [[8, 2, 7, np.nan]]])  # half, draw, place
    assert elsewhere(chosen).tolist() == [[[2.0]], [[1.0]]]
    assert elsewhere(chosen, top=2).tolist() == [[[2.0, 7.0]], [[1.0, 5.0]]]
    tested = 10 * chosen
    assert elsewhere(chosen, tested).tolist() == [[[20.0]], [[10.0]]]


def test_equals_are_chosen_at_random() -> None:
    """The first of equals would always be a head of the first layers."""
    chosen = np.zeros((2, 400, 4))
    tested = np.broadcast_to(np.arange(4.0), (2, 400, 4))
    assert elsewhere(chosen, tested).mean() == pytest.approx(1.5, abs=0.15)


def test_a_choice_among_idle_numbers_is_worth_nothing_elsewhere() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 100))
    values -= values.mean(0)  # each is 0 on all inputs
    counts = drawn_counts(60, seed=1)
    best = means(counts, values).max(1)
    clean = drawn(settled(elsewhere(means(halved(counts, 1), values))[..., 0]))
    assert drawn(best).low > 0 > clean.value and clean.low < 0


def draws_of(value: float, spread: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, spread, REPLICATES)
    return np.concatenate([[value], value + noise])


def test_the_smallest_of_equals_is_not_small_by_noise_alone() -> None:
    """Twelve numbers that are 0: minima of draws would all be below -0.5 and say "fails"."""
    numbers = [draws_of(0.0, 1.0, seed) for seed in range(12)]
    minima = np.min(numbers, axis=0)[1:]
    assert np.percentile(minima, 97.5) < -0.4
    found = smallest_of(numbers)
    assert found.low < -1.8 and found.high > 2.2  # 2.87 of sd hold for twelve together
    mirrored = largest_of([-one for one in numbers])
    assert (mirrored.low, mirrored.high) == (-found.high, -found.low)


def test_the_smallest_of_numbers_far_apart_is_the_smallest() -> None:
    numbers = [draws_of(3.0, 1.0, 0), draws_of(50.0, 1.0, 1)]
    found, alone = smallest_of(numbers), drawn(numbers[0])
    assert found.value == 3.0 and found.low == pytest.approx(alone.low)
    assert alone.high < found.high < alone.high + 0.5  # the price of two
    assert math.isnan(smallest_of([*numbers, UNDEFINED]).value)
    assert math.isnan(smallest_of([]).value)
    calm = smallest_of([np.ones(1 + REPLICATES)] * 2)
    assert (calm.low, calm.value, calm.high) == (1.0, 1.0, 1.0)


def test_rank_correlations_are_those_of_scipy() -> None:
    one, other = np.random.default_rng(0).integers(0, 5, (2, 6, 9)).astype(float)
    one[2, 3] = np.nan
    found = rank_correlations(one, other)
    known = ~np.isnan(one)
    wanted = [spearmanr(a[k], b[k]).statistic for a, b, k in zip(one, other, known, strict=True)]
    assert found == pytest.approx(wanted)
    assert math.isnan(rank_correlations(np.ones((1, 4)), other[:1, :4])[0])


def test_an_undefined_draw_makes_no_p_smaller() -> None:
    draws = np.array([2.0, 0.1, math.nan, math.nan])
    assert chance_p(1.0, draws) == pytest.approx((1 + 1) / (1 + 2))  # it was 2 of 5


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
