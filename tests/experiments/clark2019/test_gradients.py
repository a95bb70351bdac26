"""Gradients to attention weights: against finite differences, and the same in any batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlib.attention.encode import Batch, Collator, encode
from attnlib.attention.tap import Tap, run_tapped, tapped
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment
from attnlib.errors import BadValue, TooLong
from attnlib.models import Encoder, load_encoder
from experiments.clark2019 import gradients as module
from experiments.clark2019.gradients import (
    KEY_CLASSES,
    QUANTITIES,
    Gradients,
    attention_gradients,
)
from experiments.clark2019.masked_lm import NOT_ASKED, _from_weights, masked
from tests.families import HEADS, LAYERS, SENTENCES, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

TEXTS = tuple(
    Segment(str(i), first, second)
    for i, (first, second) in enumerate(
        [
            ("It rained, so we took the ferry.", "The river was closed."),
            (SENTENCES[3], SENTENCES[5]),
            (SENTENCES[5], None),
            ("Wait.", "A week, so."),
        ]
    )
)
CORPUS = Corpus("toy", "segment", TEXTS, {}, "here", "")
PLACES = [(0, 0, 0), (0, 3, 4), (1, 1, 2), (1, 2, 6), (LAYERS - 1, 0, 1), (LAYERS - 1, 3, 5)]
"""(layer, head, key) that finite differences are taken at."""


def exact(folder: Path) -> Encoder:
    """A tiny masked-LM model in double precision with a head of random weights."""
    encoder = load_encoder(folder, dtype=torch.float64)
    model = _from_weights(encoder, seed=1)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if not name.startswith(model.base_model_prefix):
            parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return replace(encoder, model=model)


@pytest.fixture
def bert(folders: Callable[[str], Path]) -> Encoder:
    return exact(folders("bert"))


def gradients(model: Encoder, corpus: Corpus = CORPUS, **more: Any) -> Any:
    return attention_gradients(model, corpus, **{"max_length": 60, "mask_rate": 0.3, **more})


# --- an oracle that knows no derivative -----------------------------------------------------


def loss_by_hand(answers: Tensor, targets: Tensor) -> float:
    """Mean surprise of the masked pieces of one example, one piece after the other."""
    losses = []
    for place, piece in enumerate(targets.tolist()):
        if piece != NOT_ASKED:
            logits = answers[place]
            losses.append((torch.logsumexp(logits, 0) - logits[piece]).item())
    return sum(losses) / len(losses)


class Nudge:
    """Adds a little to one weight of one map, and keeps that weight's own value."""

    def __init__(self, layer: int, head: int, query: int, key: int, by: float) -> None:
        self.place, self.by, self.value = (layer, head, query, key), by, 0.0

    def __call__(self, layer: int, rows: slice, weights: Tensor) -> Tensor | None:
        wanted, head, query, key = self.place
        if layer != wanted:
            return None
        self.value = weights[0, head, query, key].item()
        changed = weights.clone()
        changed[0, head, query, key] += self.by
        return changed


def slopes_by_differences(
    model: Encoder, example: int, place: tuple[int, int, int]
) -> Iterator[tuple[float, float]]:
    """For each query: (L(a + e) - L(a - e)) / 2e, and a itself."""
    encoder = model
    pieces = list(encode(TEXTS, encoder, max_length=60))[example]
    batch, targets = masked(Collator(encoder)([pieces]), encoder, rate=0.3)
    layer, at_head, key = place
    for query in range(len(pieces)):
        losses = []
        for by in (1e-5, -1e-5):
            nudge = Nudge(layer, at_head, query, key, by)
            tap = Tap(change=nudge)
            with torch.no_grad(), tapped(encoder, tap):
                answers = run_tapped(encoder, batch, tap)[0]
                losses.append(loss_by_hand(answers[0], targets[0]))
        yield (losses[0] - losses[1]) / 2e-5, nudge.value


def one_key(key: int) -> Callable[[Batch], Tensor]:
    def of_class(batch: Batch) -> Tensor:
        return (torch.arange(batch.length) == key).expand(len(batch), -1)

    return of_class


