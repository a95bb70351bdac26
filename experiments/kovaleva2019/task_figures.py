"""Figures of several tasks side by side: scores, grids of heads, kinds of words, layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_names
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import task_name, upper
from attnlib.plots.panels import light_grid, n_columns, say_undefined, small_panels
from attnlib.plots.planes import named_heads, write_names
from attnlib.plots.rows import HOLLOW, OURS, PAPER, ROW
from attnlib.plots.style import ink_on

FAR = 0.99
"""Colours reach a quarter beyond this quantile: a few outliers would leave all others pale."""
CROWD = 30
"""More rings than this in a grid hide its colours: small dots take their place."""
MARKS = ("s", "D", "v", "o", "|")
LAYERS = ListedColormap(style.SEQUENTIAL(np.linspace(0.12, 0.9, 256)))
NAMED = 6
"""Heads whose names are written into a cloud of all heads."""


def start_dots(
    table: pd.DataFrame,
    paper: Mapping[tuple[str, str], float] | None = None,
    *,
    strongest: str,
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
    rest = iter([style.LOOKS[name].colour for name in ("other", "next", "special", "syntax")])
    colours = {label: OURS if label == strongest else next(rest) for label in labels}
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
        panel.set_yticks(range(len(tasks)), [task_name(task) for task in tasks])
        panel.set(ylim=(len(tasks) - 0.5, -0.5), xlabel="points")
        panel.xaxis.set_major_locator(MaxNLocator(6))
        panel.grid(axis="x", color=style.FAINT, alpha=0.25, lw=0.6)
        panel.set_axisbelow(True)
        panel.tick_params(axis="y", length=0)
        panel.spines["left"].set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, fontsize=8, **style.TIGHT)
    best = table[table["label"] == strongest].set_index("task")["value"]
    scores = ", ".join(f"{task_name(task)} {value:.1f}" for task, value in best.items())
    rings = " Rings: the paper." if told else ""
    text = f"Scores on held-out inputs in points, with 95% intervals.{rings} {strongest}: {scores}."
    spoken = "; ".join(
        f"{task_name(row['task'])}, {row['label']}: {row['value']:.1f}"
        for _, row in table.iterrows()
    )
    alt = f"Marks for {len(tasks)} tasks. {spoken}."
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


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
    caption: str | None = None,
) -> Drawing:
    """One small grid of heads per task, all in the same colours (Kovaleva 2019, Figs. 5 and 8).

    table        `group`, layer, head, `value`; heads without a value stay empty and are counted
    what, unit   what the value is, for the colour bar and the caption
    diverging    0 in the middle, and colours equally far on both sides, but not to outliers
    marked       how many heads of a panel, the largest or the farthest from 0, get a ring
    significant  a column of true and false: these heads get the ring instead; a dot, if many do
    """
    need(table, group, "layer", "head", value, *([significant] if significant else []))
    rows = ordered_rows(table, value, [group, "layer", "head"])
    strength = rows[value].abs() if diverging else rows[value]
    rank = strength.groupby(rows[group]).rank(method="first", ascending=False)
    ringed = (truths(rows[significant]) if significant else rank <= marked) & strength.notna()
    scale = _scale(rows[value], diverging)
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
            marks = rows[mine & ringed]
            inks = [ink_on(to_hex(one)) for one in scale.to_rgba(marks[value].to_numpy(float))]
            look: Any = {"s": ((0.2 if crowded else 0.55) * min(cell, 14)) ** 2, "edgecolor": inks}
            look |= {"lw": 0.0, "fc": inks} if crowded else {"lw": 1.1, "fc": "none"}
            panel.scatter(marks["head"], marks["layer"], **look)
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


def _scale(values: pd.Series, diverging: bool) -> ScalarMappable:
    """The colours of all panels: they hold 0 and all values, or all but the outliers around 0."""
    if not diverging:
        bottom = min(0.0, values.min())
        top = max(bottom, values.max())
        return ScalarMappable(Normalize(bottom, top + (top == bottom)), style.SEQUENTIAL)
    far = min(float(values.abs().max()), 1.25 * float(values.abs().quantile(FAR)))
    reach = far or values.abs().max() or 1.0
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


# --- kinds of words -------------------------------------------------------------------------------


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
    text = f"{upper(what)}. Largest: {told}."
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


# --- all heads in one plane -----------------------------------------------------------------------


def heads_against(
    table: pd.DataFrame,
    x: str,
    y: str,
    *,
    x_label: str,
    y_label: str,
    diagonal: bool = False,
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
    marked = places.loc[named_heads(unit, NAMED, apart=0.08).index]
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


def told_number(value: float, size: float, sign: str = "+") -> str:
    """With the decimals that tell values of this size apart."""
    digits = int(np.clip(2 - math.ceil(math.log10(size or 1.0)), 0, 5))
    return f"{value:{sign}.{digits}f}".replace("-", "−")


# --- layers ---------------------------------------------------------------------------------------


def two_profiles(
    table: pd.DataFrame,
    *,
    names: tuple[str, str],
    what: str,
    caption: str | None = None,
) -> Drawing:
    """Two numbers per layer, one panel per task: ours as a line, the other as rings.

    table  task, layer, ours, other
    names  what the two are
    """
    need(table, "task", "layer", "ours", "other")
    groups = list(dict.fromkeys(table["task"]))
    with style.drawing():
        figure, panels = small_panels(len(groups), sharey=True)
        for panel, one in zip(panels, groups, strict=True):
            part = table[table["task"] == one].sort_values("layer")
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
        f"{upper(what)}, by layer: {names[0]} as a line, {names[1]} as rings. "
        f"Farthest apart: {task_name(far['task'])}, layer {int(far['layer'])}, "
        f"{far['ours']:.2f} and {far['other']:.2f}."
    )
    rows = table.reset_index(drop=True)
    return Drawing(figure, caption or text, f"Lines over layers. {text}", rows)


def layer_changes(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """Change of every task's score with one whole layer disabled (Kovaleva 2019, Fig. 9).

    table  task, layer, change (disabled minus whole), low, high, significant (true or false)
    """
    need(table, "task", "layer", "change", "low", "high", "significant")
    rows = ordered_rows(table, "change", ["task", "layer"])
    rows["significant"] = truths(rows["significant"]) & rows["change"].notna()
    tasks = list(dict.fromkeys(rows["task"]))
    reach = rows[["change", "low", "high"]].abs().max(axis=1).groupby(rows["task"]).max()
    shared = bool(reach.max() <= 5 * reach.min())  # else the small ones would be flat
    clipped = 0
    with style.drawing():
        figure, panels = small_panels(len(tasks), height=1.8, sharey=shared)
        for panel, task in zip(panels, tasks, strict=True):
            part = rows[rows["task"] == task]
            clipped += _change_dots(panel, part, _ends(rows if shared else part))
            panel.set_title(task_name(task), fontsize=9)
            say_undefined(panel, part["change"])
        for panel in panels[:: n_columns(len(tasks))]:
            panel.set_ylabel("change, points", fontsize=8)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=8, **style.TIGHT)
    known = rows[rows["change"].notna()]
    size = min(10.0, known["change"].abs().max())  # one decimal at least
    told = [
        f"{told_number(row['change'], size)} ({task_name(row['task'])}, layer {int(row['layer'])})"
        for row in (known.loc[known["change"].idxmax()], known.loc[known["change"].idxmin()])
    ]
    rise = f"The largest rise is {told[0]}" if known["change"].max() > 0 else "Nothing rises"
    drop = f"the largest drop {told[1]}" if known["change"].min() < 0 else "nothing drops"
    text = (
        "Change of the score with one whole layer disabled, in points, with 95% intervals. "
        f"{rise}, {drop}. {rows['significant'].sum()} of {len(known)} changes are significant "
        f"(full dots).{f' Arrows: intervals go on beyond the axis ({clipped}).' if clipped else ''}"
        f"{'' if shared else ' Every task has its own axis.'}"
    )
    each = "; ".join(
        f"{task_name(str(task))} from {told_number(part['change'].min(), size)} to "
        f"{told_number(part['change'].max(), size)}, {part['significant'].sum()} significant"
        for task, part in known.groupby("task", sort=False)
    )
    return Drawing(figure, caption or text, f"Dots over layers. {text} By task: {each}.", rows)


def _ends(rows: pd.DataFrame) -> tuple[float, float]:
    """An axis that holds 0 and all dots, but not the ends of the few very wide intervals."""
    below, above = rows["change"] - rows["low"], rows["high"] - rows["change"]
    widest = 1.6 * float(pd.concat([below, above]).median())
    bottom = min(0.0, (rows["change"] - below.clip(upper=widest).fillna(0)).min())
    top = max(0.0, (rows["change"] + above.clip(upper=widest).fillna(0)).max())
    room = 0.08 * ((top - bottom) or 1.0)
    return bottom - room, top + room


def _change_dots(panel: Axes, rows: pd.DataFrame, ends: tuple[float, float]) -> int:
    """Dots with their intervals; how many ends of intervals lie beyond the axis."""
    panel.axhline(0, color=style.INK, lw=0.8, alpha=0.6)
    for sure, name in ((True, "significant"), (False, "not significant")):
        part = rows[rows["significant"] == sure]
        reach = (part["low"].clip(lower=ends[0]), part["high"].clip(upper=ends[1]))
        panel.vlines(part["layer"], *reach, color=OURS, lw=1.8, alpha=0.75 if sure else 0.45)
        dot: Any = {"ls": "none", "marker": "o", "ms": 4.5, "mec": OURS, "mew": 1.1, "label": name}
        panel.plot(part["layer"], part["change"], mfc=OURS if sure else "none", **dot)
    beyond = (rows.loc[rows["low"] < ends[0], "layer"], rows.loc[rows["high"] > ends[1], "layer"])
    for layers, end, marker in zip(beyond, ends, ("v", "^"), strict=True):
        for layer in layers:
            panel.plot(layer, end, marker, ms=4, mew=0, color=OURS, clip_on=False)
    every = np.arange(rows["layer"].min(), rows["layer"].max() + 1)
    panel.set(xlim=(every[0] - 0.6, every[-1] + 0.6), ylim=ends)
    panel.set_xticks(every[:: max(1, math.ceil(len(every) / 6))])
    panel.set_xlabel("layer", fontsize=8)
    panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.tick_params(labelsize=7.5)
    light_grid(panel)
    return sum(map(len, beyond))
