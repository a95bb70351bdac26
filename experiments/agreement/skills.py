"""What each head finds: dependency relations, compared with the best offset, and antecedents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.measuring.best_heads import (
    DIRECTIONS,
    OFFSETS,
    hits,
    is_punct,
    offset_hits,
    predictions,
)
from attnlib.measuring.bootstrap import by_group, estimate
from attnlib.measuring.head_tables import head_rows
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.agreement.draws import (
    DRAWS,
    all_heads,
    document_numbers,
    drawn_counts,
    halved_counts,
    reliability,
    with_draws,
)
from experiments.clark2019.coreference import choices
from experiments.shared.intervals import drawn


@experiment(version=1)
def head_relations(corpus: Corpus, *, encoder: Encoder, min_count: int, seed: int = 0) -> Found:
    """How often each head finds each relation, in its better direction, and the best offset.

    table  relation, layer, head, direction, accuracy, baseline, gain, low, high (of the gain, over
           sentences, in points), n
    """
    found = predictions(encoder, corpus.examples)
    frequent = [name for name, n in found.counts.items() if n >= min_count and not is_punct(name)]
    tables = []
    for relation in frequent:
        words = found.dependents(relation)
        sides = np.stack([hits(found, words, side) for side in DIRECTIONS])
        better = sides.mean(1).argmax(0)
        right = np.take_along_axis(sides, better[None, None], 0)[0].astype(float)
        places = offset_hits(found, words, OFFSETS["paper"])
        baseline = places[:, places.mean(0).argmax()].astype(float)
        gain = right - baseline[:, None]
        by_sentence = by_group(gain, found.rank[words], found.n_sentences)
        ends = estimate(*by_sentence, micro=True, seed=seed)
        table = _head_table(found.n_heads, direction=np.array(DIRECTIONS)[better])
        table = table.assign(accuracy=100 * right.mean(0), baseline=100 * baseline.mean())
        table = table.assign(gain=100 * ends.mean, low=100 * ends.low, high=100 * ends.high)
        table.insert(0, "relation", relation)
        tables.append(table.assign(n=len(words)))
    facts = {"inputs": len(corpus), "passes": found.n_sentences, "relations": frequent}
    return Found(pd.concat(tables, ignore_index=True), facts=facts)


LEAD = 10.0
"""Points by which the best head of a relation must beat every other to be the one for it."""
SPLITS = 20
"""Halvings of the documents on which the head of a relation is chosen and tested."""


@experiment(version=1)
def relation_skill(corpus: Corpus, *, encoder: Encoder, min_count: int, seed: int = 0) -> Found:
    """The best relation of every head, and the relations that have a head of their own.

    table  layer, head, relations with `_low`, `_high` and `_draws`: the largest gain over the best
           fixed offset on any dependency relation, in the head's better direction, in points;
           offset, direction and relation are chosen anew in every draw of the documents
    facts  reliability of the order of heads
    """
    found = predictions(encoder, corpus.examples)
    trees = [corpus.examples[place] for place in np.unique(found.sentence)]
    of_tree = document_numbers(trees)
    documents = np.arange(of_tree.max() + 1)
    frequent = [name for name, n in found.counts.items() if n >= min_count and not is_punct(name)]
    right = {}  # relation -> right answers by document, side and head; by offset; and how many
    for name in frequent:
        words = found.dependents(name)
        sides = np.hstack([hits(found, words, side) for side in DIRECTIONS])
        every = np.hstack([sides, offset_hits(found, words, OFFSETS["paper"])]).astype(float)
        right[name] = by_group(every, of_tree[found.rank[words]], len(documents))

    def accuracies(counts: np.ndarray) -> Iterator[np.ndarray]:
        for total, number in right.values():
            with np.errstate(invalid="ignore", divide="ignore"):
                yield 100 * (counts @ total) / (counts @ number)

    def best_gain(counts: np.ndarray) -> np.ndarray:
        gains = []
        for each in accuracies(counts):
            by_head, by_offset = np.split(each, [-len(OFFSETS["paper"])], axis=1)
            better = by_head.reshape(len(counts), len(DIRECTIONS), -1).max(1)
            gains.append(better - by_offset.max(1, keepdims=True))
        return np.asarray(np.fmax.reduce(gains))

    def share_with_one(halves: np.ndarray) -> np.ndarray:
        """Of all relations, those whose best head on one half leads by ten points on the other."""
        flat = halves.reshape(-1, len(documents))
        own = [_leads(each, found.attended.shape[1], halves.shape[:2]) for each in accuracies(flat)]
        return np.asarray((np.stack(own) >= LEAD).mean((0, 2)))

    table = all_heads(found.n_layers, found.n_heads)
    table = with_draws(table, "relations", best_gain(drawn_counts(documents, seed)))
    whole = share_with_one(halved_counts(documents, seed, halves=SPLITS)).mean()
    again = share_with_one(halved_counts(documents, seed + 1, halves=DRAWS, redrawn=True))
    facts: dict[str, Any] = {"inputs": len(corpus), "relations": frequent}
    facts["reliability"] = {"relations": reliability(best_gain, documents, seed)}
    return Found(table, {"saying.one_head": drawn([whole, *again])}, facts)


def _leads(each: np.ndarray, n_flat: int, shape: tuple[int, ...]) -> np.ndarray:
    """By how much the head and direction that are best on one side beat all other heads elsewhere.

    each     (half x side, direction x head and offsets)   accuracies
    returns  (half, side)
    """
    by_head = each[:, : len(DIRECTIONS) * n_flat].reshape(*shape, -1)
    chosen, tested = by_head.argmax(-1), by_head[:, ::-1]
    score = np.take_along_axis(tested, chosen[..., None], -1)[..., 0]
    better = tested.reshape(*shape, len(DIRECTIONS), n_flat).max(2)
    np.put_along_axis(better, (chosen % n_flat)[..., None], -np.inf, -1)
    return np.asarray(score - better.max(-1))


def _head_table(n_heads: int, **columns: np.ndarray) -> pd.DataFrame:
    """One row per head, counted from 1, of columns over all heads of all layers."""
    return head_rows(**{name: one.reshape(-1, n_heads) for name, one in columns.items()})


@experiment(version=1)
def head_coreference(corpus: Corpus, *, encoder: Encoder, max_length: int, seed: int = 0) -> Found:
    """How often each head attends most to an antecedent, of all mentions before.

    table  layer, head, accuracy, low, high (over documents, in percent)
    facts  baselines: the same of the nearest mention, of the same head word and of four rules
    """
    found = choices(encoder, corpus.examples, max_length=max_length)
    right = found.by_head["mentions"].astype(float)
    documents = np.unique(found.document, return_inverse=True)[1]
    ends = estimate(*by_group(right, documents, documents.max() + 1), micro=True, seed=seed)
    values = {"accuracy": ends.mean, "low": ends.low, "high": ends.high}
    table = _head_table(found.n_heads, **{name: 100 * one for name, one in values.items()})
    baselines = {name: 100 * float(own.mean()) for name, own in found.baselines.items()}
    facts = {"inputs": len(corpus), "questions": len(found), "baselines": baselines}
    return Found(table, facts={**facts, "passes": len(corpus), "corpus": corpus.name})
