"""Probes: scores against plain loops, planted worlds, counting by hand, a stream that forgets."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlib.attention.words import WordMaps, word_maps
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment, Tree
from attnlib.errors import BadValue, CorpusError
from attnlib.models import Encoder, load_encoder
from attnlib.progress import watched
from experiments.clark2019 import probes
from experiments.clark2019.probe_models import PROBES, Probe, Sentence, Vectors
from experiments.clark2019.probes import Scores, train_and_score
from tests.families import folders, one_thread  # noqa: F401

N_WORDS, N_HEADS, DIM = 5, 3, 4
ATTENTION = ("attention", "attention-words", "attention-words-authors")
TRAINED = (*ATTENTION, "distances-words")

Map = Any  # nested lists of numbers


def make_probe(name: str, n_heads: int, dim: int) -> Probe:
    return PROBES[name](n_heads, dim, 0)


def scores_of(probe: Probe, maps: Tensor, vectors: Tensor) -> Tensor:
    """The scores for one sentence, from its word maps and the vectors of its words."""
    return probe(Sentence.of(maps, vectors))


# --- oracles: the formulas of sec. 5, one number at a time --------------------------------------


def unit_of(candidate: int) -> int:
    """Candidate 0 is ROOT, for which [CLS] stands; candidate c is word c - 1."""
    return 0 if candidate == 0 else candidate + 1


def attention_score(p: dict[str, Map], maps: Map, vectors: Map, i: int, j: int) -> float:
    n_heads, dependent = len(maps), j + 2
    score = p["root_bias"][0] if i == 0 else 0.0
    for k in range(n_heads):
        score += p["weight"][k] * maps[k][unit_of(i)][dependent]
        score += p["weight"][n_heads + k] * maps[k][dependent][unit_of(i)]
    return score


def words_score(
    p: dict[str, Map], maps: Map, vectors: Map, i: int, j: int, shifted: bool = False
) -> float:
    n_heads, n_words, dim, dependent = len(maps), len(vectors), len(vectors[0]), j + 2
    zero = [0.0] * dim
    head_vector = zero if i == 0 else vectors[i - 1]
    own_vector = vectors[j]
    if shifted:  # the released code lists the words first and ROOT, all zeros, last
        head_vector = vectors[i] if i < n_words else zero
        own_vector = vectors[j] if i < n_words else zero
    score = p["root_bias"][0] if i == 0 else 0.0
    for k in range(2 * n_heads):
        weight = p["bias"][k]
        for d in range(dim):
            weight += p["of_candidate"][k][d] * head_vector[d] + p["of_word"][k][d] * own_vector[d]
        if k < n_heads:
            score += weight * maps[k][unit_of(i)][dependent]
        else:
            score += weight * maps[k - n_heads][dependent][unit_of(i)]
    return score


def distances_score(p: dict[str, Map], maps: Map, vectors: Map, i: int, j: int) -> float:
    n_words, dim = len(vectors), len(vectors[0])
    head_vector, features = [0.0] * dim, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    if i > 0:
        offset = (i - 1) - j
        head_vector = vectors[i - 1]
        near = [1.0 if offset == o else 0.0 for o in (-2, -1, 0, 1, 2)]
        features = [max(offset, 0) / n_words, max(-offset, 0) / n_words, 0.0, *near]
    score = 0.0
    for h in range(len(p["out"])):
        total = p["bias"][h]
        total += sum(p["of_candidate"][h][d] * head_vector[d] for d in range(dim))
        total += sum(p["of_word"][h][d] * vectors[j][d] for d in range(dim))
        total += sum(p["of_distance"][h][f] * features[f] for f in range(8))
        score += p["out"][h] * math.tanh(total)
    return score


def right_score(p: dict[str, Map], maps: Map, vectors: Map, i: int, j: int) -> float:
    wanted = j + 2 if j + 1 < len(vectors) else 0
    return 1.0 if i == wanted else 0.0


def shifted_score(p: dict[str, Map], maps: Map, vectors: Map, i: int, j: int) -> float:
    return words_score(p, maps, vectors, i, j, shifted=True)


ORACLES: dict[str, Callable[..., float]] = {
    "attention": attention_score,
    "attention-words": words_score,
    "attention-words-authors": shifted_score,
    "distances-words": distances_score,
    "right-branching": right_score,
}


def expected(name: str, probe: Probe, maps: Tensor, vectors: Tensor) -> Tensor:
    """All scores by the oracle; a word is not its own candidate."""
    p = {key: value.tolist() for key, value in probe.state_dict().items()}
    m, v = maps.tolist(), vectors.tolist()
    rows = [
        [-math.inf if i == j + 1 else ORACLES[name](p, m, v, i, j) for i in range(len(v) + 1)]
        for j in range(len(v))
    ]
    return torch.tensor(rows, dtype=torch.float64)


def random_case(
    name: str, n_words: int = N_WORDS, padding: int = 2
) -> tuple[Probe, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n_words)
    probe = make_probe(name, N_HEADS, DIM).double()
    for parameter in probe.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    side = n_words + 2 + padding
    maps = torch.rand(N_HEADS, side, side, generator=generator, dtype=torch.float64)
    vectors = torch.randn(n_words, DIM, generator=generator, dtype=torch.float64)
    return probe, maps, vectors


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, atol=1e-12)


def test_every_probe_has_an_oracle() -> None:
    assert set(ORACLES) == set(PROBES)


@pytest.mark.parametrize("n_words", [1, 2, N_WORDS])
@pytest.mark.parametrize("name", PROBES)
def test_scores_are_those_of_the_formula(name: str, n_words: int) -> None:
    probe, maps, vectors = random_case(name, n_words)
    assert same(scores_of(probe, maps, vectors), expected(name, probe, maps, vectors))


@pytest.mark.parametrize("name", ATTENTION)
def test_swapped_directions_are_caught(name: str) -> None:
    probe, maps, vectors = random_case(name)
    assert not same(
        scores_of(probe, maps.transpose(1, 2), vectors), expected(name, probe, maps, vectors)
    )


@pytest.mark.parametrize("name", ATTENTION)
def test_sep_in_the_place_of_root_is_caught(name: str) -> None:
    probe, maps, vectors = random_case(name)
    units = [1, 0, *range(2, maps.shape[1])]
    wrong = maps[:, units][:, :, units]
    assert not same(scores_of(probe, wrong, vectors), expected(name, probe, maps, vectors))


def test_vectors_out_of_line_are_caught() -> None:
    """Each alignment is refused by the oracle of the other, already for a word in the middle."""
    probe, maps, vectors = random_case("attention-words")
    theirs = make_probe("attention-words-authors", N_HEADS, DIM).double()
    theirs.load_state_dict(probe.state_dict())
    ours, shifted = scores_of(probe, maps, vectors), scores_of(theirs, maps, vectors)
    assert not same(shifted, expected("attention-words", probe, maps, vectors))
    assert not same(ours, expected("attention-words-authors", theirs, maps, vectors))
    assert (ours - shifted)[ours.isfinite()].abs().min() > 1e-6


@pytest.mark.parametrize("name", TRAINED)
def test_an_unmasked_word_is_caught(name: str) -> None:
    probe, maps, vectors = random_case(name)
    unmasked = probe.raw_scores(Sentence.of(maps, vectors))
    assert unmasked.isfinite().all()
    assert not same(unmasked, expected(name, probe, maps, vectors))


def test_words_at_the_end_without_a_piece_have_no_attention() -> None:
    probe, maps, vectors = random_case("attention", padding=0)
    filled = torch.zeros_like(maps)
    filled[:, :-1, :-1] = maps[:, :-1, :-1]
    cut = maps[:, :-1, :-1]
    assert same(scores_of(probe, cut, vectors), scores_of(probe, filled, vectors))


def test_parameters_are_counted() -> None:
    sizes = [make_probe(name, 144, 50).n_parameters for name in PROBES]
    words = 288 * (100 + 1) + 1
    assert sizes == [289, words, words, 256 * (100 + 8 + 1) + 256, 0]


# --- a world of our own: an encoder whose maps are planted --------------------------------------


class TinyVectors(Vectors):
    """Vectors without a file; a word's vector follows from its letters."""

    def __init__(self) -> None:
        super().__init__(np.zeros((0, DIM), np.float32), {})

    def of(self, words: Sequence[str]) -> Tensor:
        return torch.tensor(
            [[math.sin(sum(map(ord, w)) * (d + 1)) for d in range(DIM)] for w in words]
        )


