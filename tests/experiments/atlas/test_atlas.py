"""The atlas of heads: what is saved comes back, what is damaged is refused, cards equal tables."""

from __future__ import annotations

import copy
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import experiments.atlas
from attnlib.errors import AssetError, AttnlibError, BadValue, UnknownName
from experiments.atlas import Atlas, Fact, load
from experiments.atlas.page import fragment, page, save_page
from tests.atlases import TEXTS, N, made_up, tiny_readings
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
        for part in Fact.__dataclass_fields__:
            np.testing.assert_equal(getattr(one, part), getattr(other, part), (other.key, part))
    np.testing.assert_array_equal(again.distances, atlas.distances)
    np.testing.assert_array_equal(again.portraits, atlas.portraits)
    for one, other in zip(again.texts, atlas.texts, strict=True):
        assert (one.tokens, one.unit, one.units, one.special) == (
            (other.tokens, other.unit, other.units, other.special)
        )
        assert one.sheets == other.sheets and one.levels == other.levels
        np.testing.assert_allclose(one.values["entropy"], other.values["entropy"], rtol=1e-4)
    assert again.card("7-3") == atlas.card("7-3") and page(again) == page(atlas)
    assert again.save(tmp_path / "again.json").read_bytes() == saved.read_bytes()


def test_a_file_is_as_documented(stored: dict[str, Any], saved: Path) -> None:
    assert stored["kind"] == "attnlib atlas" and stored["format"] == 2
    documented = experiments.atlas.__doc__ or ""
    assert all(name in documented for name in stored if name not in ("kind", "format"))
    assert len(stored["distances"]) == N * (N - 1) / 2
    assert {one["key"] for one in stored["facts"]} >= {"entropy", "guan_label", "role_local"}
    lines = saved.read_text("utf-8").splitlines()
    assert sum(line.startswith('{"key":') for line in lines) == len(stored["facts"])


def test_an_atlas_is_small(saved: Path, atlas: Atlas) -> None:
    assert saved.stat().st_size < 2_500_000
    assert len(page(atlas).encode()) < 3_000_000


def test_the_published_atlas_of_a_model_is_found(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments.atlas, "PUBLISHED", tmp_path)
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
    for name, save in (("a.json", atlas.save), ("a.html", partial(save_page, atlas))):
        with pytest.raises(BadValue, match=r"cannot be written.*No space"):
            save(tmp_path / name)
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


def _cut(numbers: list[float], n: int) -> None:
    del numbers[n:]


CHANGES = [
    (_set("format", 1), "has the format 1; this version reads 2"),
    (lambda s: s.pop("facts"), "it has no part 'facts'"),
    (lambda s: s["facts"][0]["value"].pop(), "'mass_to_next' has 144 entries of 'low' and 143"),
    (_set("facts", 0, "value", 3, "much"), "'much' is not a finite number"),
    (_set("facts", 0, "kind", "guess"), "is 'guess'; expected one of number, class, flag"),
    (lambda s: s["facts"][0].pop("key"), "missing 1 required positional argument: 'key'"),
    (_set("facts", 0, "colour", "red"), "unexpected keyword argument 'colour'"),
    (lambda s: s["facts"][9]["skills"].pop(), "has 143 entries of 'skills' and 144"),
    (lambda s: s["facts"][9]["skills"][0][0].pop("accuracy"), "argument: 'accuracy'"),
    (_set("facts", 1, "key", "mass_to_next"), "'mass_to_next' is there twice"),
    (_set("n_layers", 11), "has 144 values; expected one for each of 11 x 12 heads"),
    (lambda s: _cut(s["distances"], 143 * 142 // 2), r"distances are \(143, 143\)"),
    (lambda s: s["distances"].pop(), "a part has another shape .*Incompatible vector size"),
    (_set("distances", 5, -0.1), "distances are below 0"),
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
        want = None if np.isnan(mine) else 1 + int((values > mine).sum())
        assert rank == want
    assert {atlas.fact("same").rank(head) for head in range(N)} == {1}


@pytest.mark.parametrize("head", ["0-3", "13-1", "1-13", "x"])
def test_a_head_that_does_not_exist(head: str, atlas: Atlas) -> None:
    with pytest.raises(AttnlibError, match=r"does not exist; made-up has heads 1-1 to 12-12"):
        atlas.card(head)


def test_what_was_not_measured_is_left_out(atlas: Atlas) -> None:
    unknown = np.full((4, 4), np.nan), np.full((4, 3), np.nan)
    bare = Atlas("m", 2, 2, {}, (), *unknown, (-1, 0, 1), (), ())
    card = bare.card("1-1")
    assert card["nearest"] == card["facts"] == [] and set(card["portrait"].values()) == {None}
    assert card["summary"] == "" and "data-atlas" in fragment(bare)
