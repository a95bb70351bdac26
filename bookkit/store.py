"""The store: what was found once is kept, and is found again by what it was made from.

A result has a key of four parts: the experiment's name, its version, its parameters, and digests of
the data it read (models, corpora, tables of other results, files of authors). Code is no part of
the key, so a renamed module or a new comment orphans nothing. The version is raised by hand when
numbers are meant to change, and `attnlib verify` finds a change that nobody meant.

    <paper>/<experiment>/v<version>-<digest>.parquet    the table
    <paper>/<experiment>/v<version>-<digest>.json       findings, facts, and the record of the run
    described/<name>-<digest>.json                      what is known of a model or corpus

The first folder of a store is written to; the others, such as the published results, are only read.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

import pandas as pd

from bookkit.claims import Finding
from bookkit.errors import BadValue, MissingResult

VERSIONS = ("torch", "transformers", "numpy", "scipy", "scikit-learn", "spacy")
"""Packages on which the last digits of a number may depend."""

T = TypeVar("T")
Experiment = Callable[..., "Found"]


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


@dataclass(frozen=True)
class Declared:
    """What `@experiment` says of a function.

    version  raised by hand when the numbers are meant to change
    reads    names of files and tables that the experiment opens itself, besides its inputs
    trains   whether it trains a model, or uses one that must be trained first
    """

    version: int = 1
    reads: tuple[str, ...] = ()
    trains: bool = False


def experiment(
    *, version: int = 1, reads: Sequence[str] = (), trains: bool = False
) -> Callable[[Experiment], Experiment]:
    """Declare a function whose results are kept (see `Declared`); it stays a plain function."""
    if version < 1:
        raise BadValue(f"an experiment has version {version}; expected 1 or more.")

    def declare(function: Experiment) -> Experiment:
        function.declared = Declared(version, tuple(reads), trains)  # type: ignore[attr-defined]
        return function

    return declare


def declared(function: Experiment) -> Declared:
    """What an experiment declares of itself."""
    found = getattr(function, "declared", None)
    if not isinstance(found, Declared):
        raise BadValue(
            f"'{function.__name__}' is not an experiment. Write `@experiment(version=1)` above it."
        )
    return found


@dataclass(frozen=True)
class Key:
    """What a result is found by.

    data  what was read, in order: each a description with a digest, which alone counts
    """

    experiment: str
    version: int
    parameters: Mapping[str, Any]
    data: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def name(self) -> str:
        """The place of the result in a store, without its suffix."""
        read = [str(one["digest"]) for one in self.data]
        digest = digest_of([self.experiment, self.version, self.parameters, read])
        return f"{self.experiment}/v{self.version}-{digest[:12]}"


@dataclass(frozen=True, eq=False)
class Result:
    """Something found, and the record of the run that found it."""

    found: Found
    record: Mapping[str, Any]
    path: Path
    """The record; the table is next to it under the same name."""

    @property
    def name(self) -> str:
        return str(self.record["name"])


class Source(Generic[T]):
    """Data that is described without being loaded: a model, a corpus, or something made of these.

    recipe    what decides the data, as plain values: a name, sizes, seeds, pinned hashes
    load      makes or reads the data
    describe  data -> plain values, a `digest` of the content among them
    """

    def __init__(
        self,
        store: Store,
        recipe: Mapping[str, Any],
        load: Callable[[], T],
        describe: Callable[[T], Mapping[str, Any]],
    ) -> None:
        self.store, self.recipe = store, plain(recipe)
        self._load, self._describe = load, describe

    @cached_property
    def value(self) -> T:
        """The data itself, loaded now. What is known of it is put right if it has changed."""
        loaded = self._load()
        true = plain(self._describe(loaded))
        if true != self.__dict__.get("description", self.store.description(self.recipe)):
            self.store.describe(self.recipe, true)
        self.__dict__["description"] = true
        return loaded

    @cached_property
    def description(self) -> Mapping[str, Any]:
        """What is known of the data, from the store if it was ever loaded."""
        known = self.store.description(self.recipe)
        if known is None:
            _ = self.value
            return self.__dict__["description"]  # type: ignore[no-any-return]
        return known

    def __getattr__(self, name: str) -> Any:
        """`source.examples` is a part of its description."""
        if name.startswith("_") or name not in self.description:
            raise AttributeError(f"{type(self).__name__} has no '{name}'; load its `value` first")
        return self.description[name]

    def __len__(self) -> int:
        return int(self.description["examples"])


class Store:
    """Folders of results; see the head of this module."""

    def __init__(self, kept: Path, *published: Path) -> None:
        self.folders = (kept, *published)

    # --- results ----------------------------------------------------------------------------------

    def find(self, name: str) -> Result | None:
        """A result by the name of its key; None where it is missing or damaged."""
        found = (_read(folder / f"{name}.json") for folder in self.folders)
        return next((one for one in found if one is not None), None)

    def remembered(
        self, key: Key, compute: Callable[[], Found], about: Callable[[], Mapping[str, Any]] = dict
    ) -> Result:
        """The result of this key: read if it is known, computed and kept otherwise.

        about  what else the record says, such as the digest of the code
        """
        if known := self.find(key.name):
            return known
        started, clock = datetime.now(UTC), time.perf_counter()
        found = compute()
        torch = sys.modules.get("torch")  # its threads count where it is loaded
        record = {
            **{"name": key.name, "experiment": key.experiment, "version": key.version},
            **{"parameters": plain(key.parameters), "data": plain(key.data)},
            **{"started": started.isoformat(timespec="seconds"), "commit": commit()},
            **{"seconds": round(time.perf_counter() - clock, 1), "peak_mib": peak_mib()},
            **{"threads": torch.get_num_threads() if torch else os.cpu_count() or 1, **about()},
            **{"versions": versions(), "table": table_digest(found.table)},
        }
        path = self.folders[0] / f"{key.name}.json"
        _write(path, found, record)
        return _read(path) or Result(found, record, path)

    def publish(self, names: Iterable[str], folder: Path, *, papers: Iterable[str] | None) -> int:
        """Copy results, and what is known of their data, to a folder that is committed; others go.

        papers  of these alone: results of other papers stay, whether they are named or not
        """
        wanted = {f"{name}{suffix}" for name in names for suffix in (".json", ".parquet")}
        for name in sorted(wanted):
            at = next((one / name for one in self.folders if (one / name).is_file()), None)
            if at is None:
                raise MissingResult(f"the result {name} is neither kept nor published. Run it.")
            if at != folder / name:
                write_whole(folder / name, at.read_bytes())
        for stale in sorted(folder.glob("*/*/*")):
            name = str(stale.relative_to(folder))
            if name not in wanted and (papers is None or name.partition("/")[0] in papers):
                stale.unlink()
        records = (json.loads(path.read_text("utf-8")) for path in folder.glob("*/*/*.json"))
        read = {one["digest"] for record in records for one in record.get("data", ())}
        for at in (self.folders[0] / "described").glob("*.json"):
            if json.loads(at.read_text("utf-8"))["description"]["digest"] in read:
                write_whole(folder / "described" / at.name, at.read_bytes())
        return len(wanted) // 2

    # --- what is known of data --------------------------------------------------------------------

    def description(self, recipe: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What was found out about data of this recipe, or None."""
        for folder in self.folders:
            with suppress(OSError, ValueError, KeyError, TypeError):
                told = json.loads(self._described(folder, recipe).read_text(encoding="utf-8"))
                return dict(told["description"])
        return None

    def describe(self, recipe: Mapping[str, Any], description: Mapping[str, Any]) -> None:
        """Keep what was found out about data, so that nobody has to load it for that."""
        told = {"recipe": recipe, "description": description}
        with suppress(OSError):  # a store that cannot be written costs time, not the result
            write_whole(self._described(self.folders[0], recipe), _json(told).encode())

    @staticmethod
    def _described(folder: Path, recipe: Mapping[str, Any]) -> Path:
        name = re.sub(r"[^\w.-]+", "-", str(next(iter(recipe.values()))))[-40:]
        return folder / "described" / f"{name}-{digest_of(recipe)[:12]}.json"


