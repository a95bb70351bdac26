"""Sec. 5: probes that read a word's syntactic head off the attention maps, and their rivals.

A probe scores every candidate head of every word of one sentence. The candidates are ROOT and then
the words in order; a word is never its own head. Some probes read GloVe vectors of the words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlib.attention.words import N_SPECIAL
from attnlib.data.assets import resolve
from attnlib.errors import AssetError, BadValue

ASSET = "glove-50d"
TABLE = "glove_6B_50d_emb.npy"
INDEX = "glove_6B_index.parquet"
AGAIN = f"Run `attnlib fetch {ASSET} --force`."
HIDDEN = 256
NEAR = (-2, -1, 0, 1, 2)
"""Offsets with an indicator of their own; 0 never acts here, a word is not its own candidate."""

N_DISTANCES = 2 + len(NEAR) + 1


# --- word vectors ---------------------------------------------------------------------------------


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
        places = self._places(words)[:, None]
        return torch.from_numpy(np.where(places >= 0, self.table[places[:, 0]], np.float32(0)))

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


# --- what a probe sees ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sentence:
    """One sentence as probes see it; what several probes need is computed once.

    pairs    (word, candidate, 2 * head)   attention of all heads from the candidate to the word,
                                           then of all heads from the word to the candidate
    vectors  (word, dim)
    """

    pairs: Float[Tensor, "word candidate directed_head"]
    vectors: Float[Tensor, "word dim"]

    @staticmethod
    def of(maps: Float[Tensor, "head unit unit"], vectors: Float[Tensor, "word dim"]) -> Sentence:
        """The sentence of these word maps: units are [CLS], [SEP], the words, perhaps padding.

        [CLS] takes the place of ROOT. Differs from the authors' code, where ROOT's attention is a
        learned mixture of that to [CLS] and to [SEP]. A word without a piece has no attention: 0.
        """
        n_units = len(vectors) + N_SPECIAL
        missing = n_units - maps.shape[-1]
        if missing > 0:  # the last words of the batch had no piece
            maps = nn.functional.pad(maps, (0, missing, 0, missing))
        n_heads, side, _ = maps.shape
        # One flat transposition first: heads then lie together, and what follows copies rows.
        by_pair = maps.reshape(n_heads, -1).T.contiguous().view(side, side, n_heads)
        words = by_pair[:n_units, :n_units]
        words = torch.cat([words[:1], words[N_SPECIAL:]])
        words = torch.cat([words[:, :1], words[:, N_SPECIAL:]], dim=1)
        from_candidate, to_candidate = words[:, 1:].transpose(0, 1), words[1:]
        return Sentence(torch.cat([from_candidate, to_candidate], dim=2), vectors)

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def offsets(self) -> Float[Tensor, "word candidate"]:
        """How many words to the right the candidate is; NaN for ROOT, which has no place."""
        places = torch.arange(len(self), device=self.vectors.device, dtype=self.vectors.dtype)
        offsets = places - places.unsqueeze(1)
        return nn.functional.pad(offsets, (1, 0), value=torch.nan)

    @cached_property
    def distances(self) -> Float[Tensor, "word candidate 8"]:
        """Distance ahead and behind as shares of the sentence, near offsets, and ROOT (note 5)."""
        share = self.offsets.nan_to_num(0.0) / len(self)
        near = torch.tensor(NEAR, device=share.device, dtype=share.dtype)
        indicators = (self.offsets.unsqueeze(2) == near).to(share.dtype)
        root = self.offsets.isnan().to(share.dtype)
        ahead_behind_root = torch.stack([share.clamp_min(0), (-share).clamp_min(0), root], dim=2)
        return torch.cat([ahead_behind_root, indicators], dim=2)

    @cached_property
    def candidates(self) -> Float[Tensor, "candidate dim"]:
        """The vectors of the candidates; ROOT's is 0."""
        return nn.functional.pad(self.vectors, (0, 0, 1, 0))


# --- probes ---------------------------------------------------------------------------------------


class Probe(nn.Module):
    """Scores of the candidates for the head of every word; their softmax is p(i|j)."""

    def raw_scores(self, sentence: Sentence) -> Float[Tensor, "word candidate"]:
        raise NotImplementedError

    def forward(self, sentence: Sentence) -> Float[Tensor, "word candidate"]:
        """The scores, with minus infinity for the word itself (the authors' code allows it)."""
        return self.raw_scores(sentence).masked_fill(sentence.offsets == 0, -torch.inf)

    @property
    def n_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


class AttentionProbe(Probe):
    r"""A linear combination of attention weights, both ways (Clark 2019, sec. 5).

    .. math:: p(i|j) \propto \exp\Big(\sum_k w_k \alpha^k_{ij} + u_k \alpha^k_{ji}\Big)

    i is the candidate, j the word, :math:`\alpha^k_{ij}` what head k gives from i to j. Every
    weight starts at 0; the problem is convex. Differs from the authors' code in one learned bias
    for ROOT.
    """

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2 * n_heads))  # w, then u
        self.root_bias = nn.Parameter(torch.zeros(1))

    def raw_scores(self, sentence: Sentence) -> Float[Tensor, "word candidate"]:
        return sentence.pairs @ self.weight + _root_only(self.root_bias, sentence)


