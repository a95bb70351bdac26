"""Sec. 4.3, Table 2: which head finds the antecedents of mentions, compared with three rules.

A mention such as "she" has antecedents: earlier mentions of the same person or thing. Heads and
rules are asked for one of them, and are right if they choose any of them.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlib.attention.encode import tokenized
from attnlib.attention.words import word_maps
from attnlib.data.corpora import Corpus
from attnlib.data.examples import CorefDocument, Span
from attnlib.errors import CorpusError
from attnlib.measuring.best_heads import chosen_elsewhere, halves, is_punct
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.clark2019.masked_lm import article

TYPES = ("pronoun", "proper", "nominal")
AGREEING = Path(__file__).with_name("agreeing_words.toml")


@experiment(version=2)
def coreference(corpus: Corpus, *, encoder: Encoder, max_length: int = 128, seed: int = 0) -> Found:
    """Which systems find an antecedent of each mention: the best head, and three rules (Table 2).

    table  document, kind, distance (words to the nearest antecedent), and of each system 1 where it
           is right: nearest, head_match, rule_based; any_word, the head that is best on all
           questions when a head answers with the word it attends to most; any_word_clean, chosen on
           one half of the documents and scored on the other, NaN for one document; mentions, the
           best head when it chooses among the mentions before, as the rules do
    """
    found = choices(encoder, corpus.examples, max_length=max_length)
    _, rank = np.unique(found.document, return_inverse=True)
    right = found.by_head["words"]
    clean, chosen = chosen_elsewhere(right, halves(int(rank.max()) + 1, seed)[rank])
    best = {name: int(one.mean(0).argmax()) for name, one in found.by_head.items()}
    systems = {re.sub("[ -]", "_", name): one for name, one in found.baselines.items()}
    systems |= {"any_word": right[:, best["words"]], "any_word_clean": clean}
    systems["mentions"] = found.by_head["mentions"][:, best["mentions"]]
    table = pd.DataFrame({name: one.astype(float) for name, one in systems.items()})
    told = {"document": found.document, "kind": found.kind, "distance": found.distance}
    facts = {
        "inputs": len(corpus),
        "passes": len(corpus),
        "tokens": sum(min(len(one), max_length) for one in tokenized(corpus.examples, encoder)),
        "questions": len(found),
        "corpus": corpus.name,
        "head": _name(best["words"], found.n_heads),
        "clean_heads": [_name(head, found.n_heads) for head in dict.fromkeys(chosen)],
    }
    return Found(table.assign(**told), facts=facts)


@experiment(version=1)
def dependency_lengths(corpus: Corpus) -> Found:
    """How far words are from their head words, without punctuation and roots.

    table  document, length (in words), n: how many dependencies
    """
    counts: Counter[tuple[str, int]] = Counter()
    for tree in corpus.examples:
        arcs = zip(tree.heads, tree.relations, strict=True)
        for word, (head, label) in enumerate(arcs):
            if head >= 0 and not is_punct(label):
                counts[article(tree), abs(head - word)] += 1
    rows = [(document, length, n) for (document, length), n in counts.items()]
    table = pd.DataFrame(rows, columns=["document", "length", "n"])
    return Found(table, facts={"inputs": len(corpus)})


def _name(flat: int, n_heads: int) -> str:
    return f"{flat // n_heads + 1}-{flat % n_heads + 1}"


# --- what heads choose ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Choices:
    """Which questions each head answers right, and which the baselines.

    by_head    candidates -> (question, head) bool   heads numbered over all layers
    baselines  name -> (question,) bool
    document   (question,)   which document a question comes from
    kind       (question,)   pronoun, proper or nominal
    distance   (question,)   words from its head word to that of its nearest antecedent
    """

    by_head: dict[str, np.ndarray]
    baselines: dict[str, np.ndarray]
    document: np.ndarray
    kind: np.ndarray
    distance: np.ndarray
    n_heads: int

    def __len__(self) -> int:
        return len(self.kind)


def choices(
    encoder: Encoder,
    documents: Sequence[CorefDocument],
    *,
    max_length: int = 128,
    batch_size: int = 8,
) -> Choices:
    """Ask every head, and every baseline, for the antecedent of every mention that has one.

    A head is right if, of all candidates, it attends most from the head word of the mention to the
    head word of one of its antecedents. Candidates are the head words of the mentions before it,
    from which the baselines choose too ("mentions"), or all other words of the text ("words").
    """
    documents = cut(documents, encoder, max_length)
    asked = [list(questions(document)) for document in documents]
    if not any(asked):
        raise CorpusError(
            f"none of {len(documents)} documents has a mention with an antecedent within "
            f"{max_length} pieces. Give documents with clusters, or a larger --max-length."
        )
    rows: dict[int, dict[str, np.ndarray]] = {}
    for batch in word_maps(encoder, documents, max_length=max_length, batch_size=batch_size):
        weights, real = batch.between_words(), batch.real_words()
        for row, index in enumerate(batch.index):
            if asked[index]:
                rows[index] = _right(weights[row], real[row], asked[index])
    order = sorted(rows)
    every = [(index, *question) for index in order for question in asked[index]]
    return Choices(
        by_head={c: np.concatenate([rows[i][c] for i in order]) for c in ("mentions", "words")},
        baselines={
            name: np.array([is_right(m, choose(m, before)) for _, m, before in every])
            for name, choose in BASELINES.items()
        },
        document=np.array([index for index, _, _ in every]),
        kind=np.array([mention.type for _, mention, _ in every]),
        distance=np.array(
            [
                min(m.head - other.head for other in before if other.entity == m.entity)
                for _, m, before in every
            ]
        ),
        n_heads=encoder.n_heads,
    )


def _right(
    weights: torch.Tensor, real: torch.Tensor, asked: Sequence[tuple[Mention, list[Mention]]]
) -> dict[str, np.ndarray]:
    """For one document: (question, head), by kind of candidates.

    weights  (head, word, word)
    """
    places = torch.tensor([mention.head for mention, _ in asked], device=weights.device)
    n_words = weights.shape[-1]
    before = torch.zeros(len(asked), n_words, dtype=torch.bool)
    antecedent = torch.zeros_like(before)
    for question, (mention, others) in enumerate(asked):
        before[question, [other.head for other in others]] = True
        same = [other.head for other in others if other.entity == mention.entity]
        antecedent[question, same] = True
    before, antecedent = before.to(weights.device), antecedent.to(weights.device)
    other = real & (torch.arange(n_words, device=weights.device) != places[:, None])
    rows = weights[:, places].transpose(0, 1)  # (question, head, word)
    found = {}
    for name, allowed in (("mentions", before), ("words", other)):
        chosen = rows.masked_fill(~allowed[:, None], -1.0).argmax(-1)
        found[name] = antecedent.gather(1, chosen).cpu().numpy()
    return found


def cut(
    documents: Sequence[CorefDocument], encoder: Encoder, max_length: int
) -> list[CorefDocument]:
    """Each document up to the last whole word within the limit (the paper: 128 pieces).

    Mentions beyond the cut are gone, and so are entities with fewer than two mentions left.
    """
    found = []
    for document, pieces in zip(documents, tokenized(documents, encoder), strict=True):
        if len(pieces) <= max_length:
            found.append(document)
            continue
        # The last piece before the limit is the closing special token's place.
        beyond = pieces.word[max_length - 1]
        found.append(_first_words(document, beyond if beyond >= 0 else len(document.words)))
    return found


def _first_words(document: CorefDocument, n: int) -> CorefDocument:
    kept = [[i for i, s in enumerate(cluster) if s.end <= n] for cluster in document.clusters]
    places = [(c, inside) for c, inside in enumerate(kept) if len(inside) > 1]

    def chosen(values: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(values[c][i] for i in inside) for c, inside in places)

    return replace(
        document,
        words=document.words[:n],
        sentences=tuple(Span(s.start, min(s.end, n)) for s in document.sentences if s.start < n),
        clusters=chosen(document.clusters),
        heads=document.heads and tuple(h if h < n else -1 for h in document.heads[:n]),
        relations=document.relations and document.relations[:n],
        tags=document.tags and document.tags[:n],
        mention_heads=document.mention_heads and chosen(document.mention_heads),
        mention_types=document.mention_types and chosen(document.mention_types),
    )


# --- mentions, questions, and rules that answer them ----------------------------------------------


@dataclass(frozen=True)
class Mention:
    """A coreferent mention; `entity` numbers its cluster in the document."""

    span: Span
    head: int
    type: str
    entity: int
    text: str
    head_text: str


Choose = Callable[[Mention, Sequence[Mention]], Mention | None]
"""From a mention and the mentions before it, nearest first, to the one it is linked to, if any."""


def mentions_of(document: CorefDocument) -> list[Mention]:
    """All mentions of a document, in the order of their head words."""
    found = []
    for entity, cluster in enumerate(document.clusters):
        for span in cluster:
            head = document.head_word(span)
            text = " ".join(document.words[span.start : span.end]).lower()
            kind = document.mention_type(span)
            head_text = document.words[head].lower()
            found.append(Mention(span, head, kind, entity, text, head_text))
    return sorted(found, key=lambda m: (m.head, -len(m.span)))


def questions(document: CorefDocument) -> Iterator[tuple[Mention, list[Mention]]]:
    """Each mention that has an antecedent, with the mentions before it, nearest first.

    Two mentions may share a head word only by nesting; the outer one is not before the inner.
    """
    mentions = mentions_of(document)
    for mention in mentions:
        before = [other for other in reversed(mentions) if other.head < mention.head]
        if any(other.entity == mention.entity for other in before):
            yield mention, before


def nearest(mention: Mention, before: Sequence[Mention]) -> Mention:
    """The nearest other mention."""
    return before[0]


def head_match(mention: Mention, before: Sequence[Mention]) -> Mention | None:
    """The nearest mention with the same head word; none where there is none."""
    return _first(before, lambda other: other.head_text == mention.head_text)


def rule_based(mention: Mention, before: Sequence[Mention]) -> Mention:
    """Four sieves after Lee et al. 2011: the same words, the same head word, agreement, any."""
    sieves: tuple[Callable[[Mention], bool], ...] = (
        lambda other: other.text == mention.text,
        lambda other: other.head_text == mention.head_text,
        lambda other: agree(mention, other),
        lambda other: True,
    )
    return next(found for sieve in sieves if (found := _first(before, sieve)) is not None)


BASELINES: dict[str, Choose] = {
    "nearest": nearest,
    "head match": head_match,
    "rule-based": rule_based,
}


def is_right(mention: Mention, chosen: Mention | None) -> bool:
    """Whether the chosen mention is any antecedent of the mention, as in the paper."""
    return chosen is not None and chosen.entity == mention.entity


def accuracy(documents: Iterable[CorefDocument], choose: Choose) -> dict[str, tuple[int, int]]:
    """(right, asked) of a rule over all documents, for all mentions and by type."""
    counts = dict.fromkeys(("all", *TYPES), (0, 0))
    for document in documents:
        for mention, before in questions(document):
            right = is_right(mention, choose(mention, before))
            for kind in ("all", mention.type):
                counts[kind] = (counts[kind][0] + right, counts[kind][1] + 1)
    return counts


FEATURES = {
    kind: {word: tuple(given.split()) for given, words in rows.items() for word in words.split()}
    for kind, rows in tomllib.loads(AGREEING.read_text(encoding="utf-8")).items()
}
"""Pronouns and nouns, each word with its person, number and gender; "-" is open."""


def agree(one: Mention, other: Mention) -> bool:
    """Person, number and gender agree wherever both are known."""
    pairs = zip(features(one), features(other), strict=True)
    return all("-" in (a, b) or a == b for a, b in pairs)


def features(mention: Mention) -> tuple[str, ...]:
    """(person, number, gender) of a mention, by its head word; "-" where it is open."""
    word = mention.head_text
    if mention.type == "pronoun":
        return FEATURES["pronouns"].get(word, ("3", "-", "-"))
    _, number, gender = FEATURES["nouns"].get(word, ("-", "-", "-"))
    if number == "-" and mention.type == "nominal":
        number = "plural" if word.endswith("s") and not word.endswith("ss") else "singular"
    if number == "-" and mention.type == "proper":
        number = "singular"
    return "3", number, gender


def _first(before: Sequence[Mention], fits: Callable[[Mention], bool]) -> Mention | None:
    return next((other for other in before if fits(other)), None)
