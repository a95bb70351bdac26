"""Panels of a figure: how many side by side, what they have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.typing import ColorType

from attnlib.plots import style


def n_columns(n: int) -> int:
    """How many of n panels are side by side: at most five, and lines of nearly equal length."""
    return n if n <= 5 else math.ceil(n / math.ceil(n / 5))


def panel_grid(
    n: int,
    height: float,
    *,
    columns: int | None = None,
    width: str = "wide",
    gap: float = 0.04,
    ratios: Sequence[float] | None = None,
    **share: Any,
) -> tuple[Figure, list[Axes]]:
    """A figure with n panels in rows of `columns`, and nothing where there is no panel.

    height  inches of the whole figure
    ratios  how wide the panels of a row are, if not all the same
    share   sharex, sharey
    """
    columns = min(columns or n, n)
    figure = Figure(
        figsize=(style.WIDTHS[width], height),
        layout=ConstrainedLayoutEngine(wspace=gap, hspace=gap),
    )
    lines = math.ceil(n / columns)
    axes = figure.subplots(lines, columns, squeeze=False, width_ratios=ratios, **share).ravel()
    for spare in axes[n:]:
        spare.remove()
    return figure, list(axes[:n])


def small_panels(
    n: int, *, height: float = 1.75, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Up to five panels side by side, and the rest beneath; the height is that of a line."""
    columns = n_columns(n)
    width = {1: "narrow", 2: "column"}.get(n, "wide")
    tall = 0.4 + height * math.ceil(n / columns)
    return panel_grid(n, tall, columns=columns, width=width, sharey=sharey)


def metric_panels(n: int, *, aspect: float) -> tuple[Figure, list[Axes]]:
    """One panel, or two side by side and the rest beneath."""
    width = "narrow" if n == 1 else "wide"
    tall = math.ceil(n / 2) * style.WIDTHS[width] / min(n, 2) * aspect
    return panel_grid(n, tall, columns=2, width=width, gap=0.06)


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


def stacked_bars(
    panel: Axes,
    parts: pd.DataFrame,
    places: Sequence[float] | np.ndarray,
    thick: float,
    colours: Mapping[str, ColorType],
    *,
    gap: float = 0.0,
    across: bool = False,
    least: float | None = None,
    **words: Any,
) -> None:
    """A bar for each row of a table, its columns end to end in the order of the colours.

    gap    what is left of the page between two parts, for eyes that cannot tell their colours apart
    least  parts from this size on carry their number, in black or white unless their colour is pale
    """
    draw, start = (panel.barh, "left") if across else (panel.bar, "bottom")
    base = np.zeros(len(parts))
    for name, colour in colours.items():
        long = parts[name].to_numpy(float)
        look: Any = {start: base, "color": colour, "lw": 0, "label": name}
        bars = draw(places, np.maximum(long - gap, 0), thick, **look)
        if least is not None:
            told = [f"{part:.0f}" if part >= least else "" for part in long]
            ink = style.INK if to_rgba(colour)[3] < 1 else style.ink_on(to_hex(colour))
            panel.bar_label(bars, told, label_type="center", color=ink, **words)
        base = base + long


def light_grid(panel: Axes, axis: Literal["x", "y"] = "y") -> None:
    """Faint lines behind everything else: horizontal ones, at the ticks of y, or upright ones."""
    panel.grid(axis=axis, color=style.FAINT, alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)


def layer_ticks(panel: Axes, layers: Sequence[int], most: int, *, rim: float = 0.5) -> None:
    """Layers from left to right, each with its number, or as many of them as there is room for."""
    panel.set_xlim(layers[0] - rim, layers[-1] + rim)
    panel.set_xticks(layers[:: max(1, math.ceil(len(layers) / most))])


def say_undefined(panel: Axes, values: pd.Series) -> None:
    """Write "undefined" into a panel that has no value to show."""
    if values.notna().sum() == 0:
        place: Any = {"transform": panel.transAxes, "ha": "center", "va": "center"}
        panel.text(0.5, 0.5, "undefined", fontsize=8, alpha=0.65, **place)


def one_legend(figure: Figure, loc: Any = "outside lower center", **look: Any) -> None:
    """A legend for all panels, in which every label stands once."""
    found: dict[str, Any] = {}
    for panel in figure.axes:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    shape: Any = {"ncols": 5, "fontsize": 8, **style.TIGHT, **look}
    figure.legend(list(found.values()), list(found), loc=loc, **shape)
