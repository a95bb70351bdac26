"""CoNLL-U text to dependency trees, strictly: a wrong line is named with its file and reason.

Format: https://universaldependencies.org/format.html. The package `conllu` is no help here: it does
not tell the line of a mistake, and takes rows with columns missing, blanks for tabs, and heads that
make no tree. What it would spare us is the splitting of lines.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from attnlib.data.examples import Tree
from attnlib.data.textfiles import read_text
from attnlib.errors import CorpusError

_COLUMNS = 10
_Row = tuple[int, list[str]]  # the line's number, counted from 1, and its cells


def read_conllu(path: Path) -> list[Tree]:
    """The trees of a CoNLL-U file (.conllu, or .conllu.xz)."""
    return parse_conllu(read_text(path), str(path))


def parse_conllu(text: str, name: str = "<text>") -> list[Tree]:
    """The trees of a CoNLL-U text; `name` is the file's name in error messages.

    Words are the syntactic words, so the surface lines of multiword tokens (`3-4`) and empty nodes
    (`8.1`) are left out. `document` is the last `# newdoc id`; a sentence without `# sent_id` is
    named by its place.
    """
    trees: list[Tree] = []
    document: str | None = None
    comments: dict[str, str] = {}
    numbered = enumerate(text.split("\n"), start=1)
    for is_blank, block in groupby(numbered, key=lambda line: not line[1].strip()):
        rows: list[_Row] = []
        for number, line in () if is_blank else block:
            if line.startswith("#"):
                key, _, value = (part.strip() for part in line[1:].partition("="))
                comments[key.removesuffix(" id")] = value
            else:
                rows.append((number, _cells(line.rstrip("\r"), name, number)))
        if rows:
            document = comments.get("newdoc", document) or None
            default = f"{Path(name).stem}-{len(trees) + 1}"
            identity = comments.get("sent_id") or default
            trees.append(_tree(rows, name, identity, comments.get("text"), document))
            comments = {}
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


def _tree(
    rows: list[_Row], name: str, identity: str, text: str | None, document: str | None
) -> Tree:
    words = [(n, cells) for n, cells in rows if "-" not in cells[0] and "." not in cells[0]]
    if not words:
        raise CorpusError(f"{name}:{rows[0][0]}: a sentence without words.")
    for expected, (number, cells) in enumerate(words, start=1):
        if cells[0] != str(expected):
            raise CorpusError(f"{name}:{number}: id '{cells[0]}', expected {expected}.")
        if not cells[1].strip():
            raise CorpusError(f"{name}:{number}: the form of word {expected} is empty.")
        if not cells[7].strip() or cells[7] == "_":
            raise CorpusError(f"{name}:{number}: word {expected} has no relation label.")
    heads = tuple(_head(cells[6], len(words), name, number) for number, cells in words)
    _check_shape(heads, name, [number for number, _ in words])
    return Tree(
        id=identity,
        words=tuple(cells[1] for _, cells in words),
        heads=heads,
        relations=tuple(cells[7] for _, cells in words),
        tags=tuple(cells[3] for _, cells in words),
        text=text,
        document=document,
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


def _check_shape(heads: tuple[int, ...], name: str, lines: list[int]) -> None:
    """One root, and every word reaches it."""
    roots = [word for word, head in enumerate(heads) if head == -1]
    if not roots:
        raise CorpusError(f"{name}:{lines[0]}: the sentence has no root (no word has head 0).")
    if len(roots) > 1:
        ids = ", ".join(str(word + 1) for word in roots)
        raise CorpusError(f"{name}:{lines[roots[1]]}: several roots (words {ids}), expected one.")
    reaches = {roots[0]}
    for start in range(len(heads)):
        path: list[int] = []
        word = start
        while word not in reaches:
            if word in path:
                ids = ", ".join(str(w + 1) for w in path[path.index(word) :])
                raise CorpusError(f"{name}:{lines[word]}: the heads of words {ids} form a cycle.")
            path.append(word)
            word = heads[word]
        reaches.update(path)
