"""Panels of a figure: how many side by side, what they have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text

from attnlib.plots import style


def n_columns(n: int) -> int:
    """How many of n panels are side by side: at most five, and lines of nearly equal length."""
    return n if n <= 5 else math.ceil(n / math.ceil(n / 5))


def small_panels(
    n: int, *, height: float = 1.75, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Up to five panels side by side, and the rest beneath."""
    lines = math.ceil(n / n_columns(n))
    width = style.WIDTHS[{1: "narrow", 2: "column"}.get(n, "wide")]
    engine = ConstrainedLayoutEngine(wspace=0.04, hspace=0.05)
    figure = Figure(figsize=(width, 0.4 + height * lines), layout=engine)
    return figure, _only(n, figure.subplots(lines, n_columns(n), sharey=sharey, squeeze=False))


def _only(n: int, axes: Any) -> list[Axes]:
    """The first n panels of a grid; the others are taken away."""
    for spare in axes.ravel()[n:]:
        spare.remove()
    return list(axes.ravel()[:n])


def metric_panels(n: int, *, columns: int, aspect: float) -> tuple[Figure, list[Axes]]:
    """A figure with n panels in rows of `columns`, and nothing where there is no panel."""
    columns = min(columns, n)
    lines = math.ceil(n / columns)
    width = style.WIDTHS["narrow" if columns == 1 else "wide"]
    size = (width, lines * width / columns * aspect)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.06, hspace=0.06))
    return figure, _only(n, figure.subplots(lines, columns, squeeze=False))


def one_panel(width: str, height: float) -> tuple[Figure, Axes]:
    """A figure of one of the three widths with a single panel; height in inches."""
    figure = Figure(figsize=(style.WIDTHS[width], height), layout="constrained")
    return figure, figure.subplots()


def group_panels(
    table: pd.DataFrame,
    by: str,
    name: Callable[[str], str],
    *,
    ylabel: str,
    height: float = 1.75,
    sharey: bool = False,
) -> tuple[Figure, list[tuple[Any, Axes, pd.DataFrame]]]:
    """A small panel under its name for every group of rows, in the order in which groups come.

    returns  the figure, and for every panel its group, its axes and its rows
    """
    groups = table[by].unique()
    figure, panels = small_panels(len(groups), height=height, sharey=sharey)
    for panel, one in zip(panels, groups, strict=True):
        panel.set_title(name(one), fontsize=9)
        panel.tick_params(labelsize=7.5)
        light_grid(panel)
    for panel in panels[:: n_columns(len(groups))]:
        panel.set_ylabel(ylabel, fontsize=8)
    parts = [table[table[by] == one] for one in groups]
    return figure, list(zip(groups, panels, parts, strict=True))


def legend_below(figure: Figure, columns: int) -> None:
    """The marks of the first panel with their names, below all panels."""
    marks, names = figure.axes[0].get_legend_handles_labels()
    place: Any = {"loc": "outside lower center", "ncols": columns, "fontsize": 8, **style.TIGHT}
    figure.legend(marks, names, **place)


def layer_axis(panel: Axes, layers: pd.Series | pd.Index, *, most: int = 6) -> None:
    """Layers from left to right, with room at both ends; at most so many have a number."""
    every = range(int(layers.min()), int(layers.max()) + 1)
    panel.set_xlim(every[0] - 0.6, every[-1] + 0.6)
    panel.set_xticks(every[:: math.ceil(len(every) / most)])
    panel.set_xlabel("layer", fontsize=8)


def number_cells(
    panel: Axes,
    shades: pd.DataFrame,
    texts: pd.DataFrame,
    notes: pd.DataFrame | None = None,
    *,
    cmap: Colormap = style.SEQUENTIAL,
    norm: Normalize | None = None,
    slanted: bool = False,
) -> dict[tuple[int, ...], Text]:
    """A cell for every number, with its text in whichever of black and white can be read on it.

    shades   the number behind each colour, NaN for none; its labels are those of the axes
    texts    what is written into the cells; and `notes` in small letters beneath, "" for nothing
    slanted  the names of the columns are long
    returns  the texts by row and column, if some are to look different
    """
    values, norm = shades.to_numpy(float), norm or Normalize(0, 1)
    written: dict[tuple[int, ...], Text] = {}
    across, down = (np.arange(n + 1) - 0.5 for n in values.shape[::-1])
    panel.pcolormesh(across, down, values, cmap=cmap, norm=norm, ec="white", lw=1.0)
    for (y, x), shade in np.ndenumerate(values):
        ink = style.INK if math.isnan(shade) else style.ink_on(to_hex(cmap(norm(shade))))
        look: Any = {"ha": "center", "va": "center_baseline", "color": ink}
        note = notes.iat[y, x] if notes is not None else ""
        if texts.iat[y, x]:
            up = 0.15 if note else 0.0
            written[y, x] = panel.text(x, y - up, texts.iat[y, x], fontsize=8.5, **look)
        if note:
            panel.text(x, y + 0.25, note, fontsize=6.8 if len(note) < 9 else 6.3, **look)
    slant: Any = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    panel.set_xticks(range(len(shades.columns)), list(shades.columns), **slant)
    panel.set_yticks(range(len(shades)), list(shades.index))
    panel.set_ylim(len(shades) - 0.5, -0.5)
    panel.tick_params(length=0, labelsize=8, pad=2)
    panel.spines[:].set_visible(False)
    return written


def light_grid(panel: Axes, axis: Literal["x", "y"] = "y") -> None:
    """Faint lines behind everything else: horizontal ones, at the ticks of y, or upright ones."""
    panel.grid(axis=axis, color=style.FAINT, alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)


def say_undefined(panel: Axes, values: pd.Series) -> None:
    """Write "undefined" into a panel that has no value to show."""
    if values.notna().sum() == 0:
        place: Any = {"transform": panel.transAxes, "ha": "center", "va": "center"}
        panel.text(0.5, 0.5, "undefined", fontsize=8, alpha=0.65, **place)
