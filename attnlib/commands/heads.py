"""What heads do: the relations they find, the roles they have, their maps on a text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnlib.commands import shared
from attnlib.commands.shared import bar, console, print_json, print_table

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer()

MOST_NAMED = 8
"""Heads of a role that are named; the others are counted."""


@app.command()
def heads(
    model: shared.Model,
    corpus: Annotated[str, typer.Argument(help="A treebank, or a .conllu file.")],
    relation: Annotated[
        list[str] | None, typer.Option(help="Only this relation, or all; may be repeated.")
    ] = None,
    limit: shared.Limit = None,
    max_length: shared.MaxLength = 128,
    on_long: shared.OnLong = "skip",
    min_count: Annotated[
        int, typer.Option(help="Leave out rarer relations, unless they are named.")
    ] = 100,
    from_pieces: Annotated[
        str, typer.Option(help="A word attends with the mean of its pieces, or its first.")
    ] = "mean",
    variant: Annotated[
        str, typer.Option(help="paper, or authors: scored as in Clark's code.")
    ] = "paper",
    possessive_clitic: Annotated[
        bool, typer.Option(help="Let 's count for its possessor, as Clark's Table 1 does.")
    ] = False,
    batch_size: shared.BatchSize = 16,
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    json: shared.Json = False,
) -> None:
    """Find the best head for every dependency relation, and the best fixed offset to compare."""
    from attnlib.errors import check_choice
    from attnlib.measuring import best_heads as choosing
    from attnlib.measuring.head_tables import records
    from attnlib.models import load_encoder

    check_choice("variant", variant, choosing.VARIANTS)
    choosing.check_min_count(min_count)
    trees = choosing.load_trees(corpus, limit=limit, seed=seed)
    # a misspelt relation is said before a model is loaded
    choosing.check_relations(relation or (), choosing.tree_relations(trees.examples))
    with bar(f"reading {corpus} with {model}"):
        found = choosing.predictions(
            load_encoder(model, device=device),
            trees.examples,
            from_pieces=from_pieces,
            max_length=max_length,
            batch_size=batch_size,
            on_long=on_long,
        )
    table = choosing.best_heads(
        found,
        relations=relation or None,
        min_count=min_count,
        variant=variant,
        possessive_clitic=possessive_clitic,
        seed=seed,
    )
    if json:
        print_json(records(table))
        return
    headings = "relation", "n", "head", "direction", "accuracy %", "offset %", "gain"
    rows = [
        (
            row.relation,
            row.n,
            row.head,
            row.direction,
            f"{row.accuracy:.1f} [{row.low:.1f}, {row.high:.1f}]",
            f"{row.baseline:.1f} ({row.offset:+d})",
            f"{row.gain:+.1f} [{row.gain_low:+.1f}, {row.gain_high:+.1f}]",
            f"{row.clean_accuracy:.1f} by {row.clean_head}" if row.clean_head else "–",
        )
        for row in table.fillna({"clean_head": ""}).itertuples()
    ]
    print_table((*headings, "on other half"), rows)
    left_out = "".join(f", {n} {reason}" for reason, n in found.skipped.items())
    console.print(f"{found.model} on {corpus}: {found.n_sentences} sentences{left_out}")


@app.command()
def roles(
    model: shared.Model,
    corpus: shared.CorpusName,
    threshold: Annotated[float, typer.Option(help="How many times its even share.")] = 3.0,
    test: Annotated[str, typer.Option(help="z (the paper) or t (the authors' code).")] = "z",
    control: Annotated[
        str, typer.Option(help="Of false discoveries: none (the paper), bh or holm.")
    ] = "none",
    role: Annotated[list[str] | None, typer.Option(help="Only this role; may be repeated.")] = None,
    window: Annotated[int, typer.Option(help="How far the local sieves reach.")] = 2,
    direction: Annotated[
        str, typer.Option(help="Of the syntactic sieves: dep->head, head->dep or both.")
    ] = "dep->head",
    limit: shared.Limit = None,
    max_length: shared.MaxLength = 128,
    on_long: shared.OnLong = "truncate",
    batch_size: shared.BatchSize = 16,
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    json: shared.Json = False,
) -> None:
    """Test which functional roles every head has: local, block, delimiter, syntactic."""
    from attnlib.measuring import roles as found_roles
    from attnlib.measuring.stream import loaded
    from attnlib.metrics import sieves

    found_roles.check_test(threshold, test, control, on_long)
    chosen = sieves.chosen_sieves(role, window=window, direction=direction)
    encoder, texts = loaded(
        model, corpus, limit=limit, seed=seed, max_length=max_length, device=device
    )
    with bar(f"reading {corpus} with {model}"):
        scores = found_roles.role_scores(
            encoder, texts, chosen, max_length=max_length, batch_size=batch_size, on_long=on_long
        )
    table = found_roles.role_tests(
        found_roles.moments(scores, seed=seed), threshold=threshold, test=test, control=control
    )
    if json:
        print_json(found_roles.role_rows(table))
        return
    show_roles(table, scores.ceilings, threshold)


def show_roles(table: pd.DataFrame, ceilings: Mapping[str, float], threshold: float) -> None:
    """For every role, how many heads have it, the strongest of them, and how high it can get."""
    shown = []
    for role, rows in table.groupby("role", sort=False):
        have = rows[rows["assigned"]].sort_values("bias", ascending=False)
        names = [f"{r.layer}-{r.head} ({r.bias:.1f})" for r in have[:MOST_NAMED].itertuples()]
        more = " ..." if len(have) > MOST_NAMED else ""
        top = ceilings.get(str(role), math.nan)
        highest = "–" if math.isnan(top) else f"{top:.1f}"
        count, share = f"{len(have)} of {len(rows)}", f"{len(have) / len(rows):.0%}"
        inputs = f"{rows['n'].max():,}"
        shown.append((role, count, share, ", ".join(names) + more, inputs, highest))
    print_table(("role", "heads", "share", "strongest (bias)", "inputs", "highest"), shown)
    for role, top in ceilings.items():
        if top <= threshold:
            console.print(
                f"No head can have the role {role} here: a perfect one would score {top:.1f} on "
                f"average, the threshold is {threshold:g}."
            )
        elif math.isnan(top):
            console.print(f"No input defines the role {role}.")


@app.command()
def view(
    model: shared.Model,
    text: Annotated[list[str], typer.Argument(help="One or more texts to choose from.")],
    pair: Annotated[
        list[str] | None, typer.Option(help="Read with the text; repeat for more texts.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("view.html"),
    beside: Annotated[str | None, typer.Option(help="A second model to compare with.")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Colours the heads; may be repeated, see `metrics`.")
    ] = None,
    head: Annotated[str | None, typer.Option(help="The head to open first, such as 3-3.")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Pieces per text; the model's own limit by default.")
    ] = None,
    on_long: Annotated[str, typer.Option(help="Longer texts: error or truncate.")] = "error",
    device: shared.Device = "auto",
) -> None:
    """Write a page that shows every head on a text: lines or map, words or pieces, compared."""
    from attnlib.files import check_out
    from attnlib.measuring.reading import head_metrics, paired
    from attnlib.plots import viewer

    check_out(out)
    metrics = metric or viewer.METRICS
    head_metrics(metrics)  # a misspelt one is said before a model is loaded
    with bar(f"reading with {model}"):
        page = viewer.view(
            model,
            paired(text, pair or ()),
            beside=beside,
            metrics=metrics,
            head=head,
            max_length=max_length,
            on_long=on_long,
            device=device,
        )
    page.save(out)
    shared.messages.print(f"{out} ({out.stat().st_size / 1e6:.1f} MB): open it in any browser")
