"""Which roles a head has: moments and tests against loops, scores in order, and the command."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from attnlib.data.corpora import Corpus, examples_digest
from attnlib.data.examples import Example, ParsedText
from attnlib.errors import BadValue, UnknownName
from attnlib.measuring.roles import (
    RoleScores,
    moments,
    role_rows,
    role_scores,
    role_tests,
)
from attnlib.measuring.stream import measure
from attnlib.metrics.sieves import SIEVES, chosen_sieves, local
from attnlib.models import Encoder, load_encoder
from tests.families import folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

Run = Callable[..., tuple[int, str, str]]
Arcs = Mapping[int, tuple[int, str]]
NAN = math.nan


def scores_of(**values: object) -> RoleScores:
    """Scores written down, role by role: (example, layer, head)."""
    arrays = {role: np.asarray(given, np.float32) for role, given in values.items()}
    n = len(next(iter(arrays.values())))
    return RoleScores(arrays, dict.fromkeys(arrays, NAN), n, 0, {}, 0.0)


def gappy(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Skewed scores around 3, a third of them undefined; the odd heads are odd in other ways."""
    generator = np.random.default_rng(seed)
    scores = generator.gamma(2.0, 1.5, size=shape)
    scores[generator.random(shape) < 1 / 3] = NAN
    scores[:, 0, 0] = NAN
    scores[1:, 0, 1] = NAN
    scores[0, 0, 1] = 4.0
    scores[2:, 0, 2] = NAN
    scores[:2, 0, 2] = 1.0, 4.0
    scores[:, 0, 3] = 2.5
    return scores


# --- moments -------------------------------------------------------------------------------------


def moments_by_hand(column: Sequence[float]) -> dict[str, float]:
    """Mean, sd, skewness and median of one head's scores, number by number."""
    known = [float(score) for score in column if not math.isnan(score)]
    n = len(known)
    mean = sum(known) / n if n else NAN
    second = sum((score - mean) ** 2 for score in known)
    third = sum((score - mean) ** 3 for score in known)
    skewed = n > 2 and second > 1e-12
    return {
        "bias": mean,
        "sd": math.sqrt(second / (n - 1)) if n > 1 else NAN,
        "skew": (third / n) / (second / n) ** 1.5 if skewed else NAN,
        "median": median(known) if n else NAN,
        "n": n,
    }


def check_moments(found: Callable[[RoleScores], pd.DataFrame]) -> None:
    given = scores_of(local=gappy((11, 3, 4)), cls=gappy((11, 3, 4), seed=1) + 1)
    table = found(given)
    assert list(table["role"].unique()) == ["local", "cls"] and len(table) == 24
    for row in table.to_dict("records"):
        column = given.values[row["role"]][:, row["layer"] - 1, row["head"] - 1].tolist()
        for name, expected in moments_by_hand(column).items():
            assert row[name] == pytest.approx(expected, rel=1e-5, nan_ok=True), (name, row)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_moments_are_those_of_the_loop() -> None:
    check_moments(moments)


BUGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "undefined is zero": np.nan_to_num,
    "heads and layers swapped": lambda v: v.transpose(0, 2, 1).reshape(v.shape),
    "an input lost": lambda v: v[1:],
    "doubled": lambda v: np.concatenate([v, v]),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_loop_catches_planted_moments(bug: str) -> None:
    def planted(scores: RoleScores) -> pd.DataFrame:
        return moments(scores_of(**{role: BUGS[bug](v) for role, v in scores.values.items()}))

    with pytest.raises(AssertionError):
        check_moments(planted)


def test_intervals_are_of_the_mean_and_seeded() -> None:
    values = np.random.default_rng(3).gamma(2.0, 1.5, size=(300, 1, 2))
    table = moments(scores_of(local=values))
    for row in table.to_dict("records"):
        half = 1.96 * row["sd"] / math.sqrt(300)
        assert row["low"] == pytest.approx(row["bias"] - half, abs=0.3 * half)
        assert row["high"] == pytest.approx(row["bias"] + half, abs=0.3 * half)
    pd.testing.assert_frame_equal(table, moments(scores_of(local=values)))
    assert not table["low"].equals(moments(scores_of(local=values), seed=1)["low"])


