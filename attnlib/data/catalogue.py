"""The named corpora: what each is, the asset it comes from, its licence, and its reader."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from attnlib.data import reader, wikitext
from attnlib.data.annotated import read_framenet, read_framenet_473, read_gap, read_ontogum
from attnlib.data.conllu import read_conllu
from attnlib.data.examples import Part, Tree
from attnlib.data.madequestions import made_questions, questions_digest
from attnlib.data.parse import parse_digest, parsed_in_order
from attnlib.data.reader import Passage
from attnlib.data.reader.convert import to_coref, to_frames, to_questions, to_segment
from attnlib.data.segments import cached_paragraphs, piece_length, read_paragraphs, segments
from attnlib.data.tasks import (
    DEV_SHARE,
    PARAPHRASE_SCORE,
    SPLIT_RULE,
    goes_to_dev,
    read_squad,
    read_task,
)
from attnlib.data.textfiles import field, find_file, read_parquet
from attnlib.data.wikitext import Paragraph, Paragraphs, paragraphs_of_dump
from attnlib.errors import BadValue

WIKI_DUMPS = (
    "enwiki-sample.xml.bz2",
    "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2",
)
_SA = "CC BY-SA 4.0"
_NC_SA = "CC BY-NC-SA 4.0"
_STANFORD = "with Stanford-style labels"
_UNCLEAR = "not stated; for runs on your own machine"

Read = tuple[list[Any], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class CorpusInfo:
    """What a corpus name stands for. `asset` is the folder it is read from."""

    name: str
    kind: str
    asset: str
    what: str
    licence: str


@dataclass(frozen=True, slots=True)
class Options:
    """What Wikipedia and parsed corpora need beyond a folder: how they are cut and drawn."""

    limit: int | None = None
    seed: int = 0
    tokenizer: Any = None
    max_length: int = 128
    variant: str = "paper"
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A named corpus. `assets` are tried in turn; `draws` says that the reader obeys the limit.

    `folder` is where a corpus lies that comes with the package itself.
    """

    info: CorpusInfo
    read: Callable[[Path, Options], Read]
    assets: tuple[str, ...]
    draws: bool = False
    folder: Path | None = None


def _simple(read: Callable[[Path], Read]) -> Callable[[Path, Options], Read]:
    return lambda folder, options: read(folder)


def random_order(n: int, seed: int) -> list[int]:
    """The places 0..n-1 in the order in which a limit draws them: a longer draw adds to it."""
    return random.Random(seed).sample(range(n), n)


_Source = Callable[[Path, Options], Paragraphs]


def _wiki() -> Iterator[Entry]:
    sources: tuple[tuple[str, _Source, str, str], ...] = (
        ("wiki-sample", _sample_paragraphs, "99 articles of a 2016 dump", "CC BY-SA 3.0"),
        ("wiki-paragraphs", _squad_paragraphs, "48 articles of SQuAD dev", _SA),
    )
    for name, source, articles, licence in sources:
        what = f"segments of two consecutive paragraphs: {articles}"
        info = CorpusInfo(name, "segment", name, what, licence)
        yield Entry(info, partial(_wiki_segments, source), (name,), draws=True)
        what = f"sentences, parsed, {_STANFORD}: {articles}"
        info = CorpusInfo(f"{name}-parsed", "tree", name, what, licence)
        yield Entry(info, partial(_wiki_trees, source, info.name), (name,), draws=True)


def _wiki_questions() -> Iterator[Entry]:
    for split in ("train", "dev"):
        what = (
            f"questions made from the 99 articles of wiki-sample, without an annotator ({split}); "
            f"an article goes to dev if the sha256 of its title is divisible by {DEV_SHARE}, else "
            "to train"
        )
        name = f"wiki-questions:{split}"
        info = CorpusInfo(name, "question", "wiki-sample", what, "CC BY-SA 3.0")
        yield Entry(info, partial(_read_questions, split), ("wiki-sample",), draws=True)


def _read_questions(split: str, folder: Path, options: Options) -> Read:
    """Questions on one side of the articles; what was made is kept where the options say."""
    paragraphs = _sample_paragraphs(folder, options)
    items = [item for item in paragraphs.items if goes_to_dev(item.article) == (split == "dev")]
    name = f"wiki-questions-{split}-{questions_digest(items)}.jsonl"
    kept = options.cache and options.cache / name
    made, skipped = made_questions(items, n=options.limit, seed=options.seed, kept=kept)
    return made, skipped + Counter(paragraphs.skipped)


