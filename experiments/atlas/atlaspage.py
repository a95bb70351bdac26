"""The atlas as a page: a grid of heads in any colour, a card for each, a search; needs nothing."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlib.files import check_out, write_whole
from attnlib.plots.viewer import PAGE, SLEEPING, asset, script, shown_name
from experiments.atlas.atlas import Atlas
from experiments.atlas.atlascolumns import page_data

CHAPTER = "Do four papers speak of the same heads?"
"""The chapter that draws the atlas. A page on its own has no book around it, so it is named."""
_HERE = Path(__file__).parent
SCRIPTS: tuple[str | Path, ...] = (
    "viewdraw.js",
    *(_HERE / f"atlas{part}.js" for part in ("search", "card", "")),
)


@dataclass(frozen=True, eq=False)
class AtlasView:
    """An atlas that a notebook shows and that can be saved as a page.

    book_root  the way from the page to the root of the book, such as "../"; without it the places
               in the book that discuss a fact are not linked
    """

    atlas: Atlas
    book_root: str | None = None

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all."""
        target = Path(path)
        check_out(target)
        return write_whole(target, page(self.atlas, self.book_root))

    def _repr_html_(self) -> str:
        return fragment(self.atlas, self.book_root)


def page(atlas: Atlas, book_root: str | None = None) -> str:
    """A whole document: it opens from disk, without a network."""
    title = f"Atlas of the heads of {html.escape(shown_name(atlas.model))}"
    return PAGE.format(title=title, viewer=fragment(atlas, book_root))


def fragment(atlas: Atlas, book_root: str | None = None) -> str:
    """The atlas as a part of a page: no ids, all styles under .attn-atlas, no names in the page."""
    stored = json.dumps(page_data(atlas, book_root), ensure_ascii=False, separators=(",", ":"))
    sheets = "".join(
        f'<i hidden data-maps="{html.escape(sheet)}"></i>'
        for text in atlas.texts
        for sheet in text.sheets
    )
    # MathJax must leave tokens such as $ alone, and JupyterLab its shortcuts.
    return (
        '<figure class="attn-figure attn-atlas tex2jax_ignore mathjax_ignore" '
        f'data-lm-suppress-shortcuts="true" data-atlas="{html.escape(stored)}">'
        f"<style>{asset(_HERE / 'atlas.css')}</style>{sheets}"
        f'<div class="root"><p>{SLEEPING}</p></div>'
        f"<figcaption>{html.escape(_caption(atlas))}{_about(atlas)}</figcaption>"
        f"<script>{script(*SCRIPTS)}</script></figure>"
    )


def _caption(atlas: Atlas) -> str:
    return (
        f"The {len(atlas.heads)} attention heads of {shown_name(atlas.model)}, layers downwards, "
        f"heads from left to right, and what the chapter “{CHAPTER}” found out about each. "
        "Numbers are followed by their 95% interval."
    )


def _about(atlas: Atlas) -> str:
    if not atlas.about:
        return ""
    lines = "".join(
        f"<dt>{html.escape(name.replace('_', ' '))}</dt><dd>{html.escape(_said(told))}</dd>"
        for name, told in atlas.about.items()
    )
    return f"<details><summary>What it was made from</summary><dl>{lines}</dl></details>"


def _said(told: Any) -> str:
    """Something from a file, in words."""
    if isinstance(told, dict):
        return "; ".join(f"{name}: {_said(part)}" for name, part in told.items())
    if isinstance(told, list | tuple):
        return ", ".join(_said(part) for part in told)
    return str(told)
