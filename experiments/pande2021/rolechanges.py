"""Figures of Pande 2021 by layer: what fine-tuning changes, and the authors' maps beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    MaxNLocator,
)

from attnlib.errors import BadValue, check_choice
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.rows import OURS, PAPER
from experiments.pande2021.rolefigures import light_grid, n_columns, say_undefined, small_panels
from experiments.pande2021.roleoverlaps import role_look, role_name, task_name

PARTS = ("initial", "middle", "final")

_TASK_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


def bias_changes(
    table: pd.DataFrame, *, same_scale: bool = True, caption: str | None = None
) -> Drawing:
    """Change of the mean bias by fine-tuning in three parts of the layers (Pande 2021, Fig. 6).

    table       task, role, part (initial, middle, final), change (after minus before), low, high
    same_scale  one axis for all roles, so that they can be compared by eye
    """
    need(table, "task", "role", "part", "change", "low", "high")
    for part in dict.fromkeys(table["part"]):
        check_choice("part", part, PARTS)
    rows = table[table["change"].notna()].reset_index(drop=True)
    if rows.empty:
        raise BadValue("no change is defined; there is nothing to draw.")
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
        figure.legend(
            handles, names, loc="outside lower center", ncols=8, fontsize=8, **style.TIGHT
        )
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
    return Drawing(
        figure, caption or text, f"Dots with intervals. {text}", table.reset_index(drop=True)
    )


def bias_change_by_layer(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """Change of the mean bias by fine-tuning, layer by layer.

    table  task, role, layer, change (after minus before), low, high
    """
    need(table, "task", "role", "layer", "change", "low", "high")
    rows = table[table["change"].notna()].reset_index(drop=True)
    if rows.empty:
        raise BadValue("no change is defined; there is nothing to draw.")
    with style.drawing():
        figure, panels = _role_task_panels(table)
        for (role, task), panel in panels.items():
            part = table[(table["role"] == role) & (table["task"] == task)].sort_values("layer")
            look = role_look(role)
            panel.axhline(0, color=style.FAINT, lw=0.8)
            band: Any = {"color": look.colour, "alpha": 0.2, "lw": 0}
            panel.fill_between(part["layer"], part["low"], part["high"], **band)
            panel.plot(part["layer"], part["change"], color=look.colour, marker=look.marker, ms=3.5,
                       mew=0, lw=1.4)  # fmt: skip
            say_undefined(panel, part["change"])
        figure.supylabel("change of the mean bias", fontsize=8.5)
    most = rows.loc[rows.groupby("role", sort=False)["change"].apply(lambda c: c.abs().idxmax())]
    told = "; ".join(
        f"{role_name(row['role'])} {_signed(row['change'])} in layer "
        f"{int(row['layer'])}{_of(row['task'])}"
        for _, row in most.iterrows()
    )
    text = f"After minus before fine-tuning; bands are 95% intervals. Largest changes: {told}."
    return Drawing(
        figure, caption or text, f"Lines over layers. {text}", table.reset_index(drop=True)
    )


def layer_profiles_beside(
    table: pd.DataFrame,
    correlations: pd.DataFrame | None = None,
    *,
    caption: str | None = None,
) -> Drawing:
    """Our mean bias per layer beside the authors', with the rank correlation of the two.

    table         role, task, layer, ours, authors
    correlations  role, task, rho, low, high
    """
    need(table, "role", "task", "layer", "ours", "authors")
    known: Mapping[Any, Any] = {}
    if correlations is not None:
        need(correlations, "role", "task", "rho", "low", "high")
        known = correlations.dropna(subset=["rho"]).set_index(["role", "task"]).T.to_dict()
    with style.drawing():
        figure, panels = _role_task_panels(table)
        for (role, task), panel in panels.items():
            part = table[(table["role"] == role) & (table["task"] == task)].sort_values("layer")
            _profile(panel, part, known.get((role, task)))
            top = float(table.loc[table["role"] == role, ["ours", "authors"]].max().max())
            panel.set_ylim(0, 1.35 * top if top > 0 else 1)  # room for the correlation
        handles = next(iter(panels.values())).get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=8, **style.TIGHT)
        figure.supylabel("mean bias", fontsize=8.5)
    told = _spoken_correlations(known)
    text = f"Mean bias per layer, ours solid and the authors' hollow. {told}"
    return Drawing(
        figure, caption or text, f"Lines over layers. {text}", table.reset_index(drop=True)
    )


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _of(task: str) -> str:
    return f" of {task_name(task)}" if task else ""


def _role_task_panels(table: pd.DataFrame) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    """Roles downwards and tasks across, one scale per role; one task alone has roles across."""
    roles, tasks = (list(dict.fromkeys(table[name])) for name in ("role", "task"))
    layers = sorted(table["layer"].unique())
    if len(tasks) == 1:
        figure, axes = small_panels(len(roles))
        found = {(role, tasks[0]): panel for role, panel in zip(roles, axes, strict=True)}
        for (role, _), panel in found.items():
            panel.set_title(role_name(role), fontsize=9)
            panel.set_xlabel("layer", fontsize=8)
    else:
        size = (style.WIDTHS["wide"], 0.55 + 1.2 * len(roles))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.04))
        grid = figure.subplots(len(roles), len(tasks), sharex=True, sharey="row", squeeze=False)
        found = {(r, t): grid[i, j] for i, r in enumerate(roles) for j, t in enumerate(tasks)}
        for panel, task in zip(grid[0], tasks, strict=True):
            panel.set_title(task_name(task), fontsize=9)
        for line, role in zip(grid, roles, strict=True):
            line[0].set_ylabel(fill(role_name(role), 12), fontsize=8.5, fontweight="bold")
        for panel in grid[-1]:
            panel.set_xlabel("layer", fontsize=8)
        figure.align_ylabels(grid[:, 0])
    for panel in found.values():
        panel.set_xlim(layers[0] - 0.5, layers[-1] + 0.5)
        panel.set_xticks(layers[:: max(1, math.ceil(len(layers) / 4))])
        panel.yaxis.set_major_locator(MaxNLocator(4))
        panel.tick_params(labelsize=7.5)
        light_grid(panel)
    return figure, found


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


def _profile(panel: Axes, part: pd.DataFrame, correlation: Mapping[str, float] | None) -> None:
    ours: Any = {"color": OURS, "marker": "o", "ms": 4, "mew": 0, "lw": 1.4, "label": "ours"}
    theirs: Any = {"color": PAPER, "marker": "o", "ms": 4.5, "mfc": "none", "mew": 1.1, "lw": 0.7}
    panel.plot(part["layer"], part["ours"], zorder=3, **ours)
    panel.plot(part["layer"], part["authors"], label="the authors", **theirs)
    told = "ours only" if part["authors"].isna().all() and part["ours"].notna().any() else ""
    if correlation is not None:
        told = f"ρ {correlation['rho']:.2f}"
        if math.isfinite(correlation["low"]):
            told += f" [{correlation['low']:.2f}, {correlation['high']:.2f}]"
    place: Any = {"transform": panel.transAxes, "va": "top", "fontsize": 7.5}
    panel.text(0.03, 0.97, told.replace("-", "−"), **place)
    say_undefined(panel, part["ours"].fillna(part["authors"]))


def _spoken_correlations(known: Mapping[Any, Any]) -> str:
    if not known:
        return "No rank correlation is defined."
    rho = sorted((values["rho"], role, task) for (role, task), values in known.items())
    ends = [f"{role_name(role)}{_of(task)} {value:.2f}" for value, role, task in (rho[-1], rho[0])]
    middle = float(np.median([value for value, *_ in rho]))
    told = f"Rank correlation over {len(rho)} panels: median {middle:.2f}, highest {ends[0]}"
    return f"{told}, lowest {ends[1]}.".replace("-0", "−0")
