"""Behind `attnlib ablate`: heads by name, layer or type are changed, and what that costs.

A model answers questions, scored by SQuAD's exact match and F1, or the inputs of a task, scored by
the task's own metric. Random heads of the same layers are changed for comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from attnlib.attention import interventions
from attnlib.attention.ablation import matched_draws
from attnlib.attention.interventions import (
    Head,
    Intervention,
    Variant,
    heads_named,
    heads_of_types,
    single_heads,
)
from attnlib.data import corpora
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Question
from attnlib.data.tasks import TASKS, Task
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.bootstrap import percentile_interval
from attnlib.measuring.significance import benjamini_hochberg
from attnlib.measuring.stream import Progress, stream
from attnlib.metrics.distance import distance_metrics, feature_matrix
from attnlib.models import Encoder, load_encoder
from experiments.shared.ablation import (
    Answers,
    ablated,
    disabled,
    drawn_changes,
    every_head_and_layer,
    harm_p_value,
    p_values,
    paired_loss,
    points,
    single_ablations,
)
from experiments.shared.head_types import TYPES, fitted, named_types
from experiments.shared.training import publishedreader
from experiments.shared.training.answers import summary
from experiments.shared.training.finetune import FineTuned, finetuned
from experiments.shared.training.loop import Recipe
from experiments.shared.training.spanmodel import SpanReader

MODES = {"intra": "no_intra", "inter": "no_inter"}
"""Short names of what is cut."""
NEAR, SPECIAL = ("window_01", "self"), ("cls", "sep", "comma", "period")
RANDOM_SETS = (
    "random: the mean over random sets of as many heads of the same layers; p: the share of sets, "
    "ours counted, that cost as much."
)


def ablation(
    model: str,
    task: str,
    heads: Sequence[str],
    *,
    how: dict[str, Any],
    each: bool = False,
    train: str | None = None,
    train_limit: int | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    draws: int = 10,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    **recipe: Any,
) -> pd.DataFrame:
    """What it costs to change heads, or every head alone, beside random heads of the same layers.

    task    questions to answer, such as squad:dev, or a task's inputs, such as rte or mrpc:test
    heads   see `head_words`
    how     see `manner`
    recipe  epochs and learning rate of the training
    returns the table of `question_ablation` or `question_heads`, or those of a task
    """
    encoder = load_encoder(model, device=device)
    asked = corpora.load_corpus(task, limit=limit, seed=seed, tokenizer=encoder.tokenizer)
    own = task_of(asked)
    if own is None:
        check_questions(asked)
    check_heads(heads, each, encoder)
    width = max_length or min(128 if own else 256, encoder.max_length)
    plan = Recipe(batch_size=16, max_length=width, seed=seed, **recipe)
    if own is not None and train is None:
        train = f"{own.name}:train"
    learnt = [corpora.load_corpus(train, limit=train_limit, seed=seed)] if train else []
    given: Any = {"seed": seed, "progress": progress, **how}
    if own is not None:
        tuned = finetuned(encoder, learnt[0], own.name, recipe=plan, progress=progress)
        if each:
            return task_heads(tuned, asked, **given)
        chosen = chosen_heads(heads, tuned.encoder, asked, width)
        return task_ablation(tuned, asked, chosen, draws=draws, **given)
    reader = publishedreader.reader_of(
        *learnt, encoder=encoder, recipe=vars(plan), progress=progress
    )
    if max_length is not None:
        reader = reader.reading(max_length)
    if each:
        return question_heads(reader, asked, **given)
    chosen = chosen_heads(heads, reader.encoder, asked, width)
    return question_ablation(reader, asked, chosen, draws=draws, **given)


# --- what is asked for ----------------------------------------------------------------------------


def head_words(
    heads: Iterable[str], layers: Iterable[int] = (), types: Iterable[str] = ()
) -> list[str]:
    """Heads as they can be asked for: names and patterns (5-4,5-*), whole layers, types."""
    named = [word.strip() for one in heads for word in one.split(",") if word.strip()]
    for layer in layers:
        if layer < 1:
            raise BadValue(f"layer {layer} was named; expected one from 1 on.")
    return [*named, *(f"{layer}-*" for layer in layers), *types]


def manner(
    mode: str, *, unit: str, specials: str, renormalise: bool, length: str
) -> dict[str, Any]:
    """What is done with the weights, in the words of `Intervention`, which refuses wrong ones."""
    pieces = int(length) if length.isdigit() else length
    one = Intervention(frozenset(), MODES.get(mode, mode), unit, specials, renormalise, pieces)
    return {name: value for name, value in vars(one).items() if name != "heads"}


def task_of(corpus: Corpus) -> Task | None:
    """The task whose labels a corpus has; None if it is no task's."""
    return TASKS.get(corpus.name.partition(":")[0]) if corpus.kind == "task" else None


