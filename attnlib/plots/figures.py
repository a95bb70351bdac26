"""Figures drawn from a table of heads; each has a caption that says what to see, and alt text."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue, UnknownName, did_you_mean
from attnlib.measure.stream import METRICS
from attnlib.metrics.metric import Metric
from attnlib.plots import style
from attnlib.plots.drawing import Drawing

COLUMNS = ("metric", "layer", "head", "mean", "low", "high", "n")


def head_grid(
    table: pd.DataFrame, metric: str | Sequence[str], *, marked: int = 3, caption: str | None = None
) -> Drawing:
    """One cell per head, layers downwards: where in the network a quantity lives.

    Shares of attention are all drawn from 0 to 1, so that two grids can be compared by eye; the
    `marked` strongest heads carry their value.
    """
    metrics = _as_list(metric)
    rows = _rows(table, metrics)
    with style.drawing():
        figure, panels = _panels(len(metrics), columns=2, aspect=0.86)
        for panel, key in zip(panels, metrics, strict=True):
            _grid_panel(panel, rows[rows["metric"] == key], key, marked, titled=len(metrics) > 1)
    told = "; ".join(f"{label(key)} in {_spoken(_top(rows, key, marked))}" for key in metrics)
    first = "; ".join(f"{label(key)} in {_spoken(_top(rows, key, 1))}" for key in metrics)
    text = f"One cell per head, layers downwards. Highest: {first if len(metrics) > 1 else told}."
    alt = f"{_plural(len(metrics), 'heat map')}, layers as rows, heads as columns. Highest: {told}."
    return Drawing(figure, caption or text, alt, rows)


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
               as the hollow marks that always stand for somebody else's value)
    """
    metrics = _as_list(metrics)
    rows = _rows(table, metrics)
    with style.drawing():
        figure, panels = _panels(len(metrics), columns=2, aspect=0.62)
        top = {key: max(_upper_bound(rows, key), _level(reference, key) * 1.06) for key in metrics}
        shares = [top[key] for key in metrics if is_share(key)]
        for panel, key in zip(panels, metrics, strict=True):
            height = max(shares) if is_share(key) else top[key]
            _profile_panel(panel, rows[rows["metric"] == key], key, height)
            _draw_reference(panel, key, reference, reference_name)
        _legend_once(panels)
    peaks = "; ".join(f"{label(key)} peaks in layer {_peak(rows, key)}" for key in metrics)
    text = f"Each dot is a head, the line is the mean of its layer. {_upper(peaks)}."
    alt = f"{_plural(len(metrics), 'panel')}, layers from left to right. {_upper(peaks)}."
    return Drawing(figure, caption or text, alt, rows)


def strongest_heads(
    table: pd.DataFrame, metric: str, n: int = 5, *, caption: str | None = None
) -> Drawing:
    """The n heads with the highest mean, with their intervals: who does it, and how surely."""
    if n < 1:
        raise BadValue(f"n is {n}; at least one head can be shown. Give n=1 or more.")
    rows = _top(_rows(table, [metric]), metric, n)
    with style.drawing():
        height = 0.75 + 0.27 * len(rows)
        figure = Figure(figsize=(style.WIDTHS["column"], height), layout="constrained")
        _interval_panel(figure.subplots(), rows, metric)
    spoken = _spoken(rows)
    text = f"The {len(rows)} heads with the most {label(metric)}, with 95% intervals: {spoken}."
    alt = f"Dots with intervals for {len(rows)} heads, {label(metric)}: {spoken}."
    return Drawing(figure, caption or text, alt, rows)


@dataclass(frozen=True)
class HeadTable:
    """The strongest heads of several metrics as a table for the page; `.table` holds its rows."""

    caption: str
    table: pd.DataFrame = field(repr=False)

    def _repr_html_(self) -> str:
        head = "<tr><th>metric</th><th>head</th><th>mean</th><th>95% interval</th><th></th></tr>"
        tops = self.table.groupby("metric")["mean"].max()
        first = ~self.table["metric"].duplicated()
        body = "".join(
            _table_row(row, new, tops[row["metric"]])
            for (_, row), new in zip(self.table.iterrows(), first, strict=True)
        )
        caption = f"<caption>{html.escape(self.caption)}</caption>"
        inside = f"{caption}<thead>{head}</thead><tbody>{body}</tbody>"
        return f'<div class="attn-table"><table>{inside}</table></div>'


def head_table(
    table: pd.DataFrame, metrics: Sequence[str], n: int = 3, *, caption: str | None = None
) -> HeadTable:
    """The n strongest heads of each metric, one below the other."""
    rows = _rows(table, metrics)
    kept = pd.concat([_top(rows, key, n) for key in metrics], ignore_index=True)
    return HeadTable(caption or f"The {n} strongest heads of each metric, as layer-head.", kept)


