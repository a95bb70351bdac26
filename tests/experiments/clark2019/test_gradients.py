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
from experiments.clark2019.masked_lm import NOT_ASKED, MaskedLMHead, masked
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


def exact(folder: Path) -> tuple[Encoder, MaskedLMHead]:
    """A tiny model in double precision with a head of random weights."""
    encoder = load_encoder(folder, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    head = MaskedLMHead(encoder)
    for parameter in head.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return encoder, head.requires_grad_(False)


@pytest.fixture
def bert(folders: Callable[[str], Path]) -> tuple[Encoder, MaskedLMHead]:
    return exact(folders("bert"))


def gradients(model: tuple[Encoder, MaskedLMHead], corpus: Corpus = CORPUS, **more: Any) -> Any:
    return attention_gradients(*model, corpus, **{"max_length": 60, "mask_rate": 0.3, **more})


# --- an oracle that knows no derivative -----------------------------------------------------


def loss_by_hand(head: MaskedLMHead, hidden: Tensor, targets: Tensor) -> float:
    """Mean surprise of the masked pieces of one example, one piece after the other."""
    losses = []
    for place, piece in enumerate(targets.tolist()):
        if piece != NOT_ASKED:
            logits = head(hidden[place])
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
    model: tuple[Encoder, MaskedLMHead], example: int, place: tuple[int, int, int]
) -> Iterator[tuple[float, float]]:
    """For each query: (L(a + e) - L(a - e)) / 2e, and a itself."""
    encoder, head = model
    pieces = list(encode(TEXTS, encoder, max_length=60))[example]
    batch, targets = masked(Collator(encoder)([pieces]), encoder, rate=0.3)
    layer, at_head, key = place
    for query in range(len(pieces)):
        losses = []
        for by in (1e-5, -1e-5):
            nudge = Nudge(layer, at_head, query, key, by)
            tap = Tap(change=nudge)
            with torch.no_grad(), tapped(encoder, tap):
                hidden = run_tapped(encoder, batch, tap)[0]
                losses.append(loss_by_hand(head, hidden[0], targets[0]))
        yield (losses[0] - losses[1]) / 2e-5, nudge.value


def one_key(key: int) -> Callable[[Batch], Tensor]:
    def of_class(batch: Batch) -> Tensor:
        return (torch.arange(batch.length) == key).expand(len(batch), -1)

    return of_class


def disagreement(
    found: Gradients, model: tuple[Encoder, MaskedLMHead], example: int
) -> tuple[float, float]:
    """The largest relative difference to the oracle over PLACES, of either quantity."""
    worst = [0.0, 0.0]
    for layer, head, key in PLACES:
        slopes = list(slopes_by_differences(model, example, (layer, head, key)))
        plain = sum(abs(slope) for slope, _ in slopes)
        expected = (plain, sum(abs(slope) * weight for slope, weight in slopes))
        for i, quantity in enumerate(QUANTITIES):
            total, weight = found.rows(str(key), quantity)
            assert weight[example, layer, head] == len(slopes)
            difference = abs(total[example, layer, head] - expected[i])
            worst[i] = max(worst[i], difference / abs(expected[i]))
    return worst[0], worst[1]


SINGLE_KEYS = {str(key): one_key(key) for _, _, key in PLACES}


@pytest.mark.parametrize("name", ["bert", "mpnet", "deberta-v2"])  # the last two: intercepted
def test_gradients_are_those_of_finite_differences(
    name: str, folders: Callable[[str], Path]
) -> None:
    model = exact(folders(name))
    found = gradients(model, classes=SINGLE_KEYS, batch_size=3)
    assert max(disagreement(found, model, 3)) < 1e-5


def test_the_loss_is_the_one_the_gradient_is_of(bert: tuple[Encoder, MaskedLMHead]) -> None:
    encoder, head = bert
    found = gradients(bert)
    for index, pieces in enumerate(encode(TEXTS, encoder, max_length=60)):
        batch, targets = masked(Collator(encoder)([pieces]), encoder, rate=0.3)
        with torch.no_grad(), tapped(encoder, tap := Tap()):
            hidden = run_tapped(encoder, batch, tap)[0]
        assert found.loss[index] == pytest.approx(loss_by_hand(head, hidden[0], targets[0]))


