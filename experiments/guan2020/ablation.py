"""Sec. 5: what the reader loses when types of heads are changed, beside random heads.

The rows of Tables 2 and 3, the same with random heads of the same layers, every head alone, and
what the open points of the paper change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention.ablation import matched_draws
from attnlib.attention.interventions import Head, Intervention, Variant, heads_of_types
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question
from attnlib.errors import BadValue
from attnlib.measuring.bootstrap import percentile_interval
from attnlib.measuring.stream import Progress
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
from experiments.shared.training.spanmodel import SpanReader

Given = tuple[Corpus | pd.DataFrame, ...]
"""What the reader learns from, if anything; the questions; the table of `head_types`."""


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
    def table(self) -> str:
        return "2" if self.number < 12 else "3"

    @property
    def key(self) -> str:
        return f"row{self.number:02d}"

    def heads(self, types: pd.DataFrame) -> frozenset[Head]:
        """The heads of this row; a type that no head has adds none."""
        known = set(types["type"])
        return heads_of_types(types, [name for name in self.types if name in known])

    def variant(self, heads: frozenset[Head], **reading: Any) -> tuple[Intervention, ...]:
        """What is done, to these heads; `reading` are the open points of `Intervention`."""
        if self.kind not in ACTIONS or not heads:
            return ()
        return (Intervention(heads, ACTIONS[self.kind], **reading),)


def _but(name: str) -> tuple[str, ...]:
    return tuple(other for other in TYPES if other != name)


_DENSE, _DIAGONAL, _MIXED, _VERTICAL = TYPES

ROWS: tuple[Row, ...] = (
    Row(BASELINE, "baseline"),
    *(Row(2 + place, "prune", (name,)) for place, name in enumerate(TYPES)),
    Row(6, "prune", (_DENSE, _VERTICAL)),
    Row(7, "prune", (_MIXED, _VERTICAL)),
    *(Row(8 + place, "substitute", (name,)) for place, name in enumerate(TYPES)),
    Row(12, "intra", (_DIAGONAL,)),
    Row(13, "inter", (_DIAGONAL,)),
    Row(14, "intra", (_MIXED,)),
    Row(15, "inter", (_MIXED,)),
    Row(16, "intra", _but(_DIAGONAL)),
    Row(17, "inter", _but(_DIAGONAL)),
    Row(18, "intra", _but(_MIXED)),
    Row(19, "inter", _but(_MIXED)),
)
"""In the paper's order. Row 1 is the model as it is."""


# --- answers under every row ----------------------------------------------------------------------


def reader_and_types(
    given: Given, *, encoder: Encoder, recipe: Mapping[str, Any] | None
) -> tuple[SpanReader, Corpus, pd.DataFrame]:
    """The reader, the questions it is asked and the types of its heads."""
    corpora = [one for one in given if isinstance(one, Corpus)]
    tables = [one for one in given if isinstance(one, pd.DataFrame)]
    if not corpora or len(tables) != 1:
        raise BadValue(
            f"{len(corpora)} corpora and {len(tables)} tables; expected questions to learn from, "
            "if any, questions to ask, and one table of head types."
        )
    *train, test = corpora
    return reader_of(*train, encoder=encoder, recipe=recipe), test, tables[0]


@experiment(version=1, trains=True)
def type_answers(
    *given: Corpus | pd.DataFrame,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    progress: Progress | None = None,
) -> Found:
    """Every question answered under every row of Tables 2 and 3.

    table  row, place (of the question), article, n_heads, em, f1 (0 to 1), loss (nats). Row 0 is
           the library's own forward pass without any tap, row 1 the same with one.
    """
    reader, test, types = reader_and_types(given, encoder=encoder, recipe=recipe)
    heads = {row.key: row.heads(types) for row in ROWS}
    variants: dict[str, Variant] = {row.key: row.variant(heads[row.key]) for row in ROWS}
    outcome = ablated(reader, test.examples, variants, progress=progress)
    best = reader.answers(test.examples, n_best=1)
    em, f1 = score_answers([spans[0].text if spans else "" for spans in best], test.examples)
    plain = Outcome(("row00",), em[None], f1[None], np.full((1, len(em)), np.nan))
    places = range(len(test))
    found = pd.concat([_long(plain, places), _long(outcome, places)], ignore_index=True)
    name = found.pop("name")
    found["row"] = name.str.removeprefix("row").astype(int)
    found["n_heads"] = name.map({"row00": 0, **{key: len(own) for key, own in heads.items()}})
    articles = [question.article for question in test.examples]
    found["article"] = [articles[place] for place in found["place"]]
    passes = (1 + len(ROWS)) * len(test)
    facts = {"inputs": len(test), "articles": len(set(articles)), "passes": passes}
    return Found(found, facts=facts)


