"""Sec. 5: what the reader loses when types of heads are changed, beside random heads.

The rows of Tables 2 and 3, the same with random heads of the same layers, every head alone, and
what the open points of the paper change.
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
from attnlib.measuring.bootstrap import percentile_interval
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.ablation import (
    Outcome,
    ablated,
    harm_p_value,
    paired_loss,
    single_ablations,
    spread_out,
)
from experiments.shared.head_types import TYPES
from experiments.shared.training.answers import score_answers, summary
from experiments.shared.training.publishedreader import reader_of
from experiments.shared.training.spanmodel import SpanReader, first_texts

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
    em, f1 = score_answers(first_texts(reader.answers(questions, n_best=1)), questions)
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


@experiment(version=1, trains=True)
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
    table  row, draw, place (of the question), em, f1; empty if the row changes no head
    facts  overlap: the share of the row's heads that a random set has, on average
    """
    reader, asked, types = reader_and_types(given, encoder, **plan)
    own = ROWS[row - 1]
    heads = own.heads(types)
    columns = ["row", "draw", "place", "em", "f1"]
    if not heads:
        empty = pd.DataFrame(columns=columns, dtype=float)
        return Found(empty, facts={"overlap": None, "inputs": 0, "passes": 0})
    sets = matched_draws(heads, reader.encoder.n_heads, draws=draws, seed=seed)
    variants = {str(draw): own.variant(drawn) for draw, drawn in enumerate(sets)}
    outcome = ablated(reader, list(asked.values()), variants)
    table = _long(outcome, asked).assign(row=row)
    table["draw"] = table["name"].astype(int)
    facts = {
        "inputs": len(asked),
        "passes": draws * len(asked),
        "overlap": float(np.mean([len(one & heads) for one in sets]) / len(heads)),
    }
    return Found(table[columns], facts=facts)


def _long(outcome: Outcome, places: Collection[int]) -> pd.DataFrame:
    """One row per variant and question."""
    table = pd.MultiIndex.from_product([outcome.names, places], names=["name", "place"])
    scores = {name: getattr(outcome, name).ravel() for name in ("em", "f1", "loss")}
    return pd.DataFrame(scores, index=table).reset_index()


# --- what is lost, and how much of it is due to the type ------------------------------------------


@experiment(version=1)
def ablations(answers: pd.DataFrame, *controls: pd.DataFrame, seed: int = 0) -> Found:
    """Tables 2 and 3: what each ablation costs, and how much of that is due to the type.

    answers   the table of `type_answers`
    controls  those of `control_answers`, in any order
    table     one row per ablation: row, table, kind, types, n_heads, em, f1 (percent, with
              intervals over articles), lost (percent of the baseline's F1); on the questions of
              the control: own_f1, control_f1, control_em, control_low, control_high (the middle
              95 % of the random sets), excess (f1 - control, points), p, n_draws
    """
    scores = {int(row): part for row, part in answers.sort_values("place").groupby("row")}
    groups = scores[UNTAPPED]["article"].tolist()
    drawn = {int(part["row"].iloc[0]): part for part in controls if len(part)}
    rows = []
    for row in (Row(UNTAPPED, "untapped"), *ROWS):
        part = scores[row.number]
        told = {
            "row": row.number,
            "table": "2" if row.number < 12 else "3",
            "kind": row.kind,
            "types": "+".join(row.types),
            "n_heads": int(part["n_heads"].iloc[0]),
            **summary(part["em"], part["f1"], groups, seed),
        }
        if row.number in drawn:
            told |= _beside(part["f1"].to_numpy(), drawn[row.number], groups, seed)
        rows.append(told)
    table = pd.DataFrame(rows)
    if "excess" not in table:
        table[["excess", "excess_low", "excess_high", "p", "control_f1"]] = np.nan
    f1 = {number: part["f1"].to_numpy() for number, part in scores.items()}
    whole = f1[BASELINE].mean() or np.nan  # nothing of nothing can be lost
    table["lost"] = [100 * (1 - f1[row].mean() / whole) for row in table["row"]]
    return Found(table, _findings(table.set_index("row"), f1, groups, seed))


