"""GloVe vectors: look-up by lower case, unknown words, and files that do not fit each other."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from attnlib.data.corpora import load_corpus
from attnlib.errors import AssetError, BadValue
from experiments.clark2019.probe_models import INDEX, TABLE, load_vectors

WORDS = ["the", "cat", "'s", "été"]
TABLE_OF_WORDS = np.arange(12, dtype=np.float32).reshape(4, 3) + 1


def write(folder: Path, table: np.ndarray = TABLE_OF_WORDS, words: list[str] = WORDS) -> Path:
    np.save(folder / TABLE, np.asfortranarray(table))  # the asset has columns in a row, too
    pyarrow.parquet.write_table(pyarrow.table({"index": words}), folder / INDEX)
    return folder


def test_words_are_found_in_lower_case(tmp_path: Path) -> None:
    vectors = load_vectors(write(tmp_path))
    assert vectors.dim == 3
    found = vectors.of(["Cat", "THE", "cat", "ÉTÉ"])
    assert found.dtype == torch.float32
    expected = [[4.0, 5, 6], [1, 2, 3], [4, 5, 6], [10, 11, 12]]
    assert found.tolist() == expected


def test_unknown_words_are_zero_and_counted(tmp_path: Path) -> None:
    vectors = load_vectors(write(tmp_path))
    words = ["dog", "The", "dog", "cat", "the", "'s", "", "ca"]
    found = vectors.of(words)
    assert [not row.any() for row in found] == [True, False, True, False, False, False, True, True]
    assert vectors.coverage(words) == 0.5
    assert vectors.coverage(["dog"]) == 0.0
    assert vectors.of([]).shape == (0, 3)
    assert np.isnan(vectors.coverage([]))


def test_a_string_is_not_taken_for_its_letters(tmp_path: Path) -> None:
    vectors = load_vectors(write(tmp_path))
    with pytest.raises(BadValue, match=r"Pass \['cat'\]"):
        vectors.of("cat")


def test_the_table_stays_in_its_file_and_is_not_changed(tmp_path: Path) -> None:
    vectors = load_vectors(write(tmp_path))
    assert isinstance(vectors.table, np.memmap)
    assert load_vectors(tmp_path) is vectors
    found = vectors.of(["the"])
    found += 100  # the caller's own copy
    assert vectors.of(["the"]).tolist() == [[1, 2, 3]]


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    write(tmp_path, words=WORDS[:3])
    with pytest.raises(AssetError, match=r"shape \(4, 3\) for 3 words"):
        load_vectors(tmp_path)
    write(tmp_path, words=[*WORDS[:3], "the"])
    with pytest.raises(AssetError, match=r"shape \(4, 3\) for 3 words"):
        load_vectors(tmp_path)
    write(tmp_path, table=TABLE_OF_WORDS.astype(np.float64))
    with pytest.raises(
        AssetError, match=r"float64 of shape \(4, 3\) for 4 words; expected float32"
    ):
        load_vectors(tmp_path)
    write(tmp_path, table=TABLE_OF_WORDS[0])
    with pytest.raises(AssetError, match=r"shape \(3,\)"):
        load_vectors(tmp_path)


@pytest.mark.parametrize("name", [TABLE, INDEX])
@pytest.mark.parametrize("content", [None, b"", b"no such format"])
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes | None) -> None:
    (write(tmp_path) / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(AssetError) as error:
        load_vectors(tmp_path)
    assert str(tmp_path / name) in str(error.value)
    assert "attnlib fetch glove-50d" in str(error.value)


def test_a_table_cut_short_and_an_index_without_its_column(tmp_path: Path) -> None:
    table = write(tmp_path) / TABLE
    table.write_bytes(table.read_bytes()[:-8])
    with pytest.raises(AssetError, match="cannot be read"):
        load_vectors(tmp_path)
    write(tmp_path)
    pyarrow.parquet.write_table(pyarrow.table({"word": WORDS}), tmp_path / INDEX)
    with pytest.raises(AssetError, match=r"cannot be read .*index"):
        load_vectors(tmp_path)


@pytest.mark.assets
def test_the_real_vectors() -> None:
    vectors = load_vectors()
    assert vectors.dim == 50
    cat, dog, of = vectors.of(["Cat", "dog", "of"])
    near, far = (torch.cosine_similarity(cat, other, dim=0) for other in (dog, of))
    assert near > 0.8 > far
    assert torch.equal(vectors.of(["xqzzyv"]), torch.zeros(1, 50))


@pytest.mark.mirror
@pytest.mark.skipif(not os.environ.get("ATTNLIB_MIRROR"), reason="$ATTNLIB_MIRROR is not set")
def test_most_words_of_a_treebank_are_known() -> None:
    words = [word for tree in load_corpus("ewt-dev", limit=300).examples for word in tree.words]
    assert 0.95 < load_vectors().coverage(words) < 1
