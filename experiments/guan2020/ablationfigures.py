"""What a reader loses with types of heads changed (Guan 2020, Tables 2 and 3), beside controls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue, UnknownName, check_choice, did_you_mean
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.rows import HOLLOW, OURS
from experiments.guan2020.typefigures import TYPE_LOOKS, type_look

KINDS = {
    "untapped": "the model without a tap",
    "baseline": "baseline",
    "prune": "prune",
    "substitute": "1/L for",
    "intra": "no intra-sentence:",
    "inter": "no inter-sentence:",
}
"""What is done in an ablation, as the beginning of a phrase that names the types."""

GROUPS = {
    "prune": "prune: weights are 0",
    "substitute": "substitute: weights are 1/L",
    "intra": "remove: intra or inter sentence",
    "inter": "remove: intra or inter sentence",
}

CONTROLS = ("control_f1", "control_low", "control_high", "control_em")
EXCESS = ("excess", "excess_low", "excess_high", "p")
HARM, RELIEF = style.LOOKS["special"].colour, style.LOOKS["next"].colour

ROW = 0.245  # inches


def ablation_rows(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """F1 of every ablation beside the paper's and random heads' (Guan 2020, Tables 2 and 3).

    table  row, kind, types, n_heads, f1, f1_low, f1_high; paper_f1, control_f1, control_low,
           control_high, excess_high and p where there are any
    """
    rows = checked_ablations(table)
    places, heads = _places(rows)
    with style.drawing():
        size = (style.WIDTHS["wide"], 1.3 + ROW * (places[-1] + 1))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.02))
        ratios: Any = {"width_ratios": [2.3, 3.1]}
        left, panel = figure.subplots(1, 2, sharey=True, gridspec_kw=ratios)
        _touched(left, rows, places, heads)
        _row_marks(panel, rows, places)
        _row_texts(panel, rows, places)
        panel.set_ylim(places[-1] + 0.6, -0.6)
        handles = panel.get_legend_handles_labels()
        shape: Any = {"loc": "outside lower center", "ncols": 4, "fontsize": 8}
        figure.legend(*handles, **shape, **style.TIGHT)
    beyond, tested = _harmful(rows), int(rows["excess_high"].notna().sum())
    done = rows[rows["types"] != ""].dropna(subset=["f1"])
    base = rows.loc[rows["kind"] == "baseline", "f1"]
    start = f"Baseline F1 {base.iloc[0]:.1f}. " if len(base) else ""
    low = "Nothing was measured."
    if len(done):
        worst, best = done.loc[done["f1"].idxmin()], done.loc[done["f1"].idxmax()]
        low = (
            f"The worst is '{phrase(worst)}' ({worst['f1']:.1f}), the mildest '{phrase(best)}' "
            f"({best['f1']:.1f})."
        )
    control = (
        f" {int(beyond.sum())} of {tested} ablations do more harm than random heads of the same "
        f"layers (bold)."
        if tested
        else ""
    )
    text = f"F1 with 95% intervals. {start}{low}{control}"
    told = "; ".join(_spoken(row) for _, row in rows.iterrows())
    return Drawing(figure, caption or text, f"Dots with intervals. {text} By row: {told}.", rows)


def excess_bars(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """How far F1 lies below (or above) that of random heads from the same layers, by ablation.

    table  row, kind, types, n_heads, excess, excess_low, excess_high, p; rows without are left out
    """
    need(table, *EXCESS)
    rows = checked_ablations(table, scored=False)
    rows = rows[rows["excess"].notna()].reset_index(drop=True)
    if rows.empty:
        raise BadValue("no ablation has a control; there is no difference to draw.")
    kind = np.where(rows["excess_high"] < 0, "harm", np.where(rows["excess_low"] > 0, "less", ""))
    looks = {
        "harm": (HARM, 1.0, "more harm than random heads"),
        "less": (RELIEF, 1.0, "less harm"),
        "": (style.FAINT, 0.6, "not told apart"),
    }
    with style.drawing():
        size = (style.WIDTHS["wide"], 1.05 + 1.05 * ROW * len(rows))
        figure = Figure(figsize=size, layout="constrained")
        panel = figure.subplots()
        places = np.arange(len(rows))
        for name, (colour, alpha, words) in looks.items():
            mine = kind == name
            if mine.any():
                bar: Any = {"height": 0.62, "color": colour, "alpha": alpha, "lw": 0}
                panel.barh(places[mine], rows["excess"][mine], label=words, **bar)
        panel.hlines(places, rows["excess_low"], rows["excess_high"], color=style.INK, lw=1.2)
        panel.axvline(0, color=style.INK, lw=0.9)
        texts = [
            f"{_signed(a)} [{_signed(b)}, {_signed(c)}]"
            for a, b, c in rows[list(EXCESS[:3])].to_numpy()
        ]
        _column(panel, places, "difference", texts, 12, bold=kind == "harm")
        panel.set_yticks(places, [f"{phrase(row)}  {row['row']}" for _, row in rows.iterrows()])
        panel.set_ylim(len(rows) - 0.4, -0.6)
        _score_axis(panel, "points of F1, minus those with random heads of the same layers")
        handles = panel.get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper left", ncols=3, fontsize=8, **style.TIGHT)
    worst = rows.loc[rows["excess"].idxmin()]
    counts = f"{(kind == 'harm').sum()} do more harm than random heads of the same layers"
    if (kind == "less").any():
        counts += f", {(kind == 'less').sum()} less"
    text = (
        f"Of {len(rows)} ablations {counts}. The largest difference is that of '{phrase(worst)}' "
        f"({_signed(worst['excess'])} points). Lines are 95% intervals."
    )
    told = "; ".join(
        f"row {row['row']}, {phrase(row)} {_signed(row['excess'])}" for _, row in rows.iterrows()
    )
    return Drawing(figure, caption or text, f"Bars from 0. {text} {told}.", rows)


def checked_ablations(table: pd.DataFrame, *, scored: bool = True) -> pd.DataFrame:
    """The ablations in the paper's order; optional columns that are absent become undefined."""
    need(table, "row", "kind", "types", "n_heads")
    if scored:
        need(table, "f1", "f1_low", "f1_high")
    rows = table.sort_values("row", ignore_index=True)
    for kind in dict.fromkeys(rows["kind"]):
        check_choice("kind", kind, KINDS)
    rows["types"] = rows["types"].fillna("").astype(str)
    for name in dict.fromkeys(name for one in rows["types"] for name in touched_types(one)):
        if name not in TYPE_LOOKS:
            hint = did_you_mean(name, TYPE_LOOKS)
            raise UnknownName(f"type '{name}'. {hint}Known: {', '.join(TYPE_LOOKS)}.")
    if rows["row"].duplicated().any():
        raise BadValue(f"row {rows['row'][rows['row'].duplicated()].iloc[0]} stands there twice.")
    for name in ("paper_em", "paper_f1", *CONTROLS, *EXCESS):
        rows[name] = rows[name].astype(float) if name in rows.columns else math.nan
    return rows