def planted_encoder() -> Encoder:
    return Encoder(
        name="planted",
        model=torch.nn.Linear(1, 1),
        tokenizer=None,
        n_layers=2,
        n_heads=2,
        n_segments=2,
        max_length=512,
        source="test",
    )


def random_trees(n: int, seed: int) -> list[Tree]:
    """Trees in which a word's head is any earlier word in a random order of attachment."""
    rng = np.random.default_rng(seed)
    trees = []
    for number in range(n):
        n_words = int(rng.integers(6, 13))
        order = rng.permutation(n_words)
        heads = [-1] * n_words
        for place in range(1, n_words):
            heads[order[place]] = int(order[rng.integers(place)])
        words = tuple(f"w{rng.integers(50)}" for _ in range(n_words))
        relations = tuple("root" if head < 0 else "dep" for head in heads)
        trees.append(Tree(str(number), words, tuple(heads), relations, ("X",) * n_words))
    return trees


def copying_maps(tree: Tree, rng: np.random.Generator) -> np.ndarray:
    """Four heads of noise; in the third a word gives most of its attention to its gold head."""
    n_units = len(tree.words) + 2
    maps = rng.dirichlet(np.ones(n_units), size=(4, n_units))
    for word, head in enumerate(tree.heads):
        maps[2, word + 2] *= 0.4
        maps[2, word + 2, 0 if head < 0 else head + 2] += 0.6
    return maps


