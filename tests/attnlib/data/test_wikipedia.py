"""Wikipedia: no markup survives, segments fit, do not overlap and repeat by seed."""

from __future__ import annotations

import bz2
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlib.data import wikipedia
from attnlib.data.examples import Segment
from attnlib.data.kept import keep_rows
from attnlib.data.wikipedia import (
    DUMPS,
    Paragraph,
    article_paragraphs,
    paragraphs_of_dump,
    piece_length,
    read_dump,
    sample_paragraphs,
    segments,
)
from attnlib.errors import BadValue, CorpusError


def plain(wikitext: str, min_words: int = 3) -> list[str]:
    return [p.text for p in article_paragraphs("T", wikitext, min_words=min_words)]


TEXTS = [
    ("'''Bold''' and ''slanted'' words here.", "Bold and slanted words here."),
    ("A [[heron|grey heron]] and a [[pond]] here.", "A grey heron and a pond here."),
    ("See [http://a.example the page] for more.", "See the page for more."),
    ("It is wet.<ref name=a>Book, p. 3</ref> Very<ref name=a /> wet.", "It is wet. Very wet."),
    ("Salt &amp; pepper &ndash; a&nbsp;pair.", "Salt & pepper – a pair."),
    ("Twice &amp;amp; escaped it is.", "Twice & escaped it is."),
    ("The heron ({{IPAc-en|h|e}}) eats fish.", "The heron eats fish."),
    ("The heron ({{IPAc-en|h}}; {{lang-la|Ardea}}) eats.", "The heron (Ardea) eats."),
    ("The heron (UK {{IPA|x}}, plural herons) eats.", "The heron (plural herons) eats."),
    ("It is {{convert|5|km|mi}} wide there.", "It is 5 km wide there."),
    ("It is {{convert|5|to|7|km}} wide there.", "It is 5 to 7 km wide there."),
    ("It is {{convert|5|-|7|C|F}} warm there.", "It is 5–7°C warm there."),
    ("It covers {{convert|40|sqmi|km2}} of land.", "It covers 40 square miles of land."),
    ("It gives {{convert|40|koilbbl/d}} of oil.", None),
    ("{{As of|2013|7}} it had four ponds.", "As of July 2013 it had four ponds."),
    ("It had four ponds {{as of|2013|lc=y}}.", "It had four ponds as of 2013."),
    ("On the ''Eagle''{{'s}} deck it sat.", "On the Eagle's deck it sat."),
    ("It is so.{{citation needed|date=May}} Truly so.", "It is so. Truly so."),
    (
        "[[File:a.jpg|thumb|left|A [[heron]] [[pond|ponds]].]]The heron sat down.",
        "The heron sat down.",
    ),
    ("It sat.<!-- hidden [[x]] --> It flew off.", "It sat. It flew off."),
    ("Water is H<sub>2</sub>O<br/>and wet.", "Water is H2O and wet."),
    ("It was {{nowrap|10 a.m.}} {{ndash}} early then.", "It was 10 a.m. – early then."),
    ("Two lines\nare one paragraph.", "Two lines are one paragraph."),
    ("Wading birds.\n[[Category:Birds]]\n[[de:Reiher]]", None),
]


@pytest.mark.parametrize(("wikitext", "expected"), TEXTS)
def test_plain_text(wikitext: str, expected: str | None) -> None:
    assert plain(wikitext) == ([] if expected is None else [expected])


ARTICLE = """{{Infobox bird|name=Heron}}
The heron stands in shallow water and waits for fish.

== Food ==
It eats fish, frogs and now and then a small bird.
* a list item that is long enough to count as prose.
# another list item that is long enough to be prose.
: an indented line that is long enough to be prose.

{| class="wikitable"
| a cell with many words that reads like a sentence.
|}

The formula <math>x^2</math> is lost so this goes away.

An unknown {{flibber|3}} leaves a hole so this goes too.

It is said to be the following kind of thing:

Too short.

=== Sound ===
The call is a loud croak that carries across the marsh.

== References ==
Nothing after this heading is prose that we would want to keep.
"""


