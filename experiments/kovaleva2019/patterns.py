"""Sec. 4.1, Fig. 1 and 2: five patterns of maps, labelled by eye, found by a rule and a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention import tap
from attnlib.attention.encode import Batch, Collator, tokenized, truncated
from attnlib.attention.maps import Attention
from attnlib.data.corpora import Corpus, load_corpus
from attnlib.data.examples import Example
from attnlib.errors import BadValue
from attnlib.files import sha256_of
from attnlib.metrics.registry import Metric, Partial
from attnlib.models import Encoder, load_encoder, weights_digest
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.kovaleva2019.tuning import measure_tuned
from experiments.shared.intervals import drawn, drawn_counts, drawn_places, means, seed_of
from experiments.shared.sortings import kappa
from experiments.shared.training.taskplans import tuned_model

PATTERNS = ("vertical", "diagonal", "vertical+diagonal", "block", "heterogeneous")
"""The classes of the paper (sec. 4.1), in its order."""
LABELS = Path(__file__).with_name("patterns.csv")
SIDE, LARGE = 32, 64
"""Pixels of a map's picture, in either direction, for the network and to be shown."""
MAX_LENGTH = 128
TRAINED = {
    "mrpc": {"epochs": 3, "batch_size": 32, "learning_rate": 1e-4, "n_train": 3668},
    "qnli": {"epochs": 2, "batch_size": 32, "learning_rate": 1e-4, "n_train": 4441},
    "qqp": {"epochs": 2, "batch_size": 32, "learning_rate": 1e-4, "n_train": 8000},
    "sst2": {"epochs": 2, "batch_size": 32, "learning_rate": 1e-4, "n_train": 12000},
}
"""How the models behind the labelled maps were fine-tuned: another training makes other maps."""
Corpora = Sequence[Corpus]
Recipes = Mapping[str, Mapping[str, Any]]
Maps = Float[Tensor, "batch head query key"]
Shades = Float[Tensor, "map side side"]
Classes = Int[Tensor, " map"]
"""Of every map its class, as an index of PATTERNS."""
_NETWORKS: dict[str, PatternNet] = {}
"""Those trained in this process: every task asks for the same one."""


# --- maps labelled by eye -------------------------------------------------------------------------


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


def labelled_maps() -> list[LabelledMap]:
    """All maps that were labelled by eye."""
    table = pd.read_csv(LABELS, dtype=str, keep_default_na=False)
    table = table.astype({"layer": int, "head": int, "fold": int})
    return [LabelledMap(**row) for row in table.to_dict("records")]


def labels_digest() -> str:
    """A digest of all labels: a part of every result that rests on them."""
    return sha256_of(LABELS)[:16]