def test_one_input_has_no_interval() -> None:
    table = moments(scores_of(local=[[[2.0, NAN]]]))
    assert table["bias"].tolist()[0] == 2 and table["n"].tolist() == [1, 0]
    assert table[["low", "high", "sd", "skew"]].isna().all(axis=None)
    assert role_tests(table)["assigned"].tolist() == [False, False]


def test_inputs_that_define_a_role_are_counted() -> None:
    values = np.ones((5, 2, 3))
    values[1] = values[3] = NAN
    assert scores_of(nsubj=values).defined("nsubj") == 3


# --- tests ---------------------------------------------------------------------------------------


def table_of(bias: Sequence[float], sd: Sequence[float], n: Sequence[int]) -> pd.DataFrame:
    places = {"role": "local", "layer": 1, "head": range(1, len(bias) + 1)}
    return pd.DataFrame({**places, "bias": bias, "sd": sd, "low": bias, "high": bias, "n": n})


SPREAD = table_of(
    [3.9, 3.3, 3.18, 2.9, 2.0, 3.6, NAN, 5.0],
    [2.0, 1.5, 1.0, 1.0, 2.0, 1.8, NAN, NAN],
    [100, 100, 90, 80, 60, 40, 0, 1],
)
"""Clearly above 3, above by a hair's breadth, below, and two heads that cannot be tested."""


def p_by_scipy(mean: float, sd: float, n: int, threshold: float, test: str) -> float:
    if n < 2:
        return NAN
    if test == "z":
        return float(scipy_stats.norm.sf((mean - threshold) / (sd / math.sqrt(n))))
    biased = sd * math.sqrt((n - 1) / n)
    return float(scipy_stats.t.sf((mean - threshold) / (biased / math.sqrt(n)), n - 1))


def holm_by_hand(p: Sequence[float]) -> list[float]:
    """Step down: the smallest p times all tests, the next times one fewer, never falling."""
    tests = sorted(one for one in p if not math.isnan(one))
    steps, so_far = {}, 0.0
    for rank, one in enumerate(tests):
        so_far = max(so_far, min(1.0, one * (len(tests) - rank)))
        steps[one] = so_far
    return [steps.get(one, NAN) for one in p]


@pytest.mark.parametrize("control", ["none", "bh", "holm"])
@pytest.mark.parametrize("test", ["z", "t"])
@pytest.mark.parametrize("threshold", [1.0, 3.0, 3.25])
def test_tests_are_those_of_scipy(threshold: float, test: str, control: str) -> None:
    found = role_tests(SPREAD, threshold=threshold, test=test, control=control)
    rows = SPREAD[["bias", "sd", "n"]].itertuples(index=False)
    p = np.array([p_by_scipy(*row, threshold, test) for row in rows])
    known = ~np.isnan(p)
    q = np.full_like(p, NAN)
    q[known] = scipy_stats.false_discovery_control(p[known])
    by_control = {"none": p, "bh": q, "holm": np.array(holm_by_hand(p.tolist()))}
    for name, expected in zip(("p", "q", "holm"), by_control.values(), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, err_msg=name)
    assert found["assigned"].tolist() == [bool(one < 0.05) for one in by_control[control]]


def test_the_controls_differ_where_it_matters() -> None:
    """At 3 four heads have p < 0.05, three of them q < 0.05; only one is left by Holm."""
    counts = [int(role_tests(SPREAD, control=c)["assigned"].sum()) for c in ("none", "bh", "holm")]
    assert counts == [4, 3, 1]


def test_effect_and_needed_by_hand() -> None:
    found = role_tests(SPREAD)
    rows = zip(SPREAD["bias"], SPREAD["sd"], found["effect"], found["needed"], strict=True)
    for bias, sd, effect, needed in rows:
        d = (bias - 3) / sd
        assert effect == pytest.approx(d, nan_ok=True)
        n = NAN if math.isnan(d) else max(2, math.ceil(((1.6448536 + 0.8416212) / d) ** 2))
        assert needed == pytest.approx(n, nan_ok=True)


def test_alpha_moves_the_border() -> None:
    strict = role_tests(SPREAD, alpha=0.001)
    assert strict["assigned"].tolist() == (strict["p"] < 0.001).tolist()
    assert strict["assigned"].sum() == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threshold": 0.0}, "above 0"),
        ({"threshold": -3.0}, "above 0"),
        ({"threshold": math.inf}, "threshold is inf"),
        ({"threshold": NAN}, "threshold is nan"),
        ({"test": "x"}, "expected one of z, t"),
        ({"control": "bonferroni"}, "none, bh, holm"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"alpha": 1.0}, "expected 0 < alpha"),
    ],
)
def test_what_a_test_cannot_use_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        role_tests(SPREAD, **wrong)


