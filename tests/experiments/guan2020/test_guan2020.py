"""The experiments on Guan 2020: rows of its tables, numbers by hand, signs, and completeness."""

from __future__ import annotations

import base64
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from attnlib.errors import AttnlibError, BadValue
from attnlib.models import Encoder, load_encoder
from bookkit.claims import Finding, judge, load_paper
from bookkit.store import Found
from experiments.guan2020 import ablation, clusters, models, types, wall
from experiments.guan2020.ablation import ROWS, Row
from experiments.guan2020.types import Features, type_moves
from experiments.shared import ablate_command as command
from experiments.shared import ablation as shared_ablation
from experiments.shared.ablation import Outcome
from experiments.shared.training import publishedreader, taskplans
from experiments.shared.training.spanmodel import Candidate, SpanHead, SpanReader
from tests.experiments.shared.test_ablate_command import HEADS_OF, TOY_TYPES, types_table
from tests.experiments.shared.test_ablation import QUESTIONS as ASKED
from tests.experiments.shared.test_ablation import naive, reader_on
from tests.families import HEADS, LAYERS, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

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
    claims = load_paper("guan2020").claims
    told = {}
    for claim in claims:
        if claim.id.startswith(("tab2.", "tab3.")):
            number = int(claim.id.partition(".")[2])
            told[number] = (claim.value["exact_match"], claim.value["value"])
            assert claim.measure == f"row{number:02d}.f1"
            assert claim.id[3] == ("2" if number < 12 else "3")
    assert told == {number: (em, f1) for number, (_, em, f1) in PRINTED.items()}


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
    return Features(NAMES, found / found.sum(-1, keepdims=True), n_heads, 100 * n_inputs)


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
    Segment("1", "The bridge, the river, the snow. It was closed."),
    Segment("2", "A well.", "So we wait."),
)


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
    inputs = corpus_of(*TEXTS)
    found = types.features_of(inputs, encoder=bert, **PLAIN)
    assert found.names == NAMES and found.tokens == n_tokens and found.n_heads == HEADS
    np.testing.assert_allclose(found.rows, expected, atol=1e-5)
    told = types.head_features(inputs, encoder=bert, model="pretrained", **PLAIN)
    table = told.table.set_index(["layer", "head", "feature"])["value"]
    assert len(table) == LAYERS * HEADS * 21
    mean = np.mean(expected, 0).reshape(LAYERS, HEADS, 21)
    for layer, head, part in ((1, 1, "cls"), (2, 4, "window_03"), (3, 2, "self"), (1, 3, "period")):
        value = mean[layer - 1, head - 1, NAMES.index(part)]
        assert table[layer, head, part] == pytest.approx(value, abs=1e-5)
    assert told.findings["features.sum"].value == pytest.approx(1, abs=1e-5)
    assert 0 <= told.findings["features.largest_gap"].value < 1e-5
    assert told.facts["mean_length"] == pytest.approx(n_tokens / 3) and told.facts["inputs"] == 3


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
    fewer = types.features_of(inputs, encoder=bert, **{**PLAIN, "max_length": 9})
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
    "types.dense.share_from_30": 5.0,
    "types.diagonal.share_from_30": 5.0,
    "types.dense_vertical.share_from_30": 10 / 3,
    "types.vertical.share_from_30": 40 / 3,
    # layers 1, 1, 2; 1, 2, 4; 2, 3, 3, 3; 4, 4 of four
    "types.dense.depth": 1 / 9,
    "types.diagonal.depth": 4 / 9,
    "types.dense_vertical.depth": 7 / 12,
    "types.vertical.depth": 1.0,
    "types.dense_vertical.share_lead": 25 / 3,
    "types.vertical.share_below": 25 / 3,
    "types.dense.far_lead": 0.8 - 0.45,
    "types.diagonal.special_between": 0.25 - 0.1,
    "types.dense_vertical.lead": 0.45 - 0.25,
    "types.vertical.special_ratio": 2.0,
    "types.diagonal.layers": 0.75,
    "types.dense_vertical.off_middle": 1 / 12,
}


