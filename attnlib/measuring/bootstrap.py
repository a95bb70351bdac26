"""Means over examples, numbers made of such means, and their bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num

from attnlib.errors import BadValue

REPLICATES = 1000
LEVEL = 0.95
DRAWN_TOGETHER = 100


@dataclass(frozen=True, eq=False)
class Estimate:
    """A mean with its interval, and over how many examples it is defined."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray


def estimate(
    total: Float[np.ndarray, "example *axes"],
    weight: Float[np.ndarray, "example *axes"],
    *,
    micro: bool = False,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Estimate:
    """Mean over examples (macro) or over queries (micro), with a percentile bootstrap interval.

    Examples are drawn again with replacement. Where the weight is 0 an example says nothing
    about that value and is left out of its mean; where all are left out the mean is NaN. One
    example tells nothing about others: its interval is NaN.

    >>> import numpy as np
    >>> from attnlib import estimate
    >>> found = estimate(np.array([[2.0], [4.0], [9.0]]), np.array([[1.0], [1.0], [3.0]]))
    >>> found.mean, found.low, found.high
    (array([3.]), array([2.]), array([4.]))
    """
    if total.shape != weight.shape:
        raise ValueError(f"total {total.shape} and weight {weight.shape} differ in shape")
    if not len(total):
        raise BadValue("no example to average over; expected at least one.")
    shape = total.shape[1:]
    top, bottom = _sums(total.reshape(len(total), -1), weight.reshape(len(weight), -1), micro)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = top.sum(0) / bottom.sum(0)
        draws = _draws(len(total), replicates, seed)
        spread = np.concatenate([(counts @ top) / (counts @ bottom) for counts in draws])
    n = (weight > 0).sum(0)
    low, high = (np.where(n > 1, end.reshape(shape), np.nan) for end in percentile_interval(spread))
    return Estimate(mean.reshape(shape), low, high, n)


def mean_ends(values: Float[np.ndarray, "example *axes"], seed: int = 0) -> Estimate:
    """Mean and interval over the examples that define a value; NaN is undefined."""
    has = ~np.isnan(values)
    return estimate(np.where(has, values, 0.0), has.astype(float), seed=seed)


def by_group(
    values: Float[np.ndarray, "value *axes"], group: Int[np.ndarray, " value"], n_groups: int
) -> tuple[Float[np.ndarray, "group *axes"], Float[np.ndarray, "group *axes"]]:
    """Sum and number of the defined values of each group, such as a sentence or a document."""
    total = np.zeros((n_groups, *values.shape[1:]))
    number = np.zeros_like(total)
    np.add.at(total, group, np.nan_to_num(values))
    np.add.at(number, group, ~np.isnan(values))
    return total, number


def percentage(
    right: Float[np.ndarray, " example"], asked: Num[np.ndarray, " example"]
) -> tuple[float, float, float]:
    """The percentage right of all that was asked, and the ends of its interval over examples."""
    found = estimate(right[:, None], asked[:, None], micro=True)
    mean, low, high = (100 * float(part[0]) for part in (found.mean, found.low, found.high))
    return mean, low, high


Grids = Mapping[str, np.ndarray]
"""The mean of every metric, each (layer, head, ...)."""

Statistic = Callable[[Grids], float]


def statistics(
    rows: Mapping[str, tuple[np.ndarray, np.ndarray]],
    wanted: Mapping[str, Statistic],
    *,
    micro: bool = False,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> dict[str, tuple[float, float, float]]:
    """Numbers made of the mean grids of several metrics: (value, low, high) of each.

    rows    metric -> sums and weights per example, (example, *axes), as `Measurement.rows` gives
    wanted  name -> a function of the mean grids
    micro   means over what is counted in the rows, such as the texts of articles (see `by_group`)

    Every replicate draws the same examples for all metrics and computes the number anew, so that
    a choice inside it (the largest layer, the heads above a threshold) is made anew too.
    """
    sizes = {len(total) for total, _ in rows.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise BadValue(f"rows of {sorted(sizes)} examples; expected the same number, 1 or more.")
    (n,) = sizes
    shapes = {key: total.shape[1:] for key, (total, _) in rows.items()}
    flat = {key: _sums(t.reshape(n, -1), w.reshape(n, -1), micro) for key, (t, w) in rows.items()}

    def grids(counts: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = {key: (counts @ top) / (counts @ bottom) for key, (top, bottom) in flat.items()}
        for drawn in range(len(counts)):
            yield {key: mean[drawn].reshape(shapes[key]) for key, mean in means.items()}

    (center,) = grids(np.ones((1, n)))
    values = {name: float(statistic(center)) for name, statistic in wanted.items()}
    if n < 2:
        return {name: (value, np.nan, np.nan) for name, value in values.items()}
    spread: dict[str, list[float]] = {name: [] for name in wanted}
    for counts in _draws(n, replicates, seed):
        for drawn in grids(counts):
            for name, statistic in wanted.items():
                spread[name].append(float(statistic(drawn)))
    ends = percentile_interval(np.array([spread[name] for name in wanted]).T)
    return {
        name: (values[name], float(low), float(high))
        for name, low, high in zip(wanted, *ends, strict=True)
    }


def _sums(total: np.ndarray, weight: np.ndarray, micro: bool) -> tuple[np.ndarray, np.ndarray]:
    """Per example, what is added above and below the fraction line."""
    total, weight = total.astype(np.float64), weight.astype(np.float64)
    defined = weight > 0
    if micro:
        return np.where(defined, total, 0.0), np.where(defined, weight, 0.0)
    value = np.divide(total, weight, out=np.zeros_like(total), where=defined)
    return value, defined.astype(np.float64)


def _draws(n: int, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """How often each example is drawn in each replicate, some replicates at a time."""
    generator = np.random.default_rng(seed)
    for start in range(0, replicates, DRAWN_TOGETHER):
        size = min(DRAWN_TOGETHER, replicates - start)
        yield generator.multinomial(n, np.full(n, 1 / n), size=size).astype(np.float64)


def percentile_interval(
    spread: Float[np.ndarray, "replicate *axes"],
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the middle 95 % of the replicates in which a number was defined."""
    tail = 100 * (1 - LEVEL) / 2
    undefined = np.isnan(spread).all(0)
    filled = np.where(undefined, 0.0, spread)
    low, high = np.nanpercentile(filled, [tail, 100 - tail], axis=0)
    return np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)
