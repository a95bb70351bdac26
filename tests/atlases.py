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
from families import SENTENCES, save_model, word_piece_tokenizer

from attnlib.atlas import Atlas, Fact
from attnlib.models import load_encoder
from attnlib.viewdata import Reading, as_example, head_metrics, read

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


def _fact(key: str, name: str, paper: str, kind: str, group: str, value: Any, **more: Any) -> Fact:
    told = {
        "unit": "",
        "where": BOOK.get(paper, ""),
        "source": f"{paper}-{group.split()[0].lower()}",
        "about": f"How {name} is measured.",
    }
    return Fact(key=key, name=name, paper=paper, kind=kind, group=group, value=value,
                **{**told, **more})  # fmt: skip


def _around(draw: np.random.Generator, value: np.ndarray, width: float) -> dict[str, Any]:
    return {
        "low": value - draw.uniform(0, width, N),
        "high": value + draw.uniform(0, width, N),
    }


def _facts(draw: np.random.Generator) -> list[Fact]:
    found = []
    names = {
        "next": "to the next token",
        "previous": "to the previous token",
        "self": "to itself",
        "cls": "to [CLS]",
        "sep": "to [SEP]",
        "period_or_comma": "to periods and commas",
    }
    for key, words in names.items():
        value = draw.beta(0.5, 4, N)
        found.append(
            _fact(f"mass_to_{key}", f"attention {words}", "clark2019", "number", "Where it looks",
                  value, unit="share", detail={"n": np.full(N, 1000)},
                  **_around(draw, value, 0.01))
        )  # fmt: skip
    entropy = draw.uniform(0.2, 4, N)
    entropy[5] = np.nan
    found.append(_fact("entropy", "entropy", "clark2019", "number", "Where it looks", entropy,
                       unit="nats"))  # fmt: skip
    found.append(_fact("reach", "mean distance", "clark2019", "number", "Where it looks",
                       draw.gamma(2, 9, N), unit="tokens"))  # fmt: skip
    found.append(_fact("peak", "pieces that get half", "clark2019", "number", "Where it looks",
                       draw.integers(1, 40, N), unit="pieces"))  # fmt: skip
    types = draw.choice(["dense", "diagonal", "dense&vertical", "vertical"], N)
    found.append(_fact("guan_type", "type", "guan2020", "class", "Type", types,
                       detail={"stability": draw.uniform(0.4, 1, N)}))  # fmt: skip
    patterns: list[str | None] = list(draw.choice(["vertical", "block", "heterogeneous"], N))
    patterns[3] = None
    found.append(_fact("pattern", "pattern", "kovaleva2019", "class", "Pattern", patterns,
                       note=[f"on {k} of 50 inputs" for k in draw.integers(10, 50, N)]))  # fmt: skip
    best = draw.choice(RELATIONS, N)
    accuracy = draw.uniform(10, 90, N)
    notes = [f"{relation} {a:.1f} % dep->head, offset {a / 2:.1f} %"
             for relation, a in zip(best, accuracy, strict=True)]  # fmt: skip
    found.append(_fact("best_relation", "best relation", "clark2019", "class",
                       "Syntax and coreference", best))  # fmt: skip
    found.append(_fact("best_relation_accuracy", "its accuracy", "clark2019", "number",
                       "Syntax and coreference", accuracy, unit="percent", note=notes,
                       **_around(draw, accuracy, 4)))  # fmt: skip
    for relation in RELATIONS:
        value = draw.uniform(0, 80, N)
        value[draw.integers(0, N, 6)] = np.nan
        found.append(_fact(f"relation_{relation}", f"finds {relation}", "clark2019", "number",
                           "Syntax and coreference", value, unit="percent"))  # fmt: skip
    for role in ROLES:
        bias = draw.gamma(2, 1.5, N)
        flag = (bias > 3).astype(int)
        flag[:4] = 0
        found.append(_fact(f"role_{role}", role, "pande2021", "flag", "Roles", flag,
                           detail={"bias": bias, "q": draw.uniform(0, 0.2, N)}))  # fmt: skip
    for extra in range(20):
        flag = [None, *draw.integers(0, 2, N - 1)]
        found.append(_fact(f"sense_{extra}", f"sense {extra}", "pande2021", "flag", "Senses",
                           flag))  # fmt: skip
    for task in TASKS:
        value = draw.normal(0, 1.2, N)
        value[9] = np.nan
        found.append(_fact(f"disabled_{task}", f"{task.upper()} without it", "kovaleva2019",
                           "number", "When disabled", value, unit="points", diverging=True,
                           **_around(draw, value, 1.5)))  # fmt: skip
        change = draw.normal(0, 0.02, N)
        found.append(_fact(f"cosine_{task}", f"change on {task.upper()}", "kovaleva2019",
                           "number", "After fine-tuning", change, diverging=True))  # fmt: skip
    found.append(_fact("unknown", "never measured", "agreement", "number", "Importance",
                       [None] * N))  # fmt: skip
    found.append(_fact("same", "the same everywhere", "agreement", "number", "Importance",
                       [2.5] * N))  # fmt: skip
    found.append(_fact("importance", "importance", "agreement", "number", "Importance",
                       draw.gamma(1, 0.002, N)))  # fmt: skip
    return found
