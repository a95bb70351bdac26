"""A made-up atlas of 12 x 12 heads with facts of all kinds, for tests of the format and the page.

Its numbers are drawn, so no test can lean on a chapter's results; its maps are those of a tiny
random model on real sentences.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from attnlib.measuring.reading import Reading, as_example, head_metrics, read
from attnlib.models import load_encoder
from experiments.atlas import Atlas, Fact, Skill
from tests.families import SENTENCES, save_model, word_piece_tokenizer

LAYERS = HEADS = 12
N = LAYERS * HEADS
TEXTS = (SENTENCES[0], SENTENCES[4], '"<b>$x$</b>" & it rained')
TASKS = ("mrpc", "rte", "sst2", "qqp", "qnli")
ROLES = ("local", "block", "delimiter", "syntactic")
RELATIONS = ("det", "dobj", "nsubj", "amod", "poss", "pobj")
LOOKS = "notebooks/clark2019.html#surface-patterns"
"""Where the book discusses where heads look."""
SETTINGS = {"threshold": 3, "window": 2, "inputs": 400, "nearest": 44.2}


def tiny_readings(folder: Path) -> tuple[Reading, ...]:
    """The example sentences, read by a random model of 12 x 12 heads."""
    tokenizer = word_piece_tokenizer()
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=48,
        max_position_embeddings=66,
    )
    torch.set_num_threads(1)
    encoder = load_encoder(save_model(config, tokenizer, folder / "tiny"), device="cpu")
    metrics = head_metrics(["mass_to_next", "entropy"])
    return tuple(read(encoder, as_example(text, 0), metrics) for text in TEXTS)


def made_up(texts: tuple[Reading, ...]) -> Atlas:
    """About sixty facts: shares, nats, points, classes, flags; with holes, intervals, evidence."""
    draw = np.random.default_rng(7)
    points = draw.normal(size=(N, 6))
    distances = np.sqrt(((points[:, None] - points) ** 2).sum(-1)) / 8
    portraits = draw.dirichlet(np.full(21, 0.3), size=N)
    return Atlas(
        model="made-up",
        n_layers=LAYERS,
        n_heads=HEADS,
        about={
            "edition": "standard",
            "inputs": ["wiki", {"mrpc": 400}],
            "seeds": [0, 1],
            "licence": "CC BY 4.0 <b>",
        },
        facts=tuple(_facts(draw)),
        distances=distances,
        portraits=portraits,
        offsets=tuple(range(-10, 11)),
        texts=texts,
        titles=TEXTS,
    )


def fact(key: str, value: Any, **more: Any) -> Fact:
    """A fact with a source and all the settings that words may ask for."""
    return Fact(key, value, **{"source": f"a-table-of-{key}", "settings": SETTINGS} | more)


def _around(draw: np.random.Generator, value: np.ndarray, width: float) -> dict[str, Any]:
    low, high = draw.uniform(0, width, (2, N))
    return {"low": value - low, "high": value + high}


def _facts(draw: np.random.Generator) -> list[Fact]:
    declared = [*_looks(draw), *_labels(draw), *_syntax(draw), *_roles(draw), *_changes(draw)]
    return [*declared, *_others(draw)]


def _looks(draw: np.random.Generator) -> list[Fact]:
    found = []
    for key in ("next", "previous", "self", "cls", "sep", "period_or_comma"):
        value = draw.beta(0.5, 4, N)
        more = {"detail": {"n": np.full(N, 1000)}, **_around(draw, value, 0.01)}
        found.append(fact(f"mass_to_{key}", value, **more))
    entropy = draw.uniform(0.2, 4, N)
    entropy[5] = np.nan
    return [*found, fact("entropy", entropy)]


def _labels(draw: np.random.Generator) -> list[Fact]:
    types = draw.choice(["dense", "diagonal", "dense&vertical", "vertical"], N)
    patterns: list[str | None] = list(draw.choice(["vertical", "block", "heterogeneous"], N))
    patterns[3] = None
    stability = draw.uniform(0.4, 1, N)
    return [
        fact("guan_label", types, detail={"stability": stability}),
        fact("rule_label", patterns),
    ]


def _syntax(draw: np.random.Generator) -> list[Fact]:
    best = draw.choice(RELATIONS, N)
    accuracy = draw.uniform(10, 90, N)
    skills = [
        [Skill(str(name), "dep->head", float(value), float(value / 2))]
        for name, value in zip(best, accuracy, strict=True)
    ]
    return [
        fact("best_relation", best, skills=skills, detail={"accuracy": accuracy}),
        fact("coreference", accuracy, **_around(draw, accuracy, 4)),
    ]


def _roles(draw: np.random.Generator) -> list[Fact]:
    found = []
    for role in ROLES:
        bias = draw.gamma(2, 1.5, N)
        has = (bias > 3).astype(int)
        has[:4] = 0
        more = {"bias": bias, "q": draw.uniform(0, 0.2, N)}
        found.append(fact(f"role_{role}", has, detail=more))
    return found


def _changes(draw: np.random.Generator) -> list[Fact]:
    found = []
    for task in TASKS:
        value = draw.normal(0, 1.2, N)
        value[9] = np.nan
        found.append(fact(f"disabled_{task}", value, **_around(draw, value, 1.5)))
    for task in TASKS:
        value = draw.uniform(0, 80, N)
        value[draw.integers(0, N, 6)] = np.nan
        found.append(fact(f"changed_{task}", value))
    return found


def _others(draw: np.random.Generator) -> list[Fact]:
    """Facts that are declared nowhere, as a researcher may add them."""
    found = []
    for place in range(20):
        has = [None, *draw.integers(0, 2, N - 1)]
        found.append(fact(f"sense_{place}", has, kind="flag", paper="pande2021"))
    for task in TASKS:
        value = draw.normal(0, 0.02, N)
        found.append(fact(f"moved_{task}", value, diverging=True, paper="kovaleva2019"))
    return [
        *found,
        fact("reach", draw.gamma(2, 9, N), unit="tokens", paper="clark2019"),
        fact("peak", draw.integers(1, 40, N), unit="pieces", paper="clark2019"),
        fact("unknown", [None] * N),
        fact("same", [2.5] * N),
        fact("importance", draw.gamma(1, 0.002, N), paper="agreement"),
    ]
