"""Sec. 3, Figs. 1, 2 and 4: where every head looks, by position, special token and breadth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlib.attention.encode import batches_of, piece_surfaces, tokenized
from attnlib.data.corpora import Corpus
from attnlib.measuring.bootstrap import Grids, Statistic, by_group, statistics
from attnlib.measuring.stream import measure
from attnlib.models import Encoder
from bookkit.store import Found, experiment, findings
from experiments.clark2019.masked_lm import article

SURFACE = (
    "mass_to_self",
    "mass_to_previous",
    "mass_to_next",
    "mass_to_cls",
    "mass_to_sep",
    "mass_to_period_or_comma",
    "mass_sep_to_sep",
    "mass_other_to_sep",
    "entropy",
    "entropy@authors",
    "entropy_from_cls",
    "row_peak",
)
BROAD, POSITION, SPECIAL = 3.8, 0.5, 0.6
"""From which entropy in nats, from which share of attention on a position, or on special tokens,
full stops and commas, a head has a name; the values are those of the authors' code."""
BEHAVIOURS = {
    "broad": ("entropy", BROAD),
    "previous": ("mass_to_previous", POSITION),
    "next": ("mass_to_next", POSITION),
    "self": ("mass_to_self", POSITION),
    "[SEP]": ("mass_to_sep", SPECIAL),
    "[CLS]": ("mass_to_cls", SPECIAL),
    "punctuation": ("mass_to_period_or_comma", SPECIAL),
}
"""Behaviour, the metric that shows it, and its threshold; the first that fits names the head."""
MARKS = (".", ",")
FREQUENT = 50
"""Pieces that full stops and commas are compared with: rarer ones could not pass them."""


@experiment(version=2)
def surface(
    corpus: Corpus, *, encoder: Encoder, max_length: int = 128, segment_ids: str = "pair"
) -> Found:
    """Where every head looks on plain text: positions, special tokens, how broadly (sec. 3).

    The facts have the even shares: what a head gets that spreads its attention evenly. Claims are
    judged where the two passages of a text have segment ids 0 and 1, as in the paper; their
    intervals come from drawing articles again, in every draw with all choices made anew.
    """
    found = measure(encoder, corpus, SURFACE, max_length=max_length, segment_ids=segment_ids)
    read = [corpus.examples[place] for place in sorted(set(found.shard.index))]
    values = {metric: found.values(metric) for metric in SURFACE}
    lengths = found.rows("mass_to_self")[1][:, :1, :1]  # the weight of a mass: its real queries
    values |= {"length": lengths, "pieces": piece_counts(read, encoder)}
    articles = pd.factorize(np.array([article(example) for example in read], object))[0]
    rows = {key: by_group(one, articles, int(articles.max()) + 1) for key, one in values.items()}
    facts = {
        "inputs": found.n_examples,
        "articles": int(articles.max()) + 1,
        "tokens": int(lengths.sum()),
        "passes": found.n_examples,
        "mean_length": float(lengths.mean()),
        "even": even_shares(encoder, corpus, max_length),
        "skipped": found.skipped,
    }
    numbers = statistics(rows, SURFACE_FINDINGS, micro=True) if segment_ids == "pair" else {}
    return Found(found.table(), findings(numbers), facts)


def piece_counts(texts: Sequence[Any], encoder: Encoder) -> np.ndarray:
    """How often full stops, commas and the most frequent other pieces occur: (text, piece).

    Special tokens and the word "the", which the paper leaves out, are no columns.
    """
    names: list[Any] = [
        text if text in MARKS else None if text.lower() == "the" else place
        for place, text in enumerate(piece_surfaces(encoder.tokenizer))
    ]
    counts = [
        Counter(names[piece] for piece, word in zip(one.ids, one.word, strict=True) if word >= 0)
        for one in tokenized(texts, encoder)
    ]
    whole = sum(counts, Counter[Any]())
    others = [name for name, _ in whole.most_common() if name is not None and name not in MARKS]
    columns = [*MARKS, *others[:FREQUENT]]
    return np.array([[count[name] for name in columns] for count in counts], float)


def even_shares(encoder: Encoder, corpus: Corpus, max_length: int) -> dict[str, float]:
    """For each kind of key, its share of all pieces, averaged over texts: an even head's mass."""
    shares: dict[str, list[torch.Tensor]] = {}
    for batch in batches_of(corpus.examples, encoder, max_length=max_length):
        kinds = {"cls": batch.cls, "sep": batch.sep, "period_or_comma": batch.period_or_comma}
        for name, mask in kinds.items():
            shares.setdefault(f"mass_to_{name}", []).append(mask.sum(-1) / batch.n_real)
        for name in ("self", "previous", "next"):
            shares.setdefault(f"mass_to_{name}", []).append(1 / batch.n_real)
    return {name: float(torch.cat(values).mean()) for name, values in shares.items()}


def behaviours(table: pd.DataFrame) -> pd.Series:
    """What each head mostly does, by its means: the colours of Fig. 6, right.

    table    metric, layer, head, mean, one row per metric and head, as Measurement.table() gives it
    returns  a label per (layer, head): the first of BEHAVIOURS that fits, "other" when none does,
             "undefined" when none fits and a mean is missing
    """
    means = table.pivot(index=["layer", "head"], columns="metric", values="mean")
    missing = means[[metric for metric, _ in BEHAVIOURS.values()]].isna().any(axis=1)
    above = [means[metric] > limit for metric, limit in BEHAVIOURS.values()]
    labels = np.select(above, list(BEHAVIOURS), np.where(missing, "undefined", "other"))
    return pd.Series(labels, index=means.index, name="behaviour")


