"""An edition is one yaml: which chapters, on which model and data, how large; and its book."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from attnlib import ledger, pages
from attnlib.errors import AttnlibError, BadValue, UnknownName, did_you_mean
from attnlib.runs import (
    Parameter,
    fits,
    notebook_parameters,
    read_parameters,
    run_notebook,
    validate,
    versions,
)
from attnlib.site import build_site
from attnlib.vendor import vendor

__all__ = [
    "Chapter",
    "Edition",
    "Parameter",
    "build_book",
    "chapter_parameters",
    "edition_names",
    "load_edition",
    "notebook_parameters",
    "notebook_path",
    "project_root",
    "publish",
    "read_parameters",
    "run_notebook",
    "settings_of",
    "validate",
]

Say = Callable[[str], None]

# No chapter imports these (they stand to the right of all it may use), so a change in them
# changes no result.
_BUILDERS = frozenset(
    {
        *("cli.py", "editions.py", "ledger.py", "pages.py", "site.py", "vendor.py"),
        *("answerseals.py", "exercises.py", "exercises.toml", "plainmyst.py", "students.py"),
        *("slidepage.py", "slidesource.py", "slides.py", "teaching.py"),
    }
)
_LARGEST_PUBLISHED = 3_000_000
_KEPT_RUNS = 8  # of each notebook, so that going back to earlier parameters costs nothing


@dataclass(frozen=True)
class Chapter:
    """One notebook of an edition, with what is set for it alone."""

    notebook: str
    parameters: Mapping[str, Any]
    minutes: float


@dataclass(frozen=True)
class Edition:
    """Everything that makes one edition of the book differ from another."""

    name: str
    title: str
    summary: str
    models: Mapping[str, str]
    corpora: Mapping[str, str]
    assets: tuple[str, ...]
    sizes: Mapping[str, int]
    seed: int
    chapters: tuple[Chapter, ...]

    @property
    def minutes(self) -> float:
        """How long all chapters are expected to take on two cores, the first time."""
        return sum(chapter.minutes for chapter in self.chapters)


_TYPES: Mapping[str, str] = MappingProxyType(
    {
        **{"title": "str", "summary": "str", "models": "dict[str, str]", "seed": "int"},
        **{"corpora": "dict[str, str]", "assets": "list[str]", "sizes": "dict[str, int]"},
        "notebooks": "dict[str, dict]",
    }
)
_CHAPTER_TYPES = MappingProxyType({"parameters": "dict[str, Any]", "minutes": "float"})


def project_root() -> Path:
    """The checkout with the notebooks: around the working folder, or around this package."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[1]):
        if (folder / "editions").is_dir() and (folder / "_toc.yml").is_file():
            return folder
    raise AttnlibError(f"{here} is not inside the book. Run this in a checkout of the repository.")


def edition_names() -> list[str]:
    """The editions of this checkout."""
    return sorted(path.stem for path in (project_root() / "editions").glob("*.yaml"))