def _beside(
    own: np.ndarray, control: pd.DataFrame, groups: Sequence[str], seed: int
) -> dict[str, float]:
    """A row beside its random sets, on the questions that both answered."""
    f1, em = (control.pivot(index="draw", columns="place", values=score) for score in ("f1", "em"))
    places = list(f1.columns)
    ours, theirs = own[places], f1.to_numpy()
    beyond = paired_loss(ours, theirs, [groups[place] for place in places], seed=seed)
    low, high = percentile_interval(100 * theirs.mean(1))
    return {
        "own_f1": 100 * float(ours.mean()),
        "control_f1": 100 * float(theirs.mean()),
        "control_low": float(low),
        "control_high": float(high),
        "control_em": 100 * float(em.to_numpy().mean()),
        "excess": -100 * beyond.value,
        "excess_low": -100 * beyond.high,
        "excess_high": -100 * beyond.low,
        "p": harm_p_value(float(ours.mean()), theirs.mean(1)),
        "n_draws": len(theirs),
        "n_control_questions": len(places),
    }


def _findings(
    by_row: pd.DataFrame, f1: Mapping[int, np.ndarray], groups: Sequence[str], seed: int
) -> dict[str, Finding]:
    """The numbers that claims on Tables 2 and 3 ask for."""

    def more(one: int, other: int, scale: float = 100.0) -> Finding:
        """Points of F1 that a row is below another."""
        lost = paired_loss(f1[one], f1[other], groups, seed=seed)
        return Finding(scale * lost.value, scale * lost.low, scale * lost.high)

    found = {}
    whole = float(f1[BASELINE].mean()) or np.nan
    for row in ROWS:
        own = by_row.loc[row.number]
        found[f"{row.key}.f1"] = Finding(*own[["f1", "f1_low", "f1_high"]])
        found[f"{row.key}.lost"] = more(row.number, BASELINE, 100 / whole)
        if row.types:  # undefined if no head is of these types
            beyond = -own[["excess", "excess_high", "excess_low"]]
            found[f"{row.key}.beyond_control"] = Finding(*beyond)
    worst = by_row.loc[[2, 4, 5], "f1"].idxmin()  # pruned: dense, dense&vertical, vertical
    mildest = by_row.loc[[2, 3, 4], "f1"].idxmax()  # dense, diagonal, dense&vertical
    return found | {
        "row07.more_than_06": more(7, 6),
        "row15.more_than_14": more(15, 14),
        "prune.diagonal_lead": more(3, worst),
        "prune.vertical_lead": more(5, mildest),
        "sentence.diagonal": more(12, 13),
        "sentence.dense_vertical": more(17, 19),
    }


# --- beyond Sec. 5: every head alone, and other readings ------------------------------------------


@experiment(version=1, trains=True)
def single_head_effects(*given: Corpus | pd.DataFrame, encoder: Encoder, **plan: Any) -> Found:
    """What pruning one head alone costs, for every head of the model.

    plan   recipe and n_questions, see `reader_and_types`
    table  layer, head, type, loss (rise of the cross-entropy of the right answer, in nats, with
           its standard error over questions), f1 (points lost)
    """
    reader, asked, types = reader_and_types(given, encoder, **plan)
    table, rises, facts = single_ablations(reader, list(asked.values()), action="zero")
    rise = pd.DataFrame(rises)
    table.insert(2, "loss", rise.mean(axis=1))
    table.insert(3, "loss_error", rise.sem(axis=1))
    table = table.merge(types[["layer", "head", "type"]], on=["layer", "head"])
    by_type = table.groupby("type")["loss"].mean().reindex(list(TYPES)).to_dict()
    return Found(table, facts={**facts, "mean_by_type": by_type})


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
