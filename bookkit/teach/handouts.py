"""What a teacher hands out: student copies and slides of the chapters, and lists of exercises."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from bookkit.editions import load_edition, notebook_path
from bookkit.errors import unknown
from bookkit.executed import executed_notebooks
from bookkit.ledger import judged_rows
from bookkit.project import project_root
from bookkit.teach.exercises import LEVELS, catalogue, of_chapter
from bookkit.teach.plain_markdown import papers_of
from bookkit.teach.slides import deck
from bookkit.teach.students import student_copy
from bookkit.templates import filled

HERE = Path(__file__).parent


def teachable() -> list[str]:
    """The chapters that have exercises."""
    return list(dict.fromkeys(one.chapter for one in catalogue().values()))


def teach(chapters: Iterable[str], out: Path, *, edition: str) -> None:
    """Write the student copy and the slides of every chapter.

    edition  whose executed chapters the slides show; a chapter that was not run has no slides yet
    """
    known = teachable()
    chosen = list(chapters) or known
    for name in chosen:
        if name not in known:
            raise unknown("chapter", name, known)
    ran = executed_notebooks(project_root(), load_edition(edition).name)
    executed = {path.stem: path for path in ran}
    for name in chosen:
        if name not in executed:
            how = f"Run `attnlib book pocket --only {name}`, then teach with `--edition pocket`."
            print(f"{name}: no slides, since the {edition} edition has not run it here. {how}")
    for name, text in hand_outs(chosen, executed).items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        kind = "slides" if path.suffix == ".html" else "student copy"
        print(f"{path.stem}: {kind} in {path}")


def hand_outs(chapters: Iterable[str], executed: Mapping[str, Path]) -> dict[str, str]:
    """Student copies of some chapters, and slides of those that were run, by their places.

    The same notebooks always give the same files.
    executed  chapter -> its executed notebook
    """
    book, texts = project_root() / "book", {}
    papers = papers_of(_text(book / "references.bib"))
    for name in chapters:
        source = json.loads(notebook_path(name).read_text(encoding="utf-8"))
        copy = student_copy(source, papers)
        text = json.dumps(copy, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        texts[f"notebooks/{name}.ipynb"] = text
        if name in executed:
            cells = json.loads(executed[name].read_text(encoding="utf-8"))["cells"]
            teaching = _text(book / "teach" / f"{name}.md")
            rows = list(judged_rows(executed[name]))
            slides = deck(cells, name, papers=papers, rows=rows, teaching=teaching)
            texts[f"slides/{name}.html"] = slides
    return texts


def _text(path: Path) -> str:
    """The text of a file that a book may have."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


# --- parts of the pages for teachers --------------------------------------------------------------


def parts_for_teachers(executed: Collection[str]) -> dict[str, str]:
    """For every chapter its exercises by level; and links to slides and student copies of all."""
    chapters = teachable()
    parts = {
        f"book/_generated/exercises_{name}.md": filled(
            HERE / "exercises.md", exercises=of_chapter(name), levels=LEVELS
        )
        for name in chapters
    }
    links = filled(HERE / "handouts.md", chapters=chapters, executed=executed)
    return parts | {"book/_generated/handouts.md": links}


def exercise_counts() -> dict[str, int]:
    """How many exercises there are, and how many hours they take, in all and by chapter."""
    found = {"exercises": len(catalogue())}
    for chapter in teachable():
        own = of_chapter(chapter)
        found[f"exercises_{chapter}"] = len(own)
        found[f"exercise_hours_{chapter}"] = round(sum(one.minutes for one in own) / 60)
    return found