def test_the_gradient_of_a_batch_mean_is_caught(
    bert: tuple[Encoder, MaskedLMHead], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = module.example_losses
    monkeypatch.setattr(module, "example_losses", lambda *given: right(*given) / len(given[2]))
    found = gradients(bert, classes=SINGLE_KEYS, batch_size=4)
    assert min(disagreement(found, bert, 3)) > 0.5


def test_swapped_query_and_key_are_caught(
    bert: tuple[Encoder, MaskedLMHead], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_slices_of_a_batch_change_nothing(
    bert: tuple[Encoder, MaskedLMHead], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gradients(bert)
    monkeypatch.setattr("attnlib.attention.tap.SLICE_BYTES", 1)
    assert_same(whole, gradients(bert))


def test_a_frozen_model_and_a_caller_without_gradients_change_nothing(
    bert: tuple[Encoder, MaskedLMHead],
) -> None:
    plain = gradients(bert)
    with torch.inference_mode():
        assert_same(plain, gradients(bert))
    bert[0].model.requires_grad_(False)
    assert_same(plain, gradients(bert))


def test_nothing_is_left_in_the_model(bert: tuple[Encoder, MaskedLMHead]) -> None:
    gradients(bert)
    assert all(parameter.grad is None for parameter in bert[0].model.parameters())


def test_the_papers_classes_share_out_all_keys(bert: tuple[Encoder, MaskedLMHead]) -> None:
    found = gradients(bert, classes={**KEY_CLASSES, "all": lambda batch: batch.real})
    for quantity in QUANTITIES:
        parts = [found.rows(name, quantity) for name in ("sep", "period_or_comma", "other")]
        total, weight = found.rows("all", quantity)
        np.testing.assert_allclose(sum(part[0] for part in parts), total)
        assert np.array_equal(sum(part[1] for part in parts), weight)
    n_real = [len(pieces) for pieces in encode(TEXTS, bert[0], max_length=60)]
    assert found.rows("all")[1][:, 0, 0].tolist() == [n * n for n in n_real]
    n_sep = [len(text.parts) for text in TEXTS]
    pairs = [n * n_keys for n, n_keys in zip(n_real, n_sep, strict=True)]
    assert found.rows("sep")[1][:, 0, 0].tolist() == pairs
    assert found.rows("cls")[1][:, 0, 0].tolist() == n_real
    assert (found.rows("cls")[0] < found.rows("other")[0]).all()


def test_a_masked_comma_counts_to_the_other_keys(bert: tuple[Encoder, MaskedLMHead]) -> None:
    corpus = replace(CORPUS, examples=(Segment("0", ", , , , , , , , , ,"),))
    found = gradients(bert, corpus, mask_rate=0.4)
    n_real = 12
    assert found.rows("period_or_comma")[1][0, 0, 0] == 6 * n_real
    assert found.rows("other")[1][0, 0, 0] == (1 + 4) * n_real


def test_the_seed_decides_the_masks(bert: tuple[Encoder, MaskedLMHead]) -> None:
    assert not np.allclose(gradients(bert).loss, gradients(bert, seed=1).loss)


# --- tables ---------------------------------------------------------------------------------


def test_tables_hold_means_over_examples(bert: tuple[Encoder, MaskedLMHead]) -> None:
    found = gradients(bert)
    table = found.layer_table()
    assert list(table) == ["class", "quantity", "layer", "mean", "low", "high", "n"]
    assert len(table) == 2 * len(KEY_CLASSES) * LAYERS
    for row in table.to_dict("records"):
        total, weight = found.rows(row["class"], row["quantity"])
        assert total.shape == (len(TEXTS), LAYERS, HEADS)
        with np.errstate(invalid="ignore"):  # an example without a comma says nothing about commas
            means = (total / weight)[:, row["layer"] - 1]
        assert row["mean"] == pytest.approx(np.nanmean(means, axis=0).mean())
        assert row["low"] <= row["mean"] <= row["high"]


def test_a_class_no_example_has_is_nan_and_counted(bert: tuple[Encoder, MaskedLMHead]) -> None:
    nothing = {"nothing": lambda batch: torch.zeros_like(batch.real), **KEY_CLASSES}
    table = gradients(bert, classes=nothing).layer_table().query("`class` == 'nothing'")
    assert table["mean"].isna().all() and (table["n"] == 0).all()
    few = gradients(bert, mask_rate=0.9).layer_table().query("`class` == 'period_or_comma'")
    assert (few["n"] < len(TEXTS)).all(), "an example without a comma says nothing about commas"


# --- bad input ------------------------------------------------------------------------------


def test_long_inputs_are_refused(bert: tuple[Encoder, MaskedLMHead]) -> None:
    with pytest.raises(TooLong):
        gradients(bert, max_length=4)


def test_a_loss_that_is_not_finite_is_refused(bert: tuple[Encoder, MaskedLMHead]) -> None:
    bert[1].bias.data[3] = torch.nan
    with pytest.raises(BadValue, match="not finite"):
        gradients(bert)


# --- a real model ---------------------------------------------------------------------------


@pytest.mark.assets
def test_gradients_of_a_real_model(e5_small: Encoder) -> None:
    """One short text of the 144-head model, twice: alone, and padded beside a longer one."""
    head = MaskedLMHead(e5_small).requires_grad_(False)
    long = Segment("1", SENTENCES[0], SENTENCES[4])
    pair = replace(CORPUS, examples=(TEXTS[0], long))
    alone, beside = (
        attention_gradients(e5_small, head, replace(CORPUS, examples=examples))
        for examples in ((TEXTS[0],), pair.examples)
    )
    assert alone.total["gradient"].shape == (1, 12, 12, len(KEY_CLASSES))
    ours, other = alone.rows("other")[0][0], beside.rows("other")[0][0]
    assert (ours > 0).all() and np.abs(ours - other).max() < 1e-3 * ours.max()
