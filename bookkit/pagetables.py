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

from bookkit.claims import Finding, Judgement
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
    "reproduced": ("yes", "✓"),
    "partly": ("partly", "◐"),
    "not reproduced": ("no", "✗"),
    "not comparable": ("apart", "≠"),
    "absent": ("absent", "–"),
}


def claim_table(
    judgements: Sequence[Judgement], deviations: Mapping[str, str], *, own: bool = False
) -> PageTable:
    """Claim, the paper, ours, the verdict; below, each deviation that a row names, once.

    own  the claims are no paper's, but those of this book
    """
    rows = pd.DataFrame([_claim_cells(one) for one in judgements], columns=list(CLAIM_COLUMNS))
    words = OWN_WORDS if own else {}
    head = "".join(f"<th>{words.get(name, name)}</th>" for name in CLAIM_COLUMNS)
    told = zip(judgements, rows.to_dict("records"), strict=True)
    cells = [(one, *_paper_says(one), row) for one, row in told]
    body = filled(HERE / "claims.html", rows=cells, badge=badge)
    named = {key for one in judgements for key in one.claim.deviations}
    notes = "".join(
        f"<dt>{html.escape(key)}</dt><dd>{html.escape(text)}</dd>"
        for key, text in deviations.items()
        if key in named
    )
    counts: Counter[str] = Counter(one.verdict for one in judgements)
    verdicts = ", ".join(f"{counts[name]} {name}" for name in BADGES if counts[name])
    after = f"<dl>{notes}</dl>" if notes else ""
    beside = "What we found beside what we said" if own else "Ours beside the paper"
    return PageTable(
        f"{beside}: {verdicts or 'no claim'}.", rows, f"<tr>{head}</tr>", body, "attn-claims", after
    )


def claim_rows(judgements: Sequence[Judgement]) -> list[dict[str, str]]:
    """The same claims for a program, each number as the table shows it."""
    rows = []
    for one in judgements:
        where, _, ours, interval, phenomenon, verdict, _ = _claim_cells(one)
        value, said = _paper_says(one)
        row = {"id": one.claim.id, "where": where, "paper": value or said, "ours": ours}
        row |= {"interval": interval, "phenomenon": phenomenon, "verdict": verdict}
        rows.append(row)
    return rows


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


def badge(verdict: str, reason: str) -> str:
    """A verdict with its sign; the reason shows when somebody points at it."""
    kind, sign = BADGES[verdict]
    title = html.escape(reason, quote=True)
    words = f'<i aria-hidden="true">{sign}</i> {verdict}'
    return f'<span class="badge {kind}" title="{title}">{words}</span>'


def paper_name(key: str) -> str:
    """`clark2019` as people write it."""
    return f"{key[:-4].capitalize()} {key[-4:]}" if key[-4:].isdigit() else key.capitalize()


def _claim_cells(one: Judgement) -> tuple[str, ...]:
    claim, (value, said) = one.claim, _paper_says(one)
    ours = one.ours or Finding(math.nan)
    percent = "%" if value.endswith("%") and not math.isnan(ours.value) else ""
    seen = ""
    if one.phenomenon is not None and claim.phenomenon.measure != claim.measure:
        interval = interval_text(one.phenomenon.low, one.phenomenon.high)
        within = f", {interval}" if interval != "–" else ""
        seen = f" (here {number_text(one.phenomenon.value)}{within})"
    return (
        claim.where,
        f"{value}{': ' if value and said else ''}{said}",
        number_text(ours.value) + percent,
        interval_text(ours.low, ours.high),
        f"{claim.phenomenon.text}{seen}",
        one.verdict,
        ", ".join(claim.deviations),
    )


def _paper_says(one: Judgement) -> tuple[str, str]:
    """The paper's number as it was printed, with its unit, and its words; either may be empty."""
    told = one.claim.value
    unit = str(told.get("unit", ""))
    sign = {"percent": "%", "": ""}.get(unit, f" {unit}")
    number = f"{float(told['value']):g}{sign}".replace("-", "−") if "value" in told else ""
    return number, str(told.get("claim", ""))
