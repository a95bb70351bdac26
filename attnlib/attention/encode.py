"""Examples -> batches of pieces, with the word, sentence and token class of every piece."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnlib.data.examples import Example, Part, sentence_starts
from attnlib.errors import BadValue, TooLong, check_choice
from attnlib.models import Encoder
from attnlib.progress import counting

ON_LONG = ("error", "skip", "truncate", "window")
SEGMENT_IDS = ("pair", "zeros")

ASCII_SYMBOLS = frozenset("$+<=>^`|~")
"""Not punctuation for Unicode, but BERT's tokenizer splits words at them."""

TOKENIZE_AT_ONCE = 256
"""Examples handed to the tokenizer together; it works on them in parallel."""


@dataclass(frozen=True)
class Encoded:
    """One example, or one window of a long one, as pieces; special tokens have word -1.

    heads, labels  of each word of the example (not of each piece), where it has a dependency tree:
                   the word it depends on and the arc's `dependency_id`, both -1 for a root
    """

    index: int
    ids: list[int]
    segment: list[int]
    word: list[int]
    sentence: list[int]
    heads: Sequence[int] | None = None
    labels: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def pick(self, positions: Sequence[int]) -> Encoded:
        """The same example with only the pieces at these positions."""
        names = ("ids", "segment", "word", "sentence")
        columns: dict[str, Any] = {n: [getattr(self, n)[p] for p in positions] for n in names}
        return replace(self, **columns)

    def of_words(self, values: Sequence[int] | None) -> list[int]:
        """What is known of the words, for each piece; -1 on special tokens, or if nothing is."""
        if values is None:
            return [-1] * len(self)
        return [values[word] if word >= 0 else -1 for word in self.word]


_DEPENDENCIES: dict[str, int] = {}


def dependency_id(label: str) -> int:
    """The number of a dependency label in a batch, the same for a whole process."""
    return _DEPENDENCIES.setdefault(label, len(_DEPENDENCIES))


@dataclass(frozen=True, eq=False)
class Batch:
    """A padded batch of examples; `real` is False on padding, where every index is -1.

    segment   0 or 1, the part a piece belongs to; [CLS] and the first [SEP] count to part 0
    word      index of the word over both parts, -1 on special tokens
    sentence  index of the sentence over both parts; a special token goes with its neighbour
    governor  index of the word on which the piece's word depends, -1 for a root or no tree
    dependency  `dependency_id` of that arc's label, -1 where there is none
    """

    index: tuple[int, ...]
    ids: Int[Tensor, "batch piece"]
    real: Bool[Tensor, "batch piece"]
    segment: Int[Tensor, "batch piece"]
    word: Int[Tensor, "batch piece"]
    sentence: Int[Tensor, "batch piece"]
    cls: Bool[Tensor, "batch piece"]
    sep: Bool[Tensor, "batch piece"]
    comma: Bool[Tensor, "batch piece"]
    period: Bool[Tensor, "batch piece"]
    punctuation: Bool[Tensor, "batch piece"]
    governor: Int[Tensor, "batch piece"]
    dependency: Int[Tensor, "batch piece"]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def length(self) -> int:
        """Pieces per row, padding included."""
        return self.ids.shape[1]

    @property
    def device(self) -> torch.device:
        return self.ids.device

    # Every layer asks for these again; a batch answers once.

    @cached_property
    def period_or_comma(self) -> Bool[Tensor, "batch piece"]:
        return self.period | self.comma

    @cached_property
    def n_real(self) -> Float[Tensor, " batch"]:
        """Real pieces of each example."""
        return self.real.sum(-1).to(torch.float32)

    @cached_property
    def cls_place(self) -> tuple[Float[Tensor, " batch"], Int[Tensor, " batch"]]:
        """Whether an example has a [CLS], as 1 or 0, and where it is."""
        has_cls, place = self.cls.max(-1)
        return has_cls.to(torch.float32), place

    @cached_property
    def real_pairs(self) -> Bool[Tensor, "batch query key"]:
        """Where both the query and the key are real."""
        return self.real.unsqueeze(2) & self.real.unsqueeze(1)

    def rows(self, which: slice) -> Batch:
        """The examples of a slice, as views."""
        return self._map(lambda tensor: tensor[which], self.index[which])

    def to(self, device: torch.device | str) -> Batch:
        return self._map(lambda tensor: tensor.to(device), self.index)

    def _map(self, change: Callable[[Tensor], Tensor], index: tuple[int, ...]) -> Batch:
        tensors = {f.name: change(getattr(self, f.name)) for f in fields(self) if f.name != "index"}
        return Batch(index=index, **tensors)


