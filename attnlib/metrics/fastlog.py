"""The inner loop of the divergence between all heads, compiled for the CPU."""

from __future__ import annotations

import numba
import numpy as np

LN2 = np.float32(np.log(2))


def _log2_coefficients(degree: int = 7) -> tuple[np.float32, ...]:
    """P with log2(m) = (m - 1) P(m) on [1, 2]: exact at 1, within 1e-5 elsewhere in float32."""
    nodes = 1.5 + 0.5 * np.cos((np.arange(400) + 0.5) * np.pi / 400)
    fit = np.polynomial.Chebyshev.fit(nodes, np.log2(nodes) / (nodes - 1), degree, domain=[1, 2])
    return tuple(np.float32(c) for c in fit.convert(kind=np.polynomial.Polynomial).coef)


C0, C1, C2, C3, C4, C5, C6, C7 = _log2_coefficients()


@numba.njit(fastmath=True, inline="always")
def _log2(value):  # type: ignore[no-untyped-def]
    """log2 of a positive float32 from its bits; -127 for 0, so that 0 log 0 is 0."""
    bits = np.float32(value).view(np.int32)
    exponent = np.float32((bits >> 23) - 127)
    m = np.int32((bits & 0x7FFFFF) | 0x3F800000).view(np.float32)
    poly = C0 + m * (C1 + m * (C2 + m * (C3 + m * (C4 + m * (C5 + m * (C6 + m * C7))))))
    return exponent + (m - np.float32(1)) * poly


@numba.njit(parallel=True, fastmath=True, cache=True)
def sum_of_joint(maps, n_threads):  # type: ignore[no-untyped-def]
    """sum over queries and keys of s ln s, s = p + q, for heads p <= q; the rest is 0.

    maps       (query, head, key) float32
    n_threads  how many threads share the queries; each has sums of its own
    returns    (head, head) float64, the upper triangle with its diagonal
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
