"""The plane keeps distances, the permutation test counts shuffles, labels follow thresholds."""

from __future__ import annotations

import math
import warnings
from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from experiments.clark2019 import distances
from experiments.clark2019.distances import closeness, planar
from experiments.clark2019.surface import BEHAVIOURS, behaviours


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


# The permutation test


def naive_means(given: np.ndarray, groups: list[str]) -> tuple[float, float]:
    inside, outside = [], []
    for i in range(len(groups)):
        for j in range(i):
            (inside if groups[i] == groups[j] else outside).append(given[i, j])
    return float(np.mean(inside)), float(np.mean(outside))


def exact_share(given: np.ndarray, groups: list[str]) -> float:
    """Of all orders of the labels, the share that is as close as the given one."""
    observed = naive_means(given, groups)[0]
    every = [naive_means(given, list(dealt))[0] for dealt in permutations(groups)]
    return float(np.mean([value <= observed + 1e-9 for value in every]))


GROUPS = [list("aabbb"), list("aaabbc"), list("aabbcc"), list("abcdee")]


@pytest.mark.parametrize("groups", GROUPS, ids="".join)
def test_means_are_those_of_plain_loops(groups: list[str]) -> None:
    given = random_distances(len(groups), seed=4)
    found = closeness(given, groups, permutations=10)
    within, between = naive_means(given, groups)
    assert found[:2] == pytest.approx((within, between))


def p_value_misses(groups: list[str], seed: int) -> float:
    """How far p lies from the full enumeration, in standard errors."""
    given, n = random_distances(len(groups), seed=seed), 20_000
    exact = exact_share(given, groups)
    found = closeness(given, groups, permutations=n)[2]
    error = math.sqrt(exact * (1 - exact) / n) + 2 / n
    return abs(found - exact) / error


@pytest.mark.parametrize("groups", GROUPS, ids="".join)
@pytest.mark.parametrize("seed", [5, 6])
def test_p_value_agrees_with_all_orders_of_the_labels(groups: list[str], seed: int) -> None:
    assert p_value_misses(groups, seed) < 4


def test_a_shuffle_of_rows_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows_only(given, one, other, observed, permutations, seed):  # type: ignore[no-untyped-def]
        generator = np.random.default_rng(seed)
        dealt = generator.permuted(np.tile(np.arange(len(given)), (permutations, 1)), axis=1)
        means = given[dealt[:, one], other].mean(1)
        return (1 + (means <= observed + 1e-9).sum()) / (1 + permutations)

    monkeypatch.setattr(distances, "_p_value", rows_only)
    assert max(p_value_misses(groups, 5) for groups in GROUPS) > 20


def test_clear_groups_are_found_and_scattered_ones_are_not() -> None:
    generator = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], 8)
    centre = {"a": (0, 0), "b": (5, 0), "c": (0, 5)}
    points = np.array([centre[g] for g in groups]) + generator.normal(size=(24, 2))
    near = closeness(distances_of(points), groups, permutations=999)
    assert near[2] == pytest.approx(1 / 1000)
    assert near[0] / near[1] < 0.5
    far = closeness(distances_of(points), generator.permutation(groups), permutations=999)
    assert far[2] > 0.05


def test_chance_gives_even_p_values() -> None:
    generator = np.random.default_rng(9)
    found = [
        closeness(random_distances(10, seed), generator.permutation(list("aaabbbcccd")),
                  permutations=199)[2]
        for seed in range(100)
    ]  # fmt: skip
    assert 0.4 < float(np.mean(found)) < 0.6
    assert np.mean(np.array(found) < 0.2) < 0.35


def test_the_seed_fixes_the_answer() -> None:
    given, groups = random_distances(8), list("aabbccdd")
    whole = closeness(given, groups, permutations=500, seed=3)
    assert closeness(given, groups, permutations=500, seed=3) == whole


def test_groups_of_one_have_no_pair_within() -> None:
    within, _, p = closeness(random_distances(4), list("abcd"), permutations=50)
    assert math.isnan(within) and math.isnan(p)


def test_one_group_alone_is_as_close_as_chance() -> None:
    _, between, p = closeness(random_distances(4), [1, 1, 1, 1], permutations=50)
    assert p == 1
    assert math.isnan(between)


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
