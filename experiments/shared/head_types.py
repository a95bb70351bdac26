"""Types of heads: clusters of their features, names for the clusters, and a plane of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.spatial.distance import cdist

from attnlib.errors import BadValue

TYPES = ("dense", "diagonal", "dense&vertical", "vertical")
STARTS = 10
ROUNDS = 300
PERPLEXITY = 30

_RULE = (("vertical", "special"), ("diagonal", "near"), ("dense&vertical", "special"))


@dataclass(frozen=True, eq=False)
class Clustering:
    """Heads in clusters, and where a new head would go.

    labels     (head,)             cluster of each head, from 0
    centroids  (cluster, feature)  means of the clusters
    inertia    squared distances of the heads from the centroid of their cluster, summed
    n_moved    heads that Hartigan's criterion moved after Lloyd's rounds
    """

    labels: Int[np.ndarray, " head"]
    centroids: Float[np.ndarray, "cluster feature"]
    inertia: float
    n_moved: int = 0

    @property
    def sizes(self) -> Int[np.ndarray, " cluster"]:
        """Heads of each cluster."""
        return np.bincount(self.labels)

    def predict(self, features: Float[np.ndarray, "head feature"]) -> Int[np.ndarray, " head"]:
        """The cluster of each head: that of the nearest centroid."""
        return np.asarray(cdist(checked(features), self.centroids, "sqeuclidean").argmin(1))


def fitted(
    features: Float[np.ndarray, "head feature"],
    k: int,
    *,
    seed: int,
    starts: int = STARTS,
    special: Sequence[int] = (),
) -> Clustering:
    r"""Heads in k clusters by their features: k-means (Guan 2020, sec. 4).

    .. math:: \min_{z, \mu} \sum_h \|x_h - \mu_{z_h}\|^2

    features  (head, feature)   finite; rows need not sum to 1
    special   columns whose sum numbers the clusters, the least first, as TYPES runs from dense to
              vertical; without them the first feature in which the centroids differ does

    Lloyd's rounds from `starts` k-means++ seeds until nothing changes. The paper cites Hartigan and
    Wong (1979), whose optimum is the stricter one, so heads are then moved one by one until no
    single move lowers the sum; `n_moved` says how many moves that took. scikit-learn's KMeans has
    no such moves, and on points without clear clusters it ends in other optima.

    Heads are sorted by their features first, so their order does not matter, and clusters have a
    fixed order, so neither does the start that found them.
    """
    points = checked(features)
    check_k(points, k)
    order = np.lexsort(points.T[::-1])
    found = _kmeans(points[order], k, starts, seed)
    rank = np.lexsort([*found.centroids.T[::-1], found.centroids[:, list(special)].sum(1)])
    labels = np.empty_like(found.labels)
    labels[order] = np.argsort(rank)[found.labels]
    return replace(found, labels=labels, centroids=found.centroids[rank])


def check_k(points: np.ndarray, k: int) -> None:
    """Refuse more clusters than there are different heads."""
    n_different = len(np.unique(points, axis=0))
    if not 1 <= k <= n_different:
        raise BadValue(
            f"k is {k} for {n_different} different heads; expected 1 to {n_different}. "
            "Use fewer clusters."
        )


def hartigan_gains(
    features: Float[np.ndarray, "head feature"], labels: Int[np.ndarray, " head"]
) -> Float[np.ndarray, "head cluster"]:
    r"""How much the inertia falls if one head moves to another cluster; 0 for its own.

    .. math:: g_{hb} = \frac{n_a}{n_a - 1} \|x_h - \mu_a\|^2 - \frac{n_b}{n_b + 1} \|x_h - \mu_b\|^2

    a is the cluster of head h. A result of Hartigan and Wong (1979) has no positive gain. A head
    alone in its cluster cannot lower the sum by leaving.
    """
    points, given = checked(features), np.asarray(labels)
    sizes = np.bincount(given)
    centroids = _means(points, given, len(sizes))
    apart = cdist(points, centroids, "sqeuclidean")
    own = sizes[given]
    leaving = apart[np.arange(len(given)), given] * own / np.maximum(own - 1, 1)
    gains = leaving[:, None] - apart * sizes / (sizes + 1)
    gains[np.arange(len(given)), given] = 0.0
    return np.asarray(gains)


@dataclass(frozen=True, eq=False)
class Naming:
    """Names of clusters and how clear each decision was.

    names    one for each cluster
    margins  one row per decision, in the order taken: `type` went to the cluster with the largest
             mass `by` special or near among those left, `mass`; `runner_up` had `next_mass`;
             `margin` is their difference and `z` the same in standard errors over heads (NaN
             beside a cluster of one head). The clusters were found in the same heads, so z
             describes and does not test.
    """

    names: tuple[str, ...]
    margins: pd.DataFrame


def naming(
    features: Float[np.ndarray, "head feature"],
    clusters: Clustering,
    special: Sequence[int],
    near: Sequence[int],
) -> Naming:
    """Names of four clusters by the mass of their centroids (the types of Guan 2020, sec. 4).

    features       (head, feature)   the heads that were clustered
    special, near  columns: [CLS], [SEP], comma, period; and self with the first window

    The most special mass is `vertical`; of the other three the most near mass is `diagonal`; of the
    last two the more special mass is `dense&vertical`, the other `dense`. The paper names its
    clusters by eye; the rule is ours. Two clusters that tie cannot be named.
    """
    if len(clusters.centroids) != len(TYPES):
        raise BadValue(f"{len(clusters.centroids)} clusters were found; expected 4 to be named.")
    columns = {"special": list(special), "near": list(near)}
    names = ["dense"] * len(TYPES)
    left, taken = list(range(len(TYPES))), []
    for name, by in _RULE:
        mass = clusters.centroids[:, columns[by]].sum(1)
        first, second = [int(cluster) for cluster in np.argsort(-mass) if cluster in left][:2]
        margin = float(mass[first] - mass[second])
        if margin <= 1e-12:
            raise BadValue(
                f"clusters {min(first, second) + 1} and {max(first, second) + 1} have the same "
                f"{by} mass {mass[first]:.4g}; expected one to be '{name}'."
            )
        each = checked(features)[:, columns[by]].sum(1)
        error = _error(each[clusters.labels == first], each[clusters.labels == second])
        z = margin / error if error else float("nan")
        taken.append((name, by, mass[first], second, mass[second], margin, z))
        names[first] = name
        left.remove(first)
    margins = pd.DataFrame(
        taken, columns=["type", "by", "mass", "runner_up", "next_mass", "margin", "z"]
    )
    margins["runner_up"] = [names[cluster] for cluster in margins["runner_up"]]
    return Naming(tuple(names), margins)


def named_types(
    features: Float[np.ndarray, "head feature"],
    clusters: Clustering,
    special: Sequence[int],
    near: Sequence[int],
) -> list[str]:
    """The type of each head: the name of its cluster, as `naming` gives it."""
    names = naming(features, clusters, special, near).names
    return [names[label] for label in clusters.labels]


def parts_of(names: Sequence[str]) -> dict[str, list[int]]:
    """Columns of special tokens, of what is near (self, the nearest window), and far.

    names  the parts of a distance feature, in the order of the columns
    """
    parts: dict[str, list[int]] = {"special": [], "near": [], "far": []}
    for place, name in enumerate(names):
        near, far = name in ("self", "window_01"), name.startswith("window_")
        parts["near" if near else "far" if far else "special"].append(place)
    return parts


def types_of(
    features: Float[np.ndarray, "head feature"], names: Sequence[str], *, seed: int = 0
) -> list[str]:
    """The type of each head by its distance feature: four clusters, each with its name."""
    parts = parts_of(names)
    clusters = fitted(features, len(TYPES), seed=seed, special=parts["special"])
    return named_types(features, clusters, parts["special"], parts["near"])


def plane(features: Float[np.ndarray, "head feature"], *, seed: int) -> Float[np.ndarray, "head 2"]:
    """Heads in a plane by t-SNE (Guan 2020, Fig. 2); the paper states no setting.

    Exact gradient, otherwise scikit-learn's defaults: Euclidean distances of the features as they
    are, start from two principal components, learning rate max(heads / 48, 50), exaggeration 12,
    1000 rounds, perplexity 30, or (heads - 1) / 3, the largest that t-SNE can serve. Heads are
    sorted first, so their order does not matter. Distances between far groups mean nothing in
    such a picture.
    """
    from sklearn.manifold import TSNE

    points = checked(features)
    n, n_features = points.shape
    if n < 4 or n_features < 2:
        raise BadValue(
            f"{n} heads with {n_features} features; expected at least 4 heads and 2 features."
        )
    order = np.lexsort(points.T[::-1])
    fit = TSNE(perplexity=min(PERPLEXITY, (n - 1) / 3), method="exact", random_state=seed)
    placed = np.empty((n, 2))
    placed[order] = fit.fit_transform(points[order])
    return placed


def on_principal_axes(points: np.ndarray) -> np.ndarray:
    """Points less their mean, turned so that the first axis is the long one."""
    centred = points - points.mean(0)
    return np.asarray(centred @ np.linalg.svd(centred, full_matrices=False)[2].T)


def checked(features: np.ndarray) -> Float[np.ndarray, "head feature"]:
    """The features in double precision; says what is wrong otherwise."""
    points = np.asarray(features, dtype=np.float64)
    if points.ndim != 2 or 0 in points.shape:
        raise BadValue(
            f"features have shape {points.shape}; expected (head, feature), neither empty."
        )
    if not np.isfinite(points).all():
        head, feature = np.argwhere(~np.isfinite(points))[0]
        raise BadValue(
            f"feature {feature} of head {head} (both from 0) is {points[head, feature]}; "
            "expected a finite number. Leave out heads or inputs without one."
        )
    return points


def _kmeans(points: np.ndarray, k: int, starts: int, seed: int) -> Clustering:
    """The best of Lloyd's results from several seeds, each improved by Hartigan's moves."""
    centred = points - points.mean(0)
    labels = _lloyd(centred, _seeds(centred, k, starts, np.random.default_rng(seed)))
    sums = np.array([_inertia(centred, each, _means(centred, each, k)) for each in labels])
    # Many starts end alike; one of each is enough.
    _, different = np.unique(np.round(sums / max(sums.max(), 1e-300), 12), return_index=True)
    results = []
    for start in different:
        improved, n_moved = _improved(centred, labels[start])
        centroids = _means(points, improved, k)
        inertia = _inertia(points, improved, centroids)
        results.append(Clustering(improved, centroids, inertia, n_moved=n_moved))
    return min(results, key=lambda result: result.inertia)


def _improved(points: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Labels after the best single moves, one at a time until none helps, and how many."""
    labels, n_moved, slack = labels.copy(), 0, 1e-12 * float((points**2).sum())
    while True:
        gains = hartigan_gains(points, labels)
        head, cluster = np.unravel_index(gains.argmax(), gains.shape)
        # A gain of the size of a rounding error could move a head to and fro for ever.
        if gains[head, cluster] <= slack:
            return labels, n_moved
        labels[head], n_moved = cluster, n_moved + 1


