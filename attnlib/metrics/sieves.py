"""Sieves and their bias score: how much more than its even share a head gives to a set of keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from types import MappingProxyType

import torch
from torch import Tensor

from attnlib.attention.encode import Batch, dependency_id
from attnlib.attention.maps import Attention
from attnlib.errors import BadValue, check_choice, check_known
from attnlib.metrics.mass import n_having
from attnlib.metrics.registry import METRICS, LinearKernel, Metric, Partial, mass_by_query
from attnlib.metrics.relations import RELATIONS, Held, Relation, by_distance, by_key, relation

SOURCE = "pande2021:sec3.2"
DIRECTIONS = ("dep->head", "head->dep", "both")
LOCAL_WINDOW = 2
DEPENDENCIES = {
    "nsubj": ("nsubj",),
    "dobj": ("dobj", "obj"),
    "amod": ("amod",),
    "advmod": ("advmod",),
}
"""The paper's four relations, each with the labels it has: UD calls a direct object obj."""


# --- declaring sieves ----------------------------------------------------------------------------


def sieve(key: str, what: str, source: str = "own") -> Callable[[Held], Relation]:
    """Make a sieve of a function, as `relation` does; it asks queries that have such a key.

    >>> from attnlib import attention_maps, random_encoder, sieve
    >>> from attnlib.metrics.sieves import bias_metric
    >>> @sieve("same_piece", "a piece that reads the same")
    ... def same_piece(batch):
    ...     return batch.ids.unsqueeze(2) == batch.ids.unsqueeze(1)
    >>> bias_metric(same_piece)(attention_maps(random_encoder(), "a cat")).weight  # queries asked
    tensor([6.])

    `role_scores` takes it among the sieves of the paper.
    """
    return relation(key, what, source, asked_of="having")


def local(window: int = LOCAL_WINDOW, *, before: bool = True, after: bool = True) -> Relation:
    """Pieces at most `window` away: on both sides with the piece itself, or on one side only."""
    if window < 1:
        raise BadValue(f"the window of a local sieve is {window}; expected 1 or more.")
    if not (before or after):
        raise BadValue("a local sieve looks neither before nor after; expected one side or both.")
    name = "local" if before and after else "previous_local" if before else "next_local"
    side = "away, itself included" if before and after else "before" if before else "after"
    key = name if window == LOCAL_WINDOW else f"{name}_{window}"
    low, high = (-window if before else 1), (window if after else -1)
    return by_distance(
        key,
        f"a piece at most {window} {side}",
        SOURCE,
        lambda away: (away >= low) & (away <= high),
        asked_of="having",
    )


def syntactic(
    labels: Sequence[str], key: str = "", *, direction: str = "dep->head", what: str = ""
) -> Relation:
    """Pieces of the word that has one of these dependency relations to the query's word.

    direction  "dep->head": from a dependent to its head, as in the authors' code; or the other
               way; or both. An example without a tree has no such pairs.
    """
    check_choice("direction", direction, DIRECTIONS)
    if isinstance(labels, str) or not labels:
        raise BadValue(f"the labels of a syntactic sieve are {labels!r}; expected a list of names.")
    key = key or "_".join(labels)
    key = key if direction == "dep->head" else f"{key}_{direction.replace('->', '_')}"

    def pairs(batch: Batch) -> Tensor:
        known = torch.tensor([dependency_id(label) for label in labels], device=batch.device)
        governor = torch.where(torch.isin(batch.dependency, known), batch.governor, -2)
        to_head = governor.unsqueeze(2) == batch.word.unsqueeze(1)
        if direction == "dep->head":
            return to_head
        to_dependent = to_head.transpose(1, 2)
        return to_dependent if direction == "head->dep" else to_head | to_dependent

    whom = {"dep->head": "the head of", "head->dep": "a dependent in", "both": "the other end of"}
    what = f"{whom[direction]} {what or f'its {key} relation'}"
    return Relation(key, what, pairs, asked_of="having", source=SOURCE)


@sieve("block", "a word of the same text of a pair", SOURCE)
def block(batch: Batch) -> Tensor:
    """[CLS] and [SEP] belong to neither text; an input of one text has no blocks."""
    content = batch.word >= 0
    pair = (content & (batch.segment == 1)).any(-1) & (content & (batch.segment == 0)).any(-1)
    same = batch.segment.unsqueeze(2) == batch.segment.unsqueeze(1)
    return same & content.unsqueeze(2) & content.unsqueeze(1) & pair[:, None, None]


_LABELS = tuple(chain.from_iterable(DEPENDENCIES.values()))

_FOUND = (
    local(),
    local(after=False),
    local(before=False),
    block,
    RELATIONS["cls"],
    RELATIONS["sep"],
    by_key("delimiter", "[CLS] or [SEP]", SOURCE, lambda b: b.cls | b.sep, asked_of="having"),
    *(syntactic(labels, key) for key, labels in DEPENDENCIES.items()),
    syntactic(_LABELS, "syntactic", what="its nsubj, dobj, amod or advmod relation"),
)

