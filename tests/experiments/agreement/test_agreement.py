"""The agreement chapter: names of heads by other routes, planted agreement, effects by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import rankdata, spearmanr

from attnlib.attention.ablation import mean_outputs, run_changed
from attnlib.attention.interventions import Intervention
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment, TaskExample
from attnlib.data.tasks import TASKS
from attnlib.errors import BadValue
from attnlib.measuring.best_heads import DIRECTIONS, accuracy_grid
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.significance import ALPHA, one_sided
from attnlib.measuring.similarity import compared
from attnlib.models import Encoder, load_encoder
from bookkit.claims import Finding, load_paper
from bookkit.store import Found
from experiments.agreement import (
    effects,
    head_numbers,
    plain_words,
    skills,
    vocabularies,
)
from experiments.agreement.draws import (
    DRAWS,
    all_heads,
    drawn_counts,
    draws_of,
    jackknifed,
    with_draws,
)
from experiments.agreement.figures import head_links, signed
from experiments.agreement.head_numbers import OFFSETS, ROLES, SURFACE, Sighting
from experiments.agreement.vocabularies import (
    JUDGED,
    PAIRS,
    QUESTIONS,
    ROLE_SETS,
    TWIN,
    VOCABULARIES,
    answers,
    labels_of,
    named_heads,
)
from experiments.clark2019.surface import behaviours
from experiments.kovaleva2019.patterns import PATTERNS, rule
from experiments.shared.chapter import describe_corpus
from experiments.shared.head_types import fitted, named_types
from experiments.shared.sortings import adjusted_information, agreement_kappa, information_by_chance
from experiments.shared.training.finetune import FineTuned, finetuned
from experiments.shared.training.glue import row_scores
from tests.attnlib.measuring.test_best_heads import picked, random_maps, random_trees
from tests.experiments.shared.test_task_ablation import LONG
from tests.experiments.shared.training.test_finetune import planted
from tests.families import folders, one_thread
from tests.maps import random_attention
from tests.notebooks import defined_in

(
    label_agreement_of,
    agreement_overview,
    question_agreement,
    effect_reliability,
    head_importance,
    forecasts,
    importance_agreement,
    sayings,
    disabled_heads,
    label_stability,
    form_and_kind,
    model_agreement,
) = defined_in(
    "agreement",
    *("label_agreement", "agreement_overview", "question_agreement", "effect_reliability"),
    *("head_importance", "forecasts", "importance_agreement", "sayings", "disabled_heads"),
    *("label_stability", "form_and_kind", "model_agreement"),
)

__all__ = ["folders", "one_thread"]  # fixtures

ROOT = Path(__file__).parents[3]
N, LAYERS, HEADS = 12, 4, 6
PARTS = (*(f"window_{i:02d}" for i in range(1, 5)), "self", "cls", "sep", "comma", "period")


def sighting(seed: int = 0) -> Sighting:
    """Heads that look near, at special tokens or everywhere, with noise over inputs."""
    draw = np.random.default_rng(seed)
    shape = (N, LAYERS, HEADS)
    kind = draw.integers(0, 3, (LAYERS, HEADS))
    noise = 0.05 * draw.random(shape)
    values = dict.fromkeys(SURFACE, noise + 0.02)
    values["mass_to_next"] = noise + np.where(kind == 0, 0.6, 0.1)
    values["mass_to_sep"] = noise + np.where(kind == 1, 0.7, 0.1)
    values["entropy"] = 10 * noise + np.where(kind == 2, 4.5, 2.0)
    for role in ROLES:
        values[f"bias_{role}"] = 20 * noise + draw.choice([2.0, 4.0], (LAYERS, HEADS))
    values["bias_syntactic"][::2] = np.nan  # half of the inputs have no such relation
    features = draw.random((N, LAYERS * HEADS, len(PARTS))) * 0.1
    features[..., 0] += np.where(kind == 0, 1.0, 0.0).ravel()
    features[..., 6] += np.where(kind == 1, 1.0, 0.0).ravel()
    features[..., 3] += np.where(kind == 2, 1.0, 0.0).ravel()
    features /= features.sum(-1, keepdims=True)
    patterns = {who: np.eye(5)[draw.integers(0, 5, shape)] for who in ("rule", "network")}
    offsets = draw.random((*shape, len(OFFSETS)))
    return Sighting(values, features, PARTS, patterns, offsets, np.arange(N) // 2)


WHOLE = np.ones((1, N))


# --- names by other routes ------------------------------------------------------------------------


def test_behaviours_are_those_of_the_chapter_on_clark() -> None:
    seen = sighting()
    rows = [head_rows(mean=seen.values[key].mean(0)).assign(metric=key) for key in SURFACE]
    wanted = behaviours(pd.concat(rows))
    classes = np.array(VOCABULARIES["clark"])
    assert classes[named_heads(seen, WHOLE)["clark"][0]].tolist() == wanted.tolist()
    assert len(set(wanted)) > 2


def test_a_pattern_is_that_of_most_maps() -> None:
    seen = sighting()
    found = named_heads(seen, WHOLE)["rule"][0].reshape(LAYERS, HEADS)
    for layer in range(LAYERS):
        for head in range(HEADS):
            calls = [int(seen.patterns["rule"][i, layer, head].argmax()) for i in range(N)]
            assert calls.count(int(found[layer, head])) == max(map(calls.count, calls))


def test_types_are_named_clusters_of_the_mean_feature() -> None:
    seen = sighting()
    mean = seen.features.mean(0)
    special, near = [5, 6, 7, 8], [0, 4]
    wanted = named_types(mean, fitted(mean, 4, seed=0, special=special), special, near)
    classes = np.array(VOCABULARIES["guan"])
    assert classes[named_heads(seen, WHOLE)["guan"][0]].tolist() == wanted


def test_sets_of_roles_are_those_of_the_test() -> None:
    seen = sighting()
    has = {
        role: (one_sided(seen.values[f"bias_{score}"], 3.0).p < ALPHA).ravel()
        for role, score in JUDGED.items()
    }
    wanted = [
        "+".join(role for role in JUDGED if has[role][head]) or "none"
        for head in range(LAYERS * HEADS)
    ]
    found = np.array(ROLE_SETS)[named_heads(seen, WHOLE)["pande"][0]]
    assert found.tolist() == wanted and len(set(wanted)) > 4


def test_an_input_drawn_twice_is_an_input_that_is_there_twice() -> None:
    seen = sighting(1)
    counts = np.ones((1, N))
    counts[0, 3], counts[0, 5] = 2, 0
    order = [*(i for i in range(N) if i != 5), 3]
    again = Sighting(
        {key: value[order] for key, value in seen.values.items()},
        seen.features[order],
        seen.parts,
        {key: value[order] for key, value in seen.patterns.items()},
        seen.offsets[order],
        seen.documents[order],
    )
    one, other = named_heads(seen, counts), named_heads(again, WHOLE)
    assert all(np.array_equal(one[name], other[name]) for name in VOCABULARIES)


def test_labels_and_attention_are_of_the_same_draws_of_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = sighting(2)
    monkeypatch.setattr(vocabularies, "sighting_of", lambda *given, **options: seen)
    monkeypatch.setattr(vocabularies, "STABLE", 5)
    given: Any = {"encoder": None, "school": {}}
    corpus = Corpus("toy", "segment", (), {}, "", "")
    labels = vocabularies.head_labels(corpus, **given)
    looks = vocabularies.head_attention(corpus, **given)
    counts = drawn_counts(seen.documents, 0)
    assert (counts[:, ::2] == counts[:, 1::2]).all()  # two inputs are one document
    named = np.array(ROLE_SETS)[named_heads(seen, counts)["pande"]]
    assert labels_of(labels.table, "pande")[1].tolist() == named[1:].tolist()
    n_roles = [[0 if one == "none" else len(one.split("+")) for one in draw] for draw in named]
    assert draws_of(looks.table, "roles").tolist() == n_roles
    flat = seen.values["mass_to_sep"].reshape(N, -1)
    wanted = np.stack([np.average(flat, axis=0, weights=row) for row in counts])
    assert draws_of(looks.table, "sep") == pytest.approx(wanted, rel=1e-4)
    assert all(len(own) == 5 for own in labels.facts["halves"].values())
    assert set(looks.facts["reliability"]) == {"sep", "near", "roles"}


def test_every_label_answers_every_question() -> None:
    for question, ways in QUESTIONS.items():
        assert set(ways) == set(VOCABULARIES)
        for name, classes in VOCABULARIES.items():
            said = {answers(np.array([label], object), name, question)[0] for label in classes}
            assert said == {True, False}, (question, name)
    for name, classes in VOCABULARIES.items():
        for label in classes:
            near, special, spread = (label in QUESTIONS[q][name] for q in QUESTIONS)
            assert not (spread and (near or special)), (name, label)


# --- kernels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_attention_by_distance_equals_a_loop(seed: int) -> None:
    attention = random_attention(seed=seed)
    found = head_numbers.offset_metric(3)(attention)
    weights, real = attention.weights.double().numpy(), attention.real.numpy()
    value = found.value.numpy()
    for b, h in np.ndindex(*weights.shape[:2]):
        for place, offset in enumerate(range(-3, 4)):
            own = [
                weights[b, h, q, q + offset]
                for q in range(real.shape[1])
                if 0 <= q + offset < real.shape[1] and real[b, q] and real[b, q + offset]
            ]
            wanted = np.mean(own) if own else math.nan
            assert value[b, h, place] == pytest.approx(wanted, abs=1e-6, nan_ok=True)


def test_a_head_that_looks_at_the_next_token_has_its_mass_there() -> None:
    attention = random_attention(seed=0)
    n = attention.weights.shape[-1]
    swapped = torch.zeros_like(attention.weights) + torch.eye(n).roll(1, 1)
    found = head_numbers.offset_metric(1)(type(attention)(swapped, attention.batch))
    before, itself, after = found.value[0, 0].tolist()
    assert after == pytest.approx(1) and itself == 0
    assert before == 0  # a swapped direction would have it here


def test_the_rule_as_a_metric_is_the_rule() -> None:
    attention = random_attention(seed=1)
    found = head_numbers.rule_metric()(attention)
    assert torch.equal(found.value.argmax(-1), rule(attention.weights, attention.batch))
    assert (found.value.sum(-1) == 1).all()


# --- agreement ------------------------------------------------------------------------------------


def labelled(**given: list[str]) -> pd.DataFrame:
    """A table of `head_labels` with the same labels in every draw, unless they are given."""
    tables = []
    for name, classes in VOCABULARIES.items():
        labels = given.get(name, [classes[0], classes[-1]] * (LAYERS * HEADS // 2))
        grid = np.array(labels, dtype=object).reshape(LAYERS, HEADS)
        table = head_rows(label=grid, same=np.ones(grid.shape))
        table.insert(0, "vocabulary", name)
        table["draws"] = [3 * vocabularies.DIGITS[classes.index(label)] for label in labels]
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


ENTROPY = head_rows(mean=np.arange(LAYERS * HEADS, dtype=float).reshape(LAYERS, HEADS)).assign(
    key="entropy"
)


@pytest.fixture(autouse=True)
def fewer_deals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(information_by_chance.__kwdefaults__, "deals", 2000)


def agreement(labels: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Finding]]:
    """Pairs of namings, and the claims on them."""
    table = label_agreement_of(labels, ENTROPY, seed=0).table
    return table, agreement_overview(table).findings


def test_the_same_sorting_under_other_names_agrees_wholly() -> None:
    table, found = agreement(labelled())
    assert len(PAIRS) == 9 and ("rule", "network") not in PAIRS
    assert (table.set_index(["one", "other"]).loc[PAIRS, "ami"] == 1).all()
    assert found["agree.median"].value == found["agree.most"].value == 1
    assert found["agree.least_beyond_chance"].low > 0.5
    assert found["agree.share_beyond_layers"].value == 1
    # heads alternate inside every layer, and entropy rises with the layers
    assert found["agree.layer_lead"].value < -0.9
    assert found["agree.rule_network_lead"].value == 0


def test_random_sortings_do_not_agree_beyond_chance() -> None:
    draw = np.random.default_rng(0)
    given = {
        name: draw.choice([classes[0], classes[1]], LAYERS * HEADS).tolist()
        for name, classes in VOCABULARIES.items()
    }
    table, found = agreement(labelled(**given))
    assert found["agree.least_beyond_chance"].high < 0
    assert found["agree.share_beyond_layers"].value < 0.3
    assert table["faint"].mean() > 0.5
    assert abs(found["agree.median"].value) < 0.15


def test_sortings_that_follow_the_layers_do_not_agree_beyond_them() -> None:
    layers = np.repeat(np.arange(LAYERS), HEADS)
    given = {
        name: [classes[0] if layer < 2 else classes[1] for layer in layers]
        for name, classes in VOCABULARIES.items()
    }
    _, found = agreement(labelled(**given))
    assert found["agree.least_beyond_chance"].low > 0
    assert found["agree.share_beyond_layers"].value == 0


def test_chance_is_the_end_that_all_pairs_together_reach_once_in_forty() -> None:
    table, _ = agreement(labelled())
    row = table.set_index(["one", "other"]).loc[("clark", "rule")]
    first, second = (labels_of(labelled(), name)[0] for name in ("clark", "rule"))
    draw = np.random.default_rng(5)
    dealt = np.array([adjusted_information(first, draw.permutation(second)) for _ in range(999)])
    assert (dealt > row["chance"] + 1e-9).mean() < 0.01  # 0.025 / 9, and sampling
    assert (dealt < row["chance"] - 1e-9).mean() < 1 - 0.025 / 9


def test_the_least_agreement_is_chosen_anew_in_every_draw() -> None:
    table = label_agreement_of(labelled(), ENTROPY, seed=0).table
    values = 0.5 + 0.3 * np.random.default_rng(0).normal(size=(201, len(table)))
    found = agreement_overview(with_draws(table, "ami", values)).findings
    by_pair = dict(zip(zip(table["one"], table["other"], strict=True), values.T, strict=True))
    papers = np.array([by_pair[pair] for pair in PAIRS])
    assert found["agree.most"].value == pytest.approx(papers[:, 0].max())
    assert found["agree.most"].low == pytest.approx(
        np.percentile(papers[:, 1:].max(0), 2.5), rel=1e-3
    )


def test_kappas_of_questions_by_hand() -> None:
    half = LAYERS * HEADS // 2
    given = {
        "clark": ["next"] * half + ["broad"] * half,
        "guan": ["diagonal"] * half + ["dense"] * half,
        "rule": ["diagonal"] * (half - 3) + ["heterogeneous"] * (half + 3),
    }
    found = question_agreement(labelled(**given))
    rows = found.table.set_index(["question", "one", "other"])["kappa"]
    assert rows["near", "clark", "guan"] == 1
    seen, luck = 21 / 24, 0.5
    assert rows["near", "clark", "rule"] == pytest.approx((seen - luck) / (1 - luck))
    assert math.isnan(rows["special", "clark", "guan"])  # nobody says yes


def test_unanimous_heads_are_counted_among_those_that_clark_names() -> None:
    n = LAYERS * HEADS
    given = {
        "clark": ["next"] * (n - 6) + ["other"] * 6,
        "rule": ["diagonal"] * n,
        "network": ["vertical+diagonal"] * 4 + ["diagonal"] * (n - 4),
        "guan": ["diagonal"] * n,
        "pande": ["local"] * n,
    }
    found = question_agreement(labelled(**given)).findings
    assert found["agree.unanimous_named"].value == pytest.approx(14 / 18)  # not 14 / 24
    few = question_agreement(labelled(**{**given, "clark": ["next"] * 9 + ["other"] * 15}))
    assert math.isnan(few.findings["agree.unanimous_named"].value)


def test_the_wall_counts_every_head_once_in_every_pair() -> None:
    wall = vocabularies.confusion_wall(labelled())
    assert (wall.groupby(["one", "other"])["n"].sum() == LAYERS * HEADS).all()
    sums = wall.groupby(["one", "other"])["expected"].sum()
    assert sums.to_numpy() == pytest.approx(np.full(10, LAYERS * HEADS))
    named = wall["heads"].str.split().map(len)
    assert (named == wall["n"]).all()


@pytest.mark.parametrize(
    ("row", "one", "column", "other", "odd"),
    [
        ("next", "clark", "diagonal", "guan", False),
        ("next", "clark", "dense", "guan", True),
        ("next", "clark", "vertical", "guan", True),
        ("vertical+diagonal", "rule", "diagonal", "guan", False),
        ("vertical+diagonal", "rule", "vertical", "guan", False),
        ("other", "clark", "diagonal", "guan", False),
        ("broad", "clark", "dense", "guan", False),
        ("dense", "guan", "block", "pande", False),
        ("dense", "guan", "local+block", "pande", True),
    ],
)
def test_contradictions(row: str, one: str, column: str, other: str, odd: bool) -> None:
    assert vocabularies._odd(row, one, column, other) is odd
    assert vocabularies._odd(column, other, row, one) is odd


# --- effects --------------------------------------------------------------------------------------


def task_inputs(n: int) -> Corpus:
    """Pairs of texts that share nothing."""
    examples = tuple(TaskExample(f"t{i}", f"one {i}", f"other {i}", i % 2) for i in range(n))
    return Corpus("toy", "task", examples, {}, "", "")


def with_losses(table: pd.DataFrame, losses: Any = 0.0) -> pd.DataFrame:
    """As `disabled_answers` keeps them; the loss of every column if one number is given."""
    names = [name for name in table.columns if name != "label"]
    return table.assign(
        **{f"loss_{name.replace('-', '_').replace(' ', '_')}": losses for name in names}
    )


def effects_of(table: pd.DataFrame, task: str = "rte") -> Found:
    return effects.task_effects(table, task_inputs(len(table)), task=task)


def test_costs_changed_answers_and_losses_by_hand() -> None:
    table = pd.DataFrame(
        {
            "label": [1.0, 1, 0, 0],
            "whole": [1, 1, 0, 1],  # 3 of 4 right
            "1-1": [1, 1, 0, 1],
            "1-2": [0, 1, 0, 0],  # one lost, one won
            "2-1": [0, 0, 0, 1],  # two lost
            "layer 1": [0, 0, 0, 0],
        }
    )
    table = with_losses(table, 0.5)
    table["loss_1_2"] = [0.7, 0.3, 0.5, 0.5]  # as much up as down
    found = effects_of(table).table.set_index(["layer", "head"])
    assert found["cost"].to_dict() == {(1, 1): 0, (1, 2): 0, (2, 1): 50}
    assert found["influence"].to_dict() == {(1, 1): 0, (1, 2): 50, (2, 1): 50}
    assert found["loss"].to_dict() == pytest.approx({(1, 1): 0, (1, 2): 0.1, (2, 1): 0})


def test_costs_are_in_accuracy_also_where_the_task_asks_for_f1() -> None:
    table = pd.DataFrame({"label": [1.0, 0, 0, 0], "whole": [1, 0, 0, 0], "1-1": [1, 1, 0, 0]})
    assert effects_of(with_losses(table), "mrpc").table["cost"].tolist() == [25]


def test_answers_without_losses_are_refused() -> None:
    table = pd.DataFrame({"label": [1.0, 0], "whole": [1, 0], "1-1": [1, 1]})
    with pytest.raises(BadValue, match="have no column 'loss_"):
        effects_of(table)


def test_changed_scores_are_in_the_labels_spread() -> None:
    labels = [0.0, 1, 2, 3]
    table = pd.DataFrame({"label": labels, "whole": labels, "1-1": [0.5, 1.5, 2.5, 3.5]})
    found = effects_of(with_losses(table), "stsb").table.iloc[0]
    assert found["influence"] == pytest.approx(100 * 0.5 / np.std(labels))
    assert found["cost"] == pytest.approx(0)  # the order is the same


def test_scores_drawn_again_are_scored_as_a_table_with_copies() -> None:
    draw = np.random.default_rng(0)
    labels, whole, other = draw.normal(size=(3, 9))
    sweep = effects.Sweep(
        ("1-1",), labels, np.stack([whole, other]), np.zeros((2, 9)), TASKS["stsb"]
    )
    counts = np.array([[2.0, 0, 1, 1, 0, 3, 0, 1, 1]])
    places = [place for place, n in enumerate(counts[0]) for _ in range(int(n))]
    scores = [row_scores(x[None, places], labels[places], TASKS["stsb"])[0] for x in (whole, other)]
    assert sweep.costs(counts)[0] == pytest.approx(100 * (scores[0] - scores[1]))
    constant = effects.Sweep(
        ("1-1",), labels, np.stack([whole, whole * 0]), sweep.losses, sweep.task
    )
    assert constant.costs(np.ones((1, 9)))[0, 0] == pytest.approx(
        100 * row_scores(whole[None], labels, sweep.task)[0]
    )


def swept(n: int, spread: float, seed: int = 0) -> pd.DataFrame:
    """Heads that change from 0 to 2 * spread of the answers, as often for better as for worse."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, n)
    whole = np.where(draw.random(n) < 0.7, labels, 1 - labels)
    columns: dict[str, Any] = {"label": labels.astype(float), "whole": whole}
    for layer in range(1, 5):
        for head in range(1, 13):
            flip = draw.random(n) < spread * 2 * (12 * (layer - 1) + head - 1) / 47
            columns[f"{layer}-{head}"] = np.where(flip, 1 - whole, whole)
    return with_losses(pd.DataFrame(columns))


