"""The experiments on Kovaleva 2019: numbers by hand, planted effects, and every claim served."""

from __future__ import annotations

import json
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
from attnlib.data.examples import FrameExample, Span, TaskExample
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
from tests.notebooks import ROOT, defined_in

__all__ = ["folders", "one_thread"]  # fixtures

NAN = math.nan
PAPER = "kovaleva2019"


# --- Table 1 --------------------------------------------------------------------------------------


def answers(labels: list[float], given: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"answer": given, "label": labels})


def heads_of(labels: list[float], *given: list[float]) -> pd.DataFrame:
    """Answers of 20 untrained heads: the given ones in turn."""
    columns = {f"head {n + 1}": given[n % len(given)] for n in range(tuning.HEADS)}
    return pd.DataFrame({"label": labels, **columns})


def overview(tasks: dict[str, list[pd.DataFrame]]) -> Any:
    """Table 1 of tables by task: the untrained heads, then the three trainings."""
    every = [table for tables in tasks.values() for table in tables]
    starts = ["frozen", "random", "pretrained"]
    return defined_in(PAPER, "starts_overview")(*every, tasks=list(tasks), starts=starts)


def test_scores_of_starts_by_hand() -> None:
    labels = [1.0, 1, 1, 0]
    trained = [answers(labels, own) for own in ([1, 0, 0, 0], [0, 0, 0, 1], labels)]
    found = overview({"mrpc": [heads_of(labels, [0, 0, 0, 0], [1, 1, 1, 1]), *trained]})
    value = {name: one.value for name, one in found.findings.items()}
    assert value["tuning.mrpc.pretrained"] == 100.0 and value["tuning.mrpc.random"] == 0.0
    always_yes = 100 * 6 / 7  # precision 3/4, recall 1
    assert value["tuning.mrpc.untrained"] == pytest.approx(always_yes / 2)  # half of the heads
    assert value["tuning.mrpc.tuned_minus_untuned"] == value["tuning.mean_gain"] == 50.0
    assert value["tuning.mrpc.tuned_minus_random"] == 100.0  # in accuracy, where F1 has 100, too
    assert value["tuning.mrpc.random_minus_untuned"] == -50.0
    rows = found.table.set_index(["start", "metric"])["value"]
    assert rows["untrained", "accuracy"] == 50.0 and rows["frozen", "f1"] == pytest.approx(50.0)
    assert rows["constant", "f1"] == pytest.approx(always_yes)
    for name in ("tuning.rte.tuned_minus_random", "tuning.stsb_qnli_random_minus_untuned"):
        assert math.isnan(value[name])  # tasks that were not run


def test_a_constant_score_has_no_correlation() -> None:
    labels = [1.0, 2, 3, 4]
    table = answers(labels, [1, 2, 3, 5])
    found = overview({"stsb": [heads_of(labels, [2, 2, 2, 2]), table, table, table]})
    assert math.isnan(found.findings["tuning.stsb.untrained"].value)  # it was 0
    half = overview({"stsb": [heads_of(labels, [2, 2, 2, 2], labels), table, table, table]})
    assert half.findings["tuning.stsb.untrained"].value == pytest.approx(100.0)


def test_differences_of_starts_are_paired_and_heads_are_drawn_again() -> None:
    """Two models that answer alike differ by nothing in every draw, however few the inputs."""
    rng = np.random.default_rng(0)
    labels, told = rng.integers(0, 2, (2, 50)).tolist()
    table = answers(labels, told)
    same = overview({"rte": [heads_of(labels, told), table, table, table]}).findings
    below = same["tuning.rte.tuned_minus_random"]
    assert (below.value, below.low, below.high) == (0.0, 0.0, 0.0)
    assert same["tuning.rte.pretrained"].low < same["tuning.rte.pretrained"].high
    other = [1 - one for one in told]
    mixed = overview({"rte": [heads_of(labels, told, other), table, table, table]}).findings
    gain = mixed["tuning.rte.tuned_minus_untuned"]
    alone = same["tuning.rte.tuned_minus_untuned"]
    assert gain.high - gain.low > 1 and alone.high - alone.low == pytest.approx(0, abs=1e-9)


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
    return with_losses(pd.DataFrame(columns))


def with_losses(table: pd.DataFrame) -> pd.DataFrame:
    """A loss of 0.2 where the answer is right and of 1 where it is not."""
    losses = {
        disabling.loss_column(name): np.where(table[name] == table["label"], 0.2, 1.0)
        for name in list(table.columns)[1:]
    }
    return table.assign(**losses)


