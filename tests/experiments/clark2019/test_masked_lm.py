"""Masks hang on the example alone, a checkpoint's head is used as it is, and others are fitted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from attnlib.attention.encode import Batch, Collator, batches, encode, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment
from attnlib.errors import BadValue, CorpusError, Unobservable
from attnlib.models import Encoder, load_encoder, random_twin
from attnlib.progress import watched
from experiments.clark2019 import masked_lm
from experiments.clark2019.masked_lm import (
    NOT_ASKED,
    Budget,
    MaskedLMHead,
    checkpoint_head,
    example_losses,
    masked,
    masked_lm_head,
)
from tests.families import FAMILIES, SENTENCES, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

TEXTS = tuple(Segment(str(i), text) for i, text in enumerate(SENTENCES[:-1]))


@pytest.fixture
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"))


def batch_of(encoder: Encoder, examples: tuple[Segment, ...] = TEXTS) -> Batch:
    return Collator(encoder)(list(encode(examples, encoder, max_length=encoder.max_length)))


def corpus_of(*examples: Segment) -> Corpus:
    return Corpus("toy", "segment", examples, {}, "here", "")


# --- masks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_only_content_is_masked_and_the_count_is_the_rate(bert: Encoder, rate: float) -> None:
    batch = batch_of(bert)
    changed, targets = masked(batch, bert, rate=rate)
    chosen = targets != NOT_ASKED
    assert not (chosen & (batch.word < 0)).any(), "a special token or padding was masked"
    for row in range(len(batch)):
        n_content = int((batch.word[row] >= 0).sum())
        assert chosen[row].sum() == max(1, round(rate * n_content))
    assert (changed.ids[chosen] == bert.tokenizer.mask_token_id).all()
    assert torch.equal(changed.ids[~chosen], batch.ids[~chosen])
    assert torch.equal(targets[chosen], batch.ids[chosen])
    assert torch.equal(changed.comma, batch.comma)


def test_masks_hang_on_the_example_and_not_on_its_batch(bert: Encoder) -> None:
    pieces = list(encode(TEXTS, bert, max_length=bert.max_length))
    collate = Collator(bert)

    def by_example(*groups: list[Any]) -> dict[int, list[int]]:
        found = {}
        for group in groups:
            batch = collate(group)
            _, targets = masked(batch, bert, seed=3)
            for row, index in enumerate(batch.index):
                found[index] = (targets[row] != NOT_ASKED).nonzero().ravel().tolist()
        return found

    together = by_example(pieces)
    assert together == by_example(*([piece] for piece in pieces))
    assert together == by_example(pieces[::-1]) == by_example(pieces[2:], pieces[:2])


def test_seed_and_draw_change_the_masks(bert: Encoder) -> None:
    batch = batch_of(bert)
    first = masked(batch, bert, seed=0)[1]
    assert torch.equal(first, masked(batch, bert, seed=0, draw=0)[1])
    assert not torch.equal(first, masked(batch, bert, seed=1)[1])
    assert not torch.equal(first, masked(batch, bert, seed=0, draw=1)[1])


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, math.nan])
def test_a_rate_outside_its_range_is_refused(bert: Encoder, rate: float) -> None:
    with pytest.raises(BadValue, match="mask-rate"):
        masked(batch_of(bert), bert, rate=rate)


def test_a_tokenizer_without_a_mask_is_refused(bert: Encoder) -> None:
    class Maskless:
        mask_token_id = None

    with pytest.raises(Unobservable, match="no mask token"):
        masked(batch_of(bert), replace(bert, tokenizer=Maskless()))


def test_losses_are_means_over_the_masked_pieces_of_each_example(bert: Encoder) -> None:
    changed, targets = masked(batch_of(bert), bert, rate=0.4)
    head = MaskedLMHead(bert)
    hidden = bert.model(**model_inputs(changed, bert))[0]
    found = example_losses(head, hidden, targets)
    for row in range(len(targets)):
        losses = []
        for place in (targets[row] != NOT_ASKED).nonzero().ravel().tolist():
            logits = head(hidden[row, place]).double()
            losses.append((logits.exp().sum().log() - logits[targets[row, place]]).item())
        assert found[row].item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)


# --- a checkpoint's own head ----------------------------------------------------------------


def save_complete(name: str, folder: Path) -> Path:
    """A tiny masked-LM model of that family, head and all."""
    family = FAMILIES[name]
    tokenizer = family.tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = transformers.AutoModelForMaskedLM.from_config(family.config(len(tokenizer)))
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", FAMILIES)
def test_a_complete_checkpoint_is_used_as_it_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked_lm, "fit_head", lambda *_, **__: pytest.fail("fitted"))
    encoder = load_encoder(save_complete(name, tmp_path / name))
    options = {"budget": SMALL, "max_length": 60, "cache": tmp_path / "kept"}
    head, facts = masked_lm_head(encoder, corpus_of(*TEXTS), **options)
    assert facts["head"] == "checkpoint" and 0 <= facts["accuracy"] <= 1
    complete = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / name).eval()
    inputs = model_inputs(batch_of(encoder), encoder)
    with torch.no_grad():
        expected, hidden = complete(**inputs).logits, encoder.model(**inputs)[0]
        assert torch.allclose(head(hidden), expected, atol=1e-4)
        assert torch.allclose(head(hidden[1, 2]), expected[1, 2], atol=1e-4)
    assert not any(parameter.requires_grad for parameter in head.parameters())
    assert not list((tmp_path / "kept").rglob("*.safetensors"))


def test_a_checkpoint_without_a_head_has_none(bert: Encoder) -> None:
    assert checkpoint_head(bert) is None
    assert checkpoint_head(replace(bert, source="random weights")) is None


def test_a_random_twin_does_not_inherit_the_head(tmp_path: Path) -> None:
    encoder = load_encoder(save_complete("bert", tmp_path / "bert"))
    assert checkpoint_head(encoder) is not None
    assert checkpoint_head(random_twin(encoder)) is None


def test_our_head_has_the_form_of_berts(tmp_path: Path) -> None:
    """Dense, GELU, LayerNorm, the input embeddings as decoder, a bias: written out."""
    encoder = load_encoder(save_complete("bert", tmp_path / "bert"))
    ours = MaskedLMHead(encoder)
    generator = torch.Generator().manual_seed(1)
    for parameter in ours.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    hidden = torch.randn(5, ours.dense.in_features, generator=generator)
    functional = torch.nn.functional
    inner = functional.gelu(hidden @ ours.dense.weight.T + ours.dense.bias)
    inner = functional.layer_norm(
        inner, inner.shape[-1:], ours.norm.weight, ours.norm.bias, ours.norm.eps
    )
    table = encoder.model.get_input_embeddings().weight
    assert torch.allclose(ours(hidden), inner @ table.T + ours.bias, atol=1e-5)
    assert set(ours.state_dict()) == {
        *("dense.weight", "dense.bias", "norm.weight", "norm.bias", "bias")
    }


# --- a fitted head --------------------------------------------------------------------------

SMALL = Budget(n_maskings=2, n_epochs=20, batch_size=32, learning_rate=5e-3)


def toy(n: int = 80) -> Corpus:
    """Each text repeats one of four words: what is masked follows from the rest."""
    words = ("river", "school", "bridge", "snow")
    return corpus_of(*(Segment(str(i), " ".join([words[i * 7 % 4]] * 8)) for i in range(n)))


def fitted(encoder: Encoder, cache: Path, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    options = {"budget": SMALL, "max_length": 32, **options}
    return masked_lm_head(encoder, toy(), cache=cache, **options)


@pytest.mark.parametrize("name", ["bert", "albert"])  # one with narrow embeddings
def test_a_fitted_head_beats_the_baseline(
    name: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    _, facts = fitted(load_encoder(folders(name)), tmp_path)
    assert facts["head"] == "fitted" and not facts["cached"]
    assert facts["baseline_accuracy"] < 0.6
    assert facts["accuracy"] > facts["baseline_accuracy"] + 0.25
    assert facts["loss"] < facts["baseline_loss"] - 0.3
    assert facts["n_train_segments"] == 72
    assert facts["held_out"] == [str(i) for i in range(72, 80)]
    assert facts["n_train_positions"] == 2 * 72


def share_read(encoder: Encoder) -> float:
    """Of the unmasked pieces of unseen texts, what one epoch learns to read off their vectors."""
    letters = "bcdfghjklmnpqrstvwxz"
    texts = [" ".join(letters[(i * 3 + j * j) % 20] for j in range(20)) for i in range(40)]
    batch = batch_of(encoder, tuple(Segment(str(i), text) for i, text in enumerate(texts)))
    content = batch.word >= 0
    with torch.no_grad():
        hidden = encoder.model(**model_inputs(batch, encoder))[0][content]
    targets, owners = batch.ids[content], content.nonzero()[:, 0]
    seen = owners < 32
    head = MaskedLMHead(encoder)
    counts = torch.bincount(targets[seen], minlength=len(head.bias)).float()
    quick = replace(SMALL, n_epochs=1)
    masked_lm.fit_head(head, hidden[seen], targets[seen], owners[seen], counts, quick)
    return (head(hidden[~seen]).argmax(-1) == targets[~seen]).float().mean().item()


def test_a_head_reads_what_the_vectors_hold(bert: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weak fit looks just like an encoder that knows nothing about masks; here it shows.

    A piece stands in its own vector, and 1 of 20 is right by chance.
    """
    assert share_read(bert) > 0.4

    def weak(head: MaskedLMHead, white: torch.Tensor, targets: torch.Tensor) -> None:
        nn.init.normal_(head.dense.weight, std=0.2, generator=torch.Generator().manual_seed(0))

    monkeypatch.setattr(masked_lm, "_start", weak)
    assert share_read(bert) < 0.25


