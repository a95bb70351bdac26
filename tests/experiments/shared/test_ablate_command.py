"""`attnlib ablate`: what it prints and writes, what it hands on, and what it refuses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnlib.attention.ablation import matched_draws
from attnlib.attention.interventions import Intervention
from attnlib.data import corpora
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment
from attnlib.errors import BadValue
from attnlib.models import load_encoder
from experiments.shared import ablate_command as command
from experiments.shared.ablation import Outcome
from experiments.shared.training import publishedreader
from experiments.shared.training.spanmodel import SpanReader
from tests.experiments.shared.test_ablation import QUESTIONS as ASKED
from tests.experiments.shared.test_ablation import naive, reader_on
from tests.experiments.shared.training.test_publishedreader import saved, trained_elsewhere
from tests.families import HEADS, LAYERS, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

Run = Callable[..., tuple[int, str, str]]
TOY = Corpus("toy:dev", "question", ASKED, {}, "here", "toy")


@pytest.fixture(scope="module")
def reader(folders: Callable[[str], Path]) -> SpanReader:
    return reader_on(load_encoder(folders("bert"), device="cpu"))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Names that begin with toy are the tests' questions; remembers what was loaded."""
    asked: list[tuple[str, Any]] = []
    honest = corpora.load_corpus

    def load(name: Any, **options: Any) -> Corpus:
        asked.append((str(name), options.get("limit")))
        return TOY if str(name).startswith("toy") else honest(name, **options)

    monkeypatch.setattr(corpora, "load_corpus", load)
    return asked


@pytest.fixture
def known(
    toy: Any, reader: SpanReader, monkeypatch: pytest.MonkeyPatch, folders: Callable[[str], Path]
) -> list[Any]:
    """The words of a call on the tests' own reader, which no training is needed for."""
    monkeypatch.setattr(publishedreader, "reader_of", lambda *_, **__: reader)
    return ["ablate", folders("bert"), "toy:dev", "--device", "cpu"]


# --- the numbers ----------------------------------------------------------------------------------

CHOSEN = frozenset({(0, 0), *((1, head) for head in range(HEADS))})
WORDS = ("--heads", "2-*", "--heads", "1-1")


def scores(reader: SpanReader, *variant: Intervention) -> np.ndarray:
    """(question, 2): exact match and F1 in percent, by single passes."""
    found = [naive(reader, one, variant) for one in ASKED]
    return 100 * np.array([(em, f1) for _, em, f1, _ in found])


def test_changed_heads_beside_random_ones(known: list[Any], run: Run, reader: SpanReader) -> None:
    options = ("--action", "uniform", "--draws", 3, "--seed", 2, "--json")
    code, out, err = run(*known, *WORDS, *options)
    assert (code, err) == (0, "")
    whole, changed, random = json.loads(out)
    assert [one["what"] for one in (whole, changed, random)] == ["as it is", "changed", "random"]
    assert [one["n_heads"] for one in (whole, changed, random)] == [0, 5, 5]
    plain = scores(reader)
    ours = scores(reader, Intervention(CHOSEN, "uniform"))
    sets = matched_draws(CHOSEN, HEADS, draws=3, seed=2)
    drawn = np.stack([scores(reader, Intervention(one, "uniform")) for one in sets])
    for row, expected in ((whole, plain), (changed, ours), (random, drawn.mean(0))):
        assert (row["em"], row["f1"]) == pytest.approx(tuple(expected.mean(0)))
        assert row["lost"] == pytest.approx((plain - expected)[:, 1].mean())
        assert row["f1_low"] <= row["f1"] <= row["f1_high"]
        assert row["low"] <= row["lost"] <= row["high"]
        assert row["n_questions"] == 5 and row["n_groups"] == 2
    assert whole["lost"] == 0 and len({one["f1"] for one in (whole, changed, random)}) > 1
    n_worse = sum(one[:, 1].mean() <= ours[:, 1].mean() + 1e-9 for one in drawn)
    assert changed["p"] == pytest.approx((1 + n_worse) / 4)
    assert whole["p"] is None and random["p"] is None


def test_without_random_sets(known: list[Any], run: Run) -> None:
    _, out, _ = run(*known, *WORDS, "--draws", 0, "--json")
    assert [(row["what"], row["p"]) for row in json.loads(out)] == [
        *(("as it is", None), ("changed", None))
    ]


