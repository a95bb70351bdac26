"""What attention heads do: one pass over the maps of a model, and everything that follows from it.

>>> from attnlib import load_corpus, measure, random_encoder
>>> texts = load_corpus("reader", limit=2)
>>> found = measure(random_encoder(), texts, ["entropy"], on_long="truncate")
>>> found.grid("entropy").shape  # (layer, head)
(2, 2)

A name is loaded when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from attnlib import plots as plots
    from attnlib.attention.ablation import run_changed as run_changed
    from attnlib.attention.interventions import Intervention as Intervention
    from attnlib.attention.maps import Attention as Attention
    from attnlib.attention.tap import attention_maps as attention_maps
    from attnlib.data.corpora import load_corpus as load_corpus
    from attnlib.measuring.best_heads import best_heads as best_heads
    from attnlib.measuring.best_heads import predictions as predictions
    from attnlib.measuring.bootstrap import estimate as estimate
    from attnlib.measuring.roles import role_scores as role_scores
    from attnlib.measuring.roles import role_tests as role_tests
    from attnlib.measuring.stream import measure as measure
    from attnlib.metrics.registry import METRICS as METRICS
    from attnlib.metrics.registry import Metric as Metric
    from attnlib.metrics.registry import Partial as Partial
    from attnlib.metrics.registry import metric as metric
    from attnlib.metrics.relations import Relation as Relation
    from attnlib.metrics.relations import relation as relation
    from attnlib.metrics.sieves import sieve as sieve
    from attnlib.models import Encoder as Encoder
    from attnlib.models import load_encoder as load_encoder
    from attnlib.models import random_encoder as random_encoder
    from attnlib.models import random_twin as random_twin
    from attnlib.plots.viewer import live as live
    from attnlib.plots.viewer import view as view

_ROOMS = {
    "attention.ablation": ("run_changed",),
    "attention.interventions": ("Intervention",),
    "attention.maps": ("Attention",),
    "attention.tap": ("attention_maps",),
    "data.corpora": ("load_corpus",),
    "measuring.best_heads": ("best_heads", "predictions"),
    "measuring.bootstrap": ("estimate",),
    "measuring.roles": ("role_scores", "role_tests"),
    "measuring.stream": ("measure",),
    "metrics.registry": ("METRICS", "Metric", "Partial", "metric"),
    "metrics.relations": ("Relation", "relation"),
    "metrics.sieves": ("sieve",),
    "models": ("Encoder", "load_encoder", "random_encoder", "random_twin"),
    "plots.viewer": ("live", "view"),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = sorted([*_HOMES, "plots"])


def __getattr__(name: str) -> Any:
    if name == "plots":
        return import_module("attnlib.plots")
    if name not in _HOMES:
        raise AttributeError(f"module 'attnlib' has no attribute '{name}'")
    return getattr(import_module(f"attnlib.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
