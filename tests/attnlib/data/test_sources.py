"""Assets from a mirror and from the hub: their order, and what each must prove."""

from __future__ import annotations

import errno
import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attnlib.data import assets, sources
from attnlib.errors import AssetError, ChecksumError
from tests import asset_world
from tests.asset_world import (
    COMMIT,
    ROOT,
    HubAnswers,
    World,
    fill_hub_cache,
    fill_mirror,
    flip,
    pins,
    read,
    serve_hub,
    sha256,
)

world, quick_pip = asset_world.world, asset_world.quick_pip  # the fixtures


# --- a mirror -------------------------------------------------------------------------------


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
    monkeypatch.setattr(sources.MirrorSource, "bring", lambda *_: pytest.fail("done twice"))
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


# --- the hub --------------------------------------------------------------------------------


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


def test_a_reachable_hub_goes_before_a_package(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_pip.write(quick_pip.toml(quick_pip.package_form() + "\n" + quick_pip.hub_form()))
    sent = serve_hub(quick_pip, monkeypatch)
    assert read(assets.resolve("toy-model")) == quick_pip.content
    assert sorted(sent) == sorted(quick_pip.content)
    assert quick_pip.downloads == []
    assert not [name for name in quick_pip.leftovers() if assets.TEMPORARY in name]


def test_a_silent_hub_makes_way_for_a_package(quick_pip: World) -> None:
    quick_pip.write(quick_pip.toml(quick_pip.hub_form() + "\n" + quick_pip.package_form()))
    assert read(assets.resolve("toy-model")) == quick_pip.content
    assert quick_pip.downloads == ["toy"]


@pytest.mark.parametrize("error", [RuntimeError, OSError])  # the hub's own errors are OSErrors
def test_a_hub_that_breaks_off_makes_way_for_a_package(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    quick_pip.write(quick_pip.toml(quick_pip.hub_form() + "\n" + quick_pip.package_form()))
    serve_hub(quick_pip, monkeypatch)
    broken = lambda *_, **__: (_ for _ in ()).throw(error("504\nproxy"))  # noqa: E731
    monkeypatch.setattr("huggingface_hub.hf_hub_download", broken)
    assert read(assets.resolve("toy-model")) == quick_pip.content


def test_a_full_disk_is_not_blamed_on_the_hub(
    quick_pip: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_pip.write(quick_pip.toml(quick_pip.hub_form() + "\n" + quick_pip.package_form()))
    serve_hub(quick_pip, monkeypatch)
    full = OSError(errno.ENOSPC, "No space left on device")
    broken = lambda *_, **__: (_ for _ in ()).throw(full)  # noqa: E731
    monkeypatch.setattr("huggingface_hub.hf_hub_download", broken)
    with pytest.raises(AssetError, match=r"the disk of .* is full"):
        assets.resolve("toy-model")
    assert quick_pip.downloads == []
    assert quick_pip.leftovers() == []


def test_bytes_other_than_the_hub_promised_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write(world.toml(world.hub_form()))
    serve_hub(world, monkeypatch, {**world.content, "sub/weights.bin": b"other"})
    with pytest.raises(ChecksumError, match=r"weights\.bin has sha256"):
        assets.resolve("toy-model")
    assert world.leftovers() == []


@pytest.fixture
def hub_process(world: World) -> Iterator[Callable[[str], subprocess.CompletedProcess[str]]]:
    """Runs `resolve` in a process of its own against a hub of our own; the library is untouched."""
    world.write(world.toml(world.hub_form()))
    HubAnswers.content = world.content
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HubAnswers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    program = "import sys; from pathlib import Path; from attnlib.data import assets, asset_list; "
    program += "asset_list.CATALOGUE = Path(sys.argv[1]); print(assets.resolve('toy-model'))"
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
    with pytest.raises(ChecksumError, match=r"config\.json has sha256"):
        assets.resolve("toy-model")
    fill_hub_cache(world, monkeypatch)
    with pytest.raises(ChecksumError, match=r"config\.json has sha256"):
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
