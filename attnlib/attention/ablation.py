"""Sweeps over changed heads: every head alone, whole layers, and random heads to compare with.

Several variants of one batch share the layers before their first change: `replays` computes these
once. Nothing here knows a task: what the changed states are worth is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlib.attention.encode import Batch
from attnlib.attention.interventions import (
    Head,
    Intervention,
    Variant,
    check_heads,
    single_heads,
    tap_of,
)
from attnlib.attention.tap import Tap, run_tapped, tapped
from attnlib.errors import BadValue
from attnlib.models import Encoder

States = Float[Tensor, "batch piece dim"]
Forwards = dict[nn.Module, Callable[..., Any]]


# --- which heads ----------------------------------------------------------------------------------


def every_head(encoder: Encoder, action: str, **how: Any) -> dict[str, Variant]:
    """Each head changed alone, by its name, such as "5-4"; how: see `Intervention`."""
    return {
        f"{layer + 1}-{head + 1}": (Intervention(frozenset([(layer, head)]), action, **how),)
        for layer, head in single_heads(encoder)
    }


def every_layer(encoder: Encoder, action: str, **how: Any) -> dict[str, Variant]:
    """All heads of each layer changed together, by its name, such as "layer 5"."""
    heads = range(encoder.n_heads)
    return {
        f"layer {layer + 1}": (
            Intervention(frozenset((layer, head) for head in heads), action, **how),
        )
        for layer in range(encoder.n_layers)
    }


def matched_draws(
    heads: Iterable[Head], n_heads: int, *, draws: int, seed: int = 0
) -> list[frozenset[Head]]:
    """Random sets with as many heads in every layer as a given set, each from all of the layer.

    Heads of the given set can be drawn too: where it is a whole layer, there is nothing to choose.
    """
    given = frozenset(heads)
    wrong = sorted(head for _, head in given if not 0 <= head < n_heads)
    if wrong:
        raise BadValue(f"head {wrong[0] + 1} is not one of the {n_heads} heads of a layer.")
    if draws < 1:
        raise BadValue(f"{draws} random sets were asked for; expected one or more.")
    layers = sorted({layer for layer, _ in given})
    counts = {layer: sum(one == layer for one, _ in given) for layer in layers}
    generator = np.random.default_rng(seed)
    return [
        frozenset(
            (layer, int(head))
            for layer in layers
            for head in generator.choice(n_heads, counts[layer], replace=False)
        )
        for _ in range(draws)
    ]


def mean_outputs(encoder: Encoder, batches: Iterable[Batch]) -> Float[Tensor, "layer head dim"]:
    """What each head hands on, the weighted values, on average over all real tokens of inputs."""
    sums: dict[int, Tensor] = {}
    n_tokens = 0
    for batch in batches:

        def add(layer: int, rows: slice, outputs: Tensor, real: Tensor = batch.real) -> None:
            total = (outputs.float() * real[rows, :, None, None]).sum((0, 1)).cpu().double()
            sums[layer] = total + sums[layer] if layer in sums else total

        _answer(encoder, batch, Tap(replace=add))
        n_tokens += int(batch.real.sum())
    if not n_tokens:
        raise BadValue("no input to take mean outputs from; expected one or more.")
    return torch.stack([sums[layer] for layer in range(encoder.n_layers)]) / n_tokens


# --- what the model makes of them -----------------------------------------------------------------


def run_changed(encoder: Encoder, batch: Batch, interventions: Variant) -> States:
    """The last hidden states under the interventions, by one whole pass without gradients.

    >>> from attnlib import Intervention, attention_maps, random_encoder, run_changed
    >>> encoder = random_encoder()
    >>> batch = attention_maps(encoder, "a cat").batch
    >>> plain = run_changed(encoder, batch, [])
    >>> silenced = run_changed(encoder, batch, [Intervention(frozenset({(0, 1)}), "zero")])
    >>> bool((plain - silenced).abs().max() > 0)
    True
    """
    check_heads(encoder, _heads_of(interventions))
    return _answer(encoder, batch, tap_of(interventions, batch))


def replays(encoder: Encoder, batch: Batch, variants: Iterable[Variant]) -> Iterator[States]:
    """The last hidden states under each variant, computed from its first changed layer on.

    Each answer is that of `run_changed` to the last bit. One plain pass records what every layer
    hands on; in the pass of a variant the layers before its first changed one hand on that again.
    The plain pass is left out where it would not pay, and a model that keeps its layers in no list
    of modules gets whole passes. No other thread may use the model while an answer is computed;
    between two answers the model is as it was.
    """
    given = list(variants)
    check_heads(encoder, _heads_of(one for variant in given for one in variant))
    return _replays(encoder, batch, given)


def _heads_of(interventions: Iterable[Intervention]) -> set[Head]:
    return {head for one in interventions for head in one.heads}


def _replays(encoder: Encoder, batch: Batch, variants: list[Variant]) -> Iterator[Tensor]:
    n_layers = encoder.n_layers
    changed_layers = [{layer for one in variant for layer, _ in one.heads} for variant in variants]
    first = [min(layers, default=n_layers) for layers in changed_layers]
    pays = sum(first) >= n_layers  # layers left out, against those of the plain pass
    layers, plain = _recorded(encoder, batch) if pays else ([], None)
    for variant, start in zip(variants, first, strict=True):
        if start == n_layers and plain is not None:
            yield plain.clone()
            continue
        tap = tap_of(variant, batch)
        lent = {layer: _recall(output, tap) for layer, output in layers[:start]}
        yield _answer(encoder, batch, tap, lent)


def _answer(encoder: Encoder, batch: Batch, tap: Tap, lent: Forwards | None = None) -> Tensor:
    # The forwards are lent inside `tapped`, which tries a model it does not know by other passes.
    with torch.no_grad(), tapped(encoder, tap), _lent_forwards(lent or {}):
        answer: Tensor = run_tapped(encoder, batch, tap)[0]
    return answer


def _recorded(encoder: Encoder, batch: Batch) -> tuple[list[tuple[nn.Module, Any]], Tensor]:
    """A plain pass: each layer with what it returned, and the model's answer.

    The layers are left out if they cannot be told apart: if they did not run one by one in their
    order, each with the attention of one layer in it.
    """
    layers = _layers(encoder)
    tap = Tap()
    outputs: list[Any] = []
    seen: list[tuple[int, int, int]] = []

    def recorder(place: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **kwargs: Any) -> Any:
            at = tap.layer
            outputs.append(forward(*args, **kwargs))
            seen.append((place, at, tap.layer))
            return outputs[-1]

        return record

    lent = {layer: recorder(i, layer.forward) for i, layer in enumerate(layers)}
    answer = _answer(encoder, batch, tap, lent)
    if seen != [(i, i, i + 1) for i in range(encoder.n_layers)]:
        return [], answer
    return list(zip(layers, outputs, strict=True)), answer


def _layers(encoder: Encoder) -> list[nn.Module]:
    """The members of the model's outermost list of as many modules as it has layers, or none."""
    for found in encoder.model.modules():
        if isinstance(found, nn.ModuleList) and len(found) == encoder.n_layers == len(set(found)):
            return list(found)
    return []


def _recall(output: Any, tap: Tap) -> Callable[..., Any]:
    """A layer that hands on what is on record; the tap counts it as if it had run."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        tap.layer += 1
        return output

    return forward


@contextmanager
def _lent_forwards(lent: Forwards) -> Iterator[None]:
    """Within the context these modules run the forward that is lent to them."""
    own = {module: vars(module).get("forward") for module in lent}  # most have their class's only
    try:
        for module, forward in lent.items():
            vars(module)["forward"] = forward
        yield
    finally:
        for module, before in own.items():
            vars(module).pop("forward", None)
            if before is not None:
                vars(module)["forward"] = before
