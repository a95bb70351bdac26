"""A module of attnlib imports only from modules to its left in one stated order."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "attnlib"

# Data flows from left to right. A new module goes where everything it imports stands to its left.
ORDER = (
    *("errors", "progress", "archives", "sources", "shelf", "convert"),
    *("assetcache", "assets", "models"),
    *("examples", "reader", "textfiles", "conllu", "wikitext", "segments", "annotated", "tasks"),
    *("parse", "clauses", "clozes", "madequestions"),
    *("catalogue", "corpora", "overlays", "coref", "vectors"),
    *("encode", "relations", "attention", "extract", "words", "patterns"),
    *("metric", "mass", "entropy", "sieves", "reach", "fastlog", "divergence"),
    *("patternnet", "links", "stripes"),
    *("stats", "hypotheses", "spool", "stream", "engine", "similarity"),
    *("interventions", "report", "papers"),
    *("prediction", "bestheads", "antecedents", "probes", "probetraining"),
    *("maskedlm", "headfit", "importance", "clusters", "headtypes", "typestability"),
    *("taxonomies", "headprediction"),
    *("roles", "glue", "answers", "training", "modelcache", "finetune"),
    *("spans", "spanmodel", "publishedreader", "ablations", "disabling"),
    *("style", "drawing", "figures", "diagrams", "comparisons", "headmaps", "pagetables"),
    *("roleoverlaps", "rolefigures", "rolechanges"),
    *("typefigures", "typelayers", "clusterfigures", "wallpage", "mapwall"),
    *("viewdata", "viewer", "liveview"),
    *("ablationfigures", "ablationtables", "headeffects"),
    *("taskgrids", "taskrows", "layerchanges", "patternfigures", "patternconfusion"),
    *("atlasfacts", "atlasfile", "atlaswords", "atlas", "atlastopics", "atlascolumns", "atlaspage"),
    "agreementfigures",
    *("results", "taskplans", "clark2019", "pande2021", "guan2020", "kovaleva2019"),
    *("agreement", "ablating", "mapsheet", "chapter"),
    *("parametercells", "runs", "ledger", "answerseals", "exercises", "plainmyst", "students"),
    *("slidepage", "slidesource", "slides", "editing", "editions", "teaching"),
    *("ledgerpage", "atlases", "cards", "landing", "teachpages", "pages"),
    *("vendor", "site", "building", "publishing", "rehearsal", "commands", "cli"),
)

FREE = frozenset({"__init__", "__main__"})  # the package's front doors may show anything


def imported_modules(source: str) -> set[str]:
    """Names of attnlib modules that this source imports, also inside functions and type blocks."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            parts = (alias.name.split(".") for alias in node.names)
            found |= {part[1] for part in parts if part[0] == "attnlib" and len(part) > 1}
        elif isinstance(node, ast.ImportFrom):
            found |= _from_modules(node)
    return found


def _from_modules(node: ast.ImportFrom) -> set[str]:
    """Modules named by one `from ... import ...`, absolute or relative."""
    parts = (node.module or "").split(".") if node.module else []
    if node.level == 0:
        if parts[:1] != ["attnlib"]:
            return set()
        parts = parts[1:]
    return {parts[0]} if parts else {alias.name for alias in node.names}


def violations(modules: dict[str, str], order: tuple[str, ...] = ORDER) -> list[str]:
    """A sentence for each import that points to the right and each module without a place."""
    place = {name: index for index, name in enumerate(order)}
    faults = []
    for name, source in modules.items():
        if name in FREE:
            continue
        if name not in place:
            faults.append(f"{name} has no place: add it to ORDER right of everything it imports")
            continue
        for other in sorted(imported_modules(source) - FREE - {name}):
            if other not in place and other in modules:
                faults.append(f"{name} imports {other}, which has no place in ORDER")
            elif place.get(other, -1) >= place[name]:
                faults.append(f"{name} imports {other}, which stands to its right")
    return faults


def package_sources() -> dict[str, str]:
    """Every module of the package by name, with its text; a subpackage counts as one module."""
    found = {path.stem: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.glob("*.py"))}
    for path in sorted(PACKAGE.glob("*/*.py")):
        found[path.parent.name] = "\n".join(
            [found.get(path.parent.name, ""), path.read_text("utf-8")]
        )
    return found


def test_imports_point_left() -> None:
    assert violations(package_sources()) == []


def test_order_names_each_module_once() -> None:
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.parametrize(
    "line",
    [
        "from attnlib.cli import main",
        "from attnlib import cli",
        "import attnlib.cli",
        "from . import cli",
        "from .cli import main",
        "def late():\n    from attnlib.cli import main",
        "if TYPE_CHECKING:\n    import attnlib.cli as c",
    ],
)
def test_planted_violation_is_caught(line: str) -> None:
    faults = violations({"metric": line, "cli": ""})
    assert faults == ["metric imports cli, which stands to its right"]


def test_imports_to_the_left_and_of_names_pass() -> None:
    source = "from attnlib.errors import BadValue\nfrom attnlib import measure\nimport numpy"
    assert violations({"stream": source, "errors": ""}) == []


def test_unknown_module_gets_a_hint() -> None:
    (fault,) = violations({"novelty": ""})
    assert "add it to ORDER" in fault