def test_rows_for_programs_hold_no_nan() -> None:
    constant = table_of([4.0], [0.0], [5])  # an infinite effect
    rows = role_rows(role_tests(pd.concat([SPREAD, constant], ignore_index=True)))
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert rows[0]["head"] == "1-1" and rows[0]["assigned"] is True and rows[0]["n"] == 100
    assert rows[6] == {
        **{"head": "1-7", "role": "local", "n": 0, "assigned": False},
        **dict.fromkeys(("bias", "low", "high", "p", "q", "holm", "effect", "needed")),
    }
    assert rows[8]["effect"] is None and rows[8]["p"] == 0 and rows[8]["assigned"] is True


# --- scores of a corpus --------------------------------------------------------------------------


def parsed(name: str, text: str, pair: str | None = None, arcs: Arcs | None = None) -> ParsedText:
    """A text of words between blanks with its tree; words are counted over both parts."""
    parts = [part for part in (text, pair) if part is not None]
    starts = []
    for part in parts:
        ends = np.cumsum([len(word) + 1 for word in part.split()]).tolist()
        starts.append((0, *ends[:-1]))
    n = sum(map(len, starts))
    tied = [(arcs or {}).get(word, (-1, "root")) for word in range(n)]
    heads, labels = (tuple(column) for column in zip(*tied, strict=True))
    return ParsedText(name, text, pair, None, tuple(starts), heads, labels, ("X",) * n)


TEXTS = (
    parsed(
        "long",
        "the old engineers closed the small bridge over the river",
        "nobody took the road after nine",
        {1: (2, "amod"), 2: (3, "nsubj"), 6: (3, "dobj"), 5: (6, "amod"), 10: (11, "nsubj")},
    ),
    parsed("short", "it rained", None, {0: (1, "nsubj")}),
    parsed(
        "middle",
        "why did the clock run well",
        "it stayed closed",
        {3: (4, "nsubj"), 5: (4, "advmod"), 6: (7, "nsubj")},
    ),
    parsed("bare", "wait", "the river"),
    parsed(
        "single",
        "her known cafe sells eclairs after school",
        None,
        {2: (3, "nsubj"), 4: (3, "obj"), 1: (2, "amod")},
    ),
    parsed("small", "we run", "a school", {0: (1, "nsubj")}),
)
"""Pairs and single texts, out of order of their lengths; one without any of the relations."""


def corpus_of(*examples: Example) -> Corpus:
    return Corpus("few", "mixed", examples, {}, "tests", examples_digest(examples))


TOY = corpus_of(*TEXTS)


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


@pytest.fixture(scope="module")
def found(bert: Encoder) -> RoleScores:
    return role_scores(bert, TOY, max_length=40, batch_size=2)


def one_by_one(encoder: Encoder) -> dict[str, np.ndarray]:
    """The scores of every example run alone, by the metrics of the stream."""
    keys = [f"bias_{role}" for role in SIEVES]
    rows: dict[str, list[np.ndarray]] = {role: [] for role in SIEVES}
    for example in TEXTS:
        alone = measure(encoder, corpus_of(example), keys, max_length=40)
        for role in SIEVES:
            rows[role].append(alone.grid(f"bias_{role}"))
    return {role: np.stack(grids) for role, grids in rows.items()}


def test_scores_stand_in_the_order_of_the_corpus(bert: Encoder, found: RoleScores) -> None:
    """Batches are sorted by length; what comes back is not."""
    assert found.n_inputs == len(TEXTS)
    expected = one_by_one(bert)
    for role, values in found.values.items():
        assert values.shape == (len(TEXTS), bert.n_layers, bert.n_heads)
        np.testing.assert_allclose(values, expected[role], rtol=1e-4, err_msg=role)
    by_length = [1, 3, 5, 2, 4, 0]
    with pytest.raises(AssertionError):  # an order that is off would be seen
        np.testing.assert_allclose(found.values["cls"], expected["cls"][by_length], rtol=1e-4)


