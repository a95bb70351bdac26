"""Windows cover every paragraph, pieces keep their characters, and the best spans are the best."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attnlib.attention.encode import Batch, Collator
from attnlib.data.corpora import load_corpus
from attnlib.data.examples import Answer, Question
from attnlib.errors import BadValue, TooLong
from attnlib.models import Encoder, load_encoder
from experiments.shared.training.spanmodel import (
    Candidate,
    Window,
    answerable,
    best_answers,
    candidates,
    targets,
    windows_of,
)
from tests.families import POSITIONS, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

ASKED = "why did it run"
N_ASKED = 4
"""Pieces of the question above; with [CLS] and two [SEP] a window has seven pieces of its own."""

WORDS = {
    "river": ("river",),
    "Rivers": ("river", "##s"),
    "SNOW": ("snow",),
    "waited": ("wait", "##ed"),
    "café": ("cafe",),
    "Éa": ("e", "##a"),
    "🙂": ("[UNK]",),
    "👩‍👩‍👧": ("[UNK]",),
    "雪": ("[UNK]",),
    "[": ("[",),
}
"""Words by hand, with their pieces: capitals, endings, accents, emoji of one and of many points."""

GAPS = (" ", "  ", "\t", "\n\n", "\u00a0", " \u3000")


def asked(context: str, *answers: str, text: str = ASKED, name: str = "q") -> Question:
    """A question whose answers stand at their first place in the paragraph."""
    found = tuple(Answer(answer, context.index(answer)) for answer in answers)
    return Question(name, text, context, found, "an article")


def paragraph(n_words: int, seed: int) -> tuple[str, list[str], list[tuple[int, int]]]:
    """A random text with its pieces and the characters of each, written down as it is made."""
    generator = np.random.default_rng(seed)
    text, pieces, places = " " * int(generator.integers(3)), list[str](), list[tuple[int, int]]()
    for word in generator.choice(list(WORDS), n_words):
        start = len(text)
        for n, piece in enumerate(WORDS[word]):
            last = n == len(WORDS[word]) - 1
            end = len(text) + len(word) if last else start + len(piece)
            places.append((start, end))
            pieces.append(piece)
            start = end
        text += word + str(generator.choice(GAPS))
    return text, pieces, places


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


@pytest.fixture(scope="module")
def roberta(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("roberta"), device="cpu")


def pieces_of(window: Window, encoder: Encoder) -> list[str]:
    found: list[str] = encoder.tokenizer.convert_ids_to_tokens(window.encoded.ids)
    return found


def placed(window: Window) -> list[tuple[int, int]]:
    return [place for place in window.places if place is not None]


# --- windows ----------------------------------------------------------------------------------


def naive_starts(n_pieces: int, room: int, stride: int) -> list[int]:
    """Where windows begin: go on by a stride, or by a window, until the end is seen."""
    starts, at = [0], 0
    while at + room < n_pieces:
        at += stride if stride < room else room
        starts.append(at)
    return starts


@pytest.mark.parametrize(
    ("max_length", "stride"), [(8, 1), (9, 5), (12, 2), (17, 10), (20, 3), (20, 64), (66, 20)]
)
@pytest.mark.parametrize("n_words", [1, 9, 30])
def test_windows_are_those_of_plain_loops(
    max_length: int, stride: int, n_words: int, bert: Encoder
) -> None:
    """Question and special tokens in each, stretches of the paragraph, and their characters."""
    text, pieces, places = paragraph(n_words, seed=n_words)
    found = windows_of([asked(text)], bert, max_length=max_length, stride=stride)
    room = max_length - N_ASKED - 3
    starts = naive_starts(len(pieces), room, stride)
    assert len(found) == len(starts)
    for number, (window, start) in enumerate(zip(found, starts, strict=True)):
        own = pieces[start : start + room]
        expected = ["[CLS]", *ASKED.split(), "[SEP]", *own, "[SEP]"]
        assert pieces_of(window, bert) == expected
        assert list(window.places) == [None] * 6 + places[start : start + room] + [None]
        assert window.encoded.segment == [0] * 6 + [1] * (len(own) + 1)
        assert (window.encoded.index, window.question) == (number, 0)
        assert len(window.encoded) == len(window.places) <= max_length


@pytest.mark.parametrize("stride", [1, 4, 7, 30])
def test_windows_cover_every_piece_and_overlap_as_they_should(stride: int, bert: Encoder) -> None:
    text, pieces, places = paragraph(40, seed=3)
    found = windows_of([asked(text)], bert, max_length=20, stride=stride)
    room, step = 13, min(stride, 13)
    stretches = [[places.index(place) for place in placed(window)] for window in found]
    assert sorted({p for stretch in stretches for p in stretch}) == list(range(len(pieces)))
    for stretch in stretches:
        assert stretch == list(range(stretch[0], stretch[-1] + 1))
    for before, after in itertools.pairwise(stretches):
        assert len(before) == room
        assert after[0] - before[0] == step
        assert len(set(before) & set(after)) == room - step
        assert after[-1] > before[-1]  # no window that has nothing new


def test_a_paragraph_that_just_fits_is_one_window(bert: Encoder) -> None:
    text = "river " * 10
    assert len(windows_of([asked(text)], bert, max_length=17, stride=1)) == 1
    found = windows_of([asked(text)], bert, max_length=16, stride=5)
    assert [len(placed(window)) for window in found] == [9, 5]


def test_questions_keep_their_number_and_windows_get_their_own(bert: Encoder) -> None:
    skipped: Counter[str] = Counter()
    texts = ["river " * 13, " \n ", "river " * 30, "", "snow"]  # the first just fits
    questions = [asked(text, name=f"q{i}") for i, text in enumerate(texts)]
    found = windows_of(questions, bert, max_length=20, stride=13, skipped=skipped)
    assert [window.question for window in found] == [0, 2, 2, 2, 4]
    assert [window.encoded.index for window in found] == list(range(5))
    assert skipped == {"no pieces": 2, "windowed": 1}
    assert windows_of([], bert, max_length=20) == []


def test_special_tokens_of_a_text_are_text(bert: Encoder) -> None:
    text = "[CLS] snow [SEP] river"
    (window,) = windows_of([asked(text, text="[SEP] why")], bert, max_length=30)
    pieces = pieces_of(window, bert)
    assert [p for p, piece in enumerate(pieces) if piece in ("[CLS]", "[SEP]")] == [
        0,
        7,
        len(pieces) - 1,
    ]
    assert [text[slice(*place)] for place in placed(window)] == [
        *("[", "C", "L", "S", "]", "snow", "[", "S", "E", "P", "]", "river"),
    ]


STRANGE = (
    "The old bridge  over\tthe river",
    "Her café cafe\u0301 sells 1,250 éclairs 🙂 a week 👩‍👩‍👧!",
    "雪 and snow\u00a0;  ﬁne ① İ ß",
)


def test_byte_level_pieces_keep_their_characters(roberta: Encoder) -> None:
    """A character may have several pieces there, and a lone space has none of its own."""
    for text in STRANGE:
        found = windows_of([asked(text)], roberta, max_length=30, stride=5)
        assert len(found) > 1
        covered = set()
        for window in found:
            assert pieces_of(window, roberta)[-1] == "</s>"
            n_inside = 0
            for piece, place in zip(window.encoded.ids, window.places, strict=True):
                if place is None:
                    continue
                n_inside += 1
                shown = roberta.tokenizer.decode([piece])
                if "\ufffd" in shown:  # some bytes of one character
                    assert place[1] == place[0] + 1 and not text[place[0]].isascii()
                else:
                    assert text[slice(*place)] == shown.strip(" ")
                covered |= set(range(*place))
            n_around = len(roberta.tokenizer(ASKED)["input_ids"]) + 2  # <s> </s></s> </s>
            assert n_inside == len(window.encoded) - n_around
        assert covered == {i for i, char in enumerate(text) if char != " "}


# --- characters to pieces ---------------------------------------------------------------------


def naive_span(window: Window, start: int, end: int) -> tuple[int, int] | None:
    """The first piece with the first character and the last piece with the last one."""
    first = last = None
    for piece, place in enumerate(window.places):
        if place is not None and place[0] <= start < place[1] and first is None:
            first = piece
        if place is not None and place[0] <= end - 1 < place[1]:
            last = piece
    return None if first is None or last is None else (first, last)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_spans_of_characters_are_those_of_a_naive_search(
    family: str, request: pytest.FixtureRequest
) -> None:
    encoder: Encoder = request.getfixturevalue(family)
    max_length = {"bert": 16, "roberta": 30}[family]  # several windows for each text
    n_found = n_absent = 0
    for text in STRANGE:
        found = windows_of([asked(text)], encoder, max_length=max_length, stride=4)
        written = sorted({i for w in found for place in placed(w) for i in range(*place)})
        for window, start, last in itertools.product(found, written, written):
            if start <= last:
                expected = naive_span(window, start, last + 1)
                assert window.span_of(start, last + 1) == expected
                n_found, n_absent = n_found + (expected is not None), n_absent + (expected is None)
    assert n_found > 500 and n_absent > 50


def test_a_span_needs_both_of_its_ends(bert: Encoder) -> None:
    text = "snow rivers closed"
    whole, *_ = windows_of([asked(text)], bert, max_length=20)
    first, second = windows_of([asked(text)], bert, max_length=9, stride=2)
    assert [text[slice(*p)] for p in placed(first)] == ["snow", "river"]
    assert [text[slice(*p)] for p in placed(second)] == ["s", "closed"]
    assert whole.span_of(5, 11) == (7, 8)  # rivers
    assert first.span_of(5, 11) is None and second.span_of(5, 11) is None
    assert whole.span_of(6, 8) == (7, 7)  # inside a piece: the whole of it
    assert first.span_of(0, 4) == (6, 6) and second.span_of(0, 4) is None
    assert second.span_of(12, 18) == (7, 7) and first.span_of(12, 18) is None
    assert whole.span_of(4, 5) is None  # a blank
    assert whole.span_of(99, 105) is None


def test_targets_are_those_of_a_naive_search(bert: Encoder) -> None:
    """Of every run of pieces in the window, the one that reads as the answer at its place."""
    questions = []
    generator = np.random.default_rng(0)
    for seed in range(12):
        text, _, places = paragraph(25, seed=seed)
        one, other = sorted(generator.integers(0, len(places), 2).tolist())
        start, end = places[one][0], places[min(other, one + 6)][1]
        decoy = Answer(text[places[0][0] : places[0][1]], places[0][0])
        answers = (Answer(text[start:end], start), decoy)  # the first is the one to learn
        questions.append(Question(str(seed), ASKED, text, answers, ""))
    found = windows_of(questions, bert, max_length=24, stride=6)
    expected = []
    for window in found:
        question, answer = questions[window.question], questions[window.question].answers[0]
        runs = []
        for first, last in itertools.combinations_with_replacement(range(len(window.places)), 2):
            begin, finish = window.places[first], window.places[last]
            if begin is None or finish is None or begin[0] != answer.start:
                continue
            if question.context[begin[0] : finish[1]] == answer.text:
                runs.append((first, last))
        assert len(runs) < 2
        expected.append(runs[0] if runs else (0, 0))
    spans, n_elsewhere = targets(found, questions)
    assert spans == expected
    assert n_elsewhere == expected.count((0, 0))
    assert 0 < n_elsewhere < len(found)
    assert {found[i].question for i, span in enumerate(spans) if span != (0, 0)} == set(range(12))


# --- the best spans of a window ---------------------------------------------------------------


def brute_force(
    logits: Tensor, window: Window, context: str, n_best: int, max_answer: int
) -> list[tuple[str, int, float]]:
    """Every pair of a start and an end in the paragraph, sorted; logits (piece, 2) of a window."""
    found = []
    for first, begin in enumerate(window.places):
        for last, finish in enumerate(window.places):
            if begin is None or finish is None or not first <= last <= first + max_answer - 1:
                continue
            if begin[0] == begin[1] or finish[0] == finish[1]:  # a lone blank is no text
                continue
            score = float(logits[first, 0]) + float(logits[last, 1])
            found.append((context[begin[0] : finish[1]], begin[0], score))
    return sorted(found, key=lambda span: -span[2])[:n_best]


def random_logits(batch: Batch, seed: int) -> Tensor:
    """Random numbers, the largest where no answer may lie."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(batch), batch.length, 2, generator=generator)
    logits[batch.word < 0] += 50.0  # special tokens and padding
    logits[batch.segment == 0] += 50.0
    return logits


