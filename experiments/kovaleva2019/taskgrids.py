"""Grids of heads of several tasks side by side, in one scale of colours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_names
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import task_name
from attnlib.plots.panels import say_undefined

FAR = 0.99
"""Colours reach a quarter beyond this quantile: a few outliers would leave all others pale."""
CROWD = 30
"""More rings than this in a grid hide its colours: small dots take their place."""


def task_grids(
    table: pd.DataFrame,
    value: str = "value",
    *,
    what: str,
    unit: str = "",
    diverging: bool = False,
    low: float | None = None,
    high: float | None = None,
    marked: int = 3,
    group: str = "task",
    significant: str | None = None,
    caption: str | None = None,
) -> Drawing:
    """One small grid of heads per task, all in the same colours (Kovaleva 2019, Figs. 5 and 8).

    table        `group`, layer, head, `value`; heads without a value stay empty and are counted
    what, unit   what the value is, for the colour bar and the caption
    diverging    0 in the middle, and colours equally far on both sides
    low, high    ends of the colours, else they hold 0 and all values (if diverging, no outliers)
    marked       how many heads of a panel, the largest or the farthest from 0, get a ring
    significant  a column of true and false: these heads get the ring instead; a dot, if many do
    """
    need(table, group, "layer", "head", value, *([significant] if significant else []))
    rows = ordered_rows(table, value, [group, "layer", "head"])
    strength = rows[value].abs() if diverging else rows[value]
    rank = strength.groupby(rows[group]).rank(method="first", ascending=False)
    ringed = (truths(rows[significant]) if significant else rank <= marked) & strength.notna()
    scale = _scale(rows[value], diverging, low, high)
    shape = (int(rows["layer"].max()), int(rows["head"].max()))
    names = list(dict.fromkeys(rows[group]))
    counts = {name: int(ringed[rows[group] == name].sum()) for name in names}
    crowded = max(counts.values()) > CROWD
    label = f"{what}, {unit}" if unit else what
    with style.drawing():
        figure, panels, cell = _grid_panels(len(names), shape)
        for panel, name in zip(panels, names, strict=True):
            mine = rows[group] == name
            _grid(panel, rows[mine], value, shape, scale)
            size = (0.2 if crowded else 0.55) * min(cell, 14)
            _rings(panel, rows[mine & ringed], value, scale, size, solid=crowded)
            panel.set_title(task_name(name), fontsize=9)
            say_undefined(panel, rows.loc[mine, value])
        _colour_bar(panels, scale, rows[value], label)
    best = rows[rank == 1]
    like = (float(rows[value].abs().max()), "+" if diverging else "-")
    told = "; ".join(
        f"{task_name(name)} {head} ({told_number(number, *like)})"
        for name, head, number in zip(best[group], head_names(best), best[value], strict=True)
    )
    rings = f" Rings: the strongest {marked} of each panel." if ringed.any() else ""
    if significant:
        shown = ", ".join(f"{task_name(name)} {n}" for name, n in counts.items())
        rings = f" {'Dots' if crowded else 'Rings'}: significant heads ({shown})."
        if not ringed.any():
            rings = " No head is significant."
    gone = int(rows[value].isna().sum())
    text = (
        f"One cell per head, layers downwards: {label}.{rings} "
        f"{'Farthest from 0' if diverging else 'Largest'}: {told}."
        f"{f' Heads without a value: {gone}.' if gone else ''}"
    )
    alt = f"Grids of {shape[0]} layers and {shape[1]} heads, {len(names)} in all. {text}"
    return Drawing(figure, caption or text, alt, rows)


def ink_on(colour: str) -> str:
    """Whichever of black and white can be read better on this colour."""
    return max("white", "black", key=lambda one: style.contrast(colour, one))


def told_number(value: float, size: float, sign: str = "+") -> str:
    """With the decimals that tell values of this size apart."""
    digits = int(np.clip(2 - math.ceil(math.log10(size or 1.0)), 0, 5))
    return f"{value:{sign}.{digits}f}".replace("-", "−")


def ordered_rows(table: pd.DataFrame, value: str, keys: list[str]) -> pd.DataFrame:
    """The rows by layer and head, the groups in the order in which they come."""
    if table.duplicated(keys).any():
        raise BadValue(f"two rows have the same {', '.join(keys[:-1])} and {keys[-1]}; give one.")
    if table[keys[1:]].min().min() < 1:
        raise BadValue(f"a {' or '.join(keys[1:])} is below 1; count from 1.")
    if np.isinf(table[value].astype(float)).any() or table[value].isna().all():
        raise BadValue(f"the column {value} has an infinite number, or none at all.")
    place = table[keys[0]].map({name: i for i, name in enumerate(dict.fromkeys(table[keys[0]]))})
    return table.assign(_=place).sort_values(["_", *keys[1:]], ignore_index=True).drop(columns="_")


def truths(column: pd.Series) -> pd.Series:
    """True and false; what is undefined is not significant, and a p-value is neither."""
    wrong = column[~(column.isin([True, False]) | column.isna())]
    if len(wrong):
        raise BadValue(f"the column {column.name} holds {wrong.iloc[0]}; expected true or false.")
    return column.eq(True).fillna(False).astype(bool)


def _scale(
    values: pd.Series, diverging: bool, low: float | None, high: float | None
) -> ScalarMappable:
    """The colours of all panels."""
    if low is not None and high is not None and low >= high:
        raise BadValue(f"the colours go from {low:g} to {high:g}; low must be below high.")
    if not diverging:
        bottom = min(0.0, values.min()) if low is None else low
        top = max(bottom, values.max()) if high is None else high
        return ScalarMappable(Normalize(bottom, top + (top == bottom)), style.SEQUENTIAL)
    if low is not None and high is not None and not math.isclose(-low, high):
        raise BadValue(f"0 is not in the middle of {low:g} and {high:g}; give one of the two.")
    far = min(float(values.abs().max()), 1.25 * float(values.abs().quantile(FAR)))
    reach = abs(high or low or far or values.abs().max() or 1.0)
    return ScalarMappable(Normalize(-reach, reach), style.DIVERGING)


def _grid_panels(n: int, shape: tuple[int, int]) -> tuple[Figure, list[Axes], float]:
    """Up to four grids side by side, with square cells of so many points."""
    lines = math.ceil(n / 4)
    columns = math.ceil(n / lines)
    width = style.WIDTHS[{1: "narrow", 2: "column"}.get(columns, "wide")]
    cell = (width / columns - 0.4) / shape[1]
    size = (width, 0.8 + lines * (0.5 + cell * shape[0]))
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.02, hspace=0.03))
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for i, panel in enumerate(axes):
        panel.set_xlabel("head" if i >= (lines - 1) * columns else "", fontsize=8)
        panel.set_ylabel("layer" if i % columns == 0 else "", fontsize=8)
    for spare in axes[n:]:
        spare.remove()
    return figure, list(axes[:n]), 72 * cell


def _grid(
    panel: Axes, rows: pd.DataFrame, value: str, shape: tuple[int, int], scale: ScalarMappable
) -> None:
    """A picture with a pixel per head: a thousand shapes would make the page much larger."""
    tall, wide = shape
    cells = np.full(shape, np.nan)
    cells[rows["layer"].astype(int) - 1, rows["head"].astype(int) - 1] = rows[value]
    low, high = scale.get_clim()
    place: Any = {"extent": (0.5, wide + 0.5, tall + 0.5, 0.5), "interpolation": "none"}
    panel.imshow(cells, cmap=scale.cmap, vmin=low, vmax=high, **place)
    panel.vlines(np.arange(1.5, wide), 0.5, tall + 0.5, color="white", lw=0.5)
    panel.hlines(np.arange(1.5, tall), 0.5, wide + 0.5, color="white", lw=0.5)
    for axis, n in ((panel.xaxis, wide), (panel.yaxis, tall)):
        axis.set_ticks([i for i in range(1, n + 1) if n <= 6 or i % (3 if n < 13 else 4) == 1])
    panel.tick_params(length=0, labelsize=7.5, pad=2)
    panel.spines[:].set_visible(False)


def _rings(
    panel: Axes,
    rows: pd.DataFrame,
    value: str,
    scale: ScalarMappable,
    size: float,
    *,
    solid: bool = False,
) -> None:
    inks = [ink_on(to_hex(one)) for one in scale.to_rgba(rows[value].to_numpy(float))]
    look: Any = {"s": size**2, "lw": 1.1, "facecolor": "none", "edgecolor": inks}
    if solid:
        look |= {"lw": 0.0, "facecolor": inks}
    panel.scatter(rows["head"], rows["layer"], **look)


def _colour_bar(panels: list[Axes], scale: ScalarMappable, values: pd.Series, label: str) -> None:
    """One bar for all panels; arrows and words say that values lie beyond its ends."""
    low, high = scale.get_clim()
    below, above = int((values < low).sum()), int((values > high).sum())
    arrows = {(0, 0): "neither", (1, 0): "min", (0, 1): "max"}.get((below > 0, above > 0), "both")
    place: Any = {"location": "bottom", "shrink": 0.5, "aspect": 34, "pad": 0.02}
    bar = panels[0].figure.colorbar(scale, ax=panels, extend=arrows, **place)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7.5)
    bar.locator = MaxNLocator(6)
    beyond = f" ({below + above} heads beyond the colours)" if below + above else ""
    bar.set_label(f"{label}{beyond}", fontsize=8)
