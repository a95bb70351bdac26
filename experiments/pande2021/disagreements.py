"""Where the paper and the authors' code differ, and what each difference does to the roles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnlib.measuring.roles import AUTHORS, THRESHOLD, role_tests
from attnlib.metrics.sieves import COARSE, SIEVES
from bookkit.store import Found, experiment
from experiments.pande2021.numbers import BLOCK
from experiments.pande2021.scoring import AS_AUTHORS

THRESHOLDS = tuple(np.round(np.arange(1.5, 6.01, 0.25), 2).tolist())


@experiment(version=1)
def disagreements(
    *moments: pd.DataFrame, tasks: Sequence[str], threshold: float = THRESHOLD
) -> Found:
    """Every score in both ways, and the test in both ways: heads with the role, mean over tasks.

    table  what, role, paper_bias, authors_bias, paper_heads, authors_heads, changed (heads that
           get or lose the role)
    """
    rows = []
    for role in AS_AUTHORS:
        pairs = [_both(table, role, threshold) for table in moments]
        known = [pair for pair in pairs if pair is not None]
        if known:
            rows.append(("score", role, *np.mean(known, axis=0)))
    for role in COARSE:
        known = [_z_and_t(table, role, threshold) for table in moments if _defined(table, role)]
        if known:
            rows.append(("t instead of z", role, *np.mean(known, axis=0)))
    names = ("paper_bias", "authors_bias", "paper_heads", "authors_heads", "changed")
    return Found(pd.DataFrame(rows, columns=["what", "role", *names]), facts={"tasks": list(tasks)})


def _both(table: pd.DataFrame, role: str, threshold: float) -> tuple[float, ...] | None:
    if not _defined(table, role):
        return None
    paper, authors = (table[table["role"] == name] for name in (role, f"{role}{AUTHORS}"))
    return _compared(
        role_tests(paper, threshold=threshold), role_tests(authors, threshold=threshold)
    )


def _z_and_t(table: pd.DataFrame, role: str, threshold: float) -> tuple[float, ...]:
    rows = table[table["role"] == role]
    z, t = (role_tests(rows, threshold=threshold, test=test) for test in ("z", "t"))
    return _compared(z, t)


def _compared(paper: pd.DataFrame, authors: pd.DataFrame) -> tuple[float, ...]:
    one, other = paper["assigned"].to_numpy(), authors["assigned"].to_numpy()
    heads = (float(one.sum()), float(other.sum()), float((one != other).sum()))
    return float(paper["bias"].mean()), float(authors["bias"].mean()), *heads


def _defined(table: pd.DataFrame, role: str) -> bool:
    return bool(table.loc[table["role"] == role, "bias"].notna().any())


@experiment(version=1)
def threshold_curves(*moments: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """Heads with each role at thresholds from 1.5 to 6, uncorrected and corrected.

    Block is scored as the authors do.
    table  threshold, role ("total" is all), assigned, assigned_bh, assigned_holm, heads (the
           tests), undecided; summed over tasks, corrected over all tests at a threshold
    """
    everything = pd.concat([table.assign(task=t) for table, t in zip(moments, tasks, strict=True)])
    everything = everything[everything["role"] != "block"].replace({"role": {BLOCK: "block"}})
    everything = everything[everything["role"].isin(SIEVES) & everything["bias"].notna()]
    rows = []
    for threshold in THRESHOLDS:
        found = role_tests(everything, threshold=threshold)
        for role, part in [("total", found), *found.groupby("role", sort=False)]:
            told = {"threshold": threshold, "role": role, "heads": len(part)}
            counts = {
                f"assigned{name}": int((part[column] < 0.05).sum())
                for name, column in (("", "p"), ("_bh", "q"), ("_holm", "holm"))
            }
            undecided = float(part["p"].between(0.05, 0.95, inclusive="neither").mean())
            rows.append({**told, **counts, "undecided": undecided})
    return Found(pd.DataFrame(rows), facts={"tasks": list(tasks)})
