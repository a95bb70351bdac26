"""Tables of the chapter's results as its figures and sentences take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from bookkit.claims import Finding
from bookkit.store import Found
from experiments.guan2020.subjects import PRETRAINED, QUESTIONS
from experiments.guan2020.types import SLUGS

LABELS = {PRETRAINED: "pre-trained", QUESTIONS: "questions"}
"""Models as the figures call them; the others have the name of their task."""


def label(model: str) -> str:
    return LABELS.get(model, model)


def share_rows(findings: Mapping[str, Finding]) -> pd.DataFrame:
    """The share of each type, in percent, with its interval."""
    rows = []
    for name, slug in SLUGS.items():
        one = findings[f"types.{slug}.share"]
        rows.append({"label": name, "value": one.value, "low": one.low, "high": one.high})
    return pd.DataFrame(rows)


def paper_shares(reported: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The paper's shares by type, from the rows of its claims (`Chapter.reported("sec4")`)."""
    return {name: float(reported[f"share.{slug}"]["value"]) for name, slug in SLUGS.items()}


def beside(found: Mapping[str, Found], column: str = "model") -> pd.DataFrame:
    """The tables of all models below each other, each under the model's label."""
    tables = [one.table.assign(**{column: label(name)}) for name, one in found.items()]
    return pd.concat(tables, ignore_index=True)


def paper_stabilities(reported: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The paper's Table 1 by model, as shares."""
    return {label(name): float(values["value"]) / 100 for name, values in reported.items()}


def naming_rows(types: Found) -> pd.DataFrame:
    """How clear each decision of the naming rule was."""
    rows = pd.DataFrame(types.facts["margins"])
    table = rows.rename(columns={"by": "most mass on", "next_mass": "next", "runner_up": "next is"})
    return table.set_index("type")[["most mass on", "mass", "next is", "next", "margin"]]


def mass_quotes(types: pd.DataFrame) -> dict[str, float]:
    """Mean near, far and special mass of each type, in percent, as the text quotes them."""
    means = types.groupby("type")[["near", "far", "special"]].mean()
    return {
        f"{SLUGS[str(name)]}_{part}": 100 * float(means.loc[name, part])
        for name in means.index
        for part in means.columns
    }


def relabelled(moves: pd.DataFrame) -> pd.DataFrame:
    """The moves with the models' labels."""
    return moves.assign(task=[label(task) for task in moves["task"]])


def decision_rows(found: Found) -> pd.DataFrame:
    """The readings of Eq. 2 as a table to look at: agreement with ours, and heads of each type."""
    counts = {f"n_{name}": name for name in SLUGS}
    table = found.table.rename(columns={**counts, "same": "same type"}).set_index("reading")
    return table[["agreement", "same type", *SLUGS]]


def ablation_decision_rows(found: Found) -> pd.DataFrame:
    """F1 of every reading of Sec. 5 by row of the paper, ours in the first column."""
    table = found.table
    wide = table.pivot_table(index="row", columns="reading", values="f1", sort=False).sort_index()
    ours = table.drop_duplicates("row").set_index("row")
    return wide.assign(ours=ours["ours"], what=ours["kind"] + " " + ours["types"]).pipe(
        lambda one: one[["what", "ours", *wide.columns]]
    )


def type_effects(singles: Found) -> pd.DataFrame:
    """Mean and largest loss of a single head's pruning, by type."""
    groups = singles.table.groupby("type")["loss"]
    rows = groups.agg(heads="size", mean="mean", largest="max")
    return rows.reindex([name for name in SLUGS if name in rows.index])


def stability_quotes(table: pd.DataFrame, k: int = 4) -> dict[str, float]:
    """Stability at four clusters and its chance level, in percent, for both kinds of halves."""
    rows = table[table["k"] == k].set_index("split")
    return {
        f"{what}_{split}": 100 * float(rows.loc[split, column])
        for split in rows.index
        for what, column in (("stable", "stability"), ("null", "null"))
    }


def control_quotes(table: pd.DataFrame) -> dict[str, Any]:
    """Numbers on the control that the text quotes: rows whose harm is beyond random heads."""
    rows = table[table["excess"].notna()]
    worse = rows[rows["excess_high"] < 0]
    better = rows[rows["excess_low"] > 0]
    return {
        "n_rows": len(rows),
        "n_worse": len(worse),
        "n_better": len(better),
        "worse_rows": _listed(worse["row"]),
        "better_rows": _listed(better["row"]),
    }


def _listed(rows: pd.Series) -> str:
    return ", ".join(str(int(row)) for row in rows) or "none"
