"""Squares of agreement and crossed labels: what is drawn, what is refused."""

from __future__ import annotations

import pandas as pd
import pytest

from attnlib.errors import BadValue
from experiments.agreement.figures import agreement_square, crossed_labels

NAMES = {"a": "Alpha", "b": "Beta", "c": "Gamma"}
PAIRS = pd.DataFrame(
    {
        "one": ["a", "a", "b"],
        "other": ["b", "c", "c"],
        "ami": [0.4, 0.1, 0.25],
        "rho": [0.3, -0.6, 0.0],
        "weak": [False, True, False],
    }
)
WALL = pd.DataFrame(
    {
        "one": "a",
        "other": "b",
        "row": ["near", "near", "far", "far"],
        "column": ["line", "fog", "line", "fog"],
        "n": [5, 1, 0, 6],
        "expected": [2.5, 3.5, 2.5, 3.5],
        "heads": ["1-1 1-2 1-3 1-4 1-5", "2-7", "", "3-1 3-2 3-3 3-4 3-5 3-6"],
        "odd": [False, True, True, False],
    }
)


def texts(drawing: object) -> list[str]:
    (panel,) = drawing.figure.axes  # type: ignore[attr-defined]
    return [text.get_text() for text in panel.texts]


def test_every_pair_stands_once_below_the_diagonal() -> None:
    drawn = agreement_square(PAIRS, "ami", names=NAMES)
    assert texts(drawn) == ["0.40", "0.10", "0.25"]
    pd.testing.assert_frame_equal(drawn.table, PAIRS)


def test_another_number_stands_above_it() -> None:
    drawn = agreement_square(*(PAIRS, "ami"), names=NAMES, above="rho", diverging=True)
    assert sorted(texts(drawn)) == ["0.00", "0.10", "0.25", "0.30", "0.40", "−0.60"]
    at = {one.get_position()[::-1]: one.get_text() for one in drawn.figure.axes[0].texts}
    assert (at[2, 0], at[0, 2]) == ("0.10", "−0.60")  # Alpha and Gamma, below and above


def test_unsure_numbers_are_faint() -> None:
    drawn = agreement_square(PAIRS, "ami", names=NAMES, faint="weak")
    (panel,) = drawn.figure.axes
    faint = {text.get_text() for text in panel.texts if text.get_alpha() is not None}
    assert faint == {"0.10"}


def test_above_the_diagonal_another_column_decides() -> None:
    both = PAIRS.assign(weak=True, weak_above=[False, True, False])
    drawn = agreement_square(
        *(both, "ami"), names=NAMES, above="rho", faint="weak", above_faint="weak_above"
    )
    (panel,) = drawn.figure.axes
    faint = {text.get_text() for text in panel.texts if text.get_alpha() is not None}
    unsure = f"{both['rho'].iloc[1]:.2f}".replace("-", "−")
    assert faint == {"0.40", "0.10", "0.25", unsure}


def test_labels_that_contradict_are_framed_and_named() -> None:
    drawn = crossed_labels(WALL, "a", "b", names=NAMES, least=1)
    (panel,) = drawn.figure.axes
    assert len(panel.patches) == 1  # the empty contradiction has no frame
    assert "2-7" in texts(drawn) and "6" in texts(drawn)
    assert not any("1-1" in text for text in texts(drawn))  # labels that agree name no heads


def test_rare_labels_are_left_out() -> None:
    drawn = crossed_labels(WALL, "a", "b", names=NAMES, least=6)
    assert [label.get_text() for label in drawn.figure.axes[0].get_xticklabels()] == ["fog"]


@pytest.mark.parametrize("missing", ["one", "ami"])
def test_a_table_without_a_column_is_refused(missing: str) -> None:
    with pytest.raises(BadValue, match=f"no column {missing}"):
        agreement_square(PAIRS.drop(columns=missing), "ami", names=NAMES)


def test_a_pair_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadValue, match="no pair b and a"):
        crossed_labels(WALL, "b", "a", names=NAMES)
