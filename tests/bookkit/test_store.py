"""Results are found again by experiment, version, parameters and data, and by nothing else."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bookkit import store as store_module
from bookkit.audit import OtherNumbers, declared_versions, difference, not_verified, verified
from bookkit.chapter import Chapter
from bookkit.claims import Finding
from bookkit.errors import BadValue, MissingResult
from bookkit.store import Found, Key, Source, Store, code_digest, declared, experiment, table_digest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "kept", tmp_path / "published")


class Counted:
    """An experiment that says how often it was run."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> Found:
        self.runs += 1
        table = pd.DataFrame({"head": ["1-1", "1-2"], "mean": [0.5, math.nan]})
        return Found(table, {"a": Finding(1.5, 1.0, math.nan)}, {"n": 3, "even": {"x": 0.1}})


KEY = Key("toy/trial", 1, {"limit": 3}, ({"name": "texts", "digest": "d1"},))


def test_the_second_time_it_is_read(store: Store) -> None:
    run = Counted()
    first, second = (store.remembered(KEY, run, lambda: {"code": "c"}) for _ in range(2))
    assert run.runs == 1
    pd.testing.assert_frame_equal(first.found.table, second.found.table)
    assert second.found.findings["a"].value == 1.5 and math.isnan(second.found.findings["a"].high)
    assert second.found.facts == {"n": 3, "even": {"x": 0.1}}
    record = second.record
    assert record["parameters"] == {"limit": 3} and record["data"][0]["name"] == "texts"
    assert record["started"].endswith("+00:00") and record["code"] == "c"
    assert {"commit", "seconds", "peak_mib", "threads", "versions"} <= set(record)
    assert second.path == store.folders[0] / f"{KEY.name}.json"
    assert KEY.name.startswith("toy/trial/v1-")


@pytest.mark.parametrize(
    "other",
    [
        Key("toy/else", 1, KEY.parameters, KEY.data),
        Key("toy/trial", 2, KEY.parameters, KEY.data),
        Key("toy/trial", 1, {"limit": 4}, KEY.data),
        Key("toy/trial", 1, KEY.parameters, ({"name": "texts", "digest": "d2"},)),
        Key("toy/trial", 1, KEY.parameters, ()),
    ],
)
def test_anything_else_is_another_result(store: Store, other: Key) -> None:
    run = Counted()
    store.remembered(KEY, run)
    store.remembered(other, run)
    assert run.runs == 2


def test_what_data_is_called_does_not_count(store: Store) -> None:
    same = Key("toy/trial", 1, {"limit": 3}, ({"name": "the same texts", "digest": "d1"},))
    assert same.name == KEY.name
    tuples = Key("toy/trial", 1, {"asked": (1, 2)}, ())
    assert tuples.name == Key("toy/trial", 1, {"asked": [1, 2]}, ()).name


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_damaged_result_is_made_again(store: Store, suffix: str) -> None:
    run = Counted()
    path = store.remembered(KEY, run).path.with_suffix(suffix)
    path.write_bytes(path.read_bytes()[:-20])
    store.remembered(KEY, run)
    assert run.runs == 2


def test_a_table_that_is_not_the_one_recorded_is_not_believed(store: Store) -> None:
    run = Counted()
    path = store.remembered(KEY, run).path.with_suffix(".parquet")
    pd.DataFrame({"head": ["1-1", "1-2"], "mean": [0.9, 0.9]}).to_parquet(path)
    assert store.remembered(KEY, run).found.table["mean"][0] == 0.5
    assert run.runs == 2


def test_an_experiment_that_fails_leaves_nothing(store: Store) -> None:
    def fails() -> Found:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.remembered(KEY, fails)
    assert not list(store.folders[0].rglob("*.*"))


def test_a_write_that_fails_half_way_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    assert store.remembered(KEY, Counted()).found.facts["n"] == 3  # the result is not lost
    assert not [path for path in store.folders[0].rglob("*") if path.is_file()]


