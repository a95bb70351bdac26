"""What heads pick, scored as dependencies: against plain loops, by hand, and on the real model."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

from attnlib.attention.words import WordMaps
from attnlib.data.examples import Tree
from attnlib.errors import BadValue, CorpusError, TooLong, UnknownName
from attnlib.measuring import best_heads as choosing
from attnlib.measuring.best_heads import (
    DIRECTIONS,
    OFFSETS,
    Predictions,
    accuracy_grid,
    best_heads,
    halves,
    hits,
    load_trees,
    predictions,
)
from attnlib.models import Encoder, load_encoder
from tests.families import folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

Maps = list[np.ndarray]
"""One (head, word, word) array per tree."""


def tree(line: str, name: str = "t") -> Tree:
    """`word/head/label` per word; heads counted from 1, 0 for the root."""
    cells = [word.split("/") for word in line.split()]
    words, heads, labels = zip(*cells, strict=True)
    return Tree(name, words, tuple(int(h) - 1 for h in heads), labels, ("X",) * len(words))


TOY = tree("The/3/det old/3/amod dog/6/nmod:poss 's/3/case red/6/amod toy/0/root")


def rows(n: int, **weights: float) -> np.ndarray:
    """A map from `q_k=weight` (places from 0); each row keeps the rest for itself."""
    out = np.zeros((n, n))
    for pair, weight in weights.items():
        q, k = pair.removeprefix("w").split("_")
        out[int(q), int(k)] = weight
    out[range(n), range(n)] = 1 - out.sum(1)
    return out


def picked(
    monkeypatch: pytest.MonkeyPatch,
    trees: Sequence[Tree],
    maps: Maps,
    real: list[list[bool]] | None = None,
    batch_size: int = 3,
) -> Predictions:
    """Predictions from maps made by hand; [CLS] and [SEP] take half of what each word gives."""
    n_heads = len(maps[0])

    def made(encoder: Any, examples: Any, **options: Any) -> Iterator[WordMaps]:
        order = list(range(len(trees)))[::-1]  # batches come in any order
        for start in range(0, len(order), batch_size):
            index = order[start : start + batch_size]
            width = 2 + max(len(trees[i].words) for i in index)
            weights = torch.zeros(len(index), n_heads, width, width)
            is_real = torch.zeros(len(index), width, dtype=torch.bool)
            for row, i in enumerate(index):
                n = 2 + len(trees[i].words)
                weights[row, :, :n, :2] = 0.25
                weights[row, :, 2:n, 2:n] = torch.tensor(maps[i]) / 2
                is_real[row, :n] = True
                if real is not None:
                    is_real[row, 2:n] = torch.tensor(real[i])
            yield WordMaps(tuple(index), weights, is_real)

    monkeypatch.setattr(choosing, "word_maps", made)
    encoder = Encoder("made", None, None, 1, n_heads, n_segments=2, max_length=512, source="")
    return predictions(encoder, trees)


# --- plain loops, written from the paper -----------------------------------------------------


def naive_pick(
    a: Any, q: int, real: Sequence[bool], *, column: bool = False, with_self: bool = False
) -> int:
    """The other word with the largest weight; the first of equals."""
    best, at = -1.0, -1
    for k in range(len(real)):
        if (k == q and not with_self) or not real[k] or not real[q]:
            continue
        weight = a[k][q] if column else a[q][k]
        if weight > best:
            best, at = weight, k
    return at


def naive_right(
    a: Any, one: Tree, w: int, real: Sequence[bool], direction: str, variant: str, **wrong: bool
) -> bool:
    head = one.heads[w]
    if head == -1:
        return False
    if direction == "dep->head":
        return naive_pick(a, w, real, **wrong) == head
    if variant == "authors":
        return naive_pick(a, w, real, column=True, **wrong) == head
    return naive_pick(a, head, real, **wrong) == w


def naive_counts(one: Tree, w: int, real: Sequence[bool], relation: str, variant: str) -> bool:
    """Does this word enter the score of the relation?"""
    head, label = one.heads[w], one.relations[w]
    if not real[w] or (head != -1 and not real[head]):
        return False
    if relation == "all":
        return variant == "authors" or (head != -1 and label != "punct")
    return head != -1 and label == relation


def naive_accuracy(
    trees: Sequence[Tree],
    maps: Maps,
    real: list[list[bool]],
    relation: str,
    direction: str,
    variant: str,
    **wrong: bool,
) -> list[float]:
    """Percent of dependencies that each head gets right."""
    out = []
    for head in range(len(maps[0])):
        right = n = 0
        for one, a, ok in zip(trees, maps, real, strict=True):
            for w in range(len(one.words)):
                if naive_counts(one, w, ok, relation, variant):
                    n += 1
                    right += naive_right(a[head], one, w, ok, direction, variant, **wrong)
        out.append(100 * right / n)
    return out


def naive_offset(trees: Sequence[Tree], relation: str, offsets: Sequence[int]) -> float:
    best = 0.0
    for offset in offsets:
        right = n = 0
        for one in trees:
            ok = [True] * len(one.words)
            for w in range(len(one.words)):
                if naive_counts(one, w, ok, relation, "paper"):
                    n += 1
                    right += 0 <= w + offset < len(one.words) and w + offset == one.heads[w]
        best = max(best, 100 * right / n)
    return best


LABELS = ("det", "amod", "nsubj", "punct")


def random_trees(n: int, seed: int) -> list[Tree]:
    rng = random.Random(seed)
    found = []
    for i in range(n):
        size = rng.randint(1, 9)
        places = rng.sample(range(size), size)
        heads, labels = [-1] * size, ["root"] * size
        for at in range(1, size):
            heads[places[at]] = places[rng.randrange(at)]
            labels[places[at]] = rng.choice(LABELS)
        words = tuple(f"w{w}" for w in range(size))
        found.append(Tree(str(i), words, tuple(heads), tuple(labels), ("X",) * size))
    return found


def random_maps(trees: Sequence[Tree], n_heads: int, seed: int) -> Maps:
    """Random rows, coarse enough for ties, heavy on the diagonal."""
    rng = np.random.default_rng(seed)
    maps = []
    for one in trees:
        n = len(one.words)
        a = rng.integers(0, 8, (n_heads, n, n)) / 8
        a[:, range(n), range(n)] += rng.integers(0, 2, (n_heads, n))
        maps.append(a)
    return maps


def random_real(trees: Sequence[Tree], seed: int) -> list[list[bool]]:
    rng = random.Random(seed)
    found = [[rng.random() < 0.9 for _ in one.words] for one in trees]
    for ok in found:
        ok[rng.randrange(len(ok))] = True
    return found


CASES = [(d, v, r) for d in DIRECTIONS for v in ("paper", "authors") for r in ("det", "all")]


@pytest.mark.parametrize(("direction", "variant", "relation"), CASES)
def test_grids_equal_plain_loops(
    monkeypatch: pytest.MonkeyPatch, direction: str, variant: str, relation: str
) -> None:
    trees = random_trees(40, seed=1)
    maps, real = random_maps(trees, 5, seed=2), random_real(trees, seed=3)
    found = picked(monkeypatch, trees, maps, real)
    expected = naive_accuracy(trees, maps, real, relation, direction, variant)
    grid = accuracy_grid(found, relation, direction, variant)
    assert grid.shape == (1, 5)
    np.testing.assert_allclose(grid[0], expected, atol=1e-9)
    # See it fail: the word itself as an answer, and the other direction.
    itself = naive_accuracy(trees, maps, real, relation, direction, variant, with_self=True)
    other = DIRECTIONS[direction == DIRECTIONS[0]]
    swapped = naive_accuracy(trees, maps, real, relation, other, variant)
    assert not np.allclose(grid[0], itself, atol=0.5)
    assert not np.allclose(grid[0], swapped, atol=0.5)


def test_best_heads_equal_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = random_trees(40, seed=4)
    maps, real = random_maps(trees, 5, seed=5), [[True] * len(one.words) for one in trees]
    table = best_heads(picked(monkeypatch, trees, maps), min_count=1, replicates=50)
    assert table["relation"][0] == "all" and set(table["relation"][1:]) == set(LABELS) - {"punct"}
    assert table["n"][1:].is_monotonic_decreasing
    for row in table.itertuples():
        scores = {
            (d, f"1-{head + 1}"): score
            for d in DIRECTIONS
            for head, score in enumerate(
                naive_accuracy(trees, maps, real, row.relation, d, "paper")
            )
        }
        assert row.accuracy == pytest.approx(max(scores.values()))
        assert scores[row.direction, row.head] == pytest.approx(row.accuracy)
        assert row.baseline == pytest.approx(naive_offset(trees, row.relation, OFFSETS["paper"]))
        assert naive_offset(trees, row.relation, [row.offset]) == pytest.approx(row.baseline)
        assert row.gain == pytest.approx(row.accuracy - row.baseline)
        assert row.low <= row.accuracy <= row.high and row.gain_low <= row.gain <= row.gain_high


# --- by hand ---------------------------------------------------------------------------------

TO_HEADS = rows(6, w0_2=0.3, w1_2=0.3, w2_5=0.3, w3_2=0.3, w4_5=0.3)  # and 0.7 to itself
TO_DEPENDENTS = rows(6, w2_0=0.5, w2_1=0.3, w2_3=0.2, w5_2=0.6, w5_4=0.4)
BY_HAND = {  # per cent of: det, amod, nmod:poss, case, all
    (0, "dep->head", "paper"): (100, 100, 100, 100, 100),
    (0, "head->dep", "paper"): (0, 0, 0, 0, 0),
    (0, "head->dep", "authors"): (0, 0, 0, 0, 0),
    (0, "dep->head", "authors"): (100, 100, 100, 100, 500 / 6),  # the root is a sixth word
    (1, "dep->head", "paper"): (0, 0, 0, 0, 0),
    (1, "head->dep", "paper"): (100, 0, 100, 0, 40),  # of three dependents one is most attended
    (1, "head->dep", "authors"): (100, 100, 100, 100, 500 / 6),
}


@pytest.mark.parametrize(("case", "expected"), BY_HAND.items())
def test_directions_and_readings_by_hand(
    monkeypatch: pytest.MonkeyPatch, case: tuple[int, str, str], expected: tuple[float, ...]
) -> None:
    found = picked(monkeypatch, [TOY], [np.array([TO_HEADS, TO_DEPENDENTS])])
    head, direction, variant = case
    names = ("det", "amod", "nmod:poss", "case", "all")
    got = [accuracy_grid(found, name, direction, variant)[0, head] for name in names]
    assert got == pytest.approx(expected)


def test_offsets_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    found = picked(monkeypatch, [TOY], [np.array([TO_HEADS])])
    table = best_heads(found, min_count=1, replicates=10).set_index("relation")
    assert table["offset"].to_dict() == {"all": 1, "det": 2, "amod": 1, "nmod:poss": 3, "case": -1}
    assert table["baseline"].to_dict() == {
        "all": 40.0,  # old and red, of five words that have a head
        "det": 100.0,
        "amod": 100.0,
        "nmod:poss": 100.0,
        "case": 100.0,
    }
    monkeypatch.setattr(choosing, "OFFSETS", {"paper": (-1, 1, 2), "authors": (5,)})
    near = best_heads(found, relations=["nmod:poss"], replicates=10)
    assert near["baseline"][0] == 0.0
    # In the authors' code the last word answers for all that lies beyond the sentence.
    far = best_heads(found, relations=["nmod:poss"], variant="authors", replicates=10)
    assert far["baseline"][0] == 100.0
    monkeypatch.setattr(choosing, "OFFSETS", {"paper": (5,)})
    assert best_heads(found, relations=["nmod:poss"])["baseline"][0] == 0.0


def test_equal_weights_give_the_first_word_and_a_lone_word_gives_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trees = [TOY, tree("Stop/0/root")]
    found = picked(monkeypatch, trees, [np.full((1, n, n), 1 / n) for n in (6, 1)])
    assert found.attended[:, 0].tolist() == [1, 0, 0, 0, 0, 0, -1]
    assert found.attending[:, 0].tolist() == [1, 0, 0, 0, 0, 0, -1]
    assert found.attended.dtype == np.int16
    # A root's head and a lone word's answer are both "nobody": that is no hit.
    assert accuracy_grid(found, "all", "dep->head", "authors")[0, 0] == 0.0


def test_words_without_pieces_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    real = [[True, False, True, True, True, True]]
    found = picked(monkeypatch, [TOY], [np.array([TO_HEADS])], real)
    assert found.counts == {"det": 1, "nmod:poss": 1, "case": 1, "amod": 1}
    assert found.skipped == {"words without pieces": 1}
    assert found.attended[1].tolist() == [-1] and 1 not in found.attended


def test_words_are_in_corpus_order(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = random_trees(11, seed=6)
    found = picked(monkeypatch, trees, random_maps(trees, 2, seed=7))
    assert found.gold.tolist() == [head for one in trees for head in one.heads]
    assert found.sentence.tolist() == [i for i, one in enumerate(trees) for _ in one.words]
    assert found.position.tolist() == [w for one in trees for w in range(len(one.words))]


# --- the possessive rule ---------------------------------------------------------------------

POSS = tree("my/2/nmod:poss dog/4/nmod:poss 's/2/case toy/0/root")


def poss(
    monkeypatch: pytest.MonkeyPatch, weights: dict[str, float], direction: str, variant: str
) -> tuple[float, float]:
    """Accuracy at nmod:poss without and with the rule."""
    found = picked(monkeypatch, [POSS], [np.array([rows(4, **weights)])])
    words = found.dependents("nmod:poss")
    without, by_rule = (
        100 * hits(found, words, direction, variant, possessive_clitic=on).mean()
        for on in (False, True)
    )
    return float(without), float(by_rule)


def test_the_clitic_may_stand_for_its_possessor(monkeypatch: pytest.MonkeyPatch) -> None:
    clitic_to_toy = {"w0_3": 0.9, "w1_0": 0.9, "w2_3": 0.9}
    assert poss(monkeypatch, clitic_to_toy, "dep->head", "paper") == (0, 50)
    assert poss(monkeypatch, clitic_to_toy, "dep->head", "authors") == (0, 50)
    toy_to_clitic = {"w3_2": 0.6, "w3_0": 0.3, "w1_3": 0.9}
    assert poss(monkeypatch, toy_to_clitic, "head->dep", "paper") == (0, 50)
    assert poss(monkeypatch, toy_to_clitic, "head->dep", "authors") == (0, 50)


def test_either_counts_in_the_paper_only_the_clitic_in_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dog_to_toy = {"w0_3": 0.9, "w1_3": 0.9, "w2_0": 0.9}
    assert poss(monkeypatch, dog_to_toy, "dep->head", "paper") == (50, 50)
    assert poss(monkeypatch, dog_to_toy, "dep->head", "authors") == (50, 0)


def test_a_clitic_is_not_lent_to_its_sister(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both `my` and `'s` hang on `dog`: that 's finds `dog` says nothing of `my`."""
    clitic_to_dog = {"w0_3": 0.9, "w1_0": 0.9, "w2_1": 0.9}
    assert poss(monkeypatch, clitic_to_dog, "dep->head", "paper") == (0, 0)


