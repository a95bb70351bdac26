"""Dependencies that heads find, and a fixed offset finds (Clark 2019, sec. 4.2, Table 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from attnlib.errors import BadValue, CorpusError, check_choice
from attnlib.measuring.bootstrap import REPLICATES, estimate
from attnlib.measuring.prediction import (
    ALL,
    NOBODY,
    Predictions,
    check_at_least_one,
    check_relations,
    is_punct,
)

DIRECTIONS = ("dep->head", "head->dep")
VARIANTS = ("paper", "authors")
OFFSETS = {"paper": (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5), "authors": (-3, -2, -1, 1, 2)}
POSSESSIVE = ("poss", "nmod:poss")
CLITICS = ("'s", "’s", "'", "’")
QUANTITIES = (
    ("accuracy", "low", "high"),
    ("baseline", "", ""),
    ("gain", "gain_low", "gain_high"),
    ("clean_accuracy", "clean_low", "clean_high"),
    ("clean_baseline", "", ""),
)
COLUMNS = (
    *("relation", "n", "head", "direction", "accuracy", "low", "high"),
    *("baseline", "offset", "gain", "gain_low", "gain_high"),
    *("clean_accuracy", "clean_low", "clean_high", "clean_baseline", "clean_head"),
)


def hits(
    found: Predictions,
    dependents: Int[np.ndarray, " dependency"],
    direction: str,
    variant: str = "paper",
    *,
    possessive_clitic: bool = False,
) -> Bool[np.ndarray, "dependency head"]:
    """Which heads are right on which dependencies (Clark 2019, sec. 4.2).

    dep->head   the dependent attends most to its head word
    head->dep   the head word attends most to the dependent. Differs from the authors' code, which
                asks whether the word that attends most to the dependent is its head word
                (variant="authors"): a head word with many dependents can be right on all of them.
    """
    check_choice("direction", direction, DIRECTIONS)
    check_choice("variant", variant, VARIANTS)

    def right(words: np.ndarray, gold: np.ndarray) -> np.ndarray:
        if direction == "dep->head" or variant == "authors":
            picked = found.attended if direction == "dep->head" else found.attending
            same = picked[words] == gold[:, None]
        else:
            same = found.attended[found.first[words] + gold] == found.position[words][:, None]
        return np.asarray(same & (gold != NOBODY)[:, None])

    return _with_clitics(found, dependents, right, variant if possessive_clitic else None)


def offset_hits(
    found: Predictions,
    dependents: Int[np.ndarray, " dependency"],
    offsets: Sequence[int],
    variant: str = "paper",
    *,
    possessive_clitic: bool = False,
) -> Bool[np.ndarray, "dependency offset"]:
    """Where the head word is the one `offset` places to the right of the dependent (Table 1).

    Outside the sentence there is no answer. Differs from the authors' code, where the last word
    answers for what is right of the sentence, and the root for what is left of it.
    """
    length = np.bincount(found.rank)[found.rank]

    def right(words: np.ndarray, gold: np.ndarray) -> np.ndarray:
        places = found.position[words][:, None] + np.array(offsets)
        if variant == "authors":
            places = np.clip(places, NOBODY, length[words][:, None] - 1)
        return np.asarray(places == gold[:, None])

    return _with_clitics(found, dependents, right, variant if possessive_clitic else None)


def _with_clitics(
    found: Predictions,
    dependents: np.ndarray,
    right: Callable[[np.ndarray, np.ndarray], np.ndarray],
    variant: str | None,
) -> np.ndarray:
    """`right` on the dependents; with a variant the 's of a possessor may take its place.

    Clark 2019, sec. 4.2: some heads treat 's as the dependent, gold standards the word before it,
    and Table 1 counts either. Here 's is the word that depends on the possessor, in UD and in
    spaCy's labels; in the authors' code it is the next word, and only what it picks counts.
    """
    gold = found.gold[dependents]
    same = right(dependents, gold)
    if variant is None:
        return same
    forms = CLITICS if variant == "paper" else CLITICS[:1]
    marks = np.flatnonzero(np.isin(found.form, forms) & found.scored)
    marks = marks[[not is_punct(label) for label in found.relation[marks]]]
    owners = found.first[marks] + found.gold[marks] if variant == "paper" else marks - 1
    mark_of = np.full(len(found), NOBODY)
    mark_of[owners[owners >= found.first[marks]]] = marks[owners >= found.first[marks]]
    has = (mark_of[dependents] != NOBODY) & np.isin(found.relation[dependents], POSSESSIVE)
    of_mark = right(mark_of[dependents[has]], gold[has])
    same[has] = (same[has] | of_mark) if variant == "paper" else of_mark
    return same


def accuracy_grid(
    found: Predictions,
    relation: str,
    direction: str = "dep->head",
    variant: str = "paper",
    *,
    possessive_clitic: bool = False,
) -> Float[np.ndarray, "layer head"]:
    """Of the dependencies of a relation, the percentage that each head gets right."""
    check_choice("variant", variant, VARIANTS)
    check_relations([relation], found.counts)
    words = found.dependents(relation, variant)
    right = hits(found, words, direction, variant, possessive_clitic=possessive_clitic)
    return 100 * right.mean(0).reshape(found.n_layers, found.n_heads)


def halves(n_sentences: int, seed: int = 0) -> Bool[np.ndarray, " sentence"]:
    """True for a random half of the sentences."""
    first = np.zeros(n_sentences, bool)
    first[np.random.default_rng(seed).permutation(n_sentences)[: n_sentences // 2]] = True
    return first


def best_heads(
    found: Predictions,
    *,
    relations: Sequence[str] | None = None,
    min_count: int = 100,
    variant: str = "paper",
    offsets: Sequence[int] | None = None,
    possessive_clitic: bool = False,
    seed: int = 0,
    replicates: int = REPLICATES,
) -> pd.DataFrame:
    """The best head and the best offset for each relation, in percent (Clark 2019, Table 1).

    One row per relation that has `min_count` dependencies, or per relation that is named, the
    most frequent first. Intervals are 95 % percentile bootstraps over sentences, with head and
    offset held fixed; `gain` is head minus offset in the same draws. Differs from the paper, which
    chooses the head on the data it is scored on: the `clean_` columns choose head, direction and
    offset on one half of the sentences, score on the other, and pool both ways around.

    >>> from attnlib import best_heads, predictions, random_encoder
    >>> from attnlib.data.examples import Tree
    >>> tree = Tree("t", ("a", "cat", "sat"), (1, 2, -1), ("det", "nsubj", "root"), ("X",) * 3)
    >>> table = best_heads(predictions(random_encoder(), [tree] * 4), min_count=1, replicates=10)
    >>> table[["relation", "n", "baseline", "offset"]].values.tolist()
    [['all', 8, 100.0, 1], ['det', 4, 100.0, 1], ['nsubj', 4, 100.0, 1]]
    """
    check_choice("variant", variant, VARIANTS)
    offsets = OFFSETS[variant] if offsets is None else offsets
    if not len(offsets) or 0 in offsets:
        raise BadValue(f"offsets are {list(offsets)}; expected whole numbers other than 0.")
    check_at_least_one("min-count", min_count)
    check_at_least_one("replicates", replicates)
    half, rows, sums = halves(found.n_sentences, seed), [], []
    for name in _listed(found, relations, min_count, variant):
        words = found.dependents(name, variant)
        sides = [
            hits(found, words, side, variant, possessive_clitic=possessive_clitic)
            for side in DIRECTIONS
        ]
        places = offset_hits(found, words, offsets, variant, possessive_clitic=possessive_clitic)
        row, columns = _row(found, np.hstack(sides), places, half[found.rank[words]])
        rows.append({"relation": name, "n": len(words), **row, "offset": offsets[row["offset"]]})
        sums.append([_by_sentence(column, found.rank[words], len(half)) for column in columns])
    return _table(rows, np.array(sums), seed=seed, replicates=replicates)


def _listed(
    found: Predictions, relations: Sequence[str] | None, min_count: int, variant: str
) -> list[str]:
    """All together and what is frequent enough, or what is named; the most frequent first."""
    check_relations(relations or (), found.counts)
    frequent = [name for name, n in found.counts.items() if n >= min_count and not is_punct(name)]
    wanted = {ALL, *frequent} if relations is None else set(relations)
    listed = [name for name in (ALL, *found.counts) if name in wanted]
    if ALL in listed and not len(found.dependents(ALL, variant)):
        raise CorpusError("no word of the trees that were measured has a head word to find.")
    return listed


def _row(
    found: Predictions, heads: np.ndarray, places: np.ndarray, half: np.ndarray
) -> tuple[dict[str, Any], tuple[np.ndarray, ...]]:
    """Who is best, and per dependency what QUANTITIES are averages of.

    heads   (dependency, direction x head)   places  (dependency, offset)
    half    (dependency,)                    which half of the sentences each is in
    """
    n_heads = heads.shape[1] // len(DIRECTIONS)
    best, place = int(heads.mean(0).argmax()), int(places.mean(0).argmax())
    clean, chosen = chosen_elsewhere(heads, half)
    clean_places, _ = chosen_elsewhere(places, half)
    names = dict.fromkeys(found.head_name(head % n_heads) for head in chosen)
    row = {
        "head": found.head_name(best % n_heads),
        "direction": DIRECTIONS[best // n_heads],
        "offset": place,
        "clean_head": "/".join(names) or None,
    }
    by_head, by_place = heads[:, best].astype(float), places[:, place].astype(float)
    return row, (by_head, by_place, by_head - by_place, clean, clean_places)


def chosen_elsewhere(
    right: Bool[np.ndarray, "dependency choice"], half: Bool[np.ndarray, " dependency"]
) -> tuple[Float[np.ndarray, " dependency"], list[int]]:
    """Each half scored by the choice that is best on the other, and both choices.

    NaN where the other half is empty and so chooses nothing.
    """
    score, chosen = np.full(len(right), np.nan), []
    for choosing in (half, ~half):
        if choosing.any() and not choosing.all():
            chosen.append(int(right[choosing].mean(0).argmax()))
            score[~choosing] = right[~choosing, chosen[-1]]
    return score, chosen


def _by_sentence(column: np.ndarray, rank: np.ndarray, n_sentences: int) -> np.ndarray:
    """Sum and number of the defined values of each sentence: (2, sentence)."""
    defined = ~np.isnan(column)
    rank, values = rank[defined], column[defined]
    return np.array([np.bincount(rank, w, n_sentences) for w in (values, np.ones(len(values)))])


def _table(
    rows: list[dict[str, Any]], sums: np.ndarray, *, seed: int, replicates: int
) -> pd.DataFrame:
    """Rows with their averages and intervals; sums (relation, quantity, 2, sentence)."""
    total, weight = np.moveaxis(sums, (2, 3), (0, 1))
    spread = estimate(total, weight, micro=True, replicates=replicates, seed=seed)
    table = pd.DataFrame(rows)
    for at, (mean, low, high) in enumerate(QUANTITIES):
        for name, values in ((mean, spread.mean), (low, spread.low), (high, spread.high)):
            if name:
                table[name] = 100 * values[:, at]
    return table[list(COLUMNS)]
