"""What a head does to a model's answers, to its loss, and to its changes by fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import erfc

from attnlib.attention.ablation import every_head, mean_outputs
from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.errors import BadValue
from attnlib.measuring.similarity import compared
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.draws import (
    DRAWS,
    Counts,
    PerHead,
    all_heads,
    document_numbers,
    drawn_counts,
    draws_of,
    halved_counts,
    left_out,
    mean_of,
    reliability,
    with_draws,
)
from experiments.clark2019.gradients import attention_gradients
from experiments.clark2019.masked_lm import masked_lm, unmeasured
from experiments.shared.ablation import (
    Answers,
    disabled,
    p_values,
    row_scores,
    single_ablations,
    spread_out,
)
from experiments.shared.intervals import columns_of, mean_ends
from experiments.shared.training.publishedreader import reader_of
from experiments.shared.training.taskplans import tuned_model

SPLITS = 20
"""Halvings on which the head that helps most is chosen and tested."""
FITTED = 200
"""Training inputs over which the mean output of a head is taken."""
CLASSES = ("sep", "period_or_comma", "other")
"""These three share out all keys."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """A task answered by the whole model (first row), and with each head changed in turn.

    answers  (1 + head, input)   class indices or scores
    losses   (1 + head, input)   cross-entropy in nats, or the squared error of a score
    """

    heads: Sequence[str]
    labels: Float[np.ndarray, " input"]
    answers: Float[np.ndarray, "row input"]
    losses: Float[np.ndarray, "row input"]
    task: Task

    def changed(self) -> Float[np.ndarray, "input head"]:
        """100 where an answer changes; of scores the change in percent of the labels' spread."""
        whole, other = self.answers[0], self.answers[1:]
        if self.task.regression:
            return np.asarray(100 * np.abs(other - whole).T / self.labels.std())
        return 100.0 * (other != whole).T

    def costs(self, counts: Counts) -> Float[np.ndarray, "draw head"]:
        """Points lost: accuracy, or a task's correlation, of the whole model minus a head's."""
        if not self.task.regression:
            right = mean_of((self.answers == self.labels).T)(counts)
        else:
            places = [np.repeat(np.arange(len(row)), row.astype(int)) for row in counts]
            scores = [row_scores(self.answers[:, at], self.labels[at], self.task) for at in places]
            right = np.nan_to_num(scores)  # answers that are all the same correlate with nothing
        return 100 * (right[:, :1] - right[:, 1:])

    def measures(self) -> dict[str, PerHead]:
        """What a head does, from how often each input is there."""
        loss = np.abs(self.losses[1:] - self.losses[0]).T
        return {"cost": self.costs, "influence": mean_of(self.changed()), "loss": mean_of(loss)}


def sweep_of(answers: pd.DataFrame, task: str) -> Sweep:
    """The heads of Kovaleva's `disabled_answers`, without whole layers.

    answers  label, whole, a column per head ("5-4"), and the loss of each, such as "loss_5_4"
    """
    heads = [name for name in answers.columns if "-" in name]
    rows = ["whole", *heads]
    losses = [f"loss_{name.replace('-', '_')}" for name in rows]
    if missing := set(losses) - set(answers.columns):
        raise BadValue(f"the answers have no column '{min(missing)}'; run `disabled_answers` anew.")
    given, moved = (answers[names].to_numpy(float).T for names in (rows, losses))
    return Sweep(heads, answers["label"].to_numpy(float), given, moved, TASKS[task])


@experiment(version=2)
def task_effects(answers: pd.DataFrame, inputs: Corpus, *, task: str, seed: int = 0) -> Found:
    """What disabling each head costs a task, how many answers change, and how far the loss moves.

    answers  the table of Kovaleva's `disabled_answers`
    inputs   what was answered: inputs that share a text are drawn together
    table    layer, head, p (two-sided, of the cost), and with `_low`, `_high` and `_draws`: cost
             (points of accuracy or correlation), influence: percent of the answers that change (of
             scores their mean change in percent of the labels' spread), loss: mean size of the
             change of an input's loss, up or down
    facts    reliability of the order of heads by each; without: the same without each part of the
             inputs; helped: see `_helped`
    """
    sweep, documents = sweep_of(answers, task), document_numbers(inputs.examples)
    table, facts = _measured(sweep, documents, sweep.measures(), seed)
    spread = draws_of(table, "cost")[1:].std(0)
    if sweep.task.regression:
        with np.errstate(invalid="ignore", divide="ignore"):
            p = erfc(np.abs(table["cost"]) / spread / np.sqrt(2))  # a normal tail
        table["p"] = np.where(spread > 0, p, 1.0)
    else:
        by_accuracy = replace(sweep.task, metric="accuracy")
        names = ("whole", *sweep.heads)
        table["p"] = p_values(Answers(names, sweep.answers, sweep.labels, by_accuracy), seed=seed)
    facts |= {"helped": _helped(sweep.costs, documents, seed)}
    return Found(table, facts={"task": task, **facts})


