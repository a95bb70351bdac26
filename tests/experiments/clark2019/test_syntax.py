"""What Table 1's text claims, by plain loops over made maps; counted by document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attnlib.data.examples import Tree
from attnlib.measuring.best_heads import Predictions, best_heads, halves
from attnlib.measuring.bootstrap import statistics
from experiments.clark2019.syntax import _relation_rows, _sep_rows, _wanted
from tests.attnlib.measuring.test_best_heads import picked

LABELS = {"dobj": 3, "det": 2, "pobj": 3, "poss": 2, "xcomp": 4}
HEADS = 4


def made_trees(n: int = 40) -> list[Tree]:
    """Sentences of 6 words in ten documents; some possessors have an 's that depends on them."""
    draw, trees = np.random.default_rng(0), []
    for at in range(n):
        heads = [int(draw.choice([h for h in range(6) if h != w])) for w in range(6)]
        labels = [str(one) for one in draw.choice(list(LABELS), 6)]
        words = [f"w{w}" for w in range(6)]
        heads[5], labels[5] = -1, "root"
        labels[4] = "punct"
        if at % 2:
            labels[1], words[2], heads[2], labels[2] = "poss", "'s", 1, "case"
        tags = tuple(str(one) for one in draw.choice(["NOUN", "PROPN", "VERB", "PRON"], 6))
        given = (tuple(words), tuple(heads), tuple(labels), tags)
        trees.append(Tree(str(at), *given, document=f"d{at % 10}"))
    return trees


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Tree], Predictions]:
    trees, draw = made_trees(), np.random.default_rng(1)
    maps = [draw.dirichlet(np.ones(6), (HEADS, 6)) for _ in trees]
    seen = picked(monkeypatch, trees, maps)
    shares = draw.random((len(seen), HEADS)).astype(np.float32)
    return trees, replace(seen, to_sep=shares, special=draw.random((len(seen), HEADS)) < 0.3)


def numbers(trees: list[Tree], seen: Predictions) -> dict[str, float]:
    names = [name for name in seen.counts if name != "punct"]
    tags = np.array([tag for tree in trees for tag in tree.tags])
    rows = _relation_rows(seen, names, 0) | _sep_rows(seen, names, tags, 0)
    drawn = statistics(rows, _wanted(names, rows), micro=True, replicates=50)
    assert all(low <= value <= high for value, low, high in drawn.values() if low == low)
    return {name: value for name, (value, _, _) in drawn.items()}


def words_of(trees: list[Tree], relation: str) -> list[int]:
    return [
        6 * at + w
        for at, tree in enumerate(trees)
        for w in range(6)
        if tree.relations[w] == relation and tree.heads[w] >= 0
    ]


