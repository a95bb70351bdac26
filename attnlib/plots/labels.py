"""What figures say of metrics and heads: names, units, the rows and panels they need."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from attnlib.errors import BadValue, check_known
from attnlib.metrics.registry import METRICS, Metric
from attnlib.plots.drawing import need

COLUMNS = ("metric", "layer", "head", "mean", "low", "high", "n")


def label(metric: str) -> str:
    """A metric in words, from its record: `mass_to_sep` is `attention to [SEP]`."""
    record = _record(metric)
    if record is None:
        return metric.replace("_", " ")
    variant = "" if record.variant == "paper" else f" ({record.variant})"
    if record.key.startswith("bias_"):
        role = record.key.partition("@")[0].removeprefix("bias_").replace("_", " ")
        return f"bias towards {role}{variant}"
    if record.relation is not None:
        place = record.relation.short or f"to {record.relation.what.split(',')[0]}"
        noun = "share" if record.key.startswith("distance_") else "attention"
        return f"{noun} {place}{variant}"
    return record.key.partition("@")[0].replace("_", " ").replace("cls", "[CLS]") + variant


def is_share(metric: str) -> bool:
    """Whether a metric is a share of attention, so that its axis runs from 0 to 1."""
    record = _record(metric)
    return record is not None and record.bounds == (0.0, 1.0)


def _record(metric: str) -> Metric | None:
    """The declaration behind a key; a metric of the reader's own has none and keeps its name."""
    return METRICS[metric] if metric.partition("@")[0] in set(METRICS) else None


def unit(metric: str) -> str:
    record = _record(metric)
    return record.unit if record else ""


def as_list(metric: str | Sequence[str]) -> list[str]:
    return [metric] if isinstance(metric, str) else list(metric)


def metric_rows(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """The rows of the asked metrics, in the asked order; says what is missing otherwise.

    table  as `result.table()` gives it
    """
    need(table, *COLUMNS)
    known = list(dict.fromkeys(table["metric"]))
    listed = f"In this table: {', '.join(known)}."
    check_known("metric", metrics, known, listed)
    if not metrics:
        raise BadValue(f"no metric was named. {listed}")
    return pd.concat([table[table["metric"] == key] for key in metrics], ignore_index=True)


def top_heads(rows: pd.DataFrame, metric: str, n: int) -> pd.DataFrame:
    """The n strongest heads of one metric; heads without a value are never among them."""
    kept = rows[(rows["metric"] == metric) & rows["mean"].notna()]
    return kept.nlargest(n, "mean").reset_index(drop=True)


_TASKS = {"sst2": "SST-2", "sst-2": "SST-2", "cola": "CoLA", "stsb": "STS-B"}
_TASKS |= {"msrpar": "MSRpar", "rotten-tomatoes": "Rotten Tomatoes"}
_TASKS |= {name: name.upper() for name in ("qnli", "qqp", "mrpc", "rte", "mnli", "wnli")}


def task_name(task: str) -> str:
    """A task as people write it: `sst2` is `SST-2`; an unknown one keeps its name."""
    return _TASKS.get(str(task).lower(), str(task))


def upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def number(value: float, form: str = ".1f", otherwise: str = "–") -> str:
    """A number with a real minus sign; a dash, or something else, where it is undefined."""
    return otherwise if math.isnan(value) else format(value, form).replace("-", "−")
