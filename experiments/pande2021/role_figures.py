"""Which heads have which roles: exact combinations, overlaps in pairs, and a grid of heads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from attnlib.errors import BadValue, UnknownName, did_you_mean
from attnlib.measuring.head_tables import layer_means
from attnlib.metrics.sieves import COARSE
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import task_name

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
_DASHES: dict[str, Any] = {
    "block": (0, (3, 1, 1, 1, 1, 1)),
    "delimiter": (0, (5, 1.2)),
    "syntactic": (0, (6, 1.5, 1.5, 1.5)),
}


def role_look(role: str) -> style.Look:
    """Colour, mark and dash of a role: the hue is its coarse role, the mark its own."""
    meaning, marker, _ = _ROLES.get(role, ("other", "o", role))
    return style.Look(style.LOOKS[meaning].colour, marker, _DASHES.get(role, "-"))


def role_name(role: str) -> str:
    """A role in words: `previous_local` is `previous`, `sep` is `[SEP]`."""
    bare, at, variant = role.partition("@")
    told = _ROLES[bare][2] if bare in _ROLES else bare.replace("_", " ")
    return f"{told} ({variant}' score)" if at else told


def role_overlaps(
    table: pd.DataFrame, roles: Sequence[str] = COARSE, *, caption: str | None = None
) -> Drawing:
    """Heads per role and per exact combination of roles, task by task (Pande 2021, Fig. 4).

    table  role, layer, head, assigned, and task if there are several; a role without a value in a
           task (no bias, or no decision) is undefined there, which is not the same as absent
    """
    if len(roles) > 5:
        raise BadValue(f"{len(roles)} roles have too many combinations; give up to 5.")
    heads = _heads(table, roles)
    by_task = heads.groupby("task", sort=False)
    sizes, n = by_task.sum(min_count=1), by_task.size()
    exact = [tuple(r for r in roles if row[r] == 1) for _, row in heads.iterrows()]
    groups = Counter(zip(heads.index.get_level_values("task"), exact, strict=True))
    total = Counter(exact)
    order = sorted(total, key=lambda one: (-total[one], len(one), [roles.index(r) for r in one]))
    with style.drawing():
        width = style.WIDTHS["column" if len(n) == 1 else "wide"]
        engine = ConstrainedLayoutEngine(wspace=0.02)
        figure = Figure(figsize=(width, 0.3 + 0.2 * (len(roles) + len(order) + 3)), layout=engine)
        ratios: Any = {"width_ratios": [2.1, *[(width - 2.1) / len(n)] * len(n)]}
        left, *panels = figure.subplots(1, 1 + len(n), sharey=True, gridspec_kw=ratios)
        _dot_matrix(left, roles, order)
        longest = max(sizes.max(axis=None), *groups.values())
        for panel, task in zip(panels, n.index, strict=True):
            _overlap_bars(panel, sizes.loc[task], {one: groups[task, one] for one in order})
            panel.set_title(task_name(task), fontsize=9)
            panel.set_xlim(0, 1.28 * longest)  # room for the numbers
    shares = 100 * by_task.mean().mean()
    idle = 100 * np.mean([groups[task, ()] / n[task] for task in n.index])
    mean = ", mean of the tasks" if len(n) > 1 else ""
    largest = " with ".join(map(role_name, order[0])) or "no role"
    text = (
        "Above: heads with a role, whatever else they do. Below: heads with exactly the roles that "
        f"are joined. Most common is {role_name(str(shares.idxmax()))} ({shares.max():.1f}% of the "
        f"heads{mean}); the largest group is {largest} ({total[order[0]]} of {n.sum()} heads). "
        f"{idle:.1f}% have no role{mean}."
    )
    told = "; ".join(
        f"{task_name(task)}{': ' if task else ''}"
        + ", ".join(f"{role_name(r)} {_size(sizes.loc[task, r])}" for r in roles)
        + f", no role {groups[task, ()]} of {n[task]}"
        for task in n.index
    )
    rows = [(t, r, False, sizes.loc[t, r]) for t, r in product(n.index, roles)]
    rows += [(t, "+".join(o) or "no role", True, groups[t, o]) for t in n.index for o in order]
    shown = pd.DataFrame(rows, columns=["task", "roles", "exact", "heads"])
    alt = f"Bars of heads per role and per combination of roles. {told}."
    return Drawing(figure, caption or text, alt, shown)


def overlap_matrix(
    table: pd.DataFrame, roles: Sequence[str] = COARSE, *, caption: str | None = None
) -> Drawing:
    """Share of the heads with one role (row) that also have another (column), in percent.

    The diagonal holds the number of heads with the role; a row without a head has no share.
    """
    heads = _heads(table, roles)
    sizes = heads.groupby("task", sort=False).sum(min_count=1)
    found = []
    for (task, part), role in product(heads.groupby("task", sort=False), roles):
        having = part[part[role] == 1]
        found += [(task, role, other, len(having), having[other].mean()) for other in roles]
    rows = pd.DataFrame(found, columns=["task", "role", "other", "heads", "share"])
    with style.drawing():
        columns = min(len(sizes), 4 if len(roles) <= 4 else 2)
        lines, room = math.ceil(len(sizes) / columns), len(roles) + 0.4
        cell = min(0.46, (style.WIDTHS["wide"] - 0.9) / (columns * room))
        size = (0.9 + columns * room * cell, 0.75 + lines * (room * cell + 0.25))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.02, hspace=0.02))
        panels = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        for panel, task in zip(panels, sizes.index, strict=False):
            shares = rows[rows["task"] == task].pivot(index="role", columns="other", values="share")
            _matrix_panel(panel, shares.loc[[*roles], [*roles]], sizes.loc[task])
            panel.set_title(task_name(task), fontsize=9.5)
        for spare in panels[len(sizes) :]:
            spare.remove()
        figure.supxlabel("% that also has this role", fontsize=8)
    told = _spoken_pairs(rows[(rows["role"] != rows["other"]) & rows["share"].notna()])
    text = (
        "Of the heads with the role of the row (their number is on the diagonal), the percentage "
        f"that also has the role of the column: {told}."
    )
    alt = f"Heat maps of {len(roles)} by {len(roles)} roles: {told}."
    return Drawing(figure, caption or text, alt, rows)


def role_grid(
    table: pd.DataFrame,
    roles: Sequence[str] = FINE,
    *,
    sort: bool = True,
    caption: str | None = None,
) -> Drawing:
    """One cell per head with a little square for each of its roles (Pande 2021, Fig. 5).

    roles  at most nine, in the order of their places in a cell, row by row
    sort   heads of a layer by their number of roles; `.table` tells which head stands in a column.
           Without it the column is the head.
    """
    if not 1 <= len(roles) <= 9:
        raise BadValue(f"{len(roles)} roles were given; a cell has 9 places. Give 1 to 9 roles.")
    heads = _heads(table, roles)
    tasks = list(heads.index.unique("task"))
    if len(tasks) > 4:
        raise BadValue(f"{len(tasks)} tasks do not fit on a page; give the rows of up to 4.")
    rows = heads.assign(n_roles=heads.sum(axis=1).astype(int)).reset_index()
    ranks = rows.groupby(["task", "layer"])["n_roles"].rank(method="first", ascending=False)
    rows["column"] = ranks.astype(int) if sort else rows["head"]
    with style.drawing():
        figure, panels, key = _grid_panels(len(tasks), rows)
        for panel, task in zip(panels, tasks, strict=True):
            _cells_panel(panel, rows[rows["task"] == task], roles, sort)
            panel.set_title(task_name(task), fontsize=9.5)
        _key_cell(key, roles, figure.get_figwidth())
    counts = "; ".join(
        f"{task_name(task)}{' ' if task else ''}{(part['n_roles'] > 1).sum()} of {len(part)}"
        for task, part in rows.groupby("task", sort=False)
    )
    layers = layer_means(rows, "n_roles")
    most = rows.loc[rows["n_roles"].idxmax()]
    within = f" in {task_name(most['task'])}" if most["task"] else ""
    extremes = (
        f"Layer {layers.idxmax()} has the most roles per head ({layers.max():.1f}), layer "
        f"{layers.idxmin()} the fewest ({layers.min():.1f}); head {most['layer']}-{most['head']}"
        f"{within} has {most['n_roles']}"
    )
    extremes = extremes if most["n_roles"] else "No head has a role"
    text = (
        f"One cell per head, {'most roles first' if sort else 'by number'}, layers downwards; a "
        "little square shows that the head has the role of that place. Heads with more than one "
        f"role: {counts}. {extremes}."
    )
    alt = (
        f"Grids of heads with up to {len(roles)} squares each. Several roles: {counts}. {extremes}."
    )
    return Drawing(figure, caption or text, alt, rows)


def _heads(table: pd.DataFrame, roles: Sequence[str]) -> pd.DataFrame:
    """(task, layer, head) by role: 1 or 0, NaN where the task does not define the role."""
    need(table, "role", "layer", "head", "assigned")
    known = dict.fromkeys(table["role"])
    for name in roles:
        if name not in {**known, **_ROLES}:
            hint = did_you_mean(name, known)
            raise UnknownName(f"role '{name}'. {hint}In this table: {', '.join(known)}.")
    rows = table if "task" in table.columns else table.assign(task="")
    place = ["task", "layer", "head"]
    if rows.duplicated([*place, "role"]).any():
        raise BadValue("a head has two rows for one role; give one row per task, role and head.")
    has = rows["assigned"].astype(float)
    rows = rows.assign(has=has.where(rows["bias"].notna()) if "bias" in rows.columns else has)
    wide = rows.pivot(index=place, columns="role", values="has").reindex(columns=list(roles))
    wide = pd.concat([wide.loc[[task]] for task in dict.fromkeys(rows["task"])])
    return wide.fillna(0.0).where(wide.groupby("task").transform("count") > 0)


def _size(heads: float) -> str:
    return "undefined" if math.isnan(heads) else f"{heads:.0f}"


def _spoken_pairs(pairs: pd.DataFrame) -> str:
    """The two highest overlaps over the tasks, and the one the paper dwells on."""
    found = 100 * pairs.groupby(["role", "other"], sort=False)["share"].agg(["mean", "min", "max"])
    best = list(found.sort_values("mean", ascending=False, kind="stable").index[:2])
    dwelt = ("syntactic", "local")
    best += [dwelt] if dwelt in found.index and dwelt not in best else []
    several = pairs["task"].nunique() > 1
    told = [
        f"{row['mean']:.0f}% of the {role_name(role)} heads are also {role_name(other)}"
        + (f" ({row['min']:.0f} to {row['max']:.0f})" if several else "")
        for (role, other), row in found.loc[best].iterrows()
    ]
    return "; ".join(told) or "no head has a role"


def _dot_matrix(panel: Axes, roles: Sequence[str], order: Sequence[tuple[str, ...]]) -> None:
    """Names and dots of the single roles above; below, a row per combination, its dots joined."""
    first = len(roles) + 1
    last = first + len(order) - 1
    side: Any = {"ha": "right", "va": "center", "fontsize": 8.5}
    for x, role in enumerate(roles):
        look = role_look(role)
        panel.plot([x, x], [x, last], color=style.FAINT, alpha=0.35, lw=0.7, zorder=1)
        panel.plot([x], [x], look.marker, color=look.colour, ms=6.5, mew=0)
        panel.annotate(role_name(role), (-0.5, x), **side)
    for y, one in enumerate(order, first):
        places = [x for x, role in enumerate(roles) if role in one]
        empty = [x for x in range(len(roles)) if x not in places]
        panel.plot(empty, [y] * len(empty), "o", color=style.FAINT, alpha=0.4, ms=3, mew=0)
        panel.plot(places, [y] * len(places), color=style.INK, lw=1.3, zorder=2)
        for x in places:
            look = role_look(roles[x])
            panel.plot([x], [y], look.marker, color=look.colour, ms=6.5, mew=0, zorder=3)
        if not one:
            panel.annotate("no role", (-0.5, y), **side)
    panel.annotate("heads with", (-0.5, -1), alpha=0.65, **side)
    panel.annotate("with exactly", (-0.5, first - 1), alpha=0.65, **side)
    panel.set(xlim=(-0.7 * len(roles) - 0.9, len(roles) - 0.5), ylim=(last + 0.6, -1.5))
    panel.axis("off")


def _overlap_bars(panel: Axes, sizes: pd.Series, exact: dict[tuple[str, ...], int]) -> None:
    text: Any = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 7.5}
    for y, (role, size) in enumerate(sizes.items()):
        known = not math.isnan(size)
        if known:
            colour = role_look(str(role)).colour
            panel.barh(y, size, height=0.72, color=colour, label=str(role))
        at = (size if known else 0, y)
        panel.annotate(_size(size), at, xytext=(3, 0), alpha=1 if known else 0.65, **text)
    for y, (one, heads) in enumerate(exact.items(), len(sizes) + 1):
        panel.barh(y, heads, height=0.72, color=style.FAINT, label="+".join(one) or "no role")
        known = sizes[list(one)].notna().all()
        panel.annotate(f"{heads}" if known else "–", (heads, y), xytext=(3, 0), **text)
    panel.plot([0, 0], [-0.6, len(sizes) + len(exact) + 0.6], color=style.FAINT, lw=0.8)
    panel.axis("off")


def _matrix_panel(panel: Axes, table: pd.DataFrame, sizes: pd.Series) -> None:
    shares = np.array(table, dtype=float)
    np.fill_diagonal(shares, np.nan)
    edge: Any = {"lw": 0.8, "ec": "white", "vmin": 0, "vmax": 1}
    places = range(len(sizes))
    panel.pcolormesh(places, places, shares, cmap=style.SEQUENTIAL, **edge)
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 8}
    for y, x in product(places, places):
        if y == x and not math.isnan(sizes.iloc[y]):
            panel.text(x, y, _size(sizes.iloc[y]), fontweight="bold", **middle)
        elif np.isnan(shares[y, x]):
            panel.text(x, y, "–", alpha=0.65, **middle)
        else:
            ink = style.ink_on(to_hex(style.SEQUENTIAL(shares[y, x])))
            panel.text(x, y, f"{100 * shares[y, x]:.0f}", color=ink, **middle)
    names = [role_name(str(role)) for role in sizes.index]
    panel.set_xticks(places, names, rotation=40, ha="right", rotation_mode="anchor")
    panel.set_yticks(places, names)
    panel.set(aspect="equal", xlim=(-0.5, len(sizes) - 0.5), ylim=(len(sizes) - 0.5, -0.5))
    panel.tick_params(length=0, labelsize=8, pad=2)
    panel.spines[:].set_visible(False)


def _grid_panels(n: int, rows: pd.DataFrame) -> tuple[Figure, list[Axes], Axes]:
    """Panels of the grids, and the one for the key: beneath them, as wide as the page."""
    columns = min(n, 2)
    lines = math.ceil(n / columns)
    tall = rows["layer"].nunique() / max(rows["column"].max(), 1)
    width = style.WIDTHS["narrow" if columns == 1 else "wide"]
    each = (width / columns - 0.35) * tall + 0.45
    size = (width, lines * each + 0.8)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.03))
    spec = figure.add_gridspec(lines + 1, columns, height_ratios=[*[each] * lines, 0.75])
    panels = [figure.add_subplot(spec[i // columns, i % columns]) for i in range(n)]
    return figure, panels, figure.add_subplot(spec[lines, :])


def _cells_panel(panel: Axes, rows: pd.DataFrame, roles: Sequence[str], sort: bool) -> None:
    at = rows[["column", "layer"]].to_numpy(float)
    _squares(panel, at, 0.9, color=style.FAINT, alpha=0.2, label="heads")
    for i, role in enumerate(roles):
        shift = 0.29 * np.array([i % 3 - 1, i // 3 - 1])
        has = (rows[role] == 1).to_numpy()
        _squares(panel, at[has] + shift, 0.25, color=role_look(role).colour, label=role)
    wide, tall = int(rows["column"].max()), int(rows["layer"].max())
    panel.set(aspect="equal", xlim=(0.45, wide + 0.55), ylim=(tall + 0.55, 0.45), ylabel="layer")
    panel.set_yticks(sorted(rows["layer"].unique())[:: 1 if tall <= 12 else 2])
    panel.set_xticks([] if sort else range(1, wide + 1, 1 if wide <= 12 else 2))
    panel.set_xlabel("heads of the layer, most roles first" if sort else "head", fontsize=8)
    panel.tick_params(length=0, labelsize=7)
    panel.spines[:].set_visible(False)
    absent = ", ".join(role_name(role) for role in roles if rows[role].isna().all())
    if absent:
        panel.set_title(f"{absent} undefined", loc="right", fontsize=7.5, fontweight="normal")


def _squares(panel: Axes, centres: np.ndarray, side: float, **look: Any) -> None:
    """All squares of one kind as one shape, which keeps the page small; label tells them apart."""
    corners = side / 2 * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)])
    vertices = (centres[:, None, :] + corners).reshape(-1, 2)
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(centres)
    panel.add_patch(PathPatch(Path(vertices.reshape(-1, 2), codes), lw=0, **look))


def _key_cell(panel: Axes, roles: Sequence[str], width: float) -> None:
    """The key is a cell of its own: every role at its place, with its name."""
    panel.add_patch(Rectangle((-0.1, -0.55), 3.05, 3.1, color=style.FAINT, alpha=0.2, lw=0))
    for i, role in enumerate(roles):
        x, y = i % 3, i // 3
        panel.plot([x + 0.06], [y], "s", color=role_look(role).colour, ms=8, mew=0)
        panel.annotate(role_name(role), (x + 0.18, y), va="center_baseline", fontsize=8)
    reach = 2.05 * width / style.WIDTHS["narrow"]
    panel.set(xlim=(1.4 - reach, 1.4 + reach), ylim=(2.6, -0.6))
    panel.axis("off")
