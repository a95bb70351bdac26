"""The atlas drawn up: what the agreement chapter found, as facts of every head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from attnlib.measuring.significance import benjamini_hochberg
from attnlib.metrics.sieves import LOCAL_WINDOW
from attnlib.models import Encoder
from attnlib.plots.labels import label, task_name
from attnlib.plots.viewdata import as_example, head_metrics, read
from attnlib.plots.viewer import METRICS
from bookkit.pagetables import paper_name
from bookkit.papers import ATLAS
from bookkit.store import Found, versions
from experiments.agreement.sightings import BLOCK, OFFSETS, ROLES, SURFACE
from experiments.agreement.vocabularies import labels_of
from experiments.atlas.atlas import Atlas, Fact
from experiments.clark2019.distances import distance_matrix

TEXTS = (
    "The keeper of the lighthouse wrote a letter to her brother, who lived far inland.",
    "Why did the engineers, who had measured the cables twice, refuse to sign the report?",
    "She told him that the old bridge over the river was closed, so they took the ferry.",
)
CLARK, KOVALEVA, GUAN, PANDE, OWN = (
    *("clark2019", "kovaleva2019", "guan2020", "pande2021"),
    "agreement",
)
WHERE = {
    "looks": "notebooks/clark2019.html#surface-patterns",
    "behaviour": "notebooks/clark2019.html#which-heads-are-alike-sec-6-fig-6",
    "pattern": "notebooks/kovaleva2019.html#five-patterns-sec-4-1",
    "type": "notebooks/guan2020.html#four-types-of-heads-sec-4",
    "roles": "notebooks/pande2021.html#are-roles-exclusive-fig-4",
    "relations": "notebooks/clark2019.html#one-relation-one-head-sec-4-2-table-1",
    "coreference": "notebooks/clark2019.html#who-is-she-coreference-sec-4-3-table-2",
    "disabled": "notebooks/kovaleva2019.html#disabling-heads-sec-4-6-fig-8",
    "questions": "notebooks/guan2020.html#every-head-alone",
    "changed": "notebooks/agreement.html#what-disabling-a-head-does",
    "tuned": "notebooks/kovaleva2019.html#which-maps-change-fig-5",
    "gradient": "notebooks/clark2019.html#does-it-matter-gradients-fig-3",
}
"""Where the book discusses a fact."""
NEAR = ("part_self", "part_window_01")
SPECIAL = ("part_cls", "part_sep", "part_comma", "part_period")
RELATIONS_TOLD = 3
LOOKS_TOLD = {
    "mass_to_sep": ("attention to [SEP], all of them", "A pair has two of them."),
    "entropy": (
        "entropy",
        "In nats, at most the log of the number of tokens: 4.6 for 100 tokens, 5.5 for 250.",
    ),
}
"""What is not plain from the name of a metric: another name, and a sentence more."""
ROLES_TOLD = {
    "local": ("local", f"attention to the pieces at most {LOCAL_WINDOW} away, itself included"),
    "previous_local": ("previous local", f"attention to the {LOCAL_WINDOW} pieces before"),
    "next_local": ("next local", f"attention to the {LOCAL_WINDOW} pieces after"),
    "block": ("block", "attention of a word to the words of the same text of a pair"),
    "cls": ("[CLS]", "attention to [CLS]"),
    "sep": ("[SEP]", "attention to [SEP], all of them"),
    "delimiter": ("delimiter", "attention to [CLS] and [SEP]"),
    "nsubj": ("subject (nsubj)", "attention of a subject to its verb"),
    "dobj": ("object (dobj)", "attention of a direct object to its verb"),
    "amod": ("adjective (amod)", "attention of an adjective to its noun"),
    "advmod": ("adverb (advmod)", "attention of an adverb to the word it modifies"),
    "syntactic": (
        "syntactic",
        "attention of a subject, object, adjective or adverb to the word it depends on",
    ),
    BLOCK: (
        "block (by the authors' code: times the entropy)",
        "attention to the words of the same text of a pair, times its entropy",
    ),
}
"""Roles: what they are called, and whose attention to what their bias is."""
DIRECTIONS = {
    "dep->head": "dependent\u00a0→\u00a0head",
    "head->dep": "head\u00a0→\u00a0dependent",
}


@dataclass(frozen=True, eq=False)
class Findings:
    """What the experiments of the chapter found; tasks by their names."""

    numbers: Found
    labels: Found
    roles: Found
    relations: Found
    coreference: Found
    effects: Mapping[str, Found]
    questions: Found
    cosines: Mapping[str, Found]
    gradients: Found
    distances: Found


def drawn_atlas(
    encoder: Encoder,
    found: Findings,
    name_of: Callable[[Found], str],
    *,
    inputs: str,
    texts: Sequence[str] = TEXTS,
) -> Atlas:
    """The atlas of a model.

    name_of  what was found -> the name of the result, such as `Chapter.name_of`
    inputs   in words, what the heads were measured on
    """
    facts = [
        *_looks(found, name_of),
        *_names(found, name_of),
        *_roles(found, name_of),
        *_skills(found, name_of),
        *_effects(found, name_of),
        *_tuning(found, name_of),
    ]
    wide = found.numbers.table.pivot(index=["layer", "head"], columns="key", values="mean")
    portraits = wide.sort_index()[[f"offset_{place}" for place in OFFSETS]].to_numpy(float)
    metrics = head_metrics(METRICS)
    about = {"inputs": inputs, "versions": versions(), "licence": "CC BY 4.0"}
    return Atlas(
        model=encoder.name,
        n_layers=encoder.n_layers,
        n_heads=encoder.n_heads,
        about=about,
        facts=tuple(facts),
        distances=distance_matrix(found.distances.table),
        portraits=portraits,
        offsets=OFFSETS,
        texts=tuple(read(encoder, as_example(text, 0), metrics) for text in texts),
        titles=tuple(texts),
    )


def _column(table: pd.DataFrame, name: str) -> list[Any]:
    """A column, layer by layer."""
    return list(table.sort_values(["layer", "head"])[name])


def _number(
    key: str,
    name: str,
    rows: pd.DataFrame,
    columns: Sequence[str],
    *,
    turned: Callable[[Any], Any] = lambda values: values,
    **told: Any,
) -> Fact:
    """A number of every head: its value and, where columns of the ends are named, its interval.

    turned  what the table holds -> what the card shows, such as minus the points lost
    """
    value, *ends = (np.asarray(turned(np.array(_column(rows, one)))) for one in columns)
    if ends:  # what is turned around has its ends the other way round
        told |= {"low": np.minimum(*ends), "high": np.maximum(*ends)}
    return Fact(key=key, name=name, kind="number", value=list(value), **told)


def _looks(found: Findings, name_of: Callable[[Found], str]) -> list[Fact]:
    table = found.numbers.table
    common: Any = {"group": "Where it looks", "source": name_of(found.numbers)}
    facts = []
    for key in SURFACE:
        rows = table[table["key"] == key]
        name, more = LOOKS_TOLD.get(key, (label(key), ""))
        facts.append(
            _number(
                *(key, name, rows, ("mean", "low", "high")),
                paper=CLARK,
                unit="nats" if key == "entropy" else "share",
                detail={"n": _column(rows, "n")},
                where=WHERE["looks"],
                about=f"Mean over inputs, each of which counts alike. {more}".strip(),
                **common,
            )
        )
    for key, name, parts in (
        ("near", "near mass: to itself and within a sixteenth of the text", NEAR),
        ("special", "special mass: to [CLS], [SEP], commas and full stops", SPECIAL),
    ):
        own = table[table["key"].isin(parts)]
        rows = own.groupby(["layer", "head"])["mean"].sum().reset_index()
        facts.append(
            _number(
                *(f"{key}_mass", name, rows, ["mean"]),
                paper=GUAN,
                unit="share",
                where=WHERE["type"],
                about="Sum of parts of its distance feature, which decide about its type.",
                **common,
            )
        )
    return facts


def _names(found: Findings, name_of: Callable[[Found], str]) -> list[Fact]:
    told = (
        ("guan", "type", GUAN, "type", "The named cluster of its 21 numbers."),
        ("clark", "behaviour", CLARK, "behaviour", "The first that fits of seven thresholds."),
        ("rule", "pattern by rule", KOVALEVA, "pattern", "What most of its maps are, by a rule."),
        (
            *("network", "pattern by network", KOVALEVA, "pattern"),
            "What a network that learnt from maps labelled by eye calls most of its maps.",
        ),
    )
    table = found.labels.table
    return [
        Fact(
            *(f"{vocabulary}_label", f"{name} ({paper_name(paper)})", paper),
            *("class", "", "What the papers call it"),
            list(labels_of(table, vocabulary)[0]),
            detail={"stability": _column(table[table["vocabulary"] == vocabulary], "same")},
            where=WHERE[where],
            source=name_of(found.labels),
            about=f"{about} In a redraw, as many inputs are drawn from them again, with repeats.",
        )
        for vocabulary, name, paper, where, about in told
    ]


def _roles(found: Findings, name_of: Callable[[Found], str]) -> list[Fact]:
    facts = []
    for role in ROLES:
        rows = found.roles.table[found.roles.table["role"] == role]
        name, attention = ROLES_TOLD[role]
        facts.append(
            Fact(
                *(f"role_{role.replace('@', '_')}", name, PANDE, "flag", "", "Roles"),
                [int(value) for value in _column(rows, "assigned")],
                detail={column: _column(rows, column) for column in ("bias", "p", "q", "n")},
                where=WHERE["roles"],
                source=name_of(found.roles),
                about=f"Bias: {attention}, divided by the even share of what it goes to. It has "
                f"the role if its mean bias is above {found.roles.facts['threshold']:g}, by a "
                "one-sided z-test without correction; q controls false discoveries.",
            )
        )
    return facts


def _skills(found: Findings, name_of: Callable[[Found], str]) -> list[Fact]:
    table = found.relations.table.sort_values(["layer", "head", "gain"], ascending=[1, 1, 0])
    groups = [rows for _, rows in table.groupby(["layer", "head"], sort=True)]
    best = pd.DataFrame([rows.iloc[0] for rows in groups])
    sure = best["low"] > 0  # a lead that may be chance is no skill
    notes = [
        "; ".join(_skill(row) for _, row in rows[:RELATIONS_TOLD].iterrows()) for rows in groups
    ]
    common: Any = {"where": WHERE["relations"], "source": name_of(found.relations)}
    group = "Syntax and coreference"
    coref = found.coreference
    baseline = coref.facts["baselines"]["nearest"]
    return [
        Fact(
            *("best_relation", "best at", CLARK, "class", "", group),
            list(best["relation"].where(sure, "none")),
            note=notes,
            detail={name: list(best[name].where(sure)) for name in ("accuracy", "baseline")},
            about="The relation with its largest lead over the best fixed offset, if the 95% "
            "interval of that lead is above 0.",
            **common,
        ),
        _number(
            *("best_relation_gain", "largest lead over the best offset"),
            *(best, ("gain", "low", "high")),
            paper=CLARK,
            unit="points",
            group=group,
            diverging=True,
            detail={"accuracy": list(best["accuracy"])},
            about="Chosen among all relations on the data it is scored on, so a little too high.",
            **common,
        ),
        _number(
            *("coreference", "antecedents found", coref.table, ("accuracy", "low", "high")),
            paper=CLARK,
            unit="percent",
            group=group,
            note=[f"the nearest mention: {baseline:.0f}\u00a0%"] * len(coref.table),
            where=WHERE["coreference"],
            source=name_of(coref),
            about="Of mentions with an antecedent; who always names the nearest mention finds "
            f"{baseline:.0f} percent.",
        ),
    ]


def _skill(row: pd.Series) -> str:
    return (
        f"{row['relation']} {row['accuracy']:.1f}\u00a0% ({DIRECTIONS[row['direction']]}; "
        f"best offset {row['baseline']:.1f}\u00a0%)"
    )


def _effects(found: Findings, name_of: Callable[[Found], str]) -> list[Fact]:
    group: Any = {"group": "When disabled", "diverging": True}
    p = np.array([_column(one.table, "p") for one in found.effects.values()], dtype=float)
    tests = dict(zip(found.effects, zip(p, benjamini_hochberg(p), strict=True), strict=True))
    costs = [
        _number(
            *(f"disabled_{task}", f"{task_name(task)} without it"),
            *(one.table, ("cost", "cost_low", "cost_high")),
            turned=np.negative,
            paper=KOVALEVA,
            unit="points",
            **group,
            detail=dict(zip("pq", tests[task], strict=True)),
            where=WHERE["disabled"],
            source=name_of(one),
            about=f"Change of the task's score on {one.facts['inputs']} inputs when it attends "
            "evenly; below 0: the model needs the head. q is corrected for all heads and tasks.",
        )
        for task, one in found.effects.items()
    ]
    rise = found.questions
    questions = _number(
        *("questions_loss", "rise of the loss on questions without it (above 0: needed)"),
        *(rise.table, ("cost", "cost_low", "cost_high")),
        paper=GUAN,
        unit="nats",
        **group,
        where=WHERE["questions"],
        source=name_of(rise),
        about=f"Rise of the right answer's cross-entropy on {rise.facts['inputs']} questions "
        "when it attends evenly; above 0: the model needs the head.",
    )
    influences = [
        _number(
            *(f"changed_{task}", f"{task_name(task)} answers changed"),
            *(one.table, ("influence", "influence_low", "influence_high")),
            paper=OWN,
            unit="percent",
            group="Answers changed",
            where=WHERE["changed"],
            source=name_of(one),
            about="Share of answers that change when it attends evenly, for better or worse; "
            "of scores, their mean change in percent of the labels' spread.",
        )
        for task, one in found.effects.items()
    ]
    return [*costs, questions, *influences]


def _tuning(found: Findings, name_of: Callable[[Found], str]) -> list[Fact]:
    changes = [
        _number(
            *(f"tuned_{task}", f"change by tuning on {task_name(task)}"),
            *(one.table, ("cosine", "low", "high")),
            turned=lambda cosine: 1 - cosine,
            paper=KOVALEVA,
            unit="",
            group="After fine-tuning",
            where=WHERE["tuned"],
            source=name_of(one),
            about="1 minus the cosine of its maps before and after.",
        )
        for task, one in found.cosines.items()
    ]
    gradient = _number(
        *("gradient", "gradient times attention"),
        *(found.gradients.table, ("mean", "low", "high")),
        turned=lambda nats: 1000 * nats,
        paper=CLARK,
        unit="thousandths of a nat",
        group="Importance",
        where=WHERE["gradient"],
        source=name_of(found.gradients),
        about="How much the masked-LM loss hangs on its weights, summed over keys, per query.",
    )
    return [*changes, gradient]


@dataclass(frozen=True, eq=False)
class CarriedAtlas:
    """An atlas in a notebook: a sentence for the page, and all of it for programs and the book."""

    atlas: Atlas

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        one = self.atlas
        text = f"{len(one.heads)} heads of {one.model}, {len(one.facts)} facts of each."
        link = '<a href="../book/atlas.html">Open the atlas.</a>'
        page = f'<p class="attn-note">{text} {link}</p>'
        # As one string: a notebook would spread the lists over a line per number.
        return {"text/plain": text, "text/html": page}, {ATLAS: [one.document()]}