SIEVES = MappingProxyType({found.key: found for found in _FOUND})
"""The sieves of the paper, by role: four coarse ones and the parts that it splits them into."""


def chosen_sieves(
    roles: Sequence[str] | None = None,
    *,
    window: int = LOCAL_WINDOW,
    direction: str = "dep->head",
) -> list[Relation]:
    """The paper's sieves, or some of them, with another window or direction."""
    check_known("role", roles or (), SIEVES)
    found = dict(SIEVES)
    if window != LOCAL_WINDOW:
        found["local"] = local(window)
        found["previous_local"] = local(window, after=False)
        found["next_local"] = local(window, before=False)
    if direction != "dep->head":
        arcs = {**DEPENDENCIES, "syntactic": _LABELS}
        found |= {key: syntactic(labels, key, direction=direction) for key, labels in arcs.items()}
    return [found[role] for role in dict.fromkeys(roles or SIEVES)]


def asks_for_trees(relation: Relation) -> bool:
    """Whether a sieve may look at dependency trees; of a user's own nobody knows."""
    return SIEVES.get(relation.key) is not relation or relation.key in AUTHORS_BY_WORD


COARSE = ("local", "block", "delimiter", "syntactic")
FINE = (
    *("previous_local", "next_local", "block", "cls", "sep"),
    *("nsubj", "dobj", "amod", "advmod"),
)
"""The nine roles of Fig. 5: the four coarse ones, split."""


# --- the score -----------------------------------------------------------------------------------


def even_share(
    batch: Batch,
    held: Tensor,
    variant: str,
    *,
    relation: Relation,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """n / |S| for every query, or for every example if the key alone decides; queries asked."""
    n_keys = held.sum(-1).to(dtype)
    asked = n_having(batch, held)
    n_real = (batch.n_real if n_keys.dim() == 1 else batch.n_real.unsqueeze(-1)).to(dtype)
    divisor = n_keys.clamp_min(1)
    if variant == "authors" and relation.key == "local":
        position = torch.arange(batch.length, device=batch.device)
        divisor = divisor + (position >= n_real - LOCAL_WINDOW)
    if variant == "authors" and relation.key in AUTHORS_BY_WORD:
        same_word = batch.word.unsqueeze(2) == batch.word.unsqueeze(1)
        pieces = same_word.sum(-1).to(torch.float32)
        divisor = divisor * pieces
        asked = torch.where(n_keys > 0, 1 / pieces, 0.0).sum(-1).round()
    return torch.where(n_keys > 0, n_real / divisor, 0.0), asked


def _block_by_entropy(attention: Attention) -> Partial:
    batch = attention.batch
    text = torch.where(batch.cls, 0, torch.where(batch.sep, 1, batch.segment))
    content = (batch.word >= 0) & batch.real
    pair = block.mask(batch).any(-1).any(-1)
    held = text.unsqueeze(2) == batch.segment.unsqueeze(1)
    held = held & content.unsqueeze(1) & batch.real.unsqueeze(2) & pair[:, None, None]
    dtype = attention.weights.dtype
    counts, asked = even_share(batch, held, "authors", relation=block, dtype=dtype)
    rows = torch.where(held.any(-1).unsqueeze(1), attention.row_entropy, 0.0)
    return Partial((mass_by_query(attention, held) * counts.unsqueeze(1) * rows).sum(-1), asked)


AUTHORS_BY_WORD = frozenset((*DEPENDENCIES, "syntactic"))


def bias_metric(relation: Relation) -> Metric:
    r"""Attention to the keys of a sieve over what they would get if all keys got the same.

    .. math:: \beta(t) = \frac{1}{|S(t)|} \sum_{s \in S(t)} a_{ts} \Big/ \frac{1}{n} \sum_k a_{tk}

    Rows of real queries sum to 1, so that the second fraction is 1/n, with n the real pieces; the
    mean is over the queries asked: those whose sieve is not empty.

    Pande 2021, sec. 3.2; 1 for a head that attends to all keys equally; also for a sieve of the
    user's own. variant="authors" follows the released code where it differs: the divisor of
    `local` is 1 too large for the last tokens; the score of `block` has [CLS] as a query of the
    first text and every [SEP] as one of the second, and is multiplied with the entropy of its row;
    a syntactic score is a mean over relations, not over pieces.
    """
    known = SIEVES.get(relation.key) is relation
    differs = known and relation.key in AUTHORS_BY_WORD | {"local", "block"}
    others = {"authors": _block_by_entropy} if known and relation.key == "block" else {}
    return Metric(
        key=f"bias_{relation.key}",
        what=f"Attention to {relation.what}, over its even share.",
        source=SOURCE,
        unit="times the even share",
        bounds=(0.0, "n_key"),
        kernel=LinearKernel(relation, even_share, others),
        variants=("paper", "authors") if differs else ("paper",),
    )


for _relation in SIEVES.values():
    METRICS.declare(bias_metric(_relation))
