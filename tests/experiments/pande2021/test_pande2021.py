"""The numbers behind the claims on Pande 2021: by hand on small grids, in order, and complete."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm, skew, spearmanr
from transformers import BertConfig

from attnlib.attention.encode import Batch, batches_of, model_inputs
from attnlib.data.examples import Segment
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.roles import RoleScores, moments, role_scores, role_tests
from attnlib.metrics.relations import Relation
from attnlib.metrics.sieves import COARSE, SIEVES
from attnlib.models import Encoder, random_encoder
from bookkit import pagetables
from bookkit.claims import Finding, load_paper
from bookkit.store import Found
from experiments.pande2021 import (
    authors,
    bias_scores,
    delimiters,
    draws,
    score_figures,
    sieves,
    tuning,
)
from experiments.pande2021.bias_scores import BLOCK
from experiments.pande2021.draws import depth
from experiments.shared.intervals import drawn
from experiments.shared.training.taskplans import Plan, over_tasks, task_plans
from tests.attnlib.measuring.test_roles import TEXTS, corpus_of, scores_of
from tests.families import one_thread, word_piece_tokenizer
from tests.maps import collated, text_of
from tests.notebooks import defined_in

__all__ = ["one_thread"]  # fixture

ROOT = Path(__file__).parents[3]
NAN = math.nan
ROLES = (*SIEVES, BLOCK)
FOUR = ("qnli", "qqp", "mrpc", "sst2")


# --- what is counted in each draw, by hand ------------------------------------------------------

JUDGES = ("overlaps", "block_overlaps", "skilled_layers", "delimiter_layers", "block_layers")
JUDGES += ("syntactic_layers",)
BY_ROLES = dict(zip(JUDGES, defined_in("pande2021", *JUDGES), strict=True))


def heads(by_layer: Mapping[int, int], n_layers: int = 12) -> np.ndarray:
    """A grid in which the first so many of twelve heads of a layer, counted from 0, are True."""
    grid = np.zeros((n_layers, 12), bool)
    for layer, number in by_layer.items():
        grid[layer, :number] = True
    return grid


Has = Mapping[str, Mapping[int, int]]


def roles_table(*draws_: Has, n_layers: int = 12) -> pd.DataFrame:
    """The table of `drawn_roles` in a world where nobody has a role unless said otherwise."""
    parts = [
        draws.digits(np.stack([heads(has.get(role, {}), n_layers) for has in draws_])).assign(
            role=role
        )
        for role in (*SIEVES, draws.OWN_TEXT)
    ]
    return pd.concat(parts, ignore_index=True)


def counted(
    *draws_: Has, task: str = "mrpc", n_layers: int = 12, judge: str = ""
) -> dict[str, Finding]:
    """All numbers of one task, with their intervals over the draws after the first."""
    table, found = roles_table(*draws_, n_layers=n_layers), {}
    for name in [judge] if judge else JUDGES:
        options = {"apart": [task]} if name == "skilled_layers" else {}
        found |= BY_ROLES[name](table, tasks=[task], **options).findings
    return {name: one for name, one in found.items() if not name.startswith(f"{task}.")}


@cache
def usual() -> dict[str, tuple[str, float]]:
    """Who counts a number, and what it is where nobody has a role."""
    found = {judge: counted({}, judge=judge) for judge in JUDGES}
    return {name: (judge, one.value) for judge in JUDGES for name, one in found[judge].items()}


def full(*layers: int) -> dict[int, int]:
    return dict.fromkeys(layers, 12)


EVERY_LAYER_HALF = {layer: 6 for layer in range(1, 12) if layer != 7}
COUNTS: list[tuple[str, Has, float]] = [
    ("delimiter.share", {"delimiter": {0: 12, 1: 6}, "cls": full(5)}, 18 / 144),
    (
        "unskilled.share",
        {
            **{"local": full(0), "block": full(1), "delimiter": full(0, 2), "syntactic": {3: 6}},
            **{"own text": full(5), "nsubj": full(6)},
        },
        102 / 144,
    ),
    (
        "coarse.multi_share",
        {"local": full(0), "delimiter": {0: 5, 1: 12}, "cls": full(0, 1)},
        5 / 144,
    ),
    (
        "overlap.others_delimiter",
        {
            **{"local": {0: 4}, "block": {1: 4}, "syntactic": {0: 6}, "nsubj": full(2)},
            "delimiter": {0: 3, 2: 12},
        },
        0.3,
    ),
    (
        "overlap.syntactic_local",
        {"syntactic": {0: 4}, "local": {0: 1, 4: 12}, "nsubj": full(4)},
        1 / 4,
    ),
    ("overlap.local_syntactic", {"local": {0: 4}, "syntactic": {0: 1, 4: 12}}, 1 / 4),
    ("nsubj.next_share", {"nsubj": {3: 4}, "next_local": {3: 3, 5: 12}}, 3 / 4),
    (
        "nsubj.next_minus_previous",
        {"nsubj": {3: 4}, "next_local": {3: 3, 5: 12}, "previous_local": {3: 1}},
        0.5,
    ),
    ("dobj.previous_share", {"dobj": {3: 4}, "previous_local": {3: 3, 5: 12}}, 3 / 4),
    (
        "dobj.previous_minus_next",
        {"dobj": {3: 4}, "next_local": {3: 4}, "previous_local": {3: 3, 5: 12}},
        -0.25,
    ),
    ("block.overlap", {"block": {0: 4}, "local": {0: 1}, "syntactic": {0: 2, 1: 12}}, 0.5),
    ("block.own_text.least", {"block": {0: 4, 1: 2}, "own text": {0: 3, 2: 12}}, 3),
    (
        "layer_8.most_roles",
        {
            **{"previous_local": {7: 1, 6: 1}, "next_local": {7: 2, 6: 1}, "block": full(7, 6)},
            **{"cls": {7: 1, 6: 1}, "sep": {6: 1}, "local": full(7), "own text": full(7)},
        },
        4,
    ),
    (
        "layer_8.sep_only_heads",
        {"sep": {7: 4, 6: 12, 8: 12}, "cls": {7: 1}, "delimiter": full(7)},
        3,
    ),
    (
        "multi_skilled.middle_minus_rest",
        {"cls": full(5, 6, 7, 8, 9), "sep": {**full(5, 6, 7, 8, 9), 0: 6}, "nsubj": {0: 6}},
        1 - 6 / 84,
    ),
    (
        "multi_skilled.early_minus_rest",
        {"cls": full(0, 1, 2, 3, 4, 5), "sep": {**full(0, 1, 2, 4), 3: 6}},
        42 / 48 - 12 / 96,
    ),
    (
        "multi_skilled.middle_minus_both_sides",
        {"cls": full(0, 5, 6, 7, 8, 9, 10), "sep": full(0, 5, 6, 7, 8, 9, 10)},
        0.5,
    ),
    ("multi_skilled.last_share.most", {"amod": full(9, 10), "block": full(9, 10)}, 0.5),
    ("delimiter.least_layer", {"cls": {**EVERY_LAYER_HALF, 7: 2}, "sep": {7: 3}}, 0.25),
    (
        "delimiter.first_layer",
        {"cls": {0: 3, 1: 12}, "sep": {0: 1}, "delimiter": full(0)},
        0.25,
    ),
    (
        "delimiter.only_in_last",
        {"cls": {9: 4, 8: 12}, "sep": {9: 2}, "nsubj": {9: 1}, "previous_local": {10: 3}},
        3 / 7,
    ),
    ("block.first_layer.least", {"block": {0: 6, 5: 12}}, 0.5),
    ("block.fewer_of_ends", {"block": {0: 12, 5: 1, 11: 3}}, 0.25),
    ("block.middle_heads", {"block": {4: 12, 5: 1, 9: 2, 10: 12}}, 3),
    ("block.layers_2_to_5", {"block": {0: 12, 1: 1, 4: 12, 5: 1}}, 0.5),
    ("block.layers_with_1", {"block": {0: 12, 1: 1, 11: 2}}, 0.25),
    (
        "syntactic.layers_with_3",
        {
            **{"nsubj": {0: 2, 1: 3}, "dobj": {0: 1}, "amod": full(2)},
            **{"advmod": {3: 2}, "syntactic": full(7)},
        },
        2 / 12,
    ),
    (
        "syntactic.middle_minus_rest",
        {"nsubj": full(6), "dobj": full(6), "amod": {0: 9}},
        1 / 3 - 1 / 12,
    ),
    (
        "syntactic.middle_other_roles",
        {"nsubj": {6: 4, 5: 12}, "cls": {6: 1, 5: 12}, "dobj": {6: 2}, "local": full(6)},
        1 / 4,
    ),
    ("syntactic.last_share.most", {"advmod": {10: 6, 3: 6}}, 1 / 4),
]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("name", "has", "expected"), COUNTS, ids=[case[0] for case in COUNTS])
def test_a_number_by_hand(name: str, has: Has, expected: float) -> None:
    """Draw 0 gives the value; the other draws, worlds of their own, its interval."""
    judge, without = usual()[name]
    assert without != pytest.approx(expected)  # the case is about something
    first = counted(has, {}, judge=judge)[name]
    assert first.value == pytest.approx(expected)
    assert [first.low, first.high] == pytest.approx([without, without], nan_ok=True)


def test_every_number_is_tried() -> None:
    of_no_claim = {"block.first_layer", "multi_skilled.last_share", "syntactic.last_share"}
    of_no_claim |= {"overlap.syntactic_local.least", "overlap.syntactic_local.most"}
    assert set(usual()) - of_no_claim == {case[0] for case in COUNTS}


def test_one_text_has_no_block_numbers() -> None:
    """A task of one text: block heads are counted and are 0; nothing else is said of them."""
    found = counted({"block": {0: 2}}, task="sst2")
    assert found["single.block_heads"].value == 2
    assert math.isnan(found["block.own_text.least"].value)
    assert math.isnan(found["block.first_layer.least"].value)
    assert not {"block.overlap", "block.middle_heads", "block.layers_with_1"} & set(found)


def test_numbers_of_several_tasks() -> None:
    """Means, and the task with least or most, which may be another one in every draw."""
    half, third = {"syntactic": {0: 6}, "local": {0: 3}}, {"syntactic": {0: 6}, "local": {0: 2}}
    one, other = roles_table(half, third), roles_table(third, half)
    found = BY_ROLES["overlaps"](one, other, tasks=["qqp", "mrpc"]).findings
    shares = [found[f"overlap.syntactic_local{end}"] for end in ("", ".least", ".most")]
    assert [one.value for one in shares] == pytest.approx([5 / 12, 1 / 3, 1 / 2])
    assert [one.low for one in shares] == pytest.approx([5 / 12, 1 / 3, 1 / 2])
    assert found["qqp.overlap.syntactic_local"].low == pytest.approx(1 / 3)
    blocks = [roles_table({"block": {0: n}, "own text": full(0)}) for n in (4, 3, 0)]
    found = BY_ROLES["block_overlaps"](*blocks, tasks=["qqp", "mrpc", "sst2"]).findings
    assert found["block.own_text.least"].value == 3
    found = BY_ROLES["block_layers"](*blocks, tasks=["qqp", "mrpc", "sst2"]).findings
    assert found["block.first_layer.least"].value == 3 / 12
    late = [roles_table({"amod": {11: n}, "cls": {11: n}}) for n in (6, 2)]
    most = BY_ROLES["syntactic_layers"](*late, tasks=["qqp", "mrpc"]).findings
    assert most["syntactic.last_share.most"].value == 0.25
    skilled = BY_ROLES["skilled_layers"](*late, tasks=["qqp", "mrpc"], apart=[]).findings
    assert skilled["multi_skilled.last_share.most"].value == 0.25


def test_middle_layers_against_both_sides_are_meaned_over_tasks_first() -> None:
    """One task has its roles before the middle, the other after it: the means are compared."""
    middle, roles = dict.fromkeys(range(5, 10), 6), ("cls", "sep")
    early = roles_table({one: {**middle, **full(0, 1, 2, 3, 4)} for one in roles})
    late = roles_table({one: {**middle, **full(10, 11)} for one in roles})
    found = BY_ROLES["skilled_layers"](early, late, tasks=["qqp", "mrpc"], apart=[]).findings
    assert found["multi_skilled.middle_minus_both_sides"].value == pytest.approx(0.0)


def test_a_model_that_cannot_tell_its_delimiters_apart_has_no_sep_heads() -> None:
    table = roles_table({"sep": full(7)})
    seen = BY_ROLES["skilled_layers"](table, tasks=["qnli"], apart=[]).findings
    assert math.isnan(seen["qnli.layer_8.sep_only_heads"].value)
    seen = BY_ROLES["skilled_layers"](table, tasks=["qnli"], apart=["qnli"]).findings
    assert seen["qnli.layer_8.sep_only_heads"].value == 12


@pytest.mark.parametrize("n_layers", [2, 4, 6, 8, 12, 24])
def test_depths_are_shares_of_the_layers(n_layers: int) -> None:
    """Layers l, counted from 1, with first/12 < l/L <= end/12; l is l - 1 in arrays."""
    for first, end in [(0, 4), (4, 8), (8, 12), (5, 10), (6, 9), (7, 8), (1, 5), (9, 12)]:
        wanted = [
            layer - 1
            for layer in range(1, n_layers + 1)
            if first * n_layers < 12 * layer <= end * n_layers
        ]
        assert list(range(n_layers)[depth(n_layers, first, end)]) == wanted


def test_a_shallow_network_has_no_such_layer() -> None:
    """Of two layers none is the eighth of twelve, and none is in the initial third."""
    found = counted({"sep": full(0, 1)}, n_layers=2)
    assert math.isnan(found["layer_8.most_roles"].value)
    assert math.isnan(found["multi_skilled.early_minus_rest"].value)


def test_layers_of_the_paper_are_counted_from_0() -> None:
    """Layers 5 to 9 have more roles per head, layers 6 to 8 more syntactic heads."""
    assert list(range(12)[depth(12, 5, 10)]) == [5, 6, 7, 8, 9]
    assert list(range(12)[depth(12, 6, 9)]) == [6, 7, 8]
    assert list(range(12)[depth(12, 7, 8)]) == [7]  # "Layer7"
    assert list(range(12)[depth(12, 9, 12)]) == [9, 10, 11]  # the last three
    assert list(range(12)[depth(12, 10, 12)]) == [10, 11]  # the last two


# --- draws ---------------------------------------------------------------------------------------


def texts_of(*parts: Sequence[str]) -> Any:
    """A corpus of which only the texts are known."""
    return SimpleNamespace(examples=[SimpleNamespace(parts=one) for one in parts])


def own_texts(n: int) -> Any:
    return texts_of(*([f"text {i}"] for i in range(n)))


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
        pairs = np.tile([4.0, 1.0], (after.n_inputs, 1)).T
        monkeypatch.setattr(bias_scores, "related_pairs", lambda *_: pairs)

    return scores


ASKED: dict[str, Any] = {"encoder": None, "task": "mrpc", "recipe": {"max_length": 8}}


def of(experiment: Callable[..., Found], n: int = 9, **options: Any) -> Found:
    """What an experiment on scores finds; every input has a text of its own."""
    return experiment(None, own_texts(n), **ASKED, **options)


def test_inputs_that_share_a_text_are_drawn_together() -> None:
    corpus = texts_of(["A cat", "sat"], ["it", "ran"], ["sat ", "here"], ["a  cat", "x"], ["y"])
    counts = draws.draws_of(corpus, 0)
    assert counts.shape == (1001, 5) and (counts[0] == 1).all()
    assert (counts[:, 0] == counts[:, 2]).all() and (counts[:, 0] == counts[:, 3]).all()
    assert (counts[:, 0] != counts[:, 1]).any() and (counts[:, 1] != counts[:, 4]).any()
    assert (counts[:, [0, 1, 4]].sum(1) == 3).all()  # three groups, three are drawn
    assert (counts == draws.draws_of(corpus, 0)).all()
    assert (counts != draws.draws_of(corpus, 1)).any()


def by_hand(column: np.ndarray, threshold: float) -> dict[str, float]:
    """What a test needs of the scores of one head in one draw, from the repeated scores."""
    known = column[~np.isnan(column)].astype(float)
    n, sd = len(known), known.std(ddof=1)
    return {
        **{"mean": known.mean(), "sd": sd, "n": n, "skew": skew(known)},
        "p": norm.sf((known.mean() - threshold) / (sd / math.sqrt(n))),
        "below": sum(value < threshold for value in known),
    }


def test_moments_of_a_draw_are_those_of_the_repeated_inputs(few_draws: int) -> None:
    values = synthetic(shape=(40, 2, 3)).values["syntactic"]
    counts = draws.draws_of(own_texts(40), 3)
    found = draws.tested(values, counts, 3.0)
    for draw, head in itertools.product(range(few_draws + 1), range(6)):
        repeated = np.repeat(values.reshape(40, 6)[:, head], counts[draw].astype(int))
        for name, value in by_hand(repeated, 3.0).items():
            assert found[name][draw, head] == pytest.approx(value, rel=1e-5), name


def test_draws_scatter_as_a_mean_does() -> None:
    values = synthetic(shape=(60, 1, 1)).values["local"]
    means = draws.tested(values, draws.draws_of(own_texts(60), 0), 3.0)["mean"][1:, 0]
    assert np.std(means) == pytest.approx(values.std() / math.sqrt(60), rel=0.1)


def test_digits_are_read_back() -> None:
    has = np.random.default_rng(0).random((7, 5, 3)) < 0.5
    table = pd.concat([draws.digits(has).assign(role="cls"), draws.digits(~has).assign(role="sep")])
    assert table["drawn"].str.len().eq(7).all() and len(table) == 2 * 15
    found = draws.roles_of(table)
    assert (found["cls"] == has).all() and (found["sep"] == ~has).all()
    assert found["block"].shape == has.shape and not found["block"].any()  # undefined there
    assert set(found) == {*SIEVES, draws.OWN_TEXT}


def test_roles_are_tested_anew_in_every_draw(give: Give, few_draws: int) -> None:
    given = synthetic(shape=(30, 3, 2))
    give(given)
    found = of(bias_scores.drawn_roles, 30, threshold=2.9)
    assert found.facts["draws"] == few_draws
    seen, counts = draws.roles_of(found.table), draws.draws_of(own_texts(30), 0).astype(int)
    score = {"block": BLOCK, draws.OWN_TEXT: "block"}
    for role in (*SIEVES, draws.OWN_TEXT):
        threshold = 1.0 if role == draws.OWN_TEXT else 2.9
        values = given.values[score.get(role, role)].reshape(30, 6)
        for draw, head in itertools.product(range(few_draws + 1), range(6)):
            p = by_hand(np.repeat(values[:, head], counts[draw]), threshold)["p"]
            assert seen[role][draw].ravel()[head] == (p < 0.05), role
    assert 0 < seen["local"].mean() < 1
    tests = role_tests(moments(given), threshold=2.9).groupby("role")
    for role in ("cls", "syntactic"):
        assert (seen[role][0].ravel() == tests.get_group(role)["assigned"].to_numpy()).all()


def test_roles_that_no_input_defines_are_left_out(give: Give, few_draws: int) -> None:
    give(synthetic(single=True))
    table = of(bias_scores.drawn_roles).table
    assert set(table["role"]) == set(SIEVES) - {"block"}


def test_numbers_of_scores_in_every_draw(give: Give, few_draws: int) -> None:
    given = synthetic(shape=(30, 3, 2))
    given.values["local"][:, 0, 0] = [*[0.1] * 28, 60.0, 80.0]  # outliers lift the mean
    give(given)
    found = of(bias_scores.drawn_scores, 30)
    counts = draws.draws_of(own_texts(30), 0).astype(int)
    for draw in range(few_draws + 1):
        seen = {
            (role, head): by_hand(np.repeat(v.reshape(30, 6)[:, head], counts[draw]), 3.0)
            for role, v in given.values.items()
            for head in range(6)
        }
        judged = [one for at, one in seen.items() if at[0] in bias_scores.COARSE_AS_JUDGED]
        printed = {at: one for at, one in seen.items() if at[0] in SIEVES}
        local, syntactic = ([seen[r, h]["mean"] for h in range(6)] for r in ("local", "syntactic"))
        expected = {
            "score.mean": np.mean([one["mean"] for at, one in seen.items() if at[0] in COARSE]),
            "p.undecided": np.mean([0.05 < one["p"] < 0.95 for one in judged]),
            "skew.broad_share": np.mean(
                [o["skew"] > 0.5 and o["sd"] > 0.5 * o["mean"] for o in printed.values()]
            ),
            "average_only.inflated_count": sum(
                one["mean"] >= 3 and one["p"] >= 0.05 and one["below"] > one["n"] / 2
                for one in printed.values()
            ),
            "spearman": spearmanr(local, syntactic).statistic,
            "sieves.syntactic_near": 0.25,
        }
        assert found.table.loc[draw].to_dict() == pytest.approx(expected, rel=1e-5)
    assert found.table["average_only.inflated_count"].max() >= 1
    assert found.facts["defined"] == pytest.approx(29 / 30)


def test_pairs_of_related_pieces_that_are_near() -> None:
    corpus = corpus_of(*TEXTS)
    joined, near = bias_scores.related_pairs(tiny(0), corpus, 40)
    for i, text in enumerate(TEXTS):  # one text at a time, by a loop over pairs of pieces
        (batch,) = batches_of([text], tiny(0))
        pairs = pairs_of(SIEVES["syntactic"], batch)
        assert joined[i] == len(pairs)
        assert near[i] == sum(abs(query - key) <= 2 for query, key in pairs)
    assert 0 < near.sum() < joined.sum()


def check_changes(found: Callable[[], pd.DataFrame], give: Give) -> None:
    """After minus before, layer by layer."""
    before, after = synthetic(1), synthetic(2)
    give(after, before)
    table = found()
    first = table[table["draw"] == 0].set_index(["role", "layer"])["change"]
    for role, layer in itertools.product(bias_scores.CHANGING, range(6)):
        old, new = (np.nanmean(s.values[role][:, layer], axis=0).mean() for s in (before, after))
        assert first[role, layer + 1] == pytest.approx(new - old, rel=1e-4, abs=1e-4)


def test_changes_are_after_minus_before(give: Give, few_draws: int) -> None:
    check_changes(lambda: of(bias_scores.bias_changes).table, give)


def test_planted_swap_of_before_and_after_is_caught(
    give: Give, few_draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped() -> pd.DataFrame:
        honest = bias_scores.scores_of
        monkeypatch.setattr(
            bias_scores, "scores_of", lambda *a, tuned, **k: honest(tuned=not tuned)
        )
        return of(bias_scores.bias_changes).table

    with pytest.raises(AssertionError):
        check_changes(swapped, give)


def test_a_draw_has_the_same_inputs_before_and_after(give: Give, few_draws: int) -> None:
    before = synthetic()
    give(scores_of(**{role: v + 1 for role, v in before.values.items()}), before)
    table = of(bias_scores.bias_changes).table
    assert len(table) == (few_draws + 1) * 6 * len(bias_scores.CHANGING)
    np.testing.assert_allclose(table["change"], 1, atol=1e-5)


def test_a_task_of_one_text_has_no_block_change(give: Give, few_draws: int) -> None:
    give(synthetic(1, single=True), synthetic(2, single=True))
    roles = set(of(bias_scores.bias_changes).table["role"])
    assert roles == {*bias_scores.CHANGING} - {"block"}


# --- all tasks -----------------------------------------------------------------------------------


def test_draw_0_is_the_value_and_the_others_its_interval() -> None:
    rest = np.arange(1.0, 202.0)
    found = drawn(np.concatenate([[5.0], rest, [NAN]]))
    assert (found.value, found.low, found.high) == pytest.approx((5.0, 6.0, 196.0))
    alone = drawn(np.array([2.0, NAN]))
    assert alone.value == 2 and math.isnan(alone.low)
    undefined = drawn(np.array([NAN, 1.0, 2.0]))
    assert math.isnan(undefined.value) and math.isnan(undefined.high)


def test_means_are_over_the_tasks_that_define_a_number() -> None:
    """Undefined in a draw, or not measured at all."""
    one = {"one": [1.0, NAN], "both": [1.0, 2.0], "none": [NAN, NAN], "first": [7.0, 7.0]}
    other = {"one": [NAN, 4.0], "both": [3.0, 6.0], "none": [NAN, NAN]}
    numbers = {
        task: {name: np.array(values) for name, values in given.items()}
        for task, given in (("qnli", one), ("sst2", other))
    }
    found = draws.found_over_tasks(numbers, {"all.together": np.array([9.0, 8.0])})
    means = {name: (seen.value, seen.low) for name, seen in found.findings.items()}
    assert means["one"] == (1, 4) and means["both"] == (2, 4) and means["first"] == (7, 7)
    assert math.isnan(means["none"][0]) and means["sst2.both"] == (3, 6)
    assert means["all.together"] == (9, 8) and "sst2.first" not in means
    table = found.table.set_index(["number", "task"])
    assert table.loc[("both", "all"), "value"] == 2 and table.loc[("both", "qnli"), "high"] == 2
    assert math.isnan(draws.mean_of_tasks([])[0])


(random_control, score_numbers, changed_scores, changed_roles, tuned_models) = defined_in(
    "pande2021",
    "random_control",
    "score_numbers",
    "changed_scores",
    "changed_roles",
    "tuned_models",
)


def test_numbers_of_scores_of_all_tasks() -> None:
    """The rule of the threshold is strict: a mean of exactly 3 gives 4."""
    one = pd.DataFrame({"score.mean": [3.0, 2.0], "spearman": [0.5, 0.6]})
    other = pd.DataFrame({"score.mean": [3.0, 2.8], "spearman": [0.7, 0.6]})
    options: dict[str, Any] = {"defined": [1.0, 0.5], "ceilings": [2.1, 2.4]}
    found = score_numbers(one, other, tasks=["qqp", "mrpc"], **options).findings
    assert found["score.rule_distance"] == Finding(1.0, 0.0, 0.0)
    assert found["score.mean"].value == 3 and found["spearman"].value == pytest.approx(0.6)
    assert found["mrpc.spearman"].value == 0.7
    assert found["sieves.defined_share"].value == 0.75
    assert not found["sieves.defined_share"].has_interval
    assert found["block.ceiling"].value == 2.4
    none = score_numbers(one, tasks=["sst2"], defined=[1.0], ceilings=[]).findings
    assert math.isnan(none["block.ceiling"].value)


def test_random_heads_are_as_far_as_their_worst_role() -> None:
    rows = [(0, "local", 1.1, 0.2), (0, "block", 0.9, 0.4), (1, "local", 1.3, 0.5)]
    rows += [(1, "block", 0.9, 0.1)]
    table = pd.DataFrame(rows, columns=["draw", "role", "mean", "distance"])
    found = random_control(table).findings
    assert found["random.mean_bias"].value == 1 and found["random.mean_bias"].low == 1.1
    assert found["random.largest_role_distance"].value == 0.4
    assert found["random.largest_role_distance"].low == 0.5


def change_table(by_role: Mapping[str, Sequence[float]], n_draws: int = 3) -> pd.DataFrame:
    """The same change in every layer of a third; every further draw is higher by 0.1."""
    rows = []
    for role, thirds in by_role.items():
        for draw, layer in itertools.product(range(n_draws), range(12)):
            rows.append((draw, role, layer + 1, thirds[layer // 4] + 0.1 * draw))
    return pd.DataFrame(rows, columns=["draw", "role", "layer", "change"])


def test_thirds_of_the_layers() -> None:
    found = draws.thirds(np.array([[1.0, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8], [0.0] * 11 + [4]]))
    assert {part: values.tolist() for part, values in found.items()} == {
        **{"initial": [1, 0], "middle": [2, 0]},
        "final": [5, 1],
    }
    six = draws.thirds(np.arange(6.0)[None])
    assert [values[0] for values in six.values()] == [0.5, 2.5, 4.5]
    two = draws.thirds(np.array([[1.0, 2.0]]))
    assert math.isnan(two["initial"][0]) and two["final"][0] == 2


CHANGES = {
    "qqp": {
        **{"delimiter": (0.5, -1.0, -4.0), "cls": (0.0, 0.0, -0.5), "sep": (0.0, 0.0, -6.0)},
        **{"block": (0.0, 0.0, 1.0), "local": (1.0, 1.0, 2.0), "syntactic": (0.5, 0.0, 1.0)},
    },
    "sst2": {
        **{"delimiter": (-0.5, 1.0, -2.0), "cls": (0.0, 0.0, 1.5), "sep": (0.0, 0.0, 4.0)},
        **{"local": (-1.0, -1.0, -2.0), "syntactic": (-0.5, 0.0, -1.0)},
    },
}
"""A task of two texts and one of one, which has no block."""


def test_changes_of_all_tasks() -> None:
    tables = [change_table(by_role) for by_role in CHANGES.values()]
    found = changed_scores(*tables, tasks=list(CHANGES), apart=list(CHANGES))
    expected = {
        **{"change.delimiter.final": -3.0, "change.block.final": 1.0, "change.sep.final": -1.0},
        "change.syntactic.final": 0.0,
        # sizes, task by task: 0.5 and 1.5 over 6 and 4
        "change.cls_over_sep": 1 / 5,
        # 0.5 1 0.5 0 and 0.5 1 0.5, or 1 1 0 0 and 1 1 0, over 4 2 1 1 and 2 2 1
        "change.initial_over_final": (4 / 7) / (13 / 7),
        "change.middle_over_final": (4 / 7) / (13 / 7),
    }
    assert {name: found.findings[name].value for name in expected} == pytest.approx(expected)
    one = found.findings["change.delimiter.final"]
    assert -2.91 < one.low < one.high < -2.79  # the further draws are at -2.9 and -2.8
    assert found.findings["qqp.change.delimiter.middle"].value == pytest.approx(-1)
    assert found.findings["change.cls.final"].value == pytest.approx(0.5)
    assert "sst2.change.block.final" not in found.findings


def test_only_tasks_that_tell_the_delimiters_apart_count() -> None:
    tables = [change_table(by_role) for by_role in CHANGES.values()]
    found = changed_scores(*tables, tasks=list(CHANGES), apart=["sst2"]).findings
    assert found["change.sep.final"].value == pytest.approx(4)
    assert found["change.cls_over_sep"].value == pytest.approx(1.5 / 4)
    assert found["change.delimiter.final"].value == pytest.approx(-3)  # all tasks
    found = changed_scores(*tables, tasks=list(CHANGES), apart=[]).findings
    assert math.isnan(found["change.sep.final"].value)
    assert math.isnan(found["change.cls_over_sep"].value)


def test_changes_of_roles() -> None:
    """Decisions that differ, over heads and fine roles, whether a role is won or lost."""
    before = [roles_table({"cls": {0: 6, 8: 12}, "delimiter": {8: 12}, "local": full(1)})]
    after = [roles_table({"cls": {0: 3, 8: 6}, "sep": {4: 2}, "delimiter": {8: 3, 5: 1}})]
    found = changed_roles(*before, *after, tasks=["qqp"]).findings
    share_of = {"initial": 3 / 48 / 9, "middle": 2 / 48 / 9, "final": 6 / 48 / 9}
    for part, expected in share_of.items():
        assert found[f"change.roles.{part}"].value == pytest.approx(expected)
    assert found["change.roles.final_lead"].value == pytest.approx(3 / 48 / 9)
    assert found["change.delimiter_heads.final"].value == pytest.approx(-9 / 48)
    single = changed_roles(*before, *after, tasks=["sst2"]).findings  # one role less is asked
    assert single["change.roles.final"].value == pytest.approx(6 / 48 / 8)
    both = changed_roles(*before, *after, *after, *before, tasks=["qqp", "mrpc"]).findings
    assert both["qqp.change.delimiter_heads.final"].value == pytest.approx(-9 / 48)
    assert both["mrpc.change.roles.final"].value == pytest.approx(6 / 48 / 9)


def test_models_that_have_learnt() -> None:
    mrpc = pd.DataFrame({"f1": [0.88, 0.90], "accuracy": [0.8, 0.7]})
    stsb = pd.DataFrame({"pearson": [0.1, 0.1], "spearman": [0.85, 0.2]})
    other = pd.DataFrame({"accuracy": [0.9, 0.9]})
    constants = {
        **{"mrpc": {"f1": 0.8, "accuracy": 0.65}, "stsb": {"pearson": 0.0, "spearman": 0.0}},
        "rotten-tomatoes": {"accuracy": 0.5},
    }
    tasks = ["mrpc", "stsb", "rotten-tomatoes"]
    found = tuned_models(mrpc, stsb, other, tasks=tasks, constants=constants).findings
    gain, points = found["tuned.least_gain"], found["tuned.least_minus_devlin"]
    assert (gain.value, gain.low) == pytest.approx((0.15, 0.05))
    assert (points.value, points.low) == pytest.approx((88 - 88.9, 20 - 85.8))
    none = tuned_models(other, tasks=tasks[2:], constants=constants).findings
    assert math.isnan(none["tuned.least_minus_devlin"].value)
    assert none["tuned.least_gain"].value == pytest.approx(0.4)


def test_scores_of_a_tuned_model(monkeypatch: pytest.MonkeyPatch, few_draws: int) -> None:
    """Every draw repeats inputs, and inputs that share a text together; the constant is held."""
    answers, labels = np.array([1.0, 1, 0, 0, 1]), np.array([1.0, 0, 0, 1, 1])
    facts = dict.fromkeys(("n_train", "epochs", "final_loss", "seconds", "history"), 0)
    facts |= {"steps": 2, "recipe": {"batch_size": 4}}  # type: ignore[dict-item]
    model = SimpleNamespace(outputs=lambda _: (answers, labels), facts=facts)
    monkeypatch.setattr(tuning, "tuned_model", lambda *_, **__: model)

    class Texts(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.examples)

    corpus = Texts(**vars(texts_of(["a", "b"], ["c", "d"], ["a", "e"], ["f", "g"], ["h", "i"])))
    found = tuning.tuning(corpus, corpus, encoder=None, task="mrpc", recipe={})
    assert found.facts["constant"] == {"f1": pytest.approx(0.75), "accuracy": 0.6}
    for draw, counts in enumerate(draws.draws_of(corpus, 0).astype(int)):
        right = np.repeat(answers == labels, counts)
        assert found.table["accuracy"][draw] == pytest.approx(right.mean())
        assert counts[0] == counts[2]


def test_delimiters_at_the_input_of_every_layer(
    models: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = SimpleNamespace(encoder=models["after"])
    monkeypatch.setattr(delimiters, "tuned_model", lambda *_, **__: tuned)
    given = {"encoder": models["before"], "task": "mrpc", "recipe": {"max_length": 40}}
    table = delimiters.delimiter_twins(None, corpus_of(*TEXTS), **given).table
    assert table["layer"].tolist() == [1, 2, 3, 4, 5, 6]
    for name, encoder in models.items():
        shares = []
        for text in TEXTS:
            (batch,) = batches_of([text], encoder)
            inputs = model_inputs(batch, encoder)
            with torch.inference_mode():
                states = encoder.model(**inputs, output_hidden_states=True).hidden_states
            last = int(batch.sep[0].nonzero()[-1])
            words = [i for i in range(batch.length) if batch.word[0, i] >= 0]
            for layer in range(6):  # hidden state 0 is the input of layer 1
                vectors = states[layer][0].double()
                to_word = np.mean([float((vectors[i] - vectors[0]).norm()) for i in words])
                shares.append(float((vectors[last] - vectors[0]).norm()) / to_word)
        expected = np.array(shares).reshape(len(TEXTS), 6).mean(0)
        np.testing.assert_allclose(table[name], expected, rtol=1e-4)


def test_delimiters_are_told_apart_before_or_after() -> None:
    told_apart = defined_in("pande2021", "told_apart")
    layers = pd.RangeIndex(1, 13, name="layer")

    def task(before: Mapping[int, float], after: Mapping[int, float]) -> pd.DataFrame:
        found = pd.DataFrame(1.0, index=layers, columns=["before", "after"])
        return found.assign(
            before=pd.Series({**found["before"], **before}),
            after=pd.Series({**found["after"], **after}),
        )

    told_apart.__globals__["twins"] = {
        "early": task({8: 0.0}, {8: 0.0}),  # the input of layer 8 alone
        "one": task({9: 0.001}, {}),  # told apart after fine-tuning
        "same": task({12: 0.009}, {12: 0.001}),  # one layer is enough to spoil it
    }
    assert told_apart(8, 12, "before", "after") == ["early", "one"]
    assert told_apart(7, 8, "after") == ["one", "same"]


# --- claims --------------------------------------------------------------------------------------


def test_every_claim_is_measured(
    give: Give, few_draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    after, before, scores, changes = [], [], [], []
    for seed, task in enumerate(FOUR):
        single = task == "sst2"
        many = (9, 12, 12)
        give(synthetic(seed, single=single, shape=many), synthetic(9, single=single, shape=many))
        after.append(of(bias_scores.drawn_roles, threshold=1.0).table)
        before.append(of(bias_scores.drawn_roles, tuned=False, threshold=1.0).table)
        scores.append(of(bias_scores.drawn_scores, threshold=1.0).table)
        changes.append(of(bias_scores.bias_changes).table)
    monkeypatch.setattr(bias_scores, "random_twin", lambda encoder, seed: encoder)
    monkeypatch.setattr(bias_scores, "role_scores", lambda *_, **__: synthetic())
    four: dict[str, Any] = {"tasks": list(FOUR)}
    gains = pd.DataFrame({"accuracy": [0.8] * 5, "f1": [0.9] * 5})
    found = [
        random_control(bias_scores.random_heads(own_texts(9), encoder=None).table),
        score_numbers(*scores, defined=[1.0] * 4, ceilings=[2.1], **four),
        changed_scores(*changes, apart=list(FOUR), **four),
        changed_roles(*before, *after, **four),
        tuned_models(*[gains] * 4, constants={t: {"accuracy": 0.5} for t in FOUR}, **four),
        *(
            judge(*after, **four, **({"apart": FOUR} if name == "skilled_layers" else {}))
            for name, judge in BY_ROLES.items()
        ),
    ]
    named: dict[str, Finding] = {}
    for one in found:
        assert not set(named) & set(one.findings)
        named |= one.findings
    for claim in load_paper("pande2021").claims:
        for measure in (claim.measure, claim.phenomenon.measure):
            assert not math.isnan(named[measure].value), measure
        decided = named[claim.phenomenon.measure]
        assert decided.has_interval or claim.phenomenon.exact, claim.id


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
        ({"mrpc": {"epoch": 2}}, "'epoch'.*expected .*epochs"),
        ({"mrcp": {}}, "task is 'mrcp'; expected one of mrpc"),
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


def test_four_maps_are_drawn_and_all_are_in_the_table() -> None:
    """Two roles by two tasks, by name; the rank correlations of all roles and tasks."""
    roles = ("local", "block@authors", "sep", "nsubj")
    rows = [
        {"task": task, "role": role, "layer": layer, "ours": layer, "authors": 2, "rho": rho}
        for rho, (role, task) in enumerate(itertools.product(roles, FOUR))
        if (role, task) != ("block@authors", "sst2")
        for layer in (1, 2, 3)
    ]
    shown: dict[str, Any] = {}
    chapter = SimpleNamespace(
        run=lambda *_, **__: Found(pd.DataFrame(rows)), gallery=lambda one, _: shown.update(one)
    )
    given = {"chapter": chapter, "score_figures": score_figures, "tables": []}
    cell("beside", **given, reference=True, plans=dict.fromkeys(FOUR))
    figure, table = shown.values()
    assert len(figure.figure.axes) == 4
    drawn = figure.table[["role", "task"]].drop_duplicates().to_numpy().tolist()
    assert sorted(drawn) == [["local", "qnli"], ["local", "sst2"], ["sep", "qnli"], ["sep", "sst2"]]
    assert table.data.shape == (4, 4) and table.data.loc["nsubj", "sst2"] == 15
    assert math.isnan(table.data.loc["block@authors", "sst2"]) and "–" in table.to_html()
    shown.clear()
    cell("beside", **given, reference=False, plans=dict.fromkeys(FOUR))
    assert not shown


# --- cells of the chapter that compute ------------------------------------------------------------

with_authors_block, threshold_curves, disagreements = defined_in(
    "pande2021", "with_authors_block", "threshold_curves", "disagreements"
)
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
    usual |= {"COARSE": COARSE, "with_authors_block": with_authors_block}
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
    moments_of_all = with_authors_block(pd.concat(tables_of(measured)))
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
    found = of(bias_scores.score_spread)
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
    found = of(bias_scores.score_examples)
    first = found.table.groupby("kind", sort=False).first()
    assert first.index.tolist() == ["average alone", "both", "neither"]
    places = first[["role", "layer", "head"]].to_numpy().tolist()
    assert places == [["cls", 2, 1], ["sep", 1, 2], ["local", 2, 2]]
    none = of(bias_scores.score_examples, threshold=50.0)
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
    table = of(bias_scores.decisions).table
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
    judged = with_authors_block(pd.concat([one, other]))
    for threshold, expected in ((3.0, (2, 1)), (1.0, (4, 2))):
        tests = role_tests(judged, threshold=threshold)
        quotes = cell("code-quotes", tests=tests, tables=[one, other])["chapter"]
        assert (quotes["n_block"], quotes["n_block_uneven"]) == expected


# --- paper against code --------------------------------------------------------------------------


def test_differences_between_paper_and_code() -> None:
    both = {"local": 2.0, "local@authors": 4.0, "delimiter": 3.3, "nsubj": 5.0}
    one = moment_table("qqp", {**both, "nsubj@authors": 5.0}, sd=1.0, n=30)
    first, last = (one["role"] == "nsubj").idxmax(), one.index[-1]
    one.loc[[first, last], "bias"] = 1.0  # one head gets the role by the code, another loses it
    other = moment_table("sst2", {"local": 4.0, "local@authors": 4.0}, n=30)
    table = disagreements(one, other, threshold=3.0)
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
    found = threshold_curves(one, other, thresholds=[1.5, 2.0, 3.0, 4.25, 4.5, 5.0])
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

    found = bias_scores.drawn_scores(TRAIN, TEST, **options, threshold=1.0)
    assert trained == ["mrpc"]  # the scores are kept: one training, one pass
    assert found.facts["defined"] == pytest.approx(5 / 6)
    coarse = np.concatenate([bias_of(truth["after"], role).ravel() for role in COARSE])
    assert found.table["score.mean"][0] == pytest.approx(coarse.mean(), rel=1e-4)
    rho = spearmanr(*(bias_of(truth["after"], role).ravel() for role in ("local", "syntactic")))
    assert found.table["spearman"][0] == pytest.approx(rho.statistic, abs=1e-3)

    untuned = bias_scores.role_moments(TRAIN, TEST, **options, tuned=False).table
    rows = untuned[untuned["role"] == "sep"]["bias"]
    np.testing.assert_allclose(rows, bias_of(truth["before"], "sep").ravel(), rtol=1e-4)


def check_real_changes(models: dict[str, Encoder], truth: dict[str, RoleScores]) -> None:
    options: dict[str, Any] = {"encoder": models["before"], "task": "mrpc", "recipe": RECIPE}
    found = bias_scores.bias_changes(TRAIN, TEST, **options)
    first = found.table[found.table["draw"] == 0]
    for role in bias_scores.CHANGING:
        change = first.loc[first["role"] == role, "change"]
        expected = (bias_of(truth["after"], role) - bias_of(truth["before"], role)).mean(1)
        np.testing.assert_allclose(change, expected, rtol=1e-3, atol=1e-4, err_msg=role)


def test_changes_of_two_models(
    models: dict[str, Encoder], truth: dict[str, RoleScores], trained: list[str]
) -> None:
    check_real_changes(models, truth)
    with pytest.raises(AssertionError):  # the two models swapped
        check_real_changes(models, {"before": truth["after"], "after": truth["before"]})


def test_random_heads_are_near_one(models: dict[str, Encoder], few_draws: int) -> None:
    encoder = models["before"]
    encoder.model.config.initializer_range = 0.02  # what a network is initialised with
    table = bias_scores.random_heads(corpus_of(*TEXTS), encoder=encoder).table
    networks = [bias_scores.random_twin(encoder, seed) for seed in range(bias_scores.NETWORKS)]
    encoder.model.config.initializer_range = 0.7
    assert set(table["role"]) == set(COARSE) and set(table["draw"]) == {*range(few_draws + 1)}
    assert table["mean"].to_numpy() == pytest.approx(1, abs=0.05)
    for role, rows in table[table["draw"] == 0].groupby("role"):
        found = [bias_of(role_scores(one, corpus_of(*TEXTS)), str(role)) for one in networks]
        assert rows["mean"].item() == pytest.approx(np.mean(found), rel=1e-5)
        assert rows["distance"].item() == pytest.approx(
            np.abs(np.array(found) - 1).mean(), rel=1e-3
        )
    assert table.groupby("role")["mean"].nunique().min() > 1  # networks and inputs are drawn again
