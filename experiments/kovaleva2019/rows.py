"""Tables of the chapter's results as its figures and sentences take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from attnlib.data.tasks import TASKS
from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_name
from attnlib.measuring.significance import ALPHA
from attnlib.plots.labels import task_name
from bookkit.claims import Finding
from bookkit.store import Found
from experiments.kovaleva2019.disable import controlled
from experiments.kovaleva2019.disagreements import missing_as_zero
from experiments.kovaleva2019.tuning import CONSTANT
from experiments.shared.patterns import PATTERNS

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
        for by, column in (("network", "network"), ("rule", "rule"))
    ]
    pairs = pd.DataFrame(labels.facts["second_pass"], columns=["label", "called"])
    parts.append(pairs.assign(by="second pass"))
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
        name = f"{task_name(one['task'])} ({one['metric']})"
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
        "frame_leader_lead": leader["lead"],
        "frame_leaders": int(((table["q"] < ALPHA) & (table["lead"] > 0)).sum()),
        "frame_sentences": found.facts["inputs"],
        "frame_passing": found.facts["passing"],
    }


def larger_rows(first: Found, more: Mapping[str, Found]) -> pd.DataFrame:
    """Each set of sentences: its size, its strongest heads, and how alike its map is."""
    rows = []
    for name, one in {"main set": first, **more}.items():
        best, second = (row for _, row in one.table.nlargest(2, "mean").iterrows())
        rows.append(
            {
                "set": name,
                "sentences": one.facts["inputs"],
                "frames": one.facts["frames"],
                "strongest": f"{head_name(best)} ({best['mean']:.2f})",
                "second": f"{head_name(second)} ({second['mean']:.2f})",
                "heads that lead": int(((one.table["q"] < ALPHA) & (one.table["lead"] > 0)).sum()),
                "rank correlation of the map": one.table["mean"].corr(
                    first.table["mean"], method="spearman"
                ),
            }
        )
    return pd.DataFrame(rows).set_index("set")


def direction_rows(found: Mapping[str, Found]) -> pd.DataFrame:
    """The strongest head in each direction, with its score and lead."""
    rows = []
    for way, one in found.items():
        best = one.table.loc[one.table["mean"].idxmax()]
        told = {"direction": way, "strongest": head_name(best), "score": best["mean"]}
        rows.append({**told, "moved pairs": best["control"], "lead": best["lead"]})
    return pd.DataFrame(rows).set_index("direction")


def profiles(found: Found, what: str) -> pd.DataFrame:
    """Layer means, ours and the authors', as a figure takes them."""
    table = found.table
    rho = f"{what} (rank correlation {table['rho'].iloc[0]:+.2f}, p {table['p'].iloc[0]:.2f})"
    return table.assign(task=rho, other=table["authors"])


def changes(found: Mapping[str, Found]) -> pd.DataFrame:
    """How far the maps of every head are from those before fine-tuning."""
    table = beside(found)
    return table.assign(change=1 - table["cosine"])


def numbers_of(found: Mapping[str, Found]) -> dict[str, dict[str, Any]]:
    """The facts of every task, for an overview of all tasks."""
    return {task: dict(one.facts) for task, one in found.items()}


def link_table(found: Found) -> pd.DataFrame:
    """Links by task, in words."""
    names = {
        "best": "strongest",
        "diagonal": "with neighbours",
        "other": "with the other link",
        "other_given_near": "given neighbours",
        "beyond": "heads beyond distance, percent",
        "leader": "largest lead",
        "best_lead": "its lead",
    }
    table = found.table.assign(task=found.table["task"].map(task_name))
    return table.set_index(["link", "task"])[list(names)].rename(columns=names).sort_index(level=0)


def frame_loss_table(found: Found) -> pd.DataFrame:
    """What every task loses or gains without the frame heads."""
    names = {"name": "head", "change": "change, points", "p": "p", "holm": "p (Holm)"}
    table = found.table.assign(task=found.table["task"].map(task_name))
    return table.set_index("task")[list(names)].rename(columns=names)


def missing_rows(found: Found) -> pd.DataFrame:
    """The strongest head of each kind of one task, both ways, as a table of variants takes it."""
    table = missing_as_zero(found.table, found.facts["inputs"])
    what = [
        f"{row['kind']}: head {row['strongest']} ({row['n']} of {row['inputs']} inputs have one)"
        for _, row in table.iterrows()
    ]
    return table.assign(what=what, unit="attention")[["what", "unit", "paper_way", "authors_way"]]


def gainer_table(found: Found) -> pd.DataFrame:
    """How many heads surely gain attention to each kind of word, by task."""
    table = found.table.assign(task=found.table["task"].map(task_name))
    kinds = list(dict.fromkeys(table["kind"]))
    counts = table.pivot(index="task", columns="kind", values="gainers")
    return counts.reindex(dict.fromkeys(table["task"]), columns=kinds).fillna(0).astype(int)


def first_of_pairs(plans: Mapping[str, Any]) -> str:
    """The first task of text pairs: only these have words in both texts."""
    pairs = [task for task in plans if TASKS[task].pair]
    if not pairs:
        raise BadValue(f"{', '.join(plans)} have single texts; expected one task of text pairs.")
    return pairs[0]


def negation_table(found: Found) -> pd.DataFrame:
    """Inputs with a negation and inputs that the authors' code keeps, in words."""
    names = {
        "inputs": "inputs",
        "by_word": "with a negation word",
        "by_letters": "kept by the code",
        "wrong": "for letters only",
        "missed": "missed",
        "such_as": "letters in",
    }
    table = found.table.assign(task=found.table["task"].map(task_name))
    return table.set_index("task")[list(names)].rename(columns=names)


def kind_grids(found: Found) -> pd.DataFrame:
    """Fig. 6 for one task: a grid per kind of word, and which heads surely gain."""
    table = found.table.replace({"kind": {"cls": "[CLS]", "sep": "[SEP]"}})
    return table.assign(sure=(table["q"] < ALPHA) & (table["change"] > 0))


def disabled(effects: Mapping[str, Found], *, layers: bool) -> pd.DataFrame:
    """Fig. 8 and 9: the change by every head, or by every layer, and what survives the control."""
    rows = controlled([one.table for one in effects.values()])
    rows = rows[(rows["head"] == 0) == layers]
    sure = (rows["q_gain"] < ALPHA) | (rows["q_loss"] < ALPHA)
    return rows.assign(significant=sure).reset_index(drop=True)


def disabling_table(found: Found) -> pd.DataFrame:
    """One line per task, in words."""
    names = {
        "score": "score",
        "best_head": "best head off",
        "best_gain": "gain",
        "chosen_gain": "gain where it is chosen",
        "clean_gain": "gain on other inputs",
        "mean_change": "mean over heads",
        "gains_uncorrected": "gains at p < 0.05",
        "gains": "gains after control",
        "losses": "losses after control",
    }
    table = found.table.assign(task=found.table["task"].map(task_name))
    return table.set_index("task")[list(names)].rename(columns=names)


def disabling_quotes(found: Found) -> dict[str, Any]:
    """Sums over tasks that the text quotes."""
    table = found.table
    return {
        "n_gains_uncorrected": int(table["gains_uncorrected"].sum()),
        "n_gains": int(table["gains"].sum()),
        "n_losses": int(table["losses"].sum()),
        "n_disabling_tests": int(table["n_heads"].sum()),
        "mean_chosen_gain": float(table["chosen_gain"].mean()),
        "mean_clean_gain": float(table["clean_gain"].mean()),
        "harmless_percent": 100 * float(table["harmless"].mean()),
    }
