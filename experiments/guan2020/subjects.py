"""The models of the chapter: pre-trained, fine-tuned for questions, fine-tuned on tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS
from attnlib.errors import BadValue
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder, load_encoder, model_folder
from bookkit.store import Found
from experiments.shared.chapter import file_digest
from experiments.shared.finetune import finetuned
from experiments.shared.publishedreader import published_reader
from experiments.shared.spanmodel import SpanReader, spantuned
from experiments.shared.training import Recipe

PRETRAINED, QUESTIONS = "pretrained", "squad"
"""Names of two of the models; every other one has the name of its task."""
SPANS = "spans"


@dataclass(frozen=True, eq=False)
class Subject:
    """A model of the chapter: what it was trained on, if anything, for what, and how."""

    name: str
    task: str | None = None
    train: Corpus | None = None
    recipe: Mapping[str, Any] | None = None

    @property
    def corpora(self) -> tuple[Corpus, ...]:
        return () if self.train is None else (self.train,)

    @property
    def settings(self) -> dict[str, Any]:
        """What an experiment on this model is told besides its corpora."""
        recipe = None if self.recipe is None else dict(self.recipe)
        return {"model": self.name, "task": self.task, "recipe": recipe}


def subjects(
    corpus: Callable[..., Corpus],
    questions: Mapping[str, Any],
    tasks: Mapping[str, Mapping[str, Any]],
) -> dict[str, Subject]:
    """All models of the chapter by name, the pre-trained one first.

    corpus     name, limit -> Corpus, such as `Chapter.corpus`
    questions  settings of the question answering model: train, train_limit, fields of a Recipe;
               or {"published": a model that has a head for answers}
    tasks      task -> its settings, as those of questions
    """
    found = {PRETRAINED: Subject(PRETRAINED)}
    if "published" in questions:
        found[QUESTIONS] = Subject(QUESTIONS, SPANS, None, _published(questions["published"]))
    else:
        found[QUESTIONS] = _subject(QUESTIONS, SPANS, corpus, questions)
    for task, own in tasks.items():
        if task not in TASKS:
            raise BadValue(f"task '{task}' is unknown; expected one of {', '.join(TASKS)}.")
        found[task] = _subject(task, task, corpus, {"train": f"{task}:train", **own})
    return found


def _subject(
    name: str, task: str, corpus: Callable[..., Corpus], given: Mapping[str, Any]
) -> Subject:
    settings = dict(given)
    try:
        train = corpus(settings.pop("train"), settings.pop("train_limit", None))
        recipe = Recipe(**settings)
    except (KeyError, TypeError) as error:
        raise BadValue(
            f"the settings of '{name}' are wrong ({error}); expected train, train_limit and "
            f"{', '.join(asdict(Recipe()))}."
        ) from None
    return Subject(name, task, train, asdict(recipe))


def _published(name: str) -> dict[str, Any]:
    """A published model as a recipe: its name, and the digest of its files for the results."""
    return {"published": name, "files": file_digest(model_folder(name))}


def reader_of(
    *train: Corpus,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
    progress: Progress | None = None,
) -> SpanReader:
    """The model that answers questions: trained once and read back, or published with a head."""
    if train and recipe is not None:
        return spantuned(encoder, train[0], recipe=Recipe(**recipe), progress=progress)
    if recipe is not None and "published" in recipe:
        return published_reader(load_encoder(recipe["published"], device=encoder.device.type))
    return published_reader(encoder)


def reader_and_types(
    given: tuple[Corpus | pd.DataFrame, ...],
    *,
    encoder: Encoder,
    recipe: Mapping[str, Any] | None,
) -> tuple[SpanReader, Corpus, pd.DataFrame]:
    """The reader, the questions it is asked and the types of its heads.

    given  what the reader learns from, if anything; the questions; the table of `head_types`
    """
    corpora = [one for one in given if isinstance(one, Corpus)]
    tables = [one for one in given if isinstance(one, pd.DataFrame)]
    if not corpora or len(tables) != 1:
        raise BadValue(
            f"{len(corpora)} corpora and {len(tables)} tables; expected questions to learn from, "
            "if any, questions to ask, and one table of head types."
        )
    *train, test = corpora
    return reader_of(*train, encoder=encoder, recipe=recipe), test, tables[0]


def model_of(
    *train: Corpus,
    encoder: Encoder,
    task: str | None,
    recipe: Mapping[str, Any] | None,
    progress: Progress | None = None,
) -> Encoder:
    """The encoder of one of the chapter's models."""
    if task is None:
        return encoder
    if task == SPANS:
        return reader_of(*train, encoder=encoder, recipe=recipe, progress=progress).encoder
    assert train and recipe is not None, f"{task} needs inputs to learn from"
    own = finetuned(encoder, train[0], task, recipe=Recipe(**recipe), progress=progress)
    return own.encoder


def over_subjects(
    run: Callable[..., Found], found: Mapping[str, Subject]
) -> Callable[..., dict[str, Found]]:
    """A function that runs an experiment on every model: (experiment, *corpora, **options).

    run  (experiment, *corpora, **options) -> Found, such as `Chapter.run`
    """

    def each(experiment: Callable[..., Found], *inputs: Corpus, **options: Any) -> dict[str, Found]:
        return {
            name: run(experiment, *one.corpora, *inputs, **one.settings, **options)
            for name, one in found.items()
        }

    return each