@pytest.fixture
def no_jackknife(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "left_out", lambda *given: [0.0])


@pytest.mark.usefixtures("no_jackknife")
def test_a_planted_influence_is_reliable_and_heads_that_differ_in_nothing_are_not() -> None:
    found = effects_of(swept(600, 0.1)).facts["reliability"]
    assert found["influence"] > 0.8 and math.isnan(found["loss"])
    flat = swept(600, 0.0)
    for name in flat.columns[2:50]:
        flip = np.random.default_rng(int(name.replace("-", ""))).random(600) < 0.05
        flat[name] = np.where(flip, 1 - flat["whole"], flat["whole"])
    noise = effects_of(flat).facts["reliability"]
    assert abs(noise["influence"]) < 0.4 and abs(noise["cost"]) < 0.4


@pytest.mark.usefixtures("no_jackknife")
def test_the_best_of_many_idle_heads_gains_nothing_on_other_inputs() -> None:
    draw = np.random.default_rng(1)
    table = swept(400, 0.0)
    names = table.columns[2:50]
    for name in names:  # as many answers won as lost, by chance
        table[name] = np.where(draw.random(400) < 0.05, 1 - table["whole"], table["whole"])
        flip = np.where(table["whole"] == table["label"], 0.05, 0.12) > draw.random(400)
        table[name] = np.where(flip, 1 - table["whole"], table["whole"])
    found = effects_of(table)
    chosen_here = -found.table["cost"].min()
    clean = found.facts["helped"]
    assert len(clean) == 1 + DRAWS and clean[0] < chosen_here - 1
    better = table.assign(
        **{names[7]: np.where(draw.random(400) < 0.5, table["label"], table["whole"])}
    )
    assert effects_of(better).facts["helped"][0] > 5  # a head that truly helps


