"""Five patterns of attention maps (Sec. 4.1): maps labelled by eye, a rule, and a network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention import tap
from attnlib.attention.encode import Batch, Collator, tokenized, truncated
from attnlib.attention.maps import Attention
from attnlib.data.corpora import load_corpus
from attnlib.data.examples import Example
from attnlib.errors import BadValue, CorpusError, check_choice
from attnlib.metrics.registry import Metric, Partial
from attnlib.models import Encoder

PATTERNS = ("vertical", "diagonal", "vertical+diagonal", "block", "heterogeneous")
"""The classes of the paper (sec. 4.1), in its order."""

LABELS = Path(__file__).with_name("patterns.csv")
SIDE = 32
"""Pixels of a map's picture, in either direction."""
MAX_LENGTH = 128
TRAINED: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        task: {"epochs": epochs, "batch_size": 32, "learning_rate": 1e-4, "n_train": n_train}
        for task, epochs, n_train in (
            ("mrpc", 3, 3668),
            ("qnli", 2, 4441),
            ("qqp", 2, 8000),
            ("sst2", 2, 12000),
        )
    }
)
"""How the models behind the labelled maps were fine-tuned: another training makes other maps."""


@dataclass(frozen=True)
class LabelledMap:
    """One map and what it was called; model, task, corpus, example and head make it again.

    task         what the model was fine-tuned on, or "" for the pre-trained one
    fold         no two folds share a head or an input
    again        the label of a second pass, without sight of the first, or ""
    first_guide  the label by an earlier guide, which asked what stands out and not what there is
                 besides columns: then all squares are crossed by brighter columns, and no map is
                 block
    """

    id: str
    model: str
    task: str
    corpus: str
    example: str
    layer: int
    head: int
    fold: int
    label: str
    again: str
    first_guide: str

    @property
    def subject(self) -> tuple[str, str]:
        return self.model, self.task


@dataclass(frozen=True, eq=False)
class PatternExample:
    """A map to show: its pattern, its picture (side, side), and a name such as "MRPC 4-7"."""

    pattern: str
    picture: Float[np.ndarray, "side side"]
    name: str


COLUMNS = tuple(field.name for field in fields(LabelledMap))


