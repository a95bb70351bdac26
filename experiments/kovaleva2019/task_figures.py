"""Figures of several tasks side by side: scores, grids of heads, kinds of words, layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_names
from attnlib.plots import panels, style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.grids import pointed
from attnlib.plots.labels import task_name
from attnlib.plots.planes import layer_dots, named_heads, write_names
from attnlib.plots.rows import HOLLOW, OURS, ROW, row_axis, row_dots

FAR = 0.99
"""Colours reach a quarter beyond this quantile: a few outliers would leave all others pale."""
CROWD = 30
"""More rings than this in a grid hide its colours: small dots take their place."""
MARKS = ("s", "D", "v", "o", "|")
NAMED = 6
"""Heads whose names are written into a cloud of all heads."""


def start_dots(
    table: pd.DataFrame, paper: Mapping[tuple[str, str], float], *, strongest: str
) -> Drawing:
    """The score of every task after each kind of training (Kovaleva 2019, Table 1).

    table      task, label (a kind of training), value, low, high; up to five labels
    paper      the paper's value of a (label, task): a ring in the colour of the label
    strongest  the label that stands out
    """
    need(table, "task", "label", "value", "low", "high")
    labels, tasks = table["label"].unique(), table["task"].unique()
    if len(labels) > len(MARKS):
        raise BadValue(f"{len(labels)} kinds of training; expected {len(MARKS)} or fewer.")
    rest = iter(("other", "next", "special", "syntax"))
    with style.drawing():
        figure, (panel,) = panels.panel_grid(1, 0.95 + 1.45 * ROW * len(tasks))
        for number, label in enumerate(labels):
            colour = OURS if label == strongest else style.LOOKS[next(rest)].colour
            part = table[table["label"] == label].set_index("task").reindex(tasks)
            at = np.arange(len(tasks)) + 0.13 * (number - (len(labels) - 1) / 2)
            look: Any = {"ms": 9, "mew": 1.8} if MARKS[number] == "|" else {"ms": 6.5}
            look |= {"color": colour, "marker": MARKS[number], "line": 1.6}
            row_dots(panel, at, part[["value", "low", "high"]], label, **look)
            ring: Any = {**HOLLOW, "mec": colour, "ms": 9.5, "mew": 1.2, "clip_on": False}
            panel.plot([paper.get((label, task), math.nan) for task in tasks], at, **ring)
        row_axis(panel, range(len(tasks)), [task_name(task) for task in tasks], "points", None)
        panels.one_legend(figure, ncols=3)
    return Drawing(f"Marks for {len(tasks)} tasks", figure, table)


# --- grids of heads -------------------------------------------------------------------------------


def task_grids(
    table: pd.DataFrame,
    value: str = "value",
    *,
    what: str,
    unit: str = "",
    diverging: bool = False,
    marked: int = 3,
    group: str = "task",
    significant: str | None = None,
) -> Drawing:
    """One small grid of heads per task, all in the same colours (Kovaleva 2019, Figs. 5 and 8).

    table        `group`, layer, head, `value`; heads without a value stay empty
    what, unit   what the value is, for the colour bar
    diverging    0 in the middle, and colours equally far on both sides, but not to outliers
    marked       how many heads of a panel, the largest or the farthest from 0, get a ring
    significant  a column of true and false: these heads get the ring instead; a dot, if many do
    """
    more = [significant] if significant else []
    rows = _ordered_rows(table, value, [group, "layer", "head"], *more)
    strength = rows[value].abs() if diverging else rows[value]
    rank = strength.groupby(rows[group]).rank(method="first", ascending=False)
    ringed = (_truths(rows[significant]) if significant else rank <= marked) & strength.notna()
    names = rows[group].unique()
    crowded = bool(ringed.groupby(rows[group]).sum().max() > CROWD)
    shape = (int(rows["layer"].max()), int(rows["head"].max()))
    scale, label = _scale(rows[value], diverging), f"{what}, {unit}" if unit else what
    with style.drawing():
        lines = math.ceil(len(names) / 4)
        columns = math.ceil(len(names) / lines)
        width = {1: "narrow", 2: "column"}.get(columns, "wide")
        cell = (style.WIDTHS[width] / columns - 0.4) / shape[1]
        look: Any = {"columns": columns, "width": width, "gap": 0.03}
        tall = 0.8 + lines * (0.5 + cell * shape[0])
        figure, axes = panels.panel_grid(len(names), tall, **look)
        for panel, name in zip(axes, names, strict=True):
            mine = rows[group] == name
            _grid(panel, rows[mine], value, shape, scale)
            marks = rows[mine & ringed]
            colours = scale.to_rgba(marks[value].to_numpy(float))
            inks = [style.ink_on(to_hex(colour)) for colour in colours]
            look = {"lw": 0.0, "fc": inks} if crowded else {"lw": 1.1, "fc": "none"}
            side = (0.2 if crowded else 0.55) * min(72 * cell, 14)
            panel.scatter(marks["head"], marks["layer"], s=side**2, edgecolor=inks, **look)
            panel.set_title(task_name(name), fontsize=9)
            panels.say_undefined(panel, rows.loc[mine, value])
        _colour_bar(axes, scale, rows[value], label)
    kind = f"Grids of {shape[0]} layers and {shape[1]} heads, {len(names)} in all"
    return Drawing(kind, figure, rows)


def _ordered_rows(table: pd.DataFrame, value: str, keys: list[str], *more: str) -> pd.DataFrame:
    """The rows by layer and head, the groups in the order in which they come."""
    need(table, *keys, value, *more, once=keys)
    if table[keys[1:]].min().min() < 1:
        raise BadValue(f"a {' or '.join(keys[1:])} is below 1; count from 1.")
    if np.isinf(table[value].astype(float)).any() or table[value].isna().all():
        raise BadValue(f"the column {value} has an infinite number, or none at all.")
    place = pd.factorize(table[keys[0]])[0]
    return table.assign(_=place).sort_values(["_", *keys[1:]], ignore_index=True).drop(columns="_")


def _truths(column: pd.Series) -> pd.Series:
    """True and false; what is undefined is not significant, and a p-value is neither."""
    wrong = column[~(column.isin([True, False]) | column.isna())]
    if len(wrong):
        raise BadValue(f"the column {column.name} holds {wrong.iloc[0]}; expected true or false.")
    return column.eq(True).fillna(False).astype(bool)


def _scale(values: pd.Series, diverging: bool) -> ScalarMappable:
    """The colours of all panels: they hold 0 and all values, or all but the outliers around 0."""
    if not diverging:
        bounds = Normalize(min(0.0, values.min()), values.max() or 1.0)
        return ScalarMappable(bounds, style.SEQUENTIAL)
    far = values.abs()
    reach = min(far.max(), 1.25 * far.quantile(FAR)) or far.max() or 1.0
    return ScalarMappable(Normalize(-reach, reach), style.DIVERGING)


def _grid(
    panel: Axes, rows: pd.DataFrame, value: str, shape: tuple[int, int], scale: ScalarMappable
) -> None:
    """A picture with a pixel per head: a thousand shapes would make the page much larger."""
    tall, wide = shape
    cells = np.full(shape, np.nan)
    cells[rows["layer"].astype(int) - 1, rows["head"].astype(int) - 1] = rows[value]
    place: Any = {"extent": (0.5, wide + 0.5, tall + 0.5, 0.5), "interpolation": "none"}
    panel.imshow(cells, cmap=scale.cmap, clim=scale.get_clim(), **place)
    panel.vlines(np.arange(1.5, wide), 0.5, tall + 0.5, color="white", lw=0.5)
    panel.hlines(np.arange(1.5, tall), 0.5, wide + 0.5, color="white", lw=0.5)
    for axis, n in ((panel.xaxis, wide), (panel.yaxis, tall)):
        axis.set_ticks([i for i in range(1, n + 1) if n <= 6 or i % (3 if n < 13 else 4) == 1])
    panel.tick_params(length=0, labelsize=7.5, pad=2)
    panel.spines[:].set_visible(False)
    place = panel.get_subplotspec()
    panel.set_xlabel("head" if place.is_last_row() else "", fontsize=8)
    panel.set_ylabel("layer" if place.is_first_col() else "", fontsize=8)


def _colour_bar(axes: list[Axes], scale: ScalarMappable, values: pd.Series, label: str) -> None:
    """One bar for all panels; arrows and words say that values lie beyond its ends."""
    low, high = scale.get_clim()
    below, above = int((values < low).sum()), int((values > high).sum())
    place: Any = {"location": "bottom", "shrink": 0.5, "aspect": 34, "pad": 0.02}
    bar = axes[0].figure.colorbar(scale, ax=axes, extend=pointed(below, above), **place)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7.5)
    bar.locator = MaxNLocator(6)
    beyond = f" ({below + above} heads beyond the colours)" if below + above else ""
    bar.set_label(f"{label}{beyond}", fontsize=8)


# --- kinds of words -------------------------------------------------------------------------------


def task_matrix(
    table: pd.DataFrame, column: str, value: str, *, note: str | None = None
) -> Drawing:
    """One cell per task and kind, with its number.

    table  task, `column`, `value`, and `note`: small text beneath a number, such as a head
    """
    need(table, "task", column, value, *([note] if note else []), once=["task", column])
    rows = table.assign(task=table["task"].map(task_name))
    rows = rows.replace({column: {"cls": "[CLS]", "sep": "[SEP]", "main_object": "main object"}})
    tasks, kinds = rows["task"].unique(), rows[column].unique()
    wide = rows.pivot(index="task", columns=column).reindex(tasks)
    grid = wide[value][kinds].astype(float)
    if grid.isna().all(axis=None):
        raise BadValue(f"the column {value} has no number; there is nothing to draw.")
    texts = grid.map(lambda number: "–" if math.isnan(number) else f"{number:.2f}")
    notes = wide[note][kinds].where(grid.notna(), "") if note else None
    scale = Normalize(min(0.0, grid.min(axis=None)), grid.max(axis=None) or 1.0)
    with style.drawing():
        tall = 0.75 + (0.36 if note else 0.29) * len(tasks)
        figure, (panel,) = panels.panel_grid(1, tall)
        panels.number_cells(panel, grid, texts, notes, norm=scale)
        panel.xaxis.tick_top()
        panel.tick_params(length=0, labelsize=8.5)
    return Drawing(f"A table of {len(tasks)} tasks and {len(kinds)} kinds", figure, table)


# --- all heads in one plane -----------------------------------------------------------------------


def heads_against(
    table: pd.DataFrame, x: str, y: str, *, x_label: str, y_label: str, diagonal: bool = False
) -> Drawing:
    """Every head by two numbers, coloured by layer, those farthest out with their names.

    table     layer, head, `x`, `y`
    diagonal  draw the line on which both are equal
    """
    need(table, "layer", "head", x, y)
    rows = table.dropna(subset=[x, y]).reset_index(drop=True)
    if len(rows) < 3:
        raise BadValue(f"{len(rows)} heads have both numbers; expected 3 or more.")
    places = rows.assign(name=head_names(rows), x=rows[x], y=rows[y])
    unit = places.assign(**{axis: places[axis] / (np.ptp(places[axis]) or 1.0) for axis in "xy"})
    marked = places.loc[named_heads(unit, NAMED, apart=0.08).index]
    with style.drawing():
        figure, (panel,) = panels.panel_grid(1, 3.6, width="column")
        dots = layer_dots(panel, places, 30)
        if diagonal:
            panel.axline((0, 0), slope=1, color=style.FAINT, lw=0.9, zorder=0)
        else:
            panel.axhline(0, color=style.FAINT, lw=0.8, zorder=0)
        panel.set(xlabel=x_label, ylabel=y_label)
        panels.light_grid(panel)
        bar = figure.colorbar(dots, ax=panel, shrink=0.8, aspect=22, label="layer")
        bar.outline.set_visible(False)  # type: ignore[operator]
        bar.locator = MaxNLocator(6, integer=True)
        write_names(panel, marked, places)
    return Drawing(f"A scatter plot of {len(rows)} heads", figure, rows)


# --- layers ---------------------------------------------------------------------------------------


def two_profiles(table: pd.DataFrame, *, names: tuple[str, str], what: str) -> Drawing:
    """Two numbers per layer, one panel per task: ours as a line, the other as rings.

    table  task, layer, ours, other
    names  what the two are
    """
    need(table, "task", "layer", "ours", "other")
    with style.drawing():
        figure, parts = panels.group_panels(table, "task", task_name, ylabel=what, sharey=True)
        for _, panel, rows in parts:
            part = rows.sort_values("layer")
            line: Any = {"color": OURS, "marker": "o", "ms": 3.5, "mew": 0, "label": names[0]}
            panel.plot(part["layer"], part["ours"], **line)
            panel.plot(part["layer"], part["other"], label=names[1], **{**HOLLOW, "ms": 6})
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        panels.one_legend(figure, ncols=2)
    return Drawing("Lines over layers", figure, table)


def power_curves(table: pd.DataFrame) -> Drawing:
    """How likely a true change of some size would have been seen, one panel per task.

    table  task, tested (heads), size (points), power
    """
    need(table, "task", "tested", "size", "power")
    with style.drawing():
        figure, parts = panels.group_panels(table, "task", task_name, ylabel="power", sharey=True)
        for _, panel, rows in parts:
            for (tested, part), dash in zip(rows.groupby("tested"), ("--", "-"), strict=False):
                name = "one head" if tested == 1 else f"one of {tested} heads"
                panel.plot(part["size"], part["power"], ls=dash, color=OURS, label=name)
            panel.axhline(0.8, color=style.FAINT, lw=0.9, zorder=0)
            panel.set(ylim=(0, 1))
            panel.xaxis.set_major_locator(MaxNLocator(4))
            panel.set_xlabel("true change, points", fontsize=8)
            panels.say_undefined(panel, rows["power"])
        panels.one_legend(figure, ncols=2)
    return Drawing("Lines of power over size", figure, table)


def layer_changes(table: pd.DataFrame) -> Drawing:
    """Change of every task's score with one whole layer disabled (Kovaleva 2019, Fig. 9).

    table  task, layer, change (disabled minus whole), low, high, significant (true or false)
    """
    rows = _ordered_rows(table, "change", ["task", "layer"], "low", "high", "significant")
    rows["significant"] = _truths(rows["significant"]) & rows["change"].notna()
    reach = rows[["change", "low", "high"]].abs().max(axis=1).groupby(rows["task"]).max()
    shared = bool(reach.max() <= 5 * reach.min())  # else the small ones would be flat
    with style.drawing():
        look: Any = {"ylabel": "change, points", "height": 1.8, "sharey": shared}
        figure, parts = panels.group_panels(rows, "task", task_name, **look)
        for _, panel, part in parts:
            _change_dots(panel, part, _ends(rows if shared else part))
            panels.say_undefined(panel, part["change"])
        panels.one_legend(figure, ncols=2)
    return Drawing("Dots over layers", figure, rows)


def _ends(rows: pd.DataFrame) -> tuple[float, float]:
    """An axis that holds 0 and all dots, but not the ends of the few very wide intervals."""
    below, above = rows["change"] - rows["low"], rows["high"] - rows["change"]
    widest = 1.6 * float(pd.concat([below, above]).median())
    bottom = min(0.0, (rows["change"] - below.clip(upper=widest).fillna(0)).min())
    top = max(0.0, (rows["change"] + above.clip(upper=widest).fillna(0)).max())
    room = 0.08 * ((top - bottom) or 1.0)
    return bottom - room, top + room


def _change_dots(panel: Axes, rows: pd.DataFrame, ends: tuple[float, float]) -> None:
    """Dots with their intervals; an arrow where an interval goes on beyond the axis."""
    panel.axhline(0, color=style.INK, lw=0.8, alpha=0.6)
    for sure, name in ((True, "significant"), (False, "not significant")):
        part = rows[rows["significant"] == sure]
        reach = (part["low"].clip(lower=ends[0]), part["high"].clip(upper=ends[1]))
        panel.vlines(part["layer"], *reach, color=OURS, lw=1.8, alpha=0.75 if sure else 0.45)
        dot: Any = {"ls": "none", "marker": "o", "ms": 4.5, "mec": OURS, "mew": 1.1, "label": name}
        panel.plot(part["layer"], part["change"], mfc=OURS if sure else "none", **dot)
    beyond = (rows["low"] < ends[0], rows["high"] > ends[1])
    for outside, end, marker in zip(beyond, ends, ("v", "^"), strict=True):
        for layer in rows.loc[outside, "layer"]:
            panel.plot(layer, end, marker, ms=4, mew=0, color=OURS, clip_on=False)
    panels.layer_ticks(panel, sorted(rows["layer"].unique()), 6)
    panel.set_xlabel("layer", fontsize=8)
    panel.set_ylim(ends)
    panel.yaxis.set_major_locator(MaxNLocator(5))
