"""The parser's trees: closed sentences, label names, limits that nest, and a cache that is honest.

The laws of drawing and keeping are tested on a plain splitter in the parser's place, so they run
where the parser's files are not.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlib.data import corpora, parser, reader
from attnlib.data.corpora import ALIASES, Options, known_corpora, load_corpus
from attnlib.data.examples import Tree
from attnlib.data.parser import (
    TOO_SHORT,
    parsed_in_order,
    parsed_words,
    stanford_label,
    tree_of,
)
from attnlib.errors import BadValue

TABLE_1 = {
    *("prep", "pobj", "det", "nn", "nsubj", "amod", "dobj", "advmod", "aux", "poss"),
    *("auxpass", "ccomp", "mark", "prt"),
}
SAMPLE = (
    "The old dog quickly chased a small cat. The house was built by his father in London. "
    "She said that the stock market will fall. If it rains, he must pick up the children."
)


def is_tree(heads: tuple[int, ...]) -> bool:
    """One root, and each word reaches it in fewer steps than there are words."""
    if heads.count(-1) != 1 or not all(-1 <= head < len(heads) for head in heads):
        return False
    for start in range(len(heads)):
        word, steps = start, 0
        while word != -1 and steps <= len(heads):
            word, steps = heads[word], steps + 1
        if word != -1:
            return False
    return True


@pytest.mark.parametrize("heads", [(1, 0), (-1, 2, 1), (-1, -1), (0, -1), (-1, 5), (-1, -2)])
def test_the_check_of_trees_can_fail(heads: tuple[int, ...]) -> None:
    assert not is_tree(heads)
    assert is_tree((2, 2, -1, 2))


# --- what the parser says -------------------------------------------------------------------


def parsed(texts: Iterable[tuple[str, str]], skipped: Counter[str] | None = None) -> list[Tree]:
    """The trees of all texts, and what was left out added to `skipped`."""
    listed = list(texts)
    found, left_out = parsed_in_order(listed, range(len(listed)))
    if skipped is not None:
        skipped.update(left_out)
    return [tree for _, tree in found]


@pytest.mark.assets
def test_a_sentence_with_one_reading() -> None:
    words = ("The", "old", "dog", "chased", "a", "small", "cat", ".")
    expected = {
        "heads": (2, 2, 3, -1, 6, 6, 3, 3),
        "relations": ("det", "amod", "nsubj", "root", "det", "amod", "dobj", "punct"),
        "tags": ("DET", "ADJ", "NOUN", "VERB", "DET", "ADJ", "NOUN", "PUNCT"),
    }
    (tree,) = parsed([("t", "The  old dog\nchased a small cat.")])
    text = "The old dog chased a small cat."
    assert tree == Tree("t.1", words, **expected, text=text, document="t")
    (tree,) = parsed_words([("w", words)])
    assert tree == Tree("w", words, **expected)


@pytest.mark.assets
def test_every_row_name_of_table_1_occurs() -> None:
    trees = list(parsed([("t", SAMPLE)]))
    assert len(trees) == 4
    found = {relation for tree in trees for relation in tree.relations}
    assert TABLE_1 - found == set()
    assert not {"ROOT", "compound", "agent"} & found


@pytest.mark.assets
def test_trees_are_trees_and_keep_every_word() -> None:
    passages = reader.passages()[:6]
    shelf = [(f"{p.id}/{n}", part) for p in passages for n, part in enumerate(reader_texts(p))]
    skipped: Counter[str] = Counter()
    trees = list(parsed(shelf, skipped))
    for name, text in shelf:
        mine = [tree for tree in trees if tree.document == name]
        assert "".join("".join(tree.words) for tree in mine) == "".join(text.split())
    assert not skipped
    assert len(trees) > len(shelf)
    for tree in trees:
        assert is_tree(tree.heads)
        assert tree.relations[tree.heads.index(-1)] == "root"
        assert tree.relations.count("root") == 1
        assert len(tree.words) == len(tree.heads) == len(tree.relations) == len(tree.tags) >= 3
        assert not any(word.isspace() for word in tree.words)
    assert len({tree.id for tree in trees}) == len(trees)


def reader_texts(passage: Any) -> list[str]:
    from attnlib.data.reader.convert import to_segment

    return [part for part in to_segment(passage).parts if isinstance(part, str)]


@pytest.mark.assets
def test_short_sentences_are_left_out_and_counted() -> None:
    skipped: Counter[str] = Counter()
    trees = list(parsed([("a", "He left. Go! She ran home."), ("b", " \n "), ("c", "")], skipped))
    assert [(tree.id, tree.text) for tree in trees] == [
        ("a.1", "He left."),
        ("a.3", "She ran home."),
    ]
    assert skipped == {TOO_SHORT: 1}


@pytest.mark.assets
def test_given_words_are_neither_split_nor_joined_nor_dropped() -> None:
    sentences = [
        ("a", ("Yes", ".", "He", "left", ".", "She", "ran", "home", ".")),
        ("b", ("Go",)),
        ("c", ("well-known", "can", "not", "1 000", "don't", "(:", "…")),
        ("d", ("is", "is", "is", "was", "ran", "ran", "went")),
    ]
    trees = list(parsed_words(sentences))
    assert [(tree.id, tree.words) for tree in trees] == sentences
    assert all(is_tree(tree.heads) for tree in trees)
    assert all(tree.relations[tree.heads.index(-1)] == "root" for tree in trees)


@pytest.mark.assets
def test_two_sentences_given_as_one_are_joined_at_their_roots() -> None:
    words = ("He", "left", "her", ".", "She", "ran", "home", ".")
    (tree,) = parsed_words([("x", words)])
    assert tree.heads == (1, -1, 1, 1, 5, 1, 5, 5)
    assert (tree.relations[1], tree.relations[5]) == ("root", "dep")
    assert tree.relations.count("dep") == 1


@pytest.mark.assets
def test_a_tree_does_not_depend_on_its_neighbours() -> None:
    texts = [(str(n), text + ".") for n, text in enumerate(SAMPLE.split(".")) if text] * 20
    texts = [(f"{n}-{name}", text) for n, (name, text) in enumerate(texts)]
    alone = [tree for one in texts[:4] for tree in parsed([one])]
    mixed = random.Random(0).sample(texts, len(texts))
    together = {tree.id: tree for tree in parsed(mixed)}
    assert [together[tree.id] for tree in alone] == alone


@pytest.mark.assets
@pytest.mark.parametrize(
    ("words", "reason"), [((), "has no word"), (("a", " "), "has a word that is blank")]
)
def test_sentences_that_are_none(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(BadValue, match=f"sentence 'x' {reason}"):
        list(parsed_words([("x", words)]))


@pytest.mark.assets
def test_a_text_beyond_the_parsers_length() -> None:
    with pytest.raises(BadValue, match="text 'x' has 1,000,001 characters"):
        list(parsed([("x", "a" * 1_000_001)]))


# --- names, by hand-made parses ----------------------------------------------------------------


def doc(words: str, heads: list[int], deps: str, tags: str) -> Any:
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

    listed = words.split()
    return Doc(Vocab(), words=listed, heads=heads, deps=deps.split(), pos=tags.split())


def test_labels_that_split_by_tag() -> None:
    made = doc(
        "gave him 3 million car parts to men by Ann",
        [0, 0, 3, 5, 5, 0, 0, 6, 0, 8],
        "ROOT dative compound nummod compound dobj dative pobj agent pobj",
        "VERB PRON NUM NUM NOUN NOUN ADP NOUN ADP PROPN",
    )
    names = "root iobj number num nn dobj prep pobj prep pobj"
    assert [stanford_label(token) for token in made] == names.split()
    made = doc("Ann 's dog that ran", [2, 0, 2, 4, 2], "poss case ROOT nsubj relcl", "X X X X X")
    assert [stanford_label(token) for token in made] == [
        *("poss", "possessive", "root", "nsubj", "rcmod")
    ]


def test_of_several_roots_the_first_stays() -> None:
    made = doc("We saw . It ran", [1, 1, 1, 4, 4], "nsubj ROOT punct nsubj ROOT", "X X X X X")
    tree = tree_of(list(made), "t")
    assert tree.heads == (1, -1, 1, 4, 1)
    assert tree.relations == ("nsubj", "root", "punct", "nsubj", "dep")
    later = tree_of(list(made)[3:], "t")  # heads count from the sentence's first word
    assert later.heads == (1, -1)


# --- drawing and keeping, with a plain splitter in the parser's place ------------------------


def split_trees(name: str, text: Any) -> tuple[list[Tree], dict[str, int]]:
    """A tree per clause of a text, each word under the one before; clauses of 1-2 words drop."""
    if not isinstance(text, str):
        return [chain(name, text)], {}
    parts = [part.split() for part in text.split(".") if part.strip()]
    trees = [chain(f"{name}.{n}", part) for n, part in enumerate(parts, start=1) if len(part) > 2]
    return trees, {TOO_SHORT: len(parts) - len(trees)}


def chain(name: str, words: Iterable[str]) -> Tree:
    words = tuple(words)
    labels = ("root", *["dep"] * (len(words) - 1))
    return Tree(name, words, tuple(range(-1, len(words) - 1)), labels, ("X",) * len(words))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that reached the (replaced) parser, in turn."""
    seen: list[str] = []

    def parses(texts: Iterable[tuple[str, Any]]) -> Iterator[tuple[list[Tree], dict[str, int]]]:
        for name, text in texts:
            seen.append(name)
            yield split_trees(name, text)

    monkeypatch.setattr(parser, "_parses", parses)
    monkeypatch.setattr(parser, "resolve", lambda name: Path("parser-1"))
    return seen


