"""Which heads share roles: exact combinations, overlaps in pairs, and a grid of heads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
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

# The hue is the coarse role; finer roles of one hue differ by mark, dash and place.
_ROLES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
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
        "rare_word": ("self", "h", "rare word"),
        "same_word": ("self", "o", "same word"),
        "sibling": ("self", "d", "sibling"),
        "question_mark": ("self", "*", "question mark"),
        "all": ("ours", "o", "all roles"),
        "total": ("ours", "o", "all roles"),
    }
)

_DASHES: Mapping[str, tuple[int, tuple[float, ...]]] = MappingProxyType(
    {
        **{"D": (0, (3, 1, 1, 1, 1, 1)), "X": (0, (5, 1.2)), "s": (0, (6, 1.5, 1.5, 1.5))},
        **{"v": (0, (1.5, 1.2)), "^": (0, (5, 1.5)), "p": (0, (8, 2)), "*": (0, (3.5, 1.2))},
        **{"<": (0, (7, 1, 1, 1)), ">": (0, (3, 1, 1, 1)), "d": (0, (2, 1))},
    }
)


def role_look(role: str) -> style.Look:
    """Colour, mark and dash of a role: the hue is its coarse role, the mark its own."""
    meaning, marker, _ = _ROLES.get(role, ("other", "o", role))
    return style.Look(style.LOOKS[meaning].colour, marker, _DASHES.get(marker, "-"))


def role_name(role: str) -> str:
    """A role in words: `previous_local` is `previous`, `sep` is `[SEP]`."""
    bare, at, variant = role.partition("@")
    told = _ROLES[bare][2] if bare in _ROLES else bare.replace("_", " ")
    return f"{told} ({variant}' score)" if at else told


def role_overlaps(
    table: pd.DataFrame,
    roles: Sequence[str] = COARSE,
    *,
    tasks: Sequence[str] | None = None,
    caption: str | None = None,
) -> Drawing:
    """Heads per role and per exact combination of roles, task by task (Pande 2021, Fig. 4).

    table  role, layer, head, assigned, and task if there are several; a role without a value in a
           task (no bias, or no decision) is undefined there, which is not the same as absent
    """
    if len(roles) > 5:
        raise BadValue(f"{len(roles)} roles have too many combinations; give up to 5.")
    held = _held(table, roles, tasks)
    groups = Counter(held.combinations())
    total = Counter(one for _, one in held.combinations())
    order = sorted(total, key=lambda one: (-total[one], len(one), [roles.index(r) for r in one]))
    with style.drawing():
        width = style.WIDTHS["column" if len(held.tasks) == 1 else "wide"]
        engine = ConstrainedLayoutEngine(wspace=0.02)
        figure = Figure(figsize=(width, 0.3 + 0.2 * (len(roles) + len(order) + 3)), layout=engine)
        ratios: Any = {"width_ratios": [2.1, *[(width - 2.1) / len(held.tasks)] * len(held.tasks)]}
        left, *panels = figure.subplots(1, 1 + len(held.tasks), sharey=True, gridspec_kw=ratios)
        _dot_matrix(left, roles, order)
        sizes = held.heads.groupby("task")[list(roles)].sum().to_numpy()
        longest = max(int(sizes.max()), *groups.values())
        for panel, task in zip(panels, held.tasks, strict=True):
            _overlap_bars(panel, held, task, {one: groups[task, one] for one in order})
            panel.set_xlim(0, 1.28 * longest)  # room for the numbers
    n = held.heads.groupby("task", sort=False).size()
    shares = {role: held.share(role) for role in roles if math.isfinite(held.share(role))}
    idle = 100 * sum(groups[task, ()] / n[task] for task in held.tasks) / len(held.tasks)
    common = max(shares, key=lambda role: shares[role])
    mean = ", mean of the tasks" if len(held.tasks) > 1 else ""
    text = (
        "Above: heads with a role, whatever else they do. Below: heads with exactly the roles that "
        f"are joined. Most common is {role_name(common)} ({shares[common]:.1f}% of the heads{mean})"
        f"; the largest group is {_words(order[0])} ({total[order[0]]} of {n.sum()} heads). "
        f"{idle:.1f}% have no role{mean}."
    )
    told = "; ".join(
        f"{task_name(task)}{': ' if task else ''}"
        + ", ".join(f"{role_name(r)} {held.size(task, r)}" for r in roles)
        + f", no role {groups[task, ()]} of {n[task]}"
        for task in held.tasks
    )
    rows = [(t, r, False, int(held.part(t)[r].sum())) for t, r in product(held.tasks, roles)]
    rows += [(t, "+".join(o) or "no role", True, groups[t, o]) for t in held.tasks for o in order]
    shown = pd.DataFrame(rows, columns=["task", "roles", "exact", "heads"])
    alt = f"Bars of heads per role and per combination of roles. {told}."
    return Drawing(figure, caption or text, alt, shown)


def overlap_matrix(
    table: pd.DataFrame,
    roles: Sequence[str] = COARSE,
    *,
    tasks: Sequence[str] | None = None,
    caption: str | None = None,
) -> Drawing:
    """Share of the heads with one role (row) that also have another (column), in percent.

    The diagonal holds the number of heads with the role; a row without a head has no share.
    """
    held = _held(table, roles, tasks)
    found = []
    for task, role, other in product(held.tasks, roles, roles):
        having = held.part(task)[held.part(task)[role]]
        known = len(having) > 0 and other not in held.undefined[task]
        both = int(having[other].sum())
        found.append((task, role, other, len(having), both, both / len(having) if known else None))
    rows = pd.DataFrame(found, columns=["task", "role", "other", "heads", "both", "share"])
    rows["share"] = rows["share"].astype(float)
    with style.drawing():
        columns = min(len(held.tasks), 4 if len(roles) <= 4 else 2)
        lines, room = math.ceil(len(held.tasks) / columns), len(roles) + 0.4
        cell = min(0.46, (style.WIDTHS["wide"] - 0.9) / (columns * room))
        size = (0.9 + columns * room * cell, 0.75 + lines * (room * cell + 0.25))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.02, hspace=0.02))
        panels = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        for panel, task in zip(panels, held.tasks, strict=False):
            _matrix_panel(panel, rows[rows["task"] == task], held, task)
        for spare in panels[len(held.tasks) :]:
            spare.remove()
        figure.supxlabel("% that also has this role", fontsize=8)
    pairs = rows[(rows["role"] != rows["other"]) & rows["share"].notna()]
    told = "; ".join(_spoken_pairs(pairs)) or "no head has a role"
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
    tasks: Sequence[str] | None = None,
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
    held = _held(table, roles, tasks)
    if len(held.tasks) > 4:
        raise BadValue(f"{len(held.tasks)} tasks do not fit on a page; choose up to 4 by tasks=.")
    rows = held.heads.assign(n_roles=held.heads[list(roles)].sum(axis=1), column=held.heads["head"])
    if sort:
        ranks = rows.groupby(["task", "layer"])["n_roles"].rank(method="first", ascending=False)
        rows["column"] = ranks.astype(int)
    with style.drawing():
        figure, panels, key = _grid_panels(len(held.tasks), rows)
        for panel, task in zip(panels, held.tasks, strict=True):
            _cells_panel(panel, rows[rows["task"] == task], held, task, sort)
        _key_cell(key, roles, figure.get_figwidth())
    counts = "; ".join(
        f"{task_name(task)}{' ' if task else ''}{(part['n_roles'] > 1).sum()} of {len(part)}"
        for task, part in rows.groupby("task", sort=False)
    )
    layers = layer_means(rows, "n_roles")
    most = rows.loc[rows["n_roles"].idxmax()]
    extremes = (
        f"Layer {layers.idxmax()} has the most roles per head ({layers.max():.1f}), layer "
        f"{layers.idxmin()} the fewest ({layers.min():.1f}); head {most['layer']}-{most['head']}"
        f"{_within(most['task'])} has {most['n_roles']}"
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
    return Drawing(figure, caption or text, alt, rows.reset_index(drop=True))


@dataclass(frozen=True)
class _Held:
    """heads: task, layer, head and a bool per role; undefined: roles without a value, per task."""

    heads: pd.DataFrame
    roles: tuple[str, ...]
    tasks: list[str]
    undefined: Mapping[str, frozenset[str]]

    def part(self, task: str) -> pd.DataFrame:
        return self.heads[self.heads["task"] == task]

    def size(self, task: str, role: str) -> str:
        return "undefined" if role in self.undefined[task] else str(self.part(task)[role].sum())

    def share(self, role: str) -> float:
        """Percentage of the heads that have the role, mean of the tasks where it is defined."""
        parts = [self.part(task)[role] for task in self.tasks if role not in self.undefined[task]]
        return 100 * float(np.mean([part.mean() for part in parts])) if parts else math.nan

    def combinations(self) -> list[tuple[str, tuple[str, ...]]]:
        """Task and exact roles of every head."""
        flags = self.heads[list(self.roles)].to_numpy(bool)
        held = [tuple(r for r, has in zip(self.roles, row, strict=True) if has) for row in flags]
        return list(zip(self.heads["task"], held, strict=True))


def _held(table: pd.DataFrame, roles: Sequence[str], tasks: Sequence[str] | None) -> _Held:
    need(table, "role", "layer", "head", "assigned")
    rows = table if "task" in table.columns else table.assign(task="")
    have = {name: list(dict.fromkeys(rows[name])) for name in ("role", "task")}
    for kind, asked in (("role", roles), ("task", tasks or have["task"])):
        known = [*have[kind], *(_ROLES if kind == "role" else ())]
        for name in asked:
            if name not in known:
                hint = did_you_mean(name, known)
                raise UnknownName(f"{kind} '{name}'. {hint}In this table: {', '.join(have[kind])}.")
    chosen, place = list(tasks or have["task"]), ["task", "layer", "head"]
    rows = rows[rows["task"].isin(chosen)]
    if rows.duplicated([*place, "role"]).any():
        raise BadValue("a head has two rows for one role; give one row per task, role and head.")
    known_value = rows["assigned"].notna()
    if "bias" in rows.columns:
        known_value &= rows["bias"].notna()
    defined = rows[known_value]
    heads = rows[place].drop_duplicates()
    having = pd.MultiIndex.from_frame(
        defined.loc[defined["assigned"].astype(bool), [*place, "role"]]
    )
    for role in roles:
        heads[role] = pd.MultiIndex.from_frame(heads[place].assign(role=role)).isin(having)
    undefined = {
        task: frozenset(roles) - set(defined.loc[defined["task"] == task, "role"])
        for task in chosen
    }
    heads["_task"] = heads["task"].map(chosen.index)
    heads = heads.sort_values(["_task", "layer", "head"], ignore_index=True).drop(columns="_task")
    return _Held(heads, tuple(roles), chosen, undefined)


def _words(roles: Sequence[str]) -> str:
    return " with ".join(map(role_name, roles)) or "no role"


def _within(task: str) -> str:
    return f" in {task_name(task)}" if task else ""


def _spoken_pairs(pairs: pd.DataFrame) -> list[str]:
    """The two highest overlaps over the tasks, and the one the paper dwells on."""
    found = 100 * pairs.groupby(["role", "other"], sort=False)["share"].agg(["mean", "min", "max"])
    best = list(found.sort_values("mean", ascending=False, kind="stable").index[:2])
    dwelt = ("syntactic", "local")
    best += [dwelt] if dwelt in found.index and dwelt not in best else []
    several = pairs["task"].nunique() > 1
    return [
        f"{found.loc[one, 'mean']:.0f}% of the {role_name(one[0])} heads are also "
        f"{role_name(one[1])}"
        + (f" ({found.loc[one, 'min']:.0f} to {found.loc[one, 'max']:.0f})" if several else "")
        for one in best
    ]


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


def _overlap_bars(
    panel: Axes, held: _Held, task: str, exact: Mapping[tuple[str, ...], int]
) -> None:
    text: Any = {"textcoords": "offset points", "va": "center_baseline", "fontsize": 7.5}
    for y, role in enumerate(held.roles):
        size = held.size(task, role)
        if size.isdigit():
            panel.barh(y, int(size), height=0.72, color=role_look(role).colour, label=role)
        at = int(size) if size.isdigit() else 0
        panel.annotate(size, (at, y), xytext=(3, 0), alpha=1 if size.isdigit() else 0.65, **text)
    for y, (one, heads) in enumerate(exact.items(), len(held.roles) + 1):
        panel.barh(y, heads, height=0.72, color=style.FAINT, label="+".join(one) or "no role")
        known = not set(one) & held.undefined[task]
        panel.annotate(f"{heads}" if known else "–", (heads, y), xytext=(3, 0), **text)
    panel.plot([0, 0], [-0.6, len(held.roles) + len(exact) + 0.6], color=style.FAINT, lw=0.8)
    panel.set_title(task_name(task), fontsize=9)
    panel.axis("off")


def _matrix_panel(panel: Axes, rows: pd.DataFrame, held: _Held, task: str) -> None:
    roles = held.roles
    grid = rows.pivot(index="role", columns="other", values="share").loc[list(roles), list(roles)]
    shares = np.array(grid, dtype=float)
    np.fill_diagonal(shares, np.nan)
    edge: Any = {"lw": 0.8, "ec": "white", "vmin": 0, "vmax": 1}
    places = np.arange(len(roles))
    panel.pcolormesh(places, places, shares, cmap=style.SEQUENTIAL, **edge)
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 8}
    for (y, role), (x, other) in product(enumerate(roles), enumerate(roles)):
        if role == other and role not in held.undefined[task]:
            panel.text(x, y, held.size(task, role), fontweight="bold", **middle)
        elif np.isnan(shares[y, x]):
            panel.text(x, y, "–", alpha=0.65, **middle)
        else:
            dark = style.luminance(to_hex(style.SEQUENTIAL(shares[y, x]))) < 0.18
            told = f"{100 * shares[y, x]:.0f}"
            panel.text(x, y, told, color="white" if dark else "black", **middle)
    names = [role_name(role) for role in roles]
    panel.set_xticks(places, names, rotation=40, ha="right", rotation_mode="anchor")
    panel.set_yticks(places, names)
    panel.set(aspect="equal", xlim=(-0.5, len(roles) - 0.5), ylim=(len(roles) - 0.5, -0.5))
    panel.tick_params(length=0, labelsize=8, pad=2)
    panel.spines[:].set_visible(False)
    panel.set_title(task_name(task), fontsize=9.5)


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


def _cells_panel(panel: Axes, rows: pd.DataFrame, held: _Held, task: str, sort: bool) -> None:
    at = rows[["column", "layer"]].to_numpy(float)
    _squares(panel, at, 0.9, color=style.FAINT, alpha=0.2, label="heads")
    for i, role in enumerate(held.roles):
        shift = 0.29 * np.array([i % 3 - 1, i // 3 - 1])
        has = rows[role].to_numpy(bool)
        _squares(panel, at[has] + shift, 0.25, color=role_look(role).colour, label=role)
    wide, tall = int(rows["column"].max()), int(rows["layer"].max())
    panel.set(aspect="equal", xlim=(0.45, wide + 0.55), ylim=(tall + 0.55, 0.45), ylabel="layer")
    panel.set_yticks(sorted(rows["layer"].unique())[:: 1 if tall <= 12 else 2])
    panel.set_xticks([] if sort else range(1, wide + 1, 1 if wide <= 12 else 2))
    panel.set_xlabel("heads of the layer, most roles first" if sort else "head", fontsize=8)
    panel.tick_params(length=0, labelsize=7)
    panel.spines[:].set_visible(False)
    absent = ", ".join(role_name(r) for r in held.roles if r in held.undefined[task])
    panel.set_title(task_name(task), fontsize=9.5)
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
