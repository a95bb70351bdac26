"""The word each head picks for each word, and the dependencies it finds (Clark 2019, sec. 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlib.attention.encode import Progress
from attnlib.attention.maps import refuse_infinite
from attnlib.attention.words import word_maps
from attnlib.data.corpora import ALIASES, Corpus, known_corpora, load_corpus
from attnlib.data.examples import Tree
from attnlib.errors import BadValue, CorpusError, UnknownName, check_choice, did_you_mean
from attnlib.models import Encoder

ALL = "all"
ON_LONG = ("error", "skip", "truncate")
"""A tree cut into windows would be several broken trees."""
NOBODY = -1
"""In place of a word: a root's head, and what a word picks that has no other word to pick."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What every head picks for every word of some trees; one row per word, in corpus order.

    sentence   which tree the word is in        position  its place there
    gold       the place of its head word       relation  its full label
    form       the word in lower case           pieces    False where the tokenizer dropped it
    attended   (word, head)  the place of the other word that it attends to most
    attending  (word, head)  the place of the other word that attends to it most
    """

    model: str
    n_layers: int
    n_heads: int
    skipped: dict[str, int]
    sentence: Int[np.ndarray, " word"]
    position: Int[np.ndarray, " word"]
    gold: Int[np.ndarray, " word"]
    relation: np.ndarray
    form: np.ndarray
    pieces: Bool[np.ndarray, " word"]
    attended: Int[np.ndarray, "word head"]
    attending: Int[np.ndarray, "word head"]

    def __len__(self) -> int:
        return len(self.sentence)

    @cached_property
    def first(self) -> np.ndarray:
        """Row of the first word of each word's sentence: (word,)."""
        return np.arange(len(self)) - self.position

    @cached_property
    def rank(self) -> np.ndarray:
        """Each word's sentence, counted without the skipped ones: (word,)."""
        return np.asarray(np.unique(self.sentence, return_inverse=True)[1])

    @property
    def n_sentences(self) -> int:
        return int(self.rank.max()) + 1

    @cached_property
    def scored(self) -> np.ndarray:
        """Words with a head word, where both have pieces and so attention: (word,)."""
        return (self.gold != NOBODY) & self.pieces & self.pieces[self.first + self.gold]

    @cached_property
    def counts(self) -> dict[str, int]:
        """Dependencies of each relation, the most frequent first."""
        return dict(Counter(self.relation[self.scored].tolist()).most_common())

    def dependents(self, relation: str, variant: str = "paper") -> np.ndarray:
        """Rows of the dependents of a relation.

        "all" is every word with a head word but punctuation. Differs from the authors' code, which
        counts punctuation, and roots, which no head can get right.
        """
        if relation != ALL:
            return np.flatnonzero(self.scored & (self.relation == relation))
        if variant == "authors":
            return np.flatnonzero(self.scored | (self.pieces & (self.gold == NOBODY)))
        punctuation = [label for label in self.counts if is_punct(label)]
        return np.flatnonzero(self.scored & ~np.isin(self.relation, punctuation))

    def head_name(self, head: int) -> str:
        """`5-4` for the fourth head of the fifth layer."""
        return f"{head // self.n_heads + 1}-{head % self.n_heads + 1}"


def is_punct(label: str) -> bool:
    return label.partition(":")[0] == "punct"


def load_trees(name: str | Path, *, limit: int | None = None, seed: int = 0) -> Corpus:
    """The treebank of that name or file; a corpus of another kind is refused, unread if known."""
    known, given = known_corpora(), ALIASES.get(str(name), str(name))
    info = known.get(given) or known.get(f"{given}:dev")
    found = info or load_corpus(name, limit=limit, seed=seed)
    if found.kind != "tree":
        banks = ", ".join(key for key, other in known.items() if other.kind == "tree")
        raise CorpusError(
            f"'{name}' holds no dependency trees but examples of kind {found.kind}. Expected one "
            f"of {banks}, or a .conllu file of your own."
        )
    return found if isinstance(found, Corpus) else load_corpus(name, limit=limit, seed=seed)


def tree_relations(trees: Iterable[Tree]) -> set[str]:
    """Labels of the words that have a head word."""
    return {
        label
        for tree in trees
        for label, head in zip(tree.relations, tree.heads, strict=True)
        if head != NOBODY
    }


