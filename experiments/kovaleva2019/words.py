"""Sec. 4.4, Fig. 6: attention that kinds of words receive, before and after fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus, with_trees
from attnlib.measuring.bootstrap import statistics
from attnlib.measuring.head_tables import head_name
from attnlib.measuring.significance import ALPHA, benjamini_hochberg, one_sided
from attnlib.measuring.stream import Measurement, Progress
from attnlib.metrics.word_kinds import FEATURES, SPECIAL, stripe_metrics
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.kovaleva2019.grids import head_rows, mean_ends, measured
from experiments.shared.taskplans import tuned_model

WORDS = tuple(one.name for one in FEATURES)
KINDS = (*WORDS, *SPECIAL)
NOUN_TASKS = ("mrpc", "rte", "qqp")
NEGATION_TASK = "qnli"


@experiment(version=1, reads=["spacy-en"], trains=True)
def stripe_maps(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """Attention to every kind of word before and after fine-tuning, on the same inputs.

    table  task, kind, layer, head, before, after, change, low, high, q (of a gain, over the heads
           of the kind), n: inputs that have such a word
    facts  numbers of the task with their intervals, as [value, low, high]
    """
    model = tuned_model(train, encoder=encoder, task=task, recipe=recipe, progress=progress)
    parsed = with_trees(test)
    metrics = stripe_metrics(parsed.examples)
    before, after = (
        measured(one, parsed, metrics, recipe, progress) for one in (encoder, model.encoder)
    )
    parts = []
    for kind in KINDS:
        old, new = (found.values(f"stripe_{kind}") for found in (before, after))
        change = new - old
        n = int((~np.isnan(change)).any((1, 2)).sum())
        if not n:
            continue
        ends = mean_ends(change, seed)
        grids = {"before": np.nanmean(old, axis=0), "after": np.nanmean(new, axis=0)}
        grids |= {"change": ends.mean, "low": ends.low, "high": ends.high}
        grids["q"] = benjamini_hochberg(one_sided(change, 0.0).p)
        parts.append(head_rows(**grids).assign(task=task, kind=kind, n=n))
    table = pd.concat(parts, ignore_index=True)
    numbers = _stripe_numbers(after, before, sorted(set(table["kind"]) & set(WORDS)), seed)
    facts = {
        "inputs": after.n_examples,
        "passes": 2 * after.n_examples,
        "task": task,
        "pair": test.examples[0].pair is not None,  # type: ignore[attr-defined]
        "with_kind": table.groupby("kind", sort=False)["n"].first().to_dict(),
    }
    return Found(table, facts={**facts, **numbers})


def _stripe_numbers(
    after: Measurement, before: Measurement, words: Sequence[str], seed: int
) -> dict[str, list[float]]:
    rows = {f"after {kind}": after.rows(f"stripe_{kind}") for kind in (*words, *SPECIAL)}
    rows |= {f"before {kind}": before.rows(f"stripe_{kind}") for kind in words}

    def special(grids: Mapping[str, np.ndarray]) -> float:
        return max(float(grids[f"after {kind}"].max()) for kind in SPECIAL)

    def over_words(grids: Mapping[str, np.ndarray]) -> float:
        return special(grids) / _largest(grids[f"after {kind}"] for kind in words)

    def gain(grids: Mapping[str, np.ndarray]) -> float:
        gains = (grids[f"after {kind}"] - grids[f"before {kind}"] for kind in words)
        return _largest(gains) / special(grids)

    def gap(grids: Mapping[str, np.ndarray]) -> float:
        return _centre(grids["after sep"]) - _centre(grids["after cls"])

    wanted = {"gap": gap, "sep": lambda grids: float(grids["after sep"].mean())}
    if words:
        wanted |= {"over_words": over_words, "gain": gain}
    found = statistics(rows, wanted, replicates=500, seed=seed)
    return {name: [float(end) for end in ends] for name, ends in found.items()}


@experiment(version=1)
def stripe_overview(*tables: pd.DataFrame, facts: Mapping[str, Mapping[str, Any]]) -> Found:
    """The claims of sec. 4.4 over all tasks.

    tables  those of `stripe_maps`, one per task;  facts  task -> the facts of the same
    table   task, kind, n, strongest, after, gainers (heads with a sure gain), best_gain
    """
    rows = []
    for table, task in zip(tables, facts, strict=True):
        for kind, part in table.groupby("kind", sort=False):
            top, gained = part.loc[part["after"].idxmax()], part.loc[part["change"].idxmax()]
            sure = (part["q"] < ALPHA) & (part["change"] > 0)
            rows.append(
                {
                    "task": task,
                    "kind": kind,
                    "n": int(part["n"].iloc[0]),
                    "strongest": head_name(top),
                    "after": top["after"],
                    "gainers": int(sure.sum()),
                    "gaining": head_name(gained),
                    "gain": gained["change"],
                }
            )
    table = pd.DataFrame(rows)
    return Found(table, _stripe_claims(table, facts))


def _stripe_claims(
    table: pd.DataFrame, facts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Finding]:
    def ends(name: str) -> list[Finding]:
        return [Finding(*one[name]) for one in facts.values() if name in one]

    def value(one: Finding) -> float:
        return one.value

    found = {"stripes.centre_gap": min(ends("gap"), key=value)}
    if ends("over_words"):
        found["stripes.special_over_words"] = min(ends("over_words"), key=value)
        found["stripes.gain_over_special"] = max(ends("gain"), key=value)
    single, pairs = (
        [one["sep"][0] for one in facts.values() if one["pair"] is pair] for pair in (False, True)
    )
    if single and pairs:
        found["stripes.sep_single_lead"] = Finding(float(np.mean(single) - np.mean(pairs)))
    gainers = table.set_index(["task", "kind"])["gainers"]
    if set(NOUN_TASKS) <= set(facts):
        have = [
            all(gainers.get((task, kind), 0) > 0 for kind in ("noun", "object"))
            for task in NOUN_TASKS
        ]
        found["stripes.noun_tasks"] = Finding(float(sum(have)))
    if (NEGATION_TASK, "negation") in gainers:
        found["stripes.negation_heads"] = Finding(float(gainers[NEGATION_TASK, "negation"]))
    return found


def _centre(grid: np.ndarray) -> float:
    """The mean layer, counted from 1, weighted by the layers' attention."""
    by_layer = grid.mean(1)
    return float((by_layer * np.arange(1, len(by_layer) + 1)).sum() / by_layer.sum())


def _largest(grids: Iterable[np.ndarray]) -> float:
    """The largest value of any head; kinds that no drawn input has are left out."""
    return max(float(grid.max()) for grid in grids if not np.isnan(grid).any())
