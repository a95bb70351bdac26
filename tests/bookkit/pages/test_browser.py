"""Pages opened from disk, with the network cut, in a real browser: no error, formulas, pictures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chromium import Page, browser_or_skip
from tests.tinybook import shared_folder, tiny_site

POCKET = Path(__file__).parents[3] / "_build" / "pocket" / "html"
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


def test_a_head_is_clicked_and_another_text_chosen(page: Page, tiny: tuple[Path, bool]) -> None:
    page.open(tiny[0] / "book" / "one.html")
    viewer = "document.querySelector('figure.attn-view')"
    rest = "new Promise(done => setTimeout(done, 800))"
    page.evaluate(rest)
    spoken = f"{viewer}.querySelector('[aria-live]').textContent"
    first = page.evaluate(spoken)
    heads = f"{viewer}.querySelectorAll('[role=gridcell] button, button[role=gridcell]')"
    assert page.evaluate(f"{heads}.length") > 2
    page.evaluate(f"{heads}[{heads}.length - 1].click()")
    page.evaluate(rest)
    second = page.evaluate(spoken)
    assert second != first
    choice = f"{viewer}.querySelector('select')"
    page.evaluate(f"{choice}.selectedIndex = 1; {choice}.dispatchEvent(new Event('change'))")
    page.evaluate(rest)
    assert page.evaluate(spoken) != second


def test_the_ledger_is_filtered(page: Page, tiny: tuple[Path, bool]) -> None:
    page.open(tiny[0] / "book" / "ledger.html")
    shown = (
        "[...document.querySelectorAll('.attn-ledger tbody tr')].filter(r => !r.hidden)"
        ".map(r => r.dataset.paper + ' ' + r.dataset.verdict)"
    )
    press = "document.querySelector('.attn-ledger button[data-value=\"{}\"]').click()".format
    assert len(page.evaluate(shown)) == 5
    page.evaluate(press("holds"))
    assert page.evaluate(shown) == ["clark2019 holds", "guan2020 holds"]
    page.evaluate(press("guan2020"))
    assert page.evaluate(shown) == ["guan2020 holds"]
    told = "document.querySelector('.attn-ledger [role=status]').textContent"
    assert page.evaluate(told) == "1 of 5 claims"
    page.evaluate("document.querySelector('.attn-ledger .clear').click()")
    field = "document.querySelector('.attn-ledger input')"
    page.evaluate(f"{field}.value = 'tab1.1'; {field}.dispatchEvent(new Event('input'))")
    assert page.evaluate(shown) == ["clark2019 undecided"]
    page.evaluate("void (location.href = 'ledger.html?paper=guan2020&verdict=to+be+run')")
    time.sleep(1.5)
    assert page.evaluate(shown) == ["guan2020 to be run"]  # as the front page leads there
    assert page.seen.errors == []


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
