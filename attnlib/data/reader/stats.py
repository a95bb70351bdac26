"""What the Reader holds, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from attnlib.data.reader.markup import Frame, Passage

LONGEST_SENTENCE = 12
LONGEST_ELEMENT = 3
NEAREST_LINK = 2


def statistics(passages: Sequence[Passage]) -> dict[str, Any]:
    """Counts over all passages, as `attnlib reader --stats` shows them."""
    mentions = [mention for one in passages for mention in one.mentions]
    questions = [question for one in passages for question in one.questions]
    links = [
        (one, frame, span) for one in passages for frame in one.frames for _, span in frame.elements
    ]
    return {
        "passages": len(passages),
        "sentences": sum(len(one.sentences) for one in passages),
        "words": sum(n_words(one) for one in passages),
        "mentions": len(mentions),
        "entities": sum(len(one.clusters) for one in passages),
        "mentions_by_type": dict(Counter(mention.type for mention in mentions)),
        "nested_mentions": sum(_nested(one) for one in passages),
        "cataphora": sum(_cataphora(one) for one in passages),
        "frames": len({frame.frame for one in passages for frame in one.frames}),
        "predicates": sum(len(one.frames) for one in passages),
        "frame_links": len(links),
        "frame_links_kovaleva": sum(passes_filter(*link) for link in links),
        "questions": len(questions),
        "questions_by_kind": dict(Counter(question.kind for question in questions)),
        "questions_hard": sum(question.hard for question in questions),
        "questions_over_sentences": sum(len(question.sentences) > 1 for question in questions),
        "registers": dict(Counter(one.register for one in passages)),
    }


def n_words(passage: Passage) -> int:
    """Words, punctuation left out."""
    return sum(any(char.isalnum() for char in word) for word in passage.words)


def passes_filter(passage: Passage, frame: Frame, element: tuple[int, int]) -> bool:
    """Kovaleva 2019, sec. 4.2: short sentence, short element, link at least two tokens long."""
    start, end = passage.sentences[frame.sentence]
    before, after = frame.target[0] - (element[1] - 1), element[0] - (frame.target[1] - 1)
    return (
        end - start <= LONGEST_SENTENCE
        and element[1] - element[0] <= LONGEST_ELEMENT
        and max(before, after) >= NEAREST_LINK
    )


def _nested(passage: Passage) -> int:
    """Mentions that lie inside another mention."""
    return sum(
        any(o is not m and o.start <= m.start and m.end <= o.end for o in passage.mentions)
        for m in passage.mentions
    )


def _cataphora(passage: Passage) -> int:
    """Entities whose first mention is a pronoun and that are named later."""
    return sum(
        mentions[0].type == "pron" and any(m.type != "pron" for m in mentions)
        for mentions in passage.clusters.values()
    )
