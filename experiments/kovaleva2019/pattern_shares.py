"""Sec. 4.1, Fig. 1 and 2: maps of five patterns, a network that finds them, and their shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue
from attnlib.files import sha256_of
from attnlib.measuring.stream import Progress, measure
from attnlib.models import Encoder, load_encoder, weights_digest
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.kovaleva2019.patterns import (
    LABELS,
    PATTERNS,
    TRAINED,
    LabelledMap,
    PatternExample,
    PatternNet,
    Schooling,
    all_maps,
    class_f1,
    classified_unseen,
    confusion,
    labelled_maps,
    maps_of,
    pattern_metric,
    pictures,
    rule,
    trained,
)
from experiments.shared.intervals import drawn
from experiments.shared.sortings import kappa
from experiments.shared.training.taskplans import tuned_model

DRAWS = 1000
LARGE = 64
"""Pixels of a picture that is shown."""
MAP_COLUMNS = ("id", "model", "task", "layer", "head", "fold")
_KEPT: dict[tuple[str, ...], Any] = {}
"""Pictures and networks of this process: every task asks for the same ones."""

Recipes = Mapping[str, Mapping[str, Any]]


def labels_digest() -> str:
    """A digest of all labels: a part of every result that rests on them."""
    return sha256_of(LABELS)[:16]


# --- examples -------------------------------------------------------------------------------------


@experiment(version=1)
def example_pictures(
    *corpora: Corpus, encoder: Encoder, names: Sequence[str], labels: str
) -> Found:
    """The pictures of `example_maps`, a row per pixel; `labels` is the digest of all labels."""
    found = example_maps(encoder, dict(zip(names, corpora, strict=True)))
    tables = []
    for number, one in enumerate(found):
        row, column = np.indices(one.picture.shape).reshape(2, -1)
        pixels = {"row": row, "column": column, "shade": one.picture.ravel()}
        whose = {"example": number, "pattern": one.pattern, "name": one.name}
        tables.append(pd.DataFrame(pixels).assign(**whose))
    return Found(pd.concat(tables, ignore_index=True), facts={"inputs": len(found)})


def pictures_of(table: pd.DataFrame) -> list[PatternExample]:
    """The pictures behind the rows of `example_pictures`."""
    found = []
    for _, rows in table.groupby("example", sort=True):
        picture = rows.pivot(index="row", columns="column", values="shade").to_numpy()
        pattern, name = rows.iloc[0][["pattern", "name"]]
        found.append(PatternExample(str(pattern), picture, str(name)))
    return found


def example_maps(
    encoder: Encoder, corpora: Mapping[str, Corpus], each: int = 5, *, seed: int | None = None
) -> list[PatternExample]:
    """Maps of the pre-trained model that were labelled, some of each pattern.

    Of a model without labelled maps, those of the model that has most are shown: what the network
    learns from.

    corpora  those at hand, by name; maps of other corpora are left out
    seed     decides which are drawn; without it those with two equal labels come first
    """
    texts = {name: {one.id: one for one in corpus.examples} for name, corpus in corpora.items()}
    at_hand = [
        row
        for row in labelled_maps()
        if row.task == "" and row.example in texts.get(row.corpus, ())
        if row.again in ("", row.label)
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
            maps, batch = all_maps(encoder, texts[row.corpus][row.example])
            own = maps[None, row.layer - 1, row.head - 1, None]
            shades = pictures(own, torch.tensor([batch.length]), LARGE)[0, 0]
            task = row.corpus.partition(":")[0]
            found.append(PatternExample(pattern, shades.numpy(), f"{task} {row.layer}-{row.head}"))
    return found


# --- labels ---------------------------------------------------------------------------------------


def drawn_heads(heads: Sequence[Any], seed: int) -> list[np.ndarray]:
    """All places, then those of heads drawn again: maps of one head are similar and go together."""
    of_head = pd.Series(range(len(heads))).groupby([str(head) for head in heads], sort=False)
    places = [group.to_numpy() for _, group in of_head]
    generator = np.random.default_rng(seed)
    draws = generator.integers(0, len(places), (DRAWS, len(places)))
    return [np.arange(len(heads)), *(np.concatenate([places[i] for i in row]) for row in draws)]


def _places(table: pd.DataFrame, seed: int) -> list[np.ndarray]:
    return drawn_heads(list(zip(table["model"], table["layer"], table["head"], strict=True)), seed)


def _numbered(names: Any) -> np.ndarray:
    return np.array([PATTERNS.index(name) for name in names])


@experiment(version=1)
def label_counts(*, labels: str, seed: int = 0) -> Found:
    """What the maps were called, and how far a second pass agrees with the first.

    labels  the digest of the labels, so that a changed label makes a new result
    table   pattern, n, share, low, high (percent)
    """
    table = pd.DataFrame([vars(row) for row in labelled_maps()])
    twice = table[table["again"] != ""]
    first, again = _numbered(twice["label"]), _numbered(twice["again"])
    names, places = table["label"].to_numpy(), _places(table, seed)
    shares = {name: np.array([(names[at] == name).mean() for at in places]) for name in PATTERNS}
    grids = np.stack([confusion(first[at], again[at]) for at in _places(twice, seed)])
    found = {
        "labels.rarest": drawn(np.min(list(shares.values()), axis=0)),
        "labels.vertical": drawn(100 * shares["vertical"]),
        "labels.kappa": drawn(kappa(grids)),
    }
    counts = [
        {"pattern": name, "n": int((names == name).sum())} | vars(drawn(100 * shares[name]))
        for name in PATTERNS
    ]
    facts = {
        "maps": len(table),
        "models": len(table[["model", "task"]].drop_duplicates()),
        "twice": len(twice),
        "alike": int((first == again).sum()),
        "first_guide_alike": float((table["label"] == table["first_guide"]).mean()),
        "second_pass": twice[["label", "again"]].to_numpy().tolist(),
    }
    return Found(pd.DataFrame(counts), found, facts)


# --- the network ----------------------------------------------------------------------------------


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
        _KEPT[key] = trained(shades, labels, schooling)
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

    Every map is classified by a network that saw neither its head nor its input.
    table  id, model, task, layer, head, fold, label, network, rule, shuffled (a network that learnt
           from shuffled labels)
    """
    rows, shades, given, called = labelled_pictures(trains, encoder, recipes, models, progress)
    folds = [row.fold for row in rows]
    schooling = Schooling(epochs, width, seed=seed)
    by_net = classified_unseen(shades, given, folds, schooling)
    generator = torch.Generator().manual_seed(seed)
    dealt = given[torch.randperm(len(given), generator=generator)]
    by_chance = classified_unseen(shades, dealt, folds, schooling)
    names = np.array(PATTERNS)
    whose = [{name: getattr(row, name) for name in MAP_COLUMNS} for row in rows]
    table = pd.DataFrame(whose).assign(
        label=names[given.numpy()],
        network=names[by_net],
        rule=names[called],
        shuffled=names[by_chance],
    )
    facts = {"inputs": len(rows), "epochs": epochs, "width": width}
    return Found(table, _scores(table, seed), facts)


