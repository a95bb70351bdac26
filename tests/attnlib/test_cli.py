"""The command line: what programs read, and one clear sentence for every wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.assets

TEXT = """The keeper of the lighthouse wrote a letter to her brother, who lived far inland.
It rained.

When the harbour froze, nobody remembered where the old chart was kept, and all blamed the cook.
"Où est la carte?" asked the captain; no one answered him.
"""
TREE = "1\tIt\t_\tPRON\t_\t_\t2\tnsubj\t_\t_\n2\train\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "letters.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def naive(path: Path, encoder) -> dict[str, np.ndarray]:  # type: ignore[no-untyped-def]
    """The five quantities from the library's own maps, one document and one row at a time."""
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(encoder.source, attn_implementation="eager").eval()
    found: dict[str, list[np.ndarray]] = {}
    for line in filter(str.strip, path.read_text(encoding="utf-8").splitlines()):
        inputs = encoder.tokenizer(line, return_tensors="pt")
        with torch.no_grad():
            layers = model(**inputs, output_attentions=True).attentions
        ids, n = inputs["input_ids"][0].tolist(), inputs["input_ids"].shape[1]
        for key in ("mass_to_previous", "mass_to_next", "mass_to_sep", "mass_to_cls", "entropy"):
            grid = np.zeros((encoder.n_layers, encoder.n_heads))
            for layer, maps in enumerate(layers):
                for head in range(encoder.n_heads):
                    grid[layer, head] = _one(key, maps[0, head].double().numpy(), ids, n)
            found.setdefault(key, []).append(grid)
    return {key: np.mean(grids, axis=0) for key, grids in found.items()}


def _one(key: str, a: np.ndarray, ids: list[int], n: int) -> float:
    if key == "mass_to_previous":
        return sum(a[q, q - 1] for q in range(1, n)) / n
    if key == "mass_to_next":
        return sum(a[q, q + 1] for q in range(n - 1)) / n
    if key == "mass_to_sep":
        return sum(a[q, k] for q in range(n) for k in range(n) if ids[k] == 102) / n
    if key == "mass_to_cls":
        return sum(a[q, 0] for q in range(n)) / n
    return -sum(p * np.log(p) for row in a for p in row if p > 0) / n


@pytest.mark.parametrize("batch_size", [1, 32])
def test_measure_equals_a_naive_loop(run: Run, text: Path, e5_small, batch_size: int) -> None:  # type: ignore[no-untyped-def]
    expected = naive(text, e5_small)
    code, out, _ = run("measure", "e5-small", text, *expected, "--json", "--batch-size", batch_size)
    found = json.loads(out)
    assert code == 0
    assert found["model"] == "e5-small" and found["n_examples"] == 4 and found["skipped"] == {}
    for key, grid in expected.items():
        got = found["metrics"][key]
        np.testing.assert_allclose(got["mean"], grid, atol=1e-5)
        assert np.all(np.array(got["low"]) <= grid + 1e-6)
        assert np.all(np.array(got["high"]) >= grid - 1e-6)


