"""What changed heads cost, against single passes, loops and closed forms; intervals and p."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from attnlib.attention import ablation as sweeps
from attnlib.attention.ablation import run_changed
from attnlib.attention.encode import Collator, tokenized
from attnlib.attention.interventions import Intervention
from attnlib.data.examples import Answer, Question
from attnlib.data.tasks import TASKS
from attnlib.errors import AttnlibError, BadValue, CorpusError
from attnlib.models import Encoder, load_encoder
from attnlib.progress import watched
from bookkit.claims import Finding
from experiments.shared import ablation
from experiments.shared.ablation import (
    Answers,
    Outcome,
    ablated,
    beyond_random,
    disabled,
    drawn_changes,
    every_head_and_layer,
    harm_p_value,
    p_values,
    paired_loss,
    points,
    spread_out,
)
from experiments.shared.intervals import drawn_weights
from experiments.shared.training.finetune import FineTuned, finetuned
from experiments.shared.training.glue import accuracy, f1, pearson
from experiments.shared.training.spanmodel import SpanHead, SpanReader
from tests.experiments.shared.training.test_finetune import SHORT, planted, scored
from tests.families import HEADS, LAYERS, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

MAX_LENGTH, STRIDE, MAX_ANSWER = 24, 6, 30
TEXTS = (
    "it rained. we took that old bridge over snow, so school stayed closed after nine. who had "
    "known it? engineers did.",
    "small road was closed. we wait. her river bridge had so old snow that it closed after week.",
    "old bridge",
    "why did it run? so we took it after nine, in snow. river closed.",
)


def question(number: int, text: str, *answers: str) -> Question:
    found = tuple(Answer(one, text.index(one)) for one in answers)
    return Question(f"q{number}", "why did it", text, found, f"article {number % 2}")


QUESTIONS = (
    question(0, TEXTS[0], "snow, so school stayed", "engineers did", "it rained. we"),
    question(1, TEXTS[1], "river bridge", "we wait. her"),
    question(2, TEXTS[2], "bridge"),
    question(3, TEXTS[3], "took it"),
    question(4, TEXTS[0], TEXTS[0]),  # longer than any window
)

VARIANTS: dict[str, tuple[Intervention, ...]] = {
    "as it is": (),
    "zero": (Intervention(frozenset({(0, 1), (1, 0), (2, 3)}), "zero"),),
    "last layer": (Intervention(frozenset((2, head) for head in range(HEADS)), "uniform"),),
    "two at once": (
        Intervention(frozenset({(1, 1), (1, 2)}), "no_intra"),
        Intervention(frozenset({(2, 0), (0, 0)}), "no_inter", renormalise=True),
    ),
    "all": (Intervention(frozenset((a, b) for a in range(LAYERS) for b in range(HEADS)), "zero"),),
}


def reader_on(encoder: Encoder, seed: int = 0) -> SpanReader:
    """A head whose logits lie far apart, and windows much shorter than the paragraphs."""
    head = SpanHead(encoder, seed).eval().requires_grad_(False)
    with torch.inference_mode(False):
        head.out.weight.data.mul_(40)
    return SpanReader(encoder, head, {"recipe": {"max_length": MAX_LENGTH}, "stride": STRIDE})


@pytest.fixture(scope="module")
def reader(folders: Callable[[str], Path]) -> SpanReader:
    return reader_on(load_encoder(folders("bert"), device="cpu"))


# --- the oracle: a pass for every variant and window, and every span tried ------------------------


def words_of(text: str) -> list[str]:
    """None of the tests' words is an article, and all are in lower case."""
    return "".join(c for c in text if c not in ".,?").split()


def f1_of(given: str, accepted: str) -> float:
    common = sum((Counter(words_of(given)) & Counter(words_of(accepted))).values())
    return 2 * common / (len(words_of(given)) + len(words_of(accepted)))


