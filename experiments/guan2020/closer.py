"""Beyond Sec. 5: every head alone, and what the open points of the ablations change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.guan2020.ablating import spread_out
from experiments.guan2020.subjects import reader_and_types
from experiments.guan2020.tables import ROWS
from experiments.shared.ablations import ablated, single_ablations
from experiments.shared.headtypes import TYPES
from experiments.shared.spanmodel import SpanReader

READINGS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "rows renormalised": (("intra", "inter"), {"renormalise": True}),
    "[SEP] segments for sentences": (("intra", "inter"), {"unit": "segment"}),
    "[CLS] and [SEP] never cut off": (("intra", "inter"), {"specials": "kept"}),
    "L = 384, padding counted": (("substitute",), {"length": 384}),
}
"""Other readings of Sec. 5: which kinds of ablation they concern, and what is different."""


@experiment(version=1, trains=True)
def ablation_decisions(
    *given: Corpus | pd.DataFrame,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    n_questions: int,
    progress: Progress | None = None,
) -> Found:
    """What another reading of an ablation does to its F1, on the same questions.

    table  reading, row, kind, types, f1 (that reading), ours, change (points)
    """
    reader, questions, types = _asked(given, encoder, recipe, n_questions)
    heads = {row.number: row.heads(types) for row in ROWS}
    concerned = [
        (reading, row, other)
        for reading, (kinds, other) in READINGS.items()
        for row in ROWS
        if row.kind in kinds and heads[row.number]
    ]
    variants = {row.key: row.variant(heads[row.number]) for _, row, _ in concerned}
    for reading, row, other in concerned:
        variants[f"{row.key} {reading}"] = row.variant(heads[row.number], **other)
    outcome = ablated(reader, questions, variants, progress=progress)
    f1 = dict(zip(outcome.names, 100 * outcome.f1.mean(1), strict=True))
    rows = [
        {
            "reading": reading,
            "row": row.number,
            "kind": row.kind,
            "types": "+".join(row.types),
            "f1": f1[f"{row.key} {reading}"],
            "ours": f1[row.key],
            "change": f1[f"{row.key} {reading}"] - f1[row.key],
        }
        for reading, row, _ in concerned
    ]
    facts = {"inputs": len(questions), "passes": len(variants) * len(questions)}
    return Found(pd.DataFrame(rows), facts=facts)


@experiment(version=1, trains=True)
def single_head_effects(
    *given: Corpus | pd.DataFrame,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    n_questions: int,
    progress: Progress | None = None,
) -> Found:
    """What pruning one head alone costs, for every head of the model.

    table  layer, head, type, loss (rise of the cross-entropy of the right answer, in nats, with
           its standard error over questions), f1 (points lost)
    """
    reader, questions, types = _asked(given, encoder, recipe, n_questions)
    heads, outcome = single_ablations(reader, questions, action="zero", progress=progress)
    rise = outcome.loss[1:] - outcome.loss[0]
    fall = outcome.f1[0] - outcome.f1[1:]
    n = (~np.isnan(rise)).sum(1)
    table = pd.DataFrame(
        {
            "layer": [a + 1 for a, _ in heads],
            "head": [b + 1 for _, b in heads],
            "loss": np.nanmean(rise, 1),
            "loss_error": np.nanstd(rise, 1, ddof=1) / np.sqrt(n),
            "f1": 100 * fall.mean(1),
        }
    ).merge(types[["layer", "head", "type"]], on=["layer", "head"])
    means = {name: float(table.loc[table["type"] == name, "loss"].mean()) for name in TYPES}
    facts = {
        "inputs": len(questions),
        "passes": len(outcome.names) * len(questions),
        "mean_by_type": means,
        "whole_loss": float(np.nanmean(outcome.loss[0])),
        "whole_f1": 100 * float(outcome.f1[0].mean()),
    }
    return Found(table, facts=facts)


def _asked(
    given: tuple[Corpus | pd.DataFrame, ...],
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    n_questions: int,
) -> tuple[SpanReader, list[Question], pd.DataFrame]:
    """The reader, some questions of all articles, and the types of its heads."""
    reader, test, types = reader_and_types(given, encoder=encoder, recipe=recipe)
    chosen = spread_out([question.article for question in test.examples], n_questions)
    return reader, [test.examples[place] for place in chosen], types
