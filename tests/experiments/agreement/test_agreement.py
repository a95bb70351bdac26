"""The agreement chapter: names of heads by other routes, planted agreement, effects by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment
from attnlib.measuring.best_heads import DIRECTIONS, accuracy_grid
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.significance import ALPHA, one_sided
from attnlib.models import Encoder
from bookkit.claims import Finding, load_paper
from bookkit.store import Found
from experiments.agreement import (
    effects,
    head_numbers,
    importance,
    label_agreement,
    plain_words,
    skills,
    vocabularies,
)
from experiments.agreement.figures import head_links, signed
from experiments.agreement.forecasts import forecasts
from experiments.agreement.head_numbers import OFFSETS, ROLES, SURFACE, Sighting
from experiments.agreement.label_agreement import TWIN, form_and_kind, model_agreement
from experiments.agreement.vocabularies import (
    JUDGED,
    QUESTIONS,
    ROLE_SETS,
    VOCABULARIES,
    answers,
    labels_of,
    named_heads,
)
from experiments.clark2019.surface import behaviours
from experiments.kovaleva2019.patterns import PATTERNS, rule, rule_metric
from experiments.shared.chapter import describe_corpus
from experiments.shared.head_types import fitted, named_types
from experiments.shared.intervals import chance_p
from experiments.shared.sortings import agreement_kappa
from tests.attnlib.measuring.test_best_heads import picked, random_maps, random_trees
from tests.maps import random_attention

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
    return Sighting(values, features, PARTS, patterns, draw.random((*shape, len(OFFSETS))))


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
    )
    one, other = named_heads(seen, counts), named_heads(again, WHOLE)
    assert all(np.array_equal(one[name], other[name]) for name in VOCABULARIES)


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
    found = rule_metric()(attention)
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


def test_the_same_sorting_under_other_names_agrees_wholly() -> None:
    found = label_agreement.label_agreement(labelled(), ENTROPY)
    of_papers = [label_agreement.of_papers(row.one, row.other) for row in found.table.itertuples()]
    rows = found.table[of_papers]
    assert len(rows) == 9 and (rows["ami"] == 1).all()
    assert found.findings["agree.median"].value == 1
    assert found.findings["agree.beyond_chance"].value == 1
    assert found.findings["agree.beyond_layers"].value == 1
    # heads alternate inside every layer, and entropy rises with the layers
    assert found.findings["agree.layer_lead"].value < -0.9


def test_random_sortings_do_not_agree() -> None:
    draw = np.random.default_rng(0)
    given = {
        name: draw.choice([classes[0], classes[1]], LAYERS * HEADS).tolist()
        for name, classes in VOCABULARIES.items()
    }
    found = label_agreement.label_agreement(labelled(**given), ENTROPY)
    assert found.findings["agree.beyond_chance"].value < 0.3
    assert abs(found.findings["agree.median"].value) < 0.15


def test_sortings_that_follow_the_layers_do_not_agree_beyond_them() -> None:
    layers = np.repeat(np.arange(LAYERS), HEADS)
    given = {
        name: [classes[0] if layer < 2 else classes[1] for layer in layers]
        for name, classes in VOCABULARIES.items()
    }
    found = label_agreement.label_agreement(labelled(**given), ENTROPY)
    assert found.findings["agree.beyond_chance"].value == 1
    assert found.findings["agree.beyond_layers"].value == 0


def test_kappas_of_questions_by_hand() -> None:
    half = LAYERS * HEADS // 2
    given = {
        "clark": ["next"] * half + ["broad"] * half,
        "guan": ["diagonal"] * half + ["dense"] * half,
        "rule": ["diagonal"] * (half - 3) + ["heterogeneous"] * (half + 3),
    }
    found = label_agreement.question_agreement(labelled(**given))
    rows = found.table.set_index(["question", "one", "other"])["kappa"]
    assert rows["near", "clark", "guan"] == 1
    seen, luck = 21 / 24, 0.5
    assert rows["near", "clark", "rule"] == pytest.approx((seen - luck) / (1 - luck))
    assert math.isnan(rows["special", "clark", "guan"])  # nobody says yes


def test_unanimous_heads_by_hand() -> None:
    n = LAYERS * HEADS
    given = {
        "clark": ["next"] * n,
        "rule": ["diagonal"] * n,
        "network": ["diagonal"] * (n - 4) + ["vertical+diagonal"] * 4,
        "guan": ["diagonal"] * n,
        "pande": ["local"] * n,
    }
    found = label_agreement.question_agreement(labelled(**given))
    assert found.findings["agree.unanimous"].value == pytest.approx(20 / 24)


def test_the_wall_counts_every_head_once_in_every_pair() -> None:
    wall = label_agreement.confusion_wall(labelled())
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
    assert label_agreement._odd(row, one, column, other) is odd
    assert label_agreement._odd(column, other, row, one) is odd


# --- effects --------------------------------------------------------------------------------------


def test_costs_and_changed_answers_by_hand() -> None:
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
    found = effects.task_effects(table, task="rte").table.set_index(["layer", "head"])
    assert found["cost"].to_dict() == {(1, 1): 0, (1, 2): 0, (2, 1): 50}
    assert found["influence"].to_dict() == {(1, 1): 0, (1, 2): 50, (2, 1): 50}


def test_changed_scores_are_told_in_the_labels_spread() -> None:
    labels = [0.0, 1, 2, 3]
    table = pd.DataFrame({"label": labels, "whole": labels, "1-1": [0.5, 1.5, 2.5, 3.5]})
    found = effects.task_effects(table, task="stsb").table.iloc[0]
    assert found["influence"] == pytest.approx(100 * 0.5 / np.std(labels))
    assert found["cost"] == pytest.approx(0)  # the order is the same


def swept(n: int, spread: float, seed: int = 0) -> pd.DataFrame:
    """Heads that change from 0 to 2 * spread of the answers, for better and worse alike."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, n)
    whole = np.where(draw.random(n) < 0.7, labels, 1 - labels)
    columns: dict[str, Any] = {"label": labels.astype(float), "whole": whole}
    for layer in range(1, 5):
        for head in range(1, 13):
            flip = draw.random(n) < spread * 2 * (12 * (layer - 1) + head - 1) / 47
            columns[f"{layer}-{head}"] = np.where(flip, 1 - whole, whole)
    return pd.DataFrame(columns)