def disagreement(found: Gradients, model: Encoder, example: int) -> tuple[float, ...]:
    """The largest relative difference to the oracle over PLACES, of each quantity."""
    worst = [0.0, 0.0, 0.0]
    for layer, head, key in PLACES:
        slopes = list(slopes_by_differences(model, example, (layer, head, key)))
        plain = sum(abs(slope) for slope, _ in slopes)
        given = sum(weight for _, weight in slopes)
        expected = (plain, sum(abs(slope) * weight for slope, weight in slopes), given)
        for i, quantity in enumerate(QUANTITIES):
            total, weight = found.rows(str(key), quantity)
            assert weight[example, layer, head] == len(slopes)
            difference = abs(total[example, layer, head] - expected[i])
            worst[i] = max(worst[i], difference / abs(expected[i]))
    return tuple(worst)


SINGLE_KEYS = {str(key): one_key(key) for _, _, key in PLACES}


@pytest.mark.parametrize("name", ["bert", "mpnet", "deberta-v2"])  # the last two: intercepted
def test_gradients_are_those_of_finite_differences(
    name: str, folders: Callable[[str], Path]
) -> None:
    model = exact(folders(name))
    found = gradients(model, classes=SINGLE_KEYS, batch_size=3)
    assert max(disagreement(found, model, 3)) < 1e-5


def test_the_loss_is_the_one_the_gradient_is_of(bert: Encoder) -> None:
    found = gradients(bert)
    for index, pieces in enumerate(encode(TEXTS, bert, max_length=60)):
        batch, targets = masked(Collator(bert)([pieces]), bert, rate=0.3)
        with torch.no_grad(), tapped(bert, tap := Tap()):
            answers = run_tapped(bert, batch, tap)[0]
        assert found.loss[index] == pytest.approx(loss_by_hand(answers[0], targets[0]))