def _sample_paragraphs(folder: Path, options: Options) -> Paragraphs:
    """Extraction takes some seconds, so it is kept, under the name of the code that did it."""

    def extract() -> Paragraphs:
        return paragraphs_of_dump(find_file(folder, *WIKI_DUMPS))

    if options.cache is None:
        return extract()
    code = hashlib.sha256(Path(wikitext.__file__).read_bytes()).hexdigest()[:12]
    return cached_paragraphs(options.cache / f"wiki-sample-{code}.jsonl", extract)


def _squad_paragraphs(folder: Path, options: Options) -> Paragraphs:
    path = find_file(folder, "wiki_paragraphs.jsonl", "dev.parquet")
    if path.suffix != ".parquet":
        return read_paragraphs(path)
    contexts: dict[str, dict[str, None]] = {}  # SQuAD's table repeats a context per question
    for row in read_parquet(path):
        title = field(row, path, "title")
        contexts.setdefault(title, {}).setdefault(field(row, path, "context"), None)
    items = [Paragraph(t, i, text) for t, found in contexts.items() for i, text in enumerate(found)]
    return Paragraphs(tuple(items), {})


def _wiki_segments(source: _Source, folder: Path, options: Options) -> Read:
    if options.tokenizer is None:
        raise BadValue(
            "Wikipedia segments are cut to a number of pieces. Pass tokenizer= (the model's, or a "
            "function text -> n_pieces)."
        )
    paragraphs = source(folder, options)
    made, skipped = segments(
        paragraphs.items,
        piece_length(options.tokenizer),
        max_length=options.max_length,
        n=options.limit,
        seed=options.seed,
        variant=options.variant,
    )
    return made, Counter(skipped) + Counter(paragraphs.skipped)


def _wiki_trees(source: _Source, name: str, folder: Path, options: Options) -> Read:
    """Sentences of paragraphs in random order until there are enough, then in corpus order."""
    paragraphs = source(folder, options)
    items = paragraphs.items
    texts = [(f"{item.article}#{item.index}", item.text) for item in items]
    found, skipped = _parsed(name, texts, options)
    trees = [replace(tree, document=items[place].article) for place, tree in found]
    return trees, Counter(skipped) + Counter(paragraphs.skipped)


def _parsed(
    name: str, texts: Sequence[tuple[str, Part]], options: Options
) -> tuple[list[tuple[int, Tree]], dict[str, int]]:
    """The parser's trees of as many texts as the limit needs, kept where the options say."""
    kept = options.cache and options.cache / f"{name}-{parse_digest(texts)}.jsonl"
    order = random_order(len(texts), options.seed)
    return parsed_in_order(texts, order, limit=options.limit, kept=kept)


def _treebanks() -> Iterator[Entry]:
    for bank, asset, what, licence in (
        ("ewt", "ud-ewt", "UD English EWT (web text)", _SA),
        ("gum", "ud-gum", "UD English GUM (many genres; train without Reddit)", _NC_SA),
    ):
        for split in ("train", "dev", "test"):
            names = (f"en_{bank}-ud-{split}.conllu", f"en_{bank}-{split}.conllu")
            info = CorpusInfo(f"{bank}-{split}", "tree", asset, f"{what}, {split}", licence)
            yield Entry(info, partial(_trees, names), (asset,))
            what_parsed = f"the words of {info.name}, parsed, {_STANFORD}"
            parsed = CorpusInfo(f"{info.name}-stanford", "tree", asset, what_parsed, licence)
            yield Entry(parsed, partial(_stanford, parsed.name, names), (asset,), draws=True)


def _trees(names: tuple[str, ...], folder: Path, options: Options) -> Read:
    return read_conllu(find_file(folder, *names)), {}


def _stanford(name: str, names: tuple[str, ...], folder: Path, options: Options) -> Read:
    """The sentences that the treebank itself would give, with the parser's heads and labels."""
    gold = read_conllu(find_file(folder, *names))
    found, skipped = _parsed(name, [(tree.id, tree.words) for tree in gold], options)
    return [
        replace(tree, text=gold[place].text, document=gold[place].document) for place, tree in found
    ], skipped


