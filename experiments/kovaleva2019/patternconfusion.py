"""Who calls maps of attention the same: labels by eye beside a network, a rule, a second look."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from attnlib.errors import BadValue, check_choice
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from experiments.kovaleva2019.taskgrids import ink_on
from experiments.shared.patterns import PATTERNS


def pattern_confusion(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """What maps of each label are called by another: a network, a rule, a second look.

    table  label (by eye), called, n; and `by`, who calls, if there are several
    """
    need(table, "label", "called", "n")
    rows = table.reset_index(drop=True)
    by = rows["by"] if "by" in rows else pd.Series("", index=rows.index)
    grids = {str(name): _counts(part) for name, part in rows.groupby(by, sort=False)}
    lines = math.ceil(len(grids) / 3)
    columns = math.ceil(len(grids) / lines)
    with style.drawing():
        width = style.WIDTHS[{1: "narrow", 2: "column"}.get(columns, "wide")]
        size = (width, 0.25 + lines * (1.15 + 0.8 * (width - 1.2) / columns))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.05))
        axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for panel, (name, grid) in zip(axes, grids.items(), strict=False):
            _confusion(panel, grid)
            total = f"{grid.sum():,.0f} maps"
            panel.set_title(f"{name}, {total}" if name else total, fontsize=9, pad=16)
            panel.set_xlabel("called", fontsize=8)
        for panel in axes[::columns]:
            panel.set_ylabel("label by eye", fontsize=8)
        for spare in axes[len(grids) :]:
            spare.remove()
    told = " ".join(_agreement(name, grid) for name, grid in grids.items())
    text = f"Numbers are maps; the darker, the more of a label's row. {told}"
    each = "; ".join(f"{name} {_scores(grid)}".strip() for name, grid in grids.items())
    alt = f"Matrices of label by eye and pattern called. {told} F1: {each}."
    return Drawing(figure, caption or text, alt, rows)


def f1(grid: NDArray[Any]) -> NDArray[Any]:
    """F1 of every class from counts (label, called); undefined for a class that never occurs."""
    both = grid.sum(0) + grid.sum(1)
    return np.where(both > 0, 2 * np.diag(grid) / np.maximum(both, 1), np.nan)


def _counts(rows: pd.DataFrame) -> NDArray[Any]:
    """Maps (label, called)."""
    for name in ("label", "called"):
        for one in dict.fromkeys(rows[name]):
            check_choice(name, one, PATTERNS)
    if rows.duplicated(["label", "called"]).any():
        raise BadValue("two rows have the same label and called; give one.")
    if not (rows["n"] >= 0).all() or not rows["n"].sum():
        raise BadValue("the numbers of maps are all 0, or one is below 0; give counts.")
    grid = rows.pivot(index="label", columns="called", values="n")
    return grid.reindex(PATTERNS, columns=PATTERNS).fillna(0).to_numpy(float)


def _confusion(panel: Axes, grid: NDArray[Any]) -> None:
    n = len(PATTERNS)
    shares = grid / np.maximum(grid.sum(1, keepdims=True), 1)
    shares[grid.sum(1) == 0] = np.nan
    edge: Any = {"lw": 0.8, "ec": "white", "vmin": 0, "vmax": 1}
    panel.pcolormesh(np.arange(n), np.arange(n), shares, cmap=style.SEQUENTIAL, **edge)
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 8}
    for (y, x), count in np.ndenumerate(grid):
        if count:
            ink = ink_on(to_hex(style.SEQUENTIAL(shares[y, x])))
            panel.text(x, y, f"{count:.0f}", color=ink, **middle)
    panel.text(n, -0.8, "F1", alpha=0.65, **middle)
    for y, score in enumerate(f1(grid)):
        panel.text(n, y, _score(score), **middle)
    panel.set_xticks(range(n), PATTERNS, rotation=40, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(n), PATTERNS)
    panel.set(aspect="equal", xlim=(-0.5, n + 0.4), ylim=(n - 0.5, -0.5))
    panel.tick_params(length=0, labelsize=8, pad=2)
    panel.spines[:].set_visible(False)


def _agreement(by: str, grid: NDArray[Any]) -> str:
    """How many labels it repeats, its mean F1, and what it takes for what most often."""
    same, every = int(np.trace(grid)), int(grid.sum())
    start = f"{by[:1].upper()}{by[1:]}: " if by else ""
    told = f"{start}{same} of {every} maps are called by their label ({100 * same / every:.0f}%)"
    wrong = grid - np.diag(np.diag(grid))
    label, called = np.unravel_index(wrong.argmax(), wrong.shape)
    most = (
        f"; most often {PATTERNS[label]} is called {PATTERNS[called]} ({wrong.max():.0f})"
        if wrong.any()
        else ""
    )
    return f"{told}, mean F1 {np.nanmean(f1(grid)):.2f}{most}."


def _scores(grid: NDArray[Any]) -> str:
    return ", ".join(
        f"{name} {_score(score)}" for name, score in zip(PATTERNS, f1(grid), strict=True)
    )


def _score(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
