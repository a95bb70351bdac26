"""Entropy of attention rows: how broadly a head looks."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from attnlib.attention import Attention
from attnlib.metric import Partial, metric

AUTHORS_SMOOTHING = 1e-4


def row_entropy(attention: Attention, variant: str = "paper") -> Float[Tensor, "batch head query"]:
    r"""Entropy of every row in nats; rows of padding hold no meaning.

    Where the logits s are known, no logarithm of the whole map is needed: with m = max(s),
    ln a_k = s_k - m + ln max(a), so H = -ln max(a) - sum_k a_k (s_k - m).
    """
    if variant == "authors":
        return _entropy_of(attention.smoothed(AUTHORS_SMOOTHING))
    weights, scores = attention.weights, attention.scores
    if scores is None:
        return _entropy_of(weights)
    below = scores - scores.amax(-1, keepdim=True)
    return -weights.amax(-1).log() - torch.linalg.vecdot(weights, below)


@metric(
    key="entropy",
    source="clark2019:fig4",
    unit="nats",
    bounds=(0.0, "log n_key"),
    variants=("paper", "authors"),
)
def attention_entropy(attention: Attention, variant: str = "paper") -> Partial:
    r"""Entropy of a head's rows: 0 for one key only, log n for all keys alike.

    .. math:: H = -\sum_k a_{qk} \log a_{qk}, \quad \text{averaged over real queries } q

    attention.weights  (batch, head, query, key)   rows of real queries sum to 1
    attention.real     (batch, query)              False on padding
    returns            total (batch, head), weight (batch,)

    Differs from the authors' code: no smoothing (variant="authors" mixes in 0.0001 uniform).
    """
    rows = row_entropy(attention, variant)
    return Partial((rows * attention.real.unsqueeze(1)).sum(-1), attention.n_real)


@metric(
    key="entropy_from_cls",
    source="clark2019:sec3.3",
    unit="nats",
    bounds=(0.0, "log n_key"),
    variants=("paper", "authors"),
)
def entropy_from_cls(attention: Attention, variant: str = "paper") -> Partial:
    r"""Entropy of the row of [CLS] alone.

    .. math:: H = -\sum_k a_{qk} \log a_{qk}, \quad q = \text{[CLS]}

    attention.weights  (batch, head, query, key)
    returns            total (batch, head), weight (batch,) = 1, or 0 where there is no [CLS]
    """
    rows = row_entropy(attention, variant)
    from_cls = attention.batch.cls.unsqueeze(1)
    weight = attention.batch.cls.sum(-1).to(torch.float32)
    return Partial((rows * from_cls).sum(-1), weight)


def _entropy_of(weights: Float[Tensor, "batch head query key"]) -> Tensor:
    smallest = torch.finfo(weights.dtype).tiny  # 0 log 0 is 0
    return -(weights * weights.clamp_min(smallest).log()).sum(-1)