def check_questions(corpus: Corpus) -> None:
    """Refuse a corpus that asks nothing."""
    if not all(isinstance(example, Question) for example in corpus.examples):
        raise CorpusError(
            f"'{corpus.name}' is no corpus of questions; expected one such as squad:dev, "
            "wiki-questions:dev or reader-qa."
        )


def check_heads(given: Sequence[str], each: bool, encoder: Encoder) -> None:
    """Refuse, before any work, heads that the model does not have, or none, or too many ways."""
    if each and given:
        raise BadValue("--heads and --each were both given; expected one of them.")
    if not each and not given:
        raise BadValue("no head was named; use --heads, with a name such as 5-4, or --each.")
    named = [head for one in given if one not in TYPES for head in named_heads(one, encoder)]
    interventions.check_heads(encoder, named)


def named_heads(pattern: str, encoder: Encoder) -> frozenset[Head]:
    """Heads by name (5-4), by layer (5-*), or by number (*-4)."""
    match = re.fullmatch(r"([1-9]\d*|\*)-([1-9]\d*|\*)", pattern)
    if match is None:
        raise BadValue(
            f"'{pattern}' names no head; expected a name such as 5-4, a pattern such as 5-* or "
            f"*-4, or a type: {', '.join(TYPES)}."
        )
    if "*" not in pattern:
        return heads_named([pattern])
    layer, head = (None if part == "*" else int(part) - 1 for part in match.groups())
    fits = [(a, b) for a, b in single_heads(encoder) if layer in (None, a) and head in (None, b)]
    if not fits:
        raise BadValue(
            f"'{pattern}' names no head of '{encoder.name}'; it has {encoder.n_layers} layers of "
            f"{encoder.n_heads} heads, counted from 1."
        )
    return frozenset(fits)


def chosen_heads(
    given: Sequence[str], encoder: Encoder, corpus: Corpus, max_length: int
) -> frozenset[Head]:
    """Heads by name or pattern, by type (diagonal), or all of these.

    Types are those of the encoder on the corpus: four clusters of distance features.
    """
    check_heads(given, False, encoder)
    kinds = [one for one in given if one in TYPES]
    found = frozenset[Head]().union(*(named_heads(o, encoder) for o in given if o not in TYPES))
    if kinds:
        found |= heads_of_types(types_on(encoder, corpus, max_length), kinds)
    return found


def types_on(encoder: Encoder, corpus: Corpus, max_length: int, seed: int = 0) -> pd.DataFrame:
    """The type of every head of a model on a corpus: layer, head (both from 1), type."""
    found = stream(encoder, corpus, distance_metrics(), max_length=max_length, on_long="truncate")
    names, mean = feature_matrix(found.not_empty())
    special, near = ([names.index(one) for one in part] for part in (SPECIAL, NEAR))
    clustering = fitted(mean, len(TYPES), seed=seed, special=special)
    table = pd.DataFrame(np.array(single_heads(encoder)) + 1, columns=["layer", "head"])
    return table.assign(type=named_types(mean, clustering, special, near))


def beside_random(
    heads: frozenset[Head], encoder: Encoder, *, draws: int, seed: int, **how: Any
) -> dict[str, Variant]:
    """The heads changed, then as many random heads of the same layers, so many times."""
    sets = matched_draws(heads, encoder.n_heads, draws=draws, seed=seed) if draws else []
    random = {f"random {i}": (Intervention(one, **how),) for i, one in enumerate(sets)}
    return {"changed": (Intervention(heads, **how),), **random}


