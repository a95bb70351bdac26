"""Commands that need the experiments: heads changed, the atlas, a sheet of maps, benchmarks."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from attnlib.commands.shared import Json, console, messages, print_json, progress
from attnlib.errors import AttnlibError

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer()

RANDOM_SETS = (
    "random: the mean over random sets of as many heads of the same layers; p: the share of sets, "
    "ours counted, that cost as much."
)


@app.command()
def ablate(
    model: Annotated[str, typer.Argument(help="A model's name, its folder, or a hub id.")],
    task: Annotated[
        str, typer.Argument(help="Questions to answer (squad:dev), or a task (rte, mrpc:test).")
    ],
    heads: Annotated[
        list[str] | None, typer.Option(help="Heads such as 5-4,8-10, 5-* or *-4; repeat.")
    ] = None,
    layer: Annotated[list[int] | None, typer.Option(help="A whole layer; repeat.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", help="Heads of a type, such as diagonal; repeat.")
    ] = None,
    each: Annotated[bool, typer.Option(help="Every head alone, instead of these.")] = False,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            "--action",
            help="zero; uniform; intra or inter: no attention within, or between, sentences.",
        ),
    ] = "zero",
    train: Annotated[
        str | None,
        typer.Option(help="What to learn from; a task's own training inputs if none is named."),
    ] = None,
    train_limit: Annotated[int | None, typer.Option(help="At most so many of them.")] = None,
    epochs: Annotated[int, typer.Option(help="Of training.")] = 1,
    learning_rate: Annotated[float, typer.Option(help="Of training, at its highest.")] = 2e-4,
    draws: Annotated[int, typer.Option(help="Random sets of heads of the same layers.")] = 10,
    unit: Annotated[str, typer.Option(help="Of intra, inter: sentence, segment.")] = "sentence",
    specials: Annotated[
        str, typer.Option(help="[CLS], [SEP]: of their sentence, or kept.")
    ] = "sentence",
    renormalise: Annotated[bool, typer.Option(help="Rows sum to 1 again after a cut.")] = False,
    length: Annotated[str, typer.Option(help="L of uniform: real, padded, or a number.")] = "real",
    limit: Annotated[int | None, typer.Option(help="At most this many inputs.")] = 100,
    max_length: Annotated[
        int | None,
        typer.Option(help="Pieces of an input; 128, of questions 256 or the model's own."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of limits, training and random sets.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    json: Json = False,
) -> None:
    """Change heads of a model that has learnt a task; see what that costs, beside random heads."""
    from attnlib.measuring.head_tables import records
    from experiments.shared.ablate_command import ablation, head_words, manner

    chosen = head_words(heads or (), layer or (), kind or ())
    how = manner(mode, unit=unit, specials=specials, renormalise=renormalise, length=length)
    with progress(f"answering {task} with {model}") as tick:
        table = ablation(
            model,
            task,
            chosen,
            how=how,
            each=each,
            train=train,
            train_limit=train_limit,
            epochs=epochs,
            learning_rate=learning_rate,
            limit=limit,
            max_length=max_length,
            draws=draws,
            seed=seed,
            device=device,
            progress=tick,
        )
    if json:
        print_json(records(table))
        return
    show_ablation(table, console)


def show_ablation(table: pd.DataFrame, console: Console) -> None:
    """A few variants with their scores, or all heads with what each costs."""
    if "metric" in table:
        _show_task_ablation(table, console)
        return
    if "what" not in table:
        shown = Table("head", "loss", "F1 lost", "95 %", box=None)
        for row in table.itertuples():
            loss = "–" if math.isnan(row.loss) else f"{row.loss:+.3f}"
            shown.add_row(f"{row.layer}-{row.head}", loss, f"{row.lost:+.1f}", _ends(row))
        console.print(shown)
        console.print("loss: rise of the right answer's cross-entropy, in nats.")
        return
    columns = ("exact match", "F1", "95 %", "F1 lost", "95 %", "p")
    shown = Table("heads", "number", *columns, box=None)
    for row in table.itertuples():
        shown.add_row(
            str(row.what),
            str(row.n_heads),
            f"{row.em:.1f}",
            f"{row.f1:.1f}",
            "–" if math.isnan(row.f1_low) else f"{row.f1_low:.1f} to {row.f1_high:.1f}",
            f"{row.lost:+.1f}",
            "–" if row.what == "as it is" else _ends(row),
            "–" if math.isnan(row.p) else f"{row.p:.2f}",
        )
    console.print(shown)
    n = int(table["n_questions"].iloc[0])
    console.print(f"{n} questions. {RANDOM_SETS}")


def _ends(row: Any) -> str:
    """The interval of a loss; a dash where there was nothing to draw again."""
    return "–" if math.isnan(row.low) else f"{row.low:+.1f} to {row.high:+.1f}"


def _show_task_ablation(table: pd.DataFrame, console: Console) -> None:
    """The same of a task: its own metric, in points, and what is lost with its interval."""
    n, metric = int(table["n_inputs"].iloc[0]), table["metric"].iloc[0]
    if "what" not in table:
        shown = Table("head", "points lost", "95 %", "p", "q", box=None)
        for row in table.itertuples():
            name = f"{row.layer}-{row.head}" if row.head else f"layer {row.layer}"
            shown.add_row(name, f"{row.lost:+.1f}", _ends(row), f"{row.p:.3f}", f"{row.q:.3f}")
        console.print(shown)
        console.print(f"{metric} on {n} inputs; q: false discoveries controlled.")
        return
    shown = Table("heads", "number", str(metric), "points lost", "95 %", "p", box=None)
    for row in table.itertuples():
        ends = "–" if row.what == "as it is" else _ends(row)
        p = "–" if math.isnan(row.p) else f"{row.p:.2f}"
        score, lost = f"{row.score:.1f}", f"{row.lost:+.1f}"
        shown.add_row(str(row.what), str(row.n_heads), score, lost, ends, p)
    console.print(shown)
    console.print(f"{n} inputs. {RANDOM_SETS}")


@app.command()
def atlas(
    model: Annotated[str, typer.Argument(help="A known model, a folder, or a hub id.")],
    out: Annotated[Path, typer.Option(help="The page to write, .html, or its data, .json.")] = Path(
        "atlas.html"
    ),
    edition: Annotated[
        str | None,
        typer.Option(help="Whose run to take, instead of the published atlas or the latest run."),
    ] = None,
) -> None:
    """Write the atlas of a model: a card for every head, searchable, in one page."""
    from attnlib.files import check_out
    from experiments.atlas.making import known_atlas, made_atlas
    from experiments.atlas.page import AtlasView

    if out.suffix != ".json":
        check_out(out)
    found = known_atlas(model, edition) or made_atlas(
        model, edition=edition or "pocket", say=messages.print
    )
    written = found.save(out) if out.suffix == ".json" else AtlasView(found).save(out)
    console.print(f"{written} ({written.stat().st_size / 1e6:.1f} MB)")


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
    from experiments.kovaleva2019.mapsheet import write_sheet

    for path in write_sheet(out, model=model, each=each, seed=seed, device=device):
        console.print(f"{path}", soft_wrap=True)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option(help="Fewer rounds: a glance, not a verdict.")] = False,
    json: Json = False,
) -> None:
    """Time attnlib beside the baselines; every number is a ratio within this run."""
    import importlib

    root = Path(__file__).parents[1]
    if not (root / "bench" / "run.py").is_file():
        raise AttnlibError("the benchmarks are part of the checkout, not of the installed package.")
    sys.path.insert(0, str(root))
    found = importlib.import_module("bench.run").all_benchmarks(quick)
    if json:
        print_json(found)
        return
    for name, ratio in found.items():
        console.print(f"{ratio:8.3f}  {name}")
