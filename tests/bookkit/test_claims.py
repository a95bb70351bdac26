"""Claims: complete, well formed, judged by rule; planted mistakes in a row are named."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bookkit.claims import Claim, Finding, Phenomenon, judge, load_paper, paper_keys
from bookkit.errors import ClaimError, UnknownName

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
        if claim.id.startswith("tab1.") and "baseline" in claim.value and claim.id != "tab1.all":
            gain = claim.value["value"] - claim.value["baseline"]
            assert claim.phenomenon.holds(gain), claim.id


CLAIM = Claim(
    paper="toy2019",
    id="tab1.det",
    where="Table 1",
    kind="value",
    value={"value": 94.3},
    how="",
    measure="det.accuracy",
    tolerance=2.0,
    phenomenon=Phenomenon("the gain is at least 20", "det.gain", "at_least", 20.0),
)


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (Finding(30.0, 25.0, 35.0), "reproduced"),
        (Finding(30.0), "reproduced"),
        (Finding(22.0, 18.0, 26.0), "partly"),
        (Finding(19.0, 10.0, 28.0), "not reproduced"),
        (Finding(math.nan), "not comparable"),
        (None, "absent"),
    ],
)
def test_the_phenomenon_is_judged_on_every_model(gain: Finding | None, verdict: str) -> None:
    findings = {"det.accuracy": Finding(50.0)} | ({"det.gain": gain} if gain else {})
    found = judge(CLAIM, findings, model="another", models=("bert-base-uncased",))
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("accuracy", "verdict"), [(94.0, "reproduced"), (96.2, "reproduced"), (90.0, "partly")]
)
def test_the_value_is_judged_on_the_papers_own_model(accuracy: float, verdict: str) -> None:
    findings = {"det.accuracy": Finding(accuracy), "det.gain": Finding(40.0)}
    own = judge(CLAIM, findings, model="bert", models=("bert",))
    assert own.verdict == verdict
    assert judge(CLAIM, findings, model="other", models=("bert",)).verdict == "reproduced"


def test_at_most_is_the_other_way_round() -> None:
    claim = replace(CLAIM, phenomenon=Phenomenon("p", "p", "at_most", 0.05))
    verdicts = [
        judge(claim, {"p": Finding(p)}, model="m", models=()).verdict for p in (0.01, 0.05, 0.2)
    ]
    assert verdicts == ["reproduced", "reproduced", "not reproduced"]


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
