"""Tables of a page: claims with their verdicts in words, and numbers measured two ways."""

from __future__ import annotations

import math
import re
from typing import get_args

import pandas as pd
import pytest

from attnlib.plots import style
from bookkit import pagetables
from bookkit.claims import Verdict, judge, ledger_row, load_paper
from bookkit.errors import BadValue
from bookkit.pagetables import claim_table, variant_effects
from tests.claimrows import row

NAN = math.nan


def test_variants_show_both_values_and_the_change() -> None:
    table = pd.DataFrame(
        [
            ("entropy <b>", "nats", 3.912, 3.715),
            ("heads", "", 4, 4),
            ("undefined", "percent", 61.2, NAN),
            ("from nothing", "points", 0.0, -1.0),
            ("more than twice", "score", 0.8172, 1.91),
        ],
        columns=["what", "unit", "paper_way", "authors_way"],
    )
    page = variant_effects(table)._repr_html_()
    rows = re.findall(r"<tr><th>(.*?)</tr>", page)[-5:]
    assert "+1.09 (+134%)" in rows[4]
    assert "3.912" in rows[0] and "3.715" in rows[0] and "−0.197 (−5%)" in rows[0]
    assert "entropy &lt;b&gt;" in rows[0]
    assert "none" in rows[1]
    assert rows[2].count("–") == 2 and "<svg" not in rows[2]
    assert "<td>−1</td>" in rows[3] and "<svg" not in rows[3]
    assert page.count("<svg") == 3
    assert 'class="attn-table attn-variants"' in page


DEVIATIONS = {"D1": "Another <model>.", "D2": "Never named.", "D3": "Other trees."}


def test_a_claim_has_all_its_cells() -> None:
    found = claim_table([row()], DEVIATIONS)
    assert list(found.table.columns) == list(pagetables.CLAIM_COLUMNS)
    cells = found.table.iloc[0]
    assert cells["paper"] == "94.3%: a & b: c"
    assert (cells["ours"], cells["95% interval"]) == ("91.0%", "90 to 92.5")
    assert cells["phenomenon"] == "the gain is at least 20 (here 39, 35 to 42)"
    assert (cells["verdict"], cells["deviations"]) == ("holds", "D1, D3")


@pytest.mark.parametrize(
    ("bound", "text"), [("at_least", "≥ 0.9"), ("at_most", "≤ 0.9"), (None, "0.9")]
)
def test_a_one_sided_number_has_its_sign(bound: str | None, text: str) -> None:
    one = row(paper_value=0.9, paper_bound=bound, paper_says=None, unit=None)
    assert claim_table([one], {}).table["paper"][0] == text


def test_claims_are_escaped_and_deviations_explained_once() -> None:
    page = claim_table([row(), row("undecided")], DEVIATIONS)._repr_html_()
    assert "row &lt;det&gt;" in page and "<det>" not in page
    assert "a &amp; b: c" in page
    assert 'title="because &quot;so&quot;"' in page
    assert page.count("<dt>D1</dt>") == 1 and "Another &lt;model&gt;." in page
    assert "Never named" not in page


def test_claims_of_our_own_are_not_called_a_paper() -> None:
    page = claim_table([row()], {}, own=True)._repr_html_()
    assert "<th>we said</th><th>we found</th>" in page and "<th>paper</th>" not in page
    assert "What we found and what we said: 1 holds." in page


def test_every_verdict_has_a_badge_with_a_sign_and_a_word() -> None:
    verdicts = get_args(Verdict)
    assert set(pagetables.BADGES) == {*verdicts, "definition"}
    found = claim_table([row(verdict) for verdict in verdicts], {})
    page = found._repr_html_()
    kinds = re.findall(r'class="badge (\w+)".*?aria-hidden="true">(.)</i> ([\w ]+)</span>', page)
    assert [word for _, _, word in kinds] == list(verdicts)
    assert len({kind for kind, _, _ in kinds}) == len({sign for _, sign, _ in kinds}) == 5
    assert "1 holds, 1 undecided, 1 fails" in found.caption
    assert "<dl>" not in page


def test_a_definition_is_shown_as_one_whatever_its_verdict() -> None:
    found = claim_table([row("fails", evidence="definition")], {})
    assert found.table["verdict"][0] == "definition" and "fails" not in found._repr_html_()


@pytest.mark.parametrize("verdict", ["same", "differs"])
def test_the_value_has_a_badge_of_its_own(verdict: str) -> None:
    page = claim_table([row(value_verdict=verdict)], {})._repr_html_()
    assert f"</i> value {verdict}</span>" in page and "within 2 of the paper&#x27;s value" in page
    assert "</i> holds</span>" in page


def test_what_was_not_measured_is_a_dash_and_not_a_zero() -> None:
    nothing = dict.fromkeys(("ours", "low", "high", "seen", "seen_low", "seen_high"))
    found = claim_table([row("to be run", **nothing)], {})
    assert list(found.table.iloc[0][["ours", "95% interval"]]) == ["–", "–"]
    assert "nan" not in found._repr_html_()


def test_every_claim_of_the_paper_can_be_shown() -> None:
    paper = load_paper("clark2019")
    rows = [ledger_row(judge(claim, {}, own_model=True), model="m") for claim in paper.claims]
    page = claim_table(rows, paper.deviations)._repr_html_()
    assert page.count("<tr>") == len(paper.claims) + 1
    assert all(f">{claim.id}</span>" in page.replace("<wbr>", "") for claim in paper.claims)
    assert claim_table([], {}).caption == "Our numbers next to the paper's: no claim."


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (4.0, "4"), (91.04, "91.0"), (4.469, "4.47"), (0.0699, "0.070"), (1e-4, "0.0001"),
     (-3.0, "−3"), (NAN, "–")],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert pagetables.number_text(value) == text


def test_missing_columns_and_empty_tables_are_named() -> None:
    table = pd.DataFrame({"what": ["a"], "unit": ["b"], "paper_way": [1.0], "authors_way": [2.0]})
    with pytest.raises(BadValue, match="no column authors_way; it has what, unit, paper_way"):
        variant_effects(table.drop(columns="authors_way"))
    with pytest.raises(BadValue, match="no row"):
        variant_effects(table.iloc[:0])


def test_small_pictures_have_the_colours_of_the_figures() -> None:
    assert (style.LOOKS["ours"].colour, style.FAINT) == (pagetables.OURS, pagetables.FAINT)
