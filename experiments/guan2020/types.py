"""Sec. 3 and 4: the features of heads and their types, with articles drawn again (Fig. 1-4).

Also the features of single maps that have a label, and what the open points of Eq. 2 change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from sklearn.metrics import adjusted_rand_score, silhouette_samples

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.measuring.stream import stream
from attnlib.metrics.distance import FEATURES, N_WINDOWS, distance_metrics, feature_rows
from attnlib.models import Encoder, weights_digest
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.models import QUESTIONS, model_of
from experiments.shared.head_types import TYPES, Clustering, Naming, checked, fitted, naming, plane
from experiments.shared.intervals import drawn_weights

N_TYPES = len(TYPES)
Points = Float[np.ndarray, "head feature"]
Labels = Int[np.ndarray, " head"]
_KEPT: dict[tuple[str, ...], Features] = {}
"""Features of this process: several experiments look at the same ones."""


# --- features -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Features:
    """What each part of the feature is for every head in every input.

    rows    (input, head, feature), heads numbered over all layers
    groups  of each input its article, or itself where it is of none: what is drawn again
    """

    names: tuple[str, ...]
    rows: np.ndarray
    n_heads: int
    tokens: int
    groups: tuple[str, ...]

    @property
    def mean(self) -> np.ndarray:
        """(head, feature): the mean over inputs, each of which counts alike."""
        return np.asarray(self.rows.mean(0))

    def drawn(self, draws: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """How often each input counts, and the mean: once each, then with articles drawn again."""
        flat = self.rows.reshape(len(self.rows), -1)
        for weight in drawn_weights(self.groups, draws, seed=seed):
            yield weight, (weight @ flat / weight.sum()).reshape(self.rows.shape[1:])

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

    def consistent(self, clusters: Clustering) -> np.ndarray:
        """(input, head): whether the input alone has the head in its cluster."""
        return np.stack([clusters.predict(one) == clusters.labels for one in self.rows])

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
    model: str = "",
    **division: Any,
) -> Features:
    """The features of one of the chapter's models on the last corpus, found once in a process.

    corpora   what the model learns from, if anything, and last the inputs
    model     its name, which decides nothing here
    division  windows, specials, edges, length: how Eq. 2 is read
    """
    *train, inputs = corpora
    own = model_of(*train, encoder=encoder, task=task, recipe=recipe)
    key = (weights_digest(own), inputs.digest, str(max_length), repr(sorted(division.items())))
    if key not in _KEPT:
        metrics = distance_metrics(**division)
        how: Any = {"max_length": max_length, "batch_size": 8, "on_long": "truncate"}
        found = stream(own, inputs, metrics, **how).not_empty()
        names, rows = feature_rows(found)
        length = found.rows(metrics[0].key)[1].reshape(len(rows), -1)[:, 0]
        # In a text of no more pieces than windows the nearest window holds no distance.
        long = length > N_WINDOWS
        if not long.any():
            raise BadValue(
                f"no input of '{inputs.name}' has more than {N_WINDOWS} pieces, without which near "
                "mass is undefined. Use longer inputs, or a larger max_length."
            )
        read = [inputs.examples[place] for place in sorted(set(found.shard.index))]
        groups = [group_of(one) for one, kept in zip(read, long, strict=True) if kept]
        total = int(length[long].sum())
        _KEPT[key] = Features(names, rows[long], own.n_heads, total, tuple(groups))
    return _KEPT[key]


def group_of(example: Any) -> str:
    """What an input is drawn again with: its article or document, or itself if it is of none."""
    return getattr(example, "article", None) or getattr(example, "document", None) or example.id


@experiment(version=2, trains=True)
def head_features(*corpora: Corpus, encoder: Encoder, **plan: Any) -> Found:
    """The mean feature of every head.

    plan   model, task, recipe, max_length: see `features_of`
    table  layer, head, feature, value
    """
    found = features_of(*corpora, encoder=encoder, **plan)
    wide = found.heads().join(pd.DataFrame(found.mean, columns=list(found.names)))
    table = wide.melt(["layer", "head"], var_name="feature")
    sums = found.rows.sum(-1).ravel()
    farthest = sums[np.abs(sums - 1).argmax()]
    numbers = {
        "features.sum": farthest,
        "features.largest_gap": np.abs(farthest - 1),
        "features.parts": len(found.names),
    }
    facts = {
        "inputs": len(found.rows),
        "tokens": found.tokens,
        "passes": len(found.rows),
        "model": plan["model"],
        "mean_length": found.tokens / len(found.rows),
    }
    asked = numbers if plan["model"] == QUESTIONS else {}  # the model that claims are about
    findings = {name: Finding(float(value)) for name, value in asked.items()}
    return Found(table.sort_values(["layer", "head"], kind="stable"), findings, facts)


# --- types ----------------------------------------------------------------------------------------


@experiment(version=2, trains=True)
def head_types(*corpora: Corpus, encoder: Encoder, seed: int = 0, **plan: Any) -> Found:
    """Four clusters of the heads of a model, named by the rule on their centroids.

    plan   model, task, recipe, max_length: see `features_of`
    table  layer, head, type, x, y (t-SNE), silhouette, consistent (share of inputs whose feature
           alone is nearest to the centroid of the head's type), special, near, far (mass)
    """
    found = features_of(*corpora, encoder=encoder, **plan)
    mean = found.mean
    clusters = found.clustered(mean, seed=seed)
    naming, types = found.named(mean, clusters)
    table = found.heads().assign(type=types)
    table[["x", "y"]] = plane(mean, seed=seed)
    table["silhouette"] = silhouettes(mean, clusters.labels)
    table["consistent"] = found.consistent(clusters).mean(0)
    facts = {
        "inputs": len(found.rows),
        "articles": len(set(found.groups)),
        "tokens": found.tokens,
        "model": plan["model"],
        "margins": naming.margins.round(4).to_dict("records"),
        "moved_after_lloyd": int(clusters.n_moved),
    }
    return Found(table.join(found.masses(mean)), facts=facts)


@experiment(version=1, trains=True)
def type_draws(*corpora: Corpus, encoder: Encoder, draws: int, seed: int = 0, **plan: Any) -> Found:
    """The clusters of the heads on all inputs (draw 0), and found anew on articles drawn again.

    plan   model, task, recipe, max_length: see `features_of`
    table  draw, layer, head, cluster (from 1, by special mass), type (the name of the cluster;
           none where two clusters tie), special, near, far (mass of the cluster's centroid),
           consistent (of all heads and inputs drawn, the share whose feature is nearest to the
           centroid of the head's cluster on all inputs)

    Models that read the same inputs see the same articles in the same draw.
    """
    found = features_of(*corpora, encoder=encoder, **plan)
    whole = found.clustered(found.mean, seed=seed)
    alone = found.consistent(whole).mean(1)
    parts = []
    for number, (weight, mean) in enumerate(found.drawn(draws, seed)):
        clusters = found.clustered(mean, seed=seed, starts=3) if number else whole
        try:
            types: list[Any] = list(found.named(mean, clusters)[1])
        except BadValue:  # a tie cannot be named
            types = [None] * len(mean)
        own = found.heads().assign(draw=number, cluster=clusters.labels + 1, type=types)
        masses = found.masses(clusters.centroids).iloc[clusters.labels]
        own[list(masses)] = masses.to_numpy()
        parts.append(own.assign(consistent=weight @ alone / weight.sum()))
    facts = {"inputs": len(found.rows), "articles": len(set(found.groups)), "model": plan["model"]}
    return Found(pd.concat(parts, ignore_index=True), facts=facts)


def silhouettes(features: Points, labels: Labels) -> Float[np.ndarray, " head"]:
    """How much nearer each head is to its own cluster than to the next (Rousseeuw 1987).

    A head alone in its cluster has 0 by definition; one cluster only gives NaN.
    """
    points = checked(features)
    n_clusters = len(np.unique(labels))
    if n_clusters in (1, len(points)):
        return np.full(len(points), np.nan if n_clusters == 1 else 0.0)
    return np.asarray(silhouette_samples(points, labels))


@experiment(version=1)
def labelled_features(
    *given: Any, encoder: Encoder, names: Sequence[str], max_length: int = 128
) -> Found:
    """The distance features of single maps that have a label, each of one head and one input.

    given  corpora with these names, then a table of labels: corpus, example (id), layer, head,
           label; those of inputs without a near mass are left out
    table  layer, head, label, and the 21 parts
    """
    *corpora, labels = given
    parts = []
    for name, corpus in zip(names, corpora, strict=True):
        own = labels[labels["corpus"] == name]
        wanted = set(own["example"])
        chosen = tuple(one for one in corpus.examples if one.id in wanted)
        at = {one.id: place for place, one in enumerate(chosen)}
        texts = replace(corpus, examples=chosen, digest=f"{corpus.digest} labelled")
        how: Any = {"max_length": max_length, "on_long": "truncate"}
        found = stream(encoder, texts, distance_metrics(), **how).not_empty()
        rows = feature_rows(found)[1]
        length = found.rows("distance_self")[1].reshape(len(rows), -1)[:, 0]
        own = own.assign(place=own["example"].map(at))
        own = own[length[own["place"]] > N_WINDOWS]
        values = rows[own["place"], (own["layer"] - 1) * encoder.n_heads + own["head"] - 1]
        told = own[["layer", "head", "label"]].reset_index(drop=True)
        parts.append(told.join(pd.DataFrame(values, columns=list(FEATURES))))
    empty = pd.DataFrame(columns=["layer", "head", "label", *FEATURES])
    table = pd.concat(parts, ignore_index=True) if parts else empty
    return Found(table, facts={"inputs": len(table)})


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


@experiment(version=2, trains=True)
def feature_decisions(*corpora: Corpus, encoder: Encoder, seed: int = 0, **plan: Any) -> Found:
    """What another reading of Eq. 2 does to the types: how many heads change theirs.

    plan   model, task, recipe, max_length: see `features_of`
    table  reading, agreement (adjusted Rand index with our reading), same (share of heads of the
           same type; NaN where the naming rule has no special tokens to go by), and how many heads
           each of the four types has (n_dense, ...)
    """
    rows, ours = [], None
    for reading, division in READINGS.items():  # ours is the first
        found = features_of(*corpora, encoder=encoder, **plan, **division)
        clusters = found.clustered(found.mean, seed=seed)
        named = bool(found.parts["special"])
        types = np.array(found.named(found.mean, clusters)[1] if named else [np.nan])
        ours = ours or (clusters.labels, types)
        row = {"reading": reading, "agreement": adjusted_rand_score(ours[0], clusters.labels)}
        row["same"] = float(np.mean(types == ours[1])) if named else np.nan
        counts = {f"n_{name}": (types == name).sum() if named else np.nan for name in TYPES}
        rows.append(row | counts)
    return Found(pd.DataFrame(rows), facts={"inputs": len(found.rows), "model": plan["model"]})
