"""Sec. 4.1: the fine-tuned models, and whether they have learnt their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.measuring.bootstrap import REPLICATES, percentile_interval
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.training.glue import scores
from experiments.shared.training.taskplans import tuned_model


@experiment(version=1, trains=True)
def tuning(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    seed: int = 0,
) -> Found:
    """The scores of a fine-tuned model on held-out inputs, beside the best constant answer.

    table  metric, value, low, high (95 % bootstrap over inputs), constant
    """
    model = tuned_model(train, encoder=encoder, task=task, recipe=recipe)
    answers, labels = model.outputs(test)
    kind = TASKS[task]
    constant = _constant(kind, model.outputs(train)[1] if kind.regression else labels)
    table = pd.DataFrame({"value": scores(kind, answers, labels)})
    table["low"], table["high"] = _interval(kind, answers, labels, seed)
    ignorant = pd.Series(scores(kind, np.full_like(answers, constant), labels))
    table["constant"] = ignorant.fillna(0.0)  # a constant answer has no correlation
    numbers = {
        f"{task}.{row.Index}": Finding(row.value, row.low, row.high) for row in table.itertuples()
    }
    told = ("n_train", "steps", "epochs", "final_loss", "seconds", "history", "recipe")
    facts = {
        "inputs": model.facts["n_train"],
        "held_out": len(test),
        "passes": 3 * model.facts["steps"] * model.facts["recipe"]["batch_size"] + len(test),
        "task": task,
        **{name: model.facts[name] for name in told},
    }
    return Found(table.rename_axis("metric").reset_index(), numbers, facts)


def _constant(task: Task, labels: np.ndarray) -> float:
    """The best answer that ignores the input: the most frequent class, or the mean score."""
    if task.regression:
        return float(np.mean(labels))
    values, counts = np.unique(labels, return_counts=True)
    return float(values[counts.argmax()])


def _interval(task: Task, answers: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """The ends (2, metric) of the interval of every metric, from inputs drawn again."""
    generator = np.random.default_rng(seed)
    draws = [generator.integers(0, len(labels), len(labels)) for _ in range(REPLICATES)]
    drawn = pd.DataFrame([scores(task, answers[at], labels[at]) for at in draws])
    return np.stack(percentile_interval(drawn.to_numpy()))


@experiment(version=1)
def tuning_overview(*tables: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """The smallest gain of a model over the constant answer, in accuracy or correlation.

    tables  those of `tuning`, one per task
    """
    gains = []
    for table, task in zip(tables, tasks, strict=True):
        metric = "spearman" if TASKS[task].regression else "accuracy"
        row = table.set_index("metric").loc[metric]
        gains.append({"task": task, "metric": metric, "gain": row["value"] - row["constant"]})
    found = pd.DataFrame(gains)
    return Found(found, {"tuned.least_gain": Finding(float(found["gain"].min()))})
