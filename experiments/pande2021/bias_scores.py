"""Sec. 3.2 and 4.2: the bias scores of a task's inputs, and what a threshold makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import Signature, signature
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.measuring.roles import AUTHORS, THRESHOLD, RoleScores, moments, role_scores, role_tests
from attnlib.measuring.significance import decided_by
from attnlib.metrics.sieves import AUTHORS_BY_WORD, COARSE, SIEVES
from attnlib.models import Encoder, random_twin, weights_digest
from bookkit.claims import Finding
from bookkit.store import Experiment, Found, experiment
from experiments.pande2021.sieves import new_sieves
from experiments.shared.training.taskplans import tuned_model

BLOCK = f"block{AUTHORS}"
COARSE_AS_JUDGED = tuple(BLOCK if role == "block" else role for role in COARSE)
AS_AUTHORS = ("local", "block", *sorted(AUTHORS_BY_WORD))
"""Roles that the authors' code scores in another way than the paper says."""
SIZES = (10, 20, 50, 100, 200, 500)
QUANTILES = 200
THRESHOLDS = tuple(np.round(np.arange(1.5, 6.01, 0.25), 2).tolist())
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


Scores = Callable[..., RoleScores]
"""(tuned=True) -> the scores of a task, of the model before or after fine-tuning."""


def on_scores(measured: Callable[..., Found]) -> Experiment:
    """An experiment on the inputs of a task, from a function (scores, task, options) of its scores.

    It asks for what `scores_of` needs, and for the options of the function.
    """

    @experiment(version=1, reads=["spacy-en"], trains=True)
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
        scores = partial(scores_of, train, test, encoder, task, recipe)
        return measured(scores, task, **options)

    *inputs, _ = signature(run, follow_wrapped=False).parameters.values()
    _, _, *options = signature(measured).parameters.values()
    run.__signature__ = Signature([*inputs, *options])  # type: ignore[attr-defined]
    return run


@on_scores
def role_moments(scores: Scores, task: str, *, tuned: bool = True, seed: int = 0) -> Found:
    """Mean, spread and skewness of every role and head: all that a test needs.

    Also how often each role is defined, how high its score could be, and the Spearman
    correlation of local and syntactic scores over all inputs and heads.
    """
    found = scores(tuned=tuned)
    table = moments(found, seed=seed)
    table.insert(0, "task", task)
    facts = {
        "inputs": found.n_inputs,
        "passes": found.n_inputs,
        "tokens": found.n_tokens,
        "skipped": dict(found.skipped),
        "task": task,
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


@on_scores
def score_spread(scores: Scores, task: str) -> Found:
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
            parts.append(pd.DataFrame({"task": task, "role": role, "share": share, "score": score}))
    return Found(pd.concat(parts, ignore_index=True), facts={"inputs": found.n_inputs})


@on_scores
def score_examples(scores: Scores, task: str, *, threshold: float = THRESHOLD) -> Found:
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
    return Found(shown, facts={"inputs": found.n_inputs, "task": task})


@on_scores
def decisions(scores: Scores, task: str, *, threshold: float = THRESHOLD, seed: int = 0) -> Found:
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
            rows.append((task, role, size, np.nanmean(heads), np.nanmean(heads >= 0.95)))
    columns = ["task", "role", "n", "agreement", "settled"]
    return Found(pd.DataFrame(rows, columns=columns), facts={"inputs": found.n_inputs})


def with_authors_block(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's twelve roles, block with the score of the authors' code, not the printed one.

    By the printed formula no head can have the block role at a threshold of 3.
    """
    chosen = table[table["role"].isin({*SIEVES, BLOCK} - {"block"})]
    return chosen.replace({"role": {BLOCK: "block"}}).reset_index(drop=True)


@experiment(version=1)
def threshold_curves(*moments: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """Heads with each role at thresholds from 1.5 to 6, uncorrected and corrected.

    Block is scored as the authors do.
    table  threshold, role ("total" is all), heads (the tests), assigned, assigned_bh,
           assigned_holm, undecided; summed over tasks, corrected over all tests at a threshold
    """
    every = with_authors_block(pd.concat(moments))
    every = every[every["bias"].notna()]
    rows = []
    for threshold in THRESHOLDS:
        found = role_tests(every, threshold=threshold)
        for role, part in [("total", found), *found.groupby("role", sort=False)]:
            counts = {
                f"assigned{name}": int((part[column] < 0.05).sum())
                for name, column in (("", "p"), ("_bh", "q"), ("_holm", "holm"))
            }
            undecided = float(part["p"].between(0.05, 0.95, inclusive="neither").mean())
            told = {"threshold": threshold, "role": role, "heads": len(part)}
            rows.append({**told, **counts, "undecided": undecided})
    return Found(pd.DataFrame(rows), facts={"tasks": list(tasks)})


@experiment(version=1, reads=["spacy-en"])
def random_heads(test: Corpus, *, encoder: Encoder, seed: int = 0) -> Found:
    """Sec. 3.2: the scores of a network with random weights, which should all be about 1."""
    twin = random_twin(encoder, seed)
    found = role_scores(twin, test, [SIEVES[role] for role in COARSE])
    table = moments(found, seed=seed)
    bias = table["bias"].dropna()
    numbers = {
        "random.mean_bias": Finding(float(bias.mean())),
        "random.largest_bias": Finding(float(bias.max())),
        "random.mean_distance_from_1": Finding(float((bias - 1).abs().mean())),
    }
    facts = {"inputs": found.n_inputs, "passes": found.n_inputs, "tokens": found.n_tokens}
    return Found(table, numbers, facts)
