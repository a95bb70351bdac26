"""Figures of head types: their plane, features and layers, and their number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullLocator

from attnlib.errors import BadValue, check_known
from attnlib.measuring.head_tables import head_names
from attnlib.plots import panels as layout
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.grids import grid_axes, squares
from attnlib.plots.planes import named_heads, plane_axis, write_names
from attnlib.plots.rows import OURS

# Of all fours of the palette that keep orange for special tokens and blue for neighbours, these
# stay farthest apart for the three kinds of colour blindness.
TYPE_LOOKS: Mapping[str, style.Look] = {
    "dense": style.Look(style.LOOKS["block"].colour, "o", (0, (3, 1, 1, 1))),
    "diagonal": style.Look(style.LOOKS["next"].colour, "D", "-"),
    "dense&vertical": style.Look(style.LOOKS["self"].colour, "s", (0, (5, 1.5))),
    "vertical": style.Look(style.LOOKS["special"].colour, "^", (0, (1.5, 1.2))),
}
"""Colour, mark and dash of the four head types, in the one order they are ever shown in."""

SPECIAL = {"self": "self", "cls": "[CLS]", "sep": "[SEP]", "comma": "comma", "period": "period"}


# --- types and their features ---------------------------------------------------------------------


def check_types(names: Iterable[str]) -> None:
    """Refuse what is none of the four types."""
    check_known("type", names, TYPE_LOOKS)


def typed_heads(types: pd.DataFrame, *more: str, within: Sequence[str] = ()) -> pd.DataFrame:
    """The rows, if they have a known type each, and one for every head."""
    need(types, "layer", "head", "type", *more, *within)
    check_types(types["type"])
    if types.duplicated([*within, "layer", "head"]).any():
        raise BadValue("a head has two rows; give one row per head.")
    return types.reset_index(drop=True)


def type_legend(figure: Figure) -> None:
    """A swatch per type beneath all panels."""
    swatches = [Patch(color=look.colour, lw=0, label=name) for name, look in TYPE_LOOKS.items()]
    shape: Any = {"loc": "outside lower center", "ncols": 5, "handlelength": 1.0}
    figure.legend(handles=swatches, fontsize=8.5, **shape, **style.TIGHT)


def feature_name(feature: str) -> str:
    """A part of the distance feature on an axis: `window_03` is `w3`, `cls` is `[CLS]`."""
    if feature.startswith("window_"):
        return f"w{int(feature.removeprefix('window_'))}"
    return SPECIAL.get(feature, feature.replace("_", " "))


def feature_order(features: pd.Series) -> list[str]:
    """Windows from near to far, then self, then the special tokens."""
    names = list(dict.fromkeys(features))
    windows = sorted(name for name in names if name.startswith("window_"))
    known = [name for name in SPECIAL if name in names]
    return [*windows, *known, *(n for n in names if n not in windows and n not in known)]


def type_plane(types: pd.DataFrame, *, named: int | Sequence[str] = 8) -> Drawing:
    """Heads in the t-SNE plane of their distance features, marked by type (Guan 2020, Fig. 2).

    types  layer, head, type, x, y, silhouette
    named  names of heads such as "5-4" to write beside their points, or how many of the outermost
    """
    rows = typed_heads(types, "x", "y", "silhouette")
    marked = named_heads(rows.assign(name=head_names(rows)), named, apart=0.1)
    inside = ~(rows["silhouette"] < 0)
    with style.drawing():
        tall = max(np.ptp(rows["y"]), 1e-9) / max(np.ptp(rows["x"]), 1e-9)
        figure, (panel,) = layout.panel_grid(
            1, 0.5 + 4.7 * min(max(tall, 0.5), 1.0), width="column"
        )
        for name, look in TYPE_LOOKS.items():
            mine = rows["type"] == name
            dots: Any = {"s": 38 if len(rows) <= 200 else 22, "lw": 1.1, "marker": look.marker}
            for part, face in ((rows[mine & inside], look.colour), (rows[mine & ~inside], "none")):
                told = f"{name} ({mine.sum()})" if face != "none" else None
                dots |= {"facecolor": face, "edgecolor": look.colour, "label": told}
                panel.scatter(part["x"], part["y"], **dots)
        plane_axis(panel, rows)
        layout.one_legend(figure, fontsize=8.5)
        write_names(panel, marked, rows, size=8, away=(4, 2))
    return Drawing(f"Scatter plot of {len(rows)} heads", figure, rows)


def feature_boxes(features: pd.DataFrame, types: pd.DataFrame) -> Drawing:
    """The parts of the distance feature over the heads of each type (Guan 2020, Fig. 1 bottom).

    features  layer, head, feature, value
    types     layer, head, type
    """
    need(features, "layer", "head", "feature", "value")
    rows = features.merge(typed_heads(types)[["layer", "head", "type"]], on=["layer", "head"])
    if rows.empty:
        raise BadValue("no head has both features and a type; check layer and head.")
    shown = {name: rows[rows["type"] == name] for name in TYPE_LOOKS if name in set(rows["type"])}
    places = _places(feature_order(rows["feature"]))
    shares: Any = {"columns": 1, "sharex": True, "sharey": True}
    with style.drawing():
        figure, panels = layout.panel_grid(len(shown), 0.6 + 1.25 * len(shown), gap=0.02, **shares)
        for panel, (name, mine) in zip(panels, shown.items(), strict=True):
            _boxes(panel, mine, places, TYPE_LOOKS[name].colour)
            panel.set_title(
                f"{name} ({mine.groupby(['layer', 'head']).ngroups} heads)", fontsize=9, pad=3
            )
        _feature_axis(panels, places, float(rows["value"].max()))
        figure.supylabel("share of attention, square-root axis", fontsize=8.5)
    kind = f"Box plots of {len(places)} features for {len(shown)} types"
    return Drawing(kind, figure, rows)


def _places(parts: Sequence[str]) -> dict[str, float]:
    """Where each feature stands: the three groups apart, and room for the words of the last."""
    steps = [1.0 if name.startswith("window_") else 1.4 for name in parts]
    return dict(zip(parts, np.cumsum(steps) - steps[0], strict=True))


def _boxes(panel: Axes, rows: pd.DataFrame, places: Mapping[str, float], colour: str) -> None:
    look: Any = {
        "boxprops": {"facecolor": to_rgba(colour, 0.4), "edgecolor": colour, "lw": 0.9},
        "medianprops": {"color": colour, "lw": 1.8},
        "whiskerprops": {"color": colour, "lw": 0.9},
        "flierprops": {"marker": ".", "ms": 3, "mec": "none", "mfc": colour, "alpha": 0.6},
    }
    shape: Any = {"widths": 0.62, "showcaps": False, "patch_artist": True}
    values = [rows.loc[rows["feature"] == name, "value"] for name in places]
    panel.boxplot(values, positions=list(places.values()), **shape, **look)


def _feature_axis(panels: Sequence[Axes], places: Mapping[str, float], highest: float) -> None:
    """Names once, beneath; rules between windows, self and special tokens; a square-root axis."""
    windows = sum(name.startswith("window_") for name in places)
    for panel in panels:
        for edge in (windows - 0.3, windows + 1.1):
            panel.axvline(edge, color=style.FAINT, alpha=0.5, lw=0.8)
        panel.tick_params(axis="x", length=0)
        layout.light_grid(panel)
    root = (lambda values: np.sqrt(np.clip(values, 0, None)), np.square)
    panels[0].set_yscale("function", functions=root)
    panels[0].set_yticks([0, 0.05, 0.2, 0.5, 1.0], ["0", "0.05", "0.2", "0.5", "1"])
    panels[0].set_ylim(0, min(1.0, 1.1 * highest) if highest > 0 else 1.0)
    panels[0].yaxis.set_minor_locator(NullLocator())
    panels[-1].set_xticks(list(places.values()), [feature_name(name) for name in places])
    panels[-1].set_xlim(-0.6, max(places.values()) + 0.6)


# --- layers, and what fine-tuning moves -----------------------------------------------------------


def types_by_layer(types: pd.DataFrame, *, by: str | None = None) -> Drawing:
    """How many heads of each layer have each type (Guan 2020, Fig. 3 and 4).

    types  layer, head, type
    by     a column with models that are shown side by side, such as before and after fine-tuning
    """
    rows = typed_heads(types, within=(by,) if by else ())
    parts = {str(name): part for name, part in rows.groupby(by or (lambda _: ""), sort=False)}
    with style.drawing():
        if by is None:
            figure, panels = layout.panel_grid(1, 2.9, width="column")
        else:
            figure, panels = layout.small_panels(len(parts), height=2.1, sharey=True)
        for panel, (name, part) in zip(panels, parts.items(), strict=True):
            _stack(panel, part, numbers=by is None)
            panel.set_title(name, fontsize=9)
            panel.set_xlabel("layer")
        panels[0].set_ylabel("heads")
        type_legend(figure)
    return Drawing("Stacked bars over layers", figure, rows)


def _stack(panel: Axes, rows: pd.DataFrame, *, numbers: bool) -> None:
    """Bars of one layer each, the types from below in their order."""
    layers = list(range(rows["layer"].min(), rows["layer"].max() + 1))
    counts = pd.crosstab(rows["type"], rows["layer"])
    counts = counts.reindex(index=list(TYPE_LOOKS), columns=layers, fill_value=0)
    colours = {name: look.colour for name, look in TYPE_LOOKS.items()}
    least = 1 if numbers else None
    layout.stacked_bars(panel, counts.T, layers, 0.84, colours, gap=0.06, least=least)
    layout.layer_ticks(panel, layers, 24 if numbers else 6, rim=0.6)
    panel.set_ylim(0, counts.sum().max())
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    panel.tick_params(axis="x", length=0)
    layout.light_grid(panel)


def type_moves(changes: pd.DataFrame) -> Drawing:
    """Which heads change their type by fine-tuning: old colour outside, new colour inside.

    changes  task, layer, head, before, after (types)
    """
    need(changes, "before", "after")
    for end in ("before", "after"):
        typed_heads(changes.assign(type=changes[end]), within=("task",))
    rows = changes.assign(changed=changes["before"] != changes["after"]).reset_index(drop=True)
    parts = {str(task): part for task, part in rows.groupby("task", sort=False)}
    with style.drawing():
        columns = min(len(parts), 3)
        width = ("narrow", "column", "wide")[columns - 1]
        cell = (style.WIDTHS[width] / columns - 0.6) / rows["head"].max()
        tall = 0.45 + math.ceil(len(parts) / columns) * (0.65 + cell * rows["layer"].max())
        figure, panels = layout.panel_grid(
            len(parts), tall, columns=columns, width=width, sharey=True
        )
        for panel, (task, part) in zip(panels, parts.items(), strict=True):
            _moves_panel(panel, part)
            panel.set_title(task, fontsize=9)
        for panel in panels[::columns]:
            panel.set_ylabel("layer")
        type_legend(figure)
    return Drawing("Grids of heads, layers downwards", figure, rows)


def _moves_panel(panel: Axes, rows: pd.DataFrame) -> None:
    at = rows[["head", "layer"]].to_numpy(float)
    for name, look in TYPE_LOOKS.items():
        before, after, changed = rows["before"] == name, rows["after"] == name, rows["changed"]
        ink: Any = {"color": look.colour}
        squares(panel, at[before & ~changed], 0.9, alpha=0.3, label=name, **ink)
        # A gap between the two colours keeps them apart for every eye, on every page.
        squares(panel, at[before & changed], 0.9, 0.56, label=f"from {name}", **ink)
        squares(panel, at[after & changed], 0.42, label=f"to {name}", **ink)
    wide, tall = int(rows["head"].max()), int(rows["layer"].max())
    side: Any = {"fontsize": 7.5, "ha": "left", "va": "center_baseline"}
    for layer, count in rows.loc[rows["changed"], "layer"].value_counts().items():
        panel.text(wide + 0.7, layer, f"{count}", **side)
    grid_axes(panel, range(1, wide + 1), range(1, tall + 1), 6)
    panel.set(xlim=(0.45, wide + 1.9), ylim=(tall + 0.55, 0.45))
    panel.set_xlabel("head", fontsize=8)


# --- how many clusters ----------------------------------------------------------------------------

CRITERIA = {
    "silhouette": ("silhouette", "highest is best"),
    "bic": ("BIC of a Gaussian mixture", "lowest is best"),
    "gap": ("gap statistic", "higher is better"),
}
PAPER_K = 4


def cluster_count_curves(counts: pd.DataFrame, best: Mapping[str, int | None]) -> Drawing:
    """Three criteria for the number of clusters, with the number that each prefers.

    counts  k, silhouette, bic, gap, gap_se; null_low, null_high: the silhouette of features
            without clusters
    best    the preferred number of each criterion; None if it prefers none
    """
    need(counts, "k", *CRITERIA, "gap_se", "null_low", "null_high")
    rows = counts.sort_values("k", ignore_index=True)
    with style.drawing():
        figure, panels = layout.small_panels(len(CRITERIA), height=2.0)
        for panel, name in zip(panels, CRITERIA, strict=True):
            _curve(panel, rows, name, best[name])
        layout.one_legend(figure)
    return Drawing("Curves over the number of clusters", figure, rows)


def _curve(panel: Axes, rows: pd.DataFrame, name: str, best: int | None) -> None:
    title, note = CRITERIA[name]
    if name == "silhouette":
        wide: Any = {"color": style.FAINT, "alpha": 0.5, "lw": 7, "label": "without clusters"}
        panel.vlines(rows["k"], rows["null_low"], rows["null_high"], **wide)
    line: Any = {"color": style.FAINT, "lw": 1.2, "ls": (0, (4, 2)), "zorder": 0}
    panel.axvline(PAPER_K, label=f"the paper: {PAPER_K}", **line)
    spread = rows["gap_se"] if name == "gap" else None
    look: Any = {"color": OURS, "marker": "o", "ms": 4, "mew": 0, "lw": 1.4, "elinewidth": 2.2}
    panel.errorbar(rows["k"], rows[name], spread, **look)
    if best is not None:
        at = (best, float(rows.set_index("k")[name][best]))
        ring: Any = {"ls": "none", "marker": "o", "mfc": "none", "mec": style.INK, "mew": 1.4}
        panel.plot(*at, ms=9, label="preferred", **ring)
        down = name == "bic"
        up: Any = {"xytext": (0, -8 if down else 8), "textcoords": "offset points"}
        up |= {"ha": "center", "va": "top" if down else "bottom"}
        panel.annotate(f"{best}", at, fontsize=8, fontweight="bold", **up)
    panel.margins(y=0.22)
    panel.set_title(title, fontsize=9, pad=15)
    panel.text(0, 1.03, note, transform=panel.transAxes, fontsize=7.5, alpha=0.75)
    panel.set_xlabel("clusters", fontsize=8)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.yaxis.set_major_locator(MaxNLocator(4))
    panel.tick_params(labelsize=7.5)
    layout.say_undefined(panel, rows[name])
    layout.light_grid(panel)