def check_relations(relations: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a relation that joins no two words."""
    labels = sorted(known)
    for name in relations:
        if name != ALL and name not in labels:
            raise UnknownName(
                f"relation '{name}' joins no two words of these trees. "
                f"{did_you_mean(name, [ALL, *labels])}They have: {', '.join([ALL, *labels])}."
            )


def check_at_least_one(name: str, given: int) -> None:
    if given < 1:
        raise BadValue(f"{name} is {given}; expected 1 or more.")


def most_attended(
    weights: Float[Tensor, "batch head word word"], real: Bool[Tensor, "batch word"]
) -> tuple[Int[Tensor, "batch word head"], Int[Tensor, "batch word head"]]:
    r"""The other word each word attends to most, and the other word that attends to it most.

    .. math:: \hat k(q) = \arg\max_{k \ne q} \bar a_{qk}, \qquad
              \hat q(k) = \arg\max_{q \ne k} \bar a_{qk}

    Clark 2019, sec. 4.1: [CLS] and [SEP] are ignored, the word itself is not an answer. Of equal
    weights the first word wins. -1 where there is no other word, and for words that are not real.
    """
    others = real.unsqueeze(2) & real.unsqueeze(1)
    others = others & ~torch.eye(real.shape[1], dtype=torch.bool, device=real.device)
    open_to = weights.masked_fill(~others.unsqueeze(1), -1.0)
    answers = others.any(-1).unsqueeze(1)
    picks = (torch.where(answers, open_to.argmax(axis), NOBODY) for axis in (-1, -2))
    attended, attending = (pick.transpose(1, 2).to(torch.int16) for pick in picks)
    return attended, attending


def predictions(
    encoder: Encoder,
    trees: Sequence[Tree],
    *,
    from_pieces: str = "mean",
    max_length: int = 128,
    batch_size: int = 16,
    on_long: str = "skip",
    progress: Progress | None = None,
) -> Predictions:
    """One pass over trees: what every head picks for every word; maps are forgotten at once.

    >>> from attnlib import predictions, random_encoder
    >>> from attnlib.data.examples import Tree
    >>> tree = Tree("t", ("a", "cat", "sat"), (1, 2, -1), ("det", "nsubj", "root"), ("X",) * 3)
    >>> predictions(random_encoder(), [tree]).attended.shape  # (word, head)
    (3, 4)
    """
    check_choice("on-long", on_long, ON_LONG)
    skipped: Counter[str] = Counter()
    starts = np.cumsum([0, *(len(tree.words) for tree in trees)])
    shape = (int(starts[-1]), encoder.n_layers * encoder.n_heads)
    attended, attending = np.full(shape, NOBODY, np.int16), np.full(shape, NOBODY, np.int16)
    pieces, seen = np.zeros(shape[0], bool), np.zeros(shape[0], bool)
    how: Any = {"from_pieces": from_pieces, "max_length": max_length, "on_long": on_long}
    how |= {"batch_size": batch_size, "skipped": skipped, "progress": progress}
    for maps in word_maps(encoder, trees, **how):
        finite = maps.weights.isfinite().flatten(1).all(1)
        refuse_infinite(encoder.name, "its attention is not finite", finite, maps.index)
        real = maps.real_words()
        picks = [pick.cpu().numpy() for pick in most_attended(maps.between_words(), real)]
        for row, tree in enumerate(maps.index):
            seen[starts[tree] : starts[tree + 1]] = True
            n_words = min(len(trees[tree].words), maps.n_words)  # the last may have no pieces
            here = slice(starts[tree], starts[tree] + n_words)
            attended[here], attending[here] = (pick[row, :n_words] for pick in picks)
            pieces[here] = real[row, :n_words].cpu().numpy()
    if not seen.any():
        reasons = ", ".join(f"{n} {reason}" for reason, n in skipped.items()) or "no trees"
        raise CorpusError(
            f"no tree is left to measure ({reasons}). Expected at least one; choose another "
            "--max-length or --on-long."
        )
    if n_without := int((seen & ~pieces).sum()):
        skipped["words without pieces"] = n_without
    return Predictions(
        encoder.name,
        encoder.n_layers,
        encoder.n_heads,
        dict(skipped),
        sentence=np.repeat(np.arange(len(trees)), np.diff(starts))[seen],
        position=np.concatenate([np.arange(len(tree.words)) for tree in trees])[seen],
        gold=np.concatenate([np.array(tree.heads, int) for tree in trees])[seen],
        relation=np.array([label for tree in trees for label in tree.relations])[seen],
        form=np.array([word.lower() for tree in trees for word in tree.words], object)[seen],
        pieces=pieces[seen],
        attended=attended[seen],
        attending=attending[seen],
    )
