"""Heads as points in a plane, and whether groups of heads lie closer together than chance."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnlib.errors import BadValue, UnknownName

GATHERED_TOGETHER = 4_000_000
"""Distances looked up at once in the permutation test: about 32 MB."""


@dataclass(frozen=True, eq=False)
class Plane:
    """Where each point lies, and how much of the given distances the plane could keep.

    points       (n, 2)   centred; the first axis is the long one
    stress       Kruskal's stress-1: 0 is perfect, 0.1 fair, 0.2 poor
    correlation  of the distances in the plane with those given, over all pairs
    """

    points: Float[np.ndarray, "n 2"]
    stress: float
    correlation: float


@dataclass(frozen=True)
class Closeness:
    """Mean distances within and between groups, and how often chance does as well.

    p_value  one-sided, (1 + shuffles at least as close) / (1 + shuffles); NaN without a pair within
    """

    within: float
    between: float
    ratio: float
    p_value: float
    n_within: int
    n_between: int
    permutations: int


def planar(distances: Float[np.ndarray, "n n"], *, seed: int = 0, starts: int = 5) -> Plane:
    r"""Points whose Euclidean distances are as near as possible to those given (sec. 6, Fig. 6).

    .. math::
        \min_x \sum_{i<j} (d_{ij} - \|x_i - x_j\|)^2, \quad
        \text{stress-1} = \sqrt{\frac{\sum_{i<j} (d_{ij} - \|x_i - x_j\|)^2}
                                     {\sum_{i<j} \|x_i - x_j\|^2}}

    distances  (n, n)   symmetric, 0 on the diagonal: the Jensen-Shannon divergences of heads
    returns    points (n, 2), stress-1, correlation

    The best of `starts` random starts, as in the authors' code. Differs from it: the starts have
    a seed, and the result is turned to its principal axes with the farthest point of each axis
    on the positive side, so that the same distances give the same picture.
    """
    # The import takes a second that no other part of this module needs. The function `smacof`
    # has kept its arguments; those of the class MDS changed their meaning in version 1.8.
    from sklearn.manifold import smacof

    given = _checked(distances)
    if starts < 1:
        raise BadValue(f"starts is {starts}; expected at least 1.")
    points, _ = smacof(
        given,
        metric=True,
        n_components=2,
        init=None,
        n_init=starts,
        n_jobs=1,
        max_iter=3000,
        eps=1e-9,
        random_state=seed,
        normalized_stress=False,
    )
    points = _turned(np.asarray(points, dtype=np.float64))
    pairs = np.triu_indices(len(given), 1)
    shown = np.linalg.norm(points[pairs[0]] - points[pairs[1]], axis=-1)
    wanted = given[pairs]
    with np.errstate(invalid="ignore", divide="ignore"):
        stress = float(np.sqrt(((wanted - shown) ** 2).sum() / (shown**2).sum()))
    constant = np.ptp(wanted) == 0 or np.ptp(shown) == 0
    correlation = float("nan") if constant else float(np.corrcoef(wanted, shown)[0, 1])
    return Plane(points, stress, correlation)


def closeness(
    distances: Float[np.ndarray, "n n"],
    groups: Sequence[object] | np.ndarray | pd.Series,
    *,
    exclude: Collection[object] = (),
    permutations: int = 10_000,
    seed: int = 0,
) -> Closeness:
    r"""Are points of one group closer to each other than if labels were dealt out at random?

    .. math:: W = \frac{1}{|P|} \sum_{(i, j) \in P} d_{ij}, \quad
              P = \{i < j : g_i = g_j\}, \quad
              p = \frac{1 + |\{\pi : W_\pi \le W\}|}{1 + \text{permutations}}

    distances  (n, n)   symmetric
    groups     (n,)     a label per point; points with a label in `exclude` take no part

    The paper says "heads in the same layer tend to be close together" without a test; this is ours.
    A group of one point has no pair within. Shuffling labels keeps the sizes of all groups, so W
    and the ratio W / (mean between) order the shuffles alike.
    """
    given, labels = _checked(distances), pd.Series(np.asarray(groups, dtype=object))
    if len(labels) != len(given):
        raise BadValue(f"{len(labels)} labels for {len(given)} points; expected one for each.")
    if labels.isna().any():
        raise BadValue(
            f"point {int(labels.isna().idxmax()) + 1} has no label; "
            "expected one for each. Give it a label of its own and name that in `exclude`."
        )
    if permutations < 1:
        raise BadValue(f"permutations is {permutations}; expected at least 1.")
    kept = np.flatnonzero(~labels.isin(list(exclude)))
    given, code = given[np.ix_(kept, kept)], pd.factorize(labels.iloc[kept])[0]
    one, other = np.triu_indices(len(kept), 1)
    same = code[one] == code[other]
    values = given[one, other]
    within, between = _mean(values[same]), _mean(values[~same])
    p_value = _p_value(given, one[same], other[same], within, permutations, seed)
    counts = int(same.sum()), int((~same).sum())
    ratio = within / between if between else float("nan")
    return Closeness(within, between, ratio, p_value, *counts, permutations)


def _p_value(
    given: np.ndarray,
    one: np.ndarray,
    other: np.ndarray,
    observed: float,
    permutations: int,
    seed: int,
) -> float:
    """The share of shuffles whose mean over the pairs (one, other) is not above the observed."""
    if not len(one):
        return float("nan")
    generator = np.random.default_rng(seed)
    # A shuffle that repeats the grouping adds the same numbers in another order.
    limit = observed + 1e-9 * given.max(initial=0.0)
    chunk = max(1, GATHERED_TOGETHER // len(one))
    as_close = 0
    for start in range(0, permutations, chunk):
        size = min(chunk, permutations - start)
        dealt = generator.permuted(np.tile(np.arange(len(given)), (size, 1)), axis=1)
        # Rows and columns move together: a point keeps its distances, only its label changes.
        means = given[dealt[:, one], dealt[:, other]].mean(1)
        as_close += int((means <= limit).sum())
    return (1 + as_close) / (1 + permutations)


@dataclass(frozen=True)
class Thresholds:
    """From which mean on a head has a behaviour; the values are those of the authors' code.

    broad     entropy in nats
    position  share of attention on the previous, the next, or the token itself
    special   share of attention on [SEP], on [CLS], or on full stops and commas
    """

    broad: float = 3.8
    position: float = 0.5
    special: float = 0.6


_Limit = Callable[[Thresholds], float]
BEHAVIOURS: Mapping[str, tuple[str, _Limit]] = MappingProxyType(
    {
        "broad": ("entropy", lambda limits: limits.broad),
        "previous": ("mass_to_previous", lambda limits: limits.position),
        "next": ("mass_to_next", lambda limits: limits.position),
        "self": ("mass_to_self", lambda limits: limits.position),
        "[SEP]": ("mass_to_sep", lambda limits: limits.special),
        "[CLS]": ("mass_to_cls", lambda limits: limits.special),
        "punctuation": ("mass_to_period_or_comma", lambda limits: limits.special),
    }
)
"""Behaviour, the metric that shows it, and its threshold; the first that fits names the head."""


def behaviours(table: pd.DataFrame, limits: Thresholds | None = None) -> pd.Series:
    """What each head mostly does, by its means: the colours of Fig. 6, right.

    table    metric, layer, head, mean, one row per metric and head, as Measurement.table() gives it
    returns  a label per (layer, head): the first of BEHAVIOURS that fits, "other" when none does,
             "undefined" when none fits and a mean is missing
    """
    limits = limits or Thresholds()
    missing = [name for name in ("metric", "layer", "head", "mean") if name not in table.columns]
    if missing:
        raise BadValue(f"the table has no column {missing[0]}. Use result.table().")
    known = set(table["metric"])
    for metric, _ in BEHAVIOURS.values():
        if metric not in known:
            raise UnknownName(f"metric '{metric}' is not in the table; measure it as well.")
    asked = [metric for metric, _ in BEHAVIOURS.values()]
    rows = table[table["metric"].isin(asked)]
    if rows.duplicated(["metric", "layer", "head"]).any():
        raise BadValue("a head has two means of one metric; give the table of one measurement.")
    means = rows.pivot(index=["layer", "head"], columns="metric", values="mean")
    labels = pd.Series("other", index=means.index, name="behaviour")
    labels[means[asked].isna().any(axis=1)] = "undefined"
    for label, (metric, limit) in reversed(list(BEHAVIOURS.items())):
        labels[means[metric] > limit(limits)] = label
    return labels


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _checked(distances: np.ndarray) -> np.ndarray:
    """The distances in double precision, exactly symmetric; says what is wrong otherwise."""
    given = np.array(distances, dtype=np.float64)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise BadValue(f"distances have shape {given.shape}; expected a square (n, n).")
    if len(given) < 3:
        raise BadValue(f"distances are between {len(given)} points; expected at least 3.")
    if not np.isfinite(given).all():
        one, other = np.argwhere(~np.isfinite(given))[0] + 1
        raise BadValue(
            f"the distance of points {one} and {other} is {given[one - 1, other - 1]}; "
            "expected a finite number. Leave out points without one."
        )
    if given.min() < 0:
        raise BadValue(f"a distance is {given.min():.3g}; expected 0 or more.")
    slack = 1e-5 * given.max()
    if np.abs(given - given.T).max() > slack:
        raise BadValue(
            f"distances differ by {np.abs(given - given.T).max():.3g} from one direction to the "
            "other; expected a symmetric matrix."
        )
    if np.abs(np.diag(given)).max() > slack:
        raise BadValue(
            f"a point has the distance {np.diag(given).max():.3g} from itself; expected 0."
        )
    given = (given + given.T) / 2
    np.fill_diagonal(given, 0.0)
    return given


def _turned(points: np.ndarray) -> np.ndarray:
    """Centred, on principal axes, the farthest point of each axis on the positive side."""
    centred = points - points.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ axes.T
    size = np.abs(turned)
    # Rounded, so that of two points equally far out the first decides on every machine.
    far = np.argmax(np.round(size / max(size.max(), 1e-300), 6), axis=0)
    sign = np.where(turned[far, [0, 1]] < 0, -1.0, 1.0)
    return np.asarray(turned * sign)
