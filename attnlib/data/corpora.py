"""Corpus names and users' own files to typed examples; what cannot be used is counted, not lost."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnlib.data.assets import cache_folder, resolve
from attnlib.data.catalogue import ENTRIES, CorpusInfo, Entry, Options, random_order
from attnlib.data.conllu import read_conllu
from attnlib.data.examples import Example, Part, Segment, TaskExample
from attnlib.data.tasks import TASKS, Task, task_label
from attnlib.data.textfiles import Row, field, lines, plain_name, read_jsonl
from attnlib.errors import AssetError, BadValue, CorpusError, UnknownName, did_you_mean

ALIASES = {"wiki": "wiki-sample", "wiki-parsed": "wiki-sample-parsed"}
FORMATS = (".txt", ".jsonl", ".conllu")


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


def known_corpora() -> dict[str, CorpusInfo]:
    """Every corpus name with its kind, asset, description and licence; aliases are not listed."""
    return {name: entry.info for name, entry in ENTRIES.items()}


def load_corpus(
    name_or_path: str | Path,
    *,
    limit: int | None = None,
    seed: int = 0,
    tokenizer: Any = None,
    max_length: int = 128,
    variant: str = "paper",
    folder: Path | None = None,
    cache: Path | None = None,
    aliases: Mapping[str, str] | None = None,
    task: str | None = None,
) -> Corpus:
    """The corpus of that name, or the examples of the user's own .txt, .jsonl or .conllu file.

    limit      at most so many examples. Of a named corpus a random sample by `seed`, in corpus
               order (treebanks are sorted by genre, so their start is no sample); a smaller limit
               gives a subset. Of a user's file the first ones.
    tokenizer, max_length, variant
               how the Wikipedia corpora are cut into segments (see `segments.segments`).
    folder     where the files are, instead of the asset's own folder.
    cache      where Wikipedia's paragraphs and the parser's trees are kept once they are made; by
               default with the assets, and nowhere if a `folder` is given.
    aliases    other meanings of a name for an edition, such as {"wiki": "wiki-paragraphs"}.
    task       names the labels that a user's .jsonl file may hold.
    A task's name alone means its dev split.

    >>> from attnlib import load_corpus
    >>> corpus = load_corpus("reader", limit=2)
    >>> corpus.kind, len(corpus.examples)
    ('segment', 2)
    """
    if limit is not None and limit < 1:
        raise BadValue(f"limit {limit} is too small. At least 1 example is needed.")
    given = str(name_or_path)
    name = {**ALIASES, **(aliases or {})}.get(given, given)
    name = f"{name}:dev" if f"{name}:dev" in ENTRIES else name
    if name in ENTRIES and not isinstance(name_or_path, Path):
        entry = ENTRIES[name]
        source, where = (str(folder), folder) if folder is not None else _home(entry)
        if cache is None and folder is None:
            cache = cache_folder() / "corpora"
        options = Options(limit, seed, tokenizer, max_length, variant, cache)
        examples, skipped = entry.read(where, options)
        if limit is not None and not entry.draws:
            examples = _sample(examples, limit, seed)
        return _corpus(name, entry.info.kind, examples, skipped, source)
    if isinstance(name_or_path, Path) or _looks_like_path(given):
        return _user_corpus(Path(given), limit, task)
    known = [*ALIASES, *ENTRIES]
    raise UnknownName(
        f"corpus '{given}' is unknown. {did_you_mean(given, known)}Known: {', '.join(known)}. "
        "A path to your own .txt, .jsonl or .conllu file works too."
    )


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


def _looks_like_path(given: str) -> bool:
    path = Path(given)
    return path.suffix.lower() in FORMATS or "/" in given or "\\" in given or path.exists()


def _home(entry: Entry) -> tuple[str, Path]:
    """Where a corpus lies: in the package, or in the first of its assets that can be had."""
    if entry.folder is not None:
        return "attnlib", entry.folder
    first: AssetError | None = None
    for asset in entry.assets:
        try:
            return asset, Path(resolve(asset))
        except AssetError as error:
            first = first or error
    raise first or AssetError(f"{entry.info.name} has no asset.")


def _sample(examples: list[Any], limit: int, seed: int) -> list[Any]:
    return [examples[place] for place in sorted(random_order(len(examples), seed)[:limit])]


def _corpus(
    name: str, kind: str, examples: list[Any], skipped: Mapping[str, int], source: str
) -> Corpus:
    if not examples:
        left_out = ", ".join(f"{n} x {reason}" for reason, n in skipped.items()) or "nothing found"
        raise CorpusError(f"{name} gave no example ({left_out}).")
    return Corpus(name, kind, tuple(examples), dict(skipped), source, examples_digest(examples))


def examples_digest(examples: Iterable[Any]) -> str:
    """The sha256 of everything that is in the examples."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(example).encode() + b"\n")
    return digest.hexdigest()


def _user_corpus(path: Path, limit: int | None, task: str | None) -> Corpus:
    suffix = Path(plain_name(path)).suffix.lower()
    if task is not None and task not in TASKS:
        raise UnknownName(f"task '{task}' is unknown. {did_you_mean(task, TASKS)}")
    if path.exists() and not path.is_dir() and suffix not in FORMATS:
        raise CorpusError(f"{path} ends in '{path.suffix}'. Give a {', '.join(FORMATS)} file.")
    kind, examples = "segment", list[Any]()
    if suffix == ".conllu":
        kind, examples = "tree", list(read_conllu(path))
    elif suffix == ".jsonl":
        kind, examples = _jsonl_examples(path, TASKS[task] if task else None)
    else:
        examples = [Segment(f"{path.stem}:{n}", line.strip()) for n, line in lines(path)]
    return _corpus(path.name, kind, examples[:limit], {}, str(path))


def _jsonl_examples(path: Path, task: Task | None) -> tuple[str, list[Any]]:
    """Segments, or labelled examples if the first line has a label (then every line needs one)."""
    rows = list(read_jsonl(path))
    labelled = task is not None or "label" in rows[0][1]
    examples: list[Any] = []
    for row in rows:
        number, values = row
        text = _part(row, path, "words" if "words" in values and "text" not in values else "text")
        pair = None if values.get("pair") is None else _part(row, path, "pair")
        name = str(values.get("id", f"{path.stem}:{number}"))
        if not labelled:
            examples.append(Segment(name, text, pair))
            continue
        label = field(row, path, "label", kind=(int, float, str) if task else (int, float))
        if task is not None:
            label = task_label(task, label, path, number)
        elif not math.isfinite(label):
            raise CorpusError(f"{path}:{number}: label {label} is not finite. Give a number.")
        examples.append(TaskExample(name, text, pair, label))
    return ("task" if labelled else "segment"), examples


def _part(row: Row, path: Path, name: str) -> Part:
    value = field(row, path, name, kind=(str, list))
    if isinstance(value, str):
        part: Part = value.strip()
    elif all(isinstance(word, str) and word.strip() for word in value):
        part = tuple(value)
    else:
        raise CorpusError(f"{path}:{row[0]}: '{name}' holds something that is no word. Mend it.")
    if not part:
        raise CorpusError(f"{path}:{row[0]}: '{name}' is empty. Give text, or drop the line.")
    if re.search("[\ud800-\udfff]", part if isinstance(part, str) else " ".join(part)):
        raise CorpusError(f"{path}:{row[0]}: '{name}' holds half a character (a lone surrogate).")
    return part
