"""How many types of heads there are, how stable they are, and which heads change type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from attnlib.errors import BadValue, check_choice
from experiments.shared.headtypes import METHODS, STARTS, TYPES, checked, fitted, named_types

SPLITS = ("inputs", "heads")
SOURCES = ("own", "before")


# How many clusters


def silhouettes(
    features: Float[np.ndarray, "head feature"], labels: Int[np.ndarray, " head"]
) -> Float[np.ndarray, " head"]:
    r"""How much nearer each head is to its own cluster than to the next (Rousseeuw 1987).

    .. math:: s_h = \frac{b_h - a_h}{\max(a_h, b_h)}

    a is the mean distance from the other heads of its cluster, b the smallest mean distance from
    the heads of another. A head alone in its cluster has 0 by that definition; one cluster only
    gives NaN, and so does a head at distance 0 from both.
    """
    points = checked(features)
    codes, given = np.unique(np.asarray(labels), return_inverse=True)
    if len(given) != len(points):
        raise BadValue(f"{len(given)} labels for {len(points)} heads; expected one for each.")
    if len(codes) < 2:
        return np.full(len(points), np.nan)
    members = given[:, None] == np.arange(len(codes))
    sums, sizes = cdist(points, points) @ members, members.sum(0)
    own = np.arange(len(points)), given
    within = sums[own] / np.maximum(sizes[given] - 1, 1)
    means = sums / sizes
    means[own] = np.inf
    between = means.min(1)
    with np.errstate(invalid="ignore"):
        value = (between - within) / np.maximum(within, between)
    return np.where(sizes[given] == 1, 0.0, value)


def cluster_counts(
    features: Float[np.ndarray, "head feature"],
    ks: Iterable[int] = range(1, 9),
    *,
    seed: int,
    draws: int = 50,
    starts: int = STARTS,
) -> pd.DataFrame:
    r"""Criteria for the number of clusters; the paper took four from a t-SNE picture by eye.

    One row per k: `inertia` and `silhouette` (mean over heads, NaN for one cluster) of k-means;
    `bic` of the mixture; `agreement`, the adjusted Rand index of k-means and mixture (NaN for one
    cluster); `rand_k4`, that of these clusters and the four (NaN without four different heads);
    and the gap statistic of Tibshirani et al. (2001) with its standard error,

    .. math:: \mathrm{gap}_k = \frac{1}{B} \sum_b \log W_{kb}^* - \log W_k, \quad
              s_k = \mathrm{sd}_b(\log W_{kb}^*) \sqrt{1 + 1/B}

    W is the inertia, W* that of `draws` sets of points drawn evenly from the box around the heads
    along their principal axes. k-means has the same number of starts on both. The gap is NaN
    where each head is its own cluster.
    """
    from sklearn.metrics import adjusted_rand_score

    points, wanted = checked(features), list(ks)
    if draws < 1 or not wanted:
        raise BadValue(f"{len(wanted)} values of k and {draws} draws; expected at least 1 of each.")
    enough = len(np.unique(points, axis=0)) >= 4
    four = fitted(points, 4, seed=seed, starts=starts).labels if enough else None
    boxes = _boxes(points, draws, np.random.default_rng(seed))
    rows = []
    for k in wanted:
        plain = fitted(points, k, seed=seed, starts=starts)
        mixture = fitted(points, k, seed=seed, method="mixture", starts=starts)
        inertias = np.array([fitted(box, k, seed=seed, starts=starts).inertia for box in boxes])
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(inertias)
            gap = float(logs.mean() - np.log(plain.inertia))
            error = float(logs.std() * np.sqrt(1 + 1 / draws))
        defined = plain.inertia > 0 and inertias.min() > 0
        agreement = adjusted_rand_score(plain.labels, mixture.labels) if k > 1 else np.nan
        rows.append(
            {
                "k": k,
                "silhouette": float(silhouettes(points, plain.labels).mean()),
                "bic": mixture.bic,
                "inertia": plain.inertia,
                "gap": gap if defined else np.nan,
                "gap_error": error if defined else np.nan,
                "agreement": agreement,
                "rand_k4": np.nan if four is None else adjusted_rand_score(plain.labels, four),
            }
        )
    return pd.DataFrame(rows)


def best_k(counts: pd.DataFrame) -> dict[str, int | None]:
    """The number of clusters each criterion prefers; None where none can be told.

    silhouette  the largest
    bic         the smallest
    gap         the first k with gap(k) >= gap(k + 1) - s(k + 1), if k + 1 is in the table
    """
    table = counts.set_index("k").sort_index()
    chosen: dict[str, int | None] = {"silhouette": None, "bic": None, "gap": None}
    if table["silhouette"].notna().any():
        chosen["silhouette"] = int(table["silhouette"].idxmax())
    if table["bic"].notna().any():
        chosen["bic"] = int(table["bic"].idxmin())
    least = (table["gap"] - table["gap_error"]).rename(lambda k: k - 1)
    enough = table["gap"] >= least.reindex(table.index)
    if enough.any():
        chosen["gap"] = int(enough.idxmax())
    return chosen


# One cloud: what would be seen without clusters


def gaussian_twin(
    features: Float[np.ndarray, "head feature"], *, seed: int
) -> Float[np.ndarray, "head feature"]:
    """As many points from one Gaussian with the mean and covariance of the heads.

    Each point is the mean plus a random combination of all heads' deviations, so nothing is
    inverted: a singular covariance does no harm and the parts sum to what they did. Parts may be
    negative, which no attention is; `simplex_twin` keeps them positive.
    """
    points = checked(features)
    if len(points) < 2:
        raise BadValue("1 head; expected at least 2, a single one has no spread.")
    weights = np.random.default_rng(seed).normal(size=(len(points), len(points)))
    mean = points.mean(0)
    return np.asarray(mean + weights @ (points - mean) / np.sqrt(len(points) - 1))


def simplex_twin(
    features: Float[np.ndarray, "head feature"], *, seed: int
) -> Float[np.ndarray, "head feature"]:
    """As many points from one logistic normal: a Gaussian of the logs, made to sum to 1 again.

    Rows must be shares that sum to 1. A share of 0 counts as half the smallest of its column; a
    column of zeros stays 0. Keeps the mean and covariance of the log ratios, not of the shares.
    """
    points = checked(features)
    if points.min() < 0 or np.abs(points.sum(1) - 1).max() > 1e-4:
        raise BadValue(
            "the features of a head are not shares that sum to 1; expected that of a draw on the "
            "simplex. Use cloud='gaussian'."
        )
    used = points.max(0) > 0
    shares = points[:, used]
    least = np.where(shares > 0, shares, np.inf).min(0)
    logs = np.log(np.where(shares > 0, shares, least / 2))
    drawn = np.exp(gaussian_twin(logs - logs.mean(1, keepdims=True), seed=seed))
    twin = np.zeros_like(points)
    twin[:, used] = drawn / drawn.sum(1, keepdims=True)
    return twin


CLOUDS: Mapping[str, Callable[..., np.ndarray]] = MappingProxyType(
    {"gaussian": gaussian_twin, "simplex": simplex_twin}
)


@dataclass(frozen=True)
class AgainstCloud:
    """The mean silhouette of the heads beside that of draws from one cloud.

    low, median, high  2.5, 50 and 97.5 percentiles of the draws
    p_value            one-sided, (1 + draws at least as large) / (1 + draws)
    """

    value: float
    low: float
    median: float
    high: float
    p_value: float
    n_draws: int


def against_one_cloud(
    features: Float[np.ndarray, "head feature"],
    k: int = 4,
    *,
    seed: int,
    cloud: str = "simplex",
    draws: int = 200,
    starts: int = STARTS,
) -> AgainstCloud:
    """Are k clusters of the heads clearer than k parts of a cloud that has no clusters?

    k-means cuts anything into k parts, and parts of one cloud have a silhouette too. Each draw
    has as many points as there are heads and is cut anew. A small p says the heads are not one
    cloud of that family; it does not say that there are k of them. The paper has no such test.
    """
    points = checked(features)
    check_choice("cloud", cloud, CLOUDS)
    if k < 2 or draws < 1:
        raise BadValue(f"k is {k} and draws is {draws}; expected at least 2 clusters and 1 draw.")

    def clearness(these: np.ndarray) -> float:
        return float(silhouettes(these, fitted(these, k, seed=seed, starts=starts).labels).mean())

    seeds = np.random.default_rng(seed).integers(2**31, size=draws)
    null = np.array([clearness(CLOUDS[cloud](points, seed=int(each))) for each in seeds])
    value = clearness(points)
    low, median, high = (float(end) for end in np.percentile(null, [2.5, 50, 97.5]))
    p_value = (1 + int((null >= value).sum())) / (1 + draws)
    return AgainstCloud(value, low, median, high, p_value, draws)


# Stability


@dataclass(frozen=True, eq=False)
class Stability:
    """How often heads keep their cluster when the clusters are fitted to a part of the data.

    stability  share of heads with one label in all fits (Guan 2020, Table 1)
    agreement  (head,)      share of fits with the head's most frequent label
    labels     (fit, head)  matched to the reference
    reference  (head,)      labels of the fit on all data
    """

    stability: float
    agreement: Float[np.ndarray, " head"]
    labels: Int[np.ndarray, "fit head"]
    reference: Int[np.ndarray, " head"]


def matched(
    labels: Int[np.ndarray, " head"], reference: Int[np.ndarray, " head"], k: int
) -> Int[np.ndarray, " head"]:
    """The labels renumbered so that as many heads as possible have their label of the reference.

    The Hungarian assignment on the k x k table of how many heads have which pair of labels.
    """
    table = np.zeros((k, k), dtype=np.int64)
    np.add.at(table, (np.asarray(labels), np.asarray(reference)), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    renumbered = np.empty(k, dtype=np.int64)
    renumbered[rows] = columns
    return np.asarray(renumbered[labels])


def stability(
    per_input: Float[np.ndarray, "input head feature"],
    k: int,
    *,
    seed: int,
    fits: int = 10,
    share: float = 0.5,
    split: str = "inputs",
    method: str = "kmeans",
    starts: int = STARTS,
) -> Stability:
    """Heads that keep their cluster in fits on random halves (Guan 2020, sec. 4, Table 1).

    per_input  (input, head, feature)   features of each input; all are averaged for the heads
    split      what each fit sees half of: "inputs", the mean features of all heads over a random
               half of the inputs; "heads", the mean features of a random half of the heads
    share      the half; at least one input or head

    Every fit then predicts the cluster of every head from its features over all inputs. The paper
    says only "50% training data", so both readings are offered. Labels are matched to a fit on
    all data; how the authors match is unstated. Their number is no distance between clusterings
    as in von Luxburg (2010): it falls with the number of fits, so compare equal numbers.
    """
    center, deviations = _parted(per_input, fits, share, split, method)
    generator = np.random.default_rng(seed)
    seen = _seen(center, deviations, fits, share, split, generator)
    return _stability(center, seen, k, method, starts, generator)


@dataclass(frozen=True, eq=False)
class Spread:
    """Stabilities of repeated runs: their mean, and the 2.5 and 97.5 percentiles.

    The interval tells how much the number depends on the random halves, the starts, and the draw
    of the cloud; it is no interval for other inputs or other heads.
    """

    values: Float[np.ndarray, " repeat"]
    mean: float
    low: float
    high: float


def stabilities(
    per_input: Float[np.ndarray, "input head feature"],
    k: int,
    *,
    seed: int,
    repeats: int = 20,
    cloud: str | None = None,
    fits: int = 10,
    share: float = 0.5,
    split: str = "inputs",
    method: str = "kmeans",
    starts: int = STARTS,
) -> Spread:
    """The stability again and again with other halves, of the heads or of one cloud.

    cloud  None: the heads themselves. "gaussian" or "simplex": each repeat puts the heads' means
           at the points of one cloud without clusters and keeps how every input deviates from
           them. That is the chance level: what the number is worth when there are no types.
    """
    center, deviations = _parted(per_input, fits, share, split, method)
    if cloud is not None:
        check_choice("cloud", cloud, CLOUDS)
    if repeats < 1:
        raise BadValue(f"repeats is {repeats}; expected at least 1.")
    generator, values = np.random.default_rng(seed), np.empty(repeats)
    for repeat in range(repeats):
        heads = center
        if cloud is not None:
            heads = CLOUDS[cloud](center, seed=int(generator.integers(2**31)))
        seen = _seen(heads, deviations, fits, share, split, generator)
        values[repeat] = _stability(heads, seen, k, method, starts, generator).stability
    low, high = np.percentile(values, [2.5, 97.5])
    return Spread(values, float(values.mean()), float(low), float(high))


# Changes of type


def types_before_and_after(
    before: Float[np.ndarray, "head feature"],
    after: Float[np.ndarray, "head feature"],
    special: Sequence[int],
    near: Sequence[int],
    *,
    seed: int,
    k: int = 4,
    source: str = "own",
    method: str = "kmeans",
    starts: int = STARTS,
) -> tuple[list[str], list[str]]:
    """Types of the same heads in two models, as before and after fine-tuning (Guan 2020, Fig. 4).

    source  of the types after: "own", the model's own clusters, named by the same rule; "before",
            the nearest cluster of the model before. The paper clusters each model by itself, as it
            seems; then a head may change type because the border moved and not the head.
    """
    check_choice("source", source, SOURCES)
    first, second = checked(before), checked(after)
    if first.shape != second.shape:
        raise BadValue(
            f"features before have shape {first.shape} and after {second.shape}; expected the "
            "same heads and features."
        )
    old = fitted(first, k, seed=seed, method=method, starts=starts, special=special)
    types = named_types(first, old, special, near)
    if source == "own":
        new = fitted(second, k, seed=seed, method=method, starts=starts, special=special)
        return types, named_types(second, new, special, near)
    names = dict(zip(old.labels.tolist(), types, strict=True))
    return types, [names[label] for label in old.predict(second).tolist()]


def type_changes(
    before: Sequence[str], after: Sequence[str], layers: Sequence[int] | np.ndarray
) -> pd.DataFrame:
    """How many heads of each layer have another type after than before, and from which to which.

    before, after, layers  (head,)   the layer of a head counts from 1

    One row per layer: `layer`, `n` heads, `changed`, `share`, and a count for every change that
    occurs, under a name like `dense -> vertical`. Even one model fitted twice may change some:
    compare with its stability.
    """
    if not len(before) == len(after) == len(layers) or not len(before):
        raise BadValue(
            f"{len(before)} types before, {len(after)} after and {len(layers)} layers; expected "
            "one of each for every head."
        )
    table = pd.DataFrame({"layer": np.asarray(layers), "before": before, "after": after})
    table["changed"] = table["before"] != table["after"]
    rows = table.groupby("layer")["changed"].agg(n="size", changed="sum")
    rows["share"] = rows["changed"] / rows["n"]
    known = [*TYPES, *sorted({*before, *after} - set(TYPES))]
    for one in known:
        for other in known:
            moved = (table["before"] == one) & (table["after"] == other) & table["changed"]
            if moved.any():
                rows[f"{one} -> {other}"] = moved.groupby(table["layer"]).sum()
    return rows.reset_index()


def _parted(
    per_input: np.ndarray, fits: int, share: float, split: str, method: str
) -> tuple[np.ndarray, np.ndarray]:
    """The heads' means (head, feature), and how each input deviates (input, head, feature)."""
    data = np.asarray(per_input, dtype=np.float64)
    if data.ndim != 3:
        raise BadValue(f"features have shape {data.shape}; expected (input, head, feature).")
    check_choice("split", split, SPLITS)
    check_choice("method", method, METHODS)
    least = 2 if split == "inputs" else 1
    if len(data) < least:
        raise BadValue(f"{len(data)} inputs; expected at least {least} for split='{split}'.")
    if fits < 2 or not 0 < share <= 1:
        raise BadValue(f"fits is {fits} and share {share}; expected 2 or more, and 0 < share <= 1.")
    center = checked(data.mean(0))
    return center, data - center


