"""Where a pass runs: in this process, or in shards on a Dask cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from attnlib.attention.encode import encode
from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.measuring.shards import Shard
from attnlib.measuring.stream import Measurement, chosen_metrics, loaded, measure, stream
from attnlib.metrics.registry import Metric
from attnlib.metrics.relations import Relation
from attnlib.models import Encoder, load_encoder
from attnlib.progress import counting

SHARDS_PER_WORKER = 4
"""Small enough to balance, large enough that a shard is worth its journey."""


def measure_on(
    engine: str,
    model: str | Path,
    corpus: str | Path | Corpus,
    metrics: Sequence[str | Metric | Relation],
    *,
    limit: int | None = None,
    seed: int = 0,
    device: str = "auto",
    **options: Any,
) -> Measurement:
    """`measure`, in this process ("local") or on the cluster at "dask://HOST:PORT".

    For a cluster the corpus is cut into shards; each is measured where there is room.
    """
    if engine == "local":
        options |= {"limit": limit, "seed": seed, "device": device}
        return measure(model, corpus, metrics, **options)
    if not engine.startswith("dask://"):
        raise BadValue(f"engine is '{engine}'; expected local or dask://HOST:PORT.")
    chosen = chosen_metrics(metrics)
    length = options.get("max_length", 128)
    encoder, corpus = loaded(model, corpus, limit=limit, seed=seed, max_length=length, device="cpu")
    # What is too long is said here, where documents are numbered as the user numbers them.
    limits = {key: options[key] for key in ("max_length", "on_long") if key in options}
    n_rows = sum(1 for _ in encode(corpus.examples, encoder, **limits))
    with _client(engine.removeprefix("dask://")) as client, counting() as tick:
        n_shards = SHARDS_PER_WORKER * max(1, len(client.scheduler_info()["workers"]))
        size = -(-len(corpus.examples) // n_shards)
        given = (str(model), device, metrics, options)
        futures = [
            client.submit(_measured_part, i, part, *given, pure=False)
            for i in range(0, len(corpus.examples), size)
            for part in [replace(corpus, examples=corpus.examples[i : i + size], skipped={})]
        ]
        shard, seconds, skipped = Shard(), 0.0, Counter(corpus.skipped)
        for future in futures:
            part, part_skipped, part_seconds = future.result()
            shard.extend(part)
            skipped.update(part_skipped)
            seconds += part_seconds
            tick(len(shard.index), n_rows)
    found = Measurement(encoder, corpus.name, chosen, shard, dict(skipped), seconds)
    return found.not_empty()


def _measured_part(
    start: int,
    corpus: Corpus,
    model: str,
    device: str,
    metrics: Sequence[str | Metric | Relation],
    options: dict[str, Any],
) -> tuple[Any, dict[str, int], float]:
    """One shard, on a worker; its examples keep their place in the whole corpus."""
    found = stream(_encoder(model, device), corpus, chosen_metrics(metrics), **options)
    return found.shard.exported(start), found.skipped, found.seconds


@lru_cache(maxsize=2)
def _encoder(model: str, device: str) -> Encoder:
    """Loaded once per worker process."""
    return load_encoder(model, device=device)


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise BadValue(
            "--engine dask:// needs the package distributed; `pip install attnlib[dask]` brings it."
        ) from None
    try:
        return Client(f"tcp://{address}", timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        raise BadValue(
            f"no Dask scheduler answers at '{address}' ({type(error).__name__}). Start one with "
            "`dask scheduler`, and workers with `dask worker`, or use --engine local."
        ) from None
