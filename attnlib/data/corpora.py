"""What corpora there are and how to load one: a name, or a user's own file, to typed examples.

What cannot be used is counted, not lost. `register_corpus` adds a corpus to the list from outside.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from attnlib.data import parser, reader
from attnlib.data.annotated import frame_example, ontogum_document
from attnlib.data.assets import cache_folder, resolve
from attnlib.data.conllu import read_conllu
from attnlib.data.examples import Example, Part, Segment, TaskExample, Tree
from attnlib.data.kept import kept_file
from attnlib.data.reader import Passage
from attnlib.data.reader.convert import to_coref, to_frames, to_questions, to_segment
from attnlib.data.tasks import SPLIT_RULE, TASKS, Task, read_squad, read_task
from attnlib.data.textfiles import (
    Fields,
    Read,
    field,
    find_file,
    lines,
    plain_name,
    read_examples,
    read_rows,
)
from attnlib.data.wikipedia import (
    Paragraphs,
    piece_length,
    sample_paragraphs,
    segments,
    squad_paragraphs,
)
from attnlib.errors import AssetError, BadValue, CorpusError, unknown

ALIASES = {"wiki": "wiki-sample", "wiki-parsed": "wiki-sample-parsed"}
FORMATS = (".txt", ".jsonl", ".conllu")


@dataclass(frozen=True, slots=True)
class Options:
    """How a corpus is cut and drawn, for the readers that need more than a folder."""

    limit: int | None = None
    seed: int = 0
    tokenizer: Any = None
    max_length: int = 128
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class CorpusInfo:
    """What a corpus name means, and how it is read.

    assets  where it is read from: the first that can be had
    draws   whether `read` obeys the limit itself; else a sample is drawn of what it gives
    folder  where a corpus is that comes with the package itself
    """

    name: str
    kind: str
    assets: tuple[str, ...]
    what: str
    read: Callable[[Path, Options], Read]
    draws: bool = False
    folder: Path | None = None

    @property
    def asset(self) -> str:
        return self.assets[0] if self.assets else ""


_CORPORA: dict[str, CorpusInfo] = {}


def register_corpus(info: CorpusInfo) -> None:
    """Add a corpus to the list, so that `load_corpus` knows its name."""
    if info.name in _CORPORA:
        raise BadValue(f"corpus '{info.name}' is registered twice. Choose another name.")
    _CORPORA[info.name] = info


def known_corpora() -> dict[str, CorpusInfo]:
    """Every corpus by name; aliases are not listed."""
    return dict(_CORPORA)


# --- loading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Corpus:
    """Examples of one kind, with where they came from and what was left out.

    `source` is the asset that was really read, or the folder or file that was given.
    `digest` is the sha256 of the examples themselves, so it changes with anything that changes
    them (the source, the limit, the seed, the tokenizer that cut them) and with nothing else.
    """

    name: str
    kind: str
    examples: tuple[Any, ...]
    skipped: dict[str, int]
    source: str
    digest: str

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Example]:
        return iter(self.examples)

    def to_dataset(self) -> Any:
        """The examples as a `datasets.Dataset`, one column per field."""
        from datasets import Dataset

        return Dataset.from_list([asdict(example) for example in self.examples])


def load_corpus(
    name_or_path: str | Path,
    *,
    limit: int | None = None,
    seed: int = 0,
    tokenizer: Any = None,
    max_length: int = 128,
    folder: Path | None = None,
    cache: Path | None = None,
) -> Corpus:
    """The corpus of that name, or the examples of the user's own .txt, .jsonl or .conllu file.

    limit      at most so many examples. Of a named corpus a random sample by `seed`, in corpus
               order (treebanks are sorted by genre, so their start is no sample); a smaller limit
               gives a subset. Of a user's file the first ones.
    tokenizer, max_length
               how the Wikipedia corpora are cut into segments (see `wikipedia.segments`).
    folder     where the files are, instead of the asset's own folder.
    cache      where Wikipedia's paragraphs and the parser's trees are kept once they are made; by
               default with the assets, and nowhere if a `folder` is given.
    A task's name alone means its dev split.

    >>> from attnlib import load_corpus
    >>> corpus = load_corpus("reader", limit=2)
    >>> corpus.kind, len(corpus.examples)
    ('segment', 2)
    """
    if limit is not None and limit < 1:
        raise BadValue(f"limit {limit} is too small. At least 1 example is needed.")
    given = str(name_or_path)
    name = corpus_name(given)
    if name in _CORPORA and not isinstance(name_or_path, Path):
        info = _CORPORA[name]
        source, where = (str(folder), folder) if folder is not None else _home(info)
        if cache is None and folder is None:
            cache = cache_folder() / "corpora"
        options = Options(limit, seed, tokenizer, max_length, cache)
        examples, skipped = info.read(where, options)
        if limit is not None and not info.draws:
            chosen = sorted(_random_order(len(examples), seed)[:limit])
            examples = [examples[place] for place in chosen]
        return _corpus(name, info.kind, examples, skipped, source)
    if isinstance(name_or_path, Path) or _looks_like_path(given):
        return _user_corpus(Path(given), limit)
    known = [*ALIASES, *_CORPORA]
    own = "A path to your own .txt, .jsonl or .conllu file works too."
    raise unknown(f"corpus '{given}' is unknown", given, known, f"Known: {', '.join(known)}. {own}")


def corpus_name(given: str) -> str:
    """The full name behind a shorter one: an alias, or a task, which means its dev split."""
    name = ALIASES.get(given, given)
    return f"{name}:dev" if f"{name}:dev" in _CORPORA else name


def corpus_of_dataset(dataset: Any, *, text: str = "text", pair: str | None = None) -> Corpus:
    """A `datasets.Dataset` of one's own as a corpus; `text` and `pair` name its columns."""
    for column in filter(None, (text, pair)):
        if column not in dataset.column_names:
            raise CorpusError(
                f"the dataset has no column '{column}'; it has {', '.join(dataset.column_names)}."
            )
    rows = enumerate(dataset)
    examples = [Segment(str(i), row[text], row[pair] if pair else None) for i, row in rows]
    return _corpus("dataset", "segment", examples, {}, "a dataset in memory")


