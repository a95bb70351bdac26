"""Kovaleva's five patterns of attention maps: maps labelled by eye, their pictures, and a rule."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from attnlib.attention import tap
from attnlib.attention.encode import Batch, Collator, tokenized, truncated
from attnlib.data.corpora import load_corpus
from attnlib.data.examples import Example
from attnlib.errors import BadValue, CorpusError, check_choice
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
COLUMNS = (
    *("id", "model", "task", "corpus", "example", "layer", "head", "fold"),
    *("label", "again", "first_guide"),
)


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


def labelled_maps(path: Path = LABELS) -> list[LabelledMap]:
    """All maps that were labelled by eye."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise CorpusError(
                f"{path.name} has the columns {', '.join(rows.fieldnames or ())}; expected "
                f"{', '.join(COLUMNS)}."
            )
        found = [_labelled(row, path.name) for row in rows]
    if not found:
        raise CorpusError(f"{path.name} has no row; expected labelled maps.")
    return found


def _labelled(row: Mapping[str, str], name: str) -> LabelledMap:
    where = f"label of map '{row['id']}' in {name}"
    check_choice(where, row["label"], PATTERNS)
    for other in ("again", "first_guide"):
        if row[other]:
            check_choice(f"other {where}", row[other], PATTERNS)
    try:
        numbers = {key: int(row[key]) for key in ("layer", "head", "fold")}
    except (TypeError, ValueError) as error:
        raise CorpusError(
            f"map '{row['id']}' in {name} has layer, head or fold that is no whole number."
        ) from error
    return LabelledMap(**{**row, **numbers})  # type: ignore[arg-type]


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
    found: dict[str, tuple[Tensor, Batch]] = {}
    for (subject, name), group in _grouped(rows).items():
        encoder = encoders[subject]
        corpus = load_corpus(name, tokenizer=encoder.tokenizer)
        examples = {example.id: example for example in corpus.examples}
        for row in group:
            if row.example not in examples:
                raise CorpusError(
                    f"map '{row.id}' is of example '{row.example}', which {name} does not have. "
                    "Check that the corpus is the one that was labelled."
                )
        inputs: dict[str, list[LabelledMap]] = {}
        for row in group:
            inputs.setdefault(row.example, []).append(row)
        for example, wanted in inputs.items():
            maps, batch = all_maps(encoder, examples[example], max_length)
            found |= {row.id: (maps[row.layer - 1, row.head - 1], batch) for row in wanted}
    return [found[row.id] for row in rows]


def _grouped(
    rows: Iterable[LabelledMap],
) -> dict[tuple[tuple[str, str], str], list[LabelledMap]]:
    groups: dict[tuple[tuple[str, str], str], list[LabelledMap]] = {}
    for row in rows:
        groups.setdefault((row.subject, row.corpus), []).append(row)
    return groups


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
