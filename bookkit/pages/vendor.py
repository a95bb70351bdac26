"""Scripts that the pages need to work without a network, fetched once from the package registry."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from bookkit.errors import BuildError


@dataclass(frozen=True)
class Script:
    """A package of scripts: which of its files go where under `vendored/`."""

    package: str
    sha256: str
    prefix: str
    keep: tuple[str, ...]
    into: str


SCRIPTS = tuple(
    Script(**one)
    for one in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["script"]
)


def vendor(into: Path, cache: Path, scripts: Sequence[Script] = SCRIPTS) -> bool:
    """Put scripts under `into`; False, and nothing is put, if one of them cannot be had here."""
    cache.mkdir(parents=True, exist_ok=True)
    archives = [_archive(script, cache) for script in scripts]
    found = [archive for archive in archives if archive]
    if len(found) < len(scripts):
        return False
    for script, archive in zip(scripts, found, strict=True):
        _unpack(script, archive, into / script.into)
    return True


def _archive(script: Script, cache: Path) -> Path | None:
    """The package's archive, from the cache or by `npm pack`; None without npm or network."""
    held = cache / f"{script.sha256}.tgz"
    if held.is_file():
        return held
    npm = shutil.which("npm")
    if npm is None:
        return None
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        quick = ["--silent", "--fetch-retries=0", "--fetch-timeout=60000"]
        command = [npm, "pack", script.package, *quick]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        fetched = sorted(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or not fetched:
            return None
        found = hashlib.sha256(fetched[0].read_bytes()).hexdigest()
        if found != script.sha256:
            raise BuildError(
                f"{script.package} has sha256 {found[:8]}…, expected {script.sha256[:8]}…. It was "
                "not used; build again, or without npm on the PATH."
            )
        fetched[0].replace(held)
    return held


def _unpack(script: Script, archive: Path, into: Path) -> None:
    """Write only the files that are kept; nothing of the package is ever run."""
    with tarfile.open(archive) as opened:
        for member in opened:
            name = member.name.removeprefix(script.prefix)
            wanted = member.name != name and any(fnmatch(name, one) for one in script.keep)
            data = opened.extractfile(member) if wanted else None
            if data:
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (into / name).write_bytes(data.read())
