"""The test of a threshold: against loops, scipy and exact enumeration, and in its calibration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from scipy import stats as scipy_stats

from attnlib.errors import BadValue
from attnlib.measuring import significance
from attnlib.measuring.significance import (
    benjamini_hochberg,
    bonferroni,
    decided_by,
    from_moments,
    holm,
    needed,
    one_sided,
    undecided_share,
)

# A division by zero must not even warn.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

Adjustment = Callable[[np.ndarray], np.ndarray]


def gappy(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Skewed scores around 3, a third of them undefined."""
    generator = np.random.default_rng(seed)
    scores = generator.gamma(2.0, 1.5, size=shape)
    scores[generator.random(shape) < 1 / 3] = np.nan
    return scores


# One test


def p_by_hand(column: list[float], threshold: float, test: str) -> float:
    """The p of one head, number by number."""
    defined = [score for score in column if not math.isnan(score)]
    n = len(defined)
    mean = sum(defined) / n
    squares = sum((score - mean) ** 2 for score in defined)
    if squares < 1e-20:
        return 0.0 if mean > threshold else 1.0
    if test == "z":
        return 0.5 * math.erfc((mean - threshold) / math.sqrt(squares / (n - 1) / n) / math.sqrt(2))
    return float(scipy_stats.t.sf((mean - threshold) / math.sqrt(squares / n / n), n - 1))


def check_p(p: Callable[[np.ndarray, float, str], np.ndarray]) -> None:
    """A function that finds the p of every head, compared with the loop."""
    scores = gappy((12, 3, 4))
    for test, threshold in itertools.product("zt", (1.0, 3.0, 4.5)):
        found = p(scores, threshold, test)
        for layer, head in np.ndindex(3, 4):
            expected = p_by_hand(scores[:, layer, head].tolist(), threshold, test)
            assert found[layer, head] == pytest.approx(expected, rel=1e-9)


def planted_p(
    scores: np.ndarray, test: str, threshold: float, *, bug: str | None = None
) -> np.ndarray:
    """A second way to p, with one of the usual mistakes on demand."""
    if bug == "undefined is zero":
        scores = np.nan_to_num(scores)
    n = len(scores) if bug == "undefined is counted" else (~np.isnan(scores)).sum(0)
    ddof = (test == "z") != (bug == "ddof swapped")
    sd = np.nanstd(scores, axis=0, ddof=ddof)
    statistic = (np.nanmean(scores, axis=0) - threshold) / (sd / np.sqrt(n))
    tail = scipy_stats.norm if test == "z" or bug == "normal for t" else scipy_stats.t(n - 1)
    if bug == "two-sided":
        return 2 * tail.sf(np.abs(statistic))
    return tail.cdf(statistic) if bug == "wrong tail" else tail.sf(statistic)


def test_p_is_that_of_the_loop() -> None:
    check_p(lambda scores, threshold, test: one_sided(scores, threshold, test=test).p)


BUGS = ["two-sided", "wrong tail", "ddof swapped", "normal for t"]


@pytest.mark.parametrize("bug", [None, *BUGS, "undefined is zero", "undefined is counted"])
def test_the_loop_catches_planted_bugs(bug: str | None) -> None:
    def planted(scores: np.ndarray, threshold: float, test: str) -> np.ndarray:
        return planted_p(scores, test, threshold, bug=bug)

    if bug is None:
        check_p(planted)
    else:
        with pytest.raises(AssertionError):
            check_p(planted)


def test_statistic_agrees_with_scipy() -> None:
    """The z statistic is the textbook t; that of the authors is larger by sqrt(n / (n - 1))."""
    scores = gappy((40, 6))
    theirs = scipy_stats.ttest_1samp(
        scores, 3.0, axis=0, alternative="greater", nan_policy="omit"
    ).statistic
    ours, authors = one_sided(scores, 3.0), one_sided(scores, 3.0, test="t")
    assert np.allclose(ours.statistic, theirs)
    assert np.allclose(authors.statistic, theirs * np.sqrt(ours.n / (ours.n - 1)))
    assert np.allclose(ours.effect * np.sqrt(ours.n), ours.statistic)
    assert np.allclose(ours.sd, np.nanstd(scores, axis=0, ddof=1))
    assert np.allclose(authors.sd, np.nanstd(scores, axis=0, ddof=0))
    assert np.array_equal(ours.n, (~np.isnan(scores)).sum(0))


