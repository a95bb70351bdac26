"""The atlas of heads: what is saved comes back, what is damaged is refused, cards equal tables."""

from __future__ import annotations

import copy
import html
import json
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnlib.errors import AssetError, AttnlibError, BadValue, UnknownName
from attnlib.plots.viewer import asset, script
from bookkit.pages.site import external_loads
from bookkit.store import Found
from experiments.agreement.atlasmaking import ROLES_TOLD, _effects, _roles, _skills
from experiments.agreement.sightings import ROLES as TESTED
from experiments.atlas import atlas as atlas_module
from experiments.atlas.atlas import Atlas, Fact, load
from experiments.atlas.atlascolumns import class_looks, page_data
from experiments.atlas.atlaspage import CHAPTER, SCRIPTS, AtlasView, fragment, page
from experiments.atlas.atlastopics import Topic, topics
from experiments.atlas.atlaswords import (
    RELATIONS,
    SEVERAL,
    SYNONYMS,
    other_words,
    plain_words,
    several,
    summary,
)
from tests.atlases import BOOK, ROLES, TEXTS, N, fact, made_up, tiny_readings
from tests.families import one_thread

__all__ = ["one_thread"]  # fixture

NUMBER = re.compile(r"[+−]?[\d,]*\.?\d+")


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return made_up(tiny_readings(tmp_path_factory.mktemp("atlas")))


