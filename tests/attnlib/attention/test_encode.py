"""Pieces belong to the right words, parts and sentences; long and empty examples are counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, RobertaConfig

from attnlib.attention.encode import (
    Batch,
    Collator,
    Encoded,
    batches,
    encode,
    is_punctuation,
    model_inputs,
    piece_surfaces,
    tokenized,
    truncated,
    windows,
)
from attnlib.data.examples import Part, Question, Segment, Tree
from attnlib.errors import BadValue, TooLong
from attnlib.models import Encoder, load_encoder
from tests.families import SENTENCES, byte_level_tokenizer, folders, one_thread, save_model

__all__ = ["folders", "one_thread"]  # fixtures

MIXED = tuple(Segment(str(i), text) for i, text in enumerate(SENTENCES))
LONG = Segment("long", "the old bridge over the river " * 20)


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"))


@pytest.fixture(scope="module")
def roberta(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("roberta"))


@pytest.fixture(scope="module")
def mpnet(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("mpnet"))


@pytest.fixture(params=["bert", "roberta", "mpnet"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return request.getfixturevalue(request.param)


def encoded(encoder: Encoder, text: Part, pair: Part | None = None) -> Encoded:
    (found,) = tokenized([Segment("0", text, pair)], encoder)
    return found


def pieces(encoder: Encoder, found: Encoded) -> list[str]:
    return encoder.tokenizer.convert_ids_to_tokens(found.ids)


def words(encoder: Encoder, text: Part, pair: Part | None = None) -> dict[int, str]:
    """Each word's pieces, written together; special tokens are left out."""
    found = encoded(encoder, text, pair)
    by_word: dict[int, str] = {}
    for piece, word in zip(pieces(encoder, found), found.word, strict=True):
        if word >= 0:
            by_word[word] = by_word.get(word, "") + piece.removeprefix("##")
    return by_word


def collated(encoder: Encoder, *examples: Any) -> Batch:
    return Collator(encoder)(list(tokenized(examples, encoder)))


def marked(encoder: Encoder, batch: Batch, mask: torch.Tensor) -> list[str]:
    return encoder.tokenizer.convert_ids_to_tokens(batch.ids[mask].tolist())


# --- words and pieces -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The river was closed.", ["the", "river", "was", "closed", "."]),
        ("don't", ["don", "'", "t"]),
        ("well-known", ["well", "-", "known"]),
        ("1,250 is 3.5%", ["1", ",", "250", "is", "3", ".", "5", "%"]),
        ("caf\u00e9", ["cafe"]),
        ("cafe\u0301", ["cafe"]),
        ("RIVER River", ["river", "river"]),
        ("river 😀 bridge", ["river", "[UNK]", "bridge"]),
        ("日本", ["[UNK]", "[UNK]"]),
        ("ri\u0007ver old", ["river", "old"]),
        ("old \u200b river", ["old", "river"]),
        ("  old\t\n river  ", ["old", "river"]),
    ],
)
def test_words_of_a_text(bert: Encoder, text: str, expected: list[str]) -> None:
    assert words(bert, text) == dict(enumerate(expected))


@pytest.mark.parametrize(
    ("given_words", "expected"),
    [
        (("The", "river", "."), {0: "the", 1: "river", 2: "."}),
        (("do", "n't", "wait"), {0: "do", 1: "n't", 2: "wait"}),
        (("well-known", "1,250"), {0: "well-known", 1: "1,250"}),
        (("old", "\u200b", "river"), {0: "old", 2: "river"}),
        (("old", "\u0007", "", " ", "river"), {0: "old", 4: "river"}),
        (("caf\u00e9", "cafe\u0301"), {0: "cafe", 1: "cafe"}),
        (("😀", "日本", "river"), {0: "[UNK]", 1: "[UNK][UNK]", 2: "river"}),
        (("New York", "river"), {0: "newyork", 1: "river"}),
    ],
)
def test_words_that_are_given_keep_their_index(
    bert: Encoder, given_words: tuple[str, ...], expected: dict[int, str]
) -> None:
    assert words(bert, given_words) == expected


