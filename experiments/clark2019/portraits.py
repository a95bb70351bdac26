"""Fig. 1 and 5: heads drawn on sentences of the Reader, heads and sentences chosen by the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from attnlib.attention.interventions import head_named
from attnlib.attention.words import word_maps
from attnlib.data.corpora import Corpus
from attnlib.data.examples import CorefDocument, Segment, Tree
from attnlib.data.parser import parsed_words
from attnlib.measuring.head_tables import head_name
from attnlib.measuring.stream import measure
from attnlib.metrics.links import relation_links
from attnlib.models import Encoder
from attnlib.plots.lines import Lines, as_table
from bookkit.store import Found, experiment
from experiments.clark2019.syntax import TABLE1

SHORTEST, LONGEST = 6, 13
"""Words of a sentence that fits a panel and still has something to see."""
PATTERNS = {
    "entropy": "attends broadly",
    "mass_to_next": "attends to the next token",
    "mass_to_sep": "attends to [SEP]",
    "mass_to_period_or_comma": "attends to full stops and commas",
}
ARROWS = {"dep->head": "dependents to heads", "head->dep": "heads to dependents"}
N_RELATIONS = 6


@experiment(version=1)
def portraits(corpus: Corpus, surface: pd.DataFrame, *, encoder: Encoder) -> Found:
    """The strongest head of each of the four patterns of Fig. 1, on a typical sentence.

    surface  the table of `surface`: its means choose the heads
    A sentence is typical if the head's number on it is nearest to the head's mean over sentences.
    """
    examples = tuple(Segment(str(i), one) for i, one in enumerate(_sentences(corpus.examples)))
    sentences = replace(corpus, kind="segment", examples=examples)
    found = measure(encoder, sentences, list(PATTERNS))
    panels = []
    for metric, what in PATTERNS.items():
        rows = surface[surface["metric"] == metric]
        best = rows.loc[rows["mean"].idxmax()]
        layer, head = int(best["layer"]), int(best["head"])
        total, weight = found.rows(metric)
        values = total[:, layer - 1, head - 1] / weight[:, layer - 1, head - 1]
        typical = examples[int(np.abs(values - np.nanmean(values)).argmin())]
        panels.append(_panel(encoder, typical, head_name(best), what))
    return Found(as_table(panels), facts={"inputs": len(examples), "passes": len(examples)})


@experiment(version=1)
def relation_portraits(corpus: Corpus, table1: pd.DataFrame, *, encoder: Encoder) -> Found:
    """The best heads of the relations with the largest gains over a fixed offset (Fig. 5).

    table1  the table of `syntax` with the paper's labels
    The sentence of a relation is the one whose links get the median attention, of all sentences
    that have the relation: typical, not best.
    """
    trees = list(parsed_words((str(i), one) for i, one in enumerate(_sentences(corpus.examples))))
    asked = table1[table1["relation"].isin(TABLE1)].nlargest(N_RELATIONS, "gain")
    paid: dict[str, list[tuple[float, int]]] = {relation: [] for relation in asked["relation"]}
    for maps in word_maps(encoder, trees):
        between = maps.between_words()
        for row, index in enumerate(maps.index):
            for best in asked.itertuples():
                links = _links(trees[index], best.relation, best.direction)
                if links:
                    queries, keys = map(list, zip(*links, strict=True))
                    weights = between[row, _flat(best.head, encoder), queries, keys]
                    paid[best.relation].append((float(weights.mean()), index))
    panels = []
    for best in asked.itertuples():
        if found := sorted(paid[best.relation]):
            tree = trees[found[len(found) // 2][1]]
            queries = [query for query, _ in _links(tree, best.relation, best.direction)]
            what = f"{best.relation}: {ARROWS[best.direction]}"
            panels.append(_panel(encoder, tree, best.head, what, queries))
    return Found(as_table(panels), facts={"inputs": len(trees), "passes": len(trees)})


def _sentences(documents: Iterable[CorefDocument]) -> list[tuple[str, ...]]:
    """The sentences of the documents that fit a panel."""
    spans = ((d, s) for d in documents for s in d.sentences if SHORTEST <= len(s) <= LONGEST)
    return [tuple(document.words[span.start : span.end]) for document, span in spans]


def _links(tree: Tree, relation: str, direction: str) -> Sequence[tuple[int, int]]:
    """(word that attends, word attended to) along a relation."""
    links = relation_links(relation)(tree)  # from heads to dependents
    return links if direction == "head->dep" else [(word, head) for head, word in links]


def _flat(head: str, encoder: Encoder) -> int:
    """The place of head "5-4" over all layers."""
    layer, number = head_named(head)
    return layer * encoder.n_heads + number


def _panel(
    encoder: Encoder, example: Segment | Tree, head: str, what: str, marked: Sequence[int] = ()
) -> Lines:
    """A head on one sentence, as lines between its words."""
    (maps,) = word_maps(encoder, [example])
    words = tuple(example.parts[0])
    weights = maps.weights[0, _flat(head, encoder)].cpu().numpy()
    return Lines.of_units(words, weights, head, what, marked)
