"""GLUE's metrics against plain loops, and what is refused before a training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment, TaskExample
from attnlib.data.tasks import TASKS, Task
from attnlib.errors import BadValue, CorpusError, UnknownName
from experiments.shared.training import glue

# --- the metrics as loops -------------------------------------------------------------------

Numbers = Sequence[float]


def slow_accuracy(predictions: Numbers, labels: Numbers) -> float:
    right = 0
    for p, t in zip(predictions, labels, strict=True):
        if p == t:
            right += 1
    return right / len(labels)


def slow_f1(predictions: Numbers, labels: Numbers) -> float:
    hits = named = wanted = 0
    for p, t in zip(predictions, labels, strict=True):
        named += p == 1
        wanted += t == 1
        hits += p == 1 and t == 1
    precision, recall = hits / named, hits / wanted
    return 2 * precision * recall / (precision + recall)


def slow_pearson(predictions: Numbers, labels: Numbers) -> float:
    n = len(labels)
    mean_p, mean_t = sum(predictions) / n, sum(labels) / n
    both = one = other = 0.0
    for p, t in zip(predictions, labels, strict=True):
        both += (p - mean_p) * (t - mean_t)
        one += (p - mean_p) ** 2
        other += (t - mean_t) ** 2
    return both / math.sqrt(one * other)


def slow_ranks(values: Numbers) -> list[float]:
    """1 + how many are smaller + half of the others that are equal."""
    return [1 + sum(w < v for w in values) + (sum(w == v for w in values) - 1) / 2 for v in values]


def slow_spearman(predictions: Numbers, labels: Numbers) -> float:
    return slow_pearson(slow_ranks(predictions), slow_ranks(labels))


ORACLES: dict[str, Callable[[Numbers, Numbers], float]] = {
    "accuracy": slow_accuracy,
    "f1": slow_f1,
    "pearson": slow_pearson,
    "spearman": slow_spearman,
}


def drawn(metric: str, seed: int) -> tuple[list[float], list[float]]:
    """Answers that are right more often than not: classes, or scores with ties."""
    generator = np.random.default_rng(seed)
    n = int(generator.integers(12, 60))
    if metric in ("pearson", "spearman"):
        labels = generator.integers(0, 26, n) / 5
        return (labels + generator.normal(0, 1, n).round(1)).tolist(), labels.tolist()
    labels = generator.integers(0, 2, n)
    labels[:2] = 0, 1
    predictions = np.where(generator.random(n) < 0.7, labels, 1 - labels)
    predictions[:2] = 0, 1
    return predictions.tolist(), labels.tolist()


def test_every_metric_has_an_oracle_and_companions() -> None:
    assert set(ORACLES) == set(glue.METRICS) == set(glue.COMPANIONS)
    assert {task.metric for task in TASKS.values()} <= set(glue.METRICS)


@pytest.mark.parametrize("metric", ORACLES)
@pytest.mark.parametrize("seed", range(8))
def test_metrics_are_their_loops(metric: str, seed: int) -> None:
    pair = drawn(metric, seed)
    assert glue.METRICS[metric](*pair) == pytest.approx(ORACLES[metric](*pair), abs=1e-12)


@pytest.mark.parametrize("metric", ORACLES)
def test_rows_are_scored_one_by_one(metric: str) -> None:
    predictions, labels = drawn(metric, 1)
    rows = [predictions, predictions[::-1], [1.0] * len(labels)]
    alone = [glue.METRICS[metric](row, labels) for row in rows]
    assert glue.METRICS[metric](rows, labels) == pytest.approx(alone, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("metric", ["accuracy", "f1"])
def test_shifted_predictions_are_caught(metric: str) -> None:
    predictions, labels = drawn(metric, 3)
    moved = predictions[1:] + predictions[:1]
    assert glue.METRICS[metric](moved, labels) != pytest.approx(
        ORACLES[metric](predictions, labels)
    )


def test_swapped_classes_change_f1_but_not_accuracy() -> None:
    predictions, labels = [1, 1, 1, 0, 0], [1, 1, 0, 0, 1]
    turned = [1 - p for p in predictions], [1 - t for t in labels]
    assert glue.accuracy(*turned) == glue.accuracy(predictions, labels) == 3 / 5
    assert glue.f1(predictions, labels) == pytest.approx(2 / 3)
    assert glue.f1(*turned) == pytest.approx(1 / 2)


def test_closed_forms() -> None:
    scores = [0.0, 1.5, 2.0, 5.0]
    assert glue.pearson([3 * s - 7 for s in scores], scores) == pytest.approx(1)
    assert glue.pearson([-s for s in scores], scores) == pytest.approx(-1)
    assert glue.spearman([s**3 for s in scores], scores) == pytest.approx(1)
    assert glue.pearson([s**3 for s in scores], scores) < 0.99


def test_tiny_spreads_do_not_underflow() -> None:
    scores = [0.0, 1.0, 3.0]
    assert glue.pearson([s * 1e-200 for s in scores], scores) == pytest.approx(1)


def test_undefined_is_nan_and_f1_without_a_hit_is_zero() -> None:
    for metric in ("pearson", "spearman"):
        assert math.isnan(glue.METRICS[metric]([1, 1, 1], [0, 1, 1]))
        assert math.isnan(glue.METRICS[metric]([0, 1, 1], [1, 1, 1]))
    assert math.isnan(glue.pearson([1], [2]))
    assert math.isnan(glue.pearson([0.1, 0.1, 0.1], [0, 1, 2]))  # whose mean is not quite 0.1
    assert glue.f1([0, 0, 0], [0, 1, 1]) == 0
    assert glue.f1([1, 0, 0], [0, 1, 0]) == 0
    assert math.isnan(glue.f1([0, 0], [0, 0]))
    assert all(math.isnan(metric([], [])) for metric in glue.METRICS.values())


@pytest.mark.parametrize(
    ("predictions", "labels", "said"),
    [
        ([1, 0], [1], "shape"),
        ([[1, 0]], [[1, 0]], "shape"),
        ([1, math.nan], [1, 0], "prediction 2 of 2 is nan"),
        ([1, 0], [math.inf, 0], "label 1 of 2 is inf"),
    ],
)
def test_what_cannot_be_compared_is_refused(predictions: Any, labels: Any, said: str) -> None:
    for metric in glue.METRICS.values():
        with pytest.raises(BadValue, match=said):
            metric(predictions, labels)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("mrpc", "qqp", "msrpar"), ["f1", "accuracy"]),
        (("stsb",), ["spearman", "pearson"]),
        (("sst2", "rte", "qnli", "mnli", "rotten-tomatoes"), ["accuracy"]),
    ],
)
def test_scores_of_a_task(names: tuple[str, ...], expected: list[str]) -> None:
    for name in names:
        found = glue.scores(TASKS[name], [0, 1, 1, 0], [0, 1, 0, 0])
        assert list(found) == expected
        assert found == {m: glue.METRICS[m]([0, 1, 1, 0], [0, 1, 0, 0]) for m in expected}


# --- what is refused before a training -------------------------------------------------------

PAIR, SINGLE, SCORE = TASKS["mrpc"], TASKS["sst2"], TASKS["stsb"]


def corpus_of(*examples: Any, kind: str = "task") -> Corpus:
    return Corpus("toy", kind, tuple(examples), {}, "here", "")


def pair(label: Any, name: str = "pair:7") -> TaskExample:
    return TaskExample(name, "It rained.", "So we took the ferry.", label)


@pytest.mark.parametrize(
    ("example", "task", "said"),
    [
        (
            pair(None),
            PAIR,
            ("pair:7", "no label", "0 (not_equivalent), 1 (equivalent)", "withheld"),
        ),
        (pair(2), PAIR, ("pair:7", "label 2;", "1 (equivalent)", "Mend")),
        (pair(-1), PAIR, ("pair:7", "label -1;", "1 (equivalent)")),
        (pair(0.5), PAIR, ("pair:7", "label 0.5;", "1 (equivalent)")),
        (pair(math.nan), PAIR, ("pair:7", "label nan;", "1 (equivalent)")),
        (pair("equivalent"), PAIR, ("pair:7", "label 'equivalent';", "class index")),
        (pair(math.nan), SCORE, ("pair:7", "label nan;", "a score from 0 to 5 for stsb")),
        (pair(math.inf), replace(SCORE, bounds=None), ("pair:7", "inf", "a finite score")),
        (pair(5.1), SCORE, ("pair:7", "label 5.1;", "a score from 0 to 5")),
        (pair(None), SCORE, ("pair:7", "no label", "a score from 0 to 5")),
        (pair(1), SINGLE, ("pair:7", "a pair of texts", "a single text for sst2", "Check")),
        (TaskExample("s:1", "It rained.", None, 1), PAIR, ("s:1", "a single text", "mrpc")),
    ],
)
def test_wrong_examples_are_named(example: TaskExample, task: Task, said: tuple[str, ...]) -> None:
    good = TaskExample("good:1", "Wait.", "So." if task.pair else None, 0)
    with pytest.raises(CorpusError) as refused:
        glue.labels_of(corpus_of(good, example), task)
    assert all(part in str(refused.value) for part in said), refused.value
    assert "good:1" not in str(refused.value)


def test_labels_come_as_numbers() -> None:
    examples = [pair(0), pair(1.0), pair(np.int64(1)), pair(True)]
    assert glue.labels_of(corpus_of(*examples), PAIR).tolist() == [0, 1, 1, 1]
    assert glue.labels_of(corpus_of(pair(0), pair(4.75)), SCORE).tolist() == [0, 4.75]


def test_unlabelled_and_empty_corpora_are_refused() -> None:
    with pytest.raises(CorpusError, match=r"kind 'segment'.*mrpc:train"):
        glue.labels_of(corpus_of(Segment("1", "a", "b"), kind="segment"), PAIR)
    with pytest.raises(CorpusError, match="toy is empty"):
        glue.labels_of(corpus_of(), PAIR)


def test_one_class_alone_is_refused() -> None:
    same = corpus_of(pair(1), pair(1))
    with pytest.raises(CorpusError, match=r"\(2\) have the label 'equivalent'"):
        glue.check_varied(np.array([1.0, 1.0]), same, PAIR)
    with pytest.raises(CorpusError, match=r"the score 2\.5"):
        glue.check_varied(np.array([2.5, 2.5]), same, SCORE)
    glue.check_varied(np.array([1.0, 0.0]), same, PAIR)


def test_unknown_tasks_are_answered() -> None:
    assert glue.known_task("mrpc") is PAIR
    with pytest.raises(UnknownName, match=r"Did you mean 'mrpc'\?"):
        glue.known_task("mrcp")