class AttentionWordsProbe(Probe):
    r"""The weight of a head depends on the two words (Clark 2019, sec. 5).

    .. math::
        p(i|j) \propto \exp\Big(\sum_k W_k (v_i \oplus v_j) \alpha^k_{ij}
                                     + U_k (v_i \oplus v_j) \alpha^k_{ji}\Big)

    A row of W applied to a pair is :math:`A_k v_i + B_k v_j + b_k` (the bias b is the authors'),
    so no array of pairs of vectors is ever built. ROOT's vector is 0. Every weight starts at 0;
    the problem is convex. One learned bias for ROOT, as in the attention-only probe.

    misaligned  as in the released code, where ROOT comes first among the maps but last among the
                vectors. So each word is judged by the vector of the word after it, ROOT by that of
                the first word, and the last word by two vectors of 0.
    """

    def __init__(self, n_heads: int, dim: int, *, misaligned: bool = False) -> None:
        super().__init__()
        self.misaligned = misaligned
        self.of_candidate = nn.Parameter(torch.zeros(2 * n_heads, dim))  # A of W, then of U
        self.of_word = nn.Parameter(torch.zeros(2 * n_heads, dim))  # B of W, then of U
        self.bias = nn.Parameter(torch.zeros(2 * n_heads))
        self.root_bias = nn.Parameter(torch.zeros(1))

    def raw_scores(self, sentence: Sentence) -> Float[Tensor, "word candidate"]:
        pairs, candidates = sentence.pairs, sentence.candidates
        if self.misaligned:
            candidates = candidates.roll(-1, dims=0)
        for_candidate = candidates @ self.of_candidate.T
        for_word = sentence.vectors @ self.of_word.T + self.bias
        by_word = _weighted_rows(for_word, pairs)
        if self.misaligned:
            by_word = torch.cat([by_word[:, :-1], pairs[:, -1:] @ self.bias], dim=1)
        by_candidate = _weighted_rows(for_candidate, pairs.transpose(0, 1)).T
        return by_candidate + by_word + _root_only(self.root_bias, sentence)


class DistancesWordsProbe(Probe):
    r"""A hidden layer over both words and their distance; no attention (Clark 2019, sec. 5).

    .. math:: p(i|j) \propto \exp\big(o \cdot \tanh(A v_i + B v_j + D d_{ij} + b)\big)

    d has the 8 features of the authors' code: the distance ahead and the distance behind, each
    divided by the length of the sentence, an indicator for every offset from -2 to 2, and one for
    ROOT. ROOT's vector is 0. Differs from the authors' code, where the vectors of the candidates
    are shifted by one place (see `AttentionWordsProbe`).
    """

    def __init__(self, dim: int, seed: int = 0) -> None:
        super().__init__()
        n_inputs = 2 * dim + N_DISTANCES
        bound = (6 / (n_inputs + HIDDEN)) ** 0.5  # Glorot's, the authors' library's default
        generator = torch.Generator().manual_seed(seed)
        drawn = (2 * torch.rand(HIDDEN, n_inputs, generator=generator) - 1) * bound
        parts = drawn.split([dim, dim, N_DISTANCES], dim=1)
        self.of_candidate, self.of_word, self.of_distance = (nn.Parameter(p.clone()) for p in parts)
        self.bias = nn.Parameter(torch.zeros(HIDDEN))
        bound = (6 / (HIDDEN + 1)) ** 0.5
        self.out = nn.Parameter((2 * torch.rand(HIDDEN, generator=generator) - 1) * bound)

    def raw_scores(self, sentence: Sentence) -> Float[Tensor, "word candidate"]:
        by_candidate = sentence.candidates @ self.of_candidate.T
        by_word = sentence.vectors @ self.of_word.T + self.bias
        by_distance = sentence.distances @ self.of_distance.T
        return torch.tanh(by_distance + by_candidate + by_word.unsqueeze(1)) @ self.out


class RightBranching(Probe):
    """The head is the next word; of the last word it is ROOT, which is our choice."""

    def raw_scores(self, sentence: Sentence) -> Float[Tensor, "word candidate"]:
        scores = (sentence.offsets == 1).to(sentence.vectors.dtype)
        scores[-1, 0] = 1
        return scores


PROBES: dict[str, Callable[[int, int, int], Probe]] = {
    "attention": lambda n_heads, dim, seed: AttentionProbe(n_heads),
    "attention-words": lambda n_heads, dim, seed: AttentionWordsProbe(n_heads, dim),
    "attention-words-authors": lambda n_heads, dim, seed: AttentionWordsProbe(
        n_heads, dim, misaligned=True
    ),
    "distances-words": lambda n_heads, dim, seed: DistancesWordsProbe(dim, seed),
    "right-branching": lambda n_heads, dim, seed: RightBranching(),
}
"""Fresh probes by name, for so many heads over all layers, vectors of so many numbers, a seed."""


def _root_only(bias: Tensor, sentence: Sentence) -> Float[Tensor, " candidate"]:
    return nn.functional.pad(bias, (0, len(sentence)))


def _weighted_rows(
    weights: Float[Tensor, "row head"], rows: Float[Tensor, "row column head"]
) -> Float[Tensor, "row column"]:
    """Sums over heads, each row with weights of its own; this order of factors is the fast one."""
    return torch.bmm(weights.unsqueeze(1), rows.transpose(1, 2)).squeeze(1)
