"""Attention along annotated links between words, compared with other word pairs as far apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.attention.maps import Attention
from attnlib.data.examples import FrameExample, ParsedText
from attnlib.errors import check_choice
from attnlib.metrics.registry import Metric, Partial

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
    what = f"Largest attention along a link ({links.name})."
    return _metric(f"link_{links.name}", what, links, direction, control=False)


def control_metric(links: Links, *, direction: str = "both") -> Metric:
    """What `link_metric` finds on other pairs of words that are as far apart as the links.

    The links of an input are moved by some words, those that share a word together, to places
    where none of them is a link and all stay in their text (see `control_sets`): as many pairs, as
    far apart, in the same order. The mean over all such sets is what a head gives to the shape,
    whatever the words mean. Inputs without room for such a set have weight 0.
    """
    what = f"The same for pairs without a link at the same distance ({links.name})."
    return _metric(f"control_{links.name}", what, links, direction, control=True)


def _metric(key: str, what: str, links: Links, direction: str, *, control: bool) -> Metric:
    check_choice("direction", direction, DIRECTIONS)
    places = per_batch(lambda batch: _places(links, batch, control=control))

    def kernel(attention: Attention) -> Partial:
        largest = _largest(attention, direction, places(attention.batch))
        n_sets = (largest >= 0).sum(-1)
        total = largest.clamp_min(0).sum(-1) / n_sets.clamp_min(1)
        return Partial(total, (n_sets[:, 0] > 0).to(total.dtype))

    return Metric(key, what, "kovaleva2019:sec4.2", "weight", (0.0, 1.0), kernel)


def _places(links: Links, batch: Batch, *, control: bool) -> Int[Tensor, "batch set pair"]:
    """Cells of the word map (row, column as one number) of each set of pairs; -1 is none.

    The one set are the links, or with `control` all sets of other pairs.
    """
    width = _width(batch)
    rows: list[list[list[Pair]]] = []
    for row, index in enumerate(batch.index):
        # A word may have no piece: it was cut off, or the model cannot see it.
        word, segment = batch.word[row].tolist(), batch.segment[row].tolist()
        part = {one: side for one, side in zip(word, segment, strict=True) if one >= 0}
        own = [(a, b) for a, b in links.pairs[index] if a in part and b in part]
        sets = control_sets(own, part) if control else [own]
        rows.append([one for one in sets if one])
    n_sets = max((len(row) for row in rows), default=0)
    n_pairs = max((len(one) for row in rows for one in row), default=0)
    found = torch.full((len(rows), max(n_sets, 1), max(n_pairs, 1)), -1)
    for at, sets in enumerate(rows):
        for place, one in enumerate(sets):
            found[at, place, : len(one)] = torch.tensor([a * width + b for a, b in one])
    return found.to(batch.device)


def control_sets(own: Sequence[Pair], part: Mapping[int, int]) -> list[list[Pair]]:
    """Sets of other pairs with the shape of the links.

    part  the text that each word is in

    Links that share a word are moved together, others by themselves; links of one shape go to
    different places. A set is complete or left out: a maximum over fewer pairs would be lower.
    """
    linked = {pair for a, b in own for pair in ((a, b), (b, a))}
    shapes: dict[tuple[Pair, ...], list[int]] = {}
    for group in _connected(own):
        start = min(min(pair) for pair in group)
        shape = tuple(sorted((a - start, b - start) for a, b in group))
        shapes.setdefault(shape, []).append(start)
    runs_of_shapes = []
    for shape, starts in shapes.items():
        together = [part[starts[0] + a] == part[starts[0] + b] for a, b in shape]

        def fits(at: int, shape: Any = shape, together: Any = together) -> bool:
            moved = [(at + a, at + b) for a, b in shape]
            there = all(a in part and b in part and (a, b) not in linked for a, b in moved)
            return there and [part[a] == part[b] for a, b in moved] == together

        places = [at for at in sorted(part) if fits(at)]
        n = len(starts)
        if len(places) < n:
            return []
        runs = [[places[(s + i) % len(places)] for i in range(n)] for s in range(len(places))]
        runs_of_shapes.append((shape, runs))
    n_sets = max((len(runs) for _, runs in runs_of_shapes), default=0)
    return [
        [
            (at + a, at + b)
            for shape, runs in runs_of_shapes
            for at in runs[s % len(runs)]
            for a, b in shape
        ]
        for s in range(n_sets)
    ]


def _connected(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """The pairs in groups: two that share a word are in one."""
    groups: list[tuple[set[int], list[Pair]]] = []
    for pair in pairs:
        touched = [group for group in groups if group[0] & set(pair)]
        words = set(pair).union(*(group[0] for group in touched))
        members = [*(one for group in touched for one in group[1]), pair]
        groups = [group for group in groups if group not in touched] + [(words, members)]
    return [members for _, members in groups]


def _width(batch: Batch) -> int:
    return max(int(batch.word.amax()) + 1 if batch.word.numel() else 0, 1)


def _largest(
    attention: Attention, direction: str, places: Int[Tensor, "batch set pair"]
) -> Float[Tensor, "batch head set"]:
    """The largest weight in each set of word pairs; -1 where a set is empty."""
    words = _word_maps(attention.weights, attention.batch)
    if direction != "forward":
        turned = words.transpose(-1, -2)
        words = torch.maximum(words, turned) if direction == "both" else turned
    n_head = words.shape[1]
    at = places.clamp_min(0).flatten(1)[:, None].expand(-1, n_head, -1)
    found = words.flatten(2).gather(-1, at).unflatten(-1, places.shape[1:])
    return found.masked_fill((places < 0)[:, None], -1.0).amax(-1)


def _word_maps(
    weights: Float[Tensor, "batch head query key"], batch: Batch
) -> Float[Tensor, "batch head word word"]:
    """The largest weight between any piece of one word and any of another; once per batch row."""
    width = _width(batch)
    word = torch.where(batch.word >= 0, batch.word, width)  # what is no word goes to one cell more
    n, heads, length, _ = weights.shape
    by_key = weights.new_zeros(n, heads, length, width + 1).scatter_reduce(
        -1, word[:, None, None, :].expand_as(weights), weights, "amax"
    )
    index = word[:, None, :, None].expand_as(by_key)
    both = weights.new_zeros(n, heads, width + 1, width + 1)
    return both.scatter_reduce(-2, index, by_key, "amax")[..., :width, :width]


def linked_pieces(links: Links, batch: Batch) -> Bool[Tensor, "batch query key"]:
    """Where a pair of pieces is on a link, in its direction."""
    width = _width(batch)
    between = torch.zeros(len(batch), width, width, dtype=torch.bool)
    for row, (index, words) in enumerate(
        zip(batch.index, batch.word.amax(-1).tolist(), strict=True)
    ):
        for a, b in links.pairs[index]:
            if max(a, b) <= words:  # the rest of a long input was cut off
                between[row, a, b] = True
    between = between.to(batch.device)
    word = batch.word.clamp_min(0)
    rows = torch.arange(len(batch), device=batch.device)[:, None, None]
    real = batch.word >= 0
    linked = between[rows, word[:, :, None], word[:, None, :]]
    return linked & real[:, :, None] & real[:, None, :]
