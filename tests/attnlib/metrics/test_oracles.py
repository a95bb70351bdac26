"""Every metric and variant equals its oracle, and the comparison rejects planted wrong kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import log, nan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from attnlib.attention.maps import Attention
from attnlib.metrics.mass import Selectors, mass_metric
from attnlib.metrics.registry import METRICS, Metric, Partial
from attnlib.metrics.relations import Relation
from tests import oracles
from tests.maps import ARCS, VARIED, cropped, random_attention, sliced, text_of, threads, varied
from tests.oracles import ASKED, ORACLES, Counts, Maps, Oracle, Text

Kernel = Callable[[Attention], Partial]

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-8}
OF_A_BIAS = 1e-6
"""Of its size: the matrix product holds n / |S| in single precision, also for double maps."""

KEYS = [
    key if variant == "paper" else f"{key}@{variant}"
    for key, metric in METRICS.items()
    for variant in metric.variants
]
RELATION_KEYS = [key for key in KEYS if METRICS[key].linear]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Maps this small are slower on two threads."""
    with threads(1):
        yield


# --- the comparison ------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def expected(
    oracle: Oracle, count: Counts, attention: Attention
) -> list[tuple[NDArray[np.float64], int]]:
    """What the oracle says of each example, and how many queries it asked."""
    return [(oracle(maps, text), count(text)) for maps, text in cropped(attention)]


def disagreement(key: str, kernel: Kernel, attention: Attention, relative: float = 0.0) -> str:
    """How a kernel differs from the oracle of a metric; empty where it does not."""
    partial = kernel(attention)
    if len(partial.total) != len(attention.batch):
        return f"{len(partial.total)} examples, expected {len(attention.batch)}"
    values = partial.value.double().numpy()
    weights = partial.spread_weight().double().numpy()
    totals = partial.total.double().numpy()
    for i, (truth, n_asked) in enumerate(expected(ORACLES[key], ASKED[key], attention)):
        if truth.ndim == 2 and truth.shape[1] < values.shape[2] == attention.batch.length:
            padding = np.full((len(truth), values.shape[2] - truth.shape[1]), nan)
            truth = np.concatenate([truth, padding], axis=1)
        if values[i].shape != truth.shape:
            return f"example {i}: shape {values[i].shape}, expected {truth.shape}"
        undefined = np.isnan(truth)
        if not (np.isnan(values[i]) == undefined).all():
            return f"example {i}: {values[i]}, expected NaN just where {truth} has it"
        if not np.isfinite(totals[i]).all():
            return f"example {i}: a sum that is not finite spoils every sum it enters"
        count = np.where(undefined, 0, n_asked)
        if not (weights[i] == count).all():
            return f"example {i}: weight {weights[i]}, expected {count}"
        allowed = TOLERANCE[attention.weights.dtype] + relative * np.abs(truth)
        if (np.abs(values[i] - truth) > allowed)[~undefined].any():
            return f"example {i}: {values[i]}, expected {truth}"
    return ""


def test_every_metric_and_variant_has_an_oracle() -> None:
    assert set(KEYS) == set(ORACLES) == set(ASKED)


# --- kernels against oracles ---------------------------------------------------------------------


