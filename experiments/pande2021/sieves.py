"""Sieves: the paper's, drawn on a sentence (Fig. 1), and four of our own.

The four are roles that the paper names in its related work and leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from attnlib.attention.encode import Batch, batches_of, tokenized
from attnlib.data.corpora import Corpus, with_trees
from attnlib.data.examples import Segment
from attnlib.errors import BadValue
from attnlib.metrics.relations import RELATIONS, Relation
from attnlib.metrics.sieves import SIEVES, sieve
from attnlib.models import Encoder
from attnlib.plots.lines import Lines, as_table
from bookkit.store import Found, experiment

NEW = ("sibling", "repeated_word", "rare_word", "question_mark")
SENTENCE = "The small cat quickly saw a grey mouse."
SECOND = "It ran away."


@experiment(version=1, reads=["spacy-en"])
def sieve_portraits(
    *,
    encoder: Encoder,
    asked: Sequence[tuple[str, str]],
    text: str = SENTENCE,
    pair: str = SECOND,
) -> Found:
    """For each (role, piece) one panel: lines from the piece to the keys of its sieve.

    table  the rows of `attnlib.plots.lines.as_table`
    """
    corpus = Corpus(
        "sentence", "segment", (Segment("sentence", text, pair),), {}, "own", "sentence"
    )
    examples = with_trees(corpus).examples
    (batch,) = batches_of(examples, encoder)
    tokens = encoder.tokenizer.convert_ids_to_tokens(batch.ids[0].tolist())
    panels = []
    for role, piece in asked:
        if piece not in tokens:
            raise BadValue(f"'{piece}' is no piece of the sentence; it has {', '.join(tokens)}.")
        place = tokens.index(piece)
        held = SIEVES[role].mask(batch)[0, place].cpu().numpy().astype(float)
        weights = np.zeros((len(tokens), len(tokens)))
        weights[place] = held / max(held.sum(), 1.0)
        what = f"{int(held.sum())} of {len(tokens)} pieces"
        panels.append(Lines(tokens, weights, role.replace("_", "-"), what, (place,)))
    return Found(as_table(panels), facts={"inputs": 1})


@sieve("sibling", "another piece of the same word")
def sibling(batch: Batch) -> Tensor:
    return RELATIONS["same_word"].mask(batch)


@sieve("repeated_word", "the same piece of another word of the input")
def repeated_word(batch: Batch) -> Tensor:
    elsewhere = batch.word.unsqueeze(2) != batch.word.unsqueeze(1)
    same = batch.ids.unsqueeze(2) == batch.ids.unsqueeze(1)
    return same & elsewhere & (batch.word >= 0).unsqueeze(2) & (batch.word >= 0).unsqueeze(1)


def question_mark(encoder: Encoder) -> Relation:
    """A question mark, for a model's vocabulary."""
    mark = encoder.tokenizer.convert_tokens_to_ids("?")

    @sieve("question_mark", "a question mark")
    def keys(batch: Batch) -> Tensor:
        return batch.ids == mark

    return keys


def rare_word(encoder: Encoder, corpus: Corpus) -> Relation:
    """The piece of an input that is rarest in the corpus; all of them where several are."""
    counts = torch.zeros(1 + max(encoder.tokenizer.get_vocab().values()), dtype=torch.long)
    for one in tokenized(corpus.examples, encoder):
        counts += torch.bincount(torch.tensor(one.ids), minlength=len(counts))
    most = int(counts.max()) + 1

    @sieve("rare_word", "the rarest piece of the input")
    def keys(batch: Batch) -> Tensor:
        seen = counts.to(batch.device)[batch.ids].masked_fill(batch.word < 0, most)
        return (seen == seen.amin(-1, keepdim=True)) & (batch.word >= 0)

    return keys


def new_sieves(encoder: Encoder, corpus: Corpus) -> list[Relation]:
    """All four, for a model and a corpus."""
    return [sibling, repeated_word, rare_word(encoder, corpus), question_mark(encoder)]
