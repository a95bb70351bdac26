"""Passages as the typed examples that every corpus is made of."""

from __future__ import annotations

from attnlib.data.examples import Answer, CorefDocument, FrameExample, Question, Segment, Span
from attnlib.data.reader.markup import Passage

TYPES = {"pron": "pronoun", "name": "proper", "noun": "nominal"}


def to_segment(passage: Passage) -> Segment:
    """The two paragraphs as the two parts of an input, as Clark 2019 pairs them."""
    first, _, second = passage.text.partition("\n\n")
    gap = len(first) + 2
    starts = _sentence_starts(passage)
    split = (tuple(s for s in starts if s < gap), tuple(s - gap for s in starts if s >= gap))
    return Segment(passage.id, first, second, split)


def _sentence_starts(passage: Passage) -> tuple[int, ...]:
    """The character at which each annotated sentence begins."""
    return tuple(passage.offsets[start][0] for start, _ in passage.sentences)


def to_coref(passage: Passage) -> CorefDocument:
    """All entities of the passage, with their mentions' heads and types."""
    clusters = passage.clusters.values()
    return CorefDocument(
        id=passage.id,
        words=passage.words,
        sentences=tuple(Span(start, end) for start, end in passage.sentences),
        clusters=tuple(tuple(Span(m.start, m.end) for m in c) for c in clusters),
        genre=passage.register,
        mention_heads=tuple(tuple(m.head for m in c) for c in clusters),
        mention_types=tuple(tuple(TYPES[m.type] for m in c) for c in clusters),
    )


def to_frames(passage: Passage) -> list[FrameExample]:
    """One example per predicate: its sentence, its frame and its core elements."""
    found = []
    for number, frame in enumerate(passage.frames, start=1):
        start, end = passage.sentences[frame.sentence]
        found.append(
            FrameExample(
                id=f"{passage.id}-{number}",
                words=passage.words[start:end],
                frame=frame.frame,
                target=Span(frame.target[0] - start, frame.target[1] - start),
                elements=tuple((n, Span(a - start, b - start)) for n, (a, b) in frame.elements),
                core=(True,) * len(frame.elements),
            )
        )
    return found


def to_questions(passage: Passage) -> list[Question]:
    """One example per question, with the whole passage as its context."""
    found = []
    for number, query in enumerate(passage.questions, start=1):
        answer = Answer(passage.surface(*query.answer), passage.offsets[query.answer[0]][0])
        name = f"{passage.id}-{number}"
        starts = ((0,), _sentence_starts(passage))
        found.append(Question(name, query.text, passage.text, (answer,), passage.id, starts))
    return found
