"""Sec. 4.1: the fine-tuned models, and whether they have learnt their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import mode

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.pande2021.draws import draws_of
from experiments.shared.training.glue import scores
from experiments.shared.training.taskplans import tuned_model


@experiment(version=2, trains=True)
def tuning(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    seed: int = 0,
) -> Found:
    """The scores of a fine-tuned model on held-out inputs, next to the best constant answer.

    table  one column per metric, one row per draw of the inputs; the first is all inputs
    facts  constant: metric -> the score of the best constant answer
    """
    model = tuned_model(train, encoder=encoder, task=task, recipe=recipe)
    answers, labels = model.outputs(test)
    kind = TASKS[task]
    places = [np.repeat(np.arange(len(labels)), n.astype(int)) for n in draws_of(test, seed)]
    table = pd.DataFrame([scores(kind, answers[at], labels[at]) for at in places])
    constant = np.mean(model.outputs(train)[1]) if kind.regression else mode(labels).mode
    ignorant = scores(kind, np.full_like(answers, constant), labels)
    told = ("n_train", "steps", "epochs", "final_loss", "seconds", "history", "recipe")
    facts = {
        "inputs": model.facts["n_train"],
        "held_out": len(test),
        "passes": 3 * model.facts["steps"] * model.facts["recipe"]["batch_size"] + len(test),
        "task": task,
        # a constant answer has no correlation
        "constant": {metric: float(np.nan_to_num(value)) for metric, value in ignorant.items()},
        **{name: model.facts[name] for name in told},
    }
    return Found(table, facts=facts)
