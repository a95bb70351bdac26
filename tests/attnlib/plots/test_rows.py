"""Comparisons show every row they are given: ours solid, the paper's hollow."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing
from attnlib.plots.planes import head_map
from attnlib.plots.profiles import layer_lines
from attnlib.plots.rows import labelled_scores, relation_accuracies
from attnlib.plots.style import class_look
from experiments.clark2019.surface import BEHAVIOURS

NAN = math.nan
PAPER = {"det": {"value": 94.3, "baseline": 51.7}, "all": {"value": 34.5, "baseline": 26.3}}


def relations() -> pd.DataFrame:
    """Three relations, all of them together, and one that nobody measured."""
    columns = ["relation", "n", "head", "direction", "accuracy", "low", "high", "baseline"]
    columns += ["offset", "gain", "clean_accuracy", "clean_low", "clean_high"]
    rows = [
        ("all", 900, "7-6", "dep->head", 36.0, 34.0, 38.0, 26.0, 1, 10.0, 35.0, 33.0, 37.0),
        ("nn", 200, "4-1", "head->dep", 60.0, 55.0, 65.0, 70.0, 1, -10.0, 58.0, 52.0, 64.0),
        ("det", 1234, "8-11", "dep->head", 91.0, 90.0, 92.0, 52.0, 1, 39.0, 90.0, 88.0, 91.0),
        ("iobj", 0, None, None, *[NAN] * 9),
    ]
    return pd.DataFrame(rows, columns=columns)


def scores() -> pd.DataFrame:
    rows = [
        (system, kind, 10.0 * i + j, 10.0 * i + j - 2, 10.0 * i + j + 2)
        for (i, system), (j, kind) in product(
            enumerate(["nearest", "head match", "head"], 2), enumerate(["all", "pronoun"])
        )
    ]
    return pd.DataFrame(rows, columns=["system", "kind", "accuracy", "low", "high"])


def plane() -> pd.DataFrame:
    """Twelve heads on a ring, two of them nearly on one spot."""
    labels = [*BEHAVIOURS, "other", "other", "undefined", "dobj", "coreference"]
    turn = 2 * np.pi * np.arange(12) / 12
    turn[11] = turn[10] + 1e-3
    rows = pd.DataFrame({"layer": np.arange(12) // 4 + 1, "head": np.arange(12) % 4 + 1})
    return rows.assign(x=np.cos(turn), y=np.sin(turn), behaviour=labels)


def gradients() -> pd.DataFrame:
    rows = [
        (name, layer, size / layer, 0.9 * size / layer, 1.1 * size / layer)
        for name, size in (("[SEP]", 0.5), ("periods and commas", 0.4), ("other tokens", 0.41))
        for layer in range(1, 7)
    ]
    return pd.DataFrame(rows, columns=["class", "layer", "mean", "low", "high"])


def drawings() -> list[Drawing]:
    named = {"label": "system", "value": "accuracy"}
    one = scores()[scores()["kind"] == "all"]
    return [
        relation_accuracies(relations(), PAPER),
        relation_accuracies(relations()),
        labelled_scores(one, {"head": 65.0, "neural": 83.0}, **named),
        labelled_scores(scores(), {("head", "pronoun"): 64.0}, group="kind", **named),
        head_map(plane()),
        layer_lines(gradients(), log=True),
        layer_lines(gradients(), title="attention"),
    ]


# What holds for all of them


def test_every_figure_can_be_read_on_every_page() -> None:
    for drawing in drawings():
        assert drawing.caption.endswith(".") and drawing.alt.endswith(".")
        assert len(drawing.table) > 0
        assert "nan" not in drawing.caption + drawing.alt
        page = drawing._repr_html_()
        assert 'role="img"' in page and "<figcaption>" in page
        assert "currentColor" in page and style.INK not in page and "<style" not in page


def test_the_same_table_gives_the_same_file() -> None:
    assert head_map(plane()).svg() == head_map(plane()).svg()


def test_drawing_leaves_the_table_as_it_was() -> None:
    makers: list[tuple[Callable[[pd.DataFrame], object], pd.DataFrame]] = [
        (relation_accuracies, relations()),
        (head_map, plane()),
        (layer_lines, gradients()),
        (lambda table: labelled_scores(table, label="system", value="accuracy"), scores()),
    ]
    for make, table in makers:
        before = table.copy()
        make(table)
        pd.testing.assert_frame_equal(table, before)


@pytest.mark.parametrize(
    ("make", "table", "column"),
    [
        (relation_accuracies, relations(), "baseline"),
        (head_map, plane(), "behaviour"),
        (layer_lines, gradients(), "low"),
    ],
)
def test_missing_columns_and_empty_tables_are_named(
    make: Callable[[pd.DataFrame], object], table: pd.DataFrame, column: str
) -> None:
    with pytest.raises(BadValue, match="has no row"):
        make(table.iloc[:0])
    with pytest.raises(BadValue, match=f"no column {column}"):
        make(table.drop(columns=column))


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


# Relations


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
    assert "det 91 by head 8-11, offset 52 (paper 94)" in drawing.alt
    assert "iobj" not in drawing.alt
    assert drawing.caption.startswith("For 1 of 2 relations")


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


# Scores


def test_groups_are_small_multiples_with_the_same_rows() -> None:
    paper = {("head", "pronoun"): 64.0, ("neural", "all"): 83.0}
    drawing = labelled_scores(scores(), paper, label="system", value="accuracy", group="kind")
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
    drawing = labelled_scores(table, {"head": 65.0}, label="system", value="accuracy", unit="UAS")
    texts = {text.get_text() for text in drawing.figure.axes[0].texts}
    assert {"40.0 [38.0, 42.0]", "65", "the paper"} <= texts
    assert "head 40 (paper 65)" in drawing.alt and "UAS" in drawing.alt


def test_undefined_scores_keep_their_row_without_a_mark() -> None:
    table = scores()[scores()["kind"] == "all"].reset_index(drop=True)
    table.loc[1, ["accuracy", "low", "high"]] = NAN
    drawing = labelled_scores(table, label="system", value="accuracy")
    (panel,) = drawing.figure.axes
    assert len(panel.get_yticklabels()) == 3
    assert places(solid(panel, "ours")) == {0: 20, 2: 40}
    assert "head match" not in drawing.alt


def test_other_units_have_an_axis_that_holds_every_value() -> None:
    table = pd.DataFrame({"label": ["a", "b"], "value": [-2.0, 3.0], "low": NAN, "high": NAN})
    low, high = labelled_scores(table, {"a": 5.0}, unit="points").figure.axes[0].get_xlim()
    assert low < -2 and high > 5


# The plane of heads


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


# Lines over layers


def test_each_class_is_a_line_with_its_band_and_name() -> None:
    (panel,) = layer_lines(gradients()).figure.axes
    assert len(panel.collections) == 3
    lines = [line for line in panel.lines if len(np.atleast_1d(line.get_xdata())) == 6]
    np.testing.assert_allclose(lines[0].get_ydata(), 0.5 / np.arange(1, 7))
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 3
    assert {text.get_text() for text in panel.texts} == set(gradients()["class"])
    assert panel.get_ylim()[0] == 0


def test_names_at_the_ends_do_not_overlap() -> None:
    figure = layer_lines(gradients(), log=True).figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    boxes = sorted(
        (text.get_window_extent(renderer) for text in figure.axes[0].texts), key=lambda box: box.y0
    )
    assert all(low.y1 <= high.y0 for low, high in pairwise(boxes))


def test_a_logarithmic_axis_and_a_title_are_drawn() -> None:
    (panel,) = layer_lines(gradients(), log=True, title="to [SEP]").figure.axes
    assert panel.get_yscale() == "log" and panel.get_title("left") == "to [SEP]"


def test_layers_without_a_mean_are_gaps() -> None:
    table = gradients()
    table.loc[5, ["mean", "low", "high"]] = NAN
    drawing = layer_lines(table)
    assert "[SEP]: 0.5 in layer 1, 0.1 in layer 5" in drawing.alt
    with pytest.raises(BadValue, match="no layer has a mean"):
        layer_lines(table.assign(mean=NAN))
    with pytest.raises(BadValue, match="logarithmic"):
        layer_lines(table.assign(mean=0.0), log=True)


def test_classes_have_the_colours_of_their_meaning() -> None:
    assert class_look("[SEP]") is style.LOOKS["special"]
    assert class_look("periods and commas") is style.LOOKS["punctuation"]
    assert class_look("previous") is style.LOOKS["previous"]
    assert class_look("dobj") is style.LOOKS["syntax"]
    assert len({class_look(name).marker for name in BEHAVIOURS}) == len(BEHAVIOURS)


def test_titles_of_narrow_panels_do_not_touch() -> None:
    names = [f"same form, other kind of text: corpus-{i}" for i in range(4)]
    rows = [{"label": "a", "value": 0.4, "low": 0.3, "high": 0.5, "g": name} for name in names]
    figure = labelled_scores(pd.DataFrame(rows), unit="kappa", group="g").figure
    FigureCanvasAgg(figure).draw()
    boxes = [panel._left_title.get_window_extent() for panel in figure.axes]  # type: ignore[attr-defined]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert all(box.y1 <= figure.bbox.y1 for box in boxes)
    assert figure.axes[0].get_title(loc="left").endswith("of text:\ncorpus-0")
