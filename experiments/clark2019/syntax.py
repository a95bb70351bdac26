"""Sec. 4.2, Table 1: which head finds which dependency relation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.measuring.best_heads import best_heads
from attnlib.measuring.prediction import predictions
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment

COMMON = ("prep", "pobj", "det", "nn", "nsubj", "amod", "dobj", "advmod", "aux")
OTHERS = ("poss", "auxpass", "ccomp", "mark", "prt")
TABLE1 = (*COMMON, *OTHERS)
"""The rows of the paper's table besides "all"."""
FOUR = ("dobj", "det", "pobj", "poss")
HIGH = 75.0
QUOTED = (
    *("gain_relation", "gain_head", "gain_accuracy", "gain_baseline", "clean_cost"),
    *("worst_relation", "worst_cost", "top_head", "top_rows", "n_rows", "auxpass_baseline"),
)


@experiment(version=1)
def syntax(
    corpus: Corpus,
    *,
    encoder: Encoder,
    min_count: int = 100,
    from_pieces: str = "mean",
    judged: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """The best head and the best fixed offset for each relation with enough instances.

    judged  whether the labels are the paper's, so that its claims can be held against them
    """
    found = predictions(encoder, corpus.examples, from_pieces=from_pieces, progress=progress)
    table = best_heads(found, min_count=min_count, possessive_clitic=judged, seed=seed)
    pieces = _pieces_per_word(corpus, encoder)
    split = float((pieces > 1).mean())
    facts = {
        "inputs": len(corpus),
        "passes": found.n_sentences,
        "tokens": int(pieces.sum()) + 2 * len(corpus),
        "words": len(pieces),
        "split_share": split,
        "skipped": dict(found.skipped),
        "corpus": corpus.name,
    }
    numbers = {"words.split_share": Finding(split), **_table1_findings(table)} if judged else {}
    return Found(table, numbers, facts)


def _pieces_per_word(corpus: Corpus, encoder: Encoder) -> np.ndarray:
    counts = (Counter(e.word).items() for e in tokenized(corpus.examples, encoder))
    return np.array([n for one in counts for word, n in one if word >= 0])


def _table1_findings(table: pd.DataFrame) -> dict[str, Finding]:
    """What the claims on Table 1 ask for; a relation with too few instances is undefined."""
    rows = table.set_index("relation")
    found = {}
    for name in ("all", *TABLE1):
        row: Mapping[str, Any] = rows.loc[name] if name in rows.index else {}
        for what, ends in (("accuracy", ("low", "high")), ("gain", ("gain_low", "gain_high"))):
            values = (row.get(key, math.nan) for key in (what, *ends))
            found[f"table1.{name}.{what}"] = Finding(*map(float, values))
    there = rows.loc[[name for name in TABLE1 if name in rows.index]]
    share = float((there["direction"] == "dep->head").mean()) if len(there) else math.nan
    found["table1.share_dependent_to_head"] = Finding(share)
    found["table1.four_above_75"] = _above(rows.loc[[f for f in FOUR if f in rows.index]])
    return found


def _above(rows: pd.DataFrame) -> Finding:
    """How many relations have a head above 75 percent; the ends count the intervals' ends."""
    if len(rows) < len(FOUR):
        return Finding(math.nan)
    return Finding(*(float((rows[end] > HIGH).sum()) for end in ("accuracy", "low", "high")))


def table1_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's rows that this data has, in the paper's order."""
    rows = table.set_index("relation")
    return rows.loc[[name for name in ("all", *TABLE1) if name in rows.index]].reset_index()


def table1_quotes(found: Found) -> dict[str, Any]:
    """What the text of the chapter quotes of Table 1."""
    rows = table1_rows(found.table)
    single = rows[rows["relation"] != "all"].set_index("relation", drop=False)
    if single.empty:
        return dict.fromkeys(QUOTED, math.nan)
    best = single.loc[single["gain"].idxmax()]
    costs = single["accuracy"] - single["clean_accuracy"]
    heads = single["head"].value_counts()
    return {
        "gain_relation": best["relation"],
        "gain_head": best["head"],
        "gain_accuracy": float(best["accuracy"]),
        "gain_baseline": float(best["baseline"]),
        "clean_cost": float(costs.mean()),
        "worst_relation": costs.idxmax(),
        "worst_cost": float(costs.max()),
        "top_head": heads.index[0],
        "top_rows": int(heads.iloc[0]),
        "n_rows": len(single),
        "auxpass_baseline": float(single["baseline"].get("auxpass", math.nan)),
    }