def model_inputs(batch: Batch, encoder: Encoder, segment_ids: str = "pair") -> dict[str, Tensor]:
    """Keyword arguments for the model; "zeros" hides which part a piece belongs to.

    Clark's released code feeds zeros, BERT was pre-trained with 0 and 1: the maps differ.
    """
    check_choice("segment-ids", segment_ids, SEGMENT_IDS)
    inputs = {"input_ids": batch.ids, "attention_mask": batch.real.long()}
    if encoder.n_segments > 1:
        types = batch.segment.clamp_min(0)
        inputs["token_type_ids"] = types if segment_ids == "pair" else torch.zeros_like(types)
    return inputs


def check_max_length(max_length: int, encoder: Encoder) -> None:
    """Refuse a limit that leaves no room for a word, or that the model has no positions for."""
    if not 3 <= max_length <= encoder.max_length:
        raise BadValue(
            f"max-length is {max_length}; expected 3 to {encoder.max_length} pieces for "
            f"{encoder.name}, special tokens included. Choose a value in that range."
        )


def encode(
    examples: Sequence[Example],
    encoder: Encoder,
    *,
    max_length: int = 128,
    on_long: str = "error",
    skipped: Counter[str] | None = None,
) -> Iterator[Encoded]:
    """Pieces of each example, in order; what is too long is refused, skipped, cut or windowed.

    `skipped` counts, by reason, every example that was not measured as it was given.
    """
    check_max_length(max_length, encoder)
    check_choice("on-long", on_long, ON_LONG)
    counts = Counter[str]() if skipped is None else skipped
    for encoded in tokenized(examples, encoder):
        if max(encoded.word, default=-1) < 0:
            counts["no pieces"] += 1
        elif len(encoded) <= max_length:
            yield encoded
        elif on_long == "error":
            raise TooLong(_too_long_message(encoded, examples, encoder, max_length))
        elif on_long == "skip":
            counts["too long"] += 1
        elif on_long == "truncate":
            counts["truncated"] += 1
            yield truncated(encoded, max_length)
        else:
            counts["windowed"] += 1
            yield from windows(encoded, max_length)


def tokenized(examples: Sequence[Example], encoder: Encoder) -> Iterator[Encoded]:
    """Every example as pieces, however long."""
    spaced = _reads_spaces(encoder.tokenizer)
    for start in range(0, len(examples), TOKENIZE_AT_ONCE):
        chunk = examples[start : start + TOKENIZE_AT_ONCE]
        parts = [[_for_tokenizer(part, spaced=spaced) for part in e.parts] for e in chunk]
        kinds = [tuple(type(part) for part in one) for one in parts]
        found: dict[int, Encoded] = {}
        for kind in set(kinds):  # text or words, single or pair: each kind goes together
            members = [i for i, other in enumerate(kinds) if other == kind]
            coded = _call_tokenizer(encoder, kind, [parts[i] for i in members])
            for row, i in enumerate(members):
                found[i] = _aligned(start + i, chunk[i], coded, row)
        yield from (found[i] for i in range(len(chunk)))


def truncated(encoded: Encoded, max_length: int) -> Encoded:
    """Cut pieces off the end of the longer part, one by one, until the limit is met.

    The library's "longest_first": of two parts that have become equally long, the one that was
    shorter loses first.
    """
    parts = sorted(_content_by_part(encoded), key=len)
    excess = len(encoded) - max_length
    if excess >= sum(map(len, parts)):
        raise TooLong(
            f"document {encoded.index + 1}: its special tokens leave no room for a piece within "
            f"{max_length}. Use a larger --max-length or --on-long skip."
        )
    for _ in range(excess):
        max(parts, key=len).pop()
    special = (p for p, word in enumerate(encoded.word) if word < 0)
    return encoded.pick(sorted([*special, *parts[0], *parts[1]]))


def windows(encoded: Encoded, max_length: int) -> Iterator[Encoded]:
    """The longer part in consecutive, non-overlapping windows; the other part stays whole."""
    longest = max(_content_by_part(encoded), key=len)
    who = f"document {encoded.index + 1}: its shorter part has"
    for positions in window_positions(encoded, longest, max_length, who):
        yield encoded.pick(positions)


