"""The ledger: what every executed chapter says of the claims of its paper."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bookkit.claims import LEDGER, RUNS, Judgement, by_year, ledger_row, load_paper, paper_keys
from bookkit.errors import UnknownName

COLOURS = {
    "reproduced": "green",
    "partly": "yellow",
    "not reproduced": "red",
    "not comparable": "dim",
    "absent": "dim",
}


def executed_notebooks(root: Path, edition: str, *, all: bool = False) -> list[Path]:
    """The executed chapters of an edition: as built here, or else as published.

    all  also pages such as clark2019-minilm-l6, variants whose claims are those of clark2019
    """
    folders = (root / "_build" / edition / "notebooks", root / "book" / "published")
    built, published = (
        {path.name: path for path in folder.glob("*.ipynb") if all or "-" not in path.stem}
        for folder in folders
    )
    found = {**published, **built} if edition == "standard" else built
    return [found[name] for name in sorted(found)]


def ledger(root: Path, edition: str) -> list[dict[str, Any]]:
    """One row per claim of every paper, from the executed chapters of an edition."""
    return ledger_of(executed_notebooks(root, edition), edition)


def ledger_of(executed: Iterable[Path], edition: str) -> list[dict[str, Any]]:
    """One row per claim of every paper; a paper whose chapter was not run has absent rows."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for path in executed:
        for row in carried(path):
            rows.setdefault(row["paper"], []).append({**row, "edition": edition})
    if not rows:
        how = f"Run `attnlib book {edition}` first."
        raise UnknownName(f"no executed chapter of the {edition} edition has claims. {how}")
    why = f"no chapter of the {edition} edition measures it"
    for key in set(paper_keys()) - set(rows):
        absent = [Judgement(claim, "absent", why) for claim in load_paper(key).claims]
        rows[key] = [{**ledger_row(one, model=""), "edition": edition} for one in absent]
    return [row for key in sorted(rows, key=by_year) for row in rows[key]]


def totals(rows: list[dict[str, Any]]) -> dict[str, int]:
    """How many claims have each verdict, in the order of the verdicts."""
    return {name: sum(row["verdict"] == name for row in rows) for name in COLOURS}


def carried(path: Path, name: str = LEDGER) -> list[Any]:
    """What an executed notebook carries in its outputs for programs; the claims if not told."""
    told = (output.get("metadata", {}) for output in outputs_of(path))
    return [row for one in told for row in one.get(name, [])]


def outputs_of(path: Path) -> list[dict[str, Any]]:
    """The outputs of all cells of an executed notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def results_behind(path: Path) -> list[str]:
    """The names of the results that an executed notebook shows, each once."""
    return list(dict.fromkeys(run["name"] for run in carried(path, RUNS)))


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """The ledger on the terminal: one line per claim, then the totals."""
    table = Table("paper", "claim", "paper says", "ours", "verdict", "phenomenon", box=None)
    for row in rows:
        verdict = f"[{COLOURS[row['verdict']]}]{row['verdict']}[/]"
        says = "" if row["paper_value"] is None else str(row["paper_value"])
        told = (says, _number(row), verdict, row["phenomenon"])
        table.add_row(row["paper"], row["id"], *told)
    console.print(table)
    console.print(" · ".join(f"{n} {name}" for name, n in totals(rows).items() if n))


def _number(row: Mapping[str, Any]) -> str:
    if row["ours"] is None:
        return "–"
    if row["low"] is None or row["high"] is None:
        return f"{row['ours']:.3g}"
    return f"{row['ours']:.3g} \\[{row['low']:.3g}, {row['high']:.3g}]"
