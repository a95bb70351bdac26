"""Where the atlas of a model comes from: the findings of the agreement chapter, or a run of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnlib.measuring.significance import benjamini_hochberg
from attnlib.metrics.sieves import LOCAL_WINDOW
from bookkit.editions import notebook_path, settings_of
from bookkit.notebooks import run_notebook
from bookkit.project import project_root
from bookkit.store import Found, versions
from experiments.agreement.head_numbers import OFFSETS, ROLES, SURFACE
from experiments.atlas import PUBLISHED, Atlas, Fact, Skill, atlas_in, from_text, load
from experiments.clark2019.distances import distance_matrix
from experiments.shared.views import readings_of

CHAPTER = "agreement"
TEXTS = (
    "The keeper of the lighthouse wrote a letter to her brother, who lived far inland.",
    "Why did the engineers, who had measured the cables twice, refuse to sign the report?",
    "She told him that the old bridge over the river was closed, so they took the ferry.",
)
MASSES = {
    "near_mass": ("part_self", "part_window_01"),
    "special_mass": ("part_cls", "part_sep", "part_comma", "part_period"),
}
"""Parts of Guan's distance feature that decide about a type, summed."""
VOCABULARIES = ("guan", "clark", "rule", "network")
"""Those that give a head one label."""
COST = ("cost", "cost_low", "cost_high")
GRADIENT = ("gradient", "gradient_low", "gradient_high")
INFLUENCE = ("influence", "influence_low", "influence_high")
SKILL = [part.name for part in fields(Skill)]
SKILLS = 3
"""Of so many relations a card shows how well the head finds them."""


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
    model: str,
    found: Findings,
    read: Found,
    name_of: Callable[[Found], str],
    *,
    corpus: str,
    inputs: int,
) -> Atlas:
    """The atlas of a model, from what was found on so many inputs of a corpus.

    read     how the model reads `TEXTS`: what `head_readings` found
    name_of  what was found -> the name of the result, such as `Chapter.name_of`
    """
    wide = found.numbers.table.pivot(index=["layer", "head"], columns="key", values="mean")
    texts = readings_of(read)
    return Atlas(
        model=model,
        n_layers=texts[0].n_layers,
        n_heads=texts[0].n_heads,
        about={
            "inputs": {"n": inputs, "corpus": corpus},
            "versions": versions(),
            "licence": "CC BY 4.0",
        },
        facts=tuple(Fact(key, source=name_of(one), **parts) for one, key, parts in evidence(found)),
        distances=distance_matrix(found.distances.table),
        portraits=wide.sort_index()[[f"offset_{place}" for place in OFFSETS]].to_numpy(float),
        offsets=OFFSETS,
        texts=tuple(texts),
        titles=tuple(read.facts["titles"]),
    )


Evidence = Iterator[tuple[Found, str, dict[str, Any]]]
"""What was found, the key of a fact that it tells, and the parts of that fact."""


def evidence(found: Findings) -> Evidence:
    """All facts, in the order in which a card shows them."""
    for part in (_looks, _labels, _roles, _skills, _effects, _tuning):
        yield from part(found)


def _column(table: pd.DataFrame, name: str) -> np.ndarray:
    """A column, layer by layer."""
    return table.sort_values(["layer", "head"])[name].to_numpy()


def _columns(table: pd.DataFrame, *names: str) -> dict[str, np.ndarray]:
    return {name: _column(table, name) for name in names}


def _with_ends(
    table: pd.DataFrame, value: str, low: str, high: str, *, scale: float = 1, shift: float = 0
) -> dict[str, Any]:
    """A number of every head and its interval, as the card shows it: scaled, then shifted."""
    number, *ends = (shift + scale * _column(table, name) for name in (value, low, high))
    # What is turned around has its ends the other way round.
    return {"value": number, "low": np.minimum(*ends), "high": np.maximum(*ends)}


def _looks(found: Findings) -> Evidence:
    table = found.numbers.table
    for key in SURFACE:
        rows = table[table["key"] == key]
        number = _with_ends(rows, "mean", "low", "high")
        yield found.numbers, key, number | {"detail": _columns(rows, "n")}
    for key, parts in MASSES.items():
        own = table[table["key"].isin(parts)]
        rows = own.groupby(["layer", "head"])["mean"].sum().reset_index()
        yield found.numbers, key, {"value": _column(rows, "mean")}


