"""Sec. 4.3, Table 1: what a task's score owes to the pre-trained weights and to fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.errors import check_choice
from attnlib.measuring.bootstrap import REPLICATES
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.kovaleva2019.grids import drawn
from experiments.shared.ablation import row_scores
from experiments.shared.finetune import STARTS as TRAINED
from experiments.shared.finetune import FineTuned, TaskHead
from experiments.shared.taskplans import tuned_model

UNTRAINED = "untrained"
STARTS = (UNTRAINED, *sorted(TRAINED))
"""The head as it is drawn at random, and the three trainings."""
CONSTANT = "constant"


@experiment(version=1, trains=True)
def start_answers(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    start: str,
    progress: Progress | None = None,
) -> Found:
    """What a model answers to the held-out inputs after a training from one of the starts.

    "untrained" is the pre-trained encoder with a head of random weights, the paper's "pre-trained".
    table  answer, label; one row per input
    """
    check_choice("start", start, STARTS)
    if start == UNTRAINED:
        head = TaskHead(encoder, TASKS[task].n_labels, int(recipe["seed"])).eval()
        model = FineTuned(encoder, head.requires_grad_(False), TASKS[task], {"recipe": recipe})
    else:
        model = tuned_model(
            train, encoder=encoder, task=task, recipe=recipe, start=start, progress=progress
        )
    answers, labels = model.outputs(test)
    facts: dict[str, Any] = {"inputs": len(test), "task": task, "start": start}
    if start != UNTRAINED:
        kept = ("n_train", "steps", "epochs", "final_loss", "seconds")
        facts |= {name: model.facts[name] for name in kept}
        forward_and_back = 1 if start == "frozen" else 3
        facts["passes"] = forward_and_back * facts["steps"] * recipe["batch_size"] + len(test)
    return Found(pd.DataFrame({"answer": answers, "label": labels}), facts=facts)


@experiment(version=1)
def starts_overview(
    *answers: pd.DataFrame, tasks: Sequence[str], starts: Sequence[str], seed: int = 0
) -> Found:
    """Table 1: the score of every task after every training, in points, and what differs.

    answers  the tables of `start_answers`: all starts of the first task, then of the next
    table    task, start, metric, value, low, high; the start "constant" is the best answer that
             ignores its input
    """
    given = iter(answers)
    rows: list[dict[str, Any]] = []
    found: dict[str, Finding] = {}
    gains, worse, below = [], [], []
    for task in tasks:
        tables = {start: next(given) for start in starts}
        points = _points(TASKS[task], tables, seed)
        for (start, metric), values in points.items():
            one = drawn(values)
            rows.append({"task": task, "start": start, "metric": metric, **vars(one)})
        own = {start: points[start, TASKS[task].metric] for start in (*starts, CONSTANT)}
        found |= _findings(task, own)
        companion = "accuracy" if (starts[0], "accuracy") in points else TASKS[task].metric
        if {"pretrained", UNTRAINED} <= set(starts):
            gains.append(points["pretrained", companion] - points[UNTRAINED, companion])
        if {"pretrained", "random"} <= set(starts):
            worse.append((own["random"] < own["pretrained"]).astype(float))
        if {"frozen", "random"} <= set(starts):
            below.append((own["random"] < own["frozen"]).astype(float))
    overall: tuple[tuple[str, list[np.ndarray], Any], ...] = (
        ("tuning.mean_gain", gains, np.mean),
        ("tuning.random_worse", worse, np.mean),
        ("tuning.random_below_frozen", below, np.sum),
    )
    for name, of_tasks, how in overall:
        if of_tasks:
            found[name] = drawn(how(of_tasks, axis=0))
    return Found(pd.DataFrame(rows), found, {"tasks": list(tasks)})


def _points(
    task: Task, tables: Mapping[str, pd.DataFrame], seed: int
) -> dict[tuple[str, str], np.ndarray]:
    """(start, metric) -> points on all inputs, then on inputs drawn again, the same for all."""
    labels = next(iter(tables.values()))["label"].to_numpy(float)
    answers = np.stack([table["answer"].to_numpy(float) for table in tables.values()])
    answers = np.concatenate([answers, np.full((1, len(labels)), _constant(task, labels))])
    generator = np.random.default_rng(seed)
    draws = [np.arange(len(labels))]
    draws += [generator.integers(0, len(labels), len(labels)) for _ in range(REPLICATES)]
    found = {}
    for metric in dict.fromkeys((task.metric, *([] if task.regression else ["accuracy"]))):
        by = replace(task, metric=metric)
        values = np.stack([row_scores(answers[:, at], labels[at], by) for at in draws], axis=1)
        if task.regression:  # a constant answer has no correlation: it tells nothing
            values[-1] = 0.0
        for start, own in zip((*tables, CONSTANT), values, strict=True):
            found[start, metric] = 100 * own
    return found


def _constant(task: Task, labels: np.ndarray) -> float:
    """The best answer that ignores the input: the one class with the best score, or the mean."""
    if task.regression:
        return float(labels.mean())
    every = np.tile(np.arange(task.n_labels, dtype=float)[:, None], len(labels))
    with np.errstate(invalid="ignore"):
        return float(np.nanargmax(row_scores(every, labels, task)))


def _findings(task: str, own: Mapping[str, np.ndarray]) -> dict[str, Finding]:
    values = {start: points for start, points in own.items() if start != CONSTANT}
    if "pretrained" in own:
        values["above_constant"] = own["pretrained"] - own[CONSTANT]
        for start, name in (("random", "random_below"), (UNTRAINED, "gain")):
            if start in own:
                values[name] = own["pretrained"] - own[start]
    return {f"tuning.{task}.{name}": drawn(points) for name, points in values.items()}
