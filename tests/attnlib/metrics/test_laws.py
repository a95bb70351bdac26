"""Laws that hold for every metric and variant, and closed forms that need no oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import pairwise
from math import log
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnlib.attention.encode import Batch
from attnlib.attention.maps import Attention
from attnlib.metrics.mass import Selectors
from attnlib.metrics.registry import METRICS, Partial
from tests.maps import (
    NONE_IS_MINUS_ONE,
    Arcs,
    attention_of,
    cropped,
    in_dtype,
    on_device,
    padded,
    picked,
    random_attention,
    sliced,
    text_of,
    texts_of,
    threads,
    with_heads,
)
from tests.oracles import ORACLES, RELATIONS, SIEVES, Text

KEYS = [
    key if variant == "paper" else f"{key}@{variant}"
    for key, metric in METRICS.items()
    for variant in metric.variants
]
SETTINGS: tuple[dict[str, Any], ...] = (
    {"seed": 100, "n_texts": 5, "n_heads": 4},
    {"seed": 101, "scores": "min"},
)


every_metric = pytest.mark.parametrize("key", KEYS)
settings = pytest.mark.parametrize("settings", SETTINGS, ids=["weights", "scores"])


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Maps this small are slower on two threads."""
    with threads(1):
        yield


def same(found: Tensor, wanted: Tensor, tolerance: float = 1e-6) -> None:
    """Equal but for rounding, which grows with a number above 1; NaN equals NaN only."""
    torch.testing.assert_close(
        found.double(), wanted.double(), rtol=min(tolerance, 1e-6), atol=tolerance, equal_nan=True
    )


def same_partial(found: Partial, wanted: Partial, tolerance: float = 1e-6) -> None:
    same(found.value, wanted.value, tolerance)
    same(found.spread_weight(), wanted.spread_weight(), 0)


# --- padding, batches, heads ---------------------------------------------------------------------


@every_metric
@settings
def test_more_padding_changes_nothing(key: str, settings: dict[str, Any]) -> None:
    attention = random_attention(**settings)
    wanted = METRICS[key](attention)
    for extra in (1, 9):
        found = METRICS[key](padded(attention, extra))
        if "key" in METRICS[key].axes:
            width = attention.batch.length
            assert not found.spread_weight()[..., width:].any()
            found = Partial(found.total[..., :width], found.weight[..., :width])
        same_partial(found, wanted)


@every_metric
@pytest.mark.parametrize("garbage", [0.0, -3.0, 1e20], ids=["zeros", "negative", "huge"])
def test_rows_of_padding_are_not_read(key: str, garbage: float) -> None:
    attention = random_attention(103)
    nobody = ~attention.real[:, None, :, None]
    nothing = ~attention.real[:, None, None, :]
    assert nobody.any()
    weights = attention.weights.masked_fill(nobody, garbage).masked_fill(nothing, 0)
    same_partial(METRICS[key](Attention(weights, attention.batch)), METRICS[key](attention))


