"""Pages can be read by people who see little contrast, or nothing, and by those without a mouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.axe import axe_source, violations
from tests.bookkit.pages.test_browser import all_pages
from tests.chromium import Page, browser_or_skip
from tests.tinybook import shared_folder, tiny_site

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    if axe_source() is None:
        pytest.skip("axe-core cannot be fetched: the pages' accessibility was not checked")
    yield from browser_or_skip("the pages' accessibility was not checked")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    return tiny_site(shared_folder(tmp_path_factory.getbasetemp()))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_have_contrast_and_names(page: Page, tiny: tuple[Path, bool], dark: bool) -> None:
    found = {}
    for path in all_pages(tiny):
        page.open(path, dark=dark)
        page.evaluate("localStorage.clear()")
        if seen := violations(page):
            found[path.name] = seen
    assert found == {}


def test_planted_faults_are_seen(page: Page, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<html lang=en><title>x</title><article><p style='color:#aaa;background:#fff'>pale</p>"
        "<img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='><button></button></article></html>"
    )
    page.open(bad)
    said = " ".join(violations(page))
    for rule in ("color-contrast", "image-alt", "button-name"):
        assert rule in said
