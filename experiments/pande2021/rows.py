"""The tables behind the chapter's figures, and the numbers its text quotes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.measuring.bootstrap import estimate
from attnlib.measuring.roles import THRESHOLD, role_tests
from attnlib.metrics.sieves import COARSE, SIEVES
from bookkit.store import Found
from experiments.pande2021.numbers import BLOCK
from experiments.pande2021.overview import finding

POOLED = "all"


def judged_roles(found: Mapping[str, Found], threshold: float = THRESHOLD) -> pd.DataFrame:
    """The tests of all tasks, with the block role as the authors score it.

    By the printed formula no head can have that role at a threshold of 3. Corrections are over the
    tests of all tasks together.
    """
    parts = []
    for one in found.values():
        table = one.table[one.table["role"].isin((*SIEVES, BLOCK)) & (one.table["role"] != "block")]
        parts.append(table.replace({"role": {BLOCK: "block"}}))
    return role_tests(pd.concat(parts, ignore_index=True), threshold=threshold)


def example_rows(found: Found) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fig. 2: the scores of each example head under a label, and their mean and median."""
    labels = {
        kind: f"{rows['layer'].iloc[0]}-{rows['head'].iloc[0]}, {rows['role'].iloc[0]} ({kind})"
        for kind, rows in found.table.groupby("kind", sort=False)
    }
    table = found.table.assign(label=found.table["kind"].map(labels))[["label", "score", "role"]]
    stats = []
    for label, rows in table.groupby("label", sort=False):
        values = rows["score"].to_numpy(float)[:, None]
        ends = estimate(values, np.ones_like(values))
        told = {"label": label, "mean": ends.mean.item(), "median": float(np.median(values))}
        stats.append({**told, "low": ends.low.item(), "high": ends.high.item()})
    return table, pd.DataFrame(stats)


def fullest(found: Mapping[str, Found]) -> str:
    """The task that shows most kinds of heads in Fig. 2."""
    return max(found, key=lambda task: found[task].table["kind"].nunique())


def spread_rows(found: Mapping[str, Found]) -> pd.DataFrame:
    """Fig. 3a: the distribution over all tasks by role, and of all coarse roles together.

    Each task and role counts alike: the quantiles of all are laid together.
    """
    everything = pd.concat([one.table for one in found.values()], ignore_index=True)
    coarse = everything[everything["role"].isin(COARSE)]
    parts = []
    for role, rows in [(POOLED, coarse), *coarse.groupby("role", sort=False)]:
        share = np.linspace(0, 1, 201)
        score = np.quantile(rows["score"].to_numpy(), share)
        parts.append(pd.DataFrame({"role": role, "score": score, "share": share}))
    return pd.concat(parts, ignore_index=True)


def change_rows(found: Found, roles: Sequence[str] = COARSE) -> pd.DataFrame:
    """Fig. 6: some roles of every task."""
    table = found.table
    rows = table[table["role"].isin(roles) & (table["task"] != POOLED)]
    return rows.reset_index(drop=True)


def layer_change_rows(found: Mapping[str, Found], roles: Sequence[str] = COARSE) -> pd.DataFrame:
    """The change of every layer with its interval: task, role, layer, change, low, high."""
    rows = []
    for task, one in found.items():
        for (role, layer), group in one.table.groupby(["role", "layer"], sort=False):
            if role in roles:
                change = finding(group.sort_values("draw")["change"].to_numpy(float))
                ends = {"change": change.value, "low": change.low, "high": change.high}
                rows.append({"task": task, "role": role, "layer": int(layer), **ends})
    return pd.DataFrame(rows)


def ceiling_rows(found: Mapping[str, Found], threshold: float = THRESHOLD) -> pd.DataFrame:
    """For every role: the highest possible score, ours, and whether the threshold can be passed.

    Of the task in which the best head comes nearest to its ceiling.
    """
    rows = []
    for role in SIEVES:
        known = []
        for one in found.values():
            top = one.facts["ceilings"].get(role)
            best = one.table.loc[one.table["role"] == role, "bias"].max()
            if top is not None and not math.isnan(top):
                known.append((float(top), float(best)))
        if known:
            top, best = max(known, key=lambda pair: pair[1] / pair[0])
            rows.append((role, top, best, threshold / top, "no" if top <= threshold else "yes"))
    columns = ["role", "perfect head", "best head", "threshold / perfect", "can be passed"]
    return pd.DataFrame(rows, columns=columns)


