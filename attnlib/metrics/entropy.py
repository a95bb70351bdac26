"""Entropy of attention rows: how broadly a head attends."""

from __future__ import annotations

from functools import partial

from jaxtyping import Float
from torch import Tensor

from attnlib.attention.maps import Attention, entropy_of
from attnlib.metrics.registry import Partial, metric

AUTHORS_SMOOTHING = 1e-4


def _row_entropy(attention: Attention, variant: str) -> Float[Tensor, "batch head query"]:
    if variant == "authors":
        return entropy_of(attention.smoothed(AUTHORS_SMOOTHING))
    return attention.row_entropy


of_rows = partial(metric, unit="nats", bounds=(0.0, "log n_key"), variants=("paper", "authors"))


@of_rows(key="entropy", source="clark2019:fig4")
def attention_entropy(attention: Attention, variant: str = "paper") -> Partial:
    r"""Entropy of a head's rows: 0 for one key only, log n if all keys get the same.

    .. math:: H = -\sum_k a_{qk} \log a_{qk}, \quad \text{averaged over real queries } q

    attention.weights  (batch, head, query, key)   rows of real queries sum to 1
    attention.real     (batch, query)              False on padding
    returns            total (batch, head), weight (batch,)

    Differs from the authors' code: no smoothing (variant="authors" mixes in 0.0001 uniform).
    """
    rows = _row_entropy(attention, variant)
    return Partial((rows * attention.real.unsqueeze(1)).sum(-1), attention.n_real)


@of_rows(key="entropy_from_cls", source="clark2019:sec3.3")
def entropy_from_cls(attention: Attention, variant: str = "paper") -> Partial:
    r"""Entropy of the row of [CLS] alone.

    .. math:: H = -\sum_k a_{qk} \log a_{qk}, \quad q = \text{[CLS]}

    attention.weights  (batch, head, query, key)
    returns            total (batch, head), weight (batch,) = 1, or 0 where there is no [CLS]
    """
    has_cls, place = attention.batch.cls_place
    rows = _row_entropy(attention, variant)
    row = rows.gather(2, place[:, None, None].expand(-1, rows.shape[1], 1)).squeeze(2)
    return Partial(row * has_cls.unsqueeze(-1).to(row.dtype), has_cls)
