"""What the authors released: their head maps next to ours, and what their code does differently.

The maps were read off their published heat maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnlib.data.assets import resolve
from attnlib.errors import CorpusError
from attnlib.measuring.head_tables import layer_means, profiles_beside
from attnlib.measuring.roles import AUTHORS, THRESHOLD, role_tests
from attnlib.metrics.sieves import COARSE
from bookkit.store import Found, experiment
from experiments.pande2021.bias_scores import AS_AUTHORS, BLOCK

ASSET = "pande-reference"
FEW, MANY = "pande_scores_digitised.tsv", "pande_local_1000_digitised.tsv"
ROLES = {
    "local": "local",
    "block": BLOCK,
    "delim_cls": "cls",
    "delim_sep": "sep",
    "delim_both": "delimiter",
    "syn_nsubj": "nsubj",
    "syn_dobj": "dobj",
    "syn_amod": "amod",
    "syn_advmod": "advmod",
    "syn_all": "syntactic",
}
"""The authors' names for the roles of their heat maps, and ours."""
TASKS = {"sst-2": "sst2"}
READING_ERROR = 0.1
"""How far a value read off a heat map may be from the number behind it."""


def authors_maps(folder: Path) -> pd.DataFrame:
    """task, role, layer, head (from 1), bias. Local: 1,000 inputs; the others: 20 inputs.

    Where the colour scale ends, at 3 for block, the value is that end.
    """
    few = pd.read_csv(folder / FEW, sep="\t", dtype={"avg_sieve_bias": str})
    few = few[~few["role"].str.startswith("local")]
    many = pd.read_csv(folder / MANY, sep="\t", dtype={"avg_sieve_bias": str})
    many = many[many["band"] == 2].assign(role="local")
    table = pd.concat([many, few], ignore_index=True)
    table = table[table["role"].isin(ROLES)]
    if table.empty:
        raise CorpusError(
            f"{folder.name} has none of the roles {', '.join(ROLES)}. Fetch it again."
        )
    return pd.DataFrame(
        {
            "task": table["task"].replace(TASKS),
            "role": table["role"].map(ROLES),
            "layer": table["layer"].astype(int) + 1,
            "head": table["head"].astype(int) + 1,
            "bias": table["avg_sieve_bias"].str.lstrip("<=>").astype(float),
        }
    ).reset_index(drop=True)


@experiment(version=1, reads=["pande-reference"])
def authors_beside(*moments: pd.DataFrame, tasks: Sequence[str], seed: int = 0) -> Found:
    """Layer profiles of the mean score, ours and theirs, and their rank correlation.

    moments  the tables of `role_moments`, one per task
    table    task, role, layer, ours, authors, rho, p: p by permuting layers
    Heads of two models have no common numbering, so only layers are compared.
    """
    theirs = authors_maps(resolve(ASSET))
    parts = []
    for table, task in zip(moments, tasks, strict=True):
        for role, reference in theirs[theirs["task"] == task].groupby("role", sort=False):
            ours = layer_means(table[table["role"] == role], "bias")
            both = profiles_beside(ours, layer_means(reference, "bias"), seed)
            if len(both):
                parts.append(both.assign(task=task, role=role))
    columns = ["task", "role", "layer", "ours", "authors", "rho", "p"]
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return Found(found.reindex(columns=columns), facts={"reading_error": READING_ERROR})


@experiment(version=1)
def disagreements(
    *moments: pd.DataFrame, tasks: Sequence[str], threshold: float = THRESHOLD
) -> Found:
    """Every score in both ways, and the test in both ways: heads with the role, mean over tasks.

    table  what, role, paper_bias, authors_bias, paper_heads, authors_heads, changed (heads that
           get or lose the role)
    """
    ways = [("score", role, f"{role}{AUTHORS}", "z") for role in AS_AUTHORS]
    ways += [("t instead of z", role, role, "t") for role in COARSE]
    rows = []
    for what, role, score, test in ways:
        found = []
        for table in moments:
            paper, authors = (table[table["role"] == name] for name in (role, score))
            if paper["bias"].notna().any():
                one = role_tests(paper, threshold=threshold)
                other = role_tests(authors, threshold=threshold, test=test)
                found.append(_compared(one, other))
        if found:
            rows.append((what, role, *np.mean(found, axis=0)))
    names = ("paper_bias", "authors_bias", "paper_heads", "authors_heads", "changed")
    return Found(pd.DataFrame(rows, columns=["what", "role", *names]), facts={"tasks": list(tasks)})


def _compared(paper: pd.DataFrame, authors: pd.DataFrame) -> tuple[float, ...]:
    one, other = (part["assigned"].to_numpy() for part in (paper, authors))
    heads = (float(one.sum()), float(other.sum()), float((one != other).sum()))
    return float(paper["bias"].mean()), float(authors["bias"].mean()), *heads
