"""Sec. 4: heads in four types, where these lie, and which heads fine-tuning moves (Fig. 1-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.clusters import silhouettes
from experiments.guan2020.features import Features, features_of
from experiments.guan2020.models import PRETRAINED, QUESTIONS
from experiments.shared.head_types import TYPES, plane
from experiments.shared.intervals import drawn

REPLICATES = 200
MIXED = "dense&vertical"


@experiment(version=1, trains=True)
def head_types(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Found:
    """Four clusters of the heads of a model, named by the rule on their centroids.

    settings  task, recipe, max_length: see `features_of`
    table     layer, head, type, x, y (t-SNE), silhouette, consistent (share of inputs whose feature
              alone is nearest to the centroid of the head's type), special, near, far (mass)
    """
    found = features_of(*corpora, encoder=encoder, progress=progress, **settings)
    mean = found.mean
    clusters = found.clustered(mean, seed=seed)
    naming, types = found.named(mean, clusters)
    table = found.heads().assign(type=types)
    table[["x", "y"]] = plane(mean, seed=seed)
    table["silhouette"] = silhouettes(mean, clusters.labels)
    alone = np.stack([clusters.predict(one) == clusters.labels for one in found.rows])
    table["consistent"] = alone.mean(0)
    numbers = _with_intervals(found, types, alone, seed) if model == QUESTIONS else {}
    facts = {
        "inputs": len(found.rows),
        "tokens": found.tokens,
        "model": model,
        "margins": naming.margins.round(4).to_dict("records"),
        "moved_after_lloyd": int(clusters.n_moved),
    }
    return Found(table.join(found.masses(mean)), numbers, facts)


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


@experiment(version=1)
def type_moves(*tables: pd.DataFrame, models: Sequence[str]) -> Found:
    """The type of every head before and after, for each fine-tuned model (Fig. 4).

    tables  those of `head_types`, the pre-trained model's first
    table   task (the model), layer, head, before, after, changed
    """
    if not {PRETRAINED, QUESTIONS} <= set(models):
        raise BadValue(f"types of {', '.join(models)}; expected {PRETRAINED} and {QUESTIONS}, too.")
    types = pd.DataFrame(
        {
            model: table.set_index(["layer", "head"])["type"]
            for model, table in zip(models, tables, strict=True)
        }
    )
    before, tuned = types[PRETRAINED], types.drop(columns=PRETRAINED)
    changed = tuned.ne(before, axis=0)
    layer = types.index.get_level_values("layer")
    depth = (layer - 1) / layer.max()
    shares = types.apply(lambda own: own.value_counts(normalize=True)).fillna(0.0)
    top = (types.loc[layer.max()] == MIXED).sum()  # dense&vertical heads of the last layer
    others = top.drop([PRETRAINED, QUESTIONS])
    numbers = {
        "moves.largest_distance": shares.sub(shares[PRETRAINED], axis=0).abs().sum().max() / 2,
        "moves.same": 1 - changed.stack().mean(),
        "moves.last_minus_first": changed[depth >= 2 / 3].stack().mean()
        - changed[depth < 1 / 3].stack().mean(),
        "moves.top_dense_vertical": top[[PRETRAINED, QUESTIONS]].min() - others.max(),
        **{f"moves.{model}.same": 1 - changed[model].mean() for model in tuned},
    }
    parts = [
        pd.DataFrame({"before": before, "after": tuned[model], "changed": changed[model]})
        .reset_index()
        .assign(task=model)
        for model in tuned
    ]
    findings = {name: Finding(float(value)) for name, value in numbers.items()}
    return Found(pd.concat(parts, ignore_index=True), findings)
