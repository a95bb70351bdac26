"""The atlas of heads: all that the chapters found out about each head of a model, in one file.

The file is JSON in UTF-8, `"kind": "attnlib atlas"`, `"format": 2`. It holds evidence and no
sentences; those are made when a page is drawn (`words`). Its parts:

    model      the name of the model
    n_layers   n_heads: heads are always listed layer by layer
    about      what it was made from: edition, inputs, seeds, versions, licence
    facts      one object per fact, with the parts of `facts.Fact`; a part that is empty is left
               out, and null stands for a value that is not known
    distances  Jensen-Shannon divergence of every two heads: 1-1 and 1-2, 1-1 and 1-3, ...
               (`scipy.spatial.distance.squareform` makes the matrix)
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

import base64
import binascii
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.spatial.distance import squareform

from attnlib.errors import AssetError, AttnlibError, BadValue, check_known, unknown
from attnlib.files import write_whole
from attnlib.measuring.reading import Reading
from bookkit.executed import carried
from experiments.atlas.facts import Fact, Skill, plain, significant
from experiments.atlas.words import entry, summary

__all__ = ["Atlas", "Fact", "Skill", "from_text", "load"]

PUBLISHED = Path(__file__).parents[2] / "book" / "published" / "atlas"
KIND = "attnlib atlas"
CARRIED = "attnlib.atlas"
"""Under this name an output of an executed notebook carries the atlas, as metadata."""
FORMAT = 2
DIGITS = 5
"""Significant digits of distances and portraits; facts keep more."""
NEIGHBOURS = 5
"""So many nearest, and so many farthest, heads stand on a card."""
MEND = "Write it again, or take the committed copy."


@dataclass(frozen=True, eq=False)
class Atlas:
    """All that is known of the heads of one model.

    about      edition, inputs, seeds, versions, licence: what a reader may want to know
    facts      what is known of every head; `fact("entropy")` finds one
    distances  mean Jensen-Shannon divergence between heads; NaN where it was not measured
    portraits  mean attention by distance key - query, at each of `offsets`; NaN likewise
    texts      example sentences as the model reads them, with the maps of all heads
    titles     the same sentences as they were written
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
    titles: tuple[str, ...]

    def __post_init__(self) -> None:
        """Keep of numbers what a file keeps, and check the parts against each other."""
        vars(self).update(
            facts=tuple(self.facts),
            offsets=tuple(map(int, self.offsets)),
            texts=tuple(map(_rounded, self.texts)),
            titles=tuple(self.titles),
            distances=significant(self.distances, DIGITS),
            portraits=significant(self.portraits, DIGITS),
        )
        if fault := next(self._faults(), ""):
            raise BadValue(fault)

    def _faults(self) -> Iterator[str]:
        """What is wrong with the parts, a sentence each."""
        n, size = self.n_layers * self.n_heads, f"{self.n_layers} x {self.n_heads}"
        if min(self.n_layers, self.n_heads) < 1:
            yield f"{size} heads; expected some."
        keys = Counter(fact.key for fact in self.facts)
        for fact in self.facts:
            if len(fact.value) != n:
                values = f"{len(fact.value)} values"
                yield f"fact '{fact.key}' has {values}; expected one for each of {size} heads."
            if keys[fact.key] > 1:
                yield f"fact '{fact.key}' is there twice; expected every key once."
        shapes = {"distances": (n, n), "portraits": (n, len(self.offsets))}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                yield f"{name} are {getattr(self, name).shape}; expected {shape}."
        if not np.allclose(self.distances, self.distances.T, equal_nan=True):
            yield "distances differ by direction; expected a symmetric matrix."
        if np.nan_to_num(np.diag(self.distances)).any() or (self.distances < 0).any():
            yield "distances are below 0, or not 0 from a head to itself."
        if len(self.titles) != len(self.texts):
            yield f"{len(self.titles)} titles for {len(self.texts)} texts; expected each."
        for text in self.texts:
            if (text.n_layers, text.n_heads) != (self.n_layers, self.n_heads):
                read = f"{text.n_layers} x {text.n_heads}"
                yield f"'{' '.join(text.units)}' was read with {read} heads; expected {size}."
            for layer, sheet in enumerate(text.sheets, start=1):
                if _unpacked_size(sheet) != text.n_heads * len(text.tokens) ** 2:
                    what = f"the maps of layer {layer} of '{' '.join(text.units)}'"
                    yield f"{what} do not unpack to a weight for each head and pair of pieces."

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """Names of all heads, layer by layer: 1-1, 1-2, ..."""
        layers, heads = range(1, self.n_layers + 1), range(1, self.n_heads + 1)
        return tuple(f"{layer}-{head}" for layer in layers for head in heads)

    def place(self, head: str) -> int:
        """Where a head such as 5-4 stands among all heads, from 0."""
        if head not in self.heads:
            known = f"{self.model} has heads 1-1 to {self.heads[-1]}"
            raise BadValue(f"head '{head}' does not exist; {known}.")
        return self.heads.index(head)

    def fact(self, key: str) -> Fact:
        """The fact with this key."""
        known = {fact.key: fact for fact in self.facts}
        check_known("fact", [key], known)
        return known[key]

    def table(self) -> pd.DataFrame:
        """All facts, a row per head and fact; details are further columns, empty for other facts.

        Columns: head ("5-4"), layer, number (of the head in its layer), key, value, low, high,
        text (the value as the card shows it), note, name, paper, group, kind, unit, source.
        """
        shown = ("key", "value", "low", "high", "text", "note", "name", "paper", "group")
        rows = [
            self._named(place)
            | {name: told[name] for name in shown}
            | {"kind": fact.kind, "unit": fact.unit, "source": fact.source}
            | {name: column[place] for name, column in fact.detail.items()}
            for fact in self.facts
            for place in range(len(self.heads))
            if (told := entry(fact, place))
        ]
        return pd.DataFrame(rows)

    def card(self, head: str) -> dict[str, Any]:
        """All that the page says about a head: a summary, its facts, its portrait, its neighbours.

        The page is made from these cards, so a number here is the number there.
        """
        place = self.place(head)
        return {
            **self._named(place),
            "model": self.model,
            "summary": summary(self.facts, place),
            "facts": [entry(fact, place) for fact in self.facts],
            "portrait": dict(zip(self.offsets, plain(self.portraits[place]), strict=True)),
            "nearest": self._neighbours(place, 1),
            "farthest": self._neighbours(place, -1),
        }

    def _named(self, place: int) -> dict[str, Any]:
        layer, head = divmod(place, self.n_heads)
        return {"head": self.heads[place], "layer": layer + 1, "number": head + 1}

    def _neighbours(self, place: int, sign: int) -> list[dict[str, Any]]:
        row = pd.Series(sign * self.distances[place], index=self.heads).drop(self.heads[place])
        found = (sign * row.dropna().sort_values(kind="stable")[:NEIGHBOURS]).items()
        return [{"head": head, "distance": one, "text": f"{one:.3f}"} for head, one in found]

    def save(self, path: str | Path) -> Path:
        """Write the file, whole or not at all."""
        target = Path(path)
        if target.suffix != ".json":
            raise BadValue(f"an atlas is kept as .json; '{target}' ends in '{target.suffix}'.")
        return write_whole(target, self.document())

    def document(self) -> str:
        """The file: a line for each fact, portrait and text, so that a change shows where it is."""
        parts: dict[str, Any] = {"kind": KIND, "format": FORMAT}
        parts |= {one.name: getattr(self, one.name) for one in fields(self)}
        parts["facts"] = [fact.as_json() for fact in self.facts]
        parts["distances"] = squareform(self.distances, checks=False)
        lines = {name: _json(part) for name, part in parts.items()}
        for name in ("facts", "portraits", "texts"):
            lines[name] = "[\n" + ",\n".join(map(_json, parts[name])) + "\n]"
        return "{\n" + ",\n".join(f'"{name}":{line}' for name, line in lines.items()) + "\n}\n"

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        """In a notebook: a sentence for the page, and all of it for programs and the book."""
        text = f"{len(self.heads)} heads of {self.model}, {len(self.facts)} facts of each."
        link = '<a href="../book/atlas.html">Open the atlas.</a>'
        page = f'<p class="attn-note">{text} {link}</p>'
        # As one string: a notebook would spread the lists over a line per number.
        return {"text/plain": text, "text/html": page}, {CARRIED: [self.document()]}


