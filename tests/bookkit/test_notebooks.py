"""Parameters are checked to the letter; a notebook runs in this Python and leaves a clean file."""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from bookkit import checking, notebooks
from bookkit.editions import load_edition, notebook_path
from bookkit.errors import BadValue, NotebookError, UnknownName
from bookkit.executed import code_of, notebook_of
from bookkit.notebooks import with_values

ROOT = Path(__file__).parents[2]
PARAMETERS = """n: int = 3  # how many
scale: float = 0.5  # how large
word: str = "a"  # which one
kinds: list[str] = ["x", "y"]  # of what
maybe: int | None = None  # a limit, or none"""


def write_notebook(path: Path, *cells: str, parameters: str = PARAMETERS) -> Path:
    """A small notebook with a parameters cell and these code cells."""
    book = nbformat.v4.new_notebook(
        metadata={
            "kernelspec": {"name": "python3", "display_name": "x", "language": "python"},
            "language_info": {"name": "python"},
        }
    )
    first = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    book.cells = [first, *map(nbformat.v4.new_code_cell, cells)]
    nbformat.write(book, path)
    return path


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    return write_notebook(tmp_path / "small.ipynb", "word * n")


def outputs(path: Path) -> list[dict]:
    cells = nbformat.read(path, as_version=4).cells
    return [out for cell in cells for out in cell.get("outputs", [])]


# --- parameters


def test_parameters_carry_type_default_and_help(notebook: Path) -> None:
    found = notebooks.notebook_parameters(notebook)
    assert found["n"] == notebooks.Parameter("n", 3, "int", "how many")
    assert found["kinds"].default == ["x", "y"]
    assert found["maybe"].default is None


def test_parameters_may_span_lines(tmp_path: Path) -> None:
    text = 'words: list[str] = [\n    "a",\n    "b",\n]  # which ones\nplain = 2'
    found = notebooks.notebook_parameters(write_notebook(tmp_path / "long.ipynb", parameters=text))
    assert found["words"] == notebooks.Parameter("words", ["a", "b"], "list[str]", "which ones")
    assert found["plain"].type == "int"


def test_a_damaged_notebook_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "torn.ipynb").write_text('{"cells": [')
    with pytest.raises(NotebookError, match="damaged"):
        notebooks.notebook_parameters(tmp_path / "torn.ipynb")


def test_good_parameters_pass_and_whole_numbers_become_floats(notebook: Path) -> None:
    given = {"n": 2, "scale": 1, "kinds": ["z"], "maybe": None}
    checked = notebooks.validate(notebook, given)
    assert checked == given
    assert type(checked["scale"]) is float


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"m": 1}, "parameter 'm'"),
        ({"wrd": "b"}, "Did you mean 'word'"),
        ({"n": "2"}, "expected int"),
        ({"n": True}, "expected int"),
        ({"n": 2.5}, "expected int"),
        ({"scale": "big"}, "expected float"),
        ({"kinds": ["a", 1]}, "expected list"),
        ({"maybe": "3"}, "expected int"),
        ({"word": None}, "expected str"),
    ],
)
def test_bad_parameters_are_refused(notebook: Path, given: dict[str, object], said: str) -> None:
    with pytest.raises((UnknownName, BadValue), match=said):
        notebooks.validate(notebook, given)


@pytest.mark.parametrize(
    ("value", "annotation", "fits"),
    [
        ("a", 'Literal["a", "b"]', True),
        ("c", 'Literal["a", "b"]', False),
        (None, "Optional[int]", True),
        ({"a": 1}, "dict[str, int]", True),
        ({"a": "1"}, "dict[str, int]", False),
        ([1, 2], "tuple", True),
        (2, "float", True),
        (True, "float", False),
        (1, "bool", False),
        ({"a": {"b": 1}}, "dict[str, dict]", True),
        (object(), "SomethingElse", True),
        (object(), "np.ndarray", True),
        (object(), "not a type", True),
    ],
)
def test_annotations(value: object, annotation: str, fits: bool) -> None:
    assert checking.fits(value, annotation) is fits


# --- values in the place of defaults

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
        {"plan": {"lowest": -math.inf, "highest": [math.inf]}},
    ],
)
def test_values_stand_in_the_place_of_defaults(given: dict[str, Any]) -> None:
    text = with_values(TEXT, given)
    assert assigned(text) == assigned(TEXT) | given
    assert all(told in text for told in ("# a model", "# how many", "# how it learns"))
    assert max(map(len, text.splitlines())) <= 100


PUBLISHED = [
    path
    for path in sorted((ROOT / "book" / "published").glob("*.ipynb"))
    if code_of(notebook_of(path))
    == code_of(notebook_of(notebook_path(path.stem.partition("-")[0])))
]
"""Those whose code is that of their run; the others wait for the next run."""


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


# --- runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of a noisy notebook that prints paths, warnings and a progress bar."""
    folder = tmp_path_factory.mktemp("run")
    noisy = write_notebook(
        folder / "noisy.ipynb",
        "import sys, attnlib\nprint(sys.executable, attnlib.__file__)",
        "import warnings; warnings.warn('careful'); print('log', file=sys.stderr)",
        "for i in range(3): sys.stdout.write(f'\\r{i}/3')\nsys.stdout.write('\\rdone\\n')",
        "from pathlib import Path\nPath.home() / 'x', word * n, sys.executable",
    )
    return notebooks.run_notebook(noisy, {"n": 2, "word": "ab"}, folder / "out" / "noisy.ipynb")


def test_the_kernel_is_this_python_with_this_package(finished: Path) -> None:
    (printed,) = [o["text"] for o in outputs(finished) if "attnlib/__init__" in str(o.get("text"))]
    assert printed.split() == [
        sys.executable.replace(sys.prefix, "env"),
        "attnlib/__init__.py",
    ]


