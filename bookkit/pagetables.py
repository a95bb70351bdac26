"""Tables for the page: numbers measured two ways, and claims with their verdicts."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from bookkit.errors import BadValue
from bookkit.templates import filled

HERE = Path(__file__).parent
OURS, FAINT = "#7a6fc4", "#8b9199"
"""Colours of the small pictures: our numbers, and lines that only guide the eye."""


@dataclass(frozen=True)
class PageTable:
    """A table for the page: rows of HTML, and `.table` with what they show."""

    caption: str
    table: pd.DataFrame = field(repr=False)
    head: str = field(repr=False)
    body: str = field(repr=False)
    kind: str = ""
    after: str = field(default="", repr=False)

    def said(self, caption: str) -> PageTable:
        """The same table with a caption."""
        return replace(self, caption=caption)

    def _repr_html_(self) -> str:
        caption = f"<caption>{html.escape(self.caption)}</caption>"
        inside = f"{caption}<thead>{self.head}</thead><tbody>{self.body}</tbody>"
        kind = f"attn-table {self.kind}".rstrip()
        return f'<div class="{kind}"><table>{inside}</table>{self.after}</div>'


def variant_effects(table: pd.DataFrame) -> PageTable:
    """What reading the paper and running the authors' code do to each number, both on our data.

    table  what, unit, paper_way, authors_way
    """
    columns = ["what", "unit", "paper_way", "authors_way"]
    for name in columns:
        if name not in table:
            have = ", ".join(map(str, table.columns))
            raise BadValue(f"the table has no column {name}; it has {have}.")
    if table.empty:
        raise BadValue("the table has no row; there is nothing to draw.")
    names = ("quantity", "● the paper's text", "◆ the authors' code", "", "change")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = [_variant_cells(*row) for row in table[columns].itertuples(index=False)]
    body = filled(HERE / "variants.html", rows=rows, ours=OURS, faint=FAINT)
    text = "Each quantity measured twice on the same data; the bar starts at 0."
    return PageTable(text, table.reset_index(drop=True), f"<tr>{head}</tr>", body, "attn-variants")


def _variant_cells(what: str, unit: str, one: float, two: float) -> tuple[Any, ...]:
    """Both numbers, the change, and where both are on a line from 0, if they can be drawn there."""
    numbers = ["–" if math.isnan(value) else f"{value:.4g}" for value in (one, two)]
    change = f"{two - one:+.3g}" if two != one else "none"
    if one and two != one:
        percent = 100 * (two - one) / abs(one)
        change += f" ({percent:+{'.0f' if abs(percent) >= 10 else '.2g'}}%)"
    if math.isnan(one + two):
        change = "–"
    shown = [text.replace("-", "−") for text in (*numbers, change)]
    can_be_drawn = min(one, two) >= 0 and max(one, two) > 0 and not math.isnan(one + two)
    ends = [6 + 108 * value / max(one, two) for value in (one, two)] if can_be_drawn else []
    return str(what), str(unit), *shown, ends


CLAIM_COLUMNS = ("claim", "paper", "ours", "95% interval", "phenomenon", "verdict", "deviations")
OWN_WORDS = {"paper": "we said", "ours": "we found", "phenomenon": "holds if"}
"""Headings where the claims are this book's own."""

BADGES = {
    "holds": ("yes", "✓"),
    "undecided": ("partly", "◐"),
    "fails": ("no", "✗"),
    "undefined": ("apart", "≠"),
    "to be run": ("absent", "–"),
    "definition": ("absent", "≡"),
}
VALUE_BADGES = {"same": ("yes", "="), "differs": ("no", "≠")}

Row = Mapping[str, Any]
"""A row of the ledger, see `bookkit.claims.ledger_row`."""


def shown_verdict(row: Row) -> str:
    """The verdict on a finding; of a definition, that it is one."""
    return "definition" if row["evidence"] == "definition" else str(row["verdict"])


