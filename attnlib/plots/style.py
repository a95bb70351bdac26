"""The look of every figure: colours by meaning, three widths, two colour maps, one ink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
from matplotlib.colors import LinearSegmentedColormap


@dataclass(frozen=True)
class Look:
    """How one meaning is drawn: the mark and the dash carry it when colour cannot."""

    colour: str
    marker: str = "o"
    dash: str | tuple[int, tuple[float, ...]] = "-"


# Hues after Okabe and Ito, moved in lightness until each has a contrast of 3:1 or more against a
# white page and against a near-black one.
LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "special": Look("#d1590a", "X", "-"),
        "next": Look("#0b74b5", "^", (0, (5, 1.5))),
        "previous": Look("#2e97c9", "v", (0, (1.5, 1.2))),
        "self": Look("#8a6d5a", "h", (0, (4, 1, 1, 1))),
        "cls": Look("#c2456b", "p", (0, (8, 2))),
        "punctuation": Look("#8f7a1d", "*", (0, (3.5, 1.2))),
        "syntax": Look("#0c9068", "s", (0, (6, 1.5, 1.5, 1.5))),
        "block": Look("#b9689a", "D", (0, (3, 1, 1, 1, 1, 1))),
        "ours": Look("#7a6fc4", "o", "-"),
        "paper": Look("#80868f", "o", "none"),
        "other": Look("#80868f", "P", (0, (2, 2))),
    }
)

# Which meaning a metric key carries, by the words in it; the first that fits decides.
_MEANINGS = {
    "previous": "previous",
    "next": "next",
    **dict.fromkeys(("cls", "sep", "special", "punct"), "special"),
    **dict.fromkeys(("block", "sentence"), "block"),
    **dict.fromkeys(("syntax", "dep"), "syntax"),
    "entropy": "ours",
}

# The same for classes of tokens and behaviours of heads, which are told apart more finely.
_CLASSES = {
    "sep": "special",
    "cls": "cls",
    **dict.fromkeys(("punct", "period", "comma"), "punctuation"),
    **{name: name for name in ("previous", "next", "self")},
    "broad": "ours",
    **dict.fromkeys(("other", "undefined", "none"), "other"),
}

# Inches. A page column of the book is about 7.2 inches wide on screen.
WIDTHS: Mapping[str, float] = MappingProxyType({"narrow": 4.2, "column": 6.0, "wide": 7.4})

# The page's own text colour replaces INK, so one drawing serves a light and a dark page.
# Both are in page.mplstyle, too.
INK = "#010203"
FAINT = "#8b9199"

SEQUENTIAL = LinearSegmentedColormap.from_list(
    "attnlib_sequential",
    ["#f3f1ea", "#f6d9a4", "#eda566", "#d06a57", "#9b3a5d", "#5b1f58", "#25103a"],
)
DIVERGING = LinearSegmentedColormap.from_list(
    "attnlib_diverging",
    ["#0a3d66", "#2f7fb3", "#9ccbe2", "#f3f1ea", "#f2b98a", "#d1590a", "#6d2a00"],
)

TIGHT: Mapping[str, Any] = MappingProxyType(
    {"handletextpad": 0.4, "columnspacing": 1.4, "borderpad": 0.2}
)
"""A legend that takes little room."""


def meaning(metric: str) -> str:
    """The meaning in the palette that a metric key carries, `other` when it names none."""
    return next((name for word, name in _MEANINGS.items() if word in metric), "other")


def look(metric: str) -> Look:
    """Colour, mark and dash of a metric: the same in every figure of the book."""
    return LOOKS[meaning(metric)]


def class_look(name: str) -> Look:
    """Colour and mark of a class of tokens or of a head's behaviour, by the words in its name."""
    found = (meaning for word, meaning in _CLASSES.items() if word in name.lower())
    return LOOKS[next(found, "syntax")]


SPARE_MARKS = ("s", "D", "8", "<", ">", "P")


_PAGE = mpl.rc_params_from_file(
    Path(__file__).with_name("page.mplstyle"), use_default_template=False
)


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the book's look without touching the reader's own matplotlib settings."""
    with mpl.rc_context(_PAGE):
        yield


def luminance(colour: str) -> float:
    """Relative luminance of a colour, from 0 (black) to 1 (white): what is left of it in grey."""
    channels = mpl.colors.to_rgb(colour)
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, from 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def ink_on(colour: str) -> str:
    """Whichever of black and white can be read better on this colour."""
    return max("white", "black", key=lambda one: contrast(colour, one))