def numbers(
    given: Sequence[str] = FOUR_LAYERS,
    masses: Mapping[str, tuple[float, float, float]] = MASSES,
    n_heads: int = 3,
) -> dict[str, float]:
    found = features_with(given, n_heads, masses=masses)
    return types.type_numbers(found, found.mean, given)


def test_numbers_of_types_by_hand() -> None:
    assert numbers() == pytest.approx(BY_HAND)


@pytest.mark.parametrize(
    ("name", "changed", "expected"),
    [
        # dense&vertical looks further than dense
        ("types.dense.far_lead", {"dense&vertical": (0.0, 0.85, 0.15)}, -0.05),
        # diagonal below dense, or above vertical
        ("types.diagonal.special_between", {"diagonal": (0.7, 0.25, 0.05)}, -0.05),
        ("types.diagonal.special_between", {"diagonal": (0.02, 0.03, 0.95)}, -0.05),
        ("types.diagonal.special_between", {"diagonal": (0.1, 0.1, 0.8)}, 0.1),
        # nearer to vertical than to dense where dense has more
        ("types.diagonal.special_between", {"dense": (0.0, 0.0, 1.0)}, -0.65),
        # less far than diagonal, or less special
        ("types.dense_vertical.lead", {"dense&vertical": (0.45, 0.1, 0.45)}, -0.05),
        ("types.dense_vertical.lead", {"dense&vertical": (0.4, 0.4, 0.2)}, -0.05),
        ("types.vertical.special_ratio", {"dense": (0.2, 0.2, 0.6)}, 1.5),
    ],
)
def test_a_number_of_other_masses(name: str, changed: Any, expected: float) -> None:
    assert numbers(masses={**MASSES, **changed})[name] == pytest.approx(expected)


def test_numbers_of_other_shares() -> None:
    turned = [
        {"dense&vertical": "vertical", "vertical": "dense&vertical"}.get(t, t) for t in FOUR_LAYERS
    ]
    found = numbers(turned)
    assert found["types.dense_vertical.share_lead"] == pytest.approx(100 / 6 - 100 / 3)
    assert found["types.vertical.share_below"] == pytest.approx(100 / 6 - 100 / 3)
    assert found["types.dense_vertical.off_middle"] == pytest.approx(0.5)


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
    found = {
        name: Finding(value, value, value) for name, value in numbers(given, n_heads=16).items()
    }
    paper = load_paper("guan2020")
    asked = [c for c in paper.claims if c.id.startswith(("fig1.", "fig3.", "sec4.share."))]
    assert len(asked) == 12
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
        monkeypatch.setattr(types, "REPLICATES", 20)
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
    seen = found.findings
    assert set(seen) == {*BY_HAND, "types.consistent"}
    assert seen["types.consistent"].value == pytest.approx(1 - 1 / 72)
    assert seen["types.consistent"].low < 1 - 1 / 72 <= seen["types.consistent"].high == 1
    assert [row["type"] for row in found.facts["margins"]] == [
        *("vertical", "diagonal", "dense&vertical")
    ]


def test_values_lie_in_intervals_over_inputs(stub: Stub) -> None:
    stub(features_with(FOUR_LAYERS, 3, spread=0.004, n_inputs=12))
    found = types.head_types(None, model="squad", **STUBBED).findings
    for name, value in BY_HAND.items():
        one = found[name]
        assert one.low <= one.value + 1e-12 and one.value <= one.high + 1e-12, name
        assert one.value == pytest.approx(value, abs=0.15), name
    assert found["types.dense.far_lead"].low < found["types.dense.far_lead"].high
    assert found["types.dense.share"].low == found["types.dense.share"].high == 25


def test_only_the_question_answering_model_is_claimed(stub: Stub) -> None:
    stub(features_with(FOUR_LAYERS, 3, spread=0.01))
    for model in ("pretrained", "mrpc"):
        assert types.head_types(None, model=model, **STUBBED).findings == {}


def test_numbers_are_those_of_the_table(stub: Stub) -> None:
    """Where k-means has several optima, the shares quoted must be those of the types shown."""
    cloud = np.random.default_rng(0).dirichlet(np.ones(21), size=24)
    stub(Features(NAMES, np.stack([cloud] * 3), 6, 300))
    found = types.head_types(None, model="squad", **STUBBED)
    for name, slug in zip(TYPES, SLUGS, strict=True):
        share = 100 * (found.table["type"] == name).mean()
        assert found.findings[f"types.{slug}.share"].value == pytest.approx(share)


