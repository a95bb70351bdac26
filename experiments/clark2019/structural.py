"""Sec. 5, Table 3: a structural probe on word vectors (Hewitt and Manning 2019)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from torch import Tensor, nn

from attnlib.attention.encode import Batch, batches_of, model_inputs
from attnlib.attention.words import N_SPECIAL, Units
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Tree
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.best_heads import is_punct
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.clark2019.masked_lm import article

RANK = 32
RATE, BATCH, SPREAD = 1e-3, 16, 0.05
"""Adam's learning rate, sentences of a step, and the range of the first weights, as published."""
DEVELOPMENT = 0.1


@experiment(version=1, trains=True)
def structural(
    train: Corpus,
    test: Corpus,
    *,
    encoder: Encoder,
    epochs: int = 1,
    seeds: int = 3,
    max_length: int = 128,
    seed: int = 0,
) -> Found:
    """Links of test trees that a structural probe finds, and a chain from word to word.

    Probes on all layers learn in one pass; the layer is the best on a tenth of the training
    documents, which no probe learns from. Seeds differ in the weights that a probe starts with.
    table  seed, document, right, chain, asked: links between words other than punctuation
    """
    if epochs < 1 or seeds < 1:
        raise BadValue(f"epochs is {epochs} and seeds {seeds}; expected 1 or more of both.")
    documents = sorted({article(tree) for tree in train.examples})
    if len(documents) < 2:
        raise CorpusError(
            "the training trees are of 1 document; expected two or more to choose by."
        )
    order = np.random.default_rng(seed).permutation(len(documents))
    kept = {documents[place] for place in order[: max(1, round(DEVELOPMENT * len(documents)))]}
    learned = [tree for tree in train.examples if article(tree) not in kept]
    chosen_on = [tree for tree in train.examples if article(tree) in kept]
    probe = trained(encoder, learned, epochs=epochs, seeds=seeds, max_length=max_length, seed=seed)
    by_layer = sum(one.sum(1) for _, one in links(encoder, chosen_on, probe, max_length))
    layer = int(np.argmax(by_layer[:, 0] / by_layer[:, 2]))
    rows: Counter[tuple[int, str, str]] = Counter()
    best = slice(layer, layer + 1)
    for tree, found in links(encoder, test.examples, probe, max_length, best):
        for at, counts in enumerate(found[0]):
            for name, n in zip(("right", "chain", "asked"), counts, strict=True):
                rows[seed + at, article(tree), name] += int(n)
    table = pd.Series(rows).unstack().rename_axis(["seed", "document"]).reset_index()
    facts = {
        "inputs": len(train) + len(test),
        "passes": epochs * len(learned) + len(chosen_on) + len(test),
        "layer": layer,
        "by_layer": [float(one) for one in by_layer[:, 0] / by_layer[:, 2]],
    }
    return Found(table, facts=facts)


def distances(probe: Tensor, vectors: Tensor) -> Tensor:
    r"""What the probe takes for the number of links between two words.

    .. math:: d_B(h_i, h_j)^2 = (B (h_i - h_j))^T (B (h_i - h_j))

    probe    (layer, seed, rank, dim)   vectors  (layer, batch, word, dim)
    returns  (layer, seed, batch, word, word)
    """
    seen = torch.einsum("lsrd,lbwd->lsbwr", probe, vectors)
    squares = (seen**2).sum(-1)
    between = seen @ seen.transpose(-1, -2)
    return (squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * between).clamp_min(0)