def labelled_maps(path: Path = LABELS) -> list[LabelledMap]:
    """All maps that were labelled by eye."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    if tuple(table.columns) != COLUMNS:
        raise CorpusError(
            f"{path.name} has the columns {', '.join(table.columns)}; expected "
            f"{', '.join(COLUMNS)}."
        )
    if table.empty:
        raise CorpusError(f"{path.name} has no row; expected labelled maps.")
    for column in ("label", "again", "first_guide"):
        for row, name in zip(table["id"], table[column], strict=True):
            if name or column == "label":
                check_choice(f"{column} of map '{row}' in {path.name}", name, PATTERNS)
    try:
        table = table.astype({"layer": int, "head": int, "fold": int})
    except ValueError as error:
        raise CorpusError(
            f"{path.name} has a layer, head or fold that is no whole number: {error}."
        ) from error
    return [LabelledMap(**row) for row in table.to_dict("records")]


def pictures(
    weights: Float[Tensor, "batch head query key"], n_real: Int[Tensor, " batch"], side: int = SIDE
) -> Float[Tensor, "batch head side side"]:
    """Every map without its padding, at one size, its largest pixel 1.

    Neighbouring weights are averaged where a map is larger than its picture and repeated where it
    is smaller. The square root makes faint structure visible, to eyes and to a network.
    """
    drawn = [
        functional.adaptive_avg_pool2d(one[:, :n, :n], side)
        for one, n in zip(weights, n_real.tolist(), strict=True)
    ]
    shades = torch.stack(drawn).clamp_min(0).sqrt()
    return shades / shades.amax((-1, -2), keepdim=True).clamp_min(torch.finfo(shades.dtype).tiny)


# --- the maps behind the labels -------------------------------------------------------------------


def maps_of(
    rows: Sequence[LabelledMap],
    encoders: Mapping[tuple[str, str], Encoder],
    max_length: int = MAX_LENGTH,
) -> list[tuple[Float[Tensor, "query key"], Batch]]:
    """The map of every row, computed again, and its input as a batch of one.

    encoders  a model for each (model, task)
    """
    missing = sorted({row.subject for row in rows} - set(encoders))
    if missing:
        raise BadValue(f"no model for {missing[0]}; expected one for every (model, task).")
    wanted: dict[tuple[tuple[str, str], str], dict[str, list[LabelledMap]]] = {}
    for row in rows:
        inputs = wanted.setdefault((row.subject, row.corpus), defaultdict(list))
        inputs[row.example].append(row)
    found: dict[str, tuple[Tensor, Batch]] = {}
    for (subject, name), inputs in wanted.items():
        encoder = encoders[subject]
        corpus = load_corpus(name, tokenizer=encoder.tokenizer)
        examples = {example.id: example for example in corpus.examples}
        for example, own in inputs.items():
            if example not in examples:
                raise CorpusError(
                    f"map '{own[0].id}' is of example '{example}', which {name} does not have. "
                    "Check that the corpus is the one that was labelled."
                )
            maps, batch = all_maps(encoder, examples[example], max_length)
            found |= {row.id: (maps[row.layer - 1, row.head - 1], batch) for row in own}
    return [found[row.id] for row in rows]


def all_maps(
    encoder: Encoder, example: Example, max_length: int = MAX_LENGTH
) -> tuple[Float[Tensor, "layer head query key"], Batch]:
    """The maps of all heads for one input, and the input; a long one is truncated."""
    (encoded,) = tokenized([example], encoder)
    if len(encoded) > max_length:
        encoded = truncated(encoded, max_length)
    batch = Collator(encoder)([encoded])
    return tap.all_maps(encoder, batch), batch


# --- the rule ------------------------------------------------------------------------------------

STRIPE, LINE, BOTH, BLOCK = 0.5, 0.5, 0.25, 0.8
"""Thresholds of the rule, set before any map was labelled."""


def rule(weights: Float[Tensor, "batch head query key"], batch: Batch) -> Int[Tensor, "batch head"]:
    """The class of every map, as an index of PATTERNS, by three shares of its attention.

    v  to [CLS] and [SEP]; d  to words at most one piece away, itself included; b  to words of
    the query's own part, over that to words of both parts (pairs only).

    v, d >= 0.25 and v + d >= 0.5: vertical+diagonal, unless one alone reaches 0.5 while the other
    stays below 0.25; then v >= 0.5: vertical; d >= 0.5: diagonal; b >= 0.8: block; else
    heterogeneous.
    """
    v, d, b = rule_shares(weights, batch)
    found = torch.full_like(v, PATTERNS.index("heterogeneous"), dtype=torch.long)
    for name, holds in (
        ("block", b >= BLOCK),
        ("diagonal", d >= LINE),
        ("vertical", v >= STRIPE),
        ("vertical+diagonal", (v >= BOTH) & (d >= BOTH) & (v + d >= STRIPE)),
    ):  # the last that holds decides
        found[holds] = PATTERNS.index(name)
    return found


def rule_shares(
    weights: Float[Tensor, "batch head query key"], batch: Batch
) -> tuple[Tensor, Tensor, Tensor]:
    """The three shares of the rule (batch, head): stripe, line, block; block is 0 of one part."""
    dtype = torch.promote_types(weights.dtype, torch.float32)
    place = torch.arange(batch.length, device=batch.device)
    special = batch.cls | batch.sep
    words = batch.real & ~special
    near = ((place[:, None] - place).abs() <= 1) & words[:, None, :]
    same = (batch.segment[:, :, None] == batch.segment[:, None, :]) & words[:, None, :]
    asking = (words | special) & batch.real
    pair = (batch.segment.masked_fill(~batch.real, 0).amax(-1) > 0)[:, None]

    def mass(held: Bool[Tensor, "batch query key"]) -> Tensor:
        held = (held & asking[:, :, None]).to(dtype).flatten(1)
        return torch.einsum("bhx,bx->bh", weights.to(dtype).flatten(2), held)

    n = asking.sum(-1).clamp_min(1)[:, None]
    everywhere = words[:, None, :].expand_as(same)
    block = mass(same) / mass(everywhere).clamp_min(torch.finfo(dtype).tiny)
    stripes = special[:, None, :].expand_as(same)
    return mass(stripes) / n, mass(near) / n, torch.where(pair, block, 0.0)


# --- the network ----------------------------------------------------------------------------------

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


def trained(
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


def classified(net: PatternNet, shades: Float[Tensor, "map side side"]) -> Int[Tensor, " map"]:
    """The class of every picture, as an index of PATTERNS."""
    with torch.inference_mode():
        return torch.cat([net(part).argmax(-1) for part in shades.split(256)])


def classified_unseen(
    shades: Float[Tensor, "map side side"],
    labels: Int[Tensor, " map"],
    folds: Sequence[int],
    schooling: Schooling | None = None,
) -> Int[np.ndarray, " map"]:
    """The class of every picture by a network that saw no picture of its fold."""
    fold = torch.tensor(folds, device=labels.device)
    found = torch.empty_like(labels)
    for one in fold.unique().tolist():
        rest = fold != one
        found[~rest] = classified(trained(shades[rest], labels[rest], schooling), shades[~rest])
    return np.asarray(found.cpu().numpy())


def pattern_metric(net: PatternNet) -> Metric:
    """A metric of one's own for `measure`: which pattern a head's map is called, one of five."""

    def kernel(attention: Attention) -> Partial:
        drawn = pictures(attention.weights, attention.real.sum(-1))
        called = classified(net, drawn.flatten(0, 1)).unflatten(0, drawn.shape[:2])
        one_hot = functional.one_hot(called, len(PATTERNS)).to(drawn.dtype)
        return Partial(one_hot, torch.ones(len(one_hot), device=drawn.device))

    return Metric(
        "pattern",
        "Which of five patterns a network calls the map of a head.",
        "kovaleva2019:sec4.1",
        "share",
        (0.0, 1.0),
        kernel,
        axes=("head", "pattern"),
    )


# --- who calls maps the same ----------------------------------------------------------------------


def confusion(
    label: Int[np.ndarray, " map"], told: Int[np.ndarray, " map"]
) -> Float[np.ndarray, "label told"]:
    """How many maps of each label are called each pattern; both are indices of PATTERNS."""
    n = len(PATTERNS)
    return np.bincount(n * label + told, minlength=n * n).reshape(n, n).astype(float)


def class_f1(grids: Float[np.ndarray, "*draws label told"]) -> Float[np.ndarray, "*draws label"]:
    """F1 of each class of some confusions; NaN where it is neither there nor called."""
    right = np.diagonal(grids, axis1=-2, axis2=-1)
    either = grids.sum(-1) + grids.sum(-2)
    return np.divide(2 * right, either, out=np.full_like(either, np.nan), where=either > 0)
