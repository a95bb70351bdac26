"""Four vocabularies for the same heads: the class that each paper would give to every head."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.roles import THRESHOLD
from attnlib.measuring.significance import ALPHA, drawn_moments, from_moments
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.agreement.head_numbers import BLOCK, Sighting, sighting_of
from experiments.clark2019.surface import BEHAVIOURS
from experiments.kovaleva2019.patterns import PATTERNS
from experiments.shared.head_types import TYPES, fitted, named_types
from experiments.shared.intervals import drawn
from experiments.shared.sortings import agreement_kappa

DRAWS = 200
"""Times that the inputs are drawn again and every head is named anew."""
HALVES = 20
DIGITS = "0123456789abcdef"
JUDGED = {"local": "local", "block": BLOCK, "delimiter": "delimiter", "syntactic": "syntactic"}
"""Pande's coarse roles, and the score each is judged by: block by the authors' (its printed one
cannot reach the threshold)."""
NO_ROLE = "none"
ROLE_SETS = (
    NO_ROLE,
    *("+".join(chosen) for n in range(1, 5) for chosen in combinations(JUDGED, n)),
)
VOCABULARIES: Mapping[str, tuple[str, ...]] = {
    "clark": (*BEHAVIOURS, "other"),
    "rule": PATTERNS,
    "network": PATTERNS,
    "guan": (*TYPES, "unnamed"),
    "pande": ROLE_SETS,
}
"""The classes of every vocabulary; `rule` and `network` are two ways to Kovaleva's."""
_WORDS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("names.toml").read_text(encoding="utf-8")
)
NAMES, SHORT, ASKED = _WORDS["vocabularies"], _WORDS["short"], _WORDS["questions"]
MEASURES, MEASURE_NAMES = _WORDS["measures"], _WORDS["short_measures"]
SAYINGS = _WORDS["sayings"]
QUESTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "near": {
        "clark": ("previous", "next", "self"),
        **dict.fromkeys(("rule", "network"), ("diagonal", "vertical+diagonal")),
        "guan": ("diagonal",),
        "pande": [label for label in ROLE_SETS if "local" in label],
    },
    "special": {
        "clark": ("[SEP]", "[CLS]", "punctuation"),
        **dict.fromkeys(("rule", "network"), ("vertical", "vertical+diagonal")),
        "guan": ("vertical", "dense&vertical"),
        "pande": [label for label in ROLE_SETS if "delimiter" in label],
    },
    "spread": {
        "clark": ("broad",),
        **dict.fromkeys(("rule", "network"), ("heterogeneous", "block")),
        "guan": ("dense",),
        "pande": (NO_ROLE, "block", "syntactic", "block+syntactic"),
    },
}
"""Questions that all vocabularies answer, with the labels that say yes: does a head look near, at
special tokens, at neither?"""

Counts = Float[np.ndarray, "draw input"]
Naming = tuple[np.ndarray, np.ndarray]
"""Labels (head,) of all inputs, and (draw, head) of inputs drawn again."""


@experiment(version=1, reads=["spacy-en"], trains=True)
def head_labels(
    corpus: Corpus,
    *,
    encoder: Encoder,
    school: Mapping[str, Any],
    threshold: float = THRESHOLD,
    twin: bool = False,
    seed: int = 0,
) -> Found:
    """The class of every head in every vocabulary, and its class when inputs are drawn again.

    school, twin  see `sighting_of`
    threshold     the mean bias that makes a role of Pande's
    table  vocabulary, layer, head, label, same (share of the draws with this label), draws: a
           digit per draw, the place of the label among VOCABULARIES[vocabulary]
    facts  halves: vocabulary -> Cohen's kappa of the labels of two halves of the inputs, many times
    """
    seen = sighting_of(corpus, encoder=encoder, school=school, twin=twin, seed=seed)
    generator = np.random.default_rng(seed)
    n = seen.n_inputs
    again = generator.multinomial(n, np.full(n, 1 / n), size=DRAWS)
    named = named_heads(seen, np.vstack([np.ones(n), again]), seed, threshold)
    tables = []
    for name, classes in VOCABULARIES.items():
        first, rest = named[name][0], named[name][1:]
        labels = np.array(classes, dtype=object)[first].reshape(seen.shape)
        table = head_rows(label=labels, same=(rest == first).mean(0).reshape(seen.shape))
        table.insert(0, "vocabulary", name)
        table["draws"] = ["".join(DIGITS[place] for place in head) for head in rest.T]
        tables.append(table)
    halves = _halves(seen, generator, seed, threshold)
    facts = {"inputs": n, "passes": n, "corpus": corpus.name, "halves": halves}
    return Found(pd.concat(tables, ignore_index=True), facts=facts)


