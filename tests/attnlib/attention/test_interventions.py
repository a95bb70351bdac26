"""A changed head does what the layer would do with maps edited by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

from attnlib.attention import tap as tapping
from attnlib.attention.ablation import replays, run_changed
from attnlib.attention.encode import Batch, Collator, encode, model_inputs
from attnlib.attention.interventions import (
    Intervention,
    changed,
    check_heads,
    head_named,
    heads_of_types,
    single_heads,
    tap_of,
)
from attnlib.attention.tap import run_tapped, tapped
from attnlib.data.examples import Segment
from attnlib.errors import BadValue, UnknownName
from attnlib.models import Encoder, load_encoder
from tests.families import HEADS, LAYERS, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

TEXTS = (
    Segment("0", "It rained. We took the road. It was so.", "The school was closed. We run."),
    Segment("1", "A bridge."),
    Segment("2", "The snow stayed.", "Why did we wait?"),
)
SOME = frozenset({(0, 1), (1, 0), (1, 3), (2, 2)})

SETTINGS: list[dict[str, Any]] = [
    {"action": "zero"},
    {"action": "uniform"},
    {"action": "uniform", "length": "padded"},
    *(
        {"action": action, "unit": unit, "specials": specials, "renormalise": renormalise}
        for action, unit, specials, renormalise in itertools.product(
            ("no_intra", "no_inter"), ("sentence", "segment"), ("sentence", "kept"), (False, True)
        )
    ),
]


def named(settings: dict[str, Any]) -> str:
    return "-".join(map(str, settings.values()))


@pytest.fixture
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"))


def batch_of(encoder: Encoder, examples: tuple[Segment, ...] = TEXTS) -> Batch:
    return Collator(encoder)(list(encode(examples, encoder, max_length=encoder.max_length)))


# --- the oracle: loops over pairs, and a BERT computed by hand in double precision -----------


def edited(maps: Tensor, batch: Batch, heads: list[int], settings: dict[str, Any]) -> Tensor:
    """The maps of one layer, changed weight by weight as the paper's sec. 5 words it."""
    maps = maps.clone()
    for example, head in itertools.product(range(len(batch)), heads):
        real = batch.real[example].tolist()
        unit = getattr(batch, settings.get("unit", "sentence"))[example].tolist()
        special = (batch.cls | batch.sep)[example].tolist()
        length = sum(real) if settings.get("length", "real") == "real" else len(real)
        for query in range(len(real)):
            row = maps[example, head, query].tolist()
            for key in range(len(real)):
                if settings["action"] == "zero":
                    row[key] = 0.0
                elif settings["action"] == "uniform":
                    row[key] = 1 / length if real[key] else 0.0
                elif settings.get("specials") == "kept" and (special[query] or special[key]):
                    continue
                elif (unit[query] == unit[key]) == (settings["action"] == "no_intra"):
                    row[key] = 0.0
            left = sum(row)
            if settings.get("renormalise") and left > 0:
                row = [weight / left for weight in row]
            maps[example, head, query] = torch.tensor(row, dtype=maps.dtype)
    return maps


Edit = Callable[[int, Tensor], Tensor]


def by_hand(encoder: Encoder, batch: Batch, edit: Edit) -> Tensor:
    """The last hidden states of a BERT, layer after layer, with its maps edited."""
    model, n_heads = encoder.model, encoder.n_heads
    inputs = model_inputs(batch, encoder)
    types = inputs["token_type_ids"]
    with torch.no_grad():
        hidden = model.embeddings(input_ids=batch.ids, token_type_ids=types).double()
        for i, layer in enumerate(model.encoder.layer):
            own, out = layer.attention.self, layer.attention.output
            query, key, value = (
                dense(part, hidden).view(*hidden.shape[:2], n_heads, -1).transpose(1, 2)
                for part in (own.query, own.key, own.value)
            )
            scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
            scores = scores.masked_fill(~batch.real[:, None, None, :], float("-inf"))
            maps = edit(i, scores.softmax(-1))
            mixed = (maps @ value).transpose(1, 2).reshape(hidden.shape)
            inner = norm(out.LayerNorm, dense(out.dense, mixed) + hidden)
            wide = gelu(dense(layer.intermediate.dense, inner))
            hidden = norm(layer.output.LayerNorm, dense(layer.output.dense, wide) + inner)
    return hidden


def dense(part: Any, hidden: Tensor) -> Tensor:
    return linear(hidden, part.weight.double(), part.bias.double())


