"""The book that the kit works on: where it lies, and what it adds to the kit.

A book is a folder with `editions/`, `papers/`, `notebooks/`, `book/`, `_toc.yml` and `_config.yml`.
What only this book can write, it names in `_config.yml`, each as `module:function`:

    bookkit:
      pages: experiments.pages:generated
      numbers: experiments.pages:numbers
      publish: experiments.atlas:publish
      rehearse: experiments.shared.rehearsal:rehearse

    pages     (root, edition, executed chapters by name) -> sources of pages by their place
    numbers   () -> whole numbers by the names under which prose quotes them, {{ name }}
    publish   (executed notebooks, folder of the published edition): writes further files there
    rehearse  (edition): runs the edition on few inputs and stand-ins for its models

Each may be missing; then the kit does without it.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from bookkit.errors import BadValue, BookError, unknown

HOOKS = ("pages", "numbers", "publish", "rehearse")


def project_root() -> Path:
    """The checkout with the notebooks: around the working folder, or around this package."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[1]):
        if (folder / "editions").is_dir() and (folder / "_toc.yml").is_file():
            return folder
    raise BookError(f"{here} is not inside the book. Run this in a checkout of the repository.")


def hook(name: str) -> Callable[..., Any] | None:
    """What the book adds under this name; None if it adds nothing."""
    root = project_root()
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    named = settings.get("bookkit", {})
    for key in named:
        if key not in HOOKS:
            raise unknown("key", key, HOOKS, " in _config.yml, bookkit")
    if name not in named:
        return None
    if str(root) not in sys.path:
        sys.path.append(str(root))
    try:
        found: Callable[..., Any] = pkgutil.resolve_name(named[name])
    except (ValueError, AttributeError, ModuleNotFoundError) as error:
        where = f"'{named[name]}' in _config.yml, bookkit: {name}"
        raise BadValue(f"{where}, cannot be found ({error}); expected module:function.") from error
    return found
