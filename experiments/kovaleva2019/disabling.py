"""Sec. 4.6, Fig. 8 and 9: every head and every layer disabled, and what really follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS
from attnlib.measuring.bootstrap import percentile_interval
from attnlib.measuring.head_tables import head_names
from attnlib.measuring.significance import ALPHA, benjamini_hochberg, holm
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.ablation import (
    Answers,
    disabled,
    drawn_changes,
    every_head_and_layer,
    p_values,
    points,
    row_scores,
)
from experiments.shared.intervals import drawn
from experiments.shared.training.taskplans import tuned_model

HARMLESS = -0.5
"""Points that a head may cost and still count as not needed."""
EXCHANGES, SMALL = 1000, 0.02
HALVES = 200
"""Random halves of the inputs on which the best head is chosen, to be tested on the other half."""
FRAME_HEADS = 2


@experiment(version=1, trains=True)
def disabled_answers(train: Corpus, test: Corpus, *, encoder: Encoder, **plan: Any) -> Found:
    """What the fine-tuned model answers as it is, and with each head or layer at 1/L.

    plan   task and recipe of the fine-tuned model
    table  label, whole, then a column per head ("5-4") and per layer ("layer 5"); a row per input
    """
    model = tuned_model(train, encoder=encoder, **plan)
    variants = every_head_and_layer(model)
    found = disabled(model, test, variants)
    kind = np.float32 if model.task.regression else np.int8
    columns = dict(zip(found.names, found.answers.astype(kind), strict=True))
    facts = {"inputs": len(test), "passes": len(test) * (1 + len(variants)), "task": plan["task"]}
    return Found(pd.DataFrame({"label": found.labels, **columns}), facts=facts)


@experiment(version=1)
def disabling_effects(answers: pd.DataFrame, *, task: str, seed: int = 0) -> Found:
    """The change of the task's metric by every head and layer, in points, with its uncertainty.

    answers  the table of `disabled_answers`
    table    task, name, layer, head (0 for a whole layer), change, low, high (paired bootstrap),
             p (two-sided)
    facts    score of the whole model; mean change and harmless heads as [value, low, high]; the
             gain of the best head where it was chosen and on the other half of the inputs
    """
    labels, given = answers["label"].to_numpy(float), answers.drop(columns="label")
    found = Answers(tuple(given), given.to_numpy(float).T, labels, TASKS[task])
    score, *changed = points(found)
    change = np.array(changed) - score
    draws = drawn_changes(found, seed=seed)
    low, high = percentile_interval(draws)
    names = pd.Series(found.names[1:])
    place = names.str.extract(r"(\d+)(?:-(\d+))?").fillna("0").astype(int)
    table = pd.DataFrame(
        {"task": task, "name": names, "layer": place[0], "head": place[1], "change": change}
        | {"low": low, "high": high, "p": _fine_p(found, seed)}
    )
    heads = place[1].to_numpy() > 0
    own, again = change[heads], draws[:, heads]
    facts = {
        "inputs": len(answers),
        "task": task,
        "score": float(score),
        "mean_change": _ends(own.mean(), again.mean(1)),
        "harmless": _ends((own > HARMLESS).mean(), (again > HARMLESS).mean(1)),
        **_chosen_gains(found, heads, seed),
    }
    return Found(table, facts=facts)


def _fine_p(found: Answers, seed: int) -> np.ndarray:
    """Two-sided p; small ones by more exchanges, as 144 tests ask for p below 1/1000."""
    p = p_values(found, draws=EXCHANGES, seed=seed)
    small = np.flatnonzero(p < SMALL)
    part = replace(found, answers=found.answers[[0, *(1 + small)]])
    p[small] = p_values(part, draws=20 * EXCHANGES, seed=seed + 1)
    return p


def _ends(value: float, draws: np.ndarray) -> list[float]:
    """A number on all inputs, with the interval of the same number on inputs drawn again."""
    return list(astuple(drawn([value, *draws])))


def _chosen_gains(found: Answers, heads: np.ndarray, seed: int) -> dict[str, list[float]]:
    """The gain of the best head on the half of the inputs that chose it, and on the other half.

    Means over random halves, and the middle 95 % of them; heads that are equally good are averaged.
    """
    generator = np.random.default_rng(seed)
    answers = found.answers[[True, *heads]]
    gains: dict[str, list[float]] = {"chosen_gain": [], "clean_gain": []}
    for _ in range(HALVES):
        order = generator.permutation(len(found.labels))
        half = len(order) // 2
        chosen, tested = (
            100 * row_scores(answers[:, part], found.labels[part], found.task)
            for part in (order[:half], order[half:])
        )
        best = chosen[1:] == np.nanmax(chosen[1:])
        for name, scores in zip(gains, (chosen, tested), strict=True):
            gains[name].append(float(np.mean(scores[1:][best]) - scores[0]))
    return {name: _ends(float(np.nanmean(own)), np.array(own)) for name, own in gains.items()}


def controlled(effects: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All effects of all tasks with q_gain and q_loss: false discoveries controlled for each.

    Gains and losses are two families, and so are heads and whole layers, each over all tasks: many
    true losses must not lend significance to gains.
    """
    table = pd.concat(effects, ignore_index=True)
    for name, sign in (("q_gain", 1), ("q_loss", -1)):
        p = (table["p"] / 2).where(sign * table["change"] > 0, 1 - table["p"] / 2)
        table[name] = p.groupby(table["head"] > 0).transform(
            lambda family: benjamini_hochberg(family.to_numpy())
        )
    return table


