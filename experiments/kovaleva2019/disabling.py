"""Sec. 4.6, Fig. 8 and 9: every head and every layer disabled, and what really follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.measuring.significance import ALPHA, benjamini_hochberg
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.shared.ablation import Answers, disabled, every_head_and_layer, p_values
from experiments.shared.intervals import (
    UNDEFINED,
    drawn,
    drawn_counts,
    halved,
    means,
    rank_correlations,
    seed_of,
    settled,
)
from experiments.shared.training.glue import row_scores
from experiments.shared.training.taskplans import tuned_model

HARMLESS = -0.5
"""Points that a head may cost and still count as not needed."""
EXCHANGES, SMALL = 1000, 0.02
LOSS = "loss_"


@experiment(version=2, trains=True)
def disabled_answers(train: Corpus, test: Corpus, *, encoder: Encoder, **plan: Any) -> Found:
    """What the fine-tuned model answers as it is, and with each head or layer at 1/L.

    plan   task and recipe of the fine-tuned model
    table  label, whole, then a column per head ("5-4") and per layer ("layer 5"); then the loss of
           each of these (cross-entropy, or squared error), as "loss_5_4"; a row per input
    """
    model = tuned_model(train, encoder=encoder, **plan)
    variants = every_head_and_layer(model)
    found = disabled(model, test, variants)
    kind = np.float32 if model.task.regression else np.int8
    columns = dict(zip(found.names, found.answers.astype(kind), strict=True))
    losses = dict(zip(map(loss_column, found.names), found.losses.astype(np.float32), strict=True))
    facts = {"inputs": len(test), "passes": len(test) * (1 + len(variants)), "task": plan["task"]}
    return Found(pd.DataFrame({"label": found.labels, **columns, **losses}), facts=facts)


def loss_column(name: str) -> str:
    """The column with the loss of a variant; its name has no hyphen, those of heads have one."""
    return LOSS + name.replace("-", "_").replace(" ", "_")


# --- what a head or layer gains when it is disabled -----------------------------------------------


@dataclass(frozen=True, eq=False)
class Sweep:
    """The answers of one task's model under every variant, and what they gain over the whole model.

    table  that of `disabled_answers`

    Gains are in points of accuracy (of the correlation for scores), those of the loss are its fall
    in percent of the whole model's; (1 + draw, variant), on all inputs and then on inputs drawn
    again, the same for every variant. Where the whole model gives every input the same answer all
    are NaN; so is the correlation of a variant that does.
    """

    table: pd.DataFrame
    name: str
    seed: int = 0

    @cached_property
    def task(self) -> Task:
        kind = TASKS[self.name]
        return kind if kind.regression else replace(kind, metric="accuracy")

    @cached_property
    def variants(self) -> pd.DataFrame:
        """name, layer, and head (0 for a whole layer)."""
        names = [one for one in self.table.columns[2:] if not one.startswith(LOSS)]
        place = pd.Series(names).str.extract(r"(\d+)(?:-(\d+))?").fillna("0").astype(int)
        return pd.DataFrame({"name": names, "layer": place[0], "head": place[1]})

    @cached_property
    def is_head(self) -> np.ndarray:
        return self.variants["head"].to_numpy() > 0

    @cached_property
    def answers(self) -> Answers:
        """The answers and losses of the whole model, then of every variant."""
        names = ("whole", *self.variants["name"])
        told = self.table[list(names)].to_numpy(float).T
        losses = self.table[[*map(loss_column, names)]].to_numpy(float).T
        return Answers(names, told, self.table["label"].to_numpy(float), self.task, losses)

    @cached_property
    def counts(self) -> np.ndarray:
        return drawn_counts(len(self.table), seed_of(self.name, self.seed))

    @cached_property
    def halves(self) -> np.ndarray:
        return halved(self.counts, seed_of(self.name, self.seed))

    def scores(self, counts: np.ndarray) -> np.ndarray:
        """Points of the whole model and every variant on inputs drawn so often: (draw, variant)."""
        found = self.answers
        if not self.task.regression:
            return 100 * means(counts, (found.answers == found.labels).T)
        rows = []
        for one in counts.astype(int):
            places = np.repeat(np.arange(len(one)), one)
            rows.append(row_scores(found.answers[:, places], found.labels[places], self.task))
        return 100 * np.array(rows)

    def gains(self, of: str, counts: np.ndarray) -> np.ndarray:
        """Gains of every variant in the "score" or the "loss": (..., draw, variant)."""
        if counts.ndim > 2:
            return np.stack([self.gains(of, part) for part in counts])
        if np.ptp(self.answers.answers[0]) == 0:
            return np.full((len(counts), len(self.variants)), np.nan)
        if of == "score":
            values = self.scores(counts)
            return np.asarray(values[:, 1:] - values[:, :1])
        values = means(counts, self.answers.losses.T)
        return np.asarray(100 * (1 - values[:, 1:] / values[:, :1]))

    @cached_property
    def drawn(self) -> dict[str, np.ndarray]:
        """Of "score" and "loss" the gains, (1 + draw, variant)."""
        return {of: self.gains(of, self.counts) for of in ("score", "loss")}

    @cached_property
    def by_half(self) -> dict[str, np.ndarray]:
        """The same on two halves of the inputs: (half, SPLITS + draw, variant)."""
        return {of: self.gains(of, self.halves) for of in ("score", "loss")}

    def p(self) -> np.ndarray:
        """Two-sided p of every change of the score; small ones by more exchanges.

        144 tests ask for p below 1/1000. NaN where the change is undefined.
        """
        p = p_values(self.answers, draws=EXCHANGES, seed=self.seed)
        small = np.flatnonzero(p < SMALL) if self.task.regression else np.array([], int)
        if len(small):
            rows = [0, *(1 + small)]
            part = replace(self.answers, answers=self.answers.answers[rows])
            p[small] = p_values(part, draws=20 * EXCHANGES, seed=self.seed + 1)
        return np.where(np.isnan(self.drawn["score"][0]), np.nan, p)


@experiment(version=2)
def disabling_effects(answers: pd.DataFrame, *, task: str, seed: int = 0) -> Found:
    """The change by every head and layer, in points of the score, with its uncertainty.

    answers  the table of `disabled_answers`
    table    task, name, layer, head (0 for a whole layer), change, low, high (paired bootstrap),
             p (two-sided), loss: fall of the loss in percent, with loss_low and loss_high
    facts    score of the whole model; undefined: variants of which the change is
    """
    sweep = Sweep(answers, task, seed)
    table = sweep.variants.assign(p=sweep.p())
    table.insert(0, "task", task)
    for name, of, ends in (("change", "score", ""), ("loss", "loss", "loss_")):
        found = [drawn(one) for one in sweep.drawn[of].T]
        table[name] = [one.value for one in found]
        table[f"{ends}low"] = [one.low for one in found]
        table[f"{ends}high"] = [one.high for one in found]
    facts = {"inputs": len(answers), "task": task, "undefined": int(table["change"].isna().sum())}
    return Found(table, facts=facts | {"score": float(sweep.scores(sweep.counts[:1])[0, 0])})


def controlled(effects: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All effects of all tasks with q_gain and q_loss: false discoveries controlled for each.

    Gains and losses are two families, and so are heads and whole layers, each over all tasks: many
    true losses must not lend significance to gains.
    """
    table = pd.concat(effects, ignore_index=True)
    for name, sign in (("q_gain", 1), ("q_loss", -1)):
        p = (table["p"] / 2).where(sign * table["change"] > 0, 1 - table["p"] / 2)
        table[name] = p.groupby(table["head"] > 0).transform(
            lambda family: benjamini_hochberg(family.to_numpy())
        )
    return table


