"""Pages from sources: a strict jupyter-book build that asks nothing of any other host."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from bookkit.errors import BuildError

_JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"  # has no `python -m` of its own
_FAULT = re.compile(r"\b(WARNING|ERROR|CRITICAL|Exception occurred)\b")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_THEBE = re.compile(
    r'<script[^>]*src="[^"]*thebe[^"]*"[^>]*>\s*</script>\s*'
    r"|<script[^>]*>\s*const THEBE_JS_URL.*?</script>\s*"
    r'|<script type="text/x-thebe-config">.*?</script>\s*'
    r"|<script>kernelName = .*?</script>\s*"
    r'|<link[^>]*href="[^"]*sphinx-thebe[^"]*"[^>]*/?>\s*',
    re.S,
)
_NO_LIST = 'role="list" class="citation-list"'  # its entries are no list items for a screen reader
_PRELOAD = re.compile(r'<link\b[^>]*\brel="preload"[^>]*>\s*')  # hints that fail from disk
_ELSEWHERE = re.compile(r"^\s*(https?:)?//", re.I)
_CSS_LOAD = re.compile(r"(?:url\(|@import)\s*['\"]?\s*((?:https?:)?//[^'\")\s;]+)", re.I)


def build_site(source: Path, work: Path, out: Path, *, strict: bool = True) -> Path:
    """Build `source` into `out` and return its front page.

    work    keeps what makes a second build fast; it is dropped when a build fails, because a
            page that is not read again would not warn again
    strict  a warning is an error
    """
    log = work / "build.log"
    work.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", _JUPYTER_BOOK, "build", str(source)]
    flags = ["-n", "-W", "--keep-going"] if strict else []
    if _has_stale_files(source, work / "_build" / "html"):
        flags.append("--all")
    done = subprocess.run(
        [*command, "--path-output", str(work), *flags], capture_output=True, text=True, check=False
    )
    log.write_text(_COLOUR.sub("", done.stdout + done.stderr), encoding="utf-8")
    faults = [line for line in log.read_text(encoding="utf-8").splitlines() if _FAULT.search(line)]
    if done.returncode != 0 or (strict and faults):
        shutil.rmtree(work / "_build", ignore_errors=True)
        said = "; ".join(line.replace(f"{source}/", "") for line in faults[:3])
        raise BuildError(f"the pages were not built: {said or 'no reason given'}. See {log}.")
    _publish(work / "_build" / "html", out)
    return out / "index.html"


def _has_stale_files(source: Path, built: Path) -> bool:
    """Whether a style sheet or another file beside the pages differs from the one built earlier.

    Sphinx copies such files only when it writes a page, and pages carry the digests of some.
    """
    beside = {source / "book" / "_static": built / "_static", source / "_extra": built}
    for folder, target in beside.items():
        for path in sorted(folder.rglob("*")):
            copy = target / path.relative_to(folder)
            if path.is_file() and copy.is_file() and copy.read_bytes() != path.read_bytes():
                return True
    return False


def _publish(built: Path, out: Path) -> None:
    """Copy the pages, without what would call another host and without sphinx's own notes."""
    fresh = out.with_name(f".{out.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    ignored = shutil.ignore_patterns(".doctrees", ".buildinfo*", "objects.inv", "*thebe*")
    shutil.copytree(built, fresh, ignore=ignored)
    for page in fresh.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        text = text.replace(_NO_LIST, 'class="citation-list"')
        page.write_text(_PRELOAD.sub("", _THEBE.sub("", text)), encoding="utf-8")
    calls = external_loads(fresh)
    if calls:
        listed = "; ".join(f"{page}: {address}" for page, address in calls[:3])
        raise BuildError(f"{len(calls)} places load from another host, none may: {listed}.")
    shutil.rmtree(out, ignore_errors=True)
    fresh.rename(out)


def external_loads(folder: Path) -> list[tuple[str, str]]:
    """Every (page, address) that a page or style sheet would load from elsewhere when opened.

    A link that a reader may click is not a load.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".html":
            reader = _Loads()
            reader.feed(path.read_text(encoding="utf-8"))
            addresses = reader.found
        elif path.suffix in (".css", ".svg"):
            addresses = _CSS_LOAD.findall(path.read_text(encoding="utf-8", errors="replace"))
        else:
            continue
        found += [(str(path.relative_to(folder)), address) for address in addresses]
    return found


class _Loads(HTMLParser):
    """Collects addresses on other hosts that a browser would load by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._styled = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._styled = tag == "style"
        self.found += _CSS_LOAD.findall(given.get("style", ""))
        followed = tag in ("a", "area") or set(given.get("rel", "").split()) & _HARMLESS
        loads = [] if followed else [given.get(name, "") for name in _LOADING]
        loads += [part.strip().split(" ")[0] for part in given.get("srcset", "").split(",")]
        if tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            loads.append(given.get("content", "").partition("url=")[2])
        self.found += filter(_ELSEWHERE.match, loads)

    def handle_data(self, data: str) -> None:
        if self._styled:
            self.found += _CSS_LOAD.findall(data)

    def handle_endtag(self, tag: str) -> None:
        self._styled = False


_HARMLESS = {"canonical", "next", "prev", "search", "index", "author", "license", "help", "me"}
_LOADING = ("src", "href", "xlink:href", "poster", "data")
