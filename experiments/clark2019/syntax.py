"""Sec. 4.2, Table 1: which head finds which dependency relation."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.measuring.best_heads import best_heads, predictions
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment

COMMON = ("prep", "pobj", "det", "nn", "nsubj", "amod", "dobj", "advmod", "aux")
OTHERS = ("poss", "auxpass", "ccomp", "mark", "prt")
TABLE1 = (*COMMON, *OTHERS)
"""The rows of the paper's table besides "all"."""
FOUR = ("dobj", "det", "pobj", "poss")
HIGH = 75.0


@experiment(version=1)
def syntax(
    corpus: Corpus, *, encoder: Encoder, min_count: int = 100, judged: bool = False, seed: int = 0
) -> Found:
    """The best head and the best fixed offset for each relation with enough instances.

    judged  whether the labels are the paper's, so that its claims can be held against them
    """
    found = predictions(encoder, corpus.examples)
    table = best_heads(found, min_count=min_count, possessive_clitic=judged, seed=seed)
    counts = (Counter(e.word).items() for e in tokenized(corpus.examples, encoder))
    pieces = np.array([n for one in counts for word, n in one if word >= 0])
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
    numbers = {"words.split_share": Finding(split), **table1_findings(table)} if judged else {}
    return Found(table, numbers, facts)


def table1_findings(table: pd.DataFrame) -> dict[str, Finding]:
    """What the claims on Table 1 ask for; a relation with too few instances is undefined."""
    rows = table.set_index("relation").reindex(["all", *TABLE1])
    found = {}
    for name, row in rows.iterrows():
        found[f"table1.{name}.accuracy"] = Finding(*map(float, row[["accuracy", "low", "high"]]))
        found[f"table1.{name}.gain"] = Finding(*map(float, row[["gain", "gain_low", "gain_high"]]))
    directions = rows.loc[list(TABLE1), "direction"].dropna()
    found["table1.share_dependent_to_head"] = Finding(float((directions == "dep->head").mean()))
    # How many of four relations have a head above 75 percent; the ends count the intervals' ends.
    four = rows.loc[list(FOUR), ["accuracy", "low", "high"]]
    counts = (four > HIGH).sum() if four["accuracy"].notna().all() else [math.nan]
    found["table1.four_above_75"] = Finding(*map(float, counts))
    return found
