"""Attention extraction and metrics for the executable book on what attention heads do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["load_corpus", "load_encoder", "measure", "view"]

if TYPE_CHECKING:
    from attnlib.data.corpora import load_corpus
    from attnlib.measuring.stream import measure
    from attnlib.models import load_encoder
    from attnlib.plots.viewer import view

_HOME = {
    "measure": "measuring.stream",
    "load_encoder": "models",
    "load_corpus": "data.corpora",
    "view": "plots.viewer",
}


def __getattr__(name: str) -> Any:
    """Load the heavy modules only when they are asked for: `attnlib --help` stays fast."""
    if name not in _HOME:
        raise AttributeError(f"module 'attnlib' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"attnlib.{_HOME[name]}"), name)
