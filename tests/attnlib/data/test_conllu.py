"""CoNLL-U: a naive second reader as oracle, and every planted error named by file, line, reason."""

from __future__ import annotations

import lzma
import random
from pathlib import Path

import pytest

from attnlib.data.conllu import parse_conllu, read_conllu
from attnlib.data.examples import Tree
from attnlib.errors import CorpusError

SAMPLE = """\
# newdoc id = garden
# sent_id = g-1
# text = Can't the old gardener's cat = sleep?
1-2\tCan't\t_\t_\t_\t_\t_\t_\t_\t_
1\tCa\tcan\tAUX\tMD\t_\t8\taux\t8:aux\t_
2\tn't\tnot\tPART\tRB\t_\t8\tadvmod\t8:advmod\t_
3\tthe\tthe\tDET\tDT\t_\t5\tdet\t5:det\t_
4\told\told\tADJ\tJJ\t_\t5\tamod\t5:amod\t_
5-6\tgardener's\t_\t_\t_\t_\t_\t_\t_\t_
5\tgardener\tgardener\tNOUN\tNN\t_\t7\tnmod:poss\t7:nmod:poss\t_
6\t's\t's\tPART\tPOS\t_\t5\tcase\t5:case\t_
7\tcat\tcat\tNOUN\tNN\t_\t8\tnsubj\t8:nsubj\tSpaceAfter=No
8\tsleep\tsleep\tVERB\tVB\t_\t0\troot\t0:root\t_
8.1\tsleeps\tsleep\tVERB\tVB\t_\t_\t_\t8:conj\t_
9\t?\t?\tPUNCT\t.\t_\t8\tpunct\t8:punct\t_

# sent_id = g-2
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t0:root\t_


# newdoc id = pond
1\tNew York\tNew York\tPROPN\tNNP\t_\t0\troot\t0:root\t_
2\t,\t,\tPUNCT\t,\t_\t1\tpunct\t1:punct\t_
"""


def test_words_heads_relations_tags_and_names() -> None:
    first, second, third = parse_conllu(SAMPLE, "garden.conllu")
    assert first == Tree(
        id="g-1",
        words=("Ca", "n't", "the", "old", "gardener", "'s", "cat", "sleep", "?"),
        heads=(7, 7, 4, 4, 6, 4, 7, -1, 7),
        relations=(
            *("aux", "advmod", "det", "amod", "nmod:poss", "case", "nsubj", "root", "punct"),
        ),
        tags=("AUX", "PART", "DET", "ADJ", "NOUN", "PART", "NOUN", "VERB", "PUNCT"),
        text="Can't the old gardener's cat = sleep?",
        document="garden",
    )
    assert (second.id, second.document, second.text) == ("g-2", "garden", None)
    assert (third.id, third.document) == ("garden-3", "pond")
    assert third.words == ("New York", ",")


def naive(text: str) -> list[list[tuple[str, int, str, str]]]:
    """A second reader written from the format's page: blocks, then rows whose id is an integer."""
    found = []
    for block in text.split("\n\n"):
        rows = [line.split("\t") for line in block.split("\n") if line and line[0] != "#"]
        kept = [(r[1], int(r[6]) - 1, r[7], r[3]) for r in rows if r[0].isdigit()]
        if kept:
            found.append(kept)
    return found


def as_rows(trees: list[Tree]) -> list[list[tuple[str, int, str, str]]]:
    return [list(zip(t.words, t.heads, t.relations, t.tags, strict=True)) for t in trees]


def random_sentence(rng: random.Random) -> str:
    """A random tree: every word but the first in a shuffled order hangs on an earlier one."""
    n = rng.randint(1, 12)
    order = rng.sample(range(1, n + 1), n)
    heads = {word: rng.choice(order[:i]) if i else 0 for i, word in enumerate(order)}
    lines = [f"# sent_id = r{rng.random()}"]
    for word in range(1, n + 1):
        if word < n and rng.random() < 0.2:
            lines.append("\t".join([f"{word}-{word + 1}", "fused", *["_"] * 8]))
        label = rng.choice(["nsubj", "obl:tmod", "conj"]) if heads[word] else "root"
        form = rng.choice(["ö", "-", "3.5", "1-2", "#", "a b"])
        cells = [word, form, "_", "X", "_", "_", heads[word], label, "_", "_"]
        lines.append("\t".join(map(str, cells)))
        if rng.random() < 0.1:
            lines.append("\t".join([f"{word}.1", "empty", *["_"] * 8]))
    return "\n".join(lines)


