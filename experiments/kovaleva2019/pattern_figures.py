"""Figures of the five patterns: examples, shares by task and by layer, and who agrees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from numpy.typing import NDArray

from attnlib.errors import BadValue, check_choice
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import task_name, upper
from attnlib.plots.rows import HOLLOW
from attnlib.plots.style import ink_on
from experiments.kovaleva2019.patterns import PATTERNS, PatternExample, class_f1

REST = "heterogeneous"

# Vertical and diagonal look as they do among Guan's head types; a mixture with vertical is brown
# in both. Of the palette's hues brown also stays farthest from the others for colour-blind eyes.
PATTERN_LOOKS: Mapping[str, style.Look] = MappingProxyType(
    {
        "vertical": style.Look(style.LOOKS["special"].colour, "^", (0, (1.5, 1.2))),
        "diagonal": style.Look(style.LOOKS["next"].colour, "D", "-"),
        "vertical+diagonal": style.Look(style.LOOKS["self"].colour, "s", (0, (5, 1.5))),
        "block": style.Look(style.LOOKS["block"].colour, "o", (0, (3, 1, 1, 1))),
        REST: style.Look(style.LOOKS["other"].colour, "x", (0, (2, 2))),
    }
)
"""Colour, mark and dash of the five patterns, in the one order they are ever shown in."""

# How much of its grey the heterogeneous part keeps in bars: full grey is like block's pink to some
# eyes, and this is lighter on a light page and darker on a dark one.
PALE = 0.4
MOST = 8
GAP = 0.4  # percent; the page between two parts, for eyes that cannot tell their colours apart
SHADES = style.SEQUENTIAL.resampled(32)  # no eye sees more in a small picture, and it packs better


def pattern_fill(pattern: str) -> tuple[float, float, float, float]:
    """What an area of this pattern is painted with."""
    return to_rgba(PATTERN_LOOKS[pattern].colour, PALE if pattern == REST else 1.0)


def pattern_examples(examples: Sequence[PatternExample], *, caption: str | None = None) -> Drawing:
    """Pictures of maps, a line of them for each pattern (Kovaleva 2019, Fig. 1)."""
    lines = _lines(examples)
    most = max(map(len, lines.values()))
    with style.drawing():
        width = style.WIDTHS["column" if most <= 4 else "wide"]
        side = min((width - 1.0) / most - 0.06, 1.25)
        size = (min(width, 1.05 + most * (side + 0.06)), len(lines) * (side + 0.2) + 0.05)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.02, hspace=0.02))
        grid = figure.subplots(len(lines), most, squeeze=False)
        for row, (pattern, found) in zip(grid, lines.items(), strict=True):
            for panel, example in zip(row, found, strict=False):
                _picture(panel, example)
            for spare in row[len(found) :]:
                spare.axis("off")
            words = pattern.replace("+", " +\n")
            look: Any = {"rotation": 0, "ha": "right", "va": "center", "fontweight": "bold"}
            row[0].set_ylabel(words, color=PATTERN_LOOKS[pattern].colour, labelpad=6, **look)
    told = "; ".join(
        f"{pattern} {', '.join(one.name for one in found)}" for pattern, found in lines.items()
    )
    text = (
        "Attention maps of each pattern; rows attend to columns, the darker the more, up to the "
        "largest weight of a map. Below each stand its corpus and its head."
    )
    pairs = [(one.pattern, one.name) for found in lines.values() for one in found]
    rows = pd.DataFrame(pairs, columns=["pattern", "name"])
    alt = f"Small pictures of attention maps. {text} {upper(told)}."
    return Drawing(figure, caption or text, alt, rows)


def pattern_shares(
    table: pd.DataFrame, paper: Mapping[str, float] | None = None, *, caption: str | None = None
) -> Drawing:
    """How many maps of each task have each pattern (Kovaleva 2019, Fig. 2).

    table  task, pattern, share (percent; those of a task sum to 100), low, high
    paper  the paper's share of heterogeneous maps, for some tasks
    """
    need(table, "low", "high")
    shares = _shares(table, "task")
    ends = table[table["pattern"] == REST].set_index("task")[["low", "high"]].reindex(shares.index)
    known = {task_name(task): float(number) for task, number in (paper or {}).items()}
    theirs = np.array([known.get(task_name(task), math.nan) for task in shares.index])
    places = np.arange(len(shares))
    with style.drawing():
        tall = 0.85 + 0.4 * len(shares)
        figure = Figure(figsize=(style.WIDTHS["wide"], tall), layout="constrained")
        panel = figure.subplots()
        _stack(panel, shares, places - 0.1, 0.56, across=True)
        # Beneath the bar, where the page is: on the colours the mark of the paper would be lost.
        border, strip = 100 - shares[REST].to_numpy(), places + 0.32
        thin: Any = {"color": style.INK, "lw": 1.1}
        panel.hlines(strip, 100 - ends["high"], 100 - ends["low"], label="95% interval", **thin)
        panel.vlines(border, places + 0.18, places + 0.42, **thin)
        if np.isfinite(theirs).any():
            look = {**HOLLOW, "ms": 6.5, "clip_on": False, "label": "the paper"}
            panel.plot(100 - theirs, strip, **look)
        panel.set_yticks(places - 0.1, [task_name(task) for task in shares.index])
        panel.set(xlim=(0, 100), ylim=(len(shares) - 0.45, -0.5), xlabel="maps, percent")
        panel.tick_params(axis="y", length=0, labelsize=8.5)
        panel.spines["left"].set_visible(False)
        _legend(figure, panel.get_legend_handles_labels()[0])
    told = "; ".join(
        f"{task_name(task)} {share:.0f}%{_beside(low, high, number)}"
        for task, share, (low, high), number in zip(
            shares.index, shares[REST], ends.to_numpy(float), theirs, strict=True
        )
    )
    ring = ", and the paper's as a ring" if np.isfinite(theirs).any() else ""
    text = (
        "Maps of each task by pattern. Beneath a bar stands the 95% interval of where the "
        f"heterogeneous ones begin{ring}. Heterogeneous: {told}."
    )
    alt = f"Stacked bars. Heterogeneous: {told}. All shares: {_spoken(shares, task_name)}."
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def pattern_layers(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """How many maps of each layer have each pattern.

    table  layer, pattern, share (percent; those of a layer sum to 100)
    """
    shares = _shares(table, "layer").sort_index()
    if shares.index.min() < 1:
        raise BadValue("a layer is below 1; count layers from 1.")
    with style.drawing():
        figure = Figure(figsize=(style.WIDTHS["column"], 3.0), layout="constrained")
        panel = figure.subplots()
        layers = shares.index.to_numpy()
        _stack(panel, shares, layers, 0.84, across=False)
        panel.set(xlim=(layers[0] - 0.6, layers[-1] + 0.6), ylim=(0, 100))
        panel.set(xlabel="layer", ylabel="maps, percent")
        panel.set_xticks(layers[:: max(1, math.ceil(len(layers) / 24))])
        panel.tick_params(axis="x", length=0)
        _legend(figure, [])
    peaks = shares.loc[:, shares.max() > 0].agg(["idxmax", "max"])
    told = "; ".join(f"{name} in layer {at:.0f} ({top:.0f}%)" for name, (at, top) in peaks.items())
    text = f"Maps of each layer by pattern. Each is most common: {told}."
    alt = f"Stacked bars over {len(shares)} layers. {text} {_spoken(shares, 'layer {}'.format)}."
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def _lines(examples: Sequence[PatternExample]) -> dict[str, list[PatternExample]]:
    """The examples of each pattern that has any, in the order of the patterns."""
    for one in examples:
        check_choice(f"pattern of '{one.name}'", one.pattern, PATTERNS)
        picture = np.asarray(one.picture)
        if picture.ndim != 2 or len(set(picture.shape)) > 1 or not picture.size:
            raise BadValue(f"the picture of '{one.name}' has shape {picture.shape}; give a square.")
        if not np.isfinite(picture).all() or picture.min() < 0:
            raise BadValue(f"the picture of '{one.name}' has a pixel below 0, or not a number.")
    found = {name: [one for one in examples if one.pattern == name] for name in PATTERNS}
    if not 0 < (most := max(map(len, found.values()))) <= MOST:
        raise BadValue(f"there are {most} examples of a pattern; give 1 to {MOST}.")
    return {name: mine for name, mine in found.items() if mine}


def _picture(panel: Axes, example: PatternExample) -> None:
    picture = np.asarray(example.picture, dtype=float)
    shade: Any = {"cmap": SHADES, "vmin": 0, "vmax": picture.max() or 1.0}
    panel.imshow(picture, interpolation="none", **shade)
    panel.set(xticks=[], yticks=[])
    panel.set_xlabel(example.name, fontsize=7.5, labelpad=2)
    panel.spines[:].set_visible(False)


def _shares(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Percent (by, pattern), in the order of the patterns; a pattern without a row has none."""
    need(table, by, "pattern", "share")
    for name in dict.fromkeys(table["pattern"]):
        check_choice("pattern", name, PATTERNS)
    if table.duplicated([by, "pattern"]).any():
        raise BadValue(f"two rows have the same {by} and pattern; give one.")
    grid = table.pivot(index=by, columns="pattern", values="share").fillna(0.0)
    grid = grid.reindex(list(dict.fromkeys(table[by])), columns=list(PATTERNS), fill_value=0.0)
    if (grid < 0).any(axis=None):
        raise BadValue("a share is below 0; give percent.")
    for name, total in grid.sum(axis=1).items():
        if abs(total - 100) > 0.5:
            raise BadValue(f"the shares of {by} {name} sum to {total:g}; expected 100 percent.")
    return grid


