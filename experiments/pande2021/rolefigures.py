"""Scores behind the roles of heads: distributions, p-values, thresholds, numbers of inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
    PercentFormatter,
)

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.rows import OURS
from experiments.pande2021.roleoverlaps import role_look, role_name

LEAST_SCORE = 0.05
"""Scores below are as good as none: a logarithmic axis would be all about them."""


def score_distributions(
    table: pd.DataFrame,
    stats: pd.DataFrame,
    *,
    threshold: float = 3.0,
    role: str = "",
    caption: str | None = None,
) -> Drawing:
    """Scores of single inputs, with their mean beside the threshold (Pande 2021, Fig. 2).

    table  label (such as a head), score: one row per input; at most three labels, a panel each
    stats  label, mean, low, high (95% interval of the mean), median
    role   the role whose colour the bars have
    """
    need(table, "label", "score")
    need(stats, "label", "mean", "median", "low", "high")
    labels = list(dict.fromkeys(table["label"]))
    if len(labels) > 3:
        raise BadValue(f"{len(labels)} labels do not fit side by side; give up to 3.")
    known = stats.drop_duplicates("label").set_index("label")
    if missing := [name for name in labels if name not in known.index]:
        raise BadValue(f"the statistics have no row for label '{missing[0]}'; add one.")
    told = []
    with style.drawing():
        width = style.WIDTHS[("narrow", "column", "wide")[len(labels) - 1]]
        figure = Figure(figsize=(width, 2.7), layout=ConstrainedLayoutEngine(wspace=0.04))
        panels = np.atleast_1d(figure.subplots(1, len(labels)))
        for panel, name in zip(panels, labels, strict=True):
            scores = table.loc[table["label"] == name, "score"].dropna().to_numpy(float)
            _histogram(panel, scores, known.loc[name], threshold, role_look(role).colour)
            panel.set_title(str(name), fontsize=9.5, pad=26)
            told.append(_spoken_scores(str(name), scores, known.loc[name], threshold))
        panels[0].set_ylabel("inputs")
        handles = panels[0].get_legend_handles_labels()
        columns: Any = {"loc": "outside lower center", "ncols": 2 if len(labels) == 1 else 4}
        figure.legend(*handles, fontsize=8, **columns, **style.TIGHT)
    of = f"{role_name(role)} score" if role else "score"
    text = f"How the {of} varies over the inputs. {' '.join(told)}"
    alt = f"Histograms of the {of} of single inputs. {' '.join(told)}"
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def scores_and_p_values(
    scores: pd.DataFrame,
    p_values: pd.DataFrame,
    threshold: float = 3.0,
    *,
    mean: float | None = None,
    caption: str | None = None,
) -> Drawing:
    """Cumulative scores of all heads, roles and tasks, and all p-values (Pande 2021, Fig. 3).

    scores    role ("all" is the overall line), score, share: how many scores are at most this one
    p_values  p, and role if the bars are to be split by it; undefined ones are counted and left out
    mean      of all scores; the paper's threshold is the smallest integer above it
    """
    need(scores, "role", "score", "share")
    need(p_values, "p")
    p = p_values["p"].dropna()
    if p.empty:
        raise BadValue("no p-value is defined; there is nothing to draw.")
    clear = (100 * float((p < 0.05).mean()), 100 * float((p > 0.95).mean()))
    with style.drawing():
        engine = ConstrainedLayoutEngine(wspace=0.06)
        figure = Figure(figsize=(style.WIDTHS["wide"], 3.1), layout=engine)
        left, right = figure.subplots(1, 2)
        _cumulative(left, scores, threshold, mean)
        _p_bars(right, p_values.dropna(subset=["p"]), clear)
        handles = left.get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=6, fontsize=8, **style.TIGHT)
    known = scores.dropna(subset=["score", "share"])
    passing = ", ".join(
        f"{role_name(str(role))} {100 * (1 - _share_at(part, threshold)):.0f}%"
        for role, part in known.groupby("role", sort=False)
    )
    parts = (
        f"{len(p):,} p-values: {clear[0]:.1f}% below 0.05, {clear[1]:.1f}% above 0.95, "
        f"{100 - sum(clear):.1f}% between"
    )
    gone = len(p_values) - len(p)
    undefined = f" ({gone:,} more are undefined)" if gone else ""
    average = "" if mean is None else f", their mean is {mean:.2f}"
    text = (
        f"Left: share of scores up to a value{average}; above the threshold {threshold:g} lie: "
        f"{passing}. Right: {parts}{undefined}."
    )
    alt = f"Cumulative curves and a histogram. Above {threshold:g}: {passing}. {parts}."
    both = [scores.assign(panel="scores"), p_values.assign(panel="p-values")]
    return Drawing(figure, caption or text, alt, pd.concat(both, ignore_index=True))


def threshold_curves(
    table: pd.DataFrame, *, threshold: float = 3.0, caption: str | None = None
) -> Drawing:
    """How many heads get a role at each threshold, with and without correction for many tests.

    table      threshold, role ("total" is all roles), assigned, assigned_bh (Benjamini-Hochberg),
               assigned_holm, heads (the number of tests)
    threshold  the one in use, marked
    """
    need(table, "threshold", "role", "assigned", "assigned_bh", "assigned_holm", "heads")
    roles = list(dict.fromkeys(table["role"]))
    with style.drawing():
        figure, panels = small_panels(len(roles))
        for panel, role in zip(panels, roles, strict=True):
            part = table[table["role"] == role].sort_values("threshold")
            _threshold_panel(panel, part, role, threshold)
        for panel in panels[:: n_columns(len(roles))]:
            panel.set_ylabel("heads with the role", fontsize=8)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8, **style.TIGHT)
    counts = ["assigned", "assigned_bh", "assigned_holm", "heads"]
    here = table[np.isclose(table["threshold"], threshold)].dropna(subset=counts)
    at = "; ".join(
        f"{role_name(row['role'])} {row['assigned']:.0f} of {row['heads']:.0f} "
        f"({row['assigned_bh']:.0f} and {row['assigned_holm']:.0f})"
        for _, row in here.iterrows()
    )
    span = f"{table['threshold'].min():g} to {table['threshold'].max():g}"
    text = (
        f"Heads with a role at thresholds from {span}; the band reaches down to Holm's correction. "
        f"At {threshold:g} (in brackets after Benjamini-Hochberg and Holm): {at or 'no value'}."
    )
    alt = f"Falling curves over thresholds {span}. At {threshold:g}: {at or 'no value'}."
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def decision_sizes(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """How many decisions on fewer inputs agree with the decision on all of them.

    table  n (inputs), role, agreement (share, 0 to 1), and low, high if there are intervals
    """
    need(table, "n", "role", "agreement")
    rows = table[table["agreement"].notna()].sort_values("n", kind="stable")
    if rows.empty:
        raise BadValue("no agreement is defined; there is no line to draw.")
    roles, sizes = list(dict.fromkeys(table["role"])), sorted(rows["n"].unique())
    low = float(rows["agreement"].min())
    with style.drawing():
        # More lines than five are a tangle: then each role has a panel, the others pale behind it.
        many = len(roles) > 5
        figure, panels = small_panels(
            len(roles) if many else 1, height=1.8 if many else 2.4, sharey=True
        )
        ticks = [size for size in sizes if size in (sizes[0], 100, sizes[-1])] if many else sizes
        for i, panel in enumerate(panels):
            _agreement_lines(panel, rows, roles, roles[i : i + 1] if many else roles)
            panel.set_xticks(ticks, [f"{size:,.0f}" for size in ticks])
            panel.set_ylim(max(0.0, low - 0.15 * (1 - low) - 0.005), 1.0)
        for panel in panels[:: n_columns(len(panels))]:
            panel.set_ylabel("decisions as with all inputs", fontsize=8)
    first = ", ".join(
        f"{role_name(row['role'])} {100 * row['agreement']:.0f}%"
        for _, row in rows[rows["n"] == sizes[0]].iterrows()
    )
    reached = ", ".join(
        f"{role_name(role)} {_lasting(rows[rows['role'] == role])}"
        for role in roles
        if role in set(rows["role"])
    )
    text = (
        f"Share of decisions that agree with those on all inputs. With {sizes[0]:,.0f} inputs: "
        f"{first}. Inputs from which on 95% agree: {reached}."
    )
    alt = f"Rising lines. {text}"
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def light_grid(panel: Axes) -> None:
    panel.grid(axis="y", color=style.FAINT, alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)


def n_columns(n: int) -> int:
    return n if n <= 5 else math.ceil(n / math.ceil(n / 5))


def small_panels(
    n: int, *, height: float = 1.75, sharey: bool = False
) -> tuple[Figure, list[Axes]]:
    """Up to five panels side by side, and the rest beneath."""
    lines = math.ceil(n / n_columns(n))
    width = style.WIDTHS[{1: "narrow", 2: "column"}.get(n, "wide")]
    engine = ConstrainedLayoutEngine(wspace=0.04, hspace=0.05)
    figure = Figure(figsize=(width, 0.4 + height * lines), layout=engine)
    axes = figure.subplots(lines, n_columns(n), sharey=sharey, squeeze=False).ravel()
    for spare in axes[n:]:
        spare.remove()
    return figure, list(axes[:n])


def say_undefined(panel: Axes, values: pd.Series) -> None:
    if values.notna().sum() == 0:
        place: Any = {"transform": panel.transAxes, "ha": "center", "va": "center"}
        panel.text(0.5, 0.5, "undefined", fontsize=8, alpha=0.65, **place)


def _histogram(
    panel: Axes, scores: np.ndarray, stats: pd.Series, threshold: float, colour: str
) -> None:
    """Bars up to a far quantile: a single outlier would squeeze the rest into one bar."""
    if not len(scores):
        raise BadValue(f"label '{stats.name}' has no defined score; leave it out.")
    far = 1.15 * float(np.quantile(scores, 0.99))
    top = max(min(far, float(scores.max()) * 1.02), threshold * 1.15, float(stats["high"]) * 1.1)
    counts, edges = np.histogram(scores, bins=32, range=(0, top))
    panel.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colour, alpha=0.55, lw=0)
    band: Any = {"color": colour, "alpha": 0.45, "lw": 0, "label": "95% interval of the mean"}
    panel.axvspan(stats["low"], stats["high"], **band)
    panel.axvline(stats["mean"], color=colour, lw=1.8, label="mean")
    panel.axvline(stats["median"], color=colour, lw=1.8, ls=(0, (1, 1)), label="median")
    line: Any = {"color": style.INK, "lw": 1.4, "ls": (0, (5, 2))}
    panel.axvline(threshold, label=f"threshold {threshold:g}", **line)
    panel.set(xlim=(0, top), xlabel="score of an input")
    above = int((scores > top).sum())
    told = (
        f"mean {stats['mean']:.2f} [{stats['low']:.2f}, {stats['high']:.2f}]\n"
        f"median {stats['median']:.2f}, {len(scores):,} inputs"
    )
    panel.text(0, 1.03, told, transform=panel.transAxes, fontsize=7.5, va="bottom", linespacing=1.3)
    if above:
        corner: Any = {"transform": panel.transAxes, "ha": "right", "va": "bottom", "fontsize": 7}
        panel.text(1.0, 0.12, f"{above} beyond →", alpha=0.75, **corner)
    light_grid(panel)


def _spoken_scores(name: str, scores: np.ndarray, stats: pd.Series, threshold: float) -> str:
    if stats["low"] > threshold:
        where = "lies above"
    else:
        where = "lies below" if stats["high"] < threshold else "includes"
    return (
        f"{name}: mean {stats['mean']:.2f} (95% interval {stats['low']:.2f} to "
        f"{stats['high']:.2f}, which {where} the threshold {threshold:g}), median "
        f"{stats['median']:.2f}; {100 * float((scores > threshold).mean()):.0f}% of the inputs "
        "score above it."
    )


def _share_at(part: pd.DataFrame, score: float) -> float:
    part = part.sort_values("score")
    return float(np.interp(score, part["score"], part["share"], left=0.0))


def _cumulative(panel: Axes, scores: pd.DataFrame, threshold: float, mean: float | None) -> None:
    shown = scores[(scores["score"] > 0) & scores["share"].notna()].sort_values("score")
    for role in dict.fromkeys(scores["role"]):
        part, look = shown[shown["role"] == role], role_look(role)
        line: Any = {"color": look.colour, "lw": 1.3, "ls": look.dash}
        if role == "all":
            line = {"color": style.INK, "lw": 2.2, "zorder": 4}
        panel.plot(part["score"], part["share"], label=role_name(role), **line)
    middle = shown[(shown["share"] > 0.002) & (shown["share"] < 0.9985)]["score"]
    ends = (middle.min(), middle.max()) if len(middle) else (0.1, 10.0)
    panel.set_xscale("log")
    low = max(min(ends[0], threshold / 2), LEAST_SCORE)
    panel.set(xlim=(low, max(ends[1], threshold * 2)), ylim=(0, 1))
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set(xlabel="score, logarithmic", ylabel="scores up to this value")
    marks: list[Any] = [(threshold, f"threshold {threshold:g}", (0, (5, 2)))]
    if mean is not None and math.isfinite(mean):
        marks.append((mean, f"mean {mean:.2f}", (0, (1, 1.2))))
    for i, (value, name, dash) in enumerate(sorted(marks)):
        panel.axvline(value, color=style.INK, lw=1.1, ls=dash)
        side = -1 if len(marks) == 2 and i == 0 else 1  # words away from the other line
        place: Any = {"ha": "right" if side < 0 else "left", "textcoords": "offset points"}
        panel.annotate(name, (value, 1.0), xytext=(2 * side, 4), fontsize=8, **place)
    light_grid(panel)


def _p_bars(panel: Axes, rows: pd.DataFrame, clear: tuple[float, float]) -> None:
    edges = np.linspace(0, 1, 21)
    base = np.zeros(20)
    roles = list(dict.fromkeys(rows["role"])) if "role" in rows.columns else [""]
    for role in roles:
        part = rows if role == "" else rows[rows["role"] == role]
        height = 100 * np.histogram(part["p"], edges)[0] / len(rows)
        colour = role_look(role).colour if role else OURS
        panel.bar(edges[:-1] + 0.025, height, 0.046, bottom=base, color=colour, lw=0, label=role)
        base += height
    panel.axvspan(0.05, 0.95, color=style.FAINT, alpha=0.16, lw=0, zorder=0)
    words: Any = {"ha": "center", "va": "center", "fontsize": 8.5, "linespacing": 1.3}
    top = 1.12 * float(base.max())
    panel.text(0.5, top / 2, f"{100 - sum(clear):.1f}%\nbetween 0.05 and 0.95", **words)
    side: Any = {"textcoords": "offset points", "va": "top", "fontsize": 8.5}
    for x, share, left in ((0.05, clear[0], True), (0.95, clear[1], False)):
        at: Any = (x, base[0 if left else -1])
        hold: Any = {"xytext": (4 if left else -4, -1), "ha": "left" if left else "right"}
        panel.annotate(f"{share:.1f}%", at, **hold, **side)
    panel.set(xlim=(-0.01, 1.01), ylim=(0, top), xlabel="p-value", ylabel="tests, percent")
    panel.set_xticks([0.05, 0.25, 0.5, 0.75, 0.95], ["0.05", "0.25", "0.5", "0.75", "0.95"])
    light_grid(panel)


def _threshold_panel(panel: Axes, part: pd.DataFrame, role: str, threshold: float) -> None:
    colour = role_look(role).colour
    x = part["threshold"]
    panel.fill_between(x, part["assigned_holm"], part["assigned"], color=colour, alpha=0.25, lw=0)
    panel.plot(x, part["assigned"], color=colour, lw=3, label="uncorrected")
    bh: Any = {"lw": 1, "ls": (0, (4, 1.5)), "label": "Benjamini-Hochberg"}
    panel.plot(x, part["assigned_bh"], color=style.INK, **bh)
    panel.plot(x, part["assigned_holm"], color=style.INK, lw=1, ls=(0, (1, 1)), label="Holm")
    panel.axvline(threshold, color=style.FAINT, lw=1.2, label=f"threshold {threshold:g}")
    most = float(part["heads"].max())
    panel.set_xlim(x.min(), x.max())
    panel.set_xlabel("threshold", fontsize=8)
    panel.set_ylim(0, most if math.isfinite(most) else 1)
    panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    panel.set_title(role_name(role), fontsize=9)
    panel.tick_params(labelsize=7.5)
    here = part[np.isclose(x, threshold) & part["assigned"].notna()]
    if len(here):
        panel.plot(here["threshold"], here["assigned"], "o", color=colour, ms=5, mew=0)
        at: Any = (threshold, float(here["assigned"].iloc[0]))
        shift: Any = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 8}
        panel.annotate(f"{here['assigned'].iloc[0]:.0f}", at, **shift)
    say_undefined(panel, part["assigned"])
    light_grid(panel)


def _agreement_lines(
    panel: Axes, rows: pd.DataFrame, roles: Sequence[str], told: Sequence[str]
) -> None:
    """The lines of some roles in their colours, the others behind them."""
    for role in sorted(roles, key=lambda one: one in told):
        part, look = rows[rows["role"] == role], role_look(role)
        if role not in told:
            panel.plot(part["n"], part["agreement"], color=style.FAINT, alpha=0.35, lw=0.8)
            continue
        if {"low", "high"} <= set(rows.columns):
            band: Any = {"color": look.colour, "alpha": 0.15, "lw": 0}
            panel.fill_between(part["n"], part["low"], part["high"], **band)
        mark: Any = {"marker": look.marker, "ms": 5, "mew": 0, "clip_on": False}
        line: Any = {"color": look.colour, "ls": look.dash, "lw": 1.5, "label": role_name(role)}
        panel.plot(part["n"], part["agreement"], **line, **mark)
    panel.set_xscale("log")
    panel.xaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))
    panel.set_xlabel("inputs", fontsize=8)
    panel.tick_params(labelsize=7.5)
    light_grid(panel)
    if len(told) > 1:
        panel.legend(loc="lower right", fontsize=8, **style.TIGHT)
    else:
        panel.set_title(role_name(told[0]), fontsize=9)


def _lasting(part: pd.DataFrame) -> str:
    """The number of inputs from which on at least 95% agree: one lucky size is not enough."""
    below = part.loc[part["agreement"] < 0.95, "n"].max()
    enough = part["n"] if math.isnan(below) else part.loc[part["n"] > below, "n"]
    return f"{enough.min():,.0f}" if len(enough) else "never"