def test_the_encoder_stays_as_it_is(bert: Encoder, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in bert.model.state_dict().items()}
    fitted(bert, tmp_path)
    assert all(torch.equal(before[name], now) for name, now in bert.model.state_dict().items())


def test_a_head_is_found_again_in_the_cache(
    bert: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, facts = fitted(bert, tmp_path)
    monkeypatch.setattr(masked_lm, "fit_head", lambda *_, **__: pytest.fail("fitted again"))
    again, found = fitted(bert, tmp_path)
    assert {**found, "cached": False} == facts and found["cached"]
    for name, tensor in head.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    kept = {path.name for path in tmp_path.rglob("*") if path.suffix}
    assert {"model.safetensors", "facts.json"} <= kept


def test_whatever_decides_the_head_is_in_its_key(bert: Encoder, tmp_path: Path) -> None:
    quick = replace(SMALL, n_epochs=1)
    fitted(bert, tmp_path, budget=quick)
    fitted(bert, tmp_path, budget=quick, seed=1)
    fitted(bert, tmp_path, budget=quick, mask_rate=0.3)
    fitted(bert, tmp_path, budget=replace(quick, learning_rate=1e-3))
    fitted(random_twin(bert), tmp_path, budget=quick)
    masked_lm_head(bert, toy(60), budget=quick, max_length=32, cache=tmp_path)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 6


def spoil_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-40] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_byte,
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.with_name("facts.json").write_text("{"),
        lambda path: path.with_name("facts.json").write_text(json.dumps([1])),
        lambda path: path.with_name("facts.json").unlink(),
    ],
    ids=["a bit", "cut", "json cut", "json list", "json gone"],
)
def test_a_damaged_file_is_made_again(
    bert: Encoder, tmp_path: Path, spoil: Callable[[Path], Any]
) -> None:
    quick = replace(SMALL, n_epochs=1)
    head, _ = fitted(bert, tmp_path, budget=quick)
    (path,) = tmp_path.rglob("*.safetensors")
    spoil(path)
    again, facts = fitted(bert, tmp_path, budget=quick)
    assert not facts["cached"]
    assert torch.equal(head.state_dict()["dense.weight"], again.state_dict()["dense.weight"])
    assert fitted(bert, tmp_path, budget=quick)[1]["cached"]


