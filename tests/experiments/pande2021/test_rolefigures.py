"""Figures of roles show what a plain loop over the table counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch, Rectangle

from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing
from attnlib.plots.labels import task_name
from experiments.pande2021.role_figures import (
    COARSE,
    FINE,
    overlap_matrix,
    role_grid,
    role_look,
    role_name,
    role_overlaps,
)
from experiments.pande2021.score_figures import (
    bias_change_by_layer,
    bias_changes,
    decision_sizes,
    layer_profiles_beside,
    score_distributions,
    scores_and_p_values,
    threshold_curves,
)
from tests.figures import check_readable, check_tables

NAN = math.nan
TASKS = ("qnli", "sst2")
FOUR = ("qnli", "qqp", "mrpc", "sst2")


def heads(
    roles: Sequence[str] = COARSE,
    tasks: Sequence[str] = TASKS,
    layers: int = 4,
    n_heads: int = 3,
    chance: float = 0.4,
) -> pd.DataFrame:
    """Random roles; there is no block in sst2, as there is no second sentence."""
    draw = np.random.default_rng(5)
    rows = []
    for task, role, layer, head in product(tasks, roles, range(layers), range(n_heads)):
        assigned = bool(draw.random() < chance)
        defined = (task, role) != ("sst2", "block")
        bias = (4.0 if assigned else 2.0) if defined else NAN
        rows.append((task, role, layer + 1, head + 1, bias, assigned and defined))
    columns = ["task", "role", "layer", "head", "bias", "assigned"]
    table = pd.DataFrame(rows, columns=columns).sample(frac=1, random_state=1)
    return pd.concat([table[table["task"] == task] for task in tasks])


def held(table: pd.DataFrame, task: str) -> dict[tuple[int, int], set[str]]:
    """Roles of each head, by a loop."""
    found: dict[tuple[int, int], set[str]] = {}
    for row in table.to_dict("records"):
        if row["task"] == task:
            mine = found.setdefault((row["layer"], row["head"]), set())
            if row["assigned"]:
                mine.add(row["role"])
    return found


def inputs() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three heads: surely above 3, surely below, and not sure."""
    table = pd.DataFrame(
        {"label": ["5-4"] * 4 + ["1-1"] * 4 + ["2-2"] * 4, "score": [4, 4, 5, 7, 1, 1, 2, 2,
         1, 1, 1, 11.0]}
    )  # fmt: skip
    stats = pd.DataFrame(
        [("5-4", 5.0, 4.5, 4.0, 6.5), ("1-1", 1.5, 1.5, 1.0, 2.0), ("2-2", 3.5, 1.0, 1.0, 8.5)],
        columns=["label", "mean", "median", "low", "high"],
    )
    return table, stats


def cumulative() -> pd.DataFrame:
    rows = [("all", 1.0, 0.5), ("all", 3.0, 0.75), ("all", 9.0, 1.0)]
    rows += [("local", 0.5, 0.2), ("local", 3.0, 0.6), ("local", 9.0, 1.0)]
    rows += [("block", NAN, NAN)]
    return pd.DataFrame(rows, columns=["role", "score", "share"])


def p_values() -> pd.DataFrame:
    p = [0.001] * 5 + [0.5] + [0.99] * 4 + [NAN] * 2
    return pd.DataFrame({"role": ["local", "block"] * 6, "p": p})


def thresholds(roles: Sequence[str] = ("total", *COARSE)) -> pd.DataFrame:
    rows = [
        (t, role, 100 - 10 * t - i, 99 - 10 * t - i, 90 - 10 * t - i, 144)
        for (i, role), t in product(enumerate(roles), (1.5, 2.0, 3.0, 6.0))
    ]
    columns = ["threshold", "role", "assigned", "assigned_bh", "assigned_holm", "heads"]
    table = pd.DataFrame(rows, columns=columns)
    table.loc[table["role"] == "block", columns[2:5]] = NAN
    return table


def agreements(roles: Sequence[str] = COARSE) -> pd.DataFrame:
    """96% by luck at 20 inputs, then below, then for good."""
    steps = ((10, 0.8), (20, 0.96), (100, 0.9), (500, 0.97), (1000, 1.0))
    rows = [(n, role, share) for role, (n, share) in product(roles, steps)]
    return pd.DataFrame(rows, columns=["n", "role", "agreement"])


