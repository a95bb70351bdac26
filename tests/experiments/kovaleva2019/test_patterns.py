"""The five patterns: labels, pictures, the rule and the network, on maps whose class is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from attnlib.attention.encode import Batch, batches, encode
from attnlib.attention.maps import Attention
from attnlib.data.examples import Segment
from attnlib.models import Encoder, load_encoder
from experiments.kovaleva2019 import patterns
from experiments.kovaleva2019.patterns import (
    PATTERNS,
    SIDE,
    PatternNet,
    Schooling,
    all_maps,
    classified,
    classified_unseen,
    labelled_maps,
    pattern_metric,
    pictures,
    rule,
    rule_shares,
    trained,
)
from tests.families import SENTENCES, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures


@pytest.fixture(scope="module")
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


def pair_of(encoder: Encoder) -> Batch:
    (batch,) = batches(
        encode([Segment("a", SENTENCES[0], SENTENCES[5])], encoder, max_length=64), encoder
    )
    return batch


def drawn(batch: Batch) -> dict[str, torch.Tensor]:
    """One map of every class."""
    n = batch.length
    special = (batch.cls | batch.sep)[0].float()
    vertical = (special / special.sum()).expand(n, n)
    diagonal = torch.diag_embed(torch.ones(n))
    words = 1 - special
    same = (batch.segment[0][:, None] == batch.segment[0]).float() * words
    return {
        "vertical": vertical,
        "diagonal": diagonal,
        "vertical+diagonal": (vertical + diagonal) / 2,
        "block": same / same.sum(-1, keepdim=True),
        "heterogeneous": (words / words.sum()).expand(n, n),
    }


def test_the_rule_knows_a_clear_case_of_every_class(bert: Encoder) -> None:
    batch = pair_of(bert)
    maps = torch.stack(list(drawn(batch).values()))[None]
    assert [PATTERNS[i] for i in rule(maps, batch)[0].tolist()] == list(drawn(batch))


def test_the_shares_of_the_rule_equal_a_loop(bert: Encoder) -> None:
    batch = pair_of(bert)
    n = batch.length
    maps = torch.rand(1, 2, n, n, generator=torch.Generator().manual_seed(0)).softmax(-1)
    special = (batch.cls | batch.sep)[0].tolist()
    part = batch.segment[0].tolist()
    for head in range(2):
        a = maps[0, head]
        v = sum(float(a[q, k]) for q in range(n) for k in range(n) if special[k]) / n
        d = (
            sum(
                float(a[q, k])
                for q in range(n)
                for k in range(n)
                if abs(q - k) < 2 and not special[k]
            )
            / n
        )
        words = [(q, k) for q in range(n) for k in range(n) if not special[k]]
        b = sum(float(a[q, k]) for q, k in words if part[q] == part[k]) / sum(
            float(a[q, k]) for q, k in words
        )
        assert [float(x[0, head]) for x in rule_shares(maps, batch)] == pytest.approx(
            [v, d, b], abs=1e-5
        )


def test_one_text_has_no_blocks(bert: Encoder) -> None:
    (batch,) = batches(encode([Segment("a", SENTENCES[0])], bert, max_length=64), bert)
    even = torch.full((1, 1, batch.length, batch.length), 1 / batch.length)
    assert PATTERNS[int(rule(even, batch))] == "heterogeneous"


def test_padding_changes_neither_rule_nor_picture(bert: Encoder) -> None:
    texts = [Segment("a", SENTENCES[5]), Segment("b", SENTENCES[4])]
    (both,) = batches(encode(texts, bert, max_length=64), bert)
    (alone,) = batches(encode(texts[:1], bert, max_length=64), bert)
    row, n = both.index.index(0), alone.length
    maps = torch.rand(1, 3, n, n, generator=torch.Generator().manual_seed(1)).softmax(-1)
    wide = torch.zeros(2, 3, both.length, both.length)
    wide[row, :, :n, :n] = maps[0]
    assert torch.equal(rule(wide, both)[row], rule(maps, alone)[0])
    first = pictures(wide, both.real.sum(-1))[row]
    assert torch.allclose(first, pictures(maps, alone.real.sum(-1))[0])


@pytest.mark.parametrize("n", [3, SIDE - 1, SIDE, 2 * SIDE + 1])
def test_pictures_have_one_size_and_keep_lines(n: int) -> None:
    eye = pictures(torch.eye(n)[None, None], torch.tensor([n]))[0, 0]
    assert eye.shape == (SIDE, SIDE) and float(eye.max()) == 1.0
    assert (eye.diagonal() > 0.5).all() and float(eye[0, -1]) == 0.0


def test_an_empty_map_is_a_dark_picture() -> None:
    assert not pictures(torch.zeros(1, 1, 4, 4), torch.tensor([4])).isnan().any()


# --- the network ----------------------------------------------------------------------------------


def planted_pictures(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Stripes, lines, both, blocks and noise, each with some noise."""
    rng = np.random.default_rng(seed)
    labels = torch.arange(n) % len(PATTERNS)
    maps = np.zeros((n, 40, 40))
    for place, label in enumerate(labels.tolist()):
        one = 0.2 * rng.random((40, 40))
        if PATTERNS[label].startswith("vertical"):
            one[:, rng.integers(40, size=2)] = 1
        if PATTERNS[label].endswith("diagonal"):
            one += np.eye(40, k=int(rng.integers(-1, 2)))
        if PATTERNS[label] == "block":
            cut = int(rng.integers(12, 28))
            one[:cut, :cut] += 0.6
            one[cut:, cut:] += 0.6
        maps[place] = one
    shades = pictures(torch.tensor(maps[:, None], dtype=torch.float32), torch.full((n,), 40))
    return shades[:, 0], labels


