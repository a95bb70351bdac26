"""Sec. 4.4, 4.5 and 5: attention to kinds of words, along links between words, and to copies.

Fig. 6: kinds of words before and after fine-tuning, and in the authors' code; Fig. 7: what [CLS]
attends to.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.attention.maps import Attention
from attnlib.data.corpora import Corpus, with_trees
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.significance import benjamini_hochberg, one_sided
from attnlib.measuring.stream import measure
from attnlib.metrics import links, word_kinds
from attnlib.metrics.registry import METRICS, Metric, Partial
from attnlib.metrics.word_kinds import FEATURES, SPECIAL, Feature, Marked, markers
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.kovaleva2019.tuning import measure_tuned
from experiments.shared.intervals import (
    UNDEFINED,
    drawn,
    drawn_counts,
    elsewhere,
    halved,
    mean_ends,
    means,
    seed_of,
    settled,
)

MAIN_OBJECT = Feature("main_object", relations=frozenset(("dobj", "obj")), of_root=True)
"""The object of the main predicate: a direct object of the root of a sentence."""
WORDS = tuple(one.name for one in FEATURES)
GAINING = ("noun", "main_object", "negation")
"""Kinds of which the paper says that some heads attend more to them after fine-tuning."""
LISTED = (
    *("neither", "nor", "not", "never", "none", "nothing", "nowhere"),
    *("don't", "won't", "didn't", "hadn't", "haven't", "can't", "isn't", "wasn't"),
    *("shouldn't", "couldn't"),
)
"""What the authors' code takes for a negation if its letters occur anywhere in a text, with their
case; *no* is not among them."""
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_RUN = re.compile(r"\w+")
SUBJECTS = ("nsubj", "nsubjpass", "csubj")
NEIGHBOURS = ("mass_to_previous", "mass_to_next")
CLOSE, CANDIDATES = 2, 0.1
"""Words that are close to each other; the share of heads that are candidates for a link."""
PUNCTUATION = Feature("punctuation", tags=frozenset(("PUNCT",)))
Pairs = Bool[Tensor, "batch query key"]


# --- kinds of words -------------------------------------------------------------------------------


@experiment(version=2, reads=["spacy-en"], trains=True)
def stripe_maps(*corpora: Corpus, encoder: Encoder, seed: int = 0, **plan: Any) -> Found:
    """Attention to every kind of word before and after fine-tuning, on the same inputs.

    plan   task and recipe of the fine-tuned model
    table  task, kind, layer, head, before, after, change, low, high, q (of a gain, over the heads
           of the kind), n: inputs that have such a word
    facts  draws: numbers of the task, on all inputs and then on inputs drawn again (see
           `stripe_numbers`)
    """
    train, test = corpora
    parsed = with_trees(test)
    metrics = word_kinds.stripe_metrics(parsed.examples, (*FEATURES, MAIN_OBJECT))
    metrics.append(_both_seps())
    after = measure_tuned(train, parsed, metrics, encoder=encoder, **plan)
    how: Any = {"max_length": plan["recipe"]["max_length"], "on_long": "truncate"}
    before = measure(encoder, parsed, metrics, **how)
    values = {one.key[7:]: (before.values(one.key), after.values(one.key)) for one in metrics}
    parts = []
    for kind in (*WORDS, MAIN_OBJECT.name, *SPECIAL):
        old, new = values[kind]
        change = new - old
        n = int((~np.isnan(change)).any((1, 2)).sum())
        if not n:
            continue
        ends = mean_ends(change, seed)
        grids = {"before": np.nanmean(old, axis=0), "after": np.nanmean(new, axis=0)}
        grids |= {"change": ends.mean, "low": ends.low, "high": ends.high}
        grids["q"] = benjamini_hochberg(one_sided(change, 0.0).p)
        parts.append(head_rows(**grids).assign(task=plan["task"], kind=kind, n=n))
    n = after.n_examples
    facts = {"inputs": n, "passes": 2 * n, "task": plan["task"]}
    draws = stripe_numbers(values, seed_of(plan["task"], seed))
    return Found(pd.concat(parts, ignore_index=True), facts=facts | {"draws": rounded(draws)})


def _both_seps() -> Metric:
    def kernel(attention: Attention) -> Partial:
        seps = attention.batch.sep[:, None].to(attention.received.dtype)
        found = (attention.received * seps).sum(-1)
        return Partial(found, attention.batch.sep.any(-1).to(found.dtype))

    what = "Mean attention that all [SEP]s receive together."
    return Metric("stripe_seps", what, "kovaleva2019:sec4.4", "weight", (0.0, 1.0), kernel)


def stripe_numbers(
    values: Mapping[str, tuple[np.ndarray, np.ndarray]], seed: int
) -> dict[str, np.ndarray]:
    """Numbers of one task on all inputs, then on inputs drawn again (sec. 4.4).

    values  kind -> before and after fine-tuning, (input, layer, head); NaN without such a word

    over_words         strongest head for [CLS] or [SEP] over the strongest for any kind of word
    sep, seps          mean over heads of attention to [SEP]: the stronger one, and all together
    cls_early          [CLS] in the first half of the layers (rounded down) less the second half
    sep_late           [SEP] in the second half less the first
    before_over_after  attention to [CLS] and [SEP] before fine-tuning over that after it
    gain_<kind>        gain of the head that gains most, chosen on the other half of the inputs
    weight_<kind>      attention of that head to the kind after fine-tuning, over the strongest
                       head's attention to [CLS] or [SEP]; both chosen on the other half
    """
    counts = drawn_counts(len(next(iter(values.values()))[0]), seed)
    halves = halved(counts, seed)
    before, after = ({kind: means(counts, own[i]) for kind, own in values.items()} for i in (0, 1))
    special = np.stack([after[kind].max((1, 2)) for kind in SPECIAL]).max(0)
    words = np.stack([after[kind].max((1, 2)) for kind in WORDS])
    cut = after["sep"].shape[1] // 2

    def early(kind: str) -> np.ndarray:
        lead = after[kind][:, :cut].mean((1, 2)) - after[kind][:, cut:].mean((1, 2))
        return np.asarray(lead)

    found = {
        "over_words": special / np.fmax.reduce(words),  # kinds that no drawn input has: left out
        "sep": after["sep"].mean((1, 2)),
        "seps": after["seps"].mean((1, 2)),
        "cls_early": early("cls"),
        "sep_late": -early("sep"),
        "before_over_after": sum(before[kind].sum((1, 2)) for kind in SPECIAL)
        / sum(after[kind].sum((1, 2)) for kind in SPECIAL),
    }

    def on_halves(kind: str, at: int) -> np.ndarray:
        own = means(halves, values[kind][at])
        return own.reshape(*own.shape[:2], -1)  # half draw head

    both = np.concatenate([on_halves(kind, 1) for kind in SPECIAL], axis=-1)
    strongest = elsewhere(both)[..., 0]
    for kind in GAINING:
        new = on_halves(kind, 1)
        gain = new - on_halves(kind, 0)
        found[f"gain_{kind}"] = settled(elsewhere(gain)[..., 0])
        found[f"weight_{kind}"] = settled(elsewhere(gain, new)[..., 0] / strongest)
    return found


def rounded(draws: Mapping[str, np.ndarray]) -> dict[str, list[float | None]]:
    """Draws as facts of a result: six digits, and None for what is undefined."""
    return {
        name: [None if math.isnan(one) else float(f"{one:.6g}") for one in own.tolist()]
        for name, own in draws.items()
    }


def drawn_numbers(found: Mapping[str, Found]) -> pd.DataFrame:
    """The draws of some tasks' facts: a row per draw, columns (number, task)."""
    tables = {
        task: pd.DataFrame(dict(one.facts["draws"]), dtype=float) for task, one in found.items()
    }
    return pd.concat(tables, axis=1).swaplevel(axis=1)


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


