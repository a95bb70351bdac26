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

if TYPE_CHECKING:  # the same for a type checker
    from attnlib import plots
    from attnlib.attention.ablation import run_changed
    from attnlib.attention.interventions import Intervention
    from attnlib.attention.maps import Attention
    from attnlib.attention.tap import attention_maps
    from attnlib.data.corpora import load_corpus
    from attnlib.measuring.best_heads import best_heads, predictions
    from attnlib.measuring.bootstrap import estimate
    from attnlib.measuring.roles import role_scores, role_tests
    from attnlib.measuring.stream import measure
    from attnlib.metrics.registry import METRICS, Metric, Partial, metric
    from attnlib.metrics.relations import Relation, relation
    from attnlib.metrics.sieves import sieve
    from attnlib.models import Encoder, load_encoder, random_encoder, random_twin
    from attnlib.plots.viewer import live, view

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