def agreement_of_halves(losses: Sequence[np.ndarray]) -> np.ndarray:
    """How much less two tasks agree on the heads than two halves of one task (1 + draw).

    losses  of each task the gains in loss by half: (half, SPLITS + draw, head)

    Rank correlation over heads of a half of one task with a half of another, mean over pairs of
    tasks, less that of the two halves of one task, mean over tasks. NaN for a single task.
    """
    if len(losses) < 2:
        return UNDEFINED
    within = [rank_correlations(one[0], one[1]) for one in losses]
    between = [
        rank_correlations(one[a], other[1 - a])
        for one, other in combinations(losses, 2)
        for a in (0, 1)
    ]
    apart = np.mean(between, axis=0) - np.mean(within, axis=0)
    return settled(np.stack([apart, apart]))


# --- what these inputs could have shown -----------------------------------------------------------


@experiment(version=1)
def power_curve(answers: pd.DataFrame, *, task: str) -> Found:
    r"""The chance that a true change by a head would have been seen, for changes of any size.

    .. math:: 1 - \beta = \Phi\left(\frac{|\delta| \sqrt{n}}{s} - z_{1 - \alpha / 2m}\right)

    s  spread over inputs of the change by a head: the median over heads, all taken as typical
    m  heads tested: 1, or all of them (Bonferroni), for a level of 5 percent in all

    table  task, of (score, loss), tested, size (points, or percent of the loss), power
    facts  score and loss: the size seen with power 0.8 among all heads
    """
    sweep = Sweep(answers, task)
    n, rows, facts = len(answers), [], {"inputs": len(answers), "task": task}
    spreads = _spreads(sweep)
    for of, spread in spreads.items():
        for tested in (1, int(sweep.is_head.sum())):
            limit, unit = ndtri(1 - ALPHA / (2 * tested)), spread / np.sqrt(n)
            sizes = np.linspace(0, 2 * (limit + ndtri(0.8)) * unit, 41)
            power = ndtr(sizes / unit - limit) if unit > 0 else np.full(41, np.nan)
            row = {"task": task, "of": of, "tested": tested, "size": sizes, "power": power}
            rows.append(pd.DataFrame(row))
            facts[of] = float((limit + ndtri(0.8)) * unit) if unit > 0 else None
    return Found(pd.concat(rows, ignore_index=True), facts=facts)


def _spreads(sweep: Sweep) -> dict[str, float]:
    """Median over heads of the spread of a change over inputs; of a correlation by its draws."""
    found, heads = sweep.answers, np.concatenate([[False], sweep.is_head])
    loss = found.losses[heads] - found.losses[0]
    spreads = {"loss": 100 * loss.std(1) / found.losses[0].mean()}
    if sweep.task.regression:
        again = sweep.drawn["score"][1:, sweep.is_head]
        spreads["score"] = np.nanstd(again, axis=0) * np.sqrt(len(sweep.table))
    else:
        right = (found.answers == found.labels).astype(float)
        spreads["score"] = 100 * (right[heads] - right[0]).std(1)
    return {of: float(np.median(spreads[of])) for of in ("score", "loss")}
