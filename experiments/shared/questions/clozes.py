"""A parsed sentence -> the questions it answers: a phrase is asked for, its clause asks.

The unsupervised cloze recipe: the answer is a name or a noun phrase, the question its sentence with
the fitting wh-word in the answer's place. Here the sentence is cut to its clause, and the wh-phrase
moves to the front where that is one plain step ("Who ...", "What did ... do"). A clause keeps its
verb, its subject and what the verb needs; it loses brackets, what hangs on by a comma, linking
adverbs and the next clause. All rules are on spaCy's English labels and tags.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Lemma = Callable[[Any], str]
"""The base form of a verb's token."""

_LISTED = tomllib.loads(Path(__file__).with_name("clozes.toml").read_text(encoding="utf-8"))
_WORDS = {kind: frozenset(words.split()) for kind, words in _LISTED["words"].items()}
_LABELS: dict[str, list[str]] = _LISTED["labels"]
_ASKED: dict[str, str] = _LISTED["asked"]
_SUBJECTS, _OBJECTS = _LABELS["subjects"], _LABELS["objects"]
_VERBAL, _PLACES = _LABELS["verbal"], _LABELS["places"]
_POINTING = _WORDS["pointing"]
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
        if noun.dep_ in (*_SUBJECTS, *_OBJECTS, "pobj", "npadvmod") and _is_plain(noun):
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
        and all(token.pos_ not in _VERBAL and token.dep_ != "cc" for token in inside)
        and all(token.pos_ != "PUNCT" or token.text == "-" for token in inside)
        and all(token.lower_ not in _WORDS["vague_modifiers"] for token in inside)
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
    after = [t for t in noun.rights if t.i >= last and t.dep_ != "punct" and not _hangs(t)]
    linked = [t for t in after if t.text == "of" or t.dep_ != "prep" or noun.dep_ != "dobj"]
    share = kind == "PERCENT" and noun.dep_ in _SUBJECTS  # "What percentage of ..."
    if wh and phrase[0].pos_ != "ADP" and (not linked or share):
        yield _Gap(noun, noun.doc[first:last], phrase, wh, kind)


def _wh_phrase(noun: Any, phrase: Any, kind: str) -> str | None:
    """What asks for the whole phrase, or None where nothing fits."""
    if kind in ("DATE", "TIME"):
        return _when(noun, phrase.text)
    if kind == "NOUN":
        if (
            noun.pos_ != "NOUN"
            or noun.dep_ in ("pobj", "npadvmod")
            or noun.lower_ in _WORDS["vague_nouns"]
        ):
            return None
        person = noun.lower_ in _WORDS["persons"] or noun.lower_.endswith(("ists", "ians"))
        return "who" if person else "what"
    if kind in ("MONEY", "PERCENT"):
        return _ASKED[kind]
    plural = noun.tag_ == "NNPS"
    if kind not in _ASKED or noun.pos_ != "PROPN":
        return None
    if (kind == "NORP" and not plural) or (kind == "PERSON" and plural):
        return None
    classes = [t.lower_ for t in (noun, phrase[0]) if t.lower_ in _WORDS["classes"]]
    if classes and kind != "PERSON" and len(phrase) > 1:
        return f"which {classes[0]}"
    if kind == "ORG" and len(phrase) == 1 and not phrase.text.isupper():
        return None  # one word taken for an organisation is a person or a place as often as not
    return _ASKED[kind]


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
    clause = _clause_of(gap.noun)
    if clause is None or (inverted := _helper(clause.verb, lemma)) is None:
        return None
    moved, text, form = inverted
    subject, verb = _written(clause.subject, gap.phrase, gap.wh), clause.verb.text
    if clause.noun == gap.noun:
        if gap.noun.tag_ in ("NN", "NNP") and text in ("are", "were", "have", "do"):
            return None  # one member of a list whose verb speaks of all
        return _joined(subject, clause.middle, verb, clause.after, clause.before), True
    said = {token.lower_ for token in clause.subject}
    if clause.noun.lower_ in _WORDS["vague_subjects"] or not said.isdisjoint(_POINTING):
        return None
    link = gap.noun.head if gap.noun.dep_ == "pobj" else None
    if _holder(gap, link, clause.verb) != clause.verb:
        stays = any(token in gap for token in clause.after)
        if link is None or gap.kind == "NOUN" or gap.wh == "when" or not stays:
            return None
        wh = "whom" if gap.wh == "who" else gap.wh
        rest = f"{verb} {_written(clause.after, gap.phrase, wh)}"
        return _joined(subject, clause.middle, rest, [], clause.before), False
    front = _front(gap, link)
    if front is None:
        return None
    middle, after, before = (
        [token for token in part if token not in gap and token not in (link, moved)]
        for part in (clause.middle, clause.after, clause.before)
    )
    return _joined(f"{front} {text} {subject}", middle, form, after, before), True


