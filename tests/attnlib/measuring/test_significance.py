"""The test of a threshold: against loops, scipy and exact enumeration, and in its calibration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np
import pytest
from scipy import stats as scipy_stats

from attnlib.errors import BadValue
from attnlib.measuring import significance
from attnlib.measuring.significance import (
    benjamini_hochberg,
    bonferroni,
    bootstrap_p,
    data_threshold,
    decided_by,
    from_moments,
    holm,
    needed,
    one_sided,
    rank_correlation,
    threshold_curve,
    undecided_share,
)

pytestmark = pytest.mark.filterwarnings("error")  # a division by zero must not even warn

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


# The bootstrap


def exact_bootstrap_p(column: list[float], threshold: float) -> float:
    """Share of all n^n draws whose studentised mean is at least the observed one."""
    n = len(column)

    def studentised(drawn: list[float], center: float) -> float:
        mean = sum(drawn) / n
        squares = sum((score - mean) ** 2 for score in drawn)
        if squares < 1e-20:
            return math.copysign(math.inf, mean - center)
        return (mean - center) / math.sqrt(squares / (n - 1) / n)

    observed = studentised(column, threshold)
    center = sum(column) / n
    reached = [
        studentised([column[i] for i in drawn], center) >= observed
        for drawn in itertools.product(range(n), repeat=n)
    ]
    return float(np.mean(reached))


def test_bootstrap_is_that_of_all_draws() -> None:
    scores = np.random.default_rng(2).gamma(1.0, 3.0, size=(5, 4))
    for threshold in (0.5, 2.0, 3.5):
        found = bootstrap_p(scores, threshold, seed=3, replicates=6000)
        for head in range(4):
            expected = exact_bootstrap_p(scores[:, head].tolist(), threshold)
            error = math.sqrt(expected * (1 - expected) / 6000)
            assert found[head] == pytest.approx(expected, abs=4.5 * error + 1 / 6000)


def test_bootstrap_counts_ties_as_reached() -> None:
    """1 2 3 against 2: t is 0; 10 of 27 draws lie above, 6 draws of 1 2 3 and 2 2 2 on it."""
    p = bootstrap_p(np.array([1.0, 2.0, 3.0]), 2.0, seed=5, replicates=4000)
    assert p == pytest.approx(17 / 27, abs=0.035)


def test_bootstrap_leaves_out_draws_without_two_inputs() -> None:
    """Two defined inputs of 40: six of ten draws hold at least 2 of them."""
    scores = np.full((40, 1), np.nan)
    scores[:2, 0] = 5.0, 6.0
    assert 0.7 < bootstrap_p(scores, 10.0, seed=5, replicates=400)[0] <= 1


def test_bootstrap_is_never_zero_and_knows_the_undefined() -> None:
    scores = np.full((30, 2, 3), np.nan)
    scores[:, 0, 0] = np.linspace(9, 10, 30)
    scores[:, 0, 1] = 0.7
    scores[:, 0, 2] = 0.1
    scores[3:25, 1, 0] = np.linspace(1, 2, 22)
    scores[0, 1, 1] = 5.0
    p = bootstrap_p(scores, 0.7, seed=0, replicates=199)
    assert p.shape == (2, 3)
    assert p[0].tolist() == [1 / 200, 1.0, 1.0]
    assert p[1, 0] == 1 / 200 and np.isnan(p[1, 1:]).all()
    assert bootstrap_p(scores, 0.05, seed=0, replicates=199)[0, 2] == 1 / 200
    assert np.array_equal(p, bootstrap_p(scores, 0.7, seed=0, replicates=199), equal_nan=True)


def test_undefined_inputs_do_not_move_the_bootstrap() -> None:
    """Inputs without a score only blur the number drawn, not the answer."""
    scores = np.random.default_rng(3).gamma(2.0, 1.5, size=(60, 40))
    padded = np.concatenate([scores, np.full((60, 40), np.nan)])
    alone = bootstrap_p(scores, 3.0, seed=1, replicates=2000)
    among = bootstrap_p(padded, 3.0, seed=2, replicates=2000)
    assert np.abs(alone - among).max() < 0.06


# Calibration: the share of rejections when the null hypothesis holds on its border


def rejected(p: np.ndarray) -> float:
    return float(np.mean(p < 0.05))


def test_normal_scores_reject_one_of_twenty() -> None:
    scores = np.random.default_rng(21).normal(3.0, 2.0, size=(200, 8000))
    assert rejected(one_sided(scores, 3.0).p) == pytest.approx(0.05, abs=0.01)
    assert rejected(one_sided(scores, 3.0, test="t").p) == pytest.approx(0.05, abs=0.01)
    assert rejected(bootstrap_p(scores[:, :2000], 3.0, seed=1)) == pytest.approx(0.05, abs=0.02)


def test_few_normal_scores_reject_too_often_by_z() -> None:
    """Ten inputs: about 7 % by z, 6 % by the authors' t, 5 % by the textbook's t."""
    scores = np.random.default_rng(22).normal(3.0, 2.0, size=(10, 20_000))
    z, t = rejected(one_sided(scores, 3.0).p), rejected(one_sided(scores, 3.0, test="t").p)
    textbook = rejected(scipy_stats.ttest_1samp(scores, 3.0, alternative="greater").pvalue)
    assert z > t + 0.005 > textbook + 0.01
    assert z == pytest.approx(0.067, abs=0.008) and textbook == pytest.approx(0.05, abs=0.006)


def bootstrap_of_the_mean(scores: np.ndarray, threshold: float) -> np.ndarray:
    """The bootstrap that is not studentised, for comparison."""
    n, mean = len(scores), scores.mean(0)
    counts = np.random.default_rng(1).multinomial(n, np.full(n, 1 / n), size=999)
    return (1 + (counts @ (scores - mean) / n >= mean - threshold).sum(0)) / 1000


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_under_skew_z_is_off_and_the_bootstrap_nearer(sign: float) -> None:
    """A long right tail makes z too cautious, a long left tail too ready to reject.

    Fifty exponential inputs: about 2.5 % by z, 4.5 % by the bootstrap; with the sign turned about
    9.5 % by z, 5.7 % by the bootstrap. Not studentised, the bootstrap does not help.
    """
    scores = sign * np.random.default_rng(23).exponential(size=(50, 6000))
    z = rejected(one_sided(scores, sign).p)
    bootstrap = rejected(bootstrap_p(scores, sign, seed=1, replicates=999))
    plain = rejected(bootstrap_of_the_mean(scores, sign))
    assert (z < 0.035) if sign > 0 else (z > 0.08)
    assert abs(bootstrap - 0.05) < 0.015 < abs(z - 0.05)
    assert abs(plain - 0.05) > abs(z - 0.05) - 0.005


# The paper's numbers


def test_undecided_share_counts_the_open_interval() -> None:
    p = np.array([[0.0, 0.05, 0.0501, 0.5], [0.95, 0.949, np.nan, 1.0]])
    assert undecided_share(p) == pytest.approx(3 / 7)
    assert undecided_share(p, 0.4, 0.6) == pytest.approx(1 / 7)
    assert math.isnan(undecided_share(np.full(3, np.nan)))


def test_the_threshold_from_the_data() -> None:
    assert data_threshold(np.array([2.8])) == 3
    assert data_threshold(np.array([2.0, 4.0])) == 4  # strictly above the mean of 3
    assert data_threshold(np.array([2.0, np.nan, 4.5])) == 4
    assert data_threshold(np.array([-0.5])) == 0
    assert data_threshold(np.array([1.0]), np.array([[5.0, np.nan], [5.0, 5.0]])) == 5  # pooled


def test_the_curve_counts_what_the_parts_say() -> None:
    roles = {"local": gappy((60, 2, 6), 1) + 0.6, "nsubj": gappy((40, 2, 6), 2)}
    roles["nsubj"][:, 0, 0] = np.nan
    table = threshold_curve(roles, [2.0, 3.0], test="t")
    assert table.role.tolist() == ["local", "nsubj", "all"] * 2
    assert table.threshold.tolist() == [2.0] * 3 + [3.0] * 3
    for threshold, rows in table.groupby("threshold"):
        p = {key: one_sided(values, threshold, test="t").p for key, values in roles.items()}
        family = np.concatenate([p["local"].reshape(-1), p["nsubj"].reshape(-1)])
        q, strict = benjamini_hochberg(family), holm(family)
        rows = rows.set_index("role")
        for role, part in [("local", slice(0, 12)), ("nsubj", slice(12, 24)), ("all", slice(24))]:
            row = rows.loc[role]
            assert row.tests == (~np.isnan(family[part])).sum()
            assert row.assigned == (family[part] < 0.05).sum()
            assert row.bh == (q[part] < 0.05).sum() and row.holm == (strict[part] < 0.05).sum()
            assert row.undecided == undecided_share(family[part])
        assert 0 < rows.loc["all"].holm < rows.loc["all"].assigned < 24
    assert table.assigned[3] < table.assigned[0]


def test_the_curve_of_one_array_has_no_roles() -> None:
    scores = gappy((30, 4))
    table = threshold_curve(scores, [1.0, 3.0])
    assert table.role.tolist() == ["all", "all"] and table.tests.tolist() == [4, 4]
    assert table.assigned[1] == (one_sided(scores, 3.0).p < 0.05).sum()


# Bad input

SCORES = np.ones((4, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: one_sided(np.array([[1.0, np.inf], [2.0, 1.0]]), 3.0), "1 of 4 scores are inf"),
        (lambda: one_sided(np.zeros((0, 3)), 3.0), r"shape \(0, 3\)"),
        (lambda: data_threshold(np.array(1.0)), r"shape \(\)"),
        (lambda: one_sided(SCORES, np.nan), "threshold is nan"),
        (lambda: one_sided(SCORES, 3.0, test="chi"), "one of z, t"),
        (lambda: holm(np.array([0.2, 1.2])), "1 of 2 p are outside"),
        (lambda: benjamini_hochberg(np.array([np.inf])), "outside"),
        (lambda: bonferroni(np.array([-0.1])), "outside"),
        (lambda: undecided_share(np.array([0.5]), 0.9, 0.1), "low is 0.9"),
        (lambda: needed(np.ones(1), np.array([-1.0]), 3.0), "sd has a value of -1.0"),
        (lambda: needed(np.ones(1), np.ones(1), 3.0, alpha=0.9), "alpha is 0.9"),
        (lambda: needed(np.ones(1), np.ones(1), np.inf), "threshold is inf"),
        (lambda: decided_by(SCORES, 3.0, [1, 3], seed=0), "from 2 to the 4"),
        (lambda: decided_by(SCORES, 3.0, [5], seed=0), "from 2 to the 4"),
        (lambda: decided_by(SCORES, 3.0, [2], seed=0, repeats=0), "1 repeat or more"),
        (lambda: decided_by(SCORES, 3.0, [2], seed=0, alpha=1.5), "alpha is 1.5"),
        (lambda: bootstrap_p(SCORES, 3.0, seed=0, replicates=0), "replicates is 0"),
        (lambda: data_threshold(np.full((2, 2), np.nan)), "no defined score"),
        (lambda: data_threshold(), "no defined score"),
        (lambda: threshold_curve({"all": SCORES}, [3.0]), "none called 'all'"),
        (lambda: threshold_curve({}, [3.0]), "expected one or more"),
        (lambda: threshold_curve(SCORES, [3.0], test="f"), "one of z, t"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        call()


def test_the_two_tests_keep_their_ddof() -> None:
    assert dict(significance.TESTS) == {"z": 1, "t": 0}


# Ranks of two profiles


def exact_p(one: Sequence[float], other: Sequence[float]) -> float:
    """Of all orders of one profile, the share whose rho is at least that of the real one."""
    rho = scipy_stats.spearmanr(one, other).statistic
    orders = list(itertools.permutations(other))
    return sum(
        scipy_stats.spearmanr(one, list(order)).statistic >= rho - 1e-9 for order in orders
    ) / len(orders)


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
    assert rho == pytest.approx(scipy_stats.spearmanr(one, other).statistic)
    assert p == pytest.approx(exact_p(one.tolist(), other.tolist()), abs=0.02)
    assert rank_correlation(one, other) == (rho, p)


def test_a_profile_without_ranks_has_no_p() -> None:
    rho, p = rank_correlation(np.arange(5.0), np.full(5, 3.0))
    assert math.isnan(rho) and math.isnan(p)
