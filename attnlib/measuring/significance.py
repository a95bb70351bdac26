"""Does a mean over inputs exceed a threshold: tests, corrections, and how many inputs it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Num
from scipy import special
from scipy.stats import rankdata

from attnlib.errors import BadValue, check_choice
from attnlib.measuring.bootstrap import DRAWN_TOGETHER, REPLICATES

TESTS = MappingProxyType({"z": 1, "t": 0})
"""The two tests, with the ddof of their standard deviation."""

ALPHA = 0.05
POOLED = "all"
"""The name of the rows of `threshold_curve` that count every test."""


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
    check_choice("test", test, TESTS)
    given = _checked(values)
    mean, sd, n = _moments(_flat(given), TESTS[test])
    found = (mean, sd, n, *_outcome(mean, sd, n, _finite(threshold), test))
    return Tested(*(field.reshape(given.shape[1:]) for field in found))


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
    # ddof 1 becomes that of the test; as in `one_sided`, fewer than 2 inputs have no sd.
    ratio = np.sqrt(np.maximum(n - 1, 1) / np.maximum(n - TESTS[test], 1))
    sd = np.where(n > 1, sd * ratio, np.nan)
    return Tested(mean, sd, n.astype(np.int64), *_outcome(mean, sd, n, _finite(threshold), test))


def bonferroni(p: Float[np.ndarray, "*axes"]) -> Float[np.ndarray, "*axes"]:
    """p times the number of tests: bounds the chance of one false rejection among all of them.

    NaN entries stay NaN and are no tests; so in `holm` and `benjamini_hochberg`.
    """
    given = _probabilities(p)
    return np.asarray(np.minimum(given * np.count_nonzero(~np.isnan(given)), 1.0))


def holm(p: Float[np.ndarray, "*axes"]) -> Float[np.ndarray, "*axes"]:
    r"""Holm's adjusted p: the bound of `bonferroni` with more rejections, whatever the dependence.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1)\, p_{(j)})
    """
    given = _probabilities(p)
    order, ranked = _ranked(given)
    steps = np.maximum.accumulate(ranked * np.arange(len(ranked), 0, -1))
    return _returned(given, order, np.minimum(steps, 1.0))


def benjamini_hochberg(p: Float[np.ndarray, "*axes"]) -> Float[np.ndarray, "*axes"]:
    r"""q values: rejecting q < 0.05 keeps the expected share of false rejections below 5 %.

    .. math:: q_{(i)} = \min_{j \ge i} \min(1, \tfrac{m}{j}\, p_{(j)})

    Proven for independent or positively dependent tests. Heads read the same inputs, so their
    tests are dependent; `holm` needs no such assumption.
    """
    given = _probabilities(p)
    order, ranked = _ranked(given)
    m = len(ranked)
    steps = np.minimum.accumulate((ranked * (m / np.arange(1, m + 1)))[::-1])[::-1]
    return _returned(given, order, np.minimum(steps, 1.0))


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
    alpha: float = ALPHA,
) -> Float[np.ndarray, "size *axes"]:
    """Share of random subsets of m inputs whose decision, p < alpha, is that of all inputs.

    values   (example, *axes)   NaN where an input has no such score
    sizes    numbers m of inputs, 2 up to all; drawn without replacement, the defined or not
    returns  (size, *axes)      NaN where all inputs together give no p

    A subset in which fewer than 2 inputs are defined decides nothing and agrees with nothing.
    Within a repeat a larger subset holds the smaller ones. The share is 1 at all inputs by
    construction, so only sizes well below say how many inputs would have been enough.
    """
    _check_test(test, alpha)
    given = _checked(values)
    wrong = [size for size in sizes if not 2 <= size <= len(given)]
    if wrong or repeats < 1:
        raise BadValue(
            f"sizes {list(sizes)}, {repeats} repeats; expected sizes from 2 to the {len(given)} "
            "inputs and 1 repeat or more."
        )
    # From the threshold on, rounding of the sums matters only where z is beyond all doubt.
    gaps = _flat(given) - _finite(threshold)
    whole = one_sided(gaps, 0.0, test=test).p
    agreed = np.zeros((len(sizes), gaps.shape[1]))
    generator = np.random.default_rng(seed)
    for portion in _portions(repeats):
        rank = generator.permuted(np.tile(np.arange(len(given)), (portion, 1)), axis=1)
        for place, size in enumerate(sizes):
            drawn = drawn_moments((rank < size).astype(np.float64), gaps, TESTS[test])
            _, p, _ = _outcome(*drawn, 0.0, test)
            agreed[place] += (((p < alpha) == (whole < alpha)) & ~np.isnan(p)).sum(0)
    share = np.where(np.isnan(whole), np.nan, agreed / repeats)
    return share.reshape(len(sizes), *given.shape[1:])


def bootstrap_p(
    values: Float[np.ndarray, "example *axes"],
    threshold: float,
    *,
    seed: int,
    replicates: int = REPLICATES,
) -> Float[np.ndarray, "*axes"]:
    r"""One-sided bootstrap-t test of H0: mean <= threshold, a check of `one_sided` under skew.

    .. math:: p = \frac{1 + \#\{b : t^*_b \ge t\}}{1 + B}, \quad
        t = \frac{\bar\beta - \tau}{s / \sqrt n}, \quad
        t^*_b = \frac{\bar\beta^*_b - \bar\beta}{s^*_b / \sqrt{n^*_b}}

    values   (example, *axes)   NaN where an input has no such score
    returns  (*axes)            at least 1 / (1 + B); NaN for n < 2

    Inputs are drawn with replacement, the same for all heads. Studentised, because the mean and
    the standard deviation of a skewed sample err together: that skews t *against* the skew of
    the scores, and a bootstrap of the mean alone would correct to the wrong side. Replicates with
    fewer than 2 defined inputs are left out of B. Values without variance have nothing to draw
    from: p is then the smallest one above the threshold, and 1 below or on it.
    """
    if replicates < 1:
        raise BadValue(f"replicates is {replicates}; expected 1 or more.")
    given = _checked(values)
    observed = one_sided(_flat(given), threshold)
    centred = _flat(given) - observed.mean
    reached = np.zeros(centred.shape[1])
    counted = np.zeros(centred.shape[1])
    generator, even = np.random.default_rng(seed), np.full(len(given), 1 / len(given))
    for portion in _portions(replicates):
        counts = generator.multinomial(len(given), even, size=portion).astype(np.float64)
        mean, sd, n = drawn_moments(counts, centred, 1)
        drawn, _, _ = _outcome(mean, sd, n, 0.0, "z")
        # 0 / 0 (all drawn values are the mean) counts as reached, which errs towards H0.
        reached += ((n > 1) & ~(drawn < observed.statistic)).sum(0)
        counted += (n > 1).sum(0)
    reached = np.where(observed.sd == 0, np.where(observed.p == 0, 0.0, counted), reached)
    p = np.where(np.isnan(observed.sd), np.nan, (1 + reached) / (1 + counted))
    return p.reshape(given.shape[1:])


def undecided_share(p: Float[np.ndarray, "*axes"], low: float = 0.05, high: float = 0.95) -> float:
    """Share of tests with low < p < high (Fig. 3b; the paper finds 1.8 %); NaN without a test.

    It falls with the number of inputs whatever the heads do, so it is no sign of a good threshold.
    """
    if not 0 <= low < high <= 1:
        raise BadValue(f"low is {low} and high {high}; expected 0 <= low < high <= 1.")
    given = _probabilities(p)
    given = given[~np.isnan(given)]
    return float(np.mean((given > low) & (given < high))) if given.size else math.nan


def data_threshold(*scores: Float[np.ndarray, "..."]) -> int:
    """The smallest integer larger than the mean of all defined scores (Pande 2021, Fig. 3a).

    Strictly larger, as the paper says it: a mean of 2.8 gives 3, a mean of exactly 3 gives 4.
    Scores of several tasks or roles are pooled, so that a role defined in few inputs counts less.
    """
    defined = [part[~np.isnan(part)] for part in map(_checked, scores)]
    if not sum(part.size for part in defined):
        raise BadValue("no defined score to take the mean of; expected at least one.")
    return math.floor(float(np.concatenate(defined).mean())) + 1


def threshold_curve(
    scores: Float[np.ndarray, "example *axes"] | Mapping[str, np.ndarray],
    thresholds: Sequence[float],
    *,
    test: str = "z",
    alpha: float = ALPHA,
) -> pd.DataFrame:
    """How many heads get the role at each threshold, before and after correction.

    scores   (example, *axes), or role -> such an array; roles may differ in their inputs
    returns  one row per threshold and role, and one with role "all" per threshold:
             threshold, role, tests (with a p), assigned (p < alpha), bh and holm (still below
             alpha after correction), undecided (share of p inside (0.05, 0.95))

    The corrections see the tests of all roles at one threshold as one family, so that the rows
    of the roles add up to the row "all".
    """
    _check_test(test, alpha)
    if isinstance(scores, Mapping) and (not scores or POOLED in scores):
        raise BadValue(f"roles {list(scores)}; expected one or more, none called '{POOLED}'.")
    roles = scores if isinstance(scores, Mapping) else {POOLED: scores}
    flat = {role: _flat(_checked(values)) for role, values in roles.items()}
    owner = np.repeat(list(flat), [values.shape[1] for values in flat.values()])
    moments = [_moments(values, TESTS[test]) for values in flat.values()]
    mean, sd, n = (np.concatenate(parts) for parts in zip(*moments, strict=True))
    rows = []
    for threshold in thresholds:
        _, p, _ = _outcome(mean, sd, n, _finite(threshold), test)
        table = np.stack([p, benjamini_hochberg(p), holm(p)])
        for role in dict.fromkeys([*flat, POOLED]):
            inside = (owner == role) | (role == POOLED)
            assigned, bh, kept = (table[:, inside] < alpha).sum(1).tolist()
            tests, undecided = int((~np.isnan(p[inside])).sum()), undecided_share(p[inside])
            rows.append((float(threshold), role, tests, assigned, bh, kept, undecided))
    columns = ["threshold", "role", "tests", "assigned", "bh", "holm", "undecided"]
    return pd.DataFrame(rows, columns=columns)


def _moments(values: np.ndarray, ddof: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard deviation and number of the defined values of each column."""
    defined = ~np.isnan(values)
    n = defined.sum(0)
    # Counted from the first defined value, equal values have a variance of exactly 0.
    first = np.take_along_axis(values, defined.argmax(0)[None], axis=0)[0]
    shifted = np.where(defined, values - first, 0.0)
    drift = shifted.sum(0) / np.maximum(n, 1)
    squares = np.where(defined, (shifted - drift) ** 2, 0.0).sum(0)
    sd = np.sqrt(squares / np.maximum(n - ddof, 1))
    return first + drift, np.where(n > 1, sd, np.nan), n


def drawn_moments(
    counts: np.ndarray, values: np.ndarray, ddof: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`_moments` of many draws at once, (draw, column), from how often each input is in a draw."""
    defined = ~np.isnan(values)
    filled = np.where(defined, values, 0.0)
    n = counts @ defined.astype(np.float64)
    mean = (counts @ filled) / np.maximum(n, 1)
    variance = (counts @ filled**2 - n * mean**2) / np.maximum(n - ddof, 1)
    return mean, np.where(n > 1, np.sqrt(np.maximum(variance, 0.0)), np.nan), n


def _outcome(
    mean: np.ndarray, sd: np.ndarray, n: np.ndarray, threshold: float, test: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Statistic, p and effect from the moments, whose ddof is the caller's."""
    gap = mean - threshold
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = gap / sd
    statistic = effect * np.sqrt(n)
    tail = special.ndtr(-statistic) if test == "z" else special.stdtr(n - 1.0, -statistic)
    p = np.where(sd == 0, np.where(gap > 0, 0.0, 1.0), tail)
    return np.asarray(statistic), p, np.asarray(effect)


def _flat(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1)


def _portions(total: int) -> list[int]:
    """Draws to make together, so that memory does not grow with their number."""
    return [min(DRAWN_TOGETHER, total - done) for done in range(0, total, DRAWN_TOGETHER)]


def _ranked(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the defined entries in the flat array, smallest first, and their values."""
    flat = p.reshape(-1)
    order = np.argsort(flat, kind="stable")[: np.count_nonzero(~np.isnan(flat))]
    return order, flat[order]


def _returned(p: np.ndarray, order: np.ndarray, adjusted: np.ndarray) -> np.ndarray:
    found = np.full(p.size, np.nan)
    found[order] = adjusted
    return found.reshape(p.shape)


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


def _probabilities(p: np.ndarray) -> np.ndarray:
    given = np.asarray(p, dtype=np.float64)
    if wrong := int(((given < 0) | (given > 1)).sum()):
        raise BadValue(f"{wrong} of {given.size} p are outside [0, 1]; expected p values or NaN.")
    return given


def _finite(threshold: float) -> float:
    if not math.isfinite(threshold):
        raise BadValue(f"threshold is {threshold}; expected a finite number.")
    return float(threshold)


def _check_test(test: str, alpha: float) -> None:
    check_choice("test", test, TESTS)
    if not 0 < alpha < 1:
        raise BadValue(f"alpha is {alpha}; expected a number between 0 and 1.")


def rank_correlation(
    one: Float[np.ndarray, " place"],
    other: Float[np.ndarray, " place"],
    seed: int = 0,
    permutations: int = 10_000,
) -> tuple[float, float]:
    """Spearman's rho of two profiles, and how often one permuted at random reaches it."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan, math.nan  # a flat profile has no order to compare
    first, second = (rankdata(part) - (len(part) + 1) / 2 for part in (one, other))
    size = np.sqrt((first**2).sum() * (second**2).sum())
    rho = float(first @ second / size)
    generator = np.random.default_rng(seed)
    order = generator.permuted(np.tile(np.arange(len(one)), (permutations, 1)), axis=1)
    drawn = second[order] @ first / size
    return rho, float((1 + (drawn >= rho - 1e-12).sum()) / (1 + permutations))
