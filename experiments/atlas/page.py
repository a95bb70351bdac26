"""The atlas as a page: a grid of heads in any colour, a card for each, a search; needs nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from attnlib.files import check_out, write_whole
from attnlib.measuring.reading import POWER
from attnlib.plots import style, viewer
from bookkit.pages.ledgerpage import raw
from bookkit.pagetables import paper_name
from bookkit.templates import filled
from experiments.atlas import Atlas, atlas_in, from_text, words
from experiments.atlas.facts import Fact
from experiments.atlas.search import topics
from experiments.guan2020.type_figures import TYPE_LOOKS
from experiments.kovaleva2019.pattern_figures import PATTERN_LOOKS
from experiments.pande2021.role_figures import role_look

CHAPTER = "Do four papers speak of the same heads?"
"""The chapter that draws the atlas. A page on its own has no book around it, so it is named."""
_HERE = Path(__file__).parent
SCRIPTS: tuple[str | Path, ...] = (
    "viewdraw.js",
    *(_HERE / f"{part}.js" for part in ("search", "card", "page")),
)

MARKS = {"o": "●", "D": "◆", "s": "■", "^": "▲", "v": "▼", "x": "✕", "X": "✖", "P": "✚", "*": "★",
         "h": "⬢", "p": "⬟"}  # fmt: skip
"""The marks of the figures as characters, for eyes that cannot tell the colours apart."""

CYCLE = ("syntax", "special", "next", "ours", "cls", "punctuation", "self", "previous", "block")
"""Meanings whose looks are lent to classes that have none of their own, the most common first."""

SHARES = ("share", "percent")
"""Units that start from 0, and of which those of one group are drawn to one scale."""

UP, DOWN = style.LOOKS["special"].colour, style.LOOKS["next"].colour
OURS = style.LOOKS["ours"].colour


def save_page(atlas: Atlas, path: Path, book_root: str | None = None) -> Path:
    """Write the page of an atlas, whole or not at all."""
    check_out(path)
    return write_whole(path, page(atlas, book_root))


def page(atlas: Atlas, book_root: str | None = None) -> str:
    """A whole document: it opens from disk, without a network."""
    title = f"Atlas of the heads of {html.escape(viewer.shown_name(atlas.model))}"
    return viewer.PAGE.format(title=title, viewer=fragment(atlas, book_root))


def fragment(atlas: Atlas, book_root: str | None = None) -> str:
    """The atlas as a part of a page: no ids, all styles under .attn-atlas, no names in the page.

    book_root  the way from the page to the root of the book, such as "../"; without it the places
               in the book that discuss a fact are not linked
    """
    data = page_data(atlas, book_root)
    return filled(
        _HERE / "fragment.html",
        atlas=atlas,
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":")),
        style=viewer.asset(_HERE / "page.css"),
        sleeping=viewer.SLEEPING,
        name=viewer.shown_name(atlas.model),
        chapter=CHAPTER,
        about=words.made_from(atlas.about),
        script=viewer.script(*SCRIPTS),
    )


def atlas_page(executed: Mapping[str, Path]) -> str:
    """The page of the book, from the chapter that carries the atlas, if it was run."""
    path = executed.get("agreement")
    carried = atlas_in(path) if path else None
    atlas = from_text(carried, str(path)) if carried else None
    return filled(_HERE / "atlas.md", shown=raw(fragment(atlas, "../")) if atlas else "")


# What the script knows


def page_data(atlas: Atlas, book_root: str | None) -> dict[str, Any]:
    """All numbers as they are shown: the script places and colours, and formats nothing."""
    cards = [atlas.card(head) for head in atlas.heads]
    telling = next((at for at, fact in enumerate(atlas.facts) if fact.kind == "class"), 0)
    known = atlas.portraits[np.isfinite(atlas.portraits).all(axis=1)]
    average = known.mean(axis=0) if len(known) else np.zeros(len(atlas.offsets))
    titled = zip(atlas.titles, atlas.texts, strict=True)
    return {
        "model": viewer.shown_name(atlas.model),
        "layers": atlas.n_layers,
        "heads": atlas.n_heads,
        "power": POWER,
        "open": _opened(atlas),
        "by": telling,
        "facts": [_column(atlas, at, cards, book_root) for at in range(len(atlas.facts))],
        "summaries": [words.sentences(atlas.facts, place) for place in range(len(cards))],
        "hues": [_hue_of_head(atlas.facts, place) for place in range(len(cards))],
        "near": [_neighbours(atlas, card["nearest"]) for card in cards],
        "far": [_neighbours(atlas, card["farthest"]) for card in cards],
        "distances": [_whole(1e5 * row[:at]) for at, row in enumerate(atlas.distances)],
        "offsets": atlas.offsets,
        "portraits": [_whole(1e4 * row) for row in atlas.portraits],
        "average": _whole(1e4 * average),
        "near_hues": {
            offset: style.LOOKS[name].colour
            for offset, name in ((-1, "previous"), (0, "self"), (1, "next"))
        },
        "distance_hue": OURS,
        "texts": [{"title": t, "pieces": text.tokens, "levels": text.levels} for t, text in titled],
        "topics": [asdict(one) | {"why": "\n".join(one.why)} for one in topics(atlas.facts)],
        **words.QUESTIONS,
    }


def _column(
    atlas: Atlas, at: int, cards: Sequence[dict[str, Any]], book_root: str | None
) -> dict[str, Any]:
    """A fact of all heads. Words stand in one string, a line per head, because that is small."""
    fact, entries = atlas.facts[at], [card["facts"][at] for card in cards]
    lines = {
        part: "\n".join(entry[part] or "" for entry in entries)
        for part in ("text", "interval", "note")
    }
    ends = _bar_ends(atlas.facts, fact)
    same = entries[0]
    linked = book_root is not None and same["where"]
    has_middle = fact.kind == "number" and not fact.diverging and len(fact.numbers)
    return {
        **{part: same[part] for part in ("key", "name", "group", "about", "source", "ranked")},
        "paper": paper_name(fact.paper),
        "kind": fact.kind,
        "link": f"{book_root}{same['where']}" if linked else None,
        "diverging": fact.diverging,
        **lines,
        "detail": "\n".join(", ".join(entry["detail"].values()) for entry in entries),
        "rank": [entry["rank"] for entry in entries],
        "at": None if fact.kind == "class" else _on_bar(fact.value, ends),
        "from": None if fact.low is None else _on_bar(fact.low, ends),
        "to": None if fact.high is None else _on_bar(fact.high, ends),
        "middle": _on_bar(np.quantile(fact.numbers, (0.25, 0.75)), ends) if has_middle else None,
        **_colours(fact),
    }


def _colours(fact: Fact) -> dict[str, Any]:
    """How the grid is coloured by a fact: a strength from -100 to 100, or the place of a class."""
    if fact.kind == "class":
        looks = class_looks(fact)
        place = {name: at for at, name in enumerate(looks)}
        return {
            "shade": [place.get(label) for label in fact.value],
            "classes": [
                {"name": name, "hue": look.colour, "mark": MARKS.get(look.marker, "●")}
                for name, look in looks.items()
            ],
        }
    if fact.kind == "flag":
        hue = role_look(fact.key.removeprefix(words.ROLE)).colour
        return {"shade": _whole(100 * fact.value), "hue": hue}
    low, high = _colour_ends(fact)
    strength = fact.value / high if fact.diverging else (fact.value - low) / ((high - low) or 1.0)
    shown = [low, 0.0, high] if fact.diverging else [low, high]
    return {
        "shade": _whole(100 * strength),
        "hue": UP if fact.diverging else _hue(fact.key),
        "below": DOWN,
        "ends": [words.with_unit(fact, value) for value in shown] if len(fact.numbers) else [],
    }


def class_looks(fact: Fact) -> dict[str, style.Look]:
    """The classes of a fact, each with its look: those of the chapters, then the most common."""
    labels = [label for label in fact.value if not words.missing(label)]
    own = {**TYPE_LOOKS, **PATTERN_LOOKS}
    looks = {name: own[name] for name in own if name in labels}
    lent = [style.LOOKS[name] for name in CYCLE if style.LOOKS[name].colour]
    for name in sorted(set(labels) - set(looks), key=lambda name: (-labels.count(name), name)):
        looks[name] = lent.pop(0) if lent else style.LOOKS["other"]
    return looks


def _hue(key: str) -> str:
    """The colour of a metric, as in the viewer; what has no meaning of its own is ours."""
    name = viewer.ROLES[key][0] if key in viewer.ROLES else style.meaning(key)
    return OURS if name == "other" else style.LOOKS[name].colour


def _hue_of_head(facts: Sequence[Fact], place: int) -> str:
    """The colour of where a head looks most."""
    shares = {fact.key: fact.value[place] for fact in facts if fact.key in viewer.ROLES}
    known = {key: share for key, share in shares.items() if not words.missing(share)}
    return _hue(max(known, key=lambda key: known[key])) if known else OURS


def _opened(atlas: Atlas) -> int:
    """The head that is open at first: the one that looks hardest at one place."""
    near = ("mass_to_next", "mass_to_previous")
    rows = [np.nan_to_num(fact.value) for fact in atlas.facts if fact.key in near]
    return int(np.max(rows, axis=0).argmax()) if rows else 0


def _neighbours(atlas: Atlas, found: Sequence[dict[str, Any]]) -> list[list[Any]]:
    return [[atlas.place(one["head"]), one["text"]] for one in found]


# Places on a bar, from 0 to 1000


def _colour_ends(fact: Fact) -> tuple[float, float]:
    if not len(fact.numbers):
        return 0.0, 1.0
    if fact.diverging:
        most = float(np.abs(fact.numbers).max()) or 1.0
        return -most, most
    return 0.0 if fact.unit in SHARES else float(fact.numbers.min()), float(fact.numbers.max())


def _bar_ends(facts: Sequence[Fact], fact: Fact) -> tuple[float, float]:
    """Ends of the bar on a card. Shares of one group have one scale, so that bars can be compared;
    so have changes of one kind. As intervals of changes can be much wider than these are large,
    they may end outside of it."""
    alike = [f for f in facts if f.kind == "number" and f.diverging == fact.diverging
             and (words.group(f), f.unit) == (words.group(fact), fact.unit)]  # fmt: skip
    if fact.diverging:
        most = max((_colour_ends(f)[1] for f in alike if f.numbers.any()), default=1.0)
        return -most, most
    shown = alike if fact.unit in SHARES else [fact]
    columns = [one for f in shown for one in (_colour_ends(f), f.low, f.high) if one is not None]
    every = np.concatenate(columns)
    return float(np.nanmin(every)), float(np.nanmax(every))


def _on_bar(column: np.ndarray, ends: tuple[float, float]) -> list[int | None]:
    low, high = ends
    return _whole(1000 * np.clip((column - low) / ((high - low) or 1.0), 0.0, 1.0))


def _whole(numbers: np.ndarray) -> list[int | None]:
    """Numbers as whole counts of a small unit, which takes fewer characters."""
    return [round(one) if np.isfinite(one) else None for one in numbers.tolist()]
