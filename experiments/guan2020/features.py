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
from experiments.shared.head_types import TYPES, fitted, named_types

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
    def special(self) -> list[int]:
        """Columns of the special tokens."""
        windows = [name.startswith("window_") or name == "self" for name in self.names]
        return [place for place, other in enumerate(windows) if not other]

    @property
    def near(self) -> list[int]:
        """Columns of self and of the nearest window."""
        first = next(place for place, n in enumerate(self.names) if n.startswith("window_"))
        return [first, self.names.index("self")]

    @property
    def far(self) -> list[int]:
        """Columns of all windows but the nearest."""
        known = {*self.special, *self.near}
        return [place for place in range(len(self.names)) if place not in known]

    @property
    def layers(self) -> np.ndarray:
        """(head,): the layer of each head, from 1."""
        return np.arange(self.rows.shape[1]) // self.n_heads + 1

    def heads(self) -> pd.DataFrame:
        """One row per head: layer and head, both from 1."""
        places = np.arange(self.rows.shape[1])
        return pd.DataFrame({"layer": self.layers, "head": places % self.n_heads + 1})

    def masses(self, mean: np.ndarray) -> pd.DataFrame:
        """One row per head of mean features (head, feature): its special, near and far mass."""
        parts = {"special": self.special, "near": self.near, "far": self.far}
        return pd.DataFrame({name: mean[:, part].sum(1) for name, part in parts.items()})


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
    sums = found.rows.sum(-1)
    gap = float(np.abs(sums - 1).max())
    farthest = float(sums.flat[np.abs(sums - 1).argmax()])
    numbers = {"features.sum": Finding(farthest), "features.largest_gap": Finding(gap)}
    facts = {
        "inputs": len(found.rows),
        "tokens": found.tokens,
        "passes": len(found.rows),
        "model": model,
        "mean_length": found.tokens / len(found.rows),
    }
    return Found(table.sort_values(["layer", "head"], kind="stable"), numbers, facts)


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
    ours: list[str] = []
    labels = np.array([])
    rows = []
    for reading, division in READINGS.items():
        given = settings | division
        found = features_of(*corpora, encoder=encoder, progress=progress, **given)
        clustering = fitted(found.mean, N_TYPES, seed=seed, special=found.special)
        types = (
            named_types(found.mean, clustering, found.special, found.near) if found.special else []
        )
        ours, labels = ours or types, labels if len(labels) else clustering.labels
        same = [one == other for one, other in zip(types, ours, strict=False)]
        rows.append(
            {
                "reading": reading,
                "agreement": adjusted_rand_score(labels, clustering.labels),
                "same": float(np.mean(same)) if types else np.nan,
                **{f"n_{name}": types.count(name) if types else np.nan for name in TYPES},
            }
        )
    return Found(pd.DataFrame(rows), facts={"inputs": len(found.rows), "model": model})