def _table_row(row: pd.Series, new: bool, top: float) -> str:
    """One head; the bar is a share of attention, or else a part of the metric's highest head."""
    whole = 1.0 if is_share(row["metric"]) else top or 1.0
    colour = style.look(row["metric"]).colour
    bar = f'<i style="width:{100 * row["mean"] / whole:.0f}%;background:{colour}"></i>'
    name = html.escape(_upper(label(row["metric"]))) if new else ""
    cells = f"<td>{_name(row)}</td><td>{row['mean']:.3f}</td>"
    cells += f"<td>{row['low']:.3f} – {row['high']:.3f}</td>"
    cells += f'<td><span class="bar" aria-hidden="true">{bar}</span></td>'
    return f"<tr{' class=first' if new else ''}><th>{name}</th>{cells}</tr>"


def label(metric: str) -> str:
    """A metric in words, from its record: `mass_to_sep` is `attention to [SEP]`."""
    record = _record(metric)
    if record is None:
        return metric.replace("_", " ")
    variant = "" if record.variant == "paper" else f" ({record.variant})"
    if record.key.startswith("bias_"):
        role = record.key.partition("@")[0].removeprefix("bias_").replace("_", " ")
        return f"bias towards {role}{variant}"
    if record.relation is not None:
        place = record.relation.short or f"to {record.relation.what.split(',')[0]}"
        noun = "share" if record.key.startswith("distance_") else "attention"
        return f"{noun} {place}{variant}"
    return record.key.partition("@")[0].replace("_", " ").replace("cls", "[CLS]") + variant


def is_share(metric: str) -> bool:
    """Whether a metric is a share of attention, so that its axis runs from 0 to 1."""
    record = _record(metric)
    return record is not None and record.bounds == (0.0, 1.0)


def _record(metric: str) -> Metric | None:
    """The declaration behind a key; a metric of the reader's own has none and keeps its name."""
    return METRICS[metric] if metric.partition("@")[0] in set(METRICS) else None


def _unit(metric: str) -> str:
    record = _record(metric)
    return record.unit if record else ""


def _as_list(metric: str | Sequence[str]) -> list[str]:
    return [metric] if isinstance(metric, str) else list(metric)