def with_trees(corpus: Corpus) -> Corpus:
    """The same inputs with the parser's tree laid over each sentence; gold trees are kept."""
    has_tree = [getattr(example, "heads", None) is not None for example in corpus.examples]
    if all(has_tree):
        return corpus
    pairs = list(zip(corpus.examples, has_tree, strict=True))
    found = parser.parsed_texts([example for example, has in pairs if not has])
    examples = tuple(example if has else next(found) for example, has in pairs)
    return replace(corpus, examples=examples, digest=examples_digest(examples))


def _looks_like_path(given: str) -> bool:
    path = Path(given)
    return path.suffix.lower() in FORMATS or "/" in given or "\\" in given or path.exists()


def _home(info: CorpusInfo) -> tuple[str, Path]:
    """Where a corpus lies: in the package, or in the first of its assets that can be had."""
    if info.folder is not None:
        return "attnlib", info.folder
    errors: list[AssetError] = []
    for asset in info.assets:
        try:
            return asset, Path(resolve(asset))
        except AssetError as error:
            errors.append(error)
    raise errors[0]


def _random_order(n: int, seed: int) -> list[int]:
    """The places 0..n-1 in the order in which a limit draws them: a longer draw adds to it."""
    return random.Random(seed).sample(range(n), n)


def _corpus(
    name: str, kind: str, examples: Sequence[Any], skipped: Mapping[str, int], source: str
) -> Corpus:
    if not examples:
        left_out = ", ".join(f"{n} x {reason}" for reason, n in skipped.items()) or "nothing found"
        raise CorpusError(f"{name} gave no example ({left_out}).")
    return Corpus(name, kind, tuple(examples), dict(skipped), source, examples_digest(examples))


def examples_digest(examples: Iterable[Any]) -> str:
    """The sha256 of everything that is in the examples, written as canonical JSON."""
    digest = hashlib.sha256()
    for example in examples:
        told = json.dumps(asdict(example), sort_keys=True, separators=(",", ":"))
        digest.update(told.encode() + b"\n")
    return digest.hexdigest()


# --- users' own files -----------------------------------------------------------------------


def _user_corpus(path: Path, limit: int | None) -> Corpus:
    suffix = Path(plain_name(path)).suffix.lower()
    if path.exists() and not path.is_dir() and suffix not in FORMATS:
        raise CorpusError(f"{path} ends in '{path.suffix}'. Give a {', '.join(FORMATS)} file.")
    kind, examples = "segment", list[Any]()
    if suffix == ".conllu":
        kind, examples = "tree", list(read_conllu(path))
    elif suffix == ".jsonl":
        kind, examples = _jsonl_examples(path)
    else:
        examples = [Segment(f"{path.stem}:{n}", line.strip()) for n, line in lines(path)]
    return _corpus(path.name, kind, examples[:limit], {}, str(path))


def _jsonl_examples(path: Path) -> tuple[str, list[Any]]:
    """Segments, or labelled examples if the first line has a label (then every line needs one)."""
    labelled = "label" in next(read_rows(path))[1]

    def example(number: int, row: Fields) -> Segment | TaskExample:
        text = _part(row, "words" if "words" in row and "text" not in row else "text")
        pair = None if row.get("pair") is None else _part(row, "pair")
        name = str(row.get("id", f"{path.stem}:{number}"))
        if not labelled:
            return Segment(name, text, pair)
        label = field(row, "label", kind=(int, float))
        if not math.isfinite(label):
            raise ValueError(f"label {label} is not finite. Give a number.")
        return TaskExample(name, text, pair, label)

    return ("task" if labelled else "segment"), read_examples(example, path)[0]


def _part(row: Fields, name: str) -> Part:
    value = field(row, name, kind=(str, list))
    words = value.split() if isinstance(value, str) else value
    if not all(isinstance(word, str) and word.strip() for word in words):
        raise ValueError(f"'{name}' holds something that is no word. Mend it.")
    if not words:
        raise ValueError(f"'{name}' is empty. Give text, or drop the line.")
    if re.search("[\ud800-\udfff]", " ".join(words)):
        raise ValueError(f"'{name}' holds half a character (a lone surrogate).")
    return value.strip() if isinstance(value, str) else tuple(value)