def test_types_of_a_toy_model(bert: Encoder, nothing_kept: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(types, "REPLICATES", 4)
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


@pytest.fixture(scope="module")
def counted() -> Iterator[Found]:
    """The number of clusters of four clear ones."""
    with pytest.MonkeyPatch.context() as patch:
        given = features_with(MANY, 5, spread=0.006)
        patch.setattr(clusters, "features_of", lambda *_, **__: given)
        yield clusters.cluster_number(None, model="squad", draws=9, **STUBBED)


def test_the_number_of_clusters(counted: Found) -> None:
    found = counted
    seen = {name: one.value for name, one in found.findings.items()}
    assert set(seen) == {
        *("clusters.one_cloud_p", "clusters.mixture_agreement", "clusters.silhouette_gap_at_4"),
        *("clusters.best_silhouette", "clusters.best_bic", "clusters.best_gap"),
    }
    assert seen["clusters.best_silhouette"] == 4 and seen["clusters.silhouette_gap_at_4"] == 0
    assert seen["clusters.mixture_agreement"] == 1
    assert seen["clusters.one_cloud_p"] == pytest.approx(1 / 10)
    table = found.table.set_index("k")
    assert list(table.index) == list(range(1, 9))
    assert {"silhouette", "bic", "gap", "gap_se", "agreement", "rand_k4"} <= set(table.columns)
    low, median, high = (table[f"null_{end}"] for end in ("low", "median", "high"))
    assert low.isna().tolist() == [True] + [False] * 7
    assert (low[1:] <= median[1:]).all() and (median[1:] <= high[1:]).all()
    assert table.loc[4, "silhouette"] > table.loc[4, "null_high"]
    assert found.facts["silhouette_at_4"] == table.loc[4, "silhouette"]


def test_the_gap_at_four_is_never_negative(stub: Stub) -> None:
    """Two clusters only: four are less clear than two."""
    two = {name: MASSES["dense" if name in TYPES[:2] else "vertical"] for name in TYPES}
    given = features_with(MANY, 5, spread=0.006, masses=two)
    stub(given)
    found = clusters.cluster_number(None, model="squad", draws=2, **STUBBED)
    assert found.findings["clusters.best_silhouette"].value == 2
    table = found.table.set_index("k")["silhouette"]
    gap = found.findings["clusters.silhouette_gap_at_4"].value
    assert gap == pytest.approx(table[2] - table[4]) and gap > 0.1


def test_stability(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(features_with(MANY, 5, spread=0.006))
    monkeypatch.setattr(clusters, "STABLE_KS", (4, 5))
    found = clusters.type_stability(None, model="squad", repeats=2, **STUBBED)
    assert set(found.findings) == {"stability.squad", "stability.squad.k5"}
    one = found.findings["stability.squad"]
    assert (one.value, one.low, one.high) == (100, 100, 100)  # percent, as in Table 1
    assert 0 < found.findings["stability.squad.k5"].value <= 1  # a share
    table = found.table.set_index(["k", "split"])
    assert table.index.tolist() == list(itertools.product((4, 5), ("inputs", "heads")))
    assert table.loc[(4, "inputs"), "stability"] == table.loc[(4, "inputs"), "first"] == 1
    assert set(table["n_fits"]) == {10} and set(table["model"]) == {"squad"}
    assert table.loc[(5, "inputs"), "stability"] == found.findings["stability.squad.k5"].value
    columns = ["stability", "low", "high", "null", "null_low", "null_high"]
    assert table[columns].stack().between(0, 1).all()


# --- moves ----------------------------------------------------------------------------------------


def six_layers(last: Sequence[str], changes: Mapping[int, str] | None = None) -> pd.DataFrame:
    """Two heads in each of six layers, dense but for the last layer; head number -> its type."""
    given = [*["dense"] * 10, *last]
    for place, name in (changes or {}).items():
        given[place] = name
    return types_table(given, 2)


def moved(**tables: pd.DataFrame) -> Found:
    return type_moves(*tables.values(), models=list(tables))


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
            "moves.squad.same": 1 - 2 / 12,
            "moves.mrpc.same": 1 - 3 / 12,
            # layers 5 and 6: heads 8 to 11, 1 and 2 of them; layers 1 and 2: 1 and 0
            "moves.last_minus_first": 3 / 8 - 1 / 8,
            "moves.top_dense_vertical": 2 - 1,
        }
    )
    table = found.table.set_index(["task", "layer", "head"])
    assert len(table) == 24
    assert table.loc[("mrpc", 6, 1)].tolist() == [mixed, "vertical", True]
    assert table.loc[("squad", 6, 1)].tolist() == [mixed, mixed, False]


