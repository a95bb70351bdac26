"""`attnlib ablate` on a task: its numbers by single passes, its words, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlib.attention.ablation import matched_draws, run_changed
from attnlib.attention.encode import Collator, tokenized
from attnlib.attention.interventions import Intervention
from attnlib.data import corpora
from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.models import load_encoder
from experiments.shared import ablate_command as command
from experiments.shared.training.finetune import FineTuned, finetuned
from experiments.shared.training.loop import Recipe
from tests.experiments.shared.training.test_finetune import planted
from tests.families import HEADS, LAYERS, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

Run = Callable[..., tuple[int, str, str]]
TESTED = replace(planted(30, seed=3), name="sst2:dev")
LONG = Recipe(epochs=30, batch_size=8, learning_rate=2e-3, max_length=24)
"""Long enough to learn something that a change can take away."""


@pytest.fixture(scope="module")
def model(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> FineTuned:
    bert = load_encoder(folders("bert"), device="cpu")
    return finetuned(bert, planted(40), "sst2", recipe=LONG, cache=tmp_path_factory.mktemp("a"))


def right(model: FineTuned, *variant: Intervention) -> np.ndarray:
    """Whether each answer is right, one input at a time."""
    found = []
    for example in TESTED.examples:
        batch = Collator(model.encoder)(list(tokenized([example], model.encoder)))
        with torch.inference_mode():
            logits = model.head(run_changed(model.encoder, batch, variant), batch)
        found.append(int(logits.argmax()) == example.label)
    return np.array(found)


def test_changed_heads_beside_random_ones(model: FineTuned) -> None:
    heads = frozenset((layer, head) for layer in range(LAYERS) for head in range(HEADS - 1))
    whole, changed, random = command.changed_together(
        model, TESTED, heads, draws=3, seed=2, action="zero"
    ).to_dict("records")
    plain = 100 * right(model).mean()
    own = 100 * right(model, Intervention(heads, "zero")).mean()
    sets = matched_draws(heads, HEADS, draws=3, seed=2)
    drawn = [100 * right(model, Intervention(one, "zero")).mean() for one in sets]
    assert whole["score"] == pytest.approx(plain) and whole["lost"] == 0
    assert changed["score"] == pytest.approx(own)
    assert changed["lost"] == pytest.approx(plain - own)
    assert random["score"] == pytest.approx(np.mean(drawn))
    assert changed["low"] <= changed["lost"] <= changed["high"]
    assert changed["p"] == (1 + sum(one <= own + 1e-9 for one in drawn)) / 4
    assert (whole["n_heads"], changed["n_heads"]) == (0, len(heads))
    assert own != plain, "a change that changes nothing tests nothing"


def test_every_head_and_every_layer_alone(model: FineTuned) -> None:
    table = command.changed_alone(model, TESTED, action="uniform")
    assert len(table) == LAYERS * HEADS + LAYERS and (table["head"] == 0).sum() == LAYERS
    assert table["lost"].is_monotonic_decreasing
    assert (table["q"] >= table["p"] - 1e-12).all()
    plain = right(model).mean()
    for row in table.iloc[[0, -1]].itertuples():
        places = range(HEADS) if row.head == 0 else [row.head - 1]
        heads = frozenset((row.layer - 1, head) for head in places)
        own = right(model, Intervention(heads, "uniform")).mean()
        assert row.lost == pytest.approx(100 * (plain - own))


# --- words ----------------------------------------------------------------------------------------


def test_heads_by_name_layer_and_type() -> None:
    words = command.head_words(["5-4,8-10", "2-*"], [3], ["diagonal"])
    assert words == ["5-4", "8-10", "2-*", "3-*", "diagonal"]
    with pytest.raises(BadValue, match="layer 0"):
        command.head_words([], [0])


@pytest.mark.parametrize(("mode", "action"), [("intra", "no_intra"), ("no_inter", "no_inter")])
def test_modes_have_short_names(mode: str, action: str) -> None:
    how = command.manner(mode=mode, unit="segment", specials="kept", renormalise=True, length="64")
    assert how == {
        **{"action": action, "unit": "segment", "specials": "kept"},
        **{"renormalise": True, "length": 64},
    }


def test_only_a_corpus_of_a_task_has_one() -> None:
    assert command.task_of(TESTED).name == "sst2"  # type: ignore[union-attr]
    assert command.task_of(replace(TESTED, kind="segment")) is None
    assert command.task_of(replace(TESTED, name="own.jsonl")) is None


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folders: Callable[[str], Path]
) -> list[Any]:
    """A call on a small model, with the tests' own inputs for sst2; remembers what was read."""
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    read: list[tuple[str, int | None]] = []

    def load(name: str, limit: int | None = None, **_: Any) -> Corpus:
        read.append((name, limit))
        return TESTED if name in ("sst2", "sst2:dev") else replace(planted(24), name=name)

    monkeypatch.setattr(corpora, "load_corpus", load)
    return [read, "ablate", folders("bert"), "sst2", "--device", "cpu", "--train-limit", 24]


def test_a_task_is_learnt_from_its_own_inputs(known: list[Any], run: Run) -> None:
    read, *words = known
    code, out, err = run(*words, "--heads", "1-1,1-2", "--layer", 2, "--draws", 2, "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert [row["what"] for row in rows] == ["as it is", "changed", "random"]
    assert rows[1]["n_heads"] == 2 + HEADS and rows[0]["metric"] == "accuracy"
    assert read == [("sst2", 100), ("sst2:train", 24)]


def test_every_head_on_the_terminal(known: list[Any], run: Run) -> None:
    code, out, _ = run(*known[1:], "--each", "--mode", "uniform")
    lines = out.splitlines()
    assert code == 0 and len(lines) == 2 + LAYERS * HEADS + LAYERS
    assert "layer 2" in out and lines[-1].startswith("accuracy on 30 inputs")


def test_the_table_of_a_few_on_the_terminal(known: list[Any], run: Run) -> None:
    code, out, _ = run(*known[1:], "--type", "dense", "--draws", 1, "--mode", "inter")
    assert code == 0 and "accuracy" in out.splitlines()[0] and "30 inputs" in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "no head was named"),
        (("--layer", 9), f"expected layers 1 to {LAYERS} and heads 1 to {HEADS}"),
        (("--type", "diagnal"), "dense, diagonal"),
        (("--heads", "1-1", "--mode", "prune"), "zero, uniform"),
        (("--heads", "1-1", "--epochs", 0), "epochs is 0"),
    ],
)
def test_wrong_words_are_said_before_any_training(
    words: tuple[Any, ...], expected: str, known: list[Any], run: Run, tmp_path: Path
) -> None:
    code, out, err = run(*known[1:], *words)
    assert (code, out) == (2, "") and len(err.strip().splitlines()) == 1 and expected in err
    assert list(tmp_path.rglob("*.safetensors")) == []
