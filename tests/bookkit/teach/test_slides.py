"""Slides of a chapter: what is on them, and that a browser can show, turn and print them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure

from attnlib.plots import drawing
from attnlib.plots.drawing import Drawing
from bookkit.chapter import Chapter
from bookkit.claims import CLAIMS, FIGURES
from bookkit.errors import NotebookError
from bookkit.ledger import judged_rows
from bookkit.pages.site import external_loads
from bookkit.store import Store
from bookkit.teach.handouts import hand_outs
from bookkit.teach.plain_markdown import Words, papers_of
from bookkit.teach.slides import deck, discussion, figures_of
from tests.chromium import Page, browser_or_skip
from tests.claimrows import row

ROOT = Path(__file__).parents[3]
PUBLISHED = sorted((ROOT / "book" / "published").glob("*.ipynb"))
PAPERS = papers_of((ROOT / "book" / "references.bib").read_text(encoding="utf-8"))
DRAWN = {"caption": "See the peak. More about it.", "alt": "A peak.", "size": [4.0, 2.0]}
SVG = '<svg role="img" viewBox="0 0 400 200"><text>drawn</text></svg>'
FIGURE = {FIGURES: [{**DRAWN, "svg": [3, 3 + len(SVG)]}]}
TITLE = """# A title

*After {cite:t}`clark2019`: "Paper".*

They asked, on {glue:text}`model`:

- what is `[SEP]` **for**;
- and *why*?

Their verdict: it depends.

