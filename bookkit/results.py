"""Content-addressed results: what was computed before, from the same inputs, is read back."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from attnlib.data.assets import cache_folder
from attnlib.errors import AssetError, BadValue
from bookkit.claims import Finding

PUBLISHED = Path(__file__).parents[1] / "book" / "published" / "results"
VERSIONS = ("torch", "transformers", "numpy", "scipy", "scikit-learn", "spacy")

# What the first of these do is seen in the digests of the models and corpora they bring; the last
# two keep and judge numbers and make none.
_NO_KERNELS = frozenset(
    (
        *("errors", "progress", "archives", "sources", "shelf", "convert", "assetcache", "assets"),
        *("reader", "textfiles", "conllu", "wikitext", "segments", "annotated", "tasks"),
        *("catalogue", "corpora", "claims", "results"),
    )
)


@dataclass(frozen=True, eq=False)
class Found:
    """What an experiment found: a tidy table, the numbers that claims ask for, and plain facts.

    facts  sizes, counts and settings that a page may quote; anything JSON can hold
    """

    table: pd.DataFrame
    findings: Mapping[str, Finding] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def findings(values: Mapping[str, tuple[float, float, float]]) -> dict[str, Finding]:
    """Numbers with their intervals, as claims are judged by them."""
    return {name: Finding(*(float(end) for end in one)) for name, one in values.items()}


@dataclass(frozen=True, eq=False)
class Result:
    """Something found, and the record of the run that found it."""

    found: Found
    manifest: Mapping[str, Any]
    path: Path
    """The record; the table lies beside it under the same name."""


def remembered(
    experiment: str, inputs: Mapping[str, Any], code: str, compute: Callable[[], Found]
) -> Result:
    """The result of an experiment on these inputs: read if it is known, computed otherwise.

    inputs  what the result depends on besides the code: digests of data, parameters
    code    the digest of the kernels that compute it (see `code_digest`)
    """
    told = json.dumps([experiment, code, inputs], sort_keys=True)
    name = f"{experiment}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    kept = cache_folder() / "results"
    for folder in (kept, PUBLISHED):
        result = _read(folder / f"{name}.json")
        if result is not None:
            return result
    started = time.perf_counter()
    found = compute()
    manifest = {
        "name": name,
        "experiment": experiment,
        "inputs": dict(inputs),
        "code": code,
        "seconds": round(time.perf_counter() - started, 1),
        "peak_mib": peak_mib(),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }
    _write(found, manifest, kept / f"{name}.json")
    result = _read(kept / f"{name}.json")
    return result or Result(found, manifest, kept / f"{name}.json")


def publish(
    names: Iterable[str], folder: Path | None = None, *, papers: Collection[str] | None = None
) -> list[Path]:
    """Copy results, each a record and its table, to where they are committed; others go.

    papers  of these alone: results of other papers stay, whether they are named or not
    """
    folder = PUBLISHED if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [f"{name}{suffix}" for name in names for suffix in (".json", ".parquet")]
    for name in wanted:
        known = cache_folder() / "results" / name
        if known.is_file():
            (folder / name).write_bytes(known.read_bytes())
        elif not (folder / name).is_file():
            raise AssetError(f"the result {name} is neither kept nor published. Run it again.")
    for stale in folder.iterdir():
        of_these = papers is None or stale.name.partition("-")[0] in papers
        if stale.name not in wanted and of_these:
            stale.unlink()
    return [folder / name for name in wanted]


def code_digest(function: Callable[..., Any]) -> str:
    """A digest of a function of attnlib and of all it uses; comments and docstrings do not count.

    Within its own module only the definitions it reaches count, so that two experiments that
    stand in one file do not depend on each other.
    """
    home = function.__module__
    if _path(home) not in _SOURCES:
        raise BadValue(
            f"the experiment '{function.__name__}' stands in {function.__module__}; expected a "
            "function of a module of attnlib, so that its result can be kept by its code."
        )
    reached, modules = _reached(home, function.__qualname__)
    digest = hashlib.sha256("\0".join(reached).encode())
    for name in sorted(frozenset().union(*(_used_by(module) for module in modules)) - {home}):
        digest.update(f"{name}\0{_meaning(name)}\0".encode())
    return digest.hexdigest()[:16]


def table_digest(table: pd.DataFrame) -> str:
    """A digest of the values of a table."""
    rows = pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes()
    return hashlib.sha256(rows + repr(list(table.columns)).encode()).hexdigest()[:16]


def file_digest(folder: Path) -> str:
    """A digest of all files of a folder, such as a model's."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue  # notes on how it came here
        digest.update(f"{path.relative_to(folder)}\0".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """The versions a number may depend on in its last digits."""
    found = {"python": platform.python_version()}
    return found | {name: metadata.version(name) for name in VERSIONS}


def peak_mib() -> int:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))


