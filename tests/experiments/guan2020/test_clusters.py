"""Criteria for the number of types, and their stability beside chance, against loops."""

from __future__ import annotations

import math
import warnings
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.mixture import GaussianMixture

from attnlib.errors import BadValue
from experiments.guan2020 import clusters
from experiments.guan2020.clusters import (
    REGULARISATION,
    SPLITS,
    best_k,
    clearness,
    cluster_counts,
    gaussian_twin,
    matched,
    mixture,
    simplex_twin,
    stabilities,
    stability,
)
from experiments.guan2020.types import silhouettes
from experiments.shared.head_types import Clustering, fitted

TRIANGLE = [(0.0, 0.0, 0.0), (4.0, 0.0, 1.0), (1.0, 5.0, 0.0)]


def blobs(centres: object, n_each: int = 10, spread: float = 0.1, seed: int = 0) -> np.ndarray:
    """Points close around each centre, one centre after the other."""
    middle = np.repeat(np.asarray(centres, dtype=float), n_each, axis=0)
    return middle + np.random.default_rng(seed).normal(scale=spread, size=middle.shape)


def noise(n: int, n_features: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, n_features))


def inputs_of(heads: np.ndarray, n: int = 20, spread: float = 0.3, seed: int = 0) -> np.ndarray:
    """Features per input that scatter around those of the heads: (input, head, feature)."""
    scatter = np.random.default_rng(seed).normal(scale=spread, size=(n, *heads.shape))
    return heads + scatter - scatter.mean(0)


# Silhouettes


def silhouette_of(
    points: np.ndarray, labels: list[int], *, count_self: bool = False
) -> list[float]:
    """Rousseeuw's definition, head by head."""
    n, values = len(points), []
    for h in range(n):
        own = [j for j in range(n) if labels[j] == labels[h] and (count_self or j != h)]
        if len(own) == (1 if count_self else 0):
            values.append(0.0)
            continue
        a = sum(math.dist(points[h], points[j]) for j in own) / len(own)
        others = []
        for cluster in set(labels) - {labels[h]}:
            those = [j for j in range(n) if labels[j] == cluster]
            others.append(sum(math.dist(points[h], points[j]) for j in those) / len(those))
        b = min(others)
        values.append((b - a) / max(a, b))
    return values


def test_silhouettes_are_those_of_plain_loops_and_of_the_library() -> None:
    from sklearn.metrics import silhouette_samples

    points, labels = noise(20), np.array([0] * 7 + [2] * 9 + [5] * 3 + [1])
    found = silhouettes(points, labels)
    np.testing.assert_allclose(found, silhouette_of(points, labels.tolist()))
    np.testing.assert_allclose(found, silhouette_samples(points, labels))
    assert found[-1] == 0
    # A head that counts among its own neighbours looks nearer to them than it is.
    assert not np.allclose(found, silhouette_of(points, labels.tolist(), count_self=True))


def test_silhouettes_at_the_ends() -> None:
    assert silhouettes(blobs(TRIANGLE, spread=0.01), np.repeat(range(3), 10)).min() > 0.98
    assert np.isnan(silhouettes(noise(5), np.zeros(5, dtype=int))).all()
    assert (silhouettes(noise(5), np.arange(5)) == 0).all()


# The number of clusters


def rand_index_of(one: list[int], other: list[int]) -> float:
    """Hubert and Arabie's adjusted index by counting pairs of heads."""
    both = first = second = total = 0
    for i, j in combinations(range(len(one)), 2):
        total += 1
        first += one[i] == one[j]
        second += other[i] == other[j]
        both += one[i] == one[j] and other[i] == other[j]
    expected = first * second / total
    return (both - expected) / ((first + second) / 2 - expected)


@pytest.fixture(scope="module")
def three_blobs() -> pd.DataFrame:
    return cluster_counts(blobs(TRIANGLE), range(1, 6), seed=0, draws=8, starts=4)


