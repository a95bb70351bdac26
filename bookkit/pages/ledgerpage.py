"""The ledger on a page: every claim in one table that a reader can filter, and bars of verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bookkit.claims import load_paper
from bookkit.pagetables import (
    BADGES,
    CLAIM_COLUMNS,
    badge,
    interval_text,
    number_text,
    paper_name,
)
from bookkit.templates import filled

Row = Mapping[str, Any]
HERE = Path(__file__).parent


def ledger_table(rows: Sequence[Row], chapters: Collection[str] | None = None) -> str:
    """A row for every claim, and filters; it is whole without its script, which only hides rows.

    chapters  the papers whose chapters are in the book: only these are linked; None: all
    """
    papers = Counter(row["paper"] for row in rows)
    verdicts = Counter(row["verdict"] for row in rows)
    table = filled(
        HERE / "ledger.html",
        rows=rows,
        columns=CLAIM_COLUMNS,
        papers=papers,
        verdicts={name: verdicts[name] for name in BADGES if name in verdicts},
        linked=papers if chapters is None else chapters,
        deviations={paper: load_paper(paper).deviations for paper in papers},
        paper_says=lambda said: said if isinstance(said, str) else number_text(said),
        **{"number_text": number_text, "interval_text": interval_text},
        **{"badge": badge, "paper_name": paper_name},
    )
    script = (HERE / "ledger.js").read_text(encoding="utf-8")
    return raw(f"{table}<script>\n{script}</script>")


def verdict_bars(rows: Sequence[Row]) -> str:
    """HTML: for each paper a bar of its verdicts; each part leads to those claims in the ledger."""
    papers: dict[str, Counter[str]] = {}
    for row in rows:
        papers.setdefault(row["paper"], Counter())[row["verdict"]] += 1
    seen = [one for one in BADGES.items() if any(verdicts[one[0]] for verdicts in papers.values())]
    page = HERE / "verdicts.html"
    return filled(page, papers=papers, badges=BADGES, seen=seen, paper_name=paper_name)


def raw(text: str) -> str:
    """HTML in a MyST page."""
    return f"```{{raw}} html\n{text}\n```\n"
