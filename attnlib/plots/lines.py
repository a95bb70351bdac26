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
from attnlib.errors import BadValue
from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need

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


COLUMNS = ["panel", "head", "what", "query", "key", "word", "highlight", "weight"]


def as_table(panels: Sequence[Lines]) -> pd.DataFrame:
    """Panels as rows that can be kept: one per pair of words, with the word that attends."""
    parts = [pd.DataFrame(columns=COLUMNS)] if not panels else []
    for place, panel in enumerate(panels):
        weights = _checked(panel)
        query, key = np.indices(weights.shape).reshape(2, -1)
        part = pd.DataFrame({"query": query, "key": key, "weight": weights.ravel().round(4)})
        words = np.array(panel.words, dtype=object)[query]
        marked = np.isin(query, list(panel.highlight))
        names = {"panel": place, "head": panel.head, "what": panel.what}
        parts.append(part.assign(**names, word=words, highlight=marked)[COLUMNS])
    return pd.concat(parts, ignore_index=True)


def attention_line_panels(
    table: pd.DataFrame, *, threshold: float = THRESHOLD, caption: str = ""
) -> Drawing:
    """Heads side by side, two or three to a row, as lines between words (Clark 2019, Fig. 1, 5).

    table      the rows of `as_table`
    threshold  weights below it are not drawn
    """
    need(table, *COLUMNS)
    if not 0 <= threshold < 1:
        raise BadValue(f"threshold is {threshold}; expected a weight from 0 up to 1.")
    order = ["panel", "highlight", "weight"]  # strong lines lie on top of weak ones
    shown = table[table["weight"] >= max(threshold, 1e-9)].sort_values(order, ignore_index=True)
    panels = dict(iter(table[table["key"] == 0].groupby("panel")))
    with style.drawing():
        figure, axes = _frame(list(panels.values()))
        for axis, (place, words) in zip(axes, panels.items(), strict=True):
            _draw(axis, words, shown[shown["panel"] == place])
    text = "Lines run from the word that attends, on the left, to the word it attends to; weights "
    text += f"below {threshold:g} are left out."
    return Drawing("Line diagrams, words on both sides", figure, shown, caption or text)


def _checked(panel: Lines) -> np.ndarray:
    """The weights of a panel as an array; says which panel cannot be drawn, and why."""
    n, weights, wrong = len(panel.words), np.asarray(panel.weights, dtype=np.float64), ""
    outside = [place for place in panel.highlight if not 0 <= place < n]
    if not 1 <= n <= MOST_WORDS:
        wrong = (
            f"the sentence has {n} words; from 1 to {MOST_WORDS} can be read in a panel. Choose a "
            "shorter sentence or a part of it"
        )
    elif weights.shape != (n, n):
        wrong = f"{n} words and a map of shape {weights.shape}; expected ({n}, {n})"
    elif np.nanmin(weights, initial=0.0) < -1e-6 or np.nanmax(weights, initial=0.0) > 1 + 1e-4:
        wrong = "a weight is not between 0 and 1; give attention"
    elif outside:
        wrong = f"highlight names place {outside[0]}; expected 0 to {n - 1}"
    if wrong:
        raise BadValue(f"head {panel.head}: {wrong}.")
    return weights


def _frame(panels: Sequence[pd.DataFrame]) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each head; the panels of a row start at the same height.

    panels  head, what, word: one row per word
    """
    side = max(_width(word) for words in panels for word in words["word"]) + 0.06
    full = style.WIDTHS["wide"]
    three = full / 3 - GAP - 2 * side >= LEAST_ROOM and len(panels) != 4
    columns = min(3 if three else 2, len(panels))
    room = full / max(columns, 2) - GAP
    side = min(side, 0.42 * room)
    titles = [textwrap.wrap(words["what"].iloc[0], int(room / 0.064)) for words in panels]
    title = TITLE_LINE * max(map(len, titles)) + 0.42
    tall = [
        WORD_LINE * max(map(len, panels[start : start + columns])) + title
        for start in range(0, len(panels), columns)
    ]
    width, height = columns * (room + GAP), sum(tall)
    figure = Figure(figsize=(width, height))
    axes = []
    for place, words in enumerate(panels):
        line, column = divmod(place, columns)
        left, high = column * (room + GAP) + GAP / 2 + side, WORD_LINE * len(words)
        bottom = height - sum(tall[:line]) - title - high
        size = ((room - 2 * side) / width, high / height)
        axes.append(figure.add_axes((left / width, bottom / height, *size)))
        said: Any = {"ha": "left", "va": "baseline", "parse_math": False, "linespacing": 1.3}
        edge, low = (left - side) / width, bottom + high + 0.08
        figure.text(edge, low / height, "\n".join(titles[place]), fontsize=8, **said)
        low += TITLE_LINE * len(titles[place]) + 0.02
        head = words["head"].iloc[0]
        name = f"Head {head}" if head[:1].isdigit() else head  # a role has its own name
        figure.text(edge, low / height, name, fontsize=9.5, fontweight="bold", **said)
    return figure, axes


def _width(word: str) -> float:
    """Inches of a word in bold. The page's own font is narrower than the one measured here."""
    path = TextPath((0, 0), _short(word) or " ", size=FONT, prop=FontProperties(weight="bold"))
    return float(path.get_extents().width) / 72


def _draw(axis: Axes, words: pd.DataFrame, links: pd.DataFrame) -> None:
    axis.set(xlim=(0, 1), ylim=(len(words) - 0.5, -0.5))
    axis.axis("off")
    weight, marked = links["weight"].to_numpy(), links["highlight"].to_numpy(bool)
    # Faint lines keep the eye on the coloured ones; without any, all lines are the message.
    dim = np.where(marked | ~marked.any(), 1.0, 0.75)
    colours = np.where(marked, style.LOOKS["syntax"].colour, style.FAINT)
    strengths = np.minimum(1.0, (0.12 + 0.88 * weight) * dim)
    ends = links[["query", "key"]].to_numpy()
    axis.add_collection(
        LineCollection(
            [[(0.03, query), (0.97, key)] for query, key in ends],
            colors=list(map(to_rgba, colours, strengths)),
            linewidths=0.5 + 2.1 * weight,
            capstyle="butt",
        )
    )
    for place, word, bold in words[["query", "word", "highlight"]].itertuples(index=False):
        look: Any = {"fontsize": FONT, "va": "center_baseline", "parse_math": False}
        look |= {"fontweight": "bold"} if bold else {}
        look |= {"alpha": QUIET} if word in SPECIAL else {}
        axis.text(0, place, _short(word), ha="right", **look)
        axis.text(1, place, _short(word), ha="left", **look)


def _short(word: str) -> str:
    return word if len(word) <= LONGEST_WORD else word[: LONGEST_WORD - 1] + "…"
