"""What a reader loses with heads changed: figures and tables of ablations, beside controls."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from attnlib.errors import BadValue, check_choice
from attnlib.measuring.head_tables import head_names
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.panels import light_grid
from attnlib.plots.rows import HOLLOW, OURS
from bookkit.pagetables import PageTable
from experiments.guan2020.type_figures import TYPE_LOOKS, check_types, typed_heads

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


def checked_ablations(table: pd.DataFrame, *needed: str) -> pd.DataFrame:
    """The ablations in the paper's order; optional columns that are absent become undefined."""
    need(table, "row", "kind", "types", "n_heads", *needed)
    rows = table.sort_values("row", ignore_index=True)
    for kind in dict.fromkeys(rows["kind"]):
        check_choice("kind", kind, KINDS)
    rows["types"] = rows["types"].fillna("").astype(str)
    check_types(name for one in rows["types"] for name in touched_types(one))
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


def _number(value: float, form: str = ".1f", otherwise: str = "–") -> str:
    return otherwise if math.isnan(value) else format(value, form).replace("-", "−")


# --- F1 of every row ------------------------------------------------------------------------------


def ablation_rows(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """F1 of every ablation beside the paper's and random heads' (Guan 2020, Tables 2 and 3).

    table  row, kind, types, n_heads, f1, f1_low, f1_high; paper_f1, control_f1, control_low,
           control_high, excess_high and p where there are any
    """
    rows = checked_ablations(table, "f1", "f1_low", "f1_high")
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
    done = rows[rows["types"] != ""]
    worst, best = done.loc[done["f1"].idxmin()], done.loc[done["f1"].idxmax()]
    text = "F1 with 95% intervals. "
    base = rows.loc[rows["kind"] == "baseline", "f1"]
    if len(base):
        text += f"Baseline F1 {base.iloc[0]:.1f}. "
    text += (
        f"The worst is '{phrase(worst)}' ({worst['f1']:.1f}), the mildest '{phrase(best)}' "
        f"({best['f1']:.1f})."
    )
    if tested := int(rows["excess_high"].notna().sum()):
        beyond = int((rows["excess_high"] < 0).sum())
        text += f" {beyond} of {tested} ablations do more harm than random heads of the same "
        text += "layers (bold)."
    told = "; ".join(_spoken(row) for _, row in rows.iterrows())
    return Drawing(figure, caption or text, f"Dots with intervals. {text} By row: {told}.", rows)


def _spoken(row: pd.Series) -> str:
    beside = [
        f"{name} {row[column]:.1f}"
        for name, column in (("paper", "paper_f1"), ("random heads", "control_f1"))
        if not math.isnan(row[column])
    ]
    told = f" ({', '.join(beside)})" if beside else ""
    return f"{row['row']} {phrase(row)} {row['f1']:.1f}{told}"


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
    first = places[(rows["types"] != "").to_numpy()].min()
    columns = {name: 3.3 + 1.4 * i for i, name in enumerate(TYPE_LOOKS)}
    for name, x in columns.items():
        slant: Any = {"rotation": 40, "ha": "left", "va": "bottom", "fontsize": 8}
        panel.text(x - 0.2, max(first - 1.45, -0.6), name, **slant)
    words = {"intra": "intra", "inter": "inter", "untapped": "without a tap"}
    for (_, row), y in zip(rows.iterrows(), places, strict=True):
        panel.text(0.1, y, f"{row['row']}", ha="right", **side)
        panel.text(0.5, y, words.get(row["kind"], "" if row["types"] else row["kind"]), **side)
        for name, x in columns.items() if row["types"] else ():
            look = TYPE_LOOKS[name]
            if name in touched_types(row["types"]):
                panel.plot([x], [y], look.marker, color=look.colour, ms=6.5, mew=0)
            else:
                panel.plot([x], [y], "o", color=style.FAINT, alpha=0.5, ms=2.5, mew=0)
    for name, y in heads.items():
        panel.text(-0.6, y, name, fontweight="bold", **side)
    panel.set_xlim(-0.7, 9.2)
    panel.axis("off")


def _row_marks(panel: Axes, rows: pd.DataFrame, places: np.ndarray) -> None:
    base = rows.loc[rows["kind"] == "baseline", "f1"]
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
    strong = (rows["excess_high"] < 0).to_numpy()

    def told(name: str, form: str) -> list[str]:
        return [_number(one, form, "") for one in rows[name]]

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


# --- beyond random heads --------------------------------------------------------------------------


def excess_bars(table: pd.DataFrame, *, caption: str | None = None) -> Drawing:
    """How far F1 lies below (or above) that of random heads from the same layers, by ablation.

    table  row, kind, types, n_heads, excess, excess_low, excess_high, p; rows without are left out
    """
    rows = checked_ablations(table, *EXCESS)
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
        ends = rows[list(EXCESS[:3])].map(lambda one: _number(one, "+.1f")).to_numpy()
        texts = [f"{value} [{low}, {high}]" for value, low, high in ends]
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
        f"({_number(worst['excess'], '+.1f')} points). Lines are 95% intervals."
    )
    told = "; ".join(
        f"row {row['row']}, {phrase(row)} {_number(row['excess'], '+.1f')}"
        for _, row in rows.iterrows()
    )
    return Drawing(figure, caption or text, f"Bars from 0. {text} {told}.", rows)


