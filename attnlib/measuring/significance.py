"""Does a mean over inputs exceed a threshold: tests, corrections, and how many inputs it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int, Num
from scipy import special
from scipy.stats import false_discovery_control

from attnlib.errors import BadValue, check_choice
from attnlib.measuring.bootstrap import DRAWN_TOGETHER

TESTS = MappingProxyType({"z": 1, "t": 0})
"""The two tests, with the ddof of their standard deviation."""

ALPHA = 0.05


@dataclass(frozen=True, eq=False)
class Tested:
    """What the test of one threshold says about each head; every field has the shape of `axes`.

    mean       over the n inputs in which the score is defined; NaN without any
    sd         standard deviation with the ddof of the test; NaN for n < 2
    n          inputs in which the score is defined
    statistic  effect * sqrt(n)
    p          one-sided; NaN for n < 2
    effect     (mean - threshold) / sd, Cohen's d of one sample; with sd 0 it is +inf above the
               threshold, -inf below, NaN on it
    """

    mean: Float[np.ndarray, "*axes"]
    sd: Float[np.ndarray, "*axes"]
    n: Int[np.ndarray, "*axes"]
    statistic: Float[np.ndarray, "*axes"]
    p: Float[np.ndarray, "*axes"]
    effect: Float[np.ndarray, "*axes"]


def one_sided(
    values: Float[np.ndarray, "example *axes"], threshold: float, *, test: str = "z"
) -> Tested:
    r"""One-tailed test of H0: mean <= threshold (Pande 2021, "Hypothesis Testing").

    .. math:: z = \frac{\bar\beta - \tau}{s / \sqrt n}, \quad p = P(Z \ge z)

    values   (example, *axes)   NaN where an input has no such score
    returns  Tested, each field (*axes)

    test="z"  the paper: normal tail, s with ddof 1
    test="t"  the authors' code: Student's t with n - 1 degrees of freedom, but s with ddof 0,
              so that their statistic is sqrt(n / (n - 1)) times the textbook one

    Differs from the authors' code: without variance they divide by zero. Here p is then 0 for a
    mean above the threshold, and 1 for one below or on it. The tail is computed as such, not as
    1 - cdf, so a p of 1e-200 is right; it becomes 0 beyond a statistic of about 38.
    """
    return from_moments(*_moments(_checked(values)), threshold, test=test)


def from_moments(
    mean: Float[np.ndarray, "*axes"],
    sd: Float[np.ndarray, "*axes"],
    n: Num[np.ndarray, "*axes"],
    threshold: float,
    *,
    test: str = "z",
) -> Tested:
    """`one_sided` where the scores are gone but their mean, sd (with ddof 1) and number remain."""
    check_choice("test", test, TESTS)
    mean, sd, n = (np.asarray(part, np.float64) for part in (mean, sd, n))
    # ddof 1 becomes that of the test; fewer than 2 inputs have no sd.
    ratio = np.sqrt(np.maximum(n - 1, 1) / np.maximum(n - TESTS[test], 1))
    sd, gap = np.where(n > 1, sd * ratio, np.nan), mean - _finite(threshold)
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.asarray(gap / sd)
    statistic = np.asarray(effect * np.sqrt(n))
    tail = special.ndtr(-statistic) if test == "z" else special.stdtr(n - 1.0, -statistic)
    p = np.where(sd == 0, np.where(gap > 0, 0.0, 1.0), tail)
    return Tested(mean, sd, n.astype(np.int64), statistic, p, effect)


def bonferroni(p: Float[np.ndarray, "*axes"]) -> Float[np.ndarray, "*axes"]:
    """p times the number of tests: bounds the chance of one false rejection among all of them.

    NaN entries stay NaN and are no tests; so in `holm` and `benjamini_hochberg`.
    """
    return _corrected(p, lambda tests: tests * len(tests))


def holm(p: Float[np.ndarray, "*axes"]) -> Float[np.ndarray, "*axes"]:
    r"""Holm's adjusted p: the bound of `bonferroni` with more rejections, whatever the dependence.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1)\, p_{(j)})
    """

    def adjusted(tests: np.ndarray) -> np.ndarray:
        order = np.argsort(tests, kind="stable")
        steps = np.maximum.accumulate(tests[order] * np.arange(len(tests), 0, -1))
        return steps[np.argsort(order)]

    return _corrected(p, adjusted)


def benjamini_hochberg(p: Float[np.ndarray, "*axes"]) -> Float[np.ndarray, "*axes"]:
    r"""q values: rejecting q < 0.05 keeps the expected share of false rejections below 5 %.

    .. math:: q_{(i)} = \min_{j \ge i} \min(1, \tfrac{m}{j}\, p_{(j)})

    Proven for independent or positively dependent tests. Heads read the same inputs, so their
    tests are dependent; `holm` needs no such assumption.
    """
    return _corrected(p, false_discovery_control)


def _corrected(p: np.ndarray, correct: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """A correction of the defined entries as one family; no p exceeds 1."""
    given = np.asarray(p, dtype=np.float64)
    _check_probabilities(given)
    found, tested = np.full(given.shape, np.nan), ~np.isnan(given)
    found[tested] = np.minimum(correct(given[tested]), 1.0)
    return found


def needed(
    mean: Float[np.ndarray, "*axes"],
    sd: Float[np.ndarray, "*axes"],
    threshold: float,
    *,
    alpha: float = ALPHA,
    power: float = 0.8,
) -> Float[np.ndarray, "*axes"]:
    r"""Inputs at which a one-tailed z test decides on the right side, with the given power.

    .. math:: n = \left\lceil \left(\frac{z_{1-\alpha} + z_{power}}{d}\right)^2 \right\rceil,
        \quad d = \frac{\mu - \tau}{\sigma}

    For a mean below the threshold it is the number that shows it to be below. At least 2, since
    one input has no variance; inf where the mean is the threshold; NaN where mean or sd is NaN.
    Mean and sd are taken for the true ones: an estimate near the threshold gives a rough number.
    """
    if not 0 < alpha < power < 1:
        raise BadValue(f"alpha is {alpha} and power {power}; expected 0 < alpha < power < 1.")
    mean, sd = np.asarray(mean, np.float64), np.asarray(sd, np.float64)
    if (sd < 0).any():
        raise BadValue(f"sd has a value of {np.nanmin(sd)}; expected 0 or more.")
    gap = np.abs(mean - _finite(threshold))
    quantiles = special.ndtri(1 - alpha) + special.ndtri(power)
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.maximum(np.ceil((quantiles * sd / gap) ** 2), 2.0)
    return np.where((gap == 0) & ~np.isnan(sd), np.inf, n)


def decided_by(
    values: Float[np.ndarray, "example *axes"],
    threshold: float,
    sizes: Sequence[int],
    *,
    seed: int,
    repeats: int = 200,
    test: str = "z",
) -> Float[np.ndarray, "size *axes"]:
    """Share of random subsets of m inputs whose decision, p < 0.05, is that of all inputs.

    values   (example, *axes)   NaN where an input has no such score
    sizes    numbers m of inputs, 2 up to all; drawn without replacement, the defined or not
    returns  (size, *axes)      NaN where all inputs together give no p

    A subset in which fewer than 2 inputs are defined decides nothing and agrees with nothing.
    Within a repeat a larger subset holds the smaller ones. The share is 1 at all inputs by
    construction, so only sizes well below say how many inputs would have been enough.
    """
    given = _checked(values)
    wrong = [size for size in sizes if not 2 <= size <= len(given)]
    if wrong or repeats < 1:
        raise BadValue(
            f"sizes {list(sizes)}, {repeats} repeats; expected sizes from 2 to the {len(given)} "
            "inputs and 1 repeat or more."
        )
    # From the threshold on, rounding of the sums matters only where z is beyond all doubt.
    gaps = given.reshape(len(given), -1) - _finite(threshold)
    whole = one_sided(gaps, 0.0, test=test).p
    agreed = np.zeros((len(sizes), gaps.shape[1]))
    generator = np.random.default_rng(seed)
    for done in range(0, repeats, DRAWN_TOGETHER):  # memory does not grow with their number
        portion = min(DRAWN_TOGETHER, repeats - done)
        rank = generator.permuted(np.tile(np.arange(len(given)), (portion, 1)), axis=1)
        for place, size in enumerate(sizes):
            drawn = drawn_moments((rank < size).astype(np.float64), gaps)
            p = from_moments(*drawn, 0.0, test=test).p
            agreed[place] += (((p < ALPHA) == (whole < ALPHA)) & ~np.isnan(p)).sum(0)
    share = np.where(np.isnan(whole), np.nan, agreed / repeats)
    return share.reshape(len(sizes), *given.shape[1:])


def undecided_share(p: Float[np.ndarray, "*axes"]) -> float:
    """Share of tests with 0.05 < p < 0.95 (Fig. 3b; the paper finds 1.8 %); NaN without a test.

    It falls with the number of inputs whatever the heads do: it does not show a good threshold.
    """
    given = np.asarray(p, dtype=np.float64)
    _check_probabilities(given)
    given = given[~np.isnan(given)]
    return float(np.mean((given > 0.05) & (given < 0.95))) if given.size else math.nan


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard deviation (ddof 1) and number of the defined values of each column."""
    defined = ~np.isnan(values)
    n = defined.sum(0)
    # Counted from the first defined value, equal values have a variance of exactly 0.
    first = np.take_along_axis(values, defined.argmax(0)[None], axis=0)[0]
    shifted = np.where(defined, values - first, 0.0)
    drift = shifted.sum(0) / np.maximum(n, 1)
    squares = np.where(defined, (shifted - drift) ** 2, 0.0).sum(0)
    sd = np.sqrt(squares / np.maximum(n - 1, 1))
    return np.asarray(first + drift), np.asarray(sd), np.asarray(n)


