"""One pass over a corpus gives the numbers of a plain loop, however it is cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attnlib.attention.encode import batches, encode
from attnlib.attention.maps import Attention
from attnlib.data.corpora import Corpus
from attnlib.data.examples import Segment
from attnlib.errors import BadValue, CorpusError, TooLong, Unobservable
from attnlib.measuring.engines import measure_on
from attnlib.measuring.shards import Shard
from attnlib.measuring.stream import Measurement, measure
from attnlib.metrics.registry import METRICS, Metric, Partial
from attnlib.metrics.relations import RELATIONS
from attnlib.models import Encoder, load_encoder, random_twin
from attnlib.progress import watched
from tests.families import FAMILIES, HEADS, LAYERS, SENTENCES, folders, one_thread

__all__ = ["folders", "one_thread"]  # fixtures

KEYS = ("mass_to_previous", "mass_to_next", "mass_to_sep", "mass_to_cls", "entropy")

TEXTS = (
    Segment("0", SENTENCES[0]),
    Segment("1", SENTENCES[1], SENTENCES[2]),
    Segment("2", SENTENCES[3]),
    Segment("3", SENTENCES[4]),
    Segment("4", SENTENCES[5], SENTENCES[3]),
    Segment("5", SENTENCES[5]),
    Segment("6", SENTENCES[0], SENTENCES[5]),
    Segment("7", "The ferry, like the bridge before it, belongs to nobody in particular."),
    Segment("8", "Seven geologists looked at the same hill and saw eight different histories."),
)


def texts_of(*texts: str) -> Corpus:
    return corpus_of(*(Segment(str(i), text) for i, text in enumerate(texts)))


def corpus_of(*examples: Segment, name: str = "few", skipped: Any = None) -> Corpus:
    return Corpus(name, "segment", examples, skipped or {}, "tests", "none")


@pytest.fixture(params=FAMILIES)
def encoder(request: pytest.FixtureRequest, folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders(request.param), device="cpu")


@pytest.fixture
def bert(folders: Callable[[str], Path]) -> Encoder:
    return load_encoder(folders("bert"), device="cpu")


# --- the oracle: one text at a time, the library's maps, loops in double precision --------------


def library_maps(encoder: Encoder, example: Segment) -> tuple[list[int], np.ndarray]:
    """Pieces and maps (layer, head, query, key) of one text, without padding."""
    inputs = encoder.tokenizer(example.text, example.pair, return_tensors="pt")
    before = encoder.model.config._attn_implementation
    encoder.model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            attentions = encoder.model(**inputs, output_attentions=True).attentions
    finally:
        encoder.model.set_attn_implementation(before)
    return inputs["input_ids"][0].tolist(), torch.cat(attentions).double().numpy()


def looped(metric: str, ids: list[int], rows: np.ndarray, encoder: Encoder) -> float:
    """One head's number for one text, written from the papers."""
    n = len(ids)
    assert rows.shape == (n, n)
    if metric == "mass_to_previous":
        return sum(rows[q][q - 1] for q in range(1, n)) / n
    if metric == "mass_to_next":
        return sum(rows[q][q + 1] for q in range(n - 1)) / n
    if metric == "entropy":
        return sum(-(p * np.log(p)).sum() for p in (row[row > 0] for row in rows)) / n
    token = {
        "mass_to_sep": encoder.tokenizer.sep_token_id,
        "mass_to_cls": encoder.tokenizer.cls_token_id,
    }[metric]
    return sum(rows[q][k] for q in range(n) for k in range(n) if ids[k] == token) / n


def naive(encoder: Encoder, examples: Sequence[Segment], metric: str) -> np.ndarray:
    """(example, layer, head)."""
    found = []
    for example in examples:
        ids, maps = library_maps(encoder, example)
        found.append([[looped(metric, ids, head, encoder) for head in layer] for layer in maps])
    return np.array(found)


def per_example(found: Measurement, metric: str) -> np.ndarray:
    total, weight = found.rows(metric)
    return total / weight


# --- the pass equals the loop -------------------------------------------------------------------


