"""Sec. 3.2 and 4.2: the bias scores of a task's inputs, and what a threshold makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Signature, signature
from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention.encode import batches_of
from attnlib.data.corpora import Corpus, with_trees
from attnlib.measuring.roles import AUTHORS, THRESHOLD, RoleScores, moments, role_scores, role_tests
from attnlib.measuring.significance import ALPHA, decided_by
from attnlib.metrics.sieves import AUTHORS_BY_WORD, COARSE, SIEVES
from attnlib.models import Encoder, random_twin, weights_digest
from bookkit.store import Experiment, Found, experiment
from experiments.pande2021.draws import OWN_TEXT, digits, draws_of, tested
from experiments.pande2021.sieves import new_sieves
from experiments.shared.training.taskplans import tuned_model

BLOCK = f"block{AUTHORS}"
COARSE_AS_JUDGED = tuple(BLOCK if role == "block" else role for role in COARSE)
AS_AUTHORS = ("local", "block", *sorted(AUTHORS_BY_WORD))
"""Roles that the authors' code scores in another way than the paper says."""
SIZES = (10, 20, 50, 100, 200, 500)
QUANTILES = 200
NETWORKS = 5
"""With random weights; the paper has one initialisation in mind, we average over several."""
CHANGING = ("local", "block", "delimiter", "cls", "sep", "syntactic")
ALWAYS = ("local", "delimiter", "syntactic")
"""Coarse roles that every input should define; block needs two texts."""
_KEPT: dict[tuple[str, ...], RoleScores] = {}
"""Scores of this process: several experiments look at the same ones."""


def scores_of(
    train: Corpus,
    test: Corpus,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    *,
    tuned: bool = True,
) -> RoleScores:
    """The scores of all roles on the test inputs, of the model before or after fine-tuning."""
    length = int(recipe["max_length"])
    which = (train.digest, task, repr(sorted(recipe.items()))) if tuned else ()
    key = (weights_digest(encoder), test.digest, str(length), *which)
    if key not in _KEPT:
        if tuned:
            encoder = tuned_model(train, encoder=encoder, task=task, recipe=recipe).encoder
        sieves = [*SIEVES.values(), *new_sieves(encoder, test)]
        _KEPT[key] = role_scores(encoder, test, sieves, authors=AS_AUTHORS, max_length=length)
    return _KEPT[key]


@dataclass(frozen=True, eq=False)
class TaskScores:
    """A task, and its scores when they are asked for: scores(tuned=False) before fine-tuning."""

    train: Corpus
    test: Corpus
    encoder: Encoder
    task: str
    recipe: Mapping[str, Any]

    def __call__(self, *, tuned: bool = True) -> RoleScores:
        asked = (self.train, self.test, self.encoder, self.task, self.recipe)
        return scores_of(*asked, tuned=tuned)


def on_scores(version: int = 1) -> Callable[[Callable[..., Found]], Experiment]:
    """An experiment on the inputs of a task, from a function (scores, options) of its scores.

    It asks for what `scores_of` needs, and for the options of the function.
    """

    def declare(measured: Callable[..., Found]) -> Experiment:
        @experiment(version=version, reads=["spacy-en"], trains=True)
        @wraps(measured)
        def run(
            train: Corpus,
            test: Corpus,
            *,
            encoder: Encoder,
            task: str,
            recipe: Mapping[str, Any],
            **options: Any,
        ) -> Found:
            return measured(TaskScores(train, test, encoder, task, recipe), **options)

        *inputs, _ = signature(run, follow_wrapped=False).parameters.values()
        _, *options = signature(measured).parameters.values()
        run.__signature__ = Signature([*inputs, *options])  # type: ignore[attr-defined]
        return run

    return declare


