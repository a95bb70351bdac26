"""How similar the maps of two models are, head by head, on the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attnlib.attention.encode import Batch, batches_of
from attnlib.attention.tap import observed
from attnlib.errors import BadValue, check_choice
from attnlib.models import Encoder

VARIANTS = ("paper", "authors")
AUTHORS_WIDTH = 200
"""Pieces to which the authors' code pads every input."""


def cosine(
    first: Float[Tensor, "batch head query key"],
    second: Float[Tensor, "batch head query key"],
    batch: Batch,
    variant: str = "paper",
) -> Float[Tensor, "batch head"]:
    r"""Cosine of the angle between two flattened maps (Kovaleva 2019, sec. 4.3).

    .. math:: \frac{\sum_{qk} a_{qk} b_{qk}}{\sqrt{\sum a_{qk}^2} \sqrt{\sum b_{qk}^2}}

    "paper" sums over the real queries, "authors" over those of padding, too: their code compares
    maps of 200 x 200 as they are (see `widened`). Padding keys have no weight in either.
    """
    check_choice("variant", variant, VARIANTS)
    a, b = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (first, second))
    if variant == "paper":
        real = batch.real[:, None, :, None]
        a, b = a * real, b * real
    a, b = a.flatten(2), b.flatten(2)
    tiny = torch.finfo(a.dtype).tiny
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp_min(tiny)


def compared(
    first: Encoder,
    second: Encoder,
    examples: Sequence[Any],
    *,
    variant: str = "paper",
    **reading: Any,
) -> Float[np.ndarray, "example layer head"]:
    """The cosine of every head's two maps, for every input; long inputs are truncated.

    reading  max_length, batch_size: see `batches_of`
    """
    if (first.n_layers, first.n_heads) != (second.n_layers, second.n_heads):
        raise BadValue(
            f"'{first.name}' has {first.n_layers} x {first.n_heads} heads and '{second.name}' "
            f"{second.n_layers} x {second.n_heads}; expected two models of one shape."
        )
    found = np.full((len(examples), first.n_layers, first.n_heads), np.nan)
    for batch in batches_of(examples, first, on_long="truncate", **reading):
        if variant == "authors":
            batch = widened(batch, first, max(AUTHORS_WIDTH, batch.length))
        found[list(batch.index)] = _compared_batch(first, second, batch, variant)
    return found


def widened(batch: Batch, encoder: Encoder, width: int) -> Batch:
    """The same batch with padding up to a width."""
    more = width - batch.length
    fill = {"ids": encoder.pad_id}
    wide = {}
    for name in (one.name for one in fields(batch) if one.name != "index"):
        given = getattr(batch, name)
        empty = False if given.dtype == torch.bool else fill.get(name, -1)
        wide[name] = functional.pad(given, (0, more), value=empty)
    return Batch(index=batch.index, **wide)


def _compared_batch(first: Encoder, second: Encoder, batch: Batch, variant: str) -> np.ndarray:
    kept: dict[tuple[int, int], Tensor] = {}
    found = torch.empty(len(batch), first.n_layers, first.n_heads, dtype=torch.float64)

    def keep(layer: int, rows: slice, weights: Tensor, scores: Tensor | None) -> None:
        kept[layer, rows.start] = weights

    def hold(layer: int, rows: slice, weights: Tensor, scores: Tensor | None) -> None:
        own = batch.rows(rows)
        alike = cosine(kept.pop((layer, rows.start)), weights, own, variant)
        found[rows, layer] = alike.to("cpu", torch.float64)

    observed(first, batch, keep)
    observed(second, batch, hold)
    return found.numpy()
