"""Attention: the maps of some heads over a batch, as every kernel receives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.errors import BadValue


@dataclass(frozen=True, eq=False)
class Attention:
    """Attention maps, as a metric sees them: row = the query that attends, column = the key.

    weights  (batch, head, query, key)   rows of real queries sum to 1, padding keys have 0
    batch    what the queries and keys are
    scores   (batch, head, query, key)   the logits before the softmax, where they are known;
             all finite: a masked key holds the smallest number of the type, not -inf

    >>> from attnlib import attention_maps, random_encoder
    >>> attention = attention_maps(random_encoder(), "a cat")
    >>> attention.weights.shape  # 4 heads; [CLS] a c ##a ##t [SEP]
    torch.Size([1, 4, 6, 6])
    >>> attention.received.sum().item()  # each head gives 1, shared among the keys
    4.0
    """

    weights: Float[Tensor, "batch head query key"]
    batch: Batch
    scores: Float[Tensor, "batch head query key"] | None = None

    @property
    def real(self) -> Bool[Tensor, "batch query"]:
        return self.batch.real

    @property
    def n_real(self) -> Float[Tensor, " batch"]:
        """Real pieces of each example."""
        return self.batch.n_real

    @cached_property
    def received(self) -> Float[Tensor, "batch head key"]:
        """Mean attention each key receives from the real queries; sums to 1 over the keys."""
        real = self.real[:, None, None, :].to(self.weights.dtype)
        total = torch.matmul(real, self.weights).squeeze(2)
        return total / self.n_real.clamp_min(1)[:, None, None].to(total.dtype)

    @cached_property
    def row_entropy(self) -> Float[Tensor, "batch head query"]:
        """Entropy of every row in nats; rows of padding hold no meaning.

        Where the logits s are known, no logarithm of the whole map is needed:
        H = ln sum exp(s) - sum_k a_k s_k, and ln sum exp(s) = max(s) - ln max(a). With logits
        around 30 this is within 3e-5 nats; real models stay below.
        """
        if self.scores is None:
            return entropy_of(self.weights)
        log_normaliser = self.scores.amax(-1) - self.weights.amax(-1).log()
        return (log_normaliser - torch.linalg.vecdot(self.weights, self.scores)).clamp_min(0.0)

    def smoothed(self, share: float) -> Float[Tensor, "batch head query key"]:
        """The maps with a share of the uniform row over real keys mixed in (Clark's code)."""
        dtype = self.weights.dtype
        uniform = self.real.to(dtype) / self.n_real.clamp_min(1).to(dtype).unsqueeze(-1)
        return (1 - share) * self.weights + share * uniform[:, None, None, :]

    def reduced(self) -> Attention:
        """The same maps in single precision at least, in which every kernel reduces."""
        if self.weights.dtype in (torch.float32, torch.float64):
            return self
        # Logits in half precision would make a poor entropy: the weights are what the model used.
        return Attention(self.weights.float(), self.batch, scores=None)


def entropy_of(rows: Float[Tensor, "*axes key"]) -> Float[Tensor, "*axes"]:
    """Entropy along the last axis, with 0 ln 0 = 0."""
    smallest = torch.finfo(rows.dtype).tiny
    return -(rows * rows.clamp_min(smallest).log()).sum(-1)


def refuse_infinite(
    model: str, trouble: str, finite: Bool[Tensor, " batch"], index: Sequence[int]
) -> None:
    """A NaN among the weights of a model must not become a NaN, or an answer, in its results."""
    if not finite.all():
        document = index[int(finite.long().argmin())] + 1
        raise BadValue(
            f"'{model}': {trouble}, first in document {document}. Expected finite "
            "weights: check the checkpoint, or load it in single precision."
        )
