"""The Reader: its format, its validator, and its counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from attnlib import load_corpus
from attnlib.data import reader
from attnlib.data.reader import ReaderError, frame_table, passages, problems
from attnlib.data.reader.convert import to_frames
from attnlib.data.reader.markup import Passage, parse
from attnlib.data.reader.summary import statistics

GOOD = """title: The key
register: narrative

[Ada ^Brandt|ada:name] lost [the ^key to [the ^cellar|cellar:noun]|key:noun] on a windy Monday.
[Her|ada:pron] neighbour quietly handed [it|key:pron] back, and [Brandt|ada:name] gave him two jars.

"Did [you|ada:pron] look inside [the ^cellar|cellar:noun]?" asked [she|ada:pron].
He shook his head, but his shoes were white with flour from [the cold ^cellar|cellar:noun] floor.
Before [she|ada:pron] slept, [Ada|ada:name] counted the jars on the shelf and wrote the number down.

= frames
2: handed | Giving | Donor: Her neighbour | Theme: it
= questions
who: Who lost the key? | Ada Brandt | 1
how many*: How many jars did the neighbour get? | two | 2
"""
FRAMES = {"Giving": ["Donor", "Recipient", "Theme"]}


def written(folder: Path, text: str, name: str = "key") -> Path:
    path = folder / f"{name}.txt"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def good(tmp_path: Path) -> Passage:
    return parse(written(tmp_path, GOOD))


def test_a_good_passage_is_read_as_it_is_meant(good: Passage) -> None:
    assert (good.title, good.register, good.id) == ("The key", "narrative", "key")
    assert good.text.startswith("Ada Brandt lost the key to the cellar on")
    assert len(good.sentences) == 5 and good.second_paragraph == 2
    chains = {e: [good.surface(m.start, m.end) for m in c] for e, c in good.clusters.items()}
    assert chains == {
        "ada": ["Ada Brandt", "Her", "Brandt", "you", "she", "she", "Ada"],
        "key": ["the key to the cellar", "it"],
        "cellar": ["the cellar", "the cellar", "the cold cellar"],
    }
    heads = [good.words[m.head] for m in good.mentions if m.end - m.start > 1]
    assert heads == ["Brandt", "cellar", "key", "cellar", "cellar"]
    (frame,) = good.frames
    spans = [good.surface(*span) for _, span in frame.elements]
    assert (good.surface(*frame.target), spans) == ("handed", ["Her neighbour", "it"])
    assert [good.surface(*q.answer) for q in good.questions] == ["Ada Brandt", "two"]
    assert [q.hard for q in good.questions] == [False, True]
    assert problems([good], FRAMES) == []


def test_offsets_give_back_every_word(good: Passage) -> None:
    assert all(good.text[a:b] == w for w, (a, b) in zip(good.words, good.offsets, strict=True))


# What is typed wrong -> what the parser says, with line and column.
MISTAKES = {
    "no head": ("title: The key\n", "", ":1:1: the head has no 'title:' line"),
    "register": ("register: narrative", "register: poem", "register 'poem'; expected one of news"),
    "head line": ("register: narrative", "genre: news", ":2:1: expected 'title: ...'"),
    "open": ("floor.", "[floor.", ":8:"),
    "never closed": ("[it|key:pron]", "[it|key:pron", "is never closed"),
    "no label": ("[it|key:pron]", "[it]", ":5:44: ']' without '|entity:type'"),
    "wrong type": ("key:pron", "key:pronoun", ":5:45: label 'key:pronoun'; expected entity:type"),
    "inside a word": ("[Her|ada:pron] n", "[He|ada:pron]r n", "begins or ends inside a word"),
    "no caret": ("[the ^cellar|cellar:noun]?", "[the cellar|cellar:noun]?", "needs one '^'"),
    "two carets": ("[Ada ^Brandt", "[^Ada ^Brandt", "a second '^' in the same mention"),
    "stray caret": ("windy", "^windy", "no mention is open"),
    "stray bar": ("windy", "windy|x", "'|' outside a mention"),
    "empty mention": ("[it|key:pron]", "[|key:pron]", "an empty mention"),
    "one paragraph": ("jars.\n\n", "jars.\n", "1 paragraphs; expected two"),
    "section": ("= frames", "= rahmen", ":11:1: section 'rahmen'"),
    "frame line": ("2: handed | Giving |", "2: handed Giving", "expected 'sentence: predicate"),
    "frame sentence": ("2: handed", "9: handed", ":12:1: sentence 9; the passage has 5"),
    "no number": ("2: handed", "two: handed", ":12:1: expected the number of a sentence"),
    "predicate": ("2: handed", "2: lent", ":12:4: 'lent' does not occur in sentence 2"),
    "element": ("Theme: it", "Theme: it all", "'it all' does not occur in sentence 2"),
    "element name": ("Theme: it", "it", "'it'; expected 'Element: words'"),
    "question kind": ("who: Who", "whom: Who", ":14:1: kind 'whom'"),
    "question fields": ("| Ada Brandt | 1", "| Ada Brandt", "expected 'kind: question? |"),
    "no question mark": ("key? |", "key |", "does not end in '?'"),
    "answer": ("| two | 2", "| three | 2", "'three' does not occur in sentence 2"),
    "answer's sentence": ("| two | 2", "| two | 7", "sentence 7; the passage has 5"),
    "ambiguous": ("2: handed", "5: the | X | Y: it\n2: handed", "'the' occurs 3 times"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_parser_points_at_the_mistake(tmp_path: Path, name: str) -> None:
    old, new, expected = MISTAKES[name]
    assert old in GOOD
    with pytest.raises(ReaderError) as caught:
        parse(written(tmp_path, GOOD.replace(old, new, 1)))
    assert str(caught.value).startswith("key.txt:")
    assert expected in str(caught.value)


# What is annotated wrong -> what the validator says, with line and column.
FAULTS = {
    "lone entity": ("[it|key:pron]", "it", "4:29: 'key' is mentioned once"),
    "pronoun": ("[Brandt|ada:name]", "[Brandt|ada:pron]", "marked pron, but it is no pronoun"),
    "noun": ("[it|key:pron]", "[it|key:noun]", "marked noun, but it is a pronoun"),
    "name": ("the ^cellar|cellar:noun]?", "the ^cellar|cellar:name]?", "not capitalised"),
    "capital": ("[Ada|ada:name]", "[Ada|ada:noun]", "capitalised inside a sentence"),
    "twice": ("[Ada|ada:name]", "[[Ada|ada:name]|key:name]", "the same words are marked twice"),
    "frame": ("Giving", "Gifts", "12:1: frame 'Gifts' is not in the table"),
    "core": ("Theme: it", "Place: it", "12:1: 'Place' is no core element of Giving"),
    "overlap": ("Theme: it", "Theme: handed it", "overlaps its predicate"),
    "kind": ("who: Who", "why: Who", "14:1: the question does not ask 'why'"),
    "short": ("\nHe shook his head, but", "\n[He|x:pron]", "mentioned once"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_validator_names_file_line_and_reason(tmp_path: Path, name: str) -> None:
    old, new, expected = FAULTS[name]
    assert old in GOOD
    found = problems([parse(written(tmp_path, GOOD.replace(old, new, 1)))], FRAMES)
    assert any(p.startswith("key.txt:") and expected in p for p in found), found


def test_a_head_outside_its_span_is_caught(good: Passage) -> None:
    first = good.mentions[0]
    broken = replace(good, mentions=(replace(first, head=first.end), *good.mentions[1:]))
    assert any("lies outside its span" in fault for fault in problems([broken], FRAMES))


def test_too_short_and_too_long_are_caught(tmp_path: Path) -> None:
    lines = GOOD.splitlines()
    short = parse(written(tmp_path, "\n".join([*lines[:5], "", lines[6]]) + "\n"))
    found = " ".join(problems([short], FRAMES))
    assert "3 sentences; expected 4 to 9" in found and "words; expected 60 to 120" in found
    long = GOOD.replace("He shook", "One more sentence.\n" * 5 + "He shook")
    found = " ".join(problems([parse(written(tmp_path, long))], FRAMES))
    assert "10 sentences; expected 4 to 9" in found


def test_twins_are_caught(tmp_path: Path) -> None:
    one = parse(written(tmp_path, GOOD))
    other = parse(written(tmp_path, GOOD.replace("Monday", "Tuesday"), "copy"))
    found = problems([one, other], FRAMES)
    assert "copy.txt:1:1: its title is also that of key.txt" in found
    assert any("a near duplicate" in fault for fault in found)
    again = replace(other, id="key")
    assert any("its id is also that of" in fault for fault in problems([one, again], FRAMES))


def test_the_tagger_may_be_overruled(good: Passage) -> None:
    says_verb = problems([good], FRAMES, lambda words: ["VERB"] * len(words))
    assert len(says_verb) == len(good.mentions)
    assert "or write '!' behind the type" in says_verb[0]
    overruled = tuple(replace(mention, overruled=True) for mention in good.mentions)
    calm = replace(good, mentions=overruled)
    assert problems([calm], FRAMES, lambda words: ["VERB"] * len(words)) == []


# --- the real passages ---------------------------------------------------------------------------


@pytest.mark.assets
def test_the_validator_passes_on_the_reader() -> None:
    from attnlib.data.parser import tagger

    assert problems(passages(), frame_table(), tagger()) == []


def test_the_reader_is_as_large_as_promised() -> None:
    counts = statistics(passages())
    assert counts["passages"] >= 60
    assert counts["mentions"] >= 900
    assert counts["frame_links"] >= 250
    assert counts["frame_links_kovaleva"] >= 125
    assert counts["questions"] >= 240
    assert 0.05 < counts["questions_hard"] / counts["questions"] < 0.15
    assert counts["nested_mentions"] > 50 and counts["cataphora"] >= 10
    assert set(counts["registers"]) == set(reader.markup.REGISTERS)
    assert min(counts["questions_by_kind"].values()) >= 20


def test_kovalevas_filter_by_hand(good: Passage) -> None:
    (frame,) = to_frames(good)
    donor, theme = (span for _, span in frame.elements)
    assert not frame.passes_filter(donor), "the sentence is too long"
    start, _ = good.sentences[1]
    sentences = (good.sentences[0], (start, start + 12), *good.sentences[2:])
    (short,) = to_frames(replace(good, sentences=sentences))
    assert short.passes_filter(donor), "'neighbour quietly handed': two tokens apart"
    assert not short.passes_filter(theme), "'handed it': next to each other"


def test_the_reader_loads_as_corpora() -> None:
    documents = load_corpus("reader-coref")
    frames = load_corpus("reader-frames")
    questions = load_corpus("reader-qa")
    counts = statistics(passages())
    assert len(documents) == counts["passages"] == len(load_corpus("reader"))
    assert sum(len(c) for d in documents.examples for c in d.clusters) == counts["mentions"]
    assert sum(len(f.elements) for f in frames.examples) == counts["frame_links"]
    assert len(questions) == counts["questions"]
    for question in questions.examples:
        (answer,) = question.answers
        assert question.context[answer.start :].startswith(answer.text)
    for document in documents.examples:
        for cluster in document.clusters:
            assert all(document.head_word(span) in span for span in cluster)


def test_the_annotated_sentences_are_kept() -> None:
    for one, segment in zip(passages(), load_corpus("reader").examples, strict=True):
        assert sum(map(len, segment.sentence_starts)) == len(one.sentences)
        for part, starts in zip(segment.parts, segment.sentence_starts, strict=True):
            assert starts[0] == 0 and all(part[s - 1] == " " for s in starts[1:])
    for question in load_corpus("reader-qa").examples[:20]:
        assert len(question.sentence_starts[1]) >= 4
