"""Sec. 4.3: what fine-tuning brings to a task (Table 1), and which maps it changes (Fig. 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.errors import check_choice
from attnlib.measuring.bootstrap import REPLICATES, estimate
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.similarity import compared
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.intervals import drawn
from experiments.shared.training.finetune import STARTS as TRAINED
from experiments.shared.training.finetune import FineTuned, TaskHead
from experiments.shared.training.glue import row_scores
from experiments.shared.training.taskplans import tuned_model

UNTRAINED = "untrained"
STARTS = (UNTRAINED, *sorted(TRAINED))
"""The head as it is drawn at random, and the three trainings."""
CONSTANT = "constant"
DRAWS = 1000


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


# --- maps before and after -----------------------------------------------------------------------


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