# --- what the claims ask for, each a number made of mean grids (layer, head) ----------------------


def _third(grid: np.ndarray) -> int:
    return max(1, len(grid) // 3)


def _early_over_late(grid: np.ndarray) -> float:
    """The first third of the layers over the others; of a grid upside down, the last third."""
    third = _third(grid)
    return float(grid[:third].mean() / grid[third:].mean())


def _positional_depth(grids: Grids) -> float:
    """Share of the heads above one half on previous or next that lie in the first half."""
    previous, following = grids["mass_to_previous"], grids["mass_to_next"]
    above = (previous > POSITION) | (following > POSITION)
    return float(above[: len(above) // 2].sum() / above.sum()) if above.any() else np.nan


def _sep_depth(grids: Grids) -> float:
    """Where attention to [SEP] is largest: 0 in the first layer, 1 in the last."""
    means = grids["mass_to_sep"].mean(-1)
    return float(means.argmax() / max(len(means) - 1, 1))


def _middle(grid: np.ndarray) -> np.ndarray:
    """Layers 6 to 10 of 12, of any number of layers: those with 5/12 < layer / L <= 10/12."""
    layers = 12 * np.arange(1, len(grid) + 1)
    return np.asarray((layers > 5 * len(grid)) & (layers <= 10 * len(grid)))


def _sep_middle_minus_sides(grids: Grids) -> float:
    means = grids["mass_to_sep"].mean(-1)
    middle = np.flatnonzero(_middle(means))
    sides = means[: middle[0]], means[middle[-1] + 1 :]
    return float(
        means[middle].mean() - max((one.mean() for one in sides if len(one)), default=np.nan)
    )


def _largest_early_entropy(grids: Grids) -> float:
    early = grids["entropy"][: _third(grids["entropy"])]
    return float(early.max() / np.log(grids["length"].item()))


def _broadest_in_first_layer(grids: Grids) -> float:
    """Of the heads with the highest entropy, as many as a layer has: those of the first layer."""
    n_heads = grids["entropy"].shape[1]
    return float((np.argsort(-grids["entropy"], axis=None)[:n_heads] < n_heads).sum())


def _row_peak_of_broad_heads(grids: Grids) -> float:
    broad = grids["entropy"] > grids["entropy"].max() - 0.5
    return float(np.median(grids["row_peak"][broad]))


def _patterns_shown(grids: Grids) -> float:
    """How many of the four patterns of Fig. 1 some head shows, by the limits of the authors' code.

    The limit of the entropy is the same share of the log of the mean length as 3.8 is of log 128.
    """
    limits = {
        "entropy": BROAD / np.log(128) * np.log(grids["length"].item()),
        "mass_to_next": POSITION,
        "mass_to_sep": SPECIAL,
        "mass_to_period_or_comma": SPECIAL,
    }
    return float(sum((grids[key] > limit).any() for key, limit in limits.items()))


SPECIALS = ("mass_to_cls", "mass_to_sep", "mass_to_period_or_comma")
SURFACE_FINDINGS: dict[str, Statistic] = {
    "patterns.shown_at_code_limits": _patterns_shown,
    "self.median": lambda g: float(np.median(g["mass_to_self"])),
    "previous.heads_above_half": lambda g: (g["mass_to_previous"] > POSITION).sum(),
    "next.heads_above_half": lambda g: (g["mass_to_next"] > POSITION).sum(),
    "positional.share_in_first_half": _positional_depth,
    "sep.layers_6_10": lambda g: g["mass_to_sep"][_middle(g["mass_to_sep"])].mean(),
    "sep.depth_of_largest": _sep_depth,
    "sep.middle_minus_both_sides": _sep_middle_minus_sides,
    "cls.early_over_late": lambda g: _early_over_late(g["mass_to_cls"]),
    "period_or_comma.late_over_early": lambda g: _early_over_late(
        g["mass_to_period_or_comma"][::-1]
    ),
    "special.share_of_heads_above_half": lambda g: (
        np.sum([g[key] for key in SPECIALS], axis=0) > 0.5
    ).mean(),
    "sep_to_sep.layers_6_10": lambda g: g["mass_sep_to_sep"][_middle(g["mass_to_sep"])].mean(),
    "sep_to_sep.minus_other": lambda g: (g["mass_sep_to_sep"] - g["mass_other_to_sep"]).mean(),
    "pieces.rank_of_period_and_comma": lambda g: 1 + (g["pieces"] > g["pieces"][:2].min()).sum(),
    "entropy.largest_early_share": _largest_early_entropy,
    "entropy.early_minus_rest": lambda g: (
        g["entropy"][: _third(g["entropy"])].mean() - g["entropy"][_third(g["entropy"]) :].mean()
    ),
    "entropy.broadest_in_first_layer": _broadest_in_first_layer,
    "entropy.row_peak_of_broad_heads": _row_peak_of_broad_heads,
    "entropy_from_cls.last_layer": lambda g: g["entropy_from_cls"][-1].mean(),
    "entropy_from_cls.last_minus_rows": lambda g: (
        g["entropy_from_cls"][-1].mean() - g["entropy"][-1].mean()
    ),
    "entropy_from_cls.layers_close": lambda g: (
        np.abs(g["entropy_from_cls"].mean(-1) - g["entropy"].mean(-1)) < 0.5
    ).mean(),
}
