"""Forecasts for layers left out, against scikit-learn, and what they must not see."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from attnlib.errors import BadValue
from experiments.agreement.forecasts import (
    PENALTY,
    forecast,
    gain_p,
    one_hot,
    predicted,
    ranked,
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


def test_the_share_foretold_is_that_of_the_formula() -> None:
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


def test_what_only_the_layer_knows_cannot_be_foretold() -> None:
    values = LAYERS * 1.0
    assert forecast(one_hot(LAYERS.tolist()), values, LAYERS).value <= 0


def test_noise_foretells_nothing() -> None:
    noise = np.random.default_rng(1).normal(size=(48, 10))
    assert forecast(noise, VALUES, LAYERS).value < 0.1


def test_a_gain_over_the_baseline_is_found_and_noise_has_none() -> None:
    base = LAYERS[:, None].astype(float)
    gain, p = gain_p(DESIGN, base, VALUES, LAYERS, shuffles=99)
    assert gain > 0.5 and p == pytest.approx(0.01)
    noise = np.random.default_rng(2).normal(size=(48, 2))
    assert gain_p(noise, base, VALUES, LAYERS, shuffles=99)[1] > 0.05


def test_ranks_run_from_0_to_1() -> None:
    assert ranked(np.array([3.0, 100.0, 1.0])).tolist() == [0.5, 1.0, 0.0]
    with pytest.raises(BadValue, match="no finite number"):
        ranked(np.array([1.0, np.nan]))


def test_what_cannot_be_left_out_is_refused() -> None:
    with pytest.raises(BadValue, match="all heads are of one layer"):
        predicted(DESIGN, VALUES, np.zeros(48, int))