def test_word_indices_count_over_both_parts(encoder: Encoder) -> None:
    found = words(encoder, ("old", "river"), ("the", "bridge"))
    assert [word.removeprefix("Ġ").replace("Ġ", "") for word in found.values()] == [
        "old",
        "river",
        "the",
        "bridge",
    ]
    assert list(found) == [0, 1, 2, 3]


def test_a_word_that_vanishes_at_the_end_still_counts(bert: Encoder) -> None:
    assert words(bert, ("old", "\u200b"), ("river",)) == {0: "old", 2: "river"}


def test_words_of_two_texts(bert: Encoder) -> None:
    assert words(bert, "don't", "wait!") == dict(enumerate(["don", "'", "t", "wait", "!"]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=6), max_size=8), st.booleans())
def test_any_words_align(given_words: list[str], pair: bool) -> None:
    """Whatever the words, a piece's word index is that of the word it was cut from."""
    encoder = ANY["encoder"]
    parts = (tuple(given_words), tuple(given_words[::-1])) if pair else (tuple(given_words),)
    found = encoded(encoder, *parts)
    flat = [word for part in parts for word in part]
    expected = [
        i for i, word in enumerate(flat) for _ in encoder.tokenizer.tokenize(word, **NO_SPECIAL)
    ]
    assert [word for word in found.word if word >= 0] == expected


ANY: dict[str, Encoder] = {}
NO_SPECIAL = {"split_special_tokens": True, "add_special_tokens": False}


@pytest.fixture(autouse=True)
def _any_encoder(bert: Encoder) -> None:
    """For tests whose arguments Hypothesis chooses."""
    ANY["encoder"] = bert


@pytest.mark.parametrize("text", [*SENTENCES, "old  river ", " old", "日本 😀\u200b", "\u0007"])
def test_a_text_is_tokenized_as_the_library_does(encoder: Encoder, text: str) -> None:
    plain = AutoTokenizer.from_pretrained(encoder.source)
    assert encoded(encoder, text).ids == plain(text)["input_ids"]
    assert encoded(encoder, text, SENTENCES[0]).ids == plain(text, SENTENCES[0])["input_ids"]


@pytest.mark.parametrize(
    "given_words",
    [("The", "old", "river"), ("old", "", "river"), ("\u200b", " ", " old"), (",", "1,250", "é")],
)
def test_given_words_are_tokenized_as_with_add_prefix_space(
    encoder: Encoder, given_words: tuple[str, ...]
) -> None:
    spaced = AutoTokenizer.from_pretrained(encoder.source, add_prefix_space=True)
    expected = spaced(list(given_words), is_split_into_words=True)
    found = encoded(encoder, given_words)
    assert found.ids == expected["input_ids"]
    assert [None if word < 0 else word for word in found.word] == expected.word_ids()


def test_text_and_words_may_not_be_mixed(bert: Encoder) -> None:
    with pytest.raises(BadValue, match="one part of an example is text, the other words"):
        encoded(bert, "old river", ("old", "river"))


def test_kinds_of_examples_may_be_mixed_in_a_corpus(encoder: Encoder) -> None:
    examples = [
        Segment("0", "the old river"),
        Segment("1", ("the", "old", "river")),
        Segment("2", "the old", "river"),
        Segment("3", ("the", "old"), ("river",)),
    ] * 80
    found = list(tokenized(examples, encoder))
    assert [one.index for one in found] == list(range(len(examples)))
    for kind in range(4):
        (alone,) = tokenized([examples[kind]], encoder)
        assert all(one.ids == alone.ids and one.word == alone.word for one in found[kind::4])


