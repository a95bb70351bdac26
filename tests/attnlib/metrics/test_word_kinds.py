"""Attention to kinds of words, against loops over tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from attnlib.data.examples import ParsedText, Tree
from attnlib.metrics.links import words_of
from attnlib.metrics.word_kinds import FEATURES, SPECIAL, Feature, markers, stripe_metrics
from attnlib.models import Encoder, load_encoder
from tests.attnlib.metrics.test_links import TREE, attention_on
from tests.families import folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

BARE = Tree("t2", ("Closed",), (-1,), ("root",), ("ADJ",))
DENIED = Tree(
    "t3",
    ("It", "is", "not", "north", "of", "nowhere"),
    (1, -1, 1, 1, 3, 4),
    ("nsubj", "root", "neg", "advmod", "prep", "pobj"),
    ("PRON", "AUX", "PART", "ADV", "ADP", "ADV"),
)
EXAMPLES = [TREE, BARE, DENIED]
KINDS = {
    "noun": ({3, 7}, set(), set()),
    "verb": ({1, 6}, set(), set()),
    "pronoun": ({0, 5}, set(), {0}),
    "subject": ({0, 5}, set(), {0}),
    "object": ({3, 7}, set(), set()),
    "negation": (set(), set(), {2, 5}),
}


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


def test_every_kind_equals_a_loop(bert: Encoder) -> None:
    attention = attention_on(bert, EXAMPLES)
    batch = attention.batch
    found = {m.key: m(attention) for m in stripe_metrics(EXAMPLES)}
    assert set(found) == {f"stripe_{name}" for name in (*KINDS, *SPECIAL)}
    for row, index in enumerate(batch.index):
        n = int(batch.real[row].sum())
        places = {
            name: [p for p in range(n) if int(batch.word[row, p]) in kinds[index]]
            for name, kinds in KINDS.items()
        }
        places |= {"cls": [0], "sep": [n - 1]}
        for name, own in places.items():
            partial = found[f"stripe_{name}"]
            assert float(partial.weight[row]) == float(bool(own)), name
            for head in range(2):
                sums = [float(attention.weights[row, head, :n, k].sum()) / n for k in own]
                assert float(partial.total[row, head]) == pytest.approx(max(sums, default=0.0))


def test_words_of_the_root_alone(bert: Encoder) -> None:
    objects = frozenset(("dobj", "obj"))
    every, main = Feature("o", relations=objects), Feature("m", relations=objects, of_root=True)
    batch = attention_on(bert, EXAMPLES).batch
    found = {name: marked(batch) for name, marked in markers(EXAMPLES, (every, main)).items()}
    for row, index in enumerate(batch.index):
        one = EXAMPLES[index]
        for place, word in enumerate(batch.word[row].tolist()):
            held = word >= 0 and one.relations[word] in objects
            assert bool(found["o"][row, place]) == held
            of_root = held and one.relations[one.heads[word]].lower() == "root"
            assert bool(found["m"][row, place]) == of_root
    assert found["o"].sum() > found["m"].sum() > 0


def test_a_part_of_a_word_is_no_negation() -> None:
    negation = next(one for one in FEATURES if one.name == "negation")
    assert negation.holds("PART", "neg", "n't") and negation.holds("ADV", "advmod", "Nowhere")
    assert not negation.holds("ADV", "advmod", "north")


def test_words_of_a_text_with_places() -> None:
    pair = ParsedText("p", "It  rained.", "Why?", None, ((0, 4, 10), (0, 3)), (1, -1, 1, -1, 3),
                      ("x",) * 5, ("X",) * 5)  # fmt: skip
    assert words_of(pair) == ["It", "rained", ".", "Why", "?"]
