"""The ledger on a page: every claim in one table that a reader can filter, and bars of verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from bookkit.claims import load_paper
from bookkit.pagetables import (
    BADGES,
    CLAIM_COLUMNS,
    Row,
    badges,
    claim_cells,
    paper_name,
    shown_verdict,
)
from bookkit.templates import filled

HERE = Path(__file__).parent


def ledger_table(rows: Sequence[Row], chapters: Collection[str] | None = None) -> str:
    """A row for every claim, and filters; it is whole without its script, which only hides rows.

    chapters  the papers whose chapters are in the book: only these are linked; None: all
    """
    papers = Counter(row["paper"] for row in rows)
    verdicts = Counter(shown_verdict(row) for row in rows)
    table = filled(
        HERE / "ledger.html",
        rows=[(row, claim_cells(row)) for row in rows],
        columns=CLAIM_COLUMNS,
        papers=papers,
        verdicts={name: verdicts[name] for name in BADGES if name in verdicts},
        linked=papers if chapters is None else chapters,
        deviations={paper: load_paper(paper).deviations for paper in papers},
        **{"badges": badges, "paper_name": paper_name, "shown_verdict": shown_verdict},
    )
    script = (HERE / "ledger.js").read_text(encoding="utf-8")
    return raw(f"{table}<script>\n{script}</script>")


def verdict_bars(rows: Sequence[Row]) -> str:
    """HTML: for each paper a bar of its verdicts; each part leads to those claims in the ledger."""
    papers: dict[str, Counter[str]] = {}
    for row in rows:
        papers.setdefault(row["paper"], Counter())[shown_verdict(row)] += 1
    seen = [one for one in BADGES.items() if any(verdicts[one[0]] for verdicts in papers.values())]
    page = HERE / "verdicts.html"
    return filled(page, papers=papers, badges=BADGES, seen=seen, paper_name=paper_name)


def raw(text: str) -> str:
    """HTML in a MyST page."""
    return f"```{{raw}} html\n{text}\n```\n"
