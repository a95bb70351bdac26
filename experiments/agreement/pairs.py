"""Do four vocabularies speak of the same things? Agreement of every two, beside two baselines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from attnlib.measuring.significance import ALPHA
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.vocabularies import ASKED, QUESTIONS, VOCABULARIES, answers, labels_of
from experiments.kovaleva2019.grids import drawn
from experiments.shared.taxonomies import (
    adjusted_information,
    agreement_kappa,
    controlled,
    crossed,
    kappa,
    shuffled_p,
)

BASELINES = ("layer", "entropy")
"""What a head could be called by without any paper: its layer, and a quarter by its entropy."""
QUARTERS = 4
SAME_PAPER = {"rule", "network"}
"""Two ways to one vocabulary: they say how well it can be told, not whether papers agree."""


@experiment(version=1)
def label_agreement(labels: pd.DataFrame, numbers: pd.DataFrame, *, seed: int = 0) -> Found:
    """Adjusted mutual information of every two vocabularies, and of each with two baselines.

    labels   the table of `head_labels`
    numbers  the table of `head_numbers`, for the entropy of every head
    table    one, other, ami, low, high (inputs drawn again, all heads named anew), p (labels dealt
             out over all heads), p_within (inside layers), q, q_within
    """
    sorted_heads = {name: labels_of(labels, name) for name in VOCABULARIES}
    layer, quarter = _baselines(labels, numbers)
    sorted_heads |= {"layer": (layer, layer[None]), "entropy": (quarter, quarter[None])}
    rows, values = [], {}
    for one, other in combinations(sorted_heads, 2):
        (first, firsts), (second, seconds) = sorted_heads[one], sorted_heads[other]
        draws = [adjusted_information(first, second)]
        for draw in range(max(len(firsts), len(seconds))):
            pair = firsts[draw % len(firsts)], seconds[draw % len(seconds)]
            draws.append(adjusted_information(*pair))
        values[one, other] = np.array(draws)
        found = drawn(draws)
        within = None if "layer" in (one, other) else layer
        rows.append(
            {
                "one": one,
                "other": other,
                "ami": found.value,
                "low": found.low,
                "high": found.high,
                "p": shuffled_p(first, second, seed=seed),
                "p_within": np.nan
                if within is None
                else shuffled_p(first, second, within=within, seed=seed),
            }
        )
    table = pd.DataFrame(rows)
    table["q"], table["q_within"] = controlled(table["p"]), controlled(table["p_within"])
    return Found(table, _label_findings(table, values), {"inputs": 0})


def between_papers(table: pd.DataFrame) -> pd.Series:
    """Rows of two papers' vocabularies: no baseline, and not the two ways to Kovaleva's."""
    names = [{row.one, row.other} for row in table[["one", "other"]].itertuples()]
    return pd.Series(
        [not pair & set(BASELINES) and pair != SAME_PAPER for pair in names], index=table.index
    )


def _baselines(labels: pd.DataFrame, numbers: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    heads = labels[labels["vocabulary"] == "clark"].sort_values(["layer", "head"])
    rows = numbers[numbers["key"] == "entropy"].sort_values(["layer", "head"])
    rank = rows["mean"].rank(method="first").to_numpy() - 1
    quarter = (QUARTERS * rank // len(rank)).astype(int)
    layer = heads["layer"].to_numpy()
    return layer.astype(str).astype(object), quarter.astype(str).astype(object)


def _label_findings(
    table: pd.DataFrame, values: dict[tuple[str, str], np.ndarray]
) -> dict[str, Finding]:
    papers = table[between_papers(table)]
    draws = np.stack([values[row.one, row.other] for row in papers.itertuples()])
    found = {
        "agree.least": drawn(np.nanmin(draws, 0)),
        "agree.median": drawn(np.nanmedian(draws, 0)),
        "agree.most": drawn(np.nanmax(draws, 0)),
        "agree.beyond_chance": Finding(float((papers["q"] < ALPHA).mean())),
        "agree.beyond_layers": Finding(float((papers["q_within"] < ALPHA).mean())),
    }
    typical = np.nanmedian(draws, 0)
    for baseline in BASELINES:
        pairs = [values[name, baseline] for name in VOCABULARIES]
        found[f"agree.{baseline}"] = drawn(np.nanmedian(pairs, 0))
        found[f"agree.{baseline}_lead"] = drawn(np.nanmedian(pairs, 0) - typical)
    both = values["rule", "network"]
    found["agree.rule_network"] = drawn(both)
    found["agree.rule_network_lead"] = drawn(both - typical)
    return found


@experiment(version=1)
def question_agreement(labels: pd.DataFrame, *, seed: int = 0) -> Found:
    """Cohen's kappa of every two vocabularies on questions that all of them answer.

    table  question, one, other, kappa, low, high, p, p_within, yes_one, yes_other (heads)
    """
    layer = labels.drop_duplicates(["layer", "head"]).sort_values(["layer", "head"])["layer"]
    rows, found = [], {}
    told = {name: labels_of(labels, name) for name in VOCABULARIES}
    for question in QUESTIONS:
        replies = {n: tuple(answers(part, n, question) for part in told[n]) for n in VOCABULARIES}
        of_papers = []
        for one, other in combinations(VOCABULARIES, 2):
            (first, firsts), (second, seconds) = replies[one], replies[other]
            draws = [agreement_kappa(first, second)]
            draws += [agreement_kappa(a, b) for a, b in zip(firsts, seconds, strict=True)]
            if {one, other} != SAME_PAPER:
                of_papers.append(draws)
            number = drawn(draws)
            rows.append(
                {
                    **{"question": question, "one": one, "other": other},
                    **{"kappa": number.value, "low": number.low, "high": number.high},
                    "p": _kappa_p(first, second, None, seed),
                    "p_within": _kappa_p(first, second, layer.to_numpy(), seed),
                    **{"yes_one": int(first.sum()), "yes_other": int(second.sum())},
                }
            )
        values = np.array(of_papers)
        found[f"kappa.{question}.least"] = drawn(over_pairs(np.nanmin, values))
        found[f"kappa.{question}.median"] = drawn(over_pairs(np.nanmedian, values))
        without_clark = [
            row for row, pair in zip(values, _paper_pairs(), strict=True) if "clark" not in pair
        ]
        found[f"kappa.{question}.without_clark"] = drawn(
            over_pairs(np.nanmedian, np.array(without_clark))
        )
    found["agree.unanimous"] = _unanimous(told)
    return Found(pd.DataFrame(rows), found, {"questions": ASKED})


def _paper_pairs() -> list[tuple[str, str]]:
    return [pair for pair in combinations(VOCABULARIES, 2) if set(pair) != SAME_PAPER]


def over_pairs(how: object, pairs: np.ndarray | Sequence[Sequence[float]]) -> np.ndarray:
    """A number over pairs in every draw; NaN where no pair is defined."""
    values = np.asarray(pairs, float)
    known = ~np.isnan(values).all(0)
    found = np.full(values.shape[1], np.nan)
    found[known] = how(values[:, known], axis=0)  # type: ignore[operator]
    return found


def _kappa_p(first: np.ndarray, second: np.ndarray, within: np.ndarray | None, seed: int) -> float:
    """One-sided p of kappa: of two yes-no answers it rises with the heads that agree."""
    return shuffled_p(first, second, kappa, within=within, seed=seed)


def _unanimous(told: dict[str, tuple[np.ndarray, np.ndarray]]) -> Finding:
    """The share of heads of which all vocabularies say the same to all three questions."""

    def share(labels: dict[str, np.ndarray]) -> float:
        same = np.ones(len(next(iter(labels.values()))), bool)
        for question in QUESTIONS:
            replies = np.stack([answers(labels[n], n, question) for n in labels])
            same &= (replies == replies[0]).all(0)
        return float(same.mean())

    n_draws = len(next(iter(told.values()))[1])
    whole = share({name: first for name, (first, _) in told.items()})
    draws = (share({n: rest[d] for n, (_, rest) in told.items()}) for d in range(n_draws))
    return drawn([whole, *draws])


def confusion_wall(labels: pd.DataFrame) -> pd.DataFrame:
    """Every two vocabularies crossed: how many heads, how many by chance, and which.

    columns  one, other, row, column (labels), n, expected, heads (names), odd: the two labels
             answer a question differently
    """
    named = labels.drop_duplicates(["layer", "head"]).sort_values(["layer", "head"])
    heads = np.array([f"{row.layer}-{row.head}" for row in named.itertuples()])
    rows = []
    for one, other in combinations(VOCABULARIES, 2):
        first, second = labels_of(labels, one)[0], labels_of(labels, other)[0]
        counts = crossed(first, second)
        by_chance = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
        for (i, j), row, column in _cells(first, second):
            chosen = (first == row) & (second == column)
            rows.append(
                {
                    **{"one": one, "other": other, "row": row, "column": column},
                    **{"n": int(counts[i, j]), "expected": float(by_chance[i, j])},
                    "heads": " ".join(heads[chosen]),
                    "odd": _odd(row, one, column, other),
                }
            )
    return pd.DataFrame(rows)


def _cells(first: np.ndarray, second: np.ndarray) -> Iterator[tuple[tuple[int, int], str, str]]:
    for i, row in enumerate(np.unique(first.astype(str))):
        for j, column in enumerate(np.unique(second.astype(str))):
            yield (i, j), str(row), str(column)


def _odd(row: str, one: str, column: str, other: str) -> bool:
    """Whether two labels have nothing in common: one says near, the other special or neither.

    Clark's `other` and Pande's lack of roles say nothing, and contradict nothing.
    """
    if row in ("other", "none") or column in ("other", "none"):
        return False
    says = {
        name: {q for q in ("near", "special") if QUESTIONS[q][name](label)}
        for name, label in ((one, row), (other, column))
    }
    neither = not says[one] and not says[other]
    return not neither and not says[one] & says[other]
