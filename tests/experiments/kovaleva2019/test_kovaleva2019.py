"""The experiments on Kovaleva 2019: numbers by hand, planted effects, and every claim served."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from attnlib.data.corpora import Corpus
from attnlib.data.examples import FrameExample, Span
from attnlib.data.tasks import TASKS
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.bootstrap import REPLICATES
from attnlib.measuring.head_tables import head_rows
from attnlib.models import Encoder, load_encoder
from bookkit.claims import load_paper
from experiments.kovaleva2019 import disabling, frames, patterns, tuning, words
from experiments.kovaleva2019.patterns import PATTERNS, LabelledMap, class_f1, confusion
from experiments.shared.sortings import kappa
from experiments.shared.training.finetune import finetuned
from tests.experiments.shared.training.test_finetune import SHORT, planted
from tests.families import folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

NAN = math.nan


# --- Table 1 --------------------------------------------------------------------------------------


def answers(labels: list[float], given: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"answer": given, "label": labels})


def test_scores_of_starts_by_hand() -> None:
    labels = [1.0, 1, 1, 0]
    tables = {
        "untrained": answers(labels, [0, 0, 0, 0]),
        "frozen": answers(labels, [1, 0, 0, 0]),
        "random": answers(labels, [0, 0, 0, 1]),
        "pretrained": answers(labels, labels),
    }
    found = tuning.starts_overview(*tables.values(), tasks=["mrpc"], starts=list(tables))
    value = {name: one.value for name, one in found.findings.items()}
    assert value["tuning.mrpc.pretrained"] == 100.0 and value["tuning.mrpc.random"] == 0.0
    assert value["tuning.mrpc.frozen"] == pytest.approx(50.0)  # one of three: F1 = 2 / (2 + 2)
    always_yes = 100 * 6 / 7  # precision 3/4, recall 1
    assert value["tuning.mrpc.above_constant"] == pytest.approx(100 - always_yes)
    assert value["tuning.mean_gain"] == 75.0  # in accuracy: 100 - 25
    assert value["tuning.random_worse"] == 1.0 and value["tuning.random_below_frozen"] == 1.0
    rows = found.table.set_index(["start", "metric"])
    assert rows.loc[("untrained", "accuracy"), "value"] == 25.0
    assert rows.loc[("constant", "f1"), "value"] == pytest.approx(always_yes)


def test_a_constant_score_has_no_correlation() -> None:
    table = answers([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 5.0])
    found = tuning.starts_overview(*[table] * 4, tasks=["stsb"], starts=list(tuning.STARTS))
    assert found.findings["tuning.stsb.above_constant"].value == pytest.approx(100.0)


def test_differences_of_starts_are_paired() -> None:
    """Two models that answer alike differ by nothing in every draw, however few the inputs."""
    rng = np.random.default_rng(0)
    table = answers(rng.integers(0, 2, 50).tolist(), rng.integers(0, 2, 50).tolist())
    found = tuning.starts_overview(*[table] * 4, tasks=["rte"], starts=list(tuning.STARTS))
    below = found.findings["tuning.rte.random_below"]
    assert (below.value, below.low, below.high) == (0.0, 0.0, 0.0)
    assert (
        found.findings["tuning.rte.pretrained"].low < found.findings["tuning.rte.pretrained"].high
    )


# --- disabling ------------------------------------------------------------------------------------


def swept(n: int, seed: int = 0, *, good: float = 0.0, bad: float = 0.0) -> pd.DataFrame:
    """Answers of a model that is right in 7 of 10 inputs; one head helps when off, one hurts."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    whole = np.where(rng.random(n) < 0.7, labels, 1 - labels)
    columns = {"label": labels, "whole": whole}
    for layer in range(1, 5):
        for head in range(1, 5):
            flip = rng.random(n) < 0.01
            columns[f"{layer}-{head}"] = np.where(flip, 1 - whole, whole)
    wrong = whole != labels
    columns["2-3"] = np.where(wrong & (rng.random(n) < good), labels, whole)
    columns["4-1"] = np.where(~wrong & (rng.random(n) < bad), 1 - labels, whole)
    for layer in range(1, 5):
        columns[f"layer {layer}"] = whole
    return pd.DataFrame(columns)