def effects_of(table: pd.DataFrame, task: str) -> Any:
    return defined_in(PAPER, "disabling_effects")(table, task=task)


def test_planted_heads_are_found_and_no_others() -> None:
    table = swept(600, good=0.3, bad=0.3)
    found = effects_of(table, task="mrpc")  # by accuracy, not by F1
    judged = defined_in(PAPER, "controlled")([found.table])
    heads = judged[judged["head"] > 0].set_index("name")
    assert heads.index[heads["q_gain"] < 0.05].tolist() == ["2-3"]
    assert heads.index[heads["q_loss"] < 0.05].tolist() == ["4-1"]
    right = (table["2-3"] == table["label"]).mean() - (table["whole"] == table["label"]).mean()
    assert heads.loc["2-3", "change"] == pytest.approx(100 * right)
    assert heads.loc["2-3", "low"] > 0 and heads.loc["4-1", "high"] < 0
    fall = 100 * (1 - table["loss_2_3"].mean() / table["loss_whole"].mean())
    assert heads.loc["2-3", "loss"] == pytest.approx(fall) and heads.loc["4-1", "loss_high"] < 0
    layers = judged.loc[judged["head"] == 0, "name"]
    assert layers.tolist() == [f"layer {n}" for n in range(1, 5)]


def claims_on(
    name: str, sweeps: dict[str, pd.DataFrame], *first: pd.DataFrame, **given: Any
) -> Any:
    found = defined_in(PAPER, name)(*first, *sweeps.values(), tasks=list(sweeps), **given)
    return {key.removeprefix("disabling."): one for key, one in found.findings.items()}


def test_the_best_of_many_idle_heads_gains_only_where_it_was_chosen() -> None:
    """The trap that the paper falls into: 16 heads that do nothing, and the best looks good."""
    gains, clean, covered = [], [], []
    for seed in range(8):
        found = claims_on("head_claims", {"mrpc": swept(200, seed)}, harmless=-0.5)
        gains.append(found["mrpc.best_gain"].value)
        clean.append(found["mrpc.clean_gain"].value)
        covered.append(found["mrpc.clean_gain"].low < 0)
    assert np.mean(gains) > 0.4 > 0.15 > np.mean(clean) and all(covered)


def test_a_planted_head_gains_on_other_inputs_too() -> None:
    table = swept(600, good=0.3, bad=0.3)
    found = claims_on("head_claims", {"mrpc": table}, harmless=-0.5)
    gain = (table["2-3"] == table["label"]).mean() - (table["whole"] == table["label"]).mean()
    assert found["mrpc.clean_gain"].value == pytest.approx(100 * gain, abs=0.2)
    assert found["mrpc.best_gain"].value == pytest.approx(100 * gain)
    assert found["mean_clean_cost"].low > 5 and found["loss.mean_clean_cost"].low > 5
    assert found["loss.least_clean_gain"].low > 0
    right = {name: (table[name] == table["label"]).mean() for name in table if "-" in name}
    spared = [own > (table["whole"] == table["label"]).mean() - 0.005 for own in right.values()]
    assert found["harmless_share"].value == pytest.approx(np.mean(spared))
    assert math.isnan(found["stsb.best_gain"].value)  # not run
    assert math.isnan(found["loss.between_minus_within_tasks"].value)  # one task alone


def test_shares_of_all_tasks_are_drawn_together() -> None:
    """Two tasks of which one is always harmless: the interval is half as wide as that of one."""
    shaky, calm = swept(60, seed=1), swept(60, seed=2)
    calm = with_losses(
        calm.filter(regex="^(?!loss)").assign(**{c: calm["whole"] for c in calm if "-" in c})
    )
    alone = claims_on("head_claims", {"rte": shaky}, harmless=-0.5)["harmless_share"]
    both = claims_on("head_claims", {"rte": shaky, "qnli": calm}, harmless=-0.5)["harmless_share"]
    assert both.value == pytest.approx((alone.value + 1) / 2)
    assert both.high - both.low == pytest.approx((alone.high - alone.low) / 2, abs=0.05)


