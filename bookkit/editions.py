"""An edition is one yaml: which chapters, on which model and data, how large."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import platformdirs
import yaml

from bookkit.checking import check_keys
from bookkit.errors import BadValue, BookError, unknown
from bookkit.notebooks import notebook_parameters, validate
from bookkit.project import project_root
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
    models: dict[str, str]
    corpora: dict[str, str]
    assets: list[str]
    sizes: dict[str, int]
    seed: int
    chapters: tuple[Chapter, ...]


_TYPES = {
    one.name: str(one.type) for one in fields(Edition) if one.name not in ("name", "chapters")
}
_TYPES |= {"notebooks": "dict[str, dict]"}
_VARIANT_TYPES = {"parameters": "dict[str, Any]", "minutes": "float"}
_OPTIONAL = {"variants": "dict[str, dict]", "rehearsal": "dict[str, Any]"}


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
    except BookError:
        return {}
    return {name: list(load_edition(name).assets) for name in names}


def load_edition(edition: str | Path | Edition) -> Edition:
    """Read an edition by name or path; every key and type is checked, nothing is ignored."""
    if isinstance(edition, Edition):
        return edition
    path = Path(edition)
    if path.suffix not in (".yaml", ".yml"):
        path = project_root() / "editions" / f"{edition}.yaml"
    if not path.is_file():
        raise unknown("edition", str(edition), edition_names(), " does not exist")
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise BadValue(f"{path.name} is not yaml: {' '.join(str(error).split())}.") from None
    check_keys(given, _TYPES, path.name)
    notebooks = given.pop("notebooks").items()
    chapters = [one for name, told in notebooks for one in _chapters(name, told, path.name)]
    known = [name for one in chapters for name in notebook_parameters(notebook_path(one.notebook))]
    for size in given["sizes"]:  # else it would be ignored in silence
        if size not in known:
            raise unknown("size", size, dict.fromkeys(known), f" in {path.name} is no parameter")
    return Edition(name=path.stem, chapters=tuple(chapters), **given)


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


def _chapters(notebook: str, given: Mapping[str, Any], where: str) -> Iterator[Chapter]:
    """A chapter, then its variants: the same settings, but for those of their own."""
    where = f"{where}, notebooks: {notebook}"
    check_keys(given, _VARIANT_TYPES | _OPTIONAL, where, optional=_OPTIONAL)
    notebook_path(notebook)
    settings = given["parameters"]
    yield Chapter(notebook, settings, float(given["minutes"]), rehearsal=given.get("rehearsal"))
    for model, own in given.get("variants", {}).items():
        check_keys(own, _VARIANT_TYPES, f"{where}, variants: {model}")
        changed = {**settings, "model": model, **own["parameters"]}
        yield Chapter(notebook, changed, float(own["minutes"]), model)


def notebook_path(name: str) -> Path:
    """A chapter by its name, or any notebook by its path."""
    if name.endswith(".ipynb"):
        return Path(name)
    folder = project_root() / "notebooks"
    path = folder / f"{name}.ipynb"
    if not path.is_file():
        raise unknown("notebook", name, sorted(found.stem for found in folder.glob("*.ipynb")))
    return path


def settings_of(edition: str, notebook: Path) -> dict[str, Any]:
    """What an edition sets for a notebook; nothing for a notebook it does not have."""
    found = load_edition(edition)
    for chapter in found.chapters:
        if chapter.page == notebook.stem:
            return chapter_parameters(found, chapter)
    return {}
