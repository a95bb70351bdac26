"""What each head finds: dependency relations beside the best offset, and antecedents."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.measuring.best_heads import DIRECTIONS, OFFSETS, hits, offset_hits
from attnlib.measuring.bootstrap import estimate
from attnlib.measuring.prediction import is_punct, predictions
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.clark2019.coreference import choices


@experiment(version=1)
def head_relations(
    corpus: Corpus,
    *,
    encoder: Encoder,
    min_count: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """How often each head finds each relation, in its better direction, beside the best offset.

    table  relation, layer, head, direction, accuracy, baseline, gain, low, high (of the gain, over
           sentences, in points), n
    """
    found = predictions(encoder, corpus.examples, progress=progress)
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
        by_sentence = _by_sentence(gain, found.rank[words], found.n_sentences)
        ends = estimate(*by_sentence, micro=True, seed=seed)
        flat = np.arange(right.shape[1])
        tables.append(
            pd.DataFrame(
                {
                    "relation": relation,
                    "layer": flat // found.n_heads + 1,
                    "head": flat % found.n_heads + 1,
                    "direction": np.array(DIRECTIONS)[better],
                    "accuracy": 100 * right.mean(0),
                    "baseline": 100 * baseline.mean(),
                    "gain": 100 * ends.mean,
                    "low": 100 * ends.low,
                    "high": 100 * ends.high,
                    "n": len(words),
                }
            )
        )
    facts = {"inputs": len(corpus), "passes": found.n_sentences, "relations": frequent}
    return Found(pd.concat(tables, ignore_index=True), facts=facts)


def _by_sentence(
    values: np.ndarray, rank: np.ndarray, n_sentences: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sums and numbers of the dependencies of each sentence: (sentence, head) each."""
    total = np.zeros((n_sentences, values.shape[1]))
    np.add.at(total, rank, values)
    count = np.bincount(rank, minlength=n_sentences).astype(float)
    return total, np.broadcast_to(count[:, None], total.shape)


def best_relation(table: pd.DataFrame) -> pd.DataFrame:
    """Of every head the relation that it finds best, by how far it beats the offset."""
    best = table.loc[table.groupby(["layer", "head"])["gain"].idxmax()]
    return best.sort_values(["layer", "head"]).reset_index(drop=True)


@experiment(version=1)
def head_coreference(
    corpus: Corpus,
    *,
    encoder: Encoder,
    max_length: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """How often each head attends most to an antecedent, of all mentions before.

    table  layer, head, accuracy, low, high (over documents, in percent)
    facts  baselines: the same of the nearest mention, of the same head word and of four rules
    """
    found = choices(encoder, corpus.examples, max_length=max_length, progress=progress)
    right = found.by_head["mentions"].astype(float)
    documents = np.unique(found.document, return_inverse=True)[1]
    ends = estimate(*_by_sentence(right, documents, documents.max() + 1), micro=True, seed=seed)
    flat = np.arange(right.shape[1])
    table = pd.DataFrame(
        {
            "layer": flat // found.n_heads + 1,
            "head": flat % found.n_heads + 1,
            "accuracy": 100 * ends.mean,
            "low": 100 * ends.low,
            "high": 100 * ends.high,
        }
    )
    baselines = {name: 100 * float(own.mean()) for name, own in found.baselines.items()}
    facts = {"inputs": len(corpus), "questions": len(found), "baselines": baselines}
    return Found(table, facts={**facts, "passes": len(corpus), "corpus": corpus.name})
