"""Clark's inputs: two consecutive paragraphs of an article, cut to a number of pieces."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from attnlib.data.examples import Segment, sentence_starts
from attnlib.data.textfiles import field, read_jsonl
from attnlib.data.wikitext import Paragraph, Paragraphs
from attnlib.errors import BadValue
from attnlib.files import written_whole

Length = Callable[[str], int]
SPECIAL_TOKENS = 3  # [CLS] a [SEP] b [SEP]


def piece_length(tokenizer: Any) -> Length:
    """How many pieces a text has, without special tokens.

    Takes a tokenizer of transformers or tokenizers, or any callable from text to a number or to
    the pieces themselves.
    """
    if hasattr(tokenizer, "tokenize"):
        return lambda text: len(tokenizer.tokenize(text))
    if hasattr(tokenizer, "encode"):
        return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
    if not callable(tokenizer):
        raise BadValue(f"{tokenizer!r} is no tokenizer. Give one, or a function text -> n_pieces.")

    def length(text: str) -> int:
        counted = tokenizer(text)
        return counted if isinstance(counted, int) else len(counted)

    return length


def segments(
    paragraphs: Iterable[Paragraph],
    length: Length,
    *,
    max_length: int = 128,
    n: int | None = None,
    seed: int = 0,
    variant: str = "paper",
) -> tuple[list[Segment], dict[str, int]]:
    """At most `n` segments drawn at random without overlap, and what was left out by reason.

    paper    two consecutive paragraphs (Clark 2019, sec. 2); the longer side loses its end until
             `[CLS] a [SEP] b [SEP]` has at most `max_length` pieces.
    authors  the released preprocessing: lines are gathered until they have `max_length - 3`
             pieces, split into a and b at a random line, and the longer side loses its first or
             last piece at random. A line is a sentence here, as in BERT's own pre-training files;
             we cut whole words, so that a segment stays plain text.

    The same seed gives the same segments, and a smaller `n` a subset of a larger one's.
    """
    if max_length < SPECIAL_TOKENS + 2:
        raise BadValue(f"max_length {max_length} leaves no room for two texts; at least 5 needed.")
    if variant not in ("paper", "authors"):
        raise BadValue(f"variant '{variant}' is unknown. Use 'paper' or 'authors'.")
    skipped: Counter[str] = Counter()
    rng = random.Random(seed)
    pairs = (
        _paper_pairs(paragraphs)
        if variant == "paper"
        else _chunks(paragraphs, length, max_length, rng, skipped)
    )
    pairs = rng.sample(pairs, len(pairs))
    made: list[tuple[int, Segment]] = []
    for place, name, first, second in pairs:
        if n is not None and len(made) == n:
            break
        fitted = _fit(
            first,
            second,
            length,
            max_length - SPECIAL_TOKENS,
            rng if variant == "authors" else None,
        )
        if fitted is None:
            skipped["one side has no word that fits"] += 1
        else:
            made.append((place, Segment(name, *fitted)))
    return [segment for _, segment in sorted(made, key=lambda item: item[0])], dict(skipped)


_Pair = tuple[int, str, str, str]


def _articles(paragraphs: Iterable[Paragraph]) -> Iterable[tuple[str, list[Paragraph]]]:
    for article, group in groupby(paragraphs, key=lambda paragraph: paragraph.article):
        yield article, list(group)


def _paper_pairs(paragraphs: Iterable[Paragraph]) -> list[_Pair]:
    """Disjoint pairs of neighbours, greedily from the start of each article."""
    pairs: list[_Pair] = []
    for article, group in _articles(paragraphs):
        taken = -1
        for first, second in pairwise(group):
            if second.index == first.index + 1 and first.index > taken:
                taken = second.index
                name = f"{article}#{first.index}"
                pairs.append((len(pairs), name, first.text, second.text))
    return pairs


def _chunks(
    paragraphs: Iterable[Paragraph],
    length: Length,
    max_length: int,
    rng: random.Random,
    skipped: Counter[str],
) -> list[_Pair]:
    """The released code's chunks of lines, each split in two at a random line."""
    pairs: list[_Pair] = []
    for article, group in _articles(paragraphs):
        lines = [line for paragraph in group for line in _sentences(paragraph.text)]
        chunk: list[str] = []
        size = 0
        for number, line in enumerate(lines):
            chunk.append(line)
            size += length(line)
            if size < max_length - SPECIAL_TOKENS and number < len(lines) - 1:
                continue
            if len(chunk) < 2:
                skipped["one line only"] += 1
            else:
                cut = rng.randint(1, len(chunk) - 1)
                name = f"{article}#{number - len(chunk) + 1}"
                pairs.append((len(pairs), name, " ".join(chunk[:cut]), " ".join(chunk[cut:])))
            chunk, size = [], 0
    return pairs