def drawn_moments(
    counts: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`_moments` of many draws at once, (draw, column), from how often each input is in a draw."""
    defined = ~np.isnan(values)
    filled = np.where(defined, values, 0.0)
    n = counts @ defined.astype(np.float64)
    mean = (counts @ filled) / np.maximum(n, 1)
    variance = (counts @ filled**2 - n * mean**2) / np.maximum(n - 1, 1)
    return mean, np.sqrt(np.maximum(variance, 0.0)), n


def _checked(values: np.ndarray) -> np.ndarray:
    given = np.asarray(values, dtype=np.float64)
    if not given.ndim or not len(given):
        raise BadValue(f"scores of shape {given.shape}; expected (example, ...), 1 or more.")
    if infinite := int(np.isinf(given).sum()):
        raise BadValue(
            f"{infinite} of {given.size} scores are infinite; expected numbers, or NaN where an "
            "input has none."
        )
    return given


def _check_probabilities(p: np.ndarray) -> None:
    if wrong := int(((p < 0) | (p > 1)).sum()):
        raise BadValue(f"{wrong} of {p.size} p are outside [0, 1]; expected p values or NaN.")


def _finite(threshold: float) -> float:
    if not math.isfinite(threshold):
        raise BadValue(f"threshold is {threshold}; expected a finite number.")
    return float(threshold)
