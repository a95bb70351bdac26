"""Figures of several tasks show the table, task by task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing
from attnlib.plots.rows import OURS
from attnlib.plots.style import ink_on
from experiments.kovaleva2019.task_figures import (
    heads_against,
    layer_changes,
    power_curves,
    start_dots,
    task_grids,
    task_matrix,
    two_profiles,
)
from tests.figures import check_readable, check_tables, check_uncut, painted

NAN = math.nan
TASKS = ("mrpc", "stsb", "sst2", "qqp", "rte", "qnli", "mnli")
NAMES = ["MRPC", "STS-B", "SST-2", "QQP", "RTE", "QNLI", "MNLI"]


def heads(
    tasks: Sequence[str] = TASKS, layers: int = 5, n_heads: int = 4, seed: int = 0
) -> pd.DataFrame:
    """Values on both sides of 0, some significant; the rows of a task in no order."""
    draw = np.random.default_rng(seed)
    places = list(product(tasks, range(1, layers + 1), range(1, n_heads + 1)))
    table = pd.DataFrame(places, columns=["task", "layer", "head"])
    table["value"] = draw.normal(0, 1, len(table))
    table["sure"] = draw.random(len(table)) < 0.1
    mixed = table.sample(frac=1, random_state=1)
    return pd.concat([mixed[mixed["task"] == task] for task in tasks])


def changes(tasks: Sequence[str] = TASKS, layers: int = 12, width: float = 1.0) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    rows = []
    for task, layer in product(tasks, range(1, layers + 1)):
        change = float(draw.uniform(-2, 2))
        rows.append((task, layer, change, change - width, change + width, abs(change) > width))
    return pd.DataFrame(rows, columns=["task", "layer", "change", "low", "high", "significant"])


def grid(table: pd.DataFrame, **more: Any) -> Drawing:
    return task_grids(table, what="change of the score", **more)


def panels(drawing: Drawing) -> list[Axes]:
    return [panel for panel in drawing.figure.axes if panel.images]


def rings(panel: Axes) -> set[tuple[int, int]]:
    """(layer, head) of every ring."""
    marks = [one for one in panel.collections if len(np.asarray(one.get_offsets())) > 0]
    found = [
        np.asarray(one.get_offsets()) for one in marks if type(one).__name__ != "LineCollection"
    ]
    return {(round(y), round(x)) for x, y in np.concatenate(found)} if found else set()


def drawings() -> list[Drawing]:
    """Each kind as full as the book has it, and as empty as it may get."""
    base = heads(layers=12, n_heads=12)
    lost = base.assign(value=base["value"].where(base["task"] != "rte"))
    return [
        grid(base, diverging=True, unit="points"),
        grid(base, diverging=True, significant="sure"),
        grid(base.assign(value=base["value"].abs())),
        grid(lost, marked=0),
        grid(heads(["rte"], 6, 12), marked=1),
        grid(heads(TASKS[:3], 24, 16)),
        grid(heads(TASKS[:2], 12, 12)),
        layer_changes(changes()),
        layer_changes(uneven()),
        layer_changes(changes(["rte"], 6)),
        layer_changes(changes(layers=24)),
        power_curves(powers(TASKS)),
        power_curves(powers(["rte"])),
    ]


def powers(tasks: Sequence[str]) -> pd.DataFrame:
    """Power for one head and for one of 144; one task has nothing."""
    size = np.linspace(0, 5, 9)
    rows = [
        pd.DataFrame({"task": task, "tested": n, "size": size, "power": size / (size + n**0.2)})
        for task in tasks
        for n in (1, 144)
    ]
    table = pd.concat(rows, ignore_index=True)
    table.loc[table["task"] == "qqp", "power"] = NAN
    return table


def uneven() -> pd.DataFrame:
    """One task moves far more than the others, one interval is very wide, one task has nothing."""
    table = changes()
    far = table["task"] == "rte"
    table.loc[far, ["change", "low", "high"]] *= 20
    table.loc[(table["task"] == "qqp") & (table["layer"] == 4), "high"] = 90.0
    none = table["task"] == "qnli"
    table.loc[none, ["change", "low", "high"]] = NAN
    return table.assign(significant=table["significant"].astype(object).where(~none, None))


# What holds for all of them


@pytest.mark.filterwarnings("error::UserWarning")  # a layout that did not fit
def test_every_figure_can_be_read_on_every_page() -> None:
    for drawing in drawings():
        check_readable(drawing.said("What to see."), largest=200_000)
        check_uncut(drawing)


def test_a_word_that_is_cut_off_is_found() -> None:
    cut = grid(heads(["rte"]))
    cut.figure.text(0.99, 0.5, "beyond the rim")
    with pytest.raises(AssertionError, match="beyond the rim"):
        check_uncut(cut)


CASES: list[tuple[Callable[..., Drawing], pd.DataFrame, str]] = [
    (grid, heads(), "value"),
    (grid, heads(), "task"),
    (layer_changes, changes(), "low"),
    (layer_changes, changes(), "significant"),
]


@pytest.mark.parametrize(("make", "table", "column"), CASES)
def test_tables_are_checked_and_left_as_they_were(
    make: Callable[..., Drawing], table: pd.DataFrame, column: str
) -> None:
    check_tables(make, [table], column)
    with pytest.raises(BadValue, match=r"two rows have the same task.* and (head|layer)"):
        make(pd.concat([table, table.iloc[:1]]))
    with pytest.raises(BadValue, match="below 1; count from 1"):
        make(table.assign(layer=table["layer"] - 1))


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(BadValue, match="column value has an infinite number, or none"):
        grid(heads().assign(value=NAN))
    with pytest.raises(BadValue, match="column change has an infinite number"):
        layer_changes(changes().assign(change=math.inf))
    with pytest.raises(BadValue, match=r"column sure holds 0\.03; expected true or false"):
        grid(heads().assign(sure=0.03), significant="sure")
    with pytest.raises(BadValue, match="no column other"):
        grid(heads(), significant="other")


# Grids


def test_every_pixel_is_the_value_of_its_head() -> None:
    table = heads().reset_index(drop=True)
    lost = (table["task"] == "rte") & (table["layer"] == 2) & (table["head"] == 3)
    table.loc[lost, "value"] = NAN
    table = table.drop(index=table.index[(table["task"] == "qqp") & (table["layer"] == 5)])
    drawing = grid(table, diverging=True)
    shown = panels(drawing)
    assert [panel.get_title("left") for panel in shown] == NAMES
    values = {(row.task, row.layer, row.head): row.value for row in table.itertuples()}
    for panel, task in zip(shown, TASKS, strict=True):
        cells = np.ma.filled(panel.images[0].get_array(), NAN)
        assert cells.shape == (5, 4)
        for layer, head in product(range(1, 6), range(1, 5)):
            wanted = values.get((task, layer, head), NAN)
            np.testing.assert_equal(cells[layer - 1, head - 1], wanted)
        # The pixel of layer 1, head 1 lies at (1, 1), and layers run downwards.
        assert panel.images[0].get_extent() == [0.5, 4.5, 5.5, 0.5]
        assert panel.get_ylim()[0] > panel.get_ylim()[1]
    assert drawing.table["value"].isna().sum() == 1


def test_all_panels_share_colours_around_zero_and_the_bar_tells_what_is_beyond() -> None:
    table = heads(layers=12, n_heads=12).reset_index(drop=True)
    table.loc[7, "value"] = 50.0
    drawing = grid(table, diverging=True, unit="points")
    limits = {panel.images[0].get_clim() for panel in panels(drawing)}
    ((low, high),) = limits
    assert low == -high and 2 < high < 5
    (bar,) = [panel for panel in drawing.figure.axes if panel not in panels(drawing)]
    beyond = sum(abs(value) > high for value in table["value"])
    assert beyond >= 1
    assert bar.get_xlabel() == f"change of the score, points ({beyond} heads beyond the colours)"
    calm = grid(heads().assign(value=lambda one: one["value"].clip(-0.1, 0.1)), diverging=True)
    bar = calm.figure.axes[-1]
    assert bar.get_xlabel() == "change of the score"
    assert panels(calm)[0].images[0].get_clim() == (-0.1, 0.1)
    assert panels(grid(heads().assign(value=0.0), diverging=True))[0].images[0].get_clim() == (
        -1,
        1,
    )


def test_colours_start_at_zero() -> None:
    table = heads().assign(value=lambda one: one["value"].abs())
    assert panels(grid(table))[0].images[0].get_clim() == (0, table["value"].max())


@pytest.mark.parametrize("diverging", [True, False])
def test_the_strongest_heads_are_ringed(diverging: bool) -> None:
    table = heads(layers=12, n_heads=12)
    drawing = grid(table, diverging=diverging, marked=3)
    for panel, task in zip(panels(drawing), TASKS, strict=True):
        mine = [
            (abs(row.value) if diverging else row.value, row.layer, row.head)
            for row in table.itertuples()
            if row.task == task
        ]
        best = sorted(mine, reverse=True)[:3]
        assert rings(panel) == {(layer, head) for _, layer, head in best}
    assert not rings(panels(grid(table, marked=0))[0])


def test_significant_heads_are_ringed_instead() -> None:
    table = heads().reset_index(drop=True)
    table["sure"] = table["sure"].astype(object)
    lost = table.index[table["task"] == "mrpc"]
    table.loc[lost[0], ["value", "sure"]] = [NAN, True]  # nothing to ring
    table.loc[lost[1], "sure"] = None
    drawing = grid(table, significant="sure")
    for panel, task in zip(panels(drawing), TASKS, strict=True):
        wanted = {
            (row.layer, row.head)
            for row in table.itertuples()
            if row.task == task and row.sure is True and not math.isnan(row.value)
        }
        assert rings(panel) == wanted


def test_many_significant_heads_get_dots_that_leave_the_colours_to_be_seen() -> None:
    table = heads(["rte", "qqp"], 12, 12).reset_index(drop=True)
    table["sure"] = (table["task"] == "qqp") & (table["layer"] > 8)
    drawing = grid(table, significant="sure")
    few, many = panels(drawing)
    assert rings(few) == set() and len(rings(many)) == 48
    (marks,) = [one for one in many.collections if len(np.asarray(one.get_offsets())) == 48]
    assert len(np.asarray(marks.get_facecolor())) and marks.get_sizes()[0] < 10  # type: ignore[attr-defined]
    none = grid(table.assign(sure=False), significant="sure")
    assert [rings(panel) for panel in panels(none)] == [set(), set()]


def test_rings_can_be_seen_on_their_cells() -> None:
    (panel,) = panels(grid(heads(["rte"], 12, 12), diverging=True, marked=40))
    (marks,) = [one for one in panel.collections if len(one.get_edgecolor()) == 40]
    for (x, y), edge in zip(np.asarray(marks.get_offsets()), marks.get_edgecolor(), strict=True):
        value = panel.images[0].get_array()[round(y) - 1, round(x) - 1]
        assert style.contrast(to_hex(edge), to_hex(panel.images[0].to_rgba(value))) > 4
    assert (ink_on("#000000"), ink_on("#ffffff")) == ("white", "black")


def test_another_column_can_be_the_group_and_four_panels_fill_a_line() -> None:
    table = heads().rename(columns={"task": "relation", "value": "mass"})
    drawing = task_grids(table, "mass", what="mass", group="relation")
    tops = [round(panel.get_subplotspec().rowspan.start) for panel in panels(drawing)]  # type: ignore[union-attr]
    assert tops == [0, 0, 0, 0, 1, 1, 1]
    assert len(panels(grid(heads(TASKS[:5]), group="task"))) == 5


# Layers


def shown_dots(panel: Axes) -> dict[bool, list[tuple[float, float]]]:
    """Layer and change of the full and of the hollow dots."""
    dots = {
        line.get_label(): line for line in panel.lines if "significant" in str(line.get_label())
    }
    assert to_hex(dots["significant"].get_markerfacecolor()) == OURS  # type: ignore[arg-type]
    assert dots["not significant"].get_markerfacecolor() == "none"
    found = {True: dots["significant"], False: dots["not significant"]}
    return {key: [(x, y) for x, y in np.asarray(line.get_xydata())] for key, line in found.items()}


def test_dots_are_the_changes_full_if_significant() -> None:
    table = changes().sample(frac=1, random_state=0).sort_values("task", kind="stable")
    drawing = layer_changes(table)
    tasks = list(dict.fromkeys(table["task"]))
    for panel, task in zip(drawing.figure.axes, tasks, strict=True):
        for sure, dots in shown_dots(panel).items():
            wanted = [
                (row.layer, row.change)
                for row in table.itertuples()
                if row.task == task and row.significant == sure
            ]
            assert dots == sorted(wanted)
        segments = [one.get_segments() for one in panel.collections]  # type: ignore[attr-defined]
        drawn = {(s[0][0], s[0][1], s[1][1]) for part in segments for s in part}
        part = table[table["task"] == task]
        assert drawn == set(zip(part["layer"], part["low"], part["high"], strict=True))
    assert len({panel.get_ylim() for panel in drawing.figure.axes}) == 1
    marks = {line.get_marker() for panel in drawing.figure.axes for line in panel.lines}
    assert not marks & {"v", "^"}


def test_unlike_tasks_get_own_axes_and_wide_intervals_are_clipped() -> None:
    table = uneven()
    drawing = layer_changes(table)
    axes = dict(zip(TASKS, drawing.figure.axes, strict=True))
    tall = {task: np.ptp(panel.get_ylim()) for task, panel in axes.items()}
    assert tall["rte"] > 5 * tall["mrpc"] and tall["qqp"] < 10
    assert "undefined" in [text.get_text() for text in axes["qnli"].texts]
    for task, panel in axes.items():  # all dots are inside
        low, high = panel.get_ylim()
        inside = table.loc[table["task"] == task, "change"].dropna()
        assert ((inside > low) & (inside < high)).all() and low < 0 < high
    (arrow,) = [line for line in axes["qqp"].lines if line.get_marker() == "^"]
    assert list(np.asarray(arrow.get_xdata())) == [4]
    marks = [line.get_marker() for panel in axes.values() for line in panel.lines]
    assert marks.count("^") + marks.count("v") == 1
    assert drawing.table["change"].notna().sum() == 12 * 6


# Scores, kinds of words, clouds of heads, two profiles

LABELS = ("untrained", "frozen", "random", "fine-tuned", "constant")
KINDS = ("noun", "verb", "pronoun", "subject", "object", "negation", "cls", "sep")


def starts() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for task, label in product(TASKS, LABELS):
        value = float(rng.uniform(20, 90))
        rows.append((task, label, value, value - 3, value + 3))
    return pd.DataFrame(rows, columns=["task", "label", "value", "low", "high"])


def kinds() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(list(product(TASKS, KINDS)), columns=["task", "kind"])
    return table.assign(mean=rng.uniform(0, 0.6, len(table)), head="10-12")


def cloud() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    table = pd.DataFrame(list(product(range(1, 13), range(1, 13))), columns=["layer", "head"])
    return table.assign(copy=rng.exponential(0.02, 144), cost=rng.normal(0, 1, 144))


def layers() -> pd.DataFrame:
    table = pd.DataFrame(list(product(TASKS, range(1, 13))), columns=["task", "layer"])
    ours = 1 - 0.02 * table["layer"]
    return table.assign(ours=ours, other=ours - 0.01).replace({"other": {ours[5] - 0.01: 0.3}})


def test_every_mark_stands_at_its_score_and_rings_are_the_papers() -> None:
    table = starts()
    drawing = start_dots(table, {("random", "rte"): 52.7}, strongest="fine-tuned")
    (panel,) = drawing.figure.axes
    drawn = {line.get_label(): line.get_xdata() for line in panel.lines}
    for label in LABELS:
        assert np.allclose(drawn[label], table.loc[table["label"] == label, "value"])
    rings = [line for line in panel.lines if line.get_markerfacecolor() == "none"]
    values = [x for line in rings for x in line.get_xdata() if not math.isnan(x)]
    assert values == [52.7]
    with pytest.raises(BadValue, match="6 kinds"):
        start_dots(pd.concat([table, table.assign(label="x").head(1)]), {}, strongest="x")


def test_cells_hold_the_numbers_and_the_heads() -> None:
    table = kinds()
    drawing = task_matrix(table, "kind", "mean", note="head")
    shown = [text.get_text() for text in painted(drawing.figure)]
    assert sorted(x for x in shown if x.startswith("0.")) == sorted(
        f"{value:.2f}" for value in table["mean"]
    )
    above = [text.get_text() for text in drawing.figure.axes[0].get_xticklabels()]
    assert shown.count("10-12") == len(table) and above[-2:] == ["[CLS]", "[SEP]"]


def test_one_task_has_cells_of_its_own_height() -> None:
    drawing = task_matrix(kinds().head(len(KINDS)), "kind", "mean")
    (mesh,) = drawing.figure.axes[0].collections
    corners = mesh.get_coordinates()  # type: ignore[attr-defined]
    assert np.ptp(corners[..., 1]) == 1 and np.ptp(corners[..., 0]) == len(KINDS)


def test_a_missing_cell_is_a_dash_and_no_cell_is_refused() -> None:
    table = kinds()
    table.loc[0, "mean"] = math.nan
    shown = [t.get_text() for t in painted(task_matrix(table, "kind", "mean").figure)]
    assert shown.count("–") == 1
    with pytest.raises(BadValue, match="no number"):
        task_matrix(table.assign(mean=math.nan), "kind", "mean")
    with pytest.raises(BadValue, match="same task"):
        task_matrix(pd.concat([table, table]), "kind", "mean")


def test_outlying_heads_are_named() -> None:
    table = cloud()
    table.loc[7, ["copy", "cost"]] = [0.5, 9.0]
    drawing = heads_against(table, "copy", "cost", x_label="copies", y_label="points")
    panel = drawing.figure.axes[0]
    assert "1-8" in [text.get_text() for text in panel.texts]
    assert np.allclose(panel.collections[0].get_offsets(), table[["copy", "cost"]])
    with pytest.raises(BadValue, match="2 heads"):
        heads_against(table.head(2), "copy", "cost", x_label="copies", y_label="points")


def test_two_profiles_have_a_line_and_rings() -> None:
    drawing = two_profiles(layers(), names=("cropped", "padded"), what="mean cosine")
    panels = drawing.figure.axes
    assert len(panels) == len(TASKS) and np.allclose(panels[0].lines[0].get_ydata()[0], 0.98)
    line, rings = (one.get_ydata() for one in panels[0].lines)
    assert (line[5], rings[5]) == pytest.approx((0.88, 0.3))  # in layer 6 they are far apart
    with pytest.raises(BadValue, match="nothing to draw"):
        two_profiles(layers().head(0), names=("a", "b"), what="cosine")


def test_scores_kinds_and_profiles_can_be_read_on_every_page() -> None:
    for drawing in (
        start_dots(starts(), {("random", "rte"): 52.7}, strongest="fine-tuned"),
        task_matrix(kinds(), "kind", "mean"),
        two_profiles(layers(), names=("cropped", "padded"), what="mean cosine"),
        heads_against(cloud(), "copy", "cost", x_label="copies", y_label="points", diagonal=True),
    ):
        check_readable(drawing.said("What to see."), largest=200_000)


def test_the_higher_line_of_power_is_that_of_one_head() -> None:
    (panel,) = power_curves(powers(["rte"])).figure.axes
    one, many = (np.asarray(line.get_ydata()) for line in panel.lines[:2])
    assert (one[1:] > many[1:]).all()
    assert [line.get_label() for line in panel.lines[:2]] == ["one head", "one of 144 heads"]
