"""Pages, and parts of them, that are mostly text: templates beside the code that fills them."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _template(path: Path) -> Any:
    from jinja2 import Environment, StrictUndefined

    pages = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    pages.filters["e"] = html.escape
    text = path.read_text(encoding="utf-8")
    return pages.from_string(re.sub(r"\n\s*", "", text) if path.suffix == ".html" else text)


def filled(path: Path, **values: Any) -> str:
    """A template with these values in it; what may hold markup is escaped by its filter `e`.

    Lines of an HTML template are there for the eye: they are joined.
    """
    return _template(path).render(values)
