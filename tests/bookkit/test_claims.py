"""Claims: complete, well formed, judged by rule; planted mistakes in a row are named."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bookkit.claims import (
    Finding,
    Judgement,
    is_own_model,
    judge,
    ledger_row,
    load_paper,
    paper_keys,
)
from bookkit.errors import ClaimError, UnknownName
from tests.claimrows import CLAIM

PAPERS = paper_keys()

# Every table row and figure of a paper has a claim whose id begins so.
PLACES = {
    "clark2019": (
        *("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "sec3.1", "sec3.3", "sec4.3", "sec5"),
        *(
            f"tab1.{row}"
            for row in (
                *("all", "prep", "pobj", "det", "nn", "nsubj", "amod", "dobj", "advmod", "aux"),
                *("poss", "auxpass", "ccomp", "mark", "prt"),
            )
        ),
        *("tab2.nearest", "tab2.head_match", "tab2.rule_based", "tab2.head"),
        *("tab3.right_branching", "tab3.distances", "tab3.random", "tab3.attention"),
        "tab3.attention_words",
    ),
    "pande2021": (
        *("fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "sec3.2", "sec4.1", "sec4.3", "sec5"),
        *(f"sec4.3.spearman.{task}" for task in ("qnli", "qqp", "mrpc", "sst2")),
    ),
    "guan2020": (
        *("eq2", "fig1", "fig2", "fig3", "fig4", "sec4", "sec5.1", "sec5.2"),
        *(f"tab1.{model}" for model in ("pretrained", "squad", "mrpc", "mnli")),
        *(f"tab2.{row:02d}" for row in range(1, 12)),
        *(f"tab3.{row:02d}" for row in range(12, 20)),
    ),
    "kovaleva2019": (
        *("fig1", "fig2", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9"),
        *("sec4.1", "sec4.2", "sec4.4", "sec4.5", "sec5"),
        *(f"tab1.{task}" for task in ("mrpc", "stsb", "sst2", "qqp", "rte", "qnli", "mnli")),
    ),
    # No paper: every section of our own chapter that compares something.
    "agreement": (
        *("words", "questions", "disabling", "foretelling", "importance", "stability"),
        *("stability.inputs", "stability.domains", "stability.twin", "stability.models"),
    ),
}


@pytest.mark.parametrize("key", PAPERS)
def test_every_table_row_and_figure_has_a_claim(key: str) -> None:
    ids = [claim.id for claim in load_paper(key).claims]
    assert [
        place for place in PLACES.get(key, ()) if not any(i.startswith(place) for i in ids)
    ] == []


@pytest.mark.parametrize("key", PAPERS)
def test_every_deviation_is_used(key: str) -> None:
    paper = load_paper(key)
    assert {d for claim in paper.claims for d in claim.deviations} == set(paper.deviations)


def test_table_1_agrees_with_itself() -> None:
    """A gain that the paper's own row has is what any model is asked for, in the weaker form."""
    for claim in load_paper("clark2019").claims:
        if (
            claim.id.startswith("tab1.")
            and "baseline" in claim.value
            and claim.id != "tab1.auxpass"
        ):
            gain = claim.value["value"] - claim.value["baseline"]
            assert claim.phenomenon.holds(gain), claim.id


def judged(gain: Finding | None = None, *, own_model: bool = False, **changes: object) -> Judgement:
    """A claim of 94.3, with a gain of 20 or more as its phenomenon, judged."""
    claim = replace(CLAIM, **changes)  # type: ignore[arg-type]
    found = {"det.accuracy": Finding(93.0), **({"det.gain": gain} if gain else {})}
    return judge(claim, found, own_model=own_model)


@pytest.mark.parametrize(
    ("gain", "at_least", "at_most"),
    [
        (Finding(30.0, 25.0, 35.0), "holds", "fails"),
        (Finding(22.0, 18.0, 26.0), "undecided", "undecided"),
        (Finding(19.0, 10.0, 28.0), "undecided", "undecided"),
        (Finding(10.0, 5.0, 19.9), "fails", "holds"),
        (Finding(20.0, 20.0, 20.0), "holds", "holds"),
        (Finding(30.0), "undecided", "undecided"),
        (Finding(30.0, 25.0), "undecided", "undecided"),
        (Finding(math.nan), "undefined", "undefined"),
        (Finding(math.nan, 1.0, 2.0), "undefined", "undefined"),
        (None, "to be run", "to be run"),
    ],
)
def test_the_interval_decides_on_both_sides_alike(
    gain: Finding | None, at_least: str, at_most: str
) -> None:
    assert judged(gain).verdict == at_least
    turned = replace(CLAIM.phenomenon, bound="at_most")
    assert judged(gain, phenomenon=turned).verdict == at_most


