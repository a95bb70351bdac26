"""What a notebook talks to: experiments run once, claims stand below figures, nothing is lost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from attnlib import plots
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment, Tree
from attnlib.errors import CorpusError
from bookkit import ledger
from bookkit.claims import FOUND, RUNS, Finding, load_paper
from bookkit.errors import BadValue, UnknownName
from bookkit.executed import results_behind
from bookkit.store import Found, Store, experiment
from experiments.shared import chapter as chapters
from experiments.shared.chapter import Chapter, split_by_document


def texts(n: int = 4) -> Corpus:
    told = tuple(Segment(str(i), f"The cat number {i} sat, and slept.") for i in range(n))
    return Corpus("texts", "segment", told, {}, "test", f"digest-{n}")


SEEDS: list[int] = []


@experiment(version=1)
def longest(corpus: Corpus, *, seed: int = 0, times: int = 1) -> Found:
    """An experiment without a model."""
    SEEDS.append(seed)
    table = pd.DataFrame({"n": [len(corpus) * times]})
    return Found(table, {"previous.heads_above_half": Finding(2.0, 2.0, 2.0)}, {"inputs": 1})


@pytest.fixture
def chapter(tmp_path: Path, e5_small: Any) -> Chapter:
    SEEDS.clear()
    return Chapter("clark2019", e5_small, seed=3, store=Store(tmp_path / "store"))


def test_an_experiment_runs_once_and_its_findings_are_kept(chapter: Chapter) -> None:
    assert chapter.run(longest, texts()).table["n"][0] == 4
    assert chapter.run(longest, texts()).table["n"][0] == 4
    assert SEEDS == [3]  # the chapter's seed
    assert chapter.run(longest, texts(5)).table["n"][0] == 5
    assert chapter.run(longest, texts(), times=2).table["n"][0] == 8
    assert len(SEEDS) == 3
    (judged,) = chapter.judged("sec3.1.previous")
    assert judged.verdict == "holds" and judged.ours == Finding(2.0, 2.0, 2.0)


def test_plain_metrics_give_the_table_of_heads(chapter: Chapter) -> None:
    metrics = ["mass_to_next", "entropy"]
    table = chapter.run(chapters.measured, texts(), metrics=metrics).table
    assert len(table) == 2 * 144 and set(table["metric"]) == set(metrics)
    again = chapter.run(chapters.measured, texts(), metrics=metrics).table
    pd.testing.assert_frame_equal(table, again)
    shown = chapter.show(plots.head_grid(table, "entropy"), "fig4.broad")
    html = shown._repr_html_()
    assert "<svg" in html and "Fig. 4" in html
    assert "to be run" in html  # nothing was found for the claim, and it says so


def test_a_claim_that_does_not_exist_is_refused(chapter: Chapter) -> None:
    with pytest.raises(UnknownName, match=r"Did you mean .fig4\.broad"):
        chapter.claims("fig4.brod")
    with pytest.raises(BadValue, match="no claim was named"):
        chapter.claims()


def declare(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """As if a module of today declared the experiment `longest`."""
    today = {"clark2019/longest": (version, "")}
    monkeypatch.setattr(ledger, "declared_versions", lambda root: today)


def test_the_ledger_travels_in_the_notebook(
    chapter: Chapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, 1)
    chapter.run(longest, texts())
    data, carried = chapter.ledger()._repr_mimebundle_()
    (found,) = carried[FOUND]
    assert found["model"] == chapter.model and set(found["findings"]) == set(chapter.findings)
    claims = [claim.id for claim in load_paper("clark2019").claims]
    assert "</table>" in data["text/html"]
    card, runs = chapter.compute_card()._repr_mimebundle_()
    outputs = [{"data": data, "metadata": carried}, {"data": card, "metadata": runs}]
    book = {"cells": [{"outputs": outputs}]}
    folder = tmp_path / "_build" / "pocket" / "notebooks"
    folder.mkdir(parents=True)
    (folder / "clark2019.ipynb").write_text(json.dumps(book))
    read = ledger.ledger(tmp_path, "pocket")
    assert [row["id"] for row in read if row["paper"] == "clark2019"] == claims
    keys = {"paper", "id", "where", "kind", "paper_value", "ours", "low", "high", "phenomenon"}
    keys |= {"holds", "verdict", "edition", "model", "deviations"}
    keys |= {"value_verdict", "evidence", "seen", "seen_low", "seen_high"}
    assert all(keys <= set(row) for row in read)
    by_id = {row["id"]: row for row in read}
    assert by_id["sec3.1.previous"]["verdict"] == "holds"
    assert by_id["sec3.1.next"]["verdict"] == "to be run" and by_id["sec3.1.next"]["ours"] is None
    assert sum(ledger.totals(read).values()) == len(read)
    assert results_behind(folder / "clark2019.ipynb") == [runs[RUNS][0]["name"]]


def test_what_an_older_version_found_is_to_be_run_again(
    chapter: Chapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chapter.run(longest, texts())
    cells = [
        {"outputs": [{"metadata": one._repr_mimebundle_()[1]}]}
        for one in (chapter.ledger(), chapter.compute_card())
    ]
    path = tmp_path / "clark2019.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    for version, verdict in ((1, "holds"), (2, "to be run"), (0, "to be run")):
        declare(monkeypatch, version)
        judged = {row["id"]: row for row in ledger.judged_rows(path)}
        assert judged["sec3.1.previous"]["verdict"] == verdict


def test_an_edition_that_was_not_run_has_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="Run `attnlib book paper` first"):
        ledger.ledger(tmp_path, "paper")


def tree(document: str, n: int) -> Tree:
    return Tree(f"{document}.{n}", ("a", "b"), (1, -1), ("det", "root"), ("X", "X"), None, document)


def test_a_corpus_is_split_by_whole_documents() -> None:
    told = tuple(tree(f"d{i}", n) for i in range(10) for n in range(7))
    whole = Corpus("trees", "tree", told, {}, "test", "abc")
    train, test = split_by_document(whole, 20, seed=1)
    assert len(train) + len(test) == 70 and 20 <= len(test) < 27
    assert not {t.document for t in train} & {t.document for t in test}
    assert train.digest != test.digest != whole.digest
    assert split_by_document(whole, 20, seed=1)[1].examples == test.examples
    assert split_by_document(whole, 20, seed=2)[1].examples != test.examples
    one = Corpus("one", "tree", told[:7], {}, "test", "abc")
    with pytest.raises(CorpusError, match="cannot be split by document"):
        split_by_document(one, 3)


def test_a_gallery_of_nothing_says_so(chapter: Chapter) -> None:
    assert "no treebank" in chapter.gallery({}, otherwise="no treebank here")._repr_html_()


def test_what_the_paper_reports_comes_from_its_claims(chapter: Chapter) -> None:
    assert chapter.reported("tab1")["det"]["value"] == 94.3
    names = chapter.claim_names("tab3", "sec5", but=["tab3.random"])
    assert "tab3.attention" in names and "sec5.substantial" in names
    assert "tab3.random" not in names


def test_a_chapter_renders_from_the_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time, neither the model nor the corpus is loaded."""

    def render() -> pd.DataFrame:
        chapter = Chapter("clark2019", "e5-small", seed=3, store=Store(tmp_path / "store"))
        reader = chapter.corpus("reader-coref", 4)
        assert len(reader) == 4 and chapter.encoder.n_heads == 12
        return chapter.run(chapters.measured, reader, metrics=["entropy"], max_length=192).table

    first = render()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was loaded")

    for name in ("load_encoder", "load_corpus"):
        monkeypatch.setattr(chapters, name, never)
    pd.testing.assert_frame_equal(render(), first)