@pytest.mark.parametrize("metric", KEYS)
def test_measure_is_the_loop(encoder: Encoder, metric: str) -> None:
    found = measure(encoder, corpus_of(*TEXTS), KEYS, max_length=60, batch_size=4)
    expected = naive(encoder, TEXTS, metric)
    assert found.n_examples == len(TEXTS)
    assert np.abs(per_example(found, metric) - expected).max() < 1e-5
    assert np.abs(found.grid(metric) - expected.mean(0)).max() < 1e-5


@pytest.mark.parametrize("wrong", ["mass_to_next", "off by one"])
def test_the_loop_rejects_planted_faults(bert: Encoder, wrong: str) -> None:
    """A swapped direction, and a divisor that leaves the border out, are seen."""
    expected = naive(bert, TEXTS, "mass_to_previous")
    found = measure(bert, corpus_of(*TEXTS), KEYS, max_length=60)
    if wrong == "mass_to_next":
        planted = per_example(found, wrong)
    else:
        total, weight = found.rows("mass_to_previous")
        planted = total / (weight - 1)
    assert np.abs(planted - expected).max() > 1e-3


@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_batches_do_not_change_a_number(encoder: Encoder, batch_size: int) -> None:
    found = measure(encoder, corpus_of(*TEXTS), KEYS, max_length=60, batch_size=batch_size)
    for metric in KEYS:
        assert np.abs(per_example(found, metric) - naive(encoder, TEXTS, metric)).max() < 1e-5


def test_the_order_of_examples_does_not_change_a_number(bert: Encoder) -> None:
    straight = measure(bert, corpus_of(*TEXTS), KEYS, max_length=60, batch_size=4)
    turned = measure(bert, corpus_of(*TEXTS[::-1]), KEYS, max_length=60, batch_size=4)
    for metric in KEYS:
        difference = per_example(straight, metric) - per_example(turned, metric)[::-1]
        assert np.abs(difference).max() < 1e-6


def test_micro_and_macro_means(bert: Encoder) -> None:
    found = measure(bert, corpus_of(*TEXTS), ["mass_to_sep"], max_length=60)
    total, weight = found.rows("mass_to_sep")
    assert np.allclose(found.grid("mass_to_sep"), (total / weight).mean(0))
    assert np.allclose(found.grid("mass_to_sep", micro=True), total.sum(0) / weight.sum(0))
    lengths = [len(bert.tokenizer(e.text, e.pair)["input_ids"]) for e in TEXTS]
    assert weight[:, 0, 0].tolist() == lengths


def test_the_table_counts_from_one(bert: Encoder) -> None:
    found = measure(bert, corpus_of(*TEXTS), ["entropy"], max_length=60)
    table = found.table()
    assert len(table) == LAYERS * HEADS
    assert table["layer"].tolist() == [1] * 4 + [2] * 4 + [3] * 4
    assert table["head"].tolist() == [1, 2, 3, 4] * 3
    assert np.allclose(table["mean"], found.grid("entropy").ravel())
    assert set(table["n"]) == {len(TEXTS)}


@pytest.mark.assets
def test_a_trained_model(e5_small: Encoder) -> None:
    encoder = e5_small
    found = measure(encoder, corpus_of(*TEXTS[:5], *TEXTS[7:]), KEYS, batch_size=3)
    for metric in KEYS:
        expected = naive(encoder, (*TEXTS[:5], *TEXTS[7:]), metric)
        assert np.abs(per_example(found, metric) - expected).max() < 1e-5
    best = {metric: divmod(found.grid(metric).argmax(), encoder.n_heads) for metric in KEYS[:2]}
    assert best == {"mass_to_previous": (2, 2), "mass_to_next": (0, 7)}, "heads 3-3 and 1-8"


# --- what is left out ---------------------------------------------------------------------------


