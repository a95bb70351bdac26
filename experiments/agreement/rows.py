"""Tables of the experiments in the shape that figures and texts of the chapter ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bookkit.store import Found
from experiments.agreement.effects import QUESTIONS as ASKS
from experiments.agreement.folklore import SAYINGS
from experiments.agreement.importance import MEASURES, TARGETS
from experiments.agreement.stability import TWIN
from experiments.agreement.vocabularies import ASKED, NAMES, NO_ROLE

SHORT = {"clark": "Clark", "rule": "Kovaleva (rule)", "network": "Kovaleva (network)"}
SHORT |= {"guan": "Guan", "pande": "Pande"}
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
TARGET_NAMES = {"cost": "points lost", "influence": "answers changed", "questions": "questions"}
LEAST = -0.5
"""Shares foretold are drawn down to here."""


def question_rows(found: Found) -> pd.DataFrame:
    """Kappas as `labelled_scores` draws them: a panel per question, a row per pair."""
    table = found.table
    names = [f"{SHORT[row.one]} – {SHORT[row.other]}" for row in table.itertuples()]
    return table.assign(label=names, group=table["question"].map(ASKED), value=table["kappa"])


def question_caption(found: Found) -> str:
    """What to see: on which question papers agree, and who agrees best."""
    told = "; ".join(
        f"{ASKED[str(question)]}: {_best(rows, 'kappa')}"
        for question, rows in found.table.groupby("question", sort=False)
    )
    return (
        "How far every two namings agree on a question, beyond blind agreement: 0 is none, 1 all. "
        f"The best pairs: {told}. No dot: one of the two gives all heads the same answer."
    )


def _best(rows: pd.DataFrame, column: str) -> str:
    """The pair of namings with the largest value, in words."""
    known = rows.dropna(subset=column)
    if known.empty:
        return "none"
    row = known.loc[known[column].idxmax()]
    return f"{SHORT[row['one']]} and {SHORT[row['other']]} ({_number(row[column])})"


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def forecast_caption(found: Found) -> str:
    """What to see: whether any vocabulary foretells more than layer and entropy do."""
    table = found.table
    told = []
    for target, name in TARGET_NAMES.items():
        own = table[table["target"] == target]
        base = own[own["design"] == "baseline"]["r2"].iloc[0]
        best = _best_design(own)
        told.append(
            f"{name}: {SHORT[best['design']]}, {best['form']} ({_number(best['r2'])}; layer and "
            f"entropy {_number(base)})"
        )
    return (
        "Share of the order of heads that is foretold for layers left out, from each vocabulary's "
        "labels and from the numbers behind them. Below 0 the mean of the other layers is the "
        f"better guess; what lies below {_number(LEAST)} is drawn there. The best: "
        f"{'; '.join(told)}."
    )


def _best_design(rows: pd.DataFrame) -> pd.Series:
    """Of the forecasts of one target, the vocabulary that foretells most."""
    rest = rows[rows["design"] != "baseline"]
    return rest.loc[rest["r2"].idxmax()]


def stability_caption(found: Found) -> str:
    """What to see: which names stay on other inputs, and which on other texts."""
    table = found.table[found.table["model"] == found.table["model"].iloc[0]]
    least = {over: rows.loc[rows["kappa"].idxmin()] for over, rows in table.groupby("over")}
    told = "; ".join(
        f"{_over(row)}: {SHORT[row['vocabulary']]} ({_number(row['kappa'])})"
        for row in least.values()
    )
    return (
        "Each vocabulary beside itself: on two halves of the inputs, and on texts of other kinds "
        f"(the worst pair of them). Least stable in {table['model'].iloc[0]}, on {told}. No dot: "
        "all heads have one label."
    )


def model_caption(found: Found) -> str:
    """What to see: whether papers agree in one model as they do in another, or in none."""
    medians = found.table.groupby("model", sort=False)["ami"].median()
    told = "; ".join(
        f"{name}: {'none' if math.isnan(value) else _number(value)}"
        for name, value in medians.items()
    )
    return (
        "Information that every two papers share, in each model. Median over pairs: "
        f"{told}. No dot: one of the two gives all heads the same label."
    )


def saying_caption(found: Found) -> str:
    """What to see: what goes with the model's leaning on a head."""
    rows = found.table.dropna(subset="rho")
    top = rows.loc[rows["rho"].abs().idxmax()] if len(rows) else None
    told = "" if top is None else f" Strongest: heads that {SAYINGS[top['saying']]}"
    told += "" if top is None else f" ({_number(top['rho'])})."
    return (
        "Does what is said of heads go with how many answers change without them? Rank "
        f"correlation over heads within layers; 0 is no relation.{told}"
    )


