"""What a teacher hands out: student copies of the chapters, and slides, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from attnlib import ledger
from attnlib.editions import load_edition, notebook_path, project_root
from attnlib.errors import UnknownName, did_you_mean
from attnlib.exercises import catalogue
from attnlib.slides import write_slides
from attnlib.students import write_student_copy


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
    bibliography, written = root / "book" / "references.bib", []
    for name in chosen:
        target = out / "notebooks" / f"{name}.ipynb"
        written.append(write_student_copy(notebook_path(name), bibliography, target))
        say(f"{name}: student copy in {target}")
        if name not in executed:
            how = f"Run `attnlib book pocket --only {name}`, then teach with `--edition pocket`."
            say(f"{name}: no slides, since the {edition} edition has not run it here. {how}")
            continue
        page = root / "book" / "teach" / f"{name}.md"
        target = out / "slides" / f"{name}.html"
        told = {"bibliography": bibliography, "teaching": page}
        written.append(write_slides(executed[name], target, **told))
        say(f"{name}: slides in {target}")
    return written
