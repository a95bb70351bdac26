"""Made questions: sentences with one reading, hand-made parses, windows, drawing and keeping.

The rules are tested on hand-made parses and the laws of drawing on a plain maker, so both run where
the parser's files are not.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from attnlib.data import parser
from attnlib.data.corpora import known_corpora, load_corpus
from attnlib.data.examples import Answer, Question, sentence_starts
from attnlib.data.tasks import goes_to_dev
from attnlib.data.wikipedia import Paragraph
from experiments.shared.questions import corpus as questions
from experiments.shared.questions.clozes import clozes
from experiments.shared.questions.corpus import (
    CONTEXT_WORDS,
    NO_QUESTION,
    NO_WINDOW,
    PER_PARAGRAPH,
    made_questions,
    spread_order,
    windows,
)

# --- hand-made parses: one word per row, "word head relation tag part-of-speech [name]" ----------

LEMMAS = {"sold": "sell", "has": "have", "flows": "flow", "saw": "see", "won": "win"}


@cache
def vocabulary() -> Any:
    import spacy

    return spacy.blank("en").vocab


def doc(rows: str) -> Any:
    """A parsed sentence; heads count from 1 as in a treebank, 0 is the root."""
    from spacy.tokens import Doc, Span

    table = [row.split() for row in rows.strip().splitlines()]
    heads = [int(row[1]) - 1 if int(row[1]) else place for place, row in enumerate(table)]
    made = Doc(
        vocabulary(),
        words=[row[0] for row in table],
        spaces=[after[0] not in {".", ",", "'s", ")"} for after in (*table[1:], ["."])],
        heads=heads,
        deps=[row[2] for row in table],
        tags=[row[3] for row in table],
        pos=[row[4] for row in table],
    )
    names: list[Span] = []
    for place, row in enumerate(table):
        if len(row) > 5:
            if names and names[-1].end == place and names[-1].label_ == row[5]:
                names[-1] = Span(made, names[-1].start, place + 1, row[5])
            else:
                names.append(Span(made, place, place + 1, row[5]))
    made.ents = names
    return made


def asked(made: Any) -> dict[str, str]:
    """Answer -> question of every question on the sentences of a document."""
    return {
        made.text[cloze.start : cloze.end]: cloze.question
        for sentence in made.sents
        for cloze in clozes(sentence, lambda verb: LEMMAS[verb.text])
    }


SOLD = """
    In      6  prep   IN  ADP
    1952    1  pobj   CD  NUM    DATE
    ,       6  punct  ,   PUNCT
    Ann     5  compound NNP PROPN PERSON
    Lee     6  nsubj  NNP PROPN  PERSON
    sold    0  ROOT   VBD VERB
    the     9  det    DT  DET
    old     9  amod   JJ  ADJ
    harbour 6  dobj   NN  NOUN
    to      6  prep   IN  ADP
    Norway  10 pobj   NNP PROPN  GPE
    .       6  punct  .   PUNCT
"""


def test_subject_object_place_and_year_are_asked_in_front() -> None:
    assert asked(doc(SOLD)) == {
        "Ann Lee": "Who sold the old harbour to Norway in 1952?",
        "old harbour": "What did Ann Lee sell to Norway in 1952?",
        "Norway": "To which place did Ann Lee sell the old harbour in 1952?",
        "1952": "In what year did Ann Lee sell the old harbour to Norway?",
    }


def test_the_preposition_goes_with_when_and_where() -> None:
    dated = SOLD.replace("1952    1  pobj   CD  NUM ", "May-1952 1 pobj   NNP PROPN")
    assert asked(doc(dated))["May-1952"] == "When did Ann Lee sell the old harbour to Norway?"
    since = dated.replace("In      6", "Since   6")
    assert asked(doc(since))["May-1952"].startswith("Since what date did Ann Lee sell")
    place = SOLD.replace(" to ", " in ")
    assert asked(doc(place))["Norway"] == "Where did Ann Lee sell the old harbour in 1952?"
    since = SOLD.replace("In      6", "Since   6")
    assert asked(doc(since))["1952"].startswith("Since what year did Ann Lee sell")
    person = SOLD.replace("PROPN  GPE", "PROPN  PERSON")
    assert asked(doc(person))["Norway"].startswith("To whom did Ann Lee sell")


CAPITAL = """
    Arva    2 nsubj   NNP PROPN GPE
    is      0 ROOT    VBZ AUX
    the     4 det     DT  DET
    capital 2 attr    NN  NOUN
    of      4 prep    IN  ADP
    Borland 5 pobj    NNP PROPN GPE
    .       2 punct   .   PUNCT
