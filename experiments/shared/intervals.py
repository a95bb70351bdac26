"""Numbers with their intervals, as claims are judged by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from attnlib.measuring.bootstrap import LEVEL, REPLICATES, Estimate, estimate, percentile_interval
from bookkit.claims import Finding

TAIL = 100 * (1 - LEVEL) / 2
"""Percent of the draws below an interval, and as many above it."""


def drawn(values: Sequence[float] | np.ndarray, *, missing: float = 1.0) -> Finding:
    """The first value with the interval of the others, which come from inputs drawn again.

    missing  the largest share of draws that may be undefined; beyond it there is no interval
    """
    whole = np.asarray(values, float)
    undefined = np.isnan(whole[1:])
    if np.isnan(whole[0]) or undefined.all() or undefined.mean() > missing:
        return Finding(float(whole[0]))
    return Finding(float(whole[0]), *map(float, percentile_interval(whole[1:])))


def drawn_weights(
    groups: Sequence[object] | np.ndarray, draws: int = REPLICATES, *, seed: int = 0
) -> np.ndarray:
    """How often each thing counts: once, then as often as its group is drawn again.

    groups   of each thing, what is drawn again as a whole, such as its article
    returns  (1 + draw, thing); the first row alone where all things are of one group, which tells
             nothing about others

    The weighted mean of each row is the number and its draws, as `drawn` takes them.
    """
    group = pd.factorize(np.asarray(groups, dtype=object))[0]
    n = int(group.max()) + 1
    if n < 2:
        return np.ones((1, len(group)))
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), draws)
    return np.vstack([np.ones(len(group)), counts[:, group]])


def drawn_places(n: int, generator: np.random.Generator) -> np.ndarray:
    """Places of all of n things, then of things drawn again: (1 + draw, n)."""
    return np.vstack([np.arange(n), generator.integers(0, n, (REPLICATES, n))])


def chance_p(seen: float, by_chance: np.ndarray) -> float:
    """How often chance goes as far, what was seen counted: (1 + draws as high) / (1 + draws).

    NaN where nothing was seen; a draw in which the number is undefined is left out. A draw that
    repeats what was seen may add its numbers in another order, and still counts.
    """
    if np.isnan(seen):
        return float("nan")
    by_chance = by_chance[~np.isnan(by_chance)]
    return float((1 + (by_chance >= seen - 1e-12).sum()) / (1 + len(by_chance)))


def columns_of(name: str, found: Estimate, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Columns of a table: means under their name, and their intervals, <name>_low and _high."""
    ends = {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
    return {column: scale * values for column, values in ends.items()}


def mean_ends(values: np.ndarray, seed: int) -> Estimate:
    """Mean and interval over the inputs (first axis) that define a value."""
    has = ~np.isnan(values)
    return estimate(np.where(has, values, 0.0), has.astype(float), seed=seed)


# --- numbers on things drawn again, the value on all of them first --------------------------------

SPLITS = 200
"""Times that all things are split in halves; what was chosen on one half is a mean over these."""
UNDEFINED = np.full(1 + REPLICATES, np.nan)
"""The draws of a number that has no meaning, such as that of a task that was not run."""


def drawn_counts(n: int, seed: int) -> np.ndarray:
    """How often each of n things is drawn, (1 + draw, n): each once, then with replacement."""
    again = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), REPLICATES)
    return np.vstack([np.ones(n), again])


def seed_of(task: str, seed: int) -> int:
    """A seed of its own for every task: inputs of two tasks are drawn independently."""
    return seed + crc32(task.encode())


def halved(counts: np.ndarray, seed: int) -> np.ndarray:
    """The same for two halves of the distinct things, (2, SPLITS + draw, n).

    All things are split SPLITS times, those of every draw once; copies of one thing are never on
    both sides.
    """
    every = np.vstack([np.repeat(counts[:1], SPLITS, axis=0), counts[1:]])
    order = np.random.default_rng(seed).random(every.shape)
    order[every == 0] = np.inf
    first = order.argsort(1).argsort(1) < (every > 0).sum(1, keepdims=True) // 2
    return np.stack([every * first, every * ~first])


def means(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The mean over the things drawn (..., draw, n) of values (n, *axes): (..., draw, *axes).

    A thing whose value is NaN is left out; where all are, the mean is NaN.
    """
    flat = values.reshape(len(values), -1).astype(np.float64)
    top, bottom = counts @ np.nan_to_num(flat), counts @ (~np.isnan(flat)).astype(np.float64)
    found = np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
    return found.reshape(*counts.shape[:-1], *values.shape[1:])


def elsewhere(chosen: np.ndarray, tested: np.ndarray | None = None, top: int = 1) -> np.ndarray:
    """What the largest of one half are worth on the other half: (2, draw, top), largest first.

    chosen, tested  (2, draw, place) on two halves; the places with the largest `chosen` of a half
                    are looked up in `tested` of the other; equals are ordered at random
    """
    tested = chosen if tested is None else tested
    noise = 1e-9 * np.random.default_rng(0).random(chosen.shape)
    rank = np.where(np.isnan(chosen), -np.inf, chosen + noise)
    return np.take_along_axis(tested[::-1], (-rank).argsort(-1)[..., :top], -1)


def settled(halves: np.ndarray) -> np.ndarray:
    """Both ways round in one: the mean over all splits of all things, then the draws."""
    both = halves.mean(0)
    return np.concatenate([mean_of(both[:SPLITS])[None], both[SPLITS:]])


def smallest_of(numbers: Sequence[np.ndarray]) -> Finding:
    """The smallest of several numbers, each given with its draws: (1 + draw), the value first.

    Noise makes the smallest of many small, so its interval is not that of the draws' minima: its
    lower end is the smallest of their lower ends, its upper end the smallest of upper ends that
    hold for all together (value + q sd, q from the largest deviation of a draw). NaN if one is.
    """
    if not len(numbers):
        return Finding(math.nan)
    values, again = np.split(np.array(numbers, float).T, [1])
    value = float(values.min())
    if math.isnan(value) or np.isnan(again).all(0).any():
        return Finding(value)
    spread = np.nanstd(again, axis=0)
    far = np.divide(again - values, spread, out=np.zeros_like(again), where=spread > 0)
    reach = max(float(np.percentile(np.nan_to_num(far).max(1), 100 - TAIL)), 0.0)
    low = percentile_interval(again)[0].min()
    return Finding(value, float(low), float((values[0] + reach * spread).min()))


def largest_of(numbers: Sequence[np.ndarray]) -> Finding:
    """The same for the largest."""
    found = smallest_of([-np.asarray(one, float) for one in numbers])
    return Finding(-found.value, -found.high, -found.low)


def mean_of(numbers: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """The draws of a mean, such as over tasks; what is undefined is left out."""
    table = np.array(numbers, float)
    known = (~np.isnan(table)).sum(0)
    return np.asarray(np.nansum(table, axis=0) / np.where(known, known, np.nan))


def rank_correlations(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Spearman's rho along the last axis; places with a NaN in either are left out."""
    gap = np.isnan(one) | np.isnan(other)
    found = []
    for a, b, out in zip(*(x.reshape(-1, x.shape[-1]) for x in (one, other, gap)), strict=True):
        x, y = rankdata(a[~out]), rankdata(b[~out])
        x, y = x - x.mean(), y - y.mean()
        size = np.sqrt((x @ x) * (y @ y))
        found.append(x @ y / size if size > 0 else np.nan)
    return np.array(found).reshape(one.shape[:-1])
