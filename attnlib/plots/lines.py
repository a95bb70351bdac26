"""Line diagrams: the words of a sentence on both sides, attention as lines between them."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from attnlib.attention.words import N_SPECIAL
from attnlib.errors import BadValue, check_choice
from attnlib.plots import style
from attnlib.plots.drawing import Drawing

MOST_WORDS = 24
LONGEST_WORD = 16
THRESHOLD = 0.04
SPECIAL = frozenset({"[CLS]", "[SEP]"})
QUIET = 0.62
FONT = 8.5
# Inches: a line of words, a line of the title, the gap between panels, the least room for lines.
WORD_LINE, TITLE_LINE, GAP, LEAST_ROOM = 0.185, 0.165, 0.14, 0.66


@dataclass(frozen=True, eq=False)
class Lines:
    """One head on one sentence: a panel of the diagram.

    words      the units of the sentence in reading order, [CLS] and [SEP] among them or not
    weights    (word, word)   row = the word that attends; NaN or 0 where nothing is to be seen
    head       its name, such as "8-10"
    what       what the head does, in a few words
    highlight  places of the words, counted from 0, whose lines carry the colour
    """

    words: Sequence[str]
    weights: Float[np.ndarray, "word word"]
    head: str
    what: str = ""
    highlight: Collection[int] = ()

    @classmethod
    def of_units(
        cls,
        words: Sequence[str],
        weights: Float[np.ndarray, "unit unit"],
        head: str,
        what: str = "",
        highlight: Collection[int] = (),
    ) -> Lines:
        """From a map between units ([CLS], [SEP], then the words): [SEP] goes to the end.

        words      the words alone
        highlight  places among the words alone
        """
        n_units = len(words) + N_SPECIAL
        order = [0, *range(N_SPECIAL, n_units), 1]
        maps = np.asarray(weights, dtype=np.float64)[:n_units, :n_units]
        if maps.shape != (n_units, n_units):
            raise BadValue(
                f"{len(words)} words and a map of shape {np.shape(weights)}; expected "
                f"({n_units}, {n_units}): [CLS], [SEP] and the words."
            )
        marked = frozenset(place + 1 for place in highlight)
        return cls(("[CLS]", *words, "[SEP]"), maps[np.ix_(order, order)], head, what, marked)


def attention_lines(
    words: Sequence[str],
    weights: Float[np.ndarray, "word word"],
    *,
    head: str,
    what: str = "",
    highlight: Collection[int] = (),
    threshold: float = THRESHOLD,
    meaning: str = "syntax",
    caption: str | None = None,
) -> Drawing:
    """One head on one sentence as lines from the words on the left to those on the right."""
    panel = Lines(words, weights, head, what, highlight)
    return attention_line_panels([panel], threshold=threshold, meaning=meaning, caption=caption)


def attention_line_panels(
    panels: Sequence[Lines],
    *,
    threshold: float = THRESHOLD,
    meaning: str = "syntax",
    columns: int | None = None,
    caption: str | None = None,
) -> Drawing:
    """Several heads side by side, two or three to a row (Clark 2019, Fig. 1 and 5).

    threshold  weights below it are not drawn
    meaning    the meaning in the palette whose colour the highlighted lines carry
    columns    panels to a row; without it, three where the words are short enough
    """
    if not panels:
        raise BadValue("no panel to draw; give at least one head on one sentence.")
    if not 0 <= threshold < 1:
        raise BadValue(f"threshold is {threshold}; expected a weight from 0 up to 1.")
    check_choice("meaning", meaning, style.LOOKS)
    maps = [_checked(panel) for panel in panels]
    each = (_links(p, m, i) for i, (p, m) in enumerate(zip(panels, maps, strict=True), 1))
    rows = pd.concat(each, ignore_index=True)
    shown = rows[rows["weight"] >= max(threshold, 1e-9)].reset_index(drop=True)
    with style.drawing():
        figure, axes = _frame(panels, columns)
        for place, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
            _draw(axis, panel, shown[shown["panel"] == place + 1], style.LOOKS[meaning].colour)
    told = " ".join(_spoken(panel, shown, i) for i, panel in enumerate(panels, 1))
    marked = any(panel.highlight for panel in panels)
    text = (
        "Each line runs from the word that attends, on the left, to the word it attends to; "
        "the stronger the line, the more attention. "
        + ("Coloured: attention from the words in bold. " if marked else "")
        + (f"Weights below {threshold:g} are left out." if threshold else "")
    )
    alt = f"Line diagrams of {_heads(panels)}, words on both sides. {told}"
    return Drawing(figure, (caption or text).strip(), alt, shown)


def _checked(panel: Lines) -> np.ndarray:
    """The weights of a panel as an array; says which panel cannot be drawn, and why."""
    n = len(panel.words)
    if not 1 <= n <= MOST_WORDS:
        raise BadValue(
            f"head {panel.head}: the sentence has {n} words; from 1 to {MOST_WORDS} can be read "
            "in a panel. Choose a shorter sentence or a part of it."
        )
    weights = np.asarray(panel.weights, dtype=np.float64)
    if weights.shape != (n, n):
        raise BadValue(
            f"head {panel.head}: {n} words and a map of shape {weights.shape}; expected ({n}, {n})."
        )
    if np.nanmin(weights, initial=0.0) < -1e-6 or np.nanmax(weights, initial=0.0) > 1 + 1e-4:
        raise BadValue(f"head {panel.head}: a weight is not between 0 and 1; give attention.")
    outside = [place for place in panel.highlight if not 0 <= place < n]
    if outside:
        raise BadValue(
            f"head {panel.head}: highlight names place {outside[0]}; expected 0 to {n - 1}."
        )
    return weights


def _links(panel: Lines, weights: np.ndarray, number: int) -> pd.DataFrame:
    """Every pair of words with its weight, the weakest first, so that strong lines lie on top."""
    query, key = np.indices(weights.shape).reshape(2, -1)
    frame = pd.DataFrame(
        {
            "panel": number,
            "head": panel.head,
            "from_place": query,
            "to_place": key,
            "from": [panel.words[q] for q in query],
            "to": [panel.words[k] for k in key],
            "weight": weights.ravel(),
            "highlighted": np.isin(query, list(panel.highlight)),
        }
    )
    return frame.sort_values(["highlighted", "weight"], kind="stable")


def _frame(panels: Sequence[Lines], columns: int | None) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each head; the panels of a row start at the same height."""
    side = max(_width(word) for panel in panels for word in panel.words) + 0.06
    full = style.WIDTHS["wide"]
    if columns is None:
        three = full / 3 - GAP - 2 * side >= LEAST_ROOM and len(panels) != 4
        columns = 3 if three else 2
    columns = min(columns, len(panels))
    room = full / max(columns, 2) - GAP
    side = min(side, 0.42 * room)
    titles = [textwrap.wrap(panel.what, int(room / 0.064)) for panel in panels]
    title = TITLE_LINE * max(map(len, titles)) + 0.42
    tall = [
        WORD_LINE * max(len(panel.words) for panel in panels[start : start + columns]) + title
        for start in range(0, len(panels), columns)
    ]
    width, height = columns * (room + GAP), sum(tall)
    figure = Figure(figsize=(width, height))
    axes = []
    for place, panel in enumerate(panels):
        line, column = divmod(place, columns)
        left, high = column * (room + GAP) + GAP / 2 + side, WORD_LINE * len(panel.words)
        bottom = height - sum(tall[:line]) - title - high
        size = ((room - 2 * side) / width, high / height)
        axes.append(figure.add_axes((left / width, bottom / height, *size)))
        _title(figure, panel.head, titles[place], (left - side) / width, bottom + high + 0.08)
    return figure, axes


