"""Exercises have solutions, and the code in a solution runs."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.ipynb"))


def prose(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_exercise_has_a_folded_solution(path: Path) -> None:
    text = prose(path)
    exercises = re.findall(r"\{exercise\}\n:label: (\S+)", text)
    solutions = re.findall(r"\{solution\} (\S+)\n:class: dropdown", text)
    assert exercises == solutions and len(set(exercises)) == len(exercises)


@pytest.mark.parametrize(
    "name", ["agreement", "clark2019", "guan2020", "kovaleva2019", "pande2021"]
)
def test_a_chapter_has_enough_of_them(name: str) -> None:
    (path,) = [path for path in NOTEBOOKS if path.stem == name]
    assert prose(path).count("{exercise}") >= 8


CODE = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in NOTEBOOKS
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", prose(path), re.S))
]


@pytest.mark.assets
@pytest.mark.parametrize("block", CODE)
def test_the_code_of_a_solution_runs(block: str) -> None:
    """With small limits; the last line is a value that a reader would look at."""
    small = re.sub(r"limit=(\d+)", lambda m: f"limit={max(3, int(m[1]) // 10)}", block)
    small = small.replace('["num", "neg", "appos"]', '["num"]')  # fifty sentences may lack others
    *body, last = small.strip().split("\n")
    names: dict[str, object] = {}
    exec(compile("\n".join(body), "solution", "exec"), names)
    assert eval(last, names) is not None


def test_by_hand_numbers_of_the_selection_exercise() -> None:
    import numpy as np

    draw = np.random.default_rng(0)
    best = [draw.binomial(n, 0.2, size=(1000, 288)).max(1).mean() / n for n in (50, 200, 1000)]
    np.testing.assert_allclose(best, [0.37, 0.28, 0.24], atol=0.006)


def test_by_hand_numbers_of_the_first_exercise() -> None:
    import numpy as np

    (path,) = [path for path in NOTEBOOKS if path.stem == "clark2019"]
    rows = re.findall(r"^\| \S+ \|((?: \.\d \|){6})$", prose(path), re.M)
    maps = np.array([[float(cell) for cell in row.strip(" |").split("|")] for row in rows])
    assert maps.shape == (6, 6)
    np.testing.assert_allclose(maps.sum(1), 1)
    previous, following = np.diag(maps, -1).sum() / 6, np.diag(maps, 1).sum() / 6
    assert (round(previous, 2), round(following, 2)) == (0.27, 0.25)
    np.testing.assert_allclose(maps[:, 5].mean(), 0.30)
    np.testing.assert_allclose([maps[5, 5], maps[:5, 5].mean()], [0.8, 0.2])
    between = maps[1:5, 1:5] - np.eye(4)  # words and the full stop, not themselves
    assert between.argmax(1)[[0, 1, 2]].tolist() == [1, 0, 1]
