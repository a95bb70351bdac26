"""Measuring: one pass over a corpus, and everything that follows from its rows.

>>> from attnlib import load_corpus, measure, random_encoder
>>> texts = load_corpus("reader", limit=3)
>>> found = measure(random_encoder(), texts, ["mass_to_sep", "entropy"], on_long="truncate")
>>> list(found.table().columns)
['metric', 'layer', 'head', 'mean', 'low', 'high', 'n']

The room can be called: `attnlib.measure(model, corpus, metrics)` is `measure` of its module
`stream`, since a package and a function cannot both have the name that a reader looks for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A package that is also its most important function."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        from attnlib.measure.stream import measure

        return measure(*args, **options)


sys.modules[__name__].__class__ = _Room
