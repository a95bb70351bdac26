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

if TYPE_CHECKING:  # the same for a type checker
    from attnlib.plots.grids import head_grid, head_table, strongest_heads
    from attnlib.plots.lines import Lines, as_table, attention_line_panels
    from attnlib.plots.planes import head_map
    from attnlib.plots.profiles import layer_lines, layer_profile
    from attnlib.plots.rows import labelled_scores, relation_accuracies

_ROOMS = {
    "grids": ("head_grid", "head_table", "strongest_heads"),
    "lines": ("Lines", "as_table", "attention_line_panels"),
    "planes": ("head_map",),
    "profiles": ("layer_lines", "layer_profile"),
    "rows": ("labelled_scores", "relation_accuracies"),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Figures load when they are asked for: importing this room imports no matplotlib."""
    if name not in _HOMES:
        raise AttributeError(f"module 'attnlib.plots' has no attribute '{name}'")
    return getattr(import_module(f"attnlib.plots.{_HOMES[name]}"), name)