def _width(word: str) -> float:
    """Inches of a word in bold. The page's own font is narrower than the one measured here."""
    path = TextPath((0, 0), _short(word) or " ", size=FONT, prop=FontProperties(weight="bold"))
    return float(path.get_extents().width) / 72


def _title(figure: Figure, head: str, what: Sequence[str], left: float, bottom: float) -> None:
    """Head and what it does, flush with the left edge of the words."""
    place: dict[str, Any] = {"ha": "left", "va": "baseline", "parse_math": False}
    height = figure.get_figheight()
    for number, line in enumerate(reversed(what)):
        figure.text(left, (bottom + TITLE_LINE * number) / height, line, fontsize=8, **place)
    top = (bottom + TITLE_LINE * len(what) + 0.02) / height
    figure.text(left, top, _titled(head), fontsize=9.5, fontweight="bold", **place)


def _draw(axis: Axes, panel: Lines, links: pd.DataFrame, accent: str) -> None:
    n = len(panel.words)
    axis.set(xlim=(0, 1), ylim=(n - 0.5, -0.5))
    axis.axis("off")
    weight = links["weight"].to_numpy()
    marked = links["highlighted"].to_numpy()
    plain = style.FAINT
    ends = zip(links["from_place"], links["to_place"], strict=True)
    # Faint lines keep the eye on the coloured ones; without any, all lines are the message.
    dim = 0.75 if marked.any() else 1.0
    colours = [
        to_rgba(accent if m else plain, min(1.0, (0.12 + 0.88 * w) * (1 if m else dim)))
        for w, m in zip(weight, marked, strict=True)
    ]
    axis.add_collection(
        LineCollection(
            [[(0.03, q), (0.97, k)] for q, k in ends],
            colors=colours,
            linewidths=0.5 + 2.1 * weight,
            capstyle="butt",
        )
    )
    for place, word in enumerate(panel.words):
        look: dict[str, Any] = {"fontsize": FONT, "va": "center_baseline", "parse_math": False}
        if place in panel.highlight:
            look["fontweight"] = "bold"
        if word in SPECIAL:
            look["alpha"] = QUIET
        axis.text(0, place, _short(word), ha="right", **look)
        axis.text(1, place, _short(word), ha="left", **look)


