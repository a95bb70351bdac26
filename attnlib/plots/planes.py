"""Heads as points in a plane, with names that cover neither a point nor each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_names
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need


def head_map(
    table: pd.DataFrame,
    *,
    named: int | Sequence[str] = 6,
    unit: str = "nats",
    caption: str | None = None,
) -> Drawing:
    """Heads in a plane, coloured by layer and by behaviour (Clark 2019, Fig. 6).

    table  layer, head, x, y, behaviour; heads without a place are left out
    named  names of heads to write next to their points, or how many of the outermost
    """
    need(table, "layer", "head", "x", "y", "behaviour")
    rows = table[table[["x", "y"]].notna().all(axis=1)].reset_index(drop=True)
    if rows.empty:
        raise BadValue("no head has a place in the plane; give x and y.")
    rows["name"] = head_names(rows)
    marked = named_heads(rows, named)
    with style.drawing():
        tall = max(np.ptp(rows["y"]), 1e-9) / max(np.ptp(rows["x"]), np.ptp(rows["y"]), 1e-9)
        size = (style.WIDTHS["wide"], 1.15 + 3.45 * max(tall, 0.4))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.05))
        left, right = figure.subplots(1, 2)
        _by_layer(figure, left, rows)
        kinds = _by_behaviour(right, rows)
        for panel in (left, right):
            plane_axis(panel, rows)
        _scale_bar(left, rows, unit)
        for panel in (left, right):
            write_names(panel, marked, rows)
    counts = ", ".join(f"{name} {count}" for name, count in kinds.items())
    text = (
        "Each point is a head; heads that attend to similar keys are close together. Left: the "
        f"colour is the layer. Right: what the head mostly does ({counts})."
    )
    far = ", ".join(marked["name"])
    alt = f"Two scatter plots of {len(rows)} heads. Behaviours: {counts}. Named: {far or 'none'}."
    return Drawing(figure, caption or text, alt, rows)


def named_heads(
    rows: pd.DataFrame, named: int | Sequence[str], *, apart: float = 0.11
) -> pd.DataFrame:
    """The heads to name: those asked for, or so many of the outermost.

    rows   name, x, y
    apart  how near two named heads may be, as a share of the plane's width
    """
    if isinstance(named, int):
        return _outermost(rows, named, apart)
    unknown = [name for name in named if name not in set(rows["name"])]
    if unknown:
        raise BadValue(f"head '{unknown[0]}' is not in the table; heads are named like '5-4'.")
    return rows[rows["name"].isin(named)]


def _outermost(rows: pd.DataFrame, n: int, share: float) -> pd.DataFrame:
    """The n heads farthest from the middle, none so near to another that names would overlap."""
    places = rows[["x", "y"]].to_numpy(float)
    apart = share * max(np.ptp(places, axis=0).max(), 1e-9)
    chosen: list[int] = []
    for one in np.argsort(-np.hypot(*(places - places.mean(0)).T), kind="stable"):
        gaps = np.hypot(*(places[chosen] - places[one]).T)
        if len(chosen) < n and (gaps > apart).all():
            chosen.append(int(one))
    return rows.iloc[chosen]


def _by_layer(figure: Figure, panel: Axes, rows: pd.DataFrame) -> None:
    # The ends of the map vanish on a white or on a black page; the rim helps the rest.
    shades = ListedColormap(style.SEQUENTIAL(np.linspace(0.12, 0.9, 256)))
    last = max(float(rows["layer"].max()), 2.0)
    dots = panel.scatter(
        *(rows["x"], rows["y"]),
        c=rows["layer"],
        cmap=shades,
        norm=Normalize(1, last),
        s=34,
        ec=style.FAINT,
        lw=0.6,
    )
    panel.set_title("By layer", fontsize=9.5)
    place = panel.inset_axes((0.1, -0.08, 0.8, 0.032))
    bar = figure.colorbar(dots, cax=place, orientation="horizontal")
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7.5)
    bar.locator = MaxNLocator(6, integer=True)
    # Next to the bar: below its numbers it would be outside the figure.
    said: Any = {"transform": place.transAxes, "ha": "right", "va": "center", "fontsize": 8}
    place.text(-0.03, 0.5, "layer", **said)


def _by_behaviour(panel: Axes, rows: pd.DataFrame) -> dict[str, int]:
    """One mark per behaviour, the unremarkable heads small and first; how many there are."""
    counts = {str(name): int(n) for name, n in rows["behaviour"].value_counts().items()}
    plain = [name for name in counts if style.class_look(name) is style.LOOKS["other"]]
    spare = iter(style.SPARE_MARKS * len(counts))
    for name in [*plain, *(name for name in counts if name not in plain)]:
        look, part = style.class_look(name), rows[rows["behaviour"] == name]
        marker = next(spare) if look is style.LOOKS["syntax"] else look.marker
        dots: Any = {"s": 12, "marker": "o"} if name in plain else {"s": 46, "marker": marker}
        if name == "undefined":
            dots = {"s": 14, "marker": "x"}
        told = f"{name} ({counts[name]})"
        panel.scatter(part["x"], part["y"], color=look.colour, lw=0.8, label=told, **dots)
    panel.set_title("By behaviour", fontsize=9.5)
    place: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.02), "ncols": 3}
    panel.legend(fontsize=8, **place, **style.TIGHT)
    return counts


def plane_axis(panel: Axes, rows: pd.DataFrame, *, rim: float = 0.12) -> None:
    """Only distances mean something in such a plane: no numbers, the same scale both ways."""
    reach = rim * max(np.ptp(rows["x"]), np.ptp(rows["y"]), 1e-9)
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
    figure.draw_without_rendering()  # only now a place has a number of points
    scale = 72 / figure.dpi
    dots = scale * panel.transData.transform(rows[["x", "y"]].to_numpy(float))
    middle = scale * panel.transData.transform((rows["x"].mean(), rows["y"].mean()))
    edges = scale * panel.get_window_extent().get_points()
    written: list[_Box] = []
    for _, row in marked.iterrows():
        dot = scale * panel.transData.transform((row["x"], row["y"]))
        wide, tall = 0.62 * size * len(row["name"]), 0.8 * size
        boxes = {side: _beside(dot, side, (wide, tall), away) for side in _sides(*(dot >= middle))}
        costs = {
            side: _covered(box, dots, written) + 2 * _outside(box, edges)
            for side, box in boxes.items()
        }
        side = min(costs, key=lambda one: costs[one])  # the first of equals: the outer side
        written.append(boxes[side])
        across, upwards = side
        place: Any = {
            "ha": {1: "left", 0: "center", -1: "right"}[across],
            "va": {1: "bottom", 0: "center_baseline", -1: "top"}[upwards],
            "xytext": (across * away[0], upwards * away[1] + (1 - abs(across)) * upwards * 3),
            "textcoords": "offset points",
        }
        panel.annotate(row["name"], (row["x"], row["y"]), fontsize=size, **place)


_Side = tuple[int, int]
_Box = tuple[float, float, float, float]  # left, bottom, right, top


def _sides(right: bool, up: bool) -> list[_Side]:
    """Where a name can go, best first: outwards, aside, the other corners, above and below."""
    x, y = (1 if right else -1), (1 if up else -1)
    return [(x, y), (x, 0), (x, -y), (-x, y), (-x, 0), (0, y), (-x, -y), (0, -y)]


def _beside(dot: Any, side: _Side, size: tuple[float, float], away: tuple[float, float]) -> _Box:
    """The room of a name on that side of a point, all in points."""
    ends = []
    for at, way, length, gap in zip(dot, side, size, away, strict=True):
        low = at + gap if way > 0 else at - gap - length if way < 0 else at - length / 2
        ends.append((float(low), float(low + length)))
    (left, right), (bottom, top) = ends
    if side[0] == 0:  # straight above or below, the mark itself is in the way
        bottom, top = bottom + 3 * side[1], top + 3 * side[1]
    return left, bottom, right, top


def _covered(box: _Box, dots: Any, written: Sequence[_Box], mark: float = 2.5) -> int:
    """How many points and names a name in this box would lie on."""
    left, bottom, right, top = box
    inside = (dots[:, 0] > left - mark) & (dots[:, 0] < right + mark)
    inside &= (dots[:, 1] > bottom - mark) & (dots[:, 1] < top + mark)
    names = sum(left < r and right > x and bottom < t and top > b for x, b, r, t in written)
    return int(inside.sum()) + 2 * names


def _outside(box: _Box, edges: Any) -> bool:
    (left, bottom), (right, top) = edges
    return bool(box[0] < left or box[1] < bottom or box[2] > right or box[3] > top)


def _scale_bar(panel: Axes, rows: pd.DataFrame, unit: str) -> None:
    """How long a distance is: a round number, about a fifth of the picture."""
    fifth = max(np.ptp(rows["x"]), np.ptp(rows["y"]), 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(fifth))
    length = max(step * power for step in (1, 2, 5) if step * power <= fifth)
    (x, _), (y, _) = panel.get_xlim(), panel.get_ylim()
    x, y = x + 0.15 * fifth, y + 0.15 * fifth
    panel.plot([x, x + length], [y, y], color=style.INK, lw=1.2, solid_capstyle="butt")
    told: Any = {"xytext": (0, 3), "textcoords": "offset points", "fontsize": 7.5}
    panel.annotate(f"{length:g} {unit}".strip(), (x, y), **told)
