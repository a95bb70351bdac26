"""Our scores next to the paper's, row by row: ours solid, the paper's always hollow."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import number
from attnlib.plots.panels import light_grid, one_legend, panel_grid

OURS, PAPER = style.LOOKS["ours"].colour, style.LOOKS["paper"].colour
SOLID: Mapping[str, Any] = {"ls": "none", "marker": "o", "ms": 6, "mew": 0, "color": OURS}
HOLLOW: Mapping[str, Any] = {**SOLID, "ms": 8, "mfc": "none", "mec": PAPER, "mew": 1.4, "zorder": 4}
ROW = 0.27  # inches

Places = Sequence[float] | np.ndarray


# --- marks, axes and words of rows ----------------------------------------------------------------


def row_dots(panel: Axes, places: Places, rows: pd.DataFrame, label: str, **look: Any) -> None:
    """A dot for each row and a line for its interval.

    rows  three columns: the value and both ends of its interval
    look  what differs from the solid dot that means ours; `line` is the width of the line
    """
    thick = look.pop("line", 2.4)
    mark = {**SOLID, **look}
    value, low, high = (rows[name].to_numpy(float) for name in rows)
    panel.hlines(places, low, high, color=mark["color"], lw=thick, alpha=0.5)
    panel.plot(value, places, label=label, clip_on=False, **mark)


def hollow_marks(
    panel: Axes, places: Places, values: Sequence[float] | pd.Series, label: str = "the paper"
) -> None:
    """The paper's values, or somebody else's; nothing where there are none."""
    if np.isfinite(np.asarray(values, float)).any():
        panel.plot(values, places, label=label, clip_on=False, **HOLLOW)


def row_axis(
    panel: Axes, places: Places, labels: Sequence[str], unit: str, span: tuple[float, float] | None
) -> None:
    """Rows downwards with their names, a light grid, and an axis that holds every value."""
    panel.set_yticks(places, labels)
    panel.set_ylim(places[-1] + 0.55, places[0] - 0.55)
    panel.set_xlim(span)
    panel.set_xlabel(unit)
    panel.xaxis.set_major_locator(MaxNLocator(5))
    light_grid(panel, "x")
    panel.tick_params(axis="y", length=0, labelsize=8.5, pad=8)  # a hollow mark may be at 0
    panel.spines["left"].set_visible(False)


def row_words(
    panel: Axes,
    places: Places,
    name: str,
    texts: Sequence[str],
    x: float,
    *,
    right: bool = False,
    bold: Collection[bool] = (),
) -> None:
    """A column of words next to an axis, x points from its end, below the column's name."""
    side: Any = {"xycoords": panel.get_yaxis_transform(), "textcoords": "offset points"}
    side |= {"va": "center_baseline", "ha": "right" if right else "left", "xytext": (x, 0)}
    side |= {"annotation_clip": False, "fontsize": 8}
    if name:
        panel.annotate(name, (1.0, places[0] - 0.9), alpha=0.65, **side)
    strong = bold or [False] * len(texts)
    for place, text, heavy in zip(places, texts, strong, strict=True):
        panel.annotate(text, (1.0, place), fontweight="bold" if heavy else "normal", **side)


def with_interval(value: float, low: float, high: float, *, form: str = "") -> str:
    """`40.0 [38.0, 42.0]`; nothing where there is no value."""
    form = form or (".1f" if abs(value) > 1 else ".2f")  # a share needs one more digit
    ends = "" if math.isnan(low) else f" [{number(low, form)}, {number(high, form)}]"
    return f"{number(value, form, '')}{ends}"


# --- figures --------------------------------------------------------------------------------------


def relation_accuracies(
    table: pd.DataFrame, paper: Mapping[str, Mapping[str, Any]] | None = None
) -> Drawing:
    """Best head of each relation and best fixed offset, in percent (Clark 2019, Table 1).

    table  relation, n, head, direction, accuracy, low, high, baseline, clean_accuracy, clean_low,
           clean_high; a relation without an accuracy keeps its row
    paper  for some relations, the paper's {value, baseline}
    """
    ours, clean = ["accuracy", "low", "high"], ["clean_accuracy", "clean_low", "clean_high"]
    need(table, "relation", "n", "head", "direction", "baseline", *ours, *clean)
    # All relations together are not a relation: they go above the others.
    rows = table.assign(whole=table["relation"].str.lower() == "all").sort_values(
        ["whole", "accuracy"], ascending=False, kind="stable", ignore_index=True
    )
    whole = rows.pop("whole")
    theirs = pd.DataFrame([dict((paper or {}).get(name, {})) for name in rows["relation"]])
    theirs = theirs.reindex(columns=["value", "baseline"]).astype(float)
    places = np.arange(len(rows))
    with style.drawing():
        figure, (panel,) = panel_grid(1, 0.95 + ROW * len(rows))
        row_dots(panel, places, rows[ours], "best head")
        small: Any = {"marker": "d", "ms": 4.5, "line": 1}
        row_dots(panel, places + 0.27, rows[clean], "chosen on other data", **small)
        tick: Any = {"ls": "none", "marker": "|", "clip_on": False}
        base: Any = {"ms": 10, "mew": 1.8, "color": style.INK, "label": "best offset"}
        panel.plot(rows["baseline"], places, **tick, **base)
        hollow_marks(panel, places, theirs["value"], "the paper's head")
        if theirs["baseline"].notna().any():
            base = {"ms": 6, "mew": 1.6, "color": PAPER, "label": "the paper's offset"}
            panel.plot(theirs["baseline"], places, **tick, **base)
        row_axis(panel, places, list(rows["relation"]), "accuracy in percent", (0, 100))
        known = rows["accuracy"].notna()
        row_words(panel, places, "head", list(rows["head"].where(known, "not measured")), 10)
        arrows = rows["direction"].where(known, "").str.replace("->", "→")
        row_words(panel, places, "", list(arrows), 40)
        counts = [f"{n:,}" if there else "" for n, there in zip(rows["n"], known, strict=True)]
        row_words(panel, places, "n", counts, 130, right=True)
        if whole.any() and not whole.all():
            panel.axhline(whole.sum() - 0.5, color=style.FAINT, alpha=0.6, lw=0.8)
        one_legend(figure, "outside upper left", fontsize=7.5)
    text = "The best head of each relation and the best fixed offset; lines are 95% intervals."
    return Drawing("Dots with intervals", figure, rows, text)


