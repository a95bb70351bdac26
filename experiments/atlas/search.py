"""What a search in the atlas can find: topics, drawn from the evidence, and the heads they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.atlas import words
from experiments.atlas.facts import Fact, Skill

MOST = 12
"""So many heads are found by a number: those with the most of it."""
HARMLESS = -0.5
"""Points that a head may cost and still count as not needed, as in the chapter on disabling."""
UP, DOWN = ("rises", "more, higher, gains"), ("falls", "less, lower, loses")
"""Words for numbers above and below 0, unless the fact declares its own."""
ORDERED_BY = ("bias", "stability", "accuracy", "n")
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
    fact: int | None = None
    why: tuple[str, ...] = ()


def topics(facts: Sequence[Fact]) -> list[Topic]:
    """All that can be asked for; a topic without heads is left out."""
    found: list[Topic] = []
    skilled = {relation for fact in facts for relation in _skills(fact)}
    roles = {f.key.removeprefix(words.ROLE): f for f in words.role_facts(facts)}
    roles = {relation: fact for relation, fact in roles.items() if relation in skilled}
    for at, fact in enumerate(facts):
        # Heads with the role of a relation stand behind those that are known to find it: as a
        # topic of their own they would be counted twice, and go before better ones.
        if fact in roles.values():
            continue
        by_kind = {"class": _classes, "flag": _flag, "number": _number}
        found += by_kind[fact.kind](fact, at)
        found += [_relation(fact, one, roles.get(one)) for one in _skills(fact)]
    found += _of_all_facts(facts)
    return [topic for topic in found if topic.heads]


def _called(fact: Fact) -> str:
    """What a fact is called: in words, by its key, and by the relations that its key names."""
    parts = fact.key.split("_")
    relations = ", ".join(words.RELATIONS[part] for part in parts if part in words.RELATIONS)
    return f"{words.name(fact)} {' '.join(parts)} {relations}"


def _also(fact: Fact) -> str:
    terms = [*fact.key.split("_"), *fact.declared.get("terms", ())]
    return f"{_synonyms(terms)} {words.group(fact)} {fact.paper}"


def _synonyms(named: Sequence[str]) -> str:
    """Words that are near to some terms: who says separator may mean `sep`."""
    known = dict.fromkeys(term for term in named if term in words.SYNONYMS)
    return ", ".join(words.SYNONYMS[term] for term in known)


# Numbers, flags, classes


def _number(fact: Fact, at: int) -> list[Topic]:
    name, called, also = words.name(fact), _called(fact), _also(fact)
    if fact.diverging:
        up, down = fact.declared.get("up", UP), fact.declared.get("down", DOWN)
        return [
            Topic(f"{name}: {end}", f"{called} {end}", f"{also} {like}", heads, at)
            for (end, like), heads in ((up, _signed(fact, 1)), (down, _signed(fact, -1)))
        ]
    most, least = fact.declared.get("most", ""), fact.declared.get("least", "")
    found = [Topic(f"most {name}", called, f"{also} {most}", _highest(fact, 1), at)]
    if least:  # only who says so wants it: the name itself is not among its first words
        heads = _highest(fact, -1)
        found.append(Topic(f"least {name}", least, f"{called} {also}", heads, at))
    return found


def _highest(fact: Fact, sign: int) -> tuple[int, ...]:
    """Heads with the most of a number, or the least; none if all are alike."""
    values, least = sign * fact.value, (sign * fact.numbers).min(initial=np.inf)
    order = np.argsort(-values, kind="stable")
    return tuple(int(head) for head in order if values[head] > least)[:MOST]


def _signed(fact: Fact, sign: int) -> tuple[int, ...]:
    """Heads on one side of 0; first those whose whole interval is there."""
    near_zero = fact.low if sign > 0 else fact.high
    sure = sign * (fact.value if near_zero is None else near_zero) > 0
    order = np.lexsort((-sign * fact.value, ~sure))
    return tuple(int(head) for head in order if sign * fact.value[head] > 0)[:MOST]


def _flag(fact: Fact, at: int) -> list[Topic]:
    heads = _clearest(fact, fact.value == 1)
    return [Topic(words.name(fact), _called(fact), _also(fact), heads, at)]


def _classes(fact: Fact, at: int) -> list[Topic]:
    """A topic for each class; a relation whose numbers are known is a topic of its own."""
    without = {None, *_skills(fact)}
    labels = [label for label in dict.fromkeys(fact.value) if label not in without]
    return [
        Topic(
            f"{words.name(fact)}: {label}",
            f"{label} {words.RELATIONS.get(label, '')}",
            f"{_called(fact)} {_synonyms(re.split('[&+]', label))} {fact.paper}",
            _clearest(fact, fact.value == label),
            at,
        )
        for label in labels
    ]


def _clearest(fact: Fact, has: np.ndarray) -> tuple[int, ...]:
    """Heads for which something holds, the clearest cases first where a detail tells them."""
    heads = [int(head) for head in np.flatnonzero(has)]
    column = next((fact.detail[one] for one in ORDERED_BY if one in fact.detail), None)
    if column is None:
        return tuple(heads)
    known = np.nan_to_num(column, nan=-np.inf)
    return tuple(sorted(heads, key=lambda head: -known[head]))


# Relations


def _skills(fact: Fact) -> dict[str, dict[int, Skill]]:
    """Relations with their evidence: of each, the heads, and how well each finds it.

    A head may find a relation in both directions; the one of its larger lead comes first. Labels
    for which there are no plain words cannot be asked for.
    """
    found: dict[str, dict[int, Skill]] = {}
    for head, listed in enumerate(fact.skills):
        for one in listed:
            if one.relation in words.RELATIONS:
                found.setdefault(one.relation, {}).setdefault(head, one)
    return found


def _relation(fact: Fact, relation: str, role: Fact | None) -> Topic:
    """Heads that find a relation, the most accurate first, then those that have its role."""
    found = _skills(fact)[relation]
    # Heads whose numbers are shown alike stay in their order.
    heads = sorted(found, key=lambda head: -float(f"{found[head].accuracy:.1f}"))
    why = [words.skill(found[head]) for head in heads]
    also = words.name(fact)
    if role is not None:
        more = [head for head in _clearest(role, role.value == 1) if head not in found]
        called = f"{words.group(role)}: {words.name(role)}"
        biases = [words.details(role, head).get("bias") for head in more]
        why += [f"{called}, {bias}" if bias else called for bias in biases]
        heads += more
        also += f" role {words.name(role)} {role.paper}"
    called = f"{relation} {words.RELATIONS[relation]}"
    return Topic(f"{words.name(fact)}: {relation}", called, also, tuple(heads), why=tuple(why))


# What no single fact says


def _of_all_facts(facts: Sequence[Fact]) -> Iterator[Topic]:
    """Heads that cost less than half a point on every task, and heads with no role."""
    tasks = [fact for fact in facts if fact.key.startswith(words.DISABLED)]
    if tasks:
        worst = np.fmin.reduce([fact.value for fact in tasks])
        order = np.argsort(-worst, kind="stable")
        heads = tuple(int(head) for head in order if worst[head] > HARMLESS)
        why = (f"without it no task of {len(tasks)} loses more than 0.5 points",) * len(heads)
        also = "not needed, useless, disabled, pruned"
        yield Topic("harmless", "harmless", also, heads, why=why)
    roles = words.role_facts(facts)
    if roles:
        most = np.fmax.reduce([fact.value for fact in roles])
        heads = tuple(np.flatnonzero(most == 0).tolist())
        why = (f"none of {len(roles)} roles",) * len(heads)
        also = "no role, without a role, pande2021"
        yield Topic("no role", "unskilled", also, heads, why=why)
