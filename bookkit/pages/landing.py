"""What the front page shows of the run behind it: the verdicts, and heads that one can click."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bookkit.pages.ledgerpage import raw, verdict_bars

_WALL = 'class="attn-figure attn-wall"'


def verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    """The bars of all papers, as a part of a page."""
    return raw(verdict_bars(rows))


def front_figure(executed: Mapping[str, Path]) -> str:
    """The wall of all heads from the chapter that draws it; nothing if it was not run."""
    for path in executed.values():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                shown = "".join(output.get("data", {}).get("text/html", ""))
                if _WALL in shown:
                    return raw(shown)
    return "\n"
