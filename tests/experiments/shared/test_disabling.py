"""Disabling heads of a fine-tuned model, against whole passes, loops and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from attnlib.attention.encode import Collator, tokenized
from attnlib.attention.interventions import run_changed
from attnlib.data.tasks import TASKS
from attnlib.errors import BadValue
from attnlib.models import load_encoder
from experiments.shared.disabling import (
    Answers,
    disabled,
    drawn_changes,
    every_head_and_layer,
    p_values,
    points,
)
from experiments.shared.finetune import FineTuned, finetuned
from experiments.shared.glue import accuracy, f1, pearson
from tests.experiments.shared.test_finetune import SHORT, planted, scored
from tests.families import HEADS, LAYERS, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures


@pytest.fixture(scope="module")
def model(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> FineTuned:
    bert = load_encoder(folders("bert"), device="cpu")
    return finetuned(bert, planted(40), "sst2", recipe=SHORT, cache=tmp_path_factory.mktemp("d"))


def test_a_sweep_has_every_head_and_every_layer(model: FineTuned) -> None:
    variants = every_head_and_layer(model)
    assert len(variants) == LAYERS * HEADS + LAYERS
    assert next(iter(variants)) == "1-1" and list(variants)[-1] == f"layer {LAYERS}"
    (whole,) = variants["layer 2"]
    assert whole.heads == {(1, head) for head in range(HEADS)} and whole.action == "uniform"


def test_answers_are_those_of_whole_passes_one_input_at_a_time(model: FineTuned) -> None:
    corpus = planted(9, seed=3)
    variants = every_head_and_layer(model)
    found = disabled(model, corpus, variants, batch_size=4)
    assert found.names == ("whole", *variants) and found.answers.shape == (len(variants) + 1, 9)
    for row, (name, variant) in enumerate({"whole": (), **variants}.items()):
        for place, example in enumerate(corpus.examples):
            batch = Collator(model.encoder)(list(tokenized([example], model.encoder)))
            with torch.inference_mode():
                logits = model.head(run_changed(model.encoder, batch, variant), batch)
            assert found.answers[row, place] == int(logits.argmax()), (name, place)
    assert np.array_equal(found.answers[0], model.predictions(corpus.examples))
    assert np.array_equal(found.labels, [one.label for one in corpus.examples])


def test_scores_are_answered_for_scores(folders: Callable[[str], Path], tmp_path: Path) -> None:
    bert = load_encoder(folders("bert"), device="cpu")
    own = finetuned(bert, scored(24), "stsb", recipe=SHORT, cache=tmp_path)
    found = disabled(own, scored(7, seed=2), every_head_and_layer(own))
    assert np.allclose(found.answers[0], own.predictions(scored(7, seed=2).examples), atol=1e-6)
    assert len(np.unique(found.answers[0])) > 2


def test_nothing_to_disable_is_refused(model: FineTuned) -> None:
    with pytest.raises(BadValue, match="no variant"):
        disabled(model, planted(4), {})


def toy(task: str, n: int = 60, variants: int = 5, seed: int = 0) -> Answers:
    rng = np.random.default_rng(seed)
    names = ("whole", *(f"1-{i}" for i in range(1, variants)))
    if TASKS[task].regression:
        labels = rng.uniform(0, 5, n)
        answers = labels + rng.normal(0, 1, (variants, n))
    else:
        labels = rng.integers(0, 2, n).astype(float)
        answers = np.where(rng.random((variants, n)) < 0.8, labels, 1 - labels)
    return Answers(names, answers, labels, TASKS[task])


@pytest.mark.parametrize("task", ["sst2", "mrpc", "stsb"])
def test_changes_are_those_of_inputs_really_drawn_again(task: str) -> None:
    found = toy(task)
    draws = drawn_changes(found, draws=20, seed=4)
    rng = np.random.default_rng(4)
    n = len(found.labels)
    metric = {"sst2": accuracy, "mrpc": f1, "stsb": lambda a, b: spearmanr(a, b).statistic}[task]
    for row in draws:
        places = rng.integers(0, n, n)
        own = [100 * metric(answers[places], found.labels[places]) for answers in found.answers]
        assert row == pytest.approx(np.subtract(own[1:], own[0]), abs=1e-9)


def test_points_are_the_metric_of_the_task() -> None:
    found = toy("mrpc")
    assert points(found) == pytest.approx([100 * f1(row, found.labels) for row in found.answers])
    found = toy("stsb")
    spearman = [100 * spearmanr(row, found.labels).statistic for row in found.answers]
    assert points(found) == pytest.approx(spearman)
    assert pearson(found.answers[0], found.labels) == pytest.approx(
        np.corrcoef(found.answers[0], found.labels)[0, 1]
    )


def test_p_by_hand() -> None:
    labels = np.ones(10)
    whole, better = np.ones(10), np.ones(10)
    whole[:6] = 0  # six inputs that only the variant gets right
    found = Answers(
        ("whole", "1-1", "1-2"), np.stack([whole, better, whole]), labels, TASKS["sst2"]
    )
    assert p_values(found) == pytest.approx([2 / 2**6, 1.0])


def test_p_is_even_where_nothing_differs_but_chance() -> None:
    """Twelve variants of pure noise, fifty times: one p in twenty is below 0.05."""
    small = np.concatenate(
        [p_values(toy("mrpc", n=80, variants=13, seed=s), draws=200, seed=s) for s in range(25)]
    )
    assert 0.01 < (small <= 0.05).mean() < 0.10 and 0.4 < np.median(small) < 0.6


def test_a_planted_gain_is_found() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200).astype(float)
    whole = np.where(rng.random(200) < 0.7, labels, 1 - labels)
    right = np.where(rng.random(200) < 0.95, labels, 1 - labels)
    for task in ("sst2", "mrpc"):
        found = Answers(("whole", "a", "b"), np.stack([whole, right, whole]), labels, TASKS[task])
        first, second = p_values(found, draws=500)
        assert first < 0.01 and second == 1.0
        assert (np.percentile(drawn_changes(found, seed=1), 2.5, axis=0) > 0).tolist() == [
            True,
            False,
        ]
