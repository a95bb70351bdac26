"""Topics of the search: the right heads for what can be asked, best first."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.atlas import Atlas, Skill
from experiments.atlas.facts import FACTS
from experiments.atlas.search import Topic, topics
from experiments.atlas.words import RELATIONS, SYNONYMS
from tests.atlases import ROLES, N, fact, made_up, tiny_readings
from tests.families import one_thread

__all__ = ["one_thread"]  # fixture


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    return made_up(tiny_readings(tmp_path_factory.mktemp("atlas")))


def named(found: list[Topic], name: str) -> Topic:
    (one,) = [topic for topic in found if topic.name == name]
    return one


def test_topics_name_the_right_heads_best_first(atlas: Atlas) -> None:
    found = topics(atlas.facts)
    shares = np.array(atlas.fact("mass_to_next").value, float)
    assert named(found, "most attention to the piece just after").heads == tuple(
        np.argsort(-shares, kind="stable")[:12]
    )
    low = named(found, "least entropy").heads[0]
    assert atlas.fact("entropy").value[low] == min(atlas.fact("entropy").numbers)
    types = atlas.fact("guan_label")
    vertical = named(found, "type (Guan 2020): vertical").heads
    assert set(np.flatnonzero(types.value == "vertical")) == set(vertical)
    stability = [types.detail["stability"][head] for head in vertical]
    assert stability == sorted(stability, reverse=True)
    gains = named(found, "RTE without it: gains")
    values = atlas.fact("disabled_rte")
    assert all(values.value[head] > 0 for head in gains.heads)
    assert values.low is not None and values.low[gains.heads[0]] > 0
    assert "gains" in gains.words and "disabled" in gains.words


def test_harmless_and_unskilled_heads_are_found(atlas: Atlas) -> None:
    found = topics(atlas.facts)
    changes = np.array([one.value for one in atlas.facts if one.key.startswith("disabled_")])
    known = ~np.isnan(changes).all(axis=0)
    worst = np.where(known, np.nanmin(np.where(known, changes, 0), axis=0), -9)
    assert set(named(found, "harmless").heads) == set(np.flatnonzero(worst > -0.5))
    roles = np.array([atlas.fact(f"role_{role}").value for role in ROLES])
    assert set(named(found, "no role").heads) == set(np.flatnonzero(~roles.any(axis=0)))
    every = fact("role_block_authors", [1] * N)
    assert named(topics((*atlas.facts, every)), "no role") == named(found, "no role")


def test_evidence_can_be_searched(atlas: Atlas) -> None:
    topic = named(topics(atlas.facts), "best at: dobj")
    best = atlas.fact("best_relation")
    assert set(topic.heads) == set(np.flatnonzero(best.value == "dobj"))
    assert "direct object" in topic.words
    assert all("dobj" in why for why in topic.why)


def test_relations_are_found_best_first() -> None:
    """By the number of that relation, also where the fact is a class and has no numbers."""

    def finds(relation: str, accuracy: float, baseline: float = 60.0) -> Skill:
        return Skill(relation, "dep->head", accuracy, baseline)

    skills = [
        [finds("amod", 52.9)],
        [finds("dobj", 9.0, 8.0), finds("amod", 74.7)],
        [finds("amod", 90.8), finds("amod", 12.0)],
    ]
    one = fact("best_relation", ["amod", "dobj", "amod"], skills=skills)
    topic = named(topics([one]), "best at: amod")
    assert topic.heads == (2, 1, 0)
    assert topic.why[:2] == tuple(
        f"amod {accuracy}\xa0% (dependent\xa0→\xa0head; best offset 60.0\xa0%)"
        for accuracy in (90.8, 74.7)
    )
    role = fact("role_amod", [1, 1, 0, 1, 1], detail={"bias": [9.5, 9, 9, 4, 5.5]})
    five = fact("best_relation", ["amod"] * 5, skills=[*skills, [], []])
    found = topics([five, role])
    topic = named(found, "best at: amod")
    assert topic.heads == (2, 1, 0, 4, 3) and "adjective (amod)" not in {one.name for one in found}
    assert topic.why[3] == "Roles: adjective (amod), bias 5.50"
    strange = fact("best_relation", ["zzz"], skills=[[finds("zzz", 50)]])
    assert [one.words for one in topics([strange])] == ["zzz "], "a label without plain words"


def test_labels_have_plain_words() -> None:
    found = topics([fact("changed_dobj", [1, 2]), fact("mass_to_sep", [0, 1]), fact("xy", [1, 2])])
    objects, separators, strange = found
    assert "direct object" in objects.words and "separator" in separators.also
    assert (strange.words.split(), strange.also.split()) == (["xy", "xy"], ["Further", "facts"])
    special = named(topics([fact("special_mass", [0, 1])]), f"most {FACTS['special_mass']['name']}")
    assert "separator" in special.also, "a term that is not in its key"
    both = named(
        topics([fact("guan_label", ["dense&vertical"])]), "type (Guan 2020): dense&vertical"
    )
    assert "broad" in both.also and "stripe" in both.also
    assert all(text == text.strip() and text for text in {**RELATIONS, **SYNONYMS}.values())
    assert not set(RELATIONS) & set(SYNONYMS)