def _stack(
    panel: Axes, shares: pd.DataFrame, places: NDArray[Any], thick: float, *, across: bool
) -> None:
    """A bar per row, the patterns in their order, with numbers where they fit."""
    base = np.zeros(len(shares))
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 7.5}
    for name in PATTERNS:
        long = shares[name].to_numpy(float)
        look: Any = {"color": pattern_fill(name), "lw": 0, "label": name}
        gap = np.maximum(long - GAP, 0)
        if across:
            panel.barh(places, gap, thick, left=base, **look)
        else:
            panel.bar(places, gap, thick, bottom=base, **look)
        ink = style.INK if name == REST else ink_on(PATTERN_LOOKS[name].colour)
        for place, start, part in zip(places, base, long, strict=True):
            if part >= (4.5 if across else 6):
                at = (start + part / 2, place) if across else (place, start + part / 2)
                panel.text(*at, f"{part:.0f}", color=ink, **middle)
        base = base + long


def _legend(figure: Figure, more: Sequence[Any]) -> None:
    """A swatch per pattern, and the marks that are not bars."""
    swatches = [Patch(facecolor=pattern_fill(name), lw=0, label=name) for name in PATTERNS]
    marks = [one for one in more if one.get_label() not in PATTERNS]
    shape: Any = {"loc": "outside lower center", "ncols": 7, "handlelength": 1.0}
    figure.legend(handles=[*swatches, *marks], fontsize=8, **shape, **style.TIGHT)


