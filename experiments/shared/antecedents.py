"""Does a head find the antecedent of a mention? Heads beside rules (Clark 2019, sec. 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlib.attention.encode import tokenized
from attnlib.attention.words import word_maps
from attnlib.data.examples import CorefDocument, Span
from attnlib.errors import CorpusError
from attnlib.measuring.bootstrap import estimate
from attnlib.models import Encoder
from experiments.shared.coref import BASELINES, TYPES, Mention, questions

CANDIDATES = ("mentions", "words")
KINDS = ("all", *TYPES)


@dataclass(frozen=True, eq=False)
class Choices:
    """Which questions each head answers right, beside the baselines.

    by_head    candidates -> (question, head) bool   heads numbered over all layers
    baselines  name -> (question,) bool
    document   (question,)   which document a question comes from
    kind       (question,)   pronoun, proper or nominal
    """

    by_head: dict[str, np.ndarray]
    baselines: dict[str, np.ndarray]
    document: np.ndarray
    kind: np.ndarray
    n_heads: int
    skipped: dict[str, int]

    def __len__(self) -> int:
        return len(self.kind)


def cut(
    documents: Sequence[CorefDocument], encoder: Encoder, max_length: int
) -> list[CorefDocument]:
    """Each document up to the last whole word within the limit (the paper: 128 pieces).

    Mentions beyond the cut are gone, and so are entities with fewer than two mentions left.
    """
    found = []
    for document, pieces in zip(documents, tokenized(documents, encoder), strict=True):
        if len(pieces) <= max_length:
            found.append(document)
            continue
        # The last piece before the limit is the closing special token's place.
        beyond = pieces.word[max_length - 1]
        found.append(_first_words(document, beyond if beyond >= 0 else len(document.words)))
    return found


def _first_words(document: CorefDocument, n: int) -> CorefDocument:
    kept = [[i for i, s in enumerate(cluster) if s.end <= n] for cluster in document.clusters]
    places = [(c, inside) for c, inside in enumerate(kept) if len(inside) > 1]

    def chosen(beside: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(beside[c][i] for i in inside) for c, inside in places)

    def start(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
        return None if values is None else tuple(values[:n])

    heads = None if document.heads is None else (h if h < n else -1 for h in document.heads[:n])
    return replace(
        document,
        words=document.words[:n],
        sentences=tuple(Span(s.start, min(s.end, n)) for s in document.sentences if s.start < n),
        clusters=chosen(document.clusters),
        heads=None if heads is None else tuple(heads),
        relations=start(document.relations),
        tags=start(document.tags),
        mention_heads=document.mention_heads and chosen(document.mention_heads),
        mention_types=document.mention_types and chosen(document.mention_types),
    )


def choices(
    encoder: Encoder,
    documents: Sequence[CorefDocument],
    *,
    max_length: int = 128,
    batch_size: int = 8,
    progress: Callable[[int, int], None] | None = None,
) -> Choices:
    """Ask every head, and every baseline, for the antecedent of every mention that has one.

    A head is right if, of all candidates, it attends most from the head word of the mention to the
    head word of one of its antecedents. Candidates are the head words of the mentions before it,
    from which the baselines choose too ("mentions"), or all other words of the text ("words").
    """
    documents = cut(documents, encoder, max_length)
    asked = [list(questions(document)) for document in documents]
    if not any(asked):
        raise CorpusError(
            f"none of {len(documents)} documents has a mention with an antecedent within "
            f"{max_length} pieces. Give documents with clusters, or a larger --max-length."
        )
    skipped: Counter[str] = Counter()
    rows: dict[int, dict[str, np.ndarray]] = {}
    maps = word_maps(
        encoder,
        documents,
        max_length=max_length,
        batch_size=batch_size,
        skipped=skipped,
        progress=progress,
    )
    for batch in maps:
        weights, real = batch.between_words(), batch.real_words()
        for row, index in enumerate(batch.index):
            if asked[index]:
                rows[index] = _right(weights[row], real[row], asked[index])
    order = sorted(rows)
    told = [(index, *question) for index in order for question in asked[index]]
    return Choices(
        by_head={c: np.concatenate([rows[i][c] for i in order]) for c in CANDIDATES},
        baselines={
            name: np.array([_is_right(m, choose(m, before)) for _, m, before in told])
            for name, choose in BASELINES.items()
        },
        document=np.array([index for index, _, _ in told]),
        kind=np.array([mention.type for _, mention, _ in told]),
        n_heads=encoder.n_heads,
        skipped=dict(skipped),
    )


def _is_right(mention: Mention, chosen: Mention | None) -> bool:
    return chosen is not None and chosen.entity == mention.entity


def _right(
    weights: torch.Tensor, real: torch.Tensor, asked: Sequence[tuple[Mention, list[Mention]]]
) -> dict[str, np.ndarray]:
    """For one document: (question, head), by kind of candidates.

    weights  (head, word, word)
    """
    places = torch.tensor([mention.head for mention, _ in asked], device=weights.device)
    n_words = weights.shape[-1]
    before = torch.zeros(len(asked), n_words, dtype=torch.bool)
    antecedent = torch.zeros_like(before)
    for question, (mention, others) in enumerate(asked):
        before[question, [other.head for other in others]] = True
        same = [other.head for other in others if other.entity == mention.entity]
        antecedent[question, same] = True
    before, antecedent = before.to(weights.device), antecedent.to(weights.device)
    other = real & (torch.arange(n_words, device=weights.device) != places[:, None])
    rows = weights[:, places].transpose(0, 1)  # (question, head, word)
    found = {}
    for name, allowed in (("mentions", before), ("words", other)):
        chosen = rows.masked_fill(~allowed[:, None], -1.0).argmax(-1)
        found[name] = antecedent.gather(1, chosen).cpu().numpy()
    return found


def antecedent_table(found: Choices, *, seed: int = 0) -> pd.DataFrame:
    """One row per system and kind of mention: accuracy in percent with its 95 % interval.

    The best head is chosen on all questions and scored on them ("head", the paper's way), or
    chosen on one half of the documents and scored on the other, both ways round ("head, clean");
    "head, any word" is the paper's way when a head may choose any word of the text.
    """
    systems: dict[str, tuple[np.ndarray, str]] = {
        name: (right, "") for name, right in found.baselines.items()
    }
    for label, candidates in (("head", "mentions"), ("head, any word", "words")):
        right = found.by_head[candidates]
        best = int(right.mean(0).argmax())
        systems[label] = (right[:, best], _name(best, found.n_heads))
        systems[f"{label}, clean"] = _clean(right, found, seed)
    rows = []
    for system, (right, head) in systems.items():
        for kind in KINDS:
            asked = np.ones(len(found), bool) if kind == "all" else found.kind == kind
            value, low, high = accuracy(right[asked], found.document[asked])
            told = {"system": system, "head": head, "kind": kind, "n": int(asked.sum())}
            rows.append({**told, "accuracy": value, "low": low, "high": high})
    return pd.DataFrame(rows)


def accuracy(right: np.ndarray, document: np.ndarray) -> tuple[float, float, float]:
    """Percent right with a bootstrap interval over documents; NaN where nothing was asked."""
    if not len(right):
        return np.nan, np.nan, np.nan
    total, weight = _by_document(right, document)
    got = estimate(total[:, None], weight[:, None], micro=True)
    return 100 * float(got.mean[0]), 100 * float(got.low[0]), 100 * float(got.high[0])


def advantage(
    one: np.ndarray, other: np.ndarray, document: np.ndarray
) -> tuple[float, float, float]:
    """How many points `one` is better than `other` on the same questions, with its interval."""
    if not len(one):
        return np.nan, np.nan, np.nan
    return accuracy(one.astype(float) - other.astype(float), document)


def _by_document(right: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, place = np.unique(document, return_inverse=True)
    return np.bincount(place, weights=right.astype(float)), np.bincount(place).astype(float)


def _clean(right: np.ndarray, found: Choices, seed: int) -> tuple[np.ndarray, str]:
    """Each half of the documents, scored by the head that is best on the other half."""
    documents = np.unique(found.document)
    order = np.random.default_rng(seed).permutation(documents)
    first = np.isin(found.document, order[: len(order) // 2])
    scored = np.zeros(len(found), bool)
    names = []
    for half in (first, ~first):
        best = int(right[~half].mean(0).argmax()) if (~half).any() else 0
        scored[half] = right[half, best]
        names.append(_name(best, found.n_heads))
    return scored, "/".join(dict.fromkeys(names))


def _name(flat: int, n_heads: int) -> str:
    return f"{flat // n_heads + 1}-{flat % n_heads + 1}"
