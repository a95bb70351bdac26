"""Exact match and F1 of answers against plain loops, by hand, and what is refused."""

from __future__ import annotations

import math
import random
import re
import string
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from attnlib.data.examples import Answer, Question
from attnlib.errors import BadValue, CorpusError
from experiments.shared.training import answers

# --- SQuAD's rules as loops -----------------------------------------------------------------


def slow_words(text: str) -> list[str]:
    """Lower case, then punctuation, then articles, then blanks."""
    kept = ""
    for character in text.lower():
        if character not in string.punctuation:
            kept += character
    spaced = ""
    for run in re.findall(r"\w+|\W+", kept):
        spaced += " " if run in ("a", "an", "the") else run
    return spaced.split()


def slow_em(given: str, accepted: Sequence[str]) -> float:
    best = 0.0
    for answer in accepted:
        if slow_words(given) == slow_words(answer):
            best = 1.0
    return best


def slow_f1(given: str, accepted: Sequence[str]) -> float:
    best = 0.0
    for answer in accepted:
        found, wanted = slow_words(given), slow_words(answer)
        left = list(wanted)
        same = 0
        for word in found:
            if word in left:
                left.remove(word)
                same += 1
        if same:
            precision, recall = same / len(found), same / len(wanted)
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


ALPHABET = ["a", "the", "an", "The", "cat", "Cat's", "dog", "-", "dog.", "…", "–", "thé", "  ", "9"]


def random_answers(seed: int, n: int = 400) -> list[tuple[str, list[str]]]:
    rng = random.Random(seed)

    def text() -> str:
        words = rng.choices(ALPHABET, k=rng.randrange(6))
        return rng.choice(["", " "]).join(words) if rng.random() < 0.2 else " ".join(words)

    return [(text(), [text() for _ in range(rng.randint(1, 4))]) for _ in range(n)]


Score = Callable[[str, Sequence[str]], float]


def differs(score: Score, slow: Score, seed: int = 0) -> bool:
    cases = random_answers(seed)
    return any(abs(score(*case) - slow(*case)) > 1e-12 for case in cases)


@pytest.mark.parametrize("seed", range(3))
def test_scores_are_those_of_the_loops(seed: int) -> None:
    assert not differs(answers.exact_match, slow_em, seed)
    assert not differs(answers.token_f1, slow_f1, seed)
    for given, _ in random_answers(seed):
        assert answers.normalised(given).split() == slow_words(given)
    values = {answers.token_f1(*case) for case in random_answers(seed)}
    assert {0.0, 1.0} < values  # the cases reach both ends and what is between


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("no lower case", lambda text: "".join(c for c in text if c not in string.punctuation)),
        ("articles first", lambda text: re.sub(r"[^\w\s]", "", text.lower())),
        ("articles stay", lambda text: " ".join(re.findall(r"\w+", text.lower()))),
        ("articles inside words", lambda text: re.sub("a|an|the", " ", text.lower())),
    ],
)
def test_a_wrong_rule_is_caught(
    name: str, wrong: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "normalised", wrong)
    assert differs(answers.token_f1, slow_f1), name
    assert differs(answers.exact_match, slow_em), name


def test_sets_of_words_instead_of_bags_are_caught() -> None:
    def as_sets(given: str, accepted: Sequence[str]) -> float:
        found = set(slow_words(given))
        return max(
            2 * len(found & set(slow_words(a))) / max(1, len(found) + len(set(slow_words(a))))
            for a in accepted
        )

    assert differs(as_sets, slow_f1)


# --- by hand --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel\tTower.", "eiffel tower"),
        ("an apple, a pear and the fig", "apple pear and fig"),
        ("Theatre of Athens", "theatre of athens"),  # no article is a part of a word
        ("U.S.", "us"),
        ("the-end", "theend"),  # joined before articles are sought
        ("A", ""),
        ("...", ""),
        ("1914–1918", "1914–1918"),  # a long dash is no ASCII punctuation
        ("“the” cat", "“ ” cat"),
        ("the—end", "—end"),
        ("Ärger, ÀÉ", "ärger àé"),
        ("a_b the_c", "ab thec"),
        ("", ""),
    ],
)
def test_normalised_by_hand(text: str, expected: str) -> None:
    assert answers.normalised(text) == expected


@pytest.mark.parametrize(
    ("given", "accepted", "em", "f1"),
    [
        ("the Normans", ["Normans", "William"], 1, 1),
        ("Duke William", ["Normans", "William"], 0, 2 / 3),
        ("in the 10th century", ["10th century", "the first half of the 10th century"], 0, 4 / 5),
        ("France", ["Paris"], 0, 0),
        ("cat cat", ["cat"], 0, 2 / 3),  # a bag, not a set
        ("B A", ["A B"], 1, 1),  # the article goes
        ("c b", ["b c"], 0, 1),  # F1 does not see the order
        ("1914-1918", ["1914–1918"], 0, 0),
        ("", ["Paris"], 0, 0),
        ("Paris", [""], 0, 0),
        ("", ["the"], 1, 0),  # nothing is left of both: v1.1 says 1 and 0
    ],
)
def test_scores_by_hand(given: str, accepted: list[str], em: float, f1: float) -> None:
    assert answers.exact_match(given, accepted) == em
    assert answers.token_f1(given, accepted) == pytest.approx(f1)


