"""Quantities over the layers, from the first to the last: heads as dots, means as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue
from attnlib.measuring.head_tables import layer_means
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import as_list, is_share, label, metric_rows, unit, upper
from attnlib.plots.panels import layer_ticks, light_grid, metric_panels, panel_grid


def layer_profile(
    table: pd.DataFrame,
    metrics: str | Sequence[str],
    *,
    reference: Mapping[str, float] | None = None,
) -> Drawing:
    """Heads as dots and their layer mean as a line, from the first layer to the last.

    reference  for some metrics, the value of attention that is spread evenly
    """
    metrics, even = as_list(metrics), dict(reference or {})
    rows = metric_rows(table, metrics)
    highest = rows.groupby("metric")["mean"].max().fillna(0.0)
    tops = {key: 1.06 * max(highest[key], even.get(key, 0.0)) or 1.0 for key in metrics}
    shares = [top for key, top in tops.items() if is_share(key)]
    with style.drawing():
        figure, panels = metric_panels(len(metrics), aspect=0.62)
        for panel, key in zip(panels, metrics, strict=True):
            _profile_panel(panel, rows[rows["metric"] == key], key)
            panel.set_ylim(0, max(shares) if is_share(key) else tops[key])
            if key in even:
                line: Any = {"color": style.LOOKS["paper"].colour, "lw": 1, "ls": (0, (4, 3))}
                panel.axhline(even[key], label="spread evenly", **line)
        for panel in [one for one in panels if one.get_legend_handles_labels()[0]][:1]:
            panel.legend(loc="upper right", fontsize=7.5)
    text = "Each dot is a head; the line is the mean of its layer."
    return Drawing("Dots and lines, layers from left to right", figure, rows, text)


def _profile_panel(panel: Axes, rows: pd.DataFrame, metric: str) -> None:
    look, means = style.look(metric), layer_means(rows)
    dots: Any = {"s": 9, "alpha": 0.55, "lw": 0, "clip_on": False}
    panel.scatter(rows["layer"], rows["mean"], color=look.colour, **dots)
    panel.plot(means.index, means, color=look.colour, marker=look.marker, ms=4.5, mew=0)
    layer_ticks(panel, list(means.index), 6)
    panel.set_xlabel("layer")
    panel.yaxis.set_major_locator(MaxNLocator(5))
    light_grid(panel)
    panel.set_title(upper(label(metric)), fontsize=9)
    panel.set_ylabel(unit(metric), fontsize=8)


def layer_lines(table: pd.DataFrame, *, unit: str = "") -> Drawing:
    """A line per class over the layers with its interval, such as gradients (Clark 2019, Fig. 3).

    table  class, layer, mean, low, high
    """
    need(table, "class", "layer", "mean", "low", "high")
    rows = table.sort_values("layer", kind="stable")
    last = rows.dropna(subset="mean").groupby("class", sort=False)["mean"].last()
    if last.empty:
        raise BadValue("no layer has a mean; there is no line to draw.")
    spare = iter(style.SPARE_MARKS * len(last))
    with style.drawing():
        figure, (panel,) = panel_grid(1, 2.75, width="column")
        for name in last.sort_values(ascending=False).index:
            part, look = rows[rows["class"] == name], style.class_look(str(name))
            mark = next(spare) if look is style.LOOKS["syntax"] else look.marker
            band: Any = {"color": look.colour, "alpha": 0.18, "lw": 0}
            panel.fill_between(part["layer"], part["low"], part["high"], **band)
            line: Any = {"color": look.colour, "marker": mark, "ms": 5, "mew": 0, "ls": look.dash}
            panel.plot(part["layer"], part["mean"], label=name, **line)
        if rows["mean"].min() >= 0:
            panel.set_ylim(bottom=0)
        layer_ticks(panel, sorted(rows["layer"].unique()), 12)
        panel.set_xlabel("layer")
        panel.set_ylabel(unit, fontsize=8)
        light_grid(panel)
        panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, labelspacing=0.9)
    text = "Each line shows the means of one class by layer; bands are 95% intervals."
    return Drawing("Lines over layers", figure, table, text)
