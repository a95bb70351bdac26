"""Asset name -> verified local folder (mirror | cache | hub | package archive)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock, Timeout

from attnlib.data import sources
from attnlib.data.archives import copy_stream, safe_path
from attnlib.data.asset_list import Asset, File, Form, expand, known, lookup
from attnlib.data.sources import PackageSource, Source, Unreachable, check_file, in_mirror
from attnlib.errors import AssetError, ChecksumError
from attnlib.files import TEMPORARY, scratch_folder, sha256_of, written_whole
from attnlib.progress import Progress

MANIFEST = ".attnlib.json"


def resolve(name: str, *, progress: bool | None = None) -> Path:
    """The folder of an asset, held against the pinned hashes and fetched first if need be."""
    asset = lookup(name)
    return _ready(asset) or _obtain(asset, Progress(progress), force=False)


def fetch(
    names: str | Iterable[str],
    *,
    lists: Mapping[str, Iterable[str]] | None = None,
    force: bool = False,
    progress: bool | None = True,
) -> list[Path]:
    """Bring assets into the cache; returns their folders in order.

    A name in `lists` stands for all assets of that list.
    """
    listed = expand([names] if isinstance(names, str) else names, lists or {})
    bar = Progress(progress)
    # Fewest archives first, then the largest: what another shares with it is copied, not fetched.
    order = sorted(listed, key=lambda asset: (len(asset.forms[0].packages), -asset.bytes))
    folders: dict[str, Path] = {}
    failed: dict[str, AssetError] = {}
    for asset in order:  # one that cannot be had is no reason to go without the others
        try:
            ready = None if force else _ready(asset)
            folders[asset.name] = ready or _obtain(asset, bar, force=force)
        except AssetError as error:
            failed[asset.name] = error
    for first in failed.values():
        if len(failed) == 1:
            raise first
        names = ", ".join(failed)
        raise AssetError(f"{len(failed)} assets could not be fetched ({names}): {first}")
    return [folders[asset.name] for asset in listed]


def status(verify: bool = False) -> list[dict[str, Any]]:
    """One row per asset; the keys are a contract. `verify` reads every file that is there.

    A damaged asset is not present, and its source says what is wrong with it.
    """
    return [_row(asset, verify) for asset in known().values()]


def _row(asset: Asset, verify: bool) -> dict[str, Any]:
    folder, size, source = None, asset.bytes, ""
    try:
        if found := _cached(asset, full=verify):
            folder = found[1]
            manifest = _read_manifest(folder)
            source = manifest.get("source", "unknown")
            size = sum(record["bytes"] for record in manifest.get("files", {}).values())
        else:
            labels = [place.label for place in sources.sources_of(asset)]
            source = labels[0] if labels else f"mirror {asset.forms[0].mirror} (not here)"
    except ChecksumError as error:
        source = f"damaged: {error}"
    return {
        "name": asset.name,
        "kind": asset.kind,
        "present": folder is not None,
        "path": str(folder) if folder else None,
        "bytes": size,
        "licence": asset.licence,
        "source": source,
    }


# --- the cache ------------------------------------------------------------------------------


def cache_folder() -> Path:
    """`$ATTNLIB_CACHE`, or the platform's folder for things that can be fetched again."""
    given = os.environ.get("ATTNLIB_CACHE", "").strip()
    return Path(given or platformdirs.user_cache_dir("attnlib")).expanduser().absolute()


def _asset_folder(asset: Asset, form: Form) -> Path:
    return cache_folder() / "assets" / asset.name / form.key


def _cached(asset: Asset, *, full: bool = False) -> tuple[Form, Path] | None:
    """The first form that is in the cache, checked; a form that a mirror holds comes first."""
    for form in sorted(asset.forms, key=lambda form: not in_mirror(form)):
        folder = _asset_folder(asset, form)
        if folder.is_dir():
            _check(asset, form, folder, full=full)
            return form, folder
    return None


def _ready(asset: Asset) -> Path | None:
    """The cached folder, unless a mirror holds another form: a mirror goes before the cache."""
    found = _cached(asset)
    mirrored = [form for form in asset.forms if in_mirror(form)]
    if found is None or (mirrored and found[0] is not mirrored[0]):
        return None
    return found[1]


def _check(asset: Asset, form: Form, folder: Path, *, full: bool = False) -> None:
    """Raise unless the cached folder is whole; a file is read only if its size or time changed."""
    manifest = _read_manifest(folder)
    hint = f"Run `attnlib fetch {asset.name} --force` to get it again."
    hashes, changed = {}, False
    for file in form.files:
        path, record = folder / file.name, manifest.get("files", {}).get(file.name, {})
        sha256 = record.get("sha256", "")
        same = path.is_file() and record == _record(path, sha256)
        if full or not same:
            sha256 = check_file(asset, path, file, hint, promise=sha256)
        hashes[file.name] = sha256
        changed = changed or not same
    if changed:  # a copied cache: its content is right, remember its new times
        with suppress(OSError):
            _write_manifest(folder, manifest.get("source", "a copied cache"), hashes)


def _record(path: Path, sha256: str) -> dict[str, Any]:
    """What the manifest keeps of a file: size and time make the check at each use cheap."""
    state = path.stat()
    return {"sha256": sha256, "bytes": state.st_size, "mtime_ns": state.st_mtime_ns}