def _scores(table: pd.DataFrame, seed: int) -> dict[str, Finding]:
    """F1, accuracy and kappa of each who sorted the maps, with heads drawn again."""
    places, label = _places(table, seed), _numbered(table["label"])
    found: dict[str, np.ndarray] = {}
    for name in ("network", "rule", "shuffled"):
        told = _numbered(table[name])
        grids = np.stack([confusion(label[at], told[at]) for at in places])
        f1, n = np.nan_to_num(class_f1(grids)), grids.sum(-1)
        found[f"{name}.macro"] = f1.mean(-1)
        found[f"{name}.weighted"] = (f1 * n).sum(-1) / n.sum(-1)
        found[f"{name}.accuracy"] = np.trace(grids, axis1=1, axis2=2) / n.sum(-1)
        if name == "network":
            found["network.kappa"] = kappa(grids)
            found |= {f"network.f1.{one}": f1[:, i] for i, one in enumerate(PATTERNS)}
    found["network.f1"] = found["network.macro"]
    found["network.f1_over_shuffled"] = found["network.f1"] / found["shuffled.macro"].clip(1e-9)
    return {name: drawn(values) for name, values in found.items()}


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
    options: Any = {"max_length": recipe["max_length"], "on_long": "truncate"}
    found = measure(model.encoder, test, [pattern_metric(net)], progress=progress, **options)
    counts = found.rows("pattern")[0].sum(2).astype(np.int16)  # example layer pattern
    place, layer = np.indices(counts.shape[:2]).reshape(2, -1)
    columns = dict(zip(PATTERNS, counts.reshape(-1, len(PATTERNS)).T, strict=True))
    table = pd.DataFrame({"input": place, "layer": layer + 1, **columns})
    pair = bool(test.examples and len(test.examples[0].parts) > 1)
    facts = {"inputs": len(counts), "passes": len(counts), "task": task, "pair": pair}
    return Found(table, facts=facts)