def changes(tasks: Sequence[str] = FOUR) -> pd.DataFrame:
    rows = []
    for (i, task), role, part in product(enumerate(tasks), COARSE, ("initial", "middle", "final")):
        change = -2.0 - i if (role, part) == ("delimiter", "final") else 0.1
        change = NAN if (task, role) == ("sst2", "block") else change
        rows.append((task, role, part, change, change - 0.5, change + 0.5))
    return pd.DataFrame(rows, columns=["task", "role", "part", "change", "low", "high"])


def layer_changes(tasks: Sequence[str] = TASKS) -> pd.DataFrame:
    rows = []
    for task, role, layer in product(tasks, COARSE, range(1, 7)):
        change = -3.0 if (task, role, layer) == ("qnli", "delimiter", 5) else 0.01 * layer
        change = NAN if (task, role) == ("sst2", "block") else change
        rows.append((task, role, layer, change, change - 0.5, change + 0.5))
    return pd.DataFrame(rows, columns=["task", "role", "layer", "change", "low", "high"])


def profiles(tasks: Sequence[str] = TASKS, roles: Sequence[str] = COARSE) -> pd.DataFrame:
    """The authors have no delimiter map of qnli; nobody has block in sst2."""
    rows = []
    for (i, role), task in product(enumerate(roles), tasks):
        rho = 0.5 + 0.1 * i if (role, task) != (roles[0], tasks[0]) else -0.25
        known = (task, role) != ("qnli", "delimiter")
        for layer in range(1, 7):
            theirs = 2.0 + layer if known else NAN
            rows.append((role, task, layer, 1.0 + layer, theirs, rho if known else NAN))
    table = pd.DataFrame(rows, columns=["role", "task", "layer", "ours", "authors", "rho"])
    table.loc[(table["task"] == "sst2") & (table["role"] == "block"), ["ours", "authors"]] = NAN
    return table


def drawings() -> list[Drawing]:
    """Each kind at its fullest, and those that nobody or one task leaves nearly empty."""
    one = heads(FINE, ["qnli"], 6, 12)
    return [
        role_overlaps(heads(tasks=FOUR)),
        role_overlaps(heads(chance=0.0)),
        role_overlaps(heads(tasks=["qnli"])),
        overlap_matrix(heads(tasks=FOUR)),
        role_grid(heads(FINE)),
        role_grid(one),
        score_distributions(*inputs()),
        score_distributions(inputs()[0].iloc[:4], inputs()[1]),
        scores_and_p_values(cumulative(), p_values(), 3.0, 2.8),
        threshold_curves(thresholds()),
        decision_sizes(agreements()),
        bias_changes(changes(FOUR)),
        bias_change_by_layer(layer_changes(["qnli"])),
        layer_profiles_beside(profiles()),
    ]


def texts(panel: Axes) -> list[str]:
    return [text.get_text() for text in panel.texts]


# What holds for all of them


def test_every_figure_can_be_read_on_every_page() -> None:
    for drawing in drawings():
        check_readable(drawing.said("What to see."), largest=200_000)


def test_the_same_table_gives_the_same_file() -> None:
    table = heads(FINE, ["qnli"])
    assert role_grid(table).svg() == role_grid(table).svg()


CASES: list[tuple[Callable[..., Drawing], tuple[pd.DataFrame, ...], str]] = [
    (role_overlaps, (heads(),), "assigned"),
    (overlap_matrix, (heads(),), "layer"),
    (role_grid, (heads(FINE),), "head"),
    (score_distributions, inputs(), "score"),
    (partial(scores_and_p_values, threshold=3.0, mean=2.8), (cumulative(), p_values()), "share"),
    (threshold_curves, (thresholds(),), "assigned_holm"),
    (decision_sizes, (agreements(),), "agreement"),
    (bias_changes, (changes(),), "part"),
    (bias_change_by_layer, (layer_changes(["qnli"]),), "low"),
    (layer_profiles_beside, (profiles(["qnli"]),), "authors"),
]


@pytest.mark.parametrize(("make", "tables", "column"), CASES)
def test_tables_are_checked_and_left_as_they_were(
    make: Callable[..., Drawing], tables: tuple[pd.DataFrame, ...], column: str
) -> None:
    check_tables(make, tables, column)


def test_second_tables_are_checked_too() -> None:
    with pytest.raises(BadValue, match="no column median"):
        score_distributions(inputs()[0], inputs()[1].drop(columns="median"))
    with pytest.raises(BadValue, match="no column p;"):
        scores_and_p_values(cumulative(), p_values().drop(columns="p"), 3.0, 2.8)
    with pytest.raises(BadValue, match="no column rho"):
        layer_profiles_beside(profiles().drop(columns="rho"))


