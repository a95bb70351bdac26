"""Pages changed without a run: newer prose, second models, chapters that are not here."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from bookkit.executed import code_of

Cell = dict[str, Any]
Notebook = dict[str, Any]

_EXERCISE = re.compile(r"^(`{3,})\{(?:exercise|solution)\}.*?^\1[ \t]*(?:\n|\Z)", re.M | re.S)
_DEFINED = re.compile(
    r"^\(([\w.:-]+)\)=[ \t]*$"  # (label)=
    r"|^\$\$[ \t]*\(([\w.:-]+)\)[ \t]*$"  # $$ (label)
    r"|^:(?:label|name):[ \t]*([\w.:-]+)[ \t]*$",  # of a directive
    re.M,
)


def with_prose_of(source: Notebook, executed: Notebook) -> Notebook | None:
    """The executed notebook with the text of its source as it stands today.

    A sentence that was mended needs no hour of computing. None if the code has changed since: then
    the outputs are no longer those of the source.
    """
    if code_of(executed) != code_of(source):
        return None
    left = filter(_is_code, executed["cells"])
    cells = [next(left) if _is_code(cell) else copy.deepcopy(cell) for cell in source["cells"]]
    return {**executed, "cells": cells}


def as_variant(executed: Notebook, home: str, suffix: str) -> Notebook:
    """An executed chapter as a second page of the same book: for another model, say.

    home  the chapter's own page, which keeps the exercises: they would be the same
    Labels get the suffix, since a label may stand only once in a book; the title gets it, too.
    """
    book = copy.deepcopy(executed)
    texts = [cell for cell in book["cells"] if cell["cell_type"] == "markdown"]
    for cell in texts:
        text, n_cut = _EXERCISE.subn("", _source(cell))
        there = f"\n\nThey stand [in the chapter itself](./{home}.ipynb).\n" if n_cut else ""
        cell["source"] = text.rstrip() + there
    labels = {one for cell in texts for match in _DEFINED.findall(_source(cell)) for one in match}
    for cell in texts:
        cell["source"] = _relabelled(_source(cell), labels - {""}, suffix)
    if texts:
        texts[0]["source"] = re.sub(
            r"^# (.*)$", rf"# \1: {suffix}", _source(texts[0]), count=1, flags=re.M
        )
    return book


def title_of(book: Notebook) -> str:
    """The title of a chapter: its first heading."""
    texts = (_source(cell) for cell in book["cells"] if not _is_code(cell))
    found = (re.search(r"^# (.+)$", text, re.M) for text in texts)
    return next((match[1].strip() for match in found if match), "")


def naming(text: str, absent: Mapping[str, str]) -> str:
    """The text of a page with the chapters that are not here named, not linked.

    absent  pages of chapters that a build leaves out -> their titles
    """
    if not absent:
        return text
    either = "|".join(map(re.escape, absent))
    folder = r"(?:(?:/|(?:\.\.?/)+)?notebooks/|\./(?=[\w-]+\.ipynb))"
    place = rf"{folder}(?P<page>{either})(?:\.(?:ipynb|md|html))?(?:#[^\s)>`\"]*)?"

    def name(match: re.Match[str]) -> str:
        words = (match["words"] or "").strip()
        return words or f"*{absent[match['page']]}* (not in this build)"

    for link in (
        rf"\[(?P<words>[^\[\]]*)\]\({place}\)",
        rf"\{{doc\}}`(?:(?P<words>[^`<]+)<)?{place}>?`",
        rf'<a href="{place}"[^>]*>(?P<words>.*?)</a>',
    ):
        text = re.sub(link, name, text)
    return text


def naming_in(book: Notebook, absent: Mapping[str, str]) -> Notebook:
    """The notebook with the chapters that are not here named in its prose, not linked."""
    cells = [
        cell if _is_code(cell) else {**cell, "source": naming(_source(cell), absent)}
        for cell in book["cells"]
    ]
    return {**book, "cells": cells}


def _relabelled(text: str, labels: set[str], suffix: str) -> str:
    """The text with every one of its labels, where it stands and where it is referred to."""
    if not labels:
        return text
    either = "|".join(sorted(map(re.escape, labels), key=len, reverse=True))
    places = (
        rf"(^\()({either})(\)=)",
        rf"(^\$\$[ \t]*\()({either})(\))",
        rf"(^:(?:label|name):[ \t]*)({either})([ \t]*$)",
        rf"(\]\(#)({either})(\))",
        rf"(\{{(?:eq|ref|numref|doc)\}}`(?:[^`<]*<)?)({either})(>?`)",
    )
    for place in places:
        text = re.sub(place, rf"\1\2-{suffix}\3", text, flags=re.M)
    return text


def _source(cell: Cell) -> str:
    return "".join(cell["source"])


def _is_code(cell: Cell) -> bool:
    return bool(cell["cell_type"] == "code")