def test_a_model_that_answers_constantly_is_undefined_and_a_variant_is_left_out() -> None:
    rng = np.random.default_rng(0)
    n = 40
    label = rng.random(n) * 5
    columns = {"label": label, "whole": label + rng.normal(size=n)}
    columns |= {"1-1": columns["whole"] + 0.01 * rng.normal(size=n), "1-2": np.full(n, 2.5)}
    columns |= {"layer 1": columns["whole"]}
    losses = {
        disabling.loss_column(k): (v - label) ** 2 for k, v in columns.items() if k != "label"
    }
    table = pd.DataFrame(columns | losses)
    effects = effects_of(table, task="stsb")
    one = effects.table.set_index("name").loc["1-2"]
    assert effects.facts["undefined"] == 1
    assert one[["change", "low", "high", "p"]].isna().all()  # the p was the smallest of all
    assert one["loss"] < 0  # a loss it has
    found = claims_on("head_claims", {"stsb": table}, harmless=-0.5)
    assert not math.isnan(found["stsb.best_gain"].value) and not math.isnan(
        found["mean_cost"].value
    )
    dull = table.assign(whole=2.5)
    found = claims_on("head_claims", {"stsb": dull}, harmless=-0.5)
    assert all(math.isnan(found[name].value) for name in ("stsb.best_gain", "loss.mean_cost"))
    assert effects_of(dull, task="stsb").table["p"].isna().all()


def test_layers_by_hand() -> None:
    """Layer 1 helps RTE and hurts QNLI; each number is a difference of accuracies."""
    tables = {}
    for task, share in (("rte", 0.3), ("qnli", -0.3), ("mnli", -0.2)):
        table = swept(300, seed=3).filter(regex="^(?!loss)")
        wrong = table["whole"] != table["label"]
        flip = (wrong if share > 0 else ~wrong) & (np.arange(300) % 10 < 10 * abs(share))
        table["layer 1"] = np.where(flip, 1 - table["whole"], table["whole"])
        tables[task] = with_losses(table)
    found = claims_on("layer_claims", tables, harmless=-0.5)

    def change(task: str) -> float:
        right = [
            (tables[task][name] == tables[task]["label"]).mean() for name in ("layer 1", "whole")
        ]
        return 100 * float(right[0] - right[1])

    assert found["rte_first_layer"].value == pytest.approx(change("rte"))
    two = (change("qnli"), change("mnli"))
    assert found["qnli_mnli_first_layer"].value == pytest.approx(min(two))
    assert found["qnli_mnli_first_layer_larger"].value == pytest.approx(max(two))
    assert found["loss.qnli_mnli_first_layer_larger"].high < 0 < found["loss.rte_first_layer"].low
    wanted = change("rte") - sum(two) / 2
    assert found["first_layer_rte_minus_others"].value == pytest.approx(wanted)


def test_tasks_that_need_other_heads_agree_less_than_halves_of_one() -> None:
    rng = np.random.default_rng(0)
    shared, counts = rng.normal(size=20), disabling.drawn_counts(50, 0)
    n = len(disabling.halved(counts, 0)[0])
    own = [np.broadcast_to(rng.normal(size=20), (2, n, 20)) for _ in range(3)]
    noise = [0.1 * rng.normal(size=(2, n, 20)) for _ in range(3)]
    same = [shared + one for one in noise]
    apart = disabling.agreement_of_halves([a + b for a, b in zip(own, noise, strict=True)])
    assert apart.shape == (1 + REPLICATES,) and (apart < -0.4).all()
    assert abs(disabling.agreement_of_halves(same)).max() < 0.15


def test_power_is_what_a_simulation_finds() -> None:
    table = swept(400, seed=4).filter(regex="^(?!loss)")
    for name in [one for one in table if "-" in one]:  # every head changes 20 inputs at random
        flip = np.random.default_rng(len(name)).permutation(400) < 20
        table[name] = np.where(flip, 1 - table["whole"], table["whole"])
    found = defined_in(PAPER, "power_curve")(with_losses(table), task="rte")
    alone = found.table[(found.table["of"] == "score") & (found.table["tested"] == 1)]
    size = np.interp(0.8, alone["power"], alone["size"])
    spread = 100 * np.sqrt(0.05)  # of -1, 0, 1 in 5 percent of the inputs
    draws = np.random.default_rng(0).normal(size / spread * 20, 1, 20_000)
    assert (np.abs(draws) > 1.96).mean() == pytest.approx(0.8, abs=0.02)
    assert found.facts["score"] > size  # among sixteen heads it takes more


def test_true_losses_lend_no_significance_to_gains() -> None:
    """Fifteen heads that surely hurt, and one whose small gain alone is not significant."""
    p = [1e-6] * 15 + [0.03]
    table = pd.DataFrame(
        {"task": "rte", "name": "x", "layer": 1, "head": range(1, 17), "p": p}
        | {"change": [-5.0] * 15 + [1.0], "low": 0.0, "high": 0.0}
    )
    found = defined_in(PAPER, "controlled")([table])
    assert (found["q_loss"] < 0.05).sum() == 15 and (found["q_gain"] < 0.05).sum() == 0