@every_metric
@settings
def test_split_and_merge(key: str, settings: dict[str, Any]) -> None:
    attention = random_attention(**settings)
    wanted = METRICS[key](attention)
    n_texts = len(attention.batch)
    for cut in (1, n_texts // 2):
        parts = [sliced(attention, slice(0, cut)), sliced(attention, slice(cut, n_texts))]
        found = [METRICS[key](part) for part in parts]
        total, weight = (torch.cat([getattr(p, n) for p in found]) for n in ("total", "weight"))
        same_partial(Partial(total, weight), wanted)


@every_metric
@settings
def test_order_of_examples_is_kept(key: str, settings: dict[str, Any]) -> None:
    attention = random_attention(**settings)
    order = torch.randperm(len(attention.batch), generator=torch.Generator().manual_seed(1))
    found, wanted = METRICS[key](picked(attention, order.tolist())), METRICS[key](attention)
    same(found.value, wanted.value[order])
    same(found.spread_weight(), wanted.spread_weight()[order], 0)


@every_metric
@settings
def test_permuted_heads_permute_the_result(key: str, settings: dict[str, Any]) -> None:
    attention = random_attention(**settings)
    n_heads = attention.weights.shape[1]
    order = torch.randperm(n_heads, generator=torch.Generator().manual_seed(2)).roll(1)
    found, wanted = METRICS[key](with_heads(attention, order.tolist())), METRICS[key](attention)
    expected = wanted.value[:, order]
    if "other head" in METRICS[key].axes:
        expected = expected[:, :, order]
    same(found.value, expected)
    same(found.spread_weight(), wanted.spread_weight(), 0)


@every_metric
def test_memory_layout_does_not_matter(key: str) -> None:
    attention = random_attention(104)
    strided = attention.weights.transpose(2, 3).contiguous().transpose(2, 3)
    assert not strided.is_contiguous()
    same_partial(METRICS[key](Attention(strided, attention.batch)), METRICS[key](attention))


# --- bounds --------------------------------------------------------------------------------------


def evaluated(bound: float | str, n_key: int) -> float:
    """A declared bound as a number; expressions may use n_key and log."""
    if isinstance(bound, str):
        assert bound in ("n_key", "log n_key"), f"no way to evaluate the bound '{bound}'"
        return n_key if bound == "n_key" else log(n_key)
    return float(bound)


@every_metric
def test_declared_bounds_hold(key: str) -> None:
    low, high = METRICS[key].bounds
    for seed in range(105, 113):
        attention = random_attention(seed, scores="min" if seed % 2 else None)
        value = METRICS[key](attention).value
        for row, text in zip(value, texts_of(attention.batch), strict=True):
            known = row[~row.isnan()]
            assert (known >= evaluated(low, len(text)) - 1e-5).all()
            assert (known <= evaluated(high, len(text)) + 1e-5).all()


LONG = "[CLS] " + "a ##b , c . " * 5 + "[SEP] " + "d . e ##f , " * 5 + "[SEP]"


def repeated_arcs(n_words: int) -> Arcs:
    """A tree over many words that has every label of a sieve; word 2 of each five is a root."""
    labels = {0: "nsubj", 1: "obj", 3: "amod", 4: "advmod"}
    return {w: (w - w % 5 + 2, labels[w % 5]) for w in range(n_words) if w % 5 != 2}


FULL_SIEVE: dict[str, Text] = {
    "bias_local": text_of("a"),
    "bias_previous_local": text_of("a b"),
    "bias_next_local": text_of("a b"),
    "bias_block": text_of("[CLS] a [SEP] b [SEP]"),
    "bias_cls": text_of("[CLS] a b [SEP]"),
    "bias_sep": text_of("[CLS] a b [SEP]"),
    "bias_delimiter": text_of("a b [SEP]"),
} | {
    f"bias_{role}": text_of("[CLS] a b ##c [SEP]", {1: (0, label)})
    for role, label in {
        **{"nsubj": "nsubj", "dobj": "obj", "amod": "amod", "advmod": "advmod"},
        "syntactic": "nsubj",
    }.items()
}
"""A bias can be n only where each asked query has just one key to look at."""


def relation_or_sieve(key: str) -> Callable[[Text, int, int], bool] | None:
    """Which pairs a metric weighs, if it weighs pairs."""
    name = key.partition("@")[0]
    sieve = SIEVES.get(name.removeprefix("bias_"))
    return RELATIONS.get(name) if sieve is None else lambda text, q, k: k in sieve(text, q)


def extreme_heads(key: str, text: Text) -> Tensor:
    """Heads that have as much, and as little, of what a metric measures as is possible."""
    n, rows = len(text), torch.eye(len(text))
    holds = relation_or_sieve(key)
    if holds is None:
        return torch.stack(
            [
                rows,
                rows.roll(1, dims=1),
                *rows[[0, -1]][:, None].expand(2, n, n),
                rows[[0, -1]].mean(0).expand(n, n),
                head("uniform", n),
            ]
        )
    having = [[k for k in range(n) if holds(text, q, k)] for q in range(n)]
    lacking = [[k for k in range(n) if not holds(text, q, k)] for q in range(n)]
    return torch.stack(
        [
            rows[[keys[0] if keys else q for q, keys in enumerate(some)]]
            for some in (having, lacking)
        ]
    )


@every_metric
def test_declared_bounds_are_reached(key: str) -> None:
    """A bound that no head can reach says nothing; smoothed rows only come near."""
    text = text_of(LONG, repeated_arcs(35))
    value = METRICS[key](attention_of(extreme_heads(key, text)[None], text)).value
    name = key.partition("@")[0]
    if name in FULL_SIEVE:
        assert float(value.min()) == 0
        text = FULL_SIEVE[name]
        value = METRICS[key](attention_of(extreme_heads(key, text)[None], text)).value
        value = torch.cat([value, torch.zeros_like(value)])
    n = len(text)
    low, high = (evaluated(bound, n) for bound in METRICS[key].bounds)
    if key == "bias_local@authors":
        high = n / 2  # the divisor is one too large
    if key == "bias_block@authors":
        high = 0  # what looks at one key alone has no entropy to be multiplied with
    if key == "row_peak":
        low = 1 / n  # the largest of n shares is 1/n at least
    if key in ("mass_to_earlier", "mass_to_later", "mass_to_previous", "mass_to_next"):
        high = (n - 1) / n  # the piece at the border is asked and has no such key
    if key.startswith("distance_"):  # asked are also those that have no such key
        holds = RELATIONS[key]
        high = sum(any(holds(text, q, k) for k in range(n)) for q in range(n)) / n
    slack = 0.01 if key.endswith("@authors") else 1e-5
    told = "no head of extreme_heads reaches it: is the bound right, or is such a head to be added?"
    assert float(value.min()) == pytest.approx(low, abs=slack), told
    assert float(value.max()) == pytest.approx(high, abs=slack), told


# --- numbers -------------------------------------------------------------------------------------


def tensors_of(attention: Attention) -> dict[str, Tensor]:
    found = {f.name: getattr(attention.batch, f.name) for f in fields(Batch) if f.name != "index"}
    found["weights"] = attention.weights
    return found if attention.scores is None else found | {"scores": attention.scores}


@every_metric
@settings
def test_inputs_are_not_changed(key: str, settings: dict[str, Any]) -> None:
    attention = random_attention(**settings)
    before = {name: tensor.clone() for name, tensor in tensors_of(attention).items()}
    first = METRICS[key](attention)
    kept = first.total.clone(), first.weight.clone()
    first.total.add_(1.0)  # a result must not be a view of an input, or of something cached
    first.weight.clone().add_(1.0)
    for name, tensor in tensors_of(attention).items():
        assert torch.equal(tensor, before[name]), name
    again = METRICS[key](attention)
    assert torch.equal(again.total, kept[0])
    assert torch.equal(again.weight, kept[1])


@every_metric
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_half_precision_is_reduced_in_single(key: str, dtype: torch.dtype) -> None:
    attention = random_attention(114, longest=40)
    half = in_dtype(attention, dtype)
    found = METRICS[key](half)
    assert found.total.dtype in (torch.float32, torch.float64)
    assert found.weight.dtype in (torch.float32, torch.float64)
    # what is lost was lost before: the same rounded maps in double precision say the same
    same_partial(found, METRICS[key](in_dtype(half, torch.float64)), 1e-5)
    same(found.value, METRICS[key](attention).value, 2e-3 if dtype == torch.float16 else 2e-2)


@every_metric
def test_double_precision_stays_double(key: str) -> None:
    """What single precision cannot tell apart still differs in the result."""
    attention = random_attention(115, n_texts=2, longest=12, dtype=torch.float64)
    found = METRICS[key](attention)
    assert found.total.dtype == torch.float64
    for row, (maps, text) in zip(found.value, cropped(attention), strict=True):
        truth = ORACLES[key](maps, text)
        same(row[..., : truth.shape[-1]], torch.from_numpy(truth), 1e-12)


@every_metric
def test_rounding_does_not_grow_with_the_text(key: str) -> None:
    """Single against double precision on 300 pieces, with logits as far apart as BERT's."""
    text = text_of("[CLS] " + "a ##b , c . " * 59 + "[SEP] d ##e [SEP]", repeated_arcs(237))
    generator = torch.Generator().manual_seed(3)
    scores = 4 * torch.randn(1, 3, len(text), len(text), generator=generator) - 5
    batch = attention_of(scores, text).batch
    single = Attention(scores.softmax(-1), batch, scores)
    double = Attention(single.weights.double(), batch)
    same_partial(METRICS[key](single), METRICS[key](double), 1e-5)


@pytest.mark.parametrize("others", [0, 2, 30], ids=["alone", "with two", "with all"])
def test_rounding_of_the_matrix_product(others: int) -> None:
    """A mass must not depend on what is measured beside it, not even at 512 pieces."""
    text = text_of("[CLS] " + "a ##b , c . " * 101 + "[SEP] d ##e [SEP]")
    generator = torch.Generator().manual_seed(3)
    scores = 4 * torch.randn(1, 12, len(text), len(text), generator=generator) - 5
    attention = attention_of(scores, text)
    relations = [metric for metric in METRICS.values() if metric.linear]
    chosen = [METRICS["mass_to_same_segment"], *relations[:others]]
    weights = scores.softmax(-1)
    selectors = Selectors(attention.batch, chosen)
    found = selectors.partials(selectors.masses(Attention(weights, attention.batch)))[0]
    double = METRICS["mass_to_same_segment"](Attention(weights.double(), attention.batch))
    same_partial(found, double, 1e-5)


@every_metric
def test_maps_that_carry_a_gradient_are_welcome(key: str) -> None:
    attention = random_attention(116)
    tracked = Attention(attention.weights.clone().requires_grad_(), attention.batch)
    # The divergence then takes its other form: as near as either is to the oracle.
    same_partial(METRICS[key](tracked), METRICS[key](attention), 1e-5)


# --- undefined -----------------------------------------------------------------------------------

UNDEFINED = {
    "entropy_from_cls": "a b ##c [SEP]",
    "entropy_from_cls@authors": "a b ##c [SEP]",
    "mass_to_other_segment": "[CLS] a b ##c [SEP]",
    "mass_to_other_segment@having": "[CLS] a b ##c [SEP]",
    "mass_sep_to_sep": "[CLS] a b ##c",
    "mass_other_to_sep": "[CLS] a b ##c",
    "mass_to_same_word": "[CLS] a b c [SEP] d [SEP]",
    "mass_to_previous@having": "a",
    "mass_to_next@having": "a",
    "mass_to_comma@having": "[CLS] a b ##c [SEP]",
    "bias_previous_local": "a",
    "bias_next_local": "a",
    "bias_block": "[CLS] a b ##c [SEP] [SEP]",
    "bias_block@authors": "[CLS] a b ##c [SEP] [SEP]",
    "bias_cls": "a b ##c [SEP]",
    "bias_sep": "[CLS] a b ##c",
    "bias_delimiter": "a b ##c",
    **{
        f"bias_{role}{variant}": "[CLS] a b ##c [SEP]"
        for role in ("nsubj", "dobj", "amod", "advmod", "syntactic")
        for variant in ("", "@authors")
    },
}
"""Metrics, and a text in which nobody can be asked."""


@pytest.mark.parametrize("key", UNDEFINED)
def test_undefined_is_nan_with_weight_zero(key: str) -> None:
    text = text_of(UNDEFINED[key])
    other = text_of("[CLS] a ##b , c . [SEP] d [SEP]", repeated_arcs(5))
    weights = torch.rand(1, 3, len(text), len(text)).softmax(-1)
    partial = METRICS[key](attention_of(weights, text))
    assert partial.value.isnan().all()
    assert not partial.weight.any()
    assert not partial.total.any(), "a sum over nothing must not spoil a sum over texts"
    weights = torch.rand(1, 3, len(other), len(other)).softmax(-1)
    assert not METRICS[key](attention_of(weights, other)).value.isnan().any()


@every_metric
def test_row_of_padding_only_is_undefined(key: str) -> None:
    attention = random_attention(117)
    batch = attention.batch
    emptied = batch._map(Tensor.clone, batch.index)
    for name, tensor in tensors_of(Attention(attention.weights, emptied)).items():
        if name not in ("weights", "ids"):
            tensor[0] = -1 if name in NONE_IS_MINUS_ONE else False
    found, wanted = METRICS[key](Attention(attention.weights, emptied)), METRICS[key](attention)
    assert not found.spread_weight()[0].any()
    assert found.value[0].isnan().all()
    assert found.total.isfinite().all(), "NaN times weight 0 would spoil a sum over texts"
    same(found.value[1:], wanted.value[1:])


# --- devices -------------------------------------------------------------------------------------


class Devices(TorchDispatchMode):
    """Notes every operation that makes a tensor elsewhere than on the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.strays: list[str] = []
        self.n_calls = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.n_calls += 1
        tensors = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        self.strays += [f"{func}: {t.device}" for t in tensors if t.device.type != "meta"]
        return out


def strays(run: Callable[[], object]) -> list[str]:
    """Operations of a function that leave the meta device."""
    with Devices() as devices:
        run()
    assert devices.n_calls, "nothing was seen"
    return devices.strays


@pytest.fixture(scope="module")
def elsewhere() -> Attention:
    """Maps on a device that is not the CPU, of a length nothing has been cached for."""
    return on_device(padded(random_attention(118), 31), "meta")


@every_metric
def test_nothing_lands_on_the_cpu(key: str, elsewhere: Attention) -> None:
    partial = METRICS[key](elsewhere)
    assert {partial.total.device.type, partial.weight.device.type} == {"meta"}
    assert strays(lambda: METRICS[key](elsewhere).value) == []
    half = in_dtype(elsewhere, torch.float16)
    assert strays(lambda: METRICS[key](half)) == []


def test_nothing_of_the_relations_lands_on_the_cpu(elsewhere: Attention) -> None:
    chosen = [METRICS[key] for key in KEYS if METRICS[key].linear]
    assert strays(lambda: Selectors(elsewhere.batch, chosen).masses(elsewhere)) == []


def test_planted_stray_tensor_is_seen(elsewhere: Attention) -> None:
    assert strays(lambda: torch.arange(3)) != []
    assert strays(lambda: elsewhere.weights * torch.tensor(2.0)) != []
    assert strays(lambda: elsewhere.weights * 2.0) == []


# --- closed forms --------------------------------------------------------------------------------

PAIR = "[CLS] a ##b , c . d [SEP] e ##f . [SEP]"


def of_head(key: str, rows: Tensor, text: str = PAIR) -> float:
    """The value of a metric for one head."""
    return float(METRICS[key](attention_of(rows[None, None], text)).value)


def head(looks_at: str, n: int = len(PAIR.split())) -> Tensor:
    """The map of a head that always looks at one place, or everywhere."""
    own = torch.eye(n)
    return {
        "uniform": torch.full((n, n), 1 / n),
        "itself": own,
        "next": own.roll(1, dims=1),  # and the last at the first
        "previous": own.roll(-1, dims=1),  # and the first at the last
        "first": own[0].expand(n, n),
    }[looks_at]


def test_uniform_rows_have_entropy_log_n() -> None:
    n = len(PAIR.split())
    for key in ("entropy", "entropy_from_cls", "entropy@authors", "entropy_from_cls@authors"):
        assert of_head(key, head("uniform")) == pytest.approx(log(n), abs=1e-6)


def test_one_hot_rows_have_entropy_zero() -> None:
    for key in ("entropy", "entropy_from_cls"):
        assert of_head(key, head("next")) == 0
    assert 0 < of_head("entropy@authors", head("next")) < 0.002


def test_uniform_rows_spread_by_numbers() -> None:
    n = len(PAIR.split())
    uniform = head("uniform")
    wanted = {
        "mass_to_self": 1 / n,
        "mass_to_previous@having": 1 / n,
        "mass_to_previous": (n - 1) / n**2,
        "mass_to_earlier": (n - 1) / 2 / n,
        "mass_to_cls": 1 / n,
        "mass_to_sep": 2 / n,
        "mass_sep_to_sep": 2 / n,
        "mass_other_to_sep": 2 / n,
        "mass_to_comma": 1 / n,
        "mass_to_period": 2 / n,
        "mass_to_punctuation": 3 / n,
        "mass_to_same_segment": (8**2 + 4**2) / n**2,
        "mass_to_other_segment": 2 * 8 * 4 / n**2,
        "mass_to_same_word": 1 / n,
        "mass_within_1": (3 * n - 2) / n**2,
        "mass_within_20": 1.0,
        "row_peak": 1 / n,
    }
    for key, value in wanted.items():
        assert of_head(key, uniform) == pytest.approx(value, abs=1e-6), key


def test_next_token_head() -> None:
    n = len(PAIR.split())
    looks_on = head("next")
    looks_on[-1] = torch.eye(n)[-1]  # the last piece has no next one and looks at itself
    assert of_head("mass_to_next@having", looks_on) == 1
    assert of_head("mass_to_next", looks_on) == pytest.approx((n - 1) / n)
    assert of_head("mass_to_previous", looks_on) == 0
    assert of_head("mass_to_later", looks_on) == pytest.approx((n - 1) / n)
    assert of_head("mass_to_earlier", looks_on) == 0
    assert of_head("mass_within_1", looks_on) == 1


def test_previous_token_head() -> None:
    looks_back = head("previous")
    looks_back[0] = torch.eye(len(looks_back))[0]
    assert of_head("mass_to_previous@having", looks_back) == 1
    assert of_head("mass_to_next", looks_back) == 0


def test_masses_that_make_one() -> None:
    attention = random_attention(119)
    value = {key: METRICS[key](attention).value for key in METRICS}
    parts = value["mass_to_earlier"] + value["mass_to_self"] + value["mass_to_later"]
    same(parts, torch.ones_like(parts), 1e-5)
    same(value["column_mass"].nansum(-1), torch.ones_like(value["row_peak"]), 1e-5)
    assert (value["column_mass"].nan_to_num(-1).amax(-1) <= value["row_peak"] + 1e-6).all()
    two = ~value["mass_to_other_segment"].isnan()
    split = value["mass_to_same_segment"] + value["mass_to_other_segment"]
    assert two.any()
    same(split[two], torch.ones_like(split[two]), 1e-5)
    windows = [value[f"mass_within_{width}"] for width in (1, 2, 5, 10, 20)]
    for narrow, wide in pairwise(windows):
        assert (narrow <= wide + 1e-6).all()


def test_sums_of_the_sep_masses_agree() -> None:
    """[SEP] and other queries together are all queries: sums add up, means do not."""
    attention = random_attention(120)
    whole, ours, others = (
        METRICS[key](attention) for key in ("mass_to_sep", "mass_sep_to_sep", "mass_other_to_sep")
    )
    same(ours.total + others.total, whole.total, 1e-5)


def test_vertical_head() -> None:
    vertical = head("first")
    assert of_head("row_peak", vertical) == 1
    assert of_head("mass_to_cls", vertical) == 1
    columns = METRICS["column_mass"](attention_of(vertical[None, None].clone(), PAIR)).value
    assert columns[0, 0].tolist() == [1.0] + [0.0] * (len(vertical) - 1)


def test_a_diagonal_head_has_peaks_in_its_rows() -> None:
    assert of_head("row_peak", head("itself")) == 1
    assert of_head("mass_to_self", head("itself")) == 1


@pytest.mark.parametrize("key", ["js_divergence", "js_divergence@authors"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
def test_divergence_of_equal_and_disjoint_heads(key: str, dtype: torch.dtype) -> None:
    heads = torch.stack([head("itself"), head("next"), head("itself"), head("uniform")])
    value = METRICS[key](attention_of(heads[None].to(dtype), PAIR)).value[0]
    assert not value.diagonal().any()
    same(value, value.T)
    assert value[0, 2] == pytest.approx(0, abs=1e-6)
    smoothing = 0.01 if key.endswith("@authors") else 1e-6
    assert value[0, 1] == pytest.approx(log(2), abs=smoothing)
    n = len(PAIR.split())
    both = (1 + 1 / n) / 2
    against_uniform = -both * log(both) - (n - 1) / n / 2 * log(1 / n / 2) - log(n) / 2
    assert value[0, 3] == pytest.approx(against_uniform, abs=smoothing)


@pytest.mark.parametrize("n_heads", [1, 2, 7, 8, 9, 33])
def test_number_of_threads_changes_nothing(n_heads: int) -> None:
    attention = random_attention(122, n_heads=n_heads, longest=12)
    wanted = METRICS["js_divergence"](in_dtype(attention, torch.float64))
    for n_threads in (1, 2, 3):
        with threads(n_threads):
            same_partial(METRICS["js_divergence"](attention), wanted)


def test_nearly_equal_heads_diverge_little_and_never_negatively() -> None:
    attention = random_attention(121, n_heads=1, longest=40)
    noise = 1 + 1e-4 * torch.rand(attention.weights.shape, generator=torch.Generator())
    near = attention.weights * noise
    near = near / near.sum(-1, keepdim=True)
    both = Attention(torch.cat([attention.weights, near], 1), attention.batch)
    value = METRICS["js_divergence"](both).value
    assert (value >= 0).all()
    assert (value < 1e-6).all()
