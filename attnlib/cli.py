"""The `attnlib` command: each command is a call into the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from attnlib.errors import AttnlibError

app = typer.Typer(
    name="attnlib",
    help="What attention heads do: fetch models and texts, measure heads, build the book.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
console = Console(width=None if sys.stdout.isatty() else 160)
messages = Console(stderr=True)

INTERRUPTED = 130
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def main() -> None:
    """Run a command; what the user can mend is one sentence on stderr and exit code 2."""
    try:
        app(_joined_parameters(sys.argv[1:]))
    except AttnlibError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # the command line library has caught Ctrl-C
            print("Interrupted; nothing was left half written.", file=sys.stderr)
        raise


def _joined_parameters(words: list[str]) -> list[str]:
    """`-p name value`, as papermill has it, becomes `-p name=value`, which the parser knows."""
    joined = list(words)
    for at in range(len(joined) - 2, 0, -1):
        if joined[at - 1] == "-p" and "=" not in joined[at]:
            joined[at : at + 2] = [f"{joined[at]}={joined[at + 1]}"]
    return joined


@app.command()
def assets(
    json: Json = False,
    verify: Annotated[bool, typer.Option(help="Hash every file that is present.")] = False,
) -> None:
    """List models and data: what is present, its size and licence, where it comes from."""
    from attnlib import assets as shelf
    from attnlib.report import dump

    rows = shelf.status(verify=verify)
    if json:
        print(dump(rows))
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
    from attnlib import assets as shelf

    shelf.fetch(shelf.expand(names), force=force)


@app.command()
def metrics(json: Json = False) -> None:
    """List every metric: what it measures, its unit and bounds, the paper it comes from."""
    from attnlib.report import dump
    from attnlib.stream import METRICS

    if json:
        keys = ("key", "what", "source", "unit", "bounds", "axes", "scope", "variants")
        print(dump([{key: getattr(m, key) for key in keys} for m in METRICS.values()]))
        return
    table = Table("metric", "what it measures", "unit", "bounds", "source", box=None)
    for m in METRICS.values():
        bounds = " to ".join(b if isinstance(b, str) else f"{b:.3g}" for b in m.bounds)
        table.add_row(m.key, m.what, m.unit, bounds, m.source)
    console.print(table)


@app.command()
def relations(json: Json = False) -> None:
    """List every relation between a query and a key, and the sieves of roles."""
    from attnlib.relations import RELATIONS
    from attnlib.report import dump
    from attnlib.sieves import SIEVES

    keys = ("key", "what", "asked_of", "positional", "metric_key")
    rows = [{key: getattr(r, key) for key in keys} for r in RELATIONS.values()]
    rows += [
        {key: getattr(s, key) for key in keys} | {"metric_key": f"bias_{role}"}
        for role, s in SIEVES.items()
    ]
    if json:
        print(dump(rows))
        return
    table = Table("relation", "holds for", "asked of", "metric", box=None)
    for row in rows:
        table.add_row(row["key"], row["what"], f"{row['asked_of']} query", row["metric_key"])
    console.print(table)


@app.command()
def corpora(json: Json = False) -> None:
    """List every corpus: its kind, what it is, the asset it is read from."""
    from attnlib.corpora import known_corpora
    from attnlib.report import dump

    rows = list(known_corpora().values())
    if json:
        print(dump([{k: getattr(r, k) for k in ("name", "kind", "asset", "what")} for r in rows]))
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
    from attnlib import reader as shelf
    from attnlib.parse import tagger
    from attnlib.reader import terminal
    from attnlib.reader.stats import n_words, statistics
    from attnlib.report import dump

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
            print(dump(counts))
            return
        for key, value in counts.items():
            console.print(f"{key.replace('_', ' '):26} {terminal.listed(value)}")
    else:
        rows = [
            {"id": one.id, "title": one.title, "register": one.register, "words": n_words(one)}
            for one in passages
        ]
        if json:
            print(dump(rows))
            return
        table = Table("passage", "title", "register", "words", box=None)
        for row in rows:
            table.add_row(*map(str, row.values()))
        console.print(table)


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
    from attnlib import report
    from attnlib.engine import measure_on
    from attnlib.stream import chosen_metrics

    chosen_metrics(metric)  # a misspelt metric is said before a model is loaded
    if out is not None:
        report.check_out(out)
    with _progress() as bar:
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
    from attnlib import bestheads, prediction
    from attnlib.errors import check_choice
    from attnlib.models import load_encoder
    from attnlib.report import dump

    check_choice("variant", variant, bestheads.VARIANTS)
    prediction.check_at_least_one("min-count", min_count)
    trees = prediction.load_trees(corpus, limit=limit, seed=seed)
    # a misspelt relation is said before a model is loaded
    prediction.check_relations(relation or (), prediction.tree_relations(trees.examples))
    with _progress() as bar:
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
    table = bestheads.best_heads(
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
    from attnlib import roles as found_roles
    from attnlib import sieves
    from attnlib.corpora import load_corpus
    from attnlib.models import load_encoder
    from attnlib.report import dump, show_roles

    found_roles.check_test(threshold, test, control, on_long)
    chosen = sieves.chosen_sieves(role, window=window, direction=direction)
    encoder = load_encoder(model, device=device)
    texts = load_corpus(
        corpus, limit=limit, seed=seed, tokenizer=encoder.tokenizer, max_length=max_length
    )
    with _progress() as bar:
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
def ablate(
    model: Annotated[str, typer.Argument(help="A model's name, its folder, or a hub id.")],
    questions: Annotated[str, typer.Argument(help="A corpus of questions to answer.")],
    heads: Annotated[
        list[str] | None, typer.Option(help="5-4, 5-*, *-4, or a type such as diagonal; repeat.")
    ] = None,
    action: Annotated[str, typer.Option(help="zero, uniform, no_intra or no_inter.")] = "zero",
    each: Annotated[bool, typer.Option(help="Every head alone, instead of --heads.")] = False,
    train: Annotated[
        str | None, typer.Option(help="Questions to learn from; none if the model can answer.")
    ] = None,
    train_limit: Annotated[int | None, typer.Option(help="At most so many of them.")] = None,
    epochs: Annotated[int, typer.Option(help="Of training.")] = 1,
    learning_rate: Annotated[float, typer.Option(help="Of training, at its highest.")] = 2e-4,
    draws: Annotated[int, typer.Option(help="Random sets of heads of the same layers.")] = 10,
    unit: Annotated[
        str, typer.Option(help="Of no_intra, no_inter: sentence, segment.")
    ] = "sentence",
    specials: Annotated[
        str, typer.Option(help="[CLS], [SEP]: of their sentence, or kept.")
    ] = "sentence",
    renormalise: Annotated[bool, typer.Option(help="Rows sum to 1 again after a cut.")] = False,
    length: Annotated[str, typer.Option(help="L of uniform: real, padded, or a number.")] = "real",
    limit: Annotated[int | None, typer.Option(help="At most this many questions.")] = 100,
    max_length: Annotated[
        int | None, typer.Option(help="Pieces of a question and its text; 256, or the model's own.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of limits, training and random sets.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    json: Json = False,
) -> None:
    """Change heads of a question answering model and see what that costs, beside random heads."""
    from attnlib.corpora import load_corpus
    from attnlib.guan2020 import command
    from attnlib.guan2020.subjects import reader_of
    from attnlib.interventions import Intervention
    from attnlib.models import load_encoder
    from attnlib.report import dump, show_ablation
    from attnlib.training import Recipe

    # Without heads: refuses what it cannot do, before any work.
    pieces = int(length) if length.isdigit() else length
    how = vars(Intervention(frozenset(), action, unit, specials, renormalise, pieces)).copy()
    del how["heads"]
    encoder = load_encoder(model, device=device)
    width = max_length or min(256, encoder.max_length)
    recipe = Recipe(epochs, 16, learning_rate, max_length=width, seed=seed)
    asked = load_corpus(questions, limit=limit, seed=seed, tokenizer=encoder.tokenizer)
    command.check_questions(asked)
    command.check_heads(heads or (), each, encoder)
    learnt = [load_corpus(train, limit=train_limit, seed=seed)] if train else []
    with _progress() as bar:
        task = bar.add_task(f"answering {questions} with {model}", total=None)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        reader = reader_of(*learnt, encoder=encoder, recipe=vars(recipe), progress=tell)
        reader = reader if max_length is None else reader.reading(max_length)
        if each:
            table = command.each_head(reader, asked, progress=tell, **how)
        else:
            chosen = command.chosen_heads(heads or (), reader.encoder, asked, width)
            table = command.ablation(
                reader, asked, chosen, draws=draws, seed=seed, progress=tell, **how
            )
    if json:
        print(dump(table.astype(object).where(table.notna(), None).to_dict("records")))
        return
    show_ablation(table, console)


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
    from attnlib import viewdata, viewer

    viewer.check_out(out)
    metrics = metric or viewer.METRICS
    viewdata.head_metrics(metrics)  # a misspelt one is said before a model is loaded
    with _progress() as bar:
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
def atlas(
    model: Annotated[str, typer.Argument(help="A known model, a folder, or a hub id.")],
    out: Annotated[Path, typer.Option(help="The page to write, .html, or its data, .json.")] = Path(
        "atlas.html"
    ),
    edition: Annotated[
        str, typer.Option(help="Whose settings to use where a model has no atlas yet.")
    ] = "pocket",
) -> None:
    """Write the atlas of a model: a card for every head, searchable, in one page."""
    from attnlib.atlases import known_atlas, made_atlas
    from attnlib.atlaspage import AtlasView
    from attnlib.viewer import check_out

    if out.suffix != ".json":
        check_out(out)
    found = known_atlas(model) or made_atlas(model, edition=edition, say=messages.print)
    written = found.save(out) if out.suffix == ".json" else AtlasView(found).save(out)
    console.print(f"{written} ({written.stat().st_size / 1e6:.1f} MB)")


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
def bench(
    quick: Annotated[bool, typer.Option(help="Fewer rounds: a glance, not a verdict.")] = False,
    json: Json = False,
) -> None:
    """Time attnlib beside the baselines; every number is a ratio within this run."""
    import importlib

    from attnlib.report import dump

    root = Path(__file__).parent.parent
    if not (root / "bench" / "run.py").is_file():
        raise AttnlibError("the benchmarks are part of the checkout, not of the installed package.")
    sys.path.insert(0, str(root))
    found = importlib.import_module("bench.run").all_benchmarks(quick)
    if json:
        print(dump(found))
        return
    for name, ratio in found.items():
        console.print(f"{ratio:8.3f}  {name}")


def _progress() -> Progress:
    """A bar on stderr that leaves nothing behind, and none where nobody looks."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=messages,
        transient=True,
        disable=not messages.is_terminal,
    )
