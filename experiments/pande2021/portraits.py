"""Fig. 1: the sieves of one token of an input, drawn as lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnlib.attention.encode import batches, encode
from attnlib.data.corpora import Corpus, with_trees
from attnlib.data.examples import Segment
from attnlib.errors import BadValue
from attnlib.metrics.sieves import SIEVES
from attnlib.models import Encoder
from attnlib.plots.lines import Lines, as_table
from bookkit.store import Found, experiment

SENTENCE = "The small cat quickly saw a grey mouse."
SECOND = "It ran away."


@experiment(version=1, reads=["spacy-en"])
def sieve_portraits(
    *,
    encoder: Encoder,
    asked: Sequence[tuple[str, str]],
    text: str = SENTENCE,
    pair: str = SECOND,
) -> Found:
    """For each (role, piece) one panel: lines from the piece to the keys of its sieve.

    table  the rows of `attnlib.plots.lines.as_table`
    """
    corpus = Corpus(
        "sentence", "segment", (Segment("sentence", text, pair),), {}, "own", "sentence"
    )
    examples = with_trees(corpus).examples
    (batch,) = batches(encode(examples, encoder), encoder)
    tokens = encoder.tokenizer.convert_ids_to_tokens(batch.ids[0].tolist())
    panels = []
    for role, piece in asked:
        if piece not in tokens:
            raise BadValue(f"'{piece}' is no piece of the sentence; it has {', '.join(tokens)}.")
        place = tokens.index(piece)
        held = SIEVES[role].mask(batch)[0, place].cpu().numpy().astype(float)
        weights = np.zeros((len(tokens), len(tokens)))
        weights[place] = held / max(held.sum(), 1.0)
        what = f"{int(held.sum())} of {len(tokens)} pieces"
        panels.append(Lines(tokens, weights, role.replace("_", "-"), what, (place,)))
    return Found(as_table(panels), facts={"inputs": 1})