@pytest.mark.parametrize("text", ["[SEP] river [CLS] [MASK]", "</s> river <s> <mask> <pad>"])
def test_a_literal_special_token_is_text(encoder: Encoder, text: str) -> None:
    batch = collated(encoder, Segment("0", text), Segment("1", tuple(text.split())))
    assert batch.cls.sum(-1).tolist() == [1, 1]
    assert batch.sep.sum(-1).tolist() == [1, 1]
    special = set(encoder.tokenizer.all_special_ids) - {encoder.tokenizer.unk_token_id}
    for row in range(2):
        inside = batch.ids[row][batch.word[row] >= 0].tolist()
        assert not special & set(inside)


# --- parts, sentences, token classes ----------------------------------------------------------


def test_segments_of_a_pair(bert: Encoder) -> None:
    found = encoded(bert, "old river", "the bridge")
    assert pieces(bert, found) == ["[CLS]", "old", "river", "[SEP]", "the", "bridge", "[SEP]"]
    assert found.segment == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("name", ["roberta", "mpnet"])
def test_segments_where_two_delimiters_part_the_texts(
    request: pytest.FixtureRequest, name: str
) -> None:
    encoder = request.getfixturevalue(name)
    found = encoded(encoder, "a", "a")
    assert pieces(encoder, found) == ["<s>", "a", "</s>", "</s>", "a", "</s>"]
    assert found.segment == [0, 0, 0, 0, 1, 1]


def test_segment_ids_as_the_library_gives_them(bert: Encoder) -> None:
    batch = collated(bert, Segment("0", *SENTENCES[:2]), Segment("1", SENTENCES[3]))
    expected = bert.tokenizer(*SENTENCES[:2])["token_type_ids"]
    inputs = model_inputs(batch, bert)
    assert inputs["token_type_ids"][0].tolist() == expected
    assert batch.segment[1].tolist() == [0] * 3 + [-1] * (len(expected) - 3)
    assert inputs["token_type_ids"].min() == 0
    assert inputs["attention_mask"].tolist() == batch.real.long().tolist()
    assert model_inputs(batch, bert, "zeros")["token_type_ids"].abs().sum() == 0


def test_unknown_segment_ids_are_refused(bert: Encoder) -> None:
    with pytest.raises(BadValue, match="segment-ids is 'ones'; expected one of pair, zeros"):
        model_inputs(collated(bert, MIXED[0]), bert, "ones")


def test_models_without_segments_get_none(roberta: Encoder, mpnet: Encoder) -> None:
    for encoder in (roberta, mpnet):
        batch = collated(encoder, Segment("0", "a", "a"))
        assert set(model_inputs(batch, encoder)) == {"input_ids", "attention_mask"}


def sentence_of_words(encoder: Encoder, found: Encoded) -> dict[int, set[int]]:
    by_word: dict[int, set[int]] = {}
    for word, sentence in zip(found.word, found.sentence, strict=True):
        if word >= 0:
            by_word.setdefault(word, set()).add(sentence)
    return by_word


def test_sentences_of_a_text(encoder: Encoder) -> None:
    found = encoded(encoder, "It rained. We took the ferry! Why?")
    by_word = [sentences for _, sentences in sorted(sentence_of_words(encoder, found).items())]
    # It rained . | We took the ferry ! | Why ?
    assert by_word == [{0}] * 3 + [{1}] * 5 + [{2}] * 2
    assert found.sentence[0] == 0, "[CLS] goes with the first sentence"
    assert found.sentence[-1] == 2, "[SEP] goes with the last"


def test_sentences_count_over_both_parts(bert: Encoder) -> None:
    found = encoded(bert, "It rained. We took it.", "Why? So.")
    assert sorted(set(found.sentence)) == [0, 1, 2, 3]
    first_sep = found.ids.index(bert.tokenizer.sep_token_id)
    assert found.sentence[first_sep] == 1
    assert found.sentence[-1] == 3