def _rows(n_heads: int, draws: int) -> dict[str, tuple[int, slice]]:
    """The rows of a table of a few variants: how many heads are changed, and which variants."""
    rows = {"as it is": (0, slice(0, 1)), "changed": (n_heads, slice(1, 2))}
    return rows | ({"random": (n_heads, slice(2, None))} if draws else {})


# --- answers to questions -------------------------------------------------------------------------


def question_ablation(
    reader: SpanReader,
    corpus: Corpus,
    heads: frozenset[Head],
    *,
    draws: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    **how: Any,
) -> pd.DataFrame:
    """The reader as it is, with heads changed, and with random heads of the same layers changed.

    how      action and the open points of `Intervention`
    returns  one row each: what, n_heads, em and f1 with intervals over articles, lost with low
             and high (points of F1 below the reader as it is, articles drawn again), p (of the
             random sets, the share that is as harmful), n_questions
    """
    groups = [question.article for question in corpus.examples]
    beside = beside_random(heads, reader.encoder, draws=draws, seed=seed, **how)
    found = ablated(reader, corpus.examples, {"as it is": (), **beside}, progress=progress)
    rows = []
    for what, (n_heads, own) in _rows(len(heads), draws).items():
        em, f1 = found.em[own].mean(0), found.f1[own].mean(0)
        scores = summary(em, f1, groups, seed) | _points_lost(f1, found.f1[0], groups, seed)
        rows.append({"what": what, "n_heads": n_heads, **scores, "p": np.nan})
    if draws:
        rows[1]["p"] = harm_p_value(float(found.f1[1].mean()), found.f1[2:].mean(1))
    return pd.DataFrame(rows)


def question_heads(
    reader: SpanReader,
    corpus: Corpus,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    **how: Any,
) -> pd.DataFrame:
    """What changing one head alone costs, for every head, the costliest first.

    returns  layer, head, loss (rise of the right answer's cross-entropy, nats), lost with low and
             high (points of F1, articles drawn again)
    """
    heads, found = single_ablations(reader, corpus.examples, progress=progress, **how)
    groups = [question.article for question in corpus.examples]
    table = pd.DataFrame(np.array(heads) + 1, columns=["layer", "head"])
    table["loss"] = np.nanmean(found.loss[1:] - found.loss[0], 1)
    falls = [_points_lost(f1, found.f1[0], groups, seed) for f1 in found.f1[1:]]
    return table.join(pd.DataFrame(falls)).sort_values("loss", ascending=False, ignore_index=True)


def _points_lost(
    f1: np.ndarray, whole: np.ndarray, groups: Sequence[str], seed: int
) -> dict[str, float]:
    """Points of F1 below the whole model, with the ends of the interval."""
    lost = paired_loss(f1, whole, groups, seed=seed)
    return {"lost": 100 * lost.value, "low": 100 * lost.low, "high": 100 * lost.high}


# --- answers to the inputs of a task --------------------------------------------------------------


def task_ablation(
    model: FineTuned,
    corpus: Corpus,
    heads: frozenset[Head],
    *,
    draws: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    **how: Any,
) -> pd.DataFrame:
    """The same of a model that was fine-tuned on a task.

    returns  one row each: what, n_heads, metric, score (points), lost with low and high (points
             below the model as it is, inputs drawn again), p (of the random sets, the share that
             is as harmful), n_inputs
    """
    variants = beside_random(heads, model.encoder, draws=draws, seed=seed, **how)
    found = disabled(model, corpus, variants, progress=progress)
    score, losses = points(found), _losses(found, seed)
    rows = []
    for what, (n_heads, own) in _rows(len(heads), draws).items():
        lost = _with_ends(losses[:, own].mean(1, keepdims=True))
        row = {"what": what, "n_heads": n_heads, "metric": model.task.metric}
        row |= {"score": float(score[own].mean()), **lost.iloc[0]}
        rows.append({**row, "p": np.nan, "n_inputs": len(corpus)})
    if draws:
        rows[1]["p"] = harm_p_value(float(score[1]), score[2:])
    return pd.DataFrame(rows)


