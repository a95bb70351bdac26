"""Sec. 6: how far heads are from each other, and whether layers or behaviours hold together."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.measuring.stream import Progress, measure
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.clusters import behaviours, closeness, planar

UNNAMED = ("other", "undefined")


@experiment(version=1)
def divergences(
    corpus: Corpus,
    *,
    encoder: Encoder,
    max_length: int = 128,
    variant: str = "paper",
    progress: Progress | None = None,
) -> Found:
    """Jensen-Shannon divergence between every two heads, averaged over tokens (Fig. 6)."""
    key = "js_divergence" if variant == "paper" else f"js_divergence@{variant}"
    found = measure(encoder, corpus, [key], max_length=max_length, progress=progress)
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
    n_heads = int(max(table["head"].max(), table["other_head"].max()))
    n = int(table["other_layer"].max()) * n_heads
    one = ((table["layer"] - 1) * n_heads + table["head"] - 1).to_numpy()
    other = ((table["other_layer"] - 1) * n_heads + table["other_head"] - 1).to_numpy()
    matrix = np.zeros((n, n))
    matrix[one, other] = matrix[other, one] = table["js"].to_numpy()
    return matrix


@experiment(version=1)
def plane(distances: pd.DataFrame, surface: pd.DataFrame, *, seed: int = 0) -> Found:
    """The heads on a plane, and two permutation tests: same layer, same behaviour (Fig. 6).

    distances  the table of `divergences`
    surface    the table of `surface`, whose means name the behaviours
    """
    matrix = distance_matrix(distances)
    labels = behaviours(surface)
    laid = planar(matrix, seed=seed)
    layers = labels.index.get_level_values("layer").to_numpy()
    by_layer = closeness(matrix, layers, seed=seed)
    by_behaviour = closeness(matrix, labels.to_numpy(), exclude=UNNAMED, seed=seed)
    table = labels.reset_index()
    table["x"], table["y"] = laid.points.T
    facts = {
        "stress": laid.stress,
        "correlation": laid.correlation,
        "layer_ratio": by_layer.ratio,
        "behaviour_ratio": None if np.isnan(by_behaviour.ratio) else by_behaviour.ratio,
        "named": int((~labels.isin(UNNAMED)).sum()),
    }
    found = {
        "js.within_layer_p": Finding(by_layer.p_value),
        "js.within_behaviour_p": Finding(by_behaviour.p_value),
    }
    return Found(table, found, facts)
