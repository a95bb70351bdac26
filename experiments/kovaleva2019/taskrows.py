"""Scores, kinds of words and layers of several tasks side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_names
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import task_name
from attnlib.plots.panels import light_grid, n_columns, small_panels
from attnlib.plots.planes import named_heads, write_names
from attnlib.plots.rows import HOLLOW, OURS, PAPER, ROW
from experiments.kovaleva2019.taskgrids import ink_on, told_number

MARKS = ("s", "D", "v", "o", "|")
LAYERS = ListedColormap(style.SEQUENTIAL(np.linspace(0.12, 0.9, 256)))


def start_dots(
    table: pd.DataFrame,
    paper: Mapping[tuple[str, str], float] | None = None,
    *,
    strongest: str,
    unit: str = "points",
    caption: str | None = None,
) -> Drawing:
    """The score of every task after each kind of training (Kovaleva 2019, Table 1).

    table      task, label (a kind of training), value, low, high; up to five labels
    paper      the paper's value of a (label, task): a ring in the colour of the label
    strongest  the label that stands out
    """
    need(table, "task", "label", "value", "low", "high")
    labels, tasks = (list(dict.fromkeys(table[name])) for name in ("label", "task"))
    if len(labels) > len(MARKS):
        raise BadValue(f"{len(labels)} kinds of training; expected {len(MARKS)} or fewer.")
    colours = dict(zip(labels, _colours(labels, strongest), strict=True))
    told = dict(paper or {})
    with style.drawing():
        size = (style.WIDTHS["wide"], 0.95 + 1.45 * ROW * len(tasks))
        figure = Figure(figsize=size, layout="constrained")
        panel = figure.subplots()
        for number, label in enumerate(labels):
            part = table[table["label"] == label].set_index("task").reindex(tasks)
            at = np.arange(len(tasks)) + 0.13 * (number - (len(labels) - 1) / 2)
            look: Any = {"color": colours[label], "clip_on": False}
            panel.hlines(at, part["low"], part["high"], lw=1.6, alpha=0.5, **look)
            mark: Any = {"marker": MARKS[number], "ls": "none", "mew": 0, "ms": 6.5}
            if MARKS[number] == "|":
                mark |= {"mew": 1.8, "ms": 9}
            panel.plot(part["value"], at, label=label, **mark, **look)
            theirs = np.array([told.get((label, task), math.nan) for task in tasks])
            if np.isfinite(theirs).any():
                ring: Any = {**HOLLOW, "mec": colours[label], "ms": 9.5, "mew": 1.2}
                panel.plot(theirs, at, **ring, clip_on=False)
        _task_axis(panel, tasks, unit)
        figure.legend(loc="outside lower center", ncols=3, fontsize=8, **style.TIGHT)
    best = table[table["label"] == strongest].set_index("task")["value"]
    scores = ", ".join(f"{task_name(task)} {value:.1f}" for task, value in best.items())
    rings = " Rings: the paper." if told else ""
    text = f"Scores on held-out inputs in {unit}, with 95% intervals.{rings} {strongest}: {scores}."
    spoken = "; ".join(
        f"{task_name(row['task'])}, {row['label']}: {row['value']:.1f}"
        for _, row in table.iterrows()
    )
    alt = f"Marks for {len(tasks)} tasks. {spoken}."
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def _colours(labels: Sequence[str], strongest: str) -> list[str]:
    rest = iter([style.LOOKS[name].colour for name in ("other", "next", "special", "syntax")])
    return [OURS if label == strongest else next(rest) for label in labels]


def _task_axis(panel: Axes, tasks: Sequence[str], unit: str) -> None:
    panel.set_yticks(range(len(tasks)), [task_name(task) for task in tasks])
    panel.set_ylim(len(tasks) - 0.5, -0.5)
    panel.set_xlabel(unit)
    panel.xaxis.set_major_locator(MaxNLocator(6))
    panel.grid(axis="x", color=style.FAINT, alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)


def task_matrix(
    table: pd.DataFrame,
    column: str,
    value: str,
    *,
    what: str,
    note: str | None = None,
    caption: str | None = None,
) -> Drawing:
    """One cell per task and kind, with its number.

    table  task, `column`, `value`, and `note`: small text beneath a number, such as a head
    """
    need(table, "task", column, value, *([note] if note else []))
    if table.duplicated(["task", column]).any():
        raise BadValue(f"two rows have the same task and {column}; give one.")
    tasks, kinds = (list(dict.fromkeys(table[name])) for name in ("task", column))
    grid = table.pivot(index="task", columns=column, values=value).reindex(tasks, columns=kinds)
    values = grid.to_numpy(float)
    if np.isnan(values).all():
        raise BadValue(f"the column {value} has no number; there is nothing to draw.")
    scale = Normalize(min(0.0, float(np.nanmin(values))), float(np.nanmax(values)) or 1.0)
    with style.drawing():
        tall = 0.36 if note else 0.29
        size = (style.WIDTHS["wide"], 0.75 + tall * len(tasks))
        figure = Figure(figsize=size, layout="constrained")
        panel = figure.subplots()
        edge: Any = {"lw": 1.0, "ec": "white", "norm": scale, "cmap": style.SEQUENTIAL}
        across, down = (np.arange(n + 1) - 0.5 for n in (len(kinds), len(tasks)))
        panel.pcolormesh(across, down, values, **edge)
        small = {} if note is None else table.set_index(["task", column])[note].to_dict()
        for (y, x), number in np.ndenumerate(values):
            _cell(panel, x, y, number, scale, small.get((tasks[y], kinds[x])))
        panel.set_xticks(range(len(kinds)), [_kind_name(kind) for kind in kinds])
        panel.set_yticks(range(len(tasks)), [task_name(task) for task in tasks])
        panel.xaxis.tick_top()
        panel.set_ylim(len(tasks) - 0.5, -0.5)
        panel.tick_params(length=0, labelsize=8.5)
        panel.spines[:].set_visible(False)
    told = "; ".join(
        f"{task_name(task)} {_kind_name(str(row.idxmax()))} ({row.max():.2f})"
        for task, row in grid.iterrows()
        if row.notna().any()
    )
    text = f"{what[:1].upper()}{what[1:]}. Largest: {told}."
    return Drawing(figure, caption or text, f"A table of {values.shape} cells. {text}", table)


def _cell(panel: Axes, x: int, y: int, number: float, scale: Normalize, note: Any) -> None:
    if math.isnan(number):
        panel.text(x, y, "–", ha="center", va="center", fontsize=8, alpha=0.6)
        return
    ink: Any = {"color": ink_on(to_hex(style.SEQUENTIAL(scale(number)))), "ha": "center"}
    up = 0.17 if note else 0.0
    panel.text(x, y - up, f"{number:.2f}", va="center", fontsize=8.5, **ink)
    if note:
        panel.text(x, y + 0.24, str(note), va="center", fontsize=6.8, **ink)


def _kind_name(kind: str) -> str:
    return {"cls": "[CLS]", "sep": "[SEP]"}.get(kind, kind)


def heads_against(
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    x_label: str,
    y_label: str,
    diagonal: bool = False,
    named: int = 6,
    caption: str | None = None,
) -> Drawing:
    """Every head by two numbers, coloured by layer, those farthest out with their names.

    table     layer, head, `x`, `y`
    diagonal  draw the line on which both are equal
    """
    need(table, "layer", "head", x, y)
    rows = table[table[[x, y]].notna().all(axis=1)].reset_index(drop=True)
    if len(rows) < 3:
        raise BadValue(f"{len(rows)} heads have both numbers; expected 3 or more.")
    places = rows.assign(name=head_names(rows), x=rows[x], y=rows[y])
    spread = [float(np.ptp(places[axis])) or 1.0 for axis in ("x", "y")]
    unit = places.assign(x=places["x"] / spread[0], y=places["y"] / spread[1])
    marked = places.loc[named_heads(unit, named, apart=0.08).index]
    with style.drawing():
        figure = Figure(figsize=(style.WIDTHS["column"], 3.6), layout="constrained")
        panel = figure.subplots()
        last = max(float(rows["layer"].max()), 2.0)
        look: Any = {"cmap": LAYERS, "norm": Normalize(1, last), "ec": style.FAINT, "lw": 0.6}
        dots = panel.scatter(rows[x], rows[y], c=rows["layer"], s=30, **look)
        if diagonal:
            top = max(float(rows[x].max()), float(rows[y].max()))
            panel.plot([0, top], [0, top], color=style.FAINT, lw=0.9, zorder=0)
        else:
            panel.axhline(0, color=style.FAINT, lw=0.8, zorder=0)
        panel.set(xlabel=x_label, ylabel=y_label)
        light_grid(panel)
        bar = figure.colorbar(dots, ax=panel, shrink=0.8, aspect=22, label="layer")
        bar.outline.set_visible(False)  # type: ignore[operator]
        bar.locator = MaxNLocator(6, integer=True)
        write_names(panel, marked, places)
    size = (float(rows[x].abs().max()), float(rows[y].abs().max()))
    told = ", ".join(
        f"{row['name']} ({told_number(row[x], size[0], '-')}, {told_number(row[y], size[1], '-')})"
        for _, row in marked.iterrows()
    )
    text = f"Each dot is a head; across: {x_label}, upwards: {y_label}. Farthest out: {told}."
    return Drawing(figure, caption or text, f"A scatter plot of {len(rows)} heads. {text}", rows)


def two_profiles(
    table: pd.DataFrame,
    *,
    names: tuple[str, str],
    what: str,
    group: str = "task",
    caption: str | None = None,
) -> Drawing:
    """Two numbers per layer, one panel per task: ours as a line, the other as rings.

    table  `group`, layer, ours, other
    names  what the two are
    """
    need(table, group, "layer", "ours", "other")
    groups = list(dict.fromkeys(table[group]))
    with style.drawing():
        figure, panels = small_panels(len(groups), sharey=True)
        for panel, one in zip(panels, groups, strict=True):
            part = table[table[group] == one].sort_values("layer")
            line: Any = {"color": OURS, "marker": "o", "ms": 3.5, "mew": 0, "label": names[0]}
            panel.plot(part["layer"], part["ours"], **line)
            ring: Any = {**HOLLOW, "mec": PAPER, "ms": 6}
            panel.plot(part["layer"], part["other"], label=names[1], **ring)
            panel.set_title(task_name(one), fontsize=9)
            panel.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            light_grid(panel)
        for panel in panels[:: n_columns(len(groups))]:
            panel.set_ylabel(what, fontsize=8)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=8, **style.TIGHT)
    gap = table.assign(gap=(table["ours"] - table["other"]).abs())
    far = gap.loc[gap["gap"].idxmax()]
    text = (
        f"{what[:1].upper()}{what[1:]}, by layer: {names[0]} as a line, {names[1]} as rings. "
        f"Farthest apart: {task_name(far[group])}, layer {int(far['layer'])}, "
        f"{far['ours']:.2f} and {far['other']:.2f}."
    )
    rows = table.reset_index(drop=True)
    return Drawing(figure, caption or text, f"Lines over layers. {text}", rows)
