"""Random attention maps to hold kernels to: mixed lengths, padding, and every kind of piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from attnlib.attention.encode import Batch, dependency_id
from attnlib.attention.maps import Attention
from tests.oracles import Maps, Text

MaskedScore = Literal["inf", "min"]
"""What stands in the logits of padding keys: minus infinity, or the lowest finite number."""

VARIED: tuple[dict[str, Any], ...] = (
    *({"seed": seed} for seed in range(4)),
    *({"seed": seed, "scores": "min"} for seed in range(4, 8)),
    {"seed": 8, "n_texts": 7, "longest": 12},
    {"seed": 9, "n_texts": 1, "longest": 44},
    {"seed": 10, "n_heads": 1},
    {"seed": 11, "n_heads": 17, "n_texts": 2, "longest": 12},
    {"seed": 12, "dtype": torch.float64},
    {"seed": 13, "dtype": torch.float64, "scores": "min", "n_heads": 3},
)
"""Settings of `random_attention` that between them show every kind of text and map."""

LABELS = tuple(field.name for field in fields(Text))
NONE_IS_MINUS_ONE = ("segment", "word", "sentence", "governor", "dependency")

ARCS = ("nsubj", "obj", "dobj", "amod", "advmod", "det")
"""Labels of random trees: those of Pande's sieves, in both spellings, and one of none."""

Arcs = Mapping[int, tuple[int, str]]
"""Of a dependent word: the word it depends on, and the label."""


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Within the context torch runs on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --- texts ---------------------------------------------------------------------------------------


def text_of(pieces: str, arcs: Arcs | None = None) -> Text:
    """A text written down: `[CLS] a b ##c , d . [SEP] e ! [SEP]`.

    A piece with ## continues the word before; a new sentence begins after a full stop. Words are
    counted from 0 over both parts: arcs={0: (1, "nsubj")} makes `a` the subject of `b ##c`.
    """
    rows: list[tuple[int, int, int, bool, bool, bool, bool, bool]] = []
    segment = sentence = 0
    word = -1
    ended = False
    for piece in pieces.split():
        if piece in ("[CLS]", "[SEP]"):
            rows.append((segment, -1, sentence, piece == "[CLS]", piece == "[SEP]", *[False] * 3))
            if piece == "[SEP]":
                segment, ended = segment + 1, True
            continue
        if ended:
            sentence, ended = sentence + 1, False
        word += not piece.startswith("##")
        marks = (piece == ",", piece == ".", not piece.strip("#").isalnum())
        rows.append((segment, word, sentence, False, False, *marks))
        ended = piece == "."
    columns = [tuple(column) for column in zip(*rows, strict=True)]
    untied = ((-1,) * len(rows), ("",) * len(rows))
    return with_arcs(Text(*columns, *untied), arcs or {})


def with_arcs(text: Text, arcs: Arcs) -> Text:
    """The same text with this tree; words without an arc are roots."""
    tied = [arcs.get(word, (-1, "")) for word in text.word]
    return replace(
        text,
        governor=tuple(governor for governor, _ in tied),
        dependency=tuple(label for _, label in tied),
    )


def random_arcs(rng: np.random.Generator, words: Sequence[int]) -> dict[int, tuple[int, str]]:
    """A tree over some words; governors may be in the other part, or words that have no piece."""
    if rng.random() < 0.2:
        return {}
    absent = [min(words) - 1, max(words) + 1, max(words) + 2]
    arcs = {}
    for word in words:
        others = [w for w in (*words, *words, *absent) if w != word and w >= 0]
        if rng.random() < 0.8:
            arcs[word] = (int(rng.choice(others)), str(rng.choice(ARCS)))
    return arcs


