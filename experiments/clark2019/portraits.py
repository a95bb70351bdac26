"""Fig. 1 and 5: heads drawn on sentences of the Reader, heads and sentences chosen by the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from attnlib.attention.words import N_SPECIAL, word_maps
from attnlib.data.corpora import Corpus
from attnlib.data.examples import CorefDocument, Segment, Tree
from attnlib.data.parser import parsed_words
from attnlib.measuring.stream import chosen_metrics, stream
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
N_RELATIONS = 6


@experiment(version=1)
def portraits(corpus: Corpus, surface: pd.DataFrame, *, encoder: Encoder) -> Found:
    """The strongest head of each of the four patterns of Fig. 1, on a typical sentence.

    surface  the table of `surface`: its means choose the heads
    A sentence is typical if the head's number on it is nearest to the head's mean over sentences.
    """
    words = _sentences(corpus.examples)
    examples = tuple(Segment(str(i), one) for i, one in enumerate(words))
    sentences = replace(corpus, kind="segment", examples=examples)
    found = stream(encoder, sentences, chosen_metrics(list(PATTERNS)))
    chosen = []
    for metric, what in PATTERNS.items():
        rows = surface[surface["metric"] == metric]
        best = rows.loc[rows["mean"].idxmax()]
        layer, head = int(best["layer"]) - 1, int(best["head"]) - 1
        total, weight = found.rows(metric)
        values = total[:, layer, head] / weight[:, layer, head]
        typical = int(np.abs(values - np.nanmean(values)).argmin())
        chosen.append((typical, layer * encoder.n_heads + head, what))
    return _drawn(encoder, examples, chosen, [() for _ in chosen])


@experiment(version=1)
def relation_portraits(corpus: Corpus, table1: pd.DataFrame, *, encoder: Encoder) -> Found:
    """The best heads of the relations with the largest gains over a fixed offset (Fig. 5).

    table1  the table of `syntax` with the paper's labels
    The sentence of a relation is the one whose links get the median attention, of all sentences
    that have the relation: typical, not best.
    """
    trees = list(parsed_words((str(i), one) for i, one in enumerate(_sentences(corpus.examples))))
    rows = table1[table1["relation"].isin(TABLE1)].nlargest(N_RELATIONS, "gain")
    asked = [(row["relation"], row["head"], row["direction"]) for _, row in rows.iterrows()]
    weights = _link_weights(encoder, trees, asked)
    chosen, marked = [], []
    for (relation, head, direction), found in zip(asked, weights, strict=True):
        if not found:
            continue
        middle = sorted(found, key=lambda pair: (pair[1], pair[0]))[len(found) // 2][0]
        links = _links(trees[middle], relation, direction)
        flat = _flat(head, encoder)
        arrow = "dependents to heads" if direction == "dep->head" else "heads to dependents"
        chosen.append((middle, flat, f"{relation}: {arrow}"))
        marked.append(tuple(query for query, _ in links))
    return _drawn(encoder, trees, chosen, marked)


def _sentences(documents: Iterable[CorefDocument]) -> list[tuple[str, ...]]:
    """The sentences of the documents that fit a panel."""
    spans = ((d, s) for d in documents for s in d.sentences if SHORTEST <= len(s) <= LONGEST)
    return [tuple(document.words[span.start : span.end]) for document, span in spans]


def _links(tree: Tree, relation: str, direction: str) -> list[tuple[int, int]]:
    """(word that attends, word attended to) along a relation."""
    pairs = [
        (word, head)
        for word, (head, label) in enumerate(zip(tree.heads, tree.relations, strict=True))
        if label == relation and head >= 0
    ]
    return pairs if direction == "dep->head" else [(head, word) for word, head in pairs]


def _link_weights(
    encoder: Encoder, trees: Sequence[Tree], asked: Sequence[tuple[str, str, str]]
) -> list[list[tuple[int, float]]]:
    """For each relation, every sentence that has it with the mean attention along its links."""
    found: list[list[tuple[int, float]]] = [[] for _ in asked]
    for maps in word_maps(encoder, trees):
        between = maps.between_words()
        for row, index in enumerate(maps.index):
            for place, (relation, head, direction) in enumerate(asked):
                links = _links(trees[index], relation, direction)
                if links:
                    one, other = zip(*links, strict=True)
                    paid = between[row, _flat(head, encoder), list(one), list(other)]
                    found[place].append((index, float(paid.mean())))
    return found


def _flat(head: str, encoder: Encoder) -> int:
    layer, number = map(int, head.split("-"))
    return (layer - 1) * encoder.n_heads + number - 1


def _drawn(
    encoder: Encoder,
    examples: Sequence[Segment] | Sequence[Tree],
    chosen: Sequence[tuple[int, int, str]],
    marked: Sequence[Sequence[int]],
) -> Found:
    """The chosen heads on the chosen sentences, as a table of lines."""
    lines = []
    for (index, flat, what), places in zip(chosen, marked, strict=True):
        example = examples[index]
        (maps,) = word_maps(encoder, [example])
        words = example.parts[0]
        n = len(words) + N_SPECIAL
        name = f"{flat // encoder.n_heads + 1}-{flat % encoder.n_heads + 1}"
        weights = maps.weights[0, flat, :n, :n].cpu().numpy()
        lines.append(Lines.of_units(tuple(words), weights, name, what, places))
    return Found(as_table(lines), facts={"inputs": len(examples), "passes": len(examples)})
