"""Figures of the five patterns: examples, shares by task and by layer, and who agrees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from attnlib.errors import BadValue, check_choice
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import number, task_name
from attnlib.plots.panels import layer_ticks, number_cells, one_legend, panel_grid, stacked_bars
from attnlib.plots.rows import HOLLOW
from experiments.kovaleva2019.patterns import PATTERNS, PatternExample, class_f1

REST = "heterogeneous"

# Vertical and diagonal look as they do among Guan's head types; a mixture with vertical is brown
# in both. Of the palette's hues brown also stays farthest from the others for colour-blind eyes.
PATTERN_LOOKS: Mapping[str, style.Look] = {
    "vertical": style.Look(style.LOOKS["special"].colour, "^", (0, (1.5, 1.2))),
    "diagonal": style.Look(style.LOOKS["next"].colour, "D", "-"),
    "vertical+diagonal": style.Look(style.LOOKS["self"].colour, "s", (0, (5, 1.5))),
    "block": style.Look(style.LOOKS["block"].colour, "o", (0, (3, 1, 1, 1))),
    REST: style.Look(style.LOOKS["other"].colour, "x", (0, (2, 2))),
}
"""Colour, mark and dash of the five patterns, in the one order they are ever shown in."""

# How much of its grey the heterogeneous part keeps in bars: full grey is like block's pink to some
# eyes, and this is lighter on a light page and darker on a dark one.
PALE = 0.4
MOST = 8
GAP = 0.4  # percent; the page between two parts, for eyes that cannot tell their colours apart
SHADES = style.SEQUENTIAL.resampled(32)  # no eye sees more in a small picture, and it packs better


FILLS = {
    name: to_rgba(look.colour, PALE if name == REST else 1.0)
    for name, look in PATTERN_LOOKS.items()
}
"""What an area of each pattern is painted with."""
BARS: Any = {"gap": GAP, "fontsize": 7.5}


def pattern_examples(examples: Sequence[PatternExample]) -> Drawing:
    """Pictures of maps, a line of them for each pattern (Kovaleva 2019, Fig. 1)."""
    for one in examples:
        check_choice(f"pattern of '{one.name}'", one.pattern, PATTERNS)
        if len(set(one.picture.shape)) > 1:
            shape = one.picture.shape
            raise BadValue(f"the picture of '{one.name}' has shape {shape}; give a square.")
        if not (one.picture >= 0).all():
            raise BadValue(f"the picture of '{one.name}' has a pixel below 0, or not a number.")
    lines = {name: [one for one in examples if one.pattern == name] for name in PATTERNS}
    lines = {name: found for name, found in lines.items() if found}
    most = max(map(len, lines.values()), default=0)
    if not 0 < most <= MOST:
        raise BadValue(f"there are {most} examples of a pattern; give 1 to {MOST}.")
    with style.drawing():
        width = "narrow" if most <= 2 else "column" if most <= 4 else "wide"
        side = min((style.WIDTHS[width] - 1.0) / most - 0.06, 1.25)
        tall = len(lines) * (side + 0.2) + 0.05
        n = len(lines) * most
        figure, panels = panel_grid(n, tall, columns=most, width=width, gap=0.02)
        grid = np.reshape(np.array(panels), (len(lines), most))
        for line, (pattern, found) in zip(grid, lines.items(), strict=True):
            for panel, one in zip(line, found, strict=False):
                shade: Any = {"cmap": SHADES, "vmin": 0, "vmax": one.picture.max() or 1.0}
                panel.imshow(one.picture, interpolation="none", **shade)
                panel.set(xticks=[], yticks=[])
                panel.set_xlabel(one.name, fontsize=7.5, labelpad=2)
                panel.spines[:].set_visible(False)
            for spare in line[len(found) :]:
                spare.axis("off")
            look: Any = {"rotation": 0, "ha": "right", "va": "center", "fontweight": "bold"}
            look |= {"color": PATTERN_LOOKS[pattern].colour, "labelpad": 6}
            line[0].set_ylabel(pattern.replace("+", " +\n"), **look)
    rows = pd.DataFrame([one for found in lines.values() for one in found])[["pattern", "name"]]
    return Drawing("Small pictures of attention maps", figure, rows)


# --- shares ---------------------------------------------------------------------------------------


def pattern_shares(table: pd.DataFrame, paper: Mapping[str, float]) -> Drawing:
    """How many maps of each task have each pattern (Kovaleva 2019, Fig. 2).

    table  task, pattern, share (percent; those of a task sum to 100), low, high
    paper  the paper's share of heterogeneous maps, for some tasks
    """
    need(table, "low", "high")
    shares = _shares(table, "task").rename(task_name)
    rest = table[table["pattern"] == REST].set_index("task").rename(task_name).reindex(shares.index)
    theirs = pd.Series(paper, dtype=float).rename(task_name)
    rest = rest.assign(share=shares[REST], paper=theirs)
    places = np.arange(len(shares))
    with style.drawing():
        figure, (panel,) = panel_grid(1, 0.85 + 0.4 * len(shares))
        stacked_bars(panel, shares, places - 0.1, 0.56, FILLS, across=True, least=4.5, **BARS)
        # Beneath the bar, where the page is: on the colours the mark of the paper would be lost.
        thin: Any = {"color": style.INK, "lw": 1.1}
        reach = (100 - rest["high"], 100 - rest["low"])
        panel.hlines(places + 0.32, *reach, label="95% interval", **thin)
        panel.vlines(100 - rest["share"], places + 0.18, places + 0.42, **thin)
        if rest["paper"].notna().any():
            look = {**HOLLOW, "ms": 6.5, "clip_on": False, "label": "the paper"}
            panel.plot(100 - rest["paper"], places + 0.32, **look)
        panel.set_yticks(places - 0.1, list(shares.index))
        panel.set(xlim=(0, 100), ylim=(len(shares) - 0.45, -0.5), xlabel="maps, percent")
        panel.tick_params(axis="y", length=0, labelsize=8.5)
        panel.spines["left"].set_visible(False)
        one_legend(figure, ncols=7, handlelength=1.0)
    return Drawing("Stacked bars", figure, table)


def pattern_layers(table: pd.DataFrame) -> Drawing:
    """How many maps of each layer have each pattern.

    table  layer, pattern, share (percent; those of a layer sum to 100)
    """
    shares = _shares(table, "layer").sort_index()
    if shares.index.min() < 1:
        raise BadValue("a layer is below 1; count layers from 1.")
    with style.drawing():
        figure, (panel,) = panel_grid(1, 3.0, width="column")
        stacked_bars(panel, shares, shares.index, 0.84, FILLS, least=6, **BARS)
        layer_ticks(panel, list(shares.index), 24, rim=0.6)
        panel.set(ylim=(0, 100), xlabel="layer", ylabel="maps, percent")
        panel.tick_params(axis="x", length=0)
        one_legend(figure, ncols=7, handlelength=1.0)
    return Drawing(f"Stacked bars over {len(shares)} layers", figure, table)


def _shares(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Percent (by, pattern), in the order of the patterns; a pattern without a row has none."""
    need(table, by, "pattern", "share", once=[by, "pattern"])
    for name in table["pattern"].unique():
        check_choice("pattern", name, PATTERNS)
    grid = table.pivot(index=by, columns="pattern", values="share").fillna(0.0)
    grid = grid.reindex(table[by].unique(), columns=list(PATTERNS), fill_value=0.0)
    if (grid < 0).any(axis=None):
        raise BadValue("a share is below 0; give percent.")
    for name, total in grid.sum(axis=1).items():
        if abs(total - 100) > 0.5:
            raise BadValue(f"the shares of {by} {name} sum to {total:g}; expected 100 percent.")
    return grid


