"""MyST markdown of the chapters as plain markdown, for places where no Sphinx will read it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BLANK = "▢"
"""Stands where the book prints a number of its own run."""

_ROLE = re.compile(r"\{(glue:text|cite:[a-z]+|eq|ref|doc|numref)\}`([^`]+)`")
_ANCHOR = re.compile(r"^\([\w-]+\)=(?:\n|\Z)", re.M)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)\s]+\)")
_NUMBERED = re.compile(r"^\$\$[ \t]*\(([\w-]+)\)[ \t]*$", re.M)
_ADMONITION = re.compile(
    r"^:::\{\w+\}[ \t]*([^\n]*)\n((?::\w+:[^\n]*\n)*)(.*?)^:::[ \t]*$", re.M | re.S
)
_TERM = re.compile(r"^([^\s:>|#-].*)\n:[ ]+", re.M)


@dataclass(frozen=True)
class Words:
    """What roles stand for: names of papers, numbers of equations, numbers of a run."""

    papers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    equations: Mapping[str, int] = field(default_factory=dict)
    quoted: Mapping[str, Any] = field(default_factory=dict)


def plain_markdown(text: str, words: Words) -> str:
    """The same text without roles, anchors, links into the book, and directives."""
    text = _ANCHOR.sub("", text)
    text = _ADMONITION.sub(_as_quotation, text)
    text = _NUMBERED.sub(lambda m: f"\\tag{{{words.equations.get(m[1], '')}}}\n$$", text)
    text = _TERM.sub(r"**\1** – ", text)
    return _LINK.sub(r"\1", _ROLE.sub(lambda m: _said(m[1], m[2], words), text))


def equation_numbers(texts: Iterable[str]) -> dict[str, int]:
    """The labelled equations of a chapter, counted from 1."""
    labels = [label for text in texts for label in _NUMBERED.findall(text)]
    return {label: number for number, label in enumerate(labels, start=1)}


def papers_of(bibliography: str) -> dict[str, tuple[str, str]]:
    """(authors as one cites them, year) by key, from a BibTeX file."""
    from pybtex.database import parse_string

    found = {}
    for key, entry in parse_string(bibliography, "bibtex").entries.items():
        people = entry.persons.get("author", [])
        names = [" ".join(one.prelast_names + one.last_names) for one in people] or [key]
        cited = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
        found[key] = (cited, entry.fields.get("year", ""))
    return found


def quoted_numbers(cells: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What an executed notebook has glued, by name."""
    found = {}
    for output in (one for cell in cells for one in cell.get("outputs", [])):
        name = output.get("metadata", {}).get("scrapbook", {}).get("name")
        if name:
            text = "".join(output["data"].get("application/papermill.record/text/plain", ""))
            found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    try:
        return float("nan") if text == "nan" else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _said(role: str, given: str, words: Words) -> str:
    if role == "eq":
        return f"({words.equations.get(given, '?')})"
    if role in ("ref", "doc", "numref"):  # `words <target>`, or a target that speaks for itself
        return given.partition(" <")[0].rpartition("/")[2]
    if role == "glue:text":
        name, _, how = given.rpartition("::")[2].partition(":")
        return _formatted(words.quoted[name], how) if name in words.quoted else BLANK
    keys = [key.strip() for key in given.split(",")]
    known = [words.papers.get(key, (key, "")) for key in keys]
    if role == "cite:author":
        return ", ".join(names for names, _ in known)
    if role == "cite:p":
        return "(" + "; ".join(f"{names}, {year}" for names, year in known) + ")"
    return ", ".join(f"{names} ({year})" for names, year in known)


def _formatted(value: Any, how: str) -> str:
    try:
        return format(value, how)
    except (TypeError, ValueError):
        return str(value)


def _as_quotation(found: re.Match[str]) -> str:
    """An admonition as a block that any notebook shows set apart."""
    lines = [f"**{found[1].strip()}**", "", *found[3].strip().splitlines()]
    return "\n".join(f"> {line}".rstrip() for line in lines)
