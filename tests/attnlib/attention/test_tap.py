"""The maps the tap sees are the model's own, and it leaves no trace; the rest is refused."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers import AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from attnlib.attention import tap as tapping
from attnlib.attention.encode import Batch, Collator, encode, model_inputs
from attnlib.attention.tap import Tap, check_observable, run_tapped, tapped, uses_interface
from attnlib.data.examples import Segment
from attnlib.errors import AttnlibError, UnknownModel, Unobservable
from attnlib.models import Encoder, load_encoder
from tests.families import (
    FAMILIES,
    HEADS,
    HIDDEN,
    LAYERS,
    POSITIONS,
    SENTENCES,
    byte_level_tokenizer,
    folders,
    one_thread,
    save_model,
)

__all__ = ["folders", "one_thread"]  # fixtures

SINGLES = tuple(Segment(str(i), text) for i, text in enumerate(SENTENCES[:-1]))
PAIRS = tuple(
    Segment(str(i), first, second)
    for i, (first, second) in enumerate([SENTENCES[0:2], SENTENCES[2:4], SENTENCES[5:2:-2]])
)


@pytest.fixture(params=FAMILIES)
def encoder(request: pytest.FixtureRequest, folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders(request.param))


@pytest.fixture
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"))


def batch_of(encoder: Encoder, examples: tuple[Segment, ...]) -> Batch:
    return Collator(encoder)(list(encode(examples, encoder, max_length=encoder.max_length)))


class Recorder:
    """Keeps every map it sees, put together from the slices of the batch."""

    def __init__(self, encoder: Encoder) -> None:
        self.slices: list[list[Tensor]] = [[] for _ in range(encoder.n_layers)]
        self.tap = Tap(observe=self.observe)

    def observe(self, layer: int, rows: slice, weights: Tensor, scores: Tensor | None) -> None:
        assert scores is None or torch.allclose(weights, scores.softmax(-1))
        assert weights.shape[0] == rows.stop - rows.start
        self.slices[layer].append(weights.detach().clone())

    @property
    def maps(self) -> list[Tensor]:
        return [torch.cat(layer) for layer in self.slices]


def observed(encoder: Encoder, batch: Batch, **options: Any) -> tuple[list[Tensor], Tensor]:
    """The maps of one pass, and the model's answer."""
    recorder = Recorder(encoder)
    with torch.no_grad(), tapped(encoder, recorder.tap):
        output = run_tapped(encoder, batch, recorder.tap, **options)
    return recorder.maps, output.last_hidden_state


def library_maps(encoder: Encoder, batch: Batch, segment_ids: str = "pair") -> tuple[Tensor, ...]:
    """What the library itself returns, with its slow attention function."""
    before = encoder.model.config._attn_implementation
    encoder.model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            inputs = model_inputs(batch, encoder, segment_ids)
            return encoder.model(**inputs, output_attentions=True).attentions
    finally:
        encoder.model.set_attn_implementation(before)


def bare(encoder: Encoder, batch: Batch) -> Tensor:
    with torch.no_grad():
        return encoder.model(**model_inputs(batch, encoder)).last_hidden_state


def largest_difference(ours: list[Tensor], theirs: tuple[Tensor, ...], real: Tensor) -> float:
    """Over the rows of real queries."""
    rows = real[:, None, :, None]
    pairs = zip(ours, theirs, strict=True)
    return max(((a - b) * rows).abs().max().item() for a, b in pairs)


# --- the maps are the model's own -----------------------------------------------------------


@pytest.mark.parametrize("examples", [SINGLES, PAIRS], ids=["singles", "pairs"])
def test_maps_are_those_of_the_library(encoder: Encoder, examples: tuple[Segment, ...]) -> None:
    batch = batch_of(encoder, examples)
    assert not batch.real.all(), "the test needs padding"
    maps, _ = observed(encoder, batch)
    assert [tuple(m.shape) for m in maps] == [
        (len(batch), HEADS, batch.length, batch.length)
    ] * LAYERS
    assert largest_difference(maps, library_maps(encoder, batch), batch.real) < 1e-5


