"""Editions are checked to the letter; a chapter is run again when what it depends on changes."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from bookkit import building, editions
from bookkit.errors import BadValue, BookError, UnknownName

ROOT = Path(__file__).parents[2]
FIRST_LOOK = ROOT / "notebooks" / "first_look.ipynb"


@pytest.mark.parametrize("name", ["pocket", "standard", "paper"])
def test_every_edition_loads_and_fits_its_notebooks(name: str) -> None:
    edition = editions.load_edition(name)
    assert all(chapter.minutes > 0 for chapter in edition.chapters)
    read = set()
    for chapter in edition.chapters:
        given = editions.chapter_parameters(edition, chapter)
        assert given["model"] == chapter.parameters.get("model", edition.models["main"])
        read |= {given[name] for name in ("corpus", "wiki_corpus") if name in given}
    assert read == {edition.corpora["wiki"]}


def changed(tmp_path: Path, **changes: object) -> Path:
    """The pocket edition with some keys replaced; None removes a key."""
    given = yaml.safe_load((ROOT / "editions" / "pocket.yaml").read_text())
    given |= changes
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in given.items() if v is not None}))
    return path


def test_a_chapter_may_have_pages_for_other_models(tmp_path: Path) -> None:
    own = {"minutes": 1, "parameters": {"limit": 7}}
    told = {"minutes": 1, "parameters": {"corpus": "wiki"}, "variants": {"minilm-l6": own}}
    edition = editions.load_edition(changed(tmp_path, notebooks={"first_look": told}))
    first, second = edition.chapters
    assert (first.page, second.page) == ("first_look", "first_look-minilm-l6")
    one, two = (editions.chapter_parameters(edition, chapter) for chapter in edition.chapters)
    assert (one["model"], two["model"]) == ("e5-small", "minilm-l6")
    assert (one["limit"], two["limit"]) == (200, 7)
    assert one["corpus"] == two["corpus"] == "wiki-sample"
    contents = yaml.safe_load(
        building._contents(ROOT, edition, dict.fromkeys((first.page, second.page), FIRST_LOOK))
    )
    listed = [entry for part in contents["parts"] for entry in part["chapters"]]
    (entry,) = [entry for entry in listed if entry["file"] == "notebooks/first_look"]
    assert [one["file"] for one in entry["sections"]] == ["notebooks/first_look-minilm-l6"]


def test_an_edition_may_be_a_file(tmp_path: Path) -> None:
    assert editions.load_edition(changed(tmp_path, seed=7)).seed == 7


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sed": 0}, "Did you mean 'seed'"),
        ({"seed": "zero"}, "'seed' in mine.yaml is 'zero', expected int"),
        ({"seed": True}, "expected int"),
        ({"title": None}, "lacks 'title'"),
        ({"sizes": {"limt": 3}}, "Did you mean 'limit'"),
        ({"assets": "e5-small"}, "expected list"),
        ({"notebooks": {"first_lok": {"minutes": 1, "parameters": {}}}}, "'first_look'"),
        ({"notebooks": {"first_look": {"minute": 1, "parameters": {}}}}, "'minutes'"),
        (
            {"notebooks": {"first_look": {"minutes": 1, "parameters": {}, "variants": {"x": {}}}}},
            "variants: x lacks 'parameters'",
        ),
    ],
)
def test_a_slip_in_an_edition_is_refused(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises((UnknownName, BadValue), match=said):
        editions.load_edition(changed(tmp_path, **changes))


def test_unknown_edition_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'pocket'"):
        editions.load_edition("poket")


def test_unknown_chapter_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'first_look'"):
        building.build_book("pocket", only="first_lok")


# --- what a run depends on


def test_the_key_changes_with_what_matters_only() -> None:
    edition = editions.load_edition("pocket")
    given = editions.chapter_parameters(edition, edition.chapters[0])
    key = building.content_key(FIRST_LOOK, given, ROOT)
    assert key == building.content_key(FIRST_LOOK, dict(given), ROOT)
    assert key != building.content_key(FIRST_LOOK, {**given, "limit": 1}, ROOT)


def test_the_key_changes_with_the_content_of_a_users_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("first\n")
    key = building.content_key(FIRST_LOOK, {"corpus": str(mine)}, ROOT)
    mine.write_text("second\n")
    assert key != building.content_key(FIRST_LOOK, {"corpus": str(mine)}, ROOT)


def test_the_key_changes_with_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    key = building.content_key(FIRST_LOOK, {}, ROOT)
    monkeypatch.setattr(building, "versions", lambda packages: {"torch": "0"})
    assert key != building.content_key(FIRST_LOOK, {}, ROOT)


def test_a_damaged_notebook_is_not_reused(tmp_path: Path) -> None:
    kept = tmp_path / "kept.ipynb"
    assert not building.is_whole(kept)
    kept.write_text(FIRST_LOOK.read_text()[:100])
    assert not building.is_whole(kept)
    kept.write_text(FIRST_LOOK.read_text())
    assert building.is_whole(kept)


def test_the_command_fetch_is_told_the_assets_of_every_edition() -> None:
    """The library knows of no edition: the book adds their names by an entry point."""
    project = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["attnlib.fetch_lists"].items()
    lists = EntryPoint(name, value, "attnlib.fetch_lists").load()()
    assert lists == {name: list(editions.load_edition(name).assets) for name in lists}
    assert list(lists) == ["paper", "pocket", "standard"]


def test_away_from_a_checkout_no_edition_can_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise BookError("not inside the book")

    monkeypatch.setattr(editions, "project_root", nowhere)
    assert editions.asset_lists() == {}
