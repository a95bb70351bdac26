"""The experiments on Guan 2020: rows of its tables, numbers by hand, signs, and completeness."""

from __future__ import annotations

import base64
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModel

from attnlib.attention.ablation import matched_draws
from attnlib.attention.interventions import Intervention
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Answer, Question, Segment
from attnlib.errors import BadValue
from attnlib.models import Encoder, load_encoder
from bookkit.claims import Finding, judge, load_paper
from bookkit.store import Found
from experiments.guan2020 import ablation, clusters, models, types, wall
from experiments.guan2020.ablation import ROWS, Row
from experiments.guan2020.types import Features
from experiments.shared import ablate_command as command
from experiments.shared import ablation as shared_ablation
from experiments.shared.ablation import Outcome
from experiments.shared.training import publishedreader, taskplans
from experiments.shared.training.spanmodel import Candidate, SpanHead, SpanReader
from tests.experiments.shared.test_ablate_command import HEADS_OF, TOY_TYPES, types_table
from tests.experiments.shared.test_ablation import QUESTIONS as ASKED
from tests.experiments.shared.test_ablation import naive, reader_on
from tests.families import HEADS, LAYERS, folders, one_thread
from tests.notebooks import defined_in

__all__ = ["folders", "one_thread"]  # fixtures

# What the chapter itself defines: tables in, findings out.
types_in_draws, types_there, type_looks, type_places, type_moves, top_heads = defined_in(
    "guan2020",
    *("types_in_draws", "types_there", "type_looks", "type_places", "type_moves", "top_heads"),
)
clusters_found, stability_found, eye_match, looks_own = defined_in(
    "guan2020", "clusters_found", "stability_found", "eye_match", "looks_own"
)
ablation_scores, ablation_claims, beyond_controls = defined_in(
    "guan2020", "ablation_scores", "ablation_claims", "beyond_controls"
)

NAN = math.nan
TYPES = ("dense", "diagonal", "dense&vertical", "vertical")
SLUGS = ("dense", "diagonal", "dense_vertical", "vertical")
MODELS = ("pretrained", "squad", "mrpc", "mnli")
AGREES = {("holds", "same"), ("holds", None)}
"""Both verdicts on a claim where the numbers are the paper's own."""


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


@pytest.fixture(scope="module")
def reader(bert: Encoder) -> SpanReader:
    return reader_on(bert)


def corpus_of(*examples: Any, name: str = "toy:dev", digest: str = "") -> Corpus:
    return Corpus(name, "question", examples, {}, "here", digest or str(len(examples)))


TOY = corpus_of(*ASKED)


# --- Tables 2 and 3 -------------------------------------------------------------------------------

# As printed; columns are dense, diagonal, dense&vertical, vertical. Then exact match and F1.
TABLE_2 = """
 1   .    .    .    .    82.85 89.68
 2   x    .    .    .    79.92 87.62
 3   .    x    .    .     4.59  7.55
 4   .    .    x    .    73.33 81.92
 5   .    .    .    x    81.42 88.57
 6   x    .    .    x    75.31 84.05
 7   .    .    x    x    56.87 67.62
 8  1/L   .    .    .    74.68 84.17
 9   .   1/L   .    .     1.27  6.07
10   .    .   1/L   .     9.13 11.15
11   .    .    .   1/L   53.17 59.09
"""
# Intra and inter of each type.
TABLE_3 = """
12  . .  x .  . .  . .  16.96 25.29
13  . .  . x  . .  . .  82.29 89.91
14  . .  . .  x .  . .  80.28 87.76
15  . .  . .  . x  . .  77.95 85.86
16  x .  . .  x .  x .  71.80 80.22
17  . x  . .  . x  . x  10.11 15.57
18  x .  x .  . .  x .  14.83 23.55
19  . x  . x  . .  . x  75.54 84.10
"""


def printed(table: str) -> dict[int, tuple[list[str], float, float]]:
    """Row -> its marks, exact match and F1."""
    found = {}
    for line in table.strip().splitlines():
        number, *marks, em, f1 = line.split()
        found[int(number)] = (marks, float(em), float(f1))
    return found


PRINTED = printed(TABLE_2) | printed(TABLE_3)


def marks_of(row: Row) -> list[str]:
    """A row as the paper prints it."""
    if row.number < 12:
        mark = {"baseline": ".", "prune": "x", "substitute": "1/L"}[row.kind]
        return [mark if name in row.types else "." for name in TYPES]
    places = itertools.product(TYPES, ("intra", "inter"))
    return ["x" if name in row.types and row.kind == part else "." for name, part in places]


def test_the_rows_are_those_of_the_paper() -> None:
    assert [row.number for row in ROWS] == list(range(1, 20)) == sorted(PRINTED)
    for row in ROWS:
        assert marks_of(row) == PRINTED[row.number][0], row
        assert row.key == f"row{row.number:02d}"
        assert list(row.types) == [name for name in TYPES if name in row.types]  # in this order


def test_the_claims_have_the_numbers_of_the_paper() -> None:
    told: dict[tuple[int, str], float] = {}
    for claim in load_paper("guan2020").claims:
        if claim.id.startswith(("tab2.", "tab3.")):
            number, _, score = claim.id.partition(".")[2].partition(".")
            told[int(number), score or "f1"] = claim.value["value"]
            assert claim.measure == f"row{number}.{score or 'f1'}"
            assert claim.id[3] == ("2" if int(number) < 12 else "3")
    printed_em = {(number, "em"): em for number, (_, em, _) in PRINTED.items()}
    assert told == printed_em | {(number, "f1"): f1 for number, (_, _, f1) in PRINTED.items()}


def test_what_a_row_tells_of() -> None:
    about = {row.number: row.about for row in ROWS}
    assert about[1] == () and about[3] == ("diagonal",) and about[6] == ("dense", "vertical")
    assert about[16] == about[17] == ("diagonal",)
    assert about[18] == about[19] == ("dense&vertical",)


WORDS = {"x": "zero", "1/L": "uniform"}


def test_a_row_changes_the_heads_of_its_types() -> None:
    every = {(layer, head) for layer in range(LAYERS) for head in range(HEADS)}
    for row in ROWS:
        heads = row.heads(TOY_TYPES.sample(frac=1, random_state=row.number))
        assert heads == set().union(*(HEADS_OF[name] for name in row.types), set())
        if row.kind == "baseline":
            assert row.variant(frozenset(every)) == () == row.variant(heads)
            continue
        (one,) = row.variant(heads)
        marks = set(PRINTED[row.number][0]) - {"."}
        expected = WORDS[marks.pop()] if row.number < 12 else f"no_{row.kind}"
        assert (one.heads, one.action) == (heads, expected)
    both = [row.heads(TOY_TYPES) for row in ROWS if row.number in (12, 16)]
    assert both[0] | both[1] == every and not both[0] & both[1]
    both = [row.heads(TOY_TYPES) for row in ROWS if row.number in (15, 19)]
    assert both[0] | both[1] == every and not both[0] & both[1]


def test_a_row_in_another_reading() -> None:
    (one,) = ROWS[11].variant(frozenset({(0, 0)}), renormalise=True, unit="segment")
    assert one.action == "no_intra" and one.renormalise and one.unit == "segment"


def test_a_type_without_heads_changes_nothing() -> None:
    only = types_table(["dense"] * 4 + ["vertical"] * 4)
    by_number = {row.number: row for row in ROWS}
    assert by_number[3].heads(only) == frozenset() and by_number[3].variant(frozenset()) == ()
    assert len(by_number[16].heads(only)) == 8 and len(by_number[7].heads(only)) == 4


# --- features -------------------------------------------------------------------------------------

NAMES = (*(f"window_{i:02d}" for i in range(1, 17)), "self", "cls", "sep", "comma", "period")
MASSES = {  # near, far, special
    "dense": (0.1, 0.8, 0.1),
    "diagonal": (0.6, 0.15, 0.25),
    "dense&vertical": (0.1, 0.45, 0.45),
    "vertical": (0.05, 0.05, 0.9),
}


def feature(near: float, far: float, special: float) -> list[float]:
    return [near / 2, *[far / 15] * 15, near / 2, *[special / 4] * 4]


def features_with(
    given: Sequence[str],
    n_heads: int,
    *,
    n_inputs: int = 6,
    spread: float = 0.0,
    masses: Mapping[str, tuple[float, float, float]] = MASSES,
) -> Features:
    """Heads of these types; every input deviates a little and sums to 1 all the same."""
    center = np.array([feature(*masses[name]) for name in given])
    scatter = np.random.default_rng(0).normal(0, spread, (n_inputs, *center.shape))
    found = np.abs(center + scatter)
    groups = tuple(f"article {place}" for place in range(n_inputs))
    return Features(NAMES, found / found.sum(-1, keepdims=True), n_heads, 100 * n_inputs, groups)


FOUR_LAYERS = (
    *("dense", "dense", "diagonal"),
    *("dense", "diagonal", "dense&vertical"),
    *("dense&vertical", "dense&vertical", "dense&vertical"),
    *("diagonal", "vertical", "vertical"),
)


def test_columns_of_the_features() -> None:
    found = features_with(FOUR_LAYERS, 3)
    names = {part: [NAMES[place] for place in own] for part, own in found.parts.items()}
    assert names["special"] == ["cls", "sep", "comma", "period"]
    assert set(names["near"]) == {"window_01", "self"}
    assert names["far"] == [f"window_{i:02d}" for i in range(2, 17)]
    assert sorted(itertools.chain(*found.parts.values())) == list(range(21))
    heads = found.heads().to_numpy().tolist()
    assert heads[:4] == [[1, 1], [1, 2], [1, 3], [2, 1]] and heads[-1] == [4, 3]


def naive_feature(weights: np.ndarray, tokens: Sequence[str]) -> np.ndarray:
    """Eq. 2 for one map, pair by pair."""
    found = np.zeros(21)
    n = len(tokens)
    for query, key in itertools.product(range(n), range(n)):
        away = abs(query - key)
        place = {"[CLS]": 17, "[SEP]": 18, ",": 19, ".": 20}.get(tokens[key])
        if place is None:
            place = 16 if away == 0 else 16 * away // n
        found[place] += weights[query, key] / n
    return found


