"""Where the paper and its released code differ: both ways, measured on the same model and data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.measuring.best_heads import accuracy_grid, best_heads, predictions
from attnlib.measuring.head_tables import layer_means
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.clark2019.distances import divergences
from experiments.clark2019.surface import POSITION, surface
from experiments.clark2019.syntax import TABLE1

Row = tuple[str, str, str, Iterable[float]]
"""About what, what it is, its unit, and the number in both ways."""
MOST_TEXTS, MOST_DIVERGENCES, MOST_TREES = 200, 20, 1000


@experiment(version=1)
def disagreements(
    wiki: Corpus,
    trees: Corpus,
    probes: pd.DataFrame,
    *,
    encoder: Encoder,
    max_length: int = 128,
    min_count: int = 30,
) -> Found:
    """Each row a number measured as the paper says and as its code does.

    wiki    segments: at most 200 are read again, 20 for the divergences
    trees   with the paper's labels: at most 1000
    probes  the table of `probes`, which has both alignments of the root already
    """
    wiki = replace(wiki, examples=wiki.examples[:MOST_TEXTS])
    few = replace(wiki, examples=wiki.examples[:MOST_DIVERGENCES])
    trees = replace(trees, examples=trees.examples[:MOST_TREES])
    rows = [
        *_segment_ids(wiki, encoder, max_length),
        *_smoothing(few, encoder, max_length),
        *_word_level(trees, encoder, min_count),
    ]
    words = probes.groupby("probe")[["right", "asked"]].sum()
    uas = 100 * words["right"] / words["asked"]
    about = "word vectors of candidates: own, or shifted by the root"
    ways = (uas["attention-words"], uas["attention-words-authors"])
    rows.append((about, "probe with words", "UAS", ways))
    told = [(f"{about}: {what}", unit, *map(float, ways)) for about, what, unit, ways in rows]
    table = pd.DataFrame(told, columns=["what", "unit", "paper_way", "authors_way"])
    facts = {"inputs": len(wiki) + len(few) + len(trees)}
    return Found(table, facts={**facts, "passes": 2 * sum(facts.values())})


def _segment_ids(wiki: Corpus, encoder: Encoder, max_length: int) -> Iterator[Row]:
    grids = []
    for ids in ("pair", "zeros"):
        found = surface(wiki, encoder=encoder, max_length=max_length, segment_ids=ids)
        grids.append(found.table.set_index(["metric", "layer", "head"])["mean"])
    pair, zeros = grids
    about = "segment ids 0 and 1, or all 0"
    by_layer = [layer_means(grid["mass_to_sep"].reset_index()) for grid in grids]
    yield about, "largest layer mean to [SEP]", "share", (g.max() for g in by_layer)
    both = ["mass_to_previous", "mass_to_next"]
    counts = [sum((grid[m] > POSITION).sum() for m in both) for grid in grids]
    yield about, "heads above one half on a neighbour", "heads", counts
    layer, head = (pair - zeros)["mass_to_sep"].abs().idxmax()
    ways = [grid["mass_to_sep"][layer, head] for grid in grids]
    yield about, f"the head that changes most, {layer}-{head}, to [SEP]", "share", ways
    about = "rows as they are, or smoothed"
    entropies = [pair[metric].mean() for metric in ("entropy", "entropy@authors")]
    yield about, "mean entropy", "nats", entropies


def _smoothing(few: Corpus, encoder: Encoder, max_length: int) -> Iterator[Row]:
    tables = [
        divergences(few, encoder=encoder, max_length=max_length, variant=variant).table["js"]
        for variant in ("paper", "authors")
    ]
    about = "rows as they are, or smoothed"
    yield about, "mean distance of two heads", "nats", (js.mean() for js in tables)
    yield about, "largest distance", "nats", (js.max() for js in tables)


def _word_level(trees: Corpus, encoder: Encoder, min_count: int) -> Iterator[Row]:
    mean, first = (
        predictions(encoder, trees.examples, from_pieces=pieces) for pieces in ("mean", "first")
    )
    by_mean, by_first, by_column = (
        best_heads(found, min_count=min_count, variant=variant, replicates=1).set_index("relation")
        for found, variant in ((mean, "paper"), (first, "paper"), (mean, "authors"))
    )
    rows = [name for name in TABLE1 if name in by_mean.index]
    about = "from a word: mean of its pieces, or the first"
    by_pieces = [table.loc[rows, "accuracy"] for table in (by_mean, by_first)]
    yield about, "mean accuracy over Table 1", "percent", (one.mean() for one in by_pieces)
    most = (by_pieces[0] - by_pieces[1]).abs().idxmax() if rows else ""
    if most:
        ways = [one[most] for one in by_pieces]
        yield about, f"the row that changes most, {most}", "percent", ways
    if "pobj" in rows:
        about = "head word to dependent by rows, or by columns"
        grids = [accuracy_grid(mean, "pobj", "head->dep", one) for one in ("paper", "authors")]
        yield about, "best head for pobj", "percent", (np.max(grid) for grid in grids)
    about = "all relations, or with punctuation, roots and columns"
    both = (by_mean, by_column)
    yield about, "best head", "percent", (t.loc["all", "accuracy"] for t in both)
    yield about, "best offset", "percent", (t.loc["all", "baseline"] for t in both)