def forecast_rows(found: Found) -> tuple[pd.DataFrame, dict[tuple[str, str], float]]:
    """Shares foretold as `labelled_scores` draws them, and the baseline to stand beside each."""
    table = found.table.assign(
        group=found.table["target"].map(TARGET_NAMES), value=found.table["r2"]
    )
    base = table[table["design"] == "baseline"].set_index("group")["r2"]
    rest = table[table["design"] != "baseline"]
    labels = [f"{SHORT[row.design]}, {row.form}" for row in rest.itertuples()]
    # Far below 0 all forecasts are equally useless; an axis that reaches there hides the others.
    rows = rest.assign(label=labels).assign(
        value=rest["value"].clip(LEAST), low=rest["low"].clip(LEAST), high=rest["high"].clip(LEAST)
    )
    beside = {
        (label, group): max(LEAST, float(base[group]))
        for label, group in zip(rows["label"], rows["group"], strict=True)
    }
    return rows, beside


def reliability_rows(found: Found, task_name: Any) -> pd.DataFrame:
    """Reliabilities as `labelled_scores` draws them; they have no interval of their own."""
    long = found.table.melt("task", var_name="measure")
    return long.assign(
        label=[_judged_by(row, task_name) for row in long.itertuples()],
        group=long["measure"].map({"cost": "points lost", "influence": "answers changed"}),
        low=long["value"],
        high=long["value"],
    )


def _judged_by(row: Any, task_name: Any) -> str:
    """A task's name; the heads of a reader are judged by its loss, not by points."""
    name: str = task_name(row.task)
    return f"{name} (loss)" if row.task == ASKS else name


def reliability_caption(found: Found) -> str:
    """What to see: how far two halves of the inputs order the heads alike."""
    names = {"cost": "points lost", "influence": "answers changed"}
    told = "; ".join(
        f"{names[key]}: {_number(found.findings[f'reliability.{key}'].value)}" for key in names
    )
    return (
        "How far two halves of a task's inputs order heads alike, stepped up to all inputs: 1 is "
        f"the same order, 0 none in common. Median over tasks: {told}. For questions: the rise of "
        "the loss, and its size. No dot: heads do not differ."
    )


def stability_rows(found: Found) -> pd.DataFrame:
    """Kappas of a vocabulary with itself: a panel per model and kind, a row per vocabulary."""
    table = found.table
    order = table.sort_values("kappa", na_position="last", kind="stable")
    worst = order.drop_duplicates(["model", "vocabulary", "over"]).sort_index()
    group = [f"{row.model}: {_over(row)}" for row in worst.itertuples()]
    return worst.assign(label=worst["vocabulary"].map(SHORT), group=group, value=worst["kappa"])


def _over(row: Any) -> str:
    return "other inputs" if row.over == "inputs" else "other texts"


def model_rows(found: Found) -> pd.DataFrame:
    """Information shared by pairs of papers: a panel per model."""
    table = found.table
    names = [f"{SHORT[row.one]} – {SHORT[row.other]}" for row in table.itertuples()]
    return table.assign(label=names, value=table["ami"])


def odd_rows(wall: pd.DataFrame, n: int = 8) -> pd.DataFrame:
    """The contradictions with the most heads, in words."""
    odd = wall[wall["odd"] & (wall["n"] > 0)].nlargest(n, "n")
    return pd.DataFrame(
        {
            "one paper says": [f"{SHORT[row.one]}: {row.row}" for row in odd.itertuples()],
            "another says": [f"{SHORT[row.other]}: {row.column}" for row in odd.itertuples()],
            "heads": odd["n"].to_list(),
            "by chance": odd["expected"].round(1).to_list(),
            "which": [_first(row.heads) for row in odd.itertuples()],
        }
    )


def _first(heads: str, n: int = 6) -> str:
    """The first heads, each a link to its card in the atlas."""
    named = heads.split()
    whole = 'style="white-space: nowrap"'  # a name is not broken at its hyphen
    links = [f'<a {whole} href="../book/atlas.html#{name}">{name}</a>' for name in named[:n]]
    return ", ".join(links) + (" …" if len(named) > n else "")


def label_counts(labels: pd.DataFrame) -> pd.DataFrame:
    """How many heads have each label, one line per vocabulary."""
    rows = []
    for name, part in labels.groupby("vocabulary", sort=False):
        counts = part["label"].value_counts()
        told = ", ".join(f"{label} {n}" for label, n in counts.items())
        rows.append({"vocabulary": NAMES[str(name)], "heads by label": told})
    return pd.DataFrame(rows).set_index("vocabulary")


