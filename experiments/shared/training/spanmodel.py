"""An encoder that reads answers out of a paragraph, by BERT's span head, trained, kept by content.

Questions on paragraphs are windows of pieces, and answers are spans of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention import encode
from attnlib.attention.encode import Batch, Encoded, batches, check_max_length, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question
from attnlib.errors import BadValue
from attnlib.models import Encoder
from experiments.shared.training.answers import check_answered
from experiments.shared.training.finetune import draw_layers
from experiments.shared.training.kept_models import home_of, tuned
from experiments.shared.training.loop import Recipe

STRIDE = 128
VERSION = 1
"""Part of every key: raise it with any change of code that changes what a training ends with."""
N_BEST = 20
MAX_ANSWER = 30
"""Pieces of the longest answer that is considered, as in BERT's own script."""


# --- windows and spans ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """A question with a stretch of its paragraph, as the model reads them.

    encoded   its pieces; `index` numbers the windows, not the questions
    question  which question it belongs to
    places    of each piece, the characters of the paragraph it stands for; None elsewhere
    """

    encoded: Encoded
    question: int
    places: tuple[tuple[int, int] | None, ...]

    def span_of(self, start: int, end: int) -> tuple[int, int] | None:
        """First and last piece that cover characters start..end; None if they are not all here."""
        held = {piece: place for piece, place in enumerate(self.places) if place is not None}
        inside = [piece for piece, (a, b) in held.items() if a < end and b > start]
        if not inside or held[inside[0]][0] > start or held[inside[-1]][1] < end:
            return None
        return inside[0], inside[-1]


@dataclass(frozen=True)
class Candidate:
    """A span of a paragraph that may be the answer. `score` is the sum of its two logits."""

    text: str
    start: int
    score: float


def windows_of(
    questions: Sequence[Question],
    encoder: Encoder,
    *,
    max_length: int = 256,
    stride: int = 128,
    skipped: Counter[str] | None = None,
) -> list[Window]:
    """Every question with its paragraph, long paragraphs in overlapping windows.

    stride  by how many pieces of the paragraph a window starts after the one before
    The question stays whole; one that leaves no room for a piece of the paragraph is refused.
    """
    encode.check_max_length(max_length, encoder)
    if stride < 1:
        raise BadValue(f"stride is {stride}; expected 1 or more pieces.")
    found: list[Window] = []
    for encoded in encode.tokenized(questions, encoder):
        question = questions[encoded.index]
        content = [p for p, w in enumerate(encoded.word) if w >= 0 and encoded.segment[p] == 1]
        if not content:
            if skipped is not None:
                skipped["no pieces"] += 1
            continue
        characters = _characters(question, encoder, len(content))
        places = dict(zip(content, characters, strict=True))
        who = f"question {encoded.index + 1} has"
        for picked in encode.window_positions(encoded, content, max_length, who, stride):
            found.append(
                Window(
                    replace(encoded.pick(picked), index=len(found)),
                    encoded.index,
                    tuple(places.get(piece) for piece in picked),
                )
            )
        if skipped is not None and len(encoded) > max_length:
            skipped["windowed"] += 1
    return found


def _characters(question: Question, encoder: Encoder, n_pieces: int) -> list[tuple[int, int]]:
    """The characters of the paragraph that each of its pieces stands for."""
    coded = encoder.tokenizer(
        question.context,
        add_special_tokens=False,
        split_special_tokens=True,
        return_offsets_mapping=True,
        verbose=False,
    )
    places = [(int(start), int(end)) for start, end in coded["offset_mapping"]]
    if len(places) != n_pieces:
        raise BadValue(
            f"question '{question.id}': its paragraph has {len(places)} pieces alone and "
            f"{n_pieces} beside the question; expected as many. Use another tokenizer."
        )
    return places


def answerable(windows: Sequence[Window], batch: Batch) -> Bool[Tensor, "batch piece"]:
    """Where an answer may begin or end: pieces of the paragraph, and [CLS] for "not here"."""
    found = torch.zeros_like(batch.real, device="cpu")
    for row, number in enumerate(batch.index):
        # Byte-level pieces of a lone blank stand for no characters.
        holds = [place is not None and place[0] < place[1] for place in windows[number].places]
        found[row, : len(holds)] = torch.tensor(holds)
    return found.to(batch.device) | batch.cls


def open_logits(
    logits: Float[Tensor, "batch piece 2"], batch: Batch, windows: Sequence[Window]
) -> Float[Tensor, "batch piece 2"]:
    """The logits with as good as no chance for pieces where no answer may begin or end."""
    closed = ~answerable(windows, batch).unsqueeze(-1)
    return logits.masked_fill(closed, torch.finfo(logits.dtype).min)


def targets(
    windows: Sequence[Window], questions: Sequence[Question]
) -> tuple[list[tuple[int, int]], int]:
    """First and last piece of each window's answer, and how many windows do not hold theirs.

    The first accepted answer is the one to learn. A window without it learns [CLS], piece 0.
    """
    spans = []
    for window in windows:
        answer = questions[window.question].answers[0]
        start = answer.start + len(answer.text) - len(answer.text.lstrip())  # no piece is blank
        spans.append(window.span_of(start, start + len(answer.text.strip())))
    return [(0, 0) if span is None else span for span in spans], spans.count(None)


def candidates(
    logits: Float[Tensor, "batch piece 2"],
    batch: Batch,
    windows: Sequence[Window],
    questions: Sequence[Question],
    *,
    n_best: int = N_BEST,
    max_answer: int = MAX_ANSWER,
) -> list[list[Candidate]]:
    """The best spans of each window of a batch, the highest score first.

    A span lies in the paragraph and has at most `max_answer` pieces; its score is the start logit
    of its first piece plus the end logit of its last.
    """
    length = batch.length
    inside = answerable(windows, batch) & ~batch.cls
    start = logits[..., 0].float().masked_fill(~inside, -torch.inf)
    end = logits[..., 1].float().masked_fill(~inside, -torch.inf)
    place = torch.arange(length, device=batch.device)
    ahead = place[None, :] - place[:, None]
    allowed = (ahead >= 0) & (ahead < max_answer)
    scores = (start[:, :, None] + end[:, None, :]).masked_fill(~allowed, -torch.inf)
    best = scores.flatten(1).topk(min(n_best, length * length))
    found = []
    for row, number in enumerate(batch.index):
        window = windows[number]
        text = questions[window.question].context
        spans = []
        for value, flat in zip(best.values[row].tolist(), best.indices[row].tolist(), strict=True):
            if value == -torch.inf:
                break
            first, last = window.places[flat // length], window.places[flat % length]
            assert first is not None and last is not None
            spans.append(Candidate(text[first[0] : last[1]], first[0], value))
        found.append(spans)
    return found


def best_answers(
    found: Sequence[tuple[int, Sequence[Candidate]]], n_questions: int, n_best: int = N_BEST
) -> list[list[Candidate]]:
    """The best spans of each question over all its windows; one that occurs twice counts once.

    found  (question, candidates) of every window
    """
    pooled: list[list[Candidate]] = [[] for _ in range(n_questions)]
    for question, spans in found:
        pooled[question] += spans
    answers = []
    for spans in pooled:
        ordered = sorted(spans, key=lambda span: -span.score)
        distinct = {(span.start, span.text): span for span in reversed(ordered)}
        answers.append(sorted(distinct.values(), key=lambda span: -span.score)[:n_best])
    return answers


def first_texts(answers: Sequence[Sequence[Candidate]]) -> list[str]:
    """The text of each question's best span; empty where it has none."""
    return [spans[0].text if spans else "" for spans in answers]