def task_heads(
    model: FineTuned,
    corpus: Corpus,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    **how: Any,
) -> pd.DataFrame:
    """What changing one head alone costs, and one whole layer, the costliest first.

    returns  layer, head (0 for the whole layer), metric, lost with low and high, p, q (false
             discoveries controlled, among heads and among layers), n_inputs
    """
    variants = every_head_and_layer(model, **how)
    found = disabled(model, corpus, variants, progress=progress)
    places = [name.removeprefix("layer ").partition("-") for name in variants]
    table = pd.DataFrame({"layer": [int(a) for a, _, _ in places]})
    table["head"] = [int(b or 0) for _, _, b in places]
    table["metric"] = model.task.metric
    table = table.join(_with_ends(_losses(found, seed)[:, 1:]))
    table["p"] = p_values(found, seed=seed)
    own = table["p"].groupby(table["head"] > 0)
    table["q"] = own.transform(lambda part: benjamini_hochberg(part.to_numpy()))
    table["n_inputs"] = len(corpus)
    return table.sort_values("lost", ascending=False, ignore_index=True)


def _losses(found: Answers, seed: int) -> np.ndarray:
    """(draw, variant): points below the whole model, of all inputs first, then of inputs drawn."""
    score = points(found)
    again = np.insert(-drawn_changes(found, seed=seed), 0, 0.0, axis=1)
    return np.vstack([score[0] - score, again])


def _with_ends(losses: np.ndarray) -> pd.DataFrame:
    """What each variant loses on all inputs, and the interval over inputs drawn again."""
    low, high = percentile_interval(losses[1:])
    return pd.DataFrame({"lost": losses[0], "low": low, "high": high})


# --- on the terminal ------------------------------------------------------------------------------


def show_ablation(table: pd.DataFrame, console: Console) -> None:
    """A few variants with their scores, or all heads with what each costs."""
    if "metric" in table:
        _show_task_ablation(table, console)
        return
    if "what" not in table:
        shown = Table("head", "loss", "F1 lost", "95 %", box=None)
        for row in table.itertuples():
            loss = "–" if math.isnan(row.loss) else f"{row.loss:+.3f}"
            shown.add_row(f"{row.layer}-{row.head}", loss, f"{row.lost:+.1f}", _ends(row))
        console.print(shown)
        console.print("loss: rise of the right answer's cross-entropy, in nats.")
        return
    columns = ("exact match", "F1", "95 %", "F1 lost", "95 %", "p")
    shown = Table("heads", "number", *columns, box=None)
    for row in table.itertuples():
        shown.add_row(
            str(row.what),
            str(row.n_heads),
            f"{row.em:.1f}",
            f"{row.f1:.1f}",
            "–" if math.isnan(row.f1_low) else f"{row.f1_low:.1f} to {row.f1_high:.1f}",
            f"{row.lost:+.1f}",
            "–" if row.what == "as it is" else _ends(row),
            "–" if math.isnan(row.p) else f"{row.p:.2f}",
        )
    console.print(shown)
    n = int(table["n_questions"].iloc[0])
    console.print(f"{n} questions. {RANDOM_SETS}")


def _ends(row: Any) -> str:
    """The interval of a loss; a dash where there was nothing to draw again."""
    return "–" if math.isnan(row.low) else f"{row.low:+.1f} to {row.high:+.1f}"


def _show_task_ablation(table: pd.DataFrame, console: Console) -> None:
    """The same of a task: its own metric, in points, and what is lost with its interval."""
    n, metric = int(table["n_inputs"].iloc[0]), table["metric"].iloc[0]
    if "what" not in table:
        shown = Table("head", "points lost", "95 %", "p", "q", box=None)
        for row in table.itertuples():
            name = f"{row.layer}-{row.head}" if row.head else f"layer {row.layer}"
            shown.add_row(name, f"{row.lost:+.1f}", _ends(row), f"{row.p:.3f}", f"{row.q:.3f}")
        console.print(shown)
        console.print(f"{metric} on {n} inputs; q: false discoveries controlled.")
        return
    shown = Table("heads", "number", str(metric), "points lost", "95 %", "p", box=None)
    for row in table.itertuples():
        ends = "–" if row.what == "as it is" else _ends(row)
        p = "–" if math.isnan(row.p) else f"{row.p:.2f}"
        score, lost = f"{row.score:.1f}", f"{row.lost:+.1f}"
        shown.add_row(str(row.what), str(row.n_heads), score, lost, ends, p)
    console.print(shown)
    console.print(f"{n} inputs. {RANDOM_SETS}")
