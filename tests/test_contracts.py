"""Who may know whom: the contracts of pyproject.toml hold, and a planted violation breaks them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("attnlib", "bookkit", "experiments")


def kept(folder: Path) -> subprocess.CompletedProcess[str]:
    """Whether the contracts hold for the packages in a folder."""
    code = "from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-c", code, "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the packages alone."""
    for name in PACKAGES:
        skip = shutil.ignore_patterns("__pycache__", "passages")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("attnlib/metrics/entropy.py", "from bookkit.store import Found"),
        ("attnlib/data/examples.py", "import experiments.shared.training.loop"),
        ("attnlib/data/examples.py", "def late():\n    from attnlib.metrics import entropy"),
        ("bookkit/store.py", "from attnlib.errors import BadValue"),
        ("bookkit/store.py", "from experiments.shared import training"),
        ("experiments/shared/training/loop.py", "from experiments import clark2019"),
        ("experiments/clark2019/__init__.py", "from experiments import guan2020"),
    ],
)
def test_a_planted_violation_fails(checkout: Path, module: str, line: str) -> None:
    assert kept(checkout).returncode == 0
    with (checkout / module).open("a", encoding="utf-8") as file:
        file.write(f"\n\n{line}\n")
    broken = kept(checkout)
    assert broken.returncode != 0 and "is not allowed to import" in broken.stdout


def test_no_paper_knows_another(tmp_path: Path) -> None:
    """Of every folder with a claims file, also one that the contracts do not name yet."""
    papers = sorted(path.stem for path in (ROOT / "papers").glob("*[0-9].yaml"))
    folders = {f"experiments.{key}" for key in papers if (ROOT / "experiments" / key).is_dir()}
    graph = grimp.build_graph("experiments", cache_dir=str(tmp_path))
    known = [{*folders}, {"experiments.shared"}]
    assert len(folders) >= 4
    assert not graph.find_illegal_dependencies_for_layers(known)
