"""Slides of a chapter, made from its executed notebook: headings, figures, captions, verdicts.

Figures and verdicts are those that the outputs of the notebook carry as metadata. The page is
slides.html, with slides.css and slides.js inside it: one file that opens from disk.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bookkit.claims import CLAIMS, FIGURES
from bookkit.errors import NotebookError
from bookkit.pagetables import BADGES, Row, claim_cells, shown_verdict
from bookkit.teach.exercises import LEVELS, of_chapter
from bookkit.teach.plain_markdown import Words, plain_markdown, quoted_numbers
from bookkit.templates import filled

HERE = Path(__file__).parent
LONGEST_AFTER = 330  # letters of the paragraph that follows what the paper asked
LONGEST_LEAD = 130  # letters of a sentence that a slide shows as it is
MOST_VERDICTS = 4  # beneath a figure; the others are in the notes
MOST_FAILED = 6

_HEADING = re.compile(r"^#{1,4}\s+(.*)$", re.M)
_PLACE = re.compile(r"\s*\(((?:Sec|Fig|Table|Tables|Eq)[^)]*)\)\s*$")

Cell = Mapping[str, Any]


def deck(
    cells: Sequence[Cell],
    chapter: str,
    *,
    papers: Mapping[str, tuple[str, str]],
    rows: Sequence[Row] = (),
    teaching: str = "",
) -> str:
    """The slides of an executed chapter as one page.

    rows      of the ledger: the chapter's claims, judged
    papers    names and years by key, for citations
    teaching  the chapter's page for teachers, from which the discussion questions come
    """
    words = Words(papers, quoted=quoted_numbers(cells))
    first = plain_markdown("".join(cells[0]["source"]), words)
    title = _HEADING.search(first)
    if title is None:
        raise NotebookError(f"{chapter} does not begin with a heading; expected `# Title`.")
    rows = [{**row, **_on_slide(row)} for row in rows]
    figures = list(figures_of(cells, words, rows))
    if not figures:
        raise NotebookError(f"{chapter} has no figures. Run it first: `attnlib run {chapter}`.")
    counts = [
        (kind, verdict, sum(row["shown"] == verdict for row in rows))
        for verdict, (kind, _) in BADGES.items()
    ]
    before, _, quoted = first.partition("\n> ")
    return filled(
        HERE / "slides.html",
        title=title[1],
        about=_about(first),
        model=next((row["model"] for row in rows if row.get("model")), ""),
        rows=rows,
        counts=[one for one in counts if one[2]],
        asked=_items(before),
        after=_after(before),
        goals=_items(re.sub(r"^> ?", "", quoted, flags=re.M)),
        figures=figures,
        failed=[row for row in rows if row["shown"] in ("fails", "undecided")],
        most_failed=MOST_FAILED,
        questions=discussion(plain_markdown(teaching, words)),
        exercises=of_chapter(chapter),
        levels=LEVELS,
        badges=BADGES,
        style=(HERE / "slides.css").read_text(encoding="utf-8"),
        script=(HERE / "slides.js").read_text(encoding="utf-8"),
        **{"inline": _inline, "lead": _lead, "size": _size, "place": _place},
    )


@dataclass(frozen=True)
class Figure:
    """A figure with the heading above it and the claims beneath it.

    ratio   of its width to its height
    claims  the claims beneath it, judged
    """

    heading: str
    title: str
    name: str
    svg: str
    caption: str
    ratio: float
    claims: Sequence[Row]

    @property
    def shown(self) -> list[Row]:
        """The claims that fit on the slide; those that failed go first."""
        ranked = sorted(self.claims, key=lambda one: one["shown"] == "holds")
        return [one for one in self.claims if one in ranked[:MOST_VERDICTS]]


def _on_slide(row: Row) -> dict[str, str]:
    """The words of a claim on a slide."""
    cells = claim_cells(row)
    return {"shown": shown_verdict(row), "paper_text": cells["paper"], "ours_text": cells["ours"]}


def figures_of(cells: Sequence[Cell], words: Words, rows: Sequence[Row]) -> Iterator[Figure]:
    """Every figure that the outputs of a chapter carry, in their order, with its claims."""
    judged = {row["id"]: row for row in rows}
    heading = ""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            headings = _HEADING.findall(plain_markdown("".join(cell["source"]), words))
            heading = headings[-1] if headings else heading
        for output in cell.get("outputs", []):
            carried = output.get("metadata", {})
            for one in carried.get(FIGURES, []):
                start, end = one["svg"]
                svg = "".join(output["data"]["text/html"])[start:end]
                if not (svg.startswith("<svg") and svg.endswith("</svg>")):
                    raise NotebookError(f"a figure of '{heading}' was changed after it was drawn.")
                ratio = one["size"][0] / one["size"][1]
                claims = [judged[name] for name in carried.get(CLAIMS, []) if name in judged]
                name = one.get("name", "")
                title = _PLACE.sub("", heading) + (f": {name}" if name else "")
                yield Figure(heading, title, name, svg, one["caption"], ratio, claims)


def discussion(teaching: str) -> list[tuple[str, str]]:
    """(question, what a good answer notices) of a chapter's page for teachers."""
    part = re.search(r"^## Discussion.*?\n(.*?)(?=^## |\Z)", teaching, re.M | re.S)
    items = re.findall(
        r"^\d+\. \*\*(.*?)\*\*(.*?)(?=^\d+\. |\Z)", part[1] if part else "", re.M | re.S
    )
    return [(_one_line(question), _one_line(answer)) for question, answer in items]


# --- the text of the first cell -------------------------------------------------------------------


def _about(text: str) -> str:
    """The line on the paper, beneath the title."""
    found = re.search(r"^\*(After .*?)\*$", text, re.M | re.S)
    return found[1] if found else ""


def _items(text: str) -> list[str]:
    return [_one_line(one) for one in re.findall(r"^- (.*?)(?=^- |^\s*$|\Z)", text, re.M | re.S)]


def _after(text: str) -> str:
    """The paragraph after the list of what the paper asked, if it is short and about the paper."""
    after = _one_line(text.rpartition("\n- ")[2].partition("\n\n")[2].partition("\n\n")[0])
    return after if len(after) < LONGEST_AFTER and not after.startswith("This chapter") else ""


# --- text as a slide shows it ---------------------------------------------------------------------


def _inline(text: str) -> str:
    """Code, bold, italic and formulas of a line of markdown as HTML."""
    shown = html.escape(_one_line(text), quote=False)
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", shown)
    shown = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", shown)
    shown = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<i>\1</i>", shown)
    return re.sub(r"\$([^$]+)\$", r"<i>\1</i>", shown)


def _lead(text: str) -> str:
    """The first sentence; of a long one what comes before its list."""
    first = text.partition(". ")[0].rstrip(".")
    if len(first) >= LONGEST_LEAD and first.find(": ") > 20:
        first = first.partition(": ")[0]
    return f"{first}." if first else ""


def _place(heading: str) -> str:
    """The place in the paper that a heading ends with, such as "Fig. 2"."""
    found = _PLACE.search(heading)
    return found[1] if found else ""


def _size(items: Sequence[str]) -> str:
    """The class of a list: smaller type before it gets too long for its slide."""
    letters = sum(map(len, items))
    return "most" if letters > 1100 else "many" if letters > 620 or len(items) > 6 else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
