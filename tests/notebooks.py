"""Functions that are defined in the cells of a chapter, for tests."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def defined_in(chapter: str, *names: str) -> Any:
    """Functions of a notebook by their names: one, or a tuple of several.

    All imports and definitions of the notebook's cells are carried out, and nothing else.
    """
    book = json.loads((ROOT / "notebooks" / f"{chapter}.ipynb").read_text(encoding="utf-8"))
    kept: list[ast.stmt] = []
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
            kept += [one for one in ast.parse(source).body if isinstance(one, kinds)]
    space: dict[str, Any] = {"__name__": chapter}
    exec(compile(ast.Module(kept, []), f"{chapter}.ipynb", "exec"), space)
    found = tuple(space[name] for name in names)
    return found[0] if len(found) == 1 else found
