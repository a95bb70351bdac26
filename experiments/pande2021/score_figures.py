"""Scores behind the roles: distributions, p-values, thresholds, numbers of inputs, changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from attnlib.errors import BadValue, check_choice
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import task_name
from attnlib.plots.panels import light_grid, n_columns, say_undefined, small_panels
from attnlib.plots.rows import OURS, PAPER
from experiments.pande2021.role_figures import role_look, role_name

LEAST_SCORE = 0.05
"""Scores below are as good as none: a logarithmic axis would be all about them."""
PARTS = ("initial", "middle", "final")
_TASK_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


# --- scores of inputs -----------------------------------------------------------------------------


def score_distributions(
    table: pd.DataFrame, stats: pd.DataFrame, *, threshold: float = 3.0, caption: str | None = None
) -> Drawing:
    """Scores of single inputs, with their mean beside the threshold (Pande 2021, Fig. 2).

    table  label (such as a head), score: one row per input; at most three labels, a panel each
    stats  label, mean, low, high (95% interval of the mean), median
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
        panels = figure.subplots(1, len(labels), squeeze=False)[0]
        for panel, name in zip(panels, labels, strict=True):
            scores = table.loc[table["label"] == name, "score"].dropna().to_numpy(float)
            _histogram(panel, scores, known.loc[name], threshold)
            panel.set_title(str(name), fontsize=9.5, pad=26)
            told.append(_spoken_scores(str(name), scores, known.loc[name], threshold))
        panels[0].set_ylabel("inputs")
        _legend(figure, panels[0], 2 if len(labels) == 1 else 4)
    text = f"How the score varies over the inputs. {' '.join(told)}"
    alt = f"Histograms of the score of single inputs. {' '.join(told)}"
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def _histogram(panel: Axes, scores: np.ndarray, stats: pd.Series, threshold: float) -> None:
    """Bars up to a far quantile: a single outlier would squeeze the rest into one bar."""
    if not len(scores):
        raise BadValue(f"label '{stats.name}' has no defined score; leave it out.")
    far = 1.15 * float(np.quantile(scores, 0.99))
    top = max(min(far, float(scores.max()) * 1.02), threshold * 1.15, float(stats["high"]) * 1.1)
    counts, edges = np.histogram(scores, bins=32, range=(0, top))
    colour = style.LOOKS["other"].colour
    panel.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colour, alpha=0.55, lw=0)
    band: Any = {"color": colour, "alpha": 0.45, "lw": 0, "label": "95% interval of the mean"}
    panel.axvspan(stats["low"], stats["high"], **band)
    panel.axvline(stats["mean"], color=colour, lw=1.8, label="mean")
    panel.axvline(stats["median"], color=colour, lw=1.8, ls=(0, (1, 1)), label="median")
    line: Any = {"color": style.INK, "lw": 1.4, "ls": (0, (5, 2))}
    panel.axvline(threshold, label=f"threshold {threshold:g}", **line)
    panel.set(xlim=(0, top), xlabel="score of an input")
    told = (
        f"mean {stats['mean']:.2f} [{stats['low']:.2f}, {stats['high']:.2f}]\n"
        f"median {stats['median']:.2f}, {len(scores):,} inputs"
    )
    panel.text(0, 1.03, told, transform=panel.transAxes, fontsize=7.5, va="bottom", linespacing=1.3)
    if above := int((scores > top).sum()):
        corner: Any = {"transform": panel.transAxes, "ha": "right", "va": "bottom", "fontsize": 7}
        panel.text(1.0, 0.12, f"{above} beyond →", alpha=0.75, **corner)
    light_grid(panel)


def _spoken_scores(name: str, scores: np.ndarray, stats: pd.Series, threshold: float) -> str:
    where = "lies below" if stats["high"] < threshold else "includes"
    where = "lies above" if stats["low"] > threshold else where
    return (
        f"{name}: mean {stats['mean']:.2f} (95% interval {stats['low']:.2f} to "
        f"{stats['high']:.2f}, which {where} the threshold {threshold:g}), median "
        f"{stats['median']:.2f}; {100 * float((scores > threshold).mean()):.0f}% of the inputs "
        "score above it."
    )


