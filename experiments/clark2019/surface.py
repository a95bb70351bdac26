"""Sec. 3: where every head looks on plain text, by position, special token and breadth."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from attnlib.attention.encode import batches, encode
from attnlib.data.corpora import Corpus
from attnlib.measuring.bootstrap import Grids, Statistic, statistics
from attnlib.measuring.head_tables import layer_means
from attnlib.measuring.stream import Progress, chosen_metrics, stream
from attnlib.models import Encoder
from bookkit.store import Found, experiment, findings

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
    "column_peak",
)
BROAD, POSITIONAL, SPECIAL = 3.8, 0.5, 0.6
"""From which entropy, and from which share of attention, the paper's code gives a head a name."""


@experiment(version=1)
def surface(
    corpus: Corpus,
    *,
    encoder: Encoder,
    max_length: int = 128,
    segment_ids: str = "pair",
    on_long: str = "error",
    progress: Progress | None = None,
) -> Found:
    """Where every head looks on plain text: positions, special tokens, how broadly (sec. 3).

    The table also has the even shares: what a head gets that spreads its attention evenly.
    """
    options: dict[str, Any] = {"max_length": max_length, "on_long": on_long}
    found = stream(
        encoder,
        corpus,
        chosen_metrics(SURFACE),
        segment_ids=segment_ids,
        progress=progress,
        **options,
    ).not_empty()
    even = even_shares(encoder, corpus, **options)
    rows = {metric: found.rows(metric) for metric in SURFACE}
    lengths = rows["mass_to_self"][1][:, :1, :1]  # the weight of a mass: its real queries
    rows["length"] = (lengths, np.ones_like(lengths))
    wanted = SURFACE_FINDINGS if segment_ids == "pair" else {}
    wanted = {**wanted, **({"patterns.shown": _patterns_shown(even)} if wanted else {})}
    numbers = statistics(rows, wanted) if wanted else {}
    facts = {
        "inputs": found.n_examples,
        "tokens": int(lengths.sum()),
        "passes": found.n_examples,
        "mean_length": float(lengths.mean()),
        "even": even,
        "skipped": found.skipped,
    }
    return Found(found.table(), findings(numbers), facts)


def even_shares(
    encoder: Encoder, corpus: Corpus, *, max_length: int = 128, on_long: str = "error"
) -> dict[str, float]:
    """For each kind of key, its share of all pieces, averaged over texts: an even head's mass."""
    pieces = encode(corpus.examples, encoder, max_length=max_length, on_long=on_long)
    shares: dict[str, list[torch.Tensor]] = {}
    for batch in batches(pieces, encoder):
        kinds = {"cls": batch.cls, "sep": batch.sep, "period_or_comma": batch.period | batch.comma}
        for name, mask in kinds.items():
            shares.setdefault(f"mass_to_{name}", []).append(mask.sum(-1) / batch.n_real)
        for name in ("self", "previous", "next"):
            shares.setdefault(f"mass_to_{name}", []).append(1 / batch.n_real)
    return {name: float(torch.cat(values).mean()) for name, values in shares.items()}


def _layer_means(grid: np.ndarray) -> np.ndarray:
    return np.asarray(grid.mean(-1))


