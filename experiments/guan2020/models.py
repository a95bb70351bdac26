"""The models of the chapter: pre-trained, fine-tuned for questions, fine-tuned on tasks.

One of them reads: it answers questions on texts that it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS
from attnlib.errors import check_choice
from attnlib.models import Encoder, model_folder
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.shared.chapter import file_digest
from experiments.shared.training.answers import score_answers, summary
from experiments.shared.training.publishedreader import reader_of
from experiments.shared.training.spanmodel import SpanHead, SpanReader, first_texts
from experiments.shared.training.taskplans import training, tuned_model

PRETRAINED, QUESTIONS = "pretrained", "squad"
"""Names of two of the models; every other one has the name of its task."""
SPANS = "spans"


@dataclass(frozen=True, eq=False)
class Subject:
    """A model of the chapter: what it was trained on, if anything, for what, and how."""

    name: str
    task: str | None = None
    corpora: tuple[Corpus, ...] = ()
    recipe: Mapping[str, Any] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What an experiment on this model is told besides its corpora."""
        return {"model": self.name, "task": self.task, "recipe": self.recipe}


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
        name = questions["published"]
        recipe = {"published": name, "files": file_digest(model_folder(name))}
        found[QUESTIONS] = Subject(QUESTIONS, SPANS, (), recipe)
    else:
        train, recipe = training(corpus, QUESTIONS, questions)
        found[QUESTIONS] = Subject(QUESTIONS, SPANS, (train,), recipe)
    for task, own in tasks.items():
        check_choice("task", task, TASKS)
        train, recipe = training(corpus, task, {"train": f"{task}:train", **own})
        found[task] = Subject(task, task, (train,), recipe)
    return found


def model_of(
    *train: Corpus, encoder: Encoder, task: str | None, recipe: Mapping[str, Any] | None
) -> Encoder:
    """The encoder of one of the chapter's models."""
    if task is None:
        return encoder
    if task == SPANS:
        return reader_of(*train, encoder=encoder, recipe=recipe).encoder
    assert train and recipe is not None, f"{task} needs inputs to learn from"
    return tuned_model(train[0], encoder=encoder, task=task, recipe=recipe).encoder


@experiment(version=1, trains=True)
def reading(
    *corpora: Corpus, encoder: Encoder, recipe: Mapping[str, Any] | None, name: str, seed: int = 0
) -> Found:
    """The reader's answers to questions on texts it has not seen, beside an untrained reader's.

    corpora  what it learns from, if anything, and last the questions that it is asked
    table    reader ("trained", "untrained"), em, f1 and their intervals over articles
    """
    *train, test = corpora
    trained = reader_of(*train, encoder=encoder, recipe=recipe)
    blank = SpanReader(encoder, SpanHead(encoder, seed), trained.facts)
    groups = [question.article for question in test.examples]
    rows: list[dict[str, Any]] = []
    for label, reader in (("trained", trained), ("untrained", blank)):
        em, f1 = score_answers(first_texts(reader.answers(test.examples, n_best=1)), test.examples)
        rows.append({"reader": label, **summary(em, f1, groups, seed)})
    facts, own = trained.facts, rows[0]
    findings = {
        f"reading.{name}.{score}": Finding(own[score], own[f"{score}_low"], own[f"{score}_high"])
        for score in ("em", "f1")
    }
    learnt = 3 * facts.get("steps", 0) * (facts["recipe"].get("batch_size") or 0)
    told = ("corpus", "n_train", "steps", "epochs", "final_loss", "seconds", "history", "recipe")
    counts = {"inputs": facts.get("n_train"), "asked": len(test), "articles": len(set(groups))}
    counts |= {"passes": learnt + 2 * len(test), **{key: facts.get(key) for key in told}}
    return Found(pd.DataFrame(rows), findings, counts)