def test_the_gradient_of_a_batch_mean_is_caught(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = module.example_losses
    monkeypatch.setattr(module, "example_losses", lambda *given: right(*given) / len(given[1]))
    found = gradients(bert, classes=SINGLE_KEYS, batch_size=4)
    assert min(disagreement(found, bert, 3)[:2]) > 0.5


def test_swapped_query_and_key_are_caught(bert: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    right = module._sums
    monkeypatch.setattr(module, "_sums", lambda size, *rest: right(size.mT, *rest))
    found = gradients(bert, classes=SINGLE_KEYS)
    assert max(disagreement(found, bert, 3)) > 0.1


# --- laws -----------------------------------------------------------------------------------


def assert_same(one: Gradients, other: Gradients, rtol: float = 1e-9) -> None:
    assert np.array_equal(one.weight, other.weight)
    np.testing.assert_allclose(one.loss, other.loss, rtol=rtol)
    for quantity in QUANTITIES:
        np.testing.assert_allclose(
            one.total[quantity], other.total[quantity], rtol=rtol, atol=rtol * 1e-3
        )


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_batch_size_and_padding_change_nothing(name: str, folders: Callable[[str], Path]) -> None:
    model = exact(folders(name))
    alone = gradients(model, batch_size=1)
    assert_same(alone, gradients(model, batch_size=4))
    assert_same(alone, gradients(model, batch_size=3))


def test_slices_of_a_batch_change_nothing(bert: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gradients(bert)
    monkeypatch.setattr("attnlib.attention.tap.SLICE_BYTES", 1)
    assert_same(whole, gradients(bert))


def test_a_frozen_model_and_a_caller_without_gradients_change_nothing(
    bert: Encoder,
) -> None:
    plain = gradients(bert)
    with torch.inference_mode():
        assert_same(plain, gradients(bert))
    bert.model.requires_grad_(False)
    assert_same(plain, gradients(bert))


def test_nothing_is_left_in_the_model(bert: Encoder) -> None:
    gradients(bert)
    assert all(parameter.grad is None for parameter in bert.model.parameters())


def test_the_papers_classes_share_out_all_keys(bert: Encoder) -> None:
    found = gradients(bert, classes={**KEY_CLASSES, "all": lambda batch: batch.real})
    for quantity in QUANTITIES:
        parts = [found.rows(name, quantity) for name in ("sep", "period_or_comma", "other")]
        total, weight = found.rows("all", quantity)
        np.testing.assert_allclose(sum(part[0] for part in parts), total)
        assert np.array_equal(sum(part[1] for part in parts), weight)
    n_real = [len(pieces) for pieces in encode(TEXTS, bert, max_length=60)]
    assert found.rows("all")[1][:, 0, 0].tolist() == [n * n for n in n_real]
    n_sep = [len(text.parts) for text in TEXTS]
    pairs = [n * n_keys for n, n_keys in zip(n_real, n_sep, strict=True)]
    assert found.rows("sep")[1][:, 0, 0].tolist() == pairs
    assert found.rows("cls")[1][:, 0, 0].tolist() == n_real
    assert (found.rows("cls")[0] < found.rows("other")[0]).all()


def test_a_masked_comma_counts_to_the_other_keys(bert: Encoder) -> None:
    corpus = replace(CORPUS, examples=(Segment("0", ", , , , , , , , , ,"),))
    found = gradients(bert, corpus, mask_rate=0.4)
    n_real = 12
    assert found.rows("period_or_comma")[1][0, 0, 0] == 6 * n_real
    assert found.rows("other")[1][0, 0, 0] == (1 + 4) * n_real


def test_the_seed_decides_the_masks(bert: Encoder) -> None:
    assert not np.allclose(gradients(bert).loss, gradients(bert, seed=1).loss)


# --- tables ---------------------------------------------------------------------------------


def test_tables_hold_the_means_of_every_text(bert: Encoder) -> None:
    found = gradients(bert)
    table = found.table(["a", "a", "b", "c"])
    assert list(table) == ["text", "article", "layer", "class", *QUANTITIES]
    assert len(table) == len(TEXTS) * LAYERS * len(KEY_CLASSES)
    n_real = [len(pieces) for pieces in encode(TEXTS, bert, max_length=60)]
    for row in table.to_dict("records"):
        assert row["article"] == "aabc"[row["text"]]
        for quantity in QUANTITIES:
            total, weight = found.rows(row["class"], quantity)
            assert total.shape == (len(TEXTS), LAYERS, HEADS)
            at = row["text"], row["layer"] - 1
            asked = n_real[row["text"]] if quantity == "attention" else weight[at][0]
            expected = total[at].mean() / asked if asked else np.nan
            assert row[quantity] == pytest.approx(expected, nan_ok=True)
    whole = table[table["class"] != "cls"].groupby(["text", "layer"])["attention"].sum()
    np.testing.assert_allclose(whole, 1)


def test_a_class_that_no_text_has_is_undefined(bert: Encoder) -> None:
    nothing = {"nothing": lambda batch: torch.zeros_like(batch.real), **KEY_CLASSES}
    table = gradients(bert, classes=nothing).table(["a"] * 4).query("`class` == 'nothing'")
    assert table["gradient"].isna().all() and (table["attention"] == 0).all()


@pytest.mark.parametrize("epochs", [0, 1])
def test_attention_is_that_of_the_trained_model(
    folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    """Fig. 3 compares gradients and attention of one network, the trained one if it was."""
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    encoder = load_encoder(folders("bert"))
    texts = [Segment(f"{i}#0", SENTENCES[i % 3]) for i in range(20)]
    fit_on = replace(CORPUS, examples=(*texts, *TEXTS))
    found = module.gradients(CORPUS, fit_on, encoder=encoder, max_length=60, epochs=epochs)
    assert found.facts["n_train"] == 18 and not found.findings
    untrained = replace(encoder, model=_from_weights(encoder, seed=0))
    plain = attention_gradients(untrained, CORPUS, max_length=60).table(list("abcd"))
    assert np.allclose(found.table["attention"], plain["attention"], atol=1e-6) == (epochs == 0)


# --- bad input ------------------------------------------------------------------------------


def test_long_inputs_are_refused(bert: Encoder) -> None:
    with pytest.raises(TooLong):
        gradients(bert, max_length=4)


def test_a_loss_that_is_not_finite_is_refused(bert: Encoder) -> None:
    bert.model.cls.predictions.bias.data[3] = torch.nan
    with pytest.raises(BadValue, match="not finite"):
        gradients(bert)


# --- a real model ---------------------------------------------------------------------------


@pytest.mark.assets
def test_gradients_of_a_real_model(e5_small: Encoder) -> None:
    """One short text of the 144-head model, twice: alone, and padded beside a longer one."""
    own = replace(e5_small, model=_from_weights(e5_small, seed=0))
    long = Segment("1", SENTENCES[0], SENTENCES[4])
    pair = replace(CORPUS, examples=(TEXTS[0], long))
    alone, beside = (
        attention_gradients(own, replace(CORPUS, examples=examples))
        for examples in ((TEXTS[0],), pair.examples)
    )
    assert alone.total["gradient"].shape == (1, 12, 12, len(KEY_CLASSES))
    ours, other = alone.rows("other")[0][0], beside.rows("other")[0][0]
    assert (ours > 0).all() and np.abs(ours - other).max() < 1e-3 * ours.max()
