"""How many clusters of heads there are, and how stable they are (Guan 2020, sec. 4, Table 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, PercentFormatter

from attnlib.errors import BadValue, check_choice
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.panels import light_grid, say_undefined, small_panels
from attnlib.plots.rows import HOLLOW, OURS
from experiments.guan2020.typefigures import model_name

CRITERIA: Mapping[str, tuple[str, str]] = {
    "silhouette": ("silhouette", "highest is best"),
    "bic": ("BIC of a Gaussian mixture", "lowest is best"),
    "gap": ("gap statistic", "higher is better"),
}

SPLITS: Mapping[str, str] = {"inputs": "half of the inputs", "heads": "half of the heads"}

PAPER_K = 4


def cluster_count_curves(
    counts: pd.DataFrame,
    *,
    best: Mapping[str, int | None] | None = None,
    paper_k: int = PAPER_K,
    caption: str | None = None,
) -> Drawing:
    """Three criteria for the number of clusters, with the number that each prefers.

    counts  k, silhouette, bic, gap; null_low, null_high where the silhouette of features without
            clusters is known; gap_se if there is a standard error of the gap
    best    the preferred number of a criterion, where it is not its highest (BIC: lowest) value;
            None if it prefers none
    """
    need(counts, "k", *CRITERIA)
    rows = counts.sort_values("k", ignore_index=True)
    if not rows[list(CRITERIA)].notna().any().any():
        raise BadValue("no criterion is defined for any k; there is no curve to draw.")
    chosen = {name: _preferred(rows, name, best or {}) for name in CRITERIA}
    with style.drawing():
        figure, panels = small_panels(len(CRITERIA), height=2.0)
        for panel, name in zip(panels, CRITERIA, strict=True):
            _curve(panel, rows, name, chosen[name], paper_k)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8, **style.TIGHT)
    told = "; ".join(
        f"{CRITERIA[name][0]} {k if k else 'none'}" + (f" ({_value(rows, name, k)})" if k else "")
        for name, k in chosen.items()
    )
    here = ", ".join(f"{CRITERIA[name][0]} {_value(rows, name, paper_k)}" for name in CRITERIA)
    text = f"Preferred number of clusters: {told}. At {paper_k}, the paper's number: {here}."
    if {"null_low", "null_high"} <= set(rows.columns):
        known = rows.dropna(subset=["silhouette", "null_high"])
        above = int((known["silhouette"] > known["null_high"]).sum())
        text += (
            f" The silhouette lies above the band of features without clusters for {above} of "
            f"{len(known)} numbers."
        )
    return Drawing(figure, caption or text, f"Curves over the number of clusters. {text}", rows)


def stability_bars(
    stability: pd.DataFrame,
    paper: Mapping[str, float] | None = None,
    *,
    k: int = PAPER_K,
    caption: str | None = None,
) -> Drawing:
    """Share of heads that stay in their cluster in all fits, by model (Guan 2020, Table 1).

    stability  model, k, split (inputs, heads), stability (share, 0 to 1), n_fits; low, high if
               there is an interval; null_low, null_high if there is one without clusters
    paper      the paper's share of a model, 0 to 1
    """
    need(stability, "model", "k", "split", "stability", "n_fits")
    rows = stability[stability["k"] == k].reset_index(drop=True)
    if rows.empty:
        have = ", ".join(f"{one:g}" for one in sorted(stability["k"].unique()))
        raise BadValue(f"no stability of {k} clusters; the table has k = {have}.")
    for split in dict.fromkeys(rows["split"]):
        check_choice("split", split, SPLITS)
    shown = [split for split in SPLITS if (rows["split"] == split).any()]
    models, theirs = list(dict.fromkeys(rows["model"])), dict(paper or {})
    if rows.duplicated(["model", "split"]).any():
        raise BadValue("a model has two rows for one split; give one.")
    with style.drawing():
        size = (style.WIDTHS["wide" if len(shown) == 2 else "column"], 1.05 + 0.34 * len(models))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.05))
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for panel, split in zip(panels, shown, strict=True):
            part = rows[rows["split"] == split].set_index("model").reindex(models)
            _bars(panel, part, [theirs.get(model, math.nan) for model in models])
            panel.set_title(SPLITS[split], fontsize=9)
        panels[0].set_yticks(range(len(models)), [model_name(model) for model in models])
        panels[0].set_ylim(len(models) - 0.4, -0.6)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=8, **style.TIGHT)
    told = "; ".join(f"each fit on {SPLITS[one]}: {_spoken(rows, one, theirs)}" for one in shown)
    fits = ", ".join(f"{one:g}" for one in sorted(rows["n_fits"].unique()))
    text = f"Heads in the same of {k} clusters in all {fits} fits; {told}."
    return Drawing(figure, caption or text, f"Bars. {text}", rows)


def _preferred(rows: pd.DataFrame, name: str, best: Mapping[str, int | None]) -> int | None:
    if name in best:
        if best[name] is not None and best[name] not in set(rows["k"]):
            raise BadValue(f"the best k of {name} is {best[name]}, which the table does not have.")
        return best[name]
    known = rows.dropna(subset=[name])
    if known.empty:
        return None
    where = known[name].idxmin() if name == "bic" else known[name].idxmax()
    return int(known.loc[where, "k"])


def _value(rows: pd.DataFrame, name: str, k: int) -> str:
    found = rows.loc[rows["k"] == k, name].dropna()
    if found.empty:
        return "undefined"
    text = f"{found.iloc[0]:,.0f}" if name == "bic" else f"{found.iloc[0]:.2f}"
    return text.replace("-", "−")


def _curve(panel: Axes, rows: pd.DataFrame, name: str, best: int | None, paper_k: int) -> None:
    title, note = CRITERIA[name]
    side = -1 if name == "bic" else 1
    if name == "silhouette" and {"null_low", "null_high"} <= set(rows.columns):
        ends: Any = (rows["null_low"], rows["null_high"])
        wide: Any = {"color": style.FAINT, "alpha": 0.5, "lw": 7, "label": "without clusters"}
        panel.vlines(rows["k"], *ends, **wide)
    if name == "gap" and "gap_se" in rows.columns:
        ends = rows["gap"] - rows["gap_se"], rows["gap"] + rows["gap_se"]
        panel.vlines(rows["k"], *ends, color=OURS, lw=2.2, alpha=0.5)
    line: Any = {"color": style.FAINT, "lw": 1.2, "ls": (0, (4, 2)), "zorder": 0}
    panel.axvline(paper_k, label=f"the paper: {paper_k}", **line)
    panel.plot(rows["k"], rows[name], color=OURS, marker="o", ms=4, mew=0, lw=1.4)
    if best is not None:
        at = (best, float(rows.loc[rows["k"] == best, name].iloc[0]))
        ring: Any = {"ls": "none", "marker": "o", "mfc": "none", "mec": style.INK, "mew": 1.4}
        panel.plot(*at, ms=9, label="preferred", **ring)
        up: Any = {"xytext": (0, 8 * side), "ha": "center", "fontsize": 8}
        up |= {"va": "bottom" if side > 0 else "top", "fontweight": "bold"}
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


def _bars(panel: Axes, part: pd.DataFrame, theirs: list[float]) -> None:
    places = np.arange(len(part))
    if {"null_low", "null_high"} <= set(part.columns):
        wide = part["null_high"] - part["null_low"]
        chance: Any = {"left": part["null_low"], "height": 0.76, "color": style.FAINT, "lw": 0}
        panel.barh(places, wide, alpha=0.35, label="without clusters", **chance)
    panel.barh(places, part["stability"], height=0.32, color=OURS, lw=0, alpha=0.7, label="ours")
    if {"low", "high"} <= set(part.columns):
        panel.hlines(places, part["low"], part["high"], color=style.INK, lw=1.4)
    if np.isfinite(theirs).any():
        panel.plot(theirs, places, label="the paper", clip_on=False, **HOLLOW)
    side: Any = {"xycoords": panel.get_yaxis_transform(), "textcoords": "offset points"}
    side |= {"xytext": (10, 0), "va": "center_baseline", "annotation_clip": False, "fontsize": 8}
    for place, value in zip(places, part["stability"], strict=True):
        told = "undefined" if math.isnan(value) else f"{100 * value:.1f}%"
        panel.annotate(told, (1.0, place), **side)
    panel.set_xlim(0, 1)
    panel.xaxis.set_major_formatter(PercentFormatter(1.0))
    panel.grid(axis="x", color=style.FAINT, alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0, labelsize=8.5)
    panel.spines["left"].set_visible(False)


def _spoken(rows: pd.DataFrame, split: str, theirs: Mapping[str, float]) -> str:
    told = []
    for _, row in rows[rows["split"] == split].iterrows():
        value, paper = row["stability"], theirs.get(row["model"], math.nan)
        one = "undefined" if math.isnan(value) else f"{100 * value:.1f}%"
        beside = "" if math.isnan(paper) else f" (paper {100 * paper:.1f}%)"
        told.append(f"{model_name(row['model'])} {one}{beside}")
    return ", ".join(told)
