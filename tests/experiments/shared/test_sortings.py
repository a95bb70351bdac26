"""Agreement of two sortings: loops from the formulas, closed forms, wrong kernels."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from attnlib.errors import BadValue
from experiments.shared.sortings import (
    adjusted_information,
    agreement_kappa,
    crossed,
    dealt,
    information_by_chance,
    kappa,
    mutual_information,
)

A = ["x", "x", "x", "y", "y", "y"]
B = ["u", "u", "v", "v", "v", "v"]


def information_by_hand(one: list[str], other: list[str]) -> float:
    n, total = len(one), 0.0
    for a in set(one):
        for b in set(other):
            both = sum(1 for i, j in zip(one, other, strict=True) if (i, j) == (a, b)) / n
            if both:
                total += both * math.log(both / (one.count(a) / n) / (other.count(b) / n))
    return total


def adjusted_by_hand(one: list[str], other: list[str]) -> float:
    """Every way to deal the second labels out, one by one."""
    every = [information_by_hand(one, list(dealt_out)) for dealt_out in permutations(other)]
    mean = sum(every) / len(every)
    size = (information_by_hand(one, one) + information_by_hand(other, other)) / 2
    return (information_by_hand(one, other) - mean) / (size - mean)


def test_information_is_that_of_the_loop() -> None:
    assert mutual_information(crossed(A, B)) == pytest.approx(information_by_hand(A, B))


def test_adjusted_information_is_that_of_all_permutations() -> None:
    assert adjusted_information(A, B) == pytest.approx(adjusted_by_hand(A, B), abs=1e-9)


def test_the_same_classes_under_other_names_have_one() -> None:
    renamed = ["z" if a == "x" else "q" for a in A]
    assert adjusted_information(A, renamed) == pytest.approx(1)
    assert agreement_kappa(A, A) == 1


def test_a_constant_label_tells_nothing() -> None:
    assert math.isnan(adjusted_information(A, ["c"] * 6))
    assert math.isnan(agreement_kappa(A, ["x"] * 6))
    assert np.isnan(information_by_chance(A, ["c"] * 6, deals=9)).all()


def test_kappa_by_hand() -> None:
    # 5 of 6 agree; blindly 3/6 * 2/6 + 3/6 * 4/6 = 1/2
    other = ["x", "x", "y", "y", "y", "y"]
    assert agreement_kappa(A, other) == pytest.approx((5 / 6 - 1 / 2) / (1 / 2))


def test_kappa_of_opposites_is_negative() -> None:
    assert agreement_kappa(A, ["y"] * 3 + ["x"] * 3) == pytest.approx(-1)


def test_kappa_counts_classes_that_only_one_uses() -> None:
    assert agreement_kappa(["x", "y"], ["z", "w"]) == pytest.approx(0)


def test_labels_dealt_out_have_the_information_of_all_permutations() -> None:
    every = [adjusted_information(A, list(one)) for one in permutations(B)]
    found = information_by_chance(A, B, deals=20_000)
    for seen in sorted({round(one, 6) for one in every}):
        exact = np.mean(np.array(every) <= seen + 1e-6)
        assert np.mean(found <= seen + 1e-6) == pytest.approx(exact, abs=0.02)
    assert np.mean(found) == pytest.approx(0, abs=0.01)  # that is what adjusted means


def kappa_by_hand(one: list[str], other: list[str]) -> float:
    n = len(one)
    seen = sum(a == b for a, b in zip(one, other, strict=True)) / n
    luck = sum(one.count(a) * other.count(a) for a in set(one)) / n**2
    return (seen - luck) / (1 - luck)


@pytest.mark.parametrize("seed", range(5))
def test_kappa_is_that_of_the_loop(seed: int) -> None:
    one, other = np.random.default_rng(seed).choice(["x", "y", "z"], (2, 20)).tolist()
    assert agreement_kappa(one, other) == pytest.approx(kappa_by_hand(one, other))


def test_what_groups_explain_is_chance_within_them() -> None:
    groups = ["g"] * 20 + ["h"] * 20
    draw = np.random.default_rng(0)
    one, other = ([f"{g}{'' if draw.random() < 0.9 else '!'}" for g in groups] for _ in range(2))
    seen = adjusted_information(one, other)
    assert (information_by_chance(one, other, deals=2000) < seen).mean() > 0.999
    within = information_by_chance(one, other, within=groups, deals=2000)
    assert (within < seen).mean() < 0.95


def test_agreement_within_groups_is_found() -> None:
    groups = ["g"] * 20 + ["h"] * 20
    one = ["a", "b"] * 20
    assert (information_by_chance(one, one, within=groups, deals=500) < 1).mean() > 0.99


def test_heads_stay_in_their_group_when_dealt() -> None:
    groups = np.array([0, 0, 1, 1, 1])
    orders = dealt(groups, 50, np.random.default_rng(0))
    assert (groups[orders] == groups).all()
    assert (np.sort(orders, axis=1) == np.arange(5)).all()
    assert len({tuple(order) for order in orders}) > 3


def test_planted_wrong_kernels_are_caught() -> None:
    counts = crossed(A, B)
    without_log = (counts / 6 * counts / 6).sum()
    assert without_log != pytest.approx(information_by_hand(A, B))
    wrong_luck = (5 / 6 - 1 / 4) / (3 / 4)  # luck of two fair coins
    table = np.array([[2.0, 1.0], [0.0, 3.0]])
    assert kappa(table) != pytest.approx(wrong_luck)


@pytest.mark.parametrize("other", [["x"], []])
def test_labels_of_other_heads_are_refused(other: list[str]) -> None:
    with pytest.raises(BadValue, match="expected one of each for every head"):
        agreement_kappa(A, other)
