"""Scores behind the roles: distributions, p-values, thresholds, numbers of inputs, changes."""

from __future__ import annotations

from itertools import product
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from attnlib.errors import BadValue, check_choice
from attnlib.plots import panels, style
from attnlib.plots.drawing import Drawing, need, true_minus
from attnlib.plots.labels import task_name
from attnlib.plots.rows import OURS, PAPER
from experiments.pande2021.draws import PARTS
from experiments.pande2021.role_figures import role_look, role_name

LEAST_SCORE = 0.05
"""Scores below are as good as none: a logarithmic axis would be all about them."""
_TASK_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


# --- scores of inputs -----------------------------------------------------------------------------


def score_distributions(
    table: pd.DataFrame, stats: pd.DataFrame, *, threshold: float = 3.0
) -> Drawing:
    """Scores of single inputs, with their mean beside the threshold (Pande 2021, Fig. 2).

    table  label (such as a head), score: one row per input; at most three labels, a panel each
    stats  label, mean, low, high (95% interval of the mean), median
    """
    need(table, "label", "score")
    need(stats, "label", "mean", "median", "low", "high")
    known = stats.drop_duplicates("label").set_index("label")
    if (n := table["label"].nunique()) > 3:
        raise BadValue(f"{n} labels do not fit side by side; give up to 3.")
    with style.drawing():
        figure, parts = panels.group_panels(table, "label", str, ylabel="inputs", height=2.3)
        for name, panel, part in parts:
            if name not in known.index:
                raise BadValue(f"the statistics have no row for label '{name}'; add one.")
            scores = part["score"].dropna().to_numpy(float)
            if not len(scores):
                raise BadValue(f"label '{name}' has no defined score; leave it out.")
            _histogram(panel, scores, known.loc[name], threshold)
            panel.set_title(str(name), fontsize=9.5, pad=26)
        panels.one_legend(figure, ncols=2 if n == 1 else 4)
    return Drawing("Histograms of the score of single inputs", figure, table)


def _histogram(panel: Axes, scores: np.ndarray, stats: pd.Series, threshold: float) -> None:
    """Bars up to a far quantile: a single outlier would squeeze the rest into one bar."""
    mean, median, low, high = stats[["mean", "median", "low", "high"]].astype(float)
    far = min(1.15 * float(np.quantile(scores, 0.99)), 1.02 * float(scores.max()))
    top, colour = max(far, 1.15 * threshold, 1.1 * high), style.LOOKS["other"].colour
    panel.hist(scores, bins=32, range=(0, top), color=colour, alpha=0.55, lw=0)
    panel.axvspan(low, high, color=colour, alpha=0.45, lw=0, label="95% interval of the mean")
    panel.axvline(mean, color=colour, lw=1.8, label="mean")
    panel.axvline(median, color=colour, lw=1.8, ls=(0, (1, 1)), label="median")
    line: Any = {"lw": 1.4, "ls": (0, (5, 2)), "label": f"threshold {threshold:g}"}
    panel.axvline(threshold, color=style.INK, **line)
    panel.set(xlim=(0, top), xlabel="score of an input")
    place: Any = {"transform": panel.transAxes, "va": "bottom"}
    numbers = (
        f"mean {mean:.2f} [{low:.2f}, {high:.2f}]\nmedian {median:.2f}, {len(scores):,} inputs"
    )
    panel.text(0, 1.03, numbers, fontsize=7.5, linespacing=1.3, **place)
    if beyond := int((scores > top).sum()):
        panel.text(1.0, 0.12, f"{beyond} beyond →", ha="right", fontsize=7, alpha=0.75, **place)


# --- the threshold --------------------------------------------------------------------------------


def scores_and_p_values(
    scores: pd.DataFrame, p_values: pd.DataFrame, threshold: float, mean: float
) -> Drawing:
    """Cumulative scores of all heads, roles and tasks, and all p-values (Pande 2021, Fig. 3).

    scores    role ("all" is the overall line), score, share: how many scores are at most this one
    p_values  role, p; undefined ones are left out
    mean      of all scores; the paper's threshold is the smallest integer above it
    """
    need(scores, "role", "score", "share")
    need(p_values, "role", "p")
    known, tests = scores.dropna(subset=["score", "share"]), p_values.dropna(subset=["p"])
    if tests.empty:
        raise BadValue("no p-value is defined; there is nothing to draw.")
    with style.drawing():
        figure, (left, right) = panels.metric_panels(2, aspect=0.84)
        _cumulative(left, known, threshold, mean)
        _p_bars(right, tests)
        panels.one_legend(figure, ncols=6)
    both = pd.concat([scores.assign(panel="scores"), p_values.assign(panel="p-values")])
    return Drawing("Cumulative curves and a histogram", figure, both)