def naive(
    reader: SpanReader, asked: Question, variant: Sequence[Intervention]
) -> tuple[str, float, float, float]:
    """The answer, its exact match and F1, and the loss, of one question under one variant."""
    best, text, losses = -math.inf, "", []
    for window in reader.windows([asked]):
        batch = Collator(reader.encoder)([replace(window.encoded, index=0)])
        logits = reader.head(run_changed(reader.encoder, batch, variant))[0].double().tolist()
        inside = [piece for piece, place in enumerate(window.places) if place is not None]
        for first in inside:
            for last in inside:
                score = logits[first][0] + logits[last][1]
                if first <= last < first + MAX_ANSWER and score > best:
                    best = score
                    text = asked.context[window.places[first][0] : window.places[last][1]]
        start = asked.answers[0].start
        end = start + len(asked.answers[0].text)
        firsts = [piece for piece in inside if window.places[piece][0] == start]
        lasts = [piece for piece in inside if window.places[piece][1] == end]
        if firsts and lasts:
            ends = ((firsts[0], 0), (lasts[0], 1))
            total = [sum(math.exp(logits[p][side]) for p in [0, *inside]) for _, side in ends]
            both = [
                math.log(t) - logits[piece][side]
                for t, (piece, side) in zip(total, ends, strict=True)
            ]
            losses.append(sum(both) / 2)
    accepted = [one.text for one in asked.answers]
    em = float(any(words_of(text) == words_of(one) for one in accepted))
    f1 = max(f1_of(text, one) for one in accepted)
    return text, em, f1, sum(losses) / len(losses) if losses else math.nan


def check_outcome(found: Callable[..., Outcome], reader: SpanReader) -> None:
    outcome = found(reader, QUESTIONS, VARIANTS, batch_size=3)
    assert outcome.names == tuple(VARIANTS)
    for name, variant in VARIANTS.items():
        row = outcome.names.index(name)
        for place, asked in enumerate(QUESTIONS):
            text, em, f1, loss = naive(reader, asked, variant)
            told = f"{name}, {asked.id}: '{text}'"
            assert outcome.em[row, place] == em, told
            assert outcome.f1[row, place] == pytest.approx(f1), told
            assert outcome.loss[row, place] == pytest.approx(loss, abs=1e-4, nan_ok=True), told


def test_every_variant_is_what_single_passes_find(reader: SpanReader) -> None:
    n_windows = Counter(window.question for window in reader.windows(QUESTIONS))
    assert n_windows[0] > 2 and n_windows[1] > 1 and n_windows[2] == 1
    check_outcome(ablated, reader)
    found = ablated(reader, QUESTIONS, VARIANTS)
    assert found.f1.shape == found.em.shape == found.loss.shape == (len(VARIANTS), len(QUESTIONS))
    assert len({tuple(row) for row in found.f1}) >= 3, "the variants of this test are all alike"
    assert np.isnan(found.loss[:, 4]).all() and not np.isnan(found.loss[:, :4]).any()
    assert (found.f1[:, 4] > 0).any()  # an answer can be scored that no window holds


def off_by_one_layer(variants: Any) -> dict[str, tuple[Intervention, ...]]:
    return {
        name: tuple(
            replace(one, heads=frozenset(((a + 1) % LAYERS, b) for a, b in one.heads))
            for one in variant
        )
        for name, variant in variants.items()
    }