def same(found: Sequence[Candidate], expected: Sequence[tuple[str, int, float]]) -> bool:
    if [(span.text, span.start) for span in found] != [(text, at) for text, at, _ in expected]:
        return False
    scores = [span.score for span in found]
    return scores == pytest.approx([score for *_, score in expected], abs=1e-5)


@pytest.fixture(scope="module")
def several(bert: Encoder) -> tuple[list[Question], list[Window], Batch]:
    """Windows of several lengths and questions in one padded batch, out of order."""
    texts = [paragraph(n, seed=n)[0] for n in (1, 4, 25, 9)]
    questions = [asked(text) for text in texts]
    windows = windows_of(questions, bert, max_length=26, stride=10)
    assert len(windows) > len(questions)
    batch = Collator(bert)([window.encoded for window in reversed(windows)])
    assert not batch.real.all()
    return questions, windows, batch


@pytest.mark.parametrize("n_best", [1, 5, 20, 100_000])
@pytest.mark.parametrize("max_answer", [1, 2, 5, 30])
def test_candidates_are_those_of_brute_force(
    n_best: int, max_answer: int, several: tuple[list[Question], list[Window], Batch]
) -> None:
    questions, windows, batch = several
    logits = random_logits(batch, seed=n_best + max_answer)
    found = candidates(logits, batch, windows, questions, n_best=n_best, max_answer=max_answer)
    assert len(found) == len(batch)
    for row, number in enumerate(batch.index):
        window, text = windows[number], questions[windows[number].question].context
        assert same(found[row], brute_force(logits[row], window, text, n_best, max_answer))
        for span in found[row]:
            assert text[span.start : span.start + len(span.text)] == span.text


