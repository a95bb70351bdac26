"""What executed notebooks carry for programs: metadata of their outputs, never their text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bookkit.claims import RUNS


def executed_notebooks(root: Path, edition: str, *, all: bool = False) -> list[Path]:
    """The executed chapters of an edition: as built here, or else as published.

    all  also pages such as clark2019-minilm-l6, variants whose claims are those of clark2019
    """
    folders = (root / "_build" / edition / "notebooks", root / "book" / "published")
    built, published = (
        {path.name: path for path in folder.glob("*.ipynb") if all or "-" not in path.stem}
        for folder in folders
    )
    found = {**published, **built} if edition == "standard" else built
    return [found[name] for name in sorted(found)]


def notebook_of(path: Path) -> dict[str, Any]:
    """A notebook as it is in its file."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def code_of(book: Mapping[str, Any]) -> list[str | list[str]]:
    """The code of a notebook, cell by cell; of the parameters only their names: values may differ.

    An executed notebook of other code shows what is no longer there: it is to be run again.
    """
    cells = (cell for cell in book["cells"] if cell["cell_type"] == "code")
    texts = ((cell["metadata"].get("tags", []), "".join(cell["source"])) for cell in cells)
    names = re.compile(r"^(\w+)\s*(?::[^=\n]+)?=", re.M)
    return [names.findall(text) if "parameters" in tags else text for tags, text in texts]


def outputs_of(path: Path) -> list[dict[str, Any]]:
    """The outputs of all cells of an executed notebook."""
    return [output for cell in notebook_of(path)["cells"] for output in cell.get("outputs", [])]


def carried(path: Path, name: str) -> list[Any]:
    """What the outputs of an executed notebook carry under a name."""
    told = (output.get("metadata", {}) for output in outputs_of(path))
    return [row for one in told for row in one.get(name, [])]


def results_behind(path: Path) -> list[str]:
    """The names of the results that an executed notebook shows, each once."""
    return list(dict.fromkeys(run["name"] for run in carried(path, RUNS)))
