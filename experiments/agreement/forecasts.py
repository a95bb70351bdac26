"""Which vocabulary predicts what disabling a head does, in layers that it has not seen?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import rankdata

from attnlib.errors import BadValue
from bookkit.claims import Finding
from experiments.agreement.vocabularies import JUDGED, VOCABULARIES, labels_of
from experiments.shared.intervals import drawn, drawn_places

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

BASELINE = ("baseline", "numbers")
"""Layer and entropy, which need no paper at all."""

Design = Float[np.ndarray, "head column"]
Values = Float[np.ndarray, " head"]
Layers = Int[np.ndarray, " head"]


def designs(
    labels: pd.DataFrame, numbers: pd.DataFrame, layers: Layers
) -> dict[tuple[str, str], Design]:
    """(vocabulary, "labels" or "numbers") -> what predicts, and the baseline of depth and entropy.

    labels, numbers  tables of `head_labels` and `head_numbers`
    """
    wide = numbers.pivot(index=["layer", "head"], columns="key", values="mean").sort_index()
    depth = (layers - layers.min()) / max(np.ptp(layers), 1)
    entropy = wide["entropy"].to_numpy()
    found = {BASELINE: np.column_stack([depth, depth**2, entropy, entropy**2])}
    for name in VOCABULARIES:
        found[name, "labels"] = one_hot(list(labels_of(labels, name)[0]))
        keys = [key for key in wide.columns if key.startswith(NUMBERS[name])]
        found[name, "numbers"] = wide[keys].fillna(wide[keys].mean()).fillna(0.0).to_numpy()
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


def squares(design: Design, values: Values, layers: Layers) -> tuple[np.ndarray, np.ndarray]:
    """By layer, summed squared errors of the prediction, and of the mean of the other layers."""
    guess = predicted(design, values, layers)
    rest = layers[:, None] != layers
    mean = (rest * values).sum(1) / rest.sum(1)
    sums = [pd.Series((values - one) ** 2).groupby(layers).sum() for one in (guess, mean)]
    return sums[0].to_numpy(), sums[1].to_numpy()


def forecast(design: Design, values: Values, layers: Layers, *, seed: int = 0) -> Finding:
    """How well the columns predict the values, each layer by the others; see `share_draws`."""
    return drawn(share_draws(*squares(design, values, layers), seed))


def share_draws(errors: np.ndarray, spread: np.ndarray, seed: int = 0) -> np.ndarray:
    r"""The share predicted over all layers, then over layers drawn again: (1 + draw,).

    .. math:: R^2 = 1 - \sum_h (y_h - \hat y_h)^2 / \sum_h (y_h - \bar y)^2

    errors, spread  of every layer, see `squares`

    Each head is predicted, and its mean taken, from the other layers; below 0 the mean of the other
    layers is the better guess. Heads of one layer share what is known of them, so whole layers are
    drawn. One seed draws the same layers for every design.
    """
    places = drawn_places(len(errors), np.random.default_rng(seed))
    return np.asarray(1 - errors[places].sum(1) / spread[places].sum(1))


def chosen_elsewhere(
    given: Mapping[tuple[str, str], Design], values: Values, layers: Layers
) -> Float[np.ndarray, " layer"]:
    """Squared errors of every layer, by the design that predicts the other layers best.

    Each of the others is predicted from the rest, without the layer that is left out: a design is
    not chosen on the layer it is scored on.
    """
    own = {key: squares(design, values, layers)[0] for key, design in given.items()}
    found = []
    for place, layer in enumerate(np.unique(layers)):
        rest = layers != layer
        inside = {
            key: squares(design[rest], values[rest], layers[rest])[0].sum()
            for key, design in given.items()
        }
        found.append(own[min(inside, key=lambda key: inside[key])][place])
    return np.array(found)
