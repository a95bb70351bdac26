"""Behind `attnlib ablate`: heads by name, pattern or type, changed, beside random ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention import interventions
from attnlib.attention.interventions import (
    Head,
    Intervention,
    Variant,
    heads_named,
    heads_of_types,
    single_heads,
)
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.stream import Progress, stream
from attnlib.metrics.distance import distance_metrics, feature_matrix
from attnlib.models import Encoder
from experiments.guan2020.features import N_TYPES
from experiments.shared.ablations import (
    Interval,
    ablated,
    harm_p_value,
    matched_draws,
    paired_loss,
    single_ablations,
)
from experiments.shared.answers import summary
from experiments.shared.headtypes import TYPES, fitted, named_types
from experiments.shared.spanmodel import SpanReader

NEAR, SPECIAL = ("window_01", "self"), ("cls", "sep", "comma", "period")


def check_questions(corpus: Corpus) -> None:
    """Refuse a corpus that asks nothing."""
    if not all(isinstance(example, Question) for example in corpus.examples):
        raise CorpusError(
            f"'{corpus.name}' is no corpus of questions; expected one such as squad:dev, "
            "wiki-questions:dev or reader-qa."
        )


def check_heads(given: Sequence[str], each: bool, encoder: Encoder) -> None:
    """Refuse, before any work, heads that the model does not have, or none, or too many ways."""
    if each and given:
        raise BadValue("--heads and --each were both given; expected one of them.")
    if not each and not given:
        raise BadValue("no head was named; use --heads, with a name such as 5-4, or --each.")
    named = [heads for one in given if one not in TYPES for heads in named_heads(one, encoder)]
    interventions.check_heads(encoder, named)


def named_heads(pattern: str, encoder: Encoder) -> frozenset[Head]:
    """Heads by name (5-4), by layer (5-*), or by number (*-4)."""
    match = re.fullmatch(r"([1-9]\d*|\*)-([1-9]\d*|\*)", pattern)
    if match is None:
        raise BadValue(
            f"'{pattern}' names no head; expected a name such as 5-4, a pattern such as 5-* or "
            f"*-4, or a type: {', '.join(TYPES)}."
        )
    if "*" not in pattern:
        return heads_named([pattern])
    layer, head = (None if part == "*" else int(part) - 1 for part in match.groups())
    fits = [(a, b) for a, b in single_heads(encoder) if layer in (None, a) and head in (None, b)]
    if not fits:
        raise BadValue(
            f"'{pattern}' names no head of '{encoder.name}'; it has {encoder.n_layers} layers of "
            f"{encoder.n_heads} heads, counted from 1."
        )
    return frozenset(fits)


def chosen_heads(
    given: Sequence[str], encoder: Encoder, corpus: Corpus, max_length: int
) -> frozenset[Head]:
    """Heads by name or pattern, by type (diagonal), or all of these.

    Types are those of the encoder on the corpus: four clusters of distance features.
    """
    check_heads(given, False, encoder)
    kinds = [one for one in given if one in TYPES]
    found = frozenset[Head]().union(*(named_heads(o, encoder) for o in given if o not in TYPES))
    if kinds:
        found |= heads_of_types(types_on(encoder, corpus, max_length), kinds)
    return found


def types_on(encoder: Encoder, corpus: Corpus, max_length: int, seed: int = 0) -> pd.DataFrame:
    """The type of every head of a model on a corpus: layer, head (both from 1), type."""
    found = stream(encoder, corpus, distance_metrics(), max_length=max_length, on_long="truncate")
    names, mean = feature_matrix(found.not_empty())
    special, near = ([names.index(one) for one in part] for part in (SPECIAL, NEAR))
    clustering = fitted(mean, N_TYPES, seed=seed, special=special)
    places = np.array(single_heads(encoder)) + 1
    types = named_types(mean, clustering, special, near)
    return pd.DataFrame({"layer": places[:, 0], "head": places[:, 1], "type": types})


def beside_random(
    heads: frozenset[Head], encoder: Encoder, *, draws: int, seed: int, **how: Any
) -> dict[str, Variant]:
    """The heads changed, then as many random heads of the same layers, so many times."""
    sets = matched_draws(heads, encoder.n_heads, draws=draws, seed=seed) if draws else []
    random = {f"random {i}": (Intervention(one, **how),) for i, one in enumerate(sets)}
    return {"changed": (Intervention(heads, **how),), **random}


def ablation(
    reader: SpanReader,
    corpus: Corpus,
    heads: frozenset[Head],
    *,
    draws: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    **how: Any,
) -> pd.DataFrame:
    """The reader as it is, with heads changed, and with random heads of the same layers changed.

    how      action and the open points of `Intervention`
    returns  one row each: what, n_heads, em and f1 with intervals over articles, lost with low
             and high (points of F1 below the reader as it is, articles drawn again), p (of the
             random sets, the share that is as harmful), n_questions
    """
    questions = corpus.examples
    groups = [question.article for question in questions]
    beside = beside_random(heads, reader.encoder, draws=draws, seed=seed, **how)
    variants: dict[str, Variant] = {"as it is": (), **beside}
    found = ablated(reader, questions, variants, progress=progress)
    rows = []
    for what, places in (("as it is", [0]), ("changed", [1]), ("random", range(2, len(variants)))):
        if not len(places):
            continue
        em, f1 = found.em[list(places)].mean(0), found.f1[list(places)].mean(0)
        lost = paired_loss(f1, found.f1[0], groups, seed=seed)
        row = {"what": what, "n_heads": 0 if what == "as it is" else len(heads)}
        row |= {**summary(em, f1, groups, seed), **_points(lost)}
        rows.append({**row, "p": np.nan})
    if draws:
        rows[1]["p"] = harm_p_value(float(found.f1[1].mean()), found.f1[2:].mean(1))
    return pd.DataFrame(rows)


def _points(lost: Interval) -> dict[str, float]:
    """A loss of F1 in points, with the ends of its interval."""
    return {"lost": 100 * lost.value, "low": 100 * lost.low, "high": 100 * lost.high}


def each_head(
    reader: SpanReader,
    corpus: Corpus,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    **how: Any,
) -> pd.DataFrame:
    """What changing one head alone costs, for every head, the costliest first.

    returns  layer, head, loss (rise of the right answer's cross-entropy, nats), lost with low and
             high (points of F1, articles drawn again)
    """
    heads, found = single_ablations(reader, corpus.examples, progress=progress, **how)
    groups = [question.article for question in corpus.examples]
    table = pd.DataFrame(np.array(heads) + 1, columns=["layer", "head"])
    table["loss"] = np.nanmean(found.loss[1:] - found.loss[0], 1)
    falls = [_points(paired_loss(f1, found.f1[0], groups, seed=seed)) for f1 in found.f1[1:]]
    table = table.join(pd.DataFrame(falls))
    return table.sort_values("loss", ascending=False, ignore_index=True)
