"""Quantities over the layers, from the first to the last: heads as dots, means as lines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import layer_means
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import (
    as_list,
    is_share,
    label,
    metric_rows,
    plural,
    unit,
    upper,
    upper_bound,
)
from attnlib.plots.panels import light_grid, metric_panels


def layer_profile(
    table: pd.DataFrame,
    metrics: str | Sequence[str],
    *,
    reference: Mapping[str, float] | pd.DataFrame | None = None,
    reference_name: str = "spread evenly",
    caption: str | None = None,
) -> Drawing:
    """Heads as dots and their layer mean as a line, from the first layer to the last.

    reference  a value per metric (drawn as a level), or a table with metric, layer and mean (drawn
               as the hollow marks that always mean somebody else's value)
    """
    metrics = as_list(metrics)
    rows = metric_rows(table, metrics)
    with style.drawing():
        figure, panels = metric_panels(len(metrics), columns=2, aspect=0.62)
        top = {key: max(upper_bound(rows, key), _level(reference, key) * 1.06) for key in metrics}
        shares = [top[key] for key in metrics if is_share(key)]
        for panel, key in zip(panels, metrics, strict=True):
            height = max(shares) if is_share(key) else top[key]
            _profile_panel(panel, rows[rows["metric"] == key], key, height)
            _draw_reference(panel, key, reference, reference_name)
        _legend_once(panels)
    peaks = "; ".join(f"{label(key)} peaks in layer {_peak(rows, key)}" for key in metrics)
    text = f"Each dot is a head, the line is the mean of its layer. {upper(peaks)}."
    alt = f"{plural(len(metrics), 'panel')}, layers from left to right. {upper(peaks)}."
    return Drawing(figure, caption or text, alt, rows)


def layer_lines(
    table: pd.DataFrame,
    column: str = "class",
    *,
    title: str = "",
    unit: str = "",
    log: bool = False,
    caption: str | None = None,
) -> Drawing:
    """A line per class over the layers with its interval, such as gradients (Clark 2019, Fig. 3).

    table  the classes in `column`, layer, mean, low, high
    """
    need(table, column, "layer", "mean", "low", "high")
    if table["mean"].notna().sum() == 0:
        raise BadValue("no layer has a mean; there is no line to draw.")
    if log and (table["mean"] <= 0).any():
        raise BadValue("a mean is not above 0; a logarithmic axis cannot show it. Use log=False.")
    with style.drawing():
        figure = Figure(figsize=(style.WIDTHS["column"], 2.75), layout="constrained")
        panel = figure.subplots()
        _line_panel(panel, table, column, log)
        panel.set_title(title, fontsize=9)
        panel.set_ylabel(unit, fontsize=8)
        panel.set_xlabel("layer")
    ends = _first_and_last(table, column)
    text = f"Means per layer; bands are 95% intervals. {ends}."
    return Drawing(
        figure, caption or text, f"Lines over layers. {ends}.", table.reset_index(drop=True)
    )


def _peak(rows: pd.DataFrame, metric: str) -> str:
    means = layer_means(rows, metric=metric)
    return f"{means.idxmax()} ({means.max():.2f})" if means.notna().any() else "none"


def _profile_panel(panel: Axes, rows: pd.DataFrame, metric: str, height: float) -> None:
    chosen = style.look(metric)
    layers = sorted(rows["layer"].unique())
    means = layer_means(rows)
    panel.scatter(
        rows["layer"], rows["mean"], s=9, color=chosen.colour, alpha=0.55, lw=0, clip_on=False
    )
    panel.plot(means.index, means, color=chosen.colour, marker=chosen.marker, ms=4.5, mew=0)
    panel.set(xlim=(layers[0] - 0.5, layers[-1] + 0.5), ylim=(0, height), xlabel="layer")
    panel.set_xticks(layers[:: max(1, math.ceil(len(layers) / 6))])
    panel.yaxis.set_major_locator(MaxNLocator(5))
    light_grid(panel)
    panel.set_title(upper(label(metric)), fontsize=9)
    panel.set_ylabel(unit(metric), fontsize=8)


def _level(reference: Mapping[str, float] | pd.DataFrame | None, metric: str) -> float:
    """The highest reference value that a panel has to hold."""
    if reference is None:
        return 0.0
    if isinstance(reference, pd.DataFrame):
        return float(reference.loc[reference["metric"] == metric, "mean"].max())
    return reference.get(metric, 0.0)


def _draw_reference(
    panel: Axes, metric: str, reference: Mapping[str, float] | pd.DataFrame | None, name: str
) -> None:
    """A level, or hollow marks: never solid, because solid is ours."""
    look = style.LOOKS["paper"]
    if isinstance(reference, pd.DataFrame):
        means = layer_means(reference, metric=metric)
        panel.plot(means.index, means, "o", ms=5, mfc="none", mec=look.colour, label=name)
    elif reference is not None and metric in reference:
        panel.axhline(reference[metric], color=look.colour, lw=1, ls=(0, (4, 3)), label=name)


def _legend_once(panels: Sequence[Axes]) -> None:
    """Explain the reference in the first panel that has one; the others look the same."""
    for panel in panels:
        if panel.get_legend_handles_labels()[0]:
            panel.legend(loc="upper right", fontsize=7.5)
            return


def _line_panel(panel: Axes, rows: pd.DataFrame, column: str, log: bool) -> None:
    names = list(dict.fromkeys(rows[column]))
    spare = iter(style.SPARE_MARKS * len(names))
    looks, ends = {}, {}
    for name in names:
        look, part = style.class_look(str(name)), rows[rows[column] == name].sort_values("layer")
        marker = next(spare) if look is style.LOOKS["syntax"] else look.marker
        looks[name] = (look.colour, marker)
        panel.fill_between(part["layer"], part["low"], part["high"], color=look.colour, alpha=0.18,
                           lw=0)  # fmt: skip
        panel.plot(part["layer"], part["mean"], color=look.colour, marker=marker, ms=5, mew=0,
                   ls=look.dash)  # fmt: skip
        if part["mean"].notna().any():
            ends[name] = float(part["mean"].dropna().iloc[-1])
    panel.set_yscale("log" if log else "linear")
    if not log and rows["mean"].min() >= 0:
        panel.set_ylim(bottom=0)
    layers = sorted(rows["layer"].unique())
    panel.set_xlim(layers[0] - 0.4, layers[-1] + 0.4)
    panel.set_xticks(layers[:: max(1, math.ceil(len(layers) / 12))])
    light_grid(panel)
    _end_labels(panel, ends, looks)


def _end_labels(
    panel: Axes, ends: Mapping[str, float], looks: Mapping[str, tuple[str, str]]
) -> None:
    """Each line's mark and name next to its end, pushed apart where two would overlap."""
    to_axes = panel.transData + panel.transAxes.inverted()
    order = sorted(ends, key=lambda name: ends[name])
    heights = [float(to_axes.transform((1.0, ends[name]))[1]) for name in order]
    gap = 0.085
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    over = max(0.0, heights[-1] - 1.0) if heights else 0.0
    for i in range(len(heights) - 1, -1, -1):
        above = heights[i + 1] - gap if i + 1 < len(heights) else heights[i] - over
        heights[i] = min(heights[i], above)
    for name, height in zip(order, heights, strict=True):
        colour, marker = looks[name]
        dot: Any = {"marker": marker, "color": colour, "ms": 5.5, "mew": 0, "clip_on": False}
        panel.plot([1.025], [height], transform=panel.transAxes, ls="none", **dot)
        side: Any = {"xycoords": panel.transAxes, "va": "center", "annotation_clip": False}
        panel.annotate(str(name), (1.05, height), fontsize=8, **side)


def _first_and_last(rows: pd.DataFrame, column: str) -> str:
    told = []
    for name, part in rows.dropna(subset=["mean"]).groupby(column, sort=False):
        part = part.sort_values("layer")
        one, last = part.iloc[0], part.iloc[-1]
        told.append(
            f"{name}: {one['mean']:.3g} in layer {int(one['layer'])}, "
            f"{last['mean']:.3g} in layer {int(last['layer'])}"
        )
    return "; ".join(told)