def test_every_criterion_finds_three_clear_clusters(three_blobs: pd.DataFrame) -> None:
    assert best_k(three_blobs) == {"silhouette": 3, "bic": 3, "gap": 3}
    row = three_blobs.set_index("k").loc[3]
    assert row["silhouette"] > 0.9 and row["agreement"] == 1
    assert three_blobs["inertia"].is_monotonic_decreasing
    assert three_blobs.columns.tolist() == [
        *("k", "silhouette", "bic", "inertia", "gap", "gap_se", "agreement", "rand_k4")
    ]


def test_one_cluster_has_neither_silhouette_nor_agreement(three_blobs: pd.DataFrame) -> None:
    first = three_blobs.iloc[0]
    assert math.isnan(first["silhouette"]) and math.isnan(first["agreement"])
    assert first["rand_k4"] == 0
    assert three_blobs.iloc[1:].notna().all(axis=None)


def test_agreement_counts_pairs_and_silhouette_is_the_mean() -> None:
    points = noise(24, seed=1)
    table = cluster_counts(points, [3, 4], seed=2, draws=1, starts=3).set_index("k")
    four = fitted(points, 4, seed=2, starts=3).labels.tolist()
    for k in (3, 4):
        plain = fitted(points, k, seed=2, starts=3).labels.tolist()
        model, components = mixture(points, k, seed=2, starts=3)
        agreement = rand_index_of(plain, components.tolist())
        assert table.loc[k, "agreement"] == pytest.approx(agreement)
        assert table.loc[k, "rand_k4"] == pytest.approx(rand_index_of(plain, four))
        assert table.loc[k, "silhouette"] == pytest.approx(np.mean(silhouette_of(points, plain)))
        assert table.loc[k, "bic"] == pytest.approx(model.bic(points))
        assert table.loc[k, "gap_se"] == 0  # one draw has no spread
    assert table.loc[4, "rand_k4"] == 1


def test_the_gap_of_one_cluster_is_a_direct_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    points = noise(12, seed=3)
    boxes = np.random.default_rng(0).uniform(-2, 2, (5, 12, 3))
    monkeypatch.setattr(clusters, "_boxes", lambda *_: boxes)
    row = cluster_counts(points, [1], seed=0, draws=5).iloc[0]
    logs = [math.log(((box - box.mean(0)) ** 2).sum()) for box in boxes]
    mean = sum(logs) / 5
    own = math.log(((points - points.mean(0)) ** 2).sum())
    spread = math.sqrt(sum((each - mean) ** 2 for each in logs) / 5)
    assert row["gap"] == pytest.approx(mean - own)
    assert row["gap_se"] == pytest.approx(spread * math.sqrt(1 + 1 / 5))
    assert row["inertia"] == pytest.approx(math.exp(own))


def test_the_box_lies_along_the_principal_axes() -> None:
    """A thin diagonal: its own box is thin, the box along the columns is a square."""
    along = np.linspace(-1, 1, 60)
    points = np.column_stack([along, along]) + noise(60, 2) * 0.01
    _, axes = np.linalg.eigh(np.cov(points.T))
    ranges = np.ptp(points @ axes, axis=0)
    boxes = clusters._boxes(points, 400, np.random.default_rng(0))
    sums = ((boxes - boxes.mean(1, keepdims=True)) ** 2).sum((1, 2))
    # A uniform draw has the variance range^2 / 12 on each axis.
    assert sums.mean() == pytest.approx(59 * (ranges**2).sum() / 12, rel=0.03)
    thin = boxes.std((0, 1)).min() / boxes.std((0, 1)).max()
    assert thin < 0.05


def test_criteria_choose_by_their_own_rule() -> None:
    table = pd.DataFrame(
        {
            "k": [1, 2, 3, 4],
            "silhouette": [np.nan, 0.3, 0.5, 0.4],
            "bic": [9.0, 5.0, 6.0, 7.0],
            "gap": [0.1, 0.4, 0.45, 0.6],
            "gap_se": [0.01, 0.02, 0.10, 0.05],
        }
    )
    # gap(1) < gap(2) - s(2), but gap(2) = 0.40 >= 0.45 - 0.10.
    assert best_k(table) == {"silhouette": 3, "bic": 2, "gap": 2}
    assert best_k(table.iloc[::-1]) == best_k(table)
    table["gap"], table["gap_se"] = [0.1, 0.2, 0.3, 0.4], 0.01
    assert best_k(table)["gap"] is None
    assert best_k(table.iloc[:1]) == {"silhouette": None, "bic": 1, "gap": None}
    # k = 2 is not there, so nothing is known of k = 1.
    table["gap"] = [0.5, 0.2, 0.3, 0.3]
    assert best_k(table)["gap"] == 1 and best_k(table.drop(index=1))["gap"] == 3


