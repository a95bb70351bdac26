"""Who calls whom what: labels of two vocabularies crossed, and what is compared with what."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pandas as pd

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.measuring.head_tables import head_names
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.agreement.vocabularies import QUESTIONS, VOCABULARIES, Naming, labels_of
from experiments.kovaleva2019.patterns import MAX_LENGTH

QUARTERS = 4
SAME_PAPER = {"rule", "network"}
"""Two ways to one vocabulary: they say how well it can be applied, not whether papers agree."""
TWIN = "random weights"
"""What the random-weights control is called among the models."""
PAIRS = [pair for pair in combinations(VOCABULARIES, 2) if set(pair) != SAME_PAPER]
"""Every two papers."""


def baselines(labels: pd.DataFrame, numbers: pd.DataFrame) -> dict[str, Naming]:
    """What a head could be called by without any paper: its layer, and a quarter by its entropy.

    labels, numbers  tables of `head_labels`, for the number of draws, and of `head_numbers`
    """
    entropy = numbers[numbers["key"] == "entropy"].sort_values(["layer", "head"])
    rank = entropy["mean"].rank(method="first").to_numpy() - 1
    names = {"layer": entropy["layer"], "entropy": pd.Series(QUARTERS * rank // len(rank))}
    n_draws = len(labels_of(labels, "clark")[1])
    own = {name: one.to_numpy().astype(int).astype(str) for name, one in names.items()}
    return {name: (one, np.tile(one, (n_draws, 1))) for name, one in own.items()}


def confusion_wall(labels: pd.DataFrame) -> pd.DataFrame:
    """Every two vocabularies crossed: how many heads, how many by chance, and which.

    columns  one, other, row, column (labels), n, expected, heads (names), odd: the two labels
             answer a question differently
    """
    heads = np.array(head_names(_heads_of(labels)))
    rows = []
    for one, other in combinations(VOCABULARIES, 2):
        first, second = labels_of(labels, one)[0], labels_of(labels, other)[0]
        for row, column in product(sorted(set(first)), sorted(set(second))):
            chosen = (first == row) & (second == column)
            by_chance = (first == row).sum() * (second == column).sum() / len(heads)
            crossed = {"one": one, "other": other, "row": row, "column": column}
            crossed |= {"n": int(chosen.sum()), "expected": float(by_chance)}
            odd = _odd(row, one, column, other)
            rows.append({**crossed, "heads": " ".join(heads[chosen]), "odd": odd})
    return pd.DataFrame(rows)


def _heads_of(labels: pd.DataFrame) -> pd.DataFrame:
    """One row per head, in the order of `labels_of`."""
    return labels.drop_duplicates(["layer", "head"]).sort_values(["layer", "head"])


def _odd(row: str, one: str, column: str, other: str) -> bool:
    """Whether two labels have nothing in common: one says near, the other special or neither.

    Clark's `other` and Pande's lack of roles say nothing, and contradict nothing.
    """
    if row in ("other", "none") or column in ("other", "none"):
        return False
    says = {
        name: {q for q in ("near", "special") if label in QUESTIONS[q][name]}
        for name, label in ((one, row), (other, column))
    }
    neither = not says[one] and not says[other]
    return not neither and not says[one] & says[other]


@experiment(version=1)
def input_lengths(*corpora: Corpus, encoder: Encoder) -> Found:
    """The mean length of the inputs as the model sees them: corpus, pieces."""
    rows = []
    for corpus in corpora:
        lengths = [min(len(one), MAX_LENGTH) for one in tokenized(corpus.examples, encoder)]
        rows.append({"corpus": corpus.name, "pieces": float(np.mean(lengths))})
    return Found(pd.DataFrame(rows), facts={"inputs": sum(map(len, corpora))})
