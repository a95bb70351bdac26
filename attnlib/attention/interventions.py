"""Exact interventions on attention: heads silenced, made uniform, or cut at sentence borders.

The weights are replaced inside the forward pass, where the model is about to use them. What such a
change does to the answers of a model is computed by `attnlib.attention.ablation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.attention.tap import Tap
from attnlib.errors import BadValue, check_choice, check_known
from attnlib.models import Encoder

Head = tuple[int, int]
"""(layer, head), both from 0."""

ACTIONS = ("zero", "uniform", "mean", "no_intra", "no_inter")
UNITS = ("sentence", "segment")
SPECIALS = ("sentence", "kept")
LENGTHS = ("real", "padded")

Maps = Float[Tensor, "batch head query key"]


@dataclass(frozen=True)
class Intervention:
    """What to do with the weights of some heads (Guan 2020, sec. 5); the paper leaves much open.

    action       "zero"      every weight becomes 0 (sec. 5.1, "prune")
                 "uniform"   every weight to a real key becomes 1/L (sec. 5.1, "substitute"; also
                             how Kovaleva 2019 disables a head); padding keys have 0
                 "mean"      the weights stay, and what the head hands on becomes its mean over
                             tokens of other inputs: what a head always adds stays
                 "no_intra"  weights to keys of the query's own unit, itself too, become 0 (5.2)
                 "no_inter"  weights to keys of other units become 0 (sec. 5.2)
    unit         of the last two: real sentences, or the two segments that [SEP] divides
    specials     of the last two: "sentence", where [CLS] and [SEP] belong to the unit they are
                 in; or "kept", where attention to them and from them is never removed
    renormalise  of the last two: what is left of a row is divided by its sum; if nothing is left
                 the row stays 0
    length       of "uniform": L counts the real pieces; or "padded", the width of the batch, or a
                 number that inputs would be padded to: then rows sum to less than 1
    means        of "mean": (layer, head, dim), from `attnlib.attention.ablation.mean_outputs`

    >>> from attnlib import Intervention
    >>> Intervention(frozenset({(0, 1)}), "uniform").heads_in(layer=0)
    [1]
    """

    heads: frozenset[Head]
    action: str
    unit: str = "sentence"
    specials: str = "sentence"
    renormalise: bool = False
    length: str | int = "real"
    means: Tensor | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("action", self.action, ACTIONS)
        check_choice("unit", self.unit, UNITS)
        check_choice("specials", self.specials, SPECIALS)
        if not isinstance(self.length, int):
            check_choice("length", self.length, LENGTHS)
        elif self.length < 1:
            raise BadValue(f"length is {self.length}; expected 1 or more, real or padded.")
        if (self.action == "mean") != (self.means is not None):
            raise BadValue("mean outputs belong to the action mean; expected both, or neither.")
        for pair in self.heads:
            if min(pair) < 0:
                raise BadValue(f"a head is {pair}; expected (layer, head) from 0, or head_named.")

    def heads_in(self, layer: int) -> list[int]:
        return sorted(head for at, head in self.heads if at == layer)


Variant = Sequence[Intervention]
"""Interventions that are made together, in this order; none at all is the plain model."""


def head_named(name: str) -> Head:
    """A head by its name, which counts from 1: "5-4" is layer 5, head 4."""
    match = re.fullmatch(r"([1-9]\d*)-([1-9]\d*)", name)
    if match is None:
        raise BadValue(f"'{name}' names no head; expected layer-head from 1, such as 5-4.")
    return int(match[1]) - 1, int(match[2]) - 1


def heads_of_types(types: pd.DataFrame, names: Iterable[str]) -> frozenset[Head]:
    """Heads of some types; the table has one row per head: layer and head from 1, and type."""
    names = list(names)
    check_known("head type", names, types["type"].unique())
    rows = types.loc[types["type"].isin(names), ["layer", "head"]].to_numpy() - 1
    return frozenset((int(layer), int(head)) for layer, head in rows)


def single_heads(encoder: Encoder) -> list[Head]:
    """Every head of the model, layer by layer: what a sweep over single heads visits."""
    return [(layer, head) for layer in range(encoder.n_layers) for head in range(encoder.n_heads)]


def check_heads(encoder: Encoder, heads: Iterable[Head]) -> None:
    """Refuse heads that the model does not have."""
    for layer, head in sorted(heads):
        if layer >= encoder.n_layers or head >= encoder.n_heads:
            raise BadValue(
                f"head {layer + 1}-{head + 1} is not in '{encoder.name}'; expected layers 1 to "
                f"{encoder.n_layers} and heads 1 to {encoder.n_heads}. Choose heads of this model."
            )


def changed(weights: Maps, batch: Batch, intervention: Intervention, layer: int) -> Maps:
    r"""The maps of one layer after an intervention (Guan 2020, sec. 5.1 and 5.2).

    .. math:: a'_{qk} = 0, \quad a'_{qk} = 1/L, \quad a'_{qk} = a_{qk} m_{qk} \quad\text{or}\quad
        a'_{qk} = a_{qk} m_{qk} \big/ \textstyle\sum_j a_{qj} m_{qj}

    with m = 1 where `kept_pairs` holds, else 0.

    weights  (batch, head, query, key)   of all heads of the layer; never written to
    batch    the examples of these maps
    returns  the maps with those of the chosen heads replaced; `weights` itself if there are none

    The authors released no code. Rows of padding queries hold no meaning before or after.
    """
    chosen = intervention.heads_in(layer)
    if not chosen or intervention.action == "mean":  # it is about outputs
        return weights
    maps = weights.clone()
    maps[:, chosen] = _replacement(weights[:, chosen], batch, intervention)
    return maps


def _replacement(weights: Tensor, batch: Batch, intervention: Intervention) -> Tensor:
    if intervention.action == "zero":
        return torch.zeros_like(weights)
    if intervention.action == "uniform":
        real = batch.real.to(torch.promote_types(weights.dtype, torch.float32))
        n_real = real.sum(-1, keepdim=True).clamp_min(1)
        row = real / _row_length(intervention.length, n_real, batch.length)
        return row.to(weights.dtype)[:, None, None, :]
    kept = kept_pairs(batch, intervention).unsqueeze(1)
    left = weights.masked_fill(~kept, 0.0)
    if not intervention.renormalise:
        return left
    total = left.sum(-1, keepdim=True)
    return left / total.masked_fill(total == 0, 1.0)


def _row_length(length: str | int, n_real: Tensor, width: int) -> Tensor | int:
    """L of a uniform row; an input that is longer than a given number has its own length."""
    if isinstance(length, int):
        return n_real.clamp_min(length)
    return n_real if length == "real" else width


def kept_pairs(batch: Batch, intervention: Intervention) -> Bool[Tensor, "batch query key"]:
    """Where "no_intra" or "no_inter" leaves the weight of a query and a key as it is."""
    unit = batch.sentence if intervention.unit == "sentence" else batch.segment
    same = unit.unsqueeze(2) == unit.unsqueeze(1)
    kept = same if intervention.action == "no_inter" else ~same
    if intervention.specials == "kept":
        special = batch.cls | batch.sep
        kept = kept | special.unsqueeze(2) | special.unsqueeze(1)
    return kept


def tap_of(interventions: Iterable[Intervention], batch: Batch) -> Tap:
    """A tap that applies the interventions, in this order; `check_heads` is the caller's."""
    by_layer: dict[int, list[Intervention]] = {}
    for intervention in interventions:
        for layer in {layer for layer, _ in intervention.heads}:
            by_layer.setdefault(layer, []).append(intervention)

    def change(layer: int, rows: slice, weights: Tensor) -> Tensor | None:
        if layer not in by_layer:
            return None
        examples = batch.rows(rows)
        for intervention in by_layer[layer]:
            weights = changed(weights, examples, intervention, layer)
        return weights

    def replace(layer: int, rows: slice, outputs: Tensor) -> Tensor | None:
        for one in by_layer.get(layer, ()):
            if one.means is not None:
                chosen, outputs = one.heads_in(layer), outputs.clone()
                outputs[:, :, chosen] = one.means[layer, chosen].to(outputs)
        return outputs

    some_mean = any(one.action == "mean" for found in by_layer.values() for one in found)
    return Tap(change=change, replace=replace if some_mean else None)
