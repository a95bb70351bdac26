"""Generated pages say what their records say: claims and their verdicts, and runs."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bookkit.claims import load_paper
from bookkit.editions import Chapter, Edition, load_edition
from bookkit.pages import ledgerpage, pages
from tests import claimrows

ROOT = Path(__file__).parents[3]


def row(verdict: str = "holds", **changes: Any) -> dict[str, Any]:
    claim = load_paper("clark2019").claims[0]
    told = {"id": claim.id, "where": claim.where, "ours": 0.25, "low": 0.2, "high": 0.3}
    told |= {"phenomenon": "a < b", "same_measure": True, "deviations": ["D1"]}
    return claimrows.row(verdict, **(told | changes))


class Tags(HTMLParser):
    """All tags with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


# --- the ledger


def test_every_claim_has_its_row() -> None:
    rows = [row(), row("fails", id="x", paper="guan2020", deviations=[])]
    seen = Tags(ledgerpage.ledger_table(rows))
    lines = [given for tag, given in seen.tags if tag == "tr" and "data-paper" in given]
    assert [(one["data-paper"], one["data-verdict"]) for one in lines] == [
        ("clark2019", "holds"),
        ("guan2020", "fails"),
    ]
    assert "a < b" in seen.text and "0.200 to 0.300" in seen.text
    explained = [given["title"] for tag, given in seen.tags if tag == "abbr"]
    assert explained == [load_paper("clark2019").deviations["D1"]]


def test_only_chapters_of_the_book_are_linked() -> None:
    rows = [row(), row(paper="guan2020", id="eq2.sum", deviations=[])]
    assert ledgerpage.ledger_table(rows).count('<a href="../notebooks/') == 2
    seen = ledgerpage.ledger_table(rows, ["clark2019"])
    assert '<a href="../notebooks/clark2019.html">Clark 2019</a>, ' in seen
    assert "notebooks/guan2020" not in seen and "Guan 2020, " in seen


def test_the_front_page_counts_findings_and_not_definitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdicts = ["holds", "holds", "undecided", "fails", "undefined", "to be run"]
    rows = [row(verdict, agrees=verdict == "holds") for verdict in verdicts]
    rows.append(row("fails", evidence="definition", agrees=None))
    monkeypatch.setattr(pages, "_claims", lambda edition, own: rows)
    told = pages.numbers(load_edition("standard"), {})
    assert [told[f"claims_{name}"] for name in ("holds", "undecided", "fails")] == ["2", "1", "1"]
    assert (told["claims"], told["findings"], told["claims_definition"]) == ("7", "4", "1")
    assert (told["values_within"], told["values_compared"]) == ("2", "6")


def test_what_is_not_known_is_a_dash_and_not_zero() -> None:
    seen = Tags(ledgerpage.ledger_table([row("to be run", ours=None, low=None, high=None)]))
    assert "–" in seen.text and "nan" not in seen.text and "None" not in seen.text


def test_filters_count_the_claims() -> None:
    rows = [row(), row(id="x"), row("undecided", id="y")]
    seen = Tags(ledgerpage.ledger_table(rows))
    assert "holds 2" in seen.text and "undecided 1" in seen.text and "Clark 2019 3" in seen.text


def test_bars_are_as_long_as_the_counts_and_lead_to_them() -> None:
    rows = [row(), row(id="x"), row("to be run", id="y")]
    links = [given for tag, given in Tags(ledgerpage.verdict_bars(rows)).tags if tag == "a"]
    assert [one["style"] for one in links] == ["flex-grow:2", "flex-grow:1"]
    assert links[1]["href"] == "ledger.html?paper=clark2019&verdict=to+be+run"
    assert links[1]["aria-label"] == "Clark 2019: 1 of 3 to be run"


# --- this build


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Edition, dict[str, Path]]:
    """An edition of one chapter and a variant, executed."""
    chapters = (Chapter("one", {}, 1.0), Chapter("one", {}, 1.0, "small"))
    edition = Edition("tiny", "Tiny edition", "Small.", {"main": "m"}, {}, (), {}, 0, chapters)
    executed = {}
    for chapter in chapters:
        record = {"parameters": {"model": chapter.variant or "m", "limit": 5}, "seconds": 90.0}
        record |= {"versions": {"torch": "1.0"}}
        cell = {"cell_type": "code", "source": "", "metadata": {"seconds": 12.0}}
        executed[chapter.page] = tmp_path / f"{chapter.page}.ipynb"
        book = {"cells": [cell], "metadata": {"attnlib": record}}
        executed[chapter.page].write_text(json.dumps(book))
    return edition, executed


def test_a_build_tells_times_parameters_and_versions(
    tiny: tuple[Edition, dict[str, Path]],
) -> None:
    page = pages.build_tables(*tiny)
    assert "| [](../notebooks/one) | m | 1.5 min | 12 s |" in page
    assert "| [](../notebooks/one-small) | small | 1.5 min | 12 s |" in page
    assert "limit: 5" in page and "| torch | 1.0 |" in page
