"""Masks follow from the example alone; a complete checkpoint is used as it is, others train."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from attnlib.attention.encode import Batch, Collator, encode, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment, Tree
from attnlib.errors import BadValue, CorpusError, Unobservable
from attnlib.models import Encoder, load_encoder, random_twin
from experiments.clark2019 import masked_lm as module
from experiments.clark2019.masked_lm import NOT_ASKED, article, example_losses, masked, masked_lm
from experiments.shared.training import loop
from tests.families import FAMILIES, SENTENCES, folders, one_thread
from tests.trainings import DAMAGE, Stopped, never, same, spoil

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


def test_masks_follow_from_the_example_and_not_from_its_batch(bert: Encoder) -> None:
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


def test_losses_are_means_over_the_masked_pieces_of_each_example() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 7, generator=draw, dtype=torch.float64)
    targets = torch.randint(7, (3, 5), generator=draw)
    targets[0, 1:] = targets[1, ::2] = NOT_ASKED
    found = example_losses(logits, targets)
    for row in range(3):
        losses = []
        for place in (targets[row] != NOT_ASKED).nonzero().ravel().tolist():
            one = logits[row, place]
            losses.append((one.exp().sum().log() - one[targets[row, place]]).item())
        assert found[row].item() == pytest.approx(sum(losses) / len(losses))


# --- a complete checkpoint ------------------------------------------------------------------


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
    monkeypatch.setattr(module, "train", never)
    encoder = load_encoder(save_complete(name, tmp_path / name))
    own, facts = masked_lm(encoder, corpus_of(*TEXTS), max_length=60, cache=tmp_path / "kept")
    assert facts["model"] == "checkpoint" and 0 <= facts["accuracy"] <= 1
    complete = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / name).eval()
    inputs = model_inputs(batch_of(encoder), encoder)
    with torch.no_grad():
        assert torch.allclose(own.model(**inputs)[0], complete(**inputs)[0], atol=1e-5)
    assert not any(parameter.requires_grad for parameter in own.model.parameters())
    assert not list((tmp_path / "kept").rglob("*.safetensors"))


def test_an_encoder_alone_and_a_random_twin_have_no_checkpoint(
    bert: Encoder, tmp_path: Path
) -> None:
    assert module._checkpoint(bert) is None
    assert module._checkpoint(replace(bert, source="random weights")) is None
    encoder = load_encoder(save_complete("bert", tmp_path / "bert"))
    assert module._checkpoint(encoder) is not None
    assert module._checkpoint(random_twin(encoder)) is None


# --- a trained model ------------------------------------------------------------------------


def toy(n: int = 40) -> Corpus:
    """Each text repeats one of four words: what is masked follows from the rest."""
    words = ("river", "school", "bridge", "snow")
    return corpus_of(*(Segment(f"{i}#0", " ".join([words[i * 7 % 4]] * 8)) for i in range(n)))


def trained(encoder: Encoder, cache: Path, n: int = 40, **more: Any) -> tuple[Encoder, Any]:
    return masked_lm(encoder, toy(n), max_length=32, cache=cache, **more)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_model_starts_with_the_weights_of_the_encoder(
    name: str, folders: Callable[[str], Path]
) -> None:
    encoder = load_encoder(folders(name))
    model = module._from_weights(encoder, seed=0)
    inputs = model_inputs(batch_of(encoder), encoder)
    with torch.no_grad():
        here, there = (one(**inputs)[0] for one in (model.base_model, encoder.model))
    assert torch.allclose(here, there, atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "albert"])  # one with narrow embeddings
def test_training_beats_the_most_frequent_piece(
    name: str, folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WHOLE_RATE", 5e-3)
    _, facts = trained(load_encoder(folders(name)), tmp_path, head_epochs=5, epochs=30)
    assert facts["model"] == "trained" and not facts.get("cached")
    assert (facts["n_train"], facts["n_held_out"]) == (36, 4)
    assert facts["baseline_accuracy"] < 0.8
    assert facts["accuracy"] > facts["baseline_accuracy"] + 0.2


def test_the_head_alone_learns_on_a_frozen_encoder(bert: Encoder, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in bert.model.state_dict().items()}
    own, _ = trained(bert, tmp_path, head_epochs=2)
    held = own.model.base_model.state_dict()
    assert all(torch.equal(before[name], held[name]) for name in before)
    fresh = module._from_weights(bert, seed=0).state_dict()
    moved = {name for name, now in own.model.state_dict().items() if not now.equal(fresh[name])}
    assert moved and all(name.startswith("cls.") for name in moved)
    assert not any("decoder.weight" in name for name in moved)  # tied to the embeddings
    whole, _ = trained(bert, tmp_path, head_epochs=1, epochs=1)
    held = whole.model.base_model.state_dict()
    assert not all(torch.equal(before[name], held[name]) for name in before)
    now = bert.model.state_dict()
    assert all(torch.equal(before[name], now[name]) for name in before), "the given one changed"


def test_held_out_are_whole_articles() -> None:
    texts = [Segment(f"{'abcdefghij'[i % 10]}#{i}", "a text") for i in range(50)]
    learned, held_out = module._parts(corpus_of(*texts), seed=1)
    assert len(held_out) == 5 and len({article(one) for one in held_out}) == 1
    assert not {article(one) for one in held_out} & {article(one) for one in learned}
    tree = Tree("a#1", ("a",), (-1,), ("root",), ("X",), document="d")
    assert article(tree) == "d"


def test_accuracy_is_that_of_a_plain_loop(bert: Encoder, tmp_path: Path) -> None:
    own, facts = trained(bert, tmp_path)
    learned, held_out = module._parts(toy(), seed=0)
    pieces = [
        int(piece) for one in learned for piece in bert.tokenizer(one.text)["input_ids"][1:-1]
    ]
    frequent = max(set(pieces), key=lambda piece: (pieces.count(piece), -piece))
    right = baseline = n = 0
    # The index of a text decides its masks: held-out texts are numbered among themselves.
    for one in encode(held_out, own, max_length=32):
        changed, targets = masked(Collator(own)([one]), own)
        logits = own.model(**model_inputs(changed, own))[0][0]
        for place, piece in enumerate(targets[0].tolist()):
            if piece != NOT_ASKED:
                right += int(logits[place].argmax()) == piece
                baseline += piece == frequent
                n += 1
    assert facts["accuracy"] == pytest.approx(right / n)
    assert facts["baseline_accuracy"] == pytest.approx(baseline / n)


def state(own: Encoder) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in own.model.state_dict().items()}


def test_a_model_is_found_again_in_the_store(
    bert: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = trained(bert, tmp_path, epochs=1)
    monkeypatch.setattr(module, "train", never)
    again, facts = trained(bert, tmp_path, epochs=1)
    assert facts["cached"] and same(state(own), state(again))
    assert not list(tmp_path.rglob("checkpoint-*"))
    with pytest.raises(AssertionError, match="trained again"):
        trained(bert, tmp_path, epochs=2)


def test_a_training_that_was_killed_ends_with_the_same_weights(
    bert: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = trained(bert, tmp_path / "whole", epochs=2)
    monkeypatch.setattr(loop, "SECONDS_BETWEEN", 0.0)
    step = loop._step
    for only_head in (True, False):

        def stop(run: Any, *given: Any, only_head: bool = only_head) -> None:
            if run.state.steps == 2 and isinstance(run.module, torch.nn.ModuleList) == only_head:
                raise Stopped
            step(run, *given)

        monkeypatch.setattr(loop, "_step", stop)
        with pytest.raises(Stopped):
            trained(bert, tmp_path / "killed", epochs=2)
    monkeypatch.setattr(loop, "_step", step)
    again, facts = trained(bert, tmp_path / "killed", epochs=2)
    assert not facts.get("cached") and same(state(whole), state(again))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_again(bert: Encoder, tmp_path: Path, damage: str) -> None:
    own, _ = trained(bert, tmp_path)
    spoil(tmp_path, damage)
    again, facts = trained(bert, tmp_path)
    assert not facts.get("cached") and same(state(own), state(again))


def test_texts_of_one_article_are_too_few(bert: Encoder, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="texts of 1 article"):
        masked_lm(bert, corpus_of(Segment("a#1", "one"), Segment("a#2", "two")), cache=tmp_path)
