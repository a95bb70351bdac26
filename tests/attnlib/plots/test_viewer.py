"""The head viewer holds the model's own weights, is small, harmless, and needs nothing else."""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnlib.attention.encode import batches, tokenized
from attnlib.attention.words import Units
from attnlib.data.corpora import load_corpus
from attnlib.data.examples import Segment
from attnlib.errors import AttnlibError, BadValue, TooLong, UnknownName
from attnlib.measuring import reading as measure_reading
from attnlib.measuring.reading import LEVELS, POWER, Reading, largest_error, packed
from attnlib.measuring.stream import measure
from attnlib.models import Encoder, load_encoder
from attnlib.plots.viewer import METRICS, View, live, script, view
from bookkit.pages.site import external_loads
from tests.families import SENTENCES, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

PAIR = ("The engineers closed the bridge.", "They took the ferry, so it rained.")
NASTY = '<script>alert(1)</script> "quoted" & it\'s </figure> $x$'


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


def own_maps(folder: Path, first: str, second: str | None = None) -> np.ndarray:
    """(layer, head, query, key) as the library itself gives them, from nothing of ours."""
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(first, second, return_tensors="pt")
    with torch.no_grad():
        maps = model(**inputs, output_attentions=True).attentions
    return np.stack([layer[0].double().numpy() for layer in maps])


def kept_weights(reading: Reading) -> np.ndarray:
    """The maps (layer, head, query, key) as the page shows them."""
    n = len(reading.tokens)
    raw = [zlib.decompress(base64.b64decode(sheet)) for sheet in reading.sheets]
    maps = np.stack([np.frombuffer(one, np.uint8) for one in raw])
    by_key = maps.reshape(reading.n_layers, reading.n_heads, n, n)
    return (by_key.swapaxes(-1, -2) / reading.levels) ** (1 / POWER)


def gap(reading: Reading, maps: np.ndarray) -> float:
    return float(np.abs(kept_weights(reading) - maps).max())