def test_a_planted_influence_is_reliable_and_heads_that_differ_in_nothing_are_not() -> None:
    found = effects.task_effects(swept(600, 0.1), task="rte").facts["reliability"]
    assert found["influence"] > 0.8
    flat = swept(600, 0.0)
    for name in flat.columns[2:]:
        flip = np.random.default_rng(int(name.replace("-", ""))).random(600) < 0.05
        flat[name] = np.where(flip, 1 - flat["whole"], flat["whole"])
    noise = effects.task_effects(flat, task="rte").facts["reliability"]
    assert abs(noise["influence"]) < 0.4 and abs(noise["cost"]) < 0.4


def test_heads_that_do_nothing_have_no_reliability() -> None:
    table = swept(100, 0.0)
    assert effects.task_effects(table, task="rte").facts["reliability"]["cost"] is None


def test_reliability_steps_up_as_spearman_and_brown_say() -> None:
    one = np.arange(10.0)
    assert effects._reliability([(one, one)]) == pytest.approx(1)
    other = one.copy()
    other[[0, 9]] = other[[9, 0]]
    r = 1 - 6 * 2 * 81 / (10 * 99)
    assert effects._reliability([(one, other)]) == pytest.approx(2 * r / (1 + r) if r > 0 else r)


def test_medians_over_tasks() -> None:
    facts = {
        "a": {"reliability": {"cost": 0.1, "influence": 0.9}},
        "b": {"reliability": {"cost": None, "influence": 0.5}},
        "c": {"reliability": {"cost": 0.3, "influence": 0.7}},
        "questions": {"reliability": {"cost": 0.9, "influence": 0.1}},  # a loss, no points
    }
    found = effects.effect_reliability(facts=facts)
    assert found.findings["reliability.cost"].value == pytest.approx(0.2)
    assert found.findings["reliability.influence"].value == pytest.approx(0.7)


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


# --- importance and forecasts ---------------------------------------------------------------------


