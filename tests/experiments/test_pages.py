"""The pages that only this book has say what their records say: assets, metrics, citations."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np

from attnlib.data.asset_list import known
from attnlib.measuring.stream import METRICS
from bookkit.editions import load_edition
from experiments import pages

ROOT = Path(__file__).parents[2]


def test_every_asset_has_a_card_with_its_licence() -> None:
    edition = load_edition("pocket")
    page = pages.asset_cards(edition)
    for name, asset in known().items():
        assert f"`{name}`{' ✓' if name in edition.assets else ''}\n" in page
        assert pages._plain(asset.licence) in page


def test_every_metric_is_on_the_page() -> None:
    page = pages.metric_tables()
    for key, metric in METRICS.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| `{key}`"))
        assert metric.unit in line and pages._plain(metric.what) in line
    assert r"\log a_{qk}" in pages.formula_of(METRICS["entropy"])


def test_the_front_page_takes_the_wall_of_a_chapter(tmp_path: Path) -> None:
    wall = {"data": {"text/html": '<figure class="attn-figure attn-wall">heads</figure>'}}
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps({"cells": [{"outputs": []}, {"outputs": [wall]}]}))
    assert "heads</figure>" in pages.front_figure({"one": path})
    assert pages.front_figure({}).strip() == ""


def test_the_book_and_the_papers_can_be_cited() -> None:
    assert "@software{attnlib," in pages.book_citation(ROOT)
    page = pages.paper_citations(ROOT)
    for key in ("clark2019", "kovaleva2019", "guan2020", "pande2021"):
        assert re.search(rf"@\w+\{{{key},", page)


# --- prose with numbers worked by hand


def test_the_row_made_by_hand() -> None:
    text = (ROOT / "book" / "reading_maps.md").read_text(encoding="utf-8")
    query = np.array([2, 1, 0, 1])
    lines = re.findall(r"^\| (?:the|cat|sat) \| \$\((.*?)\)\$ \|(.*)\|$", text, re.M)
    keys = np.array([[float(x) for x in key.split(",")] for key, _ in lines])
    told = np.array([[float(x.strip(" *")) for x in rest.split("|")] for _, rest in lines])
    score = keys @ query / math.sqrt(4)
    weight = np.exp(score) / np.exp(score).sum()
    wanted = np.stack([keys @ query, score, np.exp(score).round(2), weight.round(2)], axis=1)
    np.testing.assert_allclose(told, wanted, atol=1e-9)
    assert f"{np.exp(score).sum():.2f}" in text
    assert f"= {weight @ [1, 10, 4]:.1f}." in text
