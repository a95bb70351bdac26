"""Sec. 3.2, Fig. 3: how much the masked-LM loss hangs on attention to [SEP] and to other tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from attnlib.corpora import Corpus
from attnlib.encode import tokenized
from attnlib.importance import attention_gradients
from attnlib.maskedlm import Budget, masked_lm_head
from attnlib.models import Encoder
from attnlib.results import Found, findings
from attnlib.stats import Grids, statistics
from attnlib.stream import Progress

MASK_RATE = 0.15


def gradients(
    corpus: Corpus,
    fit_on: Corpus,
    surface: pd.DataFrame,
    *,
    encoder: Encoder,
    max_length: int = 128,
    maskings: int = 2,
    fit_epochs: int = 3,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """Mean size of dL/da by class of key and layer.

    fit_on   texts for a masked-LM head, where the model has none; those of `corpus` are left out
    surface  the table of `surface`: the claims compare gradients with attention to [SEP]
    """
    measured = set(corpus.examples)
    others = tuple(one for one in fit_on.examples if one not in measured)
    budget = Budget(n_segments=len(others), n_maskings=maskings, n_epochs=fit_epochs)
    head, quality = masked_lm_head(
        encoder,
        replace(fit_on, examples=others),
        budget=budget,
        mask_rate=MASK_RATE,
        max_length=max_length,
        seed=seed,
        progress=progress,
    )
    found = attention_gradients(
        encoder,
        head,
        corpus,
        mask_rate=MASK_RATE,
        seed=seed,
        max_length=max_length,
        progress=progress,
    )
    to_sep = surface[surface["metric"] == "mass_to_sep"].groupby("layer")["mean"].mean()

    def late_ratio(grids: Grids) -> float:
        third = max(1, len(grids["sep"]) // 3)
        return float(grids["sep"][third:].mean() / grids["other"][third:].mean())

    def correlation(grids: Grids) -> float:
        ratio = grids["sep"].mean(-1) / grids["other"].mean(-1)
        return float(spearmanr(to_sep.to_numpy(), ratio).statistic)

    rows = {name: found.rows(name) for name in ("sep", "other")}
    numbers = statistics(
        rows,
        {"gradient.sep_over_other_late": late_ratio, "gradient.correlation_with_sep": correlation},
    )
    facts = {
        "inputs": len(corpus),
        "passes": len(corpus) + maskings * len(others),
        "tokens": sum(map(len, tokenized(corpus.examples, encoder))),
        "head": _quality(quality, len(others)),
        "loss": float(np.mean(found.loss)),
    }
    return Found(found.layer_table(), findings(numbers), facts)


def _quality(quality: dict[str, Any], n_segments: int) -> dict[str, Any]:
    """What a page says of the masked-LM head; how long it took depends on the cache."""
    kept = {key: value for key, value in quality.items() if key not in ("cached", "seconds")}
    return {"segments": n_segments, **kept}


GRADIENT_CLASSES = {
    "sep": "to [SEP]",
    "period_or_comma": "to full stops and commas",
    "other": "to other tokens",
}


def figure3_rows(table: pd.DataFrame, quantity: str = "gradient") -> pd.DataFrame:
    """The lines of Fig. 3, with names a reader knows."""
    rows = table[(table["quantity"] == quantity) & table["class"].isin(GRADIENT_CLASSES)]
    return rows.assign(**{"class": rows["class"].map(GRADIENT_CLASSES)})
