"""The question answering model: what it was trained on, and how well it reads new texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.subjects import reader_of
from experiments.shared.answers import score_answers, summary
from experiments.shared.spanmodel import SpanHead, SpanReader


@experiment(version=1, trains=True)
def reading(
    *corpora: Corpus,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    name: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """The reader's answers to questions on texts it has not seen, beside an untrained reader's.

    corpora  what it learns from, if anything, and last the questions that it is asked
    table    reader ("trained", "untrained"), em, f1 and their intervals over articles
    """
    *train, test = corpora
    trained = reader_of(*train, encoder=encoder, recipe=recipe, progress=progress)
    blank = SpanReader(encoder, SpanHead(encoder, seed), trained.facts)
    groups = [question.article for question in test.examples]
    rows: list[dict[str, Any]] = []
    for label, reader in (("trained", trained), ("untrained", blank)):
        best = reader.answers(test.examples, n_best=1)
        given = [spans[0].text if spans else "" for spans in best]
        em, f1 = score_answers(given, test.examples)
        rows.append({"reader": label, **summary(em, f1, groups, seed)})
    facts = trained.facts
    own = rows[0]
    told = ("corpus", "n_train", "steps", "epochs", "final_loss", "seconds", "history", "recipe")
    return Found(
        pd.DataFrame(rows),
        {
            f"reading.{name}.{score}": Finding(
                own[score], own[f"{score}_low"], own[f"{score}_high"]
            )
            for score in ("em", "f1")
        },
        {
            "inputs": facts.get("n_train"),
            "asked": len(test),
            "articles": len(set(groups)),
            "passes": 3 * facts.get("steps", 0) * (facts["recipe"].get("batch_size") or 0)
            + 2 * len(test),
            **{key: facts.get(key) for key in told},
        },
    )


def reading_rows(found: Mapping[str, Found]) -> pd.DataFrame:
    """The table of all corpora that the reader was asked about, for a figure of scores."""
    rows = []
    for name, one in found.items():
        scores = one.table.set_index("reader")
        for score, label in (("em", "exact match"), ("f1", "F1")):
            rows.append(
                {
                    "label": f"{name}, {label}",
                    "value": scores.loc["trained", score],
                    "low": scores.loc["trained", f"{score}_low"],
                    "high": scores.loc["trained", f"{score}_high"],
                    "untrained": scores.loc["untrained", score],
                }
            )
    return pd.DataFrame(rows)


def reading_caption(found: Mapping[str, Found]) -> str:
    """What the reader was trained on and how much it was asked, for the figure of its scores."""
    facts = next(iter(found.values())).facts
    asked = ", ".join(f"{one.facts['asked']} of {name}" for name, one in found.items())
    learnt = (
        f"after {facts['steps']:,} steps on {facts['n_train']:,} questions of {facts['corpus']}"
    )
    return f"Scores {learnt if facts['steps'] else 'of the published model'}. Asked: {asked}."
