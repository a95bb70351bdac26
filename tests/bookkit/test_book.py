"""The book builds without a warning, and no page of it loads anything from another host."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest

from bookkit.errors import BuildError
from bookkit.pages import site
from bookkit.pages.site import build_site, external_loads
from tests.tinybook import PAGE, lay_out, shared_folder, tiny_site

ROOT = Path(__file__).parents[2]
POCKET = ROOT / "_build" / "pocket" / "html"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    return tiny_site(shared_folder(tmp_path_factory.getbasetemp()))


def sites(tiny: tuple[Path, bool]) -> list[Path]:
    """The tiny book, and the pocket edition if it was built."""
    return [tiny[0], *([POCKET] if (POCKET / "index.html").is_file() else [])]


def pages(folder: Path) -> list[Path]:
    return sorted(page for page in folder.rglob("*.html") if "_static" not in page.parts)


def test_no_page_loads_from_elsewhere(tiny: tuple[Path, bool]) -> None:
    for folder in sites(tiny):
        assert external_loads(folder) == []


def test_every_local_reference_exists(tiny: tuple[Path, bool]) -> None:
    for folder in sites(tiny):
        missing = []
        for page in pages(folder):
            loads = re.findall(
                r'<(?:script|img|link)\b[^>]*?(?:src|href)="([^"#?]+)', page.read_text()
            )
            for address in loads:
                if not re.match(r"(\w+:|//)", address):
                    target = page.parent / unquote(address)
                    if not target.exists() and "objects.inv" not in address:
                        missing.append(f"{page.name}: {address}")
        if not tiny[1]:
            missing = [entry for entry in missing if "vendored" not in entry]
        assert missing == []


def test_pages_have_no_trace_of_thebe(tiny: tuple[Path, bool]) -> None:
    for folder in sites(tiny):
        for page in pages(folder):
            assert "thebe" not in page.read_text().lower(), page


def test_every_figure_has_words(tiny: tuple[Path, bool]) -> None:
    for folder in sites(tiny):
        for page in pages(folder):
            text = page.read_text()
            images = re.findall(r"<img\b[^>]*>", text)
            assert [tag for tag in images if not re.search(r'alt="[^"]+"', tag)] == []
            figures = re.findall(r'<figure class="attn-figure">.*?</figure>', text, re.S)
            assert all('aria-label="' in f and "<figcaption>" in f for f in figures)


def test_no_page_names_a_folder_of_this_machine(tiny: tuple[Path, bool]) -> None:
    for folder in sites(tiny):
        for page in pages(folder):
            assert str(ROOT) not in page.read_text()
            assert str(Path.home()) + "/" not in page.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "said"),
    [
        (PAGE + "\nSee {ref}`nowhere`.\n", "nowhere"),
        (PAGE + "\n![gone](_static/gone.png)\n", "gone.png"),
        (PAGE + '\n```{raw} html\n<script src="https://example.org/x.js"></script>\n```\n', "x.js"),
    ],
    ids=["dangling", "missing image", "foreign script"],
)
def test_planted_faults_are_caught(tmp_path: Path, page: str, said: str) -> None:
    lay_out(tmp_path / "source", page)
    with pytest.raises(BuildError, match=said):
        build_site(tmp_path / "source", tmp_path / "work", tmp_path / "html")
    assert not (tmp_path / "html").exists()


def test_a_changed_style_sheet_writes_the_pages_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sphinx would leave the old one beside pages that have not changed."""
    asked: list[list[str]] = []
    style, built = (
        tmp_path / place / "look.css" for place in ("book/_static", "_build/html/_static")
    )

    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.append(command)
        built.parent.mkdir(parents=True, exist_ok=True)
        built.write_text(style.read_text())
        return SimpleNamespace(stdout="", stderr="", returncode=0)

    monkeypatch.setattr(site.subprocess, "run", run)
    style.parent.mkdir(parents=True)
    for text in ("a {}", "a {}", "b {}"):
        style.write_text(text)
        build_site(tmp_path, tmp_path, tmp_path / "out")
    assert ["--all" in command for command in asked] == [False, False, True]
    assert (tmp_path / "out" / "_static" / "look.css").read_text() == "b {}"


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://a.b/c.js"></script>',
        '<link rel="stylesheet" href="//a.b/c.css">',
        '<link rel="preconnect" href="https://a.b">',
        '<img srcset="x.png 1x, https://a.b/c.png 2x">',
        '<iframe src="https://a.b"></iframe>',
        '<p style="background: url(https://a.b/c.png)">',
        "<style>@import 'https://a.b/c.css';</style>",
        '<svg><image xlink:href="http://a.b/c.png"/></svg>',
        '<meta http-equiv="refresh" content="0; url=https://a.b">',
        '<video poster="https://a.b/c.png"></video>',
    ],
)
def test_every_kind_of_load_is_seen(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.html").write_text(text)
    assert len(external_loads(tmp_path)) == 1


@pytest.mark.parametrize(
    "text",
    [
        '<a href="https://a.b">elsewhere</a>',
        '<link rel="canonical" href="https://a.b">',
        '<img src="../x.png">',
        '<img src="data:image/png;base64,AAAA">',
        '<svg xmlns="http://www.w3.org/2000/svg"></svg>',
        "<p>https://a.b</p>",
    ],
)
def test_links_and_local_files_are_fine(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.html").write_text(text)
    assert external_loads(tmp_path) == []


def test_style_sheets_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@font-face { src: url('https://a.b/c.woff2') }")
    assert external_loads(tmp_path) == [("a.css", "https://a.b/c.woff2")]
