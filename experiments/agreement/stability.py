"""How stable each vocabulary is over inputs, domains and models, beside a random network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.pairs import SAME_PAPER, between_papers, over_pairs
from experiments.agreement.vocabularies import VOCABULARIES, labels_of
from experiments.kovaleva2019.grids import drawn
from experiments.shared.taxonomies import adjusted_information, agreement_kappa

TWIN = "random twin"


@experiment(version=1)
def label_stability(
    *labels: pd.DataFrame,
    names: Sequence[str],
    models: Sequence[str],
    halves: Sequence[Mapping[str, Sequence[float | None]]],
) -> Found:
    """Cohen's kappa of a vocabulary with itself: two halves of the inputs, two domains.

    labels   tables of `head_labels`; the corpus and the model of each are in `names` and `models`
    halves   of each table, the kappas between halves, from its facts
    table    model, vocabulary, over ("inputs" or "domains"), one, other, kappa, low, high
    """
    rows = []
    for name, model, kappas in zip(names, models, halves, strict=True):
        for vocabulary in VOCABULARIES:
            own = [value for value in kappas[vocabulary] if value is not None]
            found = drawn([float(np.mean(own)) if own else np.nan, *own])
            rows.append(
                {
                    **{"model": model, "vocabulary": vocabulary, "over": "inputs"},
                    **{"one": name, "other": name, "kappa": found.value},
                    **{"low": found.low, "high": found.high},
                }
            )
    for first, second in combinations(range(len(labels)), 2):
        if models[first] != models[second] or names[first] == names[second]:
            continue
        for vocabulary in VOCABULARIES:
            one, ones = labels_of(labels[first], vocabulary)
            other, others = labels_of(labels[second], vocabulary)
            draws = [agreement_kappa(a, b) for a, b in zip(ones, others, strict=True)]
            found = drawn([agreement_kappa(one, other), *draws])
            rows.append(
                {
                    **{"model": models[first], "vocabulary": vocabulary, "over": "domains"},
                    **{"one": names[first], "other": names[second], "kappa": found.value},
                    **{"low": found.low, "high": found.high},
                }
            )
    table = pd.DataFrame(rows)
    return Found(table, _findings(table))


def _findings(table: pd.DataFrame) -> dict[str, Finding]:
    found: dict[str, Finding] = {}
    first = table["model"].iloc[0]
    for over in ("inputs", "domains"):
        own = table[(table["over"] == over) & (table["model"] == first)]
        for vocabulary in VOCABULARIES:
            values = own.loc[own["vocabulary"] == vocabulary, "kappa"]
            found[f"stability.{over}.{vocabulary}"] = Finding(float(values.min()))
        known = own.dropna(subset="kappa")
        ends = (
            known.loc[known["kappa"].idxmin(), ["kappa", "low", "high"]] if len(known) else [np.nan]
        )
        found[f"stability.{over}.least"] = Finding(*map(float, ends))
    twin = table[(table["model"] == TWIN) & (table["over"] == "inputs")]["kappa"].dropna()
    found["stability.twin"] = Finding(float(twin.median()) if len(twin) else float("nan"))
    return found


@experiment(version=1)
def model_agreement(*labels: pd.DataFrame, models: Sequence[str]) -> Found:
    """The adjusted mutual information of every two vocabularies, in every model.

    labels  tables of `head_labels` on the same corpus
    table   model, one, other, ami, low, high
    """
    rows: list[dict[str, Any]] = []
    again: dict[str, list[list[float]]] = {}
    for table, model in zip(labels, models, strict=True):
        for one, other in combinations(VOCABULARIES, 2):
            if {one, other} == SAME_PAPER:
                continue
            first, firsts = labels_of(table, one)
            second, seconds = labels_of(table, other)
            draws = [adjusted_information(first, second)]
            draws += [adjusted_information(a, b) for a, b in zip(firsts, seconds, strict=True)]
            again.setdefault(model, []).append(draws)
            found = drawn(draws)
            rows.append(
                {"model": model, "one": one, "other": other}
                | {"ami": found.value, "low": found.low, "high": found.high}
            )
    found_table = pd.DataFrame(rows)
    assert between_papers(found_table).all()
    numbers = {
        f"models.{'twin' if model == TWIN else place}.median": drawn(
            over_pairs(np.nanmedian, draws)
        )
        for place, (model, draws) in enumerate(again.items(), start=1)
    }
    wide = found_table[found_table["model"] != TWIN].pivot(
        index=["one", "other"], columns="model", values="ami"
    )
    if wide.shape[1] > 1:
        rho = wide.corr("spearman").to_numpy()[0, 1]
        numbers["models.order"] = Finding(float(rho))
    return Found(found_table, numbers, {"models": list(models)})
