"""Relations between a query and a key, declared once: the vocabulary of all four papers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.errors import BadValue, check_known

AskedOf = Literal["every", "having"]
Held = Callable[[Batch], Tensor]
WINDOWS = (1, 2, 5, 10, 20)


@dataclass(frozen=True)
class Relation:
    """A named boolean (query, key) relation.

    pairs     Batch -> (batch, query, key); if `positional`, (length, device) -> (query, key)
    asked_of  "every" real query: the mass is a share of all the head's attention, and masses on
              disjoint relations add up; or only queries "having" such a key, where the relation
              is a question to some queries alone (from [SEP] to [SEP])
    keys      Batch -> (batch, key), where the key alone decides: its mass is then a sum of
              columns, which are summed up anyway
    metric_key  of the metric that measures its mass; mass_to_<key> unless it is named

    >>> from attnlib.metrics.relations import RELATIONS
    >>> RELATIONS["previous"].what, RELATIONS["previous"].metric_key
    ('the piece just before', 'mass_to_previous')
    """

    key: str
    what: str
    pairs: Callable[..., Tensor]
    asked_of: AskedOf = "every"
    positional: bool = False
    metric_key: str = ""
    source: str = "own"
    short: str = ""
    keys: Held | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric_key", self.metric_key or f"mass_to_{self.key}")

    def mask(self, batch: Batch) -> Bool[Tensor, "batch query key"]:
        """Where the relation holds between real pieces of the batch."""
        return self.pairs_in(batch) & batch.real_pairs

    def keys_in(self, batch: Batch) -> Bool[Tensor, "batch key"]:
        """The real pieces that the relation holds for, where the key alone decides."""
        assert self.keys is not None
        return self.keys(batch) & batch.real

    def pairs_in(self, batch: Batch) -> Bool[Tensor, "#batch query key"]:
        """Where the relation holds, padding or not; one map for all examples if positional."""
        if self.positional:
            return _positional(self.pairs, batch.length, batch.device).unsqueeze(0)
        return self.pairs(batch)


@lru_cache(maxsize=512)
def _positional(pairs: Callable[..., Tensor], length: int, device: torch.device) -> Tensor:
    """A relation of positions alone is the same for every text of one length."""
    with torch.inference_mode(False):  # what is kept must also serve where gradients are wanted
        return pairs(length, device)


def relation(
    key: str, what: str, source: str = "own", *, asked_of: AskedOf = "every"
) -> Callable[[Held], Relation]:
    """Make a relation of a function from a batch to its pairs (batch, query, key) as booleans.

    Where the key alone decides, the function gives (batch, key). What it says of padding does not
    matter.

    >>> from attnlib import load_corpus, measure, random_encoder, relation
    >>> @relation("same_piece", "a piece that reads the same")
    ... def same_piece(batch):
    ...     return batch.ids.unsqueeze(2) == batch.ids.unsqueeze(1)
    >>> texts = load_corpus("reader", limit=2)
    >>> found = measure(random_encoder(), texts, [same_piece, "mass_to_self"], on_long="truncate")
    >>> bool((found.grid("mass_to_same_piece") > found.grid("mass_to_self")).all())
    True
    """

    def made(held: Held) -> Relation:
        def pairs(batch: Batch) -> Tensor:
            found = _checked(held(batch), batch, key)
            return found if found.dim() == 3 else found.unsqueeze(1).expand(-1, batch.length, -1)

        return Relation(key, what, pairs, asked_of, source=source)

    return made


def _checked(held: Any, batch: Batch, key: str) -> Tensor:
    shapes = ((len(batch), batch.length), (len(batch), batch.length, batch.length))
    if not isinstance(held, Tensor):
        raise BadValue(f"relation '{key}' gave {type(held).__name__}; expected a boolean tensor.")
    if held.dtype != torch.bool or tuple(held.shape) not in shapes:
        raise BadValue(
            f"relation '{key}' gave {held.dtype} of shape {tuple(held.shape)}; expected booleans "
            f"of shape (batch, key) or (batch, query, key), here {' or '.join(map(str, shapes))}."
        )
    return held


def by_distance(
    key: str, what: str, source: str, holds: Callable[[Tensor], Tensor], **named: Any
) -> Relation:
    """A relation that depends on nothing but key - query, the distance between two pieces."""

    def pairs(length: int, device: torch.device) -> Tensor:
        position = torch.arange(length, device=device)
        return holds(position.unsqueeze(0) - position.unsqueeze(1))

    return Relation(key, what, pairs, positional=True, source=source, **named)


def by_key(key: str, what: str, source: str, keys: Held | None = None, **named: Any) -> Relation:
    """A relation that holds for every query wherever the key is of some kind.

    keys  Batch -> (batch, key); by default what the batch has under the name of the relation
    """
    keys = keys or attrgetter(key)

    def pairs(batch: Batch) -> Tensor:
        return keys(batch).unsqueeze(1).expand(-1, batch.length, -1)

    return Relation(key, what, pairs, source=source, keys=keys, **named)


def _alike(of_piece: Tensor) -> Tensor:
    """Where what is known of the query is what is known of the key: (batch, query, key)."""
    return of_piece.unsqueeze(2) == of_piece.unsqueeze(1)


def _same_word(batch: Batch) -> Tensor:
    another = ~torch.eye(batch.length, dtype=torch.bool, device=batch.device)
    return _alike(batch.word) & (batch.word >= 0).unsqueeze(1) & another


def _within(width: int) -> Callable[[Tensor], Tensor]:
    return lambda away: away.abs() <= width


CLARK, FIG2, PANDE = "clark2019:sec3.1", "clark2019:fig2", "pande2021:sec3.2"
SEC32 = "clark2019:sec3.2"

_DECLARED = (
    by_distance("self", "the piece itself", CLARK, lambda away: away == 0),
    by_distance("previous", "the piece just before", CLARK, lambda away: away == -1),
    by_distance("next", "the piece just after", CLARK, lambda away: away == 1),
    by_distance("earlier", "any piece before", CLARK, lambda away: away < 0),
    by_distance("later", "any piece after", CLARK, lambda away: away > 0),
    by_key("cls", "[CLS], or what the model opens its input with", FIG2),
    by_key("sep", "[SEP], or what the model closes a text with", FIG2),
    Relation(
        "sep_to_sep",
        "[SEP], itself or the other one, from the [SEP] tokens alone",
        lambda batch: batch.sep.unsqueeze(2) & batch.sep.unsqueeze(1),
        source=FIG2,
        asked_of="having",
        metric_key="mass_sep_to_sep",
        short="from [SEP] to [SEP]",
    ),
    Relation(
        "other_to_sep",
        "[SEP], from every other piece",
        lambda batch: ~batch.sep.unsqueeze(2) & batch.sep.unsqueeze(1),
        source=FIG2,
        asked_of="having",
        metric_key="mass_other_to_sep",
        short="from others to [SEP]",
    ),
    by_key("comma", "a comma", FIG2),
    by_key("period", "a full stop", FIG2),
    by_key("period_or_comma", "a full stop or a comma", "clark2019:fig3"),
    by_key("punctuation", "any punctuation mark, commas and full stops included", SEC32),
    Relation(
        "same_segment",
        "a piece of the same part of the input, its [SEP] included",
        lambda batch: _alike(batch.segment),
        source=PANDE,
    ),
    Relation(
        "other_segment",
        "a piece of the other part of a two-part input",
        lambda batch: ~_alike(batch.segment),
        source="guan2020:sec5.3",
        asked_of="having",
    ),
    Relation(
        "same_sentence",
        "a piece of the same sentence",
        lambda batch: _alike(batch.sentence),
        source=PANDE,
    ),
    Relation(
        "same_word",
        "another piece of the same word",
        _same_word,
        source="pande2021:sec2",
        asked_of="having",
    ),
    *(
        by_distance(
            f"within_{width}",
            f"a piece at most {width} away, itself included",
            PANDE,
            _within(width),
            metric_key=f"mass_within_{width}",
        )
        for width in WINDOWS
    ),
)

RELATIONS = MappingProxyType({one.key: one for one in _DECLARED})
"""All declared relations, in the order of declaration; it cannot be changed."""


def relation_named(key: str) -> Relation:
    check_known("relation", [key], RELATIONS, "`attnlib relations` lists all of them.")
    return RELATIONS[key]
