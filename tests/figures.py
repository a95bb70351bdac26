"""What every figure of the book is held to: readable, uncut, told in words, colours kept apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing


def check_readable(drawing: Drawing, *, largest: int, unwanted: str = r"\bnan\b") -> None:
    """Caption, alt text, size and lettering of a figure on a page."""
    assert drawing.caption.endswith(".") and drawing.alt.endswith(".")
    assert len(drawing.table) > 0
    assert not re.search(unwanted, drawing.caption + drawing.alt)
    page = drawing._repr_html_()
    assert 'role="img"' in page and "currentColor" in page and style.INK not in page
    assert len(page) < largest
    drawing.figure.set_dpi(72)  # as it was laid out for the page
    shown = painted(drawing.figure)
    assert min(one.get_fontsize() for one in shown) >= 7
    assert overlapping(drawing.figure, shown) == [], drawing.alt[:60]


def check_uncut(drawing: Drawing) -> None:
    """All words lie within the figure."""
    figure = drawing.figure
    figure.set_dpi(72)
    canvas = FigureCanvasAgg(figure)
    with style.drawing():
        canvas.draw()
    for text in painted(figure):
        box = text.get_window_extent(canvas.get_renderer())
        inside = min(box.x0, box.y0) >= -1
        inside &= box.x1 <= figure.bbox.width + 1 and box.y1 <= figure.bbox.height + 1
        assert inside, f"'{text.get_text()}' in {drawing.alt[:60]}"


def check_tables(make: Callable[..., Drawing], tables: Sequence[pd.DataFrame], column: str) -> None:
    """A lost column or an empty table is named; tables stay as they are."""
    first, *rest = tables
    with pytest.raises(BadValue, match=f"no column {column}"):
        make(first.drop(columns=column), *rest)
    with pytest.raises(BadValue, match="has no row"):
        make(first.iloc[:0], *rest)
    before = [table.copy() for table in tables]
    make(*tables)
    for table, old in zip(tables, before, strict=True):
        pd.testing.assert_frame_equal(table, old)


def overlapping(figure: Figure, shown: list[Text]) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes share more than their rims; slanted texts have no box."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    level = [one for one in shown if one.get_rotation() in (0, 90)]
    boxes = [(one.get_text(), one.get_window_extent(renderer).padded(-1.5)) for one in level]
    return [(a, b) for (a, i), (b, j) in combinations(boxes, 2) if i.overlaps(j)]


def painted(figure: Figure) -> list[Text]:
    """Every text one sees; ticks beyond an axis and axes that are switched off are not seen."""
    found: list[Text] = list(figure.texts)
    legends = [*figure.legends, *(panel.get_legend() for panel in figure.axes)]
    for legend in legends:
        found += legend.get_texts() if legend else []
    for panel in figure.axes:
        found += [*panel.texts, panel._left_title, panel._right_title]  # type: ignore[attr-defined]
        for axis in (panel.xaxis, panel.yaxis) if panel.axison else ():
            ticks = axis._update_ticks()  # type: ignore[attr-defined]
            found += [axis.label, *(tick.label1 for tick in ticks if tick.label1.get_visible())]
    return [text for text in found if text.get_text().strip()]


# What the three kinds of colour blindness leave of linear red, green and blue (Machado 2009).
BLIND = (
    np.eye(3),
    [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
)
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(colour: str, seen: Any) -> np.ndarray:
    """A colour as an eye sees it, in a space where distances are what people notice."""
    srgb = np.array(to_rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(np.array(seen) @ linear, 0, 1) / XYZ.sum(1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def closest(colours: list[str]) -> float:
    """How far apart the two colours are that some eye can tell apart least."""
    pairs = product(combinations(colours, 2), BLIND)
    return min(float(np.linalg.norm(lab(a, seen) - lab(b, seen))) for (a, b), seen in pairs)