def test_windows_of_a_document_are_one_example(bert: Encoder) -> None:
    long = Segment("long", " ".join(SENTENCES))
    corpus = corpus_of(TEXTS[0], long)
    found = measure(bert, corpus, KEYS, max_length=30, on_long="window", batch_size=2)
    assert found.n_examples == 2
    assert found.skipped == {"windowed": 1}
    pieces = bert.tokenizer(long.text)["input_ids"][1:-1]
    cls, sep = bert.tokenizer.cls_token_id, bert.tokenizer.sep_token_id
    windows = [[cls, *pieces[i : i + 28], sep] for i in range(0, len(pieces), 28)]
    assert len(windows) > 5
    total, weight = np.zeros((LAYERS, HEADS)), 0
    bert.model.set_attn_implementation("eager")
    for ids in windows:
        with torch.no_grad():
            maps = bert.model(torch.tensor([ids]), output_attentions=True).attentions
        per_head = [
            [looped("mass_to_previous", ids, head, bert) for head in layer]
            for layer in torch.cat(maps).double().numpy()
        ]
        total += np.array(per_head) * len(ids)
        weight += len(ids)
    assert np.abs(per_example(found, "mass_to_previous")[1] - total / weight).max() < 1e-5


def test_what_is_left_out_is_counted(bert: Encoder) -> None:
    corpus = corpus_of(
        TEXTS[0],
        Segment("empty", " "),
        Segment("long", SENTENCES[6]),
        TEXTS[5],
        skipped={"no label": 3},
    )
    found = measure(bert, corpus, KEYS, max_length=40, on_long="skip")
    assert found.skipped == {"no label": 3, "no pieces": 1, "too long": 1}
    assert found.n_examples == 2
    assert (
        np.abs(per_example(found, "entropy") - naive(bert, (TEXTS[0], TEXTS[5]), "entropy")).max()
        < 1e-5
    )