def test_sentences_of_pieces_that_open_with_a_space(tmp_path: Path) -> None:
    """GPT-2's kind of tokenizer counts the space before a word to the word."""
    tokenizer = byte_level_tokenizer(trim_offsets=False)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=66,
    )
    encoder = load_encoder(save_model(config, tokenizer, tmp_path))
    found = encoded(encoder, "It rained. 1963 was colder.")
    opener = pieces(encoder, found).index("Ġ1")
    assert found.sentence[opener - 1 : opener + 1] == [0, 1]


def test_sentences_that_are_given(bert: Encoder) -> None:
    class Given(Segment):
        __slots__ = ()

        @property
        def sentence_starts(self) -> tuple[tuple[int, ...], ...]:
            return ((0, 2), (0, 1))

    (found,) = tokenized([Given("0", ("old", "river", "wait"), ("so", "we"))], bert)
    #                       [CLS] old river wait [SEP] so we [SEP]
    assert found.sentence == [0, 0, 0, 1, 1, 2, 3, 3]


def test_token_classes(bert: Encoder) -> None:
    batch = collated(
        bert, Segment("0", "Wait, so: $5. [SEP] 'a-b'"), Segment("1", "the", "old, river.")
    )
    assert marked(bert, batch, batch.cls) == ["[CLS]"] * 2
    assert marked(bert, batch, batch.sep) == ["[SEP]"] * 3
    assert marked(bert, batch, batch.comma) == [",", ","]
    assert marked(bert, batch, batch.period) == [".", "."]
    assert marked(bert, batch, batch.punctuation) == [*",:$.[]'-'", ",", "."]
    for mask in (batch.cls, batch.sep, batch.comma, batch.period, batch.punctuation):
        assert not (mask & ~batch.real).any()


def test_padding_with_a_delimiter_is_no_delimiter(bert: Encoder) -> None:
    """Tokenizers without a padding token are given their delimiter for it."""
    tokenizer = AutoTokenizer.from_pretrained(bert.source, pad_token="[SEP]")
    batch = collated(replace(bert, tokenizer=tokenizer), *MIXED)
    assert not batch.real.all()
    assert batch.sep.sum(-1).tolist() == [1] * len(MIXED)


def test_token_classes_of_byte_level_pieces(roberta: Encoder) -> None:
    batch = collated(roberta, Segment("0", ("so", ",", "we", ".", "—")))
    assert batch.comma.sum() == batch.period.sum() == 1
    surfaces = piece_surfaces(roberta.tokenizer)
    for piece, surface in (("Ġthe", "the"), (",", ","), ("Ã", "\ufffd")):
        assert surfaces[roberta.tokenizer.convert_tokens_to_ids(piece)] == surface


def test_surfaces_of_a_vocabulary_with_gaps(bert: Encoder) -> None:
    class Gaps:
        def __len__(self) -> int:
            return 2

        def get_vocab(self) -> dict[str, int]:
            return {",": 0, "river": 5}

    assert piece_surfaces(Gaps()) == [",", "", "", "", "", "river"]


@pytest.mark.parametrize(
    "mark", [*"!\"#%&'()*,-./:;?@[]{}_\\$+<=>^`|~", "—", "…", "“", "...", "!?"]
)
def test_punctuation(mark: str) -> None:
    assert is_punctuation(mark)


@pytest.mark.parametrize("text", ["", "a", "1", "a.", "€", "é", " ", "\ufffd"])
def test_no_punctuation(text: str) -> None:
    assert not is_punctuation(text)


# --- batches ----------------------------------------------------------------------------------


def random_examples(n: int, seed: int = 0) -> list[Segment]:
    draw = random.Random(seed)
    vocabulary = [
        "the",
        "old",
        "bridge",
        "over",
        "river",
        "was",
        "closed",
        "so",
        "we",
        "took",
        "it",
    ]
    return [
        Segment(str(i), " ".join(draw.choices(vocabulary, k=draw.randint(1, 60)))) for i in range(n)
    ]