def test_a_cache_that_cannot_be_written_costs_only_time(bert: Encoder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    quick = replace(SMALL, n_epochs=1)
    assert not fitted(bert, tmp_path / "file" / "heads", budget=quick)[1]["cached"]


def test_progress_ends_at_its_total(bert: Encoder, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with watched(lambda done, total: seen.append((done, total))):
        fitted(bert, tmp_path)
    assert all(done <= total for done, total in seen) and seen[-1][0] == seen[-1][1]


def test_the_positions_are_capped(
    bert: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masked_lm, "POSITIONS_AT_MOST", 20)
    _, facts = fitted(bert, tmp_path)
    assert 20 <= facts["n_train_positions"] < 20 + 8


def test_one_segment_is_too_few(bert: Encoder, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="two or more"):
        masked_lm_head(bert, corpus_of(TEXTS[0]), budget=SMALL, cache=tmp_path)


def test_what_is_not_hidden_stays_in_sight(e5_small) -> None:  # type: ignore[no-untyped-def]
    """The same pieces are asked for, hidden or not; in sight, the batch is as it was."""
    segments = [Segment("0", "The cat sat on the mat."), Segment("1", "Rain fell all night.")]
    (batch,) = batches(encode(segments, e5_small), e5_small)
    hidden, asked = masked(batch, e5_small, seed=2)
    shown, also_asked = masked(batch, e5_small, seed=2, hide=False)
    assert (asked == also_asked).all() and (shown.ids == batch.ids).all()
    assert (hidden.ids != batch.ids).any()
