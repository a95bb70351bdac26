"""One pass: encoder x corpus x metrics -> a measurement, its table and its grids."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlib.attention.encode import Batch, batches_of
from attnlib.attention.maps import Attention, refuse_infinite
from attnlib.attention.tap import Tap, run_tapped, tapped
from attnlib.data.corpora import Corpus, load_corpus
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.bootstrap import Estimate, estimate
from attnlib.measuring.shards import Shard
from attnlib.metrics.mass import Selectors, mass_metric
from attnlib.metrics.registry import METRICS, Metric, Partial
from attnlib.metrics.relations import Relation
from attnlib.models import Encoder, load_encoder


class Measurement:
    """What a pass found: rows per example on disk, means and intervals on demand."""

    def __init__(
        self,
        encoder: Encoder,
        corpus: str,
        metrics: Sequence[Metric],
        shard: Shard,
        skipped: dict[str, int],
        seconds: float,
    ) -> None:
        self.model, self.corpus = encoder.name, corpus
        self.n_layers, self.n_heads = encoder.n_layers, encoder.n_heads
        self.metrics = {metric.key: metric for metric in metrics}
        self.skipped, self.seconds = skipped, seconds
        self.shard = shard
        self._estimates: dict[tuple[str, bool], Estimate] = {}

    @cached_property
    def n_examples(self) -> int:
        return len(set(self.shard.index))

    def not_empty(self) -> Measurement:
        """Itself, or the reason why there is nothing to see."""
        if not self.shard.index:
            reasons = ", ".join(f"{n} {reason}" for reason, n in self.skipped.items())
            raise CorpusError(
                f"'{self.corpus}' has nothing left to measure ({reasons or 'no examples'}). "
                "Expected at least one input; choose another --max-length or --on-long."
            )
        return self

    def rows(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Sums and weights per example: (example, layer, head, ...)."""
        return self.shard.read(metric)

    def values(self, metric: str) -> np.ndarray:
        """The value of every example: (example, layer, head, ...); NaN where it is undefined."""
        total, weight = self.rows(metric)
        return np.divide(total, weight, out=np.full(total.shape, np.nan), where=weight > 0)

    def estimate(self, metric: str, *, micro: bool = False) -> Estimate:
        """Mean and 95 % interval, each (layer, head, ...)."""
        if (metric, micro) not in self._estimates:
            parts = self.shard.parts(metric)
            found = [estimate(*self.shard.read(metric, part), micro=micro) for part in parts]
            whole = zip(*(vars(part).values() for part in found), strict=True)
            self._estimates[metric, micro] = Estimate(*map(np.concatenate, whole))
        return self._estimates[metric, micro]

    def grid(self, metric: str, *, micro: bool = False) -> np.ndarray:
        """The mean of every head: (layer, head), counted from 0."""
        return self.estimate(metric, micro=micro).mean

    def table(self, *, micro: bool = False) -> pd.DataFrame:
        """One row per metric and head; layers and heads are counted from 1."""
        parts = [self.table_of(key, micro=micro) for key in self.metrics]
        return pd.concat(parts, ignore_index=True)

    def table_of(self, key: str, *, micro: bool = False) -> pd.DataFrame:
        """The rows of one metric."""
        metric, found = self.metrics[key], self.estimate(key, micro=micro)
        axes = metric.axes if metric.scope == "model" else ("layer", *metric.axes)
        columns: dict[str, Any] = {"metric": key}
        places = np.indices(found.mean.shape).reshape(len(axes), -1)
        for axis, place in zip(axes, places, strict=True):
            name = axis.replace(" ", "_")
            if metric.scope == "model" and name.endswith("head"):  # numbered over all layers
                columns[name.replace("head", "layer")] = place // self.n_heads + 1
                place = place % self.n_heads
            columns[name] = place + 1
        ends = {name: getattr(found, name).ravel() for name in ("mean", "low", "high", "n")}
        return pd.DataFrame({**columns, **ends})


def measure(
    model: str | Path | Encoder,
    corpus: str | Path | Corpus,
    metrics: Sequence[str | Metric | Relation],
    *,
    limit: int | None = None,
    max_length: int = 128,
    batch_size: int = 16,
    on_long: str = "error",
    segment_ids: str = "pair",
    seed: int = 0,
    device: str = "auto",
) -> Measurement:
    """Measure metrics of every head of a model on a corpus, both given by name or as objects.

    >>> from attnlib import load_corpus, measure, random_encoder
    >>> texts = load_corpus("reader", limit=3)
    >>> found = measure(random_encoder(), texts, ["mass_to_sep", "entropy"], on_long="truncate")
    >>> list(found.table().columns)
    ['metric', 'layer', 'head', 'mean', 'low', 'high', 'n']
    """
    chosen = chosen_metrics(metrics)
    named: Any = {"limit": limit, "seed": seed, "device": device}
    encoder, texts = loaded(model, corpus, max_length=max_length, **named)
    how: Any = {"batch_size": batch_size, "on_long": on_long}
    found = stream(encoder, texts, chosen, max_length=max_length, segment_ids=segment_ids, **how)
    return found.not_empty()


def loaded(
    model: str | Path | Encoder,
    corpus: str | Path | Corpus,
    *,
    limit: int | None = None,
    seed: int = 0,
    max_length: int = 128,
    device: str = "auto",
) -> tuple[Encoder, Corpus]:
    """A model and a corpus for it, each given by name or as it is."""
    if isinstance(corpus, Corpus) and limit is not None:
        raise BadValue("limit goes with the name of a corpus; cut the examples of your own Corpus.")
    encoder = model if isinstance(model, Encoder) else load_encoder(model, device=device)
    if isinstance(corpus, Corpus):
        return encoder, corpus
    return encoder, load_corpus(
        corpus, limit=limit, seed=seed, tokenizer=encoder.tokenizer, max_length=max_length
    )