def test_the_rule_holds_for_offsets_too_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quoted = tree("dog/4/nmod:poss '/1/punct red/4/amod toy/0/root ’/4/case")
    found = picked(monkeypatch, [POSS, quoted], [np.ones((1, n, n)) for n in (4, 5)])
    plain, ruled = (
        best_heads(found, min_count=1, possessive_clitic=on, replicates=10).set_index("relation")
        for on in (False, True)
    )
    # +1: my and, by its clitic, dog; the quotation mark is no clitic of the other dog.
    assert plain["baseline"]["nmod:poss"] == pytest.approx(100 / 3)
    assert ruled["baseline"]["nmod:poss"] == pytest.approx(200 / 3)
    assert plain["baseline"]["case"] == ruled["baseline"]["case"]
    pronoun = tree("my/2/nmod:poss dog/0/root")
    found = picked(monkeypatch, [pronoun], [np.ones((1, 2, 2))])
    for variant in ("paper", "authors"):
        words = found.dependents("nmod:poss")
        assert hits(found, words, "dep->head", variant, possessive_clitic=True).all()


# --- the clean way, and intervals ------------------------------------------------------------

THREE = tree("a/3/det x/3/amod b/0/root")
HIT = rows(3, w0_2=0.9, w1_0=0.9, w2_1=0.9)
MISS = rows(3, w0_1=0.9, w1_0=0.9, w2_1=0.9)