def test_planted_heads_are_found_and_no_others() -> None:
    table = swept(600, good=0.3, bad=0.3)
    found = disabling.disabling_effects(table, task="rte")
    judged = disabling.controlled([found.table])
    heads = judged[judged["head"] > 0].set_index("name")
    assert heads.index[heads["q_gain"] < 0.05].tolist() == ["2-3"]
    assert heads.index[heads["q_loss"] < 0.05].tolist() == ["4-1"]
    right = (table["2-3"] == table["label"]).mean() - (table["whole"] == table["label"]).mean()
    assert heads.loc["2-3", "change"] == pytest.approx(100 * right)
    assert heads.loc["2-3", "low"] > 0 and heads.loc["4-1", "high"] < 0
    overview = disabling.disabling_overview(found.table, facts={"rte": found.facts})
    row = overview.table.iloc[0]
    assert (row["best_head"], row["gains"], row["losses"]) == ("2-3", 1, 1)
    most = overview.findings["disabling.most_best_gain"]
    assert (most.low, most.high) == tuple(heads.loc["2-3", ["low", "high"]])
    assert overview.findings["disabling.significant_gains"].value == 1
    assert overview.findings["disabling.rte_first_layer"].value == 0


def test_the_best_of_many_idle_heads_gains_only_where_it_was_chosen() -> None:
    """The trap that the paper falls into: 16 heads that do nothing, and the best looks good."""
    gains, clean = [], []
    for seed in range(12):
        facts = disabling.disabling_effects(swept(200, seed), task="rte").facts
        gains.append(facts["chosen_gain"][0])
        clean.append(facts["clean_gain"][0])
    assert np.mean(gains) > 0.5 > 0.1 > np.mean(clean)


def test_true_losses_lend_no_significance_to_gains() -> None:
    """Fifteen heads that surely hurt, and one whose small gain alone is not significant."""
    p = [1e-6] * 15 + [0.03]
    table = pd.DataFrame(
        {"task": "rte", "name": "x", "layer": 1, "head": range(1, 17), "p": p}
        | {"change": [-5.0] * 15 + [1.0], "low": 0.0, "high": 0.0}
    )
    found = disabling.controlled([table])
    assert (found["q_loss"] < 0.05).sum() == 15 and (found["q_gain"] < 0.05).sum() == 0


def test_small_p_values_are_refined_below_what_144_tests_need() -> None:
    table = swept(400, good=0.5, bad=0.0)
    found = disabling.disabling_effects(table, task="mrpc")  # F1: p by exchanging answers
    p = found.table.set_index("name")["p"]
    assert p["2-3"] < 0.05 / 144


def test_frame_heads_are_the_strongest_of_the_frames_table() -> None:
    scores = head_rows(mean=np.arange(16.0).reshape(4, 4))  # 4-4 and 4-3 are strongest
    effects = disabling.disabling_effects(swept(300, bad=0.4), task="rte").table
    found = disabling.frame_heads_disabled(scores, effects, tasks=["rte"])
    assert found.facts["heads"] == ["4-4", "4-3"] and set(found.table["name"]) == {"4-4", "4-3"}
    loss = found.findings["disabling.frame_heads_loss"]
    assert loss.value == pytest.approx(-found.table["change"].min()) and loss.low <= loss.high
    hurt = scores.assign(
        mean=scores["mean"].where(~((scores["layer"] == 4) & (scores["head"] == 1)), 99)
    )
    found = disabling.frame_heads_disabled(hurt, effects, tasks=["rte"])
    assert found.findings["disabling.frame_heads_significant"].value == 1


# --- frames ---------------------------------------------------------------------------------------


def frame(words: str, target: tuple[int, int], *elements: tuple[int, int]) -> FrameExample:
    spans = tuple(("E", Span(*one)) for one in elements)
    core = (True,) * len(spans)
    return FrameExample(words, tuple(words.split()), "F", Span(*target), spans, core)


@pytest.mark.parametrize(
    ("example", "kept"),
    [
        (frame("he was becoming agitated", (3, 4), (0, 1)), True),
        (frame("he was agitated", (2, 3), (0, 1)), True),  # two words apart
        (frame("he agitated her", (1, 2), (0, 1)), False),  # neighbours
        (frame("the very old man was agitated", (5, 6), (0, 4)), False),  # an element of four
        (frame("a b c d e f g h i j k l m", (12, 13), (0, 1)), False),  # 13 words
        (frame("no element here", (0, 1)), False),
    ],
)
def test_the_filter_of_the_paper(example: FrameExample, kept: bool) -> None:
    assert frames.passes_filter(example) is kept


