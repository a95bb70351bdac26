"""Plain words for what the papers name by labels, and a head in a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from bookkit.pagetables import paper_name
from experiments.atlas.atlasfacts import Fact

RELATIONS = {
    "acl": "clause that describes a noun",
    "acl:relcl": "relative clause",
    "acomp": "adjective complement",
    "advcl": "adverbial clause",
    "advmod": "adverb modifier",
    "amod": "adjective modifier",
    "appos": "apposition",
    "attr": "attribute of to be",
    "aux": "auxiliary verb",
    "aux:pass": "passive auxiliary verb",
    "auxpass": "passive auxiliary verb",
    "case": "preposition, case marker",
    "cc": "coordinating conjunction",
    "ccomp": "clause as complement",
    "compound": "compound noun",
    "compound:prt": "verb particle",
    "conj": "conjunct, coordination",
    "cop": "copula, verb to be",
    "coref": "coreference, antecedent, pronoun",
    "csubj": "clause as subject",
    "det": "determiner, article",
    "discourse": "interjection",
    "dobj": "direct object of the verb",
    "expl": "expletive there",
    "flat": "name of several words",
    "iobj": "indirect object of the verb",
    "mark": "subordinating conjunction marker",
    "neg": "negation, not",
    "nmod": "noun that modifies a noun",
    "nmod:poss": "possessive",
    "nn": "compound noun",
    "npadvmod": "noun as adverb",
    "nsubj": "subject of the verb",
    "nsubj:pass": "passive subject of the verb",
    "nsubjpass": "passive subject of the verb",
    "num": "number",
    "nummod": "number",
    "obj": "direct object of the verb",
    "obl": "oblique, adjunct of the verb",
    "oprd": "predicative complement",
    "parataxis": "side by side clause",
    "pcomp": "complement of a preposition",
    "pobj": "object of a preposition",
    "poss": "possessive pronoun",
    "possessive": "possessive clitic",
    "prep": "preposition",
    "prt": "verb particle",
    "punct": "punctuation",
    "quantmod": "quantifier",
    "rcmod": "relative clause",
    "root": "main verb, root of the sentence",
    "xcomp": "open clause complement",
}
"""Dependency labels, of Stanford and of Universal Dependencies, in words a reader may know."""

SEVERAL = {
    "acl": "clauses that describe a noun",
    "attr": "attributes of “to be”",
    "ccomp": "clauses as complements",
    "coref": "coreference",
    "csubj": "clauses as subjects",
    "expl": "expletive “there”",
    "flat": "names of several words",
    "neg": "negations",
    "nmod": "nouns that modify a noun",
    "npadvmod": "nouns as adverbs",
    "punct": "punctuation",
    "root": "main verbs",
}
"""Many of a relation, where its words do not just take an s before `of`."""

SYNONYMS = {
    "adverbial": "adverb",
    "block": "segment, same sentence, within a sentence",
    "cls": "first token, start, special",
    "comma": "punctuation",
    "cosine": "similarity, change",
    "coreference": "pronoun, antecedent, mention",
    "delimiter": "separator, special, sep, cls",
    "dense": "broad, spread",
    "diagonal": "neighbour, positional, position, next, previous",
    "disabled": "removed, pruned, without, ablated",
    "frame": "semantic, meaning",
    "gradient": "importance, saliency",
    "heterogeneous": "mixed, varied",
    "importance": "matters, important, gradient",
    "local": "near, neighbour, window",
    "mass": "looks at, attends to",
    "mrpc": "paraphrase",
    "next": "following, after, right",
    "period": "full stop, dot, punctuation",
    "previous": "before, preceding, left",
    "qnli": "question answering inference",
    "qqp": "duplicate questions",
    "rte": "entailment, inference",
    "self": "itself, own token",
    "sep": "separator, delimiter, special",
    "squad": "question answering",
    "sst2": "sentiment",
    "stsb": "similarity",
    "syntactic": "syntax, grammar, dependency",
    "vertical": "column, stripe, special",
}

DISABLED = "disabled_"
"""How the keys of facts begin that are changes of a score without the head."""
BEST = "best_relation"
"""The class that names what a head finds; its details say how often."""
AUTHORS = "_authors"
"""How the keys of roles end whose score is that of the authors' code: a second opinion on a role
of the paper, and no role of its own."""


def role_facts(facts: Iterable[Fact]) -> list[Fact]:
    """The roles of the paper."""
    return [fact for fact in facts if fact.kind == "flag" and fact.group == "Roles"
            and not fact.key.endswith(AUTHORS)]  # fmt: skip


def several(relation: str) -> str:
    """Many of a relation, in words: `dobj` are direct objects of the verb."""
    if relation in SEVERAL or relation not in RELATIONS:
        return SEVERAL.get(relation, relation)
    noun, of, what = RELATIONS[relation].partition(",")[0].partition(" of ")
    return f"{noun}s{of}{what}"


def plain_words(text: str) -> str:
    """What the relations in a text are called by people: `dobj` is a direct object."""
    return _known(RELATIONS, text)


def other_words(text: str) -> str:
    """Words that are near to the terms in a text: who says separator may mean `sep`."""
    return _known(SYNONYMS, text)


def _known(words: Mapping[str, str], text: str) -> str:
    terms = [text.strip().lower(), *re.findall(r"[a-z]+\d*(?::[a-z]+)?", text.lower())]
    return ", ".join(words[term] for term in dict.fromkeys(terms) if term in words)


# A head in a sentence

MUCH = 0.3
"""From this share on a head is said to look somewhere."""
LISTED = 5
"""So many roles are named."""
UNSAID = (None, "other", "none")
"""Classes that say nothing of a head."""
CHANCE = 0.05
"""Of 95% intervals so many exclude a 0 that is true."""


def summary(facts: Sequence[Fact], head: int) -> str:
    """What a head does, in a few sentences: where it looks, what the papers call it, what it finds,
    which roles it has, what changes without it."""
    said = [_look(facts, head), _classes(facts, head), _finds(facts, head), _roles(facts, head),
            _needed(facts, head)]  # fmt: skip
    text = " ".join(f"{part[0].upper()}{part[1:]}." for part in said if part)
    return text.replace(" %", "\u00a0%")  # the sign must not begin a line


def _look(facts: Sequence[Fact], head: int) -> str:
    places = {
        fact: value
        for fact in facts
        if fact.unit == "share" and fact.name.startswith("attention ")
        if isinstance(value := fact.value[head], int | float)
    }
    if not places:
        return ""
    most = max(places, key=lambda fact: places[fact])
    share = most.text(head)
    goes = f"goes {most.name.removeprefix('attention ')}"
    if places[most] < MUCH:
        return f"spreads its attention: the largest part, {share}, {goes}"
    return f"{share} of its attention {goes}"


def _classes(facts: Sequence[Fact], head: int) -> str:
    """What each paper calls it; of two ways to the same classes, which way says what."""
    papers: dict[str, dict[str, list[str]]] = {}
    for fact in facts:
        label = fact.value[head]
        if fact.kind == "class" and fact.key != BEST and label not in UNSAID:
            way = re.search(r"\bby \w+", fact.name)
            ways = papers.setdefault(fact.paper, {}).setdefault(str(label), [])
            ways += [way[0]] if way else []
    return "; ".join(
        f"{paper_name(paper).split()[0]}: "
        + ", ".join(" ".join([label, " and ".join(ways)]).strip() for label, ways in named.items())
        for paper, named in papers.items()
    )


def _finds(facts: Sequence[Fact], head: int) -> str:
    """The relation that it finds, if its lead over the best offset is not by chance."""
    fact = next((fact for fact in facts if fact.key == BEST), None)
    relation = None if fact is None else fact.value[head]
    if fact is None or relation in UNSAID:
        return ""
    told = fact.told(head)
    how_often = told.get("accuracy", "").removeprefix("finds")
    rest = f", {told['baseline']}" if "baseline" in told else ""
    return f"finds {several(str(relation))} ({relation}){how_often}{rest}"


def _roles(facts: Sequence[Fact], head: int) -> str:
    roles = role_facts(facts)
    if not roles:
        return ""
    names = [re.sub(r"^(has )?(the )?role:? ", "", fact.name) for fact in roles if fact.value[head]]
    if not names:
        return "it has no role"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED + 1 else ""
    return f"roles: {', '.join(names[:LISTED] if more else names)}{more}"


def _needed(facts: Sequence[Fact], head: int) -> str:
    """Tasks of which the interval excludes 0. Nothing is corrected for there being so many, so the
    sentence says how many there are, and how many chance would give."""
    tasks = [f for f in facts if f.key.startswith(DISABLED) and f.low and f.high]
    if not tasks:
        return ""
    apart = [_excludes_0(f, head) for f in tasks]
    if not any(apart):
        return f"without it no 95% interval of {len(tasks)} tasks excludes 0"
    named = [f"{f.name.removesuffix(' without it')} ({f.text(head)})"
             for f, one in zip(tasks, apart, strict=True) if one]  # fmt: skip
    known = [one for f in tasks for place in range(len(f.value))
             if (one := _excludes_0(f, place)) is not None]  # fmt: skip
    return (
        f"without it the 95% interval excludes 0 for {', '.join(named)}, uncorrected: so do "
        f"{sum(known)} of all {len(known)} intervals, chance alone would give about "
        f"{CHANCE * len(known):.0f}"
    )


def _excludes_0(fact: Fact, head: int) -> bool | None:
    """Whether the interval of a change lies on one side of 0; None if there is no interval."""
    assert fact.low is not None and fact.high is not None
    low, high = fact.low[head], fact.high[head]
    return None if low is None or high is None else low > 0 or high < 0
