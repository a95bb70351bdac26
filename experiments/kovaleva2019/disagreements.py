"""Where the paper and the authors' code disagree, and what each difference does to a number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus, with_trees
from attnlib.measuring.head_tables import head_name
from attnlib.metrics.links import words_of
from attnlib.metrics.word_kinds import FEATURES
from bookkit.store import Found, experiment

LISTED = (
    *("neither", "nor", "not", "never", "none", "nothing", "nowhere"),
    *("don't", "won't", "didn't", "hadn't", "haven't", "can't", "isn't", "wasn't"),
    *("shouldn't", "couldn't"),
)
"""What the authors' code takes for a negation if its letters occur anywhere in a text, with their
case; *no* is not among them."""
SKIPPED = "negation"
"""The one kind for which the authors' code leaves out inputs without it."""


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
        parsed = with_trees(corpus)
        by_word, by_letters, wrong = (np.zeros(len(parsed), bool) for _ in range(3))
        taken: list[str] = []
        for place, example in enumerate(parsed.examples):
            tree: Any = example
            told = zip(tree.tags, tree.relations, words_of(example), strict=True)
            by_word[place] = any(negation.holds(tag, label, word) for tag, label, word in told)
            text = " ".join(
                part if isinstance(part, str) else " ".join(part) for part in tree.parts
            )
            hits = [word for word in LISTED if word in text]
            own = _WORD.findall(text.lower())
            by_letters[place] = bool(hits)
            wrong[place] = bool(hits) and not set(hits) & set(own)
            taken += [
                word for word in own if word not in LISTED and any(hit in word for hit in hits)
            ]
        common = pd.Series(taken, dtype=str).value_counts().index[:4]
        rows.append(
            {
                "task": task,
                "inputs": len(parsed),
                "by_word": int(by_word.sum()),
                "by_letters": int(by_letters.sum()),
                "wrong": int(wrong.sum()),
                "missed": int((by_word & ~by_letters).sum()),
                "such_as": ", ".join(common),
            }
        )
    return Found(pd.DataFrame(rows), facts={"inputs": sum(map(len, corpora))})


_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def missing_as_zero(stripes: pd.DataFrame, inputs: int) -> pd.DataFrame:
    """The strongest head of each kind when inputs without the kind are skipped, or count as 0.

    stripes  the table of `stripe_maps` of one task, which has `n` inputs with each kind
    table    kind, n, strongest, paper, authors
    """
    rows = []
    for kind, part in stripes.groupby("kind", sort=False):
        top = part.loc[part["after"].idxmax()]
        share = 1.0 if kind == SKIPPED else top["n"] / inputs
        row = {"kind": kind, "n": int(top["n"]), "inputs": inputs, "strongest": head_name(top)}
        rows.append({**row, "paper_way": top["after"], "authors_way": share * top["after"]})
    return pd.DataFrame(rows)


def both_cosines(cropped: pd.DataFrame, padded: pd.DataFrame) -> pd.DataFrame:
    """The mean cosine of every layer with padding cut away and with padding left in.

    table  task, layer, ours (the paper's way), other (the authors')
    """
    keys = ["task", "layer"]
    means = [one.groupby(keys, sort=False)["cosine"].mean() for one in (cropped, padded)]
    found = pd.DataFrame({"ours": means[0], "other": means[1]})
    return found.dropna().reset_index()
