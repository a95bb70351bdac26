"""What only this book generates: models and data, metrics, the Reader, the atlas, how to cite.

`_config.yml` names `generated` and `numbers` as hooks of the kit (see `bookkit.project`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import yaml

from attnlib.data import reader
from attnlib.data.asset_list import known
from attnlib.data.corpora import load_corpus
from attnlib.data.reader.summary import statistics
from attnlib.measuring.stream import METRICS
from attnlib.metrics.registry import Metric
from bookkit.claims import paper_keys
from bookkit.editions import Edition
from bookkit.executed import outputs_of
from bookkit.ledger import ledger_of
from bookkit.pages.ledgerpage import raw
from bookkit.pagetables import BADGES, paper_name, shown_verdict
from bookkit.templates import filled
from experiments.atlas.page import atlas_page
from experiments.clark2019 import coreference as coref
from experiments.shared.reader_page import page

HERE = Path(__file__).parent
KINDS = {"model": "Models", "dataset": "Datasets", "vectors": "Word vectors", "parser": "Parsers"}
"""Kinds of assets, in the order of the page, with their headings."""
WALL = 'class="attn-figure attn-wall"'
"""Marks the figure of all heads that readers can click."""


def generated(root: Path, edition: Edition, executed: Mapping[str, Path]) -> dict[str, str]:
    """Sources of pages, by their place among the sources of the book.

    executed  chapters -> their executed notebooks
    """
    return {
        "book/reader_passages.md": page(reader.passages()),
        "book/_generated/reader_baselines.md": baselines_table(),
        "book/_generated/front_figure.md": front_figure(executed),
        "book/atlas.md": atlas_page(executed),
        "book/_generated/assets.md": asset_cards(edition),
        "book/_generated/metrics.md": metric_tables(),
        "book/_generated/verdict_moves.md": verdict_moves(root, edition, executed),
        "book/_generated/cite_book.md": book_citation(root),
        "book/_generated/cite_papers.md": paper_citations(root),
    }


def numbers() -> dict[str, int]:
    """What prose quotes of the Reader and of the metrics."""
    counts = statistics(reader.passages())
    flat = {f"reader_{key}": value for key, value in counts.items() if isinstance(value, int)}
    for group in ("mentions_by_type", "registers"):
        flat |= {f"reader_{name}": value for name, value in counts[group].items()}
    return flat | {"metrics": len(METRICS)}


def front_figure(executed: Mapping[str, Path]) -> str:
    """The wall of all heads from the chapter that draws it; nothing if it was not run."""
    outputs = (output for path in executed.values() for output in outputs_of(path))
    shown = ("".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    return next((raw(page) for page in shown if WALL in page), "\n")


def asset_cards(edition: Edition) -> str:
    """Models and data: what each is, its licence, how to cite it, whether this edition uses it."""
    kinds = {
        heading: [asset for asset in known().values() if asset.kind == kind]
        for kind, heading in KINDS.items()
    }
    return filled(HERE / "assets.md", kinds=kinds, used=edition.assets, plain=_plain)


def metric_tables() -> str:
    """Every registered metric: what it measures, its unit and bounds, the place in the paper."""
    papers: dict[str, list[Metric]] = {}
    for metric in sorted(METRICS.values(), key=lambda one: one.source.partition(":")[0]):
        papers.setdefault(paper_name(metric.source.partition(":")[0]), []).append(metric)
    told = {"plain": _plain, "place": _place, "formula_of": formula_of}
    return filled(HERE / "metrics.md", papers=papers, **told)


def formula_of(metric: Metric) -> str:
    """The formula of a metric in TeX, from the docstring of its kernel; empty if it has none."""
    text = getattr(metric.kernel, "__doc__", None) or ""
    found = re.search(r"\.\. math::\s*(.+?)(?:\n\s*\n|\Z)", text, re.S)
    return " ".join(found[1].split()) if found else ""


def _place(source: str) -> str:
    """`clark2019:fig2` as a reader would write it."""
    words = {"sec": "Sec. ", "fig": "Fig. ", "tab": "Table ", "eq": "Eq. "}
    return re.sub("^(sec|fig|tab|eq)", lambda found: words[found[0]], source.partition(":")[2])


def baselines_table() -> str:
    """Antecedent selection on the Reader, beside what Clark 2019 reports on CoNLL-2012."""
    documents = load_corpus("reader-coref").examples
    shares = {name: coref.accuracy(documents, best) for name, best in coref.BASELINES.items()}
    return filled(HERE / "baselines.md", shares=shares)


def verdict_moves(root: Path, edition: Edition, executed: Mapping[str, Path]) -> str:
    """A table in Markdown: the verdicts of the first edition against those of today."""
    rows = ledger_of(executed.values(), edition.name)
    first = pd.read_csv(root / "papers" / "first_edition.csv")
    today = pd.DataFrame(
        [(row["paper"], row["id"], shown_verdict(row)) for row in rows],
        columns=["paper", "id", "now"],
    )
    both = first.merge(today, how="outer").fillna({"verdict": "new row", "now": "row dropped"})
    counts = pd.crosstab(both["verdict"], both["now"])
    counts = counts.reindex([*dict.fromkeys(first["verdict"]), "new row"]).dropna().astype(int)
    counts = counts[[name for name in (*BADGES, "row dropped") if name in counts]]
    head = ["first edition", *counts.columns]
    lines = [head, ["---", *("--:" for _ in counts.columns)]]
    lines += [
        [name, *map(str, row)] for name, row in zip(counts.index, counts.to_numpy(), strict=True)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def book_citation(root: Path) -> str:
    """How to cite the book, from CITATION.cff."""
    told = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    year = str(told["date-released"])[:4]
    return filled(HERE / "citation.md", plain=_plain, year=year, **told)


def paper_citations(root: Path) -> str:
    """How to cite the papers, from the bibliography."""
    text = (root / "book" / "references.bib").read_text(encoding="utf-8")
    found = re.finditer(r"^@\w+\{([\w-]+),.*?^\}", text, re.M | re.S)
    entries = {entry[1]: entry[0] for entry in found}
    papers = "\n\n".join(entries[key] for key in paper_keys() if key in entries)
    return f"```bibtex\n{papers}\n```\n"


def _plain(text: str) -> str:
    """Text for a cell of a table or a line of a page: nothing in it is markup."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([|*_\[\]$])", r"\\\1", escaped)
