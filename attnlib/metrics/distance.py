"""How far heads attend: attention by distance, to the piece itself and to special tokens (Guan)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from attnlib.attention.encode import Batch
from attnlib.errors import BadValue, TooLong, check_choice
from attnlib.metrics.mass import mass_metric
from attnlib.metrics.registry import METRICS, Metric
from attnlib.metrics.relations import Relation, relation_named

SOURCE = "guan2020:eq2"
N_WINDOWS = 16
SPECIALS = ("cls", "sep", "comma", "period")
EDGES = ("paper", "equal")

Names = tuple[str, ...]


# --- the parts of a query's attention ------------------------------------------------------------


@dataclass(frozen=True)
class Division:
    """How attention is divided: each pair of pieces belongs to just one numbered part.

    specials  relations of the key alone; a key that is of several counts for the first
    length    the L that windows are a share of; None for the real pieces of each input
    """

    windows: int
    specials: tuple[Relation, ...]
    edges: str
    length: int | None

    @property
    def names(self) -> Names:
        """The parts in the order of their numbers: windows from near to far, self, specials."""
        width = max(2, len(str(self.windows)))
        windows = (f"window_{i:0{width}d}" for i in range(1, self.windows + 1))
        return (*windows, "self", *(special.key for special in self.specials))

    def pairs(self, batch: Batch) -> Integer[Tensor, "batch query key"]:
        """The part of every pair; found once for a batch, whichever parts are asked for."""
        known = _PAIRS.setdefault(batch, {})
        if self not in known:
            known[self] = self._pairs(batch)
        return known[self]

    def _pairs(self, batch: Batch) -> Tensor:
        place = torch.arange(batch.length, device=batch.device)
        distance = (place.unsqueeze(0) - place.unsqueeze(1)).abs()
        pairs = self._by_distance(batch).index_select(1, distance.flatten())
        special = self.keys(batch).to(pairs.dtype).unsqueeze(1)
        return torch.where(special > 0, special, pairs.unflatten(1, distance.shape))

    def _by_distance(self, batch: Batch) -> Integer[Tensor, "batch distance"]:
        """The window at each distance, `self` at 0; no two real pieces are further than L - 1."""
        away = torch.arange(batch.length, device=batch.device)
        length = self._lengths(batch).unsqueeze(1)
        if self.edges == "paper":
            window = self.windows * away // length
        else:
            window = self.windows * (away - 1) // (length - 1).clamp_min(1)
        window = window.clamp_max(self.windows - 1)
        window[:, 0] = self.windows
        return window.to(torch.uint8 if len(self.names) < 256 else torch.int32)

    def _lengths(self, batch: Batch) -> Integer[Tensor, " batch"]:
        real = batch.real.sum(-1)
        if self.length is None:
            return real.clamp_min(1)
        if batch.length > self.length and (longest := int(real.max())) > self.length:
            raise TooLong(
                f"an input has {longest} pieces, the distance windows are for {self.length}. "
                "Use a larger length, a smaller --max-length, or length='real'."
            )
        return torch.full_like(real, self.length)

    def keys(self, batch: Batch) -> Integer[Tensor, "batch key"]:
        """The part of the special token that a key is; 0 where it is none."""
        part = torch.zeros_like(batch.ids)
        for number, special in reversed(list(enumerate(self.specials, self.windows + 1))):
            part = part.masked_fill(special.keys_in(batch), number)
        return part


_PAIRS: WeakKeyDictionary[Batch, dict[Division, Tensor]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Part:
    """Which pairs, or which keys, are of one part of a division."""

    division: Division
    number: int

    @property
    def name(self) -> str:
        return self.division.names[self.number]

    @property
    def key(self) -> str:
        """Of the metric that measures it."""
        return f"distance_{self.name}"

    def __call__(self, batch: Batch) -> Tensor:
        return self.division.pairs(batch) == self.number

    def keys(self, batch: Batch) -> Tensor:
        return self.division.keys(batch) == self.number


# --- the metrics ---------------------------------------------------------------------------------


def distance_metrics(
    *,
    windows: int = N_WINDOWS,
    specials: Sequence[str | Relation] = SPECIALS,
    edges: str = "paper",
    length: int | str = "real",
) -> list[Metric]:
    r"""The parts of the distance feature (Guan 2020, sec. 3), each a metric `distance_<part>`.

    .. math::
        F(i) = \frac{1}{L} \sum_{s=1}^{L} \sum_{t > 0, \lfloor N t / L \rfloor = i} a_{s, s \pm t}

    i = 0 .. N-1 are the windows `window_01` .. (Eq. 2); `self` is t = 0; each special token has
    the attention to its keys at any distance, t = 0 too, which count for no other part. All parts
    add up to 1, also where L < N and some windows, the nearest among them, hold no distance.

    windows   N
    specials  classes of special tokens: relations that the key alone decides, by name or one's
              own; a key of several classes counts for the first
    edges     "equal" divides the distances that exist, 1 .. L-1: floor(N (t-1) / (L-1)) = i
    length    L in the windows: the "real" pieces of each input, or one number for all, as if they
              were padded to it; the mean over s is over real queries all the same

    The authors' code is not known. Their sum has both ends of t = iL/N .. (i+1)L/N, and t = 0 in
    the first window, while their text counts self apart: here the upper end is left out, and 0.
    """
    check_choice("edges", edges, EDGES)
    _check_count("the number of distance windows", windows)
    if length != "real":
        _check_count("length", length, "'real', or ")
    fixed = length if isinstance(length, int) else None
    return list(_metrics_of(Division(windows, _chosen_specials(specials), edges, fixed)))


@lru_cache(maxsize=64)
def _metrics_of(division: Division) -> tuple[Metric, ...]:
    """The same metrics for the same division: a pass takes equal ones of one name as one."""
    return tuple(_metric(Part(division, number)) for number in range(len(division.names)))


def _metric(part: Part) -> Metric:
    keys: Callable[[Batch], Tensor] | None = None
    n_windows = part.division.windows
    if part.number < n_windows:
        short = f"to distance window {part.number + 1} of {n_windows}"
        what = f"a piece in {short.removeprefix('to ')}, special tokens aside"
    elif part.name == "self":
        what, short = "the piece itself, special tokens aside", "to itself, if no special token"
    else:
        special = part.division.specials[part.number - n_windows - 1]
        what, short, keys = special.what, special.short, part.keys
    relation = Relation(part.name, what, part, "every", False, part.key, SOURCE, short, keys)
    return replace(mass_metric(relation), variants=("paper",))


def _chosen_specials(specials: Sequence[str | Relation]) -> tuple[Relation, ...]:
    if isinstance(specials, str):
        raise BadValue(f"specials is '{specials}'; expected a list of names or relations.")
    found: dict[str, Relation] = {}
    for one in specials:
        special = one if isinstance(one, Relation) else relation_named(one)
        if special.keys is None:
            raise BadValue(
                f"special tokens are of class '{special.key}', which depends on the query too; "
                "expected a relation of the key alone, as cls and comma are, or yours with `keys`."
            )
        if special.key in found or re.fullmatch(r"self|window_\d+", special.key):
            raise BadValue(
                f"two parts are called '{special.key}'; expected another name for each class of "
                "special tokens, and neither self nor window_<number>."
            )
        found[special.key] = special
    return tuple(found.values())


def _check_count(what: str, given: object, otherwise: str = "") -> None:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise BadValue(f"{what} is {given!r}; expected {otherwise}a whole number, 1 or more.")


for _one in distance_metrics():
    METRICS.declare(_one)

FEATURES = tuple(one.key.removeprefix("distance_") for one in distance_metrics())
"""The 21 parts of the paper: 16 windows from near to far, self, and 4 special tokens."""


# --- what a pass found, as features of heads -----------------------------------------------------


def feature_rows(measurement: Any) -> tuple[Names, Float[np.ndarray, "input head feature"]]:
    """The parts of a division in what `measure` found, and their values of every head and input.

    Heads are numbered over all layers; inputs are in the order of the corpus. A long input that
    was measured in windows is one input, the mean over the queries of all of them.
    """
    relations = [metric.relation for metric in measurement.metrics.values()]
    parts = [one.pairs for one in relations if one and isinstance(one.pairs, Part)]
    names = parts[0].division.names if parts else FEATURES
    if len({part.division for part in parts}) != 1 or len(parts) != len(names):
        raise BadValue(
            f"the measurement has {len(parts)} parts of a distance feature; expected all of one. "
            "Pass distance_metrics() to measure()."
        )
    values = [measurement.values(f"distance_{name}") for name in names]
    return names, np.stack([one.reshape(len(one), -1) for one in values], axis=-1)


def feature_matrix(measurement: Any) -> tuple[Names, Float[np.ndarray, "head feature"]]:
    """The mean of `feature_rows` over the inputs, each of which counts the same (sec. 4)."""
    names, rows = feature_rows(measurement)
    return names, rows[~np.isnan(rows).any((1, 2))].mean(0)


Features = Float[np.ndarray, "*axes feature"]
Mass = Float[np.ndarray, "*axes"]


def near_mass(names: Sequence[str], features: Features) -> Mass:
    """Attention of pieces to themselves and to the nearest window."""
    return _mass(names, features, {"self", *_windows(names)[:1]})


def far_mass(names: Sequence[str], features: Features) -> Mass:
    """Attention to all windows but the nearest."""
    return _mass(names, features, set(_windows(names)[1:]))


def _windows(names: Sequence[str]) -> list[str]:
    return [name for name in names if re.fullmatch(r"window_\d+", name)]


def _mass(names: Sequence[str], features: np.ndarray, chosen: set[str]) -> np.ndarray:
    if features.shape[-1:] != (len(names),):
        raise BadValue(
            f"{len(names)} names for features of shape {features.shape}; expected one "
            "for each place of the last axis."
        )
    return np.asarray(features[..., [name in chosen for name in names]].sum(-1))
