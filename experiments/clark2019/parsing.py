"""Sec. 5, Table 3: what all heads together know of syntax, by probes and their rivals."""

from __future__ import annotations

from typing import Any

import pandas as pd

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder, random_twin
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.clark2019.probetraining import Scores, paired_difference, train_and_score
from experiments.clark2019.vectors import load_vectors

NAMES = {
    "right-branching": "right_branching",
    "distances-words": "distances",
    "random": "random",
    "attention": "attention",
    "attention-words": "attention_words",
}
SHOWN = {
    "right-branching": "always the next word",
    "distances-words": "distances + GloVe",
    "random": "random twin + GloVe",
    "attention": "attention",
    "attention-words": "attention + GloVe",
}
DIFFERENCES = (
    ("distances-words", "right-branching"),
    ("random", "distances-words"),
    ("attention", "distances-words"),
    ("attention-words", "attention"),
)


@experiment(version=1, reads=["glove-50d"], trains=True)
def probes(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    epochs: int = 1,
    max_length: int = 128,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """UAS of both probes, of the rivals without attention, and on a random twin's attention.

    The table also has the probe with the word vectors misaligned as in the released code.
    """
    vectors = load_vectors()
    settings: dict[str, Any] = {"epochs": epochs, "max_length": max_length, "seed": seed}
    settings["progress"] = progress
    real = train_and_score(encoder, train.examples, test.examples, vectors, **settings)
    twin = train_and_score(
        random_twin(encoder, seed),
        train.examples,
        test.examples,
        vectors,
        names=("attention-words",),
        **settings,
    )
    scores = {**real.scores, "random": twin["attention-words"]}
    table = pd.DataFrame([{**one.row(), "probe": name} for name, one in scores.items()])
    table = table.drop(columns="seconds")  # what it cost belongs to the record, not to the result
    per_pass = sum(map(len, tokenized(train.examples, encoder)))
    scored = sum(map(len, tokenized(test.examples, encoder)))
    words = [word for tree in test.examples for word in tree.words]
    facts = {
        "inputs": len(train) + len(test),
        "passes": 2 * (epochs * len(train) + len(test)),
        "tokens": 2 * (epochs * per_pass + scored),
        "train": train.name,
        "test": test.name,
        "skipped": dict(real.skipped),
        "known_words": vectors.coverage(words),
    }
    return Found(table, _findings(scores), facts)


def _findings(scores: dict[str, Scores]) -> dict[str, Finding]:
    found = {}
    for name, key in NAMES.items():
        row: dict[str, Any] = scores[name].row()
        found[f"table3.{key}"] = Finding(row["uas"], row["low"], row["high"])
    for one, other in DIFFERENCES:
        gap = paired_difference(scores[one], scores[other])
        found[f"table3.{NAMES[one]}_minus_{NAMES[other]}"] = Finding(*gap)
    rivals = ("distances-words", "random")
    best = max(rivals, key=lambda name: scores[name].right.sum())
    gap = paired_difference(scores["attention-words"], scores[best])
    found["table3.attention_words_minus_best_baseline"] = Finding(*gap)
    return found


def table3_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows to be drawn, in the paper's order, with names a reader knows."""
    rows = table.set_index("probe").loc[list(SHOWN)].reset_index()
    return rows.assign(label=rows["probe"].map(SHOWN), value=rows["uas"])


def table3_paper(claims: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The paper's Table 3 under the names of `table3_rows`."""
    return {SHOWN[name]: claims[key]["value"] for name, key in NAMES.items()}


def table3_quotes(found: Found) -> dict[str, Any]:
    rows = table3_rows(found.table).sort_values("value", ascending=False)
    told = (f"{row['label']} ({row['value']:.0f})" for _, row in rows.iterrows())
    return {"probe_order": ", ".join(told), "known_words": found.facts["known_words"]}
