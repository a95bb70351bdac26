"""What a notebook shows of a figure: drawing, caption and alt text, in the page's own colours."""

from __future__ import annotations

import hashlib
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from attnlib.errors import BadValue
from attnlib.plots import style

FIGURES = "attnlib.figures"
"""Under this name the output of a notebook says what is drawn in it, as metadata."""


@dataclass(frozen=True)
class Drawing:
    """A figure with its caption, its alt text and the rows it shows; a notebook shows all of it.

    kind  what a person who cannot see it is told first, such as "Lines over layers"
    """

    kind: str
    figure: Figure
    table: pd.DataFrame = field(repr=False)
    caption: str = ""

    def __post_init__(self) -> None:
        vars(self).update(table=self.table.reset_index(drop=True))

    @property
    def alt(self) -> str:
        return f"{self.kind}. {self.caption}".strip()

    def said(self, caption: str) -> Drawing:
        """The same figure with a caption: what there is to see, and how to read the marks."""
        return replace(self, caption=true_minus(caption))

    def svg(self) -> str:
        """The figure as SVG for the inside of a page: own ids, and the page's colour as ink."""
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        with style.drawing():
            self.figure.savefig(buffer, format="svg", metadata=nothing)
        return _inline_svg(buffer.getvalue(), self.alt, self.figure.get_figwidth())

    def save(self, path: str | Path) -> Path:
        """Write the figure to a file of any format matplotlib knows, on white."""
        self.figure.savefig(path, dpi=200, facecolor="white", bbox_inches="tight")
        return Path(path)

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()[0]["text/html"]

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        """The figure for a page; for programs its texts, and from where to where the SVG goes."""
        start, svg = '<figure class="attn-figure">', self.svg()
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>"
        size = [round(float(inches), 3) for inches in self.figure.get_size_inches()]
        place = [len(start), len(start) + len(svg)]
        told = {"caption": self.caption, "alt": self.alt, "size": size, "svg": place}
        return {"text/html": f"{start}{svg}{caption}</figure>"}, {FIGURES: [told]}


def _inline_svg(raw: str, alt: str, width: float) -> str:
    """Fit a raw SVG for a page: no prologue, no global rule, no id that two figures share."""
    body = raw[raw.index("<svg") :]
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"\s*<defs>\s*<style.*?</style>\s*</defs>", "", body, count=1, flags=re.S)
    prefix = "f" + hashlib.sha256(body.encode()).hexdigest()[:8]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}-", body)
    body = body.replace(style.INK, "currentColor").replace("'DejaVu Sans'", _FONTS)
    view = re.search(r'viewBox="[^"]+"', body)
    head = (
        f'<svg role="img" aria-label="{html.escape(alt, quote=True)}" {view[0] if view else ""} '
        f'style="width:100%;max-width:{width:.2f}in;stroke-linejoin:round;stroke-linecap:butt" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return head + re.sub(r"\n\s*\n", "\n", body[body.index(">") + 1 :]).strip()


_FONTS = "system-ui, &#39;Segoe UI&#39;, &#39;Helvetica Neue&#39;, Arial, sans-serif"


def true_minus(text: str) -> str:
    """Numbers below 0 as a page prints them; a hyphen, as in head 5-4, stays one."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def need(table: pd.DataFrame, *columns: str, once: Sequence[str] = ()) -> None:
    """Refuse a table that a figure cannot be drawn from: `once` are columns that name a row."""
    missing = [name for name in columns if name not in table.columns]
    if missing:
        have = ", ".join(map(str, table.columns))
        raise BadValue(f"the table has no column {missing[0]}; it has {have}.")
    if table.empty:
        raise BadValue("the table has no row; there is nothing to draw.")
    if once and table.duplicated([*once]).any():
        same = f"{', '.join(once[:-1])} and {once[-1]}"
        raise BadValue(f"two rows have the same {same}; give one.")
