"""Trained models in the store: written whole or not at all, read back if nothing is damaged.

models/<kind>/v<version>-<digest>/model.safetensors, facts.json, and checkpoints until the end
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn

from attnlib.attention.encode import Batch, Collator, Encoded
from attnlib.files import sha256_of
from attnlib.models import Encoder, weights_digest
from bookkit.editions import book_store
from bookkit.store import Key, digest_of, draft_of, write_whole
from experiments.shared.training.loop import Recipe, forget, train

WEIGHTS, FACTS = "model.safetensors", "facts.json"
_NO_SHAPE = frozenset(("transformers_version", "architectures", "dtype", "torch_dtype"))
"""Entries of a model's configuration that say where it comes from, not what it computes."""

T = TypeVar("T")
H = TypeVar("H", bound=nn.Module)


def home_of(
    kind: str,
    version: int,
    encoder: Encoder,
    settings: Mapping[str, Any],
    read: Iterable[Any],
    cache: Path | None = None,
) -> Path:
    """Where the end of a training is kept: by kind, version, settings, weights and data.

    settings  plain values that decide the training
    read      what the model reads, piece by piece
    cache     another folder than that of the store
    """
    digest = hashlib.sha256()
    for one in read:
        digest.update(repr(one).encode() + b"\n")
    data = ({"digest": weights_digest(encoder)}, {"digest": digest.hexdigest()})
    config = encoder.model.config.to_dict()
    shape = {k: v for k, v in config.items() if k not in _NO_SHAPE and not k.startswith("_")}
    decided = {**settings, "shape": digest_of(repr(sorted(shape.items())))}
    name = Key(f"models/{kind}", version, decided, data).name
    return (book_store().folders[0] if cache is None else cache) / name


def read_back(
    folder: Path, blank: Callable[[], T], modules: Callable[[T], nn.Module]
) -> tuple[T, dict[str, Any]] | None:
    """A kept model and its facts, or None where anything of it is missing or damaged.

    blank    makes the model before its first step, to be filled
    modules  all weights of such a model as one module
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if facts.pop("sha256") != sha256_of(folder / WEIGHTS) or facts["key"] != name_of(folder):
            return None
        weights = safetensors.load_file(folder / WEIGHTS)
        model = blank()
        modules(model).load_state_dict(weights)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError):
        return None
    return model, {**facts, "cached": True}


def keep(folder: Path, modules: nn.Module, facts: Mapping[str, Any]) -> None:
    """Weights, then the facts with their digest; each gets its name only when it is whole."""
    with suppress(OSError, SafetensorError):  # an unwritten cache costs time, not the result
        # Tied weights have two names and one memory, which the format refuses.
        weights = {
            k: v.detach().cpu().clone().contiguous() for k, v in modules.state_dict().items()
        }
        with draft_of(folder / WEIGHTS) as path:
            safetensors.save_file(weights, path)
            sha256 = sha256_of(path)
        write_whole(folder / FACTS, json.dumps({**facts, "sha256": sha256}, indent=1).encode())


def name_of(folder: Path) -> str:
    """The name of a kept model in its store."""
    return "/".join(folder.parts[-3:])


def tuned(
    folder: Path,
    examples: Sequence[Encoded],
    recipe: Recipe,
    loss_of: Callable[[Encoder, H], Callable[[Batch], Tensor]],
    *,
    encoder: Encoder,
    name: str,
    head_of: Callable[[Encoder], H],
    model_of: Callable[[], Any] | None = None,
    learning: Sequence[str] = ("encoder", "head"),
    about: Mapping[str, Any],
) -> tuple[Encoder, H, dict[str, Any]]:
    """An encoder and its head as kept in the folder, or trained for it and kept; and the facts.

    loss_of   what encoder and head minimise: the mean over a batch
    name      of the trained encoder; the given one is copied
    head_of   makes the head of an encoder, before its first step
    model_of  makes the network to start from, if it is not that of the encoder
    learning  which of the two learn, in the order in which their gradients are added up
    about     what else the facts say
    """

    def blank() -> tuple[Encoder, H]:
        with torch.inference_mode(False):
            model = copy.deepcopy(encoder.model) if model_of is None else model_of()
            own = replace(encoder, name=name, model=model.eval().requires_grad_(False))
            return own, head_of(own).eval().requires_grad_(False)

    def modules(own: tuple[Encoder, H]) -> nn.ModuleDict:
        return nn.ModuleDict({"encoder": own[0].model, "head": own[1]})

    def run(folder: Path) -> tuple[tuple[Encoder, H], dict[str, Any]]:
        own = blank()
        loss, parts = loss_of(*own), modules(own)
        learns = nn.ModuleDict({part: parts[part] for part in learning}).requires_grad_(True)
        went = train(learns, examples, Collator(encoder), loss, recipe, folder)
        learns.requires_grad_(False)
        facts = {
            **about,
            "model": encoder.name,
            "steps": went.steps,
            "epochs": round(went.steps * recipe.batch_size / len(examples), 2),
            "final_loss": went.final_loss,
            "history": went.history,
            "seconds": round(went.seconds, 1),
            "recipe": asdict(recipe),
            "key": name_of(folder),
        }
        keep(folder, parts, facts)
        forget(folder)
        return own, {**facts, "cached": False}

    own, facts = once(folder, lambda folder: read_back(folder, blank, modules), run)
    return *own, facts


def once(folder: Path, read: Callable[[Path], T | None], train: Callable[[Path], T]) -> T:
    """What is kept in the folder, or trained for it; one process at a time trains."""
    kept = read(folder)
    if kept is not None:
        return kept
    with _alone(folder):
        kept = read(folder)  # another process may have come first
        return train(folder) if kept is None else kept


def _alone(folder: Path) -> AbstractContextManager[Any]:
    """One process at a time trains for a folder; the kernel frees the lock of a killed one."""
    from filelock import FileLock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        held: AbstractContextManager[Any] = FileLock(folder / ".lock").acquire()
    except OSError:  # a cache that cannot be written to: nobody can get in the way there
        return nullcontext()
    return held