@pytest.mark.parametrize("batch_size", [1, 7, 32, 1000])
def test_every_example_is_in_one_batch(bert: Encoder, batch_size: int) -> None:
    found = list(tokenized(random_examples(150), bert))
    made = list(batches(found, bert, batch_size=batch_size, look_ahead=3))
    assert sorted(i for batch in made for i in batch.index) == list(range(150))
    assert max(map(len, made)) <= batch_size
    assert all(len(batch) == batch_size for batch in made[:-1])
    for batch in made:
        for row, index in enumerate(batch.index):
            real = batch.real[row]
            assert real.sum() == len(found[index])
            assert not real[len(found[index]) :].any()
            assert batch.ids[row][real].tolist() == found[index].ids
            assert batch.word[row][real].tolist() == found[index].word
            assert batch.sentence[row][real].tolist() == found[index].sentence
            assert set(batch.ids[row][~real].tolist()) <= {bert.pad_id}
            for name in ("segment", "word", "sentence"):
                assert set(getattr(batch, name)[row][~real].tolist()) <= {-1}


def test_sorting_saves_padding(bert: Encoder) -> None:
    found = list(tokenized(random_examples(300), bert))

    def padded(groups: Sequence[Sequence[Encoded]]) -> int:
        return sum(len(group) * max(map(len, group)) for group in groups)

    unsorted = padded([found[i : i + 16] for i in range(0, 300, 16)])
    bucketed = sum(len(batch) * batch.length for batch in batches(found, bert, batch_size=16))
    n_pieces = sum(map(len, found))
    assert bucketed - n_pieces < 0.15 * (unsorted - n_pieces)


def test_memory_of_bucketing_is_bounded(bert: Encoder) -> None:
    """The first batch comes out after look_ahead batches went in, not at the end."""
    taken: list[int] = []

    def source() -> Any:
        for one in tokenized(random_examples(200), bert):
            taken.append(one.index)
            yield one

    next(batches(source(), bert, batch_size=4, look_ahead=5))
    assert len(taken) == 20


def test_order_of_examples_does_not_matter_to_a_row(bert: Encoder) -> None:
    def rows(examples: list[Segment]) -> dict[str, list[int]]:
        made = batches(tokenized(examples, bert), bert, batch_size=8)
        return {
            examples[i].id: batch.ids[row][batch.real[row]].tolist()
            for batch in made
            for row, i in enumerate(batch.index)
        }

    examples = random_examples(60)
    shuffled = random.Random(1).sample(examples, k=60)
    assert rows(examples) == rows(shuffled)


def test_no_examples_no_batches(bert: Encoder) -> None:
    assert list(batches([], bert)) == []
    assert list(encode([], bert, max_length=20)) == []


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batch_size_is_checked(bert: Encoder, batch_size: int) -> None:
    with pytest.raises(BadValue, match=f"batch-size is {batch_size}; expected 1 or more"):
        list(batches(tokenized(MIXED, bert), bert, batch_size=batch_size))


def test_a_slice_of_a_batch(bert: Encoder) -> None:
    batch = collated(bert, *MIXED)
    part = batch.rows(slice(1, 3))
    assert part.index == (1, 2)
    assert torch.equal(part.ids, batch.ids[1:3])
    assert torch.equal(part.punctuation, batch.punctuation[1:3])


# --- long and empty examples ------------------------------------------------------------------


@pytest.mark.parametrize("max_length", [-1, 0, 2, 67, 513])
def test_max_length_is_checked(bert: Encoder, max_length: int) -> None:
    with pytest.raises(BadValue, match=f"max-length is {max_length}; expected 3 to 66 pieces"):
        list(encode(MIXED, bert, max_length=max_length))


