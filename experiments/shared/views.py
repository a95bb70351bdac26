"""How a model reads some texts, kept as a result, so that the viewer opens without the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.reading import Reading, head_metrics
from attnlib.models import Encoder
from attnlib.plots.viewer import METRICS, View, view
from bookkit.store import Found, experiment


@experiment(version=1)
def head_readings(
    *, encoder: Encoder, texts: Sequence[Any], metrics: Sequence[str] = METRICS
) -> Found:
    """Every head on every text: the metrics as a table, the packed maps among the facts.

    texts  a text, or a pair of texts, each
    table  text, metric, layer, head, value
    """
    given = [tuple(text) if isinstance(text, list) else text for text in texts]
    shown = view(encoder, given, metrics=metrics)
    readings = [reading for (reading,) in shown.readings]
    tables = [
        head_rows(value=grid).assign(text=number, metric=metric)
        for number, reading in enumerate(readings)
        for metric, grid in reading.values.items()
    ]
    table = pd.concat(tables, ignore_index=True)[["text", "metric", "layer", "head", "value"]]
    kept = [{**asdict(one), "values": None} for one in readings]
    facts = {"inputs": len(readings), "titles": list(shown.titles), "readings": kept}
    return Found(table, facts=facts)


def readings_of(found: Found) -> list[Reading]:
    """The readings behind `head_readings`."""
    readings = []
    for number, kept in enumerate(found.facts["readings"]):
        rows = found.table[found.table["text"] == number]
        values = {
            str(metric): grid.pivot(index="layer", columns="head", values="value").to_numpy()
            for metric, grid in rows.groupby("metric", sort=False)
        }
        parts: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in kept.items()}
        readings.append(Reading(**{**parts, "values": values}))
    return readings


def view_of(found: Found) -> View:
    """The viewer on the readings behind `head_readings`."""
    metrics = head_metrics(list(dict.fromkeys(found.table["metric"])))
    each = tuple((reading,) for reading in readings_of(found))
    return View(tuple(found.facts["titles"]), each, tuple(metrics))