def test_an_input_that_changed_is_another_result(tmp_path: Path, e5_small: Any) -> None:
    texts_file = tmp_path / "own.txt"
    lengths = []
    for words in ("one cat", "two cats, and a dog"):
        texts_file.write_text(f"{words}\n")
        chapter = Chapter("clark2019", e5_small, store=Store(tmp_path / "store"))
        read = chapter.run(longest_text, chapter.corpus(str(texts_file)))
        lengths.append(int(read.table["n"][0]))
    assert lengths == [7, 19]


@experiment(version=1)
def longest_text(corpus: Corpus) -> Found:
    return Found(pd.DataFrame({"n": [max(len(one.text) for one in corpus)]}))  # type: ignore[attr-defined]


@pytest.mark.parametrize("paper", ["clark2019", "guan2020", "kovaleva2019", "pande2021"])
def test_assets_that_experiments_read_exist(paper: str) -> None:
    from attnlib.data.assets import known

    sources = (Path(chapters.__file__).parents[1] / paper).glob("*.py")
    reads = re.findall(r"reads=\[([^]]*)\]", "".join(path.read_text() for path in sources))
    assert {name.strip(' "') for one in reads for name in one.split(",")} <= set(known())


def test_documents_of_one_corpus_are_two_sources(chapter: Chapter) -> None:
    train, test = chapter.split(("reader-coref", 6), ("reader-coref", 4))
    assert train.digest != test.digest and len(train) + len(test) == 10
    again = chapter.split(("reader-coref", 6), ("reader-coref", 4))
    assert [one.digest for one in again] == [train.digest, test.digest]