def _beside(low: float, high: float, paper: float) -> str:
    """The interval and the paper's share, as far as they are known."""
    interval = f" [{low:.0f}, {high:.0f}]" if low <= high else ""
    return interval if math.isnan(paper) else f"{interval} (paper {paper:.0f})"


def _spoken(shares: pd.DataFrame, name: Any) -> str:
    return "; ".join(
        f"{name(one)} {', '.join(f'{pattern} {row[pattern]:.0f}' for pattern in PATTERNS)}"
        for one, row in shares.iterrows()
    )


# --- agreement ------------------------------------------------------------------------------------


def pattern_confusion(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """What maps of each label are called by another: a network, a rule, a second look.

    table  label (by eye), called, n; and `by`, who calls, if there are several
    """
    need(table, "label", "called", "n")
    rows = table.reset_index(drop=True)
    by = rows["by"] if "by" in rows else pd.Series("", index=rows.index)
    grids = {str(name): _counts(part) for name, part in rows.groupby(by, sort=False)}
    lines = math.ceil(len(grids) / 3)
    columns = math.ceil(len(grids) / lines)
    with style.drawing():
        width = style.WIDTHS[{1: "narrow", 2: "column"}.get(columns, "wide")]
        size = (width, 0.25 + lines * (1.15 + 0.8 * (width - 1.2) / columns))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.05))
        axes = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
        for panel, (name, grid) in zip(axes, grids.items(), strict=False):
            _confusion(panel, grid)
            total = f"{grid.sum():,.0f} maps"
            panel.set_title(f"{name}, {total}" if name else total, fontsize=9, pad=16)
            panel.set_xlabel("called", fontsize=8)
        for panel in axes[::columns]:
            panel.set_ylabel("label by eye", fontsize=8)
        for spare in axes[len(grids) :]:
            spare.remove()
    told = " ".join(_agreement(name, grid) for name, grid in grids.items())
    text = f"Numbers are maps; the darker, the more of a label's row. {told}"
    each = "; ".join(f"{name} {_scores(grid)}".strip() for name, grid in grids.items())
    alt = f"Matrices of label by eye and pattern called. {told} F1: {each}."
    return Drawing(figure, caption or text, alt, rows)


