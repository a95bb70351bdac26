"""Sec. 4.4, 4.5 and 5: attention to kinds of words, along links between words, and to copies.

Fig. 6: kinds of words before and after fine-tuning, and in the authors' code; Fig. 7: what [CLS]
attends to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from attnlib.measuring.bootstrap import statistics
from attnlib.measuring.head_tables import head_name, head_rows
from attnlib.measuring.significance import ALPHA, benjamini_hochberg, one_sided
from attnlib.measuring.stream import Measurement, measure
from attnlib.metrics import links, word_kinds
from attnlib.metrics.registry import METRICS, Metric, Partial
from attnlib.metrics.word_kinds import FEATURES, SPECIAL, Feature, Marked, markers
from attnlib.models import Encoder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.kovaleva2019.tuning import measure_tuned
from experiments.shared.intervals import mean_ends

WORDS = tuple(one.name for one in FEATURES)
KINDS = (*WORDS, *SPECIAL)
NOUN_TASKS = ("mrpc", "rte", "qqp")
NEGATION_TASK = "qnli"
LISTED = (
    *("neither", "nor", "not", "never", "none", "nothing", "nowhere"),
    *("don't", "won't", "didn't", "hadn't", "haven't", "can't", "isn't", "wasn't"),
    *("shouldn't", "couldn't"),
)
"""What the authors' code takes for a negation if its letters occur anywhere in a text, with their
case; *no* is not among them."""
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
SUBJECTS = ("nsubj", "nsubjpass", "csubj")
NEIGHBOURS = ("mass_to_previous", "mass_to_next")
PUNCTUATION = Feature("punctuation", tags=frozenset(("PUNCT",)))
PUNCTUATION_TASKS = ("stsb", "rte", "qnli")
TIE = 1e-4
"""Two means are equal if they differ by less than this share."""
Pairs = Bool[Tensor, "batch query key"]


# --- kinds of words -------------------------------------------------------------------------------


@experiment(version=1, reads=["spacy-en"], trains=True)
def stripe_maps(*corpora: Corpus, encoder: Encoder, seed: int = 0, **plan: Any) -> Found:
    """Attention to every kind of word before and after fine-tuning, on the same inputs.

    plan   task and recipe of the fine-tuned model
    table  task, kind, layer, head, before, after, change, low, high, q (of a gain, over the heads
           of the kind), n: inputs that have such a word
    facts  numbers of the task with their intervals, as [value, low, high]
    """
    train, test = corpora
    parsed = with_trees(test)
    metrics = word_kinds.stripe_metrics(parsed.examples)
    after = measure_tuned(train, parsed, metrics, encoder=encoder, **plan)
    how: Any = {"max_length": plan["recipe"]["max_length"], "on_long": "truncate"}
    before = measure(encoder, parsed, metrics, **how)
    parts = []
    for kind in KINDS:
        old, new = (found.values(f"stripe_{kind}") for found in (before, after))
        change = new - old
        n = int((~np.isnan(change)).any((1, 2)).sum())
        if not n:
            continue
        ends = mean_ends(change, seed)
        grids = {"before": np.nanmean(old, axis=0), "after": np.nanmean(new, axis=0)}
        grids |= {"change": ends.mean, "low": ends.low, "high": ends.high}
        grids["q"] = benjamini_hochberg(one_sided(change, 0.0).p)
        parts.append(head_rows(**grids).assign(task=plan["task"], kind=kind, n=n))
    table = pd.concat(parts, ignore_index=True)
    facts = {
        "inputs": after.n_examples,
        "passes": 2 * after.n_examples,
        "task": plan["task"],
        "pair": test.examples[0].pair is not None,  # type: ignore[attr-defined]
        "with_kind": table.groupby("kind", sort=False)["n"].first().to_dict(),
    }
    words = sorted(set(table["kind"]) & set(WORDS))
    return Found(table, facts=facts | _stripe_numbers(after, before, words, seed))


def _stripe_numbers(
    after: Measurement, before: Measurement, words: Sequence[str], seed: int
) -> dict[str, list[float]]:
    rows = {f"after {kind}": after.rows(f"stripe_{kind}") for kind in (*words, *SPECIAL)}
    rows |= {f"before {kind}": before.rows(f"stripe_{kind}") for kind in words}

    def special(grids: Mapping[str, np.ndarray]) -> float:
        return max(float(grids[f"after {kind}"].max()) for kind in SPECIAL)

    def over_words(grids: Mapping[str, np.ndarray]) -> float:
        return special(grids) / _largest(grids[f"after {kind}"] for kind in words)

    def gain(grids: Mapping[str, np.ndarray]) -> float:
        gains = (grids[f"after {kind}"] - grids[f"before {kind}"] for kind in words)
        return _largest(gains) / special(grids)

    wanted: dict[str, Callable[..., float]] = {
        "gap": lambda grids: _centre(grids["after sep"]) - _centre(grids["after cls"]),
        "sep": lambda grids: float(grids["after sep"].mean()),
    }
    if words:
        wanted |= {"over_words": over_words, "gain": gain}
    found = statistics(rows, wanted, replicates=500, seed=seed)
    return {name: [float(end) for end in ends] for name, ends in found.items()}


def _centre(grid: np.ndarray) -> float:
    """The mean layer, counted from 1, weighted by the layers' attention."""
    return float(np.average(np.arange(1, len(grid) + 1), weights=grid.mean(1)))