def test_what_the_toy_texts_define(found: RoleScores) -> None:
    counts = {role: found.defined(role) for role in SIEVES}
    assert counts == {
        **dict.fromkeys(SIEVES, 6),
        **{"block": 4, "nsubj": 5, "dobj": 2, "amod": 2, "advmod": 1, "syntactic": 5},
    }


def ceilings_by_hand(encoder: Encoder) -> dict[str, float]:
    """n / |S| averaged over the queries of a text, then over texts; from words and their pieces."""
    sums: dict[str, list[float]] = {role: [] for role in SIEVES}
    labels = {role: (role,) for role in ("nsubj", "amod", "advmod")} | {"dobj": ("dobj", "obj")}
    labels["syntactic"] = ("nsubj", "dobj", "obj", "amod", "advmod")
    for text in TEXTS:
        parts = [part.split() for part in text.parts]
        pieces = [len(encoder.tokenizer.tokenize(word)) for part in parts for word in part]
        n, n_sep = sum(pieces) + 1 + len(parts), len(parts)
        asked: dict[str, list[float]] = {role: [] for role in SIEVES}
        for t in range(n):
            before, after = min(t, 2), min(n - 1 - t, 2)
            asked["local"].append(n / (before + 1 + after))
            asked["previous_local"] += [n / before] if before else []
            asked["next_local"] += [n / after] if after else []
        asked |= {"cls": [n], "sep": [n / n_sep], "delimiter": [n / (1 + n_sep)]}
        if n_sep == 2:
            asked["block"] = [2 * n / (n - 3)]
        for role, wanted in labels.items():
            for word, (head, label) in enumerate(zip(text.heads, text.relations, strict=True)):
                if head >= 0 and label in wanted:
                    asked[role] += [n / pieces[head]] * pieces[word]
        for role, values in asked.items():
            sums[role] += [sum(values) / len(values)] if values else []
    return {role: sum(values) / len(values) for role, values in sums.items()}


def test_ceilings_are_those_of_a_perfect_head(bert: Encoder, found: RoleScores) -> None:
    expected = ceilings_by_hand(bert)
    assert list(found.ceilings) == list(SIEVES)
    for role, ceiling in found.ceilings.items():
        assert ceiling == pytest.approx(expected[role], rel=1e-5), role
        assert np.nanmean(found.values[role], axis=0).max() <= ceiling
    lengths = [len(bert.tokenizer(*text.parts)["input_ids"]) for text in TEXTS]
    assert found.n_tokens == sum(lengths)
    assert found.ceilings["cls"] == pytest.approx(sum(lengths) / len(lengths))
    assert found.ceilings["block"] < 3 or min(lengths) < 10


BLOCK_AND_CLS = chosen_sieves(["block", "cls"])


@pytest.mark.parametrize("example", [0, 2, 3, 5])
def test_no_head_can_pass_the_ceiling_of_blocks(bert: Encoder, example: int) -> None:
    """2n / (n - 3), however the words are shared out between the two texts."""
    alone = role_scores(bert, corpus_of(TEXTS[example]), BLOCK_AND_CLS, max_length=40)
    n = alone.n_tokens
    assert alone.ceilings == pytest.approx({"block": 2 * n / (n - 3), "cls": n})


def test_a_role_that_no_input_defines_has_no_ceiling(bert: Encoder) -> None:
    alone = role_scores(bert, corpus_of(TEXTS[1]), BLOCK_AND_CLS, max_length=40)
    assert math.isnan(alone.ceilings["block"]) and alone.defined("block") == 0
    assert np.isnan(alone.values["block"]).all() and alone.ceilings["cls"] == alone.n_tokens


def test_long_inputs_are_cut_or_left_out(bert: Encoder) -> None:
    fits = [len(bert.tokenizer(*text.parts)["input_ids"]) <= 11 for text in TEXTS]
    assert fits == [False, True, False, True, False, True]
    cut = role_scores(bert, TOY, BLOCK_AND_CLS, max_length=11)
    assert cut.skipped == {"truncated": 3} and cut.n_inputs == 6
    left = role_scores(bert, TOY, BLOCK_AND_CLS, max_length=11, on_long="skip")
    assert left.skipped == {"too long": 3} and left.n_inputs == len(left.values["cls"]) == 3
    assert left.n_tokens == cut.n_tokens - 3 * 11


