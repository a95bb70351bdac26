"""What a fine-tuned model loses, or gains, when heads or whole layers attend evenly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest, rankdata

from attnlib.attention.encode import batches, tokenized, truncated
from attnlib.attention.interventions import Intervention, Variant, replays, single_heads
from attnlib.data.corpora import Corpus
from attnlib.data.tasks import Task
from attnlib.errors import BadValue
from attnlib.measuring.stream import Progress
from experiments.shared.finetune import FineTuned
from experiments.shared.glue import labels_of

DRAWS = 1000


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model answers under each variant; the first is the whole model.

    answers  (variant, example)   class indices or scores
    labels   (example,)
    """

    names: tuple[str, ...]
    answers: NDArray[np.float64]
    labels: NDArray[np.float64]
    task: Task


def every_head_and_layer(model: FineTuned, action: str = "uniform") -> dict[str, Variant]:
    """Each head alone, named "5-4", then each whole layer, named "layer 5" (sec. 4.6)."""
    heads = single_heads(model.encoder)
    variants: dict[str, Variant] = {
        f"{layer + 1}-{head + 1}": (Intervention(frozenset([(layer, head)]), action),)
        for layer, head in heads
    }
    for layer in range(model.encoder.n_layers):
        whole = frozenset(pair for pair in heads if pair[0] == layer)
        variants[f"layer {layer + 1}"] = (Intervention(whole, action),)
    return variants


def disabled(
    model: FineTuned,
    corpus: Corpus,
    variants: Mapping[str, Variant],
    *,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Answers:
    """The answers to a labelled corpus as it is and under each variant."""
    if not variants:
        raise BadValue("no variant was given; expected at least one, such as a head to disable.")
    labels = labels_of(corpus, model.task).astype(np.float64)
    limit = model.facts["recipe"]["max_length"]
    pieces = (
        one if len(one) <= limit else truncated(one, limit)
        for one in tokenized(corpus.examples, model.encoder)
    )
    found = np.empty((1 + len(variants), len(corpus)))
    done = 0
    for batch in batches(pieces, model.encoder, batch_size=batch_size):
        states = replays(model.encoder, batch, [(), *variants.values()])
        for row, hidden in enumerate(states):
            with torch.inference_mode():
                logits = model.head(hidden, batch)
            own = logits[:, 0] if model.task.regression else logits.argmax(-1)
            found[row, list(batch.index)] = own.to("cpu", torch.float64).numpy()
        done += len(batch)
        if progress is not None:
            progress(done, len(corpus))
    return Answers(("whole", *variants), found, labels, model.task)


# --- scores of many variants at once --------------------------------------------------------------


def points(found: Answers) -> NDArray[np.float64]:
    """The task's metric under every variant, in points (100 times the metric)."""
    return 100 * row_scores(found.answers, found.labels, found.task)


def drawn_changes(found: Answers, *, draws: int = DRAWS, seed: int = 0) -> NDArray[np.float64]:
    """(draw, variant): the change of the metric against the whole model on inputs drawn again.

    The same inputs are drawn for the model and for every variant, so that only what differs
    between the two is left in the spread.
    """
    rng = np.random.default_rng(seed)
    n = len(found.labels)
    values = np.empty((draws, len(found.names)))
    for draw in range(draws):
        places = rng.integers(0, n, n)
        values[draw] = 100 * row_scores(found.answers[:, places], found.labels[places], found.task)
    return values[:, 1:] - values[:, :1]


def row_scores(
    answers: NDArray[np.float64], labels: NDArray[np.float64], task: Task
) -> NDArray[np.float64]:
    """The task's metric of every row of answers (row, example), all at once."""
    if task.metric == "accuracy":
        return np.asarray((answers == labels).mean(1))
    with np.errstate(invalid="ignore", divide="ignore"):
        if task.metric == "f1":
            named, wanted = answers == 1, labels == 1
            return np.asarray(2 * (named & wanted).sum(1) / (named.sum(1) + wanted.sum()))
        if task.metric in ("pearson", "spearman"):
            if task.metric == "spearman":
                answers, labels = rankdata(answers, axis=1), rankdata(labels)
            a, b = answers - answers.mean(1, keepdims=True), labels - labels.mean()
            return np.asarray(a @ b / np.sqrt((a * a).sum(1) * (b * b).sum()))
    raise BadValue(
        f"metric '{task.metric}' has no form by rows; expected accuracy, f1 or a correlation."
    )


def p_values(found: Answers, *, draws: int = 1000, seed: int = 0) -> NDArray[np.float64]:
    """Two-sided p of every variant: as if its answers and the whole model's were exchangeable.

    Accuracy has the exact sign test on inputs where just one of both is right; for other metrics
    the two answers of each input are exchanged at random.
    """
    if found.task.metric == "accuracy":
        right = found.answers == found.labels
        return np.array([_sign_test(right[0], row) for row in right[1:]])
    rng = np.random.default_rng(seed)
    whole, own = found.answers[0], row_scores(found.answers, found.labels, found.task)
    p = np.ones(len(found.answers) - 1)
    for place, row in enumerate(found.answers[1:]):
        if np.array_equal(row, whole):
            continue
        swap = rng.random((draws, len(whole))) < 0.5
        first, second = (
            row_scores(np.where(swap, *pair), found.labels, found.task)
            for pair in ((row, whole), (whole, row))
        )
        seen = abs(own[1 + place] - own[0])
        p[place] = (1 + (np.abs(first - second) >= seen - 1e-12).sum()) / (1 + draws)
    return p


def _sign_test(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    gained, lost = int((second & ~first).sum()), int((first & ~second).sum())
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
