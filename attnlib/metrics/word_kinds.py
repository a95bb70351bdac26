"""Attention that kinds of words receive from all tokens: nouns, verbs, negation and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.attention.maps import Attention
from attnlib.metrics.links import per_batch, words_of
from attnlib.metrics.registry import Metric, Partial

NEGATIONS = frozenset(
    (
        *("not", "n't", "no", "never", "none", "nor", "neither"),
        *("nothing", "nobody", "nowhere", "cannot"),
    )
)


@dataclass(frozen=True)
class Feature:
    """A kind of word: by its tag, by its relation to its head, or by the word itself.

    of_root  only words whose head is the root of the sentence
    """

    name: str
    tags: frozenset[str] = frozenset()
    relations: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    of_root: bool = False

    def holds(self, tag: str, relation: str, word: str) -> bool:
        return tag in self.tags or relation in self.relations or word.lower() in self.words


FEATURES = (
    Feature("noun", tags=frozenset(("NOUN", "PROPN"))),
    Feature("verb", tags=frozenset(("VERB",))),
    Feature("pronoun", tags=frozenset(("PRON",))),
    Feature("subject", relations=frozenset(("nsubj", "nsubjpass", "csubj"))),
    Feature("object", relations=frozenset(("dobj", "obj"))),
    Feature("negation", relations=frozenset(("neg",)), words=NEGATIONS),
)
"""The kinds of words of Kovaleva 2019, sec. 4.4; [CLS] and [SEP] are measured as well."""

SPECIAL = {"cls": lambda batch: batch.cls, "sep": lambda batch: batch.sep}
Marked = Callable[[Batch], Bool[Tensor, "batch key"]]


def stripe_metrics(examples: Sequence[Any], features: Sequence[Feature] = FEATURES) -> list[Metric]:
    """A metric for every kind of word of some parsed inputs, and for [CLS] and [SEP]."""
    return [_metric(name, marked) for name, marked in markers(examples, features).items()]


def markers(examples: Sequence[Any], features: Sequence[Feature] = FEATURES) -> dict[str, Marked]:
    """For every kind of word, and for [CLS] and [SEP], where its pieces are in a batch."""
    return {one.name: _marker(one, examples) for one in features} | SPECIAL


def _metric(name: str, marked: Marked) -> Metric:
    def kernel(attention: Attention) -> Partial:
        return stripe(attention.received, marked(attention.batch))

    what = f"Largest mean attention that a token of the kind '{name}' receives."
    return Metric(f"stripe_{name}", what, "kovaleva2019:sec4.4", "weight", (0.0, 1.0), kernel)


def stripe(received: Float[Tensor, "batch head key"], marked: Bool[Tensor, "batch key"]) -> Partial:
    r"""The largest attention that a marked token receives, per example and head.

    .. math:: s = \max_{k \in M} \frac{1}{L} \sum_q a_{qk}

    received  (batch, head, key)   mean attention each key receives from the real queries
    marked    (batch, key)         the tokens of the kind

    An input without such a token has weight 0; in the authors' code it adds a 0 to the mean.
    """
    found = received.masked_fill(~marked[:, None], 0.0).amax(-1)
    return Partial(found, marked.any(-1).to(found.dtype))


def _marker(feature: Feature, examples: Sequence[Any]) -> Marked:
    @cache
    def words(index: int) -> list[bool]:
        one = examples[index]
        told = zip(one.tags, one.relations, words_of(one), strict=True)
        held = [feature.holds(*word) for word in told]
        if not feature.of_root:
            return held
        of_root = [head >= 0 and one.heads[head] < 0 for head in one.heads]
        return [both == (True, True) for both in zip(held, of_root, strict=True)]

    def marked(batch: Batch) -> Tensor:
        rows = []
        for index, row in zip(batch.index, batch.word.tolist(), strict=True):
            holds = words(index)
            rows.append([word >= 0 and holds[word] for word in row])
        return torch.tensor(rows, dtype=torch.bool, device=batch.device)

    return per_batch(marked)
