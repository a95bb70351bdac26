"""GloVe word vectors for the attention-and-words probe (Clark 2019, sec. 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnlib.data.assets import resolve
from attnlib.errors import AssetError, BadValue

ASSET = "glove-50d"
TABLE = "glove_6B_50d_emb.npy"
INDEX = "glove_6B_index.parquet"


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Word vectors: `table` (word, dim) stays in its file, `rows` says where a word stands.

    GloVe 6B knows lower-cased words only, so a word is looked up in lower case. An unknown word
    has the zero vector: in the probe, whose dense layer has a bias, it then leaves each head the
    weight that does not depend on words. (GloVe 6B has no vector for unknown words: its `unk` is
    a word of its texts. What the authors' code does with them is not stated.)
    """

    table: np.ndarray[Any, np.dtype[np.float32]]
    rows: Mapping[str, int]

    @property
    def dim(self) -> int:
        return int(self.table.shape[1])

    def of(self, words: Sequence[str]) -> torch.Tensor:
        """The vectors of the words, float32 (word, dim), zeros where a word is unknown."""
        places = self._places(words)
        known = places >= 0
        found = np.zeros((len(places), self.dim), dtype=np.float32)
        found[known] = self.table[places[known]]
        return torch.from_numpy(found)

    def coverage(self, words: Sequence[str]) -> float:
        """The share of the words (each occurrence counts) that are known; NaN of no words."""
        places = self._places(words)
        return float((places >= 0).mean()) if len(places) else float("nan")

    def _places(self, words: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
        if isinstance(words, str):
            raise BadValue(f"'{words}' is one string; expected words. Pass ['{words}'].")
        return np.array([self.rows.get(word.lower(), -1) for word in words], dtype=np.int64)


@cache
def load_vectors(folder: Path | None = None) -> Vectors:
    """The vectors of the asset `glove-50d`, or of another folder with the same two files.

    The paper's probe has 100 dimensions, this asset 50. The table is mapped from its file, not
    read, so only the rows that are asked for reach the memory.
    """
    home = resolve(ASSET) if folder is None else folder
    table, words = _table(home / TABLE), _words(home / INDEX)
    if len(words) != len(table):
        names = f"names {len(words):,} words, but {TABLE} has {len(table):,} vectors"
        raise _broken(home / INDEX, names, ", or give a folder whose files belong together")
    rows = {word: row for row, word in enumerate(words)}
    if len(rows) != len(words):
        twice = len(words) - len(rows)
        raise _broken(home / INDEX, f"names {twice:,} words twice; expected each once")
    return Vectors(table, rows)


def _broken(path: Path, reason: str, more: str = "") -> AssetError:
    return AssetError(f"{path} {reason}. Run `attnlib fetch {ASSET} --force`{more}.")


def _table(path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    try:
        table: np.ndarray[Any, np.dtype[Any]] = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise _broken(path, f"cannot be read as an array ({error})") from error
    if table.ndim != 2 or table.dtype != np.float32:
        holds = f"holds {table.dtype} of shape {table.shape}"
        raise _broken(path, f"{holds}; expected float32 (word, dim)")
    return table


def _words(path: Path) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        column = pyarrow.parquet.read_table(path, columns=["index"]).column("index")
    except (pyarrow.ArrowException, OSError, KeyError) as error:
        raise _broken(path, f"cannot be read as a table with a column 'index' ({error})") from error
    words: list[str] = column.to_pylist()
    return words
