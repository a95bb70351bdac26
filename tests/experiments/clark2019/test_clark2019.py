"""The numbers behind the claims on Clark 2019: by hand on small grids, and complete."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnlib.data.corpora import load_corpus
from attnlib.measuring.bootstrap import statistics
from bookkit.claims import load_paper
from experiments.clark2019.distances import distance_matrix, plane
from experiments.clark2019.portraits import portraits, relation_portraits
from experiments.clark2019.surface import SURFACE, SURFACE_FINDINGS, patterns_shown, surface
from experiments.clark2019.syntax import TABLE1, table1_findings


def grids(**given: Any) -> dict[str, np.ndarray]:
    """Six layers of two heads, 0.1 everywhere unless said otherwise."""
    found = {name: np.full((6, 2), 0.1) for name in SURFACE} | {"length": np.full((1, 1), 100.0)}
    return found | {name: np.asarray(value, float) for name, value in given.items()}


def column(*by_layer: float) -> np.ndarray:
    return np.repeat(np.array(by_layer)[:, None], 2, axis=1)


CASES = [
    ("self.median", {"mass_to_self": [[0.0, 0.1]] * 3 + [[0.3, 0.5]] * 3}, 0.2),
    ("previous.heads_above_half", {"mass_to_previous": [[0.6, 0.5]] * 6}, 6),
    ("next.heads_above_half", {"mass_to_next": column(0.9, 0, 0, 0, 0, 0)}, 2),
    (
        "positional.share_in_first_half",
        {
            "mass_to_next": column(0.9, 0, 0, 0, 0, 0),
            "mass_to_previous": column(0, 0, 0, 0, 0.9, 0),
        },
        0.5,
    ),
    ("sep.largest_layer_mean", {"mass_to_sep": column(0, 0.1, 0.2, 0.7, 0.3, 0)}, 0.7),
    ("sep.depth_of_largest", {"mass_to_sep": column(0, 0.1, 0.2, 0.7, 0.3, 0)}, 3 / 5),
    ("cls.early_over_late", {"mass_to_cls": column(0.4, 0.4, 0.1, 0.1, 0.1, 0.1)}, 4),
    (
        "period_or_comma.late_over_early",
        {"mass_to_period_or_comma": column(0.1, 0.1, 0.1, 0.1, 0.3, 0.5)},
        4,
    ),
    ("special.share_of_heads_above_half", {"mass_to_sep": [[0.4, 0.2]] * 6}, 0.5),
    (
        "sep_to_sep.in_its_layer",
        {"mass_to_sep": column(0, 0, 1, 0, 0, 0), "mass_sep_to_sep": column(0, 0, 0.8, 1, 1, 1)},
        0.8,
    ),
    ("sep_to_sep.minus_other", {"mass_sep_to_sep": np.full((6, 2), 0.9)}, 0.8),
    ("entropy.largest_early_share", {"entropy": column(0, math.log(10), 9, 9, 9, 9)}, 0.5),
    ("entropy.first_minus_rest", {"entropy": column(3, 1, 1, 1, 1, 1)}, 2),
    (
        "entropy.peak_of_broad_heads",
        {
            "entropy": column(4, 3.6, 1, 1, 1, 1),
            "column_peak": column(0.05, 0.08, 0.9, 0.9, 0.9, 0.9),
        },
        0.08,
    ),
    ("entropy_from_cls.last_layer", {"entropy_from_cls": column(1, 1, 1, 1, 1, 3)}, 3),
    ("entropy_from_cls.last_minus_middle", {"entropy_from_cls": column(9, 9, 1, 2, 9, 3.5)}, 2),
    (
        "entropy_from_cls.layers_close",
        {"entropy_from_cls": column(1, 1, 1, 3, 3, 3), "entropy": column(1, 1.4, 1.6, 3, 3, 9)},
        4 / 6,
    ),
]


@pytest.mark.parametrize(("name", "given", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_number_by_hand(name: str, given: dict[str, Any], expected: float) -> None:
    assert SURFACE_FINDINGS[name](grids(**given)) == pytest.approx(expected)


def test_every_surface_number_is_tried() -> None:
    assert {case[0] for case in CASES} == set(SURFACE_FINDINGS)


def test_patterns_of_figure_1() -> None:
    shown = patterns_shown({"mass_to_sep": 0.016, "mass_to_period_or_comma": 0.08})
    assert shown(grids()) == 0
    assert shown(grids(entropy=column(3.9, 0, 0, 0, 0, 0))) == 1
    assert shown(grids(mass_to_sep=column(0.33, 0, 0, 0, 0, 0))) == 1  # twenty times its share
    assert shown(grids(mass_to_period_or_comma=column(0.61, 0, 0, 0, 0, 0))) == 1
    assert (
        shown(grids(mass_to_next=column(0.51, 0, 0, 0, 0, 0), entropy=column(4, 0, 0, 0, 0, 0)))
        == 2
    )


def test_numbers_of_grids_have_intervals_over_examples() -> None:
    draw = np.random.default_rng(0)
    total = draw.normal(0.5, 0.1, (200, 6, 2))
    rows = {"a": (total, np.ones_like(total)), "b": (2 * total, 2 * np.ones_like(total))}
    wanted = {"mean": lambda g: g["a"].mean(), "same": lambda g: (g["a"] - g["b"]).max()}
    found = statistics(rows, wanted)
    value, low, high = found["mean"]
    spread = total.mean((1, 2)).std() / math.sqrt(200)
    assert value == pytest.approx(total.mean())
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.15)
    assert found["same"] == pytest.approx((0, 0, 0))  # the same examples for all metrics
    one = {name: (t[:1], w[:1]) for name, (t, w) in rows.items()}
    assert math.isnan(statistics(one, wanted)["mean"][1])


def test_every_claim_is_measured_by_some_experiment() -> None:
    """What the claims file names, the experiments give: nothing stays absent by a slip."""
    row = {"n": 200, "head": "1-1", "direction": "dep->head", "accuracy": 80.0, "low": 76.0}
    row |= {"high": 84.0, "baseline": 50.0, "gain": 30.0, "gain_low": 25.0, "gain_high": 35.0}
    table = pd.DataFrame([{"relation": name, **row} for name in ("all", *TABLE1)])
    given = {*SURFACE_FINDINGS, *table1_findings(table), "patterns.shown", "words.split_share"}
    given |= {"gradient.sep_over_other_late", "gradient.correlation_with_sep"}
    given |= {"js.within_layer_p", "js.within_behaviour_p"}
    for claim in load_paper("clark2019").claims:
        for name in (claim.measure, claim.phenomenon.measure):
            assert name in given or name.startswith(("table2.", "table3.")), name


def test_a_rare_relation_is_undefined_not_zero() -> None:
    row = {"head": "1-1", "direction": "head->dep", "accuracy": 70.0, "low": 60.0, "high": 80.0}
    row |= {"gain": 9.0, "gain_low": 1.0, "gain_high": 19.0}
    found = table1_findings(pd.DataFrame([{"relation": "all", **row}, {"relation": "det", **row}]))
    assert found["table1.det.gain"].value == 9 and math.isnan(found["table1.prt.gain"].value)
    assert math.isnan(found["table1.four_above_75"].value)
    assert found["table1.share_dependent_to_head"].value == 0


def pairs(matrix: np.ndarray, n_heads: int) -> pd.DataFrame:
    one, other = np.triu_indices(len(matrix), 1)
    return pd.DataFrame(
        {
            "layer": one // n_heads + 1,
            "head": one % n_heads + 1,
            "other_layer": other // n_heads + 1,
            "other_head": other % n_heads + 1,
            "js": matrix[one, other],
        }
    )


def surface_table(n_layers: int, n_heads: int) -> pd.DataFrame:
    rows = [
        {"metric": metric, "layer": layer + 1, "head": head + 1, "mean": 0.1}
        for metric in SURFACE
        for layer in range(n_layers)
        for head in range(n_heads)
    ]
    return pd.DataFrame(rows)


def test_layers_that_hold_together_are_found() -> None:
    draw = np.random.default_rng(1)
    centres = np.repeat(draw.normal(0, 5, (4, 2)), 3, axis=0)  # four layers of three heads
    points = centres + draw.normal(0, 0.1, centres.shape)
    matrix = np.linalg.norm(points[:, None] - points, axis=-1)
    np.testing.assert_allclose(distance_matrix(pairs(matrix, 3)), matrix, atol=1e-12)
    found = plane(pairs(matrix, 3), surface_table(4, 3))
    assert found.findings["js.within_layer_p"].value < 0.01
    assert math.isnan(found.findings["js.within_behaviour_p"].value)  # no head has a name
    assert found.facts["named"] == 0 and found.facts["correlation"] > 0.999
    mixed = matrix[np.ix_(draw.permutation(12), np.arange(12))]
    mixed = np.triu(mixed, 1) + np.triu(mixed, 1).T
    assert plane(pairs(mixed, 3), surface_table(4, 3)).findings["js.within_layer_p"].value > 0.01


@pytest.mark.assets
def test_the_surface_of_a_real_model(e5_small: Any) -> None:
    corpus = load_corpus("wiki-sample", limit=3, tokenizer=e5_small.tokenizer)
    found = surface(corpus, encoder=e5_small)
    assert set(found.findings) == {*SURFACE_FINDINGS, "patterns.shown"}
    assert found.facts["even"]["mass_to_sep"] == pytest.approx(
        2 / found.facts["mean_length"], rel=0.05
    )
    assert found.findings["next.heads_above_half"].value == 3
    assert not surface(corpus, encoder=e5_small, segment_ids="zeros").findings


@pytest.mark.assets
def test_portraits_are_of_the_heads_that_were_chosen(e5_small: Any) -> None:
    corpus = load_corpus("reader-coref", limit=6)
    table = surface_table(12, 12)
    chosen = (table["metric"] == "mass_to_next") & (table["layer"] == 1) & (table["head"] == 8)
    table.loc[chosen, "mean"] = 0.9
    panels = portraits(corpus, table, encoder=e5_small).table
    following = panels[panels["panel"] == 1]
    assert set(following["what"]) == {"attends to the next token"}
    words = list(following.loc[following["key"] == 0, "word"])
    assert set(following["head"]) == {"1-8"} and words[0] == "[CLS]" and words[-1] == "[SEP]"
    weights = following["weight"].to_numpy().reshape(len(words), len(words))
    assert np.diag(weights, 1).mean() > 0.5
    np.testing.assert_allclose(weights.sum(1), 1, atol=5e-3)


@pytest.mark.assets
def test_portraits_of_relations_mark_who_attends(e5_small: Any) -> None:
    corpus = load_corpus("reader-coref", limit=6)
    table = pd.DataFrame(
        [
            {"relation": "det", "head": "5-5", "direction": "dep->head", "gain": 40.0},
            {"relation": "xcomp", "head": "1-1", "direction": "dep->head", "gain": 99.0},
        ]
    )
    panel = relation_portraits(corpus, table, encoder=e5_small).table
    marked = set(panel.loc[panel["highlight"], "word"].str.lower())
    assert (
        set(panel["panel"]) == {0}
        and set(panel["head"]) == {"5-5"}
        and marked
        <= {
            "the",
            "a",
            "an",
            "this",
            "that",
            "no",
            "every",
            "each",
        }
    )
