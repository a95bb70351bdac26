"""Where the atlas of a model comes from: an executed chapter, the published file, a new run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import experiments.atlas
from bookkit import building
from bookkit.store import Found, Store
from experiments.agreement.head_numbers import ROLES as TESTED
from experiments.atlas import Atlas, Fact, Skill, atlas_in, from_text, load, making
from experiments.atlas.making import _effects, _roles, _skills, known_atlas, made_atlas
from experiments.atlas.page import atlas_page
from experiments.atlas.search import topics
from experiments.atlas.words import QUESTIONS, ROLES, details, entry, group, name, note, summary
from tests.atlases import made_up, tiny_readings
from tests.families import one_thread

__all__ = ["one_thread"]  # fixture


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return made_up(tiny_readings(tmp_path_factory.mktemp("tiny")))


def executed(atlas: Atlas) -> str:
    """A notebook that was run and carries the atlas in an output."""
    data, metadata = atlas._repr_mimebundle_()
    output = {"output_type": "display_data", "data": data, "metadata": metadata}
    cell = {"cell_type": "code", "source": "", "outputs": [output], "metadata": {}}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(making, "project_root", lambda: tmp_path)
    monkeypatch.setattr(making, "PUBLISHED", tmp_path / "atlas")
    monkeypatch.setattr(experiments.atlas, "PUBLISHED", tmp_path / "atlas")
    return tmp_path


def test_a_notebook_carries_the_whole_atlas(drawn: Atlas, tmp_path: Path) -> None:
    path = tmp_path / "agreement.ipynb"
    path.write_text(executed(drawn), encoding="utf-8")
    carried = atlas_in(path)
    assert carried is not None
    again = from_text(carried, path.name)
    assert again.table().equals(drawn.table())
    assert again.card("1-1") == drawn.card("1-1")


def test_a_notebook_without_one_has_none(tmp_path: Path) -> None:
    path = tmp_path / "clark2019.ipynb"
    path.write_text(json.dumps({"cells": []}), encoding="utf-8")
    assert atlas_in(path) is None


def test_what_is_published_goes_first_unless_an_edition_is_asked_for(
    drawn: Atlas, project: Path
) -> None:
    name = drawn.model
    assert known_atlas(name) is None
    ran = project / "_build" / "pocket" / "notebooks"
    ran.mkdir(parents=True)
    pocket = replace(drawn, about={"inputs": "a few"})
    (ran / "agreement.ipynb").write_text(executed(pocket), encoding="utf-8")
    assert known_atlas(name).about == pocket.about  # type: ignore[union-attr]
    (project / "atlas").mkdir()
    drawn.save(project / "atlas" / f"{name}.json")
    assert known_atlas(name).about == drawn.about  # type: ignore[union-attr]
    assert known_atlas(name, "pocket").about == pocket.about  # type: ignore[union-attr]
    assert known_atlas(name, "standard") is None
    assert known_atlas("another-model") is None


def test_the_page_of_the_book_has_the_cards_or_says_how_to_get_them(
    drawn: Atlas, tmp_path: Path
) -> None:
    path = tmp_path / "agreement.ipynb"
    path.write_text(executed(drawn), encoding="utf-8")
    page = atlas_page({"agreement": path})
    assert "attn-atlas" in page and "[](../notebooks/agreement)" in page
    assert len(page) < 3_000_000
    without = atlas_page({})
    assert "attnlib atlas e5-small" in without and "notebooks/agreement" not in without


RECOMMENDED = re.findall(r"\*([^*#\n]+)\*", atlas_page({}))


@pytest.mark.parametrize("question", RECOMMENDED)
def test_every_question_that_the_page_recommends_finds_a_head(question: str) -> None:
    published = load()
    if re.fullmatch(r"\d+-\d+", question):
        assert question in published.heads
        return
    asked = [
        word.removesuffix("s")
        for word in question.split()
        if word not in QUESTIONS["ignored"].split()
    ]
    found = [one for one in topics(published.facts) if all(word in one.words for word in asked)]
    assert asked and any(one.heads for one in found)


def test_heads_without_a_role_are_found() -> None:
    assert "unskilled" in RECOMMENDED and len(RECOMMENDED) >= 4
    published = load()
    (found,) = [one for one in topics(published.facts) if one.words == "unskilled"]
    bare = [head for at, head in enumerate(published.heads)
            if not any(one.value[at] for one in published.facts
                       if group(one) == "Roles" and one.key != "role_block_authors")]  # fmt: skip
    assert [published.heads[at] for at in found.heads] == bare
    assert all("It has no role." in published.card(head)["summary"] for head in bare)


def test_a_model_without_an_atlas_gets_its_chapter_run(
    drawn: Atlas, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def ran(source: Path, settings: dict[str, Any], target: Path) -> Path:
        asked.update(settings, notebook=source.stem)
        target.parent.mkdir(parents=True)
        target.write_text(executed(drawn), encoding="utf-8")
        return target

    monkeypatch.setattr(making, "run_notebook", ran)
    monkeypatch.setattr(making, "notebook_path", lambda name: Path(f"notebooks/{name}.ipynb"))
    monkeypatch.setattr(making, "settings_of", lambda edition, source: {"limit": 3})
    said: list[str] = []
    found = made_atlas("some/model", edition="pocket", say=said.append)
    assert found.model == drawn.model and "has no atlas yet" in said[0]
    assert asked == {"limit": 3, "model": "some/model", "other_models": [], "notebook": "agreement"}
    assert [path.name for path in (project / "_build" / "runs").iterdir()] == [
        "agreement-some-model.ipynb"
    ]


def test_the_command_writes_a_page_or_the_data(
    drawn: Atlas, project: Path, run: Any, tmp_path: Path
) -> None:
    (project / "atlas").mkdir()
    drawn.save(project / "atlas" / f"{drawn.model}.json")
    code, out, _ = run("atlas", drawn.model, "--out", tmp_path / "a.html")
    assert code == 0 and "a.html" in out
    assert "attn-atlas" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert run("atlas", drawn.model, "--out", tmp_path / "a.json")[0] == 0
    assert load(tmp_path / "a.json").table().equals(drawn.table())
    code, _, said = run("atlas", drawn.model, "--out", tmp_path / "none" / "a.html")
    assert code != 0 and "none" in said


def test_building_writes_the_file_that_researchers_load(
    drawn: Atlas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "project_root", lambda: tmp_path)
    kept = tmp_path / "book" / "published" / "store"
    monkeypatch.setattr(building, "book_store", lambda: Store(tmp_path / "cache", kept))
    ran = tmp_path / "_build" / "standard" / "notebooks"
    ran.mkdir(parents=True)
    (ran / "agreement.ipynb").write_text(executed(drawn), encoding="utf-8")
    building.publish("standard", only="agreement")
    written = tmp_path / "book" / "published" / "atlas" / f"{drawn.model}.json"
    assert load(written).card("2-2") == drawn.card("2-2")


# What the chapter makes of its tables


def made(evidence: Any) -> list[Fact]:
    return [Fact(key, **parts) for _, key, parts in evidence]


def grid(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"layer": 1, "head": [1, 2], **columns})


def test_a_lead_that_may_be_chance_is_no_skill() -> None:
    ends: Any = {"accuracy": [16.05, 6.5], "baseline": [6.08, 6.08], "low": [7.5, -1.7]}
    ends |= {"gain": [9.97, 0.4], "high": [12.6, 2.5], "direction": ["dep->head", "head->dep"]}
    relations = Found(grid(relation="advcl", **ends))
    mentions = grid(accuracy=[40.0, 50], low=[30.0, 40], high=[50.0, 60])
    coreference = Found(mentions, facts={"baselines": {"nearest": 44.2}})
    found: Any = SimpleNamespace(relations=relations, coreference=coreference)
    facts = made(_skills(found))
    assert list(facts[0].value) == ["advcl", "none"]
    assert summary(facts, 0) == "Finds adverbial clauses (advcl) 16.1\xa0%, best offset 6.1\xa0%."
    assert summary(facts, 1) == "" and details(facts[0], 1) == {}
    assert [note(facts[0], head) for head in (0, 1)] == [
        "advcl 16.1\xa0% (dependent\xa0→\xa0head; best offset 6.1\xa0%)",
        "advcl 6.5\xa0% (head\xa0→\xa0dependent; best offset 6.1\xa0%)",
    ]
    assert facts[0].skills[0] == (Skill("advcl", "dep->head", 16.05, 6.08),)
    assert [note(facts[2], head) for head in (0, 1)] == ["the nearest mention: 44\xa0%"] * 2


def test_every_role_says_what_its_bias_is() -> None:
    table = pd.concat(
        grid(role=role, assigned=[True, False], bias=4.0, p=0.0, q=3.4e-305, n=300)
        for role in TESTED
    )
    found: Any = SimpleNamespace(roles=Found(table, facts={"threshold": 3.0}))
    facts = made(_roles(found))
    about = [entry(one, 0)["about"] for one in facts]
    assert list(ROLES) == [role.replace("@", "_") for role in TESTED]
    assert len(set(about)) == len(TESTED)
    assert all("Bias: attention " in one and "even share" in one for one in about)
    assert {"[CLS]", "[SEP]", "subject (nsubj)", "object (dobj)"} < {name(one) for one in facts}
    told = list(details(facts[0], 0).values())
    assert told == ["bias 4", "p < 0.001", "q < 0.001", "300 inputs"]
    assert "authors" not in summary(facts, 0) and "no role" in summary(facts, 1)


def test_changes_of_tasks_are_corrected_for_their_number() -> None:
    ends: Any = {"cost": 1.0, "cost_low": 0.5, "cost_high": 2.0}
    ends |= {"influence": 1.0, "influence_low": 0.5, "influence_high": 2.0}
    tasks = {name: Found(grid(p=p, **ends), facts={"inputs": 9})
             for name, p in (("sst2", [0.01, 0.5]), ("rte", [0.5, 0.5]))}  # fmt: skip
    found: Any = SimpleNamespace(effects=tasks, questions=tasks["rte"])
    facts = {one.key: one for one in made(_effects(found))}
    sst2 = facts["disabled_sst2"]
    np.testing.assert_equal(dict(sst2.detail), {"p": [0.01, 0.5], "q": [0.04, 0.5]})
    assert (sst2.value[0], sst2.low[0], sst2.high[0]) == (-1, -2, -0.5)  # type: ignore[index]
    assert "below 0: the model needs the head" in entry(sst2, 0)["about"]
    assert "above 0: needed" in name(facts["questions_loss"])
    above = [one for one in topics([*facts.values()]) if one.name.startswith("rise of the loss")]
    assert [(one.name.split(": ")[-1], "worse without" in one.also) for one in above] == [
        ("loses", True)
    ]
