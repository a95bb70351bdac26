"""Everything that four papers measure of a head, in one pass over the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch.nn import functional

from attnlib.attention.maps import Attention
from attnlib.data.corpora import Corpus, with_trees
from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.roles import AUTHORS, RoleScores, moments, role_tests
from attnlib.measuring.stream import chosen_metrics, stream
from attnlib.metrics.distance import distance_metrics, feature_rows
from attnlib.metrics.registry import Metric, Partial
from attnlib.metrics.sieves import SIEVES
from attnlib.models import Encoder, load_encoder, random_twin, weights_digest
from bookkit.store import Found, experiment
from experiments.agreement.draws import document_numbers
from experiments.kovaleva2019.patterns import PATTERNS, Schooling, network, pattern_metric, rule
from experiments.shared.intervals import mean_ends

SURFACE = (
    *("mass_to_previous", "mass_to_next", "mass_to_self", "mass_to_cls", "mass_to_sep"),
    *("mass_to_period_or_comma", "entropy"),
)
"""What Clark's behaviours are named by."""
BLOCK = f"block{AUTHORS}"
ROLES = (*SIEVES, BLOCK)
REACH = 12
OFFSETS = tuple(range(-REACH, REACH + 1))
_KEPT: dict[tuple[str, ...], Sighting] = {}
"""Sightings of this process: several experiments look at the same ones."""


@dataclass(frozen=True, eq=False)
class Sighting:
    """What every head does in every input.

    values    metric -> (input, layer, head), NaN where an input does not define it
    features  (input, layer x head, part): Guan's 21 parts, which add up to 1
    parts     their names
    patterns  "rule" and "network" -> (input, layer, head, pattern), 1 for the pattern of the map
    offsets   (input, layer, head, offset): mean attention to the key so many places away
    documents (input,): which inputs are drawn together, see `document_numbers`
    """

    values: dict[str, Float[np.ndarray, "input layer head"]]
    features: Float[np.ndarray, "input flat part"]
    parts: tuple[str, ...]
    patterns: dict[str, Float[np.ndarray, "input layer head pattern"]]
    offsets: Float[np.ndarray, "input layer head offset"]
    documents: Int[np.ndarray, " input"]

    @property
    def n_inputs(self) -> int:
        return len(self.offsets)

    @property
    def shape(self) -> tuple[int, int]:
        """Layers, and heads of each."""
        return self.offsets.shape[1], self.offsets.shape[2]


def rule_metric() -> Metric:
    """Which pattern the rule on shares calls a head's map, as a metric beside the network's."""

    def kernel(attention: Attention) -> Partial:
        called = rule(attention.weights, attention.batch)
        one_hot = functional.one_hot(called, len(PATTERNS)).to(attention.weights.dtype)
        return Partial(one_hot, torch.ones(len(one_hot), device=one_hot.device))

    what = "Which of five patterns the rule calls the map of a head."
    source = "kovaleva2019:sec4.1"
    return Metric("rule", what, source, "share", (0, 1), kernel, axes=("head", "pattern"))


def offset_metric(reach: int = REACH) -> Metric:
    r"""Mean attention by distance: to the key j places to the right of its query, -reach .. reach.

    .. math:: m_j = \frac{1}{|\{q : q + j \text{ real}\}|} \sum_q a_{q, q + j}
    """

    def kernel(attention: Attention) -> Partial:
        real = attention.real
        totals, counts = [], []
        for offset in range(-reach, reach + 1):
            at = max(-real.shape[1], min(offset, real.shape[1]))  # beyond it there is no key
            pairs = (real[:, :, None] & real[:, None, :]).diagonal(at, 1, 2)
            weights = attention.weights.diagonal(at, 2, 3)
            totals.append((weights * pairs[:, None]).sum(-1))
            counts.append(pairs.sum(-1))
        weight = torch.stack(counts, -1)[:, None].expand(-1, attention.weights.shape[1], -1)
        return Partial(torch.stack(totals, -1), weight.to(attention.weights.dtype))

    what = "Mean attention to the key so many places to the right."
    source = "clark2019:sec3.1"
    return Metric("offset", what, source, "share", (0, 1), kernel, axes=("head", "offset"))