# --- the threshold --------------------------------------------------------------------------------


def scores_and_p_values(
    scores: pd.DataFrame,
    p_values: pd.DataFrame,
    threshold: float,
    mean: float,
    *,
    caption: str | None = None,
) -> Drawing:
    """Cumulative scores of all heads, roles and tasks, and all p-values (Pande 2021, Fig. 3).

    scores    role ("all" is the overall line), score, share: how many scores are at most this one
    p_values  role, p; undefined ones are counted and left out
    mean      of all scores; the paper's threshold is the smallest integer above it
    """
    need(scores, "role", "score", "share")
    need(p_values, "role", "p")
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
        _legend(figure, left, 6)
    passing = ", ".join(
        f"{role_name(str(role))} {100 * (1 - _share_at(part, threshold)):.0f}%"
        for role, part in scores.dropna(subset=["score", "share"]).groupby("role", sort=False)
    )
    parts = (
        f"{len(p):,} p-values: {clear[0]:.1f}% below 0.05, {clear[1]:.1f}% above 0.95, "
        f"{100 - sum(clear):.1f}% between"
    )
    gone = len(p_values) - len(p)
    undefined = f" ({gone:,} more are undefined)" if gone else ""
    text = (
        f"Left: share of scores up to a value, their mean is {mean:.2f}; above the threshold "
        f"{threshold:g} lie: {passing}. Right: {parts}{undefined}."
    )
    alt = f"Cumulative curves and a histogram. Above {threshold:g}: {passing}. {parts}."
    both = [scores.assign(panel="scores"), p_values.assign(panel="p-values")]
    return Drawing(figure, caption or text, alt, pd.concat(both, ignore_index=True))


def _share_at(part: pd.DataFrame, score: float) -> float:
    part = part.sort_values("score")
    return float(np.interp(score, part["score"], part["share"], left=0.0))


def _cumulative(panel: Axes, scores: pd.DataFrame, threshold: float, mean: float) -> None:
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
    if math.isfinite(mean):
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
    for role, part in rows.groupby("role", sort=False):
        height = 100 * np.histogram(part["p"], edges)[0] / len(rows)
        look: Any = {"color": role_look(str(role)).colour, "lw": 0, "label": role}
        panel.bar(edges[:-1] + 0.025, height, 0.046, bottom=base, **look)
        base += height
    panel.axvspan(0.05, 0.95, color=style.FAINT, alpha=0.16, lw=0, zorder=0)
    words: Any = {"ha": "center", "va": "center", "fontsize": 8.5, "linespacing": 1.3}
    top = 1.12 * float(base.max())
    panel.text(0.5, top / 2, f"{100 - sum(clear):.1f}%\nbetween 0.05 and 0.95", **words)
    side: Any = {"textcoords": "offset points", "va": "top", "fontsize": 8.5}
    panel.annotate(f"{clear[0]:.1f}%", (0.05, base[0]), xytext=(4, -1), ha="left", **side)
    panel.annotate(f"{clear[1]:.1f}%", (0.95, base[-1]), xytext=(-4, -1), ha="right", **side)
    panel.set(xlim=(-0.01, 1.01), ylim=(0, top), xlabel="p-value", ylabel="tests, percent")
    panel.set_xticks([0.05, 0.25, 0.5, 0.75, 0.95], ["0.05", "0.25", "0.5", "0.75", "0.95"])
    light_grid(panel)


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
        _legend(figure, panels[0], 4)
    here = table[np.isclose(table["threshold"], threshold)].dropna()
    at = "; ".join(
        f"{role_name(row.role)} {row.assigned:.0f} of {row.heads:.0f} "
        f"({row.assigned_bh:.0f} and {row.assigned_holm:.0f})"
        for row in here.itertuples()
    )
    span = f"{table['threshold'].min():g} to {table['threshold'].max():g}"
    text = (
        f"Heads with a role at thresholds from {span}; the band reaches down to Holm's correction. "
        f"At {threshold:g} (in brackets after Benjamini-Hochberg and Holm): {at or 'no value'}."
    )
    return Drawing(figure, caption or text, f"Falling curves. {text}", table.reset_index(drop=True))


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


