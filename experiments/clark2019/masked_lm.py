"""The masked-LM loss of an encoder: seeded masks, and the checkpoint's head or one fitted here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention.encode import Batch, batches_of, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue, CorpusError, Unobservable
from attnlib.models import Encoder, _quietly
from attnlib.progress import counting
from experiments.shared.training.kept_models import home_of, keep, name_of, once, read_back
from experiments.shared.training.loop import ramp

NOT_ASKED = -100
"""The target of a piece that is not masked; PyTorch's own convention."""
SHORT_TEXT = "The capital of France is a large city on the river Seine."

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


# --- masks and the loss ---------------------------------------------------------------------------


def masked(
    batch: Batch,
    encoder: Encoder,
    *,
    rate: float = 0.15,
    seed: int = 0,
    draw: int = 0,
    hide: bool = True,
) -> tuple[Batch, Tensor]:
    """The batch with some content pieces hidden behind [MASK], and what they were.

    batch.ids  (batch, piece)   the only field that changes
    returns    batch, targets (batch, piece), NOT_ASKED where nothing is to be predicted

    Of each example round(rate x content pieces) are chosen, at least one, never a special token.
    All of them become [MASK]: that BERT leaves some and swaps some (80/10/10) is a help in
    training, where the model must also work on text without masks; here a loss is wanted.
    The choice depends on the seed, the draw and the example's index, not on its batch.
    With hide=False the same pieces are asked for and stay in sight: an easier loss, which a
    model that was never good at filling gaps can still be asked for.
    """
    if not 0 < rate < 1:
        raise BadValue(f"mask-rate is {rate}; expected a share between 0 and 1, such as 0.15.")
    if encoder.tokenizer.mask_token_id is None:
        raise Unobservable(
            f"'{encoder.name}' has no mask token, so no masked-LM loss; use an encoder that was "
            "trained with one, such as BERT."
        )
    word = batch.word.cpu()
    chosen = torch.zeros_like(word, dtype=torch.bool)
    for row, index in enumerate(batch.index):
        content = (word[row] >= 0).nonzero().squeeze(-1)
        if not len(content):
            raise BadValue(f"document {index + 1} has only special tokens; expected a text.")
        order = np.random.default_rng([seed, draw, index]).permutation(len(content))
        chosen[row, content[order[: max(1, round(rate * len(content)))]]] = True
    chosen = chosen.to(batch.device)
    ids = batch.ids.masked_fill(chosen, encoder.tokenizer.mask_token_id) if hide else batch.ids
    return replace(batch, ids=ids), batch.ids.masked_fill(~chosen, NOT_ASKED)


