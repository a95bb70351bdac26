"""Attention along annotated links between words, beside other word pairs at the same distance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from attnlib.attention import Attention
from attnlib.encode import Batch
from attnlib.errors import check_choice
from attnlib.examples import FrameExample, ParsedText
from attnlib.metric import Metric, Partial

Pair = tuple[int, int]
"""(word that attends, word attended to), counted over both parts of an input."""

Finder = Callable[[Any], Sequence[Pair]]
DIRECTIONS = ("both", "forward", "backward")
T = TypeVar("T")


@dataclass(frozen=True)
class Links:
    """The links of every input of a corpus, by its place in the corpus."""

    name: str
    pairs: tuple[tuple[Pair, ...], ...]

    def n_inputs(self) -> int:
        """Inputs that have a link at all."""
        return sum(bool(pairs) for pairs in self.pairs)


def found_links(name: str, examples: Sequence[Any], finder: Finder) -> Links:
    """The links that a finder sees in each example, each once and in order."""
    return Links(name, tuple(tuple(sorted(set(finder(example)))) for example in examples))


def frame_links(example: FrameExample) -> list[Pair]:
    """From each word of the target to each word of a core element (Kovaleva 2019, sec. 4.2)."""
    return [
        (t, e)
        for _, element in example.core_elements
        for t in range(example.target.start, example.target.end)
        for e in range(element.start, element.end)
    ]


def relation_links(*labels: str) -> Finder:
    """From each head to its dependants with one of these labels, such as a verb to its subject."""

    def finder(example: Any) -> list[Pair]:
        arcs = zip(example.heads, example.relations, strict=True)
        return [
            (head, word) for word, (head, label) in enumerate(arcs) if label in labels if head >= 0
        ]

    return finder


def tag_links(first: Sequence[str], second: Sequence[str]) -> Finder:
    """From each word with a tag of the first kind to each of the second in the same sentence."""

    def finder(example: Any) -> list[Pair]:
        root = [_root(example.heads, word) for word in range(len(example.heads))]
        ones = [w for w, tag in enumerate(example.tags) if tag in first]
        others = [w for w, tag in enumerate(example.tags) if tag in second]
        return [(a, b) for a in ones for b in others if root[a] == root[b]]

    return finder


def _root(heads: Sequence[int], word: int) -> int:
    for _ in range(len(heads)):  # a tree cannot be deeper
        if heads[word] < 0:
            break
        word = heads[word]
    return word


def copy_links(example: ParsedText) -> list[Pair]:
    """From each word of one text to the same word in the other text of a pair."""
    words = words_of(example)
    border = len(example.word_starts[0]) if example.word_starts else len(example.parts[0])
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        if word.isalnum():
            places.setdefault(word.lower(), []).append(place)
    return [
        (a, b)
        for same in places.values()
        for a in same
        for b in same
        if (a < border) != (b < border)
    ]


def words_of(example: Any) -> list[str]:
    """The parsed words of an input, over both parts."""
    if getattr(example, "word_starts", None) is None:
        return [word for part in example.parts for word in part]
    return [
        part[start:end].strip()
        for part, starts in zip(example.parts, example.word_starts, strict=True)
        for start, end in zip(starts, (*starts[1:], len(part)), strict=True)
    ]


# --- metrics --------------------------------------------------------------------------------------


def per_batch(make: Callable[[Batch], T]) -> Callable[[Batch], T]:
    """The same function, asked once for each batch: every layer comes with the same one."""
    made: WeakKeyDictionary[Batch, T] = WeakKeyDictionary()

    def known(batch: Batch) -> T:
        if batch not in made:
            made[batch] = make(batch)
        return made[batch]

    return known


def link_metric(links: Links, *, direction: str = "both") -> Metric:
    """The largest weight of any pair of pieces on a link; inputs without a link have weight 0.

    direction  "forward" follows the links, "backward" goes against them (the authors' code, for
               frames: from the element to the target), "both" takes the larger
    """
    check_choice("direction", direction, DIRECTIONS)
    linked = per_batch(lambda batch: linked_pieces(links, batch, direction))

    def kernel(attention: Attention) -> Partial:
        return _largest(attention.weights, linked(attention.batch))

    return _metric(f"link_{links.name}", f"Largest attention along a link ({links.name}).", kernel)


def control_metric(links: Links, *, direction: str = "both") -> Metric:
    """What `link_metric` finds on pairs of words as far apart, in the same order, without a link.

    As many pairs as a link has are taken as a set: the set of all pairs that lie one or more words
    before or after it. The mean over these sets of the largest weight is what a head gives to such
    a distance, whatever the words mean.
    """
    check_choice("direction", direction, DIRECTIONS)
    shifts = per_batch(lambda batch: _shifts(links, batch, direction))

    def kernel(attention: Attention) -> Partial:
        total = attention.weights.new_zeros(attention.weights.shape[:2])
        n_sets = total.new_zeros(len(total))
        for linked in shifts(attention.batch):
            found = _largest(attention.weights, linked)
            total, n_sets = total + found.total, n_sets + found.weight
        return Partial(total / n_sets.clamp_min(1)[:, None], (n_sets > 0).to(total.dtype))

    what = f"The same for pairs without a link at the same distance ({links.name})."
    return _metric(f"control_{links.name}", what, kernel)


def _metric(key: str, what: str, kernel: Callable[[Attention], Partial]) -> Metric:
    return Metric(key, what, "kovaleva2019:sec4.2", "weight", (0, 1), kernel)


def _largest(weights: Tensor, linked: Tensor) -> Partial:
    """The largest weight where a pair is linked, per example and head."""
    has = linked.flatten(1).any(-1)
    found = weights.masked_fill(~linked[:, None], 0.0).amax((-1, -2))
    return Partial(found, has.to(found.dtype))


def linked_pieces(links: Links, batch: Batch, direction: str, shift: int = 0) -> Tensor:
    """Where (batch, query, key) a pair of pieces lies on a link, moved by some words."""
    width = int(batch.word.amax()) + 1 if batch.word.numel() else 0
    between = torch.zeros(len(batch), max(width, 1), max(width, 1), dtype=torch.bool)
    known = batch.word.cpu()
    for row, index in enumerate(batch.index):
        n_words = int(known[row].amax()) + 1
        own = set(links.pairs[index])
        for pair in own:
            a, b = pair[0] + shift, pair[1] + shift
            if min(a, b) < 0 or max(a, b) >= n_words or (shift and (a, b) in own):
                continue
            if direction != "backward":
                between[row, a, b] = True
            if direction != "forward":
                between[row, b, a] = True
    between = between.to(batch.device)
    word = batch.word.clamp_min(0)
    rows = torch.arange(len(batch), device=batch.device)[:, None, None]
    linked = between[rows, word[:, :, None], word[:, None, :]]
    real = batch.word >= 0
    return linked & real[:, :, None] & real[:, None, :]


def _shifts(links: Links, batch: Batch, direction: str) -> list[Tensor]:
    width = int(batch.word.amax()) + 1 if batch.word.numel() else 0
    moved = (linked_pieces(links, batch, direction, s) for s in range(-width + 1, width) if s)
    return [linked for linked in moved if linked.any()]
