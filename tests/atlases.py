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
from experiments.atlas.atlas import Atlas, Fact
from tests.families import SENTENCES, save_model, word_piece_tokenizer

LAYERS = HEADS = 12
N = LAYERS * HEADS
TEXTS = (SENTENCES[0], SENTENCES[4], '"<b>$x$</b>" & it rained')
TASKS = ("mrpc", "rte", "sst2", "qqp", "qnli")
ROLES = ("local", "block", "delimiter", "syntactic")
RELATIONS = ("det", "dobj", "nsubj", "amod", "poss", "pobj")
BOOK = {
    "clark2019": "notebooks/clark2019.html#surface-patterns",
    "pande2021": "notebooks/pande2021.html#roles",
    "kovaleva2019": "notebooks/kovaleva2019.html#disabling",
    "guan2020": "notebooks/guan2020.html#types",
}


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
    """About sixty facts: shares, nats, points, classes, flags; with holes, intervals and notes."""
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


PAPERS = {
    "Where it looks": "clark2019",
    "Syntax and coreference": "clark2019",
    "Type": "guan2020",
    "Pattern": "kovaleva2019",
    "Roles": "pande2021",
    "Senses": "pande2021",
    "When disabled": "kovaleva2019",
    "After fine-tuning": "kovaleva2019",
    "Importance": "agreement",
}


def fact(key: str, name: str, kind: str, group: str, value: Any, **more: Any) -> Fact:
    """A fact with a source, a place in the book, and a sentence on how it is measured."""
    paper = PAPERS[group]
    told = {
        "unit": "",
        "where": BOOK.get(paper, ""),
        "source": f"{paper}-{key.partition('_')[0]}",
        "about": f"How {name} is measured.",
    }
    named = {"key": key, "name": name, "paper": paper, "kind": kind, "group": group}
    return Fact(**{**named, **told, **more}, value=value)


def _around(draw: np.random.Generator, value: np.ndarray, width: float) -> dict[str, Any]:
    low, high = draw.uniform(0, width, (2, N))
    return {"low": value - low, "high": value + high}


def _facts(draw: np.random.Generator) -> list[Fact]:
    return [*_looks(draw), *_labels(draw), *_syntax(draw), *_roles(draw), *_changes(draw)]


def _looks(draw: np.random.Generator) -> list[Fact]:
    names = {
        "next": "to the next token",
        "previous": "to the previous token",
        "self": "to itself",
        "cls": "to [CLS]",
        "sep": "to [SEP]",
        "period_or_comma": "to periods and commas",
    }
    group, found = "Where it looks", []
    for key, words in names.items():
        value = draw.beta(0.5, 4, N)
        more = {"unit": "share", "detail": {"n": np.full(N, 1000)}, **_around(draw, value, 0.01)}
        found.append(fact(f"mass_to_{key}", f"attention {words}", "number", group, value, **more))
    entropy = draw.uniform(0.2, 4, N)
    entropy[5] = np.nan
    pieces = draw.integers(1, 40, N)
    return [
        *found,
        fact("entropy", "entropy", "number", group, entropy, unit="nats"),
        fact("reach", "mean distance", "number", group, draw.gamma(2, 9, N), unit="tokens"),
        fact("peak", "pieces that get half", "number", group, pieces, unit="pieces"),
    ]


def _labels(draw: np.random.Generator) -> list[Fact]:
    types = draw.choice(["dense", "diagonal", "dense&vertical", "vertical"], N)
    patterns: list[str | None] = list(draw.choice(["vertical", "block", "heterogeneous"], N))
    patterns[3] = None
    notes = [f"on {k} of 50 inputs" for k in draw.integers(10, 50, N)]
    stability = draw.uniform(0.4, 1, N)
    return [
        fact("guan_type", "type", "class", "Type", types, detail={"stability": stability}),
        fact("pattern", "pattern", "class", "Pattern", patterns, note=notes),
    ]


def _syntax(draw: np.random.Generator) -> list[Fact]:
    group, best = "Syntax and coreference", draw.choice(RELATIONS, N)
    accuracy = draw.uniform(10, 90, N)
    pairs = zip(best, accuracy, strict=True)
    notes = [
        f"{name} {value:.1f} % (dependent\u00a0→\u00a0head; best offset {value / 2:.1f} %)"
        for name, value in pairs
    ]
    more = {"unit": "percent", "note": notes, **_around(draw, accuracy, 4)}
    found = [
        fact("best_relation", "best relation", "class", group, best),
        fact("best_relation_accuracy", "its accuracy", "number", group, accuracy, **more),
    ]
    for relation in RELATIONS:
        value = draw.uniform(0, 80, N)
        value[draw.integers(0, N, 6)] = np.nan
        key, name = f"relation_{relation}", f"finds {relation}"
        found.append(fact(key, name, "number", group, value, unit="percent"))
    return found


def _roles(draw: np.random.Generator) -> list[Fact]:
    found = []
    for role in ROLES:
        bias = draw.gamma(2, 1.5, N)
        has = (bias > 3).astype(int)
        has[:4] = 0
        more = {"bias": bias, "q": draw.uniform(0, 0.2, N)}
        found.append(fact(f"role_{role}", role, "flag", "Roles", has, detail=more))
    for place in range(20):
        has = [None, *draw.integers(0, 2, N - 1)]
        found.append(fact(f"sense_{place}", f"sense {place}", "flag", "Senses", has))
    return found


def _changes(draw: np.random.Generator) -> list[Fact]:
    found = []
    for task in TASKS:
        value = draw.normal(0, 1.2, N)
        value[9] = np.nan
        more = {"unit": "points", "diverging": True, **_around(draw, value, 1.5)}
        name = f"{task.upper()} without it"
        found.append(fact(f"disabled_{task}", name, "number", "When disabled", value, **more))
    for task in TASKS:
        value, name = draw.normal(0, 0.02, N), f"change on {task.upper()}"
        key, group = f"change_{task}", "After fine-tuning"
        found.append(fact(key, name, "number", group, value, diverging=True))
    return [
        *found,
        fact("unknown", "never measured", "number", "Importance", [None] * N),
        fact("same", "the same everywhere", "number", "Importance", [2.5] * N),
        fact("importance", "importance", "number", "Importance", draw.gamma(1, 0.002, N)),
    ]