def uniform_maps(tree: Tree, rng: np.random.Generator) -> np.ndarray:
    n_units = len(tree.words) + 2
    return np.full((4, n_units, n_units), 1 / n_units)


Draw = Callable[[Tree, np.random.Generator], np.ndarray]


def planted(draw: Draw, alive: list[int] | None = None) -> Callable[..., Iterator[WordMaps]]:
    """A stand-in for `word_maps`; `alive` gets how many earlier maps live when one is made."""

    def maps(encoder: Encoder, trees: Sequence[Tree], **_: Any) -> Iterator[WordMaps]:
        rng = np.random.default_rng(len(trees))
        made: list[weakref.ref[Any]] = []
        for start in range(0, len(trees), 4):
            if alive is not None:
                alive.append(sum(ref() is not None for ref in made))
            found = planted_batch(trees, range(start, min(start + 4, len(trees))), draw, rng)
            made += [weakref.ref(found), weakref.ref(found.weights)]
            yield found
            del found

    return maps


def planted_batch(
    trees: Sequence[Tree], places: range, draw: Draw, rng: np.random.Generator
) -> WordMaps:
    side = 2 + max(len(trees[place].words) for place in places)
    weights, real = torch.zeros(len(places), 4, side, side), torch.zeros(len(places), side)
    for row, place in enumerate(places):
        one = torch.from_numpy(draw(trees[place], rng))
        weights[row, :, : one.shape[1], : one.shape[1]] = one
        real[row, : one.shape[1]] = 1
    return WordMaps(tuple(places), weights, real.bool())