TEXTS = (
    Segment("0", "It rained, so we took the old road.", "Why did her school run after nine?"),
    Segment("1", "The bridge, the river, the snow. It was closed, so we took the old road."),
    Segment(
        "2", "The school was old.", "Why did her river run after the snow, and why did we wait?"
    ),
)
SHORT = Segment("3", "A well.", "So we wait.")
"""Of no more than 16 pieces: its nearest window holds no distance."""


def library_maps(encoder: Encoder, example: Segment | Question) -> tuple[list[str], np.ndarray]:
    """Tokens and maps (layer, head, query, key) as the library alone gives them."""
    model = AutoModel.from_pretrained(encoder.source, attn_implementation="eager").eval()
    coded = encoder.tokenizer(*example.parts, return_tensors="pt")
    with torch.inference_mode():
        maps = model(**coded, output_attentions=True).attentions
    tokens = encoder.tokenizer.convert_ids_to_tokens(coded["input_ids"][0].tolist())
    return tokens, torch.cat(maps).double().numpy()


PLAIN: dict[str, Any] = {"task": None, "recipe": None, "max_length": 66}


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(types, "_KEPT", kept)
    return kept


def test_features_of_a_model_are_those_of_plain_loops(bert: Encoder, nothing_kept: Any) -> None:
    expected, n_tokens = [], 0
    for example in TEXTS:
        tokens, maps = library_maps(bert, example)
        n_tokens += len(tokens)
        every = [naive_feature(maps[a, b], tokens) for a in range(LAYERS) for b in range(HEADS)]
        expected.append(every)
    inputs = corpus_of(TEXTS[0], SHORT, *TEXTS[1:])
    found = types.features_of(inputs, encoder=bert, **PLAIN)
    assert found.groups == ("0", "1", "2")  # the short one has no near mass and is left out
    assert found.names == NAMES and found.tokens == n_tokens and found.n_heads == HEADS
    np.testing.assert_allclose(found.rows, expected, atol=1e-5)
    told = types.head_features(inputs, encoder=bert, model="squad", **PLAIN)
    table = told.table.set_index(["layer", "head", "feature"])["value"]
    assert len(table) == LAYERS * HEADS * 21
    mean = np.mean(expected, 0).reshape(LAYERS, HEADS, 21)
    for layer, head, part in ((1, 1, "cls"), (2, 4, "window_03"), (3, 2, "self"), (1, 3, "period")):
        value = mean[layer - 1, head - 1, NAMES.index(part)]
        assert table[layer, head, part] == pytest.approx(value, abs=1e-5)
    assert told.findings["features.sum"].value == pytest.approx(1, abs=1e-5)
    assert 0 <= told.findings["features.largest_gap"].value < 1e-5
    assert told.findings["features.parts"].value == 21
    assert not types.head_features(inputs, encoder=bert, model="mrpc", **PLAIN).findings
    assert told.facts["mean_length"] == pytest.approx(n_tokens / 3) and told.facts["inputs"] == 3


def test_short_inputs_alone_have_no_features(bert: Encoder, nothing_kept: Any) -> None:
    with pytest.raises(BadValue, match="has more than 16 pieces"):
        types.features_of(corpus_of(SHORT), encoder=bert, **PLAIN)


def test_inputs_are_drawn_again_with_their_article() -> None:
    assert types.group_of(ASKED[0]) == ASKED[0].article and types.group_of(SHORT) == "3"
    found = replace(features_with(FOUR_LAYERS, 3, spread=0.1), groups=tuple("ababab"))
    draws = list(found.drawn(50, seed=0))
    np.testing.assert_allclose(draws[0][1], found.mean)
    means = [found.rows[0::2].mean(0), found.mean, found.rows[1::2].mean(0)]
    for weight, mean in draws[1:]:
        np.testing.assert_allclose(mean, means[int(weight[1])])
    assert {int(weight[1]) for weight, _ in draws} == {0, 1, 2}


def test_features_of_labelled_maps(bert: Encoder) -> None:
    rows = [("toy", "1", 2, 3, "vertical"), ("toy", "3", 1, 1, "diagonal"), ("toy", "0", 1, 2, "b")]
    labels = pd.DataFrame(rows, columns=["corpus", "example", "layer", "head", "label"])
    inputs = corpus_of(*TEXTS, SHORT)
    table = types.labelled_features(
        inputs, labels, encoder=bert, names=["toy"], max_length=66
    ).table
    assert table["label"].tolist() == ["vertical", "b"]  # the short one is left out
    for place, (text, layer, head) in enumerate(((1, 1, 2), (0, 0, 1))):
        tokens, maps = library_maps(bert, TEXTS[text])
        expected = naive_feature(maps[layer, head], tokens)
        np.testing.assert_allclose(table[list(NAMES)].to_numpy(float)[place], expected, atol=1e-5)
    assert types.labelled_features(labels[:0], encoder=bert, names=[]).table.empty


def test_the_sum_farthest_from_1_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = features_with(FOUR_LAYERS, 3)
    found.rows[2, 5, 0] += 0.25
    found.rows[1, 1, 3] -= 0.01
    monkeypatch.setattr(types, "features_of", lambda *_, **__: found)
    told = types.head_features(None, encoder=None, model="squad", **PLAIN).findings
    assert told["features.sum"].value == pytest.approx(1.25)
    assert told["features.largest_gap"].value == pytest.approx(0.25)


def test_features_are_found_once(bert: Encoder, nothing_kept: dict[Any, Any]) -> None:
    inputs = corpus_of(*TEXTS[1:])
    first = types.features_of(inputs, encoder=bert, **PLAIN)
    assert types.features_of(inputs, encoder=bert, **PLAIN) is first
    other = types.features_of(inputs, encoder=bert, **PLAIN, windows=8)
    assert len(other.names) == 13 and len(nothing_kept) == 2
    fewer = types.features_of(inputs, encoder=bert, **{**PLAIN, "max_length": 18})
    assert fewer.tokens < first.tokens and len(nothing_kept) == 3
    types.features_of(replace(inputs, digest="another"), encoder=bert, **PLAIN)
    assert len(nothing_kept) == 4