def test_small_p_values_are_refined_below_what_144_tests_need() -> None:
    table = swept(400, good=0.5, bad=0.0)
    found = effects_of(table, task="mrpc")
    p = found.table.set_index("name")["p"]
    assert p["2-3"] < 0.05 / 144


def test_frame_heads_are_the_strongest_of_the_frames_table() -> None:
    scores = head_rows(mean=np.arange(16.0).reshape(4, 4))  # 4-4 and 4-3 are strongest
    sweeps = {"rte": swept(300, bad=0.4), "stsb": swept(300, seed=5, bad=0.4)}
    table = sweeps["rte"]
    idle = claims_on("shared_heads", {"rte": table}, scores)
    costs = [
        100 * ((table["whole"] == table["label"]).mean() - (table[h] == table["label"]).mean())
        for h in ("4-3", "4-4")
    ]
    assert idle["frame_heads_loss"].value == pytest.approx(max(costs))
    assert math.isnan(idle["stsb_rte_pair_cost"].value)  # one of both was not run
    hurt = scores.assign(mean=scores["mean"].where(scores.index != 12, 99))  # 4-1
    found = claims_on("shared_heads", {"rte": table}, hurt)
    assert found["frame_heads_loss"].low > 5 and found["loss.frame_heads_minus_all"].low > 0
    both = claims_on("shared_heads", sweeps, scores)
    assert both["loss.stsb_rte_pair_cost"].value > 0 and both["stsb_rte_shared_of_two"].value >= 1


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
    assert math.isnan(found.findings["frames.sentences"].value)  # not the authors' list
    layers = found.table.groupby("layer")["mean"].mean()
    assert np.allclose(found.facts["layers"][0], layers, atol=1e-5)
    own = replace(framed(*examples), name="framenet-473")
    told = frames.frame_scores(own, encoder=bert, name="other").findings["other.sentences"]
    assert told.value == sum(map(frames.passes_filter, examples))


def test_two_heads_that_stick_out_are_found() -> None:
    rng = np.random.default_rng(0)
    scores = 0.1 + 0.02 * rng.random((60, 3, 4))
    scores[:, 1, 2] += 0.2
    scores[:, 2, 0] += 0.18
    lead = np.full(scores.shape, -0.01)
    lead[:, 1, 2], lead[:, 2, 0] = 0.2, 0.05
    found = frames.standing_out(scores, lead, frames.drawn_counts(60, 0), seed=0)
    mean = np.sort(scores.mean(0).ravel())
    assert found["heads_near_strongest"].value == 2
    assert found["gap_after_second"].value == pytest.approx((mean[-2] - mean[-3]) / mean[-2])
    assert found["lead_of_two"].value == pytest.approx(0.125)
    smaller = found["clean_smaller_lead_of_two"]
    assert (smaller.value, smaller.low) == pytest.approx((0.05, 0.05))


def test_a_lead_of_chance_is_not_clean() -> None:
    """Twelve heads whose leads are noise: the two best of these sentences lead on them alone."""
    rng = np.random.default_rng(1)
    lead = rng.normal(size=(80, 3, 4))
    found = frames.standing_out(lead, lead, frames.drawn_counts(80, 0), seed=0)
    assert found["lead_of_two"].value > 0.1
    smaller = found["clean_smaller_lead_of_two"]
    assert smaller.low < 0 and smaller.value < found["lead_of_two"].value / 2


def test_the_example_of_the_paper_by_a_loop(bert: Encoder) -> None:
    text = " ".join(frames.EXAMPLE)
    maps, batch = patterns.all_maps(bert, frame(text, (3, 4)))
    word, lead = batch.word[0].tolist(), frames.example_lead(bert)
    assert lead.shape == (bert.n_layers, bert.n_heads)
    for layer, head in ((0, 0), (bert.n_layers - 1, bert.n_heads - 1)):
        to = dict.fromkeys(range(4), 0.0)
        for query, asking in enumerate(word):
            for key, asked in enumerate(word):
                if asking == 3 and asked in to:
                    to[asked] = max(to[asked], float(maps[layer, head, query, key]))
        assert lead[layer, head] == pytest.approx(to[0] - max(to[1], to[2]), abs=1e-6)


def beside(ours: np.ndarray, column: str, theirs: pd.DataFrame) -> Any:
    function = defined_in(PAPER, "beside_authors")
    function.__globals__["authors_map"] = lambda: theirs
    return function(pd.DataFrame(ours), column=column, name="rho")