def _measured(
    sweep: Sweep, documents: np.ndarray, measures: Mapping[str, PerHead], seed: int
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A table of heads with the draws of every measure, and how reliable each orders the heads."""
    places = np.array([[int(part) for part in name.split("-")] for name in sweep.heads])
    table = pd.DataFrame({"layer": places[:, 0], "head": places[:, 1]})
    counts = drawn_counts(documents, seed)
    for name, of in measures.items():
        table = with_draws(table, name, of(counts))
    facts = {
        "inputs": len(documents),
        "reliability": {name: reliability(of, documents, seed) for name, of in measures.items()},
        "without": {name: left_out(of, documents, seed) for name, of in measures.items()},
    }
    return table, facts


def _helped(costs: PerHead, documents: np.ndarray, seed: int) -> list[float]:
    """Points gained on one half of the inputs by disabling the head that gains most on the other.

    Both ways round: the mean over 20 halvings, then one halving after another whose halves are
    drawn again. Heads that gain the same are chosen from at random.
    """
    generator = np.random.default_rng(seed)

    def gains(halves: np.ndarray) -> np.ndarray:
        each = -costs(halves.reshape(-1, len(documents))).reshape(*halves.shape[:2], -1)
        rank = np.nan_to_num(each, nan=-np.inf) + 1e-9 * generator.random(each.shape)
        best = rank.argmax(-1, keepdims=True)
        return np.asarray(np.take_along_axis(each[:, ::-1], best, -1).mean((1, 2)))

    whole = gains(halved_counts(documents, seed, halves=SPLITS)).mean()
    again = gains(halved_counts(documents, seed + 1, halves=DRAWS, redrawn=True))
    return [float(value) for value in (whole, *again)]


@experiment(version=1, trains=True)
def replaced_heads(
    train: Corpus, test: Corpus, *, encoder: Encoder, action: str, seed: int = 0, **plan: Any
) -> Found:
    """What changes when a head's output is zero, or its mean over tokens of training inputs.

    action  "zero" or "mean", see `Intervention`
    plan    task and recipe of the fine-tuned model
    table   layer, head, influence and loss as in `task_effects`; facts  as there
    """
    model = tuned_model(train, encoder=encoder, **plan)
    how: dict[str, Any] = {}
    if action == "mean":
        how["means"] = mean_outputs(model.encoder, model.batches(train.examples[:FITTED]))
    variants = every_head(model.encoder, action, **how)
    found = disabled(model, test, variants)
    sweep = Sweep(found.names[1:], found.labels, found.answers, found.losses, model.task)
    measures = {name: of for name, of in sweep.measures().items() if name != "cost"}
    table, facts = _measured(sweep, document_numbers(test.examples), measures, seed)
    passes = len(test) * (1 + len(variants))
    return Found(table, facts={"task": plan["task"], "action": action, "passes": passes, **facts})


@experiment(version=1, trains=True)
def head_changes(
    train: Corpus, test: Corpus, *, encoder: Encoder, seed: int = 0, **plan: Any
) -> Found:
    """How much fine-tuning changes every head's maps: 1 minus their cosine, mean over inputs.

    plan   task and recipe of the fine-tuned model
    table  layer, head, change with `_low`, `_high` and `_draws`
    facts  reliability of the order of heads
    """
    tuned = tuned_model(train, encoder=encoder, **plan).encoder
    values = compared(encoder, tuned, test.examples, max_length=int(plan["recipe"]["max_length"]))
    kept = ~np.isnan(values).any((1, 2))  # inputs without pieces have no map
    documents = document_numbers([one for one, has in zip(test.examples, kept, strict=True) if has])
    of = mean_of(1 - values[kept])
    places, counts = all_heads(*values.shape[1:]), drawn_counts(documents, seed)
    table = with_draws(places, "change", of(counts))
    sure = {"change": reliability(of, documents, seed)}
    facts = {"inputs": len(documents), "passes": 2 * len(documents), "task": plan["task"]}
    return Found(table, facts={**facts, "reliability": sure})


@experiment(version=1, trains=True)
def question_effects(
    *corpora: Corpus, encoder: Encoder, recipe: Mapping[str, Any] | None, n_questions: int
) -> Found:
    """The same for answering questions: every head at 1/L in turn.

    corpora  what the model learns to answer from, and last the questions that it is asked
    table    layer, head, cost (rise of the right answer's cross-entropy, in nats), influence: mean
             size of that change, with ends; f1 (points lost)
    """
    *train, asked = corpora
    reader = reader_of(*train, encoder=encoder, recipe=recipe)
    chosen = spread_out([question.article for question in asked.examples], n_questions)
    questions = [asked.examples[place] for place in chosen]
    heads, outcome = single_ablations(reader, questions, action="uniform")
    rise = (outcome.loss[1:] - outcome.loss[0]).T  # question head
    table = pd.DataFrame(np.array(heads) + 1, columns=["layer", "head"])
    for name, values in (("cost", rise), ("influence", np.abs(rise))):
        table = table.assign(**columns_of(name, mean_ends(values, 0)))
    table["f1"] = 100 * (outcome.f1[0] - outcome.f1[1:]).mean(1)
    known = rise[~np.isnan(rise).any(1)]
    each = np.arange(len(known))
    reliable = {
        name: reliability(mean_of(part), each, 0) if len(known) else None
        for name, part in (("cost", known), ("influence", np.abs(known)))
    }
    facts = {
        "inputs": len(questions),
        "passes": len(outcome.names) * len(questions),
        "task": "questions",
        "whole_loss": float(np.nanmean(outcome.loss[0])),
        "whole_f1": 100 * float(outcome.f1[0].mean()),
        "reliability": reliable,
    }
    return Found(table, facts=facts)


@experiment(version=2, trains=True)
def head_gradients(
    corpus: Corpus,
    fit_on: Corpus,
    *,
    encoder: Encoder,
    head_epochs: int = 1,
    epochs: int = 0,
    seed: int = 0,
) -> Found:
    r"""How much the masked-LM loss depends on each head's attention.

    .. math:: \frac{1}{n} \sum_q \sum_k |\partial L / \partial a_{qk}| \, a_{qk}

    fit_on  texts for a masked-LM model where the checkpoint is none; those of `corpus` are left
            out. head_epochs, epochs: see `masked_lm`
    table   layer, head, gradient with `_low`, `_high` and `_draws` (documents drawn again)
    facts   reliability of the order of heads
    """
    others, passes = unmeasured(fit_on, corpus), head_epochs + epochs
    how: Any = {"head_epochs": head_epochs, "epochs": epochs, "seed": seed}
    model, quality = masked_lm(encoder, others, **how)
    found = attention_gradients(model, corpus, max_length=128, seed=seed)
    # The classes share out all keys and their weights count pairs, so sums are summed.
    total = sum(found.rows(name, "gradient_times_attention")[0] for name in CLASSES)
    pairs = sum(found.rows(name)[1] for name in CLASSES)
    assert isinstance(total, np.ndarray)
    documents = document_numbers(corpus.examples)
    of = mean_of(total / np.sqrt(np.asarray(pairs, float)))  # n queries of n x n pairs
    places, counts = all_heads(*total.shape[1:]), drawn_counts(documents, seed)
    table = with_draws(places, "gradient", of(counts))
    facts: dict[str, Any] = {
        "inputs": len(corpus),
        "passes": len(corpus) + passes * quality["n_train"],
    }
    facts |= {name: quality[name] for name in ("accuracy", "baseline_accuracy")}
    facts["reliability"] = {"gradient": reliability(of, documents, seed)}
    return Found(table, {"gradient.accuracy": Finding(float(quality["accuracy"]))}, facts)
