"""What a head does to a model's answers, to its loss, and to its changes by fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS
from attnlib.measuring.bootstrap import estimate
from attnlib.measuring.head_tables import head_rows
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.clark2019.gradients import attention_gradients
from experiments.clark2019.masked_lm import masked_lm, unmeasured
from experiments.shared.ablation import Answers, p_values, row_scores, single_ablations, spread_out
from experiments.shared.intervals import TAIL, columns_of, mean_ends
from experiments.shared.training.publishedreader import reader_of

HALVES = 200
QUESTIONS = "questions"
DRAWS = 1000
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
    again = np.stack([costs(generator.integers(0, n, n)) for _ in range(DRAWS)])
    ends = estimate(moved.T.astype(float), np.ones_like(moved.T, dtype=float), seed=seed)
    places = np.array([[int(part) for part in name.split("-")] for name in heads])
    table = pd.DataFrame({"layer": places[:, 0], "head": places[:, 1], "cost": costs(np.arange(n))})
    table["cost_low"], table["cost_high"] = np.nanpercentile(again, [TAIL, 100 - TAIL], axis=0)
    table["p"] = p_values(Answers(("whole", *heads), rows, label, TASKS[task]), seed=seed)
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
    heads, outcome = single_ablations(reader, questions, action="uniform")
    rise = (outcome.loss[1:] - outcome.loss[0]).T  # question head
    table = pd.DataFrame(np.array(heads) + 1, columns=["layer", "head"])
    for name, values in (("cost", rise), ("influence", np.abs(rise))):
        table = table.assign(**columns_of(name, mean_ends(values, 0)))
    table["f1"] = 100 * (outcome.f1[0] - outcome.f1[1:]).mean(1)
    known = rise[~np.isnan(rise).any(1)]
    halves = _halves(len(known), np.random.default_rng(0))
    reliability = {
        name: _reliability([(part[a].mean(0), part[b].mean(0)) for a, b in halves])
        for name, part in (("cost", known), ("influence", np.abs(known)))
    }
    facts = {
        "inputs": len(questions),
        "passes": len(outcome.names) * len(questions),
        "task": QUESTIONS,
        "whole_loss": float(np.nanmean(outcome.loss[0])),
        "whole_f1": 100 * float(outcome.f1[0].mean()),
        "reliability": reliability,
    }
    return Found(table, facts=facts)


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
    r"""How much the masked-LM loss hangs on each head's attention.

    .. math:: \frac{1}{n} \sum_q \sum_k |\partial L / \partial a_{qk}| \, a_{qk}

    fit_on  texts for a masked-LM model where the checkpoint is none; those of `corpus` are left
            out. head_epochs, epochs: see `masked_lm`
    table   layer, head, mean, low, high
    """
    others, passes = unmeasured(fit_on, corpus), head_epochs + epochs
    how: Any = {"head_epochs": head_epochs, "epochs": epochs, "seed": seed}
    model, quality = masked_lm(encoder, others, **how)
    found = attention_gradients(model, corpus, max_length=128, seed=seed)
    # The classes share out all keys and their weights count pairs, so sums are summed.
    total = sum(found.rows(name, "gradient_times_attention")[0] for name in CLASSES)
    pairs = sum(found.rows(name)[1] for name in CLASSES)
    assert isinstance(total, np.ndarray)
    ends = estimate(total, np.sqrt(np.asarray(pairs, float)), seed=seed)  # n queries of n x n pairs
    table = head_rows(mean=ends.mean, low=ends.low, high=ends.high)
    facts = {"inputs": len(corpus), "passes": len(corpus) + passes * quality["n_train"]}
    facts |= {name: quality[name] for name in ("accuracy", "baseline_accuracy")}
    return Found(table, {"gradient.accuracy": Finding(float(quality["accuracy"]))}, facts)
