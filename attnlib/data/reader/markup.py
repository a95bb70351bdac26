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
from itertools import groupby
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
    at: str
    """Its line and column in the file, as messages have them."""


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
    def plain_words(self) -> list[str]:
        """The words without punctuation, in lower case."""
        return [word.lower() for word in self.words if any(c.isalnum() for c in word)]

    @property
    def clusters(self) -> dict[str, list[Mention]]:
        """Mentions by entity, in the order of the text."""
        found: dict[str, list[Mention]] = {}
        for mention in sorted(self.mentions, key=lambda m: (m.start, -m.end)):
            found.setdefault(mention.entity, []).append(mention)
        return found


# --- reading a file -----------------------------------------------------------------------------


_LABEL = re.compile(rf"([a-z][a-z0-9-]*):({'|'.join(TYPES)})(!?)")
_MARKUP = re.compile(r"\|[^\[\]]*\]?|[\[\]^]|[^\[\]^|]+")
_Line = tuple[int, str]  # counted from 1
_Place = tuple[int, int]  # line and column


@dataclass
class _Bracket:
    """A mention while its line is read; places count characters of the line without markup."""

    column: int
    start: int
    end: int = 0
    head: int | None = None
    label: tuple[str, str, bool] = ("", "", False)  # entity, type, overruled


def parse(path: Path) -> Passage:
    """The passage in a file; every complaint names file, line and column."""
    return _Parser(path).passage()


