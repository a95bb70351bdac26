"""A file or folder is written whole or not at all, whatever happens in between."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from attnlib.files import TEMPORARY, scratch_folder, sha256_of, written_whole

ROOT = Path(__file__).parents[2]


def write(path: Path, text: str, *, folder: bool) -> None:
    if folder:
        path.mkdir()
    (path / "part" if folder else path).write_text(text)


def read(path: Path) -> str:
    return (path / "part" if path.is_dir() else path).read_text()


@pytest.mark.parametrize("folder", [False, True])
def test_what_was_there_is_replaced_as_a_whole(tmp_path: Path, folder: bool) -> None:
    target = tmp_path / "thing"
    for text in ("old", "new"):
        with written_whole(target) as draft:
            write(draft, text, folder=folder)
            assert draft.name == target.name  # a writer that goes by the ending finds it
            assert not target.exists() or read(target) == "old"
        assert read(target) == text
    assert [path.name for path in tmp_path.iterdir()] == ["thing"]


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(
    tmp_path: Path, folder: bool, error: type[BaseException]
) -> None:
    target = tmp_path / "thing"
    for before in ([], ["thing"]):
        with pytest.raises(error), written_whole(target) as draft:  # noqa: PT012
            write(draft, "half", folder=folder)
            raise error
        assert [path.name for path in tmp_path.iterdir()] == before
        if not before:
            write(target, "old", folder=folder)
    assert read(target) == "old"


@pytest.mark.parametrize("folder", [False, True])
def test_what_was_there_comes_back_if_its_replacement_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    target = tmp_path / "asset"
    write(target, "old", folder=folder)
    replace = os.replace

    def refusing(source: Path, goal: Path) -> None:
        if source.name == "asset" and source != target:  # the draft
            raise OSError(errno.EIO, "Input/output error")
        replace(source, goal)

    monkeypatch.setattr(os, "replace", refusing)
    with pytest.raises(OSError, match="Input/output"), written_whole(target) as draft:
        write(draft, "new", folder=folder)
    assert read(target) == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["asset"]


def test_a_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "thing"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "absent" / "thing"):
        pytest.fail("there is no place for the draft")
    assert not list(tmp_path.iterdir())


def test_a_killed_process_leaves_only_a_temporary_folder(tmp_path: Path) -> None:
    program = """
        import os, signal, sys
        from pathlib import Path
        from attnlib.files import written_whole
        with written_whole(Path(sys.argv[1])) as draft:
            draft.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    target = tmp_path / "thing"
    target.write_text("old")
    command = [sys.executable, "-c", textwrap.dedent(program), str(target)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    (rest,) = [path for path in tmp_path.iterdir() if path != target]
    assert rest.name.startswith(TEMPORARY)
    with written_whole(target) as draft:
        draft.write_text("new")
    assert target.read_text() == "new"


def test_a_scratch_folder_goes_with_its_content(tmp_path: Path) -> None:
    with pytest.raises(ValueError), scratch_folder(tmp_path) as scratch:  # noqa: PT012
        (scratch / "deep").mkdir()
        (scratch / "deep" / "file").write_text("x")
        raise ValueError
    assert not list(tmp_path.iterdir())


def test_the_hash_is_that_of_the_content(tmp_path: Path) -> None:
    content = bytes(range(256)) * 9000
    (tmp_path / "file").write_bytes(content)
    assert sha256_of(tmp_path / "file") == hashlib.sha256(content).hexdigest()