def test_roles_that_share_a_hue_differ_by_mark() -> None:
    looks = [role_look(role) for role in (*FINE, "local", "delimiter", "syntactic")]
    assert len({(look.colour, look.marker) for look in looks}) == len(looks)
    assert len({role_look(role).colour for role in COARSE}) == 4
    for look in looks:
        assert style.contrast(look.colour, "#ffffff") >= 3
        assert style.contrast(look.colour, "#14181e") >= 3
    assert role_look("cls").colour == role_look("delimiter").colour
    assert (role_name("sep"), role_name("my_role"), task_name("sst2")) == (
        *("[SEP]", "my role"),
        "SST-2",
    )


# Overlaps


@pytest.mark.parametrize("tasks", [("qnli",), FOUR])
def test_bars_are_what_a_loop_counts(tasks: tuple[str, ...]) -> None:
    table = heads(tasks=tasks, layers=6, n_heads=12)
    _, *panels = role_overlaps(table).figure.axes
    assert [panel.get_title("left") for panel in panels] == [task_name(task) for task in tasks]
    for task, panel in zip(tasks, panels, strict=True):
        mine = held(table, task).values()
        exact = Counter("+".join(r for r in COARSE if r in one) or "no role" for one in mine)
        # A role alone and the whole role share a label: the later bar is the exact one.
        lengths = [(c.get_label(), int(c.patches[0].get_width())) for c in panel.containers]  # type: ignore[attr-defined]
        whole = [role for role in COARSE if (task, role) != ("sst2", "block")]
        assert lengths[: len(whole)] == [(r, sum(r in one for one in mine)) for r in whole]
        assert {name: n for name, n in lengths[len(whole) :] if n} == dict(exact)
        assert sum(n for _, n in lengths[len(whole) :]) == 72


def test_combinations_are_sorted_and_no_role_is_named() -> None:
    drawing = role_overlaps(heads(layers=6, n_heads=12))
    exact = drawing.table[drawing.table["exact"]]
    totals = exact.groupby("roles", sort=False)["heads"].sum()
    assert list(totals) == sorted(totals, reverse=True) and totals.sum() == 2 * 72
    assert "no role" in texts(drawing.figure.axes[0])
    assert len(totals) <= 16


def test_an_undefined_role_is_not_a_role_nobody_has() -> None:
    drawing = role_overlaps(heads())
    assert "undefined" in texts(drawing.figure.axes[-1]) and "–" in texts(drawing.figure.axes[-1])
    assert "undefined" not in texts(drawing.figure.axes[1])
    whole = drawing.table[~drawing.table["exact"]].set_index(["task", "roles"])["heads"]
    assert [*whole[whole.isna()].index] == [("sst2", "block")]
    by_decision = heads().drop(columns="bias").astype({"assigned": object})
    absent = (by_decision["role"] == "block") & (by_decision["task"] == "sst2")
    by_decision.loc[absent, "assigned"] = None
    pd.testing.assert_frame_equal(role_overlaps(by_decision).table, drawing.table)


def test_the_table_of_overlaps_has_the_numbers() -> None:
    table = heads(tasks=["qnli"])
    mine = list(held(table, "qnli").values())
    shown = role_overlaps(table).table.set_index(["exact", "roles"])["heads"]
    assert shown[True, "no role"] == sum(not one for one in mine)
    assert {role: shown[False, role] for role in COARSE} == {
        role: sum(role in one for one in mine) for role in COARSE
    }
    nobody = role_overlaps(heads(chance=0.0)).table
    assert nobody.loc[nobody["exact"], ["roles", "heads"]].to_numpy().tolist() == [
        ["no role", 12],
        ["no role", 12],
    ]