def decision_sizes(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """How many decisions on fewer inputs agree with the decision on all of them.

    table  n (inputs), role, agreement (share, 0 to 1)
    """
    need(table, "n", "role", "agreement")
    rows = table[table["agreement"].notna()].sort_values("n", kind="stable")
    if rows.empty:
        raise BadValue("no agreement is defined; there is no line to draw.")
    sizes, low = sorted(rows["n"].unique()), float(rows["agreement"].min())
    reached = []
    with style.drawing():
        figure, (panel,) = small_panels(1, height=2.4)
        for role in dict.fromkeys(table["role"]):
            part, look = rows[rows["role"] == role], role_look(role)
            mark: Any = {"marker": look.marker, "ms": 5, "mew": 0, "clip_on": False}
            line: Any = {"color": look.colour, "ls": look.dash, "lw": 1.5, "label": role_name(role)}
            panel.plot(part["n"], part["agreement"], **line, **mark)
            reached += [f"{role_name(role)} {_lasting(part)}"] if len(part) else []
        panel.set_xscale("log")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}%"))
        panel.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        panel.set_ylim(max(0.0, low - 0.15 * (1 - low) - 0.005), 1.0)
        panel.set_xlabel("inputs", fontsize=8)
        panel.set_ylabel("decisions as with all inputs", fontsize=8)
        panel.tick_params(labelsize=7.5)
        light_grid(panel)
        panel.legend(loc="lower right", fontsize=8, **style.TIGHT)
    first = ", ".join(
        f"{role_name(row.role)} {100 * row.agreement:.0f}%"
        for row in rows[rows["n"] == sizes[0]].itertuples()
    )
    text = (
        f"Share of decisions that agree with those on all inputs. With {sizes[0]:,.0f} inputs: "
        f"{first}. Inputs from which on 95% agree: {', '.join(reached)}."
    )
    return Drawing(figure, caption or text, f"Rising lines. {text}", table.reset_index(drop=True))


def _lasting(part: pd.DataFrame) -> str:
    """The number of inputs from which on at least 95% agree: one lucky size is not enough."""
    below = part.loc[part["agreement"] < 0.95, "n"].max()
    enough = part["n"] if math.isnan(below) else part.loc[part["n"] > below, "n"]
    return f"{enough.min():,.0f}" if len(enough) else "never"


# --- by layer: what fine-tuning changes, and the authors' maps ------------------------------------


