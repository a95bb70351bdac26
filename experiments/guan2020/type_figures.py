"""Figures of head types: their plane, features and layers, their number, and their stability."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from attnlib.errors import BadValue, UnknownName, check_choice, did_you_mean
from attnlib.measuring.head_tables import head_names
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.panels import light_grid, say_undefined, small_panels
from attnlib.plots.planes import named_heads, plane_axis, write_names
from attnlib.plots.rows import HOLLOW, OURS

# Of all fours of the palette that keep orange for special tokens and blue for neighbours, these
# stay farthest apart for the three kinds of colour blindness.
TYPE_LOOKS: Mapping[str, style.Look] = MappingProxyType(
    {
        "dense": style.Look(style.LOOKS["block"].colour, "o", (0, (3, 1, 1, 1))),
        "diagonal": style.Look(style.LOOKS["next"].colour, "D", "-"),
        "dense&vertical": style.Look(style.LOOKS["self"].colour, "s", (0, (5, 1.5))),
        "vertical": style.Look(style.LOOKS["special"].colour, "^", (0, (1.5, 1.2))),
    }
)
"""Colour, mark and dash of the four head types, in the one order they are ever shown in."""

SPECIAL = {"self": "self", "cls": "[CLS]", "sep": "[SEP]", "comma": "comma", "period": "period"}


# --- types and their features ---------------------------------------------------------------------


def check_types(names: Iterable[str]) -> None:
    """Refuse what is none of the four types."""
    for name in dict.fromkeys(names):
        if name not in TYPE_LOOKS:
            hint = did_you_mean(str(name), TYPE_LOOKS)
            raise UnknownName(f"type '{name}'. {hint}Known: {', '.join(TYPE_LOOKS)}.")


def typed_heads(types: pd.DataFrame, *more: str, within: Sequence[str] = ()) -> pd.DataFrame:
    """The rows, if they have a known type each, and one for every head."""
    need(types, "layer", "head", "type", *more, *within)
    check_types(types["type"])
    if types.duplicated([*within, "layer", "head"]).any():
        raise BadValue("a head has two rows; give one row per head.")
    return types.reset_index(drop=True)


def spoken_counts(rows: pd.DataFrame) -> str:
    return ", ".join(f"{name} {int((rows['type'] == name).sum())}" for name in TYPE_LOOKS)


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


def type_plane(
    types: pd.DataFrame, *, named: int | Sequence[str] = 8, caption: str | None = None
) -> Drawing:
    """Heads in the t-SNE plane of their distance features, marked by type (Guan 2020, Fig. 2).

    types  layer, head, type, x, y, silhouette
    named  names of heads such as "5-4" to write beside their points, or how many of the outermost
    """
    rows = typed_heads(types, "x", "y", "silhouette")
    marked = named_heads(rows.assign(name=head_names(rows)), named, apart=0.1)
    inside = ~(rows["silhouette"] < 0)
    with style.drawing():
        tall = max(np.ptp(rows["y"]), 1e-9) / max(np.ptp(rows["x"]), 1e-9)
        size = (style.WIDTHS["column"], 0.5 + 4.7 * min(max(tall, 0.5), 1.0))
        figure = Figure(figsize=size, layout="constrained")
        panel = figure.subplots()
        dots: Any = {"s": 38 if len(rows) <= 200 else 22, "lw": 1.1}
        for name, look in TYPE_LOOKS.items():
            mine = rows["type"] == name
            for solid in (True, False):
                part = rows[mine & (inside == solid)]
                face = look.colour if solid else "none"
                edge: Any = {"facecolor": face, "edgecolor": look.colour, "marker": look.marker}
                told = f"{name} ({int(mine.sum())})" if solid else None
                panel.scatter(part["x"], part["y"], label=told, **edge, **dots)
        plane_axis(panel, rows, rim=0.12)
        figure.legend(loc="outside lower center", ncols=5, fontsize=8.5, **style.TIGHT)
        write_names(panel, marked, rows, size=8, away=(4, 2))
    counts, n_border = spoken_counts(rows), int((~inside).sum())
    which = f"The {n_border} hollow ones lie" if n_border else "No head lies"
    border = f"{which} nearer to another type (silhouette below 0)."
    text = f"Each point is a head; near points have alike distance features. {counts}. {border}"
    fit = f"Mean silhouette {rows['silhouette'].mean():.2f}.".replace("-", "−")
    names = ", ".join(marked["name"]) or "none"
    alt = f"Scatter plot of {len(rows)} heads. {counts}. {border} {fit} Named: {names}."
    return Drawing(figure, caption or text, alt, rows)


def feature_boxes(
    features: pd.DataFrame, types: pd.DataFrame, *, caption: str | None = None
) -> Drawing:
    """The parts of the distance feature over the heads of each type (Guan 2020, Fig. 1 bottom).

    features  layer, head, feature, value
    types     layer, head, type
    """
    need(features, "layer", "head", "feature", "value")
    rows = features.merge(typed_heads(types)[["layer", "head", "type"]], on=["layer", "head"])
    if rows.empty:
        raise BadValue("no head has both features and a type; check layer and head.")
    parts = feature_order(rows["feature"])
    shown = [name for name in TYPE_LOOKS if (rows["type"] == name).any()]
    places = _places(parts)
    with style.drawing():
        size = (style.WIDTHS["wide"], 0.6 + 1.25 * len(shown))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(hspace=0.02))
        panels = list(figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0])
        for panel, name in zip(panels, shown, strict=True):
            mine = rows[rows["type"] == name]
            _boxes(panel, mine, places, TYPE_LOOKS[name].colour)
            heads = len(mine[["layer", "head"]].drop_duplicates())
            panel.set_title(f"{name} ({heads} heads)", fontsize=9, pad=3)
        _feature_axis(panels, places, float(rows["value"].max()))
        figure.supylabel("share of attention, square-root axis", fontsize=8.5)
    masses = "; ".join(_mass_words(name, rows[rows["type"] == name]) for name in shown)
    text = (
        "Boxes hold the middle half of a type's heads, the line is the median; windows run from "
        f"near (w1) to far. Median share near (self and w1), farther, and on special tokens: "
        f"{masses}."
    )
    alt = (
        f"Box plots of {len(parts)} features for {len(shown)} types. Median share near, farther "
        f"and on special tokens: {masses}."
    )
    return Drawing(figure, caption or text, alt, rows)


def _places(parts: Sequence[str]) -> dict[str, float]:
    """Where each feature stands: the three groups apart, and room for the words of the last."""
    windows = [name for name in parts if name.startswith("window_")]
    found = {name: float(i) for i, name in enumerate(windows)}
    for name in parts[len(windows) :]:
        found[name] = max(found.values(), default=-1.4) + 1.4
    return found


def _boxes(panel: Axes, rows: pd.DataFrame, places: Mapping[str, float], colour: str) -> None:
    known = {name: part.to_numpy() for name, part in rows.groupby("feature")["value"]}
    look: Any = {
        "boxprops": {"facecolor": to_rgba(colour, 0.4), "edgecolor": colour, "lw": 0.9},
        "medianprops": {"color": colour, "lw": 1.8},
        "whiskerprops": {"color": colour, "lw": 0.9},
        "flierprops": {"marker": ".", "ms": 3, "mec": "none", "mfc": colour, "alpha": 0.6},
    }
    shape: Any = {"widths": 0.62, "showcaps": False, "patch_artist": True}
    panel.boxplot(
        [known[name] for name in places], positions=list(places.values()), **shape, **look
    )


def _feature_axis(panels: Sequence[Axes], places: Mapping[str, float], highest: float) -> None:
    """Names once, beneath; rules between windows, self and special tokens; a square-root axis."""
    windows = sum(name.startswith("window_") for name in places)
    for panel in panels:
        for edge in (windows - 0.3, windows + 1.1):
            panel.axvline(edge, color=style.FAINT, alpha=0.5, lw=0.8)
        panel.tick_params(axis="x", length=0)
        light_grid(panel)
    panels[0].set_yscale("function", functions=(_root, np.square))
    panels[0].set_ylim(0, min(1.0, 1.1 * highest) if highest > 0 else 1.0)
    panels[0].yaxis.set_major_locator(FixedLocator([0, 0.05, 0.2, 0.5, 1.0]))
    panels[0].yaxis.set_minor_locator(NullLocator())
    panels[0].yaxis.set_major_formatter("{x:g}")
    panels[-1].set_xticks(list(places.values()), [feature_name(name) for name in places])
    panels[-1].set_xlim(-0.6, max(places.values()) + 0.6)


def _root(values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.clip(values, 0, None))


def _mass_words(name: str, rows: pd.DataFrame) -> str:
    """The median over heads of the mass near, farther and on special tokens."""
    near = rows["feature"].isin(["self", "window_01"])
    far = rows["feature"].str.startswith("window_") & ~near
    groups = (rows[part].groupby(["layer", "head"])["value"] for part in (near, far, ~near & ~far))
    return f"{name} " + ", ".join(f"{100 * group.sum().median():.0f}%" for group in groups)


# --- layers, and what fine-tuning moves -----------------------------------------------------------


def types_by_layer(types: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """How many heads of each layer have each type (Guan 2020, Fig. 3).

    types  layer, head, type
    """
    rows = typed_heads(types)
    with style.drawing():
        figure = Figure(figsize=(style.WIDTHS["column"], 2.9), layout="constrained")
        panel = figure.subplots()
        _stack(panel, rows, numbers=True)
        panel.set(xlabel="layer", ylabel="heads")
        type_legend(figure)
    by_type = rows.groupby("type", sort=False)["layer"]
    known = [name for name in TYPE_LOOKS if name in by_type.groups]
    told = ", ".join(
        f"{name} {by_type.mean()[name]:.1f} ({by_type.size()[name]} heads)" for name in known
    )
    text = f"Heads of each layer by type. Mean layer of a type: {told}."
    peak = "; ".join(f"{name} most in layer {part.mode().min()}" for name, part in by_type)
    alt = f"Stacked bars over {rows['layer'].nunique()} layers. Mean layer: {told}. {peak}."
    return Drawing(figure, caption or text, alt, rows)


def types_by_layer_beside(types: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """The same for several models, such as one before and after fine-tuning (Guan 2020, Fig. 4).

    types  model, layer, head, type
    """
    rows = typed_heads(types, within=("model",))
    parts = dict(list(rows.groupby("model", sort=False)))
    with style.drawing():
        figure, panels = small_panels(len(parts), height=2.1, sharey=True)
        for panel, (model, part) in zip(panels, parts.items(), strict=True):
            _stack(panel, part, numbers=False)
            panel.set_title(model, fontsize=9)
            panel.set_xlabel("layer", fontsize=8)
        panels[0].set_ylabel("heads")
        type_legend(figure)
    last = rows["layer"].max()
    tops = {model: part.loc[part["layer"] == last, "type"] for model, part in parts.items()}
    top = ", ".join(
        f"{model} {(own == 'dense&vertical').sum()} of {len(own)}" for model, own in tops.items()
    )
    text = f"Heads of each layer by type. Dense&vertical heads in layer {last}: {top}."
    whole = "; ".join(f"{model} {spoken_counts(part)}" for model, part in parts.items())
    alt = f"Stacked bars over layers for {len(parts)} models. {whole}. {text}"
    return Drawing(figure, caption or text, alt, rows)


def _stack(panel: Axes, rows: pd.DataFrame, *, numbers: bool) -> None:
    """Bars of one layer each, the types from below in their order."""
    layers = np.arange(rows["layer"].min(), rows["layer"].max() + 1)
    base = np.zeros(len(layers))
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 7.5}
    for name, look in TYPE_LOOKS.items():
        found = rows.loc[rows["type"] == name, "layer"].value_counts()
        heights = found.reindex(layers, fill_value=0).to_numpy(float)
        bars: Any = {"bottom": base, "color": look.colour, "lw": 0, "label": name}
        panel.bar(layers, np.maximum(heights - 0.06, 0), 0.84, **bars)
        for x, y, height in zip(layers, base, heights, strict=True):
            if numbers and height:
                ink = style.ink_on(look.colour)
                panel.text(x, y + height / 2, f"{height:.0f}", color=ink, **middle)
        base += heights
    panel.set_xlim(layers[0] - 0.6, layers[-1] + 0.6)
    panel.set_ylim(0, base.max())
    panel.set_xticks(layers[:: max(1, math.ceil(len(layers) / (24 if numbers else 6)))])
    panel.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    panel.tick_params(axis="x", length=0)
    light_grid(panel)


def type_moves(changes: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """Which heads change their type by fine-tuning: old colour outside, new colour inside.

    changes  task, layer, head, before, after (types)
    """
    need(changes, "before", "after")
    for end in ("before", "after"):
        typed_heads(changes.assign(type=changes[end]), within=("task",))
    rows = changes.reset_index(drop=True)
    rows["changed"] = rows["before"] != rows["after"]
    tasks = list(dict.fromkeys(rows["task"]))
    with style.drawing():
        columns = min(len(tasks), 3)
        lines = math.ceil(len(tasks) / columns)
        width = style.WIDTHS[("narrow", "column", "wide")[columns - 1]]
        cell = (width / columns - 0.6) / rows["head"].max()
        size = (width, 0.45 + lines * (0.65 + cell * rows["layer"].max()))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.03, hspace=0.04))
        panels = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        for panel, task in zip(panels, tasks, strict=False):
            _moves_panel(panel, rows[rows["task"] == task])
            panel.set_title(task, fontsize=9)
        for spare in panels[len(tasks) :]:
            spare.remove()
        for panel in panels[::columns]:
            panel.set_ylabel("layer")
        type_legend(figure)
    told = "; ".join(_spoken_moves(task, rows[rows["task"] == task]) for task in tasks)
    text = (
        "Pale: heads that keep their type. Full: heads that change it, from the colour of the rim "
        f"to the colour of the core; the number is how many of the layer. {told}."
    )
    return Drawing(figure, caption or text, f"Grids of heads, layers downwards. {told}.", rows)


def _moves_panel(panel: Axes, rows: pd.DataFrame) -> None:
    at, changed = rows[["head", "layer"]].to_numpy(float), rows["changed"].to_numpy(bool)
    for name, look in TYPE_LOOKS.items():
        before, after = (rows[end].to_numpy() == name for end in ("before", "after"))
        ink: Any = {"color": look.colour}
        _squares(panel, at[before & ~changed], 0.9, alpha=0.3, label=name, **ink)
        # A gap between the two colours keeps them apart for every eye, on every page.
        _squares(panel, at[before & changed], 0.9, 0.56, label=f"from {name}", **ink)
        _squares(panel, at[after & changed], 0.42, label=f"to {name}", **ink)
    wide, tall = int(rows["head"].max()), int(rows["layer"].max())
    side: Any = {"fontsize": 7.5, "ha": "left", "va": "center_baseline"}
    for layer, count in rows.groupby("layer")["changed"].sum().items():
        if count:
            panel.text(wide + 0.7, layer, f"{count}", **side)
    panel.set(aspect="equal", xlim=(0.45, wide + 1.9), ylim=(tall + 0.55, 0.45))
    panel.set_xlabel("head", fontsize=8)
    panel.set_xticks(range(1, wide + 1, 1 if wide <= 6 else 3 if wide < 13 else 4))
    panel.set_yticks(range(1, tall + 1, 1 if tall <= 12 else 2))
    panel.tick_params(length=0, labelsize=7.5)
    panel.spines[:].set_visible(False)


def _squares(panel: Axes, centres: np.ndarray, side: float, hole: float = 0.0, **look: Any) -> None:
    """All squares of one kind as one shape, which keeps the page small; they may have a hole."""
    outer = side / 2 * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)])
    inner = hole / 2 * np.array([(-1, -1), (-1, 1), (1, 1), (1, -1), (-1, -1)])  # turned round
    corners = np.concatenate([outer, inner]) if hole else outer
    vertices = (centres[:, None, :] + corners).reshape(-1, 2)
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * (len(vertices) // 5)
    panel.add_patch(PathPatch(Path(vertices, codes), lw=0, **look))


def _spoken_moves(task: str, rows: pd.DataFrame) -> str:
    """How many heads change, where in the network, and the commonest change."""
    told = f"{task}: {rows['changed'].sum()} of {len(rows)} heads change"
    moves = rows[rows["changed"]].groupby(["before", "after"]).size()
    if moves.empty:
        return told
    third = np.ceil(3 * rows["layer"] / rows["layer"].max())
    shares = (100 * rows["changed"].groupby(third).mean()).reindex([1, 2, 3])
    where = ", ".join(f"{share:.0f}%" for share in shares)
    before, after = moves.idxmax()
    return (
        f"{told} ({where} of the first, middle and last third of the layers), most often from "
        f"{before} to {after} ({moves.max()})"
    )


# --- clusters: how many, how stable ---------------------------------------------------------------

CRITERIA = {
    "silhouette": ("silhouette", "highest is best"),
    "bic": ("BIC of a Gaussian mixture", "lowest is best"),
    "gap": ("gap statistic", "higher is better"),
}
SPLITS = {"inputs": "half of the inputs", "heads": "half of the heads"}
PAPER_K = 4


def cluster_count_curves(
    counts: pd.DataFrame, best: Mapping[str, int | None], *, caption: str | None = None
) -> Drawing:
    """Three criteria for the number of clusters, with the number that each prefers.

    counts  k, silhouette, bic, gap, gap_se; null_low, null_high: the silhouette of features
            without clusters
    best    the preferred number of each criterion; None if it prefers none
    """
    need(counts, "k", *CRITERIA, "gap_se", "null_low", "null_high")
    rows = counts.sort_values("k", ignore_index=True)
    with style.drawing():
        figure, panels = small_panels(len(CRITERIA), height=2.0)
        for panel, name in zip(panels, CRITERIA, strict=True):
            _curve(panel, rows, name, best[name])
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8, **style.TIGHT)
    told, here = [], []
    for name, (title, _) in CRITERIA.items():
        k = best[name]
        told.append(f"{title} {k} ({_value(rows, name, k)})" if k else f"{title} none")
        here.append(f"{title} {_value(rows, name, PAPER_K)}")
    known = rows.dropna(subset=["silhouette", "null_high"])
    above = int((known["silhouette"] > known["null_high"]).sum())
    text = (
        f"Preferred number of clusters: {'; '.join(told)}. At {PAPER_K}, the paper's number: "
        f"{', '.join(here)}. The silhouette lies above the band of features without clusters for "
        f"{above} of {len(known)} numbers."
    )
    return Drawing(figure, caption or text, f"Curves over the number of clusters. {text}", rows)


def _value(rows: pd.DataFrame, name: str, k: int) -> str:
    value = rows.set_index("k")[name].get(k, math.nan)
    text = f"{value:,.0f}" if name == "bic" else f"{value:.2f}"
    return "undefined" if math.isnan(value) else text.replace("-", "−")


def _curve(panel: Axes, rows: pd.DataFrame, name: str, best: int | None) -> None:
    title, note = CRITERIA[name]
    if name == "silhouette":
        wide: Any = {"color": style.FAINT, "alpha": 0.5, "lw": 7, "label": "without clusters"}
        panel.vlines(rows["k"], rows["null_low"], rows["null_high"], **wide)
    if name == "gap":
        ends: Any = rows["gap"] - rows["gap_se"], rows["gap"] + rows["gap_se"]
        panel.vlines(rows["k"], *ends, color=OURS, lw=2.2, alpha=0.5)
    line: Any = {"color": style.FAINT, "lw": 1.2, "ls": (0, (4, 2)), "zorder": 0}
    panel.axvline(PAPER_K, label=f"the paper: {PAPER_K}", **line)
    panel.plot(rows["k"], rows[name], color=OURS, marker="o", ms=4, mew=0, lw=1.4)
    if best is not None:
        at = (best, float(rows.set_index("k")[name][best]))
        ring: Any = {"ls": "none", "marker": "o", "mfc": "none", "mec": style.INK, "mew": 1.4}
        panel.plot(*at, ms=9, label="preferred", **ring)
        up: Any = {"xytext": (0, -8 if name == "bic" else 8), "ha": "center", "fontsize": 8}
        up |= {"va": "top" if name == "bic" else "bottom", "fontweight": "bold"}
        panel.annotate(f"{best}", at, textcoords="offset points", **up)
    panel.margins(y=0.22)
    panel.set_title(title, fontsize=9, pad=15)
    panel.text(0, 1.03, note, transform=panel.transAxes, fontsize=7.5, alpha=0.75)
    panel.set_xlabel("clusters", fontsize=8)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.yaxis.set_major_locator(MaxNLocator(4))
    panel.tick_params(labelsize=7.5)
    say_undefined(panel, rows[name])
    light_grid(panel)


def stability_bars(
    stability: pd.DataFrame,
    paper: Mapping[str, float],
    *,
    k: int = PAPER_K,
    caption: str | None = None,
) -> Drawing:
    """Share of heads that stay in their cluster in all fits, by model (Guan 2020, Table 1).

    stability  model, k, split (inputs, heads), stability (share, 0 to 1), low, high; null_low,
               null_high: the same without clusters; n_fits
    paper      the paper's share of a model, 0 to 1
    """
    need(stability, "model", "k", "split", "stability", "low", "high", "null_low", "null_high")
    rows = stability[stability["k"] == k].reset_index(drop=True)
    if rows.empty:
        have = ", ".join(f"{one:g}" for one in sorted(stability["k"].unique()))
        raise BadValue(f"no stability of {k} clusters; the table has k = {have}.")
    for split in dict.fromkeys(rows["split"]):
        check_choice("split", split, SPLITS)
    if rows.duplicated(["model", "split"]).any():
        raise BadValue("a model has two rows for one split; give one.")
    shown = [split for split in SPLITS if (rows["split"] == split).any()]
    models = list(dict.fromkeys(rows["model"]))
    rows["paper"] = [paper.get(model, math.nan) for model in rows["model"]]
    with style.drawing():
        size = (style.WIDTHS["wide" if len(shown) == 2 else "column"], 1.05 + 0.34 * len(models))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.05))
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for panel, split in zip(panels, shown, strict=True):
            _bars(panel, rows[rows["split"] == split].set_index("model").reindex(models))
            panel.set_title(SPLITS[split], fontsize=9)
        panels[0].set_yticks(range(len(models)), models)
        panels[0].set_ylim(len(models) - 0.4, -0.6)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=8, **style.TIGHT)
    told = "; ".join(
        f"each fit on {SPLITS[split]}: "
        + ", ".join(_spoken(row) for _, row in rows[rows["split"] == split].iterrows())
        for split in shown
    )
    fits = ", ".join(f"{one:g}" for one in sorted(rows["n_fits"].unique()))
    text = f"Heads in the same of {k} clusters in all {fits} fits; {told}."
    return Drawing(figure, caption or text, f"Bars. {text}", rows)


def _bars(panel: Axes, part: pd.DataFrame) -> None:
    places = np.arange(len(part))
    wide = part["null_high"] - part["null_low"]
    chance: Any = {"left": part["null_low"], "height": 0.76, "color": style.FAINT, "lw": 0}
    panel.barh(places, wide, alpha=0.35, label="without clusters", **chance)
    panel.barh(places, part["stability"], height=0.32, color=OURS, lw=0, alpha=0.7, label="ours")
    panel.hlines(places, part["low"], part["high"], color=style.INK, lw=1.4)
    if part["paper"].notna().any():
        panel.plot(part["paper"], places, label="the paper", clip_on=False, **HOLLOW)
    side: Any = {"xycoords": panel.get_yaxis_transform(), "textcoords": "offset points"}
    side |= {"xytext": (10, 0), "va": "center_baseline", "annotation_clip": False, "fontsize": 8}
    for place, value in zip(places, part["stability"], strict=True):
        panel.annotate(f"{100 * value:.1f}%", (1.0, place), **side)
    panel.set_xlim(0, 1)
    panel.xaxis.set_major_formatter(PercentFormatter(1.0))
    panel.grid(axis="x", color=style.FAINT, alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0, labelsize=8.5)
    panel.spines["left"].set_visible(False)


def _spoken(row: pd.Series) -> str:
    beside = "" if math.isnan(row["paper"]) else f" (paper {100 * row['paper']:.1f}%)"
    return f"{row['model']} {100 * row['stability']:.1f}%{beside}"
