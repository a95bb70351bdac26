"""Sec. 4.3, Table 2: which head finds the antecedents of mentions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.antecedents import advantage, antecedent_table, choices

SYSTEMS = {"nearest": "nearest", "head match": "head_match", "rule-based": "rule_based"}
SHOWN = {
    "nearest": "nearest mention",
    "head match": "same head word",
    "rule-based": "four rules",
    "head": "best head",
    "head, clean": "best head, clean",
    "head, any word": "best head, any word",
}


@experiment(version=1)
def coreference(
    corpus: Corpus,
    *,
    encoder: Encoder,
    max_length: int = 128,
    judged: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """Antecedent selection by the best head beside three rivals, by kind of mention."""
    found = choices(encoder, corpus.examples, max_length=max_length, progress=progress)
    table = antecedent_table(found, seed=seed)
    tokens = (min(len(e), max_length) for e in tokenized(corpus.examples, encoder))
    facts = {
        "inputs": len(corpus),
        "passes": len(corpus),
        "tokens": sum(tokens),
        "questions": len(found),
        "corpus": corpus.name,
        "head": _cell(table, "head")["head"],
    }
    if not judged:
        return Found(table, facts=facts)
    numbers = {
        f"table2.{key}": _finding(_cell(table, name))
        for name, key in {**SYSTEMS, "head": "head"}.items()
    }
    right = found.by_head["mentions"]
    best = right[:, int(right.mean(0).argmax())]
    rivals = {key: found.baselines[name] for name, key in SYSTEMS.items()}
    pairs = {
        "head_match_minus_nearest": (rivals["head_match"], rivals["nearest"]),
        "rule_based_minus_head_match": (rivals["rule_based"], rivals["head_match"]),
        "head_minus_head_match": (best, rivals["head_match"]),
        "head_minus_rule_based": (best, rivals["rule_based"]),
    }
    for name, (one, other) in pairs.items():
        numbers[f"table2.{name}"] = Finding(*advantage(one, other, found.document))
    nominal: np.ndarray = found.kind == "nominal"
    gain = advantage(best[nominal], rivals["head_match"][nominal], found.document[nominal])
    numbers["table2.nominal_head_minus_head_match"] = Finding(*gain)
    return Found(table, numbers, facts)


def _cell(table: pd.DataFrame, system: str, kind: str = "all") -> pd.Series:
    return table[(table["system"] == system) & (table["kind"] == kind)].iloc[0]


def _finding(row: pd.Series) -> Finding:
    return Finding(float(row["accuracy"]), float(row["low"]), float(row["high"]))


def table2_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows to be drawn, with names a reader knows."""
    rows = table[table["system"].isin(SHOWN)]
    return rows.assign(label=rows["system"].map(SHOWN), value=rows["accuracy"])


def table2_paper(claims: dict[str, dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The paper's Table 2 under the names of `table2_rows`."""
    names = {**{key: SHOWN[name] for name, key in SYSTEMS.items()}, "head": SHOWN["head"]}
    kinds = ("pronoun", "proper", "nominal")
    cells = {(names[k], "all"): claims[k]["value"] for k in names}
    return cells | {(names[k], kind): claims[k][kind] for k in names for kind in kinds}


def table2_quotes(found: Found) -> dict[str, Any]:
    """What the text quotes of Table 2: accuracies over all mentions, in percent."""
    names = {"any_word": "head, any word", "match_all": "head match", "rules_all": "rule-based"}
    return {key: float(_cell(found.table, name)["accuracy"]) for key, name in names.items()}