# --- the list -----------------------------------------------------------------------------------


def _paragraphs(name: str, folder: Path, options: Options) -> Paragraphs:
    if name.startswith("wiki-sample"):
        return sample_paragraphs(folder, options.cache)
    return squad_paragraphs(folder)


def _segments(folder: Path, options: Options, name: str, files: Sequence[str]) -> Read:
    if options.tokenizer is None:
        raise BadValue(
            "Wikipedia segments are cut to a number of pieces. Pass tokenizer= (the model's, or a "
            "function from a text to its pieces)."
        )
    paragraphs, left_out = _paragraphs(name, folder, options)
    made, skipped = segments(
        paragraphs,
        piece_length(options.tokenizer),
        max_length=options.max_length,
        n=options.limit,
        seed=options.seed,
    )
    return made, skipped + left_out


def _parsed_sentences(folder: Path, options: Options, name: str, files: Sequence[str]) -> Read:
    """Sentences of paragraphs in random order until there are enough, then in corpus order."""
    paragraphs, left_out = _paragraphs(name, folder, options)
    texts: list[tuple[str, Part]] = [(one.id, one.text) for one in paragraphs]
    found, skipped = _parsed(name.removesuffix("-parsed"), texts, options)
    trees = [replace(tree, document=paragraphs[place].article) for place, tree in found]
    return trees, skipped + left_out


def _treebank(folder: Path, options: Options, name: str, files: Sequence[str]) -> Read:
    return read_conllu(find_file(folder, *files)), Counter()


def _parsed_treebank(folder: Path, options: Options, name: str, files: Sequence[str]) -> Read:
    """The sentences that the treebank itself would give, with the parser's heads and labels."""
    gold = read_conllu(find_file(folder, *files))
    texts: list[tuple[str, Part]] = [(tree.id, tree.words) for tree in gold]
    found, skipped = _parsed(name.removesuffix("-stanford"), texts, options)
    return [
        replace(tree, text=gold[place].text, document=gold[place].document) for place, tree in found
    ], skipped


def _parsed(
    name: str, texts: Sequence[tuple[str, Part]], options: Options
) -> tuple[list[tuple[int, Tree]], Counter[str]]:
    """The parser's trees of as many texts as the limit needs, kept where the options say."""
    made_from = (parser.parser_digest(), texts)
    return parser.parsed_in_order(
        texts,
        _random_order(len(texts), options.seed),
        limit=options.limit,
        kept=kept_file(options.cache, f"parsed/{name}", parser.VERSION, *made_from),
    )


def _annotated(
    make: Callable[[int, Fields], Any],
    folder: Path,
    options: Options,
    name: str,
    files: Sequence[str],
) -> Read:
    return read_examples(make, *(find_file(folder, file) for file in files))


_SHAPES: dict[str, Callable[[Passage], list[Any]]] = {
    "reader": lambda passage: [to_segment(passage)],
    "reader-coref": lambda passage: [to_coref(passage)],
    "reader-frames": to_frames,
    "reader-qa": to_questions,
}


def _passages(folder: Path, options: Options, name: str, files: Sequence[str]) -> Read:
    return [example for one in reader.passages(folder) for example in _SHAPES[name](one)], Counter()


_READERS: dict[str, Callable[..., Read]] = {
    "segments": _segments,
    "parsed-sentences": _parsed_sentences,
    "treebank": _treebank,
    "parsed-treebank": _parsed_treebank,
    "ontogum": partial(_annotated, ontogum_document),
    "framenet": partial(_annotated, frame_example),
    "squad": lambda folder, options, name, files: read_squad(name.partition(":")[2], folder),
    "reader": _passages,
}


def _listed() -> Iterator[CorpusInfo]:
    """The corpora of corpora.toml, and those of the tasks."""
    listed = Path(__file__).with_name("corpora.toml").read_text(encoding="utf-8")
    for entry in tomllib.loads(listed)["corpora"]:
        for split in entry.get("splits", [""]):
            name, what = (entry[key].format(split=split) for key in ("name", "what"))
            files = tuple(file.format(split=split) for file in entry.get("files", ()))
            read = partial(_READERS[entry["reader"]], name=name, files=files)
            assets, draws = tuple(entry.get("assets", ())), entry.get("draws", False)
            folder = None if assets else reader.FOLDER
            yield CorpusInfo(name, entry["kind"], assets, what, read, draws, folder)
    for task in TASKS.values():
        for split in task.splits:
            what = f"{task.what}{'; ' + SPLIT_RULE if task.whole else ''} ({split})"
            read = partial(_task_examples, task, split)
            yield CorpusInfo(
                f"{task.name}:{split}", "task", task.assets or (task.name,), what, read
            )


def _task_examples(task: Task, split: str, folder: Path, options: Options) -> Read:
    return read_task(task, split, folder)


for _info in _listed():
    register_corpus(_info)
