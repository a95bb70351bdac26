"""Sec. 3 and 4: the features of heads, their four types, and what fine-tuning moves (Fig. 1-4).

Also what the open points of Eq. 2 change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from sklearn.metrics import adjusted_rand_score, silhouette_samples

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_places
from attnlib.measuring.stream import stream
from attnlib.metrics.distance import distance_metrics, feature_rows
from attnlib.models import Encoder, weights_digest
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.models import PRETRAINED, QUESTIONS, model_of
from experiments.shared.head_types import (
    TYPES,
    Clustering,
    Naming,
    checked,
    fitted,
    naming,
    parts_of,
    plane,
)
from experiments.shared.intervals import drawn

N_TYPES = len(TYPES)
MIXED = "dense&vertical"
REPLICATES = 200
Points = Float[np.ndarray, "head feature"]
Labels = Int[np.ndarray, " head"]
_KEPT: dict[tuple[str, ...], Features] = {}
"""Features of this process: several experiments look at the same ones."""


# --- features -------------------------------------------------------------------------------------


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
        """Columns of special tokens, of what is near, and of what is far."""
        return parts_of(self.names)

    def heads(self) -> pd.DataFrame:
        """One row per head: layer and head, both from 1."""
        return head_places(divmod(flat, self.n_heads) for flat in range(self.rows.shape[1]))

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
        found = stream(own, inputs, metrics, **how)
        names, rows = feature_rows(found.not_empty())
        total = found.rows(metrics[0].key)[1].reshape(len(rows), -1)[:, 0].sum()
        defined = rows[~np.isnan(rows).any((1, 2))]
        _KEPT[key] = Features(names, defined, own.n_heads, int(total))
    return _KEPT[key]


@experiment(version=1, trains=True)
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
    numbers = {"features.sum": farthest, "features.largest_gap": np.abs(farthest - 1)}
    facts = {
        "inputs": len(found.rows),
        "tokens": found.tokens,
        "passes": len(found.rows),
        "model": plan["model"],
        "mean_length": found.tokens / len(found.rows),
    }
    findings = {name: Finding(float(value)) for name, value in numbers.items()}
    return Found(table.sort_values(["layer", "head"], kind="stable"), findings, facts)


# --- types ----------------------------------------------------------------------------------------


@experiment(version=1, trains=True)
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
    alone = np.stack([clusters.predict(one) == clusters.labels for one in found.rows])
    table["consistent"] = alone.mean(0)
    numbers = _with_intervals(found, types, alone, seed) if plan["model"] == QUESTIONS else {}
    facts = {
        "inputs": len(found.rows),
        "tokens": found.tokens,
        "model": plan["model"],
        "margins": naming.margins.round(4).to_dict("records"),
        "moved_after_lloyd": int(clusters.n_moved),
    }
    return Found(table.join(found.masses(mean)), numbers, facts)


def silhouettes(features: Points, labels: Labels) -> Float[np.ndarray, " head"]:
    """How much nearer each head is to its own cluster than to the next (Rousseeuw 1987).

    A head alone in its cluster has 0 by definition; one cluster only gives NaN.
    """
    points = checked(features)
    n_clusters = len(np.unique(labels))
    if n_clusters in (1, len(points)):
        return np.full(len(points), np.nan if n_clusters == 1 else 0.0)
    return np.asarray(silhouette_samples(points, labels))


def type_numbers(found: Features, mean: np.ndarray, types: Sequence[str]) -> dict[str, float]:
    """The numbers that claims on types ask for, from mean features and the heads' types."""
    heads = found.heads().join(found.masses(mean)).assign(type=types)
    by_type = heads.groupby("type")
    n_layers = int(heads["layer"].max())
    share = 100 * by_type.size() / len(heads)
    depth = (by_type["layer"].mean() - 1) / max(n_layers - 1, 1)
    special, far = by_type["special"].mean(), by_type["far"].mean()
    numbers = {}
    for name in TYPES:
        slug = name.replace("&", "_")
        numbers[f"types.{slug}.share"] = share[name]
        numbers[f"types.{slug}.share_from_30"] = abs(share[name] - 30)
        numbers[f"types.{slug}.depth"] = depth[name]
    low, high = sorted((special["dense"], special["vertical"]))
    middle, others = special["diagonal"], max(1e-12, special.drop("vertical").max())
    numbers |= {
        "types.dense_vertical.share_lead": share[MIXED] - share.drop(MIXED).max(),
        "types.vertical.share_below": share.drop("vertical").min() - share["vertical"],
        "types.dense.far_lead": far["dense"] - far.drop("dense").max(),
        "types.diagonal.special_between": min(middle - low, high - middle),
        "types.dense_vertical.lead": min(far[MIXED] - far["diagonal"], special[MIXED] - middle),
        "types.vertical.special_ratio": special["vertical"] / others,
        "types.diagonal.layers": by_type["layer"].nunique()["diagonal"] / n_layers,
        "types.dense_vertical.off_middle": abs(depth[MIXED] - 0.5),
    }
    return {name: float(value) for name, value in numbers.items()}


