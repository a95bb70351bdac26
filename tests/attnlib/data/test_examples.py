"""The typed examples: their uniform view, their spans, and the sentence splitter."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlib.data.examples import (
    Answer,
    CorefDocument,
    Example,
    FrameExample,
    Question,
    Segment,
    Span,
    TaskExample,
    Tree,
    sentence_starts,
)

WORDS = ("Birds", "sing", ".", "Cats", "sleep", ".")
EXAMPLES = [
    Segment("s", "one text"),
    Segment("s", "one", "two"),
    TaskExample("t", "one", None, 1),
    TaskExample("t", "one", "two", 2.5),
    Question("q", "Who?", "Ann did.", (Answer("Ann", 0),), "Ann"),
    Tree("t", WORDS[:3], (1, -1, 1), ("nsubj", "root", "punct"), ("NOUN", "VERB", "PUNCT")),
    CorefDocument("d", WORDS, (Span(0, 3), Span(3, 6)), ((Span(0, 1), Span(3, 4)),)),
    FrameExample("f", WORDS[:3], "Noise", Span(1, 2), (("Source", Span(0, 1)),), (True,)),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: type(e).__name__)
def test_every_example_has_the_view_the_encoder_reads(example: Example) -> None:
    assert isinstance(example, Example)
    assert 1 <= len(example.parts) <= 2
    for part in example.parts:
        assert part
        assert isinstance(part, str) or all(isinstance(word, str) for word in part)
    starts = example.sentence_starts
    assert starts is None or len(starts) == len(example.parts)
    with pytest.raises(dataclasses.FrozenInstanceError):
        example.id = "other"  # type: ignore[misc]
    assert hash(example) == hash(dataclasses.replace(example))


def test_views_of_the_annotated_examples() -> None:
    tree, document = EXAMPLES[5], EXAMPLES[6]
    assert tree.parts == (WORDS[:3],)
    assert tree.sentence_starts == ((0,),)
    assert document.sentence_starts == ((0, 3),)
    assert EXAMPLES[1].parts == ("one", "two")
    assert EXAMPLES[4].parts == ("Who?", "Ann did.")


def test_core_elements() -> None:
    frame = dataclasses.replace(
        EXAMPLES[7], elements=(("Source", Span(0, 1)), ("Time", Span(2, 3))), core=(True, False)
    )
    assert frame.core_elements == (("Source", Span(0, 1)),)


def test_head_word_is_the_word_governed_from_outside() -> None:
    words = ("the", "dog", "of", "Ann", "barked")
    parsed = CorefDocument("d", words, (Span(0, 5),), ((Span(0, 4),),), heads=(1, 4, 3, 1, -1))
    assert parsed.head_word(Span(0, 4)) == 1
    assert parsed.head_word(Span(2, 4)) == 3
    assert dataclasses.replace(parsed, heads=None).head_word(Span(0, 4)) == 3


@pytest.mark.parametrize(("start", "end"), [(2, 2), (3, 1), (-1, 2)])
def test_a_span_must_hold_something(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="start < end"):
        Span(start, end)


def test_span_counts_and_contains() -> None:
    span = Span(2, 5)
    assert len(span) == 3
    assert [i for i in range(7) if i in span] == [2, 3, 4]


SPLITS = [
    # plain
    "One came.| Two went.| Three stayed.",
    "Did it work?| Yes!| It did.",
    "What?!| No way.",
    # titles, initials, abbreviations that go on
    "Dr. Kim met Mrs. Lee and Prof. Oda.| They spoke.",
    "J. R. R. Tolkien and C. S. Lewis were friends.| They wrote.",
    "Fruit, e.g. Apples, i.e. Malus, is cheap.| Nuts are not.",
    "The U.S. Senate met.| It voted.",
    "See Fig. 3 and Eq. 4 in Vol. 2.| They agree.",
    "It is No. 5 of the list.| No. 6 is missing.",
    "Smith et al. Found nothing.",
    "It opened on Jan. 5 at 7 p.m. Eastern time.| All came.",
    "Acme Inc. Chairman Bo Li left.| He was tired.",
    "We met in St. Louis.| It rained.",
    # the same abbreviations at the end of a sentence
    "They moved to the U.S. |The city was new.",
    "He sold pens, ink, etc. |However, few bought.",
    "He said no. |Then he left.",
    "The plan was B. |It failed.",
    # numbers
    "Pi is 3.14 or so.| It was 2.5 times 1.0.| 40 people came.",
    "Version 2.0.1 came out.| It ran.",
    # quotes and brackets
    'He asked "Why?" and left.| Nobody knew.',
    '"It rains."| "So it does."| Both laughed.',
    "It ended (at last).| (Few cared.)| Then came night.",
    "“Go.”| ‘Where?’| “Home.”",
    # ellipses
    "She waited... and waited.| Nothing came.",
    "She waited...| Nothing came.",
    "Well… maybe.| So… |Perhaps.",
    # marks that open nothing
    "I love it! :-) and so on.| It is good.",
    "The region . . .| This is it.",
    # all in lower case
    "it 's slow .| very slow .| is it ?| it waits ... and waits .",
    "no one, e.g. ann, came.| they left.",
    # paragraphs
    "A title\n\n|And the text.| It goes on.",
    # lower case goes on
    "The iPhone vs. the rest.| yes it is small.".replace("| yes", " yes"),
    "Über alles.| Äpfel sind rot.| Он пришёл.| Она ушла.",
]


@pytest.mark.parametrize("marked", SPLITS)
def test_sentence_starts(marked: str) -> None:
    text = marked.replace("|", "")
    starts, length = [0], 0
    for piece in marked.split("|")[:-1]:
        length += len(piece)
        starts.append(length + len(text[length:]) - len(text[length:].lstrip()))
    assert sentence_starts(text) == tuple(starts)


def test_leading_blanks_and_nothing() -> None:
    assert sentence_starts("") == ()
    assert sentence_starts(" \n ") == ()
    assert sentence_starts("  Hello there.") == (2,)
    assert sentence_starts("no end mark") == (0,)
    assert sentence_starts("...") == (0,)


@given(st.text(alphabet="aB.!? \n\"'()…1é", max_size=60))
def test_starts_are_increasing_and_stand_on_something(text: str) -> None:
    starts = sentence_starts(text)
    assert list(starts) == sorted(set(starts))
    assert all(not text[start].isspace() for start in starts)
    assert bool(starts) == bool(text.strip())
    assert not starts or not text[: starts[0]].strip()
