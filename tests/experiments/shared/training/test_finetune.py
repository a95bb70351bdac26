"""Fine-tuning: it learns what was planted, goes on where it stopped, and is done only once."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnlib.attention.encode import Batch, Collator, encode
from attnlib.attention.tap import Tap, tapped
from attnlib.data.corpora import Corpus
from attnlib.data.examples import TaskExample
from attnlib.errors import AttnlibError, BadValue, CorpusError, TooLong, UnknownName
from attnlib.models import Encoder, load_encoder, weights_digest
from attnlib.progress import watched
from experiments.shared.training import finetune, kept_models, loop
from experiments.shared.training.finetune import FineTuned, TaskHead, finetuned
from experiments.shared.training.glue import scores
from experiments.shared.training.loop import Recipe, epoch_batches, ramp, train
from tests.families import HEADS, LAYERS, WORDS, folders, one_thread
from tests.trainings import DAMAGE, Stopped, never, same, spoil, stop_at, weights

__all__ = ["folders", "one_thread"]  # fixtures

PLANTED = "river"
FILLERS = [word for word in WORDS.split() if not word.startswith("##") and word != PLANTED]
SHORT = Recipe(epochs=2, batch_size=8, max_length=24)


def planted(n: int, seed: int = 0, name: str = "toy") -> Corpus:
    """Texts of a few words; the label says whether a certain word is among them."""
    generator = np.random.default_rng(seed)
    examples = []
    for i in range(n):
        words = generator.choice(FILLERS, int(generator.integers(2, 9))).tolist()
        if i % 2:
            words[int(generator.integers(len(words)))] = PLANTED
        examples.append(TaskExample(f"{name}:{i}", " ".join(words), None, i % 2))
    return Corpus(name, "task", tuple(examples), {}, "here", "")


def scored(n: int, seed: int = 0) -> Corpus:
    """Pairs of texts; the score counts the planted word in both."""
    generator = np.random.default_rng(seed)
    examples = []
    for i in range(n):
        words = generator.choice(FILLERS, int(generator.integers(6, 10)))
        words[generator.permutation(len(words))[: i % 6]] = PLANTED
        texts = " ".join(words[:3]), " ".join(words[3:])
        examples.append(TaskExample(f"pair:{i}", *texts, float(i % 6)))
    return Corpus("pairs", "task", tuple(examples), {}, "here", "")


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


@pytest.fixture(scope="module")
def toy() -> Corpus:
    return planted(40)


@pytest.fixture(scope="module")
def whole(bert: Encoder, toy: Corpus, tmp_path_factory: pytest.TempPathFactory) -> FineTuned:
    """What a short training ends with if nothing gets in its way."""
    return finetuned(bert, toy, "sst2", recipe=SHORT, cache=tmp_path_factory.mktemp("whole"))


# --- it learns ------------------------------------------------------------------------------


def test_a_planted_rule_is_learnt(bert: Encoder, tmp_path: Path) -> None:
    recipe = Recipe(epochs=8, batch_size=16, learning_rate=3e-3, max_length=24)
    told: list[tuple[int, int]] = []
    with watched(lambda done, total: told.append((done, total))):
        result = finetuned(bert, planted(160), "sst2", recipe=recipe, cache=tmp_path)
    unseen = planted(101, seed=1, name="unseen")
    found, labels = result.outputs(unseen)
    assert scores(result.task, found, labels)["accuracy"] > 0.95
    assert found.dtype == labels.dtype == np.int64
    assert labels.tolist() == [example.label for example in unseen.examples]
    assert told == [(i, 80) for i in range(81)]
    facts = result.facts
    assert (facts["steps"], facts["epochs"], facts["n_train"]) == (80, 8.0, 160)
    assert facts["n_per_class"] == {"negative": 80, "positive": 80}
    assert facts["history"][-1] == [80, facts["final_loss"]]
    assert facts["history"][0][1] > 0.5 > 0.2 > facts["final_loss"]
    assert (facts["start"], facts["cached"], facts["recipe"]["seed"]) == ("pretrained", False, 0)
    assert result.encoder.name == f"{bert.name}, fine-tuned on sst2"


def test_scores_are_learnt_from_pairs(bert: Encoder, tmp_path: Path) -> None:
    recipe = Recipe(epochs=12, batch_size=16, learning_rate=3e-3, max_length=24)
    result = finetuned(bert, scored(240), "stsb", recipe=recipe, cache=tmp_path)
    found, labels = result.outputs(scored(60, seed=1))
    assert found.dtype == labels.dtype == np.float64
    assert scores(result.task, found, labels)["spearman"] > 0.85
    assert np.abs(found - labels).mean() < 1


def test_answers_do_not_depend_on_order_or_batch(bert: Encoder, tmp_path: Path) -> None:
    result = finetuned(bert, scored(24), "stsb", recipe=SHORT, cache=tmp_path)
    examples = scored(31, seed=2).examples  # of several lengths, by which batches are sorted
    all_at_once = result.predictions(examples)
    assert np.abs(np.diff(all_at_once)).min() > 0  # or any order would do
    turned = result.predictions(examples[::-1], batch_size=5)[::-1]
    assert turned == pytest.approx(all_at_once, abs=1e-5)
    alone = [result.predictions([example])[0] for example in examples[:6]]
    assert alone == pytest.approx(all_at_once[:6], abs=1e-5)


def test_every_example_is_answered(whole: FineTuned) -> None:
    """Also one without a piece, and one that has to be cut."""
    texts = ["", "snow " * 300, "snow " * 200]
    found = whole.predictions([TaskExample(str(i), t, None, 0) for i, t in enumerate(texts)])
    assert len(found) == 3
    assert found[1] == found[2]


def test_what_is_not_finite_is_refused(bert: Encoder, tmp_path: Path, toy: Corpus) -> None:
    result = finetuned(bert, toy, "sst2", recipe=SHORT, cache=tmp_path)
    result.head.out.bias.data.fill_(math.nan)
    with pytest.raises(BadValue, match=r"answers example 'toy:\d+' with a number"):
        result.predictions(toy.examples[:3])


# --- it starts where it was told to, and leaves the caller alone ------------------------------


def test_the_given_encoder_and_the_random_numbers_are_left_alone(
    bert: Encoder, tmp_path: Path, toy: Corpus
) -> None:
    before, state = weights_digest(bert), torch.get_rng_state()
    asked = [parameter.requires_grad for parameter in bert.model.parameters()]
    for start in finetune.STARTS:
        result = finetuned(bert, toy, "sst2", recipe=SHORT, start=start, cache=tmp_path)
        assert not result.encoder.model.training and not result.head.training
        assert not any(p.requires_grad for p in result.encoder.model.parameters())
    assert weights_digest(bert) == before
    assert [parameter.requires_grad for parameter in bert.model.parameters()] == asked
    assert not bert.model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_frozen_trains_the_head_alone(bert: Encoder, tmp_path: Path, toy: Corpus) -> None:
    result = finetuned(bert, toy, "sst2", recipe=SHORT, start="frozen", cache=tmp_path)
    assert weights_digest(result.encoder) == weights_digest(bert)
    assert "frozen" in result.encoder.name
    fresh = TaskHead(bert, 2, SHORT.seed)
    for name, value in result.head.state_dict().items():
        assert not torch.equal(value, fresh.state_dict()[name])
    again = finetuned(bert, toy, "sst2", recipe=SHORT, start="frozen", cache=tmp_path)
    assert again.facts["cached"]
    assert same(weights(again), weights(result))


def test_a_frozen_encoder_reads_every_input_once(
    bert: Encoder, tmp_path: Path, toy: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(SHORT, epochs=3, max_steps=None, learning_rate=0.01)
    once = finetuned(bert, toy, "sst2", recipe=recipe, start="frozen", cache=tmp_path / "once")
    reads = 0

    def every_time(model: FineTuned) -> Callable[[Batch], Tensor]:
        def logits(batch: Batch) -> Tensor:
            nonlocal reads
            reads += 1
            return model.logits(batch)

        return logits

    monkeypatch.setattr(finetune, "_on_frozen", every_time)
    plain = finetuned(bert, toy, "sst2", recipe=recipe, start="frozen", cache=tmp_path / "plain")
    assert reads == plain.facts["steps"] > 2
    for name, value in once.head.state_dict().items():
        assert torch.allclose(value, plain.head.state_dict()[name], atol=1e-5)


def test_random_starts_from_new_weights_everywhere(
    bert: Encoder, tmp_path: Path, toy: Corpus
) -> None:
    still = replace(SHORT, learning_rate=0.0, max_steps=1)
    one, other = (
        finetuned(
            bert, toy, "sst2", recipe=replace(still, seed=seed), start="random", cache=tmp_path
        )
        for seed in (0, 1)
    )
    assert one.encoder.model.state_dict().keys() == bert.model.state_dict().keys()
    given = dict(bert.model.named_parameters())
    for name, value in one.encoder.model.named_parameters():
        if value.dim() > 1:  # embeddings too
            assert not torch.equal(value, given[name])
            assert not torch.equal(value, dict(other.encoder.model.named_parameters())[name])
            assert value.std().item() == pytest.approx(0.02, rel=0.3)
    pretrained = finetuned(bert, toy, "sst2", recipe=still, cache=tmp_path)
    assert weights_digest(pretrained.encoder) == weights_digest(bert)


def test_the_seed_decides(bert: Encoder, tmp_path: Path, toy: Corpus) -> None:
    first, again, other = (
        weights(
            finetuned(
                bert, toy, "sst2", recipe=replace(SHORT, seed=seed), cache=tmp_path / str(place)
            )
        )
        for place, seed in enumerate((0, 0, 1))
    )
    assert same(first, again)
    assert not any(torch.equal(first[k], other[k]) for k in first if first[k].is_floating_point())


def test_the_head_is_berts(bert: Encoder) -> None:
    head = TaskHead(bert, 3, seed=4).eval()
    batch = Collator(bert)(list(encode(planted(3).examples, bert, max_length=24)))
    hidden = torch.randn(len(batch), batch.length, bert.model.config.hidden_size)
    by_hand = [head.out(torch.tanh(head.dense(row[0]))) for row in hidden]
    assert torch.allclose(head(hidden, batch), torch.stack(by_hand), atol=1e-6)
    assert head.dense.weight.std().item() == pytest.approx(
        bert.model.config.initializer_range, rel=0.1
    )
    assert not head.dense.bias.any() and not head.out.bias.any()
    head.train()
    assert not torch.equal(head(hidden, batch), head(hidden, batch))  # dropout
    assert head.dropout.p == bert.model.config.hidden_dropout_prob


@pytest.mark.parametrize("family", ["distilbert", "roberta", "mpnet", "electra"])
def test_other_families_train(
    family: str, folders: Callable[[str], Path], tmp_path: Path, toy: Corpus
) -> None:
    encoder = load_encoder(folders(family), device="cpu")
    recipe = replace(SHORT, max_steps=2, max_length=40)
    for start in finetune.STARTS:
        result = finetuned(encoder, toy, "sst2", recipe=recipe, start=start, cache=tmp_path)
        assert len(result.predictions(toy.examples)) == len(toy)


def test_a_tap_sees_and_changes_the_maps(bert: Encoder, toy: Corpus, whole: FineTuned) -> None:
    batch = Collator(bert)(list(encode(toy.examples[:4], bert, max_length=24)))
    plain = whole.logits(batch)
    seen: list[tuple[int, ...]] = []
    watch = Tap(observe=lambda layer, rows, w, s: seen.append((layer, *w.shape)))
    with tapped(whole.encoder, watch):
        assert torch.allclose(whole.logits(batch), plain, atol=1e-5)
    assert seen == [(layer, 4, HEADS, batch.length, batch.length) for layer in range(LAYERS)]
    gate = torch.ones((), requires_grad=True)
    with tapped(whole.encoder, Tap(change=lambda layer, rows, w: w * gate)):
        whole.logits(batch).sum().backward()  # type: ignore[no-untyped-call]
    assert gate.grad is not None and gate.grad != 0


# --- it can be interrupted ------------------------------------------------------------------


@pytest.mark.parametrize(("step", "every"), [(7, 1e9), (5, 1e9), (3, 1e9), (7, 0.0), (9, 0.0)])
def test_an_interrupted_run_ends_with_the_same_weights(
    step: int,
    every: float,
    bert: Encoder,
    tmp_path: Path,
    toy: Corpus,
    whole: FineTuned,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With dropout. 5 steps are an epoch; every=0 leaves a checkpoint after each step."""
    monkeypatch.setattr(loop, "SECONDS_BETWEEN", every)
    assert bert.model.config.hidden_dropout_prob > 0
    options: dict[str, Any] = {"recipe": SHORT, "cache": tmp_path / "cut"}
    with pytest.raises(Stopped), watched(stop_at(step)):
        finetuned(bert, toy, "sst2", **options)
    told: list[int] = []
    torch.rand(7)  # the caller's random numbers do not matter
    with watched(lambda done, n: told.append(done)):
        result = finetuned(bert, toy, "sst2", **options)
    kept = step if every == 0 else 5 * (step // 5)
    assert told == list(range(kept, 11))
    assert same(weights(result), weights(whole))
    assert result.facts["history"] == whole.facts["history"]
    (folder,) = (tmp_path / "cut").glob("*/*/*")
    assert {p.name for p in folder.iterdir()} <= {"model.safetensors", "facts.json", ".lock"}


def test_forgotten_random_numbers_are_caught(
    bert: Encoder,
    tmp_path: Path,
    toy: Corpus,
    whole: FineTuned,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above can fail: without torch's state the masks of dropout are others."""
    monkeypatch.setattr(loop, "SECONDS_BETWEEN", 0.0)
    options: dict[str, Any] = {"recipe": SHORT, "cache": tmp_path / "cut"}
    with pytest.raises(Stopped), watched(stop_at(6)):
        finetuned(bert, toy, "sst2", **options)
    monkeypatch.setattr(loop, "_set_random_states", lambda states, device: None)
    result = finetuned(bert, toy, "sst2", **options)
    assert not same(weights(result), weights(whole))


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "empty"])
def test_a_damaged_checkpoint_is_not_read(
    damage: str, bert: Encoder, tmp_path: Path, toy: Corpus, whole: FineTuned
) -> None:
    options: dict[str, Any] = {"recipe": SHORT, "cache": tmp_path / "cut"}
    with pytest.raises(Stopped), watched(stop_at(7)):
        finetuned(bert, toy, "sst2", **options)
    (path,) = (tmp_path / "cut").rglob("checkpoint-*.pt")
    content = bytearray(path.read_bytes())
    if damage == "foreign":  # whole in itself, but of another training
        torch.save({"name": "other"}, path)
        path.rename(path.with_name(f"checkpoint-000000005-{loop.sha256_of(path)}.pt"))
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes({"cut": content[:-9], "flipped": content, "empty": b""}[damage])
    told: list[int] = []
    with watched(lambda done, n: told.append(done)):
        result = finetuned(bert, toy, "sst2", **options)
    assert told[0] == 0
    assert same(weights(result), weights(whole))


