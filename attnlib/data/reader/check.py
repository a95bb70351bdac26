"""The Reader's validator: what the parser cannot see because it needs more than one line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from attnlib.data.reader.markup import Mention, Passage, Query

SENTENCES = (4, 9)
WORDS = (60, 120)
LONGEST_ANSWER = 14
SHINGLE = 6
"""Two passages that share a run of this many words are near duplicates."""

PRONOUNS = """
    i me my mine myself you your yours yourself yourselves he him his himself she her hers herself
    it its itself we us our ours ourselves they them their theirs themselves themself
    who whom whose which that this these those one ones both each either neither all some many
    none others another everyone nobody
"""

TAGS = {"pron": {"PRON", "DET"}, "name": {"PROPN"}, "noun": {"NOUN", "NUM", "ADJ"}}
"""Universal part-of-speech tags a head of each type may have."""

Tagger = Callable[[Sequence[str]], Sequence[str]]


def problems(
    passages: Sequence[Passage],
    frames: Mapping[str, Sequence[str]],
    tagger: Tagger | None = None,
) -> list[str]:
    """Every fault found, as `file:line:column: reason`; an empty list is a clean bill."""
    found: list[str] = []
    for passage in passages:
        checks = itertools.chain(
            _size(passage),
            _mentions(passage, tagger),
            _frames(passage, frames),
            _questions(passage),
        )
        found += [f"{passage.path.name}:{where}: {reason}" for where, reason in checks]
    return found + list(_unique(passages)) + list(_near_duplicates(passages))


def _size(passage: Passage) -> Iterator[tuple[str, str]]:
    sizes = {"sentences": (len(passage.sentences), *SENTENCES)}
    sizes["words"] = (len(passage.plain_words), *WORDS)
    for what, (n, fewest, most) in sizes.items():
        if not fewest <= n <= most:
            yield "1:1", f"{n} {what}; expected {fewest} to {most}"


def _mentions(passage: Passage, tagger: Tagger | None) -> Iterator[tuple[str, str]]:
    for entity, mentions in passage.clusters.items():
        if len(mentions) < 2:
            yield mentions[0].at, f"'{entity}' is mentioned once; expected at least twice"
    spans: dict[tuple[int, int], Mention] = {}
    for mention in passage.mentions:
        twin = spans.setdefault((mention.start, mention.end), mention)
        if twin is not mention:
            yield (
                mention.at,
                f"the same words are marked twice ('{twin.entity}', '{mention.entity}')",
            )
        if not mention.start <= mention.head < mention.end:
            yield mention.at, f"the head of '{mention.entity}' lies outside its span"
        if reason := _type_fault(passage, mention):
            yield mention.at, reason
    if tagger is not None:
        yield from _tag_faults(passage, tagger)


def _type_fault(passage: Passage, mention: Mention) -> str:
    """What a reader sees without a tagger: pronouns are a closed list, names are capitalised."""
    head = passage.words[mention.head]
    is_pronoun = head.lower() in PRONOUNS.split()
    opens = any(mention.head == start for start, _ in passage.sentences)
    if mention.type == "pron" and not is_pronoun:
        return f"'{head}' is marked pron, but it is no pronoun"
    if mention.type != "pron" and is_pronoun and mention.end - mention.start == 1:
        return f"'{head}' is marked {mention.type}, but it is a pronoun"
    if mention.type == "name" and not (head[0].isupper() or head[0].isdigit()):
        return f"'{head}' is marked name, but it is not capitalised"
    if mention.type == "noun" and head[0].isupper() and not opens and not mention.overruled:
        return f"'{head}' is marked noun, but it is capitalised inside a sentence"
    return ""


def _tag_faults(passage: Passage, tagger: Tagger) -> Iterator[tuple[str, str]]:
    """Disagreements with a tagger, unless a person has looked and marked the type with '!'."""
    for start, end in passage.sentences:
        tags = tagger(passage.words[start:end])
        for mention in passage.mentions:
            if not start <= mention.head < end or mention.overruled:
                continue
            tag = tags[mention.head - start]
            if tag not in TAGS[mention.type]:
                marked = f"'{passage.words[mention.head]}' is marked {mention.type}"
                advice = "mend one, or write '!' behind the type"
                yield mention.at, f"{marked}, the tagger says {tag}; {advice}"


def _frames(passage: Passage, known: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for frame in passage.frames:
        at = f"{frame.line}:1"
        if frame.frame not in known:
            yield at, f"frame '{frame.frame}' is not in the table of frames"
            continue
        if not frame.elements:
            yield at, f"'{frame.frame}' has no element; expected at least one core element"
        for name, (start, end) in frame.elements:
            if name not in known[frame.frame]:
                core = ", ".join(known[frame.frame])
                yield at, f"'{name}' is no core element of {frame.frame} (it has {core})"
            if start < frame.target[1] and frame.target[0] < end:
                yield at, f"element '{name}' overlaps its predicate"


def _questions(passage: Passage) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for question in passage.questions:
        at = f"{question.line}:1"
        if question.text.lower() in seen:
            yield at, "the same question is asked twice"
        seen.add(question.text.lower())
        if not _kind_fits(question):
            yield at, f"the question does not ask '{question.kind}'"
        length = question.answer[1] - question.answer[0]
        if length > LONGEST_ANSWER:
            yield at, f"the answer has {length} words; expected at most {LONGEST_ANSWER}"


def _kind_fits(question: Query) -> bool:
    words = " ".join(re.findall(r"[a-z]+", question.text.lower()))
    asks = {"who": "who|whom|whose", "how many": "how (many|much)"}.get(
        question.kind, question.kind
    )
    return re.search(rf"\b({asks})\b", words) is not None


def _unique(passages: Sequence[Passage]) -> Iterator[str]:
    for what, key in (("id", lambda p: p.id), ("title", lambda p: p.title)):
        seen: dict[str, Passage] = {}
        for passage in passages:
            twin = seen.setdefault(key(passage), passage)
            if twin is not passage:
                yield f"{passage.path.name}:1:1: its {what} is also that of {twin.path.name}"


def _near_duplicates(passages: Sequence[Passage]) -> Iterator[str]:
    seen: dict[tuple[str, ...], Passage] = {}
    for passage in passages:
        words, twins = passage.plain_words, dict[str, str]()  # the first run shared with each
        for shingle in zip(*(words[i:] for i in range(SHINGLE)), strict=False):
            twin = seen.setdefault(shingle, passage)
            if twin is not passage:
                twins.setdefault(twin.path.name, " ".join(shingle))
        for name, shared in twins.items():
            yield f"{passage.path.name}:1:1: shares '{shared}' with {name}: a near duplicate"
