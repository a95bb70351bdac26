"""Strict reading of text files: what cannot be read is said in one sentence with file and line."""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attnlib.errors import CorpusError

Fields = dict[str, Any]
Read = tuple[list[Any], Counter[str]]
"""Examples, and how many were left out by reason."""

STS_COLUMNS = ("genre", "file", "year", "index", "score", "sentence1", "sentence2")


def held_file(folder: Path, *names: str) -> Path | None:
    """The first of the named files that the folder holds, plain or as `.xz`."""
    candidates = (folder / f"{name}{ending}" for name in names for ending in ("", ".xz"))
    return next((path for path in candidates if path.is_file()), None)


def find_file(folder: Path, *names: str) -> Path:
    """The same, where one of them must be there."""
    if found := held_file(folder, *names):
        return found
    wanted = " or ".join(names)
    raise CorpusError(f"{folder} holds no {wanted}. Fetch the asset again, or give its folder.")


def plain_name(path: Path) -> str:
    """The file's name without `.xz`, as used in messages and for its format."""
    return path.name.removesuffix(".xz")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, plain or as `.xz`: no byte-order mark, lines ended by `\\n`."""
    if path.is_dir() or not path.exists():
        state = "is a folder" if path.is_dir() else "does not exist"
        raise CorpusError(f"{path} {state}. Give one .txt, .jsonl or .conllu file.")
    try:
        content = path.read_bytes()
        content = lzma.decompress(content) if path.suffix == ".xz" else content
    except PermissionError as error:
        raise CorpusError(f"{path} cannot be read: permission denied. Change its mode.") from error
    except (lzma.LZMAError, EOFError, OSError) as error:
        reason = f"damaged or cut short ({error}). Fetch or compress it again"
        raise CorpusError(f"{path} is {reason}.") from error
    if (zero := content.find(b"\0")) >= 0:
        raise CorpusError(f"{path} is not text: a NUL byte at offset {zero}. Save it as UTF-8.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02x} at offset {error.start}"
        raise CorpusError(f"{path} is not UTF-8: {byte}. Save it as UTF-8.") from error
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        state = "is empty" if not content else "holds only blank lines"
        raise CorpusError(f"{path} {state}. At least one example is needed.")
    return text


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file. Split at `\\n` only: form feeds and the like are content."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield number, line


# --- tables, whatever their format ------------------------------------------------------------


def read_examples(make: Callable[[int, Fields], Any], *paths: Path) -> Read:
    """What is made of every row of one table or several.

    make  from the number of a row and its fields to an example, or to the reason why there is
          none; what it cannot read it says by a ValueError
    """
    examples: list[Any] = []
    skipped: Counter[str] = Counter()
    for path in paths:
        for number, values in read_rows(path):
            try:
                made = make(number, values)
            except (ValueError, TypeError) as error:
                raise CorpusError(f"{path}:{number}: {error}") from error
            if isinstance(made, str):
                skipped[made] += 1
            else:
                examples.append(made)
    return examples, skipped


def read_rows(path: Path) -> Iterator[tuple[int, Fields]]:
    """The numbered rows of a file of any of the formats that our datasets have."""
    name = plain_name(path)
    if name.endswith(".parquet"):
        return _parquet_rows(path)
    if name.endswith(".jsonl"):
        return _json_rows(path)
    if name.startswith("sts-"):
        return _table_rows(path, PlainTabs, STS_COLUMNS)
    return _table_rows(path, csv.excel if name.endswith(".csv") else PlainTabs)


def _json_rows(path: Path) -> Iterator[tuple[int, Fields]]:
    """One JSON object a line."""
    for number, line in lines(path):
        try:
            value = json.loads(line)
        except ValueError as error:
            reason = f"not JSON ({error}). One object a line is expected."
            raise CorpusError(f"{path}:{number}: {reason}") from error
        if not isinstance(value, dict):
            reason = f'{_kind(value)} instead of an object. Write {{"text": "..."}} on the line.'
            raise CorpusError(f"{path}:{number}: {reason}")
        yield number, value


class PlainTabs(csv.excel_tab):
    """Cells between tabs; quotes are plain characters (GLUE's files)."""

    quoting = csv.QUOTE_NONE


def _table_rows(
    path: Path, dialect: type[csv.Dialect], header: tuple[str, ...] = ()
) -> Iterator[tuple[int, Fields]]:
    """Cells of a dialect; between commas quoted ones may hold line ends.

    Without `header` the first line names the columns, and every row must have that many.
    With it the columns are named here, and further unnamed columns are ignored.
    """
    names = header
    reader = csv.reader(io.StringIO(read_text(path)), dialect, strict=True)
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not names:
                names = tuple(cell.strip() for cell in cells)
                continue
            if len(cells) < len(names) or (not header and len(cells) > len(names)):
                wanted = f"expected {len(names)} ({', '.join(names)}). Mend the line."
                raise CorpusError(f"{path}:{reader.line_num}: {len(cells)} columns, {wanted}")
            yield reader.line_num, dict(zip(names, cells, strict=False))
    except csv.Error as error:
        raise CorpusError(f"{path}:{reader.line_num}: {error}. Fetch it again.") from error


def _parquet_rows(path: Path) -> Iterator[tuple[int, Fields]]:
    """The hub's form of a dataset."""
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(f"{path} is no parquet file ({error}). Fetch it again.") from error
    return enumerate(rows, start=1)


def field(values: Fields, *names: str, kind: type | tuple[type, ...] = str) -> Any:
    """The value of the first of the named fields that a row has, of the type asked for."""
    for name in names:
        if name in values:
            value = values[name]
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                wanted = f"expected {_names(kind)}. Mend the line."
                raise ValueError(f"'{name}' is {_kind(value)}, {wanted}")
            return value
    raise ValueError(f"no '{names[0]}' among {', '.join(values) or 'no fields'}. Add it.")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true/false"}
    return names.get(type(value), "nothing" if value is None else f"the number {value}")


def _names(kind: type | tuple[type, ...]) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    words: dict[type, str] = {str: "a string", list: "a list", dict: "an object"}
    return " or ".join(dict.fromkeys(words.get(k, "a number") for k in kinds))
