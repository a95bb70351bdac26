"""What is committed of an edition: its executed chapters and the small results behind them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bookkit import ledger
from bookkit.building import PUBLISHED, chosen_pages
from bookkit.editions import Edition, book_store, load_edition
from bookkit.errors import BadValue, UnknownName
from bookkit.project import hook, project_root

_LARGEST = 3_000_000


def publish(
    edition: str | Path | Edition,
    *,
    only: str | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Copy the executed chapters of an edition, and the results behind them, to book/published/.

    The folder then holds exactly these: it is committed, and the published book is built from it.
    With `only`, the other chapters stay as they were published before, or unpublished, and so do
    results: those of a chapter that is still being computed may lie there already.
    """
    edition = load_edition(edition)
    if edition.name != PUBLISHED:
        raise BadValue(f"edition '{edition.name}' is not published; expected {PUBLISHED}.")
    root = project_root()
    executed = root / "_build" / edition.name / "notebooks"
    published = root / "book" / "published"
    wanted = chosen_pages(edition, only)
    data = {}
    for chapter in edition.chapters:
        folder = executed if chapter.page in wanted else published
        path = folder / f"{chapter.page}.ipynb"
        if not path.is_file():
            if chapter.page not in wanted:
                continue
            raise UnknownName(
                f"chapter '{chapter.page}' of {edition.name} was not run here. "
                f"Run `attnlib book {edition.name}` first."
            )
        data[path.name] = path.read_bytes()
        if len(data[path.name]) > _LARGEST:
            size = len(data[path.name])
            raise BadValue(f"{path.name} has {size:,} bytes; expected 3 MB at most.")
    published.mkdir(parents=True, exist_ok=True)
    for stale in published.glob("*.ipynb"):
        if stale.name not in data:
            stale.unlink()
    for name, content in data.items():
        (published / name).write_bytes(content)
    paths = [published / name for name in data]
    if further := hook("publish"):
        further(paths, published)
    behind = [name for path in paths for name in ledger.results_behind(path)]
    papers = None if only is None else {c.notebook for c in edition.chapters if c.page in wanted}
    copied = book_store().publish(behind, published / "store", papers=papers)
    say(f"{len(paths)} chapters and {copied} results in {published.relative_to(root)}")
    return published
