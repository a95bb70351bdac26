"""Behind `attnlib ablate` on a task: heads of a fine-tuned model changed, beside random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention.interventions import Head
from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.measuring.significance import benjamini_hochberg
from attnlib.measuring.stream import Progress
from experiments.guan2020.command import beside_random
from experiments.shared.ablations import harm_p_value
from experiments.shared.disabling import (
    Answers,
    disabled,
    drawn_changes,
    every_head_and_layer,
    p_values,
    points,
)
from experiments.shared.finetune import FineTuned
from experiments.shared.intervals import drawn


def task_of(corpus: Corpus) -> Task | None:
    """The task whose labels a corpus has; None if it is no task's."""
    return TASKS.get(corpus.name.partition(":")[0]) if corpus.kind == "task" else None


def ablation(
    model: FineTuned,
    corpus: Corpus,
    heads: frozenset[Head],
    *,
    draws: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    **how: Any,
) -> pd.DataFrame:
    """The model as it is, with heads changed, and with random heads of the same layers changed.

    how      action and the open points of `Intervention`
    returns  one row each: what, n_heads, metric, score (points), lost with low and high (points
             below the model as it is, inputs drawn again), p (of the random sets, the share that
             is as harmful), n_inputs
    """
    variants = beside_random(heads, model.encoder, draws=draws, seed=seed, **how)
    found = disabled(model, corpus, variants, progress=progress)
    score, lost = points(found), _losses(found, seed)
    places: dict[str, Sequence[int]] = {"as it is": [0], "changed": [1]}
    if draws:
        places["random"] = range(2, len(found.names))
    rows = []
    for what, at in places.items():
        loss = drawn(lost[:, list(at)].mean(1))
        row = {"what": what, "n_heads": 0 if what == "as it is" else len(heads)}
        row |= {"metric": model.task.metric, "score": float(score[list(at)].mean())}
        row |= {"lost": loss.value, "low": loss.low, "high": loss.high}
        rows.append({**row, "p": np.nan, "n_inputs": len(corpus)})
    if draws:
        rows[1]["p"] = harm_p_value(float(score[1]), score[2:])
    return pd.DataFrame(rows)


def _losses(found: Answers, seed: int) -> np.ndarray:
    """(draw, variant): points below the whole model, of all inputs first, then of inputs drawn."""
    score = points(found)
    again = np.insert(-drawn_changes(found, seed=seed), 0, 0.0, axis=1)
    return np.vstack([score[0] - score, again])


def _place(name: str) -> tuple[int, int]:
    """Layer and head of "5-4", both from 1; a whole layer, such as "layer 5", has head 0."""
    layer, _, head = name.removeprefix("layer ").partition("-")
    return int(layer), int(head or 0)


def each_head(
    model: FineTuned,
    corpus: Corpus,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    **how: Any,
) -> pd.DataFrame:
    """What changing one head alone costs, and one whole layer, the costliest first.

    returns  layer, head (0 for the whole layer), metric, lost with low and high, p, q (false
             discoveries controlled, among heads and among layers), n_inputs
    """
    variants = {
        name: tuple(replace(one, **how) for one in variant)
        for name, variant in every_head_and_layer(model).items()
    }
    found = disabled(model, corpus, variants, progress=progress)
    lost = _losses(found, seed)[:, 1:]
    ends = [drawn(column) for column in lost.T]
    table = pd.DataFrame([_place(name) for name in variants], columns=["layer", "head"])
    table["metric"] = model.task.metric
    table["lost"], table["low"], table["high"] = zip(
        *((one.value, one.low, one.high) for one in ends), strict=True
    )
    table["p"] = p_values(found, seed=seed)
    own = table["p"].groupby(table["head"] > 0)
    table["q"] = own.transform(lambda part: benjamini_hochberg(part.to_numpy()))
    table["n_inputs"] = len(corpus)
    return table.sort_values("lost", ascending=False, ignore_index=True)
