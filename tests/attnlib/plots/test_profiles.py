"""Lines over the layers: a line per class with its band and its name."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.profiles import layer_lines
from attnlib.plots.style import class_look
from experiments.clark2019.surface import BEHAVIOURS
from tests.attnlib.plots.test_drawing import (
    NAN,
    gradients,
)


def test_each_class_is_a_line_with_its_band_and_name() -> None:
    (panel,) = layer_lines(gradients()).figure.axes
    assert len(panel.collections) == 3
    lines = [line for line in panel.lines if len(np.atleast_1d(line.get_xdata())) == 6]
    np.testing.assert_allclose(lines[0].get_ydata(), 0.5 / np.arange(1, 7))
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 3
    legend = panel.get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["[SEP]", "other tokens", "periods and commas"]  # as they end, from above
    assert panel.get_ylim()[0] == 0


def test_names_next_to_the_lines_do_not_overlap() -> None:
    figure = layer_lines(gradients()).figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    boxes = [text.get_window_extent(renderer) for text in legend.get_texts()]
    assert all(low.y1 <= high.y0 for high, low in pairwise(boxes))
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)


def test_layers_without_a_mean_are_gaps() -> None:
    table = gradients()
    table.loc[5, ["mean", "low", "high"]] = NAN
    (panel,) = layer_lines(table).figure.axes
    (line,) = (one for one in panel.lines if one.get_label() == "[SEP]")
    np.testing.assert_allclose(line.get_ydata(), [*(0.5 / np.arange(1, 6)), NAN])
    with pytest.raises(BadValue, match="no layer has a mean"):
        layer_lines(table.assign(mean=NAN))


def test_classes_have_the_colours_of_their_meaning() -> None:
    assert class_look("[SEP]") is style.LOOKS["special"]
    assert class_look("periods and commas") is style.LOOKS["punctuation"]
    assert class_look("previous") is style.LOOKS["previous"]
    assert class_look("dobj") is style.LOOKS["syntax"]
    assert len({class_look(name).marker for name in BEHAVIOURS}) == len(BEHAVIOURS)
