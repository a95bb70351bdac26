"""The book of an edition: its chapters run or reused, its pages built, and what is published."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from bookkit import ledger
from bookkit.audit import changed_since
from bookkit.editions import (
    Chapter,
    Edition,
    book_store,
    chapter_parameters,
    load_edition,
    notebook_path,
)
from bookkit.errors import BadValue, UnknownName, unknown
from bookkit.executed import results_behind
from bookkit.notebooks import VERSIONS, run_notebook
from bookkit.pages import pages, site
from bookkit.pages.editing import as_variant, naming, naming_in, title_of, with_prose_of
from bookkit.pages.site import build_site
from bookkit.pages.vendor import vendor
from bookkit.project import hook, project_root
from bookkit.store import versions, write_whole
from bookkit.teach.handouts import hand_outs, teachable

PUBLISHED = "standard"
"""The edition whose executed chapters are kept in book/published/."""

_LARGEST = 3_000_000  # bytes of a published chapter
_KEPT_RUNS = 8  # of each notebook, so that going back to earlier parameters costs nothing


def build_book(
    edition: str | Path | Edition,
    *,
    only: str | Iterable[str] | None = None,
    html: bool = True,
) -> Path:
    """Run the chapters of an edition and build its pages; the path of the front page comes last.

    only  run these chapters alone; the others are shown if an earlier run of them still holds
    html  False: stop at the executed notebooks and return their folder
    """
    edition, root = load_edition(edition), project_root()
    folder = root / "_build" / edition.name
    wanted = chosen_pages(edition, only)
    plans = {chapter.page: chapter_parameters(edition, chapter) for chapter in edition.chapters}
    kept = {c.page: _kept(c, plans[c.page], root) for c in edition.chapters}
    left = [c for c in edition.chapters if c.page in wanted and not is_whole(kept[c.page])]
    minutes = f"about {sum(chapter.minutes for chapter in left):g} minutes on 2 cores"
    print(
        f"{edition.title}: {len(left)} of {len(wanted)} chapters to run, {minutes} the first time"
    )
    executed = {}
    for number, chapter in enumerate(edition.chapters, start=1):
        count = f"[{number}/{len(edition.chapters)}] {chapter.page}"
        if is_whole(kept[chapter.page]):
            print(f"{count}: nothing changed, reused")
        elif chapter.page in wanted:
            _run(edition, chapter, plans[chapter.page], kept[chapter.page], count)
        else:
            print(f"{count}: left out")
            continue
        executed[chapter.page] = kept[chapter.page]
    notebooks = folder / "notebooks"
    _sync({f"{name}.ipynb": path for name, path in executed.items()}, notebooks)
    result = build_pages(edition, executed, folder) if html else notebooks
    _tell(result, edition, executed)
    return result


def build_published() -> Path:
    """The pages of the published edition, from its executed chapters alone: nothing is run.

    Their text is that of the notebooks as they stand, where the code has not changed since.
    """
    edition, root = load_edition(PUBLISHED), project_root()
    folder = root / "_build" / "published"
    files: dict[str, Path | str] = {}
    for chapter in edition.chapters:
        path = root / "book" / "published" / f"{chapter.page}.ipynb"
        if not path.is_file():
            print(f"{chapter.page}: not published, left out")
            continue
        source, ran = (_read(one) for one in (notebook_path(chapter.notebook), path))
        renewed = with_prose_of(source, ran)
        if renewed is None:
            print(f"{chapter.page}: its code has changed since it was run; shown as it was then")
        files[path.name] = json.dumps(renewed or ran, ensure_ascii=False)
    if not files:
        how = f"Run `attnlib book {PUBLISHED}` and `attnlib publish` first."
        raise UnknownName(f"no chapter was published. {how}")
    _sync(files, folder / "notebooks")
    executed = {Path(name).stem: folder / "notebooks" / name for name in files}
    index = build_pages(edition, executed, folder)
    _tell(index, edition, executed)
    return index


def publish(edition: str | Path | Edition, *, only: str | None = None) -> Path:
    """Copy the executed chapters of an edition, and the results behind them, to book/published/.

    The folder then holds exactly these: it is committed, and the published book is built from it.
    With `only`, the other chapters stay as they were published before, or unpublished, and so do
    results: those of a chapter that is still being computed may lie there already.
    """
    edition, root = load_edition(edition), project_root()
    if edition.name != PUBLISHED:
        raise BadValue(f"edition '{edition.name}' is not published; expected {PUBLISHED}.")
    published = root / "book" / "published"
    wanted = chosen_pages(edition, only)
    data = {}
    for page in (chapter.page for chapter in edition.chapters):
        folder = root / "_build" / edition.name / "notebooks" if page in wanted else published
        path = folder / f"{page}.ipynb"
        if path.is_file():
            data[path.name] = path.read_bytes()
        elif page in wanted:
            how = f"Run `attnlib book {edition.name}` first."
            raise UnknownName(f"chapter '{page}' of {edition.name} was not run here. {how}")
    for name, content in data.items():
        if len(content) > _LARGEST:
            raise BadValue(f"{name} has {len(content):,} bytes; expected 3 MB at most.")
    for path in published.glob("*.ipynb"):
        if path.name not in data:
            path.unlink()
    paths = [write_whole(published / name, content) for name, content in data.items()]
    if further := hook("publish"):
        further(paths, published)
    behind = [name for path in paths for name in results_behind(path)]
    papers = None if only is None else {c.notebook for c in edition.chapters if c.page in wanted}
    copied = book_store().publish(behind, published / "store", papers=papers)
    print(f"{len(paths)} chapters and {copied} results in {published.relative_to(root)}")
    return published


def chosen_pages(edition: Edition, only: str | Iterable[str] | None) -> set[str]:
    """The pages of the chapters that were asked for, each with its variants, or all of them."""
    known = [chapter.page for chapter in edition.chapters]
    chosen = known if only is None else [only] if isinstance(only, str) else list(only)
    for name in chosen:
        if name not in known:
            raise unknown("chapter", name, known, f" of {edition.name}")
    return {one.page for one in edition.chapters if {one.page, one.notebook} & set(chosen)}


def _tell(result: Path, edition: Edition, executed: Mapping[str, Path]) -> None:
    """The last two lines: the verdicts in one, and where to go."""
    own = [c.page for c in edition.chapters if not c.variant and c.page in executed]
    for page, (changed, n) in changed_since(project_root(), executed).items():
        if changed:
            check = f"`attnlib verify {edition.name} --only {page}` compares them"
            print(f"{page}: the code of {changed} of {n} results has changed since; {check}")
    rows = [row for page in own for row in ledger.judged_rows(executed[page])]
    if rows:
        print(f"{len(rows)} claims: {ledger.headline(rows)}")
    print(str(result.relative_to(Path.cwd()) if result.is_relative_to(Path.cwd()) else result))


# --- chapters -------------------------------------------------------------------------------------


def _kept(chapter: Chapter, parameters: Mapping[str, Any], root: Path) -> Path:
    """Where an executed chapter of the very same content lies, if it was run before."""
    key = content_key(notebook_path(chapter.notebook), parameters, root)
    return root / "_build" / "cache" / "executed" / f"{chapter.page}-{key[:16]}.ipynb"


def _run(
    edition: Edition, chapter: Chapter, parameters: Mapping[str, Any], kept: Path, count: str
) -> None:
    print(f"{count}: running (about {chapter.minutes:g} min on 2 cores)")
    began = time.perf_counter()
    runs = project_root() / "_build" / edition.name / "runs"
    source = notebook_path(chapter.notebook)
    out = run_notebook(source, parameters, runs / f"{chapter.page}.ipynb")
    write_whole(kept, out.read_bytes())
    pattern = f"{chapter.page}-{'?' * 16}.ipynb"
    earlier = sorted(kept.parent.glob(pattern), key=lambda f: f.stat().st_mtime)
    for stale in earlier[:-_KEPT_RUNS]:
        stale.unlink(missing_ok=True)
    print(f"{count}: done in {time.perf_counter() - began:.0f} s")


def content_key(source: Path, parameters: Mapping[str, Any], root: Path) -> str:
    """A digest of everything an executed notebook depends on."""
    cells = _read(source)["cells"]
    told = [(c["cell_type"], "".join(c["source"]), c["metadata"].get("tags", [])) for c in cells]
    digest = hashlib.sha256(json.dumps([told, dict(parameters)], sort_keys=True).encode())
    digest.update(json.dumps(versions(VERSIONS), sort_keys=True).encode())
    kinds = (".py", ".toml", ".txt", ".csv", ".js", ".css", ".html")
    packages = [Path(__file__).parents[1] / name for name in ("attnlib", "bookkit", "experiments")]
    files = [file for one in packages for file in one.rglob("*") if file.suffix in kinds]
    files += (root / "papers").glob("*.yaml")  # what the chapters are judged by
    given = [one for v in parameters.values() for one in (v if isinstance(v, list) else [v])]
    for value in given:
        own = Path(value).expanduser() if isinstance(value, str) else None
        if own is not None and own.exists():  # a model or texts of the user's own
            files += [own] if own.is_file() else [f for f in own.rglob("*") if f.is_file()]
    for file in [*sorted(files), root / "constraints.txt"]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def is_whole(kept: Path) -> bool:
    """Whether an executed notebook lies there, complete."""
    try:
        return bool(_read(kept)["cells"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


# --- pages ----------------------------------------------------------------------------------------


def build_pages(edition: Edition, executed: Mapping[str, Path], folder: Path) -> Path:
    """Lay out the sources of the book, and build them unless the very same were built before.

    executed  the pages of chapters -> their executed notebooks
    """
    root = project_root()
    source, html = folder / "source", folder / "html"
    files: dict[str, Path | str] = {
        str(path.relative_to(root)): path
        for path in sorted((root / "book").rglob("*"))
        if path.is_file() and not {".ipynb_checkpoints", "published"} & set(path.parts)
    }
    files |= {f"notebooks/{name}.ipynb": path for name, path in executed.items()}
    for chapter in edition.chapters:
        if chapter.variant and chapter.page in executed:
            page = as_variant(_read(executed[chapter.page]), chapter.notebook, chapter.variant)
            files[f"notebooks/{chapter.page}.ipynb"] = json.dumps(page, ensure_ascii=False)
    files |= pages.generated(root, edition, executed)
    files |= _without_dead_links(files, edition, executed)
    given = hand_outs(teachable(), executed)
    files |= {f"_extra/handouts/{name}": text for name, text in given.items()}
    scripts = root / "_build" / "cache" / "vendored"
    have_scripts = scripts.is_dir() or _vendored(scripts)
    if have_scripts:
        found = sorted(path for path in scripts.rglob("*") if path.is_file())
        files |= {f"_extra/vendored/{path.relative_to(scripts)}": path for path in found}
    else:
        files["_extra/vendored/README"] = (
            "Built without npm: no scripts for formulas and widgets.\n"
        )
    files["_toc.yml"] = _contents(root, edition, executed)
    files["_config.yml"] = config(root, edition, executed, have_scripts)
    files["built_by.py"] = Path(site.__file__)  # pages are built again if it changes
    built = folder / "html.built"
    if _sync(files, source):
        built.unlink(missing_ok=True)
    if (html / "index.html").is_file() and built.is_file():
        print("pages: nothing changed, reused")
        return html / "index.html"
    print("pages: building (a minute or two)")
    began = time.perf_counter()
    complete = len(executed) == len(edition.chapters)
    index = build_site(source, folder / "work", html, strict=complete)
    built.touch()
    print(f"pages: done in {time.perf_counter() - began:.0f} s")
    return index


def _without_dead_links(
    files: Mapping[str, Path | str], edition: Edition, executed: Mapping[str, Path]
) -> dict[str, Path | str]:
    """The pages that link to a chapter which is not here, with its title in place of the link."""
    away = [chapter for chapter in edition.chapters if chapter.page not in executed]
    titles = {one.page: title_of(_read(notebook_path(one.notebook))) for one in away}
    changed: dict[str, Path | str] = {}
    for name, content in files.items():
        if not titles or not name.endswith((".md", ".ipynb")):
            continue
        text = content if isinstance(content, str) else content.read_text(encoding="utf-8")
        if name.endswith(".md"):
            mended = naming(text, titles)
        else:
            mended = json.dumps(naming_in(json.loads(text), titles), ensure_ascii=False)
        if mended != text:
            changed[name] = mended
    return changed


def _vendored(scripts: Path) -> bool:
    """Fetch the scripts into a folder that appears only when it is complete."""
    scripts.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".vendored-", dir=scripts.parent) as folder:
        partial = Path(folder) / scripts.name
        if vendor(partial, scripts.with_name("npm")):
            partial.rename(scripts)
            return True
    print("pages: no npm or no network, so formulas stay as TeX and widgets do not show")
    return False


def _contents(root: Path, edition: Edition, executed: Mapping[str, Path]) -> str:
    """The table of contents: chapters that are here, and below each the pages of its variants."""
    variants: dict[str, list[dict[str, str]]] = {}
    for chapter in edition.chapters:
        if chapter.variant and chapter.page in executed:
            entry = {"file": f"notebooks/{chapter.page}", "title": f"… on {chapter.variant}"}
            variants.setdefault(f"notebooks/{chapter.notebook}", []).append(entry)

    def is_here(entry: Mapping[str, Any]) -> bool:
        file = Path(entry.get("file", ""))
        return file.parent.name != "notebooks" or file.stem in executed

    def kept(entry: Any) -> Any:
        if isinstance(entry, list):
            return [kept(item) for item in filter(is_here, entry)]
        if isinstance(entry, dict):
            more = variants.get(entry.get("file", ""), [])
            return {key: kept(value) for key, value in entry.items()} | (
                {"sections": more} if more else {}
            )
        return entry

    contents = kept(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")))
    if "parts" in contents:
        contents["parts"] = [part for part in contents["parts"] if part.get("chapters")]
    return yaml.safe_dump(contents, sort_keys=False, allow_unicode=True)


def config(root: Path, edition: Edition, executed: Mapping[str, Path], have_scripts: bool) -> str:
    """The book's settings, with the edition's name for the pages and only the scripts we have."""
    found = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    words = {"edition": edition.name, "edition_title": edition.title, "summary": edition.summary}
    words["model"] = edition.models.get("main", "")
    words |= pages.numbers(edition, executed)
    found.setdefault("parse", {})["myst_substitutions"] = words
    if not have_scripts:
        found["sphinx"]["config"]["nb_ipywidgets_js"] = {}
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True)


def _sync(files: Mapping[str, Path | str], folder: Path) -> bool:
    """Make a folder hold exactly these files; whether any of them was written or removed."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = False
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content.read_bytes()
        target = folder / name
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            changed = True
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()
            changed = True
    return changed
