"""Whether a model tells its delimiters apart: the vectors of [CLS] and [SEP], layer by layer."""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch

from attnlib.attention.encode import batches_of, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.models import Encoder
from bookkit.store import Found, experiment

MOST = 50


@experiment(version=1)
def delimiter_twins(test: Corpus, *, encoder: Encoder, max_length: int = 128) -> Found:
    """How far [CLS] is from the last [SEP], over how far it is from the words of the input.

    table  layer (0 is the embeddings, l the output of layer l), apart: mean over inputs of the
           distance of the two vectors, as a share of the mean distance from [CLS] to a word
    A share near 0 means that the two are the same vector: every later layer must then give both
    the same attention. At most 50 inputs are read.
    """
    examples = test.examples[:MOST]
    limits: Any = {"max_length": max_length, "on_long": "truncate"}
    shares = []
    for batch in batches_of(examples, encoder, batch_size=1, **limits):
        if not (batch.cls.any() and batch.sep.any()):
            continue
        with torch.inference_mode():
            inputs = model_inputs(batch, encoder)
            hidden = encoder.model(**inputs, output_hidden_states=True).hidden_states
        cls, sep = int(batch.cls[0].nonzero()[0]), int(batch.sep[0].nonzero()[-1])
        states = torch.cat(hidden).float()  # layer, piece, dim
        away = (states - states[:, [cls]]).norm(dim=-1)
        shares.append((away[:, sep] / away[:, batch.word[0] >= 0].mean(1)).tolist())
    apart = pd.DataFrame(shares, columns=range(encoder.n_layers + 1), dtype=float).mean()
    table = apart.rename("apart").rename_axis("layer").reset_index()
    return Found(table, facts={"inputs": len(examples), "passes": len(examples)})
