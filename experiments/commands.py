"""Commands that need the experiments: heads changed, the atlas, a sheet of maps, benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from attnlib.commands.shared import Json, bar, console, messages, print_json
from attnlib.errors import AttnlibError

app = typer.Typer()


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
    from experiments.shared.ablate_command import ablation, head_words, show_ablation

    chosen = head_words(heads or (), layer or (), kind or ())
    with bar(f"answering {task} with {model}"):
        table = ablation(
            model,
            task,
            chosen,
            how={
                **{"mode": mode, "unit": unit, "specials": specials},
                **{"renormalise": renormalise, "length": length},
            },
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
        )
    if json:
        print_json(records(table))
        return
    show_ablation(table)


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
    from experiments.atlas.page import save_page

    if out.suffix != ".json":
        check_out(out)
    found = known_atlas(model, edition) or made_atlas(
        model, edition=edition or "pocket", say=messages.print
    )
    written = found.save(out) if out.suffix == ".json" else save_page(found, out)
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
