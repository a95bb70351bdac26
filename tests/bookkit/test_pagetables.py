"""Tables of a page: claims with their verdicts in words, and numbers measured two ways."""

from __future__ import annotations

import math
import re
from typing import get_args

import pandas as pd
import pytest

from attnlib.plots import style
from bookkit import pagetables
from bookkit.claims import Claim, Finding, Judgement, Phenomenon, Verdict, load_paper
from bookkit.errors import BadValue
from bookkit.pagetables import claim_table, variant_effects

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


def judgement(verdict: str = "reproduced", **changes: object) -> Judgement:
    claim = Claim(
        paper="clark2019",
        id="tab1.det",
        where="Table 1, row <det>",
        kind="value",
        value={"value": 94.3, "unit": "percent", "claim": "a & b: c"},
        how="how",
        measure="det.accuracy",
        tolerance=2.0,
        phenomenon=Phenomenon("beats the offset", "det.gain", "at_least", 20.0),
        deviations=("D1", "D3"),
    )
    given: dict = {
        "ours": Finding(91.04, 90.0, 92.5),
        "phenomenon": Finding(39.0, 35.0, 42.0),
        "holds": True,
    }
    return Judgement(claim, verdict, 'a "reason"', **(given | changes))  # type: ignore[arg-type]


DEVIATIONS = {"D1": "Another <model>.", "D2": "Never named.", "D3": "Other trees."}


def test_a_claim_has_all_its_cells() -> None:
    found = claim_table([judgement()], DEVIATIONS)
    assert list(found.table.columns) == list(pagetables.CLAIM_COLUMNS)
    row = found.table.iloc[0]
    assert row["paper"] == "94.3%: a & b: c"
    assert (row["ours"], row["95% interval"]) == ("91.0%", "90 to 92.5")
    assert row["phenomenon"] == "beats the offset (here 39, 35 to 42)"
    assert (row["verdict"], row["deviations"]) == ("reproduced", "D1, D3")


def test_claims_are_escaped_and_deviations_explained_once() -> None:
    page = claim_table([judgement(), judgement("partly")], DEVIATIONS)._repr_html_()
    assert "row &lt;det&gt;" in page and "<det>" not in page
    assert "a &amp; b: c" in page
    assert 'title="a &quot;reason&quot;"' in page
    assert page.count("<dt>D1</dt>") == 1 and "Another &lt;model&gt;." in page
    assert "Never named" not in page


def test_claims_of_our_own_are_not_called_a_paper() -> None:
    page = claim_table([judgement()], {}, own=True)._repr_html_()
    assert "<th>we said</th><th>we found</th>" in page and "<th>paper</th>" not in page
    assert "What we found beside what we said: 1 reproduced." in page


def test_every_verdict_has_a_badge_with_a_sign_and_a_word() -> None:
    verdicts = get_args(Verdict)
    assert set(pagetables.BADGES) == set(verdicts)
    found = claim_table([judgement(verdict) for verdict in verdicts], {})
    page = found._repr_html_()
    kinds = re.findall(r'class="badge (\w+)".*?aria-hidden="true">(.)</i> ([\w ]+)</span>', page)
    assert [word for _, _, word in kinds] == list(verdicts)
    assert len({kind for kind, _, _ in kinds}) == len({sign for _, sign, _ in kinds}) == 5
    assert "1 reproduced, 1 partly, 1 not reproduced" in found.caption
    assert "<dl>" not in page


def test_what_was_not_measured_is_a_dash_and_not_a_zero() -> None:
    found = claim_table([judgement("absent", ours=None, phenomenon=None, holds=None)], {}).table
    assert list(found.iloc[0][["ours", "95% interval"]]) == ["–", "–"]
    undefined = claim_table([judgement(ours=Finding(NAN))], {}).table.iloc[0]
    assert undefined["ours"].startswith("–")
    assert "nan" not in claim_table([judgement(ours=Finding(NAN))], {})._repr_html_()


def test_every_claim_of_the_paper_can_be_shown() -> None:
    paper = load_paper("clark2019")
    rows = [Judgement(claim, "absent", "not measured") for claim in paper.claims]
    page = claim_table(rows, paper.deviations)._repr_html_()
    assert page.count("<tr>") == len(paper.claims) + 1
    assert all(f">{claim.id}</span>" in page.replace("<wbr>", "") for claim in paper.claims)
    assert claim_table([], {}).caption == "Ours beside the paper: no claim."


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