def test_on_long_is_checked(bert: Encoder) -> None:
    with pytest.raises(BadValue, match="on-long is 'cut'; expected one of error, skip"):
        list(encode(MIXED, bert, max_length=20, on_long="cut"))


def test_too_long_says_all(bert: Encoder) -> None:
    lengths = [len(one) for one in tokenized(MIXED, bert)]
    limit = 30
    first = next(i for i, length in enumerate(lengths) if length > limit)
    affected = sum(length > limit for length in lengths)
    assert affected > 1
    with pytest.raises(TooLong) as error:
        list(encode(MIXED, bert, max_length=limit))
    assert str(error.value) == (
        f"document {first + 1} has {lengths[first]} pieces, the limit is {limit}. Use --on-long "
        f"skip|truncate|window; {affected} of {len(MIXED)} documents are affected."
    )
    with pytest.raises(TooLong, match=r"1 of 2 documents is affected\.$"):
        list(encode((MIXED[3], LONG), bert, max_length=limit))


def test_the_limit_itself_is_not_too_long(encoder: Encoder) -> None:
    length = len(encoded(encoder, SENTENCES[0]))
    assert len(list(encode(MIXED[:1], encoder, max_length=length))) == 1
    with pytest.raises(TooLong):
        list(encode(MIXED[:1], encoder, max_length=length - 1))


@pytest.mark.parametrize(
    ("on_long", "reason", "n_found"), [("skip", "too long", 1), ("truncate", "truncated", 2)]
)
def test_what_was_not_measured_as_given_is_counted(
    encoder: Encoder, on_long: str, reason: str, n_found: int
) -> None:
    skipped: Counter[str] = Counter()
    examples = (MIXED[3], LONG)
    found = list(encode(examples, encoder, max_length=20, on_long=on_long, skipped=skipped))
    assert len(found) == n_found
    assert max(map(len, found)) <= 20
    assert skipped == {reason: 1}


def test_windows_are_counted_by_document(encoder: Encoder) -> None:
    skipped: Counter[str] = Counter()
    examples = (MIXED[3], LONG)
    found = list(encode(examples, encoder, max_length=20, on_long="window", skipped=skipped))
    assert [one.index for one in found] == [0] + [1] * (len(found) - 1)
    assert len(found) > 3
    assert skipped == {"windowed": 1}


@pytest.mark.parametrize("text", [" ", "", "\n\t", "\u0007\u0001", "\u200b", ()])
def test_nothing_to_read_is_counted(bert: Encoder, text: Part) -> None:
    skipped: Counter[str] = Counter()
    examples = (Segment("0", text), MIXED[3])
    found = list(encode(examples, bert, max_length=20, skipped=skipped))
    assert [one.index for one in found] == [1]
    assert skipped == {"no pieces": 1}


def test_one_empty_part_is_no_empty_example(encoder: Encoder) -> None:
    skipped: Counter[str] = Counter()
    examples = (Segment("0", "", "old river"), Segment("1", "old river", ""), Segment("2", "", ""))
    found = list(encode(examples, encoder, max_length=30, skipped=skipped))
    assert [one.index for one in found] == [0, 1]
    assert [set(one.word) - {-1} for one in found] == [{0, 1}, {0, 1}]
    assert skipped == {"no pieces": 1}


@pytest.mark.parametrize("limit", [5, 6, 9, 10, 21, 40])
@pytest.mark.parametrize(
    ("first", "second"),
    [(4, None), (0, 1), (1, 0), (4, 3), (3, 4), (4, 6), (6, 4), (2, 2), (0, 5), (6, 1)],
)
def test_truncation_is_the_library_s(
    encoder: Encoder, first: int, second: int | None, limit: int
) -> None:
    texts = [SENTENCES[first]] + ([SENTENCES[second]] if second is not None else [])
    cut = encoded(encoder, *texts)
    cut = truncated(cut, limit) if len(cut) > limit else cut
    expected = encoder.tokenizer(*texts, truncation="longest_first", max_length=limit)
    assert cut.ids == expected["input_ids"]
    words = [word + 1 for word in cut.word if word >= 0]
    assert words == sorted(words)


