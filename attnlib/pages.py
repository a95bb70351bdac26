"""Pages and numbers of the book that are generated from the package itself."""

from __future__ import annotations

from typing import Any

from attnlib import coref, reader
from attnlib.corpora import load_corpus
from attnlib.exercises import LEVELS, catalogue, of_chapter
from attnlib.reader.page import page
from attnlib.reader.stats import statistics


def generated() -> dict[str, str]:
    """Sources of pages, by their place among the sources of the book."""
    return {
        "book/reader_passages.md": page(reader.passages()),
        "book/_generated/reader_baselines.md": baselines_table(),
        **{f"book/_generated/exercises_{name}.md": exercise_table(name) for name in _chapters()},
    }


def numbers() -> dict[str, Any]:
    """What prose may quote as `{{ name }}`: no number is typed."""
    counts = statistics(reader.passages())
    flat = {f"reader_{key}": value for key, value in counts.items() if isinstance(value, int)}
    for group in ("mentions_by_type", "registers"):
        flat |= {f"reader_{name}": value for name, value in counts[group].items()}
    return {key: f"{value:,}" for key, value in {**flat, **exercise_counts()}.items()}


def exercise_table(chapter: str) -> str:
    """The exercises of a chapter by level, each with a link, its time and what it needs."""
    lines = ["| | exercise | label | minutes | needs |", "|---|---|---|--:|---|"]
    for level, name in LEVELS.items():
        for number, one in enumerate(e for e in of_chapter(chapter) if e.level == level):
            link = f"{{ref}}`{one.title} <{one.label}>`"
            needs = "pencil" if one.needs == "paper and pencil" else one.needs
            cells = (
                "" if number else f"**{name}**",
                link,
                f"`{one.label}`",
                str(one.minutes),
                needs,
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def exercise_counts() -> dict[str, int]:
    """How many exercises there are, and how many hours they take, in all and by chapter."""
    found = {"exercises": len(catalogue())}
    for chapter in _chapters():
        own = of_chapter(chapter)
        found[f"exercises_{chapter}"] = len(own)
        found[f"exercise_hours_{chapter}"] = round(sum(one.minutes for one in own) / 60)
    return found


def _chapters() -> list[str]:
    return list(dict.fromkeys(one.chapter for one in catalogue().values()))


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