def _reached(module: str, name: str) -> tuple[list[str], set[str]]:
    """The definitions of a module that one of them reaches, and the modules those import."""
    body = _tree(module).body
    defined: dict[str, ast.stmt] = {}
    imported: dict[str, str] = {}
    for node in body:
        for target in _names_defined(node):
            defined[target] = node
        imported |= _names_imported(node)
    waiting, seen, modules = [name], set[str](), set[str]()
    while waiting:
        one = waiting.pop()
        if one in seen or one not in defined:
            continue
        seen.add(one)
        names = {node.id for node in ast.walk(defined[one]) if isinstance(node, ast.Name)}
        waiting += names & set(defined)
        modules |= {imported[used] for used in names & set(imported)}
        modules |= set(_imports(defined[one]))
    return [ast.unparse(defined[one]) for one in sorted(seen)], modules


def _names_defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return []


def _names_imported(node: ast.AST) -> dict[str, str]:
    """Names that an import brings from attnlib, each with the module it comes from."""
    if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] not in _OURS:
        return {}
    within = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {
        alias.asname or alias.name: within[alias.name]
        if _path(within[alias.name]) in _SOURCES
        else str(node.module)
        for alias in node.names
    }


def _imports(tree: ast.AST) -> list[str]:
    return [name for node in ast.walk(tree) for name in _names_imported(node).values()]


@cache
def _used_by(module: str) -> frozenset[str]:
    """A module and, from it to the left, every kernel it imports."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen and name.split(".")[-1] not in _NO_KERNELS and _path(name) in _SOURCES:
            seen.add(name)
            waiting += _imports(_tree(name))
    return frozenset(seen)


def _path(module: str) -> Path:
    found = Path(__file__).parents[1].joinpath(*module.split("."))
    return found / "__init__.py" if found.is_dir() else found.with_suffix(".py")


# As they were when they were imported: a file that is edited during a long run is not its code.
_OURS = ("attnlib", "bookkit", "experiments")
_SOURCES = {
    path: path.read_text(encoding="utf-8")
    for package in _OURS
    for path in (Path(__file__).parents[1] / package).rglob("*.py")
}


@cache
def _tree(module: str) -> ast.Module:
    """The source of a module without its docstrings and comments."""
    tree = ast.parse(_SOURCES[_path(module)])
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


@cache
def _meaning(module: str) -> str:
    return ast.unparse(_tree(module))


def _write(found: Found, manifest: Mapping[str, Any], path: Path) -> None:
    """Table first, record last: a record is only there when its table is."""
    told = {
        **manifest,
        "table": _hash(found.table),
        "findings": {name: _plain(asdict(one)) for name, one in found.findings.items()},
        "facts": _plain(found.facts),
    }
    text = json.dumps(told, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    with suppress(OSError):  # a cache that cannot be written costs time, not the result
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        found.table.to_parquet(draft, index=False)
        draft.replace(path.with_suffix(".parquet"))
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)


def _read(path: Path) -> Result | None:
    """A result as it was written; None if it is not there, or damaged."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        table = pd.read_parquet(path.with_suffix(".parquet"))
        findings = {
            name: Finding(**{part: math.nan if v is None else v for part, v in one.items()})
            for name, one in told.pop("findings").items()
        }
        facts, whole = told.pop("facts"), told.pop("table")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if whole != _hash(table):
        return None
    return Result(Found(table, findings, facts), told, path)


def _hash(table: pd.DataFrame) -> str:
    return table_digest(table) if len(table.columns) else "empty"


def _plain(value: Any) -> Any:
    """As JSON can hold it: what is not finite is null."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