def window_positions(
    encoded: Encoded, content: Sequence[int], max_length: int, who: str, stride: int | None = None
) -> Iterator[list[int]]:
    """Windows over the pieces at some positions, each with all other pieces.

    who     has these other pieces, if they leave no room
    stride  by how many pieces a window starts after the one before; by default none overlap
    """
    outside = set(range(len(encoded))) - set(content)
    room = max_length - len(outside)
    if room < 1:
        raise TooLong(
            f"{who} {len(outside)} pieces itself and leaves no room for a window within "
            f"{max_length}. Use a larger --max-length or --on-long truncate."
        )
    for start in range(0, len(content), min(stride or room, room)):
        yield sorted(outside | set(content[start : start + room]))
        if start + room >= len(content):
            return


def batches(
    encoded: Iterable[Encoded], encoder: Encoder, *, batch_size: int = 16, look_ahead: int = 32
) -> Iterator[Batch]:
    """Batches of examples of similar length, so that little padding is computed.

    Sorting happens within `look_ahead` batches: memory does not grow with the corpus.
    """
    if batch_size < 1:
        raise BadValue(f"batch-size is {batch_size}; expected 1 or more.")
    collate = Collator(encoder)
    waiting = iter(encoded)
    while pool := sorted(islice(waiting, batch_size * look_ahead), key=len):
        for start in range(0, len(pool), batch_size):
            yield collate(pool[start : start + batch_size])


def batches_of(
    examples: Sequence[Example], encoder: Encoder, *, batch_size: int = 16, **limits: Any
) -> Iterator[Batch]:
    """Examples as batches; how many have been dealt with is counted.

    limits  max_length, on_long, skipped: see `encode`
    """
    done = 0
    with counting() as tick:
        for batch in batches(encode(examples, encoder, **limits), encoder, batch_size=batch_size):
            yield batch
            done += len(batch)
            tick(done, len(examples))


class Collator:
    """Pads examples into a Batch; knows the class of every piece of the vocabulary."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        surfaces = piece_surfaces(encoder.tokenizer)
        self.comma = torch.tensor([surface == "," for surface in surfaces])
        self.period = torch.tensor([surface == "." for surface in surfaces])
        self.punctuation = torch.tensor([is_punctuation(surface) for surface in surfaces])

    def __call__(self, examples: Sequence[Encoded]) -> Batch:
        ids = _padded((e.ids for e in examples), self.encoder.pad_id)
        word = _padded((e.word for e in examples), -1)
        real = torch.arange(ids.shape[1]) < torch.tensor([[len(e)] for e in examples])
        special, content = real & (word < 0), word >= 0
        tokenizer = self.encoder.tokenizer
        return Batch(
            index=tuple(e.index for e in examples),
            ids=ids,
            real=real,
            segment=_padded((e.segment for e in examples), -1),
            word=word,
            sentence=_padded((e.sentence for e in examples), -1),
            cls=special & (ids == _id_or_none(tokenizer.cls_token_id)),
            sep=special & (ids == _id_or_none(tokenizer.sep_token_id)),
            comma=content & self.comma[ids],
            period=content & self.period[ids],
            punctuation=content & self.punctuation[ids],
            governor=_padded((e.of_words(e.heads) for e in examples), -1),
            dependency=_padded((e.of_words(e.labels) for e in examples), -1),
        ).to(self.encoder.device)


def piece_surfaces(tokenizer: Any) -> list[str]:
    """What each piece of the vocabulary looks like in text, without its word-boundary mark."""
    vocabulary = tokenizer.get_vocab()
    surfaces = [""] * (1 + max(vocabulary.values()))  # some vocabularies have gaps
    for token, piece in vocabulary.items():
        bare = token.removeprefix("##").removeprefix("Ġ").removeprefix("▁")
        if not bare.isascii():  # byte-level vocabularies write other characters as bytes
            bare = tokenizer.convert_tokens_to_string([token]).strip().removeprefix("##")
        surfaces[piece] = bare
    return surfaces


def is_punctuation(surface: str) -> bool:
    """True for text made of punctuation only; ASCII symbols count, as in BERT's tokenizer."""
    return surface != "" and all(
        unicodedata.category(char).startswith("P") or char in ASCII_SYMBOLS for char in surface
    )


def _for_tokenizer(part: Part, *, spaced: bool) -> str | list[str]:
    if isinstance(part, str):
        return part
    return [f" {word}" if spaced and word[:1] not in ("", " ") else word for word in part]