@pytest.fixture(scope="module")
def saved(atlas: Atlas, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return atlas.save(tmp_path_factory.mktemp("atlas") / "made-up.json")


@pytest.fixture(scope="module")
def stored(saved: Path) -> dict[str, Any]:
    return json.loads(saved.read_text("utf-8"))


def with_facts(atlas: Atlas, *facts: Fact) -> Atlas:
    n = atlas.n_layers * atlas.n_heads
    return Atlas("m", atlas.n_layers, atlas.n_heads, {}, facts, np.zeros((n, n)),
                 np.zeros((n, 3)), (-1, 0, 1), ())  # fmt: skip


def shown_number(text: str) -> float:
    """The number in a text of a card, read by nothing of ours."""
    found = NUMBER.match(text)
    assert found, text
    return float(found[0].replace("−", "-").replace(",", ""))


# The file


def test_what_is_saved_comes_back(atlas: Atlas, saved: Path, tmp_path: Path) -> None:
    again = load(saved)
    assert (again.model, again.n_layers, again.n_heads) == ("made-up", 12, 12)
    assert again.about == atlas.about and again.offsets == atlas.offsets
    assert again.titles == TEXTS
    for one, other in zip(again.facts, atlas.facts, strict=True):
        assert vars(one).keys() >= {"key", "detail"}
        for part in Fact.__dataclass_fields__:
            assert getattr(one, part) == getattr(other, part), (other.key, part)
    np.testing.assert_array_equal(again.distances, atlas.distances)
    np.testing.assert_array_equal(again.portraits, atlas.portraits)
    for one, other in zip(again.texts, atlas.texts, strict=True):
        assert (one.tokens, one.unit, one.units, one.special) == (
            (other.tokens, other.unit, other.units, other.special)
        )
        assert one.sheets == other.sheets and one.levels == other.levels
        np.testing.assert_array_equal(one.weights, other.weights)
        np.testing.assert_allclose(one.values["entropy"], other.values["entropy"], rtol=1e-4)
    assert again.card("7-3") == atlas.card("7-3") and page(again) == page(atlas)
    assert again.save(tmp_path / "again.json").read_bytes() == saved.read_bytes()


def test_a_file_is_as_documented(stored: dict[str, Any], saved: Path) -> None:
    assert stored["kind"] == "attnlib atlas" and stored["format"] == 1
    documented = atlas_module.__doc__ or ""
    assert all(name in documented for name in stored if name not in ("kind", "format"))
    assert [len(row) for row in stored["distances"]] == list(range(N))
    assert {one["key"] for one in stored["facts"]} >= {"entropy", "guan_type", "role_local"}
    lines = saved.read_text("utf-8").splitlines()
    assert sum(line.startswith('{"key":') for line in lines) == len(stored["facts"])


def test_an_atlas_is_small(saved: Path, atlas: Atlas) -> None:
    assert saved.stat().st_size < 2_500_000
    assert len(page(atlas).encode()) < 3_000_000


def test_the_published_atlas_of_a_model_is_found(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atlas_module, "PUBLISHED", tmp_path)
    with pytest.raises(UnknownName, match=r"no atlas of 'e5-small'. Published: none. Give"):
        load()
    (tmp_path / "e5-small.json").write_bytes(saved.read_bytes())
    assert load().model == load("e5-small").model == "made-up"
    with pytest.raises(UnknownName, match=r"Did you mean 'e5-small'\?"):
        load("e5-smal")


def test_saving_is_whole_or_not_at_all(
    atlas: Atlas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("atlas.html", "gone/atlas.json"):
        with pytest.raises(BadValue):
            atlas.save(tmp_path / name)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    for name, one in (("a.json", atlas), ("a.html", AtlasView(atlas))):
        with pytest.raises(BadValue, match=r"cannot be written.*No space"):
            one.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


DAMAGE = {
    "cut": (lambda text: text[: len(text) // 2], "cut short, damaged, or no JSON"),
    "empty": (lambda text: "", "cut short, damaged, or no JSON"),
    "binary": (lambda text: b"\xff\xfe\x00", "cut short, damaged, or no JSON"),
    "list": (lambda text: "[1, 2]", "JSON of another kind"),
    "foreign": (lambda text: '{"cells": [], "nbformat": 4}', "JSON of another kind"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_refused(kind: str, saved: Path, tmp_path: Path) -> None:
    change, said = DAMAGE[kind]
    path, text = tmp_path / "bad.json", change(saved.read_text("utf-8"))
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(AssetError, match=said) as error:
        load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def _set(*path: Any) -> Any:
    *way, last, value = path

    def change(stored: dict[str, Any]) -> None:
        for step in way:
            stored = stored[step]
        stored[last] = value

    return change


CHANGES = [
    (_set("format", 2), "has the format 2; this version reads 1"),
    (lambda s: s.pop("facts"), "has no facts; expected an atlas with"),
    (lambda s: s["facts"][0]["value"].pop(), "'mass_to_next' has 144 entries of 'low' and 143"),
    (_set("facts", 0, "value", 3, "much"), "'much' is not a finite number"),
    (_set("facts", 0, "kind", "guess"), "is 'guess'; expected one of number, class, flag"),
    (lambda s: s["facts"][0].pop("name"), "fact 'mass_to_next' has no name"),
    (_set("facts", 0, "colour", "red"), "has an unknown part 'colour'"),
    (_set("facts", 1, "key", "mass_to_next"), "'mass_to_next' is there twice"),
    (_set("n_layers", 11), "has 144 values; expected one for each of 11 x 12 heads"),
    (lambda s: s["distances"].pop(), r"distances are \(143, 143\)"),
    (_set("distances", 5, [0.1]), "distances are no triangle"),
    (_set("distances", 5, 0, -0.1), "distances are below 0"),
    (lambda s: s["offsets"].pop(), r"portraits are \(144, 21\); expected \(144, 20\)"),
    (lambda s: s["titles"].pop(), "2 titles for 3 texts"),
    (_set("texts", 0, "sheets", 4, "AAAA"), "the maps of layer 5 of .* do not unpack"),
    (_set("texts", 0, "sheets", 4, "%%"), "the maps of layer 5 of .* do not unpack"),
    (lambda s: s["texts"][0]["sheets"].pop(), "was read with 11 x 12 heads"),
    (lambda s: s["texts"][0].pop("tokens"), "a part has another shape"),
    (_set("facts", "none at all"), "a part has another shape"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_what_is_wrong_inside_is_named(
    change: Any, said: str, stored: dict[str, Any], tmp_path: Path
) -> None:
    bad = copy.deepcopy(stored)
    change(bad)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(bad), "utf-8")
    with pytest.raises(AssetError, match=said) as error:
        load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="cannot be read"):
        load(tmp_path / "gone.json")


# Facts


def test_values_become_plain(atlas: Atlas) -> None:
    assert atlas.fact("entropy").value[5] is None and atlas.fact("pattern").value[3] is None
    assert all(type(value) is float for value in atlas.fact("peak").value)
    assert {type(value) for value in atlas.fact("role_local").value} == {int}
    with pytest.raises(UnknownName, match="Did you mean 'entropy'"):
        atlas.fact("entopy")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "flag", "value": [0, 2]}, "2 is neither 0 nor 1"),
        ({"kind": "class", "value": ["a", 2]}, "2 is not a word"),
        ({"value": [1.0, math.inf]}, "'inf' is not a finite number"),
        ({"low": [0, 0]}, "one end of an interval"),
        ({"low": [2, 0], "high": [1, 1]}, "interval from 2.0 to 1.0"),
        ({"note": ["one"]}, "1 entries of 'note' and 2 values"),
        ({"detail": {"n": [1, 2, 3]}}, "3 entries of 'n' and 2 values"),
        ({"name": ""}, "no key, name or group"),
        ({"where": "javascript:alert(1)"}, "expected a page of the book"),
        ({"where": "//example.org"}, "expected a page of the book"),
    ],
)
def test_a_wrong_fact_is_named(given: dict[str, Any], said: str) -> None:
    told = {"key": "k", "name": "n", "paper": "p", "kind": "number", "unit": "", "group": "g",
            "value": [1, 2]}  # fmt: skip
    with pytest.raises(BadValue, match=said):
        Fact(**{**told, **given})


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
    one = fact("k", "n", "number", "Importance", value, **more)
    assert [one.text(head) for head in range(3)] == said


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
    one = fact("k", "n", "number", "Importance", [value, wide], low=[low, wide],
               high=[high, wide], **more)  # fmt: skip
    assert one.interval(0) == said


def test_details_are_said_in_words() -> None:
    detail = {"n": [300], "stability": [1.0], "accuracy": [16.04], "baseline": [6], "bias": [3.304],
              "p": [3.4e-305], "q": [0.0], "other": [2.5], "kind": ["x"]}  # fmt: skip
    told = fact("k", "n", "number", "Importance", [1], detail=detail).told(0)
    assert list(told.values()) == [
        *("300 inputs", "called so in 100\xa0% of the redraws", "finds 16.0\xa0%"),
        *("best offset 6.0\xa0%", "bias 3.30", "p < 0.001", "q < 0.001", "other 2.50", "kind x"),
    ]
    known = fact("k", "n", "number", "Importance", [1], detail={"p": [0.02], "q": [1.0]})
    assert list(known.told(0).values()) == ["p 0.020", "q 1"]
    assert fact("k", "n", "number", "Importance", [1], detail={"p": [None]}).told(0) == {}


def test_spaces_that_must_not_break_are_kept() -> None:
    one = fact("k", "n", "number", "Importance", [1], note=[" 5\xa0%\n of\t it "])
    assert one.note == ("5\xa0% of it",)


# Cards and tables


def test_a_card_equals_the_table(atlas: Atlas) -> None:
    table = atlas.table().set_index(["head", "key"])
    assert len(table) == N * len(atlas.facts)
    for head in ("1-1", "1-4", "1-10", "5-4", "12-12"):
        for entry in atlas.card(head)["facts"]:
            row = table.loc[(head, entry["key"])]
            if row["value"] is None or row["value"] != row["value"]:
                assert entry["value"] is None and entry["text"] == "not measured"
                continue
            assert entry["value"] == row["value"] and entry["text"] == row["text"]
            if row["kind"] != "number":
                continue
            scale = 100 if row["unit"] == "share" else 1
            places = len(entry["text"].partition(".")[2].split()[0]) if "." in entry["text"] else 0
            half = 0.5000001 * 10**-places
            assert abs(shown_number(entry["text"]) - scale * row["value"]) <= half
            if entry["interval"]:
                if entry["interval"].startswith("±"):
                    width = float(entry["interval"].removeprefix("± < "))
                    assert (
                        scale * max(row["high"] - row["value"], row["value"] - row["low"]) < width
                    )
                    continue
                ends = [shown_number(end) for end in entry["interval"].split(" to ")]
                assert abs(ends[0] - scale * row["low"]) <= half
                assert abs(ends[1] - scale * row["high"]) <= half


def test_a_table_has_the_details(atlas: Atlas) -> None:
    table = atlas.table()
    one = table[(table["key"] == "role_local") & (table["head"] == "5-4")].iloc[0]
    assert (one["layer"], one["number"], one["paper"]) == (5, 4, "pande2021")
    assert one["bias"] == atlas.fact("role_local").detail["bias"][51]
    assert table.loc[table["key"] == "entropy", "bias"].isna().all()


def test_neighbours_are_those_of_the_distances(atlas: Atlas) -> None:
    row = atlas.distances[51]
    order = [i for i in np.argsort(row, kind="stable") if i != 51]
    card = atlas.card("5-4")
    assert [one["head"] for one in card["nearest"]] == [atlas.heads[i] for i in order[:5]]
    assert {one["head"] for one in card["farthest"]} == {atlas.heads[i] for i in order[-5:]}
    assert card["farthest"][0]["distance"] == row.max()
    assert card["nearest"][0]["text"] == f"{row[order[0]]:.3f}"
    assert list(card["portrait"].values()) == pytest.approx(atlas.portraits[51])


def test_ranks_count_from_the_highest(atlas: Atlas) -> None:
    values = atlas.fact("entropy").value
    for head in (0, 5, 77):
        rank = atlas.card(atlas.heads[head])["facts"][6]["rank"]
        mine = values[head]
        want = None if mine is None else 1 + sum(v is not None and v > mine for v in values)
        assert rank == want
    assert set(atlas.fact("same").ranks) == {1}


@pytest.mark.parametrize("head", ["0-3", "13-1", "1-13", "x"])
def test_a_head_that_does_not_exist(head: str, atlas: Atlas) -> None:
    with pytest.raises(AttnlibError, match=r"expected layer-head|has heads 1-1 to 12-12"):
        atlas.card(head)


def test_what_was_not_measured_is_left_out(atlas: Atlas) -> None:
    bare = Atlas(
        "m", 2, 2, {}, (), np.full((4, 4), np.nan), np.full((4, 3), np.nan), (-1, 0, 1), ()
    )
    card = bare.card("1-1")
    assert card["nearest"] == card["facts"] == [] and set(card["portrait"].values()) == {None}
    assert card["summary"] == "" and "data-atlas" in fragment(bare)


# In words


def test_a_head_in_a_sentence(atlas: Atlas) -> None:
    said = [atlas.card(head)["summary"] for head in atlas.heads]
    assert all(text.endswith(".") and "  " not in text for text in said)
    shares = np.array([atlas.fact(f"mass_to_{k}").value for k in ("next", "previous", "self")])
    head = int(shares[0].argmax())
    assert said[head].startswith(atlas.fact("mass_to_next").text(head).replace(" ", "\xa0"))
    assert "of its attention goes to the next token." in said[head]
    assert "It has no role." in said[0]
    for head, low in enumerate(atlas.fact("disabled_rte").low or ()):
        if low is not None and low > 0:
            assert f"RTE ({atlas.fact('disabled_rte').text(head)})" in said[head]
    many = [fact(f"role_{i}", f"r{i}", "flag", "Roles", [1]) for i in range(9)]
    assert summary(many, 0) == "Roles: r0, r1, r2, r3, r4 and 4 more."


def test_changes_are_not_called_sure() -> None:
    """The intervals are many and uncorrected: the sentence says how many exclude 0 at all."""

    def task(key: str, name: str, low: list[float | None], high: list[float | None]) -> Fact:
        value = [None if one is None else one + 0.5 for one in low]
        more: Any = {"unit": "points", "diverging": True, "low": low, "high": high}
        return fact(
            f"disabled_{key}", f"{name} without it", "number", "When disabled", value, **more
        )

    facts = [
        task("sst2", "SST-2", [0.75, -1, -2], [2, 1, -1]),
        task("stsb", "STS-B", [-1, -1, None], [2, 1, None]),
    ]
    assert summary(facts, 0) == (
        "Without it the 95% interval excludes 0 for SST-2 (+1.25 points), uncorrected: so do 2 of "
        "all 5 intervals, chance alone would give about 0."
    )
    assert summary(facts, 1) == "Without it no 95% interval of 2 tasks excludes 0."
    assert "surely" not in summary(facts, 0) + summary(facts, 1)


def test_a_sentence_names_papers_and_leaves_out_what_says_nothing() -> None:
    def called(key: str, name: str, paper: str, *labels: str) -> Fact:
        return Fact(key, name, paper, "class", "", "Names", labels)

    facts = [
        called("guan_label", "type (Guan 2020)", "guan2020", "vertical", "dense"),
        called("clark_label", "behaviour (Clark 2019)", "clark2019", "next", "other"),
        called("rule_label", "pattern by rule", "kovaleva2019", "vertical", "block"),
        called("network_label", "pattern by network", "kovaleva2019", "diagonal", "block"),
    ]
    assert summary(facts, 0) == (
        "Guan: vertical; Clark: next; Kovaleva: vertical by rule, diagonal by network."
    )
    assert summary(facts, 1) == "Guan: dense; Kovaleva: block by rule and by network."


def test_relations_of_many_words() -> None:
    assert (
        several("dobj") == "direct objects of the verb" and several("advcl") == "adverbial clauses"
    )
    assert several("acl") == "clauses that describe a noun" and several("det") == "determiners"
    assert several("oprd") == "predicative complements" and several("none") == "none"
    assert SEVERAL.keys() <= RELATIONS.keys()


# What the chapter makes of its tables


def grid(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"layer": 1, "head": [1, 2], **columns})


def test_a_lead_that_may_be_chance_is_no_skill() -> None:
    ends: Any = {"accuracy": [16.05, 6.5], "baseline": [6.08, 6.08], "low": [7.5, -1.7]}
    ends |= {"gain": [9.97, 0.4], "high": [12.6, 2.5], "direction": ["dep->head", "head->dep"]}
    relations = Found(grid(relation="advcl", **ends))
    mentions = grid(accuracy=[40.0, 50], low=[30.0, 40], high=[50.0, 60])
    coreference = Found(mentions, facts={"baselines": {"nearest": 44.2}})
    found: Any = SimpleNamespace(relations=relations, coreference=coreference)
    facts = _skills(found, lambda one: "a table")
    assert facts[0].value == ("advcl", "none")
    assert summary(facts, 0) == "Finds adverbial clauses (advcl) 16.1\xa0%, best offset 6.1\xa0%."
    assert summary(facts, 1) == "" and facts[0].told(1) == {}
    assert facts[0].note == (
        "advcl 16.1\xa0% (dependent\xa0→\xa0head; best offset 6.1\xa0%)",
        "advcl 6.5\xa0% (head\xa0→\xa0dependent; best offset 6.1\xa0%)",
    )
    assert facts[2].note == ("the nearest mention: 44\xa0%",) * 2


def test_every_role_says_what_its_bias_is() -> None:
    table = pd.concat(
        grid(role=role, assigned=[True, False], bias=4.0, p=0.0, q=3.4e-305, n=300)
        for role in TESTED
    )
    found: Any = SimpleNamespace(roles=Found(table, facts={"threshold": 3.0}))
    facts = _roles(found, lambda one: "a table")
    assert list(ROLES_TOLD) == list(TESTED) and len({one.about for one in facts}) == len(TESTED)
    assert all("Bias: attention " in one.about and "even share" in one.about for one in facts)
    assert {"[CLS]", "[SEP]", "subject (nsubj)", "object (dobj)"} < {one.name for one in facts}
    assert list(facts[0].told(0).values()) == ["bias 4", "p < 0.001", "q < 0.001", "300 inputs"]
    assert "authors" not in summary(facts, 0) and "no role" in summary(facts, 1)


def test_changes_of_tasks_are_corrected_for_their_number() -> None:
    ends: Any = {"cost": 1.0, "cost_low": 0.5, "cost_high": 2.0}
    ends |= {"influence": 1.0, "influence_low": 0.5, "influence_high": 2.0}
    tasks = {name: Found(grid(p=p, **ends), facts={"inputs": 9})
             for name, p in (("sst2", [0.01, 0.5]), ("rte", [0.5, 0.5]))}  # fmt: skip
    found: Any = SimpleNamespace(effects=tasks, questions=tasks["rte"])
    facts = {one.key: one for one in _effects(found, lambda one: "a table")}
    assert facts["disabled_sst2"].detail == {"p": (0.01, 0.5), "q": (0.04, 0.5)}
    assert "below 0: the model needs the head" in facts["disabled_sst2"].about
    assert "above 0: needed" in facts["questions_loss"].name
    above = [one for one in topics([*facts.values()]) if one.name.startswith("rise of the loss")]
    assert [(one.name.split(": ")[-1], "worse without" in one.also) for one in above] == [
        ("loses", True)
    ]


def named(found: list[Topic], name: str) -> Topic:
    (one,) = [topic for topic in found if topic.name == name]
    return one


def test_topics_name_the_right_heads_best_first(atlas: Atlas) -> None:
    found = topics(atlas.facts)
    shares = np.array(atlas.fact("mass_to_next").value, float)
    assert named(found, "most attention to the next token").heads == tuple(
        np.argsort(-shares, kind="stable")[:12]
    )
    low = named(found, "least entropy").heads[0]
    assert atlas.fact("entropy").value[low] == min(atlas.fact("entropy").numbers)
    vertical = named(found, "type: vertical").heads
    assert {h for h, v in enumerate(atlas.fact("guan_type").value) if v == "vertical"} == set(
        vertical
    )
    stability = [atlas.fact("guan_type").detail["stability"][head] for head in vertical]
    assert stability == sorted(stability, reverse=True)  # type: ignore[type-var]
    gains = named(found, "RTE without it: gains")
    values = atlas.fact("disabled_rte")
    assert all(values.value[head] > 0 for head in gains.heads)  # type: ignore[operator]
    assert values.low is not None and (values.low[gains.heads[0]] or 0) > 0
    assert "gains" in gains.words and "disabled" in gains.words


def test_harmless_and_unskilled_heads_are_found(atlas: Atlas) -> None:
    found = topics(atlas.facts)
    changes = np.array([[math.nan if v is None else v for v in one.value]
                        for one in atlas.facts if one.key.startswith("disabled_")],
                       float)  # fmt: skip
    known = ~np.isnan(changes).all(axis=0)
    worst = np.where(known, np.nanmin(np.where(known, changes, 0), axis=0), -9)
    assert set(named(found, "harmless").heads) == set(np.flatnonzero(worst > -0.5))
    roles = np.array([atlas.fact(f"role_{role}").value for role in ROLES])
    assert set(named(found, "no role").heads) == set(np.flatnonzero(~roles.any(axis=0)))
    every = fact("role_block_authors", "block (by the authors)", "flag", "Roles", [1] * N)
    assert named(topics((*atlas.facts, every)), "no role") == named(found, "no role")
    given = fact("harmless", "harmless everywhere", "flag", "When disabled", [1] * N)
    again = topics((*atlas.facts, given))
    assert sum("harmless" in topic.name for topic in again) == 1, "a fact of that name goes first"


def test_evidence_can_be_searched(atlas: Atlas) -> None:
    topic = named(topics(atlas.facts), "its accuracy: dobj")
    notes = atlas.fact("best_relation_accuracy").note or ()
    assert set(topic.heads) == {h for h, note in enumerate(notes) if "dobj" in (note or "")}
    assert "direct object" in topic.words
    assert all("dobj" in why for why in topic.why)


def test_relations_are_found_best_first() -> None:
    """By the number of that relation, also where the fact is a class and has no numbers."""
    notes = [
        "det 52.9 % (a → b; best offset 60.0 %)",
        "dobj 9.0 % (a → b; best offset 8.0 %); det 74.7 % (a → b; best offset 60.0 %)",
        "det 90.8 % (a → b; best offset 60.0 %)",
    ]
    one = fact("best_relation", "best at", "class", "Type", ["det", "dobj", "det"], note=notes)
    topic = named(topics([one]), "best at: det")
    assert topic.heads == (2, 1, 0)
    assert topic.why[1] == "det 74.7 % (a → b; best offset 60.0 %)"
    bias = {"bias": [9.5, 9, 9, 4, 5.5]}
    role = fact("role_det", "article (det)", "flag", "Roles", [1, 1, 0, 1, 1], detail=bias)
    five = fact("best_relation", "best at", "class", "Type", ["det"] * 5, note=[*notes, "", None])
    found = topics([five, role])
    topic = named(found, "best at: det")
    assert topic.heads == (2, 1, 0, 4, 3) and "article (det)" not in {one.name for one in found}
    assert topic.why[3] == "Roles: article (det), bias 5.50"


def test_labels_have_plain_words() -> None:
    assert "direct object" in plain_words("dobj") and "direct object" in plain_words("finds obj")
    assert "possessive" in plain_words("nmod:poss") and "separator" in other_words("mass_to_sep")
    assert other_words("xyzzy") == plain_words("xyzzy") == ""
    assert all(text == text.strip() and text for text in {**RELATIONS, **SYNONYMS}.values())
    assert not set(RELATIONS) & set(SYNONYMS)


# The fragment


class Tags(HTMLParser):
    """Every tag a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def test_the_page_stands_alone(atlas: Atlas, tmp_path: Path) -> None:
    path = AtlasView(atlas).save(tmp_path / "atlas.html")
    assert external_loads(tmp_path) == [] and list(tmp_path.iterdir()) == [path]
    text = path.read_text("utf-8")
    assert text == page(atlas) and text.startswith("<!doctype html>") and 'lang="en"' in text
    tags = Tags(text)
    assert len(tags.all("script")) == 1 and len(tags.all("style")) == 2
    assert not any(attrs.get("id") for _, attrs in tags.tags)
    code = script(*SCRIPTS)
    assert "</" not in code and "<!--" not in code, "it would end the script of the page"
    assert not re.search(r"\b(fetch|XMLHttpRequest|import|eval|innerHTML|define|require)\b", code)
    with pytest.raises(BadValue, match=r"expected \.html"):
        AtlasView(atlas).save(tmp_path / "atlas.pdf")


def test_a_page_names_the_chapter_it_comes_from(atlas: Atlas) -> None:
    assert "this book" not in page(atlas) and html.escape(CHAPTER) in page(atlas)
    path = Path(__file__).parents[3] / "notebooks" / "agreement.ipynb"
    title = json.loads(path.read_text("utf-8"))["cells"][0]["source"]
    assert "".join(title).startswith(f"# {CHAPTER}\n")


def test_words_are_data_and_never_markup(atlas: Atlas) -> None:
    text = fragment(atlas)
    assert TEXTS[2] not in text and html.escape("CC BY 4.0 <b>") in text
    assert len(Tags(text).all("script")) == len(Tags(text).all("figure")) == 1
    data = json.loads(Tags(text).all("figure")[0]["data-atlas"] or "")
    assert data["texts"][2]["title"] == TEXTS[2]


def test_styles_touch_nothing_else() -> None:
    """Every rule, also those inside @container and @media, names the atlas."""
    css = re.sub(r"/\*.*?\*/", "", asset("atlas.css"), flags=re.S)
    rules = [one.split("}")[-1].split(";")[-1].strip() for one in css.split("{")[:-1]]
    strangers = [one for one in rules if ".attn-atlas" not in one and not one.startswith("@")]
    assert strangers == []
    parts = [part for one in rules if "," in one for part in re.split(r",(?![^(]*\))", one)]
    assert [part for part in parts if ".attn-atlas" not in part and not part.startswith("@")] == []


def test_links_lead_into_the_book_or_nowhere(atlas: Atlas) -> None:
    links = [column["link"] for column in page_data(atlas, "../")["facts"]]
    assert f"../{BOOK['clark2019']}" in links and None in links
    assert {column["link"] for column in page_data(atlas, None)["facts"]} == {None}
    assert page_data(atlas, "")["facts"][0]["link"] == BOOK["clark2019"]


def test_the_page_shows_the_texts_of_the_cards(atlas: Atlas) -> None:
    data = page_data(atlas, None)
    for place in (0, 9, 143):
        card = atlas.card(atlas.heads[place])
        for column, entry in zip(data["facts"], card["facts"], strict=True):
            assert column["text"].split("\n")[place] == entry["text"]
            assert column["interval"].split("\n")[place] == entry["interval"]
            assert len(column["note"].split("\n")) == N


def test_shares_of_a_group_are_drawn_to_one_scale(atlas: Atlas) -> None:
    columns = {column["key"]: column for column in page_data(atlas, None)["facts"]}
    for group, unit in (("Where it looks", "share"), ("Syntax and coreference", "percent")):
        own = [one for one in atlas.facts if (one.group, one.unit) == (group, unit)]
        pairs = [
            (float(value), place)
            for one in own
            for value, place in zip(one.value, columns[one.key]["at"], strict=True)
            if value is not None
        ]
        assert len(own) > 4 and [place for _, place in sorted(pairs)] == sorted(p for _, p in pairs)
    entropy = columns["entropy"]["at"]
    assert min(v for v in entropy if v is not None) == 0 and max(v or 0 for v in entropy) == 1000


def test_classes_keep_the_looks_of_the_chapters(atlas: Atlas) -> None:
    looks = class_looks(atlas.fact("guan_type"))
    assert list(looks) == ["dense", "diagonal", "dense&vertical", "vertical"]
    many = fact("k", "n", "class", "Type", [f"c{i % 30}" for i in range(N)])
    assert len(class_looks(many)) == 30
    pairs = [(look.colour, look.marker) for look in class_looks(many).values()]
    assert len(set(pairs)) == 10


def test_the_same_atlas_gives_the_same_page(atlas: Atlas) -> None:
    assert page(atlas) == page(atlas)


def test_a_small_atlas_without_texts(atlas: Atlas) -> None:
    one = with_facts(atlas, fact("entropy", "entropy", "number", "Where it looks", [1.0] * N))
    assert one.titles == () and "data-maps=" not in fragment(one)
