"""Probes trained on a treebank in a stream, and scored on another by attachment (UAS).

One pass of the encoder feeds all probes. The maps of one batch are alive at a time; what grows
with the treebank is two counts per test sentence.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnlib.attention.words import word_maps
from attnlib.data.examples import Tree
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.bootstrap import Estimate, estimate
from attnlib.models import Encoder
from experiments.clark2019.probes import PROBES, Probe, Sentence, WordVectors, make_probe

UNSCORED = "punct"
CURVE = 20
"""Parts of the training that a loss curve has a mean for."""


@dataclass(frozen=True, eq=False)
class Scores:
    """How one probe did: per test sentence, how many words were asked and how many were right.

    right, asked  (sentence,)   0 asked where a sentence was too long or only punctuation
    loss          (20,)         mean cross-entropy over twentieths of the training, in nats
    train_loss    the same over the last tenth; NaN where nothing is trained
    seconds       of the probe alone, in training and scoring
    """

    probe: str
    model: str
    right: np.ndarray
    asked: np.ndarray
    loss: np.ndarray
    train_loss: float
    n_parameters: int
    seconds: float

    def row(self) -> dict[str, object]:
        """A row of the table; the score and its interval are in percent."""
        found = estimate(self.right[:, None], self.asked[:, None], micro=True)
        return {
            "probe": self.probe,
            "model": self.model,
            **dict(zip(("uas", "low", "high"), _percent(found), strict=True)),
            "n_words": int(self.asked.sum()),
            "n_sentences": int((self.asked > 0).sum()),
            "n_parameters": self.n_parameters,
            "seconds": self.seconds,
            "train_loss": self.train_loss,
        }


@dataclass(frozen=True, eq=False)
class Trial:
    """What the probes of one encoder scored, the trained probes, and what had to be left out."""

    scores: dict[str, Scores]
    probes: dict[str, Probe]
    skipped: dict[str, int]
    seconds: float

    def __getitem__(self, probe: str) -> Scores:
        return self.scores[probe]

    def table(self) -> pd.DataFrame:
        """One row per probe: the score in percent with its bootstrap interval, size, seconds."""
        return pd.DataFrame([scores.row() for scores in self.scores.values()])


def paired_difference(counts_a: Scores, counts_b: Scores) -> tuple[float, float, float]:
    """How many points of UAS a is above b, with a bootstrap interval over the shared sentences."""
    if len(counts_a.asked) != len(counts_b.asked):
        raise BadValue(
            f"'{counts_a.probe}' was scored on {len(counts_a.asked)} sentences, "
            f"'{counts_b.probe}' on {len(counts_b.asked)}; expected the same test trees."
        )
    shared = (counts_a.asked > 0) & (counts_b.asked > 0)
    if not shared.any() or (counts_a.asked != counts_b.asked)[shared].any():
        raise BadValue(
            f"'{counts_a.probe}' and '{counts_b.probe}' were asked different words; expected the "
            "same test trees for both."
        )
    gain = np.where(shared, counts_a.right - counts_b.right, 0.0)
    asked = np.where(shared, counts_a.asked, 0.0)
    return _percent(estimate(gain[:, None], asked[:, None], micro=True))


def train_and_score(
    encoder: Encoder,
    train: Sequence[Tree],
    test: Sequence[Tree],
    vectors: WordVectors,
    *,
    names: Sequence[str] = PROBES,
    epochs: int = 1,
    learning_rate: float = 0.002,
    seed: int = 0,
    max_length: int = 128,
    batch_size: int = 4,
    progress: Callable[[int, int], None] | None = None,
) -> Trial:
    """Train the named probes on one treebank and score them on another (Clark 2019, Table 3).

    As in the authors' code: Adam, one step per sentence, fixed word vectors, training on every
    word (punctuation too), no scoring of words with the relation `punct`; a root word is right if
    ROOT wins. Differs: the loss is the mean over the words of a sentence, theirs the sum; the
    order of the sentences is drawn anew in each epoch, but within every 32 batches short ones
    come first, since the encoder takes sentences of similar length together (hence the small
    `batch_size`, which is the encoder's alone). Sentences of more than `max_length` pieces are
    left out for every probe, and counted.
    """
    _refuse_bad_settings(train, test, names, epochs, learning_rate)
    started = time.perf_counter()
    stream = _Stream(encoder, vectors, max_length, batch_size)
    pupils = [_Pupil(name, stream, learning_rate, seed) for name in names]
    left_out: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    n_steps, done = epochs * len(train), 0
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(train))
        for _, tree, sentence in stream([train[index] for index in order], left_out[0]):
            done += 1
            share = (done + left_out[0].total()) / n_steps
            for pupil in pupils:
                pupil.learn(sentence, _targets(tree, sentence), share)
            if progress is not None:
                progress(done, n_steps + len(test))
    _refuse_nothing_left(done, left_out[0], "train")
    asked, right = np.zeros(len(test)), np.zeros((len(names), len(test)))
    for index, tree, sentence in stream(test, left_out[1]):
        targets, scored = _targets(tree, sentence), _scored(tree, sentence)
        asked[index] = int(scored.sum())
        for row, pupil in enumerate(pupils):
            right[row, index] = pupil.count_right(sentence, targets, scored)
        done += 1
        if progress is not None:
            progress(done, n_steps + len(test))
    _refuse_nothing_left(int(asked.sum()), left_out[1], "test")
    skipped = {f"train: {reason}": n // epochs for reason, n in left_out[0].items()}
    skipped |= {f"test: {reason}": n for reason, n in left_out[1].items()}
    found = {p.name: p.report(own, asked) for p, own in zip(pupils, right, strict=True)}
    probes = {pupil.name: pupil.probe for pupil in pupils}
    return Trial(found, probes, skipped, time.perf_counter() - started)


class _Stream:
    """Trees as sentences for probes, in the order in which the encoder finishes them."""

    def __init__(
        self, encoder: Encoder, vectors: WordVectors, max_length: int, batch_size: int
    ) -> None:
        self.encoder, self.vectors = encoder, vectors
        self.maps = partial(word_maps, encoder, max_length=max_length, batch_size=batch_size)

    def __call__(
        self, trees: Sequence[Tree], skipped: Counter[str]
    ) -> Iterator[tuple[int, Tree, Sentence]]:
        """The place of a tree, the tree, its sentence; the maps of a batch die with it."""
        for maps in self.maps(trees, skipped=skipped):
            for index, weights in zip(maps.index, maps.weights, strict=True):
                tree = trees[index]
                yield index, tree, Sentence.of(weights, self._vectors_of(tree, weights.device))
            del maps, weights  # before the encoder makes the next

    def _vectors_of(self, tree: Tree, device: torch.device) -> Tensor:
        found = self.vectors.of(tree.words)
        if tuple(found.shape) != (len(tree.words), self.vectors.dim):
            raise BadValue(
                f"the vectors of sentence '{tree.id}' have shape {tuple(found.shape)}; expected "
                f"{(len(tree.words), self.vectors.dim)}, one row per word. Check the vectors."
            )
        return found.to(device=device, dtype=torch.float32)


class _Pupil:
    """A probe with its optimiser, its losses and its time."""

    def __init__(self, name: str, stream: _Stream, learning_rate: float, seed: int) -> None:
        encoder = stream.encoder
        n_heads = encoder.n_layers * encoder.n_heads
        self.name = name
        self.probe = make_probe(name, n_heads, stream.vectors.dim, seed).to(encoder.device)
        self.model = encoder.name if self.probe.reads_attention else ""
        parameters = list(self.probe.parameters())
        self.optimiser = (
            torch.optim.Adam(parameters, lr=learning_rate, fused=True) if parameters else None
        )
        self.losses, self.steps = np.zeros(CURVE), np.zeros(CURVE)
        self.seconds = 0.0

    def learn(self, sentence: Sentence, targets: Tensor, share: float) -> None:
        """One step on one sentence; `share` of the training is done with it."""
        if self.optimiser is None:
            return
        started = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(self.probe(sentence), targets)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        part = math.ceil(share * CURVE) - 1
        self.losses[part] += self._finite(loss.item())
        self.steps[part] += 1
        self.seconds += time.perf_counter() - started

    def _finite(self, loss: float) -> float:
        if not math.isfinite(loss):
            raise BadValue(
                f"the loss of probe '{self.name}' is {loss}; expected a finite number. Check the "
                "weights of the model and the word vectors, or use a smaller learning rate."
            )
        return loss

    @torch.no_grad()
    def count_right(self, sentence: Sentence, targets: Tensor, scored: Tensor) -> int:
        started = time.perf_counter()
        hits = (self.probe(sentence).argmax(-1) == targets) & scored
        n_right = int(hits.sum())
        self.seconds += time.perf_counter() - started
        return n_right

    def report(self, right: np.ndarray, asked: np.ndarray) -> Scores:
        with np.errstate(invalid="ignore"):
            curve = self.losses / self.steps
            last = self.losses[-CURVE // 10 :].sum() / self.steps[-CURVE // 10 :].sum()
        return Scores(
            probe=self.name,
            model=self.model,
            right=right,
            asked=asked,
            loss=curve,
            train_loss=float(last),
            n_parameters=self.probe.n_parameters,
            seconds=self.seconds,
        )


def _percent(found: Estimate) -> tuple[float, float, float]:
    return 100 * float(found.mean[0]), 100 * float(found.low[0]), 100 * float(found.high[0])


def _targets(tree: Tree, sentence: Sentence) -> Int[Tensor, " word"]:
    """The candidate that is the head of each word: 0 is ROOT."""
    return torch.tensor(tree.heads, device=sentence.vectors.device) + 1


def _scored(tree: Tree, sentence: Sentence) -> Bool[Tensor, " word"]:
    """False on punctuation, with or without a subtype."""
    kept = [relation.split(":")[0] != UNSCORED for relation in tree.relations]
    return torch.tensor(kept, device=sentence.vectors.device)


def _refuse_bad_settings(
    train: Sequence[Tree],
    test: Sequence[Tree],
    names: Sequence[str],
    epochs: int,
    learning_rate: float,
) -> None:
    for what, trees in (("train", train), ("test", test)):
        if not len(trees):
            raise CorpusError(f"no {what} tree was given; expected at least one sentence.")
        strange = next((type(t).__name__ for t in trees if not isinstance(t, Tree)), None)
        if strange is not None:
            raise CorpusError(
                f"a {strange} stands among the {what} trees; expected sentences with heads. "
                "Use a treebank such as ewt-train."
            )
    if not names or len(set(names)) < len(names):
        raise BadValue(
            f"the probes are {', '.join(names) or 'none'}; expected at least one, each once. "
            f"Choose from {', '.join(PROBES)}."
        )
    if epochs < 1:
        raise BadValue(f"epochs is {epochs}; expected 1 or more.")
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise BadValue(f"learning-rate is {learning_rate}; expected a number above 0.")


def _refuse_nothing_left(n: int, skipped: Counter[str], what: str) -> None:
    if not n:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        raise CorpusError(
            f"no word of the {what} trees is left ({reasons or 'all are punctuation'}). "
            "Expected at least one; give other trees or a larger max-length."
        )