def norm(part: Any, hidden: Tensor) -> Tensor:
    shape = hidden.shape[-1:]
    return layer_norm(hidden, shape, part.weight.double(), part.bias.double(), part.eps)


def edit_of(batch: Batch, heads: frozenset[tuple[int, int]], settings: dict[str, Any]) -> Edit:
    def edit(layer: int, maps: Tensor) -> Tensor:
        return edited(maps, batch, [head for at, head in heads if at == layer], settings)

    return edit


def apart(ours: Tensor, theirs: Tensor, batch: Batch) -> float:
    """The largest difference on real pieces."""
    return float(((ours - theirs) * batch.real.unsqueeze(-1)).abs().max())


def random_maps(batch: Batch, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(batch), HEADS, batch.length, batch.length)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    return scores.masked_fill(~batch.real[:, None, None, :], float("-inf")).softmax(-1)


# --- the maps -------------------------------------------------------------------------------


def test_the_batch_has_what_the_tests_need(bert: Encoder) -> None:
    batch = batch_of(bert)
    assert batch.sentence.max() == 4, "three sentences in one part, two in the other"
    assert not batch.real.all(), "padding"
    assert sorted({int(part.max()) for part in batch.segment}) == [0, 1], "a single and pairs"


@pytest.mark.parametrize("settings", SETTINGS, ids=named)
def test_maps_are_edited_weight_by_weight(bert: Encoder, settings: dict[str, Any]) -> None:
    batch, heads = batch_of(bert), [0, 3]
    maps = random_maps(batch)
    before = maps.clone()
    one = Intervention(frozenset((1, head) for head in heads), **settings)
    ours = changed(maps, batch, one, layer=1)
    assert torch.allclose(ours, edited(before, batch, heads, settings), rtol=0, atol=1e-14)
    assert torch.equal(ours[:, [1, 2]], before[:, [1, 2]])
    assert not torch.equal(ours, before)
    assert torch.equal(maps, before), "written to"
    assert changed(maps, batch, one, layer=0) is maps


def test_uniform_rows_sum_to_one_or_to_the_real_share(bert: Encoder) -> None:
    batch = batch_of(bert)
    share = batch.real.sum(-1) / batch.length
    for length, expected in (("real", torch.ones(len(batch))), ("padded", share)):
        one = Intervention(frozenset({(0, 2)}), "uniform", length=length)
        sums = changed(random_maps(batch), batch, one, 0)[:, 2].sum(-1)
        assert torch.allclose(sums, expected.double()[:, None].expand_as(sums), atol=1e-7)


def test_what_both_cuts_leave_is_the_whole(bert: Encoder) -> None:
    batch = batch_of(bert)
    maps = random_maps(batch)
    whole = frozenset((0, head) for head in range(HEADS))
    for unit in ("sentence", "segment"):
        parts = [
            changed(maps, batch, Intervention(whole, action, unit=unit), 0)
            for action in ("no_intra", "no_inter")
        ]
        assert torch.equal(parts[0] + parts[1], maps)
        assert min(float(part.sum()) for part in parts) > 1


def test_renormalised_rows_sum_to_one_or_stay_empty(bert: Encoder) -> None:
    batch = batch_of(bert)
    one = Intervention(frozenset({(0, 0)}), "no_intra", unit="segment", renormalise=True)
    sums = changed(random_maps(batch), batch, one, 0)[:, 0].sum(-1)[batch.real]
    alone = (batch.segment.amax(-1, keepdim=True) == 0).expand_as(batch.real)[batch.real]
    assert torch.equal(sums[alone], torch.zeros_like(sums[alone]))
    assert torch.allclose(sums[~alone], torch.ones_like(sums[~alone]))
    assert bool(alone.any())
    assert not alone.all()


def test_an_example_of_nothing_stays_finite(bert: Encoder) -> None:
    batch = batch_of(bert)
    empty = replace(batch, real=torch.zeros_like(batch.real))
    for settings in SETTINGS:
        one = Intervention(frozenset({(0, 0)}), **settings)
        assert changed(random_maps(batch), empty, one, 0).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_maps_keep_their_precision(bert: Encoder, dtype: torch.dtype) -> None:
    batch = batch_of(bert)
    maps = random_maps(batch).to(dtype)
    for settings in SETTINGS:
        ours = changed(maps, batch, Intervention(frozenset({(0, 1)}), **settings), 0)
        wanted = edited(maps.double(), batch, [1], settings)
        assert ours.dtype == dtype
        assert (ours - wanted).abs().max() <= 4 * torch.finfo(dtype).eps


