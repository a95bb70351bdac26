"""The cosine of two models' maps, against loops and known angles."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from attnlib.attention.encode import batches, encode
from attnlib.attention.tap import Tap, run_tapped, tapped
from attnlib.data.examples import Segment
from attnlib.errors import BadValue
from attnlib.measuring.similarity import compared, cosine
from attnlib.models import Encoder, load_encoder, random_encoder, random_twin
from tests.families import HEADS, LAYERS, SENTENCES, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

TEXTS = [Segment(str(i), text) for i, text in enumerate(SENTENCES[:4])]


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


def maps(encoder: Encoder, example: Segment) -> list[torch.Tensor]:
    (batch,) = batches(encode([example], encoder, max_length=64), encoder)
    seen: list[torch.Tensor] = []
    tap = Tap(observe=lambda layer, rows, weights, scores: seen.append(weights[0].double()))
    with torch.inference_mode(), tapped(encoder, tap):
        run_tapped(encoder, batch, tap)
    return seen


def test_every_cosine_equals_a_loop_over_single_inputs(bert: Encoder) -> None:
    other = random_twin(bert, seed=5)
    found = compared(bert, other, TEXTS, batch_size=3, max_length=64)
    assert found.shape == (len(TEXTS), LAYERS, HEADS)
    for place, example in enumerate(TEXTS):
        for layer, (a, b) in enumerate(zip(maps(bert, example), maps(other, example), strict=True)):
            for head in range(HEADS):
                x, y = a[head].flatten().tolist(), b[head].flatten().tolist()
                dot = sum(p * q for p, q in zip(x, y, strict=True))
                wanted = dot / math.sqrt(sum(p * p for p in x) * sum(q * q for q in y))
                assert found[place, layer, head] == pytest.approx(wanted, abs=1e-6)


def test_a_model_is_like_itself(bert: Encoder) -> None:
    assert np.allclose(compared(bert, bert, TEXTS, batch_size=2, max_length=64), 1.0, atol=1e-6)


def test_known_angles(bert: Encoder) -> None:
    (batch,) = batches(encode([Segment("a", "a b")], bert, max_length=64), bert)
    n = batch.length
    eye = torch.eye(n)[None, None]
    shifted = torch.roll(eye, 1, -1)
    even = torch.full_like(eye, 1 / n)
    assert float(cosine(eye, shifted, batch)) == 0.0
    assert float(cosine(eye, even, batch)) == pytest.approx(1 / math.sqrt(n))


def test_padding_counts_only_for_the_authors(bert: Encoder) -> None:
    (batch,) = batches(
        encode([Segment("a", "a b"), Segment("b", SENTENCES[0])], bert, max_length=64), bert
    )
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, batch.length, batch.length)
    a, b = (torch.rand(shape, generator=generator) * batch.real[:, None, None] for _ in range(2))
    spoilt = torch.where(batch.real[:, None, :, None], a, 9 * a)
    assert torch.equal(cosine(a, b, batch), cosine(spoilt, b, batch))
    short = int(batch.real.sum(-1).argmin())
    moved = (cosine(a, b, batch, "authors") - cosine(spoilt, b, batch, "authors")).abs()
    assert (moved[short] > 1e-4).all() and (moved[1 - short] < 1e-6).all()


def test_models_of_two_shapes_are_refused(bert: Encoder) -> None:
    config = type(bert.model.config).from_dict(
        {**bert.model.config.to_dict(), "num_hidden_layers": 2}
    )
    with pytest.raises(BadValue, match="one shape"):
        compared(bert, random_encoder(config, bert.tokenizer, seed=0), TEXTS, max_length=64)