def test_four_numbers_by_hand() -> None:
    """2 4 4 6 against 3: mean 4, sd sqrt(8/3), z = 1 / sqrt(2/3)."""
    found = one_sided(np.array([2.0, 4.0, 4.0, 6.0]), 3.0)
    assert found.mean.shape == () and found.mean == 4.0 and found.n == 4
    assert found.statistic == pytest.approx(math.sqrt(1.5))
    assert found.effect == pytest.approx(math.sqrt(3 / 8))
    assert found.p == pytest.approx(0.1103357, rel=1e-6)


@pytest.mark.parametrize("test", ["z", "t"])
def test_the_far_tail_is_not_rounded_to_zero(test: str) -> None:
    """1 - cdf would be 0 or 1e-16 here; the logarithm of the tail is known to scipy."""
    scores = np.tile([9.0, 11.0], 100)
    found = one_sided(scores, 8.0, test=test)
    if test == "z":
        assert math.log(found.p) == pytest.approx(scipy_stats.norm.logsf(found.statistic))
    else:
        assert float(found.p) == pytest.approx(scipy_stats.t.sf(found.statistic, 199), rel=1e-6)
    assert 0 < found.p < 1e-50


@pytest.mark.parametrize("test", ["z", "t"])
def test_without_variance_the_side_decides(test: str) -> None:
    """0.1 and 0.7 are no sums of halves: their mean must still be exact."""
    scores = np.tile([0.1, 0.7, 3.1, np.nan], (13, 1))
    scores[5] = np.nan
    found = one_sided(scores, 0.7, test=test)
    assert found.sd[:3].tolist() == [0.0, 0.0, 0.0]
    assert found.p[:3].tolist() == [1.0, 1.0, 0.0]
    assert found.effect[0] == -np.inf and np.isnan(found.effect[1]) and found.effect[2] == np.inf
    assert found.n.tolist() == [12, 12, 12, 0] and np.isnan(found.p[3])


@pytest.mark.parametrize("test", ["z", "t"])
def test_fewer_than_two_inputs_give_no_p(test: str) -> None:
    scores = np.array([[5.0, np.nan, 1.0], [np.nan, np.nan, 2.0]])
    found = one_sided(scores, 3.0, test=test)
    assert found.mean[0] == 5.0 and np.isnan(found.mean[1])
    assert found.n.tolist() == [1, 0, 2]
    for name in ("sd", "statistic", "p", "effect"):
        assert np.isnan(getattr(found, name)).tolist() == [True, True, False]


def test_every_field_has_the_shape_of_the_axes_and_halves_are_widened() -> None:
    scores = gappy((9, 2, 3, 4))
    for found in (one_sided(scores, 3.0), one_sided(scores.astype(np.float32), 3.0)):
        assert {getattr(found, field.name).shape for field in fields(significance.Tested)} == {
            (2, 3, 4)
        }
        assert found.p.dtype == np.float64
    before = scores.copy()
    one_sided(scores, 3.0)
    assert np.array_equal(scores, before, equal_nan=True)


@pytest.mark.parametrize("test", ["z", "t"])
def test_moments_are_enough(test: str) -> None:
    """Also for heads with 0 or 1 input, or without variance."""
    scores = gappy((20, 2, 4))
    scores[:, 0, 0], scores[1:, 0, 1], scores[:, 0, 2], scores[:, 0, 3] = np.nan, np.nan, 3.0, 5.0
    known, expected = one_sided(scores, 0.0), one_sided(scores, 3.0, test=test)
    for n in (known.n, known.n.astype(np.float64)):  # a table may have widened the numbers
        found = from_moments(known.mean, known.sd, n, 3.0, test=test)
        for field in fields(significance.Tested):
            ours, theirs = getattr(found, field.name), getattr(expected, field.name)
            assert ours.shape == (2, 4)
            assert np.allclose(ours, theirs, rtol=1e-10, equal_nan=True)
    single = from_moments(np.array(4.0), np.array(2.0), np.array(1), 3.0, test=test)
    assert np.isnan(single.p)


# Many tests


def bonferroni_by_hand(p: list[float]) -> list[float]:
    return [min(1.0, len(p) * one) for one in p]


def holm_by_hand(p: list[float]) -> list[float]:
    """The smallest level at which the step-down procedure still rejects this test."""
    found = []
    for one in p:
        before = [other for other in p if other <= one]
        steps = [(len(p) - sum(o < other for o in p)) * other for other in before]
        found.append(min(1.0, max(steps)))
    return found


