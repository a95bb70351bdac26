"""How many clusters of heads there are, and how stable they are (Sec. 4, Fig. 2, Table 1).

k-means cuts anything into four, and random halves of a cloud without clusters agree well, too. So
every number here has a counterpart: the same for points of one cloud.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, confusion_matrix
from sklearn.mixture import GaussianMixture

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue, check_choice
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.guan2020.models import QUESTIONS
from experiments.guan2020.types import N_TYPES, Labels, Points, features_of, silhouettes
from experiments.shared.head_types import STARTS, check_k, checked, fitted, plane

KS, STABLE_KS = range(1, 9), (3, 4, 5)
"""Numbers of clusters that are compared, and whose stability is."""
GAP_DRAWS = 50
FITS = 10
SPLITS = ("inputs", "heads")
REGULARISATION = 1e-3
"""Added to every variance of a mixture, as a share of the mean variance of the features."""


# --- how many clusters ----------------------------------------------------------------------------


@experiment(version=2, trains=True)
def cluster_number(
    *corpora: Corpus, encoder: Encoder, draws: int = GAP_DRAWS, seed: int = 0, **plan: Any
) -> Found:
    """How many clusters there are by three criteria.

    draws  even boxes for the gap statistic
    plan   model, task, recipe, max_length: see `features_of`
    table  that of `cluster_counts` for 1 to 8 clusters
    """
    found = features_of(*corpora, encoder=encoder, **plan)
    counts = cluster_counts(found.mean, seed=seed, draws=draws)
    return Found(counts, facts={"inputs": len(found.rows), "best": best_k(counts)})


@experiment(version=1, trains=True)
def cluster_draws(
    *corpora: Corpus, encoder: Encoder, draws: int, seed: int = 0, **plan: Any
) -> Found:
    """How clear 2 to 8 clusters are on all inputs (draw 0), and on articles drawn again.

    plan   model, task, recipe, max_length: see `features_of`
    table  draw, k; the mean silhouette of k-means on the features (`silhouette`), in a t-SNE
           picture made anew (`plane`), and on as many points of one cloud without clusters, new in
           every draw (`cloud`); agreement (adjusted Rand index of k-means and mixture, for four)
    """
    found = features_of(*corpora, encoder=encoder, **plan)
    generator = np.random.default_rng(seed)
    rows = []
    for number, (_, mean) in enumerate(found.drawn(draws, seed)):
        clouds = {
            "silhouette": mean,
            "plane": plane(mean, seed=seed),
            "cloud": simplex_twin(mean, seed=int(generator.integers(2**31))),
        }
        for k in KS[1:]:
            row: dict[str, float] = {"draw": number, "k": k}
            row |= {name: clearness(points, k, seed=seed) for name, points in clouds.items()}
            if k == N_TYPES:
                labels = fitted(mean, k, seed=seed).labels, mixture(mean, k, seed=seed)[1]
                row["agreement"] = adjusted_rand_score(*labels)
            rows.append(row)
    return Found(pd.DataFrame(rows), facts={"inputs": len(found.rows)})


def clearness(points: Points, k: int, *, seed: int, starts: int = STARTS) -> float:
    """The mean silhouette of k clusters of these points."""
    return float(silhouettes(points, fitted(points, k, seed=seed, starts=starts).labels).mean())


def mixture(
    features: Points, k: int, *, seed: int, starts: int = STARTS
) -> tuple[GaussianMixture, Labels]:
    """A mixture of k Gaussians, and the most probable component of each head.

    With diagonal covariances, since 144 heads cannot fill full ones of 21 features that sum to 1,
    and REGULARISATION; the paper states no setting. Heads are sorted by their features first, so
    their order does not matter.
    """
    points = checked(features)
    check_k(points, k)
    least = REGULARISATION * float(points.var(0).mean())
    if least == 0:
        raise BadValue("all heads have the same features; a mixture needs heads that differ.")
    how: Any = {"covariance_type": "diag", "reg_covar": least, "n_init": starts, "max_iter": 1000}
    model = GaussianMixture(k, random_state=seed, **how).fit(points[np.lexsort(points.T[::-1])])
    return model, model.predict(points)


def cluster_counts(
    features: Points, ks: Iterable[int] = KS, *, seed: int, draws: int, starts: int = STARTS
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
    points = checked(features)
    if draws < 1:
        raise BadValue(f"draws is {draws}; expected at least 1.")
    how: Any = {"seed": seed, "starts": starts}
    enough = len(np.unique(points, axis=0)) >= 4
    four = fitted(points, 4, **how).labels if enough else None
    boxes = _boxes(points, draws, np.random.default_rng(seed))
    rows = []
    for k in ks:
        plain = fitted(points, k, **how)
        mixed, components = mixture(points, k, **how)
        inertias = np.array([plain.inertia, *(fitted(box, k, **how).inertia for box in boxes)])
        own, *logs = np.log(np.where(inertias.min() > 0, inertias, np.nan))
        rows.append(
            {
                "k": k,
                "silhouette": float(silhouettes(points, plain.labels).mean()),
                "bic": mixed.bic(points),
                "inertia": plain.inertia,
                "gap": float(np.mean(logs) - own),
                "gap_se": float(np.std(logs) * np.sqrt(1 + 1 / draws)),
                "agreement": adjusted_rand_score(plain.labels, components) if k > 1 else np.nan,
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
    least = (table["gap"] - table["gap_se"]).rename(lambda k: k - 1)
    enough = table["gap"] >= least.reindex(table.index)
    first = {
        "silhouette": table["silhouette"].dropna().nlargest(1),
        "bic": table["bic"].dropna().nsmallest(1),
        "gap": enough[enough],
    }
    return {name: int(found.index[0]) if len(found) else None for name, found in first.items()}


def _boxes(points: np.ndarray, draws: int, generator: np.random.Generator) -> np.ndarray:
    """(draw, head, axis): even draws from the box of the heads along their principal axes.

    Left on those axes: a turn changes no distance, hence no inertia.
    """
    centred = points - points.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    turned = centred @ axes.T
    return generator.uniform(turned.min(0), turned.max(0), (draws, *turned.shape))


# --- one cloud: what would be seen without clusters -----------------------------------------------


def gaussian_twin(features: Points, *, seed: int) -> Points:
    """As many points from one Gaussian with the mean and covariance of the heads.

    Each point is the mean plus a random combination of all heads' deviations, so nothing is
    inverted: a singular covariance does no harm and the parts sum to what they did. Parts may be
    negative, which no attention is; `simplex_twin` keeps them positive.
    """
    n, mean = len(features), features.mean(0)
    weights = np.random.default_rng(seed).normal(size=(n, n))
    return np.asarray(mean + weights @ (features - mean) / np.sqrt(n - 1))


def simplex_twin(features: Points, *, seed: int) -> Points:
    """As many points from one logistic normal: a Gaussian of the logs, made to sum to 1 again.

    Rows must be shares that sum to 1. A share of 0 counts as half the smallest of its column; a
    column of zeros stays 0. Keeps the mean and covariance of the log ratios, not of the shares.
    """
    points = checked(features)
    if points.min() < 0 or np.abs(points.sum(1) - 1).max() > 1e-4:
        raise BadValue("the features of a head are not shares that sum to 1; expected such.")
    used = points.max(0) > 0
    shares = points[:, used]
    least = np.where(shares > 0, shares, np.inf).min(0)
    logs = np.log(np.where(shares > 0, shares, least / 2))
    drawn = np.exp(gaussian_twin(logs - logs.mean(1, keepdims=True), seed=seed))
    twin = np.zeros_like(points)
    twin[:, used] = drawn / drawn.sum(1, keepdims=True)
    return twin


# --- stability ------------------------------------------------------------------------------------


@experiment(version=2, trains=True)
def type_stability(
    *corpora: Corpus,
    encoder: Encoder,
    repeats: int = 20,
    draws: int = 200,
    seed: int = 0,
    **plan: Any,
) -> Found:
    """Table 1: heads that keep their cluster in ten fits on random halves.

    repeats  runs on all inputs, with other halves (draw 0)
    draws    runs on articles drawn again, one each (draw 1 and on)
    plan     model, task, recipe, max_length: see `features_of`
    table    model, k, split ("inputs", "heads"), draw, stability, null (the same for points of one
             cloud without clusters, a new cloud in each run)

    Three and five clusters are asked of the question answering model alone.
    """
    found, model = features_of(*corpora, encoder=encoder, **plan), plan["model"]
    ks = STABLE_KS if model == QUESTIONS else (N_TYPES,)
    tables = []
    for number, (weight, _) in enumerate(found.drawn(draws, seed)):
        rows = np.repeat(found.rows, weight.astype(int), axis=0)
        for k, split in product(ks, SPLITS):
            how: Any = {"seed": seed + number, "split": split, "repeats": 1 if number else repeats}
            values = {"stability": stabilities(rows, k, **how)}
            values["null"] = stabilities(rows, k, cloud=True, **how)
            tables.append(pd.DataFrame({"k": k, "split": split, "draw": number, **values}))
    table = pd.concat(tables, ignore_index=True).assign(model=model)
    return Found(table, facts={"inputs": len(found.rows), "model": model, "fits": FITS})


def matched(labels: Labels, reference: Labels, k: int) -> Labels:
    """The labels renumbered so that as many heads as possible have their label of the reference.

    The Hungarian assignment on the k x k table of how many heads have which pair of labels.
    """
    table = confusion_matrix(labels, reference, labels=range(k))
    _, renumbered = linear_sum_assignment(table, maximize=True)
    return np.asarray(renumbered[labels])


def stability(
    per_input: Float[np.ndarray, "input head feature"],
    k: int,
    *,
    seed: int | np.random.Generator,
    fits: int = FITS,
    split: str = "inputs",
    starts: int = STARTS,
) -> tuple[float, Int[np.ndarray, "fit head"]]:
    """The share of heads with one label in all fits on random halves (Guan 2020, Table 1).

    per_input  (input, head, feature)   features of each input; all are averaged for the heads
    split      what each fit sees half of: "inputs", the mean features of all heads over a random
               half of the inputs; "heads", the mean features of a random half of the heads
    returns    the share, and the labels (1 + fit, head), those of a fit on all data first

    Every fit then predicts the cluster of every head from its features over all inputs. The paper
    says only "50% training data", so both readings are offered. Labels are matched to a fit on
    all data; how the authors match is unstated. Their number is no distance between clusterings
    as in von Luxburg (2010): it falls with the number of fits, so compare equal numbers.
    """
    check_choice("split", split, SPLITS)
    data = np.asarray(per_input, dtype=np.float64)
    generator = np.random.default_rng(seed)
    heads = checked(data.mean(0))
    n = len(data) if split == "inputs" else len(heads)
    if n < 2:
        raise BadValue(f"{n} {split}; expected at least 2 to take half of.")
    chosen = [generator.permutation(n)[: round(n / 2)] for _ in range(fits)]
    away = data - heads
    seen = [heads[a] if split == "heads" else heads + away[a].mean(0) for a in chosen]
    first, *seeds = generator.integers(2**31, size=fits + 1).tolist()
    reference = fitted(heads, k, seed=first, starts=starts).labels
    labels = [reference]
    for part, own in zip(seen, seeds, strict=True):
        found = fitted(part, k, seed=own, starts=starts).predict(heads)
        labels.append(matched(found, reference, k))
    return float((np.array(labels[1:]) == labels[1]).all(0).mean()), np.array(labels)


def stabilities(
    per_input: Float[np.ndarray, "input head feature"],
    k: int,
    *,
    seed: int,
    repeats: int = 20,
    cloud: bool = False,
    **how: Any,
) -> Float[np.ndarray, " repeat"]:
    """The stability again and again with other halves, of the heads or of one cloud.

    cloud  each repeat puts the heads' means at the points of one cloud without clusters and keeps
           how every input deviates from them. That is the chance level: what the number is worth
           when there are no types.
    how    fits, split and starts of `stability`
    """
    if repeats < 1:
        raise BadValue(f"repeats is {repeats}; expected at least 1.")
    data = np.asarray(per_input, dtype=np.float64)
    generator, center = np.random.default_rng(seed), data.mean(0)
    values = []
    for _ in range(repeats):
        points = data
        if cloud:
            points = simplex_twin(center, seed=int(generator.integers(2**31))) + (data - center)
        values.append(stability(points, k, seed=generator, **how)[0])
    return np.array(values)
