"""Attention inside the forward pass: observe it, or change it, layer by layer.

Two routes lead to the same callback. Models that ask transformers' attention interface for their
attention function get ours. Models that compute the softmax inline (MPNet, for one) are run with
the softmax itself intercepted. Maps are never collected here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from attnlib.attention.encode import Batch, batches_of, model_inputs
from attnlib.attention.maps import Attention
from attnlib.data.examples import Example, Segment
from attnlib.errors import Unobservable, first_line
from attnlib.models import OBSERVABLE, Encoder

NAME = "attnlib"
PROBE = "It was, after all, a small world."
SLICE_BYTES = 2 * 2**20
"""On a CPU the maps of this many bytes are finished at a time, while they are in its cache."""


Observer = Callable[[int, slice, Tensor, Tensor | None], None]


@dataclass
class Tap:
    """What to do with the maps of one forward pass.

    observe(layer, rows, weights, scores)            sees the maps of some examples
    change(layer, rows, weights) -> weights or None  replaces them; None leaves them
    replace(layer, rows, outputs) -> outputs or None  the same for what the heads hand on, the
                                                     weighted values (batch, query, head, dim)
    """

    observe: Observer | None = None
    change: Callable[[int, slice, Tensor], Tensor | None] | None = None
    replace: Callable[[int, slice, Tensor], Tensor | None] | None = None
    layer: int = 0

    def visit(self, rows: slice, weights: Tensor, scores: Tensor | None) -> Tensor:
        if self.change is not None:
            changed = self.change(self.layer, rows, weights)
            if changed is not None:
                weights, scores = changed, None
        if self.observe is not None:
            self.observe(self.layer, rows, weights, scores)
        return weights

    def hand_on(self, rows: slice, outputs: Tensor) -> Tensor:
        replaced = self.replace and self.replace(self.layer, rows, outputs)
        return outputs if replaced is None else replaced


_TAP: ContextVar[Tap | None] = ContextVar("tap", default=None)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function of transformers' interface, with the tap in its middle."""
    tap = _TAP.get()
    if tap is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    outputs = []
    for rows in _slices(query):
        scores = torch.matmul(query[rows] * scaling, key[rows].transpose(2, 3))
        if attention_mask is not None:
            mask = attention_mask if attention_mask.shape[0] == 1 else attention_mask[rows]
            scores += mask
        weights = tap.visit(rows, torch.softmax(scores, dim=-1), scores)
        weights = torch.nn.functional.dropout(weights, p=dropout, training=module.training)
        outputs.append(tap.hand_on(rows, torch.matmul(weights, value[rows]).transpose(1, 2)))
    tap.layer += 1
    return torch.cat(outputs), None


AttentionInterface.register(NAME, _attention)
# Without the mask function transformers drops the padding mask and says nothing.
AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["eager"])


