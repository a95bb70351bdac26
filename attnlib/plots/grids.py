"""Heads as a grid or in order of strength: where in the network a quantity lives."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_name, head_names
from attnlib.plots import style
from attnlib.plots.drawing import Drawing
from attnlib.plots.labels import (
    as_list,
    heads_in_words,
    is_share,
    label,
    metric_rows,
    plural,
    top_heads,
    unit,
    upper,
    upper_bound,
)
from attnlib.plots.panels import light_grid, metric_panels


def head_grid(
    table: pd.DataFrame, metric: str | Sequence[str], *, marked: int = 3, caption: str | None = None
) -> Drawing:
    """One cell per head, layers downwards: where in the network a quantity lives.

    Shares of attention are all drawn from 0 to 1, so that two grids can be compared by eye; the
    `marked` strongest heads carry their value.
    """
    metrics = as_list(metric)
    rows = metric_rows(table, metrics)
    with style.drawing():
        figure, panels = metric_panels(len(metrics), columns=2, aspect=0.86)
        for panel, key in zip(panels, metrics, strict=True):
            _grid_panel(panel, rows[rows["metric"] == key], key, marked, titled=len(metrics) > 1)
    told = "; ".join(
        f"{label(key)} in {heads_in_words(top_heads(rows, key, marked))}" for key in metrics
    )
    first = "; ".join(
        f"{label(key)} in {heads_in_words(top_heads(rows, key, 1))}" for key in metrics
    )
    text = f"One cell per head, layers downwards. Highest: {first if len(metrics) > 1 else told}."
    alt = f"{plural(len(metrics), 'heat map')}, layers as rows, heads as columns. Highest: {told}."
    return Drawing(figure, caption or text, alt, rows)


def strongest_heads(
    table: pd.DataFrame, metric: str, n: int = 5, *, caption: str | None = None
) -> Drawing:
    """The n heads with the highest mean, with their intervals: who does it, and how surely."""
    if n < 1:
        raise BadValue(f"n is {n}; at least one head can be shown. Give n=1 or more.")
    rows = top_heads(metric_rows(table, [metric]), metric, n)
    with style.drawing():
        height = 0.75 + 0.27 * len(rows)
        figure = Figure(figsize=(style.WIDTHS["column"], height), layout="constrained")
        _interval_panel(figure.subplots(), rows, metric)
    spoken = heads_in_words(rows)
    text = f"The {len(rows)} heads with the most {label(metric)}, with 95% intervals: {spoken}."
    alt = f"Dots with intervals for {len(rows)} heads, {label(metric)}: {spoken}."
    return Drawing(figure, caption or text, alt, rows)


@dataclass(frozen=True)
class HeadTable:
    """The strongest heads of several metrics as a table for the page; `.table` holds its rows."""

    caption: str
    table: pd.DataFrame = field(repr=False)

    def _repr_html_(self) -> str:
        head = "<tr><th>metric</th><th>head</th><th>mean</th><th>95% interval</th><th></th></tr>"
        tops = self.table.groupby("metric")["mean"].max()
        first = ~self.table["metric"].duplicated()
        body = "".join(
            _table_row(row, new, tops[row["metric"]])
            for (_, row), new in zip(self.table.iterrows(), first, strict=True)
        )
        caption = f"<caption>{html.escape(self.caption)}</caption>"
        inside = f"{caption}<thead>{head}</thead><tbody>{body}</tbody>"
        return f'<div class="attn-table"><table>{inside}</table></div>'


def head_table(
    table: pd.DataFrame, metrics: Sequence[str], n: int = 3, *, caption: str | None = None
) -> HeadTable:
    """The n strongest heads of each metric, one below the other."""
    rows = metric_rows(table, metrics)
    kept = pd.concat([top_heads(rows, key, n) for key in metrics], ignore_index=True)
    return HeadTable(caption or f"The {n} strongest heads of each metric, as layer-head.", kept)


def _table_row(row: pd.Series, new: bool, top: float) -> str:
    """One head; the bar is a share of attention, or else a part of the metric's highest head."""
    whole = 1.0 if is_share(row["metric"]) else top or 1.0
    colour = style.look(row["metric"]).colour
    bar = f'<i style="width:{100 * row["mean"] / whole:.0f}%;background:{colour}"></i>'
    name = html.escape(upper(label(row["metric"]))) if new else ""
    cells = f"<td>{head_name(row)}</td><td>{row['mean']:.3f}</td>"
    cells += f"<td>{row['low']:.3f} – {row['high']:.3f}</td>"
    cells += f'<td><span class="bar" aria-hidden="true">{bar}</span></td>'
    return f"<tr{' class=first' if new else ''}><th>{name}</th>{cells}</tr>"


def _grid_panel(panel: Axes, rows: pd.DataFrame, metric: str, marked: int, titled: bool) -> None:
    grid = rows.pivot(index="layer", columns="head", values="mean")
    top = 1.0 if is_share(metric) else float(np.nanmax(grid.to_numpy(), initial=0.0)) or 1.0
    scale = Normalize(0, top)
    mesh = panel.pcolormesh(
        grid.columns, grid.index, grid, cmap=style.SEQUENTIAL, norm=scale, lw=0.6, ec="white"
    )
    panel.set(aspect="equal", xlabel="head", ylabel="layer")
    panel.invert_yaxis()
    panel.set_xticks(list(grid.columns)[:: 1 if len(grid.columns) <= 12 else 2])
    panel.set_yticks(list(grid.index)[:: 1 if len(grid.index) <= 12 else 2])
    panel.tick_params(length=0, labelsize=7)
    panel.spines[:].set_visible(False)
    if titled:
        panel.set_title(upper(label(metric)), fontsize=9.5)
    bar = panel.figure.colorbar(mesh, ax=panel, shrink=0.8, aspect=26, pad=0.02)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7)
    bar.locator = MaxNLocator(4)
    bar.set_label(unit(metric), fontsize=7.5)
    for _, row in top_heads(rows, metric, marked).iterrows():
        _mark(panel, row, to_hex(style.SEQUENTIAL(scale(row["mean"]))))


def _mark(panel: Axes, row: pd.Series, colour: str) -> None:
    """Write the value into a cell, in whichever of black and white can be read on it."""
    text = f"{row['mean']:.2f}".removeprefix("0") if row["mean"] < 1 else f"{row['mean']:.1f}"
    place: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 6.5}
    panel.text(row["head"], row["layer"], text, color=style.ink_on(colour), **place)


def _interval_panel(panel: Axes, rows: pd.DataFrame, metric: str) -> None:
    chosen = style.look(metric)
    places = np.arange(len(rows))
    panel.hlines(places, rows["low"], rows["high"], color=chosen.colour, lw=2.2, alpha=0.55)
    panel.plot(rows["mean"], places, "o", color=chosen.colour, ms=6, mew=0)
    panel.set_yticks(places, head_names(rows))
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlim(0, 1 if is_share(metric) else upper_bound(rows, metric))
    panel.set_xlabel(f"{label(metric)} ({unit(metric)})" if unit(metric) else label(metric))
    panel.set_ylabel("layer-head")
    light_grid(panel, "x")
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    values = [
        f"{row['mean']:.2f}  [{row['low']:.2f}, {row['high']:.2f}]" for _, row in rows.iterrows()
    ]
    for place, value in zip(places, values, strict=True):
        side: dict[str, Any] = {
            "xycoords": panel.get_yaxis_transform(),
            "ha": "left",
            "va": "center",
        }
        panel.annotate(value, (1.02, place), annotation_clip=False, fontsize=8, **side)