def load(path_or_model: str | Path = "e5-small") -> Atlas:
    """The atlas in a file, or the published one of a model."""
    path = Path(path_or_model)
    if path.suffix != ".json":
        path = PUBLISHED / f"{path_or_model}.json"
        if not path.is_file():
            known = sorted(one.stem for one in PUBLISHED.glob("*.json"))
            how = f"Published: {', '.join(known) or 'none'}. Give the path of a .json file instead."
            raise unknown(f"there is no atlas of '{path_or_model}'", path.stem, known, how)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise AssetError(f"{path} cannot be read ({error.strerror}); expected an atlas.") from None
    return from_text(text, str(path))


def from_text(text: str | bytes, place: str) -> Atlas:
    """The atlas in the text of a file; `place` is where it was found."""
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        stored = None
    if stored is None:
        fault = f"is cut short, damaged, or no JSON; expected an atlas of heads. {MEND}"
    elif not isinstance(stored, dict) or stored.get("kind") != KIND:
        fault = f'is JSON of another kind; expected an atlas of heads, with "kind": "{KIND}".'
    elif stored.get("format") != FORMAT:
        fault = f"has the format {stored.get('format')}; this version reads {FORMAT}. {MEND}"
    else:
        try:
            return _from_parts(stored)
        except AttnlibError as error:
            fault = f"is damaged: {error} {MEND}"
        except KeyError as error:
            fault = f"is damaged: it has no part {error}. {MEND}"
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            what = f"a part has another shape ({type(error).__name__}: {error})"
            fault = f"is damaged: {what}. {MEND}"
    raise AssetError(f"{place} {fault}")


