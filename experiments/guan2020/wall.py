"""Fig. 5: the maps of every head for one input, as a wall, and whether clusters look different."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from PIL import Image
from torch.nn.functional import adaptive_avg_pool2d

from attnlib.attention.encode import Collator, tokenized, truncated
from attnlib.attention.tap import all_maps
from attnlib.data.corpora import Corpus, examples_digest
from attnlib.data.examples import Question, sentence_starts
from attnlib.errors import BadValue
from attnlib.measuring.head_tables import head_rows
from attnlib.models import Encoder
from attnlib.plots.drawing import need
from attnlib.plots.viewer import asset
from bookkit.store import Found, experiment
from bookkit.templates import filled
from experiments.guan2020.models import model_of
from experiments.guan2020.type_figures import TYPE_LOOKS, feature_name, feature_order, typed_heads
from experiments.guan2020.types import group_of

STEPS = 255
"""A weight is kept as a whole number of so many steps."""
LONGEST = 64
"""Pieces of an input: a map of more would be finer than its place on the page."""
SIDE = 32
"""Pixels of a map, in either direction, when its looks are compared."""
HEAVIEST = 360_000
"""Bytes of the picture; beyond, the strengths are rounded to fewer steps."""
STYLE, SCRIPT = (asset(Path(__file__).with_suffix(suffix)) for suffix in (".css", ".js"))


# --- the maps -------------------------------------------------------------------------------------


@experiment(version=1, trains=True)
def wall_maps(
    *corpora: Corpus,
    encoder: Encoder,
    model: str,
    task: str | None,
    recipe: Mapping[str, Any] | None,
    max_pieces: int = 56,
) -> Found:
    """The maps of all heads for the first question of a corpus and the opening of its paragraph.

    table  layer, head, map: the weights row by row, each a byte of 0 to 255 (in base64)
    facts  pieces
    """
    *train, questions = corpora
    own = model_of(*train, encoder=encoder, task=task, recipe=recipe)
    example = opening(questions.examples[0], own, max_pieces)
    (encoded,) = tokenized([example], own)
    batch = Collator(own)([encoded])
    maps = [[packed(one) for one in heads] for heads in all_maps(own, batch).cpu().numpy()]
    tokens = list(own.tokenizer.convert_ids_to_tokens(encoded.ids))
    facts = {"pieces": tokens, "model": model, "inputs": 1, "passes": 1}
    return Found(head_rows(map=np.array(maps, dtype=object)), facts=facts)


def opening(question: Question, encoder: Encoder, max_pieces: int) -> Question:
    """A question with as many whole sentences of its paragraph as fit."""
    starts = question.starts[1] if question.starts else sentence_starts(question.context)
    for end in (len(question.context), *reversed(starts[1:])):
        shorter = replace(question, context=question.context[:end].strip(), starts=None)
        (encoded,) = tokenized([shorter], encoder)
        if len(encoded) <= max_pieces:
            return shorter
    raise BadValue(
        f"question '{question.id}' and its first sentence have more than {max_pieces} pieces. "
        "Use a larger max_pieces."
    )


def packed(weights: np.ndarray) -> str:
    """A map as text, one byte a weight."""
    return base64.b64encode(np.rint(STEPS * weights).astype(np.uint8).tobytes()).decode("ascii")


def unpacked(table: pd.DataFrame, n_tokens: int) -> np.ndarray:
    """The maps (layer, head, query, key) of a table of `wall_maps`."""
    ordered = table.sort_values(["layer", "head"])
    n_heads = int(ordered["head"].max())
    bytes_of = (np.frombuffer(base64.b64decode(text), np.uint8) for text in ordered["map"])
    maps = np.stack([one.reshape(n_tokens, n_tokens) for one in bytes_of]) / STEPS
    return np.asarray(maps.reshape(-1, n_heads, n_tokens, n_tokens))


# --- whether maps of one cluster look alike -------------------------------------------------------


def unseen(corpus: Corpus, seen: Corpus, *, limit: int) -> Corpus:
    """The first examples of a corpus that are not in another one."""
    known = {one.id for one in seen.examples}
    rest = tuple(one for one in corpus.examples if one.id not in known)[:limit]
    if not rest:
        raise BadValue(f"'{corpus.name}' has no input besides those of '{seen.name}'.")
    return replace(corpus, examples=rest, digest=examples_digest(rest))


@experiment(version=1, trains=True)
def cluster_looks(
    *given: Any,
    encoder: Encoder,
    model: str,
    task: str | None,
    recipe: Mapping[str, Any] | None,
    max_length: int,
) -> Found:
    """For every input, how many maps look most like those of their own cluster.

    given  what the model learns from, if anything; inputs; the table of `head_types`
    table  article, share: see `nearest_to_own`
    """
    *train, inputs, types = given
    own = model_of(*train, encoder=encoder, task=task, recipe=recipe)
    names = types.sort_values(["layer", "head"])["type"].to_numpy()
    rows = []
    for example, coded in zip(inputs.examples, tokenized(inputs.examples, own), strict=True):
        cut = truncated(coded, max_length) if len(coded) > max_length else coded
        maps = all_maps(own, Collator(own)([cut])).flatten(0, 1)
        small = adaptive_avg_pool2d(maps, SIDE).sqrt().flatten(1).double().cpu().numpy()
        rows.append({"article": group_of(example), "share": nearest_to_own(small, names)})
    return Found(pd.DataFrame(rows), facts={"inputs": len(rows), "passes": len(rows)})


def nearest_to_own(maps: np.ndarray, names: np.ndarray) -> float:
    """The share of maps (head, pixel) that are nearest to the mean map of their own cluster.

    The mean of its own cluster is taken without the map itself; a head alone in its cluster is
    left out.
    """
    of = names[:, None] == np.unique(names)  # head cluster
    n, sums = of.sum(0), of.T.astype(float) @ maps
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (sums - of[..., None] * maps[:, None]) / (n - of)[..., None]
    away = np.linalg.norm(maps[:, None] - means, axis=-1)
    compared = (n > 1)[of.argmax(1)]
    hits = away.argmin(1) == of.argmax(1)
    return float(hits[compared].mean()) if compared.any() else np.nan


# --- the page -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MapWall:
    """A wall of maps with a caption; a notebook and the book show it, and it opens."""

    table: pd.DataFrame = field(repr=False)
    parts: Mapping[str, Any] = field(repr=False)
    caption: str = ""

    @property
    def alt(self) -> str:
        return f"Wall of {len(self.table)} small attention maps. {self.caption}".strip()

    def said(self, caption: str) -> MapWall:
        """The same wall with a caption: what there is to see, and how to read the colours."""
        return replace(self, caption=caption)

    def _repr_html_(self) -> str:
        page = Path(__file__).with_suffix(".html")
        said = {"caption": self.caption, "alt": self.alt, "style": STYLE, "script": SCRIPT}
        return filled(page, **self.parts, **said)


def map_wall(
    maps: np.ndarray, types: pd.DataFrame, tokens: Sequence[str], features: pd.DataFrame
) -> MapWall:
    """Every map of one input, layers as rows and heads as columns (Guan 2020, Fig. 5).

    maps      (layer, head, query, key), rows sum to 1; up to 64 pieces
    types     layer, head, type: one row per head
    tokens    the pieces, in the order of the maps
    features  layer, head, feature, value: the bars beside an opened map
    """
    weights = _checked(maps, tokens)
    n_layers, n_heads, n, _ = weights.shape
    rows = _of_maps(typed_heads(types), weights)
    names, colours = list(TYPE_LOOKS), [look.colour for look in TYPE_LOOKS.values()]
    of_type = rows["type"].map(names.index).to_numpy().reshape(n_layers, n_heads)
    pad = max(1, round(n / 24))
    values = _feature_values(features, rows)
    data = {
        "n": n,
        "pad": pad,
        "heads": n_heads,
        "tokens": list(map(str, tokens)),
        "kinds": names,
        "colours": colours,
        "types": of_type.ravel().tolist(),
        "features": [feature_name(name) for name in values.columns],
        "values": (1000 * values).round().astype(int).to_numpy().tolist(),
    }
    parts = {
        "data": data,
        "coded": json.dumps(data, ensure_ascii=False, separators=(",", ":")),
        "counts": rows["type"].value_counts().reindex(names, fill_value=0).to_dict(),
        "shape": "pixelated" if n <= 28 else "auto",
        "picture": base64.b64encode(_light_png(weights, of_type, colours, pad)).decode(),
    }
    return MapWall(rows, parts)


def _checked(maps: np.ndarray, tokens: Sequence[str]) -> np.ndarray:
    weights = np.asarray(maps, dtype=float)
    n = len(tokens)
    if weights.ndim != 4 or weights.shape[2:] != (n, n) or 0 in weights.shape:
        raise BadValue(
            f"maps have shape {weights.shape}; expected (layer, head, {n}, {n}) for {n} tokens."
        )
    if n > LONGEST:
        raise BadValue(f"the input has {n} pieces, a wall shows up to {LONGEST}; choose another.")
    if not np.isfinite(weights).all() or weights.min() < -1e-6 or weights.max() > 1 + 1e-4:
        raise BadValue("a weight is not between 0 and 1; give attention of real pieces only.")
    return np.clip(weights, 0, 1)


def _of_maps(types: pd.DataFrame, weights: np.ndarray) -> pd.DataFrame:
    """One row per map, in the order of the maps, with its largest weight."""
    found = head_rows(largest=weights.max(axis=(2, 3))).merge(
        types, on=["layer", "head"], how="left"
    )
    if found["type"].isna().any() or len(types) != len(found):
        raise BadValue(
            f"{len(types)} heads have a type and there are {weights.shape[0]} x "
            f"{weights.shape[1]} maps; give one row for each head of the model."
        )
    return found


def _feature_values(features: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """A row per map and a column per feature."""
    need(features, "layer", "head", "feature", "value")
    grid = features.pivot(index=["layer", "head"], columns="feature", values="value")
    grid = grid.reindex(pd.MultiIndex.from_frame(rows[["layer", "head"]]))
    if grid.isna().any(axis=None):
        raise BadValue("a head has no value for a feature; give all features of all heads.")
    return grid[feature_order(features["feature"])]


def _light_png(weights: np.ndarray, kind: np.ndarray, colours: Sequence[str], pad: int) -> bytes:
    """The wall as a PNG: the finest steps of strength that keep it light."""
    steps = 255 // len(colours)
    for coarser in (1, 2, 4, 8):
        levels = np.rint(steps // coarser * np.sqrt(weights)) * coarser
        picture = wall_png(np.minimum(levels, steps).astype(np.uint8), kind, colours, pad)
        if len(picture) <= HEAVIEST:
            break
    return picture


def wall_png(levels: np.ndarray, kind: np.ndarray, colours: Sequence[str], pad: int) -> bytes:
    r"""An indexed PNG whose colour is the type of the head and whose opacity is the weight,

    .. math:: 1 - (1 - \sqrt{a})^2, \quad a = (\text{level} / \text{highest level})^2

    so that 0.02, an even share among 50 pieces, still has a quarter of the full strength.

    levels  (layer, head, query, key) from 0 to 255 // number of colours
    kind    (layer, head) index of the colour

    The page shows through weak places: one picture serves a light and a dark page.
    """
    steps = 255 // len(colours)
    placed = np.where(levels > 0, levels + kind[:, :, None, None] * steps, 0).astype(np.uint8)
    tiles = np.pad(placed, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    layer, head, side, _ = tiles.shape
    pixels = tiles.transpose(0, 2, 1, 3).reshape(layer * side, head * side)
    palette, opacity = [(0, 0, 0)], [0]
    for colour in colours:
        palette += [tuple(round(255 * part) for part in to_rgb(colour))] * steps  # type: ignore[list-item]
        opacity += [round(255 * (1 - (1 - level / steps) ** 2)) for level in range(1, steps + 1)]
    image = Image.fromarray(pixels)
    image.putpalette(bytes(part for entry in palette for part in entry))
    file = io.BytesIO()
    image.save(file, "PNG", transparency=bytes(opacity), compress_level=9)
    return file.getvalue()
