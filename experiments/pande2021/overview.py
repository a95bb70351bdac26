"""The paper's numbers over all tasks of an edition, with intervals: what the claims ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.measuring.bootstrap import LEVEL
from attnlib.metrics.sieves import COARSE
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.pande2021.draws import HEADS, parts_of

BY_TASK = (
    *("spearman", "multi.middle_over_rest", "multi.early_over_rest"),
    *("block.layers_2_to_5", "block.layers_with_1", "block.ends_minus_middle"),
)
"""Numbers that the paper tells for single tasks."""
SPREAD = "overlap.syntactic_local"
"""A number whose smallest and largest value over tasks the paper tells."""


@experiment(version=1)
def numbers_overview(*draws: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """The mean of every number over the tasks that define it.

    draws  the tables of `number_draws`, one per task
    table  number, task ("all" for the mean), value, low, high
    """
    columns = [name for name in draws[0].columns if name != "draw"]
    by_task = {name: np.stack([table[name].to_numpy(float) for table in draws]) for name in columns}
    rows, found = [], {}
    for name, values in by_task.items():
        overall = finding(_mean(values))
        found[name] = overall
        rows.append(_row(name, "all", overall))
        for task, of_task in zip(tasks, values, strict=True):
            one = finding(of_task)
            rows.append(_row(name, task, one))
            if name in BY_TASK:
                found[f"{task}.{name}"] = one
    found[f"{SPREAD}.least"] = finding(_extreme(by_task[SPREAD], np.fmin))
    found[f"{SPREAD}.most"] = finding(_extreme(by_task[SPREAD], np.fmax))
    means = _mean(by_task["score.mean"])
    found["score.rule"] = finding(np.floor(means) + 1)
    return Found(pd.DataFrame(rows), found, {"tasks": list(tasks)})


@experiment(version=1)
def changes_overview(*changes: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """Fig. 6 over all tasks: the change of each role in each third, and the claims' numbers.

    changes  the tables of `bias_changes`, one per task
    table    task ("all" for the mean), role, part, change, low, high
    """
    parts = [parts_of(table).assign(task=task) for table, task in zip(changes, tasks, strict=True)]
    everything = pd.concat(parts, ignore_index=True)
    mean = everything.groupby(["draw", "role", "part"], sort=False)["change"].mean().reset_index()
    both = pd.concat([everything, mean.assign(task="all")], ignore_index=True)
    rows = []
    for (task, role, part), group in both.groupby(["task", "role", "part"], sort=False):
        one = finding(group.sort_values("draw")["change"].to_numpy(float))
        ends = {"change": one.value, "low": one.low, "high": one.high}
        rows.append({"task": task, "role": role, "part": part, **ends})
    wide = mean.pivot(index="draw", columns=["role", "part"], values="change").sort_index()
    return Found(pd.DataFrame(rows), _change_numbers(wide, everything), {"tasks": list(tasks)})


def _change_numbers(mean: pd.DataFrame, everything: pd.DataFrame) -> dict[str, Finding]:
    def series(role: str) -> np.ndarray:
        nothing = pd.Series(math.nan, index=mean.index)
        return mean.get((role, "final"), nothing).to_numpy(float)

    # Sizes are taken task by task: a rise in one task and a fall in another are both changes.
    final = everything[everything["part"] == "final"]
    marks = final.assign(change=final["change"].abs()).groupby(["draw", "role"])["change"].mean()
    mark = marks.unstack("role").sort_index()
    coarse = everything[everything["role"].isin(COARSE)]
    sizes = coarse.assign(change=coarse["change"].abs()).groupby(["draw", "part"])["change"].mean()
    size = sizes.unstack("part").sort_index()
    return {
        "change.delimiter.final": finding(series("delimiter")),
        "change.block.final": finding(series("block")),
        "change.delimiter_heads.final": finding(series(HEADS)),
        "change.cls_over_sep": finding(_share_of(mark, "cls", "sep")),
        "change.initial_over_final": finding(_share_of(size, "initial", "final")),
        "change.middle_over_final": finding(_share_of(size, "middle", "final")),
    }


def _share_of(table: pd.DataFrame, above: str, below: str) -> np.ndarray:
    """One column over another; NaN where the network is too shallow to have both."""
    if above not in table or below not in table:
        return np.full(len(table), math.nan)
    return (table[above] / table[below]).to_numpy(float)


def finding(draws: np.ndarray) -> Finding:
    """The value from all inputs, which is draw 0, and the interval of the others."""
    value, rest = float(draws[0]), draws[1:][np.isfinite(draws[1:])]
    if math.isnan(value) or not len(rest):
        return Finding(value)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(rest, [tail, 100 - tail])
    return Finding(value, float(low), float(high))


def _mean(values: np.ndarray) -> np.ndarray:
    """Over the tasks that define a number; NaN where none does."""
    defined = np.isfinite(values)
    n = defined.sum(0)
    total = np.where(defined, values, 0.0).sum(0)
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def _extreme(values: np.ndarray, pick: Any) -> np.ndarray:
    found: np.ndarray = pick.reduce(values, axis=0)
    return found


def _row(name: str, task: str, one: Finding) -> dict[str, Any]:
    return {"number": name, "task": task, "value": one.value, "low": one.low, "high": one.high}
