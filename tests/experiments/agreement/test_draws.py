"""Documents drawn again and halved; reliability against what was planted, and by other routes."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, spearmanr, t

from attnlib.data.examples import Segment, TaskExample, Tree
from attnlib.errors import BadValue
from experiments.agreement import draws
from experiments.agreement.draws import (
    all_heads,
    correlation,
    document_numbers,
    drawn_counts,
    draws_of,
    halved_counts,
    jackknifed,
    left_out,
    mean_of,
    reliability,
    with_draws,
    within_layers,
)

DRAW = np.random.default_rng(0)
SINGLE = np.arange(60)


# --- which inputs belong together -----------------------------------------------------------------


def test_passages_of_an_article_are_one_document() -> None:
    found = document_numbers([Segment(name, name) for name in ("Dog#1", "Cat#2", "Dog#9", "Cow")])
    assert found[0] == found[2] and len(set(found.tolist())) == 3


def test_trees_are_of_their_document() -> None:
    one_word = (("a",), (-1,), ("root",), ("X",))
    trees = [Tree(f"s{n}", *one_word, document=name) for n, name in enumerate("aba")]
    assert document_numbers(trees).tolist() in ([0, 1, 0], [1, 0, 1])


def test_inputs_that_share_a_text_are_drawn_together_also_by_a_chain() -> None:
    pairs = [("p", "q"), ("x", "y"), ("r", "q"), ("r", "z"), ("w", "v")]
    found = document_numbers([TaskExample(str(n), *pair, 0) for n, pair in enumerate(pairs)])
    assert found[0] == found[2] == found[3]
    assert len(set(found.tolist())) == 3 and sorted(set(found.tolist())) == [0, 1, 2]


# --- draws and halves -----------------------------------------------------------------------------


def test_whole_documents_are_drawn() -> None:
    documents = np.array([0, 1, 1, 2, 2, 2])
    counts = drawn_counts(documents, seed=1)
    assert counts.shape == (1 + draws.DRAWS, 6) and (counts[0] == 1).all()
    assert (counts[:, 1] == counts[:, 2]).all() and (counts[:, 3] == counts[:, 5]).all()
    assert (counts[:, [0, 1, 3]].sum(1) == 3).all() and (counts[1:].std(0) > 0).all()
    assert np.array_equal(drawn_counts(documents, seed=1), counts)


def test_one_document_cannot_be_drawn_again() -> None:
    with pytest.raises(BadValue, match="all inputs are of one document"):
        drawn_counts(np.zeros(3, int), seed=0)


def test_halves_share_no_document() -> None:
    documents = np.array([0, 0, 1, 2, 3])
    halves = halved_counts(documents, seed=0, halves=30)
    assert halves.shape == (30, 2, 5) and set(halves.ravel()) == {0, 1}
    assert (halves.sum(1) == 1).all() and (halves[:, :, 0] == halves[:, :, 1]).all()
    assert ((halves[:, 0][:, [0, 2, 3, 4]]).sum(1) == 2).all()
    again = halved_counts(documents, seed=0, halves=200, redrawn=True)
    assert again.max() == 2  # a document is there twice, but never on both sides
    assert ((again[:, 0] > 0) & (again[:, 1] > 0)).sum() == 0
    assert (again[:, :, [0, 2, 3, 4]].sum(2) == 2).all()


def test_parts_can_be_left_out_of_both_halves() -> None:
    halves = halved_counts(SINGLE, seed=0, halves=5, without=[3, 7])
    assert (halves[:, :, [3, 7]] == 0).all() and (halves.sum((1, 2)) == 58).all()


# --- reliability ----------------------------------------------------------------------------------


def planted(spread: float, noise: float, seed: int = 0, n: int = 60) -> np.ndarray:
    """(input, head): heads that differ by their spread, and inputs that add noise."""
    draw = np.random.default_rng(seed)
    return spread * draw.normal(size=144) + noise * draw.normal(size=(n, 144))


def test_reliability_is_that_of_a_loop_over_halves() -> None:
    values = planted(1.0, 6.0)
    halves = halved_counts(SINGLE, seed=3)
    each = [spearmanr(*(values[side > 0].mean(0) for side in half)).statistic for half in halves]
    r = np.mean(each)
    assert reliability(mean_of(values), SINGLE, 3) == pytest.approx(2 * r / (1 + r))


def test_reliability_is_the_share_of_the_spread_that_is_true() -> None:
    # the mean of 60 inputs has a noise of 6 / sqrt(60), so 1 / (1 + 0.6) = 0.625 is true; by
    # ranks it is 0.61
    found = [reliability(mean_of(planted(1.0, 6.0, seed)), SINGLE, 0) for seed in range(20)]
    assert np.mean(found) == pytest.approx(0.61, abs=0.05)
    noise = [reliability(mean_of(planted(0.0, 1.0, seed)), SINGLE, 0) for seed in range(8)]
    assert abs(np.mean(noise)) < 0.15


def test_copies_of_an_input_do_not_raise_reliability() -> None:
    values = np.repeat(planted(0.0, 1.0, n=30), 2, axis=0)
    documents = np.repeat(np.arange(30), 2)
    true = reliability(mean_of(values), documents, 0)
    assert abs(true) < 0.25
    # if each copy were an input of its own, half of the pairs would be on both sides
    assert reliability(mean_of(values), SINGLE, 0) > true + 0.3


def test_heads_that_do_not_differ_have_no_reliability() -> None:
    assert math.isnan(reliability(mean_of(np.ones((60, 5))), SINGLE, 0))


def test_a_jackknife_covers_what_is_true() -> None:
    inside = 0
    for seed in range(6):
        of = mean_of(planted(1.0, 6.0, seed))
        found = jackknifed(reliability(of, SINGLE, 0), left_out(of, SINGLE, 0))
        assert found.low < found.value < found.high
        inside += found.low <= 0.625 <= found.high
    assert inside >= 5


def test_a_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = DRAW.normal(size=20)
    without = [np.delete(values, place).mean() for place in range(20)]
    found = jackknifed(values.mean(), without)
    reach = t.ppf(0.975, 19) * values.std(ddof=1) / np.sqrt(20)
    assert (found.low, found.high) == pytest.approx((values.mean() - reach, values.mean() + reach))
    assert not jackknifed(0.5, [0.4]).has_interval
    assert not jackknifed(0.5, [0.4, math.nan]).has_interval


# --- tables and correlations ----------------------------------------------------------------------


def test_draws_come_back_from_a_table() -> None:
    values = DRAW.normal(size=(1 + draws.DRAWS, 6))
    table = with_draws(all_heads(2, 3), "cost", values)
    assert draws_of(table.iloc[::-1], "cost") == pytest.approx(values, rel=1e-4)
    assert table[["layer", "head"]].to_numpy().tolist()[3] == [2, 1]
    low, high = np.percentile(values[1:], [2.5, 97.5], axis=0)
    assert table["cost_low"].to_numpy() == pytest.approx(low)
    assert table["cost_high"].to_numpy() == pytest.approx(high)
    assert draws_of(pd.DataFrame({"layer": [1], "head": [1], "f1": [3.0]}), "f1").tolist() == [
        [3.0]
    ]


def test_an_undefined_input_is_left_out_of_a_mean() -> None:
    values = np.array([[1.0, np.nan], [3.0, np.nan], [5.0, 2.0]])
    found = mean_of(values)(np.array([[1, 1, 1], [2, 1, 0]]))
    assert found == pytest.approx(np.array([[3, 2], [5 / 3, np.nan]]), nan_ok=True)


def test_ranks_within_layers_are_ranks_less_the_layers_mean() -> None:
    layers = np.repeat([1, 2, 3], 4)
    values = DRAW.normal(size=(3, 12))
    for row, found in zip(values, within_layers(values, layers), strict=True):
        ranks = pd.Series(rankdata(row))
        assert found == pytest.approx(ranks - ranks.groupby(layers).transform("mean"))


def test_a_correlation_with_what_is_constant_is_undefined() -> None:
    one, other = DRAW.normal(size=(2, 12))
    assert correlation(one, other) == pytest.approx(np.corrcoef(one, other)[0, 1])
    assert math.isnan(correlation(one, np.full(12, 0.1)))
    assert Counter(np.isnan(correlation(np.stack([one, one * 0]), other)).tolist()) == {0: 1, 1: 1}
