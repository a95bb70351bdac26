"""What a head does to a model's answers, to its loss, and to its changes by fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from attnlib.attention.interventions import head_named
from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS
from attnlib.measuring.bootstrap import estimate, mean_ends, percentile_interval
from attnlib.measuring.head_tables import head_places, head_rows
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.clark2019.gradients import attention_gradients
from experiments.clark2019.masked_lm import Budget, masked_lm_head, unmeasured
from experiments.shared.ablation import (
    Answers,
    drawn_changes,
    p_values,
    row_scores,
    single_ablations,
    spread_out,
)
from experiments.shared.intervals import columns_of
from experiments.shared.training.publishedreader import reader_of

HALVES = 200
QUESTIONS = "questions"
CLASSES = ("sep", "period_or_comma", "other")
"""These three share out all keys."""


@experiment(version=1)
def task_effects(answers: pd.DataFrame, *, task: str, seed: int = 0) -> Found:
    """What disabling each head costs a task, and how many of its answers change at all.

    answers  the table of Kovaleva's `disabled_answers`: the whole model, then a column per head
    table    layer, head, cost (points lost, with low and high), p (two-sided, of the cost),
             influence: percent of the answers that change; of scores their mean change in percent
             of the labels' spread
    facts    reliability of both: the rank correlation of two halves of the inputs, over heads,
             stepped up to the whole (Spearman and Brown)
    """
    heads = [name for name in answers.columns if "-" in name]
    label, whole = answers["label"].to_numpy(float), answers["whole"].to_numpy(float)
    changed = answers[heads].to_numpy(float).T
    regression = TASKS[task].regression
    moved = np.abs(changed - whole) / label.std() if regression else changed != whole
    rows = np.concatenate([whole[None], changed])

    def costs(places: np.ndarray) -> np.ndarray:
        points = 100 * row_scores(rows[:, places], label[places], TASKS[task])
        return np.asarray(points[0] - points[1:])

    generator = np.random.default_rng(seed)
    n = len(label)
    found = Answers(("whole", *heads), rows, label, TASKS[task])
    again = -drawn_changes(found, seed=generator)
    ends = mean_ends(moved.T.astype(float), seed)
    table = head_places(map(head_named, heads)).assign(cost=costs(np.arange(n)))
    table["cost_low"], table["cost_high"] = percentile_interval(again)
    table["p"] = p_values(found, seed=seed)
    table = table.assign(**columns_of("influence", ends, 100))
    halves = _halves(n, generator)
    reliability = {
        "cost": _reliability([(costs(a), costs(b)) for a, b in halves]),
        "influence": _reliability([(moved[:, a].mean(1), moved[:, b].mean(1)) for a, b in halves]),
    }
    return Found(table, facts={"inputs": n, "task": task, "reliability": reliability})


def _halves(n: int, generator: np.random.Generator) -> list[list[np.ndarray]]:
    """Places of the inputs in two halves, many times."""
    return [np.split(generator.permutation(n), [n // 2]) for _ in range(HALVES)]


def _reliability(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float | None:
    """Mean rank correlation of two halves, and what it would be of two wholes: 2r / (1 + r)."""
    differ = [pair for pair in pairs if all(np.ptp(half) > 0 for half in pair)]
    found = [float(spearmanr(*pair).statistic) for pair in differ]
    if not found:
        return None
    r = float(np.mean(found))
    return 2 * r / (1 + r) if r > 0 else r


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
    table, rises, facts = single_ablations(reader, questions, action="uniform")
    rise, f1 = rises.T, table.pop("f1")  # question head
    for name, values in (("cost", rise), ("influence", np.abs(rise))):
        table = table.assign(**columns_of(name, mean_ends(values, 0)))
    known = rise[~np.isnan(rise).any(1)]
    halves = _halves(len(known), np.random.default_rng(0))
    reliability = {
        name: _reliability([(part[a].mean(0), part[b].mean(0)) for a, b in halves])
        for name, part in (("cost", known), ("influence", np.abs(known)))
    }
    facts |= {"task": QUESTIONS, "reliability": reliability}
    return Found(table.assign(f1=f1), facts=facts)


@experiment(version=1)
def effect_reliability(*, facts: Mapping[str, Mapping[str, Any]]) -> Found:
    """How far two halves of the inputs order the heads alike, by task.

    facts  task -> the facts of `task_effects`, or of `question_effects`
    table  task, cost, influence: reliability of the order of heads by each, 1 at best
    The median leaves questions out: they have a loss, and neither points nor answers to count.
    """
    rows = [{"task": task, **one["reliability"]} for task, one in facts.items()]
    table = pd.DataFrame(rows).astype({"cost": float, "influence": float})
    tasks = table[table["task"] != QUESTIONS]
    found = {
        f"reliability.{name}": Finding(float(tasks[name].median()))
        for name in ("cost", "influence")
    }
    return Found(table, found, {"tasks": list(facts)})


@experiment(version=1, trains=True)
def head_gradients(
    corpus: Corpus, fit_on: Corpus, *, encoder: Encoder, maskings: int = 2, seed: int = 0
) -> Found:
    r"""How much the masked-LM loss hangs on each head's attention.

    .. math:: \frac{1}{n} \sum_q \sum_k |\partial L / \partial a_{qk}| \, a_{qk}

    fit_on  texts for a masked-LM head where the model has none; those of `corpus` are left out
    table   layer, head, mean, low, high
    """
    fit_on = unmeasured(fit_on, corpus)
    budget = Budget(n_maskings=maskings, n_epochs=1)
    head, quality = masked_lm_head(encoder, fit_on, budget=budget, seed=seed)
    found = attention_gradients(encoder, head, corpus, max_length=128, seed=seed)
    # The classes share out all keys and their weights count pairs, so sums are summed.
    total = sum(found.rows(name, "gradient_times_attention")[0] for name in CLASSES)
    pairs = sum(found.rows(name)[1] for name in CLASSES)
    assert isinstance(total, np.ndarray)
    ends = estimate(total, np.sqrt(np.asarray(pairs, float)), seed=seed)  # n queries of n x n pairs
    table = head_rows(mean=ends.mean, low=ends.low, high=ends.high)
    facts = {"inputs": len(corpus), "passes": len(corpus) + maskings * len(fit_on)}
    facts |= {name: quality[name] for name in ("accuracy", "baseline_accuracy")}
    return Found(table, {"gradient.accuracy": Finding(float(quality["accuracy"]))}, facts)
