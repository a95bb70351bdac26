"""The catalogue of assets is complete and pinned, and what it names is really there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from attnlib.data import archives, assets, sources
from attnlib.data.asset_list import Asset, Form
from attnlib.data.convert import CONVERTERS
from tests.asset_world import ROOT

NAMES = ("archives", "asset_list", "assets", "convert", "sources")
MINE = (
    *(f"attnlib/data/{name}.py" for name in NAMES),
    *(f"tests/attnlib/data/test_{name}.py" for name in (*NAMES, "assets_damage")),
    *("attnlib/data/assets.toml", "attnlib/files.py", "tests/asset_world.py"),
)


# --- the catalogue itself -------------------------------------------------------------------

WANTED = """
    bge-small-en bert-base-cased-ner distilbert-base-cased-tagger e5-small minilm-l6
    mpnet-base bert-uncased-tokenizer wiki-sample stsb-full msrpar
    rotten-tomatoes glove-50d spacy-en ud-ewt ud-gum ontogum framenet framenet-473 mrpc stsb
    sst2 qqp rte qnli mnli squad wiki-paragraphs bert-base-uncased bert-base-cased
    bert-large-uncased-whole-word-masking-finetuned-squad clark-reference kovaleva-reference
    pande-reference
"""
FORMS = [
    pytest.param(asset, form, id=f"{asset.name}-{index}")
    for asset in assets.known().values()
    for index, form in enumerate(asset.forms)
]


def test_the_catalogue_names_what_the_book_needs() -> None:
    assert set(assets.known()) == set(WANTED.split())


@pytest.mark.parametrize("asset", assets.known().values(), ids=lambda asset: asset.name)
def test_every_asset_says_licence_citation_and_size(asset: Asset) -> None:
    assert asset.kind in {"model", "dataset", "vectors", "parser"}
    assert asset.licence
    assert re.search(r"\b(19|20)\d\d\b|contributors", asset.citation)
    assert asset.bytes > 0


@pytest.mark.parametrize(("asset", "form"), FORMS)
def test_every_file_is_pinned_or_says_that_the_hub_vouches(asset: Asset, form: Form) -> None:
    for file in form.files + form.inputs:
        if file.sha256:
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        else:
            assert form.hub is not None
            assert file.verify == "hub-etag"
        archives.safe_path(Path("folder"), file.name)
    if form.hub:
        assert re.fullmatch(r"[0-9a-f]{40}|main", form.hub.revision)
        assert form.hub.repo_type in {"model", "dataset"}
    if form.hub and form.hub.revision == "main":
        assert "commit" in asset.note  # what is not pinned is said


@pytest.mark.parametrize(("asset", "form"), FORMS)
def test_every_file_can_come_from_somewhere(asset: Asset, form: Form) -> None:
    if form.packages:
        packages = {package.name for package in form.packages}
        for file in form.files:
            assert file.package in packages or (form.convert and not file.package)
        assert all(file.package in packages and file.member for file in form.inputs)
        assert not form.convert or form.convert in CONVERTERS
    assert form.mirror
    assert len({form.key for form in asset.forms}) == len(asset.forms)


def test_every_package_is_pinned() -> None:
    packages = {p for a in assets.known().values() for f in a.forms for p in f.packages}
    assert len(packages) == 15
    for package in packages:
        assert re.fullmatch(r"[0-9a-f]{64}", package.sha256)
        assert package.bytes > 0


def test_no_registry_and_no_machine_is_named() -> None:
    hosts = ["py" + "pi.org", "python" + "hosted", "ana" + "conda.org", "simple" + "/"]
    places = ["/wo" + "rk/", "/tm" + "p/", "/ro" + "ot/", "/ho" + "me/", "/op" + "t/"]
    for name in MINE:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not [word for word in hosts + places if word in text], name


# --- the real thing -------------------------------------------------------------------------


@pytest.mark.assets
@pytest.mark.parametrize(
    "name", ["minilm-l6", "bert-uncased-tokenizer", "stsb-full", "wiki-sample"]
)
def test_a_real_package_asset_is_whole(name: str) -> None:
    folder = assets.resolve(name)
    asset = assets.lookup(name)
    assets._check(asset, asset.forms[0], folder, full=True)


@pytest.mark.assets
def test_the_real_tokenizer_reads_text() -> None:
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(assets.resolve("bert-uncased-tokenizer"))("Heads attend.")
    assert ids["input_ids"] == [101, 4641, 5463, 1012, 102]


@pytest.mark.assets
def test_the_real_parser_loads_from_its_folder() -> None:
    import spacy

    parsed = spacy.load(assets.resolve("spacy-en"))("The cat ate the fish.")
    assert [token.dep_ for token in parsed] == ["det", "nsubj", "ROOT", "det", "dobj", "punct"]


@pytest.mark.mirror
def test_the_real_mirror_holds_what_the_catalogue_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.environ.get("ATTNLIB_MIRROR"):
        pytest.skip("ATTNLIB_MIRROR is not set")
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    names = [name for name, a in assets.known().items() if sources.in_mirror(a.forms[0])]
    assert names
    assets.fetch(names, progress=False)
    assert {row["name"] for row in assets.status(verify=True) if row["present"]} == set(names)