def test_fewer_mixed_heads_at_the_top_than_in_a_task() -> None:
    mixed = "dense&vertical"
    found = moved(
        pretrained=six_layers([mixed, mixed]),
        squad=six_layers(["dense", "dense"]),
        mrpc=six_layers(["dense", mixed]),
        mnli=six_layers([mixed, mixed]),
    )
    assert found.findings["moves.top_dense_vertical"].value == 0 - 2
    assert found.findings["moves.mnli.same"].value == 1


def test_moves_do_not_depend_on_the_order_of_heads_or_models() -> None:
    given = {
        "pretrained": six_layers(["dense", "vertical"]),
        "squad": six_layers(["dense", "dense"], {3: "diagonal"}),
        "mnli": six_layers(["vertical", "vertical"], {0: "vertical"}),
    }
    one = moved(**given).findings
    mixed = {name: table.sample(frac=1, random_state=3) for name, table in reversed(given.items())}
    assert moved(**mixed).findings == one


def test_without_another_task_the_top_is_undefined() -> None:
    found = moved(pretrained=six_layers(["dense"] * 2), squad=six_layers(["dense"] * 2))
    assert math.isnan(found.findings["moves.top_dense_vertical"].value)
    assert found.findings["moves.same"].value == 1
    assert found.findings["moves.largest_distance"].value == 0


@pytest.mark.parametrize("n_layers", [3, 6, 12, 24])
def test_thirds_are_of_the_layers(n_layers: int) -> None:
    """Only the layers next to the first and the last third change."""
    before = types_table(["dense"] * n_layers, 1)
    third = n_layers // 3
    middle = range(third, n_layers - third)
    changes = ["vertical" if layer in middle else "dense" for layer in range(n_layers)]
    still = moved(pretrained=before, squad=types_table(changes, 1))
    assert still.findings["moves.last_minus_first"].value == 0
    last = ["vertical" if layer >= n_layers - third else "dense" for layer in range(n_layers)]
    found = moved(pretrained=before, squad=types_table(last, 1))
    assert found.findings["moves.last_minus_first"].value == 1


@pytest.mark.parametrize(
    "models", [("squad", "mrpc"), ("pretrained",), ("pretrained", "mrpc")], ids=str
)
def test_moves_need_a_model_before_and_the_reader(models: Sequence[str]) -> None:
    with pytest.raises(AttnlibError):
        moved(**{model: six_layers(["dense"] * 2) for model in models})


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
CONTROLS = range(2, 20)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Found]:
    """The experiments where each variant has the F1 that it is told: (name, variant, question).

    Rows have names such as row03, their random sets such as "row03 0".
    """

    def run(score: Score, given: pd.DataFrame = TOY_TYPES, **options: Any) -> Found:
        of_control = ""

        def fake(reader: Any, chosen: Sequence[Question], variants: Any, **_: Any) -> Outcome:
            places = [questions.index(one) for one in chosen]
            f1 = np.array(
                [[score(of_control + n, v, i) for i in places] for n, v in variants.items()]
            )
            return Outcome(tuple(variants), f1 / 2, f1, np.zeros_like(f1))

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
        return ablation.ablations(answers, *controls, seed=seed)

    return run


def of_row(name: str) -> int:
    return int(name[3:5])


