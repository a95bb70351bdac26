"""A model learns to read answers out of paragraphs, goes on where it stopped, is trained once."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnlib.attention.encode import Batch
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Answer, Question, TaskExample
from attnlib.errors import AttnlibError, BadValue, CorpusError, TooLong
from attnlib.models import Encoder, load_encoder, weights_digest
from attnlib.progress import watched
from experiments.shared.training import kept_models, loop, spanmodel
from experiments.shared.training.loop import Recipe
from experiments.shared.training.spanmodel import SpanHead, SpanReader, spantuned
from tests.families import HIDDEN, WORDS, folders, one_thread
from tests.trainings import DAMAGE, Stopped, never, same, spoil, stop_at, weights

__all__ = ["folders", "one_thread"]  # fixtures

PLANTED = ("old", "bridge")
"""The answer to every question, in this order and side by side."""
FILLERS = [word for word in WORDS.split() if not word.startswith("##") and word not in PLANTED]
SHORT = Recipe(epochs=2, batch_size=8, max_length=20)
STRIDE = 6


def planted(n: int, seed: int = 0, longest: int = 12, name: str = "toy:train") -> Corpus:
    """Paragraphs of a few words with the planted pair somewhere."""
    generator = np.random.default_rng(seed)
    questions = []
    for i in range(n):
        words = generator.choice(FILLERS, int(generator.integers(5, longest))).tolist()
        at = int(generator.integers(1, len(words)))
        words[at:at] = PLANTED
        context = " ".join(words)
        answer = " ".join(PLANTED)
        found = Answer(answer, context.index(answer))
        asked = " ".join(generator.choice(FILLERS, 3).tolist())
        questions.append(Question(f"{name}:{i}", asked, context, (found,), f"article {i % 3}"))
    return Corpus(name, "question", tuple(questions), {}, "here", "")


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


@pytest.fixture(scope="module")
def toy() -> Corpus:
    """Some of its paragraphs need two windows."""
    return planted(32, longest=16)


@pytest.fixture(scope="module")
def whole(bert: Encoder, toy: Corpus, tmp_path_factory: pytest.TempPathFactory) -> SpanReader:
    """What a short training ends with if nothing gets in its way."""
    return tuned(bert, toy, tmp_path_factory.mktemp("whole"))


def tuned(encoder: Encoder, corpus: Corpus, cache: Path, **options: Any) -> SpanReader:
    return spantuned(
        encoder, corpus, **{"recipe": SHORT, "stride": STRIDE, "cache": cache, **options}
    )


# --- it learns --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learnt(bert: Encoder, tmp_path_factory: pytest.TempPathFactory) -> SpanReader:
    recipe = Recipe(epochs=6, batch_size=16, learning_rate=3e-3, max_length=20)
    corpus = planted(160, longest=18)
    return tuned(bert, corpus, tmp_path_factory.mktemp("learnt"), recipe=recipe)


def test_a_planted_answer_is_learnt(bert: Encoder, learnt: SpanReader) -> None:
    unseen = planted(60, seed=1, longest=18, name="unseen").examples
    found = learnt.answers(unseen)
    right = [spans[0].text == "old bridge" for spans in found]
    assert np.mean(right) > 0.9
    places = [s[0].start == q.answers[0].start for s, q in zip(found, unseen, strict=True)]
    assert np.mean(places) > 0.9
    facts = learnt.facts
    assert facts["history"][0][1] > 1.5 > 0.5 > facts["final_loss"]
    assert facts["history"][-1] == [facts["steps"], facts["final_loss"]]
    assert facts["n_windows"] > facts["n_train"] == 160
    assert 0 < facts["n_without_answer"] < facts["n_windows"] - 100
    assert facts["skipped"]["windowed"] == facts["n_windows"] - 160  # at most two windows each
    assert facts["steps"] == 6 * math.ceil(facts["n_windows"] / 16)
    assert (facts["epochs"], facts["stride"], facts["recipe"]["max_length"]) == (
        pytest.approx(6, abs=0.3),
        STRIDE,
        20,
    )
    assert (facts["corpus"], facts["model"], facts["cached"]) == ("toy:train", bert.name, False)
    assert learnt.encoder.name == f"{bert.name}, fine-tuned on toy"


def test_an_untrained_head_knows_nothing(bert: Encoder, learnt: SpanReader) -> None:
    """The test above can fail: the same network before its training does not find the answer."""
    unseen = planted(60, seed=1, longest=18).examples
    blank = replace(learnt, encoder=bert, head=SpanHead(bert).eval())
    assert np.mean([spans[0].text == "old bridge" for spans in blank.answers(unseen)]) < 0.3


def test_answers_are_ordered_distinct_and_of_the_paragraph(learnt: SpanReader) -> None:
    texts = ["old bridge 🙂 café old  bridge snow", "of the river " * 12 + "Old Bridge."]
    questions = [Question(t, "why did", t, (), "") for t in texts]
    for question, spans in zip(questions, learnt.answers(questions, n_best=8), strict=True):
        assert len(spans) == 8
        assert len({(span.start, span.text) for span in spans}) == 8
        assert [s.score for s in spans] == sorted((s.score for s in spans), reverse=True)
        assert all(question.context.startswith(span.text, span.start) for span in spans)
    assert learnt.answers(questions[1:])[0][0].text == "Old Bridge"  # in its last window alone


def test_answers_do_not_depend_on_order_or_batch(learnt: SpanReader) -> None:
    questions = planted(13, seed=2, longest=18).examples
    at_once = learnt.answers(questions)
    turned = learnt.answers(questions[::-1], batch_size=3)[::-1]
    for one, other in zip(at_once, turned, strict=True):
        assert [s.score for s in one] == pytest.approx([s.score for s in other], abs=1e-4)
        assert (one[0].text, one[0].start) == (other[0].text, other[0].start)
    assert learnt.answers(questions, n_best=2) == [spans[:2] for spans in at_once]


def test_every_question_gets_its_place(learnt: SpanReader) -> None:
    """Also one without a paragraph, which has no answer."""
    empty = Question("empty", "why", " ", (), "")
    question = planted(1).examples[0]
    found = learnt.answers([empty, question, empty])
    assert found[0] == found[2] == []
    assert found[1] == learnt.answers([question])[0]
    assert learnt.answers([]) == []


def test_windows_are_those_of_the_training_unless_told(learnt: SpanReader) -> None:
    questions = planted(6, seed=3, longest=18).examples
    assert {len(window.encoded) for window in learnt.windows(questions)} <= set(range(21))
    assert len(learnt.windows(questions)) > 6 == len(learnt.reading(66).windows(questions))
    with pytest.raises(BadValue, match="max-length is 67"):
        learnt.reading(67)


# --- what it minimises ------------------------------------------------------------------------


def test_the_loss_is_the_mean_cross_entropy_of_both_ends(
    bert: Encoder, toy: Corpus, tmp_path: Path
) -> None:
    """By hand, without dropout: a softmax over [CLS] and the paragraph for each end."""
    still = replace(bert, model=copy.deepcopy(bert.model))
    for module in still.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    recipe = replace(SHORT, batch_size=100, learning_rate=0.0, max_steps=1, seed=5)
    reader = tuned(still, toy, tmp_path, recipe=recipe)
    assert reader.facts["n_windows"] < 100
    losses, closed = [], []
    for window in reader.windows(toy.examples):
        answer = toy.examples[window.question].answers[0]
        (batch,) = reader.batches([replace(window, encoded=replace(window.encoded, index=0))])
        with torch.inference_mode():
            logits = SpanHead(still, seed=5)(reader.hidden(batch))[0].double()
        open_to = [0, *(p for p, place in enumerate(window.places) if place is not None)]
        starts = [p for p, place in enumerate(window.places) if place and place[0] == answer.start]
        finish = answer.start + len(answer.text)
        ends = [p for p, place in enumerate(window.places) if place and place[1] == finish]
        wanted = (starts[0], ends[0]) if starts and ends else (0, 0)
        for side in (0, 1):
            exps = [math.exp(logits[p, side]) for p in open_to]
            losses.append(-math.log(math.exp(logits[wanted[side], side]) / sum(exps)))
            everywhere = logits[:, side].exp().sum().item()
            closed.append(-math.log(math.exp(logits[wanted[side], side]) / everywhere))
    assert reader.facts["final_loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    assert abs(reader.facts["final_loss"] - np.mean(closed)) > 0.05  # the mask matters


def test_the_head_is_berts(bert: Encoder) -> None:
    state = torch.get_rng_state()
    head, again, other = (SpanHead(bert, seed) for seed in (4, 4, 5))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(head.out.weight, again.out.weight)
    assert not torch.equal(head.out.weight, other.out.weight)
    assert head.out.weight.shape == (2, HIDDEN)
    assert head.out.weight.std().item() == pytest.approx(0.02, rel=0.4)
    assert not head.out.bias.any()
    hidden = torch.randn(3, 7, HIDDEN)
    by_hand = torch.einsum("bpd,ed->bpe", hidden, head.out.weight)
    assert torch.allclose(head(hidden), by_hand, atol=1e-6)


# --- it leaves the caller alone ---------------------------------------------------------------


def test_the_given_encoder_and_the_random_numbers_are_left_alone(
    bert: Encoder, toy: Corpus, tmp_path: Path
) -> None:
    before, state = weights_digest(bert), torch.get_rng_state()
    asked = [parameter.requires_grad for parameter in bert.model.parameters()]
    with torch.inference_mode():  # whatever the caller is in
        reader = tuned(bert, toy, tmp_path, recipe=replace(SHORT, max_steps=2))
    assert weights_digest(bert) == before != weights_digest(reader.encoder)
    assert [parameter.requires_grad for parameter in bert.model.parameters()] == asked
    assert not bert.model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert not reader.encoder.model.training and not reader.head.training
    for parameter in (*reader.encoder.model.parameters(), *reader.head.parameters()):
        assert not parameter.requires_grad and not parameter.is_inference()


def test_the_seed_decides(bert: Encoder, toy: Corpus, tmp_path: Path, whole: SpanReader) -> None:
    again = tuned(bert, toy, tmp_path)
    other = tuned(bert, toy, tmp_path, recipe=replace(SHORT, seed=1))
    assert not again.facts["cached"]
    assert same(weights(again), weights(whole))
    kept, changed = weights(whole), weights(other)
    assert not any(torch.equal(kept[k], changed[k]) for k in kept if kept[k].is_floating_point())


# --- what is not finite ------------------------------------------------------------------------


def test_what_is_not_finite_is_refused(learnt: SpanReader, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = planted(3).examples
    plain, honest = learnt.answers(questions), SpanReader.hidden

    def broken(reader: SpanReader, batch: Batch) -> Tensor:
        return torch.full((len(batch), batch.length, HIDDEN), math.nan)

    monkeypatch.setattr(SpanReader, "hidden", broken)
    with pytest.raises(BadValue, match=r"near 'toy:train:\d' with a number that is not finite"):
        learnt.answers(questions)

    def broken_on_padding(reader: SpanReader, batch: Batch) -> Tensor:
        return honest(reader, batch).masked_fill(~batch.real[..., None], math.nan)

    monkeypatch.setattr(SpanReader, "hidden", broken_on_padding)
    assert learnt.answers(questions) == plain


def test_weights_that_are_not_finite_stop_the_training(
    bert: Encoder, toy: Corpus, tmp_path: Path
) -> None:
    broken = replace(bert, model=copy.deepcopy(bert.model))
    next(broken.model.parameters()).data.fill_(math.nan)
    with pytest.raises(BadValue, match=r"loss is nan at step 1 of .*check the model's weights"):
        tuned(broken, toy, tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))
    assert not list(tmp_path.rglob("checkpoint-*"))


# --- it can be interrupted --------------------------------------------------------------------


@pytest.mark.parametrize(("epochs_done", "every"), [(1, 1e9), (0, 0.0)])
def test_an_interrupted_training_ends_with_the_same_weights(
    epochs_done: int,
    every: float,
    bert: Encoder,
    toy: Corpus,
    tmp_path: Path,
    whole: SpanReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With dropout. every=0 leaves a checkpoint after each step, a long time one per epoch."""
    monkeypatch.setattr(loop, "SECONDS_BETWEEN", every)
    assert bert.model.config.hidden_dropout_prob > 0
    per_epoch = whole.facts["steps"] // 2
    step = epochs_done * per_epoch + 2
    with pytest.raises(Stopped), watched(stop_at(step)):
        tuned(bert, toy, tmp_path)
    assert len(list(tmp_path.rglob("checkpoint-*"))) == 1
    told: list[int] = []
    torch.rand(7)  # the caller's random numbers do not matter
    with watched(lambda done, n: told.append(done)):
        result = tuned(bert, toy, tmp_path)
    assert told == list(range(step if every == 0 else epochs_done * per_epoch, 2 * per_epoch + 1))
    assert same(weights(result), weights(whole))
    assert result.facts["history"] == whole.facts["history"]
    assert not list(tmp_path.rglob("checkpoint-*"))


