"""The atlas in a real browser: found by search, opened, linked to, walked by keys, on a phone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlib.measuring.reading import largest_error
from experiments.atlas import Atlas, words
from experiments.atlas.page import fragment, save_page
from tests.atlases import LOOKS, N, made_up, tiny_readings
from tests.attnlib.plots.test_viewer import kept_weights
from tests.axe import axe_source, violations
from tests.chromium import Page, browser_or_skip
from tests.experiments.atlas.test_atlas import shown_number
from tests.experiments.atlas.test_page import with_facts
from tests.families import one_thread

__all__ = ["one_thread"]  # fixture
pytestmark = pytest.mark.browser

CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Escape": 27,
         "Enter": 13, "/": 191}  # fmt: skip


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    yield from browser_or_skip("the atlas was not opened in a browser")


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return made_up(tiny_readings(tmp_path_factory.mktemp("atlas")))


@pytest.fixture(scope="module")
def saved(atlas: Atlas, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_page(atlas, tmp_path_factory.mktemp("atlas") / "atlas.html", "../")


class Reader:
    """The atlas of an opened page, worked as a reader works it."""

    def __init__(self, page: Page, path: Path, place: int = 0, at: str = "", **how: Any) -> None:
        page.open(path, **how)
        self.page, self.figure = page, f"document.querySelectorAll('figure.attn-atlas')[{place}]"
        if at:  # as an address that is opened anew
            page.evaluate(f"history.replaceState(null, '', {at!r})")
            page._loaded = False
            page._call("Page.reload")
            page._wait_for_load()
        self.wait()

    def ask(self, script: str) -> Any:
        return self.page.evaluate(f"(() => {{ const figure = {self.figure}; return {script}; }})()")

    def wait(self) -> None:
        """Until the drawing is the one of the opened head."""
        for _ in range(100):
            drawn = self.ask("figure.querySelector('.examples')?.dataset.drawn ?? ''")
            if drawn.startswith(f"{self.open} "):
                return
            self.page.evaluate("new Promise(done => setTimeout(done, 40))")
        raise AssertionError("the atlas did not come to rest")

    @property
    def open(self) -> str:
        return self.ask("figure.dataset.open")

    @property
    def address(self) -> str:
        return self.page.evaluate("location.hash")

    @property
    def focus(self) -> str:
        return self.page.evaluate("document.activeElement.ariaLabel ?? ''")

    def click(self, selector: str, place: int = 0) -> None:
        self.ask(f"figure.querySelectorAll({json.dumps(selector)})[{place}].click()")
        self.wait()

    def press(self, key: str) -> None:
        told = {"key": key, "windowsVirtualKeyCode": CODES.get(key, ord(key[0].upper()))}
        text = {"text": key} if len(key) == 1 else {}
        self.page._call("Input.dispatchKeyEvent", type="keyDown", **told, **text)
        self.page._call("Input.dispatchKeyEvent", type="keyUp", **told)
        self.wait()

    def find(self, words: str) -> list[str]:
        """The heads that a question finds, best first."""
        self.ask("figure.querySelector('input').focus()")
        self.ask("figure.querySelector('input').select()")
        self.page._call("Input.insertText", text=words)
        return self.ask("[...figure.querySelectorAll('.results button')].map(b => b.dataset.head)")

    @property
    def status(self) -> str:
        return self.ask("figure.querySelector('[role=status]').textContent")

    def go(self, way: str) -> None:
        """Through the history of the browser."""
        self.page.evaluate(f"history.{way}()")
        self.page.evaluate("new Promise(done => setTimeout(done, 150))")
        self.wait()

    def facts(self) -> dict[str, tuple[str, str]]:
        found = self.ask("""[...figure.querySelectorAll('.fact')].map(one => [one.dataset.key,
            one.querySelector('.value').textContent,
            one.querySelector('.interval')?.textContent ?? ''])""")
        return {key: (value, interval) for key, value, interval in found}

    def fine(self) -> None:
        assert self.page.seen.errors == [] and self.page.seen.elsewhere == []


def test_every_number_on_a_card_is_that_of_the_table(page: Page, saved: Path, atlas: Atlas) -> None:
    reader, table = Reader(page, saved), atlas.table().set_index(["head", "key"])
    seen = 0
    for place in (0, 3, 9, 51, 77, 143):
        reader.click(".grid button", place)
        shown = reader.facts()
        assert list(shown) == [fact.key for fact in atlas.facts]
        for key, (value, interval) in shown.items():
            row = table.loc[(atlas.heads[place], key)]
            if row["value"] is None or row["value"] != row["value"]:
                assert value == "not measured"
            elif row["kind"] == "class":
                assert value == row["value"]
            elif row["kind"] == "flag":
                assert value == ("yes" if row["value"] else "no")
            else:
                scale = 100 if row["unit"] == "share" else 1
                decimals = len(value.partition(".")[2].split(" ")[0]) if "." in value else 0
                half = 0.5000001 * 10**-decimals
                assert abs(shown_number(value) - scale * row["value"]) <= half, key
                assert bool(interval) == (row["low"] == row["low"])
                ends = interval.split(" to ") if interval else []
                for end, name in zip(ends, ("low", "high"), strict=False):
                    assert abs(shown_number(end) - scale * row[name]) <= half, key
                seen += 1
    assert seen > 150
    reader.fine()


def test_a_planted_shift_is_noticed(page: Page, atlas: Atlas, tmp_path: Path) -> None:
    """If the page took the numbers of another head, the comparison above would fail."""
    right, wrong = "fact.lines[part][head])", "fact.lines[part][(head + 1) % 144])"
    text = fragment(atlas)
    assert text.count(right) == 1
    path = tmp_path / "wrong.html"
    path.write_text(f"<!doctype html>{text.replace(right, wrong)}", "utf-8")
    reader = Reader(page, path)
    reader.click(".grid button", 51)
    shown = reader.facts()["mass_to_next"][0]
    assert shown != words.value_text(atlas.fact("mass_to_next"), 51)


def test_it_opens_by_itself(page: Page, saved: Path, atlas: Atlas) -> None:
    reader = Reader(page, saved)
    assert reader.address == ""
    assert reader.ask("figure.querySelectorAll('.grid button').length") == N
    card = atlas.card(reader.open)
    assert reader.ask("figure.querySelector('.summary').textContent") == card["summary"]
    assert reader.ask("figure.querySelector('.card h2').textContent") == f"Head {reader.open}"
    names = "[...figure.querySelectorAll('.neighbours li')].map(one => one.textContent)"
    near = [*card["nearest"], *card["farthest"]]
    assert reader.ask(names) == [f"{one['head']} {one['text']}" for one in near]
    assert reader.ask("figure.querySelectorAll('.portrait rect').length") == 21
    assert reader.ask("figure.querySelectorAll('.stage path').length") > 10
    reader.fine()


def test_a_head_is_found_and_opened(page: Page, saved: Path, atlas: Atlas) -> None:
    reader = Reader(page, saved)
    found = reader.find("heads that look at the next token")
    shares = np.array(atlas.fact("mass_to_next").value, float)
    assert found[0] == atlas.heads[int(shares.argmax())]
    assert "best first" in reader.ask("figure.querySelector('[role=status]').textContent")
    hits = "[...figure.querySelectorAll('.grid button.hit')].map(one => one.title.split(':')[0])"
    assert set(reader.ask(hits)) == {f"head {head}" for head in found}
    why = reader.ask("figure.querySelector('.results button span').textContent")
    assert words.value_text(atlas.fact("mass_to_next"), int(shares.argmax())) in why
    reader.press("Enter")
    assert reader.open == found[0] and reader.address == f"#{found[0]}"
    reader.press("ArrowDown")
    reader.press("ArrowDown")
    reader.press("Enter")
    assert reader.page.evaluate("document.activeElement.dataset.head") == found[1]
    reader.press("Escape")
    assert reader.ask("figure.querySelector('input').value") == "" and reader.focus == "find heads"
    assert reader.ask("figure.querySelectorAll('.grid button:is(.hit, .dim)').length") == 0
    reader.fine()


def test_questions_in_plain_words(page: Page, saved: Path, atlas: Atlas) -> None:
    reader = Reader(page, saved)

    def has(key: str, value: Any) -> set[str]:
        return {atlas.heads[i] for i, v in enumerate(atlas.fact(key).value) if v == value}

    objects = reader.find("heads that find direct objects")
    assert set(objects[:5]) <= has("best_relation", "dobj")
    assert reader.find("dobj")[:5] == objects[:5]
    assert set(reader.find("unskilled")[:4]) == {"1-1", "1-2", "1-3", "1-4"}
    assert reader.find("8-10") == ["8-10"] and reader.find("head 12-12 please") == ["12-12"]
    assert reader.find("layer 3") == [f"3-{i}" for i in range(1, 13)]
    types = has("guan_label", "vertical") | has("guan_label", "dense&vertical")
    both, found = types | has("rule_label", "vertical"), reader.find("vertical")
    assert set(found) <= both
    assert set(found[:3]) <= types & has("rule_label", "vertical"), (
        "those with two reasons go first"
    )
    assert all(head.startswith("3-") for head in reader.find("vertical in layer 3"))
    assert set(reader.find("delimiter")) <= has("role_delimiter", 1) | set(reader.find("[SEP]"))
    gains = reader.find("gains when disabled on RTE")
    changes = atlas.fact("disabled_rte").value
    assert gains and all(changes[atlas.place(head)] > 0 for head in gains)
    safe = reader.find("harmless")
    assert safe and np.nanmin([changes[atlas.place(head)] for head in safe]) > -0.5
    assert set(reader.find("harmless vertical")) <= set(safe) & both
    assert reader.find("entopy") == reader.find("entropy"), "a slip of the finger"
    assert reader.find("focused")[0] != reader.find("broad")[0]
    assert reader.find("xyzzy") == [] and "No head is known by that" in reader.status
    assert reader.ask("figure.querySelectorAll('.grid button.dim').length") == 0
    reader.fine()


def test_a_head_has_many_spellings(page: Page, saved: Path) -> None:
    reader = Reader(page, saved)
    for spelling in ("8 10", "L8H10", "l8 h10", "head 8-10", "head 8 10", "layer 8 head 10",
                     "layer 8, head 10", "head 10 of layer 8"):  # fmt: skip
        assert reader.find(spelling) == ["8-10"], spelling
    assert reader.find("layers 8-10")[0] == "8-1", "layers are no head"
    for strange, name in (("99-1", "99-1"), ("13-13", "13-13"), ("0 4", "0-4"), ("L1H13", "1-13")):
        assert reader.find(strange) == []
        assert reader.status == f"There is no head {name}; this model has 1-1 to 12-12."
        assert reader.ask("figure.querySelectorAll('.grid button.dim').length") == 0
    for strange in ("layer 13", "vertical in layer 13"):
        assert reader.find(strange) == []
        assert reader.status == "There is no layer 13; this model has 1 to 12."
    reader.fine()


def test_a_not_is_never_answered_by_its_opposite(page: Page, saved: Path) -> None:
    reader = Reader(page, saved)
    for question, word, rest in (
        ("not vertical", "not", "vertical"),
        ("heads that do not look at the next token", "not", "look at the next token"),
        ("no delimiter", "no", "delimiter"),
        ("heads without a syntactic role", "without", "syntactic role"),
        ("heads that don't look at [SEP]", "don't", "look at [SEP]"),
        ("vertical, not in layer 3", "not", "layer 3"),
    ):
        assert reader.find(question) == [], question
        said = f"The search knows no “{word}”; ask for “{rest}”, and the other heads turn pale."
        assert reader.status == said
    roles = reader.find("unskilled")
    for question in ("no role", "heads without a role", "without any role"):
        assert roles and reader.find(question) == roles, question
    assert reader.find("not needed") == reader.find("harmless")
    assert set(reader.find("not needed vertical")) <= set(reader.find("harmless"))
    assert reader.find("RTE gains without it") == reader.find("RTE gains when disabled")
    assert reader.find("RTE gains without the head") == reader.find("RTE gains when disabled")
    reader.fine()


def test_a_reason_is_told_once(page: Page, saved: Path, atlas: Atlas, tmp_path: Path) -> None:
    one = with_facts(atlas, atlas.fact("best_relation"))  # the class and its evidence in one fact
    path = tmp_path / "one.html"
    path.write_text(f"<!doctype html>{fragment(one)}", "utf-8")
    page.open(path)
    page.evaluate("document.querySelector('.attn-atlas input').value = 'dobj'")
    page.evaluate("document.querySelector('.attn-atlas input').dispatchEvent(new Event('input'))")
    spans = "[...document.querySelectorAll('.results span')]"
    lines = page.evaluate(f"{spans}.map(one => one.textContent)")
    evidence = [re.search(r"dobj\s[\d.]+\s%", line) for line in lines]
    assert sum(map(bool, evidence)) > 2
    for line, found in zip(lines, evidence, strict=True):
        assert not found or line.count(found[0]) == 1, line


def test_only_an_answer_has_a_best(page: Page, saved: Path) -> None:
    reader = Reader(page, saved)
    reader.find("vertical in layer 3")
    assert "best first" in reader.status
    reader.find("layer 3")
    assert reader.status == "12 heads, in order"
    reader.find("layers 3 to 5")
    assert reader.status == "36 heads; the first 24:"
    reader.fine()


def test_an_address_opens_its_head(page: Page, saved: Path) -> None:
    reader = Reader(page, saved, at="#8-10")
    assert reader.open == "8-10"
    reader = Reader(page, saved, at="#2-7&by=entropy")
    menu = "figure.querySelector('.by option:checked').textContent"
    assert reader.open == "2-7" and reader.ask(menu) == "entropy"
    assert "nats" in reader.ask("figure.querySelector('.legend').textContent")
    label = "figure.querySelector('.grid [aria-pressed=true]').ariaLabel"
    assert reader.ask(label).startswith("head 2-7: entropy ")
    first = Reader(page, saved).open
    for strange in ("#some-section", "#1-1&by=nothing", "#1-1&by=%E0%A4%A"):
        reader = Reader(page, saved, at=strange)
        assert reader.open == ("1-1" if strange.startswith("#1-1") else first)
        assert reader.address == strange and reader.status == ""
    reader.fine()


def test_an_address_of_no_head_is_told_and_repaired(page: Page, saved: Path) -> None:
    first = Reader(page, saved).open
    reader = Reader(page, saved, at="#99-1")
    assert reader.status == "There is no head 99-1; this model has 1-1 to 12-12."
    assert (reader.open, reader.address) == (first, f"#{first}")
    reader.click(".grid button", 7)
    assert (reader.open, reader.address, reader.status) == ("1-8", "#1-8", "")
    page.evaluate("location.hash = '#3-13&by=entropy'")  # as a reader changes it by hand
    page.evaluate("new Promise(done => setTimeout(done, 150))")
    assert reader.status == "There is no head 3-13; this model has 1-1 to 12-12."
    assert (reader.open, reader.address) == ("1-8", "#1-8&by=entropy")
    reader.fine()


def test_a_link_is_followed_and_one_comes_back(page: Page, saved: Path, atlas: Atlas) -> None:
    reader = Reader(page, saved)
    first = reader.open
    reader.click(".neighbours a")
    second = atlas.card(first)["nearest"][0]["head"]
    assert (reader.open, reader.address) == (second, f"#{second}")
    reader.click(".neighbours a", 9)
    third = atlas.card(second)["farthest"][4]["head"]
    assert reader.open == third
    reader.go("back")
    assert (reader.open, reader.address) == (second, f"#{second}")
    reader.go("back")
    assert (reader.open, reader.address) == (first, "")
    reader.go("forward")
    assert reader.open == second
    reader.fine()


def test_keys_walk_over_the_grid(page: Page, saved: Path) -> None:
    reader = Reader(page, saved, at="#1-1")
    steps = page.evaluate("history.length")
    reader.ask("figure.querySelector('.grid button').focus()")
    for key, head in (("ArrowRight", "1-2"), ("ArrowDown", "2-2"), ("ArrowLeft", "2-1")):
        reader.press(key)
        assert reader.open == head and reader.focus.startswith(f"head {head}:")
        assert reader.address == f"#{head}"
    assert page.evaluate("history.length") == steps, "a walk would bury the page one came from"
    assert reader.ask("figure.querySelectorAll('.grid [tabindex=\"0\"]').length") == 1
    reader.press("/")
    assert reader.focus == "find heads" and reader.ask("figure.querySelector('input').value") == ""
    reader.ask("document.activeElement.blur()")
    reader.press("/")
    assert reader.focus == "find heads"
    reader.fine()


def test_heads_are_coloured_by_any_fact(page: Page, saved: Path, atlas: Atlas) -> None:
    reader = Reader(page, saved)
    looks = "[...figure.querySelectorAll('.grid button')].map(b => getComputedStyle(b).background)"
    seen = set()
    for place, fact in enumerate(atlas.facts):
        reader.ask(f"figure.querySelector('.by select').value = '{place}'")
        reader.ask("figure.querySelector('.by select').dispatchEvent(new Event('change'))")
        labels = reader.ask("[...figure.querySelectorAll('.grid button')].map(b => b.ariaLabel)")
        assert [label.split(": ", 1)[1] for label in labels] == [
            f"{words.name(fact)} {words.value_text(fact, head)}" for head in range(N)
        ]
        missing = reader.ask("figure.querySelectorAll('.grid .missing').length")
        assert missing == sum(value is None or value != value for value in fact.value)
        seen.add(json.dumps(reader.ask(looks)))
    assert len(seen) > len(atlas.facts) - 3
    reader.ask(f"figure.querySelector('.by select').value = '{len(atlas.facts)}'")
    reader.ask("figure.querySelector('.by select').dispatchEvent(new Event('change'))")
    assert reader.address.endswith("&by=likeness")
    told = reader.ask("figure.querySelectorAll('.grid button')[0].title")
    here = atlas.distances[0, atlas.place(reader.open)]
    assert shown_number(told.split()[-1]) == pytest.approx(here, abs=6e-4)
    reader.fine()


def test_lines_and_maps_are_those_of_the_model(page: Page, saved: Path, atlas: Atlas) -> None:
    reader = Reader(page, saved, at="#3-5")
    reader.click(".examples .tools button", 1)
    reader.click(".examples .tools button", 4)
    text = atlas.texts[1]
    maps, n = kept_weights(text)[2, 4], len(text.tokens)
    assert reader.ask("figure.querySelector('.examples').dataset.drawn") == "3-5 1 map"
    frame = reader.ask("""['x', 'y', 'width'].map(name => Number(figure.querySelector(
        '.stage svg > rect').getAttribute(name)))""")
    for query, key in ((0, 0), (1, 2), (5, 3), (n - 1, 4)):
        x, y = (frame[i] + 0.5 + (p + 0.5) * (frame[2] - 1) / n for i, p in ((0, key), (1, query)))
        said = reader.ask(f"""(() => {{ const svg = figure.querySelector('.stage svg'),
            box = svg.getBoundingClientRect();
            svg.dispatchEvent(new PointerEvent('pointermove', {{bubbles: true,
                clientX: box.left + {x}, clientY: box.top + {y}}}));
            return figure.querySelector('.said').textContent; }})()""")
        assert said.startswith(f"“{text.tokens[query]}” → “{text.tokens[key]}” ")
        error = largest_error(text.levels) + 6e-4
        assert float(said.split()[-1]) == pytest.approx(maps[query, key], abs=error)
    reader.click(".grid button", 30)
    assert reader.ask("figure.querySelector('.examples').dataset.drawn") == "3-7 1 map"
    reader.fine()


def test_the_number_of_a_portrait_stands_on_its_bar(page: Page, saved: Path, atlas: Atlas) -> None:
    reader = Reader(page, saved)
    for head in (3, 51, 77):
        reader.click(".grid button", head)
        row = np.array(atlas.portraits[head])
        said, x, y = reader.ask("""(one => [one.textContent, Number(one.getAttribute('x')),
            Number(one.getAttribute('y'))])(figure.querySelector('.portrait .peak'))""")
        assert shown_number(said) == pytest.approx(100 * row.max(), abs=0.06) and "%" in said
        left, top, width = reader.ask(f"""(one => ['x', 'y', 'width'].map(name => Number(
            one.getAttribute(name))))(figure.querySelectorAll('.portrait rect')[{row.argmax()}])""")
        assert y == pytest.approx(top - 4)
        assert x == pytest.approx(min(280, max(20, left + width / 2)))
    n = len(atlas.texts[0].tokens)
    assert f"One sentence of {n} tokens" in reader.ask(
        "figure.querySelector('.examples .fine').textContent"
    )


def test_an_interval_that_leaves_its_scale_is_marked(page: Page, saved: Path, atlas: Atlas) -> None:
    reader, seen = Reader(page, saved), set()
    facts = [one for one in atlas.facts if one.diverging and one.low is not None]
    for head in range(0, N, 5):
        reader.click(".grid button", head)
        for one in facts:
            alike = [f for f in facts if (words.group(f), f.unit) == (words.group(one), one.unit)]
            most = max(abs(value) for f in alike for value in f.numbers)
            low, high = one.low[head], one.high[head]  # type: ignore[index]
            if low != low or high != high:
                continue
            marks = {name for name, out in (("low", low < -most), ("high", high > most)) if out}
            found = reader.ask(f"""[...figure.querySelectorAll(
                '[data-key={one.key}] .beyond')].map(mark => mark.classList[1])""")
            assert set(found) == marks, (head, one.key)
            seen |= marks
    assert seen, "no interval of the made-up atlas leaves its scale"


def test_a_fact_says_how_it_is_measured(page: Page, saved: Path, atlas: Atlas) -> None:
    reader = Reader(page, saved, at="#5-4")
    link = "figure.querySelector('.fact[data-key=mass_to_next] a.paper').getAttribute('href')"
    assert reader.ask(link) == f"../{LOOKS}"
    more = "figure.querySelector('.fact[data-key=mass_to_next] .more')"
    assert reader.ask(f"{more}.hidden")
    reader.click(".fact[data-key=mass_to_next] .name")
    said = reader.ask(f"{more}.textContent")
    fact = atlas.fact("mass_to_next")
    assert words.entry(fact, 51)["about"] in said and "1,000 inputs." in said
    assert f"Place {fact.rank(51)} of 144" in said
    reader.click(".fact[data-key=role_local] .name")
    assert "Bias" in reader.ask("figure.querySelector('[data-key=role_local] .more').textContent")
    reader.click(".fact[data-key=role_local] .tint")
    assert reader.address == "#5-4&by=role_local"


def test_links_are_left_out_without_a_book(page: Page, atlas: Atlas, tmp_path: Path) -> None:
    reader = Reader(page, save_page(atlas, tmp_path / "alone.html"))
    assert reader.ask("figure.querySelectorAll('a.paper').length") == 0
    assert "Clark 2019" in reader.ask("figure.querySelector('.paper').textContent")


@pytest.mark.parametrize("width", [390, 600, 900, 1000, 1100, 1200, 1280, 1440])
def test_facts_keep_their_names(page: Page, saved: Path, atlas: Atlas, width: int) -> None:
    """Also beside the grid, where the card is much narrower than the window, as in the book."""
    beside = saved.with_name("beside.html")
    beside.write_text(
        f"<!doctype html><meta name=viewport content='width=device-width'>"
        f"<article style='max-width: 60rem; margin: auto'>{fragment(atlas)}</article>",
        "utf-8",
    )
    names = """[...figure.querySelectorAll('.facts:not(.flags) .name')].map(one =>
        one.getBoundingClientRect().width)"""
    for path in (saved, beside):
        reader = Reader(page, path, at="#8-10", width=width, height=900)
        assert min(reader.ask(names)) >= 120
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert reader.ask("figure.scrollWidth - figure.clientWidth") <= 0
        card = "figure.querySelector('.card')"
        assert reader.ask(f"{card}.scrollWidth - {card}.clientWidth") <= 0
    reader.fine()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone(page: Page, saved: Path, dark: bool) -> None:
    reader = Reader(page, saved, dark=dark, width=390, height=800)
    wide = "document.documentElement.scrollWidth - innerWidth"
    for act in ("null", "figure.querySelectorAll('.tools button')[4].click()",
                "figure.querySelectorAll('.fact .name').forEach(one => one.click())",
                "figure.querySelector('details').open = true"):  # fmt: skip
        reader.ask(act)
        reader.wait()
        assert page.evaluate(wide) <= 0, act
        assert reader.ask("figure.scrollWidth - figure.clientWidth") <= 0, act
    reader.find("vertical")
    assert page.evaluate(wide) <= 0
    small = "Math.min(...[...figure.querySelectorAll('.grid button')].map(b => b.offsetWidth))"
    assert reader.ask(small) >= 24
    reader.click(".results button")
    page.evaluate("new Promise(done => setTimeout(done, 700))")
    top = reader.ask("figure.querySelector('.card').getBoundingClientRect().top")
    assert -5 <= top < 500, "the card that was asked for is not in sight"
    reader.fine()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everyone_can_read_it(page: Page, saved: Path, dark: bool) -> None:
    if axe_source() is None:
        pytest.skip("axe-core cannot be fetched: the atlas's accessibility was not checked")
    reader = Reader(page, saved, dark=dark)
    assert violations(page) == []
    reader.find("vertical")
    reader.ask("figure.querySelectorAll('.fact .name').forEach(one => one.click())")
    reader.ask("figure.querySelector('details').open = true")
    reader.ask("figure.querySelector('.by select').value = '13'")
    reader.ask("figure.querySelector('.by select').dispatchEvent(new Event('change'))")
    assert violations(page) == []
    nameless = """[...figure.querySelectorAll('button, select, input, .stage svg, [role=grid]')]
        .filter(one => !(one.ariaLabel || one.textContent).trim()).length"""
    assert reader.ask(nameless) == 0
    assert reader.ask("figure.querySelectorAll('[role=row] > [role=rowheader]').length") == 12


def test_the_book_does_not_break_it(page: Page, atlas: Atlas, tmp_path: Path) -> None:
    """On a page of the book: its styles, an anchor in the address, dark by its own switch."""
    own = (Path(__file__).parents[3] / "book" / "_static" / "attnlib.css").read_text("utf-8")
    theme = (
        "html { --pst-color-background: #fff; --pst-color-text-base: #222 }"
        "html[data-theme=dark] { --pst-color-background: #121212; --pst-color-text-base: #ddd }"
        "figure { padding: 8px } * { box-sizing: border-box } article h2 { margin: 3rem 0 }"
        "ul { padding-left: 2rem; list-style: disc } p { margin: 0 0 1.15rem }"
    )
    path = tmp_path / "book.html"
    path.write_text(
        f"<!doctype html><html lang=en data-theme=dark><meta name=viewport "
        f"content='width=device-width'><title>Atlas</title><style>{own}{theme}</style>"
        f"<article class=bd-article><h1>The atlas</h1><p class=plain>before</p>"
        f"{fragment(atlas, '../')}<p class=plain>after</p></article>",
        "utf-8",
    )
    reader = Reader(page, path, width=390, height=800)
    assert reader.ask("figure.scrollWidth - figure.clientWidth") <= 0
    paper = "getComputedStyle(figure.querySelector('.root')).backgroundColor"
    assert reader.ask(paper) == "rgb(18, 18, 18)"
    plain = "getComputedStyle(document.querySelectorAll('p.plain')[1]).marginBottom"
    assert page.evaluate(plain) != "0px", "a rule of the atlas has left it"
    reader.fine()


def test_two_atlases_and_a_notebook(page: Page, atlas: Atlas, tmp_path: Path) -> None:
    """Only the first speaks with the address; in a notebook none does, and keys stay inside."""
    path = tmp_path / "two.html"
    path.write_text(f"<!doctype html>{fragment(atlas)}{fragment(atlas)}", "utf-8")
    first, second = Reader(page, path), Reader(page, path, 1)
    before = first.open
    second.click(".grid button", 7)
    assert (second.open, first.open, second.address) == ("1-8", before, "")
    path = tmp_path / "lab.html"
    path.write_text(
        f"<!doctype html><script>window.heard = []; document.addEventListener('keydown', "
        f"event => heard.push(event.key))</script><div class=jp-OutputArea>{fragment(atlas)}</div>",
        "utf-8",
    )
    reader = Reader(page, path)
    reader.click(".grid button", 7)
    reader.ask("figure.querySelectorAll('.grid button')[7].focus()")
    reader.press("ArrowRight")
    reader.press("/")
    assert reader.open == "1-9" and reader.focus == "find heads" and reader.address == ""
    assert page.evaluate("heard") == [], "the notebook would take the key for itself"
    reader.fine()


def test_an_old_browser_is_told(page: Page, atlas: Atlas, tmp_path: Path) -> None:
    path = tmp_path / "old.html"
    old = "<script>delete window.DecompressionStream</script>"
    path.write_text(f"<!doctype html>{old}{fragment(atlas)}", "utf-8")
    page.open(path)
    assert "too old to unpack" in page.evaluate("document.querySelector('.root').textContent")
    assert page.seen.errors == []
