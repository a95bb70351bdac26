"""The ledger on a page: every claim in one table that a reader can filter, and bars of verdicts."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bookkit.claims import load_paper
from bookkit.pagetables import (
    BADGES,
    CLAIM_COLUMNS,
    badge,
    claim_cells,
    interval_text,
    number_text,
    paper_name,
)

Row = Mapping[str, Any]


# The table is whole without the script, which only hides rows.
SCRIPT = Path(__file__).with_name("ledger.js").read_text(encoding="utf-8")


def ledger_table(rows: Sequence[Row], chapters: Collection[str] | None = None) -> str:
    """A row for every claim, and filters.

    chapters  the papers whose chapters are in the book: only these are linked; None: all
    """
    linked = {row["paper"] for row in rows} if chapters is None else set(chapters)
    head = "".join(f'<th scope="col">{name}</th>' for name in CLAIM_COLUMNS)
    body = "".join(_row(row, linked) for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return raw(
        f'<div class="attn-ledger"><div class="filters" hidden>{_filters(rows)}</div>'
        f'<div class="attn-table attn-claims">{table}</div></div><script>\n{SCRIPT}</script>'
    )


def verdict_bars(rows: Sequence[Row]) -> str:
    """HTML: for each paper a bar of its verdicts; each part leads to those claims in the ledger."""
    lines = []
    for paper in dict.fromkeys(row["paper"] for row in rows):
        own = [row for row in rows if row["paper"] == paper]
        parts = []
        for verdict, (kind, sign) in BADGES.items():
            n = sum(row["verdict"] == verdict for row in own)
            if n:
                where = f"ledger.html?paper={paper}&amp;verdict={verdict.replace(' ', '+')}"
                told = f"{paper_name(paper)}: {n} of {len(own)} {verdict}"
                parts.append(
                    f'<a class="{kind}" style="flex-grow:{n}" href="{where}" title="{told}" '
                    f'aria-label="{told}"><i aria-hidden="true">{sign}</i> {n}</a>'
                )
        lines.append(
            f'<div class="line"><span>{paper_name(paper)}</span>'
            f'<div class="bar">{"".join(parts)}</div></div>'
        )
    legend = " ".join(
        f'<span class="{kind}"><i aria-hidden="true">{sign}</i> {verdict}</span>'
        for verdict, (kind, sign) in BADGES.items()
        if any(row["verdict"] == verdict for row in rows)
    )
    return f'<div class="attn-verdicts">{"".join(lines)}<p class="legend">{legend}</p></div>'


def raw(text: str) -> str:
    """HTML in a MyST page."""
    return f"```{{raw}} html\n{text}\n```\n"


def _filters(rows: Sequence[Row]) -> str:
    groups = []
    for kind in ("paper", "verdict"):
        values = list(dict.fromkeys(row[kind] for row in rows))
        if kind == "verdict":
            values = [verdict for verdict in BADGES if verdict in values]
        buttons = "".join(
            f'<button type="button" data-kind="{kind}" data-value="{value}" aria-pressed="false">'
            f"{paper_name(value) if kind == 'paper' else value} "
            f"<b>{sum(row[kind] == value for row in rows)}</b></button>"
            for value in values
        )
        groups.append(f'<div role="group" aria-label="by {kind}">{buttons}</div>')
    search = (
        '<label>with the words <input type="search" placeholder="det, [SEP], Table 1 …"></label>'
    )
    clear = '<button type="button" class="clear">show all</button>'
    told = f'<span role="status" aria-live="polite">{len(rows)} claims</span>'
    return f'{"".join(groups)}<div class="last">{search}{clear}{told}</div>'


def _row(row: Row, linked: Collection[str]) -> str:
    chapter = paper_name(row["paper"])
    if row["paper"] in linked:
        chapter = f'<a href="../notebooks/{row["paper"]}.html">{chapter}</a>'
    said = row["paper_value"]
    number = isinstance(said, int | float | None)
    cells = {
        "paper": number_text(said) if number else html.escape(str(said)),
        "ours": number_text(row["ours"]),
        "95% interval": interval_text(row["low"], row["high"]),
        "phenomenon": html.escape(row["phenomenon"]),
        "verdict": badge(row["verdict"], row.get("reason") or ""),
        "deviations": _deviations(row),
    }
    claim = f'{chapter}, {html.escape(row["where"])} <span class="quiet">{row["id"]}</span>'
    return (
        f'<tr data-paper="{row["paper"]}" data-verdict="{row["verdict"]}">'
        f'<th scope="row" data-name="claim">{claim}</th>{claim_cells(cells)}</tr>'
    )


def _deviations(row: Row) -> str:
    """The codes of what we do differently; the sentence behind a code shows when one points."""
    known = load_paper(row["paper"]).deviations
    return " ".join(
        f'<abbr title="{html.escape(known.get(code, ""), quote=True)}">{code}</abbr>'
        for code in row["deviations"]
    )