def bias_changes(
    table: pd.DataFrame, *, same_scale: bool = True, caption: str | None = None
) -> Drawing:
    """Change of the mean bias by fine-tuning in three parts of the layers (Pande 2021, Fig. 6).

    table       task, role, part (initial, middle, final), change (after minus before), low, high
    same_scale  one axis for all roles, so that they can be compared by eye
    """
    rows = _known_changes(table, "part")
    for part in dict.fromkeys(table["part"]):
        check_choice("part", part, PARTS)
    roles, tasks = (list(dict.fromkeys(table[name])) for name in ("role", "task"))
    with style.drawing():
        figure, panels = small_panels(len(roles), height=2.3, sharey=same_scale)
        for panel, role in zip(panels, roles, strict=True):
            _change_panel(panel, rows[rows["role"] == role], role, tasks)
        for panel in panels[:: n_columns(len(roles))]:
            panel.set_ylabel("change of the mean bias", fontsize=8)
        marks: Any = {"color": style.INK, "ls": "none", "ms": 5.5, "mew": 0}
        handles = [Line2D([], [], marker=mark, **marks) for mark in _TASK_MARKS[: len(tasks)]]
        names = [task_name(task) for task in tasks]
        below: Any = {"loc": "outside lower center", "ncols": 8, "fontsize": 8, **style.TIGHT}
        figure.legend(handles, names, **below)
    final = rows[rows["part"] == "final"].groupby("role", sort=False)["change"].mean()
    ends = ", ".join(f"{role_name(str(r))} {_signed(v)}" for r, v in final.items()) or "none"
    mean = ", mean of the tasks" if len(tasks) > 1 else ""
    sure = int(((rows["low"] > 0) | (rows["high"] < 0)).sum())
    most = rows.loc[rows["change"].abs().idxmax()]
    text = (
        f"After minus before fine-tuning, with 95% intervals. Final layers{mean}: {ends}. "
        f"{sure} of {len(rows)} intervals exclude 0. Largest: {role_name(most['role'])} in "
        f"the {most['part']} layers{_of(most['task'])}, {_signed(most['change'])}."
    )
    alt = f"Dots with intervals. {text}"
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def _change_panel(panel: Axes, rows: pd.DataFrame, role: str, tasks: Sequence[str]) -> None:
    colour = role_look(role).colour
    shifts = np.linspace(-0.28, 0.28, len(tasks)) if len(tasks) > 1 else np.zeros(1)
    panel.axhline(0, color=style.INK, lw=0.8, alpha=0.6)
    for i, task in enumerate(tasks):
        part = rows[rows["task"] == task]
        x = part["part"].map(PARTS.index).to_numpy(float) + shifts[i]
        panel.vlines(x, part["low"], part["high"], color=colour, lw=2.2, alpha=0.5)
        mark: Any = {"marker": _TASK_MARKS[i % len(_TASK_MARKS)], "ms": 4.5, "mew": 0}
        panel.plot(x, part["change"], color=colour, ls="none", label=task, **mark)
    for edge in (0.5, 1.5):
        panel.axvline(edge, color=style.FAINT, alpha=0.3, lw=0.6)
    panel.set_xticks(range(3), PARTS)
    panel.set_xlim(-0.5, 2.5)
    panel.tick_params(axis="x", length=0, labelsize=7.5)
    panel.set_title(role_name(role), fontsize=9)
    say_undefined(panel, rows["change"])
    light_grid(panel)


