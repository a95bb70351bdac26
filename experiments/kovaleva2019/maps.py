"""Sec. 4.1, Fig. 1 and 2: five patterns, the network that tells them apart, their shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.files import sha256_of
from attnlib.measuring.stream import Progress
from attnlib.models import Encoder, load_encoder, weights_digest
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.kovaleva2019.grids import drawn, measured
from experiments.shared.patternnet import (
    PatternNet,
    Schooling,
    pattern_metric,
    schooled,
    told_unseen,
)
from experiments.shared.patterns import (
    LABELS,
    PATTERNS,
    TRAINED,
    LabelledMap,
    labelled_maps,
    maps_of,
    pictures,
    rule,
)
from experiments.shared.taskplans import tuned_model

DRAWS = 1000
FIRST_THREE = PATTERNS[:3]
_KEPT: dict[tuple[str, ...], Any] = {}
"""Pictures and networks of this process: every task asks for the same ones."""

Recipes = Mapping[str, Mapping[str, Any]]


def labels_digest() -> str:
    """A digest of all labels: a part of every result that rests on them."""
    return sha256_of(LABELS)[:16]


def known_maps(
    models: Sequence[str], encoder: Encoder, recipes: Recipes, trains: Sequence[Corpus]
) -> list[LabelledMap]:
    """The labelled maps of some models before fine-tuning, and of the encoder after some tasks.

    A task counts only where it is trained as it was for the labels: other trainings, other maps.
    """
    sizes = dict(zip(recipes, map(len, trains), strict=True))
    tasks = [
        task
        for task, recipe in recipes.items()
        if task in TRAINED and TRAINED[task].items() <= {**recipe, "n_train": sizes[task]}.items()
    ]
    found = [
        row
        for row in labelled_maps()
        if (row.task == "" and row.model in models)
        or (row.task in tasks and row.model == encoder.name)
    ]
    if not found:
        known = ", ".join(dict.fromkeys(row.model for row in labelled_maps()))
        raise BadValue(f"no map of {', '.join(models)} was labelled; expected one of {known}.")
    return found


def drawn_heads(heads: Sequence[Any], seed: int) -> list[np.ndarray]:
    """All places, then those of heads drawn again: maps of one head are alike, and go together."""
    of_head = pd.Series(range(len(heads))).groupby([str(head) for head in heads], sort=False)
    places = [group.to_numpy() for _, group in of_head]
    generator = np.random.default_rng(seed)
    draws = generator.integers(0, len(places), (DRAWS, len(places)))
    return [np.arange(len(heads)), *(np.concatenate([places[i] for i in row]) for row in draws)]


@experiment(version=1)
def label_counts(*, labels: str, seed: int = 0) -> Found:
    """What the maps were called, and how far a second pass agrees with the first.

    labels  the digest of the labels, so that a changed label makes a new result
    table   pattern, n, share, low, high (percent)
    """
    rows = labelled_maps()
    names = np.array([row.label for row in rows])
    twice = [row for row in rows if row.again]
    first, again = (np.array([getattr(row, key) for row in twice]) for key in ("label", "again"))
    places = drawn_heads([(row.model, row.layer, row.head) for row in rows], seed)
    shares = {name: [float((names[at] == name).mean()) for at in places] for name in PATTERNS}
    pairs = drawn_heads([(row.model, row.layer, row.head) for row in twice], seed)
    grids = np.stack([confusion(_numbered(first[at]), _numbered(again[at])) for at in pairs])
    rarest = [min(shares[name][draw] for name in PATTERNS) for draw in range(len(places))]
    found = {
        "labels.rarest": drawn(rarest),
        "labels.vertical": drawn(100 * np.array(shares["vertical"])),
        "labels.kappa": drawn(kappa(grids)),
    }
    table = pd.DataFrame(
        [
            {"pattern": name, "n": int((names == name).sum())}
            | vars(drawn(100 * np.array(shares[name])))
            for name in PATTERNS
        ]
    )
    facts = {
        "maps": len(rows),
        "models": len({row.subject for row in rows}),
        "twice": len(twice),
        "alike": int((first == again).sum()),
        "first_guide_alike": float(np.mean([row.label == row.first_guide for row in rows])),
        "second_pass": [list(pair) for pair in zip(first.tolist(), again.tolist(), strict=True)],
    }
    return Found(table, found, facts)


# --- the network ----------------------------------------------------------------------------------


def labelled_pictures(
    trains: Sequence[Corpus],
    encoder: Encoder,
    recipes: Recipes,
    models: Sequence[str],
    progress: Progress | None = None,
) -> tuple[list[LabelledMap], Tensor, Tensor, np.ndarray]:
    """The labelled maps, their pictures, their labels, and what the rule calls them.

    trains  what the models of the tasks of `recipes` were trained on, in that order
    models  those whose maps before fine-tuning are taken
    """
    key = ("pictures", *_key(trains, encoder, recipes, models))
    if key not in _KEPT:
        rows = known_maps(models, encoder, recipes, trains)
        plain = {row.model for row in rows if not row.task}
        encoders = {(name, ""): load_encoder(name, device=str(encoder.device)) for name in plain}
        for (task, recipe), train in zip(recipes.items(), trains, strict=True):
            if any(row.task == task for row in rows):
                tuned = tuned_model(
                    train, encoder=encoder, task=task, recipe=recipe, progress=progress
                )
                encoders[encoder.name, task] = tuned.encoder
        maps = maps_of(rows, encoders)
        shades = [pictures(m[None, None], torch.tensor([len(m)]))[0, 0] for m, _ in maps]
        called = [int(rule(m[None, None], batch)[0, 0]) for m, batch in maps]
        labels = torch.tensor([PATTERNS.index(row.label) for row in rows])
        _KEPT[key] = rows, torch.stack(shades), labels, np.array(called)
    found: tuple[list[LabelledMap], Tensor, Tensor, np.ndarray] = _KEPT[key]
    return found


def _key(
    trains: Sequence[Corpus], encoder: Encoder, recipes: Recipes, models: Sequence[str]
) -> tuple[str, ...]:
    told = [sorted(recipe.items()) for recipe in recipes.values()]
    digests = (corpus.digest for corpus in trains)
    return (weights_digest(encoder), labels_digest(), repr(told), *models, *digests)


def network(
    trains: Sequence[Corpus],
    encoder: Encoder,
    recipes: Recipes,
    models: Sequence[str],
    schooling: Schooling,
) -> PatternNet:
    """A network that has seen all labelled maps, for maps that nobody labelled."""
    key = ("network", repr(schooling), *_key(trains, encoder, recipes, models))
    if key not in _KEPT:
        _, shades, labels, _ = labelled_pictures(trains, encoder, recipes, models)
        _KEPT[key] = schooled(shades, labels, schooling)
    net: PatternNet = _KEPT[key]
    return net


@experiment(version=1, trains=True)
def pattern_network(
    *trains: Corpus,
    encoder: Encoder,
    recipes: Recipes,
    models: Sequence[str],
    labels: str,
    epochs: int = 40,
    width: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """How well the network and the rule find the labels of maps they have not seen.

    The maps are told by networks that saw neither their head nor their input.
    table  id, model, task, layer, head, fold, label, network, rule, shuffled (a network that learnt
           from labels dealt out at random)
    """
    rows, shades, given, called = labelled_pictures(trains, encoder, recipes, models, progress)
    folds = [row.fold for row in rows]
    schooling = Schooling(epochs, width, seed=seed)
    by_net = told_unseen(shades, given, folds, schooling)
    generator = torch.Generator().manual_seed(seed)
    dealt = given[torch.randperm(len(given), generator=generator)]
    by_chance = told_unseen(shades, dealt, folds, schooling)
    names = np.array(PATTERNS)
    table = pd.DataFrame(
        {
            "id": [row.id for row in rows],
            "model": [row.model for row in rows],
            "task": [row.task for row in rows],
            "layer": [row.layer for row in rows],
            "head": [row.head for row in rows],
            "fold": folds,
            "label": names[given.numpy()],
            "network": names[by_net],
            "rule": names[called],
            "shuffled": names[by_chance],
        }
    )
    return Found(
        table, _scores(table, seed), {"inputs": len(rows), "epochs": epochs, "width": width}
    )


def _scores(table: pd.DataFrame, seed: int) -> dict[str, Finding]:
    places = _places(table, seed)
    label = _numbered(table["label"])
    found: dict[str, np.ndarray] = {}
    for name in ("network", "rule", "shuffled"):
        told = _numbered(table[name])
        grids = np.stack([confusion(label[at], told[at]) for at in places])
        f1, n = class_f1(grids), grids.sum(-1)
        found[f"{name}.macro"] = f1.mean(-1)
        found[f"{name}.weighted"] = (f1 * n).sum(-1) / n.sum(-1)
        found[f"{name}.accuracy"] = np.trace(grids, axis1=1, axis2=2) / n.sum(-1)
        if name == "network":
            found["network.kappa"] = kappa(grids)
            found |= {f"network.f1.{one}": f1[:, i] for i, one in enumerate(PATTERNS)}
    found["network.f1"] = found["network.macro"]
    found["network.f1_over_shuffled"] = found["network.f1"] / found["shuffled.macro"].clip(1e-9)
    return {name: drawn(values) for name, values in found.items()}


def _numbered(names: Any) -> np.ndarray:
    return np.array([PATTERNS.index(name) for name in names])


def confusion(label: np.ndarray, told: np.ndarray) -> np.ndarray:
    """(label, told): how many maps of each label are called each pattern."""
    n = len(PATTERNS)
    return np.bincount(n * label + told, minlength=n * n).reshape(n, n).astype(float)


def class_f1(grids: np.ndarray) -> np.ndarray:
    """(..., label): F1 of each class of some confusions; 0 where it is neither there nor called."""
    right = np.diagonal(grids, axis1=-2, axis2=-1)
    either = grids.sum(-1) + grids.sum(-2)
    return np.divide(2 * right, either, out=np.zeros_like(right), where=either > 0)


def kappa(grids: np.ndarray) -> np.ndarray:
    """Cohen's kappa of some confusions: agreement beyond that of two who guess by their shares."""
    n = grids.sum((-2, -1))
    seen = np.trace(grids, axis1=-2, axis2=-1) / n
    luck = (grids.sum(-1) * grids.sum(-2)).sum(-1) / n**2
    return np.asarray((seen - luck) / (1 - luck))


