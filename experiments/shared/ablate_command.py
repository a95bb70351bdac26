"""Behind `attnlib ablate`: heads by name, layer or type are changed, and what that costs.

A model answers questions, scored by SQuAD's exact match and F1, or the inputs of a task, scored by
the task's own metric. Random heads of the same layers are changed for comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd

from attnlib.attention.ablation import every_head, every_layer, matched_draws
from attnlib.attention.interventions import (
    Head,
    Intervention,
    Variant,
    heads_of_types,
    single_heads,
)
from attnlib.commands.shared import console, print_table
from attnlib.data import corpora
from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS, Task
from attnlib.errors import BadValue
from attnlib.measuring.bootstrap import percentile_interval
from attnlib.measuring.head_tables import head_places
from attnlib.measuring.significance import benjamini_hochberg
from attnlib.measuring.stream import stream
from attnlib.metrics.distance import distance_metrics, feature_matrix
from attnlib.models import Encoder, load_encoder
from experiments.shared.ablation import (
    Answers,
    Outcome,
    ablated,
    disabled,
    drawn_changes,
    harm_p_value,
    p_values,
    paired_loss,
    points,
)
from experiments.shared.head_types import TYPES, types_of
from experiments.shared.training import publishedreader
from experiments.shared.training.answers import check_answered, summary
from experiments.shared.training.finetune import FineTuned, finetuned
from experiments.shared.training.loop import Recipe
from experiments.shared.training.spanmodel import SpanReader

MODES = {"intra": "no_intra", "inter": "no_inter"}
"""Short names of what is cut."""
RANDOM_SETS = (
    "random: the mean over random sets of as many heads of the same layers; p: the share of sets, "
    "ours counted, that cost as much."
)


def ablation(
    model: str,
    task: str,
    heads: Sequence[str],
    *,
    how: Mapping[str, Any],
    each: bool = False,
    train: str | None = None,
    train_limit: int | None = None,
    limit: int | None = None,
    max_length: int | None = None,
    draws: int = 10,
    seed: int = 0,
    device: str = "auto",
    **recipe: Any,
) -> pd.DataFrame:
    """What it costs to change heads, or every head alone, beside random heads of the same layers.

    task    questions to answer, such as squad:dev, or a task's inputs, such as rte or mrpc:test
    heads   see `head_words`
    how     what is done with the weights, see `manner`
    recipe  epochs and learning rate of the training
    returns the table of `changed_together` or `changed_alone`
    """
    encoder = load_encoder(model, device=device)
    asked = corpora.load_corpus(task, limit=limit, seed=seed, tokenizer=encoder.tokenizer)
    own = task_of(asked)
    if own is None:
        check_answered(asked.examples, asked.name)
    check_heads(heads, each, encoder)
    change = manner(**how)
    width = max_length or min(128 if own else 256, encoder.max_length)
    plan = Recipe(batch_size=16, max_length=width, seed=seed, **recipe)
    train = f"{own.name}:train" if own and train is None else train
    learnt = [corpora.load_corpus(train, limit=train_limit, seed=seed)] if train else []
    answering: FineTuned | SpanReader
    if own is not None:
        answering = finetuned(encoder, learnt[0], own.name, recipe=plan)
    else:
        answering = publishedreader.reader_of(*learnt, encoder=encoder, recipe=vars(plan))
        if max_length is not None:
            answering = answering.reading(max_length)
    if each:
        return changed_alone(answering, asked, seed=seed, **change)
    chosen = chosen_heads(heads, answering.encoder, asked, width)
    return changed_together(answering, asked, chosen, draws=draws, seed=seed, **change)


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


def manner(*, mode: str, length: str, **how: Any) -> dict[str, Any]:
    """What is done with the weights, in the words of `Intervention`, which refuses wrong ones."""
    pieces = int(length) if length.isdigit() else length
    one = Intervention(frozenset(), MODES.get(mode, mode), length=pieces, **how)
    return {name: value for name, value in vars(one).items() if name != "heads"}


def task_of(corpus: Corpus) -> Task | None:
    """The task whose labels a corpus has; None if it is no task's."""
    return TASKS.get(corpus.name.partition(":")[0]) if corpus.kind == "task" else None