def _labels(found: Findings) -> Evidence:
    table = found.labels.table
    for vocabulary in VOCABULARIES:
        rows = table[table["vocabulary"] == vocabulary]
        detail = {"stability": _column(rows, "same")}
        label = {"value": _column(rows, "label"), "detail": detail}
        yield found.labels, f"{vocabulary}_label", label


def _roles(found: Findings) -> Evidence:
    settings = {"threshold": found.roles.facts["threshold"], "window": LOCAL_WINDOW}
    for role in ROLES:
        rows = found.roles.table[found.roles.table["role"] == role]
        detail = _columns(rows, "bias", "p", "q", "n")
        has = {"value": _column(rows, "assigned"), "detail": detail, "settings": settings}
        yield found.roles, f"role_{role.replace('@', '_')}", has


def _skills(found: Findings) -> Evidence:
    table = found.relations.table.sort_values(["layer", "head", "gain"], ascending=[1, 1, 0])
    by_head = table.groupby(["layer", "head"], sort=True)
    best = by_head.head(1)
    sure = best["low"] > 0  # a lead that may be chance is no skill
    yield (
        *(found.relations, "best_relation"),
        {
            "value": best["relation"].where(sure, "none").to_numpy(),
            "detail": {name: best[name].where(sure) for name in ("accuracy", "baseline")},
            "skills": [
                [Skill(**one) for one in rows[SKILL][:SKILLS].to_dict("records")]
                for _, rows in by_head
            ],
        },
    )
    lead = _with_ends(best, "gain", "low", "high")
    yield found.relations, "best_relation_gain", lead | {"detail": _columns(best, "accuracy")}
    nearest = {"nearest": found.coreference.facts["baselines"]["nearest"]}
    antecedents = _with_ends(found.coreference.table, "accuracy", "low", "high")
    yield found.coreference, "coreference", antecedents | {"settings": nearest}


def _effects(found: Findings) -> Evidence:
    p = np.array([_column(one.table, "p") for one in found.effects.values()], dtype=float)
    for (task, one), own, q in zip(found.effects.items(), p, benjamini_hochberg(p), strict=True):
        gain = _with_ends(one.table, *COST, scale=-1) | {"detail": {"p": own, "q": q}}
        yield one, f"disabled_{task}", gain | {"settings": {"inputs": one.facts["inputs"]}}
    rise = _with_ends(found.questions.table, *COST)
    inputs = {"inputs": found.questions.facts["inputs"]}
    yield found.questions, "questions_loss", rise | {"settings": inputs}
    for task, one in found.effects.items():
        yield one, f"changed_{task}", _with_ends(one.table, *INFLUENCE)


def _tuning(found: Findings) -> Evidence:
    for task, one in found.cosines.items():
        change = _with_ends(one.table, "change", "change_low", "change_high")
        yield one, f"tuned_{task}", change
    gradient = _with_ends(found.gradients.table, *GRADIENT, scale=1000)
    yield found.gradients, "gradient", gradient


def known_atlas(model: str, edition: str | None = None) -> Atlas | None:
    """The published atlas of a model, or one from what was run here last.

    edition  whose run to take instead; a small one has wide intervals, so it must be asked for
    """
    if edition is None and (PUBLISHED / f"{model}.json").is_file():
        return load(model)
    build = project_root() / "_build"
    ran = list(build.glob(f"{edition or '*'}/notebooks/{CHAPTER}*.ipynb"))
    if edition is None:
        ran += build.glob(f"runs/{CHAPTER}*.ipynb")
    for path in sorted(ran, key=lambda path: path.stat().st_mtime, reverse=True):
        carried = atlas_in(path)
        found = None if carried is None else from_text(carried, path.name)
        if found is not None and model in (found.model, Path(found.model).name):
            return found
    return None


def made_atlas(model: str, *, edition: str, say: Callable[[str], None] = print) -> Atlas:
    """The atlas of a model that has none yet: the chapter is run for it."""
    source = notebook_path(CHAPTER)
    say(f"{model} has no atlas yet: running the chapter on agreement ({edition} edition) ...")
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in model)
    target = project_root() / "_build" / "runs" / f"{CHAPTER}-{name}.ipynb"
    settings = settings_of(edition, source) | {"model": model, "other_models": []}
    path = run_notebook(source, settings, target)
    carried = atlas_in(path)
    assert carried is not None, "the chapter on agreement ends with an atlas"
    return from_text(carried, path.name)