def _rows(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows of the asked metrics, in the asked order; says what is missing otherwise."""
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        have = ", ".join(map(str, table.columns))
        raise BadValue(f"the table has no column {missing[0]}; it has {have}. Use result.table().")
    known = list(dict.fromkeys(table["metric"]))
    for key in metrics:
        if key not in known:
            hint = did_you_mean(key, known)
            raise UnknownName(f"metric '{key}'. {hint}In this table: {', '.join(known)}.")
    if not metrics:
        raise BadValue(f"no metric was named. In this table: {', '.join(known)}.")
    return pd.concat([table[table["metric"] == key] for key in metrics], ignore_index=True)


def _top(rows: pd.DataFrame, metric: str, n: int) -> pd.DataFrame:
    """The n strongest heads of one metric; heads without a value are never among them."""
    kept = rows[(rows["metric"] == metric) & rows["mean"].notna()]
    return kept.nlargest(n, "mean").reset_index(drop=True)


def _name(row: pd.Series) -> str:
    return f"{int(row['layer'])}-{int(row['head'])}"


def _spoken(rows: pd.DataFrame) -> str:
    return ", ".join(f"{_name(row)} ({row['mean']:.2f})" for _, row in rows.iterrows()) or "none"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _peak(rows: pd.DataFrame, metric: str) -> str:
    means = rows[rows["metric"] == metric].groupby("layer")["mean"].mean()
    return f"{means.idxmax()} ({means.max():.2f})" if means.notna().any() else "none"


def _upper_bound(rows: pd.DataFrame, metric: str) -> float:
    """The end of an axis that starts at 0 and holds every head of this metric."""
    highest = rows.loc[rows["metric"] == metric, "mean"].max()
    return 1.0 if not np.isfinite(highest) or highest <= 0 else float(highest) * 1.06


def _panels(n: int, *, columns: int, aspect: float) -> tuple[Figure, list[Axes]]:
    """A figure with n panels in rows of `columns`, and nothing where there is no panel."""
    columns = min(columns, n)
    lines = math.ceil(n / columns)
    width = style.WIDTHS["narrow" if columns == 1 else "wide"]
    size = (width, lines * width / columns * aspect)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.06, hspace=0.06))
    axes = list(np.atleast_1d(figure.subplots(lines, columns)).ravel())
    for spare in axes[n:]:
        spare.remove()
    return figure, axes[:n]


def _grid_panel(panel: Axes, rows: pd.DataFrame, metric: str, marked: int, titled: bool) -> None:
    grid = rows.pivot(index="layer", columns="head", values="mean")
    top = 1.0 if is_share(metric) else float(np.nanmax(grid.to_numpy(), initial=0.0)) or 1.0
    scale = Normalize(0, top)
    mesh = panel.pcolormesh(
        grid.columns, grid.index, grid, cmap=style.SEQUENTIAL, norm=scale, lw=0.6, ec="white"
    )
    panel.set(aspect="equal", xlabel="head", ylabel="layer")
    panel.invert_yaxis()
    panel.set_xticks(list(grid.columns)[:: 1 if len(grid.columns) <= 12 else 2])
    panel.set_yticks(list(grid.index)[:: 1 if len(grid.index) <= 12 else 2])
    panel.tick_params(length=0, labelsize=7)
    panel.spines[:].set_visible(False)
    if titled:
        panel.set_title(_upper(label(metric)), fontsize=9.5)
    bar = panel.figure.colorbar(mesh, ax=panel, shrink=0.8, aspect=26, pad=0.02)
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7)
    bar.locator = MaxNLocator(4)
    bar.set_label(_unit(metric), fontsize=7.5)
    for _, row in _top(rows, metric, marked).iterrows():
        _mark(panel, row, to_hex(style.SEQUENTIAL(scale(row["mean"]))))


def _mark(panel: Axes, row: pd.Series, colour: str) -> None:
    """Write the value into a cell, in whichever of black and white can be read on it."""
    dark = style.luminance(colour) < 0.3
    text = f"{row['mean']:.2f}".removeprefix("0") if row["mean"] < 1 else f"{row['mean']:.1f}"
    place: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 6.5}
    panel.text(row["head"], row["layer"], text, color="white" if dark else "black", **place)


def _profile_panel(panel: Axes, rows: pd.DataFrame, metric: str, height: float) -> None:
    chosen = style.look(metric)
    layers = sorted(rows["layer"].unique())
    means = rows.groupby("layer")["mean"].mean()
    panel.scatter(
        rows["layer"], rows["mean"], s=9, color=chosen.colour, alpha=0.55, lw=0, clip_on=False
    )
    panel.plot(means.index, means, color=chosen.colour, marker=chosen.marker, ms=4.5, mew=0)
    panel.set(xlim=(layers[0] - 0.5, layers[-1] + 0.5), ylim=(0, height), xlabel="layer")
    panel.set_xticks(layers[:: max(1, math.ceil(len(layers) / 6))])
    panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.grid(axis="y", color=style.FAINT, alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)
    panel.set_title(_upper(label(metric)), fontsize=9)
    panel.set_ylabel(_unit(metric), fontsize=8)


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
        means = reference[reference["metric"] == metric].groupby("layer")["mean"].mean()
        panel.plot(means.index, means, "o", ms=5, mfc="none", mec=look.colour, label=name)
    elif reference is not None and metric in reference:
        panel.axhline(reference[metric], color=look.colour, lw=1, ls=(0, (4, 3)), label=name)


def _legend_once(panels: Sequence[Axes]) -> None:
    """Explain the reference in the first panel that has one; the others look the same."""
    for panel in panels:
        if panel.get_legend_handles_labels()[0]:
            panel.legend(loc="upper right", fontsize=7.5)
            return


def _interval_panel(panel: Axes, rows: pd.DataFrame, metric: str) -> None:
    chosen = style.look(metric)
    places = np.arange(len(rows))
    panel.hlines(places, rows["low"], rows["high"], color=chosen.colour, lw=2.2, alpha=0.55)
    panel.plot(rows["mean"], places, "o", color=chosen.colour, ms=6, mew=0)
    panel.set_yticks(places, [_name(row) for _, row in rows.iterrows()])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlim(0, 1 if is_share(metric) else _upper_bound(rows, metric))
    panel.set_xlabel(f"{label(metric)} ({_unit(metric)})" if _unit(metric) else label(metric))
    panel.set_ylabel("layer-head")
    panel.grid(axis="x", color=style.FAINT, alpha=0.25, lw=0.6)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    values = [
        f"{row['mean']:.2f}  [{row['low']:.2f}, {row['high']:.2f}]" for _, row in rows.iterrows()
    ]
    for place, value in zip(places, values, strict=True):
        side: dict[str, Any] = {
            "xycoords": panel.get_yaxis_transform(),
            "ha": "left",
            "va": "center",
        }
        panel.annotate(value, (1.02, place), annotation_clip=False, fontsize=8, **side)
