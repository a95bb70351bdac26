"""Plain words for what the papers name by labels, and a head in a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attnlib.atlasfacts import Fact

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


def summary(facts: Sequence[Fact], head: int) -> str:
    """What a head does, in a sentence or two: where it looks, what it is, what it is needed for."""
    said = [_look(facts, head), *_classes(facts, head), _roles(facts, head), _needed(facts, head)]
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


def _classes(facts: Sequence[Fact], head: int) -> list[str]:
    return [f"{fact.name}: {fact.value[head]}" for fact in facts if fact.kind == "class"
            if fact.value[head] is not None]  # fmt: skip


def _roles(facts: Sequence[Fact], head: int) -> str:
    roles = [fact for fact in facts if fact.kind == "flag" and fact.group == "Roles"]
    if not roles:
        return ""
    names = [re.sub(r"^(has )?(the )?role:? ", "", fact.name) for fact in roles if fact.value[head]]
    if not names:
        return "it has no role"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED + 1 else ""
    return f"roles: {', '.join(names[:LISTED] if more else names)}{more}"


def _needed(facts: Sequence[Fact], head: int) -> str:
    """Tasks on which the change without the head is surely not 0."""
    tasks = [f for f in facts if f.key.startswith(DISABLED) and f.low and f.high]
    sure = []
    for fact in tasks:
        low, high = fact.low[head], fact.high[head]  # type: ignore[index]
        if low is not None and high is not None and (low > 0 or high < 0):
            sure.append(f"{fact.key.removeprefix(DISABLED).upper()} {fact.text(head)}")
    if sure:
        return f"without it: {', '.join(sure)}"
    return f"none of {len(tasks)} tasks surely changes without it" if tasks else ""
