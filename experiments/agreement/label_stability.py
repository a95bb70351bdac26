"""How stable each vocabulary is over inputs, kinds and forms of text, and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.label_agreement import of_papers
from experiments.agreement.vocabularies import VOCABULARIES, compared, ends, labels_of
from experiments.kovaleva2019.patterns import MAX_LENGTH
from experiments.shared.intervals import drawn
from experiments.shared.sortings import adjusted_information, agreement_kappa

TWIN = "random twin"
FORM, KIND = "form", "kind"


def _kappas(one: pd.DataFrame, other: pd.DataFrame, vocabulary: str) -> np.ndarray:
    """A vocabulary and itself on other inputs: all heads, then by draw of the inputs."""
    return compared(agreement_kappa, labels_of(one, vocabulary), labels_of(other, vocabulary))


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
            rows.append(
                {"model": model, "vocabulary": vocabulary, "over": "inputs"}
                | {"one": name, "other": name}
                | ends("kappa", [float(np.mean(own)) if own else np.nan, *own])
            )
    for first, second in combinations(range(len(labels)), 2):
        if models[first] != models[second] or names[first] == names[second]:
            continue
        for vocabulary in VOCABULARIES:
            rows.append(
                {"model": models[first], "vocabulary": vocabulary, "over": "domains"}
                | {"one": names[first], "other": names[second]}
                | ends("kappa", _kappas(labels[first], labels[second], vocabulary))
            )
    table = pd.DataFrame(rows)
    found: dict[str, Finding] = {}
    for over in ("inputs", "domains"):
        rest = table[(table["over"] == over) & (table["model"] == table["model"].iloc[0])]
        for vocabulary in VOCABULARIES:
            values = rest.loc[rest["vocabulary"] == vocabulary, "kappa"]
            found[f"stability.{over}.{vocabulary}"] = Finding(float(values.min()))
        least = rest.nsmallest(1, "kappa")[["kappa", "low", "high"]].to_numpy(float)
        found[f"stability.{over}.least"] = Finding(*(least[0] if len(least) else [np.nan]))
    twin = table[(table["model"] == TWIN) & (table["over"] == "inputs")]["kappa"]
    found["stability.twin"] = Finding(float(twin.median()))
    return Found(table, found)


@experiment(version=1)
def model_agreement(*labels: pd.DataFrame, models: Sequence[str]) -> Found:
    """The adjusted mutual information of every two vocabularies, in every model.

    labels  tables of `head_labels` on the same corpus
    table   model, one, other, ami, low, high
    """
    rows, found = [], {}
    for place, (table, model) in enumerate(zip(labels, models, strict=True), start=1):
        namings = {name: labels_of(table, name) for name in VOCABULARIES}
        draws = []
        for one, other in combinations(VOCABULARIES, 2):
            if of_papers(one, other):
                draws.append(compared(adjusted_information, namings[one], namings[other]))
                rows.append({"model": model, "one": one, "other": other, **ends("ami", draws[-1])})
        key = "twin" if model == TWIN else place
        found[f"models.{key}.median"] = drawn(pd.DataFrame(draws).median())
    every = pd.DataFrame(rows)
    wide = every[every["model"] != TWIN].pivot(
        index=["one", "other"], columns="model", values="ami"
    )
    if wide.shape[1] > 1:
        found["models.order"] = Finding(float(wide.corr("spearman").to_numpy()[0, 1]))
    return Found(every, found, {"models": list(models)})


@experiment(version=1)
def form_and_kind(*labels: pd.DataFrame, names: Sequence[str]) -> Found:
    """Cohen's kappa of a vocabulary with itself where only the form differs, or only the kind.

    labels  tables of `head_labels`: on long inputs, on sentences of the same kind of text, and on
            single texts of other kinds; their corpora are in `names`
    table   vocabulary, differs ("form" or "kind"), one, other, kappa, low, high
    """
    sentences = labels[1]
    rows = []
    draws: dict[str, list[np.ndarray]] = {FORM: [], KIND: []}
    for place in (0, *range(2, len(labels))):
        differs = KIND if place else FORM
        for vocabulary in VOCABULARIES:
            draws[differs].append(_kappas(sentences, labels[place], vocabulary))
            rows.append(
                {"vocabulary": vocabulary, "differs": differs}
                | {"one": names[1], "other": names[place]}
                | ends("kappa", draws[differs][-1])
            )
    form = pd.DataFrame(draws[FORM]).median()
    kind = pd.DataFrame(draws[KIND]).median().reindex(form.index)  # NaN without another kind
    values = {"form.kappa": form, "kind.kappa": kind, "form.lead": kind - form}
    return Found(pd.DataFrame(rows), {name: drawn(one) for name, one in values.items()})


@experiment(version=1)
def input_lengths(*corpora: Corpus, encoder: Encoder) -> Found:
    """The mean length of the inputs as the model sees them: corpus, pieces."""
    rows = []
    for corpus in corpora:
        lengths = [min(len(one), MAX_LENGTH) for one in tokenized(corpus.examples, encoder)]
        rows.append({"corpus": corpus.name, "pieces": float(np.mean(lengths))})
    return Found(pd.DataFrame(rows), facts={"inputs": sum(map(len, corpora))})
