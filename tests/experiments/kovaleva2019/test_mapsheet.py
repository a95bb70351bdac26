"""A sheet to print: maps without names, a table to count in, and the key in a file of its own."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments.kovaleva2019.patterns import PATTERNS, labelled_maps

ROW = re.compile(r"<tr><td>(\d+)</td><td>([^<]+)</td><td>(\S+) (\d+)-(\d+)</td></tr>")
PICTURE = re.compile(r'alt="map (\d+)" src="data:image/png;base64,([^"]+)"')


@pytest.fixture(scope="module")
def sheets(tmp_path_factory: Any) -> dict[int, tuple[str, str]]:
    """Page and key, by seed."""
    from experiments.kovaleva2019.mapsheet import write_sheet

    folder, found = tmp_path_factory.mktemp("sheets"), {}
    for seed in (0, 1):
        paths = write_sheet(folder / f"{seed}.html", seed=seed, device="cpu")
        assert [path.name for path in paths] == [f"{seed}.html", f"{seed}-key.html"]
        page, key = (path.read_text("utf-8") for path in paths)
        found[seed] = (page, key)
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_every_map_has_a_number_and_a_key(sheets: Any, seed: int) -> None:
    page, key = sheets[seed]
    rows = ROW.findall(key)
    assert [number for number, _ in PICTURE.findall(page)] == [str(n) for n in range(1, 21)]
    assert [row[0] for row in rows] == [str(n) for n in range(1, 21)]
    assert Counter(row[1] for row in rows) == dict.fromkeys(PATTERNS, 4)
    labelled = {(r.label, r.corpus.partition(":")[0], r.layer, r.head) for r in labelled_maps()}
    assert {(name, text, int(a), int(b)) for _, name, text, a, b in rows} <= labelled


def test_the_page_does_not_give_the_answers_away(sheets: Any) -> None:
    page, key = sheets[0]
    order = [row[1] for row in ROW.findall(key)]
    assert order != sorted(order, key=PATTERNS.index), "the maps stand in the order of the classes"
    plain = page.replace("<wbr>", "").replace("&shy;", "")
    for name in PATTERNS:  # in the words' list and in the table's row and column, nowhere else
        assert len(re.findall(rf">{re.escape(name)}<", plain)) == 3
    assert not ROW.search(page)


def test_another_seed_draws_other_maps(sheets: Any) -> None:
    first, second = ({own for _, own in PICTURE.findall(sheets[seed][0])} for seed in (0, 1))
    assert len(first) == len(second) == 20 and first != second


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("bert-base-uncased",), "no map of 'bert-base-uncased' was labelled"),
        (("--each", 0), "0 maps of every pattern"),
        (("--out", "nowhere/sheet.html"), "its folder does not exist"),
        (("--out", "sheet.pdf"), "expected .html"),
    ],
)
def test_what_cannot_be_drawn_writes_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run("sheet", *given)
    assert code == 2 and said in " ".join(err.split())
    assert not list(tmp_path.rglob("*"))
