"""The masked-LM loss of an encoder: seeded masks, and a head of its own or one fitted here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention.encode import Batch
from attnlib.errors import BadValue, Unobservable
from attnlib.models import Encoder, _quietly

NOT_ASKED = -100
"""The target of a piece that is not masked; PyTorch's own convention."""

PROBE = "The capital of France is a large city on the river Seine."


# --- masks and the loss ---------------------------------------------------------------------


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
    The choice hangs on the seed, the draw and the example's index, not on its batch.
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


# --- heads ----------------------------------------------------------------------------------


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
    it will not for a random twin or a family that does more than a head.
    """
    if not (Path(encoder.source) / "config.json").is_file():
        return None
    model = _quietly(_complete_model, encoder)
    if model is None:
        return None
    ids = torch.tensor([encoder.tokenizer(PROBE)["input_ids"]], device=encoder.device)
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