def test_the_maps_oracle_rejects_planted_bugs(bert: Encoder) -> None:
    """Padding counted as real, units swapped, specials or the division forgotten."""
    batch = batch_of(bert)
    maps = random_maps(batch)
    here = frozenset({(0, 1)})
    every = replace(batch, real=torch.ones_like(batch.real))
    wrong = [
        (SETTINGS[1], every, Intervention(here, "uniform")),
        (SETTINGS[1], batch, Intervention(here, "uniform", length="padded")),
        (SETTINGS[0], batch, Intervention(frozenset({(0, 2)}), "zero")),
    ]
    for settings in SETTINGS[3:]:
        for name, (one, other) in {
            "action": ("no_intra", "no_inter"),
            "unit": ("sentence", "segment"),
            "specials": ("sentence", "kept"),
            "renormalise": (True, False),
        }.items():
            swapped = {**settings, name: other if settings[name] == one else one}
            wrong.append((settings, batch, Intervention(here, **swapped)))
    for settings, given, one in wrong:
        found = changed(maps, given, one, 0) - edited(maps, batch, [1], settings)
        assert (found * batch.real[:, None, :, None]).abs().max() > 1e-3, (settings, one)


# --- the model ------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS, ids=named)
def test_the_model_answers_as_by_hand(bert: Encoder, settings: dict[str, Any]) -> None:
    batch = batch_of(bert)
    wanted = by_hand(bert, batch, edit_of(batch, SOME, settings))
    variant = [Intervention(SOME, **settings)]
    assert apart(run_changed(bert, batch, variant), wanted, batch) < 2e-5
    later = frozenset((layer, head) for layer, head in SOME if layer > 0)
    _, replay = replays(bert, batch, [[], [Intervention(later, **settings)]])
    wanted = by_hand(bert, batch, edit_of(batch, later, settings))
    assert apart(replay, wanted, batch) < 2e-5


def test_the_model_oracle_rejects_planted_bugs(bert: Encoder) -> None:
    """The layer or the head beside, and no change at all."""
    batch = batch_of(bert)
    for settings in (SETTINGS[0], SETTINGS[1], SETTINGS[3], SETTINGS[7]):
        wanted = by_hand(bert, batch, edit_of(batch, frozenset({(1, 1)}), settings))
        for place in ((0, 1), (2, 1), (1, 0), (1, 2)):
            one = Intervention(frozenset({place}), **settings)
            assert apart(run_changed(bert, batch, [one]), wanted, batch) > 1e-3
        assert apart(run_changed(bert, batch, []), wanted, batch) > 1e-3


def test_interventions_are_made_in_their_order(bert: Encoder) -> None:
    batch, here = batch_of(bert), frozenset({(1, 2)})
    uniform, cut = Intervention(here, "uniform"), Intervention(here, "no_inter")

    def edit(layer: int, maps: Tensor) -> Tensor:
        if layer != 1:
            return maps
        return edited(edited(maps, batch, [2], SETTINGS[1]), batch, [2], {"action": "no_inter"})

    wanted = by_hand(bert, batch, edit)
    assert apart(run_changed(bert, batch, [uniform, cut]), wanted, batch) < 2e-5
    assert apart(run_changed(bert, batch, [cut, uniform]), wanted, batch) > 1e-3


def test_padding_changes_nothing(bert: Encoder) -> None:
    """An example alone and the same beside a longer one; but for a length that is the batch's."""
    batch, alone = batch_of(bert), batch_of(bert, TEXTS[2:])
    width = alone.length
    for settings in SETTINGS:
        variant = [Intervention(SOME, **settings)]
        beside = run_changed(bert, batch, variant)[2:, :width]
        difference = apart(run_changed(bert, alone, variant), beside, alone)
        assert (difference > 1e-3) == (settings.get("length") == "padded")
        assert difference < 2e-5 or settings.get("length") == "padded"