def _reads_spaces(tokenizer: Any) -> bool:
    """Does a word differ with a space before it, as in byte-level vocabularies?

    There each word of a given tuple is written with its space, as the library's own
    add_prefix_space=True has it; plain text stays as it is.
    """
    return tokenizer.tokenize("a") != tokenizer.tokenize(" a")


def _call_tokenizer(encoder: Encoder, kind: tuple[type, ...], parts: list[list[Any]]) -> Any:
    if len(set(kind)) > 1:
        raise BadValue("one part of an example is text, the other words; expected one kind.")
    return encoder.tokenizer(
        *map(list, zip(*parts, strict=True)),
        is_split_into_words=kind[0] is list,
        split_special_tokens=True,  # a literal "[SEP]" in a text is text
        return_offsets_mapping=True,
        truncation=False,
        padding=False,
        verbose=False,
    )


def _aligned(index: int, example: Example, coded: Any, row: int) -> Encoded:
    """Word and sentence of each piece, counted over both parts; special tokens have no word."""
    known = getattr(example, "word_starts", None)  # words laid over a text, by where they begin
    words, parts = coded.word_ids(row), coded.sequence_ids(row)
    n_words_before = _n_words_before(example, words, parts)
    starts = [_starts_of(example, part) for part in range(len(example.parts))]
    segment: list[int] = []
    word: list[int] = []
    sentence: list[int] = []
    for w, part, span in zip(words, parts, coded["offset_mapping"][row], strict=True):
        if part is None or w is None:
            word.append(-1)
            segment.append(segment[-1] if segment else 0)
            sentence.append(sentence[-1] if sentence else 0)
            continue
        text = example.parts[part]
        where = _opening(text, *span) if isinstance(text, str) else w
        own = w if known is None else max(bisect_right(known[part], where) - 1, 0)
        word.append(own + (n_words_before if part else 0))
        segment.append(part)
        base = len(starts[0]) if part else 0
        sentence.append(base + max(bisect_right(starts[part], where) - 1, 0))
    return Encoded(index, coded["input_ids"][row], segment, word, sentence, *_tree_of(example))


def _opening(text: str, start: int, end: int) -> int:
    """The first character of a piece but its space: byte-level pieces hold the space before."""
    while start < end - 1 and text[start].isspace():
        start += 1
    return start


def _n_words_before(
    example: Example, words: Sequence[int | None], parts: Sequence[int | None]
) -> int:
    """How many words the first part has: those of the second are counted on from there."""
    first_part = example.parts[0]
    known = getattr(example, "word_starts", None)
    if known is not None:
        return len(known[0])
    if not isinstance(first_part, str):
        return len(first_part)
    first = (w for w, part in zip(words, parts, strict=True) if part == 0 and w is not None)
    return 1 + max(first, default=-1)


def _tree_of(example: Example) -> tuple[Sequence[int] | None, Sequence[int] | None]:
    """Head and label of each word of an example that has a tree."""
    heads, relations = (getattr(example, name, None) for name in ("heads", "relations"))
    if heads is None or relations is None:
        return None, None
    arcs = zip(heads, relations, strict=True)
    return heads, [dependency_id(label) if head >= 0 else -1 for head, label in arcs]


def _starts_of(example: Example, part: int) -> Sequence[int]:
    """Where the sentences of a part begin: in characters of a text, or in words."""
    known = example.sentence_starts
    if known is not None:
        return known[part]
    text = example.parts[part]
    return sentence_starts(text) if isinstance(text, str) else (0,)


def _content_by_part(encoded: Encoded) -> list[list[int]]:
    parts: list[list[int]] = [[], []]
    for position, (word, part) in enumerate(zip(encoded.word, encoded.segment, strict=True)):
        if word >= 0:
            parts[part].append(position)
    return parts


def _padded(rows: Iterable[Sequence[int]], fill: int) -> Tensor:
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=fill)


def _id_or_none(token: int | None) -> int:
    return -1 if token is None else token


def _too_long_message(
    encoded: Encoded, examples: Sequence[Example], encoder: Encoder, max_length: int
) -> str:
    affected = sum(len(other) > max_length for other in tokenized(examples, encoder))
    return (
        f"document {encoded.index + 1} has {len(encoded)} pieces, the limit is {max_length}. "
        f"Use --on-long skip|truncate|window; {affected} of {len(examples)} documents "
        f"{'is' if affected == 1 else 'are'} affected."
    )
