"""Named members out of zip and tar.gz archives: nothing escapes, is linked, or is run."""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from attnlib.errors import AssetError

CHUNK = 1 << 20
LIMIT = 4 << 30  # no member we name is near this; a larger one is not what it claims to be

Advance = Callable[[int], None]


def _silent(_: int) -> None:
    """The progress callback of a caller that asked for none."""


def safe_path(folder: Path, name: str) -> Path:
    """Where `name` lands inside `folder`; refuses every name that could land elsewhere."""
    parts = PurePosixPath(name).parts
    escapes = (
        not parts
        or "\0" in name
        or "\\" in name
        or PurePosixPath(name).is_absolute()
        or bool(PureWindowsPath(name).drive)
        or ".." in parts
    )
    if escapes:
        raise AssetError(
            f"The archive member {name!r} would be written outside its folder; expected a plain "
            "relative name, so nothing was read. Do not use this archive."
        )
    return folder.joinpath(*parts)


def copy_stream(
    source: IO[bytes],
    target: Path,
    *,
    limit: int = LIMIT,
    advance: Advance = _silent,
) -> int:
    """Copy to a new file in chunks and return its size; stop at `limit`, whatever was declared."""
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with open(target, "xb") as out:
        while block := source.read(CHUNK):
            written += len(block)
            if written > limit:
                raise AssetError(
                    f"{target.name} is larger than the {limit:,} bytes expected of it; "
                    "it was not kept. Fetch the archive again from a source you trust."
                )
            out.write(block)
            advance(len(block))
    return written


def extract(
    archive: Path,
    members: Mapping[str, str],
    folder: Path,
    *,
    limit: int = LIMIT,
    advance: Advance = _silent,
) -> None:
    """Read `members` (name in the archive -> name in `folder`) and nothing else.

    A member name may point into a tar.gz inside a zip: `outer.tar.gz!inner`. A name that ends in
    `/` is a prefix: all regular files below it, the prefix cut off. The inner archive is streamed,
    so a large one never lies on the disk twice.
    """
    direct = {name: target for name, target in members.items() if "!" not in name}
    nested: dict[str, dict[str, str]] = {}
    for name, target in members.items():
        if "!" in name:
            outer, inner = name.split("!", 1)
            nested.setdefault(outer, {})[inner] = target
    with _readable(archive):
        if not zipfile.is_zipfile(archive):
            if nested:
                raise AssetError(
                    f"{archive.name} is not a zip archive, so {next(iter(nested))} cannot be read "
                    "from it; expected a wheel. Fetch it again."
                )
            with open(archive, "rb") as stream:
                _read_tar(archive.name, stream, direct, folder, limit, advance)
            return
        with zipfile.ZipFile(archive) as zipped:
            _read_zip(zipped, archive.name, direct, folder, limit, advance)
            for outer, wanted in nested.items():
                with zipped.open(_zip_member(zipped, archive.name, outer, limit)) as stream:
                    _read_tar(f"{archive.name}!{outer}", stream, wanted, folder, limit, advance)


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    """Turn what the archive libraries raise on damaged input into one sentence."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        raise AssetError(
            f"{archive.name} is damaged or cut short ({error}); expected a complete archive. "
            "Fetch it again."
        ) from error


def _zip_member(zipped: zipfile.ZipFile, label: str, name: str, limit: int) -> zipfile.ZipInfo:
    """The one regular, unencrypted member of that name that is not over the limit."""
    found = [info for info in zipped.infolist() if info.filename == name]
    if len(found) != 1:
        raise AssetError(
            f"{label} has {len(found)} members named {name!r}, expected exactly one; "
            "it is not the pinned archive. Fetch it again."
        )
    info = found[0]
    _refuse_special(label, name, stat.S_IFMT(info.external_attr >> 16), info.is_dir())
    if info.flag_bits & 0x1:
        raise AssetError(f"{label}: {name!r} is encrypted, expected plain; use another archive.")
    _refuse_large(label, name, info.file_size, limit)
    return info


def _refuse_special(label: str, name: str, kind: int, is_dir: bool) -> None:
    if is_dir or kind not in (0, stat.S_IFREG):
        raise AssetError(
            f"{label}: {name!r} is a link, folder or device, expected a regular file; "
            "nothing was read. Do not use this archive."
        )


def _refuse_large(label: str, name: str, size: int, limit: int) -> None:
    if size > limit:
        raise AssetError(
            f"{label}: {name!r} has {size:,} bytes, expected at most {limit:,}; nothing was read. "
            "Fetch the archive again from a source you trust."
        )


def _read_zip(
    zipped: zipfile.ZipFile,
    label: str,
    members: Mapping[str, str],
    folder: Path,
    limit: int,
    advance: Advance,
) -> None:
    for name, target in members.items():
        if name.endswith("/"):
            files = [
                info.filename
                for info in zipped.infolist()
                if info.filename.startswith(name) and not info.is_dir()
            ]
            _refuse_absent(label, [] if files else [name])
            named = {file: target + file[len(name) :] for file in files}
        else:
            named = {name: target}
        for member, goal in named.items():
            path = safe_path(folder, goal)
            with zipped.open(_zip_member(zipped, label, member, limit)) as stream:
                copy_stream(stream, path, limit=limit, advance=advance)


def _read_tar(
    label: str,
    stream: IO[bytes],
    members: Mapping[str, str],
    folder: Path,
    limit: int,
    advance: Advance,
) -> None:
    """One pass over a compressed tar; `tarfile`'s own extraction is never called."""
    missing = set(members)
    with tarfile.open(fileobj=stream, mode="r|*") as tarred:
        for info in tarred:
            wanted = _wanted(info.name, members)
            if wanted is None or (info.isdir() and wanted[0].endswith("/")):
                continue
            kind = stat.S_IFREG if info.isreg() else stat.S_IFLNK
            _refuse_special(label, info.name, kind, info.isdir())
            _refuse_large(label, info.name, info.size, limit)
            content = tarred.extractfile(info)
            if content is None:  # pragma: no cover - isreg() above already excludes this
                raise AssetError(f"{label}: {info.name!r} has no content; fetch the archive again.")
            with content:
                copy_stream(content, safe_path(folder, wanted[1]), limit=limit, advance=advance)
            missing.discard(wanted[0])
            if not missing and not any(name.endswith("/") for name in members):
                return
    _refuse_absent(label, sorted(missing))


def _wanted(name: str, members: Mapping[str, str]) -> tuple[str, str] | None:
    """(the name asked for, the target) if this member was asked for by name or by prefix."""
    plain = name[2:] if name.startswith("./") else name
    if plain in members:
        return plain, members[plain]
    for prefix, target in members.items():
        if prefix.endswith("/") and plain.startswith(prefix):
            return prefix, target + plain[len(prefix) :]
    return None


def _refuse_absent(label: str, missing: list[str]) -> None:
    if missing:
        raise AssetError(
            f"{label} has no member {missing[0]!r}; it is not the pinned archive. Fetch it again."
        )
