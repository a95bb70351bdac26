"""Fig. 5: the maps of every head for one input."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention.encode import Collator, tokenized
from attnlib.attention.tap import all_maps
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question, sentence_starts
from attnlib.errors import BadValue
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.guan2020.subjects import model_of

STEPS = 255
"""A weight is kept as a whole number of so many steps."""


@experiment(version=1, trains=True)
def wall_maps(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    task: str | None,
    recipe: Mapping[str, Any] | None,
    max_pieces: int = 56,
    progress: Progress | None = None,
) -> Found:
    """The maps of all heads for the first question of a corpus and the opening of its paragraph.

    table  layer, head, map: the weights row by row, each a byte of 0 to 255 (in base64)
    facts  pieces
    """
    *train, questions = corpora
    own = model_of(*train, encoder=encoder, task=task, recipe=recipe, progress=progress)
    example = opening(questions.examples[0], own, max_pieces)
    (encoded,) = tokenized([example], own)
    batch = Collator(own)([encoded])
    rows = [
        {"layer": layer + 1, "head": head + 1, "map": packed(one)}
        for layer, heads in enumerate(all_maps(own, batch))
        for head, one in enumerate(heads.cpu().numpy())
    ]
    tokens = own.tokenizer.convert_ids_to_tokens(encoded.ids)
    return Found(
        pd.DataFrame(rows), facts={"pieces": list(tokens), "model": model, "inputs": 1, "passes": 1}
    )


def opening(question: Question, encoder: Encoder, max_pieces: int) -> Question:
    """A question with as many whole sentences of its paragraph as fit."""
    starts = question.starts[1] if question.starts else sentence_starts(question.context)
    best = None
    for end in (*starts[1:], len(question.context)):
        shorter = replace(question, context=question.context[:end].strip(), starts=None)
        (encoded,) = tokenized([shorter], encoder)
        if len(encoded) <= max_pieces:
            best = shorter
    if best is None:
        raise BadValue(
            f"question '{question.id}' and its first sentence have more than {max_pieces} pieces. "
            "Use a larger max_pieces."
        )
    return best


def packed(weights: np.ndarray) -> str:
    """A map as text, one byte a weight."""
    return base64.b64encode(np.rint(STEPS * weights).astype(np.uint8).tobytes()).decode("ascii")


def unpacked(table: pd.DataFrame, n_tokens: int) -> np.ndarray:
    """The maps (layer, head, query, key) of a table of `wall_maps`."""
    ordered = table.sort_values(["layer", "head"])
    n_heads = int(ordered["head"].max())
    bytes_of = (np.frombuffer(base64.b64decode(text), np.uint8) for text in ordered["map"])
    maps = np.stack([one.reshape(n_tokens, n_tokens) for one in bytes_of]) / STEPS
    return np.asarray(maps.reshape(-1, n_heads, n_tokens, n_tokens))
