"""An encoder fine-tuned on a GLUE-style task with BERT's classification head, kept by content."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention import encode
from attnlib.attention.encode import Batch, batches, check_max_length, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.data.tasks import Task
from attnlib.errors import BadValue, check_choice
from attnlib.models import Encoder, random_encoder
from experiments.shared.training.glue import check_parts, check_varied, known_task, labels_of
from experiments.shared.training.kept_models import home_of, tuned
from experiments.shared.training.loop import Recipe

STARTS = {
    "pretrained": "{}, fine-tuned on {}",
    "random": "{} with random weights, trained on {}",
    "frozen": "{}, frozen, with a head for {}",
}
"""What a training may start from and change, with the name of its result."""

VERSION = 1
"""Part of every key: raise it with any change of code that changes what a training ends with.

The code itself is no part of the key, since an hour of training should outlive a new comment.
"""


class TaskHead(nn.Module):
    """BERT's head: tanh of a dense layer on the [CLS] vector, dropout, a linear layer."""

    def __init__(self, encoder: Encoder, n_labels: int, seed: int = 0) -> None:
        super().__init__()
        config = encoder.model.config
        # Not drawn twice: torch's own start would come from the caller's random numbers.
        self.dense = nn.utils.skip_init(nn.Linear, config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(
            getattr(config, "hidden_dropout_prob", getattr(config, "dropout", 0.1))
        )
        self.out = nn.utils.skip_init(nn.Linear, config.hidden_size, n_labels)
        draw_layers(self, encoder, seed)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """hidden (batch, piece, dim) of the last layer -> logits (batch, label)."""
        return self.on_cls(cls_states(hidden, batch))

    def on_cls(self, cls: Tensor) -> Tensor:
        """cls (batch, dim) -> logits (batch, label)."""
        logits: Tensor = self.out(self.dropout(torch.tanh(self.dense(cls))))
        return logits


def draw_layers(head: nn.Module, encoder: Encoder, seed: int) -> None:
    """Draw the linear layers of a head as BERT's are, on the encoder's device, in its precision."""
    weight = next(encoder.model.parameters())
    generator = torch.Generator().manual_seed(seed)
    spread = getattr(encoder.model.config, "initializer_range", 0.02)
    for layer in head.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.data.normal_(0.0, spread, generator=generator)
            layer.bias.data.zero_()
    head.to(device=weight.device, dtype=weight.dtype)


def cls_states(hidden: Tensor, batch: Batch) -> Tensor:
    """hidden (batch, piece, dim) -> the state of each example's [CLS] (batch, dim)."""
    return hidden[torch.arange(len(batch), device=hidden.device), batch.cls_place[1]]


@dataclass(frozen=True, eq=False)
class FineTuned:
    """A trained encoder and its head, both in evaluation mode with frozen weights.

    Gradients still flow to whatever a tap brings into a forward pass.
    """

    encoder: Encoder
    head: TaskHead
    task: Task
    facts: dict[str, Any]

    def logits(self, batch: Batch) -> Tensor:
        """(batch, label): unnormalised log odds of the classes, or the score itself."""
        hidden = self.encoder.model(**model_inputs(batch, self.encoder))[0]
        logits: Tensor = self.head(hidden, batch)
        return logits

    def batches(self, examples: Sequence[Any], batch_size: int = 32) -> Iterator[Batch]:
        """All examples, cut to the length used in training.

        Not by `encode`, which drops what has no pieces: each example gets its answer.
        """
        limit = self.facts["recipe"]["max_length"]
        check_max_length(limit, self.encoder)
        pieces = (
            one if len(one) <= limit else encode.truncated(one, limit)
            for one in encode.tokenized(examples, self.encoder)
        )
        return batches(pieces, self.encoder, batch_size=batch_size)

    def answers(self, logits: Tensor) -> NDArray[np.float64]:
        """logits (batch, label) -> the class index, or the score, of each example."""
        found = logits[:, 0] if self.task.regression else logits.argmax(1)
        return np.asarray(found.to("cpu", torch.float64).numpy())

    def predictions(self, examples: Sequence[Any], *, batch_size: int = 32) -> NDArray[Any]:
        """The class index (or the score) of each example, in their order."""
        check_parts(examples, self.task)
        found = np.empty(len(examples))
        for batch in self.batches(examples, batch_size):
            with torch.inference_mode():
                logits = self.logits(batch)
            if not torch.isfinite(logits).all():
                row = int((~torch.isfinite(logits)).any(1).nonzero()[0])
                raise BadValue(
                    f"{self.encoder.name} answers example '{examples[batch.index[row]].id}' with "
                    "a number that is not finite. Train it again with a smaller learning rate."
                )
            found[list(batch.index)] = self.answers(logits)
        return found if self.task.regression else found.astype(np.int64)

    def outputs(self, corpus: Corpus) -> tuple[NDArray[Any], NDArray[Any]]:
        """Predictions and labels (example,) of a labelled corpus, to score or to resample."""
        labels = labels_of(corpus, self.task)
        found = self.predictions(corpus.examples)
        return found, labels.astype(found.dtype)


def finetuned(
    encoder: Encoder,
    corpus: Corpus,
    task: str,
    *,
    recipe: Recipe | None = None,
    start: str = "pretrained",
    cache: Path | None = None,
) -> FineTuned:
    """The encoder trained on the corpus for a task; read back if that was done before.

    start  "pretrained" trains everything from the encoder's weights, "random" everything from
           random ones (of the same shape, by the recipe's seed; Kovaleva 2019, sec. 4.3), and
           "frozen" the head alone on an encoder that stays as it is, without dropout.
    cache  where results are kept under a key of all that decides them; by default beside the
           assets. Checkpoints lie in the same place until the end.
    Classes are learnt by cross-entropy, scores by mean squared error.
    """
    known, how = known_task(task), recipe or Recipe()
    check_choice("start", start, STARTS)
    labels = labels_of(corpus, known)
    check_varied(labels, corpus, known)
    skipped: Counter[str] = Counter()
    limits: Any = {"max_length": how.max_length, "on_long": how.on_long}
    examples = list(encode.encode(corpus.examples, encoder, **limits, skipped=skipped))
    read = ((one.ids, one.segment, float(labels[one.index])) for one in examples)
    settings = {"task": repr(known), "recipe": asdict(how), "start": start}

    def loss_of(own: Encoder, head: TaskHead) -> Callable[[Batch], Tensor]:
        wanted = torch.tensor(labels, device=encoder.device)
        if known.regression:  # start at the mean score, not at 0, which costs half an epoch
            head.out.bias.data.fill_(float(wanted.float().mean()))
        model = FineTuned(own, head, known, {})
        logits_of = _on_frozen(model) if start == "frozen" else model.logits

        def loss(batch: Batch) -> Tensor:
            logits, right = logits_of(batch), wanted[list(batch.index)]
            if known.regression:
                return functional.mse_loss(logits[:, 0], right.to(logits.dtype))
            return functional.cross_entropy(logits, right.long())

        return loss

    about = {
        "task": known.name,
        "start": start,
        "corpus": corpus.name,
        "n_train": len({encoded.index for encoded in examples}),
        "n_per_class": {name: int((labels == at).sum()) for at, name in enumerate(known.labels)},
        "skipped": dict(skipped),
    }
    own, head, facts = tuned(
        home_of(known.name, VERSION, encoder, settings, read, cache),
        examples,
        how,
        loss_of,
        encoder=encoder,
        name=STARTS[start].format(encoder.name, known.name),
        head_of=lambda own: TaskHead(own, known.n_labels, how.seed),
        model_of=partial(_random, encoder, how.seed) if start == "random" else None,
        learning=("head",) if start == "frozen" else ("head", "encoder"),
        about=about,
    )
    return FineTuned(own, head, known, facts)


def _random(encoder: Encoder, seed: int) -> Any:
    """A model of the same shape with random weights."""
    given = encoder.model
    fresh = random_encoder(copy.deepcopy(given.config), encoder.tokenizer, seed=seed).model
    if getattr(given, "pooler", None) is None and hasattr(fresh, "pooler"):
        fresh.pooler = None
    return fresh.to(device=encoder.device, dtype=next(given.parameters()).dtype)


def _on_frozen(model: FineTuned) -> Callable[[Batch], Tensor]:
    """The logits of a head in training on an encoder that is not: every input is read only once."""
    known: dict[tuple[int, ...], Tensor] = {}

    def logits(batch: Batch) -> Tensor:
        rows = zip(batch.ids.tolist(), batch.real.sum(1).tolist(), strict=True)
        read = [tuple(ids[:n]) for ids, n in rows]
        if not known.keys() >= set(read):
            with torch.no_grad():
                hidden = model.encoder.model(**model_inputs(batch, model.encoder))[0]
            known.update(zip(read, cls_states(hidden, batch), strict=True))
        return model.head.on_cls(torch.stack([known[pieces] for pieces in read]))

    return logits
