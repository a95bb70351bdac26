"""The wall of maps shows every weight in its type's colour, needs nothing else, and opens."""

from __future__ import annotations

import base64
import html
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from attnlib.errors import BadValue, UnknownName
from attnlib.plots.viewer import PAGE
from experiments.guan2020.type_figures import TYPE_LOOKS
from experiments.guan2020.wall import (
    HEAVIEST,
    SCRIPT,
    STYLE,
    MapWall,
    map_wall,
    wall_png,
)
from tests.chromium import Page, browser_or_skip

TYPES = tuple(TYPE_LOOKS)
NASTY = ["[CLS]", '"quoted"', "</script><b>", "&amp;", "it's", "[SEP]"]
KEYS = ["sep", "window_02", "self", "window_01", "cls"]


def maps(layers: int = 3, heads: int = 4, n: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(n, 0.4), size=(layers, heads, n))


def types(layers: int = 3, heads: int = 4) -> pd.DataFrame:
    """Types in turn; the rows in no order."""
    rows = [
        (layer + 1, head + 1, TYPES[(layer + head) % 4])
        for layer in range(layers)
        for head in range(heads)
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "type"]).sample(frac=1, random_state=2)


def features(layers: int = 3, heads: int = 4) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    rows = [
        (layer + 1, head + 1, key, value)
        for layer in range(layers)
        for head in range(heads)
        for key, value in zip(KEYS, draw.dirichlet(np.ones(5)), strict=True)
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "feature", "value"])


def wall(**given: object) -> MapWall:
    told: dict[str, object] = {"maps": maps(), "types": types(), "tokens": NASTY}
    return map_wall(**(told | {"features": features()} | given))  # type: ignore[arg-type]


class Tags(HTMLParser):
    """Every tag with its attributes, as a browser reads them; and which were left open."""

    VOID = frozenset({"img", "input", "meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attrs
            for name, attrs in self.tags
            if name == tag and all(attrs.get(key) == value for key, value in wanted.items())
        ]


def cells(tags: Tags) -> list[dict[str, str | None]]:
    return [one for one in tags.all("button") if (one.get("aria-label") or "").startswith("head ")]


def stored(tags: Tags) -> dict:  # type: ignore[type-arg]
    (figure,) = tags.all("figure")
    return json.loads(figure["data-wall"] or "")


def picture(tags: Tags) -> np.ndarray:
    """The pixels (row, column, rgba) of 0 to 1, read by another program than wrote them."""
    (image,) = tags.all("img")
    coded = (image["src"] or "").removeprefix("data:image/png;base64,")
    return np.asarray(matplotlib.image.imread(io.BytesIO(base64.b64decode(coded)), format="png"))


# The picture


def test_every_weight_is_a_pixel_of_its_types_colour() -> None:
    weights, table = maps(), types()
    tags = Tags(wall()._repr_html_())
    pixels, told = picture(tags), stored(tags)
    side = 6 + 2 * told["pad"]
    assert pixels.shape == (3 * side, 4 * side, 4)
    of = {(one.layer, one.head): one.type for one in table.itertuples()}
    covered = np.zeros(pixels.shape[:2], bool)
    for layer in range(3):
        for head in range(4):
            colour = to_rgb(TYPE_LOOKS[of[layer + 1, head + 1]].colour)
            for query in range(6):
                for key in range(6):
                    row = layer * side + told["pad"] + query
                    column = head * side + told["pad"] + key
                    weight = weights[layer, head, query, key]
                    opacity = 1 - (1 - weight**0.5) ** 2
                    covered[row, column] = True
                    assert abs(pixels[row, column, 3] - opacity) < 2 * 0.5 / 63 + 0.004
                    if pixels[row, column, 3] > 0:
                        np.testing.assert_allclose(pixels[row, column, :3], colour, atol=0.003)
    assert (pixels[~covered, 3] == 0).all()


def test_a_swapped_map_is_seen() -> None:
    """The oracle above can fail: rows are queries, not keys."""
    turned = picture(Tags(wall(maps=maps().swapaxes(2, 3))._repr_html_()))
    assert not np.allclose(turned, picture(Tags(wall()._repr_html_())), atol=0.1)


def test_the_strength_grows_with_the_weight() -> None:
    levels = np.arange(64, dtype=np.uint8).reshape(1, 1, 8, 8)
    coded = wall_png(levels, np.zeros((1, 1), int), ["#112233"] * 4, 1)
    alpha = matplotlib.image.imread(io.BytesIO(coded), format="png")[1:-1, 1:-1, 3].ravel()
    assert alpha[0] == 0 and alpha[-1] == 1 and (np.diff(alpha) >= 0).all()
    assert (np.diff(alpha)[:57] > 0).all()


@pytest.mark.parametrize(("layers", "heads", "n"), [(12, 12, 64), (24, 16, 48)])
def test_a_whole_model_stays_light(layers: int, heads: int, n: int) -> None:
    """Noise is the worst case for a picture; the real maps of a model need about half."""
    noisy = np.random.default_rng(0).dirichlet(np.full(n, 0.3), size=(layers, heads, n))
    tokens = [f"piece{i}" for i in range(n)]
    page = wall(
        maps=noisy, types=types(layers, heads), tokens=tokens, features=features(layers, heads)
    )._repr_html_()
    tags = Tags(page)
    assert len(page.encode()) < 600_000
    assert len(tags.all("img")[0]["src"] or "") < 4 / 3 * HEAVIEST + 100
    assert len(cells(tags)) == layers * heads


# The page


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    page = wall()._repr_html_()
    tags = Tags(page)
    assert tags.open == []
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page.replace("data:image/png", ""))
    assert not any("id" in attrs for _, attrs in tags.tags)  # two walls can share a page
    assert [one.get("src") for one in tags.all("script")] == [None]
    assert STYLE in page and SCRIPT in page
    known = {name for _, attrs in tags.tags for name in (attrs.get("class") or "").split()}
    assert set(re.findall(r"find\('\.([a-z]+)'\)", SCRIPT)) <= known


