"""A parsed sentence -> the questions it answers: a phrase is asked for, its clause asks.

The unsupervised cloze recipe: the answer is a name or a noun phrase, the question its sentence with
the fitting wh-word in the answer's place. Here the sentence is cut to its clause (`clauses.py`),
and the wh-phrase moves to the front where that is one plain step ("Who ...", "What did ... do").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from attnlib.data.clauses import (
    OBJECTS,
    POINTING,
    SUBJECTS,
    VERBAL,
    Lemma,
    clause_of,
    hangs,
    helper,
    lexicon,
    written,
)

_PLACES = ("GPE", "LOC", "FAC")


_FRONTED = lexicon("after against at before by during for from in into on since through to under")
_FRONTED |= lexicon("until with without")
_VAGUE_SUBJECTS = POINTING | lexicon(
    "all another any each few i it many most none one others some they we what which who whose you"
)
_VAGUE_MODIFIERS = POINTING | lexicon(
    "all another any certain different each either every few former latter many more most much "
    "other own same several some various what which whose"
)
_VAGUE_NOUNS = lexicon(
    "addition aim attention beginning case control course doubt effect end example fact form "
    "instance kind lot majority manner means member number one order others part people place "
    "point priority process purpose range reason result rise role series set side something sort "
    "term terms thing things time times type use variety way ways"
)
_PERSONS = lexicon(
    "actor actors actress architect artist author authors bishop brother child children citizens "
    "commander composer critics daughter director emperor engineer engineers farmers father "
    "fighters general governor historian husband immigrants inventor judge king leader leaders "
    "man members men merchants minister mother painter partisans passengers philosopher "
    "philosophers players poet poets president prince princess producer queen residents ruler "
    "rulers scholars sculptors settlers sister slaves soldiers son students teacher teachers "
    "tribes troops viewers visitors voters wife winner woman women workers writer writers"
)
_CLASSES = lexicon(  # words in a name that say what it is the name of
    "academy act agency army association award battle bay board bridge canal castle cathedral "
    "championship church city college committee company conference congress constitution "
    "convention council county court cup department desert district dynasty empire festival "
    "government highway institute island islands kingdom lake language league library mountain "
    "mountains movement museum ocean palace parliament party peninsula prize province republic "
    "revolution river road school sea senate society state states street team temple theatre "
    "treaty tribe union university valley village war"
)
_NAMES = {
    **dict.fromkeys(("EVENT", "LAW", "PRODUCT", "WORK_OF_ART", "ORG"), "what"),
    **dict.fromkeys(_PLACES, "which place"),
    "LANGUAGE": "which language",
    "NORP": "which people",
    "PERCENT": "what percentage",
    "MONEY": "how much money",
    "PERSON": "who",
}
_UNREADABLE = re.compile(r"""[()\[\]{}"“”«»:;–—/=…]|, ?,|n['’]t\b|\s['’]|\s\.|^\W""")


@dataclass(frozen=True, slots=True)
class Cloze:
    """A question, and the characters of its answer in the text it was made from.

    kind     of the answer: a name's by the parser (PERSON, DATE, ...), NUMBER, or NOUN
    fronted  whether the question opens with the wh-phrase; else that stands in the answer's place
    """

    question: str
    start: int
    end: int
    kind: str
    fronted: bool


@dataclass(frozen=True, slots=True)
class _Gap:
    """A phrase of a noun that `wh` can stand for, and the part of it that is asked for."""

    noun: Any
    phrase: Any
    answer: Any
    wh: str
    kind: str

    def __contains__(self, token: Any) -> bool:
        return bool(self.phrase.start <= token.i < self.phrase.end)


def clozes(sentence: Any, lemma: Lemma) -> Iterator[Cloze]:
    """Every readable question on a sentence (a span of a spaCy document with parse and names)."""
    for gap in _gaps(sentence):
        asked = _asked(gap, lemma)
        if asked is None:
            continue
        text, fronted = asked
        text = re.sub(r"\s+(?=,)", "", " ".join(text.split())).strip(" ,.")
        text = text[:1].upper() + text[1:] + "?"
        if not _UNREADABLE.search(text):
            answer = gap.answer
            yield Cloze(text, answer.start_char, answer.end_char, gap.kind, fronted)


# --- what can be asked for -------------------------------------------------------------------


def _gaps(sentence: Any) -> Iterator[_Gap]:
    for noun in sentence:
        if noun.dep_ in (*SUBJECTS, *OBJECTS, "pobj", "npadvmod") and _is_plain(noun):
            yield from _wholes(noun)
            if noun.dep_ != "npadvmod":
                yield from _numbers(noun)
                yield from _owners(noun)


