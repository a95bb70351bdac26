"""Sieves and their bias: on real maps against the oracles, closed forms, one's own, and bugs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnlib.attention.encode import Batch, batches, dependency_id, encode, model_inputs
from attnlib.attention.maps import Attention
from attnlib.data.corpora import Corpus, examples_digest, with_trees
from attnlib.data.examples import Example, ParsedText, Segment, TaskExample, Tree
from attnlib.errors import BadValue, UnknownName
from attnlib.measuring.stream import Measurement, measure
from attnlib.metrics import sieves
from attnlib.metrics.registry import METRICS, Metric, Partial, mass_by_query
from attnlib.metrics.relations import Relation
from attnlib.metrics.sieves import (
    SIEVES,
    bias_metric,
    chosen_sieves,
    local,
    sieve,
    syntactic,
)
from attnlib.models import Encoder, load_encoder
from tests import oracles
from tests.attnlib.metrics.test_oracles import OF_A_BIAS, all_masses, disagreement
from tests.families import folders, one_thread
from tests.maps import attention_of, cropped, in_dtype, random_attention, text_of, texts_of, varied
from tests.oracles import ASKED, ORACLES, Maps, Text

__all__ = ["folders", "one_thread"]  # fixtures

KEYS = [key for key in ORACLES if key.startswith("bias_")]
ROLES = [key.removeprefix("bias_") for key in KEYS if "@" not in key]
SYNTACTIC_ROLES = ("nsubj", "dobj", "amod", "advmod", "syntactic")


def token_bias(attention: Attention, relation: Relation) -> Tensor:
    """The score of every query; NaN where its sieve is empty, and on padding."""
    attention = attention.reduced()
    held = relation.mask(attention.batch)
    dtype = attention.weights.dtype
    counts, _ = sieves.even_share(attention.batch, held, "paper", relation=relation, dtype=dtype)
    scores = mass_by_query(attention, held) * counts.unsqueeze(1)
    return torch.where(held.any(-1).unsqueeze(1), scores, torch.nan)


# --- texts with trees written by hand ------------------------------------------------------------


def tree(name: str, words: str, heads: Sequence[int], relations: str) -> Tree:
    labels = tuple(relations.split())
    return Tree(name, tuple(words.split()), tuple(heads), labels, ("X",) * len(labels))


FERRY = tree(
    "ferry",
    "The old ferry never carries wooden carts .",
    [2, 2, 4, 4, -1, 6, 4, 4],
    "det amod nsubj advmod root amod obj punct",
)
BRIDGE = ParsedText(
    id="bridge",
    text="The bridge doesn't  carry trains.",
    pair="It was closed early.",
    label=1,
    word_starts=((0, 4, 11, 15, 20, 26, 32), (0, 3, 7, 14, 19)),
    heads=(1, 4, 4, 4, -1, 4, 4, 9, 9, -1, 9, 9),
    relations=(
        *("det", "nsubj", "aux", "neg", "root", "dobj", "punct"),
        *("nsubjpass", "auxpass", "root", "advmod", "punct"),
    ),
    tags=("X",) * 12,
)
CUT = tree(
    "cut",
    "Engineers , who had twice measured the old cables of the bridge over the river , refused .",
    [16, 0, 5, 5, 5, 0, 8, 8, 5, 8, 11, 9, 8, 14, 12, 0, -1, 16],
    "nsubj punct nsubj aux advmod rcmod det amod dobj prep det pobj prep det pobj punct root punct",
)
"""Cut at 24 pieces, its first word depends on a word that is not there."""

EXAMPLES: tuple[Example, ...] = (
    FERRY,
    BRIDGE,
    CUT,
    tree("rain", "It rained .", [1, -1, 1], "nsubj root punct"),
    Segment("plain", "Nobody waits here.", "Why did it close?"),
    Segment("single", "Wait!"),
)
SETTINGS: dict[str, Any] = {"max_length": 24, "on_long": "truncate"}


def corpus_of(*examples: Example) -> Corpus:
    return Corpus("few", "mixed", examples, {}, "tests", examples_digest(examples))


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


def batch_of(encoder: Encoder, *examples: Example) -> Batch:
    return next(batches(encode(examples, encoder, **SETTINGS), encoder))


def library_maps(encoder: Encoder, batch: Batch) -> tuple[Maps, Text]:
    """The library's maps of one text, (layer x head, query, key), and what its pieces are."""
    before = encoder.model.config._attn_implementation
    encoder.model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            inputs = model_inputs(batch, encoder)
            attentions = encoder.model(**inputs, output_attentions=True).attentions
    finally:
        encoder.model.set_attn_implementation(before)
    return torch.cat(attentions).flatten(0, 1).double().numpy(), texts_of(batch)[0]


def seen_by(encoder: Encoder) -> list[tuple[Maps, Text]]:
    """Maps and pieces of every example, run alone."""
    return [library_maps(encoder, batch_of(encoder, example)) for example in EXAMPLES]


def streamed(found: Measurement, key: str) -> NDArray[np.float64]:
    """(example, layer x head)"""
    total, weight = found.rows(key)
    value = np.where(weight > 0, total / np.maximum(weight, 1), np.nan)
    return value.reshape(len(value), -1)