def touched_types(types: str) -> list[str]:
    """The types of an ablation, from `dense+vertical`."""
    return [name for name in types.split("+") if name]


def phrase(row: pd.Series) -> str:
    """An ablation in words: `prune dense + vertical`; three of four types are `all but` one."""
    touched = touched_types(row["types"])
    left_out = [name for name in TYPE_LOOKS if name not in touched]
    names = f"all but {left_out[0]}" if len(touched) > 2 and left_out else " + ".join(touched)
    return f"{KINDS[row['kind']]} {names}".strip()


def _harmful(rows: pd.DataFrame) -> pd.Series:
    """Worse than random heads of the same layers, and not by chance."""
    return rows["excess_high"] < 0


def _spoken(row: pd.Series) -> str:
    beside = [
        f"{name} {row[column]:.1f}"
        for name, column in (("paper", "paper_f1"), ("random heads", "control_f1"))
        if not math.isnan(row[column])
    ]
    told = f" ({', '.join(beside)})" if beside else ""
    return f"{row['row']} {phrase(row)} {row['f1']:.1f}{told}".replace("nan", "undefined")


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.1f}".replace("-", "−")


def _places(rows: pd.DataFrame) -> tuple[np.ndarray, dict[str, float]]:
    """Where the rows stand, and where the name of each group stands above its rows."""
    at = 0.0
    places: list[float] = []
    heads: dict[str, float] = {}
    for kind in rows["kind"]:
        group = GROUPS.get(kind)
        if group and group not in heads:
            heads[group] = at + (0.35 if places else 0.0)
            at = heads[group] + 1.0
        places.append(at)
        at += 1.0
    return np.array(places), heads