def named_heads(
    seen: Sighting, counts: Counts, seed: int = 0, threshold: float = THRESHOLD
) -> dict[str, Int[np.ndarray, "draw flat"]]:
    """The class of every head in every vocabulary, for every draw of inputs.

    counts  how often each input is drawn
    """
    return {
        "clark": _behaviours(seen, counts),
        "rule": _patterns(seen.patterns["rule"], counts),
        "network": _patterns(seen.patterns["network"], counts),
        "guan": np.stack(list(_types(seen, counts, seed))),
        "pande": _roles(seen, counts, threshold),
    }


def _mean(values: np.ndarray, counts: Counts) -> np.ndarray:
    """(draw, flat): means over the inputs that define a value, as often as they are drawn."""
    flat = values.reshape(len(values), -1)
    has = ~np.isnan(flat)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((counts @ np.where(has, flat, 0.0)) / (counts @ has.astype(float)))


def _behaviours(seen: Sighting, counts: Counts) -> np.ndarray:
    """Clark: the first behaviour that fits, by the thresholds of the authors' code."""
    found = np.full((len(counts), np.prod(seen.shape)), len(BEHAVIOURS))
    for place, (metric, limit) in reversed(list(enumerate(BEHAVIOURS.values()))):
        found[_mean(seen.values[metric], counts) > limit] = place
    return found


def _patterns(shares: np.ndarray, counts: Counts) -> np.ndarray:
    """Kovaleva: the pattern that most of a head's maps have; of equals the first."""
    flat = shares.reshape(len(shares), -1)
    return np.asarray((counts @ flat).reshape(len(counts), -1, len(PATTERNS)).argmax(-1))


def _types(seen: Sighting, counts: Counts, seed: int) -> Iterator[np.ndarray]:
    """Guan: clusters of the mean features, named by the chapter's rule."""
    special = [i for i, name in enumerate(seen.parts) if not name.startswith(("window_", "self"))]
    near = [seen.parts.index(name) for name in ("window_01", "self")]
    defined = ~np.isnan(seen.features).any((1, 2))
    rows = seen.features[defined]
    for draw in counts[:, defined]:
        mean = np.tensordot(draw / draw.sum(), rows, 1)
        try:
            names = named_types(mean, fitted(mean, 4, seed=seed, special=special), special, near)
        except BadValue:  # two clusters tie, as those of a network that learnt nothing may
            names = ["unnamed"] * len(mean)
        yield np.array([VOCABULARIES["guan"].index(name) for name in names])


def _roles(seen: Sighting, counts: Counts, threshold: float) -> np.ndarray:
    """Pande: the set of coarse roles that the z-test assigns."""
    bits = np.zeros((len(counts), np.prod(seen.shape)), int)  # one for every role
    for place, score in enumerate(JUDGED.values()):
        values = seen.values[f"bias_{score}"]
        moments = drawn_moments(counts, values.reshape(len(values), -1))
        # Without two inputs that define it there is no p, and no role.
        bits += (from_moments(*moments, threshold).p < ALPHA) * 2**place
    sets = [
        "+".join(role for place, role in enumerate(JUDGED) if code >> place & 1) or NO_ROLE
        for code in range(2 ** len(JUDGED))
    ]
    return np.array([ROLE_SETS.index(name) for name in sets])[bits]


def _halves(
    seen: Sighting, generator: np.random.Generator, seed: int, threshold: float
) -> dict[str, list[float | None]]:
    """Cohen's kappa of the labels on two halves of the inputs, for several random halves."""
    found: dict[str, list[float | None]] = {name: [] for name in VOCABULARIES}
    for _ in range(HALVES):
        first = np.zeros(seen.n_inputs)
        first[generator.permutation(seen.n_inputs)[: seen.n_inputs // 2]] = 1
        named = named_heads(seen, np.stack([first, 1 - first]), seed, threshold)
        for name, (one, other) in named.items():
            value = agreement_kappa(one, other)
            found[name].append(None if np.isnan(value) else value)
    return found


def labels_of(table: pd.DataFrame, vocabulary: str) -> Naming:
    """The labels (head,) of a vocabulary, and those of the draws (draw, head), as names."""
    rows = table[table["vocabulary"] == vocabulary].sort_values(["layer", "head"])
    classes = np.array(VOCABULARIES[vocabulary], dtype=object)
    places = np.array([[DIGITS.index(digit) for digit in head] for head in rows["draws"]])
    return rows["label"].to_numpy(object), classes[places.T]


def answers(labels: np.ndarray, vocabulary: str, question: str) -> np.ndarray:
    """Whether each label says yes to a question, such as whether a head looks near."""
    return np.isin(labels.astype(str), QUESTIONS[question][vocabulary])


def compared(measure: Callable[..., float], one: Naming, other: Naming) -> np.ndarray:
    """How far two namings agree: on all inputs, then in every draw of the inputs."""
    draws = zip(one[1], other[1], strict=True)
    return np.array([measure(one[0], other[0]), *(measure(*draw) for draw in draws)])


def ends(name: str, draws: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Columns of a table: the first value under its name, and the interval of the others."""
    found = drawn(draws)
    return {name: found.value, "low": found.low, "high": found.high}
