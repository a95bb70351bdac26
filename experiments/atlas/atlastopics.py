"""What a search in the atlas can find: topics in plain words, and the heads that answer them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from experiments.atlas.atlasfacts import Fact
from experiments.atlas.atlaswords import DISABLED, RELATIONS, other_words, plain_words, role_facts

OPPOSITES = {"entropy": ("broad, spread out, wide", "narrow, focused, sharp, low")}
"""Facts of which the low end is asked for, too: words for its high and its low end."""

IGNORED = (
    "a all an and are as at by can do does find finds finding for from get give have has head "
    "heads i in is it its me of on or show that the their them these they to what when where "
    "which who with"
)
SOFT = "attend attends attention look looks looking token tokens word words piece type role most"
"""Words that may help to choose, but need not be found."""

MOST = 12
"""So many heads are found by a number: those with the most of it."""
HARMLESS = -0.5
"""Points that a head may cost and still count as not needed, as in the chapter on disabling."""
ENDS = (("rises", "more, higher, gains"), ("falls", "less, lower, loses"))
DISABLED_ENDS = (
    ("gains", "better without, improves"),
    ("loses", "worse without, needed, hurts, important"),
)
LOSS_ENDS = (DISABLED_ENDS[1], DISABLED_ENDS[0])
"""Words for numbers above and below 0; for changes of a score when a head is disabled; and for
those of a loss, of which more is worse."""
RELATION_AND_NUMBER = re.compile(r"\b([a-z]+(?::[a-z]+)?)[\s(:=]+(\d+(?:\.\d+)?)")
"""A label in the evidence stands before its number; `case` alone may be any word."""
CLAUSES = re.compile(r";\s*(?![^()]*\))")
"""What separates the clauses of the evidence; not what stands in brackets."""
ORDERED_BY = ("bias", "score", "margin", "stability", "silhouette", "accuracy", "share", "n")
"""Details by which the heads of a class or with a role are ordered, the first that is there."""


@dataclass(frozen=True)
class Topic:
    """Something that can be asked for, and the heads that answer it, best first.

    words  what it is called; also: other words for it, which count less
    fact   the place of the fact whose value says why, or None if `why` says it for each head
    """

    name: str
    words: str
    also: str
    heads: tuple[int, ...]
    fact: int | None
    why: tuple[str, ...] = ()


def topics(facts: Sequence[Fact]) -> list[Topic]:
    """All that can be asked for; a topic without heads is left out."""
    found: list[Topic] = []
    told = {term for fact in facts for term in _relations_told(fact)}
    roles = {term: f for f in role_facts(facts) if (term := f.key.removeprefix("role_")) in told}
    for at, fact in enumerate(facts):
        # Heads with the role of a relation stand behind those that are known to find it: as a
        # topic of their own they would be counted twice, and go before better ones.
        found += [] if fact in roles.values() else _of_fact(fact, at)
        found += _of_notes(fact, roles)
    found += _harmless(facts)
    found += _without_role(facts)
    return [topic for topic in found if topic.heads]


def _of_fact(fact: Fact, at: int) -> list[Topic]:
    bare = fact.key.replace("_", " ")
    words = f"{fact.name} {bare} {plain_words(f'{fact.name} {bare}')}"
    also = f"{fact.words} {other_words(words)} {fact.group} {fact.paper}"
    if fact.kind == "class":
        # What the evidence names is a topic of its own, in the order of its numbers.
        told = _relations_told(fact)
        classes = dict.fromkeys(v for v in fact.value if isinstance(v, str) and v not in told)
        return [
            Topic(
                f"{fact.name}: {value}",
                f"{value} {plain_words(value)}",
                f"{words} {other_words(value)} {fact.words} {fact.paper}",
                _ordered(fact, lambda head, value=value: fact.value[head] == value),
                at,
            )
            for value in classes
        ]
    if fact.kind == "flag":
        return [Topic(fact.name, words, also, _ordered(fact, lambda head: fact.value[head]), at)]
    if fact.diverging:
        ends = zip(_ends(fact), (1, -1), strict=True)
        return [
            Topic(f"{fact.name}: {end}", f"{words} {end}", f"{also} {like}", heads, at)
            for (end, like), sign in ends
            if (heads := _signed(fact, sign))
        ]
    high = Topic(f"most {fact.name}", words, also, _highest(fact, 1), at)
    term = next((term for term in OPPOSITES if term in fact.key), None)
    if term is None:
        return [high]
    up, down = OPPOSITES[term]
    return [
        Topic(high.name, words, f"{also} {up}", high.heads, at),
        # Only who says so wants the least: the name itself is not among its first words.
        Topic(f"least {fact.name}", down, f"{words} {also}", _highest(fact, -1), at),
    ]


def _ends(fact: Fact) -> tuple[tuple[str, str], ...]:
    if fact.key.endswith("_loss"):
        return LOSS_ENDS
    return DISABLED_ENDS if fact.key.startswith(DISABLED) else ENDS


def _highest(fact: Fact, sign: int) -> tuple[int, ...]:
    """Heads with the most of a number, or the least; none if all are alike."""
    known = [(sign * float(v), head) for head, v in enumerate(fact.value) if v is not None]  # type: ignore[arg-type]
    lowest = min(known, default=(0.0, 0))[0]
    order = sorted((-value, head) for value, head in known if value > lowest)
    return tuple(head for _, head in order[:MOST])


def _signed(fact: Fact, sign: int) -> tuple[int, ...]:
    """Heads on one side of 0; first those whose whole interval is there."""
    near_zero = (fact.low if sign > 0 else fact.high) or fact.value

    def rank(head: int) -> tuple[bool, float]:
        end, value = near_zero[head], fact.value[head]
        return end is None or sign * float(end) <= 0, -sign * float(value or 0)

    heads = [head for head, v in enumerate(fact.value) if v is not None and sign * float(v) > 0]
    return tuple(sorted(heads, key=rank)[:MOST])


def _ordered(fact: Fact, has: Callable[..., object]) -> tuple[int, ...]:
    """Heads for which something holds, the clearest cases first where a detail tells them."""
    heads = [head for head in range(len(fact.value)) if has(head)]
    column = next((fact.detail[name] for name in ORDERED_BY if name in fact.detail), None)
    if column is None:
        return tuple(heads)
    known = {head: value for head in heads if isinstance(value := column[head], int | float)}
    return tuple(sorted(heads, key=lambda head: -known.get(head, float("-inf"))))


def _of_notes(fact: Fact, roles: Mapping[str, Fact]) -> list[Topic]:
    """Relations that are named in the evidence: `det 62.1 %` answers who asks for articles.

    roles  of some relations: heads that have them come last, the strongest first
    """
    found = []
    for term, numbers in _relations_told(fact).items():
        ranked = tuple(sorted(numbers, key=lambda head: -numbers[head]))
        why = tuple(_clause(term, str((fact.note or ())[head])) for head in ranked)
        words, also = f"{term} {RELATIONS[term]}", fact.name
        if term in roles:
            role = roles[term]
            more = _ordered(
                role, lambda h, has=role.value, known=numbers: has[h] and h not in known
            )
            ranked, why = (*ranked, *more), (*why, *(_role(role, head) for head in more))
            also += f" role {role.name} {role.words} {role.paper}"
        found.append(Topic(f"{fact.name}: {term}", words, also, ranked, None, why))
    return found


def _role(role: Fact, head: int) -> str:
    bias = role.told(head).get("bias")
    return f"{role.group}: {role.name}" + (f", {bias}" if bias else "")


def _relations_told(fact: Fact) -> dict[str, dict[int, float]]:
    """Relations in the evidence: of each, the heads and the first number that it has there."""
    named: dict[str, dict[int, float]] = {}
    for head, note in enumerate(fact.note or ()):
        for term, number in RELATION_AND_NUMBER.findall((note or "").lower()):
            if term in RELATIONS:
                named.setdefault(term, {}).setdefault(head, float(number))
    return named


def _clause(term: str, note: str) -> str:
    """The part of the evidence that names a relation."""
    parts = CLAUSES.split(note)
    return next((part.strip() for part in parts if re.search(rf"\b{term}\b", part)), note)


def _harmless(facts: Sequence[Fact]) -> list[Topic]:
    """Heads that cost less than half a point on every task, unless a fact already says so."""
    tasks = [f for f in facts if f.key.startswith(DISABLED) and f.kind == "number"]
    if not tasks or _named("harmless", facts):
        return []
    worst: dict[int, float] = {}
    for head in range(len(tasks[0].value)):
        known = [float(v) for f in tasks if (v := f.value[head]) is not None]
        if known and min(known) > HARMLESS:
            worst[head] = min(known)
    heads = tuple(sorted(worst, key=lambda head: -worst[head]))
    why = tuple(f"without it no task of {len(tasks)} loses more than 0.5 points" for _ in heads)
    return [
        Topic("harmless", "harmless", "not needed, useless, disabled, pruned", heads, None, why)
    ]


def _without_role(facts: Sequence[Fact]) -> list[Topic]:
    """Heads with no role, unless a fact already says so."""
    roles = role_facts(facts)
    if not roles or _named("unskilled", facts):
        return []
    known = [[value for f in roles if (value := f.value[head]) is not None]
             for head in range(len(roles[0].value))]  # fmt: skip
    heads = tuple(head for head, values in enumerate(known) if values and not any(values))
    why = tuple(f"none of {len(roles)} roles" for _ in heads)
    return [Topic("no role", "unskilled", "no role, without a role, pande2021", heads, None, why)]


def _named(word: str, facts: Iterable[Fact]) -> bool:
    return any(word in f"{fact.key} {fact.name}" for fact in facts)
