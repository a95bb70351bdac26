"""Sec. 5: what the reader answers when types of heads are changed, or random heads.

The rows of Tables 2 and 3, the same with random heads of the same layers, every head alone, and
what the open points of the paper change. The chapter turns the answers into what is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention.ablation import matched_draws
from attnlib.attention.interventions import Head, Intervention, Variant, heads_of_types
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.shared.ablation import Outcome, ablated, single_ablations, spread_out
from experiments.shared.head_types import TYPES
from experiments.shared.intervals import drawn, drawn_weights
from experiments.shared.training.answers import score_answers
from experiments.shared.training.publishedreader import reader_of
from experiments.shared.training.spanmodel import SpanReader

# --- the rows of Tables 2 and 3 -------------------------------------------------------------------

UNTAPPED, BASELINE = 0, 1
ACTIONS = {"prune": "zero", "substitute": "uniform", "intra": "no_intra", "inter": "no_inter"}
"""What the paper does to a type, and the intervention that does it."""


@dataclass(frozen=True)
class Row:
    """One ablation of the paper: what is done to which types."""

    number: int
    kind: str
    types: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"row{self.number:02d}"

    @property
    def about(self) -> tuple[str, ...]:
        """The types it tells something of: those it changes, or the only one that it spares."""
        spared = tuple(name for name in TYPES if name not in self.types)
        return spared if len(spared) == 1 else self.types

    def heads(self, types: pd.DataFrame) -> frozenset[Head]:
        """The heads of this row; a type that no head has adds none."""
        return heads_of_types(types, sorted(set(self.types) & set(types["type"])))

    def variant(self, heads: frozenset[Head], **reading: Any) -> Variant:
        """What is done, to these heads; `reading` are the open points of `Intervention`."""
        if self.kind not in ACTIONS or not heads:
            return ()
        return (Intervention(heads, ACTIONS[self.kind], **reading),)


_DENSE, _DIAGONAL, _MIXED, _VERTICAL = TYPES

ROWS: tuple[Row, ...] = (
    Row(BASELINE, "baseline"),
    Row(2, "prune", (_DENSE,)),
    Row(3, "prune", (_DIAGONAL,)),
    Row(4, "prune", (_MIXED,)),
    Row(5, "prune", (_VERTICAL,)),
    Row(6, "prune", (_DENSE, _VERTICAL)),
    Row(7, "prune", (_MIXED, _VERTICAL)),
    Row(8, "substitute", (_DENSE,)),
    Row(9, "substitute", (_DIAGONAL,)),
    Row(10, "substitute", (_MIXED,)),
    Row(11, "substitute", (_VERTICAL,)),
    Row(12, "intra", (_DIAGONAL,)),
    Row(13, "inter", (_DIAGONAL,)),
    Row(14, "intra", (_MIXED,)),
    Row(15, "inter", (_MIXED,)),
    Row(16, "intra", (_DENSE, _MIXED, _VERTICAL)),
    Row(17, "inter", (_DENSE, _MIXED, _VERTICAL)),
    Row(18, "intra", (_DENSE, _DIAGONAL, _VERTICAL)),
    Row(19, "inter", (_DENSE, _DIAGONAL, _VERTICAL)),
)
"""In the paper's order. Row 1 is the model as it is."""


# --- answers under every row ----------------------------------------------------------------------


def reader_and_types(
    given: Sequence[Any], encoder: Encoder, recipe: Mapping[str, Any] | None, n_questions: int = 0
) -> tuple[SpanReader, dict[int, Question], pd.DataFrame]:
    """The reader, the questions it is asked by their places, and the types of its heads.

    given        what it learns from, if anything; the questions; the table of `head_types`
    n_questions  some of them, of all articles; 0 for all
    """
    *train, test, types = given
    places = spread_out([one.article for one in test.examples], n_questions or len(test))
    reader = reader_of(*train, encoder=encoder, recipe=recipe)
    return reader, {place: test.examples[place] for place in places}, types


@experiment(version=1, trains=True)
def type_answers(*given: Corpus | pd.DataFrame, encoder: Encoder, **plan: Any) -> Found:
    """Every question answered under every row of Tables 2 and 3.

    plan   recipe, see `reader_and_types`
    table  row, place (of the question), article, n_heads, em, f1 (0 to 1), loss (nats). Row 0 is
           the library's own forward pass without any tap, row 1 the same with one.
    """
    reader, asked, types = reader_and_types(given, encoder, **plan)
    questions = list(asked.values())
    heads = {row.key: row.heads(types) for row in ROWS}
    variants = {row.key: row.variant(heads[row.key]) for row in ROWS}
    outcome = ablated(reader, questions, variants)
    best = reader.answers(questions, n_best=1)
    em, f1 = score_answers([spans[0].text if spans else "" for spans in best], questions)
    plain = Outcome(("row00",), em[None], f1[None], np.full((1, len(em)), np.nan))
    found = pd.concat([_long(plain, asked), _long(outcome, asked)], ignore_index=True)
    name = found.pop("name")
    found["row"] = name.str.removeprefix("row").astype(int)
    found["n_heads"] = name.map({"row00": 0, **{key: len(own) for key, own in heads.items()}})
    found["article"] = found["place"].map({place: one.article for place, one in asked.items()})
    facts = {
        "inputs": len(asked),
        "articles": found["article"].nunique(),
        "passes": (1 + len(ROWS)) * len(asked),
    }
    return Found(found, facts=facts)