def test_published_results_are_read_and_others_go(store: Store) -> None:
    run = Counted()
    kept = store.remembered(KEY, run)
    published = store.folders[1]
    stale = published / "toy" / "old" / "v1-0.json"
    other = published / "paper2" / "old" / "v1-0.json"
    for path in (stale, other):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    assert store.publish([kept.name], published, papers=["toy"]) == 1
    assert not stale.exists() and other.exists()
    for suffix in (".json", ".parquet"):
        kept.path.with_suffix(suffix).unlink()
    assert store.remembered(KEY, run).found.facts["n"] == 3
    assert run.runs == 1
    with pytest.raises(MissingResult, match="neither kept nor published"):
        store.publish(["toy/nothing/v1-0"], published, papers=None)


def test_what_is_not_finite_is_kept_as_null(store: Store) -> None:
    def run() -> Found:
        return Found(pd.DataFrame({"a": [1]}), {}, {"ratio": math.nan, "all": [math.inf, 1.0]})

    found = store.remembered(Key("toy/odd", 1, {}), run).found
    assert found.facts == {"ratio": None, "all": [None, 1.0]}


def test_a_table_has_one_digest() -> None:
    one = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert table_digest(one) == table_digest(one.copy())
    assert table_digest(one) != table_digest(one.assign(a=[1, 3]))
    assert table_digest(one) != table_digest(one.rename(columns={"a": "c"}))


# --- sources --------------------------------------------------------------------------------------


def test_data_is_described_without_being_loaded_again(store: Store) -> None:
    loads: list[str] = []

    def texts(content: str) -> Source[str]:
        def load() -> str:
            loads.append(content)
            return content

        def describe(text: str) -> dict[str, Any]:
            return {"digest": text.upper(), "examples": len(text)}

        return Source(store, {"corpus": "texts", "limit": 3}, load, describe)

    assert texts("abc").digest == "ABC" and len(texts("abc")) == 3
    assert loads == ["abc"]  # once, for the description
    with pytest.raises(AttributeError, match="has no 'colour'"):
        _ = texts("abc").colour
    changed = texts("abcd")
    assert changed.digest == "ABC"  # nobody has looked
    assert changed.value == "abcd" and changed.digest == "ABCD"  # now somebody has
    assert texts("abcd").digest == "ABCD"


# --- experiments and their code -------------------------------------------------------------------


def test_an_experiment_declares_itself() -> None:
    @experiment(version=3, reads=["glove"], trains=True)
    def trial() -> Found:
        return Counted()()

    assert declared(trial).version == 3 and declared(trial).reads == ("glove",)
    assert declared(trial).trains and trial().facts["n"] == 3
    with pytest.raises(BadValue, match="is not an experiment"):
        declared(Counted().__call__)
    with pytest.raises(BadValue, match="expected 1 or more"):
        experiment(version=0)


def checkout(folder: Path, body: str, *, module: str = "first") -> str:
    """A module of its own in a copy of a checkout, and the digest of its code there."""
    package = folder / "experiments"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (package / f"{module}.py").write_text(body)
    store_module._code.cache_clear()
    store_module._imported.cache_clear()
    return code_digest(f"experiments.{module}")


BODY = '''
from experiments.helper import twice


@experiment(version=4)
def trial(x):
    """Say."""
    return twice(x)  # why
'''


def test_the_code_behind_a_result_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "__file__", str(tmp_path / "bookkit" / "store.py"))
    first = checkout(tmp_path, BODY)
    assert checkout(tmp_path, BODY.replace("# why", "").replace("Say.", "Say it.")) == first
    assert checkout(tmp_path, BODY.replace("twice(x)", "twice(x) + 1")) != first
    assert declared_versions(tmp_path)["experiments/trial"][0] == 4
    before = checkout(tmp_path, BODY)
    (tmp_path / "experiments" / "helper.py").write_text("def twice(x):\n    return x + x\n")
    store_module._code.cache_clear()
    assert code_digest("experiments.first") != before  # what it imports counts too
    monkeypatch.undo()
    store_module._code.cache_clear()
    store_module._imported.cache_clear()


# --- verifying ------------------------------------------------------------------------------------


