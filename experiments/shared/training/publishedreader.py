"""A model that answers questions: trained here, or published with the span head in its files."""

from __future__ import annotations

import copy
import json
import math
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from attnlib.data.corpora import Corpus
from attnlib.errors import UnknownModel
from attnlib.models import Encoder, load_encoder
from experiments.shared.training.loop import Recipe
from experiments.shared.training.spanmodel import STRIDE, SpanHead, SpanReader, spantuned

WEIGHT, BIAS = "qa_outputs.weight", "qa_outputs.bias"
"""What transformers calls the span head of BERT, DistilBERT, RoBERTa, ELECTRA and others."""

FILES = ("model.safetensors", "pytorch_model.bin")
"""Where weights lie, whole or in the shards of an index; the encoder came from the first found."""

MAX_LENGTH = 384
"""Pieces of a window in BERT's own script for SQuAD; the stride there is 128, as here."""

_UNREADABLE = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RuntimeError),
    *(SafetensorError, pickle.UnpicklingError, zipfile.BadZipFile),
)


def published_reader(encoder: Encoder) -> SpanReader:
    """The encoder with its published span head, as it was trained elsewhere.

    encoder  as `load_encoder` gave it; its weights are shared with the reader, not copied
    Windows are as long as in BERT's own script, or as the model allows.
    """
    found = _head_weights(encoder)
    _check(found, encoder)
    with torch.inference_mode(False):
        head = SpanHead(encoder).eval().requires_grad_(False)
        head.out.weight.copy_(found[WEIGHT])
        head.out.bias.copy_(found[BIAS])
    facts = {
        "task": "spans",
        "model": encoder.name,
        "corpus": "published",
        **dict.fromkeys(("n_train", "n_windows", "n_without_answer", "steps"), 0),
        **{"skipped": {}, "history": [], "epochs": 0.0, "seconds": 0.0, "final_loss": math.nan},
        "recipe": {"max_length": min(MAX_LENGTH, encoder.max_length)},
        "stride": STRIDE,
        "cached": True,
    }
    return SpanReader(_frozen(encoder), head, facts)


def reader_of(*train: Corpus, encoder: Encoder, recipe: Mapping[str, Any] | None) -> SpanReader:
    """The model that answers questions: trained once and read back, or published with a head."""
    if train and recipe is not None:
        return spantuned(encoder, train[0], recipe=Recipe(**recipe))
    if recipe is not None and "published" in recipe:
        return published_reader(load_encoder(recipe["published"], device=encoder.device.type))
    return published_reader(encoder)


def _frozen(encoder: Encoder) -> Encoder:
    """The same encoder with weights that ask for no gradients; the given one keeps its own."""
    with torch.inference_mode(False):
        # A copy that finds its weights made already: a large model is not held twice.
        own = {id(p): nn.Parameter(p.data, requires_grad=False) for p in encoder.model.parameters()}
        return replace(encoder, model=copy.deepcopy(encoder.model, own).eval())


def _check(found: dict[str, Tensor], encoder: Encoder) -> None:
    """Refuse what is no head with a start and an end logit for this encoder."""
    for name, shape in ((WEIGHT, (2, encoder.model.config.hidden_size)), (BIAS, (2,))):
        if name not in found:
            raise UnknownModel(
                f"'{encoder.name}' has no head that reads answers: its files hold no {name}. Use "
                "a model tuned for extraction, such as bert-large-uncased-whole-word-masking-"
                "finetuned-squad, or name questions to learn from (spantuned(), or --train)."
            )
        if tuple(found[name].shape) != shape:
            raise UnknownModel(
                f"'{encoder.name}': {name} has shape {tuple(found[name].shape)}; expected {shape}, "
                "a start and an end logit of every piece. Use a model tuned for extraction."
            )
        if not torch.isfinite(found[name]).all():
            raise UnknownModel(
                f"'{encoder.name}': {name} holds a number that is not finite. Fetch it again."
            )


def _head_weights(encoder: Encoder) -> dict[str, Tensor]:
    """Those of the head's two tensors that lie in the encoder's files; none without files."""
    folder = Path(encoder.source)
    paths = (folder / f"{name}{end}" for name in FILES for end in ("", ".index.json"))
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return {}
    try:
        return _read(path)
    except _UNREADABLE as error:
        raise UnknownModel(
            f"'{encoder.name}': the weights of {path.name} cannot be read "
            f"({type(error).__name__}). Expected them whole; fetch or save the model again."
        ) from None


def _read(path: Path) -> dict[str, Tensor]:
    """The head's tensors out of a file, or out of those shards of an index that hold them."""
    if path.suffix == ".json":
        shard_of = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        shards = sorted({shard_of[name] for name in (WEIGHT, BIAS) if name in shard_of})
        parts = [_read(path.parent / shard) for shard in shards]
        return {name: value for part in parts for name, value in part.items()}
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            held = set(file.keys())
            return {name: file.get_tensor(name) for name in (WEIGHT, BIAS) if name in held}
    # Only archives can be mapped; files from before 2020 are plain pickles and read as a whole.
    mapped = zipfile.is_zipfile(path)
    weights: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    return {name: weights[name] for name in (WEIGHT, BIAS) if name in weights}