def _touched(panel: Axes, rows: pd.DataFrame, places: np.ndarray, heads: dict[str, float]) -> None:
    """The number of a row and a mark for every type that it changes, in columns."""
    side: Any = {"va": "center_baseline", "fontsize": 8}
    first = places[min(i for i, one in enumerate([*rows["types"], "-"]) if one)] if len(rows) else 0
    columns = {name: 3.3 + 1.4 * i for i, name in enumerate(TYPE_LOOKS)}
    for name, x in columns.items():
        slant: Any = {"rotation": 40, "ha": "left", "va": "bottom", "fontsize": 8}
        panel.text(x - 0.2, max(first - 1.45, -0.6), name, **slant)
    for (_, row), y in zip(rows.iterrows(), places, strict=True):
        panel.text(0.1, y, f"{row['row']}", ha="right", **side)
        words = {"intra": "intra", "inter": "inter", "untapped": "without a tap"}
        panel.text(0.5, y, words.get(row["kind"], "" if row["types"] else row["kind"]), **side)
        for name, x in columns.items() if row["types"] else ():
            look = type_look(name)
            if name in touched_types(row["types"]):
                panel.plot([x], [y], look.marker, color=look.colour, ms=6.5, mew=0)
            else:
                panel.plot([x], [y], "o", color=style.FAINT, alpha=0.5, ms=2.5, mew=0)
    for name, y in heads.items():
        panel.text(-0.6, y, name, fontweight="bold", **side)
    panel.set_xlim(-0.7, 9.2)
    panel.axis("off")


def _row_marks(panel: Axes, rows: pd.DataFrame, places: np.ndarray) -> None:
    base = rows.loc[rows["kind"] == "baseline", "f1"].dropna()
    if len(base):
        panel.axvline(base.iloc[0], color=style.FAINT, lw=1, ls=(0, (4, 3)), label="baseline")
    if rows["control_f1"].notna().any():
        lower = places + 0.27
        panel.hlines(lower, rows["control_low"], rows["control_high"], color=style.INK, lw=0.9)
        mark: Any = {"ls": "none", "marker": "d", "ms": 5, "mfc": "none", "mec": style.INK}
        panel.plot(rows["control_f1"], lower, mew=1.1, label="random heads, same layers", **mark)
    panel.hlines(places, rows["f1_low"], rows["f1_high"], color=OURS, lw=2.6, alpha=0.5)
    dot: Any = {"ls": "none", "marker": "o", "ms": 6, "mew": 0, "color": OURS}
    panel.plot(rows["f1"], places, label="ours", clip_on=False, **dot)
    if rows["paper_f1"].notna().any():
        panel.plot(rows["paper_f1"], places, label="the paper", clip_on=False, **HOLLOW)
    panel.set_xlim(0, 100)
    panel.tick_params(labelleft=False)
    _score_axis(panel, "F1, percent")


def _row_texts(panel: Axes, rows: pd.DataFrame, places: np.ndarray) -> None:
    """Numbers to the right; those of a row that harms more than random heads are bold."""
    strong = _harmful(rows).to_numpy()

    def told(name: str, form: str) -> list[str]:
        return ["" if math.isnan(one) else format(one, form) for one in rows[name].astype(float)]

    count = ["" if not n else f"{int(n)}" for n in rows["n_heads"].fillna(0)]
    _column(panel, places, "heads", count, 34, right=True)
    _column(panel, places, "F1", told("f1", ".1f"), 64, right=True, bold=strong)
    if rows["control_f1"].notna().any():
        _column(panel, places, "random", told("control_f1", ".1f"), 104, right=True)
        _column(panel, places, "p", told("p", ".3f"), 134, right=True, bold=strong)


def _column(
    panel: Axes,
    places: Sequence[float] | np.ndarray,
    name: str,
    texts: Sequence[str],
    x: float,
    *,
    right: bool = False,
    bold: np.ndarray | None = None,
) -> None:
    """A column of words beside an axis, x points from its end."""
    side: Any = {"xycoords": panel.get_yaxis_transform(), "textcoords": "offset points"}
    side |= {"va": "center_baseline", "ha": "right" if right else "left", "xytext": (x, 0)}
    side |= {"annotation_clip": False, "fontsize": 8}
    panel.annotate(name, (1.0, places[0] - 1.0), alpha=0.65, **side)
    for i, (place, text) in enumerate(zip(places, texts, strict=True)):
        weight = "bold" if bold is not None and bold[i] else "normal"
        panel.annotate(text, (1.0, place), fontweight=weight, **side)


def _score_axis(panel: Axes, unit: str) -> None:
    panel.set_xlabel(unit, fontsize=8.5)
    panel.xaxis.set_major_locator(MaxNLocator(6))
    panel.grid(axis="x", color=style.FAINT, alpha=0.25, lw=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0, labelsize=8)
    panel.spines["left"].set_visible(False)
