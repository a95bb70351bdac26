"""Does "important" mean the same in two papers, and does what people say of heads hold?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from attnlib.measuring.significance import ALPHA, benjamini_hochberg
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.vocabularies import JUDGED, MEASURES, ends
from experiments.shared.intervals import chance_p, drawn, drawn_places
from experiments.shared.sortings import dealt, numbered

SHUFFLES = 2000
LEAD = 10.0
"""Points by which the best head of a relation must beat the second to be the one for it."""


@experiment(version=1)
def head_importance(*tables: pd.DataFrame, parts: Sequence[str], tasks: Sequence[str]) -> Found:
    """Every measure of importance for every head, in one table.

    tables  in the order of `parts`: effects (one `task_effects` per task), questions, gradients,
            cosines (one `map_cosines` per task), relations, coreference, roles
    table   layer, head, a column per measure, and cost_<task>, influence_<task>, change_<task>
    """
    given: dict[str, list[pd.DataFrame]] = {}
    for part, table in zip(parts, tables, strict=True):
        given.setdefault(part, []).append(table.set_index(["layer", "head"]).sort_index())
    columns: dict[str, pd.Series] = {}
    for task, effects, cosines in zip(tasks, given["effects"], given["cosines"], strict=True):
        columns |= {f"{name}_{task}": effects[name] for name in ("cost", "influence")}
        columns[f"change_{task}"] = 1 - cosines["cosine"]
    for name in ("cost", "influence", "change"):
        # Ranks: a task in whose score the heads differ more must not decide alone.
        ranks = [columns[f"{name}_{task}"].rank() for task in tasks]
        columns[name] = pd.concat(ranks, axis=1).mean(axis=1)
    (questions,), (gradients,) = given["questions"], given["gradients"]
    (relations,) = given["relations"]
    (coreference,), (roles,) = given["coreference"], given["roles"]
    columns |= {"questions": questions["cost"], "sway": questions["influence"]}
    columns["gradient"] = gradients["mean"]
    columns["relations"] = relations.groupby(["layer", "head"])["gain"].max()
    columns["coreference"] = coreference["accuracy"]
    own = roles[roles["role"].isin(JUDGED.values())]
    columns["roles"] = own.groupby(["layer", "head"])["assigned"].sum()
    return Found(pd.DataFrame(columns).reset_index(), facts={"tasks": list(tasks)})


@experiment(version=1)
def importance_agreement(importance: pd.DataFrame, *, seed: int = 0) -> Found:
    """Rank correlation of every two measures over heads, as it is and within layers.

    table  one, other, rho, low, high (heads drawn again), p, q (heads shuffled), rho_within,
           p_within, q_within: after the mean rank of a layer is taken off, shuffled inside layers
    """
    layers = importance["layer"].to_numpy()
    rows, again = [], []
    generator = np.random.default_rng(seed)
    places = drawn_places(len(layers), generator)
    orders = {
        "p": dealt(np.zeros(len(layers), int), SHUFFLES, generator),
        "p_within": dealt(numbered(layers), SHUFFLES, generator),
    }
    for one, other in combinations(MEASURES, 2):
        first, second = importance[one].to_numpy(float), importance[other].to_numpy(float)
        again.append(correlation(*(rankdata(one[places], axis=1) for one in (first, second))))
        ranks = {
            "p": (rankdata(first), rankdata(second)),
            "p_within": (within_layers(first, layers), within_layers(second, layers)),
        }
        row: dict[str, Any] = {"one": one, "other": other, **ends("rho", again[-1])}
        row["rho_within"] = correlation(*ranks["p_within"])
        for name, order in orders.items():
            a, b = ranks[name]
            row[name] = chance_p(abs(correlation(a, b)), np.abs(correlation(a, b[order])))
        rows.append(row)
    table = pd.DataFrame(rows)
    for end in ("", "_within"):
        table[f"q{end}"] = benjamini_hochberg(table[f"p{end}"].to_numpy())
    papers = {"cost", "gradient", "change", "relations", "roles"}  # one measure of each paper
    own = table[table["one"].isin(papers) & table["other"].isin(papers)]
    found = {
        "importance.median": drawn(np.median(np.array(again)[own.index], 0)),
        "importance.median_within": Finding(float(own["rho_within"].median())),
    }
    for end in ("", "_within"):
        alike = (own[f"q{end}"] < ALPHA) & (own[f"rho{end}"] > 0)
        found[f"importance.alike{end}"] = Finding(float(alike.mean()))
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


def within_layers(values: np.ndarray | pd.Series, layers: np.ndarray) -> np.ndarray:
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
    leans = within_layers(importance["influence"], layers)
    by_task = [within_layers(importance[f"influence_{task}"], layers) for task in tasks]
    pairs: dict[str, list[tuple[pd.Series, np.ndarray]]] = {
        "sep": [(wide["mass_to_sep"], leans)],
        "near": [(near, leans)],
        "syntax": [(importance["relations"], leans)],
        "tuned": [
            (importance[f"change_{task}"], own) for task, own in zip(tasks, by_task, strict=True)
        ],
        "roles": [(importance["roles"], leans)],
    }
    generator = np.random.default_rng(seed)
    places = drawn_places(len(layers), generator)
    orders = dealt(numbered(layers), SHUFFLES, generator)
    rows = []
    for name, both in pairs.items():
        ranks = [(within_layers(one, layers), other) for one, other in both]
        # A task whose answers never change orders no heads: it is left out of the mean.
        rho = pd.DataFrame([correlation(a[places], b[places]) for a, b in ranks]).mean()
        by_chance = pd.DataFrame([correlation(a, b[orders]) for a, b in ranks]).mean()
        p = chance_p(abs(rho[0]), by_chance.abs().to_numpy())
        rows.append({"saying": name, **ends("rho", rho.to_numpy()), "p": p})
    table = pd.DataFrame(rows)
    table["q"] = benjamini_hochberg(table["p"].to_numpy())
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
    q = benjamini_hochberg(np.concatenate([one["p"].to_numpy() for one in effects]))
    cost = np.concatenate([one["cost"].to_numpy() for one in effects])
    lost = (q < ALPHA) & (cost > 0)
    return {
        "saying.one_job": drawn(few[places].mean(1)),
        "saying.one_head": Finding(float((leads >= LEAD).mean())),
        "saying.idle": Finding(float(1 - lost.mean())),
        "saying.helped": Finding(float(((q < ALPHA) & (cost < 0)).sum())),
    }
