"""An encoder fine-tuned on a GLUE-style task with BERT's classification head, kept by content."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
from experiments.shared.training.glue import (
    check_parts,
    check_varied,
    class_counts,
    known_task,
    labels_of,
    scores,
)
from experiments.shared.training.kept_models import fitted, home_of, once, read_back
from experiments.shared.training.loop import SECONDS_BETWEEN, Progress, Recipe

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
        weight = next(encoder.model.parameters())
        width = config.hidden_size
        # Not drawn twice: torch's own start would come from the caller's random numbers.
        self.dense = nn.utils.skip_init(nn.Linear, width, width)
        self.dropout = nn.Dropout(
            getattr(config, "hidden_dropout_prob", getattr(config, "dropout", 0.1))
        )
        self.out = nn.utils.skip_init(nn.Linear, width, n_labels)
        generator = torch.Generator().manual_seed(seed)
        spread = getattr(config, "initializer_range", 0.02)
        for layer in (self.dense, self.out):
            layer.weight.data.normal_(0.0, spread, generator=generator)
            layer.bias.data.zero_()
        self.to(device=weight.device, dtype=weight.dtype)

    def forward(self, hidden: Tensor, batch: Batch) -> Tensor:
        """hidden (batch, piece, dim) of the last layer -> logits (batch, label)."""
        return self.on_cls(cls_states(hidden, batch))

    def on_cls(self, cls: Tensor) -> Tensor:
        """cls (batch, dim) -> logits (batch, label)."""
        logits: Tensor = self.out(self.dropout(torch.tanh(self.dense(cls))))
        return logits


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

    def predictions(
        self, examples: Sequence[Any], *, batch_size: int = 32, max_length: int | None = None
    ) -> NDArray[Any]:
        """The class index (or the score) of each example, in their order.

        Long examples are truncated, by default to the length used in training.
        """
        check_parts(examples, self.task)
        limit = self.facts["recipe"]["max_length"] if max_length is None else max_length
        check_max_length(limit, self.encoder)
        found = torch.empty(len(examples), dtype=torch.float64)
        # Not `encode`, which drops what has no pieces: each example gets its answer.
        pieces = (
            encoded if len(encoded) <= limit else encode.truncated(encoded, limit)
            for encoded in encode.tokenized(examples, self.encoder)
        )
        for batch in batches(pieces, self.encoder, batch_size=batch_size):
            with torch.inference_mode():
                logits = self.logits(batch)
            if not torch.isfinite(logits).all():
                row = int((~torch.isfinite(logits)).any(1).nonzero()[0])
                raise BadValue(
                    f"{self.encoder.name} answers example '{examples[batch.index[row]].id}' with "
                    "a number that is not finite. Train it again with a smaller learning rate."
                )
            answers = logits[:, 0] if self.task.regression else logits.argmax(1)
            found[list(batch.index)] = answers.to("cpu", torch.float64)
        return found.numpy() if self.task.regression else found.numpy().astype(np.int64)

    def outputs(self, corpus: Corpus, **options: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Predictions and labels (example,) of a labelled corpus, to score or to resample."""
        labels = labels_of(corpus, self.task)
        found = self.predictions(corpus.examples, **options)
        return found, labels.astype(found.dtype)

    def score(self, corpus: Corpus, **options: Any) -> dict[str, float]:
        """The task's metric on a labelled corpus, with its usual companions."""
        return scores(self.task, *self.outputs(corpus, **options))


def finetuned(
    encoder: Encoder,
    corpus: Corpus,
    task: str | Task,
    *,
    recipe: Recipe | None = None,
    start: str = "pretrained",
    cache: Path | None = None,
    progress: Progress | None = None,
    every: float = SECONDS_BETWEEN,
) -> FineTuned:
    """The encoder trained on the corpus for a task; read back if that was done before.

    start  "pretrained" trains everything from the encoder's weights, "random" everything from
           random ones (of the same shape, by the recipe's seed; Kovaleva 2019, sec. 4.3), and
           "frozen" the head alone on an encoder that stays as it is, without dropout.
    cache  where results are kept under a key of all that decides them; by default beside the
           assets. Checkpoints, one every `every` seconds, lie in the same place until the end.
    Classes are learnt by cross-entropy, scores by mean squared error.
    """
    job = _Job(encoder, corpus, known_task(task), recipe or Recipe(), start)
    job.check()
    return once(job.home(cache), job.read, partial(job.run, every=every, progress=progress))