# --- the model ------------------------------------------------------------------------------------


class SpanHead(nn.Module):
    """BERT's head for extraction: a start and an end logit of every piece, one linear layer."""

    def __init__(self, encoder: Encoder, seed: int = 0) -> None:
        super().__init__()
        self.out = nn.utils.skip_init(nn.Linear, encoder.model.config.hidden_size, 2)
        draw_layers(self, encoder, seed)

    def forward(self, hidden: Float[Tensor, "batch piece dim"]) -> Float[Tensor, "batch piece 2"]:
        logits: Tensor = self.out(hidden)
        return logits


@dataclass(frozen=True, eq=False)
class SpanReader:
    """A trained encoder and its span head, both in evaluation mode with frozen weights."""

    encoder: Encoder
    head: SpanHead
    facts: dict[str, Any]

    def hidden(self, batch: Batch) -> Tensor:
        """The last hidden states (batch, piece, dim) of a plain forward pass."""
        found: Tensor = self.encoder.model(**model_inputs(batch, self.encoder))[0]
        return found

    def windows(self, questions: Sequence[Question]) -> list[Window]:
        """The questions as the model reads them, as long as in training."""
        limit = self.facts["recipe"]["max_length"]
        stride = min(self.facts.get("stride", STRIDE), limit)
        return windows_of(questions, self.encoder, max_length=limit, stride=stride)

    def reading(self, max_length: int) -> SpanReader:
        """The same reader with windows of another length."""
        check_max_length(max_length, self.encoder)
        recipe = {**self.facts["recipe"], "max_length": max_length}
        return replace(self, facts={**self.facts, "recipe": recipe})

    def batches(self, windows: Sequence[Window], batch_size: int = 16) -> list[Batch]:
        """All windows in batches of similar length."""
        pieces = [window.encoded for window in windows]
        return list(batches(pieces, self.encoder, batch_size=batch_size, look_ahead=len(pieces)))

    def spans(
        self,
        hidden: Tensor,
        batch: Batch,
        windows: Sequence[Window],
        questions: Sequence[Question],
        n_best: int = N_BEST,
    ) -> list[tuple[int, list[Candidate]]]:
        """(question, candidates) of every window of a batch, from its hidden states."""
        logits = self.head(hidden)
        if not torch.isfinite(logits[batch.real]).all():
            asked = questions[windows[batch.index[0]].question].id
            raise BadValue(
                f"{self.encoder.name} answers a question near '{asked}' with a number that is not "
                "finite. Train it again with a smaller learning rate."
            )
        found = candidates(logits, batch, windows, questions, n_best=n_best)
        asked_of = (windows[number].question for number in batch.index)
        return list(zip(asked_of, found, strict=True))

    def answers(
        self, questions: Sequence[Question], *, batch_size: int = 16, n_best: int = N_BEST
    ) -> list[list[Candidate]]:
        """The best spans for each question, the best first; none where it has no paragraph."""
        windows = self.windows(questions)
        found: list[tuple[int, list[Candidate]]] = []
        with torch.inference_mode():
            for batch in self.batches(windows, batch_size):
                found += self.spans(self.hidden(batch), batch, windows, questions, n_best)
        return best_answers(found, len(questions), n_best)


