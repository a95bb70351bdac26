"""GLUE's metrics from plain arrays, and labelled examples checked against their task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.errors import BadValue, CorpusError, UnknownName, did_you_mean

Numbers = NDArray[np.float64]
POSITIVE = 1
"""The class that F1 is about: a paraphrase, a duplicate."""


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """The share of predictions that equal their label; NaN of none."""
    predicted, true = _paired(predictions, labels)
    return float((predicted == true).mean()) if len(true) else math.nan


def f1(predictions: ArrayLike, labels: ArrayLike) -> float:
    r"""Harmonic mean of precision and recall of class 1.

    .. math:: F_1 = \frac{2 TP}{2 TP + FP + FN}

    0 without a true positive, also where none is predicted and precision is 0/0: so does
    scikit-learn, which GLUE's scorers call. NaN only if class 1 is neither predicted nor there;
    scikit-learn says 0 to that too.
    """
    predicted, true = _paired(predictions, labels)
    named, wanted = predicted == POSITIVE, true == POSITIVE
    n_either = int(named.sum() + wanted.sum())  # 2 TP + FP + FN
    return 2 * int((named & wanted).sum()) / n_either if n_either else math.nan


def matthews(predictions: ArrayLike, labels: ArrayLike) -> float:
    r"""Matthews' correlation, for any number of classes (Gorodkin's form).

    .. math:: \frac{\sum_k \mathrm{cov}(p_k, t_k)}
              {\sqrt{\sum_k \mathrm{var}(p_k) \sum_k \mathrm{var}(t_k)}}

    p_k and t_k are 1 where class k is predicted, where it is true. NaN if all predictions or all
    labels are one class; scikit-learn says 0 to that.
    """
    predicted, true = _paired(predictions, labels)
    if _constant(predicted) or _constant(true):
        return math.nan
    classes = np.union1d(predicted, true)
    p, t = ((x[:, None] == classes).astype(np.float64) for x in (predicted, true))
    p, t = p - p.mean(0), t - t.mean(0)
    return float((p * t).sum() / math.sqrt((p * p).sum() * (t * t).sum()))


def pearson(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Pearson's correlation; NaN if either side is constant or there are fewer than two."""
    predicted, true = _paired(predictions, labels)
    if _constant(predicted) or _constant(true):
        return math.nan
    p, t = predicted - predicted.mean(), true - true.mean()
    p, t = p / np.abs(p).max(), t / np.abs(t).max()  # tiny spreads would underflow when squared
    return float(np.clip((p * t).sum() / math.sqrt((p * p).sum() * (t * t).sum()), -1, 1))


