"""What there is: assets, corpora, metrics, relations, the Reader."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from attnlib.commands.shared import Json, console, print_json

app = typer.Typer()


@app.command()
def assets(
    json: Json = False,
    verify: Annotated[bool, typer.Option(help="Hash every file that is present.")] = False,
) -> None:
    """List models and data: what is present, its size and licence, where it comes from."""
    from attnlib.data import assets as shelf

    rows = shelf.status(verify=verify)
    if json:
        print_json(rows)
        return
    table = Table("name", "kind", "here", "size", "licence", "source", box=None)
    for row in rows:
        size = f"{row['bytes'] / 1e6:.1f} MB" if row["bytes"] else ""
        here = "yes" if row["present"] else "–"
        table.add_row(row["name"], row["kind"], here, size, row["licence"], row["source"])
    console.print(table)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(help="Names of assets, or of an edition.")],
    force: Annotated[bool, typer.Option(help="Fetch again even if it is here.")] = False,
) -> None:
    """Fetch assets, verify them and put them into the cache."""
    from attnlib.data import assets as shelf

    shelf.fetch(shelf.expand(names), force=force)


@app.command()
def metrics(json: Json = False) -> None:
    """List every metric: what it measures, its unit and bounds, the paper it comes from."""
    from attnlib.metrics.registry import METRICS

    if json:
        keys = ("key", "what", "source", "unit", "bounds", "axes", "scope", "variants")
        print_json([{key: getattr(m, key) for key in keys} for m in METRICS.values()])
        return
    table = Table("metric", "what it measures", "unit", "bounds", "source", box=None)
    for m in METRICS.values():
        bounds = " to ".join(b if isinstance(b, str) else f"{b:.3g}" for b in m.bounds)
        table.add_row(m.key, m.what, m.unit, bounds, m.source)
    console.print(table)


@app.command()
def relations(json: Json = False) -> None:
    """List every relation between a query and a key, and the sieves of roles."""
    from attnlib.metrics.relations import RELATIONS
    from attnlib.metrics.sieves import SIEVES

    keys = ("key", "what", "asked_of", "positional", "metric_key")
    rows = [{key: getattr(r, key) for key in keys} for r in RELATIONS.values()]
    rows += [
        {key: getattr(s, key) for key in keys} | {"metric_key": f"bias_{role}"}
        for role, s in SIEVES.items()
    ]
    if json:
        print_json(rows)
        return
    table = Table("relation", "holds for", "asked of", "metric", box=None)
    for row in rows:
        table.add_row(row["key"], row["what"], f"{row['asked_of']} query", row["metric_key"])
    console.print(table)


@app.command()
def corpora(json: Json = False) -> None:
    """List every corpus: its kind, what it is, the asset it is read from."""
    from attnlib.data.corpora import known_corpora

    rows = list(known_corpora().values())
    if json:
        print_json([{k: getattr(r, k) for k in ("name", "kind", "asset", "what")} for r in rows])
        return
    table = Table("corpus", "kind", "what it is", box=None)
    for row in rows:
        table.add_row(row.name, row.kind, row.what)
    console.print(table)


@app.command()
def reader(
    stats: Annotated[bool, typer.Option("--stats", help="Count what is in it.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Look for mistakes.")] = False,
    show: Annotated[str | None, typer.Option(help="Show one passage, annotated.")] = None,
    json: Json = False,
) -> None:
    """The book's own annotated passages: list, count, check or show them."""
    from attnlib.data import reader as shelf
    from attnlib.data.parse import tagger
    from attnlib.data.reader import terminal
    from attnlib.data.reader.stats import n_words, statistics

    passages = shelf.passages()
    if show is not None:
        console.print(terminal.shown(shelf.passage(show)))
    elif check:
        found = shelf.problems(passages, shelf.frame_table(), tagger())
        for problem in found:
            print(problem)
        if found:
            raise shelf.ReaderError(f"{len(found)} mistakes in {len(passages)} passages.")
        console.print(f"{len(passages)} passages, no mistake")
    elif stats:
        counts = statistics(passages)
        if json:
            print_json(counts)
            return
        for key, value in counts.items():
            console.print(f"{key.replace('_', ' '):26} {terminal.listed(value)}")
    else:
        rows = [
            {"id": one.id, "title": one.title, "register": one.register, "words": n_words(one)}
            for one in passages
        ]
        if json:
            print_json(rows)
            return
        table = Table("passage", "title", "register", "words", box=None)
        for row in rows:
            table.add_row(*map(str, row.values()))
        console.print(table)
