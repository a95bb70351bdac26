"""Partial sums, the @metric record, and the frozen registry of all metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnlib.attention.maps import Attention
from attnlib.errors import UnknownName, did_you_mean
from attnlib.metrics.relations import Relation

Scope = Literal["layer", "model"]
Bound = float | int | str


@dataclass(frozen=True, eq=False)
class Partial:
    """Per example, a sum and what it is a sum over; where the weight is 0 nothing is defined.

    A kernel never averages over examples: macro and micro means, merging of shards, bootstrap
    and tests all follow from these two arrays.

    total   (batch, *axes)
    weight  (batch,), or any shape that broadcasts against total from the left

    >>> import torch
    >>> from attnlib import Partial
    >>> Partial(total=torch.tensor([[2.0, 3.0]]), weight=torch.tensor([4.0])).value
    tensor([[0.5000, 0.7500]])
    """

    total: Tensor
    weight: Tensor

    @property
    def value(self) -> Tensor:
        """total / weight; NaN where the weight is 0."""
        weight = self.spread_weight()
        return torch.where(weight > 0, self.total / weight, torch.nan)

    def spread_weight(self) -> Tensor:
        """The weight in the shape of the total."""
        missing = self.total.dim() - self.weight.dim()
        return self.weight[(...,) + (None,) * missing].expand_as(self.total)


Kernel = Callable[..., Partial]


def mass_by_query(attention: Attention, held: Tensor) -> Float[Tensor, "batch head query"]:
    """What each query gives to the pairs of a relation that hold, (batch, query, key)."""
    return torch.einsum("bhqk,bqk->bhq", attention.weights, held.to(attention.weights.dtype))


@dataclass(frozen=True)
class LinearKernel:
    """A kernel that is a weighted sum of the attention that falls on a relation.

    weigh      (batch, held, variant, relation=, dtype=) -> what each query's attention to the
               relation counts, and how many queries were asked. `held` is (batch, query, key), or
               (batch, key) for a relation of the key alone; the first answer has its shape without
               the key, or is None where everything counts 1
    nonlinear  variants that are no such sum, with their kernels

    A call is the definition; a stream takes all such metrics of a batch in one matrix product, in
    `mass.Selectors`.
    """

    relation: Relation
    weigh: Callable[..., tuple[Tensor | None, Tensor]]
    nonlinear: Mapping[str, Kernel] = field(default_factory=dict, hash=False)

    def __call__(self, attention: Attention, variant: str = "paper") -> Partial:
        if variant in self.nonlinear:
            return self.nonlinear[variant](attention)
        held, how = self.relation.mask(attention.batch), {"dtype": attention.weights.dtype}
        counts, asked = self.weigh(attention.batch, held, variant, relation=self.relation, **how)
        masses = mass_by_query(attention, held)
        masses = masses if counts is None else masses * counts.unsqueeze(1)
        return Partial(masses.sum(-1), asked)


@dataclass(frozen=True)
class Metric:
    """What the stream, the commands, the figures, the book and the law tests know of a metric.

    axes    of one example's value: ("head",), ("head", "key") or ("head", "other head")
    scope   "layer": the kernel sees one layer at a time; "model": all heads of all layers
    bounds  numbers, or expressions in n_key such as "log n_key"

    >>> from attnlib import METRICS, attention_maps, random_encoder
    >>> one = METRICS["mass_to_self"]
    >>> one.what, one.unit
    ('Share of attention that falls on the piece itself.', 'share of attention')
    >>> one(attention_maps(random_encoder(), "a cat")).value.shape  # (example, head)
    torch.Size([1, 4])
    """

    key: str
    what: str
    source: str
    unit: str
    bounds: tuple[Bound, Bound]
    kernel: Kernel
    axes: tuple[str, ...] = ("head",)
    scope: Scope = "layer"
    variants: tuple[str, ...] = ("paper",)
    variant: str = "paper"

    @property
    def relation(self) -> Relation | None:
        """On which the attention falls that is measured, if it is measured so."""
        return self.kernel.relation if isinstance(self.kernel, LinearKernel) else None

    @property
    def linear(self) -> bool:
        """Whether this variant is a weighted sum of attention, which the matrix product serves."""
        return isinstance(self.kernel, LinearKernel) and self.variant not in self.kernel.nonlinear

    def __call__(self, attention: Attention) -> Partial:
        """Reduce maps; half precision is reduced in single."""
        attention = attention.reduced()
        if len(self.variants) == 1:
            return self.kernel(attention)
        return self.kernel(attention, variant=self.variant)


class UnknownMetric(UnknownName, KeyError):
    """Also a KeyError, so that a registry answers `in` and `get` as any mapping does."""

    __str__ = Exception.__str__


class Registry(Mapping[str, Metric]):
    """Metrics by key. Frozen once attnlib is imported; a key can be declared only once.

    >>> from attnlib import METRICS
    >>> METRICS["entropy"].source, METRICS["entropy@authors"].variant
    ('clark2019:fig4', 'authors')
    """

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self.frozen = False

    def declare(self, metric: Metric) -> Metric:
        if self.frozen:
            raise TypeError(
                f"the registry is frozen; pass your own Metric '{metric.key}' to measure() instead"
            )
        if metric.key in self._metrics:
            raise ValueError(f"metric '{metric.key}' is declared twice")
        self._metrics[metric.key] = metric
        return metric

    def __getitem__(self, key: str) -> Metric:
        """A metric, or one of its variants written `entropy@authors`."""
        name, at, variant = key.partition("@")
        if name not in self._metrics:
            raise UnknownMetric(
                f"metric '{name}'. {did_you_mean(name, self._metrics)}"
                "`attnlib metrics` lists all of them."
            )
        metric = self._metrics[name]
        if not at:
            return metric
        if variant not in metric.variants:
            raise UnknownMetric(
                f"metric '{name}' has no variant '{variant}'; it has {', '.join(metric.variants)}."
            )
        return replace(metric, key=key, variant=variant) if variant != "paper" else metric

    def __iter__(self) -> Iterator[str]:
        return iter(self._metrics)

    def __len__(self) -> int:
        return len(self._metrics)


METRICS = Registry()


def metric(
    *,
    key: str,
    unit: str,
    bounds: tuple[Bound, Bound],
    source: str = "own",
    axes: tuple[str, ...] = ("head",),
    scope: Scope = "layer",
    variants: tuple[str, ...] = ("paper",),
) -> Callable[[Kernel], Metric]:
    """Make a metric of a kernel; the first line of its docstring says what it measures.

    >>> import torch
    >>> from attnlib import Partial, attention_maps, metric, random_encoder
    >>> @metric(key="mass_to_first", unit="share of attention", bounds=(0, 1))
    ... def mass_to_first(attention):
    ...     "Attention to the first piece."
    ...     return Partial(attention.received[:, :, 0], torch.ones(len(attention.batch)))
    >>> mass_to_first(attention_maps(random_encoder(), "a cat")).value.shape
    torch.Size([1, 4])

    It goes to `measure` among the names of other metrics. In a module of `attnlib.metrics` it is
    declared as well: the registry is still open while they are imported.
    """

    def made(kernel: Kernel) -> Metric:
        what = (kernel.__doc__ or key).strip().splitlines()[0]
        found = Metric(
            key, what, source, unit, bounds, kernel, axes=axes, scope=scope, variants=variants
        )
        return found if METRICS.frozen else METRICS.declare(found)

    return made