@dataclass(frozen=True)
class _Job:
    """One training: what is trained, on what, how."""

    encoder: Encoder
    corpus: Corpus
    task: Task
    recipe: Recipe
    start: str

    def check(self) -> None:
        """All that can be refused before the first step."""
        check_choice("start", self.start, STARTS)
        check_max_length(self.recipe.max_length, self.encoder)
        check_varied(labels_of(self.corpus, self.task), self.corpus, self.task)

    def home(self, cache: Path | None = None) -> Path:
        """Where the end is kept, by all that decides the weights."""
        labels = labels_of(self.corpus, self.task)
        read = ((one.ids, one.segment, float(labels[one.index])) for one in self.encoded())
        settings = {"task": repr(self.task), "recipe": asdict(self.recipe), "start": self.start}
        return home_of(self.task.name, VERSION, self.encoder, settings, read, cache)

    def encoded(self, skipped: Counter[str] | None = None) -> list[encode.Encoded]:
        """What the model reads: the pieces of every example."""
        length, on_long = self.recipe.max_length, self.recipe.on_long
        pieces = encode.encode(
            self.corpus.examples,
            self.encoder,
            max_length=length,
            on_long=on_long,
            skipped=skipped,
        )
        return list(pieces)

    def blank(self) -> FineTuned:
        """The encoder and head before the first step; the given encoder is copied."""
        name = STARTS[self.start].format(self.encoder.name, self.task.name)
        with torch.inference_mode(False):
            model = self._random() if self.start == "random" else copy.deepcopy(self.encoder.model)
            model = model.eval().requires_grad_(False)
            own = replace(self.encoder, name=name, model=model)
            head = TaskHead(own, self.task.n_labels, self.recipe.seed).eval().requires_grad_(False)
        return FineTuned(own, head, self.task, {})

    def _random(self) -> Any:
        given = self.encoder.model
        fresh = random_encoder(
            copy.deepcopy(given.config), self.encoder.tokenizer, seed=self.recipe.seed
        ).model
        if getattr(given, "pooler", None) is None and hasattr(fresh, "pooler"):
            fresh.pooler = None
        return fresh.to(device=self.encoder.device, dtype=next(given.parameters()).dtype)

    def run(self, folder: Path, every: float, progress: Progress | None) -> FineTuned:
        """Train, keep the result, and forget the checkpoints."""
        skipped: Counter[str] = Counter()
        examples = self.encoded(skipped)
        result = self.blank()
        labels = torch.tensor(labels_of(self.corpus, self.task), device=self.encoder.device)
        if self.task.regression:  # start at the mean score, not at 0, which costs half an epoch
            result.head.out.bias.data.fill_(float(labels.float().mean()))

        frozen = self.start == "frozen"
        logits_of = _OnFrozen(result) if frozen else result.logits

        def loss(batch: Batch) -> Tensor:
            logits = logits_of(batch)
            wanted = labels[list(batch.index)]
            if self.task.regression:
                return functional.mse_loss(logits[:, 0], wanted.to(logits.dtype))
            return functional.cross_entropy(logits, wanted.long())

        trained = nn.ModuleDict({"head": result.head})
        if not frozen:
            trained["encoder"] = result.encoder.model
        about = {
            "task": self.task.name,
            "start": self.start,
            "corpus": self.corpus.name,
            "n_train": len({encoded.index for encoded in examples}),
            "n_per_class": class_counts(labels.cpu().numpy(), self.task),
            "skipped": dict(skipped),
        }
        facts = fitted(
            trained,
            _modules(result),
            examples,
            loss,
            self.recipe,
            about,
            encoder=self.encoder,
            folder=folder,
            every=every,
            progress=progress,
        )
        return replace(result, facts=facts)

    def read(self, folder: Path) -> FineTuned | None:
        """What was kept, or None where anything of it is missing or damaged."""
        found = read_back(folder, self.blank, _modules)
        return None if found is None else replace(found[0], facts=found[1])


class _OnFrozen:
    """The logits of a head in training on an encoder that is not: every input is read only once."""

    def __init__(self, model: FineTuned) -> None:
        self.model = model
        self.known: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, batch: Batch) -> Tensor:
        rows = zip(batch.ids.tolist(), batch.real.sum(1).tolist(), strict=True)
        read = [tuple(ids[:n]) for ids, n in rows]
        if not self.known.keys() >= set(read):
            with torch.no_grad():
                encoder = self.model.encoder
                hidden = encoder.model(**model_inputs(batch, encoder))[0]
            self.known |= zip(read, cls_states(hidden, batch), strict=True)
        return self.model.head.on_cls(torch.stack([self.known[pieces] for pieces in read]))


def _modules(result: FineTuned) -> nn.ModuleDict:
    return nn.ModuleDict({"encoder": result.encoder.model, "head": result.head})
