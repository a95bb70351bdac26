"""Heads as a grid or in order of strength: where in the network a quantity lives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from pandas.io.formats.style import Styler

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_names
from attnlib.plots import labels, style
from attnlib.plots.drawing import Drawing
from attnlib.plots.labels import is_share, label, metric_rows, top_heads, upper
from attnlib.plots.panels import metric_panels
from attnlib.plots.rows import labelled_scores


def head_grid(table: pd.DataFrame, metric: str | Sequence[str], *, marked: int = 3) -> Drawing:
    """One cell per head, layers downwards: where in the network a quantity lives.

    Shares of attention are all drawn from 0 to 1, so that two grids can be compared by eye; the
    `marked` strongest heads carry their value.
    """
    metrics = labels.as_list(metric)
    rows = metric_rows(table, metrics)
    with style.drawing():
        figure, panels = metric_panels(len(metrics), aspect=0.86)
        for panel, key in zip(panels, metrics, strict=True):
            part = rows[rows["metric"] == key]
            top = 1.0 if is_share(key) else float(np.nanmax(part["mean"], initial=0.0)) or 1.0
            cells(panel, part, "mean", (0, top), marked=marked, unit=labels.unit(key))
            if len(metrics) > 1:
                panel.set_title(upper(label(key)), fontsize=9.5)
    text = "Each cell is one head; the darker it is, the higher its value."
    return Drawing("Heat maps, layers as rows, heads as columns", figure, rows, text)


def cells(
    panel: Axes,
    rows: pd.DataFrame,
    value: str,
    span: tuple[float, float],
    *,
    marked: int,
    unit: str,
    colours: Colormap = style.SEQUENTIAL,
) -> None:
    """A coloured cell per head with a bar that tells the colours; the highest carry their value.

    rows  layer, head and `value`
    span  the values of the first and the last colour; the bar is pointed where some lie beyond
    """
    grid = rows.pivot(index="layer", columns="head", values=value)
    scale = Normalize(*span)
    look: Any = {"cmap": colours, "norm": scale, "lw": 0.6, "ec": "white"}
    mesh = panel.pcolormesh(grid.columns, grid.index, grid, **look)
    panel.set(xlabel="head", ylabel="layer")
    panel.invert_yaxis()
    grid_axes(panel, grid.columns, grid.index)
    extend = pointed(rows[value].min() < span[0], rows[value].max() > span[1])
    shape: Any = {"shrink": 0.8, "aspect": 26, "pad": 0.02, "extend": extend}
    shape["ticks"] = MaxNLocator(4)
    bar = panel.figure.colorbar(mesh, ax=panel, **shape)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7)
    bar.set_label(unit, fontsize=7.5)
    for _, row in rows.nlargest(marked, value).iterrows():
        ink = style.ink_on(to_hex(colours(scale(row[value]))))
        text = labels.number(row[value], ".1f" if row[value] >= 1 else ".2f").removeprefix("0")
        middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 7}
        panel.text(row["head"], row["layer"], text, color=ink, **middle)


def pointed(below: int, above: int) -> str:
    """Which ends of a colour bar are arrows: those beyond which there are values."""
    return {(0, 0): "neither", (1, 0): "min", (0, 1): "max"}.get((below > 0, above > 0), "both")


def grid_axes(panel: Axes, heads: Sequence[int], layers: Sequence[int], most: int = 12) -> None:
    """Square cells, each head and layer with its number, or as many as there is room for."""
    panel.set_aspect("equal")
    panel.set_xticks(list(heads)[:: math.ceil(len(heads) / most)])
    panel.set_yticks(list(layers)[:: math.ceil(len(layers) / 12)])
    panel.tick_params(length=0, labelsize=7)
    panel.spines[:].set_visible(False)


def squares(panel: Axes, centres: np.ndarray, side: float, hole: float = 0.0, **look: Any) -> None:
    """All squares of one kind as one shape, which keeps the page small; they may have a hole.

    centres  (square, 2)
    """
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)])
    outline = side / 2 * corners
    if hole:  # its outline runs the other way round
        outline = np.concatenate([outline, hole / 2 * corners[::-1]])
    vertices = (centres[:, None] + outline).reshape(-1, 2)
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * (len(vertices) // 5)
    panel.add_patch(PathPatch(Path(vertices, codes), lw=0, **look))


def strongest_heads(table: pd.DataFrame, metric: str, n: int = 5) -> Drawing:
    """The n heads with the highest mean, with their intervals: who does it, and how surely."""
    if n < 1:
        raise BadValue(f"n is {n}; at least one head can be shown. Give n=1 or more.")
    rows = top_heads(metric_rows(table, [metric]), metric, n)
    rows = rows.assign(label=head_names(rows), value=rows["mean"])
    text = f"The heads with the most {label(metric)}; lines are 95% intervals."
    what = f"{label(metric)} ({labels.unit(metric)})" if labels.unit(metric) else label(metric)
    return Drawing("Dots with intervals", labelled_scores(rows, unit=what).figure, rows, text)


def head_table(table: pd.DataFrame, metrics: Sequence[str], n: int = 3) -> Styler:
    """The n strongest heads of each metric, one below the other, as a table for the page.

    The bar is a share of attention, or else a part of the metric's highest head.
    """
    rows = metric_rows(table, metrics)
    kept = pd.concat([top_heads(rows, key, n) for key in metrics], ignore_index=True)
    names = kept["metric"].map(label).map(upper)
    told = pd.DataFrame({"metric": names, "head": head_names(kept), "mean": kept["mean"]})
    told["95% interval"] = [f"{row['low']:.3f} – {row['high']:.3f}" for _, row in kept.iterrows()]
    shown = told.assign(**{"": kept["mean"]}).set_index(["metric", "head"]).style
    shown = shown.format({"mean": "{:.3f}", "": ""})
    for key in metrics:
        whole = 1.0 if is_share(key) else kept.loc[kept["metric"] == key, "mean"].max() or 1.0
        look: Any = {"color": style.look(key).colour, "vmin": 0, "vmax": whole, "height": 50}
        shown = shown.bar(subset=pd.IndexSlice[[upper(label(key))], [""]], **look)
    return shown.set_caption(f"The {n} strongest heads of each metric, as layer-head.")