def largest_difference(encoder: Encoder) -> float:
    """Every bias of every head is the loop's but for 1e-5 of its size; how far the worst is off."""
    found = measure(encoder, corpus_of(*EXAMPLES), KEYS, batch_size=3, **SETTINGS)
    seen = seen_by(encoder)
    largest = 0.0
    for key in KEYS:
        ours, truth = streamed(found, key), np.array([ORACLES[key](*one) for one in seen])
        np.testing.assert_allclose(ours, truth, rtol=1e-5, atol=1e-6, err_msg=key)
        assert found.rows(key)[1][:, 0, 0].tolist() == [ASKED[key](text) for _, text in seen], key
        assert np.isfinite(truth).any(), key
        largest = max(largest, float(np.nanmax(np.abs(ours - truth))))
    return largest


# --- the pass equals the loops -------------------------------------------------------------------


def test_the_pass_of_a_random_model_equals_the_loops(bert: Encoder) -> None:
    assert largest_difference(bert) < 1e-5


@pytest.mark.assets
def test_the_pass_of_a_trained_model_equals_the_loops(e5_small: Encoder) -> None:
    assert largest_difference(e5_small) < 1e-4


def test_windows_of_a_long_text_add_up(bert: Encoder) -> None:
    found = measure(bert, corpus_of(CUT), KEYS, max_length=24, on_long="window")
    cut = encode([CUT], bert, max_length=24, on_long="window")
    seen = [library_maps(bert, batch) for batch in batches(cut, bert, batch_size=1)]
    assert len(seen) > 1
    for key in KEYS:
        counts = [ASKED[key](text) for _, text in seen]
        sums = [n * ORACLES[key](*one) for n, one in zip(counts, seen, strict=True) if n]
        if sums:
            total, weight = found.rows(key)
            np.testing.assert_allclose(total.reshape(-1), sum(sums), rtol=1e-5, err_msg=key)
            assert weight.max() == weight.min() == sum(counts)


def test_pieces_know_what_their_words_depend_on(bert: Encoder) -> None:
    batch = batch_of(bert, FERRY, BRIDGE)
    for row, example in ((batch.index.index(0), FERRY), (batch.index.index(1), BRIDGE)):
        for piece in range(batch.length):
            word = int(batch.word[row, piece])
            governor = example.heads[word] if word >= 0 else -1
            label = dependency_id(example.relations[word]) if governor >= 0 else -1
            assert int(batch.governor[row, piece]) == governor
            assert int(batch.dependency[row, piece]) == label


def test_what_the_texts_show(bert: Encoder) -> None:
    """A governor that was cut off, words of several pieces, texts without a tree, padding."""
    names = [example.id for example in EXAMPLES]
    by_name = dict(zip(names, (text for _, text in seen_by(bert)), strict=True))
    cut = by_name["cut"]
    assert cut.governor[1] == 16 and 16 not in cut.word
    assert any(by_name["ferry"].word.count(word) > 1 for word in range(8))
    assert set(by_name["plain"].governor) == {-1}
    assert len({len(text) for text in by_name.values()}) > 3


# --- closed forms --------------------------------------------------------------------------------

PAIR = text_of(
    "[CLS] a ##b , c . d [SEP] e ##f . [SEP]",
    {0: (2, "nsubj"), 1: (0, "amod"), 4: (2, "advmod"), 5: (0, "obj"), 6: (9, "amod")},
)
N = len(PAIR)


def of_head(key: str, rows: Tensor, text: Text = PAIR) -> float:
    return float(METRICS[key](attention_of(rows[None, None], text)).value)


def looking_at(*keys: int) -> Tensor:
    """The map of a head that looks from each query at the key named for it."""
    return torch.eye(len(keys), dtype=torch.float64)[list(keys)]


@pytest.mark.parametrize("role", ROLES)
def test_a_uniform_head_scores_one_on_every_sieve(role: str) -> None:
    uniform = torch.full((N, N), 1 / N, dtype=torch.float64)
    assert of_head(f"bias_{role}", uniform) == pytest.approx(1, abs=1e-6)
    if role in SYNTACTIC_ROLES:
        assert of_head(f"bias_{role}@authors", uniform) == pytest.approx(1, abs=1e-6)


def test_a_uniform_head_under_the_authors_rules() -> None:
    uniform = torch.full((N, N), 1 / N, dtype=torch.float64)
    assert of_head("bias_block@authors", uniform) == pytest.approx(log(N), abs=1e-6)
    of_last_two = 4 / 5 + 3 / 4
    assert of_head("bias_local@authors", uniform) == pytest.approx((N - 2 + of_last_two) / N)


def test_a_head_that_looks_at_the_previous_piece() -> None:
    """The second piece has one key before it and scores n, every later one scores n / 2."""
    previous = looking_at(0, *range(N - 1))
    in_the_middle = (N - 2) * N / 2
    assert of_head("bias_previous_local", previous) == pytest.approx((N + in_the_middle) / (N - 1))
    assert of_head("bias_next_local", previous) == 0
    scores = token_bias(attention_of(previous[None, None], PAIR), SIEVES["previous_local"])[0, 0]
    assert scores[0].isnan()
    torch.testing.assert_close(
        scores[1:], torch.tensor([N, *[N / 2] * (N - 2)], dtype=scores.dtype), rtol=1e-6, atol=0
    )


