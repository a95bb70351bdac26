"""What every head alone is worth, over the network and by type (beyond Guan 2020, sec. 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing
from attnlib.plots.panels import light_grid
from experiments.guan2020.typefigures import head_names, kinds, type_look, typed_heads


def head_effects(
    table: pd.DataFrame,
    value: str = "loss",
    *,
    what: str = "rise of the loss",
    unit: str = "nats",
    marked: int = 5,
    caption: str | None = None,
) -> Drawing:
    """What every head alone is worth: a grid with 0 in the middle, and the heads of each type.

    table  layer, head, type, and `value`: how much worse the model is without the head
    """
    rows = typed_heads(table, value)
    known = rows[rows[value].notna()].reset_index(drop=True)
    if known.empty:
        raise BadValue(f"no head has a value of {value}; there is nothing to draw.")
    size = float(known[value].abs().max()) or 1.0
    reach = min(size, 2.5 * float(known[value].abs().quantile(0.95)) or size)
    top = known.nlargest(marked, value).assign(name=lambda part: head_names(part))
    with style.drawing():
        tall = 1.15 + 3.3 * rows["layer"].max() / rows["head"].max()
        shape: Any = {"gridspec_kw": {"width_ratios": [1.45, 1]}}
        figure = Figure(figsize=(style.WIDTHS["wide"], max(2.8, min(tall, 6.0))))
        figure.set_layout_engine(ConstrainedLayoutEngine(wspace=0.06))
        left, right = figure.subplots(1, 2, **shape)
        _effect_grid(left, known, value, reach, top, f"{what}, {unit}")
        _effect_strips(right, known, value, top)
        right.set_ylabel(f"{what}, {unit}", fontsize=8)
    means = "; ".join(
        f"{name} {known.loc[known['type'] == name, value].mean():.2g}"
        for name in kinds(known)
        if (known["type"] == name).any()
    ).replace("-", "−")
    first = ", ".join(f"{row['name']} ({row[value]:.2g})" for _, row in top.iterrows())
    helped = int((known[value] < 0).sum())
    text = (
        f"One cell per head: {what} without it, in {unit}. Most: {first}. Mean of a type: {means}. "
        f"{helped} of {len(known)} values are below 0."
    ).replace("(-", "(−")
    return Drawing(figure, caption or text, f"A grid of heads and dots by type. {text}", rows)


def _effect_grid(
    panel: Axes, rows: pd.DataFrame, value: str, reach: float, top: pd.DataFrame, unit: str
) -> None:
    grid = rows.pivot(index="layer", columns="head", values=value)
    scale = Normalize(-reach, reach)
    cells: Any = {"cmap": style.DIVERGING, "norm": scale, "lw": 0.6, "ec": "white"}
    mesh = panel.pcolormesh(grid.columns, grid.index, grid, **cells)
    panel.set(aspect="equal", xlabel="head", ylabel="layer")
    panel.invert_yaxis()
    for axis, names in ((panel.xaxis, grid.columns), (panel.yaxis, grid.index)):
        axis.set_ticks(list(names)[:: 1 if len(names) <= 12 else 2])
    panel.tick_params(length=0, labelsize=7.5)
    panel.spines[:].set_visible(False)
    over = {(False, False): "neither", (True, False): "min", (False, True): "max"}
    ends = (rows[value].min() < -reach, rows[value].max() > reach)
    bar = panel.figure.colorbar(
        mesh, ax=panel, shrink=0.8, aspect=26, pad=0.02, extend=over.get(ends, "both")
    )
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7.5)
    bar.locator = MaxNLocator(5)
    bar.set_label(unit, fontsize=8)
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 7}
    for _, row in top.iterrows():
        dark = style.luminance(to_hex(style.DIVERGING(scale(row[value])))) < 0.3
        told = f"{row[value]:.2f}".replace("-", "−").replace("0.", ".", 1)
        ink = "white" if dark else "black"
        panel.text(row["head"], row["layer"], told, color=ink, **middle)


def _effect_strips(panel: Axes, rows: pd.DataFrame, value: str, top: pd.DataFrame) -> None:
    """A dot per head above its type, spread a little, with the mean of the type."""
    names = [name for name in kinds(rows) if (rows["type"] == name).any()]
    places = pd.Series(0.0, index=rows.index)
    panel.axhline(0, color=style.INK, lw=0.8, alpha=0.6)
    for x, name in enumerate(names):
        part, look = rows[rows["type"] == name], type_look(name)
        places[part.index] = x + 0.3 * np.sin(2.4 * np.arange(len(part)))  # the same every time
        dots: Any = {"marker": look.marker, "color": look.colour, "ls": "none", "ms": 4}
        rim = 0 if look.marker != "x" else 1
        panel.plot(places[part.index], part[value], mew=rim, alpha=0.6, **dots)
        mean = part[value].mean()
        panel.plot([x - 0.38, x + 0.38], [mean, mean], color=look.colour, lw=2.4)
    written: list[tuple[float, float]] = []
    for place, row in top.iterrows():
        across, up = float(places[place]), float(row[value])  # type: ignore[call-overload]
        apart = 0.055 * float(np.ptp(rows[value]))
        if any(abs(across - a) < 1.3 and abs(up - b) < apart for a, b in written):
            continue  # two names would cover each other; the caption has them all
        written.append((across, up))
        left = across > len(names) - 0.9
        side: Any = {"xytext": (-5 if left else 5, 0), "ha": "right" if left else "left"}
        side |= {"textcoords": "offset points", "va": "center", "fontsize": 7.5}
        panel.annotate(row["name"], (across, up), **side)
    panel.set_xticks(range(len(names)), [name.replace("&", "&\n") for name in names])
    panel.set_xlim(-0.6, len(names) - 0.4)
    panel.tick_params(axis="x", length=0, labelsize=8)
    light_grid(panel)
