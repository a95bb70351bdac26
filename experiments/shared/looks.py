"""How the four types of heads are drawn, in the figures of every paper that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attnlib.plots import style

# Of all fours of the palette that keep orange for special tokens and blue for neighbours, these
# stay farthest apart for the three kinds of colour blindness.
TYPE_LOOKS: Mapping[str, style.Look] = MappingProxyType(
    {
        "dense": style.Look(style.LOOKS["block"].colour, "o", (0, (3, 1, 1, 1))),
        "diagonal": style.Look(style.LOOKS["next"].colour, "D", "-"),
        "dense&vertical": style.Look(style.LOOKS["self"].colour, "s", (0, (5, 1.5))),
        "vertical": style.Look(style.LOOKS["special"].colour, "^", (0, (1.5, 1.2))),
    }
)
"""Colour, mark and dash of the four head types, in the one order they are ever shown in."""