def _short(word: str) -> str:
    return word if len(word) <= LONGEST_WORD else word[: LONGEST_WORD - 1] + "…"


def _spoken(panel: Lines, shown: pd.DataFrame, number: int, n: int = 3) -> str:
    """The strongest links of a panel, of the highlighted words if there are any."""
    rows = shown[shown["panel"] == number]
    if rows["highlighted"].any():
        rows = rows[rows["highlighted"]]
    links = [
        f"'{row['from']}' attends to '{row['to']}' {row['weight']:.2f}"
        for _, row in rows.nlargest(n, "weight").iterrows()
    ]
    what = f" ({panel.what})" if panel.what else ""
    return f"{_titled(panel.head)}{what}: {', '.join(links) or 'no line'}."


def _titled(head: str) -> str:
    """A head by its number; anything else, such as a role, has its own name."""
    return f"Head {head}" if head[:1].isdigit() else head


def _heads(panels: Sequence[Lines]) -> str:
    names = list(dict.fromkeys(panel.head for panel in panels))
    return f"head{'s' if len(names) > 1 else ''} {', '.join(names)}"


def as_table(panels: Sequence[Lines]) -> pd.DataFrame:
    """Panels as rows that can be kept: one per pair of words, with both words and the weight."""
    rows = [
        {
            "panel": number,
            "head": panel.head,
            "what": panel.what,
            "query": query,
            "key": key,
            "word": word,
            "highlight": query in panel.highlight,
            "weight": round(float(panel.weights[query, key]), 4),
        }
        for number, panel in enumerate(panels)
        for query, word in enumerate(panel.words)
        for key in range(len(panel.words))
    ]
    columns = ["panel", "head", "what", "query", "key", "word", "highlight", "weight"]
    return pd.DataFrame(rows, columns=columns)


def panels_of(table: pd.DataFrame) -> list[Lines]:
    """The panels behind the rows of `as_table`."""
    found = []
    for _, rows in table.groupby("panel", sort=True):
        weights = rows.pivot(index="query", columns="key", values="weight").to_numpy()
        words = rows.drop_duplicates("query").sort_values("query")
        marked = frozenset(words.loc[words["highlight"], "query"])
        head, what = rows.iloc[0][["head", "what"]]
        found.append(Lines(tuple(words["word"]), weights, str(head), str(what), marked))
    return found
