"""Does "important" mean the same in two papers, and does what people say of heads hold?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from attnlib.measuring.significance import ALPHA
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.vocabularies import JUDGED, ends
from experiments.shared.intervals import drawn
from experiments.shared.sortings import controlled, dealt, numbered

DRAWS = 1000
SHUFFLES = 2000
MEASURES = {
    "cost": "points lost when disabled, mean over tasks",
    "influence": "answers changed when disabled, mean over tasks",
    "questions": "rise of the loss on questions when disabled",
    "sway": "change of the loss on questions when disabled, up or down",
    "gradient": "gradient of the masked-LM loss times attention",
    "change": "change of the map by fine-tuning, mean over tasks",
    "relations": "best gain over an offset on a dependency relation",
    "coreference": "antecedents found",
    "roles": "number of roles (Pande)",
}
"""What papers call important, or would; the higher, the more."""
MEASURE_NAMES = {
    "cost": "points lost",
    "influence": "answers changed",
    "questions": "questions, rise",
    "sway": "questions, size",
    "gradient": "gradient",
    "change": "change by tuning",
    "relations": "best relation",
    "coreference": "antecedents",
    "roles": "roles",
}
"""The same in a word or two, for figures."""
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
def head_importance(*tables: pd.DataFrame, parts: Sequence[str], tasks: Sequence[str]) -> Found:
    """Every measure of importance for every head, in one table.

    tables  in the order of `parts`: effects (one `task_effects` per task), questions, gradients,
            cosines (one `map_cosines` per task), relations, coreference, roles
    table   layer, head, a column per measure, and cost_<task>, influence_<task>, change_<task>
    """
    given: dict[str, list[pd.DataFrame]] = {}
    for part, table in zip(parts, tables, strict=True):
        given.setdefault(part, []).append(table.sort_values(["layer", "head"]))
    effects = dict(zip(tasks, given["effects"], strict=True))
    cosines = dict(zip(tasks, given["cosines"], strict=True))
    first = next(iter(effects.values()))
    found = first[["layer", "head"]].reset_index(drop=True)
    for task in tasks:
        for name in ("cost", "influence"):
            found[f"{name}_{task}"] = effects[task][name].to_numpy()
        found[f"change_{task}"] = 1 - cosines[task]["cosine"].to_numpy()
    for name in ("cost", "influence", "change"):
        of_tasks = [found[f"{name}_{task}"] for task in tasks]
        # Ranks: a task in whose score the heads differ more must not decide alone.
        found[name] = np.mean([rankdata(column) for column in of_tasks], axis=0)
    (questions,), (gradients,) = given["questions"], given["gradients"]
    found["questions"] = questions["cost"].to_numpy()
    found["sway"] = questions["influence"].to_numpy()
    found["gradient"] = gradients["mean"].to_numpy()
    (relations,), (coreference,) = given["relations"], given["coreference"]
    found["relations"] = relations.groupby(["layer", "head"])["gain"].max().to_numpy()
    found["coreference"] = coreference["accuracy"].to_numpy()
    (roles,) = given["roles"]
    own = roles[roles["role"].isin(JUDGED.values())]
    found["roles"] = own.groupby(["layer", "head"])["assigned"].sum().to_numpy()
    return Found(found, facts={"tasks": list(tasks)})


@experiment(version=1)
def importance_agreement(importance: pd.DataFrame, *, seed: int = 0) -> Found:
    """Rank correlation of every two measures over heads, as it is and within layers.

    table  one, other, rho, low, high (heads drawn again), p, q (heads shuffled), rho_within,
           p_within, q_within: after the mean rank of a layer is taken off, shuffled inside layers
    """
    layers = importance["layer"].to_numpy()
    rows, again = [], []
    generator = np.random.default_rng(seed)
    places = generator.integers(0, len(layers), (DRAWS, len(layers)))
    orders = {
        "p": dealt(np.zeros(len(layers), int), SHUFFLES, generator),
        "p_within": dealt(numbered(layers), SHUFFLES, generator),
    }
    for one, other in combinations(MEASURES, 2):
        first, second = importance[one].to_numpy(float), importance[other].to_numpy(float)
        draws = [_rho(first, second), *(_rho(first[at], second[at]) for at in places)]
        again.append(draws)
        ranks = {
            "p": (rankdata(first), rankdata(second)),
            "p_within": (within_layers(first, layers), within_layers(second, layers)),
        }
        row: dict[str, Any] = {"one": one, "other": other, **ends("rho", draws)}
        row["rho_within"] = correlation(*ranks["p_within"])
        for name, order in orders.items():
            a, b = ranks[name]
            row[name] = two_sided(correlation(a, b), correlation(a, b[order]))
        rows.append(row)
    table = pd.DataFrame(rows)
    for p, q in (("p", "q"), ("p_within", "q_within")):
        table[q] = controlled(table[p])
    papers = {"cost", "gradient", "change", "relations", "roles"}  # one measure of each paper
    own = table[table["one"].isin(papers) & table["other"].isin(papers)]
    own_draws = np.array(again)[own.index]
    found = {
        "importance.median": drawn(np.median(own_draws, 0)),
        "importance.median_within": Finding(float(own["rho_within"].median())),
        "importance.alike": Finding(float(((own["q"] < ALPHA) & (own["rho"] > 0)).mean())),
        "importance.alike_within": Finding(
            float(((own["q_within"] < ALPHA) & (own["rho_within"] > 0)).mean())
        ),
    }
    for one, other in (("cost", "gradient"), ("cost", "questions"), ("cost", "change")):
        row = table[(table["one"] == one) & (table["other"] == other)].iloc[0]
        found[f"importance.{one}_{other}"] = Finding(row["rho"], row["low"], row["high"])
    return Found(table, found)


def correlation(one: np.ndarray, other: np.ndarray) -> Any:
    """Correlation along the last axis; NaN where one side is constant."""
    a = one - one.mean(-1, keepdims=True)
    b = other - other.mean(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))


def two_sided(seen: float, by_chance: np.ndarray) -> float:
    """How often chance goes as far from 0; NaN where there is nothing to correlate."""
    if np.isnan(seen):
        return float("nan")
    return float((1 + (np.abs(by_chance) >= abs(seen) - 1e-12).sum()) / (1 + len(by_chance)))


def _rho(one: np.ndarray, other: np.ndarray) -> float:
    return float(correlation(rankdata(one), rankdata(other)))


def within_layers(values: np.ndarray, layers: np.ndarray) -> np.ndarray:
    """Ranks over all heads, less the mean rank of the layer."""
    ranks = pd.Series(rankdata(values))
    return np.asarray(ranks - ranks.groupby(layers).transform("mean"))


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
        rho = pd.DataFrame([correlation(a[places], b[places]) for a, b in ranks]).mean()
        by_chance = pd.DataFrame([correlation(a, b[orders]) for a, b in ranks]).mean()
        p = two_sided(rho[0], by_chance.to_numpy())
        rows.append({"saying": name, **ends("rho", rho.to_numpy()), "p": p})
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
