"""Which functional roles each head has: bias scores of every input, then a test of every head."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnlib.attention.encode import batches_of
from attnlib.data.corpora import Corpus, with_trees
from attnlib.errors import BadValue, check_choice
from attnlib.measuring.bootstrap import mean_ends
from attnlib.measuring.head_tables import head_names, head_rows, records
from attnlib.measuring.significance import (
    ALPHA,
    TESTS,
    benjamini_hochberg,
    from_moments,
    holm,
    needed,
    one_sided,
)
from attnlib.measuring.stream import stream
from attnlib.metrics.registry import METRICS
from attnlib.metrics.relations import Relation
from attnlib.metrics.sieves import SIEVES, asks_for_trees, bias_metric, even_share
from attnlib.models import Encoder

THRESHOLD = 3.0
CONTROLS = ("none", "bh", "holm")
AUTHORS = "@authors"
"""Behind the name of a role whose score is that of the authors' code."""


@dataclass(frozen=True, eq=False)
class RoleScores:
    """The bias score of every input, by role; NaN where an input does not define the role.

    values    role -> (example, layer, head), the examples in the order of the corpus
    ceilings  role -> the mean over inputs of the highest score that a head could have at all
    n_tokens  pieces that were read
    """

    values: Mapping[str, Float[np.ndarray, "example layer head"]]
    ceilings: Mapping[str, float]
    n_inputs: int
    n_tokens: int
    skipped: Mapping[str, int]
    seconds: float

    def defined(self, role: str) -> int:
        """Inputs that define a role."""
        return int((~np.isnan(self.values[role])).any((1, 2)).sum())


def role_scores(
    encoder: Encoder,
    corpus: Corpus,
    sieves: Sequence[Relation] | None = None,
    *,
    authors: Sequence[str] = (),
    on_long: str = "truncate",
    **reading: Any,
) -> RoleScores:
    """The scores of all heads for some sieves, by default the paper's, in one pass over a corpus.

    authors  roles that are also scored as the authors' code does; their names end in @authors
    reading  max_length, batch_size: see `batches_of`
    Texts without dependency trees are parsed first, unless all sieves are known to need none.

    >>> from attnlib import load_corpus, random_encoder, role_scores
    >>> from attnlib.metrics.sieves import SIEVES
    >>> texts = load_corpus("reader", limit=3)
    >>> role_scores(random_encoder(), texts, [SIEVES["sep"]]).values["sep"].shape
    (3, 2, 2)
    """
    chosen = list(SIEVES.values()) if sieves is None else list(sieves)
    if not chosen:
        raise BadValue("no sieve was given; expected at least one.")
    metrics = {sieve.key: bias_metric(sieve) for sieve in chosen}
    if len(metrics) < len(chosen):
        raise BadValue("two sieves have the same key. Give each a key of its own.")
    for role in authors:
        metrics[f"{role}{AUTHORS}"] = METRICS[f"bias_{role}{AUTHORS}"]
    parsed = with_trees(corpus) if any(asks_for_trees(sieve) for sieve in chosen) else corpus
    reading |= {"on_long": on_long}
    found = stream(encoder, parsed, list(metrics.values()), **reading).not_empty()
    values = {role: found.values(one.key).astype(np.float32) for role, one in metrics.items()}
    ceilings, n_tokens = _ceilings(encoder, parsed, chosen, reading)
    skipped = dict(found.skipped)
    return RoleScores(values, ceilings, found.n_examples, n_tokens, skipped, found.seconds)


