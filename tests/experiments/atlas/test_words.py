"""Words for evidence: numbers as they are shown, and a head in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnlib.errors import BadValue
from experiments.atlas import Atlas, Fact
from experiments.atlas.words import (
    RELATIONS,
    SEVERAL,
    details,
    entry,
    group,
    interval,
    made_from,
    name,
    note,
    sentences,
    summary,
    value_text,
)
from tests.atlases import fact, made_up, tiny_readings
from tests.families import one_thread

__all__ = ["one_thread"]  # fixture


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return made_up(tiny_readings(tmp_path_factory.mktemp("atlas")))


@pytest.mark.parametrize(
    ("more", "value", "said"),
    [
        ({"unit": "share"}, [0.91149996, 0.0004, None], ["91.1 %", "0.0 %", "not measured"]),
        ({"unit": "percent"}, [62.06, 5, 100], ["62.1 %", "5.0 %", "100.0 %"]),
        ({"unit": "nats"}, [0.5, 3.614, 1], ["0.50 nats", "3.61 nats", "1.00 nats"]),
        ({"unit": "points", "diverging": True}, [-1.25, 0.5, -0.001],
         ["−1.25 points", "+0.50 points", "0.00 points"]),
        ({}, [0.99942, 0.9991, 0.9], ["0.9994", "0.9991", "0.9000"]),
        ({"unit": "pieces"}, [3, 12, 7], ["3 pieces", "12 pieces", "7 pieces"]),
        ({}, [2.5, 2.5, 2.5], ["2.50", "2.50", "2.50"]),
    ],
)  # fmt: skip
def test_numbers_are_shown_alike(more: dict[str, Any], value: list[Any], said: list[str]) -> None:
    one = fact("k", value, **more)
    assert [value_text(one, head) for head in range(3)] == said


@pytest.mark.parametrize(
    ("more", "value", "low", "high", "said"),
    [
        ({"unit": "share"}, 0.00701, 0.0069, 0.0071, "± < 0.05"),
        ({"unit": "share"}, 0.0066, 0.0066, 0.0074, "± < 0.1"),
        ({"unit": "share"}, 0.0066, 0.0064, 0.0067, "0.6 to 0.7"),
        ({"unit": "percent"}, 0, 0, 0, "± < 0.05"),
        ({"unit": "share"}, 0.5, 0.6, 0.6, "60.0 to 60.0"),
        ({"unit": "nats"}, 0.5, 0.499, 0.501, "± < 0.005"),
        ({"unit": "pieces"}, 3, 3, 3, "± < 0.5"),
    ],
)
def test_an_interval_too_narrow_to_be_seen_says_so(
    more: dict[str, Any], value: float, low: float, high: float, said: str
) -> None:
    wide = 1.5 if more["unit"] == "nats" else 1
    one = fact("k", [value, wide], low=[low, wide], high=[high, wide], **more)
    assert interval(one, 0) == said


def test_details_are_said_in_words() -> None:
    detail = {"n": [300], "stability": [1.0], "accuracy": [16.04], "baseline": [6], "bias": [3.304],
              "p": [3.4e-305], "q": [0.0], "other": [2.5]}  # fmt: skip
    told = details(fact("k", [1], detail=detail), 0)
    assert list(told.values()) == [
        *("300 inputs", "called so in 100\xa0% of the redraws", "finds 16.0\xa0%"),
        *("best offset 6.0\xa0%", "bias 3.30", "p < 0.001", "q < 0.001", "other 2.50"),
    ]
    known = fact("k", [1], detail={"p": [0.02], "q": [1.0]})
    assert list(details(known, 0).values()) == ["p 0.020", "q 1"]
    assert details(fact("k", [1], detail={"p": [None]}), 0) == {}


# A head in a sentence


def test_a_head_in_a_sentence(atlas: Atlas) -> None:
    said = [atlas.card(head)["summary"] for head in atlas.heads]
    assert all(text.endswith(".") and "  " not in text for text in said)
    shares = np.array([atlas.fact(f"mass_to_{k}").value for k in ("next", "previous", "self")])
    head = int(shares[0].argmax())
    share = value_text(atlas.fact("mass_to_next"), head)
    assert said[head].startswith(share.replace(" ", "\xa0"))
    assert "of its attention goes to the piece just after." in said[head]
    assert "It has no role." in said[0]
    rte = atlas.fact("disabled_rte")
    for head in np.flatnonzero(rte.low > 0):
        assert f"RTE ({value_text(rte, head)})" in said[head]
    assert sentences(atlas.facts, 0)[0] == said[0].split(". ")[0]
    many = [fact(f"role_r{i}", [1]) for i in range(9)]
    assert summary(many, 0) == "Roles: r0, r1, r2, r3, r4 and 4 more."


def test_changes_are_not_called_sure() -> None:
    """The intervals are many and uncorrected: the sentence says how many exclude 0 at all."""

    def task(key: str, low: list[float | None], high: list[float | None]) -> Fact:
        value = [None if one is None else one + 0.5 for one in low]
        return fact(f"disabled_{key}", value, low=low, high=high)

    facts = [
        task("sst2", [0.75, -1, -2], [2, 1, -1]),
        task("stsb", [-1, -1, None], [2, 1, None]),
    ]
    assert summary(facts, 0) == (
        "Without it the 95% interval excludes 0 for SST-2 (+1.25 points), uncorrected: so do 2 of "
        "all 5 intervals, chance alone would give about 0."
    )
    assert summary(facts, 1) == "Without it no 95% interval of 2 tasks excludes 0."
    assert "surely" not in summary(facts, 0) + summary(facts, 1)


def test_a_sentence_names_papers_and_leaves_out_what_says_nothing() -> None:
    facts = [
        fact("guan_label", ["vertical", "dense"]),
        fact("clark_label", ["next", "other"]),
        fact("rule_label", ["vertical", "block"]),
        fact("network_label", ["diagonal", "block"]),
    ]
    assert summary(facts, 0) == (
        "Guan: vertical; Clark: next; Kovaleva: vertical by rule, diagonal by network."
    )
    assert summary(facts, 1) == "Guan: dense; Kovaleva: block by rule and by network."


def test_relations_of_many_words() -> None:
    assert SEVERAL.keys() == RELATIONS.keys()
    assert SEVERAL["dobj"] == "direct objects of the verb"
    assert SEVERAL["advcl"] == "adverbial clauses" and SEVERAL["det"] == "determiners"
    assert SEVERAL["acl"] == "clauses that describe a noun"
    assert SEVERAL["oprd"] == "predicative complements"
    said = summary([fact("best_relation", ["dobj", "zzz", "none"])], 0)
    assert said == "Finds direct objects of the verb (dobj)."
    assert summary([fact("best_relation", ["dobj", "zzz", "none"])], 1) == "Finds zzz (zzz)."


def test_a_fact_that_nobody_declared_is_called_by_its_key() -> None:
    own = fact("my_own_number", [1.0], unit="nats")
    assert (name(own), group(own)) == ("my own number", "Further facts")
    told = entry(own, 0)
    assert (told["text"], told["about"], told["where"], told["note"]) == ("1 nats", "", "", None)


def test_words_fill_in_the_evidence() -> None:
    role = fact("role_local", [1], settings={"threshold": 2.5, "window": 4})
    about = entry(role, 0)["about"]
    assert "at most 4 away" in about and "above 2.5, by" in about
    assert entry(fact("disabled_rte", [1], settings={"inputs": 277}), 0)["about"].startswith(
        "Change of the task's score on 277 inputs"
    )
    assert note(fact("coreference", [50], settings={"nearest": 44.2}), 0) == (
        "the nearest mention: 44\xa0%"
    )
    with pytest.raises(BadValue, match="fact 'role_local' has no setting 'window'"):
        entry(fact("role_local", [1], settings={"threshold": 3}), 0)


def test_what_an_atlas_was_made_from() -> None:
    about = {"inputs": {"n": 300, "corpus": "wiki"}, "seeds": [0, 1], "versions": {"torch": "2"}}
    assert made_from(about) == {
        "inputs": "300 inputs of wiki",
        "seeds": "0, 1",
        "versions": "torch: 2",
    }