def important(seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    layer, head = (part.ravel() + 1 for part in np.indices((6, 8)))
    table = pd.DataFrame({"layer": layer, "head": head})
    for name in vocabularies.MEASURES:
        table[name] = draw.normal(size=48)
    table["gradient"] = table["cost"] + 0.1 * draw.normal(size=48)
    table["questions"] = table["cost"] ** 3
    table["change"] = layer + 0.01 * table["change"]
    table["relations"] = layer + 0.01 * table["relations"]
    return table


def test_importance_finds_what_is_alike_and_what_only_the_layer_makes_alike() -> None:
    found = importance.importance_agreement(important())
    rows = found.table.set_index(["one", "other"])
    assert rows.loc[("cost", "gradient"), "rho"] > 0.9
    assert rows.loc[("cost", "questions"), "rho"] == pytest.approx(1)
    layered = rows.loc[("change", "relations")]
    assert layered["rho"] > 0.9 and layered["q"] < 0.01
    assert abs(layered["rho_within"]) < 0.5 and layered["q_within"] > 0.05
    assert found.findings["importance.cost_gradient"].low > 0.8


def test_forecasts_find_the_vocabulary_that_knows() -> None:
    draw = np.random.default_rng(0)
    table = important()
    knows = np.where(table["influence"] > 0, "next", "broad").tolist()
    labels = []
    for name, classes in VOCABULARIES.items():
        own = knows if name == "clark" else draw.choice(classes[:2], 48).tolist()
        grid = np.array(own, dtype=object).reshape(6, 8)
        draws = [vocabularies.DIGITS[classes.index(label)] for label in own]
        labels.append(head_rows(label=grid).assign(vocabulary=name, draws=draws))
    keys = ["entropy", "mass_to_next", "rule_block", "network_block", "part_self", "bias_local"]
    numbers = [head_rows(mean=draw.normal(size=(6, 8))).assign(key=key) for key in keys]
    found = forecasts(pd.concat(labels), pd.concat(numbers), table, shuffles=20)
    own = found.table[found.table["target"] == "influence"]
    best = own.loc[own["r2"].idxmax()]
    assert (best["design"], best["form"]) == ("clark", "labels") and best["r2"] > 0.4
    assert found.findings["forecast.influence.lead"].value > 0.3
    assert found.findings["forecast.influence.label_loss"].value < 0


# --- sayings --------------------------------------------------------------------------------------


def said(**planted: Any) -> Found:
    """Sayings of 48 heads and two tasks: all noise, but for what is planted."""
    draw = np.random.default_rng(4)
    table = important(4).assign(roles=draw.integers(0, 4, 48).astype(float))
    for task in ("a", "b"):
        table[f"change_{task}"], table[f"influence_{task}"] = draw.normal(size=(2, 48))
    table["influence_b"] = 0.0  # a task whose answers never change
    masses = {key: draw.random(48) for key in SURFACE if key.startswith("mass_to_")}
    relations = [
        head_rows(accuracy=100 * draw.random((6, 8))).assign(relation=name) for name in ("x", "y")
    ]
    costs = [head_rows(cost=draw.normal(size=(6, 8))).assign(p=0.5) for _ in range(2)]
    given = {"table": table, "masses": masses, "relations": relations, "costs": costs}
    for name, change in planted.items():
        change(given[name])
    numbers = [head_rows(mean=mass.reshape(6, 8)).assign(key=key) for key, mass in masses.items()]
    return importance.sayings(
        table, pd.concat(numbers), pd.concat(relations), *costs, tasks=["a", "b"]
    )


def test_of_noise_nothing_can_be_said() -> None:
    found = said()
    assert (found.table["q"] > 0.05).all() and (found.table["low"] < found.table["high"]).all()
    assert found.findings["saying.helped"].value == 0
    assert found.findings["saying.idle"].value == 1
    assert found.table["saying"].tolist() == list(vocabularies.SAYINGS)


def test_a_saying_that_is_true_is_found() -> None:
    def idle(masses: dict[str, np.ndarray]) -> None:
        masses["mass_to_sep"][:] = -important(4)["influence"].to_numpy()

    row = said(masses=idle).table.set_index("saying").loc["sep"]
    assert row["rho"] < -0.95 and row["q"] < 0.01 and row["high"] < -0.8


def test_what_only_the_layer_makes_true_is_not_said() -> None:
    def layered(table: pd.DataFrame) -> None:
        table["influence"] = table["layer"] + 0.01 * table["influence"]

    rows = said(table=layered).table.set_index("saying")  # relations follow the layer, too
    assert abs(rows.loc["syntax", "rho"]) < 0.5 and rows.loc["syntax", "q"] > 0.05


def test_fine_tuning_is_compared_task_by_task() -> None:
    def needed(table: pd.DataFrame) -> None:
        table["change_a"] = np.exp(table["influence_a"])

    row = said(table=needed).table.set_index("saying").loc["tuned"]
    assert row["rho"] == pytest.approx(1)  # the task without changed answers is left out


def test_shares_and_counts_by_hand() -> None:
    def few(table: pd.DataFrame) -> None:
        table["roles"] = [0, 1, 2, 3] * 12

    def one_head(relations: list[pd.DataFrame]) -> None:
        relations[0]["accuracy"] = [80.0, 69.0, *[20.0] * 46]
        relations[1]["accuracy"] = [80.0, 71.0, *[20.0] * 46]

    def two_cases(costs: list[pd.DataFrame]) -> None:
        costs[0].loc[0, ["cost", "p"]] = [3.0, 1e-6]
        costs[1].loc[5, ["cost", "p"]] = [-2.0, 1e-6]
        costs[1].loc[6, ["cost", "p"]] = [-2.0, 0.04]  # does not survive control

    found = said(table=few, relations=one_head, costs=two_cases).findings
    assert found["saying.one_job"].value == 0.5
    assert found["saying.one_job"].low < 0.5 < found["saying.one_job"].high
    assert found["saying.one_head"].value == 0.5
    assert found["saying.idle"].value == pytest.approx(1 - 1 / 96)
    assert found["saying.helped"].value == 1


def test_nothing_to_correlate_has_no_p() -> None:
    assert math.isnan(chance_p(math.nan, np.zeros(9)))
    assert chance_p(0.5, np.abs([0.1, -0.6, 0.2])) == 0.5


# --- stability ------------------------------------------------------------------------------------


def test_stability_over_halves_and_domains_by_hand() -> None:
    halves = {name: [0.5, 0.7, None] for name in VOCABULARIES}
    swapped = labelled(clark=["other", "broad"] * (LAYERS * HEADS // 2))
    found = label_agreement.label_stability(
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
    assert found.findings["stability.twin"].value == pytest.approx(0.6)


def test_labels_of_a_network_that_never_vary_have_no_kappa() -> None:
    nothing = {name: [None, None] for name in VOCABULARIES}
    found = label_agreement.label_stability(
        labelled(), names=["wiki"], models=[TWIN], halves=[nothing]
    )
    assert found.table["kappa"].isna().all()
    assert math.isnan(found.findings["stability.twin"].value)


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
    assert found.findings["models.1.median"].value == 1
    assert found.findings["models.twin.median"].value == 1
    assert "models.order" not in found.findings


# --- claims and words -----------------------------------------------------------------------------


def test_every_claim_asks_for_a_number_that_some_experiment_names() -> None:
    served = {
        *(f"agree.{name}" for name in ("least", "median", "most", "beyond_chance")),
        *("agree.beyond_layers", "agree.entropy_lead", "agree.layer_lead"),
        *("agree.rule_network_lead", "agree.unanimous", "kappa.near.median"),
        *("kappa.special.median", "reliability.cost", "reliability.influence"),
        *("forecast.cost.best", "forecast.influence.baseline", "forecast.influence.lead"),
        *("forecast.influence.label_loss", "importance.median", "importance.alike_within"),
        *("importance.cost_gradient", "stability.inputs.least", "stability.domains.least"),
        *("models.twin.median", "models.order", "form.kappa", "form.lead"),
        *(f"saying.{name}" for name in vocabularies.SAYINGS),
        *("saying.one_job", "saying.one_head", "saying.idle", "saying.helped"),
    }
    asked = {claim.phenomenon.measure for claim in load_paper("agreement").claims}
    assert asked <= served


def test_sentences_stand_under_their_verdicts() -> None:
    from bookkit.claims import judge

    claims = load_paper("agreement").claims
    found = {"agree.most": Finding(0.4, 0.3, 0.5), "agree.median": Finding(0.9, 0.8, 1.0)}
    judged = [judge(one, found, own_model=False) for one in claims]
    words = plain_words.plain_words(judged)
    first = words["What holds"][0]
    said = "No two papers speak of the same classes (<b>0.40</b>; the threshold was"
    assert first.startswith(said)
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


def test_the_least_stable_vocabulary_is_found() -> None:
    halves = {name: [None] for name in VOCABULARIES}
    found = label_agreement.label_stability(
        *(labelled(), labelled(guan=["dense", "vertical"] * (LAYERS * HEADS // 2)), labelled()),
        names=["wiki", "web", "wiki"],
        models=["m", "m", TWIN],
        halves=[halves | {"rule": [0.9], "clark": [0.7]}] * 2 + [halves | {"guan": [0.3]}],
    )
    assert found.findings["stability.inputs.least"].value == 0.7
    assert found.findings["stability.twin"].value == 0.3


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
    lengths = label_agreement.input_lengths(singles, encoder=e5_small).table
    assert lengths.to_dict("records") == [{"corpus": "x", "pieces": n}]


def test_a_threshold_changes_the_roles_alone() -> None:
    seen, counts = sighting(), np.ones((1, N))
    low, high = (named_heads(seen, counts, threshold=value) for value in (0.1, 3.0))
    assert (low["pande"] != high["pande"]).any()
    assert all((low[name] == high[name]).all() for name in VOCABULARIES if name != "pande")