def example_losses(head: nn.Module, hidden: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the masked pieces of each example, in nats.

    hidden   (batch, piece, dim)   the encoder's last layer
    targets  (batch, piece)        NOT_ASKED where nothing is to be predicted
    returns  (batch,)
    """
    asked = targets != NOT_ASKED
    surprise = functional.cross_entropy(head(hidden[asked]), targets[asked], reduction="none")
    total = surprise.new_zeros(len(targets)).index_add(0, asked.nonzero()[:, 0], surprise)
    return total / asked.sum(-1)


# --- heads ----------------------------------------------------------------------------------------


class MaskedLMHead(nn.Module):
    """BERT's masked-LM head: dense, GELU, LayerNorm, and the input embeddings as decoder.

    .. math:: \\text{logits} = E \\; \\text{LayerNorm}(\\text{GELU}(W h + b)) + c

    W, b, the norm and c (one number per piece of the vocabulary) are fitted and stored; E is
    the encoder's and stays as it is. Where E is narrower than h, W maps to its width.
    """

    embeddings: Tensor

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        table = encoder.model.get_input_embeddings().weight.detach()
        table = table if table.dtype == torch.float64 else table.float()
        n_pieces, width = table.shape
        options: dict[str, Any] = {"device": table.device, "dtype": table.dtype}
        self.register_buffer("embeddings", table, persistent=False)
        self.dense = nn.Linear(encoder.model.config.hidden_size, width, **options)
        self.norm = nn.LayerNorm(width, eps=1e-12, **options)
        self.bias = nn.Parameter(torch.zeros(n_pieces, **options))

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (..., dim) -> logits (..., vocabulary)"""
        inner = functional.gelu(self.dense(hidden.to(self.bias.dtype)))
        return functional.linear(self.norm(inner), self.embeddings, self.bias)


class CheckpointHead(nn.Module):
    """The head of a complete masked-LM model, whatever its family: its encoder is taken out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.stand_in = _StandIn(getattr(model, model.base_model_prefix))
        setattr(model, model.base_model_prefix, self.stand_in)
        self.model = model

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (..., dim) -> logits (..., vocabulary)"""
        self.stand_in.hidden = hidden.reshape(1, -1, hidden.shape[-1])
        ids = torch.zeros(self.stand_in.hidden.shape[:2], dtype=torch.long, device=hidden.device)
        return self.model(input_ids=ids).logits.reshape(*hidden.shape[:-1], -1)


class _StandIn(nn.Module):
    """In the place of an encoder: answers with hidden vectors that were computed elsewhere."""

    hidden: Any

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.embeddings = getattr(base, "embeddings", None)  # some decoders look them up there

    def forward(self, *_: Any, **__: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=self.hidden)


def checkpoint_head(encoder: Encoder) -> nn.Module | None:
    """The head in the encoder's own checkpoint, or None where it holds none that fits.

    transformers draws at random whatever a checkpoint lacks, so nothing may be missing; and on a
    short text the head must answer to this encoder's vectors as the complete model does, which
    it will not for random weights or a family that does more than a head.
    """
    if not (Path(encoder.source) / "config.json").is_file():
        return None
    model = _quietly(_complete_model, encoder)
    if model is None:
        return None
    ids = torch.tensor([encoder.tokenizer(SHORT_TEXT)["input_ids"]], device=encoder.device)
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        head = CheckpointHead(model)
        seen = head(encoder.model(input_ids=ids)[0])
    near = torch.allclose(seen, expected, rtol=0.0, atol=1e-3 * expected.abs().amax().item())
    return head.requires_grad_(False) if near else None


def _complete_model(encoder: Encoder) -> Any:
    from transformers import AutoModelForMaskedLM

    try:
        model, report = AutoModelForMaskedLM.from_pretrained(
            encoder.source,
            local_files_only=True,
            trust_remote_code=False,
            dtype=next(encoder.model.parameters()).dtype,
            ignore_mismatched_sizes=True,  # counted below as missing
            output_loading_info=True,
        )
    except (ValueError, KeyError, OSError):  # no such model in this family
        return None
    whole = not report["missing_keys"] and not report["mismatched_keys"]
    return model.eval().to(encoder.device) if whole else None


# --- a head fitted on a frozen encoder ------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """What fitting a head may cost."""

    n_maskings: int
    n_epochs: int
    held_out: float = 0.1
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warm_up: float = 0.1


def unmeasured(fit_on: Corpus, measured: Corpus) -> Corpus:
    """The texts to fit a head on: those that are not measured with it."""
    seen = set(measured.examples)
    return replace(fit_on, examples=tuple(one for one in fit_on.examples if one not in seen))


def masked_lm_head(
    encoder: Encoder,
    corpus: Corpus,
    *,
    budget: Budget,
    mask_rate: float = 0.15,
    max_length: int = 128,
    hide: bool = True,
    seed: int = 0,
    cache: Path | None = None,
) -> tuple[nn.Module, dict[str, Any]]:
    """A masked-LM head for this encoder, and how good it is.

    The checkpoint's own head if it has one; otherwise one fitted on the frozen encoder, and kept
    in the store (or in `cache`) under a key of everything it depends on. The last segments are held
    out: they share few articles with the others. Accuracy and loss are of masked pieces there, and
    the baseline always says the most frequent piece of the training segments. Training uses the
    draws 1, 2, ... of the masks, so that draw 0, which all measurements use, was never trained on.
    hide=False fits a head that says which piece is there in sight (see `masked`).
    """
    if len(corpus.examples) < 2:
        raise CorpusError(
            f"{len(corpus.examples)} segment to fit a masked-LM head on; expected two or more, one "
            "of them to judge it by."
        )
    task = _Task(encoder, tuple(corpus.examples), budget, mask_rate, max_length, hide, seed)
    own = checkpoint_head(encoder)
    if own is not None:
        return own, {"head": "checkpoint", **task.quality(own), "cached": False}

    def read(folder: Path) -> tuple[nn.Module, dict[str, Any]] | None:
        return read_back(folder, lambda: MaskedLMHead(encoder), lambda head: head)

    def fit(folder: Path) -> tuple[nn.Module, dict[str, Any]]:
        head = MaskedLMHead(encoder)
        facts = {"head": "fitted", **task.fit(head), "key": name_of(folder)}
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
    hide: bool
    seed: int

    @property
    def n_train(self) -> int:
        return len(self.examples) - max(1, round(self.budget.held_out * len(self.examples)))

    def home(self, cache: Path | None) -> Path:
        """Where the head is kept, by all that decides it."""
        settings = {
            **{name: getattr(self, name) for name in ("mask_rate", "max_length", "hide", "seed")},
            "on_long": "error",
            "budget": {"n_segments": len(self.examples), **asdict(self.budget)},
        }
        return home_of("masked-lm-head", VERSION, self.encoder, settings, self.examples, cache)

    def fit(self, head: MaskedLMHead) -> dict[str, Any]:
        """Fit the head on the training segments; what is said of it comes from the others."""
        draws = range(1, 1 + self.budget.n_maskings)
        found = self.positions(self.examples[: self.n_train], draws)
        fit_head(head, *found, self.piece_counts(), self.budget, seed=self.seed)
        return {"n_train_positions": len(found[1]), **self.quality(head)}

    def quality(self, head: nn.Module) -> dict[str, Any]:
        """Accuracy and loss on the held-out segments, and those of the pieces' frequencies."""
        held_out = self.examples[self.n_train :]
        hidden, targets, _ = self.positions(held_out, (0,))
        rates = _rates(self.piece_counts().to(targets.device))
        n_right, loss = 0, 0.0
        with torch.no_grad():
            for part in torch.arange(len(targets), device=targets.device).split(256):
                logits = head(hidden[part])
                n_right += int((logits.argmax(-1) == targets[part]).sum())
                loss += functional.cross_entropy(logits, targets[part], reduction="sum").item()
        return {
            "n_train_segments": self.n_train,
            "held_out": [example.id for example in held_out],
            "accuracy": n_right / len(targets),
            "loss": loss / len(targets),
            "baseline_accuracy": (targets == rates.argmax()).float().mean().item(),
            "baseline_loss": -rates.log()[targets].mean().item(),
        }

    def piece_counts(self) -> Tensor:
        """How often each piece of the vocabulary occurs in the training segments."""
        counts = torch.zeros(self.encoder.model.get_input_embeddings().num_embeddings)
        for batch in self._batches(self.examples[: self.n_train]):
            pieces = batch.ids[batch.word >= 0].cpu()
            counts += torch.bincount(pieces, minlength=len(counts))
        return counts

    def positions(
        self, examples: Sequence[Any], draws: Sequence[int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden vectors of masked pieces (position, dim), what they were, in which example."""
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        n_found = 0
        for draw in draws:
            for batch in self._batches(examples):
                if n_found >= POSITIONS_AT_MOST:
                    break
                how: Any = {"rate": self.mask_rate, "seed": self.seed, "hide": self.hide}
                changed, wanted = masked(batch, self.encoder, draw=draw, **how)
                asked = wanted != NOT_ASKED
                with torch.inference_mode():
                    seen = self.encoder.model(**model_inputs(changed, self.encoder))[0]
                    hidden = seen[asked].float()
                owners = torch.tensor(batch.index, device=asked.device)[asked.nonzero()[:, 0]]
                found.append((hidden, wanted[asked], owners))
                n_found += len(owners)
        hidden, targets, owners = (torch.cat(part) for part in zip(*found, strict=True))
        # A copy made outside inference mode may be used where gradients are computed.
        return hidden.clone(), targets, owners

    def _batches(self, examples: Sequence[Any]) -> Iterator[Batch]:
        return batches_of(examples, self.encoder, batch_size=8, max_length=self.max_length)


def fit_head(
    head: MaskedLMHead,
    hidden: Tensor,
    targets: Tensor,
    owners: Tensor,
    counts: Tensor,
    budget: Budget,
    *,
    seed: int = 0,
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
        seen, wanted = white[last][:MOST_FOR_GAIN], targets[last][:MOST_FOR_GAIN]

        def loss_at(gain: float) -> float:
            head.norm.weight.fill_(gain)
            return functional.cross_entropy(head(seen), wanted).item()

        gain = min(GAINS, key=loss_at)
        _start(head, white, targets)
        head.norm.weight.fill_(gain)
    rest = [head.dense.bias, head.norm.weight, head.norm.bias, head.bias]
    groups = [{"params": [head.dense.weight], "weight_decay": budget.weight_decay}]
    groups.append({"params": rest, "weight_decay": 0.0})
    optimiser = torch.optim.AdamW(groups, lr=budget.learning_rate)
    n_steps = budget.n_epochs * math.ceil(len(targets) / budget.batch_size)
    done = 0
    with torch.inference_mode(False), torch.enable_grad(), counting() as tick:
        for _ in range(budget.n_epochs):
            order = torch.randperm(len(targets), generator=generator).to(targets.device)
            for chosen in order.split(budget.batch_size):
                for group in optimiser.param_groups:
                    group["lr"] = budget.learning_rate * ramp(done, n_steps, budget.warm_up)
                optimiser.zero_grad()
                functional.cross_entropy(head(white[chosen]), targets[chosen]).backward()
                optimiser.step()
                done += 1
                tick(done, n_steps)
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


def _whitening(hidden: Tensor) -> tuple[Tensor, Tensor]:
    """The mean (dim,), and the symmetric matrix (dim, dim) that evens out the directions."""
    centre = hidden.mean(0)
    spread = torch.cov((hidden - centre).cpu().double().T)
    spread += RIDGE * spread.diagonal().mean() * torch.eye(len(spread))
    values, axes = torch.linalg.eigh(spread)
    return centre, ((axes / values.sqrt()) @ axes.T).to(hidden)


def _rates(counts: Tensor) -> Tensor:
    """Relative frequencies, with a little for pieces that were never seen."""
    return (counts + UNSEEN) / (counts + UNSEEN).sum()
