"""Every number of a task again and again, each time with its inputs drawn anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.measuring.roles import THRESHOLD, RoleScores, moments
from attnlib.measuring.significance import ALPHA, drawn_moments, from_moments
from attnlib.measuring.stream import Progress
from attnlib.metrics.sieves import SIEVES
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.pande2021.numbers import BLOCK, depth, role_numbers
from experiments.pande2021.scoring import scores_of

DRAWS = 200
CHANGING = ("local", "block", BLOCK, "delimiter", "cls", "sep", "syntactic")
ALWAYS = ("local", "delimiter", "syntactic")
"""Coarse roles that every input should define; block needs two texts."""
HEADS = "delimiter heads"
"""In the table of changes: the share of delimiter heads instead of a score."""
PARTS = {"initial": (0, 4), "middle": (4, 8), "final": (8, 12)}
"""The thirds of Fig. 6, in twelfths of the depth."""


@experiment(version=1, reads=["spacy-en"], trains=True)
def number_draws(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    threshold: float = THRESHOLD,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """The numbers of a task from all inputs (draw 0), then from inputs drawn with replacement.

    table  draw, and one column per number of `role_numbers`
    """
    options: Any = {"encoder": encoder, "task": task, "recipe": recipe, "tuned": True}
    found = scores_of(train, test, **options, progress=progress)
    skew = {
        str(role): rows["skew"].to_numpy().reshape(found.values[role].shape[1:])
        for role, rows in moments(found, seed=seed).groupby("role", sort=False)
    }
    # Third moments are not drawn again: the share of skewed pairs has no interval.
    unknown = {role: np.full_like(grid, np.nan) for role, grid in skew.items()}
    asked = [~np.isnan(found.values[role]).any((1, 2)) for role in ALWAYS]
    rows = []
    for draw, counts in enumerate(_counts(found.n_inputs, seed)):
        mean, p = _tests(found, counts, threshold)
        assigned = {role: grid < ALPHA for role, grid in p.items()}
        defined = float(np.average(np.logical_and.reduce(asked), weights=counts))
        numbers = role_numbers(assigned, mean, p, unknown if draw else skew, threshold)
        rows.append({"draw": draw, "sieves.defined_share": defined, **numbers})
    return Found(pd.DataFrame(rows), facts={"inputs": found.n_inputs, "task": task})


@experiment(version=1, reads=["spacy-en"], trains=True)
def bias_changes(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    threshold: float = THRESHOLD,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """Fig. 6: after minus before fine-tuning, the mean score of each layer, of the same inputs.

    table  draw (0 is all inputs), role, layer, change. The role "delimiter heads" is the change of
           the share of heads with the delimiter role.
    """
    options: Any = {"encoder": encoder, "task": task, "recipe": recipe, "progress": progress}
    before = scores_of(train, test, tuned=False, **options)
    after = scores_of(train, test, tuned=True, **options)
    rows = []
    for draw, counts in enumerate(_counts(before.n_inputs, seed)):
        (old, old_p), (new, new_p) = (_tests(s, counts, threshold) for s in (before, after))
        changes = {role: (new[role] - old[role]).mean(1) for role in CHANGING}
        had, has = (p["delimiter"] < ALPHA for p in (old_p, new_p))
        changes[HEADS] = has.mean(1) - had.mean(1)
        for role, by_layer in changes.items():
            rows += [(draw, role, layer, value) for layer, value in enumerate(by_layer, start=1)]
    table = pd.DataFrame(rows, columns=["draw", "role", "layer", "change"])
    table = table[table["change"].notna()].astype({"change": "float32", "draw": "int16"})
    facts = {"inputs": before.n_inputs, "task": task}
    return Found(table.reset_index(drop=True), facts=facts)


def parts_of(table: pd.DataFrame) -> pd.DataFrame:
    """The changes of layers averaged within the initial, middle and final third."""
    n_layers = int(table["layer"].max())
    parts = []
    for part, ends in PARTS.items():
        place = depth(n_layers, *ends)
        inside = table["layer"].between(place.start + 1, place.stop)
        mean = table[inside].groupby(["draw", "role"], sort=False)["change"].mean()
        parts.append(mean.reset_index().assign(part=part))
    return pd.concat(parts, ignore_index=True)


def _counts(n: int, seed: int) -> np.ndarray:
    """How often each input is drawn: once each at first, then at random; the same for all roles."""
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(n, np.full(n, 1 / n), size=DRAWS)
    return np.concatenate([np.ones((1, n)), drawn]).astype(np.float64)


def _tests(
    scores: RoleScores, counts: np.ndarray, threshold: float
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Mean and p of every role and head in one draw."""
    means, tests = {}, {}
    for role in (*SIEVES, BLOCK):
        values = scores.values[role]
        flat = values.reshape(len(values), -1).astype(np.float64)
        mean, sd, n = drawn_moments(counts[None], flat, 1)
        mean = np.where(n > 0, mean, np.nan)
        p = from_moments(mean, sd, n, threshold).p
        means[role], tests[role] = (part.reshape(values.shape[1:]) for part in (mean, p))
    return means, tests
