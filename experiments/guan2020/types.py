"""Sec. 4: heads in four types, where these lie, and which heads fine-tuning moves (Fig. 1-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.measuring.bootstrap import percentile_interval
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.clusters import silhouettes
from experiments.guan2020.features import N_TYPES, Features, features_of
from experiments.guan2020.models import PRETRAINED, QUESTIONS
from experiments.shared.head_types import TYPES, fitted, named_types, naming, plane

REPLICATES = 200
SLUGS = {name: name.replace("&", "_") for name in TYPES}
"""Types as the names of numbers have them."""


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
    clustering = fitted(mean, N_TYPES, seed=seed, special=found.special)
    table = found.heads()
    table["type"] = named_types(mean, clustering, found.special, found.near)
    table[["x", "y"]] = plane(mean, seed=seed)
    table["silhouette"] = silhouettes(mean, clustering.labels)
    alone = np.stack([clustering.predict(one) == clustering.labels for one in found.rows])
    table["consistent"] = alone.mean(0)
    table = table.join(found.masses(mean))
    margins = naming(mean, clustering, found.special, found.near).margins
    numbers = {}
    if model == QUESTIONS:
        numbers = _with_intervals(found, table["type"].tolist(), seed)
        draws = np.array([alone[chosen].mean() for chosen in _drawn(len(alone), seed)])
        ends = map(float, percentile_interval(draws))
        numbers["types.consistent"] = Finding(float(alone.mean()), *ends)
    facts = {
        "inputs": len(found.rows),
        "tokens": found.tokens,
        "model": model,
        "margins": margins.round(4).to_dict("records"),
        "moved_after_lloyd": int(clustering.n_moved),
    }
    return Found(table, numbers, facts)


def type_numbers(found: Features, mean: np.ndarray, types: Sequence[str]) -> dict[str, float]:
    """The numbers that claims on types ask for, from mean features and the heads' types."""
    heads = found.heads().join(found.masses(mean)).assign(type=types)
    by_type = heads.groupby("type")
    n_layers = int(heads["layer"].max())
    share = 100 * by_type.size() / len(heads)
    depth = (by_type["layer"].mean() - 1) / max(n_layers - 1, 1)
    special, far = by_type["special"].mean(), by_type["far"].mean()
    numbers = {}
    for name, slug in SLUGS.items():
        numbers[f"types.{slug}.share"] = share[name]
        numbers[f"types.{slug}.share_from_30"] = abs(share[name] - 30)
        numbers[f"types.{slug}.depth"] = depth[name]
    mixed = "dense&vertical"
    low, high = sorted((special["dense"], special["vertical"]))
    numbers |= {
        "types.dense_vertical.share_lead": share[mixed] - share.drop(mixed).max(),
        "types.vertical.share_below": share.drop("vertical").min() - share["vertical"],
        "types.dense.far_lead": far["dense"] - far.drop("dense").max(),
        "types.diagonal.special_between": min(
            special["diagonal"] - low, high - special["diagonal"]
        ),
        "types.dense_vertical.lead": min(
            far[mixed] - far["diagonal"], special[mixed] - special["diagonal"]
        ),
        "types.vertical.special_ratio": special["vertical"]
        / max(1e-12, special.drop("vertical").max()),
        "types.diagonal.layers": by_type["layer"].nunique()["diagonal"] / n_layers,
        "types.dense_vertical.off_middle": abs(depth[mixed] - 0.5),
    }
    return {name: float(value) for name, value in numbers.items()}


def _with_intervals(found: Features, types: Sequence[str], seed: int) -> dict[str, Finding]:
    """The numbers from all inputs; clusters and names are found again for inputs drawn anew."""
    value = type_numbers(found, found.mean, types)
    again = []
    for chosen in _drawn(len(found.rows), seed):
        mean = found.rows[chosen].mean(0)
        clustering = fitted(mean, N_TYPES, seed=seed, starts=3, special=found.special)
        names = named_types(mean, clustering, found.special, found.near)
        again.append(type_numbers(found, mean, names))
    ends = zip(*percentile_interval(pd.DataFrame(again)[list(value)].to_numpy()), strict=True)
    return {
        name: Finding(number, float(low), float(high))
        for (name, number), (low, high) in zip(value.items(), ends, strict=True)
    }


def _drawn(n: int, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, n, n) for _ in range(REPLICATES)]


@experiment(version=1)
def type_moves(*tables: pd.DataFrame, models: Sequence[str]) -> Found:
    """The type of every head before and after, for each fine-tuned model (Fig. 4).

    tables  those of `head_types`, the pre-trained model's first
    table   task (the model), layer, head, before, after, changed
    """
    missing = [name for name in (PRETRAINED, QUESTIONS) if name not in models]
    if missing or len(models) != len(tables):
        raise BadValue(
            f"{len(tables)} tables of types for the models {', '.join(models)}; expected one for "
            f"each, {PRETRAINED} and {QUESTIONS} among them."
        )
    types = {
        model: table.set_index(["layer", "head"])["type"]
        for model, table in zip(models, tables, strict=True)
    }
    tuned = [model for model in models if model != PRETRAINED]
    before = types[PRETRAINED].to_frame("before")
    parts = [before.assign(after=types[model], task=model).reset_index() for model in tuned]
    found = pd.concat(parts, ignore_index=True)
    found["changed"] = found["before"] != found["after"]
    shares = {
        model: own.value_counts(normalize=True).reindex(list(TYPES), fill_value=0.0)
        for model, own in types.items()
    }
    depth = (found["layer"] - 1) / found["layer"].max()
    # Dense&vertical heads of the last layer.
    top = {m: int((own.loc[own.index.max()[0]] == TYPES[2]).sum()) for m, own in types.items()}
    others = [top[model] for model in tuned if model != QUESTIONS]
    numbers = {
        "moves.largest_distance": max((shares[m] - shares[PRETRAINED]).abs().sum() for m in tuned)
        / 2,
        "moves.same": 1 - found["changed"].mean(),
        "moves.last_minus_first": found["changed"][depth >= 2 / 3].mean()
        - found["changed"][depth < 1 / 3].mean(),
        "moves.top_dense_vertical": min(top[PRETRAINED], top[QUESTIONS]) - max(others)
        if others
        else np.nan,
        **{f"moves.{m}.same": 1 - found["changed"][found["task"] == m].mean() for m in tuned},
    }
    table = found[["layer", "head", "before", "after", "changed", "task"]]
    return Found(table, {name: Finding(float(value)) for name, value in numbers.items()})
