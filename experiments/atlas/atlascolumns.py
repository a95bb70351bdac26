"""What the page of an atlas knows: words as they are shown, places on bars, colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attnlib.plots import style
from attnlib.plots.viewdata import POWER, Reading
from attnlib.plots.viewer import ROLES, shown_name
from bookkit.pagetables import paper_name
from experiments.atlas.atlas import Atlas
from experiments.atlas.atlasfacts import UNITS, Fact
from experiments.atlas.atlastopics import IGNORED, SOFT, topics
from experiments.guan2020.typefigures import TYPE_LOOKS
from experiments.kovaleva2019.patternfigures import PATTERN_LOOKS
from experiments.pande2021.role_figures import role_look

MARKS = {"o": "●", "D": "◆", "s": "■", "^": "▲", "v": "▼", "x": "✕", "X": "✖", "P": "✚", "*": "★",
         "h": "⬢", "p": "⬟"}  # fmt: skip
"""The marks of the figures as characters, for eyes that cannot tell the colours apart."""

CYCLE = ("syntax", "special", "next", "ours", "cls", "punctuation", "self", "previous", "block")
"""Meanings whose looks are lent to classes that have none of their own, the most common first."""

SHARES = ("share", "percent")
"""Units that start from 0, and of which those of one group are drawn to one scale."""

UP, DOWN = style.LOOKS["special"].colour, style.LOOKS["next"].colour


def page_data(atlas: Atlas, book_root: str | None) -> dict[str, Any]:
    """All numbers as they are shown: the script places and colours, and formats nothing."""
    cards = [atlas.card(head) for head in atlas.heads]
    telling = next((at for at, fact in enumerate(atlas.facts) if fact.kind == "class"), 0)
    average = np.nanmean(_or_zero(atlas.portraits), axis=0)
    return {
        "model": shown_name(atlas.model),
        "layers": atlas.n_layers,
        "heads": atlas.n_heads,
        "power": POWER,
        "open": _opened(atlas),
        "by": telling,
        "facts": [_column(atlas, at, cards, book_root) for at in range(len(atlas.facts))],
        "summaries": [card["summary"] for card in cards],
        "hues": [_hue_of_head(atlas.facts, place) for place in range(len(cards))],
        "near": [_neighbours(atlas, card["nearest"]) for card in cards],
        "far": [_neighbours(atlas, card["farthest"]) for card in cards],
        "distances": [_counted(row[:at], 1e5) for at, row in enumerate(atlas.distances)],
        "offsets": atlas.offsets,
        "portraits": [_counted(row, 1e4) for row in atlas.portraits],
        "average": _counted(average, 1e4),
        "near_hues": {
            offset: style.LOOKS[name].colour
            for offset, name in ((-1, "previous"), (0, "self"), (1, "next"))
        },
        "distance_hue": style.LOOKS["ours"].colour,
        "texts": [_text(*one) for one in zip(atlas.titles, atlas.texts, strict=True)],
        "topics": [
            {
                "name": topic.name,
                "words": topic.words,
                "also": topic.also,
                "heads": topic.heads,
                "fact": topic.fact,
                "why": "\n".join(topic.why),
            }
            for topic in topics(atlas.facts)
        ],
        "ignored": IGNORED,
        "soft": SOFT,
    }


def _column(
    atlas: Atlas, at: int, cards: Sequence[dict[str, Any]], book_root: str | None
) -> dict[str, Any]:
    """A fact of all heads. Words stand in one string, a line per head, because that is small."""
    fact, entries = atlas.facts[at], [card["facts"][at] for card in cards]

    def lines(part: str) -> str:
        return "\n".join(entry[part] or "" for entry in entries)

    ends = _bar_ends(atlas.facts, fact)
    return {
        "key": fact.key,
        "name": fact.name,
        "paper": paper_name(fact.paper),
        "kind": fact.kind,
        "group": fact.group,
        "about": fact.about,
        "source": fact.source,
        "link": None if book_root is None or not fact.where else book_root + fact.where,
        "diverging": fact.diverging,
        "text": lines("text"),
        "interval": lines("interval"),
        "note": lines("note"),
        "detail": "\n".join(", ".join(entry["detail"].values()) for entry in entries),
        "rank": [entry["rank"] for entry in entries],
        "ranked": len(fact.numbers),
        "at": _on_bar(fact.value, ends),
        "from": _on_bar(fact.low, ends),
        "to": _on_bar(fact.high, ends),
        "middle": _middle_half(fact, ends),
        **_colours(fact),
    }


def _colours(fact: Fact) -> dict[str, Any]:
    """How the grid is coloured by a fact: a strength from -100 to 100, or the place of a class."""
    if fact.kind == "class":
        looks = class_looks(fact)
        place = {name: at for at, name in enumerate(looks)}
        return {
            "shade": [None if value is None else place[str(value)] for value in fact.value],
            "classes": [
                {"name": name, "hue": look.colour, "mark": MARKS.get(look.marker, "●")}
                for name, look in looks.items()
            ],
        }
    if fact.kind == "flag":
        hue = role_look(fact.key.removeprefix("role_")).colour
        return {
            "shade": [None if value is None else 100 * int(value) for value in fact.value],
            "hue": hue,
        }
    low, high = _colour_ends(fact)
    span = (high - low) or 1.0
    unit = UNITS.get(fact.unit, f" {fact.unit}")
    shown = [low, 0.0, high] if fact.diverging else [low, high]
    return {
        "shade": [
            None
            if value is None
            else round(100 * (value / high if fact.diverging else (value - low) / span))
            for value in map(_as_number, fact.value)
        ],
        "hue": UP if fact.diverging else _hue(fact.key),
        "below": DOWN,
        "ends": [fact.number(value) + unit for value in shown] if fact.numbers else [],
    }


def class_looks(fact: Fact) -> dict[str, style.Look]:
    """The classes of a fact, each with its look: those of the chapters, then the most common."""
    counts: dict[str, int] = {}
    for value in fact.value:
        if isinstance(value, str):
            counts[value] = counts.get(value, 0) + 1
    own = {**TYPE_LOOKS, **PATTERN_LOOKS}
    looks = {name: own[name] for name in own if name in counts}
    lent = [style.LOOKS[name] for name in CYCLE if style.LOOKS[name].colour]
    for name in sorted(set(counts) - set(looks), key=lambda name: (-counts[name], name)):
        looks[name] = lent.pop(0) if lent else style.LOOKS["other"]
    return looks


def _hue(key: str) -> str:
    """The colour of a metric, as in the viewer; what has no meaning of its own is ours."""
    name = ROLES[key][0] if key in ROLES else style.meaning(key)
    return style.LOOKS["ours" if name == "other" else name].colour


def _hue_of_head(facts: Sequence[Fact], place: int) -> str:
    """The colour of where a head looks most."""
    known = {
        fact.key: value
        for fact in facts
        if fact.key in ROLES and isinstance(value := fact.value[place], int | float)
    }
    return _hue(max(known, key=lambda key: known[key])) if known else style.LOOKS["ours"].colour


def _opened(atlas: Atlas) -> int:
    """The head that is open at first: the one that looks hardest at one place."""
    rows = [fact.value for fact in atlas.facts if fact.key in ("mass_to_next", "mass_to_previous")]
    if not rows:
        return 0
    best = np.array([[_as_number(value) or 0.0 for value in row] for row in rows]).max(axis=0)
    return int(best.argmax())


# Places on a bar, from 0 to 1000


def _colour_ends(fact: Fact) -> tuple[float, float]:
    if not fact.numbers:
        return 0.0, 1.0
    if fact.diverging:
        most = max(map(abs, fact.numbers)) or 1.0
        return -most, most
    return 0.0 if fact.unit in SHARES else min(fact.numbers), max(fact.numbers)


def _bar_ends(facts: Sequence[Fact], fact: Fact) -> tuple[float, float]:
    """Ends of the bar on a card. Shares of one group have one scale, so that bars can be compared;
    so have changes of one kind. As intervals of changes can be much wider than these are large,
    they may end outside of it."""
    alike = [f for f in facts if f.kind == "number" and f.diverging == fact.diverging
             and (f.group, f.unit) == (fact.group, fact.unit)]  # fmt: skip
    if fact.diverging:
        most = max((abs(value) for f in alike for value in f.numbers), default=0.0)
        return -(most or 1.0), most or 1.0
    found = [end for f in (alike if fact.unit in SHARES else [fact]) for end in _all_ends(f)]
    return min(found), max(found)


def _all_ends(fact: Fact) -> list[float]:
    """Ends of the colours, and of all intervals."""
    columns = (fact.low or (), fact.high or ())
    return [*_colour_ends(fact), *(end for column in columns for end in column if end is not None)]


def _on_bar(column: Sequence[Any] | None, ends: tuple[float, float]) -> list[int | None] | None:
    if column is None or any(isinstance(value, str) for value in column):
        return None
    return [None if value is None else _place(value, ends) for value in column]


def _place(value: float, ends: tuple[float, float]) -> int:
    low, high = ends
    return round(1000 * min(1.0, max(0.0, (value - low) / ((high - low) or 1.0))))


def _middle_half(fact: Fact, ends: tuple[float, float]) -> list[int] | None:
    if fact.kind != "number" or fact.diverging or not fact.numbers:
        return None
    return [_place(float(end), ends) for end in np.quantile(fact.numbers, (0.25, 0.75))]


def _neighbours(atlas: Atlas, found: Sequence[dict[str, Any]]) -> list[list[Any]]:
    return [[atlas.place(one["head"]), one["text"]] for one in found]


def _text(title: str, text: Reading) -> dict[str, Any]:
    return {"title": title, "pieces": text.tokens, "levels": text.levels}


def _as_number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _counted(row: np.ndarray, scale: float) -> list[int | None]:
    """Numbers as whole counts of a small unit, which takes fewer characters."""
    return [round(scale * float(value)) if math.isfinite(value) else None for value in row]


def _or_zero(rows: np.ndarray) -> np.ndarray:
    """Rows of which at least one is known; nothing else is averaged."""
    known = rows[np.isfinite(rows).all(axis=1)]
    return known if len(known) else np.zeros((1, rows.shape[1]))
