"""How much the masked-LM loss hangs on each attention weight (Clark 2019, sec. 3.2, Fig. 3)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from attnlib.attention.encode import Batch, batches, encode
from attnlib.attention.tap import Tap, run_tapped, tapped
from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue, CorpusError, UnknownName, check_choice, did_you_mean
from attnlib.measuring.bootstrap import estimate
from attnlib.models import Encoder
from experiments.shared.maskedlm import NOT_ASKED, example_losses, masked

Progress = Callable[[int, int], None]
KeyClass = Callable[[Batch], Tensor]
"""Batch -> (batch, key), True where a key is of the class."""

QUANTITIES = ("gradient", "gradient_times_attention")
"""|dL/da|, as in the paper; and |dL/da| a, which is ours: what the attention there is matters."""


def _period_or_comma(batch: Batch) -> Tensor:
    return batch.period | batch.comma


def _other(batch: Batch) -> Tensor:
    return batch.real & ~batch.sep & ~_period_or_comma(batch)


KEY_CLASSES: Mapping[str, KeyClass] = {
    "sep": lambda batch: batch.sep,
    "period_or_comma": _period_or_comma,
    "other": _other,
    "cls": lambda batch: batch.cls,
}
"""The first three are the paper's and share out all real keys; [CLS] is in "other", and alone."""


@dataclass(frozen=True, eq=False)
class Gradients:
    """Sums per example and how many (query, key) pairs they are over; means follow on demand.

    index   (example,)                      place in the corpus; the order of the rows
    total   by quantity (example, layer, head, class)
    weight  (example, class)                pairs of a real query and a key of the class
    loss    (example,)                      mean cross-entropy of its masked pieces, in nats
    """

    model: str
    corpus: str
    classes: tuple[str, ...]
    index: np.ndarray
    total: Mapping[str, np.ndarray]
    weight: np.ndarray
    loss: np.ndarray
    skipped: dict[str, int]
    seconds: float

    def rows(self, key_class: str, quantity: str = "gradient") -> tuple[np.ndarray, np.ndarray]:
        """Sums and weights of one class of keys, each (example, layer, head)."""
        check_choice("quantity", quantity, QUANTITIES)
        if key_class not in self.classes:
            raise UnknownName(
                f"key class '{key_class}'. {did_you_mean(key_class, self.classes)}"
                f"Known: {', '.join(self.classes)}."
            )
        place = self.classes.index(key_class)
        total = self.total[quantity][..., place]
        return total, np.broadcast_to(self.weight[:, None, None, place], total.shape)

    def table(self) -> pd.DataFrame:
        """One row per class, quantity and head: mean over examples and 95 % interval."""
        return self._table(over_heads=False)

    def layer_table(self) -> pd.DataFrame:
        """One row per class, quantity and layer: the mean over its heads, as Fig. 3 draws it.

        The interval comes from drawing examples again, not heads: a model has the heads it has.
        """
        return self._table(over_heads=True)

    def _table(self, *, over_heads: bool) -> pd.DataFrame:
        frames = []
        for quantity in QUANTITIES:
            for key_class in self.classes:
                total, weight = self.rows(key_class, quantity)
                if over_heads:  # every head has the same pairs, so sums may be averaged
                    total, weight = total.mean(-1), weight[..., 0]
                found = estimate(total, weight)
                frame = pd.DataFrame({"class": key_class, "quantity": quantity}, [0])
                place = np.indices(found.mean.shape).reshape(found.mean.ndim, -1) + 1
                frame = frame.loc[[0] * place.shape[1]].reset_index(drop=True)
                for name, values in zip(("layer", "head"), place, strict=False):
                    frame[name] = values
                for name in ("mean", "low", "high", "n"):
                    frame[name] = getattr(found, name).ravel()
                frames.append(frame)
        return pd.concat(frames, ignore_index=True)


def attention_gradients(
    encoder: Encoder,
    head: nn.Module,
    corpus: Corpus,
    *,
    mask_rate: float = 0.15,
    hide: bool = True,
    seed: int = 0,
    max_length: int = 128,
    batch_size: int = 8,
    on_long: str = "error",
    segment_ids: str = "pair",
    classes: Mapping[str, KeyClass] = KEY_CLASSES,
    progress: Progress | None = None,
) -> Gradients:
    r"""Mean size of the loss's gradient to each attention weight (Clark 2019, sec. 3.2, Fig. 3).

    .. math:: \frac{1}{|Q||K_c|} \sum_{q \in Q} \sum_{k \in K_c}
              \left| \frac{\partial L}{\partial a_{qk}} \right|

    Q        the real pieces of an example;  K_c  its keys of class c
    L        the example's own loss: mean cross-entropy over its masked pieces
    a        one weight of one head, taken as free: the others of its row stay as they are, and
             all later layers answer to the change
    returns  per example sums (layer, head, class); means are over examples (macro)

    The authors' code for this figure is not released. Ours: the mask rate, absolute values before
    any mean, and the classes. A masked comma is read as [MASK] and so counts to the other keys.
    """
    started = time.perf_counter()
    skipped: Counter[str] = Counter(corpus.skipped)
    slope = _Slope(encoder, head, dict(classes), segment_ids)
    pieces = encode(
        corpus.examples, encoder, max_length=max_length, on_long=on_long, skipped=skipped
    )
    index: list[int] = []
    found: list[_Sums] = []
    # The caller may stand in a context without gradients; here they are the point.
    with torch.inference_mode(False), torch.enable_grad(), tapped(encoder, slope.tap):
        for batch in batches(pieces, encoder, batch_size=batch_size):
            found.append(slope(*masked(batch, encoder, rate=mask_rate, seed=seed, hide=hide)))
            index.extend(batch.index)
            if progress is not None:
                progress(len(index), len(corpus.examples))
    if not found:
        reasons = ", ".join(f"{n} {reason}" for reason, n in skipped.items()) or "no examples"
        raise CorpusError(
            f"'{corpus.name}' has nothing left to measure ({reasons}). Expected at least one "
            "input; choose another --max-length or --on-long."
        )
    order = np.argsort(index, kind="stable")
    return Gradients(
        model=encoder.name,
        corpus=corpus.name,
        classes=tuple(classes),
        index=np.asarray(index)[order],
        total={q: np.concatenate([sums.total[q] for sums in found])[order] for q in QUANTITIES},
        weight=np.concatenate([sums.weight for sums in found])[order],
        loss=np.concatenate([sums.loss for sums in found])[order],
        skipped=dict(skipped),
        seconds=time.perf_counter() - started,
    )


