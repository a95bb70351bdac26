"""Which vocabulary predicts what disabling a head does, in layers that it has not seen?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from attnlib.errors import BadValue
from attnlib.measuring.significance import ALPHA, benjamini_hochberg
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.agreement.vocabularies import JUDGED, VOCABULARIES, ends, labels_of
from experiments.shared.intervals import chance_p, drawn, drawn_places
from experiments.shared.sortings import dealt

PENALTY = 10.0
"""Of the ridge, on columns of variance 1: fixed beforehand, so that nothing is tuned."""
TARGETS = {"cost": "points lost", "influence": "answers changed", "questions": "questions"}
"""What is predicted of every head, and how figures call it."""
NUMBERS = {
    "clark": ("mass_to_", "entropy"),
    "rule": ("rule_",),
    "network": ("network_",),
    "guan": ("part_",),
    "pande": tuple(f"bias_{score}" for score in JUDGED.values()),
}
"""The numbers behind the labels of each vocabulary, by how their keys begin."""

Design = Float[np.ndarray, "head column"]
Values = Float[np.ndarray, " head"]
Layers = Int[np.ndarray, " head"]


@experiment(version=1)
def forecasts(
    labels: pd.DataFrame,
    numbers: pd.DataFrame,
    importance: pd.DataFrame,
    *,
    shuffles: int = 500,
    seed: int = 0,
) -> Found:
    """How well each vocabulary predicts what disabling a head does, each layer by the others.

    table  target, design (a vocabulary, or the baseline of layer and entropy), form ("labels" or
           "numbers"), r2, low, high, gain (over the baseline), p (of the gain)
    """
    layers = importance["layer"].to_numpy()
    wide = numbers.pivot(index=["layer", "head"], columns="key", values="mean").sort_index()
    depth = (layers - layers.min()) / max(np.ptp(layers), 1)
    entropy = wide["entropy"].to_numpy()
    base = np.column_stack([depth, depth**2, entropy, entropy**2])  # needs no paper at all
    designs = {("baseline", "numbers"): base}
    for name in VOCABULARIES:
        designs[name, "labels"] = one_hot(list(labels_of(labels, name)[0]))
        keys = [key for key in wide.columns if key.startswith(NUMBERS[name])]
        designs[name, "numbers"] = wide[keys].fillna(wide[keys].mean()).fillna(0.0).to_numpy()
    rows, draws = [], {}
    for target in TARGETS:
        values = ranked(importance[target].to_numpy(float))
        for (name, form), design in designs.items():
            draws[target, name, form] = forecast_draws(design, values, layers, seed=seed)
            row: dict[str, Any] = {"target": target, "design": name, "form": form}
            row |= {**ends("r2", draws[target, name, form]), "gain": 0.0, "p": np.nan}
            if name != "baseline":
                both = (design, base, values, layers)
                row["gain"], row["p"] = gain_p(*both, shuffles=shuffles, seed=seed)
            rows.append(row)
    table = pd.DataFrame(rows)
    table["q"] = benjamini_hochberg(table["p"].to_numpy())
    return Found(table, _findings(table, draws))


def _findings(
    table: pd.DataFrame, draws: Mapping[tuple[str, str, str], np.ndarray]
) -> dict[str, Finding]:
    """draws: (target, design, form) -> share predicted, of all heads and of heads drawn again."""
    found: dict[str, Finding] = {}
    for target in TARGETS:
        own = {key[1:]: values for key, values in draws.items() if key[0] == target}
        base = own.pop(("baseline", "numbers"))
        label, number = (
            max((one for (_, is_a), one in own.items() if is_a == form), key=lambda one: one[0])
            for form in ("labels", "numbers")
        )
        best = max(label, number, key=lambda one: one[0])
        shares = {"baseline": base, "best": best, "best_label": label}
        shares |= {"label_loss": number - label, "lead": best - base}
        found |= {f"forecast.{target}.{name}": drawn(values) for name, values in shares.items()}
        gains = table.loc[table["target"] == target, "q"] < ALPHA
        found[f"forecast.{target}.gaining"] = Finding(float(gains.sum()))
    return found


def one_hot(labels: Sequence[object]) -> Float[np.ndarray, "head label"]:
    """A column per label, 1 where a head has it."""
    names = np.asarray(labels, dtype=str)
    return np.asarray(names[:, None] == np.unique(names)).astype(float)


def ranked(values: Values) -> Values:
    """Ranks from 0 to 1: one head that dwarfs all others must not decide alone."""
    if not np.isfinite(values).all():
        raise BadValue("a head has no finite number to predict; expected one for every head.")
    return np.asarray((rankdata(values) - 1) / max(len(values) - 1, 1))


def predicted(design: Design, values: Values, layers: Layers) -> Values:
    """Every head predicted by ridge regression on the heads of all other layers."""
    if len(np.unique(layers)) < 2:
        raise BadValue("all heads are of one layer; expected two layers or more to leave one out.")
    found = np.empty(len(design))
    # Scikit-learn's Ridge gives the same, but a thousand shuffles would wait for its checks.
    for layer in np.unique(layers):
        out = layers == layer
        mean, spread = design[~out].mean(0), design[~out].std(0)
        kept = spread > 1e-12  # a column that is constant there says nothing
        scaled = (design[:, kept] - mean[kept]) / spread[kept]
        inside, middle = scaled[~out], values[~out].mean()
        moments = inside.T @ inside + PENALTY * np.eye(kept.sum())
        slopes = np.linalg.solve(moments, inside.T @ (values[~out] - middle))
        found[out] = middle + scaled[out] @ slopes
    return found


def forecast(design: Design, values: Values, layers: Layers, *, seed: int = 0) -> Finding:
    """How well the columns predict the values, each layer by the others; see `forecast_draws`."""
    return drawn(forecast_draws(design, values, layers, seed=seed))


def forecast_draws(
    design: Design, values: Values, layers: Layers, *, seed: int = 0
) -> Float[np.ndarray, " draw"]:
    r"""The share predicted of all heads, then of heads drawn again.

    .. math:: R^2 = 1 - \sum_h (y_h - \hat y_h)^2 / \sum_h (y_h - \bar y)^2

    Each head is predicted, and its mean taken, from the other layers; below 0 the mean of the other
    layers is the better guess. One seed draws the same heads for every design, so that two designs
    can be compared by draw.
    """
    errors, spread = _squares(design, values, layers)
    places = drawn_places(len(values), np.random.default_rng(seed))
    return np.asarray(1 - errors[places].sum(1) / spread[places].sum(1))


def gain_p(
    design: Design,
    base: Design,
    values: Values,
    layers: Layers,
    *,
    shuffles: int = 500,
    seed: int = 0,
) -> tuple[float, float]:
    """What the columns add to the base: the gain in r2, and how often shuffled ones add as much.

    The rows of the design are dealt out again inside their layers, so that what the layer says
    counts as chance.
    """

    def r2(columns: np.ndarray) -> float:
        errors, spread = _squares(columns, values, layers)
        return float(1 - errors.sum() / spread.sum())

    alone = r2(base)
    gain = r2(np.hstack([base, design])) - alone
    orders = dealt(layers, shuffles, np.random.default_rng(seed))
    by_chance = np.array([r2(np.hstack([base, design[order]])) - alone for order in orders])
    return gain, chance_p(gain, by_chance)


def _squares(design: Design, values: Values, layers: Layers) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors of the prediction, and of the mean of the other layers."""
    guess = predicted(design, values, layers)
    rest = layers[:, None] != layers
    mean = (rest * values).sum(1) / rest.sum(1)
    return (values - guess) ** 2, (values - mean) ** 2
