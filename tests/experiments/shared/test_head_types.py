"""Clusters of heads are optimal, ordered and order-free; names follow the rule; the plane holds."""

from __future__ import annotations

import math
import warnings
from itertools import permutations, product

import numpy as np
import pytest

from attnlib.errors import BadValue
from experiments.shared import head_types
from experiments.shared.head_types import (
    TYPES,
    Clustering,
    fitted,
    hartigan_gains,
    named_types,
    naming,
    plane,
)

# Features of the tests on names: far window, near window, self, special, special.
SPECIAL, NEAR = (3, 4), (1, 2)
CENTRES = {
    "dense": (0.80, 0.05, 0.05, 0.04, 0.06),
    "diagonal": (0.10, 0.40, 0.25, 0.15, 0.10),
    "dense&vertical": (0.40, 0.05, 0.05, 0.30, 0.20),
    "vertical": (0.07, 0.02, 0.01, 0.50, 0.40),
}


def blobs(centres: object, n_each: int = 8, spread: float = 0.01, seed: int = 0) -> np.ndarray:
    """Points close around each centre, one centre after the other."""
    middle = np.repeat(np.asarray(centres, dtype=float), n_each, axis=0)
    return middle + np.random.default_rng(seed).normal(scale=spread, size=middle.shape)


def clusters(points: np.ndarray, labels: object) -> Clustering:
    """Heads in given clusters."""
    given = np.asarray(labels)
    means = np.stack([points[given == cluster].mean(0) for cluster in range(given.max() + 1)])
    return Clustering(given, means, inertia_of(points, given))


