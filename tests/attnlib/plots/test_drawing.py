"""Laws of all figures: captions, alt text, one file for one table, tables left as they were."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd
import pytest

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing
from attnlib.plots.planes import head_map
from attnlib.plots.profiles import layer_lines
from attnlib.plots.rows import labelled_scores, relation_accuracies
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
    return pd.DataFrame(rows, columns=["label", "kind", "value", "low", "high"])


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
    one = scores()[scores()["kind"] == "all"]
    return [
        relation_accuracies(relations(), PAPER),
        relation_accuracies(relations()),
        labelled_scores(one, {"head": 65.0, "neural": 83.0}),
        labelled_scores(scores(), {("head", "pronoun"): 64.0}, group="kind"),
        head_map(plane()),
        layer_lines(gradients(), unit="mean |gradient|"),
    ]


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
        (labelled_scores, scores()),
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
