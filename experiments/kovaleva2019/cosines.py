"""Sec. 4.3, Fig. 5: how much the map of every head changes by fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from attnlib.data.corpora import Corpus
from attnlib.measuring.bootstrap import estimate
from attnlib.measuring.similarity import compared
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.kovaleva2019.grids import drawn, head_rows
from experiments.shared.taskplans import tuned_model

DRAWS = 1000


@experiment(version=1, trains=True)
def map_cosines(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    variant: str = "paper",
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """The cosine of each head's maps before and after fine-tuning, mean over the test inputs.

    table  task, layer, head, cosine, low, high
    facts  layers: the mean cosine of every layer on all inputs, then on inputs drawn again
    """
    model = tuned_model(train, encoder=encoder, task=task, recipe=recipe, progress=progress)
    values = compared(
        encoder,
        model.encoder,
        test.examples,
        max_length=int(recipe["max_length"]),
        variant=variant,
        progress=progress,
    )
    values = values[~np.isnan(values).any((1, 2))]  # inputs without pieces have no map
    ends = estimate(values, np.ones_like(values), seed=seed)
    table = head_rows(cosine=ends.mean, low=ends.low, high=ends.high)
    table.insert(0, "task", task)
    by_layer = values.mean(2)
    generator = np.random.default_rng(seed)
    places = generator.integers(0, len(values), (DRAWS, len(values)))
    draws = np.concatenate([by_layer.mean(0)[None], by_layer[places].mean(1)])
    facts = {
        "inputs": len(values),
        "passes": 2 * len(values),
        "task": task,
        "variant": variant,
        "layers": np.round(draws, 6).tolist(),
    }
    return Found(table, facts=facts)


def layer_draws(found: Found) -> pd.DataFrame:
    """The mean cosine of every layer, one row per draw; the first row is of all inputs."""
    layers = np.array(found.facts["layers"])
    return pd.DataFrame(layers, columns=[f"layer {n + 1}" for n in range(layers.shape[1])])


@experiment(version=1)
def cosine_overview(*draws: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """In how many tasks the last two layers change most, and whether change grows with depth.

    draws  the tables of `layer_draws`, one per task
    table  task, layer, cosine, low, high
    """
    last, order, rows = [], [], []
    for table, task in zip(draws, tasks, strict=True):
        values = table.to_numpy(float)
        n_layers = values.shape[1]
        lowest = np.sort(values.argsort(1)[:, :2], axis=1)
        last.append((lowest == [n_layers - 2, n_layers - 1]).all(1).astype(float))
        order.append(np.array([spearmanr(range(n_layers), row).statistic for row in values]))
        for layer, own in enumerate(values.T, start=1):
            one = drawn(own)
            row = {"task": task, "layer": layer, "cosine": one.value}
            rows.append({**row, "low": one.low, "high": one.high})
    found = {
        "cosine.last_two": drawn(np.mean(last, axis=0)),
        "cosine.layer_correlation": drawn(np.mean(order, axis=0)),
    }
    return Found(pd.DataFrame(rows), found, {"tasks": list(tasks)})