def test_tokens_are_data_and_never_markup() -> None:
    tags = Tags(wall()._repr_html_())
    assert stored(tags)["tokens"] == NASTY
    assert len(tags.all("script")) == 1 and tags.all("b") == [{}] * 5  # four counts and the title
    assert len(tags.all("figure")) == 1


def test_every_map_is_a_button_with_its_name() -> None:
    tags, of = Tags(wall()._repr_html_()), {(o.layer, o.head): o.type for o in types().itertuples()}
    names = [f"head {layer}-{head}, {of[layer, head]}" for layer, head in sorted(of)]
    assert [one["aria-label"] for one in cells(tags)] == names
    assert [one["tabindex"] for one in cells(tags)] == ["0", *["-1"] * 11]
    assert [one["class"] for one in cells(tags)] == [f"t{TYPES.index(of[head])}" for head in
                                                    sorted(of)]  # fmt: skip
    assert len(tags.all("span", role="rowheader")) == 3
    assert len(tags.all("span", role="columnheader")) == 4
    assert len(tags.all("div", role="row")) == 4


def test_the_legend_has_the_counts_and_the_caption_is_the_one_given() -> None:
    one = wall().said("Maps of <b>one</b> colour.")
    tags = Tags(one._repr_html_())
    assert len(tags.all("button", **{"aria-pressed": "false"})) == 4
    legend = re.findall(r"</i>(.+?) <b>(\d+)</b>", one._repr_html_())
    assert [(html.unescape(name), count) for name, count in legend] == [(n, "3") for n in TYPES]
    assert one.caption == "Maps of <b>one</b> colour." and one.caption in tags.text
    assert tags.all("img")[0]["alt"] == one.alt == f"Wall of 12 small attention maps. {one.caption}"


