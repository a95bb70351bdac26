"""Tables 2 and 3: the paper's ablations by number, and what each is in terms of head types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from attnlib.attention.interventions import Head, Intervention, heads_of_types
from attnlib.errors import BadValue
from experiments.shared.headtypes import TYPES

UNTAPPED, BASELINE = 0, 1
ACTIONS = {"prune": "zero", "substitute": "uniform", "intra": "no_intra", "inter": "no_inter"}
"""What the paper does to a type, and the intervention that does it."""


@dataclass(frozen=True)
class Row:
    """One ablation of the paper: what is done to which types."""

    number: int
    kind: str
    types: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        return "2" if self.number < 12 else "3"

    @property
    def key(self) -> str:
        return f"row{self.number:02d}"

    def heads(self, types: pd.DataFrame) -> frozenset[Head]:
        """The heads of this row; a type that no head has adds none."""
        known = set(types["type"])
        return heads_of_types(types, [name for name in self.types if name in known])

    def variant(self, heads: frozenset[Head], **reading: Any) -> tuple[Intervention, ...]:
        """What is done, to these heads; `reading` are the open points of `Intervention`."""
        if self.kind not in ACTIONS or not heads:
            return ()
        return (Intervention(heads, ACTIONS[self.kind], **reading),)


def _but(name: str) -> tuple[str, ...]:
    return tuple(other for other in TYPES if other != name)


_DENSE, _DIAGONAL, _MIXED, _VERTICAL = TYPES

ROWS: tuple[Row, ...] = (
    Row(BASELINE, "baseline"),
    *(Row(2 + place, "prune", (name,)) for place, name in enumerate(TYPES)),
    Row(6, "prune", (_DENSE, _VERTICAL)),
    Row(7, "prune", (_MIXED, _VERTICAL)),
    *(Row(8 + place, "substitute", (name,)) for place, name in enumerate(TYPES)),
    Row(12, "intra", (_DIAGONAL,)),
    Row(13, "inter", (_DIAGONAL,)),
    Row(14, "intra", (_MIXED,)),
    Row(15, "inter", (_MIXED,)),
    Row(16, "intra", _but(_DIAGONAL)),
    Row(17, "inter", _but(_DIAGONAL)),
    Row(18, "intra", _but(_MIXED)),
    Row(19, "inter", _but(_MIXED)),
)
"""In the paper's order. Row 1 is the model as it is."""


def row_numbered(number: int) -> Row:
    """A row of the paper by its number."""
    found = [row for row in ROWS if row.number == number]
    if not found:
        raise BadValue(f"row {number} is none of the paper's; expected {BASELINE} to {len(ROWS)}.")
    return found[0]


def with_paper(table: pd.DataFrame, *reported: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """The table of ablations with the paper's exact match and F1 beside ours.

    reported  of each table, row -> values, as `Chapter.reported` gives them
    """
    told = {int(row): values for part in reported for row, values in part.items()}
    found = table.copy()
    for column, name in (("paper_em", "exact_match"), ("paper_f1", "value")):
        found[column] = [told.get(int(row), {}).get(name) for row in found["row"]]
    return found
