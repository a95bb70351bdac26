"""What a reader of questions loses when some of its heads are changed, beside random heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attnlib.attention.encode import Batch
from attnlib.attention.interventions import Head, Intervention, Variant, replays, single_heads
from attnlib.data.examples import Question
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.bootstrap import LEVEL
from attnlib.measuring.stream import Progress
from experiments.shared.answers import score_answers
from experiments.shared.spanmodel import SpanReader
from experiments.shared.spans import Candidate, Window, answerable, best_answers, targets

DRAWS = 2000


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

    def place(self, name: str) -> int:
        return self.names.index(name)


def ablated(
    reader: SpanReader,
    questions: Sequence[Question],
    variants: Mapping[str, Variant],
    *,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> Outcome:
    """Every question answered under every variant; layers before the first change run once.

    variants  name -> the interventions of one pass; none for the model as it is
    """
    if not questions or not variants:
        given = f"{len(questions)} questions and {len(variants)} variants"
        raise BadValue(f"{given} to ablate on; expected one or more of each.")
    without = [question.id for question in questions if not question.answers]
    if without:
        raise CorpusError(
            f"question '{without[0]}' has no accepted answer; expected one or more. Leave out the "
            "questions that cannot be scored."
        )
    windows = reader.windows(questions)
    ends, _ = targets(windows, questions)
    wanted = torch.tensor(ends, device=reader.encoder.device)
    found: list[list[tuple[int, list[Candidate]]]] = [[] for _ in variants]
    losses = np.full((len(variants), len(windows)), np.nan)
    groups = reader.batches(windows, batch_size)
    with torch.inference_mode():
        for done, batch in enumerate(groups):
            passes = replays(reader.encoder, batch, list(variants.values()))
            for place, hidden in enumerate(passes):
                found[place] += reader.spans(hidden, batch, windows, questions, n_best=1)
                numbers = list(batch.index)
                losses[place, numbers] = _losses(reader, hidden, batch, windows, wanted)
            if progress is not None:
                progress(done + 1, len(groups))
    scores = [score_answers(_texts(spans, len(questions)), questions) for spans in found]
    em, f1 = (np.stack(parts) for parts in zip(*scores, strict=True))
    return Outcome(tuple(variants), em, f1, _by_question(losses, windows, len(questions)))


def _losses(
    reader: SpanReader, hidden: Tensor, batch: Batch, windows: Sequence[Window], wanted: Tensor
) -> np.ndarray:
    """Of each window, the mean cross-entropy of its answer's ends; NaN if it has no answer."""
    logits = reader.head(hidden).float()
    closed = ~answerable(windows, batch).unsqueeze(-1)
    logits = logits.masked_fill(closed, torch.finfo(logits.dtype).min)
    ends = wanted[list(batch.index)]
    loss = functional.cross_entropy(logits, ends, reduction="none").mean(-1)
    # Piece 0 is [CLS]: the window does not hold its answer.
    return loss.masked_fill(ends[:, 1] == 0, torch.nan).double().cpu().numpy()


def _by_question(losses: np.ndarray, windows: Sequence[Window], n_questions: int) -> np.ndarray:
    of = np.array([window.question for window in windows])
    held = ~np.isnan(losses)
    total, count = np.zeros((2, len(losses), n_questions))
    for variant in range(len(losses)):
        total[variant] = np.bincount(of, np.where(held[variant], losses[variant], 0.0), n_questions)
        count[variant] = np.bincount(of, held[variant], n_questions)
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _texts(spans: Sequence[tuple[int, list[Candidate]]], n_questions: int) -> list[str]:
    best = best_answers(spans, n_questions, 1)
    return [one[0].text if one else "" for one in best]


def single_ablations(
    reader: SpanReader,
    questions: Sequence[Question],
    *,
    progress: Progress | None = None,
    **how: Any,
) -> tuple[list[Head], Outcome]:
    """Every head changed alone: the heads, and the outcome, whose first variant is the whole model.

    how  action and the open points of `Intervention`
    """
    heads = single_heads(reader.encoder)
    variants: dict[str, Variant] = {"whole": ()}
    variants |= {f"{a}-{b}": (Intervention(frozenset([(a, b)]), **how),) for a, b in heads}
    return heads, ablated(reader, questions, variants, progress=progress)


# --- the control: random heads of the same layers -------------------------------------------------


def matched_draws(
    heads: Iterable[Head], n_heads: int, *, draws: int, seed: int = 0
) -> list[frozenset[Head]]:
    """Random sets with as many heads in every layer as a given set, each from all of the layer.

    Heads of the given set can be drawn too: where it is a whole layer, there is nothing to choose.
    """
    given = frozenset(heads)
    wrong = sorted(head for _, head in given if not 0 <= head < n_heads)
    if wrong:
        raise BadValue(f"head {wrong[0] + 1} is not one of the {n_heads} heads of a layer.")
    if draws < 1:
        raise BadValue(f"{draws} random sets were asked for; expected one or more.")
    layers = sorted({layer for layer, _ in given})
    counts = {layer: sum(one == layer for one, _ in given) for layer in layers}
    generator = np.random.default_rng(seed)
    return [
        frozenset(
            (layer, int(head))
            for layer in layers
            for head in generator.choice(n_heads, counts[layer], replace=False)
        )
        for _ in range(draws)
    ]


@dataclass(frozen=True)
class Interval:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float


def paired_loss(
    one: Float[np.ndarray, " question"],
    other: Float[np.ndarray, "*draw question"],
    groups: Sequence[str],
    *,
    seed: int = 0,
) -> Interval:
    """How much lower `one` is than `other` on the same questions, on average.

    other   of one variant, or of several random sets, over which the mean is taken
    groups  of each question, what is drawn again as a whole, such as its article
    The interval comes from drawing groups, and random sets, again; NaN with a single group.
    """
    others = np.atleast_2d(other)
    if others.shape[1:] != one.shape or len(groups) != len(one):
        raise BadValue(
            f"scores of {len(one)} and {others.shape[-1]} questions in {len(groups)} groups; "
            "expected the same questions everywhere."
        )
    number = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    of = np.array([number[group] for group in groups])
    sizes = np.bincount(of).astype(float)
    sums = np.stack([np.bincount(of, row - one, len(number)) for row in others])
    value = float(sums.sum() / len(sums) / sizes.sum())
    if len(number) < 2:
        return Interval(value, np.nan, np.nan)
    generator = np.random.default_rng(seed)
    drawn = generator.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), DRAWS)
    sets = generator.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), DRAWS)
    spread = np.einsum("rd,dg,rg->r", sets / len(sums), sums, drawn) / (drawn @ sizes)
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(spread, [tail, 100 - tail])
    return Interval(value, float(low), float(high))


def harm_p_value(ours: float, draws: Float[np.ndarray, " draw"]) -> float:
    """How surprising it is that `ours` is so low, if it were one more of the random sets.

    (1 + random sets that are at most as high) / (1 + random sets)
    """
    return float((1 + (draws <= ours + 1e-12).sum()) / (1 + len(draws)))
