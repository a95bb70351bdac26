"""Sec. 3: the distance features of every head, and what the open points of Eq. 2 change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

from attnlib.data.corpora import Corpus
from attnlib.measuring.stream import Progress, stream
from attnlib.metrics.distance import distance_metrics, feature_rows
from attnlib.models import Encoder, weights_digest
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.models import model_of
from experiments.shared.head_types import TYPES, Clustering, Naming, fitted, naming

N_TYPES = len(TYPES)
_KEPT: dict[tuple[str, ...], Features] = {}
"""Features of this process: several experiments look at the same ones."""


@dataclass(frozen=True, eq=False)
class Features:
    """What each part of the feature is for every head in every input.

    rows  (input, head, feature), heads numbered over all layers
    """

    names: tuple[str, ...]
    rows: np.ndarray
    n_heads: int
    tokens: int

    @property
    def mean(self) -> np.ndarray:
        """(head, feature): the mean over inputs, each of which counts alike."""
        return np.asarray(self.rows.mean(0))

    @property
    def parts(self) -> dict[str, list[int]]:
        """Columns of special tokens, of what is near (self, the nearest window), and far."""
        parts: dict[str, list[int]] = {"special": [], "near": [], "far": []}
        for place, name in enumerate(self.names):
            near, far = name in ("self", "window_01"), name.startswith("window_")
            parts["near" if near else "far" if far else "special"].append(place)
        return parts

    def heads(self) -> pd.DataFrame:
        """One row per head: layer and head, both from 1."""
        layer, head = np.divmod(np.arange(self.rows.shape[1]), self.n_heads)
        return pd.DataFrame({"layer": layer + 1, "head": head + 1})

    def masses(self, mean: np.ndarray) -> pd.DataFrame:
        """One row per head of mean features (head, feature): its special, near and far mass."""
        return pd.DataFrame({name: mean[:, part].sum(1) for name, part in self.parts.items()})

    def clustered(self, mean: np.ndarray, **how: Any) -> Clustering:
        """Four clusters of mean features; how  seed and starts of `fitted`."""
        return fitted(mean, N_TYPES, special=self.parts["special"], **how)

    def named(self, mean: np.ndarray, clusters: Clustering) -> tuple[Naming, list[str]]:
        """The names of four clusters, and so the type of every head."""
        found = naming(mean, clusters, self.parts["special"], self.parts["near"])
        return found, [found.names[label] for label in clusters.labels]


def features_of(
    *corpora: Corpus,
    encoder: Encoder,
    task: str | None,
    recipe: Mapping[str, Any] | None,
    max_length: int,
    progress: Progress | None = None,
    **division: Any,
) -> Features:
    """The features of one of the chapter's models on the last corpus, found once in a process.

    corpora   what the model learns from, if anything, and last the inputs
    division  windows, specials, edges, length: how Eq. 2 is read
    """
    *train, inputs = corpora
    model = model_of(*train, encoder=encoder, task=task, recipe=recipe, progress=progress)
    key = (weights_digest(model), inputs.digest, str(max_length), repr(sorted(division.items())))
    if key not in _KEPT:
        metrics = distance_metrics(**division)
        how: Any = {"max_length": max_length, "batch_size": 8, "on_long": "truncate"}
        found = stream(model, inputs, metrics, progress=progress, **how)
        names, rows = feature_rows(found.not_empty())
        total = found.rows(metrics[0].key)[1].reshape(len(rows), -1)[:, 0].sum()
        defined = rows[~np.isnan(rows).any((1, 2))]
        _KEPT[key] = Features(names, defined, model.n_heads, int(total))
    return _KEPT[key]


@experiment(version=1, trains=True)
def head_features(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    progress: Progress | None = None,
    **settings: Any,
) -> Found:
    """The mean feature of every head.

    settings  task, recipe, max_length: see `features_of`
    table     layer, head, feature, value
    """
    found = features_of(*corpora, encoder=encoder, progress=progress, **settings)
    wide = found.heads().join(pd.DataFrame(found.mean, columns=list(found.names)))
    table = wide.melt(["layer", "head"], var_name="feature")
    sums = found.rows.sum(-1).ravel()
    farthest = sums[np.abs(sums - 1).argmax()]
    numbers = {"features.sum": farthest, "features.largest_gap": np.abs(farthest - 1)}
    facts = {
        "inputs": len(found.rows),
        "tokens": found.tokens,
        "passes": len(found.rows),
        "model": model,
        "mean_length": found.tokens / len(found.rows),
    }
    findings = {name: Finding(float(value)) for name, value in numbers.items()}
    return Found(table.sort_values(["layer", "head"], kind="stable"), findings, facts)


READINGS: dict[str, dict[str, Any]] = {
    "16 windows of L/16 (ours)": {},
    "windows over 1 .. L-1": {"edges": "equal"},
    "L = 384, padding counted": {"length": 384},
    "8 windows": {"windows": 8},
    "32 windows": {"windows": 32},
    "no special tokens": {"specials": ()},
    "[CLS] and [SEP] only": {"specials": ("cls", "sep")},
    "all punctuation": {"specials": ("cls", "sep", "punctuation")},
}
"""Other readings of Eq. 2, by what is different."""


@experiment(version=1, trains=True)
def feature_decisions(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Found:
    """What another reading of Eq. 2 does to the types: how many heads change theirs.

    settings  task, recipe, max_length: see `features_of`
    table     reading, agreement (adjusted Rand index with our reading), same (share of heads of the
              same type; NaN where the naming rule has no special tokens to go by), and how many
              heads each of the four types has (n_dense, ...)
    """
    rows, ours = [], None
    for reading, division in READINGS.items():  # ours is the first
        found = features_of(*corpora, encoder=encoder, progress=progress, **settings, **division)
        clusters = found.clustered(found.mean, seed=seed)
        named = bool(found.parts["special"])
        types = np.array(found.named(found.mean, clusters)[1] if named else [np.nan])
        ours = ours or (clusters.labels, types)
        row = {"reading": reading, "agreement": adjusted_rand_score(ours[0], clusters.labels)}
        row["same"] = float(np.mean(types == ours[1])) if named else np.nan
        counts = {f"n_{name}": (types == name).sum() if named else np.nan for name in TYPES}
        rows.append(row | counts)
    return Found(pd.DataFrame(rows), facts={"inputs": len(found.rows), "model": model})