# --- it is done once --------------------------------------------------------------------------


def test_the_second_call_reads(
    bert: Encoder, toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tuned(bert, toy, tmp_path)
    monkeypatch.setattr(kept_models, "train", never)
    again = tuned(bert, toy, tmp_path)
    assert same(weights(first), weights(again))
    assert again.facts == {**first.facts, "cached": True}
    assert again.encoder.name == first.encoder.name
    assert not again.encoder.model.training and not again.head.training
    assert not any(p.requires_grad for p in again.head.parameters())
    assert again.answers(toy.examples[:4]) == first.answers(toy.examples[:4])


def reworded(corpus: Corpus, **changes: Any) -> Corpus:
    """The same corpus with another first question."""
    first = replace(corpus.examples[0], **changes)
    return replace(corpus, examples=(first, *corpus.examples[1:]))


@pytest.fixture
def home(bert: Encoder, toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Where a training would be kept, by what is changed in it."""
    homes: list[Path] = []

    def kept(folder: Path, *_: Any, **__: Any) -> Any:
        homes.append(folder)
        return bert, None, {}

    monkeypatch.setattr(spanmodel, "tuned", kept)

    def found(**changes: Any) -> Path:
        given = {"encoder": bert, "corpus": toy, "recipe": SHORT, "stride": STRIDE, **changes}
        spantuned(**given)
        return homes[-1]

    return found


def test_whatever_decides_the_weights_decides_the_key(
    bert: Encoder, toy: Corpus, home: Callable[..., Path]
) -> None:
    first = toy.examples[0]
    text, answer = first.context, first.answers[0]
    longer = Answer(text[: answer.start + len(answer.text)], 0)
    moved = copy.deepcopy(bert.model)
    next(moved.parameters()).data[0, 0] += 1e-3
    quiet = copy.deepcopy(bert.model)
    quiet.config.hidden_dropout_prob = 0.3
    others: list[dict[str, Any]] = [
        {"corpus": replace(toy, examples=toy.examples[1:])},
        {"corpus": replace(toy, examples=toy.examples[::-1])},
        {"corpus": reworded(toy, question="snow")},
        {"corpus": reworded(toy, context=f"{text} snow")},
        {"corpus": reworded(toy, answers=(longer,))},
        {"recipe": replace(SHORT, seed=1)},
        {"recipe": replace(SHORT, learning_rate=1e-4)},
        {"recipe": replace(SHORT, epochs=3)},
        {"recipe": replace(SHORT, max_length=21)},
        {"stride": STRIDE - 1},
        {"encoder": replace(bert, model=moved)},
        {"encoder": replace(bert, model=quiet)},
    ]
    keys = [home(), *(home(**other) for other in others)]
    assert len(set(keys)) == len(keys)
    named = tuple(replace(e, id=f"new {e.id}", article="another") for e in toy.examples)
    equals: list[dict[str, Any]] = [
        {"corpus": replace(toy, examples=named, name="other")},
        {"corpus": reworded(toy, answers=(answer, longer))},  # the first is learnt
        {"encoder": replace(bert, name="other", source="elsewhere")},
        {"encoder": replace(bert, model=copy.deepcopy(bert.model))},  # the same weights
    ]
    assert {home(**equal) for equal in equals} == {keys[0]}


def test_the_version_is_part_of_the_key(
    home: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = home()
    monkeypatch.setattr(spanmodel, "VERSION", spanmodel.VERSION + 1)
    assert home() != before


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_result_is_trained_again(
    damage: str, bert: Encoder, toy: Corpus, tmp_path: Path
) -> None:
    quick = {"recipe": replace(SHORT, max_steps=2)}
    first = tuned(bert, toy, tmp_path, **quick)
    spoil(tmp_path, damage)
    again = tuned(bert, toy, tmp_path, **quick)
    assert not again.facts["cached"]
    assert same(weights(again), weights(first))
    assert tuned(bert, toy, tmp_path, **quick).facts["cached"]


def test_the_default_place_is_beside_the_assets(
    bert: Encoder, toy: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    result = spantuned(bert, toy, recipe=replace(SHORT, max_steps=1))
    assert (tmp_path / "store" / result.facts["key"] / "facts.json").is_file()
    assert result.facts["stride"] == spanmodel.STRIDE


# --- what is refused before the first step ----------------------------------------------------


def with_example(example: Any) -> Corpus:
    corpus = planted(4)
    return replace(corpus, examples=(*corpus.examples, example))


UNANSWERED = Question("odd:1", "why", "snow", (), "")
LABELLED = TaskExample("odd:2", "snow", None, 1)
WORDY = Question("odd:3", "why " * 30, "snow", (Answer("snow", 0),), "")
BLANK = Question("odd:4", "why", " \t ", (Answer(" ", 0),), "")


@pytest.mark.parametrize(
    ("corpus", "options", "error", "said"),
    [
        (
            with_example(UNANSWERED),
            {},
            CorpusError,
            r"'odd:1' has no accepted answer; expected one such",
        ),
        (with_example(LABELLED), {}, CorpusError, "'odd:2' has no accepted answer"),
        (replace(planted(1), examples=()), {}, CorpusError, "'toy:train' .* it is empty"),
        (with_example(WORDY), {}, TooLong, "question 5 has 33 pieces itself"),
        (planted(4), {"stride": 0}, BadValue, "stride is 0"),
        (planted(4), {"recipe": Recipe(max_length=67)}, BadValue, "max-length is 67"),
        (planted(4), {"recipe": Recipe(max_length=2)}, BadValue, "max-length is 2"),
    ],
)
def test_bad_input_is_refused_before_any_training(
    corpus: Corpus,
    options: dict[str, Any],
    error: type[AttnlibError],
    said: str,
    bert: Encoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_models, "train", never)
    with pytest.raises(error, match=said):
        tuned(bert, corpus, tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_paragraphs_without_a_piece_are_left_out_and_counted(bert: Encoder, tmp_path: Path) -> None:
    recipe = replace(SHORT, max_steps=1)
    facts = tuned(bert, with_example(BLANK), tmp_path, recipe=recipe).facts
    assert (facts["n_train"], facts["skipped"]["no pieces"]) == (4, 1)
    alone = replace(planted(1), examples=(BLANK,))
    with pytest.raises(BadValue, match="no example is left to train on"):
        tuned(bert, alone, tmp_path, recipe=recipe)


# --- other models -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["distilbert", "roberta", "electra"])
def test_other_families_train(
    family: str, folders: Callable[[str], Path], toy: Corpus, tmp_path: Path
) -> None:
    encoder = load_encoder(folders(family), device="cpu")
    recipe = replace(SHORT, max_steps=2, max_length=50)
    reader = tuned(encoder, toy, tmp_path, recipe=recipe, stride=20)
    assert math.isfinite(reader.facts["final_loss"])
    found = reader.answers(toy.examples[:5])
    for question, spans in zip(toy.examples, found, strict=False):
        assert spans and all(question.context.startswith(s.text, s.start) for s in spans)


@pytest.mark.assets
def test_one_step_of_a_real_model(e5_small: Encoder, tmp_path: Path) -> None:
    before = weights_digest(e5_small)
    corpus = planted(4)
    recipe = Recipe(epochs=1, batch_size=4, learning_rate=1e-4, max_length=32)
    reader = tuned(e5_small, corpus, tmp_path, recipe=recipe)
    assert math.isfinite(reader.facts["final_loss"])
    assert weights_digest(e5_small) == before != weights_digest(reader.encoder)
    assert all(reader.answers(corpus.examples))