def test_measure_shows_a_grid(run: Run, text: Path) -> None:
    code, out, _ = run("measure", "e5-small", text, "mass_to_previous")
    assert code == 0
    assert "strongest heads" in out and "3-3" in out
    assert len([line for line in out.splitlines() if line.strip().startswith("12 ")]) == 1


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_measure_writes_a_tidy_table(run: Run, text: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"heads.{suffix}"
    code, _, _ = run("measure", "e5-small", text, "entropy", "mass_to_sep", "--out", out)
    table = pd.read_csv(out) if suffix == "csv" else pd.read_parquet(out)
    assert code == 0
    assert len(table) == 2 * 144
    assert {"metric", "layer", "head", "mean", "low", "high", "n"} <= set(table.columns)
    assert table["layer"].min() == 1 and table["head"].max() == 12
    assert not list(tmp_path.glob(".tmp*")), "no draft may stay behind"


def test_lists_are_for_people_and_programs(run: Run) -> None:
    for command, key in (("metrics", "entropy"), ("relations", "next"), ("corpora", "ewt-dev")):
        assert key in run(command)[1]
        assert any(key in row.values() for row in json.loads(run(command, "--json")[1]))


def test_assets_contract(run: Run) -> None:
    rows = json.loads(run("assets", "--json")[1])
    keys = {"name", "kind", "present", "path", "bytes", "licence", "source"}
    assert all(set(row) == keys for row in rows)
    e5 = next(row for row in rows if row["name"] == "e5-small")
    assert e5["present"] and (Path(e5["path"]) / "config.json").is_file()


def sentence(err: str) -> str:
    """The one line a wrong input earns: no traceback, nothing before it."""
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    return lines[0]


def wrong_inputs(folder: Path) -> dict[str, tuple[list[object], str]]:
    """What is typed, and what the answer must name."""
    good = folder / "good.txt"
    good.write_text("A short line.\n")
    (folder / "empty.txt").write_text("")
    (folder / "blank.txt").write_text("\n \n")
    (folder / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe")
    (folder / "long.txt").write_text("word " * 400)
    (folder / "cycle.conllu").write_text(TREE.replace("\t0\troot", "\t1\tdep"))
    (folder / "column.conllu").write_text(TREE.replace("\tVERB\t_\t_", "\tVERB\t_"))
    (folder / "bad.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    (folder / "bare").mkdir()
    e5 = ["measure", "e5-small"]
    return {
        "unknown model": (["measure", "e5-smal", good, "entropy"], "Did you mean 'e5-small'?"),
        "absent model": (["measure", "bert-base-uncased", good, "entropy"], "$ATTNLIB_MIRROR"),
        "folder without a model": (["measure", folder / "bare", good, "entropy"], "config.json"),
        "unknown metric": ([*e5, good, "entropie"], "Did you mean 'entropy'?"),
        "unknown variant": ([*e5, good, "entropy@nobody"], "paper, authors"),
        "unknown corpus": ([*e5, "ewt-dve", "entropy"], "Did you mean 'ewt-dev'?"),
        "missing file": ([*e5, folder / "absent.txt", "entropy"], "absent.txt"),
        "empty file": ([*e5, folder / "empty.txt", "entropy"], "empty"),
        "blank file": ([*e5, folder / "blank.txt", "entropy"], "blank.txt"),
        "not text": ([*e5, folder / "picture.txt", "entropy"], "picture.txt"),
        "too long": ([*e5, folder / "long.txt", "entropy"], "--on-long"),
        "nothing left": ([*e5, folder / "long.txt", "entropy", "--on-long", "skip"], "too long"),
        "max length 0": ([*e5, good, "entropy", "--max-length", 0], "3 to 512"),
        "max length 513": ([*e5, good, "entropy", "--max-length", 513], "3 to 512"),
        "batch size 0": ([*e5, good, "entropy", "--batch-size", 0], "1 or more"),
        "on long": ([*e5, good, "entropy", "--on-long", "cut"], "truncate"),
        "segment ids": ([*e5, good, "entropy", "--segment-ids", "ones"], "zeros"),
        "device": ([*e5, good, "entropy", "--device", "tpu9"], "tpu9"),
        "engine": ([*e5, good, "entropy", "--engine", "spark"], "dask://HOST:PORT"),
        "no scheduler": ([*e5, good, "entropy", "--engine", "dask://127.0.0.1:1"], "127.0.0.1:1"),
        "out format": ([*e5, good, "entropy", "--out", folder / "x.xlsx"], ".parquet or .csv"),
        "out folder": ([*e5, good, "entropy", "--out", folder / "no" / "x.csv"], "folder"),
        "cycle": ([*e5, folder / "cycle.conllu", "entropy"], "cycle.conllu"),
        "missing column": ([*e5, folder / "column.conllu", "entropy"], "column.conllu"),
        "broken json": ([*e5, folder / "bad.jsonl", "entropy"], "bad.jsonl"),
        "limit 0": ([*e5, good, "entropy", "--limit", 0], "limit"),
        "unknown asset": (["fetch", "e5-smal"], "Did you mean 'e5-small'?"),
    }


def test_wrong_inputs_get_one_sentence(run: Run, tmp_path: Path) -> None:
    before = None
    for name, (words, expected) in wrong_inputs(tmp_path).items():
        before = before or sorted(tmp_path.rglob("*"))
        code, out, err = run(*words)
        assert code == 2, f"{name}: exit code {code}"
        assert out == "", f"{name}: {out}"
        assert expected in sentence(err), f"{name}: {err}"
        assert sorted(tmp_path.rglob("*")) == before, f"{name} left something behind"
