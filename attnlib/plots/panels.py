"""Panels of a figure: how many side by side, what they have in common."""

from __future__ import annotations

import math
from typing import Any, Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

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


def light_grid(panel: Axes, axis: Literal["x", "y"] = "y") -> None:
    """Faint lines behind everything else: horizontal ones, at the ticks of y, or upright ones."""
    panel.grid(axis=axis, color=style.FAINT, alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)


def say_undefined(panel: Axes, values: pd.Series) -> None:
    """Write "undefined" into a panel that has no value to show."""
    if values.notna().sum() == 0:
        place: Any = {"transform": panel.transAxes, "ha": "center", "va": "center"}
        panel.text(0.5, 0.5, "undefined", fontsize=8, alpha=0.65, **place)