def test_values_of_the_run_stand_in_the_parameters_cell(finished: Path) -> None:
    cells = nbformat.read(finished, as_version=4).cells
    assert len(cells) == 5
    assert "n: int = 2  # how many" in cells[0].source
    assert 'word: str = "ab"  # which one' in cells[0].source
    assert "abab" in str(outputs(finished)[-1]["data"])


def test_the_file_is_clean(finished: Path) -> None:
    text = finished.read_text()
    assert "careful" not in str(outputs(finished))
    assert [o for o in outputs(finished) if o.get("name") == "stderr"] == []
    assert [o["text"] for o in outputs(finished) if o["output_type"] == "stream"][-1] == "done\n"
    for path in (str(ROOT), sys.prefix + "/", str(Path.home()) + "/"):
        assert path not in text
    nbformat.validate(nbformat.read(finished, as_version=4))


def test_the_file_says_how_it_was_made(finished: Path) -> None:
    record = json.loads(finished.read_text())["metadata"]["attnlib"]
    assert record["parameters"] == {"n": 2, "word": "ab"}
    assert record["seconds"] > 0
    assert set(record["versions"]) >= {"python", "torch", "numpy"}


def test_a_failing_cell_is_named_and_the_file_kept(tmp_path: Path) -> None:
    bad = write_notebook(tmp_path / "bad.ipynb", "1 + 1", "1 / 0", "'never'")
    out = tmp_path / "out.ipynb"
    with pytest.raises(NotebookError, match=r"cell 3 of bad.ipynb failed: ZeroDivisionError"):
        notebooks.run_notebook(bad, {}, out)
    assert "ZeroDivisionError" in out.read_text()
    assert str(ROOT) not in out.read_text()


def test_a_kernel_that_dies_is_one_sentence(tmp_path: Path) -> None:
    bad = write_notebook(tmp_path / "bad.ipynb", "1 + 1", "import os; os._exit(1)")
    with pytest.raises(NotebookError, match=r"cell 3 of bad.ipynb ended its Python"):
        notebooks.run_notebook(bad, {}, tmp_path / "out.ipynb")
    assert "'2'" in str(outputs(tmp_path / "out.ipynb"))


def test_a_missing_notebook_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotebookError, match="is not a notebook"):
        notebooks.run_notebook(tmp_path / "none.ipynb", {}, tmp_path / "out.ipynb")


def test_paths_in_pictures_are_left_alone() -> None:
    data = {"image/png": "iVBOR/tmpABCD", "text/plain": "/tmp/here"}
    assert notebooks._portable({"data": data})["data"]["image/png"] == "iVBOR/tmpABCD"
    assert "/tmp" not in notebooks._portable({"data": data})["data"]["text/plain"]
    page = '<img src="data:image/png;base64,iVB/tmpABCD=="> from /tmp/here'
    assert (
        notebooks._portable(page) == '<img src="data:image/png;base64,iVB/tmpABCD=="> from tmp/here'
    )


def test_long_words_are_cleaned_in_a_moment() -> None:
    word = "x" * 1_000_000  # at the cost of its square this would take an hour
    said = f"{word} /tmp/ipykernel_12/34.py:1: in"
    assert notebooks._portable(said) == f"{word} cell:1: in"


def test_a_path_is_taken_from_where_the_command_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.txt").write_text("a text\n")
    monkeypatch.chdir(tmp_path)
    assert notebooks.read_parameters(None, ["corpus=mine.txt", "limit=5", "x=[a"]) == {
        "corpus": str(tmp_path / "mine.txt"),
        "limit": 5,
        "x": "[a",
    }


# --- the notebooks' own style

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


LONGEST_CELL = 30
"""A cell says one thing. A definition that explains the method may take so many lines."""
FORMATTING = ("figsize", "color=", "plt.", "rcParams", "set_xlabel", "<td", "<span")
"""Looks have their home in the plots; in a visible cell they would hide the method."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_show_the_method_and_nothing_else(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [c for c in code if c.outputs or c.execution_count] == [], "outputs are not committed"
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1
    for cell in code:
        assert faults_of(cell.source, cell.metadata.get("tags", [])) == [], cell.source


def faults_of(source: str, tags: list[str]) -> list[str]:
    """What a cell does that hides the method: paths, prints, looks, too many lines at once."""
    found = [word for word in ("print(", "open(", "Path(", *FORMATTING) if word in source]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] if re.match(r"(~?/|[A-Za-z]:\\|\.\./)\S", node.value) else []
    folded = {"hide-input", "hide-cell", "remove-cell", "remove-input", "parameters"} & set(tags)
    if not folded and len(source.splitlines()) > LONGEST_CELL:
        found.append(f"{len(source.splitlines())} lines")
    return found


@pytest.mark.parametrize(
    ("source", "tags", "fault"),
    [
        ("print(table)", [], "print("),
        ("table.plot(figsize=(3, 4))", [], "figsize"),
        ("table.to_csv('/tmp/x.csv')", [], "/tmp/x.csv"),
        ("x = 1\n" * 31, [], "31 lines"),
        ("x = 1\n" * 31, ["remove-cell"], None),
        ("def share(row):\n    return row.sum()\n\nfor one in rows:\n    share(one)", [], None),
    ],
)
def test_hidden_formatting_is_caught(source: str, tags: list[str], fault: str | None) -> None:
    assert faults_of(source, tags) == ([] if fault is None else [fault])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_parameter_is_explained(path: Path) -> None:
    for parameter in notebooks.notebook_parameters(path).values():
        assert parameter.help, f"{parameter.name} has no comment that says what it means"
        assert checking.fits(parameter.default, parameter.type)