@pytest.mark.parametrize("key", KEYS)
def test_metric_equals_its_oracle(key: str) -> None:
    faults = [disagreement(key, METRICS[key], attention) for attention in varied()]
    assert faults == [""] * len(faults)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_texts=st.integers(1, 4),
    n_heads=st.integers(1, 4),
    longest=st.integers(4, 16),
    scores=st.sampled_from([None, "min"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_all_metrics_equal_their_oracles(seed: int, **shape: object) -> None:
    attention = random_attention(seed, **shape)  # type: ignore[arg-type]
    faults = {key: disagreement(key, METRICS[key], attention) for key in KEYS}
    assert {key: fault for key, fault in faults.items() if fault} == {}


def all_masses(attention: Attention, chosen: list[Metric]) -> list[Partial]:
    """The fast path: all relations in one product."""
    selectors = Selectors(attention.batch, chosen)
    return selectors.partials(selectors.masses(attention))


@pytest.mark.parametrize("number", range(len(VARIED)))
def test_all_relations_at_once_equal_one_at_a_time(number: int) -> None:
    attention = varied()[number]
    chosen = [METRICS[key] for key in RELATION_KEYS]
    together = all_masses(attention, chosen)
    assert len(together) == len(chosen)
    for metric, partial in zip(chosen, together, strict=True):
        relative = OF_A_BIAS if metric.key.startswith("bias_") else 0.0
        fault = disagreement(metric.key, lambda _, p=partial: p, attention, relative)
        assert fault == "", metric.key
        alone = metric(attention)
        torch.testing.assert_close(partial.value, alone.value, equal_nan=True)
        assert partial.weight.tolist() == alone.weight.tolist()


@pytest.mark.parametrize(
    "rows", [slice(0, 1), slice(1, 3), slice(2, None), slice(0, 4), slice(4, 4)], ids=str
)
def test_relations_of_a_slice_of_the_batch(rows: slice) -> None:
    attention = random_attention(21, n_texts=5)
    selectors = Selectors(attention.batch, [METRICS[key] for key in RELATION_KEYS])
    part = sliced(attention, rows)
    found = selectors.partials(selectors.masses(part, rows), rows)
    for key, partial in zip(RELATION_KEYS, found, strict=True):
        assert len(partial.total) == len(partial.weight) == len(part.batch)
        assert disagreement(key, lambda _, p=partial: p, part) == "", key


def test_relations_come_back_in_the_order_they_were_asked_for() -> None:
    attention = random_attention(22)
    keys = ["mass_to_next", "mass_to_sep", "mass_to_next@having", "mass_to_next"]
    found = all_masses(attention, [METRICS[key] for key in keys])
    for key, partial in zip(keys, found, strict=True):
        assert disagreement(key, lambda _, p=partial: p, attention) == "", key


def test_a_relation_of_the_users_own() -> None:
    """Mass on the key two pieces back, asked only of queries that have one."""

    def two_back(length: int, device: torch.device) -> torch.Tensor:
        place = torch.arange(length, device=device)
        return place[None, :] == place[:, None] - 2

    relation = Relation("two_back", "two back", two_back, asked_of="having", positional=True)
    for attention in varied()[:4]:
        found = mass_metric(relation)(attention).value
        for i, (maps, text) in enumerate(cropped(attention)):
            rows = [maps[:, q, q - 2] for q in range(2, len(text))]
            truth = np.mean(rows, axis=0) if rows else np.full(len(maps), nan)
            np.testing.assert_allclose(found[i].double().numpy(), truth, atol=1e-5)


# --- the makers show what the tests claim to cover -----------------------------------------------


def test_text_of_reads_what_is_written() -> None:
    text = text_of("[CLS] a b ##c , d . e [SEP] f ! [SEP]")
    assert text.segment == (0,) * 9 + (1,) * 3
    assert text.word == (-1, 0, 1, 1, 2, 3, 4, 5, -1, 6, 7, -1)
    assert text.sentence == (0,) * 7 + (1,) * 2 + (2,) * 3
    assert [i for i, mark in enumerate(text.punctuation) if mark] == [4, 6, 10]
    assert (text.comma.index(True), text.period.index(True)) == (4, 6)
    assert (text.cls.index(True), sum(text.sep)) == (0, 2)
    assert {*text.governor, *text.dependency} == {-1, ""}
    text = text_of("[CLS] a b ##c [SEP]", {1: (0, "obj")})
    assert text.governor == (-1, -1, 0, 0, -1)
    assert text.dependency == ("", "", "obj", "obj", "")


def test_random_maps_show_every_kind_of_text() -> None:
    seen = [(maps, text) for attention in varied() for maps, text in cropped(attention)]
    texts = [text for _, text in seen]
    assert any(not any(text.cls) for text in texts)
    assert any(not any(text.sep) for text in texts)
    assert {sum(text.sep) for text in texts} >= {0, 1, 2}
    assert {max(text.segment) for text in texts} == {0, 1}
    assert any(len(set(text.sentence)) > 2 for text in texts)
    assert any(len(text) <= 3 for text in texts)
    assert any(not any(text.dependency) for text in texts), "every text has a tree"
    assert {label for text in texts for label in text.dependency} == {"", *ARCS}
    arcs = [(t, text, text.governor[t]) for text in texts for t in range(len(text))]
    arcs = [(t, text, governor) for t, text, governor in arcs if governor >= 0]
    assert any(governor not in text.word for _, text, governor in arcs)
    assert any(text.word.count(governor) > 1 for _, text, governor in arcs)
    assert any(
        text.word[s] == governor and text.segment[s] != text.segment[t]
        for t, text, governor in arcs
        for s in range(len(text))
    ), "no governor in the other part"
    assert any(len(text) > 42 for text in texts), "no text shows both edges of the widest window"
    for key, oracle in ORACLES.items():
        values = [value for a in varied() for value, _ in expected(oracle, ASKED[key], a)]
        assert not all(np.isnan(value).all() for value in values), key
    assert {0.0, 1.0} <= set(np.concatenate([maps.ravel() for maps, _ in seen]).tolist())
    assert any(int(a.batch.real.sum(-1).min()) < a.batch.length for a in varied())


# --- planted wrong kernels -----------------------------------------------------------------------


def lifted(key: str, oracle: Oracle) -> Kernel:
    """A function of one text as a kernel; only its values can be wrong, its weights are right."""

    def kernel(attention: Attention) -> Partial:
        totals, weights = [], []
        for maps, text in cropped(attention):
            value, width = oracle(maps, text), attention.batch.length
            count = np.full(value.shape, max(1.0, ASKED[key](text)))
            if METRICS[key].axes == ("head", "key"):
                past = [(0, 0), (0, width - len(text))]
                value, count = np.pad(value, past), np.pad(count, past)
            count = np.where(np.isnan(value), 0.0, count)
            totals.append(np.nan_to_num(value) * count)
            weights.append(count)
        return Partial(torch.tensor(np.array(totals)), torch.tensor(np.array(weights)))

    return kernel


@pytest.mark.parametrize("key", KEYS)
def test_an_oracle_agrees_with_itself(key: str) -> None:
    """The comparison does not reject everything."""
    assert [disagreement(key, lifted(key, ORACLES[key]), a) for a in varied()] == [""] * len(
        varied()
    )


def on(holds: oracles.Holds, some: bool = False) -> Oracle:
    """Mass on a relation, asked of every query or only of some."""
    return lambda maps, text: oracles.mass(
        maps, text, holds, oracles.asked_queries(text, holds, some)
    )


def of(queries: Callable[[Text], list[int]], holds: oracles.Holds) -> Oracle:
    """Mass on a relation, asked of these queries."""
    return lambda maps, text: oracles.mass(maps, text, holds, queries(text))


def content(text: Text) -> list[int]:
    return [q for q in range(len(text)) if text.word[q] >= 0]


def zero_if_undefined(oracle: Oracle) -> Oracle:
    return lambda maps, text: np.nan_to_num(oracle(maps, text))


def transposed(oracle: Oracle) -> Oracle:
    """Keys taken for queries."""
    return lambda maps, text: oracle(maps.transpose(0, 2, 1), text)


def scaled(oracle: Oracle, by: float) -> Oracle:
    return lambda maps, text: oracle(maps, text) * by


def kl_to_other(maps: Maps, text: Text) -> NDArray[np.float64]:
    """Kullback-Leibler instead of Jensen-Shannon; a floor keeps it finite."""
    low = np.maximum(maps, 1e-12)
    return np.array([[(a * np.log(a / b)).sum(-1).mean() for b in low] for a in low])


def last_sep_only(text: Text, q: int, k: int) -> bool:
    return text.sep[k] and not any(text.sep[k + 1 :])


def specials_are_one_word(text: Text, q: int, k: int) -> bool:
    return text.word[q] == text.word[k] and q != k


def entropy_of(queries: Callable[[Text], list[int]], share: float = 0.0) -> Oracle:
    return lambda maps, text: oracles.mean_entropy(maps, queries(text), share)


def largest_entropy(maps: Maps, text: Text) -> NDArray[np.float64]:
    return np.array([max(map(oracles.row_entropy, head)) for head in maps])


def column_entropy(maps: Maps, text: Text) -> NDArray[np.float64]:
    """How broadly keys are attended to; without the division it would be the rows' entropy."""
    columns = maps / np.maximum(maps.sum(1, keepdims=True), 1e-12)
    return ORACLES["entropy"](columns.transpose(0, 2, 1), text)


R = oracles.RELATIONS
WRONG_VALUES: dict[str, tuple[str, Oracle]] = {
    # where the key stands
    "next and previous swapped": ("mass_to_previous", ORACLES["mass_to_next"]),
    "previous and next swapped": ("mass_to_next", ORACLES["mass_to_previous"]),
    "border not counted": ("mass_to_previous", ORACLES["mass_to_previous@having"]),
    "border counted": ("mass_to_next@having", ORACLES["mass_to_next"]),
    "first piece not asked for itself": (
        "mass_to_self",
        of(lambda text: list(range(1, len(text))), R["mass_to_self"]),
    ),
    "earlier with itself": ("mass_to_earlier", on(lambda text, q, k: k <= q)),
    "later asked only where there is one": ("mass_to_later", on(R["mass_to_later"], True)),
    "window one too narrow": ("mass_within_2", ORACLES["mass_within_1"]),
    "window with an open border": ("mass_within_20", on(lambda text, q, k: abs(k - q) < 20)),
    "window one too wide": ("mass_within_10", on(lambda text, q, k: abs(k - q) <= 11)),
    "window without itself": ("mass_within_1", on(lambda text, q, k: abs(k - q) == 1)),
    "window on one side": ("mass_within_5", on(lambda text, q, k: 0 <= q - k <= 5)),
    # what the key is
    "special tokens not asked": ("mass_to_cls", of(content, R["mass_to_cls"])),
    "first [SEP] missed": ("mass_to_sep", on(last_sep_only)),
    "[CLS] counted as [SEP]": (
        "mass_to_sep",
        on(lambda text, q, k: text.sep[k] or text.cls[k]),
    ),
    "[SEP] to itself left out": (
        "mass_sep_to_sep",
        on(lambda text, q, k: R["mass_sep_to_sep"](text, q, k) and q != k),
    ),
    "[SEP] queries among the others": ("mass_other_to_sep", ORACLES["mass_to_sep"]),
    "others over all queries": ("mass_other_to_sep", on(R["mass_other_to_sep"])),
    "no [SEP] counted as zero": (
        "mass_sep_to_sep",
        zero_if_undefined(ORACLES["mass_sep_to_sep"]),
    ),
    "comma and full stop swapped": ("mass_to_comma", ORACLES["mass_to_period"]),
    "full stop counts any mark": ("mass_to_period", ORACLES["mass_to_punctuation"]),
    "punctuation is comma and full stop": (
        "mass_to_punctuation",
        on(lambda text, q, k: text.comma[k] or text.period[k]),
    ),
    "attention from, not to": ("mass_to_comma", transposed(ORACLES["mass_to_comma"])),
    # what query and key have in common
    "segment without special tokens": (
        "mass_to_same_segment",
        on(lambda text, q, k: R["mass_to_same_segment"](text, q, k) and text.word[k] >= 0),
    ),
    "other segment asked of one-part texts": (
        "mass_to_other_segment",
        zero_if_undefined(ORACLES["mass_to_other_segment"]),
    ),
    "segment for sentence": ("mass_to_same_sentence", ORACLES["mass_to_same_segment"]),
    "word with itself": (
        "mass_to_same_word",
        on(lambda text, q, k: text.word[q] == text.word[k] >= 0, True),
    ),
    "special tokens as one word": ("mass_to_same_word", on(specials_are_one_word, True)),
    "words of one piece asked": ("mass_to_same_word", on(R["mass_to_same_word"])),
    # entropy
    "bits, not nats": ("entropy", scaled(ORACLES["entropy"], 1 / log(2))),
    "entropy of columns": ("entropy", column_entropy),
    "entropy of the column of [CLS]": (
        "entropy_from_cls",
        transposed(ORACLES["entropy_from_cls"]),
    ),
    "entropy without special queries": ("entropy", entropy_of(content)),
    "largest entropy": ("entropy", largest_entropy),
    "not smoothed": ("entropy@authors", ORACLES["entropy"]),
    "smoothed": ("entropy", ORACLES["entropy@authors"]),
    "smoothed ten times as much": ("entropy@authors", entropy_of(oracles._every_query, 1e-3)),
    "first piece taken for [CLS]": ("entropy_from_cls", entropy_of(lambda text: [0])),
    "all queries taken for [CLS]": ("entropy_from_cls", ORACLES["entropy"]),
    "[CLS] not smoothed": ("entropy_from_cls@authors", ORACLES["entropy_from_cls"]),
    # columns
    "mean over keys": ("column_mass", transposed(ORACLES["column_mass"])),
    "sum over queries": (
        "column_mass",
        lambda maps, text: ORACLES["column_mass"](maps, text) * len(text),
    ),
    "largest column, not largest weight": (
        "row_peak",
        lambda maps, text: ORACLES["column_mass"](maps, text).max(-1),
    ),
    "peak of [CLS] and [SEP] left out": (
        "row_peak",
        lambda maps, text: np.array(
            [head[:, content(text)].max(-1, initial=0).mean() for head in maps]
        ),
    ),
    # divergence
    "divergence in bits": ("js_divergence", scaled(ORACLES["js_divergence"], 1 / log(2))),
    "root of the divergence": (
        "js_divergence",
        lambda maps, text: np.sqrt(np.maximum(ORACLES["js_divergence"](maps, text), 0)),
    ),
    "half forgotten": ("js_divergence", scaled(ORACLES["js_divergence"], 2)),
    "Kullback-Leibler": ("js_divergence", kl_to_other),
    "sum over tokens": (
        "js_divergence",
        lambda maps, text: ORACLES["js_divergence"](maps, text) * len(text),
    ),
    "divergence not smoothed": ("js_divergence@authors", ORACLES["js_divergence"]),
    "divergence smoothed": ("js_divergence", ORACLES["js_divergence@authors"]),
    "divergence smoothed as entropy is": (
        "js_divergence@authors",
        lambda maps, text: oracles.js_divergence(maps, text, 1e-4),
    ),
    "lower triangle forgotten": (
        "js_divergence",
        lambda maps, text: np.triu(ORACLES["js_divergence"](maps, text)),
    ),
}


@pytest.mark.parametrize("bug", WRONG_VALUES)
def test_planted_wrong_value_is_rejected(bug: str) -> None:
    key, oracle = WRONG_VALUES[bug]
    assert any(disagreement(key, lifted(key, oracle), attention) for attention in varied())


def n_real(attention: Attention) -> torch.Tensor:
    return attention.real.sum(-1).to(attention.weights.dtype)


def uncropped(attention: Attention) -> Attention:
    """A batch that forgot which pieces are padding, so that a right kernel goes wrong."""
    batch = attention.batch
    forgot = batch._map(lambda tensor: tensor, batch.index)
    object.__setattr__(forgot, "real", torch.ones_like(batch.real))
    return Attention(attention.weights, forgot)


def divides_by_width(key: str) -> Kernel:
    """Padding rows left out of the sum but counted in the divisor."""

    def kernel(attention: Attention) -> Partial:
        partial = METRICS[key](attention)
        share = n_real(attention) / attention.batch.length
        return Partial(partial.total * share[:, None], partial.weight)

    return kernel


def smooths_over_padding(attention: Attention) -> Partial:
    width = attention.batch.length
    weights = (1 - 1e-4) * attention.weights + 1e-4 / width
    rows = -(weights * weights.log()).sum(-1) * attention.real[:, None]
    return Partial(rows.sum(-1), n_real(attention))


def zero_past_the_end(attention: Attention) -> Partial:
    partial = METRICS["column_mass"](attention)
    return Partial(partial.total, torch.ones_like(partial.total))


def counts_every_text_once(key: str) -> Kernel:
    """Right values with the wrong weight: the mean over examples hides it, the micro mean not."""

    def kernel(attention: Attention) -> Partial:
        partial = METRICS[key](attention)
        defined = (partial.spread_weight() > 0).to(partial.total.dtype)
        return Partial(torch.nan_to_num(partial.value), defined)

    return kernel


NO_PADDING_AT_STAKE = ("entropy_from_cls", "mass_sep_to_sep", "mass_to_same_word")
"""Both ends of these are pieces of a kind that padding never is."""

WRONG_PADDING: dict[str, tuple[str, Kernel]] = {
    f"padding counted in {key}": (
        key,
        lambda attention, key=key: METRICS[key](uncropped(attention)),
    )
    for key in KEYS
    if key.partition("@")[0] not in NO_PADDING_AT_STAKE
} | {
    "divisor is the width": ("mass_to_self", divides_by_width("mass_to_self")),
    "entropy divided by the width": ("entropy", divides_by_width("entropy")),
    "smoothed over padding": ("entropy@authors", smooths_over_padding),
    "zero past the end of a text": ("column_mass", zero_past_the_end),
    "wrong weight of a mass": ("mass_to_next", counts_every_text_once("mass_to_next")),
    "wrong weight of an entropy": ("entropy", counts_every_text_once("entropy")),
    "wrong weight of a divergence": ("js_divergence", counts_every_text_once("js_divergence")),
    "wrong shape": ("entropy", METRICS["column_mass"]),
}


@pytest.mark.parametrize("bug", WRONG_PADDING)
def test_planted_wrong_padding_or_weight_is_rejected(bug: str) -> None:
    key, kernel = WRONG_PADDING[bug]
    assert any(disagreement(key, kernel, attention) for attention in varied())