def random_text(rng: np.random.Generator, longest: int = 26) -> Text:
    """Pieces of a text of one or two parts; now and then without [CLS], without [SEP], or tiny."""
    longest = int(rng.choice([4, 12, longest], p=[0.2, 0.4, 0.4]))
    with_cls, with_sep = rng.random() > 0.15, rng.random() > 0.15
    pieces = ["[CLS]"] if with_cls else []
    for _ in range(rng.integers(1, 3)):
        for _ in range(rng.integers(1, longest // 2)):
            pieces.extend(_random_word(rng))
        pieces.extend(["[SEP]"] if with_sep else [])
    text = text_of(" ".join(pieces[: longest if rng.random() < 0.3 else None]))
    # a window cut out of a long text does not begin at word 0 and sentence 0
    skipped_words, skipped_sentences = rng.integers(0, 9, 2).tolist()
    text = replace(
        text,
        word=tuple(w + skipped_words if w >= 0 else -1 for w in text.word),
        sentence=tuple(s + skipped_sentences for s in text.sentence),
    )
    words = sorted({w for w in text.word if w >= 0})
    return with_arcs(text, random_arcs(rng.spawn(1)[0], words))  # draws nothing from the maps


def _random_word(rng: np.random.Generator) -> list[str]:
    if rng.random() < 0.35:
        return [str(rng.choice([",", ".", "!", "-"]))]
    return ["a", *["##b"] * int(rng.choice([0, 1, 2, 3], p=[0.5, 0.3, 0.1, 0.1]))]


def collated(texts: Sequence[Text], extra: int = 0) -> Batch:
    """Texts as a padded batch, with `extra` columns of padding beyond the longest."""
    width = max(map(len, texts)) + extra

    def column(name: str, fill: int | bool) -> Tensor:
        return torch.tensor(
            [[*getattr(text, name), *[fill] * (width - len(text))] for text in texts]
        )

    real = torch.tensor([[i < len(text) for i in range(width)] for text in texts])
    labels = {
        name: column(name, -1 if name in NONE_IS_MINUS_ONE else False)
        for name in LABELS
        if name != "dependency"
    }
    arcs = [[dependency_id(d) if d else -1 for d in text.dependency] for text in texts]
    labels["dependency"] = torch.tensor([[*row, *[-1] * (width - len(row))] for row in arcs])
    ids = torch.where(real, torch.arange(1, width + 1).expand(len(texts), -1), 0)
    return Batch(index=tuple(range(len(texts))), ids=ids, real=real, **labels)


# --- maps ----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def random_attention(
    seed: int,
    *,
    n_texts: int = 4,
    n_heads: int = 5,
    longest: int = 26,
    scores: MaskedScore | None = None,
    dtype: torch.dtype = torch.float32,
) -> Attention:
    """Maps of random texts; rows of padding queries hold garbage that a kernel must not read.

    Made once for each setting and shared by the tests: nobody may write to them.
    """
    rng = np.random.default_rng(seed)
    texts = [random_text(rng, longest) for _ in range(n_texts)]
    batch = collated(texts, extra=int(rng.integers(0, 3)))
    logits = torch.from_numpy(_random_logits(rng, n_texts, n_heads, batch.length)).to(dtype)
    hidden = ~batch.real[:, None, None, :]
    lowest = torch.finfo(dtype).min if scores == "min" else -torch.inf
    logits = logits.masked_fill(hidden, lowest)
    weights = logits.softmax(-1)
    nobody = ~batch.real[:, None, :, None]
    garbage = torch.from_numpy(rng.uniform(0, 5, weights.shape)).to(dtype)
    if scores:  # garbage that times a masked logit does not overflow
        garbage = garbage.masked_fill(hidden, 0)
    weights = torch.where(nobody, garbage, weights)
    return Attention(weights, batch, scores=logits if scores else None)


def varied() -> tuple[Attention, ...]:
    """The maps of `VARIED`."""
    return tuple(random_attention(**settings) for settings in VARIED)


def _random_logits(rng: np.random.Generator, n_texts: int, n_heads: int, width: int) -> Maps:
    """Blurred and focused heads; the last but one has one-hot rows, the last has exact zeros."""
    shape = (n_texts, n_heads, width, width)
    heat = rng.choice([0.1, 1.0, 4.0], size=(n_texts, n_heads, 1, 1))
    logits = rng.normal(size=shape) * heat
    if n_heads > 1:
        logits[:, -2] *= 1e5
        logits[:, -1] = rng.choice([0.0, 1.0, -1e5], size=shape[:1] + shape[2:])
        logits[:, -1, :, 0] = 1.0  # no row of low logits only, as a real mask leaves none
    return logits


def attention_of(weights: Tensor | Maps | list, *texts: str | Text) -> Attention:
    """Maps written down for texts of one length: (batch, head, query, key)."""
    known = [text_of(text) if isinstance(text, str) else text for text in texts]
    return Attention(torch.as_tensor(weights), collated(known))


@lru_cache(maxsize=256)
def padded(attention: Attention, extra: int, garbage: float = 7.0) -> Attention:
    """The same maps with more padding; new rows hold garbage, new keys get no attention."""
    batch, weights = attention.batch, attention.weights
    width = batch.length + extra
    bigger = torch.zeros(*weights.shape[:2], width, width, dtype=weights.dtype)
    bigger[..., : batch.length, : batch.length] = weights
    bigger[..., batch.length :, : batch.length] = garbage
    scores = None
    if attention.scores is not None:
        scores = torch.full_like(bigger, torch.finfo(weights.dtype).min)
        scores[..., : batch.length, : batch.length] = attention.scores
        scores[..., batch.length :, : batch.length] = 0
    return Attention(bigger, collated(texts_of(batch), extra=width - longest(batch)), scores)


def longest(batch: Batch) -> int:
    """Real pieces of the longest text."""
    return int(batch.real.sum(-1).max())


def texts_of(batch: Batch) -> list[Text]:
    """What the pieces of each example are, without padding."""
    label = {-1: ""} | {dependency_id(arc): arc for arc in ARCS}
    texts = []
    for i in range(len(batch)):
        n = int(batch.real[i].sum())
        columns = {name: tuple(getattr(batch, name)[i, :n].tolist()) for name in LABELS}
        columns["dependency"] = tuple(label.get(d, "other") for d in columns["dependency"])
        texts.append(Text(**columns))
    return texts


@lru_cache
def cropped(attention: Attention) -> list[tuple[Maps, Text]]:
    """The maps of each example without padding, in double precision, for an oracle."""
    found = []
    for i, text in enumerate(texts_of(attention.batch)):
        n = len(text)
        found.append((attention.weights[i, :, :n, :n].double().numpy(), text))
    return found


def picked(attention: Attention, examples: Sequence[int]) -> Attention:
    """The maps of some examples, in this order, copied."""
    where = list(examples)
    tensors = {f.name: getattr(attention.batch, f.name)[where] for f in fields(Batch)[1:]}
    index = tuple(attention.batch.index[i] for i in where)
    scores = None if attention.scores is None else attention.scores[where]
    return Attention(attention.weights[where], Batch(index=index, **tensors), scores)


def sliced(attention: Attention, which: slice) -> Attention:
    """The maps of a slice of the examples, as views."""
    scores = None if attention.scores is None else attention.scores[which]
    return Attention(attention.weights[which], attention.batch.rows(which), scores)


def with_heads(attention: Attention, heads: Sequence[int]) -> Attention:
    """The maps of some heads, in this order."""
    where = list(heads)
    scores = None if attention.scores is None else attention.scores[:, where]
    return Attention(attention.weights[:, where], attention.batch, scores)


def in_dtype(attention: Attention, dtype: torch.dtype) -> Attention:
    """The same maps in another precision, logits dropped."""
    return Attention(attention.weights.to(dtype), attention.batch)


def on_device(attention: Attention, device: str) -> Attention:
    scores = None if attention.scores is None else attention.scores.to(device)
    return Attention(attention.weights.to(device), attention.batch.to(device), scores)
