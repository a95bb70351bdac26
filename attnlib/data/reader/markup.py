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


_LABEL = re.compile(r"([a-z][a-z0-9-]*):([a-z]+)(!?)")
_MARKUP = re.compile(r"\|[^\[\]]*\]?|[\[\]^]|[^\[\]^|]+")
_Line = tuple[int, str]  # counted from 1


@dataclass
class _Bracket:
    """A mention while its line is read; places count characters of the line without markup."""

    column: int
    start: int
    end: int = 0
    head: int | None = None
    entity: str = ""
    type: str = ""
    overruled: bool = False


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

    def fail(self, line: int, column: int, reason: str) -> ReaderError:
        return ReaderError(f"{self.path.name}:{line}:{column}: {reason}")

    def expect(self, fine: bool, line: int, column: int, reason: str) -> None:
        if not fine:
            raise self.fail(line, column, reason)

    def passage(self) -> Passage:
        (title, register), body, sections = self._split()
        second = self._body(body)
        return Passage(
            id=self.path.stem,
            path=self.path,
            title=title,
            register=register,
            words=tuple(self.words),
            offsets=tuple(self.offsets),
            sentences=tuple(self.sentences),
            second_paragraph=second,
            text=self.text,
            mentions=tuple(self.mentions),
            frames=tuple(self._frame(n, line) for n, line in sections["frames"]),
            questions=tuple(self._question(n, line) for n, line in sections["questions"]),
        )

    def _split(self) -> tuple[tuple[str, str], list[_Line], dict[str, list[_Line]]]:
        """Title and register, body lines (empty ones kept), the lines of the two sections."""
        lines = list(enumerate(self.path.read_text(encoding="utf-8").splitlines(), start=1))
        blank = next((i for i, (_, line) in enumerate(lines) if not line.strip()), None)
        if blank is None:
            raise self.fail(1, 1, "no empty line after the head; expected title, register, text")
        head = self._head(lines[:blank])
        body: list[_Line] = []
        sections: dict[str, list[_Line]] = {"frames": [], "questions": []}
        where = body
        for number, line in lines[blank + 1 :]:
            if line.startswith("="):
                name = line[1:].strip()
                known = name in sections
                self.expect(known, number, 1, f"section '{name}'; expected frames or questions")
                where = sections[name]
            elif where is body or line.strip():
                where.append((number, line))
        return head, body, sections

    def _head(self, lines: list[_Line]) -> tuple[str, str]:
        """The title and the register."""
        found: dict[str, str] = {}
        for number, line in lines:
            key, _, value = line.partition(":")
            fine = key in ("title", "register") and bool(value.strip())
            self.expect(fine, number, 1, "expected 'title: ...' or 'register: ...'")
            found[key] = value.strip()
        for key in ("title", "register"):
            self.expect(key in found, 1, 1, f"the head has no '{key}:' line")
        register, known = found["register"], ", ".join(REGISTERS)
        fine = register in REGISTERS
        self.expect(fine, 1, 1, f"register '{register}'; expected one of {known}")
        return found["title"], register

    def _body(self, lines: list[_Line]) -> int:
        """Add the sentences of both paragraphs; returns the first sentence of the second."""
        blocks = groupby(lines, key=lambda line: bool(line[1].strip()))
        paragraphs = [list(block) for has_text, block in blocks if has_text]
        at = lines[0][0] if lines else 1
        fine = len(paragraphs) == 2
        self.expect(fine, at, 1, f"{len(paragraphs)} paragraphs; expected two")
        for number, line in paragraphs[0]:
            self._sentence(number, line, before=" " if self.text else "")
        for place, (number, line) in enumerate(paragraphs[1]):
            self._sentence(number, line, before=" " if place else "\n\n")
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
            where = (number, one.column)
            whole = one.start in starts and one.end in ends
            self.expect(
                whole, *where, f"the mention of '{one.entity}' begins or ends inside a word"
            )
            start, end = starts[one.start], ends[one.end]
            head = start if one.head is None else starts.get(one.head, -1)
            marked = one.head is not None or end - start == 1
            self.expect(marked, *where, "a mention of several words needs one '^'")
            self.expect(start <= head < end, *where, "'^' does not stand before a word")
            self.mentions.append(
                Mention(start, end, head, one.entity, one.type, one.overruled, *where)
            )

    def _without_markup(self, number: int, line: str) -> tuple[str, list[_Bracket]]:
        """The text of a line, and the mentions marked in it, inner ones first."""
        text = ""
        open_: list[_Bracket] = []
        closed: list[_Bracket] = []
        for match in _MARKUP.finditer(line):
            mark, column = match[0], match.start() + 1
            if mark == "[":
                open_.append(_Bracket(column, len(text)))
            elif mark == "^":
                is_open = bool(open_)
                self.expect(is_open, number, column, "'^' marks a head, but no mention is open")
                first = open_[-1].head is None
                self.expect(first, number, column, "a second '^' in the same mention")
                open_[-1].head = len(text)
            elif mark == "]":
                raise self.fail(number, column, "']' without '|entity:type' before it")
            elif mark[0] == "|":
                self.expect(bool(open_), number, column, "'|' outside a mention")
                self.expect(mark[-1] == "]", number, open_[-1].column, "'[' is never closed")
                one = open_.pop()
                self._label(number, column + 1, mark[1:-1], one)
                empty = not text[one.start :].strip()
                self.expect(not empty, number, one.column, "an empty mention")
                one.end = len(text)
                closed.append(one)
            else:
                text += mark
        if open_:
            raise self.fail(number, open_[-1].column, "'[' is never closed")
        return text, closed

    def _label(self, number: int, column: int, given: str, mention: _Bracket) -> None:
        """Read `entity:type` or `entity:type!` into a mention."""
        label = _LABEL.fullmatch(given)
        if label is None or label[2] not in TYPES:
            types = ", ".join(TYPES)
            reason = f"label '{given}'; expected entity:type, type one of {types}"
            raise self.fail(number, column, reason)
        mention.entity, mention.type, mention.overruled = label[1], label[2], bool(label[3])

    def _frame(self, number: int, line: str) -> Frame:
        head, colon, rest = line.partition(":")
        fine = bool(colon) and head.strip().isdigit()
        self.expect(fine, number, 1, "expected the number of a sentence and ':'")
        sentence = self._known_sentence(number, 1, head)
        predicate, *more = (part.strip() for part in rest.split("|"))
        form = "'sentence: predicate | Frame | Element: words ...'"
        self.expect(len(more) > 1, number, len(head) + 2, f"expected {form}")
        target = self._find(number, line, predicate, sentence)
        elements = []
        for part in more[1:]:
            name, colon, words = (word.strip() for word in part.partition(":"))
            fine = bool(colon and re.fullmatch(r"[A-Z][A-Za-z_0-9-]*", name))
            self.expect(fine, number, line.find(part) + 1, f"'{part}'; expected 'Element: words'")
            elements.append((name, self._find(number, line, words, sentence)))
        return Frame(sentence, more[0], target, tuple(elements), number)

    def _question(self, number: int, line: str) -> Query:
        head, colon, rest = line.partition(":")
        kind, hard = head.strip().removesuffix("*"), head.strip().endswith("*")
        fine = bool(colon) and kind in KINDS
        self.expect(fine, number, 1, f"kind '{kind}'; expected one of {', '.join(KINDS)}")
        fields = [part.strip() for part in rest.split("|")]
        fine = len(fields) == 3 and bool(re.fullmatch(r"\d+(\s+\d+)*", fields[2]))
        form = "'kind: question? | answer | sentence numbers'"
        self.expect(fine, number, len(head) + 2, f"expected {form}")
        text, answer, places = fields
        self.expect(text.endswith("?"), number, len(head) + 2, "the question does not end in '?'")
        column = line.rfind("|") + 2
        needed = tuple(self._known_sentence(number, column, one) for one in places.split())
        return Query(kind, text, self._find(number, line, answer, needed[0]), needed, hard, number)

    def _known_sentence(self, number: int, column: int, given: str) -> int:
        """The place of a sentence that is named by its number."""
        sentence, n = int(given), len(self.sentences)
        self.expect(1 <= sentence <= n, number, column, f"sentence {sentence}; the passage has {n}")
        return sentence - 1

    def _find(self, number: int, line: str, wanted: str, sentence: int) -> tuple[int, int]:
        """The word span of `words`, or of the n-th `words#n`, in a sentence."""
        where = (number, line.find(wanted) + 1)
        words, _, nth = wanted.partition("#")
        target = WORD.findall(words)
        start, end = self.sentences[sentence]
        last = end - len(target)
        places = [i for i in range(start, last + 1) if self.words[i : i + len(target)] == target]
        n, name = len(places), f"'{words}'"
        there = bool(target and places)
        self.expect(there, *where, f"{name} does not occur in sentence {sentence + 1}")
        hint = f"write {words}#1 to #{n}"
        clear = bool(nth) or n == 1
        self.expect(clear, *where, f"{name} occurs {n} times in sentence {sentence + 1}; {hint}")
        fine = not nth or (nth.isdigit() and 1 <= int(nth) <= n)
        self.expect(fine, *where, f"'{wanted}': it occurs {n} times")
        place = places[int(nth) - 1 if nth else 0]
        return place, place + len(target)