def _is_plain(noun: Any) -> bool:
    """No list, no clause, no mark and no pointing word: such phrases read badly with a wh-word."""
    inside = noun.doc[noun.left_edge.i : noun.i]
    return (
        noun.pos_ in ("NOUN", "PROPN", "NUM", "SYM")
        and all(child.dep_ not in ("conj", "cc", "preconj") for child in noun.children)
        and all(token.pos_ not in VERBAL and token.dep_ != "cc" for token in inside)
        and all(token.pos_ != "PUNCT" or token.text == "-" for token in inside)
        and all(token.lower_ not in _VAGUE_MODIFIERS for token in inside)
        and all(token.tag_ not in ("JJR", "RBR") for token in inside)
        and not _is_hyphened(noun)
    )


def _is_hyphened(noun: Any) -> bool:
    """Whether the phrase is a part of a longer word that the parser has split."""
    before, after = noun.left_edge.i - 1, noun.i + 1
    glued = before >= 0 and not noun.doc[before].whitespace_ and noun.doc[before].text == "-"
    return glued or (after < len(noun.doc) and noun.doc[after].text == "-")


def _wholes(noun: Any) -> Iterator[_Gap]:
    """The noun with all that stands before it; its article or pronoun is no part of the answer."""
    first, last, kind = noun.left_edge.i, noun.i + 1, "NOUN"
    for name in noun.sent.ents:
        if name.start <= noun.i < name.end:
            last, kind = max(last, name.end), name.label_
    phrase = noun.doc[first:last]
    while len(phrase) > 1 and (phrase[0].dep_ == "det" or phrase[0].tag_ == "PRP$"):
        phrase = phrase[1:]
    if kind == "NOUN" and (noun.doc[first].tag_ == "PRP$" or phrase[0].dep_ == "nummod"):
        return
    wh = _wh_phrase(noun, phrase, kind)
    after = [t for t in noun.rights if t.i >= last and t.dep_ != "punct" and not hangs(t)]
    linked = [t for t in after if t.text == "of" or t.dep_ != "prep" or noun.dep_ != "dobj"]
    share = kind == "PERCENT" and noun.dep_ in SUBJECTS  # "What percentage of ..."
    if wh and phrase[0].pos_ != "ADP" and (not linked or share):
        yield _Gap(noun, noun.doc[first:last], phrase, wh, kind)


def _wh_phrase(noun: Any, phrase: Any, kind: str) -> str | None:
    """What asks for the whole phrase, or None where nothing fits."""
    if kind in ("DATE", "TIME"):
        return _when(noun, phrase.text)
    if kind == "NOUN":
        if noun.pos_ != "NOUN" or noun.dep_ in ("pobj", "npadvmod") or noun.lower_ in _VAGUE_NOUNS:
            return None
        person = noun.lower_ in _PERSONS or noun.lower_.endswith(("ists", "ians"))
        return "who" if person else "what"
    if kind in ("MONEY", "PERCENT"):
        return _NAMES[kind]
    plural = noun.tag_ == "NNPS"
    if kind not in _NAMES or noun.pos_ != "PROPN":
        return None
    if (kind == "NORP" and not plural) or (kind == "PERSON" and plural):
        return None
    classes = [t.lower_ for t in (noun, phrase[0]) if t.lower_ in _CLASSES]
    if classes and kind != "PERSON" and len(phrase) > 1:
        return f"which {classes[0]}"
    if kind == "ORG" and len(phrase) == 1 and not phrase.text.isupper():
        return None  # one word taken for an organisation is a person or a place as often as not
    return _NAMES[kind]


def _when(noun: Any, text: str) -> str | None:
    if noun.dep_ not in ("pobj", "npadvmod") or " of " in text:
        return None
    if re.fullmatch(r"\d{3,4}", text):
        return "what year"
    if re.fullmatch(r"(early |late |mid-)?\d{3,4}s", text):
        return "what decade"
    if text.endswith("century"):
        return "what century"
    return "when" if re.search(r"\b\d{1,4}\b", text) and re.search("[A-Z]", text) else None


