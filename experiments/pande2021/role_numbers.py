"""The numbers that the paper reads off its figures, from who has which role."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from attnlib.measuring.roles import AUTHORS
from attnlib.measuring.significance import undecided_share
from attnlib.metrics.sieves import COARSE, DEPENDENCIES, FINE, SIEVES

BLOCK = f"block{AUTHORS}"
COARSE_AS_JUDGED = tuple(BLOCK if role == "block" else role for role in COARSE)
Grids = Mapping[str, np.ndarray]
"""Role -> (layer, head)."""


def role_numbers(assigned: Grids, bias: Grids, p: Grids, skew: Grids, threshold: float) -> dict:
    """All numbers of one task; NaN where nothing is there to count.

    Block heads are those of the authors' score (with the printed one there can be none);
    `score.mean`, `skew.share`, `average_only.count` and `block.heads` use the printed one.
    Depths are shares of the number of layers, so any model can be asked.
    """
    has = {role: np.asarray(grid, bool) for role, grid in assigned.items()}
    pair = bool(np.isfinite(bias["block"]).any())
    coarse = {**{role: has[role] for role in COARSE}, "block": has[BLOCK]}
    fine = np.stack([has[BLOCK] if role == "block" else has[role] for role in FINE])
    n_roles = fine.sum(0)
    delimiter = has["cls"] | has["sep"]
    syntax = np.logical_or.reduce([has[role] for role in DEPENDENCIES])
    n_layers = len(n_roles)
    middle, inner = depth(n_layers, 5, 10), depth(n_layers, 6, 9)
    early, last = depth(n_layers, 0, 4), depth(n_layers, 10, 12)
    late, second_to_fifth = depth(n_layers, 9, 12), depth(n_layers, 1, 5)
    skilled = n_roles[late] > 0
    alone = skilled & delimiter[late] & (n_roles[late] == fine[3:5][:, late].sum(0))
    blocks = coarse["block"]
    return {
        "score.mean": _known([bias[role] for role in COARSE]).mean(),
        "p.undecided": undecided_share(np.stack([p[role] for role in COARSE_AS_JUDGED])),
        "skew.share": (_known([skew[role] for role in SIEVES]) > 0.5).mean(),
        "average_only.count": float(
            sum(((bias[role] >= threshold) & ~has[role]).sum() for role in SIEVES)
        ),
        "delimiter.share": float(has["delimiter"].mean()),
        "unskilled.share": float((~np.logical_or.reduce(list(coarse.values()))).mean()),
        "overlap.syntactic_local": _within(has["syntactic"], has["local"]),
        "spearman": _spearman(bias["local"], bias["syntactic"]),
        "nsubj.next_minus_previous": _within(has["nsubj"], has["next_local"])
        - _within(has["nsubj"], has["previous_local"]),
        "dobj.previous_minus_next": _within(has["dobj"], has["previous_local"])
        - _within(has["dobj"], has["next_local"]),
        "block.heads": float(has["block"].sum()) if pair else math.nan,
        "block.overlap": _within(blocks, has["local"] | has["syntactic"]) if pair else math.nan,
        "block.first_minus_rest": float(blocks[0].mean() - blocks[1:].mean()) if pair else math.nan,
        "block.layers_2_to_5": _layers_with(blocks[second_to_fifth]) if pair else math.nan,
        "block.layers_with_1": _layers_with(blocks) if pair else math.nan,
        "block.ends_minus_middle": _ends_minus_middle(blocks) if pair else math.nan,
        "single.block_heads": math.nan if pair else float(blocks.sum()),
        "multi.most_roles": float(n_roles.max()),
        "multi.middle_over_rest": _ratio(n_roles, middle),
        "multi.early_over_rest": _ratio(n_roles, early),
        "multi.last_over_all": _over(n_roles[last].mean(), n_roles.mean()),
        "delimiter.least_layer": float(delimiter[1:].mean(1).min()),
        "delimiter.first_layer": float(delimiter[0].mean()),
        "delimiter.only_in_last": float(alone.sum() / skilled.sum()) if skilled.any() else math.nan,
        "syntactic.layers_with_3": float((syntax.sum(1) >= 3).mean()),
        "syntactic.middle_over_rest": _ratio(syntax, inner),
        "syntactic.last_over_all": _over(syntax[last].mean(), syntax.mean()),
    }


def depth(n_layers: int, first: int, end: int) -> slice:
    """The layers from depth first/12 up to end/12; the same of a network of any depth."""
    return slice(round(first * n_layers / 12), round(end * n_layers / 12))


def _layers_with(has: np.ndarray) -> float:
    """The share of layers in which some head has it."""
    return float(has.any(1).mean()) if len(has) else math.nan


def _ends_minus_middle(has: np.ndarray) -> float:
    """The share of heads in the first or last layer, the lesser, minus that in the middle third."""
    ends, middle = min(has[0].mean(), has[-1].mean()), has[depth(len(has), 4, 8)]
    return float(ends - middle.mean()) if len(middle) else math.nan


def _within(who: np.ndarray, also: np.ndarray) -> float:
    """Of the heads with one role, the share that has another too."""
    return float((who & also).sum() / who.sum()) if who.any() else math.nan


def _ratio(grid: np.ndarray, part: slice) -> float:
    """The mean in some layers over the mean in all others."""
    inside = np.zeros(len(grid), bool)
    inside[part] = True
    if inside.all() or not inside.any():
        return math.nan  # too few layers to have such a part
    return _over(grid[inside].mean(), grid[~inside].mean())


def _over(above: float, below: float) -> float:
    return float(above / below) if below > 0 else math.nan


def _known(grids: list[np.ndarray]) -> pd.Series:
    """All values that are defined; the mean of none is NaN."""
    return pd.Series(np.stack(grids).ravel()).dropna()


def _spearman(one: np.ndarray, other: np.ndarray) -> float:
    both = np.isfinite(one) & np.isfinite(other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant scores have no correlation: NaN says it
        return float(spearmanr(one[both], other[both]).statistic) if both.any() else math.nan