def test_no_sentence_is_scored_by_a_choice_it_took_part_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each head is right on one half alone: chosen there, it fails on the other."""
    half = halves(20, seed=3)
    assert half.sum() == 10
    maps = [np.array([HIT, MISS] if side else [MISS, HIT]) for side in half]
    found = picked(monkeypatch, [THREE] * 20, maps)
    row = best_heads(found, relations=["det"], seed=3, replicates=20).iloc[0]
    assert row["accuracy"] == 50.0 and row["clean_accuracy"] == 0.0
    assert row["clean_head"] == "1-1/1-2"
    # Halves drawn otherwise mix them.
    other = best_heads(found, relations=["det"], seed=4, replicates=20).iloc[0]
    assert other["clean_accuracy"] > 0


def test_offsets_are_chosen_on_the_other_half_too(monkeypatch: pytest.MonkeyPatch) -> None:
    half = halves(20)
    near = tree("x/2/amod a/3/det b/0/root")
    trees = [THREE if side else near for side in half]
    found = picked(monkeypatch, trees, [np.array([HIT])] * 20)
    row = best_heads(found, relations=["det"], replicates=20).iloc[0]
    assert row["baseline"] == 50.0 and row["clean_baseline"] == 0.0


def test_the_clean_score_of_a_head_that_is_best_everywhere_is_its_score(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maps = [np.array([MISS, HIT if i % 4 else MISS]) for i in range(40)]
    found = picked(monkeypatch, [THREE] * 40, maps)
    row = best_heads(found, relations=["det"]).iloc[0]
    assert row["accuracy"] == row["clean_accuracy"] == 75.0
    assert (row["head"], row["clean_head"]) == ("1-2", "1-2")
    assert row["low"] == row["clean_low"] and row["high"] == row["clean_high"]


def test_intervals_have_the_width_of_theory(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = [np.array([HIT if i % 2 else MISS]) for i in range(400)]
    found = picked(monkeypatch, [THREE] * 400, maps, batch_size=100)
    usual = choosing.OFFSETS
    monkeypatch.setattr(choosing, "OFFSETS", {"paper": (1,)})
    row = best_heads(found, relations=["det"]).iloc[0]
    assert row["accuracy"] == 50.0 and row["baseline"] == 0.0
    expected = 196 * np.sqrt(0.25 / 400)
    assert row["high"] - 50 == pytest.approx(expected, abs=0.7)
    assert 50 - row["low"] == pytest.approx(expected, abs=0.7)
    again = best_heads(found, relations=["det"]).iloc[0]
    assert again.equals(row)
    monkeypatch.setattr(choosing, "OFFSETS", usual)
    # The gain is paired: an offset that is right wherever the head is leaves nothing to draw.
    sure = picked(monkeypatch, [THREE] * 10, [np.array([HIT])] * 10)
    row = best_heads(sure, relations=["det"]).iloc[0]
    assert (row["offset"], row["gain"], row["gain_low"], row["gain_high"]) == (2, 0.0, 0.0, 0.0)


def test_one_sentence_has_no_interval_and_no_other_half(monkeypatch: pytest.MonkeyPatch) -> None:
    row = best_heads(picked(monkeypatch, [THREE], [np.array([HIT])]), relations=["det"]).iloc[0]
    assert row["accuracy"] == 100.0
    assert np.isnan([row["low"], row["high"], row["clean_accuracy"], row["gain_low"]]).all()
    assert row["clean_head"] is None


# --- bad input -------------------------------------------------------------------------------


def test_wrong_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = picked(monkeypatch, [TOY], [np.array([TO_HEADS])])
    with pytest.raises(UnknownName, match=r"relation 'dett'.*Did you mean 'det'\?"):
        best_heads(found, relations=["dett"])
    with pytest.raises(UnknownName, match="relation 'root' joins no two words"):
        accuracy_grid(found, "root")
    with pytest.raises(BadValue, match="direction is 'dep'"):
        accuracy_grid(found, "det", "dep")
    with pytest.raises(BadValue, match="variant is 'mine'"):
        best_heads(found, variant="mine")
    with pytest.raises(BadValue, match="min-count is 0"):
        best_heads(found, min_count=0)
    roots = picked(monkeypatch, [tree("Stop/0/root")], [np.ones((1, 1, 1))])
    with pytest.raises(CorpusError, match="no word"):
        best_heads(roots)


def test_rare_relations_are_shown_when_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = picked(monkeypatch, [TOY], [np.array([TO_HEADS])])
    assert best_heads(found)["relation"].tolist() == ["all"]
    assert best_heads(found, min_count=2)["relation"].tolist() == ["all", "amod"]
    assert best_heads(found, relations=["case", "amod"])["relation"].tolist() == ["amod", "case"]


def test_maps_that_are_not_finite_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = np.array([TO_HEADS])
    broken[0, 1, 2] = np.nan
    with pytest.raises(BadValue, match="'made': its attention is not finite, first in document 2"):
        picked(monkeypatch, [TOY, TOY], [np.array([TO_HEADS]), broken])


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"))


def test_long_trees(bert: Encoder) -> None:
    long = Tree("l", ("the",) * 80, (-1, *[0] * 79), ("root", *["det"] * 79), ("X",) * 80)
    assert predictions(bert, [TOY, long], max_length=66).skipped == {"too long": 1}
    cut = predictions(bert, [TOY, long], max_length=66, on_long="truncate")
    assert cut.skipped == {"truncated": 1, "words without pieces": 16}
    assert cut.counts["det"] == 1 + 63
    with pytest.raises(TooLong):
        predictions(bert, [TOY, long], max_length=66, on_long="error")
    with pytest.raises(BadValue, match="on-long is 'window'"):
        predictions(bert, [TOY, long], max_length=66, on_long="window")
    with pytest.raises(CorpusError, match="no tree is left to measure"):
        predictions(bert, [long], max_length=66)


# --- from the words to the table, against the library ----------------------------------------


def library_maps(model: Any, tokenizer: Any, one: Tree) -> np.ndarray:
    """(head, word, word) from output_attentions: summed to the pieces of a word, mean from them."""
    coded = tokenizer([list(one.words)], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        layers = model(**coded, output_attentions=True).attentions
    word_of = coded.word_ids(0)
    n = len(one.words)
    out = np.zeros((sum(layer.shape[1] for layer in layers), n, n))
    maps = torch.cat([layer[0] for layer in layers]).double().numpy()
    for q, u in enumerate(word_of):
        for k, v in enumerate(word_of):
            if u is not None and v is not None:
                out[:, u, v] += maps[:, q, k] / word_of.count(u)
    return out


def agrees_with_the_library(encoder: Encoder, trees: Sequence[Tree], names: list[str]) -> None:
    """Best head and offset equal plain loops over maps of one sentence at a time."""
    model = AutoModel.from_pretrained(encoder.source, attn_implementation="eager").eval()
    maps = [library_maps(model, encoder.tokenizer, one) for one in trees]
    real = [[True] * len(one.words) for one in trees]
    found = predictions(encoder, trees, max_length=min(128, encoder.max_length))
    assert found.skipped == {} and found.n_sentences == len(trees)
    table = best_heads(found, relations=names, replicates=100)
    assert set(table["relation"]) == set(names)
    for row in table.itertuples():
        sides = [naive_accuracy(trees, maps, real, row.relation, d, "paper") for d in DIRECTIONS]
        assert row.accuracy == pytest.approx(max(map(max, sides)), abs=0.1)
        layer, head = map(int, row.head.split("-"))
        flat = (layer - 1) * encoder.n_heads + head - 1
        assert sides[DIRECTIONS.index(row.direction)][flat] == pytest.approx(row.accuracy, abs=0.1)
        assert row.baseline == pytest.approx(naive_offset(trees, row.relation, OFFSETS["paper"]))


SMALL = (
    tree("The/2/det engineers/3/nsubj measured/0/root the/6/det old/6/amod bridge/3/obj ./3/punct"),
    tree("It/2/nsubj rained/0/root"),
    tree("Her/3/nmod:poss famous/3/amod cafe/4/nsubj sells/0/root a/6/det lot/4/obj"),
    TOY,
)


def test_a_tiny_model_agrees_with_the_library(bert: Encoder) -> None:
    agrees_with_the_library(bert, SMALL, ["all", "det", "amod", "nsubj", "obj", "nmod:poss"])


@pytest.mark.mirror
@pytest.mark.skipif(not os.environ.get("ATTNLIB_MIRROR"), reason="$ATTNLIB_MIRROR is not set")
def test_the_real_model_agrees_with_the_library(e5_small: Encoder) -> None:
    names = ["det", "amod", "case", "obj", "nmod:poss", "nsubj"]
    agrees_with_the_library(e5_small, load_trees("ewt-dev", limit=150).examples, names)


# --- the command -----------------------------------------------------------------------------

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    path = tmp_path / "small.conllu"
    lines = []
    for one in SMALL:
        for w, (word, head, label) in enumerate(
            zip(one.words, one.heads, one.relations, strict=True)
        ):
            lines.append(f"{w + 1}\t{word}\t_\tX\t_\t_\t{head + 1}\t{label}\t_\t_\n")
        lines.append("\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.mark.assets
def test_heads_for_programs(run: Run, treebank: Path) -> None:
    code, out, _ = run(
        *("heads", "e5-small", treebank, "--json"), *("--relation", "det", "--relation", "case")
    )
    found = json.loads(out)
    assert code == 0
    assert [(row["relation"], row["n"]) for row in found] == [("det", 4), ("case", 1)]
    assert set(found[0]) == set(choosing.COLUMNS)
    det, case = found
    assert re.fullmatch(r"\d+-\d+", det["head"]) and det["direction"] in DIRECTIONS
    assert det["accuracy"] == 100.0
    assert isinstance(det["offset"], int) and 0 <= det["baseline"] <= 100
    assert case["low"] is None and case["clean_accuracy"] is None and case["clean_head"] is None


@pytest.mark.assets
def test_heads_for_people(run: Run, treebank: Path) -> None:
    code, out, _ = run("heads", "e5-small", treebank, "--min-count", 2, "--variant", "authors")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert names[:3] == ["relation", "all", "det"] and "case" not in names
    assert (
        re.search(r"det +4 +\d+-\d+ +dep->head", out)
        and "e5-small on" in out
        and "4 sentences" in out
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["TREES", "--relation", "dett"], "UnknownName: relation 'dett'"),
        (["TREES", "--relation", "nmod:pos"], "Did you mean 'nmod:poss'?"),
        (["TREES", "--min-count", 0], "min-count is 0"),
        (["TREES", "--variant", "mine"], "expected one of paper, authors"),
        (["wiki"], "CorpusError: 'wiki' holds no dependency trees but examples of kind segment"),
        (["mrpc"], "a .conllu file of your own"),
        (["ewt-dve"], "Did you mean 'ewt-dev'?"),
        (["TEXT"], "holds no dependency trees"),
    ],
)
def test_wrong_inputs_get_one_sentence_before_a_model_is_loaded(
    run: Run, treebank: Path, tmp_path: Path, words: list[Any], expected: str
) -> None:
    (tmp_path / "plain.txt").write_text("A line.\n")
    given = {"TREES": treebank, "TEXT": tmp_path / "plain.txt"}
    code, out, err = run("heads", "no-such-model", *(given.get(word, word) for word in words))
    assert code == 2 and out == ""
    assert expected in err and len(err.strip().splitlines()) == 1
    assert "no-such-model" not in err
