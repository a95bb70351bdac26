"""What the Reader holds: counts, and a passage with its annotation in colour for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from rich.console import Group
from rich.text import Text

from attnlib.data.reader.convert import to_frames
from attnlib.data.reader.markup import Passage

INKS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")


def statistics(passages: Sequence[Passage]) -> dict[str, Any]:
    """Counts over all passages, as `attnlib reader --stats` shows them."""
    mentions = [mention for one in passages for mention in one.mentions]
    questions = [question for one in passages for question in one.questions]
    frames = [frame for one in passages for frame in to_frames(one)]
    links = [(frame, span) for frame in frames for _, span in frame.elements]
    return {
        "passages": len(passages),
        "sentences": sum(len(one.sentences) for one in passages),
        "words": sum(len(one.plain_words) for one in passages),
        "mentions": len(mentions),
        "entities": sum(len(one.clusters) for one in passages),
        "mentions_by_type": dict(Counter(mention.type for mention in mentions)),
        "nested_mentions": sum(_nested(one) for one in passages),
        "cataphora": sum(_cataphora(one) for one in passages),
        "frames": len({frame.frame for frame in frames}),
        "predicates": len(frames),
        "frame_links": len(links),
        "frame_links_kovaleva": sum(frame.passes_filter(span) for frame, span in links),
        "questions": len(questions),
        "questions_by_kind": dict(Counter(question.kind for question in questions)),
        "questions_hard": sum(question.hard for question in questions),
        "questions_over_sentences": sum(len(question.sentences) > 1 for question in questions),
        "registers": dict(Counter(one.register for one in passages)),
    }


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


def listed(value: Any) -> str:
    """A count, or counts by name from the largest down."""
    if not isinstance(value, dict):
        return str(value)
    ordered = sorted(value.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {count}" for name, count in ordered)


def shown(passage: Passage) -> Group:
    """The passage with its annotation, to be printed."""
    inks = dict(zip(passage.clusters, cycle(INKS), strict=False))
    text = Text(passage.text + "\n")
    for mention in sorted(passage.mentions, key=lambda m: m.start - m.end):
        # outer mentions first, so that an inner one keeps its own colour
        start, end = passage.offsets[mention.start][0], passage.offsets[mention.end - 1][1]
        text.stylize(inks[mention.entity], start, end)
    entities, frames, questions = (
        Text(f"{what}\n", style="bold") for what in ("Entities", "Frames", "Questions")
    )
    for entity, mentions in passage.clusters.items():
        words = " · ".join(passage.surface(m.start, m.end) for m in mentions)
        entities.append(f"  {entity}: {words}\n", style=inks[entity])
    for frame in passage.frames:
        parts = "; ".join(f"{name}: {passage.surface(*span)}" for name, span in frame.elements)
        target = passage.surface(*frame.target)
        frames.append(f"  {target} ({frame.frame}) {parts}\n", style="none")
    for query in passage.questions:
        hard = " (hard)" if query.hard else ""
        questions.append(f"  {query.text} {passage.surface(*query.answer)}{hard}\n", style="none")
    title = Text(f"{passage.title}  ", style="bold").append(f"({passage.register})\n", style="dim")
    return Group(title, text, entities, frames, questions)
