"""Forecasts for layers left out, against scikit-learn, and what they must not see."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from attnlib.errors import BadValue
from experiments.agreement.forecasts import (
    PENALTY,
    chosen_elsewhere,
    forecast,
    one_hot,
    predicted,
    ranked,
    share_draws,
    squares,
)

LAYERS = np.repeat(np.arange(6), 8)
DRAW = np.random.default_rng(0)
DESIGN = DRAW.normal(size=(48, 3)) * [1.0, 5.0, 0.1]
VALUES = DESIGN[:, 0] + 0.3 * DRAW.normal(size=48)


def by_sklearn(design: np.ndarray, values: np.ndarray) -> np.ndarray:
    found = np.empty(len(values))
    for layer in np.unique(LAYERS):
        out = layer == LAYERS
        scaler = StandardScaler().fit(design[~out])
        ridge = Ridge(alpha=PENALTY).fit(scaler.transform(design[~out]), values[~out])
        found[out] = ridge.predict(scaler.transform(design[out]))
    return found


@pytest.mark.parametrize("labels", [False, True])
def test_predictions_are_those_of_a_ridge_on_other_layers(labels: bool) -> None:
    rare = one_hot(["rare", *np.where(DESIGN[1:, 0] > 0, "a", "b")])  # constant in other layers
    design = np.hstack([DESIGN, rare]) if labels else DESIGN
    assert predicted(design, VALUES, LAYERS) == pytest.approx(by_sklearn(design, VALUES))


def test_the_share_predicted_is_that_of_the_formula() -> None:
    told = by_sklearn(DESIGN, VALUES)
    mean = np.array([VALUES[layer != LAYERS].mean() for layer in LAYERS])
    r2 = 1 - ((VALUES - told) ** 2).sum() / ((VALUES - mean) ** 2).sum()
    found = forecast(DESIGN, VALUES, LAYERS)
    assert found.value == pytest.approx(r2) and found.low < found.value < found.high


def test_a_head_is_not_predicted_from_its_own_layer() -> None:
    first = predicted(DESIGN, VALUES, LAYERS)
    for layer in np.unique(LAYERS):
        own = layer == LAYERS
        turned = np.where(own, -100 * VALUES, VALUES)
        again = predicted(DESIGN, turned, LAYERS)
        assert np.array_equal(again[own], first[own]) and (again[~own] != first[~own]).all()
    assert predicted(DESIGN, VALUES + 7, LAYERS) == pytest.approx(first + 7)


def test_what_only_the_layer_knows_cannot_be_predicted() -> None:
    values = LAYERS * 1.0
    assert forecast(one_hot(LAYERS.tolist()), values, LAYERS).value < 1e-9


def test_noise_predicts_nothing() -> None:
    noise = np.random.default_rng(1).normal(size=(48, 10))
    assert forecast(noise, VALUES, LAYERS).value < 0.1


def test_intervals_come_from_layers_not_from_heads() -> None:
    errors, spread = squares(DESIGN, VALUES, LAYERS)
    assert len(errors) == len(spread) == 6
    found = share_draws(errors, spread, seed=3)
    again = [
        1 - sum(errors[at] for at in places) / sum(spread[at] for at in places)
        for places in np.random.default_rng(3).integers(0, 6, (1000, 6))
    ]
    assert found[1:] == pytest.approx(again)
    # what all heads of a layer have in common makes the interval of heads too narrow
    values = DESIGN[:, 0] + np.repeat(3 * np.random.default_rng(5).normal(size=6), 8)
    errors, spread = squares(DESIGN, values, LAYERS)
    by_layer = np.ptp(np.percentile(share_draws(errors, spread), [2.5, 97.5]))
    guess = predicted(DESIGN, values, LAYERS)
    mean = np.array([values[layer != LAYERS].mean() for layer in LAYERS])
    heads = np.random.default_rng(0).integers(0, 48, (1000, 48))
    shares = 1 - ((values - guess) ** 2)[heads].sum(1) / ((values - mean) ** 2)[heads].sum(1)
    assert by_layer > 1.2 * np.ptp(np.percentile(shares, [2.5, 97.5]))


def test_a_design_is_not_chosen_on_the_layer_it_is_scored_on() -> None:
    noise = {("n", str(n)): np.random.default_rng(n).normal(size=(48, 2)) for n in range(40)}
    values = np.random.default_rng(99).normal(size=48)
    spread = squares(noise["n", "0"], values, LAYERS)[1]
    best = max(1 - squares(one, values, LAYERS)[0].sum() / spread.sum() for one in noise.values())
    clean = 1 - chosen_elsewhere(noise, values, LAYERS).sum() / spread.sum()
    assert best > 0.05 and clean < best - 0.05
    given = noise | {("knows", ""): values[:, None]}
    wanted = squares(values[:, None], values, LAYERS)[0]
    assert chosen_elsewhere(given, values, LAYERS) == pytest.approx(wanted)


def test_the_choice_is_that_of_a_loop() -> None:
    given = {("a", ""): DESIGN[:, :1], ("b", ""): DESIGN[:, 1:], ("c", ""): DESIGN[:, [0, 2]]}
    found = chosen_elsewhere(given, VALUES, LAYERS)
    for layer in range(6):
        rest = layer != LAYERS
        inside = {}
        for key, design in given.items():
            guess = predicted(design[rest], VALUES[rest], LAYERS[rest])
            inside[key] = ((VALUES[rest] - guess) ** 2).sum()
        best = given[min(inside, key=inside.get)]
        own = (VALUES - predicted(best, VALUES, LAYERS))[~rest]
        assert found[layer] == pytest.approx((own**2).sum())


def test_ranks_run_from_0_to_1() -> None:
    assert ranked(np.array([3.0, 100.0, 1.0])).tolist() == [0.5, 1.0, 0.0]
    with pytest.raises(BadValue, match="no finite number"):
        ranked(np.array([1.0, np.nan]))


def test_what_cannot_be_left_out_is_refused() -> None:
    with pytest.raises(BadValue, match="all heads are of one layer"):
        predicted(DESIGN, VALUES, np.zeros(48, int))
