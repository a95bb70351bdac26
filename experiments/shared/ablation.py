"""What it costs a model to have heads changed: its answers to questions, or to a task's inputs.

The model answers under every variant (the interventions of one pass), and all passes share the
layers before their first change. What is lost has an interval over inputs drawn again, and a
comparison with random heads of the same layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.stats import binomtest
from torch import Tensor
from torch.nn import functional

from attnlib.attention.ablation import every_head, every_layer, replays
from attnlib.attention.encode import Batch
from attnlib.attention.interventions import Head, Variant, single_heads
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question
from attnlib.data.tasks import Task
from attnlib.errors import BadValue
from attnlib.measuring.bootstrap import percentile_interval
from attnlib.progress import counting
from bookkit.claims import Finding
from experiments.shared.intervals import chance_p
from experiments.shared.training.answers import check_answered, group_numbers, score_answers
from experiments.shared.training.finetune import FineTuned
from experiments.shared.training.glue import labels_of, row_scores
from experiments.shared.training.spanmodel import (
    Candidate,
    SpanReader,
    Window,
    best_answers,
    open_logits,
    targets,
)

DRAWS = 2000
"""Times that articles, and random sets, are drawn again."""
TASK_DRAWS = 1000
"""Times that the inputs of a task are drawn again."""


# --- answers to questions -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """How every question is answered under every variant.

    em, f1  (variant, question) from 0 to 1, by SQuAD's rules
    loss    (variant, question) cross-entropy of the first accepted answer's two ends, in nats,
            the mean over the windows that hold it; NaN where none does
    """

    names: tuple[str, ...]
    em: Float[np.ndarray, "variant question"]
    f1: Float[np.ndarray, "variant question"]
    loss: Float[np.ndarray, "variant question"]


def ablated(
    reader: SpanReader,
    questions: Sequence[Question],
    variants: Mapping[str, Variant],
    *,
    batch_size: int = 16,
) -> Outcome:
    """Every question answered under every variant; layers before the first change run once.

    variants  name -> the interventions of one pass; none for the model as it is
    """
    check_answered(questions)
    windows = reader.windows(questions)
    ends, _ = targets(windows, questions)
    wanted = torch.tensor(ends, device=reader.encoder.device)
    found: list[list[tuple[int, list[Candidate]]]] = [[] for _ in variants]
    losses = np.full((len(variants), len(windows)), np.nan)
    groups = reader.batches(windows, batch_size)
    with torch.inference_mode(), counting() as tick:
        for done, batch in enumerate(groups):
            passes = replays(reader.encoder, batch, list(variants.values()))
            for place, hidden in enumerate(passes):
                found[place] += reader.spans(hidden, batch, windows, questions, n_best=1)
                numbers = list(batch.index)
                losses[place, numbers] = _losses(reader, hidden, batch, windows, wanted)
            tick(done + 1, len(groups))
    scores = [score_answers(_texts(spans, len(questions)), questions) for spans in found]
    em, f1 = (np.stack(parts) for parts in zip(*scores, strict=True))
    return Outcome(tuple(variants), em, f1, _by_question(losses, windows, len(questions)))


def _losses(
    reader: SpanReader, hidden: Tensor, batch: Batch, windows: Sequence[Window], wanted: Tensor
) -> np.ndarray:
    """Of each window, the mean cross-entropy of its answer's ends; NaN if it has no answer."""
    logits = open_logits(reader.head(hidden).float(), batch, windows)
    ends = wanted[list(batch.index)]
    loss = functional.cross_entropy(logits, ends, reduction="none").mean(-1)
    # Piece 0 is [CLS]: the window does not hold its answer.
    return loss.masked_fill(ends[:, 1] == 0, torch.nan).double().cpu().numpy()


def _by_question(losses: np.ndarray, windows: Sequence[Window], n_questions: int) -> np.ndarray:
    """The mean over the windows of a question that hold its answer; NaN where none does."""
    of = np.array([window.question for window in windows])
    means = pd.DataFrame(losses.T).groupby(of).mean().reindex(range(n_questions))
    return np.asarray(means.to_numpy().T)


def _texts(spans: Sequence[tuple[int, list[Candidate]]], n_questions: int) -> list[str]:
    best = best_answers(spans, n_questions, 1)
    return [one[0].text if one else "" for one in best]


def single_ablations(
    reader: SpanReader, questions: Sequence[Question], **how: Any
) -> tuple[list[Head], Outcome]:
    """Every head changed alone: the heads, and the outcome, whose first variant is the whole model.

    how  action and the open points of `Intervention`
    """
    variants: dict[str, Variant] = {"whole": (), **every_head(reader.encoder, **how)}
    return single_heads(reader.encoder), ablated(reader, questions, variants)


