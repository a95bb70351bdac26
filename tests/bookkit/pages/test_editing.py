"""Executed notebooks get newer prose, and second pages get labels of their own, without a run."""

from __future__ import annotations

from typing import Any

import pytest

from bookkit.pages.editing import as_variant, naming, naming_in, title_of, with_prose_of

PARAMETERS = "n: int = 3  # how many"
CHAPTER = """# A chapter

See [the end](#the-end), {eq}`mass`, {ref}`words <the-end>` and {ref}`an exercise <first>`.

$$
m = 1
$$ (mass)
"""
EXERCISES = """(the-end)=
## Exercises

```{exercise}
:label: first

How many?
```

````{solution} first
:class: dropdown

```python
1 + 1
```
````
"""


def code(source: str, *outputs: str, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    told = [{"output_type": "stream", "name": "stdout", "text": text} for text in outputs]
    return {
        "cell_type": "code",
        "source": source,
        "metadata": {"tags": list(tags)},
        "outputs": told,
    }


def text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source, "metadata": {}}


def notebook(*cells: dict[str, Any]) -> dict[str, Any]:
    return {"cells": list(cells), "metadata": {}}


def sources(book: dict[str, Any]) -> list[str]:
    return ["".join(cell["source"]) for cell in book["cells"]]


def test_newer_prose_goes_to_an_executed_notebook() -> None:
    parameters = code(PARAMETERS, tags=("parameters",))
    source = notebook(text("# New"), parameters, text("between"), code("n * 2"), text("end"))
    ran = notebook(
        text("# Old"),
        code("n: int = 7  # how many", tags=("parameters",)),
        code("n * 2", "14"),
    )
    found = with_prose_of(source, ran)
    assert found is not None
    assert sources(found) == ["# New", "n: int = 7  # how many", "between", "n * 2", "end"]
    assert found["cells"][3]["outputs"][0]["text"] == "14"
    assert sources(ran)[0] == "# Old"


def test_a_notebook_whose_code_has_changed_is_not_touched() -> None:
    ran = notebook(code(PARAMETERS, tags=("parameters",)), code("n * 2", "6"))
    for changed in (
        notebook(code(PARAMETERS, tags=("parameters",)), code("n * 3")),
        notebook(code(PARAMETERS, tags=("parameters",))),
        notebook(code(PARAMETERS + "\nm: int = 1", tags=("parameters",)), code("n * 2")),
    ):
        assert with_prose_of(changed, ran) is None


def test_a_variant_has_labels_of_its_own() -> None:
    book = notebook(text(CHAPTER), code("1", "1"), text(EXERCISES))
    first, _, last = sources(as_variant(book, "chapter", "small"))
    assert first.startswith("# A chapter: small\n")
    assert "[the end](#the-end-small)" in first
    assert "{eq}`mass-small`" in first
    assert "{ref}`words <the-end-small>`" in first
    assert "$$ (mass-small)" in first
    assert "{ref}`an exercise <first>`" in first  # which stands in the chapter itself
    assert last.startswith("(the-end-small)=\n## Exercises")
    assert "exercise}" not in last and "1 + 1" not in last
    assert "./chapter.ipynb" in last


def test_a_variant_leaves_the_chapter_as_it_was() -> None:
    book = notebook(text(CHAPTER), code("1", "1"), text(EXERCISES))
    as_variant(book, "chapter", "small")
    assert sources(book) == [CHAPTER, "1", EXERCISES]
    assert as_variant(book, "chapter", "small")["cells"][1] == book["cells"][1]


AWAY = {"kovaleva2019": "Five patterns"}
NAMED = "*Five patterns* (not in this build)"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("| [](../notebooks/kovaleva2019) |", f"| {NAMED} |"),
        ("{doc}`../../notebooks/kovaleva2019`.", f"{NAMED}."),
        ("{doc}`/notebooks/kovaleva2019`", NAMED),
        ("{doc}`The chapter <../../notebooks/kovaleva2019>` has", "The chapter has"),
        ("see [that chapter](./kovaleva2019.ipynb#end).", "see that chapter."),
        ('<a href="../notebooks/kovaleva2019.html"><b>Read</b> it</a>', "<b>Read</b> it"),
    ],
)
def test_a_chapter_that_is_not_here_is_named_and_not_linked(given: str, left: str) -> None:
    assert naming(given, AWAY) == left


@pytest.mark.parametrize(
    "text",
    [
        "[](../notebooks/clark2019), {doc}`/notebooks/guan2020`",
        "{doc}`for teachers <kovaleva2019>`",  # a page of its own, which is here
        "{cite:t}`kovaleva2019`, and `attnlib run kovaleva2019`",
        '<a href="../../handouts/notebooks/kovaleva2019.ipynb" download>notebook</a>',
        "![a picture](../notebooks/pictures/kovaleva2019.svg)",
    ],
)
def test_other_links_stay_as_they_are(text: str) -> None:
    assert naming(text, AWAY) == text
    assert naming(text, {}) == text


def test_chapters_are_named_in_the_prose_of_a_notebook_alone() -> None:
    link = "[](./kovaleva2019.ipynb)"
    book = naming_in(notebook(text(link), code(link)), AWAY)
    assert sources(book) == [NAMED, link]


def test_the_title_is_the_first_heading() -> None:
    assert title_of(notebook(code("# no title"), text("Words\n\n# A title \n\n# B"))) == "A title"
    assert title_of(notebook(text("Words"))) == ""
