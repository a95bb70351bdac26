"""Sec. 6: how far heads are from each other, on a plane and in clusters."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist, squareform

from attnlib.data.corpora import Corpus
from attnlib.measuring.bootstrap import statistics
from attnlib.measuring.stream import measure
from attnlib.models import Encoder
from bookkit.store import Found, experiment, findings
from experiments.clark2019.masked_lm import article
from experiments.clark2019.surface import behaviours

GROUPS = range(3, 13)


@experiment(version=1)
def divergences(
    corpus: Corpus, *, encoder: Encoder, max_length: int = 128, variant: str = "paper"
) -> Found:
    """Jensen-Shannon divergence between every two heads, averaged over tokens (Fig. 6)."""
    key = "js_divergence" if variant == "paper" else f"js_divergence@{variant}"
    found = measure(encoder, corpus, [key], max_length=max_length)
    total, weight = found.rows(key)
    mean = total.sum(0) / weight.sum(0)  # the paper sums over tokens of all texts
    upper = np.triu_indices(len(mean), 1)
    table = pd.DataFrame(
        {
            "layer": upper[0] // encoder.n_heads + 1,
            "head": upper[0] % encoder.n_heads + 1,
            "other_layer": upper[1] // encoder.n_heads + 1,
            "other_head": upper[1] % encoder.n_heads + 1,
            "js": mean[upper].astype(np.float32),
        }
    )
    n, tokens = found.n_examples, int(weight[:, 0, 0].sum())
    return Found(table, facts={"inputs": n, "passes": n, "tokens": tokens})


def distance_matrix(table: pd.DataFrame) -> np.ndarray:
    """The square, symmetric matrix behind a table of head pairs."""
    return squareform(table["js"].to_numpy(np.float64))  # pairs are in the order of its triangle


@experiment(version=2)
def plane(distances: pd.DataFrame, surface: pd.DataFrame, *, seed: int = 0) -> Found:
    """The heads on a plane, with their behaviours (Fig. 6).

    distances  the table of `divergences`
    surface    the table of `surface`, whose means name the behaviours
    """
    points, stress, correlation = planar(distance_matrix(distances), seed=seed)
    table = behaviours(surface).reset_index()
    table["x"], table["y"] = points.T
    return Found(table, facts={"stress": stress, "correlation": correlation})


@experiment(version=1)
def clusters(corpus: Corpus, *, encoder: Encoder, max_length: int = 128, seed: int = 0) -> Found:
    """How clear the clearest clustering of heads is; articles drawn again, its size chosen anew.

    table  groups, silhouette: the mean silhouette of so many groups (see `silhouettes`)
    """
    found = measure(encoder, corpus, ["js_divergence"], max_length=max_length)
    total, weight = found.rows("js_divergence")
    upper = np.triu_indices(total.shape[-1], 1)
    read = [corpus.examples[place] for place in sorted(set(found.shard.index))]
    articles = pd.factorize(np.array([article(example) for example in read], object))[0]
    sums = [np.zeros((articles.max() + 1, len(upper[0]))) for _ in range(2)]
    for whole, part in zip(sums, (total, np.broadcast_to(weight, total.shape)), strict=True):
        np.add.at(whole, articles, part[:, upper[0], upper[1]])
    wanted = {"js.best_silhouette": lambda grids: np.nanmax(silhouettes(grids["js"]))}
    numbers = findings(statistics({"js": (sums[0], sums[1])}, wanted, micro=True, seed=seed))
    mean = silhouettes(sums[0].sum(0) / sums[1].sum(0))
    table = pd.DataFrame({"groups": GROUPS, "silhouette": mean})
    facts = {"inputs": len(read), "passes": len(read), "groups": GROUPS[int(np.nanargmax(mean))]}
    return Found(table, numbers, facts)


def silhouettes(pairs: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " groups"]:
    r"""Mean silhouette of 3 to 12 groups of heads (average linkage).

    .. math:: s_i = \frac{b_i - a_i}{\max(a_i, b_i)}

    pairs  distances of every two heads; a: mean distance to the others of one's group; b: to those
           of the nearest other group. A head that is alone in its group has 0; NaN where the tree
           of groups cannot be cut into so many.
    """
    tree, apart = linkage(pairs, "average"), squareform(pairs)
    found = []
    for n in GROUPS:
        member = np.eye(n)[fcluster(tree, n, "maxclust") - 1]
        size = member.sum(0)
        if (size == 0).any():
            found.append(np.nan)
            continue
        sums, own = apart @ member, member.astype(bool)
        within = sums[own] / np.maximum(size[own.argmax(1)] - 1, 1)
        nearest = np.where(own, np.inf, sums / size).min(1)
        gap = (nearest - within) / np.maximum(np.maximum(nearest, within), 1e-300)
        found.append(float(np.where(size[own.argmax(1)] > 1, gap, 0).mean()))
    return np.array(found)


# --- heads as points in a plane -------------------------------------------------------------------


def planar(
    distances: Float[np.ndarray, "n n"], *, seed: int = 0, starts: int = 5
) -> tuple[Float[np.ndarray, "n 2"], float, float]:
    r"""Points whose Euclidean distances are as near as possible to those given (sec. 6, Fig. 6).

    .. math::
        \min_x \sum_{i<j} (d_{ij} - \|x_i - x_j\|)^2, \quad
        \text{stress-1} = \sqrt{\frac{\sum_{i<j} (d_{ij} - \|x_i - x_j\|)^2}
                                     {\sum_{i<j} \|x_i - x_j\|^2}}

    distances  (n, n)   symmetric, 0 on the diagonal: the Jensen-Shannon divergences of heads
    returns    points (n, 2), centred, the first axis the long one; stress-1, where 0 is perfect,
               0.1 fair, 0.2 poor; correlation of the distances in the plane with those given

    The best of `starts` random starts, as in the authors' code. Differs from it: the starts have
    a seed, and the result is turned to its principal axes with the farthest point of each axis
    on the positive side, so that the same distances give the same picture.
    """
    # The import takes a second that no other part of this module needs. The function `smacof`
    # has kept its arguments; those of the class MDS changed their meaning in version 1.8.
    from sklearn.manifold import smacof

    points, _ = smacof(
        distances,
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
    shown, wanted = pdist(points), squareform(distances, checks=False)
    stress = float(np.sqrt(((wanted - shown) ** 2).sum() / (shown**2).sum()))
    constant = np.ptp(wanted) == 0 or np.ptp(shown) == 0
    correlation = float("nan") if constant else float(np.corrcoef(wanted, shown)[0, 1])
    return points, stress, correlation


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
