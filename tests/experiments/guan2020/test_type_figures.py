"""Figures of head types show what a plain loop over the table counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from attnlib.errors import BadValue, UnknownName
from attnlib.plots import style
from attnlib.plots.drawing import Drawing
from attnlib.plots.rows import labelled_scores
from experiments.guan2020.type_figures import (
    TYPE_LOOKS,
    cluster_count_curves,
    feature_boxes,
    feature_name,
    type_moves,
    type_plane,
    types_by_layer,
)
from experiments.shared.head_types import TYPES
from tests.figures import check_readable, check_tables, closest

NAN = math.nan
KEYS = [*(f"window_{i:02d}" for i in range(1, 17)), "self", "cls", "sep", "comma", "period"]
MODELS = ("pre-trained", "questions", "MRPC", "MNLI")
BEST: dict[str, int | None] = {"silhouette": 3, "bic": 6, "gap": 8}


def heads(layers: int = 6, n_heads: int = 5, seed: int = 0) -> pd.DataFrame:
    """Random types, each around its own corner of the plane; the rows in no order."""
    draw = np.random.default_rng(seed)
    rows = []
    for layer, head in product(range(1, layers + 1), range(1, n_heads + 1)):
        kind = int(draw.integers(4))
        x, y = draw.normal((10 * (kind % 2), 10 * (kind // 2)), 1.5)
        rows.append((layer, head, TYPES[kind], x, y, draw.normal(0.3, 0.3)))
    columns = ["layer", "head", "type", "x", "y", "silhouette"]
    return pd.DataFrame(rows, columns=columns).sample(frac=1, random_state=1)


def features(types: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Distance features that sum to 1, their keys in no order."""
    draw = np.random.default_rng(seed)
    keys = list(draw.permutation(KEYS))
    rows = [
        (layer, head, key, value)
        for layer, head in types[["layer", "head"]].to_numpy().tolist()
        for key, value in zip(keys, draw.dirichlet(np.full(21, 0.7)), strict=True)
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "feature", "value"])


def several(seed: int = 0) -> pd.DataFrame:
    return pd.concat([heads(seed=seed + i).assign(model=model) for i, model in enumerate(MODELS)])


def moves(seed: int = 0, n_heads: int = 5) -> pd.DataFrame:
    """One task changes some heads, one changes none."""
    old = heads(n_heads=n_heads, seed=seed)
    new = heads(n_heads=n_heads, seed=seed + 1)["type"].to_numpy()
    rest = old[["layer", "head"]].assign(before=old["type"])
    parts = [
        rest.assign(task="questions", after=new),
        rest.assign(task="MNLI", after=old["type"]),
    ]
    return pd.concat(parts, ignore_index=True)


def counts() -> pd.DataFrame:
    k = np.arange(1, 9)
    table = pd.DataFrame({"k": k, "silhouette": 0.5 - 0.05 * abs(k - 3), "gap": 0.1 * k})
    table["bic"], table["gap_se"] = -900.0 + 10 * (k - 6) ** 2, 0.02
    table["null_low"], table["null_high"] = 0.2, 0.3
    table.loc[0, ["silhouette", "null_low", "null_high"]] = NAN
    return table.sample(frac=1, random_state=0)


def drawings() -> list[Drawing]:
    """Each kind, as full as the book has it, and as empty as it may get."""
    base, large = heads(12, 12), heads(24, 16)
    shares = pd.DataFrame({"label": TYPES, "value": [24.0, 28, 31, 17], "low": 10.0, "high": 40.0})
    drawn = [
        type_plane(base),
        type_plane(large, named=["5-4"]),
        feature_boxes(features(base), base),
        types_by_layer(base),
        types_by_layer(large),
        types_by_layer(several(), by="model"),
        type_moves(moves(n_heads=12)),
        type_moves(moves()[lambda table: table["task"] == "MNLI"]),
        cluster_count_curves(counts(), BEST),
        cluster_count_curves(counts().assign(gap=NAN, gap_se=NAN), {**BEST, "gap": None}),
    ]
    paper = dict(zip(TYPES, (26.04, 25.56, 34.11, 13.28), strict=True))
    return [*(one.said("What to see.") for one in drawn), labelled_scores(shares, paper)]


# What holds for all of them


def test_every_figure_can_be_read_on_every_page() -> None:
    for drawing in drawings():
        check_readable(drawing, largest=250_000)


