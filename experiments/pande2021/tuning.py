"""Sec. 4.1: the fine-tuned models, and whether they have learnt their tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.measuring.bootstrap import LEVEL, REPLICATES
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.glue import scores
from experiments.shared.taskplans import tuned_model


@experiment(version=1, trains=True)
def tuning(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """The scores of a fine-tuned model on held-out inputs, beside the best constant answer.

    table  metric, value, low, high (95 % bootstrap over inputs), constant
    """
    model = tuned_model(train, encoder=encoder, task=task, recipe=recipe, progress=progress)
    answers, labels = model.outputs(test)
    kind = TASKS[task]
    constant = _constant(kind, model.outputs(train)[1] if kind.regression else labels)
    found = scores(kind, answers, labels)
    base = scores(kind, np.full_like(answers, constant), labels)
    ends = _intervals(kind, answers, labels, list(found), seed)
    rows = [
        {
            "metric": name,
            "value": value,
            "low": ends[name][0],
            "high": ends[name][1],
            "constant": 0.0 if math.isnan(base[name]) else base[name],
        }
        for name, value in found.items()
    ]
    facts = model.facts
    told = ("n_train", "steps", "epochs", "final_loss", "seconds", "history", "recipe")
    return Found(
        pd.DataFrame(rows),
        {f"{task}.{name}": Finding(value, *ends[name]) for name, value in found.items()},
        {
            "inputs": facts["n_train"],
            "held_out": len(test),
            "passes": 3 * facts["steps"] * facts["recipe"]["batch_size"] + len(test),
            "task": task,
            **{name: facts[name] for name in told},
        },
    )


def _constant(task: Task, labels: np.ndarray) -> float:
    """The best answer that ignores the input: the most frequent class, or the mean score."""
    if task.regression:
        return float(np.mean(labels))
    values, counts = np.unique(labels, return_counts=True)
    return float(values[counts.argmax()])


def _intervals(
    task: Task, answers: np.ndarray, labels: np.ndarray, names: list[str], seed: int
) -> dict[str, tuple[float, float]]:
    generator = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(REPLICATES):
        chosen = generator.integers(0, len(labels), len(labels))
        for name, value in scores(task, answers[chosen], labels[chosen]).items():
            drawn[name].append(value)
    tail = 100 * (1 - LEVEL) / 2
    return {
        name: (float(np.nanpercentile(v, tail)), float(np.nanpercentile(v, 100 - tail)))
        for name, v in drawn.items()
    }


def tuning_rows(found: Mapping[str, Found]) -> pd.DataFrame:
    """The table of all tasks: the task's own metric and accuracy, ours beside the constant."""
    table = pd.concat([one.table.assign(task=task) for task, one in found.items()])
    return table.assign(label=table["task"] + " " + table["metric"]).reset_index(drop=True)


def tuning_caption(found: Mapping[str, Found]) -> str:
    """What each model was trained on, for the figure of their scores."""
    parts = [
        f"{task}: {one.facts['n_train']:,} inputs, {one.facts['steps']} steps"
        for task, one in found.items()
    ]
    told = "; ".join(parts)
    return f"Scores on held-out inputs with 95% intervals, and the best constant answer. {told}."


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
