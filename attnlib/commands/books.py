"""Chapters and editions: run, build, publish, judge, teach."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from attnlib.commands.shared import Json, console
from attnlib.errors import AttnlibError

app = typer.Typer()


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
    from attnlib import editions, runs

    path = editions.notebook_path(notebook)
    if help_notebook:
        table = Table("parameter", "type", "default", "meaning", box=None)
        for one in runs.notebook_parameters(path).values():
            table.add_row(one.name, one.type, repr(one.default), one.help)
        console.print(table)
        return
    given = runs.read_parameters(file, parameter or [])
    settings = editions.settings_of(edition, path) | given
    target = out or editions.project_root() / "_build" / "runs" / path.name
    console.print(str(runs.run_notebook(path, settings, target)))


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
    from attnlib.building import build_book
    from attnlib.rehearsal import rehearse

    if dry_run:
        rehearse(edition)
    else:
        build_book(edition, only=only, html=html)


@app.command()
def published() -> None:
    """Build the pages of the published edition from its executed chapters; nothing is run."""
    from attnlib.building import build_published

    build_published()


@app.command()
def publish(
    edition: Annotated[str, typer.Argument(help="The edition to publish.")] = "standard",
    only: Annotated[
        str | None, typer.Option(help="This chapter alone; the others stay as they are.")
    ] = None,
) -> None:
    """Copy the executed chapters of an edition and their results to book/published/."""
    from attnlib.publishing import publish as copied

    copied(edition, only=only)


@app.command()
def ledger(
    edition: Annotated[str, typer.Argument(help="pocket, standard or paper.")] = "standard",
    paper: Annotated[str | None, typer.Option(help="Only the claims of this paper.")] = None,
    json: Json = False,
) -> None:
    """Show every claim of the papers with what an edition found, and the verdict."""
    from attnlib import ledger as book
    from attnlib.editions import load_edition, project_root
    from attnlib.papers import load_paper
    from attnlib.report import dump

    rows = book.ledger(project_root(), load_edition(edition).name)
    if paper is not None:
        rows = [row for row in rows if row["paper"] == load_paper(paper).key]
    if json:
        print(dump(rows))
        return
    book.show(rows, console)


@app.command()
def teach(
    chapters: Annotated[
        list[str] | None, typer.Argument(help="Chapters such as clark2019; all if none is named.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("teaching"),
    edition: Annotated[str, typer.Option(help="Whose figures the slides show.")] = "standard",
) -> None:
    """Write what a class needs: student copies of the notebooks, and slides."""
    from attnlib.teaching import teach as written

    written(chapters or [], out, edition=edition, say=console.print)


@app.command()
def sheet(
    model: Annotated[str, typer.Argument(help="A model with labelled maps.")] = "e5-small",
    out: Annotated[Path, typer.Option(help="The page; its key is written beside it.")] = Path(
        "sheet.html"
    ),
    each: Annotated[int, typer.Option(help="Maps of every pattern.")] = 4,
    seed: Annotated[int, typer.Option(help="Another seed, other maps.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Write a sheet of attention maps without names, to print and label in class, and its key."""
    from attnlib.mapsheet import write_sheet

    for path in write_sheet(out, model=model, each=each, seed=seed, device=device):
        console.print(f"{path}", soft_wrap=True)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option(help="Fewer rounds: a glance, not a verdict.")] = False,
    json: Json = False,
) -> None:
    """Time attnlib beside the baselines; every number is a ratio within this run."""
    import importlib

    from attnlib.report import dump

    root = Path(__file__).parents[2]
    if not (root / "bench" / "run.py").is_file():
        raise AttnlibError("the benchmarks are part of the checkout, not of the installed package.")
    sys.path.insert(0, str(root))
    found = importlib.import_module("bench.run").all_benchmarks(quick)
    if json:
        print(dump(found))
        return
    for name, ratio in found.items():
        console.print(f"{ratio:8.3f}  {name}")