@pytest.mark.parametrize("seed", range(2))
def test_laws(seed: int) -> None:
    for given, accepted in random_answers(seed, 200):
        em, f1 = answers.exact_match(given, accepted), answers.token_f1(given, accepted)
        assert em in (0, 1)
        assert 0 <= f1 <= 1
        if em and answers.normalised(given):
            assert f1 == 1
        first = accepted[0]
        assert answers.token_f1(given, [first]) == answers.token_f1(first, [given])
        assert answers.exact_match(given, [first]) == answers.exact_match(first, [given])
        assert answers.token_f1(given, accepted[::-1]) == f1
        assert answers.token_f1(given, [*accepted, "zebra"]) == f1  # more answers never harm
        assert max(answers.token_f1(given, [one]) for one in accepted) == f1
        if slow_words(given):
            assert answers.token_f1(given, [given]) == 1


# --- over questions ---------------------------------------------------------------------------


def question(name: str, *accepted: str, article: str = "A") -> Question:
    context = " ".join(accepted)
    found = tuple(Answer(text, context.index(text)) for text in accepted)
    return Question(name, "What is it?", context, found, article)


def test_each_answer_is_scored_against_its_own_question() -> None:
    questions = [question("1", "Paris", "the city of Paris"), question("2", "1914"), question("3")]
    em, f1 = answers.score_answers(["Paris city", "1914."], questions[:2])
    assert em.tolist() == [0, 1]
    assert f1.tolist() == pytest.approx([0.8, 1])
    assert em.dtype == f1.dtype == np.float64
    empty = answers.score_answers([], [])
    assert [values.shape for values in empty] == [(0,), (0,)]
    with pytest.raises(CorpusError, match="'3' has no accepted answer"):
        answers.score_answers(["", "", ""], questions)


@pytest.mark.parametrize("score", [answers.exact_match, answers.token_f1])
def test_no_list_of_accepted_answers(score: Score) -> None:
    with pytest.raises(BadValue, match="no accepted answer given"):
        score("Paris", [])
    with pytest.raises(BadValue, match="the text 'Paris' given"):
        score("P", "Paris")


# --- the summary ------------------------------------------------------------------------------


def test_means_are_percent_of_questions_whatever_the_groups() -> None:
    em, f1 = np.array([1.0, 0, 0, 0]), np.array([1, 0.5, 0.5, 0.2])
    plain = answers.summary(em, f1, range(4))
    grouped = answers.summary(em, f1, ["x", "y", "y", "y"])
    for row in (plain, grouped):
        assert row["em"] == pytest.approx(25)
        assert row["f1"] == pytest.approx(55)
        assert row["n_questions"] == 4
        for name in ("em", "f1"):
            assert 0 <= row[f"{name}_low"] <= row[name] <= row[f"{name}_high"] <= 100
    assert (plain["n_groups"], grouped["n_groups"]) == (4, 2)
    # of two articles a draw is xx, xy or yy
    assert (grouped["em_low"], grouped["em_high"]) == (0, 100)
    assert grouped["f1_low"] == pytest.approx(40)


def slow_interval(scores: list[float], groups: list[str], seed: int) -> tuple[float, float]:
    """Articles drawn again with replacement; the mean over the questions they bring."""
    rng = random.Random(seed)
    names = sorted(set(groups))
    means = []
    for _ in range(3000):
        drawn = [rng.choice(names) for _ in names]
        brought = [s for name in drawn for s, g in zip(scores, groups, strict=True) if g == name]
        means.append(sum(brought) / len(brought))
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def test_articles_are_drawn_as_a_whole() -> None:
    rng = random.Random(4)
    groups = [f"g{n % 8}" for n in range(120)]
    level = {name: rng.random() for name in set(groups)}
    f1 = [min(1.0, max(0.0, level[g] + rng.gauss(0, 0.05))) for g in groups]
    em = [float(value > 0.5) for value in f1]
    row = answers.summary(np.array(em), np.array(f1), groups)
    low, high = slow_interval(f1, groups, 1)
    width = high - low
    assert row["f1_low"] / 100 == pytest.approx(low, abs=0.1 * width)
    assert row["f1_high"] / 100 == pytest.approx(high, abs=0.1 * width)
    alone = answers.summary(
        np.array(em), np.array(f1), range(120)
    )  # as if all were independent: far too narrow here
    assert alone["f1_high"] - alone["f1_low"] < 0.6 * (row["f1_high"] - row["f1_low"])


def test_the_seed_seeds_and_one_group_has_no_interval() -> None:
    em, f1 = np.random.default_rng(0).random((2, 50))
    first = answers.summary(em, f1, range(50), seed=1)
    assert first == answers.summary(em, f1, range(50), seed=1)
    assert first != answers.summary(em, f1, range(50), seed=2)
    one = answers.summary(em, f1, groups=["same"] * 50)
    assert one["f1"] == first["f1"]
    assert all(math.isnan(one[f"{name}_{end}"]) for name in ("em", "f1") for end in ("low", "high"))
