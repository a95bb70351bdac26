"""What there is: assets, corpora, metrics, relations, the Reader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from attnlib.commands.shared import Json, added, console, print_json, print_table

app = typer.Typer()

Row = dict[str, Any]


def _rows(records: Iterable[object], keys: Iterable[str]) -> list[Row]:
    return [{key: getattr(record, key) for key in keys} for record in records]


def _print_rows(
    rows: list[Row], json: bool, headings: Iterable[str], cells: Iterable[Iterable[Any]]
) -> None:
    """The rows for a program, or a table of cells for a person."""
    if json:
        print_json(rows)
    else:
        print_table(headings, cells)


@app.command()
def assets(
    json: Json = False,
    verify: Annotated[bool, typer.Option(help="Hash every file that is present.")] = False,
) -> None:
    """List models and data: what is present, its size and licence, where it comes from."""
    from attnlib.data.assets import status

    rows = status(verify=verify)
    cells = []
    for row in rows:
        here = "yes" if row["present"] else "–"
        size = f"{row['bytes'] / 1e6:.1f} MB" if row["bytes"] else ""
        cells.append((row["name"], row["kind"], here, size, row["licence"], row["source"]))
    _print_rows(rows, json, ("name", "kind", "here", "size", "licence", "source"), cells)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Names of assets, or of an edition.")],
    force: Annotated[bool, typer.Option(help="Fetch again even if it is here.")] = False,
) -> None:
    """Fetch assets, verify them and put them into the cache."""
    from attnlib.data import assets as data

    lists: dict[str, list[str]] = {}  # of assets, as the book has in its editions
    if not set(names) <= set(data.known()):
        for more in added("attnlib.fetch_lists"):
            lists |= more()
    data.fetch(names, lists=lists, force=force)


@app.command()
def metrics(json: Json = False) -> None:
    """List every metric: what it measures, its unit and bounds, the paper it comes from."""
    from attnlib.metrics.registry import METRICS

    keys = ("key", "what", "source", "unit", "bounds", "axes", "scope", "variants")
    cells = []
    for m in METRICS.values():
        bounds = " to ".join(b if isinstance(b, str) else f"{b:.3g}" for b in m.bounds)
        cells.append((m.key, m.what, m.unit, bounds, m.source))
    headings = ("metric", "what it measures", "unit", "bounds", "source")
    _print_rows(_rows(METRICS.values(), keys), json, headings, cells)


@app.command()
def relations(json: Json = False) -> None:
    """List every relation between a query and a key, and the sieves of roles."""
    from attnlib.metrics.relations import RELATIONS
    from attnlib.metrics.sieves import SIEVES

    keys = ("key", "what", "asked_of", "positional", "metric_key")
    sieves = _rows(SIEVES.values(), keys)
    for role, row in zip(SIEVES, sieves, strict=True):
        row["metric_key"] = f"bias_{role}"
    rows = _rows(RELATIONS.values(), keys) + sieves
    cells = [(r["key"], r["what"], f"{r['asked_of']} query", r["metric_key"]) for r in rows]
    _print_rows(rows, json, ("relation", "holds for", "asked of", "metric"), cells)


@app.command()
def corpora(json: Json = False) -> None:
    """List every corpus: its kind, what it is, the asset it is read from."""
    from attnlib.data.corpora import known_corpora

    rows = _rows(known_corpora().values(), ("name", "kind", "asset", "what"))
    cells = [(row["name"], row["kind"], row["what"]) for row in rows]
    _print_rows(rows, json, ("corpus", "kind", "what it is"), cells)


@app.command()
def reader(
    stats: Annotated[bool, typer.Option("--stats", help="Count what is in it.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Look for mistakes.")] = False,
    show: Annotated[str | None, typer.Option(help="Show one passage, annotated.")] = None,
    json: Json = False,
) -> None:
    """The book's own annotated passages: list, count, check or show them."""
    from attnlib.data import reader as texts
    from attnlib.data.parser import tagger
    from attnlib.data.reader.summary import listed, shown, statistics

    passages = texts.passages()
    if show is not None:
        console.print(shown(texts.passage(show)))
    elif check:
        found = texts.problems(passages, texts.frame_table(), tagger())
        for problem in found:
            print(problem)
        if found:
            raise texts.ReaderError(f"{len(found)} mistakes in {len(passages)} passages.")
        console.print(f"{len(passages)} passages, no mistake")
    elif stats and json:
        print_json(statistics(passages))
    elif stats:
        for key, value in statistics(passages).items():
            console.print(f"{key.replace('_', ' '):26} {listed(value)}")
    else:
        rows = _rows(passages, ("id", "title", "register"))
        for row, one in zip(rows, passages, strict=True):
            row["words"] = len(one.plain_words)
        _print_rows(rows, json, ("passage", "title", "register", "words"), map(Row.values, rows))
