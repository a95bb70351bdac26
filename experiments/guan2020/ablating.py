"""Sec. 5: the reader's answers with types of heads changed, beside random heads of their layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.guan2020.subjects import reader_and_types
from experiments.guan2020.tables import BASELINE, ROWS, UNTAPPED, Row, row_numbered
from experiments.shared.ablations import (
    Interval,
    Outcome,
    Variant,
    ablated,
    harm_p_value,
    matched_draws,
    paired_loss,
)
from experiments.shared.answers import score_answers, summary
from experiments.shared.headtypes import TYPES


@experiment(version=1, trains=True)
def type_answers(
    *given: Corpus | pd.DataFrame,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    progress: Progress | None = None,
) -> Found:
    """Every question answered under every row of Tables 2 and 3.

    given  as for `reader_and_types`
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
    parts = [_long(plain, places).assign(row=UNTAPPED, n_heads=0)]
    numbers = {row.key: row.number for row in ROWS}
    table = _long(outcome, places)
    parts.append(
        table.assign(
            row=table["name"].map(numbers),
            n_heads=table["name"].map({key: len(own) for key, own in heads.items()}),
        )
    )
    found = pd.concat(parts, ignore_index=True).drop(columns="name")
    articles = [question.article for question in test.examples]
    found["article"] = [articles[place] for place in found["place"]]
    facts = {
        "inputs": len(test),
        "articles": len(set(articles)),
        "passes": (1 + len(ROWS)) * len(test),
    }
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

    given  as for `reader_and_types`
    table  row, draw, place (of the question), em, f1; empty if the row changes no head
    facts  overlap: the share of the row's heads that a random set has, on average
    """
    reader, test, types = reader_and_types(given, encoder=encoder, recipe=recipe)
    own = row_numbered(row)
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
    return pd.DataFrame(
        {
            "name": np.repeat(outcome.names, len(places)),
            "place": np.tile(list(places), len(outcome.names)),
            "em": outcome.em.ravel(),
            "f1": outcome.f1.ravel(),
            "loss": outcome.loss.ravel(),
        }
    )


def spread_out(groups: Sequence[str], n: int) -> list[int]:
    """Places of n questions, taken from the articles in turn, so that each has its share."""
    if n < 1:
        raise BadValue(f"{n} questions were asked for; expected one or more.")
    by_group: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        by_group.setdefault(group, []).append(place)
    turns = sorted((turn, group, p) for group, ps in by_group.items() for turn, p in enumerate(ps))
    return sorted(place for _, _, place in turns[:n])


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
    low, high = np.percentile(100 * theirs.mean(1), [2.5, 97.5])
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

    def more(one: int, other: int) -> Finding:
        """Points of F1 that a row is below another."""
        return _points(paired_loss(f1[one], f1[other], groups, seed=seed), 100.0)

    found = {}
    by_row = table.set_index("row")
    for row in ROWS:
        own = by_row.loc[row.number]
        found[f"{row.key}.f1"] = Finding(own["f1"], own["f1_low"], own["f1_high"])
        lost = paired_loss(f1[row.number], f1[BASELINE], groups, seed=seed)
        found[f"{row.key}.lost"] = _points(lost, 100 / (float(f1[BASELINE].mean()) or np.nan))
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


def _points(one: Interval, scale: float) -> Finding:
    return Finding(scale * one.value, scale * one.low, scale * one.high)