@dataclass(frozen=True, eq=False)
class _Sums:
    """What one batch adds to `Gradients`."""

    total: dict[str, np.ndarray]
    weight: np.ndarray
    loss: np.ndarray


class _Slope:
    """Runs a batch forward and back, and sums up what arrives at its maps."""

    def __init__(
        self, encoder: Encoder, head: nn.Module, classes: dict[str, KeyClass], segment_ids: str
    ) -> None:
        if not classes:
            raise BadValue("no key class was given; expected one or more, such as KEY_CLASSES.")
        self.encoder, self.head, self.classes = encoder, head, classes
        self.segment_ids = segment_ids
        self.tap = Tap(change=self._keep)
        self._maps: list[list[Tensor]] = []

    def __call__(self, batch: Batch, targets: Tensor) -> _Sums:
        self._maps = [[] for _ in range(self.encoder.n_layers)]
        output = run_tapped(self.encoder, batch, self.tap, segment_ids=self.segment_ids)
        loss = example_losses(self.head, output[0], targets)
        # Examples of a batch do not meet, so the sum gives each map its own example's gradient;
        # a mean over the batch would make it smaller the larger the batch.
        maps = [part for layer in self._maps for part in layer]
        slopes = iter(torch.autograd.grad(loss.sum(), maps))
        keys, weight = self._pairs(_as_read(batch, targets, self.encoder))
        total: dict[str, list[Tensor]] = {quantity: [] for quantity in QUANTITIES}
        for layer in self._maps:
            size = torch.cat([next(slopes) for _ in layer]).abs()
            total["gradient"].append(_sums(size, batch, keys))
            size = size * torch.cat(layer).detach()
            total["gradient_times_attention"].append(_sums(size, batch, keys))
        self._maps = []
        self._refuse_infinite(batch, loss, total["gradient"])
        return _Sums(
            {q: torch.stack(parts, dim=1).cpu().numpy() for q, parts in total.items()},
            weight.cpu().numpy(),
            loss.detach().cpu().numpy(),
        )

    def _keep(self, layer: int, rows: slice, weights: Tensor) -> Tensor:
        """Each map becomes a place where the gradient is asked for; its values stay."""
        if not weights.requires_grad:  # the first layer of a model with frozen parameters
            weights = weights.detach().requires_grad_()
        self._maps[layer].append(weights)
        return weights

    def _pairs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """keys (batch, key, class) as 0 and 1; pairs with a real query (batch, class)."""
        masks = [of_class(batch) & batch.real for of_class in self.classes.values()]
        keys = torch.stack(masks, dim=-1).float()  # counts this small are exact
        return keys, keys.sum(1) * batch.real.sum(-1, keepdim=True)

    def _refuse_infinite(self, batch: Batch, loss: Tensor, totals: list[Tensor]) -> None:
        for row, index in enumerate(batch.index):
            if not loss[row].isfinite() or not all(total[row].isfinite().all() for total in totals):
                raise BadValue(
                    f"'{self.encoder.name}': the masked-LM loss of document {index + 1} or its "
                    "gradient is not finite. Expected finite weights: check the checkpoint and "
                    "its head, or load it in single precision."
                )


def _sums(size: Tensor, batch: Batch, keys: Tensor) -> Tensor:
    """size (batch, head, query, key) summed over real queries and keys: (batch, head, class)."""
    size = size if size.dtype == torch.float64 else size.float()
    received = torch.einsum("bhqk,bq->bhk", size, batch.real.to(size.dtype))
    return torch.einsum("bhk,bkc->bhc", received, keys.to(size.dtype))


def _as_read(batch: Batch, targets: Tensor, encoder: Encoder) -> Batch:
    """The batch with the classes of what the model reads: a masked comma is a comma no more."""
    shown = (targets == NOT_ASKED) | (batch.ids != encoder.tokenizer.mask_token_id)
    names = ("comma", "period", "punctuation")
    return replace(batch, **{name: getattr(batch, name) & shown for name in names})