@experiment(version=2, trains=True)
def control_answers(
    *given: Corpus | pd.DataFrame,
    encoder: Encoder,
    row: int,
    draws: int,
    seed: int = 0,
    **plan: Any,
) -> Found:
    """What one row does to random sets of as many heads in every layer, on some of the questions.

    plan   recipe and n_questions, see `reader_and_types`
    table  row, draw, overlap (the share of the row's heads that this random set has), place (of the
           question), em, f1 (0 to 1), loss (nats); empty if the row changes no head
    """
    reader, asked, types = reader_and_types(given, encoder, **plan)
    own = ROWS[row - 1]
    heads = own.heads(types)
    columns = ["row", "draw", "overlap", "place", "em", "f1", "loss"]
    if not heads:
        empty = pd.DataFrame(columns=columns, dtype=float)
        return Found(empty, facts={"inputs": 0, "passes": 0})
    sets = matched_draws(heads, reader.encoder.n_heads, draws=draws, seed=seed)
    variants = {str(draw): own.variant(drawn) for draw, drawn in enumerate(sets)}
    outcome = ablated(reader, list(asked.values()), variants)
    table = _long(outcome, asked).assign(row=row)
    table["draw"] = table["name"].astype(int)
    table["overlap"] = [len(sets[draw] & heads) / len(heads) for draw in table["draw"]]
    return Found(table[columns], facts={"inputs": len(asked), "passes": draws * len(asked)})


def _long(outcome: Outcome, places: Collection[int]) -> pd.DataFrame:
    """One row per variant and question."""
    table = pd.MultiIndex.from_product([outcome.names, places], names=["name", "place"])
    scores = {name: getattr(outcome, name).ravel() for name in ("em", "f1", "loss")}
    return pd.DataFrame(scores, index=table).reset_index()


# --- beyond Sec. 5: every head alone, and other readings ------------------------------------------


@experiment(version=2, trains=True)
def single_head_effects(*given: Corpus | pd.DataFrame, encoder: Encoder, **plan: Any) -> Found:
    """What pruning one head alone costs, for every head of the model.

    plan   recipe and n_questions, see `reader_and_types`
    table  layer, head, type, loss (rise of the cross-entropy of the right answer, in nats), low
           and high (its interval over articles), f1 (points lost)
    """
    reader, asked, types = reader_and_types(given, encoder, **plan)
    questions = list(asked.values())
    heads, outcome = single_ablations(reader, questions, action="zero")
    known = ~np.isnan(outcome.loss[0])
    rise = (outcome.loss[1:] - outcome.loss[0])[:, known]
    weights = drawn_weights(np.array([one.article for one in questions])[known])
    rises = rise @ weights.T / weights.sum(1)  # head draw
    table = pd.DataFrame(np.array(heads) + 1, columns=["layer", "head"])
    table[["loss", "low", "high"]] = [list(vars(drawn(one)).values()) for one in rises]
    table["f1"] = 100 * (outcome.f1[0] - outcome.f1[1:]).mean(1)
    table = table.merge(types[["layer", "head", "type"]], on=["layer", "head"])
    of = table["type"].to_numpy()
    by_type = {name: vars(drawn(rises[of == name].mean(0))) for name in TYPES if name in set(of)}
    facts = {
        "inputs": len(questions),
        "passes": len(outcome.names) * len(questions),
        "articles": len({one.article for one in questions}),
        "mean_by_type": by_type,
        "whole_loss": float(np.nanmean(outcome.loss[0])),
        "whole_f1": 100 * float(outcome.f1[0].mean()),
    }
    return Found(table, facts=facts)


READINGS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "rows renormalised": (("intra", "inter"), {"renormalise": True}),
    "[SEP] segments for sentences": (("intra", "inter"), {"unit": "segment"}),
    "[CLS] and [SEP] never cut off": (("intra", "inter"), {"specials": "kept"}),
    "L = 384, padding counted": (("substitute",), {"length": 384}),
}
"""Other readings of Sec. 5: which kinds of ablation they concern, and what is different."""


@experiment(version=1, trains=True)
def ablation_decisions(*given: Corpus | pd.DataFrame, encoder: Encoder, **plan: Any) -> Found:
    """What another reading of an ablation does to its F1, on the same questions.

    plan   recipe and n_questions, see `reader_and_types`
    table  reading, row, kind, types, f1 (that reading), ours, change (points)
    """
    reader, asked, types = reader_and_types(given, encoder, **plan)
    rows, variants = [], {}
    for reading, (kinds, other) in READINGS.items():
        for row in ROWS:
            heads = row.heads(types)
            if row.kind in kinds and heads:
                told = {"reading": reading, "row": row.number, "kind": row.kind}
                rows.append(told | {"types": "+".join(row.types)})
                variants[row.key] = row.variant(heads)
                variants[f"{row.key} {reading}"] = row.variant(heads, **other)
    outcome = ablated(reader, list(asked.values()), variants)
    f1 = dict(zip(outcome.names, 100 * outcome.f1.mean(1), strict=True))
    table = pd.DataFrame(rows)
    keys = table["row"].map("row{:02d}".format)
    table["f1"] = (keys + " " + table["reading"]).map(f1)
    table["ours"] = keys.map(f1)
    table["change"] = table["f1"] - table["ours"]
    facts = {"inputs": len(asked), "passes": len(variants) * len(asked)}
    return Found(table, facts=facts)
