"""The check of an exercise: right answers pass, wrong ones get a hint that gives nothing away."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bookkit import check
from bookkit.errors import BadValue, UnknownName
from bookkit.teach import exercises
from bookkit.teach.exercises import cell, hit, number_of
from tests.seal_exercises import FILE, seal, sealed_text, teachers_copy

COPY = teachers_copy()
LABELS = list(COPY)
PARTS = [
    pytest.param(label, part, id=f"{label}/{part['name']}")
    for label, entry in COPY.items()
    for part in entry["part"]
]
NUMBERS = [one for one in PARTS if one.values[1]["kind"] == "number"]  # type: ignore[call-overload, index]


def right(label: str) -> dict[str, Any]:
    return {part["name"]: part["answer"] for part in COPY[label]["part"]}


def test_the_students_file_is_the_teachers_copy_sealed() -> None:
    assert FILE.read_text(encoding="utf-8") == sealed_text(COPY), "run tests/seal_exercises.py"


@pytest.mark.parametrize("label", LABELS)
def test_the_right_answer_passes(label: str) -> None:
    found = check(label, right(label))
    assert found.ok and found.hint == "", found
    assert check(exercises.exercise(label).short, right(label)).ok


@pytest.mark.parametrize(("label", "part"), NUMBERS)
def test_a_number_passes_as_people_round_it(label: str, part: dict[str, Any]) -> None:
    answer, step = float(part["answer"]), part["tolerance"]
    given = [answer, np.float32(answer), answer + 0.99 * step, answer - 0.99 * step, str(answer)]
    for one in given:
        assert check(label, {**right(label), part["name"]: one}).ok, one
    for one in (answer + 2.1 * step, answer - 2.1 * step):
        assert not check(label, {**right(label), part["name"]: one}).ok, one


@pytest.mark.parametrize(("label", "part"), PARTS)
def test_a_wrong_answer_gets_its_hint(label: str, part: dict[str, Any]) -> None:
    for wrong, hint in part["wrong"]:
        found = check(label, {**right(label), part["name"]: wrong})
        assert not found.ok and hint in found.hint, (wrong, found)


@pytest.mark.parametrize(("label", "part"), PARTS)
def test_an_unforeseen_answer_gets_some_hint(label: str, part: dict[str, Any]) -> None:
    odd: dict[str, Any] = {"number": 1234.5678, "word": "?", "set": ["?"], "list": [0.123, 77.7]}
    for one in (odd[part["kind"]], object(), math.nan, [], {}):
        found = check(label, {**right(label), part["name"]: one})
        assert not found.ok and len(found.hint) > 10, one


def said(part: dict[str, Any]) -> list[str]:
    return [part["hint"], *(hint for _, hint in part["wrong"])]


def gives_away(hint: str, part: dict[str, Any]) -> bool:
    """Whether a hint holds the answer, as a number or as the word that is asked for."""
    answer = part["answer"]
    if part["kind"] == "word":
        others = [one for one in part["choices"] if one != answer]
        named = [one for one in others if exercises.plain(one) in exercises.plain(hint)]
        whole = re.search(rf"(?<![\w&]){re.escape(exercises.plain(answer))}(?![\w&])", hint.lower())
        return bool(whole) and not named
    if part["kind"] == "set":
        return all(one in hint for one in answer)
    if part["kind"] == "list":
        return ", ".join(f"{one:g}" for one in answer) in hint
    numbers = [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", hint.replace(",", ""))]
    return any(abs(one - answer) <= part["tolerance"] for one in numbers if one not in SMALL)


SMALL = {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0}  # counting words of any sentence


@pytest.mark.parametrize(("label", "part"), PARTS)
def test_no_hint_gives_the_answer_away(label: str, part: dict[str, Any]) -> None:
    for hint in said(part):
        assert not gives_away(hint, part), hint


def test_a_telling_hint_would_be_seen() -> None:
    number = {"kind": "number", "answer": 0.2667, "tolerance": 0.005}
    word = {"kind": "word", "answer": "depth", "choices": ["depth", "width"]}
    assert gives_away("It is 0.267, of course.", number) and gives_away("Say depth.", word)
    assert not gives_away("Divide by six.", number) and not gives_away("Think.", word)


@pytest.mark.parametrize("label", LABELS)
def test_every_exercise_foresees_two_mistakes(label: str) -> None:
    assert sum(len(part["wrong"]) for part in COPY[label]["part"]) >= 2
    for part in COPY[label]["part"]:
        assert part["wrong"], f"{part['name']} foresees no mistake"
        assert all(hint.strip().endswith((".", "?", ")")) for hint in said(part))


def test_answers_do_not_stand_in_the_students_file() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert "answer =" not in text
    for label, part in ((p.values[0], p.values[1]) for p in PARTS):
        if part["kind"] == "number" and len(str(part["answer"])) >= 6:
            assert str(part["answer"]) not in text, label


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (26.67, "percent"),
        (-0.2667, "sign"),
        (0.7333, "rest to 1"),
        (3.75, "upside down"),
        ("26.67%", None),
        (Fraction(4, 15), None),
        (np.array([0.2667]), None),
    ],
)
def test_the_usual_slips_are_named(given: Any, hint: str | None) -> None:
    (remark, *_) = check("clark-by-hand", given).remarks
    assert remark.state == ("wrong" if hint else "right")
    assert hint is None or hint in remark.hint


def test_bits_are_told_from_nats() -> None:
    assert "bits" in check("clark-js", {"a": 1.0}).hint
    assert "bits" in check("pande-entropy", {"code_text": 8.64}).hint


def test_labels_numbers_and_near_misses() -> None:
    assert exercises.exercise("clark-3").label == "clark-offsets"
    assert exercises.exercise("clark2019-3").label == "clark-offsets"
    assert exercises.exercise("first-look-2").label == "first-look-mask"
    with pytest.raises(UnknownName, match=r"exercise 'clrk-3'. Did you mean 'clark-3'\?"):
        check("clrk-3", 1)
    with pytest.raises(UnknownName, match="Did you mean 'pande-entropy'"):
        check("pande-entropi", 1)


def test_answers_by_name_in_order_and_one_alone() -> None:
    assert check("clark-offsets", {"det": 2, "amod": 1, "all": 1, "share": 0.5}).ok
    assert check("clark-3", [2, 1, 1, 0.5]).ok
    alone = check("clark-3", 2)
    assert not alone.ok and "Still open: amod, all, share" in alone.hint
    assert "4 parts" in check("clark-3", [2, 1]).hint
    assert "no part 'dte'. Did you mean 'det'" in check("clark-3", {"dte": 2}).hint
    assert not check("clark-3", ...).ok


def test_words_are_forgiving_about_typing() -> None:
    assert check("clark-two-readings", {"method": " All  Words ", "fair": "MENTIONS"}).ok
    found = {"det dep→head", "det head→dep", "nsubj head→dep"}
    assert check("clark-by-hand", {"found": found}).remarks[-1].state == "right"
    assert "no choice" in check("clark-second-model", {"becomes": "dept"}).hint


def test_feedback_shows_itself_on_a_terminal_and_on_a_page() -> None:
    good, bad = check("clark-3", [2, 1, 1, 0.5]), check("clark-3", [-2, 1, 1, 50])
    assert repr(good).startswith("✓ clark-3") and "right." in repr(good)
    assert "✗ det" in repr(bad) and "…" in repr(check("clark-3", ...))
    assert bad._repr_html_().startswith("<div") and "percent" in bad._repr_html_()
    assert "<script" not in check("clark-by-hand", {"<script>": 1})._repr_html_()


def test_seals_hold_for_the_tolerance_and_not_beyond() -> None:
    sealed = seal("a/b", 0.5, 0.01)
    assert hit(sealed, "a/b", 0.51, 0.01) and hit(sealed, "a/b", 0.49, 0.01)
    assert not hit(sealed, "a/b", 0.53, 0.01) and not hit(sealed, "a/c", 0.5, 0.01)
    assert cell(-0.5, 1.0) == 0 and cell(2.5, 1.0) == 3
    assert not hit(seal("a/b", [1.0, 2.0], 0.1), "a/b", [1.0] * 10_000, 0.1)


@pytest.mark.parametrize("odd", ["a third", "", "1/0", True, math.inf, [1, 2], "0.1.2"])
def test_what_is_no_number_is_refused_in_a_sentence(odd: Any) -> None:
    with pytest.raises(BadValue, match="expected"):
        number_of(odd)


# The answers of the teacher's copy are typed; those that follow from a formula are checked by it.


def part_answer(label: str, name: str) -> Any:
    return right(label)[name]


def test_answers_by_formula() -> None:
    a, g = np.array([0.5, 0.3, 0.2]), np.array([2.0, -1.0, 1.0])
    slope = (np.diag(a) - np.outer(a, a)) @ g  # the softmax, differentiated
    mixed = np.array([5, 1, 1, 1]) / 8
    row, values = np.array([0.4, 0.3, 0.2, 0.1]), np.array([[0, 0], [2, 0], [0, 2], [2, 2]])
    wanted = {
        ("clark-softmax", "slope"): slope[0],
        ("clark-softmax", "move"): 0.1 * (g[2] - g[0]),
        ("clark-js", "b"): -(mixed * np.log(mixed)).sum() - math.log(4) / 2,
        ("kovaleva-best-of-144", "best"): 1 - (31 / 32) ** 144,
        ("kovaleva-split", "seen"): 1 - (143 / 144) ** 320,
        ("kovaleva-cosine", "uncropped"): 39 / 44,
        ("kovaleva-cosine", "stripe"): 0.81 / 0.82,
        ("kovaleva-maximum", "six"): sum(1 / k for k in range(1, 7)) / 14,
        ("kovaleva-maximum", "twelve"): sum(1 / k for k in range(1, 13)) / 14,
        ("kovaleva-already-even", "change"): np.linalg.norm(row @ values - 1),
        ("pande-entropy", "code_text"): 2 * math.log(20),
        ("pande-many", "expected"): 0.05 * 144 * 12,
    }
    for place, value in wanted.items():
        assert value == pytest.approx(part_answer(*place), rel=2e-3), place
    left = (0.91 - 0.84 * 0.87) / math.sqrt((1 - 0.84**2) * (1 - 0.87**2))
    assert left == pytest.approx(part_answer("kovaleva-neighbours", "left"), abs=0.01)


def test_answers_by_simulation_and_by_the_package() -> None:
    from scipy.stats import binomtest

    from attnlib.measuring.significance import from_moments, needed

    draw = np.random.default_rng(5)
    for n, name in ((50, "fifty"), (1000, "thousand")):
        best = draw.binomial(n, 0.2, size=(2000, 288)).max(1).mean() / n
        assert best == pytest.approx(part_answer("clark-selection", name), abs=0.003)
    found = from_moments(np.full(2, 3.2), np.full(2, 4.0), np.array([100, 1000]), 3.0)
    typed = [part_answer("pande-z", name) for name in ("hundred", "thousand")]
    np.testing.assert_allclose(found.p, typed, atol=2e-3)
    power = needed(np.array([3.5, 4.0, 6.0]), np.full(3, 3.0), 3.0)
    np.testing.assert_allclose(power, part_answer("pande-power", "needed"), atol=0.5)
    p = {9 + 2 * lost: binomtest(9 + lost, 9 + 2 * lost).pvalue for lost in range(20)}
    assert max(n for n in p if p[n] < 0.05) == part_answer("kovaleva-pairs", "changed")
    lengths = [n for n in range(5, 40) if n / 5 + 11 / 30 > 3]
    assert lengths[0] == part_answer("pande-ceiling", "local")