def test_layers_are_compared_with_the_authors_map() -> None:
    grid = np.arange(144.0).reshape(12, 12)
    theirs = head_rows(frames=grid, cosine=-grid)
    ours = np.tile(2 * grid.mean(1) + 1, (1 + REPLICATES, 1))
    assert beside(ours, "frames", theirs).findings["rho"].value == pytest.approx(1)
    assert beside(ours, "cosine", theirs).findings["rho"].high == pytest.approx(-1)
    assert math.isnan(beside(ours[:, :6], "cosine", theirs).findings["rho"].value)


# --- cosines --------------------------------------------------------------------------------------


def test_the_last_two_layers_by_hand() -> None:
    late, early = [0.9, 0.8, 0.3, 0.4], [0.1, 0.8, 0.3, 0.4]
    tables = [pd.DataFrame([row] * (1 + REPLICATES)) for row in (late, early)]
    overview = defined_in(PAPER, "cosine_overview")
    found = overview(*tables, tasks=["rte", "qqp"]).findings
    assert found["cosine.last_two_margin"].value == pytest.approx(0.4)  # of RTE alone
    assert found["cosine.qqp_margin"].value == pytest.approx(-0.3)
    assert math.isnan(found["cosine.tasks_last_two"].value)  # two tasks of seven
    wanted = np.mean([spearmanr(range(4), row).statistic for row in (late, early)])
    assert found["cosine.layer_correlation"].value == pytest.approx(wanted)
    tables = [tables[0]] * 5 + [tables[1]] * 2
    every = overview(*tables, tasks=list(tuning.PAPER_TASKS)).findings
    assert every["cosine.tasks_last_two"].value == 5
    assert math.isnan(overview(tables[0], tasks=["rte"]).findings["cosine.qqp_margin"].value)


# --- links ----------------------------------------------------------------------------------------


def test_candidates_by_a_loop() -> None:
    rng = np.random.default_rng(0)
    scores, near = rng.random((2, 9, 4, 5))
    lead = scores - 0.4
    scores[0], lead[0] = np.nan, np.nan  # an input without a link
    counts = words.drawn_counts(9, 0)
    found = words.candidates(scores, lead, near, counts, seed=0)
    for draw in (0, 7):
        at = np.repeat(np.arange(9), counts[draw].astype(int))
        top = [
            set(np.nanmean(one[at], axis=0).ravel().argsort()[-2:].tolist())
            for one in (scores, near)
        ]
        assert found["diagonal"][draw] == len(top[0] & top[1]) / 2


def test_links_that_are_positions_have_no_lead() -> None:
    rng = np.random.default_rng(0)
    strength = rng.random((4, 5))
    scores = strength + 0.01 * rng.random((30, 4, 5))
    counts = words.drawn_counts(30, 0)
    same = words.candidates(scores, 0.05 * scores, scores, counts, seed=0)
    assert same["diagonal"].min() == 1.0 and np.allclose(same["lead_share"], 0.05)
    apart = words.candidates(scores, scores, -scores, counts, seed=0)
    assert apart["diagonal"].max() == 0.0 and np.allclose(apart["lead_share"], 1.0)


def told(numbers: dict[tuple[str, str], float]) -> pd.DataFrame:
    """Draws of numbers, all of them equal: columns (number, task)."""
    return pd.DataFrame({at: np.full(1 + REPLICATES, value) for at, value in numbers.items()})


def test_links_are_means_over_tasks() -> None:
    numbers = {("close", "rte"): 0.4, ("close", "sst2"): 0.8}
    for task in ("rte", "sst2"):
        numbers |= {(f"diagonal_{link}", task): 0.5 for link in ("subject", "pronoun")}
        numbers |= {("lead_share_subject", task): 0.1, ("lead_share_pronoun", task): 0.3}
    numbers["lead_share_pronoun", "sst2"] = NAN  # no such link there
    found = defined_in(PAPER, "link_claims")(told(numbers)).findings
    assert found["tokens.subject_within_two_words"].value == pytest.approx(0.6)
    assert found["tokens.candidates_lead_share"].value == pytest.approx(0.3)


