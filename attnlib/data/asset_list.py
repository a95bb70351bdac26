"""What assets.toml says: of each asset its licence, its files and their hashes, its sources."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from attnlib.errors import unknown

CATALOGUE = Path(__file__).with_name("assets.toml")


@dataclass(frozen=True)
class Package:
    """One wheel of the package registry, pinned by content; it is read, never installed."""

    name: str
    version: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Hub:
    """One repository of the hub at one revision."""

    repo: str
    repo_type: str
    revision: str


@dataclass(frozen=True)
class File:
    """One file of an asset, its place in the source, and the hash its content must have."""

    name: str
    bytes: int = 0
    sha256: str = ""
    verify: str = ""  # "hub-etag": no pin is known; the hub's own hash is checked where it is told
    origin: str = ""  # `package:member`, a path on the hub, or "" where it is made here

    @property
    def package(self) -> str:
        """The package archive it is a member of, or ""."""
        return self.origin.partition(":")[0] if ":" in self.origin else ""

    @property
    def member(self) -> str:
        """Its name in the package archive, or ""."""
        return self.origin.partition(":")[2]


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
        lines = [f"{file.name} {file.sha256 or (self.hub, file.origin)}" for file in self.files]
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
    return dict(_read(CATALOGUE))


def lookup(name: str) -> Asset:
    """The asset of that name, or a hint at the nearest one."""
    return known()[_one_of(known(), name, "not an asset")]


def expand(names: Iterable[str], lists: Mapping[str, Iterable[str]]) -> list[Asset]:
    """Assets by name; a name in `lists` stands for all assets of that list. None comes twice."""
    choices = {**lists, **{name: [name] for name in known()}}
    what = "neither an asset nor a list of assets"
    wanted = [asset for name in names for asset in choices[_one_of(choices, name, what)]]
    return [lookup(name) for name in dict.fromkeys(wanted)]


def _one_of(choices: Mapping[str, object], name: str, what: str) -> str:
    if name not in choices:
        raise unknown(f"'{name}' is {what}", name, choices)
    return name


@cache
def _read(path: Path) -> dict[str, Asset]:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    packages = {
        name: Package(name=name, **entry) for name, entry in content.pop("packages", {}).items()
    }
    found = {}
    for name, entry in content.items():
        kind = entry["kind"]
        mirror = f"vectors/{name}" if kind == "vectors" else f"{kind}s/{name}"
        forms = tuple(_form({"mirror": mirror, **form}, packages) for form in entry["forms"])
        found[name] = Asset(**{**entry, "name": name, "forms": forms})
    return found


def _form(entry: dict[str, Any], packages: Mapping[str, Package]) -> Form:
    files, inputs = (
        tuple(File(name=name, **fields) for name, fields in entry.get(part, {}).items())
        for part in ("files", "inputs")
    )
    named = dict.fromkeys(file.package for file in files + inputs)
    own = tuple(packages[name] for name in named if name in packages)
    hub = Hub(**entry["hub"]) if "hub" in entry else None
    return Form(**{**entry, "files": files, "inputs": inputs, "hub": hub, "packages": own})
