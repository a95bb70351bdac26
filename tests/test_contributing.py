"""The worked examples of CONTRIBUTING.md: followed to the letter, they work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", TEXT, re.S))
"""The file that a block belongs to, and the block."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a contributor would change."""
    skip = shutil.ignore_patterns("__pycache__", "published", "_build")
    for name in ("attnlib", "bookkit", "experiments", "tests", "papers", "editions", "book"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
    for name in ("pyproject.toml", "_toc.yml", "_config.yml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def called(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def append(checkout: Path, place: str, code: str) -> None:
    with (checkout / place).open("a", encoding="utf-8") as file:
        file.write(f"\n\n{code}")


TESTS_OF_METRICS = "tests/attnlib/metrics"


def test_a_metric_is_two_files(checkout: Path) -> None:
    kernel, truth = "attnlib/metrics/entropy.py", "tests/oracles.py"
    append(checkout, kernel, BLOCKS[kernel])
    lone = called(checkout, "pytest", "-q", TESTS_OF_METRICS, "-k", "has_an_oracle")
    assert lone.returncode == 1, "a metric without an oracle must fail"
    append(checkout, truth, BLOCKS[truth])
    words = "row_perplexity or has_an_oracle"
    done = called(checkout, "pytest", "-q", TESTS_OF_METRICS, "-k", words)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 15, "the laws must have run over it"
    assert "row_perplexity" in called(checkout, "attnlib", "metrics").stdout


def test_a_wrong_metric_is_caught(checkout: Path) -> None:
    kernel, truth = "attnlib/metrics/entropy.py", "tests/oracles.py"
    append(checkout, kernel, BLOCKS[kernel].replace("spread.sum(-1)", "spread.amax(-1)"))
    append(checkout, truth, BLOCKS[truth])
    done = called(checkout, "pytest", "-q", TESTS_OF_METRICS, "-k", "row_perplexity and oracle")
    assert done.returncode == 1


@pytest.mark.assets
def test_a_paper_is_five_files_and_two_lines(checkout: Path) -> None:
    source = "notebooks/toy2024.ipynb"
    cells = [nbformat.v4.new_markdown_cell("# A toy")]
    for number, code in enumerate(BLOCKS[source].split("# next cell\n")):
        cells.append(nbformat.v4.new_code_cell(code.strip()))
        cells[-1].metadata["tags"] = [] if number else ["parameters"]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), checkout / source)
    for place in ("papers/toy2024.yaml", "experiments/toy2024/__init__.py"):
        (checkout / place).parent.mkdir(exist_ok=True)
        (checkout / place).write_text(BLOCKS[place], encoding="utf-8")
    edition = yaml.safe_load((checkout / "editions" / "pocket.yaml").read_text())
    edition["notebooks"] = {"toy2024": {"minutes": 1, "parameters": {"limit": 4}}}
    edition["sizes"] = {}
    (checkout / "editions" / "toy.yaml").write_text(yaml.safe_dump(edition))
    done = called(checkout, "attnlib", "book", "toy", "--no-html")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1 claims:" in done.stdout
    told = called(checkout, "attnlib", "ledger", "toy", "--json", "--paper", "toy2024")
    (row,) = json.loads(told.stdout)
    assert row["id"] == "fig1.previous" and row["ours"] > 0.5
    (kept,) = json.loads(called(checkout, "attnlib", "status", "toy", "--json").stdout)
    assert kept["result"].startswith("toy2024/previous_share/v1-")
    assert (kept["state"], kept["code"]) == ("kept", "as then")
