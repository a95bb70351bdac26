"""Line diagrams draw every strong link once, from left to right, and say the strongest aloud."""

from __future__ import annotations

import re

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing
from attnlib.plots.lines import (
    LONGEST_WORD,
    MOST_WORDS,
    Lines,
    as_table,
    attention_line_panels,
)

WORDS = ["[CLS]", "the", "cat", "sat", "[SEP]"]


def weights() -> np.ndarray:
    """'cat' attends to 'the'; everything else mostly to [SEP]."""
    map_ = np.full((5, 5), 0.01)
    map_[:, 4] = 0.96
    map_[2] = [0.03, 0.93, 0.01, 0.02, 0.01]
    return map_


def drawn(**changes: object) -> Drawing:
    given: dict = {"weights": weights(), "head": "8-11", "what": "nouns", "highlight": {2}}
    given |= changes
    limit = {"threshold": given.pop("threshold")} if "threshold" in given else {}
    return attention_line_panels(as_table([Lines(WORDS, **given)]), **limit)


def lines_of(panel: Axes) -> LineCollection:
    (found,) = (one for one in panel.collections if isinstance(one, LineCollection))
    return found


def test_lines_run_from_the_query_on_the_left_to_the_key_on_the_right() -> None:
    (panel,) = drawn().figure.axes
    ends = {
        (round(float(path[0][1])), round(float(path[-1][1])))
        for path in (segment for segment in lines_of(panel).get_segments())
    }
    assert ends == {(0, 4), (1, 4), (3, 4), (4, 4), (2, 1)}
    assert all(path[0][0] < path[-1][0] for path in lines_of(panel).get_segments())
    assert panel.yaxis_inverted()


def test_a_map_turned_over_gives_another_drawing() -> None:
    assert drawn().svg() != drawn(weights=weights().T).svg()


def test_every_word_stands_on_both_sides() -> None:
    (panel,) = drawn().figure.axes
    for word in WORDS:
        sides = {text.get_ha() for text in panel.texts if text.get_text() == word}
        assert sides == {"left", "right"}


def test_width_and_opacity_grow_with_the_weight() -> None:
    map_ = np.zeros((5, 5))
    map_[0, :4] = [0.1, 0.2, 0.3, 0.4]
    found = lines_of(drawn(weights=map_, highlight=()).figure.axes[0])
    assert (np.diff(found.get_linewidths()) > 0).all()
    assert (np.diff(found.get_colors()[:, 3]) > 0).all()


def test_only_lines_of_highlighted_words_carry_the_colour() -> None:
    drawing = drawn()
    found = lines_of(drawing.figure.axes[0])
    colours = [to_hex(colour[:3]) for colour in found.get_colors()]
    assert colours.count(style.LOOKS["syntax"].colour) == 1
    assert set(colours) == {style.LOOKS["syntax"].colour, style.FAINT}
    assert list(drawing.table["highlight"]).count(True) == 1
    bold = {t.get_text() for t in drawing.figure.axes[0].texts if t.get_fontweight() == "bold"}
    assert bold == {"cat"}


def test_special_tokens_are_quiet() -> None:
    (panel,) = drawn().figure.axes
    quiet = {text.get_text() for text in panel.texts if text.get_alpha() is not None}
    assert quiet == {"[CLS]", "[SEP]"}


def test_the_threshold_leaves_lines_out_and_the_caption_says_so() -> None:
    assert len(drawn().table) == 5
    assert "below 0.04" in drawn().caption
    assert len(drawn(threshold=0.02).table) == 7
    assert len(drawn(threshold=0.0).table) == 25


def test_the_table_has_every_line_with_its_head_and_word() -> None:
    rows = drawn().table.set_index(["word", "key"])
    assert set(rows["head"]) == {"8-11"}
    assert rows.loc[("cat", 1), "weight"] == 0.93
    assert rows.loc[("the", 4), "weight"] == 0.96
    assert list(rows.index[rows["highlight"]]) == [("cat", 1)]


def test_undefined_weights_draw_no_line() -> None:
    map_ = weights()
    map_[1] = np.nan
    assert len(drawn(weights=map_).table) == 4
    nothing = drawn(weights=np.full((5, 5), np.nan))
    assert len(nothing.table) == 0
    nothing.svg()