def test_brute_force_tells_the_likely_slips(
    several: tuple[list[Question], list[Window], Batch],
) -> None:
    """The comparison above can fail: limits off by one, swapped ends, another row's logits."""
    questions, windows, batch = several
    logits = random_logits(batch, seed=0)
    found = candidates(logits, batch, windows, questions, n_best=100_000, max_answer=4)
    row = max(range(len(batch)), key=lambda r: len(placed(windows[batch.index[r]])))
    window = windows[batch.index[row]]
    text = questions[window.question].context
    assert same(found[row], brute_force(logits[row], window, text, 100_000, 4))
    for wrong in (3, 5):
        assert not same(found[row], brute_force(logits[row], window, text, 100_000, wrong))
    assert not same(found[row], brute_force(logits[row].flip(-1), window, text, 100_000, 4))
    assert not same(found[row], brute_force(logits[row - 1], window, text, 100_000, 4))
    assert not same(found[row], brute_force(logits[row], window, f" {text}", 100_000, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_scores_are_added_in_single_precision(
    dtype: torch.dtype, several: tuple[list[Question], list[Window], Batch]
) -> None:
    questions, windows, batch = several
    logits = random_logits(batch, seed=1).to(dtype)
    found = candidates(logits, batch, windows, questions, n_best=1)
    for row, number in enumerate(batch.index):
        text = questions[windows[number].question].context
        (best,) = brute_force(logits[row].float(), windows[number], text, 1, 30)
        assert found[row][0].score == pytest.approx(best[2], rel=1e-6)


def test_candidates_of_byte_level_pieces(roberta: Encoder) -> None:
    """Spans from one byte of a character to another still read as whole characters."""
    questions = [asked(text) for text in STRANGE]
    windows = windows_of(questions, roberta, max_length=40, stride=9)
    batch = Collator(roberta)([window.encoded for window in windows])
    logits = random_logits(batch, seed=5)
    found = candidates(logits, batch, windows, questions, n_best=100_000, max_answer=6)
    for row, number in enumerate(batch.index):
        text = questions[windows[number].question].context
        assert same(found[row], brute_force(logits[row], windows[number], text, 100_000, 6))
        assert all(text.startswith(span.text, span.start) for span in found[row])


def test_an_answer_may_lie_in_the_paragraph_or_nowhere(
    several: tuple[list[Question], list[Window], Batch],
) -> None:
    _, windows, batch = several
    found = answerable(windows, batch)
    for row, number in enumerate(batch.index):
        places = windows[number].places
        for piece in range(batch.length):
            inside = piece < len(places) and places[piece] is not None
            assert bool(found[row, piece]) == (inside or piece == 0)  # [CLS]
    first_rows = batch.rows(slice(0, 2))
    assert torch.equal(answerable(windows, first_rows), found[:2])


# --- the best spans of a question -------------------------------------------------------------


def test_windows_are_merged_and_what_occurs_twice_counts_once() -> None:
    def span(text: str, start: int, score: float) -> Candidate:
        return Candidate(text, start, score)

    found = [
        (2, [span("snow", 4, 3.0), span("river", 9, 1.0)]),
        (0, [span("old", 0, -1.0)]),
        (2, [span("river", 9, 5.0), span("snow", 4, 2.0), span("snow", 20, 0.5)]),
    ]
    best = best_answers(found, 4)
    assert best == [
        [span("old", 0, -1.0)],
        [],
        [span("river", 9, 5.0), span("snow", 4, 3.0), span("snow", 20, 0.5)],
        [],
    ]
    assert best_answers(found[::-1], 4) == best
    # What occurs twice is dropped before the best are taken.
    assert best_answers(found, 4, n_best=2)[2] == [span("river", 9, 5.0), span("snow", 4, 3.0)]
    assert best_answers([], 2) == [[], []]


def test_merging_is_that_of_plain_loops() -> None:
    generator = np.random.default_rng(1)
    found = []
    for question in generator.integers(0, 5, 40).tolist():
        numbers = generator.integers(0, 6, (8, 2)).tolist()
        scores = generator.standard_normal(8).tolist()
        read = zip(numbers, scores, strict=True)
        spans = [Candidate("x" * n, at, score) for (n, at), score in read]
        found.append((question, spans))
    best = best_answers(found, 5, n_best=7)
    for question in range(5):
        top: dict[tuple[int, int], float] = {}
        for own, spans in found:
            for span in spans if own == question else ():
                key = len(span.text), span.start
                top[key] = max(top.get(key, -np.inf), span.score)
        expected = sorted(((score, *key) for key, score in top.items()), reverse=True)[:7]
        assert [(s.score, len(s.text), s.start) for s in best[question]] == expected


def test_overlapping_windows_give_one_answer(bert: Encoder) -> None:
    """The same piece is the best of two windows; its higher score is kept."""
    question = asked("snow " * 8 + "river " + "snow " * 8)
    windows = windows_of([question], bert, max_length=20, stride=3)
    batch = Collator(bert)([window.encoded for window in windows])
    river = bert.tokenizer.convert_tokens_to_ids("river")
    logits = torch.zeros(len(batch), batch.length, 2)
    logits[batch.ids == river] = 5.0
    logits *= torch.arange(1, len(batch) + 1)[:, None, None]
    found = candidates(logits, batch, windows, [question], n_best=3)
    both = [spans[0] for spans in found if spans[0].text == "river"]
    assert len(both) > 1
    (best,) = best_answers([(0, spans) for spans in found], 1)
    assert best[0] == max(both, key=lambda span: span.score)
    assert [span.text for span in best].count("river") == 1


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [0, -3])
def test_a_stride_that_goes_nowhere_is_refused(stride: int, bert: Encoder) -> None:
    with pytest.raises(BadValue, match=f"stride is {stride}; expected 1 or more"):
        windows_of([asked("snow")], bert, max_length=20, stride=stride)


@pytest.mark.parametrize("max_length", [2, POSITIONS + 1])
def test_a_length_that_the_model_does_not_have_is_refused(max_length: int, bert: Encoder) -> None:
    with pytest.raises(BadValue, match=f"max-length is {max_length}; expected 3 to {POSITIONS}"):
        windows_of([asked("snow")], bert, max_length=max_length)


def test_a_question_without_room_for_its_paragraph_is_refused(bert: Encoder) -> None:
    questions = [asked("snow river", text="why"), asked("snow river")]
    found = windows_of(questions[1:], bert, max_length=N_ASKED + 4)
    assert [len(placed(window)) for window in found] == [1, 1]
    with pytest.raises(TooLong, match=r"question 2 has 7 pieces itself .* within 7\. Use a larger"):
        windows_of(questions, bert, max_length=N_ASKED + 3)


class Beside:
    """A tokenizer that reads a text alone otherwise than beside another."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __call__(self, text: Any, *pair: Any, **options: Any) -> Any:
        return self.real(f"a {text}" if isinstance(text, str) else text, *pair, **options)


def test_a_tokenizer_that_reads_pairs_otherwise_is_refused(bert: Encoder) -> None:
    odd = replace(bert, tokenizer=Beside(bert.tokenizer))
    with pytest.raises(BadValue, match=r"question 'q': its paragraph has 3 pieces alone and 2 "):
        windows_of([asked("snow river")], odd, max_length=20)


# --- real text --------------------------------------------------------------------------------


@pytest.mark.mirror
@pytest.mark.assets
@pytest.mark.skipif(not os.environ.get("ATTNLIB_MIRROR"), reason="$ATTNLIB_MIRROR is not set")
def test_answers_of_squad_are_found_in_their_windows(e5_small: Encoder) -> None:
    questions = load_corpus("squad:dev", limit=150).examples
    windows = windows_of(questions, e5_small, max_length=128, stride=32)
    assert len(windows) > len(questions)
    spans, n_elsewhere = targets(windows, questions)
    n_exact, seen = 0, set()
    for window, (first, last) in zip(windows, spans, strict=True):
        if (first, last) == (0, 0):
            continue
        answer = questions[window.question].answers[0]
        begin, finish = window.places[first], window.places[last]
        assert begin is not None and finish is not None
        read = questions[window.question].context[begin[0] : finish[1]]
        assert answer.text in read  # a piece may hold more than the answer: 1990 of 1990s
        n_exact += read == answer.text
        seen.add(window.question)
    assert seen == set(range(len(questions)))
    assert n_exact > 0.98 * (len(windows) - n_elsewhere)
