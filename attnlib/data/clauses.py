"""The clause around a noun of a parsed sentence, less what a question on it does without.

All rules are on spaCy's English labels and tags. A clause keeps its verb, its subject and what the
verb needs; it loses brackets, what hangs on by a comma, linking adverbs and the next clause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Lemma = Callable[[Any], str]
"""The base form of a verb's token."""

SUBJECTS = ("nsubj", "nsubjpass", "expl")
OBJECTS = ("dobj", "attr", "oprd")
VERBAL = ("VERB", "AUX")


def lexicon(words: str) -> frozenset[str]:
    return frozenset(words.split())


_BE = lexicon("am is are was were")
_UNFIT = ("relcl", "acl", "pcomp", "csubj", "appos", "parataxis", "dep", "meta")
_LEFT_OUT = ("appos", "relcl", "acl", "advcl", "prep", "npadvmod", "advmod")
_DROPPED_OPENINGS = ("advmod", "npadvmod", "advcl", "cc", "mark", "punct")
_TURNING = lexicon("never nor not only rarely seldom")  # the verb follows them
POINTING = lexicon("both its neither no such that their these this those")
_CONNECTIVES = lexicon(
    "also even furthermore hence however indeed instead likewise moreover nevertheless then "
    "therefore though thus"
)


@dataclass(frozen=True, slots=True)
class Clause:
    """The tokens of a clause by where they stand."""

    verb: Any
    noun: Any  # of the subject
    subject: list[Any]
    middle: list[Any]  # between subject and verb
    after: list[Any]
    before: list[Any]  # what opens the clause, and can close it as well


def clause_of(asked: Any) -> Clause | None:
    """The clause around a noun, or None where it cannot stand alone or is no plain one."""
    verb = _verb(asked)
    noun = _subject(verb) if verb is not None else None
    if verb is None or noun is None:
        return None
    said = {token.i for token in noun.subtree}
    whole = sorted({*verb.subtree, *noun.subtree}, key=lambda token: token.i)
    lost = _lost(asked, verb, whole)
    kept = [token for token in whole if token.i not in lost]
    subject = [token for token in kept if token.i in said]
    before = _opening(verb, noun, kept) if noun.head == verb else []
    if asked.i in lost or not subject or before is None:
        return None
    middle = [t for t in kept if subject[-1].i < t.i < verb.i and t.head == verb]
    after = [token for token in kept if token.i > verb.i and token.i not in said]
    shared = any(child.dep_ == "conj" for child in verb.rights) and not after
    if shared or subject[-1].i > verb.i:  # "designed and built it": of one there is no question
        return None
    return Clause(verb, noun, subject, middle, after, before)


def _verb(noun: Any) -> Any:
    """The finite verb of the noun's clause, or None where that says nothing by itself."""
    token = noun
    while token.dep_ not in ("ROOT", "conj", "ccomp", "advcl"):
        if token.dep_ in _UNFIT:
            return None
        token = token.head
    marks = {child.lower_ for child in token.lefts if child.dep_ in ("mark", "advmod")}
    fits = token.pos_ in VERBAL and marks.isdisjoint(("as", "how", "if", "unless", "whether"))
    return token if fits else None


def _subject(verb: Any) -> Any:
    """The noun of its own subject, or of the verb's that it is joined to; None without one."""
    own = [child for child in verb.lefts if child.dep_ in SUBJECTS]
    if own:
        return own[-1]
    return _subject(verb.head) if verb.dep_ == "conj" and verb.head.pos_ in VERBAL else None


def _lost(asked: Any, verb: Any, clause: list[Any]) -> set[int]:
    """Places of what a question does without: brackets, what hangs on, the next clause."""
    places = {clause[-1].i} if clause[-1].text in {".", "!", "?"} else set[int]()
    depth = 0
    for token in clause:
        depth += token.text == "("
        if depth:
            places.add(token.i)
        depth -= token.text == ")"
        joined = token.dep_ in ("conj", "cc", "preconj") and token.head == verb
        joined |= token.dep_ == "advmod" and token.lower_ in _CONNECTIVES
        hanging = token.dep_ in _LEFT_OUT and token.i > token.head.i and hangs(token)
        if joined or hanging or token.dep_ == "parataxis":
            inside = {other.i for other in token.subtree}
            if asked.i not in inside and verb.i not in inside:
                places |= inside | _commas_around(token)
    return places


def _commas_around(token: Any) -> set[int]:
    """The places of the commas that part a token and all below it from the rest."""
    beside = (token.left_edge.i - 1, token.right_edge.i + 1)
    doc = token.doc
    return {place for place in beside if 0 <= place < len(doc) and doc[place].text == ","}


def hangs(token: Any) -> bool:
    """Whether a comma, a dash or a bracket stands before all that depends on the token."""
    place = token.left_edge.i
    return bool(place and token.doc[place - 1].text in {",", "(", "–", "—", ";"})


def _opening(verb: Any, subject: Any, kept: list[Any]) -> list[Any] | None:
    """What stands before the subject and says when or where; None if it is no plain opening."""
    found: list[Any] = []
    for child in verb.lefts:
        if child.i >= subject.left_edge.i:
            break
        if child.dep_ == "prep":
            tokens = [token for token in child.subtree if token in kept]
            named = any(token.ent_type_ for token in tokens)
            found += tokens if named and all(t.lower_ not in POINTING for t in tokens) else []
        elif child.dep_ not in _DROPPED_OPENINGS or child.lower_ in _TURNING:
            return None
    return found


def helper(verb: Any, lemma: Lemma) -> tuple[Any, str, str] | None:
    """What goes before the subject (its token if it has one, its text), and the verb's form then.

    None where the verb is not finite.
    """
    helpers = [child for child in verb.lefts if child.dep_ in ("aux", "auxpass")]
    if helpers:
        first = helpers[0]
        return None if first.tag_ == "TO" else (first, first.lower_, verb.text)
    if verb.lower_ in _BE:
        return verb, verb.lower_, ""
    support = {"VBD": "did", "VBZ": "does", "VBP": "do"}.get(verb.tag_)
    return (None, support, lemma(verb)) if support else None


def written(tokens: list[Any], phrase: Any = None, instead: str = "") -> str:
    """The tokens as written, a blank where some are left out, `instead` for those of a phrase."""
    text, expected, shown = "", -1, False
    for token in tokens:
        if phrase is not None and phrase.start <= token.i < phrase.end:
            text += "" if shown else f" {instead} "
            shown = True
            continue
        named = token.ent_type_ or token.pos_ == "PROPN" or not token.text[1:].islower()
        small = token.is_sent_start and (token.text in ("A", "An", "The") or not named)
        text += (" " if token.i != expected else "") + (token.lower_ if small else token.text)
        text += token.whitespace_
        expected = token.i + 1
    return text.strip(" ,")