CASES: list[tuple[Callable[..., Drawing], tuple[pd.DataFrame, ...], str]] = [
    (type_plane, (heads(),), "silhouette"),
    (feature_boxes, (features(heads()), heads()), "value"),
    (types_by_layer, (heads(),), "type"),
    (partial(types_by_layer, by="model"), (several(),), "model"),
    (type_moves, (moves(),), "before"),
    (partial(cluster_count_curves, best=BEST), (counts(),), "bic"),
]


@pytest.mark.parametrize(("make", "tables", "column"), CASES)
def test_tables_are_checked_and_left_as_they_were(
    make: Callable[..., Drawing], tables: tuple[pd.DataFrame, ...], column: str
) -> None:
    check_tables(make, tables, column)


@pytest.mark.parametrize(
    "make", [type_plane, types_by_layer, lambda table: feature_boxes(features(heads()), table)]
)
def test_unknown_types_and_double_heads_are_named(make: Callable[..., Drawing]) -> None:
    with pytest.raises(UnknownName, match=r"'diagnal'\. Did you mean 'diagonal'"):
        make(heads().replace({"type": {"diagonal": "diagnal"}}))
    with pytest.raises(BadValue, match="a head has two rows"):
        make(pd.concat([heads(), heads().iloc[:1]]))


# The four looks


def test_types_look_different_for_every_eye_on_every_page() -> None:
    assert tuple(TYPE_LOOKS) == TYPES
    looks = list(TYPE_LOOKS.values())
    assert len({look.marker for look in looks}) == len({str(look.dash) for look in looks}) == 4
    for look in looks:
        assert style.contrast(look.colour, "#ffffff") >= 3
        assert style.contrast(look.colour, "#14181e") >= 3
    assert closest([look.colour for look in looks]) > 15
    assert closest(["#d1590a", "#8f7a1d"]) < 15  # the measure can fail


def test_names_are_as_people_write_them() -> None:
    assert [feature_name(key) for key in ("window_01", "window_16", "self", "cls", "my_part")] == [
        *("w1", "w16", "self", "[CLS]", "my part")
    ]


# Plane and boxes


def points(panel: Axes) -> Counter[tuple[str, bool, float, float]]:
    """Colour, solid or hollow, and place of every point."""
    found: Counter[tuple[str, bool, float, float]] = Counter()
    for dots in panel.collections:
        face, edge = dots.get_facecolor(), dots.get_edgecolor()  # type: ignore[attr-defined]
        for x, y in np.asarray(dots.get_offsets()):
            found[to_hex(edge[0]), len(face) > 0, round(x, 6), round(y, 6)] += 1
    return found


def test_every_head_is_a_point_of_its_type_and_hollow_below_zero() -> None:
    table = heads()
    drawing = type_plane(table)
    wanted = Counter(
        (TYPE_LOOKS[one.type].colour, one.silhouette >= 0, round(one.x, 6), round(one.y, 6))
        for one in table.itertuples()
    )
    assert points(drawing.figure.axes[0]) == wanted
    assert {solid for _, solid, _, _ in wanted} == {True, False}
    words = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert words == [f"{name} ({sum(table['type'] == name)})" for name in TYPES]
    sure = type_plane(table.assign(silhouette=0.4))
    assert all(solid for _, solid, _, _ in points(sure.figure.axes[0]))


def test_named_heads_are_those_asked_for() -> None:
    drawing = type_plane(heads(), named=["5-4", "1-2"])
    texts = {text.get_text() for text in drawing.figure.axes[0].texts}
    assert texts == {"5-4", "1-2"}
    with pytest.raises(BadValue, match="head '9-9' is not in the table"):
        type_plane(heads(), named=["9-9"])
    assert len(type_plane(heads(), named=3).figure.axes[0].texts) == 3


def test_boxes_stand_at_the_quartiles_a_loop_finds() -> None:
    types = heads()
    table = features(types)
    drawing = feature_boxes(table, types)
    of = {(one.layer, one.head): one.type for one in types.itertuples()}
    for panel, name in zip(drawing.figure.axes, TYPES, strict=True):
        n = sum(kind == name for kind in of.values())
        assert panel.get_title("left") == f"{name} ({n} heads)"
        for key, box in zip(KEYS, panel.patches, strict=True):
            values = [
                one.value
                for one in table.itertuples()
                if one.feature == key and of[one.layer, one.head] == name
            ]
            drawn = np.asarray(box.get_path().vertices)[:, 1]
            np.testing.assert_allclose(
                (drawn.min(), drawn.max()), np.percentile(values, [25, 75]), atol=1e-12
            )
            assert to_hex(box.get_edgecolor()) == TYPE_LOOKS[name].colour
    labels = [text.get_text() for text in drawing.figure.axes[-1].get_xticklabels()]
    assert labels == [*(f"w{i}" for i in range(1, 17)), *("self", "[CLS]", "[SEP]"), "comma",
                      "period"]  # fmt: skip