def bias_change_by_layer(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """Change of the mean bias by fine-tuning, layer by layer.

    table  task, role, layer, change (after minus before), low, high
    """
    rows = _known_changes(table, "layer")
    with style.drawing():
        figure, panels = _role_task_panels(table)
        for role, panel, part in panels:
            look = role_look(role)
            panel.axhline(0, color=style.FAINT, lw=0.8)
            band: Any = {"color": look.colour, "alpha": 0.2, "lw": 0}
            panel.fill_between(part["layer"], part["low"], part["high"], **band)
            line: Any = {"color": look.colour, "marker": look.marker, "ms": 3.5, "mew": 0}
            panel.plot(part["layer"], part["change"], lw=1.4, **line)
            say_undefined(panel, part["change"])
        figure.supylabel("change of the mean bias", fontsize=8.5)
    most = rows.loc[rows.groupby("role", sort=False)["change"].apply(lambda c: c.abs().idxmax())]
    told = "; ".join(
        f"{role_name(row.role)} {_signed(row.change)} in layer {row.layer}{_of(row.task)}"
        for row in most.itertuples()
    )
    text = f"After minus before fine-tuning; bands are 95% intervals. Largest changes: {told}."
    alt = f"Lines over layers. {text}"
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def layer_profiles_beside(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """Our mean bias per layer beside the authors', with the rank correlation of the two.

    table  role, task, layer, ours, authors, and rho, the same in all rows of a role and task
    """
    need(table, "role", "task", "layer", "ours", "authors", "rho")
    with style.drawing():
        figure, panels = _role_task_panels(table)
        for role, panel, part in panels:
            _profile(panel, part)
            top = float(table.loc[table["role"] == role, ["ours", "authors"]].max().max())
            panel.set_ylim(0, 1.35 * top if top > 0 else 1)  # room for the correlation
        _legend(figure, panels[0][1], 2)
        figure.supylabel("mean bias", fontsize=8.5)
    rho = table[["rho", "role", "task"]].drop_duplicates().dropna().sort_values("rho")
    told = "No rank correlation is defined."
    if len(rho):
        high, low = (
            f"{role_name(row.role)}{_of(row.task)} {row.rho:.2f}"
            for row in rho.iloc[[-1, 0]].itertuples()
        )
        told = (
            f"Rank correlation over {len(rho)} panels: median {rho['rho'].median():.2f}, highest "
            f"{high}, lowest {low}."
        ).replace("-0", "−0")
    text = f"Mean bias per layer, ours solid and the authors' hollow. {told}"
    alt = f"Lines over layers. {text}"
    return Drawing(figure, caption or text, alt, table.reset_index(drop=True))


def _profile(panel: Axes, part: pd.DataFrame) -> None:
    ours: Any = {"color": OURS, "marker": "o", "ms": 4, "mew": 0, "lw": 1.4, "label": "ours"}
    theirs: Any = {"color": PAPER, "marker": "o", "ms": 4.5, "mfc": "none", "mew": 1.1, "lw": 0.7}
    panel.plot(part["layer"], part["ours"], zorder=3, **ours)
    panel.plot(part["layer"], part["authors"], label="the authors", **theirs)
    told = "ours only" if part["authors"].isna().all() and part["ours"].notna().any() else ""
    if part["rho"].notna().any():
        told = f"ρ {part['rho'].iloc[0]:.2f}".replace("-", "−")
    panel.text(0.03, 0.97, told, transform=panel.transAxes, va="top", fontsize=7.5)
    say_undefined(panel, part["ours"].fillna(part["authors"]))


def _role_task_panels(table: pd.DataFrame) -> tuple[Figure, list[tuple[str, Axes, pd.DataFrame]]]:
    """Roles downwards and tasks across, one scale per role; one task alone has roles across.

    returns  the figure, and for every panel its role, its axes and its rows by layer
    """
    roles, tasks = (list(dict.fromkeys(table[name])) for name in ("role", "task"))
    layers = sorted(table["layer"].unique())
    if len(tasks) == 1:
        figure, axes = small_panels(len(roles))
        grid = np.array(axes)[:, None]
        for panel, role in zip(axes, roles, strict=True):
            panel.set_title(role_name(role), fontsize=9)
            panel.set_xlabel("layer", fontsize=8)
    else:
        size = (style.WIDTHS["wide"], 0.55 + 1.2 * len(roles))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.04))
        grid = figure.subplots(len(roles), len(tasks), sharex=True, sharey="row", squeeze=False)
        for panel, task in zip(grid[0], tasks, strict=True):
            panel.set_title(task_name(task), fontsize=9)
        for line, role in zip(grid, roles, strict=True):
            line[0].set_ylabel(fill(role_name(role), 12), fontsize=8.5, fontweight="bold")
        for panel in grid[-1]:
            panel.set_xlabel("layer", fontsize=8)
        figure.align_ylabels(grid[:, 0])
    found = []
    for role, line in zip(roles, grid, strict=True):
        for task, panel in zip(tasks, line, strict=True):
            panel.set_xlim(layers[0] - 0.5, layers[-1] + 0.5)
            panel.set_xticks(layers[:: max(1, math.ceil(len(layers) / 4))])
            panel.yaxis.set_major_locator(MaxNLocator(4))
            panel.tick_params(labelsize=7.5)
            light_grid(panel)
            part = table[(table["role"] == role) & (table["task"] == task)]
            found.append((role, panel, part.sort_values("layer")))
    return figure, found


def _known_changes(table: pd.DataFrame, place: str) -> pd.DataFrame:
    need(table, "task", "role", place, "change", "low", "high")
    rows = table[table["change"].notna()].reset_index(drop=True)
    if rows.empty:
        raise BadValue("no change is defined; there is nothing to draw.")
    return rows


def _legend(figure: Figure, panel: Axes, columns: int) -> None:
    """The names of one panel's marks below all panels."""
    below: Any = {"loc": "outside lower center", "ncols": columns, "fontsize": 8, **style.TIGHT}
    figure.legend(*panel.get_legend_handles_labels(), **below)


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _of(task: str) -> str:
    return f" of {task_name(task)}" if task else ""