def test_the_table_and_the_features_are_in_the_order_of_the_maps() -> None:
    one = wall()
    assert list(zip(one.table["layer"], one.table["head"], strict=True)) == [
        (layer, head) for layer in (1, 2, 3) for head in (1, 2, 3, 4)
    ]
    np.testing.assert_allclose(one.table["largest"], maps().max((2, 3)).ravel())
    told = stored(Tags(one._repr_html_()))
    assert told["features"] == ["w1", "w2", "self", "[CLS]", "[SEP]"]
    table = features()
    for place, (layer, head) in enumerate(zip(one.table["layer"], one.table["head"], strict=True)):
        mine = table[(table["layer"] == layer) & (table["head"] == head)]
        values = dict(zip(mine["feature"], mine["value"], strict=True))
        wanted = [values[key] for key in ("window_01", "window_02", "self", "cls", "sep")]
        np.testing.assert_allclose(np.array(told["values"][place]) / 1000, wanted, atol=5.1e-4)


def test_inputs_are_left_as_they_were() -> None:
    weights, table, parts = maps(), types(), features()
    wall(maps=weights, types=table, features=parts)
    np.testing.assert_array_equal(weights, maps())
    pd.testing.assert_frame_equal(table, types())
    pd.testing.assert_frame_equal(parts, features())
    assert wall()._repr_html_() == wall()._repr_html_()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tokens": NASTY[:5]}, r"maps have shape .* \(layer, head, 5, 5\) for 5 tokens"),
        ({"maps": maps()[0]}, "maps have shape"),
        ({"maps": maps() * 3}, "not between 0 and 1"),
        ({"maps": np.full((3, 4, 6, 6), np.nan)}, "not between 0 and 1"),
        ({"maps": np.full((1, 1, 65, 65), 0.01), "tokens": ["a"] * 65}, "up to 64"),
        ({"types": types().iloc[:11]}, "11 heads have a type and there are 3 x 4 maps"),
        ({"types": types(3, 5)}, "15 heads have a type"),
        ({"types": types().drop(columns="type")}, "no column type"),
        ({"features": features().iloc[1:]}, "a head has no value for a feature"),
        ({"features": features().drop(columns="value")}, "no column value"),
    ],
)
def test_wrong_input_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(BadValue, match=said):
        wall(**given)


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'vertical'"):
        wall(types=types().replace({"type": {"vertical": "vertcal"}}))