@pytest.mark.usefixtures("no_jackknife")
def test_inputs_that_share_a_text_are_drawn_together() -> None:
    table = swept(40, 0.1)
    one_text = tuple(TaskExample(f"t{i}", f"text {i // 20}", f"{i}", 0) for i in range(40))
    shared = Corpus("toy", "task", one_text, {}, "", "")
    wide, narrow = (
        effects.task_effects(table, corpus, task="rte").table
        for corpus in (shared, task_inputs(40))
    )
    assert len(np.unique(draws_of(wide, "influence")[:, 30])) <= 3  # two texts
    assert len(np.unique(draws_of(narrow, "influence")[:, 30])) > 3


def test_p_of_a_correlation_is_fine_enough_for_many_tests() -> None:
    draw = np.random.default_rng(0)
    labels = draw.normal(size=200)
    noise = {f"1-{i}": labels + 0.3 * draw.normal(size=200) for i in range(1, 5)}
    table = pd.DataFrame({"label": labels, "whole": labels + 0.3 * draw.normal(size=200), **noise})
    table["1-1"] = draw.normal(size=200)  # breaks the task
    table["1-2"] = table["whole"]
    found = effects_of(with_losses(table), "stsb").table.set_index("head")["p"]
    assert found[1] < 0.05 / 1008 and found[2] == 1 and found[3] > 0.001


