"""Attention along links, against loops over word pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from attnlib.attention.encode import Batch, batches, encode
from attnlib.attention.maps import Attention
from attnlib.data.examples import FrameExample, ParsedText, Span, Tree
from attnlib.errors import BadValue
from attnlib.metrics.links import (
    Links,
    control_metric,
    control_sets,
    copy_links,
    found_links,
    frame_links,
    link_metric,
    per_batch,
    relation_links,
    tag_links,
)
from attnlib.models import Encoder, load_encoder
from tests.families import folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

FRAME = FrameExample(
    "f1",
    ("The", "engineers", "refused", "to", "sign", "the", "long", "report", "twice"),
    "Agree_or_refuse",
    Span(2, 3),
    (("Speaker", Span(0, 2)), ("Act", Span(3, 8)), ("Time", Span(8, 9))),
    (True, True, False),
)
TREE = Tree(
    "t1",
    ("She", "closed", "the", "bridge", "and", "we", "took", "ferries"),
    (1, -1, 3, 1, 1, 6, 1, 6),
    ("nsubj", "root", "det", "dobj", "cc", "nsubj", "conj", "dobj"),
    ("PRON", "VERB", "DET", "NOUN", "CCONJ", "PRON", "VERB", "NOUN"),
)


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


def attention_on(encoder: Encoder, examples: list[Any], seed: int = 0) -> Attention:
    (batch,) = batches(encode(examples, encoder, max_length=64), encoder, batch_size=len(examples))
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(len(batch), 2, batch.length, batch.length, generator=generator)
    scores = scores.masked_fill(~batch.real[:, None, None], -1e9)
    return Attention(scores.softmax(-1), batch)


def test_links_of_a_frame_go_from_the_target_to_core_elements() -> None:
    assert frame_links(FRAME) == [(2, 0), (2, 1), *((2, e) for e in range(3, 8))]


def test_links_of_a_tree() -> None:
    assert relation_links("nsubj")(TREE) == [(1, 0), (6, 5)]
    assert relation_links("root")(TREE) == []  # it has no head
    assert set(tag_links(["NOUN"], ["PRON"])(TREE)) == {(3, 0), (3, 5), (7, 0), (7, 5)}


def test_nouns_and_pronouns_of_other_sentences_are_not_linked() -> None:
    two = ParsedText("p", "She ran. It rained.", None, None, ((0, 4, 9, 12),), (1, -1, 3, -1),
                     ("nsubj", "root") * 2, ("PRON", "NOUN") * 2)  # fmt: skip
    assert tag_links(["NOUN"], ["PRON"])(two) == [(1, 0), (3, 2)]


def test_copies_are_the_same_words_in_the_other_text() -> None:
    pair = ParsedText("p", "The river rose .", "A River , the road", None,
                      ((0, 4, 10, 15), (0, 2, 8, 10, 14)), (1, 2, -1, 2, 1, -1, 1, 4, 1),
                      ("det",) * 9, ("DET",) * 9)  # fmt: skip
    assert set(copy_links(pair)) == {(0, 7), (7, 0), (1, 5), (5, 1)}


def word_pieces(batch: Batch, row: int, word: int) -> list[int]:
    return [place for place, own in enumerate(batch.word[row].tolist()) if own == word]


def naive(attention: Attention, row: int, head: int, pairs: list[tuple[int, int]]) -> float:
    batch = attention.batch
    return max(
        float(attention.weights[row, head, q, k])
        for a, b in pairs
        for q in word_pieces(batch, row, a)
        for k in word_pieces(batch, row, b)
    )


@pytest.mark.parametrize("direction", ["both", "forward", "backward"])
def test_scores_equal_a_loop_over_pairs(bert: Encoder, direction: str) -> None:
    examples = [TREE, Tree("t2", ("It", "rained"), (-1, -1), ("root", "root"), ("PRON", "VERB"))]
    links = found_links("subject", examples, relation_links("nsubj"))
    assert links.n_inputs() == 1
    attention = attention_on(bert, examples)
    found = link_metric(links, direction=direction)(attention)
    turned = {"forward": lambda p: [p], "backward": lambda p: [p[::-1]],
              "both": lambda p: [p, p[::-1]]}[direction]  # fmt: skip
    rows = {index: row for row, index in enumerate(attention.batch.index)}
    assert found.weight.tolist() == [float(index == 0) for index in attention.batch.index]
    for head in range(2):
        pairs = [q for p in links.pairs[0] for q in turned(p)]
        wanted = naive(attention, rows[0], head, pairs)
        assert float(found.total[rows[0], head]) == pytest.approx(wanted)


def naive_control(attention: Attention, own: set[tuple[int, int]], head: int) -> float | None:
    """Groups of links that share words, each at all places where it fits, in runs."""
    there = sorted({int(word) for word in attention.batch.word[0] if word >= 0})
    graph = csr_matrix((np.ones(len(own)), tuple(zip(*own, strict=True))), shape=(30, 30))
    _, group_of = connected_components(graph, directed=False)
    shapes: dict[tuple[tuple[int, int], ...], int] = {}
    for number in {group_of[a] for a, _ in own}:
        group = sorted(pair for pair in own if group_of[pair[0]] == number)
        low = min(map(min, group))
        shape = tuple((a - low, b - low) for a, b in group)
        shapes[shape] = shapes.get(shape, 0) + 1
    runs = []
    for shape, n in shapes.items():
        moved = [[(a + at, b + at) for a, b in shape] for at in there]
        free = [
            one
            for one in moved
            if all({*pair} <= {*there} and not {pair, pair[::-1]} & own for pair in one)
        ]
        if len(free) < n:
            return None
        runs.append(
            [[p for i in range(n) for p in free[(s + i) % len(free)]] for s in range(len(free))]
        )
    longest = max(map(len, runs))
    sets = [[pair for one in runs for pair in one[s % len(one)]] for s in range(longest)]
    return float(np.mean([naive(attention, 0, head, one) for one in sets]))


OWN = [
    {(1, 0)},
    {(1, 0), (6, 5)},
    {(1, 0), (1, 3)},
    {(0, 7)},
    {(2, 0), (5, 3), (3, 1)},
    {(0, 1), (2, 3), (4, 5), (6, 7), (1, 2)},
]


@pytest.mark.parametrize("own", OWN)
def test_the_control_has_the_shape_of_the_links(bert: Encoder, own: set[tuple[int, int]]) -> None:
    attention = attention_on(bert, [TREE], seed=1)
    found = control_metric(Links("own", (tuple(own),)), direction="forward")(attention)
    for head in range(2):
        wanted = naive_control(attention, own, head)
        assert (found.weight.tolist() == [0.0]) is (wanted is None)
        if wanted is not None:
            assert float(found.total[0, head]) == pytest.approx(wanted)


def test_links_that_mean_nothing_have_no_lead(bert: Encoder) -> None:
    """Random maps, random links: the maximum over a link is that over its control."""
    rng = np.random.default_rng(0)
    leads = []
    for seed in range(150):
        attention = attention_on(bert, [TREE], seed=seed)
        every = [(a, b) for a in range(8) for b in range(8) if 0 < b - a < 4]
        own = tuple(every[i] for i in rng.permutation(len(every))[: rng.integers(1, 5)])
        links = Links("own", (own,))
        link, control = (make(links)(attention) for make in (link_metric, control_metric))
        if control.weight[0] > 0:
            leads.append((link.total - control.total)[0].numpy())
    values = np.concatenate(leads)
    assert len(values) > 200 and abs(values.mean()) < 3 * values.std() / np.sqrt(len(values))


def test_a_control_stays_in_one_text_if_the_link_does() -> None:
    part = {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}
    assert control_sets([(0, 1)], part) == [[(1, 2)], [(3, 4)], [(4, 5)]]
    assert control_sets([(2, 3)], part) == []  # no other pair of neighbours crosses the border
    assert control_sets([(0, 3)], part) == [[(1, 4)], [(2, 5)]]


def test_links_that_share_a_word_move_together() -> None:
    """A target and its element stay a row; links of their own go their own ways."""
    part = dict.fromkeys(range(7), 0)
    assert control_sets([(0, 2), (0, 3)], part) == [
        [(1, 3), (1, 4)],
        [(2, 4), (2, 5)],
        [(3, 5), (3, 6)],
    ]
    assert control_sets([(0, 1), (3, 4)], part) == [  # two shapes alike: different places
        [(1, 2), (2, 3)],
        [(2, 3), (4, 5)],
        [(4, 5), (5, 6)],
        [(5, 6), (1, 2)],
    ]


@pytest.mark.parametrize("make", [link_metric, control_metric])
def test_words_without_pieces_are_no_pairs(bert: Encoder, make: Callable[..., Any]) -> None:
    """A pair with a word that the model does not see is left out; it does not count as 0."""
    attention = attention_on(bert, [TREE])
    gone = attention.batch.word.masked_fill(attention.batch.word == 2, -1)
    hidden = Attention(attention.weights, replace(attention.batch, word=gone))
    found = make(Links("own", (((0, 1), (1, 2)),)), direction="forward")(hidden)
    for head in range(2):
        own = {(0, 1)}
        wanted = naive(hidden, 0, head, [*own]) if make is link_metric else None
        wanted = naive_control(hidden, own, head) if wanted is None else wanted
        assert float(found.value[0, head]) == pytest.approx(wanted)


def test_pairs_are_looked_up_once_for_all_layers(bert: Encoder) -> None:
    asked: list[Batch] = []
    once = per_batch(lambda batch: asked.append(batch) or len(batch))  # type: ignore[func-returns-value]
    batch = attention_on(bert, [TREE]).batch
    assert [once(batch) for _ in range(12)] == [1] * 12 and asked == [batch]
    assert once(attention_on(bert, [TREE, TREE]).batch) == 2 and len(asked) == 2


def test_inputs_without_links_have_no_control(bert: Encoder) -> None:
    links = found_links("none", [TREE], lambda example: [])
    found = control_metric(links)(attention_on(bert, [TREE]))
    assert found.weight.tolist() == [0.0] and found.value.isnan().all()


def test_a_wrong_direction_is_refused() -> None:
    links = found_links("none", [TREE], lambda example: [])
    with pytest.raises(BadValue, match="sideways"):
        link_metric(links, direction="sideways")
