"""The word each head picks for each word, and the dependencies that heads and offsets find.

Clark 2019, sec. 4.2, Table 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlib.attention.maps import refuse_infinite
from attnlib.attention.words import N_SPECIAL, word_maps
from attnlib.data.corpora import Corpus, corpus_name, known_corpora, load_corpus
from attnlib.data.examples import Tree
from attnlib.errors import BadValue, CorpusError, UnknownName, check_choice, did_you_mean
from attnlib.measuring.bootstrap import REPLICATES, by_group, estimate
from attnlib.models import Encoder

ALL = "all"
ON_LONG = ("error", "skip", "truncate")
"""A tree cut into windows would be several broken trees."""
NOBODY = -1
"""In place of a word: a root's head, and what a word picks that has no other word to pick."""

DIRECTIONS = ("dep->head", "head->dep")
VARIANTS = ("paper", "authors")
OFFSETS = {"paper": (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5), "authors": (-3, -2, -1, 1, 2)}
POSSESSIVE = ("poss", "nmod:poss")
CLITICS = ("'s", "’s", "'", "’")
QUANTITIES = (
    ("accuracy", "low", "high"),
    ("baseline", "", ""),
    ("gain", "gain_low", "gain_high"),
    ("clean_accuracy", "clean_low", "clean_high"),
    ("clean_baseline", "", ""),
    ("clean_gain", "clean_gain_low", "clean_gain_high"),
)
COLUMNS = (
    *("relation", "n", "head", "direction", "accuracy", "low", "high"),
    *("baseline", "offset", "gain", "gain_low", "gain_high"),
    *("clean_accuracy", "clean_low", "clean_high", "clean_baseline", "clean_head"),
    *("clean_gain", "clean_gain_low", "clean_gain_high"),
)


# --- what every head picks ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Predictions:
    """What every head picks for every word of some trees; one row per word, in corpus order.

    sentence   which tree the word is in        position  its place there
    document   which document the tree is from; a tree that names none is its own
    gold       the place of its head word       relation  its full label
    form       the word in lower case           pieces    False where the tokenizer dropped it
    attended   (word, head)  the place of the other word that it attends to most
    attending  (word, head)  the place of the other word that attends to it most
    to_sep     (word, head)  how much of its attention [SEP] gets
    special    (word, head)  whether [CLS] or [SEP] gets more than the word it attends to most
    """

    model: str
    n_layers: int
    n_heads: int
    skipped: dict[str, int]
    sentence: Int[np.ndarray, " word"]
    document: Int[np.ndarray, " word"]
    position: Int[np.ndarray, " word"]
    gold: Int[np.ndarray, " word"]
    relation: np.ndarray
    form: np.ndarray
    pieces: Bool[np.ndarray, " word"]
    attended: Int[np.ndarray, "word head"]
    attending: Int[np.ndarray, "word head"]
    to_sep: Float[np.ndarray, "word head"]
    special: Bool[np.ndarray, "word head"]

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
    def unit(self) -> np.ndarray:
        """Each word's document, counted without those of which nothing is left: (word,)."""
        return np.asarray(np.unique(self.document, return_inverse=True)[1])

    @property
    def n_documents(self) -> int:
        return int(self.unit.max()) + 1

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
    known = known_corpora()
    found = known.get(corpus_name(str(name))) or load_corpus(name, limit=limit, seed=seed)
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


