"""An encoder that reads answers out of a paragraph: BERT's span head, trained, kept by content."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention.encode import Batch, batches, check_max_length, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question
from attnlib.errors import BadValue, CorpusError
from attnlib.models import Encoder
from experiments.shared.training.kept_models import fitted, home_of, once, read_back
from experiments.shared.training.loop import SECONDS_BETWEEN, Progress, Recipe
from experiments.shared.training.spans import (
    MAX_ANSWER,
    N_BEST,
    Candidate,
    Window,
    answerable,
    best_answers,
    candidates,
    targets,
    windows_of,
)

STRIDE = 128
VERSION = 1
"""Part of every key: raise it with any change of code that changes what a training ends with."""

Passes = Callable[[Batch], Tensor]
"""A batch -> the last hidden states (batch, piece, dim), such as a plain forward pass."""


class SpanHead(nn.Module):
    """BERT's head for extraction: a start and an end logit of every piece, one linear layer."""

    def __init__(self, encoder: Encoder, seed: int = 0) -> None:
        super().__init__()
        config, weight = encoder.model.config, next(encoder.model.parameters())
        self.out = nn.utils.skip_init(nn.Linear, config.hidden_size, 2)
        spread = getattr(config, "initializer_range", 0.02)
        generator = torch.Generator().manual_seed(seed)
        self.out.weight.data.normal_(0.0, spread, generator=generator)
        self.out.bias.data.zero_()
        self.to(device=weight.device, dtype=weight.dtype)

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

    def windows(self, questions: Sequence[Question], max_length: int | None = None) -> list[Window]:
        """The questions as the model reads them, by default as long as in training."""
        limit = self.facts["recipe"]["max_length"] if max_length is None else max_length
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
        max_answer: int = MAX_ANSWER,
    ) -> list[tuple[int, list[Candidate]]]:
        """(question, candidates) of every window of a batch, from its hidden states."""
        logits = self.head(hidden)
        if not torch.isfinite(logits[batch.real]).all():
            asked = questions[windows[batch.index[0]].question].id
            raise BadValue(
                f"{self.encoder.name} answers a question near '{asked}' with a number that is not "
                "finite. Train it again with a smaller learning rate."
            )
        found = candidates(logits, batch, windows, questions, n_best=n_best, max_answer=max_answer)
        asked_of = (windows[number].question for number in batch.index)
        return list(zip(asked_of, found, strict=True))

    def answers(
        self,
        questions: Sequence[Question],
        *,
        max_length: int | None = None,
        batch_size: int = 16,
        n_best: int = N_BEST,
        passes: Passes | None = None,
    ) -> list[list[Candidate]]:
        """The best spans for each question, the best first; none where it has no paragraph.

        passes  another way from a batch to hidden states, such as one with some heads changed
        """
        windows = self.windows(questions, max_length)
        run = passes or self.hidden
        found: list[tuple[int, list[Candidate]]] = []
        with torch.inference_mode():
            for batch in self.batches(windows, batch_size):
                found += self.spans(run(batch), batch, windows, questions, n_best)
        return best_answers(found, len(questions), n_best)


def spantuned(
    encoder: Encoder,
    corpus: Corpus,
    *,
    recipe: Recipe | None = None,
    stride: int = STRIDE,
    cache: Path | None = None,
    progress: Progress | None = None,
    every: float = SECONDS_BETWEEN,
) -> SpanReader:
    """The encoder trained to read answers out of a corpus of questions; kept like `finetuned`.

    A start and an end are learnt by cross-entropy over the pieces of the paragraph and [CLS],
    which stands for "not in this window".
    """
    job = _Job(encoder, corpus, recipe or Recipe(max_length=256, batch_size=16), stride)
    job.check()
    return once(job.home(cache), job.read, partial(job.run, every=every, progress=progress))


@dataclass(frozen=True)
class _Job:
    """One training: what is trained, on which questions, how."""

    encoder: Encoder
    corpus: Corpus
    recipe: Recipe
    stride: int

    def check(self) -> None:
        """All that can be refused before the first step."""
        wrong = [e.id for e in self.corpus.examples if not getattr(e, "answers", ())]
        if wrong or not self.corpus.examples:
            what = f"'{wrong[0]}' has no answer" if wrong else "it is empty"
            raise CorpusError(
                f"corpus '{self.corpus.name}' cannot teach a model to answer: {what}; expected "
                "questions with answers, such as squad:train or wiki-questions:train."
            )

    def windows(self, skipped: Counter[str] | None = None) -> list[Window]:
        length = self.recipe.max_length
        return windows_of(
            self.corpus.examples,
            self.encoder,
            max_length=length,
            stride=min(self.stride, length),
            skipped=skipped,
        )

    def home(self, cache: Path | None = None) -> Path:
        """Where the end is kept, by all that decides the weights."""
        windows = self.windows()
        wanted, _ = targets(windows, self.corpus.examples)
        pairs = zip(windows, wanted, strict=True)
        read = ((one.encoded.ids, one.encoded.segment, span) for one, span in pairs)
        settings = {"recipe": asdict(self.recipe)}
        return home_of("answers", VERSION, self.encoder, settings, read, cache)

    def blank(self) -> SpanReader:
        """The encoder and head before the first step; the given encoder is copied."""
        with torch.inference_mode(False):
            model = copy.deepcopy(self.encoder.model).eval().requires_grad_(False)
            name = f"{self.encoder.name}, fine-tuned on {self.corpus.name.partition(':')[0]}"
            own = replace(self.encoder, name=name, model=model)
            head = SpanHead(own, self.recipe.seed).eval().requires_grad_(False)
        return SpanReader(own, head, {})

    def run(self, folder: Path, every: float, progress: Progress | None) -> SpanReader:
        """Train, keep the result, and forget the checkpoints."""
        skipped: Counter[str] = Counter()
        windows = self.windows(skipped)
        wanted, n_elsewhere = targets(windows, self.corpus.examples)
        ends = torch.tensor(wanted, device=self.encoder.device)
        result = self.blank()

        def loss(batch: Batch) -> Tensor:
            logits = result.head(result.hidden(batch))
            closed = ~answerable(windows, batch).unsqueeze(-1)
            logits = logits.masked_fill(closed, torch.finfo(logits.dtype).min)
            return functional.cross_entropy(logits, ends[list(batch.index)])

        about = {
            "task": "spans",
            "corpus": self.corpus.name,
            "n_train": len({window.question for window in windows}),
            "n_windows": len(windows),
            "n_without_answer": n_elsewhere,
            "skipped": dict(skipped),
            "stride": self.stride,
        }
        facts = fitted(
            _modules(result),
            _modules(result),
            [window.encoded for window in windows],
            loss,
            self.recipe,
            about,
            encoder=self.encoder,
            folder=folder,
            every=every,
            progress=progress,
        )
        return replace(result, facts=facts)

    def read(self, folder: Path) -> SpanReader | None:
        """What was kept, or None where anything of it is missing or damaged."""
        found = read_back(folder, self.blank, _modules)
        # The key knows a stride by the windows it makes, and short texts have one whatever it is.
        return (
            None if found is None else replace(found[0], facts={**found[1], "stride": self.stride})
        )


def _modules(reader: SpanReader) -> nn.ModuleDict:
    return nn.ModuleDict({"encoder": reader.encoder.model, "head": reader.head})
