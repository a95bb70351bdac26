"""Head types over the layers (Guan 2020): one model, several models, and what tuning moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.panels import light_grid, small_panels
from experiments.guan2020.typefigures import (
    TYPE_LOOKS,
    UNDEFINED,
    kinds,
    model_name,
    spoken_counts,
    type_legend,
    type_look,
    typed_heads,
)


def types_by_layer(types: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """How many heads of each layer have each type (Guan 2020, Fig. 3).

    types  layer, head, type
    """
    rows = typed_heads(types)
    with style.drawing():
        figure = Figure(figsize=(style.WIDTHS["column"], 2.9), layout="constrained")
        panel = figure.subplots()
        _stack(panel, rows, kinds(rows), numbers=True)
        panel.set(xlabel="layer", ylabel="heads")
        type_legend(figure, kinds(rows))
    depth = rows.groupby("type")["layer"].agg(["mean", "size"])
    told = ", ".join(
        f"{name} {depth.loc[name, 'mean']:.1f} ({depth.loc[name, 'size']:.0f} heads)"
        for name in kinds(rows)
        if name in depth.index
    )
    text = f"Heads of each layer by type. Mean layer of a type: {told}."
    peak = "; ".join(
        f"{name} most in layer {part.value_counts().sort_index().idxmax()}"
        for name, part in rows.groupby("type", sort=False)["layer"]
    )
    alt = f"Stacked bars over {rows['layer'].nunique()} layers. Mean layer: {told}. {peak}."
    return Drawing(figure, caption or text, alt, rows)


def types_by_layer_beside(types: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """The same for several models, such as one before and after fine-tuning (Guan 2020, Fig. 4).

    types  model, layer, head, type
    """
    need(types, "model")
    rows = typed_heads(types, "model", within=("model",))
    models = list(dict.fromkeys(rows["model"]))
    with style.drawing():
        figure, panels = small_panels(len(models), height=2.1, sharey=True)
        for panel, model in zip(panels, models, strict=True):
            _stack(panel, rows[rows["model"] == model], kinds(rows), numbers=False)
            panel.set_title(model_name(model), fontsize=9)
            panel.set_xlabel("layer", fontsize=8)
        panels[0].set_ylabel("heads")
        type_legend(figure, kinds(rows))
    whole = "; ".join(
        f"{model_name(model)} {spoken_counts(rows[rows['model'] == model])}" for model in models
    )
    last = rows[rows["layer"] == rows["layer"].max()]
    top = ", ".join(
        f"{model_name(model)} {int((part['type'] == 'dense&vertical').sum())} of {len(part)}"
        for model, part in last.groupby("model", sort=False)
    )
    text = (
        f"Heads of each layer by type. Dense&vertical heads in layer {rows['layer'].max()}: {top}."
    )
    alt = f"Stacked bars over layers for {len(models)} models. {whole}. {text}"
    return Drawing(figure, caption or text, alt, rows)


def type_moves(changes: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """Which heads change their type by fine-tuning: old colour outside, new colour inside.

    changes  task, layer, head, before, after (types)
    """
    need(changes, "task", "layer", "head", "before", "after")
    ends = {
        name: typed_heads(changes.assign(type=changes[name]), "task", within=("task",))["type"]
        for name in ("before", "after")
    }
    rows = changes.reset_index(drop=True).assign(**ends)
    rows["changed"] = rows["before"] != rows["after"]
    tasks = list(dict.fromkeys(rows["task"]))
    names = [n for n in (*TYPE_LOOKS, UNDEFINED) if n != UNDEFINED or _either(rows, n).any()]
    with style.drawing():
        columns = min(len(tasks), 3)
        lines = math.ceil(len(tasks) / columns)
        width = style.WIDTHS[("narrow", "column", "wide")[columns - 1]]
        cell = (width / columns - 0.6) / rows["head"].max()
        size = (width, 0.45 + lines * (0.65 + cell * rows["layer"].max()))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.04))
        panels = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        for panel, task in zip(panels, tasks, strict=False):
            _moves_panel(panel, rows[rows["task"] == task], names)
            panel.set_title(model_name(task), fontsize=9)
        for spare in panels[len(tasks) :]:
            spare.remove()
        for panel in panels[::columns]:
            panel.set_ylabel("layer")
        type_legend(figure, names)
    told = "; ".join(_spoken_moves(rows[rows["task"] == task]) for task in tasks)
    text = (
        "Pale: heads that keep their type. Full: heads that change it, from the colour of the rim "
        f"to the colour of the core; the number is how many of the layer. {told}."
    )
    alt = f"Grids of heads, layers downwards. {told}."
    return Drawing(figure, caption or text, alt, rows)


def _squares(panel: Axes, centres: np.ndarray, side: float, hole: float = 0.0, **look: Any) -> None:
    """All squares of one kind as one shape, which keeps the page small; they may have a hole."""
    outer = side / 2 * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)])
    inner = hole / 2 * np.array([(-1, -1), (-1, 1), (1, 1), (1, -1), (-1, -1)])  # turned round
    corners = np.concatenate([outer, inner]) if hole else outer
    vertices = (centres[:, None, :] + corners).reshape(-1, 2)
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * (len(vertices) // 5)
    panel.add_patch(PathPatch(Path(vertices, codes), lw=0, **look))


def _stack(panel: Axes, rows: pd.DataFrame, names: Sequence[str], *, numbers: bool) -> None:
    """Bars of one layer each, the types from below in their order."""
    layers = np.arange(rows["layer"].min(), rows["layer"].max() + 1)
    base = np.zeros(len(layers))
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 7.5}
    for name in names:
        colour = type_look(name).colour
        found = rows.loc[rows["type"] == name, "layer"].value_counts()
        heights = found.reindex(layers, fill_value=0).to_numpy(float)
        panel.bar(
            layers, np.maximum(heights - 0.06, 0), 0.84, bottom=base, color=colour, lw=0, label=name
        )
        ink = max("white", "black", key=lambda one: style.contrast(colour, one))
        for x, y, height in zip(layers, base, heights, strict=True):
            if numbers and height:
                panel.text(x, y + height / 2, f"{height:.0f}", color=ink, **middle)
        base += heights
    panel.set_xlim(layers[0] - 0.6, layers[-1] + 0.6)
    panel.set_ylim(0, base.max())
    every = max(1, math.ceil(len(layers) / (24 if numbers else 6)))
    panel.set_xticks(layers[::every])
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    panel.tick_params(axis="x", length=0)
    light_grid(panel)


def _either(rows: pd.DataFrame, name: str) -> pd.Series:
    return (rows["before"] == name) | (rows["after"] == name)


def _moves_panel(panel: Axes, rows: pd.DataFrame, names: Sequence[str]) -> None:
    at, changed = rows[["head", "layer"]].to_numpy(float), rows["changed"].to_numpy(bool)
    for name in names:
        colour = type_look(name).colour
        before = (rows["before"] == name).to_numpy()
        _squares(panel, at[before & ~changed], 0.9, color=colour, alpha=0.3, label=name)
        # A gap between the two colours keeps them apart for every eye, on every page.
        _squares(panel, at[before & changed], 0.9, 0.56, color=colour, label=f"from {name}")
        after = (rows["after"] == name).to_numpy()
        _squares(panel, at[after & changed], 0.42, color=colour, label=f"to {name}")
    wide, tall = int(rows["head"].max()), int(rows["layer"].max())
    side: Any = {"fontsize": 7.5, "ha": "left", "va": "center_baseline"}
    for layer, count in rows.groupby("layer")["changed"].sum().items():
        if count:
            panel.text(wide + 0.7, layer, f"{count}", **side)
    panel.set(aspect="equal", xlim=(0.45, wide + 1.9), ylim=(tall + 0.55, 0.45))
    panel.set_xlabel("head", fontsize=8)
    panel.set_xticks(
        [n for n in range(1, wide + 1) if wide <= 6 or n % (3 if wide < 13 else 4) == 1]
    )
    panel.set_yticks(range(1, tall + 1, 1 if tall <= 12 else 2))
    panel.tick_params(length=0, labelsize=7.5)
    panel.spines[:].set_visible(False)


def _spoken_moves(rows: pd.DataFrame) -> str:
    """How many heads change, where in the network, and the commonest change."""
    third = np.ceil(3 * rows["layer"] / rows["layer"].max())
    shares = 100 * rows["changed"].groupby(third).mean()
    where = ", ".join(f"{shares.get(i, math.nan):.0f}%" for i in (1, 2, 3))
    moves = rows[rows["changed"]].groupby(["before", "after"]).size()
    told = (
        f"{model_name(rows['task'].iloc[0])}: {rows['changed'].sum()} of {len(rows)} heads change"
    )
    if moves.empty:
        return told
    before, after = moves.sort_values(ascending=False, kind="stable").index[0]
    return (
        f"{told} ({where} of the first, middle and last third of the layers), most often from "
        f"{before} to {after} ({moves.max()})"
    )