def test_boxes_need_heads_with_features_and_a_type() -> None:
    types = heads()
    table = features(types)
    only = feature_boxes(table, types[types["type"] == "vertical"])
    assert len(only.figure.axes) == 1
    with pytest.raises(BadValue, match="no head has both"):
        feature_boxes(table.assign(layer=99), types)


# Layers


def stacked(panel: Axes) -> dict[tuple[str, int], tuple[int, int]]:
    """Bottom and height of each part of each bar, by type and layer."""
    found = {}
    for bars in panel.containers:
        for bar in bars.patches:  # type: ignore[attr-defined]
            layer = round(bar.get_x() + bar.get_width() / 2)
            height = round(bar.get_height() + 0.06) if bar.get_height() else 0
            found[bars.get_label(), layer] = (round(bar.get_y()), height)
    return found


def test_bars_are_what_a_loop_counts() -> None:
    table = heads()
    bars = stacked(types_by_layer(table).figure.axes[0])
    for layer in range(1, 7):
        below = 0
        for name in TYPES:
            mine = sum(one.layer == layer and one.type == name for one in table.itertuples())
            assert bars[name, layer] == (below, mine)
            below += mine
        assert below == 5


def test_models_stand_side_by_side_in_their_order() -> None:
    table = several()
    drawing = types_by_layer(table, by="model")
    names = [panel.get_title("left") for panel in drawing.figure.axes]
    assert names == list(MODELS)
    for panel, model in zip(drawing.figure.axes, MODELS, strict=True):
        part = table[table["model"] == model]
        for (name, layer), (_, height) in stacked(panel).items():
            assert height == sum((part["type"] == name) & (part["layer"] == layer))
    with pytest.raises(BadValue, match="a head has two rows"):
        types_by_layer(table.assign(model="one"), by="model")


def squares(panel: Axes) -> dict[str, set[tuple[float, float]]]:
    """The centres of the squares of each kind, from the corners of the one shape they are."""
    found = {}
    for patch in panel.patches:
        corners = np.asarray(patch.get_path().vertices).reshape(-1, 5, 2)  # type: ignore[attr-defined]
        centres = (corners[:, 0] + corners[:, 2]) / 2
        found[str(patch.get_label())] = {(round(x, 6), round(y, 6)) for x, y in centres}
    return found


def test_moved_heads_have_the_old_rim_and_the_new_core() -> None:
    table = moves()
    drawing = type_moves(table)
    for panel, task in zip(drawing.figure.axes, ("questions", "MNLI"), strict=True):
        part = [one for one in table.itertuples() if one.task == task]
        seen = squares(panel)
        for name in TYPES:
            kept = {(one.head, one.layer) for one in part if one.before == one.after == name}
            gone = {(o.head, o.layer) for o in part if o.before == name != o.after}
            come = {(o.head, o.layer) for o in part if o.after == name != o.before}
            assert (seen[name], seen[f"from {name}"], seen[f"to {name}"]) == (kept, gone, come)
        n = sum(one.before != one.after for one in part)
        assert drawing.table.loc[drawing.table["task"] == task, "changed"].sum() == n
        by_layer = Counter(one.layer for one in part if one.before != one.after)
        told = {round(text.get_position()[1]): text.get_text() for text in panel.texts}
        assert told == {layer: str(count) for layer, count in by_layer.items()}
    with pytest.raises(BadValue, match="a head has two rows"):
        type_moves(pd.concat([table, table.iloc[:1]]))


# Clusters


def ring(panel: Axes) -> tuple[float, float] | None:
    marks = [line for line in panel.lines if line.get_label() == "preferred"]
    return (marks[0].get_xdata()[0], marks[0].get_ydata()[0]) if marks else None  # type: ignore[index]


def test_each_criterion_marks_its_own_number() -> None:
    drawing = cluster_count_curves(counts(), BEST)
    silhouette, bic, gap = drawing.figure.axes
    assert ring(silhouette) == (3, 0.5)
    assert ring(bic) == (6, -900.0)
    assert ring(gap) == (8, pytest.approx(0.8))
    given = cluster_count_curves(counts(), {"silhouette": 3, "gap": 2, "bic": None})
    assert ring(given.figure.axes[2]) == (2, pytest.approx(0.2))
    assert ring(given.figure.axes[1]) is None
