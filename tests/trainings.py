"""What the tests of every training need: weights to compare, and ways to stop one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def weights(result: Any) -> dict[str, Tensor]:
    """All weights of a trained encoder and its head."""
    own = nn.ModuleDict({"encoder": result.encoder.model, "head": result.head})
    return {name: value.clone() for name, value in own.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


class Stopped(Exception):
    """Stands for whatever ends a process."""


def stop_at(step: int) -> Callable[[int, int], None]:
    def progress(done: int, n_steps: int) -> None:
        if done == step:
            raise Stopped

    return progress


def never(*args: Any, **options: Any) -> Any:
    raise AssertionError("trained again")


DAMAGE = ("weights", "facts", "digest", "gone", "other")


def spoil(cache: Path, damage: str) -> None:
    """Harm the only model that is kept in a folder."""
    (facts,) = cache.rglob("facts.json")
    model, told = facts.with_name("model.safetensors"), json.loads(facts.read_text())
    if damage == "weights":
        content = bytearray(model.read_bytes())
        content[-1] ^= 1
        model.write_bytes(content)
    elif damage == "facts":
        facts.write_text(facts.read_text()[:-20])
    elif damage == "digest":
        facts.write_text(json.dumps({k: v for k, v in told.items() if k != "sha256"}))
    elif damage == "gone":
        model.unlink()
    else:
        facts.write_text(json.dumps({**told, "key": "another"}))
