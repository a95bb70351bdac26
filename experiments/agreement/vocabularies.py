"""Four vocabularies for the same heads: the class that each paper would give to every head."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from attnlib.attention.encode import tokenized
from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_names, head_rows
from attnlib.measuring.roles import THRESHOLD
from attnlib.measuring.significance import ALPHA, drawn_moments, from_moments
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.agreement.draws import (
    PerHead,
    all_heads,
    drawn_counts,
    halved_counts,
    mean_of,
    reliability,
    with_draws,
)
from experiments.agreement.head_numbers import BLOCK, Sighting, sighting_of
from experiments.clark2019.surface import BEHAVIOURS
from experiments.kovaleva2019.patterns import MAX_LENGTH, PATTERNS
from experiments.shared.head_types import TYPES, fitted, named_types
from experiments.shared.intervals import drawn
from experiments.shared.sortings import agreement_kappa

STABLE = 100
"""Times that the documents are halved, and every head is named on both halves."""
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
QUARTERS = 4
SAME_PAPER = {"rule", "network"}
"""Two ways to one vocabulary: they say how well it can be applied, not whether papers agree."""
TWIN = "random weights"
"""What the random-weights control is called among the models."""
PAIRS = [pair for pair in combinations(VOCABULARIES, 2) if set(pair) != SAME_PAPER]
"""Every two papers."""
_WORDS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("names.toml").read_text(encoding="utf-8")
)
NAMES, SHORT, ASKED = _WORDS["vocabularies"], _WORDS["short"], _WORDS["questions"]
MEASURES, MEASURE_NAMES = _WORDS["measures"], _WORDS["short_measures"]
SAYINGS, AGAINST = _WORDS["sayings"], _WORDS["against"]
PAPERS = ("cost", "gradient", "change", "relations", "roles")
"""Of the measures, what each paper would call important."""
POOLED: Mapping[str, Sequence[str]] = {
    "effects": ("cost", "influence", "loss"),
    "changes": ("change",),
    **dict.fromkeys(("zero", "mean"), ("influence", "loss")),
}
"""Experiments with a table for every task, and the numbers in it."""
SINGLE = {
    "gradients": ("gradient",),
    "skill": ("relations",),
    "attention": ("sep", "near", "roles"),
}
"""Experiments with one table, and the numbers in it."""
PLAIN = {
    "questions": {"questions": "cost", "sway": "influence"},
    "coreference": {"coreference": "accuracy"},
}
"""The same for numbers without draws, and the columns they are in."""
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
"""Questions that all vocabularies answer, with the labels that say yes: does a head attend to
neighbours, to special tokens, to neither?"""

Counts = Float[np.ndarray, "draw input"]
Naming = tuple[np.ndarray, np.ndarray]
"""Labels (head,) of all inputs, and (draw, head) of inputs drawn again."""


@experiment(version=2, reads=["spacy-en"], trains=True)
def head_labels(
    corpus: Corpus,
    *,
    encoder: Encoder,
    school: Mapping[str, Any],
    threshold: float = THRESHOLD,
    twin: bool = False,
    seed: int = 0,
) -> Found:
    """The class of every head in every vocabulary, and its class when documents are drawn again.

    school, twin  see `sighting_of`
    threshold     the mean bias that makes a role of Pande's
    table  vocabulary, layer, head, label, same (share of the draws with this label), draws: a
           digit per draw, the place of the label among VOCABULARIES[vocabulary]
    facts  halves: vocabulary -> Cohen's kappa of the labels of two halves of the inputs, many times
    """
    seen = sighting_of(corpus, encoder=encoder, school=school, twin=twin, seed=seed)
    named = named_heads(seen, drawn_counts(seen.documents, seed), seed, threshold)
    tables = []
    for name, classes in VOCABULARIES.items():
        first, rest = named[name][0], named[name][1:]
        labels = np.array(classes, dtype=object)[first].reshape(seen.shape)
        table = head_rows(label=labels, same=(rest == first).mean(0).reshape(seen.shape))
        table.insert(0, "vocabulary", name)
        table["draws"] = ["".join(DIGITS[place] for place in head) for head in rest.T]
        tables.append(table)
    n = seen.n_inputs
    facts = {"inputs": n, "passes": n, "corpus": corpus.name}
    facts |= {"halves": _halves(seen, seed, threshold)}
    return Found(pd.concat(tables, ignore_index=True), facts=facts)


@experiment(version=1, reads=["spacy-en"], trains=True)
def head_attention(
    corpus: Corpus,
    *,
    encoder: Encoder,
    school: Mapping[str, Any],
    threshold: float = THRESHOLD,
    seed: int = 0,
) -> Found:
    """What sayings speak of, for every head, on documents drawn again: the draws of `head_labels`.

    table  layer, head, then with `_low`, `_high` and `_draws`: sep (attention to [SEP]), near (to
           the previous token, the next one and the token itself), roles (how many of Pande's)
    facts  reliability of the order of heads by each
    """
    seen = sighting_of(corpus, encoder=encoder, school=school, seed=seed)
    near = sum(seen.values[f"mass_to_{where}"] for where in ("previous", "next", "self"))
    n_roles = np.array([0 if one == NO_ROLE else one.count("+") + 1 for one in ROLE_SETS])
    measures: dict[str, PerHead] = {
        "sep": mean_of(seen.values["mass_to_sep"]),
        "near": mean_of(np.asarray(near)),
        "roles": lambda counts: n_roles[_roles(seen, counts, threshold)].astype(float),
    }
    table, counts = all_heads(*seen.shape), drawn_counts(seen.documents, seed)
    for name, of in measures.items():
        table = with_draws(table, name, of(counts))
    sure = {name: reliability(of, seen.documents, seed) for name, of in measures.items()}
    return Found(table, facts={"inputs": seen.n_inputs, "reliability": sure})


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


def _halves(seen: Sighting, seed: int, threshold: float) -> dict[str, list[float | None]]:
    """Cohen's kappa of the labels on two halves of the documents, for many random halves."""
    found: dict[str, list[float | None]] = {name: [] for name in VOCABULARIES}
    for counts in halved_counts(seen.documents, seed, halves=STABLE):
        named = named_heads(seen, counts, seed, threshold)
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
    """Whether each label says yes to a question, such as whether a head attends to neighbours."""
    return np.isin(labels.astype(str), QUESTIONS[question][vocabulary])


def compared(measure: Callable[..., float], one: Naming, other: Naming) -> np.ndarray:
    """How far two namings agree: on all inputs, then in every draw of the inputs."""
    draws = zip(one[1], other[1], strict=True)
    return np.array([measure(one[0], other[0]), *(measure(*draw) for draw in draws)])


def ends(name: str, draws: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Columns of a table: the first value under its name, and the interval of the others."""
    found = drawn(draws)
    return {name: found.value, "low": found.low, "high": found.high}


# --- two namings of the same heads ----------------------------------------------------------------


def baselines(labels: pd.DataFrame, numbers: pd.DataFrame) -> dict[str, Naming]:
    """What a head could be called by without any paper: its layer, and a quarter by its entropy.

    labels, numbers  tables of `head_labels`, for the number of draws, and of `head_numbers`
    """
    entropy = numbers[numbers["key"] == "entropy"].sort_values(["layer", "head"])
    rank = entropy["mean"].rank(method="first").to_numpy() - 1
    names = {"layer": entropy["layer"], "entropy": pd.Series(QUARTERS * rank // len(rank))}
    n_draws = len(labels_of(labels, "clark")[1])
    own = {name: one.to_numpy().astype(int).astype(str) for name, one in names.items()}
    return {name: (one, np.tile(one, (n_draws, 1))) for name, one in own.items()}


def confusion_wall(labels: pd.DataFrame) -> pd.DataFrame:
    """Every two vocabularies crossed: how many heads, how many by chance, and which.

    columns  one, other, row, column (labels), n, expected, heads (names), odd: the two labels
             answer a question differently
    """
    heads = np.array(head_names(_heads_of(labels)))
    rows = []
    for one, other in combinations(VOCABULARIES, 2):
        first, second = labels_of(labels, one)[0], labels_of(labels, other)[0]
        for row, column in product(sorted(set(first)), sorted(set(second))):
            chosen = (first == row) & (second == column)
            by_chance = (first == row).sum() * (second == column).sum() / len(heads)
            crossed = {"one": one, "other": other, "row": row, "column": column}
            crossed |= {"n": int(chosen.sum()), "expected": float(by_chance)}
            odd = _odd(row, one, column, other)
            rows.append({**crossed, "heads": " ".join(heads[chosen]), "odd": odd})
    return pd.DataFrame(rows)


def _heads_of(labels: pd.DataFrame) -> pd.DataFrame:
    """One row per head, in the order of `labels_of`."""
    return labels.drop_duplicates(["layer", "head"]).sort_values(["layer", "head"])


def _odd(row: str, one: str, column: str, other: str) -> bool:
    """Whether two labels have nothing in common: one says near, the other special or neither.

    Clark's `other` and Pande's lack of roles say nothing, and contradict nothing.
    """
    if row in ("other", "none") or column in ("other", "none"):
        return False
    says = {
        name: {q for q in ("near", "special") if label in QUESTIONS[q][name]}
        for name, label in ((one, row), (other, column))
    }
    neither = not says[one] and not says[other]
    return not neither and not says[one] & says[other]


@experiment(version=1)
def input_lengths(*corpora: Corpus, encoder: Encoder) -> Found:
    """The mean length of the inputs as the model sees them: corpus, pieces."""
    rows = []
    for corpus in corpora:
        lengths = [min(len(one), MAX_LENGTH) for one in tokenized(corpus.examples, encoder)]
        rows.append({"corpus": corpus.name, "pieces": float(np.mean(lengths))})
    return Found(pd.DataFrame(rows), facts={"inputs": sum(map(len, corpora))})
