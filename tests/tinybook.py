"""A book of two pages, built once per test run with the settings and styles of the real one."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import nbformat
import yaml

from attnlib.plots import drawing
from bookkit import building
from bookkit.editions import Edition
from bookkit.pages import site, vendor
from bookkit.pages.ledgerpage import ledger_table
from tests.claimrows import row
from tests.families import SENTENCES, save_family

ROOT = Path(__file__).parents[1]
PAGE = """# A tiny book

Math inline $a_{qk}$ and displayed:

$$
\\sum_k a_{qk} = 1
$$ (rows)

By {eq}`rows`, see {cite:t}`clark2019`. A figure of this repository:

![logo](_static/logo.svg)

A [link elsewhere](https://example.org) is allowed.

```{exercise}
:label: tiny

How much?
```

```{solution} tiny
:class: dropdown

One: $\\log 1 = 0$.
```
"""


def figure_html() -> str:
    """One real figure, as a notebook shows it."""
    import pandas as pd

    from attnlib.plots import grids, labels

    rows = [
        ("entropy", layer, head, layer / head, 0.0, 1.0, 3) for layer in (1, 2) for head in (1, 2)
    ]
    shown: drawing.Drawing = grids.head_grid(
        pd.DataFrame(rows, columns=list(labels.COLUMNS)), "entropy"
    )
    return shown._repr_html_()


def viewer_html(folder: Path) -> str:
    """The heads of a tiny model on two texts, as a notebook shows them."""
    from attnlib.models import load_encoder
    from attnlib.plots.viewer import view

    encoder = load_encoder(save_family("bert", folder / "model"), device="cpu")
    return view(encoder, list(SENTENCES[:2]))._repr_html_()


def claims() -> list[dict[str, Any]]:
    """Claims of two papers with all kinds of verdicts."""
    told = {"where": "Table 1", "ours": 0.5, "low": 0.4, "high": 0.6, "deviations": []}
    verdicts = ("holds", "undecided", "fails", "holds", "to be run")
    papers = ("clark2019", "clark2019", "clark2019", "guan2020", "guan2020")
    return [
        row(verdict, **told, paper=paper, id=f"tab1.{place}")
        for place, (paper, verdict) in enumerate(zip(papers, verdicts, strict=True))
    ]


def lay_out(folder: Path, page: str = PAGE) -> bool:
    """Write the sources; False if the scripts for formulas could not be fetched."""
    book = folder / "book"
    shutil.copytree(ROOT / "book" / "_static", book / "_static")
    shutil.copy(ROOT / "book" / "references.bib", book)
    shutil.copy(ROOT / "book" / "references.md", book)
    (book / "intro.md").write_text(page)
    cell = nbformat.v4.new_code_cell("figure", execution_count=1)
    cell.outputs = [
        nbformat.v4.new_output("execute_result", {"text/html": figure_html()}, execution_count=1)
    ]
    heads = nbformat.v4.new_code_cell("view", execution_count=2)
    shown = {"text/html": viewer_html(folder / "unused")}
    heads.outputs = [nbformat.v4.new_output("execute_result", shown, execution_count=2)]
    head = nbformat.v4.new_markdown_cell("# A chapter\n\nWith a figure.")
    (book / "ledger.md").write_text("# Claims\n\n" + ledger_table(claims()))
    notes = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(
        nbformat.v4.new_notebook(cells=[head, cell, heads], metadata=notes), book / "one.ipynb"
    )
    contents = {"format": "jb-book", "root": "book/intro"}
    files = ("one", "ledger", "references")
    chapters = [{"file": f"book/{name}"} for name in files]
    (folder / "_toc.yml").write_text(yaml.safe_dump({**contents, "chapters": chapters}))
    extra = folder / "_extra" / "vendored"
    extra.mkdir(parents=True)
    (extra / "README").write_text("Scripts of other people.\n")
    there = vendor.vendor(extra, ROOT / "_build" / "cache" / "npm")
    edition = Edition("tiny", "Tiny", "Small.", {"main": "none"}, {}, (), {}, 0, ())
    (folder / "_config.yml").write_text(building.config(ROOT, edition, {}, there))
    return there


def tiny_site(shared: Path) -> tuple[Path, bool]:
    """The built site and whether it has its scripts; workers of one test run share it."""
    site_folder, marker = shared / "html", shared / "scripts"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.is_file():
            there = lay_out(shared / "source")
            site.build_site(shared / "source", shared / "work", site_folder)
            marker.write_text(str(there))
    return site_folder, marker.read_text() == "True"


def shared_folder(base: Path) -> Path:
    """A folder that all workers of this test run see."""
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "tinybook"
    folder.mkdir(exist_ok=True)
    return folder