def test_the_papers_own_scores_reproduce_the_paper(world: Callable[..., Found]) -> None:
    """All claims on Tables 2 and 3 hold for the paper itself, whatever it has no control for."""
    beside = {3: 50.0, 4: 85.0, 5: 80.0, 8: 80.0, 11: 80.0, 12: 60.0, 15: 88.0}

    def score(name: str, variant: Any, question: int) -> float:
        number = of_row(name)
        return (beside.get(number, 50.0) if " " in name else PRINTED[number][2]) / 100

    found = world(score)
    paper = load_paper("guan2020")
    asked = [c for c in paper.claims if c.id.startswith(("tab2", "tab3", "sec5"))]
    assert len(asked) == 19 + 11
    for claim in asked:
        judged = judge(claim, found.findings, own_model=True)
        assert (judged.verdict, judged.value_verdict) in AGREES, f"{claim.id}: {judged.reason}"
    table = found.table.set_index("row")
    for number, (_, _, f1) in PRINTED.items():
        assert table.loc[number, "f1"] == pytest.approx(f1)
        assert table.loc[number, "lost"] == pytest.approx(100 * (1 - f1 / 89.68))
        assert found.findings[f"row{number:02d}.lost"].value == pytest.approx(
            100 * (1 - f1 / 89.68)
        )
    seen = found.findings
    assert seen["prune.diagonal_lead"].value == pytest.approx(81.92 - 7.55)
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
    assert hurt["excess"] < 0 < mild["excess"]
    assert hurt["excess"] == pytest.approx(hurt["own_f1"] - hurt["control_f1"])
    for row in (hurt, mild):
        assert row["excess_low"] < row["excess"] < row["excess_high"]
        assert row["control_low"] < row["control_f1"] < row["control_high"]
    assert hurt["p"] == pytest.approx(1 / 6) and mild["p"] == 1
    assert (hurt["n_draws"], hurt["n_control_questions"], hurt["n_questions"]) == (5, 6, 12)
    asked = shared_ablation.spread_out([f"article {i % 4}" for i in range(12)], 6)
    own = [100 * score("row03", (), i) for i in asked]
    control = [[100 * score(f"row03 {d}", (), i) for i in asked] for d in range(5)]
    assert hurt["own_f1"] == pytest.approx(np.mean(own))
    assert hurt["control_f1"] == pytest.approx(np.mean(control))
    assert hurt["control_em"] == pytest.approx(np.mean(control) / 2)
    assert hurt["control_high"] == pytest.approx(np.percentile(np.mean(control, 1), 97.5))
    beyond = found.findings["row03.beyond_control"]
    assert beyond.value == pytest.approx(-hurt["excess"]) and beyond.value > 0
    assert (beyond.low, beyond.high) == (-hurt["excess_high"], -hurt["excess_low"])
    assert 0 < beyond.low < beyond.value < beyond.high
    assert found.findings["row08.beyond_control"].value < 0
    lost = found.findings["row03.lost"]
    assert lost.low < lost.value < lost.high
    assert lost.value == pytest.approx(table.loc[3, "lost"])
    assert found.findings["row01.lost"].value == 0
    assert hurt["excess_high"] < 0 < mild["excess_low"] and table["excess"].notna().sum() == 18


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
        layers = Counter(layer for layer, _ in heads)
        for draw in range(4):
            (one,) = seen[f"{row.key} {draw}"]
            assert one.action == row.variant(heads)[0].action
            assert Counter(layer for layer, _ in one.heads) == layers
        assert table.loc[row.number, "n_heads"] == len(heads)
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
    assert table["kind"].tolist() == ["untapped", *(row.kind for row in ROWS)]
    assert table["table"].tolist() == ["2"] * 12 + ["3"] * 8
    assert table.set_index("row").loc[16, "types"] == "dense+dense&vertical+vertical"
    untapped = table.iloc[0]
    assert untapped["f1"] == untapped["em"] == 100  # the reader's own answers, all right
    assert untapped["lost"] == pytest.approx(-100)
    assert table.loc[:1, ["excess", "p", "control_f1"]].isna().all(axis=None)


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
        {"row": row, "draw": draw, "place": place, "em": 0.0, "f1": f1 + 0.1 * draw}
        for draw in range(2)
        for place in places
    ]
    return pd.DataFrame(each)