def test_nothing_left_is_an_error(bert: Encoder) -> None:
    with pytest.raises(CorpusError, match=r"nothing left to measure \(2 no pieces\)"):
        measure(bert, corpus_of(Segment("0", " "), Segment("1", "\u200b")), KEYS, max_length=40)
    with pytest.raises(CorpusError, match=r"nothing left to measure \(no examples\)"):
        measure(bert, corpus_of(), KEYS, max_length=40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 513}, "max-length is 513; expected 3 to 66"),
        ({"max_length": 0}, "max-length is 0"),
        ({"max_length": 60, "batch_size": 0}, "batch-size is 0"),
        ({"max_length": 60, "segment_ids": "ones"}, "segment-ids is 'ones'"),
        ({"max_length": 60, "on_long": "cut"}, "on-long is 'cut'"),
    ],
)
def test_bad_options(bert: Encoder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        measure(bert, corpus_of(*TEXTS), KEYS, **options)


def test_an_error_in_the_middle_leaves_the_model_whole(bert: Encoder) -> None:
    many = corpus_of(*TEXTS * 3, Segment("long", " ".join(SENTENCES)))
    with pytest.raises(TooLong, match="document 28 has"):
        measure(bert, many, KEYS, max_length=60, batch_size=1)
    assert bert.model.config._attn_implementation == "sdpa"


def test_progress_reaches_the_end(bert: Encoder) -> None:
    calls: list[tuple[int, int]] = []
    with watched(lambda done, total: calls.append((done, total))):
        measure(bert, corpus_of(*TEXTS), ["entropy"], max_length=60, batch_size=4)
    assert calls == [(4, 9), (8, 9), (9, 9)]


# --- numbers that are not finite ----------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("metric", [*KEYS, "column_mass", "row_peak"])
def test_weights_that_are_not_finite_are_refused(bert: Encoder, value: float, metric: str) -> None:
    bert.model.encoder.layer[1].attention.self.query.weight.data[0, 0] = value
    with pytest.raises(BadValue) as error:
        measure(bert, corpus_of(*TEXTS), [metric], max_length=60)
    message = str(error.value)
    assert message.startswith(f"'{bert.name}': {metric} is not finite from layer 2 on")
    assert "\n" not in message
    assert "document" in message


def test_undefined_is_not_an_error(bert: Encoder) -> None:
    """A single text has no other part: weight 0 and NaN, counted, not refused."""
    found = measure(bert, corpus_of(TEXTS[0], TEXTS[1]), ["mass_to_other_segment"], max_length=60)
    _, weight = found.rows("mass_to_other_segment")
    assert (weight[0] == 0).all()
    assert (weight[1] > 0).all()
    assert np.isfinite(found.grid("mass_to_other_segment")).all()


def test_half_precision_is_reduced_in_single(folders: Callable[[str], Path]) -> None:
    full = load_encoder(folders("bert"), device="cpu")
    half = load_encoder(folders("bert"), device="cpu", dtype=torch.bfloat16)
    exact = measure(full, corpus_of(*TEXTS), KEYS, max_length=60)
    rough = measure(half, corpus_of(*TEXTS), KEYS, max_length=60)
    for metric in KEYS:
        assert np.abs(exact.grid(metric) - rough.grid(metric)).max() < 0.05


# --- rows on disk -------------------------------------------------------------------------------


def partial_rows(n: int, seed: int) -> dict[str, Partial]:
    draw = torch.Generator().manual_seed(seed)
    total = torch.rand(n, LAYERS, HEADS, 5, generator=draw)
    return {"grid": Partial(total, torch.rand(n, LAYERS, generator=draw))}


def test_parts_of_a_spool_are_the_whole() -> None:
    shard = Shard()
    blocks = [partial_rows(n, seed)["grid"] for seed, n in enumerate((3, 1, 4))]
    for block, index in zip(blocks, ((5, 0, 2), (7,), (1, 3, 4, 6)), strict=True):
        shard.append(index, {"grid": block})
    total, weight = shard.read("grid")
    assert total.shape == weight.shape == (8, LAYERS, HEADS, 5)
    for part in (slice(0, 1), slice(1, LAYERS)):
        part_total, part_weight = shard.read("grid", part)
        assert np.array_equal(part_total, total[:, part])
        assert np.array_equal(part_weight, weight[:, part])
    assert np.array_equal(total[5], blocks[0].total[0].double().numpy())
    assert np.array_equal(total[7], blocks[1].total[0].double().numpy())
    assert np.array_equal(weight[6], blocks[2].spread_weight()[3].double().numpy())


def test_the_parts_of_a_spool_make_the_first_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = Shard()
    shard.append((0, 1, 2), partial_rows(3, 0))
    assert list(shard.parts("grid")) == [slice(0, LAYERS)]
    monkeypatch.setattr("attnlib.measuring.shards.READ_BYTES", 1)
    assert list(shard.parts("grid")) == [slice(i, i + 1) for i in range(LAYERS)]


def test_rows_of_another_shape_are_refused() -> None:
    shard = Shard()
    shard.append((0,), {"x": Partial(torch.ones(1, 2, 5), torch.ones(1))})
    with pytest.raises(ValueError, match="rows of 'x'"):
        shard.append((1,), {"x": Partial(torch.ones(1, 2, 6), torch.ones(1))})


def test_an_undefined_window_does_not_spoil_its_document() -> None:
    shard = Shard()
    shard.append((0,), {"x": Partial(torch.tensor([[torch.nan]]), torch.zeros(1))})
    shard.append((0,), {"x": Partial(torch.tensor([[3.0]]), torch.ones(1))})
    total, weight = shard.read("x")
    assert total.tolist() == [[3.0]] and weight.tolist() == [[1.0]]


def by_query(attention: Attention) -> Partial:
    """What each query pays to itself: as long as the text."""
    return Partial(
        attention.weights.diagonal(dim1=2, dim2=3), attention.real.unsqueeze(1).to(torch.float32)
    )


def test_a_metric_as_long_as_its_text_is_padded(bert: Encoder) -> None:
    own = Metric("own", "per query", "own", "", (0.0, 1.0), by_query, axes=("head", "query"))
    texts = texts_of("a short one", "one that is a good deal longer than the other one")
    found = measure(bert, texts, [own], batch_size=1, max_length=40)
    _, weight = found.rows("own")
    lengths = [len(bert.tokenizer(text)["input_ids"]) for text in (e.text for e in texts)]
    assert weight.shape == (2, bert.n_layers, bert.n_heads, 40)
    assert weight[:, 0, 0].sum(-1).tolist() == lengths


def test_a_metric_of_the_users_own_is_not_mistaken_for_a_mass(bert: Encoder) -> None:
    """It names a relation, but brings a kernel of its own."""

    def sevens(attention: Attention) -> Partial:
        n = attention.n_real
        return Partial(7 * n[:, None].expand(-1, attention.weights.shape[1]), n)

    own = replace(METRICS["mass_to_next"], key="sevens", kernel=sevens, variants=("paper",))
    found = measure(bert, texts_of("one text", "another text"), [own], max_length=40)
    assert np.allclose(found.grid("sevens"), 7.0)


def test_what_would_be_dropped_in_silence_is_refused(bert: Encoder) -> None:
    texts = texts_of("one text", "another text")
    with pytest.raises(BadValue, match="limit goes with the name"):
        measure(bert, texts, ["entropy"], limit=1)
    twin = replace(METRICS["entropy"], what="another")
    with pytest.raises(BadValue, match="two metrics are called 'entropy'"):
        measure(bert, texts, ["entropy", twin])
    with pytest.raises(BadValue, match="called 'a/b'"):
        measure(bert, texts, [replace(twin, key="a/b")])


def test_a_relation_kept_from_a_pass_serves_a_gradient(bert: Encoder) -> None:
    measure(bert, texts_of("one text"), ["mass_to_next"], max_length=40)
    (batch,) = batches(encode(texts_of("one text").examples, bert, max_length=40), bert)
    weights = torch.rand(batch.length, batch.length, requires_grad=True)
    (weights * RELATIONS["next"].pairs_in(batch)[0]).sum().backward()
    assert weights.grad is not None and weights.grad.sum() == batch.length - 1


def test_a_spool_in_small_blocks_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = Shard()
    for seed in range(4):
        shard.append((3 * seed, 3 * seed + 1, 3 * seed + 2), partial_rows(3, seed))
    whole = shard.read("grid")
    monkeypatch.setattr("attnlib.measuring.shards.READ_BYTES", 1)
    for ours, theirs in zip(shard.read("grid"), whole, strict=True):
        assert np.array_equal(ours, theirs)


def test_rows_of_one_example_are_added_up() -> None:
    shard = Shard()
    block = partial_rows(4, 0)["grid"]
    shard.append((1, 0, 1, 1), {"grid": block})
    total, weight = shard.read("grid")
    rows = block.total.double().numpy()
    assert np.allclose(total[1], rows[0] + rows[2] + rows[3])
    assert np.allclose(total[0], rows[1])
    assert np.allclose(weight[1], block.spread_weight()[[0, 2, 3]].double().numpy().sum(0))


def test_a_spool_that_travelled_is_the_same() -> None:
    here, there = Shard(), Shard()
    for seed in range(2):
        there.append((2 * seed, 2 * seed + 1), partial_rows(2, seed))
    here.append((0, 1), partial_rows(2, 9))
    here.extend(there.exported(start=2))
    assert here.index == [0, 1, 2, 3, 4, 5]
    assert np.array_equal(here.read("grid")[0][2:], there.read("grid")[0])


def test_rows_are_on_disk_and_go_with_the_measurement(bert: Encoder) -> None:
    found = measure(bert, corpus_of(*TEXTS), ["entropy"], max_length=60)
    folder = Path(found.shard._folder.name)
    (file,) = folder.iterdir()
    assert file.stat().st_size == len(TEXTS) * 2 * LAYERS * HEADS * 4
    del found
    assert not folder.exists()


# --- the random twin ----------------------------------------------------------------------------


def is_embedding(name: str) -> bool:
    return "embeddings" in name.split(".")


def test_a_twin_keeps_the_embeddings_only(encoder: Encoder) -> None:
    before = {name: value.clone() for name, value in encoder.model.named_parameters()}
    twin = random_twin(encoder, seed=3)
    for name, value in twin.model.named_parameters():
        assert torch.equal(value, before[name]) == is_embedding(name), name
    for name, value in encoder.model.named_parameters():
        assert torch.equal(value, before[name]), "the original is untouched"
    assert "random twin, seed 3" in twin.name


def test_a_twin_is_its_seed(encoder: Encoder) -> None:
    first, again, other = (random_twin(encoder, seed=seed).model for seed in (1, 1, 2))
    for (name, a), b in zip(first.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name
    linear = [
        torch.equal(a.weight, b.weight)
        for (name, a), b in zip(first.named_modules(), other.modules(), strict=True)
        if isinstance(a, nn.Linear) and not is_embedding(name)
    ]
    assert linear
    assert not any(linear)


def test_a_twin_does_not_touch_the_global_seed(bert: Encoder) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    random_twin(bert, seed=5)
    assert torch.equal(torch.rand(3), expected)


def test_a_twin_can_be_measured(encoder: Encoder) -> None:
    twin = random_twin(encoder)
    ours = measure(twin, corpus_of(*TEXTS), KEYS, max_length=60)
    assert np.abs(per_example(ours, "entropy") - naive(twin, TEXTS, "entropy")).max() < 1e-5
    original = measure(encoder, corpus_of(*TEXTS), KEYS, max_length=60)
    assert np.abs(ours.grid("entropy") - original.grid("entropy")).max() > 1e-3


# --- on a Dask cluster --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A scheduler and two workers of two threads each, in this process."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=False, protocol="tcp", dashboard_address=":0"
    ) as made:
        yield made.scheduler_address.replace("tcp://", "dask://")


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_a_cluster_gives_the_same_numbers(
    cluster: str, folders: Callable[[str], Path], name: str
) -> None:
    long = Segment("long", " ".join(SENTENCES))
    corpus = corpus_of(*TEXTS, long, Segment("empty", " "), *TEXTS[::-1])
    options = {"max_length": 60, "on_long": "window", "batch_size": 3}
    here = measure_on("local", folders(name), corpus, KEYS, device="cpu", **options)
    there = measure_on(cluster, folders(name), corpus, KEYS, device="cpu", **options)
    assert there.n_examples == here.n_examples == 19
    assert there.skipped == here.skipped
    for metric in KEYS:
        for ours, theirs in zip(there.rows(metric), here.rows(metric), strict=True):
            assert np.abs(ours - theirs).max() < 1e-4
        assert np.abs(there.grid(metric) - here.grid(metric)).max() < 1e-6


def test_a_cluster_names_the_document_as_the_user_counts(
    cluster: str, folders: Callable[[str], Path]
) -> None:
    corpus = corpus_of(*TEXTS * 2, Segment("long", " ".join(SENTENCES)))
    with pytest.raises(TooLong, match="document 19 has"):
        measure_on(cluster, folders("bert"), corpus, KEYS, device="cpu", max_length=60)


def test_a_cluster_that_is_not_there(folders: Callable[[str], Path]) -> None:
    with pytest.raises(BadValue, match="expected local or dask://HOST:PORT"):
        measure_on("spark", folders("bert"), corpus_of(*TEXTS), KEYS)


@pytest.mark.slow
def test_a_cluster_of_processes(folders: Callable[[str], Path]) -> None:
    """What travels can be pickled, and a fresh process can do the work."""
    distributed = pytest.importorskip("distributed")
    corpus = corpus_of(*TEXTS)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as made:
        address = made.scheduler_address.replace("tcp://", "dask://")
        there = measure_on(address, folders("bert"), corpus, KEYS, device="cpu", max_length=60)
    here = measure(folders("bert"), corpus, KEYS, device="cpu", max_length=60)
    for metric in KEYS:
        assert np.abs(there.grid(metric) - here.grid(metric)).max() < 1e-6


def test_an_unobservable_model_is_refused_before_the_corpus_is_read(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: object) -> None:
        raise AssertionError("the corpus was read")

    monkeypatch.setattr("attnlib.attention.encode.tokenized", unread)
    bert.model.encoder.layer = bert.model.encoder.layer[:1]
    with pytest.raises(Unobservable, match="1 layers"):
        measure(bert, corpus_of(*TEXTS), KEYS, max_length=60)
