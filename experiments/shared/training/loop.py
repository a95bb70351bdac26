"""A seeded training loop that can be interrupted: AdamW, warm-up and decay, checkpoints.

Our own and not that of a library, for two promises: a training that was killed and taken up again
ends with the very bits of one that was not, and a loss or gradient that is not finite stops it in
one sentence and leaves no checkpoint to go on from.
"""

from __future__ import annotations

import math
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from attnlib.attention.encode import ON_LONG, Batch, Encoded
from attnlib.errors import BadValue, check_choice
from attnlib.files import sha256_of
from attnlib.progress import counting

POOL = 20
"""Batches whose examples are sorted by length together."""
HISTORY = 100
"""Points of the loss curve, about."""
SECONDS_BETWEEN = 60.0
"""From one checkpoint to the next."""


@dataclass(frozen=True)
class Recipe:
    """How to train; the defaults are BERT's for a task with a few thousand examples.

    warm_up    share of the steps in which the learning rate rises
    max_steps  stop after so many steps; the learning rate is then at 0, too
    """

    epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 5e-5
    warm_up: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    max_length: int = 128
    on_long: str = "truncate"
    seed: int = 0
    max_steps: int | None = None

    def __post_init__(self) -> None:
        check_choice("on-long", self.on_long, ON_LONG)
        for name, value in vars(self).items():
            if name == "on_long" or value is None:
                continue
            low = 1 if name in ("epochs", "batch_size", "max_steps") else 0
            high = 1 if name == "warm_up" else math.inf
            if not (low <= value <= high and math.isfinite(value)):
                raise BadValue(f"{name} is {value}; expected a number from {low:g} to {high:g}.")

    def n_batches(self, n_examples: int) -> int:
        """Batches of one epoch on so many examples."""
        return math.ceil(n_examples / self.batch_size)

    def n_steps(self, n_examples: int) -> int:
        """Steps of a whole training on so many examples."""
        steps = self.epochs * self.n_batches(n_examples)
        return steps if self.max_steps is None else min(steps, self.max_steps)


@dataclass
class Trained:
    """How a training went. `history` has the step and the mean loss of the steps up to it."""

    steps: int = 0
    seconds: float = 0.0
    history: list[list[float]] = field(default_factory=list)
    recent: list[float] = field(default_factory=list)

    @property
    def final_loss(self) -> float:
        """Mean loss of the last steps; NaN where there was none."""
        return self.history[-1][1] if self.history else math.nan

    def add(self, loss: float, n_steps: int) -> None:
        """One more step, with its loss."""
        self.steps += 1
        self.recent.append(loss)
        if self.steps % max(1, n_steps // HISTORY) == 0 or self.steps == n_steps:
            self.history.append([self.steps, sum(self.recent) / len(self.recent)])
            self.recent.clear()


def train(
    module: nn.Module,
    examples: Sequence[Encoded],
    collate: Callable[[Sequence[Encoded]], Batch],
    loss: Callable[[Batch], Tensor],
    recipe: Recipe,
    folder: Path,
) -> Trained:
    """Minimise `loss`, the mean over a batch, in all weights of `module` that ask for gradients.

    Each epoch goes once through the examples. A checkpoint is left in the folder every so many
    seconds and after each epoch; a training that finds one goes on from it and ends with the very
    weights of one that was never interrupted (on the same device and as many threads).
    The caller removes the checkpoints with `forget`. Random numbers of the caller are left alone.
    The module ends in evaluation mode.
    """
    if not examples:
        raise BadValue("no example is left to train on; expected one or more.")
    n_steps, per_epoch = recipe.n_steps(len(examples)), recipe.n_batches(len(examples))
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        _own_random_numbers(_device(module), recipe.seed),
        counting() as tick,
    ):
        shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        run = _Run(module, optimiser(module, recipe), f"{recipe} {len(examples)} {shapes}")
        run.resume(folder)
        try:
            module.train()
            for batch in _batches_from(run.state.steps, examples, collate, recipe, n_steps):
                tick(run.state.steps, n_steps)
                _step(run, loss(batch), recipe, n_steps, folder)
                waited = time.perf_counter() - run.kept
                if run.state.steps % per_epoch == 0 or waited >= SECONDS_BETWEEN:
                    run.keep(folder)
            tick(run.state.steps, n_steps)
        finally:
            module.eval()
            run.optimiser.zero_grad()
    run.state.seconds = time.perf_counter() - run.began
    return run.state


def ramp(done: int, n_steps: int, warm_up: float) -> float:
    """The share of the learning rate after so many steps: up from 0, then down to 0, in lines."""
    rising = (done + 1) / max(1.0, warm_up * n_steps)
    return min(1.0, rising, (n_steps - done) / max(1.0, (1 - warm_up) * n_steps))


def optimiser(module: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """AdamW on what asks for gradients; vectors (biases, norms) are not decayed, as in BERT."""
    asked = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in asked if p.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [p for p in asked if p.dim() < 2], "weight_decay": 0.0},
    ]
    # One pass over the weights instead of a dozen: a third of a short batch's time.
    fused = _device(module).type in ("cpu", "cuda")
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, fused=fused)


