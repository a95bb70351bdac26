"""Sec. 4.5, Fig. 7 and Sec. 5: attention along links between words, from [CLS], and to copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from scipy.stats import rankdata, spearmanr
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.attention.maps import Attention
from attnlib.data.corpora import Corpus, with_trees
from attnlib.measuring.head_tables import head_name, head_rows
from attnlib.measuring.significance import ALPHA, benjamini_hochberg, one_sided
from attnlib.measuring.stream import Progress, measure
from attnlib.metrics.links import (
    control_metric,
    copy_links,
    found_links,
    link_metric,
    linked_pieces,
    per_batch,
    relation_links,
    tag_links,
)
from attnlib.metrics.registry import METRICS, Metric, Partial
from attnlib.metrics.word_kinds import FEATURES, Feature, Marked, markers
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.intervals import mean_ends
from experiments.shared.training.taskplans import tuned_model

SUBJECTS = ("nsubj", "nsubjpass", "csubj")
NEIGHBOURS = ("mass_to_previous", "mass_to_next")
PUNCTUATION = Feature("punctuation", tags=frozenset(("PUNCT",)))
PUNCTUATION_TASKS = ("stsb", "rte", "qnli")
TIE = 1e-4
"""Two means are equal if they differ by less than this share."""
Pairs = Bool[Tensor, "batch query key"]
LINK_FINDINGS = {
    "tokens.subject_diagonal": ("subject", "diagonal"),
    "tokens.pronoun_diagonal": ("pronoun", "diagonal"),
    "tokens.subject_beyond_distance": ("subject", "beyond"),
}
"""What the claims ask of a link: the mean over tasks."""


@experiment(version=1, reads=["spacy-en"], trains=True)
def word_links(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    progress: Progress | None = None,
) -> Found:
    """Verb-subject and noun-pronoun links of the fine-tuned model, and its look at neighbours.

    table  task, layer, head, near, and of each link its mean, control, lead and q (of a lead > 0)
    """
    model = tuned_model(train, encoder=encoder, task=task, recipe=recipe, progress=progress)
    parsed = with_trees(test)
    links = {
        "subject": found_links("subject", parsed.examples, relation_links(*SUBJECTS)),
        "pronoun": found_links("pronoun", parsed.examples, tag_links(("NOUN", "PROPN"), ("PRON",))),
    }
    metrics = [METRICS[key] for key in NEIGHBOURS]
    known = {name: one for name, one in links.items() if one.n_inputs()}
    metrics += [make(one) for one in known.values() for make in (link_metric, control_metric)]
    options: Any = {"max_length": recipe["max_length"], "on_long": "truncate", "progress": progress}
    found = measure(model.encoder, parsed, metrics, **options)
    near = sum(found.grid(key) for key in NEIGHBOURS)
    grids: dict[str, np.ndarray] = {"near": np.asarray(near)}
    for name in known:
        scores, control = (found.values(f"{kind}_{name}") for kind in ("link", "control"))
        lead = scores - control
        grids[name] = np.nanmean(scores, axis=0)
        grids[f"{name}_control"] = np.nanmean(control, axis=0)
        grids[f"{name}_lead"] = np.nanmean(lead, axis=0)
        grids[f"{name}_q"] = benjamini_hochberg(one_sided(lead, 0.0).p)
    table = head_rows(**grids)
    table.insert(0, "task", task)
    counts = {f"with_{name}": one.n_inputs() for name, one in links.items()}
    facts = {"inputs": found.n_examples, "passes": found.n_examples, "task": task, **counts}
    return Found(table, facts=facts)


@experiment(version=1)
def link_overview(*tables: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """Are heads with strong links just heads with diagonal maps? Means over the tasks.

    tables  those of `word_links`, one per task
    table   task, link, diagonal (rank correlation with attention to neighbours), other (with the
            other link), other_given_near (the same with neighbours held fixed), best, beyond
            (percent of heads with a sure lead over pairs as far apart), best_lead, leader
    """
    rows = []
    for table, task in zip(tables, tasks, strict=True):
        known = [name for name in ("subject", "pronoun") if name in table]
        for name in known:
            top, lead = table.loc[table[name].idxmax()], table[f"{name}_lead"]
            led = lead.notna().any()
            row = {
                "task": task,
                "link": name,
                "diagonal": float(spearmanr(table[name], table["near"]).statistic),
                "best": head_name(top),
                "score": float(top[name]),
                "leader": head_name(table.loc[lead.idxmax()]) if led else "",
                "best_lead": float(lead.max()),
                "beyond": 100 * float((table[f"{name}_q"].dropna() < ALPHA).mean()),
                "other": np.nan,
                "other_given_near": np.nan,
            }
            for other in set(known) - {name}:
                row["other"] = float(spearmanr(table[name], table[other]).statistic)
                row["other_given_near"] = partial_rank(table[name], table[other], table["near"])
            rows.append(row)
    found = pd.DataFrame(rows)
    findings = {}
    for name, (link, column) in LINK_FINDINGS.items():
        values = found.loc[found["link"] == link, column]
        if values.notna().any():
            findings[name] = Finding(float(values.mean()))
    return Found(found, findings)


def partial_rank(first: Any, second: Any, fixed: Any) -> float:
    r"""Rank correlation of two lists with a third held fixed.

    .. math:: \frac{r_{12} - r_{13} r_{23}}{\sqrt{(1 - r_{13}^2)(1 - r_{23}^2)}}

    NaN where the third decides one of the others.
    """
    ranks = [rankdata(one) for one in (first, second, fixed)]
    r = np.corrcoef(ranks)
    below = (1 - r[0, 2] ** 2) * (1 - r[1, 2] ** 2)
    return float((r[0, 1] - r[0, 2] * r[1, 2]) / np.sqrt(below)) if below > 1e-12 else float("nan")


@experiment(version=1, reads=["spacy-en"], trains=True)
def cls_attention(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """What [CLS] attends to in the last layer of the fine-tuned model, by kind of word.

    table  task, kind, mean, low, high (largest weight to such a token, mean over heads), n
    """
    model = tuned_model(train, encoder=encoder, task=task, recipe=recipe, progress=progress)
    parsed = with_trees(test)
    places = markers(parsed.examples, (*FEATURES, PUNCTUATION))
    metrics = [_from_cls(kind, marked) for kind, marked in places.items()]
    options: Any = {"max_length": recipe["max_length"], "on_long": "truncate", "progress": progress}
    found = measure(model.encoder, parsed, metrics, **options)
    rows = []
    for kind, metric in zip(places, metrics, strict=True):
        ends = mean_ends(found.values(metric.key)[:, -1].mean(1), seed)
        row = {"task": task, "kind": kind, "mean": ends.mean.item(), "low": ends.low.item()}
        rows.append({**row, "high": ends.high.item(), "n": int(ends.n)})
    table = pd.DataFrame(rows)
    table = table[table["n"] > 0].sort_values("mean", ascending=False, ignore_index=True)
    return Found(table, facts={"inputs": found.n_examples, "passes": found.n_examples})


def _from_cls(kind: str, marked: Marked) -> Metric:
    def kernel(attention: Attention) -> Partial:
        batch = attention.batch
        rows = torch.arange(len(batch), device=batch.device)
        weights = attention.weights[rows, :, batch.cls_place[1]]
        here = marked(batch)
        found = weights.masked_fill(~here[:, None], 0.0).amax(-1)
        return Partial(found, here.any(-1).to(found.dtype))

    what = f"Largest weight from [CLS] to a token of the kind '{kind}'."
    return Metric(f"from_cls_{kind}", what, "kovaleva2019:sec4.5", "weight", (0.0, 1.0), kernel)


@experiment(version=1)
def cls_overview(*tables: pd.DataFrame, tasks: Sequence[str]) -> Found:
    """The kinds of word that [CLS] attends to most, by task.

    tables  those of `cls_attention`;  table  task, first, sep, punctuation, sep_first
    In some models the vectors of [CLS] and [SEP] are one: [SEP] is then first together with [CLS].
    """
    rows = []
    for table, task in zip(tables, tasks, strict=True):
        mean = table.set_index("kind")["mean"]
        two = {name: float(mean.get(name, np.nan)) for name in ("sep", "punctuation")}
        sep_first = two["sep"] >= mean.max() * (1 - TIE)
        rows.append({"task": task, "first": mean.idxmax(), **two, "sep_first": sep_first})
    found = pd.DataFrame(rows)
    findings = {"cls.sep_first": Finding(float(found["sep_first"].mean()))}
    asked = found[found["task"].isin(PUNCTUATION_TASKS)]
    if len(asked) == len(PUNCTUATION_TASKS):
        share = float((asked["punctuation"] > asked["sep"]).mean())
        findings["cls.punctuation_first"] = Finding(share)
    return Found(found, findings)


# --- a word's copy in the other text --------------------------------------------------------------


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
    """Attention from a word to its copy in the other text, and to other words of that text.

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
    options: Any = {"max_length": recipe["max_length"], "on_long": "truncate", "progress": progress}
    found = measure(model.encoder, parsed, metrics, **options)
    copy, other = (found.grid(f"pairs_{name}") for name in ("copy", "other"))
    table = head_rows(copy=copy, other=other, ratio=copy / other)
    table.insert(0, "task", task)
    n = found.n_examples
    facts = {"inputs": n, "passes": n, "with_copies": links.n_inputs(), "task": task}
    return Found(table, facts=facts)


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
    return Metric(f"pairs_{name}", what, "kovaleva2019:sec5", "weight", (0.0, 1.0), kernel)


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
        "repeats.best_ratio": float(needed["ratio"]),
        "repeats.cost_correlation": float(spearmanr(table["copy"], table["cost"]).statistic),
    }
    facts = {"needed": head_name(needed), "cost": needed["cost"]}
    return Found(table, {name: Finding(value) for name, value in findings.items()}, facts)