def _places(table: pd.DataFrame, seed: int) -> list[np.ndarray]:
    return drawn_heads(list(zip(table["model"], table["layer"], table["head"], strict=True)), seed)


# --- shares ---------------------------------------------------------------------------------------


@experiment(version=1, trains=True)
def pattern_counts(
    *corpora: Corpus,
    encoder: Encoder,
    task: str,
    recipes: Recipes,
    models: Sequence[str],
    labels: str,
    epochs: int = 40,
    width: int = 16,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """What the network calls every map of the fine-tuned model on the test inputs.

    corpora  what the models of `recipes` were trained on, in that order, then the test inputs
    table    input, layer, and a column per pattern: how many heads of the layer have it
    """
    *trains, test = corpora
    net = network(trains, encoder, recipes, models, Schooling(epochs, width, seed=seed))
    train = dict(zip(recipes, trains, strict=True))[task]
    recipe = recipes[task]
    model = tuned_model(train, encoder=encoder, task=task, recipe=recipe, progress=progress)
    found = measured(model.encoder, test, [pattern_metric(net)], recipe, progress)
    counts = found.rows("pattern")[0].sum(2).astype(np.int16)  # example layer pattern
    place, layer = (axis.ravel() for axis in np.indices(counts.shape[:2]))
    table = pd.DataFrame({"input": place, "layer": layer + 1})
    for number, name in enumerate(PATTERNS):
        table[name] = counts[..., number].ravel()
    pair = bool(test.examples and len(test.examples[0].parts) > 1)
    facts = {"inputs": len(counts), "passes": len(counts), "task": task, "pair": pair}
    return Found(table, facts=facts)


@experiment(version=1)
def pattern_overview(
    *tables: pd.DataFrame, tasks: Sequence[str], pairs: Sequence[bool], seed: int = 0
) -> Found:
    """Fig. 2: the share of each pattern in each task, corrected for what the network mistakes.

    tables  that of `pattern_network`, then those of `pattern_counts`, one per task
    table   task, layer (0 for all), pattern, called (percent, as the network says), share, low,
            high: corrected; the interval has the choice of inputs and that of labelled maps in it

    The correction asks which shares would be called so, given what the network calls labelled
    maps of each pattern that it has not seen: a maximum of the likelihood, for each task and layer.
    It takes for granted that the network mistakes maps of all tasks alike.
    """
    judged, *counted = tables
    generator = np.random.default_rng(seed)
    label, told = (
        judged[name].map({p: i for i, p in enumerate(PATTERNS)}).to_numpy(int)
        for name in ("label", "network")
    )
    mistakes = np.stack([_mistakes(label[at], told[at]) for at in _places(judged, seed)])
    rows, whole = [], {}
    for table, task in zip(counted, tasks, strict=True):
        counts = table[list(PATTERNS)].to_numpy(float)
        n_layers = int(table["layer"].max())
        counts = counts.reshape(-1, n_layers, len(PATTERNS))
        n = len(counts)
        places = [np.arange(n), *generator.integers(0, n, (DRAWS, n))]
        called = np.stack([counts[at].mean(0) for at in places])  # draw layer called
        called = called / called.sum(-1, keepdims=True)
        for layer in range(n_layers + 1):
            own = called.mean(1) if layer == 0 else called[:, layer - 1]
            share = 100 * _unmixed(own, mistakes)
            if layer == 0:
                whole[task] = share
            for number, name in enumerate(PATTERNS):
                row = {"task": task, "layer": layer, "pattern": name}
                row["called"] = 100 * own[0, number]
                one = drawn(share[:, number])
                rows.append({**row, "share": one.value, "low": one.low, "high": one.high})
    found = _pattern_claims(whole, dict(zip(tasks, pairs, strict=True)))
    return Found(pd.DataFrame(rows), found, {"tasks": list(tasks)})


def _mistakes(label: np.ndarray, told: np.ndarray) -> np.ndarray:
    """(label, called): what labelled maps of each pattern are called, each row sums to 1.

    A little is added everywhere, so that nothing is thought impossible for want of examples.
    """
    table = np.full((len(PATTERNS), len(PATTERNS)), 0.1)
    np.add.at(table, (label, told), 1.0)
    return table / table.sum(1, keepdims=True)


def _unmixed(called: np.ndarray, mistakes: np.ndarray, steps: int = 200) -> np.ndarray:
    """(draw, label): the shares under which the called ones (draw, called) are likeliest.

    mistakes  (draw, label, called)
    """
    shares = np.full(called.shape, 1 / len(PATTERNS))
    for _ in range(steps):  # expectation, maximisation
        expected = np.einsum("dl,dlc->dc", shares, mistakes)
        shares = shares * np.einsum("dlc,dc->dl", mistakes, called / expected)
        shares = shares / shares.sum(-1, keepdims=True)
    return shares


def _pattern_claims(
    whole: Mapping[str, np.ndarray], pairs: Mapping[str, bool]
) -> dict[str, Finding]:
    shares = np.stack(list(whole.values()))  # task draw pattern
    other = shares[..., PATTERNS.index("heterogeneous")]
    three = shares[..., : len(FIRST_THREE)].sum(-1)
    found = {
        "patterns.heterogeneous_least": drawn(other.min(0)),
        "patterns.heterogeneous_most": drawn(other.max(0)),
        "patterns.first_three_least": drawn(three.min(0)),
    }
    is_pair = np.array([pairs[task] for task in whole])
    block = shares[..., PATTERNS.index("block")]
    if is_pair.any() and not is_pair.all():
        found["patterns.block_lead"] = drawn(block[is_pair].mean(0) - block[~is_pair].mean(0))
    if is_pair.sum() > 1:
        of_pairs = shares[is_pair] / 100
        apart = 0.5 * np.abs(of_pairs[:, None] - of_pairs[None]).sum(-1)
        found["patterns.largest_distance"] = drawn(apart.max((0, 1)))
    return found