def _ceilings(
    encoder: Encoder, corpus: Corpus, sieves: Sequence[Relation], reading: Mapping[str, Any]
) -> tuple[dict[str, float], int]:
    """The score of a head that gives every sieve all of its attention; needs no model.

    It is the mean of n / |S| over the queries that are asked. Where the sieve is half of the
    input, as a block is, it is about 2 whatever the head does.
    """
    sums = {sieve.key: [0.0, 0] for sieve in sieves}
    n_tokens = 0
    for batch in batches_of(corpus.examples, encoder, **reading):
        n_tokens += int(batch.real.sum())
        for sieve in sieves:
            counts, asked = even_share(batch, sieve.mask(batch), "paper", relation=sieve)
            has = asked > 0
            sums[sieve.key][0] += float((counts.sum(-1)[has] / asked[has]).sum())
            sums[sieve.key][1] += int(has.sum())
    return {key: total / n if n else math.nan for key, (total, n) in sums.items()}, n_tokens


def moments(scores: RoleScores, *, seed: int = 0) -> pd.DataFrame:
    """One row per role and head: what any test at any threshold needs of the scores.

    bias, low, high  mean over the inputs that define the role, with its bootstrap interval
    sd, skew, median, n
    """
    parts = []
    for role, values in scores.values.items():
        found = mean_ends(values, seed)
        spread = one_sided(values, 0.0)
        median = pd.DataFrame(values.reshape(len(values), -1)).median().to_numpy()
        shape = {"sd": spread.sd, "skew": _skew(values), "median": median, "n": spread.n}
        part = head_rows(bias=found.mean, low=found.low, high=found.high, **shape)
        part.insert(0, "role", role)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def role_tests(
    table: pd.DataFrame,
    *,
    threshold: float = THRESHOLD,
    test: str = "z",
    alpha: float = ALPHA,
    control: str = "none",
) -> pd.DataFrame:
    """`moments` with the test of H0: mean score <= threshold for every role and head.

    Adds p, q (Benjamini-Hochberg) and holm over all tests of the table, effect, needed (inputs for
    a decision with a power of 0.8), and assigned: p, q or holm below alpha, by `control`. The
    paper corrects nothing.

    >>> import pandas as pd
    >>> from attnlib import role_tests
    >>> scores = pd.DataFrame({"bias": [4.0, 2.0], "sd": [2.0, 2.0], "n": [50, 50]})
    >>> role_tests(scores, threshold=3.0)["assigned"].tolist()
    [True, False]
    """
    check_test(threshold, test, control)
    mean, sd, n = (table[name].to_numpy(np.float64) for name in ("bias", "sd", "n"))
    found = from_moments(mean, sd, n, threshold, test=test)
    judged = {"none": found.p, "bh": benjamini_hochberg(found.p), "holm": holm(found.p)}
    return table.assign(
        p=found.p,
        q=judged["bh"],
        holm=judged["holm"],
        effect=found.effect,
        needed=needed(mean, sd, threshold, alpha=alpha),
        assigned=judged[control] < alpha,
    )


def check_test(threshold: float, test: str, control: str, on_long: str = "truncate") -> None:
    """Refuse what a test cannot use, before anything is computed."""
    check_choice("test", test, TESTS)
    check_choice("control", control, CONTROLS)
    check_choice("on-long", on_long, ("error", "skip", "truncate"))  # windows of one input depend
    if not math.isfinite(threshold) or threshold <= 0:
        raise BadValue(f"threshold is {threshold}; expected a number above 0, such as 3.")


def role_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The table of `role_tests` as programs read it; what is undefined is None."""
    wanted = ["head", "role", "bias", "low", "high", "p", "q", "holm", "effect", "needed", "n"]
    return records(table.assign(head=head_names(table))[[*wanted, "assigned"]])


def _skew(values: np.ndarray) -> np.ndarray:
    """Skewness of each head's scores, m3 / m2 ** 1.5; NaN for fewer than 3, or all the same."""
    given = values.astype(np.float64)
    n = (~np.isnan(given)).sum(0)
    centred = given - np.nansum(given, axis=0) / np.maximum(n, 1)
    second, third = (np.nansum(centred**power, axis=0) / np.maximum(n, 1) for power in (2, 3))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((n > 2) & (second > 1e-18), third / second**1.5, np.nan)