@experiment(version=2, reads=["spacy-en"], trains=True)
def word_links(
    train: Corpus, test: Corpus, *, encoder: Encoder, seed: int = 0, **plan: Any
) -> Found:
    """Verb-subject and noun-pronoun links of the fine-tuned model, and its look at neighbours.

    plan   task and recipe of the fine-tuned model
    table  task, layer, head, near, and of each link its mean, control, lead and q (of a lead > 0)
    facts  draws: numbers of the task, on all inputs and then on inputs drawn again: of each link
           those of `candidates`, and `close`, the share of verb-subject links of two words or less
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
    near = np.sum([found.values(key) for key in NEIGHBOURS], axis=0)
    own_seed = seed_of(plan["task"], seed)
    counts = drawn_counts(len(near), own_seed)
    grids: dict[str, Any] = {"near": np.nanmean(near, axis=0)}
    far = [[abs(a - b) for a, b in every["subject"].pairs[at]] for at in found.shard.index]
    n_close = np.array([sum(one <= CLOSE for one in own) for own in far])
    n_links = np.array([len(own) for own in far])
    with np.errstate(invalid="ignore"):
        draws = {"close": (counts @ n_close) / (counts @ n_links)}
    for name in every:
        if name not in known:
            draws |= {f"{what}_{name}": UNDEFINED for what in ("diagonal", "lead_share")}
            continue
        scores, control = (found.values(f"{kind}_{name}") for kind in ("link", "control"))
        lead = scores - control
        grids[name] = np.nanmean(scores, axis=0)
        grids[f"{name}_control"] = np.nanmean(control, axis=0)
        grids[f"{name}_lead"] = np.nanmean(lead, axis=0)
        grids[f"{name}_q"] = benjamini_hochberg(one_sided(lead, 0.0).p)
        own = candidates(scores, lead, near, counts, own_seed)
        draws |= {f"{what}_{name}": values for what, values in own.items()}
    table = head_rows(**grids)
    table.insert(0, "task", plan["task"])
    n = found.n_examples
    facts = {"inputs": n, "passes": n, "task": plan["task"], "draws": rounded(draws)}
    return Found(table, facts=facts)


def candidates(
    scores: np.ndarray, lead: np.ndarray, near: np.ndarray, counts: np.ndarray, seed: int
) -> dict[str, np.ndarray]:
    """Of the tenth of all heads with the highest score for a link (sec. 4.5), in every draw:

    diagonal    the share that is in the tenth with most attention to neighbours, too
    lead_share  the lead over pairs as far apart, over the score, on the inputs that have such
                pairs; the heads are chosen on the other half of the inputs

    scores, lead, near  (input, layer, head); NaN where there is no link, or nothing to compare with
    """
    flat = [values.reshape(len(values), -1) for values in (scores, lead, near)]
    top = max(round(CANDIDATES * flat[0].shape[1]), 1)
    best, neighbours = ((-means(counts, flat[at])).argsort(1)[:, :top] for at in (0, 2))
    shared = (best[:, :, None] == neighbours[:, None]).any(-1).mean(1)
    halves = halved(counts, seed)
    chosen, ahead = means(halves, flat[0]), means(halves, flat[1])
    whole = means(halves, np.where(np.isnan(flat[1]), np.nan, flat[0]))
    over, under = (elsewhere(chosen, one, top=top).sum(-1) for one in (ahead, whole))
    return {"diagonal": shared, "lead_share": settled(over / under)}


# --- from [CLS] -----------------------------------------------------------------------------------


@experiment(version=2, reads=["spacy-en"], trains=True)
def cls_attention(*corpora: Corpus, encoder: Encoder, seed: int = 0, **plan: Any) -> Found:
    """What [CLS] attends to in the last layer of the fine-tuned model, by kind of word.

    plan   task and recipe of the fine-tuned model
    table  task, kind, mean, low, high (largest weight to such a token, mean over heads), n
    facts  draws: the mean of every kind on all inputs, then on inputs drawn again
    """
    train, test = corpora
    parsed = with_trees(test)
    places = markers(parsed.examples, (*FEATURES, PUNCTUATION))
    metrics = [_from_cls(kind, marked) for kind, marked in places.items()]
    found = measure_tuned(train, parsed, metrics, encoder=encoder, **plan)
    counts = drawn_counts(found.n_examples, seed_of(plan["task"], seed))
    rows, draws = [], {}
    for kind, metric in zip(places, metrics, strict=True):
        own = found.values(metric.key)[:, -1].mean(1)
        if (n := int((~np.isnan(own)).sum())) > 0:
            draws[kind] = means(counts, own)
            ends = drawn(draws[kind])
            told = {"mean": ends.value, "low": ends.low, "high": ends.high, "n": n}
            rows.append({"task": plan["task"], "kind": kind, **told})
    table = pd.DataFrame(rows).sort_values("mean", ascending=False, ignore_index=True)
    facts = {"inputs": found.n_examples, "passes": found.n_examples, "draws": rounded(draws)}
    return Found(table, facts=facts)


def _from_cls(kind: str, marked: Marked) -> Metric:
    def kernel(attention: Attention) -> Partial:
        batch = attention.batch
        rows = torch.arange(len(batch), device=batch.device)
        return word_kinds.stripe(attention.weights[rows, :, batch.cls_place[1]], marked(batch))

    what = f"Largest weight from [CLS] to a token of the kind '{kind}'."
    return Metric(f"from_cls_{kind}", what, "kovaleva2019:sec4.5", "weight", (0.0, 1.0), kernel)


# --- a word's copy in the other text --------------------------------------------------------------


@experiment(version=2, reads=["spacy-en"], trains=True)
def copied_words(train: Corpus, test: Corpus, *, encoder: Encoder, **plan: Any) -> Found:
    """Attention from a word to its copy in the other text, and to other words of that text.

    plan   task and recipe of the fine-tuned model
    table  input, layer, head, copy, other (mean weight per pair of pieces); inputs with a copy only
    """
    parsed = with_trees(test)
    found_copies = links.found_links("copy", parsed.examples, links.copy_links)
    copies = links.per_batch(lambda batch: links.linked_pieces(found_copies, batch))
    others = links.per_batch(lambda batch: _across(batch, copies(batch)))
    metrics = [_pair_mean("copy", copies), _pair_mean("other", others)]
    found = measure_tuned(train, parsed, metrics, encoder=encoder, **plan)
    copy, other = (found.values(one.key).astype(np.float32) for one in metrics)
    place, layer, head = np.indices(copy.shape).reshape(3, -1)
    table = pd.DataFrame({"input": np.array(found.shard.index)[place], "layer": layer + 1})
    table = table.assign(head=head + 1, copy=copy.ravel(), other=other.ravel())
    n = found.n_examples
    facts = {"inputs": n, "passes": n, "with_copies": found_copies.n_inputs()}
    return Found(table.dropna(subset="copy").reset_index(drop=True), facts=facts)


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


# --- words in common, without a model -------------------------------------------------------------


@experiment(version=1)
def word_overlaps(train: Corpus, test: Corpus) -> Found:
    """The words that two texts have in common, in lower case: comparing them word by word.

    table  part ("train" or "test"), label, shared: words in common over all different words of
           both; held: the share of the second text's different words that occur in the first
    """
    rows = []
    for part, corpus in (("train", train), ("test", test)):
        for example in corpus.examples:
            first, second = (set(_RUN.findall(str(text).lower())) for text in example.parts)  # type: ignore[attr-defined]
            both = len(first & second)
            row = (part, float(example.label), both / max(len(first | second), 1))  # type: ignore[attr-defined]
            rows.append((*row, both / max(len(second), 1)))
    table = pd.DataFrame(rows, columns=["part", "label", "shared", "held"])
    return Found(table, facts={"inputs": len(test)})