# --- the tables in the paper's layout -------------------------------------------------------------

NUMBERS = ("2", "3")
_SCORES = {"exact match": ("ours", "paper"), "F1": ("ours", "paper", "random")}
_GROUPS = {"untapped": "no tap", "intra": "remove", "inter": "remove"}
_SIGNS = {
    "kept": '<span class="quiet" role="img" aria-label="kept">✓</span>',
    "prune": '<b role="img" aria-label="weights are 0">✗</b>',
    "substitute": '<b role="img" aria-label="weights are 1 by length">1/L</b>',
    "intra": '<b role="img" aria-label="removed">✗</b>',
    "inter": '<b role="img" aria-label="removed">✗</b>',
}


def paper_table(table: pd.DataFrame, number: str = "2", *, caption: str | None = None) -> PageTable:
    """One of the paper's tables with our scores, the paper's and those of random heads.

    table   row, table, kind, types, n_heads, em, f1, f1_low, f1_high; paper_em, paper_f1,
            control_f1 where there are any
    number  "2": types are pruned or substituted; "3": attention within or between sentences goes
    """
    check_choice("number", number, NUMBERS)
    rows = checked_ablations(table, "table", "em", "f1", "f1_low", "f1_high")
    rows = rows[rows["table"].astype(str) == number].reset_index(drop=True)
    if rows.empty:
        raise BadValue(f"no row belongs to Table {number}; the column table says '2' or '3'.")
    body, shown = "", ""
    for _, row in rows.iterrows():
        group = _GROUPS.get(row["kind"], row["kind"])
        name = f"<th>{group if group != shown else ''}</th>" if number == "2" else ""
        first = ' class="first"' if number == "2" and group != shown else ""
        heads = f"{int(row['n_heads'])}" if row["n_heads"] > 0 else "–"
        cells = [row["row"], *_signs(row, number), heads, *_scores(row)]
        body += f"<tr{first}>{name}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        shown = group
    return PageTable(caption or _caption(rows, number), rows, _head(number), body, "attn-ablations")


def _head(number: str) -> str:
    """Types above; in Table 3 each has a column for either part of its attention."""
    names = [html.escape(name).replace("&amp;", "&amp;<wbr>") for name in TYPE_LOOKS]
    tall = '<th rowspan="2">'
    if number == "2":
        types, below = "".join(f"{tall}{name}</th>" for name in names), ""
        start = f"{tall}</th>{tall}row</th>"
    else:
        types = "".join(f'<th colspan="2" scope="colgroup">{name}</th>' for name in names)
        start, below = f"{tall}row</th>", "<th>intra</th><th>inter</th>" * len(names)
    scores = "".join(
        f'<th colspan="{len(columns)}" scope="colgroup">{name}</th>'
        for name, columns in _SCORES.items()
    )
    below += "".join(f"<th>{name}</th>" for columns in _SCORES.values() for name in columns)
    return f"<tr>{start}{types}{tall}heads</th>{scores}</tr><tr>{below}</tr>"


