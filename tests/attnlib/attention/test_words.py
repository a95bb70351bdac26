"""Maps between words: summed to, averaged from, and untouched by padding or dropped words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel

from attnlib.attention.words import N_SPECIAL, WordMaps, word_maps
from attnlib.data.examples import Segment
from attnlib.errors import BadValue, TooLong
from attnlib.models import Encoder, load_encoder
from attnlib.progress import watched
from tests.families import folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

SENTENCES = (
    ("The", "engineers", "measured", "the", "river", "bridge", "."),
    ("Rained",),
    ("\u200b", "Nobody", "remembered", "\u0007", "colder", "winters", "\u200b"),
    ("Unbelievably", ",", "o'clock", "disappeared", "!"),
    ("It", "rained"),
)
"""Words of one and of many pieces, and words that the tokenizer drops."""

EXAMPLES = tuple(Segment(str(i), words) for i, words in enumerate(SENTENCES))
PAIR = Segment("pair", ("Nobody", "waited", "."), ("The", "river", "froze"))

Map = list[list[float]]


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"))


def library_maps(encoder: Encoder, example: Segment) -> tuple[list[Map], list[int]]:
    """The maps of all heads as transformers gives them, and the unit of every piece."""
    model = AutoModel.from_pretrained(encoder.source, attn_implementation="eager").eval()
    parts = [list(part) for part in example.parts]
    coded = encoder.tokenizer(*parts, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        layers = model(**coded, output_attentions=True).attentions
    units = []
    sides = zip(coded.word_ids(0), coded.sequence_ids(0), strict=True)
    for place, (word, side) in enumerate(sides):
        if word is None:
            units.append(0 if place == 0 else 1)
        else:
            units.append(2 + word + (len(parts[0]) if side == 1 else 0))
    return [head for layer in layers for head in layer[0].double().tolist()], units


def naive(a: Map, units: list[int], to: str = "sum", source: str = "mean") -> np.ndarray:
    """One map between units with plain loops; the wrong ways are there to be told apart."""
    n_units = max(units) + 1
    out = np.zeros((n_units, n_units))
    for u in range(n_units):
        senders = [q for q, unit in enumerate(units) if unit == u]
        senders = senders[:1] if source == "first" else senders
        for v in range(n_units):
            receivers = [k for k, unit in enumerate(units) if unit == v]
            if not senders or not receivers:
                continue
            total = 0.0
            for q in senders:
                for k in receivers:
                    total += a[q][k]
            total /= len(receivers) if to == "mean" else 1
            total /= len(senders) if source == "mean" else 1
            out[u, v] = total
    return out


def by_example(encoder: Encoder, examples: Sequence[Any], **options: Any) -> dict[int, np.ndarray]:
    """Maps of each example without padding: (head, unit, unit)."""
    found = {}
    for maps in word_maps(encoder, examples, **options):
        for row, index in enumerate(maps.index):
            n = int(maps.real[row].nonzero().max()) + 1
            found[index] = maps.weights[row, :, :n, :n].numpy()
            assert not maps.weights[row, :, n:].any() and not maps.weights[row, :, :, n:].any()
    return found


def differs(encoder: Encoder, example: Any, found: np.ndarray, to: str, source: str) -> float:
    maps, units = library_maps(encoder, example)
    expected = np.array([naive(a, units, to, source) for a in maps])
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max())


@pytest.mark.parametrize("from_pieces", ["mean", "first"])
def test_words_are_summed_to_and_averaged_from(bert: Encoder, from_pieces: str) -> None:
    found = by_example(bert, (*EXAMPLES, PAIR), from_pieces=from_pieces, max_length=66)
    assert sorted(found) == list(range(len(EXAMPLES) + 1))
    for index, example in enumerate((*EXAMPLES, PAIR)):
        assert differs(bert, example, found[index], "sum", from_pieces) < 1e-5


@pytest.mark.parametrize(("to", "source"), [("mean", "mean"), ("sum", "sum"), ("sum", "first")])
def test_the_wrong_way_around_is_told_apart(bert: Encoder, to: str, source: str) -> None:
    found = by_example(bert, EXAMPLES, max_length=66)
    assert differs(bert, EXAMPLES[0], found[0], to, source) > 1e-3


@pytest.mark.parametrize("from_pieces", ["mean", "first"])
def test_rows_sum_to_one(bert: Encoder, from_pieces: str) -> None:
    for maps in word_maps(bert, (*EXAMPLES, PAIR), from_pieces=from_pieces, max_length=66):
        sums = maps.weights.sum(-1).transpose(1, 2)
        torch.testing.assert_close(sums[maps.real], torch.ones_like(sums[maps.real]))
        assert not sums[~maps.real].any()
        assert (maps.weights >= 0).all()


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_padding_and_batches_change_nothing(bert: Encoder, batch_size: int) -> None:
    alone = by_example(bert, EXAMPLES, batch_size=1, max_length=66)
    found = by_example(bert, EXAMPLES, batch_size=batch_size, max_length=66)
    backwards = by_example(bert, EXAMPLES[::-1], batch_size=batch_size, max_length=66)
    for index in range(len(EXAMPLES)):
        np.testing.assert_allclose(found[index], alone[index], atol=1e-6)
        np.testing.assert_allclose(backwards[len(EXAMPLES) - 1 - index], alone[index], atol=1e-6)


def test_words_without_pieces_are_not_real(bert: Encoder) -> None:
    (maps,) = word_maps(bert, EXAMPLES[2:3], max_length=66)
    # The last word is dropped by the tokenizer too: the map ends before it.
    assert maps.real.tolist() == [[True, True, False, True, True, False, True, True]]
    assert maps.real_words().tolist() == [maps.real[0, N_SPECIAL:].tolist()]
    assert maps.n_words == 6 and len(maps.index) == 1
    assert not maps.weights[0, :, ~maps.real[0]].any()
    assert not maps.weights[0, :, :, ~maps.real[0]].any()


def test_between_words_leaves_out_special_tokens(bert: Encoder) -> None:
    (maps,) = word_maps(bert, EXAMPLES[:1], max_length=66)
    inner = maps.between_words()
    assert inner.shape == (1, bert.n_layers * bert.n_heads, 7, 7)
    torch.testing.assert_close(
        inner.sum(-1), 1 - maps.weights[:, :, N_SPECIAL:, 0] - maps.weights[:, :, N_SPECIAL:, 1]
    )
    assert (inner.sum(-1) < 1).all()


def test_only_one_batch_is_held(bert: Encoder) -> None:
    """Maps come one batch at a time, before the next is computed."""
    done: list[tuple[int, int]] = []
    with watched(lambda *at: done.append(at)):
        stream = word_maps(bert, EXAMPLES, batch_size=2, max_length=66)
        first = next(stream)
        assert isinstance(first, WordMaps) and len(first.index) == 2 and done == []
        assert [len(maps.index) for maps in stream] == [2, 1] and done == [(2, 5), (4, 5), (5, 5)]


def test_long_examples_are_skipped_and_counted_or_refused(bert: Encoder) -> None:
    skipped: Counter[str] = Counter()
    found = by_example(bert, EXAMPLES, max_length=12, skipped=skipped)
    assert 1 in found and 0 not in found
    assert skipped == {"too long": len(EXAMPLES) - len(found)}
    with pytest.raises(TooLong, match="the limit is 12"):
        list(word_maps(bert, EXAMPLES, max_length=12, on_long="error"))


def test_the_choice_of_pieces_is_checked(bert: Encoder) -> None:
    with pytest.raises(BadValue, match="from-pieces is 'last'; expected one of mean, first"):
        list(word_maps(bert, EXAMPLES, from_pieces="last", max_length=66))


@pytest.mark.assets
def test_the_real_model_agrees_with_the_library(e5_small: Encoder) -> None:
    examples = (EXAMPLES[3], EXAMPLES[0])
    found = by_example(e5_small, examples)
    for index, example in enumerate(examples):
        assert differs(e5_small, example, found[index], "sum", "mean") < 1e-5
    assert differs(e5_small, EXAMPLES[3], found[0], "sum", "first") > 1e-2