def test_article_keeps_prose_in_order_and_counts_the_rest() -> None:
    skipped: Counter[str] = Counter()
    kept = article_paragraphs("Heron", ARTICLE, min_words=8, skipped=skipped)
    assert [(p.index, p.text.split()[0]) for p in kept] == [(0, "The"), (1, "It"), (5, "The")]
    assert dict(skipped) == {
        "a formula or template is missing in it": 2,
        "does not end like a sentence": 1,
    }
    assert {p.article for p in kept} == {"Heron"}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            (
                *("{{", "}}", "[[", "]]", "|", "'''", "<ref>", "</ref>", "(", ")", "word "),
                *("{|", "|}", "\n", "\n\n", "== H ==\n", "&lt;", "<math>", "thumb", "* "),
                *("A b c. ", "http://x "),
            )
        ),
        max_size=25,
    )
)
def test_no_markup_survives_whatever_comes(pieces: list[str]) -> None:
    for text in plain("".join(pieces)):
        assert not re.search(r"\[\[|\]\]|\{\{|\}\}|''|[|<>]|\(\s*\)|  |\n|http:|\ufffc", text)


PAGE = "<page><title>{}</title><ns>{}</ns>{}<revision><text>{}</text></revision></page>"


def dump(tmp_path: Path, *pages: str) -> Path:
    xml = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">' + "".join(pages)
    path = tmp_path / "d.xml.bz2"
    path.write_bytes(bz2.compress((xml + "</mediawiki>").encode()))
    return path


def test_dump_leaves_out_redirects_and_other_namespaces(tmp_path: Path) -> None:
    path = dump(
        tmp_path,
        PAGE.format("Heron", 0, "", "The heron waits for fish."),
        PAGE.format("Talk:Heron", 1, "", "Let us talk about it."),
        PAGE.format("Herons", 0, '<redirect title="Heron" />', "#REDIRECT [[Heron]]"),
        PAGE.format("Pond", 0, "", "A pond is &amp;quot;small&amp;quot; water."),
    )
    assert [title for title, _ in read_dump(path)] == ["Heron", "Pond"]
    found, _ = paragraphs_of_dump(path, min_words=3)
    assert [p.text for p in found] == [
        "The heron waits for fish.",
        'A pond is "small" water.',
    ]


@pytest.mark.parametrize(
    "content", [b"no bz2", bz2.compress(b"<a><b>"), bz2.compress(b"x" * 99)[:20]]
)
def test_a_damaged_dump_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "d.xml.bz2"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=r"d\.xml\.bz2"):
        list(read_dump(path))


def sample(tmp_path: Path, *texts: str) -> Path:
    """A folder with a dump under the name that the sample has."""
    pages = (PAGE.format(f"É{n}", 0, "", text) for n, text in enumerate(texts))
    dump(tmp_path, *pages).rename(tmp_path / DUMPS[0])
    return tmp_path


PROSE = " ".join(["Sö", *["word"] * 20]) + "."


def test_kept_paragraphs_are_those_that_were_extracted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache = sample(tmp_path, PROSE, f"{PROSE}\n\n{PROSE[:-1]}"), tmp_path / "deep" / "c"
    made = sample_paragraphs(folder, None)
    assert made[0] == [Paragraph("É0", 0, PROSE), Paragraph("É1", 0, PROSE)]
    assert made[1] == {"does not end like a sentence": 1}
    assert sample_paragraphs(folder, cache) == made
    (kept,) = (cache / "paragraphs").iterdir()
    assert re.fullmatch(r"wiki-sample-v1-[0-9a-f]{12}\.jsonl", kept.name)
    with monkeypatch.context() as patch:
        patch.setattr(wikipedia, "paragraphs_of_dump", lambda path: pytest.fail("read again"))
        assert sample_paragraphs(folder, cache) == made
        patch.setattr(wikipedia, "VERSION", 2)
        with pytest.raises(pytest.fail.Exception):
            sample_paragraphs(folder, cache)
    kept.write_bytes(kept.read_bytes().replace("Sö".encode(), b"Se", 1))
    assert sample_paragraphs(folder, cache) == made  # damaged: made again
    sample(tmp_path, PROSE)
    assert len(sample_paragraphs(folder, cache)[0]) == 1  # another dump has another file


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    folder, cache = sample(tmp_path, PROSE), tmp_path / "file" / "below"
    (tmp_path / "file").write_text("in the way")
    assert len(sample_paragraphs(folder, cache)[0]) == 1


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        keep_rows(tmp_path / "p.jsonl", [{"text": "One."}, {"text": object()}])
    assert list(tmp_path.iterdir()) == []


# --- segments -------------------------------------------------------------------------------


