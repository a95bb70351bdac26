"""The Reader's text format: one passage a file, and a parser that points at the mistake.

    title: The letter
    register: narrative

    [Mara ^Voss|mara:name] kept [the ^light|light:noun] at Carrow Point.
    One night [she|mara:pron] found [[its|light:pron] ^door|door:noun] open.

    Nobody but [she|mara:pron] had a key to [that ^door|door:noun].
    ...

    = frames
    2: found | Locating | Perceiver: she | Sought_entity: its door
    = questions
    who: Who kept the light? | Mara Voss | 1
    why*: Why was she uneasy? | Nobody but she had a key | 3 2

One sentence a line, an empty line between the two paragraphs. A mention is `[words|entity:type]`,
may hold other mentions, and marks its head word with `^` unless it is one word. Types are
`pron`, `name` and `noun`; `!` behind the type says that a person overruled the tagger. A frame
names its sentence, the predicate, the frame and its core elements; `her#2` is the second `her`
of the sentence. A question names its kind, `*` if it is hard, the answer, and the sentences it
needs, the one that holds the answer first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from attnlib.errors import AttnlibError

REGISTERS = ("news", "narrative", "instructions", "encyclopaedia", "dialogue", "science")
TYPES = ("pron", "name", "noun")
KINDS = ("who", "what", "where", "when", "how many", "how", "why", "which")

WORD = re.compile(
    r"(?:Dr|Mr|Mrs|Ms|St|Prof)\."  # titles keep their full stop
    r"|(?:[A-Za-z]\.){2,}"  # a.m., U.S.
    r"|\d+(?:[.,:]\d+)*"  # 1,200  3.5  10:45
    r"|[^\W\d_]+(?=n['’]t\b)|n['’]t\b"  # did n't
    r"|['’](?:s|re|ve|ll|d|m)\b"  # her sister 's
    r"|[^\W_]+(?:-[^\W_]+)*"  # words and compounds
    r"|\S",  # any other mark stands alone
    re.UNICODE,
)


class ReaderError(AttnlibError):
    """A mistake in a passage: file, line, column and reason."""


@dataclass(frozen=True)
class Mention:
    """Words [start, end) of the passage that speak of an entity; `head` is a word inside."""

    start: int
    end: int
    head: int
    entity: str
    type: str
    overruled: bool
    line: int
    column: int


@dataclass(frozen=True)
class Frame:
    """A predicate and its core elements, as word spans of the passage."""

    sentence: int
    frame: str
    target: tuple[int, int]
    elements: tuple[tuple[str, tuple[int, int]], ...]
    line: int


@dataclass(frozen=True)
class Query:
    """A question, its answer as a word span, and the sentences one must have read."""

    kind: str
    text: str
    answer: tuple[int, int]
    sentences: tuple[int, ...]
    hard: bool
    line: int


@dataclass(frozen=True)
class Passage:
    """One annotated passage; all spans count words from the start of the passage."""

    id: str
    path: Path
    title: str
    register: str
    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    sentences: tuple[tuple[int, int], ...]
    second_paragraph: int
    text: str
    mentions: tuple[Mention, ...]
    frames: tuple[Frame, ...]
    questions: tuple[Query, ...]

    def surface(self, start: int, end: int) -> str:
        """The text of a word span, as it is printed."""
        return self.text[self.offsets[start][0] : self.offsets[end - 1][1]]

    @property
    def clusters(self) -> dict[str, list[Mention]]:
        """Mentions by entity, in the order of the text."""
        found: dict[str, list[Mention]] = {}
        for mention in sorted(self.mentions, key=lambda m: (m.start, -m.end)):
            found.setdefault(mention.entity, []).append(mention)
        return found
