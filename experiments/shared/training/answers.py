"""The scores of extracted answers by the rules of SQuAD v1.1: exact match and F1 over words."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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


def check_answered(questions: Sequence[Any], corpus: str = "the test") -> None:
    """Refuse what is no question, and a question without an accepted answer."""
    wrong = [one.id for one in questions if not getattr(one, "answers", ())]
    if wrong or not questions:
        what = f"'{wrong[0]}' has no accepted answer" if wrong else "it is empty"
        raise CorpusError(
            f"'{corpus}' is no corpus of questions with answers: {what}; expected one such as "
            "squad:dev, wiki-questions:dev or reader-qa."
        )


def score_answers(given: Sequence[str], questions: Sequence[Question]) -> tuple[Numbers, Numbers]:
    """Exact match and F1 of one answer per question, each (question,) from 0 to 1."""
    if questions:
        check_answered(questions)
    accepted = [[one.text for one in question.answers] for question in questions]
    pairs = list(zip(given, accepted, strict=True))
    return np.array([exact_match(*p) for p in pairs]), np.array([token_f1(*p) for p in pairs])


def summary(em: Numbers, f1: Numbers, groups: Sequence[object], seed: int = 0) -> dict[str, float]:
    """Both means over the questions in percent, with 95 % bootstrap intervals.

    em, f1   (question,) from 0 to 1, as `score_answers` gives them
    groups   of each question, what is drawn again as a whole: its article, since the questions on
             one text are not independent
    returns  em, em_low, em_high, f1, f1_low, f1_high, n_questions, n_groups

    The mean is over questions whatever the groups: a drawn article brings all of its questions. A
    single group tells nothing about others: its intervals are NaN.
    """
    group = group_numbers(groups)
    total = np.stack([np.bincount(group, score) for score in (em, f1)], axis=1)
    sizes = np.bincount(group).astype(float)
    found = estimate(total, np.stack([sizes, sizes], axis=1), micro=True, seed=seed)
    row: dict[str, float] = {}
    for place, name in enumerate(("em", "f1")):
        for end, values in (("", found.mean), ("_low", found.low), ("_high", found.high)):
            row[name + end] = 100 * float(values[place])
    return row | {"n_questions": len(group), "n_groups": len(sizes)}


def group_numbers(groups: Sequence[object]) -> NDArray[np.intp]:
    """Groups as whole numbers from 0, in the order of their first appearance."""
    return pd.factorize(np.asarray(groups, dtype=object))[0]


def _overlap(found: Counter[str], wanted: Counter[str]) -> float:
    n_common = (found & wanted).total()
    return 2 * n_common / (found.total() + wanted.total()) if n_common else 0.0


def _checked(accepted: Sequence[str]) -> Sequence[str]:
    """Refuse no answer at all, and a single text, whose letters would pass for answers."""
    if isinstance(accepted, str) or not accepted:
        given = f"the text '{accepted}'" if accepted else "no accepted answer"
        raise BadValue(f"{given} given to compare with; expected a list of one answer or more.")
    return accepted