def trained(
    encoder: Encoder,
    trees: Sequence[Tree],
    *,
    epochs: int,
    seeds: int,
    max_length: int = 128,
    seed: int = 0,
) -> Tensor:
    r"""Probes of all layers and seeds: (layer, seed, rank, dim).

    .. math:: \min_B \frac{1}{|S|} \sum_S \frac{1}{|S|^2} \sum_{i, j}
              \left| d_T(i, j) - d_B(h_i, h_j)^2 \right|
    """
    gold = [link_counts(tree) for tree in trees]
    probe: nn.Parameter | None = None
    optimiser: Any = None
    for epoch in range(epochs):
        order = np.random.default_rng([seed, epoch]).permutation(len(trees))
        shuffled = [trees[place] for place in order]
        for batch, vectors, real in word_vectors(encoder, shuffled, max_length):
            if probe is None:
                shape = (len(vectors), 1, RANK, vectors.shape[-1])
                drawn = [torch.Generator().manual_seed(seed + one) for one in range(seeds)]
                start = [2 * torch.rand(shape, generator=one) - 1 for one in drawn]
                probe = nn.Parameter((SPREAD * torch.cat(start, 1)).to(vectors.device))
                optimiser = torch.optim.Adam([probe], lr=RATE)
            wanted = torch.full((len(batch), *2 * real.shape[1:]), torch.nan)
            for row, place in enumerate(batch.index):
                own = torch.from_numpy(gold[order[place]][: real.shape[1], : real.shape[1]])
                wanted[row, : len(own), : len(own)] = own
            wanted = wanted.to(vectors.device)
            pairs = wanted.isfinite() & real.unsqueeze(1) & real.unsqueeze(2)
            gaps = (distances(probe, vectors) - wanted.nan_to_num(0, 0)).abs() * pairs
            loss = (gaps.sum((-1, -2)) / real.sum(1).clamp_min(1) ** 2).mean(-1).sum()
            if not loss.isfinite():
                raise BadValue("the loss of the structural probe is not finite; check the model.")
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    if probe is None:
        raise CorpusError("no training tree is short enough; give a larger max-length.")
    return probe.detach()


def links(
    encoder: Encoder,
    trees: Sequence[Tree],
    probe: Tensor,
    max_length: int,
    layers: slice = slice(None),
) -> Iterator[tuple[Tree, np.ndarray]]:
    """For every tree (layer, seed, 3): links that the probe finds, a chain finds, and there are."""
    for batch, vectors, real in word_vectors(encoder, trees, max_length):
        apart = distances(probe[layers], vectors[layers]).cpu().numpy()
        for row, place in enumerate(batch.index):
            yield trees[place], counted(trees[place], apart[:, :, row], real[row].cpu().numpy())


def counted(tree: Tree, apart: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Links of one tree that are found; punctuation, and words without a piece, are left out.

    apart    (..., word, word)   distances; found is their minimum spanning tree
    returns  (..., 3)            links found, links from a word to the next, all links
    """
    n_words = min(len(tree.words), len(real))
    words = [w for w in range(n_words) if real[w] and not is_punct(tree.relations[w])]
    place = {word: at for at, word in enumerate(words)}
    gold = {
        (min(place[w], place[tree.heads[w]]), max(place[w], place[tree.heads[w]]))
        for w in words
        if tree.heads[w] in place
    }
    chain = sum(second - first == 1 for first, second in gold)
    found = np.empty((*apart.shape[:-2], 3), int)
    for at in np.ndindex(apart.shape[:-2]):
        # A distance near 0 would count as no link at all; one more for each changes no tree.
        own = apart[at][np.ix_(words, words)] + 1
        ends = minimum_spanning_tree(own).nonzero() if len(words) > 1 else ((), ())
        pairs = {(int(min(pair)), int(max(pair))) for pair in zip(*ends, strict=True)}
        found[at] = len(pairs & gold), chain, len(gold)
    return found


def link_counts(tree: Tree) -> np.ndarray:
    """How many links of the tree lie between two words; infinite where none joins them."""
    joined = np.zeros((len(tree.words), len(tree.words)))
    for word, head in enumerate(tree.heads):
        if head >= 0:
            joined[word, head] = 1
    return np.asarray(shortest_path(joined, directed=False, unweighted=True), np.float32)


def word_vectors(
    encoder: Encoder, trees: Sequence[Tree], max_length: int
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Batches with (layer, batch, word, dim), the mean over a word's pieces, and which are real.

    Layer 0 holds the embeddings. Sentences of more than `max_length` pieces are left out.
    """
    how: Any = {"max_length": max_length, "on_long": "skip", "batch_size": BATCH}
    for batch in batches_of(trees, encoder, **how):
        units = Units(batch)
        with torch.no_grad():
            seen = encoder.model(**model_inputs(batch, encoder), output_hidden_states=True)
        means = units.from_unit[:, N_SPECIAL:]
        vectors = torch.stack([means @ layer.float() for layer in seen.hidden_states])
        yield batch, vectors, units.real[:, N_SPECIAL:]
