"""A fact: columns become plain arrays, and what is wrong is named."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from attnlib.errors import BadValue, UnknownName
from experiments.atlas import Atlas, Fact
from experiments.atlas.facts import FACTS, KINDS
from tests.atlases import made_up, tiny_readings
from tests.families import one_thread

__all__ = ["one_thread"]  # fixture


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return made_up(tiny_readings(tmp_path_factory.mktemp("atlas")))


def test_values_become_plain(atlas: Atlas) -> None:
    assert np.isnan(atlas.fact("entropy").value[5]) and atlas.fact("rule_label").value[3] is None
    for key in ("peak", "role_local", "disabled_rte"):
        assert atlas.fact(key).value.dtype == float
    assert set(atlas.fact("role_local").value) == {0, 1}
    assert {type(value) for value in atlas.fact("guan_label").value} == {str}
    with pytest.raises(UnknownName, match="Did you mean 'entropy'"):
        atlas.fact("entopy")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "flag", "value": [0, 2]}, "2 is neither 0 nor 1"),
        ({"kind": "class", "value": ["a", 2]}, "2 is not a word"),
        ({"value": [1.0, math.inf]}, "column 'value': inf is not a finite number"),
        ({"low": [0, 0]}, "one end of an interval"),
        ({"low": [2, 0], "high": [1, 1]}, "interval from 2.0 to 1.0"),
        ({"low": ["x", 0], "high": [1, 1]}, "column 'low': 'x' is not a finite number"),
        ({"skills": [[]]}, "1 entries of 'skills' and 2 values"),
        ({"detail": {"n": [1, 2, 3]}}, "3 entries of 'n' and 2 values"),
        ({"key": ""}, "a fact has no key"),
        ({"kind": "guess"}, "is 'guess'; expected one of number, class, flag"),
    ],
)
def test_a_wrong_fact_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue, match=said):
        Fact(**{"key": "k", "value": [1, 2], **given})


def test_a_fact_is_declared_once() -> None:
    one = Fact("disabled_rte", [1, 2])
    assert (one.paper, one.kind, one.unit, one.diverging) == (
        *("kovaleva2019", "number", "points"),
        True,
    )
    assert Fact("role_local", [0, 1]).kind == "flag" and Fact("entropy", [1]).unit == "nats"
    own = Fact("mine", ["a", "b"], kind="class", paper="nobody2024")
    assert own.declared == {} and (own.paper, own.unit, own.diverging) == ("nobody2024", "", False)
    for key, said in FACTS.items():
        assert {"paper", "name", "group", "about", "where"} <= said.keys(), key
        assert not re.match(r"[a-z]+:|/", said["where"]), "a place in the book, and no address"
        assert Fact(key, []).kind in KINDS
