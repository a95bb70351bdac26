"""Figures of patterns show the shares, pictures and counts they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing
from experiments.guan2020.type_figures import TYPE_LOOKS
from experiments.kovaleva2019.pattern_figures import (
    FILLS,
    GAP,
    PATTERN_LOOKS,
    REST,
    pattern_confusion,
    pattern_examples,
    pattern_layers,
    pattern_shares,
)
from experiments.kovaleva2019.patterns import PATTERNS, PatternExample, class_f1
from tests.figures import check_readable, check_tables, check_uncut, closest, painted

NAN = math.nan
TASKS = ("mrpc", "stsb", "sst2", "qqp", "rte", "qnli", "mnli")
PAPER = {"mrpc": 43.0, "STS-B": 61.0, "cola": 10.0}


def shares(by: str = "task", names: Sequence[Any] = TASKS) -> pd.DataFrame:
    """Random shares, the patterns in no order, with intervals."""
    draw = np.random.default_rng(2)
    rows = [
        (name, pattern, share, share - 3.0, share + 4.0)
        for name in names
        for pattern, share in zip(PATTERNS, 100 * draw.dirichlet([6, 5, 4, 1, 9]), strict=True)
    ]
    table = pd.DataFrame(rows, columns=[by, "pattern", "share", "low", "high"])
    mixed = table.sample(frac=1, random_state=0)
    return pd.concat([mixed[mixed[by] == name] for name in names])


def layers(n: int = 12) -> pd.DataFrame:
    return shares("layer", range(1, n + 1)).drop(columns=["low", "high"])


def counts(by: Sequence[str] = ("network", "rule", "second pass")) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    rows = [
        (who, label, called, int(draw.integers(20, 90) if label == called else draw.integers(4)))
        for who, label, called in product(by, PATTERNS, PATTERNS)
    ]
    return pd.DataFrame(rows, columns=["by", "label", "called", "n"])


def examples(n: int = 3, patterns: Sequence[str] = PATTERNS) -> list[PatternExample]:
    draw = np.random.default_rng(0)
    made = [
        PatternExample(name, draw.random((48, 48)) ** 4, f"SST-2 {i + 1}-12")
        for i, name in product(range(n), patterns)
    ]
    return made[::-1]


def drawings() -> list[Drawing]:
    """Each kind as full as the book has it, and as empty as it may get."""
    one = counts(["rule"])
    rare = one.assign(n=one["n"].where((one["label"] != "block") & (one["called"] != "block"), 0))
    return [
        pattern_examples(examples(4)),
        pattern_examples([*examples(1), *examples(7, ["block"])]),
        pattern_examples(examples(1, ["diagonal"])),
        pattern_shares(shares(names=(*TASKS, "pre-trained")), PAPER),
        pattern_shares(shares(names=["rte"]).assign(low=NAN), {}),
        pattern_layers(layers()),
        pattern_layers(layers(24)),
        pattern_confusion(counts()),
        pattern_confusion(counts(["network", "rule"])),
        pattern_confusion(counts(["a", "b", "c", "d"])),
        pattern_confusion(rare),
    ]


# What holds for all of them


@pytest.mark.filterwarnings("error::UserWarning")  # a layout that did not fit
def test_every_figure_can_be_read_on_every_page() -> None:
    for drawing in drawings():
        check_readable(drawing.said("What to see."), largest=250_000)
        check_uncut(drawing)


CASES: list[tuple[Callable[..., Drawing], pd.DataFrame, str]] = [
    (partial(pattern_shares, paper=PAPER), shares(), "task"),
    (partial(pattern_shares, paper=PAPER), shares(), "high"),
    (pattern_layers, layers(), "layer"),
    (pattern_layers, layers(), "share"),
    (pattern_confusion, counts(), "called"),
]


@pytest.mark.parametrize(("make", "table", "column"), CASES)
def test_tables_are_checked_and_left_as_they_were(
    make: Callable[..., Drawing], table: pd.DataFrame, column: str
) -> None:
    check_tables(make, [table], column)
    with pytest.raises(BadValue, match="two rows have the same"):
        make(pd.concat([table, table.iloc[:1]]))
    with pytest.raises(BadValue, match="is 'blok'; expected one of vertical, diagonal"):
        make(table.replace("block", "blok"))


def test_shares_that_are_no_percent_are_refused() -> None:
    table = layers()
    with pytest.raises(BadValue, match=r"the shares of layer 1 sum to 1; expected 100 percent"):
        pattern_layers(table.assign(share=table["share"] / 100))
    with pytest.raises(BadValue, match="a share is below 0"):
        pattern_layers(table.assign(share=-table["share"]))
    with pytest.raises(BadValue, match="layer is below 1"):
        pattern_layers(table.assign(layer=table["layer"] - 1))
    with pytest.raises(BadValue, match="the shares of task mrpc sum to"):
        pattern_shares(shares().query("pattern != 'vertical'"), {})


# The five looks


def test_patterns_look_different_for_every_eye_on_every_page() -> None:
    assert tuple(PATTERN_LOOKS) == PATTERNS
    for name in ("vertical", "diagonal"):
        assert PATTERN_LOOKS[name] == TYPE_LOOKS[name]
    assert PATTERN_LOOKS["block"].colour == style.LOOKS["block"].colour
    assert len({look.marker for look in PATTERN_LOOKS.values()}) == 5
    for look in PATTERN_LOOKS.values():
        assert min(style.contrast(look.colour, page) for page in ("#ffffff", "#14181e")) >= 3
    # Full grey and the pink of block are one to some eyes; the pale grey of the bars is not.
    whole = [look.colour for look in PATTERN_LOOKS.values()]
    assert closest(whole) < 5
    for page in ("#ffffff", "#14181e"):
        *_, alpha = FILLS[REST]
        mixed = alpha * np.array(to_rgb(whole[-1])) + (1 - alpha) * np.array(to_rgb(page))
        assert closest([*whole[:-1], to_hex(mixed)]) > 15


# Examples


def test_pictures_stand_in_the_line_of_their_pattern() -> None:
    given = examples(3)
    drawing = pattern_examples(given)
    axes = np.reshape(np.array(drawing.figure.axes), (5, 3))
    for row, pattern in zip(axes, PATTERNS, strict=True):
        mine = [one for one in given if one.pattern == pattern]
        assert row[0].get_ylabel().replace(" +\n", "+") == pattern
        assert to_hex(row[0].yaxis.label.get_color()) == PATTERN_LOOKS[pattern].colour
        for panel, one in zip(row, mine, strict=True):
            np.testing.assert_array_equal(panel.images[0].get_array(), one.picture)
            assert panel.images[0].get_clim() == (0, one.picture.max())
            assert panel.get_xlabel() == one.name
        shown = drawing.table.loc[drawing.table["pattern"] == pattern, "name"]
        assert list(shown) == [one.name for one in mine]
    dark, light = (style.luminance(to_hex(axes[0, 0].images[0].cmap(end))) for end in (1.0, 0.0))
    assert dark < 0.05 and light > 0.8  # the darker, the more


def test_lines_of_unlike_length_leave_room_and_empty_lines_are_left_out() -> None:
    drawing = pattern_examples([*examples(1, ["block"]), *examples(2, ["vertical"])])
    assert [len(panel.images) for panel in drawing.figure.axes] == [1, 1, 1, 0]
    assert list(drawing.table["pattern"]) == ["vertical", "vertical", "block"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "there are 0 examples"),
        (examples(9), "there are 9 examples of a pattern; give 1 to 8"),
        ([PatternExample("round", np.ones((2, 2)), "RTE 1-1")], "pattern of 'RTE 1-1' is 'round'"),
        ([PatternExample("block", np.ones((2, 3)), "RTE 1-1")], r"has shape \(2, 3\); give a sq"),
        ([PatternExample("block", -np.ones((2, 2)), "RTE 1-1")], "a pixel below 0"),
        ([PatternExample("block", np.full((2, 2), NAN), "RTE 1-1")], "or not a number"),
    ],
)
def test_bad_examples_are_refused(given: list[PatternExample], said: str) -> None:
    with pytest.raises(BadValue, match=said):
        pattern_examples(given)


# Shares


def parts(panel: Axes, *, across: bool) -> dict[tuple[str, int], tuple[float, float]]:
    """Begin and length of each part of each bar, by pattern and place; gaps are added again."""
    found = {}
    for bars in panel.containers:
        for bar in bars.patches:  # type: ignore[attr-defined]
            begin, length = (
                (bar.get_x(), bar.get_width())
                if across
                else (
                    bar.get_y(),
                    bar.get_height(),
                )
            )
            middle = bar.get_y() + bar.get_height() / 2 if across else bar.get_x() + 0.42
            found[str(bars.get_label()), round(middle)] = (begin, length + GAP)
            assert to_hex(bar.get_facecolor()) == PATTERN_LOOKS[str(bars.get_label())].colour
    return found


@pytest.mark.parametrize("across", [True, False])
def test_parts_of_bars_are_the_shares_end_to_end(across: bool) -> None:
    table = shares() if across else layers()
    by = "task" if across else "layer"
    drawing = pattern_shares(table, {}) if across else pattern_layers(table)
    panel = drawing.figure.axes[0]
    drawn = parts(panel, across=across)
    wanted = {(row[by], row["pattern"]): row["share"] for _, row in table.iterrows()}
    numbers = [text.get_text() for text in panel.texts if text.get_text()]
    least, told = (4.5 if across else 6), []
    for place, name in enumerate(dict.fromkeys(table[by])):
        begin = 0.0
        for pattern in PATTERNS:
            at, length = drawn[pattern, place if across else name]
            share = wanted[name, pattern]
            assert at == pytest.approx(begin)
            assert length == pytest.approx(max(share, GAP))
            told += [f"{share:.0f}"] if share >= least else []
            begin += share
    assert sorted(numbers) == sorted(told) and len(told) < len(table)
    pd.testing.assert_frame_equal(drawing.table, table.reset_index(drop=True))


def test_a_pattern_without_a_row_has_no_part() -> None:
    table = pd.DataFrame({"layer": 3, "pattern": ["block", "vertical"], "share": [25.0, 75.0]})
    drawn = parts(pattern_layers(table).figure.axes[0], across=False)
    assert drawn["block", 3] == pytest.approx((75, 25))
    assert drawn["diagonal", 3] == pytest.approx((75, GAP))


def test_the_interval_and_the_paper_stand_at_the_border_of_the_rest() -> None:
    table = shares()
    drawing = pattern_shares(table, PAPER)
    panel = drawing.figure.axes[0]
    rest = table[table["pattern"] == REST].set_index("task").loc[list(TASKS)]
    lines, ticks = (one.get_segments() for one in panel.collections)  # type: ignore[attr-defined]
    for segment, tick, (_, row) in zip(lines, ticks, rest.iterrows(), strict=True):
        assert sorted(segment[:, 0]) == pytest.approx([100 - row["high"], 100 - row["low"]])
        assert tick[:, 0] == pytest.approx(100 - row["share"])
    (ring,) = panel.lines
    np.testing.assert_allclose(np.asarray(ring.get_xdata()), [57, 39, *[NAN] * 5])
    assert ring.get_markerfacecolor() == "none"
    words = [text.get_text() for text in painted(drawing.figure)]
    assert words.count("the paper") == 1 and [*PATTERNS] == [
        one for one in words if one in PATTERNS
    ]
    alone = pattern_shares(table, {})
    assert not alone.figure.axes[0].lines
    assert "the paper" not in [text.get_text() for text in painted(alone.figure)]


# Agreement


def test_f1_is_what_the_hand_finds() -> None:
    table = pd.DataFrame(
        [("vertical", "vertical", 6), ("vertical", "diagonal", 2), ("diagonal", "vertical", 1),
         ("diagonal", "diagonal", 3), ("block", "vertical", 4)],
        columns=["label", "called", "n"],
    )  # fmt: skip
    # vertical: 6 right of 11 called and 8 labelled, 2*6/19; diagonal: 2*3/9; block: never found.
    drawing = pattern_confusion(table.assign(by="rule"))
    texts = {
        (round(text.get_position()[0]), text.get_position()[1]): text.get_text()
        for text in drawing.figure.axes[0].texts
    }
    assert [texts[5, y] for y in range(5)] == ["0.63", "0.67", "–", "0.00", "–"]
    assert (texts[0, 0], texts[1, 0], texts[0, 1], texts[0, 3]) == ("6", "2", "1", "4")
    assert (1, 3) not in texts
    np.testing.assert_allclose(class_f1(np.diag([3.0, 0, 1])), [1, NAN, 1])


def test_shades_are_shares_of_a_row_and_numbers_are_the_maps() -> None:
    table = counts()
    drawing = pattern_confusion(table)
    for panel, by in zip(drawing.figure.axes, ("network", "rule", "second pass"), strict=True):
        part = table[table["by"] == by]
        assert panel.get_title("left") == f"{by}, {part['n'].sum()} maps"
        shades = np.asarray(panel.collections[0].get_array()).reshape(5, 5)
        numbers = {text.get_position(): text.get_text() for text in panel.texts}
        for (y, label), (x, called) in product(enumerate(PATTERNS), enumerate(PATTERNS)):
            row = part[part["label"] == label]
            n = int(row.loc[row["called"] == called, "n"].iloc[0])
            assert shades[y, x] == pytest.approx(n / row["n"].sum())
            assert numbers.get((x, y), "0") == f"{n}"
        assert panel.get_ylim()[0] > panel.get_ylim()[1]
    pd.testing.assert_frame_equal(drawing.table, table)


def test_bad_counts_are_refused_and_full_agreement_has_an_f1_of_one() -> None:
    for n in (0, -1, NAN):
        with pytest.raises(BadValue, match="give counts"):
            pattern_confusion(counts().assign(n=n))
    table = counts(["rule"])
    whole = pattern_confusion(table[table["label"] == table["called"]])
    shown = [text.get_text() for text in whole.figure.axes[0].texts]
    assert shown.count("1.00") == len(PATTERNS) and len(shown) == 2 * len(PATTERNS) + 1
