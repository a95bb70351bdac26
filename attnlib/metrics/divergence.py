"""Jensen-Shannon divergence between heads: do two heads look at the same keys?"""

from __future__ import annotations

import math
from typing import Any, no_type_check

import numba
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnlib.attention.maps import Attention
from attnlib.metrics.registry import Partial, metric

AUTHORS_SMOOTHING = 1e-3


@metric(
    key="js_divergence",
    source="clark2019:sec6",
    unit="nats",
    bounds=(0.0, math.log(2)),
    axes=("head", "other head"),
    scope="model",
    variants=("paper", "authors"),
)
def head_divergence(attention: Attention, variant: str = "paper") -> Partial:
    r"""Jensen-Shannon divergence between every two heads, averaged over tokens.

    .. math::
        JS(p, q) = \ln 2 - \tfrac12 \sum_k s_k \ln s_k
                   + \tfrac12 \sum_k p_k \ln p_k + \tfrac12 \sum_k q_k \ln q_k,
        \quad s = p + q

    attention.weights  (batch, head, query, key)   all heads of all layers
    returns            total (batch, head, other head), weight (batch,) = tokens

    The paper sums over tokens: that is the total; the mean is the same distance in other units.
    Differs from the authors' code: no smoothing (variant="authors" mixes in 0.001 uniform).
    """
    weights = attention.weights
    if variant == "authors":
        weights = attention.smoothed(AUTHORS_SMOOTHING)
    # Rows of padding are zeroed instead of cut out: shapes do not depend on the data.
    maps = weights * attention.real[:, None, :, None]
    sums = [_sum_of_joint(one) for one in maps]
    return Partial(_divergence(torch.stack(sums), attention.n_real), attention.n_real)


def _divergence(
    joint: Float[Tensor, "batch head head"], n_queries: Float[Tensor, " batch"]
) -> Float[Tensor, "batch head head"]:
    """From sums over queries and keys of s ln s, s = p + q, to the divergence.

    On the diagonal s = 2p, and 2p ln 2p summed over a row is 2 (sum p ln p) + 2 ln 2.
    """
    rows = n_queries[:, None].to(joint.dtype) * math.log(2)
    own = joint.diagonal(dim1=1, dim2=2) / 2 - rows
    js = rows[:, :, None] - 0.5 * joint + 0.5 * own[:, :, None] + 0.5 * own[:, None, :]
    return (js * (1 - torch.eye(js.shape[1], device=js.device))).clamp_min(0.0)


def _sum_of_joint(maps: Float[Tensor, "head query key"]) -> Float[Tensor, "head head"]:
    """sum over queries and keys of (p + q) ln (p + q), for every two heads p, q."""
    on_cpu = maps.device.type == "cpu" and maps.dtype == torch.float32
    if on_cpu and not maps.requires_grad:
        # All heads of one query stay in the cache, and ln is a short polynomial.
        by_query: Any = maps.transpose(0, 1).contiguous().numpy()
        upper = torch.from_numpy(_upper_sums(by_query, torch.get_num_threads()))
    else:
        upper = _upper_sums_torch(maps)
    return upper + upper.triu(1).T


def _upper_sums_torch(maps: Float[Tensor, "head query key"]) -> Float[Tensor, "head head"]:
    """On any device; one head against all later ones at a time."""
    smallest = torch.finfo(maps.dtype).tiny  # 0 ln 0 is 0
    rows = []
    for head in range(len(maps)):
        both = maps[head] + maps[head:]
        joint = (both * both.clamp_min(smallest).log()).sum(-1).sum(-1)
        rows.append(torch.nn.functional.pad(joint, (head, 0)))
    return torch.stack(rows)


LN2 = np.float32(np.log(2))


def _log2_coefficients(degree: int = 7) -> tuple[np.float32, ...]:
    """P with log2(m) = (m - 1) P(m) on [1, 2]: exact at 1, within 1e-5 elsewhere in float32."""
    nodes = 1.5 + 0.5 * np.cos((np.arange(400) + 0.5) * np.pi / 400)
    fit = np.polynomial.Chebyshev.fit(nodes, np.log2(nodes) / (nodes - 1), degree, domain=[1, 2])
    return tuple(np.float32(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef)


C0, C1, C2, C3, C4, C5, C6, C7 = _log2_coefficients()


@numba.njit(fastmath=True, inline="always")
@no_type_check  # numba compiles no wrapped function
def _log2(value):
    """log2 of a positive float32 from its bits; -127 for 0, so that 0 log 0 is 0."""
    bits = np.float32(value).view(np.int32)
    exponent = np.float32((bits >> 23) - 127)
    m = np.int32((bits & 0x7FFFFF) | 0x3F800000).view(np.float32)
    poly = C0 + m * (C1 + m * (C2 + m * (C3 + m * (C4 + m * (C5 + m * (C6 + m * C7))))))
    return exponent + (m - np.float32(1)) * poly


@numba.njit(parallel=True, fastmath=True, cache=True)
@no_type_check
def _upper_sums(maps, n_threads):
    """sum over queries and keys of s ln s, s = p + q, for heads p <= q; compiled for the CPU.

    maps       (query, head, key) float32
    n_threads  how many threads share the queries; each has sums of its own
    returns    (head, head) float64, the upper triangle with its diagonal; the rest is 0
    """
    n_queries, n_heads, n_keys = maps.shape
    sums = np.zeros((n_threads, n_heads, n_heads))
    for thread in numba.prange(n_threads):
        for query in range(thread, n_queries, n_threads):
            rows = maps[query]
            for head in range(n_heads):
                for other in range(head, n_heads):
                    total = np.float32(0)
                    for key in range(n_keys):
                        both = rows[head, key] + rows[other, key]
                        total += both * _log2(both)
                    sums[thread, head, other] += total
    return sums.sum(0) * LN2