def test_scores_of_the_authors_have_names_of_their_own(bert: Encoder) -> None:
    chosen = chosen_sieves(["local", "block"])
    both = role_scores(bert, TOY, chosen, authors=["local", "block", "nsubj"], max_length=40)
    names = ["local", "block", "local@authors", "block@authors", "nsubj@authors"]
    assert list(both.values) == names and list(both.ceilings) == names[:2]
    keys = [f"bias_{name}" for name in names[2:]]
    streamed = measure(bert, TOY, keys, max_length=40)
    for name in names[2:]:
        ours = np.nanmean(both.values[name], axis=0)
        np.testing.assert_allclose(ours, streamed.grid(f"bias_{name}"), rtol=1e-5)
    assert not np.allclose(both.values["local"], both.values["local@authors"])


def test_wrong_sieves_are_refused(bert: Encoder) -> None:
    with pytest.raises(BadValue, match="at least one"):
        role_scores(bert, TOY, [])
    with pytest.raises(BadValue, match="same key"):
        role_scores(bert, TOY, [local(), local()])
    with pytest.raises(UnknownName, match="authors"):
        role_scores(bert, TOY, chosen_sieves(["cls"]), authors=["cls"])


# --- the command ---------------------------------------------------------------------------------

KEYS = ("head", "role", "bias", "low", "high", "p", "q", "holm", "effect", "needed", "n")
TREES = """\
1 the _ DET _ _ 2 det _ _
2 bridge _ NOUN _ _ 4 nsubj _ _
3 well _ ADV _ _ 4 advmod _ _
4 closed _ VERB _ _ 0 root _ _

1 we _ PRON _ _ 2 nsubj _ _
2 took _ VERB _ _ 0 root _ _
3 the _ DET _ _ 5 det _ _
4 old _ ADJ _ _ 5 amod _ _
5 road _ NOUN _ _ 2 obj _ _

1 it _ PRON _ _ 2 nsubj _ _
2 rained _ VERB _ _ 0 root _ _

"""
PAIRS = (
    ("The small cat quickly saw a grey mouse near the old mill.", "It ran away from the cat."),
    ("Who wrote the long letter to the harbour master?", "The keeper wrote it last night."),
    ("The bridge never opens early in winter.", "Heavy carts rarely cross the wooden bridge."),
)


@pytest.fixture
def ask(run: Run, folders: Callable[[str], Path], tmp_path: Path) -> Callable[..., list[dict]]:
    """The rows that the command prints for the tiny model and three gold trees."""
    path = tmp_path / "trees.conllu"
    path.write_text(TREES.replace(" ", "\t"))

    def rows(*options: object) -> list[dict]:
        words = ["roles", folders("bert"), path, "--max-length", 40, "--device", "cpu", "--json"]
        code, out, err = run(*words, *options)
        assert code == 0, err
        return json.loads(out, parse_constant=pytest.fail)

    return rows


def test_the_command_prints_every_role_of_every_head(ask: Callable[..., list[dict]]) -> None:
    rows = ask()
    assert len(rows) == 3 * 4 * len(SIEVES)
    assert all(tuple(row) == (*KEYS, "assigned") for row in rows)
    assert [row["role"] for row in rows[::12]] == list(SIEVES)
    assert {row["head"] for row in rows} == {f"{x}-{y}" for x in (1, 2, 3) for y in (1, 2, 3, 4)}
    by_role = {role: [row for row in rows if row["role"] == role] for role in SIEVES}
    for row in by_role["block"]:  # one text has no blocks: undefined is null, not 0
        assert row["n"] == 0 and row["bias"] is row["p"] is row["q"] is None
        assert row["assigned"] is False
    for row in by_role["dobj"]:  # one input tells nothing about others
        assert row["n"] == 1 and row["bias"] > 0 and row["p"] is row["low"] is None
    assert {row["n"] for row in by_role["nsubj"]} == {3}


def test_options_of_the_command(ask: Callable[..., list[dict]]) -> None:
    low = ask("--threshold", 0.5, "--role", "local", "--role", "cls")
    high = ask("--threshold", 40, "--role", "local", "--role", "cls")
    assert [row["bias"] for row in low] == [row["bias"] for row in high]
    assert sum(row["assigned"] for row in low) > 6 > sum(row["assigned"] for row in high) == 0
    assert all((row["bias"] > 0.5) == (row["p"] < 0.5) for row in low)
    student = ask("--threshold", 0.5, "--role", "cls", "--role", "local", "--test", "t")
    assert [row["role"] for row in student[::12]] == ["cls", "local"]  # as they were asked for
    assert sorted(r["bias"] for r in student) == sorted(r["bias"] for r in low)
    assert sorted(r["p"] for r in student) != sorted(r["p"] for r in low)
    wide = ask("--role", "local", "--role", "cls", "--window", 1)
    assert [row["role"] for row in wide[::12]] == ["local_1", "cls"]
    both = ask("--role", "amod", "--role", "sep", "--direction", "both", "--limit", 2)
    assert [(row["role"], row["n"]) for row in both[::12]] == [("amod_both", 1), ("sep", 2)]


