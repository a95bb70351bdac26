"""Fig. 1 and 4: single maps, as pictures of their pattern and as lines between words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pandas as pd
import torch

from attnlib.data.corpora import Corpus
from attnlib.errors import CorpusError
from attnlib.models import Encoder, load_encoder
from attnlib.plots.lines import Lines, as_table
from bookkit.store import Found, experiment
from experiments.kovaleva2019.patternfigures import PatternExample
from experiments.shared.patterns import PATTERNS, all_maps, labelled_maps, pictures

LARGE = 64
"""Pixels of a picture that is shown."""


@experiment(version=1)
def example_pictures(
    *corpora: Corpus, encoder: Encoder, names: Sequence[str], labels: str
) -> Found:
    """The pictures of `example_maps`, a row per pixel; `labels` is the digest of all labels."""
    found = example_maps(encoder, dict(zip(names, corpora, strict=True)))
    tables = []
    for number, one in enumerate(found):
        row, column = np.indices(one.picture.shape).reshape(2, -1)
        pixels = {"row": row, "column": column, "shade": one.picture.ravel()}
        whose = {"example": number, "pattern": one.pattern, "name": one.name}
        tables.append(pd.DataFrame(pixels).assign(**whose))
    return Found(pd.concat(tables, ignore_index=True), facts={"inputs": len(found)})


def pictures_of(table: pd.DataFrame) -> list[PatternExample]:
    """The pictures behind the rows of `example_pictures`."""
    found = []
    for _, rows in table.groupby("example", sort=True):
        picture = rows.pivot(index="row", columns="column", values="shade").to_numpy()
        pattern, name = rows.iloc[0][["pattern", "name"]]
        found.append(PatternExample(str(pattern), picture, str(name)))
    return found


def example_maps(
    encoder: Encoder, corpora: Mapping[str, Corpus], each: int = 5, *, seed: int | None = None
) -> list[PatternExample]:
    """Maps of the pre-trained model that were labelled, some of each pattern.

    Of a model without labelled maps, those of the model that has most are shown: what the network
    learns from.

    corpora  those at hand, by name; maps of other corpora are left out
    seed     decides which are drawn; without it those with two equal labels come first
    """
    texts = {name: {one.id: one for one in corpus.examples} for name, corpus in corpora.items()}
    at_hand = [
        row
        for row in labelled_maps()
        if row.task == "" and row.example in texts.get(row.corpus, ())
        if row.again in ("", row.label)
    ]
    labelled = Counter(row.model for row in at_hand)
    if labelled and encoder.name not in labelled:
        encoder = load_encoder(labelled.most_common(1)[0][0], device=str(encoder.device))
    found = []
    for pattern in PATTERNS:
        rows = [row for row in at_hand if row.model == encoder.name and row.label == pattern]
        rows.sort(key=lambda row: (row.again != pattern, row.id))
        if seed is not None:
            Random(seed).shuffle(rows)
        for row in rows[:each]:
            maps, batch = all_maps(encoder, texts[row.corpus][row.example])
            own = maps[None, row.layer - 1, row.head - 1, None]
            shades = pictures(own, torch.tensor([batch.length]), LARGE)[0, 0]
            task = row.corpus.partition(":")[0]
            found.append(PatternExample(pattern, shades.numpy(), f"{task} {row.layer}-{row.head}"))
    return found


@experiment(version=1)
def frame_portraits(
    corpus: Corpus, *, encoder: Encoder, names: Sequence[str], word: str = ""
) -> Found:
    """Some heads on a sentence with a frame: lines from the word that evokes it are marked.

    table  the rows of `attnlib.plots.lines.as_table`
    word  the sentence is the first whose target this is, or the first of all
    """
    for example in corpus.examples:
        target = example.target  # type: ignore[attr-defined]
        words = example.words[target.start : target.end]  # type: ignore[attr-defined]
        if not word or word in words:
            break
    else:
        raise CorpusError(f"no frame of {corpus.name} is evoked by '{word}'. Name another word.")
    maps, batch = all_maps(encoder, example)
    pieces = encoder.tokenizer.convert_ids_to_tokens(batch.ids[0].tolist())
    marked = [p for p, w in enumerate(batch.word[0].tolist()) if target.start <= w < target.end]
    panels = []
    for name in names:
        layer, head = (int(part) - 1 for part in name.split("-"))
        what = f"frame {example.frame}"  # type: ignore[attr-defined]
        panels.append(Lines(pieces, maps[layer, head].numpy(), name, what, tuple(marked)))
    return Found(as_table(panels), facts={"inputs": 1})