def spantuned(
    encoder: Encoder,
    corpus: Corpus,
    *,
    recipe: Recipe | None = None,
    stride: int = STRIDE,
    cache: Path | None = None,
) -> SpanReader:
    """The encoder trained to read answers out of a corpus of questions; kept like `finetuned`.

    A start and an end are learnt by cross-entropy over the pieces of the paragraph and [CLS],
    which stands for "not in this window".
    """
    how = recipe or Recipe(max_length=256, batch_size=16)
    check_answered(corpus.examples, corpus.name)
    skipped: Counter[str] = Counter()
    limits = {"max_length": how.max_length, "stride": min(stride, how.max_length)}
    windows = windows_of(corpus.examples, encoder, **limits, skipped=skipped)
    wanted, n_elsewhere = targets(windows, corpus.examples)
    examples = [window.encoded for window in windows]
    pairs = zip(examples, wanted, strict=True)
    read = ((one.ids, one.segment, span) for one, span in pairs)

    def loss_of(own: Encoder, head: SpanHead) -> Callable[[Batch], Tensor]:
        reader, ends = SpanReader(own, head, {}), torch.tensor(wanted, device=encoder.device)

        def loss(batch: Batch) -> Tensor:
            logits = open_logits(head(reader.hidden(batch)), batch, windows)
            return functional.cross_entropy(logits, ends[list(batch.index)])

        return loss

    about = {
        "task": "spans",
        "corpus": corpus.name,
        "n_train": len({window.question for window in windows}),
        "n_windows": len(windows),
        "n_without_answer": n_elsewhere,
        "skipped": dict(skipped),
    }
    own, head, facts = tuned(
        home_of("answers", VERSION, encoder, {"recipe": asdict(how)}, read, cache),
        examples,
        how,
        loss_of,
        encoder=encoder,
        name=f"{encoder.name}, fine-tuned on {corpus.name.partition(':')[0]}",
        head_of=lambda own: SpanHead(own, how.seed),
        about=about,
    )
    # The key knows a stride by the windows it makes, and short texts have one whatever it is.
    return SpanReader(own, head, {**facts, "stride": stride})
