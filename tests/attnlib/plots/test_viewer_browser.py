"""The head viewer in a real browser: it opens a head, compares, speaks, saves, and fits a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from attnlib.measuring.reading import largest_error
from attnlib.models import Encoder, load_encoder
from attnlib.plots.viewer import View, view
from tests.attnlib.plots.test_viewer import NASTY, PAIR, kept_weights, own_maps
from tests.chromium import Page, browser_or_skip
from tests.families import SENTENCES, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures
pytestmark = pytest.mark.browser

TEXTS = (SENTENCES[0], PAIR, NASTY)
CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Escape": 27}
REQUIRE = "<script>window.define = () => 0; define.amd = {}; window.require = define;</script>"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    yield from browser_or_skip("the viewer was not opened in a browser")


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


@pytest.fixture(scope="module")
def one(bert: Encoder) -> View:
    return view(bert, list(TEXTS), head="1-1")


@pytest.fixture(scope="module")
def saved(one: View, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one.save(tmp_path_factory.mktemp("view") / "view.html")


class Viewer:
    """The viewer of an opened page, worked as a reader works it."""

    def __init__(self, page: Page, path: Path, place: int = 0, **how: Any) -> None:
        page.open(path, **how)
        self.page, self.figure = page, f"document.querySelectorAll('figure.attn-view')[{place}]"
        self.wait()

    def ask(self, script: str) -> Any:
        return self.page.evaluate(f"(() => {{ const figure = {self.figure}; return {script}; }})()")

    def wait(self) -> None:
        """Until nothing is drawn any more."""
        before = None
        for _ in range(100):
            now = self.ask("figure.dataset.ready ?? null")
            if now is not None and now == before:
                return
            before = now
            self.page.evaluate("new Promise(done => setTimeout(done, 60))")
        raise AssertionError("the viewer did not come to rest")

    def click(self, selector: str, place: int = 0) -> None:
        self.ask(f"figure.querySelectorAll({selector!r})[{place}].click()")
        self.wait()

    def tool(self, name: str) -> None:
        tools = "[...figure.querySelectorAll('.tools button')]"
        self.ask(f"{tools}.find(one => one.textContent === {name!r}).click()")
        self.wait()

    def press(self, key: str) -> None:
        told = {"key": key, "windowsVirtualKeyCode": CODES.get(key, ord(key[0].upper()))}
        text = {"text": key} if len(key) == 1 else {}
        self.page._call("Input.dispatchKeyEvent", type="keyDown", **told, **text)
        self.page._call("Input.dispatchKeyEvent", type="keyUp", **told)
        self.wait()

    def point(self, x: float, y: float, panel: int = 0) -> str:
        """What is said when the pointer is at a place of a drawing."""
        svg = f"figure.querySelectorAll('.stage svg')[{panel}]"
        return self.ask(f"""(() => {{
            const svg = {svg}, box = svg.getBoundingClientRect();
            svg.dispatchEvent(new PointerEvent('pointermove', {{bubbles: true,
                clientX: box.left + {x}, clientY: box.top + {y}}}));
            return figure.querySelector('.said').textContent; }})()""")

    @property
    def said(self) -> str:
        return self.ask("figure.querySelector('.said').textContent")

    @property
    def focus(self) -> str:
        return self.page.evaluate("document.activeElement.getAttribute('aria-label') ?? ''")

    def fine(self) -> None:
        assert self.page.seen.errors == [] and self.page.seen.elsewhere == []

    def map(self, panel: int = 0) -> np.ndarray:
        """All weights of the map on show, each read by pointing at its cell."""
        svg = f"figure.querySelectorAll('.stage svg')[{panel}]"
        frame = self.ask(f"""['x', 'y', 'width'].map(name =>
            Number({svg}.querySelector(':scope > rect').getAttribute(name)))""")
        n = self.ask(f"{svg}.querySelectorAll('text').length") // 2
        left, top, side = frame[0] + 0.5, frame[1] + 0.5, frame[2] - 1
        said = [
            [
                self.point(left + (k + 0.5) * side / n, top + (q + 0.5) * side / n, panel)
                for k in range(n)
            ]
            for q in range(n)
        ]
        return np.array([[float(cell.split()[-1]) for cell in row] for row in said])


def test_it_opens_by_itself(page: Page, saved: Path) -> None:
    viewer = Viewer(page, saved)
    viewer.fine()
    assert "Head 1-1: " in viewer.said and "of its attention goes to" in viewer.said
    assert "Strongest: " in viewer.said
    assert viewer.ask("figure.querySelectorAll('.grid button').length") == 12
    drawn = viewer.ask("figure.querySelectorAll('.stage path').length")
    assert drawn > 10


def test_a_click_opens_a_head(page: Page, saved: Path) -> None:
    viewer = Viewer(page, saved)
    before = viewer.ask("figure.querySelector('.stage svg').outerHTML")
    viewer.click(".grid button", 6)
    assert viewer.said.startswith("Head 2-3: ")
    assert viewer.ask("figure.querySelector('.stage svg').outerHTML") != before
    pressed = "[...figure.querySelectorAll('.grid [aria-pressed=true]')].map(one => one.ariaLabel)"
    assert [name[:9] for name in viewer.ask(pressed)] == ["head 2-3:"]
    viewer.fine()


def test_keys_do_what_the_page_says(page: Page, saved: Path) -> None:
    viewer = Viewer(page, saved)
    viewer.ask("figure.querySelector('.grid button').focus()")
    for key, head in (("ArrowRight", "1-2"), ("ArrowDown", "2-2"), ("ArrowLeft", "2-1")):
        viewer.press(key)
        assert viewer.said.startswith(f"Head {head}: ") and viewer.focus.startswith(f"head {head}:")
    assert viewer.ask("figure.querySelectorAll('.grid [tabindex=\"0\"]').length") == 1
    viewer.press("m")
    assert viewer.ask("figure.querySelectorAll('.stage path').length") == 0
    viewer.press("m")
    assert viewer.ask("figure.querySelectorAll('.stage path').length") > 0
    labels = "figure.querySelectorAll('.stage text').length"
    pieces = viewer.ask(labels)
    viewer.press("w")
    assert viewer.ask(labels) < pieces
    viewer.press("c")
    assert viewer.ask("figure.querySelectorAll('.panel').length") == 2
    assert "Head 2-1 is kept" in viewer.said
    viewer.press("ArrowUp")
    assert "Head 1-1: " in viewer.said and "Head 2-1: " in viewer.said
    viewer.press("c")
    assert viewer.ask("figure.querySelectorAll('.panel').length") == 1
    viewer.ask("figure.querySelector('.stage svg').focus()")
    viewer.press("ArrowDown")
    viewer.press("ArrowDown")
    assert re.match(r"Head 1-1: the attends to .+ 0\.\d\d", viewer.said)
    viewer.press("ArrowRight")
    assert re.match(r"Head 1-1: the is attended to by .+ 0\.\d\d", viewer.said)
    viewer.press("Escape")
    assert "Strongest: " in viewer.said
    viewer.fine()


@pytest.mark.parametrize("head", [(0, 0), (2, 1)])
def test_the_map_shows_the_weights_of_the_library(
    head: tuple[int, int], page: Page, saved: Path, folders: Callable[[str], Path], one: View
) -> None:
    viewer = Viewer(page, saved)
    viewer.click(".grid button", 4 * head[0] + head[1])
    viewer.tool("Map")
    shown, maps = viewer.map(), own_maps(folders("bert"), TEXTS[0])
    allowed = largest_error(one.readings[0][0].levels) + 6e-4  # three decimals are shown
    assert shown.shape == maps.shape[2:]
    assert np.abs(shown - maps[head]).max() <= allowed
    assert np.abs(shown.T - maps[head]).max() > 0.05, "a transposed map would not be noticed"
    viewer.fine()


def test_a_planted_transposition_is_noticed(
    page: Page, one: View, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    right, wrong = "map[place[query] * m + place[key]]", "map[place[key] * m + place[query]]"
    text = one.page()
    assert text.count(right) == 1
    path = tmp_path / "wrong.html"
    path.write_text(text.replace(right, wrong), "utf-8")
    viewer = Viewer(page, path)
    viewer.tool("Map")
    assert np.abs(viewer.map() - own_maps(folders("bert"), TEXTS[0])[0, 0]).max() > 0.05


def test_words_are_summed_and_averaged(
    page: Page, saved: Path, folders: Callable[[str], Path], one: View
) -> None:
    viewer = Viewer(page, saved)
    viewer.ask("figure.querySelector('select').value = '1'")
    viewer.ask("figure.querySelector('select').dispatchEvent(new Event('change'))")
    viewer.wait()
    viewer.tool("Map")
    viewer.tool("Words")
    reading = one.readings[1][0]
    maps, n = own_maps(folders("bert"), *PAIR)[0, 0], len(reading.units)
    naive = np.zeros((n, n))
    for q, u in enumerate(reading.unit):
        for k, v in enumerate(reading.unit):
            naive[u, v] += maps[q, k] / reading.unit.count(u)
    most = max(reading.unit.count(u) for u in range(n))
    assert np.abs(viewer.map() - naive).max() <= most * largest_error(255) + 6e-4
    assert n < len(reading.tokens)


def test_special_tokens_can_be_left_out(page: Page, saved: Path, one: View) -> None:
    viewer = Viewer(page, saved)
    viewer.tool("Map")
    whole = viewer.map()
    viewer.ask("figure.querySelector('.grid button').focus()")
    viewer.press("s")
    np.testing.assert_allclose(viewer.map(), whole[1:-1, 1:-1], atol=2e-3)
    shown = viewer.ask("[...figure.querySelectorAll('.stage text')].map(one => one.textContent)")
    assert shown == 2 * list(one.readings[0][0].tokens[1:-1])
    viewer.fine()


def test_another_text_can_be_chosen(page: Page, saved: Path, one: View) -> None:
    viewer = Viewer(page, saved)
    viewer.click(".grid button", 5)
    viewer.ask("figure.querySelector('select').value = '2'")
    viewer.ask("figure.querySelector('select').dispatchEvent(new Event('change'))")
    viewer.wait()
    assert viewer.said.startswith("Head 2-2: ")
    shown = viewer.ask("[...figure.querySelectorAll('.stage text')].map(one => one.textContent)")
    assert set(one.readings[2][0].tokens) <= set(shown)
    assert viewer.ask("document.querySelectorAll('script').length") == 1, "a token became a script"
    viewer.fine()


def test_a_token_isolates_its_lines(page: Page, saved: Path, one: View) -> None:
    viewer = Viewer(page, saved)
    said = viewer.point(20, 24 + 22 * 2.5)
    tokens, maps = one.readings[0][0].tokens, kept_weights(one.readings[0][0])[0, 0]
    assert said.startswith(f"Head 1-1: {tokens[2]} attends to {tokens[maps[2].argmax()]} ")
    assert float(said.split(",")[0].split()[-1]) == pytest.approx(maps[2].max(), abs=0.0051)
    width = viewer.ask("figure.querySelector('.stage svg').getBoundingClientRect().width")
    said = viewer.point(width - 20, 24 + 22 * 2.5)
    assert said.startswith(f"Head 1-1: {tokens[2]} is attended to by {tokens[maps[:, 2].argmax()]}")
    viewer.fine()


def test_heads_are_coloured_by_any_metric(page: Page, saved: Path, one: View) -> None:
    viewer = Viewer(page, saved)
    looks = "[...figure.querySelectorAll('.grid button')].map(b => getComputedStyle(b).background)"
    before = viewer.ask(looks)
    for place, metric in enumerate(one.metrics):
        viewer.click(".chips button", place + 1)
        labels = viewer.ask("[...figure.querySelectorAll('.grid button')].map(b => b.ariaLabel)")
        values = one.readings[0][0].values[metric.key].ravel()
        for label, value in zip(labels, values, strict=True):
            number = float(re.search(r"([\d.]+)( %| nats)$", label)[1])  # type: ignore[index]
            scale = 100 if label.endswith("%") else 1
            assert number == pytest.approx(scale * value, abs=0.51 if scale == 100 else 0.006)
    assert viewer.ask(looks) != before
    assert "nats" in viewer.ask("figure.querySelector('.scale').textContent")


def test_two_models_stand_side_by_side(
    page: Page, bert: Encoder, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    other = load_encoder(folders("roberta"), device="cpu")
    both = view(bert, [SENTENCES[0], SENTENCES[1]], beside=other)
    viewer = Viewer(page, both.save(tmp_path / "both.html"))
    viewer.fine()
    assert viewer.ask("figure.querySelectorAll('.grid').length") == 2
    viewer.click(".grid button", 12 + 5)
    assert "Head 2-2 of roberta: " in viewer.said and " of bert: " in viewer.said
    titles = viewer.ask("[...figure.querySelectorAll('.whose')].map(one => one.textContent)")
    assert titles[0].endswith(" bert") and titles[1] == "Head 2-2 roberta"
    viewer.ask("figure.querySelector('select').value = '1'")
    viewer.ask("figure.querySelector('select').dispatchEvent(new Event('change'))")
    viewer.wait()
    shown = viewer.ask("[...figure.querySelectorAll('.panel')[1].querySelectorAll('text')]"
                       ".map(one => one.textContent)")  # fmt: skip
    assert set(both.readings[1][1].tokens) <= set(shown)
    viewer.tool("Map")
    opened = [int(part) - 1 for part in titles[0].split()[1].split("-")]
    maps = own_maps(folders("bert"), SENTENCES[1])
    shown = viewer.map()
    assert np.abs(shown - maps[*opened]).max() <= largest_error(255) + 6e-4
    maps = own_maps(folders("roberta"), SENTENCES[1])
    assert np.abs(viewer.map(1) - maps[1, 1]).max() <= largest_error(255) + 6e-4
    viewer.fine()


SAVED = """(() => { const kept = []; URL.createObjectURL = file => { kept.push(file); return '#'; };
    HTMLAnchorElement.prototype.click = function () { kept.name = this.download; };
    window.kept = kept; })()"""


@pytest.mark.parametrize("shown", ["Lines", "Map"])
def test_what_is_shown_can_be_saved(shown: str, page: Page, saved: Path, one: View) -> None:
    viewer = Viewer(page, saved)
    viewer.tool(shown)
    page.evaluate(SAVED)
    viewer.tool("SVG")
    text = page.evaluate("kept[0].text()")
    root = ElementTree.fromstring(text)
    words = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(one.readings[0][0].tokens) <= set(words)
    assert any("head 1-1" in word for word in words)
    shapes = {"Lines": "path", "Map": "rect"}[shown]
    assert len(list(root.iter(f"{{http://www.w3.org/2000/svg}}{shapes}"))) > 10
    assert page.evaluate("kept.name") == f"bert-1-1-{shown.lower()}.svg"
    viewer.tool("PNG")
    page.evaluate("new Promise(done => setTimeout(done, 500))")
    head = page.evaluate("kept[1].slice(0, 4).text()")
    assert head.endswith("PNG") and page.evaluate("kept[1].size") > 3000
    viewer.fine()


def test_every_control_has_a_name(page: Page, saved: Path) -> None:
    viewer = Viewer(page, saved)
    nameless = """[...figure.querySelectorAll('button, select, .stage svg, [role=grid]')].filter(
        one => !(one.ariaLabel || one.textContent).trim()).length"""
    assert viewer.ask(nameless) == 0
    assert viewer.ask("figure.querySelector('[aria-live]').ariaLive") == "polite"
    assert viewer.ask("figure.querySelectorAll('[role=row] > [role=rowheader]').length") == 3


def test_a_phone_and_a_dark_page(page: Page, saved: Path) -> None:
    ink = "getComputedStyle(figure.querySelector('.root')).color"
    paper = "getComputedStyle(figure.querySelector('.root')).backgroundColor"
    found = []
    for dark in (False, True):
        viewer = Viewer(page, saved, dark=dark, width=390, height=800)
        for name in ("Lines", "Map", "Compare"):
            viewer.tool(name)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert viewer.ask("figure.scrollWidth - figure.clientWidth") <= 0
        small = "[...figure.querySelectorAll('.grid button')].map(b => b.offsetWidth)"
        assert min(viewer.ask(small)) >= 24
        found.append((viewer.ask(ink), viewer.ask(paper)))
        viewer.fine()
    assert found[0][0] != found[1][0] and found[0][1] != found[1][1]


def test_two_on_a_page_with_a_module_loader(page: Page, one: View, tmp_path: Path) -> None:
    """As in a chapter: another script has claimed `define`, and the viewer is shown twice."""
    path = tmp_path / "two.html"
    path.write_text(f"<!doctype html>{REQUIRE}{one._repr_html_()}{one._repr_html_()}", "utf-8")
    first, second = Viewer(page, path), Viewer(page, path, 1)
    second.click(".grid button", 7)
    assert second.said.startswith("Head 2-4: ") and first.said.startswith("Head 1-1: ")
    second.fine()


def test_it_wakes_in_the_output_of_a_notebook(page: Page, one: View, tmp_path: Path) -> None:
    """JupyterLab puts the fragment into a node of its own, and makes its scripts anew."""
    path = tmp_path / "lab.html"
    fragment = json.dumps(one._repr_html_()).replace("</", "<\\/")
    path.write_text(
        f"""<!doctype html><meta charset=utf-8><body><script>
        const host = document.createElement('div'); host.innerHTML = {fragment};
        for (const old of host.querySelectorAll('script')) {{
            const made = document.createElement('script'); made.textContent = old.textContent;
            old.parentNode.replaceChild(made, old);
        }}
        document.body.append(host); window.heard = [];
        document.addEventListener('keydown', event => heard.push(event.key));</script>""",
        "utf-8",
    )
    viewer = Viewer(page, path)
    assert viewer.said.startswith("Head 1-1: ")
    viewer.ask("figure.querySelector('.grid button').focus()")
    viewer.press("m")
    assert page.evaluate("heard") == [], "the notebook would take the key for itself"
    viewer.fine()


def test_the_rules_of_the_book_do_not_break_it(page: Page, one: View, tmp_path: Path) -> None:
    path = tmp_path / "book.html"
    own = (Path(__file__).parents[3] / "book" / "_static" / "attnlib.css").read_text("utf-8")
    theme = "div.body { min-width: 360px } figure { padding: 8px } * { box-sizing: border-box }"
    path.write_text(
        f"<!doctype html><meta name=viewport content='width=device-width'><style>{own}{theme}"
        f"</style><article class=bd-article>{one._repr_html_()}</article>",
        "utf-8",
    )
    viewer = Viewer(page, path, width=390, height=800)
    for name in ("Lines", "Map", "Words", "Compare"):
        viewer.tool(name)
        assert viewer.ask("figure.scrollWidth - figure.clientWidth") <= 0, name
    viewer.fine()


def test_an_old_browser_is_told(page: Page, one: View, tmp_path: Path) -> None:
    path = tmp_path / "old.html"
    old = "<script>delete window.DecompressionStream</script>"
    path.write_text(f"<!doctype html>{old}{one._repr_html_()}", "utf-8")
    page.open(path)
    assert "too old to unpack" in page.evaluate("document.querySelector('.root').textContent")
    assert page.seen.errors == []


@pytest.mark.slow
def test_a_long_text_answers_at_once(page: Page, tmp_path: Path) -> None:
    """512 tokens, with maps as made as real ones: opening, another head, a token, the map."""
    from attnlib.measuring.reading import Reading, packed
    from attnlib.plots.viewer import METRICS, head_metrics

    n = 512
    maps = np.random.default_rng(0).dirichlet(np.full(n, 0.1), size=(2, 12, n)).astype(np.float32)
    levels, sheets = packed(maps)
    values = {key: np.full((2, 12), 0.25) for key in METRICS}
    tokens = tuple(f"word{i}" for i in range(n))
    reading = Reading("long", tokens, tuple(range(n)), tokens, values, levels, sheets, 12)
    long = View(("long",), ((reading,),), tuple(head_metrics(METRICS)), (1, 1))
    viewer = Viewer(page, long.save(tmp_path / "long.html"))
    took = """(async () => { const start = performance.now(), before = figure.dataset.ready;
        %s;
        while (figure.dataset.ready === before) await new Promise(done => setTimeout(done, 5));
        return performance.now() - start; })()"""
    for act in (
        "figure.querySelectorAll('.grid button')[13].click()",
        "figure.querySelectorAll('.tools button')[1].click()",
    ):
        assert viewer.ask(took % act) < 5000  # milliseconds, on a machine that does other things
    viewer.fine()
