"""Squares of numbers: how far vocabularies and measures of importance agree, and who calls whom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.style import ink_on

CELL = 0.62
FEW = 3
"""Heads that a surprising cell names."""


def agreement_square(
    table: pd.DataFrame,
    value: str,
    *,
    names: Mapping[str, str],
    what: str,
    above: str | None = None,
    above_what: str = "",
    sure: str | None = None,
    above_sure: str | None = None,
    diverging: bool = False,
    caption: str | None = None,
) -> Drawing:
    """One cell for every two of some things, below the diagonal; above it another number.

    table  one, other, `value`, perhaps `above`, and the q-values of both, `sure` and `above_sure`:
           at 0.05 or more a number is drawn faintly (NaN: it was not tested)
    names  what the things are called, in the order to show
    """
    need(table, "one", "other", value, *[name for name in (above, sure, above_sure) if name])
    keys = [key for key in names if key in {*table["one"], *table["other"]}]
    place = {key: number for number, key in enumerate(keys)}
    called, n = [names[key] for key in keys], len(keys)
    grid, faint = np.full((n, n), np.nan), np.zeros((n, n), bool)
    for row in table.to_dict("records"):
        if row["one"] not in place or row["other"] not in place:
            continue
        low, high = sorted((place[row["one"]], place[row["other"]]))
        grid[high, low] = row[value]
        faint[high, low] = sure is not None and row[sure] >= 0.05
        if above is not None:
            grid[low, high] = row[above]
            faint[low, high] = above_sure is not None and row[above_sure] >= 0.05
    if np.isnan(grid).all():
        raise BadValue(f"the column {value} has no number; there is nothing to draw.")
    largest = float(np.nanmax(np.abs(grid))) or 1.0
    colours: Colormap = style.DIVERGING if diverging else style.SEQUENTIAL
    scale = Normalize(-largest if diverging else min(0.0, float(np.nanmin(grid))), largest)
    with style.drawing():
        side = 0.5 + CELL * n
        figure = Figure(figsize=(min(style.WIDTHS["wide"], 2.1 + side), side), layout="constrained")
        panel = figure.subplots()
        edges = np.arange(n + 1) - 0.5
        panel.pcolormesh(edges, edges, grid, cmap=colours, norm=scale, ec="white", lw=1.0)
        for (y, x), number in np.ndenumerate(grid):
            if not math.isnan(number):
                ink: Any = {"color": ink_on(to_hex(colours(scale(number))))}
                look: Any = {"alpha": 0.55, "style": "italic"} if faint[y, x] else {}
                panel.text(
                    x, y, signed(number), ha="center", va="center", fontsize=9, **ink, **look
                )
        _square_axis(panel, called)
    pairs = _named_pairs(grid, called)
    most, least = max(pairs), min(pairs)
    upper = f" Above the diagonal: {above_what}." if above else ""
    weak = " Faint numbers do not survive control of false discoveries." if sure else ""
    text = (
        f"{what[:1].upper()}{what[1:]}.{upper}{weak} Most alike: {most[1]} and {most[2]} "
        f"({signed(most[0])}); least: {least[1]} and {least[2]} ({signed(least[0])})."
    )
    spoken = f"A square of numbers. {_spoken(pairs)}."
    if above:
        spoken += f" Above the diagonal, {above_what}: {_spoken(_named_pairs(grid.T, called))}."
    return Drawing(figure, caption or text, spoken, table)


def _named_pairs(grid: np.ndarray, names: Sequence[str]) -> list[tuple[float, str, str]]:
    """The numbers below the diagonal, each with what it compares."""
    return [
        (float(grid[y, x]), names[x], names[y])
        for y in range(len(grid))
        for x in range(y)
        if not math.isnan(grid[y, x])
    ]


def _spoken(pairs: Sequence[tuple[float, str, str]]) -> str:
    return "; ".join(f"{one} and {other} {signed(number)}" for number, one, other in pairs)


def _square_axis(panel: Axes, names: Sequence[str]) -> None:
    n = len(names)
    panel.set_yticks(range(n), names)
    panel.set_xticks(range(n), names, rotation=38, ha="right", rotation_mode="anchor")
    panel.set_ylim(n - 0.5, -0.5)
    panel.set_aspect("equal")
    panel.tick_params(length=0, labelsize=8.5)
    panel.spines[:].set_visible(False)


def signed(value: float) -> str:
    """A number as text prints it, with a true minus; "–" where it is undefined."""
    return "–" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def head_links(heads: str, most: int = 6) -> str:
    """The first of some heads, such as "1-4 3-2", each a link to its card in the atlas."""
    whole = 'style="white-space: nowrap"'  # a name is not broken at its hyphen
    names = heads.split()
    links = [f'<a {whole} href="../book/atlas.html#{name}">{name}</a>' for name in names[:most]]
    return ", ".join(links) + (" …" if len(names) > most else "")


def crossed_labels(
    table: pd.DataFrame,
    one: str,
    other: str,
    *,
    names: Mapping[str, str],
    least: int = 2,
    caption: str | None = None,
) -> Drawing:
    """Heads by their labels in two vocabularies; cells where the two contradict are framed.

    table  of `confusion_wall`: one, other, row, column, n, expected, heads, odd
    least  rows and columns with fewer heads are left out
    """
    need(table, "one", "other", "row", "column", "n", "expected", "heads", "odd")
    part = table[(table["one"] == one) & (table["other"] == other)]
    if part.empty:
        raise BadValue(f"the table has no pair {one} and {other}.")
    sums = {side: part.groupby(side)["n"].sum().sort_values(ascending=False) for side in SIDES}
    rows, columns = (
        [label for label, n in sums[side].items() if n >= least] or list(sums[side].index[:1])
        for side in SIDES
    )
    cells = part.set_index(["row", "column"])
    ratio = np.array([[_ratio(cells.loc[(row, column)]) for column in columns] for row in rows])
    with style.drawing():
        size = (style.WIDTHS["wide"], 1.5 + 0.52 * len(rows))
        figure = Figure(figsize=size, layout="constrained")
        panel = figure.subplots()
        scale = Normalize(-3, 3)
        across, down = (np.arange(n + 1) - 0.5 for n in (len(columns), len(rows)))
        panel.pcolormesh(across, down, ratio, cmap=style.DIVERGING, norm=scale, ec="white", lw=1.0)
        for y, row in enumerate(rows):
            for x, column in enumerate(columns):
                _crossed_cell(panel, x, y, cells.loc[(row, column)], scale(ratio[y, x]))
        panel.set_yticks(range(len(rows)), rows)
        wrapped = [name.replace("+", "+\n") for name in columns]
        panel.set_xticks(range(len(columns)), wrapped, rotation=0, fontsize=7.5)
        panel.set(ylabel=names[one], xlabel=names[other])
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.tick_params(length=0)
        panel.spines[:].set_visible(False)
    odd = part[part["odd"] & (part["n"] > 0)].nlargest(3, "n")
    told = "; ".join(
        f"{row.n} {'head is' if row.n == 1 else 'heads are'} {row.row} and {row.column} "
        f"({_few(row.heads)})"
        for row in odd.itertuples()
    )
    text = (
        f"Heads by {names[one]} (rows) and {names[other]} (columns). Orange: more heads than by "
        f"chance, blue: fewer; empty: none; framed: labels that contradict each other. "
        + (f"Largest contradictions: {told}." if told else "None contradict.")
    )
    return Drawing(figure, caption or text, f"A table of counts. {text}", part)


SIDES = ("row", "column")


def _ratio(cell: Any) -> float:
    """Twofold steps between the heads there are and those by chance, half a head added to each.

    A cell without a head has no colour: empty cells are many, and the figure is not about them.
    """
    if not cell["n"]:
        return math.nan
    return float(np.log2((cell["n"] + 0.5) / (cell["expected"] + 0.5)))


def _crossed_cell(panel: Axes, x: int, y: int, cell: Any, shade: float) -> None:
    if not cell["n"]:
        return
    ink: Any = {"color": ink_on(to_hex(style.DIVERGING(shade))), "ha": "center", "va": "center"}
    few = cell["odd"] and cell["n"] <= FEW
    panel.text(x, y - (0.13 if few else 0), str(cell["n"]), fontsize=9, **ink)
    if few:
        panel.text(x, y + 0.24, _few(cell["heads"]), fontsize=6.3, **ink)
    if cell["odd"]:
        frame: Any = {"fill": False, "ec": style.INK, "lw": 1.3}
        panel.add_patch(Rectangle((x - 0.46, y - 0.45), 0.92, 0.9, **frame))


def _few(heads: str) -> str:
    named = heads.split()
    more = f" and {len(named) - FEW} more" if len(named) > FEW else ""
    return ", ".join(named[:FEW]) + more