def _sentences(text: str) -> list[str]:
    starts = (*sentence_starts(text), len(text))
    return [text[a:b].strip() for a, b in pairwise(starts)]


def _fit(
    first: str, second: str, length: Length, room: int, rng: random.Random | None
) -> tuple[str, str] | None:
    """Both texts with at most `room` pieces together, or None if a side would be empty.

    Cutting the longer side until the pair fits leaves the shorter whole if it has at most half of
    the room, else both about half.
    """
    if rng is None:  # a word has at least one piece: what lies beyond cannot stay
        first, second = _words(first, room + 1), _words(second, room + 1)
    n_first, n_second = length(first), length(second)
    if n_first + n_second > room:
        half = room // 2
        if n_first <= n_second:
            first = _cut(first, max(room - n_second, half), length, rng)
            second = _cut(second, room - length(first), length, rng)
        else:
            second = _cut(second, max(room - n_first, half), length, rng)
            first = _cut(first, room - length(second), length, rng)
    return (first, second) if first.strip() and second.strip() else None


def _words(text: str, n_words: int) -> str:
    """The text, or its first words if it has more than `n_words`."""
    words = text.split(maxsplit=n_words)
    return text if len(words) <= n_words else " ".join(words[:n_words])


def _cut(text: str, room: int, length: Length, rng: random.Random | None) -> str:
    """The most whole words of the text that have at most `room` pieces.

    Without `rng` the end goes; with it, each word goes from the front or the end by a coin.
    """
    if length(text) <= room:
        return text
    words = text.split()
    fronts = [0]  # how many words went from the front after k cuts
    for _ in words:
        fronts.append(fronts[-1] + (rng is not None and rng.random() < 0.5))

    def after(cuts: int) -> str:
        return " ".join(words[fronts[cuts] : len(words) - (cuts - fronts[cuts])])

    low, high = 0, len(words)  # after(high) fits, after(low) does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if length(after(middle)) <= room else (middle, high)
    return after(high)


def read_paragraphs(path: Path) -> Paragraphs:
    """Paragraphs from a jsonl file with `title`, `para` and `text`; see `write_paragraphs`."""
    items: list[Paragraph] = []
    skipped: Counter[str] = Counter()
    for row in read_jsonl(path):
        if "skipped" in row[1]:
            skipped.update(field(row, path, "skipped", kind=dict))
            continue
        title, index = field(row, path, "title"), field(row, path, "para", kind=int)
        items.append(Paragraph(title, index, field(row, path, "text")))
    return Paragraphs(tuple(items), dict(skipped))


def write_paragraphs(path: Path, paragraphs: Paragraphs) -> None:
    """Paragraphs as jsonl, the counts of what was left out in a last line.

    The file appears under its name only when it is whole, so two processes may write at once.
    """
    rows: list[dict[str, Any]] = [
        {"title": item.article, "para": item.index, "text": item.text} for item in paragraphs.items
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as draft, open(draft, "w", encoding="utf-8") as out:
        for row in [*rows, {"skipped": paragraphs.skipped}]:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def cached_paragraphs(path: Path, extract: Callable[[], Paragraphs]) -> Paragraphs:
    """What `extract` gives, kept in a file; without the file if the folder cannot be written."""
    if path.exists():
        return read_paragraphs(path)
    found = extract()
    with contextlib.suppress(OSError):
        write_paragraphs(path, found)
    return found
