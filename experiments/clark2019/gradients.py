"""Sec. 3.2, Fig. 3: how much the masked-LM loss depends on each attention weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlib.attention.encode import Batch, batches_of, tokenized
from attnlib.attention.maps import refuse_infinite
from attnlib.attention.tap import Tap, run_tapped, tapped
from attnlib.data.corpora import Corpus
from attnlib.models import Encoder
from bookkit.store import Found, experiment
from experiments.clark2019.masked_lm import (
    NOT_ASKED,
    article,
    example_losses,
    masked,
    masked_lm,
    unmeasured,
)

QUANTITIES = ("gradient", "gradient_times_attention", "attention")
"""|dL/da|, as in the paper; |dL/da| a, which is ours: how much attention there matters; and a."""

KeyClass = Callable[[Batch], Tensor]
"""Batch -> (batch, key), True where a key is of the class."""


@experiment(version=2, trains=True)
def gradients(
    corpus: Corpus,
    fit_on: Corpus,
    *,
    encoder: Encoder,
    max_length: int = 128,
    head_epochs: int = 1,
    epochs: int = 0,
    seed: int = 0,
) -> Found:
    """Mean size of dL/da by class of key and layer, and the attention that the class gets.

    fit_on  texts for a masked-LM model, where the checkpoint is none; those of `corpus` are left
            out. head_epochs, epochs: see `masked_lm`
    table   text, article, class, layer, gradient, gradient_times_attention (means over pairs of a
            real query and a key of the class, and over heads; NaN without such a key), attention
            (of a query to the whole class, averaged over queries and heads). Attention is that of
            the masked-LM model's own encoder, on the same masked texts.
    """
    others = unmeasured(fit_on, corpus)
    how: Any = {"max_length": max_length, "seed": seed}
    model, known = masked_lm(encoder, others, head_epochs=head_epochs, epochs=epochs, **how)
    found = attention_gradients(model, corpus, **how)
    facts = {
        "inputs": len(corpus),
        "passes": len(corpus) + (head_epochs + epochs) * known["n_train"],
        "tokens": sum(map(len, tokenized(corpus.examples, encoder))),
        **known,
    }
    return Found(found.table([article(example) for example in corpus.examples]), facts=facts)


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
    n_real  (example,)         real queries
    loss    (example,)         mean cross-entropy of its masked pieces, in nats
    """

    classes: tuple[str, ...]
    total: Mapping[str, np.ndarray]
    weight: np.ndarray
    n_real: np.ndarray
    loss: np.ndarray

    def rows(self, key_class: str, quantity: str = "gradient") -> tuple[np.ndarray, np.ndarray]:
        """Sums and weights of one class of keys, each (example, layer, head)."""
        place = self.classes.index(key_class)
        total = self.total[quantity][..., place]
        return total, np.broadcast_to(self.weight[:, None, None, place], total.shape)

    def table(self, articles: list[str]) -> pd.DataFrame:
        """One row per text, layer and class; heads have the same pairs, so sums are averaged."""
        by_layer = {name: total.mean(2) for name, total in self.total.items()}
        shape = by_layer["attention"].shape  # example, layer, class
        text, layer, place = np.indices(shape).reshape(3, -1)
        pairs = np.where(self.weight > 0, self.weight, np.nan)[:, None]
        means = {name: by_layer[name] / pairs for name in QUANTITIES[:2]}
        means["attention"] = by_layer["attention"] / self.n_real[:, None, None]
        names = {"text": text, "article": np.array(articles)[text], "layer": layer + 1}
        names["class"] = np.array(self.classes)[place]
        return pd.DataFrame({**names, **{name: means[name].ravel() for name in QUANTITIES}})


def attention_gradients(
    model: Encoder,
    corpus: Corpus,
    *,
    mask_rate: float = 0.15,
    seed: int = 0,
    batch_size: int = 8,
    classes: Mapping[str, KeyClass] = KEY_CLASSES,
    **reading: Any,
) -> Gradients:
    r"""Mean size of the loss's gradient to each attention weight (Clark 2019, sec. 3.2, Fig. 3).

    .. math:: \frac{1}{|Q||K_c|} \sum_{q \in Q} \sum_{k \in K_c}
              \left| \frac{\partial L}{\partial a_{qk}} \right|

    model    a masked-LM model, whose output is logits: see `masked_lm`
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
    total, weight, n_real, losses = [], [], [], []
    # The caller may be in a context without gradients; here they are the point.
    with torch.inference_mode(False), torch.enable_grad(), tapped(model, tap):
        for whole in batches_of(corpus.examples, model, batch_size=batch_size, **reading):
            batch, targets = masked(whole, model, rate=mask_rate, seed=seed)
            maps[:] = [[] for _ in range(model.n_layers)]
            loss = example_losses(run_tapped(model, batch, tap)[0], targets)
            # Examples of a batch do not meet, so the sum gives each map its own example's gradient;
            # a mean over the batch would make it smaller the larger the batch.
            slopes = iter(torch.autograd.grad(loss.sum(), [part for one in maps for part in one]))
            keys = _keys(_as_read(batch, targets, model), classes)
            layers = []
            for layer in maps:
                size = torch.cat([next(slopes) for _ in layer]).abs()
                given = torch.cat(layer).detach()
                sizes = (size, size * given, given)  # of QUANTITIES
                layers.append(torch.stack([_sums(one, batch, keys) for one in sizes], dim=1))
            total.append(torch.stack(layers, dim=2).cpu())
            finite = loss.cpu().isfinite() & total[-1].flatten(1).isfinite().all(1)
            trouble = "the masked-LM loss or its gradient is not finite"
            refuse_infinite(model.name, trouble, finite, batch.index)
            weight.append((keys.sum(1) * batch.real.sum(-1, keepdim=True)).cpu())
            n_real.append(batch.n_real.cpu())
            losses.append(loss.detach().cpu())
            index.extend(batch.index)
    order = np.argsort(index, kind="stable")
    return Gradients(
        classes=tuple(classes),
        total=dict(zip(QUANTITIES, torch.cat(total).numpy()[order].swapaxes(0, 1), strict=True)),
        weight=torch.cat(weight).numpy()[order],
        n_real=torch.cat(n_real).numpy()[order],
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
