"""What slides are made of: figures, verdicts and questions, read from an executed chapter."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bookkit.teach.plainmyst import Words, plain_markdown

_FIGURE = re.compile(r'<figure class="attn-figure">(.*?)</figure>', re.S)
_NAMED = re.compile(r'<p class="attn-name">([^<]*)</p>\s*$')
_CAPTION = re.compile(r"<figcaption>(.*?)</figcaption>", re.S)
_ROW = re.compile(r'<tr><th data-name="claim">(.*?)</tr>', re.S)
_CELL = re.compile(r'<td data-name="([^"]+)">(.*?)</td>', re.S)
_QUIET = re.compile(r' <span class="quiet">.*?</span>', re.S)
HEADING = re.compile(r"^(#{1,4})\s+(.*)$", re.M)


@dataclass(frozen=True)
class Verdict:
    """One row of a table of claims, as a slide can say it."""

    where: str
    phenomenon: str
    verdict: str
    paper: str = ""
    ours: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure with the heading it stands under."""

    heading: str
    name: str
    svg: str
    caption: str
    verdicts: tuple[Verdict, ...] = field(default=())


def pictures(cells: Sequence[Mapping[str, Any]], words: Words) -> list[Picture]:
    """Every drawn figure, in the order of the chapter."""
    found: list[Picture] = []
    heading = ""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            headings = HEADING.findall(plain_markdown("".join(cell["source"]), words))
            heading = headings[-1][1] if headings else heading
        for output in cell.get("outputs", []):
            text = "".join(output.get("data", {}).get("text/html", ""))
            found += _pictures_of(text, heading)
    return found


def discussion(teaching: str) -> list[tuple[str, str]]:
    """(question, what a good answer notices) of a chapter's page for teachers."""
    part = re.search(r"^## Discussion.*?\n(.*?)(?=^## |\Z)", teaching, re.M | re.S)
    items = re.findall(
        r"^\d+\. \*\*(.*?)\*\*(.*?)(?=^\d+\. |\Z)", part[1] if part else "", re.M | re.S
    )
    return [(one_line(question), one_line(told)) for question, told in items]


def _pictures_of(text: str, heading: str) -> Iterator[Picture]:
    verdicts, at = tuple(_verdicts(text)), 0
    for found in _FIGURE.finditer(text):
        named = _NAMED.search(text[at : found.start()])
        caption = _CAPTION.search(found[1])
        svg = found[1][: caption.start()] if caption else found[1]
        told = html.unescape(caption[1]) if caption else ""
        yield Picture(heading, named[1] if named else "", svg.strip(), told, verdicts)
        at = found.end()


def _verdicts(text: str) -> Iterator[Verdict]:
    for row in _ROW.findall(text):
        where, cells = _bare(_QUIET.sub("", row.partition("</th>")[0])), dict(_CELL.findall(row))
        verdict = re.sub(r"<i\b.*?</i>", "", cells["verdict"])
        paper, ours = _bare(_QUIET.sub("", cells["paper"])), _bare(cells["ours"])
        yield Verdict(where, _bare(cells["phenomenon"]), _bare(verdict), paper, ours)


def _bare(text: str) -> str:
    return one_line(html.unescape(re.sub(r"<[^>]+>", "", text)))


def one_line(text: str) -> str:
    return " ".join(text.split())