def benjamini_hochberg_by_hand(p: list[float]) -> list[float]:
    """The smallest level at which the step-up procedure rejects this test."""
    found = []
    for one in p:
        after = [other for other in p if other >= one]
        steps = [len(p) / sum(o <= other for o in p) * other for other in after]
        found.append(min(1.0, min(steps)))
    return found


BY_HAND = {
    bonferroni: bonferroni_by_hand,
    holm: holm_by_hand,
    benjamini_hochberg: benjamini_hochberg_by_hand,
}


def check_adjustment(
    adjust: Adjustment, by_hand: Callable[[list[float]], list[float]], ties: bool = True
) -> None:
    generator = np.random.default_rng(3)
    for shape in [(), (1,), (7,), (4, 5), (2, 3, 4)]:
        p = np.asarray(generator.random(shape) ** 3)
        if ties and p.size > 4:
            p.flat[[1, 3]] = p.flat[0]  # ties
            p.flat[2] = np.nan
        defined = ~np.isnan(p)
        found = adjust(p)
        assert found.shape == p.shape
        assert np.array_equal(np.isnan(found), ~defined)
        assert np.allclose(found[defined], by_hand(p[defined].tolist()), rtol=1e-12)


@pytest.mark.parametrize("adjust", BY_HAND)
def test_adjustments_are_those_of_the_loops(adjust: Adjustment) -> None:
    check_adjustment(adjust, BY_HAND[adjust])


def unsorted(p: np.ndarray) -> np.ndarray:
    """Adjusted values in the order of rank, not in that of the heads."""
    return np.sort(holm(p).reshape(-1)).reshape(p.shape)


def no_running_maximum(p: np.ndarray) -> np.ndarray:
    m = np.count_nonzero(~np.isnan(p))
    return np.minimum(
        1.0, p * (m - scipy_stats.rankdata(p, nan_policy="omit").reshape(p.shape) + 1)
    )


def no_running_minimum(p: np.ndarray) -> np.ndarray:
    m = np.count_nonzero(~np.isnan(p))
    return np.minimum(1.0, p * m / scipy_stats.rankdata(p, nan_policy="omit").reshape(p.shape))


def undefined_counted(p: np.ndarray) -> np.ndarray:
    filled = benjamini_hochberg(np.where(np.isnan(p), 1.0, p))
    return np.where(np.isnan(p), np.nan, filled)


@pytest.mark.parametrize(
    ("wrong", "by_hand", "ties"),
    [
        (unsorted, holm_by_hand, True),
        (no_running_maximum, holm_by_hand, False),
        (no_running_minimum, benjamini_hochberg_by_hand, False),
        (undefined_counted, benjamini_hochberg_by_hand, True),
        (bonferroni, holm_by_hand, True),
        (holm, benjamini_hochberg_by_hand, True),
    ],
)
def test_the_loops_catch_planted_adjustments(
    wrong: Adjustment, by_hand: Callable[[list[float]], list[float]], ties: bool
) -> None:
    with pytest.raises(AssertionError):
        check_adjustment(wrong, by_hand, ties)


def test_q_agrees_with_scipy() -> None:
    p = np.random.default_rng(5).random((30, 4)) ** 4
    theirs = scipy_stats.false_discovery_control(p, axis=None, method="bh")
    assert np.allclose(benjamini_hochberg(p), theirs.reshape(p.shape))


def test_corrections_keep_the_order_and_only_raise() -> None:
    p = np.random.default_rng(6).random(200) ** 4
    order = np.argsort(p)
    for adjusted in (bonferroni(p), holm(p), benjamini_hochberg(p)):
        assert (np.diff(adjusted[order]) >= 0).all() and (adjusted >= p).all()
    assert (benjamini_hochberg(p) <= holm(p)).all() and (holm(p) <= bonferroni(p)).all()


def test_corrections_bound_what_they_promise() -> None:
    """100 families of 150 true and 50 false null significance, five standard errors off."""
    generator = np.random.default_rng(8)
    shares, families = [], []
    for _ in range(100):
        z = generator.normal(size=200)
        z[:50] += 5.0
        p = scipy_stats.norm.sf(z)
        rejected = benjamini_hochberg(p) < 0.05
        shares.append(rejected[50:].sum() / max(rejected.sum(), 1))
        families.append((holm(p) < 0.05)[50:].any())
    assert np.mean(shares) < 0.05 and np.mean(families) < 0.12
    assert np.mean(shares) > 0.02  # no correction gives 0.13, a wrong one that hides all gives 0


