"""The atlas of heads: all that the chapters found out about each head of a model, in one file.

The file is JSON in UTF-8, `"kind": "attnlib atlas"`, `"format": 1`, with these parts:

    model      the name of the model
    n_layers   n_heads: heads are always listed layer by layer
    about      what it was made from, for people: edition, inputs, seeds, versions, licence
    facts      one object per fact, with the parts of `Fact`; a part that is empty is left
               out, and null stands for a value that is not known
    distances  Jensen-Shannon divergence between heads: row i holds those to heads 0 to i - 1
    portraits  one row per head: mean attention at each distance from the query
    offsets    the distances (key - query) that the entries of a portrait stand for
    titles     the example sentences as they were written
    texts      and as the model reads them: tokens, unit (the word of each token), units (the
               words), special (places of special tokens), levels and sheets (the maps of a layer:
               head by key by query, one byte each, deflated, in base64; a weight is
               (byte / levels) ** (4 / 3)), and some metrics of this text as values

`load` checks all of it; `Atlas.save` writes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnlib.errors import AssetError, AttnlibError, BadValue, UnknownName, did_you_mean
from attnlib.files import write_whole
from attnlib.measuring.reading import Reading
from attnlib.plots.viewer import parsed_head
from experiments.atlas.atlasfacts import Fact, rounded
from experiments.atlas.atlasfile import (
    DIGITS,
    check_maps,
    document,
    document_text,
    fact_as_json,
    fact_from_json,
    file_text,
    reading_as_json,
    reading_from_json,
    rows_as_json,
    rows_from_json,
)
from experiments.atlas.atlaswords import summary

__all__ = ["Atlas", "Fact", "load"]

PUBLISHED = Path(__file__).parents[2] / "book" / "published" / "atlas"
NEIGHBOURS = 5
"""So many nearest, and so many farthest, heads stand on a card."""


@dataclass(frozen=True, eq=False)
class Atlas:
    """All that is known of the heads of one model.

    about      edition, inputs, seeds, versions, licence: what a reader may want to know
    facts      what is known of every head; `fact("entropy")` finds one
    distances  mean Jensen-Shannon divergence between heads; NaN where it was not measured
    portraits  mean attention by distance key - query, at each of `offsets`; NaN likewise
    texts      example sentences as the model reads them, with the maps of all heads
    titles     the same sentences as they were written; by default the words of the texts
    """

    model: str
    n_layers: int
    n_heads: int
    about: dict[str, Any]
    facts: tuple[Fact, ...]
    distances: Float[np.ndarray, "head other"]
    portraits: Float[np.ndarray, "head offset"]
    offsets: tuple[int, ...]
    texts: tuple[Reading, ...]
    titles: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """Check the parts against each other, and keep of numbers what a file keeps."""
        keep = object.__setattr__
        keep(self, "facts", tuple(self.facts))
        keep(self, "offsets", tuple(int(offset) for offset in self.offsets))
        keep(self, "texts", tuple(self.texts))
        keep(self, "titles", tuple(self.titles) or tuple(_title(text) for text in self.texts))
        for name in ("distances", "portraits"):
            keep(self, name, _kept(getattr(self, name)))
        self._check()

    def _check(self) -> None:
        n = self.n_layers * self.n_heads
        if self.n_layers < 1 or self.n_heads < 1:
            raise BadValue(f"{self.n_layers} layers of {self.n_heads} heads; expected some.")
        for fact in self.facts:
            if len(fact.value) != n:
                raise BadValue(
                    f"fact '{fact.key}' has {len(fact.value)} values; expected one for each of "
                    f"{self.n_layers} x {self.n_heads} heads."
                )
        keys = [fact.key for fact in self.facts]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise BadValue(f"fact '{twice}' is there twice; expected every key once.")
        if self.distances.shape != (n, n):
            raise BadValue(f"distances are {self.distances.shape}; expected {(n, n)}.")
        if not np.allclose(self.distances, self.distances.T, equal_nan=True):
            raise BadValue("distances differ by direction; expected a symmetric matrix.")
        if np.nan_to_num(np.diag(self.distances)).any() or np.nanmin([0, *self.distances.flat]) < 0:
            raise BadValue("distances are below 0, or not 0 from a head to itself.")
        if self.portraits.shape != (n, len(self.offsets)):
            raise BadValue(
                f"portraits are {self.portraits.shape}; expected {(n, len(self.offsets))}: a row "
                "per head, a column per offset."
            )
        if len(self.titles) != len(self.texts):
            raise BadValue(f"{len(self.titles)} titles for {len(self.texts)} texts; expected each.")
        for text in self.texts:
            if (text.n_layers, text.n_heads) != (self.n_layers, self.n_heads):
                raise BadValue(
                    f"'{_title(text)}' was read with {text.n_layers} x {text.n_heads} heads; "
                    f"expected {self.n_layers} x {self.n_heads}."
                )
            check_maps(text)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """Names of all heads, layer by layer: 1-1, 1-2, ..."""
        layers, heads = range(1, self.n_layers + 1), range(1, self.n_heads + 1)
        return tuple(f"{layer}-{head}" for layer in layers for head in heads)

    def place(self, head: str) -> int:
        """Where a head such as 5-4 stands among all heads, from 0."""
        named = parsed_head(head)
        assert named is not None
        if not (named[0] <= self.n_layers and named[1] <= self.n_heads):
            raise BadValue(
                f"head {head} does not exist; {self.model} has heads 1-1 to {self.heads[-1]}."
            )
        return (named[0] - 1) * self.n_heads + named[1] - 1

    def fact(self, key: str) -> Fact:
        """The fact with this key."""
        known = {fact.key: fact for fact in self.facts}
        if key not in known:
            near = did_you_mean(key, known)
            raise UnknownName(f"fact '{key}'. {near}Known: {', '.join(known)}.")
        return known[key]

    def table(self) -> pd.DataFrame:
        """All facts, a row per head and fact; details are further columns, empty for other facts.

        Columns: head ("5-4"), layer, number (of the head in its layer), key, value, low, high,
        text (the value as the card shows it), note, name, paper, group, kind, unit, source.
        """
        rows = [
            {
                "head": name,
                "layer": place // self.n_heads + 1,
                "number": place % self.n_heads + 1,
                "key": fact.key,
                "value": fact.value[place],
                "low": None if fact.low is None else fact.low[place],
                "high": None if fact.high is None else fact.high[place],
                "text": fact.text(place),
                "note": None if fact.note is None else fact.note[place],
                "name": fact.name,
                "paper": fact.paper,
                "group": fact.group,
                "kind": fact.kind,
                "unit": fact.unit,
                "source": fact.source,
                **{column: values[place] for column, values in fact.detail.items()},
            }
            for fact in self.facts
            for place, name in enumerate(self.heads)
        ]
        table = pd.DataFrame(rows)
        if rows:
            table[["low", "high"]] = table[["low", "high"]].astype(float)
        return table

    def card(self, head: str) -> dict[str, Any]:
        """All that the page says about a head: a summary, its facts, its portrait, its neighbours.

        The page is made from these cards, so a number here is the number there.
        """
        place = self.place(head)
        return {
            "head": self.heads[place],
            "layer": place // self.n_heads + 1,
            "number": place % self.n_heads + 1,
            "model": self.model,
            "summary": summary(self.facts, place),
            "facts": [self._entry(fact, place) for fact in self.facts],
            "portrait": dict(zip(self.offsets, _plain(self.portraits[place]), strict=True)),
            "nearest": self._neighbours(place, 1),
            "farthest": self._neighbours(place, -1),
        }

    def _entry(self, fact: Fact, place: int) -> dict[str, Any]:
        return {
            "key": fact.key,
            "name": fact.name,
            "paper": fact.paper,
            "group": fact.group,
            "value": fact.value[place],
            "low": None if fact.low is None else fact.low[place],
            "high": None if fact.high is None else fact.high[place],
            "text": fact.text(place),
            "interval": fact.interval(place),
            "rank": fact.ranks[place],
            "ranked": len(fact.numbers),
            "note": None if fact.note is None else fact.note[place],
            "detail": fact.told(place),
            "where": fact.where,
            "source": fact.source,
            "about": fact.about,
        }

    def _neighbours(self, place: int, sign: int) -> list[dict[str, Any]]:
        row = self.distances[place]
        others = [i for i in range(len(row)) if i != place and math.isfinite(row[i])]
        found = sorted(others, key=lambda other: sign * row[other])[:NEIGHBOURS]
        return [
            {"head": self.heads[i], "distance": float(row[i]), "text": f"{row[i]:.3f}"}
            for i in found
        ]

    def save(self, path: str | Path) -> Path:
        """Write the file, whole or not at all."""
        target = Path(path)
        if target.suffix != ".json":
            raise BadValue(f"an atlas is kept as .json; '{target}' ends in '{target.suffix}'.")
        if not target.absolute().parent.is_dir():
            raise BadValue(f"the folder of '{target}' does not exist. Create it first.")
        return write_whole(target, self.document())

    def document(self) -> str:
        """The text of the file."""
        below = [row[:place] for place, row in enumerate(self.distances)]
        parts = {
            "model": self.model,
            "n_layers": self.n_layers,
            "n_heads": self.n_heads,
            "about": self.about,
            "facts": [fact_as_json(fact) for fact in self.facts],
            "distances": rows_as_json(below),
            "portraits": rows_as_json(self.portraits),
            "offsets": self.offsets,
            "titles": self.titles,
            "texts": [reading_as_json(text) for text in self.texts],
        }
        return document_text(parts)


def load(path_or_model: str | Path = "e5-small") -> Atlas:
    """The atlas in a file, or the published one of a model."""
    path = Path(path_or_model)
    if path.suffix != ".json":
        path = PUBLISHED / f"{path_or_model}.json"
        if not path.is_file():
            known = sorted(one.stem for one in PUBLISHED.glob("*.json"))
            raise UnknownName(
                f"there is no atlas of '{path_or_model}'. {did_you_mean(path.stem, known)}"
                f"Published: {', '.join(known) or 'none'}. Give the path of a .json file instead."
            )
    return from_text(file_text(path), str(path))


def from_text(text: str, place: str) -> Atlas:
    """The atlas in the text of a file; `place` is where it was found."""
    stored = document(text, place)
    try:
        return _from_parts(stored)
    except AttnlibError as error:
        fault = str(error)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        fault = f"a part has another shape ({type(error).__name__}: {error})."
    raise AssetError(f"{place} is damaged: {fault} Write it again, or take the committed copy.")


def _from_parts(stored: dict[str, Any]) -> Atlas:
    rows = stored["distances"]
    if [len(row) for row in rows] != list(range(len(rows))):
        raise BadValue("distances are no triangle.")
    distances = np.zeros((len(rows), len(rows)))
    for place, row in enumerate(rows):
        (distances[place, :place],) = rows_from_json([row])
    return Atlas(
        model=stored["model"],
        n_layers=stored["n_layers"],
        n_heads=stored["n_heads"],
        about=stored["about"],
        facts=tuple(fact_from_json(fact) for fact in stored["facts"]),
        distances=distances + distances.T,
        portraits=rows_from_json(stored["portraits"]),
        offsets=tuple(stored["offsets"]),
        texts=tuple(reading_from_json(text) for text in stored["texts"]),
        titles=tuple(stored["titles"]),
    )


def _kept(rows: np.ndarray) -> np.ndarray:
    """A matrix of the numbers that a file keeps."""
    flat = [rounded(value, DIGITS) for value in np.asarray(rows, dtype=float).ravel()]
    return np.array(flat).reshape(np.shape(rows))


def _plain(row: np.ndarray) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in row]


def _title(text: Reading) -> str:
    special = {text.unit[place] for place in text.special}
    words: Sequence[str] = [word for place, word in enumerate(text.units) if place not in special]
    return " ".join(words)