def load_edition(name_or_path: str | Path) -> Edition:
    """Read an edition by name or path; every key and type is checked, nothing is ignored."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        name = str(name_or_path)
        if name not in edition_names():
            hint = did_you_mean(name, edition_names())
            raise UnknownName(f"edition '{name}'. {hint}Known: {', '.join(edition_names())}.")
        path = project_root() / "editions" / f"{name}.yaml"
    if not path.is_file():
        raise UnknownName(f"edition file '{path}' does not exist. Known: {_listed()}.")
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise BadValue(f"{path.name} is not yaml: {' '.join(str(error).split())}.") from None
    _check(given, _TYPES, path.name)
    chapters = given.pop("notebooks")
    edition = Edition(
        name=path.stem,
        chapters=tuple(_chapter(key, value, path.name) for key, value in chapters.items()),
        **{key: _frozen(value) for key, value in given.items()},
    )
    _check_sizes_are_used(edition)
    return edition


def chapter_parameters(edition: Edition, chapter: Chapter) -> dict[str, Any]:
    """What a chapter is run with: the edition's model, sizes and seed, then its own settings.

    A parameter `corpus`, or one that ends in `_corpus`, may hold a name from `corpora`.
    """
    path = notebook_path(chapter.notebook)
    known = notebook_parameters(path)
    shared: dict[str, Any] = {**edition.sizes, "seed": edition.seed}
    shared |= {"model" if role == "main" else role: m for role, m in edition.models.items()}
    merged = {key: value for key, value in shared.items() if key in known}
    merged |= chapter.parameters
    for key, value in merged.items():
        if (key == "corpus" or key.endswith("_corpus")) and isinstance(value, str):
            merged[key] = edition.corpora.get(value, value)
    return validate(path, merged)


def build_book(
    edition: str | Path | Edition,
    *,
    only: str | Iterable[str] | None = None,
    html: bool = True,
    say: Say = print,
) -> Path:
    """Run the chapters of an edition and build its pages; the path of the front page comes last.

    only  run these chapters alone; the others are shown if an earlier run of them still holds
    html  False: stop at the executed notebooks and return their folder
    """
    if not isinstance(edition, Edition):
        edition = load_edition(edition)
    root = project_root()
    folder = root / "_build" / edition.name
    wanted = _wanted(edition, only)
    plans = {chapter.notebook: chapter_parameters(edition, chapter) for chapter in edition.chapters}
    executed = {}
    for number, chapter in enumerate(edition.chapters, start=1):
        count = f"[{number}/{len(edition.chapters)}] {chapter.notebook}"
        allowed = chapter.notebook in wanted
        found = _executed(edition, chapter, plans[chapter.notebook], root, allowed, count, say)
        if found is not None:
            executed[chapter.notebook] = found
    notebooks = folder / "notebooks"
    _sync({f"{name}.ipynb": path for name, path in executed.items()}, notebooks)
    result = notebooks
    if html:
        result = _pages(edition, executed, root, folder, say)
    say(str(result.relative_to(Path.cwd()) if result.is_relative_to(Path.cwd()) else result))
    return result


def publish(edition: str | Path | Edition, *, only: str | None = None, say: Say = print) -> Path:
    """Copy the executed chapters of an edition, and the results behind them, to book/published/.

    The folder then holds exactly these: it is committed, and the published book is built from it.
    With `only`, the other chapters stay as they were published before.
    """
    from attnlib import results  # it brings torch, which no other command of an edition needs

    if not isinstance(edition, Edition):
        edition = load_edition(edition)
    if edition.name != "standard":
        raise BadValue(f"edition '{edition.name}' is not published; expected standard.")
    root = project_root()
    executed = root / "_build" / edition.name / "notebooks"
    published = root / "book" / "published"
    data = {}
    wanted = _wanted(edition, only)
    for chapter in edition.chapters:
        folder = executed if chapter.notebook in wanted else published
        path = folder / f"{chapter.notebook}.ipynb"
        if not path.is_file():
            raise UnknownName(
                f"chapter '{chapter.notebook}' of {edition.name} was not run here. "
                f"Run `attnlib book {edition.name}` first."
            )
        data[path.name] = path.read_bytes()
        if len(data[path.name]) > _LARGEST_PUBLISHED:
            size = len(data[path.name])
            raise BadValue(f"{path.name} has {size:,} bytes; expected 3 MB at most.")
    published.mkdir(parents=True, exist_ok=True)
    for stale in published.glob("*.ipynb"):
        if stale.name not in data:
            stale.unlink()
    for name, content in data.items():
        (published / name).write_bytes(content)
    paths = [published / name for name in data]
    copied = results.publish(name for path in paths for name in ledger.results_behind(path))
    say(f"{len(paths)} chapters and {len(copied) // 2} results in {published.relative_to(root)}")
    return published


def _listed() -> str:
    return ", ".join(edition_names())


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType(value)
    return tuple(value) if isinstance(value, list) else value


def _check(given: Any, types: Mapping[str, str], where: str) -> None:
    """Refuse keys that are unknown, missing or of another type."""
    if not isinstance(given, dict):
        raise BadValue(f"{where} holds {type(given).__name__}, expected keys: {', '.join(types)}.")
    for key, value in given.items():
        if key not in types:
            hint = did_you_mean(str(key), types)
            raise UnknownName(f"key '{key}' in {where}. {hint}Known: {', '.join(types)}.")
        if not fits(value, types[key]):
            raise BadValue(f"'{key}' in {where} is {value!r}, expected {types[key]}.")
    missing = [key for key in types if key not in given]
    if missing:
        raise BadValue(f"{where} lacks '{missing[0]}' ({types[missing[0]]}). Add it.")


def _chapter(notebook: str, given: Mapping[str, Any], where: str) -> Chapter:
    _check(given, _CHAPTER_TYPES, f"{where}, notebooks: {notebook}")
    notebook_path(notebook)
    return Chapter(notebook, MappingProxyType(given["parameters"]), float(given["minutes"]))


def notebook_path(name: str) -> Path:
    """A chapter by its name, or any notebook by its path."""
    if name.endswith(".ipynb"):
        return Path(name)
    folder = project_root() / "notebooks"
    path = folder / f"{name}.ipynb"
    if not path.is_file():
        known = sorted(found.stem for found in folder.glob("*.ipynb"))
        raise UnknownName(f"notebook '{name}'. {did_you_mean(name, known)}Known: {known}.")
    return path


def settings_of(edition: str, notebook: Path) -> dict[str, Any]:
    """What an edition sets for a notebook; nothing for a notebook it does not have."""
    found = load_edition(edition)
    for chapter in found.chapters:
        if chapter.notebook == notebook.stem:
            return chapter_parameters(found, chapter)
    return {}


def _check_sizes_are_used(edition: Edition) -> None:
    """A size that no notebook takes is a slip of the pen: it would be ignored in silence."""
    paths = [notebook_path(chapter.notebook) for chapter in edition.chapters]
    known = {name for path in paths for name in notebook_parameters(path)}
    for size in edition.sizes:
        if size not in known:
            hint = did_you_mean(size, known)
            raise UnknownName(
                f"size '{size}' in {edition.name}.yaml is no parameter. {hint}".strip()
            )


def _wanted(edition: Edition, only: str | Iterable[str] | None) -> set[str]:
    known = [chapter.notebook for chapter in edition.chapters]
    chosen = known if only is None else [only] if isinstance(only, str) else list(only)
    for name in chosen:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UnknownName(f"chapter '{name}' of {edition.name}. {hint}It has: {known}.")
    return set(chosen)


def _executed(
    edition: Edition,
    chapter: Chapter,
    parameters: Mapping[str, Any],
    root: Path,
    allowed: bool,
    count: str,
    say: Say,
) -> Path | None:
    """The executed chapter: from an earlier run of the same content, or by running it now."""
    source = notebook_path(chapter.notebook)
    key = _content_key(source, parameters, root)
    kept = root / "_build" / "cache" / "executed" / f"{chapter.notebook}-{key[:16]}.ipynb"
    if _is_whole(kept):
        say(f"{count}: nothing changed, reused")
        return kept
    if not allowed:
        say(f"{count}: left out")
        return None
    say(f"{count}: running (about {chapter.minutes:g} min on 2 cores)")
    began = time.perf_counter()
    out = run_notebook(
        source, parameters, root / "_build" / edition.name / "runs" / source.name, key=key
    )
    kept.parent.mkdir(parents=True, exist_ok=True)
    draft = kept.with_suffix(f".{os.getpid()}")
    shutil.copy2(out, draft)
    os.replace(draft, kept)
    earlier = sorted(kept.parent.glob(f"{chapter.notebook}-*"), key=lambda f: f.stat().st_mtime)
    for stale in earlier[:-_KEPT_RUNS]:
        stale.unlink(missing_ok=True)
    say(f"{count}: done in {time.perf_counter() - began:.0f} s")
    return kept


def _content_key(source: Path, parameters: Mapping[str, Any], root: Path) -> str:
    """A digest of everything an executed notebook depends on."""
    cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
    told = [(c["cell_type"], "".join(c["source"]), c["metadata"].get("tags", [])) for c in cells]
    digest = hashlib.sha256(json.dumps([told, dict(parameters)], sort_keys=True).encode())
    digest.update(json.dumps(versions(), sort_keys=True).encode())
    package = Path(__file__).parent
    files = [*package.rglob("*.py"), *package.rglob("*.toml"), *package.rglob("*.txt")]
    files = [file for file in files if file.name not in _BUILDERS]
    files += (root / "papers").glob("*.yaml")  # what the chapters are judged by
    given = [one for v in parameters.values() for one in (v if isinstance(v, list) else [v])]
    for value in given:
        own = Path(value).expanduser() if isinstance(value, str) else None
        if own is not None and own.exists():  # a model or texts of the user's own
            files += [own] if own.is_file() else [f for f in own.rglob("*") if f.is_file()]
    for file in [*sorted(files), root / "constraints.txt"]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _is_whole(kept: Path) -> bool:
    """Whether an executed notebook lies there, complete."""
    try:
        return bool(json.loads(kept.read_text(encoding="utf-8"))["cells"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _pages(
    edition: Edition, executed: Mapping[str, Path], root: Path, folder: Path, say: Say
) -> Path:
    """Lay out the sources of the book, and build them unless the very same were built before."""
    source, html = folder / "source", folder / "html"
    files: dict[str, Path | str] = {
        str(path.relative_to(root)): path
        for path in sorted((root / "book").rglob("*"))
        if path.is_file() and not {".ipynb_checkpoints", "published"} & set(path.parts)
    }
    files |= {f"notebooks/{name}.ipynb": path for name, path in executed.items()}
    files |= pages.generated()
    scripts = folder.parent / "cache" / "vendored"
    have_scripts = scripts.is_dir() or _vendored(scripts, folder.parent / "cache" / "npm", say)
    if have_scripts:
        found = sorted(path for path in scripts.rglob("*") if path.is_file())
        files |= {f"_extra/vendored/{path.relative_to(scripts)}": path for path in found}
    else:
        files["_extra/vendored/README"] = (
            "Built without npm: no scripts for formulas and widgets.\n"
        )
    files["_toc.yml"] = _contents(root, executed)
    files["_config.yml"] = _config(root, edition, have_scripts)
    _sync(files, source)
    key = _folder_key(source)
    stamp = folder / "html.key"
    if (html / "index.html").is_file() and stamp.is_file() and stamp.read_text() == key:
        say("pages: nothing changed, reused")
        return html / "index.html"
    say("pages: building")
    began = time.perf_counter()
    stamp.unlink(missing_ok=True)
    complete = len(executed) == len(edition.chapters)
    index = build_site(source, folder / "work", html, strict=complete)
    stamp.write_text(key)
    say(f"pages: done in {time.perf_counter() - began:.0f} s")
    return index


def _vendored(scripts: Path, cache: Path, say: Say) -> bool:
    """Fetch the scripts into a folder that appears only when it is complete."""
    partial = scripts.with_name(f".vendored.{os.getpid()}")
    try:
        if not vendor(partial, cache):
            say("pages: no npm or no network, so formulas stay as TeX and widgets do not show")
            return False
        partial.rename(scripts)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def _contents(root: Path, executed: Mapping[str, Path]) -> str:
    """The table of contents, without chapters that were neither run nor kept."""

    def kept(entry: Any) -> Any:
        if isinstance(entry, list):
            return [kept(item) for item in entry if _is_here(item, executed)]
        if isinstance(entry, dict):
            return {key: kept(value) for key, value in entry.items()}
        return entry

    contents = kept(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")))
    if "parts" in contents:
        contents["parts"] = [part for part in contents["parts"] if part.get("chapters")]
    return yaml.safe_dump(contents, sort_keys=False)


def _is_here(entry: Any, executed: Mapping[str, Path]) -> bool:
    file = entry.get("file", "") if isinstance(entry, dict) else ""
    return not file.startswith("notebooks/") or Path(file).stem in executed


def _config(root: Path, edition: Edition, have_scripts: bool) -> str:
    """The book's settings, with the edition's name for the pages and only the scripts we have."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    words = {"edition": edition.name, "edition_title": edition.title, "summary": edition.summary}
    words["model"] = edition.models.get("main", "")
    words |= pages.numbers()
    config.setdefault("parse", {})["myst_substitutions"] = words
    if not have_scripts:
        config["sphinx"]["config"]["nb_ipywidgets_js"] = {}
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


def _sync(files: Mapping[str, Path | str], folder: Path) -> None:
    """Make a folder hold exactly these files; one that is the same already keeps its time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content.read_bytes()
        target = folder / name
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()


def _folder_key(folder: Path) -> str:
    digest = hashlib.sha256(Path(__file__).with_name("site.py").read_bytes())
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