# --- digests --------------------------------------------------------------------------------------


def digest_of(value: Any) -> str:
    """The sha256 of plain values, written as JSON in one canonical way."""
    told = json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(told.encode()).hexdigest()


def table_digest(table: pd.DataFrame) -> str:
    """A digest of the values of a table."""
    if not len(table.columns):
        return "empty"
    rows = pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes()
    return hashlib.sha256(rows + repr(list(table.columns)).encode()).hexdigest()[:16]


def code_digest(home: str) -> str:
    """A digest of the code behind an experiment: its module, and all of ours that it imports.

    It is kept in the record of a result, for audit; docstrings, comments and the names of modules
    do not count.
    """
    texts = {_code(module, imports=False) or "" for module in _imported(home)}
    return digest_of(sorted(texts))[:16]


@cache
def _imported(home: str) -> frozenset[str]:
    """A module and, transitively, what it imports from packages that are part of this checkout."""
    seen: set[str] = set()
    waiting = [home]
    while waiting:
        name = waiting.pop()
        if name in seen or _code(name) is None:
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(_code(name) or "")):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                waiting += [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
            elif isinstance(node, ast.Import):
                waiting += [one.name for one in node.names]
    return frozenset(seen)


@cache
def _code(module: str, *, imports: bool = True) -> str | None:
    """The code of a module without docstrings and comments; None for a module of others."""
    path = Path(__file__).parents[1].joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.is_file():
        return None
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    if not imports:
        tree.body = [one for one in tree.body if not isinstance(one, ast.Import | ast.ImportFrom)]
    return ast.unparse(tree)


# --- the record of a run --------------------------------------------------------------------------


def versions(packages: Iterable[str] = VERSIONS) -> dict[str, str]:
    """The versions of Python and of those packages that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@cache
def commit() -> str:
    """The commit of the checkout, with a plus where files differ from it; empty outside of git."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--short") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def peak_mib() -> int:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))


# --- files ----------------------------------------------------------------------------------------


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A file to write in the place of another: it gets the name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".draft-")
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file in one step, so that nobody ever reads half of it."""
    with draft_of(path) as draft:
        draft.write_bytes(content)
    return path


def _write(path: Path, found: Found, record: Mapping[str, Any]) -> None:
    """Table first, record last: a record is only there when its table is."""
    told = {
        **record,
        "findings": {name: plain(asdict(one)) for name, one in found.findings.items()},
        "facts": plain(found.facts),
    }
    with suppress(OSError):  # a store that cannot be written costs time, not the result
        with draft_of(path.with_suffix(".parquet")) as draft:
            found.table.to_parquet(draft, index=False)
        write_whole(path, _json(told).encode())


def _read(path: Path) -> Result | None:
    """A result as it was written; None if it is not there, or damaged."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        table = pd.read_parquet(path.with_suffix(".parquet"))
        numbers = {
            name: Finding(**{part: math.nan if v is None else v for part, v in one.items()})
            for name, one in told.pop("findings").items()
        }
        facts = told.pop("facts")
        whole = told["table"] == table_digest(table)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Result(Found(table, numbers, facts), told, path) if whole else None


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def plain(value: Any) -> Any:
    """As JSON can hold it: what is not finite is null, and a path is its text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "item") and not isinstance(value, str):  # a number of numpy
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
