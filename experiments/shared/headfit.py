"""A masked-LM head fitted on a frozen encoder that has none, and kept by content."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention.encode import batches, encode, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.errors import CorpusError
from attnlib.models import Encoder
from experiments.shared.kept_models import home_of, keep, name_of, once, read_back
from experiments.shared.maskedlm import NOT_ASKED, MaskedLMHead, checkpoint_head, masked

Progress = Callable[[int, int], None]

POSITIONS_AT_MOST = 250_000
"""Masked positions a head is fitted on at most: 384 MB of hidden vectors of 384 numbers."""

LIFT = 3.0
GAINS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
MOST_FOR_GAIN = 1000
RIDGE = 0.3
"""Of the mean variance, what every direction is given on top: nearly flat ones count less."""
UNSEEN = 0.1
VERSION = 1
"""Part of the key of every head: raise it with any change that changes what fitting ends with."""


@dataclass(frozen=True)
class Budget:
    """What fitting a head may cost. `n_segments` counts the held-out ones too."""

    n_segments: int
    n_maskings: int
    n_epochs: int
    held_out: float = 0.1
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warm_up: float = 0.1


POCKET = Budget(n_segments=250, n_maskings=2, n_epochs=1)
STANDARD = Budget(n_segments=2000, n_maskings=3, n_epochs=1)


def masked_lm_head(
    encoder: Encoder,
    corpus: Corpus,
    *,
    budget: Budget = POCKET,
    mask_rate: float = 0.15,
    max_length: int = 128,
    on_long: str = "error",
    hide: bool = True,
    seed: int = 0,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> tuple[nn.Module, dict[str, Any]]:
    """A masked-LM head for this encoder, and facts about it: accuracy, loss, what it cost.

    The checkpoint's own head if it has one; otherwise one fitted on the frozen encoder, and kept
    in `cache` (by default beside the assets) under a key of everything it depends on. Of a larger
    corpus every k-th segment is used. The last segments are held out: they share few articles
    with the others. Accuracy and loss are of masked pieces there, and the baseline always says
    the most frequent piece of the training segments. Training uses the draws 1, 2, ... of the
    masks, so that draw 0, which all measurements use, was never trained on. hide=False fits a
    head that says which piece stands there in sight (see `masked`).
    """
    examples = _spaced(corpus.examples, budget)
    task = _Task(encoder, examples, budget, mask_rate, max_length, on_long, hide, seed)
    own = checkpoint_head(encoder)
    if own is not None:
        facts = {"head": "checkpoint", "corpus": corpus.name, **task.quality(own)}
        return own, {**facts, "cached": False}

    def read(folder: Path) -> tuple[nn.Module, dict[str, Any]] | None:
        return read_back(folder, lambda: MaskedLMHead(encoder), lambda head: head)

    def fit(folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        head = MaskedLMHead(encoder)
        facts = {"head": "fitted", "corpus": corpus.name, **task.fit(head, progress)}
        facts["key"] = name_of(folder)
        keep(folder, head, facts)
        return head, {**facts, "cached": False}

    head, facts = once(task.home(cache), read, fit)
    return head.eval().requires_grad_(False), facts


@dataclass(frozen=True)
class _Task:
    """One head to be fitted or judged: for which encoder, on which segments, how masked."""

    encoder: Encoder
    examples: tuple[Any, ...]
    budget: Budget
    mask_rate: float
    max_length: int
    on_long: str
    hide: bool
    seed: int

    @property
    def n_train(self) -> int:
        return len(self.examples) - max(1, round(self.budget.held_out * len(self.examples)))

    def home(self, cache: Path | None) -> Path:
        """Where the head is kept, by all that decides it."""
        names = ("mask_rate", "max_length", "on_long", "hide", "seed")
        settings = {name: getattr(self, name) for name in names} | {"budget": asdict(self.budget)}
        return home_of("masked-lm-head", VERSION, self.encoder, settings, self.examples, cache)

    def fit(self, head: MaskedLMHead, progress: Progress | None) -> dict[str, Any]:
        """Fit the head on the training segments; what is said of it comes from the others."""
        started = time.perf_counter()
        n_passes = self.n_train * self.budget.n_maskings
        share = n_passes * int(self.mask_rate * self.max_length)
        n_steps = self.budget.n_epochs * math.ceil(share / self.budget.batch_size)

        def told(done: int) -> None:
            if progress is not None:
                progress(min(done, n_passes + n_steps), n_passes + n_steps)

        draws = range(1, 1 + self.budget.n_maskings)
        hidden, targets, owners = self.positions(self.examples[: self.n_train], draws, told)
        read = time.perf_counter()
        fit_head(
            head,
            hidden,
            targets,
            owners,
            self.piece_counts(),
            self.budget,
            seed=self.seed,
            step=lambda done: told(n_passes + done),
        )
        told(n_passes + n_steps)
        fitted = time.perf_counter()
        return {
            "n_train_positions": len(targets),
            **self.quality(head),
            "seconds_reading": round(read - started, 1),
            "seconds_fitting": round(fitted - read, 1),
        }

    def quality(self, head: nn.Module) -> dict[str, Any]:
        """Accuracy and loss on the held-out segments, and those of the pieces' frequencies."""
        hidden, targets, _ = self.positions(self.examples[self.n_train :], (0,))
        rates = _rates(self.piece_counts().to(targets.device))
        n_right, loss = 0, 0.0
        with torch.no_grad():
            for part in torch.arange(len(targets), device=targets.device).split(256):
                logits = head(hidden[part])
                n_right += int((logits.argmax(-1) == targets[part]).sum())
                loss += functional.cross_entropy(logits, targets[part], reduction="sum").item()
        return {
            "n_train_segments": self.n_train,
            "n_held_out_segments": len(self.examples) - self.n_train,
            "held_out": [example.id for example in self.examples[self.n_train :]],
            "n_held_out_positions": len(targets),
            "accuracy": n_right / len(targets),
            "loss": loss / len(targets),
            "baseline_accuracy": (targets == rates.argmax()).float().mean().item(),
            "baseline_loss": -rates.log()[targets].mean().item(),
            "budget": asdict(self.budget),
            "mask_rate": self.mask_rate,
            "seed": self.seed,
        }

    def piece_counts(self) -> Tensor:
        """How often each piece of the vocabulary occurs in the training segments."""
        counts = torch.zeros(self.encoder.model.get_input_embeddings().num_embeddings)
        for encoded in self._encoded(self.examples[: self.n_train]):
            kept = [i for i, word in zip(encoded.ids, encoded.word, strict=True) if word >= 0]
            counts += torch.bincount(torch.tensor(kept), minlength=len(counts))
        return counts

    def positions(
        self,
        examples: Sequence[Any],
        draws: Sequence[int],
        told: Callable[[int], None] = lambda done: None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden vectors of masked pieces (position, dim), what they were, in which example."""
        hidden: list[Tensor] = []
        targets: list[Tensor] = []
        owners: list[Tensor] = []
        n_read = n_found = 0
        for draw in draws:
            for batch in batches(self._encoded(examples), self.encoder, batch_size=8):
                if n_found >= POSITIONS_AT_MOST:
                    break
                changed, asked = masked(
                    batch,
                    self.encoder,
                    rate=self.mask_rate,
                    seed=self.seed,
                    draw=draw,
                    hide=self.hide,
                )
                with torch.inference_mode():
                    seen = self.encoder.model(**model_inputs(changed, self.encoder))[0]
                    hidden.append(seen[asked != NOT_ASKED].float())
                targets.append(asked[asked != NOT_ASKED])
                rows = (asked != NOT_ASKED).nonzero()[:, 0]
                owners.append(torch.tensor(batch.index, device=rows.device)[rows])
                n_read, n_found = n_read + len(batch), n_found + len(targets[-1])
                told(n_read)
        if not hidden:
            raise CorpusError("no segment is left to fit or judge a head on; expected two or more.")
        # A copy made outside inference mode may be used where gradients are computed.
        return torch.cat(hidden).clone(), torch.cat(targets), torch.cat(owners)

    def _encoded(self, examples: Sequence[Any]) -> Iterator[Any]:
        return encode(examples, self.encoder, max_length=self.max_length, on_long=self.on_long)


def fit_head(
    head: MaskedLMHead,
    hidden: Tensor,
    targets: Tensor,
    owners: Tensor,
    counts: Tensor,
    budget: Budget,
    *,
    seed: int = 0,
    step: Callable[[int], None] = lambda done: None,
) -> None:
    """Minimise the cross-entropy over the whole vocabulary: AdamW, linear warm-up and decay.

    hidden  (position, dim)   targets, owners  (position,)   counts  (vocabulary,)

    All starts in closed form. Biases are the pieces' log frequencies. The dense layer is the
    ridge regression from a hidden vector to its piece's embedding, lifted to where GELU is almost
    straight; the norm takes the lift out again. The norm's gain is the best of a few on segments
    (`owners`) that this first regression has not seen. Of e5-small's unmasked pieces, 7,000 to
    learn from, two epochs then tell 64 % on other segments; from random weights it was 8 %.
    The dense layer learns on whitened vectors (those of a sentence encoder are nearly parallel)
    and has the whitening folded in at the end, so the head keeps BERT's form.
    """
    generator = torch.Generator().manual_seed(seed)
    centre, whitening = _whitening(hidden)
    white = (hidden - centre) @ whitening
    with torch.no_grad():
        head.bias.copy_(_rates(counts).log())
        last = owners >= owners.max() - (owners.max() - owners.min()) // 10
        _start(head, white[~last], targets[~last])
        gain = min(GAINS, key=lambda gain: _loss_at(head, gain, white[last], targets[last]))
        _start(head, white, targets)
        head.norm.weight.fill_(gain)
    rest = [head.dense.bias, head.norm.weight, head.norm.bias, head.bias]
    groups = [{"params": [head.dense.weight], "weight_decay": budget.weight_decay}]
    groups.append({"params": rest, "weight_decay": 0.0})
    optimiser = torch.optim.AdamW(groups, lr=budget.learning_rate)
    n_steps = budget.n_epochs * math.ceil(len(targets) / budget.batch_size)
    done = 0
    with torch.inference_mode(False), torch.enable_grad():
        for _ in range(budget.n_epochs):
            order = torch.randperm(len(targets), generator=generator).to(targets.device)
            for chosen in order.split(budget.batch_size):
                for group in optimiser.param_groups:
                    group["lr"] = budget.learning_rate * _ramp(done, n_steps, budget.warm_up)
                optimiser.zero_grad()
                functional.cross_entropy(head(white[chosen]), targets[chosen]).backward()
                optimiser.step()
                done += 1
                step(done)
    with torch.no_grad():
        head.dense.weight.copy_(head.dense.weight @ whitening.to(head.dense.weight.dtype))
        head.dense.bias.sub_(head.dense.weight @ centre.to(head.dense.weight.dtype))


def _start(head: MaskedLMHead, white: Tensor, targets: Tensor) -> None:
    """The ridge regression of embeddings on whitened vectors, which is their covariance."""
    wanted = head.embeddings[targets]
    slope = (wanted - wanted.mean(0)).T @ white.to(wanted.dtype)
    scale = (white.to(slope.dtype) @ slope.T).std() if len(white) else slope.new_zeros(())
    head.dense.weight.copy_(slope / scale.clamp_min(torch.finfo(slope.dtype).tiny))
    head.dense.bias.fill_(LIFT)


def _loss_at(head: MaskedLMHead, gain: float, white: Tensor, targets: Tensor) -> float:
    """Cross-entropy of some positions with this gain of the norm."""
    head.norm.weight.fill_(gain)
    return functional.cross_entropy(head(white[:MOST_FOR_GAIN]), targets[:MOST_FOR_GAIN]).item()


def _ramp(done: int, n_steps: int, warm_up: float) -> float:
    """The share of the learning rate at a step: up from 0, then down to 0, both in a line."""
    rising = (done + 1) / max(1.0, warm_up * n_steps)
    return min(1.0, rising, (n_steps - done) / max(1.0, (1 - warm_up) * n_steps))


def _whitening(hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The mean (dim,), and the symmetric matrix (dim, dim) that makes all directions alike."""
    centre = hidden.mean(0)
    spread = torch.cov((hidden - centre).cpu().double().T)
    spread += RIDGE * spread.diagonal().mean() * torch.eye(len(spread))
    values, axes = torch.linalg.eigh(spread)
    return centre, ((axes / values.sqrt()) @ axes.T).to(hidden)


def _rates(counts: Tensor) -> Tensor:
    """Relative frequencies, with a little for pieces that were never seen."""
    return (counts + UNSEEN) / (counts + UNSEEN).sum()


def _spaced(examples: Sequence[Any], budget: Budget) -> tuple[Any, ...]:
    """As many examples as the budget allows, evenly spaced."""
    if len(examples) < 2:
        raise CorpusError(
            f"{len(examples)} segment to fit a masked-LM head on; expected two or more, one of "
            "them to judge it by."
        )
    n_used = min(len(examples), budget.n_segments)
    return tuple(examples[i] for i in np.linspace(0, len(examples) - 1, n_used).astype(int))
