"""Parts of pages, and numbers, that are generated: by the kit from claims and runs, or by the book.

Pages of `book/` include the parts. What the book itself generates comes from its hooks `pages` and
`numbers` (see `bookkit.project`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bookkit.claims import FOUND, JUDGED
from bookkit.editions import Edition
from bookkit.executed import carried
from bookkit.ledger import ledger_of, totals, values_within
from bookkit.pages.ledgerpage import ledger_table, raw, verdict_bars
from bookkit.project import hook
from bookkit.teach.handouts import exercise_counts, parts_for_teachers
from bookkit.templates import filled


def generated(root: Path, edition: Edition, executed: Mapping[str, Path]) -> dict[str, str]:
    """Sources of pages, by their place among the sources of the book.

    executed  the pages of chapters -> their executed notebooks
    """
    own = _own(edition, executed)
    rows = _claims(edition, own)
    further, changes = hook("pages"), root / "CHANGELOG.md"
    return {
        "book/_generated/verdicts.md": raw(verdict_bars(rows)),
        "book/_generated/ledger.md": ledger_table(rows, own),
        "book/_generated/build.md": build_tables(edition, executed),
        **({"book/changelog.md": changes.read_text("utf-8")} if changes.is_file() else {}),
        **parts_for_teachers(own),
        **(further(root, edition, own) if further else {}),
    }


def numbers(edition: Edition, executed: Mapping[str, Path]) -> dict[str, str]:
    """What prose may quote as `{{ name }}`: no number is typed."""
    further = hook("numbers")
    rows = _claims(edition, _own(edition, executed))
    counts: dict[str, int] = further() if further else {}
    counts |= {f"claims_{name.replace(' ', '_')}": n for name, n in totals(rows).items()}
    counts |= {"claims": len(rows), "papers": len({row["paper"] for row in rows})}
    counts["findings"] = sum(counts[f"claims_{name}"] for name in JUDGED)
    counts["values_within"], counts["values_compared"] = values_within(rows)
    counts |= exercise_counts()
    return {name: f"{count:,}" for name, count in counts.items()}


def _own(edition: Edition, executed: Mapping[str, Path]) -> dict[str, Path]:
    """The executed chapters themselves, without their variants."""
    own = [chapter.page for chapter in edition.chapters if not chapter.variant]
    return {name: executed[name] for name in own if name in executed}


def _claims(edition: Edition, own: Mapping[str, Path]) -> list[dict[str, Any]]:
    """The ledger of the executed chapters; empty where none of them has claims."""
    has_claims = any(carried(path, FOUND) for path in own.values())
    return ledger_of(own.values(), edition.name) if has_claims else []


def build_tables(edition: Edition, executed: Mapping[str, Path]) -> str:
    """How long each chapter of this build ran, with which parameters and versions."""
    chapters = []
    versions: dict[str, set[str]] = {}
    for page in (one.page for one in edition.chapters if one.page in executed):
        book = json.loads(executed[page].read_text(encoding="utf-8"))
        record = book["metadata"].get("attnlib", {})
        given = record.get("parameters", {})
        one = {"page": page, "model": Path(str(given.get("model", ""))).name}
        one |= {"seconds": _duration(record.get("seconds", 0.0))}
        slowest = max((c["metadata"].get("seconds", 0.0) for c in book["cells"]), default=0.0)
        one |= {"slowest": _duration(slowest)}
        text = yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=88)
        chapters.append(one | {"parameters": text.rstrip()})
        for name, version in record.get("versions", {}).items():
            versions.setdefault(name, set()).add(version)
    return filled(Path(__file__).with_name("build.md"), chapters=chapters, versions=versions)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