def is_right(trees: list[Tree], seen: Predictions, row: int, head: int, side: int) -> bool:
    """Dependent to head word (0), or back (1); for a possessor its 's may answer."""

    def one(word: int, gold: int) -> bool:
        first = word - word % 6
        if side == 0:
            return seen.attended[word, head] == gold
        return seen.attended[first + gold, head] == word % 6

    tree, w = trees[row // 6], row % 6
    mark = tree.words[2] == "'s" and w == 1 and tree.relations[1] == "poss"
    return one(row, tree.heads[w]) or (mark and one(row - w + 2, tree.heads[w]))


def clean_heads(
    trees: list[Tree], seen: Predictions, relation: str, sides: tuple[int, ...]
) -> dict[bool, tuple[int, int]]:
    """The best (side, head) to score each half of the documents with, from the other half."""
    half, chosen = halves(10, 0), {}
    for scored in (True, False):
        on = [w for w in words_of(trees, relation) if half[(w // 6) % 10] != scored]
        options = [(side, head) for side in sides for head in range(HEADS)]
        score = [sum(is_right(trees, seen, w, h, s) for w in on) for s, h in options]
        chosen[scored] = options[int(np.argmax(score))]
    return chosen


def clean_score(
    trees: list[Tree], seen: Predictions, relation: str, sides: tuple[int, ...]
) -> float:
    half, chosen = halves(10, 0), clean_heads(trees, seen, relation, sides)
    own = [(w, *chosen[bool(half[(w // 6) % 10])]) for w in words_of(trees, relation)]
    return float(np.mean([is_right(trees, seen, w, head, side) for w, side, head in own]))


def test_directions_by_plain_loops(found: tuple[list[Tree], Predictions]) -> None:
    trees, seen = found
    got = numbers(trees, seen)
    lead = clean_score(trees, seen, "pobj", (1,)) - clean_score(trees, seen, "pobj", (0,))
    assert got["table1.pobj.head_to_dependent_lead"] == pytest.approx(100 * lead)
    best = {}
    for name in ("dobj", "det", "poss"):
        scores = [
            max(
                np.mean([is_right(trees, seen, w, head, side) for w in words_of(trees, name)])
                for head in range(HEADS)
            )
            for side in (0, 1)
        ]
        best[name] = scores[0] >= scores[1]
    share = got["table1.share_dependent_to_head.but_pobj"]
    assert share == pytest.approx(np.mean(list(best.values())))


def test_clean_gains_are_those_of_the_table(found: tuple[list[Tree], Predictions]) -> None:
    trees, seen = found
    table = best_heads(seen, min_count=1, possessive_clitic=True).set_index("relation")
    for name in LABELS:
        expected = 100 * clean_score(trees, seen, name, (0, 1))
        assert table["clean_accuracy"][name] == pytest.approx(expected)
        row = table.loc[name]
        gain = row["clean_accuracy"] - row["clean_baseline"]
        assert row["clean_gain"] == pytest.approx(gain)
        assert row["clean_gain_low"] <= gain <= row["clean_gain_high"]
    names = [name for name in table.index if name not in ("all", "punct")]
    share = numbers(trees, seen)["relations.share_of_slight_gains"]
    assert share == pytest.approx((table.loc[names, "clean_gain"] <= 10).mean())


def test_allowing_special_tokens_costs_what_plain_loops_say(
    found: tuple[list[Tree], Predictions],
) -> None:
    trees, seen = found
    losses = np.zeros(HEADS)
    allowed = replace(seen, attended=np.where(seen.special, -1, seen.attended))
    for name in ("dobj", "det", "pobj", "poss"):
        words = words_of(trees, name)
        for head in range(HEADS):
            plain, kept = (
                [np.mean([is_right(trees, one, w, head, side) for w in words]) for side in (0, 1)]
                for one in (seen, allowed)
            )
            better = int(np.argmax(plain))
            losses[head] += (plain[better] - kept[better]) / 4
    share = numbers(trees, seen)["table1.heads_unchanged_by_specials"]
    assert losses.max() > 0.02 and share == pytest.approx((losses <= 0.02).mean())
    calm = numbers(trees, replace(seen, special=np.zeros_like(seen.special)))
    assert calm["table1.heads_unchanged_by_specials"] == 1


def test_attention_to_sep_by_plain_loops(found: tuple[list[Tree], Predictions]) -> None:
    trees, seen = found
    got, half = numbers(trees, seen), halves(10, 0)

    def mean_to_sep(relation: str, asked: Any) -> float:
        chosen = clean_heads(trees, seen, relation, (0,))
        values = [
            seen.to_sep[6 * at + w, chosen[bool(half[at % 10])][1]]
            for at, tree in enumerate(trees)
            for w in range(6)
            if tree.relations[w] != "punct" and asked(tree, w)
        ]
        return float(np.mean(values))

    noun = mean_to_sep("dobj", lambda tree, w: tree.tags[w] in ("NOUN", "PROPN"))
    other = mean_to_sep("dobj", lambda tree, w: tree.tags[w] not in ("NOUN", "PROPN"))
    assert got["noop.dobj.non_nouns"] == pytest.approx(other, rel=1e-5)
    assert got["noop.dobj.non_nouns_minus_nouns"] == pytest.approx(other - noun, rel=1e-4)
    leads = []
    for name in ("dobj", "det", "pobj", "poss"):
        inside = mean_to_sep(name, lambda tree, w, name=name: tree.relations[w] == name)
        outside = mean_to_sep(name, lambda tree, w, name=name: tree.relations[w] != name)
        leads.append(outside - inside)
    seen_lead = got["noop.table1.not_called_minus_called"]
    assert seen_lead == pytest.approx(np.mean(leads), rel=1e-4)


def test_the_clitic_against_its_possessor(found: tuple[list[Tree], Predictions]) -> None:
    trees, seen = found
    half, chosen = halves(10, 0), clean_heads(trees, seen, "poss", (0,))
    gaps = []
    for at, tree in enumerate(trees):
        if tree.words[2] == "'s":
            head, gold = chosen[bool(half[at % 10])][1], tree.heads[1]
            by_mark, by_owner = (seen.attended[6 * at + w, head] == gold for w in (2, 1))
            gaps.append(float(by_mark) - float(by_owner))
    got = numbers(trees, seen)["table1.poss.clitic_minus_possessor"]
    assert len(gaps) == 20 and got == pytest.approx(100 * np.mean(gaps))


def test_high_scores_are_counted(found: tuple[list[Tree], Predictions]) -> None:
    trees, seen = found
    gold = np.array([head for tree in trees for head in tree.heads])
    sure = seen.attended.copy()
    sure[:, 1] = gold
    dets = words_of(trees, "det")
    sure[dets, 1], sure[dets, 2] = -1, gold[dets]
    got = numbers(trees, replace(seen, attended=sure))
    assert got["table1.four_above_75"] == got["table1.four_above_75.clean"] == 4
    assert got["table1.largest_share_of_one_head"] == 3 / 4
    rare = [
        replace(t, relations=tuple(r.replace("det", "dep") for r in t.relations)) for t in trees
    ]
    other = replace(seen, relation=np.array([r for tree in rare for r in tree.relations]))
    assert np.isnan(numbers(rare, other)["table1.four_above_75"])


def test_documents_and_special_tokens_are_read_off_the_maps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[CLS] and [SEP] get a quarter each: more than a word that gets less than half of the rest."""
    trees, draw = made_trees(12), np.random.default_rng(1)
    maps = [draw.dirichlet(np.ones(6), (HEADS, 6)) for _ in trees]
    seen = picked(monkeypatch, trees, maps)
    assert seen.n_documents == 10
    assert [seen.unit[6 * at] for at in range(12)] == [at % 10 for at in range(12)]
    assert (seen.to_sep == 0.25).all()
    for at, one in enumerate(maps):
        for w in range(6):
            for head in range(HEADS):
                others = max(one[head, w, k] for k in range(6) if k != w)
                assert seen.special[6 * at + w, head] == (others / 2 < 0.25)
