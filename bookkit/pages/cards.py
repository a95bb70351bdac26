"""Pages generated from records: models, data, metrics, what this build ran, how to cite."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from attnlib.data.asset_list import Asset, known
from bookkit.editions import Edition
from bookkit.pages.ledgerpage import paper_name

KINDS = {"model": "Models", "dataset": "Datasets", "vectors": "Word vectors", "parser": "Parsers"}
"""Kinds of assets, in the order of the page, with their headings."""

ASSETS = """# Models and data

Everything that the chapters read, with its licence and its citation. A file is used only if its
hash is the one on record. `attnlib assets` shows the same list with what is on your machine and
where the rest would come from; `attnlib fetch NAME` brings it. A tick: this edition uses it.
"""

METRICS = """# Metrics

Every number about heads in this book is one of these metrics, or made of them. A metric is declared
once, with its unit, its bounds and the place it comes from; the streaming pass, the axes of
figures, the tests and this page read that one record. Ask for any of them by name:

```bash
attnlib measure e5-small my_texts.txt entropy mass_to_previous
```
"""

BUILD = """# This build

**{title}.** {summary}

Times are those of the runs behind these pages. What was kept from an earlier run was not computed
again, so the compute card at the end of a chapter can tell of more than its run here.

| chapter | model | ran for | slowest cell |
|---|---|--:|--:|
{chapters}

## Parameters

{parameters}

## Versions

| package | version |
|---|---|
{versions}
"""

CITE = """# How to cite

{message}

```bibtex
{book}
```

The experiments are those of the papers:

```bibtex
{papers}
```

Text and figures of the book and the Reader are CC BY 4.0, the code is MIT. Models and corpora keep
their own licences: see [](assets).
"""

PAPERS = ("clark2019", "kovaleva2019", "guan2020", "pande2021")


def assets_page(edition: Edition) -> str:
    """Models and data: what each is, its licence, how to cite it, whether this edition uses it."""
    parts = [ASSETS]
    for kind, heading in KINDS.items():
        own = [asset for asset in known().values() if asset.kind == kind]
        parts += [f"## {heading}", "", *(_asset_card(a, a.name in edition.assets) for a in own)]
    return "\n".join(parts)


def _asset_card(asset: Asset, used: bool) -> str:
    size = f"{asset.bytes / 1e6:,.1f} MB" if asset.bytes else "size not on record"
    note = f"{_plain(asset.note)}\n\n" if asset.note else ""
    return (
        f":::{{dropdown}} `{asset.name}`{' ✓' if used else ''}\n{note}"
        f"**licence** {_plain(asset.licence)} · {size}\n\n"
        f"*Cite:* {_plain(asset.citation)}\n:::\n"
    )


def metrics_page(metrics: Iterable[Any], formulas: Mapping[str, str]) -> str:
    """Every registered metric: what it measures, its unit and bounds, the place in the paper.

    formulas  key -> the formula of its kernel in TeX, where the docstring has one
    """
    groups: dict[str, list[Any]] = {}
    for metric in metrics:
        groups.setdefault(metric.source.partition(":")[0], []).append(metric)
    lines = [METRICS]
    for paper, own in sorted(groups.items()):
        lines += [f"## {paper_name(paper)}", ""]
        lines += [":::{table}", ":class: attn-stack attn-facts", ""]
        lines += ["| metric | what it measures | unit | bounds | where |", "|---|---|---|---|---|"]
        lines += [*map(_metric_row, own), ":::", ""]
        for metric in own:
            if metric.key in formulas:
                lines += [f"`{metric.key}`:", "", "$$", formulas[metric.key], "$$", ""]
    return "\n".join(lines)


def _metric_row(metric: Any) -> str:
    bounds = " to ".join(b if isinstance(b, str) else f"{b:.3g}" for b in metric.bounds)
    other = [f"`{name}`" for name in metric.variants if name != "paper"]
    key = f"`{metric.key}`" + (f" (variant {', '.join(other)})" if other else "")
    cells = (key, _plain(metric.what), metric.unit, bounds, _place(metric.source))
    return "| " + " | ".join(cells) + " |"


def _place(source: str) -> str:
    """`clark2019:fig2` as a reader would write it."""
    words = source.partition(":")[2]
    for short, long in (("sec", "Sec. "), ("fig", "Fig. "), ("tab", "Table "), ("eq", "Eq. ")):
        if words.startswith(short):
            return long + words.removeprefix(short)
    return words


def build_page(edition: Edition, executed: Mapping[str, Path]) -> str:
    """How long each chapter of this build ran, with which parameters and versions."""
    chapters, parameters = [], []
    versions: dict[str, set[str]] = {}
    for chapter in edition.chapters:
        if chapter.page not in executed:
            continue
        book = json.loads(executed[chapter.page].read_text(encoding="utf-8"))
        record = book["metadata"].get("attnlib", {})
        given = record.get("parameters", {})
        slowest = max((c["metadata"].get("seconds", 0.0) for c in book["cells"]), default=0.0)
        model = Path(str(given.get("model", ""))).name
        times = f"{_duration(record.get('seconds', 0.0))} | {_duration(slowest)}"
        chapters.append(f"| [](../notebooks/{chapter.page}) | {model} | {times} |")
        text = yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=88).rstrip()
        parameters.append(f":::{{dropdown}} `{chapter.page}`\n```yaml\n{text}\n```\n:::\n")
        for name, version in record.get("versions", {}).items():
            versions.setdefault(name, set()).add(version)
    rows = (f"| {name} | {', '.join(sorted(found))} |" for name, found in versions.items())
    return BUILD.format(
        title=edition.title,
        summary=edition.summary.strip(),
        chapters="\n".join(chapters),
        parameters="\n".join(parameters),
        versions="\n".join(rows),
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def cite_page(root: Path) -> str:
    """How to cite the book, from CITATION.cff, and the papers, from the bibliography."""
    told = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    fields = {
        "author": " and ".join(f"{{{author['name']}}}" for author in told["authors"]),
        "title": told["title"],
        "version": told["version"],
        "year": str(told["date-released"])[:4],
        "license": f"{told['license']} (code), CC BY 4.0 (text)",
    }
    lines = (f"  {name:7} = {{{value}}}," for name, value in fields.items())
    entries = _bib_entries((root / "book" / "references.bib").read_text(encoding="utf-8"))
    return CITE.format(
        message=_plain(told["message"]),
        book="\n".join(("@software{attnlib,", *lines, "}")),
        papers="\n\n".join(entries[key] for key in PAPERS),
    )


def _bib_entries(text: str) -> dict[str, str]:
    entries = re.finditer(r"^@\w+\{([\w-]+),.*?^\}", text, re.M | re.S)
    return {entry[1]: entry[0] for entry in entries}


def _plain(text: str) -> str:
    """Text for a cell of a table or a line of a page: nothing in it is markup."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([|*_\[\]$])", r"\\\1", escaped)
