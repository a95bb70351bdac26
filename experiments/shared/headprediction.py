"""How well a description of heads foretells a number of theirs, in layers it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata

from attnlib.errors import BadValue
from experiments.shared.taxonomies import dealt

PENALTY = 10.0
"""Of the ridge, on columns of variance 1: fixed beforehand, so that nothing is tuned."""
DRAWS = 1000
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Forecast:
    r"""How much of a number's spread over heads is foretold for layers that were left out.

    r2     .. math:: 1 - \sum_h (y_h - \hat y_h)^2 / \sum_h (y_h - \bar y)^2

           sums over all heads, each predicted, and its mean taken, from the other layers; below
           0 if the mean of the other layers is the better guess
    low, high  of r2 when heads are drawn again
    """

    r2: float
    low: float
    high: float


def one_hot(labels: Sequence[object]) -> Float[np.ndarray, "head label"]:
    """A column per label, 1 where a head has it."""
    names = np.asarray(labels, dtype=str)
    return np.asarray(names[:, None] == np.unique(names)).astype(float)


def ranked(values: Float[np.ndarray, " head"]) -> Float[np.ndarray, " head"]:
    """Ranks from 0 to 1: one head that dwarfs all others must not decide alone."""
    if not np.isfinite(values).all():
        raise BadValue("a head has no finite number to foretell; expected one for every head.")
    return np.asarray((rankdata(values) - 1) / max(len(values) - 1, 1))


def smoother(
    design: Float[np.ndarray, "head column"], layers: Int[np.ndarray, " head"]
) -> Float[np.ndarray, "head head"]:
    """The matrix S with y_hat = S y: every head predicted by ridge regression on other layers.

    Columns are scaled to variance 1 on the heads that are learnt from; a column that is constant
    there is left out.
    """
    n = len(design)
    if len(layers) != n or n == 0:
        raise BadValue(f"{len(layers)} layers for {n} heads; expected one for each.")
    if len(np.unique(layers)) < 2:
        raise BadValue("all heads are of one layer; expected two layers or more to leave one out.")
    found = np.zeros((n, n))
    for layer in np.unique(layers):
        out = layers == layer
        known = design[~out]
        mean, spread = known.mean(0), known.std(0)
        kept = spread > 1e-12
        inside = (known[:, kept] - mean[kept]) / spread[kept]
        outside = (design[out][:, kept] - mean[kept]) / spread[kept]
        solved = np.linalg.solve(inside.T @ inside + PENALTY * np.eye(kept.sum()), inside.T)
        centre = np.full((len(known), len(known)), -1 / len(known)) + np.eye(len(known))
        found[np.ix_(out, ~out)] = 1 / len(known) + outside @ solved @ centre
    return found


def forecast(
    design: Float[np.ndarray, "head column"],
    values: Float[np.ndarray, " head"],
    layers: Int[np.ndarray, " head"],
    *,
    seed: int = 0,
) -> Forecast:
    """How well the columns foretell the values, each layer by the others."""
    r2, *drawn = forecast_draws(design, values, layers, seed=seed)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    return Forecast(float(r2), float(low), float(high))


def forecast_draws(
    design: Float[np.ndarray, "head column"],
    values: Float[np.ndarray, " head"],
    layers: Int[np.ndarray, " head"],
    *,
    seed: int = 0,
) -> Float[np.ndarray, " draw"]:
    """The share foretold of all heads, then of heads drawn again.

    One seed draws the same heads for every design, so that two designs can be compared by draw.
    """
    errors, spread = _squares(smoother(design, layers), values, layers)
    generator = np.random.default_rng(seed)
    again = generator.integers(0, len(values), (DRAWS, len(values)))
    places = np.vstack([np.arange(len(values)), again])
    return np.asarray(1 - errors[places].sum(1) / spread[places].sum(1))


def gain_p(
    design: Float[np.ndarray, "head column"],
    base: Float[np.ndarray, "head column"],
    values: Float[np.ndarray, " head"],
    layers: Int[np.ndarray, " head"],
    *,
    shuffles: int = 500,
    seed: int = 0,
) -> tuple[float, float]:
    """What the columns add to the base: the gain in r2, and how often shuffled ones add as much.

    The rows of the design are dealt out again inside their layers, so that what the layer tells
    counts as chance.
    """

    def r2(columns: np.ndarray) -> float:
        errors, spread = _squares(smoother(columns, layers), values, layers)
        return float(1 - errors.sum() / spread.sum())

    alone = r2(base)
    gain = r2(np.hstack([base, design])) - alone
    orders = dealt(layers, shuffles, np.random.default_rng(seed))
    drawn = np.array([r2(np.hstack([base, design[order]])) - alone for order in orders])
    return gain, float((1 + (drawn >= gain - 1e-12).sum()) / (1 + shuffles))


def _squares(
    smooth: np.ndarray, values: np.ndarray, layers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors of the forecast, and of the mean of the other layers."""
    if len(values) != len(smooth):
        raise BadValue(f"{len(values)} values for {len(smooth)} heads; expected one for each.")
    rest = layers[:, None] != layers
    mean = (rest * values).sum(1) / rest.sum(1)
    return (values - smooth @ values) ** 2, (values - mean) ** 2
