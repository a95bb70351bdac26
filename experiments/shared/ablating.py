"""Behind `attnlib ablate`: a model that has learnt a task, or to answer questions, loses heads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from attnlib.attention.interventions import Intervention
from attnlib.errors import BadValue
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder, load_encoder
from experiments.shared.training import Recipe

MODES = {"intra": "no_intra", "inter": "no_inter"}
"""Short names of what is cut."""


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
    returns the table of `ablation` or of `each_head` of the chapter whose task it is
    """
    from attnlib.data.corpora import load_corpus
    from experiments.guan2020 import command as questions
    from experiments.kovaleva2019 import command as tasks

    encoder = load_encoder(model, device=device)
    asked = load_corpus(task, limit=limit, seed=seed, tokenizer=encoder.tokenizer)
    own = tasks.task_of(asked)
    if own is None:
        questions.check_questions(asked)
    questions.check_heads(heads, each, encoder)
    width = max_length or min(128 if own else 256, encoder.max_length)
    plan = Recipe(batch_size=16, max_length=width, seed=seed, **recipe)
    if own is not None and train is None:
        train = f"{own.name}:train"
    learnt = [load_corpus(train, limit=train_limit, seed=seed)] if train else []
    given: Any = {"seed": seed, "progress": progress, **how}
    chapter: Any = questions if own is None else tasks
    if own is None:
        subject: Any = _reader(encoder, learnt, plan, max_length, progress)
    else:
        from experiments.shared.finetune import finetuned

        subject = finetuned(encoder, learnt[0], own.name, recipe=plan, progress=progress)
    if each:
        found: pd.DataFrame = chapter.each_head(subject, asked, **given)
        return found
    chosen = questions.chosen_heads(heads, subject.encoder, asked, width)
    found = chapter.ablation(subject, asked, chosen, draws=draws, **given)
    return found


def _reader(
    encoder: Encoder,
    learnt: list[Any],
    plan: Recipe,
    max_length: int | None,
    progress: Progress | None,
) -> Any:
    from experiments.guan2020.subjects import reader_of

    reader = reader_of(*learnt, encoder=encoder, recipe=vars(plan), progress=progress)
    return reader if max_length is None else reader.reading(max_length)
