"""The ablations as tables in the paper's layout (Guan 2020, Tables 2 and 3)."""

from __future__ import annotations

import html
import math

import pandas as pd

from attnlib.errors import BadValue, check_choice
from attnlib.plots.drawing import need
from bookkit.pagetables import PageTable
from experiments.guan2020.ablationfigures import checked_ablations, touched_types
from experiments.guan2020.typefigures import TYPE_LOOKS

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


class AblationTable(PageTable):
    """Ablations in the paper's layout, ours beside the paper's and the controls."""


def paper_table(
    table: pd.DataFrame, number: str = "2", *, caption: str | None = None
) -> AblationTable:
    """One of the paper's tables with our scores, the paper's and those of random heads.

    table   row, table, kind, types, n_heads, em, f1, f1_low, f1_high; paper_em, paper_f1,
            control_f1 where there are any
    number  "2": types are pruned or substituted; "3": attention within or between sentences goes
    """
    check_choice("number", number, NUMBERS)
    need(table, "table", "em")
    rows = checked_ablations(table)
    rows = rows[rows["table"].astype(str) == number].reset_index(drop=True)
    if rows.empty:
        raise BadValue(f"no row belongs to Table {number}; the column table says '2' or '3'.")
    body, shown = "", ""
    for _, row in rows.iterrows():
        group = _GROUPS.get(row["kind"], row["kind"])
        name = f"<th>{group if group != shown else ''}</th>" if number == "2" else ""
        first = ' class="first"' if number == "2" and group != shown else ""
        cells = [*_type_cells(row, number), f"<td>{_heads(row)}</td>", *_score_cells(row)]
        body += f"<tr{first}>{name}<td>{row['row']}</td>{''.join(cells)}</tr>"
        shown = group
    text = caption or _caption(rows, number)
    return AblationTable(text, rows, _head(number), body, "attn-ablations")


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


def _type_cells(row: pd.Series, number: str) -> list[str]:
    """A check mark where a type is as it was, otherwise what is done to it."""
    touched = touched_types(row["types"])
    if number == "2":
        return [f"<td>{_SIGNS[row['kind'] if n in touched else 'kept']}</td>" for n in TYPE_LOOKS]
    return [
        f"<td>{_SIGNS[part if name in touched and part == row['kind'] else 'kept']}</td>"
        for name in TYPE_LOOKS
        for part in ("intra", "inter")
    ]


def _heads(row: pd.Series) -> str:
    return f"{int(row['n_heads'])}" if row["n_heads"] > 0 else "–"


def _score_cells(row: pd.Series) -> list[str]:
    f1 = _number(row["f1"])
    if not math.isnan(row["f1_low"]):
        ends = f"[{row['f1_low']:.1f},&nbsp;{row['f1_high']:.1f}]"
        f1 += f'&nbsp;<span class="quiet">{ends}</span>'
    match = [_number(row["em"]), _number(row["paper_em"], 2)]
    cells = [*match, f1, _number(row["paper_f1"], 2), _number(row["control_f1"])]
    return [f"<td>{cell}</td>" for cell in cells]


def _number(value: float, digits: int = 1) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _caption(rows: pd.DataFrame, number: str) -> str:
    signs = (
        "✓ as it is, ✗ weights are 0, 1/L weights are even"
        if number == "2"
        else "✓ as it is, ✗ attention within (intra) or between (inter) sentences removed"
    )
    known = rows.dropna(subset=["f1", "paper_f1"])
    near = ""
    if len(known) > 1:
        rho = known["f1"].rank().corr(known["paper_f1"].rank())
        near = f" The ranks of F1, ours and the paper's, correlate with {rho:.2f}."
    random = "; random: the mean of as many random heads of the same layers"
    if rows["control_f1"].isna().all():
        random = ""
    return f"Table {number} of the paper: {signs}{random}. Ours in percent.{near}".replace("-", "−")