def _role_lines(panel: Axes, rows: pd.DataFrame, x: str, y: str, **marks: Any) -> None:
    """Shares of every role over a logarithmic axis: a line each, from left to right."""
    for role, part in rows.groupby("role", sort=False):
        look, line = role_look(str(role)), part.sort_values(x)
        ink: Any = {"color": look.colour, "ls": look.dash, "lw": 1.4}
        if role == "all":
            ink = {"color": style.INK, "lw": 2.2, "zorder": 4}
        mark = {"marker": look.marker, **marks} if marks else {}
        panel.plot(line[x], line[y], label=role_name(str(role)), **ink, **mark)
    panel.set_xscale("log")
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))
    panels.light_grid(panel)


def _cumulative(panel: Axes, rows: pd.DataFrame, threshold: float, mean: float) -> None:
    _role_lines(panel, rows, "score", "share")
    middle = rows.loc[rows["share"].between(0.002, 0.9985), "score"]
    first = max(min(middle.min(), threshold / 2), LEAST_SCORE)
    panel.set(xlim=(first, max(middle.max(), threshold * 2)), ylim=(0, 1))
    panel.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    panel.set(xlabel="score, logarithmic", ylabel="scores up to this value")
    marks: Any = [(threshold, f"threshold {threshold:g}", (0, (5, 2)))]
    marks += [(mean, f"mean {mean:.2f}", (0, (1, 1.2)))]
    for (value, name, dash), side in zip(sorted(marks), ("right", "left"), strict=True):
        panel.axvline(value, color=style.INK, lw=1.1, ls=dash)
        away: Any = {"xytext": (2 if side == "left" else -2, 4), "textcoords": "offset points"}
        panel.annotate(name, (value, 1.0), ha=side, fontsize=8, **away)


def _p_bars(panel: Axes, tests: pd.DataFrame) -> None:
    low, high = 100 * (tests["p"] < 0.05).mean(), 100 * (tests["p"] > 0.95).mean()
    edges = np.linspace(0, 1, 21)
    roles = {str(role): part["p"] for role, part in tests.groupby("role", sort=False)}
    bars = pd.DataFrame({name: np.histogram(p, edges)[0] for name, p in roles.items()})
    bars *= 100 / len(tests)
    colours = {name: role_look(name).colour for name in roles}
    panels.stacked_bars(panel, bars, edges[:-1] + 0.025, 0.046, colours)
    base = bars.sum(axis=1).to_numpy()
    panel.axvspan(0.05, 0.95, color=style.FAINT, alpha=0.16, lw=0, zorder=0)
    top = 1.12 * float(base.max())
    words: Any = {"ha": "center", "va": "center", "fontsize": 8.5, "linespacing": 1.3}
    panel.text(0.5, top / 2, f"{100 - low - high:.1f}%\nbetween 0.05 and 0.95", **words)
    side: Any = {"textcoords": "offset points", "va": "top", "fontsize": 8.5}
    panel.annotate(f"{low:.1f}%", (0.05, base[0]), xytext=(4, -1), ha="left", **side)
    panel.annotate(f"{high:.1f}%", (0.95, base[-1]), xytext=(-4, -1), ha="right", **side)
    panel.set(xlim=(-0.01, 1.01), ylim=(0, top), xlabel="p-value", ylabel="tests, percent")
    panel.set_xticks([0.05, 0.25, 0.5, 0.75, 0.95], ["0.05", "0.25", "0.5", "0.75", "0.95"])
    panels.light_grid(panel)


def threshold_curves(table: pd.DataFrame, *, threshold: float = 3.0) -> Drawing:
    """How many heads get a role at each threshold, with and without correction for many tests.

    table      threshold, role ("total" is all roles), assigned, assigned_bh (Benjamini-Hochberg),
               assigned_holm, heads (the number of tests)
    threshold  the one in use, marked
    """
    need(table, "threshold", "role", "assigned", "assigned_bh", "assigned_holm", "heads")
    here = table[np.isclose(table["threshold"], threshold)].dropna()
    with style.drawing():
        figure, parts = panels.group_panels(table, "role", role_name, ylabel="heads with the role")
        for role, panel, part in parts:
            _threshold_panel(panel, part.sort_values("threshold"), role_look(role).colour)
            panel.axvline(threshold, color=style.FAINT, lw=1.2, label=f"threshold {threshold:g}")
            for number in here.loc[here["role"] == role, "assigned"]:
                panel.plot(threshold, number, "o", color=role_look(role).colour, ms=5, mew=0)
                shift: Any = {"xytext": (4, 3), "textcoords": "offset points", "fontsize": 8}
                panel.annotate(f"{number:.0f}", (threshold, number), **shift)
        panels.one_legend(figure, ncols=4)
    return Drawing("Falling curves", figure, table)