def claim_table(
    rows: Sequence[Row], deviations: Mapping[str, str], *, own: bool = False
) -> PageTable:
    """Claim, the paper, ours, the verdict; below, each deviation that a row names, once.

    own  the claims are no paper's, but those of this book
    """
    words = OWN_WORDS if own else {}
    head = "".join(f"<th>{words.get(name, name)}</th>" for name in CLAIM_COLUMNS)
    cells = [claim_cells(row) for row in rows]
    body = filled(HERE / "claims.html", rows=list(zip(rows, cells, strict=True)), badges=badges)
    named = {key for row in rows for key in row["deviations"]}
    notes = "".join(
        f"<dt>{html.escape(key)}</dt><dd>{html.escape(text)}</dd>"
        for key, text in deviations.items()
        if key in named
    )
    counts = Counter(shown_verdict(row) for row in rows)
    verdicts = ", ".join(f"{counts[name]} {name}" for name in BADGES if counts[name])
    after = f"<dl>{notes}</dl>" if notes else ""
    compared = "What we found and what we said" if own else "Our numbers next to the paper's"
    caption = f"{compared}: {verdicts or 'no claim'}."
    table = pd.DataFrame(cells, columns=list(CLAIM_COLUMNS))
    return PageTable(caption, table, f"<tr>{head}</tr>", body, "attn-claims", after)


def claim_cells(row: Row) -> dict[str, str]:
    """A row of the ledger in words, by the columns of the table."""
    unit = {"percent": "%", None: ""}.get(row["unit"], f" {row['unit']}")
    value = row["paper_value"]
    number = ""
    if isinstance(value, int | float):
        sign = {"at_least": "≥ ", "at_most": "≤ "}.get(row["paper_bound"], "")
        number = f"{sign}{value:g}{unit}".replace("-", "−")
    ours = number_text(row["ours"])
    if unit == "%" and row["ours"] is not None:
        ours += "%"
    seen = ""
    if row["seen"] is not None and not row["same_measure"]:
        interval = interval_text(row["seen_low"], row["seen_high"])
        within = f", {interval}" if interval != "–" else ""
        seen = f" (here {number_text(row['seen'])}{within})"
    return {
        "claim": row["where"],
        "paper": ": ".join(part for part in (number, row["paper_says"]) if part),
        "ours": ours,
        "95% interval": interval_text(row["low"], row["high"]),
        "phenomenon": f"{row['phenomenon']}{seen}",
        "verdict": shown_verdict(row),
        "deviations": ", ".join(row["deviations"]),
    }


def number_text(value: float | None) -> str:
    """About three digits that count, the same number of decimals for numbers of one size."""
    if value is None or math.isnan(value):
        return "–"
    size = abs(value)
    if value == int(value) and size < 1e6:
        text = f"{int(value):,}"
    elif size < 0.01:
        text = f"{value:.2g}"
    else:
        text = f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"
    return text.replace("-", "−")


def interval_text(low: float | None, high: float | None) -> str:
    """Both ends of an interval; a dash where one is not known."""
    ends = number_text(low), number_text(high)
    return "–" if "–" in ends else " to ".join(ends)


def badges(row: Row) -> str:
    """The verdicts of a row with their signs; the reason shows when somebody points at it."""
    shown = [_badge(*BADGES[shown_verdict(row)], shown_verdict(row), row["reason"] or "")]
    if row["value_verdict"] is not None:
        why = f"within {row['tolerance']:g} of the paper's value" if row["tolerance"] else ""
        shown.append(
            _badge(*VALUE_BADGES[row["value_verdict"]], f"value {row['value_verdict']}", why)
        )
    return " ".join(shown)


def _badge(kind: str, sign: str, word: str, reason: str) -> str:
    title = html.escape(reason, quote=True)
    words = f'<i aria-hidden="true">{sign}</i> {word}'
    return f'<span class="badge {kind}" title="{title}">{words}</span>'


def paper_name(key: str) -> str:
    """`clark2019` as people write it."""
    return f"{key[:-4].capitalize()} {key[-4:]}" if key[-4:].isdigit() else key.capitalize()
