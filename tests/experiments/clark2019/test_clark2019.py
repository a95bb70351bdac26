"""The numbers behind the claims on Clark 2019: by hand on small grids, and complete."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnlib.data.corpora import load_corpus
from attnlib.data.examples import Segment
from attnlib.measuring.bootstrap import statistics
from bookkit.claims import Finding, load_paper
from experiments.clark2019.portraits import portraits, relation_portraits
from experiments.clark2019.surface import (
    SURFACE,
    SURFACE_FINDINGS,
    _middle,
    piece_counts,
    surface,
)
from experiments.clark2019.syntax import TABLE1
from tests.experiments.clark2019.test_coreference import answers
from tests.notebooks import defined_in

ROOT = Path(__file__).parents[3]


def grids(**given: Any) -> dict[str, np.ndarray]:
    """Six layers of two heads, 0.1 everywhere unless said otherwise."""
    found = {name: np.full((6, 2), 0.1) for name in SURFACE} | {"length": np.full((1, 1), 100.0)}
    return found | {name: np.asarray(value, float) for name, value in given.items()}


def column(*by_layer: float) -> np.ndarray:
    return np.repeat(np.array(by_layer)[:, None], 2, axis=1)


CASES = [
    ("self.median", {"mass_to_self": [[0.0, 0.1]] * 3 + [[0.3, 0.5]] * 3}, 0.2),
    ("previous.heads_above_half", {"mass_to_previous": [[0.6, 0.5]] * 6}, 6),
    ("next.heads_above_half", {"mass_to_next": column(0.9, 0, 0, 0, 0, 0)}, 2),
    (
        "positional.share_in_first_half",
        {
            "mass_to_next": column(0.9, 0, 0, 0, 0, 0),
            "mass_to_previous": column(0, 0, 0, 0, 0.9, 0),
        },
        0.5,
    ),
    ("sep.depth_of_largest", {"mass_to_sep": column(0, 0.1, 0.2, 0.7, 0.3, 0)}, 3 / 5),
    ("cls.early_over_late", {"mass_to_cls": column(0.4, 0.4, 0.1, 0.1, 0.1, 0.1)}, 4),
    (
        "period_or_comma.late_over_early",
        {"mass_to_period_or_comma": column(0.1, 0.1, 0.1, 0.1, 0.3, 0.5)},
        4,
    ),
    ("special.share_of_heads_above_half", {"mass_to_sep": [[0.4, 0.2]] * 6}, 0.5),
    # Of six layers, 3 to 5 are layers 6 to 10 of 12.
    ("sep.layers_6_10", {"mass_to_sep": column(1, 1, 0.3, 0.4, 0.5, 1)}, 0.4),
    ("sep.middle_minus_both_sides", {"mass_to_sep": column(0, 0.2, 0.5, 0.6, 0.7, 0.3)}, 0.3),
    ("sep_to_sep.layers_6_10", {"mass_sep_to_sep": column(0, 0, 0.8, 1, 0.9, 0)}, 0.9),
    ("pieces.rank_of_period_and_comma", {"pieces": [3.0, 5.0, 4.0, 1.0]}, 3),
    ("sep_to_sep.minus_other", {"mass_sep_to_sep": np.full((6, 2), 0.9)}, 0.8),
    ("entropy.largest_early_share", {"entropy": column(0, math.log(10), 9, 9, 9, 9)}, 0.5),
    ("entropy.early_minus_rest", {"entropy": column(3, 2, 1, 1, 1, 1)}, 1.5),
    ("entropy.broadest_in_first_layer", {"entropy": [[3, 1], [2, 0], *[[0, 0]] * 4]}, 1),
    (
        "entropy.row_peak_of_broad_heads",
        {
            "entropy": [[4, 3.6], [3.7, 1], *[[1, 1]] * 4],
            "row_peak": [[0.05, 0.3], [0.08, 0.9], *[[0.9, 0.9]] * 4],
        },
        0.08,
    ),
    ("entropy_from_cls.last_layer", {"entropy_from_cls": column(1, 1, 1, 1, 1, 3)}, 3),
    (
        "entropy_from_cls.last_minus_rows",
        {"entropy_from_cls": column(9, 9, 9, 9, 9, 3), "entropy": column(0, 0, 0, 0, 0, 1)},
        2,
    ),
    (
        "patterns.shown_at_code_limits",
        {"mass_to_next": column(0.51, 0, 0, 0, 0, 0), "entropy": column(3.7, 0, 0, 0, 0, 0)},
        2,  # 3.7 nats are more of the log of 100 than 3.8 are of the log of 128
    ),
    (
        "entropy_from_cls.layers_close",
        {"entropy_from_cls": column(1, 1, 1, 3, 3, 3), "entropy": column(1, 1.4, 1.6, 3, 3, 9)},
        4 / 6,
    ),
]


@pytest.mark.parametrize(("name", "given", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_number_by_hand(name: str, given: dict[str, Any], expected: float) -> None:
    assert SURFACE_FINDINGS[name](grids(**given)) == pytest.approx(expected)


def test_every_surface_number_is_tried() -> None:
    assert {case[0] for case in CASES} == set(SURFACE_FINDINGS)


def test_patterns_of_figure_1_ask_for_the_limits_of_the_code() -> None:
    shown = SURFACE_FINDINGS["patterns.shown_at_code_limits"]
    assert shown(grids()) == 0
    assert shown(grids(mass_to_sep=column(0.33, 0, 0, 0, 0, 0))) == 0  # 20 times its share
    assert shown(grids(mass_to_sep=column(0.61, 0, 0, 0, 0, 0))) == 1
    assert shown(grids(mass_to_period_or_comma=column(0.61, 0, 0, 0, 0, 0))) == 1


def test_layers_6_to_10_of_other_depths() -> None:
    for n_layers, expected in ((12, [6, 7, 8, 9, 10]), (6, [3, 4, 5]), (24, range(11, 21))):
        assert (np.flatnonzero(_middle(np.zeros(n_layers))) + 1).tolist() == list(expected)


def test_numbers_of_grids_have_intervals_over_examples() -> None:
    draw = np.random.default_rng(0)
    total = draw.normal(0.5, 0.1, (200, 6, 2))
    rows = {"a": (total, np.ones_like(total)), "b": (2 * total, 2 * np.ones_like(total))}
    wanted = {"mean": lambda g: g["a"].mean(), "same": lambda g: (g["a"] - g["b"]).max()}
    found = statistics(rows, wanted)
    value, low, high = found["mean"]
    spread = total.mean((1, 2)).std() / math.sqrt(200)
    assert value == pytest.approx(total.mean())
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.15)
    assert found["same"] == pytest.approx((0, 0, 0))  # the same examples for all metrics
    one = {name: (t[:1], w[:1]) for name, (t, w) in rows.items()}
    assert math.isnan(statistics(one, wanted)["mean"][1])


UNMEASURED = {"table2.neural", "table2.neural_minus_rule_based"}


def test_every_claim_is_measured_by_some_experiment() -> None:
    """What the claims file names is in the code: nothing stays absent by a slip."""
    names = ("small_gradients", "antecedents", "link_lengths", "probe_scores", "closeness")
    defined_in("clark2019", *names)  # they exist
    chapter = json.loads((ROOT / "notebooks" / "clark2019.ipynb").read_text(encoding="utf-8"))
    code = "".join("".join(cell["source"]) for cell in chapter["cells"])
    code += "".join(path.read_text() for path in (ROOT / "experiments/clark2019").glob("*.py"))
    given = {f"table1.{name}.{what}" for name in ("all", *TABLE1) for what in WHAT}
    table = answers()
    given |= set(defined_in("clark2019", "antecedents")(table).findings)
    given |= {f"table3.{name}" for name in ("attention", "distances", "random", "right_branching")}
    given |= {"table3.attention_words"}
    given |= {f"js.within_{group}_over_shuffled" for group in ("layer", "behaviour")}
    for claim in load_paper("clark2019").claims:
        for name in {claim.measure, claim.phenomenon.measure} - UNMEASURED:
            assert name in given or f'"{name}"' in code, name


WHAT = ("accuracy", "clean_gain")


def test_a_rare_relation_is_undefined_not_zero() -> None:
    row = {"accuracy": 70.0, "low": 60.0, "high": 80.0}
    row |= {"clean_gain": 9.0, "clean_gain_low": 1.0, "clean_gain_high": 19.0}
    table = pd.DataFrame([{"relation": "all", **row}, {"relation": "det", **row}])
    found = defined_in("clark2019", "gains")(table).findings
    assert found["table1.det.clean_gain"] == Finding(9.0, 1.0, 19.0)
    assert found["table1.all.accuracy"] == Finding(70.0, 60.0, 80.0)
    assert math.isnan(found["table1.prt.clean_gain"].value)


def slopes(n_layers: int = 12, n_texts: int = 12) -> pd.DataFrame:
    """Gradients to [SEP] fall in layer 5, in which attention to it rises."""
    rows = []
    for text in range(n_texts):
        noise = 1 + text / 100
        for layer in range(1, n_layers + 1):
            late = layer >= 5
            place = {"text": text, "article": f"a{text // 2}", "layer": layer}
            sep = {"gradient": (0.2 if late else 2.0) * noise, "attention": 0.6 if late else 0.1}
            rows.append({**place, "class": "sep", **sep})
            rows.append({**place, "class": "other", "gradient": noise, "attention": 0.3})
    return pd.DataFrame(rows)


def test_small_gradients_by_hand() -> None:
    small = defined_in("clark2019", "small_gradients")
    found = small(slopes(), able=True).findings
    assert found["gradient.sep_over_other_late"].value == pytest.approx(0.2)
    assert found["gradient.ratio_late_minus_early"].value == pytest.approx(0.2 - 2.0)
    assert found["gradient.layers_apart"] == Finding(0.0, 0.0, 0.0)
    moved = slopes()
    moved.loc[(moved["class"] == "sep") & (moved["layer"] < 8), "attention"] = 0.1
    assert small(moved, able=True).findings["gradient.layers_apart"].value == 3.0
    six = small(slopes(6), able=True).findings
    assert six["gradient.ratio_late_minus_early"].value == pytest.approx(1.1 - 2.0)


def test_gradients_of_a_model_that_cannot_fill_gaps_are_undefined() -> None:
    found = defined_in("clark2019", "small_gradients")(slopes(), able=False)
    assert all(math.isnan(one.value) for one in found.findings.values())
    assert len(found.findings) == 3 and found.facts["ratio"] == pytest.approx(0.2)


def test_probes_are_drawn_by_document_and_seed() -> None:
    names = ("right-branching", "distances-words", "random", "attention", "attention-words")
    judged = {
        name: name.replace("-", "_").replace("distances_words", "distances") for name in names
    }
    draw = np.random.default_rng(0)
    rows = [
        {
            "probe": name,
            "seed": seed,
            "document": f"d{n}",
            "right": draw.integers(9),
            "asked": 9 + n,
        }
        for name in names
        for seed in range(3)
        for n in range(6)
    ]
    probed = pd.DataFrame(rows)
    trees = probed[probed["probe"] == "attention"].assign(chain=2, right=7).drop(columns="probe")
    found = defined_in("clark2019", "probe_scores")(probed, trees, judged=judged)
    uas = {}
    for name, key in judged.items():
        own = [row for row in rows if row["probe"] == name]
        uas[key] = 100 * sum(r["right"] for r in own) / sum(r["asked"] for r in own)
        number = found.findings[f"table3.{key}"]
        assert number.value == pytest.approx(uas[key]) and number.low < number.value < number.high
    rival = max(uas["right_branching"], uas["distances"], uas["random"])
    lead = found.findings["table3.attention_words_minus_best_baseline"].value
    assert lead == pytest.approx(uas["attention_words"] - rival)
    asked = sum(9 + n for n in range(6))
    assert found.findings["probes.structural.uuas"].value == pytest.approx(100 * 42 / asked)
    assert found.findings["probes.structural.minus_chain"].value == pytest.approx(100 * 30 / asked)
    # One document, seeds that differ: the interval is that of the seeds.
    one = probed[probed["document"] == "d0"].assign(right=lambda t: 3 * t["seed"])
    found = defined_in("clark2019", "probe_scores")(
        one, trees[trees["document"] == "d0"], judged=judged
    ).findings
    number = found["table3.attention"]
    assert number.low == 0 and number.high == pytest.approx(100 * 6 / 9)


def surface_table(n_layers: int, n_heads: int) -> pd.DataFrame:
    rows = [
        {"metric": metric, "layer": layer + 1, "head": head + 1, "mean": 0.1}
        for metric in SURFACE
        for layer in range(n_layers)
        for head in range(n_heads)
    ]
    return pd.DataFrame(rows)


@pytest.mark.assets
def test_articles_are_drawn_and_not_texts(e5_small: Any) -> None:
    """Texts of one article alone give no interval."""
    corpus = load_corpus("wiki-sample", limit=3, tokenizer=e5_small.tokenizer)
    same = replace(corpus, examples=tuple(replace(one, id="a#1") for one in corpus.examples))
    found = surface(same, encoder=e5_small)
    assert found.facts["articles"] == 1
    assert not any(one.has_interval for one in found.findings.values())


@pytest.mark.assets
def test_pieces_are_counted_without_special_tokens_and_the(e5_small: Any) -> None:
    texts = [Segment("0", "The cat, the dog. A cat, the cat."), Segment("1", "Cat.")]
    found = piece_counts(texts, e5_small)
    assert found[:, :3].tolist() == [[2, 2, 3], [1, 0, 1]]  # full stops, commas, cat
    assert found.sum() == 5 + 3 + 1 + 1 + 2 - 1


@pytest.mark.assets
def test_the_surface_of_a_real_model(e5_small: Any) -> None:
    corpus = load_corpus("wiki-sample", limit=3, tokenizer=e5_small.tokenizer)
    found = surface(corpus, encoder=e5_small)
    assert set(found.findings) == set(SURFACE_FINDINGS)
    assert found.facts["even"]["mass_to_sep"] == pytest.approx(
        2 / found.facts["mean_length"], rel=0.05
    )
    assert found.findings["next.heads_above_half"].value == 3
    assert not surface(corpus, encoder=e5_small, segment_ids="zeros").findings


@pytest.mark.assets
def test_portraits_are_of_the_heads_that_were_chosen(e5_small: Any) -> None:
    corpus = load_corpus("reader-coref", limit=6)
    table = surface_table(12, 12)
    chosen = (table["metric"] == "mass_to_next") & (table["layer"] == 1) & (table["head"] == 8)
    table.loc[chosen, "mean"] = 0.9
    panels = portraits(corpus, table, encoder=e5_small).table
    following = panels[panels["panel"] == 1]
    assert set(following["what"]) == {"attends to the next token"}
    words = list(following.loc[following["key"] == 0, "word"])
    assert set(following["head"]) == {"1-8"} and words[0] == "[CLS]" and words[-1] == "[SEP]"
    weights = following["weight"].to_numpy().reshape(len(words), len(words))
    assert np.diag(weights, 1).mean() > 0.5
    np.testing.assert_allclose(weights.sum(1), 1, atol=5e-3)


@pytest.mark.assets
def test_portraits_of_relations_mark_who_attends(e5_small: Any) -> None:
    corpus = load_corpus("reader-coref", limit=6)
    table = pd.DataFrame(
        [
            {"relation": "det", "head": "5-5", "direction": "dep->head", "gain": 40.0},
            {"relation": "xcomp", "head": "1-1", "direction": "dep->head", "gain": 99.0},
        ]
    )
    panel = relation_portraits(corpus, table, encoder=e5_small).table
    marked = set(panel.loc[panel["highlight"], "word"].str.lower())
    assert (
        set(panel["panel"]) == {0}
        and set(panel["head"]) == {"5-5"}
        and marked
        <= {
            "the",
            "a",
            "an",
            "this",
            "that",
            "no",
            "every",
            "each",
        }
    )
