"""Rows of a ledger, to draw tables of."""

from __future__ import annotations

from typing import Any

from bookkit.claims import Claim, Finding, Judgement, Phenomenon, ledger_row

CLAIM = Claim(
    paper="clark2019",
    id="tab1.det",
    where="Table 1, row <det>",
    kind="value",
    value={"value": 94.3, "unit": "percent", "claim": "a & b: c"},
    how="how",
    measure="det.accuracy",
    phenomenon=Phenomenon("the gain is at least 20", "det.gain", "at_least", 20.0),
    tolerance=2.0,
    deviations=("D1", "D3"),
)


def row(verdict: str = "holds", **changes: Any) -> dict[str, Any]:
    """The ledger's row of a claim with some verdict; `changes` go over its parts."""
    ours, gain = Finding(91.04, 90.0, 92.5), Finding(39.0, 35.0, 42.0)
    judged = Judgement(CLAIM, verdict, 'because "so"', ours, gain)  # type: ignore[arg-type]
    return ledger_row(judged, model="a-model") | changes
