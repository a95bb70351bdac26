"""Figures. Each takes a table and computes nothing; `figure.said("...")` gives it a caption.

>>> import pandas as pd
>>> from attnlib import plots
>>> columns = ["metric", "layer", "head", "mean", "low", "high", "n"]
>>> rows = [("mass_to_sep", 1, 1, 0.2, 0.1, 0.3, 9), ("mass_to_sep", 1, 2, 0.7, 0.6, 0.8, 9)]
>>> plots.head_grid(pd.DataFrame(rows, columns=columns), "mass_to_sep").caption
'Each cell is one head; the darker it is, the higher its value.'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlib.plots.grids import head_grid, head_table, strongest_heads
    from attnlib.plots.lines import Lines, as_table, attention_line_panels
    from attnlib.plots.planes import head_map
    from attnlib.plots.profiles import layer_lines, layer_profile
    from attnlib.plots.rows import labelled_scores, relation_accuracies

__all__ = [
    "Lines",
    "as_table",
    "attention_line_panels",
    "head_grid",
    "head_map",
    "head_table",
    "labelled_scores",
    "layer_lines",
    "layer_profile",
    "relation_accuracies",
    "strongest_heads",
]

_ROOMS = ("grids", "lines", "planes", "profiles", "rows")


def __getattr__(name: str) -> Any:
    """Figures load when they are asked for: importing this room imports no matplotlib."""
    if name in __all__:
        for room in _ROOMS:
            found = import_module(f"attnlib.plots.{room}")
            if name in vars(found):
                return vars(found)[name]
    raise AttributeError(f"module 'attnlib.plots' has no attribute '{name}'")
