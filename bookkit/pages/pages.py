"""Pages and numbers of the book that are generated: from the package, and from the run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlib.data import reader
from attnlib.data.corpora import load_corpus
from attnlib.data.reader.page import page
from attnlib.data.reader.stats import statistics
from attnlib.measuring.stream import METRICS
from bookkit.editions import Edition
from bookkit.ledger import carried, ledger_of, totals
from bookkit.pages import cards, landing
from bookkit.pages.ledgerpage import ledger_page
from bookkit.teach.handouts import exercise_counts, exercise_tables, handout_links
from experiments.atlas.atlases import atlas_page
from experiments.clark2019 import coreference as coref

_JUDGED = ("reproduced", "partly", "not_reproduced")


def generated(root: Path, edition: Edition, executed: Mapping[str, Path]) -> dict[str, str]:
    """Sources of pages, by their place among the sources of the book.

    executed  the pages of chapters -> their executed notebooks
    """
    own = _own(edition, executed)
    rows = _claims(edition, own)
    return {
        "book/reader_passages.md": page(reader.passages()),
        "book/_generated/reader_baselines.md": baselines_table(),
        "book/_generated/verdicts.md": landing.verdicts(rows),
        "book/_generated/front_figure.md": landing.front_figure(own),
        "book/ledger.md": ledger_page(rows, own),
        "book/atlas.md": atlas_page(own),
        "book/assets.md": cards.assets_page(edition),
        "book/metrics.md": cards.metrics_page(METRICS.values(), formulas()),
        "book/build.md": cards.build_page(edition, executed),
        "book/cite.md": cards.cite_page(root),
        "book/changelog.md": (root / "CHANGELOG.md").read_text(encoding="utf-8"),
        **exercise_tables(),
        "book/_generated/handouts.md": handout_links(own),
    }


def numbers(edition: Edition, executed: Mapping[str, Path]) -> dict[str, Any]:
    """What prose may quote as `{{ name }}`: no number is typed."""
    counts = statistics(reader.passages())
    flat = {f"reader_{key}": value for key, value in counts.items() if isinstance(value, int)}
    for group in ("mentions_by_type", "registers"):
        flat |= {f"reader_{name}": value for name, value in counts[group].items()}
    rows = _claims(edition, _own(edition, executed))
    flat |= {f"claims_{name.replace(' ', '_')}": n for name, n in totals(rows).items()}
    flat |= {"claims": len(rows), "papers": len({row["paper"] for row in rows})}
    flat["metrics"] = len(METRICS)
    flat |= exercise_counts()
    told = {key: f"{value:,}" for key, value in flat.items()}
    open_claims = len(rows) - sum(flat[f"claims_{name}"] for name in _JUDGED)
    return told | {"claims_rest": f", {open_claims:,} not judged here" if open_claims else ""}


def _own(edition: Edition, executed: Mapping[str, Path]) -> dict[str, Path]:
    """The executed chapters themselves, without their variants."""
    own = [chapter.page for chapter in edition.chapters if not chapter.variant]
    return {name: executed[name] for name in own if name in executed}


def _claims(edition: Edition, own: Mapping[str, Path]) -> list[dict[str, Any]]:
    """The ledger of the executed chapters; empty where none of them has claims."""
    has_claims = any(carried(path) for path in own.values())
    return ledger_of(own.values(), edition.name) if has_claims else []


def formulas() -> dict[str, str]:
    """The formula of each metric, from the docstring of the kernel that computes it."""
    found = {}
    for key, metric in METRICS.items():
        text = getattr(metric.kernel, "__doc__", None) or ""
        math = re.search(r"\.\. math::\s*(.+?)(?:\n\s*\n|\Z)", text, re.S)
        if math:
            found[key] = " ".join(math[1].split())
    return found


def baselines_table() -> str:
    """Antecedent selection on the Reader, beside what Clark 2019 reports on CoNLL-2012."""
    documents = load_corpus("reader-coref").examples
    lines = ["| | all | pronoun | proper | nominal |", "|---|--:|--:|--:|--:|"]
    for name, choose in coref.BASELINES.items():
        shares = coref.accuracy(documents, choose).values()
        cells = " | ".join(f"{100 * right / asked:.0f}" for right, asked in shares)
        lines.append(f"| {name} | {cells} |")
    counts = coref.accuracy(documents, coref.nearest).values()
    lines.append(f"| *mentions asked* | {' | '.join(f'*{asked}*' for _, asked in counts)} |")
    return "\n".join(lines) + "\n"
