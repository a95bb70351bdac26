"""Sec. 6: how far heads are from each other, and whether layers or behaviours hold together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.spatial.distance import pdist, squareform

from attnlib.data.corpora import Corpus
from attnlib.measuring.stream import measure
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.clark2019.surface import behaviours
from experiments.shared.intervals import chance_p

UNNAMED = ("other", "undefined")


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


@experiment(version=1)
def plane(distances: pd.DataFrame, surface: pd.DataFrame, *, seed: int = 0) -> Found:
    """The heads on a plane, and two permutation tests: same layer, same behaviour (Fig. 6).

    distances  the table of `divergences`
    surface    the table of `surface`, whose means name the behaviours
    """
    matrix = distance_matrix(distances)
    labels = behaviours(surface)
    points, stress, correlation = planar(matrix, seed=seed)
    layers = labels.index.get_level_values("layer").to_numpy()
    near_in_layer, far_from_layer, p_of_layer = closeness(matrix, layers, seed=seed)
    named = (~labels.isin(UNNAMED)).to_numpy()
    near, far, p = closeness(matrix[named][:, named], labels[named].to_numpy(), seed=seed)
    table = labels.reset_index()
    table["x"], table["y"] = points.T
    facts = {
        "stress": stress,
        "correlation": correlation,
        "layer_ratio": near_in_layer / far_from_layer,
        "behaviour_ratio": None if np.isnan(near / far) else near / far,
        "named": int(named.sum()),
    }
    found = {"js.within_layer_p": Finding(p_of_layer), "js.within_behaviour_p": Finding(p)}
    return Found(table, found, facts)


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


# --- whether groups of heads lie closer together than chance --------------------------------------


def closeness(
    distances: Float[np.ndarray, "n n"],
    groups: Sequence[object] | np.ndarray,
    *,
    permutations: int = 10_000,
    seed: int = 0,
) -> tuple[float, float, float]:
    r"""Are points of one group closer to each other than if labels were dealt out at random?

    .. math:: W = \frac{1}{|P|} \sum_{(i, j) \in P} d_{ij}, \quad
              P = \{i < j : g_i = g_j\}, \quad
              p = \frac{1 + |\{\pi : W_\pi \le W\}|}{1 + \text{permutations}}

    distances  (n, n)   symmetric
    groups     (n,)     a label per point
    returns    W, the mean distance of points of different groups, and p; NaN of no pairs

    The paper says "heads in the same layer tend to be close together" without a test; this is ours.
    A group of one point has no pair within. Shuffling labels keeps the sizes of all groups, so W
    and its ratio to the mean between groups order the shuffles in the same way.
    """
    labels = np.asarray(groups, dtype=object)
    one, other = np.triu_indices(len(labels), 1)
    same = labels[one] == labels[other]
    values = distances[one, other]
    within, between = _mean(values[same]), _mean(values[~same])
    return within, between, _p_value(distances, one[same], other[same], within, permutations, seed)


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
    places = np.tile(np.arange(len(given)), (permutations, 1))
    # Rows and columns move together: a point keeps its distances, only its label changes.
    dealt = np.random.default_rng(seed).permuted(places, axis=1)
    means = np.array([given[order[one], order[other]].mean() for order in dealt])
    return chance_p(-observed, -means)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
