"""Do four vocabularies name the same things, and does each stay the same on other inputs?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.measuring.head_tables import head_names
from attnlib.measuring.significance import ALPHA, benjamini_hochberg
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.vocabularies import (
    ASKED,
    QUESTIONS,
    VOCABULARIES,
    Naming,
    answers,
    compared,
    ends,
    labels_of,
)
from experiments.kovaleva2019.patterns import MAX_LENGTH
from experiments.shared.intervals import drawn
from experiments.shared.sortings import (
    adjusted_information,
    agreement_kappa,
    kappa,
    shuffled_p,
)

BASELINES = ("layer", "entropy")
"""What a head could be called by without any paper: its layer, and a quarter by its entropy."""
QUARTERS = 4
SAME_PAPER = {"rule", "network"}
"""Two ways to one vocabulary: they say how well it can be applied, not whether papers agree."""
TWIN = "random twin"
FORM, KIND = "form", "kind"


@experiment(version=1)
def label_agreement(labels: pd.DataFrame, numbers: pd.DataFrame, *, seed: int = 0) -> Found:
    """Adjusted mutual information of every two vocabularies, and of each with two baselines.

    labels   the table of `head_labels`
    numbers  the table of `head_numbers`, for the entropy of every head
    table    one, other, ami, low, high (inputs drawn again, all heads named anew), p (labels dealt
             out over all heads), p_within (inside layers), q, q_within
    """
    namings = {name: labels_of(labels, name) for name in VOCABULARIES}
    entropy = numbers[numbers["key"] == "entropy"].sort_values(["layer", "head"])
    layer = entropy["layer"].to_numpy().astype(str)
    rank = entropy["mean"].rank(method="first").to_numpy() - 1
    quarter = (QUARTERS * rank // len(rank)).astype(int).astype(str)
    for name, own in zip(BASELINES, (layer, quarter), strict=True):
        namings[name] = own, np.tile(own, (len(namings["clark"][1]), 1))
    rows, values = [], {}
    for one, other in combinations(namings, 2):
        first, second = namings[one][0], namings[other][0]
        values[one, other] = compared(adjusted_information, namings[one], namings[other])
        row: dict[str, Any] = {"one": one, "other": other, **ends("ami", values[one, other])}
        row |= {"p": shuffled_p(first, second, seed=seed), "p_within": np.nan}
        if one != "layer" != other:
            row["p_within"] = shuffled_p(first, second, within=layer, seed=seed)
        rows.append(row)
    table = pd.DataFrame(rows)
    for end in ("", "_within"):
        table[f"q{end}"] = benjamini_hochberg(table[f"p{end}"].to_numpy())
    papers = table[[of_papers(row.one, row.other) for row in table.itertuples()]]
    draws = pd.DataFrame([values[row.one, row.other] for row in papers.itertuples()])
    typical = draws.median()
    found = {
        "agree.least": drawn(draws.min()),
        "agree.median": drawn(typical),
        "agree.most": drawn(draws.max()),
        "agree.beyond_chance": Finding(float((papers["q"] < ALPHA).mean())),
        "agree.beyond_layers": Finding(float((papers["q_within"] < ALPHA).mean())),
    }
    for baseline in BASELINES:
        own = pd.DataFrame([values[name, baseline] for name in VOCABULARIES]).median()
        found[f"agree.{baseline}"] = drawn(own)
        found[f"agree.{baseline}_lead"] = drawn(own - typical)
    both = values["rule", "network"]
    found["agree.rule_network"] = drawn(both)
    found["agree.rule_network_lead"] = drawn(both - typical)
    return Found(table, found, {"inputs": 0})


def of_papers(one: str, other: str) -> bool:
    """Whether two papers are compared: no baseline, and not the two ways to Kovaleva's."""
    return not {one, other} & set(BASELINES) and {one, other} != SAME_PAPER


@experiment(version=1)
def question_agreement(labels: pd.DataFrame, *, seed: int = 0) -> Found:
    """Cohen's kappa of every two vocabularies on questions that all of them answer.

    table  question, one, other, kappa, low, high, p, p_within, yes_one, yes_other (heads)
    """
    layer = _heads_of(labels)["layer"].to_numpy()
    namings = {name: labels_of(labels, name) for name in VOCABULARIES}
    rows, found, unanimous = [], {}, np.array(True)
    for question in QUESTIONS:
        replies: dict[str, Naming] = {
            name: (answers(whole, name, question), answers(draws, name, question))
            for name, (whole, draws) in namings.items()
        }
        every = np.stack([np.vstack(reply) for reply in replies.values()])  # naming draw head
        unanimous = unanimous & (every == every[0]).all(0)
        kappas = {}
        for one, other in combinations(VOCABULARIES, 2):
            first, second = replies[one][0], replies[other][0]
            kappas[one, other] = compared(agreement_kappa, replies[one], replies[other])
            row: dict[str, Any] = {"question": question, "one": one, "other": other}
            row |= ends("kappa", kappas[one, other])
            row["p"] = shuffled_p(first, second, kappa, seed=seed)
            row["p_within"] = shuffled_p(first, second, kappa, within=layer, seed=seed)
            rows.append({**row, "yes_one": int(first.sum()), "yes_other": int(second.sum())})
        papers = pd.DataFrame({pair: own for pair, own in kappas.items() if of_papers(*pair)}).T
        others = papers.drop(index="clark", level=0)
        found[f"kappa.{question}.least"] = drawn(papers.min())
        found[f"kappa.{question}.median"] = drawn(papers.median())
        found[f"kappa.{question}.without_clark"] = drawn(others.median())
    found["agree.unanimous"] = drawn(unanimous.mean(1))
    return Found(pd.DataFrame(rows), found, {"questions": ASKED})


def confusion_wall(labels: pd.DataFrame) -> pd.DataFrame:
    """Every two vocabularies crossed: how many heads, how many by chance, and which.

    columns  one, other, row, column (labels), n, expected, heads (names), odd: the two labels
             answer a question differently
    """
    heads = np.array(head_names(_heads_of(labels)))
    rows = []
    for one, other in combinations(VOCABULARIES, 2):
        first, second = labels_of(labels, one)[0], labels_of(labels, other)[0]
        for row, column in product(sorted(set(first)), sorted(set(second))):
            chosen = (first == row) & (second == column)
            by_chance = (first == row).sum() * (second == column).sum() / len(heads)
            crossed = {"one": one, "other": other, "row": row, "column": column}
            crossed |= {"n": int(chosen.sum()), "expected": float(by_chance)}
            odd = _odd(row, one, column, other)
            rows.append({**crossed, "heads": " ".join(heads[chosen]), "odd": odd})
    return pd.DataFrame(rows)


def _heads_of(labels: pd.DataFrame) -> pd.DataFrame:
    """One row per head, in the order of `labels_of`."""
    return labels.drop_duplicates(["layer", "head"]).sort_values(["layer", "head"])


def _odd(row: str, one: str, column: str, other: str) -> bool:
    """Whether two labels have nothing in common: one says near, the other special or neither.

    Clark's `other` and Pande's lack of roles say nothing, and contradict nothing.
    """
    if row in ("other", "none") or column in ("other", "none"):
        return False
    says = {
        name: {q for q in ("near", "special") if label in QUESTIONS[q][name]}
        for name, label in ((one, row), (other, column))
    }
    neither = not says[one] and not says[other]
    return not neither and not says[one] & says[other]


# --- how stable each vocabulary is: over inputs, kinds and forms of text, and models --------------


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
