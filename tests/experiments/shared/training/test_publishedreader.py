"""A published question answering model is read as it is: transformers' own logits and answers."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from attnlib.data.examples import Answer, Question
from attnlib.errors import UnknownModel
from attnlib.models import Encoder, load_encoder, random_encoder, weights_digest
from experiments.shared.training.publishedreader import BIAS, FILES, WEIGHT, published_reader
from experiments.shared.training.spanmodel import SpanReader
from tests.families import FAMILIES, HIDDEN, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

WHOLE, PICKLED = FILES
ASKED = (
    ("why did it run", "The old bridge over the river was closed, so we took the ferry."),
    ("who", "Her well-known café sells 1,250 éclairs a week: the engineers stayed."),
    ("after nine", "It rained."),
)
QUESTIONS = [Question(str(i), q, c, (Answer(c[:2], 0),), "") for i, (q, c) in enumerate(ASKED)]


def trained_elsewhere(family: str = "bert", seed: int = 0, **more: Any) -> Any:
    """A model with the library's own head for questions; every weight is random."""
    made = FAMILIES[family]
    config = made.config(len(made.tokenizer()))
    for name, value in more.items():
        setattr(config, name, value)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModelForQuestionAnswering.from_config(config).eval()
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return model


def saved(model: Any, folder: Path, form: str = "whole", family: str = "bert") -> Path:
    """The model in one of the layouts in which the hub holds models."""
    transformers.utils.logging.disable_progress_bar()
    FAMILIES[family].tokenizer().save_pretrained(folder)
    weights = model.state_dict()
    if form == "whole":
        model.save_pretrained(folder)
    elif form == "shards":
        model.save_pretrained(folder, max_shard_size="40KB")
    else:
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(folder)
    if form == "pickled":  # with what checkpoints of 2019 hold besides
        positions = torch.arange(model.config.max_position_embeddings)[None]
        pooler = {"bert.pooler.dense.weight": torch.ones(HIDDEN, HIDDEN)}
        old = {"bert.embeddings.position_ids": positions, **pooler}
        torch.save({**weights, **old}, folder / PICKLED)
    elif form == "legacy":
        torch.save(weights, folder / PICKLED, _use_new_zipfile_serialization=False)
    elif form == "pickled shards":
        names = list(weights)
        places = {
            name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(names)
        }
        for shard in set(places.values()):
            torch.save({n: weights[n] for n in names if places[n] == shard}, folder / shard)
        index = {"metadata": {}, "weight_map": places}
        (folder / f"{PICKLED}.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture(scope="module")
def published() -> Any:
    return trained_elsewhere()


@pytest.fixture(scope="module")
def encoder(published: Any, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return load_encoder(saved(published, tmp_path_factory.mktemp("hub")), device="cpu")


@pytest.fixture(scope="module")
def reader(encoder: Encoder) -> SpanReader:
    return published_reader(encoder)


def theirs(model: Any, tokenizer: Any, question: Question) -> tuple[Any, Tensor]:
    """What the library alone makes of a question: its pieces, and (piece, 2) logits."""
    coded = tokenizer(question.question, question.context, return_offsets_mapping=True)
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = {name: torch.tensor([coded[name]]) for name in names if name in coded}
    with torch.inference_mode():
        found = model(**given)
    return coded, torch.stack([found.start_logits[0], found.end_logits[0]], dim=-1)


def ours(reader: SpanReader, questions: list[Question]) -> Iterator[tuple[Question, Tensor]]:
    """Each question with its (piece, 2) logits, out of padded batches."""
    windows = reader.windows(questions)
    assert len(windows) == len(questions)
    for batch in reader.batches(windows, batch_size=2):
        with torch.inference_mode():
            logits = reader.head(reader.hidden(batch))
        for row, number in enumerate(batch.index):
            yield questions[windows[number].question], logits[row, : int(batch.n_real[row])]


# --- it is the library's own model ------------------------------------------------------------


@pytest.mark.parametrize("form", ["whole", "shards", "pickled", "legacy", "pickled shards"])
def test_the_logits_are_those_of_the_library(form: str, published: Any, tmp_path: Path) -> None:
    encoder = load_encoder(saved(published, tmp_path, form), device="cpu")
    assert len(list(tmp_path.glob("*.index.json"))) == ("shards" in form)
    assert (tmp_path / WHOLE).is_file() == (form == "whole")
    reader = published_reader(encoder)
    seen = 0
    for question, logits in ours(reader, QUESTIONS):
        _, expected = theirs(published, encoder.tokenizer, question)
        assert torch.allclose(logits, expected, atol=1e-5)
        assert not torch.allclose(logits, expected.flip(-1), atol=0.1)  # start and end swapped
        seen += 1
    assert seen == len(QUESTIONS)


@pytest.mark.parametrize("family", ["distilbert", "roberta", "electra"])
def test_other_families_are_read_alike(family: str, tmp_path: Path) -> None:
    model = trained_elsewhere(family)
    encoder = load_encoder(saved(model, tmp_path, family=family), device="cpu")
    for question, logits in ours(published_reader(encoder), QUESTIONS[::2]):
        _, expected = theirs(model, encoder.tokenizer, question)
        assert torch.allclose(logits, expected, atol=1e-5)


def test_answers_are_the_best_spans_of_the_librarys_logits(
    published: Any, reader: SpanReader
) -> None:
    found = reader.answers(QUESTIONS)
    for question, spans in zip(QUESTIONS, found, strict=True):
        coded, logits = theirs(published, reader.encoder.tokenizer, question)
        inside = [p for p, part in enumerate(coded.sequence_ids()) if part == 1]
        pairs = [(s, e) for s in inside for e in inside if s <= e < s + 30]
        first, last = max(pairs, key=lambda pair: float(logits[pair[0], 0] + logits[pair[1], 1]))
        start, end = coded["offset_mapping"][first][0], coded["offset_mapping"][last][1]
        assert (spans[0].start, spans[0].text) == (start, question.context[start:end])
        assert spans[0].score == pytest.approx(float(logits[first, 0] + logits[last, 1]), abs=1e-5)


def test_facts_say_that_nothing_was_trained(encoder: Encoder, reader: SpanReader) -> None:
    facts = reader.facts
    assert facts["recipe"] == {"max_length": encoder.max_length}  # below 384
    assert (facts["corpus"], facts["model"]) == ("published", encoder.name)
    assert (facts["steps"], facts["n_train"], facts["seconds"]) == (0, 0, 0.0)
    assert (facts["stride"], facts["history"]) == (128, [])
    assert math.isnan(facts["final_loss"])
    longer = published_reader(replace(encoder, max_length=512))
    assert longer.facts["recipe"] == {"max_length": 384}


def test_the_encoder_is_shared_and_left_as_it_was(encoder: Encoder) -> None:
    before, state = weights_digest(encoder), torch.get_rng_state()
    with torch.inference_mode():  # whatever the caller is in
        reader = published_reader(encoder)
    assert weights_digest(encoder) == before == weights_digest(reader.encoder)
    assert all(parameter.requires_grad for parameter in encoder.model.parameters())
    given = dict(encoder.model.named_parameters())
    for name, parameter in reader.encoder.model.named_parameters():
        assert not parameter.requires_grad and not parameter.is_inference()
        assert parameter.data_ptr() == given[name].data_ptr()
    assert not any(p.requires_grad or p.is_inference() for p in reader.head.parameters())
    assert not any(buffer.is_inference() for buffer in reader.encoder.model.buffers())
    assert not reader.encoder.model.training and not reader.head.training
    assert torch.equal(torch.get_rng_state(), state)
    (batch,) = reader.batches(reader.windows(QUESTIONS[:1]))
    gate = torch.ones((), requires_grad=True)
    reader.head(reader.hidden(batch) * gate).sum().backward()  # type: ignore[no-untyped-call]
    assert gate.grad is not None  # gradients flow to what a caller brings in


def test_the_head_has_the_encoders_dtype(tmp_path: Path, published: Any) -> None:
    encoder = load_encoder(saved(published, tmp_path), device="cpu", dtype=torch.bfloat16)
    head = published_reader(encoder).head
    assert {p.dtype for p in head.parameters()} == {torch.bfloat16}
    assert {p.device for p in head.parameters()} == {encoder.device}
    assert torch.equal(head.out.weight, published.qa_outputs.weight.to(torch.bfloat16))


def test_the_head_comes_from_the_file_of_the_encoder(tmp_path: Path, published: Any) -> None:
    """Of two files transformers takes the safetensors: the head lies there or nowhere."""
    folder = saved(published, tmp_path)
    weights = load_file(folder / WHOLE)
    torch.save({**weights, BIAS: weights[BIAS] + 7}, folder / PICKLED)
    encoder = load_encoder(folder, device="cpu")
    assert torch.equal(published_reader(encoder).head.out.bias, published.qa_outputs.bias)
    without = {name: value for name, value in weights.items() if name not in (WEIGHT, BIAS)}
    save_file(without, folder / WHOLE, {"format": "pt"})
    with pytest.raises(UnknownModel, match=r"hold no qa_outputs\.weight"):
        published_reader(load_encoder(folder, device="cpu"))


# --- a model without such a head --------------------------------------------------------------


def test_an_encoder_without_a_head_is_told(
    folders: Callable[[str], Path], encoder: Encoder
) -> None:
    plain = load_encoder(folders("bert"), device="cpu")
    nowhere = random_encoder(encoder.model.config, encoder.tokenizer)
    for given in (plain, nowhere):
        with pytest.raises(UnknownModel, match=r"no head .* qa_outputs\.weight.*finetuned-squad"):
            published_reader(given)


def altered(folder: Path, published: Any, **changes: Tensor | None) -> Encoder:
    """The published model with other tensors in its head; None takes one out."""
    saved(published, folder)
    weights: dict[str, Any] = load_file(folder / WHOLE)
    weights |= {f"qa_outputs.{name}": value for name, value in changes.items()}
    kept = {name: value for name, value in weights.items() if value is not None}
    save_file(kept, folder / WHOLE, {"format": "pt"})
    return load_encoder(folder, device="cpu")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bias": None}, r"hold no qa_outputs\.bias"),
        ({"weight": None}, r"hold no qa_outputs\.weight"),
        ({"weight": torch.zeros(3, HIDDEN)}, r"shape \(3, 32\); expected \(2, 32\)"),
        ({"weight": torch.zeros(2, HIDDEN + 1)}, r"shape \(2, 33\); expected \(2, 32\)"),
        ({"bias": torch.zeros(3)}, r"bias has shape \(3,\); expected \(2,\)"),
        ({"bias": torch.tensor([0.0, math.nan])}, r"bias holds a number that is not finite"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(
    changes: dict[str, Tensor | None], said: str, published: Any, tmp_path: Path
) -> None:
    encoder = altered(tmp_path, published, **changes)
    with pytest.raises(UnknownModel, match=said):
        published_reader(encoder)


# --- damaged files ----------------------------------------------------------------------------


SPRUNG: list[int] = []


def spring() -> None:
    SPRUNG.append(1)


class Trap:
    """Runs code when it is unpickled carelessly."""

    def __reduce__(self) -> tuple[Any, ...]:
        return spring, ()


def trapped(old: bytes) -> bytes:
    stream = io.BytesIO()
    torch.save({WEIGHT: Trap()}, stream)
    return stream.getvalue()


INDEX = f"{WHOLE}.index.json"
DAMAGES: dict[str, tuple[str, str, Callable[[bytes], bytes]]] = {
    "cut": ("whole", WHOLE, lambda old: old[: len(old) // 2]),
    "empty": ("whole", WHOLE, lambda old: b""),
    "cut archive": ("pickled", PICKLED, lambda old: old[: len(old) // 2]),
    "cut pickle": ("legacy", PICKLED, lambda old: old[: len(old) // 2]),
    "empty pickle": ("pickled", PICKLED, lambda old: b""),
    "code": ("pickled", PICKLED, trapped),
    "cut index": ("shards", INDEX, lambda old: old[: len(old) // 2]),
    "no map": ("shards", INDEX, lambda old: b"{}"),
    "a list": ("shards", INDEX, lambda old: b"[]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named(damage: str, published: Any, tmp_path: Path) -> None:
    form, name, harm = DAMAGES[damage]
    encoder = load_encoder(saved(published, tmp_path, form), device="cpu")
    (tmp_path / name).write_bytes(harm((tmp_path / name).read_bytes()))
    with pytest.raises(UnknownModel, match=rf"the weights of {name} cannot be read \(") as told:
        published_reader(encoder)
    assert str(told.value).count("\n") == 0
    assert not SPRUNG


@pytest.mark.parametrize("form", ["shards", "pickled shards"])
def test_a_missing_shard_is_told_and_others_are_not_opened(
    form: str, published: Any, tmp_path: Path
) -> None:
    encoder = load_encoder(saved(published, tmp_path, form), device="cpu")
    (index,) = tmp_path.glob("*.index.json")
    places = json.loads(index.read_text())["weight_map"]
    holding = {places[WEIGHT], places[BIAS]}
    for other in set(places.values()) - holding:
        (tmp_path / other).unlink()
    published_reader(encoder)
    (tmp_path / places[BIAS]).unlink()
    with pytest.raises(UnknownModel, match="FileNotFoundError"):
        published_reader(encoder)