def pieces(text: str) -> int:
    """A stand-in for a tokenizer: a piece for every three letters of a word, and each mark."""
    return sum(-(-len(m) // 3) for m in re.findall(r"\w+|[^\w\s]", text))


def paragraph(article: str, index: int, n_sentences: int = 6) -> Paragraph:
    """Words carry their place, so that overlap shows."""
    words = [f"{article}{index}x{i}" for i in range(n_sentences * 5)]
    sentences = [f"Start{i} {' '.join(words[5 * i : 5 * i + 5])}." for i in range(n_sentences)]
    return Paragraph(article, index, " ".join(sentences))


PARAGRAPHS = [paragraph(a, i, 1 + (i * 7) % 11) for a in "abcdef" for i in range(9) if i != 4]


@pytest.mark.parametrize("max_length", [24, 40, 128])
def test_segments_fit_and_do_not_overlap(max_length: int) -> None:
    made, _ = segments(PARAGRAPHS, pieces, max_length=max_length)
    assert made
    seen: set[str] = set()
    for segment in made:
        assert isinstance(segment.text, str)
        assert isinstance(segment.pair, str)
        assert segment.text.strip()
        assert segment.pair.strip()
        assert pieces(segment.text) + pieces(segment.pair) + 3 <= max_length
        words = set(re.findall(r"[a-f]\dx\d+", f"{segment.text} {segment.pair}"))
        assert not words & seen
        seen |= words


def source_words(text: str) -> list[str]:
    return re.findall(r"[\w.]+", text)


def test_paper_segments_are_heads_of_two_consecutive_paragraphs() -> None:
    by_place = {(p.article, p.index): p.text for p in PARAGRAPHS}
    made, skipped = segments(PARAGRAPHS, pieces, max_length=64)
    assert not skipped
    for segment in made:
        article, _, index = segment.id.partition("#")
        assert by_place[article, int(index)].startswith(str(segment.text))
        assert by_place[article, int(index) + 1].startswith(str(segment.pair))
    # paragraph 4 is missing: 3 and 5 are no neighbours
    assert [s.id for s in made if s.id[0] == "a"] == ["a#0", "a#2", "a#5", "a#7"]


def naive_cut(first: str, second: str, room: int) -> tuple[int, int]:
    """BERT's rule on single pieces: pop the longer side's end until the pair fits."""
    a, b = pieces(first), pieces(second)
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b


def test_cutting_agrees_with_popping_the_longer_side() -> None:
    texts = {(p.article, p.index): p.text for p in PARAGRAPHS}
    longest_word = max(pieces(word) for p in PARAGRAPHS for word in p.text.split())
    made, _ = segments(PARAGRAPHS, pieces, max_length=64)
    for segment in made:
        article, _, index = segment.id.partition("#")
        wanted = naive_cut(texts[article, int(index)], texts[article, int(index) + 1], 61)
        ours = pieces(str(segment.text)), pieces(str(segment.pair))
        assert abs(ours[0] - wanted[0]) < longest_word
        assert abs(ours[1] - wanted[1]) < longest_word
        assert sum(wanted) - sum(ours) < longest_word


def test_short_pairs_stay_as_they_are() -> None:
    pair = [Paragraph("a", 0, "One two."), Paragraph("a", 1, "Three  four.")]
    made, _ = segments(pair, pieces)
    assert made == [Segment("a#0", "One two.", "Three  four.")]


def test_seeds_and_sizes() -> None:
    def draw(n: int | None, seed: int) -> list[Segment]:
        return segments(PARAGRAPHS, pieces, max_length=48, n=n, seed=seed)[0]

    assert draw(5, 1) == draw(5, 1)
    assert len(draw(5, 1)) == 5
    assert draw(5, 1) != draw(5, 2)
    assert {s.id for s in draw(5, 1)} < {s.id for s in draw(9, 1)} <= {s.id for s in draw(None, 1)}
    order = [s.id for s in draw(None, 0)]
    assert [s.id for s in draw(9, 1)] == [i for i in order if i in {s.id for s in draw(9, 1)}]


def test_a_word_that_fits_nowhere_is_counted() -> None:
    pair = [Paragraph("a", 0, "z" * 999), Paragraph("a", 1, "Short one.")]
    made, skipped = segments(pair, pieces, max_length=20)
    assert made == []
    assert skipped == {"one side has no word that fits": 1}


def test_wrong_settings() -> None:
    with pytest.raises(BadValue):
        segments(PARAGRAPHS, pieces, max_length=4)


def test_what_counts_as_a_tokenizer() -> None:
    class Pieces:
        def tokenize(self, text: str) -> list[str]:
            return text.split()

    assert piece_length(Pieces())("a b") == 2
    assert piece_length(str.split)("a b c d") == 4