def test_the_order_of_tables_and_their_rows_does_not_matter() -> None:
    answers, controls = long_answers(), [one_control(3, 0.5), one_control(12, 0.7)]
    found = ablation.ablations(answers, *controls)
    mixed = [one.sample(frac=1, random_state=4) for one in (answers, *reversed(controls))]
    again = ablation.ablations(mixed[0], *mixed[1:])
    pd.testing.assert_frame_equal(found.table, again.table)
    assert found.findings.keys() == again.findings.keys()
    for name, one in found.findings.items():
        other = again.findings[name]
        assert [one.value, one.low, one.high] == pytest.approx(
            [other.value, other.low, other.high], nan_ok=True
        )
    row = found.table.set_index("row").loc[3]
    # of the questions 0, 3 and 5 only: 0.8, 0.8 and 0.6 beside 0.5 and 0.6
    assert (row["own_f1"], row["control_f1"]) == pytest.approx((220 / 3, 55.0))
    assert row["excess"] == pytest.approx(55 / 3) and row["n_control_questions"] == 3
    assert set(found.findings) >= {"row03.beyond_control", "row12.beyond_control"}


def test_without_any_control() -> None:
    found = ablation.ablations(long_answers(), one_control(5, 0.5)[:0])
    assert found.table[["excess", "excess_low", "p"]].isna().all(axis=None)
    assert found.findings["row03.lost"].value == pytest.approx(100 * 0.1 / 0.8)


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
    overlap = np.mean([len(one & HEADS_OF["diagonal"]) / 4 for one in sets])
    assert control.facts["overlap"] == pytest.approx(overlap)
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
        assert table.loc[number, "n_heads"] == 0 and math.isnan(table.loc[number, "excess"])
        assert math.isnan(table.loc[number, "p"]) and table.loc[number, "f1"] == 80
    assert table.loc[6, "n_heads"] == 5 and not math.isnan(table.loc[6, "excess"])
    assert found.findings["row02.beyond_control"].value == pytest.approx(0)


def test_a_control_that_is_undefined_is_not_comparable(world: Callable[..., Found]) -> None:
    given = TOY_TYPES.replace({"type": {"vertical": "dense"}})
    found = world(lambda name, variant, question: 0.5, given)
    assert math.isnan(found.findings["row05.beyond_control"].value)


def test_what_is_lost_of_nothing_is_undefined(world: Callable[..., Found]) -> None:
    found = world(lambda name, variant, question: 0.0)
    assert found.table.set_index("row")["lost"].loc[1:].isna().all()
    assert math.isnan(found.findings["row03.lost"].value)


def test_all_heads_of_one_type(world: Callable[..., Found]) -> None:
    """There is nothing to choose: every random set is the set itself."""
    every = types_table(["diagonal"] * 12)
    found = world(lambda name, variant, question: 0.5 - 0.3 * bool(variant), every)
    table = found.table.set_index("row")
    pruned = table.loc[3]
    assert pruned["n_heads"] == 12 and pruned["p"] == 1
    assert pruned["excess"] == pytest.approx(0) and pruned["lost"] == pytest.approx(60)
    assert table.loc[18, "n_heads"] == 12 and table.loc[16, "n_heads"] == 0


def test_one_article_has_no_intervals(world: Callable[..., Found]) -> None:
    found = world(lambda name, variant, question: 0.5, questions=questions_on(1, 5))
    assert math.isnan(found.findings["row03.lost"].low)
    assert math.isnan(found.findings["row03.f1"].low)
    assert math.isnan(found.findings["row03.beyond_control"].high)
    assert not (found.table["excess_high"] < 0).any()