def _largest(grids: Iterable[np.ndarray]) -> float:
    """The largest value of any head; kinds that no drawn input has are left out."""
    return max(float(grid.max()) for grid in grids if not np.isnan(grid).any())


@experiment(version=1)
def stripe_overview(*tables: pd.DataFrame, facts: Mapping[str, Mapping[str, Any]]) -> Found:
    """The claims of sec. 4.4 over all tasks.

    tables  those of `stripe_maps`, one per task;  facts  task -> the facts of the same
    table   task, kind, n, strongest, after, gainers (heads with a sure gain), best_gain
    """
    rows = []
    for table, task in zip(tables, facts, strict=True):
        for kind, part in table.groupby("kind", sort=False):
            top, gained = part.loc[part["after"].idxmax()], part.loc[part["change"].idxmax()]
            row = {"task": task, "kind": kind, "n": int(part["n"].iloc[0])}
            row |= {"strongest": head_name(top), "after": top["after"]}
            row["gainers"] = int(((part["q"] < ALPHA) & (part["change"] > 0)).sum())
            rows.append({**row, "gaining": head_name(gained), "gain": gained["change"]})
    table = pd.DataFrame(rows)
    return Found(table, _stripe_claims(table, facts))


def _stripe_claims(
    table: pd.DataFrame, facts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Finding]:
    def ends(name: str) -> list[Finding]:
        """A number of all tasks, the least first."""
        known = [Finding(*one[name]) for one in facts.values() if name in one]
        return sorted(known, key=lambda one: one.value)

    found = {"stripes.centre_gap": ends("gap")[0]}
    if ends("over_words"):
        found["stripes.special_over_words"] = ends("over_words")[0]
        found["stripes.gain_over_special"] = ends("gain")[-1]
    sep = pd.Series({task: one["sep"][0] for task, one in facts.items()})
    pair = pd.Series({task: one["pair"] for task, one in facts.items()})
    if pair.nunique() == 2:
        found["stripes.sep_single_lead"] = Finding(float(sep[~pair].mean() - sep[pair].mean()))
    gainers = table.pivot(index="task", columns="kind", values="gainers")
    if set(NOUN_TASKS) <= set(facts):
        both = gainers.reindex(NOUN_TASKS, columns=("noun", "object")) > 0
        found["stripes.noun_tasks"] = Finding(float(both.all(axis=1).sum()))
    if (NEGATION_TASK, "negation") in gainers.stack().dropna():
        found["stripes.negation_heads"] = Finding(float(gainers.at[NEGATION_TASK, "negation"]))
    return found