def _seeds(points: np.ndarray, k: int, starts: int, generator: np.random.Generator) -> np.ndarray:
    """k-means++: (start, cluster, feature), each next seed drawn by its squared distance."""
    apart = cdist(points, points, "sqeuclidean")
    chosen = generator.integers(len(points), size=(starts, 1))
    nearest = apart[chosen[:, 0]]
    while chosen.shape[1] < k:
        sums = nearest.cumsum(1)
        limit = generator.random((starts, 1)) * sums[:, -1:]
        drawn = np.minimum((sums <= limit).sum(1), len(points) - 1)
        chosen = np.column_stack([chosen, drawn])
        nearest = np.minimum(nearest, apart[drawn])
    return points[chosen]


def _lloyd(points: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Labels (start, head) after rounds of assignment and averaging, all starts at once."""
    k = centroids.shape[1]
    length = (points**2).sum(1)
    labels = np.full((len(centroids), len(points)), -1)
    for _ in range(ROUNDS):
        apart = (centroids**2).sum(-1)[..., None] - 2 * centroids @ points.T
        fresh = apart.argmin(1)
        if (fresh == labels).all():
            break
        labels = fresh
        members = (labels[:, None] == np.arange(k)[:, None]).astype(np.float64)
        sizes = members.sum(-1)
        centroids = members @ points / np.maximum(sizes, 1)[..., None]
        for start, cluster in np.argwhere(sizes == 0):
            # An empty cluster starts again at the head that fits its own cluster worst.
            centroids[start, cluster] = points[(apart[start].min(0) + length).argmax()]
    return labels


def _means(points: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    members = (labels == np.arange(k)[:, None]).astype(np.float64)
    return np.asarray(members @ points / np.maximum(members.sum(1), 1)[:, None])


def _inertia(points: np.ndarray, labels: np.ndarray, centroids: np.ndarray) -> float:
    return float(((points - centroids[labels]) ** 2).sum())


def _error(one: np.ndarray, other: np.ndarray) -> float:
    """Standard error of the difference of two means; NaN when one has a single value."""
    if min(len(one), len(other)) < 2:
        return float("nan")
    return float(np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)))