def epoch_batches(lengths: Sequence[int], recipe: Recipe, epoch: int) -> list[list[int]]:
    """Which examples go together: shuffled, sorted by length in pools, batches shuffled again.

    Examples of similar length need little padding; the pools keep the company of an example
    random from epoch to epoch.
    """
    generator = np.random.default_rng((recipe.seed, epoch))
    order = generator.permutation(len(lengths)).tolist()
    size, pool = recipe.batch_size, POOL * recipe.batch_size
    pools = (order[start : start + pool] for start in range(0, len(order), pool))
    arranged = [place for part in pools for place in sorted(part, key=lambda p: lengths[p])]
    found = [arranged[start : start + size] for start in range(0, len(arranged), size)]
    return [found[i] for i in generator.permutation(len(found))]


def _batches_from(
    done: int,
    examples: Sequence[Encoded],
    collate: Callable[[Sequence[Encoded]], Batch],
    recipe: Recipe,
    n_steps: int,
) -> Iterator[Batch]:
    """The batches of all epochs, without those of the steps that are done."""
    lengths = [len(example) for example in examples]
    per_epoch = recipe.n_batches(len(examples))
    for epoch in range(done // per_epoch, math.ceil(n_steps / per_epoch)):
        first = epoch * per_epoch
        for places in epoch_batches(lengths, recipe, epoch)[max(0, done - first) : n_steps - first]:
            yield collate([examples[place] for place in places])


def _step(run: _Run, loss: Tensor, recipe: Recipe, n_steps: int, folder: Path) -> None:
    rate = recipe.learning_rate * ramp(run.state.steps, n_steps, recipe.warm_up)
    for group in run.optimiser.param_groups:
        group["lr"] = rate
    run.optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    asked = [parameter for group in run.optimiser.param_groups for parameter in group["params"]]
    norm = nn.utils.clip_grad_norm_(asked, recipe.clip)
    value = loss.item()
    for name, number in (("loss", value), ("gradient's norm", norm.item())):
        if not math.isfinite(number):
            forget(folder)  # going on from there would end in the same place
            raise BadValue(
                f"the {name} is {number} at step {run.state.steps + 1} of {n_steps}, at a learning "
                f"rate of {rate:.2g}; expected a finite number. Use a smaller learning rate or a "
                "longer warm-up, and check the model's weights if it is the first step."
            )
    run.optimiser.step()
    run.state.add(value, n_steps)


# --- checkpoints: whole or not at all -------------------------------------------------------


@dataclass
class _Run:
    """What a training consists of at a step, and since when the clock runs."""

    module: nn.Module
    optimiser: torch.optim.AdamW
    name: str
    state: Trained = field(default_factory=Trained)
    began: float = field(default_factory=time.perf_counter)
    kept: float = field(default_factory=time.perf_counter)

    def keep(self, folder: Path) -> None:
        """Leave a checkpoint, named after its step and content, and remove the earlier ones."""
        self.kept = time.perf_counter()
        self.state.seconds = self.kept - self.began
        content = {
            "name": self.name,
            "module": self.module.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "random": _random_states(_device(self.module)),
            "state": vars(self.state),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / ".draft-checkpoint"  # nobody else trains for this folder
            with draft.open("wb") as stream:
                torch.save(content, stream)
            name = f"checkpoint-{self.state.steps:09d}-{sha256_of(draft)}.pt"
            kept = draft.replace(folder / name)
            for path in _checkpoints(folder):
                if path != kept:
                    path.unlink(missing_ok=True)
        except (OSError, RuntimeError) as error:  # it costs time, not the result
            warnings.warn(f"no checkpoint could be written to {folder}: {error}", stacklevel=2)

    def resume(self, folder: Path) -> None:
        """Take up the newest checkpoint that is whole and belongs to this run, if any is."""
        for path in reversed(_checkpoints(folder)):
            try:
                if sha256_of(path) != path.stem.rpartition("-")[2]:
                    continue
                found = torch.load(path, map_location="cpu", weights_only=True)
            except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError):
                continue
            if found.get("name") != self.name:
                continue
            self.module.load_state_dict(found["module"])
            self.optimiser.load_state_dict(found["optimiser"])
            _set_random_states(found["random"], _device(self.module))
            self.state = Trained(**found["state"])
            self.began = time.perf_counter() - self.state.seconds
            return


def forget(folder: Path) -> None:
    """Remove all checkpoints, and drafts that a killed process left."""
    for path in (*_checkpoints(folder), *folder.glob(".draft-*")):
        with suppress(OSError):
            path.unlink()


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the newest last."""
    return sorted(folder.glob("checkpoint-*-*.pt"))


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _random_states(device: torch.device) -> dict[str, Tensor]:
    """The state of torch's random numbers, on the CPU and on the device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states[device.type] = torch.get_device_module(device).get_rng_state()
    return states


def _set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type in states and device.type != "cpu":
        torch.get_device_module(device).set_rng_state(states[device.type])


@contextmanager
def _own_random_numbers(device: torch.device, seed: int) -> Iterator[None]:
    """Random numbers by the seed within; the caller's go on afterwards as if nothing had been."""
    before = _random_states(device)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        _set_random_states(before, device)