@pytest.mark.parametrize(("control", "column"), [("none", "p"), ("bh", "q"), ("holm", "holm")])
def test_the_control_decides(ask: Callable[..., list[dict]], control: str, column: str) -> None:
    rows = ask("--control", control, "--threshold", 1.1, "--role", "local", "--role", "delimiter")
    assert all(row["assigned"] == (row[column] < 0.05) for row in rows)
    assert any(row["assigned"] for row in rows) and not all(row["assigned"] for row in rows)


def test_the_command_says_what_cannot_be(run: Run, folders: Callable[[str], Path], tmp_path: Path):
    path = tmp_path / "trees.conllu"
    path.write_text(TREES.replace(" ", "\t"))
    code, out, err = run("roles", folders("bert"), path, "--max-length", 40, "--device", "cpu")
    said = " ".join(out.split())
    assert code == 0 and "No input defines the role block." in said, err
    assert "No head can have the role local here: a perfect one would score" in said
    assert all(role in said for role in SIEVES) and "of 12" in said


WRONG = {
    "unknown role": (["--role", "blok"], "Did you mean 'block'?"),
    "one of two roles": (["--role", "cls", "--role", "x"], "Known: local, previous_local"),
    "threshold 0": (["--threshold", 0], "above 0"),
    "threshold nan": (["--threshold", "nan"], "threshold is nan"),
    "test": (["--test", "x"], "expected one of z, t"),
    "control": (["--control", "x"], "expected one of none, bh, holm"),
    "windows": (["--on-long", "window"], "expected one of error, skip, truncate"),
    "window 0": (["--window", 0], "expected 1 or more"),
    "direction": (["--direction", "up"], "dep->head, head->dep, both"),
    "limit 0": (["--limit", 0], "limit"),
    "max length": (["--max-length", 67], "3 to 66"),
    "batch size 0": (["--max-length", 40, "--batch-size", 0], "1 or more"),
    "nothing left": (["--max-length", 3, "--on-long", "skip"], "nothing left to measure"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_get_one_sentence(
    run: Run, folders: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    path = tmp_path / "trees.conllu"
    path.write_text(TREES.replace(" ", "\t"))
    options, expected = WRONG[name]
    code, out, err = run("roles", folders("bert"), path, "--device", "cpu", *options)
    assert code == 2 and out == "", err
    (sentence,) = err.strip().splitlines()
    assert expected in sentence


@pytest.mark.assets
def test_roles_of_a_real_model_on_a_file_of_pairs(run: Run, tmp_path: Path, e5_small) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in PAIRS))
    code, out, err = run("roles", "e5-small", path, "--json")
    assert code == 0, err
    rows = json.loads(out, parse_constant=pytest.fail)
    assert len(rows) == 144 * 12 and all(tuple(row) == (*KEYS, "assigned") for row in rows)
    assert {row["n"] for row in rows if row["role"] in ("local", "block", "sep")} == {3}
    streamed = measure(e5_small, path, ["bias_cls", "bias_block"])
    for role in ("cls", "block"):
        ours = [row["bias"] for row in rows if row["role"] == role]
        np.testing.assert_allclose(ours, streamed.grid(f"bias_{role}").ravel(), rtol=1e-4)
    assert not any(row["assigned"] for row in rows if row["role"] == "block")
    assert any(row["assigned"] for row in rows if row["role"] == "sep")


@pytest.mark.assets
def test_block_heads_are_said_to_be_impossible(
    run: Run, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps({"text": a, "pair": b}) + "\n" for a, b in PAIRS))
    code, out, err = run("roles", folders("bert"), path, "--max-length", 60, "--device", "cpu")
    said = " ".join(out.split())
    assert code == 0 and "No head can have the role block here" in said, err
    assert "on average, the threshold is 3." in said and "role cls here" not in said
