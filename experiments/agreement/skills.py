"""What each head finds: dependency relations, compared with the best offset, and antecedents."""

from __future__ import annotations

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
from experiments.clark2019.coreference import choices


@experiment(version=1)
def head_relations(corpus: Corpus, *, encoder: Encoder, min_count: int, seed: int = 0) -> Found:
    """How often each head finds each relation, in its better direction, beside the best offset.

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
