"""The teaching kit: a complete catalogue, student copies without solutions, pages that build."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from bookkit import building
from bookkit.claims import paper_keys
from bookkit.editions import Edition
from bookkit.errors import BadValue, NotebookError, UnknownName
from bookkit.notebooks import run_notebook
from bookkit.pages import site
from bookkit.teach import exercises, handouts, students
from bookkit.teach.exercises import catalogue, of_chapter, read_exercises
from bookkit.teach.plain_markdown import BLANK, Words, equation_numbers, papers_of, plain_markdown
from experiments.atlas.page import atlas_page

ROOT = Path(__file__).parents[3]
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
TEACH = ROOT / "book" / "teach"
PAPERS = [key for key in paper_keys() if (ROOT / "book" / "published" / f"{key}.ipynb").is_file()]
TAUGHT = ["first_look", *PAPERS]
"""Chapters of the published book: these have the whole kit."""
CITED = papers_of((ROOT / "book" / "references.bib").read_text(encoding="utf-8"))


def prose(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def labels(name: str) -> list[str]:
    return re.findall(r"\{exercise\}\n:label: (\S+)", prose(NOTEBOOKS[name]))


# The catalogue


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_exercise_has_an_entry_and_every_entry_an_exercise(name: str) -> None:
    """In the same order, since `clark-3` is the third exercise of its chapter."""
    assert [one.label for one in of_chapter(name)] == labels(name)


def test_no_entry_belongs_to_a_chapter_that_is_not_there() -> None:
    assert {one.chapter for one in catalogue().values()} <= set(NOTEBOOKS)


@pytest.mark.parametrize("name", TAUGHT)
def test_every_published_chapter_has_all_three_levels(name: str) -> None:
    have = {one.level for one in of_chapter(name)}
    assert have == set(exercises.LEVELS), "a published chapter has exercises of all three levels"


def test_entries_are_fit_to_plan_with() -> None:
    for one in catalogue().values():
        assert 5 <= one.minutes <= 120 and one.title and one.parts, one.label
        assert one.label.startswith(exercises.prefix(one.chapter)), one.label


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("level = 1", "level = 7", r"'level' in .* is 7, expected Literal\[1, 2, 3\]"),
        (
            'needs = "paper and pencil"',
            'needs = "luck"',
            "'needs' in .* is 'luck', expected .*paper and pencil",
        ),
        ('kind = "number"', 'kind = "guess"', "'kind' in .* is 'guess', expected .*number"),
        ("tolerance = 0.005", "tolerance = 0", "no tolerance above 0"),
    ],
)
def test_a_faulty_entry_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    file = ROOT / "book" / "exercises.toml"
    entry = file.read_text(encoding="utf-8").split("\n\n")[1]
    broken = tmp_path / "exercises.toml"
    broken.write_text(entry.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BadValue, match=said):
        read_exercises(broken)


# Student copies


def copied(name: str) -> dict[str, Any]:
    return students.student_copy(json.loads(NOTEBOOKS[name].read_text(encoding="utf-8")), CITED)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_student_copy_is_a_valid_notebook(name: str) -> None:
    made = copied(name)
    nbformat.validate(nbformat.from_dict(made))
    assert made == copied(name)
    ids = [cell["id"] for cell in made["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in made["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_solution_is_left(name: str) -> None:
    text = json.dumps(copied(name), ensure_ascii=False)
    solutions = re.findall(
        r"^(`{3,})\{solution\} \S+\n:class: dropdown\n\n(.*?)^\1$",
        prose(NOTEBOOKS[name]),
        re.M | re.S,
    )
    assert len(solutions) == len(labels(name))
    for _, solution in solutions:
        for line in (line.strip() for line in solution.splitlines()):
            if len(line) > 40 and not line.startswith(("from ", "import ")):
                assert json.dumps(line, ensure_ascii=False)[1:-1] not in text, line
    assert "{solution}" not in text


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_exercise_has_room_for_work_and_a_check(name: str) -> None:
    cells = copied(name)["cells"]
    at = {cell["id"]: number for number, cell in enumerate(cells)}
    for label in labels(name):
        task, work, check = cells[at[label] : at[label] + 3]
        assert task["cell_type"] == "markdown" and "### Exercise" in task["source"]
        assert (work["source"], work["metadata"]["tags"]) == ("# Your work", ["answer"])
        assert check["metadata"]["tags"] == ["check"]
        found: dict[str, Any] = {}
        body = check["source"].replace("check(\n", "found = check(\n")
        exec(compile(body, label, "exec"), found)
        assert not found["found"].ok and "Still open" in found["found"].hint


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_student_copy_reads_well_without_sphinx(name: str) -> None:
    made = copied(name)
    text = "\n\n".join(c["source"] for c in made["cells"] if c["cell_type"] == "markdown")
    assert not re.search(r"\{[a-z]+(:[a-z]+)?\}`", text)
    assert not re.search(r"^:::|^\([\w-]+\)=|\]\((#|\.)", text, re.M)
    assert BLANK in text and "This is your copy" in text
    (parameters,) = [c for c in made["cells"] if "parameters" in c["metadata"].get("tags", [])]
    assert ": int = " in parameters["source"]


def test_roles_and_directives_become_plain_words() -> None:
    words = Words(CITED, {"mass": 1}, {"peak": 0.123, "head": "3-3"})
    text = (
        "(here)=\n## A\n\nBy {eq}`mass` {cite:t}`clark2019` and {cite:p}`jain2019` at [x](#here): "
        "{glue:text}`peak:.2f` {glue:text}`a/b.ipynb::head` {glue:text}`gone`, {ref}`that <x>`.\n\n"
        ":::{admonition} Mind\n:class: tip\n- one\n- two\n:::\n\n$$\na\n$$ (mass)\n"
    )
    said = plain_markdown(text, words)
    assert "By (1) Clark et al. (2019) and (Jain and Wallace, 2019) at x: 0.12 3-3 ▢, that." in said
    assert "> **Mind**\n>\n> - one\n> - two" in said and "\\tag{1}\n$$" in said
    assert "(here)=" not in said
    assert equation_numbers([text]) == {"mass": 1}


TINY = [
    nbformat.v4.new_markdown_cell("# Tiny\n\nA number: {glue:text}`n`."),
    nbformat.v4.new_code_cell("size: int = 2  # how many", metadata={"tags": ["parameters"]}),
    nbformat.v4.new_markdown_cell(
        "```{exercise}\n:label: clark-offsets\n\nHow far?\n```\n\n"
        "````{solution} clark-offsets\n:class: dropdown\n\nTwo.\n```python\n1\n```\n````\n\nAfter."
    ),
]


def test_a_student_copy_runs(tmp_path: Path) -> None:
    notes = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = nbformat.v4.new_notebook(cells=TINY, metadata=notes)
    copy = tmp_path / "s.ipynb"
    copy.write_text(json.dumps(students.student_copy(book)), encoding="utf-8")
    assert "Two." not in copy.read_text() and "After." in copy.read_text()
    done = nbformat.read(run_notebook(copy, {"size": 3}, tmp_path / "done.ipynb"), as_version=4)
    (check,) = [cell for cell in done.cells if "check" in cell.metadata.get("tags", [])]
    (output,) = check.outputs
    assert "clark-3" in output.data["text/plain"] and "Still open" not in output.data["text/html"]
    assert any("size: int = 3" in cell.source for cell in done.cells)


def test_an_exercise_without_a_label_or_an_entry_is_refused() -> None:
    lost = {"cells": [{"cell_type": "markdown", "metadata": {}, "source": "```{exercise}\nx\n```"}]}
    with pytest.raises(NotebookError, match="no label"):
        students.student_copy({**lost, "metadata": {}})
    lost["cells"][0]["source"] = "```{exercise}\n:label: clark-nowhere\n\nx\n```"
    with pytest.raises(UnknownName, match="clark-nowhere"):
        students.student_copy({**lost, "metadata": {}})


# The command


def test_teach_writes_copies_and_slides(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("teach", "first_look", "--out", tmp_path)
    assert code == 0 and "student copy" in out and "slides" in out
    assert (tmp_path / "notebooks" / "first_look.ipynb").is_file()
    assert (tmp_path / "slides" / "first_look.html").is_file()


def test_teach_says_what_it_cannot_do(run: Any, tmp_path: Path) -> None:
    code, _, err = run("teach", "clark", "--out", tmp_path)
    assert code == 2 and "Did you mean 'clark2019'?" in err
    _, out, _ = run("teach", "clark2019", "--out", tmp_path, "--edition", "paper")
    said = out.splitlines()[0]
    assert "no slides" in said and "attnlib book pocket --only clark2019" in said


def test_a_book_may_have_no_exercises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exercises, "project_root", lambda: tmp_path)
    monkeypatch.setattr(handouts, "project_root", lambda: tmp_path)
    assert handouts.teachable() == [] and handouts.exercise_counts() == {"exercises": 0}
    assert handouts.hand_outs(handouts.teachable(), {}) == {}
    with pytest.raises(UnknownName, match=r"exercise 'clark-3'\. Known: none"):
        exercises.check("clark-3", 1)


# The pages


def page(name: str) -> str:
    return (TEACH / f"{name}.md").read_text(encoding="utf-8")


def test_the_kit_is_complete() -> None:
    wanted = {"index", "syllabus", "workshop", "rubric", *TAUGHT}
    assert {path.stem for path in TEACH.glob("*.md")} >= wanted
    for name in TAUGHT:
        for part in ("Objectives", "Exercises", "Discussion questions", "Common misconceptions"):
            assert f"## {part}" in page(name), (name, part)
        assert "- **Time:**" in page(name) and "- **Before it:**" in page(name)
        assert f"exercises_{name}.md" in page(name)
        assert page(name).count('\n**"') >= 5, "misconceptions"
    assert len(re.findall(r"^## Week \d", page("syllabus"), re.M)) == 6
    for part in ("Aims", "Read", "In class", "At home", "Assess"):
        assert page("syllabus").count(f"**{part}.**") == 6, part


def test_the_workshop_fills_two_hours_without_a_gap() -> None:
    spans = [(int(a), int(b)) for a, b in re.findall(r"^\| (\d+)–(\d+) \|", page("workshop"), re.M)]
    assert spans[0][0] == 0 and spans[-1][1] == 120
    assert all(one[1] == two[0] for one, two in pairwise(spans))


def test_sessions_of_the_syllabus_fill_ninety_minutes() -> None:
    weeks = re.split(r"^## Week \d", page("syllabus"), flags=re.M)[1:]
    assert [sum(map(int, re.findall(r"\*(\d+) min\.\*", week))) for week in weeks] == [90] * 6


@pytest.mark.parametrize("path", sorted(TEACH.glob("*.md")), ids=lambda path: path.stem)
def test_commands_and_labels_on_the_pages_exist(path: Path) -> None:
    from attnlib.cli import app

    text = path.read_text(encoding="utf-8")
    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    for command in re.findall(r"(?:\$ |`)attnlib (\w+)", text):
        assert command in known, command
    anchors = set(re.findall(r"^\(([\w-]+)\)=$", "".join(map(prose, NOTEBOOKS.values())), re.M))
    for words, label in re.findall(r"\{ref\}`([^`<]+) <([\w-]+)>`", text):
        if label not in anchors:  # then it is an exercise, under its title or its label
            assert words in (catalogue()[label].title, label), label
    assert not re.search(r"\{ref\}`[\w-]+`", text), "a bare number does not say of which chapter"
    for label in re.findall(r'check\("([\w-]+)"', text):
        assert exercises.exercise(label)


def test_tables_of_exercises_come_from_the_catalogue() -> None:
    table = handouts.parts_for_teachers(())["book/_generated/exercises_guan2020.md"]
    assert table.count("\n") == 2 + len(of_chapter("guan2020"))
    assert "| **warm-up** | {ref}`A distance feature by hand <guan-by-hand>` |" in table
    assert handouts.exercise_counts()["exercises"] == len(catalogue())


def lay_out(folder: Path) -> None:
    """The teaching pages with the chapters they point to, as a book of their own."""
    shutil.copytree(ROOT / "book" / "_static", folder / "book" / "_static")
    shutil.copytree(TEACH, folder / "book" / "teach")
    for name in ("references.bib", "references.md", "reading_maps.md"):
        shutil.copy(ROOT / "book" / name, folder / "book")
    published = {path.stem: path for path in (ROOT / "book" / "published").glob("*.ipynb")}
    (folder / "notebooks").mkdir()
    for name, source in NOTEBOOKS.items():
        book = json.loads(published.get(name, source).read_text(encoding="utf-8"))
        for cell in book["cells"]:  # figures take long to build, and no page points to them
            if "outputs" in cell:
                cell["outputs"] = [one for one in cell["outputs"] if "scrapbook" in one["metadata"]]
        text = json.dumps(book)
        if name not in published:  # it has no numbers yet
            text = re.sub(r"\{glue:text\}`[^`]+`", "0", text)
        text = text.replace("(../book/reader_passages)", "(https://example.org)")
        (folder / "notebooks" / f"{name}.ipynb").write_text(text, encoding="utf-8")
    generated = folder / "book" / "_generated"
    generated.mkdir()
    for place, text in handouts.parts_for_teachers(published).items():
        (folder / place).write_text(text)
    (folder / "book" / "atlas.md").write_text(atlas_page({}))
    chapters = [f"notebooks/{name}" for name in NOTEBOOKS]
    chapters += ["book/references", "book/atlas", "book/reading_maps"]
    chapters += [f"book/teach/{path.stem}" for path in sorted(TEACH.glob("*.md"))]
    entries = [{"file": name} for name in chapters if name != "book/teach/index"]
    contents = {"format": "jb-book", "root": "book/teach/index", "chapters": entries}
    (folder / "_toc.yml").write_text(yaml.safe_dump(contents))
    (folder / "_extra" / "vendored").mkdir(parents=True)
    (folder / "_extra" / "vendored" / "README").write_text("None.\n")
    edition = Edition("teach", "Teach", "Small.", {"main": "none"}, {}, (), {}, 0, ())
    (folder / "_config.yml").write_text(building.config(ROOT, edition, {}, False))


@pytest.mark.slow
def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    """Every exercise, chapter, number and paper that a page names is there."""
    lay_out(tmp_path / "source")
    front = site.build_site(tmp_path / "source", tmp_path / "work", tmp_path / "html")
    built = {p.stem: p.read_text("utf-8") for p in (front.parent / "book" / "teach").glob("*.html")}
    assert (
        "A map by hand" in built["clark2019"]
        and "clark2019.html#clark-by-hand" in built["syllabus"]
    )
    assert "{{" not in built["index"] and str(len(catalogue())) in built["index"]
    for name, text in built.items():
        assert "{ref}" not in text and "glue:text" not in text, name


BLOCKS = [
    pytest.param(textwrap.dedent(block), id=f"{path.stem}-{number}")
    for path in sorted(TEACH.glob("*.md"))
    for number, block in enumerate(
        re.findall(r"^ *```python\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.S | re.M)
    )
]


@pytest.mark.assets
@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_on_the_pages_runs(
    block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import matplotlib

    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)  # a page may read a folder of the teacher's
    exec(compile(block.replace("limit=100", "limit=10"), "page", "exec"), {})
