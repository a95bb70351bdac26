"""Relations between a query and a key, declared once: the vocabulary of all four papers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.errors import UnknownName, did_you_mean

AskedOf = Literal["every", "having"]
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
    """

    key: str
    what: str
    pairs: Callable[..., Tensor]
    asked_of: AskedOf = "every"
    positional: bool = False
    metric_key: str = ""
    source: str = "own"
    short: str = ""
    keys: Callable[[Batch], Tensor] | None = None

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


_RELATIONS: dict[str, Relation] = {}


def relation(
    key: str,
    what: str,
    source: str,
    *,
    asked_of: AskedOf = "every",
    positional: bool = False,
    metric_key: str | None = None,
    short: str = "",
) -> Callable[[Callable[..., Tensor]], Relation]:
    """Declare a relation of this module; users build a `Relation` and hand it to `measure`."""

    def declare(pairs: Callable[..., Tensor]) -> Relation:
        if key in _RELATIONS:
            raise ValueError(f"relation '{key}' is declared twice")
        name = metric_key or f"mass_to_{key}"
        _RELATIONS[key] = Relation(key, what, pairs, asked_of, positional, name, source, short)
        return _RELATIONS[key]

    return declare


def _distance(length: int, device: torch.device) -> Tensor:
    """key - query, for all pairs."""
    position = torch.arange(length, device=device)
    return position.unsqueeze(0) - position.unsqueeze(1)


def key_relation(
    key: str, what: str, source: str
) -> Callable[[Callable[[Batch], Tensor]], Relation]:
    """Declare a relation that holds for every query wherever the key is of some kind."""

    def declare(keys: Callable[[Batch], Tensor]) -> Relation:
        def pairs(batch: Batch) -> Tensor:
            return keys(batch).unsqueeze(1).expand(-1, batch.length, -1)

        found = replace(relation(key, what, source)(pairs), keys=keys)
        _RELATIONS[key] = found
        return found

    return declare


@relation("self", "the piece itself", "clark2019:sec3.1", positional=True)
def to_self(length: int, device: torch.device) -> Tensor:
    return _distance(length, device) == 0


@relation("previous", "the piece just before", "clark2019:sec3.1", positional=True)
def to_previous(length: int, device: torch.device) -> Tensor:
    return _distance(length, device) == -1


@relation("next", "the piece just after", "clark2019:sec3.1", positional=True)
def to_next(length: int, device: torch.device) -> Tensor:
    return _distance(length, device) == 1


@relation("earlier", "any piece before", "clark2019:sec3.1", positional=True)
def to_earlier(length: int, device: torch.device) -> Tensor:
    return _distance(length, device) < 0


@relation("later", "any piece after", "clark2019:sec3.1", positional=True)
def to_later(length: int, device: torch.device) -> Tensor:
    return _distance(length, device) > 0


@key_relation(
    "cls",
    "[CLS], or what the model opens its input with",
    "clark2019:fig2",
)
def to_cls(batch: Batch) -> Tensor:
    return batch.cls


@key_relation(
    "sep",
    "[SEP], or what the model closes a text with",
    "clark2019:fig2",
)
def to_sep(batch: Batch) -> Tensor:
    return batch.sep


@relation(
    "sep_to_sep",
    "[SEP], itself or the other one, from the [SEP] tokens alone",
    "clark2019:fig2",
    asked_of="having",
    metric_key="mass_sep_to_sep",
    short="from [SEP] to [SEP]",
)
def sep_to_sep(batch: Batch) -> Tensor:
    return batch.sep.unsqueeze(2) & batch.sep.unsqueeze(1)


@relation(
    "other_to_sep",
    "[SEP], from every other piece",
    "clark2019:fig2",
    asked_of="having",
    metric_key="mass_other_to_sep",
    short="from others to [SEP]",
)
def other_to_sep(batch: Batch) -> Tensor:
    return ~batch.sep.unsqueeze(2) & batch.sep.unsqueeze(1)


@key_relation(
    "comma",
    "a comma",
    "clark2019:fig2",
)
def to_comma(batch: Batch) -> Tensor:
    return batch.comma


@key_relation(
    "period",
    "a full stop",
    "clark2019:fig2",
)
def to_period(batch: Batch) -> Tensor:
    return batch.period


@key_relation("period_or_comma", "a full stop or a comma", "clark2019:fig3")
def to_period_or_comma(batch: Batch) -> Tensor:
    return batch.period | batch.comma


@key_relation(
    "punctuation",
    "any punctuation mark, commas and full stops included",
    "clark2019:sec3.2",
)
def to_punctuation(batch: Batch) -> Tensor:
    return batch.punctuation


@relation(
    "same_segment",
    "a piece of the same part of the input, its [SEP] included",
    "pande2021:sec3.2",
)
def to_same_segment(batch: Batch) -> Tensor:
    return batch.segment.unsqueeze(2) == batch.segment.unsqueeze(1)


@relation(
    "other_segment",
    "a piece of the other part of a two-part input",
    "guan2020:sec5.3",
    asked_of="having",
)
def to_other_segment(batch: Batch) -> Tensor:
    return batch.segment.unsqueeze(2) != batch.segment.unsqueeze(1)


@relation(
    "same_sentence",
    "a piece of the same sentence",
    "pande2021:sec3.2",
)
def to_same_sentence(batch: Batch) -> Tensor:
    return batch.sentence.unsqueeze(2) == batch.sentence.unsqueeze(1)


@relation("same_word", "another piece of the same word", "pande2021:sec2", asked_of="having")
def to_same_word(batch: Batch) -> Tensor:
    same = (batch.word.unsqueeze(2) == batch.word.unsqueeze(1)) & (batch.word >= 0).unsqueeze(1)
    return same & ~to_self.mask(batch)


def _window(width: int) -> Callable[[int, torch.device], Tensor]:
    def within(length: int, device: torch.device) -> Tensor:
        return _distance(length, device).abs() <= width

    return within


for _width in WINDOWS:
    relation(
        f"within_{_width}",
        f"a piece at most {_width} away, itself included",
        "pande2021:sec3.2",
        positional=True,
        metric_key=f"mass_within_{_width}",
    )(_window(_width))

RELATIONS = MappingProxyType(_RELATIONS)
"""All declared relations, in the order of declaration; it cannot be changed."""


def relation_named(key: str) -> Relation:
    if key not in RELATIONS:
        raise UnknownName(
            f"relation '{key}'. {did_you_mean(key, RELATIONS)}"
            "`attnlib relations` lists all of them."
        )
    return RELATIONS[key]