class Tags(HTMLParser):
    """Every tag a browser would make of a page, and the data of the viewer."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def data(self) -> dict[str, Any]:
        return json.loads(self.all("figure")[0]["data-view"] or "")


# Weights


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta", "mpnet"])
def test_kept_weights_are_those_of_the_library(family: str, folders: Callable[[str], Path]) -> None:
    encoder = load_encoder(folders(family), device="cpu")
    for text in (SENTENCES[0], SENTENCES[3], PAIR):
        (reading,) = view(encoder, text).readings[0]
        maps = own_maps(folders(family), *(text if isinstance(text, tuple) else (text,)))
        assert kept_weights(reading).shape == maps.shape
        assert gap(reading, maps) <= largest_error(reading.levels) + 1e-5
        assert len(reading.tokens) == maps.shape[-1]


@pytest.mark.parametrize("wrong", ["transposed", "heads swapped", "layers swapped", "shifted"])
def test_wrong_maps_are_noticed(wrong: str, bert: Encoder, folders: Callable[[str], Path]) -> None:
    maps = own_maps(folders("bert"), SENTENCES[0])
    bad = {
        "transposed": maps.swapaxes(-1, -2),
        "heads swapped": maps[:, ::-1],
        "layers swapped": maps[::-1],
        "shifted": np.roll(maps, 1, axis=-1),
    }[wrong]
    (reading,) = view(bert, SENTENCES[0]).readings[0]
    assert gap(reading, bad) > 10 * largest_error(reading.levels)


@pytest.mark.parametrize("levels", LEVELS)
def test_the_stated_error_is_a_bound(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_reading, "LEVELS", (levels,))
    draw = np.random.default_rng(0)
    maps = np.concatenate([draw.dirichlet(np.full(40, 0.05), size=(1, 6, 40)) for _ in range(3)])
    maps[0, 0] = np.linspace(0, 1, 1600).reshape(40, 40)
    found, sheets = packed(maps)
    reading = Reading("m", ("a",) * 40, (), (), {}, found, sheets, 6)
    assert found == levels
    assert 0.9 * largest_error(levels) < gap(reading, maps) <= largest_error(levels)


def test_what_is_too_heavy_is_kept_more_coarsely(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = np.random.default_rng(0).dirichlet(np.full(64, 0.5), size=(2, 3, 64))
    sizes = []
    for budget in (10**6, 14_000, 8_000, 1):
        monkeypatch.setattr(measure_reading, "HEAVIEST", budget)
        levels, sheets = packed(maps)
        sizes.append((levels, sum(map(len, sheets))))
        assert sum(map(len, sheets)) <= budget or levels == LEVELS[-1]
    assert [levels for levels, _ in sizes] == sorted((levels for levels, _ in sizes), reverse=True)
    assert sizes[0][0] == LEVELS[0] and sizes[-1][0] == LEVELS[-1]


def test_other_texts_of_the_page_change_nothing(bert: Encoder) -> None:
    alone = view(bert, SENTENCES[5]).readings[0][0]
    among = view(bert, [SENTENCES[4], SENTENCES[5]]).readings[1][0]
    assert alone.tokens == among.tokens and alone.sheets == among.sheets
    for key in METRICS:
        np.testing.assert_array_equal(alone.values[key], among.values[key])


def test_words_are_those_of_the_word_maps(bert: Encoder) -> None:
    example = Segment("1", *PAIR)
    (reading,) = view(bert, example).readings[0]
    (encoded,) = tokenized([example], bert)
    (batch,) = batches([encoded], bert)
    unit, words = np.array(reading.unit), batch.word[0].numpy()
    assert len(set(unit)) == len(reading.units) == words.max() + 1 + (words < 0).sum()
    for u in set(unit):  # the pieces of a unit are one word, or one special token
        mine = words[unit == u]
        assert len(set(mine)) == 1 and (mine[0] >= 0 or len(mine) == 1)
    # The arithmetic of the page, in numpy, against the one of attnlib.words.
    one = np.eye(len(reading.units))[unit]
    weights = kept_weights(reading)
    ours = (one / one.sum(0)).T @ weights @ one
    theirs = Units(batch).maps(torch.tensor(weights.reshape(1, -1, *2 * [len(unit)])))
    special = np.array([words[unit == u][0] < 0 for u in range(len(reading.units))])
    kept = np.flatnonzero(~special)
    between = theirs[0, :, 2:, 2:].numpy().reshape(3, 4, len(kept), len(kept))
    np.testing.assert_allclose(ours[..., kept, :][..., kept], between, atol=1e-5)
    sep = np.flatnonzero(special)[1:]
    to_sep = theirs[0, :, 2:, 1].numpy().reshape(3, 4, -1)
    np.testing.assert_allclose(ours[..., kept, :][..., sep].sum(-1), to_sep, atol=1e-5)


def test_names_are_readable(folders: Callable[[str], Path]) -> None:
    bert = load_encoder(folders("bert"), device="cpu")
    (reading,) = view(bert, "The engineers waited.").readings[0]
    assert reading.units == ("[CLS]", "the", "engineers", "waited", ".", "[SEP]")
    assert reading.tokens[:3] == ("[CLS]", "the", "engineers")
    assert "wait" in reading.tokens and "##ed" in reading.tokens
    roberta = load_encoder(folders("roberta"), device="cpu")
    (reading,) = view(roberta, "Her café rained.").readings[0]
    assert reading.units == ("<s>", "Her", "café", "rained", ".", "</s>")
    assert not any("Ġ" in token for token in reading.tokens)


# Numbers


def test_metrics_are_those_of_the_measure_command(bert: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(SENTENCES[0])
    found = measure(bert, path, METRICS, max_length=66)
    data = Tags(view(bert, SENTENCES[0])._repr_html_()).data()
    for metric, values in zip(METRICS, data["samples"][0]["readings"][0]["values"], strict=True):
        ours = np.array(values, dtype=float)
        np.testing.assert_allclose(ours, found.grid(metric).ravel(), atol=1e-5, err_msg=metric)
    assert [m["share"] for m in data["metrics"]] == [True] * 7 + [False]


def test_the_first_head_is_a_telling_one(bert: Encoder) -> None:
    one = view(bert, SENTENCES[0])
    values = one.readings[0][0].values
    best = np.maximum(values["mass_to_previous"], values["mass_to_next"])
    assert Tags(one._repr_html_()).data()["models"][0]["open"] == best.argmax()
    named = view(bert, SENTENCES[0], head="2-3")
    assert Tags(named._repr_html_()).data()["models"][0]["open"] == 6
    bare = view(bert, SENTENCES[0], metrics=["entropy"])
    assert Tags(bare._repr_html_()).data()["models"][0]["open"] == (
        bare.readings[0][0].values["entropy"].argmax()
    )


# The fragment


def test_it_stands_alone(bert: Encoder, tmp_path: Path) -> None:
    page = view(bert, [SENTENCES[0], PAIR]).save(tmp_path / "view.html")
    assert external_loads(tmp_path) == []
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and 'lang="en"' in text
    tags = Tags(text)
    assert len(tags.all("script")) == 1 and len(tags.all("style")) == 2
    assert not any(attrs.get("id") for _, attrs in tags.tags)
    code = script()
    assert "</" not in code and "<!--" not in code, "it would end the script of the page"
    assert not re.search(r"\b(fetch|XMLHttpRequest|import|eval|innerHTML|define|require)\b", code)


def test_tokens_are_data_and_never_markup(bert: Encoder) -> None:
    page = view(bert, NASTY).page()
    tags = Tags(page)
    assert len(tags.all("script")) == 1 and len(tags.all("figure")) == 1
    told = tags.data()["samples"][0]
    assert told["title"] == NASTY
    assert "<" in told["readings"][0]["pieces"] and "&" in told["readings"][0]["words"]
    assert NASTY not in page


def test_the_same_input_gives_the_same_page(bert: Encoder) -> None:
    assert view(bert, PAIR).page() == view(bert, PAIR).page()


def test_a_view_is_whole_or_not_there(
    bert: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "view.html"
    target.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadValue, match=r"cannot be written.*No space"):
        view(bert, SENTENCES[0]).save(target)
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_two_models_read_with_their_own_tokens(
    bert: Encoder, folders: Callable[[str], Path]
) -> None:
    other = load_encoder(folders("roberta"), device="cpu")
    both = view(bert, [SENTENCES[0], SENTENCES[1]], beside=other, head="3-4")
    data = Tags(both._repr_html_()).data()
    assert [m["name"] for m in data["models"]] == ["bert", "roberta"]
    assert [[len(r["pieces"]) for r in s["readings"]] for s in data["samples"]] == [
        [len(r.tokens) for r in readings] for readings in both.readings
    ]
    assert len(Tags(both._repr_html_()).all("i")) == 2 * (3 + 3)


# Errors


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"texts": "  "}, r"text 1 is empty; expected at least one word"),
        ({"texts": ["It rained.", ""]}, r"text 2 is empty"),
        ({"texts": []}, r"there is no text"),
        ({"texts": "\u200b"}, r"nothing the model can read|is empty"),
        ({"texts": SENTENCES[6] * 2}, r"text 1 has \d+ pieces, the limit is 66"),
        ({"max_length": 4}, r"text 1 has \d+ pieces, the limit is 4 .*reads up to 66"),
        ({"max_length": 1000}, r"max-length is 1000; expected 3 to 66"),
        ({"on_long": "skip"}, r"on-long is 'skip'; expected one of error, truncate"),
        ({"metrics": ["mass_to_prevous"]}, r"Did you mean 'mass_to_previous'"),
        ({"metrics": ["js_divergence"]}, r"expected one number per head"),
        ({"metrics": ["column_mass"]}, r"has the axes head, key; expected one number per head"),
        ({"head": "0-3"}, r"'0-3' names no head; expected layer-head from 1"),
        ({"head": "4-1"}, r"head 4-1 is not in .* layers 1 to 3 and heads 1 to 4"),
    ],
)
def test_wrong_input_is_named(given: dict[str, Any], said: str, bert: Encoder) -> None:
    told = {"texts": SENTENCES[0]} | given
    with pytest.raises((BadValue, TooLong, UnknownName), match=said):
        view(bert, **told)


def test_a_long_text_can_be_cut(bert: Encoder) -> None:
    (reading,) = view(bert, SENTENCES[6], max_length=9, on_long="truncate").readings[0]
    assert len(reading.tokens) == 9 and reading.tokens[-1] == "[SEP]"


# The command


Run = Callable[..., tuple[int, str, str]]


def test_the_command_writes_a_page(
    run: Run, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    out = tmp_path / "view.html"
    words = ("view", folders("bert"), PAIR[0], "--pair", PAIR[1], "--out", out, "--device", "cpu")
    code, _, err = run(*words)
    assert code == 0 and "open it in any browser" in " ".join(err.split())
    data = Tags(out.read_text(encoding="utf-8")).data()
    assert data["samples"][0]["title"] == " ‖ ".join(PAIR)
    more = ("view", folders("bert"), *SENTENCES[:3], "--beside", folders("mpnet"), "--out", out)
    code, _, _ = run(*more, "--metric", "entropy", "--metric", "mass_to_comma", "--device", "cpu")
    data = Tags(out.read_text(encoding="utf-8")).data()
    assert code == 0 and len(data["samples"]) == 3 and len(data["models"]) == 2
    assert [m["chip"] for m in data["metrics"]] == ["entropy", "comma"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["It rained.", "--out", "view.pdf"], "ends in '.pdf'; expected .html"),
        (["It rained.", "--out", "gone/view.html"], "its folder does not exist"),
        (["It rained.", "--out", "."], "expected .html"),
        (["It rained.", "--metric", "entopy"], "Did you mean 'entropy'"),
        (["a", "b", "--pair", "c"], "2 texts and 1 pairs were given"),
    ],
)
def test_the_command_says_what_is_wrong_before_any_work(
    words: list[str], said: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("view", "no-such-model", *words)
    assert code == 2 and out == "" and said in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# Live


def test_a_typed_text_is_read_at_once(bert: Encoder) -> None:
    box = live(bert, text="It rained.")
    first, second, shown = box.children

    def told() -> dict[str, Any]:
        (output,) = shown.outputs
        return Tags(output["data"]["text/html"]).data()["samples"][0]

    assert told()["title"] == "It rained."
    assert shown.outputs[0]["data"]["text/html"] == view(bert, "It rained.")._repr_html_()
    first.value = "The old bridge was closed."
    assert "bridge" in told()["title"]
    second.value = "We took the ferry."
    assert told()["title"].endswith("‖ We took the ferry.")
    first.value = ""
    assert shown.outputs[0]["data"] == {
        "text/plain": "text 1 is empty; expected at least one word."
    }
    first.value = "so " * 80
    assert "the limit is 66" in shown.outputs[0]["data"]["text/plain"]
    first.value = "Closed."
    assert told()["title"].startswith("Closed.")


def test_live_without_widgets_is_said(bert: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ipywidgets", None)
    with pytest.raises(AttnlibError, match="needs ipywidgets"):
        live(bert)


# A real model


@pytest.mark.assets
@pytest.mark.slow
def test_a_real_page_is_light(e5_small: Encoder) -> None:
    """144 heads on 128 tokens of Wikipedia: below 1.5 MB, everything included."""
    corpus = load_corpus("wiki-sample", limit=8, tokenizer=e5_small.tokenizer, max_length=128)
    one = view(e5_small, max(corpus.examples, key=lambda e: len(str(e.parts))), max_length=128)
    (reading,) = one.readings[0]
    assert len(reading.tokens) == 128 and kept_weights(reading).shape == (12, 12, 128, 128)
    assert reading.levels == 255
    assert len(one._repr_html_().encode()) < 1_500_000
    assert isinstance(one, View) and one.page().count("data-maps") >= 12
