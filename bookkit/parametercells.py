"""The cell of parameters that a run shows: its values in the place of the defaults."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

WIDTH = 80
"""Characters up to which a value stays on one line."""


def with_values_in_place(cells: list[dict], parameters: Mapping[str, Any]) -> list[dict]:
    """One parameters cell that shows the values of this run, instead of defaults and a second cell.

    If the cell does not name one of the parameters, papermill's own cell stays as well.
    """
    tags = [cell["metadata"].get("tags", []) for cell in cells]
    home = next((cell for cell, tag in zip(cells, tags, strict=True) if "parameters" in tag), None)
    if home is None:
        return cells
    text = "".join(home["source"])
    if not set(parameters) <= set(_spans(text)):
        return cells
    home["source"] = with_values(text, parameters)
    return [cell for cell, tag in zip(cells, tags, strict=True) if "injected-parameters" not in tag]


def with_values(text: str, values: Mapping[str, Any]) -> str:
    """Source that assigns these values instead of its own; types and comments stay."""
    spans, raw = _spans(text), text.encode()
    for name in sorted(values, key=lambda name: spans[name], reverse=True):  # from the end on
        start, end = spans[name]
        line = raw.rfind(b"\n", 0, start) + 1
        raw = raw[:start] + _written(values[name], room=WIDTH - (start - line)).encode() + raw[end:]
    return raw.decode()


def _spans(text: str) -> dict[str, tuple[int, int]]:
    """Name -> where in the encoded text its value starts and ends."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = {}
    for node in ast.parse(text).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        value = node.value
        if isinstance(target, ast.Name) and value.end_lineno and value.end_col_offset is not None:
            start = starts[value.lineno - 1] + value.col_offset
            found[target.id] = (start, starts[value.end_lineno - 1] + value.end_col_offset)
    return found


def _written(value: Any, room: int = WIDTH) -> str:
    """A value as Python source, with double quotes; a long dictionary has a line for each key."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if not isinstance(value, dict):
        return repr(value)
    items = [f"{_written(name)}: {_written(one)}" for name, one in value.items()]
    line = "{" + ", ".join(items) + "}"
    return line if len(line) <= room else "{\n" + "".join(f"    {one},\n" for one in items) + "}"
