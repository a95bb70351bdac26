"""The catalogue of assets: what each is, its licence, its files and their hashes, its sources."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from attnlib.data.sources import Hub, Package
from attnlib.errors import UnknownName, did_you_mean

CATALOGUE = Path(__file__).with_name("assets.toml")
EDITIONS = Path(__file__).parents[2] / "editions"


@dataclass(frozen=True)
class File:
    """One file of an asset, its place in the source, and the hash its content must have."""

    name: str
    bytes: int = 0
    sha256: str = ""
    git_sha1: str = ""  # the hub's hash of a small file; as good a pin as a sha256
    verify: str = ""  # "hub-etag": no pin is known; the hub's own hash is checked where it is told
    origin: str = ""  # `package:member`, a path on the hub, or "" where it is made here

    @property
    def pin(self) -> str:
        return self.sha256 or self.git_sha1


@dataclass(frozen=True)
class Form:
    """One set of files that is the asset: as a mirror, the hub or a package holds it."""

    files: tuple[File, ...]
    mirror: str
    inputs: tuple[File, ...] = ()
    convert: str = ""
    hub: Hub | None = None
    packages: tuple[Package, ...] = ()
    about: int = 0  # its size where that of some file is not established

    @property
    def bytes(self) -> int:
        return self.about or sum(file.bytes for file in self.files)

    @property
    def key(self) -> str:
        """Names the cache folder by content, so that two forms of one asset never mix."""
        lines = [f"{file.name} {file.pin or (self.hub, file.origin)}" for file in self.files]
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Asset:
    """A model, dataset, table of vectors or parser, with what must be said when it is used."""

    name: str
    kind: str
    licence: str
    citation: str
    forms: tuple[Form, ...]
    note: str = ""

    @property
    def bytes(self) -> int:
        return self.forms[0].bytes


def known() -> dict[str, Asset]:
    """Every asset of `assets.toml` by name."""
    return dict(_read_catalogue(CATALOGUE))


@cache
def _read_catalogue(path: Path) -> dict[str, Asset]:
    with open(path, "rb") as stream:
        content = tomllib.load(stream)
    packages = {
        name: Package(name=name, **entry) for name, entry in content.pop("packages", {}).items()
    }
    return {name: _asset(name, entry, packages) for name, entry in content.items()}


def _asset(name: str, entry: dict[str, Any], packages: Mapping[str, Package]) -> Asset:
    kind = entry["kind"]
    folder = {"vectors": "vectors"}.get(kind, kind + "s") + "/" + name
    forms = tuple(_form(form, folder, packages) for form in entry["forms"])
    words = {key: entry[key] for key in ("licence", "citation")}
    return Asset(name=name, kind=kind, forms=forms, note=entry.get("note", ""), **words)


def _form(entry: dict[str, Any], folder: str, packages: Mapping[str, Package]) -> Form:
    files, inputs = (
        tuple(File(name=name, **fields) for name, fields in entry.get(part, {}).items())
        for part in ("files", "inputs")
    )
    hub = Hub(**entry["hub"]) if "hub" in entry else None
    named = [] if hub else [file.origin.split(":")[0] for file in files + inputs if file.origin]
    return Form(
        files=files,
        inputs=inputs,
        mirror=entry.get("mirror", folder),
        convert=entry.get("convert", ""),
        about=entry.get("about", 0),
        hub=hub,
        packages=tuple(packages[name] for name in dict.fromkeys(named) if name in packages),
    )


def lookup(name: str) -> Asset:
    """The asset of that name, or a hint at the nearest one."""
    table = known()
    if name not in table:
        raise UnknownName(
            f"'{name}' is not an asset. {did_you_mean(name, table)}Known: {', '.join(table)}."
        )
    return table[name]


def expand(names: Iterable[str], editions: Mapping[str, Any] | None = None) -> list[str]:
    """Asset names, each edition replaced by the list `assets:` of its yaml; no name twice."""
    listed: dict[str, None] = {}
    for name in names:
        if name in known():
            listed[name] = None
            continue
        for asset in _edition_assets(name, editions):
            listed[lookup(asset).name] = None
    return list(listed)


def _edition_assets(name: str, editions: Mapping[str, Any] | None) -> list[str]:
    there = sorted(path.stem for path in EDITIONS.glob("*.yaml")) if editions is None else editions
    if name not in there:
        choices = [*there, *known()]
        raise UnknownName(
            f"'{name}' is neither an asset nor an edition. {did_you_mean(name, choices)}"
            f"Known: {', '.join(choices)}."
        )
    if editions is None:
        import yaml

        content = yaml.safe_load((EDITIONS / f"{name}.yaml").read_text(encoding="utf-8"))
    else:
        content = editions[name]
    return list((content or {}).get("assets") or []) if isinstance(content, Mapping) else content