def spread_out(groups: Sequence[str], n: int) -> list[int]:
    """Places of n questions, taken from the articles in turn, so that each has its share."""
    if n < 1:
        raise BadValue(f"{n} questions were asked for; expected one or more.")
    table = pd.DataFrame({"group": list(groups)})
    table["turn"] = table.groupby("group").cumcount()
    return sorted(table.sort_values(["turn", "group"]).index[:n].tolist())


def paired_loss(
    one: Float[np.ndarray, " question"],
    other: Float[np.ndarray, "*draw question"],
    groups: Sequence[str],
    *,
    seed: int = 0,
) -> Finding:
    """How much lower `one` is than `other` on the same questions, on average.

    other   of one variant, or of several random sets, over which the mean is taken
    groups  of each question, what is drawn again as a whole, such as its article
    The interval comes from drawing groups, and random sets, again; NaN with a single group.
    """
    others = np.atleast_2d(other)
    group = group_numbers(groups)
    sizes = np.bincount(group).astype(float)
    sums = np.stack([np.bincount(group, row - one) for row in others])
    value = float(sums.sum() / len(sums) / sizes.sum())
    if len(sizes) < 2:
        return Finding(value)
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), DRAWS)
    sets = generator.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), DRAWS)
    spread = np.einsum("rd,dg,rg->r", sets / len(sums), sums, drawn) / (drawn @ sizes)
    return Finding(value, *map(float, percentile_interval(spread)))


def harm_p_value(ours: float, draws: Float[np.ndarray, " draw"]) -> float:
    """How surprising it is that `ours` is so low, if it were one more of the random sets.

    (1 + random sets that are at most as high) / (1 + random sets)
    """
    return chance_p(-ours, -draws)


# --- answers to the inputs of a task --------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model answers under each variant; the first is the whole model.

    answers  (variant, example)   class indices or scores
    labels   (example,)
    losses   (variant, example)   cross-entropy of the label, in nats; squared error of a score
    """

    names: tuple[str, ...]
    answers: NDArray[np.float64]
    labels: NDArray[np.float64]
    task: Task
    losses: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))


def every_head_and_layer(
    model: FineTuned, action: str = "uniform", **how: Any
) -> dict[str, Variant]:
    """Each head alone, then each whole layer (Kovaleva 2019, sec. 4.6)."""
    return every_head(model.encoder, action, **how) | every_layer(model.encoder, action, **how)


def disabled(
    model: FineTuned, corpus: Corpus, variants: Mapping[str, Variant], *, batch_size: int = 32
) -> Answers:
    """The answers to a labelled corpus as it is and under each variant, and their losses."""
    labels = labels_of(corpus, model.task).astype(np.float64)
    found, losses = (np.empty((1 + len(variants), len(corpus))) for _ in range(2))
    done = 0
    with torch.inference_mode(), counting() as tick:
        for batch in model.batches(corpus.examples, batch_size):
            states = replays(model.encoder, batch, [(), *variants.values()])
            own = list(batch.index)
            for row, hidden in enumerate(states):
                logits = model.head(hidden, batch)
                found[row, own] = model.answers(logits)
                losses[row, own] = _task_losses(logits, labels[own], model.task)
            done += len(batch)
            tick(done, len(corpus))
    return Answers(("whole", *variants), found, labels, model.task, losses)


def _task_losses(logits: Tensor, labels: NDArray[np.float64], task: Task) -> NDArray[np.float64]:
    """What the task is learnt by, for each input."""
    logits = logits.detach().to("cpu", torch.float64)
    if task.regression:
        return np.asarray((logits[:, 0].numpy() - labels) ** 2)
    wanted = torch.as_tensor(labels).long()
    return np.asarray(functional.cross_entropy(logits, wanted, reduction="none").numpy())


def points(found: Answers) -> NDArray[np.float64]:
    """The task's metric under every variant, in points (100 times the metric)."""
    return 100 * row_scores(found.answers, found.labels, found.task)


def drawn_changes(found: Answers, *, draws: int = TASK_DRAWS, seed: int = 0) -> NDArray[np.float64]:
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


def p_values(found: Answers, *, draws: int = TASK_DRAWS, seed: int = 0) -> NDArray[np.float64]:
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
        p[place] = chance_p(abs(own[1 + place] - own[0]), np.abs(first - second))
    return p


def _sign_test(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    gained, lost = int((second & ~first).sum()), int((first & ~second).sum())
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
