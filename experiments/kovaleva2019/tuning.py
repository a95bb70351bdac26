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
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.similarity import compared
from attnlib.measuring.stream import Measurement, measure
from attnlib.metrics.registry import Metric
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.intervals import drawn, drawn_places, mean_ends
from experiments.shared.training.finetune import STARTS as TRAINED
from experiments.shared.training.finetune import FineTuned, TaskHead
from experiments.shared.training.glue import row_scores
from experiments.shared.training.taskplans import tuned_model

UNTRAINED = "untrained"
STARTS = (UNTRAINED, *sorted(TRAINED))
"""The head as it is drawn at random, and the three trainings."""
CONSTANT = "constant"


def measure_tuned(
    train: Corpus, test: Corpus, metrics: Sequence[Metric], **plan: Any
) -> Measurement:
    """Some metrics of the fine-tuned model; plan  what `tuned_model` takes."""
    how: Any = {"max_length": plan["recipe"]["max_length"], "on_long": "truncate"}
    tuned = tuned_model(train, **plan).encoder
    return measure(tuned, test, metrics, **how)


@experiment(version=1, trains=True)
def start_answers(*corpora: Corpus, encoder: Encoder, start: str, **plan: Any) -> Found:
    """What a model answers to the held-out inputs after a training from one of the starts.

    plan  task and recipe
    "untrained" is the pre-trained encoder with a head of random weights, the paper's "pre-trained".
    table  answer, label; one row per input
    """
    check_choice("start", start, STARTS)
    train, test = corpora
    task, recipe = TASKS[plan["task"]], plan["recipe"]
    facts: dict[str, Any] = {"inputs": len(test), "task": task.name, "start": start}
    if start == UNTRAINED:
        head = TaskHead(encoder, task.n_labels, int(recipe["seed"])).eval()
        model = FineTuned(encoder, head.requires_grad_(False), task, {"recipe": recipe})
    else:
        model = tuned_model(train, encoder=encoder, start=start, **plan)
        kept = ("n_train", "steps", "epochs", "final_loss", "seconds")
        facts |= {name: model.facts[name] for name in kept}
        forward_and_back = 1 if start == "frozen" else 3
        facts["passes"] = forward_and_back * facts["steps"] * recipe["batch_size"] + len(test)
    answers, labels = model.outputs(test)
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
    for name in tasks:
        task = TASKS[name]
        points = _points(task, {start: next(given) for start in starts}, seed)
        for (start, metric), values in points.items():
            rows.append({"task": name, "start": start, "metric": metric, **vars(drawn(values))})
        own = {start: points[start, task.metric] for start in (*starts, CONSTANT)}
        tuned, constant = own["pretrained"], own.pop(CONSTANT)
        own["above_constant"] = tuned - constant
        own["random_below"] = tuned - own["random"]
        own["gain"] = tuned - own[UNTRAINED]
        found |= {f"tuning.{name}.{what}": drawn(values) for what, values in own.items()}
        companion = task.metric if task.regression else "accuracy"
        gains.append(points["pretrained", companion] - points[UNTRAINED, companion])
        worse.append(own["random"] < tuned)
        below.append(own["random"] < own["frozen"])
    found["tuning.mean_gain"] = drawn(np.mean(gains, axis=0))
    found["tuning.random_worse"] = drawn(np.mean(worse, axis=0))
    found["tuning.random_below_frozen"] = drawn(np.sum(below, axis=0))
    return Found(pd.DataFrame(rows), found, {"tasks": list(tasks)})


def _points(
    task: Task, tables: Mapping[str, pd.DataFrame], seed: int
) -> dict[tuple[str, str], np.ndarray]:
    """(start, metric) -> points on all inputs, then on inputs drawn again, the same for all."""
    labels = next(iter(tables.values()))["label"].to_numpy(float)
    answers = np.stack([table["answer"].to_numpy(float) for table in tables.values()])
    answers = np.concatenate([answers, np.full((1, len(labels)), _constant(task, labels))])
    draws = drawn_places(len(labels), np.random.default_rng(seed))
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
    return float(np.nanargmax(row_scores(every, labels, task)))


# --- maps before and after -----------------------------------------------------------------------


@experiment(version=1, trains=True)
def map_cosines(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    variant: str = "paper",
    seed: int = 0,
    **plan: Any,
) -> Found:
    """The cosine of each head's maps before and after fine-tuning, mean over the test inputs.

    plan   task and recipe of the fine-tuned model
    table  task, layer, head, cosine, low, high
    facts  layers: the mean cosine of every layer on all inputs, then on inputs drawn again
    """
    tuned = tuned_model(train, encoder=encoder, **plan).encoder
    how: Any = {"max_length": int(plan["recipe"]["max_length"]), "variant": variant}
    values = compared(encoder, tuned, test.examples, **how)
    values = values[~np.isnan(values).any((1, 2))]  # inputs without pieces have no map
    ends = mean_ends(values, seed)
    table = head_rows(cosine=ends.mean, low=ends.low, high=ends.high)
    table.insert(0, "task", plan["task"])
    draws = values.mean(2)[drawn_places(len(values), np.random.default_rng(seed))].mean(1)
    facts = {
        "inputs": len(values),
        "passes": 2 * len(values),
        "task": plan["task"],
        "variant": variant,
        "layers": np.round(draws, 6).tolist(),
    }
    return Found(table, facts=facts)


@experiment(version=1)
def cosine_overview(*draws: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """In how many tasks the last two layers change most, and whether change grows with depth.

    draws  of every task, the mean cosines of `map_cosines`: a column per layer, a row per draw
    table  task, layer, cosine, low, high
    """
    last, order, rows = [], [], []
    for table, task in zip(draws, tasks, strict=True):
        values = table.to_numpy(float)
        layers = np.arange(values.shape[1])
        lowest = np.sort(values.argsort(1)[:, :2], axis=1)
        last.append((lowest == layers[-2:]).all(1))
        order.append([spearmanr(layers, row).statistic for row in values])
        rows += [{"task": task, "layer": n + 1, **vars(drawn(values[:, n]))} for n in layers]
    found = {
        "cosine.last_two": drawn(np.mean(last, axis=0)),
        "cosine.layer_correlation": drawn(np.mean(order, axis=0)),
    }
    table = pd.DataFrame(rows).rename(columns={"value": "cosine"})
    return Found(table, found, {"tasks": list(tasks)})
