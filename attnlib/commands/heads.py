"""What heads do: measured, tested, changed, shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from attnlib.commands.shared import Json, console, messages, progress

app = typer.Typer()


@app.command()
def measure(
    model: Annotated[str, typer.Argument(help="A model's name, its folder, or a hub id.")],
    corpus: Annotated[str, typer.Argument(help="A corpus, or a .txt, .jsonl or .conllu file.")],
    metric: Annotated[list[str], typer.Argument(help="One or more metrics; see `metrics`.")],
    limit: Annotated[int | None, typer.Option(help="At most this many examples.")] = None,
    max_length: Annotated[int, typer.Option(help="Pieces per input, special ones too.")] = 128,
    on_long: Annotated[
        str, typer.Option(help="Longer inputs: error, skip, truncate or window.")
    ] = "error",
    segment_ids: Annotated[
        str, typer.Option(help="pair: 0 and 1 as in pre-training; zeros: as Clark's code.")
    ] = "pair",
    batch_size: Annotated[int, typer.Option(help="Inputs per forward pass.")] = 16,
    micro: Annotated[bool, typer.Option(help="Average over queries, not over inputs.")] = False,
    seed: Annotated[int, typer.Option(help="Which inputs a limit picks.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    engine: Annotated[str, typer.Option(help="local, or dask://HOST:PORT.")] = "local",
    out: Annotated[Path | None, typer.Option(help="Write the table: .parquet or .csv.")] = None,
    json: Json = False,
) -> None:
    """Measure metrics of every head of a model on a corpus, with 95 % intervals."""
    from attnlib.measuring import report
    from attnlib.measuring.engines import measure_on
    from attnlib.measuring.stream import chosen_metrics

    chosen_metrics(metric)  # a misspelt metric is said before a model is loaded
    if out is not None:
        report.check_out(out)
    with progress() as bar:
        task = bar.add_task(f"measuring {model} on {corpus}", total=None)
        found = measure_on(
            engine,
            model,
            corpus,
            metric,
            limit=limit,
            max_length=max_length,
            on_long=on_long,
            segment_ids=segment_ids,
            batch_size=batch_size,
            seed=seed,
            device=device,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if out is not None:
        report.write(found, out, micro=micro)
        messages.print(f"{len(found.table(micro=micro))} rows in {out}")
    if json:
        print(report.dump(report.as_json(found, micro=micro)))
    elif out is None:
        report.show(found, console, micro=micro)


@app.command()
def heads(
    model: Annotated[str, typer.Argument(help="A model's name, its folder, or a hub id.")],
    corpus: Annotated[str, typer.Argument(help="A treebank, or a .conllu file.")],
    relation: Annotated[
        list[str] | None, typer.Option(help="Only this relation, or all; may be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="At most this many sentences.")] = None,
    max_length: Annotated[int, typer.Option(help="Pieces per sentence, special ones too.")] = 128,
    on_long: Annotated[
        str, typer.Option(help="Longer sentences: error, skip or truncate.")
    ] = "skip",
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
        bool, typer.Option(help="Let 's stand for its possessor, as Clark's Table 1 does.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Sentences per forward pass.")] = 16,
    seed: Annotated[int, typer.Option(help="Of the limit, the halves and the intervals.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    json: Json = False,
) -> None:
    """Find the best head for every dependency relation, beside the best fixed offset."""
    from attnlib.errors import check_choice
    from attnlib.measuring import best_heads as choosing
    from attnlib.measuring import prediction
    from attnlib.measuring.report import dump
    from attnlib.models import load_encoder

    check_choice("variant", variant, choosing.VARIANTS)
    prediction.check_at_least_one("min-count", min_count)
    trees = prediction.load_trees(corpus, limit=limit, seed=seed)
    # a misspelt relation is said before a model is loaded
    prediction.check_relations(relation or (), prediction.tree_relations(trees.examples))
    with progress() as bar:
        task = bar.add_task(f"reading {corpus} with {model}", total=None)
        found = prediction.predictions(
            load_encoder(model, device=device),
            trees.examples,
            from_pieces=from_pieces,
            max_length=max_length,
            batch_size=batch_size,
            on_long=on_long,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
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
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
        print(dump(rows))
        return
    shown = Table("relation", "n", "head", "direction", "accuracy %", "offset %", "gain", box=None)
    shown.add_column("on other half")
    for row in table.itertuples():
        known = isinstance(row.clean_head, str)
        clean = f"{row.clean_accuracy:.1f} by {row.clean_head}" if known else "–"
        shown.add_row(
            row.relation,
            str(row.n),
            row.head,
            row.direction,
            f"{row.accuracy:.1f} [{row.low:.1f}, {row.high:.1f}]",
            f"{row.baseline:.1f} ({row.offset:+d})",
            f"{row.gain:+.1f} [{row.gain_low:+.1f}, {row.gain_high:+.1f}]",
            clean,
        )
    console.print(shown)
    left_out = "".join(f", {n} {reason}" for reason, n in found.skipped.items())
    console.print(f"{found.model} on {corpus}: {found.n_sentences} sentences{left_out}")


@app.command()
def roles(
    model: Annotated[str, typer.Argument(help="A model's name, its folder, or a hub id.")],
    corpus: Annotated[str, typer.Argument(help="A corpus name, or your .txt, .jsonl, .conllu.")],
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
    limit: Annotated[int | None, typer.Option(help="At most this many inputs.")] = None,
    max_length: Annotated[int, typer.Option(help="Pieces per input, special ones too.")] = 128,
    on_long: Annotated[
        str, typer.Option(help="Longer inputs: error, skip or truncate.")
    ] = "truncate",
    batch_size: Annotated[int, typer.Option(help="Inputs per forward pass.")] = 16,
    seed: Annotated[int, typer.Option(help="Of the limit and the intervals.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    json: Json = False,
) -> None:
    """Test which functional roles every head has: local, block, delimiter, syntactic."""
    from attnlib.data.corpora import load_corpus
    from attnlib.measuring import roles as found_roles
    from attnlib.measuring.report import dump, show_roles
    from attnlib.metrics import sieves
    from attnlib.models import load_encoder

    found_roles.check_test(threshold, test, control, on_long)
    chosen = sieves.chosen_sieves(role, window=window, direction=direction)
    encoder = load_encoder(model, device=device)
    texts = load_corpus(
        corpus, limit=limit, seed=seed, tokenizer=encoder.tokenizer, max_length=max_length
    )
    with progress() as bar:
        task = bar.add_task(f"reading {corpus} with {model}", total=None)
        scores = found_roles.role_scores(
            encoder,
            texts,
            chosen,
            max_length=max_length,
            batch_size=batch_size,
            on_long=on_long,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    table = found_roles.role_tests(
        found_roles.moments(scores, seed=seed), threshold=threshold, test=test, control=control
    )
    if json:
        print(dump(found_roles.role_rows(table)))
        return
    show_roles(table, scores.ceilings, threshold, console)


@app.command()
def view(
    model: Annotated[str, typer.Argument(help="A model's name, its folder, or a hub id.")],
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
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Write a page that shows every head on a text: lines or map, words or pieces, compared."""
    from attnlib.plots import viewdata, viewer

    viewer.check_out(out)
    metrics = metric or viewer.METRICS
    viewdata.head_metrics(metrics)  # a misspelt one is said before a model is loaded
    with progress() as bar:
        task = bar.add_task(f"reading with {model}", total=None)
        page = viewer.view(
            model,
            viewdata.paired(text, pair or ()),
            beside=beside,
            metrics=metrics,
            head=head,
            max_length=max_length,
            on_long=on_long,
            device=device,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    page.save(out)
    messages.print(f"{out} ({out.stat().st_size / 1e6:.1f} MB): open it in any browser")
