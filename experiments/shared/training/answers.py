"""The scores of extracted answers by the rules of SQuAD v1.1: exact match and F1 over words."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnlib.data.examples import Question
from attnlib.errors import BadValue, CorpusError
from attnlib.measuring.bootstrap import estimate

Numbers = NDArray[np.float64]
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    """The text as SQuAD compares it: lower case, no punctuation, no articles, single blanks.

    The order matters. Punctuation goes first and leaves nothing behind, so "the-end" is one word
    that keeps its "the", and "U.S." is "us". Only ASCII punctuation goes: a long dash or a curly
    quote stays, and parts words for the articles but not for the blanks.
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(given: str, accepted: Sequence[str]) -> float:
    """1 if the answer equals any accepted one once both are normalised, else 0.

    Two answers of which nothing is left ("The", "...") are equal: 1.
    """
    wanted = {normalised(answer) for answer in _checked(accepted)}
    return float(normalised(given) in wanted)


def token_f1(given: str, accepted: Sequence[str]) -> float:
    r"""The best overlap with any accepted answer, as bags of normalised words.

    .. math:: F_1 = \frac{2 \sum_w \min(g_w, a_w)}{\sum_w g_w + \sum_w a_w}

    g_w and a_w say how often word w stands in the given and in the accepted answer. 0 without a
    common word, also if nothing is left of both, where the exact match is 1: so does the script
    of v1.1 (that of v2.0 says 1).
    """
    found = Counter(normalised(given).split())
    return max(_overlap(found, Counter(normalised(a).split())) for a in _checked(accepted))


def score_answers(given: Sequence[str], questions: Sequence[Question]) -> tuple[Numbers, Numbers]:
    """Exact match and F1 of one answer per question, each (question,) from 0 to 1."""
    if isinstance(given, str) or len(given) != len(questions):
        shown = "one text" if isinstance(given, str) else f"{len(given)} answers"
        raise BadValue(
            f"{shown} given for {len(questions)} questions; expected a list with one answer per "
            "question, in their order. Give '' where there is no answer."
        )
    em, f1 = np.zeros(len(questions)), np.zeros(len(questions))
    for place, (answer, question) in enumerate(zip(given, questions, strict=True)):
        accepted = [one.text for one in question.answers]
        if not accepted:
            raise CorpusError(
                f"question '{question.id}' has no accepted answer; expected one or more. Leave "
                "out the questions that cannot be scored."
            )
        em[place], f1[place] = exact_match(answer, accepted), token_f1(answer, accepted)
    return em, f1


def summary(
    em: ArrayLike, f1: ArrayLike, groups: Sequence[object] | None = None, seed: int = 0
) -> dict[str, float]:
    """Both means over the questions in percent, with 95 % bootstrap intervals.

    em, f1   (question,) from 0 to 1, as `score_answers` gives them
    groups   of each question, what is drawn again as a whole: its article, since the questions on
             one text are not independent. Without groups the questions themselves are drawn.
    returns  em, em_low, em_high, f1, f1_low, f1_high, n_questions, n_groups

    The mean is over questions whatever the groups: a drawn article brings all of its questions. A
    single group tells nothing about others: its intervals are NaN.
    """
    scores = np.stack(_paired(em, f1), axis=1)
    n = len(scores)
    if groups is None:
        groups = range(n)
    if len(groups) != n:
        raise BadValue(f"{len(groups)} groups given for {n} questions; expected one of each.")
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    of_question = np.array([numbers[group] for group in groups], dtype=np.int64)
    total, weight = np.zeros((2, len(numbers), 2))
    np.add.at(total, of_question, scores)
    np.add.at(weight, of_question, 1.0)
    found = estimate(total, weight, micro=True, seed=seed)
    row: dict[str, float] = {}
    for place, name in enumerate(("em", "f1")):
        for end, values in (("", found.mean), ("_low", found.low), ("_high", found.high)):
            row[name + end] = 100 * float(values[place])
    return row | {"n_questions": n, "n_groups": len(numbers)}


def _overlap(found: Counter[str], wanted: Counter[str]) -> float:
    n_common = (found & wanted).total()
    return 2 * n_common / (found.total() + wanted.total()) if n_common else 0.0


def _checked(accepted: Sequence[str]) -> Sequence[str]:
    """Refuse no answer at all, and a single text, whose letters would pass for answers."""
    if isinstance(accepted, str) or not accepted:
        given = f"the text '{accepted}'" if accepted else "no accepted answer"
        raise BadValue(f"{given} given to compare with; expected a list of one answer or more.")
    return accepted


def _paired(em: ArrayLike, f1: ArrayLike) -> tuple[Numbers, Numbers]:
    found = np.asarray(em, dtype=np.float64), np.asarray(f1, dtype=np.float64)
    if found[0].ndim != 1 or found[0].shape != found[1].shape or not len(found[0]):
        raise BadValue(
            f"em has shape {found[0].shape} and f1 {found[1].shape}; expected one number per "
            "question in both, of one question or more."
        )
    for name, values in zip(("em", "f1"), found, strict=True):
        if not ((values >= 0) & (values <= 1)).all():
            raise BadValue(f"{name} has a score outside 0 to 1; expected shares, not percent.")
    return found
