"""A book about dice: the kit runs, judges and builds it without knowing anything of attention."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import nbformat
import pytest

from bookkit import project
from bookkit.errors import BadValue, BookError, UnknownName

ROOT = Path(__file__).parents[2]

CLAIM = """
- id: {id}
  where: {where}
  kind: value
  paper: {{value: {value}}}
  how: {measure} of all throws
  measure: {measure}
  tolerance: 0.1
  phenomenon: {{text: "{text}", {bound}: {threshold}}}
  deviations: [D1]
"""
FILES = {
    "_toc.yml": """
        format: jb-book
        root: book/intro
        chapters: [{file: notebooks/dice}, {file: book/ledger}]
    """,
    "_config.yml": """
        title: Dice
        only_build_toc_files: true
        execute: {execute_notebooks: "off"}
        bookkit: {pages: "toypages:generated", numbers: "toypages:numbers"}
        sphinx: {config: {html_extra_path: [_extra]}}
    """,
    "toypages.py": """
        def generated(root, edition, executed):
            return {"book/_generated/size.md": f"Chapters that were run: {len(executed)}."}


        def numbers():
            return {"faces": 6}
    """,
    "editions/tiny.yaml": """
        title: Tiny edition
        summary: A few throws.
        models: {main: fair-die}
        corpora: {}
        assets: []
        sizes: {throws: 600}
        seed: 3
        notebooks: {dice: {minutes: 0.1, parameters: {}}}
    """,
    "book/intro.md": """
        # Dice

        A die has {{ faces }} faces, and the paper makes {{ claims }} claims.

        ```{include} _generated/verdicts.md
        ```

        ```{include} _generated/size.md
        ```
    """,
    "book/ledger.md": """
        # All claims

        ```{include} _generated/ledger.md
        ```
    """,
    "book/references.bib": "",
    "constraints.txt": "",
}
CELLS = (
    'model: str = "loaded"  # which die\nthrows: int = 10  # how many\nseed: int = 0  # of luck',
    """
    import random

    import pandas as pd
    from bookkit.chapter import Chapter
    from bookkit.claims import Finding
    from bookkit.editions import book_store
    from bookkit.store import Found, experiment

    chapter = Chapter("toy1900", model=model, store=book_store(), offers={"seed": seed})
    """,
    """
    @experiment(version=1)
    def thrown(*, throws, seed):
        chance = random.Random(seed)
        seen = [chance.randint(1, 6) for _ in range(throws)]
        found = {"mean": Finding(sum(seen) / throws, 3.2, 3.8)}
        found["sixes"] = Finding(seen.count(6), 80, 120)
        return Found(pd.DataFrame({"seen": seen}), found)


    chapter.run(thrown, throws=throws).table["seen"].value_counts()
    """,
    "chapter.ledger()",
    "chapter.compute_card()",
    'import sys\n\n[name for name in ("torch", "attnlib") if name in sys.modules]',
)


def write_book(folder: Path) -> Path:
    """Two pages and a chapter, with three claims: one holds, one fails, one is not measured."""
    given = [
        ("a", "Table 1", 3.5, "mean", "the mean is at least 3", "at_least", 3),
        ("b", "Table 2", 0, "sixes", "there is no six", "at_most", 0),
        ("c", "Fig. 1", 1, "ones", "there is a one", "at_least", 1),
    ]
    names = ("id", "where", "value", "measure", "text", "bound", "threshold")
    claims = "".join(CLAIM.format(**dict(zip(names, row, strict=True))) for row in given)
    head = "paper: toy1900\nmodels: [fair-die]\ndeviations: {D1: Other dice.}\nclaims:"
    files = {**FILES, "papers/toy1900.yaml": head + claims}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).strip() + "\n", encoding="utf-8")
    first, *rest = (nbformat.v4.new_code_cell(dedent(source).strip()) for source in CELLS)
    first.metadata["tags"] = ["parameters"]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    title = nbformat.v4.new_markdown_cell("# Throws")
    book = nbformat.v4.new_notebook(cells=[title, first, *rest], metadata={"kernelspec": kernel})
    (folder / "notebooks").mkdir()
    nbformat.write(book, folder / "notebooks" / "dice.ipynb")
    return folder


def told_by(script: str, folder: Path) -> Any:
    """What a script prints in the folder, in a Python of its own, and what it has imported."""
    end = (
        "\nimport json, sys\n"
        "known = [name for name in ('torch', 'attnlib') if name in sys.modules]\n"
        "print(json.dumps([told, known]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script + end],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ATTNLIB_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


RUN = """
from bookkit.editions import chapter_parameters, load_edition, notebook_path
from bookkit.executed import results_behind
from bookkit.ledger import ledger
from bookkit.notebooks import run_notebook
from bookkit.pages.ledgerpage import ledger_table, verdict_bars
from bookkit.project import hook, project_root

