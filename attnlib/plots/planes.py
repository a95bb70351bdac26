"""Heads as points in a plane, with names that cover neither a point nor each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import ListedColormap
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import BboxBase

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_names
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.panels import panel_grid


def head_map(table: pd.DataFrame, *, named: int | Sequence[str] = 6) -> Drawing:
    """Heads in a plane, coloured by layer and by behaviour (Clark 2019, Fig. 6).

    table  layer, head, x, y (in nats), behaviour; heads without a place are left out
    named  names of heads to write next to their points, or how many of the outermost
    """
    need(table, "layer", "head", "x", "y", "behaviour")
    rows = table.dropna(subset=["x", "y"]).reset_index(drop=True)
    if rows.empty:
        raise BadValue("no head has a place in the plane; give x and y.")
    rows["name"] = head_names(rows)
    marked = named_heads(rows, named)
    with style.drawing():
        tall = max(np.ptp(rows["y"]), 1e-9) / max(np.ptp(rows["x"]), np.ptp(rows["y"]), 1e-9)
        figure, (left, right) = panel_grid(2, 1.15 + 3.45 * max(tall, 0.4), gap=0.05)
        _by_layer(left, rows)
        _by_behaviour(right, rows)
        for panel in (left, right):
            plane_axis(panel, rows)
        _scale_bar(left, rows)
        for panel in (left, right):
            write_names(panel, marked, rows)
    text = "Each point is a head; heads that attend to similar keys are close together."
    return Drawing(f"Two scatter plots of {len(rows)} heads", figure, rows, text)


def named_heads(
    rows: pd.DataFrame, named: int | Sequence[str], *, apart: float = 0.11
) -> pd.DataFrame:
    """The heads to name: those asked for, or so many of those farthest from the middle.

    rows   name, x, y
    apart  how near two of the farthest may be, as a share of the plane's width: so that their
           names do not overlap
    """
    if not isinstance(named, int):
        unknown = [name for name in named if name not in set(rows["name"])]
        if unknown:
            raise BadValue(f"head '{unknown[0]}' is not in the table; heads are named like '5-4'.")
        return rows[rows["name"].isin(named)]
    places = rows[["x", "y"]].to_numpy(float)
    least = apart * max(np.ptp(places, axis=0).max(), 1e-9)
    chosen: list[int] = []
    for one in np.argsort(-np.hypot(*(places - places.mean(0)).T), kind="stable"):
        gaps = np.hypot(*(places[chosen] - places[one]).T)
        if len(chosen) < named and (gaps > least).all():
            chosen.append(int(one))
    return rows.iloc[chosen]


def layer_dots(panel: Axes, rows: pd.DataFrame, size: float) -> PathCollection:
    """Heads (x, y) as dots, coloured by their layer."""
    # The ends of the map vanish on a white or on a black page; the rim helps the rest.
    shades = ListedColormap(style.SEQUENTIAL(np.linspace(0.12, 0.9, 256)))
    shade: Any = {"cmap": shades, "vmin": 1, "vmax": max(float(rows["layer"].max()), 2.0)}
    look: Any = {"s": size, "ec": style.FAINT, "lw": 0.6}
    return panel.scatter(rows["x"], rows["y"], c=rows["layer"], **shade, **look)


def _by_layer(panel: Axes, rows: pd.DataFrame) -> None:
    dots = layer_dots(panel, rows, 34)
    panel.set_title("By layer", fontsize=9.5)
    place = panel.inset_axes((0.1, -0.08, 0.8, 0.032))
    whole = MaxNLocator(6, integer=True)
    bar = panel.figure.colorbar(dots, cax=place, orientation="horizontal", ticks=whole)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7.5)
    # Next to the bar: below its numbers it would be outside the figure.
    said: Any = {"transform": place.transAxes, "ha": "right", "va": "center", "fontsize": 8}
    place.text(-0.03, 0.5, "layer", **said)


def _by_behaviour(panel: Axes, rows: pd.DataFrame) -> None:
    """One mark per behaviour, the unremarkable heads small and first."""
    counts = {str(name): int(n) for name, n in rows["behaviour"].value_counts().items()}
    spare = iter(style.SPARE_MARKS * len(counts))
    plain = style.LOOKS["other"]
    for name in sorted(counts, key=lambda one: style.class_look(one) is not plain):
        look, part = style.class_look(name), rows[rows["behaviour"] == name]
        dots: Any = {"s": 46, "marker": look.marker}
        if look is style.LOOKS["syntax"]:
            dots["marker"] = next(spare)
        if look is plain:
            dots = {"s": 14, "marker": "x"} if name == "undefined" else {"s": 12, "marker": "o"}
        told = f"{name} ({counts[name]})"
        panel.scatter(part["x"], part["y"], color=look.colour, lw=0.8, label=told, **dots)
    panel.set_title("By behaviour", fontsize=9.5)
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.02), "ncols": 3}
    panel.legend(fontsize=8, **place, **style.TIGHT)


def plane_axis(panel: Axes, rows: pd.DataFrame) -> None:
    """Only distances mean something in such a plane: no numbers, the same scale both ways."""
    reach = 0.12 * max(np.ptp(rows["x"]), np.ptp(rows["y"]), 1e-9)
    for axis in ("x", "y"):
        panel.set(**{f"{axis}lim": (rows[axis].min() - reach, rows[axis].max() + reach)})
    panel.set_aspect("equal")
    panel.tick_params(length=0, labelbottom=False, labelleft=False)
    panel.spines[:].set_visible(True)
    panel.spines[:].set_alpha(0.4)


def write_names(
    panel: Axes,
    marked: pd.DataFrame,
    rows: pd.DataFrame,
    *,
    size: float = 7.5,
    away: tuple[float, float] = (3, 1.5),
) -> None:
    """Names of heads next to their points, outwards if that covers no other point or name.

    away  how far, in points; call this last, when the panel has its place in the figure
    """
    figure = panel.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # only now a place on the page has a number
    dots = panel.transData.transform(rows[["x", "y"]].to_numpy(float))
    middle = panel.transData.transform((rows["x"].mean(), rows["y"].mean()))
    frame = panel.get_window_extent()
    near = (away[0] - 0.5) * figure.dpi / 72  # pixels; a name's own point is farther away
    written: list[BboxBase] = []
    for _, row in marked.iterrows():
        at = (row["x"], row["y"])
        how: Any = {"xytext": (0, 0), "textcoords": "offset points", "fontsize": size}
        note = panel.annotate(row["name"], at, **how)

        def cost(side: tuple[int, int], note: Annotation = note) -> int:
            """How many points and names the name would cover there, and whether it sticks out."""
            _put(note, side, away)
            box = note.get_window_extent()
            out = box.x0 < frame.x0 or box.x1 > frame.x1 or box.y0 < frame.y0 or box.y1 > frame.y1
            covered = box.padded(near).count_contains(dots) + 20 * box.count_overlaps(written)
            return int(covered) + 2 * out

        x, y = np.where(panel.transData.transform(at) >= middle, 1, -1)
        # Best first, and of equals the first is taken: outwards, aside, the others.
        sides = [(x, y), (x, 0), (x, -y), (-x, y), (-x, 0), (0, y), (-x, -y), (0, -y)]
        _put(note, min(sides, key=cost), away)
        written.append(note.get_window_extent())


def _put(note: Annotation, side: tuple[int, int], away: tuple[float, float]) -> None:
    """Move a name to one side of its point; straight above or below, the mark is in the way."""
    across, up = side
    note.set_position((across * away[0], up * (away[1] + (0 if across else 3))))
    note.set(ha={1: "left", 0: "center", -1: "right"}[across])
    note.set(va={1: "bottom", 0: "center_baseline", -1: "top"}[up])


def _scale_bar(panel: Axes, rows: pd.DataFrame) -> None:
    """How long a distance is: a round number, about a fifth of the picture."""
    fifth = max(np.ptp(rows["x"]), np.ptp(rows["y"]), 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(fifth))
    length = max(step * power for step in (1, 2, 5) if step * power <= fifth)
    x, y = panel.get_xlim()[0] + 0.15 * fifth, panel.get_ylim()[0] + 0.15 * fifth
    panel.plot([x, x + length], [y, y], color=style.INK, lw=1.2, solid_capstyle="butt")
    told: Any = {"xytext": (0, 3), "textcoords": "offset points", "fontsize": 7.5}
    panel.annotate(f"{length:g} nats", (x, y), **told)