def test_every_head_alone(known: list[Any], run: Run, reader: SpanReader) -> None:
    code, out, _ = run(*known, "--each", "--json")
    table = json.loads(out)
    assert code == 0 and len(table) == LAYERS * HEADS
    assert len({(row["layer"], row["head"]) for row in table}) == LAYERS * HEADS
    assert {row["layer"] for row in table} == set(range(1, LAYERS + 1))
    losses = [row["loss"] for row in table]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]
    plain = [naive(reader, one, ()) for one in ASKED]
    for row in (table[0], table[-1]):
        head = frozenset({(row["layer"] - 1, row["head"] - 1)})
        own = [naive(reader, one, (Intervention(head, "zero"),)) for one in ASKED]
        rise = [one[3] - other[3] for one, other in zip(own, plain, strict=True)]
        assert row["loss"] == pytest.approx(np.nanmean(rise), abs=1e-4)
        fall = [other[2] - one[2] for one, other in zip(own, plain, strict=True)]
        assert row["lost"] == pytest.approx(100 * np.mean(fall))
        assert row["low"] <= row["lost"] <= row["high"]


def test_the_seed_draws_the_articles_of_every_head(
    known: list[Any], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds, honest = [], command.paired_loss

    def spy(*given: Any, seed: int) -> Any:
        seeds.append(seed)
        return honest(*given, seed=seed)

    monkeypatch.setattr(command, "paired_loss", spy)
    assert run(*known, "--each", "--seed", 7)[0] == 0
    assert seeds == [7] * (LAYERS * HEADS)


def test_the_table_on_the_terminal(known: list[Any], run: Run) -> None:
    code, out, err = run(*known, "--heads", "1-2", "--draws", 2)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:2] == ["heads", "number"]
    assert [line[0] for line in lines[1:4]] == ["as", "changed", "random"]
    assert lines[2][1] == lines[3][1] == "1" and lines[1][3] == "0"
    assert lines[1][-1] == lines[3][-1] == "–" and float(lines[2][-1]) in (0.33, 0.67, 1.0)
    assert "5 questions" in out
    code, out, _ = run(*known, "--each")
    assert code == 0 and "in nats" in out and len(out.splitlines()) == LAYERS * HEADS + 2


def shown(table: pd.DataFrame) -> str:
    with command.console.capture() as captured:
        command.show_ablation(table)
    return captured.get()


LOST = {"lost": 0.5, "low": math.nan, "high": math.nan}


def test_what_is_undefined_is_a_dash() -> None:
    row = {"what": "changed", "n_heads": 3, "em": 12.34, "f1": 23.45, "f1_low": math.nan}
    row |= {**LOST, "f1_high": math.nan, "lost": -1.25, "p": math.nan, "n_questions": 7}
    line = shown(pd.DataFrame([row])).splitlines()[1].split()
    assert line == ["changed", "3", "12.3", "23.4", "–", "-1.2", "–", "–"]
    line = shown(pd.DataFrame([{**row, "f1_low": 1.04, "f1_high": 40.06, "p": 0.333}]))
    assert "1.0 to 40.1" in line and "0.33" in line
    assert "-2.1 to +0.5" in shown(pd.DataFrame([{**row, "low": -2.1, "high": 0.5}]))


def test_a_loss_that_is_undefined_is_a_dash() -> None:
    out = shown(pd.DataFrame([{"layer": 1, "head": 2, "loss": math.nan, **LOST}]))
    assert "nan" not in out


