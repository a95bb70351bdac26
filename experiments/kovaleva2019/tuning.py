"""Sec. 4.3: what fine-tuning brings to a task (Table 1), and which maps it changes (Fig. 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlib.attention.encode import model_inputs
from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.errors import check_choice
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.similarity import compared
from attnlib.measuring.stream import Measurement, measure
from attnlib.metrics.registry import Metric
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.shared.intervals import drawn_places, mean_ends, mean_of, seed_of
from experiments.shared.training.finetune import STARTS as TRAINED
from experiments.shared.training.finetune import FineTuned, TaskHead
from experiments.shared.training.glue import labels_of, row_scores
from experiments.shared.training.taskplans import tuned_model

STARTS = tuple(TRAINED)
CONSTANT, UNTRAINED = "constant", "untrained"
HEADS = 20
"""Heads of random weights whose mean score is that of the model without fine-tuning."""
PAPER_TASKS = ("mrpc", "stsb", "sst2", "qqp", "rte", "qnli", "mnli")
"""Those of Table 1; a finding that names one of them is undefined where it was not run."""


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

    plan   task and recipe
    table  answer, label; one row per input
    """
    check_choice("start", start, STARTS)
    train, test = corpora
    recipe = plan["recipe"]
    model = tuned_model(train, encoder=encoder, start=start, **plan)
    kept = ("n_train", "steps", "epochs", "final_loss", "seconds")
    facts: dict[str, Any] = {name: model.facts[name] for name in kept}
    forward_and_back = 1 if start == "frozen" else 3
    facts["passes"] = forward_and_back * facts["steps"] * recipe["batch_size"] + len(test)
    answers, labels = model.outputs(test)
    facts |= {"inputs": len(test), "task": plan["task"], "start": start}
    return Found(pd.DataFrame({"answer": answers, "label": labels}), facts=facts)


@experiment(version=1)
def untrained_answers(
    test: Corpus, *, encoder: Encoder, task: str, recipe: Mapping[str, Any]
) -> Found:
    """What the pre-trained encoder answers with heads of random weights: the paper's "pre-trained".

    table  label, then a column per head; one row per input
    """
    kind, first = TASKS[task], int(recipe["seed"])
    heads = [TaskHead(encoder, kind.n_labels, first + number).eval() for number in range(HEADS)]
    model = FineTuned(encoder, heads[0], kind, {"recipe": recipe})
    table = np.empty((len(test), 1 + HEADS))
    table[:, 0] = labels_of(test, kind)
    for batch in model.batches(test.examples):
        with torch.inference_mode():
            hidden = encoder.model(**model_inputs(batch, encoder))[0]
            told = [model.answers(head(hidden, batch)) for head in heads]
        table[list(batch.index), 1:] = np.stack(told, axis=1)
    columns = ["label", *(f"head {number + 1}" for number in range(HEADS))]
    facts = {"inputs": len(test), "passes": len(test), "task": task}
    return Found(pd.DataFrame(table, columns=columns), facts=facts)


def drawn_points(
    task: str, tables: Mapping[str, pd.DataFrame], untrained: pd.DataFrame, seed: int
) -> dict[tuple[str, str], np.ndarray]:
    """(start, metric) -> points on all inputs, then on inputs drawn again, the same for all.

    The start "constant" is the best answer that ignores its input; "untrained" is the mean over the
    heads of random weights, which are drawn again, too. A constant answer has no correlation.
    """
    labels, kind = untrained["label"].to_numpy(float), TASKS[task]
    rows = [table["answer"].to_numpy(float) for table in tables.values()]
    rows += [np.full(len(labels), _constant(kind, labels)), *untrained.to_numpy(float).T[1:]]
    generator = np.random.default_rng(seed_of(task, seed))
    draws = drawn_places(len(labels), generator)
    heads = drawn_places(HEADS, generator)
    found = {}
    for metric in dict.fromkeys((kind.metric, kind.metric if kind.regression else "accuracy")):
        by, answers = replace(kind, metric=metric), np.stack(rows)
        values = np.stack([row_scores(answers[:, at], labels[at], by) for at in draws], axis=1)
        n = len(tables) + 1
        for start, own in zip((*tables, CONSTANT), values[:n], strict=True):
            found[start, metric] = 100 * own
        found[UNTRAINED, metric] = 100 * mean_of(np.take_along_axis(values[n:], heads.T, 0))
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