def run_planted(monkeypatch: pytest.MonkeyPatch, draw: Draw, **options: Any) -> dict[str, Scores]:
    monkeypatch.setattr(probes, "word_maps", planted(draw))
    train = options.pop("train", random_trees(300, 1))
    test = options.pop("test", random_trees(80, 2))
    return train_and_score(planted_encoder(), train, test, TinyVectors(), **options)[0]


def test_a_head_that_copies_the_tree_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = run_planted(monkeypatch, copying_maps, names=ATTENTION[:2])
    assert all(scores.uas > 95 for scores in trial.values())
    weights = trial["attention"].probe.weight.detach()
    assert weights.argmax() == 4 + 2  # u of head 3: from the word to its head
    losses = trial["attention"].losses
    assert losses[-30:].mean() < losses[:15].mean()


def test_the_planted_direction_is_told_from_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(tree: Tree, rng: np.random.Generator) -> np.ndarray:
        return copying_maps(tree, rng).transpose(0, 2, 1)

    trial = run_planted(monkeypatch, turned, names=["attention"])
    assert trial["attention"].probe.weight.argmax() == 2  # w of head 3: from the head to the word


def test_uniform_maps_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = run_planted(monkeypatch, uniform_maps, names=["attention"])
    n_candidates = np.mean([len(tree.words) for tree in random_trees(80, 2)])
    assert trial["attention"].uas < 2.5 * 100 / n_candidates


def test_the_first_step_of_adam_is_the_learning_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = run_planted(
        monkeypatch, copying_maps, names=["attention"], train=random_trees(1, 5), learning_rate=0.03
    )
    weights = trial["attention"].probe.weight.detach().abs()
    assert weights.numpy() == pytest.approx(np.full(8, 0.03), rel=1e-3)
    n_words = len(random_trees(1, 5)[0].words)  # all weights are 0: n candidates without itself
    assert trial["attention"].losses[0] == pytest.approx(math.log(n_words), rel=1e-5)


def adam_by_hand(tree: Tree, maps: np.ndarray, steps: int, rate: float) -> np.ndarray:
    """The weights of the attention-only probe after some steps on one sentence (Adam's paper).

    The gradient of a softmax regression: features times (probability - truth), mean over words.
    """
    n_words, weights = len(tree.words), np.zeros(9)  # w and u of four heads, the bias of ROOT
    first, second = np.zeros(9), np.zeros(9)
    for step in range(1, steps + 1):
        gradient = np.zeros(9)
        for j in range(n_words):
            features = {}
            for i in range(n_words + 1):
                if i != j + 1:
                    there, back = maps[:, unit_of(i), j + 2], maps[:, j + 2, unit_of(i)]
                    features[i] = np.array([*there, *back, 1.0 if i == 0 else 0.0])
            raised = {i: math.exp(weights @ x) for i, x in features.items()}
            for i, x in features.items():
                truth = 1.0 if i == tree.heads[j] + 1 else 0.0
                gradient += x * (raised[i] / sum(raised.values()) - truth) / n_words
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        root = np.sqrt(second / (1 - 0.999**step)) + 1e-8
        weights = weights - rate * first / (1 - 0.9**step) / root
    return weights


def test_training_is_adam_on_the_mean_cross_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    def fixed(tree: Tree, rng: np.random.Generator) -> np.ndarray:
        return copying_maps(tree, np.random.default_rng(8))

    # Two roots: with one, ROOT's first gradient is 0 but for rounding, and Adam takes its sign.
    tree = Tree("two", tuple("abcdef"), (-1, 0, 0, -1, 3, 4), ("dep",) * 6, ("X",) * 6)
    trial = run_planted(
        monkeypatch, fixed, names=["attention"], train=[tree, tree], epochs=3, learning_rate=0.05
    )
    probe = trial["attention"].probe
    found = [*probe.weight.tolist(), probe.root_bias.item()]
    by_hand = adam_by_hand(tree, fixed(tree, np.random.default_rng()), steps=6, rate=0.05)
    assert np.array(found) == pytest.approx(by_hand, abs=1e-4)