def test_a_map_between_units_is_put_into_reading_order() -> None:
    units = np.arange(25).reshape(5, 5) / 25  # [CLS], [SEP], the, cat, sat
    lines = Lines.of_units(["the", "cat", "sat"], units, "1-1", highlight={1})
    assert list(lines.words) == WORDS
    assert lines.words[next(iter(lines.highlight))] == "cat"
    assert lines.weights[0, 4] == units[0, 1]  # [CLS] to [SEP]
    assert lines.weights[2, 1] == units[3, 2]  # cat to the
    assert lines.weights[4, 3] == units[1, 4]  # [SEP] to sat
    padded = np.pad(units, (0, 3))
    np.testing.assert_array_equal(
        Lines.of_units(["the", "cat", "sat"], padded, "1-1").weights, lines.weights
    )
    with pytest.raises(BadValue, match="expected \\(8, 8\\)"):
        Lines.of_units(["a"] * 6, units, "1-1")


@pytest.mark.parametrize(("n", "columns", "rows"), [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 2, 2)])
def test_panels_stand_side_by_side(n: int, columns: int, rows: int) -> None:
    panels = [Lines(WORDS, weights(), f"1-{i}", "nouns") for i in range(1, n + 1)]
    drawing = attention_line_panels(as_table(panels))
    boxes = [axis.get_position() for axis in drawing.figure.axes]
    assert len({round(box.x0, 4) for box in boxes}) == columns
    assert len({round(box.y1, 4) for box in boxes}) == rows
    assert all(box.x0 >= 0 and box.x1 <= 1 and box.y0 >= 0 and box.y1 <= 1 for box in boxes)
    assert list(drawing.table["panel"].unique()) == list(range(n))
    shown = {text.get_text() for text in drawing.figure.texts}
    assert {f"Head 1-{i}" for i in range(1, n + 1)} <= shown


def test_long_words_take_fewer_columns_and_are_cut() -> None:
    words = [*WORDS[:-1], "internationalization"]
    drawing = attention_line_panels(as_table([Lines(words, weights(), "1-1")] * 3))
    assert len({round(axis.get_position().x0, 4) for axis in drawing.figure.axes}) == 2
    texts = [text.get_text() for text in drawing.figure.axes[0].texts]
    assert max(map(len, texts)) == LONGEST_WORD
    assert "internationalization" in set(drawing.table["word"])


def test_words_stay_inside_the_figure_and_clear_of_the_next_panel() -> None:
    long = ["representatives" if i % 3 else "a" for i in range(20)]
    panels = [Lines(long, np.eye(20), "1-1", "a long description of what this head does all day")]
    figure = attention_line_panels(as_table(panels * 4)).figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [
        [text.get_window_extent(renderer) for text in axis.texts if text.get_text() != "a"]
        for axis in figure.axes
    ]
    assert min(box.x0 for group in boxes for box in group) >= 0
    assert max(box.x1 for group in boxes for box in group) <= figure.bbox.width
    assert max(box.x1 for box in boxes[0]) < min(box.x0 for box in boxes[1])
    for text in figure.texts:
        assert text.get_window_extent(renderer).x1 <= figure.bbox.width


def test_a_page_of_panels_stays_small() -> None:
    generator = np.random.default_rng(0)
    maps = generator.dirichlet(np.full(20, 0.3), size=(6, 20))
    panels = [Lines([f"word{i}" for i in range(20)], one, "1-1") for one in maps]
    assert len(attention_line_panels(as_table(panels)).svg()) < 300_000


def test_ink_follows_the_page_and_the_file_is_the_same_every_time() -> None:
    svg = drawn().svg()
    assert "currentColor" in svg and style.INK not in svg
    assert svg == drawn().svg()
    assert "<style" not in svg


def test_words_cannot_break_the_page() -> None:
    words = ["<b>", "&", '"', "$x$", "_"]
    page = attention_line_panels(as_table([Lines(words, weights(), "1-1")]))._repr_html_()
    assert "<b>" not in page
    assert re.search(r">\s*\$x\$\s*<", page)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.eye(4)}, "5 words and a map of shape"),
        ({"weights": 3 * np.eye(5)}, "not between 0 and 1"),
        ({"weights": -np.eye(5)}, "not between 0 and 1"),
        ({"highlight": {5}}, "highlight names place 5"),
        ({"threshold": 1.0}, "threshold is 1.0"),
    ],
)
def test_bad_input_is_named(changes: dict, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        drawn(**changes)


def test_too_many_words_and_no_words_are_refused() -> None:
    n = MOST_WORDS + 1
    with pytest.raises(BadValue, match=f"has {n} words"):
        as_table([Lines(["a"] * n, np.eye(n), "1-1")])
    with pytest.raises(BadValue, match="has 0 words"):
        as_table([Lines([], np.zeros((0, 0)), "1-1")])
    with pytest.raises(BadValue, match="has no row"):
        attention_line_panels(as_table([]))
