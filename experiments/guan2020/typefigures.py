"""The four head types of Guan 2020: their looks, their plane, their distance features."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from attnlib.errors import BadValue, UnknownName, did_you_mean
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import task_name
from attnlib.plots.panels import light_grid
from attnlib.plots.planes import named_heads, plane_axis, write_names

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

UNDEFINED = "undefined"
"""The name of a head without a type: it is counted, and drawn in grey."""

SPECIAL: Mapping[str, str] = MappingProxyType(
    {"self": "self", "cls": "[CLS]", "sep": "[SEP]", "comma": "comma", "period": "period"}
)


def type_look(name: str) -> style.Look:
    """How a type is drawn; grey for a head without one."""
    return TYPE_LOOKS[name] if name != UNDEFINED else style.Look(style.LOOKS["other"].colour, "x")


def model_name(model: str) -> str:
    """A model by the task it was tuned on, as people write it: `squad` is `SQuAD`."""
    return "SQuAD" if str(model).lower() == "squad" else task_name(model)


def feature_name(feature: str) -> str:
    """A part of the distance feature on an axis: `window_03` is `w3`, `cls` is `[CLS]`."""
    if feature.startswith("window_"):
        return f"w{int(feature.removeprefix('window_'))}"
    return SPECIAL.get(feature, feature.replace("_", " "))


def type_plane(
    types: pd.DataFrame, *, named: int | Sequence[str] = 8, caption: str | None = None
) -> Drawing:
    """Heads in the t-SNE plane of their distance features, marked by type (Guan 2020, Fig. 2).

    types  layer, head, type, x, y, silhouette; heads without a place are counted and left out
    named  names of heads such as "5-4" to write beside their points, or how many of the outermost
    """
    rows = typed_heads(types, "x", "y", "silhouette")
    placed = rows[rows[["x", "y"]].notna().all(axis=1)].reset_index(drop=True)
    if placed.empty:
        raise BadValue("no head has a place in the plane; give x and y.")
    marked = named_heads(placed.assign(name=head_names(placed)), named, apart=0.1)
    inside = ~(placed["silhouette"] < 0)
    with style.drawing():
        tall = max(np.ptp(placed["y"]), 1e-9) / max(np.ptp(placed["x"]), 1e-9)
        size = (style.WIDTHS["column"], 0.5 + 4.7 * min(max(tall, 0.5), 1.0))
        figure = Figure(figsize=size, layout="constrained")
        panel = figure.subplots()
        for name in kinds(rows):
            look = type_look(name)
            dots: Any = {"s": 38 if len(placed) <= 200 else 22, "lw": 1.1}
            mine = placed["type"] == name
            for solid in (True, False):
                part = placed[mine & (inside == solid)]
                face = look.colour if solid or look.marker == "x" else "none"
                edge: Any = {"facecolor": face, "edgecolor": look.colour, "marker": look.marker}
                if look.marker == "x":
                    edge = {"color": look.colour, "marker": "x"}
                told = f"{name} ({int((rows['type'] == name).sum())})" if solid else None
                panel.scatter(part["x"], part["y"], label=told, **edge, **dots)
        plane_axis(panel, placed, rim=0.12)
        figure.legend(loc="outside lower center", ncols=5, fontsize=8.5, **style.TIGHT)
        write_names(panel, marked, placed, size=8, away=(4, 2))
    counts, n_border = spoken_counts(rows), int((~inside).sum())
    lost = f" {len(rows) - len(placed)} heads have no place." if len(placed) < len(rows) else ""
    border = (
        f"The {n_border} hollow ones lie nearer to another type (silhouette below 0)."
        if n_border
        else "No head lies nearer to another type (silhouette below 0)."
    )
    text = (
        f"Each point is a head; near points have alike distance features. {counts}. {border}{lost}"
    )
    mean = placed["silhouette"].mean()
    fit = "" if math.isnan(mean) else f" Mean silhouette {mean:.2f}.".replace("-", "−")
    names = ", ".join(marked["name"]) or "none"
    alt = f"Scatter plot of {len(placed)} heads. {counts}. {border}{fit} Named: {names}."
    return Drawing(figure, caption or text, alt, rows)


def feature_boxes(
    features: pd.DataFrame,
    types: pd.DataFrame,
    order: Sequence[str] = tuple(TYPE_LOOKS),
    *,
    caption: str | None = None,
) -> Drawing:
    """The parts of the distance feature over the heads of each type (Guan 2020, Fig. 1 bottom).

    features  layer, head, feature, value
    types     layer, head, type
    order     the types to show, from above
    """
    need(features, "layer", "head", "feature", "value")
    rows = features.merge(typed_heads(types)[["layer", "head", "type"]], on=["layer", "head"])
    rows = rows[rows["type"].isin(order)].reset_index(drop=True)
    if rows.empty:
        raise BadValue("no head has both features and one of these types; check layer and head.")
    parts = feature_order(rows["feature"])
    shown = [name for name in order if (rows["type"] == name).any()]
    with style.drawing():
        size = (style.WIDTHS["wide"], 0.6 + 1.25 * len(shown))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(hspace=0.02))
        grid = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)
        panels: list[Axes] = grid.ravel().tolist()
        for panel, name in zip(panels, shown, strict=True):
            mine = rows[rows["type"] == name]
            _boxes(panel, mine, _places(parts), type_look(name).colour)
            heads = len(mine[["layer", "head"]].drop_duplicates())
            panel.set_title(f"{name} ({heads} heads)", fontsize=9, pad=3)
        _feature_axis(panels, _places(parts), float(rows["value"].max()))
        figure.supylabel("share of attention, square-root axis", fontsize=8.5)
    masses = _mass_words(rows, shown, parts)
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


def typed_heads(types: pd.DataFrame, *more: str, within: Sequence[str] = ()) -> pd.DataFrame:
    """The rows with checked types; a head without one gets the name `undefined`."""
    need(types, "layer", "head", "type", *more)
    rows = types.reset_index(drop=True)
    rows["type"] = rows["type"].astype(object).where(rows["type"].notna(), UNDEFINED)
    for name in dict.fromkeys(rows["type"]):
        if name not in TYPE_LOOKS and name != UNDEFINED:
            hint = did_you_mean(str(name), TYPE_LOOKS)
            raise UnknownName(f"type '{name}'. {hint}Known: {', '.join(TYPE_LOOKS)}.")
    if rows.duplicated([*within, "layer", "head"]).any():
        raise BadValue("a head has two rows; give one row per head.")
    return rows


def kinds(rows: pd.DataFrame) -> list[str]:
    """All four types in their order, and `undefined` only if a head is."""
    return [*TYPE_LOOKS, *([UNDEFINED] if (rows["type"] == UNDEFINED).any() else [])]


def spoken_counts(rows: pd.DataFrame) -> str:
    return ", ".join(f"{name} {int((rows['type'] == name).sum())}" for name in kinds(rows))


def type_legend(figure: Figure, names: Sequence[str]) -> None:
    """A swatch per type beneath all panels."""
    swatches = [Patch(color=type_look(name).colour, lw=0, label=name) for name in names]
    shape: Any = {"loc": "outside lower center", "ncols": 5, "handlelength": 1.0}
    figure.legend(handles=swatches, fontsize=8.5, **shape, **style.TIGHT)


def head_names(rows: pd.DataFrame) -> list[str]:
    """Heads as people call them: layer and head from 1, as in `5-4`."""
    return [f"{int(a)}-{int(b)}" for a, b in zip(rows["layer"], rows["head"], strict=True)]


def feature_order(features: pd.Series) -> list[str]:
    """Windows from near to far, then self, then the special tokens."""
    names = list(dict.fromkeys(features))
    windows = sorted(name for name in names if name.startswith("window_"))
    known = [name for name in SPECIAL if name in names]
    return [*windows, *known, *(n for n in names if n not in windows and n not in known)]


def _places(parts: Sequence[str]) -> dict[str, float]:
    """Where each feature stands: the three groups apart, and room for the words of the last."""
    windows = [name for name in parts if name.startswith("window_")]
    found = {name: float(i) for i, name in enumerate(windows)}
    for name in parts[len(windows) :]:
        found[name] = max(found.values(), default=-1.4) + 1.4
    return found


def _boxes(panel: Axes, rows: pd.DataFrame, places: Mapping[str, float], colour: str) -> None:
    known = dict(tuple(rows.dropna(subset=["value"]).groupby("feature")["value"]))
    names = [name for name in places if name in known]
    look: Any = {
        "boxprops": {"facecolor": to_rgba(colour, 0.4), "edgecolor": colour, "lw": 0.9},
        "medianprops": {"color": colour, "lw": 1.8},
        "whiskerprops": {"color": colour, "lw": 0.9},
        "flierprops": {"marker": ".", "ms": 3, "mec": "none", "mfc": colour, "alpha": 0.6},
    }
    panel.boxplot(
        [known[name].to_numpy() for name in names],
        positions=[places[name] for name in names],
        **{"widths": 0.62, "showcaps": False, "patch_artist": True, **look},
    )


def _feature_axis(panels: Sequence[Axes], places: Mapping[str, float], highest: float) -> None:
    """Names once, beneath; rules between windows, self and special tokens; a square-root axis."""
    windows = sum(name.startswith("window_") for name in places)
    edges = [windows - 0.3, *([windows + 1.1] if "self" in places else [])] if windows else []
    for panel in panels:
        for edge in edges:
            panel.axvline(edge, color=style.FAINT, alpha=0.5, lw=0.8)
        panel.tick_params(axis="x", length=0)
        light_grid(panel)
    panels[0].set_yscale("function", functions=(_root, np.square))
    panels[0].set_ylim(0, min(1.0, 1.1 * highest) if highest > 0 else 1.0)
    panels[0].yaxis.set_major_locator(FixedLocator([0, 0.05, 0.2, 0.5, 1.0]))
    panels[0].yaxis.set_minor_locator(NullLocator())
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panels[-1].set_xticks(list(places.values()), [feature_name(name) for name in places])
    panels[-1].set_xlim(-0.6, max(places.values()) + 0.6)


def _root(values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.clip(values, 0, None))


def _mass_words(rows: pd.DataFrame, shown: Sequence[str], parts: Sequence[str]) -> str:
    """Per type the median over heads of the mass near, farther and on special tokens."""
    near = {"self", *(name for name in parts if name == "window_01" or name == "window_1")}
    far = {name for name in parts if name.startswith("window_")} - near
    told = []
    for name in shown:
        mine = rows[rows["type"] == name]
        grid = mine.pivot(index=["layer", "head"], columns="feature", values="value")
        groups = (near, far, set(parts) - near - far)
        shares = [grid[[n for n in parts if n in one]].sum(axis=1, skipna=False) for one in groups]
        told.append(f"{name} " + ", ".join(f"{100 * s.median():.0f}%" for s in shares))
    return "; ".join(told)
