"""What a teacher hands out: student copies of the chapters, and slides, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from attnlib.errors import UnknownName, did_you_mean
from bookkit import ledger
from bookkit.editions import load_edition, notebook_path, project_root
from bookkit.teach.exercises import catalogue
from bookkit.teach.slides import write_slides
from bookkit.teach.students import write_student_copy


def teachable() -> list[str]:
    """The chapters that have exercises."""
    return list(dict.fromkeys(one.chapter for one in catalogue().values()))


def teach(
    chapters: Iterable[str] = (),
    out: Path = Path("teaching"),
    *,
    edition: str = "standard",
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Write the student copy and the slides of every chapter; the paths of the files.

    edition  whose executed chapters the slides show; a chapter that was not run has no slides yet
    """
    root, known = project_root(), teachable()
    chosen = list(chapters) or known
    for name in chosen:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UnknownName(f"chapter '{name}'. {hint}Chapters to teach: {', '.join(known)}.")
    executed = {p.stem: p for p in ledger.executed_notebooks(root, load_edition(edition).name)}
    for name in chosen:
        if name not in executed:
            how = f"Run `attnlib book pocket --only {name}`, then teach with `--edition pocket`."
            say(f"{name}: no slides, since the {edition} edition has not run it here. {how}")
    written = hand_out(chosen, executed, out)
    for path in written:
        kind = "slides" if path.suffix == ".html" else "student copy"
        say(f"{path.stem}: {kind} in {path}")
    return written


def hand_out(chapters: Iterable[str], executed: Mapping[str, Path], out: Path) -> list[Path]:
    """Write student copies of some chapters, and slides of those that were run.

    executed  chapter -> its executed notebook
    """
    root, written = project_root(), []
    bibliography = root / "book" / "references.bib"
    for name in chapters:
        target = out / "notebooks" / f"{name}.ipynb"
        written.append(write_student_copy(notebook_path(name), bibliography, target))
        if name in executed:
            told = {"bibliography": bibliography, "teaching": root / f"book/teach/{name}.md"}
            target = out / "slides" / f"{name}.html"
            written.append(write_slides(executed[name], target, **told))
    return written
