"""Chapters and editions: run, build, publish, judge, teach."""

from __future__ import annotations

import sys
from collections import Counter
from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer()
console = Console(width=None if sys.stdout.isatty() else 160)
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


@app.command()
def run(
    notebook: Annotated[str, typer.Argument(help="A chapter's name, or the path of a notebook.")],
    parameter: Annotated[
        list[str] | None, typer.Option("-p", metavar="NAME VALUE", help="Set one parameter.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="A yaml file of parameters.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the executed notebook goes.")] = None,
    edition: Annotated[str, typer.Option(help="Whose settings to start from.")] = "pocket",
    help_notebook: Annotated[
        bool, typer.Option("--help-notebook", help="List the parameters and stop.")
    ] = False,
) -> None:
    """Execute one notebook with other parameters."""
    from bookkit import editions, notebooks
    from bookkit.project import project_root

    path = editions.notebook_path(notebook)
    if help_notebook:
        table = Table("parameter", "type", "default", "meaning", box=None)
        for one in notebooks.notebook_parameters(path).values():
            table.add_row(one.name, one.type, repr(one.default), one.help)
        console.print(table)
        return
    given = notebooks.read_parameters(file, parameter or [])
    settings = editions.settings_of(edition, path) | given
    target = out or project_root() / "_build" / "runs" / path.name
    console.print(str(notebooks.run_notebook(path, settings, target)))


@app.command()
def book(
    edition: Annotated[str, typer.Argument(help="pocket, standard, paper, or a yaml file.")],
    only: Annotated[
        list[str] | None, typer.Option(help="Run this chapter alone; may be repeated.")
    ] = None,
    html: Annotated[bool, typer.Option(help="Build the pages, not only the notebooks.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Rehearse: full shapes, random weights, few inputs.")
    ] = False,
) -> None:
    """Run the chapters of an edition and build its book."""
    from bookkit.building import build_book
    from bookkit.errors import BadValue
    from bookkit.project import hook

    if not dry_run:
        build_book(edition, only=only, html=html)
        return
    rehearse = hook("rehearse")
    if rehearse is None:
        raise BadValue("this book cannot be rehearsed; expected `rehearse:` in its _config.yml.")
    rehearse(edition)


@app.command()
def published() -> None:
    """Build the pages of the published edition from its executed chapters; nothing is run."""
    from bookkit.building import build_published

    build_published()


@app.command()
def publish(
    edition: Annotated[str, typer.Argument(help="The edition to publish.")] = "standard",
    only: Annotated[
        str | None, typer.Option(help="This chapter alone; the others stay as they are.")
    ] = None,
) -> None:
    """Copy the executed chapters of an edition and their results to book/published/."""
    from bookkit.building import publish as copied

    copied(edition, only=only)


@app.command()
def ledger(
    edition: Annotated[str, typer.Argument(help="pocket, standard or paper.")] = "standard",
    paper: Annotated[str | None, typer.Option(help="Only the claims of this paper.")] = None,
    json: Json = False,
) -> None:
    """Show every claim of the papers with what an edition found, and the verdict."""
    from bookkit import ledger as book
    from bookkit.claims import load_paper
    from bookkit.editions import load_edition
    from bookkit.project import project_root

    rows = book.ledger(project_root(), load_edition(edition).name)
    if paper is not None:
        rows = [row for row in rows if row["paper"] == load_paper(paper).key]
    if json:
        print(dumps(rows, allow_nan=False, ensure_ascii=False))
        return
    book.show(rows, console)


@app.command()
def status(
    edition: Annotated[str, typer.Argument(help="pocket, standard or paper.")] = "standard",
    json: Json = False,
) -> None:
    """List the results behind an edition: kept, missing, or computed by older code."""
    from bookkit import audit
    from bookkit.editions import book_store, load_edition
    from bookkit.project import project_root

    rows = audit.status(project_root(), load_edition(edition), book_store())
    if json:
        print(dumps(rows, indent=1))
        return
    odd = [row for row in rows if row["state"] != "kept"]
    table = Table("chapter", "result", "state", "seconds", box=None)
    for row in odd:
        table.add_row(row["chapter"], row["result"], row["state"], str(row.get("seconds", "")))
    if odd:
        console.print(table)
    counts = Counter(row["state"] for row in rows)
    counts["whose code has changed since"] = sum(r.get("code") == "changed since" for r in rows)
    console.print(" · ".join(f"{n} {state}" for state, n in counts.items() if n) or "no chapter")


@app.command()
def verify(
    edition: Annotated[str, typer.Argument(help="pocket, standard or paper.")] = "standard",
    only: Annotated[str | None, typer.Option(help="The results of this chapter alone.")] = None,
    seconds: Annotated[float, typer.Option(help="Only results that cost at most so many.")] = 5.0,
) -> None:
    """Compute kept results again: a changed number without a new version is an error."""
    from bookkit import audit
    from bookkit.editions import load_edition

    found = audit.verify(load_edition(edition), only=only, seconds=seconds)
    console.print(f"{found} results verified")


@app.command()
def teach(
    chapters: Annotated[
        list[str] | None, typer.Argument(help="Chapters such as clark2019; all if none is named.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("teaching"),
    edition: Annotated[str, typer.Option(help="Whose figures the slides show.")] = "standard",
) -> None:
    """Write what a class needs: student copies of the notebooks, and slides."""
    from bookkit.teach.handouts import teach as written

    written(chapters or [], out, edition=edition)
