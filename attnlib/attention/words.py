"""Maps between words instead of pieces, one batch at a time (Clark 2019, sec. 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlib.attention.encode import Batch, batches_of
from attnlib.attention.tap import observed
from attnlib.data.examples import Example
from attnlib.errors import check_choice
from attnlib.models import Encoder

FROM_PIECES = ("mean", "first")
N_SPECIAL = 2
"""Units 0 and 1 of a word map: [CLS], and all [SEP] together; the words follow."""


@dataclass(frozen=True, eq=False)
class WordMaps:
    """The maps of all heads over a batch, between units: [CLS], [SEP], and the words.

    index    which examples of the corpus these are
    weights  (batch, head, unit, unit)   heads numbered over all layers; rows sum to 1
    real     (batch, unit)               False on padding and on words without a piece
    """

    index: tuple[int, ...]
    weights: Float[Tensor, "batch head unit unit"]
    real: Bool[Tensor, "batch unit"]

    @property
    def n_words(self) -> int:
        """Words of the longest example, padding included in the others."""
        return self.real.shape[1] - N_SPECIAL

    def between_words(self) -> Float[Tensor, "batch head word word"]:
        """The maps without [CLS] and [SEP]; rows then sum to less than 1, as in the paper."""
        return self.weights[:, :, N_SPECIAL:, N_SPECIAL:]

    def real_words(self) -> Bool[Tensor, "batch word"]:
        return self.real[:, N_SPECIAL:]


class Units:
    """Which pieces make up which unit of a batch, as the two matrices that turn maps around.

    to_unit    (batch, piece, unit)   1 where a piece belongs to a unit
    from_unit  (batch, unit, piece)   the share of a piece in what its unit sends out
    """

    def __init__(self, batch: Batch, from_pieces: str = "mean") -> None:
        check_choice("from-pieces", from_pieces, FROM_PIECES)
        unit = torch.where(batch.word >= 0, batch.word + N_SPECIAL, -1)
        unit = torch.where(batch.cls, 0, torch.where(batch.sep, 1, unit))
        n_units = int(unit.max()) + 1
        places = torch.arange(n_units, device=unit.device)
        member = unit.unsqueeze(2) == places
        first = member & (member.cumsum(1) == 1)
        senders = (member if from_pieces == "mean" else first).transpose(1, 2).float()
        self.to_unit = member.float()
        self.from_unit = senders / senders.sum(-1, keepdim=True).clamp_min(1)
        self.real = member.any(1)

    def maps(
        self, weights: Float[Tensor, "some head query key"], rows: slice = slice(None)
    ) -> Float[Tensor, "some head unit unit"]:
        r"""Attention between the units of the examples `rows`: two matrix products.

        .. math:: \bar a_{uv} = \frac{1}{|u|} \sum_{q \in u} \sum_{k \in v} a_{qk}

        Attention *to* a word is summed over its pieces, attention *from* it averaged, so that rows
        still sum to 1. Differs from the authors' extraction, which reads only the first piece of
        the word that attends (from_pieces="first").
        """
        received = torch.matmul(weights.float(), self.to_unit[rows].unsqueeze(1))
        return torch.matmul(self.from_unit[rows].unsqueeze(1), received)


def word_maps(
    encoder: Encoder,
    examples: Sequence[Example],
    *,
    from_pieces: str = "mean",
    on_long: str = "skip",
    **reading: Any,
) -> Iterator[WordMaps]:
    """Word maps of all heads, batch by batch; what is not used before the next batch is gone.

    Examples need words of their own (a tree, a document with mentions).
    reading  max_length, batch_size, skipped: see `batches_of`
    """
    seen: list[list[Tensor]] = []
    units: Units

    def observe(layer: int, rows: slice, weights: Tensor, scores: Tensor | None) -> None:
        seen[layer].append(units.maps(weights, rows))

    for batch in batches_of(examples, encoder, on_long=on_long, **reading):
        units, seen = Units(batch, from_pieces), [[] for _ in range(encoder.n_layers)]
        observed(encoder, batch, observe)
        weights = torch.cat([torch.cat(layer) for layer in seen], dim=1)
        yield WordMaps(batch.index, weights, units.real)
        del weights  # before the next batch is made