@on_scores()
def role_moments(scores: TaskScores, *, tuned: bool = True, seed: int = 0) -> Found:
    """Mean, spread and skewness of every role and head: all that a test needs.

    Also how often each role is defined, how high its score could be, and the Spearman
    correlation of local and syntactic scores over all inputs and heads.
    """
    found = scores(tuned=tuned)
    table = moments(found, seed=seed)
    table.insert(0, "task", scores.task)
    facts = {
        "inputs": found.n_inputs,
        "passes": found.n_inputs,
        "tokens": found.n_tokens,
        "skipped": dict(found.skipped),
        "task": scores.task,
        "tuned": tuned,
        "ceilings": dict(found.ceilings),
        "defined": {role: found.defined(role) for role in found.values},
        "spearman_inputs": spearman(found.values["local"], found.values["syntactic"]),
    }
    return Found(table, facts=facts)


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rho of two arrays where both are defined; NaN where either is constant."""
    both = pd.DataFrame({"one": one.ravel(), "other": other.ravel()})
    return float(both.corr(method="spearman").loc["one", "other"])


@on_scores()
def score_spread(scores: TaskScores) -> Found:
    """Fig. 3a: the cumulative distribution of the scores over all inputs and heads, by role.

    table  task, role, share, score
    """
    found = scores()
    share = np.linspace(0, 1, QUANTILES + 1)
    parts = []
    for role in (*COARSE, BLOCK):
        values = found.values[role][~np.isnan(found.values[role])]
        if len(values):
            score = np.quantile(values, share)
            parts.append(
                pd.DataFrame({"task": scores.task, "role": role, "share": share, "score": score})
            )
    return Found(pd.concat(parts, ignore_index=True), facts={"inputs": found.n_inputs})


@on_scores()
def score_examples(scores: TaskScores, *, threshold: float = THRESHOLD) -> Found:
    """Fig. 2: the scores of a head that averaging would label and the test does not, and others.

    table  kind, role, layer, head, score: one row per input. `average alone` is the most skewed
           head with a mean of at least the threshold that the test does not confirm, if there is
           one; `both` and `neither` are the most skewed heads that are clearly above and below.
    """
    found = scores()
    table = role_tests(moments(found), threshold=threshold)
    table = table[table["role"].isin(SIEVES) & (table["n"] > 1)]
    above = table["bias"] >= threshold
    kinds = {
        "average alone": above & ~table["assigned"],
        "both": above & table["assigned"] & (table["bias"] < threshold + 1),
        "neither": ~above & (table["bias"] > threshold - 1),
    }
    parts = []
    for kind, chosen in kinds.items():
        rows = table[chosen & table["skew"].notna()]
        if rows.empty:
            continue
        best = rows.loc[rows["skew"].idxmax()]
        values = found.values[best["role"]][:, best["layer"] - 1, best["head"] - 1]
        told = {"kind": kind, **best[["role", "layer", "head"]]}
        parts.append(pd.DataFrame({**told, "score": values[~np.isnan(values)]}))
    columns = ["kind", "role", "layer", "head", "score"]
    shown = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    return Found(shown, facts={"inputs": found.n_inputs, "task": scores.task})


@on_scores()
def decisions(scores: TaskScores, *, threshold: float = THRESHOLD, seed: int = 0) -> Found:
    """How many inputs a decision needs: agreement of random subsets with all inputs.

    table  task, role, n, agreement (mean over heads), settled (share of heads whose subsets agree
           in 95 of 100 draws)
    """
    found = scores()
    sizes = [size for size in SIZES if size < found.n_inputs]
    rows = []
    for role, score in zip(COARSE, COARSE_AS_JUDGED, strict=True):
        values = found.values[score]
        if np.isnan(values).all() or not sizes:
            continue
        agreement = decided_by(values, threshold, sizes, seed=seed)
        for size, heads in zip(sizes, agreement, strict=True):
            rows.append((scores.task, role, size, np.nanmean(heads), np.nanmean(heads >= 0.95)))
    columns = ["task", "role", "n", "agreement", "settled"]
    return Found(pd.DataFrame(rows, columns=columns), facts={"inputs": found.n_inputs})


# --- inputs drawn again ---------------------------------------------------------------------------


@on_scores()
def drawn_roles(
    scores: TaskScores, *, tuned: bool = True, threshold: float = THRESHOLD, seed: int = 0
) -> Found:
    """Which heads have which role, tested anew in every draw of the inputs.

    table  role, layer, head, drawn: a digit for every draw, the first for all inputs, 1 where the
           test gives the head the role. Block is scored as in the authors' code.

    "own text" is no role of the paper: heads whose block score by the printed formula, which is 1
    for an even head, is above 1 by the same test. Roles that no input defines are left out.
    """
    found = scores(tuned=tuned)
    counts = draws_of(scores.test, seed)
    asked = {role: (BLOCK if role == "block" else role, threshold) for role in SIEVES}
    parts = []
    for role, (score, least) in {**asked, OWN_TEXT: ("block", 1.0)}.items():
        values = found.values[score]
        if not np.isnan(values).all():
            has = tested(values, counts, least)["p"] < ALPHA
            parts.append(digits(has.reshape(-1, *values.shape[1:])).assign(role=role))
    facts = {"inputs": found.n_inputs, "draws": len(counts) - 1, "task": scores.task}
    return Found(pd.concat(parts, ignore_index=True), facts=facts)


@on_scores()
def drawn_scores(scores: TaskScores, *, threshold: float = THRESHOLD, seed: int = 0) -> Found:
    """Numbers made of the scores themselves, in every draw of the inputs (row 0 is all of them).

    score.mean             over heads and coarse roles, block by the printed formula
    p.undecided            share of p-values of the coarse roles in (0.05, 0.95); the authors' block
    skew.broad_share       share of head-role pairs with a skewness above 0.5 and an sd above half
                           of the mean
    average_only.inflated_count  pairs with a mean of at least the threshold, p of 0.05 or more, and
                           most inputs below the threshold, so that outliers lift the mean
    spearman               of the mean local and syntactic scores of the heads
    sieves.syntactic_near  of the pairs of pieces that the syntactic sieve joins, the share that is
                           at most two places apart
    facts                  defined: share of inputs with a local, a delimiter and a syntactic score
    """
    found = scores()
    counts = draws_of(scores.test, seed)
    seen = {role: tested(found.values[role], counts, threshold) for role in (*SIEVES, BLOCK)}
    p = np.concatenate([seen[role]["p"] for role in COARSE_AS_JUDGED], axis=1)
    means = np.concatenate([seen[role]["mean"] for role in COARSE], axis=1)
    every = {
        part: np.concatenate([seen[role][part] for role in SIEVES], axis=1)
        for part in next(iter(seen.values()))
    }
    broad = (every["skew"] > 0.5) & (every["sd"] > every["mean"] / 2)
    lifted = (every["mean"] >= threshold) & (every["p"] >= ALPHA)
    joined, near = related_pairs(scores.encoder, scores.test, int(scores.recipe["max_length"]))
    local, syntactic = (seen[role]["mean"] for role in ("local", "syntactic"))
    with np.errstate(invalid="ignore"):
        numbers = {
            "score.mean": np.nanmean(means, axis=1),
            "p.undecided": ((p > 0.05) & (p < 0.95)).sum(1) / (~np.isnan(p)).sum(1),
            "skew.broad_share": broad.sum(1) / (~np.isnan(every["skew"])).sum(1),
            "average_only.inflated_count": (lifted & (every["below"] > every["n"] / 2))
            .sum(1)
            .astype(float),
            "spearman": [spearman(*both) for both in zip(local, syntactic, strict=True)],
            "sieves.syntactic_near": (counts @ near) / (counts @ joined),
        }
    asked = [~np.isnan(found.values[role]).any((1, 2)) for role in ALWAYS]
    defined = float(np.logical_and.reduce(asked).mean())
    return Found(pd.DataFrame(numbers), facts={"inputs": found.n_inputs, "defined": defined})


def related_pairs(
    encoder: Encoder, corpus: Corpus, max_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of pieces that the syntactic sieve joins in every input, and those at most two apart.

    Two places is the window of the local sieve.
    """
    joined, near = np.zeros((2, len(corpus)))
    limits: Any = {"max_length": max_length, "on_long": "truncate"}
    for batch in batches_of(with_trees(corpus).examples, encoder, **limits):
        pairs = SIEVES["syntactic"].mask(batch)
        places = list(batch.index)
        joined[places] = pairs.sum((1, 2)).cpu()
        near[places] = (pairs & SIEVES["local"].mask(batch)).sum((1, 2)).cpu()
    return joined, near