edition, root = load_edition("tiny"), project_root()
for chapter in edition.chapters:
    out = root / "_build" / "tiny" / "notebooks" / f"{chapter.page}.ipynb"
    given = chapter_parameters(edition, chapter)
    run_notebook(notebook_path(chapter.notebook), given, out)
rows = ledger(root, "tiny")
table, bars = ledger_table(rows), verdict_bars(rows)
told = {
    "verdicts": [row["verdict"] for row in rows],
    "rows": table.count("<tr data-paper"),
    "bars": bars.count("<a class"),
    "results": results_behind(out),
    "numbers": hook("numbers")(),
    "page": hook("pages")(root, edition, {"dice": out}),
    "rehearse": hook("rehearse"),
}
"""


def test_a_book_is_run_and_judged_without_attention(tmp_path: Path) -> None:
    folder = write_book(tmp_path)
    told, known = told_by(RUN, folder)
    assert known == []
    assert told["verdicts"] == ["holds", "fails", "to be run"]
    assert (told["rows"], told["bars"]) == (3, 3)
    assert told["numbers"] == {"faces": 6} and told["rehearse"] is None
    assert told["page"] == {"book/_generated/size.md": "Chapters that were run: 1."}
    book = nbformat.read(folder / "_build" / "tiny" / "notebooks" / "dice.ipynb", as_version=4)
    assert book.metadata.attnlib.parameters == {"throws": 600, "seed": 3, "model": "fair-die"}
    assert book.cells[-1].outputs[0].data["text/plain"] == "[]"  # the kernel knows neither, too
    (kept,) = (folder / "cache" / "store").glob("toy1900/thrown/v1-*.parquet")
    assert told["results"] == [f"toy1900/thrown/{kept.stem}"]


BUILD = """
from bookkit.building import build_book

told = str(build_book("tiny"))
"""


def test_a_book_is_built_without_attention(tmp_path: Path) -> None:
    told, known = told_by(BUILD, write_book(tmp_path))
    assert known == []
    pages = Path(told).parent
    assert "A die has 6 faces, and the paper makes 3 claims." in (
        pages / "book" / "intro.html"
    ).read_text(encoding="utf-8")
    assert (pages / "book" / "ledger.html").read_text(encoding="utf-8").count("<tr data-paper") == 3
    assert (pages / "notebooks" / "dice.html").is_file()


# --- hooks


def hooked(folder: Path, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A book with these hooks, around the working folder."""
    (folder / "editions").mkdir()
    (folder / "_toc.yml").write_text("")
    (folder / "_config.yml").write_text(f"title: Toy\nbookkit: {named}\n")
    monkeypatch.chdir(folder)


@pytest.mark.parametrize(
    ("named", "error", "said"),
    [
        ("{page: 'json:dumps'}", UnknownName, "Did you mean 'pages'"),
        ("{pages: 'json:dump_it'}", BadValue, "'json:dump_it' in _config.yml, bookkit: pages"),
        ("{pages: 'no_such_module:x'}", BadValue, "expected module:function"),
    ],
)
def test_a_slip_in_a_hook_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    error: type[BookError],
    said: str,
) -> None:
    hooked(tmp_path, named, monkeypatch)
    with pytest.raises(error, match=said):
        project.hook("pages")


def test_a_hook_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked(tmp_path, "{pages: 'json:dumps'}", monkeypatch)
    assert project.hook("pages") is json.dumps
    assert project.hook("numbers") is None
