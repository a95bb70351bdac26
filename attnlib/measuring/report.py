"""A measurement on the terminal, as JSON, or in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlib.errors import BadValue
from attnlib.files import written_whole
from attnlib.measuring.stream import Measurement
from attnlib.metrics.registry import Metric

SHADES = ("#f7fbff", "#d6e6f4", "#abd0e6", "#6aaed6", "#3787c0", "#105ba4", "#08306b")
OUT_FORMATS = (".parquet", ".csv")
RANDOM_SETS = (
    "random: the mean over random sets of as many heads of the same layers; p: the share of sets, "
    "ours counted, that cost as much."
)


def as_json(found: Measurement, *, micro: bool = False) -> dict[str, Any]:
    """The measurement as programs read it; NaN is null."""
    return {
        "model": found.model,
        "corpus": found.corpus,
        "n_examples": found.n_examples,
        "skipped": found.skipped,
        "metrics": {
            key: {
                part: _plain(getattr(found.estimate(key, micro=micro), part))
                for part in ("mean", "low", "high", "n")
            }
            for key in found.metrics
        },
    }


def _plain(values: Any) -> Any:
    """Nested lists of numbers, as JSON knows them."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return None if isinstance(values, float) and math.isnan(values) else values


def check_out(path: Path) -> None:
    """Refuse a file we could not write before anything is computed."""
    if path.suffix not in OUT_FORMATS:
        raise BadValue(f"--out '{path}' ends in '{path.suffix}'; expected .parquet or .csv.")
    if not path.absolute().parent.is_dir():
        raise BadValue(f"--out '{path}': its folder does not exist. Create it first.")


def write(found: Measurement, path: Path, *, micro: bool = False) -> None:
    """The tidy table in a file, whole or not at all."""
    check_out(path)
    table = found.table(micro=micro)
    try:
        with written_whole(path) as draft:
            if path.suffix == ".csv":
                table.to_csv(draft, index=False)
            else:
                table.to_parquet(draft, index=False)
    except OSError as error:
        raise BadValue(f"--out '{path}' cannot be written ({error.strerror}).") from None


def show(found: Measurement, console: Console, *, micro: bool = False) -> None:
    """Every metric as a grid of heads that can be read at a glance."""
    for key, metric in found.metrics.items():
        if metric.axes == ("head",):
            console.print(_heading(metric))
            console.print(_grid(found.grid(key, micro=micro)))
            console.print(_strongest(found, key, micro))
        else:
            axes = " x ".join(map(str, found.grid(key, micro=micro).shape))
            console.print(_heading(metric), f"{axes} numbers: use --out or --json to see them.\n")
    console.print(_footer(found))


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
    shades = _shades(values)
    for layer, row in enumerate(values):
        cells = [_cell(value, shade) for value, shade in zip(row, shades[layer], strict=True)]
        table.add_row(f"{layer + 1} ", *cells)
    return table


def _shades(values: np.ndarray) -> np.ndarray:
    """Which of the shades each value takes, from the smallest to the largest."""
    low, high = np.nanmin(values, initial=np.inf), np.nanmax(values, initial=-np.inf)
    scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return np.nan_to_num(scaled * (len(SHADES) - 1)).round().astype(int)


def _cell(value: float, shade: int) -> Text:
    if math.isnan(value):
        return Text("   –  ", style="dim")
    ink = "#ffffff" if shade >= len(SHADES) // 2 + 1 else "#08306b"
    return Text(f" {value:.2f} ", style=f"{ink} on {SHADES[shade]}")


def _strongest(found: Measurement, key: str, micro: bool, n: int = 3) -> str:
    """The heads with the largest means, with their intervals."""
    got = found.estimate(key, micro=micro)
    if np.isnan(got.mean).all():
        return "defined for no example of this corpus\n"
    order = np.argsort(np.where(np.isnan(got.mean), -np.inf, got.mean), axis=None)[::-1][:n]
    names = []
    for layer, head in zip(*np.unravel_index(order, got.mean.shape), strict=True):
        mean, low, high = got.mean[layer, head], got.low[layer, head], got.high[layer, head]
        names.append(f"{layer + 1}-{head + 1} {mean:.3f} [{low:.3f}, {high:.3f}]")
    over = f"; over {got.n.max()} examples" if got.n.max() < found.n_examples else ""
    return f"strongest heads, with 95 % intervals: {' · '.join(names)}{over}\n"


def _footer(found: Measurement) -> str:
    left_out = ", ".join(f"{n} {reason}" for reason, n in found.skipped.items())
    return (
        f"{found.model} on {found.corpus}: {found.n_examples} examples"
        f"{f', {left_out}' if left_out else ''}; {found.seconds:.1f} s"
    )


def dump(value: Any) -> str:
    """JSON text; a NaN that slipped through is an error, not an invalid document."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


MOST_NAMED = 8


def show_roles(
    table: pd.DataFrame, ceilings: Mapping[str, float], threshold: float, console: Console
) -> None:
    """For every role, how many heads have it, the strongest of them, and how high it can get."""
    shown = Table("role", "heads", "share", "strongest (bias)", "inputs", "highest", box=None)
    for role, rows in table.groupby("role", sort=False):
        have = rows[rows["assigned"]].sort_values("bias", ascending=False)
        names = [f"{r.layer}-{r.head} ({r.bias:.1f})" for r in have[:MOST_NAMED].itertuples()]
        more = " ..." if len(have) > MOST_NAMED else ""
        top = ceilings.get(str(role), math.nan)
        shown.add_row(
            str(role),
            f"{len(have)} of {len(rows)}",
            f"{len(have) / len(rows):.0%}",
            ", ".join(names) + more,
            f"{rows['n'].max():,}",
            "–" if math.isnan(top) else f"{top:.1f}",
        )
    console.print(shown)
    for role, top in ceilings.items():
        if top <= threshold:
            console.print(
                f"No head can have the role {role} here: a perfect one would score {top:.1f} on "
                f"average, the threshold is {threshold:g}."
            )
        elif math.isnan(top):
            console.print(f"No input defines the role {role}.")


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