def test_a_checkpoint_of_another_recipe_is_not_read(bert: Encoder, tmp_path: Path) -> None:
    model, examples, collate, loss = small(bert)
    train(model, examples, collate, loss, Recipe(epochs=1, batch_size=8), tmp_path)
    assert len(list(tmp_path.glob("checkpoint-*"))) == 1
    told: list[int] = []
    other = Recipe(epochs=2, batch_size=8)
    with watched(lambda done, n: told.append(done)):
        train(model, examples, collate, loss, other, tmp_path)
    assert told[0] == 0


# --- it is done once ------------------------------------------------------------------------


def test_the_second_call_reads(
    bert: Encoder, tmp_path: Path, toy: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = finetuned(bert, toy, "sst2", recipe=SHORT, cache=tmp_path)
    monkeypatch.setattr(kept_models, "train", never)
    again = finetuned(bert, toy, "sst2", recipe=SHORT, cache=tmp_path)
    assert same(weights(first), weights(again))
    assert again.facts == {**first.facts, "cached": True}
    assert again.encoder.name == first.encoder.name
    assert not again.encoder.model.training and not again.head.training
    assert not any(p.requires_grad for p in again.head.parameters())


@pytest.fixture
def home(bert: Encoder, toy: Corpus, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Where a training would be kept, by what is changed in it."""
    homes: list[Path] = []

    def kept(folder: Path, *_: Any, **__: Any) -> Any:
        homes.append(folder)
        return bert, None, {}

    monkeypatch.setattr(finetune, "tuned", kept)

    def found(**changes: Any) -> Path:
        given = {"encoder": bert, "corpus": toy, "task": "sst2", "recipe": SHORT, **changes}
        finetuned(**given)
        return homes[-1]

    return found


def test_whatever_decides_the_weights_decides_the_key(
    bert: Encoder, toy: Corpus, home: Callable[..., Path]
) -> None:
    first = toy.examples[0]
    others: list[dict[str, Any]] = [
        {"corpus": replace(toy, examples=toy.examples[1:])},
        {"corpus": replace(toy, examples=(replace(first, label=1), *toy.examples[1:]))},
        {"corpus": replace(toy, examples=(replace(first, text="a"), *toy.examples[1:]))},
        {"task": "rotten-tomatoes"},
        {"recipe": replace(SHORT, seed=1)},
        {"recipe": replace(SHORT, learning_rate=1e-4)},
        {"start": "frozen"},
        {"encoder": replace(bert, model=copy.deepcopy(bert.model))},  # the same weights
        {"encoder": replace(bert, model=finetune._random(bert, 0))},
    ]
    keys = [home(), *(home(**other) for other in others)]
    assert keys[8] == keys[0]
    assert len(set(keys)) == len(keys) - 1
    named = replace(toy, examples=tuple(replace(e, id=f"new {e.id}") for e in toy.examples))
    assert home(corpus=named) == keys[0]


def test_the_version_is_part_of_the_key(
    home: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = home()
    monkeypatch.setattr(finetune, "VERSION", finetune.VERSION + 1)
    assert home() != before


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_result_is_trained_again(
    damage: str, bert: Encoder, tmp_path: Path, toy: Corpus
) -> None:
    first = finetuned(bert, toy, "sst2", recipe=SHORT, cache=tmp_path)
    spoil(tmp_path, damage)
    again = finetuned(bert, toy, "sst2", recipe=SHORT, cache=tmp_path)
    assert not again.facts["cached"]
    assert same(weights(again), weights(first))
    assert finetuned(bert, toy, "sst2", recipe=SHORT, cache=tmp_path).facts["cached"]


def test_two_at_once_train_once(bert: Encoder, tmp_path: Path, toy: Corpus) -> None:
    """Two threads stand for two processes: the lock of a file holds between both."""
    waiting, found = threading.Barrier(2), list[FineTuned]()

    def work() -> None:
        waiting.wait()
        found.append(finetuned(bert, toy, "sst2", recipe=SHORT, cache=tmp_path))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.facts["cached"] for result in found) == [False, True]
    assert same(*map(weights, found))


def test_a_cache_that_cannot_be_written_costs_no_result(
    bert: Encoder, tmp_path: Path, toy: Corpus
) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.warns(UserWarning, match="no checkpoint could be written"):
        result = finetuned(bert, toy, "sst2", recipe=SHORT, cache=tmp_path / "file")
    assert result.facts["steps"] == 10


def test_the_default_place_is_beside_the_assets(
    bert: Encoder, tmp_path: Path, toy: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    result = finetuned(bert, toy, "sst2", recipe=replace(SHORT, max_steps=1))
    assert (tmp_path / "store" / result.facts["key"] / "facts.json").is_file()


# --- the loop itself ------------------------------------------------------------------------


def small(encoder: Encoder, n: int = 16) -> tuple[Any, list[Any], Collator, Any]:
    """A linear layer on the embedding of [CLS]: the loop knows nothing of heads and tasks."""
    examples = list(encode(planted(n).examples, encoder, max_length=24))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 1))

    def loss(batch: Batch) -> Tensor:
        seen = torch.stack([batch.n_real, batch.ids[:, 1].float(), batch.ids[:, 2].float()], 1)
        out: Tensor = model(seen / 100)
        return (out[:, 0] - batch.n_real).square().mean()

    return model, examples, Collator(encoder), loss


def test_the_learning_rate_is_the_closed_form() -> None:
    """100 steps, 10 of them rising: k/10 at the k-th step, then (101 - k)/90 at most 1."""
    for k in range(1, 101):
        expected = k / 10 if k <= 10 else min(1.0, (101 - k) / 90)
        assert ramp(k - 1, 100, 0.1) == pytest.approx(expected)
    assert [ramp(k, 4, 0.0) for k in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert [ramp(k, 4, 1.0) for k in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert ramp(0, 1, 0.1) == 1.0


def test_the_loop_uses_the_ramp_and_clips(
    bert: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    norms: list[float] = []

    class Watched(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            asked = [p for group in self.param_groups for p in group["params"]]
            norms.append(float(sum(p.grad.square().sum() for p in asked)) ** 0.5)
            return super().step(closure)

    monkeypatch.setattr(loop.torch.optim, "AdamW", Watched)
    recipe = Recipe(epochs=5, batch_size=4, learning_rate=1e-3, clip=0.5, max_steps=18)
    went = train(*small(bert), recipe, tmp_path)
    assert rates == pytest.approx([1e-3 * ramp(k, 18, 0.1) for k in range(18)])
    assert norms == pytest.approx([0.5] * 18, rel=1e-3)
    assert went.steps == 18
    assert [step for step, _ in went.history] == list(range(1, 19))


def test_steps_are_adamws(bert: Encoder, tmp_path: Path) -> None:
    """One step by hand: the moments of a first step cancel, so each weight moves by the rate."""
    model, examples, collate, loss = small(bert)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rate, decay = 1e-2, 0.5
    loss(collate(examples)).backward()
    signs = {name: value.grad.sign() for name, value in model.named_parameters()}
    model.zero_grad()
    recipe = Recipe(
        epochs=1, batch_size=16, learning_rate=rate, weight_decay=decay, warm_up=0.0, clip=1e9
    )
    train(model, examples, collate, loss, recipe, tmp_path)
    for name, value in model.state_dict().items():
        # Matrices are decayed, biases and the norm are not.
        kept = before[name] * (1 - rate * decay) if value.dim() > 1 else before[name]
        assert torch.allclose(value, kept - rate * signs[name], atol=1e-5), name


def test_each_epoch_sees_each_example_once_in_even_batches() -> None:
    lengths = np.random.default_rng(0).integers(3, 100, 1003).tolist()
    recipe = Recipe(batch_size=8)
    first, again, later = (epoch_batches(lengths, recipe, epoch) for epoch in (0, 0, 1))
    for found in (first, later):
        assert sorted(place for batch in found for place in batch) == list(range(1003))
        assert sorted(map(len, found)) == [3, *[8] * 125]
    assert first == again != later
    assert epoch_batches(lengths, replace(recipe, seed=1), 0) != first
    spread = [max(lengths[p] for p in batch) - min(lengths[p] for p in batch) for batch in first]
    assert np.mean(spread) < 10  # of 97
    longest = [max(lengths[p] for p in batch) for batch in first]
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.3  # short ones do not come first


def test_history_is_small_and_holds_means() -> None:
    went = loop.Trained()
    for k in range(1000):
        went.add(float(k), 1000)
    assert len(went.history) == 100
    assert went.history[0] == [10, 4.5]
    assert went.history[-1] == [1000, went.final_loss] == [1000, 994.5]
    assert math.isnan(loop.Trained().final_loss)


def test_the_module_trains_in_train_mode_and_ends_in_eval_mode(
    bert: Encoder, tmp_path: Path
) -> None:
    model, examples, collate, loss = small(bert)
    modes: list[bool] = []

    def noted(batch: Batch) -> Tensor:
        modes.append(model.training and torch.is_grad_enabled())
        return loss(batch)  # type: ignore[no-any-return]

    with torch.no_grad(), torch.inference_mode():
        train(model, examples, collate, noted, Recipe(epochs=1, batch_size=8), tmp_path / "a")
    assert modes == [True, True]
    assert not model.training
    with pytest.raises(Stopped), watched(stop_at(1)):
        train(model, examples, collate, noted, SHORT, tmp_path / "b")
    assert not model.training


def test_a_loss_that_is_not_finite_stops(bert: Encoder, tmp_path: Path) -> None:
    model, examples, collate, loss = small(bert)
    done: list[int] = []

    def broken(batch: Batch) -> Tensor:
        done.append(1)
        return loss(batch) * (math.nan if len(done) == 3 else 1.0)

    recipe = Recipe(epochs=2, batch_size=8, learning_rate=1e-3, warm_up=0.0)
    with pytest.raises(BadValue, match=r"loss is nan at step 3 of 4, .*rate of 0\.0005; .*smaller"):
        train(model, examples, collate, broken, recipe, tmp_path)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())
    assert not list(tmp_path.iterdir())
    with pytest.raises(BadValue, match="gradient's norm is "):
        train(model, examples, collate, lambda b: loss(b).detach() + spike(model), recipe, tmp_path)


def spike(model: nn.Module) -> Tensor:
    """0, with an infinite slope."""
    return sum((p * 0).square().sum().sqrt() for p in model.parameters())  # type: ignore[return-value]


# --- what is refused before the first step ---------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": -1e-4},
        {"learning_rate": math.nan},
        {"learning_rate": math.inf},
        {"warm_up": 1.5},
        {"weight_decay": -0.1},
        {"clip": -1.0},
        {"seed": -1},
        {"max_steps": 0},
        {"on_long": "cut"},
    ],
)
def test_wrong_recipes_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(BadValue, match=f"{name.replace('on_long', 'on-long')} is "):
        Recipe(**wrong)


def with_label(label: Any, text: str = "it rained", pair: str | None = None) -> Corpus:
    corpus = planted(6)
    odd = TaskExample("odd:1", text, pair, label)
    return replace(corpus, examples=(*corpus.examples, odd))


@pytest.mark.parametrize(
    ("corpus", "task", "options", "error", "said"),
    [
        (replace(planted(4), kind="segment"), "sst2", {}, CorpusError, "no labels"),
        (replace(planted(4), examples=()), "sst2", {}, CorpusError, "empty"),
        (with_label(None), "sst2", {}, CorpusError, "odd:1"),
        (with_label(2), "sst2", {}, CorpusError, "odd:1"),
        (with_label(0.5), "sst2", {}, CorpusError, "odd:1"),
        (with_label(1, pair="so"), "sst2", {}, CorpusError, "odd:1"),
        (planted(4), "mrpc", {}, CorpusError, "toy:0"),
        (replace(planted(4), examples=planted(4).examples[::2]), "sst2", {}, CorpusError, "all"),
        (planted(4), "sst", {}, UnknownName, "sst2"),
        (planted(4), "sst2", {"start": "scratch"}, BadValue, "pretrained, random, frozen"),
        (planted(4), "sst2", {"recipe": Recipe(max_length=500)}, BadValue, "max-length is 500"),
        (
            with_label(1, text="snow " * 40),
            "sst2",
            {"recipe": replace(SHORT, on_long="error")},
            TooLong,
            "the limit is 24",
        ),
    ],
)
def test_bad_input_is_refused_before_any_training(
    corpus: Corpus,
    task: str,
    options: dict[str, Any],
    error: type[AttnlibError],
    said: str,
    bert: Encoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_models, "train", never)
    with pytest.raises(error, match=said):
        finetuned(bert, corpus, task, **{"recipe": SHORT, "cache": tmp_path, **options})
    assert not list(tmp_path.iterdir())


def test_bad_input_is_refused_when_scored(toy: Corpus, whole: FineTuned) -> None:
    with pytest.raises(CorpusError, match="odd:1"):
        whole.outputs(with_label(None))
    with pytest.raises(CorpusError, match="a pair of texts"):
        whole.predictions(scored(3).examples)
    one_class = replace(toy, examples=toy.examples[::2])
    assert 0 <= scores(whole.task, *whole.outputs(one_class))["accuracy"] <= 1


def test_left_out_examples_are_counted(bert: Encoder, tmp_path: Path) -> None:
    corpus = with_label(1, text="snow " * 40)
    skip = replace(SHORT, on_long="skip")
    facts = finetuned(bert, corpus, "sst2", recipe=skip, cache=tmp_path).facts
    assert (facts["n_train"], facts["skipped"]) == (6, {"too long": 1})
    facts = finetuned(bert, corpus, "sst2", recipe=SHORT, cache=tmp_path).facts
    assert (facts["n_train"], facts["skipped"]) == (7, {"truncated": 1})


# --- the real model -------------------------------------------------------------------------


@pytest.mark.assets
def test_two_steps_of_a_real_model(e5_small: Encoder, tmp_path: Path) -> None:
    before = weights_digest(e5_small)
    recipe = Recipe(epochs=1, batch_size=4, learning_rate=1e-4, max_steps=2)
    corpus = planted(8)
    result = finetuned(e5_small, corpus, "sst2", recipe=recipe, cache=tmp_path)
    assert math.isfinite(result.facts["final_loss"])
    assert weights_digest(e5_small) == before != weights_digest(result.encoder)
    assert set(result.predictions(corpus.examples)) <= {0, 1}