def _numbers(noun: Any) -> Iterator[_Gap]:
    """A number before a plural: "how many" and the plural."""
    for child in noun.lefts:
        if child.dep_ != "nummod" or noun.tag_ != "NNS" or child.ent_type_ == "ORDINAL":
            continue
        number = noun.doc[child.left_edge.i : child.i + 1]
        while len(number) > 1 and not number[0].like_num:
            number = number[1:]
        if number[0].like_num and number.text.lower() != "one":
            wh = f"how many {noun.doc[child.i + 1 : noun.i + 1].text}"
            yield _Gap(noun, noun.doc[noun.left_edge.i : noun.i + 1], number, wh, "NUMBER")


def _owners(noun: Any) -> Iterator[_Gap]:
    """A name before the noun: "whose" and the noun after an 's, else "which" and the noun."""
    doc, first = noun.doc, noun.left_edge.i
    for name in noun.sent.ents:
        if not first <= name.start <= first + (doc[first].dep_ == "det") or name.end > noun.i:
            continue
        phrase = name[:-1] if name[-1].tag_ == "POS" else name
        if len(phrase) and phrase[0].dep_ == "det":
            phrase = phrase[1:]
        if not len(phrase) or name.label_ not in (*_PLACES, "PERSON", "ORG"):
            continue
        owns = doc[phrase.end].tag_ == "POS"
        if owns or (name.label_ != "PERSON" and noun.pos_ == "NOUN"):
            rest = doc[phrase.end + owns : noun.i + 1].text
            wh = f"{'whose' if owns else 'which'} {rest}"
            yield _Gap(noun, doc[first : noun.i + 1], phrase, wh, name.label_)


# --- the clause that asks ---------------------------------------------------------------------


def _asked(gap: _Gap, lemma: Lemma) -> tuple[str, bool] | None:
    """The words of the question on a gap, and whether it opens with the wh-phrase."""
    clause = clause_of(gap.noun)
    if clause is None or (inverted := helper(clause.verb, lemma)) is None:
        return None
    moved, text, form = inverted
    subject, verb = written(clause.subject, gap.phrase, gap.wh), clause.verb.text
    if clause.noun == gap.noun:
        if gap.noun.tag_ in ("NN", "NNP") and text in ("are", "were", "have", "do"):
            return None  # one member of a list whose verb speaks of all
        return _joined(subject, clause.middle, verb, clause.after, clause.before), True
    said = {token.lower_ for token in clause.subject}
    if clause.noun.lower_ in _VAGUE_SUBJECTS or not said.isdisjoint(POINTING):
        return None
    link = gap.noun.head if gap.noun.dep_ == "pobj" else None
    if _holder(gap, link, clause.verb) != clause.verb:
        if link is None or gap.kind == "NOUN" or gap.wh == "when" or not _is_in(gap, clause.after):
            return None
        wh = "whom" if gap.wh == "who" else gap.wh
        rest = f"{verb} {written(clause.after, gap.phrase, wh)}"
        return _joined(subject, clause.middle, rest, [], clause.before), False
    front = _front(gap, link)
    if front is None:
        return None
    middle, after, before = (
        [token for token in part if token not in gap and token not in (link, moved)]
        for part in (clause.middle, clause.after, clause.before)
    )
    return _joined(f"{front} {text} {subject}", middle, form, after, before), True


def _is_in(gap: _Gap, tokens: list[Any]) -> bool:
    return any(token in gap for token in tokens)


def _joined(start: str, middle: list[Any], verb: str, after: list[Any], before: list[Any]) -> str:
    return " ".join((start, written(middle), verb, written(after), written(before)))


def _holder(gap: _Gap, link: Any, verb: Any) -> Any:
    """What the gap hangs on, where a parser may have hung a place or a time on a noun before it."""
    holder = gap.noun.head if link is None else link.head
    if link is not None and link.text != "of" and gap.kind in ("DATE", *_PLACES):
        while holder.dep_ in OBJECTS:
            holder = holder.head
        if gap.kind == "DATE" and holder.dep_ == "pobj" and holder.head.text != "of":
            holder = holder.head.head  # "was sold to a farmer in 1887"
    while holder != verb and holder.dep_ == "xcomp":  # "wanted to win the cup"
        holder = holder.head
    return holder


def _front(gap: _Gap, link: Any) -> str | None:
    """The wh-phrase with the preposition that it needs."""
    if link is None:
        return gap.wh
    preposition = link.lower_
    if preposition not in _FRONTED:
        return None
    if gap.wh == "when":
        return "when" if preposition in ("at", "in", "on") else f"{preposition} what date"
    if gap.wh == "which place" and preposition in ("at", "in"):
        return "where"
    return f"{preposition} {'whom' if gap.wh == 'who' else gap.wh}"