def _from_parts(stored: dict[str, Any]) -> Atlas:
    parts = {one.name: stored[one.name] for one in fields(Atlas)}
    parts["distances"] = squareform(np.array(parts["distances"], dtype=float))
    parts["portraits"] = np.array(parts["portraits"], dtype=float)
    parts["facts"] = [Fact(**fact) for fact in parts["facts"]]
    parts["texts"] = [_reading(text) for text in parts["texts"]]
    return Atlas(**parts)


def _reading(stored: dict[str, Any]) -> Reading:
    parts = {n: tuple(part) if isinstance(part, list) else part for n, part in stored.items()}
    values = {key: np.array(grid, dtype=float) for key, grid in stored["values"].items()}
    return Reading(**parts | {"values": values})


def _rounded(text: Reading) -> Reading:
    return replace(text, values={n: significant(v, DIGITS) for n, v in text.values.items()})


def _unpacked_size(sheet: str) -> int:
    """How many bytes the packed maps of a layer hold; -1 if they cannot be unpacked."""
    try:
        return len(zlib.decompress(base64.b64decode(sheet, validate=True)))
    except (zlib.error, binascii.Error):
        return -1


def _json(part: Any) -> str:
    return json.dumps(
        part, default=plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


def atlas_in(path: Path) -> str | None:
    """The text of the atlas that an executed notebook carries; None where it has none."""
    return next(iter(carried(path, CARRIED)), None)


def publish(executed: Iterable[Path], folder: Path) -> None:
    """Write the atlas that an executed chapter carries as the file that researchers load."""
    for path in executed:
        text = atlas_in(path)
        if text is not None:
            atlas = from_text(text, path.name)
            (folder / "atlas").mkdir(parents=True, exist_ok=True)
            atlas.save(folder / "atlas" / f"{atlas.model}.json")