# --- agreement ------------------------------------------------------------------------------------


def pattern_confusion(table: pd.DataFrame) -> Drawing:
    """What maps of each label are called by another: a network, a rule, a second look.

    table  by (who calls), label (by eye), called, n
    """
    need(table, "by", "label", "called", "n", once=["by", "label", "called"])
    for column in ("label", "called"):
        for name in table[column].unique():
            check_choice(column, name, PATTERNS)
    if not (table["n"] >= 0).all() or not table["n"].sum():
        raise BadValue("the numbers of maps are all 0, or one is below 0; give counts.")
    grids = {}
    for name, part in table.groupby("by", sort=False):
        grid = part.pivot(index="label", columns="called", values="n")
        grids[str(name)] = grid.reindex(index=PATTERNS, columns=PATTERNS).fillna(0).astype(float)
    with style.drawing():
        tall = 3.1 * math.ceil(len(grids) / 3)
        figure, panels = panel_grid(len(grids), tall, columns=3, sharey=True)
        for panel, (name, grid) in zip(panels, grids.items(), strict=True):
            _confusion(panel, grid)
            panel.set_title(f"{name}, {grid.sum(axis=None):,.0f} maps", fontsize=9, pad=16)
            panel.set_xlabel("called", fontsize=8)
        panels[0].set_ylabel("label by eye", fontsize=8)
    return Drawing("Matrices of label by eye and pattern called", figure, table)


def _confusion(panel: Axes, grid: pd.DataFrame) -> None:
    shares = grid.div(grid.sum(axis=1), axis=0)
    number_cells(panel, shares, grid.map(lambda n: f"{n:.0f}" if n else ""), slanted=True)
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 8}
    panel.text(len(grid), -0.8, "F1", alpha=0.65, **middle)
    for y, score in enumerate(class_f1(grid.to_numpy())):
        panel.text(len(grid), y, number(score, ".2f"), **middle)
    panel.set(aspect="equal", xlim=(-0.5, len(grid) + 0.4))
