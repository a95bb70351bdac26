"""The plane keeps distances, groups are compared with shuffles, labels follow thresholds."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import silhouette_score

from experiments.clark2019.distances import GROUPS, distance_matrix, planar, silhouettes
from experiments.clark2019.surface import BEHAVIOURS, behaviours
from tests.notebooks import defined_in


def distances_of(points: np.ndarray) -> np.ndarray:
    """Euclidean distances, pair by pair."""
    n = len(points)
    return np.array([[math.dist(points[i], points[j]) for j in range(n)] for i in range(n)])


def random_distances(n: int, seed: int = 0) -> np.ndarray:
    """Symmetric numbers that lie in no plane."""
    values = np.random.default_rng(seed).uniform(0.1, 1.0, (n, n))
    upper = np.triu(values, 1)
    return upper + upper.T


# The plane


def test_points_of_a_plane_are_found_again_up_to_a_turn() -> None:
    points = np.random.default_rng(1).normal(size=(20, 2))
    points_found, stress, correlation = planar(distances_of(points))
    np.testing.assert_allclose(distances_of(points_found), distances_of(points), atol=5e-3)
    assert stress < 2e-3
    assert correlation > 0.9999


def test_stress_and_correlation_are_those_of_plain_loops() -> None:
    given = random_distances(9)
    points, stress, correlation = planar(given)
    above = below = 0.0
    wanted, shown = [], []
    for i in range(9):
        for j in range(i + 1, 9):
            d = math.dist(points[i], points[j])
            above += (given[i, j] - d) ** 2
            below += d**2
            wanted.append(given[i, j])
            shown.append(d)
    assert stress == pytest.approx(math.sqrt(above / below))
    assert correlation == pytest.approx(np.corrcoef(wanted, shown)[0, 1])
    assert stress > 0.1  # random numbers do not fit into a plane


def test_more_starts_are_never_worse() -> None:
    given = random_distances(25, seed=3)
    one, many = (planar(given, starts=starts)[0] for starts in (1, 6))

    def raw(points: np.ndarray) -> float:
        return float(((distances_of(points) - given) ** 2).sum())

    assert raw(many) <= raw(one) + 1e-9


def test_the_picture_is_the_same_every_time_and_does_not_depend_on_the_start() -> None:
    points = np.random.default_rng(2).normal(size=(15, 2)) * [3, 1]
    given = distances_of(points)
    first, again, other = (planar(given, seed=seed)[0] for seed in (0, 0, 7))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, other, atol=0.02)


def test_the_long_axis_lies_flat_and_the_farthest_point_is_positive() -> None:
    points = planar(random_distances(12))[0]
    np.testing.assert_allclose(points.mean(0), 0, atol=1e-9)
    assert points[:, 0].var() >= points[:, 1].var()
    assert np.cov(points.T)[0, 1] == pytest.approx(0, abs=1e-9)
    assert (points.max(0) >= -points.min(0)).all()


def test_no_warning_of_the_library() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planar(random_distances(6))


def test_equal_distances_have_no_correlation() -> None:
    assert math.isnan(planar(1.0 - np.eye(5))[2])


# Groups


def pairs(matrix: np.ndarray, n_heads: int) -> pd.DataFrame:
    one, other = np.triu_indices(len(matrix), 1)
    names = {"layer": one // n_heads + 1, "head": one % n_heads + 1, "js": matrix[one, other]}
    others = {"other_layer": other // n_heads + 1, "other_head": other % n_heads + 1}
    return pd.DataFrame({**names, **others})


def looks(n_layers: int, n_heads: int, behaves: dict[int, str] | None = None) -> pd.DataFrame:
    """Means of all metrics; heads of `behaves` show one, the others none."""
    rows = []
    for metric, _ in BEHAVIOURS.values():
        for at in range(n_layers * n_heads):
            place = {"layer": at // n_heads + 1, "head": at % n_heads + 1}
            mean = 9.0 if (behaves or {}).get(at) == metric else 0.0
            rows.append({"metric": metric, **place, "mean": mean})
    return pd.DataFrame(rows)


def test_layers_that_hold_together_are_found_and_shuffled_ones_are_not() -> None:
    draw = np.random.default_rng(1)
    points = np.repeat(draw.normal(0, 5, (4, 2)), 3, axis=0) + draw.normal(0, 0.1, (12, 2))
    matrix = distances_of(points)  # four layers of three heads
    np.testing.assert_allclose(distance_matrix(pairs(matrix, 3)), matrix, atol=1e-12)
    closeness = defined_in("clark2019", "closeness")
    found = closeness(pairs(matrix, 3), looks(4, 3))
    close = found.findings["js.within_layer_over_shuffled"]
    inside = [matrix[i, j] for i in range(12) for j in range(i) if i // 3 == j // 3]
    assert close.value == pytest.approx(np.mean(inside) / np.mean(squareform(matrix)), rel=0.05)
    assert close.low < close.value < close.high < 1
    assert math.isnan(found.findings["js.within_behaviour_over_shuffled"].value)
    assert found.facts["named"] == 0
    contained = 0
    for _ in range(20):
        mixed = draw.permutation(12)
        one = pairs(matrix[np.ix_(mixed, mixed)], 3)
        ends = closeness(one, looks(4, 3), shuffles=200).findings["js.within_layer_over_shuffled"]
        contained += ends.low <= 1 <= ends.high
    assert contained >= 16  # 19 are expected


def test_behaviours_are_compared_among_heads_that_have_one() -> None:
    given = random_distances(6)
    shown = {0: "mass_to_next", 3: "mass_to_next", 4: "mass_to_previous", 5: "mass_to_previous"}
    found = defined_in("clark2019", "closeness")(pairs(given, 3), looks(2, 3, shown))
    orders = [((0, 3), (4, 5)), ((0, 4), (3, 5)), ((0, 5), (3, 4))]
    means = [np.mean([given[pair] for pair in order]) for order in orders]
    number = found.findings["js.within_behaviour_over_shuffled"].value
    assert number == pytest.approx(means[0] / np.mean(means), rel=0.02)
    assert found.facts["named"] == 4


@pytest.mark.parametrize("seed", range(3))
def test_silhouettes_are_those_of_the_library(seed: int) -> None:
    given = squareform(random_distances(30, seed))
    tree = linkage(given, "average")
    for n, found in zip(GROUPS, silhouettes(given), strict=True):
        labels = fcluster(tree, n, "maxclust")
        expected = silhouette_score(squareform(given), labels, metric="precomputed")
        assert found == pytest.approx(expected)


def test_clear_clusters_are_clear() -> None:
    draw = np.random.default_rng(0)
    points = np.repeat(np.eye(5) * 10, 4, axis=0) + draw.normal(0, 0.1, (20, 5))
    found = silhouettes(squareform(distances_of(points)))
    assert GROUPS[int(np.nanargmax(found))] == 5 and found.max() > 0.95
    assert np.isnan(silhouettes(np.ones(20 * 19 // 2))).all()  # all are equally far: no groups


# Behaviours

QUIET = {"entropy": 2.0} | {metric: 0.05 for metric, _ in BEHAVIOURS.values() if metric[0] == "m"}


def table_of(*heads: dict[str, float]) -> pd.DataFrame:
    """A tidy table with one head after the other in layer 3; what is not given is unremarkable."""
    rows = [
        (metric, 3, place, mean)
        for place, head in enumerate(heads, 1)
        for metric, mean in (QUIET | head).items()
    ]
    return pd.DataFrame(rows, columns=["metric", "layer", "head", "mean"])


def test_each_behaviour_has_its_label() -> None:
    heads = [
        {"entropy": 3.9},
        {"mass_to_previous": 0.51},
        {"mass_to_next": 0.9},
        {"mass_to_self": 0.6},
        {"mass_to_sep": 0.61},
        {"mass_to_cls": 0.7},
        {"mass_to_period_or_comma": 0.8},
        {},
    ]
    assert list(behaviours(table_of(*heads))) == [*BEHAVIOURS, "other"]


def test_a_threshold_has_to_be_passed() -> None:
    at_the_limit = {"entropy": 3.8, "mass_to_next": 0.5, "mass_to_sep": 0.6}
    assert list(behaviours(table_of(at_the_limit))) == ["other"]


def test_the_first_that_fits_names_the_head() -> None:
    both = {"entropy": 4.0, "mass_to_previous": 0.7, "mass_to_sep": 0.7}
    assert list(behaviours(table_of(both))) == ["broad"]
    assert list(behaviours(table_of(both | {"entropy": 1.0}))) == ["previous"]


def test_a_missing_mean_is_not_a_low_mean() -> None:
    unknown, known = {"mass_to_cls": math.nan}, {"mass_to_cls": math.nan, "mass_to_next": 0.8}
    assert list(behaviours(table_of(unknown, known, {}))) == ["undefined", "next", "other"]


def test_labels_are_those_of_a_plain_loop_on_random_heads() -> None:
    generator = np.random.default_rng(0)
    heads = [
        {metric: generator.uniform(0, 5 if metric == "entropy" else 1) for metric in QUIET}
        for _ in range(60)
    ]
    expected = []
    for head in heads:
        if head["entropy"] > 3.8:
            expected.append("broad")
        elif head["mass_to_previous"] > 0.5:
            expected.append("previous")
        elif head["mass_to_next"] > 0.5:
            expected.append("next")
        elif head["mass_to_self"] > 0.5:
            expected.append("self")
        elif head["mass_to_sep"] > 0.6:
            expected.append("[SEP]")
        elif head["mass_to_cls"] > 0.6:
            expected.append("[CLS]")
        else:
            expected.append("punctuation" if head["mass_to_period_or_comma"] > 0.6 else "other")
    found = behaviours(table_of(*heads).sample(frac=1, random_state=1))
    assert list(found) == expected
    assert found.loc[(3, 7)] == expected[6]
