"""Sec. 4.4, Fig. 6: attention to kinds of words, before and after fine-tuning, and in the code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus, with_trees
from attnlib.measuring.bootstrap import statistics
from attnlib.measuring.head_tables import head_name, head_rows
from attnlib.measuring.significance import ALPHA, benjamini_hochberg, one_sided
from attnlib.measuring.stream import Measurement, Progress, measure
from attnlib.metrics.links import words_of
from attnlib.metrics.word_kinds import FEATURES, SPECIAL, stripe_metrics
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.intervals import mean_ends
from experiments.shared.training.taskplans import tuned_model

WORDS = tuple(one.name for one in FEATURES)
KINDS = (*WORDS, *SPECIAL)
NOUN_TASKS = ("mrpc", "rte", "qqp")
NEGATION_TASK = "qnli"
LISTED = (
    *("neither", "nor", "not", "never", "none", "nothing", "nowhere"),
    *("don't", "won't", "didn't", "hadn't", "haven't", "can't", "isn't", "wasn't"),
    *("shouldn't", "couldn't"),
)
"""What the authors' code takes for a negation if its letters occur anywhere in a text, with their
case; *no* is not among them."""
SKIPPED = "negation"
"""The one kind for which the authors' code leaves out inputs without it."""
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


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
    options: Any = {"max_length": recipe["max_length"], "on_long": "truncate", "progress": progress}
    before, after = (measure(one, parsed, metrics, **options) for one in (encoder, model.encoder))
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
            row = {"task": task, "kind": kind, "n": int(part["n"].iloc[0])}
            row |= {"strongest": head_name(top), "after": top["after"]}
            row["gainers"] = int(((part["q"] < ALPHA) & (part["change"] > 0)).sum())
            rows.append({**row, "gaining": head_name(gained), "gain": gained["change"]})
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


# --- what the authors' code does ------------------------------------------------------------------


@experiment(version=1, reads=["spacy-en"])
def negation_by_letters(*corpora: Corpus, tasks: Sequence[str]) -> Found:
    """Inputs with a negation, found as a word, and kept by the authors' code for its letters.

    An input that is kept for letters inside other words has no column of that name: in the
    authors' mean it counts as 0.

    table  task, inputs, by_word (with a negation word), by_letters (kept by the code), wrong (kept
           for letters only), missed (with a word, not kept), such_as: words taken for a negation
    """
    negation = next(one for one in FEATURES if one.name == "negation")
    rows = []
    for corpus, task in zip(corpora, tasks, strict=True):
        counts = dict.fromkeys(("by_word", "by_letters", "wrong", "missed"), 0)
        taken: Counter[str] = Counter()
        parsed = with_trees(corpus)
        for example in parsed.examples:
            tree: Any = example
            told = zip(tree.tags, tree.relations, words_of(example), strict=True)
            by_word = any(negation.holds(tag, label, word) for tag, label, word in told)
            text = " ".join(one if isinstance(one, str) else " ".join(one) for one in tree.parts)
            hits, own = [word for word in LISTED if word in text], _WORD.findall(text.lower())
            counts["by_word"] += by_word
            counts["by_letters"] += bool(hits)
            counts["wrong"] += bool(hits) and not set(hits) & set(own)
            counts["missed"] += by_word and not hits
            taken.update(w for w in own if w not in LISTED and any(hit in w for hit in hits))
        common = ", ".join(word for word, _ in taken.most_common(4))
        rows.append({"task": task, "inputs": len(parsed), **counts, "such_as": common})
    return Found(pd.DataFrame(rows), facts={"inputs": sum(map(len, corpora))})


def missing_as_zero(stripes: pd.DataFrame, inputs: int) -> pd.DataFrame:
    """The strongest head of each kind when inputs without the kind are skipped, or count as 0.

    stripes  the table of `stripe_maps` of one task, which has `n` inputs with each kind
    returns  kind, n, layer, head, paper_way, authors_way
    """
    top = stripes.loc[stripes.groupby("kind", sort=False)["after"].idxmax()]
    counted = (top["n"] / inputs).where(top["kind"] != SKIPPED, 1.0)
    ways = top.assign(paper_way=top["after"], authors_way=counted * top["after"])
    return ways[["kind", "n", "layer", "head", "paper_way", "authors_way"]].reset_index(drop=True)