def test_truncation_keeps_the_last_delimiter(encoder: Encoder) -> None:
    cut = truncated(encoded(encoder, SENTENCES[0], SENTENCES[1]), 12)
    assert cut.ids[0] == encoder.tokenizer.cls_token_id
    assert cut.ids[-1] == encoder.tokenizer.sep_token_id
    assert {0, 1} == set(cut.segment)


@pytest.mark.parametrize("on_long", ["truncate", "window"])
def test_no_room_for_a_piece_is_said(encoder: Encoder, on_long: str) -> None:
    pair = Segment("0", "the old river", "the old bridge")
    with pytest.raises(TooLong, match=r"document 1: .* no room for a .*larger --max-length"):
        list(encode((pair,), encoder, max_length=3, on_long=on_long))


@pytest.mark.parametrize("limit", [3, 4, 11, 64])
def test_windows_hold_every_piece_once(encoder: Encoder, limit: int) -> None:
    whole = encoded(encoder, LONG.text)
    found = list(windows(whole, limit))
    content = [
        (piece, word)
        for window in found
        for piece, word in zip(window.ids, window.word, strict=True)
        if word >= 0
    ]
    assert content == list(zip(whole.ids, whole.word, strict=True))[1:-1]
    assert max(map(len, found)) == limit
    assert all(
        window.ids[0] == whole.ids[0] and window.ids[-1] == whole.ids[-1] for window in found
    )


def test_windows_of_a_pair_keep_the_other_part(encoder: Encoder) -> None:
    whole = encoded(encoder, "Why?", LONG.text)
    found = list(windows(whole, 20))
    short = [piece for piece, part in zip(whole.ids, whole.segment, strict=True) if part == 0]
    long: list[int] = []
    for window in found:
        parts = list(zip(window.ids, window.segment, window.word, strict=True))
        assert [piece for piece, part, _ in parts if part == 0] == short
        long += [piece for piece, part, word in parts if part == 1 and word >= 0]
    whole_parts = zip(whole.ids, whole.segment, whole.word, strict=True)
    assert long == [piece for piece, part, word in whole_parts if part == 1 and word >= 0]


# --- kinds of examples, and a real vocabulary ---------------------------------------------------


def test_trees_and_questions(bert: Encoder) -> None:
    tree = Tree("t", ("the", "river"), (1, -1), ("det", "root"), ("DET", "NOUN"))
    question = Question("q", "Why?", "It rained. So we took it.", (), "weather")
    batch = collated(bert, tree, question)
    assert batch.word[0][batch.real[0]].tolist() == [-1, 0, 1, -1]
    assert sorted(set(batch.sentence[1].tolist())) == [0, 1, 2]


@pytest.mark.assets
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Café naïve", "cafe naive"),
        ("Cafe\u0301", "cafe"),
        ("embeddings", "em ##bed ##ding ##s"),
        ("can't — “won't”…", "can ' t — “ won ' t ” …"),
        ("[SEP] [MASK]", "[ sep ] [ mask ]"),
        ("\u200b🦜 日", "[UNK] 日"),
    ],
)
def test_a_real_vocabulary(e5_small: Encoder, text: str, expected: str) -> None:
    assert pieces(e5_small, encoded(e5_small, text))[1:-1] == expected.split()


@pytest.mark.assets
def test_token_classes_of_a_real_vocabulary(e5_small: Encoder) -> None:
    batch = collated(e5_small, Segment("0", "“So,” he said — no… yes; $5 (a-b) & [UNK] € +."))
    found = marked(e5_small, batch, batch.punctuation)
    assert found == ["“", ",", "”", "—", "…", ";", "$", "(", "-", ")", "&", "[", "]", "+", "."]
