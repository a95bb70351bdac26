"""What a reader loses with heads changed: figures and tables of ablations, beside controls."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from scipy.stats import norm

from attnlib.errors import BadValue, check_choice
from attnlib.measuring.head_tables import head_names
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.grids import cells
from attnlib.plots.labels import number
from attnlib.plots.panels import light_grid, one_legend, panel_grid
from attnlib.plots.planes import write_names
from attnlib.plots.rows import ROW, hollow_marks, row_axis, row_dots, row_words
from bookkit.pagetables import PageTable
from bookkit.templates import filled
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

CONTROLS = ("control_f1", "control_low", "control_high", "p")
BEYOND = tuple(
    f"{score}_beyond_{end}" for score in ("f1", "loss") for end in ("value", "low", "high")
)
"""How much more harm than a random set an ablation does: in points of F1, and in nats."""
HARM, RELIEF = style.LOOKS["special"].colour, style.LOOKS["next"].colour


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
    for name in ("paper_em", "paper_f1", *CONTROLS, *BEYOND):
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


# --- F1 of every row ------------------------------------------------------------------------------


def ablation_rows(table: pd.DataFrame) -> Drawing:
    """F1 of every ablation beside the paper's and random heads' (Guan 2020, Tables 2 and 3).

    table  row, kind, types, n_heads, f1, f1_low, f1_high; paper_f1, control_f1, control_low,
           control_high, f1_beyond_low and p where there are any
    """
    rows = checked_ablations(table, "f1", "f1_low", "f1_high")
    group = rows["kind"].map(GROUPS)
    new = group.notna() & ~group.duplicated()  # the name of a group stands above its first row
    places = np.arange(len(rows)) + 1.35 * new.cumsum().to_numpy() - 0.35 * new[0]
    with style.drawing():
        figure, (left, panel) = panel_grid(
            2, 1.3 + ROW * places[-1], gap=0.02, ratios=[2.3, 3.1], sharey=True
        )
        _touched(left, rows, places)
        for name, y in zip(group[new], places[new] - 1, strict=True):
            left.text(-0.6, y, name, fontweight="bold", fontsize=8, va="center_baseline")
        _row_marks(panel, rows, places)
        _row_words(panel, rows, places)
        one_legend(figure)
    return Drawing("Dots with intervals", figure, rows)


def _touched(panel: Axes, rows: pd.DataFrame, places: np.ndarray) -> None:
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
            mark: Any = {"marker": look.marker, "color": look.colour, "ms": 6.5}
            if name not in touched_types(row["types"]):
                mark = {"marker": "o", "color": style.FAINT, "alpha": 0.5, "ms": 2.5}
            panel.plot([x], [y], ls="none", mew=0, **mark)
    panel.set_xlim(-0.7, 9.2)
    panel.axis("off")


def _row_marks(panel: Axes, rows: pd.DataFrame, places: np.ndarray) -> None:
    for f1 in rows.loc[rows["kind"] == "baseline", "f1"]:
        panel.axvline(f1, color=style.FAINT, lw=1, ls=(0, (4, 3)), label="baseline")
    if rows["control_f1"].notna().any():
        mark: Any = {"marker": "d", "ms": 5, "mfc": "none", "mew": 1.1, "color": style.INK}
        control = rows[["control_f1", "control_low", "control_high"]]
        row_dots(panel, places + 0.27, control, "random heads, same layers", line=0.9, **mark)
    row_dots(panel, places, rows[["f1", "f1_low", "f1_high"]], "ours")
    hollow_marks(panel, places, rows["paper_f1"])
    row_axis(panel, places, [""] * len(rows), "F1, percent", (0, 100))


def _row_words(panel: Axes, rows: pd.DataFrame, places: np.ndarray) -> None:
    """Numbers to the right; those of a row that harms more than random heads are bold."""
    strong = list(rows["f1_beyond_low"] > 0)
    heads = [f"{n:.0f}" if n > 0 else "" for n in rows["n_heads"]]
    row_words(panel, places, "heads", heads, 34, right=True)
    f1, control, p = (
        [number(one, form, "") for one in rows[name]]
        for name, form in (("f1", ".1f"), ("control_f1", ".1f"), ("p", ".3f"))
    )
    row_words(panel, places, "F1", f1, 64, right=True, bold=strong)
    if rows["control_f1"].notna().any():
        row_words(panel, places, "random", control, 104, right=True)
        row_words(panel, places, "p", p, 134, right=True, bold=strong)


# --- beyond random heads --------------------------------------------------------------------------


def beyond_bars(table: pd.DataFrame) -> Drawing:
    """How much more F1 and confidence an ablation costs than one random set of the same layers.

    table  row, kind, types, n_heads, f1_beyond_value, _low, _high (points) and the same of the
           loss (nats); rows without are left out
    """
    rows = checked_ablations(table, *BEYOND)
    rows = rows[rows["f1_beyond_value"].notna()].reset_index(drop=True)
    if rows.empty:
        raise BadValue("no ablation has a control; there is no difference to draw.")
    places, labels = np.arange(len(rows)), [f"{phrase(r)}  {r['row']}" for _, r in rows.iterrows()]
    with style.drawing():
        figure, panels = panel_grid(2, 1.05 + ROW * len(rows), gap=0.04, sharey=True)
        for panel, score in zip(panels, ("f1", "loss"), strict=True):
            value, low, high = (rows[f"{score}_beyond_{end}"] for end in ("value", "low", "high"))
            kinds = (
                (low > 0, HARM, "more harm than a random set"),
                (high < 0, RELIEF, "less harm"),
            )
            for mine, colour, words in (*kinds, (~(low > 0) & ~(high < 0), style.FAINT, "neither")):
                if mine.any():
                    bar: Any = {"height": 0.62, "color": colour, "lw": 0, "label": words}
                    panel.barh(places[mine], value[mine], **bar)
            panel.hlines(places, low, high, color=style.INK, lw=1.2)
            panel.axvline(0, color=style.INK, lw=0.9)
            unit = {"f1": "points of F1 lost", "loss": "rise of the loss, nats"}[score]
            row_axis(panel, places, labels, unit, None)
        panels[1].tick_params(labelleft=False)
        one_legend(figure, "outside upper left")
    return Drawing("Bars from 0", figure, rows)


def power_curves(table: pd.DataFrame, kind: str = "prune") -> Drawing:
    r"""How often an interval would exclude 0, for a true loss of F1 (Table 2, one type each).

    .. math:: \\Phi(d / s - 1.96) + \\Phi(-d / s - 1.96)

    table  row, kind, types, n_heads, error: s, the standard error of the loss over articles
    """
    rows = checked_ablations(table, "error")
    rows = rows[(rows["kind"] == kind) & rows["types"].isin(list(TYPE_LOOKS))]
    loss = np.linspace(0, max(5.0, 4.5 * float(rows["error"].max())), 200)
    with style.drawing():
        figure, (panel,) = panel_grid(1, 2.8, width="column")
        for name, error in zip(rows["types"], rows["error"], strict=True):
            if error > 0:
                seen = norm.cdf(loss / error - 1.96) + norm.cdf(-loss / error - 1.96)
                look = TYPE_LOOKS[name]
                panel.plot(loss, 100 * seen, color=look.colour, ls=look.dash, label=name)
        panel.axhline(80, color=style.FAINT, lw=1, ls=(0, (4, 3)))
        panel.set(
            xlabel="true loss, points of F1", ylabel="seen, percent of samples", ylim=(0, 101)
        )
        light_grid(panel)
        one_legend(figure)
    return Drawing("Curves from left to right", figure, rows.reset_index(drop=True))


# --- the tables in the paper's layout -------------------------------------------------------------

NUMBERS = ("2", "3")


def paper_table(table: pd.DataFrame, number: str = "2") -> PageTable:
    """One of the paper's tables with our scores, the paper's and those of random heads.

    table   row, table, kind, types, n_heads, em, f1, f1_low, f1_high, loss; paper_em, paper_f1,
            control_f1 where there are any
    number  "2": types are pruned or substituted; "3": attention within or between sentences goes
    """
    check_choice("number", number, NUMBERS)
    rows = checked_ablations(table, "table", "em", "f1", "f1_low", "f1_high", "loss")
    rows = rows[rows["table"].astype(str) == number].reset_index(drop=True)
    if rows.empty:
        raise BadValue(f"no row belongs to Table {number}; the column table says '2' or '3'.")
    groups = rows["kind"].replace("untapped", "no tap")
    told = rows.assign(group=groups.where(groups != groups.shift(), ""))
    told["touched"] = rows["types"].map(touched_types)
    page, types = Path(__file__).with_suffix(".html"), list(TYPE_LOOKS)
    head = filled(page, number=number, types=types, rows=[])
    body = filled(page, number=number, types=types, rows=told.to_dict("records"))
    return PageTable("", rows, head, body, "attn-ablations")


# --- every head alone -----------------------------------------------------------------------------


def head_effects(table: pd.DataFrame, *, marked: int = 5) -> Drawing:
    """What every head alone is worth: a grid with 0 in the middle, and the heads of each type.

    table  layer, head, type, loss: how much higher the loss is without the head, in nats
    """
    rows = typed_heads(table, "loss")
    known = rows[rows["loss"].notna()].reset_index(drop=True)
    if known.empty:
        raise BadValue("no head has a value of loss; there is nothing to draw.")
    size = float(known["loss"].abs().max()) or 1.0
    reach = min(size, 2.5 * float(known["loss"].abs().quantile(0.95)) or size)
    top = known.assign(name=head_names(known)).nlargest(marked, "loss")
    what = "rise of the loss, nats"
    with style.drawing():
        tall = 1.15 + 3.3 * rows["layer"].max() / rows["head"].max()
        tall = max(2.8, min(tall, 6.0))
        figure, (left, right) = panel_grid(2, tall, gap=0.06, ratios=[1.45, 1])
        shades: Any = {"unit": what, "colours": style.DIVERGING}
        cells(left, known, "loss", (-reach, reach), marked=marked, **shades)
        right.set_ylabel(what, fontsize=8)
        places = _strips(right, known)
        write_names(right, top.assign(**places), known.assign(**places), away=(4, 2))
    return Drawing("A grid of heads and dots by type", figure, rows)


def _strips(panel: Axes, rows: pd.DataFrame) -> dict[str, pd.Series]:
    """A dot per head above its type, spread a little, with the mean of the type; x and y of all."""
    names = [name for name in TYPE_LOOKS if (rows["type"] == name).any()]
    x, y = rows["type"].map(names.index).astype(float), rows["loss"]
    x += 0.3 * np.sin(2.4 * rows.groupby("type").cumcount())  # the same every time
    panel.axhline(0, color=style.INK, lw=0.8, alpha=0.6)
    for place, name in enumerate(names):
        mine, look = rows["type"] == name, TYPE_LOOKS[name]
        dots: Any = {"marker": look.marker, "color": look.colour, "ls": "none", "ms": 4, "mew": 0}
        panel.plot(x[mine], y[mine], alpha=0.6, **dots)
        panel.plot([place - 0.38, place + 0.38], [y[mine].mean()] * 2, color=look.colour, lw=2.4)
    panel.set_xticks(range(len(names)), [name.replace("&", "&\n") for name in names])
    panel.set_xlim(-0.6, len(names) - 0.4)
    panel.tick_params(axis="x", length=0, labelsize=8)
    light_grid(panel)
    return {"x": x, "y": y}