def found(mean: float = 0.5, low: float = 1.0, head: str = "1-1", extra: bool = False) -> Found:
    rows = {"head": [head, "1-2"], "mean": [mean, math.nan], "n": [3, 4]}
    table = pd.DataFrame(rows | ({"more": [1, 2]} if extra else {}))
    return Found(table, {"a": Finding(1.5, low, math.nan)})


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (found(0.5 * (1 + 1e-6)), ""),
        (found(0.51), "column 'mean'"),
        (found(math.nan), "column 'mean'"),
        (found(low=1.01), "low of the finding 'a' is 1.01, kept was 1"),
        (found(low=math.nan), "low of the finding 'a'"),
        (found(head="2-1"), "column 'head'"),
        (found(extra=True), "columns"),
        (Found(found().table.head(1), found().findings), "1 rows, kept were 2"),
        (Found(found().table, {}), "finding 'a' is new, or gone"),
    ],
)
def test_other_numbers_are_noticed(again: Found, said: str) -> None:
    assert said in difference(found(), again) and bool(said) == bool(difference(found(), again))


def test_only_cheap_results_that_need_no_training_are_computed_again(store: Store) -> None:
    @experiment(version=1)
    def plain() -> Found:
        return found()

    @experiment(version=1, trains=True)
    def trained() -> Found:
        return found()

    kept = store.remembered(KEY, plain)
    assert not not_verified(kept, plain, 5.0)
    assert not_verified(kept, trained, 5.0) == "train a model"
    assert not_verified(kept, plain, -1.0) == "take longer than -1 s"
    assert verified(kept, found()).record["verified"] is True
    assert verified(kept, None, "train a model").record["verified"] == "train a model"
    with pytest.raises(OtherNumbers, match=r"toy/trial.*raise the version of the experiment"):
        verified(kept, found(0.6))


# --- what is published ----------------------------------------------------------------------------

PUBLISHED = ROOT / "book" / "published" / "store"
RECORDS = sorted(path for path in PUBLISHED.glob("*/*/*.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_is_published_is_whole(path: Path) -> None:
    name = str(path.relative_to(PUBLISHED).with_suffix(""))
    kept = Store(PUBLISHED).find(name)
    assert kept is not None and len(kept.found.table)
    told = json.loads(path.read_text(encoding="utf-8"))
    data = tuple(told["data"])
    assert Key(told["experiment"], told["version"], told["parameters"], data).name == name
    assert told["seconds"] >= 0 and told["versions"]["torch"] and told["commit"]


def test_the_store_needs_no_torch() -> None:
    code = "import sys, bookkit.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_renaming_and_moving_code_orphans_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """The same experiment in another file, under other comments, finds what it kept."""
    monkeypatch.syspath_prepend(str(tmp_path))
    body = (
        "import pandas as pd\n"
        "from bookkit.store import Found, experiment\n"
        "RUNS = []\n"
        "@experiment(version={version})\n"
        "def trial(*, limit):  # {comment}\n"
        "    RUNS.append(limit)\n"
        "    return Found(pd.DataFrame({{'n': [limit * {factor}]}}))\n"
    )

    def ran(
        module: str, *, version: int = 1, factor: int = 2, comment: str = ""
    ) -> tuple[int, int]:
        (tmp_path / f"{module}.py").write_text(
            body.format(version=version, factor=factor, comment=comment)
        )
        code = __import__(module)
        chapter = Chapter("toy", model="none", store=store, claims=False)
        found = chapter.run(code.trial, limit=3)
        return int(found.table["n"][0]), len(code.RUNS)

    assert ran("first_home") == (6, 1)
    assert ran("second_home", comment="says more") == (6, 0)
    assert ran("third_home", factor=5) == (6, 0)  # nobody has noticed
    monkeypatch.setenv("ATTNLIB_VERIFY", "5")
    assert ran("fourth_home") == (6, 1)
    with pytest.raises(OtherNumbers, match="column 'n' has other values than were kept"):
        ran("fifth_home", factor=5)
    monkeypatch.delenv("ATTNLIB_VERIFY")
    assert ran("sixth_home", factor=5, version=2) == (15, 1)
