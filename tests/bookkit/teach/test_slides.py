"""Slides of a chapter: what is on them, and that a browser can show, turn and print them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkit.claims import LEDGER
from bookkit.pages.site import external_loads
from bookkit.teach.plainmyst import Words
from bookkit.teach.slides import SlidesError, deck, write_slides
from bookkit.teach.slidesource import discussion, pictures
from tests.chromium import Page, browser_or_skip

ROOT = Path(__file__).parents[3]
PUBLISHED = sorted((ROOT / "book" / "published").glob("*.ipynb"))
BIB = ROOT / "book" / "references.bib"
ROW = (
    '<tr><th data-name="claim">Fig. 2 <span class="quiet">fig2.sep</span></th>'
    '<td data-name="paper">0.5</td><td data-name="ours">0.3</td>'
    '<td data-name="phenomenon">a layer likes &lt;it&gt; best</td><td data-name="verdict">'
    '<span class="badge no" title="why"><i aria-hidden="true">✗</i> not reproduced</span></td></tr>'
)
FIGURE = (
    '<figure class="attn-figure"><svg role="img" viewBox="0 0 400 200"><text>drawn</text></svg>'
    "<figcaption>See the peak. More about it.</figcaption></figure>"
)
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
LEDGER_ROW = {
    **{"paper": "clark2019", "id": "fig2.sep", "where": "Fig. 2", "model": "e5-small"},
    **{"phenomenon": "a layer likes it best", "verdict": "not reproduced", "reason": "0.3"},
}


def markdown(text: str) -> dict:
    return {"cell_type": "markdown", "source": text}


def code(html: str, told: dict | None = None) -> dict:
    output = {"output_type": "execute_result", "data": {"text/html": html}, "metadata": told or {}}
    return {"cell_type": "code", "source": "", "outputs": [output]}


GLUED = {"scrapbook": {"name": "model"}}
CELLS = [
    markdown(TITLE),
    markdown("## Where does it look? (Fig. 2)"),
    code(f"{FIGURE}<table>{ROW}</table>"),
    code("<table>all</table>", {LEDGER: [LEDGER_ROW, {**LEDGER_ROW, "verdict": "reproduced"}]}),
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
    page = deck(
        CELLS, "clark2019", papers={"clark2019": ("Clark et al.", "2019")}, teaching=TEACHING
    )
    title, asked, goals, figure, verdicts, questions, exercises = slides_of(page)
    assert "<h1>A title</h1>" in title and "After Clark et al. (2019)" in title
    assert "<b>1</b>reproduced" in title and "<b>1</b>not reproduced" in title
    assert "<code>[SEP]</code> <b>for</b>" in asked and "Their verdict: it depends." in asked
    assert "read a map." in goals
    assert "Where does it look?" in figure and '<p class="kicker">Fig. 2</p>' in figure
    assert '<p class="lead">See the peak.</p>' in figure and "drawn" in figure
    assert "✗ not reproduced" in figure and "a layer likes &lt;it&gt; best" in figure
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
    with pytest.raises(SlidesError, match="attnlib run clark2019"):
        deck(CELLS[:2], "clark2019", papers={})
    with pytest.raises(SlidesError, match="expected `# Title`"):
        deck([markdown("no heading")], "clark2019", papers={})


def test_a_wall_is_no_picture_and_a_gallery_is_several() -> None:
    wall = FIGURE.replace('"attn-figure"', '"attn-figure attn-wall"')
    named = '<p class="attn-name">one</p>' + FIGURE + '<p class="attn-name">two</p>' + FIGURE
    found = pictures([markdown("## A"), code(wall), code(named)], Words())
    assert [one.name for one in found] == ["one", "two"]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_chapter_makes_slides(path: Path, tmp_path: Path) -> None:
    teaching = ROOT / "book" / "teach" / path.name.replace(".ipynb", ".md")
    made = write_slides(path, tmp_path / "s.html", bibliography=BIB, teaching=teaching)
    text, cells = made.read_text(encoding="utf-8"), json.loads(path.read_text("utf-8"))["cells"]
    outputs = [
        "".join(o.get("data", {}).get("text/html", "")) for c in cells for o in c.get("outputs", [])
    ]
    n_figures = sum(one.count('<figure class="attn-figure">') for one in outputs)
    assert text.count('<section class="slide figure">') == n_figures > 0
    assert external_loads(tmp_path) == [] and "▢" not in text and "glue:text" not in text
    assert (
        write_slides(path, tmp_path / "t.html", bibliography=BIB, teaching=teaching).read_text()
        == text
    )


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    yield from browser_or_skip("the slides were not opened in a browser")


@pytest.fixture(scope="module")
def clark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (source,) = [path for path in PUBLISHED if path.stem == "clark2019"]
    target = tmp_path_factory.mktemp("slides") / "clark2019.html"
    teaching = ROOT / "book" / "teach" / "clark2019.md"
    return write_slides(source, target, bibliography=BIB, teaching=teaching)


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
