"""Inputs drawn again, so that every number has an interval, and what is counted in each draw.

Arrays of roles are (draw, layer, head). Draw 0 is all inputs, once each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import text_groups
from attnlib.measuring.bootstrap import REPLICATES
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.significance import drawn_moments, from_moments
from attnlib.metrics.sieves import SIEVES
from bookkit.store import Found
from experiments.shared.intervals import drawn

Roles = Bool[np.ndarray, "draw layer head"]
Numbers = Float[np.ndarray, " draw"]
DRAWS = REPLICATES
OWN_TEXT = "own text"
"""Among the roles of `drawn_roles`: heads that give their own text more than its even share."""
PARTS = {"initial": (0, 4), "middle": (4, 8), "final": (8, 12)}
"""The thirds of Fig. 6, in twelfths of the depth."""


# --- draws ----------------------------------------------------------------------------------------


def draws_of(corpus: Corpus, seed: int) -> Float[np.ndarray, "draw example"]:
    """How often each input is in a draw; inputs that share a text are drawn together.

    The same corpus and seed give the same draws, whatever is measured in them.
    """
    names, group = np.unique(text_groups(corpus.examples), return_inverse=True)
    even = np.full(len(names), 1 / len(names))
    again = np.random.default_rng(seed).multinomial(len(names), even, size=DRAWS)
    return np.vstack([np.ones(len(group)), again[:, group]]).astype(float)


def tested(
    values: Float[np.ndarray, "example *head"],
    counts: Float[np.ndarray, "draw example"],
    threshold: float,
) -> dict[str, np.ndarray]:
    """Mean, sd, skew, number of inputs and p of every head in every draw, each (draw, head).

    below  how many of the inputs score below the threshold: more than half if the median does
    """
    flat = values.reshape(len(values), -1).astype(float)
    mean, sd, n = drawn_moments(counts, flat)
    mean = np.where(n > 0, mean, np.nan)
    defined = ~np.isnan(flat)
    centred = flat - np.nansum(flat, 0) / np.maximum(defined.sum(0), 1)
    powers = (np.where(defined, centred**power, 0.0) for power in (1, 2, 3))
    with np.errstate(invalid="ignore", divide="ignore"):
        first, second, third = (counts @ power / n for power in powers)
        spread = second - first**2
        skew = (third - 3 * first * second + 2 * first**3) / spread**1.5
        skew = np.where((n > 2) & (spread > 1e-18), skew, np.nan)
    p = from_moments(mean, sd, n, threshold).p
    below = counts @ (flat < threshold)
    return {"mean": mean, "sd": sd, "skew": skew, "n": n, "p": p, "below": below}


# --- who has which role in every draw -------------------------------------------------------------


def digits(has: Roles) -> pd.DataFrame:
    """layer, head, drawn: a digit for every draw, 1 where the head has the role."""
    flat = (ord("0") + has.reshape(len(has), -1).T).astype(np.uint8)
    texts = np.array([row.tobytes().decode() for row in flat], dtype=object)
    return head_rows(drawn=texts.reshape(has.shape[1:]))


def roles_of(table: pd.DataFrame) -> dict[str, Roles]:
    """The roles in a table of `drawn_roles`; nobody has one that the inputs cannot show."""
    found = {}
    for role, rows in table.groupby("role", sort=False):
        read = np.frombuffer("".join(rows["drawn"]).encode(), np.uint8) == ord("1")
        shape = int(rows["layer"].max()), int(rows["head"].max()), -1
        found[str(role)] = np.moveaxis(read.reshape(shape), -1, 0)
    nobody = np.zeros_like(next(iter(found.values())))
    return {role: found.get(role, nobody) for role in (*SIEVES, OWN_TEXT)}


def share(who: Roles) -> Numbers:
    """The share of heads; NaN where there are no such layers."""
    return who.mean((1, 2)) if who.size else np.full(len(who), math.nan)


def within(who: Roles, also: Roles) -> Numbers:
    """Of the heads with one role, the share that has another too; NaN where nobody has it."""
    with np.errstate(invalid="ignore"):
        return (who & also).sum((1, 2)) / np.where(who.any((1, 2)), who.sum((1, 2)), np.nan)


def depth(n_layers: int, first: int, end: int) -> slice:
    """The layers l, counted from 1, with first/12 < l/n_layers <= end/12."""
    return slice(first * n_layers // 12, end * n_layers // 12)


def more_in(who: Roles, part: slice) -> Numbers:
    """The share of heads in some layers minus that in all others."""
    return share(who[:, part]) - share(np.delete(who, part, axis=1))


def thirds(by_layer: Float[np.ndarray, "draw layer"]) -> dict[str, Numbers]:
    """The mean over the layers of each third; NaN for one that a shallow network lacks."""
    parts = {part: by_layer[:, depth(by_layer.shape[1], *ends)] for part, ends in PARTS.items()}
    return {part: share(one[..., None]) for part, one in parts.items()}


# --- all tasks ------------------------------------------------------------------------------------


def mean_of_tasks(values: list[Numbers]) -> Numbers:
    """The mean of a number over the tasks that define it, draw by draw; NaN where none does."""
    return pd.DataFrame(values or [np.array([math.nan])]).mean().to_numpy(float)


def found_over_tasks(
    numbers: Mapping[str, Mapping[str, Numbers]], whole: Mapping[str, Numbers] | None = None
) -> Found:
    """What claims ask for: every number as its mean over tasks, and as <task>.<number>.

    numbers  task -> number -> its value in every draw
    whole    numbers of all tasks together
    table    number, task ("all" for the mean), value, low, high
    """
    names = dict.fromkeys(name for of_task in numbers.values() for name in of_task)
    rows = {}
    for name in names:
        rows[name, "all"] = mean_of_tasks([of[name] for of in numbers.values() if name in of])
        rows |= {(name, task): of[name] for task, of in numbers.items() if name in of}
    rows |= {(name, "all"): values for name, values in (whole or {}).items()}
    found = {at: drawn(values) for at, values in rows.items()}
    table = pd.DataFrame([{"number": n, "task": t} | vars(one) for (n, t), one in found.items()])
    named = {n if t == "all" else f"{t}.{n}": one for (n, t), one in found.items()}
    return Found(table, named)
