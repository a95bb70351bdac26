"""The registry of metrics: frozen, complete, and helpful about names it does not know."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlib.attention.maps import Attention
from attnlib.errors import UnknownName
from attnlib.measuring.stream import METRICS
from attnlib.metrics.distance import FEATURES, distance_metrics
from attnlib.metrics.registry import METRICS as IMPORTED
from attnlib.metrics.registry import Metric, Partial, Registry
from attnlib.metrics.relations import RELATIONS
from attnlib.metrics.sieves import SIEVES
from tests.maps import random_attention

PAPERS = ("clark2019", "kovaleva2019", "guan2020", "pande2021")
AXES = {("head",), ("head", "key"), ("head", "other head")}

every_metric = pytest.mark.parametrize("key", list(METRICS))


def nothing(attention: Attention, **_: str) -> Partial:
    """Nothing at all."""
    return Partial(torch.zeros(len(attention.batch)), torch.zeros(len(attention.batch)))


def a_metric(key: str = "own") -> Metric:
    return Metric(key, "Nothing.", "clark2019:sec3", "nats", (0.0, 1.0), nothing)


# --- frozen --------------------------------------------------------------------------------------


def test_registry_is_frozen() -> None:
    with pytest.raises(TypeError, match=r"frozen.*'own'.*measure"):
        METRICS.declare(a_metric())
    assert "own" not in list(METRICS)


def test_registry_cannot_be_written_to() -> None:
    table: Any = METRICS
    with pytest.raises(TypeError):
        table["own"] = a_metric()
    with pytest.raises(TypeError):
        del table["entropy"]


def test_metric_cannot_be_changed() -> None:
    metric: Any = METRICS["entropy"]
    with pytest.raises(FrozenInstanceError):
        metric.unit = "bits"


def test_second_declaration_of_a_key_raises() -> None:
    registry = Registry()
    registry.declare(a_metric("one"))
    with pytest.raises(ValueError, match="'one' is declared twice"):
        registry.declare(a_metric("one"))
    registry.declare(a_metric("two"))
    assert list(registry) == ["one", "two"]


def test_there_is_one_registry() -> None:
    assert METRICS is IMPORTED
    assert len(METRICS) == len(list(METRICS)) == len(set(METRICS))


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("entropi", "entropy"),
        ("mass_to_nxt", "mass_to_next"),
        ("column_mas", "column_mass"),
        ("js_divergance", "js_divergence"),
        ("entropi@authors", "entropy"),
    ],
)
def test_unknown_key_gets_a_hint(wrong: str, meant: str) -> None:
    with pytest.raises(UnknownName) as caught:
        METRICS[wrong]
    message = str(caught.value)
    assert f"'{wrong.partition('@')[0]}'" in message
    assert f"Did you mean '{meant}'?" in message
    assert "attnlib metrics" in message


def test_far_off_key_gets_no_wrong_hint() -> None:
    with pytest.raises(UnknownName, match="attnlib metrics") as caught:
        METRICS["xyzzy"]
    assert "Did you mean" not in str(caught.value)


def test_variant_by_name() -> None:
    assert "entropy@authors" in METRICS
    authors = METRICS["entropy@authors"]
    assert (authors.key, authors.variant) == ("entropy@authors", "authors")
    assert replace(authors, key="entropy", variant="paper") == METRICS["entropy"]
    assert METRICS["entropy@paper"] == METRICS["entropy"]
    attention = random_attention(1)
    assert not torch.equal(authors(attention).total, METRICS["entropy"](attention).total)


@pytest.mark.parametrize("key", ["entropy@nobody", "column_mass@authors", "mass_to_next@authors"])
def test_unknown_variant_is_refused(key: str) -> None:
    name, _, variant = key.partition("@")
    with pytest.raises(UnknownName) as caught:
        METRICS[key]
    assert f"'{name}' has no variant '{variant}'" in str(caught.value)
    assert all(known in str(caught.value) for known in METRICS[name].variants)


def test_asking_whether_a_metric_is_there() -> None:
    """A registry is a Mapping: `in` and `get` answer, they do not raise."""
    assert "nope" not in METRICS
    assert METRICS.get("nope") is None


# --- what a record must say ----------------------------------------------------------------------


@every_metric
def test_record_says_what_is_measured(key: str) -> None:
    metric = METRICS[key]
    assert metric.key == key
    assert re.fullmatch(r"[a-z][a-z0-9_]*", key)
    assert re.fullmatch(r"[A-Z].*\.", metric.what), "one sentence, with its full stop"
    assert metric.unit.strip()


@every_metric
def test_record_has_a_formula(key: str) -> None:
    metric = METRICS[key]
    if key.startswith("distance_"):
        assert metric in distance_metrics()
        assert ".. math::" in (distance_metrics.__doc__ or "")
        return
    if metric.relation is not None:
        assert metric.relation in (*RELATIONS.values(), *SIEVES.values())
        return
    assert ".. math::" in (metric.kernel.__doc__ or "")


@every_metric
def test_record_names_its_source(key: str) -> None:
    """A place in a paper, or "own" for a quantity that no paper has."""
    paper, _, place = METRICS[key].source.partition(":")
    assert paper == "own" or re.fullmatch(r"(sec|fig|tab|eq)\d+(\.\d+)*", place)


@every_metric
def test_record_is_consistent(key: str) -> None:
    metric = METRICS[key]
    assert metric.axes in AXES
    assert metric.scope == ("model" if "other head" in metric.axes else "layer")
    assert metric.variants[0] == metric.variant == "paper"
    assert set(metric.variants) <= {"paper", "authors", "having"}
    low, high = metric.bounds
    assert isinstance(low, int | float)
    assert high in ("log n_key", "n_key") or (isinstance(high, int | float) and low < high)


@every_metric
def test_declared_axes_are_the_shape_of_the_result(key: str) -> None:
    attention = random_attention(2)
    sizes = {"head": 5, "other head": 5, "key": attention.batch.length}
    shape = METRICS[key](attention).total.shape
    assert shape == (len(attention.batch), *(sizes[axis] for axis in METRICS[key].axes))


def test_every_relation_is_measured() -> None:
    found = [m for m in METRICS.values() if m.relation is not None]
    biases = [m.relation.key for m in found if m.key.startswith("bias_")]
    assert biases == list(SIEVES)
    distances = [m.relation.key for m in found if m.key.startswith("distance_")]
    assert distances == list(FEATURES)
    masses = [m.relation.key for m in found if m.key.startswith("mass_")]
    assert masses == list(RELATIONS)


def test_sources_are_papers_of_the_book() -> None:
    references = (Path(__file__).parents[3] / "book" / "references.bib").read_text()
    known = set(re.findall(r"@\w+\{(\w+),", references))
    named = {metric.source.partition(":")[0] for metric in METRICS.values()}
    assert {*named} - {"own"} and named <= known | {"own"}
