"""The tasks of an edition: what each is fine-tuned on, how, and which inputs it is measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from attnlib.data.corpora import Corpus
from attnlib.data.tasks import TASKS
from attnlib.errors import BadValue
from attnlib.models import Encoder
from bookkit.store import Found
from experiments.shared.training.finetune import FineTuned, finetuned
from experiments.shared.training.loop import Recipe

LEARNING_RATE = 1e-4
"""The smaller of the two that the paper chose from (sec. 4.1)."""
KEYS = {"train", "test", "train_limit", *(field.name for field in fields(Recipe))}


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
        given = {**defaults, **own}
        wrong = sorted(set(given) - KEYS)
        if wrong:
            expected = ", ".join(sorted(KEYS))
            raise BadValue(f"task '{task}' has a setting '{wrong[0]}'; expected {expected}.")
        if task not in TASKS:
            raise BadValue(f"task '{task}' is unknown; expected one of {', '.join(TASKS)}.")
        settings = {"learning_rate": LEARNING_RATE, **given}
        train = corpus(settings.pop("train", f"{task}:train"), settings.pop("train_limit", None))
        test = corpus(settings.pop("test", f"{task}:dev"), limit)
        plans[task] = Plan(task, train, test, asdict(Recipe(**settings)))
    if not plans:
        raise BadValue("no task was named; expected at least one, such as mrpc.")
    return plans


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
