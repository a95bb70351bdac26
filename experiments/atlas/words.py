"""Words for evidence: what a page calls a fact, a number as it is shown, a head in a sentence."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlib.errors import BadValue
from attnlib.plots.labels import task_name
from bookkit.pagetables import number_text, paper_name
from experiments.atlas.facts import Fact, Skill

_WORDS = tomllib.loads((Path(__file__).parent / "words.toml").read_text(encoding="utf-8"))
PLACES: dict[str, str] = _WORDS["places"]
ROLES: dict[str, dict[str, str]] = _WORDS["roles"]
DETAILS: dict[str, str] = _WORDS["details"]
DIRECTIONS: dict[str, str] = _WORDS["directions"]
RELATIONS: dict[str, str] = _WORDS["relations"]
SEVERAL: dict[str, str] = _WORDS["several"]
SYNONYMS: dict[str, str] = _WORDS["synonyms"]
QUESTIONS: dict[str, str] = _WORDS["questions"]

OTHERS = "Further facts"
"""The heading of facts that nobody has declared."""
MISSING = "not measured"
SMALL = 0.001
"""Below this a p or q is only said to be below it: its digits would mean nothing."""

MASS, ROLE, DISABLED = "mass_to_", "role_", "disabled_"
"""How keys begin: shares of attention, roles, and changes of a score without the head."""
BEST = "best_relation"
"""The class that names what a head finds; its details say how often."""
AUTHORS = "_authors"
"""How the keys of roles end whose score is that of the authors' code: a second opinion on a role
of the paper, and no role of its own."""


# A fact


def name(fact: Fact) -> str:
    """What a fact is called."""
    if "name" not in fact.declared:
        return fact.key.replace("_", " ")
    return fact.declared["name"].format(what=_what(fact.key))


def group(fact: Fact) -> str:
    """The heading under which a card shows it."""
    return fact.declared.get("group", OTHERS)


def _what(key: str) -> str:
    """The place, role or task that the end of a key names."""
    if key.startswith(MASS):
        return PLACES.get(key.removeprefix(MASS), f"to {key.removeprefix(MASS)}")
    end = key.partition("_")[2]
    return ROLES[end]["name"] if key.startswith(ROLE) and end in ROLES else task_name(end)


def _filled(fact: Fact, part: str) -> str:
    """What is declared of a fact, with its settings."""
    role = ROLES.get(fact.key.removeprefix(ROLE), {})
    try:
        attention = role.get("attention", "").format(**fact.settings)
        return fact.declared.get(part, "").format(attention=attention, **fact.settings)
    except KeyError as error:
        raise BadValue(f"fact '{fact.key}' has no setting {error}; its words need it.") from None


def entry(fact: Fact, head: int) -> dict[str, Any]:
    """A fact of one head as its card shows it; heads are numbered over all layers, from 0."""
    value, low, high = (
        None if column is None or missing(column[head]) else column[head]
        for column in (fact.value, fact.low, fact.high)
    )
    return {
        "key": fact.key,
        "name": name(fact),
        "paper": fact.paper,
        "group": group(fact),
        "value": value,
        "low": low,
        "high": high,
        "text": value_text(fact, head),
        "interval": interval(fact, head),
        "rank": fact.rank(head),
        "ranked": len(fact.numbers),
        "note": note(fact, head),
        "detail": details(fact, head),
        "where": fact.declared.get("where", ""),
        "source": fact.source,
        "about": _filled(fact, "about"),
    }


def missing(value: Any) -> bool:
    """Whether nothing is known of a head."""
    return value is None or value != value


# A number


def value_text(fact: Fact, head: int) -> str:
    """The value of a head, with its unit."""
    value = fact.value[head]
    if missing(value):
        return MISSING
    if fact.kind == "class":
        return str(value)
    if fact.kind == "flag":
        return "yes" if value else "no"
    return with_unit(fact, value)


def interval(fact: Fact, head: int) -> str:
    """The 95% interval of a head, in the unit of its value; empty if there is none."""
    if fact.low is None or fact.high is None or np.isnan(fact.low[head] + fact.high[head]):
        return ""
    value, low, high = fact.value[head], fact.low[head], fact.high[head]
    ends = [number(fact, low), number(fact, high)]
    if {*ends} != {number(fact, value)}:
        return " to ".join(ends)
    # It is not seen in the decimals shown: smaller than half of the last one, or than a whole one.
    digit = 10.0**-fact.decimals
    width = max(high - value, value - low) * (100 if fact.unit == "share" else 1)
    if width < digit / 2:
        return f"± < {digit / 2:.{fact.decimals + 1}f}"
    return f"± < {digit:.{fact.decimals}f}"


def with_unit(fact: Fact, value: float) -> str:
    """A number of a fact with its unit: shares are shown in percent."""
    unit = {"share": "%", "percent": "%"}.get(fact.unit, fact.unit)
    return f"{number(fact, value)} {unit}".strip()


def number(fact: Fact, value: float) -> str:
    """A number of a fact, with the decimals that all its numbers have."""
    scaled = 100 * value if fact.unit == "share" else value
    text = f"{scaled:{'+' if fact.diverging else ''}.{fact.decimals}f}"
    if not float(text):
        text = text.lstrip("+-")  # what rounds to nothing has no sign
    return text.replace("-", "−")


def details(fact: Fact, head: int) -> dict[str, str]:
    """The further numbers of a head; what is missing is left out."""
    found = {name: float(column[head]) for name, column in fact.detail.items()}
    return {name: _detail(name, value) for name, value in found.items() if not missing(value)}


def _detail(name: str, value: float) -> str:
    if name in ("p", "q") and value < SMALL:
        return f"{name} < {SMALL}"
    if name in ("accuracy", "baseline"):
        return DETAILS[name].format(f"{value:.1f}")
    shown = number_text(100 * value if name == "stability" else value)
    return DETAILS.get(name, f"{name} {{}}").format(shown)


def note(fact: Fact, head: int) -> str | None:
    """Evidence that stands below the number: the relations of a head, or what all heads share."""
    skills = fact.skills[head] if fact.skills else ()
    return "; ".join(map(skill, skills)) or _filled(fact, "note") or None


def skill(one: Skill) -> str:
    """How well a head finds a relation."""
    offset = DETAILS["baseline"].format(f"{one.baseline:.1f}")
    return f"{one.relation} {one.accuracy:.1f}\u00a0% ({DIRECTIONS[one.direction]}; {offset})"


def made_from(about: Mapping[str, Any]) -> dict[str, str]:
    """What an atlas was made from."""
    return {part: _said(part, told) for part, told in about.items()}


def _said(part: str, told: Any) -> str:
    if part == "inputs" and isinstance(told, dict) and told.keys() == {"n", "corpus"}:
        return f"{told['n']} inputs of {told['corpus']}"
    if isinstance(told, dict):
        return "; ".join(f"{name}: {_said(name, inner)}" for name, inner in told.items())
    if isinstance(told, list | tuple):
        return ", ".join(_said(part, inner) for inner in told)
    return str(told)


# A head in a sentence

MUCH = 0.3
"""From this share on a head is said to look somewhere."""
LISTED = 5
"""So many roles are named."""
UNSAID = (None, "other", "none")
"""Classes that say nothing of a head."""
CHANCE = 0.05
"""Of 95% intervals so many exclude a 0 that is true."""


def role_facts(facts: Iterable[Fact]) -> list[Fact]:
    """The roles of the paper."""
    return [f for f in facts if f.key.startswith(ROLE) and not f.key.endswith(AUTHORS)]


def summary(facts: Sequence[Fact], head: int) -> str:
    """What a head does, in a few sentences."""
    return " ".join(f"{one}." for one in sentences(facts, head))


def sentences(facts: Sequence[Fact], head: int) -> list[str]:
    """Where a head looks, what the papers call it, what it finds, which roles it has, and what
    changes without it: a sentence each, without its full stop."""
    said = (part(facts, head) for part in (_look, _classes, _finds, _roles, _needed))
    # The sign must not begin a line.
    return [f"{one[0].upper()}{one[1:]}".replace(" %", "\u00a0%") for one in said if one]


def _look(facts: Sequence[Fact], head: int) -> str:
    places = [f for f in facts if f.key.startswith(MASS) and not missing(f.value[head])]
    if not places:
        return ""
    most = max(places, key=lambda fact: fact.value[head])
    share, goes = value_text(most, head), f"goes {_what(most.key)}"
    if most.value[head] < MUCH:
        return f"spreads its attention: the largest part, {share}, {goes}"
    return f"{share} of its attention {goes}"


def _classes(facts: Sequence[Fact], head: int) -> str:
    """What each paper calls it; of two ways to the same classes, which way says what."""
    papers: dict[str, dict[str, list[str]]] = {}
    for fact in facts:
        if fact.kind == "class" and fact.key != BEST and fact.value[head] not in UNSAID:
            ways = papers.setdefault(fact.paper, {}).setdefault(fact.value[head], [])
            ways += [fact.declared["way"]] if "way" in fact.declared else []
    return "; ".join(
        f"{paper_name(paper).split()[0]}: "
        + ", ".join(" ".join([label, " and ".join(ways)]).strip() for label, ways in named.items())
        for paper, named in papers.items()
    )


def _finds(facts: Sequence[Fact], head: int) -> str:
    """The relation that it finds, if its lead over the best offset is not by chance."""
    fact = next((fact for fact in facts if fact.key == BEST), None)
    if fact is None or fact.value[head] in UNSAID:
        return ""
    relation, told = fact.value[head], details(fact, head)
    how_often = f" {fact.detail['accuracy'][head]:.1f}\u00a0%" if "accuracy" in told else ""
    rest = f", {told['baseline']}" if "baseline" in told else ""
    return f"finds {SEVERAL.get(relation, relation)} ({relation}){how_often}{rest}"


def _roles(facts: Sequence[Fact], head: int) -> str:
    roles = role_facts(facts)
    names = [name(fact) for fact in roles if fact.value[head] == 1]
    if not names:
        return "it has no role" if roles else ""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED + 1 else ""
    return f"roles: {', '.join(names[:LISTED] if more else names)}{more}"


def _needed(facts: Sequence[Fact], head: int) -> str:
    """Tasks of which the interval excludes 0. Nothing is corrected for there being so many, so the
    sentence says how many there are, and how many chance would give."""
    tasks = [f for f in facts if f.key.startswith(DISABLED) and f.low is not None]
    if not tasks:
        return ""
    low, high = (np.array([getattr(fact, end) for fact in tasks]) for end in ("low", "high"))
    apart = (low > 0) | (high < 0)
    if not apart[:, head].any():
        return f"without it no 95% interval of {len(tasks)} tasks excludes 0"
    named = [
        f"{_what(fact.key)} ({value_text(fact, head)})"
        for fact, one in zip(tasks, apart[:, head], strict=True)
        if one
    ]
    n = int((~np.isnan(low + high)).sum())
    return (
        f"without it the 95% interval excludes 0 for {', '.join(named)}, uncorrected: so do "
        f"{apart.sum()} of all {n} intervals, chance alone would give about {CHANCE * n:.0f}"
    )