def test_agrees_with_the_naive_reader() -> None:
    rng = random.Random(0)
    text = "\n\n".join(random_sentence(rng) for _ in range(300)) + "\n"
    assert as_rows(parse_conllu(text)) == naive(text)
    assert as_rows(parse_conllu(SAMPLE)) == naive(SAMPLE)


def test_the_oracle_sees_a_wrong_reader() -> None:
    trees = parse_conllu(SAMPLE)
    off_by_one = [[(w, h + 1, r, t) for w, h, r, t in rows] for rows in as_rows(trees)]
    assert off_by_one != naive(SAMPLE)


def test_line_ends_and_compression(tmp_path: Path) -> None:
    windows = tmp_path / "w.conllu"
    windows.write_bytes(b"\xef\xbb\xbf" + SAMPLE.replace("\n", "\r\n").encode())
    packed = tmp_path / "w.conllu.xz"
    packed.write_bytes(lzma.compress(SAMPLE.rstrip("\n").encode()))
    assert as_rows(read_conllu(windows)) == as_rows(read_conllu(packed)) == naive(SAMPLE)


def row(number: object, form: str = "w", head: object = 0, label: str = "root") -> str:
    return "\t".join(map(str, [number, form, "_", "X", "_", "_", head, label, "_", "_"]))


GOOD = row(1) + "\n" + row(2, head=1, label="dep") + "\n\n"
PLANTED = [
    # what, text, line, words of the message
    ("too few columns", GOOD + "1\tonly\tthree", 4, "3 columns, expected 10"),
    ("blanks instead of tabs", GOOD + "1 a _ X _ _ 0 root _ _", 4, "blanks instead of tabs"),
    ("too many columns", GOOD + row(1) + "\tx", 4, "11 columns"),
    ("head is a word", GOOD + row(1, head="root"), 4, "head 'root' is not a whole number"),
    ("head is empty", GOOD + row(1, head="_"), 4, "head '_' is not a whole number"),
    ("negative head", GOOD + row(1, head=-1), 4, "head '-1' is not a whole number"),
    ("head beyond the end", GOOD + row(1) + "\n" + row(2, head=3), 5, "head 3 is out of range"),
    ("no root", GOOD + row(1, head=2) + "\n" + row(2, head=1), 4, "no root"),
    ("two roots", GOOD + row(1) + "\n" + row(2), 5, "several roots (words 1, 2)"),
    (
        "a cycle",
        "\n".join([row(1), row(2, head=3, label="x"), row(3, head=2, label="x")]),
        2,
        "words 2, 3 form a cycle",
    ),
    ("own head", row(1) + "\n" + row(2, head=2, label="x"), 2, "words 2 form a cycle"),
    ("empty form", GOOD + row(1, form=""), 4, "form of word 1 is empty"),
    ("a gap in the ids", row(1) + "\n" + row(3, head=1), 2, "id '3', expected 2"),
    ("an id that is none", row("one"), 1, "id 'one', expected 1"),
    ("no label", row(1, label="_"), 1, "no relation label"),
    ("only a multiword token", row("1-2"), 1, "without words"),
]


@pytest.mark.parametrize(("text", "line", "reason"), [p[1:] for p in PLANTED], ids=lambda v: None)
def test_planted_errors_name_file_line_and_reason(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    path = tmp_path / "bad.conllu"
    path.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(CorpusError) as caught:
        read_conllu(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: ")
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["# sent_id = lonely\n", "# a\n\n# b\n"])
def test_comments_alone_are_no_corpus(text: str) -> None:
    with pytest.raises(CorpusError, match="holds no sentence"):
        parse_conllu(text, "c.conllu")