def test_the_maps_of_one_batch_live_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    monkeypatch.setattr(probes, "word_maps", planted(copying_maps, alive))
    trees = random_trees(22, 1)
    train_and_score(planted_encoder(), trees, trees, TinyVectors(), epochs=2)
    assert len(alive) == 3 * 6 and max(alive) == 0  # counted just before the next is made


def test_the_seed_decides_and_company_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    few = random_trees(12, 1)
    first, again, other = (
        run_planted(monkeypatch, copying_maps, train=few, test=few, seed=seed, epochs=2)
        for seed in (3, 3, 4)
    )
    alone = run_planted(
        monkeypatch, copying_maps, train=few, test=few, seed=3, epochs=2, names=["distances-words"]
    )
    for name in PROBES:
        assert np.array_equal(first[name].right, again[name].right)
        assert np.array_equal(first[name].losses, again[name].losses, equal_nan=True)
    for name in TRAINED:
        assert not np.array_equal(first[name].losses, other[name].losses)
    assert np.array_equal(first["distances-words"].losses, alone["distances-words"].losses)
    assert np.array_equal(first["distances-words"].right, alone["distances-words"].right)
    assert not np.array_equal(first["distances-words"].right, first["attention"].right)


# --- counting -----------------------------------------------------------------------------------


def hand_tree(words: str, heads: tuple[int, ...], relations: str) -> Tree:
    n_words = len(heads)
    return Tree(words, tuple(words.split()), heads, tuple(relations.split()), ("X",) * n_words)


HAND = (
    hand_tree("the cat slept .", (1, 2, -1, 2), "det nsubj root punct"),
    hand_tree("stop", (-1,), "root"),
    hand_tree("we rest !", (1, -1, 1), "nsubj root punct:final"),
    hand_tree("!", (-1,), "punct"),
)


def bert(folders: Callable[[str], Path]) -> Encoder:  # noqa: F811
    return load_encoder(folders("bert"), device="cpu")


def test_right_branching_and_its_score_by_hand(folders: Callable[[str], Path]) -> None:  # noqa: F811
    """the>cat and cat>slept are right, slept>. is wrong; stop>ROOT is right; we>rest is right."""
    encoder, names = bert(folders), ["right-branching"]
    found, _ = train_and_score(encoder, HAND, HAND, TinyVectors(), names=names, max_length=30)
    scores = found["right-branching"]
    assert scores.right.tolist() == [2, 1, 1, 0]
    assert scores.asked.tolist() == [3, 1, 2, 0]
    assert scores.uas == pytest.approx(100 * 4 / 6)
    assert scores.probe.n_parameters == 0 and np.isnan(scores.losses).all()


def test_long_sentences_are_left_out_and_counted(folders: Callable[[str], Path]) -> None:  # noqa: F811
    n = 40
    long = Tree("long", ("river",) * n, (-1, *range(n - 1)), ("dep",) * n, ("X",) * n)
    odd = Tree("odd", ("river", "\u200b"), (-1, 0), ("root", "dep"), ("X", "X"))  # no piece
    trees = (*HAND, long, odd)
    calls: list[tuple[int, int]] = []
    with watched(lambda done, total: calls.append((done, total))):
        found, skipped = train_and_score(
            *(bert(folders), trees, trees[::-1], TinyVectors()), epochs=2, max_length=30
        )
    assert skipped == {"train: too long": 1, "test: too long": 1}
    assert found["attention"].asked.tolist() == [2, 0, 0, 2, 1, 3]
    assert [np.isnan(found[name].losses).sum() for name in PROBES] == [2, 2, 2, 2, 12]
    assert calls[-1][1] == len(trees) and all(done <= total for done, total in calls)


