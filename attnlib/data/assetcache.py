"""The cache of assets: its folder, what each asset's manifest records, its locks and leftovers."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from attnlib.data import sources
from attnlib.data.archives import copy_stream, safe_path
from attnlib.data.shelf import Asset, File, Form
from attnlib.errors import ChecksumError
from attnlib.progress import Progress

MANIFEST = ".attnlib.json"
TEMPORARY = ".tmp-"


def cache_folder() -> Path:
    """`$ATTNLIB_CACHE`, or the platform's folder for things that can be fetched again."""
    given = os.environ.get("ATTNLIB_CACHE", "").strip()
    if given:
        return Path(given).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("attnlib"))


def asset_folder(asset: Asset, form: Form) -> Path:
    """Where one form of an asset lies, or would lie."""
    return cache_folder() / "assets" / asset.name / form.key


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `write_manifest` left, or {} where it is lost or broken: then the files are read."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_manifest(folder: Path, source: str, hashes: Mapping[str, str]) -> None:
    """What lies here, from where: sizes and times make the check at each use a matter of `stat`."""
    files = {}
    for name, sha256 in hashes.items():
        state = (folder / name).stat()
        files[name] = {"sha256": sha256, "bytes": state.st_size, "mtime_ns": state.st_mtime_ns}
    text = json.dumps({"source": source, "files": files}, indent=1)
    draft = folder / (MANIFEST + ".new")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, folder / MANIFEST)


def _again(asset: Asset) -> str:
    return f"Run `attnlib fetch {asset.name} --force` to get it again."


def check_file(asset: Asset, path: Path, file: File, promise: str, hint: str) -> str:
    """The sha256 of a file that has the pinned (or else the promised) hash."""
    if not path.is_file():
        raise ChecksumError(f"{asset.name}: {file.name} is missing from {path.parent}. {hint}")
    size = path.stat().st_size
    if file.bytes and size != file.bytes:
        raise ChecksumError(
            f"{asset.name}: {file.name} has {size:,} bytes, expected {file.bytes:,}. {hint}"
        )
    found = sources.sha256_of(path)
    expected = file.pin or promise
    actual = sources.git_blob_id(path) if len(expected) == 40 else found
    if expected and actual != expected:
        algorithm = "git id" if len(expected) == 40 else "sha256"
        raise ChecksumError(
            f"{asset.name}: {file.name} has {algorithm} {actual[:4]}…, "
            f"expected {expected[:4]}…. {hint}"
        )
    return found


def check(asset: Asset, form: Form, folder: Path, *, full: bool = False) -> None:
    """Raise unless the cached folder is whole; a file is read only if its size or time changed."""
    manifest = read_manifest(folder)
    recorded: dict[str, Any] = manifest.get("files", {})
    hashes, changed = {}, False
    for file in form.files:
        path, record = folder / file.name, recorded.get(file.name, {})
        state = path.stat() if path.is_file() else None
        same = state is not None and (state.st_size, state.st_mtime_ns) == (
            record.get("bytes"),
            record.get("mtime_ns"),
        )
        if same and not full:
            hashes[file.name] = record["sha256"]
            continue
        promise = record.get("sha256", "")
        hashes[file.name] = check_file(asset, path, file, promise, _again(asset))
        changed = changed or not same
    if changed:  # a copied cache: its content is right, remember its new times
        with suppress(OSError):
            write_manifest(folder, manifest.get("source", "a copied cache"), hashes)


def copy_known(file: File, draft: Path) -> bool:
    """A file that another asset of the cache already holds is copied, not fetched again."""
    if not file.sha256 or not file.origin:
        return False
    for manifest in sorted((cache_folder() / "assets").glob(f"*/*/{MANIFEST}")):
        for name, record in read_manifest(manifest.parent).get("files", {}).items():
            path = manifest.parent / name
            if record.get("sha256") != file.sha256 or not path.is_file():
                continue
            if path.stat().st_size == file.bytes and sources.sha256_of(path) == file.sha256:
                with open(path, "rb") as stream:
                    copy_stream(stream, safe_path(draft, file.name), limit=file.bytes)
                return True
    return False


# --- one process at a time, whole or not at all ---------------------------------------------


def file_lock(name: str) -> Any:
    """The lock of one asset; the kernel frees the lock of a process that was killed."""
    from filelock import FileLock

    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{name}.lock")


@contextmanager
def lock(asset: Asset, bar: Progress) -> Iterator[None]:
    """One process at a time fetches an asset; the others wait and then find it there."""
    from filelock import Timeout

    (cache_folder() / "assets" / asset.name).mkdir(parents=True, exist_ok=True)
    held = file_lock(asset.name)
    try:
        held.acquire(timeout=1)
    except Timeout:
        bar.say(f"{asset.name}: another process is fetching it; waiting for that.")
        held.acquire()
    try:
        yield
    finally:
        held.release()


def sweep() -> None:
    """Remove what killed fetches left: a temporary folder whose asset nobody has locked."""
    from filelock import Timeout

    for rest in (cache_folder() / "assets").glob(f"*/{TEMPORARY}*"):
        with suppress(Timeout, OSError), file_lock(rest.parent.name).acquire(timeout=0):
            shutil.rmtree(rest, ignore_errors=True)


@contextmanager
def replacement(target: Path) -> Iterator[tuple[Path, Path]]:
    """A draft to fill and a scratch folder; the draft becomes the target, or nothing is left."""
    room = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=target.parent))
    try:
        draft, scratch = room / "draft", room / "scratch"
        draft.mkdir()
        scratch.mkdir()
        yield draft, scratch
        old = room / "old"
        if target.is_dir():
            os.rename(target, old)
        try:
            os.rename(draft, target)
        except BaseException:
            if old.is_dir():
                os.rename(old, target)  # what was there is better than nothing
            raise
    finally:
        shutil.rmtree(room, ignore_errors=True)