@experiment(version=1, trains=True)
def control_answers(
    *given: Corpus | pd.DataFrame,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    row: int,
    draws: int,
    n_questions: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """What one row does to random sets of as many heads in every layer, on some of the questions.

    table  row, draw, place (of the question), em, f1; empty if the row changes no head
    facts  overlap: the share of the row's heads that a random set has, on average
    """
    reader, test, types = reader_and_types(given, encoder=encoder, recipe=recipe)
    (own,) = (one for one in ROWS if one.number == row)
    heads = own.heads(types)
    places = spread_out([question.article for question in test.examples], n_questions)
    if not heads:
        empty = pd.DataFrame({"row": [], "draw": [], "place": [], "em": [], "f1": []})
        return Found(empty, facts={"overlap": None, "inputs": 0, "passes": 0})
    sets = matched_draws(heads, reader.encoder.n_heads, draws=draws, seed=seed)
    variants = {str(draw): own.variant(drawn) for draw, drawn in enumerate(sets)}
    outcome = ablated(reader, [test.examples[p] for p in places], variants, progress=progress)
    table = _long(outcome, places).assign(row=row)
    table["draw"] = table["name"].astype(int)
    facts = {
        "inputs": len(places),
        "passes": draws * len(places),
        "overlap": float(np.mean([len(one & heads) for one in sets]) / len(heads)),
    }
    return Found(table[["row", "draw", "place", "em", "f1"]], facts=facts)


def _long(outcome: Outcome, places: Sequence[int]) -> pd.DataFrame:
    """One row per variant and question."""
    table = {
        "name": np.repeat(outcome.names, len(places)),
        "place": np.tile(list(places), len(outcome.names)),
    }
    scores = {name: getattr(outcome, name).ravel() for name in ("em", "f1", "loss")}
    return pd.DataFrame(table | scores)


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
    asked = answers.sort_values(["row", "place"])
    groups = asked.loc[asked["row"] == UNTAPPED, "article"].tolist()
    scores = {int(row): part for row, part in asked.groupby("row")}
    drawn = {int(part["row"].iloc[0]): part for part in controls if len(part)}
    known = {row.number: row for row in ROWS} | {UNTAPPED: Row(UNTAPPED, "untapped")}
    rows = []
    for number in sorted(scores):
        row, part = known[number], scores[number]
        told = {
            "row": number,
            "table": row.table,
            "kind": row.kind,
            "types": "+".join(row.types),
            "n_heads": int(part["n_heads"].iloc[0]),
            **summary(part["em"], part["f1"], groups, seed),
        }
        if number in drawn:
            told |= _beside(part["f1"].to_numpy(), drawn[number], groups, seed)
        rows.append(told)
    table = pd.DataFrame(rows)
    if "excess" not in table:
        table[["excess", "excess_low", "excess_high", "p", "control_f1"]] = np.nan
    f1 = {number: part["f1"].to_numpy() for number, part in scores.items()}
    whole = f1[BASELINE].mean() or np.nan  # nothing of nothing can be lost
    table["lost"] = [100 * (1 - f1[row].mean() / whole) for row in table["row"]]
    return Found(table, _findings(table, f1, groups, seed))


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
    table: pd.DataFrame, f1: Mapping[int, np.ndarray], groups: Sequence[str], seed: int
) -> dict[str, Finding]:
    """The numbers that claims on Tables 2 and 3 ask for."""

    def more(one: int, other: int, scale: float = 100.0) -> Finding:
        """Points of F1 that a row is below another."""
        lost = paired_loss(f1[one], f1[other], groups, seed=seed)
        return Finding(scale * lost.value, scale * lost.low, scale * lost.high)

    found = {}
    by_row = table.set_index("row")
    whole = float(f1[BASELINE].mean()) or np.nan
    for row in ROWS:
        own = by_row.loc[row.number]
        found[f"{row.key}.f1"] = Finding(own["f1"], own["f1_low"], own["f1_high"])
        found[f"{row.key}.lost"] = more(row.number, BASELINE, 100 / whole)
        if row.types:  # undefined if no head is of these types
            found[f"{row.key}.beyond_control"] = Finding(
                -own["excess"], -own["excess_high"], -own["excess_low"]
            )
    pruned = {
        row.types[0]: row.number for row in ROWS if row.kind == "prune" and len(row.types) == 1
    }
    kept = {name: float(by_row.loc[row, "f1"]) for name, row in pruned.items()}
    worst = min((name for name in TYPES if name != "diagonal"), key=kept.__getitem__)
    mildest = max((name for name in TYPES if name != "vertical"), key=kept.__getitem__)
    return found | {
        "row07.more_than_06": more(7, 6),
        "row15.more_than_14": more(15, 14),
        "prune.diagonal_lead": more(pruned["diagonal"], pruned[worst]),
        "prune.vertical_lead": more(pruned["vertical"], pruned[mildest]),
        "sentence.diagonal": more(12, 13),
        "sentence.dense_vertical": more(17, 19),
    }