def test_a_toy_reader_end_to_end(reader: SpanReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "reader_of", lambda *_, **__: reader)
    given: dict[str, Any] = {"encoder": reader.encoder, "recipe": None}
    answers = ablation.type_answers(TOY, TOY_TYPES, **given).table
    control = ablation.control_answers(
        TOY, TOY_TYPES, **given, row=6, draws=2, n_questions=2, seed=5
    ).table
    table = ablation.ablations(answers, control).table.set_index("row")
    scores = ["em", "em_low", "em_high", "f1", "f1_low", "f1_high", "n_questions"]
    assert table.loc[0, scores].tolist() == table.loc[1, scores].tolist()
    for number in (6, 17):
        variant = ROWS[number - 1].variant(ROWS[number - 1].heads(TOY_TYPES))
        expected = [naive(reader, one, variant)[2] for one in ASKED]
        assert table.loc[number, "f1"] == pytest.approx(100 * np.mean(expected))
    chosen = [ASKED[0], ASKED[1]]  # the first of each article
    sets = matched_draws(HEADS_OF["dense"] | HEADS_OF["vertical"], HEADS, draws=2, seed=5)
    random = [naive(reader, q, (Intervention(one, "zero"),))[2] for one in sets for q in chosen]
    assert table.loc[6, "control_f1"] == pytest.approx(100 * np.mean(random))
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
    for layer, head in ((1, 3), (3, 2)):
        variant = (Intervention(frozenset({(layer - 1, head - 1)}), "zero"),)
        changed = [naive(reader, one, variant) for one in chosen]
        pairs = list(zip(changed, whole, strict=True))
        rise = np.array([one[3] - other[3] for one, other in pairs])
        row = table.set_index(["layer", "head"]).loc[(layer, head)]
        assert row["loss"] == pytest.approx(rise.mean(), abs=1e-4)
        assert row["loss_error"] == pytest.approx(rise.std(ddof=1) / math.sqrt(3), abs=1e-4)
        fall = 100 * np.mean([other[2] - one[2] for one, other in pairs])
        assert row["f1"] == pytest.approx(fall)
    assert found.facts["whole_f1"] == pytest.approx(100 * np.mean([one[2] for one in whole]))
    assert found.facts["whole_loss"] == pytest.approx(np.mean([one[3] for one in whole]), abs=1e-4)
    means = {name: table.loc[table["type"] == name, "loss"].mean() for name in TYPES}
    assert found.facts["mean_by_type"] == pytest.approx(means)


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
    assert shares == [26.04, 26.56, 34.11, 13.28] and sum(shares) == pytest.approx(100, abs=0.02)
    assert [told[f"tab1.{model}"] for model in MODELS] == [95.98, 96.26, 95.98, 94.37]


# --- completeness ---------------------------------------------------------------------------------

CONTROLLED = {3, 4, 5, 8, 11, 12, 15}
UNUSED = {
    "clusters.best_gap",  # the chapter shows it beside the other criteria
    *("reading.dev.em", "reading.dev.f1"),
    # the paper says something of these for some types, models and rows only
    *("types.dense_vertical.share_from_30", "types.vertical.share_from_30"),
    *("types.dense_vertical.depth", "types.diagonal.depth"),
    *(f"stability.{model}.k{k}" for model in ("pretrained", "mrpc", "mnli") for k in (3, 5)),
    *(f"moves.{model}.same" for model in ("squad", "mrpc", "mnli")),
    *("row01.lost", "row07.lost", "row15.lost"),
    *(f"row{n:02d}.beyond_control" for n in range(2, 20) if n not in CONTROLLED),
}
"""What the experiments find and no claim asks for."""


def test_every_claim_is_measured_and_every_number_is_claimed(
    stub: Stub,
    counted: Found,
    world: Callable[..., Found],
    reader: SpanReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = features_with(MANY, 5, spread=0.006)
    stub(given)
    # What this finds has its own tests; here only the names of the numbers count.
    again = np.array([0.9, 0.8, 1.0])
    monkeypatch.setattr(clusters, "stabilities", lambda *_, **__: again)
    monkeypatch.setattr(models, "reader_of", lambda *_, **__: reader)
    of = {model: types.head_types(None, model=model, **STUBBED) for model in MODELS}
    tables = [one.table for one in of.values()]
    stable = [clusters.type_stability(None, model=model, **STUBBED).findings for model in MODELS]
    found = [
        types.head_features(None, model="squad", **STUBBED).findings,
        *(one.findings for one in of.values()),
        counted.findings,
        *stable,
        type_moves(*tables, models=MODELS).findings,
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
    assert [name for name, one in named.items() if math.isnan(one.value)] == []
    for name, one in named.items():
        if not math.isnan(one.low):
            assert one.low <= one.high, name