def test_sep_is_first_also_where_it_is_one_with_cls() -> None:
    kinds = ("cls", "sep", "noun", "punctuation")
    tasks = {
        "mrpc": (0.3, 0.3 - 1e-7, 0.1, 0.2),
        **dict.fromkeys(("sst2", "qqp", "mnli"), (0.1, 0.4, 0.2, 0.3)),
        **dict.fromkeys(("stsb", "rte"), (0.1, 0.2, 0.1, 0.3)),
        "qnli": (0.1, 0.2, 0.35, 0.3),
    }
    numbers = {(k, t): v for t, row in tasks.items() for k, v in zip(kinds, row, strict=True)}
    judge = defined_in(PAPER, "cls_claims")
    found = judge(told(numbers), tie=1e-4).findings
    assert found["cls.tasks_sep_first"].value == 4
    assert found["cls.sep_margin"].value == pytest.approx(
        0.1, abs=1e-6
    )  # MRPC 0.3 - 0.2, [CLS] left out
    assert found["cls.punctuation_margin"].value == pytest.approx(-0.05)
    del numbers["sep", "qqp"], numbers["cls", "qqp"]
    part = judge(told(numbers), tie=1e-4).findings
    assert math.isnan(part["cls.sep_margin"].value)


def test_stripes_by_a_loop_and_the_gain_of_a_planted_head() -> None:
    rng = np.random.default_rng(0)
    n, shape = 12, (4, 3)
    kinds = (*words.WORDS, "main_object", "cls", "sep", "seps")
    values = {kind: tuple(rng.random((2, n, *shape))) for kind in kinds}
    values["noun"][1][:, 2, 1] = values["noun"][0][:, 2, 1] + 0.9  # gains in every input
    values["cls"][1][:, 0, 0] = 2.0
    values["pronoun"][1][3:] = np.nan
    found = words.stripe_numbers(values, seed=0)
    after = {kind: np.nanmean(own[1], axis=0) for kind, own in values.items()}
    special = max(after["cls"].max(), after["sep"].max())
    assert found["over_words"][0] == pytest.approx(
        special / max(after[k].max() for k in words.WORDS)
    )
    assert found["cls_early"][0] == pytest.approx(after["cls"][:2].mean() - after["cls"][2:].mean())
    assert found["sep_late"][0] == pytest.approx(after["sep"][2:].mean() - after["sep"][:2].mean())
    before = sum(values[kind][0].mean(0).sum() for kind in ("cls", "sep"))
    both = sum(after[kind].sum() for kind in ("cls", "sep"))
    assert found["before_over_after"][0] == pytest.approx(before / both)
    assert found["gain_noun"][0] == pytest.approx(0.9)
    assert found["weight_noun"][0] == pytest.approx(after["noun"][2, 1] / 2.0, abs=0.02)
    assert found["gain_verb" if "gain_verb" in found else "gain_negation"][0] < 0.4  # by chance


def test_claims_on_stripes_name_their_tasks() -> None:
    numbers: dict[tuple[str, str], float] = {}
    for place, task in enumerate(("mrpc", "rte", "qqp", "qnli", "sst2")):
        for name in ("over_words", "cls_early", "sep_late", "before_over_after", "sep"):
            numbers[name, task] = 1.0 + place
        numbers["seps", task] = 2.0
        for kind in words.GAINING:
            numbers[f"gain_{kind}", task] = 0.1 * (1 + place)
            numbers[f"weight_{kind}", task] = 0.1 * (1 + place)
    judge = defined_in(PAPER, "stripe_claims")
    found = judge(told(numbers), pairs=["mrpc", "rte", "qqp", "qnli"]).findings
    value = {name.removeprefix("stripes."): one.value for name, one in found.items()}
    assert value["special_over_words"] == 1.0 and value["sst2_sep_minus_most_other"] == 1.0
    assert value["sst2_sep_minus_both"] == 3.0
    assert value["noun.least_gain"] == pytest.approx(0.1)
    assert value["noun.gain_minus_other_tasks"] == pytest.approx(0.2 - 0.45)
    assert value["negation.qnli_gain"] == value["gainer_over_special"] == pytest.approx(0.4)
    del numbers["gain_noun", "rte"], numbers["weight_noun", "rte"]
    part = judge(told(numbers), pairs=["mrpc"]).findings
    assert math.isnan(part["stripes.noun.least_gain"].value)


