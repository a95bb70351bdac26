"""Antecedents: baselines that make sense on the Reader, and by hand."""

from __future__ import annotations

import pytest

from attnlib import load_corpus
from attnlib.data.examples import CorefDocument, Span
from experiments.shared import coref


def test_baselines_make_sense_on_the_reader() -> None:
    documents = load_corpus("reader-coref").examples
    share = {}
    for name, choose in coref.BASELINES.items():
        right, asked = coref.accuracy(documents, choose)["all"]
        assert asked > 900
        share[name] = right / asked
    assert share["nearest"] < share["head match"] < share["rule-based"]
    assert 0.15 < share["nearest"] < 0.45 and 0.5 < share["rule-based"] < 0.8


# --- antecedents, by hand ------------------------------------------------------------------------


def document() -> CorefDocument:
    """Mara met her sister . Mara greeted the woman . She smiled ."""
    text = "Mara met her sister . Mara greeted the woman . She smiled ."
    words = text.split()
    mara = (Span(0, 1), Span(2, 3), Span(5, 6), Span(10, 11))
    sister = (Span(2, 4), Span(7, 9))
    return CorefDocument(
        id="hand",
        words=tuple(words),
        sentences=(Span(0, 5), Span(5, 10), Span(10, 13)),
        clusters=(mara, sister),
        mention_heads=((0, 2, 5, 10), (3, 8)),
        mention_types=(("proper", "pronoun", "proper", "pronoun"), ("nominal", "nominal")),
    )


def test_questions_have_an_antecedent_and_look_back_only() -> None:
    asked = {m.head: [o.head for o in before] for m, before in coref.questions(document())}
    assert asked == {2: [0], 5: [3, 2, 0], 8: [5, 3, 2, 0], 10: [8, 5, 3, 2, 0]}


@pytest.mark.parametrize(
    ("name", "right"),
    [("nearest", {2}), ("head match", {5}), ("rule-based", {2, 5})],
)
def test_baselines_by_hand(name: str, right: set[int]) -> None:
    choose = coref.baseline(name)
    found = set()
    for mention, before in coref.questions(document()):
        chosen = choose(mention, before)
        if chosen is not None and chosen.entity == mention.entity:
            found.add(mention.head)
    assert found == right


def test_accuracy_counts_by_type() -> None:
    assert coref.accuracy([document()], coref.nearest) == {
        "all": (1, 4),
        "pronoun": (1, 2),
        "proper": (0, 1),
        "nominal": (0, 1),
    }