def _threshold_panel(panel: Axes, part: pd.DataFrame, colour: str) -> None:
    x = part["threshold"]
    panel.fill_between(x, part["assigned_holm"], part["assigned"], color=colour, alpha=0.25, lw=0)
    panel.plot(x, part["assigned"], color=colour, lw=3, label="uncorrected")
    dashes: Any = {"ls": (0, (4, 1.5)), "label": "Benjamini-Hochberg"}
    panel.plot(x, part["assigned_bh"], color=style.INK, lw=1, **dashes)
    panel.plot(x, part["assigned_holm"], color=style.INK, lw=1, ls=(0, (1, 1)), label="Holm")
    panel.set(xlim=(x.min(), x.max()), ylim=(0, part["heads"].max()))
    panel.set_xlabel("threshold", fontsize=8)
    panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    panels.say_undefined(panel, part["assigned"])


def decision_sizes(table: pd.DataFrame) -> Drawing:
    """How many decisions on fewer inputs agree with the decision on all of them.

    table  n (inputs), role, agreement (share, 0 to 1)
    """
    need(table, "n", "role", "agreement")
    rows = _defined(table, "agreement")
    sizes, low = sorted(rows["n"].unique()), float(rows["agreement"].min())
    with style.drawing():
        figure, (panel,) = panels.small_panels(1, height=2.4)
        _role_lines(panel, rows, "n", "agreement", ms=5, mew=0, clip_on=False)
        panel.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        panel.set_ylim(max(0.0, low - 0.15 * (1 - low) - 0.005), 1.0)
        panel.set(xlabel="inputs", ylabel="decisions as with all inputs")
        panel.legend(loc="lower right", fontsize=8, **style.TIGHT)
    return Drawing("Rising lines", figure, table)


# --- by layer: what fine-tuning changes, and the authors' maps ------------------------------------


def bias_changes(table: pd.DataFrame) -> Drawing:
    """Change of the mean bias by fine-tuning in three parts of the layers (Pande 2021, Fig. 6).

    table  task, role, part (initial, middle, final), change (after minus before), low, high
    """
    need(table, "task", "role", "part", "change", "low", "high")
    for part in table["part"].unique():
        check_choice("part", part, PARTS)
    rows, what = _defined(table, "change"), "change of the mean bias"
    marks = dict(zip(table["task"].unique(), _TASK_MARKS, strict=False))
    with style.drawing():
        figure, parts = panels.group_panels(table, "role", role_name, ylabel=what, height=2.3)
        for role, panel, _ in parts:
            _change_panel(panel, rows[rows["role"] == role], role_look(role).colour, marks)
        look: Any = {"color": style.INK, "ls": "none", "ms": 5.5, "mew": 0}
        tasks = [Line2D([], [], marker=m, label=task_name(t), **look) for t, m in marks.items()]
        below: Any = {"loc": "outside lower center", "ncols": 8, "fontsize": 8}
        figure.legend(handles=tasks, **below, **style.TIGHT)
    return Drawing("Dots with intervals", figure, table)


def _change_panel(panel: Axes, rows: pd.DataFrame, colour: str, marks: dict[str, str]) -> None:
    shifts = np.linspace(-0.28, 0.28, len(marks)) * (len(marks) > 1)
    panel.axhline(0, color=style.INK, lw=0.8, alpha=0.6)
    for (task, mark), shift in zip(marks.items(), shifts, strict=True):
        part = rows[rows["task"] == task]
        x = part["part"].map(list(PARTS).index).to_numpy(float) + shift
        panel.vlines(x, part["low"], part["high"], color=colour, lw=2.2, alpha=0.5)
        panel.plot(x, part["change"], mark, color=colour, ms=4.5, mew=0, label=task)
    for edge in (0.5, 1.5):
        panel.axvline(edge, color=style.FAINT, alpha=0.3, lw=0.6)
    panel.set_xticks(range(3), PARTS)
    panel.set_xlim(-0.5, 2.5)
    panel.tick_params(axis="x", length=0)
    panels.say_undefined(panel, rows["change"])


