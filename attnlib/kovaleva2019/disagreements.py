"""Where the paper and the authors' code disagree, and what each difference does to a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.corpora import Corpus
from attnlib.kovaleva2019.grids import head_name
from attnlib.links import words_of
from attnlib.overlays import with_trees
from attnlib.results import Found
from attnlib.stripes import FEATURES

SUBSTRINGS = ("not", "n't", "no", "never", "none", "nor", "neither")
"""Words whose letters the authors' code looks for anywhere in a token."""


SKIPPED = "negation"
"""The one kind for which the authors' code leaves out inputs without it."""


def negation_by_letters(*corpora: Corpus, tasks: Sequence[str]) -> Found:
    """Inputs with a negation, found as a word and found as letters inside any word.

    table  task, inputs, by_word, by_letters, wrong (letters only), such_as: words taken for one
    """
    negation = next(one for one in FEATURES if one.name == "negation")
    rows = []
    for corpus, task in zip(corpora, tasks, strict=True):
        parsed = with_trees(corpus)
        by_word, by_letters, taken = [], [], []
        for example in parsed.examples:
            words = words_of(example)
            tree: Any = example
            told = zip(tree.tags, tree.relations, words, strict=True)
            by_word.append(any(negation.holds(tag, label, word) for tag, label, word in told))
            lower = [word.lower() for word in words]
            hits = [word for word in lower if any(part in word for part in SUBSTRINGS)]
            by_letters.append(bool(hits))
            taken += [word for word in hits if word not in negation.words]
        common = pd.Series(taken, dtype=str).value_counts().index[:4]
        rows.append(
            {
                "task": task,
                "inputs": len(parsed),
                "by_word": int(np.sum(by_word)),
                "by_letters": int(np.sum(by_letters)),
                "wrong": int(np.sum(np.array(by_letters) & ~np.array(by_word))),
                "such_as": ", ".join(common),
            }
        )
    return Found(pd.DataFrame(rows), facts={"inputs": sum(map(len, corpora))})


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
