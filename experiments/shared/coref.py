"""Antecedent selection and its baselines (Clark 2019, sec. 4.3, Table 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from attnlib.data.examples import CorefDocument, Span
from attnlib.errors import UnknownName, did_you_mean

TYPES = ("pronoun", "proper", "nominal")


def _features(table: str) -> dict[str, tuple[str, ...]]:
    rows = (line.split(":") for line in table.strip().splitlines())
    return {word: tuple(given.split()) for words, given in rows for word in words.split()}


# person, number, gender; "-" is open
PRONOUNS = _features(
    """
    i me my mine myself: 1 singular -
    we us our ours ourselves: 1 plural -
    you your yours yourself: 2 - -
    yourselves: 2 plural -
    he him his himself: 3 singular masculine
    she her hers herself: 3 singular feminine
    it its itself this that one: 3 singular neuter
    they them their theirs themselves these those both: 3 plural -
    """
)
NOUNS = _features(
    """
    man boy father son brother husband uncle grandfather nephew king gentleman mr: - - masculine
    woman girl mother daughter sister wife aunt grandmother niece queen lady mrs ms: - - feminine
    people men women children police twins parents: - plural -
    """
)


@dataclass(frozen=True)
class Mention:
    """A coreferent mention; `entity` numbers its cluster in the document."""

    span: Span
    head: int
    type: str
    entity: int
    text: str
    head_text: str


Choose = Callable[[Mention, Sequence[Mention]], Mention | None]
"""From a mention and the mentions before it, nearest first, to the one it is linked to, if any."""


def mentions_of(document: CorefDocument) -> list[Mention]:
    """All mentions of a document, in the order of their head words."""
    found = []
    for entity, cluster in enumerate(document.clusters):
        for span in cluster:
            head = document.head_word(span)
            text = " ".join(document.words[span.start : span.end]).lower()
            kind = document.mention_type(span)
            head_text = document.words[head].lower()
            found.append(Mention(span, head, kind, entity, text, head_text))
    return sorted(found, key=lambda m: (m.head, -len(m.span)))


def questions(document: CorefDocument) -> Iterator[tuple[Mention, list[Mention]]]:
    """Each mention that has an antecedent, with the mentions before it, nearest first.

    Two mentions may share a head word only by nesting; the outer one is not before the inner.
    """
    mentions = mentions_of(document)
    for mention in mentions:
        before = [other for other in reversed(mentions) if other.head < mention.head]
        if any(other.entity == mention.entity for other in before):
            yield mention, before


def nearest(mention: Mention, before: Sequence[Mention]) -> Mention:
    """The nearest other mention."""
    return before[0]


def head_match(mention: Mention, before: Sequence[Mention]) -> Mention | None:
    """The nearest mention with the same head word; none where there is none."""
    return _first(before, lambda other: other.head_text == mention.head_text)


def rule_based(mention: Mention, before: Sequence[Mention]) -> Mention:
    """Four sieves after Lee et al. 2011: the same words, the same head word, agreement, any."""
    sieves: tuple[Callable[[Mention], bool], ...] = (
        lambda other: other.text == mention.text,
        lambda other: other.head_text == mention.head_text,
        lambda other: agree(mention, other),
        lambda other: True,
    )
    return next(found for sieve in sieves if (found := _first(before, sieve)) is not None)


BASELINES: dict[str, Choose] = {
    "nearest": nearest,
    "head match": head_match,
    "rule-based": rule_based,
}


def accuracy(documents: Iterable[CorefDocument], choose: Choose) -> dict[str, tuple[int, int]]:
    """(right, asked) over all documents, for all mentions and by type.

    A choice is right if the chosen mention is any antecedent of the mention, as in the paper.
    """
    counts = dict.fromkeys(("all", *TYPES), (0, 0))
    for document in documents:
        for mention, before in questions(document):
            chosen = choose(mention, before)
            right = chosen is not None and chosen.entity == mention.entity
            for kind in ("all", mention.type):
                counts[kind] = (counts[kind][0] + right, counts[kind][1] + 1)
    return counts


def baseline(name: str) -> Choose:
    if name not in BASELINES:
        raise UnknownName(f"baseline '{name}'. {did_you_mean(name, BASELINES)}")
    return BASELINES[name]


def agree(one: Mention, other: Mention) -> bool:
    """Person, number and gender agree wherever both are known."""
    pairs = zip(features(one), features(other), strict=True)
    return all("-" in (a, b) or a == b for a, b in pairs)


def features(mention: Mention) -> tuple[str, ...]:
    """(person, number, gender) of a mention, by its head word; "-" where it is open."""
    word = mention.head_text
    if mention.type == "pronoun":
        return PRONOUNS.get(word, ("3", "-", "-"))
    _, number, gender = NOUNS.get(word, ("-", "-", "-"))
    if number == "-" and mention.type == "nominal":
        number = "plural" if word.endswith("s") and not word.endswith("ss") else "singular"
    if number == "-" and mention.type == "proper":
        number = "singular"
    return "3", number, gender


def _first(before: Sequence[Mention], fits: Callable[[Mention], bool]) -> Mention | None:
    return next((other for other in before if fits(other)), None)
