"""How much attention falls on a relation: all relation masses of a batch in one matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.attention.maps import Attention
from attnlib.metrics.registry import METRICS, LinearKernel, Metric, Partial, metric
from attnlib.metrics.relations import RELATIONS, Relation


class Selectors:
    """The relations of one batch as one matrix, built once and used by every layer.

    matrix  (batch, relation, query x key)   0 where the relation does not hold between real pieces,
            elsewhere what the pair counts: 1, or what the metric weighs the query with
    keys    (batch, key, relation)           the same for relations of the key alone
    weight  (batch, relation)                how many queries were asked
    """

    LEAST = 16
    """Fewer columns and the matrix product adds up thousands of numbers one after the other."""

    def __init__(self, batch: Batch, metrics: Sequence[Metric]) -> None:
        n, length = len(batch), batch.length
        kernels = [one.kernel for one in metrics if isinstance(one.kernel, LinearKernel)]
        self.by_key = [c for c, one in enumerate(kernels) if one.relation.keys is not None]
        self.by_pair = [c for c, one in enumerate(kernels) if one.relation.keys is None]
        self.weight = torch.empty(n, len(kernels), device=batch.device)
        self.keys = torch.zeros(n, length, len(self.by_key), device=batch.device)
        n_rows = max(len(self.by_pair), self.LEAST) if self.by_pair else 0
        maps = torch.zeros(n, n_rows, length, length, device=batch.device)

        def weighed(column: int, held: Tensor) -> Tensor:
            """What each pair, or key, counts; how many queries the metric asks is noted."""
            how = {"relation": kernels[column].relation}
            asking = kernels[column].weigh(batch, held, metrics[column].variant, **how)
            counts, self.weight[:, column] = asking
            return held if counts is None else held * counts.unsqueeze(-1)

        for place, column in enumerate(self.by_key):
            self.keys[:, :, place] = weighed(column, kernels[column].relation.keys_in(batch))
        for place, column in enumerate(self.by_pair):
            maps[:, place] = weighed(column, kernels[column].relation.mask(batch))
        self.matrix = maps.flatten(2)

    def masses(
        self, attention: Attention, rows: slice = slice(None)
    ) -> Float[Tensor, "batch relation head"]:
        """The sums of every relation for the examples `rows` of the batch."""
        weights = attention.weights
        n, n_heads = weights.shape[:2]
        sums = weights.new_empty(n, self.weight.shape[1], n_heads)
        if self.by_pair:
            matrix = self.matrix[rows].to(weights.dtype)
            product = torch.bmm(matrix, weights.flatten(2).transpose(1, 2))
            sums[:, self.by_pair] = product[:, : len(self.by_pair)]
        if self.by_key:
            total = attention.received * attention.n_real[:, None, None].to(weights.dtype)
            columns = torch.bmm(total, self.keys[rows].to(weights.dtype))
            sums[:, self.by_key] = columns.transpose(1, 2)
        return sums

    def partials(self, sums: Tensor, rows: slice = slice(None)) -> list[Partial]:
        """Sums (batch, ..., relation, head) taken apart by relation."""
        weights = self.weight[rows].unbind(1)
        return [Partial(t, w) for t, w in zip(sums.unbind(-2), weights, strict=True)]


def n_having(batch: Batch, held: Tensor) -> Float[Tensor, " batch"]:
    """How many real queries have a key, of pairs (batch, query, key) or of keys (batch, key)."""
    having = held.any(-1)
    if having.dim() == 1:
        return having * batch.n_real
    return (having & batch.real).sum(-1).to(torch.float32)


def _every_or_having(
    batch: Batch, held: Tensor, variant: str, *, relation: Relation, **_: Any
) -> tuple[None, Tensor]:
    """Every query's mass counts the same; asked are all real queries, or those that have a key."""
    if variant != "having" and relation.asked_of == "every":
        return None, batch.n_real
    return None, n_having(batch, held)


def mass_metric(relation: Relation) -> Metric:
    r"""Attention that falls on a relation, declared or of the user's own, averaged over queries.

    .. math:: \frac{1}{|Q|} \sum_{q \in Q} \sum_{k : r(q, k)} a_{qk}

    Q is every real query, so the mass is a share of all the head's attention (Clark 2019 and its
    code agree). The first piece has no previous one: a head that always attends to the previous
    piece has (n - 1)/n. variant="having" asks only queries that have such a key; that head then
    has exactly 1.
    """
    return Metric(
        key=relation.metric_key,
        what=f"Share of attention that falls on {relation.what}.",
        source=relation.source,
        unit="share of attention",
        bounds=(0.0, 1.0),
        kernel=LinearKernel(relation, _every_or_having),
        variants=("paper", "having"),
    )


for _relation in RELATIONS.values():
    METRICS.declare(mass_metric(_relation))


@metric(
    key="column_mass",
    source="kovaleva2019:sec4.1",
    unit="share of attention",
    bounds=(0.0, 1.0),
    axes=("head", "key"),
)
def column_mass(attention: Attention) -> Partial:
    r"""Attention received by each position, from all queries.

    .. math:: c_k = \frac{1}{n} \sum_q a_{qk}

    attention.weights  (batch, head, query, key)
    returns            total (batch, head, key), weight (batch, 1, key): 0 past the end of a text
    """
    return Partial(attention.received.clone(), attention.real.unsqueeze(1).to(torch.float32))


@metric(key="row_peak", source="clark2019:sec3.3", unit="share of attention", bounds=(0.0, 1.0))
def row_peak(attention: Attention) -> Partial:
    r"""The largest weight of a row: how much a token gives the key it attends to most.

    .. math:: \max_k a_{qk}, \quad \text{averaged over real queries } q

    attention.weights  (batch, head, query, key)
    returns            total (batch, head), weight (batch,)
    """
    peaks = attention.weights.amax(-1) * attention.real.unsqueeze(1)
    return Partial(peaks.sum(-1), attention.n_real)