@on_scores(version=2)
def bias_changes(scores: TaskScores, *, seed: int = 0) -> Found:
    """Fig. 6: after minus before fine-tuning, the mean score of each layer, of the same inputs.

    table  draw (0 is all inputs), role, layer, change (to four decimals: there are many)
    """
    before, after = (scores(tuned=tuned) for tuned in (False, True))
    counts = draws_of(scores.test, seed)
    parts = []
    for role in CHANGING:
        old, new = (tested(one.values[role], counts, 0.0)["mean"] for one in (before, after))
        by_layer = (new - old).reshape(len(counts), *after.values[role].shape[1:]).mean(2)
        draw, layer = np.indices(by_layer.shape).reshape(2, -1)
        rows = {"draw": draw, "role": role, "layer": layer + 1, "change": by_layer.ravel().round(4)}
        parts.append(pd.DataFrame(rows).dropna())
    table = pd.concat(parts, ignore_index=True)
    table = table.astype({"change": "float32", "draw": "int16", "layer": "int16"})
    return Found(table, facts={"inputs": before.n_inputs, "task": scores.task})


@experiment(version=2, reads=["spacy-en"])
def random_heads(test: Corpus, *, encoder: Encoder, seed: int = 0) -> Found:
    """Sec. 3.2: the scores of networks with random weights, which should all be about 1.

    table  draw (0 is all inputs and networks; both are drawn again), role, mean: of the scores of
           all heads; distance: mean over heads of the distance of a head's mean score from 1
    """
    counts, generator = draws_of(test, seed), np.random.default_rng(seed)
    again = generator.multinomial(NETWORKS, [1 / NETWORKS] * NETWORKS, size=len(counts) - 1)
    weights = np.vstack([np.ones(NETWORKS), again]) / NETWORKS
    sieves = [SIEVES[role] for role in COARSE]
    found = [role_scores(random_twin(encoder, seed + i), test, sieves) for i in range(NETWORKS)]
    parts = []
    for role in COARSE:
        means = np.stack([tested(one.values[role], counts, 0.0)["mean"] for one in found], axis=1)
        if not np.isnan(means).all():
            mean, distance = (
                (weights * values.mean(2)).sum(1) for values in (means, abs(means - 1))
            )
            part = {"draw": range(len(counts)), "role": role, "mean": mean, "distance": distance}
            parts.append(pd.DataFrame(part))
    n, tokens = NETWORKS * found[0].n_inputs, NETWORKS * found[0].n_tokens
    return Found(pd.concat(parts, ignore_index=True), facts={"inputs": n, "tokens": tokens})