def four_types(seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Heads of the four types, shuffled, with the truth."""
    order = np.random.default_rng(seed).permutation(4 * 8)
    truth = np.repeat(list(CENTRES), 8)[order].tolist()
    return blobs(list(CENTRES.values()), seed=seed)[order], truth


def noise(n: int, n_features: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, n_features))


def inertia_of(points: np.ndarray, labels: object) -> float:
    """Squared distances from the mean of the own cluster, head by head."""
    given, total = list(labels), 0.0  # type: ignore[call-overload]
    for cluster in set(given):
        members = [points[h] for h in range(len(points)) if given[h] == cluster]
        for f in range(points.shape[1]):
            mean = sum(m[f] for m in members) / len(members)
            total += sum((m[f] - mean) ** 2 for m in members)
    return total


# Clusters


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clusters_far_apart_are_found_from_any_start(seed: int) -> None:
    points, truth = four_types()
    found = fitted(points, 4, seed=seed, starts=4, special=SPECIAL)
    pairs = set(zip(found.labels.tolist(), truth, strict=True))
    # From the least special mass to the most.
    assert pairs == {(0, "dense"), (1, "diagonal"), (2, "dense&vertical"), (3, "vertical")}
    assert found.sizes.tolist() == [8, 8, 8, 8]
    np.testing.assert_allclose(found.centroids, list(CENTRES.values()), atol=0.02)


def test_the_inertia_and_the_centroids_are_those_of_plain_loops() -> None:
    points = noise(25)
    found = fitted(points, 4, seed=0)
    assert found.inertia == pytest.approx(inertia_of(points, found.labels))
    for cluster in range(4):
        members = [points[h] for h in range(25) if found.labels[h] == cluster]
        np.testing.assert_allclose(found.centroids[cluster], sum(members) / len(members))


def test_no_partition_of_few_heads_is_better() -> None:
    points = noise(7, 2, seed=4)
    best = min(inertia_of(points, labels) for labels in product(range(3), repeat=7))
    assert fitted(points, 3, seed=0, starts=30).inertia == pytest.approx(best)


def test_not_worse_than_the_library() -> None:
    from sklearn.cluster import KMeans

    for seed in range(3):
        points = noise(40, 4, seed=seed)
        library = KMeans(4, n_init=30, random_state=seed, tol=0).fit(points).inertia_
        assert fitted(points, 4, seed=seed, starts=30).inertia <= library * (1 + 1e-9)


def test_one_cluster_and_one_head_each() -> None:
    points = noise(6)
    one = fitted(points, 1, seed=0)
    np.testing.assert_allclose(one.centroids[0], points.mean(0))
    each = fitted(points, 6, seed=0)
    assert each.inertia == pytest.approx(0) and sorted(each.labels.tolist()) == list(range(6))


def test_equal_heads_share_a_cluster() -> None:
    points = np.repeat(noise(3), [5, 1, 4], axis=0)
    found = fitted(points, 3, seed=0)
    assert found.inertia == pytest.approx(0)
    assert sorted(found.sizes.tolist()) == [1, 4, 5]


# Hartigan's criterion


def test_the_gain_of_a_move_is_what_the_inertia_loses() -> None:
    points = noise(12, seed=2)
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2])
    before, gains = inertia_of(points, labels), hartigan_gains(points, labels)
    for head, cluster in product(range(11), range(3)):
        moved = labels.copy()
        moved[head] = cluster
        assert gains[head, cluster] == pytest.approx(before - inertia_of(points, moved))
    assert (gains[11] <= 0).all()  # alone in its cluster


def test_a_wrong_gain_would_be_seen() -> None:
    """Nearest centroids without the factors of the sizes: Lloyd's criterion, not Hartigan's."""
    points, labels = noise(12, seed=2), np.arange(12) % 3
    before, gains = inertia_of(points, labels), hartigan_gains(points, labels)
    centroids = [points[labels == c].mean(0) for c in range(3)]
    moved = labels.copy()
    moved[0] = 1
    plain = ((points[0] - centroids[0]) ** 2).sum() - ((points[0] - centroids[1]) ** 2).sum()
    assert plain != pytest.approx(before - inertia_of(points, moved))
    assert gains[0, 1] == pytest.approx(before - inertia_of(points, moved))


def test_no_single_move_lowers_the_result_and_lloyd_alone_is_not_enough() -> None:
    moved = 0
    for seed in range(30):
        points = noise(30, 6, seed=seed)
        found = fitted(points, 4, seed=seed, starts=1)
        assert hartigan_gains(points, found.labels).max() <= 1e-9
        moved += found.n_moved
    assert moved > 0


# Order


def test_the_order_of_heads_does_not_matter() -> None:
    points = noise(30, seed=5)
    order = np.random.default_rng(1).permutation(30)
    straight = fitted(points, 4, seed=0, starts=2)
    mixed = fitted(points[order], 4, seed=0, starts=2)
    np.testing.assert_array_equal(mixed.labels, straight.labels[order])
    np.testing.assert_array_equal(mixed.centroids, straight.centroids)


def test_clusters_are_numbered_by_special_mass_else_by_the_first_feature() -> None:
    points = noise(30, 4, seed=6)
    by_mass = fitted(points, 4, seed=0, starts=2, special=[1, 3])
    mass = by_mass.centroids[:, [1, 3]].sum(1)
    assert (np.diff(mass) > 0).all()
    plain = fitted(points, 4, seed=0, starts=2)
    assert (np.diff(plain.centroids[:, 0]) > 0).all()
    # The same clusters under other numbers.
    pairs = set(zip(by_mass.labels.tolist(), plain.labels.tolist(), strict=True))
    assert len(pairs) == 4


def test_a_tie_in_the_first_feature_goes_to_the_next() -> None:
    points = blobs([(0, 1), (0, -1), (0, 3)])
    points[:, 0] = 0
    assert (np.diff(fitted(points, 3, seed=0).centroids[:, 1]) > 0).all()


# Prediction


def test_heads_of_the_fit_are_predicted_into_their_own_cluster() -> None:
    points = noise(40, seed=7)
    found = fitted(points, 4, seed=0, starts=2, special=[2])
    np.testing.assert_array_equal(found.predict(points), found.labels)


def test_a_new_head_goes_to_the_nearest_centroid() -> None:
    found = fitted(blobs([(0, 0), (5, 0), (0, 9)]), 3, seed=0)
    fresh = noise(20, 2) * 6
    for head, label in zip(fresh, found.predict(fresh), strict=True):
        apart = [math.dist(head, centroid) for centroid in found.centroids]
        assert label == apart.index(min(apart))


# Shares


def test_shares_that_sum_to_one_do_no_harm() -> None:
    points = np.random.default_rng(0).dirichlet(np.ones(5), size=30)
    points = np.column_stack([points, np.zeros(30)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (fitted(points, 4, seed=0).sizes > 0).all()


# Names


def types_by_rule(features: np.ndarray, labels: np.ndarray) -> list[str]:
    """The rule for four clusters, written again with dictionaries."""
    groups = {c: features[labels == c].mean(0) for c in range(4)}
    special = {c: mean[3] + mean[4] for c, mean in groups.items()}
    near = {c: mean[1] + mean[2] for c, mean in groups.items()}
    names = {}
    vertical = max(special, key=lambda c: special[c])
    names[vertical] = "vertical"
    rest = [c for c in groups if c != vertical]
    diagonal = max(rest, key=lambda c: near[c])
    names[diagonal] = "diagonal"
    low, high = sorted((c for c in rest if c != diagonal), key=lambda c: special[c])
    names[low], names[high] = "dense", "dense&vertical"
    return [names[label] for label in labels.tolist()]


def test_heads_of_the_four_types_are_named_whatever_the_numbers() -> None:
    points, truth = four_types()
    codes = [list(CENTRES).index(name) for name in truth]
    for numbers in permutations(range(4)):
        labels = np.array([numbers[code] for code in codes])
        assert named_types(points, clusters(points, labels), SPECIAL, NEAR) == truth
    assert named_types(points, fitted(points, 4, seed=0), SPECIAL, NEAR) == truth


@pytest.mark.parametrize("seed", range(6))
def test_names_of_arbitrary_clusters_follow_the_rule(seed: int) -> None:
    points = np.random.default_rng(seed).dirichlet(np.ones(5), size=24)
    labels = np.random.default_rng(seed).permutation(24) % 4
    found = named_types(points, clusters(points, labels), SPECIAL, NEAR)
    assert found == types_by_rule(points, labels)


def test_the_order_of_the_decisions_matters_and_is_that_of_the_rule() -> None:
    """The cluster with the most special mass also has the most near mass."""
    centres = [(0.0, 0.3, 0.2, 0.3, 0.2), (0.3, 0.2, 0.2, 0.2, 0.1), (0.9, 0.0, 0.0, 0.1, 0.0)]
    points = np.array([*centres, (0.6, 0.0, 0.0, 0.2, 0.2)])
    names = named_types(points, clusters(points, range(4)), SPECIAL, NEAR)
    assert names == ["vertical", "diagonal", "dense", "dense&vertical"]
    near_first = int(points[:, list(NEAR)].sum(1).argmax())
    assert names[near_first] != "diagonal"  # what taking the diagonal cluster first would give


def test_margins_say_how_clear_each_decision_was() -> None:
    points = np.repeat(list(CENTRES.values()), 2, axis=0)
    points[0, 3] += 0.02
    points[1, 3] -= 0.02
    margins = naming(points, clusters(points, np.repeat(range(4), 2)), SPECIAL, NEAR).margins
    assert margins["type"].tolist() == ["vertical", "diagonal", "dense&vertical"]
    assert margins["by"].tolist() == ["special", "near", "special"]
    assert margins["mass"].tolist() == pytest.approx([0.9, 0.65, 0.5])
    assert margins["runner_up"].tolist()[0] == "dense&vertical"
    assert margins["runner_up"].tolist()[2] == "dense"
    assert margins["next_mass"].tolist() == pytest.approx([0.5, 0.1, 0.1])
    assert margins["margin"].tolist() == pytest.approx([0.4, 0.55, 0.4])
    # Only the dense heads differ, by 0.04: variance 0.0008, standard error 0.02.
    assert margins["z"].tolist()[2] == pytest.approx(0.4 / 0.02)


def test_the_margin_has_no_standard_error_beside_a_single_head() -> None:
    points, labels = four_types()[0][:9], np.array([0, 0, 1, 1, 2, 2, 3, 3, 3])
    assert naming(points, clusters(points, labels), SPECIAL, NEAR).margins["z"].notna().all()
    labels = np.array([0, 1, 1, 1, 2, 2, 2, 2, 3])
    assert naming(points, clusters(points, labels), SPECIAL, NEAR).margins["z"].isna().any()


def test_ties_and_other_numbers_of_clusters_have_no_name() -> None:
    points = np.array(
        [(0.5, 0, 0, 0.5, 0.0), (0.5, 0, 0, 0.0, 0.5), (1, 0, 0, 0, 0), (0, 1, 0, 0, 0)]
    )
    with pytest.raises(BadValue, match="clusters 1 and 2 have the same special mass"):
        named_types(points, clusters(points, range(4)), SPECIAL, NEAR)
    with pytest.raises(BadValue, match="3 clusters were found; expected 4"):
        named_types(points, clusters(points, [0, 1, 2, 2]), SPECIAL, NEAR)


def test_the_four_names_are_the_agreed_ones() -> None:
    assert tuple(CENTRES) == TYPES


# The plane


def test_the_plane_keeps_clusters_apart_and_does_not_depend_on_the_order() -> None:
    points = blobs([(0, 0, 0), (5, 0, 0), (0, 5, 5)], 10)
    shown = plane(points, seed=0)
    assert shown.shape == (30, 2) and np.isfinite(shown).all()
    middle = shown.reshape(3, 10, 2).mean(1)
    for head in range(30):
        apart = [math.dist(shown[head], m) for m in middle]
        assert apart.index(min(apart)) == head // 10
    order = np.random.default_rng(3).permutation(30)
    np.testing.assert_array_equal(plane(points[order], seed=0), shown[order])


def test_the_perplexity_is_clipped_for_few_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    points = noise(7)
    shown = plane(points, seed=0)
    monkeypatch.setattr(head_types, "PERPLEXITY", 2)
    np.testing.assert_array_equal(plane(points, seed=0), shown)
    monkeypatch.setattr(head_types, "PERPLEXITY", 1.2)
    assert not np.allclose(plane(points, seed=0), shown)


def test_the_plane_refuses_what_it_cannot_show() -> None:
    for features, what in ((noise(3), "4 heads"), (noise(9, 1), "2 features")):
        with pytest.raises(BadValue, match=what):
            plane(features, seed=0)


# Bad input


def test_features_that_cannot_be_clustered_are_refused() -> None:
    points = noise(6)
    points[4, 2] = np.nan
    with pytest.raises(BadValue, match="feature 2 of head 4"):
        fitted(points, 2, seed=0)
    for wrong in (noise(6)[0], noise(0), np.zeros((2, 3, 4))):
        with pytest.raises(BadValue, match=r"expected \(head, feature\)"):
            fitted(wrong, 1, seed=0)


def test_more_clusters_than_different_heads_are_refused() -> None:
    for k in (0, 7):
        with pytest.raises(BadValue, match="expected 1 to 6"):
            fitted(noise(6), k, seed=0)
    with pytest.raises(BadValue, match="for 2 different heads"):
        fitted(np.repeat(noise(2), 5, axis=0), 3, seed=0)
