"""The structural probe: distances and links by plain loops, planted trees that it must find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from attnlib.attention.encode import Collator, encode
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Tree
from attnlib.errors import BadValue, CorpusError
from attnlib.models import load_encoder
from experiments.clark2019 import structural as module
from experiments.clark2019.structural import counted, distances, link_counts, structural
from tests.experiments.clark2019.test_probes import HAND, random_trees
from tests.families import folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

WIDTH = 16


def test_distances_are_those_of_the_formula() -> None:
    draw = torch.Generator().manual_seed(0)
    probe = torch.randn(2, 3, 4, 5, generator=draw, dtype=torch.float64)
    vectors = torch.randn(2, 1, 6, 5, generator=draw, dtype=torch.float64)
    found = distances(probe, vectors)
    assert found.shape == (2, 3, 1, 6, 6)
    for layer, seed, i, j in np.ndindex(2, 3, 6, 6):
        gap = probe[layer, seed] @ (vectors[layer, 0, i] - vectors[layer, 0, j])
        assert found[layer, seed, 0, i, j].item() == pytest.approx((gap @ gap).item(), abs=1e-9)


def test_links_between_two_words() -> None:
    """the > cat > slept < . and two parts without a link between them"""
    assert link_counts(HAND[0]).tolist() == [[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]]
    two = replace(HAND[0], heads=(1, -1, -1, 2))
    assert np.isinf(link_counts(two)[0, 2])


def naive_tree(apart: np.ndarray, words: list[int]) -> set[tuple[int, int]]:
    """Prim: the nearest word that is not yet in joins, again and again."""
    inside, found = words[:1], set()
    while len(inside) < len(words):
        outside = [w for w in words if w not in inside]
        a, b = min(((i, o) for i in inside for o in outside), key=lambda pair: apart[pair])
        inside.append(b)
        found.add((min(a, b), max(a, b)))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_links_are_counted_as_by_a_plain_loop(seed: int) -> None:
    draw = np.random.default_rng(seed)
    (tree,) = random_trees(1, seed)
    n = len(tree.words)
    labels = tuple("punct" if draw.random() < 0.3 else one for one in tree.relations)
    tree, real = replace(tree, relations=labels), draw.random(n) < 0.9
    points = draw.random((2, n, 3))
    apart = ((points[:, :, None] - points[:, None]) ** 2).sum(-1)
    words = [w for w in range(n) if real[w] and labels[w] != "punct"]
    gold = {(min(w, tree.heads[w]), max(w, tree.heads[w])) for w in words if tree.heads[w] in words}
    chain = sum((a, b) in gold for a, b in pairwise(words))
    found = counted(tree, apart, real)
    for at in range(2):
        right = len(naive_tree(apart[at], words) & gold)
        assert found[at].tolist() == [right, chain, len(gold)]


def test_words_in_one_place_are_still_linked() -> None:
    tree = replace(HAND[0], relations=("det", "nsubj", "root", "dep"))
    same = np.zeros((4, 4))
    same[0, 1:] = same[1:, 0] = 9.0  # three words in one place, and a fourth
    assert counted(tree, same, np.ones(4, bool)).tolist()[2] == 3
    assert counted(tree, np.zeros((4, 4)), np.ones(4, bool))[0] > 0
    assert counted(HAND[3], np.zeros((1, 1)), np.ones(1, bool)).tolist() == [0, 0, 0]


def planted(trees: Any) -> Any:
    """Layer 1 holds the tree: a word is its head word plus a direction of its own; others noise."""

    def vectors(tree: Tree, draw: np.random.Generator) -> np.ndarray:
        own = np.eye(WIDTH)[: len(tree.words)]

        def place(word: int) -> np.ndarray:
            head = tree.heads[word]
            return own[word] + (place(head) if head >= 0 else 0)

        noise = draw.normal(size=(2, len(tree.words), WIDTH))
        return np.stack([noise[0], [place(w) for w in range(len(tree.words))], noise[1]])

    def batches(encoder: Any, given: list[Tree], max_length: int) -> Iterator[Any]:
        draw = np.random.default_rng(0)
        for place, tree in enumerate(given):
            found = torch.tensor(vectors(tree, draw), dtype=torch.float32).unsqueeze(1)

            class One:
                index = (place,)

                def __len__(self) -> int:
                    return 1

            yield One(), found, torch.ones(1, len(tree.words), dtype=torch.bool)

    return batches


def corpus(n: int, seed: int) -> Corpus:
    trees = [replace(one, document=f"d{at % 5}") for at, one in enumerate(random_trees(n, seed))]
    return Corpus("toy", "tree", tuple(trees), {}, "", "")


def test_the_layer_that_holds_the_tree_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "word_vectors", planted(None))
    monkeypatch.setattr(module, "RATE", 1e-2)
    found = structural(corpus(200, 1), corpus(30, 2), encoder=None, epochs=4, seeds=2, seed=7)  # type: ignore[arg-type]
    assert found.facts["layer"] == 1 and not found.findings
    table = found.table
    assert table["seed"].unique().tolist() == [7, 8] and table["document"].nunique() == 5
    uuas = table.groupby("seed")["right"].sum() / table.groupby("seed")["asked"].sum()
    assert (uuas > 0.9).all()
    by_layer = found.facts["by_layer"]
    assert max(by_layer[0], by_layer[2]) < 0.5 < by_layer[1]


def test_vectors_of_words_are_means_over_pieces(folders: Any) -> None:
    encoder = load_encoder(folders("bert"))
    ((batch, vectors, real),) = module.word_vectors(encoder, HAND, 30)
    for row, index in enumerate(batch.index):
        (pieces,) = encode([HAND[index]], encoder, max_length=30)
        alone = Collator(encoder)([pieces])
        with torch.no_grad():
            layers = encoder.model(
                input_ids=alone.ids, attention_mask=alone.real.long(), output_hidden_states=True
            ).hidden_states
        assert real[row].sum() == len(HAND[index].words)
        for word in range(len(HAND[index].words)):
            own = [at for at, one in enumerate(pieces.word) if one == word]
            for layer, hidden in enumerate(layers):
                expected = hidden[0, own].mean(0)
                assert torch.allclose(vectors[layer, row, word], expected, atol=1e-5)


def test_bad_settings_are_one_sentence() -> None:
    with pytest.raises(BadValue, match="epochs is 0"):
        structural(corpus(9, 1), corpus(9, 2), encoder=None, epochs=0)  # type: ignore[arg-type]
    one = Corpus("toy", "tree", tuple(HAND[:1]), {}, "", "")
    with pytest.raises(CorpusError, match="training trees are of 1 document"):
        structural(one, one, encoder=None)  # type: ignore[arg-type]