def test_medians_over_tasks_have_a_jackknife() -> None:
    facts: dict[str, Any] = {
        "a": {"reliability": {"cost": 0.1, "influence": 0.9, "loss": 0.5}},
        "b": {"reliability": {"cost": None, "influence": 0.5, "loss": 0.5}},
        "c": {"reliability": {"cost": 0.3, "influence": 0.7, "loss": 0.5}},
    }
    parts = np.random.default_rng(0).normal(0, 0.01, (3, 20))
    for one, own in zip(facts.values(), parts, strict=True):
        told = one["reliability"]
        one["without"] = {k: [(v or 0) + x for x in own] for k, v in told.items()}
    found = effect_reliability(facts=facts).findings
    assert found["reliability.cost"].value == pytest.approx(0.2)
    influence = found["reliability.influence"]
    wanted = jackknifed(0.7, np.median(np.array([[0.9], [0.5], [0.7]]) + parts, axis=0).tolist())
    assert influence == wanted and influence.low < 0.7 < influence.high


@pytest.fixture(scope="module")
def tuned(
    folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Encoder, FineTuned]:
    bert = load_encoder(folders("bert"), device="cpu")
    cache = tmp_path_factory.mktemp("tuned")
    return bert, finetuned(bert, planted(40), "sst2", recipe=LONG, cache=cache)