@experiment(version=1)
def disabling_overview(*effects: pd.DataFrame, facts: Mapping[str, Mapping[str, Any]]) -> Found:
    """The claims of sec. 4.6 over all tasks.

    effects  the tables of `disabling_effects`, one per task
    facts    task -> the facts of the same
    table    task, n_heads, score, best_head, best_gain, low, high (of that head), chosen_gain,
             clean_gain, mean_change, gains_uncorrected, gains, losses (false discoveries
             controlled), harmless, best_layer, best_layer_gain, layer_gains, layer_losses,
             layers_harmless: the share of layers that cost less than half a point
    """
    judged = controlled(effects)
    rows = []
    for task, told in facts.items():
        own = judged[judged["task"] == task]
        heads, layers = own[own["head"] > 0], own[own["head"] == 0]
        best, top = heads.loc[heads["change"].idxmax()], layers.loc[layers["change"].idxmax()]
        rows.append(
            {
                "task": task,
                "n_heads": len(heads),
                "score": told["score"],
                "best_head": best["name"],
                "best_gain": best["change"],
                "low": best["low"],
                "high": best["high"],
                **{name: told[name][0] for name in ("chosen_gain", "clean_gain", "mean_change")},
                "gains_uncorrected": int(((heads["p"] < ALPHA) & (heads["change"] > 0)).sum()),
                "gains": int((heads["q_gain"] < ALPHA).sum()),
                "losses": int((heads["q_loss"] < ALPHA).sum()),
                "harmless": told["harmless"][0],
                "best_layer": int(top["layer"]),
                "best_layer_gain": top["change"],
                "layer_gains": int((layers["q_gain"] < ALPHA).sum()),
                "layer_losses": int((layers["q_loss"] < ALPHA).sum()),
                "layers_harmless": float((layers["change"] > HARMLESS).mean()),
            }
        )
    table = pd.DataFrame(rows)
    return Found(table, _claims(table, judged, facts))


def _claims(
    table: pd.DataFrame, judged: pd.DataFrame, facts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Finding]:
    """What holds over all tasks, and what the paper says of some by name."""
    counted = {
        "some_gain": (table["best_gain"] > 0).mean(),
        "clean_gain_share": (table["clean_gain"] > 0).mean(),
        "significant_gains": table["gains"].sum(),
        "layer_gain_share": (table["best_layer_gain"] > 0).mean(),
        "layer_significant_share": (table["layer_gains"] > 0).mean(),
        "significant_losses": table["losses"].sum(),
        "layers_harmless": table["layers_harmless"].mean(),
    }
    found = {f"disabling.{name}": Finding(float(value)) for name, value in counted.items()}
    harmless = np.mean([one["harmless"] for one in facts.values()], axis=0)
    found["disabling.harmless_share"] = Finding(*harmless.tolist())
    best = table[["best_gain", "low", "high"]].sort_values("best_gain").to_numpy(float)
    found["disabling.least_best_gain"] = Finding(*best[0])
    found["disabling.most_best_gain"] = Finding(*best[-1])
    mean_change = table.set_index("task")["mean_change"]
    if {"mrpc", "rte"} <= set(facts):
        n_gaining = (mean_change[["mrpc", "rte"]] > 0).sum()
        found["disabling.mean_gain_tasks"] = Finding(float(n_gaining))
    first = judged.loc[judged["name"] == "layer 1", ["task", "change", "low", "high"]]
    of_first = {task: Finding(*map(float, told)) for task, *told in first.to_numpy()}
    if "rte" in of_first:
        found["disabling.rte_first_layer"] = of_first["rte"]
        found["disabling.rte_first_layer_low"] = Finding(of_first["rte"].low)
    if {"qnli", "mnli"} <= set(of_first):
        pair = (of_first["qnli"], of_first["mnli"])
        found["disabling.qnli_mnli_first_layer"] = min(pair, key=lambda one: one.value)
    heads = judged[judged["head"] > 0].pivot(index="name", columns="task", values="change")
    if {"stsb", "rte"} <= set(heads):
        rho = spearmanr(heads["stsb"], heads["rte"]).statistic
        found["disabling.stsb_rte"] = Finding(float(rho))
    return found


@experiment(version=1)
def frame_heads_disabled(*tables: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """Sec. 5: what every task loses without each of the two strongest frame heads.

    tables  that of `frame_scores`, then those of `disabling_effects`, one per task
    table   task, name, change, low, high, p, holm: over these heads of all tasks
    """
    frames, *effects = tables
    names = head_names(frames.nlargest(FRAME_HEADS, "mean"))
    table = pd.concat(effects, ignore_index=True).query("name in @names").reset_index(drop=True)
    table = table[["task", "name", "change", "low", "high", "p"]]
    table["holm"] = holm(table["p"].to_numpy())
    worst = table.loc[table["change"].idxmin()]
    loss = (-worst["change"], -worst["high"], -worst["low"])
    sure = (table["holm"] < ALPHA) & (table["change"] < 0)
    found = {
        "disabling.frame_heads_loss": Finding(*map(float, loss)),
        "disabling.frame_heads_significant": Finding(float(table.loc[sure, "task"].nunique())),
    }
    return Found(table, found, {"heads": names, "tasks": list(tasks)})
