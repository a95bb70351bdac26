"""Sweeps answer as whole passes do, to the last bit; random heads match the layers of a set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attnlib.attention import ablation
from attnlib.attention import tap as tapping
from attnlib.attention.ablation import (
    every_head,
    every_layer,
    matched_draws,
    replays,
    run_changed,
)
from attnlib.attention.encode import model_inputs
from attnlib.attention.interventions import Intervention, head_named, single_heads
from attnlib.errors import BadValue, Unobservable
from attnlib.models import Encoder, load_encoder
from tests.attnlib.attention.test_interventions import (
    SETTINGS,
    SOME,
    TEXTS,
    apart,
    batch_of,
    bert,
    by_hand,
    edit_of,
)
from tests.families import FAMILIES, HEADS, LAYERS, folders, one_thread

__all__ = ["bert", "folders", "one_thread"]  # fixtures


# --- which heads ------------------------------------------------------------------------------


def test_a_sweep_has_every_head_and_every_layer(bert: Encoder) -> None:
    heads, layers = every_head(bert, "zero"), every_layer(bert, "no_intra", renormalise=True)
    assert len(heads) == LAYERS * HEADS and list(layers) == ["layer 1", "layer 2", "layer 3"]
    assert heads["2-4"] == (Intervention(frozenset({(1, 3)}), "zero"),)
    (whole,) = layers["layer 2"]
    assert whole.heads == {(1, head) for head in range(HEADS)}
    assert (whole.action, whole.renormalise) == ("no_intra", True)


# --- random heads of the same layers --------------------------------------------------------------

GIVEN = frozenset({(0, 3), (2, 0), (2, 1), (2, 5), *((4, head) for head in range(6))})


def test_random_sets_have_as_many_heads_in_every_layer() -> None:
    drawn = matched_draws(GIVEN, 6, draws=40, seed=3)
    assert len(drawn) == 40 and len(set(drawn)) > 20
    for one in drawn:
        assert Counter(layer for layer, _ in one) == {0: 1, 2: 3, 4: 6}
        assert all(0 <= head < 6 and type(head) is int for _, head in one)
        assert {(layer, head) for layer, head in one if layer == 4} == {
            (4, head) for head in range(6)
        }


def test_random_sets_are_seeded_and_do_not_depend_on_the_order() -> None:
    first = matched_draws(sorted(GIVEN), 6, draws=5, seed=1)
    assert matched_draws(sorted(GIVEN, reverse=True), 6, draws=5, seed=1) == first
    assert matched_draws(sorted(GIVEN), 6, draws=5, seed=2) != first
    assert matched_draws([*GIVEN, *GIVEN], 6, draws=5, seed=1) == first
    assert matched_draws(GIVEN, 6, draws=9, seed=1)[:5] == first


def test_random_sets_are_uniform() -> None:
    """Every head of a layer, the given ones too, is drawn as often as its layer's share says."""
    drawn = matched_draws(GIVEN, 6, draws=3000)
    counts = Counter(head for one in drawn for head in one)
    for layer, share in ((0, 1 / 6), (2, 3 / 6), (4, 1.0)):
        spread = math.sqrt(share * (1 - share) / 3000)
        for head in range(6):
            assert abs(counts[layer, head] / 3000 - share) <= 4.5 * spread
    pairs = Counter(
        frozenset(head for layer, head in one if layer == 2) for one in drawn
    )  # 20 sets of three
    assert len(pairs) == 20 and max(pairs.values()) < 3000 / 20 + 5 * math.sqrt(3000 / 20)


def test_of_nothing_nothing_is_drawn() -> None:
    assert matched_draws([], 4, draws=3) == [frozenset()] * 3