def _with_intervals(
    found: Features, types: Sequence[str], alone: np.ndarray, seed: int
) -> dict[str, Finding]:
    """The numbers from all inputs; clusters and names are found again for inputs drawn anew.

    alone  (input, head): whether the input alone has the head in its cluster
    """
    n, generator = len(found.rows), np.random.default_rng(seed)
    numbers = [type_numbers(found, found.mean, types) | {"types.consistent": alone.mean()}]
    for _ in range(REPLICATES):
        chosen = generator.integers(0, n, n)
        mean = found.rows[chosen].mean(0)
        clusters = found.clustered(mean, seed=seed, starts=3)
        own = type_numbers(found, mean, found.named(mean, clusters)[1])
        numbers.append(own | {"types.consistent": alone[chosen].mean()})
    return {name: drawn(values.to_numpy()) for name, values in pd.DataFrame(numbers).items()}


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


# --- before and after fine-tuning -----------------------------------------------------------------


@experiment(version=1)
def type_moves(*tables: pd.DataFrame, models: Sequence[str]) -> Found:
    """The type of every head before and after, for each fine-tuned model (Fig. 4).

    tables  those of `head_types`, the pre-trained model's first
    table   task (the model), layer, head, before, after, changed
    """
    if not {PRETRAINED, QUESTIONS} <= set(models):
        raise BadValue(f"types of {', '.join(models)}; expected {PRETRAINED} and {QUESTIONS}, too.")
    of_model = zip(models, tables, strict=True)
    types = {model: table.set_index(["layer", "head"])["type"] for model, table in of_model}
    types = pd.DataFrame(types).sort_index()
    before = types[PRETRAINED].rename("before")
    after = types.drop(columns=PRETRAINED).rename_axis(columns="task")
    found = after.unstack([0, 1]).rename("after").reset_index().merge(before.reset_index())
    found["changed"] = found["before"] != found["after"]
    depth = (found["layer"] - 1) / found["layer"].max()
    shares = types.apply(lambda own: own.value_counts(normalize=True)).fillna(0.0)
    top = (types.loc[types.index[-1][0]] == MIXED).sum()  # dense&vertical heads of the last layer
    both = [PRETRAINED, QUESTIONS]
    numbers = {
        "moves.largest_distance": shares.sub(shares[PRETRAINED], axis=0).abs().sum().max() / 2,
        "moves.same": 1 - found["changed"].mean(),
        "moves.last_minus_first": found["changed"][depth >= 2 / 3].mean()
        - found["changed"][depth < 1 / 3].mean(),
        "moves.top_dense_vertical": top[both].min() - top.drop(both).max(),
    }
    same = 1 - found.groupby("task")["changed"].mean()
    numbers |= {f"moves.{model}.same": share for model, share in same.items()}
    table = found[["layer", "head", "before", "after", "changed", "task"]]
    return Found(table, {name: Finding(float(value)) for name, value in numbers.items()})
