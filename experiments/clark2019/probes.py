"""Sec. 5, Table 3: what all heads together know of syntax, by probes and their rivals.

One pass of the encoder feeds all probes. The maps of one batch are alive at a time; what grows
with the treebanks is a loss per training sentence and two counts per test sentence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlib.attention.encode import tokenized
from attnlib.attention.words import word_maps
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Tree
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.best_heads import is_punct
from attnlib.models import Encoder, random_twin
from bookkit.store import Found, experiment
from experiments.clark2019.masked_lm import article
from experiments.clark2019.probe_models import PROBES, Probe, Sentence, Vectors, load_vectors


@experiment(version=2, reads=["glove-50d"], trains=True)
def probes(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    epochs: int = 1,
    seeds: int = 3,
    max_length: int = 128,
    seed: int = 0,
) -> Found:
    """Words whose head word is found: by both probes, and by rivals.

    A seed decides the order of the training sentences, the first weights of the rival that reads
    distances, and the weights of the random twin. Also the probe with the word vectors misaligned
    as in the released code.
    table  probe, seed, document, right, asked (words of the test trees, without punctuation)
    """
    if seeds < 1:
        raise BadValue(f"seeds is {seeds}; expected 1 or more.")
    vectors = load_vectors()
    documents = np.array([article(tree) for tree in test.examples], object)
    parts = []
    for own in range(seed, seed + seeds):
        how: Any = {"epochs": epochs, "max_length": max_length, "seed": own}
        given = (train.examples, test.examples, vectors)
        scores, skipped = train_and_score(encoder, *given, **how)
        twin, _ = train_and_score(
            random_twin(encoder, own), *given, names=["attention-words"], **how
        )
        for name, one in {**scores, "random": twin["attention-words"]}.items():
            counts = {"right": one.right, "asked": one.asked, "document": documents}
            parts.append(pd.DataFrame({"probe": name, "seed": own, **counts}))
    table = pd.concat(parts).groupby(["probe", "seed", "document"], as_index=False).sum()
    per_pass = sum(map(len, tokenized(train.examples, encoder)))
    tested = sum(map(len, tokenized(test.examples, encoder)))
    facts = {
        "inputs": len(train) + len(test),
        "passes": 2 * seeds * (epochs * len(train) + len(test)),
        "tokens": 2 * seeds * (epochs * per_pass + tested),
        "train": train.name,
        "test": test.name,
        "skipped": skipped,
        "known_words": vectors.coverage([word for tree in test.examples for word in tree.words]),
    }
    return Found(table, facts=facts)


@dataclass(frozen=True, eq=False)
class Scores:
    """A trained probe, and how it did.

    right   (sentence,)   how many words of each test sentence got the right head word
    asked   (sentence,)   how many were asked; 0 where a sentence was too long or only punctuation
    losses  (step,)       mean cross-entropy of each training sentence, in nats; NaN where nothing
                          is trained and for sentences that were left out
    """

    probe: Probe
    right: np.ndarray
    asked: np.ndarray
    losses: np.ndarray

    @property
    def uas(self) -> float:
        """The unlabelled attachment score in percent."""
        return float(100 * self.right.sum() / self.asked.sum())


# --- training -------------------------------------------------------------------------------------


def train_and_score(
    encoder: Encoder,
    train: Sequence[Tree],
    test: Sequence[Tree],
    vectors: Vectors,
    *,
    names: Sequence[str] = tuple(PROBES),
    epochs: int = 1,
    learning_rate: float = 0.002,
    seed: int = 0,
    max_length: int = 128,
) -> tuple[dict[str, Scores], dict[str, int]]:
    """Train the named probes on one treebank, score them on another; what had to be left out.

    As in the authors' code: Adam, one step per sentence, fixed word vectors, training on every
    word (punctuation too), no scoring of words with the relation `punct`; a root word is right if
    ROOT wins. Differs: the loss is the mean over the words of a sentence, theirs the sum; the
    order of the sentences is drawn anew in each epoch, but within every 32 batches short ones
    come first, since the encoder takes sentences of similar length together (hence its small
    batches). Sentences of more than `max_length` pieces are left out for every probe, and counted.
    """
    _refuse_bad_settings(train, test, epochs)
    sentences = partial(_sentences, encoder, vectors=vectors, max_length=max_length)
    n_heads, n_steps = encoder.n_layers * encoder.n_heads, epochs * len(train)
    pupils = [
        _Pupil(name, PROBES[name](n_heads, vectors.dim, seed).to(encoder.device), learning_rate)
        for name in names
    ]
    losses = np.full((len(names), n_steps), np.nan)
    too_long: Counter[str] = Counter()
    done = 0
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(train))
        for _, tree, sentence in sentences([train[i] for i in order], skipped=too_long):
            for row, pupil in enumerate(pupils):
                losses[row, done + too_long.total()] = pupil.learn(sentence, _targets(tree))
            done += 1
    _refuse_nothing_left(done, too_long, "train")
    skipped = {f"train: {reason}": n // epochs for reason, n in too_long.items()}
    asked, right = np.zeros(len(test)), np.zeros((len(names), len(test)))
    too_long.clear()
    for index, tree, sentence in sentences(test, skipped=too_long):
        scored = torch.tensor([not is_punct(relation) for relation in tree.relations])
        asked[index] = int(scored.sum())
        for row, pupil in enumerate(pupils):
            right[row, index] = int(((pupil.choices(sentence) == _targets(tree)) & scored).sum())
    _refuse_nothing_left(int(asked.sum()), too_long, "test")
    skipped |= {f"test: {reason}": n for reason, n in too_long.items()}
    scores = {}
    for pupil, own, loss in zip(pupils, right, losses, strict=True):
        scores[pupil.name] = Scores(pupil.probe, own, asked, loss)
    return scores, skipped


def _sentences(
    encoder: Encoder,
    trees: Sequence[Tree],
    *,
    vectors: Vectors,
    max_length: int,
    skipped: Counter[str],
) -> Iterator[tuple[int, Tree, Sentence]]:
    """The place of a tree, the tree, its sentence, in the order in which the encoder ends them."""
    for maps in word_maps(encoder, trees, max_length=max_length, batch_size=4, skipped=skipped):
        for index, weights in zip(maps.index, maps.weights, strict=True):
            own = vectors.of(trees[index].words).to(weights.device, torch.float32)
            yield index, trees[index], Sentence.of(weights, own)
        del maps, weights  # the maps of a batch go before the encoder makes the next


class _Pupil:
    """A probe and its optimiser, if there is anything to learn."""

    def __init__(self, name: str, probe: Probe, learning_rate: float) -> None:
        self.name, self.probe = name, probe
        parameters = list(probe.parameters())
        self.optimiser = (
            torch.optim.Adam(parameters, lr=learning_rate, fused=True) if parameters else None
        )

    def learn(self, sentence: Sentence, targets: Tensor) -> float:
        """One step on one sentence; its loss before the step."""
        if self.optimiser is None:
            return math.nan
        scores = self.probe(sentence)
        loss = torch.nn.functional.cross_entropy(scores, targets.to(scores.device))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        if not loss.isfinite():
            raise BadValue(
                f"the loss of probe '{self.name}' is {loss.item()}; expected a finite number. "
                "Check the weights of the model and the word vectors."
            )
        return loss.item()

    @torch.no_grad()
    def choices(self, sentence: Sentence) -> Tensor:
        """The candidate that the probe takes for the head of each word."""
        return self.probe(sentence).argmax(-1).cpu()


def _targets(tree: Tree) -> Tensor:
    """The candidate that is the head of each word: 0 is ROOT."""
    return torch.tensor(tree.heads) + 1


def _refuse_bad_settings(train: Sequence[Tree], test: Sequence[Tree], epochs: int) -> None:
    for what, trees in (("train", train), ("test", test)):
        if not len(trees):
            raise CorpusError(f"no {what} tree was given; expected at least one sentence.")
        if strange := {type(tree).__name__ for tree in trees} - {"Tree"}:
            some = f"a {min(strange)} is among the {what} trees"
            raise CorpusError(f"{some}; expected sentences with heads, as in ewt-train.")
    if epochs < 1:
        raise BadValue(f"epochs is {epochs}; expected 1 or more.")


def _refuse_nothing_left(n: int, skipped: Counter[str], what: str) -> None:
    if not n:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise CorpusError(
            f"no word of the {what} trees is left ({reasons or 'all are punctuation'}). "
            "Expected at least one; give other trees or a larger max-length."
        )
