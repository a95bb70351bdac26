"""The file of an atlas: its parts as plain JSON, and the checks when one is read."""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from attnlib.errors import AssetError, BadValue
from attnlib.measuring.reading import Reading
from experiments.atlas.atlasfacts import Fact, rounded

FORMAT = 1
KIND = "attnlib atlas"
PARTS = (
    *("model", "n_layers", "n_heads", "about", "facts", "distances"),
    *("portraits", "offsets", "titles", "texts"),
)
DIGITS = 5
"""Significant digits of distances and portraits; facts keep more."""


def document_text(parts: Mapping[str, Any]) -> str:
    """The file: a line for each fact, text and row, so that a change of one changes one line."""
    lines = [f'"kind":{_json(KIND)}', f'"format":{FORMAT}']
    for name in PARTS:
        part = parts[name]
        if name in ("facts", "distances", "portraits", "texts"):
            lines.append(f'"{name}":[\n' + ",\n".join(_json(one) for one in part) + "\n]")
        else:
            lines.append(f'"{name}":{_json(part)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def file_text(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise AssetError(f"{path} cannot be read ({error.strerror}); expected an atlas.") from None
    except UnicodeDecodeError:
        raise AssetError(_broken(str(path))) from None


def _broken(place: str) -> str:
    return (
        f"{place} is cut short, damaged, or no JSON; expected an atlas of heads. "
        "Write it again, or take the committed copy."
    )


def document(text: str, place: str) -> dict[str, Any]:
    """The parts of a text, which is one of ours and whole; `place` is where it was found."""
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise AssetError(_broken(place)) from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise AssetError(
            f'{place} is JSON of another kind; expected an atlas of heads, with "kind": "{KIND}". '
            "Give another file."
        )
    if found.get("format") != FORMAT:
        raise AssetError(
            f"{place} has the format {found.get('format')}; this version reads {FORMAT}. "
            "Write it again with this version, or install the one it was written with."
        )
    if missing := [name for name in PARTS if name not in found]:
        raise AssetError(
            f"{place} has no {' and no '.join(missing)}; expected an atlas with "
            f"{', '.join(PARTS)}. Write it again."
        )
    return found


def fact_as_json(fact: Fact) -> dict[str, Any]:
    """A fact, without what it does not have."""
    found = {one.name: getattr(fact, one.name) for one in fields(Fact)}
    return {name: part for name, part in found.items() if part not in (None, {}, "", False)}


def fact_from_json(stored: Mapping[str, Any]) -> Fact:
    """The fact that was stored; an unknown or missing part is named."""
    known = {one.name for one in fields(Fact)}
    if strange := sorted(set(stored) - known):
        raise BadValue(f"fact '{stored.get('key')}' has an unknown part '{strange[0]}'.")
    missing = [n for n in ("key", "name", "paper", "kind", "group", "value") if n not in stored]
    if missing:
        raise BadValue(f"fact '{stored.get('key')}' has no {missing[0]}.")
    return Fact(**{"unit": "", **stored})


def reading_as_json(reading: Reading) -> dict[str, Any]:
    """A text as a model reads it; its maps stay packed as they are."""
    return {
        "model": reading.model,
        "tokens": reading.tokens,
        "unit": reading.unit,
        "units": reading.units,
        "special": reading.special,
        "n_heads": reading.n_heads,
        "levels": reading.levels,
        "values": {key: rows_as_json(grid) for key, grid in reading.values.items()},
        "sheets": reading.sheets,
    }


def reading_from_json(stored: Mapping[str, Any]) -> Reading:
    """The text that was stored."""
    reading = Reading(
        model=stored["model"],
        tokens=tuple(stored["tokens"]),
        unit=tuple(stored["unit"]),
        units=tuple(stored["units"]),
        values={key: rows_from_json(grid) for key, grid in stored["values"].items()},
        levels=stored["levels"],
        sheets=tuple(stored["sheets"]),
        n_heads=stored["n_heads"],
        special=tuple(stored["special"]),
    )
    check_maps(reading)
    return reading


def check_maps(reading: Reading) -> None:
    """Refuse maps that do not unpack to one weight per head and pair of pieces."""
    n = len(reading.tokens)
    for layer, sheet in enumerate(reading.sheets, start=1):
        try:
            size = len(zlib.decompress(base64.b64decode(sheet, validate=True)))
        except (zlib.error, binascii.Error):
            size = -1
        if size != reading.n_heads * n * n:
            raise BadValue(
                f"the maps of layer {layer} of '{' '.join(reading.units)}' do not unpack to "
                f"{reading.n_heads} heads on {n} pieces."
            )


def rows_as_json(rows: Iterable[np.ndarray]) -> list[list[float | None]]:
    """A matrix; null stands for what is not known."""
    return [[rounded(v, DIGITS) if math.isfinite(v) else None for v in row] for row in rows]


def rows_from_json(rows: Iterable[Iterable[float | None]]) -> np.ndarray:
    """The matrix that was stored."""
    return np.array([[math.nan if v is None else v for v in row] for row in rows], dtype=float)


def _json(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