"""


def test_what_does_not_hang_on_the_verb_is_asked_in_its_place() -> None:
    found = list(clozes(next(doc(CAPITAL).sents), str))
    assert [(cloze.question, cloze.fronted) for cloze in found] == [
        ("Which place is the capital of Borland?", True),
        ("Arva is the capital of which place?", False),
    ]  # and no "What of Borland is Arva?"
    person = asked(
        doc(CAPITAL.replace("Borland 5 pobj    NNP PROPN GPE", "Ben 5 pobj NNP PROPN PERSON"))
    )
    assert person["Ben"] == "Arva is the capital of whom?"


ROOMS = """
    The     2 det     DT  DET
    museum  3 nsubj   NN  NOUN
    has     0 ROOT    VBZ VERB
    about   5 advmod  RB  ADV
    forty   6 nummod  CD  NUM   CARDINAL
    rooms   3 dobj    NNS NOUN
    (       6 punct   (   PUNCT
    four    9 nummod  CD  NUM   CARDINAL
    towers  6 appos   NNS NOUN
    )       6 punct   )   PUNCT
    ,       3 punct   ,   PUNCT
    and     3 cc      CC  CCONJ
    Ann     14 nsubj  NNP PROPN PERSON
    saw     3 conj    VBD VERB
    two     16 nummod CD  NUM   CARDINAL
    gardens 14 dobj   NNS NOUN
    .       3 punct   .   PUNCT
"""


def test_numbers_brackets_and_the_next_clause() -> None:
    found = asked(doc(ROOMS))
    assert found["forty"] == "How many rooms does the museum have?"
    assert found["two"] == "How many gardens did Ann see?"
    assert found["museum"] == "What has about forty rooms?"
    assert found["Ann"] == "Who saw two gardens?"
    assert "four" not in found


OWNER = """
    The     2 det     DT  DET
    town    4 poss    NN  NOUN
    's      2 case    POS PART
    hall    6 nsubjpass NN NOUN
    was     6 auxpass VBD AUX
    built   0 ROOT    VBN VERB
    by      6 agent   IN  ADP
    Lee     10 poss   NNP PROPN PERSON
    's      8 case    POS PART
    brother 7 pobj    NN  NOUN
    ,       10 punct  ,   PUNCT
    who     13 nsubj  WP  PRON
    won     10 relcl  VBD VERB
    nothing 13 dobj   NN  PRON
    .       6 punct   .   PUNCT
