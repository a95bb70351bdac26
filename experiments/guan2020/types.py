"""Sec. 4: heads in four types, how many types there are, and how stable (Fig. 1-3, Table 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.measuring.bootstrap import LEVEL
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.features import N_TYPES, Features, features_of
from experiments.guan2020.subjects import QUESTIONS
from experiments.guan2020.typestability import (
    against_one_cloud,
    best_k,
    cluster_counts,
    silhouettes,
    stabilities,
    stability,
)
from experiments.shared.headtypes import TYPES, fitted, named_types, naming, plane

REPLICATES = 200
GAP_DRAWS = 50
SLUGS = {name: name.replace("&", "_") for name in TYPES}
"""Types as the names of numbers have them."""


@experiment(version=1, trains=True)
def head_types(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    task: str | None,
    recipe: Mapping[str, Any] | None,
    max_length: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """Four clusters of the heads of a model, named by the rule on their centroids.

    table  layer, head, type, x, y (t-SNE), silhouette, consistent (share of inputs whose feature
           alone is nearest to the centroid of the head's type), special, near, far (mass)
    """
    given: Any = {"encoder": encoder, "task": task, "recipe": recipe, "max_length": max_length}
    found = features_of(*corpora, **given, progress=progress)
    mean = found.mean
    clustering = fitted(mean, N_TYPES, seed=seed, special=found.special)
    table = found.heads()
    table["type"] = named_types(mean, clustering, found.special, found.near)
    table[["x", "y"]] = plane(mean, seed=seed)
    table["silhouette"] = silhouettes(mean, clustering.labels)
    alone = np.stack([clustering.predict(one) == clustering.labels for one in found.rows])
    table["consistent"] = alone.mean(0)
    for name in ("special", "near", "far"):
        table[name] = mean[:, getattr(found, name)].sum(1)
    margins = naming(mean, clustering, found.special, found.near).margins
    numbers = {}
    if model == QUESTIONS:
        numbers = _with_intervals(found, table["type"].tolist(), seed)
        draws = [alone[chosen].mean() for chosen in _drawn(len(alone), seed)]
        numbers["types.consistent"] = Finding(float(alone.mean()), *_ends(draws))
    facts = {
        "inputs": len(found.rows),
        "tokens": found.tokens,
        "model": model,
        "margins": margins.round(4).to_dict("records"),
        "moved_after_lloyd": int(clustering.n_moved),
    }
    return Found(table, numbers, facts)


@experiment(version=1, trains=True)
def cluster_number(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    task: str | None,
    recipe: Mapping[str, Any] | None,
    max_length: int,
    draws: int = 200,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """How many clusters there are by three criteria, and whether there are any.

    draws   random clouds without clusters, for the gap statistic and for the silhouette
    table   that of `cluster_counts` for 1 to 8 clusters, with the silhouette of points of one
            cloud beside that of the heads (null_low, null_median, null_high)
    """
    given: Any = {"encoder": encoder, "task": task, "recipe": recipe, "max_length": max_length}
    found = features_of(*corpora, **given, progress=progress)
    counts = cluster_counts(found.mean, seed=seed, draws=min(draws, GAP_DRAWS)).set_index("k")
    clouds = {
        k: against_one_cloud(found.mean, k, seed=seed, draws=draws) for k in counts.index if k > 1
    }
    for name in ("low", "median", "high"):
        counts[f"null_{name}"] = pd.Series({k: getattr(one, name) for k, one in clouds.items()})
    counts = counts.rename(columns={"gap_error": "gap_se"})
    best = best_k(counts.reset_index().rename(columns={"gap_se": "gap_error"}))
    at_four = counts.loc[N_TYPES]
    numbers = {
        "clusters.one_cloud_p": clouds[N_TYPES].p_value,
        "clusters.mixture_agreement": float(at_four["agreement"]),
        "clusters.silhouette_gap_at_4": float(counts["silhouette"].max() - at_four["silhouette"]),
        **{f"clusters.best_{name}": float("nan") if k is None else k for name, k in best.items()},
    }
    facts = {
        "inputs": len(found.rows),
        "best": best,
        "silhouette_at_4": float(at_four["silhouette"]),
    }
    findings = {name: Finding(float(value)) for name, value in numbers.items()}
    return Found(counts.reset_index(), findings, facts)


@experiment(version=1, trains=True)
def type_stability(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    task: str | None,
    recipe: Mapping[str, Any] | None,
    max_length: int,
    ks: Sequence[int] = (3, 4, 5),
    repeats: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """Table 1: heads that keep their cluster in ten fits on random halves.

    table  model, k, split ("inputs", "heads"), stability, low, high (over repeats with other
           halves), null, null_low, null_high (the same for points of one cloud), n_fits
    """
    given: Any = {"encoder": encoder, "task": task, "recipe": recipe, "max_length": max_length}
    found = features_of(*corpora, **given, progress=progress)
    rows, numbers = [], {}
    for k in ks:
        for split in ("inputs", "heads"):
            first = stability(found.rows, k, seed=seed, split=split)
            again = stabilities(found.rows, k, seed=seed, split=split, repeats=repeats)
            chance = stabilities(
                found.rows, k, seed=seed, split=split, repeats=repeats, cloud="simplex"
            )
            rows.append(
                {
                    "model": model,
                    "k": k,
                    "split": split,
                    "stability": again.mean,
                    "low": again.low,
                    "high": again.high,
                    "first": first.stability,
                    "null": chance.mean,
                    "null_low": chance.low,
                    "null_high": chance.high,
                    "n_fits": len(first.labels),
                }
            )
            if split == "inputs":
                ends = (again.mean, again.low, again.high)
                if k == N_TYPES:
                    numbers[f"stability.{model}"] = Finding(*(100 * end for end in ends))
                else:
                    numbers[f"stability.{model}.k{k}"] = Finding(*ends)
    return Found(pd.DataFrame(rows), numbers, {"inputs": len(found.rows), "model": model})


def type_numbers(found: Features, mean: np.ndarray, types: Sequence[str]) -> dict[str, float]:
    """The numbers that claims on types ask for, from mean features and the heads' types."""
    of = np.array(types)
    masses = {
        part: {
            name: float(mean[of == name][:, getattr(found, part)].sum(1).mean()) for name in TYPES
        }
        for part in ("special", "near", "far")
    }
    shares = {name: 100 * float((of == name).mean()) for name in TYPES}
    n_layers = int(found.layers.max())
    depths = {
        name: float((found.layers[of == name] - 1).mean() / max(n_layers - 1, 1)) for name in TYPES
    }
    special, far = masses["special"], masses["far"]
    numbers = {f"types.{SLUGS[name]}.share": share for name, share in shares.items()}
    numbers |= {f"types.{SLUGS[name]}.share_from_30": abs(s - 30) for name, s in shares.items()}
    numbers |= {f"types.{SLUGS[name]}.depth": depth for name, depth in depths.items()}
    others = {name: [shares[other] for other in TYPES if other != name] for name in TYPES}
    between = sorted((special["dense"], special["vertical"]))
    numbers |= {
        "types.dense_vertical.share_lead": shares["dense&vertical"] - max(others["dense&vertical"]),
        "types.vertical.share_below": min(others["vertical"]) - shares["vertical"],
        "types.dense.far_lead": far["dense"] - max(far[n] for n in TYPES if n != "dense"),
        "types.diagonal.special_between": min(
            special["diagonal"] - between[0], between[1] - special["diagonal"]
        ),
        "types.dense_vertical.lead": min(
            far["dense&vertical"] - far["diagonal"], special["dense&vertical"] - special["diagonal"]
        ),
        "types.vertical.special_ratio": special["vertical"]
        / max(1e-12, *(special[name] for name in TYPES if name != "vertical")),
        "types.diagonal.layers": len(set(found.layers[of == "diagonal"])) / n_layers,
        "types.dense_vertical.off_middle": abs(depths["dense&vertical"] - 0.5),
    }
    return numbers


def _with_intervals(found: Features, types: Sequence[str], seed: int) -> dict[str, Finding]:
    """The numbers from all inputs; clusters and names are found again for inputs drawn anew."""
    value = type_numbers(found, found.mean, types)
    spread: dict[str, list[float]] = {name: [] for name in value}
    for chosen in _drawn(len(found.rows), seed):
        mean = found.rows[chosen].mean(0)
        for name, number in type_numbers(found, mean, _types_of(found, mean, seed)).items():
            spread[name].append(number)
    return {name: Finding(number, *_ends(spread[name])) for name, number in value.items()}


def _types_of(found: Features, mean: np.ndarray, seed: int) -> list[str]:
    clustering = fitted(mean, N_TYPES, seed=seed, starts=3, special=found.special)
    return named_types(mean, clustering, found.special, found.near)


def _drawn(n: int, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, n, n) for _ in range(REPLICATES)]


def _ends(spread: Sequence[float]) -> tuple[float, float]:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(spread, [tail, 100 - tail])
    return float(low), float(high)