def _slices(query: Tensor) -> Iterator[slice]:
    """Slices of the batch whose maps fit the cache; all at once on an accelerator."""
    n_examples, n_heads, length, _ = query.shape
    per_example = n_heads * length * length * query.element_size()
    step = max(1, SLICE_BYTES // per_example) if query.device.type == "cpu" else n_examples
    for start in range(0, n_examples, step):
        yield slice(start, min(start + step, n_examples))


class _InterceptSoftmax(TorchFunctionMode):
    """Shows the tap every softmax over (batch, head, query, key) with a full query axis."""

    def __init__(self, tap: Tap, n_heads: int) -> None:
        super().__init__()
        self.tap, self.n_heads = tap, n_heads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func not in (torch.nn.functional.softmax, torch.softmax, Tensor.softmax):
            return out
        scores = args[0] if args else kwargs["input"]
        if scores.dim() != 4 or scores.shape[1] != self.n_heads:
            return out
        with torch._C.DisableTorchFunction():
            # How such a model masks is unknown (-inf, say): its logits are not handed on.
            weights = self.tap.visit(slice(0, scores.shape[0]), out, None)
        self.tap.layer += 1
        return weights


def uses_interface(encoder: Encoder) -> bool:
    """Does the model ask transformers' interface for its attention function?"""
    return bool(getattr(encoder.model, "_supports_attention_backend", False))


@contextmanager
def tapped(encoder: Encoder, tap: Tap) -> Iterator[None]:
    """Within the context, every forward pass of the encoder goes through the tap."""
    check_observable(encoder)
    with _tapped(encoder, tap):
        yield


@contextmanager
def _tapped(encoder: Encoder, tap: Tap) -> Iterator[None]:
    if not uses_interface(encoder):
        if tap.replace is not None:
            raise Unobservable(
                f"{encoder.name} computes its attention itself: its weights can be changed, the "
                "outputs of its heads cannot. Choose another action than mean, or another model."
            )
        with _InterceptSoftmax(tap, encoder.n_heads):
            yield
        return
    with _our_attention(encoder.model):
        token = _TAP.set(tap)
        try:
            yield
        finally:
            _TAP.reset(token)


_LOCK = threading.Lock()
_LENT: WeakKeyDictionary[Any, tuple[int, str]] = WeakKeyDictionary()
"""Models that run with our attention function: how many use it, and what they had before."""


@contextmanager
def _our_attention(model: Any) -> Iterator[None]:
    """Our attention function in the model; the last of several threads puts the old one back."""
    with _LOCK:
        users, before = _LENT.get(model, (0, model.config._attn_implementation))
        model.set_attn_implementation(NAME)
        _LENT[model] = (users + 1, before)
    try:
        yield
    finally:
        with _LOCK:
            users, before = _LENT.pop(model)
            if users > 1:
                _LENT[model] = (users - 1, before)
            else:
                model.set_attn_implementation(before)


_OBSERVABLE: WeakSet[Any] = WeakSet()


def check_observable(encoder: Encoder) -> None:
    """Refuse a model whose maps cannot be seen, by one small batch; each model is tried once.

    Every layer must show one square map per head, and the model must answer with the tap as it
    does without: what its own attention does besides (a cap, a bias, a mask) would be lost.
    """
    if encoder.model in _OBSERVABLE:
        return
    shapes: list[tuple[int, ...]] = []
    tap = Tap(observe=lambda layer, rows, weights, scores: shapes.append(tuple(weights.shape[1:])))
    inputs = _probe(encoder)
    expected = {(encoder.n_heads, *2 * [inputs["input_ids"].shape[1]])}
    try:
        with torch.no_grad():
            plain = encoder.model(**inputs)[0]
            with _tapped(encoder, tap):
                seen = encoder.model(**inputs)[0]
    except Exception as error:  # whatever a foreign model may say of an input it is not made for
        failed = f"a trial on a short text failed ({first_line(error)})"
        raise _unobservable(encoder, failed) from None
    if tap.layer != encoder.n_layers or set(shapes) != expected:
        maps = f"{tap.layer} layers" + (f" of maps {sorted(set(shapes))}" if shapes else "")
        raise _unobservable(encoder, f"{maps} were seen, {encoder.n_layers} were expected")
    if not encoder.model.training and not _alike(plain, seen):
        raise _unobservable(encoder, "its output changes when it is observed")
    _OBSERVABLE.add(encoder.model)


def _probe(encoder: Encoder) -> dict[str, Tensor]:
    """A text, and the same text cut short and padded."""
    ids = torch.tensor([encoder.tokenizer(PROBE)["input_ids"]] * 2, device=encoder.device)
    real = torch.ones_like(ids)
    ids[1, -4:], real[1, -4:] = encoder.pad_id, 0
    return {"input_ids": ids, "attention_mask": real}


def _alike(plain: Tensor, seen: Tensor) -> bool:
    """Equal up to rounding, padding left out; NaN equals NaN here, and the stream refuses it."""
    tolerance = 1e-3 if plain.dtype in (torch.float32, torch.float64) else 0.1
    limit = tolerance * plain.nan_to_num().abs().amax().item()
    pairs = ((plain[0], seen[0]), (plain[1, :1], seen[1, :1]))
    return all(torch.allclose(*pair, rtol=0.0, atol=limit, equal_nan=True) for pair in pairs)


def _unobservable(encoder: Encoder, reason: str) -> Unobservable:
    return Unobservable(
        f"'{encoder.name}': {reason}. Its attention cannot be observed; use {OBSERVABLE}."
    )


def observed(encoder: Encoder, batch: Batch, observe: Observer) -> Any:
    """One forward pass without gradients, in which a function sees the maps of every layer."""
    tap = Tap(observe=observe)
    with torch.inference_mode(), tapped(encoder, tap):
        return run_tapped(encoder, batch, tap)


def all_maps(encoder: Encoder, batch: Batch) -> Float[Tensor, "layer head query key"]:
    """Every map of a batch of one input; only for looking at single inputs."""
    layers: list[Tensor] = []
    observed(encoder, batch, lambda layer, rows, weights, scores: layers.append(weights[0]))
    return torch.stack(layers).float()


def attention_maps(encoder: Encoder, text: str | Example, pair: str | None = None) -> Attention:
    """The maps of all heads on one text, or on a pair of texts; heads are numbered over all layers.

    >>> from attnlib import METRICS, attention_maps, random_encoder
    >>> attention = attention_maps(random_encoder(), "a cat", "a dog")
    >>> attention.batch.sep.sum().item()
    2
    >>> METRICS["entropy"](attention).value.shape  # one example, four heads
    torch.Size([1, 4])
    """
    example = Segment("text", text, pair) if isinstance(text, str) else text
    (batch,) = batches_of([example], encoder, max_length=encoder.max_length)
    return Attention(all_maps(encoder, batch).flatten(0, 1).unsqueeze(0), batch)


def run_tapped(encoder: Encoder, batch: Batch, tap: Tap, *, segment_ids: str = "pair") -> Any:
    """One forward pass inside `tapped`; refuses a model whose layers did not all show."""
    tap.layer = 0
    output = encoder.model(**model_inputs(batch, encoder, segment_ids))
    if tap.layer != encoder.n_layers:
        seen, expected = tap.layer, encoder.n_layers
        raise _unobservable(encoder, f"{seen} attention layers were seen, {expected} were expected")
    return output
