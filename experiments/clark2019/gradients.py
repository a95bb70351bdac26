"""Sec. 3.2, Fig. 3: how much the masked-LM loss depends on each attention weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from attnlib.attention.encode import Batch, batches_of, tokenized
from attnlib.attention.maps import refuse_infinite
from attnlib.attention.tap import Tap, run_tapped, tapped
from attnlib.data.corpora import Corpus
from attnlib.measuring.bootstrap import Grids, estimate, statistics
from attnlib.measuring.head_tables import layer_means
from attnlib.models import Encoder
from bookkit.store import Found, experiment, findings
from experiments.clark2019.masked_lm import (
    NOT_ASKED,
    Budget,
    example_losses,
    masked,
    masked_lm_head,
    unmeasured,
)

QUALITY = ("head", "accuracy", "baseline_accuracy", "loss", "baseline_loss")
"""What a page says of a masked-LM head."""
QUANTITIES = ("gradient", "gradient_times_attention")
"""|dL/da|, as in the paper; and |dL/da| a, which is ours: what the attention there is matters."""

KeyClass = Callable[[Batch], Tensor]
"""Batch -> (batch, key), True where a key is of the class."""


@experiment(version=1, trains=True)
def gradients(
    corpus: Corpus,
    fit_on: Corpus,
    surface: pd.DataFrame,
    *,
    encoder: Encoder,
    max_length: int = 128,
    maskings: int = 2,
    fit_epochs: int = 1,
    seed: int = 0,
) -> Found:
    """Mean size of dL/da by class of key and layer, for two losses.

    fit_on   texts for a masked-LM head, where the model has none; those of `corpus` are left out
    surface  the table of `surface`: the claims compare gradients with attention to [SEP]

    "masked" is the paper's loss. "shown" asks for the same pieces without hiding them. A model that
    was not trained to fill gaps is poor at the first and good at the second, and what both say of
    attention does not depend on how good it is.
    """
    fit_on = unmeasured(fit_on, corpus)
    budget = Budget(n_maskings=maskings, n_epochs=fit_epochs)
    settings: Any = {"max_length": max_length, "seed": seed}
    tables, quality, numbers = [], {}, {}
    for loss, hide in (("masked", True), ("shown", False)):
        head, known = masked_lm_head(encoder, fit_on, budget=budget, hide=hide, **settings)
        found = attention_gradients(encoder, head, corpus, hide=hide, **settings)
        tables.append(found.layer_table().assign(loss=loss))
        quality[loss] = {key: known[key] for key in QUALITY}
        numbers[loss] = _numbers(found, surface)
    facts = {
        "inputs": len(corpus),
        "passes": 2 * (len(corpus) + maskings * len(fit_on)),
        "tokens": 2 * sum(map(len, tokenized(corpus.examples, encoder))),
        "segments": len(fit_on),
        "shown_ratio": numbers["shown"]["gradient.sep_over_other_late"][0],
        **quality,
    }
    return Found(pd.concat(tables, ignore_index=True), findings(numbers["masked"]), facts)


def _numbers(found: Gradients, surface: pd.DataFrame) -> dict[str, tuple[float, float, float]]:
    """What the claims ask for, each with its interval over texts."""
    to_sep = layer_means(surface, metric="mass_to_sep")

    def late_ratio(grids: Grids) -> float:
        third = max(1, len(grids["sep"]) // 3)
        return float(grids["sep"][third:].mean() / grids["other"][third:].mean())

    def correlation(grids: Grids) -> float:
        ratio = grids["sep"].mean(-1) / grids["other"].mean(-1)
        return float(spearmanr(to_sep.to_numpy(), ratio).statistic)

    rows = {name: found.rows(name) for name in ("sep", "other")}
    return statistics(
        rows,
        {"gradient.sep_over_other_late": late_ratio, "gradient.correlation_with_sep": correlation},
    )


# --- the gradient to every attention weight -------------------------------------------------------


KEY_CLASSES: Mapping[str, KeyClass] = {
    "sep": lambda batch: batch.sep,
    "period_or_comma": lambda batch: batch.period_or_comma,
    "other": lambda batch: batch.real & ~batch.sep & ~batch.period_or_comma,
    "cls": lambda batch: batch.cls,
}
"""The first three are the paper's and share out all real keys; [CLS] is in "other", and alone."""


