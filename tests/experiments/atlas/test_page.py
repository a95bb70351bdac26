"""The page: it stands alone, shows what the cards say, and touches nothing else."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import experiments.atlas
from attnlib.errors import BadValue
from attnlib.plots.viewer import asset, script
from bookkit.pages.site import external_loads
from experiments.atlas import Atlas, Fact
from experiments.atlas.page import (
    CHAPTER,
    SCRIPTS,
    class_looks,
    fragment,
    page,
    page_data,
    save_page,
)
from experiments.atlas.words import group
from tests.atlases import LOOKS, TEXTS, N, fact, made_up, tiny_readings
from tests.families import one_thread

__all__ = ["one_thread"]  # fixture

STYLES = Path(experiments.atlas.__file__).with_name("page.css")


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return made_up(tiny_readings(tmp_path_factory.mktemp("atlas")))


def with_facts(atlas: Atlas, *facts: Fact) -> Atlas:
    n = atlas.n_layers * atlas.n_heads
    return Atlas("m", atlas.n_layers, atlas.n_heads, {}, facts, np.zeros((n, n)),
                 np.zeros((n, 3)), (-1, 0, 1), (), ())  # fmt: skip


# The fragment


class Tags(HTMLParser):
    """Every tag a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def test_the_page_stands_alone(atlas: Atlas, tmp_path: Path) -> None:
    path = save_page(atlas, tmp_path / "atlas.html")
    assert external_loads(tmp_path) == [] and list(tmp_path.iterdir()) == [path]
    text = path.read_text("utf-8")
    assert text == page(atlas) and text.startswith("<!doctype html>") and 'lang="en"' in text
    tags = Tags(text)
    assert len(tags.all("script")) == 1 and len(tags.all("style")) == 2
    assert not any(attrs.get("id") for _, attrs in tags.tags)
    code = script(*SCRIPTS)
    assert "</" not in code and "<!--" not in code, "it would end the script of the page"
    assert not re.search(r"\b(fetch|XMLHttpRequest|import|eval|innerHTML|define|require)\b", code)
    with pytest.raises(BadValue, match=r"expected \.html"):
        save_page(atlas, tmp_path / "atlas.pdf")


def test_a_page_names_the_chapter_it_comes_from(atlas: Atlas) -> None:
    assert "this book" not in page(atlas) and html.escape(CHAPTER) in page(atlas)
    path = Path(__file__).parents[3] / "notebooks" / "agreement.ipynb"
    title = json.loads(path.read_text("utf-8"))["cells"][0]["source"]
    assert "".join(title).startswith(f"# {CHAPTER}\n")


def test_words_are_data_and_never_markup(atlas: Atlas) -> None:
    text = fragment(atlas)
    assert TEXTS[2] not in text and html.escape("CC BY 4.0 <b>") in text
    assert len(Tags(text).all("script")) == len(Tags(text).all("figure")) == 1
    data = json.loads(Tags(text).all("figure")[0]["data-atlas"] or "")
    assert data["texts"][2]["title"] == TEXTS[2]


def test_styles_touch_nothing_else() -> None:
    """Every rule, also those inside @container and @media, names the atlas."""
    css = re.sub(r"/\*.*?\*/", "", asset(STYLES), flags=re.S)
    rules = [one.split("}")[-1].split(";")[-1].strip() for one in css.split("{")[:-1]]
    strangers = [one for one in rules if ".attn-atlas" not in one and not one.startswith("@")]
    assert strangers == []
    parts = [part for one in rules if "," in one for part in re.split(r",(?![^(]*\))", one)]
    assert [part for part in parts if ".attn-atlas" not in part and not part.startswith("@")] == []


def test_links_lead_into_the_book_or_nowhere(atlas: Atlas) -> None:
    links = [column["link"] for column in page_data(atlas, "../")["facts"]]
    assert f"../{LOOKS}" in links and None in links
    assert {column["link"] for column in page_data(atlas, None)["facts"]} == {None}
    assert page_data(atlas, "")["facts"][0]["link"] == LOOKS


def test_the_page_shows_the_texts_of_the_cards(atlas: Atlas) -> None:
    data = page_data(atlas, None)
    for place in (0, 9, 143):
        card = atlas.card(atlas.heads[place])
        for column, entry in zip(data["facts"], card["facts"], strict=True):
            assert column["text"].split("\n")[place] == entry["text"]
            assert column["interval"].split("\n")[place] == entry["interval"]
            assert len(column["note"].split("\n")) == N


def test_shares_of_a_group_are_drawn_to_one_scale(atlas: Atlas) -> None:
    columns = {column["key"]: column for column in page_data(atlas, None)["facts"]}
    for heading, unit in (("Where it looks", "share"), ("Answers changed", "percent")):
        own = [one for one in atlas.facts if (group(one), one.unit) == (heading, unit)]
        pairs = [
            (float(value), place)
            for one in own
            for value, place in zip(one.value, columns[one.key]["at"], strict=True)
            if value == value
        ]
        assert len(own) > 4 and [place for _, place in sorted(pairs)] == sorted(p for _, p in pairs)
    entropy = columns["entropy"]["at"]
    assert min(v for v in entropy if v is not None) == 0 and max(v or 0 for v in entropy) == 1000


def test_classes_keep_the_looks_of_the_chapters(atlas: Atlas) -> None:
    looks = class_looks(atlas.fact("guan_label"))
    assert list(looks) == ["dense", "diagonal", "dense&vertical", "vertical"]
    many = fact("k", [f"c{i % 30}" for i in range(N)], kind="class")
    assert len(class_looks(many)) == 30
    pairs = [(look.colour, look.marker) for look in class_looks(many).values()]
    assert len(set(pairs)) == 10


def test_the_same_atlas_gives_the_same_page(atlas: Atlas) -> None:
    assert page(atlas) == page(atlas)


def test_a_small_atlas_without_texts(atlas: Atlas) -> None:
    one = with_facts(atlas, fact("entropy", [1.0] * N))
    assert one.titles == () and "data-maps=" not in fragment(one)
