"""A rehearsal runs a chapter on a random model of the shape it will have, and on few inputs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from attnlib.errors import BadValue, UnknownModel
from attnlib.models import load_encoder
from bookkit.editions import chapter_parameters, load_edition
from experiments.shared.rehearsal import BASE, LARGE, SHAPES, random_model, rehearse

TINY = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}


def test_every_chapter_of_the_paper_edition_can_be_rehearsed() -> None:
    edition = load_edition("paper")
    for chapter in edition.chapters:
        assert chapter.rehearsal is not None, chapter.page
        few = replace(chapter, parameters={**chapter.parameters, **chapter.rehearsal})
        assert chapter_parameters(edition, few)["model"] in SHAPES


def test_shapes_are_those_of_the_papers_models() -> None:
    assert BASE["hidden_size"] // BASE["num_attention_heads"] == 64
    assert (LARGE["num_hidden_layers"], LARGE["num_attention_heads"]) == (24, 16)


def test_an_edition_without_a_rehearsal_says_so() -> None:
    with pytest.raises(BadValue, match="'pocket' has nothing to rehearse; expected `rehearsal:`"):
        rehearse("pocket")


@pytest.mark.assets
def test_a_chapter_runs_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edition = load_edition("paper")
    first = tuple(chapter for chapter in edition.chapters if chapter.page == "first_look")
    folder = rehearse(
        replace(edition, chapters=first),
        shapes={"bert-base-uncased": TINY},
        folder=tmp_path,
    )
    book = json.loads((folder / "first_look.ipynb").read_text(encoding="utf-8"))
    assert book["metadata"]["attnlib"]["parameters"]["limit"] == 4
    assert "1 chapters run from end to end" in capsys.readouterr().out.splitlines()[-1]
    encoder = load_encoder(tmp_path / "models" / "bert-base-uncased", device="cpu")
    assert (encoder.n_layers, encoder.n_heads) == (3, 4)


@pytest.mark.assets
def test_a_model_that_answers_has_a_head_for_it(tmp_path: Path) -> None:
    from experiments.shared.training.publishedreader import published_reader

    answering, plain = (
        load_encoder(random_model(name, TINY, tmp_path / name), device="cpu")
        for name in ("tiny-squad", "tiny")
    )
    assert published_reader(answering).facts["corpus"] == "published"
    with pytest.raises(UnknownModel, match="no head that reads answers"):
        published_reader(plain)
