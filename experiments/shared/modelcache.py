"""Trained weights kept by content: written whole or not at all, read back if nothing is damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import nn

from attnlib.files import sha256_of
from attnlib.models import Encoder
from experiments.shared.training import draft

WEIGHTS, FACTS = "model.safetensors", "facts.json"
_NO_SHAPE = frozenset(("transformers_version", "architectures", "dtype", "torch_dtype"))
"""Entries of a model's configuration that say where it comes from, not what it computes."""

T = TypeVar("T")


def shape_of(encoder: Encoder) -> list[tuple[str, Any]]:
    """What a model's configuration says of what it computes, for the key of a training."""
    config = encoder.model.config.to_dict()
    shape = {k: v for k, v in config.items() if k not in _NO_SHAPE and not k.startswith("_")}
    return sorted(shape.items())


def read_back(
    folder: Path, blank: Callable[[], T], modules: Callable[[T], nn.Module]
) -> tuple[T, dict[str, Any]] | None:
    """A kept model and its facts, or None where anything of it is missing or damaged.

    blank    makes the model before its first step, to be filled
    modules  all weights of such a model as one module
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if facts.pop("sha256") != sha256_of(folder / WEIGHTS) or facts["key"] != folder.name:
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
        folder.mkdir(parents=True, exist_ok=True)
        weights = {k: v.cpu().contiguous() for k, v in modules.state_dict().items()}
        with draft(folder) as path:
            safetensors.save_file(weights, path)
            sha256 = sha256_of(path)
            os.replace(path, folder / WEIGHTS)
        with draft(folder) as path:
            path.write_text(json.dumps({**facts, "sha256": sha256}, indent=1), encoding="utf-8")
            os.replace(path, folder / FACTS)


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