"""


def test_owners_and_what_hangs_on_by_a_comma() -> None:
    assert asked(doc(OWNER)) == {
        "town's hall": "What was built by Lee's brother?",
        "Lee": "By whose brother was the town's hall built?",
    }


@pytest.mark.parametrize(
    ("was", "is_now", "gone"),
    [
        (
            "Ann     5  compound NNP PROPN PERSON",
            "These   5  det      DT  DET  ",
            ["1952", "Norway"],
        ),
        ("sold    0  ROOT   VBD", "sold    0  ROOT   VBN", ["1952", "Norway", "Ann Lee"]),
        ("the     9  det ", "such    9  det ", ["harbour", "old harbour"]),
        ("harbour 6  dobj   NN  NOUN", "series  6  dobj   NN  NOUN", ["series", "old series"]),
        ("to      6  prep", "like    6  prep", ["Norway"]),
        ("In      6  prep ", "Never   6  advmod", ["1952", "Norway", "Ann Lee"]),
        ("the     9  det    DT  DET", "“       9  punct  `` PUNCT", ["1952", "Norway", "Ann Lee"]),
    ],
)
def test_clauses_that_give_no_good_question(was: str, is_now: str, gone: list[str]) -> None:
    assert was in SOLD
    found = asked(doc(SOLD.replace(was, is_now)))
    assert not set(gone) & set(found)


def test_a_list_is_no_answer() -> None:
    listed = SOLD.replace(
        "Norway  10 pobj   NNP PROPN  GPE",
        "Norway  10 pobj   NNP PROPN  GPE\n and 11 cc CC CCONJ\n Peru 11 conj NNP PROPN GPE",
    )
    assert set(asked(doc(listed))) == {"Ann Lee", "old harbour", "1952"}


# --- windows ------------------------------------------------------------------------------------


def slow_windows(sizes: list[int], sentence: int) -> set[tuple[int, int]]:
    """Every run of two sentences or more that fits, and that no sentence after it can join."""
    fewest, most = CONTEXT_WORDS
    return {
        (first, last)
        for first, last in itertools.combinations(range(len(sizes) + 1), 2)
        if first <= sentence < last
        and last - first >= 2
        and fewest <= sum(sizes[first:last]) <= most
        and (last == len(sizes) or sum(sizes[first : last + 1]) > most)
    }


def test_windows_are_those_of_the_loops() -> None:
    rng = random.Random(0)
    n_found = 0
    for _ in range(300):
        sizes = [rng.randint(3, 60) for _ in range(rng.randint(1, 9))]
        for sentence in range(len(sizes)):
            found = windows(sizes, sentence)
            assert set(found) == slow_windows(sizes, sentence)
            assert len(found) == len(set(found))
            n_found += len(found)
    assert n_found > 500
    assert windows([], 0) == []


# --- drawing and keeping, with a plain maker in the parser's place -------------------------------


def plain(paragraph: Paragraph) -> list[Question] | str:
    """0 to 3 questions by the paragraph's index, or one of the reasons."""
    n = paragraph.index % 4
    if not n:
        return (NO_WINDOW, NO_QUESTION)[paragraph.index % 8 == 4]
    name = f"{paragraph.article}#{paragraph.index}"
    answers = (Answer("é", 0),)
    return [Question(f"{name}.{k}", f"Q{k}?", "é b", answers, paragraph.article) for k in range(n)]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Paragraph]:
    """The paragraphs that reached the (replaced) maker, in turn."""
    seen: list[Paragraph] = []

    def make(paragraphs: Iterable[Paragraph]) -> Iterator[tuple[list[Question], dict[str, int]]]:
        for paragraph in paragraphs:
            seen.append(paragraph)
            found = plain(paragraph)
            yield ([], {found: 1}) if isinstance(found, str) else (found, {})

    monkeypatch.setattr(questions, "_made", make)
    monkeypatch.setattr(parser, "resolve", lambda name: Path("parser-1"))
    return seen


SHELF = [Paragraph(f"T{n // 9}", n % 9, f"text {n}") for n in range(45)]


def test_a_smaller_number_is_a_subset_in_the_order_of_the_paragraphs(made: list[Paragraph]) -> None:
    whole, skipped = made_questions(SHELF)
    assert whole == [q for p in SHELF for q in plain(p) if not isinstance(q, str)]
    assert skipped == {NO_WINDOW: 10, NO_QUESTION: 5}
    before: set[Question] = set()
    for n in range(1, len(whole) + 3):
        found, _ = made_questions(SHELF, n=n)
        assert len(found) == min(n, len(whole))
        assert [question for question in whole if question in found] == found
        assert before <= set(found)
        before = set(found)
    assert set(made_questions(SHELF, n=12, seed=1)[0]) != set(made_questions(SHELF, n=12)[0])


def test_no_more_is_made_than_needed(made: list[Paragraph]) -> None:
    made_questions(SHELF, n=9)
    counts = [0 if isinstance(plain(p), str) else len(plain(p)) for p in made]
    assert sum(counts) >= 9 > sum(counts[:-1])


