"""The command `measure`: every head of a model on a corpus, as grids, JSON, or a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from attnlib.commands import shared
from attnlib.commands.shared import bar, console, messages, print_json

if TYPE_CHECKING:
    import numpy as np

    from attnlib.measuring.stream import Measurement
    from attnlib.metrics.registry import Metric

app = typer.Typer()

SHADES = ("#f7fbff", "#d6e6f4", "#abd0e6", "#6aaed6", "#3787c0", "#105ba4", "#08306b")


@app.command()
def measure(
    model: shared.Model,
    corpus: shared.CorpusName,
    metric: Annotated[list[str], typer.Argument(help="One or more metrics; see `metrics`.")],
    limit: shared.Limit = None,
    max_length: shared.MaxLength = 128,
    on_long: Annotated[
        str, typer.Option(help="Longer inputs: error, skip, truncate or window.")
    ] = "error",
    segment_ids: Annotated[
        str, typer.Option(help="pair: 0 and 1 as in pre-training; zeros: as Clark's code.")
    ] = "pair",
    batch_size: shared.BatchSize = 16,
    micro: Annotated[bool, typer.Option(help="Average over queries, not over inputs.")] = False,
    seed: shared.Seed = 0,
    device: shared.Device = "auto",
    engine: Annotated[str, typer.Option(help="local, or dask://HOST:PORT.")] = "local",
    out: Annotated[Path | None, typer.Option(help="Write the table: .parquet or .csv.")] = None,
    json: shared.Json = False,
) -> None:
    """Measure metrics of every head of a model on a corpus, with 95 % intervals."""
    from attnlib.files import check_out, write_whole
    from attnlib.measuring.engines import measure_on
    from attnlib.measuring.stream import chosen_metrics

    chosen_metrics(metric)  # a misspelt metric is said before a model is loaded
    if out is not None:
        check_out(out, (".parquet", ".csv"))
    with bar(f"measuring {model} on {corpus}"):
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
        )
    if out is not None:
        table = found.table(micro=micro)
        write = table.to_csv if out.suffix == ".csv" else table.to_parquet
        write_whole(out, lambda draft: write(draft, index=False))
        messages.print(f"{len(table)} rows in {out}")
    if json:
        print_json(as_json(found, micro=micro))
    elif out is None:
        show(found, micro=micro)


def as_json(found: Measurement, *, micro: bool = False) -> dict[str, Any]:
    """The measurement as programs read it; NaN is null."""
    import numpy as np

    metrics = {}
    for key in found.metrics:
        estimate = found.estimate(key, micro=micro)
        parts = {part: getattr(estimate, part) for part in ("mean", "low", "high", "n")}
        metrics[key] = {
            p: np.where(np.isnan(v), np.array(None), v).tolist() for p, v in parts.items()
        }
    whose = {"model": found.model, "corpus": found.corpus, "n_examples": found.n_examples}
    return {**whose, "skipped": found.skipped, "metrics": metrics}


def show(found: Measurement, *, micro: bool = False) -> None:
    """Every metric as a grid of heads that can be read at a glance."""
    for key, metric in found.metrics.items():
        grid = found.grid(key, micro=micro)
        if metric.axes == ("head",):
            console.print(_heading(metric))
            console.print(_grid(grid))
            console.print(_strongest(found, key, micro))
        else:
            axes = " x ".join(map(str, grid.shape))
            console.print(_heading(metric), f"{axes} numbers: use --out or --json to see them.\n")
    left_out = "".join(f", {n} {reason}" for reason, n in found.skipped.items())
    examples = f"{found.n_examples} examples{left_out}; {found.seconds:.1f} s"
    console.print(f"{found.model} on {found.corpus}: {examples}")


def _heading(metric: Metric) -> Text:
    low, high = (b if isinstance(b, str) else f"{b:.3g}" for b in metric.bounds)
    return Text.assemble(
        (metric.key, "bold"), f"  {metric.what}  ", (f"{metric.unit}, {low} to {high}", "dim")
    )


def _grid(values: np.ndarray) -> Table:
    """Layers down, heads across; the darker, the larger within this metric."""
    table = Table(box=None, pad_edge=False, padding=(0, 0), collapse_padding=True)
    table.add_column("layer", justify="right", style="dim")
    for head in range(values.shape[1]):
        table.add_column(f"{head + 1:>5} ", justify="right")
    defined = [value for value in values.ravel().tolist() if not math.isnan(value)]
    low, high = (min(defined), max(defined)) if defined else (0.0, 0.0)
    for layer, row in enumerate(values.tolist()):
        table.add_row(f"{layer + 1} ", *(_cell(value, low, high) for value in row))
    return table


def _cell(value: float, low: float, high: float) -> Text:
    if math.isnan(value):
        return Text("   –  ", style="dim")
    share = (value - low) / (high - low) if high > low else 0.0
    shade = round(share * (len(SHADES) - 1))
    ink = "#ffffff" if shade >= len(SHADES) // 2 + 1 else "#08306b"
    return Text(f" {value:.2f} ", style=f"{ink} on {SHADES[shade]}")


def _strongest(found: Measurement, key: str, micro: bool, n: int = 3) -> str:
    """The heads with the largest means, with their intervals."""
    from attnlib.measuring.head_tables import head_names

    table = found.table_of(key, micro=micro).dropna(subset="mean")
    if table.empty:
        return "defined for no example of this corpus\n"
    top, most = table.nlargest(n, "mean"), table["n"].max()
    ends = zip(head_names(top), top["mean"], top["low"], top["high"], strict=True)
    names = [f"{name} {mean:.3f} [{low:.3f}, {high:.3f}]" for name, mean, low, high in ends]
    over = f"; over {most} examples" if most < found.n_examples else ""
    return f"strongest heads, with 95 % intervals: {' · '.join(names)}{over}\n"