@pytest.mark.parametrize("bug", ["next layer", "only the first", "order", "all windows"])
def test_planted_bugs_are_caught(
    bug: str, reader: SpanReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(model: SpanReader, asked: Any, variants: Any, **options: Any) -> Outcome:
        if bug == "next layer":
            return ablated(model, asked, off_by_one_layer(variants), **options)
        if bug == "only the first":
            first = {name: variant[:1] for name, variant in variants.items()}
            return ablated(model, asked, first, **options)
        if bug == "order":
            turned = ablated(model, asked, dict(reversed(variants.items())), **options)
            return replace(turned, names=tuple(variants))
        return ablated(model, asked, variants, **options)

    if bug == "all windows":  # those without the answer count with [CLS], as in training
        honest = ablation._losses

        def shifted(model: Any, hidden: Any, batch: Any, windows: Any, wanted: Any) -> Any:
            found = honest(model, hidden, batch, windows, wanted)
            return np.where(np.isnan(found), 3.0, found)

        monkeypatch.setattr(ablation, "_losses", shifted)
    with pytest.raises(AssertionError):
        check_outcome(wrong, reader)


def test_no_change_is_the_reader_as_it_is(reader: SpanReader) -> None:
    found = ablated(reader, QUESTIONS, {"none": ()})
    best = reader.answers(QUESTIONS, n_best=1)
    for place, asked in enumerate(QUESTIONS):
        text = best[place][0].text
        accepted = [one.text for one in asked.answers]
        assert found.f1[0, place] == pytest.approx(max(f1_of(text, one) for one in accepted))


def test_batches_and_order_do_not_matter(reader: SpanReader) -> None:
    one = ablated(reader, QUESTIONS, VARIANTS, batch_size=16)
    turned = dict(reversed(VARIANTS.items()))
    other = ablated(reader, QUESTIONS[::-1], turned, batch_size=1)
    for name in VARIANTS:
        here, there = one.names.index(name), other.names.index(name)
        np.testing.assert_array_equal(one.f1[here], other.f1[there][::-1])
        np.testing.assert_allclose(one.loss[here], other.loss[there][::-1], atol=1e-4)


def test_layers_before_a_change_run_once(
    reader: SpanReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One plain pass of a batch and one pass for each variant that changes anything."""
    seen = []
    honest = sweeps._answer
    monkeypatch.setattr(sweeps, "_answer", lambda *given: seen.append(1) or honest(*given))
    late = {
        f"{head}": (Intervention(frozenset({(LAYERS - 1, head)}), "zero"),) for head in range(3)
    }
    ablated(reader, QUESTIONS[2:3], {"none": (), **late})
    assert len(seen) == 1 + len(late)


def test_progress_counts_batches(reader: SpanReader) -> None:
    told: list[tuple[int, int]] = []
    few = dict(list(VARIANTS.items())[:2])
    with watched(lambda done, total: told.append((done, total))):
        ablated(reader, QUESTIONS, few, batch_size=4)
    total = math.ceil(len(reader.windows(QUESTIONS)) / 4)
    assert told == [(done, total) for done in range(1, total + 1)]


def test_what_cannot_be_ablated_is_refused(reader: SpanReader) -> None:
    with pytest.raises(CorpusError, match="it is empty"):
        ablated(reader, [], {"none": ()})
    beyond = {"beyond": (Intervention(frozenset({(LAYERS, 0)}), "zero"),)}
    with pytest.raises(BadValue, match=f"head {LAYERS + 1}-1 is not in"):
        ablated(reader, QUESTIONS[:1], beyond)


def test_a_question_without_an_answer_is_refused(reader: SpanReader) -> None:
    with pytest.raises(AttnlibError, match="q0"):
        ablated(reader, [replace(QUESTIONS[0], answers=())], {"none": ()})


# --- differences on the same questions ------------------------------------------------------------

SIZES = (1, 2, 3, 5, 8, 3, 4, 1, 6, 2, 4, 3, 7, 2)
NUMBERS = [group for group, size in enumerate(SIZES) for _ in range(size)]
GROUPS = [f"article {number}" for number in NUMBERS]


def scores(seed: int, *shape: int) -> np.ndarray:
    """Scores of the questions of uneven articles; questions on one article are alike."""
    generator = np.random.default_rng(seed)
    level = generator.uniform(0, 0.6, len(SIZES))[NUMBERS]
    return np.asarray(level + generator.uniform(0, 0.4, (*shape, len(GROUPS))))


def naive_interval(
    one: np.ndarray, others: np.ndarray, groups: Sequence[str], n: int = 2000
) -> tuple[float, float]:
    """Articles and one of the random sets drawn again, a question at a time."""
    generator = np.random.default_rng(99)
    names = sorted(set(groups))
    found = []
    for _ in range(n):
        articles = generator.choice(names, len(names))
        other = others[generator.integers(len(others))]
        places = [p for name in articles for p in range(len(groups)) if groups[p] == name]
        found.append(float(np.mean([other[place] - one[place] for place in places])))
    found.sort()
    return found[round(0.025 * n)], found[round(0.975 * n) - 1]


def check_interval(found: Callable[..., Finding], n_draws: int) -> None:
    one, others = scores(0), scores(1, n_draws) + 0.2 * np.arange(n_draws)[:, None]
    got = found(one, others if n_draws > 1 else others[0], GROUPS)
    assert got.value == pytest.approx(np.mean(others.mean(0) - one))
    low, high = naive_interval(one, others, GROUPS)
    width = high - low
    assert got.low == pytest.approx(low, abs=0.1 * width)
    assert got.high == pytest.approx(high, abs=0.1 * width)
    assert got.low < got.value < got.high


def test_the_interval_is_that_of_a_plain_bootstrap() -> None:
    check_interval(paired_loss, 1)


def test_the_interval_is_where_one_random_set_would_lie() -> None:
    check_interval(beyond_random, 4)


def of_the_mean(one: np.ndarray, sets: np.ndarray, groups: Sequence[str]) -> Finding:
    """The first edition's interval: articles, and all random sets, drawn again, and their mean."""
    generator, n = np.random.default_rng(0), len(sets)
    weights = drawn_weights(groups, 300)
    less = (sets - one) @ weights.T / weights.sum(1)
    chosen = generator.multinomial(n, np.full(n, 1 / n), less.shape[1]) / n
    spread = (chosen * less.T).sum(1)
    return Finding(float(less[:, 0].mean()), *np.percentile(spread[1:], [2.5, 97.5]))


@pytest.mark.parametrize("bug", ["sign", "questions alone", "mean of sets", "mean of articles"])
def test_planted_wrong_differences_are_caught(bug: str) -> None:
    def wrong(one: np.ndarray, other: np.ndarray, groups: Sequence[str]) -> Finding:
        other = np.atleast_2d(other)
        if bug == "sign":
            return beyond_random(-one, -other, groups)
        if bug == "questions alone":
            return beyond_random(one, other, [str(place) for place in range(len(groups))])
        if bug == "mean of sets":
            return of_the_mean(one, other, groups)
        members = [[p for p, g in enumerate(groups) if g == name] for name in sorted(set(groups))]
        even = np.stack([(other - one)[:, places].mean(1) for places in members], axis=1)
        return beyond_random(np.zeros(len(members)), even, sorted(set(groups)))

    with pytest.raises(AssertionError):
        check_interval(wrong, 1 if bug in ("questions alone", "mean of articles") else 4)


@pytest.mark.parametrize(
    ("interval", "least", "most"), [(beyond_random, 0.0, 0.1), (of_the_mean, 0.3, 1.0)]
)
def test_a_random_set_in_the_types_place_is_rarely_different(
    interval: Callable[..., Finding], least: float, most: float
) -> None:
    """About one random set of twenty is called different from the others, not one of three."""
    generator = np.random.default_rng(5)
    groups = [f"a{place % 10}" for place in range(40)]
    of_set, of_question = generator.normal(0, 0.1, (60, 1)), generator.normal(0, 0.2, 40)
    sets = 0.6 + of_set + of_question + generator.normal(0, 0.1, (60, 40))
    found = [interval(one, np.delete(sets, at, 0), groups) for at, one in enumerate(sets)]
    different = np.mean([one.low > 0 or one.high < 0 for one in found])
    assert least <= different <= most


def test_a_set_far_from_all_others_is_different() -> None:
    sets = scores(1, 30)
    groups = [f"a{place}" for place in range(len(GROUPS))]
    assert beyond_random(sets[0] - 1, sets, groups).low > 0
    assert beyond_random(sets[0] + 1, sets, groups).high < 0


def test_a_difference_is_positive_where_the_first_is_lower() -> None:
    lower, higher = np.full(6, 0.25), np.full(6, 0.75)
    groups = ["a", "a", "b", "b", "c", "c"]
    found = paired_loss(lower, higher, groups)
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    found = beyond_random(lower, np.stack([higher, lower]), groups)
    assert found.value == pytest.approx(0.25)
    assert (found.low, found.high) == pytest.approx((0.0, 0.5))  # one of the two sets


def test_swapped_rows_give_the_mirrored_interval() -> None:
    one, other = scores(2), scores(3)
    here, there = paired_loss(one, other, GROUPS), paired_loss(other, one, GROUPS)
    assert (there.value, there.low, there.high) == pytest.approx(
        (-here.value, -here.high, -here.low)
    )


def test_differences_are_seeded() -> None:
    one, other = scores(2), scores(3, 5)
    first = beyond_random(one, other, GROUPS, seed=1)
    assert beyond_random(one, other, GROUPS, seed=1) == first
    again = beyond_random(one, other, GROUPS, seed=2)
    assert again.value == first.value and again.low != first.low


def test_groups_may_be_mixed_and_have_any_name() -> None:
    one, other = scores(2), scores(3)
    order = np.random.default_rng(0).permutation(len(GROUPS))
    names = {
        name: f"x{place}" for place, name in enumerate(dict.fromkeys(GROUPS[i] for i in order))
    }
    mixed = paired_loss(one[order], other[order], [names[GROUPS[i]] for i in order])
    assert mixed.value == pytest.approx(paired_loss(one, other, GROUPS).value)


def test_one_article_has_no_interval() -> None:
    one, other = np.array([0.0, 0.5]), np.array([1.0, 0.5])
    for found in (paired_loss(one, other, ["a", "a"]), beyond_random(one, [other] * 3, ["a"] * 2)):
        assert found.value == 0.5 and math.isnan(found.low) and math.isnan(found.high)


# --- how rare such harm is among random sets ------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "draws", "expected"),
    [
        (0.1, [0.2, 0.3, 0.4], 1 / 4),  # the most harmful of all
        (0.9, [0.2, 0.3, 0.4], 1.0),
        (0.25, [0.2, 0.3, 0.4], 2 / 4),
        (0.3, [0.2, 0.3, 0.4], 3 / 4),  # as harmful counts
        (0.3, [0.1 + 0.2] * 4, 1.0),  # also where only rounding differs
        (0.0, [0.0], 1.0),
        (0.5, [], 1.0),
    ],
)
def test_a_p_value_by_hand(ours: float, draws: list[float], expected: float) -> None:
    assert harm_p_value(ours, np.array(draws)) == pytest.approx(expected)


def test_a_set_like_the_others_has_any_p_value_alike() -> None:
    """Of n + 1 sets that are alike, p is at most x with probability x."""
    generator = np.random.default_rng(0)
    values = generator.random((4000, 20))
    p = np.array([harm_p_value(row[0], row[1:]) for row in values])
    for level in (0.05, 0.25, 0.5):
        assert (p <= level + 1e-9).mean() == pytest.approx(level, abs=0.03)


def test_questions_are_taken_from_the_articles_in_turn() -> None:
    groups = ["b", "b", "b", "a", "c", "c"]
    assert spread_out(groups, 3) == [0, 3, 4]
    assert spread_out(groups, 4) == [0, 1, 3, 4]
    assert spread_out(groups, 5) == [0, 1, 3, 4, 5]
    assert spread_out(groups, 99) == list(range(6))
    assert spread_out(groups, 1) == [3]


# --- answers to the inputs of a task --------------------------------------------------------------


@pytest.fixture(scope="module")
def model(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> FineTuned:
    bert = load_encoder(folders("bert"), device="cpu")
    return finetuned(bert, planted(40), "sst2", recipe=SHORT, cache=tmp_path_factory.mktemp("d"))


def test_a_sweep_has_every_head_and_every_layer(model: FineTuned) -> None:
    variants = every_head_and_layer(model)
    assert len(variants) == LAYERS * HEADS + LAYERS
    assert next(iter(variants)) == "1-1" and list(variants)[-1] == f"layer {LAYERS}"
    (whole,) = variants["layer 2"]
    assert whole.heads == {(1, head) for head in range(HEADS)} and whole.action == "uniform"


def test_answers_are_those_of_whole_passes_one_input_at_a_time(model: FineTuned) -> None:
    corpus = planted(9, seed=3)
    variants = every_head_and_layer(model)
    found = disabled(model, corpus, variants, batch_size=4)
    assert found.names == ("whole", *variants) and found.answers.shape == (len(variants) + 1, 9)
    for row, (name, variant) in enumerate({"whole": (), **variants}.items()):
        for place, example in enumerate(corpus.examples):
            batch = Collator(model.encoder)(list(tokenized([example], model.encoder)))
            with torch.inference_mode():
                logits = model.head(run_changed(model.encoder, batch, variant), batch)
            assert found.answers[row, place] == int(logits.argmax()), (name, place)
    assert np.array_equal(found.answers[0], model.predictions(corpus.examples))
    assert np.array_equal(found.labels, [one.label for one in corpus.examples])


def test_scores_are_answered_for_scores(folders: Callable[[str], Path], tmp_path: Path) -> None:
    bert = load_encoder(folders("bert"), device="cpu")
    own = finetuned(bert, scored(24), "stsb", recipe=SHORT, cache=tmp_path)
    found = disabled(own, scored(7, seed=2), every_head_and_layer(own))
    assert np.allclose(found.answers[0], own.predictions(scored(7, seed=2).examples), atol=1e-6)
    assert len(np.unique(found.answers[0])) > 2


def toy(task: str, n: int = 60, variants: int = 5, seed: int = 0) -> Answers:
    rng = np.random.default_rng(seed)
    names = ("whole", *(f"1-{i}" for i in range(1, variants)))
    if TASKS[task].regression:
        labels = rng.uniform(0, 5, n)
        answers = labels + rng.normal(0, 1, (variants, n))
    else:
        labels = rng.integers(0, 2, n).astype(float)
        answers = np.where(rng.random((variants, n)) < 0.8, labels, 1 - labels)
    return Answers(names, answers, labels, TASKS[task])


@pytest.mark.parametrize("task", ["sst2", "mrpc", "stsb"])
def test_changes_are_those_of_inputs_really_drawn_again(task: str) -> None:
    found = toy(task)
    draws = drawn_changes(found, draws=20, seed=4)
    rng = np.random.default_rng(4)
    n = len(found.labels)
    metric = {"sst2": accuracy, "mrpc": f1, "stsb": lambda a, b: spearmanr(a, b).statistic}[task]
    for row in draws:
        places = rng.integers(0, n, n)
        own = [100 * metric(answers[places], found.labels[places]) for answers in found.answers]
        assert row == pytest.approx(np.subtract(own[1:], own[0]), abs=1e-9)


def test_points_are_the_metric_of_the_task() -> None:
    found = toy("mrpc")
    assert points(found) == pytest.approx([100 * f1(row, found.labels) for row in found.answers])
    found = toy("stsb")
    spearman = [100 * spearmanr(row, found.labels).statistic for row in found.answers]
    assert points(found) == pytest.approx(spearman)
    assert pearson(found.answers[0], found.labels) == pytest.approx(
        np.corrcoef(found.answers[0], found.labels)[0, 1]
    )


def test_p_by_hand() -> None:
    labels = np.ones(10)
    whole, better = np.ones(10), np.ones(10)
    whole[:6] = 0  # six inputs that only the variant gets right
    found = Answers(
        ("whole", "1-1", "1-2"), np.stack([whole, better, whole]), labels, TASKS["sst2"]
    )
    assert p_values(found) == pytest.approx([2 / 2**6, 1.0])


def test_p_is_even_where_nothing_differs_but_chance() -> None:
    """Twelve variants of pure noise, fifty times: one p in twenty is below 0.05."""
    small = np.concatenate(
        [p_values(toy("mrpc", n=80, variants=13, seed=s), draws=200, seed=s) for s in range(25)]
    )
    assert 0.01 < (small <= 0.05).mean() < 0.10 and 0.4 < np.median(small) < 0.6


def test_a_planted_gain_is_found() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200).astype(float)
    whole = np.where(rng.random(200) < 0.7, labels, 1 - labels)
    right = np.where(rng.random(200) < 0.95, labels, 1 - labels)
    for task in ("sst2", "mrpc"):
        found = Answers(("whole", "a", "b"), np.stack([whole, right, whole]), labels, TASKS[task])
        first, second = p_values(found, draws=500)
        assert first < 0.01 and second == 1.0
        assert (np.percentile(drawn_changes(found, seed=1), 2.5, axis=0) > 0).tolist() == [
            True,
            False,
        ]
