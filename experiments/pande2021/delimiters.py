"""Whether a model tells its delimiters apart: the vectors of [CLS] and [SEP], layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch

from attnlib.attention.encode import batches_of, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.shared.training.taskplans import tuned_model

MOST = 50


@experiment(version=2, trains=True)
def delimiter_twins(
    train: Corpus, test: Corpus, *, encoder: Encoder, task: str, recipe: Mapping[str, Any]
) -> Found:
    """How far [CLS] is from the last [SEP], before and after fine-tuning.

    table  layer, before, after: mean over inputs of the distance of the two vectors at the INPUT
           of the layer, as a share of the mean distance from [CLS] to a word
    A share near 0 means that the two are the same vector: this layer must then give both the same
    attention. At most 50 inputs are read.
    """
    examples = test.examples[:MOST]
    tuned = tuned_model(train, encoder=encoder, task=task, recipe=recipe).encoder
    length = int(recipe["max_length"])
    found = {"before": _apart(examples, encoder, length), "after": _apart(examples, tuned, length)}
    table = pd.DataFrame(found).rename_axis("layer").reset_index()
    return Found(table, facts={"inputs": len(examples), "passes": 2 * len(examples)})


def _apart(examples: Any, encoder: Encoder, max_length: int) -> pd.Series:
    """The mean share at the input of every layer; NaN without an input that has both."""
    shares = []
    limits: Any = {"max_length": max_length, "on_long": "truncate"}
    for batch in batches_of(examples, encoder, batch_size=1, **limits):
        if not (batch.cls.any() and batch.sep.any()):
            continue
        with torch.inference_mode():
            inputs = model_inputs(batch, encoder)
            hidden = encoder.model(**inputs, output_hidden_states=True).hidden_states
        cls, sep = int(batch.cls[0].nonzero()[0]), int(batch.sep[0].nonzero()[-1])
        states = torch.cat(hidden[: encoder.n_layers]).float()  # layer, piece, dim
        away = (states - states[:, [cls]]).norm(dim=-1)
        shares.append((away[:, sep] / away[:, batch.word[0] >= 0].mean(1)).tolist())
    layers = range(1, encoder.n_layers + 1)
    return pd.DataFrame(shares, columns=layers, dtype=float).mean()