def test_every_article_gives_one_before_any_gives_two() -> None:
    articles = ["a"] * 7 + ["b"] * 2 + ["c"] * 4
    for seed in range(20):
        order = spread_order(articles, seed)
        assert sorted(order) == list(range(13))
        assert [len({articles[p] for p in order[:3]}), len({articles[p] for p in order[3:6]})] == [
            3,
            3,
        ]
        assert Counter(articles[p] for p in order[:8]) == {"a": 3, "b": 2, "c": 3}
    orders = {tuple(spread_order(articles, seed)) for seed in range(20)}
    assert len(orders) == 20
    assert spread_order([], 0) == []


def test_what_was_made_is_kept_and_grows(made: list[Paragraph], tmp_path: Path) -> None:
    kept = tmp_path / "new" / "x.jsonl"
    fresh = {n: made_questions(SHELF, n=n) for n in (5, 20, None)}
    made.clear()
    for n in (5, 20, 5, None, 20):
        assert made_questions(SHELF, n=n, kept=kept) == fresh[n]
    assert sorted(made, key=SHELF.index) == SHELF  # each once
    kept.write_bytes(kept.read_bytes().replace("é b".encode(), "é c".encode(), 1))
    assert made_questions(SHELF, kept=kept) == fresh[None]  # damaged: made again
    assert len(made) == 2 * len(SHELF)


def test_a_kept_file_is_named_by_texts_parser_and_version(
    made: list[Paragraph], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def name(items: list[Paragraph]) -> str:
        """The name of the file that appears when questions are made from these paragraphs."""
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        found = (items, Counter())
        monkeypatch.setattr(questions, "sample_paragraphs", lambda *_: found)
        load_corpus("wiki-questions:train", folder=tmp_path, cache=folder)
        (path,) = folder.glob("**/*.jsonl")
        return str(path.relative_to(folder))

    first = name(SHELF)
    assert re.fullmatch(r"questions/wiki-train-v1-[0-9a-f]{12}\.jsonl", first)
    assert first == name(list(SHELF))
    others = {name(SHELF[:-1]), name([*SHELF[:-1], Paragraph("T4", 8, "x")])}
    with monkeypatch.context() as patch:
        patch.setattr(parser, "resolve", lambda name: Path("parser-2"))
        others.add(name(SHELF))
    monkeypatch.setattr(questions, "VERSION", 2)
    others.add(name(SHELF))
    assert len(others) == 4
    assert first not in others


def test_the_corpora_are_listed_and_split_by_article() -> None:
    for split in ("train", "dev"):
        info = known_corpora()[f"wiki-questions:{split}"]
        assert (info.kind, info.asset) == ("question", "wiki-sample")
        assert "sha256 of its title" in info.what


def test_the_splits_share_no_article(
    made: list[Paragraph], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    titles = [f"Town {n}" for n in range(40)]
    items = [Paragraph(title, 1 + n, "x") for title in titles for n in range(3)]
    found = (items, Counter({"a hole": 2}))
    monkeypatch.setattr(questions, "sample_paragraphs", lambda *_: found)
    sides = {}
    for split in ("train", "dev"):
        corpus = load_corpus(f"wiki-questions:{split}", folder=tmp_path, cache=tmp_path)
        sides[split] = {question.article for question in corpus.examples}
        assert corpus.kind == "question"
        assert corpus.skipped["a hole"] == 2
        assert len(corpus) == 6 * len(sides[split])
        few = load_corpus(f"wiki-questions:{split}", folder=tmp_path, cache=tmp_path, limit=5)
        assert set(few.examples) < set(corpus.examples)
        assert len(few) == 5
    assert sides["train"] | sides["dev"] == set(titles)
    assert sides["dev"] == {title for title in titles if goes_to_dev(title)}
    assert 0 < len(sides["dev"]) < len(sides["train"])
    files = sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "questions").iterdir())
    assert files == ["wiki-dev-v1", "wiki-train-v1"]
    assert load_corpus("wiki-questions", folder=tmp_path).name == "wiki-questions:dev"


