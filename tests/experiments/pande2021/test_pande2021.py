"""The numbers behind the claims on Pande 2021: by hand on small grids, in order, and complete."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm, spearmanr
from transformers import BertConfig

from attnlib.attention.encode import Batch
from attnlib.data.examples import Segment
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.roles import RoleScores, moments, role_scores, role_tests
from attnlib.metrics.relations import Relation
from attnlib.metrics.sieves import COARSE, SIEVES
from attnlib.models import Encoder, random_encoder
from bookkit import pagetables
from bookkit.claims import Finding, load_paper
from bookkit.store import Found
from experiments.pande2021 import authors, bias_scores, draws, sieves
from experiments.pande2021.bias_scores import BLOCK
from experiments.pande2021.draws import depth, role_numbers
from experiments.pande2021.tuning import tuning_overview
from experiments.shared.intervals import drawn
from experiments.shared.training.taskplans import Plan, over_tasks, task_plans
from tests.attnlib.measuring.test_roles import TEXTS, corpus_of, scores_of
from tests.families import one_thread, word_piece_tokenizer
from tests.maps import collated, text_of

__all__ = ["one_thread"]  # fixture

ROOT = Path(__file__).parents[3]
NAN = math.nan
ROLES = (*SIEVES, BLOCK)
FOUR = ("qnli", "qqp", "mrpc", "sst2")


# --- the numbers, by hand ------------------------------------------------------------------------


def heads(by_layer: Mapping[int, int], n_layers: int = 12) -> np.ndarray:
    """A grid in which the first so many of twelve heads of a layer, counted from 0, are True."""
    grid = np.zeros((n_layers, 12), bool)
    for layer, number in by_layer.items():
        grid[layer, :number] = True
    return grid


def numbers(
    has: Mapping[str, Mapping[int, int]] | None = None,
    *,
    n_layers: int = 12,
    single: bool = False,
    **grids: Mapping[str, Any],
) -> dict[str, float]:
    """Numbers of a world where no head has a role and every score is 1 unless said otherwise."""
    shape = (n_layers, 12)
    assigned = {role: heads((has or {}).get(role, {}), n_layers) for role in ROLES}
    filled = {}
    for name, usual in (("bias", 1.0), ("p", 1.0), ("skew", 0.0)):
        given = {role: np.full(shape, usual) for role in ROLES}
        if single:
            given |= {"block": np.full(shape, NAN), BLOCK: np.full(shape, NAN)}
        filled[name] = given | {
            role: np.broadcast_to(np.asarray(value, float), shape)
            for role, value in grids.get(name, {}).items()
        }
    return role_numbers(assigned, *filled.values(), 3.0)


def full(*layers: int) -> dict[int, int]:
    return dict.fromkeys(layers, 12)


def scattered(value: float, *places: tuple[int, int]) -> np.ndarray:
    """1 everywhere but in these places."""
    grid = np.ones((12, 12))
    for place in places:
        grid[place] = value
    return grid


RISING = np.arange(144.0).reshape(12, 12)
EVERY_LAYER_HALF = {layer: 6 for layer in range(1, 12) if layer != 7}

CASES: list[tuple[str, dict[str, Any], float]] = [
    # only coarse roles count, and only where they are defined
    (
        "score.mean",
        {"single": True, "bias": {"local": 2, "delimiter": 6, "syntactic": 1, "cls": 99}},
        3.0,
    ),
    (
        "p.undecided",
        {"p": {"local": 0.5, "delimiter": 0.05, BLOCK: 0.95, "block": 0.5, "cls": 0.5}},
        1 / 4,
    ),
    ("skew.share", {"single": True, "skew": {"nsubj": 2, "cls": 0.5, BLOCK: 9}}, 1 / 11),
    (
        "average_only.count",
        {
            "has": {"local": {0: 1}},
            "bias": {
                "local": scattered(3.0, (0, 0), (5, 5)),
                "cls": scattered(5.0, (1, 1), (2, 2), (3, 3)),
                "sep": 2.99,
                BLOCK: 9.0,
            },
        },
        4,
    ),
    ("delimiter.share", {"has": {"delimiter": {0: 12, 1: 6}, "cls": full(5)}}, 18 / 144),
    (
        "unskilled.share",
        {
            "has": {
                **{"local": full(0), BLOCK: full(1), "delimiter": full(0, 2)},
                **{"syntactic": {3: 6}, "block": full(5), "nsubj": full(6)},
            }
        },
        102 / 144,
    ),
    (
        "overlap.syntactic_local",
        {"has": {"syntactic": {0: 4}, "local": {0: 1, 4: 12}, "nsubj": full(4)}},
        1 / 4,
    ),
    ("spearman", {"bias": {"local": RISING, "syntactic": -(RISING**3)}}, -1),
    (
        "nsubj.next_minus_previous",
        {"has": {"nsubj": {3: 4}, "next_local": {3: 3, 5: 12}, "previous_local": {3: 1}}},
        0.5,
    ),
    (
        "dobj.previous_minus_next",
        {"has": {"dobj": {3: 4}, "next_local": {3: 4}, "previous_local": {3: 3, 5: 12}}},
        -0.25,
    ),
    ("block.heads", {"has": {"block": {2: 5}, BLOCK: full(0)}}, 5),
    (
        "block.overlap",
        {"has": {BLOCK: {0: 4}, "local": {0: 1}, "syntactic": {0: 2}, "block": full(1)}},
        0.5,
    ),
    ("block.first_minus_rest", {"has": {BLOCK: {0: 6, 5: 12}, "block": full(1)}}, 0.5 - 1 / 11),
    ("block.layers_2_to_5", {"has": {BLOCK: {0: 12, 1: 1, 4: 12, 5: 1}, "block": full(2)}}, 0.5),
    ("block.layers_with_1", {"has": {BLOCK: {0: 12, 1: 1, 11: 2}, "block": full(2)}}, 0.25),
    (
        "block.ends_minus_middle",
        {"has": {BLOCK: {0: 12, 3: 12, 4: 3, 7: 3, 8: 12, 11: 6}, "block": full(5)}},
        0.5 - 0.125,
    ),
    ("single.block_heads", {"single": True, "has": {BLOCK: {0: 2}}}, 2),
    (
        "multi.most_roles",
        {
            "has": {
                **{"previous_local": {4: 1}, "next_local": {4: 2}, BLOCK: {4: 1}, "cls": {4: 1}},
                **{"local": full(4), "delimiter": full(4), "syntactic": full(4)},
            }
        },
        4,
    ),
    ("multi.middle_over_rest", {"has": {"cls": full(5, 6, 7, 8, 9), "sep": full(0)}}, 7),
    ("multi.early_over_rest", {"has": {"cls": full(0, 1, 2, 3), "nsubj": full(4)}}, 8),
    ("multi.last_over_all", {"has": {"amod": full(10, 0)}}, 3),
    (
        "delimiter.least_layer",
        {"has": {"cls": {**EVERY_LAYER_HALF, 7: 2}, "sep": {7: 3}}},
        0.25,
    ),
    (
        "delimiter.first_layer",
        {"has": {"cls": {0: 3, 1: 12}, "sep": {0: 1}, "delimiter": full(0)}},
        0.25,
    ),
    (
        "delimiter.only_in_last",
        {
            "has": {
                **{"cls": {9: 4, 8: 12}, "sep": {9: 2}, "nsubj": {9: 1}},
                "previous_local": {10: 3},
            }
        },
        3 / 7,
    ),
    (
        "syntactic.layers_with_3",
        {
            "has": {
                **{"nsubj": {0: 2, 1: 3}, "dobj": {0: 1}, "amod": full(2)},
                **{"advmod": {3: 2}, "syntactic": full(7)},
            }
        },
        2 / 12,
    ),
    (
        "syntactic.middle_over_rest",
        {"has": {"nsubj": full(6), "dobj": full(6), "amod": {0: 9}}},
        4,
    ),
    ("syntactic.last_over_all", {"has": {"advmod": {10: 6, 3: 6}}}, 3),
]

OF_PAIRS = (
    *("block.heads", "block.overlap", "block.first_minus_rest"),
    *("block.layers_2_to_5", "block.layers_with_1", "block.ends_minus_middle"),
)

SIX_LAYERS: list[tuple[str, dict[str, Any], float]] = [
    ("multi.middle_over_rest", {"cls": full(2, 3, 4), "sep": full(0)}, 3),
    ("multi.early_over_rest", {"cls": full(0, 1), "sep": full(2)}, 4),
    ("multi.last_over_all", {"cls": full(5, 0)}, 3),
    ("delimiter.only_in_last", {"cls": {3: 12, 4: 2, 5: 2}, "nsubj": {4: 1}}, 3 / 4),
    ("syntactic.middle_over_rest", {"nsubj": {3: 12, 0: 6}}, 10),
    ("syntactic.last_over_all", {"nsubj": {5: 6}}, 6),
    ("block.first_minus_rest", {BLOCK: {0: 12, 1: 12}}, 0.8),
    ("block.layers_2_to_5", {BLOCK: full(0, 3)}, 0.5),
    ("block.ends_minus_middle", {BLOCK: {0: 12, 3: 12, 5: 9}}, 0.25),
    ("delimiter.share", {"delimiter": full(0, 1, 2)}, 0.5),
]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("name", "given", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_number_by_hand(name: str, given: dict[str, Any], expected: float) -> None:
    assert numbers(**given)[name] == pytest.approx(expected)
    assert numbers()[name] != pytest.approx(expected)  # the case is about something


@pytest.mark.parametrize(("name", "has", "expected"), SIX_LAYERS, ids=[c[0] for c in SIX_LAYERS])
def test_a_number_of_six_layers(name: str, has: dict[str, Any], expected: float) -> None:
    assert numbers(has, n_layers=6)[name] == pytest.approx(expected)


def test_every_number_is_tried() -> None:
    assert {case[0] for case in CASES} == set(numbers())


def test_a_number_of_nothing_is_undefined() -> None:
    """Nobody has a role: shares of all heads are 0, shares of nobody are no number."""
    zero = ("average_only.count", "delimiter.share", "skew.share", "p.undecided", "block.heads")
    zero += ("multi.most_roles", "delimiter.least_layer", "delimiter.first_layer")
    zero += ("syntactic.layers_with_3", *OF_PAIRS[2:])
    found = numbers()
    assert {name for name, value in found.items() if value == 0} == set(zero)
    assert found["unskilled.share"] == found["score.mean"] == 1
    rest = set(found) - {*zero, "unskilled.share", "score.mean"}
    assert all(math.isnan(found[name]) for name in rest)


def test_one_text_has_no_block_numbers() -> None:
    found = numbers({BLOCK: {0: 2}, "local": {0: 1}}, single=True)
    assert all(math.isnan(found[name]) for name in OF_PAIRS)
    assert math.isnan(numbers({BLOCK: {0: 2}})["single.block_heads"])


@pytest.mark.parametrize("n_layers", [6, 12, 24])
def test_depths_are_shares_of_the_layers(n_layers: int) -> None:
    layers = list(range(n_layers))
    ends = list(draws.PARTS.values())
    assert [layer for part in ends for layer in layers[depth(n_layers, *part)]] == layers
    assert len(layers[depth(n_layers, 0, 4)]) == n_layers // 3


def test_layers_of_the_paper_are_counted_from_0() -> None:
    """Layers 5 to 9 have more roles per head, layers 6 to 8 more syntactic heads (Sec. 4.4)."""
    assert list(range(12)[depth(12, 5, 10)]) == [5, 6, 7, 8, 9]
    assert list(range(12)[depth(12, 6, 9)]) == [6, 7, 8]
    assert list(range(12)[depth(12, 9, 12)]) == [9, 10, 11]  # the last three
    assert list(range(12)[depth(12, 10, 12)]) == [10, 11]  # the last two


# --- draws ---------------------------------------------------------------------------------------


def synthetic(seed: int = 0, *, single: bool = False, shape: tuple[int, ...] = (9, 6, 2)):
    """Random scores of every role, about 3; syntactic ones are undefined in the last input."""
    generator = np.random.default_rng(seed)
    values = {role: generator.gamma(2.0, 1.5, size=shape) for role in ROLES}
    for role in ("nsubj", "dobj", "amod", "advmod", "syntactic"):
        values[role][-1] = NAN
    if single:
        values |= {role: np.full(shape, NAN) for role in ("block", BLOCK)}
    return scores_of(**values)


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(draws, "DRAWS", 4)
    return 4


Give = Callable[..., None]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Put scores in the place of those of models: after fine-tuning, and before."""

    def scores(after: RoleScores, before: RoleScores | None = None) -> None:
        def stub(*_: Any, tuned: bool = True, **__: Any) -> RoleScores:
            chosen = after if tuned else before
            assert chosen is not None
            return chosen

        monkeypatch.setattr(bias_scores, "scores_of", stub)

    return scores


