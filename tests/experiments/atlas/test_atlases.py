"""Where the atlas of a model comes from: an executed chapter, the published file, a new run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookkit import publishing
from bookkit.ledger import atlas_in
from bookkit.store import Store
from experiments import agreement as paper
from experiments.atlas import atlas as atlas_module
from experiments.atlas import atlases
from experiments.atlas.atlas import Atlas, load
from experiments.atlas.atlastopics import IGNORED, topics
from tests.atlases import made_up, tiny_readings
from tests.families import one_thread

__all__ = ["one_thread"]  # fixture


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return made_up(tiny_readings(tmp_path_factory.mktemp("tiny")))


def executed(atlas: Atlas) -> str:
    """A notebook that was run and carries the atlas in an output."""
    data, metadata = paper.CarriedAtlas(atlas)._repr_mimebundle_()
    output = {"output_type": "display_data", "data": data, "metadata": metadata}
    cell = {"cell_type": "code", "source": "", "outputs": [output], "metadata": {}}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(atlases, "project_root", lambda: tmp_path)
    monkeypatch.setattr(atlases, "PUBLISHED", tmp_path / "atlas")
    monkeypatch.setattr(atlas_module, "PUBLISHED", tmp_path / "atlas")
    return tmp_path


def test_a_notebook_carries_the_whole_atlas(drawn: Atlas, tmp_path: Path) -> None:
    path = tmp_path / "agreement.ipynb"
    path.write_text(executed(drawn), encoding="utf-8")
    carried = atlas_in(path)
    assert carried is not None
    again = atlas_module.from_text(carried, path.name)
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
    assert atlases.known_atlas(name) is None
    ran = project / "_build" / "pocket" / "notebooks"
    ran.mkdir(parents=True)
    pocket = replace(drawn, about={"inputs": "a few"})
    (ran / "agreement.ipynb").write_text(executed(pocket), encoding="utf-8")
    assert atlases.known_atlas(name).about == pocket.about  # type: ignore[union-attr]
    (project / "atlas").mkdir()
    drawn.save(project / "atlas" / f"{name}.json")
    assert atlases.known_atlas(name).about == drawn.about  # type: ignore[union-attr]
    assert atlases.known_atlas(name, "pocket").about == pocket.about  # type: ignore[union-attr]
    assert atlases.known_atlas(name, "standard") is None
    assert atlases.known_atlas("another-model") is None


def test_the_page_of_the_book_has_the_cards_or_says_how_to_get_them(
    drawn: Atlas, tmp_path: Path
) -> None:
    path = tmp_path / "agreement.ipynb"
    path.write_text(executed(drawn), encoding="utf-8")
    page = atlases.atlas_page({"agreement": path})
    assert "attn-atlas" in page and "[](../notebooks/agreement)" in page
    assert len(page) < 3_000_000
    without = atlases.atlas_page({})
    assert "attnlib atlas e5-small" in without and "notebooks/agreement" not in without


RECOMMENDED = re.findall(r"\*([^*#\n]+)\*", atlases.HEAD)


@pytest.mark.parametrize("question", RECOMMENDED)
def test_every_question_that_the_page_recommends_finds_a_head(question: str) -> None:
    published = load()
    if re.fullmatch(r"\d+-\d+", question):
        assert question in published.heads
        return
    asked = [word.removesuffix("s") for word in question.split() if word not in IGNORED.split()]
    found = [one for one in topics(published.facts) if all(word in one.words for word in asked)]
    assert asked and any(one.heads for one in found)


def test_heads_without_a_role_are_found() -> None:
    assert "unskilled" in RECOMMENDED and len(RECOMMENDED) >= 4
    published = load()
    (found,) = [one for one in topics(published.facts) if one.words == "unskilled"]
    bare = [head for at, head in enumerate(published.heads)
            if not any(one.value[at] for one in published.facts
                       if one.group == "Roles" and one.key != "role_block_authors")]  # fmt: skip
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

    monkeypatch.setattr(atlases, "run_notebook", ran)
    monkeypatch.setattr(atlases, "notebook_path", lambda name: Path(f"notebooks/{name}.ipynb"))
    monkeypatch.setattr(atlases, "settings_of", lambda edition, source: {"limit": 3})
    said: list[str] = []
    found = atlases.made_atlas("some/model", edition="pocket", say=said.append)
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


def test_publishing_writes_the_file_that_researchers_load(
    drawn: Atlas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "project_root", lambda: tmp_path)
    kept = tmp_path / "book" / "published" / "store"
    monkeypatch.setattr(publishing, "book_store", lambda: Store(tmp_path / "cache", kept))
    ran = tmp_path / "_build" / "standard" / "notebooks"
    ran.mkdir(parents=True)
    (ran / "agreement.ipynb").write_text(executed(drawn), encoding="utf-8")
    publishing.publish("standard", only="agreement", say=lambda line: None)
    written = tmp_path / "book" / "published" / "atlas" / f"{drawn.model}.json"
    assert load(written).card("2-2") == drawn.card("2-2")