def test_the_parser_is_loaded_only_when_it_is_used() -> None:
    code = "import sys, experiments; sys.exit('spacy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_the_experiments_adds_the_corpora() -> None:
    code = """
import attnlib.data.corpora as corpora
assert not any("wiki-questions" in name for name in corpora.known_corpora())
import experiments
assert {"wiki-questions:train", "wiki-questions:dev"} <= set(corpora.known_corpora())
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- with the parser ------------------------------------------------------------------------------

TEXT = (
    "Maria Keller opened a small bakery in Vienna in 1931. The bakery sold bread to seven hotels. "
    "In March 1952, the company bought an old harbour near the river and moved there. The harbour "
    "has forty rooms, and visitors can see two gardens there. Anna Weber's brother (a painter) "
    "moved to Canada and bought a farm in 1964."
)


@pytest.mark.assets
@pytest.mark.parametrize(
    ("sentence", "answer", "question"),
    [
        (0, "Maria Keller", "Who opened a small bakery in Vienna in 1931?"),
        (0, "1931", "In what year did Maria Keller open a small bakery in Vienna?"),
        (0, "Vienna", "Where did Maria Keller open a small bakery in 1931?"),
        (3, "two", "How many gardens can visitors see there?"),
        (4, "Canada", "To which place did Anna Weber's brother move?"),
        (4, "farm", "What did Anna Weber's brother buy in 1964?"),
        (4, "Anna Weber", "Whose brother moved to Canada?"),
    ],
)
def test_sentences_with_one_reading(sentence: int, answer: str, question: str) -> None:
    nlp = parser.pipeline(names=True)
    lemmatizer = nlp.get_pipe("lemmatizer")
    parsed = nlp(TEXT)
    found = {
        TEXT[cloze.start : cloze.end]: cloze.question
        for cloze in clozes(list(parsed.sents)[sentence], lambda v: lemmatizer.lemmatize(v)[0])
    }
    assert found[answer] == question


def check(questions: Iterable[Question]) -> None:
    """What holds for every made question."""
    for question in questions:
        (answer,) = question.answers
        context, low = question.context, question.question.lower()
        assert context[answer.start :].startswith(answer.text)
        assert context.count(f" {answer.text} ") <= 1
        assert answer.text.lower() not in low.replace("?", " ").split()
        assert 1 <= len(answer.text.split()) <= 6
        assert question.question.endswith("?")
        assert 5 <= len(low.split()) <= 20
        assert any(word in low for word in ("who", "what", "which", "when", "where", "how"))
        assert len(sentence_starts(context)) >= 2
        assert context == context.strip()


@pytest.mark.assets
def test_a_paragraph_gives_the_same_questions_wherever_it_stands() -> None:
    shelf = [Paragraph(f"T{n}", n, TEXT) for n in range(12)] + [Paragraph("U", 0, "Too short.")]
    found, skipped = made_questions(shelf)
    assert skipped == {NO_WINDOW: 1}
    check(found)
    per_paragraph = Counter(question.article for question in found)
    assert set(per_paragraph.values()) <= set(range(1, PER_PARAGRAPH + 1))
    assert len(per_paragraph) == 12
    for question in found:
        assert question.context in TEXT
        place = TEXT.index(question.context)
        assert place in sentence_starts(TEXT)  # whole sentences
        before = [s for s in sentence_starts(question.context) if s <= question.answers[0].start]
        assert before
    places = {
        sum(start <= question.answers[0].start for start in sentence_starts(question.context))
        for question in found
    }
    assert len(places) >= 2  # the sentence does not always come first
    again, _ = made_questions(shelf[3:7], seed=5)
    assert again == [question for question in found if question.article in {"T3", "T4", "T5", "T6"}]


@pytest.mark.mirror
@pytest.mark.skipif(not os.environ.get("ATTNLIB_MIRROR"), reason="$ATTNLIB_MIRROR is not set")
def test_the_real_sample() -> None:
    train = load_corpus("wiki-questions:train", limit=40, seed=1)
    fewer = load_corpus("wiki-questions:train", limit=15, seed=1)
    dev = load_corpus("wiki-questions:dev", limit=12, seed=1)
    assert (len(train), len(dev)) == (40, 12)
    assert set(fewer.examples) < set(train.examples)
    check((*train.examples, *dev.examples))
    titles = [{question.article for question in corpus.examples} for corpus in (train, dev)]
    assert not titles[0] & titles[1]
    assert len(titles[0]) >= 15  # spread over articles
    assert all(map(goes_to_dev, titles[1]))