def _signs(row: pd.Series, number: str) -> list[str]:
    """A check mark where a type is as it was, otherwise what is done to it."""
    parts = ("intra", "inter") if number == "3" else (row["kind"],)
    touched = touched_types(row["types"])
    return [
        _SIGNS[part if name in touched and part == row["kind"] else "kept"]
        for name in TYPE_LOOKS
        for part in parts
    ]


def _scores(row: pd.Series) -> list[str]:
    f1 = _number(row["f1"])
    if not math.isnan(row["f1_low"]):
        ends = f"[{row['f1_low']:.1f},&nbsp;{row['f1_high']:.1f}]"
        f1 += f'&nbsp;<span class="quiet">{ends}</span>'
    paper_em, paper_f1 = (_number(row[name], ".2f") for name in ("paper_em", "paper_f1"))
    return [_number(row["em"]), paper_em, f1, paper_f1, _number(row["control_f1"])]


def _caption(rows: pd.DataFrame, number: str) -> str:
    signs = (
        "✓ as it is, ✗ weights are 0, 1/L weights are even"
        if number == "2"
        else "✓ as it is, ✗ attention within (intra) or between (inter) sentences removed"
    )
    if rows["control_f1"].notna().any():
        signs += "; random: the mean of as many random heads of the same layers"
    known = rows.dropna(subset=["f1", "paper_f1"])
    near = ""
    if len(known) > 1:
        rho = _number(known["f1"].rank().corr(known["paper_f1"].rank()), ".2f")
        near = f" The ranks of F1, ours and the paper's, correlate with {rho}."
    return f"Table {number} of the paper: {signs}. Ours in percent.{near}"


# --- every head alone -----------------------------------------------------------------------------


def head_effects(
    table: pd.DataFrame,
    value: str = "loss",
    *,
    what: str = "rise of the loss",
    unit: str = "nats",
    marked: int = 5,
    caption: str | None = None,
) -> Drawing:
    """What every head alone is worth: a grid with 0 in the middle, and the heads of each type.

    table  layer, head, type, and `value`: how much worse the model is without the head
    """
    rows = typed_heads(table, value)
    known = rows[rows[value].notna()].reset_index(drop=True)
    if known.empty:
        raise BadValue(f"no head has a value of {value}; there is nothing to draw.")
    size = float(known[value].abs().max()) or 1.0
    reach = min(size, 2.5 * float(known[value].abs().quantile(0.95)) or size)
    top = known.nlargest(marked, value).assign(name=lambda part: head_names(part))
    with style.drawing():
        tall = 1.15 + 3.3 * rows["layer"].max() / rows["head"].max()
        shape: Any = {"gridspec_kw": {"width_ratios": [1.45, 1]}}
        figure = Figure(figsize=(style.WIDTHS["wide"], max(2.8, min(tall, 6.0))))
        figure.set_layout_engine(ConstrainedLayoutEngine(wspace=0.06))
        left, right = figure.subplots(1, 2, **shape)
        _effect_grid(left, known, value, reach, top, f"{what}, {unit}")
        _effect_strips(right, known, value, top)
        right.set_ylabel(f"{what}, {unit}", fontsize=8)
    by_type = known.groupby("type")[value].mean()
    shown = [name for name in TYPE_LOOKS if name in by_type.index]
    means = "; ".join(f"{name} {_number(by_type[name], '.2g')}" for name in shown)
    first = ", ".join(f"{row['name']} ({_number(row[value], '.2g')})" for _, row in top.iterrows())
    helped = int((known[value] < 0).sum())
    text = (
        f"One cell per head: {what} without it, in {unit}. Most: {first}. Mean of a type: {means}. "
        f"{helped} of {len(known)} values are below 0."
    )
    return Drawing(figure, caption or text, f"A grid of heads and dots by type. {text}", rows)


