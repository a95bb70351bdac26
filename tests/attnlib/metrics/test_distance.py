"""The distance feature: against loops written from the paper, closed forms, and planted bugs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlib.attention.encode import Batch, batches, encode
from attnlib.attention.maps import Attention
from attnlib.errors import BadValue, TooLong, UnknownName
from attnlib.measuring.stream import METRICS, measure
from attnlib.metrics import distance as distances
from attnlib.metrics.distance import (
    FEATURES,
    Division,
    distance_metrics,
    far_mass,
    feature_matrix,
    feature_rows,
    near_mass,
)
from attnlib.metrics.registry import Metric
from attnlib.metrics.relations import RELATIONS, Relation
from attnlib.models import Encoder, load_encoder
from tests.attnlib.metrics.test_oracles import all_masses
from tests.attnlib.metrics.test_sieves import (
    CUT,
    EXAMPLES,
    SETTINGS,
    corpus_of,
    library_maps,
    seen_by,
)
from tests.families import folders, one_thread
from tests.maps import attention_of, collated, cropped, picked, random_attention, text_of, varied
from tests.oracles import Maps, Text

__all__ = ["folders", "one_thread"]  # fixtures

KEYS = [f"distance_{name}" for name in FEATURES]
CLASSES = ("cls", "sep", "comma", "period")


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


# --- the loops -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loops:
    """Eq. 2 for one text, with the decisions that it leaves open."""

    windows: int = 16
    classes: Sequence[str] = CLASSES
    edges: str = "paper"
    length: int | None = None

    def names(self) -> list[str]:
        digits = max(2, len(str(self.windows)))
        windows = [f"window_{str(i + 1).zfill(digits)}" for i in range(self.windows)]
        return [*windows, "self", *self.classes]

    def part(self, text: Text, s: int, k: int) -> int:
        """Where the attention from s to k counts."""
        for place, kind in enumerate(self.classes):
            if is_of(text, kind, k):
                return self.windows + 1 + place
        if s == k:
            return self.windows
        total, t = self.length or len(text), abs(s - k)
        if self.edges == "equal":
            total, t = total - 1, t - 1
        for i in range(self.windows):
            if i * total <= t * self.windows < (i + 1) * total:
                return i
        raise AssertionError(f"{t} is in no window")

    def feature(self, maps: Maps, text: Text) -> NDArray[np.float64]:
        """(head, part)"""
        n = len(text)
        pairs = [(s, k, self.part(text, s, k)) for s in range(n) for k in range(n)]
        rows = []
        for head in maps.tolist():
            totals = [0.0] * len(self.names())
            for s, k, part in pairs:
                totals[part] += head[s][k]
            rows.append([total / n for total in totals])
        return np.array(rows)


def is_of(text: Text, kind: str, k: int) -> bool:
    if kind == "period_or_comma":
        return text.period[k] or text.comma[k]
    if kind == "word_start":
        return text.word[k] >= 0 and (k == 0 or text.word[k] != text.word[k - 1])
    return bool(getattr(text, kind)[k])


def features_of(attention: Attention, metrics: list[Metric]) -> NDArray[np.float64]:
    """All parts from one matrix product, (input, head, part)."""
    partials = all_masses(attention, metrics)
    for partial in partials:
        assert partial.weight.tolist() == attention.batch.real.sum(-1).tolist()
    return np.stack([partial.value.double().numpy() for partial in partials], axis=-1)


def disagreement(attention: Attention, metrics: list[Metric], loops: Loops) -> float:
    """The largest difference from the loops, on maps of any texts."""
    found = features_of(attention, metrics)
    truth = np.stack([loops.feature(maps, text) for maps, text in cropped(attention)])
    return float(np.abs(found - truth).max())


# --- texts and maps of exact lengths -------------------------------------------------------------

PIECES = ("a", "b", "##c", "d", ",", ".", "!", "[SEP]", "[SEP] [SEP]")


def random_pieces(rng: np.random.Generator, length: int) -> Text:
    """Special tokens anywhere, also side by side; every third text has no comma."""
    pieces = ["[CLS]"] if rng.random() < 0.8 else ["a"]
    known = [piece for piece in PIECES if piece != "," or length % 3]
    while len(pieces) < length - 1:
        pieces += str(rng.choice(known)).split()
    return text_of(" ".join([*pieces[: length - 1], "[SEP]" if rng.random() < 0.8 else "b"]))


def maps_of(seed: int, lengths: Sequence[int], n_heads: int = 2, extra: int = 2) -> Attention:
    """Random maps of random texts of these lengths; rows of padding hold garbage."""
    rng = np.random.default_rng(seed)
    batch = collated([random_pieces(rng, n) for n in lengths], extra=extra)
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(len(lengths), n_heads, batch.length, batch.length, generator=generator)
    weights = logits.masked_fill(~batch.real[:, None, None, :], -torch.inf).softmax(-1)
    return Attention(weights.masked_fill(~batch.real[:, None, :, None], 3.0), batch)


LENGTHS: dict[str, Sequence[int]] = {
    "5 to 40": range(5, 41),
    "about a hundred": (63, 64, 65, 100, 127, 128),
    "hundreds": (129, 200, 255, 384),
    "the longest": (511, 512),
}


@pytest.mark.parametrize("lengths", LENGTHS)
def test_the_features_are_the_loops(lengths: str) -> None:
    attention = maps_of(1, LENGTHS[lengths])
    assert disagreement(attention, distance_metrics(), Loops()) < 1e-6


def test_the_texts_show_what_they_should() -> None:
    texts = [text for _, text in cropped(maps_of(1, LENGTHS["5 to 40"]))]
    assert [len(text) for text in texts] == list(range(5, 41))
    assert any(not any(text.comma) for text in texts) and any(any(text.comma) for text in texts)
    assert any(not any(text.cls) for text in texts)
    assert any(a and b for text in texts for a, b in zip(text.sep, text.sep[1:], strict=False))


@pytest.mark.parametrize("key", KEYS)
def test_a_part_alone_is_the_part_of_the_loops(key: str) -> None:
    """The kernel that takes one metric by itself."""
    for attention in (maps_of(2, (5, 16, 17, 33)), *varied()[:4], varied()[12]):
        found = METRICS[key](attention).value.double().numpy()
        for i, (maps, text) in enumerate(cropped(attention)):
            truth = Loops().feature(maps, text)[:, KEYS.index(key)]
            np.testing.assert_allclose(found[i], truth, atol=1e-6)


OTHERS: dict[str, dict[str, Any]] = {
    "one window": {"windows": 1},
    "three windows": {"windows": 3},
    "seven windows": {"windows": 7},
    "more windows than most texts have pieces": {"windows": 32},
    "more parts than a byte tells apart": {"windows": 300},
    "no special tokens": {"specials": ()},
    "only commas": {"specials": ("comma",)},
    "in another order": {"specials": ("period", "cls")},
    "commas before punctuation": {"specials": ("cls", "comma", "punctuation")},
    "punctuation before commas": {"specials": ("punctuation", "period", "comma")},
    "a class of two marks": {"specials": ("period_or_comma", "sep"), "windows": 5},
    "equal windows": {"edges": "equal"},
    "five equal windows": {"edges": "equal", "windows": 5},
    "padded to 64": {"length": 64},
    "padded to 384": {"length": 384, "windows": 7},
    "equal windows of 64": {"length": 64, "edges": "equal"},
    "everything else": {"windows": 3, "specials": ("sep",), "edges": "equal", "length": 41},
}


@pytest.mark.parametrize("setting", OTHERS)
def test_other_divisions_are_the_loops(setting: str) -> None:
    options = OTHERS[setting]
    loops = Loops(**{"classes" if k == "specials" else k: v for k, v in options.items()})
    metrics = distance_metrics(**options)
    assert [metric.key for metric in metrics] == [f"distance_{name}" for name in loops.names()]
    attention = maps_of(3, (5, 6, 7, 8, 15, 16, 17, 24, 31, 32, 33, 40))
    assert disagreement(attention, metrics, loops) < 1e-6
    total = features_of(attention, metrics).sum(-1)
    np.testing.assert_allclose(total, 1, atol=1e-5)


def test_a_text_of_one_piece() -> None:
    for text, part in (("a", "self"), ("[CLS]", "cls"), (".", "period")):
        for edges in distances.EDGES:
            found = features_of(attention_of([[[[1.0]]]], text), distance_metrics(edges=edges))
            assert found[0, 0].tolist() == [float(name == part) for name in FEATURES]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_parts_add_up_to_one(lengths: str) -> None:
    found = features_of(maps_of(4, LENGTHS[lengths], n_heads=3), distance_metrics())
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)
    assert (found >= 0).all()


def test_what_stands_beside_an_input_changes_nothing() -> None:
    attention = maps_of(5, (9, 30, 17, 40), extra=9)
    together = features_of(attention, distance_metrics())
    for i, n in enumerate((9, 30, 17, 40)):
        one = picked(attention, [i])
        alone = Attention(one.weights[:, :, :n, :n], collated([cropped(one)[0][1]]))
        np.testing.assert_allclose(together[[i]], features_of(alone, distance_metrics()), atol=1e-6)


# --- closed forms --------------------------------------------------------------------------------


def of_head(rows: Tensor, text: str | Text, **options: Any) -> dict[str, float]:
    """The parts of one head that are not 0."""
    metrics = distance_metrics(**options)
    found = features_of(attention_of(rows[None, None].double(), text), metrics)[0, 0]
    names = [metric.key.removeprefix("distance_") for metric in metrics]
    return {name: value for name, value in zip(names, found.tolist(), strict=True) if value}


def words(n: int) -> str:
    return " ".join(["a"] * n)


def test_by_hand() -> None:
    """Five pieces, two windows: the distances 1 and 2 are below 5/2, 3 and 4 are not."""
    rows = torch.tensor(
        [
            [0.5, 0.1, 0.2, 0.2, 0.0],  # [CLS]: itself; a, far b; the comma
            [0.0, 0.4, 0.1, 0.3, 0.2],  # a: itself; near b; the comma, [SEP]
            [0.3, 0.3, 0.0, 0.4, 0.0],  # the comma
            [0.1, 0.2, 0.1, 0.5, 0.1],  # b: itself; near a; the comma, [CLS], [SEP]
            [0.0, 0.6, 0.0, 0.3, 0.1],  # [SEP]: far a, near b; itself
        ]
    )
    found = of_head(rows, "[CLS] a , b [SEP]", windows=2)
    wanted = {
        "window_01": (0.1 + 0.3 + 0.3 + 0.4 + 0.2 + 0.3) / 5,
        "window_02": (0.2 + 0.6) / 5,
        "self": (0.4 + 0.5) / 5,
        "cls": (0.5 + 0.3 + 0.1) / 5,
        "sep": (0.2 + 0.1 + 0.1) / 5,
        "comma": (0.2 + 0.1 + 0.1) / 5,
    }
    assert found == pytest.approx(wanted, abs=1e-6)


def test_a_head_that_looks_at_itself() -> None:
    """What a special token gives to itself is given to a special token."""
    text = "[CLS] a , b ##c . d [SEP] e . [SEP]"
    wanted = {"self": 5 / 11, "cls": 1 / 11, "sep": 2 / 11, "comma": 1 / 11, "period": 2 / 11}
    assert of_head(torch.eye(11), text) == pytest.approx(wanted)
    assert of_head(torch.eye(11), text, specials=()) == pytest.approx({"self": 1})


@pytest.mark.parametrize(
    ("n", "window"), [(5, 4), (8, 3), (15, 2), (16, 2), (17, 1), (32, 1), (512, 1)]
)
def test_a_head_that_looks_at_the_next_piece(n: int, window: int) -> None:
    """Only in a text of more than 16 pieces is the next one in the nearest window."""
    rows = torch.eye(n).roll(1, dims=1)
    rows[-1] = torch.eye(n)[-1]
    found = of_head(rows, f"[CLS] {words(n - 2)} [SEP]")
    assert found == pytest.approx({f"window_{window:02d}": (n - 2) / n, "sep": 2 / n}, abs=1e-6)
    found = of_head(rows, words(n))
    assert found == pytest.approx({f"window_{window:02d}": (n - 1) / n, "self": 1 / n}, abs=1e-6)
    found = of_head(rows, words(n), edges="equal")
    assert found == pytest.approx({"window_01": (n - 1) / n, "self": 1 / n}, abs=1e-6)


def test_a_head_that_looks_everywhere_alike() -> None:
    """Shares count pairs: 2 (n - t) at distance t; window i holds t = 4i .. 4i + 3."""
    n = 64
    found = of_head(torch.full((n, n), 1 / n), words(n))
    wanted = {"self": 1 / n, "window_01": sum(2 * (n - t) for t in (1, 2, 3)) / n**2}
    for i in range(1, 16):
        wanted[f"window_{i + 1:02d}"] = sum(2 * (n - t) for t in range(4 * i, 4 * i + 4)) / n**2
    assert found == pytest.approx(wanted, abs=1e-6)


def test_equal_windows_of_a_head_that_looks_everywhere_alike() -> None:
    """Seventeen pieces are sixteen distances, one for each window."""
    n = 17
    found = of_head(torch.full((n, n), 1 / n), words(n), edges="equal")
    wanted = {f"window_{t:02d}": 2 * (n - t) / n**2 for t in range(1, 17)}
    assert found == pytest.approx(wanted | {"self": 1 / n}, abs=1e-6)


def test_special_tokens_of_a_head_that_looks_everywhere_alike() -> None:
    text = "[CLS] a ##b , c . d [SEP] [SEP] e . f"
    found = of_head(torch.full((12, 12), 1 / 12), text)
    special = {name: found[name] for name in CLASSES}
    counts = {"cls": 1 / 12, "sep": 2 / 12, "comma": 1 / 12, "period": 2 / 12}
    assert special == pytest.approx(counts)
    assert found["self"] == pytest.approx(6 / 144)


@pytest.mark.parametrize("n", [5, 15, 16, 17, 48, 50])
@pytest.mark.parametrize("windows", [1, 7, 16])
def test_where_windows_begin(n: int, windows: int) -> None:
    """One query of head t looks t pieces away: window i holds i L/N <= t < (i + 1) L/N."""
    heads = torch.eye(n).repeat(n, 1, 1)
    heads[:, 0] = torch.eye(n)
    metrics = distance_metrics(windows=windows)
    found = features_of(attention_of(heads[None], words(n)), metrics)[0]
    size = Fraction(n, windows)
    for t in range(1, n):
        (window,) = [i for i in range(windows) if i * size <= t < (i + 1) * size]
        assert found[t, window] == pytest.approx(1 / n, abs=1e-6)
        assert found[t, windows] == pytest.approx((n - 1) / n, abs=1e-6)


def test_a_fixed_length_leaves_far_windows_empty() -> None:
    """Of 100 pieces none is further than 99; of 384, that is in the fifth window."""
    found = of_head(torch.full((100, 100), 0.01), words(100), length=384)
    assert set(found) == {"self", *(f"window_{i:02d}" for i in range(1, 6))}
    assert len(of_head(torch.full((100, 100), 0.01), words(100))) == 17


# --- planted bugs --------------------------------------------------------------------------------


class PaddingCounts(Division):
    def _lengths(self, batch: Batch) -> Tensor:
        return torch.full_like(batch.real.sum(-1), batch.length)


class LengthOfTheBatch(Division):
    def _lengths(self, batch: Batch) -> Tensor:
        return super()._lengths(batch).amax().expand(len(batch))


class SpecialsCountAsSelf(Division):
    def _pairs(self, batch: Batch) -> Tensor:
        own = torch.eye(batch.length, dtype=torch.bool)
        return super()._pairs(batch).masked_fill(own, self.windows)


class WindowsWithSpecials(Division):
    def _pairs(self, batch: Batch) -> Tensor:
        return Division(self.windows, (), self.edges, self.length)._pairs(batch)


class SelfInTheFirstWindow(Division):
    def _by_distance(self, batch: Batch) -> Tensor:
        found = super()._by_distance(batch).clone()
        found[:, 0] = 0
        return found


class Shifted(Division):
    """The upper edge of a window, not the lower, belongs to it."""

    def _by_distance(self, batch: Batch) -> Tensor:
        away = torch.arange(batch.length)
        found = -(-self.windows * away // self._lengths(batch).unsqueeze(1)) - 1
        found = found.clamp(0, self.windows - 1)
        found[:, 0] = self.windows
        return found


class OnePieceShort(Division):
    def _lengths(self, batch: Batch) -> Tensor:
        return (super()._lengths(batch) - 1).clamp_min(1)


class WholeWindows(Division):
    """A window of floor(L / N) pieces, and the rest in the last."""

    def _by_distance(self, batch: Batch) -> Tensor:
        size = (self._lengths(batch) // self.windows).clamp_min(1).unsqueeze(1)
        found = (torch.arange(batch.length) // size).clamp_max(self.windows - 1)
        found[:, 0] = self.windows
        return found


class LastClassWins(Division):
    def keys(self, batch: Batch) -> Tensor:
        part = torch.zeros_like(batch.ids)
        for number, special in enumerate(self.specials, self.windows + 1):
            part = part.masked_fill(special.keys_in(batch), number)
        return part


class OneWay(Division):
    """What stands before the query is forgotten."""

    def _pairs(self, batch: Batch) -> Tensor:
        before = torch.ones(batch.length, batch.length).tril(-1).bool()
        return super()._pairs(batch).masked_fill(before, 255)


WRONG = (
    *(PaddingCounts, LengthOfTheBatch, SpecialsCountAsSelf, WindowsWithSpecials),
    *(SelfInTheFirstWindow, Shifted, OnePieceShort, WholeWindows, LastClassWins, OneWay),
)


def metrics_of(kind: type[Division], classes: Sequence[str] = CLASSES) -> list[Metric]:
    division = kind(16, tuple(RELATIONS[name] for name in classes), "paper", None)
    return list(distances._metrics_of(division))


def test_no_bug_is_no_bug() -> None:
    attention = maps_of(6, (20, 33, 48, 50))
    assert disagreement(attention, metrics_of(Division), Loops()) < 1e-6


@pytest.mark.parametrize("bug", WRONG)
def test_planted_bugs_are_caught(bug: type[Division]) -> None:
    classes = ("punctuation", "comma", "cls", "sep")
    attention = maps_of(6, (20, 33, 48, 50))
    assert disagreement(attention, metrics_of(bug, classes), Loops(classes=classes)) > 1e-4


# --- special tokens of one's own -----------------------------------------------------------------


def word_starts(batch: Batch) -> Tensor:
    before = torch.nn.functional.pad(batch.word, (1, 0), value=-1)[:, :-1]
    return (batch.word != before) & (batch.word >= 0) | ~batch.real  # holds for padding too


def on_every_query(batch: Batch) -> Tensor:
    return word_starts(batch).unsqueeze(1).expand(-1, batch.length, -1)


OWN = Relation("word_start", "the first piece of a word", on_every_query, keys=word_starts)


def test_a_class_of_ones_own() -> None:
    attention = maps_of(7, (5, 17, 30, 40))
    for classes in (("sep", "word_start"), ("word_start", "comma")):
        specials = [OWN if name == "word_start" else name for name in classes]
        metrics = distance_metrics(specials=specials)
        texts = [text for _, text in cropped(attention)]
        assert all(any(is_of(text, "word_start", k) for k in range(len(text))) for text in texts)
        assert disagreement(attention, metrics, Loops(classes=classes)) < 1e-6
    assert metrics[17].what == "Share of attention that falls on the first piece of a word."


# --- the pass ------------------------------------------------------------------------------------


def assert_pass_is_the_loops(encoder: Encoder, tolerance: float) -> None:
    names, found = feature_rows(measure(encoder, corpus_of(*EXAMPLES), KEYS, **SETTINGS))
    truth = np.stack([Loops().feature(*one) for one in seen_by(encoder)])
    assert names == FEATURES == tuple(Loops().names())
    assert found.shape == truth.shape == (len(EXAMPLES), encoder.n_layers * encoder.n_heads, 21)
    np.testing.assert_allclose(found, truth, atol=tolerance)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)


def test_the_pass_of_a_random_model_is_the_loops(bert: Encoder) -> None:
    assert_pass_is_the_loops(bert, 1e-6)


@pytest.mark.assets
def test_the_pass_of_a_trained_model_is_the_loops(e5_small: Encoder) -> None:
    assert_pass_is_the_loops(e5_small, 1e-5)


def test_every_input_counts_alike(bert: Encoder) -> None:
    """The mean is over inputs, not over their pieces; heads of a layer stand side by side."""
    found = measure(bert, corpus_of(*EXAMPLES), KEYS, batch_size=2, **SETTINGS)
    names, rows = feature_rows(found)
    again, matrix = feature_matrix(found)
    assert names == again
    np.testing.assert_allclose(matrix, rows.mean(0), atol=1e-12)
    for place, key in enumerate(KEYS):
        np.testing.assert_allclose(matrix[:, place], found.grid(key).reshape(-1), atol=1e-9)
    micro = np.stack([found.grid(key, micro=True).reshape(-1) for key in KEYS], axis=-1)
    assert np.abs(micro - matrix).max() > 1e-3


def test_windows_of_a_long_input_are_one_input(bert: Encoder) -> None:
    """Each window of a text has its own length; the input is the mean over all their queries."""
    found = measure(bert, corpus_of(CUT), KEYS, max_length=24, on_long="window")
    cut = encode([CUT], bert, max_length=24, on_long="window")
    seen = [library_maps(bert, batch) for batch in batches(cut, bert, batch_size=1)]
    assert len(seen) > 1
    sums = sum(len(text) * Loops().feature(maps, text) for maps, text in seen)
    _, rows = feature_rows(found)
    np.testing.assert_allclose(rows, [sums / sum(len(text) for _, text in seen)], atol=1e-6)


def test_masses_of_a_matrix() -> None:
    names = ("window_01", "window_02", "window_03", "self", "cls", "comma")
    features = np.array([[0.1, 0.2, 0.05, 0.3, 0.25, 0.1], [1.0, 0, 0, 0, 0, 0]])
    np.testing.assert_allclose(near_mass(names, features), [0.4, 1])
    np.testing.assert_allclose(far_mass(names, features), [0.25, 0])
    np.testing.assert_allclose(near_mass(names, features[None]), [[0.4, 1]])
    np.testing.assert_allclose(far_mass(("window_01", "self"), features[:, :2]), [0, 0])
    with pytest.raises(BadValue, match=r"6 names for features of shape \(2, 5\)"):
        near_mass(names, features[:, 1:])


# --- records, and work done once -----------------------------------------------------------------


def test_the_21_parts_are_registered() -> None:
    assert len(FEATURES) == 21
    assert FEATURES[:2] == ("window_01", "window_02")
    assert FEATURES[15:] == ("window_16", "self", *CLASSES)
    assert [METRICS[key] for key in KEYS] == distance_metrics()
    for metric in distance_metrics():
        assert (metric.source, metric.unit) == ("guan2020:eq2", "share of attention")
        assert (metric.bounds, metric.variants, metric.linear) == ((0.0, 1.0), ("paper",), True)
    assert len({metric.what for metric in distance_metrics()}) == 21


def test_the_same_options_give_the_same_metrics() -> None:
    """So that a pass does not refuse them as two of one name."""
    assert distance_metrics(specials=["sep", OWN]) == distance_metrics(specials=("sep", OWN))
    assert distance_metrics(windows=15) != distance_metrics()
    assert not set(distance_metrics(length=384)) & set(distance_metrics(length=385))


def test_pairs_are_divided_once_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    divided = Division._pairs
    monkeypatch.setattr(Division, "_pairs", lambda *given: calls.append(1) or divided(*given))
    attention = maps_of(8, (9, 12))
    for _ in range(2):
        features_of(attention, distance_metrics())
    assert calls == [1]
    features_of(attention, distance_metrics(windows=3))
    features_of(maps_of(9, (9, 12)), distance_metrics())
    assert calls == [1] * 3


def test_a_batch_that_is_gone_is_forgotten() -> None:
    gc.collect()
    before = len(distances._PAIRS)
    attention = maps_of(10, (9, 12))
    features_of(attention, distance_metrics())
    assert len(distances._PAIRS) == before + 1
    del attention
    gc.collect()
    assert len(distances._PAIRS) == before


def test_what_was_divided_without_gradients_serves_with_them() -> None:
    attention = maps_of(11, (9, 12))
    metric = METRICS["distance_window_03"]
    with torch.inference_mode():
        wanted = metric(attention).total.clone()
    tracked = Attention(attention.weights.clone().requires_grad_(), attention.batch)
    total = metric(tracked).total
    total.sum().backward()
    assert torch.equal(total.detach(), wanted)
    assert tracked.weights.grad is not None and tracked.weights.grad.any()


# --- bad input -----------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no window": ({"windows": 0}, "distance windows is 0; expected a whole number, 1 or more"),
    "a yes": ({"windows": True}, "is True; expected a whole number"),
    "other edges": ({"edges": "round"}, "edges is 'round'; expected one of paper, equal"),
    "no length": ({"length": 0}, "length is 0; expected 'real', or a whole number"),
    "another length": ({"length": "padded"}, "length is 'padded'; expected 'real', or a whole"),
    "one name": ({"specials": "cls"}, "specials is 'cls'; expected a list"),
    "pairs": ({"specials": ["cls", "next"]}, "class 'next', which depends on the query too"),
    "twice": ({"specials": ["cls", "sep", "cls"]}, "two parts are called 'cls'"),
    "a window": ({"specials": [replace(OWN, key="window_3")]}, "two parts are called 'window_3'"),
    "itself": ({"specials": [replace(OWN, key="self")]}, "two parts are called 'self'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_refused(case: str) -> None:
    options, message = BAD[case]
    with pytest.raises(BadValue, match=message):
        distance_metrics(**options)


@pytest.mark.parametrize("given", [2.5, "16", None, -3])
def test_what_is_no_number_of_windows_is_refused(given: object) -> None:
    with pytest.raises(BadValue, match=f"windows is {given!r}; expected a whole number, 1 or more"):
        distances._check_count("the number of distance windows", given)


def test_an_unknown_class_gets_a_hint() -> None:
    with pytest.raises(UnknownName, match=r"relation 'coma'\. Did you mean 'comma'\?"):
        distance_metrics(specials=["coma"])


def test_an_input_longer_than_the_fixed_length_is_refused(bert: Encoder) -> None:
    attention = maps_of(12, (9, 12), extra=3)
    features_of(attention, distance_metrics(length=12))  # padding is not counted
    with pytest.raises(TooLong, match="an input has 12 pieces, the distance windows are for 11"):
        features_of(attention, distance_metrics(length=11))
    with pytest.raises(TooLong, match="for 5"):
        measure(bert, corpus_of(*EXAMPLES), distance_metrics(length=5), **SETTINGS)


def test_features_ask_for_all_parts(bert: Encoder) -> None:
    for chosen, n_parts in ((KEYS[:20], 20), (["mass_to_self"], 0)):
        found = measure(bert, corpus_of(EXAMPLES[0]), chosen, **SETTINGS)
        with pytest.raises(BadValue, match=f"has {n_parts} parts of a distance feature"):
            feature_matrix(found)
    mixed = [*KEYS[:16], *distance_metrics(length=384)[16:]]
    found = measure(bert, corpus_of(EXAMPLES[0]), mixed, **SETTINGS)
    with pytest.raises(BadValue, match="expected all of one"):
        feature_rows(found)


def test_random_maps_of_the_laws_have_the_parts() -> None:
    """Every part is met by the maps that all metrics are held to."""
    seen = sum(features_of(a, distance_metrics()).sum((0, 1)) for a in varied())
    assert (seen > 0).all()
    assert len(random_attention(0).batch) == 4