def labelled_scores(
    table: pd.DataFrame,
    paper: Mapping[str, float] | Mapping[tuple[str, str], float] | None = None,
    *,
    unit: str = "percent",
    group: str | None = None,
    beside: str = "the paper",
    band: str = "",
    caption: str = "",
) -> Drawing:
    """Named scores with intervals, one below the other; one panel per group (Tables 2 and 3).

    table   label, value, low, high, and `group` if there is one, in the order to show
    paper   the paper's value of a label, or of (label, group); a label of the paper's alone
            gets a row of its own at the end
    beside  what the hollow marks are, if not the paper's values
    band    what the columns null_low and null_high are, such as chance: drawn behind the dots
    """
    ours = ["value", "low", "high"]
    need(table, "label", *ours, *([group] if group else []))
    groups = list(dict.fromkeys(table[group])) if group else [""]
    theirs: dict[tuple[str, str], float] = {}
    for key, one in (paper or {}).items():
        theirs[key if isinstance(key, tuple) else (key, groups[0])] = float(one)
    labels = list(dict.fromkeys([*table["label"], *(name for name, _ in theirs)]))
    places = range(len(labels))
    titles = [_wrapped(name, TITLE // len(groups)) for name in groups]
    span = _span([*table[ours].to_numpy(float).ravel(), *theirs.values()], unit)
    with style.drawing():
        lines = max(title.count("\n") for title in titles)
        tall = 0.95 + ROW * len(labels) + 0.16 * lines
        figure, panels = panel_grid(len(groups), tall, sharey=True)
        for panel, name, title in zip(panels, groups, titles, strict=True):
            part = table[table[group] == name] if group else table
            part = part.drop_duplicates("label").set_index("label").reindex(labels)
            rows = part[ours].astype(float)
            if band:
                wide: Any = {"height": 0.76, "color": style.FAINT, "alpha": 0.35, "lw": 0}
                ends = part["null_high"] - part["null_low"]
                panel.barh(places, ends, left=part["null_low"], label=band, **wide)
            known = [theirs.get((one, name), math.nan) for one in labels]
            row_dots(panel, places, rows, "ours")
            hollow_marks(panel, places, known, beside)
            row_axis(panel, places, labels, "" if group else unit, span)
            panel.set_title(title, fontsize=9)
            if group:  # narrow panels have room for few numbers
                few = MaxNLocator(3 if len(groups) < 4 else 2, steps=[1, 2, 5, 10])
                panel.xaxis.set_major_locator(few)
                continue
            told = [with_interval(*row) for row in rows.to_numpy()]
            row_words(panel, places, "ours" if theirs else "", told, 10)
            if theirs:
                row_words(panel, places, beside, [number(one, ".3g", "") for one in known], 112)
        if group:
            figure.supxlabel(unit, fontsize=9)
        if theirs or band:
            one_legend(figure, "outside upper left", fontsize=7.5)
    text = caption or "Each dot is a score; lines are 95% intervals."
    return Drawing("Dots with intervals", figure, table, text)


_SCALES = ("percent", "UAS", "accuracy in percent")


TITLE = 64
"""Characters of titles that fit next to each other over all panels."""


def _wrapped(title: str, width: int) -> str:
    """A title on as many lines as its panel needs, the first break after a colon."""
    if len(title) <= width:
        return title
    parts = title.replace(": ", ":\n", 1).split("\n")
    return "\n".join(textwrap.fill(part, width, break_long_words=False) for part in parts)


def _span(values: Sequence[float], unit: str) -> tuple[float, float]:
    """From 0 to 100 for percent; otherwise from 0, or below, to just beyond the highest value."""
    if unit in _SCALES:
        return (0.0, 100.0)
    low, high = float(np.nanmin([*values, 0.0])), float(np.nanmax([*values, 0.0]))
    room = 0.06 * ((high - low) or 1.0)
    return (low - room if low < 0 else 0.0, high + room)