def test_heads_whose_loss_is_undefined_come_last(
    reader: SpanReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(reader: Any, questions: Any, variants: Any, **_: Any) -> Outcome:
        loss = np.arange(float(len(variants)))[:, None] * np.array([[1.0] + 4 * [math.nan]])
        loss[3] = math.nan
        f1 = np.zeros_like(loss)
        return Outcome(tuple(variants), f1, f1, loss)

    monkeypatch.setattr(command, "ablated", fake)
    with pytest.warns(RuntimeWarning, match="empty"):
        table = command.changed_alone(reader, TOY, action="zero")
    assert table[["layer", "head"]].iloc[0].tolist() == [LAYERS, HEADS]
    assert table[["layer", "head"]].iloc[-1].tolist() == [1, 3] and math.isnan(
        table["loss"].iloc[-1]
    )


# --- what is handed on ----------------------------------------------------------------------------


def test_every_option_reaches_the_intervention(
    known: list[Any], toy: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    table = pd.DataFrame([{"what": "as it is"}])

    def spy(reader: Any, corpus: Any, heads: Any, **options: Any) -> pd.DataFrame:
        seen.append((heads, options))
        return table

    monkeypatch.setattr(command, "changed_together", spy)
    how = ("--action", "no_inter", "--unit", "segment", "--specials", "kept", "--renormalise")
    rest = ("--length", "padded", "--draws", 7, "--seed", 4, "--limit", 3)
    assert run(*known, "--heads", "3-4", *how, *rest, "--json")[0] == 0
    ((heads, options),) = seen
    assert heads == {(2, 3)} and toy[-1] == ("toy:dev", 3)
    assert options == {
        **{"action": "no_inter", "unit": "segment", "specials": "kept", "renormalise": True},
        **{"length": "padded", "draws": 7, "seed": 4},
    }
    assert run(*known, "--heads", "3-4", "--json")[0] == 0
    assert seen[1][1] == {
        **{"action": "zero", "unit": "sentence", "specials": "sentence", "renormalise": False},
        **{"length": "real", "draws": 10, "seed": 0},
    }


def test_types_are_those_of_the_model_on_the_questions(
    known: list[Any], run: Run, reader: SpanReader
) -> None:
    types = command.types_on(reader.encoder, TOY, 60)
    n_vertical = int((types["type"] == "vertical").sum())
    _, out, _ = run(*known, "--heads", "vertical", "--max-length", 60, "--draws", 0, "--json")
    assert json.loads(out)[1]["n_heads"] == n_vertical


def test_a_published_model_needs_no_training(run: Run, tmp_path: Path) -> None:
    """On the book's own questions, which come with the package."""
    model = saved(trained_elsewhere(max_position_embeddings=400), tmp_path / "hub")
    words = ("--heads", "1-1", "--limit", 1, "--draws", 1, "--device", "cpu", "--json")
    code, out, err = run("ablate", model, "reader-qa", *words)
    assert (code, err) == (0, "")
    assert [row["n_questions"] for row in json.loads(out)] == [1, 1, 1]
    assert json.loads(out)[0]["f1_low"] is None  # one article


def test_a_reader_is_trained_first(
    run: Run, toy: Any, folders: Callable[[str], Path], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    learn = ("--train", "toy:train", "--train-limit", 4, "--epochs", 1, "--max-length", 24)
    words = ("--heads", "1-1", "--draws", 0, "--device", "cpu", "--json", *learn)
    code, out, _ = run("ablate", folders("bert"), "toy:dev", *words)
    assert code == 0 and len(json.loads(out)) == 2
    assert toy == [("toy:dev", 100), ("toy:train", 4)]
    (kept,) = tmp_path.rglob("model.safetensors")
    written = kept.stat().st_mtime_ns
    assert run("ablate", folders("bert"), "toy:dev", *words)[1] == out  # read back
    assert list(tmp_path.rglob("model.safetensors")) == [kept]
    assert kept.stat().st_mtime_ns == written


# --- what is refused ------------------------------------------------------------------------------


def sentence(err: str) -> str:
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    return lines[0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "no head was named; use --heads"),
        (("--heads", "2_1"), "'2_1' names no head"),
        (("--heads", "diagnal"), "dense, diagonal, dense&vertical, vertical"),
        (("--heads", "0-1"), "'0-1' names no head"),
        (("--heads", "*-5"), "expected layers 1 to 3 and heads 1 to 4"),
        (("--heads", "4-1"), "head"),
        (("--heads", "1-5"), "expected layers 1 to 3 and heads 1 to 4"),
        (("--heads", "1-1", "--draws", -1), "-1 random sets"),
        (("--heads", "1-1", "--action", "prune"), "zero, uniform, no_intra, no_inter"),
        (("--heads", "1-1", "--unit", "word"), "sentence, segment"),
        (("--heads", "1-1", "--specials", "no"), "sentence, kept"),
        (("--heads", "1-1", "--length", "long"), "real, padded"),
        (("--each", "--epochs", 0), "epochs is 0"),
        (("--each", "--seed", -1), "seed is -1"),
    ],
)
def test_wrong_words_get_one_sentence(
    words: tuple[Any, ...], expected: str, known: list[Any], run: Run
) -> None:
    code, out, err = run(*known, *words)
    assert code == 2 and out == ""
    assert expected in sentence(err)


def test_texts_are_no_questions(run: Run, folders: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "letters.txt"
    path.write_text("It rained.\n")
    code, out, err = run("ablate", folders("bert"), path, "--each", "--device", "cpu")
    assert (code, out) == (2, "") and "squad:dev" in sentence(err)
    mixed = Corpus("mixed", "segment", (ASKED[0], Segment("0", "It rained.")), {}, "here", "")
    with pytest.raises(corpora.CorpusError, match="'mixed' is no corpus of questions"):
        command.check_answered(mixed.examples, mixed.name)
    command.check_answered(TOY.examples, TOY.name)


def test_a_model_without_a_head_must_learn(
    run: Run, toy: Any, folders: Callable[[str], Path]
) -> None:
    code, _, err = run("ablate", folders("bert"), "toy:dev", "--each", "--device", "cpu")
    assert code == 2 and "has no head that reads answers" in sentence(err)


def test_the_advice_can_be_followed_on_the_command_line(
    run: Run, toy: Any, folders: Callable[[str], Path]
) -> None:
    _, _, err = run("ablate", folders("bert"), "toy:dev", "--each", "--device", "cpu")
    assert "--train" in err


@pytest.mark.parametrize("words", [(), ("--heads", "2_1"), ("--heads", "9-*")], ids=str)
def test_wrong_heads_are_said_before_the_training(
    words: tuple[Any, ...], known: list[Any], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    monkeypatch.setattr(publishedreader, "reader_of", lambda *_, **__: trained.append(1))
    assert run(*known, *words)[0] == 2
    assert trained == []


def test_heads_and_each_exclude_each_other(known: list[Any], run: Run) -> None:
    assert run(*known, "--each", "--heads", "1-1", "--json")[0] == 2


def test_the_length_is_that_of_the_windows(
    run: Run, toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def spy(reader: SpanReader, corpus: Corpus, *_: Any, **__: Any) -> pd.DataFrame:
        seen.append(max(len(window.encoded) for window in reader.windows(corpus.examples)))
        return pd.DataFrame([{"what": "as it is"}])

    monkeypatch.setattr(command, "changed_together", spy)
    model = saved(trained_elsewhere(max_position_embeddings=400), tmp_path / "hub")
    words = ("--heads", "1-1", "--max-length", 24, "--device", "cpu", "--json")
    assert run("ablate", model, "toy:dev", *words)[0] == 0
    assert seen[0] <= 24


# --- heads by name on the command line ------------------------------------------------------------


def types_table(given: Sequence[str], n_heads: int = HEADS) -> pd.DataFrame:
    """Types of the heads, layer by layer."""
    places = np.arange(len(given))
    return pd.DataFrame(
        {"layer": places // n_heads + 1, "head": places % n_heads + 1, "type": list(given)}
    )


TOY_TYPES = types_table(
    (
        *("dense", "dense", "diagonal", "diagonal"),
        *("dense", "diagonal", "dense&vertical", "dense&vertical"),
        *("dense&vertical", "vertical", "diagonal", "vertical"),
    )
)
HEADS_OF = {
    "dense": {(0, 0), (0, 1), (1, 0)},
    "diagonal": {(0, 2), (0, 3), (1, 1), (2, 2)},
    "dense&vertical": {(1, 2), (1, 3), (2, 0)},
    "vertical": {(2, 1), (2, 3)},
}


@pytest.fixture
def no_types(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Types are those of the tests' table; remembers how often they were looked up."""
    asked: list[Any] = []
    monkeypatch.setattr(command, "types_on", lambda *given: asked.append(given) or TOY_TYPES)
    return asked


def layer_of(layer: int) -> set[tuple[int, int]]:
    return {(layer, head) for head in range(HEADS)}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["2-4"], {(1, 3)}),
        (["2-*"], layer_of(1)),
        (["*-4"], {(layer, 3) for layer in range(LAYERS)}),
        (["*-*"], layer_of(0) | layer_of(1) | layer_of(2)),
        (["1-1", "3-*", "1-1"], {(0, 0)} | layer_of(2)),
        (["vertical"], HEADS_OF["vertical"]),
        (
            ["dense&vertical", "dense", "3-4"],
            HEADS_OF["dense&vertical"] | HEADS_OF["dense"] | {(2, 3)},
        ),
    ],
)
def test_heads_by_pattern(
    given: list[str], expected: Any, reader: SpanReader, no_types: Any
) -> None:
    found = command.chosen_heads(given, reader.encoder, TOY, 66)
    assert isinstance(found, frozenset) and found == expected
    assert len(no_types) == any(one in HEADS_OF for one in given)  # found once, and only if needed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no head was named; use --heads"),
        (["5_4"], "'5_4' names no head; expected .*5-4.*dense, diagonal"),
        (["diagonals"], "'diagonals' names no head"),
        (["1-2-3"], "names no head"),
        (["-1"], "names no head"),
        (["0-1"], "'0-1' names no head"),
        (["0-*"], "'0-\\*' names no head"),
        (["*-5"], "expected layers 1 to 3 and heads 1 to 4"),
        (["4-*"], "expected layers 1 to 3 and heads 1 to 4"),
        (["1-1", "x"], "'x' names no head"),
    ],
)
def test_heads_that_are_none(
    given: list[str], message: str, reader: SpanReader, no_types: Any
) -> None:
    with pytest.raises(BadValue, match=message):
        command.chosen_heads(given, reader.encoder, TOY, 66)


def test_a_head_beyond_the_model_is_refused(reader: SpanReader) -> None:
    for name, head in {"4-1": (3, 0), "1-5": (0, 4)}.items():
        with pytest.raises(BadValue, match="expected layers 1 to 3 and heads 1 to 4"):
            command.chosen_heads([name], reader.encoder, TOY, 66)
        for draws in (0, 2):
            with pytest.raises(BadValue, match="head"):
                command.changed_together(reader, TOY, frozenset([head]), action="zero", draws=draws)