@experiment(version=1, reads=["spacy-en"])
def negation_by_letters(*corpora: Corpus, tasks: Sequence[str]) -> Found:
    """Inputs with a negation, found as a word, and kept by the authors' code for its letters.

    An input that is kept for letters inside other words has no column of that name: in the
    authors' mean it counts as 0.

    table  task, inputs, by_word (with a negation word), by_letters (kept by the code), wrong (kept
           for letters only), missed (with a word, not kept), such_as: words taken for a negation
    """
    negation = next(one for one in FEATURES if one.name == "negation")
    rows = []
    for corpus, task in zip(corpora, tasks, strict=True):
        counts = dict.fromkeys(("by_word", "by_letters", "wrong", "missed"), 0)
        taken: Counter[str] = Counter()
        for example in with_trees(corpus).examples:
            tree: Any = example
            told = zip(tree.tags, tree.relations, links.words_of(example), strict=True)
            by_word = any(negation.holds(tag, label, word) for tag, label, word in told)
            text = " ".join(one if isinstance(one, str) else " ".join(one) for one in tree.parts)
            hits, own = [word for word in LISTED if word in text], _WORD.findall(text.lower())
            counts["by_word"] += by_word
            counts["by_letters"] += bool(hits)
            counts["wrong"] += bool(hits) and not set(hits) & set(own)
            counts["missed"] += by_word and not hits
            taken.update(w for w in own if w not in LISTED and any(hit in w for hit in hits))
        common = ", ".join(word for word, _ in taken.most_common(4))
        rows.append({"task": task, "inputs": len(corpus), **counts, "such_as": common})
    return Found(pd.DataFrame(rows), facts={"inputs": sum(map(len, corpora))})


# --- links between words --------------------------------------------------------------------------


@experiment(version=1, reads=["spacy-en"], trains=True)
def word_links(train: Corpus, test: Corpus, *, encoder: Encoder, **plan: Any) -> Found:
    """Verb-subject and noun-pronoun links of the fine-tuned model, and its look at neighbours.

    plan   task and recipe of the fine-tuned model
    table  task, layer, head, near, and of each link its mean, control, lead and q (of a lead > 0)
    """
    parsed = with_trees(test)
    finders = {
        "subject": links.relation_links(*SUBJECTS),
        "pronoun": links.tag_links(("NOUN", "PROPN"), ("PRON",)),
    }
    every = {name: links.found_links(name, parsed.examples, how) for name, how in finders.items()}
    known = {name: one for name, one in every.items() if one.n_inputs()}
    metrics = [METRICS[key] for key in NEIGHBOURS]
    for one in known.values():
        metrics += [links.link_metric(one), links.control_metric(one)]
    found = measure_tuned(train, parsed, metrics, encoder=encoder, **plan)
    grids: dict[str, Any] = {"near": sum(found.grid(key) for key in NEIGHBOURS)}
    for name in known:
        scores, control = (found.values(f"{kind}_{name}") for kind in ("link", "control"))
        lead = scores - control
        grids[name] = np.nanmean(scores, axis=0)
        grids[f"{name}_control"] = np.nanmean(control, axis=0)
        grids[f"{name}_lead"] = np.nanmean(lead, axis=0)
        grids[f"{name}_q"] = benjamini_hochberg(one_sided(lead, 0.0).p)
    counts = {f"with_{name}": one.n_inputs() for name, one in every.items()}
    return _of_task(plan["task"], grids, found, counts)


