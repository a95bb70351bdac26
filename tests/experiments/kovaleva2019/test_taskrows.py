"""Scores of tasks, kinds of words and layers side by side: drawn as the table says."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest

from attnlib.errors import BadValue
from experiments.kovaleva2019.taskrows import heads_against, start_dots, task_matrix, two_profiles
from tests.experiments.pande2021.test_rolefigures import check_readable, painted

TASKS = ("rte", "stsb", "mrpc", "qnli", "qqp", "sst2", "mnli")
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


def heads() -> pd.DataFrame:
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
    best = table[table["label"] == "fine-tuned"].iloc[0]
    assert f"RTE {best['value']:.1f}" in drawing.caption
    with pytest.raises(BadValue, match="6 kinds"):
        start_dots(pd.concat([table, table.assign(label="x").head(1)]), strongest="x")


def test_cells_hold_the_numbers_and_the_heads() -> None:
    table = kinds()
    drawing = task_matrix(table, "kind", "mean", what="attention", note="head")
    shown = [text.get_text() for text in painted(drawing.figure)]
    assert sorted(x for x in shown if x.startswith("0.")) == sorted(
        f"{value:.2f}" for value in table["mean"]
    )
    above = [text.get_text() for text in drawing.figure.axes[0].get_xticklabels()]
    assert shown.count("10-12") == len(table) and above[-2:] == ["[CLS]", "[SEP]"]
    first = table[table["task"] == "rte"]
    best = first.loc[first["mean"].idxmax()]
    name = {"cls": "[CLS]", "sep": "[SEP]"}.get(best["kind"], best["kind"])
    assert f"RTE {name} ({best['mean']:.2f})" in drawing.caption


def test_one_task_has_cells_of_its_own_height() -> None:
    drawing = task_matrix(kinds().head(len(KINDS)), "kind", "mean", what="attention")
    (mesh,) = drawing.figure.axes[0].collections
    corners = mesh.get_coordinates()  # type: ignore[attr-defined]
    assert np.ptp(corners[..., 1]) == 1 and np.ptp(corners[..., 0]) == len(KINDS)


def test_a_missing_cell_is_a_dash_and_no_cell_is_refused() -> None:
    table = kinds()
    table.loc[0, "mean"] = math.nan
    shown = [t.get_text() for t in painted(task_matrix(table, "kind", "mean", what="x").figure)]
    assert shown.count("–") == 1
    with pytest.raises(BadValue, match="no number"):
        task_matrix(table.assign(mean=math.nan), "kind", "mean", what="x")
    with pytest.raises(BadValue, match="same task"):
        task_matrix(pd.concat([table, table]), "kind", "mean", what="x")


def test_outlying_heads_are_named() -> None:
    table = heads()
    table.loc[7, ["copy", "cost"]] = [0.5, 9.0]
    drawing = heads_against(table, "copy", "cost", x_label="copies", y_label="points")
    assert "1-8 (0.50, 9.0)" in drawing.caption
    panel = drawing.figure.axes[0]
    assert np.allclose(panel.collections[0].get_offsets(), table[["copy", "cost"]])
    with pytest.raises(BadValue, match="2 heads"):
        heads_against(table.head(2), "copy", "cost", x_label="copies", y_label="points")


def test_two_profiles_have_a_line_and_rings() -> None:
    drawing = two_profiles(layers(), names=("cropped", "padded"), what="mean cosine")
    assert "layer 6" in drawing.caption and "0.88 and 0.30" in drawing.caption
    panels = drawing.figure.axes
    assert len(panels) == len(TASKS) and np.allclose(panels[0].lines[0].get_ydata()[0], 0.98)
    with pytest.raises(BadValue, match="nothing to draw"):
        two_profiles(layers().head(0), names=("a", "b"), what="cosine")


def test_all_of_them_can_be_read_on_every_page() -> None:
    for drawing in (
        start_dots(starts(), {("random", "rte"): 52.7}, strongest="fine-tuned"),
        task_matrix(kinds(), "kind", "mean", what="attention"),
        two_profiles(layers(), names=("cropped", "padded"), what="mean cosine"),
        heads_against(heads(), "copy", "cost", x_label="copies", y_label="points", diagonal=True),
    ):
        check_readable(drawing, largest=200_000)
