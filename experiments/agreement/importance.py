"""Does "important" of one paper mean "important" of another, and which vocabulary foretells it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from attnlib.measuring.significance import ALPHA
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.vocabularies import JUDGED, VOCABULARIES, labels_of
from experiments.kovaleva2019.grids import drawn
from experiments.shared.headprediction import forecast_draws, gain_p, one_hot, ranked
from experiments.shared.taxonomies import controlled, dealt, numbered

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
TARGETS = ("cost", "influence", "questions")
NUMBERS = {
    "clark": ("mass_to_", "entropy"),
    "rule": ("rule_",),
    "network": ("network_",),
    "guan": ("part_",),
    "pande": tuple(f"bias_{score}" for score in JUDGED.values()),
}
"""The numbers behind the labels of each vocabulary, by how their keys begin."""


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
    names = list(MEASURES)
    rows, again = [], []
    generator = np.random.default_rng(seed)
    places = generator.integers(0, len(layers), (DRAWS, len(layers)))
    orders = {
        "p": dealt(np.zeros(len(layers), int), SHUFFLES, generator),
        "p_within": dealt(numbered(layers), SHUFFLES, generator),
    }
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            first, second = importance[one].to_numpy(float), importance[other].to_numpy(float)
            draws = [_rho(first, second), *(_rho(first[at], second[at]) for at in places)]
            number = drawn(draws)
            again.append(draws)
            ranks = {
                "p": (rankdata(first), rankdata(second)),
                "p_within": (within_layers(first, layers), within_layers(second, layers)),
            }
            row: dict[str, Any] = {"one": one, "other": other, "rho": number.value}
            row |= {"low": number.low, "high": number.high}
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
def forecasts(
    labels: pd.DataFrame,
    numbers: pd.DataFrame,
    importance: pd.DataFrame,
    *,
    shuffles: int = 500,
    seed: int = 0,
) -> Found:
    """Which vocabulary foretells what disabling a head does, in layers it has not seen.

    table  target, design (a vocabulary, or the baseline of layer and entropy), form ("labels" or
           "numbers"), r2, low, high, gain (over the baseline), p (of the gain)
    """
    layers = importance["layer"].to_numpy()
    wide = numbers.pivot(index=["layer", "head"], columns="key", values="mean").sort_index()
    base = _base(layers, wide["entropy"].to_numpy())
    designs = {("baseline", "numbers"): base}
    for name in VOCABULARIES:
        designs[name, "labels"] = one_hot(list(labels_of(labels, name)[0]))
        keys = [key for key in wide.columns if key.startswith(NUMBERS[name])]
        designs[name, "numbers"] = wide[keys].fillna(wide[keys].mean()).fillna(0.0).to_numpy()
    rows, draws = [], {}
    for target in TARGETS:
        values = ranked(importance[target].to_numpy(float))
        for (name, form), design in designs.items():
            draws[target, name, form] = forecast_draws(design, values, layers, seed=seed)
            found = drawn(draws[target, name, form])
            row: dict[str, Any] = {"target": target, "design": name, "form": form}
            row |= {"r2": found.value, "low": found.low, "high": found.high}
            row["gain"], row["p"] = (0.0, np.nan)
            if name != "baseline":
                row["gain"], row["p"] = gain_p(
                    design, base, values, layers, shuffles=shuffles, seed=seed
                )
            rows.append(row)
    table = pd.DataFrame(rows)
    table["q"] = controlled(table["p"])
    return Found(table, _forecast_findings(table, draws))


def _base(layers: np.ndarray, entropy: np.ndarray) -> np.ndarray:
    """Depth and entropy, each with its square: what needs no paper at all."""
    depth = (layers - layers.min()) / max(np.ptp(layers), 1)
    return np.column_stack([depth, depth**2, entropy, entropy**2])


def _forecast_findings(
    table: pd.DataFrame, draws: Mapping[tuple[str, str, str], np.ndarray]
) -> dict[str, Finding]:
    """draws: (target, design, form) -> share foretold, of all heads and of heads drawn again."""
    found: dict[str, Finding] = {}
    for target in TARGETS:
        own = {key[1:]: values for key, values in draws.items() if key[0] == target}
        base = own.pop(("baseline", "numbers"))
        label, number = (
            max((one for (_, is_a), one in own.items() if is_a == form), key=lambda one: one[0])
            for form in ("labels", "numbers")
        )
        best = max(label, number, key=lambda one: one[0])
        told = {"baseline": base, "best": best, "best_label": label}
        told |= {"label_loss": number - label, "lead": best - base}
        found |= {f"forecast.{target}.{name}": drawn(values) for name, values in told.items()}
        gains = table.loc[table["target"] == target, "q"] < ALPHA
        found[f"forecast.{target}.gaining"] = Finding(float(gains.sum()))
    return found


@experiment(version=1)
def effect_reliability(*, facts: Mapping[str, Mapping[str, Any]]) -> Found:
    """How far two halves of the inputs order the heads alike, by task.

    facts  task -> the facts of `task_effects`, or of `question_effects`
    table  task, cost, influence: reliability of the order of heads by each, 1 at best
    The median leaves questions out: they have a loss, and neither points nor answers to count.
    """
    rows = [{"task": task, **told["reliability"]} for task, told in facts.items()]
    table = pd.DataFrame(rows).astype({"cost": float, "influence": float})
    tasks = table[table["task"] != "questions"]
    found = {
        f"reliability.{name}": Finding(float(tasks[name].median()))
        for name in ("cost", "influence")
    }
    return Found(table, found, {"tasks": list(facts)})


def spearman_grid(table: pd.DataFrame, column: str = "rho") -> pd.DataFrame:
    """The correlations as a square table."""
    names = list(MEASURES)
    grid = pd.DataFrame(np.eye(len(names)), index=names, columns=names)
    for row in table.to_dict("records"):
        grid.loc[row["one"], row["other"]] = grid.loc[row["other"], row["one"]] = row[column]
    return grid
