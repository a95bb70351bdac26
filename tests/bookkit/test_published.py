"""The published pages are built from executed chapters alone, with today's text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bookkit import building
from bookkit.building import build_published
from bookkit.errors import UnknownName
from bookkit.store import Store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def laid_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """What would be built, and nothing is: (page -> notebook) goes to the list."""
    (tmp_path / "book" / "published").mkdir(parents=True)
    seen: dict[str, Path] = {}

    def pages(edition: object, executed: dict[str, Path], folder: Path) -> Path:
        seen.update(executed)
        return folder / "html" / "index.html"

    monkeypatch.setattr(building, "project_root", lambda: tmp_path)
    monkeypatch.setattr(building, "build_pages", pages)
    seen["root"] = tmp_path
    return seen


def executed(name: str, **changes: str) -> str:
    """A chapter as if it had been run, with other text than its source."""
    book = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    book["cells"][0]["source"] = "# An old title"
    for cell in book["cells"]:
        if cell["cell_type"] == "code" and cell.get("id") in changes:
            cell["source"] = changes[cell["id"]]
    return json.dumps(book)


def test_text_is_todays_and_what_was_not_published_is_left_out(
    laid_out: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = laid_out.pop("root") / "book" / "published"
    (folder / "first_look.ipynb").write_text(executed("first_look"), encoding="utf-8")
    build_published()
    assert list(laid_out) == ["first_look"]
    assert "An old title" not in laid_out["first_look"].read_text(encoding="utf-8")
    assert "clark2019: not published, left out" in capsys.readouterr().out.splitlines()


def test_a_chapter_whose_code_has_changed_is_shown_as_it_was(
    laid_out: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = laid_out.pop("root") / "book" / "published"
    (folder / "first_look.ipynb").write_text(executed("first_look", grid="1 + 1"), encoding="utf-8")
    build_published()
    assert "An old title" in laid_out["first_look"].read_text(encoding="utf-8")
    assert "first_look: its code has changed since it was run" in capsys.readouterr().out


def test_nothing_published_is_one_sentence(laid_out: dict[str, Path]) -> None:
    with pytest.raises(UnknownName, match="Run `attnlib book standard` and `attnlib publish`"):
        build_published()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which only the first chapter was run; another's results are under way."""
    monkeypatch.setattr(building, "project_root", lambda: tmp_path)
    kept = tmp_path / "book" / "published" / "store"
    monkeypatch.setattr(building, "book_store", lambda: Store(tmp_path / "cache", kept))
    ran = tmp_path / "_build" / "standard" / "notebooks"
    ran.mkdir(parents=True)
    for page in ("first_look", "first_look-minilm-l6"):
        (ran / f"{page}.ipynb").write_text(executed("first_look"), encoding="utf-8")
    for name in ("kovaleva2019/underway/v1-0.json", "first_look/stale/v1-0.json"):
        (kept / name).parent.mkdir(parents=True)
        (kept / name).write_text("{}")
    return tmp_path / "book" / "published"


def test_one_chapter_is_published_with_its_variants_and_nothing_else_moves(shelf: Path) -> None:
    building.publish("standard", only="first_look")
    assert {path.name for path in shelf.glob("*.ipynb")} == {
        "first_look.ipynb",
        "first_look-minilm-l6.ipynb",
    }
    left = list((shelf / "store").rglob("*.json"))
    assert left == [shelf / "store" / "kovaleva2019" / "underway" / "v1-0.json"]


def test_a_chapter_that_was_not_run_is_not_published(shelf: Path) -> None:
    with pytest.raises(UnknownName, match="'clark2019' of standard was not run here"):
        building.publish("standard", only="clark2019")
    with pytest.raises(UnknownName, match="was not run here"):
        building.publish("standard")
    assert not list(shelf.glob("*.ipynb"))


def test_pages_do_not_link_to_a_chapter_that_is_left_out() -> None:
    edition = building.load_edition(building.PUBLISHED)
    pages = [chapter.page for chapter in edition.chapters]
    here = {page: ROOT / "notebooks" / f"{page}.ipynb" for page in pages}
    names = ("book/intro.md", "book/teach/syllabus.md", "notebooks/clark2019.ipynb")
    files: dict[str, Path | str] = {name: ROOT / name for name in names}
    files["book/_generated/handouts.md"] = "| {doc}`/notebooks/pande2021` | open |"
    assert building._without_dead_links(files, edition, here) == {}
    here.pop("pande2021")
    mended = building._without_dead_links(files, edition, here)
    assert set(mended) == set(files)
    for name, content in mended.items():
        assert isinstance(content, str) and "otebooks/pande2021" not in content
        assert "./pande2021.ipynb" not in content
        kept = files[name]
        assert content.count("clark2019") == (
            kept if isinstance(kept, str) else kept.read_text(encoding="utf-8")
        ).count("clark2019")
    assert "*Which jobs does a head have?* (not in this build)" in str(mended["book/intro.md"])