@dataclass(frozen=True, eq=False)
class Gradients:
    """Sums per example and how many (query, key) pairs they are over; means follow on demand.

    total   by quantity (example, layer, head, class)
    weight  (example, class)   pairs of a real query and a key of the class
    loss    (example,)         mean cross-entropy of its masked pieces, in nats
    """

    classes: tuple[str, ...]
    total: Mapping[str, np.ndarray]
    weight: np.ndarray
    loss: np.ndarray

    def rows(self, key_class: str, quantity: str = "gradient") -> tuple[np.ndarray, np.ndarray]:
        """Sums and weights of one class of keys, each (example, layer, head)."""
        place = self.classes.index(key_class)
        total = self.total[quantity][..., place]
        return total, np.broadcast_to(self.weight[:, None, None, place], total.shape)

    def layer_table(self) -> pd.DataFrame:
        """One row per class, quantity and layer: the mean over its heads, as Fig. 3 draws it.

        The interval comes from drawing examples again, not heads: a model has the heads it has.
        """
        frames = []
        for quantity in QUANTITIES:
            for key_class in self.classes:
                total, weight = self.rows(key_class, quantity)
                # Every head has the same pairs, so sums may be averaged.
                found = estimate(total.mean(-1), weight[..., 0])
                place = {"class": key_class, "quantity": quantity}
                layers = np.arange(1, len(found.mean) + 1)
                frames.append(pd.DataFrame({**place, "layer": layers, **vars(found)}))
        return pd.concat(frames, ignore_index=True)


def attention_gradients(
    encoder: Encoder,
    head: nn.Module,
    corpus: Corpus,
    *,
    mask_rate: float = 0.15,
    hide: bool = True,
    seed: int = 0,
    batch_size: int = 8,
    classes: Mapping[str, KeyClass] = KEY_CLASSES,
    **reading: Any,
) -> Gradients:
    r"""Mean size of the loss's gradient to each attention weight (Clark 2019, sec. 3.2, Fig. 3).

    .. math:: \frac{1}{|Q||K_c|} \sum_{q \in Q} \sum_{k \in K_c}
              \left| \frac{\partial L}{\partial a_{qk}} \right|

    Q        the real pieces of an example;  K_c  its keys of class c
    L        the example's own loss: mean cross-entropy over its masked pieces
    a        one weight of one head, taken as free: the others of its row stay as they are, and
             all later layers answer to the change
    returns  per example sums (layer, head, class); means are over examples (macro)
    reading  max_length: see `batches_of`

    The authors' code for this figure is not released. Ours: the mask rate, absolute values before
    any mean, and the classes. A masked comma is read as [MASK] and so counts to the other keys.
    """
    maps: list[list[Tensor]] = []

    def keep(layer: int, rows: slice, weights: Tensor) -> Tensor:
        """Each map becomes a place where the gradient is asked for; its values stay."""
        if not weights.requires_grad:  # the first layer of a model with frozen parameters
            weights = weights.detach().requires_grad_()
        maps[layer].append(weights)
        return weights

    tap = Tap(change=keep)
    index: list[int] = []
    total, weight, losses = [], [], []
    # The caller may be in a context without gradients; here they are the point.
    with torch.inference_mode(False), torch.enable_grad(), tapped(encoder, tap):
        for whole in batches_of(corpus.examples, encoder, batch_size=batch_size, **reading):
            batch, targets = masked(whole, encoder, rate=mask_rate, seed=seed, hide=hide)
            maps[:] = [[] for _ in range(encoder.n_layers)]
            loss = example_losses(head, run_tapped(encoder, batch, tap)[0], targets)
            # Examples of a batch do not meet, so the sum gives each map its own example's gradient;
            # a mean over the batch would make it smaller the larger the batch.
            slopes = iter(torch.autograd.grad(loss.sum(), [part for one in maps for part in one]))
            keys = _keys(_as_read(batch, targets, encoder), classes)
            layers = []
            for layer in maps:
                size = torch.cat([next(slopes) for _ in layer]).abs()
                sizes = (size, size * torch.cat(layer).detach())  # of QUANTITIES
                layers.append(torch.stack([_sums(one, batch, keys) for one in sizes], dim=1))
            total.append(torch.stack(layers, dim=2).cpu())
            finite = loss.cpu().isfinite() & total[-1].flatten(1).isfinite().all(1)
            trouble = "the masked-LM loss or its gradient is not finite"
            refuse_infinite(encoder.name, trouble, finite, batch.index)
            weight.append((keys.sum(1) * batch.real.sum(-1, keepdim=True)).cpu())
            losses.append(loss.detach().cpu())
            index.extend(batch.index)
    order = np.argsort(index, kind="stable")
    return Gradients(
        classes=tuple(classes),
        total=dict(zip(QUANTITIES, torch.cat(total).numpy()[order].swapaxes(0, 1), strict=True)),
        weight=torch.cat(weight).numpy()[order],
        loss=torch.cat(losses).numpy()[order],
    )


def _keys(batch: Batch, classes: Mapping[str, KeyClass]) -> Tensor:
    """(batch, key, class) as 0 and 1."""
    masks = [of_class(batch) & batch.real for of_class in classes.values()]
    return torch.stack(masks, dim=-1).float()  # counts this small are exact


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