# --- beyond Sec. 5: every head alone, and other readings ------------------------------------------


@experiment(version=1, trains=True)
def single_head_effects(
    *given: Corpus | pd.DataFrame,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    n_questions: int,
    progress: Progress | None = None,
) -> Found:
    """What pruning one head alone costs, for every head of the model.

    table  layer, head, type, loss (rise of the cross-entropy of the right answer, in nats, with
           its standard error over questions), f1 (points lost)
    """
    reader, questions, types = _some_questions(given, encoder, recipe, n_questions)
    heads, outcome = single_ablations(reader, questions, action="zero", progress=progress)
    rise = outcome.loss[1:] - outcome.loss[0]
    table = pd.DataFrame(np.array(heads) + 1, columns=["layer", "head"])
    table["loss"] = np.nanmean(rise, 1)
    table["loss_error"] = np.nanstd(rise, 1, ddof=1) / np.sqrt((~np.isnan(rise)).sum(1))
    table["f1"] = 100 * (outcome.f1[0] - outcome.f1[1:]).mean(1)
    table = table.merge(types[["layer", "head", "type"]], on=["layer", "head"])
    facts = {
        "inputs": len(questions),
        "passes": len(outcome.names) * len(questions),
        "mean_by_type": table.groupby("type")["loss"].mean().reindex(list(TYPES)).to_dict(),
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
def ablation_decisions(
    *given: Corpus | pd.DataFrame,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    n_questions: int,
    progress: Progress | None = None,
) -> Found:
    """What another reading of an ablation does to its F1, on the same questions.

    table  reading, row, kind, types, f1 (that reading), ours, change (points)
    """
    reader, questions, types = _some_questions(given, encoder, recipe, n_questions)
    heads = {row.number: row.heads(types) for row in ROWS}
    concerned = [
        (reading, row, other)
        for reading, (kinds, other) in READINGS.items()
        for row in ROWS
        if row.kind in kinds and heads[row.number]
    ]
    variants = {row.key: row.variant(heads[row.number]) for _, row, _ in concerned}
    for reading, row, other in concerned:
        variants[f"{row.key} {reading}"] = row.variant(heads[row.number], **other)
    outcome = ablated(reader, questions, variants, progress=progress)
    f1 = dict(zip(outcome.names, 100 * outcome.f1.mean(1), strict=True))
    rows = [
        {
            "reading": reading,
            "row": row.number,
            "kind": row.kind,
            "types": "+".join(row.types),
            "f1": f1[f"{row.key} {reading}"],
            "ours": f1[row.key],
            "change": f1[f"{row.key} {reading}"] - f1[row.key],
        }
        for reading, row, _ in concerned
    ]
    facts = {"inputs": len(questions), "passes": len(variants) * len(questions)}
    return Found(pd.DataFrame(rows), facts=facts)


def _some_questions(
    given: Given, encoder: Encoder, recipe: Mapping[str, Any] | None, n_questions: int
) -> tuple[SpanReader, list[Question], pd.DataFrame]:
    """The reader, some questions of all articles, and the types of its heads."""
    reader, test, types = reader_and_types(given, encoder=encoder, recipe=recipe)
    chosen = spread_out([question.article for question in test.examples], n_questions)
    return reader, [test.examples[place] for place in chosen], types
