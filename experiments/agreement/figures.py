"""Squares of numbers: how far vocabularies and measures of importance agree, and who calls whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import number
from attnlib.plots.panels import number_cells, panel_grid

CELL = 0.62
FEW = 3
"""Heads that a surprising cell names."""


def agreement_square(
    table: pd.DataFrame,
    value: str,
    *,
    names: Mapping[str, str],
    above: str | None = None,
    faint: str | None = None,
    above_faint: str | None = None,
    diverging: bool = False,
) -> Drawing:
    """One cell for every two of some things, below the diagonal; above it another number.

    table  one, other, `value`, perhaps `above`, and whether each is drawn faintly, as the caption
           explains: `faint` and `above_faint`
    names  what the things are called, in the order to show
    """
    need(table, "one", "other", value, *[name for name in (above, faint, above_faint) if name])
    keys = [key for key in names if key in {*table["one"], *table["other"]}]
    rows = table[table["one"].isin(keys) & table["other"].isin(keys)]
    low, high = np.sort([rows[side].map(keys.index) for side in ("one", "other")], axis=0)
    grid, weak = np.full((len(keys), len(keys)), np.nan), np.zeros((len(keys), len(keys)), bool)
    for column, mark, place in ((value, faint, (high, low)), (above, above_faint, (low, high))):
        grid[place] = rows[column] if column else np.nan
        weak[place] = rows[mark] if mark else False
    if np.isnan(grid).all():
        raise BadValue(f"the column {value} has no number; there is nothing to draw.")
    largest = float(np.nanmax(np.abs(grid))) or 1.0
    called = [names[key] for key in keys]
    square = pd.DataFrame(grid, called, called)
    with style.drawing():
        side = 0.5 + CELL * len(keys)
        width = "column" if 2.1 + side < style.WIDTHS["column"] else "wide"
        figure, (panel,) = panel_grid(1, side, width=width)
        colours: Any = {"cmap": style.DIVERGING if diverging else style.SEQUENTIAL}
        colours["norm"] = Normalize(-largest if diverging else min(0.0, np.nanmin(grid)), largest)
        texts = square.map(lambda value: number(value, ".2f", ""))
        written = number_cells(panel, square, texts, slanted=True, **colours)
        for at, cell in written.items():
            if weak[at]:
                cell.set(alpha=0.55, style="italic")
        panel.set_aspect("equal")
    return Drawing("A square of numbers", figure, table)


def signed(value: float) -> str:
    """A number as text prints it, with a true minus; "–" where it is undefined."""
    return number(value, ".2f")


def head_links(heads: str, most: int = 6) -> str:
    """The first of some heads, such as "1-4 3-2", each a link to its card in the atlas."""
    whole = 'style="white-space: nowrap"'  # a name is not broken at its hyphen
    names = heads.split()
    links = [f'<a {whole} href="../book/atlas.html#{name}">{name}</a>' for name in names[:most]]
    return ", ".join(links) + (" …" if len(names) > most else "")


def crossed_labels(
    table: pd.DataFrame, one: str, other: str, *, names: Mapping[str, str], least: int = 2
) -> Drawing:
    """Heads by their labels in two vocabularies; cells where the two contradict are framed.

    The colour is how many twofold steps there are from the heads by chance to those there are, half
    a head added to each; a cell without a head has none: empty cells are not what it is about.

    table  of `confusion_wall`: one, other, row, column, n, expected, heads, odd
    least  rows and columns with fewer heads are left out
    """
    need(table, "one", "other", "row", "column", "n", "expected", "heads", "odd")
    part = table[(table["one"] == one) & (table["other"] == other)]
    if part.empty:
        raise BadValue(f"the table has no pair {one} and {other}.")
    some, kept = part["n"] > 0, []
    for side in ("row", "column"):
        sums = part.groupby(side)["n"].sum().sort_values(ascending=False)
        kept.append(list(sums.index[: max(1, (sums >= least).sum())]))
    cells = part.assign(
        shade=np.log2((part["n"] + 0.5) / (part["expected"] + 0.5)).where(some),
        text=part["n"].astype(str).where(some, ""),
        note=part["heads"].str.replace(" ", ", ").where(part["odd"] & (part["n"] <= FEW), ""),
        framed=part["odd"] & some,
    )
    wide = cells.pivot(index="row", columns="column")
    shades, texts, notes, framed = (
        wide[key].loc[kept[0], kept[1]] for key in ("shade", "text", "note", "framed")
    )
    with style.drawing():
        figure, (panel,) = panel_grid(1, 1.5 + 0.52 * len(shades))
        shades.columns = shades.columns.str.replace("+", "+\n")
        colours: Any = {"cmap": style.DIVERGING, "norm": Normalize(-3, 3)}
        number_cells(panel, shades, texts, notes, **colours)
        for y, x in np.argwhere(framed):
            frame: Any = {"fill": False, "ec": style.INK, "lw": 1.3}
            panel.add_patch(Rectangle((x - 0.46, y - 0.45), 0.92, 0.9, **frame))
        panel.set(ylabel=names[one], xlabel=names[other])
        panel.tick_params(axis="x", labelsize=7.5)
    return Drawing("A table of counts", figure, part)