def _effect_grid(
    panel: Axes, rows: pd.DataFrame, value: str, reach: float, top: pd.DataFrame, unit: str
) -> None:
    grid = rows.pivot(index="layer", columns="head", values=value)
    scale = Normalize(-reach, reach)
    cells: Any = {"cmap": style.DIVERGING, "norm": scale, "lw": 0.6, "ec": "white"}
    mesh = panel.pcolormesh(grid.columns, grid.index, grid, **cells)
    panel.set(aspect="equal", xlabel="head", ylabel="layer")
    panel.invert_yaxis()
    for axis, names in ((panel.xaxis, grid.columns), (panel.yaxis, grid.index)):
        axis.set_ticks(list(names)[:: 1 if len(names) <= 12 else 2])
    panel.tick_params(length=0, labelsize=7.5)
    panel.spines[:].set_visible(False)
    over = {(False, False): "neither", (True, False): "min", (False, True): "max"}
    ends = (rows[value].min() < -reach, rows[value].max() > reach)
    bar = panel.figure.colorbar(
        mesh, ax=panel, shrink=0.8, aspect=26, pad=0.02, extend=over.get(ends, "both")
    )
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.ax.tick_params(length=0, labelsize=7.5)
    bar.locator = MaxNLocator(5)
    bar.set_label(unit, fontsize=8)
    middle: Any = {"ha": "center", "va": "center_baseline", "fontsize": 7}
    for _, row in top.iterrows():
        dark = style.luminance(to_hex(style.DIVERGING(scale(row[value])))) < 0.3
        told = _number(row[value], ".2f").replace("0.", ".", 1)
        ink = "white" if dark else "black"
        panel.text(row["head"], row["layer"], told, color=ink, **middle)


def _effect_strips(panel: Axes, rows: pd.DataFrame, value: str, top: pd.DataFrame) -> None:
    """A dot per head above its type, spread a little, with the mean of the type."""
    names = [name for name in TYPE_LOOKS if (rows["type"] == name).any()]
    places = pd.Series(0.0, index=rows.index)
    panel.axhline(0, color=style.INK, lw=0.8, alpha=0.6)
    for x, name in enumerate(names):
        part, look = rows[rows["type"] == name], TYPE_LOOKS[name]
        places[part.index] = x + 0.3 * np.sin(2.4 * np.arange(len(part)))  # the same every time
        dots: Any = {"marker": look.marker, "color": look.colour, "ls": "none", "ms": 4, "mew": 0}
        panel.plot(places[part.index], part[value], alpha=0.6, **dots)
        mean = part[value].mean()
        panel.plot([x - 0.38, x + 0.38], [mean, mean], color=look.colour, lw=2.4)
    written: list[tuple[float, float]] = []
    for place, row in top.iterrows():
        across, up = float(places[place]), float(row[value])  # type: ignore[call-overload]
        apart = 0.055 * float(np.ptp(rows[value]))
        if any(abs(across - a) < 1.3 and abs(up - b) < apart for a, b in written):
            continue  # two names would cover each other; the caption has them all
        written.append((across, up))
        left = across > len(names) - 0.9
        side: Any = {"xytext": (-5 if left else 5, 0), "ha": "right" if left else "left"}
        side |= {"textcoords": "offset points", "va": "center", "fontsize": 7.5}
        panel.annotate(row["name"], (across, up), **side)
    panel.set_xticks(range(len(names)), [name.replace("&", "&\n") for name in names])
    panel.set_xlim(-0.6, len(names) - 0.4)
    panel.tick_params(axis="x", length=0, labelsize=8)
    light_grid(panel)