def test_padding_of_the_batch_changes_no_score(folders: Callable[[str], Path]) -> None:  # noqa: F811
    encoder, vectors = bert(folders), TinyVectors()
    probe = make_probe("attention-words", encoder.n_layers * encoder.n_heads, DIM)
    for parameter in probe.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(0))
    (together,) = word_maps(encoder, HAND, max_length=30)
    for index, weights in zip(together.index, together.weights, strict=True):
        (alone,) = word_maps(encoder, [HAND[index]], max_length=30)
        own = vectors.of(HAND[index].words)
        assert torch.allclose(
            scores_of(probe, weights, own), scores_of(probe, alone.weights[0], own), atol=1e-5
        )


def test_seeds_and_documents_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has, for every seed, the sums over the trees of a document."""
    monkeypatch.setattr(probes, "word_maps", planted(copying_maps))
    monkeypatch.setattr(probes, "load_vectors", TinyVectors)
    monkeypatch.setattr(probes, "random_twin", lambda encoder, seed: encoder)
    monkeypatch.setattr(probes, "tokenized", lambda examples, encoder: [[0] for _ in examples])
    monkeypatch.setattr(TinyVectors, "coverage", lambda _, words: 1.0)
    test = [replace(tree, document="abc"[n % 3]) for n, tree in enumerate(random_trees(12, 2))]
    corpora = [Corpus("toy", "tree", tuple(one), {}, "", "") for one in (random_trees(30, 1), test)]
    found = probes.probes(*corpora, encoder=planted_encoder(), seeds=2, seed=5)
    table = found.table.set_index(["probe", "seed", "document"])
    assert len(table) == 6 * 2 * 3 and not found.findings
    for seed in (5, 6):
        given = (corpora[0].examples, test, TinyVectors())
        scores, _ = train_and_score(planted_encoder(), *given, seed=seed)
        for name, one in scores.items():
            for document in "abc":
                places = [n for n in range(12) if "abc"[n % 3] == document]
                assert table["right"][name, seed, document] == one.right[places].sum()
                assert table["asked"][name, seed, document] == one.asked[places].sum()
    with pytest.raises(BadValue, match="seeds is 0"):
        probes.probes(*corpora, encoder=planted_encoder(), seeds=0)


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"train": ()}, CorpusError, "no train tree"),
        ({"test": ()}, CorpusError, "no test tree"),
        ({"train": (Segment("s", "a text"),)}, CorpusError, "a Segment is among the train"),
        ({"test": HAND[3:]}, CorpusError, "no word of the test trees is left"),
        ({"max_length": 3, "train": HAND[:1]}, CorpusError, "1 too long"),
        ({"epochs": 0}, BadValue, "epochs is 0"),
    ],
)
def test_bad_input_is_answered(
    folders: Callable[[str], Path],  # noqa: F811
    change: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    given = {"train": HAND, "test": HAND, "vectors": TinyVectors(), "max_length": 30, **change}
    with pytest.raises(error, match=message):
        train_and_score(bert(folders), **given)


def test_infinite_vectors_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TinyVectors, "of", lambda _, words: torch.full((len(words), DIM), math.nan))
    with pytest.raises(BadValue, match="loss of probe 'attention-words' is nan"):
        run_planted(monkeypatch, copying_maps)


# --- a real model on real trees -----------------------------------------------------------------


@pytest.mark.mirror
@pytest.mark.skipif(not os.environ.get("ATTNLIB_MIRROR"), reason="$ATTNLIB_MIRROR is not set")
def test_attention_of_a_trained_model_knows_some_syntax(e5_small: Encoder) -> None:
    from attnlib.data.corpora import load_corpus

    train = load_corpus("ewt-train", limit=80).examples
    test = load_corpus("ewt-dev", limit=30).examples
    names = ("attention-words", "right-branching")
    trial, _ = train_and_score(e5_small, train, test, TinyVectors(), names=names)
    assert trial["attention-words"].uas > trial["right-branching"].uas
