"""An edition is one yaml: which chapters, on which model and data, how large."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs
import yaml

from attnlib.errors import AttnlibError, BadValue, UnknownName, did_you_mean
from bookkit.runs import fits, notebook_parameters, validate
from bookkit.store import Store


@dataclass(frozen=True)
class Chapter:
    """One notebook of an edition, with what is set for it alone.

    variant    the model of a second page of the same notebook; "" for the chapter itself
    rehearsal  other settings for a rehearsal: few inputs, of corpora that anyone has
    """

    notebook: str
    parameters: Mapping[str, Any]
    minutes: float
    variant: str = ""
    rehearsal: Mapping[str, Any] | None = None

    @property
    def page(self) -> str:
        """The name of its page, which no other chapter has."""
        return f"{self.notebook}-{self.variant}" if self.variant else self.notebook


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
_VARIANT_TYPES = MappingProxyType({"parameters": "dict[str, Any]", "minutes": "float"})
_OPTIONAL = MappingProxyType({"variants": "dict[str, dict]", "rehearsal": "dict[str, Any]"})
_CHAPTER_TYPES = MappingProxyType({**_VARIANT_TYPES, **_OPTIONAL})


def project_root() -> Path:
    """The checkout with the notebooks: around the working folder, or around this package."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[1]):
        if (folder / "editions").is_dir() and (folder / "_toc.yml").is_file():
            return folder
    raise AttnlibError(f"{here} is not inside the book. Run this in a checkout of the repository.")


def book_store() -> Store:
    """The store of this checkout: results of this machine first, then the published ones."""
    given = os.environ.get("ATTNLIB_CACHE", "").strip()
    cache = Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("attnlib"))
    return Store(cache.absolute() / "store", project_root() / "book" / "published" / "store")


def edition_names() -> list[str]:
    """The editions of this checkout."""
    return sorted(path.stem for path in (project_root() / "editions").glob("*.yaml"))


def asset_lists() -> dict[str, list[str]]:
    """What each edition needs, for `attnlib fetch EDITION`; nothing away from a checkout."""
    try:
        names = edition_names()
    except AttnlibError:
        return {}
    return {name: list(load_edition(name).assets) for name in names}


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
        chapters=tuple(
            chapter
            for notebook, told in chapters.items()
            for chapter in _chapters(notebook, told, path.name)
        ),
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


def _listed() -> str:
    return ", ".join(edition_names())


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType(value)
    return tuple(value) if isinstance(value, list) else value


def _check(
    given: Any, types: Mapping[str, str], where: str, optional: Collection[str] = ()
) -> None:
    """Refuse keys that are unknown, of another type or, unless they are optional, missing."""
    if not isinstance(given, dict):
        raise BadValue(f"{where} holds {type(given).__name__}, expected keys: {', '.join(types)}.")
    for key, value in given.items():
        if key not in types:
            hint = did_you_mean(str(key), types)
            raise UnknownName(f"key '{key}' in {where}. {hint}Known: {', '.join(types)}.")
        if not fits(value, types[key]):
            raise BadValue(f"'{key}' in {where} is {value!r}, expected {types[key]}.")
    missing = [key for key in types if key not in given and key not in optional]
    if missing:
        raise BadValue(f"{where} lacks '{missing[0]}' ({types[missing[0]]}). Add it.")


def _chapters(notebook: str, given: Mapping[str, Any], where: str) -> Iterator[Chapter]:
    """A chapter, then its variants: the same settings, but for those of their own."""
    where = f"{where}, notebooks: {notebook}"
    _check(given, _CHAPTER_TYPES, where, optional=_OPTIONAL)
    notebook_path(notebook)
    settings = MappingProxyType(given["parameters"])
    yield Chapter(notebook, settings, float(given["minutes"]), rehearsal=given.get("rehearsal"))
    for model, own in given.get("variants", {}).items():
        _check(own, _VARIANT_TYPES, f"{where}, variants: {model}")
        changed = MappingProxyType({**settings, "model": model, **own["parameters"]})
        yield Chapter(notebook, changed, float(own["minutes"]), model)


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
        if chapter.page == notebook.stem:
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
