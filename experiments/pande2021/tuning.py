"""Sec. 4.1: the fine-tuned models, and whether they have learnt their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import mode

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.intervals import drawn, drawn_places
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
    again = drawn_places(len(labels), np.random.default_rng(seed))
    values = pd.DataFrame([scores(kind, answers[at], labels[at]) for at in again])
    found = {metric: drawn(of_draws.to_numpy()) for metric, of_draws in values.items()}
    table = pd.DataFrame({metric: vars(one) for metric, one in found.items()}).T
    constant = np.mean(model.outputs(train)[1]) if kind.regression else mode(labels).mode
    ignorant = pd.Series(scores(kind, np.full_like(answers, constant), labels))
    table["constant"] = ignorant.fillna(0.0)  # a constant answer has no correlation
    numbers = {f"{task}.{metric}": one for metric, one in found.items()}
    told = ("n_train", "steps", "epochs", "final_loss", "seconds", "history", "recipe")
    facts = {
        "inputs": model.facts["n_train"],
        "held_out": len(test),
        "passes": 3 * model.facts["steps"] * model.facts["recipe"]["batch_size"] + len(test),
        "task": task,
        **{name: model.facts[name] for name in told},
    }
    return Found(table.rename_axis("metric").reset_index(), numbers, facts)


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