def test_nothing_but_undefined_p_stays_so() -> None:
    for adjust in BY_HAND:
        assert np.isnan(adjust(np.full((2, 3), np.nan))).all()
        assert adjust(np.zeros((0, 3))).shape == (0, 3)


# How many inputs


def power_of(n: int, effect: float, *, below: bool = False) -> float:
    """Share of normal samples of n in which the z test at 0.05 finds the side."""
    generator = np.random.default_rng(11)
    samples = generator.normal(effect, 1.0, size=(n, 10_000))
    p = one_sided(samples, 0.0).p
    return float(np.mean((1 - p if below else p) < 0.05))


@pytest.mark.parametrize("effect", [0.2, -0.2, 0.3])
def test_needed_reaches_the_power_by_simulation(effect: float) -> None:
    (n,) = needed(np.array([effect]), np.array([1.0]), 0.0)
    # 10,000 samples know the power to 0.004; the estimated sd adds 0.003 at n = 69.
    assert power_of(int(n), effect, below=effect < 0) == pytest.approx(0.8, abs=0.016)
    assert power_of(int(n / 2), effect, below=effect < 0) < 0.6


def test_needed_is_the_smallest_number() -> None:
    """Known sd: the power at n is ndtr(d sqrt(n) - 1.645), counted up from 2."""
    for effect, power in itertools.product([0.05, 0.3, 0.9, 4.0], [0.5, 0.8, 0.99]):
        n = 2
        while 0.5 * math.erfc((1.6448536269514722 - effect * math.sqrt(n)) / math.sqrt(2)) < power:
            n += 1
        mean = np.array([3 + 2 * effect, 3 - 2 * effect])
        assert needed(mean, np.array([2.0, 2.0]), 3.0, power=power).tolist() == [n, n]


def test_needed_at_its_borders() -> None:
    mean = np.array([3.0, 3.0, 5.0, 1.0, np.nan, 3.0, 4.0])
    sd = np.array([1.0, 0.0, 0.0, 0.0, 1.0, np.nan, np.nan])
    found = needed(mean, sd, 3.0)
    assert found[:4].tolist() == [np.inf, np.inf, 2.0, 2.0] and np.isnan(found[4:]).all()


def check_shares(shares: Callable[[np.ndarray, float, int, str], np.ndarray]) -> None:
    """Against every subset of 8 inputs, for subsets of 3 and 5."""
    scores = gappy((8, 6), seed=2)
    scores[:, 0] = np.nan_to_num(scores[:, 0], nan=6.0)
    for size, threshold, test in itertools.product((3, 5), (1.5, 3.0), "zt"):
        found = shares(scores, threshold, size, test)
        for head in range(6):
            whole = p_by_hand(scores[:, head].tolist(), threshold, test) < 0.05
            agreed = []
            for subset in itertools.combinations(range(8), size):
                column = scores[list(subset), head].tolist()
                decides = sum(not math.isnan(score) for score in column) > 1
                agreed.append(decides and (p_by_hand(column, threshold, test) < 0.05) == whole)
            expected = np.mean(agreed)
            error = math.sqrt(expected * (1 - expected) / 2000)
            assert found[head] == pytest.approx(expected, abs=4.5 * error + 1e-12)


def test_shares_are_those_of_all_subsets() -> None:
    check_shares(
        lambda scores, threshold, size, test: decided_by(
            scores, threshold, [size], seed=1, repeats=2000, test=test
        )[0]
    )


@pytest.mark.parametrize("bug", [None, "replacement", "undecided agrees"])
def test_all_subsets_catch_planted_draws(bug: str | None) -> None:
    generator = np.random.default_rng(4)

    def planted(scores: np.ndarray, threshold: float, size: int, test: str) -> np.ndarray:
        whole = one_sided(scores, threshold, test=test).p < 0.05
        draws = [
            generator.choice(len(scores), size, replace=bug == "replacement") for _ in range(2000)
        ]
        p = one_sided(scores[np.array(draws).T], threshold, test=test).p
        return (((p < 0.05) == whole) & (~np.isnan(p) | (bug == "undecided agrees"))).mean(0)

    if bug is None:
        check_shares(planted)
    else:
        with pytest.raises(AssertionError):
            check_shares(planted)


