"""GLUE's metrics from plain arrays, and labelled examples checked against their task."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.errors import BadValue, CorpusError, check_known

Numbers = NDArray[np.float64]
POSITIVE = 1
"""The class that F1 is about: a paraphrase, a duplicate."""


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> Any:
    """The share of predictions that equal their label; NaN of none."""
    predicted, true = _paired(predictions, labels)
    return _ratio((predicted == true).sum(-1), len(true))


def f1(predictions: ArrayLike, labels: ArrayLike) -> Any:
    r"""Harmonic mean of precision and recall of class 1.

    .. math:: F_1 = \frac{2 TP}{2 TP + FP + FN}

    0 without a true positive, also where none is predicted and precision is 0/0: so does
    scikit-learn, which GLUE's scorers call. NaN only if class 1 is neither predicted nor there;
    scikit-learn says 0 to that too.
    """
    predicted, true = _paired(predictions, labels)
    named, wanted = predicted == POSITIVE, true == POSITIVE
    return _ratio(2 * (named & wanted).sum(-1), named.sum(-1) + wanted.sum())


def pearson(predictions: ArrayLike, labels: ArrayLike) -> Any:
    """Pearson's correlation; NaN if either side is constant or there are fewer than two."""
    p, t = (_centred(values) for values in _paired(predictions, labels))
    return np.clip(_ratio(p @ t, np.sqrt((p * p).sum(-1) * (t * t).sum())), -1, 1)


def _centred(values: Numbers) -> Numbers:
    """Values less their mean; NaN of equals. Tiny ones are scaled: their squares would vanish."""
    apart = values - values.mean(-1, keepdims=True) if values.size else values
    power = np.frexp(np.abs(apart).max(-1, keepdims=True, initial=0))[1]
    equal = (values == values[..., :1]).all(-1, keepdims=True)
    return np.where(equal, np.nan, np.ldexp(apart, -power))  # powers of 2 round nothing


def _ratio(above: ArrayLike, below: ArrayLike) -> Any:
    """above / below; NaN where nothing is below."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.divide(above, below)


def spearman(predictions: ArrayLike, labels: ArrayLike) -> Any:
    """Spearman's rank correlation, ties at their mean rank; NaN where Pearson's is."""
    predicted, true = _paired(predictions, labels)
    return pearson(rankdata(predicted, axis=-1), rankdata(true))


METRICS: dict[str, Callable[[ArrayLike, ArrayLike], Any]] = {
    metric.__name__: metric for metric in (accuracy, f1, pearson, spearman)
}
"""Predictions (*rows, example) and labels (example,) -> a number for every row."""
COMPANIONS = {
    "accuracy": (),
    "f1": ("accuracy",),
    "pearson": ("spearman",),
    "spearman": ("pearson",),
}
"""What GLUE's table shows beside a task's metric."""


def scores(task: Task, predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """The task's own metric, then its usual companions; what is undefined is NaN."""
    names = (task.metric, *COMPANIONS[task.metric])
    return {name: float(METRICS[name](predictions, labels)) for name in names}


def row_scores(answers: Numbers, labels: Numbers, task: Task) -> Numbers:
    """The task's metric of every row of answers (row, example), all at once."""
    return np.asarray(METRICS[task.metric](answers, labels))


def known_task(name: str) -> Task:
    """The task of that name."""
    check_known("task", [name], TASKS)
    return TASKS[name]


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
    texts = ("a single text", "a pair of texts")
    for example in examples:
        if len(example.parts) != 1 + task.pair:
            raise CorpusError(
                f"example '{example.id}' has {texts[not task.pair]}; expected {texts[task.pair]} "
                f"for {task.name}. Check that the corpus belongs to the task."
            )


def check_varied(labels: Numbers, corpus: Corpus, task: Task) -> None:
    """Refuse to learn from examples that all have the same label."""
    if (labels != labels[0]).any():
        return
    what = f"the score {labels[0]:g}" if task.regression else f"'{task.labels[int(labels[0])]}'"
    raise CorpusError(
        f"all examples of {corpus.name} ({len(labels)}) have the label {what}; expected two "
        f"different labels of {task.name} or more to learn from. Use more examples."
    )


def _label(example: Any, task: Task) -> float:
    label = example.label
    low, high = task.bounds or (-math.inf, math.inf)
    if isinstance(label, Real):
        fits = low <= float(label) <= high and math.isfinite(label)
        if fits if task.regression else label in range(task.n_labels):
            return float(label)
    given = "no label" if label is None else f"the label {label!r}"
    raise CorpusError(
        f"example '{example.id}' has {given}; expected {_expected(task)} for {task.name}. Mend the "
        "example or drop it; test labels are often withheld: use the train or dev split."
    )


def _expected(task: Task) -> str:
    if not task.regression:
        classes = ", ".join(f"{index} ({name})" for index, name in enumerate(task.labels))
        return f"a class index, one of {classes}"
    return (
        "a finite score"
        if task.bounds is None
        else "a score from {:g} to {:g}".format(*task.bounds)
    )


def _paired(predictions: ArrayLike, labels: ArrayLike) -> tuple[Numbers, Numbers]:
    """Both as numbers, or one sentence on why they cannot be compared."""
    found = np.asarray(predictions, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if found[1].ndim != 1 or found[0].shape[-1:] != found[1].shape:
        raise BadValue(
            f"predictions have shape {found[0].shape} and labels {found[1].shape}; expected two "
            "lists of the same length."
        )
    for name, values in zip(("prediction", "label"), found, strict=True):
        if not np.isfinite(values).all():
            place = int(np.flatnonzero(~np.isfinite(values))[0])
            raise BadValue(
                f"{name} {place + 1} of {values.size} is {values.flat[place]}; expected finite "
                "numbers. Drop what has no answer before scoring."
            )
    return found