@pytest.mark.parametrize("exact", ["count", "identity"])
def test_a_count_or_an_identity_needs_no_interval(exact: str) -> None:
    counted = replace(CLAIM.phenomenon, exact=exact)  # type: ignore[arg-type]
    assert [
        judged(gain, phenomenon=counted).verdict
        for gain in (Finding(20.0), Finding(19.0), Finding(22.0, 18.0, 26.0), Finding(math.nan))
    ] == ["holds", "fails", "undecided", "undefined"]


@pytest.mark.parametrize(
    ("value", "ours", "verdict"),
    [
        ({"value": 94.3}, 96.2, "same"),
        ({"value": 94.3}, 90.0, "differs"),
        ({"at_least": 90.0}, 90.1, "same"),
        ({"at_least": 90.0}, 89.9, "differs"),
        ({"at_most": 10.0}, 10.0, "same"),
        ({"at_most": 10.0}, 10.1, "differs"),
        ({"claim": "words alone"}, 1.0, None),
        ({"value": 94.3}, math.nan, None),
    ],
)
def test_the_value_is_judged_on_the_papers_own_model_alone(
    value: dict, ours: float, verdict: str | None
) -> None:
    claim = replace(CLAIM, value=value)
    found = {"det.accuracy": Finding(ours), "det.gain": Finding(30.0, 25.0, 35.0)}
    own, other = (judge(claim, found, own_model=mine) for mine in (True, False))
    assert own.value_verdict == verdict and other.value_verdict is None
    assert own.verdict == other.verdict == "holds"
    assert own.agrees == other.agrees == {"same": True, "differs": False, None: None}[verdict]


@pytest.mark.parametrize(
    ("names", "own"),
    [
        ({"bert-base-uncased"}, True),
        ({"google-bert/bert-base-uncased"}, True),
        ({"/models/bert-base-uncased/"}, True),
        ({"my-copy", "bert-base-uncased"}, True),
        ({"bert-base-uncased-squad"}, False),
        ({"e5-small"}, False),
        (set(), False),
    ],
)
def test_a_papers_model_is_known_by_any_of_its_names(names: set[str], own: bool) -> None:
    assert is_own_model(names, replace(load_paper("kovaleva2019"))) is own


def test_a_row_of_the_ledger_has_both_verdicts_and_the_interval_that_decided() -> None:
    row = ledger_row(judged(Finding(30.0, 25.0, 35.0), own_model=True), model="bert")
    assert (row["verdict"], row["value_verdict"], row["evidence"]) == ("holds", "same", "finding")
    assert (row["seen"], row["seen_low"], row["seen_high"], row["low"]) == (30.0, 25.0, 35.0, None)
    assert row["holds"] is True and row["agrees"] is True
    json.dumps(row, allow_nan=False)


GOOD = {
    "paper": "toy2019",
    "models": ["bert"],
    "deviations": {"D1": "another model"},
    "claims": [
        {
            "id": "a",
            "where": "Fig. 1",
            "kind": "value",
            "paper": {"value": 1},
            "how": "so",
            "measure": "m",
            "tolerance": 1,
            "phenomenon": {"text": "t", "at_least": 0},
            "deviations": ["D1"],
        }
    ],
}
ROW = GOOD["claims"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{**ROW, "kind": "number"}], "kind 'number'"),
        ([{**ROW, "tolerence": 1}], "unknown key 'tolerence'"),
        ([{k: v for k, v in ROW.items() if k != "how"}], "missing key 'how'"),
        ([{**ROW, "deviations": ["D9"]}], "'D9' is not explained"),
        ([{**ROW, "phenomenon": {"text": "t"}}], "at_least or at_most"),
        ([{**ROW, "phenomenon": {"text": "t", "at_least": 1, "at_most": 2}}], "at_least or"),
        ([ROW, ROW], "claim 'a' stands there twice"),
        ([{**ROW, "evidence": "proof"}], "evidence 'proof'"),
        ([{**ROW, "paper": {"claim": "words"}}], "a tolerance belongs to a value"),
        ([{k: v for k, v in ROW.items() if k != "tolerance"}], "a tolerance belongs to a value"),
        ([{**ROW, "paper": {"value": 1, "at_most": 2}}], "one of value, at_least and at_most"),
        ([{**ROW, "phenomenon": {"text": "t", "at_least": 0, "exact": "yes"}}], "exact 'yes'"),
    ],
)
def test_a_mistake_in_a_row_is_named(tmp_path: Path, rows: list[dict], said: str) -> None:
    (tmp_path / "toy2019.yaml").write_text(yaml.safe_dump({**GOOD, "claims": rows}))
    with pytest.raises(ClaimError, match=said):
        load_paper("toy2019", tmp_path)


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'clark2019'"):
        load_paper("clark2018")
    with pytest.raises(UnknownName, match=r"Did you mean 'tab1\.det'"):
        load_paper("clark2019").claim("tab1.dett")


def test_papers_stand_in_the_order_of_their_years_and_our_own_claims_last() -> None:
    years = [key[-4:] for key in PAPERS[:-1]]
    assert PAPERS[-1] == "agreement" and years == sorted(years) and len(years) >= 4
