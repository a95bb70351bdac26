"""What is behind an edition, and whether today's code still finds the numbers that were kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bookkit.claims import RUNS
from bookkit.editions import Edition, chapter_parameters, notebook_path
from bookkit.errors import BookError, unknown
from bookkit.executed import (
    carried,
    code_of,
    executed_notebooks,
    notebook_of,
    results_behind,
)
from bookkit.notebooks import environment, run_notebook
from bookkit.project import project_root
from bookkit.store import Experiment, Found, Result, Store, code_digest, declared

SECONDS = "ATTNLIB_VERIFY"
"""The environment variable that asks a chapter to verify, and how long a result may take."""

TOLERANCE = 1e-4
"""How far a number may be from the kept one, as a share of the largest of its column."""


class OtherNumbers(BookError):
    """An experiment whose numbers are no longer those that were kept for its version."""


def not_verified(result: Result, experiment: Experiment, seconds: float) -> str:
    """Why a kept result is not computed again within so many seconds; empty if it is."""
    if declared(experiment).trains:
        return "train a model"
    if result.record.get("older_code"):
        return "are by older code"
    took = float(result.record["seconds"])
    return f"take longer than {seconds:g} s" if took > seconds else ""


def verified(result: Result, again: Found | None, why_not: str = "") -> Result:
    """The result, marked as verified, or with the reason why it is not.

    Numbers that are not those that were kept are refused.
    """
    wrong = again and difference(result.found, again)
    if wrong:
        raise OtherNumbers(
            f"{result.name}: {wrong}. If the numbers were meant to change, raise the version "
            f"of the experiment, now {result.record['version']}; else find the mistake."
        )
    return replace(result, record={**result.record, "verified": why_not or True})


def difference(kept: Found, again: Found) -> str:
    """The first difference between two findings in words, or an empty string."""
    if list(kept.table.columns) != list(again.table.columns):
        return f"its columns are {list(again.table.columns)}, kept were {list(kept.table.columns)}"
    if len(kept.table) != len(again.table):
        return f"it has {len(again.table)} rows, kept were {len(kept.table)}"
    for name in kept.table.columns:
        if not _same(kept.table[name], again.table[name]):
            return f"its column '{name}' has other values than were kept"
    for name in sorted(set(kept.findings) | set(again.findings)):
        one, other = kept.findings.get(name), again.findings.get(name)
        if one is None or other is None:
            return f"the finding '{name}' is new, or gone"
        for part in ("value", "low", "high"):
            a, b = getattr(one, part), getattr(other, part)
            if not np.isclose(b, a, rtol=TOLERANCE, atol=TOLERANCE * 1e-2, equal_nan=True):
                return f"the {part} of the finding '{name}' is {b:.6g}, kept was {a:.6g}"
    return ""


def _same(kept: pd.Series, again: pd.Series) -> bool:
    """Whether two columns hold the same: numbers nearly, all else exactly."""
    if not (pd.api.types.is_float_dtype(kept) and pd.api.types.is_numeric_dtype(again)):
        return [str(one) for one in kept] == [str(one) for one in again]
    one, other = kept.to_numpy(float), again.to_numpy(float)
    finite = np.abs(one[np.isfinite(one)])
    scale = float(finite.max()) if len(finite) else 0.0
    return bool(np.allclose(one, other, rtol=0, atol=TOLERANCE * scale, equal_nan=True))


# --- commands -------------------------------------------------------------------------------------


def verify(edition: Edition, *, only: str | None, seconds: float) -> int:
    """Run the chapters of an edition from the store, and compute its cheap results again.

    Numbers that differ from the kept ones by more than `TOLERANCE` stop it with an error.
    """
    pages = {name for chapter in edition.chapters for name in (chapter.page, chapter.notebook)}
    if only is not None and only not in pages:
        raise unknown("chapter", only, sorted(pages), f" of {edition.name}")
    root = project_root()
    total, folder = 0, root / "_build" / "verify"
    ran = {path.stem: path for path in executed_notebooks(root, edition.name, all=True)}
    with environment(**{SECONDS: str(seconds)}):
        for chapter in edition.chapters:
            if only not in (None, chapter.page, chapter.notebook):
                continue
            out = folder / f"{chapter.page}.ipynb"
            source, known = notebook_path(chapter.notebook), ran.get(chapter.page)
            if known and code_of(notebook_of(known)) != code_of(notebook_of(source)):
                print(f"{chapter.page}: its code has changed since it was run; run it again first")
                continue
            run_notebook(source, chapter_parameters(edition, chapter), out)
            runs = carried(out, RUNS)
            why = Counter(run.get("verified", "were computed now") for run in runs)
            again = why.pop(True, 0)
            left = "".join(f"; {n} {reason}" for reason, n in why.items())
            same = ", all as kept" if again else ""
            print(f"{chapter.page}: {again} of {len(runs)} results computed again{same}{left}")
            total += again
    return total


def status(root: Path, edition: Edition, store: Store) -> list[dict[str, Any]]:
    """What is behind the chapters of an edition: a row per result, and one per unrun chapter.

    state  kept; missing (not in the store); older version or older code (computed by code whose
           numbers may differ); not run (the chapter)
    code   "as then" or "changed since": whether the text of the code is that of the run
    """
    declared_here = declared_versions(root)
    executed = {path.stem: path for path in executed_notebooks(root, edition.name, all=True)}
    rows = []
    for chapter in edition.chapters:
        if chapter.page not in executed:
            rows.append({"chapter": chapter.page, "result": "", "state": "not run"})
            continue
        for name in results_behind(executed[chapter.page]):
            found = store.find(name)
            row: dict[str, Any] = {"chapter": chapter.page, "result": name, "state": "missing"}
            if found is not None:
                version, code = declared_now(name, declared_here)
                old = "older version" if found.record["version"] < version else "kept"
                row["state"] = "older code" if found.record.get("older_code") else old
                same = found.record.get("code") == code
                row |= {"code": "as then" if same else "changed since"}
                row |= {part: found.record.get(part) for part in ("commit", "started", "seconds")}
            rows.append(row)
    return rows


def changed_since(root: Path, executed: Mapping[str, Path]) -> dict[str, tuple[int, int]]:
    """Of the results that each executed chapter shows: how many are by other code than today's,
    and how many there are."""
    today, found = declared_versions(root), {}
    for page, path in executed.items():
        runs = carried(path, RUNS)
        changed = sum(run.get("code") != declared_now(run["name"], today)[1] for run in runs)
        found[page] = (changed, len(runs))
    return found


def declared_now(result: str, today: dict[str, tuple[int, str]]) -> tuple[int, str]:
    """The version and code of a result's experiment today; version 0 if no module declares it.

    A chapter may borrow an experiment of another paper by its name.
    """
    paper, name, _ = result.split("/")
    return today.get(f"{paper}/{name}") or today.get(name, (0, ""))


def declared_versions(root: Path) -> dict[str, tuple[int, str]]:
    """Every declared experiment: its version, and the digest of its code today.

    By the folder of its paper and its name, and by the name alone: a chapter may borrow it.
    """
    found: dict[str, tuple[int, str]] = {}
    for path in sorted((root / "experiments").rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        for given, name in re.findall(r"^@experiment\((.*?)\)\ndef (\w+)", text, re.M | re.S):
            version = re.search(r"version=(\d+)", given)
            declares = (int(version[1]) if version else 1, code_digest(module))
            found[f"{path.parent.name}/{name}"] = declares
            found.setdefault(name, declares)
    return found