def _read_manifest(folder: Path) -> dict[str, Any]:
    """What `_write_manifest` left, or {} where it is lost or broken: then the files are read."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_manifest(folder: Path, source: str, hashes: Mapping[str, str]) -> None:
    files = {name: _record(folder / name, sha256) for name, sha256 in hashes.items()}
    with written_whole(folder / MANIFEST) as draft:
        draft.write_text(json.dumps({"source": source, "files": files}, indent=1), "utf-8")


def _file_lock(name: str) -> FileLock:
    """The lock of one asset; the kernel frees the lock of a process that was killed."""
    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / f"{name}.lock")


@contextmanager
def _locked(asset: Asset, bar: Progress) -> Iterator[None]:
    """One process at a time fetches an asset; the others wait and then find it there."""
    lock = _file_lock(asset.name)
    try:
        held = lock.acquire(timeout=1)
    except Timeout:
        bar.say(f"{asset.name}: another process is fetching it; waiting for that.")
        held = lock.acquire()
    with held:
        yield


def _sweep() -> None:
    """Remove what killed fetches left: a temporary folder whose asset nobody has locked."""
    for rest in (cache_folder() / "assets").glob(f"*/{TEMPORARY}*"):
        with suppress(Timeout, OSError), _file_lock(rest.parent.name).acquire(timeout=0):
            shutil.rmtree(rest, ignore_errors=True)


# --- fetching -------------------------------------------------------------------------------


def _obtain(asset: Asset, bar: Progress, *, force: bool) -> Path:
    """Try the sources in order; the first that can answer gives the folder."""
    reasons: list[str] = []
    for source in sources.sources_of(asset):
        if reason := source.silence():
            reasons.append(reason)
            continue
        try:
            return _put(source, bar, force=force)
        except Unreachable as error:
            reasons.append(str(error).rstrip("."))
        except OSError as error:
            raise _disk_trouble(source, error) from error
    raise AssetError(_missing(asset, reasons))


def _put(source: Source, bar: Progress, *, force: bool) -> Path:
    """Fill a folder next to the target, check it, move it into place; or leave nothing."""
    asset, form = source.asset, source.form
    target = _asset_folder(asset, form)
    _sweep()
    with _locked(asset, bar):
        if target.is_dir() and not force:  # another process was faster
            _check(asset, form, target)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            scratch_folder(target.parent) as scratch,
            written_whole(target) as draft,
            bar.asset(asset.name),
        ):
            draft.mkdir()
            if isinstance(source, PackageSource) and not force:
                for file in form.files:
                    _copy_known(file, draft)
            promises = source.bring(draft, scratch, bar)
            hint = f"It came from the {source.label} and was not kept; {source.advice}"
            hashes = {
                file.name: check_file(
                    asset, draft / file.name, file, hint, promise=promises.get(file.name, "")
                )
                for file in form.files
            }
            _write_manifest(draft, source.label, hashes)
    return target


def _copy_known(file: File, draft: Path) -> None:
    """Copy a file that another asset of the cache already holds: it need not be fetched again."""
    if not file.sha256 or not file.origin:
        return
    for manifest in sorted((cache_folder() / "assets").glob(f"*/*/{MANIFEST}")):
        for name, record in _read_manifest(manifest.parent).get("files", {}).items():
            path = manifest.parent / name
            recorded = record.get("sha256") == file.sha256 and path.is_file()
            if recorded and sha256_of(path) == file.sha256:
                with open(path, "rb") as stream:
                    copy_stream(stream, safe_path(draft, file.name), limit=file.bytes)
                return


def _disk_trouble(source: Source, error: OSError) -> AssetError:
    """A full or read-only disk in one sentence."""
    where = f"{cache_folder()} cannot be written ({error.strerror or error}); expected"
    trouble = f"{where} a cache folder of your own. Set ATTNLIB_CACHE to one."
    if error.errno in sources.DISK_FULL:
        needed = source.form.bytes + sum(package.bytes for package in source.form.packages)
        where = f"the disk of {cache_folder()} is full; about {needed / 1e6:,.0f} MB are needed"
        advice = "Free some space, or set ATTNLIB_CACHE to a folder on another disk."
        trouble = f"{where} while it is fetched. {advice}"
    return AssetError(f"{source.asset.name}: {trouble} Nothing was kept.")


def _missing(asset: Asset, reasons: list[str]) -> str:
    """What is missing, and the ways to provide it, in one sentence."""
    form, folder = asset.forms[0], cache_folder() / "assets" / asset.name
    hub = any(form.hub for form in asset.forms)
    mirror = "lacks it" if sources.mirror_folder() else "is not set"
    why = "; ".join(reasons) or f"it comes only from a mirror folder, and $ATTNLIB_MIRROR {mirror}"
    files = ", ".join(file.name for file in form.files[:3]) + (", …" if form.files[3:] else "")
    return (
        f"{asset.name} ({asset.bytes / 1e6:,.1f} MB) is not in the cache and cannot be fetched: "
        f"{why}; to provide it, (a) pass a local folder with its files ({files}), (b) put them "
        f"into a mirror folder as $ATTNLIB_MIRROR/{form.mirror}/, or (c) run `attnlib fetch "
        f"{asset.name}` on a machine {'with the hub' if hub else 'that can'} and copy its folder "
        f"to {folder}{', or set HF_HOME to a filled hub cache' if hub else ''}."
    )
