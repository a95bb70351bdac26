"""Documents drawn again and halved: how sure a number of every head is, and the order of heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata, t

from attnlib.errors import BadValue
from attnlib.measuring.bootstrap import percentile_interval
from attnlib.measuring.head_tables import head_rows
from bookkit.claims import Finding

DRAWS = 200
"""Times that documents are drawn again and everything is measured anew."""
HALVES = 200
"""Times that documents are halved at random."""
PARTS = 20
"""Parts of the documents that a jackknife leaves out, one at a time."""
RELIABLE = 0.5
"""A measure orders the heads only if two halves of its documents agree so far; decided beforehand,
for all rows."""

Counts = Float[np.ndarray, "draw input"]
"""How often each input is there."""
PerHead = Callable[[Counts], Float[np.ndarray, "draw head"]]
"""A number of every head, from how often each input is there."""


def document_numbers(examples: Sequence[Any]) -> Int[np.ndarray, " input"]:
    """Which inputs are drawn together, numbered from 0.

    Those of one document, of one article (ids such as "Article#7"), or that share a text, such as
    the paragraph that several questions of QNLI ask about.
    """
    pairs: list[tuple[int, object]] = []
    for place, one in enumerate(examples):
        article, paragraph, _ = one.id.partition("#")
        home = getattr(one, "document", None) or (article if paragraph else None)
        pairs += [(place, ("home", home))] if home else [(place, part) for part in one.parts]
    keys = {key: len(examples) + n for n, key in enumerate(dict.fromkeys(key for _, key in pairs))}
    rows, columns = [place for place, _ in pairs], [keys[key] for _, key in pairs]
    n = len(examples) + len(keys)
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    return np.asarray(
        np.unique(connected_components(graph)[1][: len(examples)], return_inverse=True)[1]
    )


def drawn_counts(documents: Int[np.ndarray, " input"], seed: int, draws: int = DRAWS) -> Counts:
    """All inputs once, then whole documents drawn again: (1 + draw, input)."""
    n = int(documents.max()) + 1
    if n < 2:
        raise BadValue("all inputs are of one document; expected two or more, to draw them again.")
    again = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=draws)
    return np.vstack([np.ones(n), again])[:, documents]


def halved_counts(
    documents: Int[np.ndarray, " input"],
    seed: int,
    *,
    halves: int = HALVES,
    redrawn: bool = False,
    without: Sequence[int] = (),
) -> Float[np.ndarray, "half side input"]:
    """Documents split in two at random, many times; an input has 1 on its side and 0 on the other.

    redrawn  inside each half documents are drawn again, so that no copy is on both sides
    without  documents on neither side
    """
    generator = np.random.default_rng(seed)
    kept = np.setdiff1d(np.arange(documents.max() + 1), without)
    counts = np.zeros((halves, 2, int(documents.max()) + 1))
    for split in counts:
        for side, own in zip(
            split, np.split(generator.permutation(kept), [len(kept) // 2]), strict=True
        ):
            np.add.at(side, generator.choice(own, len(own)) if redrawn and len(own) else own, 1)
    return counts[:, :, documents]


def reliability(
    of: PerHead, documents: np.ndarray, seed: int, *, without: Sequence[int] = ()
) -> float:
    """Mean rank correlation r over heads of two halves of the documents, stepped up to the whole.

    .. math:: 2 r / (1 + r) \\quad \\text{(Spearman and Brown), or } r \\text{ where it is negative}
    """
    halves = halved_counts(documents, seed, without=without)
    one, other = (
        of(halves.reshape(-1, len(documents))).reshape(*halves.shape[:2], -1).swapaxes(0, 1)
    )
    each = correlation(rankdata(one, axis=1), rankdata(other, axis=1))
    if np.isnan(each).all():
        return float("nan")
    r = float(np.nanmean(each))
    return 2 * r / (1 + r) if r > 0 else r


def left_out(of: PerHead, documents: np.ndarray, seed: int) -> list[float]:
    """The reliability without each of twenty parts of the documents, for a jackknife."""
    order = np.random.default_rng(seed).permutation(int(documents.max()) + 1)
    parts = np.array_split(order, min(PARTS, len(order)))
    return [reliability(of, documents, seed, without=part.tolist()) for part in parts]


def jackknifed(value: float, without: Sequence[float]) -> Finding:
    r"""A value with the interval of a delete-a-group jackknife, g values without a group each.

    .. math:: \hat\theta \pm t_{g-1} \sqrt{\tfrac{g-1}{g} \sum_i (\theta_{-i} - \bar\theta)^2}

    Inputs drawn with replacement would put copies of one into both halves.
    """
    g, each = len(without), np.asarray(without, float)
    if g < 2 or np.isnan([value, *each]).any():
        return Finding(value)
    error = np.sqrt((g - 1) / g * ((each - each.mean()) ** 2).sum())
    reach = float(t.ppf(0.975, g - 1) * error)
    return Finding(value, value - reach, value + reach)


def mean_of(values: Float[np.ndarray, "input *axes"]) -> PerHead:
    """The mean over inputs of every head; an input whose value is NaN is left out."""
    flat = values.reshape(len(values), -1).astype(float)
    filled, has = np.nan_to_num(flat), (~np.isnan(flat)).astype(float)

    def of(counts: Counts) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((counts @ filled) / (counts @ has))

    return of


# --- draws in tables: a column of text, as a list could not be digested ---------------------------


def with_draws(table: pd.DataFrame, name: str, values: np.ndarray) -> pd.DataFrame:
    """A table with a number more: of all inputs, its interval, and its draws as text.

    values  (1 + draw, row)
    """
    low, high = percentile_interval(values[1:])
    found = {name: values[0], f"{name}_low": low, f"{name}_high": high}
    draws = [" ".join(f"{value:.5g}" for value in row) for row in values[1:].T]
    return table.assign(**found, **{f"{name}_draws": draws})


def all_heads(n_layers: int, n_heads: int) -> pd.DataFrame:
    """A row per head: layer and head, counted from 1."""
    return head_rows(of=np.empty((n_layers, n_heads)))[["layer", "head"]]


def draws_of(table: pd.DataFrame, name: str) -> Float[np.ndarray, "draw row"]:
    """The value of every row, heads in order, then its draws; a column without draws has none."""
    rows = table.sort_values(["layer", "head"]) if "layer" in table else table
    values = rows[name].to_numpy(float)[None]
    if f"{name}_draws" not in rows:
        return values
    draws = [np.array(one.split(), float) for one in rows[f"{name}_draws"]]
    return np.vstack([values, np.stack(draws, axis=1)])


# --- correlations over heads ----------------------------------------------------------------------


def ordered(values: np.ndarray) -> np.ndarray:
    """Ranks of the heads (last axis)."""
    return np.asarray(rankdata(values, axis=-1))


def within_layers(values: np.ndarray, layers: np.ndarray) -> np.ndarray:
    """Ranks over all heads (last axis), less the mean rank of the head's layer."""
    ranks = ordered(values)
    same = (layers[:, None] == layers) / (layers[:, None] == layers).sum(0)
    return np.asarray(ranks - ranks @ same)


def correlation(one: np.ndarray, other: np.ndarray) -> Any:
    """Correlation along the last axis; NaN where one side is constant."""
    a = one - one.mean(-1, keepdims=True)
    b = other - other.mean(-1, keepdims=True)
    spread = np.sqrt((a**2).sum(-1) * (b**2).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 1e-9, (a * b).sum(-1) / spread, np.nan)
