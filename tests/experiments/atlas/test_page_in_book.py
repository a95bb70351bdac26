"""The atlas as a page of the built book: search, card, into a chapter, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.atlas import Atlas, atlas_in, from_text
from experiments.atlas.facts import FACTS
from tests.chromium import Page, browser_or_skip
from tests.experiments.atlas.test_page_browser import Reader

BUILD = Path(__file__).parents[3] / "_build" / "pocket"
PAGE = BUILD / "html" / "book" / "atlas.html"
pytestmark = pytest.mark.skipif(
    not PAGE.is_file(), reason="the pocket edition was not built: `make book` comes first"
)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    yield from browser_or_skip("the atlas in the book was not opened")


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    carried = atlas_in(BUILD / "notebooks" / "agreement.ipynb")
    assert carried is not None
    return from_text(carried, "agreement.ipynb")


@pytest.mark.parametrize("place", sorted({said["where"] for said in FACTS.values()}))
def test_every_place_that_a_card_points_to_is_there(place: str) -> None:
    page, _, anchor = place.partition("#")
    text = (BUILD / "html" / page).read_text(encoding="utf-8")
    assert f'id="{anchor}"' in text


@pytest.mark.browser
def test_a_head_is_found_its_card_opened_a_chapter_visited(page: Page, atlas: Atlas) -> None:
    reader = Reader(page, PAGE)
    found = reader.find("heads that look at the next token")
    shares = atlas.fact("mass_to_next").value
    assert found[0] == max(atlas.heads, key=lambda head: shares[atlas.place(head)])
    reader.press("Enter")
    assert reader.open == found[0]
    link = "document.querySelector('.attn-atlas a[href*=\"notebooks/clark2019.html#\"]')"
    target = page.evaluate(f"{link}.href")
    _leave(page, f"{link}.click()")
    assert page.evaluate("location.href") == target
    anchor = target.partition("#")[2]
    assert page.evaluate(f"document.getElementById({json.dumps(anchor)}) !== null")
    _leave(page, "history.back()")
    assert page.evaluate("location.href").endswith(f"atlas.html#{found[0]}")
    reader.wait()
    assert reader.open == found[0]


def _leave(page: Page, script: str) -> None:
    """Do what loads another page, and wait for it; the script outlives the answer to it."""
    page._loaded = False
    page.evaluate(f"setTimeout(() => {{ {script} }}, 20)")
    page._wait_for_load()


@pytest.mark.browser
def test_a_card_in_the_book_shows_the_numbers_of_the_table(page: Page, atlas: Atlas) -> None:
    table = atlas.table().set_index(["head", "key"])["text"]
    for head in ("1-1", "5-5", atlas.heads[-1]):
        reader = Reader(page, PAGE, at=f"#{head}")
        shown = reader.facts()
        assert reader.open == head and len(shown) > 20
        for key, (value, _) in shown.items():
            assert value.strip().endswith(table[head, key]), (head, key)


def test_the_page_is_light() -> None:
    assert PAGE.stat().st_size < 3_000_000
