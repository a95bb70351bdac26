"""CoNLL-U text to dependency trees, strictly: a wrong line is named with its file and reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from attnlib.data.examples import Tree
from attnlib.data.textfiles import read_text
from attnlib.errors import CorpusError

_COLUMNS = 10


@dataclass
class _Sentence:
    """The lines of one sentence while it is read."""

    first_line: int
    id: str | None = None
    text: str | None = None
    document: str | None = None
    rows: list[tuple[int, list[str]]] = field(default_factory=list)


def read_conllu(path: Path) -> list[Tree]:
    """The trees of a CoNLL-U file (.conllu, or .conllu.xz)."""
    return parse_conllu(read_text(path), str(path))


def parse_conllu(text: str, name: str = "<text>") -> list[Tree]:
    """The trees of a CoNLL-U text; `name` is the file's name in error messages.

    Format: https://universaldependencies.org/format.html. Words are the syntactic words, so the
    surface lines of multiword tokens (`3-4`) and empty nodes (`8.1`) are left out. `document` is
    the last `# newdoc id`; a sentence without `# sent_id` is named by its place.
    """
    trees: list[Tree] = []
    document: str | None = None
    sentence: _Sentence | None = None
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        line = line.rstrip("\r")
        if not line.strip():
            if sentence is not None and sentence.rows:
                trees.append(_tree(sentence, name, len(trees)))
                sentence = None
            continue
        if sentence is None:
            sentence = _Sentence(number, document=document)
        if line.startswith("#"):
            key, _, value = (part.strip() for part in line[1:].partition("="))
            if key in {"newdoc id", "newdoc"}:
                document = sentence.document = value or None
            elif key == "sent_id":
                sentence.id = value
            elif key == "text":
                sentence.text = value
            continue
        sentence.rows.append((number, _cells(line, name, number)))
    if not trees:
        raise CorpusError(f"{name} holds no sentence. Lines of {_COLUMNS} columns are needed.")
    return trees


def _cells(line: str, name: str, number: int) -> list[str]:
    cells = line.split("\t")
    if len(cells) != _COLUMNS:
        hint = " (are the columns separated by blanks instead of tabs?)" if len(cells) == 1 else ""
        raise CorpusError(
            f"{name}:{number}: {len(cells)} columns, expected {_COLUMNS} separated by tabs{hint}."
        )
    return cells


def _tree(sentence: _Sentence, name: str, index: int) -> Tree:
    rows = [(n, c) for n, c in sentence.rows if "-" not in c[0] and "." not in c[0]]
    if not rows:
        raise CorpusError(f"{name}:{sentence.first_line}: a sentence without words.")
    for expected, (number, cells) in enumerate(rows, start=1):
        if cells[0] != str(expected):
            raise CorpusError(f"{name}:{number}: id '{cells[0]}', expected {expected}.")
        if not cells[1].strip():
            raise CorpusError(f"{name}:{number}: the form of word {expected} is empty.")
        if not cells[7].strip() or cells[7] == "_":
            raise CorpusError(f"{name}:{number}: word {expected} has no relation label.")
    heads = tuple(_head(cells[6], len(rows), name, number) for number, cells in rows)
    _check_shape(heads, name, rows)
    return Tree(
        id=sentence.id or f"{Path(name).stem}-{index + 1}",
        words=tuple(cells[1] for _, cells in rows),
        heads=heads,
        relations=tuple(cells[7] for _, cells in rows),
        tags=tuple(cells[3] for _, cells in rows),
        text=sentence.text,
        document=sentence.document,
    )


def _head(cell: str, n_words: int, name: str, number: int) -> int:
    """The 0-based head, -1 for the root."""
    if not (cell.isascii() and cell.isdigit()):
        raise CorpusError(f"{name}:{number}: head '{cell}' is not a whole number.")
    if int(cell) > n_words:
        raise CorpusError(
            f"{name}:{number}: head {cell} is out of range, the sentence has {n_words} words."
        )
    return int(cell) - 1


def _check_shape(heads: tuple[int, ...], name: str, rows: list[tuple[int, list[str]]]) -> None:
    """One root, and every word reaches it."""
    roots = [word for word, head in enumerate(heads) if head == -1]
    if not roots:
        raise CorpusError(f"{name}:{rows[0][0]}: the sentence has no root (no word has head 0).")
    if len(roots) > 1:
        ids = ", ".join(str(word + 1) for word in roots)
        raise CorpusError(f"{name}:{rows[roots[1]][0]}: several roots (words {ids}), expected one.")
    reaches = {roots[0]}
    for start in range(len(heads)):
        path: list[int] = []
        word = start
        while word not in reaches:
            if word in path:
                ids = ", ".join(str(w + 1) for w in path[path.index(word) :])
                raise CorpusError(f"{name}:{rows[word][0]}: the heads of words {ids} form a cycle.")
            path.append(word)
            word = heads[word]
        reaches.update(path)