def _seen(
    heads: np.ndarray,
    deviations: np.ndarray,
    fits: int,
    share: float,
    split: str,
    generator: np.random.Generator,
) -> list[np.ndarray]:
    """What each fit sees: all heads over some inputs, or some heads over all inputs."""
    n = len(deviations) if split == "inputs" else len(heads)
    size = max(1, round(share * n))
    chosen = [generator.permutation(n)[:size] for _ in range(fits)]
    if split == "heads":
        return [heads[these] for these in chosen]
    # One matrix product for the means of all halves.
    weights = np.zeros((fits, n))
    for row, these in zip(weights, chosen, strict=True):
        row[these] = 1 / size
    means = (weights @ deviations.reshape(n, -1)).reshape(fits, *heads.shape)
    return [heads + mean for mean in means]


def _stability(
    heads: np.ndarray,
    seen: Sequence[np.ndarray],
    k: int,
    method: str,
    starts: int,
    generator: np.random.Generator,
) -> Stability:
    """Fit on what is seen, predict all heads, match to the fit on all heads, count."""
    seeds = generator.integers(2**31, size=len(seen) + 1)
    reference = fitted(heads, k, seed=int(seeds[0]), method=method, starts=starts).labels
    labels = np.empty((len(seen), len(heads)), dtype=np.int64)
    for fit, (part, seed) in enumerate(zip(seen, seeds[1:], strict=True)):
        found = fitted(part, k, seed=int(seed), method=method, starts=starts)
        labels[fit] = matched(found.predict(heads), reference, k)
    counts = (labels[..., None] == np.arange(k)).sum(0)
    agreement = counts.max(1) / len(seen)
    alike = (labels == labels[0]).all(0)
    return Stability(float(alike.mean()), agreement, labels, reference)


def _boxes(points: np.ndarray, draws: int, generator: np.random.Generator) -> np.ndarray:
    """(draw, head, axis): even draws from the box of the heads along their principal axes.

    Left on those axes: a turn changes no distance, hence no inertia.
    """
    centred = points - points.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ axes.T
    return generator.uniform(turned.min(0), turned.max(0), (draws, *turned.shape))