def check_min_count(min_count: int) -> None:
    if min_count < 1:
        raise BadValue(f"min-count is {min_count}; expected 1 or more.")


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
    on_long: str = "skip",
    **reading: Any,
) -> Predictions:
    """One pass over trees: what every head picks for every word; maps are forgotten at once.

    reading  from_pieces, max_length, batch_size: see `word_maps`

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
    to_sep, special = np.zeros(shape, np.float32), np.zeros(shape, bool)
    pieces, seen = np.zeros(shape[0], bool), np.zeros(shape[0], bool)
    for maps in word_maps(encoder, trees, on_long=on_long, skipped=skipped, **reading):
        finite = maps.weights.isfinite().flatten(1).all(1)
        refuse_infinite(encoder.name, "its attention is not finite", finite, maps.index)
        real = maps.real_words()
        picks = [pick.cpu().numpy() for pick in most_attended(maps.between_words(), real)]
        to_words = maps.between_words().diagonal_scatter(  # a word is not its own answer
            torch.zeros(real.shape, device=real.device).unsqueeze(1).expand(-1, shape[1], -1),
            dim1=2,
            dim2=3,
        )
        specials = maps.weights[:, :, N_SPECIAL:, :N_SPECIAL].transpose(1, 2)
        rivals = specials.amax(-1) > to_words.amax(-1).transpose(1, 2)
        sep, beaten = specials[..., 1].cpu().numpy(), rivals.cpu().numpy()
        for row, tree in enumerate(maps.index):
            seen[starts[tree] : starts[tree + 1]] = True
            n_words = min(len(trees[tree].words), maps.n_words)  # the last may have no pieces
            here = slice(starts[tree], starts[tree] + n_words)
            attended[here], attending[here] = (pick[row, :n_words] for pick in picks)
            to_sep[here], special[here] = sep[row, :n_words], beaten[row, :n_words]
            pieces[here] = real[row, :n_words].cpu().numpy()
    if not seen.any():
        reasons = ", ".join(f"{n} {reason}" for reason, n in skipped.items()) or "no trees"
        raise CorpusError(
            f"no tree is left to measure ({reasons}). Expected at least one; choose another "
            "--max-length or --on-long."
        )
    if n_without := int((seen & ~pieces).sum()):
        skipped["words without pieces"] = n_without
    names = [tree.document or f"#{place}" for place, tree in enumerate(trees)]
    documents = pd.factorize(np.array(names, object))[0]
    return Predictions(
        encoder.name,
        encoder.n_layers,
        encoder.n_heads,
        dict(skipped),
        sentence=np.repeat(np.arange(len(trees)), np.diff(starts))[seen],
        document=np.repeat(documents, np.diff(starts))[seen],
        position=np.concatenate([np.arange(len(tree.words)) for tree in trees])[seen],
        gold=np.concatenate([np.array(tree.heads, int) for tree in trees])[seen],
        relation=np.array([label for tree in trees for label in tree.relations])[seen],
        form=np.array([word.lower() for tree in trees for word in tree.words], object)[seen],
        pieces=pieces[seen],
        attended=attended[seen],
        attending=attending[seen],
        to_sep=to_sep[seen],
        special=special[seen],
    )


# --- whether that is right, and who is best ------------------------------------------------------


def hits(
    found: Predictions,
    dependents: Int[np.ndarray, " dependency"],
    direction: str,
    variant: str = "paper",
    *,
    possessive_clitic: bool = False,
) -> Bool[np.ndarray, "dependency head"]:
    """Which heads are right on which dependencies (Clark 2019, sec. 4.2).

    dep->head   the dependent attends most to its head word
    head->dep   the head word attends most to the dependent. Differs from the authors' code, which
                asks whether the word that attends most to the dependent is its head word
                (variant="authors"): a head word with many dependents can be right on all of them.
    """
    check_choice("direction", direction, DIRECTIONS)
    check_choice("variant", variant, VARIANTS)

    def right(words: np.ndarray, gold: np.ndarray) -> np.ndarray:
        if direction == "dep->head" or variant == "authors":
            picked = found.attended if direction == "dep->head" else found.attending
            same = picked[words] == gold[:, None]
        else:
            same = found.attended[found.first[words] + gold] == found.position[words][:, None]
        return np.asarray(same & (gold != NOBODY)[:, None])

    return _with_clitics(found, dependents, right, variant if possessive_clitic else None)


def offset_hits(
    found: Predictions,
    dependents: Int[np.ndarray, " dependency"],
    offsets: Sequence[int],
    variant: str = "paper",
    *,
    possessive_clitic: bool = False,
) -> Bool[np.ndarray, "dependency offset"]:
    """Where the head word is the one `offset` places to the right of the dependent (Table 1).

    Outside the sentence there is no answer. Differs from the authors' code, where the last word
    answers for what is right of the sentence, and the root for what is left of it.
    """
    length = np.bincount(found.rank)[found.rank]

    def right(words: np.ndarray, gold: np.ndarray) -> np.ndarray:
        places = found.position[words][:, None] + np.array(offsets)
        if variant == "authors":
            places = np.clip(places, NOBODY, length[words][:, None] - 1)
        return np.asarray(places == gold[:, None])

    return _with_clitics(found, dependents, right, variant if possessive_clitic else None)


def _with_clitics(
    found: Predictions,
    dependents: np.ndarray,
    right: Callable[[np.ndarray, np.ndarray], np.ndarray],
    variant: str | None,
) -> np.ndarray:
    """`right` on the dependents; with a variant the 's of a possessor may take its place.

    Clark 2019, sec. 4.2: some heads treat 's as the dependent, gold standards the word before it,
    and Table 1 counts either. Here 's is the word that depends on the possessor, in UD and in
    spaCy's labels; in the authors' code it is the next word, and only what it picks counts.
    """
    gold = found.gold[dependents]
    same = right(dependents, gold)
    if variant is None:
        return same
    mark_of = clitics(found, variant)[dependents]
    has = (mark_of != NOBODY) & np.isin(found.relation[dependents], POSSESSIVE)
    of_mark = right(mark_of[has], gold[has])
    same[has] = (same[has] | of_mark) if variant == "paper" else of_mark
    return same


def clitics(found: Predictions, variant: str = "paper") -> Int[np.ndarray, " word"]:
    """Row of each word's 's, NOBODY where it has none."""
    forms = CLITICS if variant == "paper" else CLITICS[:1]
    marks = np.flatnonzero(np.isin(found.form, forms) & found.scored)
    marks = marks[[not is_punct(label) for label in found.relation[marks]]]
    owners = found.first[marks] + found.gold[marks] if variant == "paper" else marks - 1
    mark_of = np.full(len(found), NOBODY)
    mark_of[owners[owners >= found.first[marks]]] = marks[owners >= found.first[marks]]
    return mark_of


def accuracy_grid(
    found: Predictions, relation: str, direction: str = "dep->head", variant: str = "paper"
) -> Float[np.ndarray, "layer head"]:
    """Of the dependencies of a relation, the percentage that each head gets right."""
    check_choice("variant", variant, VARIANTS)
    check_relations([relation], found.counts)
    words = found.dependents(relation, variant)
    right = hits(found, words, direction, variant)
    return 100 * right.mean(0).reshape(found.n_layers, found.n_heads)


def halves(n_documents: int, seed: int = 0) -> Bool[np.ndarray, " document"]:
    """True for a random half of the documents."""
    first = np.zeros(n_documents, bool)
    first[np.random.default_rng(seed).permutation(n_documents)[: n_documents // 2]] = True
    return first


def best_heads(
    found: Predictions,
    *,
    relations: Sequence[str] | None = None,
    min_count: int = 100,
    variant: str = "paper",
    possessive_clitic: bool = False,
    seed: int = 0,
    replicates: int = REPLICATES,
) -> pd.DataFrame:
    """The best head and the best offset for each relation, in percent (Clark 2019, Table 1).

    One row per relation that has `min_count` dependencies, or per relation that is named, the
    most frequent first. Intervals are 95 % percentile bootstraps over documents, with head and
    offset held fixed; `gain` is head minus offset in the same draws. Differs from the paper, which
    chooses the head on the data it is scored on: the `clean_` columns choose head, direction and
    offset on one half of the documents, score on the other, and pool both ways around.

    >>> from attnlib import best_heads, predictions, random_encoder
    >>> from attnlib.data.examples import Tree
    >>> tree = Tree("t", ("a", "cat", "sat"), (1, 2, -1), ("det", "nsubj", "root"), ("X",) * 3)
    >>> table = best_heads(predictions(random_encoder(), [tree] * 4), min_count=1, replicates=10)
    >>> table[["relation", "n", "baseline", "offset"]].values.tolist()
    [['all', 8, 100.0, 1], ['det', 4, 100.0, 1], ['nsubj', 4, 100.0, 1]]
    """
    check_choice("variant", variant, VARIANTS)
    check_min_count(min_count)
    offsets, rule = OFFSETS[variant], {"possessive_clitic": possessive_clitic}
    half, rows, sums = halves(found.n_documents, seed), [], []
    for name in _listed(found, relations, min_count, variant):
        words = found.dependents(name, variant)
        sides = [hits(found, words, side, variant, **rule) for side in DIRECTIONS]
        places = offset_hits(found, words, offsets, variant, **rule)
        row, columns = _row(found, np.hstack(sides), places, half[found.unit[words]])
        rows.append({"relation": name, "n": len(words), **row, "offset": offsets[row["offset"]]})
        sums.append(by_group(np.stack(columns, axis=1), found.unit[words], len(half)))
    return _table(rows, np.array(sums), seed=seed, replicates=replicates)


def _listed(
    found: Predictions, relations: Sequence[str] | None, min_count: int, variant: str
) -> list[str]:
    """All together and what is frequent enough, or what is named; the most frequent first."""
    check_relations(relations or (), found.counts)
    frequent = [name for name, n in found.counts.items() if n >= min_count and not is_punct(name)]
    wanted = {ALL, *frequent} if relations is None else set(relations)
    listed = [name for name in (ALL, *found.counts) if name in wanted]
    if ALL in listed and not len(found.dependents(ALL, variant)):
        raise CorpusError("no word of the trees that were measured has a head word to find.")
    return listed


def _row(
    found: Predictions, heads: np.ndarray, places: np.ndarray, half: np.ndarray
) -> tuple[dict[str, Any], tuple[np.ndarray, ...]]:
    """Who is best, and per dependency what QUANTITIES are averages of.

    heads   (dependency, direction x head)   places  (dependency, offset)
    half    (dependency,)                    which half of the documents each is in
    """
    n_heads = heads.shape[1] // len(DIRECTIONS)
    best, place = int(heads.mean(0).argmax()), int(places.mean(0).argmax())
    clean, chosen = chosen_elsewhere(heads, half)
    clean_places, _ = chosen_elsewhere(places, half)
    names = dict.fromkeys(found.head_name(head % n_heads) for head in chosen)
    row = {
        "head": found.head_name(best % n_heads),
        "direction": DIRECTIONS[best // n_heads],
        "offset": place,
        "clean_head": "/".join(names) or None,
    }
    by_head, by_place = heads[:, best].astype(float), places[:, place].astype(float)
    gains = by_head - by_place, clean - clean_places
    return row, (by_head, by_place, gains[0], clean, clean_places, gains[1])


def chosen_elsewhere(
    right: Bool[np.ndarray, "dependency choice"], half: Bool[np.ndarray, " dependency"]
) -> tuple[Float[np.ndarray, " dependency"], list[int]]:
    """Each half scored by the choice that is best on the other, and both choices.

    NaN where the other half is empty and so chooses nothing.
    """
    score, chosen = np.full(len(right), np.nan), []
    for choosing in (half, ~half):
        if choosing.any() and not choosing.all():
            chosen.append(int(right[choosing].mean(0).argmax()))
            score[~choosing] = right[~choosing, chosen[-1]]
    return score, chosen


def _table(
    rows: list[dict[str, Any]], sums: np.ndarray, *, seed: int, replicates: int
) -> pd.DataFrame:
    """Rows with their averages and intervals; sums (relation, 2, document, quantity)."""
    total, weight = np.moveaxis(sums, 0, 2)
    spread = estimate(total, weight, micro=True, replicates=replicates, seed=seed)
    table = pd.DataFrame(rows)
    for at, (mean, low, high) in enumerate(QUANTITIES):
        for name, values in ((mean, spread.mean), (low, spread.low), (high, spread.high)):
            if name:
                table[name] = 100 * values[:, at]
    return table[list(COLUMNS)]