ASKED: dict[str, Any] = {"encoder": None, "task": "mrpc", "recipe": {}}


def drawn_numbers(**options: Any) -> pd.DataFrame:
    return draws.number_draws(None, None, **ASKED, **options).table


def changes_of(**options: Any) -> pd.DataFrame:
    return draws.bias_changes(None, None, **ASKED, **options).table


def test_the_first_draw_is_all_inputs(give: Give, few_draws: int) -> None:
    given = synthetic()
    give(given)
    table = drawn_numbers()
    assert table["draw"].tolist() == list(range(few_draws + 1))
    mean = {role: np.nanmean(v.astype(float), 0) for role, v in given.values.items()}
    n = {role: (~np.isnan(v)).sum(0) for role, v in given.values.items()}
    sd = {role: np.nanstd(v.astype(float), 0, ddof=1) for role, v in given.values.items()}
    p = {role: norm.sf((mean[role] - 3) / (sd[role] / np.sqrt(n[role]))) for role in ROLES}
    rows = moments(given).groupby("role")["skew"]
    skew = {role: rows.get_group(role).to_numpy().reshape(6, 2) for role in ROLES}
    expected = role_numbers({role: p[role] < 0.05 for role in ROLES}, mean, p, skew, 3.0)
    for name, value in expected.items():
        assert table[name][0] == pytest.approx(value, nan_ok=True, rel=1e-6), name
    assert table["sieves.defined_share"][0] == pytest.approx(8 / 9)
    assert table["sieves.defined_share"].nunique() > 1 < table["score.mean"].nunique()
    assert table["skew.share"][1:].isna().all()  # skewness is not drawn again