def sighting_of(
    corpus: Corpus,
    *,
    encoder: Encoder,
    school: Mapping[str, Any],
    twin: bool = False,
    seed: int = 0,
) -> Sighting:
    """All of it, in one pass; found once in a process.

    school  how the network of patterns learns: `labelled`, the models whose labelled maps it learns
            from, `labels`, the digest of these labels (a changed label makes a new result),
            `epochs` and `width`
    twin    look at a model of the same shape with random weights instead: the floor
    """
    seen = random_twin(encoder, seed) if twin else encoder
    schooling = Schooling(school["epochs"], school["width"], seed=seed)
    key = (weights_digest(seen), corpus.digest, repr(schooling), *school["labelled"])
    if key not in _KEPT:
        if not school["labelled"]:
            raise BadValue("no model with labelled maps was named; expected one, such as e5-small.")
        # In the name of one model, so that all share one network; it learns from maps before
        # fine-tuning only, and whose they are is in `labelled`.
        teacher = load_encoder(school["labelled"][0], device=str(encoder.device))
        net = network([], teacher, {}, school["labelled"], schooling)
        roles = [f"bias_{role}" for role in ROLES]
        parts = distance_metrics()
        own = [pattern_metric(net), rule_metric(), offset_metric()]
        metrics = chosen_metrics([*SURFACE, *roles, *parts, *own])
        found = stream(seen, with_trees(corpus), metrics, on_long="truncate").not_empty()
        names, rows = feature_rows(found)
        _KEPT[key] = Sighting(
            values={name: found.values(name) for name in (*SURFACE, *roles)},
            features=rows,
            parts=names,
            patterns={"rule": found.rows("rule")[0], "network": found.rows("pattern")[0]},
            offsets=found.values("offset"),
            documents=document_numbers([corpus.examples[i] for i in sorted({*found.shard.index})]),
        )
    return _KEPT[key]


@experiment(version=1, reads=["spacy-en"], trains=True)
def head_numbers(
    corpus: Corpus, *, encoder: Encoder, school: Mapping[str, Any], seed: int = 0
) -> Found:
    """Every number of every head, with its interval over inputs.

    school  see `sighting_of`
    table   key, layer, head, mean, low, high, n; the keys are metrics, `part_<part>` of Guan's
            features, `rule_<pattern>` and `network_<pattern>` (share of inputs), `offset_<places>`
    """
    seen = sighting_of(corpus, encoder=encoder, school=school, seed=seed)
    layers, heads = seen.shape
    grids = dict(seen.values)
    cut = seen.features.reshape(-1, layers, heads, len(seen.parts))
    grids |= {f"part_{name}": cut[..., place] for place, name in enumerate(seen.parts)}
    for who, shares in seen.patterns.items():
        grids |= {f"{who}_{name}": shares[..., place] for place, name in enumerate(PATTERNS)}
    grids |= {f"offset_{name}": seen.offsets[..., place] for place, name in enumerate(OFFSETS)}
    tables = []
    for key, values in grids.items():
        ends = mean_ends(values, seed)
        tables.append(head_rows(**vars(ends)).assign(key=key))
    facts = {"inputs": seen.n_inputs, "passes": seen.n_inputs, "corpus": corpus.name}
    return Found(pd.concat(tables, ignore_index=True), facts=facts)


@experiment(version=1, reads=["spacy-en"], trains=True)
def head_roles(
    corpus: Corpus, *, encoder: Encoder, school: Mapping[str, Any], threshold: float, seed: int = 0
) -> Found:
    """Pande's test of every role for every head.

    school  see `sighting_of`
    table  role, layer, head, bias, low, high, sd, skew, median, n, p, q, holm, effect, needed,
           assigned (uncorrected, as the paper does)
    """
    seen = sighting_of(corpus, encoder=encoder, school=school, seed=seed)
    values = {role: seen.values[f"bias_{role}"] for role in ROLES}
    scores = RoleScores(values, {}, seen.n_inputs, 0, {}, 0.0)
    table = role_tests(moments(scores, seed=seed), threshold=threshold)
    return Found(table, facts={"inputs": seen.n_inputs, "threshold": threshold})