def chosen_metrics(metrics: Sequence[str | Metric | Relation]) -> list[Metric]:
    """Metrics by name, as they are, or made of a relation; each once, in the order given."""
    found: dict[str, Metric] = {}
    for one in metrics:
        if isinstance(one, Relation):
            one = mass_metric(one)
        metric = one if isinstance(one, Metric) else METRICS[one]
        if found.setdefault(metric.key, metric) != metric:
            raise BadValue(f"two metrics are called '{metric.key}'. Give yours another key.")
        if not re.fullmatch(r"[\w@-]+", metric.key):
            raise BadValue(f"a metric is called '{metric.key}'; expected letters, digits, - and _.")
    if not found:
        raise BadValue("no metric was named; `attnlib metrics` lists all of them.")
    return list(found.values())


def stream(
    encoder: Encoder,
    corpus: Corpus,
    metrics: Sequence[Metric],
    *,
    max_length: int = 128,
    segment_ids: str = "pair",
    **reading: Any,
) -> Measurement:
    """One pass over the corpus; each map is reduced where it arises and then forgotten.

    reading  batch_size, on_long: see `batches_of`
    """
    started = time.perf_counter()
    skipped: Counter[str] = Counter(corpus.skipped)
    shard = Shard()
    watch = Watch(encoder, metrics, max_length)
    reading |= {"max_length": max_length, "skipped": skipped}
    with torch.inference_mode(), tapped(encoder, watch.tap):
        for batch in batches_of(corpus.examples, encoder, **reading):
            shard.append(batch.index, watch.reduce(batch, segment_ids))
    seconds = time.perf_counter() - started
    return Measurement(encoder, corpus.name, metrics, shard, dict(skipped), seconds)


class Watch:
    """Reduces the maps of a batch, layer by layer, to one partial per metric."""

    def __init__(self, encoder: Encoder, metrics: Sequence[Metric], max_length: int) -> None:
        self.encoder, self.max_length = encoder, max_length
        self.linear = [m for m in metrics if m.linear]
        self.layered = [m for m in metrics if not m.linear and m.scope == "layer"]
        self.across = [m for m in metrics if m.scope == "model"]
        self.tap = Tap(observe=self._observe)
        self._batch: Batch
        self._selectors: Selectors
        self._parts: dict[int, Batch] = {}
        self._sums: list[list[Tensor]] = []
        self._found: dict[str, list[list[Partial]]] = {}
        self._maps: list[list[Tensor]] = []

    def reduce(self, batch: Batch, segment_ids: str) -> dict[str, Partial]:
        """Run the batch; every metric's partial is (batch, layer, head, ...)."""
        layers = range(self.encoder.n_layers)
        self._batch, self._parts = batch, {}
        self._selectors = Selectors(batch, self.linear)
        self._found = {m.key: [[] for _ in layers] for m in self.layered}
        self._sums, self._maps = [[] for _ in layers], [[] for _ in layers]
        run_tapped(self.encoder, batch, self.tap, segment_ids=segment_ids)
        sums = torch.stack([torch.cat(layer) for layer in self._sums], dim=1)
        keys = [metric.key for metric in self.linear]
        partials = dict(zip(keys, self._selectors.partials(sums), strict=True))
        partials |= {key: _stack(found) for key, found in self._found.items()}
        partials |= self._reduce_across()
        for metric in (*self.layered, *self.across):
            if metric.axes[-1] in ("query", "key"):
                partials[metric.key] = _padded(partials[metric.key], self.max_length)
        for key, partial in partials.items():
            self._refuse_infinite(key, partial)
        return partials

    def _refuse_infinite(self, key: str, partial: Partial) -> None:
        bad = ~partial.total.isfinite() & (partial.spread_weight() > 0)
        if bad.any():
            place = int(bad.nonzero()[:, 1].min())
            across = any(key == metric.key for metric in self.across)
            layer = place // self.encoder.n_heads if across else place
            trouble = f"{key} is not finite from layer {layer + 1} on"
            finite = ~bad.flatten(1).any(1)
            refuse_infinite(self.encoder.name, trouble, finite, self._batch.index)

    def _observe(self, layer: int, rows: slice, weights: Tensor, scores: Tensor | None) -> None:
        if rows.start not in self._parts:  # every layer sees the same slices of the batch
            self._parts[rows.start] = self._batch.rows(rows)
        attention = Attention(weights, self._parts[rows.start], scores).reduced()
        self._sums[layer].append(self._selectors.masses(attention, rows))
        for metric in self.layered:
            self._found[metric.key][layer].append(metric(attention))
        if self.across:
            self._maps[layer].append(attention.weights)

    def _reduce_across(self) -> dict[str, Partial]:
        """Metrics between heads of different layers need all maps of this one batch."""
        if not self.across:
            return {}
        maps = torch.cat([torch.cat(layer) for layer in self._maps], dim=1)
        attention = Attention(maps, self._batch)
        self._maps = []
        return {metric.key: metric(attention) for metric in self.across}


def _stack(found: list[list[Partial]]) -> Partial:
    """Slices of a batch end to end, layers side by side: (batch, layer, head, ...)."""
    total = [torch.cat([part.total for part in layer]) for layer in found]
    weight = [torch.cat([part.weight for part in layer]) for layer in found]
    return Partial(torch.stack(total, dim=1), torch.stack(weight, dim=1))


def _padded(partial: Partial, width: int) -> Partial:
    """Positions past the end of the batch exist in longer texts: weight 0 here."""
    rest = (0, width - partial.total.shape[-1])
    parts = (partial.total, partial.spread_weight())
    return Partial(*(torch.nn.functional.pad(part, rest) for part in parts))
