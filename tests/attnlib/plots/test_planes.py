"""Heads in a plane: every head is drawn, and no name covers another."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from attnlib.errors import BadValue
from attnlib.plots.planes import head_map
from tests.attnlib.plots.test_drawing import (
    NAN,
    plane,
)


def test_a_name_gives_way_to_other_points() -> None:
    """Eight points stand where the names of the outermost would go by themselves."""
    outer = pd.DataFrame({"x": [-1.0, 1.0, 1.0, -1.0], "y": [-1.0, -1.0, 1.0, 1.0]})
    ring = pd.concat([outer * 1.045, outer * [1.07, 1.045]])
    rows = pd.concat([outer, ring], ignore_index=True)
    rows = rows.assign(layer=1, head=np.arange(1, 13), behaviour="other")
    drawing = head_map(rows, named=["1-1", "1-2", "1-3", "1-4"])
    FigureCanvasAgg(drawing.figure).draw()
    panel = drawing.figure.axes[1]
    dots = panel.transData.transform(rows[["x", "y"]].to_numpy())
    for text in panel.texts:
        assert not any(text.get_window_extent().contains(*dot) for dot in dots), text.get_text()


def test_every_head_is_drawn_in_both_panels() -> None:
    left, right = head_map(plane()).figure.axes[:2]
    (dots,) = left.collections
    np.testing.assert_allclose(dots.get_offsets(), plane()[["x", "y"]])
    np.testing.assert_array_equal(dots.get_array(), plane()["layer"])
    assert sum(len(one.get_offsets()) for one in right.collections) == 12


def test_behaviours_differ_by_mark_and_the_legend_counts_them() -> None:
    panel = head_map(plane()).figure.axes[1]
    legend = panel.get_legend()
    assert legend is not None
    told = {text.get_text() for text in legend.get_texts()}
    assert {"other (2)", "[SEP] (1)", "broad (1)", "dobj (1)", "undefined (1)"} <= told
    shapes = [
        (one.get_paths()[0].vertices.round(3).tobytes(), one.get_sizes()[0])
        for one in panel.collections
    ]
    assert len(set(shapes)) == len(shapes)


def test_named_heads_are_the_outermost_and_never_overlap() -> None:
    drawing = head_map(plane(), named=12)
    names = [text.get_text() for text in drawing.figure.axes[1].texts]
    assert len(names) == 11  # two heads lie on one spot
    assert {"3-3", "3-4"} - set(names)
    chosen = head_map(plane(), named=["2-1"]).figure.axes[1].texts
    assert [text.get_text() for text in chosen] == ["2-1"]
    with pytest.raises(BadValue, match="'9-9' is not in the table"):
        head_map(plane(), named=["9-9"])


def test_both_axes_have_one_scale_and_a_round_bar_tells_it() -> None:
    left = head_map(plane()).figure.axes[0]
    assert left.get_aspect() == 1
    (bar,) = left.lines
    length = float(np.ptp(np.asarray(bar.get_xdata())))
    assert length == pytest.approx(0.2)
    assert "0.2 nats" in {text.get_text() for text in left.texts}


def test_heads_without_a_place_are_left_out() -> None:
    table = plane()
    table.loc[0, "x"] = NAN
    assert len(head_map(table).table) == 11
    with pytest.raises(BadValue, match="no head has a place"):
        head_map(table.assign(x=NAN))


def test_one_head_alone_can_be_drawn() -> None:
    head_map(plane().iloc[:1]).svg()
