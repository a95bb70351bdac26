"""Tables of the chapter's results as its figures and sentences take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from attnlib.kovaleva2019.disable import ALPHA
from attnlib.kovaleva2019.grids import head_name
from attnlib.kovaleva2019.tuning import CONSTANT
from attnlib.papers import Finding
from attnlib.patterns import PATTERNS
from attnlib.results import Found
from attnlib.tasks import TASKS

START_NAMES = {
    "untrained": "pre-trained, untrained head",
    "frozen": "pre-trained, frozen",
    "random": "random weights, trained",
    "pretrained": "pre-trained, fine-tuned",
    CONSTANT: "best constant answer",
}


def beside(found: Mapping[str, Found]) -> pd.DataFrame:
    """The tables of all tasks below each other."""
    tables = [one.table.assign(task=task) for task, one in found.items()]
    return pd.concat(tables, ignore_index=True)


def confusion_rows(network: Found, labels: Found) -> pd.DataFrame:
    """by, label, called, n: the network on unseen maps, the rule, and the second pass by eye."""
    told = network.table
    parts = [
        pd.DataFrame({"by": by, "label": told["label"], "called": told[column]})
        for by, column in (("network, unseen maps", "network"), ("rule", "rule"))
    ]
    pairs = pd.DataFrame(labels.facts["second_pass"], columns=["label", "called"])
    parts.append(pairs.assign(by="second pass by eye"))
    rows = pd.concat(parts, ignore_index=True)
    return rows.value_counts(["by", "label", "called"], sort=False).rename("n").reset_index()


def score_rows(findings: Mapping[str, Finding]) -> pd.DataFrame:
    """F1 of the network by class and in the mean, with the rule and a network taught nonsense."""
    wanted = {
        **{name: f"network.f1.{name}" for name in PATTERNS},
        "mean over classes": "network.macro",
        "weighted by class size": "network.weighted",
        "the rule, mean over classes": "rule.macro",
        "shuffled labels, mean over classes": "shuffled.macro",
    }
    rows = [{"label": label, **_ends(findings[name])} for label, name in wanted.items()]
    return pd.DataFrame(rows)


def _ends(one: Finding) -> dict[str, float]:
    return {"value": one.value, "low": one.low, "high": one.high}


def start_rows(found: Found) -> pd.DataFrame:
    """Table 1: the task's own metric of every task and start, in words."""
    table = found.table
    own = table["metric"] == table["task"].map(lambda task: TASKS[task].metric)
    rows = table[own].reset_index(drop=True)
    return rows.assign(label=rows["start"].map(START_NAMES))


def paper_starts(reported: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """The paper's scores by start and task, from `Chapter.reported("tab1")`."""
    names = {"tuned": "pretrained", "random": "random", "untuned": "untrained"}
    found = {}
    for key, value in reported.items():
        task, _, start = key.partition(".")
        if start in names and "value" in value:
            found[START_NAMES[names[start]], task] = float(value["value"])
    return found


def score_table(found: Found, reported: Mapping[str, Mapping[str, Any]]) -> Any:
    """Table 1 with a row per task: every start, ours, and the paper's in brackets."""
    rows, theirs = start_rows(found), paper_starts(reported)
    cells: dict[str, dict[str, str]] = {}
    for one in rows.to_dict("records"):
        paper = theirs.get((one["label"], one["task"]))
        beside_it = "" if paper is None else f" ({paper:.1f})"
        name = f"{one['task']} ({one['metric']})"
        cells.setdefault(name, {})[one["label"]] = f"{one['value']:.1f}{beside_it}"
    order = [name for name in START_NAMES.values() if name in set(rows["label"])]
    return pd.DataFrame.from_dict(cells, orient="index")[order].rename_axis("task")


def heterogeneous(reported: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The two shares of heterogeneous maps that the paper tells by task: MRPC and QQP."""
    told = {"mrpc": "heterogeneous_least", "qqp": "heterogeneous_most"}
    return {task: float(reported[key]["value"]) for task, key in told.items() if key in reported}


def layer_shares(found: Found) -> pd.DataFrame:
    """The share of each pattern by layer, mean over tasks."""
    table = found.table[found.table["layer"] > 0]
    return table.groupby(["layer", "pattern"], sort=False)["share"].mean().reset_index()


def task_shares(found: Found) -> pd.DataFrame:
    """The share of each pattern by task, over all layers."""
    return found.table[found.table["layer"] == 0].drop(columns="layer").reset_index(drop=True)


def frame_quotes(found: Found) -> dict[str, Any]:
    """The strongest frame heads, their scores, and how many heads lead over the control."""
    table = found.table
    best, second = (row for _, row in table.nlargest(2, "mean").iterrows())
    leader = table.loc[table["lead"].idxmax()]
    return {
        "frame_best": head_name(best),
        "frame_best_score": best["mean"],
        "frame_best_control": best["control"],
        "frame_second": head_name(second),
        "frame_second_score": second["mean"],
        "frame_second_control": second["control"],
        "frame_leader": head_name(leader),
        "frame_leader_score": leader["mean"],
        "frame_leader_lead": leader["lead"],
        "frame_leaders": int(((table["q"] < ALPHA) & (table["lead"] > 0)).sum()),
        "frame_sentences": found.facts["inputs"],
    }


def kind_grids(stripes: Mapping[str, Found], task: str, column: str = "change") -> pd.DataFrame:
    """Fig. 6 for one task: a grid per kind of word."""
    table = stripes[task].table
    sure = (table["q"] < ALPHA) & (table["change"] > 0)
    return table.assign(value=table[column], sure=sure)


def disabled_heads(effects: Mapping[str, Found]) -> pd.DataFrame:
    """Fig. 8: the change by every head, and whether it survives the control."""
    rows = beside(effects)
    rows = rows[rows["head"] > 0].reset_index(drop=True)
    return rows.assign(significant=rows["q"] < ALPHA)


def disabled_layers(effects: Mapping[str, Found]) -> pd.DataFrame:
    """Fig. 9: the change by every layer."""
    rows = beside(effects)
    rows = rows[rows["head"] == 0].reset_index(drop=True)
    return rows.assign(significant=rows["q"] < ALPHA)


def disabling_table(found: Found) -> pd.DataFrame:
    """One line per task, in words."""
    names = {
        "score": "score",
        "best_head": "best head off",
        "best_gain": "gain",
        "clean_gain": "gain on other inputs",
        "mean_change": "mean over heads",
        "gains_uncorrected": "gains at p < 0.05",
        "gains": "gains after control",
        "losses": "losses after control",
    }
    return found.table.set_index("task")[list(names)].rename(columns=names)


def disabling_quotes(found: Found) -> dict[str, Any]:
    """Sums over tasks that the text quotes."""
    table = found.table
    return {
        "n_gains_uncorrected": int(table["gains_uncorrected"].sum()),
        "n_gains": int(table["gains"].sum()),
        "n_losses": int(table["losses"].sum()),
        "n_disabling_tests": 144 * len(table),
        "mean_best_gain": float(table["best_gain"].mean()),
        "mean_clean_gain": float(table["clean_gain"].mean()),
        "least_mean_change": float(table["mean_change"].min()),
        "harmless_percent": 100 * float(table["harmless"].mean()),
    }


def mean_over_tasks(found: Mapping[str, Found], column: str) -> pd.DataFrame:
    """layer, head, and the mean of a column over all tasks."""
    table = beside(found)
    return table.groupby(["layer", "head"])[column].mean().reset_index()