def test_features_of_a_published_model_have_its_heads(
    bert: Encoder, nothing_kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(types, "model_of", lambda *_, **__: bert)
    other = replace(bert, n_heads=2)
    found = types.features_of(corpus_of(*TEXTS[1:]), encoder=other, **PLAIN)
    assert found.heads()["layer"].max() == LAYERS


def test_readings_of_the_feature(bert: Encoder, nothing_kept: Any) -> None:
    found = types.feature_decisions(corpus_of(*TEXTS), encoder=bert, model="squad", **PLAIN)
    table = found.table.set_index("reading")
    assert len(table) == len(types.READINGS) == 8
    ours = table.iloc[0]
    assert ours["agreement"] == 1 and ours["same"] == 1
    counts = table[[f"n_{name}" for name in TYPES]]
    assert (counts.drop("no special tokens").sum(axis=1) == LAYERS * HEADS).all()
    assert counts.loc["no special tokens"].isna().all()
    assert math.isnan(table.loc["no special tokens", "same"])
    assert table["agreement"].between(-1, 1).all() and table["agreement"].min() < 1
    assert list(found.table.columns[3:]) == [f"n_{name}" for name in TYPES]  # not those of a set


# --- types ----------------------------------------------------------------------------------------

BY_HAND = {
    "types.dense.share": 25.0,
    "types.diagonal.share": 25.0,
    "types.dense_vertical.share": 100 / 3,
    "types.vertical.share": 100 / 6,
    "types.dense.share_off": 26.04 - 25,
    "types.diagonal.share_off": 25.56 - 25,
    "types.dense_vertical.share_lead": 25 / 3,
    "types.vertical.share_below": 25 / 3,
    # layers 1, 1, 2; 2, 3, 3, 3; 4, 4 of four
    "types.dense.in_first_third": 2 / 3,
    "types.dense_vertical.in_middle_third": 1 / 4,
    "types.vertical.in_last_third": 1.0,
    "types.diagonal.layers": 0.75,
    "types.dense.far_lead": 0.8 - 0.45,
    "types.dense.special_below": 0.25 - 0.1,
    "types.diagonal.special_between": 0.25 - 0.1,
    "types.diagonal.near_lead": 0.6 - 0.1,
    "types.dense_vertical.lead": 0.45 - 0.25,
    "types.vertical.special_ratio": 2.0,
}
Masses = Mapping[str, tuple[float, float, float]]


def heads_in(given: Sequence[str], n_heads: int, draw: int = 0, masses: Masses = MASSES) -> Any:
    """Heads of these types in one draw, as `type_draws` tells them."""
    table = types_table(given, n_heads).assign(draw=draw, consistent=0.9)
    table["cluster"] = table["type"].map(TYPES.index) + 1
    for place, name in enumerate(("near", "far", "special")):
        table[name] = table["type"].map(lambda one, place=place: masses[one][place])
    return table


def alike(given: Sequence[str], n_heads: int, masses: Masses = MASSES) -> pd.DataFrame:
    """The same heads in every draw."""
    return pd.concat([heads_in(given, n_heads, draw, masses) for draw in range(5)])


def of_types(heads: pd.DataFrame) -> dict[str, Finding]:
    """All that the chapter tells of the types of one model."""
    table = types_in_draws(heads).table
    found = types_there(table, heads).findings | type_looks(table).findings
    return found | type_places(table).findings


def numbers(
    given: Sequence[str] = FOUR_LAYERS, masses: Masses = MASSES, n_heads: int = 3
) -> dict[str, float]:
    found = of_types(alike(given, n_heads, masses))
    assert all(math.isnan(one.value) or one.low == one.value for one in found.values())
    return {name: one.value for name, one in found.items()}


def test_numbers_of_types_by_hand() -> None:
    found = numbers()
    assert found.pop("types.present") == 4 and found.pop("types.consistent") == 0.9
    pairs = list(itertools.permutations(enumerate(FOUR_LAYERS), 2))
    shares = []
    for inside in (True, False):
        own = [a == b for (i, a), (j, b) in pairs if (i // 3 == j // 3) is inside]
        shares.append(np.mean(own))
    assert found.pop("types.same_layer_lead") == pytest.approx(shares[0] - shares[1])
    assert found == pytest.approx(BY_HAND)


@pytest.mark.parametrize(
    ("name", "changed", "expected"),
    [
        # dense&vertical looks further than dense
        ("types.dense.far_lead", {"dense&vertical": (0.0, 0.85, 0.15)}, -0.05),
        ("types.dense.special_below", {"diagonal": (0.7, 0.25, 0.05)}, -0.05),
        # diagonal below dense; nearer to vertical than to dense
        ("types.diagonal.special_between", {"diagonal": (0.7, 0.25, 0.05)}, -0.05),
        ("types.diagonal.special_between", {"vertical": (0.35, 0.35, 0.3)}, NAN),
        ("types.diagonal.special_between", {"vertical": (0.3, 0.3, 0.4)}, 0.15),
        ("types.diagonal.near_lead", {"dense": (0.4, 0.5, 0.1)}, 0.2),
        # less far than diagonal, or less special
        ("types.dense_vertical.lead", {"diagonal": (0.5, 0.48, 0.02)}, -0.03),
        ("types.dense_vertical.lead", {"dense&vertical": (0.1, 0.7, 0.2)}, -0.05),
        ("types.vertical.special_ratio", {"dense&vertical": (0.2, 0.2, 0.6)}, 3.6),
        ("types.vertical.special_ratio", {"dense&vertical": (0.1, 0.3, 0.6)}, 1.5),
    ],
)
def test_a_number_of_other_masses(name: str, changed: Any, expected: float) -> None:
    found = numbers(masses={**MASSES, **changed})[name]
    assert found == pytest.approx(expected, nan_ok=True)


def test_a_type_that_is_not_there_is_undefined_and_no_rival() -> None:
    """The rule would call a stripe with bars dense&vertical."""
    found = numbers(masses={**MASSES, "dense&vertical": (0.5, 0.1, 0.4)})
    assert found["types.present"] == 3
    undefined = {name for name, value in found.items() if math.isnan(value)}
    assert undefined == {name for name in BY_HAND if "dense_vertical" in name}
    assert found["types.dense.far_lead"] == pytest.approx(0.8 - 0.15)
    assert found["types.vertical.special_ratio"] == pytest.approx(0.9 / 0.25)
    assert found["types.vertical.share_below"] == pytest.approx(25 - 100 / 6)


@pytest.mark.parametrize(("absent", "has_interval"), [(1, True), (3, False)])
def test_draws_without_a_type(absent: int, has_interval: bool) -> None:
    draws = [heads_in(FOUR_LAYERS, 3, draw) for draw in range(41)]
    tie = heads_in(FOUR_LAYERS, 3).assign(type=None)
    draws[40 - absent + 1 :] = [tie.assign(draw=40 - place) for place in range(absent)]
    found = of_types(pd.concat(draws))
    assert found["types.dense.share"].value == 25
    assert found["types.dense.share"].has_interval == has_interval
    assert found["types.present"].low < 4


def test_numbers_of_other_shares() -> None:
    turned = [
        {"dense&vertical": "vertical", "vertical": "dense&vertical"}.get(t, t) for t in FOUR_LAYERS
    ]
    found = numbers(turned)
    assert found["types.dense_vertical.share_lead"] == pytest.approx(100 / 6 - 100 / 3)
    assert found["types.vertical.share_below"] == pytest.approx(100 / 6 - 100 / 3)
    assert found["types.dense_vertical.in_middle_third"] == 0


def papers_heads() -> list[str]:
    """384 heads in 24 layers, as many of each type as the paper counts, where it sees them."""
    left = Counter({"dense": 100, "diagonal": 102, "dense&vertical": 131, "vertical": 51})
    found: list[str] = []
    for layer in range(24):
        wanted = ["diagonal"] * (5 if layer >= 18 else 4)
        wanted += ["dense"] * (12 if layer < 8 else 1)
        wanted += ["dense&vertical"] * (16 if 4 <= layer < 20 else 2) + ["vertical"] * 16
        own = []
        for name in wanted:
            if len(own) < 16 and left[name] > 0:
                own.append(name)
                left[name] -= 1
        while len(own) < 16:
            name = max(left, key=lambda one: left[one])
            own.append(name)
            left[name] -= 1
        found += own
    return found


def test_the_papers_own_types_reproduce_the_paper() -> None:
    """A sign or a unit that were wrong would make the paper contradict itself."""
    given = papers_heads()
    assert Counter(given) == {"dense": 100, "diagonal": 102, "dense&vertical": 131, "vertical": 51}
    found = of_types(alike(given, 16))
    paper = load_paper("guan2020")
    asked = [c for c in paper.claims if c.id.startswith(("fig1.", "fig3.", "sec4.share."))]
    assert len(asked) == 15
    for claim in asked:
        judged = judge(claim, found, own_model=True)
        assert (judged.verdict, judged.value_verdict) in AGREES, f"{claim.id}: {judged.reason}"


Stub = Callable[..., None]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Put features in the place of those of models."""

    def given(found: Features, *, drawn: bool = False) -> None:
        for module in (types, clusters):
            monkeypatch.setattr(module, "features_of", lambda *_, **__: found)
        if not drawn:
            monkeypatch.setattr(types, "plane", lambda mean, seed: np.zeros((len(mean), 2)))

    return given


STUBBED: dict[str, Any] = {"encoder": None, **PLAIN}


def test_types_of_heads(stub: Stub) -> None:
    given = features_with(FOUR_LAYERS, 3, spread=0.004)
    strange = FOUR_LAYERS.index("vertical")
    given.rows[2, strange] = feature(*MASSES["diagonal"])
    stub(given, drawn=True)
    found = types.head_types(None, model="squad", **STUBBED)
    table = found.table
    wanted = ["layer", "head", "type", "x", "y", "silhouette", "consistent"]
    assert list(table.columns) == [*wanted, "special", "near", "far"]
    assert table["type"].tolist() == list(FOUR_LAYERS)
    assert table[["layer", "head"]].to_numpy().tolist()[3] == [2, 1]
    expected = np.ones(12)
    expected[strange] = 5 / 6
    np.testing.assert_allclose(table["consistent"], expected)
    np.testing.assert_allclose(table[["special", "near", "far"]].sum(axis=1), 1)
    near, far, special = MASSES["diagonal"]
    first = table.iloc[2]
    assert (first["near"], first["far"], first["special"]) == pytest.approx(
        (near, far, special), abs=0.02
    )
    assert (table["silhouette"].drop(strange) > 0.5).all()
    assert table[["x", "y"]].notna().all(axis=None)
    assert [row["type"] for row in found.facts["margins"]] == [
        *("vertical", "diagonal", "dense&vertical")
    ]


def draws_of(model: str = "squad", draws: int = 20) -> pd.DataFrame:
    return types.type_draws(None, model=model, draws=draws, **STUBBED).table


def test_clusters_are_found_anew_on_drawn_articles(stub: Stub) -> None:
    given = features_with(FOUR_LAYERS, 3, spread=0.004, n_inputs=12)
    strange = FOUR_LAYERS.index("vertical")
    given.rows[2, strange] = feature(*MASSES["diagonal"])
    stub(given)
    table = draws_of()
    assert sorted(set(table["draw"])) == list(range(21))
    whole = table[table["draw"] == 0]
    shown = types.head_types(None, model="squad", **STUBBED).table
    assert whole["type"].tolist() == shown["type"].tolist() == list(FOUR_LAYERS)
    masses = shown.groupby("type")[["near", "far", "special"]].mean()
    expected = masses.loc[whole["type"]].to_numpy()
    np.testing.assert_allclose(whole[["near", "far", "special"]], expected)
    assert whole["consistent"].tolist() == pytest.approx([1 - 1 / 144] * 12)
    found = of_types(table)
    for name, value in BY_HAND.items():
        one = found[name]
        assert one.low <= one.value + 1e-12 and one.value <= one.high + 1e-12, name
        assert one.value == pytest.approx(value, abs=0.15), name
    assert found["types.dense.far_lead"].low < found["types.dense.far_lead"].high
    assert found["types.dense.share"].low == found["types.dense.share"].high == 25
    assert found["types.consistent"].low < 1 - 1 / 144 <= found["types.consistent"].high == 1


def test_articles_and_not_inputs_are_drawn_again(stub: Stub) -> None:
    """Six inputs on one article are one observation: two articles differ more than inputs do."""
    given = features_with(FOUR_LAYERS, 3, spread=0.004, n_inputs=12)
    given.rows[:6] *= 0.8
    given.rows[:6, :, NAMES.index("cls")] += 0.2
    widths = []
    for groups in ([f"{place}" for place in range(12)], ["a"] * 6 + ["b"] * 6):
        stub(replace(given, groups=tuple(groups)))
        far = draws_of(draws=60).query("layer == 1 and head == 1")["far"]
        widths.append(far.std())
    assert widths[1] > 1.5 * widths[0]
    stub(replace(given, groups=("a",) * 12))
    assert set(draws_of()["draw"]) == {0}  # one article tells nothing about others


def test_models_see_the_same_articles(stub: Stub) -> None:
    stub(features_with(FOUR_LAYERS, 3, spread=0.01))
    pd.testing.assert_frame_equal(draws_of("squad"), draws_of("mrpc"))


def test_two_clusters_that_tie_in_a_draw_have_no_names(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = features_with(FOUR_LAYERS, 3, spread=0.004)
    stub(given)
    named, calls = Features.named, itertools.count()

    def tied(*told: Any) -> Any:
        if next(calls) == 2:
            raise BadValue("two clusters have the same mass")
        return named(*told)

    monkeypatch.setattr(Features, "named", tied)
    table = draws_of(draws=3)
    assert table.groupby("draw")["type"].count().tolist() == [12, 12, 0, 12]


def test_types_of_a_toy_model(bert: Encoder, nothing_kept: Any, monkeypatch: Any) -> None:
    inputs = corpus_of(*TEXTS)
    found = types.head_types(inputs, encoder=bert, model="squad", **PLAIN)
    assert set(found.table["type"]) == set(TYPES) and len(found.table) == LAYERS * HEADS
    assert found.table["consistent"].between(0, 1).all()
    centroid = found.table.groupby("type")[["special", "near"]].mean()
    assert centroid["special"].idxmax() == "vertical"
    assert centroid.drop("vertical")["near"].idxmax() == "diagonal"
    assert centroid.loc["dense&vertical", "special"] > centroid.loc["dense", "special"]
    again = command.types_on(bert, inputs, 66)
    assert again["type"].tolist() == found.table["type"].tolist()
    assert again[["layer", "head"]].equals(found.table[["layer", "head"]])


MANY = [name for name in TYPES for _ in range(5)]


def test_the_number_of_clusters(stub: Stub) -> None:
    stub(features_with(MANY, 5, spread=0.006))
    found = clusters.cluster_number(None, model="squad", draws=9, **STUBBED)
    table = found.table.set_index("k")
    assert list(table.index) == list(range(1, 9)) and found.facts["best"]["silhouette"] == 4
    assert {"silhouette", "bic", "gap", "gap_se", "agreement", "rand_k4"} <= set(table.columns)


def test_clear_clusters_in_every_draw(stub: Stub) -> None:
    given = features_with(MANY, 5, spread=0.006)
    stub(given)
    table = clusters.cluster_draws(None, model="squad", draws=4, **STUBBED).table
    assert table[["draw", "k"]].to_numpy().tolist() == [
        [d, k] for d in range(5) for k in range(2, 9)
    ]
    labels = clusters.fitted(given.mean, 4, seed=0).labels
    expected = clusters.silhouettes(given.mean, labels).mean()
    assert table.query("draw == 0 and k == 4")["silhouette"].item() == pytest.approx(expected)
    seen = clusters_found(table).findings
    assert seen["clusters.best_silhouette"] == Finding(4, 4, 4)
    assert seen["clusters.mixture_agreement"].value == 1 and seen["clusters.lead_of_four"].low > 0
    assert seen["clusters.silhouette_at_4"].value == pytest.approx(expected)
    beyond = seen["clusters.beyond_one_cloud"]
    clouds = table.query("k == 4")["cloud"]
    assert beyond.value == pytest.approx(expected - clouds.mean()) and beyond.low > 0


def test_numbers_of_clusters_by_hand() -> None:
    """Three are clearer than four in the features of all inputs, and in one of two draws."""
    rows = [(0, 3, 0.5, 0.2), (0, 4, 0.4, 0.6), (1, 3, 0.3, 0.2), (1, 4, 0.5, 0.3)]
    rows += [(2, 3, 0.5, 0.4), (2, 4, 0.1, 0.2)]
    table = pd.DataFrame(rows, columns=["draw", "k", "silhouette", "plane"])
    seen = clusters_found(table.assign(cloud=table["k"] / 20, agreement=0.7)).findings
    lead = seen["clusters.lead_of_four"]
    ends = np.percentile([0.2, -0.4], [2.5, 97.5])
    assert (lead.value, lead.low, lead.high) == pytest.approx((-0.1, *ends))
    assert seen["clusters.best_silhouette"].value == 3
    assert seen["clusters.best_in_plane"].value == 4
    assert seen["clusters.plane_lead_of_four"].value == pytest.approx(0.4)
    assert seen["clusters.beyond_one_cloud"].value == pytest.approx(0.4 - 0.2)


def test_stability(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(features_with(MANY, 5, spread=0.006))
    monkeypatch.setattr(clusters, "STABLE_KS", (4, 5))
    how: dict[str, Any] = {"repeats": 2, "draws": 3, **STUBBED}
    tables = [clusters.type_stability(None, model=m, **how).table for m in ("squad", "mrpc")]
    assert tables[0].groupby(["k", "split", "draw"]).size().tolist() == [2, 1, 1, 1] * 4
    assert set(tables[1]["k"]) == {4}
    found = stability_found(*tables)
    beyond = "stability.squad.beyond_one_cloud"
    assert set(found.findings) == {
        *("stability.squad", "stability.squad.k5", "stability.mrpc", "stability.mean", beyond)
    }
    assert found.findings["stability.squad"] == Finding(100, 100, 100)  # percent, as in Table 1
    assert found.findings["stability.mean"].value == 100
    assert 0 < found.findings["stability.squad.k5"].value <= 1  # a share
    row = found.table.query("model == 'squad' and k == 4 and split == 'inputs'").iloc[0]
    assert found.findings[beyond].value == pytest.approx(
        100 * (1 - tables[0].query("k == 4 and split == 'inputs' and draw == 0")["null"].mean())
    )
    assert 0 < row["null_low"] <= row["null"] <= row["null_high"] <= 1


def test_labels_by_eye_match_the_clusters_they_were_made_of() -> None:
    points = np.array([feature(*MASSES[name]) for name in MANY])
    points += np.random.default_rng(0).normal(0, 0.003, points.shape)
    heads = types_table(MANY, 5)[["layer", "head"]]
    maps = heads.assign(label=[f"seen {name}" for name in MANY])
    maps = maps.join(pd.DataFrame(points, columns=list(NAMES)))
    features = maps.drop(columns="label").melt(["layer", "head"], var_name="feature")
    seen = eye_match(maps, features).findings
    assert seen["types.kovaleva_information"].value == pytest.approx(1)
    lead = seen["clusters.eye_lead_of_four"]
    assert lead.value > 0.05 and lead.low <= lead.value <= lead.high
    dealt = maps.assign(label=maps["label"].sample(frac=1, random_state=0).to_numpy())
    chance = eye_match(dealt, features).findings["types.kovaleva_information"]
    assert abs(chance.value) < 0.3
    for one in eye_match(maps[:0], features).findings.values():
        assert math.isnan(one.value)  # no labelled maps


# --- moves ----------------------------------------------------------------------------------------


def six_layers(last: Sequence[str], changes: Mapping[int, str] | None = None) -> list[str]:
    """Two heads in each of six layers, dense but for the last layer; head number -> its type."""
    given = [*["dense"] * 10, *last]
    for place, name in (changes or {}).items():
        given[place] = name
    return given


def moved(n_heads: int = 2, **given: Sequence[str]) -> Found:
    """What moved, in draws that are all alike."""
    tables = [alike(own, n_heads) for own in given.values()]
    found = type_moves(*tables, models=list(given)[1:])
    top = top_heads(*(types_in_draws(one).table for one in tables), models=list(given))
    return Found(found.table, found.findings | top.findings)


def test_moves_by_hand() -> None:
    mixed = "dense&vertical"
    found = moved(
        pretrained=six_layers([mixed, mixed]),
        squad=six_layers([mixed, mixed], {0: "vertical", 8: "diagonal"}),
        mrpc=six_layers(["vertical", mixed], {4: "diagonal", 9: "diagonal"}),
    )
    seen = {name: one.value for name, one in found.findings.items()}
    assert seen == pytest.approx(
        {
            # squad: dense 2 of 12 fewer; mrpc: dense 2 fewer, dense&vertical 1 fewer
            "moves.largest_distance": 3 / 12,
            "moves.same": 1 - 5 / 24,
            # layers 5 and 6: heads 8 to 11, 1 and 2 of them; layers 1 and 2: 1 and 0
            "moves.last_minus_first": 3 / 8 - 1 / 8,
            "moves.layers_over_shuffled": seen["moves.layers_over_shuffled"],
            "moves.top_dense_vertical": 2 - 1,
        }
    )
    table = found.table.set_index(["task", "layer", "head"])
    assert len(table) == 24
    assert table.loc[("squad", 1, 1), "before"] == "dense"
    assert table.loc[("squad", 6, 1)].tolist() == [mixed, mixed]
    changed = (table["before"] != table["after"]).groupby("task").sum()
    assert changed.to_dict() == {"squad": 2, "mrpc": 3}


def test_fewer_mixed_heads_at_the_top_than_in_a_task() -> None:
    mixed = "dense&vertical"
    found = moved(
        pretrained=six_layers([mixed, mixed]),
        squad=six_layers(["dense", "dense"], {3: mixed}),
        mrpc=six_layers(["dense", mixed]),
        mnli=six_layers([mixed, mixed]),
    )
    assert found.findings["moves.top_dense_vertical"].value == 0 - 2


def test_a_name_that_jumps_is_no_change_of_heads() -> None:
    """All heads of a cluster get another name: they are still one cluster."""
    swap = {"dense": "vertical", "vertical": "dense"}
    given = six_layers(["vertical", "vertical"], {1: "diagonal", 4: "dense&vertical"})
    found = moved(pretrained=given, squad=[swap.get(name, name) for name in given])
    assert found.findings["moves.same"].value == 1
    assert found.findings["moves.largest_distance"].value == 0
    assert (found.table["before"] == found.table["after"]).all()


def test_layers_are_compared_with_layers_dealt_out_at_random() -> None:
    generator = np.random.default_rng(1)
    before = generator.choice(TYPES, (6, 8), p=[0.4, 0.3, 0.2, 0.1])
    after = np.where(generator.random((6, 8)) < 0.2, "dense", before)
    shares = [np.array([[(row == n).mean() for n in TYPES] for row in x]) for x in (before, after)]

    def apart(order: np.ndarray) -> float:
        return float(np.abs(shares[1] - shares[0][order]).sum(-1).mean() / 2)

    dealt = np.mean([apart(generator.permutation(6)) for _ in range(20_000)])
    found = moved(8, pretrained=before.ravel().tolist(), squad=after.ravel().tolist())
    one = found.findings["moves.layers_over_shuffled"].value
    assert one == pytest.approx(apart(np.arange(6)) / dealt, rel=0.01)


def test_moves_do_not_depend_on_the_order_of_heads_or_models() -> None:
    given = {
        "pretrained": six_layers(["dense", "vertical"]),
        "squad": six_layers(["dense", "dense"], {3: "diagonal"}),
        "mnli": six_layers(["vertical", "vertical"], {0: "vertical"}),
    }
    one = moved(**given).findings
    order = ("pretrained", "mnli", "squad")
    other = moved(**{name: given[name] for name in order}).findings
    assert {name: one.value for name, one in other.items() if one.value == one.value} == (
        pytest.approx({n: found.value for n, found in one.items() if found.value == found.value})
    )


def test_without_another_task_the_top_is_undefined() -> None:
    found = moved(pretrained=six_layers(["dense"] * 2), squad=six_layers(["dense"] * 2))
    assert math.isnan(found.findings["moves.top_dense_vertical"].value)
    assert found.findings["moves.same"].value == 1
    assert found.findings["moves.largest_distance"].value == 0


@pytest.mark.parametrize("n_layers", [3, 6, 12, 24])
def test_thirds_are_of_the_layers(n_layers: int) -> None:
    """Only the layers next to the first and the last third change."""
    before = ["dense"] * n_layers
    third = n_layers // 3
    middle = range(third, n_layers - third)
    changes = ["vertical" if layer in middle else "dense" for layer in range(n_layers)]
    still = moved(1, pretrained=before, squad=changes)
    assert still.findings["moves.last_minus_first"].value == 0
    last = ["vertical" if layer >= n_layers - third else "dense" for layer in range(n_layers)]
    found = moved(1, pretrained=before, squad=last)
    assert found.findings["moves.last_minus_first"].value == 1


# --- ablations ------------------------------------------------------------------------------------


def questions_on(n_articles: int, each: int = 2) -> tuple[Question, ...]:
    return tuple(
        Question(f"{a}.{i}", "who", "old bridge", (Answer("old bridge", 0),), f"article {a}")
        for i in range(each)
        for a in range(n_articles)
    )


def perfect(questions: Sequence[Question], n_best: int = 1) -> list[list[Candidate]]:
    return [[Candidate(one.answers[0].text, 0, 1.0)] for one in questions]


Score = Callable[[str, tuple[Intervention, ...], int], float]
CONTROLS = (2, 3, 4, 5, *range(8, 16))
"""Rows of one type."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Found]:
    """The experiments where each variant has the F1 that it is told: (name, variant, question).

    Rows have names such as row03, their random sets such as "row03 0".
    """

    def run(score: Score, given: pd.DataFrame = TOY_TYPES, **options: Any) -> Found:
        of_control, there = "", options.pop("there", TYPES)
        exact: Any = options.pop("exact", lambda name, *told: score(name, *told) / 2)

        def fake(reader: Any, chosen: Sequence[Question], variants: Any, **_: Any) -> Outcome:
            places = [questions.index(one) for one in chosen]
            em, f1 = (
                np.array([[one(of_control + n, v, i) for i in places] for n, v in variants.items()])
                for one in (exact, score)
            )
            return Outcome(tuple(variants), em, f1, 4 - 4 * f1)

        questions = options.pop("questions", questions_on(4))
        seed = options.pop("seed", 0)
        n_heads = int(given["head"].max())
        own = SimpleNamespace(answers=perfect, encoder=SimpleNamespace(n_heads=n_heads))
        monkeypatch.setattr(ablation, "ablated", fake)
        monkeypatch.setattr(shared_ablation, "DRAWS", 300)
        monkeypatch.setattr(ablation, "reader_of", lambda *_, **__: own)
        inputs = (corpus_of(*questions), given)
        asked: dict[str, Any] = {"encoder": own.encoder, "recipe": None}
        answers = ablation.type_answers(*inputs, **asked).table
        settings = {"draws": 3, "n_questions": 4, "seed": seed} | options
        controls = []
        for row in CONTROLS:
            of_control = f"row{row:02d} "
            controls.append(ablation.control_answers(*inputs, **asked, row=row, **settings).table)
        return judged_by(answers, controls, there=there, seed=seed)

    return run


def judged_by(
    answers: pd.DataFrame,
    controls: Sequence[pd.DataFrame],
    there: Sequence[str] = TYPES,
    seed: int = 0,
) -> Found:
    """What the chapter makes of answers: one table, and all that it finds."""
    scores = ablation_scores(answers, seed=seed).table
    found = ablation_claims(answers, list(there), seed=seed).findings
    beyond = beyond_controls(answers, *controls, there=list(there), seed=seed)
    table = scores.merge(beyond.table, on="row", how="left")
    return Found(table, found | beyond.findings)


def of_row(name: str) -> int:
    return int(name[3:5])


def test_the_papers_own_scores_reproduce_the_paper(world: Callable[..., Found]) -> None:
    """All claims on Tables 2 and 3 hold for the paper itself, whatever it has no control for."""
    beside = {3: 50.0, 4: 85.0, 5: 80.0, 8: 80.0, 11: 80.0, 12: 60.0, 15: 88.0}

    def score(name: str, variant: Any, question: int) -> float:
        number = of_row(name)
        return (beside.get(number, 50.0) if " " in name else PRINTED[number][2]) / 100

    found = world(score, exact=lambda name, *told: PRINTED[of_row(name)][1] / 100)
    paper = load_paper("guan2020")
    asked = [c for c in paper.claims if c.id.startswith(("tab2", "tab3", "sec5"))]
    assert len(asked) == 2 * 19 + 13
    for claim in asked:
        judged = judge(claim, found.findings, own_model=True)
        assert (judged.verdict, judged.value_verdict) in AGREES, f"{claim.id}: {judged.reason}"
    table = found.table.set_index("row")
    for number, (_, _, f1) in PRINTED.items():
        assert table.loc[number, "f1"] == pytest.approx(f1)
        assert found.findings[f"row{number:02d}.lost"].value == pytest.approx(
            100 * (1 - f1 / 89.68)
        )
    seen = found.findings
    assert seen["prune.diagonal_lead"].value == pytest.approx(81.92 - 7.55)
    assert seen["prune.important_lead"].value == pytest.approx(87.62 - 81.92)
    assert seen["sentence.local"].value == pytest.approx(80.22 - 23.55)
    assert seen["row05.em_points"].value == pytest.approx(82.85 - 81.42)
    assert seen["row15.em_more_than_14"].value == pytest.approx(80.28 - 77.95)
    assert seen["prune.vertical_lead"].value == pytest.approx(87.62 - 88.57)
    assert seen["row07.more_than_06"].value == pytest.approx(84.05 - 67.62)
    assert seen["row15.more_than_14"].value == pytest.approx(87.76 - 85.86)
    assert seen["sentence.diagonal"].value == pytest.approx(89.91 - 25.29)
    assert seen["sentence.dense_vertical"].value == pytest.approx(84.10 - 15.57)


def test_harm_beyond_random_heads(world: Callable[..., Found]) -> None:
    """Article by article and set by set: low and high stay low and high."""

    def score(name: str, variant: Any, question: int) -> float:
        level = 0.02 * (question % 4)
        if " " in name:
            return 0.6 + level + 0.05 * int(name.split()[1])
        return {1: 0.9 + level, 3: 0.2, 8: 0.9}.get(of_row(name), 0.65) - level

    found = world(score, questions=questions_on(4, 3), n_questions=6, draws=5)
    table = found.table.set_index("row")
    hurt, mild = table.loc[3], table.loc[8]
    assert hurt["f1_beyond_low"] > 0 > mild["f1_beyond_high"]
    assert hurt["f1_beyond_value"] == pytest.approx(hurt["control_f1"] - hurt["own_f1"])
    assert hurt["loss_beyond_value"] == pytest.approx(hurt["f1_beyond_value"] / 25)
    assert hurt["p"] == pytest.approx(1 / 6) and mild["p"] == 1
    asked = shared_ablation.spread_out([f"article {i % 4}" for i in range(12)], 6)
    own = [100 * score("row03", (), i) for i in asked]
    control = [[100 * score(f"row03 {d}", (), i) for i in asked] for d in range(5)]
    assert hurt["own_f1"] == pytest.approx(np.mean(own))
    assert hurt["control_f1"] == pytest.approx(np.mean(control))
    assert hurt["control_high"] == pytest.approx(np.percentile(np.mean(control, 1), 97.5))
    beyond = found.findings["row03.beyond_control"]
    assert beyond.value == pytest.approx(hurt["f1_beyond_value"])
    assert beyond.low == hurt["f1_beyond_low"] < beyond.value < beyond.high
    # one set of five, and not their mean: the ends are those of the sets farthest away
    apart = np.mean(control, 1) - np.mean(own)
    assert beyond.low < apart.min() + 1 and beyond.high > apart.max() - 1
    lost = found.findings["row03.lost"]
    whole = table.loc[1, "f1"]
    assert lost.value == pytest.approx(100 * (1 - table.loc[3, "f1"] / whole))
    assert lost.low < lost.value < lost.high
    assert found.findings["row01.lost"].value == 0
    assert table["f1_beyond_value"].notna().sum() == len(CONTROLS) == 12


def test_the_part_that_is_lost_is_found_in_every_draw() -> None:
    """Row 3 halves each article's own score: half is lost, whatever articles are drawn."""
    answers = long_answers()
    level = 0.2 + 0.3 * (answers["place"] % 3)
    answers["f1"] = level.where(answers["row"] != 3, level / 2)
    lost = judged_by(answers, [one_control(n, 0.5)[:0] for n in CONTROLS]).findings["row03.lost"]
    assert (lost.value, lost.low, lost.high) == pytest.approx((50, 50, 50))


def test_what_a_model_lacks_is_undefined(world: Callable[..., Found]) -> None:
    found = world(lambda *_: 0.5, there=("dense", "diagonal", "vertical")).findings
    undefined = {name for name, one in found.items() if math.isnan(one.value)}
    rows = {int(name[3:5]) for name in undefined if name.startswith("row")}
    assert rows == {4, 7, 10, 14, 15, 18, 19}
    assert {name for name in undefined if not name.startswith("row")} == {
        *("prune.important_lead", "sentence.dense_vertical", "sentence.local")
    }


def test_random_sets_are_matched_to_their_row(world: Callable[..., Found]) -> None:
    seen: dict[str, tuple[Intervention, ...]] = {}

    def score(name: str, variant: tuple[Intervention, ...], question: int) -> float:
        seen[name] = variant
        return 0.5

    found = world(score, draws=4, seed=7)
    table = found.table.set_index("row")
    for row in ROWS[1:]:
        heads = row.heads(TOY_TYPES)
        assert seen[row.key] == row.variant(heads)
        if len(row.types) > 1:
            continue
        layers = Counter(layer for layer, _ in heads)
        for draw in range(4):
            (one,) = seen[f"{row.key} {draw}"]
            assert one.action == row.variant(heads)[0].action
            assert Counter(layer for layer, _ in one.heads) == layers
    for row in ROWS:
        assert table.loc[row.number, "n_heads"] == len(row.heads(TOY_TYPES))
    assert seen["row01"] == ()
    first = {name: variant[0].heads for name, variant in seen.items() if variant}
    world(score, draws=4, seed=8)
    again = {name: variant[0].heads for name, variant in seen.items() if variant}
    assert again != first
    assert all(again[row.key] == first[row.key] for row in ROWS[1:])
    # Rows on the same heads meet the same random ones.
    assert [first[f"row03 {d}"] for d in range(4)] == [first[f"row12 {d}"] for d in range(4)]


def test_the_table_of_ablations(world: Callable[..., Found]) -> None:
    table = world(lambda name, variant, question: 0.5).table
    assert table["row"].tolist() == list(range(20))
    untapped = table.iloc[0]
    assert untapped["f1"] == untapped["em"] == 100  # the reader's own answers, all right
    assert math.isnan(untapped["loss"]) and table.loc[1, "loss"] == pytest.approx(2)
    assert table.loc[:1, ["f1_beyond_value", "p", "control_f1"]].isna().all(axis=None)
    assert (table.loc[1:, "error"] == 0).all()


def long_answers(n: int = 6) -> pd.DataFrame:
    """Answers to questions on three articles, in which row 3 is worse than row 1."""
    rows_of = [
        {
            **{"row": row, "place": place, "article": f"a{place % 3}", "n_heads": row > 1},
            **{"em": 0.0, "f1": 0.8 - 0.1 * (row == 3) * (place % 3), "loss": 0.0},
        }
        for row in range(20)
        for place in range(n)
    ]
    return pd.DataFrame(rows_of)


def one_control(row: int, f1: float, places: Sequence[int] = (0, 3, 5)) -> pd.DataFrame:
    each = [
        {"row": row, "draw": draw, "overlap": 0.5, "place": place, "em": 0.0, "loss": 0.0}
        | {"f1": f1 + 0.1 * draw}
        for draw in range(2)
        for place in places
    ]
    return pd.DataFrame(each)


def test_the_order_of_tables_and_their_rows_does_not_matter() -> None:
    answers = long_answers()
    controls = [one_control(row, 0.4 + row / 50) for row in CONTROLS]
    found = judged_by(answers, controls)
    mixed = [one.sample(frac=1, random_state=4) for one in (answers, *controls)]
    again = judged_by(mixed[0], mixed[1:])
    pd.testing.assert_frame_equal(found.table, again.table)
    assert found.findings.keys() == again.findings.keys()
    for name, one in found.findings.items():
        other = again.findings[name]
        assert [one.value, one.low, one.high] == pytest.approx(
            [other.value, other.low, other.high], nan_ok=True
        )
    row = found.table.set_index("row").loc[3]
    # of the questions 0, 3 and 5 only: 0.8, 0.8 and 0.6 next to 0.46 and 0.56
    assert (row["own_f1"], row["control_f1"]) == pytest.approx((220 / 3, 51.0))
    assert row["f1_beyond_value"] == pytest.approx(51 - 220 / 3)


def test_without_any_control() -> None:
    found = judged_by(long_answers(), [one_control(row, 0.5)[:0] for row in CONTROLS])
    assert found.table["p"].isna().all()
    assert found.findings["row03.lost"].value == pytest.approx(100 * 0.1 / 0.8)
    assert math.isnan(found.findings["row03.beyond_control"].value)


def test_answers_question_by_question(reader: SpanReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "reader_of", lambda *_, **__: reader)
    given: dict[str, Any] = {"encoder": reader.encoder, "recipe": None}
    few = corpus_of(*ASKED[1:4])
    found = ablation.type_answers(few, TOY_TYPES, **given)
    table = found.table.set_index(["row", "place"]).sort_index()
    assert len(table) == 20 * 3 and found.facts["passes"] == 20 * 3
    for place, asked in enumerate(few.examples):
        _, em, f1, loss = naive(reader, asked, ())
        for row in (0, 1):
            assert table.loc[(row, place), ["em", "f1"]].tolist() == pytest.approx([em, f1])
        assert table.loc[(1, place), "loss"] == pytest.approx(loss, abs=1e-4)
        assert table.loc[(7, place), "article"] == asked.article
    assert table.loc[(7, 0), "n_heads"] == 5 and table.loc[(0, 0), "n_heads"] == 0
    control = ablation.control_answers(few, TOY_TYPES, **given, row=9, draws=2, n_questions=2)
    assert control.table[["draw", "place"]].to_numpy().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    sets = matched_draws(HEADS_OF["diagonal"], HEADS, draws=2)
    expected = [
        naive(reader, few.examples[place], (Intervention(one, "uniform"),))[2]
        for one in sets
        for place in (0, 1)
    ]
    assert control.table["f1"].tolist() == pytest.approx(expected)
    overlap = [len(one & HEADS_OF["diagonal"]) / 4 for one in sets for _ in (0, 1)]
    assert control.table["overlap"].tolist() == pytest.approx(overlap)
    losses = [
        naive(reader, few.examples[place], (Intervention(one, "uniform"),))[3]
        for one in sets
        for place in (0, 1)
    ]
    assert control.table["loss"].tolist() == pytest.approx(losses, abs=1e-4)
    none = types_table(["dense"] * 12)
    empty = ablation.control_answers(few, none, **given, row=9, draws=2, n_questions=2)
    assert empty.table.empty and list(empty.table) == list(control.table)


def test_what_is_given_to_an_ablation(reader: SpanReader, monkeypatch: Any) -> None:
    monkeypatch.setattr(ablation, "reader_of", lambda *train, **_: (*train, reader))
    settings: dict[str, Any] = {"encoder": reader.encoder, "recipe": None}
    other = corpus_of(*ASKED[:1], name="toy:train")
    found = ablation.reader_and_types((other, TOY, TOY_TYPES), **settings)
    assert found[0] == (other, reader) and found[2] is TOY_TYPES
    assert found[1] == dict(enumerate(TOY.examples))
    assert ablation.reader_and_types((TOY, TOY_TYPES), **settings)[0] == (reader,)
    assert len(ablation.reader_and_types((TOY, TOY_TYPES), **settings, n_questions=2)[1]) == 2


def test_a_type_without_heads_has_no_control(world: Callable[..., Found]) -> None:
    given = TOY_TYPES.replace({"type": {"vertical": "dense"}})
    found = world(lambda name, variant, question: 0.8 if not variant else 0.4, given)
    table = found.table.set_index("row")
    for number in (5, 11):
        assert table.loc[number, "n_heads"] == 0 and math.isnan(table.loc[number, "p"])
        assert table.loc[number, "f1"] == 80
        assert math.isnan(found.findings[f"row{number:02d}.beyond_control"].value)
    assert found.findings["row02.beyond_control"].value == pytest.approx(0)


def test_what_is_lost_of_nothing_is_undefined(world: Callable[..., Found]) -> None:
    found = world(lambda name, variant, question: 0.0)
    assert math.isnan(found.findings["row03.lost"].value)
    assert found.findings["row03.points"].value == 0


def test_all_heads_of_one_type(world: Callable[..., Found]) -> None:
    """There is nothing to choose: every random set is the set itself."""
    every = types_table(["diagonal"] * 12)
    found = world(lambda name, variant, question: 0.5 - 0.3 * bool(variant), every)
    table = found.table.set_index("row")
    assert table.loc[3, "n_heads"] == 12 and math.isnan(table.loc[3, "p"])
    assert math.isnan(found.findings["row03.beyond_control"].value)
    assert found.findings["row03.lost"].value == pytest.approx(60)
    assert table.loc[18, "n_heads"] == 12 and table.loc[16, "n_heads"] == 0


def test_one_article_has_no_intervals(world: Callable[..., Found]) -> None:
    found = world(lambda name, variant, question: 0.5, questions=questions_on(1, 5))
    assert math.isnan(found.findings["row03.lost"].low)
    assert math.isnan(found.findings["row03.f1"].low)
    assert math.isnan(found.findings["row03.beyond_control"].high)


def test_a_toy_reader_end_to_end(reader: SpanReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "reader_of", lambda *_, **__: reader)
    given: dict[str, Any] = {"encoder": reader.encoder, "recipe": None}
    answers = ablation.type_answers(TOY, TOY_TYPES, **given).table
    controls = [
        ablation.control_answers(
            TOY, TOY_TYPES, **given, row=row, draws=2, n_questions=2, seed=5
        ).table
        for row in CONTROLS
    ]
    table = judged_by(answers, controls).table.set_index("row")
    scores = ["em", "em_low", "em_high", "f1", "f1_low", "f1_high"]
    assert table.loc[0, scores].tolist() == table.loc[1, scores].tolist()
    for number in (6, 17):
        variant = ROWS[number - 1].variant(ROWS[number - 1].heads(TOY_TYPES))
        expected = [naive(reader, one, variant) for one in ASKED]
        assert table.loc[number, "f1"] == pytest.approx(100 * np.mean([one[2] for one in expected]))
        assert table.loc[number, "loss"] == pytest.approx(
            np.nanmean([one[3] for one in expected]), abs=1e-4
        )
    chosen = [ASKED[0], ASKED[1]]  # the first of each article
    sets = matched_draws(HEADS_OF["dense"], HEADS, draws=2, seed=5)
    random = [naive(reader, q, (Intervention(one, "zero"),))[2] for one in sets for q in chosen]
    assert table.loc[2, "control_f1"] == pytest.approx(100 * np.mean(random))
    assert table["f1"].nunique() > 3


def test_random_heads_are_those_of_the_reader(
    reader: SpanReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A published reader may have other heads than the chapter's model."""
    monkeypatch.setattr(ablation, "reader_of", lambda *_, **__: reader)
    given: dict[str, Any] = {"encoder": replace(reader.encoder, n_heads=2), "recipe": None}
    few = corpus_of(*ASKED[2:3])
    ablation.control_answers(few, TOY_TYPES, **given, row=3, draws=1, n_questions=1)


# --- a closer look --------------------------------------------------------------------------------


def test_every_head_alone(reader: SpanReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "reader_of", lambda *_, **__: reader)
    found = ablation.single_head_effects(
        TOY, TOY_TYPES, encoder=reader.encoder, recipe=None, n_questions=3
    )
    table = found.table
    places = [(a, b) for a in range(1, LAYERS + 1) for b in range(1, HEADS + 1)]
    assert list(zip(table["layer"], table["head"], strict=True)) == places
    assert table["type"].tolist() == TOY_TYPES["type"].tolist()
    chosen = [ASKED[place] for place in shared_ablation.spread_out([q.article for q in ASKED], 3)]
    whole = [naive(reader, one, ()) for one in chosen]
    articles = sorted({one.article for one in chosen})
    assert len(articles) == 2
    for layer, head in ((1, 3), (3, 2)):
        variant = (Intervention(frozenset({(layer - 1, head - 1)}), "zero"),)
        changed = [naive(reader, one, variant) for one in chosen]
        pairs = list(zip(changed, whole, strict=True))
        rise = np.array([one[3] - other[3] for one, other in pairs])
        row = table.set_index(["layer", "head"]).loc[(layer, head)]
        assert row["loss"] == pytest.approx(rise.mean(), abs=1e-4)
        means = [rise[[one.article == a for one in chosen]].mean() for a in articles]
        # two articles, drawn again: both, or one of them twice
        assert (row["low"], row["high"]) == pytest.approx((min(means), max(means)), abs=1e-4)
        fall = 100 * np.mean([other[2] - one[2] for one, other in pairs])
        assert row["f1"] == pytest.approx(fall)
    assert found.facts["whole_f1"] == pytest.approx(100 * np.mean([one[2] for one in whole]))
    assert found.facts["whole_loss"] == pytest.approx(np.mean([one[3] for one in whole]), abs=1e-4)
    means = {name: table.loc[table["type"] == name, "loss"].mean() for name in TYPES}
    told = {name: ends["value"] for name, ends in found.facts["mean_by_type"].items()}
    assert told == pytest.approx(means)


def test_other_readings_of_the_ablations(
    reader: SpanReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, tuple[Intervention, ...]] = {}

    def fake(reader: Any, questions: Any, variants: Any, **_: Any) -> Outcome:
        asked.update(variants)
        f1 = np.array([[0.3 if " " in name else 0.5] * len(questions) for name in variants])
        return Outcome(tuple(variants), f1, f1, f1)

    monkeypatch.setattr(ablation, "reader_of", lambda *_, **__: reader)
    monkeypatch.setattr(ablation, "ablated", fake)
    given: dict[str, Any] = {"encoder": reader.encoder, "recipe": None, "n_questions": 2}
    found = ablation.ablation_decisions(TOY, TOY_TYPES, **given)
    assert Counter(found.table["reading"]) == dict(
        zip(ablation.READINGS, (8, 8, 8, 4), strict=True)
    )
    assert set(found.table.loc[found.table["row"] < 12, "reading"]) == {"L = 384, padding counted"}
    assert found.table["change"].tolist() == pytest.approx([-20.0] * 28)
    for reading_name, (_, other) in ablation.READINGS.items():
        for number in found.table.loc[found.table["reading"] == reading_name, "row"]:
            (one,) = asked[f"row{number:02d} {reading_name}"]
            (plain,) = asked[f"row{number:02d}"]
            assert one == replace(plain, **other) != plain
    assert sorted(set(found.table["row"])) == list(range(8, 20))
    assert set(found.table["ours"]) == {50.0} and set(found.table["f1"]) == {30.0}
    none = types_table(["dense"] * 12)
    fewer = ablation.ablation_decisions(TOY, none, **given)
    assert set(fewer.table["row"]) == {8, 16, 17, 18, 19}


# --- the reader -----------------------------------------------------------------------------------


def test_how_well_the_reader_reads(reader: SpanReader, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {**reader.facts, "n_train": 480, "steps": 30, "corpus": "toy:train", "seconds": 2.0}
    facts["recipe"] = {"max_length": 24, "batch_size": 16}
    trained = replace(reader, facts=facts)
    monkeypatch.setattr(models, "reader_of", lambda *_, **__: trained)
    found = models.reading(TOY, encoder=reader.encoder, recipe=None, name="dev", seed=3)
    table = found.table.set_index("reader")
    assert table.index.tolist() == ["trained", "untrained"]
    blank = SpanReader(reader.encoder, SpanHead(reader.encoder, 3), reader.facts)
    for name, one in (("trained", reader), ("untrained", blank)):
        scores = [naive(one, asked, ()) for asked in ASKED]
        assert table.loc[name, "f1"] == pytest.approx(100 * np.mean([s[2] for s in scores]))
        assert table.loc[name, "em"] == pytest.approx(100 * np.mean([s[1] for s in scores]))
    assert table.loc["trained", "f1"] != table.loc["untrained", "f1"]
    own = table.loc["trained"]
    assert found.findings == {
        f"reading.dev.{score}": Finding(own[score], own[f"{score}_low"], own[f"{score}_high"])
        for score in ("em", "f1")
    }
    assert found.facts["asked"] == 5 and found.facts["articles"] == 2
    assert found.facts["inputs"] == 480 and found.facts["passes"] == 3 * 30 * 16 + 2 * 5


# --- the models of the chapter --------------------------------------------------------------------


def given_corpus(name: str, limit: int | None = None) -> Any:
    return corpus_of(*ASKED, name=name, digest=f"{name} {limit}")


LEARN = {"train": "squad:train", "train_limit": 7, "epochs": 2, "max_length": 64}


def test_models_by_name() -> None:
    found = models.subjects(
        given_corpus, LEARN, {"mrpc": {"epochs": 1}, "mnli": {"train_limit": 3}}
    )
    assert list(found) == list(MODELS)
    assert found["pretrained"].corpora == () and found["pretrained"].settings == {
        **{"model": "pretrained", "task": None, "recipe": None}
    }
    squad = found["squad"]
    assert [one.digest for one in squad.corpora] == ["squad:train 7"]
    assert squad.settings["task"] == "spans" and squad.settings["recipe"]["epochs"] == 2
    assert squad.settings["recipe"]["max_length"] == 64
    assert [found[task].corpora[0].digest for task in ("mrpc", "mnli")] == [
        *("mrpc:train None", "mnli:train 3")
    ]
    assert found["mrpc"].settings["model"] == found["mrpc"].settings["task"] == "mrpc"
    assert LEARN["train"] == "squad:train", "the settings given were changed"


@pytest.mark.parametrize(
    ("questions", "tasks", "message"),
    [
        (LEARN, {"mrcp": {}}, "task is 'mrcp'; expected one of"),
        ({"epochs": 2}, {}, "the settings of 'squad' are wrong .*train"),
        ({**LEARN, "epoch": 2}, {}, "'epoch'.*epochs"),
        (LEARN, {"mrpc": {"steps": 2}}, "the settings of 'mrpc' are wrong"),
        ({**LEARN, "epochs": 0}, {}, "epochs is 0"),
    ],
)
def test_wrong_settings_are_refused(questions: Any, tasks: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        models.subjects(given_corpus, questions, tasks)


def test_a_published_reader_is_told_by_its_files(bert: Encoder) -> None:
    found = models.subjects(given_corpus, {"published": bert.source}, {})
    recipe = found["squad"].settings["recipe"]
    assert recipe["published"] == bert.source and len(recipe["files"]) == 16
    assert found["squad"].corpora == ()


def test_where_a_reader_comes_from(bert: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        publishedreader, "spantuned", lambda *given, **_: asked.append(("trained", given)) or "own"
    )
    monkeypatch.setattr(
        publishedreader,
        "published_reader",
        lambda one: asked.append(("published", one.name)) or SimpleNamespace(encoder="theirs"),
    )
    reader_of, model_of = publishedreader.reader_of, models.model_of
    recipe = {"epochs": 1, "max_length": 64}
    assert reader_of(TOY, encoder=bert, recipe=recipe) == "own"
    assert asked.pop() == ("trained", (bert, TOY))
    for given in (None, recipe):
        assert reader_of(encoder=bert, recipe=given).encoder == "theirs"
        assert asked.pop() == ("published", bert.name)
    reader_of(encoder=replace(bert, name="x"), recipe={"published": bert.source})
    assert asked.pop() == ("published", bert.source)
    assert model_of(encoder=bert, task=None, recipe=None) is bert
    assert model_of(encoder=bert, task="spans", recipe=None) == "theirs"
    monkeypatch.setattr(taskplans, "finetuned", lambda *given, **_: SimpleNamespace(encoder=given))
    assert model_of(TOY, encoder=bert, task="mrpc", recipe=recipe) == (bert, TOY, "mrpc")


# --- the wall of maps -----------------------------------------------------------------------------


def test_maps_are_kept_within_half_a_step() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(7), size=(2, 3, 7))
    weights[0, 0] = np.eye(7)
    weights[1, 2, 0] = 1 / 7
    table = pd.DataFrame(
        [
            {"layer": layer + 1, "head": head + 1, "map": wall.packed(weights[layer, head])}
            for layer, head in itertools.product(range(2), range(3))
        ]
    )
    found = wall.unpacked(table.sample(frac=1, random_state=1), 7)
    assert found.shape == (2, 3, 7, 7)
    assert np.abs(found - weights).max() <= 1 / 510 + 1e-12
    np.testing.assert_array_equal(found[0, 0], np.eye(7))
    raw = base64.b64decode(table["map"][0])
    assert len(raw) == 49 and raw[0] == 255 and raw[1] == 0  # row by row, one byte each
    rounding = wall.packed(np.array([[1.0000004]]))  # a softmax may sum to a little more
    assert base64.b64decode(rounding) == b"\xff"


LONG = "It rained. We took the old road, so the school was closed. Why? Her river bridge had snow."
STARTS = tuple(LONG.index(start) for start in ("It", "We", "Why", "Her"))
ASKS = Question("long", "why did we", LONG, (Answer("snow", LONG.index("snow")),), "x")


def n_pieces(encoder: Encoder, question: Question) -> int:
    return len(encoder.tokenizer(question.question, question.context)["input_ids"])


def test_an_opening_ends_with_a_sentence(bert: Encoder) -> None:
    given = replace(ASKS, starts=((0,), STARTS))
    whole = n_pieces(bert, ASKS)
    openings = [LONG[:end].strip() for end in (*STARTS[1:], len(LONG))]
    sizes = [n_pieces(bert, replace(ASKS, context=one)) for one in openings]
    assert sizes == sorted(set(sizes)) and sizes[-1] == whole
    for most in range(sizes[0], whole + 2):
        found = wall.opening(given, bert, most)
        assert n_pieces(bert, found) <= most
        fits = [one for one, size in zip(openings, sizes, strict=True) if size <= most]
        assert found.context == fits[-1] and found.question == ASKS.question
    assert given.context == LONG
    with pytest.raises(BadValue, match=f"'long' and its first sentence .*{sizes[0] - 1} pieces"):
        wall.opening(given, bert, sizes[0] - 1)


def test_an_opening_of_a_paragraph_whose_sentences_are_not_told(bert: Encoder) -> None:
    most = n_pieces(bert, ASKS) - 1
    told = wall.opening(replace(ASKS, starts=((0,), STARTS)), bert, most)
    assert wall.opening(ASKS, bert, most).context == told.context


def test_the_wall_shows_the_maps_of_the_library(bert: Encoder) -> None:
    given, most = replace(ASKS, starts=((0,), STARTS)), n_pieces(bert, ASKS) - 1
    found = wall.wall_maps(
        corpus_of(given, ASKED[0]),
        encoder=bert,
        model="pretrained",
        task=None,
        recipe=None,
        max_pieces=most,
    )
    tokens, maps = library_maps(bert, wall.opening(given, bert, most))
    assert found.facts["pieces"] == tokens and len(tokens) <= most
    shown = wall.unpacked(found.table, len(tokens))
    assert np.abs(shown - maps).max() <= 1 / 510 + 1e-5
    assert found.table[["layer", "head"]].iloc[[0, -1]].to_numpy().tolist() == [
        *([1, 1], [LAYERS, HEADS])
    ]


def test_maps_that_look_like_their_own_cluster() -> None:
    """A plain loop: the mean of its own cluster is taken without the map itself."""
    generator = np.random.default_rng(0)
    names = np.array(["a"] * 4 + ["b"] * 3 + ["c"])
    maps = generator.normal(0, 1, (8, 5)) + (names == "b")[:, None]
    hits = []
    for at, name in enumerate(names[:7]):  # the last is alone
        means = {
            other: maps[[i for i, n in enumerate(names) if n == other and i != at]].mean(0)
            for other in "abc"
        }
        away = {other: np.linalg.norm(maps[at] - mean) for other, mean in means.items()}
        hits.append(min(away, key=away.__getitem__) == name)
    assert 0 < np.mean(hits) < 1
    assert wall.nearest_to_own(maps, names) == pytest.approx(np.mean(hits))
    assert math.isnan(wall.nearest_to_own(maps[:2], np.array(["a", "b"])))


def test_looks_of_new_inputs(bert: Encoder) -> None:
    more, seen = corpus_of(*ASKED), corpus_of(*ASKED[:2])
    fresh = wall.unseen(more, seen, limit=2)
    assert [one.id for one in fresh.examples] == [one.id for one in ASKED[2:4]]
    with pytest.raises(BadValue, match="no input besides"):
        wall.unseen(seen, more, limit=2)
    how: dict[str, Any] = {"model": "pretrained", "task": None, "recipe": None, "max_length": 24}
    found = wall.cluster_looks(fresh, TOY_TYPES, encoder=bert, **how).table
    assert found["article"].tolist() == [one.article for one in ASKED[2:4]]
    tokens, maps = library_maps(bert, ASKED[2])
    small = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(maps).flatten(0, 1), 32)
    names = TOY_TYPES.sort_values(["layer", "head"])["type"].to_numpy()
    if len(tokens) <= 24:
        expected = wall.nearest_to_own(small.sqrt().flatten(1).numpy(), names)
        assert found["share"][0] == pytest.approx(expected)
    seen_share = looks_own(pd.DataFrame({"article": ["a", "a", "b"], "share": [1.0, 0.5, 0.0]}))
    one = seen_share.findings["fig5.nearest_to_own_cluster"]
    assert (one.value, one.low, one.high) == pytest.approx((0.5, 0.0, 0.75))


# --- the naming rule and the paper's numbers ------------------------------------------------------


def test_margins_of_the_naming_rule(stub: Stub) -> None:
    stub(features_with(FOUR_LAYERS, 3, spread=0.001))
    margins = types.head_types(None, model="squad", **STUBBED).facts["margins"]
    shown = pd.DataFrame(margins).set_index("type")
    assert shown.index.tolist() == ["vertical", "diagonal", "dense&vertical"]
    first = shown.loc["vertical"]
    assert first["by"] == "special" and first["runner_up"] == "dense&vertical"
    assert first["margin"] == pytest.approx(first["mass"] - first["next_mass"], abs=2e-4)
    assert first["margin"] == pytest.approx(0.45, abs=0.02)
    assert shown.loc["dense&vertical", "runner_up"] == "dense"


def test_the_claims_have_the_shares_and_stabilities_of_the_paper() -> None:
    told = {claim.id: claim.value.get("value") for claim in load_paper("guan2020").claims}
    shares = [told[f"sec4.share.{slug}"] for slug in SLUGS]
    assert shares == [26.04, 25.56, 34.11, 13.28]  # as printed; they sum to 98.99
    assert [told[f"tab1.{model}"] for model in MODELS] == [95.98, 96.26, 95.98, 94.37]


# --- completeness ---------------------------------------------------------------------------------

JUDGED_BY_CONTROL = {3, 4, 5, 8, 11, 12, 15}
UNUSED = {
    *("reading.dev.em", "reading.dev.f1"),
    # the paper says something of these for some rows only
    *("row01.points", "row01.em_points"),
    *(
        f"row{n:02d}.{s}"
        for n in (1, 2, 4, 5, 6, 7, 8, 13, 14, 15, 19)
        for s in ("lost", "em_lost")
    ),
    *(
        f"row{n:02d}.{s}"
        for n in (3, 7, 9, 10, 11, 12, 15, 16, 17, 18)
        for s in ("points", "em_points")
    ),
    *(f"row{n:02d}.beyond_control" for n in CONTROLS if n not in JUDGED_BY_CONTROL),
}
"""What the experiments find and no claim asks for."""


def test_every_claim_is_measured_and_every_number_is_claimed(
    stub: Stub,
    world: Callable[..., Found],
    reader: SpanReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stub(features_with(MANY, 5, spread=0.006))
    monkeypatch.setattr(clusters, "plane", lambda mean, seed: mean[:, :2])
    monkeypatch.setattr(models, "reader_of", lambda *_, **__: reader)
    told: dict[str, Any] = {"draws": 2, **STUBBED}
    heads = {model: draws_of(model, 2) for model in MODELS}
    stable = [clusters.type_stability(None, model=m, repeats=1, **told).table for m in MODELS]
    tops = (types_in_draws(one).table for one in heads.values())
    points = pd.DataFrame({"layer": [1, 1], "head": [1, 2], "label": ["a", "b"]})
    points = points.join(pd.DataFrame(np.eye(21)[:2], columns=list(NAMES)))
    features = types.head_features(None, model="squad", **STUBBED)
    found = [
        features.findings,
        of_types(heads["squad"]),
        clusters_found(clusters.cluster_draws(None, model="squad", **told).table).findings,
        stability_found(*stable).findings,
        eye_match(points, features.table).findings,
        looks_own(pd.DataFrame({"article": ["a", "b"], "share": [0.5, 0.6]})).findings,
        type_moves(*heads.values(), models=MODELS[1:]).findings,
        top_heads(*tops, models=MODELS).findings,
        world(lambda name, variant, question: 0.5 + 0.02 * (question % 4)).findings,
        models.reading(TOY, encoder=reader.encoder, recipe=None, name="dev").findings,
    ]
    named: dict[str, Finding] = {}
    for part in found:
        assert not set(named) & set(part), "two experiments find a number of one name"
        named |= part
    wanted = set()
    for claim in load_paper("guan2020").claims:
        wanted |= {claim.measure, claim.phenomenon.measure}
    assert wanted - set(named) == set()
    assert set(named) - wanted == UNUSED
    # the same clusters in all models: there is no distance between layers to divide by
    assert {name for name, one in named.items() if math.isnan(one.value)} == set()
    for name, one in named.items():
        if not math.isnan(one.low):
            assert one.low <= one.high, name
