"""Where the paper and its released code differ: both ways, measured on the same model and data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from attnlib.clark2019.distances import divergences
from attnlib.clark2019.surface import POSITIONAL, surface
from attnlib.clark2019.syntax import TABLE1
from attnlib.corpora import Corpus
from attnlib.models import Encoder
from attnlib.prediction import accuracy_grid, best_heads, predictions
from attnlib.results import Found
from attnlib.stream import Progress

Row = tuple[str, str, str, float, float]
MOST_TEXTS, MOST_DIVERGENCES, MOST_TREES = 200, 20, 1000


def disagreements(
    wiki: Corpus,
    trees: Corpus,
    probes: pd.DataFrame,
    *,
    encoder: Encoder,
    max_length: int = 128,
    min_count: int = 30,
    progress: Progress | None = None,
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
        *_segment_ids(wiki, encoder, max_length, progress),
        *_smoothing(few, encoder, max_length),
        *_word_level(trees, encoder, min_count),
        *_root(probes),
    ]
    table = pd.DataFrame(rows, columns=["about", "what", "unit", "paper_way", "authors_way"])
    facts = {"inputs": len(wiki) + len(few) + len(trees)}
    return Found(table, facts={**facts, "passes": 2 * sum(facts.values())})


def _segment_ids(
    wiki: Corpus, encoder: Encoder, max_length: int, progress: Progress | None
) -> Iterator[Row]:
    grids = []
    for ids in ("pair", "zeros"):
        found = surface(
            wiki, encoder=encoder, max_length=max_length, segment_ids=ids, progress=progress
        )
        grids.append(found.table.set_index(["metric", "layer", "head"])["mean"])
    pair, zeros = grids
    by_layer = [grid["mass_to_sep"].groupby("layer").mean() for grid in grids]
    about = "segment ids: 0 and 1, or all 0"
    yield about, "largest layer mean to [SEP]", "share", *(float(g.max()) for g in by_layer)
    both = ("mass_to_previous", "mass_to_next")
    counts = (float(sum((grid[m] > POSITIONAL).sum() for m in both)) for grid in grids)
    yield about, "heads above one half on a neighbour", "heads", *counts
    change = (pair - zeros)["mass_to_sep"].abs()
    yield about, "largest change of a head's mass to [SEP]", "share", 0.0, float(change.max())
    about = "entropy: as it is, or smoothed"
    yield (
        about,
        "mean entropy",
        "nats",
        *(float(pair[m].mean()) for m in ("entropy", "entropy@authors")),
    )


def _smoothing(few: Corpus, encoder: Encoder, max_length: int) -> Iterator[Row]:
    tables = [
        divergences(few, encoder=encoder, max_length=max_length, variant=variant).table["js"]
        for variant in ("paper", "authors")
    ]
    about = "divergence: as it is, or smoothed"
    yield about, "mean distance of two heads", "nats", *(float(js.mean()) for js in tables)
    yield about, "largest distance", "nats", *(float(js.max()) for js in tables)


def _word_level(trees: Corpus, encoder: Encoder, min_count: int) -> Iterator[Row]:
    mean, first = (
        predictions(encoder, trees.examples, from_pieces=pieces) for pieces in ("mean", "first")
    )
    by_mean, by_first, by_column = (
        best_heads(found, min_count=min_count, variant=variant, replicates=1).set_index("relation")
        for found, variant in ((mean, "paper"), (first, "paper"), (mean, "authors"))
    )
    rows = [name for name in TABLE1 if name in by_mean.index]
    about = "word that attends: mean of its pieces, or the first"
    tables = (by_mean, by_first)
    yield (
        about,
        "mean accuracy over Table 1",
        "percent",
        *(float(t.loc[rows, "accuracy"].mean()) for t in tables),
    )
    yield (
        about,
        "largest change of a row",
        "points",
        0.0,
        float((by_mean.loc[rows, "accuracy"] - by_first.loc[rows, "accuracy"]).abs().max()),
    )
    about = "head to dependent: row, or column of the map"
    if "pobj" in rows:
        grids = (
            accuracy_grid(mean, "pobj", "head->dep", variant) for variant in ("paper", "authors")
        )
        yield about, "best head for pobj", "percent", *(float(np.max(grid)) for grid in grids)
    about = "all relations: without punctuation and roots, or with"
    both = (by_mean, by_column)
    yield about, "best head", "percent", *(float(t.loc["all", "accuracy"]) for t in both)
    yield about, "best offset", "percent", *(float(t.loc["all", "baseline"]) for t in both)
    if "poss" in rows:
        strict = float(by_mean.loc["poss", "accuracy"])
        lenient = best_heads(mean, relations=["poss"], possessive_clitic=True, replicates=1)
        about = "poss: the noun, or its 's too"
        yield about, "best head", "percent", strict, float(lenient["accuracy"].iloc[0])


def _root(probes: pd.DataFrame) -> Iterator[Row]:
    uas = probes.set_index("probe")["uas"]
    about = "word vectors of candidates: their own, or shifted by the root"
    yield (
        about,
        "attention + GloVe probe",
        "UAS",
        float(uas["attention-words"]),
        float(uas["attention-words-authors"]),
    )