def new_role_rows(
    found: Mapping[str, Found], roles: Sequence[str], threshold: float = THRESHOLD
) -> pd.DataFrame:
    """The roles of our own: heads that have them, the strongest head, inputs that define them."""
    rows = []
    for task, one in found.items():
        tests = role_tests(one.table[one.table["role"].isin(roles)], threshold=threshold)
        for role, part in tests.groupby("role", sort=False):
            n = int(part["n"].max())
            told = {"role": role, "task": task, "inputs": n, "heads": int(part["assigned"].sum())}
            if part["bias"].notna().any():
                best = part.loc[part["bias"].idxmax()]
                told |= {"strongest": f"{best['layer']}-{best['head']}", "bias": best["bias"]}
                told["perfect head"] = one.facts["ceilings"].get(role)
            rows.append(told)
    return pd.DataFrame(rows)


def control_quotes(tests: pd.DataFrame) -> dict[str, Any]:
    """How many roles are assigned, and how many stay after each correction."""
    known = tests[tests["p"].notna()]
    pairs = known["assigned"]
    n_bh, n_holm = (int((known[name] < 0.05).sum()) for name in ("q", "holm"))
    return {
        "lost_bh": 1 - n_bh / max(int(pairs.sum()), 1),
        "lost_holm": 1 - n_holm / max(int(pairs.sum()), 1),
        "n_tests": len(known),
        "n_assigned": int(pairs.sum()),
        "n_bh": n_bh,
        "n_holm": n_holm,
        "median_effect": float(known.loc[pairs, "effect"].median()),
        "median_needed": float(known["needed"].median()),
        "small_effects": int((known.loc[pairs, "effect"] < 0.2).sum()),
    }


def first_layer_quotes(tests: pd.DataFrame) -> dict[str, float]:
    """Heads of the first layer with the joint delimiter role, and with [CLS] alone, per task."""
    first = tests[(tests["layer"] == 1) & tests["assigned"]]
    n_tasks = tests["task"].nunique()
    return {
        f"first_{role}": (first["role"] == role).sum() / n_tasks for role in ("delimiter", "cls")
    }


def beside_correlations(found: Found) -> pd.DataFrame:
    """One row per role and task: rho and its permutation p."""
    table = found.table[["role", "task", "rho", "p"]].drop_duplicates().reset_index(drop=True)
    return table.assign(low=math.nan, high=math.nan)  # twelve layers have no honest interval


def effect_rows(found: Found) -> pd.DataFrame:
    """What each difference between the paper and the code does, as a table of both ways."""
    rows = []
    for one in found.table.itertuples(index=False):
        if one.role not in COARSE:  # the parts of the syntactic role tell the same
            continue
        role = f"{one.role}, {one.what}"
        if one.what == "score":
            pair = (one.paper_bias, one.authors_bias)
            rows.append((f"{one.role}: mean score", "times even", *pair))
            role = one.role
        counts = f"{role}: heads with the role ({one.changed:.1f} get or lose it)"
        rows.append((counts, "heads", one.paper_heads, one.authors_heads))
    return pd.DataFrame(rows, columns=["what", "unit", "paper_way", "authors_way"])


def block_quotes(found: Mapping[str, Found], threshold: float = THRESHOLD) -> dict[str, int]:
    """Block heads by the authors' score, and those of them that look away from their own text."""
    n_block = n_uneven = 0
    for one in found.values():
        tests = role_tests(one.table, threshold=threshold).set_index(["role", "layer", "head"])
        have = tests.loc[BLOCK, "assigned"]
        n_block += int(have.sum())
        n_uneven += int((tests.loc["block", "bias"][have] < 1).sum())
    return {"n_block": n_block, "n_block_uneven": n_uneven}


def curve_quotes(found: Found, thresholds: Sequence[float] = (2, 3, 5)) -> dict[str, float]:
    """The undecided share of all tests at some thresholds."""
    total = found.table[found.table["role"] == "total"].set_index("threshold")["undecided"]
    return {f"undecided_{at:g}": float(total[at]) for at in thresholds}


def spearman_inputs(found: Mapping[str, Found]) -> float:
    """Correlation of local and syntactic scores over all inputs and heads, mean over tasks."""
    return float(np.mean([one.facts["spearman_inputs"] for one in found.values()]))


def overview_quotes(found: Found) -> dict[str, Any]:
    """The numbers of the text that are means over tasks, under names that can be quoted."""
    return {name.replace(".", "_"): one.value for name, one in found.findings.items()}