@experiment(version=1)
def pattern_overview(
    *tables: pd.DataFrame, tasks: Sequence[str], pairs: Sequence[bool], seed: int = 0
) -> Found:
    """Fig. 2: the share of each pattern in each task, corrected for the network's errors.

    tables  that of `pattern_network`, then those of `pattern_counts`, one per task
    table   task, layer (0 for all), pattern, called (percent, as the network says), share, low,
            high: corrected; the interval has the choice of inputs and that of labelled maps in it

    The correction asks which shares would be called so, given what the network calls labelled
    maps of each pattern that it has not seen: a maximum of the likelihood, for each task and layer.
    It assumes that the network makes the same errors in all tasks.
    """
    judged, *counted = tables
    generator = np.random.default_rng(seed)
    label, told = _numbered(judged["label"]), _numbered(judged["network"])
    errors = np.stack([_error_rates(label[at], told[at]) for at in _places(judged, seed)])
    rows, whole = [], {}
    for table, task in zip(counted, tasks, strict=True):
        n_layers = int(table["layer"].max())
        counts = table[list(PATTERNS)].to_numpy(float).reshape(-1, n_layers, len(PATTERNS))
        n = len(counts)
        places = [np.arange(n), *generator.integers(0, n, (DRAWS, n))]
        called = np.stack([counts[at].mean(0) for at in places])  # draw layer called
        called = called / called.sum(-1, keepdims=True)
        for layer in range(n_layers + 1):
            own = called.mean(1) if layer == 0 else called[:, layer - 1]
            share = 100 * _true_shares(own, errors)
            if layer == 0:
                whole[task] = share
            for name, percent, draws in zip(PATTERNS, 100 * own[0], share.T, strict=True):
                one = drawn(draws)
                row = {"task": task, "layer": layer, "pattern": name, "called": percent}
                rows.append({**row, "share": one.value, "low": one.low, "high": one.high})
    found = _pattern_claims(whole, np.array(pairs, bool))
    return Found(pd.DataFrame(rows), found, {"tasks": list(tasks)})


def _error_rates(label: np.ndarray, told: np.ndarray) -> np.ndarray:
    """(label, called): what labelled maps of each pattern are called, each row sums to 1.

    A little is added everywhere, so that no error counts as impossible because no example shows it.
    """
    table = confusion(label, told) + 0.1
    return np.asarray(table / table.sum(1, keepdims=True))


def _true_shares(called: np.ndarray, errors: np.ndarray, steps: int = 200) -> np.ndarray:
    """(draw, label): the shares under which those called (draw, called) are most likely.

    errors  (draw, label, called)
    """
    shares = np.full(called.shape, 1 / len(PATTERNS))
    for _ in range(steps):  # expectation, maximisation
        expected = np.einsum("dl,dlc->dc", shares, errors)
        shares = shares * np.einsum("dlc,dc->dl", errors, called / expected)
        shares = shares / shares.sum(-1, keepdims=True)
    return shares


def _pattern_claims(whole: Mapping[str, np.ndarray], is_pair: np.ndarray) -> dict[str, Finding]:
    """The least, the most and the farthest apart of all tasks; `is_pair` of those of two texts."""
    shares = np.stack(list(whole.values()))  # task draw pattern
    rest, block = (shares[..., PATTERNS.index(name)] for name in ("heterogeneous", "block"))
    found = {
        "patterns.heterogeneous_least": drawn(rest.min(0)),
        "patterns.heterogeneous_most": drawn(rest.max(0)),
        "patterns.first_three_least": drawn(shares[..., :3].sum(-1).min(0)),
    }
    if is_pair.any() and not is_pair.all():
        found["patterns.block_lead"] = drawn(block[is_pair].mean(0) - block[~is_pair].mean(0))
    if is_pair.sum() > 1:
        of_pairs = shares[is_pair] / 100
        apart = 0.5 * np.abs(of_pairs[:, None] - of_pairs[None]).sum(-1)
        found["patterns.largest_distance"] = drawn(apart.max((0, 1)))
    return found
