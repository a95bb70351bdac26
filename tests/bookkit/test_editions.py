"""Editions are checked to the letter; a notebook runs in this Python and leaves a clean file."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import nbformat
import pytest
import yaml

from attnlib.errors import AttnlibError, BadValue, UnknownName
from bookkit import building, editions, runs

ROOT = Path(__file__).parents[2]
FIRST_LOOK = ROOT / "notebooks" / "first_look.ipynb"
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
    book = json.loads(path.read_text(encoding="utf-8"))
    return [out for cell in book["cells"] for out in cell.get("outputs", [])]


# --- editions


@pytest.mark.parametrize("name", ["pocket", "standard", "paper"])
def test_every_edition_loads_and_fits_its_notebooks(name: str) -> None:
    edition = editions.load_edition(name)
    assert edition.minutes > 0
    read = set()
    for chapter in edition.chapters:
        given = editions.chapter_parameters(edition, chapter)
        assert given["model"] == chapter.parameters.get("model", edition.models["main"])
        read |= {given[name] for name in ("corpus", "wiki_corpus") if name in given}
    assert read == {edition.corpora["wiki"]}


def changed(tmp_path: Path, **changes: object) -> Path:
    """The pocket edition with some keys replaced; None removes a key."""
    given = yaml.safe_load((ROOT / "editions" / "pocket.yaml").read_text())
    given |= changes
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in given.items() if v is not None}))
    return path


def test_a_chapter_may_have_pages_for_other_models(tmp_path: Path) -> None:
    own = {"minutes": 1, "parameters": {"limit": 7}}
    told = {"minutes": 1, "parameters": {"corpus": "wiki"}, "variants": {"minilm-l6": own}}
    edition = editions.load_edition(changed(tmp_path, notebooks={"first_look": told}))
    first, second = edition.chapters
    assert (first.page, second.page) == ("first_look", "first_look-minilm-l6")
    one, two = (editions.chapter_parameters(edition, chapter) for chapter in edition.chapters)
    assert (one["model"], two["model"]) == ("e5-small", "minilm-l6")
    assert (one["limit"], two["limit"]) == (200, 7)
    assert one["corpus"] == two["corpus"] == "wiki-sample"
    contents = yaml.safe_load(
        building._contents(ROOT, edition, dict.fromkeys((first.page, second.page), FIRST_LOOK))
    )
    listed = [entry for part in contents["parts"] for entry in part["chapters"]]
    (entry,) = [entry for entry in listed if entry["file"] == "notebooks/first_look"]
    assert [one["file"] for one in entry["sections"]] == ["notebooks/first_look-minilm-l6"]


def test_an_edition_may_be_a_file(tmp_path: Path) -> None:
    assert editions.load_edition(changed(tmp_path, seed=7)).seed == 7


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sed": 0}, "Did you mean 'seed'"),
        ({"seed": "zero"}, "'seed' in mine.yaml is 'zero', expected int"),
        ({"seed": True}, "expected int"),
        ({"title": None}, "lacks 'title'"),
        ({"sizes": {"limt": 3}}, "Did you mean 'limit'"),
        ({"assets": "e5-small"}, "expected list"),
        ({"notebooks": {"first_lok": {"minutes": 1, "parameters": {}}}}, "'first_look'"),
        ({"notebooks": {"first_look": {"minute": 1, "parameters": {}}}}, "'minutes'"),
        (
            {"notebooks": {"first_look": {"minutes": 1, "parameters": {}, "variants": {"x": {}}}}},
            "variants: x lacks 'parameters'",
        ),
    ],
)
def test_a_slip_in_an_edition_is_refused(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises((UnknownName, BadValue), match=said):
        editions.load_edition(changed(tmp_path, **changes))


def test_unknown_edition_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'pocket'"):
        editions.load_edition("poket")


def test_unknown_chapter_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'first_look'"):
        building.build_book("pocket", only="first_lok")


# --- parameters


def test_parameters_carry_type_default_and_help(notebook: Path) -> None:
    found = runs.notebook_parameters(notebook)
    assert found["n"] == runs.Parameter("n", 3, "int", "how many")
    assert found["kinds"].default == ["x", "y"]
    assert found["maybe"].default is None


def test_parameters_may_span_lines(tmp_path: Path) -> None:
    text = 'words: list[str] = [\n    "a",\n    "b",\n]  # which ones\nplain = 2'
    found = runs.notebook_parameters(write_notebook(tmp_path / "long.ipynb", parameters=text))
    assert found["words"] == runs.Parameter("words", ["a", "b"], "list[str]", "which ones")
    assert found["plain"].type == "int"


def test_a_damaged_notebook_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "torn.ipynb").write_text('{"cells": [')
    with pytest.raises(runs.NotebookError, match="damaged"):
        runs.notebook_parameters(tmp_path / "torn.ipynb")


def test_good_parameters_pass_and_whole_numbers_become_floats(notebook: Path) -> None:
    given = {"n": 2, "scale": 1, "kinds": ["z"], "maybe": None}
    checked = runs.validate(notebook, given)
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
        runs.validate(notebook, given)


@pytest.mark.parametrize(
    ("value", "annotation", "fits"),
    [
        ("a", 'Literal["a", "b"]', True),
        ("c", 'Literal["a", "b"]', False),
        (None, "Optional[int]", True),
        ({"a": 1}, "dict[str, int]", True),
        ({"a": "1"}, "dict[str, int]", False),
        (object(), "SomethingElse", True),
    ],
)
def test_annotations(value: object, annotation: str, fits: bool) -> None:
    assert runs.fits(value, annotation) is fits


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
    return runs.run_notebook(noisy, {"n": 2, "word": "ab"}, folder / "out" / "noisy.ipynb")


def test_the_kernel_is_this_python_with_this_package(finished: Path) -> None:
    (printed,) = [o["text"] for o in outputs(finished) if "attnlib/__init__" in str(o.get("text"))]
    assert printed.split() == [
        sys.executable.replace(sys.prefix, "env"),
        "attnlib/__init__.py",
    ]


def test_values_of_the_run_stand_in_the_parameters_cell(finished: Path) -> None:
    book = json.loads(finished.read_text())
    assert len(book["cells"]) == 5
    assert "n: int = 2  # how many" in book["cells"][0]["source"]
    assert 'word: str = "ab"  # which one' in book["cells"][0]["source"]
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
    with pytest.raises(runs.NotebookError, match=r"cell 3 of bad.ipynb failed: ZeroDivisionError"):
        runs.run_notebook(bad, {}, out)
    assert "ZeroDivisionError" in out.read_text()
    assert str(ROOT) not in out.read_text()
    assert json.loads(out.read_text())["metadata"]["attnlib"]["key"] == ""


def test_a_missing_notebook_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(runs.NotebookError, match="is not a notebook"):
        runs.run_notebook(tmp_path / "none.ipynb", {}, tmp_path / "out.ipynb")


# --- what a run depends on


def test_the_key_changes_with_what_matters_only() -> None:
    edition = editions.load_edition("pocket")
    given = editions.chapter_parameters(edition, edition.chapters[0])
    key = building.content_key(FIRST_LOOK, given, ROOT)
    assert key == building.content_key(FIRST_LOOK, dict(given), ROOT)
    assert key != building.content_key(FIRST_LOOK, {**given, "limit": 1}, ROOT)


def test_the_key_changes_with_the_content_of_a_users_file(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("first\n")
    key = building.content_key(FIRST_LOOK, {"corpus": str(mine)}, ROOT)
    mine.write_text("second\n")
    assert key != building.content_key(FIRST_LOOK, {"corpus": str(mine)}, ROOT)


def test_the_key_changes_with_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    key = building.content_key(FIRST_LOOK, {}, ROOT)
    monkeypatch.setattr(building, "versions", lambda: {"torch": "0"})
    assert key != building.content_key(FIRST_LOOK, {}, ROOT)


def test_a_damaged_notebook_is_not_reused(tmp_path: Path) -> None:
    kept = tmp_path / "kept.ipynb"
    assert not building.is_whole(kept)
    kept.write_text(FIRST_LOOK.read_text()[:100])
    assert not building.is_whole(kept)
    kept.write_text(FIRST_LOOK.read_text())
    assert building.is_whole(kept)


def test_paths_in_pictures_are_left_alone() -> None:
    data = {"image/png": "iVBOR/tmpABCD", "text/plain": "/tmp/here"}
    assert runs._portable({"data": data})["data"]["image/png"] == "iVBOR/tmpABCD"
    assert "/tmp" not in runs._portable({"data": data})["data"]["text/plain"]
    page = '<img src="data:image/png;base64,iVB/tmpABCD=="> from /tmp/here'
    assert runs._portable(page) == '<img src="data:image/png;base64,iVB/tmpABCD=="> from tmp/here'


def test_long_words_are_cleaned_in_a_moment() -> None:
    word = "x" * 1_000_000  # at the cost of its square this would take an hour
    said = f"{word} /tmp/ipykernel_12/34.py:1: in"
    assert runs._portable(said) == f"{word} cell:1: in"


def test_a_path_is_taken_from_where_the_command_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.txt").write_text("a text\n")
    monkeypatch.chdir(tmp_path)
    assert runs.read_parameters(None, ["corpus=mine.txt", "limit=5", "x=[a"]) == {
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
    for parameter in runs.notebook_parameters(path).values():
        assert parameter.help, f"{parameter.name} has no comment that says what it means"
        assert runs.fits(parameter.default, parameter.type)


def test_the_command_fetch_is_told_the_assets_of_every_edition() -> None:
    """The library knows of no edition: the book adds their names by an entry point."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"]["attnlib.fetch_lists"].items()
    lists = EntryPoint(name, value, "attnlib.fetch_lists").load()()
    assert lists == {name: list(editions.load_edition(name).assets) for name in lists}
    assert list(lists) == ["paper", "pocket", "standard"]


def test_away_from_a_checkout_no_edition_can_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise AttnlibError("not inside the book")

    monkeypatch.setattr(editions, "project_root", nowhere)
    assert editions.asset_lists() == {}
