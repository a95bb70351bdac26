"""Oracles: every metric once more, as plain loops in double precision, written from the papers.

An oracle sees the maps of one text without padding, `weights[head, query, key]`, and what its
pieces are. It answers with the value per head (or head and key, or pair of heads), NaN where the
question makes no sense. `ASKED` says how much an example counts in a mean over all queries.

Nothing here may import attnlib: an oracle that shares code with a kernel shares its mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import log, nan

import numpy as np
from numpy.typing import NDArray

Maps = NDArray[np.float64]


@dataclass(frozen=True)
class Text:
    """What the pieces of one text are, without padding."""

    segment: tuple[int, ...]
    word: tuple[int, ...]
    sentence: tuple[int, ...]
    cls: tuple[bool, ...]
    sep: tuple[bool, ...]
    comma: tuple[bool, ...]
    period: tuple[bool, ...]
    punctuation: tuple[bool, ...]
    governor: tuple[int, ...]  # the word that the piece's word depends on, -1 where there is none
    dependency: tuple[str, ...]  # the label of that arc, "" where there is none

    def __len__(self) -> int:
        return len(self.segment)


Oracle = Callable[[Maps, Text], NDArray[np.float64]]
Holds = Callable[[Text, int, int], bool]
Counts = Callable[[Text], int]
Sieve = Callable[[Text, int], list[int]]


# --- which keys a query may be asked about -------------------------------------------------------


def _sep_to_sep(text: Text, q: int, k: int) -> bool:
    return text.sep[q] and text.sep[k]


def _other_to_sep(text: Text, q: int, k: int) -> bool:
    return not text.sep[q] and text.sep[k]


def _same_word(text: Text, q: int, k: int) -> bool:
    return text.word[q] >= 0 and text.word[q] == text.word[k] and q != k


def _within(width: int) -> Holds:
    return lambda text, q, k: abs(k - q) <= width


PLACES: dict[str, Holds] = {
    "mass_to_self": lambda text, q, k: k == q,
    "mass_to_previous": lambda text, q, k: k == q - 1,
    "mass_to_next": lambda text, q, k: k == q + 1,
    "mass_to_earlier": lambda text, q, k: k < q,
    "mass_to_later": lambda text, q, k: k > q,
    "mass_within_1": _within(1),
    "mass_within_2": _within(2),
    "mass_within_5": _within(5),
    "mass_within_10": _within(10),
    "mass_within_20": _within(20),
}
"""Where the key stands from the query (Clark sec. 3.1; Pande's local heads)."""

KINDS: dict[str, Holds] = {
    "mass_to_cls": lambda text, q, k: text.cls[k],
    "mass_to_sep": lambda text, q, k: text.sep[k],
    "mass_to_comma": lambda text, q, k: text.comma[k],
    "mass_to_period": lambda text, q, k: text.period[k],
    "mass_to_period_or_comma": lambda text, q, k: text.period[k] or text.comma[k],
    "mass_to_punctuation": lambda text, q, k: text.punctuation[k],
    "mass_sep_to_sep": _sep_to_sep,
    "mass_other_to_sep": _other_to_sep,
}
"""What the key is (Clark sec. 3.2, Fig. 2)."""

GROUPS: dict[str, Holds] = {
    "mass_to_same_segment": lambda text, q, k: text.segment[q] == text.segment[k],
    "mass_to_other_segment": lambda text, q, k: text.segment[q] != text.segment[k],
    "mass_to_same_sentence": lambda text, q, k: text.sentence[q] == text.sentence[k],
    "mass_to_same_word": _same_word,
}
"""What query and key have in common."""


def _special(text: Text, k: int) -> bool:
    return text.cls[k] or text.sep[k] or text.comma[k] or text.period[k]


def _in_distance_window(i: int) -> Holds:
    """Window i of 16 holds the pieces at i L/16 <= t < (i + 1) L/16, but never t = 0."""

    def holds(text: Text, q: int, k: int) -> bool:
        t, length = abs(k - q), len(text)
        return t > 0 and not _special(text, k) and i * length <= 16 * t < (i + 1) * length

    return holds


DISTANCES: dict[str, Holds] = {
    **{f"distance_window_{i + 1:02d}": _in_distance_window(i) for i in range(16)},
    "distance_self": lambda text, q, k: k == q and not _special(text, k),
    **{f"distance_{kind}": KINDS[f"mass_to_{kind}"] for kind in ("cls", "sep", "comma", "period")},
}
"""The parts of the distance feature (Guan sec. 3, Eq. 2)."""

RELATIONS = PLACES | KINDS | GROUPS | DISTANCES

ONLY_OF_SOME = frozenset(
    {
        *("mass_sep_to_sep", "mass_other_to_sep"),
        *("mass_to_other_segment", "mass_to_same_word"),
    }
)
"""Relations that not every query can have: only queries with such a key are asked."""


# --- mass on a relation --------------------------------------------------------------------------


def asked_queries(text: Text, holds: Holds, only_of_some: bool) -> list[int]:
    """The queries whose attention is averaged: all, special ones too, or those with such a key."""
    n = len(text)
    if not only_of_some:
        return list(range(n))
    return [q for q in range(n) if any(holds(text, q, k) for k in range(n))]


def mass(weights: Maps, text: Text, holds: Holds, asked: list[int]) -> NDArray[np.float64]:
    """Attention on the keys of a relation, per asked query."""
    pairs = [(q, k) for q in asked for k in range(len(text)) if holds(text, q, k)]
    values = []
    for head in weights.tolist():
        total = sum(head[q][k] for q, k in pairs)
        values.append(total / len(asked) if asked else nan)
    return np.array(values)


def _mass_oracle(holds: Holds, only_of_some: bool) -> Oracle:
    return lambda weights, text: mass(
        weights, text, holds, asked_queries(text, holds, only_of_some)
    )


def _mass_count(holds: Holds, only_of_some: bool) -> Counts:
    return lambda text: len(asked_queries(text, holds, only_of_some))


# --- entropy -------------------------------------------------------------------------------------


def smoothed(row: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """A row with a small share of it spread evenly over the keys, as in Clark's code."""
    return np.array([(1 - share) * a + share / len(row) for a in row])


def row_entropy(row: Iterable[float]) -> float:
    """-sum a ln a in nats, where 0 ln 0 = 0."""
    return -sum(a * log(a) for a in row if a > 0)


def mean_entropy(weights: Maps, queries: list[int], share: float = 0.0) -> NDArray[np.float64]:
    """Mean entropy of the rows of these queries (Clark sec. 3.3, Fig. 4)."""
    values = []
    for head in weights:
        entropies = [row_entropy(smoothed(head[q], share)) for q in queries]
        values.append(sum(entropies) / len(entropies) if entropies else nan)
    return np.array(values)


def _every_query(text: Text) -> list[int]:
    return list(range(len(text)))


def _cls_queries(text: Text) -> list[int]:
    return [q for q in range(len(text)) if text.cls[q]]


def _entropy_oracle(queries: Callable[[Text], list[int]], share: float) -> Oracle:
    return lambda weights, text: mean_entropy(weights, queries(text), share)


# --- columns -------------------------------------------------------------------------------------


def column_mass(weights: Maps, text: Text) -> NDArray[np.float64]:
    """(head, key): attention that a position receives, averaged over the queries."""
    n = len(text)
    values = np.zeros((len(weights), n))
    for h, head in enumerate(weights):
        for k in range(n):
            values[h, k] = sum(head[q, k] for q in range(n)) / n
    return values


def row_peak(weights: Maps, text: Text) -> NDArray[np.float64]:
    """The largest weight of a row, averaged over the rows."""
    return np.array([sum(max(row) for row in head) / len(text) for head in weights])


# --- divergence ----------------------------------------------------------------------------------


def row_js(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Jensen-Shannon divergence of two rows: mean Kullback-Leibler divergence to their middle."""
    total = 0.0
    for a, b in zip(p, q, strict=True):
        middle = (a + b) / 2
        if a > 0:
            total += 0.5 * a * log(a / middle)
        if b > 0:
            total += 0.5 * b * log(b / middle)
    return total


def js_divergence(weights: Maps, text: Text, share: float = 0.0) -> NDArray[np.float64]:
    """(head, other head): mean over queries of the JS divergence of their rows (Clark sec. 6)."""
    n, n_heads = len(text), len(weights)
    rows = [[smoothed(head[q], share) for q in range(n)] for head in weights]
    values = np.zeros((n_heads, n_heads))
    for i in range(n_heads):
        for j in range(n_heads):
            values[i, j] = sum(row_js(rows[i][q], rows[j][q]) for q in range(n)) / n
    return values


# --- sieve bias ----------------------------------------------------------------------------------


def _two_texts(text: Text) -> bool:
    """Both parts have pieces of words."""
    return len({text.segment[s] for s in range(len(text)) if text.word[s] >= 0}) == 2


def _block(text: Text, t: int) -> list[int]:
    if not _two_texts(text) or text.word[t] < 0:
        return []
    return _words_of_part(text, text.segment[t])


def _block_of_the_authors(text: Text, t: int) -> list[int]:
    """[CLS] asks as the first text does, every [SEP] as the second."""
    if not _two_texts(text):
        return []
    if text.cls[t]:
        return _words_of_part(text, 0)
    if text.sep[t]:
        return _words_of_part(text, 1)
    return _words_of_part(text, text.segment[t]) if text.word[t] >= 0 else []


def _words_of_part(text: Text, part: int) -> list[int]:
    return [s for s in range(len(text)) if text.word[s] >= 0 and text.segment[s] == part]


def _governor_by(*labels: str) -> Sieve:
    """From a dependent to every piece of the word it depends on, where that word is present."""

    def sieve(text: Text, t: int) -> list[int]:
        if text.word[t] < 0 or text.governor[t] < 0 or text.dependency[t] not in labels:
            return []
        return [s for s in range(len(text)) if text.word[s] == text.governor[t]]

    return sieve


SYNTACTIC: dict[str, Sieve] = {
    "nsubj": _governor_by("nsubj"),
    "dobj": _governor_by("dobj", "obj"),
    "amod": _governor_by("amod"),
    "advmod": _governor_by("advmod"),
    "syntactic": _governor_by("nsubj", "dobj", "obj", "amod", "advmod"),
}
"""The relations Pande's syntactic heads follow; Universal Dependencies writes obj for dobj."""

SIEVES: dict[str, Sieve] = {
    "local": lambda text, t: [s for s in range(len(text)) if abs(s - t) <= 2],
    "previous_local": lambda text, t: [s for s in range(len(text)) if s in (t - 2, t - 1)],
    "next_local": lambda text, t: [s for s in range(len(text)) if s in (t + 1, t + 2)],
    "block": _block,
    "cls": lambda text, t: [s for s in range(len(text)) if text.cls[s]],
    "sep": lambda text, t: [s for s in range(len(text)) if text.sep[s]],
    "delimiter": lambda text, t: [s for s in range(len(text)) if text.cls[s] or text.sep[s]],
    **SYNTACTIC,
}
"""The keys that a head of a role should attend to, for each query (Pande sec. 3.2, Fig. 1)."""


def asked_by(text: Text, sieve: Sieve) -> dict[int, list[int]]:
    """The queries whose sieve is not empty, each with its keys."""
    keys = {t: sieve(text, t) for t in range(len(text))}
    return {t: found for t, found in keys.items() if found}


def query_bias(row: list[float], keys: list[int], too_many: int = 0) -> float:
    """beta: the mean attention on the sieve over the mean attention on the whole input."""
    on_sieve = sum(row[s] for s in keys) / (len(keys) + too_many)
    on_input = 1 / len(row)  # a row sums to 1
    return on_sieve / on_input


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else nan


def sieve_bias(weights: Maps, text: Text, sieve: Sieve) -> NDArray[np.float64]:
    """The mean of beta over the queries whose sieve is not empty."""
    asked = asked_by(text, sieve)
    values = [
        _mean([query_bias(head[t], keys) for t, keys in asked.items()]) for head in weights.tolist()
    ]
    return np.array(values)


def local_bias_of_the_authors(weights: Maps, text: Text) -> NDArray[np.float64]:
    """Pande's code counts one key too many for the last two pieces."""
    n, asked = len(text), asked_by(text, SIEVES["local"])
    values = []
    for head in weights.tolist():
        betas = [query_bias(head[t], keys, int(t >= n - 2)) for t, keys in asked.items()]
        values.append(_mean(betas))
    return np.array(values)


def block_bias_of_the_authors(weights: Maps, text: Text) -> NDArray[np.float64]:
    """Pande's code multiplies beta with the entropy of the row."""
    asked = asked_by(text, _block_of_the_authors)
    values = []
    for head in weights.tolist():
        scores = [query_bias(head[t], keys) * row_entropy(head[t]) for t, keys in asked.items()]
        values.append(_mean(scores))
    return np.array(values)


def dependents(text: Text, sieve: Sieve) -> dict[int, list[int]]:
    """The words that are asked, each with its pieces."""
    words: dict[int, list[int]] = {}
    for t in asked_by(text, sieve):
        words.setdefault(text.word[t], []).append(t)
    return words


def bias_by_word(weights: Maps, text: Text, sieve: Sieve) -> NDArray[np.float64]:
    """Pande's code takes the mean over the pieces of a dependent, then over the dependents."""
    asked, words = asked_by(text, sieve), dependents(text, sieve)
    values = []
    for head in weights.tolist():
        by_word = [_mean([query_bias(head[t], asked[t]) for t in word]) for word in words.values()]
        values.append(_mean(by_word))
    return np.array(values)


def _biases() -> Iterator[tuple[str, Oracle, Counts]]:
    for role, sieve in SIEVES.items():
        yield (
            f"bias_{role}",
            lambda weights, text, sieve=sieve: sieve_bias(weights, text, sieve),
            lambda text, sieve=sieve: len(asked_by(text, sieve)),
        )
    yield "bias_local@authors", local_bias_of_the_authors, len
    yield (
        "bias_block@authors",
        block_bias_of_the_authors,
        lambda text: len(asked_by(text, _block_of_the_authors)),
    )
    for role, sieve in SYNTACTIC.items():
        yield (
            f"bias_{role}@authors",
            lambda weights, text, sieve=sieve: bias_by_word(weights, text, sieve),
            lambda text, sieve=sieve: len(dependents(text, sieve)),
        )


# --- the tables ----------------------------------------------------------------------------------


def _oracles() -> Iterator[tuple[str, Oracle, Counts]]:
    for key, holds in RELATIONS.items():
        some = key in ONLY_OF_SOME
        yield key, _mass_oracle(holds, some), _mass_count(holds, some)
        if key not in DISTANCES:
            yield f"{key}@having", _mass_oracle(holds, True), _mass_count(holds, True)
    for variant, share in {"": 0.0, "@authors": 1e-4}.items():
        yield f"entropy{variant}", _entropy_oracle(_every_query, share), len
        yield (
            f"entropy_from_cls{variant}",
            _entropy_oracle(_cls_queries, share),
            lambda text: len(_cls_queries(text)),
        )
    yield "column_mass", column_mass, lambda text: 1  # one value per text, not a mean
    yield "row_peak", row_peak, len
    yield "js_divergence", js_divergence, len
    yield "js_divergence@authors", lambda weights, text: js_divergence(weights, text, 1e-3), len
    yield from _biases()


_TABLE = tuple(_oracles())

ORACLES: dict[str, Oracle] = {key: oracle for key, oracle, _ in _TABLE}
"""Metric key, or key@variant, to its oracle."""

ASKED: dict[str, Counts] = {key: count for key, _, count in _TABLE}
"""Metric key, or key@variant, to the number of queries its value is a mean over (its weight)."""


def oracle(key: str, asked: Counts = len) -> Callable[[Oracle], Oracle]:
    """Make a function the oracle of a metric; `asked` counts the queries its value is a mean of."""

    def declare(function: Oracle) -> Oracle:
        ORACLES[key], ASKED[key] = function, asked
        return function

    return declare
