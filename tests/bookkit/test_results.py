"""Results are kept by content: read back when nothing changed, made anew when something did."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from attnlib.errors import AssetError, BadValue
from bookkit import results
from bookkit.claims import Finding
from bookkit.results import Found, code_digest, publish, remembered, table_digest
from experiments.shared.antecedents import antecedent_table, choices


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(results, "PUBLISHED", tmp_path / "published")
    return tmp_path


class Counted:
    """An experiment that says how often it was run."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> Found:
        self.runs += 1
        table = pd.DataFrame({"head": ["1-1", "1-2"], "mean": [0.5, math.nan]})
        return Found(table, {"a": Finding(1.5, 1.0, math.nan)}, {"n": 3, "even": {"x": 0.1}})


def test_the_second_time_it_is_read(shelf: Path) -> None:
    run = Counted()
    first = remembered("trial", {"limit": 3}, "code", run)
    second = remembered("trial", {"limit": 3}, "code", run)
    assert run.runs == 1
    pd.testing.assert_frame_equal(first.found.table, second.found.table)
    assert second.found.findings["a"].value == 1.5 and math.isnan(second.found.findings["a"].high)
    assert second.found.facts == {"n": 3, "even": {"x": 0.1}}
    assert second.manifest["inputs"] == {"limit": 3} and "torch" in second.manifest["versions"]


@pytest.mark.parametrize("change", [{"inputs": {"limit": 4}}, {"code": "other"}, {"name": "else"}])
def test_anything_else_is_another_result(shelf: Path, change: dict[str, object]) -> None:
    run = Counted()
    remembered("trial", {"limit": 3}, "code", run)
    given = {"name": "trial", "inputs": {"limit": 3}, "code": "code", **change}
    remembered(given["name"], given["inputs"], given["code"], run)  # type: ignore[arg-type]
    assert run.runs == 2


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_damaged_result_is_made_again(shelf: Path, suffix: str) -> None:
    run = Counted()
    path = remembered("trial", {}, "code", run).path.with_suffix(suffix)
    path.write_bytes(path.read_bytes()[:-20])
    remembered("trial", {}, "code", run)
    assert run.runs == 2


def test_a_table_that_is_not_the_one_recorded_is_not_believed(shelf: Path) -> None:
    run = Counted()
    path = remembered("trial", {}, "code", run).path.with_suffix(".parquet")
    pd.DataFrame({"head": ["1-1", "1-2"], "mean": [0.9, 0.9]}).to_parquet(path)
    assert remembered("trial", {}, "code", run).found.table["mean"][0] == 0.5
    assert run.runs == 2


def test_an_experiment_that_fails_leaves_nothing(shelf: Path) -> None:
    def fails() -> Found:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        remembered("trial", {}, "code", fails)
    assert not list(shelf.rglob("trial*"))


def test_published_results_are_read_and_stale_ones_go(shelf: Path) -> None:
    run = Counted()
    kept = remembered("trial", {}, "code", run)
    (results.PUBLISHED).mkdir()
    (results.PUBLISHED / "old.json").write_text("{}")
    copied = publish([kept.manifest["name"]], results.PUBLISHED)
    assert sorted(p.name for p in results.PUBLISHED.iterdir()) == sorted(p.name for p in copied)
    for path in (kept.path, kept.path.with_suffix(".parquet")):
        path.unlink()
    assert remembered("trial", {}, "code", run).found.facts["n"] == 3
    assert run.runs == 1
    with pytest.raises(AssetError, match="neither kept nor published"):
        publish(["nothing-0"], results.PUBLISHED)


def test_two_functions_of_one_file_have_their_own_code() -> None:
    assert code_digest(choices) == code_digest(choices)
    assert code_digest(choices) != code_digest(antecedent_table)
    reached, modules = results._reached("antecedents", "antecedent_table")
    assert modules == {"stats", "coref"}
    assert not any("word_maps" in source for source in reached)
    assert {"words", "extract", "encode", "models"} <= results._used_by("words")
    assert "assets" not in results._used_by("words")


def test_comments_do_not_change_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'def f(x):\n    """Say."""\n    return x  # why\n'
    plain = "def f(x):\n    return x\n"

    def digest_of(text: str) -> str:
        results._tree.cache_clear()
        results._meaning.cache_clear()
        monkeypatch.setitem(results._SOURCES, results._path("stats"), text)
        return results._meaning("stats")

    try:
        assert digest_of(source) == digest_of(plain) != digest_of(plain.replace("x", "y"))
    finally:
        monkeypatch.undo()
        results._tree.cache_clear()
        results._meaning.cache_clear()


def test_every_constant_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of several that are set in one line."""
    source = "LOW, HIGH = 1, {}\n\n\ndef f():\n    return HIGH\n"
    found = []
    for value in (2, 3):
        results._tree.cache_clear()
        monkeypatch.setitem(results._SOURCES, results._path("stats"), source.format(value))
        found.append(results._reached("stats", "f"))
    monkeypatch.undo()
    results._tree.cache_clear()
    assert found[0] != found[1]


def test_notes_on_how_a_model_came_do_not_change_its_digest(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("1")
    before = results.file_digest(tmp_path)
    (tmp_path / ".note.json").write_text("fetched today")
    assert results.file_digest(tmp_path) == before
    (tmp_path / "weights").write_text("2")
    assert results.file_digest(tmp_path) != before


def test_a_function_of_elsewhere_cannot_be_kept() -> None:
    with pytest.raises(BadValue, match="expected a function of a module of attnlib"):
        code_digest(test_a_function_of_elsewhere_cannot_be_kept)


def test_what_is_not_finite_is_kept_as_null(shelf: Path) -> None:
    def run() -> Found:
        return Found(pd.DataFrame({"a": [1]}), {}, {"ratio": math.nan, "all": [math.inf, 1.0]})

    assert remembered("odd", {}, "code", run).found.facts == {"ratio": None, "all": [None, 1.0]}


def test_a_table_has_one_digest() -> None:
    one = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert table_digest(one) == table_digest(one.copy())
    assert table_digest(one) != table_digest(one.assign(a=[1, 3]))
    assert table_digest(one) != table_digest(one.rename(columns={"a": "c"}))


PUBLISHED = Path(results.__file__).parents[1] / "book" / "published" / "results"


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.json")), ids=lambda path: path.stem)
def test_what_is_published_is_whole(path: Path) -> None:
    found = results._read(path)
    assert found is not None and len(found.found.table)
    told = json.loads(path.read_text(encoding="utf-8"))
    assert told["seconds"] >= 0 and told["inputs"] and told["versions"]["torch"]