def framed(*examples: FrameExample) -> Corpus:
    return Corpus("own", "frame", examples, {}, "own", "own")


def test_a_sentence_counts_once_and_none_at_all_is_refused() -> None:
    good = frame("he was becoming agitated", (3, 4), (0, 1))
    twice = framed(good, replace(good, id="again"))
    assert len(frames.filtered(twice)) == len(frames.chosen_frames(twice)) == 1
    assert len(frames.chosen_frames(replace(twice, name="framenet-473"))) == 2  # theirs as it is
    with pytest.raises(CorpusError, match="no sentence"):
        frames.filtered(twice, but=framed(good))
    with pytest.raises(CorpusError, match="no sentence of own passes"):
        frames.filtered(framed(frame("no element here", (0, 1))))


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


def test_frame_scores_have_a_row_per_head_and_their_claims(bert: Encoder) -> None:
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "the", "dog", "saw", "it"]
    examples = [frame(" ".join(words[i:] + words[:i]), (3, 4), (0, 1), (6, 8)) for i in range(8)]
    found = frames.frame_scores(framed(*examples), encoder=bert)
    assert len(found.table) == bert.n_layers * bert.n_heads
    assert (found.table["mean"] >= found.table["control"] - 1).all()
    assert np.allclose(found.table["lead"], found.table["mean"] - found.table["control"])
    passing = sum(map(frames.passes_filter, examples))
    assert found.findings["frames.sentences"].value == passing == found.facts["passing"]
    assert (
        "other.best_lead"
        in frames.frame_scores(framed(*examples), encoder=bert, name="other").findings
    )


