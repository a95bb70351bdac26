"""How far two sortings of the same heads into classes agree, beyond chance and beyond layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats.contingency import crosstab
from sklearn.metrics import adjusted_mutual_info_score, confusion_matrix
from sklearn.metrics.cluster import expected_mutual_information

from attnlib.errors import BadValue

DEALS, DEALT_TOGETHER = 20_000, 1000

Labels = Sequence[object] | NDArray[np.generic]


def numbered(labels: Labels) -> Int[np.ndarray, " head"]:
    """Labels as whole numbers from 0, in the order of their names."""
    return np.asarray(np.unique(np.asarray(labels, dtype=str), return_inverse=True)[1])


def crossed(one: Labels, other: Labels) -> Float[np.ndarray, "one other"]:
    """How many heads have each pair of labels."""
    return np.asarray(crosstab(*_names(one, other)).count, float)


def mutual_information(counts: Float[np.ndarray, "*axes one other"]) -> Float[np.ndarray, "*axes"]:
    r"""What one label says about the other, in nats.

    .. math:: I = \sum_{ab} p_{ab} \log \frac{p_{ab}}{p_a p_b}
    """
    share = counts / counts.sum((-2, -1), keepdims=True)
    rows, columns = share.sum(-1, keepdims=True), share.sum(-2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = share * np.log(share / (rows * columns))
    return np.asarray(np.where(share > 0, terms, 0.0).sum((-2, -1)))


def kappa(counts: Float[np.ndarray, "*axes label label"]) -> Float[np.ndarray, "*axes"]:
    """Cohen's kappa of a square table of counts; NaN where a rater has only one answer."""
    n = counts.sum((-2, -1))
    seen = np.trace(counts, axis1=-2, axis2=-1) / n
    rows, columns = counts.sum(-1) / n[..., None], counts.sum(-2) / n[..., None]
    luck = (rows * columns).sum(-1)
    constant = ((rows == 1).any(-1)) | ((columns == 1).any(-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(constant, np.nan, (seen - luck) / (1 - luck)))


def adjusted_information(one: Labels, other: Labels) -> float:
    r"""Adjusted mutual information: 0 is what chance gives on average, 1 the same classes.

    .. math:: \frac{I - E[I]}{(H_1 + H_2)/2 - E[I]}

    E[I] is the mean over all ways to deal the labels out again, with as many heads in each class.
    Undefined (NaN) where all heads have one label.
    """
    return _defined(adjusted_mutual_info_score, one, other)


def agreement_kappa(one: Labels, other: Labels) -> float:
    """Cohen's kappa of two sortings into the same classes; NaN where all heads have one label."""
    return _defined(lambda *names: kappa(confusion_matrix(*names)), one, other)


def _defined(score: Callable[..., Any], one: Labels, other: Labels) -> float:
    """A score of two sortings; NaN where one of them has a single class."""
    names = _names(one, other)
    if any(len(np.unique(part)) == 1 for part in names):
        return float("nan")
    return float(score(*names))


def information_by_chance(
    one: Labels,
    other: Labels,
    *,
    within: Labels | None = None,
    deals: int = DEALS,
    seed: int = 0,
) -> Float[np.ndarray, " deal"]:
    """The adjusted information of labels that are dealt out at random, many times.

    within  groups of heads, such as their layers: labels are then dealt out inside each group, so
            that what the groups explain counts as chance
    returns NaN where all heads have one label
    """
    counts = crossed(one, other)
    if 1 in counts.shape:
        return np.full(deals, np.nan)
    first, second = (
        np.eye(size)[numbered(x)] for x, size in zip((one, other), counts.shape, strict=True)
    )
    groups = numbered(within) if within is not None else np.zeros(len(first), int)
    generator = np.random.default_rng(seed)
    found = []
    for start in range(0, deals, DEALT_TOGETHER):
        order = dealt(groups, min(DEALT_TOGETHER, deals - start), generator)
        dealt_counts = np.einsum("na,pnb->pab", first, second[order], optimize=True)
        found.append(mutual_information(dealt_counts))
    # Dealing changes I alone: the classes keep their sizes, and so does what chance gives them.
    expected = expected_mutual_information(counts.astype(np.int64), len(first))
    middle = sum(float(mutual_information(crossed(own, own))) for own in (one, other)) / 2
    return np.asarray((np.concatenate(found) - expected) / (middle - expected))


def dealt(
    groups: Int[np.ndarray, " head"], shuffles: int, generator: np.random.Generator
) -> Int[np.ndarray, "shuffle head"]:
    """Random orders of the heads that keep every head in its group."""
    order = np.tile(np.arange(len(groups)), (shuffles, 1))
    for group in np.unique(groups):
        places = np.flatnonzero(groups == group)
        order[:, places] = generator.permuted(np.tile(places, (shuffles, 1)), axis=1)
    return order


def _names(one: Labels, other: Labels) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
    if len(one) != len(other) or not len(one):
        raise BadValue(f"{len(one)} labels and {len(other)}; expected one of each for every head.")
    return np.asarray(one, dtype=str), np.asarray(other, dtype=str)
