"""Sec. 3.2, Fig. 3: how much the masked-LM loss hangs on attention to [SEP] and to other tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
from scipy.stats import spearmanr

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.measuring.bootstrap import Grids, statistics
from attnlib.measuring.head_tables import layer_means
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.store import Found, experiment, findings
from experiments.shared.headfit import Budget, masked_lm_head
from experiments.shared.importance import Gradients, attention_gradients

MASK_RATE = 0.15


@experiment(version=1, trains=True)
def gradients(
    corpus: Corpus,
    fit_on: Corpus,
    surface: pd.DataFrame,
    *,
    encoder: Encoder,
    max_length: int = 128,
    maskings: int = 2,
    fit_epochs: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """Mean size of dL/da by class of key and layer, for two losses.

    fit_on   texts for a masked-LM head, where the model has none; those of `corpus` are left out
    surface  the table of `surface`: the claims compare gradients with attention to [SEP]

    "masked" is the paper's loss. "shown" asks for the same pieces without hiding them: a model
    that was not trained to fill gaps is poor at the first and good at the second, and what both
    say of attention does not hang on how good it is.
    """
    measured = set(corpus.examples)
    others = tuple(one for one in fit_on.examples if one not in measured)
    budget = Budget(n_segments=len(others), n_maskings=maskings, n_epochs=fit_epochs)
    options: dict[str, Any] = {"mask_rate": MASK_RATE, "max_length": max_length, "seed": seed}
    options["progress"] = progress
    tables, quality, numbers = [], {}, {}
    for loss, hide in (("masked", True), ("shown", False)):
        head, quality[loss] = masked_lm_head(
            encoder, replace(fit_on, examples=others), budget=budget, hide=hide, **options
        )
        found = attention_gradients(encoder, head, corpus, hide=hide, **options)
        tables.append(found.layer_table().assign(loss=loss))
        numbers[loss] = _numbers(found, surface)
    facts = {
        "inputs": len(corpus),
        "passes": 2 * (len(corpus) + maskings * len(others)),
        "tokens": 2 * sum(map(len, tokenized(corpus.examples, encoder))),
        "segments": len(others),
        "shown_ratio": numbers["shown"]["gradient.sep_over_other_late"][0],
        **{loss: _quality(told) for loss, told in quality.items()},
    }
    return Found(pd.concat(tables, ignore_index=True), findings(numbers["masked"]), facts)


def _numbers(found: Gradients, surface: pd.DataFrame) -> dict[str, tuple[float, float, float]]:
    """What the claims ask for, each with its interval over texts."""
    to_sep = layer_means(surface, metric="mass_to_sep")

    def late_ratio(grids: Grids) -> float:
        third = max(1, len(grids["sep"]) // 3)
        return float(grids["sep"][third:].mean() / grids["other"][third:].mean())

    def correlation(grids: Grids) -> float:
        ratio = grids["sep"].mean(-1) / grids["other"].mean(-1)
        return float(spearmanr(to_sep.to_numpy(), ratio).statistic)

    rows = {name: found.rows(name) for name in ("sep", "other")}
    return statistics(
        rows,
        {"gradient.sep_over_other_late": late_ratio, "gradient.correlation_with_sep": correlation},
    )


def _quality(told: dict[str, Any]) -> dict[str, Any]:
    """What a page says of a head; how long it took depends on the cache."""
    kept = ("head", "accuracy", "baseline_accuracy", "loss", "baseline_loss")
    return {key: told[key] for key in kept}


GRADIENT_CLASSES = {
    "sep": "to [SEP]",
    "period_or_comma": "to full stops and commas",
    "other": "to other tokens",
}


def figure3_rows(table: pd.DataFrame, loss: str = "masked") -> pd.DataFrame:
    """The lines of Fig. 3, with names a reader knows."""
    wanted = (table["quantity"] == "gradient") & (table["loss"] == loss)
    rows = table[wanted & table["class"].isin(GRADIENT_CLASSES)]
    return rows.assign(**{"class": rows["class"].map(GRADIENT_CLASSES)})


def gradient_quotes(found: Found) -> dict[str, Any]:
    """What the text of the chapter quotes of the gradients."""
    table = found.table[found.table["loss"] == "masked"]
    lines = table.pivot(index=["quantity", "layer"], columns="class", values="mean")
    plain, weighted = lines.loc["gradient"], lines.loc["gradient_times_attention"]
    fall = plain["sep"] / plain["sep"].shift()
    late = slice(max(1, len(plain) // 3), None)
    return {
        "gradient_drop": int(fall.idxmin()),
        "gradient_fall": float(fall.min()),
        "cls_ratio": float(plain["cls"].iloc[late].mean() / plain["sep"].iloc[late].mean()),
        "weighted_ratio": float(
            weighted["sep"].iloc[late].mean() / weighted["other"].iloc[late].mean()
        ),
        "shown_ratio": found.facts["shown_ratio"],
    }
