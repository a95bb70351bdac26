"""The network that tells Kovaleva's five patterns apart, tested on unseen heads and inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention.maps import Attention
from attnlib.metrics.registry import Metric, Partial
from experiments.shared.patterns import PATTERNS, pictures

GROWTH = (1, 1, 2, 2, 4, 4, 6, 6)
"""Channels of the 8 convolutions, in units of the first; every second one halves the picture."""


class PatternNet(nn.Module):
    """Eight convolutions of 3 x 3 with ReLU (sec. 4.1), then one linear layer on the means.

    The paper tells no more than that; each convolution is followed by a batch normalisation,
    without which so few pictures do not train so many layers.
    width  channels of the first convolution
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 1
        for place, times in enumerate(GROWTH):
            channels = times * width
            layers += [
                nn.Conv2d(before, channels, 3, padding=1, bias=False),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
            ]
            if place % 2:
                layers.append(nn.MaxPool2d(2))
            before = channels
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(before, len(PATTERNS))

    def forward(self, shades: Float[Tensor, "map side side"]) -> Float[Tensor, "map pattern"]:
        logits: Tensor = self.out(self.body(shades.unsqueeze(1)).mean((-1, -2)))
        return logits


@dataclass(frozen=True)
class Schooling:
    """How the network is trained; chosen before its scores were seen."""

    epochs: int = 40
    width: int = 16
    batch_size: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    seed: int = 0


def schooled(
    shades: Float[Tensor, "map side side"],
    labels: Int[Tensor, " map"],
    schooling: Schooling | None = None,
) -> PatternNet:
    """A network trained on labelled pictures; rare classes weigh as much as common ones."""
    how = schooling or Schooling()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(how.seed)
        net = PatternNet(how.width).to(shades.device)
    counts = torch.bincount(labels, minlength=len(PATTERNS)).clamp_min(1)
    weight = (len(labels) / (len(PATTERNS) * counts)).to(shades.dtype)
    n_steps = how.epochs * -(-len(labels) // how.batch_size)
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, how.learning_rate, n_steps)
    generator = torch.Generator().manual_seed(how.seed)
    net.train()
    for _ in range(how.epochs):
        order = torch.randperm(len(labels), generator=generator).to(labels.device)
        for part in order.split(how.batch_size):
            optimizer.zero_grad()
            functional.cross_entropy(net(shades[part]), labels[part], weight).backward()
            optimizer.step()
            schedule.step()
    return net.eval().requires_grad_(False)


def told(net: PatternNet, shades: Float[Tensor, "map side side"]) -> Int[Tensor, " map"]:
    """The class of every picture, as an index of PATTERNS."""
    with torch.inference_mode():
        return torch.cat([net(part).argmax(-1) for part in shades.split(256)])


def told_unseen(
    shades: Float[Tensor, "map side side"],
    labels: Int[Tensor, " map"],
    folds: Sequence[int],
    schooling: Schooling | None = None,
) -> NDArray[np.int64]:
    """The class of every picture by a network that saw no picture of its fold."""
    fold = torch.tensor(folds, device=labels.device)
    found = torch.empty_like(labels)
    for one in fold.unique().tolist():
        rest = fold != one
        found[~rest] = told(schooled(shades[rest], labels[rest], schooling), shades[~rest])
    return np.asarray(found.cpu().numpy())


def pattern_metric(net: PatternNet) -> Metric:
    """A metric of one's own for `measure`: which pattern a head's map is called, one of five."""

    def kernel(attention: Attention) -> Partial:
        drawn = pictures(attention.weights, attention.real.sum(-1))
        called = told(net, drawn.flatten(0, 1)).unflatten(0, drawn.shape[:2])
        one_hot = functional.one_hot(called, len(PATTERNS)).to(drawn.dtype)
        return Partial(one_hot, torch.ones(len(one_hot), device=drawn.device))

    return Metric(
        "pattern",
        "Which of five patterns a network calls the map of a head.",
        "kovaleva2019:sec4.1",
        "share",
        (0, 1),
        kernel,
        axes=("head", "pattern"),
    )
