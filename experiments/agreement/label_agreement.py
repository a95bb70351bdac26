"""Do four vocabularies name the same things? Agreement of every two, and two baselines."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from attnlib.measuring.head_tables import head_names
from attnlib.measuring.significance import ALPHA
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
from experiments.shared.intervals import drawn
from experiments.shared.sortings import (
    adjusted_information,
    agreement_kappa,
    controlled,
    kappa,
    shuffled_p,
)

BASELINES = ("layer", "entropy")
"""What a head could be called by without any paper: its layer, and a quarter by its entropy."""
QUARTERS = 4
SAME_PAPER = {"rule", "network"}
"""Two ways to one vocabulary: they say how well it can be applied, not whether papers agree."""


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
    table["q"], table["q_within"] = controlled(table["p"]), controlled(table["p_within"])
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
