"""How many clusters of heads there are, and how stable they are (Sec. 4, Fig. 2, Table 1).

k-means cuts anything into four, and random halves of a cloud without clusters agree well, too. So
every number here has a counterpart: the same for points of one cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, silhouette_samples
from sklearn.mixture import GaussianMixture

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue, check_choice
from attnlib.measuring.bootstrap import percentile_interval
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.features import N_TYPES, features_of
from experiments.shared.head_types import STARTS, check_k, checked, fitted

GAP_DRAWS = 50
FITS = 10
SPLITS = ("inputs", "heads")
REGULARISATION = 1e-3
"""Added to every variance of a mixture, as a share of the mean variance of the features."""


# --- how many clusters ----------------------------------------------------------------------------


@experiment(version=1, trains=True)
def cluster_number(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    draws: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Found:
    """How many clusters there are by three criteria, and whether there are any.

    draws     random clouds without clusters, for the gap statistic and for the silhouette
    settings  task, recipe, max_length: see `features_of`
    table     that of `cluster_counts` for 1 to 8 clusters, with the silhouette of points of one
              cloud beside that of the heads (null_low, null_median, null_high)
    """
    found = features_of(*corpora, encoder=encoder, progress=progress, **settings)
    counts = cluster_counts(found.mean, seed=seed, draws=min(draws, GAP_DRAWS)).set_index("k")
    clouds = {
        k: against_one_cloud(found.mean, k, seed=seed, draws=draws) for k in counts.index if k > 1
    }
    for name in ("low", "median", "high"):
        counts[f"null_{name}"] = pd.Series({k: getattr(one, name) for k, one in clouds.items()})
    best = best_k(counts.reset_index())
    at_four = counts.loc[N_TYPES]
    numbers = {
        "clusters.one_cloud_p": clouds[N_TYPES].p_value,
        "clusters.mixture_agreement": float(at_four["agreement"]),
        "clusters.silhouette_gap_at_4": float(counts["silhouette"].max() - at_four["silhouette"]),
        **{f"clusters.best_{name}": float("nan") if k is None else k for name, k in best.items()},
    }
    facts = {
        "inputs": len(found.rows),
        "best": best,
        "silhouette_at_4": float(at_four["silhouette"]),
    }
    findings = {name: Finding(float(value)) for name, value in numbers.items()}
    return Found(counts.reset_index(), findings, facts)


def silhouettes(
    features: Float[np.ndarray, "head feature"], labels: Int[np.ndarray, " head"]
) -> Float[np.ndarray, " head"]:
    """How much nearer each head is to its own cluster than to the next (Rousseeuw 1987).

    A head alone in its cluster has 0 by definition; one cluster only gives NaN.
    """
    points, given = checked(features), np.asarray(labels)
    if len(given) != len(points):
        raise BadValue(f"{len(given)} labels for {len(points)} heads; expected one for each.")
    n_clusters = len(np.unique(given))
    if n_clusters == 1:
        return np.full(len(points), np.nan)
    if n_clusters == len(points):
        return np.zeros(len(points))
    return np.asarray(silhouette_samples(points, given))


def mixture(
    features: Float[np.ndarray, "head feature"], k: int, *, seed: int, starts: int = STARTS
) -> tuple[GaussianMixture, Int[np.ndarray, " head"]]:
    """A mixture of k Gaussians, and the most probable component of each head.

    With diagonal covariances, since 144 heads cannot fill full ones of 21 features that sum to 1,
    and REGULARISATION; the paper states no setting. Heads are sorted by their features first, so
    their order does not matter.
    """
    points = checked(features)
    check_k(points, k)
    spread = float(points.var(0).mean())
    if spread == 0:
        raise BadValue("all heads have the same features; a mixture needs heads that differ.")
    model = GaussianMixture(
        k,
        covariance_type="diag",
        reg_covar=REGULARISATION * spread,
        n_init=starts,
        max_iter=1000,
        random_state=seed,
    ).fit(points[np.lexsort(points.T[::-1])])
    return model, model.predict(points)


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
    points, wanted = checked(features), list(ks)
    if draws < 1 or not wanted:
        raise BadValue(f"{len(wanted)} values of k and {draws} draws; expected at least 1 of each.")
    enough = len(np.unique(points, axis=0)) >= 4
    four = fitted(points, 4, seed=seed, starts=starts).labels if enough else None
    boxes = _boxes(points, draws, np.random.default_rng(seed))
    rows = []
    for k in wanted:
        plain = fitted(points, k, seed=seed, starts=starts)
        mixed, components = mixture(points, k, seed=seed, starts=starts)
        inertias = np.array([fitted(box, k, seed=seed, starts=starts).inertia for box in boxes])
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(inertias)
            gap = float(logs.mean() - np.log(plain.inertia))
            error = float(logs.std() * np.sqrt(1 + 1 / draws))
        defined = plain.inertia > 0 and inertias.min() > 0
        agreement = adjusted_rand_score(plain.labels, components) if k > 1 else np.nan
        rows.append(
            {
                "k": k,
                "silhouette": float(silhouettes(points, plain.labels).mean()),
                "bic": mixed.bic(points),
                "inertia": plain.inertia,
                "gap": gap if defined else np.nan,
                "gap_se": error if defined else np.nan,
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
    least = (table["gap"] - table["gap_se"]).rename(lambda k: k - 1)
    enough = table["gap"] >= least.reindex(table.index)
    if enough.any():
        chosen["gap"] = int(enough.idxmax())
    return chosen


def _boxes(points: np.ndarray, draws: int, generator: np.random.Generator) -> np.ndarray:
    """(draw, head, axis): even draws from the box of the heads along their principal axes.

    Left on those axes: a turn changes no distance, hence no inertia.
    """
    centred = points - points.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ axes.T
    return generator.uniform(turned.min(0), turned.max(0), (draws, *turned.shape))


# --- one cloud: what would be seen without clusters -----------------------------------------------


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


# --- stability ------------------------------------------------------------------------------------


@experiment(version=1, trains=True)
def type_stability(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    ks: Sequence[int] = (3, 4, 5),
    repeats: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Found:
    """Table 1: heads that keep their cluster in ten fits on random halves.

    settings  task, recipe, max_length: see `features_of`
    table     model, k, split ("inputs", "heads"), stability, low, high (over repeats with other
              halves), first (of these), null, null_low, null_high (the same for points of one
              cloud), n_fits
    """
    found = features_of(*corpora, encoder=encoder, progress=progress, **settings)
    rows, numbers = [], {}
    for k in ks:
        for split in SPLITS:
            how: Any = {"seed": seed, "split": split, "repeats": repeats}
            own = stabilities(found.rows, k, **how)
            chance = stabilities(found.rows, k, cloud="simplex", **how)
            row = {"model": model, "k": k, "split": split, "stability": own.mean}
            row |= {"low": own.low, "high": own.high, "first": float(own.values[0])}
            row |= {"null": chance.mean, "null_low": chance.low, "null_high": chance.high}
            rows.append({**row, "n_fits": FITS})
            if split == "inputs":
                at_four = k == N_TYPES  # in percent, as in Table 1
                ends = (100 * e if at_four else e for e in (own.mean, own.low, own.high))
                numbers[f"stability.{model}" + ("" if at_four else f".k{k}")] = Finding(*ends)
    return Found(pd.DataFrame(rows), numbers, {"inputs": len(found.rows), "model": model})


@dataclass(frozen=True, eq=False)
class Stability:
    """How often heads keep their cluster when the clusters are fitted to a part of the data.

    stability  share of heads with one label in all fits (Guan 2020, Table 1)
    labels     (fit, head)  matched to the reference
    reference  (head,)      labels of the fit on all data
    """

    stability: float
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
    seed: int | np.random.Generator,
    fits: int = FITS,
    share: float = 0.5,
    split: str = "inputs",
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
    data = _checked_inputs(per_input, fits, share, split)
    generator = np.random.default_rng(seed)
    heads = checked(data.mean(0))
    n = len(data) if split == "inputs" else len(heads)
    size = max(1, round(share * n))
    chosen = [generator.permutation(n)[:size] for _ in range(fits)]
    if split == "heads":
        seen = [heads[these] for these in chosen]
    else:
        weights = np.zeros((fits, n))  # one matrix product for the means of all halves
        for row, these in zip(weights, chosen, strict=True):
            row[these] = 1 / size
        means = (weights @ (data - heads).reshape(n, -1)).reshape(fits, *heads.shape)
        seen = [heads + mean for mean in means]
    seeds = generator.integers(2**31, size=fits + 1)
    reference = fitted(heads, k, seed=int(seeds[0]), starts=starts).labels
    labels = np.empty((fits, len(heads)), dtype=np.int64)
    for fit, (part, own) in enumerate(zip(seen, seeds[1:], strict=True)):
        found = fitted(part, k, seed=int(own), starts=starts)
        labels[fit] = matched(found.predict(heads), reference, k)
    alike = (labels == labels[0]).all(0)
    return Stability(float(alike.mean()), labels, reference)


def _checked_inputs(per_input: np.ndarray, fits: int, share: float, split: str) -> np.ndarray:
    """The features in double precision; says what is wrong otherwise."""
    data = np.asarray(per_input, dtype=np.float64)
    if data.ndim != 3:
        raise BadValue(f"features have shape {data.shape}; expected (input, head, feature).")
    check_choice("split", split, SPLITS)
    least = 2 if split == "inputs" else 1
    if len(data) < least:
        raise BadValue(f"{len(data)} inputs; expected at least {least} for split='{split}'.")
    if fits < 2 or not 0 < share <= 1:
        raise BadValue(f"fits is {fits} and share {share}; expected 2 or more, and 0 < share <= 1.")
    return data


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
    **how: Any,
) -> Spread:
    """The stability again and again with other halves, of the heads or of one cloud.

    cloud  None: the heads themselves. "gaussian" or "simplex": each repeat puts the heads' means
           at the points of one cloud without clusters and keeps how every input deviates from
           them. That is the chance level: what the number is worth when there are no types.
    how    fits, share, split and starts of `stability`
    """
    if cloud is not None:
        check_choice("cloud", cloud, CLOUDS)
    if repeats < 1:
        raise BadValue(f"repeats is {repeats}; expected at least 1.")
    data = np.asarray(per_input, dtype=np.float64)
    generator, values = np.random.default_rng(seed), np.empty(repeats)
    for repeat in range(repeats):
        points = data
        if cloud is not None:
            center = data.mean(0)
            twin = CLOUDS[cloud](center, seed=int(generator.integers(2**31)))
            points = twin + (data - center)
        values[repeat] = stability(points, k, seed=generator, **how).stability
    low, high = map(float, percentile_interval(values))
    return Spread(values, float(values.mean()), low, high)