def test_the_matrix_has_the_shares_of_the_row() -> None:
    table = heads(tasks=FOUR, layers=6, n_heads=12)
    drawing = overlap_matrix(table)
    for task, panel in zip(FOUR, drawing.figure.axes, strict=True):
        mine = list(held(table, task).values())
        at = {
            (int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in panel.texts
        }
        for (y, role), (x, other) in product(enumerate(COARSE), enumerate(COARSE)):
            having = [one for one in mine if role in one]
            if task == "sst2" and "block" in (role, other):
                expected = "–"
            elif role == other:
                expected = str(len(having))
            else:
                expected = f"{100 * sum(other in one for one in having) / len(having):.0f}"
            assert at[y, x] == expected, (task, role, other)
    row = drawing.table.set_index(["task", "role", "other"])
    assert math.isnan(row.loc[("sst2", "local", "block"), "share"])
    shares = [row.loc[(task, "syntactic", "local"), "share"] for task in FOUR]
    for task, share in zip(FOUR, shares, strict=True):
        both = [("local" in one) for one in held(table, task).values() if "syntactic" in one]
        assert share == pytest.approx(np.mean(both))


def test_a_matrix_of_nobody_has_zeros_and_no_shares() -> None:
    drawing = overlap_matrix(heads(tasks=["qnli"], chance=0.0))
    (panel,) = drawing.figure.axes
    assert Counter(texts(panel)) == {"0": 4, "–": 12}
    assert drawing.table["share"].isna().all()


# The grid


def squares(panel: Axes) -> dict[str, list[tuple[float, float]]]:
    """Centres of the squares of each role, as drawn."""
    found = {}
    for patch in panel.patches:
        assert isinstance(patch, PathPatch)
        corners = np.asarray(patch.get_path().vertices).reshape(-1, 5, 2)
        found[str(patch.get_label())] = [tuple(one[:4].mean(0).round(3)) for one in corners]
    return found


@pytest.mark.parametrize(("layers", "n_heads"), [(6, 12), (12, 12), (2, 3)])
def test_every_role_of_every_head_is_a_square_at_its_place(layers: int, n_heads: int) -> None:
    table = heads(FINE, ["qnli"], layers, n_heads)
    drawing = role_grid(table)
    panel, _ = drawing.figure.axes
    shown = squares(panel)
    column = drawing.table.set_index(["layer", "head"])["column"]
    assert sorted(shown.pop("heads")) == [
        (head, layer) for head in range(1, n_heads + 1) for layer in range(1, layers + 1)
    ]
    for (layer, head), roles in held(table, "qnli").items():
        for i, role in enumerate(FINE):
            x = column[layer, head]
            place = (round(x + 0.29 * (i % 3 - 1), 3), round(layer + 0.29 * (i // 3 - 1), 3))
            assert (place in shown[role]) == (role in roles)
    assert sum(map(len, shown.values())) == table["assigned"].sum()
    assert panel.yaxis_inverted()


def test_sorting_keeps_every_head_recoverable() -> None:
    table = heads(FINE, layers=6, n_heads=12)
    drawing = role_grid(table)
    for task, panel in zip(TASKS, drawing.figure.axes[:2], strict=True):
        mine, shown = held(table, task), squares(panel)
        rows = drawing.table[drawing.table["task"] == task]
        for _, part in rows.groupby("layer"):
            assert sorted(part["column"]) == sorted(part["head"]) == list(range(1, 13))
            counts = part.sort_values("column")["n_roles"]
            assert list(counts) == sorted(counts, reverse=True)
        for row in rows.to_dict("records"):
            roles = mine[row["layer"], row["head"]]
            assert row["n_roles"] == len(roles)
            i = FINE.index("nsubj")
            place = (row["column"] + round(0.29 * (i % 3 - 1), 3), row["layer"] + 0.0)
            assert (place in shown["nsubj"]) == ("nsubj" in roles) == row["nsubj"]


def test_ties_keep_the_order_of_the_heads() -> None:
    shown = role_grid(heads(FINE, ["qnli"], 2, 5, chance=0.0)).table
    assert (shown["column"] == shown["head"]).all()


def test_the_key_is_a_cell_with_the_roles_at_their_places() -> None:
    key = role_grid(heads(FINE, ["qnli"])).figure.axes[-1]
    places = {t.get_text(): (round(t.xy[0]), t.xy[1]) for t in key.texts}  # type: ignore[attr-defined]
    assert places == {role_name(role): (i % 3, i // 3) for i, role in enumerate(FINE)}
    colours = [to_hex(line.get_color()) for line in key.lines]  # type: ignore[arg-type]
    assert colours == [role_look(role).colour for role in FINE]


def test_undefined_and_absent_roles_are_said_in_the_panel() -> None:
    drawing = role_grid(heads(FINE))
    titles = [panel.get_title("right") for panel in drawing.figure.axes[:2]]
    assert titles == ["", "block undefined"]
    without = heads(FINE, ["qnli"])
    without = without[without["role"] != "amod"]
    assert role_grid(without).figure.axes[0].get_title("right") == "amod undefined"
    assert (role_grid(heads(FINE, chance=0.0)).table["n_roles"] == 0).all()


def test_bad_grids_are_refused() -> None:
    many = pd.concat([heads(FINE, [f"t{i}"], 2, 2) for i in range(5)])
    with pytest.raises(BadValue, match="5 tasks do not fit"):
        role_grid(many)
    some = pd.concat([many[many["task"] == task] for task in ("t4", "t0")])
    assert len(role_grid(some).figure.axes) == 3
    assert list(role_grid(some).table["task"].unique()) == ["t4", "t0"]
    with pytest.raises(BadValue, match="two rows have the same task, layer, head and role"):
        role_grid(pd.concat([heads(FINE), heads(FINE)]))


# Scores and tests


def test_every_input_is_in_the_histogram_or_said_to_be_beyond() -> None:
    draw = np.random.default_rng(2)
    table = pd.DataFrame({"label": "5-4", "score": np.exp(draw.normal(0.5, 1, 500))})
    table.loc[500] = ["5-4", NAN]
    stats = inputs()[1]
    (panel,) = score_distributions(table, stats).figure.axes
    shown = sum(bar.get_height() for bar in panel.containers[0].patches)  # type: ignore[attr-defined]
    top = panel.get_xlim()[1]
    beyond = int((table["score"] > top).sum())
    assert beyond > 0 and shown + beyond == 500
    assert f"{beyond} beyond →" in texts(panel)
    assert "mean 5.00 [4.00, 6.50]\nmedian 4.50, 500 inputs" in texts(panel)


def test_lines_stand_at_mean_median_and_threshold() -> None:
    drawing = score_distributions(*inputs(), threshold=3)
    for panel, mean, median in zip(drawing.figure.axes, (5, 1.5, 3.5), (4.5, 1.5, 1), strict=True):
        at = {line.get_label(): np.asarray(line.get_xdata())[0] for line in panel.lines}
        assert at == {"mean": mean, "median": median, "threshold 3": 3}
    for panel, low, high in zip(drawing.figure.axes, (4, 1, 1), (6.5, 2, 8.5), strict=True):
        (span,) = (one for one in panel.patches if one.get_label() == "95% interval of the mean")
        assert isinstance(span, Rectangle)
        assert (span.get_x(), span.get_x() + span.get_width()) == (low, high)


def test_bad_distributions_are_refused() -> None:
    table, stats = inputs()
    four = pd.concat([table, table.iloc[:2].assign(label="9-9")])
    with pytest.raises(BadValue, match="4 labels"):
        score_distributions(four, stats)
    with pytest.raises(BadValue, match="no row for label '5-4'"):
        score_distributions(table, stats.iloc[1:])
    with pytest.raises(BadValue, match="'5-4' has no defined score"):
        score_distributions(table.assign(score=NAN), stats)


def test_shares_of_p_values_are_counted_without_the_undefined() -> None:
    drawing = scores_and_p_values(cumulative(), p_values(), 3.0, 2.8)
    left, right = drawing.figure.axes
    assert {"50.0%", "40.0%", "10.0%\nbetween 0.05 and 0.95"} == set(texts(right))
    heights = sum(
        np.array([bar.get_height() for bar in one.patches])  # type: ignore[attr-defined]
        for one in right.containers
    )
    np.testing.assert_allclose(heights, [50, *[0] * 9, 10, *[0] * 8, 40])
    assert len(right.containers) == 2
    assert texts(left) == ["mean 2.80", "threshold 3"]
    with pytest.raises(BadValue, match="no p-value"):
        scores_and_p_values(cumulative(), p_values().assign(p=NAN), 3.0, 2.8)


def test_cumulative_lines_hold_the_table() -> None:
    left, _ = scores_and_p_values(cumulative(), p_values(), 3.0, 2.8).figure.axes
    lines = {line.get_label(): line for line in left.lines}
    np.testing.assert_allclose(lines["all roles"].get_xydata(), [(1, 0.5), (3, 0.75), (9, 1)])
    np.testing.assert_allclose(lines["local"].get_xydata(), [(0.5, 0.2), (3, 0.6), (9, 1)])
    assert left.get_xscale() == "log" and left.get_ylim() == (0, 1)


def test_threshold_panels_hold_three_counts_and_mark_one() -> None:
    drawing = threshold_curves(thresholds(), threshold=3)
    names = [panel.get_title("left") for panel in drawing.figure.axes]
    assert names == ["all roles", *COARSE]
    whole = drawing.figure.axes[0]
    lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in whole.lines}
    np.testing.assert_allclose(lines["uncorrected"], [85, 80, 70, 40])
    np.testing.assert_allclose(lines["Benjamini-Hochberg"], [84, 79, 69, 39])
    np.testing.assert_allclose(lines["Holm"], [75, 70, 60, 30])
    assert texts(whole) == ["70"] and texts(drawing.figure.axes[2]) == ["undefined"]
    between = threshold_curves(thresholds(), threshold=2.5).figure.axes[0]
    assert texts(between) == []  # no count is known there


def test_shares_of_decisions_are_lines_and_undefined_roles_have_none() -> None:
    table = agreements()
    table.loc[(table["role"] == "block") & (table["n"] == 1000), "agreement"] = 0.9
    table.loc[table["role"] == "delimiter", "agreement"] = NAN
    drawing = decision_sizes(table)
    (panel,) = drawing.figure.axes
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in panel.lines}
    np.testing.assert_allclose(lines["local"], [0.8, 0.96, 0.9, 0.97, 1])
    assert "delimiter" not in lines and panel.get_xscale() == "log"
    with pytest.raises(BadValue, match="no agreement"):
        decision_sizes(table.assign(agreement=NAN))


# Changes and profiles


def test_changes_are_dots_in_order_with_intervals() -> None:
    drawing = bias_changes(changes())
    axes = drawing.figure.axes
    assert [panel.get_title("left") for panel in axes] == list(COARSE)
    assert len({panel.get_ylim() for panel in axes}) > 1
    dots = {line.get_label(): line for line in axes[2].lines if line.get_label() in FOUR}
    np.testing.assert_allclose(np.asarray(dots["qqp"].get_ydata()), [0.1, 0.1, -3])
    assert list(np.asarray(dots["qqp"].get_xdata()).round()) == [0, 1, 2]
    assert len({line.get_marker() for line in dots.values()}) == 4
    block = {line.get_label(): line for line in axes[1].lines}
    assert len(np.asarray(block["sst2"].get_xdata())) == 0


def test_bad_changes_are_refused() -> None:
    with pytest.raises(BadValue, match="part is 'last'"):
        bias_changes(changes().replace("final", "last"))
    for make, table in ((bias_changes, changes()), (bias_change_by_layer, layer_changes())):
        with pytest.raises(BadValue, match="no change is defined"):
            make(table.assign(change=NAN))


def test_layer_changes_have_a_panel_per_role_and_task() -> None:
    drawing = bias_change_by_layer(layer_changes())
    axes = drawing.figure.axes
    assert len(axes) == 8
    assert [panel.get_title("left") for panel in axes[:2]] == ["QNLI", "SST-2"]
    assert [panel.get_ylabel() for panel in axes[::2]] == list(COARSE)
    delimiter = axes[4].lines[1]
    np.testing.assert_allclose(delimiter.get_ydata(), [0.01, 0.02, 0.03, 0.04, -3, 0.06])
    assert texts(axes[3]) == ["undefined"]
    one = bias_change_by_layer(layer_changes(["qqp"])).figure.axes
    assert [panel.get_title("left") for panel in one] == list(COARSE)


def test_ours_is_solid_and_the_authors_hollow() -> None:
    drawing = layer_profiles_beside(profiles())
    axes = drawing.figure.axes
    assert len(axes) == 8
    for panel in axes:
        ours, theirs = panel.lines
        assert theirs.get_markerfacecolor() == "none" and ours.get_markerfacecolor() != "none"
        assert panel.get_ylim()[0] == 0
    ours, theirs = axes[0].lines
    np.testing.assert_allclose(ours.get_ydata(), np.arange(2, 8))
    np.testing.assert_allclose(theirs.get_ydata(), np.arange(3, 9))
    assert "ρ −0.25" in texts(axes[0])
    assert "ours only" in texts(axes[4]) and "undefined" in texts(axes[3])
    assert all(panel.get_ylim()[1] > 8 for panel in (axes[0], axes[2], axes[6]))
    undefined = layer_profiles_beside(profiles().assign(rho=NAN)).figure
    assert not any("ρ" in text for panel in undefined.axes for text in texts(panel))


def test_a_long_role_stays_beside_its_own_panels() -> None:
    table = profiles(roles=["local", "block (authors' score)", "delimiter"])
    figure = layer_profiles_beside(table).figure
    FigureCanvasAgg(figure).draw()
    for panel in figure.axes:
        assert panel.yaxis.label.get_window_extent().height < 1.15 * panel.bbox.height
