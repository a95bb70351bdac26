"""Pages opened from disk, with the network cut, in a real browser: no error, formulas, pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Page, browser_or_skip
from tinybook import shared_folder, tiny_site

POCKET = Path(__file__).parents[1] / "_build" / "pocket" / "html"
pytestmark = pytest.mark.browser

RAW_MATH = (
    "[...document.querySelectorAll('.math')].filter(m => !m.querySelector('mjx-container')).length"
)
MATH_ERRORS = "document.querySelectorAll('mjx-merror, [data-mjx-error]').length"
BROKEN = """[...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.src)"""
TOO_WIDE = "document.documentElement.scrollWidth - window.innerWidth"
TEXT = """getComputedStyle(document.querySelector('article p')).color"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    yield from browser_or_skip("the pages were not opened in a browser")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    return tiny_site(shared_folder(tmp_path_factory.getbasetemp()))


def all_pages(tiny: tuple[Path, bool]) -> list[Path]:
    """Every page a reader can reach, of the tiny book and of the pocket edition if it was built."""
    folders = [tiny[0], POCKET] if (POCKET / "index.html").is_file() else [tiny[0]]
    return [
        found
        for folder in folders
        for found in sorted(folder.rglob("*.html"))
        if "_static" not in found.parts
    ]


def test_pages_open_without_error_or_request(page: Page, tiny: tuple[Path, bool]) -> None:
    for path in all_pages(tiny):
        page.open(path)
        assert page.seen.elsewhere == [], path
        errors = page.seen.errors
        if not tiny[1]:
            errors = [error for error in errors if "vendored" not in error]
        assert errors == [], path
        assert page.evaluate(BROKEN) == [], path


def test_formulas_are_set(page: Page, tiny: tuple[Path, bool]) -> None:
    if not tiny[1]:
        pytest.skip("built without npm: there are no scripts for formulas")
    seen = 0
    for path in all_pages(tiny):
        page.open(path)
        seen += page.evaluate("document.querySelectorAll('mjx-container').length")
        assert page.evaluate(RAW_MATH) == 0, path
        assert page.evaluate(MATH_ERRORS) == 0, path
    assert seen > 0


def test_no_page_is_wider_than_a_phone(page: Page, tiny: tuple[Path, bool]) -> None:
    for path in all_pages(tiny):
        page.open(path, width=390, height=800)
        assert page.evaluate(TOO_WIDE) <= 0, path


def test_light_and_dark_differ_and_figures_follow(page: Page, tiny: tuple[Path, bool]) -> None:
    chapter = tiny[0] / "book" / "one.html"
    ink = "getComputedStyle(document.querySelector('.attn-figure svg text')).fill"
    found = []
    for dark in (False, True):
        page.open(chapter, dark=dark)
        page.evaluate("localStorage.clear()")
        page.open(chapter, dark=dark)
        found.append((page.evaluate(TEXT), page.evaluate(ink)))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_there_is_one_search_field(page: Page, tiny: tuple[Path, bool]) -> None:
    page.open(tiny[0] / "book" / "intro.html")
    fields = "[...document.querySelectorAll('.search-button-field, form.bd-search')]"
    assert page.evaluate(f"{fields}.filter(field => field.offsetParent !== null).length") == 1


def test_a_solution_is_folded_until_asked_for(page: Page, tiny: tuple[Path, bool]) -> None:
    page.open(tiny[0] / "book" / "intro.html")
    height = "document.querySelector('.solution').getBoundingClientRect().height"
    folded = page.evaluate(height)
    page.evaluate("document.querySelector('.solution .toggle-button, .solution button').click()")
    page.evaluate("new Promise(done => setTimeout(done, 400))")
    assert page.evaluate(height) > folded


def test_a_planted_error_is_seen(page: Page, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<img src='gone.png'><script src='https://example.org/x.js'></script>"
        "<script>console.error('boom'); undefinedFunction()</script><p class='math'>\\(x\\)</p>"
    )
    page.open(bad)
    said = " ".join(page.seen.errors)
    assert "boom" in said
    assert "undefinedFunction" in said
    assert page.seen.elsewhere == ["https://example.org/x.js"]
    assert len(page.evaluate(BROKEN)) == 1
    assert page.evaluate(RAW_MATH) == 1