class _Parser:
    """One file, read top to bottom: head lines, two paragraphs, frames, questions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.words: list[str] = []
        self.offsets: list[tuple[int, int]] = []
        self.sentences: list[tuple[int, int]] = []
        self.mentions: list[Mention] = []
        self.text = ""

    def expect(self, fine: object, at: _Place, reason: str) -> None:
        if not fine:
            raise ReaderError(f"{self.path.name}:{at[0]}:{at[1]}: {reason}")

    def passage(self) -> Passage:
        head, body, sections = self._split()
        second = self._body(body)
        return Passage(
            id=self.path.stem,
            path=self.path,
            title=head["title"],
            register=head["register"],
            words=tuple(self.words),
            offsets=tuple(self.offsets),
            sentences=tuple(self.sentences),
            second_paragraph=second,
            text=self.text,
            mentions=tuple(self.mentions),
            frames=tuple(self._frame(n, line) for n, line in sections["frames"]),
            questions=tuple(self._question(n, line) for n, line in sections["questions"]),
        )

    def _split(self) -> tuple[dict[str, str], list[_Line], dict[str, list[_Line]]]:
        """Title and register, body lines (empty ones kept), the lines of the two sections."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        head: dict[str, str] = {}
        body: list[_Line] = []
        sections: dict[str, list[_Line]] = {"frames": [], "questions": []}
        where = None
        for number, line in enumerate(lines, start=1):
            if where is None and line.strip():
                key, _, value = line.partition(":")
                fine = key in ("title", "register") and value.strip()
                self.expect(fine, (number, 1), "expected 'title: ...' or 'register: ...'")
                head[key] = value.strip()
            elif where is None:
                where = body
            elif line.startswith("="):
                name = line[1:].strip()
                reason = f"section '{name}'; expected frames or questions"
                self.expect(name in sections, (number, 1), reason)
                where = sections[name]
            elif where is body or line.strip():
                where.append((number, line))
        for key in ("title", "register"):
            self.expect(key in head, (1, 1), f"the head has no '{key}:' line")
        reason = f"register '{head['register']}'; expected one of {', '.join(REGISTERS)}"
        self.expect(head["register"] in REGISTERS, (1, 1), reason)
        return head, body, sections

    def _body(self, lines: list[_Line]) -> int:
        """Add the sentences of both paragraphs; returns the first sentence of the second."""
        blocks = groupby(lines, key=lambda line: bool(line[1].strip()))
        paragraphs = [list(block) for has_text, block in blocks if has_text]
        at = (lines[0][0] if lines else 1, 1)
        self.expect(len(paragraphs) == 2, at, f"{len(paragraphs)} paragraphs; expected two")
        for gap, paragraph in zip(("", "\n\n"), paragraphs, strict=True):
            for place, (number, line) in enumerate(paragraph):
                self._sentence(number, line, before=" " if place else gap)
        return len(paragraphs[0])

    def _sentence(self, number: int, line: str, before: str) -> None:
        """Cut a sentence without its markup into words, and lay its mentions on them."""
        text, brackets = self._without_markup(number, line)
        self.text += before
        first, base = len(self.words), len(self.text)
        self.text += text.rstrip()
        found = list(WORD.finditer(text))
        self.words += [match[0] for match in found]
        self.offsets += [(base + match.start(), base + match.end()) for match in found]
        self.sentences.append((first, len(self.words)))
        starts = {match.start(): word for word, match in enumerate(found, start=first)}
        ends = {match.end(): word + 1 for word, match in enumerate(found, start=first)}
        for one in brackets:
            at = (number, one.column)
            reason = f"the mention of '{one.label[0]}' begins or ends inside a word"
            self.expect(one.start in starts and one.end in ends, at, reason)
            start, end = starts[one.start], ends[one.end]
            head = start if one.head is None else starts.get(one.head, -1)
            marked = one.head is not None or end - start == 1
            self.expect(marked, at, "a mention of several words needs one '^'")
            self.expect(start <= head < end, at, "'^' does not stand before a word")
            self.mentions.append(Mention(start, end, head, *one.label, f"{number}:{one.column}"))

    def _without_markup(self, number: int, line: str) -> tuple[str, list[_Bracket]]:
        """The text of a line, and the mentions marked in it, inner ones first."""
        text = ""
        open_: list[_Bracket] = []
        closed: list[_Bracket] = []
        for match in _MARKUP.finditer(line):
            mark, at = match[0], (number, match.start() + 1)
            if mark == "[":
                open_.append(_Bracket(at[1], len(text)))
            elif mark == "^":
                self.expect(open_, at, "'^' marks a head, but no mention is open")
                self.expect(open_[-1].head is None, at, "a second '^' in the same mention")
                open_[-1].head = len(text)
            elif mark[0] == "|":
                self.expect(open_, at, "'|' outside a mention")
                one = open_.pop()
                self.expect(mark[-1] == "]", (number, one.column), "'[' is never closed")
                label = _LABEL.fullmatch(mark[1:-1])
                types = ", ".join(TYPES)
                reason = f"label '{mark[1:-1]}'; expected entity:type, type one of {types}"
                self.expect(label, (number, at[1] + 1), reason)
                self.expect(text[one.start :].strip(), (number, one.column), "an empty mention")
                assert label is not None  # that was expected
                one.end, one.label = len(text), (label[1], label[2], bool(label[3]))
                closed.append(one)
            else:
                self.expect(mark != "]", at, "']' without '|entity:type' before it")
                text += mark
        self.expect(not open_, (number, open_[-1].column if open_ else 1), "'[' is never closed")
        return text, closed

    def _frame(self, number: int, line: str) -> Frame:
        head, colon, rest = line.partition(":")
        fine = colon and head.strip().isdigit()
        self.expect(fine, (number, 1), "expected the number of a sentence and ':'")
        sentence = self._known_sentence((number, 1), head)
        predicate, *more = (part.strip() for part in rest.split("|"))
        form = "expected 'sentence: predicate | Frame | Element: words ...'"
        self.expect(len(more) > 1, (number, len(head) + 2), form)
        target = self._find(number, line, predicate, sentence)
        elements = []
        for part in more[1:]:
            name, _, words = (word.strip() for word in part.partition(":"))
            named = ":" in part and re.fullmatch(r"[A-Z][A-Za-z_0-9-]*", name)
            at = (number, line.find(part) + 1)
            self.expect(named, at, f"'{part}'; expected 'Element: words'")
            elements.append((name, self._find(number, line, words, sentence)))
        return Frame(sentence, more[0], target, tuple(elements), number)

    def _question(self, number: int, line: str) -> Query:
        head, colon, rest = line.partition(":")
        kind, hard = head.strip().removesuffix("*"), head.strip().endswith("*")
        reason = f"kind '{kind}'; expected one of {', '.join(KINDS)}"
        self.expect(colon and kind in KINDS, (number, 1), reason)
        fields = [part.strip() for part in rest.split("|")]
        fine = len(fields) == 3 and re.fullmatch(r"\d+(\s+\d+)*", fields[2])
        at = (number, len(head) + 2)
        self.expect(fine, at, "expected 'kind: question? | answer | sentence numbers'")
        text, answer, places = fields
        self.expect(text.endswith("?"), at, "the question does not end in '?'")
        at = (number, line.rfind("|") + 2)
        needed = tuple(self._known_sentence(at, one) for one in places.split())
        return Query(kind, text, self._find(number, line, answer, needed[0]), needed, hard, number)

    def _known_sentence(self, at: _Place, given: str) -> int:
        """The place of a sentence that is named by its number."""
        sentence, n = int(given), len(self.sentences)
        self.expect(1 <= sentence <= n, at, f"sentence {sentence}; the passage has {n}")
        return sentence - 1

    def _find(self, number: int, line: str, wanted: str, sentence: int) -> tuple[int, int]:
        """The word span of `words`, or of the n-th `words#n`, in a sentence."""
        at = (number, line.find(wanted) + 1)
        words, _, nth = wanted.partition("#")
        target = WORD.findall(words)
        start, end = self.sentences[sentence]
        last = end - len(target)
        places = [i for i in range(start, last + 1) if self.words[i : i + len(target)] == target]
        n, where = len(places), f"in sentence {sentence + 1}"
        self.expect(target and places, at, f"'{words}' does not occur {where}")
        reason = f"'{words}' occurs {n} times {where}; write {words}#1 to #{n}"
        self.expect(nth or n == 1, at, reason)
        fine = not nth or (nth.isdigit() and 1 <= int(nth) <= n)
        self.expect(fine, at, f"'{wanted}': it occurs {n} times")
        place = places[int(nth) - 1 if nth else 0]
        return place, place + len(target)