@pytest.mark.parametrize("size", [1, 2**30])
def test_slices_of_any_size_are_changed_alike(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    batch = batch_of(bert)
    monkeypatch.setattr(tapping, "SLICE_BYTES", size)
    wanted = by_hand(bert, batch, edit_of(batch, SOME, SETTINGS[3]))
    ours = run_changed(bert, batch, [Intervention(SOME, **SETTINGS[3])])
    assert apart(ours, wanted, batch) < 2e-5


def test_untouched_layers_are_left_alone(bert: Encoder) -> None:
    batch = batch_of(bert)
    tap = tap_of([Intervention(frozenset({(1, 0)}), "zero")], batch)
    assert tap.change is not None
    found = [tap.change(layer, slice(0, 3), random_maps(batch)) for layer in range(LAYERS)]
    assert [maps is None for maps in found] == [True, False, True]


def test_gradients_flow_through_a_change(bert: Encoder) -> None:
    batch = batch_of(bert)
    for settings in (SETTINGS[1], SETTINGS[4]):
        tap = tap_of([Intervention(SOME, **settings)], batch)
        bert.model.zero_grad()
        with torch.enable_grad(), tapped(bert, tap):
            run_tapped(bert, batch, tap)[0].square().sum().backward()
        found = bert.model.encoder.layer[0].attention.self.query.weight.grad
        assert found.isfinite().all()
        assert found.abs().max() > 0


# --- names and errors -------------------------------------------------------------------------


def test_heads_by_name_and_by_type() -> None:
    assert [head_named(name) for name in ("5-4", "12-1")] == [(4, 3), (11, 0)]
    types = pd.DataFrame(
        {
            "layer": [1, 1, 2, 2],
            "head": [1, 2, 1, 2],
            "type": ["dense", "vertical", "diagonal", "dense"],
        }
    )
    assert heads_of_types(types, ["dense"]) == {(0, 0), (1, 1)}
    assert heads_of_types(types, ["vertical", "diagonal"]) == {(0, 1), (1, 0)}
    assert heads_of_types(types, []) == frozenset()
    with pytest.raises(UnknownName, match="Did you mean 'diagonal'"):
        heads_of_types(types, ["diagnal"])


def test_single_heads_are_all_heads_once(bert: Encoder) -> None:
    heads = single_heads(bert)
    assert heads[:2] == [(0, 0), (0, 1)]
    assert len(heads) == len(set(heads)) == LAYERS * HEADS


@pytest.mark.parametrize("name", ["5", "0-1", "1-0", "5-4-3", "a-b", "-1-2", "5 - 4", "", "٣-1"])
def test_a_name_of_no_head_is_refused(name: str) -> None:
    with pytest.raises(BadValue, match="expected layer-head from 1"):
        head_named(name)


@pytest.mark.parametrize(
    "settings",
    [
        {"action": "prune"},
        {"action": "zero", "unit": "paragraph"},
        {"action": "zero", "specials": "none"},
        {"action": "uniform", "length": "batch"},
    ],
    ids=named,
)
def test_an_unknown_choice_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadValue, match="expected one of"):
        Intervention(SOME, **settings)


def test_heads_outside_the_model_are_refused(bert: Encoder) -> None:
    batch = batch_of(bert)
    with pytest.raises(BadValue, match="from 0"):
        Intervention(frozenset({(1, -1)}), "zero")
    for place, name in (((LAYERS, 0), "4-1"), ((0, HEADS), "1-5")):
        bad = [Intervention(SOME, "zero"), Intervention(frozenset({place}), "zero")]
        for refused in (
            lambda place=place: check_heads(bert, [*SOME, place]),
            lambda bad=bad: run_changed(bert, batch, bad),
            lambda bad=bad: replays(bert, batch, [[], bad]),  # before the first answer
        ):
            with pytest.raises(BadValue, match=f"{name} .* layers 1 to 3 and heads 1 to 4"):
                refused()
    check_heads(bert, single_heads(bert))


def test_a_uniform_row_may_have_a_length_of_its_own(bert: Encoder) -> None:
    """As if the inputs were padded to that number; an input that is longer has its own length."""
    batch = batch_of(bert)
    weights = torch.full((len(batch), 2, batch.length, batch.length), 0.5)
    for length in (1, batch.length + 7):
        asked = Intervention(frozenset([(0, 1)]), "uniform", length=length)
        rows = changed(weights, batch, asked, 0)[:, 1]
        for i, n in enumerate(batch.real.sum(-1).tolist()):
            torch.testing.assert_close(rows[i, 0, :n], torch.full((n,), 1 / max(n, length)))
            assert (rows[i, 0, n:] == 0).all()
    with pytest.raises(BadValue, match="length is 0; expected 1 or more"):
        Intervention(frozenset(), "uniform", length=0)