def pictures(
    weights: Maps, n_real: Int[Tensor, " batch"], side: int = SIDE
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


def all_maps(
    encoder: Encoder, example: Example, max_length: int = MAX_LENGTH
) -> tuple[Float[Tensor, "layer head query key"], Batch]:
    """The maps of all heads for one input, and the input; a long one is truncated."""
    (encoded,) = tokenized([example], encoder)
    if len(encoded) > max_length:
        encoded = truncated(encoded, max_length)
    batch = Collator(encoder)([encoded])
    return tap.all_maps(encoder, batch), batch


def map_of(row: LabelledMap, encoder: Encoder, corpus: Corpus) -> tuple[Maps, Batch]:
    """The map of a row alone, computed again, and its input as a batch of one."""
    example = next(one for one in corpus.examples if one.id == row.example)
    maps, batch = all_maps(encoder, example)
    return maps[None, row.layer - 1, row.head - 1, None], batch


@dataclass(frozen=True, eq=False)
class PatternExample:
    """A map to show: its pattern, its picture (side, side), and a name such as "MRPC 4-7"."""

    pattern: str
    picture: Float[np.ndarray, "side side"]
    name: str


def example_maps(
    encoder: Encoder, corpora: Mapping[str, Corpus], each: int = 5, *, seed: int | None = None
) -> list[PatternExample]:
    """Maps of the pre-trained model that were labelled, some of each pattern.

    Of a model without labelled maps, those of the model that has most are shown: what the network
    learns from.

    corpora  those at hand, by name; maps of other corpora are left out
    seed     decides which are drawn; without it those with two equal labels come first
    """
    texts = {(name, one.id) for name, corpus in corpora.items() for one in corpus.examples}
    at_hand = [
        row
        for row in labelled_maps()
        if row.task == "" and (row.corpus, row.example) in texts and row.again in ("", row.label)
    ]
    labelled = Counter(row.model for row in at_hand)
    if labelled and encoder.name not in labelled:
        encoder = load_encoder(labelled.most_common(1)[0][0], device=str(encoder.device))
    found = []
    for pattern in PATTERNS:
        rows = [row for row in at_hand if row.model == encoder.name and row.label == pattern]
        rows.sort(key=lambda row: (row.again != pattern, row.id))
        if seed is not None:
            Random(seed).shuffle(rows)
        for row in rows[:each]:
            weights, batch = map_of(row, encoder, corpora[row.corpus])
            shades = pictures(weights, batch.real.sum(-1), LARGE)[0, 0]
            task = row.corpus.partition(":")[0]
            found.append(PatternExample(pattern, shades.numpy(), f"{task} {row.layer}-{row.head}"))
    return found


@experiment(version=1)
def example_pictures(
    *corpora: Corpus, encoder: Encoder, names: Sequence[str], labels: str
) -> Found:
    """The pictures of `example_maps`, a row per pixel; `labels` is the digest of all labels."""
    found = example_maps(encoder, dict(zip(names, corpora, strict=True)))
    tables = []
    for number, one in enumerate(found):
        row, column = np.indices(one.picture.shape).reshape(2, -1)
        pixels = pd.DataFrame({"row": row, "column": column, "shade": one.picture.ravel()})
        tables.append(pixels.assign(example=number, pattern=one.pattern, name=one.name))
    return Found(pd.concat(tables, ignore_index=True), facts={"inputs": len(found)})


def drawn_heads(maps: pd.DataFrame, seed: int) -> list[np.ndarray]:
    """All places, then those of heads drawn again: maps of one head are similar and go together."""
    of_head = maps.groupby(["model", "layer", "head"], sort=False)
    places = list(of_head.indices.values())
    _, *draws = drawn_places(len(places), np.random.default_rng(seed))
    return [np.arange(len(maps)), *(np.concatenate([places[i] for i in row]) for row in draws)]


def _numbered(names: Any) -> np.ndarray:
    return np.array([PATTERNS.index(name) for name in names])


def confusion(label: np.ndarray, told: np.ndarray) -> Float[np.ndarray, "label told"]:
    """How many maps of each label are called each pattern; both are indices of PATTERNS."""
    n = len(PATTERNS)
    return np.bincount(n * label + told, minlength=n * n).reshape(n, n).astype(float)


def class_f1(grids: Float[np.ndarray, "*draws label told"]) -> Float[np.ndarray, "*draws label"]:
    """F1 of each class of some confusions; NaN where it is neither there nor called."""
    right = np.diagonal(grids, axis1=-2, axis2=-1)
    either = grids.sum(-1) + grids.sum(-2)
    return np.divide(2 * right, either, out=np.full_like(either, np.nan), where=either > 0)


def _confusions(table: pd.DataFrame, label: str, told: str, seed: int) -> np.ndarray:
    """(draw, label, told): the confusion of two columns, then the same with heads drawn again."""
    one, other = _numbered(table[label]), _numbered(table[told])
    return np.stack([confusion(one[at], other[at]) for at in drawn_heads(table, seed)])


@experiment(version=1)
def label_counts(*, labels: str, seed: int = 0) -> Found:
    """What the maps were called, and how far a second pass agrees with the first.

    labels  the digest of the labels, so that a changed label makes a new result
    table   pattern, n, share, low, high (percent)
    """
    table = pd.DataFrame(labelled_maps())
    twice = table[table["again"] != ""]
    names, places = table["label"].to_numpy(), drawn_heads(table, seed)
    shares = {name: np.array([(names[at] == name).mean() for at in places]) for name in PATTERNS}
    found = {
        "labels.rarest": drawn(np.min(list(shares.values()), axis=0)),
        "labels.vertical": drawn(100 * shares["vertical"]),
        "labels.kappa": drawn(kappa(_confusions(twice, "label", "again", seed))),
    }
    counts = [
        {"pattern": name, "n": int((names == name).sum())} | vars(drawn(100 * shares[name]))
        for name in PATTERNS
    ]
    facts = {
        "maps": len(table),
        "models": len(table[["model", "task"]].drop_duplicates()),
        "twice": len(twice),
        "alike": int((twice["label"] == twice["again"]).sum()),
        "first_guide_alike": float((table["label"] == table["first_guide"]).mean()),
        "second_pass": twice[["label", "again"]].to_numpy().tolist(),
    }
    return Found(pd.DataFrame(counts), found, facts)


# --- the rule ------------------------------------------------------------------------------------

STRIPE, LINE, BOTH, BLOCK = 0.5, 0.5, 0.25, 0.8
"""Thresholds of the rule, set before any map was labelled."""


def rule(weights: Maps, batch: Batch) -> Int[Tensor, "batch head"]:
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


def rule_shares(weights: Maps, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """The three shares of the rule (batch, head): stripe, line, block; block is 0 of one part."""
    dtype = torch.promote_types(weights.dtype, torch.float32)
    place = torch.arange(batch.length, device=batch.device)
    special = batch.cls | batch.sep
    words = batch.real & ~special
    near = ((place[:, None] - place).abs() <= 1) & words[:, None, :]
    same = (batch.segment[:, :, None] == batch.segment[:, None, :]) & words[:, None, :]
    pair = (batch.segment.masked_fill(~batch.real, 0).amax(-1) > 0)[:, None]

    def mass(held: Bool[Tensor, "batch #query key"]) -> Tensor:
        held = (held & batch.real[:, :, None]).to(dtype).flatten(1)
        return torch.einsum("bhx,bx->bh", weights.to(dtype).flatten(2), held)

    n = batch.real.sum(-1).clamp_min(1)[:, None]
    block = mass(same) / mass(words[:, None, :]).clamp_min(torch.finfo(dtype).tiny)
    return mass(special[:, None, :]) / n, mass(near) / n, torch.where(pair, block, 0.0)


# --- the network ----------------------------------------------------------------------------------

GROWTH = (1, 1, 2, 2, 4, 4, 6, 6)
"""Channels of the 8 convolutions, in units of the first; every second one halves the picture."""
BATCH, LEARNING_RATE, WEIGHT_DECAY = 32, 2e-3, 0.01
"""How the network is trained; chosen before its scores were seen."""


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
            layers.append(nn.Conv2d(before, channels, 3, padding=1, bias=False))
            layers += [nn.BatchNorm2d(channels), nn.ReLU()]
            if place % 2:
                layers.append(nn.MaxPool2d(2))
            before = channels
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(before, len(PATTERNS))

    def forward(self, shades: Shades) -> Float[Tensor, "map pattern"]:
        logits: Tensor = self.out(self.body(shades.unsqueeze(1)).mean((-1, -2)))
        return logits


@dataclass(frozen=True)
class Schooling:
    """How long the network is trained, and how wide it is."""

    epochs: int = 40
    width: int = 16
    seed: int = 0


def trained(shades: Shades, labels: Classes, how: Schooling) -> PatternNet:
    """A network trained on labelled pictures; rare classes weigh as much as common ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(how.seed)
        net = PatternNet(how.width).to(shades.device)
    counts = torch.bincount(labels, minlength=len(PATTERNS)).clamp_min(1)
    weight = (len(labels) / (len(PATTERNS) * counts)).to(shades.dtype)
    n_steps = how.epochs * -(-len(labels) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, n_steps)
    generator = torch.Generator().manual_seed(how.seed)
    net.train()
    for _ in range(how.epochs):
        order = torch.randperm(len(labels), generator=generator).to(labels.device)
        for part in order.split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(net(shades[part]), labels[part], weight).backward()
            optimizer.step()
            schedule.step()
    return net.eval().requires_grad_(False)


def classified(net: PatternNet, shades: Shades) -> Classes:
    """The class of every picture."""
    with torch.inference_mode():
        return torch.cat([net(part).argmax(-1) for part in shades.split(256)])


def classified_unseen(
    shades: Shades,
    labels: Classes,
    folds: Sequence[int],
    how: Schooling,
    widths: Mapping[int, int] | None = None,
) -> Int[np.ndarray, " map"]:
    """The class of every picture by a network that saw no picture of its fold.

    widths  of the network for each fold; by default that of `how`
    """
    fold = torch.tensor(folds, device=labels.device)
    found = torch.empty_like(labels)
    for one in fold.unique().tolist():
        rest = fold != one
        own = replace(how, width=widths[one]) if widths else how
        found[~rest] = classified(trained(shades[rest], labels[rest], own), shades[~rest])
    return np.asarray(found.cpu().numpy())


def chosen_widths(
    shades: Shades, labels: Classes, folds: Sequence[int], widths: Sequence[int], how: Schooling
) -> dict[int, int]:
    """For each fold the best width by its training folds alone, the smaller of equals.

    Each width is taught on all training folds but one (that which comes next) and scored on that
    one, by the mean F1 over classes. The maps of the fold itself are not looked at.
    """
    fold = torch.tensor(folds, device=labels.device)
    names, found = fold.unique().tolist(), {}
    for place, one in enumerate(names):
        inner = fold == names[(place + 1) % len(names)]
        rest = ~inner & (fold != one)
        scores = {}
        for width in sorted(widths) if len(widths) > 1 else ():
            net = trained(shades[rest], labels[rest], replace(how, width=width))
            told = classified(net, shades[inner]).cpu().numpy()
            scores[width] = np.nanmean(class_f1(confusion(labels[inner].cpu().numpy(), told)))
        found[one] = max(scores, key=lambda width: scores[width]) if scores else widths[0]
    return found


def pattern_metric(net: PatternNet, key: str = "pattern") -> Metric:
    """A metric of one's own for `measure`: which pattern a head's map is called, one of five."""

    def kernel(attention: Attention) -> Partial:
        drawn = pictures(attention.weights, attention.real.sum(-1))
        called = classified(net, drawn.flatten(0, 1)).unflatten(0, drawn.shape[:2])
        one_hot = functional.one_hot(called, len(PATTERNS)).to(drawn.dtype)
        return Partial(one_hot, torch.ones(len(one_hot), device=drawn.device))

    what = "Which of five patterns a network calls the map of a head."
    source, axes = "kovaleva2019:sec4.1", ("head", "pattern")
    return Metric(key, what, source, "share", (0.0, 1.0), kernel, axes=axes)


def known_maps(
    models: Sequence[str], encoder: Encoder, recipes: Recipes, trains: Corpora
) -> list[LabelledMap]:
    """The labelled maps of some models before fine-tuning, and of the encoder after some tasks.

    A task counts only where it is trained as it was for the labels: other trainings, other maps.
    """
    whose = {(model, "") for model in models}
    for (task, recipe), train in zip(recipes.items(), trains, strict=True):
        if task in TRAINED and TRAINED[task].items() <= {**recipe, "n_train": len(train)}.items():
            whose.add((encoder.name, task))
    found = [row for row in labelled_maps() if (row.model, row.task) in whose]
    if not found:
        known = ", ".join(dict.fromkeys(row.model for row in labelled_maps()))
        raise BadValue(f"no map of {', '.join(models)} was labelled; expected one of {known}.")
    return found


def labelled_pictures(
    trains: Corpora, encoder: Encoder, recipes: Recipes, models: Sequence[str]
) -> tuple[list[LabelledMap], Tensor, Tensor, pd.DataFrame]:
    """The labelled maps, their pictures, their labels, and numbers of each.

    The numbers are `rule`, what the rule calls the map; `special`, its attention to [CLS] and
    [SEP]; and `neighbours`, that to the previous and the next token less that to the token itself.

    trains  what the models of the tasks of `recipes` were trained on, in that order
    models  those whose maps before fine-tuning are taken
    """
    rows = known_maps(models, encoder, recipes, trains)
    plain = {row.model for row in rows if not row.task}
    encoders = {(name, ""): load_encoder(name, device=str(encoder.device)) for name in plain}
    for (task, recipe), train in zip(recipes.items(), trains, strict=True):
        if any(row.task == task for row in rows):
            plan: Any = {"task": task, "recipe": recipe}
            encoders[encoder.name, task] = tuned_model(train, encoder=encoder, **plan).encoder
    read = cache(load_corpus)  # many maps are of one corpus
    shades, numbers = [], []
    for row in rows:
        own = encoders[row.model, row.task]
        weights, batch = map_of(row, own, read(row.corpus, tokenizer=own.tokenizer))
        shades.append(pictures(weights, batch.real.sum(-1))[0, 0])
        special, _, _ = rule_shares(weights, batch)
        before, itself, after = (weights[0, 0].diagonal(at).sum() for at in (-1, 0, 1))
        near = (before + after - itself) / len(weights[0, 0])
        numbers.append((PATTERNS[int(rule(weights, batch))], float(special), float(near)))
    labels = torch.from_numpy(_numbered(row.label for row in rows))
    table = pd.DataFrame(numbers, columns=["rule", "special", "neighbours"])
    return rows, torch.stack(shades), labels, table


def network(
    trains: Corpora, encoder: Encoder, recipes: Recipes, models: Sequence[str], how: Schooling
) -> PatternNet:
    """A network that has seen all labelled maps, for maps that nobody labelled."""
    digests = [weights_digest(encoder), labels_digest(), *(one.digest for one in trains)]
    key = repr((digests, [sorted(one.items()) for one in recipes.values()], models, how))
    if key not in _NETWORKS:
        _, shades, labels, _ = labelled_pictures(trains, encoder, recipes, models)
        _NETWORKS[key] = trained(shades, labels, how)
    return _NETWORKS[key]


@experiment(version=2, trains=True)
def pattern_network(
    *trains: Corpus,
    encoder: Encoder,
    recipes: Recipes,
    models: Sequence[str],
    labels: str,
    epochs: int = 40,
    widths: Sequence[int] = (16,),
    seeds: int = 3,
    seed: int = 0,
) -> Found:
    """How well the network and the rule find the labels of maps they have not seen.

    Every map is classified by networks that saw neither its head nor its input, one per seed; their
    width was chosen inside their training folds (see `chosen_widths`).
    widths  those to choose from;  seeds  how many networks
    table   id, model, task, layer, head, fold, label, rule, special, neighbours (see
            `labelled_pictures`), and of each network from 0 on `network <n>`, and `shuffled <n>` (a
            network that learnt from shuffled labels)
    facts   width: the one that most folds chose
    """
    rows, shades, given, numbers = labelled_pictures(trains, encoder, recipes, models)
    folds, how = [row.fold for row in rows], Schooling(epochs, widths[0], seed)
    chosen = chosen_widths(shades, given, folds, widths, how)
    told = {}
    for number in range(seeds):
        how = Schooling(epochs, widths[0], seed + number)
        generator = torch.Generator().manual_seed(seed + number)
        dealt = given[torch.randperm(len(given), generator=generator)]
        for name, taught in (("network", given), ("shuffled", dealt)):
            told[f"{name} {number}"] = classified_unseen(shades, taught, folds, how, chosen)
    names = {name: np.array(PATTERNS)[own] for name, own in told.items()}
    whose = pd.DataFrame(rows)[["id", "model", "task", "layer", "head", "fold"]]
    whose["label"] = np.array(PATTERNS)[given.cpu().numpy()]
    width = Counter(sorted(chosen.values())).most_common(1)[0][0]
    facts = {"inputs": len(rows), "epochs": epochs, "width": width, "widths": list(chosen.values())}
    table = pd.concat([whose, numbers], axis=1).assign(**names)
    return Found(table, _scores(table, seed), facts | {"seeds": seeds})


def _scores(table: pd.DataFrame, seed: int) -> dict[str, Finding]:
    """F1 of each who sorted the maps and what the labelled maps attend to.

    Heads are drawn again and, of networks, those of the seeds.
    """
    found: dict[str, np.ndarray] = {}
    for name in ("network", "shuffled", "rule"):
        grids, picks = _grids(table, name, seed)
        every = np.nan_to_num(class_f1(grids))  # network draw class
        f1 = np.take_along_axis(every, picks.T[..., None], 0).mean(0)
        n = grids[0].sum(-1)
        found |= {f"{name}.f1": f1.mean(-1), f"{name}.weighted": (f1 * n).sum(-1) / n.sum(-1)}
        if name == "network":
            found |= {f"network.f1.{one}": f1[:, i] for i, one in enumerate(PATTERNS)}
    found["network.f1_minus_shuffled"] = found["network.f1"] - found["shuffled.f1"]
    for name, pattern, column in (
        ("vertical_to_special", "vertical", "special"),
        ("diagonal_neighbours_minus_self", "diagonal", "neighbours"),
    ):
        values = table[column].where(table["label"] == pattern).to_numpy()
        found[f"labels.{name}"] = np.array([_mean(values[at]) for at in drawn_heads(table, seed)])
    return {name: drawn(values) for name, values in found.items()}


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _grids(table: pd.DataFrame, name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Confusions of all networks of a name (network, draw, label, called), and those drawn."""
    columns = [one for one in table if str(one).split(" ")[0] == name]
    grids = np.stack([_confusions(table, "label", str(one), seed) for one in columns])
    return grids, drawn_places(len(columns), np.random.default_rng(seed + 1))


# --- shares ---------------------------------------------------------------------------------------


@experiment(version=2, trains=True)
def pattern_counts(
    *corpora: Corpus,
    encoder: Encoder,
    task: str,
    recipes: Recipes,
    models: Sequence[str],
    labels: str,
    epochs: int = 40,
    width: int = 16,
    seeds: int = 3,
    seed: int = 0,
) -> Found:
    """What each network calls every map of the fine-tuned model on the test inputs.

    corpora  what the models of `recipes` were trained on, in that order, then the test inputs
    table    network (from 0), input, layer, and a column per pattern: how many heads of the layer
             have it
    """
    *trains, test = corpora
    metrics = []
    for number in range(seeds):
        how = Schooling(epochs, width, seed + number)
        net = network(trains, encoder, recipes, models, how)
        metrics.append(pattern_metric(net, f"pattern_{number}"))
    train = dict(zip(recipes, trains, strict=True))[task]
    plan: Any = {"task": task, "recipe": recipes[task]}
    found = measure_tuned(train, test, metrics, encoder=encoder, **plan)
    counts = np.stack([found.rows(one.key)[0].sum(2) for one in metrics])  # network example layer
    which, place, layer = np.indices(counts.shape[:3]).reshape(3, -1)
    told = counts.reshape(-1, len(PATTERNS)).T.astype(np.int16)
    columns = dict(zip(PATTERNS, told, strict=True))
    table = pd.DataFrame({"network": which, "input": place, "layer": layer + 1, **columns})
    pair = bool(test.examples and len(test.examples[0].parts) > 1)
    n = found.n_examples
    return Found(table, facts={"inputs": n, "passes": n, "task": task, "pair": pair})


def drawn_shares(
    judged: pd.DataFrame, counted: pd.DataFrame, *, task: str, seed: int
) -> tuple[Float[np.ndarray, "draw layer pattern"], Float[np.ndarray, "layer pattern"]]:
    """The share of each pattern in one task, in percent: corrected draws, and as called.

    judged   the table of `pattern_network`;  counted  that of `pattern_counts`
    returns  place 0 of `layer` is all layers together

    The correction asks which shares would be called so, given what the networks call labelled
    maps of each pattern that they have not seen: a maximum of the likelihood, for each layer. It
    assumes that a network makes the same errors in all tasks. A little is added to every count of
    errors, so that none counts as impossible because no example shows it. The draws hold the choice
    of inputs, of labelled heads, and of the networks' seeds.
    """
    grids, picks = _grids(judged, "network", seed)
    errors = np.take_along_axis(grids, picks.T[..., None, None], 0).sum(0) + 0.1
    errors = errors / errors.sum(-1, keepdims=True)
    n_layers, n_nets = int(counted["layer"].max()), int(counted["network"].max()) + 1
    counts = counted[list(PATTERNS)].to_numpy(float).reshape(n_nets, -1, n_layers, len(PATTERNS))
    again = drawn_counts(counts.shape[1], seed_of(task, seed))
    every = np.stack([means(again, one) for one in counts])
    called = np.take_along_axis(every, picks.T[..., None, None], 0).mean(0)  # draw layer pattern
    called = called / called.sum(-1, keepdims=True)
    called = np.concatenate([called.mean(1, keepdims=True), called], axis=1)
    share = [true_shares(own, errors) for own in called.swapaxes(0, 1)]
    return 100 * np.stack(share, axis=1), 100 * called[0]


def true_shares(called: np.ndarray, errors: np.ndarray, steps: int = 200) -> np.ndarray:
    """(draw, label): the shares under which those called (draw, called) are most likely.

    errors  (draw, label, called)
    """
    shares = np.full(called.shape, 1 / len(PATTERNS))
    for _ in range(steps):  # expectation, maximisation
        expected = np.einsum("dl,dlc->dc", shares, errors)
        shares = shares * np.einsum("dlc,dc->dl", errors, called / expected)
        shares = shares / shares.sum(-1, keepdims=True)
    return shares
