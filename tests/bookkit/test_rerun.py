"""The examples of the page "Rerun it" run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "book" / "rerun.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.S)


@pytest.mark.assets
def test_the_examples_run(tmp_path: Path) -> None:
    assert len(BLOCKS) == 6
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, words in (("attnlib", '-m attnlib "$@"'), ("python", '"$@"')):
        (shims / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}\n')
        (shims / name).chmod(0o755)
    path = os.pathsep.join([str(shims), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    script = "\n".join(["set -euo pipefail", *BLOCKS])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "how many texts to read" in done.stdout  # --help-notebook
    assert len((tmp_path / "my_heads.csv").read_text().splitlines()) == 1 + 2 * 144
    for name, layers in (("my_first_look", 12), ("smaller_model", 6)):
        book = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4)
        glued = [
            output["data"]["application/papermill.record/text/plain"]
            for cell in book.cells
            for output in cell.get("outputs", [])
            if "scrapbook" in output.get("metadata", {})
            and output["metadata"]["scrapbook"]["name"] == "n_heads"
        ]
        assert glued == [str(12 * layers)]
    assert "threshold: float = 2.0" in (tmp_path / "lower_threshold.ipynb").read_text()


def test_the_slips_named_on_the_page_are_refused_so(run) -> None:  # type: ignore[no-untyped-def]
    code, _, said = run("run", "first_look", "-p", "limt", "20")
    assert code == 2 and "Did you mean 'limit'?" in said
    code, _, said = run("run", "first_look", "-p", "limit", "many")
    assert code == 2 and "expected int" in said