def test_a_head_that_looks_at_the_next_piece() -> None:
    following = looking_at(*range(1, N), N - 1)
    in_the_middle = (N - 2) * N / 2
    assert of_head("bias_next_local", following) == pytest.approx((N + in_the_middle) / (N - 1))
    assert of_head("bias_previous_local", following) == 0


def test_a_head_that_looks_at_a_delimiter() -> None:
    at_cls, at_sep = looking_at(*[0] * N), looking_at(*[7, 11] * (N // 2))
    assert of_head("bias_cls", at_cls) == pytest.approx(N)
    assert of_head("bias_delimiter", at_cls) == pytest.approx(N / 3)
    assert of_head("bias_sep", at_cls) == 0
    assert of_head("bias_sep", at_sep) == pytest.approx(N / 2)
    assert of_head("bias_cls", at_sep) == 0


def test_a_head_that_looks_at_the_head_of_its_word() -> None:
    """Words: `a ##b` 0, `,` 1, `c` 2, `.` 3, `d` 4, `e ##f` 5, `.` 6, whose head is nowhere."""
    rows = looking_at(0, 4, 4, 1, 0, 0, 4, 0, 2, 1, 0, 0)
    assert of_head("bias_nsubj", rows) == pytest.approx(N)
    assert of_head("bias_amod", rows) == pytest.approx(N / 2)  # one of the two pieces of `a ##b`
    assert of_head("bias_advmod", rows) == pytest.approx(N)
    assert of_head("bias_dobj", rows) == pytest.approx(N / 2)
    assert of_head("bias_syntactic", rows) == pytest.approx((3 * N + 3 * N / 2) / 6)
    assert of_head("bias_syntactic@authors", rows) == pytest.approx((2 * N + 2 * N / 2) / 4)
    assert METRICS["bias_syntactic"](attention_of(rows[None, None], PAIR)).weight.tolist() == [6]
    assert of_head("bias_nsubj", rows.T.contiguous()) == 0


def test_blocks_keep_to_their_text() -> None:
    """Six pieces of words, then three; special tokens are in neither."""
    within = torch.zeros(N, N, dtype=torch.float64)
    within[:7, 1:7] = 1 / 6
    within[7:, 8:11] = 1 / 3
    assert of_head("bias_block", within) == pytest.approx((6 * N / 6 + 3 * N / 3) / 9)
    first, second = 7 * N / 6 * log(6), 5 * N / 3 * log(3)
    assert of_head("bias_block@authors", within) == pytest.approx((first + second) / N)
    assert of_head("bias_block", looking_at(*[8] * 7, *[1] * 5)) == 0  # at the other text


@pytest.mark.parametrize(
    "text", ["[CLS] a b [SEP]", "[CLS] a b [SEP] [SEP]", "[CLS] [SEP] a [SEP]"]
)
def test_one_text_has_no_blocks(text: str) -> None:
    """Nor has a pair of which one text is empty, or was cut away."""
    n = len(text.split())
    for key in ("bias_block", "bias_block@authors"):
        partial = METRICS[key](attention_of(torch.full((1, 1, n, n), 1 / n), text))
        assert partial.weight.tolist() == [0]
        assert partial.value.isnan().all()


# --- windows and directions against loops --------------------------------------------------------


def mask_of(text: Text, keys: oracles.Sieve, width: int) -> Tensor:
    held = torch.zeros(width, width, dtype=torch.bool)
    for t in range(len(text)):
        held[t, keys(text, t)] = True
    return held


def assert_same_sieve(relation: Relation, keys: oracles.Sieve) -> None:
    """The pairs, the bias of a head, and the bias of a query are those of a loop."""
    for attention in varied()[:6]:
        found = relation.mask(attention.batch)
        bias, scores = bias_metric(relation)(attention), token_bias(attention, relation)
        for i, (maps, text) in enumerate(cropped(attention)):
            assert torch.equal(found[i], mask_of(text, keys, attention.batch.length))
            truth = oracles.sieve_bias(maps, text, keys)
            np.testing.assert_allclose(bias.value[i].numpy(), truth, rtol=1e-6, atol=1e-6)
            asked = oracles.asked_by(text, keys)
            for t in range(attention.batch.length):
                wanted = (
                    [
                        oracles.query_bias(head[t], asked[t]) if t in asked else np.nan
                        for head in maps.tolist()
                    ]
                    if t < len(text)
                    else [np.nan] * len(maps)
                )
                np.testing.assert_allclose(scores[i, :, t].numpy(), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("window", [1, 2, 3, 7])
@pytest.mark.parametrize("sides", ["both", "before", "after"])
def test_windows_are_the_loops(window: int, sides: str) -> None:
    reach = {
        "both": range(-window, window + 1),
        "before": range(-window, 0),
        "after": range(1, window + 1),
    }[sides]

    def keys(text: Text, t: int) -> list[int]:
        return [t + step for step in reach if 0 <= t + step < len(text)]

    assert_same_sieve(local(window, before=sides != "after", after=sides != "before"), keys)


def test_windows_have_names_of_their_own() -> None:
    made = [
        local(window, before=before, after=after)
        for window in (1, 2, 3)
        for before, after in ((True, True), (True, False), (False, True))
    ]
    assert len({one.key for one in made}) == len(made)
    assert local().key == "local"
    assert local(after=False).key == "previous_local"
    assert "before" in local(after=False).what and "after" in local(before=False).what


def to_governor(*labels: str) -> oracles.Sieve:
    def keys(text: Text, t: int) -> list[int]:
        if text.dependency[t] not in labels:
            return []
        return [s for s in range(len(text)) if text.word[s] == text.governor[t]]

    return keys


def to_dependents(*labels: str) -> oracles.Sieve:
    def keys(text: Text, t: int) -> list[int]:
        arcs = [(text.dependency[s], text.governor[s]) for s in range(len(text))]
        own = text.word[t]
        return [s for s, (arc, head) in enumerate(arcs) if arc in labels and head == own >= 0]

    return keys


def to_either(*labels: str) -> oracles.Sieve:
    up, down = to_governor(*labels), to_dependents(*labels)
    return lambda text, t: sorted({*up(text, t), *down(text, t)})


DIRECTIONS = {"dep->head": to_governor, "head->dep": to_dependents, "both": to_either}


@pytest.mark.parametrize("labels", [("nsubj",), ("dobj", "obj"), ("det", "amod", "advmod")])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_directions_are_the_loops(labels: tuple[str, ...], direction: str) -> None:
    relation = syntactic(labels, "mine", direction=direction)
    assert_same_sieve(relation, DIRECTIONS[direction](*labels))


def test_directions_have_names_of_their_own() -> None:
    made = [syntactic(["det"], direction=direction) for direction in DIRECTIONS]
    assert made[0].key == "det"
    assert len({one.key for one in made}) == len({one.what for one in made}) == 3
    assert all(bias_metric(one).variants == ("paper",) for one in made)


def test_sieves_chosen_by_role() -> None:
    assert chosen_sieves() == list(SIEVES.values())
    assert [one.key for one in chosen_sieves()] == ROLES
    assert chosen_sieves(["sep", "local", "sep"]) == [SIEVES["sep"], SIEVES["local"]]
    with pytest.raises(UnknownName, match=r"role 'nsubjs'\. Did you mean 'nsubj'\?"):
        chosen_sieves(["local", "nsubjs"])


def test_chosen_sieves_take_a_window_and_a_direction() -> None:
    before, dobj, cls = chosen_sieves(["previous_local", "dobj", "cls"], window=3, direction="both")
    assert cls is SIEVES["cls"]
    assert_same_sieve(before, lambda text, t: list(range(max(0, t - 3), t)))
    assert_same_sieve(dobj, to_either("dobj", "obj"))


@pytest.mark.parametrize("role", ROLES)
def test_scores_of_queries_average_to_the_bias(role: str) -> None:
    attention = random_attention(30)
    scores, bias = token_bias(attention, SIEVES[role]), METRICS[f"bias_{role}"](attention)
    assert scores.shape == attention.weights.shape[:3]
    assert (~scores.isnan()).sum(-1).eq(bias.weight[:, None]).all()
    assert scores.transpose(1, 2)[~attention.real].isnan().all()
    torch.testing.assert_close(scores.nanmean(-1), bias.value, equal_nan=True)


# --- a sieve of one's own ------------------------------------------------------------------------


@sieve("sentence", "a piece of the same sentence")
def same_sentence(batch: Batch) -> Tensor:
    return batch.sentence.unsqueeze(2) == batch.sentence.unsqueeze(1)  # holds between padding too


@sieve("wordy", "any piece but a punctuation mark")
def no_punctuation(batch: Batch) -> Tensor:
    return ~batch.punctuation  # holds for padding too


@sieve("comma", "a comma")
def at_comma(batch: Batch) -> Tensor:
    return batch.comma


OWN: dict[str, tuple[Relation, oracles.Sieve]] = {
    "pairs": (
        same_sentence,
        lambda text, t: [s for s in range(len(text)) if text.sentence[s] == text.sentence[t]],
    ),
    "keys": (
        no_punctuation,
        lambda text, t: [s for s in range(len(text)) if not text.punctuation[s]],
    ),
    "keys that few texts have": (
        at_comma,
        lambda text, t: [s for s in range(len(text)) if text.comma[s]],
    ),
}


@pytest.mark.parametrize("form", OWN)
def test_an_own_sieve_is_measured(bert: Encoder, form: str) -> None:
    mine, keys = OWN[form]
    found = measure(bert, corpus_of(*EXAMPLES), [bias_metric(mine)], batch_size=4, **SETTINGS)
    truth = np.array([oracles.sieve_bias(maps, text, keys) for maps, text in seen_by(bert)])
    np.testing.assert_allclose(streamed(found, f"bias_{mine.key}"), truth, rtol=1e-5, atol=1e-6)
    assert np.isfinite(truth).any()
    assert found.estimate(f"bias_{mine.key}").n.max() == np.isfinite(truth[:, 0]).sum()
    assert f"bias_{mine.key}" not in METRICS


@pytest.mark.parametrize("form", OWN)
def test_an_own_sieve_is_the_loop(form: str) -> None:
    assert_same_sieve(*OWN[form])


def test_own_sieves_go_beside_the_paper(bert: Encoder) -> None:
    """What is measured beside a sieve does not change it."""
    chosen = ["bias_local", bias_metric(same_sentence), "mass_to_next", bias_metric(local(4))]
    found = measure(bert, corpus_of(FERRY, BRIDGE), chosen, **SETTINGS)
    assert list(found.metrics) == ["bias_local", "bias_sentence", "mass_to_next", "bias_local_4"]
    alone = measure(bert, corpus_of(FERRY, BRIDGE), [bias_metric(local(4))], **SETTINGS)
    np.testing.assert_allclose(found.grid("bias_local_4"), alone.grid("bias_local_4"), rtol=1e-6)


def test_an_own_sieve_may_not_take_a_name_that_is_measured_too(bert: Encoder) -> None:
    mine = sieve("local", "the whole text")(lambda batch: batch.real)
    assert bias_metric(mine).variants == ("paper",)
    with pytest.raises(BadValue, match="two metrics are called 'bias_local'"):
        measure(bert, corpus_of(FERRY), ["bias_local", bias_metric(mine)])


# --- bad input -----------------------------------------------------------------------------------

WRONG_SIEVES: dict[str, Callable[[Batch], Tensor]] = {
    "numbers": lambda batch: batch.punctuation.float(),
    "of the batch": lambda batch: batch.punctuation.any(-1),
    "one map for all": lambda batch: torch.ones(batch.length, batch.length, dtype=torch.bool),
    "one key too few": lambda batch: batch.punctuation[:, 1:],
    "heads too": lambda batch: batch.punctuation[:, None, None].expand(-1, 2, 9, -1),
}


@pytest.mark.parametrize("wrong", WRONG_SIEVES)
def test_a_sieve_of_another_shape_is_refused(bert: Encoder, wrong: str) -> None:
    mine = sieve("mine", "whatever")(WRONG_SIEVES[wrong])
    attention = random_attention(31)
    n, length = len(attention.batch), attention.batch.length
    with pytest.raises(BadValue, match=r"relation 'mine' gave torch\.\w+ of shape \(") as caught:
        bias_metric(mine)(attention)
    for shape in ((n, length), (n, length, length)):
        assert str(shape) in str(caught.value)
    with pytest.raises(BadValue, match=r"expected booleans of shape \(batch, key\)"):
        measure(bert, corpus_of(FERRY, BRIDGE), [bias_metric(mine)], **SETTINGS)


def test_bad_windows_and_directions_are_refused() -> None:
    for window in (0, -2):
        with pytest.raises(BadValue, match=f"is {window}; expected 1 or more"):
            local(window)
    with pytest.raises(BadValue, match="direction is 'up'; expected one of dep->head, head->dep"):
        syntactic(["nsubj"], direction="up")


def test_a_sieve_without_a_plain_name_is_refused(bert: Encoder) -> None:
    mine = sieve("my sieve", "whatever")(lambda batch: batch.comma)
    with pytest.raises(BadValue, match="bias_my sieve"):
        measure(bert, corpus_of(FERRY), [bias_metric(mine)])


# --- trees laid over texts -----------------------------------------------------------------------

WRITTEN: tuple[Example, ...] = (
    Segment("plain", "The old dog chased a small cat."),
    Segment("spaced", "  The old  dog\n\nquickly chased a   small cat. "),
    TaskExample(
        "pair", "They don't know it.", "The well-known dog cannot  bark, Mr. Smith said.", 1
    ),
    FERRY,
    Segment("words", ("The", "old", "dog", "doesn't", "chase", "New York", "cats", ".")),
    Segment("word pair", ("Go", "!"), ("She", "saw", "him", ".")),
    Segment("marks", "Wait... what?! (Yes.) It's 5 o'clock – she'd've left; U.S. cafés don't."),
    TaskExample("unlabelled", "A", None, None),
)


@pytest.fixture(scope="module")
def overlaid() -> Corpus:
    return with_trees(corpus_of(*WRITTEN))


def arcs_of(example: Any, words: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Word to (head, label), for a text whose words differ."""
    return {
        word: (words[head] if head >= 0 else "", label)
        for word, head, label in zip(words, example.heads, example.relations, strict=True)
    }


@pytest.mark.assets
def test_trees_do_not_change_what_a_model_reads(e5_small: Encoder, overlaid: Corpus) -> None:
    bare, parsed = (list(encode(c, e5_small)) for c in (WRITTEN, overlaid.examples))
    assert len(bare) == len(parsed) == len(WRITTEN)
    for before, after in zip(bare, parsed, strict=True):
        for column in ("index", "ids", "segment", "sentence"):
            assert getattr(before, column) == getattr(after, column)
        special = [i for i, word in enumerate(before.word) if word < 0]
        assert special == [i for i, word in enumerate(after.word) if word < 0]
        assert after.heads is not None
        assert max(after.word) < len(after.heads)


@pytest.mark.assets
def test_pieces_go_with_the_parsers_word_they_begin_in(e5_small: Encoder, overlaid: Corpus) -> None:
    """By the tokenizer's own offsets, text by text."""
    texts = [e for e in overlaid.examples if isinstance(e, ParsedText) and e.word_starts]
    assert len(texts) == 5
    for example in texts:
        (pieces,) = encode([example], e5_small)
        coded = e5_small.tokenizer(example.text, example.pair, return_offsets_mapping=True)
        assert coded["input_ids"] == pieces.ids
        for i, (part, (start, _)) in enumerate(
            zip(coded.sequence_ids(0), coded["offset_mapping"], strict=True)
        ):
            if part is None:
                assert pieces.word[i] == -1
                continue
            begun = [w for w, place in enumerate(example.word_starts[part]) if place <= start]
            assert pieces.word[i] == begun[-1] + part * len(example.word_starts[0])


@pytest.mark.assets
@pytest.mark.parametrize("name", ["plain", "spaced"])
def test_white_space_is_no_word(e5_small: Encoder, overlaid: Corpus, name: str) -> None:
    example = next(e for e in overlaid.examples if e.id == name)
    words = [*("The", "old", "dog"), *["quickly"] * (name == "spaced"), "chased"]
    words += ["a", "small", "cat", "."]
    arcs = arcs_of(example, words)
    assert arcs["old"] == ("dog", "amod")
    assert arcs["dog"] == ("chased", "nsubj")
    assert arcs["cat"] == ("chased", "dobj")
    assert arcs["chased"] == ("", "root")
    assert name == "plain" or arcs["quickly"] == ("chased", "advmod")
    assert example.word_starts is not None
    for word, start in zip(words, example.word_starts[0], strict=True):
        assert example.text[start:].startswith(word)
    batch = next(batches(encode([example], e5_small), e5_small))
    cat = e5_small.tokenizer.convert_tokens_to_ids("cat")
    place = batch.ids[0].tolist().index(cat)
    assert int(batch.governor[0, place]) == words.index("chased")
    assert int(batch.dependency[0, place]) == dependency_id("dobj")


@pytest.mark.assets
def test_contractions_and_pairs(e5_small: Encoder, overlaid: Corpus) -> None:
    example = next(e for e in overlaid.examples if e.id == "pair")
    first = ["They", "do", "n't", "know", "it", "."]
    second = ["The", "well", "-", "known", "dog", "can", "not", "bark", ",", "Mr.", "Smith", "said"]
    assert len(example.heads) == len(first) + len(second) + 1
    assert example.word_starts is not None
    assert [len(starts) for starts in example.word_starts] == [len(first), len(second) + 1]
    assert example.heads[first.index("They")] == first.index("know")
    assert example.heads[first.index("n't")] == first.index("know")
    bark = len(first) + second.index("bark")
    assert example.heads[len(first) + second.index("dog")] == bark
    assert example.relations[len(first) + second.index("dog")] == "nsubj"
    inside = [head < len(first) for head in example.heads if head >= 0]
    assert inside == sorted(inside, reverse=True), "an arc leads from one text to the other"
    (pieces,) = encode([example], e5_small)
    tokens = e5_small.tokenizer.convert_ids_to_tokens(pieces.ids)
    by_piece = dict(zip(tokens, pieces.word, strict=True))
    assert [by_piece[piece] for piece in ("don", "'", "t")] == [1, 2, 2]  # do, n't
    assert by_piece["cannot"] == len(first) + second.index("can")
    assert len(first) + second.index("not") not in pieces.word, "a word that has no piece"


@pytest.mark.assets
def test_given_words_stay_as_they_are(overlaid: Corpus) -> None:
    example = next(e for e in overlaid.examples if e.id == "words")
    words = WRITTEN[4].parts[0]
    assert (example.parts, example.word_starts) == ((words,), None)
    assert len(example.heads) == len(words)
    assert arcs_of(example, words)["old"] == ("dog", "amod")
    pair = next(e for e in overlaid.examples if e.id == "word pair")
    assert len(pair.heads) == 6
    assert pair.heads[2] == pair.heads[4] == 3  # She and him, of saw
    assert (pair.relations[2], pair.relations[4]) == ("nsubj", "dobj")


@pytest.mark.assets
def test_gold_trees_labels_and_order_are_kept(overlaid: Corpus) -> None:
    assert [e.id for e in overlaid.examples] == [e.id for e in WRITTEN]
    assert overlaid.examples[3] is FERRY
    assert [getattr(e, "label", None) for e in overlaid.examples] == [
        getattr(e, "label", None) for e in WRITTEN
    ]
    for before, after in zip(WRITTEN, overlaid.examples, strict=True):
        assert after.parts == before.parts
    assert overlaid.digest == examples_digest(overlaid.examples) != corpus_of(*WRITTEN).digest
    assert with_trees(overlaid) is overlaid


def test_a_corpus_of_gold_trees_needs_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "attnlib.data.parser.pipeline", partial(pytest.fail, "the parser was called")
    )
    gold = corpus_of(FERRY, CUT)
    assert with_trees(gold) is gold


@pytest.mark.assets
def test_syntactic_biases_of_parsed_texts_are_defined(bert: Encoder, overlaid: Corpus) -> None:
    found = measure(bert, overlaid, ["bias_nsubj", "bias_dobj", "bias_amod"], max_length=66)
    assert (found.estimate("bias_nsubj").n >= 5).all()
    assert (found.estimate("bias_amod").n >= 3).all()


# --- planted bugs --------------------------------------------------------------------------------

Share = Callable[..., tuple[Tensor, Tensor]]
even_share = sieves.even_share


def share_with(divisor: Callable[[Batch, Tensor], Tensor]) -> Share:
    """Even shares with another divisor."""

    def share(batch: Batch, held: Tensor, variant: str, **given: Any) -> tuple[Tensor, Tensor]:
        _, asked = even_share(batch, held, variant, **given)
        n = batch.n_real if held.dim() == 2 else batch.n_real.unsqueeze(-1)
        return torch.where(held.any(-1), n / divisor(batch, held), 0.0), asked

    return share


def counts_padding(batch: Batch, held: Tensor, variant: str, **given: Any) -> tuple[Tensor, Tensor]:
    """n is the width of the batch."""
    counts, asked = even_share(batch, held, variant, **given)
    n = batch.n_real if held.dim() == 2 else batch.n_real.unsqueeze(-1)
    return counts * batch.length / n, asked


def asks_everybody(batch: Batch, held: Tensor, variant: str, **given: Any) -> tuple[Tensor, Tensor]:
    """An empty sieve counts as a score of 0."""
    counts, _ = even_share(batch, held, variant, **given)
    return counts, batch.n_real


def asks_pieces(batch: Batch, held: Tensor, variant: str, **given: Any) -> tuple[Tensor, Tensor]:
    """The authors' rule forgotten: the paper's instead."""
    return even_share(batch, held, "paper", **given)


WRONG_SHARES: dict[str, tuple[str, Share]] = {
    "divisor one too large": ("bias_local", share_with(lambda batch, held: held.sum(-1) + 1)),
    "divisor of a full window": ("bias_local", share_with(lambda b, h: torch.tensor(5.0))),
    "divisor of a full side": ("bias_next_local", share_with(lambda b, h: torch.tensor(2.0))),
    "a sum, not a mean": ("bias_sep", share_with(lambda b, h: torch.tensor(1.0))),
    "governors of one piece": ("bias_nsubj", share_with(lambda b, h: torch.tensor(1.0))),
    "n counts padding in pairs": ("bias_block", counts_padding),
    "n counts padding in keys": ("bias_delimiter", counts_padding),
    "everybody is asked": ("bias_syntactic", asks_everybody),
    "borders are asked": ("bias_previous_local", asks_everybody),
    "authors' last divisors forgotten": ("bias_local@authors", asks_pieces),
    "authors' words forgotten": ("bias_syntactic@authors", asks_pieces),
}


def rejected(metric: Metric, key: str) -> tuple[bool, bool]:
    """Whether the oracle tells a metric from the one it should be: alone, and in the product."""
    found = varied()
    alone = any(disagreement(key, metric, a, OF_A_BIAS) for a in found)
    together = any(
        disagreement(key, lambda a: all_masses(a, [metric])[0], a, OF_A_BIAS) for a in found
    )
    return alone, together


def metric_of(relation: Relation, key: str) -> Metric:
    """The metric of a relation under the name of another one."""
    _, _, variant = key.partition("@")
    return replace(bias_metric(relation), key=key, variant=variant or "paper")


@pytest.mark.parametrize("bug", WRONG_SHARES)
def test_planted_wrong_share_is_rejected(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, share = WRONG_SHARES[bug]
    relation = SIEVES[key.partition("@")[0].removeprefix("bias_")]
    assert rejected(metric_of(relation, key), key) == (False, False), "the right one is rejected"
    monkeypatch.setattr(sieves, "even_share", share)
    assert rejected(metric_of(relation, key), key) == (True, True)


def any_governor(batch: Batch) -> Tensor:
    """Labels forgotten, and the -1 of a root taken for the -1 of a special token."""
    return batch.governor.unsqueeze(2) == batch.word.unsqueeze(1)


def first_piece_of_the_governor(batch: Batch) -> Tensor:
    opens = torch.ones_like(batch.word, dtype=torch.bool)
    opens[:, 1:] = batch.word[:, 1:] != batch.word[:, :-1]
    return SIEVES["amod"].pairs_in(batch) & opens.unsqueeze(1)


def last_sep(batch: Batch) -> Tensor:
    return batch.sep & (batch.sep.flip(-1).cumsum(-1).flip(-1) == 1)


def block_with_special_tokens(batch: Batch) -> Tensor:
    pair = SIEVES["block"].pairs_in(batch).any(-1).any(-1)
    return (batch.segment.unsqueeze(2) == batch.segment.unsqueeze(1)) & pair[:, None, None]


def block_of_any_text(batch: Batch) -> Tensor:
    content = batch.word >= 0
    same = batch.segment.unsqueeze(2) == batch.segment.unsqueeze(1)
    return same & content.unsqueeze(2) & content.unsqueeze(1)


def window_without_itself(batch: Batch) -> Tensor:
    own = torch.eye(batch.length, dtype=torch.bool, device=batch.device)
    return SIEVES["local"].pairs_in(batch).expand(len(batch), -1, -1) & ~own


def planted(held: Callable[[Batch], Tensor]) -> Relation:
    return sieve("planted", "planted")(held)


WRONG_SIEVE: dict[str, tuple[str, Relation]] = {
    "window too wide": ("bias_local", local(3)),
    "window too narrow": ("bias_previous_local", local(1, after=False)),
    "window without itself": ("bias_local", planted(window_without_itself)),
    "previous and next swapped": ("bias_next_local", SIEVES["previous_local"]),
    "from head to dependent": ("bias_nsubj", syntactic(["nsubj"], direction="head->dep")),
    "in both directions": ("bias_amod", syntactic(["amod"], direction="both")),
    "obj forgotten": ("bias_dobj", syntactic(["dobj"])),
    "dobj forgotten": ("bias_dobj", syntactic(["obj"])),
    "obj forgotten among all": (
        "bias_syntactic",
        syntactic(["nsubj", "dobj", "amod", "advmod"]),
    ),
    "one label too many": ("bias_advmod", syntactic(["advmod", "det"])),
    "any label, and roots": ("bias_syntactic", planted(any_governor)),
    "first piece only": ("bias_amod", planted(first_piece_of_the_governor)),
    "first [SEP] missed": ("bias_sep", planted(last_sep)),
    "[CLS] missed": ("bias_delimiter", SIEVES["sep"]),
    "blocks with special tokens": ("bias_block", planted(block_with_special_tokens)),
    "blocks of one text": ("bias_block", planted(block_of_any_text)),
}


@pytest.mark.parametrize("bug", WRONG_SIEVE)
def test_planted_wrong_sieve_is_rejected(bug: str) -> None:
    key, relation = WRONG_SIEVE[bug]
    assert rejected(metric_of(relation, key), key) == (True, True)


@pytest.mark.parametrize("role", ["local", "next_local", "sentence"])
def test_planted_sieve_that_forgets_padding_is_rejected(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding keys in |S|, and the garbage of padding queries in the sum."""
    relation = same_sentence if role == "sentence" else SIEVES[role]
    monkeypatch.setitem(ORACLES, "bias_sentence", own_oracle(same_sentence))
    monkeypatch.setitem(ASKED, "bias_sentence", len)
    assert rejected(bias_metric(relation), f"bias_{role}") == (False, False)
    everywhere = property(
        lambda batch: torch.ones_like(batch.real[:, None] & batch.real[..., None])
    )
    monkeypatch.setattr(Batch, "real_pairs", everywhere)
    assert rejected(bias_metric(relation), f"bias_{role}") == (True, True)


def own_oracle(relation: Relation) -> oracles.Oracle:
    keys = next(keys for mine, keys in OWN.values() if mine is relation)
    return lambda maps, text: oracles.sieve_bias(maps, text, keys)


BLOCK = "bias_block@authors"


def test_planted_block_without_entropy_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = property(lambda attention: torch.ones_like(attention.weights[..., 0]))
    monkeypatch.setattr(Attention, "row_entropy", flat)
    assert any(disagreement(BLOCK, METRICS[BLOCK], a, OF_A_BIAS) for a in varied())


@pytest.mark.parametrize("unmarked", ["cls", "sep"])
def test_planted_block_with_wrong_owners_is_rejected(unmarked: str) -> None:
    """Without its mark a [SEP] asks for the text that it closes, a [CLS] still for the first."""

    def kernel(attention: Attention) -> Partial:
        batch = attention.batch
        changed = replace(batch, **{unmarked: torch.zeros_like(batch.real)})
        return METRICS[BLOCK](Attention(attention.weights, changed))

    faults = [disagreement(BLOCK, kernel, a, OF_A_BIAS) for a in varied()]
    assert any(faults) == (unmarked == "sep")


@pytest.mark.parametrize("key", [key for key in KEYS if "@" in key])
def test_the_authors_rules_are_told_from_the_papers(key: str) -> None:
    paper = METRICS[key.partition("@")[0]]
    assert any(disagreement(key, paper, attention, OF_A_BIAS) for attention in varied())


# --- precision -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_half_precision_loses_no_more_than_its_maps_did(dtype: torch.dtype) -> None:
    half = in_dtype(random_attention(32, longest=40), dtype)
    for key in KEYS:
        for found, (maps, text) in zip(METRICS[key](half).value, cropped(half), strict=True):
            np.testing.assert_allclose(found, ORACLES[key](maps, text), rtol=1e-5, atol=1e-6)