def _counts(rows: pd.DataFrame) -> NDArray[Any]:
    """Maps (label, called)."""
    for name in ("label", "called"):
        for one in dict.fromkeys(rows[name]):
            check_choice(name, one, PATTERNS)
    if rows.duplicated(["label", "called"]).any():
        raise BadValue("two rows have the same label and called; give one.")
    if not (rows["n"] >= 0).all() or not rows["n"].sum():
        raise BadValue("the numbers of maps are all 0, or one is below 0; give counts.")
    grid = rows.pivot(index="label", columns="called", values="n")
    return grid.reindex(PATTERNS, columns=PATTERNS).fillna(0).to_numpy(float)


def _confusion(panel: Axes, grid: NDArray[Any]) -> None:
    n = len(PATTERNS)
    shares = grid / np.maximum(grid.sum(1, keepdims=True), 1)
    shares[grid.sum(1) == 0] = np.nan
    edge: Any = {"lw": 0.8, "ec": "white", "vmin": 0, "vmax": 1}
    panel.pcolormesh(np.arange(n), np.arange(n), shares, cmap=style.SEQUENTIAL, **edge)
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 8}
    for (y, x), count in np.ndenumerate(grid):
        if count:
            ink = ink_on(to_hex(style.SEQUENTIAL(shares[y, x])))
            panel.text(x, y, f"{count:.0f}", color=ink, **middle)
    panel.text(n, -0.8, "F1", alpha=0.65, **middle)
    for y, score in enumerate(class_f1(grid)):
        panel.text(n, y, _score(score), **middle)
    panel.set_xticks(range(n), PATTERNS, rotation=40, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(n), PATTERNS)
    panel.set(aspect="equal", xlim=(-0.5, n + 0.4), ylim=(n - 0.5, -0.5))
    panel.tick_params(length=0, labelsize=8, pad=2)
    panel.spines[:].set_visible(False)


def _agreement(by: str, grid: NDArray[Any]) -> str:
    """How many labels it repeats, its mean F1, and what it takes for what most often."""
    same, every = int(np.trace(grid)), int(grid.sum())
    start = f"{upper(by)}: " if by else ""
    told = f"{start}{same} of {every} maps are called by their label ({100 * same / every:.0f}%)"
    wrong = grid - np.diag(np.diag(grid))
    label, called = np.unravel_index(wrong.argmax(), wrong.shape)
    most = (
        f"; most often {PATTERNS[label]} is called {PATTERNS[called]} ({wrong.max():.0f})"
        if wrong.any()
        else ""
    )
    return f"{told}, mean F1 {np.nanmean(class_f1(grid)):.2f}{most}."


def _scores(grid: NDArray[Any]) -> str:
    return ", ".join(
        f"{name} {_score(score)}" for name, score in zip(PATTERNS, class_f1(grid), strict=True)
    )


def _score(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
