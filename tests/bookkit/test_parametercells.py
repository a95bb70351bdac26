"""The parameters that a page shows are those of its run, also where a default has many lines."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from bookkit.editions import load_edition
from bookkit.parametercells import with_values, with_values_in_place

ROOT = Path(__file__).parents[2]
TEXT = """model: str = "é5"  # a model
limit: int | None = None  # how many
plan: dict = {
    "train": "a",  # of these
    "epochs": 1,
}  # how it learns
names = ["a", "b"]
seed: int = 0
"""


def assigned(text: str) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(text, scope)
    return {name: value for name, value in scope.items() if not name.startswith("__")}


@pytest.mark.parametrize(
    "given",
    [
        {"model": "ü 'x' \"y\"", "seed": 4},
        {"plan": {"train": "b", "steps": None, "deep": {"x": [1.5, True]}}, "limit": 12},
        {"plan": {f"key {i}": "long enough" for i in range(9)}, "names": ["a: [", "#"]},
        {"model": "m", "limit": 1, "plan": {}, "names": [], "seed": 2},
    ],
)
def test_values_stand_in_the_place_of_defaults(given: dict[str, Any]) -> None:
    text = with_values(TEXT, given)
    assert assigned(text) == assigned(TEXT) | given
    assert all(told in text for told in ("# a model", "# how many", "# how it learns"))
    assert max(map(len, text.splitlines())) <= 100


def cell(source: str, *tags: str) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}}


def test_the_second_cell_goes_unless_it_says_more() -> None:
    added = cell("seed = 3", "injected-parameters")
    found = with_values_in_place([cell(TEXT, "parameters"), added, cell("x")], {"seed": 3})
    assert len(found) == 2 and assigned(found[0]["source"])["seed"] == 3
    cells = [cell(TEXT, "parameters"), added]
    assert with_values_in_place(cells, {"unknown": 1}) == cells
    assert with_values_in_place([added], {"seed": 1}) == [added]


PUBLISHED = sorted((ROOT / "book" / "published").glob("*.ipynb"))


@pytest.mark.parametrize("path", PUBLISHED, ids=[path.stem for path in PUBLISHED])
def test_a_published_chapter_shows_the_values_of_its_edition(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    tags = [tag for one in cells for tag in one["metadata"].get("tags", [])]
    assert "injected-parameters" not in tags
    (home,) = (one for one in cells if "parameters" in one["metadata"].get("tags", []))
    shown = assigned("".join(home["source"]))
    (chapter,) = (one for one in load_edition("standard").chapters if one.page == path.stem)
    wanted = {k: v for k, v in chapter.parameters.items() if not isinstance(v, (str, list))}
    assert {name: shown[name] for name in wanted} == wanted
    assert ast.parse("".join(home["source"]))
