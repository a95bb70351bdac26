"""Sec. 4.6, Fig. 8 and 9: every head and every layer disabled, and what really follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.shared.ablation import Answers, disabled, every_head_and_layer, p_values
from experiments.shared.intervals import (
    UNDEFINED,
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

    def spreads(self) -> dict[str, float]:
        """Median over heads of the spread of a change over inputs; of a correlation by draws."""
        found, heads = self.answers, np.concatenate([[False], self.is_head])
        loss = found.losses[heads] - found.losses[0]
        if self.task.regression:
            score = np.nanstd(self.drawn["score"][1:, self.is_head], axis=0)
            score = score * np.sqrt(len(self.table))
        else:
            right = 100.0 * (found.answers == found.labels)
            score = (right[heads] - right[0]).std(1)
        of_loss = 100 * loss.std(1) / found.losses[0].mean()
        return {"score": float(np.median(score)), "loss": float(np.median(of_loss))}


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
