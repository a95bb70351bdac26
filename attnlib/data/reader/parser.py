"""Read a passage file into a Passage; every complaint names file, line and column."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from attnlib.data.reader.markup import (
    KINDS,
    REGISTERS,
    TYPES,
    WORD,
    Frame,
    Mention,
    Passage,
    Query,
    ReaderError,
)

LABEL = re.compile(r"([a-z][a-z0-9-]*):([a-z]+)(!?)")


@dataclass
class _Open:
    """A bracket that waits to be closed: where it began in the file and in the text."""

    column: int
    start: int
    head: int | None = None


@dataclass
class _Sentence:
    """A sentence without its markup, with mentions as character spans."""

    line: int
    text: str
    mentions: list[tuple[int, int, int | None, str, str, bool, int]] = field(default_factory=list)


def parse(path: Path) -> Passage:
    """The passage in a file."""
    return Parser(path).passage()


class Parser:
    """One file, read top to bottom: head lines, two paragraphs, frames, questions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.words: list[str] = []
        self.offsets: list[tuple[int, int]] = []
        self.sentences: list[tuple[int, int]] = []
        self.mentions: list[Mention] = []
        self.text = ""

    def fail(self, line: int, column: int, reason: str) -> ReaderError:
        return ReaderError(f"{self.path.name}:{line}:{column}: {reason}")

    def passage(self) -> Passage:
        heads, body, sections = self._split()
        second = self._body(body)
        return Passage(
            id=self.path.stem,
            path=self.path,
            title=heads["title"],
            register=heads["register"],
            words=tuple(self.words),
            offsets=tuple(self.offsets),
            sentences=tuple(self.sentences),
            second_paragraph=second,
            text=self.text,
            mentions=tuple(self.mentions),
            frames=tuple(self._frame(n, line) for n, line in sections["frames"]),
            questions=tuple(self._question(n, line) for n, line in sections["questions"]),
        )

    def _split(
        self,
    ) -> tuple[dict[str, str], list[tuple[int, str]], dict[str, list[tuple[int, str]]]]:
        """Head lines, body lines (empty ones kept), and the lines of the two sections."""
        numbered = list(enumerate(self.lines, start=1))
        blank = next((i for i, (_, line) in enumerate(numbered) if not line.strip()), None)
        if blank is None:
            raise self.fail(1, 1, "no empty line after the head; expected title, register, text")
        heads = self._heads(numbered[:blank])
        body: list[tuple[int, str]] = []
        sections: dict[str, list[tuple[int, str]]] = {"frames": [], "questions": []}
        where = body
        for number, line in numbered[blank + 1 :]:
            if line.startswith("="):
                name = line[1:].strip()
                if name not in sections:
                    raise self.fail(number, 1, f"section '{name}'; expected frames or questions")
                where = sections[name]
            elif where is body or line.strip():
                where.append((number, line))
        return heads, body, sections

    def _heads(self, lines: list[tuple[int, str]]) -> dict[str, str]:
        heads: dict[str, str] = {}
        for number, line in lines:
            key, colon, value = line.partition(":")
            if not colon or key not in ("title", "register") or not value.strip():
                raise self.fail(number, 1, "expected 'title: ...' or 'register: ...'")
            heads[key] = value.strip()
        for key in ("title", "register"):
            if key not in heads:
                raise self.fail(1, 1, f"the head has no '{key}:' line")
        if heads["register"] not in REGISTERS:
            known = ", ".join(REGISTERS)
            raise self.fail(1, 1, f"register '{heads['register']}'; expected one of {known}")
        return heads

    def _body(self, lines: list[tuple[int, str]]) -> int:
        """Add the sentences of both paragraphs; returns the first sentence of the second."""
        paragraphs: list[list[tuple[int, str]]] = [[]]
        for number, line in lines:
            if line.strip():
                paragraphs[-1].append((number, line))
            elif paragraphs[-1]:
                paragraphs.append([])
        paragraphs = [p for p in paragraphs if p]
        if len(paragraphs) != 2:
            at = lines[0][0] if lines else 1
            raise self.fail(at, 1, f"{len(paragraphs)} paragraphs; expected two")
        for place, paragraph in enumerate(paragraphs):
            self.text += "\n\n" if place else ""
            for first, (number, line) in enumerate(paragraph):
                self.text += " " if first else ""
                self._add(self._strip(number, line))
        return len(paragraphs[0])

    def _strip(self, number: int, line: str) -> _Sentence:
        """Take the brackets out of a line and remember what they said."""
        sentence = _Sentence(number, "")
        open_: list[_Open] = []
        at = 0
        while at < len(line):
            char = line[at]
            if char == "[":
                open_.append(_Open(at + 1, len(sentence.text)))
            elif char == "^":
                if not open_:
                    raise self.fail(number, at + 1, "'^' marks a head, but no mention is open")
                if open_[-1].head is not None:
                    raise self.fail(number, at + 1, "a second '^' in the same mention")
                open_[-1].head = len(sentence.text)
            elif char == "|":
                at = self._close(number, line, at, sentence, open_)
            elif char == "]":
                raise self.fail(number, at + 1, "']' without '|entity:type' before it")
            else:
                sentence.text += char
            at += 1
        if open_:
            raise self.fail(number, open_[-1].column, "'[' is never closed")
        return sentence

    def _close(
        self, number: int, line: str, bar: int, sentence: _Sentence, open_: list[_Open]
    ) -> int:
        """Read `|entity:type]`; returns where the `]` stands."""
        if not open_:
            raise self.fail(number, bar + 1, "'|' outside a mention")
        end = line.find("]", bar)
        if end < 0 or "[" in line[bar:end]:
            raise self.fail(number, open_[-1].column, "'[' is never closed")
        label = LABEL.fullmatch(line[bar + 1 : end])
        if label is None or label[2] not in TYPES:
            raise self.fail(
                number,
                bar + 2,
                f"label '{line[bar + 1 : end]}'; expected entity:type, type one of "
                + ", ".join(TYPES),
            )
        began = open_.pop()
        if not sentence.text[began.start :].strip():
            raise self.fail(number, began.column, "an empty mention")
        sentence.mentions.append(
            (
                began.start,
                len(sentence.text),
                began.head,
                label[1],
                label[2],
                bool(label[3]),
                began.column,
            )
        )
        return end

    def _add(self, sentence: _Sentence) -> None:
        """Cut a sentence into words and lay its mentions on them."""
        first, base = len(self.words), len(self.text)
        for match in WORD.finditer(sentence.text):
            self.words.append(match[0])
            self.offsets.append((base + match.start(), base + match.end()))
        self.sentences.append((first, len(self.words)))
        starts = {self.offsets[i][0] - base: i for i in range(first, len(self.words))}
        ends = {self.offsets[i][1] - base: i + 1 for i in range(first, len(self.words))}
        self.text += sentence.text.rstrip()
        for start, end, head, entity, type_, overruled, column in sentence.mentions:
            if start not in starts or end not in ends:
                raise self.fail(
                    sentence.line, column, f"the mention of '{entity}' begins or ends inside a word"
                )
            low, high = starts[start], ends[end]
            if head is None and high - low > 1:
                raise self.fail(sentence.line, column, "a mention of several words needs one '^'")
            if head is not None and not (head in starts and low <= starts[head] < high):
                raise self.fail(sentence.line, column, "'^' does not stand before a word")
            where = low if head is None else starts[head]
            self.mentions.append(
                Mention(low, high, where, entity, type_, overruled, sentence.line, column)
            )

    def _frame(self, number: int, line: str) -> Frame:
        sentence, rest, column = self._sentence_of(number, line)
        fields = [part.strip() for part in rest.split("|")]
        if len(fields) < 3:
            raise self.fail(
                number, column, "expected 'sentence: predicate | Frame | Element: words ...'"
            )
        target = self._find(number, line, fields[0], sentence)
        elements = []
        for part in fields[2:]:
            name, colon, words = part.partition(":")
            if not colon or not re.fullmatch(r"[A-Z][A-Za-z_0-9-]*", name.strip()):
                raise self.fail(number, line.find(part) + 1, f"'{part}'; expected 'Element: words'")
            elements.append((name.strip(), self._find(number, line, words.strip(), sentence)))
        return Frame(sentence, fields[1], target, tuple(elements), number)

    def _sentence_of(self, number: int, line: str) -> tuple[int, str, int]:
        head, colon, rest = line.partition(":")
        if not colon or not head.strip().isdigit():
            raise self.fail(number, 1, "expected the number of a sentence and ':'")
        sentence = int(head)
        if not 1 <= sentence <= len(self.sentences):
            raise self.fail(
                number, 1, f"sentence {sentence}; the passage has {len(self.sentences)}"
            )
        return sentence - 1, rest, len(head) + 2

    def _question(self, number: int, line: str) -> Query:
        head, colon, rest = line.partition(":")
        kind, hard = head.strip().removesuffix("*"), head.strip().endswith("*")
        if not colon or kind not in KINDS:
            raise self.fail(number, 1, f"kind '{kind}'; expected one of {', '.join(KINDS)}")
        fields = [part.strip() for part in rest.split("|")]
        if len(fields) != 3 or not all(n.isdigit() for n in fields[2].split()) or not fields[2]:
            raise self.fail(
                number, len(head) + 2, "expected 'kind: question? | answer | sentence numbers'"
            )
        if not fields[0].endswith("?"):
            raise self.fail(number, len(head) + 2, "the question does not end in '?'")
        needed = tuple(int(n) - 1 for n in fields[2].split())
        for sentence in needed:
            if not 0 <= sentence < len(self.sentences):
                raise self.fail(
                    number,
                    line.rfind("|") + 2,
                    f"sentence {sentence + 1}; the passage has {len(self.sentences)}",
                )
        answer = self._find(number, line, fields[1], needed[0])
        return Query(kind, fields[0], answer, needed, hard, number)

    def _find(self, number: int, line: str, wanted: str, sentence: int) -> tuple[int, int]:
        """The word span of `words`, or of the n-th `words#n`, in a sentence."""
        column = line.find(wanted) + 1
        words, _, nth = wanted.partition("#")
        target = [match[0] for match in WORD.finditer(words)]
        start, end = self.sentences[sentence]
        places = [
            i
            for i in range(start, end - len(target) + 1)
            if self.words[i : i + len(target)] == target
        ]
        if not target or not places:
            raise self.fail(number, column, f"'{words}' does not occur in sentence {sentence + 1}")
        if not nth and len(places) > 1:
            raise self.fail(
                number,
                column,
                f"'{words}' occurs {len(places)} times in sentence {sentence + 1}; "
                f"write {words}#1 to #{len(places)}",
            )
        if nth and not (nth.isdigit() and 1 <= int(nth) <= len(places)):
            raise self.fail(number, column, f"'{wanted}': it occurs {len(places)} times")
        place = places[int(nth) - 1 if nth else 0]
        return place, place + len(target)