def _joined(start: str, middle: list[Any], verb: str, after: list[Any], before: list[Any]) -> str:
    return " ".join((start, _written(middle), verb, _written(after), _written(before)))


def _holder(gap: _Gap, link: Any, verb: Any) -> Any:
    """What the gap hangs on, where a parser may have hung a place or a time on a noun before it."""
    holder = gap.noun.head if link is None else link.head
    if link is not None and link.text != "of" and gap.kind in ("DATE", *_PLACES):
        while holder.dep_ in _OBJECTS:
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
    if preposition not in _WORDS["fronted"]:
        return None
    if gap.wh == "when":
        return "when" if preposition in ("at", "in", "on") else f"{preposition} what date"
    if gap.wh == "which place" and preposition in ("at", "in"):
        return "where"
    return f"{preposition} {'whom' if gap.wh == 'who' else gap.wh}"


# --- the clause around a noun -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Clause:
    """The tokens of a clause by where they stand."""

    verb: Any
    noun: Any  # of the subject
    subject: list[Any]
    middle: list[Any]  # between subject and verb
    after: list[Any]
    before: list[Any]  # what opens the clause, and can close it as well


def _clause_of(asked: Any) -> _Clause | None:
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
    return _Clause(verb, noun, subject, middle, after, before)


def _verb(noun: Any) -> Any:
    """The finite verb of the noun's clause, or None where that says nothing by itself."""
    token = noun
    while token.dep_ not in ("ROOT", "conj", "ccomp", "advcl"):
        if token.dep_ in _LABELS["unfit"]:
            return None
        token = token.head
    marks = {child.lower_ for child in token.lefts if child.dep_ in ("mark", "advmod")}
    fits = token.pos_ in _VERBAL and marks.isdisjoint(("as", "how", "if", "unless", "whether"))
    return token if fits else None


def _subject(verb: Any) -> Any:
    """The noun of its own subject, or of the verb's that it is joined to; None without one."""
    own = [child for child in verb.lefts if child.dep_ in _SUBJECTS]
    if own:
        return own[-1]
    return _subject(verb.head) if verb.dep_ == "conj" and verb.head.pos_ in _VERBAL else None


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
        joined |= token.dep_ == "advmod" and token.lower_ in _WORDS["connectives"]
        hanging = token.dep_ in _LABELS["left_out"] and token.i > token.head.i and _hangs(token)
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


def _hangs(token: Any) -> bool:
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
            found += tokens if named and all(t.lower_ not in _POINTING for t in tokens) else []
        elif child.dep_ not in _LABELS["dropped_openings"] or child.lower_ in _WORDS["turning"]:
            return None
    return found


def _helper(verb: Any, lemma: Lemma) -> tuple[Any, str, str] | None:
    """What goes before the subject (its token if it has one, its text), and the verb's form then.

    None where the verb is not finite.
    """
    helpers = [child for child in verb.lefts if child.dep_ in ("aux", "auxpass")]
    if helpers:
        first = helpers[0]
        return None if first.tag_ == "TO" else (first, first.lower_, verb.text)
    if verb.lower_ in _WORDS["be"]:
        return verb, verb.lower_, ""
    support = {"VBD": "did", "VBZ": "does", "VBP": "do"}.get(verb.tag_)
    return (None, support, lemma(verb)) if support else None


def _written(tokens: list[Any], phrase: Any = None, instead: str = "") -> str:
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
