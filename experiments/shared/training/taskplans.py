"""The tasks of an edition: what each is fine-tuned on, how, and which inputs it is measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS
from attnlib.errors import BadValue, check_choice
from attnlib.models import Encoder
from bookkit.store import Found
from experiments.shared.training.finetune import FineTuned, finetuned
from experiments.shared.training.loop import Recipe

LEARNING_RATE = 1e-4
"""The smaller of the two that the paper chose from (sec. 4.1)."""


@dataclass(frozen=True, eq=False)
class Plan:
    """One task: its training inputs, the inputs that are measured, and the recipe."""

    task: str
    train: Corpus
    test: Corpus
    recipe: Mapping[str, Any]


def task_plans(
    corpus: Callable[..., Corpus],
    tasks: Mapping[str, Mapping[str, Any]],
    limit: int | None,
    **defaults: Any,
) -> dict[str, Plan]:
    """The plans of the tasks, by name.

    corpus    name, limit -> Corpus, such as `Chapter.corpus`
    tasks     task -> its own settings: train and test corpus, train_limit, fields of the recipe
    limit     inputs that are measured, at most
    defaults  settings of every task that does not say otherwise
    """
    plans = {}
    for task, own in tasks.items():
        check_choice("task", task, TASKS)
        settings = {"train": f"{task}:train", "learning_rate": LEARNING_RATE, **defaults, **own}
        test = settings.pop("test", f"{task}:dev")
        train, recipe = training(corpus, task, settings)
        plans[task] = Plan(task, train, corpus(test, limit), recipe)
    if not plans:
        raise BadValue("no task was named; expected at least one, such as mrpc.")
    return plans


def training(
    corpus: Callable[..., Corpus], name: str, given: Mapping[str, Any]
) -> tuple[Corpus, dict[str, Any]]:
    """What a model learns from, and by which recipe, as its settings say.

    given  train (the name of a corpus), train_limit, fields of the recipe
    """
    settings = dict(given)
    try:
        train = corpus(settings.pop("train"), settings.pop("train_limit", None))
        return train, asdict(Recipe(**settings))
    except (KeyError, TypeError) as error:
        raise BadValue(
            f"the settings of '{name}' are wrong ({error}); expected train, train_limit and "
            f"{', '.join(asdict(Recipe()))}."
        ) from None


def tuned_model(
    train: Corpus,
    *,
    encoder: Encoder,
    task: str,
    recipe: Mapping[str, Any],
    start: str = "pretrained",
) -> FineTuned:
    """The encoder fine-tuned by a plan; trained once, then read back."""
    return finetuned(encoder, train, task, recipe=Recipe(**recipe), start=start)


def over_tasks(
    run: Callable[..., Found], plans: Mapping[str, Plan]
) -> Callable[..., dict[str, Found]]:
    """A function that runs an experiment on every task: (experiment, **options) -> task -> Found.

    run  (experiment, *corpora, **options) -> Found, such as `Chapter.run`
    """

    def each(experiment: Callable[..., Found], **options: Any) -> dict[str, Found]:
        return {
            task: run(
                experiment, plan.train, plan.test, task=task, recipe=dict(plan.recipe), **options
            )
            for task, plan in plans.items()
        }

    return each
