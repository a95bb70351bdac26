"""What the authors released: their head maps, read off their published heat maps, next to ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from attnlib.data.assets import resolve
from attnlib.errors import CorpusError
from attnlib.measuring.head_tables import layer_means, rank_correlation
from bookkit.store import Found, experiment
from experiments.pande2021.bias_scores import BLOCK

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
            profile = layer_means(reference, "bias")
            if ours.notna().any() and len(ours) == len(profile):
                rho, p = rank_correlation(ours.to_numpy(), profile.to_numpy(), seed)
                both = pd.DataFrame({"ours": ours, "authors": profile}).reset_index()
                parts.append(both.assign(task=task, role=role, rho=rho, p=p))
    columns = ["task", "role", "layer", "ours", "authors", "rho", "p"]
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return Found(found.reindex(columns=columns), facts={"reading_error": READING_ERROR})