def test_maps_are_distributions_over_real_keys(encoder: Encoder) -> None:
    batch = batch_of(encoder, SINGLES)
    for weights in observed(encoder, batch)[0]:
        sums = weights.sum(-1)[batch.real.unsqueeze(1).expand(-1, HEADS, -1)]
        assert torch.allclose(sums, torch.ones_like(sums))
        on_padding = weights * (~batch.real)[:, None, None, :] * batch.real[:, None, :, None]
        assert on_padding.abs().max() == 0


def test_observing_does_not_change_the_answer(encoder: Encoder) -> None:
    batch = batch_of(encoder, SINGLES)
    _, seen = observed(encoder, batch)
    difference = (seen - bare(encoder, batch)) * batch.real.unsqueeze(-1)
    assert difference.abs().max() < 1e-5


def test_a_dropped_mask_is_noticed(bert: Encoder) -> None:
    """The trap in transformers 5: a function without its mask function sees the padding."""
    batch = batch_of(bert, SINGLES)
    check_observable(bert)
    del AttentionMaskInterface._global_mapping[tapping.NAME]
    try:
        maps, seen = observed(bert, batch)
    finally:
        AttentionMaskInterface.register(tapping.NAME, ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    difference = (seen - bare(bert, batch)) * batch.real.unsqueeze(-1)
    assert difference.abs().max() > 1e-2
    assert largest_difference(maps, library_maps(bert, batch), batch.real) > 1e-2


def test_the_trial_notices_a_dropped_mask(bert: Encoder) -> None:
    del AttentionMaskInterface._global_mapping[tapping.NAME]
    try:
        with pytest.raises(Unobservable, match="its output changes when it is observed"):
            check_observable(bert)
    finally:
        AttentionMaskInterface.register(tapping.NAME, ALL_MASK_ATTENTION_FUNCTIONS["eager"])


@pytest.mark.parametrize("size", [1, 3 * HEADS * 30 * 30 * 4, 2**30])
def test_slices_of_any_size_show_the_same_maps(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    batch = batch_of(bert, SINGLES)
    monkeypatch.setattr(tapping, "SLICE_BYTES", size)
    maps, seen = observed(bert, batch)
    assert largest_difference(maps, library_maps(bert, batch), batch.real) < 1e-5
    assert ((seen - bare(bert, batch)) * batch.real.unsqueeze(-1)).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["bert", "electra", "albert"])
def test_segment_ids_reach_the_model(folders: Callable[[str], Path], name: str) -> None:
    encoder = load_encoder(folders(name))
    batch = batch_of(encoder, PAIRS)
    pair, _ = observed(encoder, batch, segment_ids="pair")
    zeros, _ = observed(encoder, batch, segment_ids="zeros")
    assert largest_difference(zeros, library_maps(encoder, batch, "zeros"), batch.real) < 1e-5
    assert largest_difference(pair, tuple(zeros), batch.real) > 1e-3


def test_both_routes_are_covered(folders: Callable[[str], Path]) -> None:
    routes = {name: uses_interface(load_encoder(folders(name))) for name in ("bert", "mpnet")}
    assert routes == {"bert": True, "mpnet": False}


def test_every_position_can_be_used(encoder: Encoder) -> None:
    """The limit is neither one too large (an index error) nor too small."""
    family = FAMILIES[encoder.model.config.model_type]
    assert encoder.max_length == family.max_length
    examples = (Segment("long", " ".join(["the river"] * POSITIONS)),)
    (cut,) = encode(examples, encoder, max_length=encoder.max_length, on_long="truncate")
    batch = Collator(encoder)([cut])
    assert batch.length == encoder.max_length
    assert bare(encoder, batch).isfinite().all()


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_half_precision_runs_as_it_is(folders: Callable[[str], Path], name: str) -> None:
    encoder = load_encoder(folders(name), dtype=torch.bfloat16)
    batch = batch_of(encoder, SINGLES)
    seen: list[Tensor] = []
    tap = Tap(observe=lambda layer, rows, weights, scores: seen.append(weights))
    with torch.no_grad(), tapped(encoder, tap):
        answer = run_tapped(encoder, batch, tap).last_hidden_state
    assert {weights.dtype for weights in seen} == {torch.bfloat16}
    assert answer.dtype == torch.bfloat16
    rows = batch.real[:, None, :, None]
    for ours, theirs in zip(seen, library_maps(encoder, batch), strict=True):
        assert ((ours - theirs).float() * rows).abs().max() < 0.02


@pytest.mark.assets
def test_maps_of_a_trained_model(e5_small: Encoder) -> None:
    encoder = e5_small
    batch = batch_of(encoder, SINGLES[:4] + PAIRS[:1])
    maps, seen = observed(encoder, batch)
    assert largest_difference(maps, library_maps(encoder, batch), batch.real) < 1e-5
    assert ((seen - bare(encoder, batch)) * batch.real.unsqueeze(-1)).abs().max() < 1e-5


# --- changing the maps ----------------------------------------------------------------------


def zero_head(head: int, layer: int) -> Callable[[int, slice, Tensor], Tensor | None]:
    def change(at: int, rows: slice, weights: Tensor) -> Tensor | None:
        if at != layer:
            return None
        weights = weights.clone()
        weights[:, head] = 0
        return weights

    return change


def bert_layer(layer: Any, hidden: Tensor, weights: Tensor) -> Tensor:
    """One layer of a BERT, written from its paper, with the attention weights given."""
    attention = layer.attention
    split = attention.self.value(hidden).view(*hidden.shape[:2], HEADS, -1).transpose(1, 2)
    mixed = (weights @ split).transpose(1, 2).reshape(hidden.shape)
    inner = attention.output.LayerNorm(attention.output.dense(mixed) + hidden)
    wide = torch.nn.functional.gelu(layer.intermediate.dense(inner))
    return layer.output.LayerNorm(layer.output.dense(wide) + inner)


@pytest.mark.parametrize("kind", ["zero", "uniform"])
def test_changed_maps_are_what_the_layer_computes_with(bert: Encoder, kind: str) -> None:
    """Layer 2 with one head changed, against the same layer computed by hand."""
    batch = batch_of(bert, SINGLES)
    head, layer = 1, 1
    original = observed(bert, batch)[0][layer]
    wanted = original.clone()
    uniform = batch.real / batch.real.sum(-1, keepdim=True)
    wanted[:, head] = 0 if kind == "zero" else uniform[:, None, :]

    def change(at: int, rows: slice, weights: Tensor) -> Tensor | None:
        return wanted[rows] if at == layer else None

    tap = Tap(change=change)
    with torch.no_grad(), tapped(bert, tap):
        inputs = model_inputs(batch, bert)
        states = bert.model(**inputs, output_hidden_states=True).hidden_states
    with torch.no_grad():
        by_hand = bert_layer(bert.model.encoder.layer[layer], states[layer], wanted)
        unchanged = bert_layer(bert.model.encoder.layer[layer], states[layer], original)
    real = batch.real.unsqueeze(-1)
    assert ((states[layer + 1] - by_hand) * real).abs().max() < 1e-5
    assert ((states[layer + 1] - unchanged) * real).abs().max() > 1e-3


def test_a_change_alters_the_answer(encoder: Encoder) -> None:
    batch = batch_of(encoder, SINGLES)
    tap = Tap(change=zero_head(head=2, layer=1))
    with torch.no_grad(), tapped(encoder, tap):
        changed = run_tapped(encoder, batch, tap).last_hidden_state
    assert (changed - bare(encoder, batch)).abs().max() > 1e-3


def test_a_change_of_nothing_is_nothing(encoder: Encoder) -> None:
    batch = batch_of(encoder, SINGLES)
    tap = Tap(change=lambda layer, rows, weights: weights.clone())
    with torch.no_grad(), tapped(encoder, tap):
        changed = run_tapped(encoder, batch, tap).last_hidden_state
    assert ((changed - bare(encoder, batch)) * batch.real.unsqueeze(-1)).abs().max() < 1e-5


def test_what_is_observed_is_what_was_changed(encoder: Encoder) -> None:
    batch = batch_of(encoder, SINGLES)
    seen: list[tuple[int, Tensor, Tensor | None]] = []
    tap = Tap(
        observe=lambda layer, rows, weights, scores: seen.append((layer, weights, scores)),
        change=zero_head(head=0, layer=2),
    )
    with torch.no_grad(), tapped(encoder, tap):
        run_tapped(encoder, batch, tap)
    for layer, weights, scores in seen:
        assert bool((weights[:, 0] == 0).all()) == (layer == 2)
        if layer == 2 or not uses_interface(encoder):
            assert scores is None, "logits of other weights would mislead"
        else:
            assert scores is not None


def test_gradients_of_the_weights(encoder: Encoder) -> None:
    """Clark's and Kovaleva's gradients: d answer / d weights, for every map."""
    batch = batch_of(encoder, SINGLES[:2])
    maps: list[Tensor] = []

    def change(layer: int, rows: slice, weights: Tensor) -> Tensor:
        maps.append(weights.detach().requires_grad_() if layer == 0 else weights)
        maps[-1].retain_grad()
        return maps[-1]

    tap = Tap(change=change)
    with torch.enable_grad(), tapped(encoder, tap):
        run_tapped(encoder, batch, tap).last_hidden_state.square().sum().backward()
    assert len(maps) == LAYERS
    for weights in maps:
        assert weights.grad is not None
        assert weights.grad.isfinite().all()
        assert weights.grad.abs().max() > 0


# --- no trace is left -----------------------------------------------------------------------


def test_the_model_is_as_before(encoder: Encoder) -> None:
    batch = batch_of(encoder, SINGLES)
    before, answer = encoder.model.config._attn_implementation, bare(encoder, batch)
    observed(encoder, batch)
    assert encoder.model.config._attn_implementation == before != tapping.NAME
    assert torch.equal(bare(encoder, batch), answer)


def test_the_model_is_as_before_after_an_error(encoder: Encoder) -> None:
    batch = batch_of(encoder, SINGLES)
    before, answer = encoder.model.config._attn_implementation, bare(encoder, batch)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    tap = Tap(observe=fail)
    with pytest.raises(ZeroDivisionError), torch.no_grad(), tapped(encoder, tap):
        run_tapped(encoder, batch, tap)
    assert encoder.model.config._attn_implementation == before
    assert torch.equal(bare(encoder, batch), answer)
    assert (
        largest_difference(observed(encoder, batch)[0], library_maps(encoder, batch), batch.real)
        < 1e-5
    )


def test_one_tap_may_serve_many_batches(encoder: Encoder) -> None:
    layers: list[int] = []
    tap = Tap(observe=lambda layer, rows, weights, scores: layers.append(layer))
    with torch.no_grad(), tapped(encoder, tap):
        for example in SINGLES[:3]:
            run_tapped(encoder, batch_of(encoder, (example,)), tap)
    assert layers == list(range(LAYERS)) * 3


def test_nested_taps_and_models(folders: Callable[[str], Path]) -> None:
    """The inner tap sees its own passes only; the outer one works again afterwards."""
    outer_model, inner_model = load_encoder(folders("bert")), load_encoder(folders("electra"))
    for inner in (outer_model, inner_model):
        outer_seen, inner_seen = Recorder(outer_model), Recorder(inner)
        batch, inner_batch = batch_of(outer_model, SINGLES), batch_of(inner, PAIRS)
        with torch.no_grad(), tapped(outer_model, outer_seen.tap):
            with tapped(inner, inner_seen.tap):
                run_tapped(inner, inner_batch, inner_seen.tap)
            run_tapped(outer_model, batch, outer_seen.tap)
        expected = library_maps(outer_model, batch)
        assert largest_difference(outer_seen.maps, expected, batch.real) < 1e-5
        expected = library_maps(inner, inner_batch)
        assert largest_difference(inner_seen.maps, expected, inner_batch.real) < 1e-5
        assert outer_model.model.config._attn_implementation == "sdpa"
        assert inner.model.config._attn_implementation == "sdpa"


def test_two_threads_share_a_model(bert: Encoder) -> None:
    """One thread leaves while the other still measures: threads of one Dask worker do this."""
    batch = batch_of(bert, SINGLES)
    first_in, first_out = threading.Event(), threading.Event()
    found: list[list[Tensor]] = []

    def short() -> None:
        with tapped(bert, Recorder(bert).tap):
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def long() -> None:
        first_in.wait(10)
        recorder = Recorder(bert)
        with torch.no_grad(), tapped(bert, recorder.tap):
            second_in.set()
            first_out.wait(10)
            run_tapped(bert, batch, recorder.tap)
        found.append(recorder.maps)

    second_in = threading.Event()
    threads = [threading.Thread(target=work) for work in (short, long)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert largest_difference(found[0], library_maps(bert, batch), batch.real) < 1e-5
    assert bert.model.config._attn_implementation == "sdpa"


# --- what cannot be observed is refused, in one sentence --------------------------------------


def sizes(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 340,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN,
        "max_position_embeddings": POSITIONS,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        **more,
    }


def one_sentence(error: pytest.ExceptionInfo[AttnlibError], folder: Path) -> str:
    """The message, on one line, naming the model and no type of Python's."""
    message = str(error.value)
    assert "\n" not in message
    assert str(folder) in message
    assert "Traceback" not in message
    return message


REFUSED_AT_LOAD = {
    "t5": (
        lambda: transformers.T5Config(
            vocab_size=340, d_model=HIDDEN, num_layers=2, num_heads=HEADS, d_kv=8, d_ff=HIDDEN
        ),
        "encoder-decoder",
    ),
    "fnet": (
        lambda: transformers.FNetConfig(
            **{k: v for k, v in sizes().items() if k != "num_attention_heads"}
        ),
        "no attention heads",
    ),
    "grouped": (
        lambda: transformers.LlamaConfig(**sizes(num_key_value_heads=2)),
        "shares keys between its heads",
    ),
}
REFUSED_AT_TRIAL = {
    "longformer": (
        lambda: transformers.LongformerConfig(**sizes(attention_window=4)),
        "0 layers were seen, 3 were expected",
    ),
    "capped": (
        lambda: transformers.Gemma2Config(
            **sizes(num_key_value_heads=HEADS, head_dim=8, attn_logit_softcapping=1.0)
        ),
        "its output changes when it is observed",
    ),
}


@pytest.mark.parametrize("name", REFUSED_AT_LOAD)
def test_unsuited_models_are_refused_at_load(name: str, tmp_path: Path) -> None:
    config, reason = REFUSED_AT_LOAD[name]
    save_model(config(), byte_level_tokenizer(), tmp_path)
    with pytest.raises(Unobservable, match=reason) as error:
        load_encoder(tmp_path)
    assert "BERT" in one_sentence(error, tmp_path)


@pytest.mark.parametrize("name", REFUSED_AT_TRIAL)
def test_hidden_attention_is_refused_before_the_first_batch(name: str, tmp_path: Path) -> None:
    config, reason = REFUSED_AT_TRIAL[name]
    encoder = load_encoder(save_model(config(), byte_level_tokenizer(), tmp_path))
    with pytest.raises(Unobservable, match=reason) as error, tapped(encoder, Tap()):
        pytest.fail("the context was entered")
    assert "use an encoder such as BERT" in one_sentence(error, tmp_path)


def test_a_model_that_fails_on_text_is_refused(bert: Encoder) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("You have to specify pixel_values.\nMore lines")

    bert.model.forward = fail
    with pytest.raises(Unobservable, match=r"failed \(You have to specify pixel_values\)"):
        check_observable(bert)


def test_a_model_is_tried_once(bert: Encoder) -> None:
    passes: list[int] = []
    bert.model.register_forward_hook(lambda *_: passes.append(1))
    for _ in range(3):
        with tapped(bert, Tap()):
            pass
    assert len(passes) == 2


def test_a_layer_that_goes_missing_is_said(bert: Encoder) -> None:
    batch, tap = batch_of(bert, SINGLES), Tap()
    with torch.no_grad(), tapped(bert, tap):
        del bert.model.encoder.layer[-1]
        with pytest.raises(Unobservable, match="2 attention layers were seen, 3 were expected"):
            run_tapped(bert, batch, tap)


# --- folders that are not a model ---------------------------------------------------------


def rewrite_config(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return damage


def truncate_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def remove(*names: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / name).unlink() for name in names] and None


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def add_pieces(folder: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["zyzzyva"])
    tokenizer.save_pretrained(folder)


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (remove("config.json"), "has no config.json"),
    "config is no json": (write("config.json", b"{"), "config.json cannot be read"),
    "config is empty": (write("config.json", b"[]"), "config.json cannot be read"),
    "config is a list": (write("config.json", b"[1]"), "config.json cannot be read"),
    "config is binary": (write("config.json", b"\xff\x00"), "config.json cannot be read"),
    "config of no model": (write("config.json", b'{"a": 1}'), "config.json cannot be read"),
    "unknown kind": (rewrite_config(model_type="xyz"), "config.json cannot be read"),
    "wrong type": (rewrite_config(num_hidden_layers="three"), "config.json cannot be read"),
    "needs foreign code": (
        rewrite_config(model_type="xyz", auto_map={"AutoConfig": "a.B", "AutoModel": "a.C"}),
        "custom code",
    ),
    "no weights": (remove("model.safetensors"), "weights cannot be loaded"),
    "truncated weights": (truncate_weights, "weights cannot be loaded"),
    "empty weights": (write("model.safetensors", b""), "weights cannot be loaded"),
    "layers missing": (rewrite_config(num_hidden_layers=5), "weights are missing"),
    "other width": (rewrite_config(hidden_size=64), "weights are missing or of another shape"),
    "indivisible": (rewrite_config(num_attention_heads=5), "not a multiple"),
    "no tokenizer": (remove("tokenizer.json", "tokenizer_config.json"), "has no tokenizer"),
    "no tokenizer.json": (remove("tokenizer.json"), "has no tokenizer"),
    "tokenizer is no json": (write("tokenizer.json", b"{"), "tokenizer cannot be loaded"),
    "foreign tokenizer": (add_pieces, "tokenizer numbers pieces up to"),
}


@pytest.mark.parametrize("name", ["bert", "roberta"])
@pytest.mark.parametrize("fault", BROKEN)
def test_broken_folders(
    folders: Callable[[str], Path], tmp_path: Path, name: str, fault: str
) -> None:
    damage, reason = BROKEN[fault]
    folder = tmp_path / "model"
    shutil.copytree(folders(name), folder)
    damage(folder)
    with pytest.raises(UnknownModel, match=reason) as error:
        load_encoder(folder)
    one_sentence(error, folder)


def test_a_checkpoint_without_pooler_is_whole(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    """Masked-LM checkpoints have a head of their own and no pooler."""
    config = transformers.AutoConfig.from_pretrained(folders("bert"))
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folders("bert") / name, tmp_path)
    assert load_encoder(tmp_path).n_layers == LAYERS


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_text("x")
    with pytest.raises(UnknownModel, match="is a file"):
        load_encoder(path)


@pytest.fixture(autouse=True)
def _no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that asks on the terminal would hang a run in the background."""

    def refuse(*_: object) -> str:
        raise AssertionError("a question was asked on the terminal")

    monkeypatch.setattr("builtins.input", refuse)
