"""Fig. 4: which heads change type when the model is fine-tuned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlib.errors import BadValue
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.subjects import PRETRAINED, QUESTIONS
from experiments.shared.headtypes import TYPES


@experiment(version=1)
def type_moves(*tables: pd.DataFrame, models: Sequence[str]) -> Found:
    """The type of every head before and after, for each fine-tuned model.

    tables  those of `head_types`, the pre-trained model's first
    table   task (the model), layer, head, before, after, changed
    """
    missing = [name for name in (PRETRAINED, QUESTIONS) if name not in models]
    if missing or len(models) != len(tables):
        raise BadValue(
            f"{len(tables)} tables of types for the models {', '.join(models)}; expected one for "
            f"each, {PRETRAINED} and {QUESTIONS} among them."
        )
    before = tables[models.index(PRETRAINED)]
    rows = []
    for model, table in zip(models, tables, strict=True):
        if model == PRETRAINED:
            continue
        merged = before[["layer", "head", "type"]].merge(table, on=["layer", "head"])
        merged = merged.rename(columns={"type_x": "before", "type_y": "after"})
        merged["changed"] = merged["before"] != merged["after"]
        rows.append(merged[["layer", "head", "before", "after", "changed"]].assign(task=model))
    found = pd.concat(rows, ignore_index=True)
    shares = {model: _shares(table["type"]) for model, table in zip(models, tables, strict=True)}
    tuned = [model for model in models if model != PRETRAINED]
    distances = [abs(shares[m] - shares[PRETRAINED]).sum() / 2 for m in tuned]
    depth = (found["layer"] - 1) / found["layer"].max()
    top = {m: _top(table) for m, table in zip(models, tables, strict=True)}
    others = [top[m] for m in tuned if m != QUESTIONS]
    lead = min(top[PRETRAINED], top[QUESTIONS]) - max(others) if others else np.nan
    numbers = {
        "moves.largest_distance": max(distances),
        "moves.same": 1 - found["changed"].mean(),
        "moves.last_minus_first": found["changed"][depth >= 2 / 3].mean()
        - found["changed"][depth < 1 / 3].mean(),
        "moves.top_dense_vertical": lead,
        **{f"moves.{m}.same": 1 - found["changed"][found["task"] == m].mean() for m in tuned},
    }
    return Found(found, {name: Finding(float(value)) for name, value in numbers.items()})


def _shares(types: pd.Series) -> np.ndarray:
    return np.array([float((types == name).mean()) for name in TYPES])


def _top(table: pd.DataFrame) -> int:
    """Dense&vertical heads of the last layer."""
    last = table[table["layer"] == table["layer"].max()]
    return int((last["type"] == "dense&vertical").sum())