def test_the_gap_is_undefined_where_each_head_is_its_own_cluster() -> None:
    row = cluster_counts(noise(5), [5], seed=0, draws=2, starts=2).iloc[0]
    assert math.isnan(row["gap"]) and math.isnan(row["gap_se"])


def test_three_heads_cannot_be_compared_with_four_clusters() -> None:
    row = cluster_counts(noise(3), [2], seed=0, draws=2, starts=2).iloc[0]
    assert math.isnan(row["rand_k4"]) and not math.isnan(row["inertia"])


def test_counts_need_a_draw_and_enough_heads() -> None:
    with pytest.raises(BadValue, match="draws is 0; expected at least 1"):
        cluster_counts(noise(9), [2], seed=0, draws=0)
    with pytest.raises(BadValue, match="expected 1 to 9"):
        cluster_counts(noise(9), [10], seed=0, draws=1)


# The mixture


def log_likelihood_of(points: np.ndarray, found: GaussianMixture) -> float:
    """The log density of a diagonal mixture, head by head and component by component."""
    total = 0.0
    for head in points:
        density = 0.0
        for mean, variance, share in zip(
            found.means_, found.covariances_, found.weights_, strict=True
        ):
            term = float(share)
            for x, m, v in zip(head, mean, variance, strict=True):
                term *= math.exp(-((x - m) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v)
            density += term
        total += math.log(density)
    return total


def test_the_criterion_of_a_mixture_is_that_of_plain_loops() -> None:
    points = noise(30, seed=8)
    model, _ = mixture(points, 3, seed=0, starts=2)
    total = log_likelihood_of(points, model)
    assert 30 * model.score(points) == pytest.approx(total)
    # 3 x 3 means, 3 x 3 variances, and shares that sum to 1
    assert model.bic(points) == pytest.approx(-2 * total + (9 + 9 + 2) * math.log(30))


def test_one_component_has_a_closed_form() -> None:
    points = noise(20, 4, seed=9) * [1, 2, 3, 4]
    model, components = mixture(points, 1, seed=0)
    floor = REGULARISATION * sum(points[:, f].var() for f in range(4)) / 4
    total = 0.0
    for f in range(4):
        variance = points[:, f].var() + floor
        total -= 20 / 2 * math.log(2 * math.pi * variance)
        total -= ((points[:, f] - points[:, f].mean()) ** 2).sum() / (2 * variance)
    assert model.bic(points) == pytest.approx(-2 * total + 8 * math.log(20))
    assert set(components.tolist()) == {0}


def test_a_mixture_goes_by_density_and_not_by_distance() -> None:
    """A wide and a narrow component: a point nearer to the narrow one belongs to the wide."""
    wide, narrow = blobs([(0, 0)], 60, spread=2.0), blobs([(6, 0)], 60, spread=0.1)
    model, _ = mixture(np.concatenate([wide, narrow]), 2, seed=0)
    place = np.array([[4.5, 0.0]])
    near = np.abs(model.means_ - place).sum(1).argmin()
    assert model.predict(place)[0] != near
    assert model.means_[near, 0] == pytest.approx(6, abs=0.2)


def test_a_mixture_depends_on_neither_the_unit_nor_the_order() -> None:
    points = noise(30, seed=10)
    model, components = mixture(points, 3, seed=0, starts=2)
    small, again = mixture(points / 1000, 3, seed=0, starts=2)
    np.testing.assert_array_equal(components, again)
    likelier = 90 * math.log(1000)
    assert small.bic(points / 1000) == pytest.approx(model.bic(points) - 2 * likelier)
    order = np.random.default_rng(1).permutation(30)
    np.testing.assert_array_equal(mixture(points[order], 3, seed=0, starts=2)[1], components[order])


def test_clear_clusters_are_components() -> None:
    _, components = mixture(blobs(TRIANGLE), 3, seed=0, starts=4)
    assert len({(int(c), i // 10) for i, c in enumerate(components)}) == 3


def test_shares_that_sum_to_one_do_a_mixture_no_harm() -> None:
    """Their covariance is singular; so is that of a feature that is always 0."""
    points = np.random.default_rng(0).dirichlet(np.ones(5), size=30)
    points = np.column_stack([points, np.zeros(30)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, components = mixture(points, 4, seed=0)
    assert set(components.tolist()) == set(range(4))


def test_a_mixture_refuses_what_it_cannot_fit() -> None:
    with pytest.raises(BadValue, match="same features"):
        mixture(np.ones((4, 2)), 1, seed=0)
    for k in (0, 7):
        with pytest.raises(BadValue, match="expected 1 to 6"):
            mixture(noise(6), k, seed=0)
    with pytest.raises(BadValue, match="for 2 different heads"):
        mixture(np.repeat(noise(2), 5, axis=0), 3, seed=0)


# One cloud


def shares(n: int, n_features: int = 4, seed: int = 0) -> np.ndarray:
    """Rows on the simplex from a logistic normal, the family of `simplex_twin`."""
    raw = np.exp(noise(n, n_features, seed) * [0.4, 0.8, 0.4, 0.6])
    return np.asarray(raw / raw.sum(1, keepdims=True))


def test_the_gaussian_twin_has_the_mean_and_covariance_of_the_heads() -> None:
    heads = blobs([(0, 0, 1), (3, 1, 0)])
    drawn = np.concatenate([gaussian_twin(heads, seed=seed) for seed in range(400)])
    assert gaussian_twin(heads, seed=0).shape == heads.shape
    np.testing.assert_allclose(drawn.mean(0), heads.mean(0), atol=0.06)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(heads.T), atol=0.1)
    # One hump, not two: a third of the points lie between the two clusters.
    between = ((drawn[:, 0] > 0.7) & (drawn[:, 0] < 2.3)).mean()
    assert between > 0.3 and not ((heads[:, 0] > 0.7) & (heads[:, 0] < 2.3)).any()


def test_the_gaussian_twin_keeps_what_the_parts_sum_to() -> None:
    twin = gaussian_twin(shares(30), seed=0)
    np.testing.assert_allclose(twin.sum(1), 1)
    np.testing.assert_array_equal(twin, gaussian_twin(shares(30), seed=0))
    assert not np.allclose(twin, gaussian_twin(shares(30), seed=1))


def log_ratios(rows: np.ndarray) -> np.ndarray:
    logs = np.log(rows)
    return np.asarray(logs - logs.mean(1, keepdims=True))


def test_the_simplex_twin_has_the_log_ratios_of_the_heads() -> None:
    heads = shares(40)
    drawn = np.concatenate([simplex_twin(heads, seed=seed) for seed in range(300)])
    assert drawn.min() > 0
    np.testing.assert_allclose(drawn.sum(1), 1)
    np.testing.assert_allclose(log_ratios(drawn).mean(0), log_ratios(heads).mean(0), atol=0.03)
    np.testing.assert_allclose(np.cov(log_ratios(drawn).T), np.cov(log_ratios(heads).T), atol=0.03)


def test_zeros_do_not_stop_the_simplex_twin() -> None:
    heads = np.column_stack([shares(20), np.zeros(20)])
    heads[3, 0] = 0
    heads /= heads.sum(1, keepdims=True)
    twin = simplex_twin(heads, seed=0)
    assert (twin[:, -1] == 0).all() and (twin[:, :-1] > 0).all()
    for wrong in (shares(5) * 2, shares(5) - 0.5):
        with pytest.raises(BadValue, match="sum to 1"):
            simplex_twin(wrong, seed=0)


def test_clear_clusters_beat_a_cloud_and_a_cloud_does_not() -> None:
    corners = 0.85 * np.eye(4) + 0.0375
    clear = np.abs(blobs(corners, 8, spread=0.01))
    clear /= clear.sum(1, keepdims=True)
    how: dict[str, int] = {"k": 4, "seed": 0, "starts": 3}
    clouds = [clearness(simplex_twin(clear, seed=each), **how) for each in range(19)]
    labels = fitted(clear, 4, seed=0, starts=3).labels
    assert clearness(clear, **how) == pytest.approx(np.mean(silhouette_of(clear, labels.tolist())))
    assert clearness(clear, **how) > 0.8 > max(clouds)
    own = simplex_twin(shares(32), seed=5)
    clouds = [clearness(simplex_twin(own, seed=each), **how) for each in range(19)]
    assert clearness(own, **how) < max(clouds)


# Matching


def kept(one: object, other: object) -> int:
    return int((np.asarray(one) == np.asarray(other)).sum())


def greedy(labels: np.ndarray, reference: np.ndarray, k: int) -> np.ndarray:
    """A planted fault: each label takes the best partner still free, one after the other."""
    free, renumbered = set(range(k)), {}
    for label in range(k):
        best = max(sorted(free), key=lambda r: kept(labels == label, reference == r))
        renumbered[label] = best
        free.remove(best)
    return np.array([renumbered[label] for label in labels.tolist()])


def test_no_renumbering_matches_more_heads() -> None:
    fooled = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        labels, reference = generator.integers(4, size=(2, 15))
        found = matched(labels, reference, 4)
        best = max(kept(np.array(p)[labels], reference) for p in permutations(range(4)))
        assert kept(found, reference) == best
        # A renumbering joins no clusters and parts none.
        assert len(set(zip(labels.tolist(), found.tolist(), strict=True))) == len(set(labels))
        assert len(set(found)) == len(set(labels))
        fooled += kept(greedy(labels, reference, 4), reference) < best
    assert fooled > 0


# Stability


@pytest.mark.parametrize("split", SPLITS)
def test_clear_clusters_are_stable(split: str) -> None:
    data = inputs_of(blobs(TRIANGLE))
    share, labels = stability(data, 3, seed=0, fits=4, split=split, starts=3)
    assert share == 1
    assert labels.shape == (1 + 4, 30)  # the reference first
    assert len({tuple(row) for row in labels.tolist()}) == 1


@pytest.mark.parametrize("split", SPLITS)
def test_the_number_counts_heads_with_one_label(split: str) -> None:
    share, labels = stability(inputs_of(noise(24)), 4, seed=1, fits=5, split=split, starts=2)
    alike = 0
    for head in range(24):
        given = [int(labels[1 + fit, head]) for fit in range(5)]
        alike += len(set(given)) == 1
    assert share == pytest.approx(alike / 24)
    assert 0 < alike < 24


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What the fits are given, in order: the reference first."""
    seen: list[np.ndarray] = []

    def spy(features: np.ndarray, k: int, **rest: Any) -> Clustering:
        seen.append(np.array(features))
        return fitted(features, k, **rest)

    monkeypatch.setattr(clusters, "fitted", spy)
    return seen


def test_each_fit_sees_the_mean_over_half_of_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = recorded(monkeypatch)
    marks = np.zeros((10, 6, 12))
    marks[:, :, :2] = noise(6, 2)
    marks[np.arange(10), :, np.arange(10) + 2] = 1.0  # each input leaves its own mark
    stability(marks, 2, seed=0, fits=6, split="inputs", starts=1)
    reference, *parts = seen
    np.testing.assert_allclose(reference, marks.mean(0))
    halves = set()
    for part in parts:
        chosen = np.flatnonzero(part[0, 2:] > 0.1)
        assert len(chosen) == 5
        np.testing.assert_allclose(part, marks[chosen].mean(0), atol=1e-12)
        halves.add(tuple(chosen.tolist()))
    assert len(halves) > 1


def test_each_fit_sees_half_of_the_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = recorded(monkeypatch)
    data = inputs_of(noise(12))
    stability(data, 2, seed=0, fits=6, split="heads", starts=1)
    reference, *parts = seen
    rows = {tuple(row): head for head, row in enumerate(reference.tolist())}
    halves = {tuple(sorted(rows[tuple(row)] for row in part.tolist())) for part in parts}
    assert all(len(set(half)) == 6 for half in halves) and len(halves) > 1


def test_labels_must_be_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters that tie in the feature that numbers them are numbered anew in every fit."""
    heads = blobs([(0, 0), (0, 4), (0, 8)], spread=0.05)
    data = inputs_of(heads, spread=0.1)
    assert stability(data, 3, seed=0, split="heads", starts=2)[0] == 1
    monkeypatch.setattr(clusters, "matched", lambda labels, *_: labels)
    assert stability(data, 3, seed=0, split="heads", starts=2)[0] < 1


def test_stability_does_not_depend_on_the_order_of_heads() -> None:
    data = inputs_of(noise(20, seed=2))
    order = np.random.default_rng(0).permutation(20)
    straight = stability(data, 3, seed=4, fits=3, starts=2)
    mixed = stability(data[:, order], 3, seed=4, fits=3, starts=2)
    np.testing.assert_array_equal(mixed[1], straight[1][:, order])
    assert mixed[0] == straight[0]


def test_half_of_the_heads_says_more_than_half_of_the_inputs() -> None:
    """One cloud without types: inputs agree with each other, heads do not hold the borders."""
    data = inputs_of(noise(40, 5, seed=3), n=200, spread=0.02)
    by_inputs = stabilities(data, 4, seed=0, repeats=2, fits=5, starts=20)
    by_heads = stabilities(data, 4, seed=0, repeats=2, fits=5, starts=20, split="heads")
    assert by_inputs.mean() > 0.9 > 0.6 > by_heads.mean()


def test_repeats_give_a_spread() -> None:
    data = inputs_of(noise(24))
    spread = stabilities(data, 4, seed=1, repeats=5, fits=4, split="heads", starts=2)
    assert spread.shape == (5,) and len(set(spread.tolist())) > 1
    again = stabilities(data, 4, seed=1, repeats=5, fits=4, split="heads", starts=2)
    np.testing.assert_array_equal(again, spread)


def test_one_cloud_is_less_stable_than_clear_clusters() -> None:
    clear = np.abs(blobs(0.85 * np.eye(4) + 0.0375, 8, spread=0.01))
    data = inputs_of(clear / clear.sum(1, keepdims=True), spread=0.01)
    common: dict[str, Any] = {"seed": 0, "repeats": 3, "fits": 4, "split": "heads", "starts": 2}
    assert stabilities(data, 4, **common).mean() == 1
    assert stabilities(data, 4, cloud=True, **common).mean() < 0.9


def test_a_cloud_keeps_how_inputs_deviate(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = recorded(monkeypatch)
    data = inputs_of(shares(8), n=4)
    stabilities(data, 2, seed=0, repeats=1, fits=3, cloud=True, starts=1)
    center = data.mean(0)
    twin, *parts = seen
    assert np.abs(twin - center).max() > 0.1
    halves = [data[list(half)].mean(0) - center for half in combinations(range(4), 2)]
    for part in parts:
        assert min(np.abs(part - twin - half).max() for half in halves) < 1e-9


def test_stability_refuses_what_it_cannot_split() -> None:
    data = inputs_of(noise(6), n=4)
    with pytest.raises(BadValue, match="1 inputs; expected at least 2"):
        stability(data[:1], 2, seed=0)
    assert stability(data[:1], 2, seed=0, split="heads", fits=2)[1].shape == (1 + 2, 6)
    with pytest.raises(BadValue, match=r"expected \(head, feature\)"):
        stability(data[0], 2, seed=0)
    with pytest.raises(BadValue, match="k is 5 for 3 different heads"):
        stability(data, 5, seed=0, split="heads")
    with pytest.raises(BadValue, match="k is 7"):
        stability(data, 7, seed=0)
    with pytest.raises(BadValue, match="expected one of"):
        stability(data, 2, seed=0, split="layers")
    with pytest.raises(BadValue, match="repeats is 0"):
        stabilities(data, 2, seed=0, repeats=0)
    data[1, 2, 0] = np.nan
    with pytest.raises(BadValue, match="feature 0 of head 2"):
        stability(data, 2, seed=0)