@pytest.mark.parametrize(
    ("heads", "draws", "message"),
    [
        ([(0, 4)], 1, "head 5 is not one of the 4 heads"),
        ([(0, -1)], 1, "not one of the 4 heads"),
        ([(0, 0)], 0, "0 random sets were asked for"),
        ([(0, 0)], -2, "one or more"),
    ],
)
def test_random_sets_that_cannot_be_drawn(heads: Any, draws: int, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        matched_draws(heads, 4, draws=draws)


# --- replays --------------------------------------------------------------------------------


def variants_of(encoder: Encoder) -> list[list[Intervention]]:
    """None, every single layer, several layers, and two interventions from the second layer on."""
    cut = {"unit": "segment", "renormalise": True}
    return [
        [],
        *([Intervention(frozenset({(layer, 1)}), "zero")] for layer in range(encoder.n_layers)),
        [Intervention(frozenset(), "zero")],
        [Intervention(SOME, "uniform")],
        [
            Intervention(frozenset({(2, 0)}), "no_intra", **cut),
            Intervention(frozenset({(1, 3), (2, 0)}), "no_inter", specials="kept"),
        ],
        [],
    ]


def state_of(encoder: Encoder) -> list[object]:
    """All that a pass could leave behind in the model."""
    found: list[object] = [encoder.model.config._attn_implementation, tapping._TAP.get()]
    for name, module in encoder.model.named_modules():
        hooks = (len(module._forward_hooks), len(module._forward_pre_hooks))
        found.append((name, sorted(vars(module)), vars(module).get("forward"), hooks))
    return found


@pytest.fixture(params=FAMILIES)
def encoder(request: pytest.FixtureRequest, folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders(request.param))


def test_replays_are_whole_passes_to_the_last_bit(encoder: Encoder) -> None:
    batch = batch_of(encoder)
    variants = variants_of(encoder)
    state = state_of(encoder)
    whole = [run_changed(encoder, batch, variant) for variant in variants]
    count = 0
    for answer, wanted in zip(replays(encoder, batch, variants), whole, strict=True):
        assert torch.equal(answer, wanted)
        assert state_of(encoder) == state, "the model is used between two answers"
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
        answer.zero_()  # the caller's own
        count += 1
    assert count == len(variants)
    differs = [bool((answer - whole[0]).abs().max() > 1e-3) for answer in whole]
    assert differs == [any(one.heads for one in variant) for variant in variants]


def test_layers_are_found_but_where_they_are_shared(encoder: Encoder) -> None:
    shared = encoder.model.config.model_type == "albert"
    layers, _ = ablation._recorded(encoder, batch_of(encoder))
    assert len(layers) == (0 if shared else LAYERS)


@contextmanager
def runs_of(encoder: Encoder) -> Iterator[Counter[int]]:
    """How often the attention of each layer of a BERT runs."""
    runs: Counter[int] = Counter()

    def count(place: int) -> Callable[..., None]:
        return lambda *_: runs.update([place])

    layers = enumerate(encoder.model.encoder.layer)
    handles = [layer.attention.register_forward_hook(count(i)) for i, layer in layers]
    yield runs
    for handle in handles:
        handle.remove()


def test_layers_before_the_change_do_not_run(bert: Encoder) -> None:
    batch = batch_of(bert)
    tapping.check_observable(bert)
    sweep = [[Intervention(frozenset({head}), "zero")] for head in single_heads(bert)]
    with runs_of(bert) as runs:
        assert sum(1 for _ in replays(bert, batch, [[], *sweep])) == 1 + len(sweep)
    assert runs == {layer: 1 + HEADS * (layer + 1) for layer in range(LAYERS)}


def test_the_plain_pass_is_made_only_where_it_pays(bert: Encoder) -> None:
    batch = batch_of(bert)
    tapping.check_observable(bert)
    first, last = (Intervention(frozenset({(layer, 0)}), "zero") for layer in (0, LAYERS - 1))
    for variants, expected in (([[first]] * 5, 5), ([[last]], 1), ([[last], [last]], 1), ([], 0)):
        with runs_of(bert) as runs:
            list(replays(bert, batch, variants))
        assert runs[0] == expected


def test_replays_inside_inference_mode(bert: Encoder) -> None:
    batch, variants = batch_of(bert), variants_of(bert)
    whole = [run_changed(bert, batch, variant) for variant in variants]
    with torch.inference_mode():
        inside = list(replays(bert, batch, variants))
    assert all(torch.equal(a, b) for a, b in zip(inside, whole, strict=True))


def test_a_list_of_other_modules_is_no_list_of_layers(bert: Encoder) -> None:
    batch, variants = batch_of(bert), variants_of(bert)
    whole = [run_changed(bert, batch, variant) for variant in variants]
    decoy = nn.ModuleList(nn.Identity() for _ in range(LAYERS))
    bert.model._modules = {"decoy": decoy, **bert.model._modules}
    assert ablation._recorded(bert, batch)[0] == []
    found = list(replays(bert, batch, variants))
    assert all(torch.equal(a, b) for a, b in zip(found, whole, strict=True))


def test_a_forward_that_was_lent_before_stays(bert: Encoder) -> None:
    """Other libraries put their own forward on a module, too."""
    batch, layer = batch_of(bert), bert.model.encoder.layer[0]
    own, calls = layer.forward, []

    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return own(*args, **kwargs)

    layer.forward = theirs
    last = [Intervention(frozenset({(2, 0)}), "zero")]
    tapping.check_observable(bert)
    calls.clear()
    list(replays(bert, batch, [last, last, last]))
    assert len(calls) == 1
    assert vars(layer)["forward"] is theirs


@pytest.mark.parametrize("at", ["recording", "replaying"])
def test_an_error_leaves_no_trace(bert: Encoder, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    batch, state = batch_of(bert), state_of(bert)
    plain = run_changed(bert, batch, [])
    found = replays(bert, batch, variants_of(bert))
    if at == "replaying":
        next(found)
    with monkeypatch.context() as patch:
        patch.setattr(bert.model.encoder.layer[2].output, "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(found)
    assert state_of(bert) == state
    assert torch.equal(run_changed(bert, batch, []), plain)


def test_a_sweep_that_is_left_leaves_no_trace(bert: Encoder) -> None:
    batch, state = batch_of(bert), state_of(bert)
    found = replays(bert, batch, variants_of(bert)[::-1])
    next(found), next(found)
    found.close()  # type: ignore[attr-defined]
    assert state_of(bert) == state


# --- planted bugs in the replay ---------------------------------------------------------------


def test_a_recall_that_is_not_counted_is_refused(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablation, "_recall", lambda output, tap: lambda *_, **__: output)
    with pytest.raises(Unobservable, match="attention layers were seen"):
        list(replays(bert, batch_of(bert), variants_of(bert)))


def test_the_comparison_rejects_a_record_of_the_layer_beside(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, record = batch_of(bert), ablation._recorded

    def shifted(*args: Any) -> Any:
        recorded, answer = record(*args)
        layers, outputs = zip(*recorded, strict=True)
        return list(zip(layers, outputs[1:] + outputs[:1], strict=True)), answer

    monkeypatch.setattr(ablation, "_recorded", shifted)
    variants = [[Intervention(frozenset({(2, 1)}), "zero")]] * 2
    for answer in replays(bert, batch, variants):
        assert apart(answer, run_changed(bert, batch, variants[0]), batch) > 1e-3


def test_the_comparison_rejects_a_prefix_that_stays(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, state = batch_of(bert), state_of(bert)
    other = batch_of(bert, TEXTS[:1])
    wanted = run_changed(bert, other, [])

    @contextmanager
    def kept(lent: dict[nn.Module, Callable[..., Any]]) -> Iterator[None]:
        for module, forward in lent.items():
            vars(module)["forward"] = forward
        yield

    monkeypatch.setattr(ablation, "_lent_forwards", kept)
    list(replays(bert, batch, [[Intervention(frozenset({(2, 1)}), "zero")]] * 2))
    assert state_of(bert) != state
    left = bert.model(**model_inputs(batch.rows(slice(0, 1)), bert))[0]
    assert left.shape != wanted.shape or apart(left[:, : other.length], wanted, other) > 1e-3


# --- a trained model --------------------------------------------------------------------------


@pytest.mark.assets
def test_replays_of_a_trained_model(e5_small: Encoder) -> None:
    batch = batch_of(e5_small)
    heads = frozenset(map(head_named, ["5-4", "9-12", "9-1"]))
    for settings in (SETTINGS[0], SETTINGS[-1]):
        variant = [Intervention(heads, **settings)]
        _, _, _, answer = replays(e5_small, batch, [variant, variant, [], variant])
        assert torch.equal(answer, run_changed(e5_small, batch, variant))
        wanted = by_hand(e5_small, batch, edit_of(batch, heads, settings))
        assert apart(answer, wanted, batch) < 1e-4


# --- the mean output of a head --------------------------------------------------------------------


@contextmanager
def hooked(encoder: Encoder, layer: int, hook: Callable[..., Any]) -> Iterator[None]:
    """What all heads of a layer hand on, (batch, query, head x dim), goes through the hook."""
    module = encoder.model.encoder.layer[layer].attention.self
    handle = module.register_forward_hook(lambda *given: hook(given[2]))
    try:
        yield
    finally:
        handle.remove()


def test_mean_outputs_are_means_over_real_tokens(bert: Encoder) -> None:
    batch = batch_of(bert)
    seen: list[torch.Tensor] = []
    with hooked(bert, 1, lambda given: seen.append(given[0]) or None), torch.no_grad():
        bert.model(**model_inputs(batch, bert))
    rows = [
        seen[0][example, place].double()
        for example in range(len(batch))
        for place in range(batch.length)
        if batch.real[example, place]
    ]
    wanted = torch.stack(rows).mean(0).view(HEADS, -1)
    parts = [batch_of(bert, TEXTS[:1]), batch_of(bert, TEXTS[1:])]
    assert torch.allclose(ablation.mean_outputs(bert, parts)[1], wanted, atol=1e-6)


def test_a_head_at_its_mean_hands_on_the_same_vector_everywhere(bert: Encoder) -> None:
    batch = batch_of(bert)
    means = ablation.mean_outputs(bert, [batch])
    dim = means.shape[-1]

    def fixed(given: Any) -> Any:
        outputs = given[0].clone()
        outputs[..., 3 * dim : 4 * dim] = means[1, 3].float()
        return (outputs, *given[1:])

    with hooked(bert, 1, fixed), torch.no_grad():
        wanted = bert.model(**model_inputs(batch, bert))[0]
    variants = every_head(bert, "mean", means=means)
    (found,) = replays(bert, batch, [variants["2-4"]])
    zero = run_changed(bert, batch, every_head(bert, "zero")["2-4"])
    real = batch.real
    assert torch.allclose(found[real], wanted[real], atol=1e-5)
    assert (found - zero).abs().max() > 1e-3  # a head at 0 is something else
    swept = list(replays(bert, batch, variants.values()))
    assert torch.equal(swept[HEADS + 3], found)


def test_mean_outputs_are_asked_for(bert: Encoder) -> None:
    with pytest.raises(BadValue, match="expected both, or neither"):
        every_head(bert, "mean")
    with pytest.raises(BadValue, match="no input to take mean outputs from"):
        ablation.mean_outputs(bert, [])


def test_outputs_of_a_model_with_its_own_attention_cannot_be_replaced(
    folders: Callable[[str], Path],
) -> None:
    mpnet = load_encoder(folders("mpnet"))
    with pytest.raises(Unobservable, match="the outputs of its heads cannot"):
        ablation.mean_outputs(mpnet, [batch_of(mpnet)])
