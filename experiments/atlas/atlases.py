"""Which atlas of a model is at hand: published, carried by a chapter, or yet to be made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from bookkit.editions import notebook_path, settings_of
from bookkit.ledger import carried
from bookkit.notebooks import run_notebook
from bookkit.pages.ledgerpage import raw
from bookkit.project import project_root
from experiments.atlas.atlas import CARRIED, PUBLISHED, Atlas, from_text, load
from experiments.atlas.atlaspage import fragment

CHAPTER = "agreement"
HEAD = """# The atlas of heads

Every head of the model has a card: what each of the four papers calls it and how surely, what it
finds, what changes without it, how fine-tuning changes it, its nearest relatives, three sentences
to watch it on. Click a head, or search: *heads that find objects*, *unskilled*, *next*, *8-10*.
Arrow keys walk through the grid; a card has its own address. How the numbers were made, and
how far the papers agree, is told in {chapter}.
"""
DATA = """
The data behind this page is one file that `experiments.atlas.atlas.load()` reads: `.table()` has a
row for every head and fact. `attnlib atlas MODEL` makes the page, and the file, for another model.
"""
MISSING = """
:::{note}
This edition was built without the chapter that draws the atlas. `attnlib atlas e5-small` makes it.
:::
"""


def atlas_in(path: Path) -> str | None:
    """The text of the atlas that an executed notebook carries; None where it has none."""
    return next(iter(carried(path, CARRIED)), None)


def publish(executed: Iterable[Path], folder: Path) -> None:
    """Write the atlas that an executed chapter carries as the file that researchers load."""
    for path in executed:
        text = atlas_in(path)
        if text is not None:
            atlas = from_text(text, path.name)
            (folder / "atlas").mkdir(parents=True, exist_ok=True)
            atlas.save(folder / "atlas" / f"{atlas.model}.json")


def atlas_page(executed: Mapping[str, Path]) -> str:
    """The page of the book, from the chapter that carries the atlas, if it was run."""
    path = executed.get(CHAPTER)
    text = None if path is None else atlas_in(path)
    if path is None or text is None:
        return HEAD.format(chapter="the chapter on agreement") + MISSING
    shown = fragment(from_text(text, path.name), book_root="../")
    return HEAD.format(chapter="[](../notebooks/agreement)") + raw(shown) + DATA


def known_atlas(model: str, edition: str | None = None) -> Atlas | None:
    """The published atlas of a model, or one from what was run here last.

    edition  whose run to take instead; a small one has wide intervals, so it must be asked for
    """
    if edition is None and (PUBLISHED / f"{model}.json").is_file():
        return load(model)
    for path in _executed(project_root(), edition):
        text = atlas_in(path)
        found = None if text is None else from_text(text, path.name)
        if found is not None and model in (found.model, Path(found.model).name):
            return found
    return None


def _executed(root: Path, edition: str | None) -> Iterator[Path]:
    """Executed chapters on agreement, of one edition or of all, the latest first."""
    build = root / "_build"
    found = list(build.glob(f"{edition or '*'}/notebooks/{CHAPTER}*.ipynb"))
    if edition is None:
        found += build.glob(f"runs/{CHAPTER}*.ipynb")
    yield from sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def made_atlas(model: str, *, edition: str, say: Callable[[str], None] = print) -> Atlas:
    """The atlas of a model that has none yet: the chapter is run for it."""
    source = notebook_path(CHAPTER)
    say(f"{model} has no atlas yet: running the chapter on agreement ({edition} edition) ...")
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in model)
    target = project_root() / "_build" / "runs" / f"{CHAPTER}-{name}.ipynb"
    settings = settings_of(edition, source) | {"model": model, "other_models": []}
    path = run_notebook(source, settings, target)
    text = atlas_in(path)
    assert text is not None, "the chapter on agreement ends with an atlas"
    return from_text(text, path.name)