def test_draws_are_seeded_and_scatter_as_a_mean_does(give: Give, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(draws, "DRAWS", 300)
    given = synthetic(shape=(60, 3, 1))
    give(given, given)
    counts = draws._counts(60, 0)
    assert counts.shape == (301, 60) and (counts.sum(1) == 60).all() and (counts[0] == 1).all()
    assert (draws._counts(60, 0) == counts).all() and (draws._counts(60, 1) != counts).any()
    means = [draws._tests(given, one, 3.0)[0]["local"][0, 0] for one in counts]
    values = given.values["local"][:, 0, 0]
    assert means[0] == pytest.approx(values.mean(), rel=1e-6)
    assert np.std(means[1:]) == pytest.approx(values.std() / math.sqrt(60), rel=0.2)


def test_a_draw_has_the_same_inputs_for_all_roles_and_models(give: Give, few_draws: int) -> None:
    before = synthetic()
    same = dict(before.values) | {"syntactic": before.values["local"]}
    give(scores_of(**same))
    assert drawn_numbers()["spearman"].to_numpy() == pytest.approx(1)
    give(scores_of(**{role: v + 1 for role, v in before.values.items()}), before)
    table = changes_of()
    scores = table[table["role"] != draws.HEADS]
    assert len(scores) == (few_draws + 1) * 6 * len(draws.CHANGING)
    np.testing.assert_allclose(scores["change"], 1, atol=1e-5)


def check_changes(found: Callable[[], pd.DataFrame], give: Give) -> None:
    """After minus before, layer by layer, and the share of delimiter heads."""
    before, after = synthetic(1), synthetic(2)
    give(after, before)
    table = found()
    first = table[table["draw"] == 0].set_index(["role", "layer"])["change"]
    for role, layer in itertools.product(("local", BLOCK, "sep", "syntactic"), range(6)):
        old, new = (np.nanmean(s.values[role][:, layer], axis=0).mean() for s in (before, after))
        assert first[role, layer + 1] == pytest.approx(new - old, rel=1e-4)
    for layer in range(6):
        shares = []
        for scores in (before, after):
            columns = scores.values["delimiter"][:, layer].astype(float)
            z = (columns.mean(0) - 2.0) / (columns.std(0, ddof=1) / 3)
            shares.append((norm.sf(z) < 0.05).mean())
        assert first[draws.HEADS, layer + 1] == pytest.approx(shares[1] - shares[0])
    heads_change = first[draws.HEADS]
    assert heads_change.abs().max() > 0


def test_changes_are_after_minus_before(give: Give, few_draws: int) -> None:
    check_changes(lambda: changes_of(threshold=2.0), give)


def test_planted_swap_of_before_and_after_is_caught(
    give: Give, few_draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped() -> pd.DataFrame:
        honest = bias_scores.scores_of
        monkeypatch.setattr(
            bias_scores, "scores_of", lambda *a, tuned, **k: honest(tuned=not tuned)
        )
        return changes_of(threshold=2.0)

    with pytest.raises(AssertionError):
        check_changes(swapped, give)


def test_a_task_of_one_text_has_no_block_change(give: Give, few_draws: int) -> None:
    give(synthetic(1, single=True), synthetic(2, single=True))
    assert set(changes_of()["role"]) == {*draws.CHANGING, draws.HEADS} - {"block", BLOCK}


def change_table(by_role: Mapping[str, Sequence[float]], n_draws: int = 3) -> pd.DataFrame:
    """The same change in every layer of a third; every further draw is higher by 0.1."""
    rows = []
    for role, thirds in by_role.items():
        for draw, layer in itertools.product(range(n_draws), range(12)):
            rows.append((draw, role, layer + 1, thirds[layer // 4] + 0.1 * draw))
    return pd.DataFrame(rows, columns=["draw", "role", "layer", "change"])


def test_thirds_of_the_layers() -> None:
    table = change_table({"local": (1.0, 2.0, 4.0), "cls": (0.0, -1.0, 5.0)})
    table.loc[(table["layer"] == 12) & (table["role"] == "local"), "change"] += 4
    found = draws.parts_of(table.sample(frac=1, random_state=0))
    found = found.set_index(["role", "part", "draw"])["change"]
    assert len(found) == 2 * 3 * 3
    assert found["local", "initial", 0] == pytest.approx(1)
    assert found["local", "final", 0] == pytest.approx(5)  # 4, 4, 4 and 8
    assert found["cls", "middle", 2] == pytest.approx(-0.8)
    six = pd.DataFrame({"draw": 0, "role": "cls", "layer": range(1, 7), "change": range(6)})
    assert draws.parts_of(six)["change"].tolist() == [0.5, 2.5, 4.5]


# --- overviews -----------------------------------------------------------------------------------


def test_draw_0_is_the_value_and_the_others_its_interval() -> None:
    rest = np.arange(1.0, 202.0)
    found = drawn(np.concatenate([[5.0], rest, [NAN]]))
    assert (found.value, found.low, found.high) == pytest.approx((5.0, 6.0, 196.0))
    alone = drawn(np.array([2.0, NAN]))
    assert alone.value == 2 and math.isnan(alone.low)
    undefined = drawn(np.array([NAN, 1.0, 2.0]))
    assert math.isnan(undefined.value) and math.isnan(undefined.high)


def number_table(n_draws: int = 4, **columns: Sequence[float]) -> pd.DataFrame:
    usual = {"score.mean": 1.0, "overlap.syntactic_local": 0.5, "spearman": 0.0}
    given = {name: np.full(n_draws, value) for name, value in usual.items()}
    return pd.DataFrame({"draw": range(n_draws), **given, **columns})


def test_numbers_of_all_tasks() -> None:
    one = number_table(
        **{"overlap.syntactic_local": [0.2, 0.4, 0.4, 0.4], "score.mean": [3.0, 2.0, 3.5, 4.0]},
        spearman=[0.5, 0.6, 0.6, 0.6],
    )
    other = number_table(
        **{"overlap.syntactic_local": [0.8, 0.0, 0.1, NAN], "score.mean": [3.2, 1.0, 3.5, 4.0]},
        spearman=[NAN] * 4,
    )
    found = draws.numbers_overview(one, other, tasks=["qnli", "sst2"])
    seen = found.findings
    assert seen["overlap.syntactic_local"].value == pytest.approx(0.5)
    assert seen["overlap.syntactic_local.least"].value == 0.2
    assert seen["overlap.syntactic_local.least"].high == pytest.approx(0.4, abs=0.02)
    assert seen["overlap.syntactic_local.least"].low == pytest.approx(0.0, abs=0.02)
    assert seen["overlap.syntactic_local.most"].value == 0.8
    assert seen["score.rule"].value == 4  # the smallest integer above 3.1
    assert seen["score.rule"].low == pytest.approx(2, abs=0.2)
    assert seen["spearman"].value == seen["qnli.spearman"].value == 0.5
    assert math.isnan(seen["sst2.spearman"].value)
    table = found.table.set_index(["number", "task"])
    assert table.loc[("score.mean", "all"), "value"] == pytest.approx(3.1)
    assert table.loc[("score.mean", "sst2"), "value"] == 3.2
    assert not any(name.startswith("qnli.score") for name in seen)


def test_means_are_over_the_tasks_that_define_a_number() -> None:
    given = {"one": [1.0, NAN], "two": [NAN, 2.0], "none": [NAN, NAN], "both": [1.0, 3.0]}
    tables = [number_table(**{name: [pair[i]] * 4 for name, pair in given.items()}) for i in (0, 1)]
    found = draws.numbers_overview(*tables, tasks=["qnli", "sst2"]).findings
    means = [found[name].value for name in given]
    np.testing.assert_array_equal(means, [1.0, 2.0, NAN, 2.0])


def test_the_rule_of_the_threshold_is_strict() -> None:
    """A mean of exactly 3 gives 4."""
    table = number_table(**{"score.mean": [3.0, 2.9, 2.9, 2.9]})
    assert draws.numbers_overview(table, tasks=["qqp"]).findings["score.rule"].value == 4


CHANGES = {
    "qqp": {
        **{"delimiter": (0.5, -1.0, -4.0), "cls": (0.0, 0.0, -0.5), "sep": (0.0, 0.0, -6.0)},
        **{"block": (0.0, 0.0, 1.0), "local": (1.0, 1.0, 2.0), "syntactic": (0.5, 0.0, 1.0)},
        draws.HEADS: (0.0, 0.0, -0.25),
    },
    "sst2": {
        **{"delimiter": (-0.5, 1.0, -2.0), "cls": (0.0, 0.0, 1.5), "sep": (0.0, 0.0, 4.0)},
        **{"local": (-1.0, -1.0, -2.0), "syntactic": (-0.5, 0.0, -1.0)},
        draws.HEADS: (0.0, 0.0, -0.75),
    },
}
"""A task of two texts and one of one, which has no block."""


def test_changes_of_all_tasks() -> None:
    tables = [change_table(by_role) for by_role in CHANGES.values()]
    found = draws.changes_overview(*tables, tasks=list(CHANGES))
    expected = {
        "change.delimiter.final": -3.0,
        "change.block.final": 1.0,
        "change.delimiter_heads.final": -0.5,
        # sizes, task by task: 0.5 and 1.5 over 6 and 4
        "change.cls_over_sep": 1 / 5,
        # 0.5 1 0.5 0 and 0.5 1 0.5, or 1 1 0 0 and 1 1 0, over 4 2 1 1 and 2 2 1
        "change.initial_over_final": (4 / 7) / (13 / 7),
        "change.middle_over_final": (4 / 7) / (13 / 7),
    }
    assert {name: one.value for name, one in found.findings.items()} == pytest.approx(expected)
    one = found.findings["change.delimiter.final"]
    assert -2.91 < one.low < one.high < -2.79  # the further draws are at -2.9 and -2.8
    table = found.table.set_index(["task", "role", "part"])["change"]
    assert table["qqp", "delimiter", "middle"] == pytest.approx(-1)
    assert table["sst2", "cls", "final"] == pytest.approx(1.5)
    assert table["all", "cls", "final"] == pytest.approx(0.5)
    assert ("sst2", "block", "final") not in table.index


def test_changes_without_a_pair_of_texts() -> None:
    found = draws.changes_overview(change_table(CHANGES["sst2"]), tasks=["sst2"])
    assert math.isnan(found.findings["change.block.final"].value)
    assert found.findings["change.delimiter.final"].value == pytest.approx(-2)


# --- claims --------------------------------------------------------------------------------------

UNUSED = {
    "random.largest_bias",  # the chapter quotes it
    # the paper tells a number of these for some tasks only
    *("spearman", "multi.early_over_rest", "qqp.multi.middle_over_rest"),
    *(f"{task}.multi.early_over_rest" for task in ("qnli", "mrpc", "sst2")),
    *(f"{task}{OF_PAIRS[3]}" for task in ("", "mrpc.", "qqp.", "sst2.")),
    *(f"{task}{OF_PAIRS[4]}" for task in ("", "qnli.", "qqp.", "sst2.")),
    *(f"{task}{OF_PAIRS[5]}" for task in ("", "qnli.", "mrpc.", "sst2.")),
}
"""What the experiments find and no claim asks for: means and other tasks of what claims name."""


def test_every_claim_is_measured_and_every_number_is_claimed(
    give: Give, few_draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers_of, changes = [], []
    for seed, task in enumerate(FOUR):
        give(synthetic(seed, single=task == "sst2"), synthetic(9, single=task == "sst2"))
        numbers_of.append(drawn_numbers(threshold=1.0))
        changes.append(changes_of())
    gains = pd.DataFrame({"metric": ["accuracy"], "value": [0.8], "constant": [0.5]})
    monkeypatch.setattr(bias_scores, "random_twin", lambda encoder, seed: encoder)
    monkeypatch.setattr(bias_scores, "role_scores", lambda *_, **__: synthetic())
    named = {
        **draws.numbers_overview(*numbers_of, tasks=FOUR).findings,
        **draws.changes_overview(*changes, tasks=FOUR).findings,
        **tuning_overview(*[gains] * 4, tasks=FOUR).findings,
        **bias_scores.random_heads(None, encoder=None).findings,
    }
    wanted = set()
    for claim in load_paper("pande2021").claims:
        wanted |= {claim.measure, claim.phenomenon.measure}
    assert wanted - set(named) == set()
    assert set(named) - wanted == UNUSED
    undefined = [name for name, one in named.items() if math.isnan(one.value)]
    assert undefined == [f"sst2.{name}" for name in OF_PAIRS[3:]]  # a task of one text
    quotes = {name.replace(".", "_") for name in named}
    assert all(name.isidentifier() for name in quotes)


def test_the_least_gain_over_tasks() -> None:
    one = pd.DataFrame({"metric": ["f1", "accuracy"], "value": [0.9, 0.7], "constant": [0.8, 0.6]})
    other = pd.DataFrame({"metric": ["pearson", "spearman"], "value": 0.5, "constant": 0.0})
    found = tuning_overview(one, other, tasks=["mrpc", "stsb"])
    assert found.table["gain"].tolist() == pytest.approx([0.1, 0.5])
    assert found.findings["tuned.least_gain"].value == pytest.approx(0.1)


# --- plans ---------------------------------------------------------------------------------------


def plans_of(tasks: Mapping[str, Any], **defaults: Any) -> tuple[dict[str, Plan], list[Any]]:
    asked: list[Any] = []

    def corpus(*given: Any) -> Any:
        asked.append(given)
        return given

    return task_plans(corpus, tasks, 50, **defaults), asked


def test_plans_by_default() -> None:
    plans, asked = plans_of({"mrpc": {}})
    assert asked == [("mrpc:train", None), ("mrpc:dev", 50)]
    recipe = plans["mrpc"].recipe
    assert recipe["learning_rate"] == 1e-4 and recipe["epochs"] == 3 and recipe["max_length"] == 128
    assert plans["mrpc"].task == "mrpc" and plans["mrpc"].test == ("mrpc:dev", 50)


def test_a_task_has_the_last_word() -> None:
    own = {"test": "mrpc:test", "epochs": 2, "learning_rate": 2e-5, "max_steps": 9, "seed": 5}
    plans, asked = plans_of({"mrpc": own, "sst2": {"train_limit": 7}}, train_limit=640, epochs=1)
    assert asked == [("mrpc:train", 640), ("mrpc:test", 50), ("sst2:train", 7), ("sst2:dev", 50)]
    assert [plans[task].recipe["epochs"] for task in plans] == [2, 1]
    assert plans["mrpc"].recipe["learning_rate"] == 2e-5
    assert plans["mrpc"].recipe["max_steps"] == 9 and plans["mrpc"].recipe["seed"] == 5


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"mrpc": {"epoch": 2}}, "'epoch'; expected .*epochs"),
        ({"mrcp": {}}, "task 'mrcp' is unknown; expected one of mrpc"),
        ({}, "at least one, such as mrpc"),
        ({"mrpc": {"epochs": 0}}, "epochs"),
    ],
)
def test_wrong_plans_are_refused(tasks: Mapping[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        plans_of(tasks)


def test_an_experiment_runs_on_every_task() -> None:
    plans, _ = plans_of({"mrpc": {}, "sst2": {}})
    found = over_tasks(lambda *given, **options: (given, options), plans)("it", threshold=2)  # type: ignore[arg-type, return-value]
    assert list(found) == ["mrpc", "sst2"]
    given, options = found["sst2"]  # type: ignore[misc]
    assert given == ("it", ("sst2:train", None), ("sst2:dev", 50))
    assert options["task"] == "sst2" and options["threshold"] == 2
    assert options["recipe"] == dict(plans["sst2"].recipe)


# --- beside the authors' maps --------------------------------------------------------------------

FEW = """task role layer head avg_sieve_bias p_value
qnli block 0 0 4.25 0.00
qnli block 0 1 <=3.0 -
qnli block 11 3 3.50 0.00
sst-2 delim_both 1 2 7.0 0.00
sst-2 syn_dobj 0 0 0.5 1.00
sst-2 syn_advmod 0 0 1.5 1.00
qnli local_band2 0 0 99 0.00
"""
MANY = """task band layer head avg_sieve_bias p_value
qnli 1 0 0 88 0.00
qnli 2 0 0 1.53 0.00
sst-2 2 4 5 2.50 0.10
"""


@pytest.fixture
def published(tmp_path: Path) -> Path:
    (tmp_path / authors.FEW).write_text(FEW.replace(" ", "\t"))
    (tmp_path / authors.MANY).write_text(MANY.replace(" ", "\t"))
    return tmp_path


def test_maps_of_the_authors(published: Path) -> None:
    """Layers from 1, our names; the end of a colour scale is its value; local of 1,000 inputs."""
    table = authors.authors_maps(published)
    assert list(table.itertuples(index=False, name=None)) == [
        ("qnli", "local", 1, 1, 1.53),
        ("sst2", "local", 5, 6, 2.5),
        ("qnli", BLOCK, 1, 1, 4.25),
        ("qnli", BLOCK, 1, 2, 3.0),
        ("qnli", BLOCK, 12, 4, 3.5),
        ("sst2", "delimiter", 2, 3, 7.0),
        ("sst2", "dobj", 1, 1, 0.5),
        ("sst2", "advmod", 1, 1, 1.5),
    ]


def test_maps_without_a_known_role_are_refused(published: Path) -> None:
    (published / authors.FEW).write_text(FEW.splitlines()[0].replace(" ", "\t") + "\n")
    (published / authors.MANY).write_text(MANY.splitlines()[0].replace(" ", "\t") + "\n")
    with pytest.raises(CorpusError, match="none of the roles"):
        authors.authors_maps(published)


def profile_rows(task: str, role: str, by_layer: Sequence[float]) -> str:
    rows = [f"{task} {role} {layer} 0 {value} -\n" for layer, value in enumerate(by_layer)]
    return "".join(rows).replace(" ", "\t")


def test_layer_profiles_stand_side_by_side(published: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    head = FEW.splitlines()[0].replace(" ", "\t") + "\n"
    many = MANY.splitlines()[0].replace(" ", "\t") + "\n"
    profile = [1.0, 4.0, 2.0, 8.0]
    (published / authors.FEW).write_text(head + profile_rows("qnli", "delim_cls", profile))
    (published / authors.MANY).write_text(many + profile_rows("sst-2", "2", profile))
    monkeypatch.setattr(authors, "resolve", lambda name: published)
    grid = {"layer": [1, 1, 2, 2, 3, 3, 4, 4], "head": [1, 2] * 4}
    cls = pd.DataFrame({"role": "cls", **grid, "bias": [0, 2, 2, 4, 1, 3, 9, 9]})
    local = pd.DataFrame({"role": "local", **grid, "bias": NAN})
    found = authors.authors_beside(cls, local, tasks=["qnli", "sst2"])
    assert found.table["role"].tolist() == ["cls"] * 4  # nothing stands beside what is undefined
    assert found.table["ours"].tolist() == [1, 3, 2, 9]
    assert found.table["authors"].tolist() == profile
    assert found.table["rho"].to_numpy() == pytest.approx(1)
    assert found.table["p"].to_numpy() == pytest.approx(1 / 24, abs=0.01)


# --- cells of the chapter that compute ------------------------------------------------------------

CELLS = {
    cell["id"]: "".join(cell["source"])
    for cell in json.loads((ROOT / "notebooks" / "pande2021.ipynb").read_text())["cells"]
}


class Quotes(dict[str, Any]):
    """A chapter that remembers what is quoted and shows nothing."""

    quote = dict.update

    def show(self, *_: Any, **__: Any) -> None:
        """Nothing."""


def cell(name: str, **given: Any) -> dict[str, Any]:
    """Run a cell of the notebook and return its variables; its figures get tables and draw none."""
    drawn = SimpleNamespace(
        score_distributions=lambda *tables, **_: tables,
        scores_and_p_values=lambda *tables, **_: tables,
    )
    usual = {"np": np, "pd": pd, "role_tests": role_tests, "SIEVES": SIEVES, "threshold": 3.0}
    usual |= {"bias_scores": bias_scores, "sieves": sieves, "score_figures": drawn}
    space = {**usual, "chapter": Quotes(), "pagetables": pagetables, **given}
    exec(CELLS[name], space)
    return space


def tables_of(measured: Mapping[str, Found]) -> list[pd.DataFrame]:
    return [one.table for one in measured.values()]


def moment_table(task: str, bias: Mapping[str, float], sd: float = 1.0, n: int = 100):
    """Two layers of two heads; every head of a role has the same moments."""
    rows = [
        {
            **{"task": task, "role": role, "layer": layer, "head": head, "bias": mean},
            **{"low": mean, "high": mean, "sd": sd, "skew": 0.0, "median": mean, "n": n},
        }
        for role, mean in bias.items()
        for layer, head in itertools.product((1, 2), repeat=2)
    ]
    return pd.DataFrame(rows)


def test_judged_roles_have_the_authors_block() -> None:
    bias = {"local": 4.0, "block": 1.9, BLOCK: 5.0, "sibling": 9.0, "local@authors": 9.0}
    measured = {task: Found(moment_table(task, bias)) for task in ("qqp", "mrpc")}
    moments_of_all = bias_scores.with_authors_block(pd.concat(tables_of(measured)))
    tests = role_tests(moments_of_all)
    assert set(tests["role"]) == {"local", "block"} and len(tests) == 2 * 2 * 4
    assert set(tests.loc[tests["role"] == "block", "bias"]) == {5.0}
    assert tests["assigned"].all() and set(tests["task"]) == {"qqp", "mrpc"}
    one_p = norm.sf((4.0 - 3) / (1 / 10))
    np.testing.assert_allclose(tests.loc[tests["role"] == "local", "q"], one_p, rtol=1e-6)
    assert not role_tests(moments_of_all, threshold=5.0)["assigned"].any()


def test_quotes_on_corrections() -> None:
    table = pd.DataFrame(
        {
            "p": [0.001, 0.02, 0.04, 0.5, NAN],
            "q": [0.004, 0.04, 0.053, 0.5, NAN],
            "holm": [0.004, 0.06, 0.08, 0.5, NAN],
            "effect": [1.0, 0.3, 0.1, -0.5, NAN],
            "needed": [5.0, 60.0, 600.0, 30.0, NAN],
            "assigned": [True, True, True, False, False],
        }
    )
    curves = pd.DataFrame({"role": "total", "threshold": [2, 3, 5], "undecided": 0.0})
    found = cell("fig3-quotes", tests=table, curves=curves)["chapter"]
    assert [found.pop(f"undecided_{at}") for at in (2, 3, 5)] == [0, 0, 0]
    assert found.pop("lost_bh") == pytest.approx(1 / 3)
    assert found.pop("lost_holm") == pytest.approx(2 / 3)
    assert found == {
        **{"n_tests": 4, "n_assigned": 3, "n_bh": 2, "n_holm": 1},
        **{"median_effect": 0.3, "median_needed": 45.0, "small_effects": 1},
    }


def test_ceilings_beside_the_best_head() -> None:
    """Of the task in which the best head comes nearest to the perfect one."""
    tops = {"local": 8.0, "block": 2.1, "cls": 40.0, "nsubj": NAN}
    one = moment_table("qqp", {"local": 4.5, "block": 1.9, "cls": 9.0})
    one.loc[(one["role"] == "cls") & (one["head"] == 2), "bias"] = 20.0
    other = moment_table("sst2", {"local": 4.0, "block": NAN, "cls": 1.0})
    measured = {
        "qqp": Found(one, facts={"ceilings": tops}),
        "sst2": Found(other, facts={"ceilings": {**tops, "local": 5.0, "block": NAN}}),
    }
    rows = cell("ceilings-table", measured=measured)["ceilings"]
    assert rows.index.tolist() == ["local", "block", "cls"]
    assert rows.loc["local"].tolist() == [5.0, 4.0, 0.6, "yes"]
    assert rows.loc["block"].tolist() == [2.1, 1.9, 3 / 2.1, "no"]
    assert rows.loc["cls"].tolist() == [40.0, 20.0, 3 / 40, "yes"]
    low = cell("ceilings-table", measured=measured, threshold=2.0)["ceilings"]
    assert set(low["can be passed"]) == {"yes"}


def test_spread_of_the_scores(give: Give) -> None:
    given = synthetic(shape=(40, 6, 2), single=True)
    give(given)
    found = bias_scores.score_spread(None, None, **ASKED)
    assert set(found.table["role"]) == {"local", "delimiter", "syntactic"}  # what is defined
    for role, rows in found.table.groupby("role"):
        known = given.values[role][~np.isnan(given.values[role])]
        assert rows["share"].iloc[0] == 0 and rows["share"].iloc[-1] == 1
        assert rows["score"].iloc[0] == known.min() and rows["score"].iloc[-1] == known.max()
        middle = rows.loc[rows["share"] == 0.5, "score"].item()
        assert middle == pytest.approx(np.median(known), rel=1e-6)
    moments_of = moment_table("mrpc", {"local": 4.0})
    overview = Found(pd.DataFrame(), {"score.mean": Finding(1.0)})
    both = {"mrpc": found, "sst2": found}
    shown = cell("fig3", each=lambda _: both, tables=[moments_of], overview=overview)
    joined = pd.concat(shown["cumulative"])
    assert list(joined["role"].unique()) == ["all", "local", "delimiter", "syntactic"]
    for role, rows in joined.groupby("role"):
        assert rows["share"].iloc[0] == 0 and rows["share"].iloc[-1] == 1
        assert rows["share"].is_monotonic_increasing and rows["score"].is_monotonic_increasing
        names = ["local", "delimiter", "syntactic"] if role == "all" else [role]
        known = np.concatenate([given.values[name].ravel() for name in names])
        known = known[~np.isnan(known)]
        for share in (0.1, 0.5, 0.9):  # the share of scores below is that of the plain scores
            below = np.interp(np.quantile(known, share), rows["score"], rows["share"])
            assert below == pytest.approx(share, abs=0.02)


def test_examples_of_heads(give: Give) -> None:
    """A head that the mean labels and the test does not, one with the role, and one without."""
    values = {role: np.full((40, 2, 2), 1.0) for role in ROLES}
    generator = np.random.default_rng(0)
    for role in ROLES:
        values[role] += generator.normal(0, 0.01, size=(40, 2, 2))
    values["cls"][:, 1, 0] = [120.0 + 0.5, *[0.1] * 39]  # mean 3.1
    values["sep"][:, 0, 1] = 3.5 + generator.normal(0, 0.1, 40)
    values["local"][:, 1, 1] = 2.5 + generator.normal(0, 0.1, 40)
    values[BLOCK][:, 0, 0] = 3.5 + generator.normal(0, 0.1, 40)
    give(scores_of(**values))
    found = bias_scores.score_examples(None, None, **ASKED)
    first = found.table.groupby("kind", sort=False).first()
    assert first.index.tolist() == ["average alone", "both", "neither"]
    places = first[["role", "layer", "head"]].to_numpy().tolist()
    assert places == [["cls", 2, 1], ["sep", 1, 2], ["local", 2, 2]]
    none = bias_scores.score_examples(None, None, **ASKED, threshold=50.0)
    assert none.table.empty and list(none.table.columns) == list(found.table.columns)
    space = cell("skew", each=lambda *_, **__: {"a": none, "b": found})
    assert space["shown"] == "b"  # the task that shows most kinds of heads
    table, stats = space["figure"]
    labels = ["2-1, cls (average alone)", "1-2, sep (both)", "2-2, local (neither)"]
    assert stats["label"].tolist() == list(table["label"].unique()) == labels
    assert len(table) == 120
    alone = stats.iloc[0]
    assert alone["mean"] == pytest.approx(3.11, abs=0.01) and alone["low"] < 3 < alone["high"]
    assert alone["median"] == pytest.approx(0.1) and (stats["low"] <= stats["mean"]).all()


def test_decisions_of_fewer_inputs(give: Give) -> None:
    values = dict(synthetic(shape=(30, 2, 1), single=True).values)
    values["local"] = np.random.default_rng(0).normal(30, 1, (30, 2, 1))  # no doubt at all
    give(scores_of(**values))
    table = bias_scores.decisions(None, None, **ASKED).table
    assert table.groupby("role", sort=False)["n"].agg(list).to_dict() == {
        role: [10, 20] for role in ("local", "delimiter", "syntactic")
    }
    assert (table.loc[table["role"] == "local", ["agreement", "settled"]] == 1).all(axis=None)
    assert table["agreement"].between(0.3, 1).all()


def test_new_roles_are_counted() -> None:
    table = moment_table("qqp", {"sibling": 4.0, "rare_word": NAN, "cls": 9.0})
    table.loc[2, "bias"] = 6.0
    measured = {"qqp": Found(table, facts={"ceilings": {"sibling": 30.0}})}
    rows = cell("new-roles", measured=measured)["rows"]
    assert [row["role"] for row in rows] == ["sibling", "rare_word"]
    assert rows[0]["heads"] == 4 and rows[0]["strongest"] == "2-1" and rows[0]["bias"] == 6
    assert rows[0]["perfect head"] == 30 and rows[0]["inputs"] == 100 and rows[1]["heads"] == 0
    one, _ = cell("new-roles", measured=measured, threshold=5.0)["rows"]
    assert one["heads"] == 1


def test_block_heads_that_look_away() -> None:
    """The authors' score can be high where the head gives its text less than an even share."""
    one = moment_table("qqp", {"block": 1.5, BLOCK: 5.0})
    one.loc[(one["role"] == "block") & (one["layer"] == 1), "bias"] = 0.9
    one.loc[(one["role"] == BLOCK) & (one["head"] == 2), "bias"] = 2.0
    other = moment_table("sst2", {"block": NAN, BLOCK: NAN})
    judged = bias_scores.with_authors_block(pd.concat([one, other]))
    for threshold, expected in ((3.0, (2, 1)), (1.0, (4, 2))):
        tests = role_tests(judged, threshold=threshold)
        quotes = cell("code-quotes", tests=tests, tables=[one, other])["chapter"]
        assert (quotes["n_block"], quotes["n_block_uneven"]) == expected


def test_layers_that_change() -> None:
    table = change_table({"local": (1.0, 2.0, 3.0)}).assign(task="qqp")
    rows = draws.intervals(table.sample(frac=1, random_state=0), ["task", "role", "layer"])
    rows = rows.sort_values("layer")
    assert rows["layer"].tolist() == list(range(1, 13)) and set(rows["role"]) == {"local"}
    assert rows["change"].tolist() == [1.0] * 4 + [2.0] * 4 + [3.0] * 4
    assert rows["low"].to_numpy() == pytest.approx(rows["change"] + 0.1, abs=0.01)


# --- paper against code --------------------------------------------------------------------------


def test_differences_between_paper_and_code() -> None:
    both = {"local": 2.0, "local@authors": 4.0, "delimiter": 3.3, "nsubj": 5.0}
    one = moment_table("qqp", {**both, "nsubj@authors": 5.0}, sd=1.0, n=30)
    first, last = (one["role"] == "nsubj").idxmax(), one.index[-1]
    one.loc[[first, last], "bias"] = 1.0  # one head gets the role by the code, another loses it
    other = moment_table("sst2", {"local": 4.0, "local@authors": 4.0}, n=30)
    table = authors.disagreements(one, other, tasks=["qqp", "sst2"])
    rows = table.table.set_index(["what", "role"])
    assert rows.loc[("score", "local")].tolist() == [3.0, 4.0, 2.0, 4.0, 2.0]
    assert rows.loc[("score", "nsubj")].tolist() == [4.0, 4.0, 3.0, 3.0, 2.0]
    assert ("score", "block") not in rows.index and ("t instead of z", "nsubj") not in rows.index
    coarse = table.table[table.table["role"].isin(COARSE)]
    columns = ["what", "unit", "paper_way", "authors_way"]
    effects = pd.DataFrame(cell("code-table", differences=coarse)["rows"], columns=columns)
    told = "heads with the role"
    assert effects["what"].tolist()[:2] == [
        "local: mean score",
        f"local: {told} (2.0 get or lose it)",
    ]
    assert effects["paper_way"].tolist()[:2] == [3.0, 2.0]
    assert effects["authors_way"].tolist()[:2] == [4.0, 4.0]
    assert f"delimiter, t instead of z: {told} (0.0 get or lose it)" in effects["what"].tolist()
    assert len(effects) == 2 + 2 and set(effects["unit"]) == {"times even", "heads"}


def test_curves_of_the_threshold() -> None:
    one = moment_table("qqp", {"local": 4.0, "block": 1.9, BLOCK: 5.0, "sibling": 9.0})
    other = moment_table("sst2", {"local": 2.0, "block": NAN, BLOCK: NAN})
    found = bias_scores.threshold_curves(one, other, tasks=["qqp", "sst2"])
    curve = found.table.set_index(["role", "threshold"])
    assert set(found.table["role"]) == {"total", "local", "block"}
    assert curve.loc[("local", 1.5), ["assigned", "heads"]].tolist() == [8, 8]
    assert curve.loc[("local", 3.0), "assigned"] == 4
    assert curve.loc[("local", 4.25), "assigned"] == 0
    assert curve.loc[("block", 4.5), ["assigned", "heads"]].tolist() == [4, 4]  # the authors'
    assert curve.loc[("total", 1.5), ["assigned", "heads"]].tolist() == [12, 12]
    assert curve.loc[("local", 2.0), "undecided"] == 0.5  # a mean on the threshold: p is 0.5
    assert (found.table["assigned"] >= found.table["assigned_bh"]).all()
    assert (found.table["assigned_bh"] >= found.table["assigned_holm"]).all()
    total = curve.loc["total", "undecided"]
    assert total[[2.0, 3.0, 5.0]].tolist() == pytest.approx([1 / 3, 0, 1 / 3])


# --- four more sieves ----------------------------------------------------------------------------


def spelled(*texts: str) -> tuple[Batch, list[list[str]], dict[str, int]]:
    """A batch in which the same piece has the same id; 0 is padding."""
    pieces = [text.split() for text in texts]
    ids = {piece: i + 1 for i, piece in enumerate(sorted({p for row in pieces for p in row}))}
    batch = collated([text_of(text) for text in texts])
    filled = [[*(ids[p] for p in row), *[0] * (batch.length - len(row))] for row in pieces]
    return replace(batch, ids=torch.tensor(filled)), pieces, ids


def pairs_of(relation: Relation, batch: Batch, row: int = 0) -> set[tuple[int, int]]:
    return {(int(q), int(k)) for q, k in relation.mask(batch)[row].nonzero()}


def test_siblings_are_pieces_of_one_word() -> None:
    batch, _, _ = spelled("[CLS] a ##b ##c d [SEP] e ##b [SEP]", "[CLS] a [SEP]")
    triple = set(itertools.permutations((1, 2, 3), 2))
    assert pairs_of(sieves.sibling, batch) == triple | {(6, 7), (7, 6)}
    assert pairs_of(sieves.sibling, batch, 1) == set()


def test_repeated_words_are_elsewhere() -> None:
    batch, _, _ = spelled("[CLS] a b a ##c ##c b [SEP] a ##c [SEP]", "[CLS] a b [SEP]")
    a, b, c = (1, 3, 8), (2, 6), ((4, 9), (5, 9))
    expected = {*itertools.permutations(a, 2), *itertools.permutations(b, 2)}
    expected |= {pair for one in c for pair in (one, one[::-1])}  # not within one word
    assert pairs_of(sieves.repeated_word, batch) == expected
    assert pairs_of(sieves.repeated_word, batch, 1) == set()


def test_question_marks() -> None:
    batch, _, ids = spelled("[CLS] why ? [SEP] who ? [SEP]", "[CLS] so [SEP]")
    tokenizer = SimpleNamespace(convert_tokens_to_ids=ids.__getitem__)
    relation = sieves.question_mark(SimpleNamespace(tokenizer=tokenizer))  # type: ignore[arg-type]
    assert pairs_of(relation, batch) == set(itertools.product(range(7), (2, 5)))
    assert pairs_of(relation, batch, 1) == set()


def tiny(seed: int) -> Encoder:
    """Six layers of two heads; weights large enough for heads to differ."""
    tokenizer = word_piece_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 6, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 16, "max_position_embeddings": 128}
    config = BertConfig(vocab_size=len(tokenizer), initializer_range=0.7, **sizes)
    return random_encoder(config, tokenizer, seed=seed)


def test_rare_words_are_counted_in_the_corpus() -> None:
    encoder = tiny(0)
    texts = ["the river the road", "the old river", "the snow", "the the the"]
    corpus = corpus_of(*(Segment(f"t{i}", text) for i, text in enumerate(texts)))
    relation = sieves.rare_word(encoder, corpus)
    written = ["[CLS] the river the road [SEP]", "[CLS] the river [SEP] the snow old [SEP]"]
    batch, pieces, _ = spelled(*written)
    ids = [encoder.tokenizer.convert_tokens_to_ids(row) for row in pieces]
    ids = [[*row, *[0] * (batch.length - len(row))] for row in ids]
    batch = replace(batch, ids=torch.tensor(ids))
    assert pairs_of(relation, batch) == {(q, 4) for q in range(6)}  # road: once
    rarest = itertools.product(range(8), (5, 6))  # snow and old, once each; river twice
    assert pairs_of(relation, batch, 1) == set(rarest)


def test_new_sieves_have_the_names_of_the_chapter() -> None:
    corpus = corpus_of(Segment("one", "why did it run?"))
    assert tuple(s.key for s in sieves.new_sieves(tiny(0), corpus)) == sieves.NEW


# --- from texts to numbers -----------------------------------------------------------------------

TRAIN, TEST = corpus_of(TEXTS[0]), corpus_of(*TEXTS)
RECIPE = {"max_length": 40, "epochs": 1}


@pytest.fixture(scope="module")
def models() -> dict[str, Encoder]:
    return {"before": tiny(1), "after": tiny(2)}


@pytest.fixture(scope="module")
def truth(models: dict[str, Encoder]) -> dict[str, RoleScores]:
    """The scores of both models, one text at a time."""
    found = {}
    for name, encoder in models.items():
        alone = [
            role_scores(encoder, corpus_of(text), authors=["block"], max_length=40)
            for text in TEXTS
        ]
        found[name] = scores_of(
            **{role: np.concatenate([one.values[role] for one in alone]) for role in ROLES}
        )
    return found


@pytest.fixture
def trained(models: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Instead of training: the other random model. What was asked for is noted."""
    asked: list[str] = []

    def stub(train: Any, *, task: str, **_: Any) -> Any:
        asked.append(task)
        return SimpleNamespace(encoder=models["after"])

    monkeypatch.setattr(bias_scores, "tuned_model", stub)
    monkeypatch.setattr(bias_scores, "_KEPT", {})
    monkeypatch.setattr(draws, "DRAWS", 3)
    return asked


def bias_of(scores: RoleScores, role: str) -> np.ndarray:
    return np.nanmean(scores.values[role].astype(float), axis=0)


def test_from_texts_to_numbers(
    models: dict[str, Encoder], truth: dict[str, RoleScores], trained: list[str]
) -> None:
    options: dict[str, Any] = {"encoder": models["before"], "task": "mrpc", "recipe": RECIPE}
    found = bias_scores.role_moments(TRAIN, TEST, **options)
    names = {*SIEVES, *sieves.NEW, *(f"{role}@authors" for role in bias_scores.AS_AUTHORS)}
    assert set(found.table["role"]) == names and set(found.table["task"]) == {"mrpc"}
    for role in ROLES:
        rows = found.table[found.table["role"] == role]
        expected = bias_of(truth["after"], role).ravel()
        np.testing.assert_allclose(rows["bias"], expected, rtol=1e-4, err_msg=role)
    facts = found.facts
    assert facts["inputs"] == 6 and facts["defined"]["block"] == 4 and facts["tuned"]
    assert facts["defined"]["syntactic"] == 5 and facts["ceilings"]["cls"] == facts["tokens"] / 6
    flat = [truth["after"].values[role].ravel() for role in ("local", "syntactic")]
    both = ~np.isnan(flat[0] + flat[1])
    expected_rho = spearmanr(flat[0][both], flat[1][both]).statistic
    assert facts["spearman_inputs"] == pytest.approx(expected_rho, abs=1e-3)

    table = draws.number_draws(TRAIN, TEST, **options, threshold=1.0).table
    assert trained == ["mrpc"]  # the scores are kept: one training, one pass
    assert table["sieves.defined_share"][0] == pytest.approx(5 / 6)
    coarse = np.concatenate([bias_of(truth["after"], role).ravel() for role in COARSE])
    assert table["score.mean"][0] == pytest.approx(coarse.mean(), rel=1e-4)
    rho = spearmanr(*(bias_of(truth["after"], role).ravel() for role in ("local", "syntactic")))
    assert table["spearman"][0] == pytest.approx(rho.statistic, abs=1e-3)

    untuned = bias_scores.role_moments(TRAIN, TEST, **options, tuned=False).table
    rows = untuned[untuned["role"] == "sep"]["bias"]
    np.testing.assert_allclose(rows, bias_of(truth["before"], "sep").ravel(), rtol=1e-4)


def check_real_changes(models: dict[str, Encoder], truth: dict[str, RoleScores]) -> None:
    options: dict[str, Any] = {"encoder": models["before"], "task": "mrpc", "recipe": RECIPE}
    found = draws.bias_changes(TRAIN, TEST, **options)
    first = found.table[found.table["draw"] == 0]
    for role in draws.CHANGING:
        change = first.loc[first["role"] == role, "change"]
        expected = (bias_of(truth["after"], role) - bias_of(truth["before"], role)).mean(1)
        np.testing.assert_allclose(change, expected, rtol=1e-3, atol=1e-5, err_msg=role)


def test_changes_of_two_models(
    models: dict[str, Encoder], truth: dict[str, RoleScores], trained: list[str]
) -> None:
    check_real_changes(models, truth)
    with pytest.raises(AssertionError):  # the two models swapped
        check_real_changes(models, {"before": truth["after"], "after": truth["before"]})


def test_random_heads_are_near_one(models: dict[str, Encoder]) -> None:
    flat = corpus_of(*TEXTS)
    encoder = models["before"]
    encoder.model.config.initializer_range = 0.02  # what a network is initialised with
    found = bias_scores.random_heads(flat, encoder=encoder)
    encoder.model.config.initializer_range = 0.7
    assert set(found.table["role"]) == set(COARSE)
    assert found.findings["random.mean_bias"].value == pytest.approx(1, abs=0.02)
    distance = (found.table["bias"].dropna() - 1).abs().mean()
    assert found.findings["random.mean_distance_from_1"].value == pytest.approx(distance)