# In a browser


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    yield from browser_or_skip("the wall was not opened in a browser")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the same wall twice, as when a notebook shows it again."""
    both = 2 * wall()._repr_html_()
    path = tmp_path_factory.mktemp("wall") / "wall.html"
    path.write_text(PAGE.format(title="Attention maps", viewer=both), encoding="utf-8")
    return path


def press(page: Page, key: str) -> None:
    """A real key, as a keyboard sends it."""
    code = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40}[key]
    told = {"key": key, "code": key, "windowsVirtualKeyCode": code}
    text = {"text": "\r"} if key == "Enter" else {}
    page._call("Input.dispatchKeyEvent", type="keyDown", **told, **text)
    page._call("Input.dispatchKeyEvent", type="keyUp", **told)
    page.evaluate("new Promise(done => setTimeout(done, 50))")


WALLS = "document.querySelectorAll('figure.attn-wall')"
CELLS = f"[...{WALLS}[1].querySelectorAll('.cells button')]"
OPENED = f"[...{WALLS}].map(wall => wall.querySelector('dialog').open)"
TITLE = f"{WALLS}[1].querySelector('.top b').textContent"
FOCUS = "document.activeElement.getAttribute('aria-label')"


@pytest.mark.browser
def test_a_click_opens_a_head_and_keys_walk_on(page: Page, saved: Path) -> None:
    page.open(saved)
    assert page.seen.errors == [] and page.seen.elsewhere == []
    assert page.evaluate(f"[...{WALLS}].filter(wall => 'awake' in wall.dataset).length") == 2
    page.evaluate(f"{CELLS}[4].click()")
    assert page.evaluate(OPENED) == [False, True]
    assert page.evaluate(TITLE) == "Head 2-1"
    parts = page.evaluate(f"[...{WALLS}[1].querySelectorAll('.part')].map(one => one.innerText)")
    assert [one.split()[0] for one in parts] == ["w1", "w2", "self", "[CLS]", "[SEP]"]
    press(page, "ArrowRight")
    assert page.evaluate(TITLE) == "Head 2-2"
    press(page, "ArrowDown")
    assert page.evaluate(TITLE) == "Head 3-2"
    press(page, "ArrowLeft")
    assert page.evaluate(TITLE) == "Head 3-1"
    press(page, "Escape")
    assert page.evaluate(OPENED) == [False, False]
    assert page.evaluate(FOCUS) == "head 3-1, dense&vertical"
    press(page, "ArrowRight")
    assert page.evaluate(FOCUS) == "head 3-2, vertical"
    press(page, "Enter")
    assert page.evaluate(OPENED) == [False, True] and page.evaluate(TITLE) == "Head 3-2"
    assert page.seen.errors == []


@pytest.mark.browser
def test_the_opened_map_tells_the_weights(page: Page, saved: Path) -> None:
    page.open(saved)
    page.evaluate(f"{CELLS}[6].click()")
    read = f"{WALLS}[1].querySelector('.read').textContent"
    mine = maps()[1, 2]
    best = np.unravel_index(mine.argmax(), mine.shape)
    strongest = page.evaluate(read)
    assert strongest.startswith(f"Strongest: {NASTY[best[0]]} → {NASTY[best[1]]} ≈ ")
    assert abs(float(strongest.split()[-1]) - mine.max()) < 0.05
    # The places of the cells are found from the frame, by pointing along the diagonal.
    canvas = f"{WALLS}[1].querySelector('canvas')"
    pointed = f"""(() => {{
        const box = {canvas}.getBoundingClientRect(), said = new Set();
        for (let at = 0; at < box.width; at += 3) {{
            {canvas}.dispatchEvent(new PointerEvent('pointermove',
                {{clientX: box.left + at, clientY: box.top + at, bubbles: true}}));
            said.add({read});
        }}
        return [...said]; }})()"""
    said = [one for one in page.evaluate(pointed) if not one.startswith("Strongest")]
    assert len(said) == 6
    for place, one in enumerate(said):
        assert one.startswith(f"{NASTY[place]} → {NASTY[place]} ≈ ")
        assert abs(float(one.split()[-1]) - mine[place, place]) < 0.05


@pytest.mark.browser
def test_a_type_dims_the_others_and_is_walked_alone(page: Page, saved: Path) -> None:
    page.open(saved)
    page.evaluate(f"{WALLS}[1].querySelectorAll('.kinds button')[3].click()")
    clear = f"{CELLS}.filter(cell => getComputedStyle(cell).opacity === '1').map(c => c.ariaLabel)"
    assert page.evaluate(clear) == [f"head {name}, vertical" for name in ("1-4", "2-3", "3-2")]
    page.evaluate(f"{CELLS}[3].click()")
    press(page, "ArrowRight")
    assert page.evaluate(TITLE) == "Head 2-3"
    page.evaluate(f"{WALLS}[1].querySelector('.shut').click()")
    page.evaluate(f"{WALLS}[1].querySelectorAll('.kinds button')[3].click()")
    assert len(page.evaluate(clear)) == 12


@pytest.mark.browser
def test_the_wall_fits_a_phone_and_follows_a_dark_page(page: Page, saved: Path) -> None:
    page.open(saved, width=390, height=800)
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    paper = f"getComputedStyle({WALLS}[0].querySelector('dialog')).backgroundColor"
    light = page.evaluate(paper)
    page.open(saved, dark=True)
    assert page.evaluate(paper) != light


@pytest.mark.browser
def test_the_maps_stand_under_their_buttons(page: Page, saved: Path) -> None:
    """Also what a reader without scripts sees: the picture has its place by style alone."""
    page.open(saved)
    gaps = page.evaluate(f"""(() => {{
        const image = {WALLS}[0].querySelector('img').getBoundingClientRect();
        const cells = [...{WALLS}[0].querySelectorAll('.cells button')];
        return cells.map((cell, i) => {{
            const box = cell.getBoundingClientRect(), middle = [box.left + box.width / 2,
                box.top + box.height / 2];
            return [Math.abs(middle[0] - image.left - image.width * (i % 4 + .5) / 4),
                    Math.abs(middle[1] - image.top - image.height * (Math.floor(i / 4) + .5) / 3)];
        }}); }})()""")
    assert np.max(gaps) < 1.5