@pytest.mark.usefixtures("no_jackknife")
def test_heads_replaced_by_zero_and_by_their_mean(
    tuned: tuple[Encoder, FineTuned], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, model = tuned
    monkeypatch.setattr(effects, "tuned_model", lambda *given, **plan: model)
    monkeypatch.setattr(effects, "FITTED", 10)
    train, test = planted(40), planted(12, seed=3)
    given: Any = {"encoder": encoder, "task": "sst2", "recipe": {}}
    means = mean_outputs(model.encoder, model.batches(train.examples[:10]))
    how: dict[str, Any] = {"zero": {}, "mean": {"means": means}}
    for action, options in how.items():
        found = effects.replaced_heads(train, test, action=action, **given)
        row = found.table.set_index(["layer", "head"]).loc[(2, 4)]
        variant = (Intervention(frozenset({(1, 3)}), action, **options),)
        answers, losses = [], []
        for part in ((), variant):  # one input at a time
            logits = torch.cat(
                [
                    model.head(run_changed(model.encoder, batch, part), batch)
                    for one in test.examples
                    for batch in model.batches([one])
                ]
            )
            answers.append(logits.argmax(1))
            wanted = torch.tensor([one.label for one in test.examples])
            losses.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none"))
        assert row["influence"] == pytest.approx(
            100 * (answers[0] != answers[1]).float().mean().item()
        )
        moved = (losses[1] - losses[0]).abs().mean().item()
        assert row["loss"] == pytest.approx(moved, rel=1e-3) and moved > 0
        assert set(found.facts["reliability"]) == {"influence", "loss"}


def test_change_by_fine_tuning_is_one_minus_the_cosine(
    tuned: tuple[Encoder, FineTuned], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, model = tuned
    monkeypatch.setattr(effects, "tuned_model", lambda *given, **plan: model)
    test = planted(12, seed=3)
    recipe = {"max_length": 24}
    found = effects.head_changes(test, test, encoder=encoder, task="sst2", recipe=recipe)
    cosines = compared(encoder, model.encoder, test.examples, max_length=24).mean(0)
    assert found.table["change"].to_numpy() == pytest.approx(1 - cosines.ravel())
    assert -1 <= found.facts["reliability"]["change"] <= 1


# --- skills ---------------------------------------------------------------------------------------


def test_skills_are_the_accuracies_of_the_chapter_on_clark(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = random_trees(12, 0)
    found = picked(monkeypatch, trees, random_maps(trees, 6, 1))
    monkeypatch.setattr(skills, "predictions", lambda *args, **options: found)

    class Trees:
        examples = trees
        name = "random"

        def __len__(self) -> int:
            return len(trees)

    table = skills.head_relations(Trees(), encoder=None, min_count=5).table  # type: ignore[arg-type]
    for relation, rows in table.groupby("relation"):
        sides = [accuracy_grid(found, str(relation), side).ravel() for side in DIRECTIONS]
        assert rows["accuracy"].to_numpy() == pytest.approx(np.maximum(*sides))
        assert (rows["gain"] - (rows["accuracy"] - rows["baseline"])).abs().max() < 1e-9
        assert (rows["low"] <= rows["gain"] + 1e-9).all()
        assert len(rows) == found.n_layers * found.n_heads


def trees_with_one_good_head() -> Any:
    """Trees of six documents; head 3 finds every head word, all others guess."""
    trees = [replace(tree, document=f"d{n // 4}") for n, tree in enumerate(random_trees(24, 0))]
    return trees, random_maps(trees, 6, 1)


def test_best_relations_by_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, maps = trees_with_one_good_head()
    found = picked(monkeypatch, trees, maps)
    monkeypatch.setattr(skills, "predictions", lambda *args, **options: found)
    corpus: Any = Corpus("toy", "tree", tuple(trees), {}, "", "")
    given: Any = {"encoder": None, "min_count": 5}
    table = skills.relation_skill(corpus, **given).table
    by_relation = skills.head_relations(corpus, **given).table
    gains = by_relation.groupby(["layer", "head"])["gain"].max()
    assert table["relations"].to_numpy() == pytest.approx(gains.to_numpy())
    assert (table["relations_low"] < table["relations_high"]).all()


def test_a_relation_has_its_own_head_if_it_leads_on_other_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_flat = 4
    each = np.zeros((2, 2 * n_flat + 10))  # one half, two sides; two directions, then offsets
    each[0, [1, 4 + 1, 2]] = 80, 75, 60
    each[1, [1, 4 + 1, 2]] = 70, 90, 65
    lead = skills._leads(each, n_flat, (1, 2))
    # chosen on the first side: head 1 forwards, worth 70 on the second, where head 2 has 65;
    # chosen on the second: head 1 backwards, worth 75 on the first, where head 2 has 60
    assert lead.tolist() == [[5, 15]]


# --- importance and forecasts ---------------------------------------------------------------------

SURE = dict.fromkeys([*vocabularies.MEASURES, *vocabularies.AGAINST, "sep", "near"], 0.9)


def important(seed: int = 0, **planted: np.ndarray) -> pd.DataFrame:
    """48 heads in six layers; all noise, but for what is planted, with little spread over draws."""
    draw = np.random.default_rng(seed)
    table = all_heads(6, 8)
    for name in dict.fromkeys([*vocabularies.MEASURES, *vocabularies.AGAINST, "sep", "near"]):
        own = np.asarray(planted.get(name, draw.normal(size=48)), float)
        spread = 0.02 * draw.normal(size=(1 + DRAWS, 48)) * (np.arange(1 + DRAWS) > 0)[:, None]
        table = with_draws(table, name, own + spread * (name != "roles"))
    return table


LAYER = all_heads(6, 8)["layer"].to_numpy(float)


def test_importance_finds_what_is_similar_and_what_only_the_layer_makes_similar() -> None:
    draw = np.random.default_rng(1)
    cost = draw.normal(size=48)
    planted = {"cost": cost, "gradient": cost + 0.1 * draw.normal(size=48)}
    planted |= {name: LAYER + 0.3 * draw.normal(size=48) for name in ("change", "relations")}
    found = importance_agreement(important(**planted), reliability=SURE)
    rows = found.table.set_index(["one", "other"])
    rho = spearmanr(planted["cost"], planted["gradient"]).statistic
    assert rows.loc[("cost", "gradient"), "rho_value"] == pytest.approx(rho)
    assert rows.loc[("change", "relations"), "rho_value"] > 0.9
    assert abs(rows.loc[("change", "relations"), "rho_within_value"]) < 0.5
    assert found.findings["importance.cost_gradient"].low > 0.8
    assert found.findings["importance.agreeing_within"].value <= 0.4


def test_an_order_that_other_inputs_do_not_repeat_is_not_correlated() -> None:
    found = importance_agreement(important(), reliability=SURE | {"cost": 0.2})
    assert math.isnan(found.findings["importance.cost_gradient"].value)
    assert not math.isnan(found.findings["importance.influence_gradient"].value)
    assert not math.isnan(found.findings["importance.median"].value)
    rows = found.table.set_index(["one", "other"])["rho_value"]
    kept = [rows[pair] for pair in combinations(("gradient", "change", "relations", "roles"), 2)]
    assert found.findings["importance.median"].value == pytest.approx(np.median(kept))
    few = SURE | dict.fromkeys(("cost", "gradient", "change"), math.nan)
    assert math.isnan(
        importance_agreement(important(), reliability=few).findings["importance.median"].value
    )


def test_measures_of_tasks_are_mean_ranks() -> None:
    draw = np.random.default_rng(0)
    small, large = draw.normal(size=48), 1000 * draw.normal(size=48)

    def table(**columns: np.ndarray) -> pd.DataFrame:
        found = all_heads(6, 8)
        for name, own in columns.items():
            found = with_draws(found, name, np.tile(own, (1 + DRAWS, 1)))
        return found

    tables = {
        ("effects", n): table(**dict.fromkeys(("cost", "influence", "loss"), own))
        for n, own in enumerate((small, large))
    }
    for part, names in (vocabularies.POOLED | vocabularies.SINGLE).items():
        if part != "effects":
            tables[part, 0] = table(**dict.fromkeys(names, small))
    for part, columns in vocabularies.PLAIN.items():
        tables[part, 0] = table(**dict.fromkeys(columns.values(), large))
    shuffled = [one.sample(frac=1, random_state=n) for n, one in enumerate(tables.values())]
    found = head_importance(*shuffled, parts=[part for part, _ in tables]).table
    wanted = (rankdata(small) + rankdata(large)) / 2
    assert found["cost"].to_numpy() == pytest.approx(wanted)
    assert found["zero_loss"].to_numpy() == pytest.approx(rankdata(small))
    assert found["roles"].to_numpy() == pytest.approx(small)
    assert found["coreference"].to_numpy() == pytest.approx(large)
    assert draws_of(found, "cost").shape == (1 + DRAWS, 48)


def forecast_inputs(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Labels and numbers of 48 heads; Clark's classes know how many answers change."""
    draw = np.random.default_rng(0)
    knows = np.where(table["influence"] > 0, "next", "broad").tolist()
    labels = []
    for name, classes in VOCABULARIES.items():
        own = knows if name == "clark" else draw.choice(classes[:2], 48).tolist()
        grid = np.array(own, dtype=object).reshape(6, 8)
        draws = [vocabularies.DIGITS[classes.index(label)] for label in own]
        labels.append(head_rows(label=grid).assign(vocabulary=name, draws=draws))
    keys = ["entropy", "mass_to_next", "rule_block", "network_block", "part_self", "bias_local"]
    numbers = [head_rows(mean=draw.normal(size=(6, 8))).assign(key=key) for key in keys]
    return pd.concat(labels), pd.concat(numbers)


def test_forecasts_find_the_vocabulary_that_knows() -> None:
    table = important()
    labels, numbers = forecast_inputs(table)
    found = forecasts(labels, numbers, table, reliability=SURE)
    own = found.table[found.table["target"] == "influence"]
    best = own.loc[own["r2"].idxmax()]
    assert (best["design"], best["form"]) == ("clark", "labels") and best["r2"] > 0.4
    lead = found.findings["forecast.influence.nested_lead"]
    assert lead.value > 0.3 and lead.low > 0  # it is the best one on the other layers, too
    assert found.findings["forecast.influence.nested_label_loss"].high < 0
    assert found.findings["forecast.cost.best"].value < 0.2


def test_what_is_not_reliable_is_not_predicted() -> None:
    table = important()
    given = SURE | {"cost": 0.49, "influence": 0.51}
    found = forecasts(*forecast_inputs(table), table, reliability=given).findings
    assert math.isnan(found["forecast.cost.best"].value)
    assert not math.isnan(found["forecast.influence.baseline"].value)


# --- sayings --------------------------------------------------------------------------------------


def said(sure: Any = SURE, tuned: bool = False, **planted: np.ndarray) -> Found:
    """Sayings of 48 heads and two tasks: all noise, but for what is planted."""
    draw = np.random.default_rng(4)
    roles = {"roles": draw.integers(0, 4, 48).astype(float)}
    table = important(4, **(roles | planted))
    wanted = [table[["layer", "head"]].assign(influence=draw.normal(size=48)) for _ in range(2)]
    changed = [
        one[["layer", "head"]].assign(change=np.exp(one["influence"]) if tuned else draw.random(48))
        for one in wanted
    ]
    return sayings(table, *wanted, *changed, tasks=["a", "b"], reliability=sure)


def test_of_noise_nothing_can_be_said() -> None:
    found = said()
    assert set(found.table["saying"]) == set(vocabularies.SAYINGS)
    assert set(found.table["against"]) == set(vocabularies.AGAINST)
    assert (found.table["rho"].abs() < 0.45).all()
    names = [f"saying.{name}" for name in (*vocabularies.SAYINGS, "sep.zero", "sep.mean")]
    assert {*names, "saying.one_job"} == set(found.findings)


def test_idle_is_a_head_without_which_neither_answers_nor_loss_change() -> None:
    sep = np.random.default_rng(0).normal(size=48)
    both = said(sep=sep, influence=-sep, loss=-(sep**3)).findings["saying.sep"]
    assert both.value == pytest.approx(-1) and both.high < -0.8
    one = said(sep=sep, influence=-sep).findings["saying.sep"]
    assert one.value > -0.5  # the loss changes as much as anywhere
    other_way = said(sep=sep, mean_influence=-sep, mean_loss=-sep).findings
    assert other_way["saying.sep.mean"].value == pytest.approx(-1)
    assert other_way["saying.sep.zero"].value > -0.5


def test_what_only_the_layer_makes_true_is_not_said() -> None:
    noise = np.random.default_rng(0).normal(size=(2, 48))
    found = said(influence=LAYER + 0.3 * noise[0], relations=LAYER + 0.3 * noise[1]).findings
    assert abs(found["saying.syntax"].value) < 0.5


def test_sayings_of_what_is_not_reliable_are_undefined() -> None:
    found = said(SURE | {"influence": 0.3}).findings
    undefined = {name for name, one in found.items() if math.isnan(one.value)}
    assert undefined == {f"saying.{name}" for name in ("sep", "near", "syntax", "roles")}
    found = said(SURE | {"zero_loss": math.nan}).findings
    assert {name for name, one in found.items() if math.isnan(one.value)} == {"saying.sep.zero"}


def test_fine_tuning_is_compared_task_by_task() -> None:
    assert said(tuned=True).findings["saying.tuned"].value == pytest.approx(1)
    table = important()
    nothing = sayings(table, tasks=[], reliability=SURE).findings["saying.tuned"]
    assert math.isnan(nothing.value)


def test_one_job_is_the_share_of_heads_with_one_role_or_none() -> None:
    found = said(roles=np.array([0.0, 1, 2, 3] * 12)).findings["saying.one_job"]
    assert found.value == 0.5 and found.has_interval


def test_idle_heads_are_those_of_the_chapter_on_kovaleva() -> None:
    costs = np.array([0.1, 0.4, 0.6, -0.3])
    table = with_draws(all_heads(2, 2), "cost", np.tile(costs, (1 + DRAWS, 1)))
    helped = {"a": [1.0, *np.linspace(0.5, 1.5, DRAWS)], "b": [0.0, *np.zeros(DRAWS)]}
    found = disabled_heads(table, table, helped=helped).findings
    assert found["saying.idle"].value == 0.75
    assert found["saying.idle_cost"].value == pytest.approx(0.2)
    assert not found["saying.idle"].has_interval  # all draws are the same here
    assert found["saying.helped"].value == 0.5
    assert found["saying.helped"].low == pytest.approx(np.percentile(helped["a"][1:], 2.5) / 2)
    rows = {one.id: one.phenomenon for one in load_paper("agreement").claims}
    other = {one.id: one.phenomenon for one in load_paper("kovaleva2019").claims}
    own, theirs = rows["saying.idle"], other["sec5.overparametrised"]
    assert (own.text, own.threshold, own.bound) == (theirs.text, theirs.threshold, theirs.bound)


# --- stability ------------------------------------------------------------------------------------


def test_stability_over_halves_and_domains_by_hand() -> None:
    halves = {name: [0.5, 0.7, None] for name in VOCABULARIES}
    swapped = labelled(clark=["other", "broad"] * (LAYERS * HEADS // 2))
    found = label_stability(
        labelled(),
        swapped,
        labelled(),
        names=["wiki", "web", "wiki"],
        models=["m", "m", TWIN],
        halves=[halves] * 3,
    )
    rows = found.table.set_index(["model", "over", "vocabulary"])["kappa"]
    assert rows["m", "inputs", "clark"].iloc[0] == pytest.approx(0.6)
    assert rows["m", "domains", "clark"] == pytest.approx(-1)
    assert rows["m", "domains", "guan"] == 1
    assert found.findings["stability.domains.least"].value == pytest.approx(-1)


def test_the_least_stable_vocabulary_is_chosen_anew_in_every_halving() -> None:
    sure = {name: [0.9] * 4 for name in VOCABULARIES}
    first = sure | {"rule": [0.9, 0.5, 0.9, 0.5], "clark": [0.6, 0.9, 0.6, 0.9], "guan": [None] * 4}
    found = label_stability(labelled(), names=["wiki"], models=["m"], halves=[first]).findings[
        "stability.inputs.least"
    ]
    assert found.value == pytest.approx(0.55)  # the means of the two are 0.7 and 0.75
    assert 0.5 <= found.low < found.high <= 0.6


def test_labels_of_a_network_that_never_vary_have_no_kappa() -> None:
    nothing = {name: [None, None] for name in VOCABULARIES}
    found = label_stability(labelled(), names=["wiki"], models=[TWIN], halves=[nothing])
    assert found.table["kappa"].isna().all()
    assert math.isnan(found.findings["stability.inputs.least"].value)


def test_names_that_follow_the_form_by_hand() -> None:
    """Sentences are named like other sentences, and unlike passages of their own kind."""
    turned = ["other", "broad"] * (LAYERS * HEADS // 2)
    passages, sentences, web = labelled(clark=turned), labelled(), labelled()
    found = form_and_kind(passages, sentences, web, names=["wiki", "parsed", "web"])
    rows = found.table.set_index(["vocabulary", "differs"])
    assert len(rows) == 2 * len(VOCABULARIES)
    assert rows.loc[("clark", "form"), "kappa"] == pytest.approx(-1)
    assert rows.loc[("clark", "kind"), "kappa"] == pytest.approx(1)
    assert rows.loc[("clark", "form"), ["one", "other"]].tolist() == ["parsed", "wiki"]
    assert found.findings["form.kappa"].value == found.findings["kind.kappa"].value == 1
    assert found.findings["form.lead"].value == 0
    lonely = form_and_kind(passages, sentences, names=["wiki", "parsed"])
    assert math.isnan(lonely.findings["form.lead"].value)


def test_the_lead_of_the_form_is_a_median_over_vocabularies() -> None:
    given = {}
    for turned, name in enumerate(VOCABULARIES):  # more heads change their name in each
        own = labels_of(labelled(), name)[0].tolist()
        given[name] = own[: 4 * turned][::-1] + own[4 * turned :]
    found = form_and_kind(labelled(**given), labelled(), labelled(), names=["a", "b", "c"])
    first = {name: labels_of(labelled(), name)[0] for name in VOCABULARIES}
    own = [agreement_kappa(given[name], first[name]) for name in VOCABULARIES]
    assert len(set(own)) == len(own)
    assert found.findings["form.kappa"].value == pytest.approx(np.median(own))
    assert found.findings["form.lead"].value == pytest.approx(1 - np.median(own))


def test_agreement_is_compared_between_models() -> None:
    found = model_agreement(labelled(), labelled(), models=["m", TWIN])
    assert found.findings["models.twin.median"].value == 1
    assert "models.order" not in found.findings


def test_the_order_of_pairs_is_compared_in_the_same_draws() -> None:
    draw = np.random.default_rng(0)
    given = {
        name: draw.choice(classes[:3], LAYERS * HEADS).tolist()
        for name, classes in VOCABULARIES.items()
    }
    one, twin = labelled(**given), labelled()
    same = model_agreement(one, one, twin, models=["m", "n", TWIN]).findings["models.order"]
    assert same.value == pytest.approx(1) and same.low == pytest.approx(1)
    turned = given | {"clark": given["clark"][::-1], "guan": given["guan"][::-1]}
    found = model_agreement(one, labelled(**turned), twin, models=["m", "n", TWIN])
    wide = found.table[found.table["model"] != TWIN].pivot(
        index=["one", "other"], columns="model", values="ami"
    )
    rho = spearmanr(wide["m"], wide["n"]).statistic
    assert found.findings["models.order"].value == pytest.approx(rho)


# --- claims and words -----------------------------------------------------------------------------


def test_every_claim_asks_for_a_number_that_some_experiment_names() -> None:
    served = {
        *(f"agree.{name}" for name in ("least_beyond_chance", "share_beyond_layers", "median")),
        *("agree.most", "agree.entropy_lead", "agree.layer_lead", "agree.rule_network_lead"),
        *("agree.unanimous_named", "kappa.near.median", "kappa.special.median"),
        *(f"reliability.{name}" for name in ("cost", "influence", "loss")),
        *("forecast.cost.best", "forecast.influence.baseline"),
        *("forecast.influence.nested_lead", "forecast.influence.nested_label_loss"),
        *("importance.median", "importance.agreeing_within", "importance.cost_gradient"),
        *("importance.influence_gradient", "stability.inputs.least", "stability.domains.least"),
        *("models.twin.median", "models.order", "form.kappa", "form.lead"),
        *(f"saying.{name}" for name in vocabularies.SAYINGS),
        *("saying.sep.zero", "saying.sep.mean", "saying.one_job", "saying.one_head"),
        *("saying.idle", "saying.idle_cost", "saying.helped"),
    }
    claims = load_paper("agreement").claims
    assert {claim.phenomenon.measure for claim in claims} <= served
    assert {claim.measure for claim in claims} <= served


def test_sentences_stand_under_their_verdicts() -> None:
    from bookkit.claims import judge

    claims = load_paper("agreement").claims
    found = {"agree.most": Finding(0.4, 0.3, 0.5), "agree.median": Finding(0.9, 0.8, 0.95)}
    judged = [judge(one, found, own_model=False) for one in claims]
    words = plain_words.plain_words(judged)
    first = words["What holds"][0]
    assert first.startswith("No two papers sort the heads into the same classes (<b>0.40</b>")
    assert "we asked whether even the two papers that agree best" in first
    assert '<a href="#agreement-words">words.not_the_same</a>' in first
    assert len(words["What does not hold, though we expected it"]) == 1
    assert "<li>" in words._repr_html_()


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        *[(0.035, "share", "4 %"), (-0.088, "order", "−0.09"), (0.05, "order", "+0.05")],
        *[(2.0, "exists", "2"), (0.407, "value", "0.41")],
    ],
)
def test_a_number_is_shown_by_its_kind(value: float, kind: str, shown: str) -> None:
    assert plain_words._number(value, kind) == shown


def test_every_claim_links_to_the_section_that_measures_it() -> None:
    text = (ROOT / "notebooks" / "agreement.ipynb").read_text(encoding="utf-8")
    for claim in load_paper("agreement").claims:
        assert f"({plain_words.anchor(claim.id)})=" in text


def test_every_class_has_a_digit() -> None:
    assert max(map(len, VOCABULARIES.values())) <= len(vocabularies.DIGITS)


def test_labels_come_back_from_a_table() -> None:
    table = labelled()
    labels, draws = labels_of(table, "rule")
    assert labels.tolist()[:2] == [PATTERNS[0], PATTERNS[-1]]
    assert draws.shape == (3, LAYERS * HEADS) and (draws == labels).all()


def test_numbers_as_text_prints_them() -> None:
    assert [signed(value) for value in (-0.126, 0.5, math.nan)] == ["−0.13", "0.50", "–"]


def test_heads_link_to_their_cards() -> None:
    assert head_links("2-7").endswith('href="../book/atlas.html#2-7">2-7</a>')
    assert head_links("1-1 1-2 1-3", most=2).endswith(">1-2</a> …")


def test_single_texts_and_their_lengths(e5_small: Encoder) -> None:
    one, two = Segment("a", "a cat"), Segment("b", "a cat", "a mat")
    singles, pairs_too = (Corpus("x", "segment", es, {}, "", "") for es in ((one,), (one, two)))
    assert [describe_corpus(one)["pairs"] for one in (singles, pairs_too)] == [0, 1]
    n = len(e5_small.tokenizer("a cat")["input_ids"])
    lengths = vocabularies.input_lengths(singles, encoder=e5_small).table
    assert lengths.to_dict("records") == [{"corpus": "x", "pieces": n}]


def test_a_threshold_changes_the_roles_alone() -> None:
    seen, counts = sighting(), np.ones((1, N))
    low, high = (named_heads(seen, counts, threshold=value) for value in (0.1, 3.0))
    assert (low["pande"] != high["pande"]).any()
    assert all((low[name] == high[name]).all() for name in VOCABULARIES if name != "pande")
