"""Rows of scores: every row that is given is shown; ours solid, the paper's hollow."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D

from attnlib.plots.planes import head_map
from attnlib.plots.rows import labelled_scores, relation_accuracies
from tests.attnlib.plots.test_drawing import (
    NAN,
    PAPER,
    plane,
    relations,
    scores,
)


def hollow(panel: Axes) -> list[Line2D]:
    return [line for line in panel.lines if line.get_markerfacecolor() == "none"]


def solid(panel: Axes, label: str) -> Line2D:
    (found,) = (line for line in panel.lines if line.get_label() == label)
    assert found.get_markerfacecolor() != "none"
    return found


def places(line: Line2D) -> dict[int, float]:
    """Row -> value of the marks that are drawn."""
    pairs = zip(np.asarray(line.get_ydata()), np.asarray(line.get_xdata()), strict=True)
    return {int(y): float(x) for y, x in pairs if np.isfinite(x)}


def test_relations_are_sorted_with_all_of_them_on_top() -> None:
    drawing = relation_accuracies(relations(), PAPER)
    (panel,) = drawing.figure.axes
    names = [text.get_text() for text in panel.get_yticklabels()]
    assert names == ["all", "det", "nn", "iobj"] == list(drawing.table["relation"])
    assert panel.yaxis_inverted()


def test_each_mark_of_a_relation_stands_at_its_value() -> None:
    (panel,) = relation_accuracies(relations(), PAPER).figure.axes
    assert places(solid(panel, "best head")) == {0: 36, 1: 91, 2: 60}
    assert places(solid(panel, "best offset")) == {0: 26, 1: 52, 2: 70}
    assert places(solid(panel, "chosen on other data")) == {0: 35, 1: 90, 2: 58}
    (theirs,) = hollow(panel)
    assert places(theirs) == {0: 34.5, 1: 94.3}
    assert panel.get_xlim() == (0, 100)


def test_without_a_paper_nothing_is_hollow() -> None:
    (panel,) = relation_accuracies(relations()).figure.axes
    assert hollow(panel) == []


def test_heads_and_directions_are_written_and_missing_rows_say_so() -> None:
    drawing = relation_accuracies(relations(), PAPER)
    texts = [text.get_text() for text in drawing.figure.axes[0].texts]
    assert {"8-11", "dep→head", "head→dep", "1,234", "not measured"} <= set(texts)
    det = drawing.table.set_index("relation").loc["det"]
    assert (det["accuracy"], det["head"], det["baseline"]) == (91, "8-11", 52)


def test_nothing_is_written_beyond_the_edge_of_the_figure() -> None:
    large = relations().assign(n=[123_456, 98_765, 72_126, 0])
    for drawing in (relation_accuracies(large, PAPER), head_map(plane())):
        canvas = FigureCanvasAgg(drawing.figure)
        canvas.draw()
        for panel in [*drawing.figure.axes, *drawing.figure.axes[0].child_axes]:
            for text in [*panel.texts, panel.xaxis.label]:
                if text.get_text():
                    box = text.get_window_extent()
                    assert box.x0 >= 0 and box.x1 <= drawing.figure.bbox.x1, text.get_text()
                    assert box.y0 >= 0 and box.y1 <= drawing.figure.bbox.y1, text.get_text()
    texts = {
        text.get_text(): text for text in relation_accuracies(large, PAPER).figure.axes[0].texts
    }
    assert texts["123,456"].get_position()[0] > texts["dep→head"].get_position()[0] + 60


def test_groups_are_small_multiples_with_the_same_rows() -> None:
    paper = {("head", "pronoun"): 64.0, ("neural", "all"): 83.0}
    drawing = labelled_scores(scores(), paper, group="kind")
    one, other = drawing.figure.axes
    names = ["nearest", "head match", "head", "neural"]
    assert [text.get_text() for text in one.get_yticklabels()] == names
    assert (one.get_title("left"), other.get_title("left")) == ("all", "pronoun")
    assert places(solid(one, "ours")) == {0: 20, 1: 30, 2: 40}
    assert places(solid(other, "ours")) == {0: 21, 1: 31, 2: 41}
    assert places(*hollow(one)) == {3: 83}
    assert places(*hollow(other)) == {2: 64}


def test_a_single_panel_writes_its_numbers() -> None:
    table = scores()[scores()["kind"] == "all"]
    drawing = labelled_scores(table, {"head": 65.0}, unit="UAS")
    texts = {text.get_text() for text in drawing.figure.axes[0].texts}
    assert {"40.0 [38.0, 42.0]", "65", "the paper"} <= texts
    assert drawing.figure.axes[0].get_xlabel() == "UAS"


def test_undefined_scores_keep_their_row_without_a_mark() -> None:
    table = scores()[scores()["kind"] == "all"].reset_index(drop=True)
    table.loc[1, ["value", "low", "high"]] = NAN
    drawing = labelled_scores(table)
    (panel,) = drawing.figure.axes
    assert len(panel.get_yticklabels()) == 3
    assert places(solid(panel, "ours")) == {0: 20, 2: 40}


def test_other_units_have_an_axis_that_holds_every_value() -> None:
    table = pd.DataFrame({"label": ["a", "b"], "value": [-2.0, 3.0], "low": NAN, "high": NAN})
    low, high = labelled_scores(table, {"a": 5.0}, unit="points").figure.axes[0].get_xlim()
    assert low < -2 and high > 5


def test_a_band_of_chance_lies_behind_each_row_of_its_panel() -> None:
    table = scores().assign(null_low=10.0, null_high=[25.0, 30.0] * 3)
    drawing = labelled_scores(table, group="kind", band="without clusters")
    for panel, high in zip(drawing.figure.axes, (25, 30), strict=True):
        (band,) = panel.containers
        ends = {(bar.get_x(), bar.get_x() + bar.get_width()) for bar in band.patches}  # type: ignore[attr-defined]
        assert band.get_label() == "without clusters" and ends == {(10, high)}
        assert places(solid(panel, "ours")).keys() == {0, 1, 2}
    (legend,) = drawing.figure.legends
    assert {text.get_text() for text in legend.get_texts()} == {"ours", "without clusters"}


def test_titles_of_narrow_panels_do_not_touch() -> None:
    names = [f"same form, other kind of text: corpus-{i}" for i in range(4)]
    rows = [{"label": "a", "value": 0.4, "low": 0.3, "high": 0.5, "g": name} for name in names]
    figure = labelled_scores(pd.DataFrame(rows), unit="kappa", group="g").figure
    FigureCanvasAgg(figure).draw()
    boxes = [panel._left_title.get_window_extent() for panel in figure.axes]  # type: ignore[attr-defined]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert all(box.y1 <= figure.bbox.y1 for box in boxes)
    assert figure.axes[0].get_title(loc="left").endswith("of text:\ncorpus-0")