:::{admonition} After this chapter you can
:class: tip
- read a map.
:::
"""
ROWS = [
    row("fails", id="fig2.sep", where="Fig. 2", phenomenon="a layer likes <it> best"),
    row("holds", id="fig2.cls", where="Fig. 2"),
]


def markdown(text: str) -> dict:
    return {"cell_type": "markdown", "source": text}


def code(page: str, told: dict | None = None) -> dict:
    output = {"output_type": "execute_result", "data": {"text/html": page}, "metadata": told or {}}
    return {"cell_type": "code", "source": "", "outputs": [output]}


GLUED = {"scrapbook": {"name": "model"}}
CELLS = [
    markdown(TITLE),
    markdown("## Where does it look? (Fig. 2)"),
    code(f"<p>{SVG}</p> and more", {**FIGURE, CLAIMS: ["fig2.sep"]}),
    code("<table>all</table>"),
    {
        **{"cell_type": "code", "source": ""},
        "outputs": [
            {
                **{"output_type": "display_data", "metadata": GLUED},
                "data": {"application/papermill.record/text/plain": "'e5-small'"},
            }
        ],
    },
]
TEACHING = (
    "## Discussion questions\n\n1. **Why?** A good\n   answer.\n2. **How {ref}`x`?** So.\n\n## Else"
)


def slides_of(page: str) -> list[str]:
    return re.findall(r'<section class="slide .*?</section>', page, re.S)


def test_a_deck_has_its_slides_in_order() -> None:
    papers = {"clark2019": ("Clark et al.", "2019")}
    page = deck(CELLS, "clark2019", papers=papers, rows=ROWS, teaching=TEACHING)
    title, asked, goals, figure, verdicts, questions, exercises = slides_of(page)
    assert "<h1>A title</h1>" in title and "After Clark et al. (2019)" in title
    assert "<b>1</b>holds" in title and "<b>1</b>fails" in title
    assert "<code>[SEP]</code> <b>for</b>" in asked and "Their verdict: it depends." in asked
    assert "read a map." in goals
    assert "Where does it look?" in figure and '<p class="kicker">Fig. 2</p>' in figure
    assert '<p class="lead">See the peak.</p>' in figure and "drawn" in figure
    assert "✗ fails" in figure and "a layer likes &lt;it&gt; best" in figure
    assert "More about it." in figure.partition('class="notes"')[2]
    assert "What held" in verdicts and "Fig. 2" in verdicts
    assert (
        "<li>Why?</li>" in questions and "A good answer." in questions and "{ref}" not in questions
    )
    assert "A map by hand" in exercises and "Warm-up" in exercises


def test_questions_come_from_the_teaching_page() -> None:
    assert discussion(TEACHING) == [("Why?", "A good answer."), ("How {ref}`x`?", "So.")]
    for name in ("clark2019", "kovaleva2019", "guan2020", "pande2021"):
        text = (ROOT / "book" / "teach" / f"{name}.md").read_text(encoding="utf-8")
        found = discussion(text)
        assert len(found) >= 5 and all("?" in q and len(told) > 60 for q, told in found), name


def test_a_notebook_that_was_not_run_has_no_slides() -> None:
    with pytest.raises(NotebookError, match="attnlib run clark2019"):
        deck(CELLS[:2], "clark2019", papers={})
    with pytest.raises(NotebookError, match="expected `# Title`"):
        deck([markdown("no heading")], "clark2019", papers={})


def drawn(caption: str) -> Drawing:
    return Drawing("Nothing yet", Figure(figsize=(4, 2)), pd.DataFrame(), caption)


class Table:
    """Something that is shown, but is no figure for a slide."""

    def _repr_html_(self) -> str:
        return "<table><svg></svg></table>"


def test_what_a_notebook_shows_says_what_is_drawn_in_it() -> None:
    """A wall or a table is no figure, a gallery is several; the claims beneath go to each."""
    chapter = Chapter("clark2019", model="none", store=Store(Path("nowhere")))
    gallery = chapter.gallery({"one": drawn("First & best."), "two": drawn("Second.")})
    judged = chapter.show(gallery, "tab1.det")
    rows = chapter.rows("tab1.det")
    shown = [Table(), chapter.show(Table()), drawn("Alone."), gallery, judged]
    cells = [markdown("## A")]
    for one in shown:
        data, carried = DisplayFormatter().format(one)  # as a kernel does
        assert data["text/html"] == one._repr_html_() and data["text/plain"]
        cells.append(code(data["text/html"], carried))
    found = list(figures_of(cells, Words(), rows))
    assert [one.name for one in found] == ["", "one", "two", "one", "two"]
    assert [one.caption for one in found[:3]] == ["Alone.", "First & best.", "Second."]
    assert [one.claims for one in found] == [[], [], [], rows, rows]
    for one in found:
        assert one.svg == drawn(one.caption).svg() and one.ratio == 2


def test_the_library_and_the_kit_agree_on_the_name() -> None:
    assert drawing.FIGURES == FIGURES


def test_an_output_that_was_changed_is_refused() -> None:
    with pytest.raises(NotebookError, match=r"'Where does it look\? .* was changed"):
        deck([*CELLS[:2], code(f"<b>so</b>{SVG}", FIGURE)], "clark2019", papers={})


def slides(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    teaching = ROOT / "book" / "teach" / path.name.replace(".ipynb", ".md")
    text = teaching.read_text(encoding="utf-8") if teaching.is_file() else ""
    rows = list(judged_rows(path))
    return deck(cells, path.stem, papers=PAPERS, rows=rows, teaching=text)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_chapter_makes_slides(path: Path, tmp_path: Path) -> None:
    text = slides(path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [
        "".join(o.get("data", {}).get("text/html", "")) for c in cells for o in c.get("outputs", [])
    ]
    n_figures = sum(one.count('<figure class="attn-figure">') for one in outputs)
    assert text.count('<section class="slide figure">') == n_figures > 0
    (tmp_path / "s.html").write_text(text, encoding="utf-8")
    assert external_loads(tmp_path) == [] and "▢" not in text and "glue:text" not in text
    assert slides(path) == text


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_what_a_published_output_carries_is_what_it_shows(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for output in (one for cell in cells for one in cell.get("outputs", [])):
        carried, text = output.get("metadata", {}), ""
        if FIGURES in carried or CLAIMS in carried:
            text = "".join(output["data"]["text/html"])
        for one in carried.get(FIGURES, []):
            start, end = one["svg"]
            caption = f"<figcaption>{html.escape(one['caption'])}</figcaption></figure>"
            assert text[end:].startswith(caption)
            assert f'aria-label="{html.escape(one["alt"])}"' in text[start:end]
        shown = text.replace("<wbr>", "")
        assert all(f">{html.escape(name)}</span>" in shown for name in carried.get(CLAIMS, []))


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    yield from browser_or_skip("the slides were not opened in a browser")


@pytest.fixture(scope="module")
def clark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (source,) = [path for path in PUBLISHED if path.stem == "clark2019"]
    texts = hand_outs(["clark2019"], {"clark2019": source})
    target = tmp_path_factory.mktemp("slides") / "clark2019.html"
    target.write_text(texts["slides/clark2019.html"], encoding="utf-8")
    return target


KEY = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
AT = "document.querySelector('.at').textContent"
TOO_WIDE = "document.documentElement.scrollWidth - window.innerWidth"
OVERFLOW = """(() => {
  const slide = document.querySelector('.slide.on'), foot = document.querySelector('.foot');
  return slide.scrollHeight - slide.clientHeight
    || [...slide.querySelectorAll('p, li, h1, h2')].filter(one => one.offsetParent
      && one.getBoundingClientRect().bottom > foot.getBoundingClientRect().top + 1).length;
})()"""


@pytest.mark.browser
def test_keys_turn_the_slides(page: Page, clark: Path) -> None:
    page.open(clark, width=1280, height=720)
    last = int(page.evaluate(AT).split(" / ")[1])
    for key, where in (
        *(("ArrowRight", 2), (" ", 3), ("PageDown", 4), ("ArrowLeft", 3), ("End", last)),
        *(("ArrowRight", last), ("Home", 1), ("ArrowLeft", 1)),
    ):
        page.evaluate(KEY % key)
        assert page.evaluate(AT) == f"{where} / {last}", key
        assert page.evaluate("document.querySelectorAll('.slide.on').length") == 1
    assert page.seen.errors == [] and page.seen.elsewhere == []


@pytest.mark.browser
def test_a_tall_figure_scrolls_before_the_slide_turns(page: Page, clark: Path) -> None:
    page.open(clark, width=1280, height=720)
    tall = "[...document.querySelectorAll('.slide')].findIndex(s => s.querySelector('.tall')) + 1"
    page.evaluate(f"location.hash = {tall}")
    page.evaluate("new Promise(done => setTimeout(done, 100))")
    before = page.evaluate(AT)
    page.evaluate(KEY % "ArrowDown")
    assert page.evaluate("document.querySelector('.slide.on .tall').scrollTop") > 0
    assert page.evaluate(AT) == before
    for _ in range(9):
        page.evaluate(KEY % "ArrowDown")
    assert page.evaluate(AT) != before


@pytest.mark.browser
def test_n_shows_the_notes_and_d_the_dark(page: Page, clark: Path) -> None:
    page.open(clark, width=1280, height=720)
    page.evaluate(KEY % "ArrowRight")
    shown = "getComputedStyle(document.querySelector('.slide.on .notes')).display"
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(shown) == "none"
    page.evaluate(KEY % "n")
    assert page.evaluate(shown) == "block"
    page.evaluate(KEY % "n")
    assert page.evaluate(shown) == "none"
    light = page.evaluate(colour)
    page.evaluate(KEY % "d")
    assert page.evaluate(colour) != light
    page.evaluate("localStorage.clear()")
    page.open(clark, width=1280, height=720, dark=True)
    assert page.evaluate(colour) != light


@pytest.mark.browser
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1024, 768), (1920, 1080)])
def test_nothing_overflows_a_slide(page: Page, clark: Path, width: int, height: int) -> None:
    page.open(clark, width=width, height=height)
    for number in range(int(page.evaluate(AT).split(" / ")[1])):
        assert page.evaluate(TOO_WIDE) <= 0, number + 1
        assert page.evaluate(OVERFLOW) == 0, number + 1
        page.evaluate(KEY % "ArrowRight")


@pytest.mark.browser
def test_on_a_phone_slides_swipe_and_stay_narrow(page: Page, clark: Path) -> None:
    page.open(clark, width=390, height=800)
    swipe = """(() => {
      const place = {identifier: 1, target: document.body, clientY: 300};
      const touch = clientX => [new Touch({...place, clientX})];
      const at = document.querySelector('.slide.on h1, .slide.on h2');
      at.dispatchEvent(new TouchEvent('touchstart', {bubbles: true, touches: touch(300)}));
      at.dispatchEvent(new TouchEvent('touchend', {bubbles: true, changedTouches: touch(100)}));
    })()"""
    page.evaluate(swipe)
    assert page.evaluate(AT).startswith("2 /")
    for _ in range(int(page.evaluate(AT).split(" / ")[1])):
        assert page.evaluate(TOO_WIDE) <= 0
        page.evaluate("document.querySelector('.next').click()")
    assert page.seen.errors == []


@pytest.mark.browser
def test_a_slide_prints_on_a_page(page: Page, clark: Path) -> None:
    import base64

    page.open(clark, width=1280, height=720)
    n_slides = int(page.evaluate(AT).split(" / ")[1])
    told = page._call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
    pdf = base64.b64decode(told["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == n_slides