def test_all_inputs_agree_with_themselves_and_few_do_less() -> None:
    scores = np.random.default_rng(1).gamma(2.0, 1.5, size=(120, 3, 5)) + 0.3
    scores[:, 0, 0] = np.nan
    scores[:, 0, 1] = 0.7  # without variance, below the threshold
    found = decided_by(scores, 3.0, [120, 60, 5], seed=0)
    assert found.shape == (3, 3, 5)
    assert np.isnan(found[:, 0, 0]).all() and (found[:, 0, 1] == 1.0).all()
    assert np.nanmin(found[0]) == 1.0
    assert np.nanmean(found[1]) > np.nanmean(found[2]) + 0.1
    assert np.array_equal(
        found[2], decided_by(scores, 3.0, [5], seed=0)[0], equal_nan=True
    )  # the other sizes do not disturb the draws
    assert not np.array_equal(found, decided_by(scores, 3.0, [120, 60, 5], seed=9), equal_nan=True)


# Calibration: the share of rejections when the null hypothesis holds on its border


def rejected(p: np.ndarray) -> float:
    return float(np.mean(p < 0.05))


def test_normal_scores_reject_one_of_twenty() -> None:
    scores = np.random.default_rng(21).normal(3.0, 2.0, size=(200, 8000))
    assert rejected(one_sided(scores, 3.0).p) == pytest.approx(0.05, abs=0.01)
    assert rejected(one_sided(scores, 3.0, test="t").p) == pytest.approx(0.05, abs=0.01)


def test_few_normal_scores_reject_too_often_by_z() -> None:
    """Ten inputs: about 7 % by z, 6 % by the authors' t, 5 % by the textbook's t."""
    scores = np.random.default_rng(22).normal(3.0, 2.0, size=(10, 20_000))
    z, t = rejected(one_sided(scores, 3.0).p), rejected(one_sided(scores, 3.0, test="t").p)
    textbook = rejected(scipy_stats.ttest_1samp(scores, 3.0, alternative="greater").pvalue)
    assert z > t + 0.005 > textbook + 0.01
    assert z == pytest.approx(0.067, abs=0.008) and textbook == pytest.approx(0.05, abs=0.006)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_under_skew_z_is_off(sign: float) -> None:
    """A long right tail makes z too cautious, a long left tail too ready to reject.

    Fifty exponential inputs: about 2.5 % by z; with the sign turned about 9.5 %.
    """
    scores = sign * np.random.default_rng(23).exponential(size=(50, 6000))
    z = rejected(one_sided(scores, sign).p)
    assert (z < 0.035) if sign > 0 else (z > 0.08)


# The paper's numbers


def test_undecided_share_counts_the_open_interval() -> None:
    p = np.array([[0.0, 0.05, 0.0501, 0.5], [0.95, 0.949, np.nan, 1.0]])
    assert undecided_share(p) == pytest.approx(3 / 7)
    assert math.isnan(undecided_share(np.full(3, np.nan)))


# Bad input

SCORES = np.ones((4, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: one_sided(np.array([[1.0, np.inf], [2.0, 1.0]]), 3.0), "1 of 4 scores are inf"),
        (lambda: one_sided(np.zeros((0, 3)), 3.0), r"shape \(0, 3\)"),
        (lambda: one_sided(SCORES, np.nan), "threshold is nan"),
        (lambda: one_sided(SCORES, 3.0, test="chi"), "one of z, t"),
        (lambda: holm(np.array([0.2, 1.2])), "1 of 2 p are outside"),
        (lambda: benjamini_hochberg(np.array([np.inf])), "outside"),
        (lambda: bonferroni(np.array([-0.1])), "outside"),
        (lambda: needed(np.ones(1), np.array([-1.0]), 3.0), "sd has a value of -1.0"),
        (lambda: needed(np.ones(1), np.ones(1), 3.0, alpha=0.9), "alpha is 0.9"),
        (lambda: needed(np.ones(1), np.ones(1), np.inf), "threshold is inf"),
        (lambda: decided_by(SCORES, 3.0, [1, 3], seed=0), "from 2 to the 4"),
        (lambda: decided_by(SCORES, 3.0, [5], seed=0), "from 2 to the 4"),
        (lambda: decided_by(SCORES, 3.0, [2], seed=0, repeats=0), "1 repeat or more"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        call()


def test_the_two_tests_keep_their_ddof() -> None:
    assert dict(significance.TESTS) == {"z": 1, "t": 0}


# Ranks of two profiles