def spearman(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Spearman's rank correlation, ties at their mean rank; NaN where Pearson's is."""
    predicted, true = _paired(predictions, labels)
    return pearson(rankdata(predicted), rankdata(true))


METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    metric.__name__: metric for metric in (accuracy, f1, matthews, pearson, spearman)
}
COMPANIONS = {
    "accuracy": (),
    "f1": ("accuracy",),
    "matthews": ("accuracy",),
    "pearson": ("spearman",),
    "spearman": ("pearson",),
}
"""What GLUE's table shows beside a task's metric."""


def scores(task: Task, predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """The task's own metric, then its usual companions; what is undefined is NaN."""
    names = (task.metric, *COMPANIONS[task.metric])
    return {name: METRICS[name](predictions, labels) for name in names}


def known_task(task: str | Task) -> Task:
    """The task of that name, or the given one if its metric is known here."""
    if isinstance(task, str):
        if task not in TASKS:
            raise UnknownName(
                f"task '{task}' is unknown. {did_you_mean(task, TASKS)}Known: {', '.join(TASKS)}."
            )
        return TASKS[task]
    if task.metric not in METRICS:
        raise UnknownName(
            f"metric '{task.metric}' of task '{task.name}' is unknown. "
            f"{did_you_mean(task.metric, METRICS)}Known: {', '.join(METRICS)}."
        )
    return task


def labels_of(corpus: Corpus, task: Task) -> Numbers:
    """The labels of a corpus (example,), each checked against the task."""
    if corpus.kind != "task":
        raise CorpusError(
            f"{corpus.name} holds examples of kind '{corpus.kind}', which have no labels; expected "
            f"labelled examples of {task.name}. Use a corpus such as {task.name}:train, or a "
            ".jsonl file of your own with a label in each line."
        )
    if not corpus.examples:
        raise CorpusError(f"{corpus.name} is empty; expected labelled examples of {task.name}.")
    check_parts(corpus.examples, task)
    return np.array([_label(example, task) for example in corpus.examples], dtype=np.float64)


def check_parts(examples: Sequence[Any], task: Task) -> None:
    """Refuse one text for a task of pairs, and two texts for a task of single texts."""
    for example in examples:
        n_given = len(example.parts)
        if n_given != 1 + task.pair:
            raise CorpusError(
                f"example '{example.id}' has {_texts(n_given)}; expected {_texts(1 + task.pair)} "
                f"for {task.name}. Check that the corpus belongs to the task."
            )


def check_varied(labels: Numbers, corpus: Corpus, task: Task) -> None:
    """Refuse to learn from examples that all have the same label."""
    if not _constant(labels):
        return
    what = f"the score {labels[0]:g}" if task.regression else f"'{task.labels[int(labels[0])]}'"
    raise CorpusError(
        f"all examples of {corpus.name} ({len(labels)}) have the label {what}; expected two "
        f"different labels of {task.name} or more to learn from. Use more examples."
    )


def class_counts(labels: Numbers, task: Task) -> dict[str, int]:
    """How many examples each class has; {} for a task of scores."""
    found = Counter(labels.tolist())
    return {name: found[index] for index, name in enumerate(task.labels)}


def _label(example: Any, task: Task) -> float:
    label = example.label
    if label is None:
        given, advice = "no label", "Test labels are often withheld: use the train or dev split."
    elif not isinstance(label, Real):
        given, advice = f"the label {label!r}", "Give the class index or the score."
    elif task.regression:
        low, high = task.bounds or (-math.inf, math.inf)
        if math.isfinite(label) and low <= float(label) <= high:
            return float(label)
        given, advice = f"the label {label!r}", "Mend the example or drop it."
    elif label in range(task.n_labels):
        return float(label)
    else:
        given, advice = f"the label {label!r}", "Mend the example or name the task it belongs to."
    raise CorpusError(f"example '{example.id}' has {given}; expected {_expected(task)}. {advice}")


def _expected(task: Task) -> str:
    if not task.regression:
        classes = ", ".join(f"{index} ({name})" for index, name in enumerate(task.labels))
        return f"one of {classes} for {task.name}"
    if task.bounds is None:
        return f"a finite score for {task.name}"
    return f"a score from {task.bounds[0]:g} to {task.bounds[1]:g} for {task.name}"


def _texts(number: int) -> str:
    return "a single text" if number == 1 else "a pair of texts"


def _constant(values: Numbers) -> bool:
    return bool((values == values[:1]).all())


def _paired(predictions: ArrayLike, labels: ArrayLike) -> tuple[Numbers, Numbers]:
    """Both as numbers, or one sentence on why they cannot be compared."""
    found = np.asarray(predictions, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if found[0].ndim != 1 or found[0].shape != found[1].shape:
        raise BadValue(
            f"predictions have shape {found[0].shape} and labels {found[1].shape}; expected two "
            "lists of the same length."
        )
    for name, values in zip(("prediction", "label"), found, strict=True):
        if not np.isfinite(values).all():
            place = int(np.flatnonzero(~np.isfinite(values))[0])
            raise BadValue(
                f"{name} {place + 1} of {len(values)} is {values[place]}; expected finite numbers. "
                "Drop what has no answer before scoring."
            )
    return found