TEXTS = [(f"t{n}", "A b c. " * (n % 4) + "No. " * (n % 3) + "D é f") for n in range(40)]
ORDER = random.Random(3).sample(range(40), 40)


def test_a_smaller_limit_is_a_subset_in_the_order_of_the_texts(asked: list[str]) -> None:
    whole, skipped = parsed_in_order(TEXTS, ORDER)
    assert whole == [(n, tree) for n in range(40) for tree in split_trees(*TEXTS[n])[0]]
    assert skipped == {TOO_SHORT: sum(n % 3 for n in range(40))}
    before: list[Any] = []
    for limit in range(1, len(whole) + 2):
        found, _ = parsed_in_order(TEXTS, ORDER, limit=limit)
        assert len(found) == min(limit, len(whole))
        assert [item for item in whole if item in found] == found
        assert all(item in found for item in before)
        before = found


def test_no_more_is_parsed_than_needed(asked: list[str]) -> None:
    found, skipped = parsed_in_order(TEXTS, ORDER, limit=7)
    used = [TEXTS[place] for place in ORDER][: len(asked)]
    assert asked == [name for name, _ in used]
    trees = [len(split_trees(*text)[0]) for text in used]
    assert sum(trees) >= 7 > sum(trees[:-1])
    assert len(found) == 7
    assert sum(skipped.values()) == sum(split_trees(*text)[1][TOO_SHORT] for text in used)