def check_heads(given: Sequence[str], each: bool, encoder: Encoder) -> None:
    """Refuse, before any work, heads that the model does not have, or none, or too many ways."""
    if each and given:
        raise BadValue("--heads and --each were both given; expected one of them.")
    if not each and not given:
        raise BadValue("no head was named; use --heads, with a name such as 5-4, or --each.")
    for one in given:
        if one not in TYPES:
            named_heads(one, encoder)


def named_heads(pattern: str, encoder: Encoder) -> frozenset[Head]:
    """Heads by name (5-4), by layer (5-*), or by number (*-4)."""
    if re.fullmatch(r"([1-9]\d*|\*)-([1-9]\d*|\*)", pattern) is None:
        raise BadValue(
            f"'{pattern}' names no head; expected a name such as 5-4, a pattern such as 5-* or "
            f"*-4, or a type: {', '.join(TYPES)}."
        )
    every = single_heads(encoder)
    fits = [(a, b) for a, b in every if fnmatchcase(f"{a + 1}-{b + 1}", pattern)]
    if not fits:
        raise BadValue(
            f"'{pattern}' names no head of '{encoder.name}'; expected layers 1 to "
            f"{encoder.n_layers} and heads 1 to {encoder.n_heads}."
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


def types_on(encoder: Encoder, corpus: Corpus, max_length: int) -> pd.DataFrame:
    """The type of every head of a model on a corpus: layer, head (both from 1), type."""
    found = stream(encoder, corpus, distance_metrics(), max_length=max_length, on_long="truncate")
    names, mean = feature_matrix(found.not_empty())
    return head_places(single_heads(encoder)).assign(type=types_of(mean, names))


# --- what it costs --------------------------------------------------------------------------------


def changed_together(
    model: FineTuned | SpanReader,
    corpus: Corpus,
    heads: frozenset[Head],
    *,
    draws: int = 0,
    seed: int = 0,
    **how: Any,
) -> pd.DataFrame:
    """The model as it is, with heads changed, and with random heads of the same layers changed.

    how      action and the open points of `Intervention`
    returns  one row each: what, n_heads, the columns of `Costs.about`, and p: of the random sets,
             the share that is as harmful
    """
    sets = matched_draws(heads, model.encoder.n_heads, draws=draws, seed=seed) if draws else []
    random = {f"random {i}": (Intervention(one, **how),) for i, one in enumerate(sets)}
    variants = {"changed": (Intervention(heads, **how),), **random}
    found = costs(model, corpus, variants, seed)
    rows = {"as it is": slice(0, 1), "changed": slice(1, 2), "random": slice(2, None)}
    table = pd.DataFrame(
        {"what": what, "n_heads": 0 if what == "as it is" else len(heads), **found.about(own)}
        for what, own in rows.items()
        if draws or what != "random"
    )
    p = harm_p_value(float(found.score[1]), found.score[2:]) if draws else np.nan
    return table.assign(p=[np.nan, p, np.nan][: len(table)])


def changed_alone(
    model: FineTuned | SpanReader, corpus: Corpus, *, seed: int = 0, **how: Any
) -> pd.DataFrame:
    """What changing one head alone costs, and of a task one whole layer, the costliest first.

    returns  layer, head (0 for the whole layer), the columns of `Costs.about`; for questions loss
             (rise of the right answer's cross-entropy, nats); for a task p, and q (false
             discoveries controlled, among heads and among layers)
    """
    variants = every_head(model.encoder, **how)
    if isinstance(model, FineTuned):
        variants |= every_layer(model.encoder, **how)
    found = costs(model, corpus, variants, seed)
    places = [name.removeprefix("layer ").partition("-") for name in variants]
    table = pd.DataFrame({"layer": [int(a) for a, _, _ in places]})
    table["head"] = [int(b or 0) for _, _, b in places]
    about = [found.about(slice(place, place + 1)) for place in range(1, 1 + len(variants))]
    table = table.join(pd.DataFrame(about)).assign(**found.alone())
    if "p" in table:
        own = table["p"].groupby(table["head"] > 0)
        table["q"] = own.transform(lambda part: benjamini_hochberg(part.to_numpy()))
    by = "loss" if "loss" in table else "lost"
    return table.sort_values(by, ascending=False, ignore_index=True)


@dataclass(frozen=True, eq=False)
class Costs:
    """How a model answers as it is, and under every variant.

    score  (1 + variant,) F1 or the task's metric, the model as it is first
    about  what is said of some of these together: of questions em and f1 with intervals over
           articles, and n_questions; of a task metric, score in points, and n_inputs; of both lost
           with low and high: points below the model as it is, articles or inputs drawn again
    alone  more columns with a number for every variant
    """

    score: np.ndarray
    about: Callable[[slice], dict[str, Any]]
    alone: Callable[[], dict[str, np.ndarray]]


def costs(
    model: FineTuned | SpanReader, corpus: Corpus, variants: Mapping[str, Variant], seed: int
) -> Costs:
    """The model's answers to questions, or to a task's inputs, under every variant."""
    if isinstance(model, FineTuned):
        return _task_costs(disabled(model, corpus, variants), seed)
    outcome = ablated(model, corpus.examples, {"as it is": (), **variants})
    return _question_costs(outcome, [question.article for question in corpus.examples], seed)


def _question_costs(found: Outcome, articles: Sequence[str], seed: int) -> Costs:
    def about(own: slice) -> dict[str, Any]:
        em, f1 = found.em[own].mean(0), found.f1[own].mean(0)
        lost = paired_loss(f1, found.f1[0], articles, seed=seed)
        ends = {"lost": 100 * lost.value, "low": 100 * lost.low, "high": 100 * lost.high}
        return summary(em, f1, articles, seed) | ends

    rise = found.loss[1:] - found.loss[0]
    return Costs(found.f1.mean(1), about, lambda: {"loss": np.nanmean(rise, 1)})


def _task_costs(found: Answers, seed: int) -> Costs:
    score = points(found)
    again = np.insert(-drawn_changes(found, seed=seed), 0, 0.0, axis=1)
    counted = {"metric": found.task.metric, "n_inputs": len(found.labels)}

    def about(own: slice) -> dict[str, Any]:
        low, high = percentile_interval(again[:, own].mean(1))
        ends = {"lost": (score[0] - score[own]).mean(), "low": float(low), "high": float(high)}
        return {**counted, "score": score[own].mean(), **ends}

    return Costs(score, about, lambda: {"p": p_values(found, seed=seed)})


# --- on the terminal ------------------------------------------------------------------------------


def show_ablation(table: pd.DataFrame) -> None:
    """A few variants with their scores, or all heads with what each costs."""
    metric = str(table["metric"].iloc[0]) if "metric" in table else None
    columns: list[tuple[str, Iterable[str]]]
    if "what" in table:
        table = table.assign(low=table["low"].mask(table["what"] == "as it is"))
        columns = [("heads", table["what"]), ("number", table["n_heads"].map(str))]
        if metric:
            columns += [(metric, _shown(table["score"], ".1f"))]
        else:
            columns += [("exact match", _shown(table["em"], ".1f"))]
            columns += [("F1", _shown(table["f1"], ".1f")), ("95 %", _ends(table, ".1f", "f1_"))]
        tests = [("p", _shown(table["p"], ".2f"))]
        counted = table["n_inputs" if metric else "n_questions"].iloc[0]
        note = f"{counted} {'inputs' if metric else 'questions'}. {RANDOM_SETS}"
    else:
        names = [
            f"{row.layer}-{row.head}" if row.head else f"layer {row.layer}"
            for row in table.itertuples()
        ]
        columns = [("head", names)]
        if metric:
            tests = [(name, _shown(table[name], ".3f")) for name in ("p", "q")]
            counted = table["n_inputs"].iloc[0]
            note = f"{metric} on {counted} inputs; q: false discoveries controlled."
        else:
            tests, note = [], "loss: rise of the right answer's cross-entropy, in nats."
            columns += [("loss", _shown(table["loss"], "+.3f"))]
    columns += [("points lost" if metric else "F1 lost", _shown(table["lost"], "+.1f"))]
    columns += [("95 %", _ends(table, "+.1f")), *tests]
    headings, cells = zip(*columns, strict=True)
    print_table(headings, zip(*cells, strict=True))
    console.print(note)


def _shown(values: Iterable[float], form: str) -> list[str]:
    """Numbers as text; a dash for what is undefined."""
    return ["–" if math.isnan(value) else format(value, form) for value in values]


def _ends(table: pd.DataFrame, form: str, of: str = "") -> list[str]:
    """The intervals of a column; a dash where there was nothing to draw again."""
    low, high = _shown(table[f"{of}low"], form), _shown(table[f"{of}high"], form)
    return [a if a == "–" else f"{a} to {b}" for a, b in zip(low, high, strict=True)]