def agreement_quotes(
    labels: pd.DataFrame, pairs: Found, forecast: Found, reliable: Found
) -> dict[str, Any]:
    """What the text of the chapter quotes."""
    clark = labels[labels["vocabulary"] == "clark"]["label"]
    table = forecast.table
    best: dict[str, Any] = {}
    for target in TARGETS:
        row = _best_design(table[table["target"] == target])
        best[f"best_{target}"] = f"{SHORT[row['design']]} ({row['form']})"
        best[f"r2_{target}"] = _number(row["r2"])
    pande = labels[labels["vocabulary"] == "pande"]["label"].to_numpy()
    block = np.array(["block" in label.split("+") for label in pande])
    return {
        "clark_other": int((clark == "other").sum()),
        "nameable": float((clark != "other").mean()),
        "with_role": int((pande != NO_ROLE).sum()),
        "n_block": int(block.sum()),
        "n_block_broad": int((block & (clark == "broad").to_numpy()).sum()),
        "n_heads": len(clark),
        "n_pairs": len(pairs.table),
        "n_tasks": len(reliable.table),
        "n_gaining": int(forecast.findings["forecast.influence.gaining"].value),
        "label_loss": _number(forecast.findings["forecast.influence.label_loss"].value),
        **best,
    }


def importance_quotes(found: Found) -> dict[str, str]:
    """Correlations of some measures, over all heads and within layers, as the text prints them."""
    table = found.table.set_index(["one", "other"])
    pairs = {
        "rise": ("influence", "questions"),
        "size": ("influence", "sway"),
        "answers_grammar": ("influence", "relations"),
        "answers_tuned": ("influence", "change"),
        "answers_gradient": ("influence", "gradient"),
    }
    told: dict[str, str] = {}
    for name, pair in pairs.items():
        told[f"rho_{name}"] = _number(table.loc[pair, "rho"])
        told[f"within_{name}"] = _number(table.loc[pair, "rho_within"])
    turned = found.table[found.table["rho"] * found.table["rho_within"] < 0]
    if len(turned):
        most = turned.loc[(turned["rho"] - turned["rho_within"]).abs().idxmax()]
        names = f"{MEASURE_NAMES[most['one']]} and {MEASURE_NAMES[most['other']]}"
        numbers = f"{_number(most['rho'])}, within layers {_number(most['rho_within'])}"
        told["turned"] = f"{names} ({numbers})"
    else:
        told["turned"] = "none here"
    return told


def loss_reliability(found: Found) -> float:
    """How far two halves of the questions order heads alike by the rise of the loss."""
    return float(found.table.set_index("task").loc[ASKS, "cost"])


def loss_width(effects: Mapping[str, Found]) -> float:
    """Half the width of the interval of a head's points lost: the median over heads and tasks."""
    tables = pd.concat([one.table for one in effects.values()])
    return float((tables["cost_high"] - tables["cost_low"]).median() / 2)


def stability_quotes(stable: Found) -> dict[str, Any]:
    """How stable names are over halves of the inputs, on other texts, and in a random twin."""
    table = stable.table[stable.table["over"] == "inputs"]
    twin = table[table["model"] == TWIN].set_index("vocabulary")["kappa"]
    return {
        "least_stable": float(stable.findings["stability.inputs.least"].value),
        "least_other_texts": float(stable.findings["stability.domains.least"].value),
        "twin_guan": float(twin["guan"]),
    }


def twin_quotes(labels: pd.DataFrame) -> dict[str, Any]:
    """Which namings call all heads of the random twin the same, and what."""
    of = {name: part["label"].unique() for name, part in labels.groupby("vocabulary", sort=False)}
    alike = [f"{SHORT[str(name)]}: {own[0]}" for name, own in of.items() if len(own) == 1]
    return {"twin_alike": len(alike), "twin_names": "; ".join(alike) or "none"}


def told(found: Found, name: str) -> str:
    """A number that claims ask for, as the text prints it; "–" where it could not be told."""
    one = found.findings.get(name)
    return "–" if one is None or math.isnan(one.value) else _number(one.value)


def measure_table() -> pd.DataFrame:
    """What each measure of importance is."""
    rows = [{"measure": MEASURE_NAMES[key], "is": text} for key, text in MEASURES.items()]
    return pd.DataFrame(rows).set_index("measure")


def facts_of(found: Mapping[str, Found]) -> dict[str, dict[str, Any]]:
    """The facts of several results, by their names."""
    return {name: dict(one.facts) for name, one in found.items()}