def test_copies_and_costs_by_hand() -> None:
    sweeps = [swept(300, seed=1, bad=0.4).assign() for _ in range(2)]
    copy = np.full((4, 4), 0.1)
    copy[3, 0] = 0.4  # the head that both tasks need attends to copies
    layer, head = np.indices((4, 4)).reshape(2, -1) + 1
    one = {"layer": layer, "head": head, "copy": copy.ravel(), "other": 0.1}
    copies = pd.concat([pd.DataFrame({"input": i, **one}) for i in range(5)])
    judge = defined_in(PAPER, "copy_claims")
    found = judge(copies, copies, *sweeps, tasks=["stsb", "rte"])
    assert found.table.set_index(["layer", "head"]).loc[(4, 1), "copy"] == pytest.approx(0.4)
    assert found.table["cost"].idxmax() == found.table["copy"].idxmax() == 12
    ratio = found.findings["repeats.shared_pair_ratio"]
    assert ratio.value == pytest.approx(1.0)  # of the second of the two
    wanted = spearmanr(copy.ravel(), found.table["loss"]).statistic
    assert found.findings["repeats.loss_correlation"].high > wanted - 1e-9
    alone = judge(copies, sweeps[0], tasks=["stsb"]).findings
    assert all(math.isnan(one.value) for one in alone.values())


def test_word_by_word_comparison_without_a_model() -> None:
    def pair(first: str, second: str, label: float) -> TaskExample:
        return TaskExample(f"{first}{second}", first, second, label)

    rows = [pair("a b c d", "A b", 0), pair("a b c d", "x y", 1), pair("a b", "a y", 1)] * 4
    corpus = Corpus("rte", "task", tuple(rows), {}, "", "")
    table = words.word_overlaps(corpus, corpus).table
    assert table["held"][:3].tolist() == [1.0, 0.0, 0.5]
    assert table["shared"][:3].tolist() == pytest.approx([2 / 4, 0.0, 1 / 3])
    judge = defined_in(PAPER, "overlap_claims")
    found = judge(table, tasks=["rte"]).findings
    assert found["overlap.rte_above_constant"].value == pytest.approx(100 / 3)  # all, and 2 of 3
    assert math.isnan(found["overlap.stsb"].value)
    scored = table.assign(label=table["shared"] ** 2)
    assert judge(scored, tasks=["stsb"]).findings["overlap.stsb"].value == pytest.approx(100)


# --- patterns -------------------------------------------------------------------------------------


def judged(pairs: list[tuple[str, str]]) -> pd.DataFrame:
    """Labelled maps, each of a head of its own."""
    table = pd.DataFrame(pairs, columns=["label", "network 0"])
    return table.assign(model="m", layer=range(len(pairs)), head=1)


def counted(*shares: tuple[int, ...], network: int = 0) -> pd.DataFrame:
    """Inputs of one layer; so many heads of each pattern."""
    table = pd.DataFrame(shares, columns=list(PATTERNS))
    return table.assign(input=range(len(shares)), layer=1, network=network)


def test_shares_are_corrected_by_what_the_network_mistakes() -> None:
    """Of vertical maps the network calls a third heterogeneous; the true shares come back."""
    v, d, m, b, h = PATTERNS
    right = [(name, name) for name in (d, m, b, h)] * 200
    told = judged(right + [(v, v)] * 400 + [(v, h)] * 200)
    tables = [
        counted(*[(4, 2, 0, 0, 6)] * 30),  # of 6 vertical maps 2 are called heterogeneous
        counted(*[(4, 2, 0, 4, 2)] * 30),
    ]
    overview, claims = defined_in(PAPER, "pattern_overview", "pattern_claims")
    found = overview(told, *tables, tasks=["mrpc", "qqp"])
    rows = found.table[found.table["layer"] == 0].set_index(["task", "pattern"])
    assert rows.loc[("mrpc", h), "called"] == pytest.approx(50.0)
    assert rows.loc[("mrpc", v), "share"] == pytest.approx(50.0, abs=0.5)
    assert rows.loc[("mrpc", h), "share"] == pytest.approx(100 * 4 / 12, abs=0.5)
    interval = rows.loc[("mrpc", h), ["low", "high"]]
    assert interval["low"] < 100 * 4 / 12 < interval["high"]  # though all inputs are alike
    told_of = claims(told, *tables, tasks=["mrpc", "qqp"], pairs=["qqp"]).findings
    assert told_of["patterns.block_lead"].value == pytest.approx(100 * 4 / 12, abs=0.5)
    assert told_of["patterns.rarest_in_task"].value < 0.5  # both; no blocks are asked of MRPC
    lead = told_of["patterns.mrpc_minus_least_other"]
    assert lead.value == pytest.approx(100 * 4 / 12, abs=1.5) and lead.low > 0
    assert told_of["patterns.qqp_minus_mrpc"].value == pytest.approx(-lead.value)
    alone = claims(told, tables[0], tasks=["mrpc"], pairs=["mrpc"]).findings
    assert math.isnan(alone["patterns.qqp_minus_mrpc"].value)
    assert math.isnan(alone["patterns.mrpc_minus_least_other"].value)


