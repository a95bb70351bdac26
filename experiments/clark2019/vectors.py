"""GloVe word vectors for the attention-and-words probe (Clark 2019, sec. 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnlib.data.assets import resolve
from attnlib.errors import AssetError, BadValue

ASSET = "glove-50d"
TABLE = "glove_6B_50d_emb.npy"
INDEX = "glove_6B_index.parquet"
AGAIN = f"Run `attnlib fetch {ASSET} --force`."


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
    table = _read(home / TABLE, lambda path: np.load(path, mmap_mode="r"))
    words = _read(home / INDEX, lambda path: pd.read_parquet(path, columns=["index"])["index"])
    rows = {word: row for row, word in enumerate(words)}
    if table.ndim != 2 or table.dtype != np.float32 or not len(table) == len(words) == len(rows):
        raise AssetError(
            f"{home / TABLE} holds {table.dtype} of shape {table.shape} for {len(rows):,} words; "
            f"expected float32 (word, dim). {AGAIN}"
        )
    return Vectors(table, rows)


def _read(path: Path, reader: Callable[[Path], Any]) -> Any:
    try:
        return reader(path)
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise AssetError(f"{path} cannot be read ({error}). {AGAIN}") from error
