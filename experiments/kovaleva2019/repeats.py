"""Sec. 5: heads that find a word's copy in the other text, and whether a task needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool
from scipy.stats import spearmanr
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.attention.maps import Attention
from attnlib.data.corpora import Corpus, with_trees
from attnlib.measuring.head_tables import head_name
from attnlib.measuring.stream import Progress
from attnlib.metrics.links import copy_links, found_links, linked_pieces, per_batch
from attnlib.metrics.registry import Metric, Partial
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.kovaleva2019.grids import head_rows, measured
from experiments.shared.taskplans import tuned_model

Pairs = Bool[Tensor, "batch query key"]


@experiment(version=1, reads=["spacy-en"], trains=True)
def copied_words(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    progress: Progress | None = None,
) -> Found:
    """Attention from a word to its copy in the other text, beside other words of that text.

    table  task, layer, head, copy, other (mean weight per pair of pieces), ratio
    """
    model = tuned_model(train, encoder=encoder, task=task, recipe=recipe, progress=progress)
    parsed = with_trees(test)
    links = found_links("copy", parsed.examples, copy_links)
    copies = per_batch(lambda batch: linked_pieces(links, batch))
    metrics = [
        _pair_mean("copy", copies),
        _pair_mean("other", per_batch(lambda batch: _across(batch, copies(batch)))),
    ]
    found = measured(model.encoder, parsed, metrics, recipe, progress)
    copy, other = (found.grid(f"pairs_{name}") for name in ("copy", "other"))
    table = head_rows(copy=copy, other=other, ratio=copy / other)
    table.insert(0, "task", task)
    return Found(
        table,
        facts={
            "inputs": found.n_examples,
            "passes": found.n_examples,
            "with_copies": links.n_inputs(),
            "task": task,
        },
    )


def _across(batch: Batch, copies: Tensor) -> Tensor:
    """Pairs of words in different texts that are no copies; only of words that have a copy."""
    words = batch.word >= 0
    apart = batch.segment[:, :, None] != batch.segment[:, None, :]
    return apart & words[:, :, None] & words[:, None, :] & ~copies & copies.any(-1)[:, :, None]


def _pair_mean(name: str, linked: Callable[[Batch], Pairs]) -> Metric:
    def kernel(attention: Attention) -> Partial:
        pairs = linked(attention.batch)
        total = torch.einsum("bhqk,bqk->bh", attention.weights, pairs.to(attention.weights.dtype))
        n = pairs.flatten(1).sum(-1).to(total.dtype)
        return Partial(total / n.clamp_min(1)[:, None], (n > 0).to(total.dtype))

    what = f"Mean weight over pairs of pieces of the kind '{name}'."
    return Metric(f"pairs_{name}", what, "kovaleva2019:sec5", "weight", (0, 1), kernel)


@experiment(version=1)
def repeats_overview(copies: pd.DataFrame, costs: pd.DataFrame) -> Found:
    """Does a task need the heads that find a word's copy in the other text?

    copies  the table of `copied_words`;  costs  that of `disabling_effects` for the same task
    table   layer, head, copy, other, ratio, cost
    """
    heads = costs[costs["head"] > 0]
    cost = pd.DataFrame({"layer": heads["layer"], "head": heads["head"], "cost": -heads["change"]})
    table = copies.merge(cost, on=["layer", "head"])
    needed = table.loc[table["cost"].idxmax()]
    findings = {
        "repeats.best_ratio": Finding(float(needed["ratio"])),
        "repeats.cost_correlation": Finding(
            float(spearmanr(table["copy"], table["cost"]).statistic)
        ),
    }
    facts = {"needed": head_name(needed), "cost": needed["cost"]}
    return Found(table, findings, facts)
