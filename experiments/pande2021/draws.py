"""The paper's numbers with intervals: from all inputs of a task, then from inputs drawn anew."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple

import numpy as np
import pandas as pd

from attnlib.measuring.roles import THRESHOLD, RoleScores, moments
from attnlib.measuring.significance import ALPHA, drawn_moments, from_moments, undecided_share
from attnlib.metrics.sieves import COARSE, DEPENDENCIES, FINE, SIEVES
from bookkit.store import Found, experiment
from experiments.pande2021.bias_scores import BLOCK, COARSE_AS_JUDGED, Scores, on_scores, spearman
from experiments.shared.intervals import drawn

Grids = Mapping[str, np.ndarray]
"""Role -> (layer, head)."""
DRAWS = 200
CHANGING = ("local", "block", BLOCK, "delimiter", "cls", "sep", "syntactic")
ALWAYS = ("local", "delimiter", "syntactic")
"""Coarse roles that every input should define; block needs two texts."""
HEADS = "delimiter heads"
"""In the table of changes: the share of delimiter heads instead of a score."""
PARTS = {"initial": (0, 4), "middle": (4, 8), "final": (8, 12)}
"""The thirds of Fig. 6, in twelfths of the depth."""
BY_TASK = (
    *("spearman", "multi.middle_over_rest", "multi.early_over_rest"),
    *("block.layers_2_to_5", "block.layers_with_1", "block.ends_minus_middle"),
)
"""Numbers that the paper gives for single tasks."""
SPREAD = "overlap.syntactic_local"
"""A number whose smallest and largest value over tasks the paper gives."""


# --- one task -------------------------------------------------------------------------------------


@on_scores
def number_draws(
    scores: Scores, task: str, *, threshold: float = THRESHOLD, seed: int = 0
) -> Found:
    """The numbers of a task from all inputs (draw 0), then from inputs drawn with replacement.

    table  draw, and one column per number of `role_numbers`
    """
    found = scores()
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


@on_scores
def bias_changes(
    scores: Scores, task: str, *, threshold: float = THRESHOLD, seed: int = 0
) -> Found:
    """Fig. 6: after minus before fine-tuning, the mean score of each layer, of the same inputs.

    table  draw (0 is all inputs), role, layer, change. The role "delimiter heads" is the change of
           the share of heads with the delimiter role.
    """
    before, after = (scores(tuned=tuned) for tuned in (False, True))
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
        mean, sd, n = drawn_moments(counts[None], flat)
        mean = np.where(n > 0, mean, np.nan)
        p = from_moments(mean, sd, n, threshold).p
        means[role], tests[role] = (part.reshape(values.shape[1:]) for part in (mean, p))
    return means, tests


# --- the numbers that the paper reads off its figures, from who has which role ------------------


def role_numbers(assigned: Grids, bias: Grids, p: Grids, skew: Grids, threshold: float) -> dict:
    """All numbers of one task; NaN where nothing is there to count.

    Block heads are those of the authors' score (with the printed one there can be none);
    `score.mean`, `skew.share`, `average_only.count` and `block.heads` use the printed one.
    Depths are shares of the number of layers, so any model can be asked.
    """
    has = {role: np.asarray(grid, bool) for role, grid in assigned.items()}
    pair = bool(np.isfinite(bias["block"]).any())
    coarse = {**{role: has[role] for role in COARSE}, "block": has[BLOCK]}
    fine = np.stack([has[BLOCK] if role == "block" else has[role] for role in FINE])
    n_roles = fine.sum(0)
    delimiter = has["cls"] | has["sep"]
    syntax = np.logical_or.reduce([has[role] for role in DEPENDENCIES])
    n_layers = len(n_roles)
    middle, inner = depth(n_layers, 5, 10), depth(n_layers, 6, 9)
    early, last = depth(n_layers, 0, 4), depth(n_layers, 10, 12)
    late, second_to_fifth = depth(n_layers, 9, 12), depth(n_layers, 1, 5)
    skilled = n_roles[late] > 0
    alone = skilled & delimiter[late] & (n_roles[late] == fine[3:5][:, late].sum(0))
    blocks = coarse["block"]
    return {
        "score.mean": _known([bias[role] for role in COARSE]).mean(),
        "p.undecided": undecided_share(np.stack([p[role] for role in COARSE_AS_JUDGED])),
        "skew.share": (_known([skew[role] for role in SIEVES]) > 0.5).mean(),
        "average_only.count": float(
            sum(((bias[role] >= threshold) & ~has[role]).sum() for role in SIEVES)
        ),
        "delimiter.share": float(has["delimiter"].mean()),
        "unskilled.share": float((~np.logical_or.reduce(list(coarse.values()))).mean()),
        "overlap.syntactic_local": _within(has["syntactic"], has["local"]),
        "spearman": spearman(bias["local"], bias["syntactic"]),
        "nsubj.next_minus_previous": _within(has["nsubj"], has["next_local"])
        - _within(has["nsubj"], has["previous_local"]),
        "dobj.previous_minus_next": _within(has["dobj"], has["previous_local"])
        - _within(has["dobj"], has["next_local"]),
        "block.heads": float(has["block"].sum()) if pair else math.nan,
        "block.overlap": _within(blocks, has["local"] | has["syntactic"]) if pair else math.nan,
        "block.first_minus_rest": float(blocks[0].mean() - blocks[1:].mean()) if pair else math.nan,
        "block.layers_2_to_5": _layers_with(blocks[second_to_fifth]) if pair else math.nan,
        "block.layers_with_1": _layers_with(blocks) if pair else math.nan,
        "block.ends_minus_middle": _ends_minus_middle(blocks) if pair else math.nan,
        "single.block_heads": math.nan if pair else float(blocks.sum()),
        "multi.most_roles": float(n_roles.max()),
        "multi.middle_over_rest": _ratio(n_roles, middle),
        "multi.early_over_rest": _ratio(n_roles, early),
        "multi.last_over_all": _over(n_roles[last].mean(), n_roles.mean()),
        "delimiter.least_layer": float(delimiter[1:].mean(1).min()),
        "delimiter.first_layer": float(delimiter[0].mean()),
        "delimiter.only_in_last": float(alone.sum() / skilled.sum()) if skilled.any() else math.nan,
        "syntactic.layers_with_3": float((syntax.sum(1) >= 3).mean()),
        "syntactic.middle_over_rest": _ratio(syntax, inner),
        "syntactic.last_over_all": _over(syntax[last].mean(), syntax.mean()),
    }


def depth(n_layers: int, first: int, end: int) -> slice:
    """The layers from depth first/12 up to end/12; the same of a network of any depth."""
    return slice(round(first * n_layers / 12), round(end * n_layers / 12))


def _layers_with(has: np.ndarray) -> float:
    """The share of layers in which some head has it."""
    return float(has.any(1).mean()) if len(has) else math.nan


def _ends_minus_middle(has: np.ndarray) -> float:
    """The share of heads in the first or last layer, the lesser, minus that in the middle third."""
    ends, middle = min(has[0].mean(), has[-1].mean()), has[depth(len(has), 4, 8)]
    return float(ends - middle.mean()) if len(middle) else math.nan


def _within(who: np.ndarray, also: np.ndarray) -> float:
    """Of the heads with one role, the share that has another too."""
    return float((who & also).sum() / who.sum()) if who.any() else math.nan


def _ratio(grid: np.ndarray, part: slice) -> float:
    """The mean in some layers over the mean in all others."""
    inside, others = grid[part], np.delete(grid, part, axis=0)
    if not (len(inside) and len(others)):
        return math.nan  # too few layers to have such a part
    return _over(inside.mean(), others.mean())


def _over(above: float, below: float) -> float:
    return float(above / below) if below > 0 else math.nan


def _known(grids: list[np.ndarray]) -> pd.Series:
    """All values that are defined; the mean of none is NaN."""
    return pd.Series(np.stack(grids).ravel()).dropna()


# --- all tasks together: what the claims ask for --------------------------------------------------


@experiment(version=1)
def numbers_overview(*draws: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """The mean of every number over the tasks that define it.

    draws  the tables of `number_draws`, one per task
    table  number, task ("all" for the mean), value, low, high
    """
    names = [name for name in draws[0].columns if name != "draw"]
    by_task = {name: np.stack([table[name].to_numpy(float) for table in draws]) for name in names}
    means = {name: pd.DataFrame(values).mean().to_numpy() for name, values in by_task.items()}
    found = {name: drawn(mean) for name, mean in means.items()}
    rows = []
    for name, values in by_task.items():
        rows.append({"number": name, "task": "all", **vars(found[name])})
        for task, of_task in zip(tasks, values, strict=True):
            one = drawn(of_task)
            rows.append({"number": name, "task": task, **vars(one)})
            if name in BY_TASK:
                found[f"{task}.{name}"] = one
    found[f"{SPREAD}.least"] = drawn(np.fmin.reduce(by_task[SPREAD]))
    found[f"{SPREAD}.most"] = drawn(np.fmax.reduce(by_task[SPREAD]))
    found["score.rule"] = drawn(np.floor(means["score.mean"]) + 1)
    return Found(pd.DataFrame(rows), found, {"tasks": list(tasks)})


@experiment(version=1)
def changes_overview(*changes: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """Fig. 6 over all tasks: the change of each role in each third, and the claims' numbers.

    changes  the tables of `bias_changes`, one per task
    table    task ("all" for the mean), role, part, change, low, high
    """
    parts = [parts_of(table).assign(task=task) for table, task in zip(changes, tasks, strict=True)]
    every = pd.concat(parts, ignore_index=True)
    mean = every.groupby(["draw", "role", "part"], sort=False)["change"].mean()
    both = pd.concat([every, mean.reset_index().assign(task="all")], ignore_index=True)
    # Sizes are taken task by task: a rise in one task and a fall in another are both changes.
    size = every.assign(change=every["change"].abs())
    # NaN is a role that no task, or a third that a shallow network, does not define.
    final = mean.xs("final", level="part").unstack("role").reindex(columns=[*CHANGING, HEADS])
    mark = size[size["part"] == "final"].groupby(["draw", "role"])["change"].mean().unstack()
    coarse = size[size["role"].isin(COARSE)]
    third = coarse.groupby(["draw", "part"])["change"].mean().unstack().reindex(columns=[*PARTS])
    numbers = {
        "change.delimiter.final": final["delimiter"],
        "change.block.final": final["block"],
        "change.delimiter_heads.final": final[HEADS],
        "change.cls_over_sep": mark["cls"] / mark["sep"],
        "change.initial_over_final": third["initial"] / third["final"],
        "change.middle_over_final": third["middle"] / third["final"],
    }
    found = {name: drawn(values.to_numpy()) for name, values in numbers.items()}
    return Found(intervals(both, ["task", "role", "part"]), found, {"tasks": list(tasks)})


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


def intervals(draws: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The change in every group of a table of draws: the columns `by`, change, low, high."""
    rows = []
    for names, group in draws.groupby(list(by), sort=False):
        ends = drawn(group.sort_values("draw")["change"].to_numpy(float))
        rows.append((*names, *astuple(ends)))
    return pd.DataFrame(rows, columns=[*by, "change", "low", "high"])
