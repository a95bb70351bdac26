"""An encoder that reads answers out of a paragraph: BERT's span head, trained, kept by content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention.encode import Batch, batches, check_max_length, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question
from attnlib.errors import BadValue
from attnlib.models import Encoder
from experiments.shared.training.answers import check_answered
from experiments.shared.training.finetune import draw_layers
from experiments.shared.training.kept_models import home_of, tuned
from experiments.shared.training.loop import SECONDS_BETWEEN, Progress, Recipe
from experiments.shared.training.spans import (
    N_BEST,
    Candidate,
    Window,
    best_answers,
    candidates,
    open_logits,
    targets,
    windows_of,
)

STRIDE = 128
VERSION = 1
"""Part of every key: raise it with any change of code that changes what a training ends with."""


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
    progress: Progress | None = None,
    every: float = SECONDS_BETWEEN,
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
        every=every,
        progress=progress,
    )
    # The key knows a stride by the windows it makes, and short texts have one whatever it is.
    return SpanReader(own, head, {**facts, "stride": stride})
