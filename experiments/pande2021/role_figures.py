"""Which heads have which roles: exact combinations, overlaps in pairs, and a grid of heads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle

from attnlib.errors import BadValue
from attnlib.metrics.sieves import COARSE
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.grids import grid_axes, squares
from attnlib.plots.labels import number, task_name
from attnlib.plots.panels import number_cells, panel_grid

# Places in a cell, row by row. Each coarse role is one compact shape: local a pair above, the
# delimiters a pair at the left, syntax a square, block the corner that is left.
FINE = (
    *("previous_local", "next_local", "block"),
    *("cls", "nsubj", "dobj"),
    *("sep", "amod", "advmod"),
)

# The hue is the coarse role; finer roles of one hue differ by mark and place.
_ROLES = {
    "local": ("next", "o", "local"),
    "previous_local": ("previous", "v", "previous"),
    "next_local": ("next", "^", "next"),
    "block": ("block", "D", "block"),
    "delimiter": ("special", "X", "delimiter"),
    "cls": ("special", "p", "[CLS]"),
    "sep": ("special", "*", "[SEP]"),
    "syntactic": ("syntax", "s", "syntactic"),
    "nsubj": ("syntax", "<", "nsubj"),
    "dobj": ("syntax", ">", "dobj"),
    "amod": ("syntax", "d", "amod"),
    "advmod": ("syntax", "P", "advmod"),
    "all": ("ours", "o", "all roles"),
    "total": ("ours", "o", "all roles"),
}


def role_look(role: str) -> style.Look:
    """Colour, mark and dash of a role: the hue is its coarse role, the mark its own."""
    meaning, marker, _ = _ROLES.get(role, ("other", "o", role))
    return replace(style.LOOKS[meaning], marker=marker)


def role_name(role: str) -> str:
    """A role in words: `previous_local` is `previous`, `sep` is `[SEP]`."""
    bare, at, variant = role.partition("@")
    told = _ROLES[bare][2] if bare in _ROLES else bare.replace("_", " ")
    return f"{told} ({variant}' score)" if at else told


def role_overlaps(table: pd.DataFrame) -> Drawing:
    """Heads per role and per exact combination of roles, task by task (Pande 2021, Fig. 4).

    table  task, role, layer, head, assigned; a role without a value in a task (no bias, or no
           decision) is undefined there, which is not the same as absent
    """
    heads = _heads(table, COARSE)
    sizes = heads.groupby("task", sort=False).sum(min_count=1)
    tasks = list(sizes.index)
    exact = [tuple(role for role in COARSE if row[role] == 1) for _, row in heads.iterrows()]
    groups = Counter(zip(heads.index.get_level_values("task"), exact, strict=True))
    total = Counter(exact)
    order = sorted(total, key=lambda one: (-total[one], len(one), [*map(COARSE.index, one)]))
    with style.drawing():
        width = "column" if len(tasks) == 1 else "wide"
        ratios = [2.1, *[(style.WIDTHS[width] - 2.1) / len(tasks)] * len(tasks)]
        look: Any = {"width": width, "ratios": ratios, "sharey": True, "gap": 0.02}
        tall = 0.3 + 0.2 * (len(COARSE) + len(order) + 3)
        figure, (left, *panels) = panel_grid(1 + len(tasks), tall, **look)
        _dot_matrix(left, order)
        longest = max(sizes.max(axis=None), *groups.values())
        for panel, task in zip(panels, tasks, strict=True):
            _overlap_bars(panel, sizes.loc[task], {one: groups[task, one] for one in order})
            panel.set_title(task_name(task), fontsize=9)
            panel.set_xlim(0, 1.28 * longest)  # room for the numbers
    rows = [(t, role, False, sizes.loc[t, role]) for t, role in product(tasks, COARSE)]
    rows += [(t, "+".join(o) or "no role", True, groups[t, o]) for t in tasks for o in order]
    shown = pd.DataFrame(rows, columns=["task", "roles", "exact", "heads"])
    return Drawing("Bars of heads per role and per combination of roles", figure, shown)


def _dot_matrix(panel: Axes, order: Sequence[tuple[str, ...]]) -> None:
    """A row per role, then a row per combination, its dots joined; names at the left."""
    rows: list[tuple[str, tuple[str, ...]]] = [("heads with", ())]
    rows += [(role_name(role), (role,)) for role in COARSE]
    rows += [("with exactly", ()), *(("" if one else "no role", one) for one in order)]
    for y, (name, one) in enumerate(rows, -1):
        heading = name in ("heads with", "with exactly")
        side: Any = {"ha": "right", "va": "center", "fontsize": 8.5}
        panel.annotate(name, (-0.5, y), alpha=0.65 if heading else 1.0, **side)
        for x in range(0 if heading else len(COARSE)):
            panel.plot(x, y, "o", color=style.FAINT, alpha=0.4, ms=3, mew=0)
        places = [COARSE.index(role) for role in one]
        panel.plot(places, [y] * len(places), color=style.INK, lw=1.3, zorder=2)
        for x, look in zip(places, map(role_look, one), strict=True):
            panel.plot(x, y, look.marker, color=look.colour, ms=6.5, mew=0, zorder=3)
    panel.set(xlim=(-0.7 * len(COARSE) - 0.9, len(COARSE) - 0.5), ylim=(len(rows) - 1.4, -1.5))
    panel.axis("off")


def _overlap_bars(panel: Axes, sizes: pd.Series, exact: dict[tuple[str, ...], int]) -> None:
    bars = [(str(role), role_look(str(role)).colour, size) for role, size in sizes.items()]
    texts = [number(size, ".0f", "undefined") for size in sizes]
    for one, heads in exact.items():
        bars.append(("+".join(one) or "no role", style.FAINT, heads))
        texts.append(f"{heads}" if sizes[list(one)].notna().all() else "–")
    for i, ((name, colour, heads), text) in enumerate(zip(bars, texts, strict=True)):
        y = i if i < len(sizes) else i + 1  # a line is left for the heading
        if text != "undefined":
            panel.barh(y, heads, height=0.72, color=colour, label=name)
        look: Any = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 7.5}
        panel.annotate(text, (np.nan_to_num(heads), y), xytext=(3, 0), **look)
    panel.plot([0, 0], [-0.6, len(bars) + 0.6], color=style.FAINT, lw=0.8)
    panel.axis("off")


def overlap_matrix(table: pd.DataFrame) -> Drawing:
    """Share of the heads with one role (row) that also have another (column), in percent.

    The diagonal holds the number of heads with the role; a row without a head has no share.
    """
    shares, sizes = {}, {}
    for task, part in _heads(table, COARSE).groupby("task", sort=False):
        both = part.T @ part  # heads with the role of the row and that of the column
        shares[str(task)], sizes[str(task)] = both.div(np.diag(both), axis=0), np.diag(both)
    with style.drawing():
        look: Any = {"width": "narrow" if len(shares) == 1 else "wide", "sharey": True, "gap": 0.02}
        figure, panels = panel_grid(len(shares), 2.6 if len(shares) > 2 else 3.0, **look)
        for panel, (task, share) in zip(panels, shares.items(), strict=True):
            _matrix_panel(panel, share.rename(role_name).rename(columns=role_name), sizes[task])
            panel.set_title(task_name(task), fontsize=9.5)
        figure.supxlabel("% that also has this role", fontsize=8)
    both = pd.concat(shares, names=["task", "role"]).rename_axis(columns="other")
    rows = both.stack(future_stack=True).rename("share").reset_index()
    return Drawing("Heat maps of roles by roles", figure, rows)


def _matrix_panel(panel: Axes, shares: pd.DataFrame, sizes: np.ndarray) -> None:
    """Shares in percent, and in bold the number of heads on the diagonal."""
    texts = (100 * shares).map(lambda share: number(share, ".0f"))
    for i, size in enumerate(sizes):
        texts.iat[i, i] = number(size, ".0f")
    written = number_cells(panel, shares.mask(np.eye(len(sizes), dtype=bool)), texts, slanted=True)
    for (y, x), text in written.items():
        text.set(weight="bold" if y == x else "normal", alpha=0.65 if text.get_text() == "–" else 1)
    panel.set_aspect("equal")


def role_grid(table: pd.DataFrame) -> Drawing:
    """One cell per head with a little square for each of its roles (Pande 2021, Fig. 5).

    Heads of a layer are sorted by their number of roles; `.table` tells which head is in a column.
    """
    heads = _heads(table, FINE)
    tasks = list(heads.index.unique("task"))
    if len(tasks) > 4:
        raise BadValue(f"{len(tasks)} tasks do not fit on a page; give the rows of up to 4.")
    rows = heads.assign(n_roles=heads.sum(axis=1).astype(int)).reset_index()
    ranks = rows.groupby(["task", "layer"])["n_roles"].rank(method="first", ascending=False)
    rows["column"] = ranks.astype(int)
    with style.drawing():
        figure, panels, key = _grid_panels(len(tasks), rows)
        for panel, task in zip(panels, tasks, strict=True):
            _cells_panel(panel, rows[rows["task"] == task])
            panel.set_title(task_name(task), fontsize=9.5)
        _key_cell(key, figure.get_figwidth())
    return Drawing(f"Grids of heads with up to {len(FINE)} squares each", figure, rows)


def _grid_panels(n: int, rows: pd.DataFrame) -> tuple[Figure, list[Axes], Axes]:
    """Panels of the grids, and the one for the key: beneath them, as wide as the page."""
    columns = min(n, 2)
    lines = math.ceil(n / columns)
    width = style.WIDTHS["narrow" if columns == 1 else "wide"]
    each = (width / columns - 0.35) * rows["layer"].nunique() / rows["column"].max() + 0.45
    size = (width, lines * each + 0.8)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.03))
    spec = figure.add_gridspec(lines + 1, columns, height_ratios=[*[each] * lines, 0.75])
    panels = [figure.add_subplot(spec[i // columns, i % columns]) for i in range(n)]
    return figure, panels, figure.add_subplot(spec[lines, :])


def _cells_panel(panel: Axes, rows: pd.DataFrame) -> None:
    at = rows[["column", "layer"]].to_numpy(float)
    squares(panel, at, 0.9, color=style.FAINT, alpha=0.2, label="heads")
    for i, role in enumerate(FINE):
        shift = 0.29 * np.array([i % 3 - 1, i // 3 - 1])
        has = (rows[role] == 1).to_numpy()
        squares(panel, at[has] + shift, 0.25, color=role_look(role).colour, label=role)
    wide, tall = int(rows["column"].max()), int(rows["layer"].max())
    grid_axes(panel, range(1, wide + 1), sorted(rows["layer"].unique()))
    panel.set(xlim=(0.45, wide + 0.55), ylim=(tall + 0.55, 0.45), xticks=[], ylabel="layer")
    panel.set_xlabel("heads of the layer, most roles first", fontsize=8)
    absent = ", ".join(role_name(role) for role in FINE if rows[role].isna().all())
    if absent:
        panel.set_title(f"{absent} undefined", loc="right", fontsize=7.5, fontweight="normal")


def _key_cell(panel: Axes, width: float) -> None:
    """The key is a cell of its own: every role at its place, with its name."""
    panel.add_patch(Rectangle((-0.1, -0.55), 3.05, 3.1, color=style.FAINT, alpha=0.2, lw=0))
    for i, role in enumerate(FINE):
        x, y = i % 3, i // 3
        panel.plot([x + 0.06], [y], "s", color=role_look(role).colour, ms=8, mew=0)
        panel.annotate(role_name(role), (x + 0.18, y), va="center_baseline", fontsize=8)
    reach = 2.05 * width / style.WIDTHS["narrow"]
    panel.set(xlim=(1.4 - reach, 1.4 + reach), ylim=(2.6, -0.6))
    panel.axis("off")


def _heads(table: pd.DataFrame, roles: Sequence[str]) -> pd.DataFrame:
    """(task, layer, head) by role: 1 or 0, NaN where the task does not define the role."""
    place = ["task", "layer", "head"]
    need(table, "role", "assigned", *place, once=[*place, "role"])
    has = table["assigned"].astype(float)
    rows = table.assign(has=has.where(table["bias"].notna()) if "bias" in table.columns else has)
    wide = rows.pivot(index=place, columns="role", values="has").reindex(columns=list(roles))
    wide = pd.concat([wide.loc[[task]] for task in rows["task"].unique()])
    return wide.fillna(0.0).where(wide.groupby("task").transform("count") > 0)