def test_layers_are_compared_with_the_authors_map(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = np.arange(144.0).reshape(12, 12)
    theirs = head_rows(frames=grid, cosine=-grid)
    monkeypatch.setattr(frames, "authors_map", lambda: theirs)
    ours = head_rows(mean=2 * grid + 1)
    found = frames.beside_authors(ours, ours, columns=["mean:frames", "mean:cosine"])
    assert found.findings["frames.layer_correlation"].value == pytest.approx(1)
    assert found.findings["cosine.authors_layers"].value == pytest.approx(-1)


def test_a_column_of_ours_may_have_the_name_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = np.arange(144.0).reshape(12, 12)
    monkeypatch.setattr(frames, "authors_map", lambda: head_rows(cosine=grid))
    ours = head_rows(cosine=grid**2)
    found = frames.beside_authors(ours, columns=["cosine:cosine"])
    assert found.findings["cosine.authors_layers"].value == pytest.approx(1)
    assert found.table["rho_heads"].to_list() == pytest.approx([1.0] * 12)


# --- cosines --------------------------------------------------------------------------------------


def test_the_last_two_layers_by_hand() -> None:
    late = pd.DataFrame([[0.9, 0.8, 0.3, 0.4]] * 5)
    early = pd.DataFrame([[0.1, 0.8, 0.3, 0.4]] * 5)
    found = tuning.cosine_overview(late, early, tasks=["rte", "qqp"])
    assert found.findings["cosine.last_two"].value == 0.5
    wanted = np.mean([spearmanr(range(4), row).statistic for row in (late.iloc[0], early.iloc[0])])
    assert found.findings["cosine.layer_correlation"].value == pytest.approx(wanted)


# --- links ----------------------------------------------------------------------------------------


def test_partial_correlation_removes_what_a_third_explains() -> None:
    rng = np.random.default_rng(0)
    third = rng.normal(size=2000)
    one, other = (third + rng.normal(size=2000) for _ in range(2))
    assert spearmanr(one, other).statistic > 0.4
    assert abs(words.partial_rank(one, other, third)) < 0.06
    assert math.isnan(words.partial_rank(third, other, third))


def test_partial_correlation_by_residuals() -> None:
    """The textbook's other way: correlate what is left of two rankings beyond the third."""
    from scipy.stats import rankdata

    rng = np.random.default_rng(1)
    given = rng.normal(size=(3, 60))
    a, b, c = (rankdata(row) for row in given)
    line = np.stack([np.ones(60), c], axis=1)
    left = [y - line @ np.linalg.lstsq(line, y, rcond=None)[0] for y in (a, b)]
    assert words.partial_rank(*given) == pytest.approx(np.corrcoef(*left)[0, 1])


def test_sep_is_first_also_where_it_is_one_with_cls() -> None:
    def read(**means: float) -> pd.DataFrame:
        return pd.DataFrame({"kind": list(means), "mean": list(means.values())})

    tables = [
        read(cls=0.3, sep=0.3 - 1e-7, noun=0.1, punctuation=0.2),
        read(noun=0.4, sep=0.3, punctuation=0.35),
        read(sep=0.3, punctuation=0.31),
    ]
    found = words.cls_overview(*tables, tasks=["stsb", "rte", "qnli"])
    assert found.table["sep_first"].tolist() == [True, False, False]
    assert found.findings["cls.sep_first"].value == pytest.approx(1 / 3)
    assert found.findings["cls.punctuation_first"].value == pytest.approx(2 / 3)


def test_copies_and_costs_by_hand() -> None:
    copy = np.array([[0.4, 0.1], [0.2, 0.3]])
    copies = head_rows(copy=copy, other=np.full((2, 2), 0.1), ratio=copy / 0.1)
    change = pd.DataFrame(
        {"layer": [1, 1, 2, 2, 1], "head": [1, 2, 1, 2, 0], "change": [-3.0, 1.0, 0.0, -2.0, -50.0]}
    )
    found = words.repeats_overview(copies, change)
    assert found.facts["needed"] == "1-1" and found.findings["repeats.best_ratio"].value == 4.0
    assert found.findings["repeats.cost_correlation"].value == pytest.approx(1.0)


# --- patterns -------------------------------------------------------------------------------------


def judged(pairs: list[tuple[str, str]]) -> pd.DataFrame:
    """Labelled maps, each of a head of its own."""
    table = pd.DataFrame(pairs, columns=["label", "network"])
    return table.assign(model="m", layer=range(len(pairs)), head=1)


def counted(*shares: tuple[int, ...]) -> pd.DataFrame:
    """Inputs of one layer; so many heads of each pattern."""
    table = pd.DataFrame(shares, columns=list(PATTERNS))
    return table.assign(input=range(len(shares)), layer=1)


def test_shares_are_corrected_by_what_the_network_mistakes() -> None:
    """Of vertical maps the network calls a third heterogeneous; the true shares come back."""
    v, d, m, b, h = PATTERNS
    right = [(name, name) for name in (d, m, b, h)] * 200
    pairs = right + [(v, v)] * 400 + [(v, h)] * 200
    found = patterns.pattern_overview(
        judged(pairs),
        counted(*[(4, 2, 0, 0, 6)] * 30),  # of 6 vertical maps 2 are called heterogeneous
        counted(*[(4, 2, 0, 4, 2)] * 30),
        tasks=["sst2", "rte"],
        pairs=[False, True],
    )
    rows = found.table[found.table["layer"] == 0].set_index(["task", "pattern"])
    assert rows.loc[("sst2", h), "called"] == pytest.approx(50.0)
    assert rows.loc[("sst2", v), "share"] == pytest.approx(50.0, abs=0.5)
    assert rows.loc[("sst2", h), "share"] == pytest.approx(100 * 4 / 12, abs=0.5)
    interval = rows.loc[("sst2", h), ["low", "high"]]
    assert interval["low"] < 100 * 4 / 12 < interval["high"]  # though all inputs are alike
    assert found.findings["patterns.block_lead"].value == pytest.approx(100 * 4 / 12, abs=0.5)
    assert found.findings["patterns.heterogeneous_least"].value < 1.0


def test_heads_are_drawn_whole() -> None:
    maps = pd.DataFrame({"model": list("aabccc"), "layer": 1, "head": 2})
    draws = patterns.drawn_heads(maps, seed=0)
    assert draws[0].tolist() == [0, 1, 2, 3, 4, 5] and len(draws) == 1 + REPLICATES
    for at in draws[1:50]:
        counts = np.bincount(at, minlength=6)
        assert counts[0] == counts[1] and counts[3] == counts[4] == counts[5]


def test_a_task_trained_otherwise_brings_no_labelled_maps(bert: Encoder) -> None:
    recipe = {"epochs": 3, "batch_size": 32, "learning_rate": 1e-4, "max_length": 128}
    named = replace(bert, name="e5-small")
    whole = Corpus("mrpc:train", "task", (None,) * 3668, {}, "", "")  # type: ignore[arg-type]
    known = patterns.known_maps([], named, {"mrpc": recipe}, [whole])
    assert {row.task for row in known} == {"mrpc"}
    with pytest.raises(BadValue, match="was labelled"):
        patterns.known_maps([], named, {"mrpc": {**recipe, "epochs": 1}}, [whole])
    part = replace(whole, examples=whole.examples[:9])
    with pytest.raises(BadValue, match="was labelled"):
        patterns.known_maps([], named, {"mrpc": recipe}, [part])


def test_a_network_taught_nonsense_is_no_better_than_chance(
    monkeypatch: pytest.MonkeyPatch, bert: Encoder
) -> None:
    """The whole experiment on drawn pictures: labels learnt, shuffled labels not."""
    import torch

    from tests.experiments.kovaleva2019.test_patterns import planted_pictures

    shades, labels = planted_pictures(200)
    rows = [
        LabelledMap(f"m{i}", "m", "", "toy:dev", "0", i, 1, i % 2, "", "", "")
        for i in range(len(labels))
    ]
    given = (rows, shades, labels, labels.numpy())
    monkeypatch.setattr(patterns, "labelled_pictures", lambda *a, **k: given)
    found = patterns.pattern_network(encoder=bert, recipes={}, models=[], labels="x", epochs=15)
    assert found.findings["rule.macro"].value == pytest.approx(1.0)
    assert found.findings["network.f1"].value > 0.7 > 0.5 > found.findings["shuffled.macro"].value
    assert found.findings["network.f1_over_shuffled"].value > 2
    assert torch.is_tensor(shades)


def test_scores_of_confusions_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import cohen_kappa_score, f1_score

    rng = np.random.default_rng(0)
    label, told = rng.integers(0, 4, (2, 90))  # the fifth class never occurs
    grid = confusion(label, told)
    wanted = f1_score(label, told, labels=range(5), average=None, zero_division=np.nan)
    assert np.allclose(class_f1(grid), wanted, equal_nan=True) and math.isnan(class_f1(grid)[4])
    assert kappa(grid[None])[0] == pytest.approx(cohen_kappa_score(label, told))


def test_labels_have_their_kappa_and_every_class() -> None:
    found = patterns.label_counts(labels="digest")
    assert found.table["n"].sum() == found.facts["maps"] >= 400
    own = found.findings["labels.kappa"]
    assert own.low < own.value < own.high <= 1
    alike = found.facts["alike"] / found.facts["twice"]
    assert own.value < alike  # part of the agreement is luck


def test_maps_of_unknown_models_are_refused(bert: Encoder) -> None:
    with pytest.raises(BadValue, match="no map of gpt was labelled"):
        patterns.known_maps(["gpt"], bert, {}, [])


# --- everything on a tiny model, and all claims ---------------------------------------------------

RECIPE = {**vars(SHORT)}


def test_experiments_on_a_tiny_model(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ATTNLIB_CACHE", str(tmp_path))
    train, test = planted(40), planted(12, seed=3)
    options: Any = {"encoder": bert, "task": "sst2", "recipe": RECIPE}
    model = finetuned(bert, train, "sst2", recipe=SHORT)
    trained = tuning.start_answers(train, test, **options, start="pretrained")
    assert np.array_equal(trained.table["answer"], model.predictions(test.examples))
    plain = tuning.start_answers(train, test, **options, start="untrained")
    assert len(plain.table) == 12 and "steps" not in plain.facts
    with pytest.raises(BadValue, match="start"):
        tuning.start_answers(train, test, **options, start="half")
    swept = disabling.disabled_answers(train, test, **options)
    n_variants = bert.n_layers * bert.n_heads + bert.n_layers
    assert swept.table.shape == (12, 2 + n_variants)
    assert np.array_equal(swept.table["whole"], trained.table["answer"])
    found = tuning.map_cosines(train, test, **options)
    assert found.table["cosine"].between(0, 1 + 1e-9).all()
    layers = found.table.groupby("layer")["cosine"].mean()
    assert np.allclose(found.facts["layers"][0], layers, atol=1e-5)


def test_every_claim_has_a_measure_that_some_experiment_makes() -> None:
    """All names in the claims file are written in the package."""
    package = Path(frames.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in package.glob("*.py"))
    for claim in load_paper("kovaleva2019").claims:
        for name in {claim.measure, claim.phenomenon.measure or claim.measure}:
            kind, _, rest = name.partition(".")
            if kind == "tuning" and rest.count("."):
                task, rest = rest.split(".")
                assert task in TASKS
            assert any(f'{start}{rest}"' in source for start in (f'"{kind}.', '"', "}.")), name


def test_what_survives_control_is_what_the_overview_counts() -> None:
    effects = disabling.disabling_effects(swept(400, good=0.4, bad=0.4), task="rte")
    gains = disabling.disabling_overview(effects.table, facts={"rte": dict(effects.facts)}).table
    assert gains[["gains", "losses", "n_heads"]].sum().tolist() == [1, 1, 16]
    assert gains.loc[0, "best_head"] == "2-3"
    judged = disabling.controlled([effects.table])
    sure = (judged["q_gain"] < 0.05) | (judged["q_loss"] < 0.05)
    assert set(judged.loc[sure, "name"]) == {"2-3", "4-1"}
    layers = judged.loc[judged["head"] == 0, "name"]
    assert layers.tolist() == [f"layer {n}" for n in range(1, 5)]


def test_links_that_are_positions() -> None:
    rng = np.random.default_rng(0)
    near = rng.random((3, 4))
    columns = {"near": near, "subject": near**2, "pronoun": rng.random((3, 4))}
    for name in ("subject", "pronoun"):
        columns |= {f"{name}_lead": rng.random((3, 4)), f"{name}_q": np.full((3, 4), 0.01)}
    found = words.link_overview(head_rows(**columns), tasks=["sst2"])
    shown = found.table.set_index("link")
    assert shown.loc["subject", "diagonal"] == pytest.approx(1.0)
    assert math.isnan(shown.loc["subject", "other_given_near"])
    assert found.findings["tokens.subject_beyond_distance"].value == 100.0


def test_negations_by_letters_are_counted_beside_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnlib.data.examples import ParsedText

    def parsed(text: str) -> ParsedText:
        words = tuple(text.split())
        n = len(words)
        return ParsedText(text, words, None, 0, None, (-1,) * n, ("dep",) * n, ("X",) * n)

    texts = ("go north", "not now", "hello", "no way", "a note , nor this", "Not me")
    corpus = Corpus("own", "task", tuple(map(parsed, texts)), {}, "", "")
    monkeypatch.setattr(words, "with_trees", lambda one: one)
    row = words.negation_by_letters(corpus, tasks=["rte"]).table.iloc[0]
    # north is kept for its letters alone; "no" is not on the list, and "Not" has another case
    assert (row["inputs"], row["by_word"], row["by_letters"]) == (6, 4, 3)
    assert (row["wrong"], row["missed"]) == (1, 2)
    assert set(row["such_as"].split(", ")) == {"north", "note"}


@pytest.mark.parametrize("model", ["bert", "labelled"])
def test_a_model_without_labelled_maps_is_shown_those_of_another(
    model: str, folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load_encoder(folders("bert"), device="cpu")
    texts = planted(3, name="toy")
    loaded: list[str] = []

    def row(number: int, label: str, again: str, example: str) -> LabelledMap:
        return LabelledMap(
            f"m{number}", "labelled", "", "toy:dev", example, 1, 2, 0, label, again, label
        )

    rows = [
        row(0, "block", "", "toy:0"),
        row(1, "block", "block", "toy:1"),
        row(2, "block", "vertical", "toy:2"),  # the second pass said otherwise
        row(3, "diagonal", "", "not at hand"),
    ]

    def load(name: str, **_: Any) -> Encoder:
        loaded.append(name)
        return replace(encoder, name=name)

    monkeypatch.setattr(patterns, "labelled_maps", lambda: rows)
    monkeypatch.setattr(patterns, "load_encoder", load)
    found = patterns.example_maps(replace(encoder, name=model), {"toy:dev": texts})
    assert [one.pattern for one in found] == ["block", "block"]
    assert found[0].picture.shape == (patterns.LARGE, patterns.LARGE)
    assert loaded == (["labelled"] if model == "bert" else [])
    assert not np.array_equal(found[0].picture, found[1].picture)
