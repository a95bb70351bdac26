"""The roles that the paper names in its related work and leaves out: four sieves of a few lines."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlib.attention.encode import Batch, tokenized
from attnlib.data.corpora import Corpus
from attnlib.metrics.relations import RELATIONS, Relation
from attnlib.metrics.sieves import sieve
from attnlib.models import Encoder

NEW = ("sibling", "repeated_word", "rare_word", "question_mark")


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