def test_what_was_parsed_is_kept_and_grows(asked: list[str], tmp_path: Path) -> None:
    kept = tmp_path / "new" / "x.jsonl"
    fresh = {limit: parsed_in_order(TEXTS, ORDER, limit=limit) for limit in (5, 20, None)}
    asked.clear()
    for limit in (5, 20, 5, None, 20):
        assert parsed_in_order(TEXTS, ORDER, limit=limit, kept=kept) == fresh[limit]
    assert asked == [TEXTS[place][0] for place in ORDER]  # each once
    assert parsed_in_order(TEXTS, range(40), kept=kept) == fresh[None]
    assert len(asked) == 40
    assert [path.name for path in kept.parent.iterdir()] == ["x.jsonl"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"nothing of ours\n",
        lambda content: content[:-200],
        lambda content: content[content.index(b"\n") + 1 :],
        lambda content: content.replace(b'"words": ["A"', b'"words": ["B"', 1),
        lambda content: content + b"\n",
        lambda content: b"\xff" + content,
    ],
)
def test_a_damaged_file_is_made_again(asked: list[str], tmp_path: Path, damage: Any) -> None:
    kept = tmp_path / "x.jsonl"
    expected = parsed_in_order(TEXTS, ORDER, kept=kept)
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    assert kept.read_bytes() != whole
    assert parsed_in_order(TEXTS, ORDER, kept=kept) == expected
    assert kept.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_error(asked: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    kept = tmp_path / "file" / "x.jsonl"
    assert parsed_in_order(TEXTS, ORDER, kept=kept) == parsed_in_order(TEXTS, ORDER)


def test_a_kept_file_is_named_by_texts_parser_and_version(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def name(*texts: tuple[str, Any], bank: str = "ewt-dev") -> str:
        """The name of the file that appears when the texts are parsed."""
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        corpora._parsed(bank, texts, Options(cache=folder))
        (path,) = folder.glob("**/*.jsonl")
        return str(path.relative_to(folder))

    first = name(("a", "x y"))
    assert re.fullmatch(r"parsed/ewt-dev-v1-[0-9a-f]{12}\.jsonl", first)
    assert first == name(("a", "x y"))
    others = {name(("a", "x  y")), name(("b", "x y")), name(("a", "x y"), bank="gum-dev")}
    others |= {name(("a", ("x", "y"))), name(("a", "x y"), ("a", "x y"))}
    with monkeypatch.context() as patch:
        patch.setattr(parser, "resolve", lambda name: Path("parser-2"))
        others.add(name(("a", "x y")))
    with monkeypatch.context() as patch:
        patch.setattr(parser, "version", lambda name: "9.9")
        others.add(name(("a", "x y")))
    monkeypatch.setattr(parser, "VERSION", 2)
    others.add(name(("a", "x y")))
    assert len(others) == 8
    assert first not in others


# --- the corpora ---------------------------------------------------------------------------------


def conllu(folder: Path, n: int) -> Path:
    """A treebank of invented sentences, two to a document."""
    out = []
    for number in range(n):
        head = f"# newdoc id = d{number // 2}\n" if number % 2 == 0 else ""
        out.append(f"{head}# sent_id = s{number:02}\n# text = It{number} ran\n")
        out.append(f"1\tIt{number}\t_\tPRON\t_\t_\t2\tnsubj\t_\t_\n")
        out.append("2\tran\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n")
    path = folder / "en_ewt-ud-dev.conllu"
    path.write_text("".join(out), encoding="utf-8")
    return path


def test_a_treebanks_sentences_are_those_of_the_treebank(asked: list[str], tmp_path: Path) -> None:
    conllu(tmp_path, 30)
    for limit, seed in ((None, 0), (7, 0), (7, 1), (30, 2), (99, 0)):
        options: dict[str, Any] = {"folder": tmp_path, "limit": limit, "seed": seed}
        asked.clear()
        gold, made = (load_corpus(f"ewt-dev{end}", **options) for end in ("", "-stanford"))
        for ours, theirs in zip(made.examples, gold.examples, strict=True):
            for name in ("id", "words", "text", "document"):
                assert getattr(ours, name) == getattr(theirs, name)
        assert set(made.examples[0].relations) == {"root", "dep"}  # the parser's, not the gold
        assert sorted(asked) == [tree.id for tree in gold.examples]  # and no other was parsed
        assert (made.kind, made.skipped) == ("tree", {})


def paragraphs(folder: Path) -> Path:
    import json

    rows = [
        {"title": f"T{n // 4}", "para": n % 4, "text": f"Cat {n} sat here. No. Dog {n} ran off."}
        for n in range(24)
    ]
    path = folder / "wiki_paragraphs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return folder


def test_wikipedia_is_parsed_paragraph_by_paragraph(asked: list[str], tmp_path: Path) -> None:
    folder, cache = paragraphs(tmp_path), tmp_path / "cache"

    def load(**more: Any) -> Any:
        return load_corpus("wiki-paragraphs-parsed", folder=folder, **more)

    whole = load()
    assert [tree.id for tree in whole.examples[:3]] == ["T0#0.1", "T0#0.3", "T0#1.1"]
    assert [tree.document for tree in whole.examples[::8]] == [f"T{n}" for n in range(6)]
    assert whole.skipped == {TOO_SHORT: 24}
    asked.clear()
    few, more, other = load(limit=5), load(limit=11), load(limit=11, seed=1)
    assert len(asked) == 3 + 6 + 6
    assert set(few.examples) < set(more.examples) < set(whole.examples)
    assert list(more.examples) == [tree for tree in whole.examples if tree in more.examples]
    assert set(other.examples) != set(more.examples)
    assert load(limit=5, cache=cache) == load(limit=5, cache=cache) == few
    assert load(limit=11, cache=cache) == more
    (file,) = (cache / "parsed").iterdir()
    assert file.name.startswith("wiki-paragraphs-v1-")
    few_more, _ = (folder / "wiki_paragraphs.jsonl").read_text().rsplit("\n", 1)
    (folder / "wiki_paragraphs.jsonl").write_text(few_more)
    assert len(load(cache=cache)) == 46  # other texts have another file
    assert len(list((cache / "parsed").iterdir())) == 2


def test_the_parsed_corpora_are_listed() -> None:
    known = known_corpora()
    banks = [f"{bank}-{split}" for bank in ("ewt", "gum") for split in ("train", "dev", "test")]
    pairs = {f"{name}-stanford": name for name in banks}
    pairs |= {f"{name}-parsed": name for name in ("wiki-sample", "wiki-paragraphs")}
    for name, source in pairs.items():
        assert known[name].kind == "tree"
        assert known[name].asset == known[source].asset
        assert "Stanford-style" in known[name].what
    assert ALIASES["wiki-parsed"] in known


def test_the_parser_is_loaded_only_when_it_is_used() -> None:
    code = "import sys, attnlib.data.corpora, attnlib.data.parser; sys.exit('spacy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.mirror
@pytest.mark.skipif(not os.environ.get("ATTNLIB_MIRROR"), reason="$ATTNLIB_MIRROR is not set")
def test_the_real_treebank_and_the_real_paragraphs(tmp_path: Path) -> None:
    gold = load_corpus("ewt-dev", limit=40, seed=5)
    made = load_corpus("ewt-dev-stanford", limit=40, seed=5, cache=tmp_path)
    assert [(t.id, t.words) for t in made.examples] == [(t.id, t.words) for t in gold.examples]
    again = load_corpus("ewt-dev-stanford", limit=40, seed=5, cache=tmp_path)
    assert again == made
    wiki = load_corpus("wiki-paragraphs-parsed", limit=60, cache=tmp_path)
    fewer = load_corpus("wiki-paragraphs-parsed", limit=30, cache=tmp_path / "other")
    assert set(fewer.examples) < set(wiki.examples)
    for tree in (*made.examples, *wiki.examples):
        assert is_tree(tree.heads)
    found = {relation for tree in wiki.examples for relation in tree.relations}
    assert len(TABLE_1 & found) >= 12  # the rare ones need not be among 60 sentences
