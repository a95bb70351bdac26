"""Panels of a figure: how many side by side, what they have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

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
        handles, names = panel.get_legend_handles_labels()
        found |= dict(zip(names, handles, strict=True))
    shape: Any = {"ncols": 5, "fontsize": 8, **style.TIGHT, **look}
    figure.legend(list(found.values()), list(found), loc=loc, **shape)
