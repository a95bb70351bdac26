"""Divergences between all heads: the streaming pass beside the way of the authors of Clark 2019."""

from __future__ import annotations

import time

import numpy as np
import torch

from attnlib.attention.encode import Batch
from attnlib.attention.maps import Attention
from attnlib.attention.tap import Tap, run_tapped, tapped
from attnlib.measuring.stream import Watch
from attnlib.metrics.divergence import AUTHORS_SMOOTHING, head_divergence
from attnlib.metrics.registry import METRICS
from attnlib.models import Encoder


def clark_float32(maps: np.ndarray) -> np.ndarray:
    """Sums of JS over the tokens of one document, as their code takes them: one head at a time.

    maps  (head, query, key) float32, smoothed by the uniform distribution before the logarithm
    """
    n = maps.shape[-1]
    maps = np.float32(1 - AUTHORS_SMOOTHING) * maps + np.float32(AUTHORS_SMOOTHING / n)
    rows = []
    for one in maps:
        middle = (one + maps) / 2
        to_middle = one * np.log(one / middle) + maps * np.log(maps / middle)
        rows.append(to_middle.sum((1, 2)) / 2)
    return np.stack(rows)


def maps_of(encoder: Encoder, batch: Batch) -> torch.Tensor:
    """All maps of the first example of a batch: (head, query, key)."""
    seen: list[torch.Tensor] = []
    tap = Tap(observe=lambda layer, rows, weights, scores: seen.append(weights))
    with torch.inference_mode(), tapped(encoder, tap):
        run_tapped(encoder, batch.rows(slice(0, 1)), tap)
    return torch.cat(seen, dim=1)[0]


def js_over_clark(encoder: Encoder, given: list[Batch], rounds: int) -> dict[str, float]:
    """Tokens a second of the whole pass (forward, maps, all divergences) over theirs of JS alone.

    Their time is the best of some rounds on the maps of one document, which they are given; ours
    is the whole time over all documents. The error is against the same sums in double precision.
    """
    maps = maps_of(encoder, given[0])
    theirs = min(_seconds(lambda: clark_float32(maps.numpy())) for _ in range(rounds))
    watch = Watch(encoder, [METRICS["js_divergence"]], given[0].length)

    def stream() -> None:
        with torch.inference_mode(), tapped(encoder, watch.tap):
            for batch in given:
                watch.reduce(batch, "pair")

    _seconds(lambda: watch_once(encoder, watch, given[0]))  # compiles the kernel
    ours = _seconds(stream)
    tokens = sum(int(batch.real.sum()) for batch in given)
    one = given[0].rows(slice(0, 1))
    fast = head_divergence(Attention(maps[None], one)).total
    exact = head_divergence(Attention(maps[None].double(), one)).total
    error = float((fast - exact).abs().max() / exact.max())
    return {
        "js_over_clark_float32": (tokens / ours) / (maps.shape[-1] / theirs),
        "js_error_over_largest": error,
    }


def watch_once(encoder: Encoder, watch: Watch, batch: Batch) -> None:
    with torch.inference_mode(), tapped(encoder, watch.tap):
        watch.reduce(batch.rows(slice(0, 1)), "pair")


def _seconds(task) -> float:  # type: ignore[no-untyped-def]
    started = time.perf_counter()
    task()
    return time.perf_counter() - started
