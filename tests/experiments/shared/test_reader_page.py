"""The Reader as a page of the book."""

from __future__ import annotations

import re
from html import unescape

from attnlib.data.reader import passages
from experiments.shared.reader_page import page


def test_the_page_shows_every_word_and_closes_every_mention() -> None:
    """Without its tags and labels, a drawn passage is the passage."""
    for one in passages():
        paragraphs = re.findall(r"<p>(.*?)</p>", page([one]).partition('<ul class="frames">')[0])
        bare = [unescape(re.sub(r"<sub>.*?</sub>|<[^>]+>", "", p)) for p in paragraphs]
        assert "\n\n".join(bare) == one.text
        html = "".join(paragraphs)
        assert html.count("<span") == html.count("</span>") == len(one.mentions)


def test_the_page_has_a_place_for_every_passage() -> None:
    text = page(passages())
    assert all(text.count(f"(reader-{one.id})=\n### {one.title}\n") == 1 for one in passages())
