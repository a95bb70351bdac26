"""Tables of exercises for the pages for teachers, from the catalogue."""

from __future__ import annotations

from collections.abc import Collection

from bookkit.teach.exercises import LEVELS, catalogue, of_chapter
from bookkit.teach.teaching import teachable


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


def exercise_tables() -> dict[str, str]:
    """The tables of all chapters, as parts of pages."""
    return {f"book/_generated/exercises_{name}.md": exercise_table(name) for name in teachable()}


def handout_links(executed: Collection[str]) -> str:
    """What can be had of every chapter beside its page: slides, and a copy for students."""
    lines = ["| chapter | slides | for students |", "|---|---|---|"]
    for name in teachable():
        deck = f"../../handouts/slides/{name}.html"
        copy = f"../../handouts/notebooks/{name}.ipynb"
        slides = f'<a href="{deck}">open</a>' if name in executed else "not run in this edition"
        notebook = f'<a href="{copy}" download>notebook</a>'
        lines.append(f"| {{doc}}`/notebooks/{name}` | {slides} | {notebook} |")
    return "\n".join(lines) + "\n"


def exercise_counts() -> dict[str, int]:
    """How many exercises there are, and how many hours they take, in all and by chapter."""
    found = {"exercises": len(catalogue())}
    for chapter in teachable():
        own = of_chapter(chapter)
        found[f"exercises_{chapter}"] = len(own)
        found[f"exercise_hours_{chapter}"] = round(sum(one.minutes for one in own) / 60)
    return found
