"""The by-hand numbers in the solutions to the exercises on Guan 2020."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from attnlib.metrics.distance import distance_metrics
from experiments.guan2020.clusters import matched
from experiments.guan2020.types import silhouettes
from experiments.shared.ablation import harm_p_value
from experiments.shared.head_types import Clustering, fitted, naming
from experiments.shared.training.answers import exact_match, token_f1
from tests.maps import attention_of

MAP = [
    [0.5, 0.1, 0.1, 0.1, 0.1, 0.1],
    [0.1, 0.2, 0.4, 0.1, 0.1, 0.1],
    [0.1, 0.3, 0.2, 0.2, 0.1, 0.1],
    [0.1, 0.1, 0.4, 0.2, 0.1, 0.1],
    [0.2, 0.0, 0.1, 0.2, 0.3, 0.2],
    [0.1, 0.1, 0.0, 0.0, 0.2, 0.6],
]


def parts(maps: list[list[float]], pieces: str, windows: int) -> dict[str, float]:
    """What `distance_metrics` finds in one map, times the number of pieces."""
    attention = attention_of(np.array([[maps]]), pieces)
    found = {m.key: float(m(attention).value) for m in distance_metrics(windows=windows)}
    return {key.removeprefix("distance_"): value * len(maps) for key, value in found.items()}


def test_the_map_by_hand() -> None:
    found = parts(MAP, "[CLS] red fish swim . [SEP]", 3)
    sums = {"cls": 1.1, "sep": 1.2, "comma": 0, "period": 0.9, "self": 0.6}
    wanted = {**sums, "window_01": 1.6, "window_02": 0.5, "window_03": 0.1}
    assert found == pytest.approx(wanted, abs=1e-6)
    assert sum(found.values()) == pytest.approx(6)
    own = np.diag(MAP)[[0, 4, 5]].sum()  # special tokens to themselves
    near, special = found["self"] + found["window_01"], 1.1 + 1.2 + 0.9
    assert np.round([near / 6, special / 6], 2).tolist() == [0.37, 0.53]
    assert np.round([(near + own) / 6, (special - own) / 6], 2).tolist() == [0.60, 0.30]


def test_a_uniform_head_has_a_triangle_of_windows() -> None:
    def pairs(length: int, window: int) -> int:
        """Ordered pairs whose distance lies in a window of 16, counted from 1."""
        places = range(length)
        far = [abs(s - k) for s in places for k in places if s != k]
        return sum(16 * t // length == window - 1 for t in far)

    assert [pairs(16, i) for i in (1, 2, 3, 16)] == [0, 30, 28, 2]
    assert [pairs(128, i) for i in (1, 2, 3, 16)] == [1736, 1864, 1736, 72]
    found = parts([[1 / 16] * 16] * 16, " ".join("a" * 16), 16)
    shares = {"window_01": 0.0, "window_02": 30 / 16, "window_16": 2 / 16, "self": 1.0}
    assert {key: found[key] for key in shares} == pytest.approx(shares, abs=1e-6)


def test_even_points_on_a_line_look_like_clusters() -> None:
    line = np.linspace(0, 1, 384)[:, None]
    for k, wanted in ((2, 0.62), (4, 0.57), (8, 0.53)):
        found = silhouettes(line, fitted(line, k, seed=0).labels).mean()
        assert found == pytest.approx(wanted, abs=0.01)
    x = np.linspace(0, 0.5, 100_001)  # two halves of a line of infinitely many points
    within, between = x**2 + (0.5 - x) ** 2, 0.75 - x
    clear = (between - within) / np.maximum(within, between)
    assert clear.mean() == pytest.approx(2 - 1.25 * np.log(3), abs=1e-4)


def test_the_names_of_the_four_clusters_by_hand() -> None:
    special_near_far = [
        [0.29, 0.12, 0.59],
        [0.31, 0.58, 0.11],
        [0.49, 0.44, 0.07],
        [0.53, 0.10, 0.38],
    ]
    heads = np.array(special_near_far)
    names = naming(heads, Clustering(np.arange(4), heads, 0.0), special=[0], near=[1]).names
    assert names == ("dense", "diagonal", "dense&vertical", "vertical")


def test_three_by_three_labels_are_matched_by_the_best_sum() -> None:
    table = np.array([[40, 38, 0], [39, 10, 1], [2, 4, 10]])
    sums = {order: table[range(3), order].sum() for order in permutations(range(3))}
    assert table.sum() == 144 and sums[0, 1, 2] == 60
    assert max(sums, key=lambda order: sums[order]) == (1, 0, 2) and sums[1, 0, 2] == 87
    labels = np.repeat(np.repeat(range(3), 3), table.ravel())
    reference = np.repeat(np.tile(range(3), 3), table.ravel())
    assert (matched(labels, reference, 3) == reference).sum() == 87


ANSWERS = [
    ("The Denver Broncos.", ["Denver Broncos"], 1, 1),
    ("Denver", ["the Denver Broncos", "Broncos of Denver"], 0, 2 / 3),
    ("Broncos, Denver", ["Denver Broncos"], 0, 1),
    ("a win for the Denver Broncos", ["Denver Broncos", "Broncos"], 0, 2 / 3),
    ("U.S.-led force", ["US led force"], 0, 0.4),
    ("The", ["an"], 1, 0),
]


@pytest.mark.parametrize(("given", "accepted", "em", "f1"), ANSWERS)
def test_answers_by_hand(given: str, accepted: list[str], em: float, f1: float) -> None:
    assert exact_match(given, accepted) == em
    assert token_f1(given, accepted) == pytest.approx(f1)


def test_a_long_answer_that_holds_the_right_one() -> None:
    words = [f"w{i}" for i in range(30)]
    found = token_f1(" ".join(words), [" ".join(words[10:13])])
    assert (
        found == pytest.approx(6 / 33) and round(100 * found) == 18 and round(100 * found / 3) == 6
    )


DRAWN = "78 74 71 80 69 77 58 75 79 73 76 66 81 72 70 61 77 74 68 79"


def test_p_values_by_hand() -> None:
    draws = np.array(DRAWN.split(), dtype=float)
    assert len(draws) == 20 and draws.mean() - 61 == pytest.approx(11.9)
    assert harm_p_value(61.0, draws) == pytest.approx(3 / 21)
    assert harm_p_value(50.0, draws) == pytest.approx(1 / 21)
    assert harm_p_value(50.0, np.full(359, 70.0)) <= 0.05 / 18 + 1e-12
    assert harm_p_value(50.0, np.full(358, 70.0)) > 0.05 / 18


def test_two_heads_made_silent_or_uniform() -> None:
    for o, u, changes in (((2, 1), (2, 0), (2.24, 1.0)), ((1, 0), (0, 3), (1.0, 3.16))):
        found = np.linalg.norm(o), np.linalg.norm(np.subtract(o, u))
        assert np.round(found, 2).tolist() == list(changes)
        assert (np.dot(u, u) > 2 * np.dot(o, u)) == (found[1] > found[0])


def possible(percent: float, n: int) -> bool:
    """Is it a whole number of n things, to two decimals?"""
    near = round(percent * n / 100)
    return any(round(100 * k / n, 2) == percent for k in (near - 1, near, near + 1))


def test_the_shares_as_whole_numbers_of_heads() -> None:
    heads = {round(100 * k / 384, 2): k for k in range(385)}
    assert [heads.get(share) for share in (26.04, 25.56, 34.11, 13.28)] == [100, None, 131, 51]
    assert heads[26.56] == 384 - 100 - 131 - 51
    printed = [f"{share:05.2f}" for share in heads if share < 100]
    slips = [v for v in printed if sum(a != b for a, b in zip(v, "25.56", strict=True)) == 1]
    assert sorted(slips) == ["25.26", "25.52", "26.56"]


def test_which_numbers_of_things_allow_the_stabilities() -> None:
    table = (95.98, 96.26, 94.37)
    assert not any(possible(one, n) for one in table for n in (384, 3840))
    allowed = (n for n in range(1, 2000) if all(possible(one, n) for one in table))
    assert next(allowed) == 1740
    percentages = [round(i / 100, 2) for i in range(10_001)]
    for n, count in ((384, 385), (10_570, 10_001), (45 * 384, 10_001)):
        assert sum(possible(one, n) for one in percentages) == count