def _of_task(
    task: str, grids: Mapping[str, Any], found: Measurement, counts: Mapping[str, int]
) -> Found:
    """A table with one row per head, and how many inputs it rests on."""
    table = head_rows(**grids)
    table.insert(0, "task", task)
    n = found.n_examples
    return Found(table, facts={"inputs": n, "passes": n, "task": task, **counts})


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
            row = {
                "task": task,
                "link": name,
                "diagonal": float(spearmanr(table[name], table["near"]).statistic),
                "best": head_name(top),
                "score": float(top[name]),
                "leader": head_name(table.loc[lead.idxmax()]) if lead.notna().any() else "",
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
    means = found.groupby("link")[["diagonal", "beyond"]].mean().stack().dropna()
    asked = {
        "tokens.subject_diagonal": ("subject", "diagonal"),
        "tokens.pronoun_diagonal": ("pronoun", "diagonal"),
        "tokens.subject_beyond_distance": ("subject", "beyond"),
    }
    findings = {name: Finding(float(means[at])) for name, at in asked.items() if at in means}
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


# --- from [CLS] -----------------------------------------------------------------------------------


@experiment(version=1, reads=["spacy-en"], trains=True)
def cls_attention(*corpora: Corpus, encoder: Encoder, seed: int = 0, **plan: Any) -> Found:
    """What [CLS] attends to in the last layer of the fine-tuned model, by kind of word.

    plan   task and recipe of the fine-tuned model
    table  task, kind, mean, low, high (largest weight to such a token, mean over heads), n
    """
    train, test = corpora
    parsed = with_trees(test)
    places = markers(parsed.examples, (*FEATURES, PUNCTUATION))
    metrics = [_from_cls(kind, marked) for kind, marked in places.items()]
    found = measure_tuned(train, parsed, metrics, encoder=encoder, **plan)
    rows = []
    for kind, metric in zip(places, metrics, strict=True):
        ends = mean_ends(found.values(metric.key)[:, -1].mean(1), seed)
        told = {name: one.item() for name, one in vars(ends).items()}  # mean, low, high, n
        rows.append({"task": plan["task"], "kind": kind, **told})
    table = pd.DataFrame(rows)
    table = table[table["n"] > 0].sort_values("mean", ascending=False, ignore_index=True)
    return Found(table, facts={"inputs": found.n_examples, "passes": found.n_examples})


def _from_cls(kind: str, marked: Marked) -> Metric:
    def kernel(attention: Attention) -> Partial:
        batch = attention.batch
        rows = torch.arange(len(batch), device=batch.device)
        return word_kinds.stripe(attention.weights[rows, :, batch.cls_place[1]], marked(batch))

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
def copied_words(train: Corpus, test: Corpus, *, encoder: Encoder, **plan: Any) -> Found:
    """Attention from a word to its copy in the other text, and to other words of that text.

    plan   task and recipe of the fine-tuned model
    table  task, layer, head, copy, other (mean weight per pair of pieces), ratio
    """
    parsed = with_trees(test)
    found_copies = links.found_links("copy", parsed.examples, links.copy_links)
    copies = links.per_batch(lambda batch: links.linked_pieces(found_copies, batch))
    others = links.per_batch(lambda batch: _across(batch, copies(batch)))
    metrics = [_pair_mean("copy", copies), _pair_mean("other", others)]
    found = measure_tuned(train, parsed, metrics, encoder=encoder, **plan)
    copy, other = (found.grid(f"pairs_{name}") for name in ("copy", "other"))
    grids = {"copy": copy, "other": other, "ratio": copy / other}
    return _of_task(plan["task"], grids, found, {"with_copies": found_copies.n_inputs()})


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
    cost = costs.assign(cost=-costs["change"])[["layer", "head", "cost"]]
    table = copies.merge(cost, on=["layer", "head"])  # whole layers have no head
    needed = table.loc[table["cost"].idxmax()]
    findings = {
        "repeats.best_ratio": Finding(float(needed["ratio"])),
        "repeats.cost_correlation": Finding(
            float(spearmanr(table["copy"], table["cost"]).statistic)
        ),
    }
    return Found(table, findings, {"needed": head_name(needed), "cost": needed["cost"]})
