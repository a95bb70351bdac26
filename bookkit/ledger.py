"""The ledger: every claim of the papers, judged by what the executed chapters found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bookkit.audit import declared_now, declared_versions
from bookkit.claims import (
    FOUND,
    RUNS,
    Finding,
    Judgement,
    by_year,
    judge,
    ledger_row,
    load_paper,
    paper_keys,
)
from bookkit.errors import UnknownName
from bookkit.executed import carried, code_of, executed_notebooks, notebook_of
from bookkit.pagetables import interval_text, number_text, shown_verdict
from bookkit.project import project_root

COLOURS = {
    "holds": "green",
    "undecided": "yellow",
    "fails": "red",
    "undefined": "dim",
    "to be run": "dim",
    "definition": "dim",
}


def ledger(root: Path, edition: str) -> list[dict[str, Any]]:
    """One row per claim of every paper, from the executed chapters of an edition."""
    return ledger_of(executed_notebooks(root, edition), edition)


def ledger_of(executed: Iterable[Path], edition: str) -> list[dict[str, Any]]:
    """One row per claim of every paper, judged by the claims as they are now.

    A claim whose chapter was not run, or whose method has changed since, is to be run.
    """
    judged = [row for path in executed for row in judged_rows(path)]
    if not judged:
        how = f"Run `attnlib book {edition}` first."
        raise UnknownName(f"no executed chapter of the {edition} edition has claims. {how}")
    why = f"no chapter of the {edition} edition measures it"
    for key in set(paper_keys()) - {row["paper"] for row in judged}:
        rest = (Judgement(claim, "to be run", why) for claim in load_paper(key).claims)
        judged += [ledger_row(one, model="") for one in rest]
    judged.sort(key=lambda row: by_year(row["paper"]))
    return [{**row, "edition": edition} for row in judged]


def judged_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The claims of an executed chapter, judged anew by what it found."""
    for chapter in carried(path, FOUND):
        paper, old = load_paper(chapter["paper"]), _outdated(path)
        found = {name: _finding(one) for name, one in chapter["findings"].items()}
        stale = {name for name, one in chapter["findings"].items() if one["result"] in old}
        for claim in paper.claims:
            one = judge(claim, found, own_model=chapter["own_model"])
            if claim.phenomenon.measure in stale:
                one = Judgement(claim, "to be run", "its method has changed since it was run")
            yield ledger_row(one, model=chapter["model"])


def _finding(told: Mapping[str, Any]) -> Finding:
    ends = (told[part] for part in ("value", "low", "high"))
    return Finding(*(float("nan") if end is None else end for end in ends))


def _outdated(path: Path) -> set[str]:
    """The results behind an executed chapter that today's code would no longer find.

    Their experiment has a newer version; or it is declared nowhere, and what the chapter itself
    wrote then is not what it writes now.
    """
    root = project_root()
    today, source = declared_versions(root), root / "notebooks" / f"{path.stem.split('-')[0]}.ipynb"
    code = "\n".join(map(str, code_of(notebook_of(source)))) if source.is_file() else ""
    old = set()
    for run in carried(path, RUNS):
        version, _ = declared_now(run["name"], today)
        written = str(run["parameters"].get("text", "not in a chapter")).strip()
        if run["version"] < version or (not version and written not in code):
            old.add(run["name"])
    return old


def totals(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many findings have each verdict, and how many rows are definitions."""
    shown = [shown_verdict(row) for row in rows]
    return {name: shown.count(name) for name in COLOURS}


def values_within(rows: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """How many of our numbers are within the paper's tolerance, and how many can be compared."""
    compared = [row["agrees"] for row in rows if row["agrees"] is not None]
    return sum(compared), len(compared)


def headline(rows: list[dict[str, Any]]) -> str:
    """The ledger in one line."""
    counts, (near, n) = totals(rows), values_within(rows)
    said = " · ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{said} · {near} of {n} numbers within the paper's tolerance"


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """The ledger on the terminal: one line per claim, then the totals."""
    table = Table(
        "paper", "claim", "paper says", "ours", "verdict", "value", "phenomenon", box=None
    )
    for row in rows:
        verdict = shown_verdict(row)
        says = "" if row["paper_value"] is None else str(row["paper_value"])
        table.add_row(
            *(row["paper"], row["id"], says, _number(row), f"[{COLOURS[verdict]}]{verdict}[/]"),
            *(row["value_verdict"] or "", row["phenomenon"]),
        )
    console.print(table)
    console.print(headline(rows))


def _number(row: Mapping[str, Any]) -> str:
    within = interval_text(row["low"], row["high"])
    return number_text(row["ours"]) + (f" \\[{within}]" if within != "–" else "")
