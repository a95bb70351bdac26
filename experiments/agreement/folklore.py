"""What people say of heads, put to the test on all heads of one model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlib.measuring.significance import ALPHA
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.importance import correlation, two_sided, within_layers
from experiments.agreement.pairs import over_pairs
from experiments.kovaleva2019.grids import drawn
from experiments.shared.taxonomies import controlled, dealt, numbered

DRAWS = 1000
SHUFFLES = 2000
LEAD = 10.0
"""Points by which the best head of a relation must beat the second to be the one for it."""
SAYINGS = {
    "sep": "look at [SEP]",
    "near": "look at neighbours",
    "syntax": "find a relation of grammar",
    "tuned": "change by fine-tuning",
    "roles": "have many roles",
}
"""What is said to go with, or against, the model's leaning on a head."""


@experiment(version=1)
def sayings(
    importance: pd.DataFrame,
    numbers: pd.DataFrame,
    relations: pd.DataFrame,
    *effects: pd.DataFrame,
    tasks: Sequence[str],
    seed: int = 0,
) -> Found:
    """Sentences that are often repeated, as numbers.

    importance, numbers, relations  tables of `head_importance`, `head_numbers`, `head_relations`
    effects  tables of `task_effects`, in the order of the tasks
    table    saying, rho (rank correlation with the share of answers that change without the head,
             within layers), low, high (heads drawn again), p, q (shuffled inside layers)
    """
    layers = importance["layer"].to_numpy()
    wide = numbers.pivot(index=["layer", "head"], columns="key", values="mean").sort_index()
    near = wide[["mass_to_previous", "mass_to_next", "mass_to_self"]].sum(axis=1)
    leans = within_layers(importance["influence"].to_numpy(float), layers)
    pairs = {
        "sep": [(wide["mass_to_sep"].to_numpy(float), leans)],
        "near": [(near.to_numpy(float), leans)],
        "syntax": [(importance["relations"].to_numpy(float), leans)],
        "tuned": [
            (
                importance[f"change_{task}"].to_numpy(float),
                within_layers(importance[f"influence_{task}"].to_numpy(float), layers),
            )
            for task in tasks
        ],
        "roles": [(importance["roles"].to_numpy(float), leans)],
    }
    generator = np.random.default_rng(seed)
    again = generator.integers(0, len(layers), (DRAWS, len(layers)))
    places = np.vstack([np.arange(len(layers)), again])
    orders = dealt(numbered(layers), SHUFFLES, generator)
    rows = []
    for name, both in pairs.items():
        ranks = [(within_layers(one, layers), other) for one, other in both]
        # A task whose answers never change orders no heads: it is left out of the mean.
        rho = drawn(over_pairs(np.nanmean, [correlation(a[places], b[places]) for a, b in ranks]))
        by_chance = over_pairs(np.nanmean, [correlation(a, b[orders]) for a, b in ranks])
        row = {"saying": name, "rho": rho.value, "low": rho.low, "high": rho.high}
        rows.append({**row, "p": two_sided(rho.value, by_chance)})
    table = pd.DataFrame(rows)
    table["q"] = controlled(table["p"])
    found = {
        f"saying.{row.saying}": Finding(row.rho, row.low, row.high) for row in table.itertuples()
    }
    found |= _counts(importance, relations, effects, places)
    return Found(table, found, {"tasks": list(tasks)})


def _counts(
    importance: pd.DataFrame,
    relations: pd.DataFrame,
    effects: Sequence[pd.DataFrame],
    places: np.ndarray,
) -> dict[str, Finding]:
    """Sayings that are shares of heads or relations, or numbers of cases.

    one_job    share of heads with at most one of Pande's coarse roles
    one_head   share of relations whose best head leads the second by ten points or more
    idle       share of heads times tasks without a loss, false discoveries controlled
    helped     how many heads times tasks gain when disabled, false discoveries controlled
    """
    few = (importance["roles"].to_numpy() <= 1).astype(float)
    accuracies = relations.groupby("relation")["accuracy"]
    leads = accuracies.apply(lambda values: np.diff(np.sort(values)[-2:])[0])
    q = controlled(np.concatenate([one["p"].to_numpy() for one in effects]))
    cost = np.concatenate([one["cost"].to_numpy() for one in effects])
    lost = (q < ALPHA) & (cost > 0)
    return {
        "saying.one_job": drawn(few[places].mean(1)),
        "saying.one_head": Finding(float((leads >= LEAD).mean())),
        "saying.idle": Finding(float(1 - lost.mean())),
        "saying.helped": Finding(float(((q < ALPHA) & (cost < 0)).sum())),
    }


def saying_rows(found: Found) -> pd.DataFrame:
    """Correlations as `labelled_scores` draws them: heads that ..., and how much hangs on them."""
    names = [f"heads that {SAYINGS[name]}" for name in found.table["saying"]]
    return found.table.assign(label=names, value=found.table["rho"])