def bias_change_by_layer(table: pd.DataFrame) -> Drawing:
    """Change of the mean bias by fine-tuning, layer by layer.

    table  task, role, layer, change (after minus before), low, high
    """
    need(table, "task", "role", "layer", "change", "low", "high")
    _defined(table, "change")
    with style.drawing():
        figure, parts = _role_task_panels(table, "change of the mean bias")
        for role, panel, part in parts:
            look = role_look(role)
            panel.axhline(0, color=style.FAINT, lw=0.8)
            band: Any = {"color": look.colour, "alpha": 0.2, "lw": 0}
            panel.fill_between(part["layer"], part["low"], part["high"], **band)
            line: Any = {"color": look.colour, "marker": look.marker, "ms": 3.5, "mew": 0}
            panel.plot(part["layer"], part["change"], lw=1.4, **line)
            panels.say_undefined(panel, part["change"])
    return Drawing("Lines over layers", figure, table)


def layer_profiles_beside(table: pd.DataFrame) -> Drawing:
    """Our mean bias per layer beside the authors', with the rank correlation of the two.

    table  role, task, layer, ours, authors, and rho, the same in all rows of a role and task
    """
    need(table, "role", "task", "layer", "ours", "authors", "rho")
    highest = table.groupby("role")[["ours", "authors"]].max().max(axis=1)
    with style.drawing():
        figure, parts = _role_task_panels(table, "mean bias")
        for role, panel, part in parts:
            _profile(panel, part)
            panel.set_ylim(0, 1.35 * (highest[role] or 1))  # room for the correlation
        panels.one_legend(figure, ncols=2)
    return Drawing("Lines over layers", figure, table)


def _profile(panel: Axes, part: pd.DataFrame) -> None:
    ours: Any = {"color": OURS, "marker": "o", "ms": 4, "mew": 0, "lw": 1.4, "label": "ours"}
    theirs: Any = {"color": PAPER, "marker": "o", "ms": 4.5, "mfc": "none", "mew": 1.1, "lw": 0.7}
    panel.plot(part["layer"], part["ours"], zorder=3, **ours)
    panel.plot(part["layer"], part["authors"], label="the authors", **theirs)
    told = "ours only" if part["authors"].isna().all() and part["ours"].notna().any() else ""
    if part["rho"].notna().any():
        told = true_minus(f"ρ {part['rho'].iloc[0]:.2f}")
    panel.text(0.03, 0.97, told, transform=panel.transAxes, va="top", fontsize=7.5)
    panels.say_undefined(panel, part["ours"].fillna(part["authors"]))


def _role_task_panels(
    table: pd.DataFrame, what: str
) -> tuple[Figure, list[tuple[str, Axes, pd.DataFrame]]]:
    """Roles downwards and tasks across, one scale per role; one task alone has roles across.

    returns  the figure, and for every panel its role, its axes and its rows by layer
    """
    roles, tasks = table["role"].unique(), table["task"].unique()
    if len(tasks) == 1:
        figure, found = panels.group_panels(table, "role", role_name, ylabel="")
    else:
        look: Any = {"columns": len(tasks), "gap": 0.03, "sharex": True, "sharey": "row"}
        tall = 0.55 + 1.2 * len(roles)
        figure, axes = panels.panel_grid(len(roles) * len(tasks), tall, **look)
        for panel, task in zip(axes, tasks, strict=False):
            panel.set_title(task_name(task), fontsize=9)
        for panel, role in zip(axes[:: len(tasks)], roles, strict=True):
            panel.set_ylabel(fill(role_name(role), 12), fontsize=8.5, fontweight="bold")
        figure.align_ylabels(axes[:: len(tasks)])
        found = [
            (role, panel, table[(table["role"] == role) & (table["task"] == task)])
            for (role, task), panel in zip(product(roles, tasks), axes, strict=True)
        ]
    for _, panel, _ in found:
        panels.layer_ticks(panel, sorted(table["layer"].unique()), 4)
        panel.set_xlabel("layer", fontsize=8)
        if len(tasks) > 1:
            panel.label_outer()
        panel.yaxis.set_major_locator(MaxNLocator(4))
        panel.tick_params(labelsize=7.5)
        panels.light_grid(panel)
    figure.supylabel(what, fontsize=8.5)
    return figure, [(role, panel, part.sort_values("layer")) for role, panel, part in found]


def _defined(table: pd.DataFrame, column: str) -> pd.DataFrame:
    rows = table[table[column].notna()].reset_index(drop=True)
    if rows.empty:
        raise BadValue(f"no {column} is defined; there is nothing to draw.")
    return rows
