"""Our scores next to the paper's, row by row: ours solid, the paper's always hollow."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.panels import light_grid

OURS, PAPER = style.LOOKS["ours"].colour, style.LOOKS["paper"].colour


HOLLOW: Mapping[str, Any] = {
    "ls": "none",
    "marker": "o",
    "ms": 8,
    "mfc": "none",
    "mec": PAPER,
    "mew": 1.4,
    "zorder": 4,
}


ROW = 0.27  # inches


def relation_accuracies(
    table: pd.DataFrame,
    paper: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    caption: str | None = None,
) -> Drawing:
    """Best head of each relation and best fixed offset, in percent (Clark 2019, Table 1).

    table  relation, n, head, direction, accuracy, low, high, baseline, clean_accuracy, clean_low,
           clean_high; a relation without an accuracy keeps its row
    paper  for some relations, the paper's {value, baseline}
    """
    need(
        table,
        *("relation", "n", "head", "direction", "accuracy", "low", "high", "baseline"),
        *("clean_accuracy", "clean_low", "clean_high"),
    )
    # All relations together are not a relation: they go above the others.
    whole = table["relation"].str.lower() == "all"
    rows = table.assign(_whole=whole).sort_values(
        ["_whole", "accuracy"], ascending=False, kind="stable", ignore_index=True
    )
    rows = rows.drop(columns="_whole")
    told = {name: (paper or {}).get(name, {}) for name in rows["relation"]}
    with style.drawing():
        figure, panel = _rows_figure(len(rows))
        _relation_marks(panel, rows, told)
        _row_axis(panel, list(rows["relation"]), "accuracy in percent", (0, 100))
        _relation_columns(panel, rows)
        if whole.any() and not whole.all():
            panel.axhline(whole.sum() - 0.5, color=style.FAINT, alpha=0.6, lw=0.8)
        figure.legend(loc="outside upper left", ncols=5, fontsize=7.5, **style.TIGHT)
    best = rows[~(rows["relation"].str.lower() == "all")].assign(
        over=lambda frame: frame["accuracy"] - frame["baseline"]
    )
    lead = best[best["over"] > 0]
    text = (
        f"For {len(lead)} of {best['accuracy'].notna().sum()} relations the best head beats the "
        "best fixed offset (the upright tick). Lines are 95% intervals; the diamond is the "
        "accuracy when the head is chosen on other sentences than it is scored on."
    )
    spoken = ", ".join(
        f"{row['relation']} {row['accuracy']:.0f} by head {row['head']}, offset "
        f"{row['baseline']:.0f}{_paper_words(told[row['relation']].get('value'))}"
        for _, row in rows[rows["accuracy"].notna()].iterrows()
    )
    alt = f"Dots with intervals for {len(rows)} relations, accuracy in percent: {spoken or 'none'}."
    return Drawing(figure, caption or text, alt, rows)


def labelled_scores(
    table: pd.DataFrame,
    paper: Mapping[str, float] | Mapping[tuple[str, str], float] | None = None,
    *,
    unit: str = "percent",
    label: str = "label",
    value: str = "value",
    group: str | None = None,
    beside: str = "the paper",
    caption: str | None = None,
) -> Drawing:
    """Named scores with intervals, one below the other; one panel per group (Tables 2 and 3).

    table  columns `label` and `value`, low, high, and `group` if there is one, in the order to show
    paper  the paper's value of a label, or of (label, group); a label of the paper's alone
           gets a row of its own at the end
    beside  what the hollow marks are, if not the paper's values
    """
    need(table, label, value, "low", "high", *([group] if group else []))
    groups = list(dict.fromkeys(table[group])) if group else [""]
    theirs: dict[tuple[str, str], float] = {}
    for key, number in (paper or {}).items():
        theirs[key if isinstance(key, tuple) else (key, groups[0])] = float(number)
    labels = list(dict.fromkeys([*table[label], *(name for name, _ in theirs)]))
    if not labels:
        raise BadValue("no score to show; the table is empty.")
    with style.drawing():
        titles = [_wrapped(name, TITLE // len(groups)) for name in groups]
        lines = max(title.count("\n") for title in titles)
        figure, panels = _rows_figure(len(labels), len(groups), lines)
        span = _span(table[[value, "low", "high"]].to_numpy(float), theirs.values(), unit)
        for panel, name, title in zip(np.atleast_1d(panels), groups, titles, strict=True):
            part = table[table[group] == name] if group else table
            part = part.drop_duplicates(label).set_index(label)[[value, "low", "high"]]
            part = part.reindex(labels).astype(float)
            known = [theirs.get((one, name), math.nan) for one in labels]
            _score_marks(panel, part.to_numpy(), np.array(known), beside)
            first = panel is np.atleast_1d(panels)[0]
            _row_axis(panel, labels if first else None, "" if group else unit, span)
            panel.set_title(title, fontsize=9)
            if group:  # narrow panels have room for few numbers
                few = MaxNLocator(3 if len(groups) < 4 else 2, steps=[1, 2, 5, 10])
                panel.xaxis.set_major_locator(few)
            else:
                _score_texts(panel, part.to_numpy(), np.array(known), beside)
        if group:
            figure.supxlabel(unit, fontsize=9)
        if theirs:
            handles = np.atleast_1d(panels)[0].get_legend_handles_labels()
            figure.legend(*handles, loc="outside upper left", ncols=2, fontsize=7.5, **style.TIGHT)
    shown = table[table[group] == groups[0]] if group else table
    digits = 0 if unit in _SCALES else 2
    spoken = ", ".join(
        f"{row[label]} {row[value]:.{digits}f}"
        f"{_paper_words(theirs.get((row[label], groups[0])), digits, beside)}"
        for _, row in shown[shown[value].notna()].iterrows()
    )
    within = f" ({groups[0]})" if group else ""
    text = f"Scores in {unit} with 95% intervals{within}: {spoken or 'none'}."
    alt = f"Dots with intervals for {len(labels)} rows, {unit}{within}: {spoken or 'none'}."
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


_SCALES = ("percent", "UAS", "accuracy in percent")


TITLE = 64
"""Characters of titles that fit next to each other over all panels."""


def _wrapped(title: str, width: int) -> str:
    """A title on as many lines as its panel needs, the first break after a colon."""
    if len(title) <= width:
        return title
    parts = title.split(": ", 1)
    whole = [f"{part}:" for part in parts[:-1]] + parts[-1:]
    return "\n".join(textwrap.fill(part, width, break_long_words=False) for part in whole)


def _rows_figure(n_rows: int, n_panels: int = 1, more_lines: int = 0) -> tuple[Figure, Any]:
    """A figure for n rows one below the other, in one panel or in several with the same rows.

    more_lines  of the panels' titles, beyond the first
    """
    size = (style.WIDTHS["wide"], 0.95 + ROW * n_rows + 0.16 * more_lines)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.04))
    return figure, figure.subplots(1, n_panels, sharey=True)


def _row_axis(
    panel: Axes, labels: Sequence[str] | None, unit: str, span: tuple[float, float]
) -> None:
    """Rows downwards with their names, a light grid, and an axis that holds every value."""
    if labels is not None:
        panel.set_yticks(range(len(labels)), labels)
        panel.set_ylim(len(labels) - 0.45, -0.55)
    panel.set_xlim(*span)
    panel.set_xlabel(unit)
    panel.xaxis.set_major_locator(MaxNLocator(5))
    light_grid(panel, "x")
    panel.tick_params(axis="y", length=0, labelsize=8.5, pad=8)  # a hollow mark may be at 0
    panel.spines["left"].set_visible(False)


def _span(values: np.ndarray, theirs: Any, unit: str) -> tuple[float, float]:
    """From 0 to 100 for percent; otherwise from 0, or below, to just beyond the highest value."""
    if unit in _SCALES:
        return (0.0, 100.0)
    every = np.array([*values.ravel(), *theirs, 0.0])
    low, high = float(np.nanmin(every)), float(np.nanmax(every))
    room = 0.06 * ((high - low) or 1.0)
    return (low - room if low < 0 else 0.0, high + room)


def _relation_marks(panel: Axes, rows: pd.DataFrame, told: Mapping[str, Mapping[str, Any]]) -> None:
    places = np.arange(len(rows))
    clean: Any = {"color": OURS, "alpha": 0.75}
    panel.hlines(places, rows["low"], rows["high"], color=OURS, lw=2.4, alpha=0.5)
    ours: Any = {"ls": "none", "color": OURS, "clip_on": False}
    panel.plot(rows["accuracy"], places, marker="o", ms=6, mew=0, label="best head", **ours)
    lower = places + 0.27
    panel.hlines(lower, rows["clean_low"], rows["clean_high"], lw=1, **clean)
    name = "chosen on other data"
    marks: Any = {"ls": "none", "marker": "d", "ms": 4.5, "mew": 0, "label": name, **clean}
    panel.plot(rows["clean_accuracy"], lower, **marks)
    tick: Any = {"ls": "none", "marker": "|", "clip_on": False}
    base: Any = {"ms": 10, "mew": 1.8, "color": style.INK, "label": "best offset"}
    panel.plot(rows["baseline"], places, **tick, **base)
    theirs: tuple[tuple[str, Any, str], ...] = (
        ("value", HOLLOW, "the paper's head"),
        ("baseline", {**tick, "ms": 6, "mew": 1.6, "color": PAPER}, "the paper's offset"),
    )
    for key, look, text in theirs:
        known = np.array([float(told[one].get(key, math.nan)) for one in rows["relation"]])
        if np.isfinite(known).any():
            panel.plot(known, places, label=text, **{"clip_on": False, **look})


def _relation_columns(panel: Axes, rows: pd.DataFrame) -> None:
    """Head, direction and number of cases, written to the right of the axis."""
    side: Any = {"xycoords": panel.get_yaxis_transform(), "textcoords": "offset points"}
    side |= {"va": "center_baseline", "annotation_clip": False, "fontsize": 7.5}

    def write(text: str, x: float, y: float, ha: str = "left", alpha: float = 0.75) -> None:
        panel.annotate(text, (1.0, y), xytext=(x, 0), ha=ha, alpha=alpha, **side)

    write("head", 10, -0.95, alpha=0.65)
    write("n", 122, -0.95, "right", 0.65)
    for place, (_, row) in enumerate(rows.iterrows()):
        if pd.isna(row["accuracy"]):
            write("not measured", 10, place, alpha=0.65)
            continue
        write(str(row["head"]), 10, place, alpha=1.0)
        write(str(row["direction"]).replace("->", "→"), 40, place)
        write(f"{int(row['n']):,}", 122, place, "right")


def _paper_words(value: Any, digits: int = 0, beside: str = "the paper") -> str:
    known = value is not None and not math.isnan(float(value))
    return f" ({beside.removeprefix('the ')} {float(value):.{digits}f})" if known else ""


def _score_marks(panel: Axes, ours: np.ndarray, theirs: np.ndarray, beside: str) -> None:
    """ours (row, 3) = value, low, high; theirs (row,), NaN where the paper has none."""
    places = np.arange(len(ours))
    panel.hlines(places, ours[:, 1], ours[:, 2], color=OURS, lw=2.4, alpha=0.5)
    dot: Any = {"ls": "none", "marker": "o", "ms": 6, "mew": 0, "color": OURS}
    panel.plot(ours[:, 0], places, label="ours", clip_on=False, **dot)
    panel.plot(theirs, places, label=beside, clip_on=False, **HOLLOW)


def _score_texts(panel: Axes, ours: np.ndarray, theirs: np.ndarray, beside: str) -> None:
    """The numbers in two columns to the right of the axis; the paper's only if it has any."""
    side: Any = {"xycoords": panel.get_yaxis_transform(), "textcoords": "offset points"}
    side |= {"va": "center_baseline", "ha": "left", "annotation_clip": False, "fontsize": 8}
    columns = [(10, "ours", [_with_interval(*row) for row in ours])]
    if np.isfinite(theirs).any():
        told = ["" if math.isnan(value) else f"{value:.3g}" for value in theirs]
        columns.append((112, beside, told))
    for x, name, texts in columns:
        panel.annotate(name, (1.0, -0.85), xytext=(x, 0), alpha=0.65, **side)
        for place, text in enumerate(texts):
            panel.annotate(text, (1.0, place), xytext=(x, 0), **side)


def _with_interval(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return ""
    digits = 1 if abs(value) > 1 else 2  # a share needs one more than a percentage
    ends = "" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}{ends}".replace("-", "−")