def test_eight_convolutions_with_relu() -> None:
    net = PatternNet()
    assert sum(isinstance(one, nn.Conv2d) for one in net.modules()) == 8
    assert sum(isinstance(one, nn.ReLU) for one in net.modules()) == 8
    assert net.eval()(torch.rand(3, SIDE, SIDE)).shape == (3, len(PATTERNS))


def test_the_network_learns_planted_patterns_and_is_seeded() -> None:
    shades, labels = planted_pictures(100)
    short = Schooling(epochs=24)
    net = trained(shades, labels, short)
    unseen, wanted = planted_pictures(40, seed=1)
    assert (classified(net, unseen) == wanted).float().mean() > 0.8
    again = trained(shades, labels, short)
    assert all(
        torch.equal(a, b)
        for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True)
    )


def test_no_picture_is_judged_by_a_network_that_saw_its_fold() -> None:
    """A label that only a copy in another fold could teach is not learnt."""
    shades, labels = planted_pictures(40)
    torch.manual_seed(0)
    wrong = labels[torch.randperm(40)]
    found = classified_unseen(shades, wrong, [i // 20 for i in range(40)], Schooling(epochs=3))
    assert found.shape == (40,) and (found == wrong.numpy()).mean() < 0.6


def test_a_width_is_chosen_without_a_look_at_the_fold_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the score on the tested fold, as in the first edition, fold 0 would choose otherwise."""
    shades = torch.arange(40.0)[:, None, None].expand(-1, SIDE, SIDE)  # each tells its place
    labels, folds = torch.arange(40) % 5, [place // 10 for place in range(40)]
    seen: list[set[int]] = []

    def taught(own: torch.Tensor, told: torch.Tensor, how: Schooling) -> int:
        seen.append({int(place) // 10 for place in own[:, 0, 0]})
        return how.width

    def called(width: int, own: torch.Tensor) -> torch.Tensor:
        """The wide network is right in the fold 1 alone, the narrow one in all others."""
        place = own[:, 0, 0].long()
        right = (place // 10 == 1) == (width == 16)
        return torch.where(right, place % 5, (place + 1) % 5)

    monkeypatch.setattr(patterns, "trained", taught)
    monkeypatch.setattr(patterns, "classified", called)
    found = patterns.chosen_widths(shades, labels, folds, [8, 16], Schooling())
    assert found == {0: 16, 1: 8, 2: 8, 3: 8}  # the fold 1 is next to 0, and tested by it
    assert seen[0] == {2, 3} and seen[2] == {0, 3} and seen[6] == {1, 2}
    assert patterns.chosen_widths(shades, labels, folds, [4], Schooling())[0] == 4


def test_the_metric_counts_each_map_once(bert: Encoder) -> None:
    batch = pair_of(bert)
    maps = torch.stack(list(drawn(batch).values()))[None]
    found = pattern_metric(PatternNet().eval())(Attention(maps, batch))
    assert found.total.shape == (1, 5, len(PATTERNS)) and (found.total.sum(-1) == 1).all()


# --- the labels -----------------------------------------------------------------------------------


def test_four_hundred_maps_are_labelled_and_a_hundred_twice() -> None:
    rows = labelled_maps()
    assert len(rows) >= 400 and sum(bool(row.again) for row in rows) >= 100
    assert len({row.id for row in rows}) == len(rows)
    assert len({(r.model, r.task, r.corpus, r.example, r.layer, r.head) for r in rows}) == len(rows)
    assert (
        len({(row.model, row.task) for row in rows}) >= 4 and len({row.layer for row in rows}) == 12
    )


def test_every_label_is_a_pattern() -> None:
    known = set(PATTERNS)
    for row in labelled_maps():
        assert row.label in known and {row.again, row.first_guide} <= {"", *known}, row
        assert min(row.layer, row.head) >= 1 and row.fold >= 0, row


def test_folds_share_neither_heads_nor_inputs() -> None:
    heads: dict[object, set[int]] = {}
    inputs: dict[object, set[int]] = {}
    for row in labelled_maps():
        heads.setdefault((row.model, row.layer, row.head), set()).add(row.fold)
        inputs.setdefault((row.corpus, row.example), set()).add(row.fold)
    assert all(len(folds) == 1 for folds in (*heads.values(), *inputs.values()))


def test_all_maps_of_an_input(bert: Encoder) -> None:
    maps, batch = all_maps(bert, Segment("a", SENTENCES[6]), max_length=12)
    assert maps.shape[-1] == batch.length == 12 and torch.allclose(
        maps.sum(-1), torch.ones(()), atol=1e-5
    )