def _third(grid: np.ndarray) -> int:
    return max(1, len(grid) // 3)


def _positional_depth(grids: Grids) -> float:
    """Share of the heads above one half on previous or next that lie in the first half."""
    above = (grids["mass_to_previous"] > POSITIONAL) | (grids["mass_to_next"] > POSITIONAL)
    return float(above[: len(above) // 2].sum() / above.sum()) if above.any() else np.nan


def _early_over_late(grid: np.ndarray) -> float:
    third = _third(grid)
    return float(grid[:third].mean() / grid[third:].mean())


def _late_over_early(grid: np.ndarray) -> float:
    third = _third(grid)
    return float(grid[-third:].mean() / grid[:-third].mean())


def _special(grids: Grids) -> np.ndarray:
    return np.asarray(
        grids["mass_to_cls"] + grids["mass_to_sep"] + grids["mass_to_period_or_comma"]
    )


def _sep_to_sep_in_its_layer(grids: Grids) -> float:
    layer = int(_layer_means(grids["mass_to_sep"]).argmax())
    return float(grids["mass_sep_to_sep"][layer].mean())


def _largest_early_entropy(grids: Grids) -> float:
    early = grids["entropy"][: _third(grids["entropy"])]
    return float(early.max() / np.log(grids["length"].item()))


def _first_minus_rest(grids: Grids) -> float:
    means = _layer_means(grids["entropy"])
    return float(means[0] - means[1:].mean())


def _peak_of_broad_heads(grids: Grids) -> float:
    broad = grids["entropy"] > grids["entropy"].max() - 0.5
    return float(grids["column_peak"][broad].max())


def _cls_last_minus_middle(grids: Grids) -> float:
    means = _layer_means(grids["entropy_from_cls"])
    third = _third(means)
    return float(means[-1] - means[third:-third].mean())


def _cls_layers_close(grids: Grids) -> float:
    gap = _layer_means(grids["entropy_from_cls"]) - _layer_means(grids["entropy"])
    return float((np.abs(gap) < 0.5).mean())


def _depth_of_largest(grid: np.ndarray) -> float:
    return float(_layer_means(grid).argmax() / max(len(grid) - 1, 1))


SURFACE_FINDINGS: dict[str, Statistic] = {
    "self.median": lambda g: float(np.median(g["mass_to_self"])),
    "previous.heads_above_half": lambda g: float((g["mass_to_previous"] > POSITIONAL).sum()),
    "next.heads_above_half": lambda g: float((g["mass_to_next"] > POSITIONAL).sum()),
    "positional.share_in_first_half": _positional_depth,
    "sep.largest_layer_mean": lambda g: float(_layer_means(g["mass_to_sep"]).max()),
    "sep.depth_of_largest": lambda g: _depth_of_largest(g["mass_to_sep"]),
    "cls.early_over_late": lambda g: _early_over_late(g["mass_to_cls"]),
    "period_or_comma.late_over_early": lambda g: _late_over_early(g["mass_to_period_or_comma"]),
    "special.share_of_heads_above_half": lambda g: float((_special(g) > 0.5).mean()),
    "sep_to_sep.in_its_layer": _sep_to_sep_in_its_layer,
    "sep_to_sep.minus_other": lambda g: float(
        (g["mass_sep_to_sep"] - g["mass_other_to_sep"]).mean()
    ),
    "entropy.largest_early_share": _largest_early_entropy,
    "entropy.first_minus_rest": _first_minus_rest,
    "entropy.peak_of_broad_heads": _peak_of_broad_heads,
    "entropy_from_cls.last_layer": lambda g: float(_layer_means(g["entropy_from_cls"])[-1]),
    "entropy_from_cls.last_minus_middle": _cls_last_minus_middle,
    "entropy_from_cls.layers_close": _cls_layers_close,
}


def _patterns_shown(even: dict[str, float]) -> Statistic:
    """How many of the four patterns of Fig. 1 some head shows."""
    sep = min(SPECIAL, 20 * even["mass_to_sep"])
    marks = min(SPECIAL, 10 * even["mass_to_period_or_comma"])

    def shown(grids: Grids) -> float:
        tests = (
            grids["entropy"] > BROAD,
            grids["mass_to_next"] > POSITIONAL,
            grids["mass_to_sep"] > sep,
            grids["mass_to_period_or_comma"] > marks,
        )
        return float(sum(test.any() for test in tests))

    return shown


def surface_quotes(found: Found) -> dict[str, Any]:
    """What the text of the chapter quotes besides findings."""
    means = found.table.pivot(index=["layer", "head"], columns="metric", values="mean")
    by_layer = layer_means(found.table, metric="mass_to_sep")
    broad = means[means["entropy"] > means["entropy"].max() - 0.5]
    peaked = broad[broad["column_peak"] > 0.1]
    return {
        "even_sep": found.facts["even"]["mass_to_sep"],
        "sep_layer": int(by_layer.idxmax()),
        "sep_jump": int(by_layer.diff().idxmax()),
        "sep_before": float(by_layer.shift()[by_layer.diff().idxmax()]),
        "n_positional": int(
            (means[["mass_to_previous", "mass_to_next"]] > POSITIONAL).to_numpy().sum()
        ),
        "n_broad": len(broad),
        "peaked_heads": ", ".join(f"{layer}-{head}" for layer, head in peaked.index) or "none",
        "peaked_cls": float((peaked["mass_to_cls"] / peaked["column_peak"]).mean()),
    }