def _coreference() -> Iterator[Entry]:
    for split in ("train", "dev", "test"):
        what = f"OntoGUM coreference in OntoNotes' scheme, {split} (no Reddit)"
        info = CorpusInfo(f"ontogum-{split}", "coref", "ontogum", what, _NC_SA)
        yield Entry(info, _simple(partial(read_ontogum, split)), ("ontogum",))
    for split, file in (("dev", "development"), ("validation", "validation"), ("test", "test")):
        what = f"GAP, ambiguous pronouns in Wikipedia sentences, {file}"
        info = CorpusInfo(f"gap-{split}", "gap", "gap", what, "Apache-2.0; texts CC BY-SA")
        yield Entry(info, _simple(partial(read_gap, file)), ("gap",))


def _frames() -> Iterator[Entry]:
    what = "FrameNet 1.7 exemplars and full text, at most 12 tokens, with a core element"
    info = CorpusInfo("framenet", "frame", "framenet", what, "CC BY 3.0")
    yield Entry(info, _simple(read_framenet), ("framenet",))
    what = "the 473 FrameNet sentences of Kovaleva 2019, sec. 4.2"
    info = CorpusInfo("framenet-473", "frame", "framenet-473", what, "CC BY 3.0; list Apache-2.0")
    yield Entry(info, _simple(read_framenet_473), ("framenet-473",))


_TASK_ROWS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], str, str], ...] = (
    # name, splits, assets, what, licence
    ("mrpc", ("train", "dev", "test"), ("mrpc",), "paraphrase of news sentences", "MSR-SSLA, NC"),
    (
        "stsb",
        ("train", "dev", "test"),
        ("stsb-full", "stsb"),
        "similarity score 0-5",
        "scores CC BY-SA 4.0; texts mixed",
    ),
    ("sst2", ("train", "dev"), ("sst2",), "sentiment of film reviews", _UNCLEAR),
    ("qqp", ("train", "dev"), ("qqp",), f"duplicate questions; {SPLIT_RULE}", _UNCLEAR),
    ("rte", ("train", "dev"), ("rte",), "textual entailment", _UNCLEAR),
    ("qnli", ("train", "dev"), ("qnli",), f"does it answer the question; {SPLIT_RULE}", _SA),
    (
        "mnli",
        ("train", "dev"),
        ("mnli",),
        f"inference, matched genres; {SPLIT_RULE}",
        "OANC, CC BY",
    ),
    (
        "rotten-tomatoes",
        ("train", "dev"),
        ("rotten-tomatoes",),
        f"sentiment of the sentences behind SST-2; {SPLIT_RULE}",
        _UNCLEAR,
    ),
    (
        "msrpar",
        ("train", "dev", "test"),
        ("msrpar",),
        f"MRPC's news pairs in STS-B; paraphrase = similarity of at least {PARAPHRASE_SCORE}",
        "scores CC BY-SA 4.0; texts MSR-SSLA",
    ),
)


def _tasks() -> Iterator[Entry]:
    for name, splits, assets, what, licence in _TASK_ROWS:
        for split in splits:
            info = CorpusInfo(f"{name}:{split}", "task", assets[0], f"{what} ({split})", licence)
            yield Entry(info, _simple(partial(read_task, name, split)), assets)
    for split in ("train", "dev"):
        what = (
            f"SQuAD v1.1 ({split}); with the dev file alone, an article goes to dev if the sha256 "
            f"of its title is divisible by {DEV_SHARE}, else to train"
        )
        info = CorpusInfo(f"squad:{split}", "question", "squad", what, _SA)
        yield Entry(info, _simple(partial(read_squad, split)), ("squad",))


def _reader() -> Iterator[Entry]:
    shapes: tuple[tuple[str, str, str, Callable[[Passage], list[Any]]], ...] = (
        ("reader", "segment", "its two paragraphs as pairs", lambda p: [to_segment(p)]),
        ("reader-coref", "coref", "its entities and their mentions", lambda p: [to_coref(p)]),
        ("reader-frames", "frame", "its predicates and core elements", to_frames),
        ("reader-qa", "question", "its questions and answers", to_questions),
    )
    for name, kind, what, shape in shapes:
        info = CorpusInfo(name, kind, "", f"the book's own passages: {what}", "CC BY 4.0")
        yield Entry(info, partial(_passages, shape), (), folder=reader.FOLDER)


def _passages(shape: Callable[[Passage], list[Any]], folder: Path, options: Options) -> Read:
    return [example for one in reader.passages(folder) for example in shape(one)], {}


ENTRIES: dict[str, Entry] = {
    entry.info.name: entry
    for group in (_wiki, _wiki_questions, _treebanks, _coreference, _frames, _tasks, _reader)
    for entry in group()
}
