"""Figures show the table they are given, say what to see, and can be read by everyone."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from attnlib.errors import BadValue, UnknownName
from attnlib.plots import grids, labels, profiles, style
from attnlib.plots.drawing import Drawing

METRICS = ["mass_to_sep", "mass_to_previous", "entropy"]


@pytest.fixture
def table() -> pd.DataFrame:
    """Three metrics of four layers with three heads; 2-3 is the strongest of each."""
    rows = []
    for metric, layer, head in product(METRICS, range(1, 5), range(1, 4)):
        mean = 0.9 if (layer, head) == (2, 3) else 0.01 * layer + 0.02 * head
        rows.append((metric, layer, head, mean, mean - 0.01, mean + 0.01, 20))
    return pd.DataFrame(rows, columns=list(labels.COLUMNS))


def drawings(table: pd.DataFrame) -> list[Drawing]:
    return [
        grids.head_grid(table, "entropy"),
        grids.head_grid(table, METRICS),
        profiles.layer_profile(table, METRICS, reference={"mass_to_sep": 0.02}),
        profiles.layer_profile(table, "mass_to_sep"),
        grids.strongest_heads(table, "mass_to_previous", n=3),
    ]


def test_every_figure_has_caption_alt_text_and_its_rows(table: pd.DataFrame) -> None:
    for drawing in drawings(table):
        assert drawing.caption.endswith(".")
        assert drawing.alt.endswith(".")
        assert len(drawing.table) > 0
        page = drawing._repr_html_()
        assert 'role="img"' in page
        assert "<figcaption>" in page


def test_the_strongest_head_is_on_top(table: pd.DataFrame) -> None:
    drawing = grids.strongest_heads(table, "entropy")
    assert tuple(drawing.table.loc[0, ["label", "value"]]) == ("2-3", 0.9)
    assert drawing.figure.axes[0].get_yticklabels()[0].get_text() == "2-3"


def test_the_grid_puts_layers_in_rows_and_heads_in_columns(table: pd.DataFrame) -> None:
    panel = grids.head_grid(table, "mass_to_sep", marked=1).figure.axes[0]
    shown = panel.collections[0].get_array()
    assert np.unravel_index(int(np.argmax(shown)), (4, 3)) == (1, 2)
    (mark,) = panel.texts
    assert (mark.get_position(), mark.get_text()) == ((3, 2), ".90")
    assert panel.get_xlabel() == "head"
    assert panel.yaxis_inverted()


def test_shares_share_one_scale(table: pd.DataFrame) -> None:
    axes = grids.head_grid(table, ["mass_to_sep", "mass_to_previous"]).figure.axes
    assert {panel.collections[0].get_clim() for panel in axes[:2]} == {(0.0, 1.0)}


def test_an_undefined_head_is_blank_and_never_strongest(table: pd.DataFrame) -> None:
    table.loc[0, ["mean", "low", "high"]] = np.nan
    drawing = grids.strongest_heads(table, "mass_to_sep", n=12)
    assert len(drawing.table) == 11
    shown = grids.head_grid(table, "mass_to_sep").figure.axes[0].collections[0].get_array()
    assert np.ma.getmaskarray(shown)[0, 0] or np.isnan(shown[0, 0])


def test_drawing_changes_neither_the_table_nor_the_readers_settings(table: pd.DataFrame) -> None:
    import matplotlib as mpl

    before, settings = table.copy(), dict(mpl.rcParams)
    for drawing in drawings(table):
        drawing.svg()
    pd.testing.assert_frame_equal(table, before)
    assert dict(mpl.rcParams) == settings


def test_two_figures_share_no_id_and_no_global_rule(table: pd.DataFrame) -> None:
    ids = [set(re.findall(r'\bid="([^"]+)"', drawing.svg())) for drawing in drawings(table)]
    assert sum(map(len, ids)) == len(set().union(*ids))
    for drawing in drawings(table):
        svg = drawing.svg()
        assert "<style" not in svg
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) <= set(re.findall(r'id="([^"]+)"', svg))


def test_ink_follows_the_page(table: pd.DataFrame) -> None:
    svg = grids.strongest_heads(table, "entropy").svg()
    assert "currentColor" in svg
    assert style.INK not in svg


def test_the_same_table_gives_the_same_file(table: pd.DataFrame) -> None:
    assert grids.head_grid(table, METRICS).svg() == grids.head_grid(table, METRICS).svg()


def test_unknown_metric_gets_a_suggestion(table: pd.DataFrame) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'entropy'"):
        grids.head_grid(table, "entropi")


def test_a_table_without_intervals_is_refused(table: pd.DataFrame) -> None:
    with pytest.raises(BadValue, match="no column low"):
        grids.strongest_heads(table.drop(columns="low"), "entropy")


def test_head_table_lists_each_metric_once(table: pd.DataFrame) -> None:
    page = grids.head_table(table, METRICS, n=2).to_html()
    for metric in METRICS:
        name = labels.upper(labels.label(metric))
        assert len(re.findall(f'rowspan="2">{re.escape(name)}</th>', page)) == 1
        assert style.look(metric).colour in page
    assert len(re.findall(r">2-3</th>", page)) == len(METRICS)
    assert "<caption>" in page


@pytest.mark.parametrize("page", ["#ffffff", "#121212"])
def test_every_colour_stands_out_on_light_and_dark(page: str) -> None:
    colours = [look.colour for look in style.LOOKS.values()]
    assert [colour for colour in colours if style.contrast(colour, page) < 3] == []


def test_meanings_differ_without_colour() -> None:
    drawn = [(look.marker, look.dash) for look in style.LOOKS.values()]
    assert len(set(drawn)) == len(drawn)


def test_the_sequential_map_only_darkens_and_the_diverging_map_has_one_summit() -> None:
    steps = np.linspace(0, 1, 65)
    light = np.array([style.luminance(to_hex(style.SEQUENTIAL(x))) for x in steps])
    assert (np.diff(light) < 0).all()
    bow = np.array([style.luminance(to_hex(style.DIVERGING(x))) for x in steps])
    assert np.argmax(bow) == 32
    assert (np.diff(bow[:33]) > 0).all()
    assert (np.diff(bow[32:]) < 0).all()


def test_words_come_from_the_record_of_the_metric() -> None:
    assert labels.label("mass_to_sep") == "attention to [SEP]"
    assert labels.label("my_own") == "my own"
    assert labels.is_share("mass_to_next")
    assert not labels.is_share("entropy")


def test_no_two_quantities_have_one_label() -> None:
    from attnlib.metrics.registry import METRICS

    keys = [
        key if variant == "paper" else f"{key}@{variant}"
        for key, metric in METRICS.items()
        for variant in metric.variants
    ]
    names = [labels.label(key) for key in keys]
    assert len(set(names)) == len(keys)