def test_the_interval_of_shares_holds_the_networks_seeds() -> None:
    """Two networks that never err and call different shares: with both the interval is wide."""
    told = judged([(name, name) for name in PATTERNS] * 100)
    first = counted(*[(6, 0, 0, 0, 6)] * 30)
    other = counted(*[(3, 0, 0, 0, 9)] * 30, network=1)
    widths = []
    for table in (first, pd.concat([first, other])):
        rows = told.assign(**{"network 1": told["network 0"]}) if len(table) > 30 else told
        shares, called = patterns.drawn_shares(rows, table, task="rte", seed=0)
        widths.append(np.ptp(np.percentile(shares[:, 0, 0], [2.5, 97.5])))
    assert widths[0] < 3 < 20 < widths[1] and called[0, 0] == pytest.approx(37.5)


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
    numbers = pd.DataFrame({"rule": np.array(PATTERNS)[labels.numpy()]})
    numbers = numbers.assign(special=np.arange(200) % 5 / 10, neighbours=0.5)
    given = (rows, shades, labels, numbers)
    monkeypatch.setattr(patterns, "labelled_pictures", lambda *a, **k: given)
    how: Any = {"encoder": bert, "recipes": {}, "models": [], "labels": "x", "epochs": 15}
    found = patterns.pattern_network(**how, widths=[16], seeds=2)
    value = {name: one.value for name, one in found.findings.items()}
    assert value["rule.f1"] == pytest.approx(1.0)
    assert value["network.f1"] > 0.7 > 0.5 > value["shuffled.f1"]
    assert value["network.f1_minus_shuffled"] == pytest.approx(
        value["network.f1"] - value["shuffled.f1"]
    )
    own = [
        class_f1(
            confusion(
                *(
                    np.array([PATTERNS.index(x) for x in found.table[c]])
                    for c in ("label", f"network {n}")
                )
            )
        ).mean()
        for n in (0, 1)
    ]
    assert value["network.f1"] == pytest.approx(np.mean(own))  # over both seeds
    assert value["labels.vertical_to_special"] == 0.0 and found.facts["width"] == 16
    assert value["labels.diagonal_neighbours_minus_self"] == 0.5
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
    plain = tuning.untrained_answers(test, **options)
    assert plain.table.shape == (12, 1 + tuning.HEADS)
    assert plain.table["label"].tolist() == trained.table["label"].tolist()
    assert plain.table.nunique(axis=1).max() > 1  # heads differ
    with pytest.raises(BadValue, match="start"):
        tuning.start_answers(train, test, **options, start="half")
    swept = disabling.disabled_answers(train, test, **options)
    n_variants = bert.n_layers * bert.n_heads + bert.n_layers
    assert swept.table.shape == (12, 1 + 2 * (1 + n_variants))
    assert [name for name in swept.table if "-" in name] == list(swept.table)[
        2 : 2 + n_variants - bert.n_layers
    ]
    (batch,) = model.batches(test.examples, 32)
    loss = -model.logits(batch).log_softmax(-1)[
        range(12), [int(swept.table["label"][i]) for i in batch.index]
    ]
    assert np.allclose(
        swept.table["loss_whole"].to_numpy()[list(batch.index)], loss.tolist(), atol=1e-5
    )
    assert (swept.table["loss_1_1"] != swept.table["loss_whole"]).any()
    assert np.array_equal(swept.table["whole"], trained.table["answer"])
    found = tuning.map_cosines(train, test, **options)
    assert found.table["cosine"].between(0, 1 + 1e-9).all()
    layers = found.table.groupby("layer")["cosine"].mean()
    assert np.allclose(found.facts["layers"][0], layers, atol=1e-5)


def test_every_claim_has_a_measure_that_some_experiment_makes() -> None:
    """All names in the claims file are written in the package, or in a cell of the chapter."""
    package = Path(frames.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in package.glob("*.py"))
    cells = json.loads((ROOT / "notebooks" / f"{PAPER}.ipynb").read_text(encoding="utf-8"))["cells"]
    source += "".join("".join(one["source"]) for one in cells if one["cell_type"] == "code")
    for claim in load_paper(PAPER).claims:
        for name in {claim.measure, claim.phenomenon.measure or claim.measure}:
            kind, _, rest = name.partition(".")
            if kind == "tuning" and rest.count("."):
                task, rest = rest.split(".")
                assert task in TASKS
            ends = (rest, rest.removeprefix("loss."), rest.rpartition(".")[2])
            assert any(f'{start}{end}"' in source for end in ends for start in ('"', ".", "}")), (
                name
            )


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
