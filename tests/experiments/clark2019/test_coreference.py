"""Antecedents by heads, against plain loops and on documents cut short; by rules, by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from attnlib.data.corpora import Corpus, load_corpus
from attnlib.data.examples import CorefDocument, Span, Tree
from attnlib.errors import CorpusError
from attnlib.models import Encoder
from experiments.clark2019 import coreference as module
from experiments.clark2019.coreference import (
    BASELINES,
    Choices,
    _right,
    accuracy,
    choices,
    coreference,
    cut,
    dependency_lengths,
    nearest,
    questions,
)
from tests.notebooks import defined_in


def document(words: str, clusters: list[list[tuple[int, int]]], tags: str = "") -> CorefDocument:
    told = tuple(words.split())
    return CorefDocument(
        id="d",
        words=told,
        sentences=(Span(0, len(told)),),
        clusters=tuple(tuple(Span(a, b) for a, b in cluster) for cluster in clusters),
        tags=tuple(tags.split()) if tags else tuple("NOUN" for _ in told),
    )


ANNA = document(
    "Anna met Eva . She smiled .",
    [[(0, 1), (4, 5)], [(2, 3), (2, 3)]],
    "PROPN VERB PROPN PUNCT PRON VERB PUNCT",
)


def looks_at(n_words: int, links: dict[int, int]) -> torch.Tensor:
    """One head: each word puts 0.9 on its link and the rest elsewhere."""
    weights = torch.full((n_words, n_words), 0.1 / (n_words - 1))
    for query, key in links.items():
        weights[query, key] = 0.9
    return weights


def test_a_head_is_right_where_it_attends_to_an_antecedent() -> None:
    asked = [(m, before) for m, before in questions(ANNA) if m.head == 4]
    maps = torch.stack([looks_at(7, {4: 0}), looks_at(7, {4: 2}), looks_at(7, {4: 5})])
    found = _right(maps, torch.ones(7, dtype=torch.bool), asked)
    assert found["mentions"].tolist() == [[True, False, True]]  # the tie goes to the first mention
    assert found["words"].tolist() == [[True, False, False]]  # the third looks at a verb


def naive_right(maps: np.ndarray, doc: CorefDocument, *, among_mentions: bool) -> list[list[bool]]:
    """Plain loops, from the sentence in the paper."""
    rows = []
    mentions = [(doc.head_word(s), e) for e, c in enumerate(doc.clusters) for s in c]
    order = sorted(
        (head, -len(s), e)
        for e, c in enumerate(doc.clusters)
        for s in c
        for head in [doc.head_word(s)]
    )
    for head, _, entity in order:
        earlier = [(h, e) for h, e in mentions if h < head]
        if not any(e == entity for _, e in earlier):
            continue
        good = {h for h, e in earlier if e == entity}
        row = []
        for one in maps:
            allowed = [h for h, _ in earlier] if among_mentions else range(len(doc.words))
            best, most = -1, -1.0
            for word in sorted(set(allowed)):
                if word != head and one[head, word] > most:
                    best, most = word, one[head, word]
            row.append(best in good)
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_choices_equal_plain_loops(seed: int) -> None:
    doc = load_corpus("reader-coref", limit=3, seed=seed).examples[0]
    maps = torch.rand(
        5, len(doc.words), len(doc.words), generator=torch.Generator().manual_seed(seed)
    )
    found = _right(maps, torch.ones(len(doc.words), dtype=torch.bool), list(questions(doc)))
    for candidates in ("mentions", "words"):
        expected = naive_right(maps.numpy(), doc, among_mentions=candidates == "mentions")
        assert found[candidates].tolist() == expected


def test_a_cut_document_keeps_whole_words_and_answerable_entities(e5_small) -> None:  # type: ignore[no-untyped-def]
    doc = load_corpus("reader-coref", limit=1).examples[0]
    (short,) = cut([doc], e5_small, 40)
    n = len(short.words)
    assert short.words == doc.words[:n] and 0 < n < len(doc.words)
    assert len(e5_small.tokenizer(list(short.words), is_split_into_words=True)["input_ids"]) <= 40
    longer = list(doc.words[: n + 1])
    assert len(e5_small.tokenizer(longer, is_split_into_words=True)["input_ids"]) > 40
    assert all(span.end <= n for cluster in short.clusters for span in cluster)
    assert all(len(cluster) > 1 for cluster in short.clusters)
    for cluster in short.clusters:
        for span in cluster:
            assert short.head_word(span) == doc.head_word(span)
            assert short.mention_type(span) == doc.mention_type(span)
    (same,) = cut([doc], e5_small, 512)
    assert same is doc


def test_the_batch_size_changes_nothing(e5_small) -> None:  # type: ignore[no-untyped-def]
    documents = load_corpus("reader-coref", limit=5).examples
    one = choices(e5_small, documents, max_length=96, batch_size=1)
    many = choices(e5_small, documents, max_length=96, batch_size=5)
    assert (one.by_head["mentions"] == many.by_head["mentions"]).mean() > 0.999
    assert (one.kind == many.kind).all() and (one.document == many.document).all()
    nearest_links = [
        min(m.head - other.head for other in before if other.entity == m.entity)
        for document in cut(documents, e5_small, 96)
        for m, before in questions(document)
    ]
    assert one.distance.tolist() == nearest_links


def test_documents_without_questions_are_refused(e5_small) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CorpusError, match="none of 1 documents has a mention with an antecedent"):
        choices(e5_small, [document("Anna met Eva .", [])])


def made(right: list[list[int]], document: list[int]) -> Choices:
    table = np.array(right, bool)
    n = len(table)
    kinds, distance = np.array(["pronoun"] * n), np.ones(n, int)
    return Choices({"mentions": table, "words": table}, {}, np.array(document), kinds, distance, 2)


CORPUS = Corpus("toy", "coref", (ANNA,) * 4, {}, "here", "")


def answers_of(monkeypatch: pytest.MonkeyPatch, encoder: Encoder, given: Choices, seed: int = 0):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(module, "choices", lambda *_, **__: given)
    return coreference(CORPUS, encoder=encoder, seed=seed)


def test_the_clean_score_is_of_a_head_chosen_elsewhere(
    e5_small: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Head 1-1 is perfect on documents 0 and 1, head 1-2 on documents 2 and 3.
    given = made([[1, 0], [1, 0], [0, 1], [0, 1]], [0, 1, 2, 3])
    for seed in range(6):
        found = answers_of(monkeypatch, e5_small, given, seed).table
        assert found["any_word"].mean() == 0.5
        assert found["any_word_clean"].mean() in (0, 0.5)  # by the halves: never flattered


def test_one_document_gives_no_clean_score(
    e5_small: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answers_of(monkeypatch, e5_small, made([[1, 0], [1, 1]], [3, 3]))
    assert found.table["any_word_clean"].isna().all() and found.facts["clean_heads"] == []
    numbers = defined_in("clark2019", "antecedents")(with_rules(found.table)).findings
    assert numbers["table2.any_word.accuracy"].value == 100
    assert np.isnan(numbers["table2.any_word.clean_accuracy"].value)
    assert np.isnan(numbers["table2.any_word.clean_minus_nearest"].value)
    assert not numbers["table2.any_word.accuracy"].has_interval


def with_rules(table: pd.DataFrame) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    rules = ("nearest", "head_match", "rule_based")
    return table.assign(**{name: draw.integers(0, 2, len(table)).astype(float) for name in rules})


def answers(n: int = 60) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    table = pd.DataFrame({"document": np.sort(draw.integers(0, 8, n))})
    table["kind"] = draw.choice(["pronoun", "proper", "nominal"], n)
    table["distance"] = draw.integers(1, 9, n)
    for name in ("any_word", "any_word_clean", "mentions"):
        table[name] = draw.integers(0, 2, n).astype(float)
    return with_rules(table)


def test_table_2_by_plain_loops() -> None:
    table = answers()
    found = defined_in("clark2019", "antecedents")(table).findings

    def share(system: str, kinds: set[str]) -> float:
        rows = [row for row in table.to_dict("records") if row["kind"] in kinds]
        return 100 * sum(row[system] for row in rows) / len(rows)

    every = {"pronoun", "proper", "nominal"}
    for kind in ("", *sorted(every)):
        dot, kinds = kind and f".{kind}", {kind} if kind else every
        head, clean = share("any_word", kinds), share("any_word_clean", kinds)
        assert found[f"table2.any_word{dot}.accuracy"].value == pytest.approx(head)
        for rule in ("nearest", "head_match", "rule_based"):
            own = share(rule, kinds)
            assert found[f"table2.{rule}{dot}"].value == pytest.approx(own)
            assert found[f"table2.any_word{dot}.minus_{rule}"].value == pytest.approx(head - own)
            gap = found[f"table2.any_word{dot}.clean_minus_{rule}"]
            assert gap.value == pytest.approx(clean - own) and gap.low <= gap.value <= gap.high
        gap = found[f"table2{dot}.rule_based_minus_head_match"].value
        assert gap == pytest.approx(share("rule_based", kinds) - share("head_match", kinds))
    named = every - {"nominal"}
    lead = share("any_word_clean", {"nominal"}) - share("head_match", {"nominal"})
    lead -= share("any_word_clean", named) - share("head_match", named)
    assert found["table2.any_word.clean_nominal_lead"].value == pytest.approx(lead)


def test_shares_are_drawn_by_document() -> None:
    """Every document is the same, so that drawing documents again changes nothing."""
    table = pd.concat([answers(12).assign(document=n) for n in range(5)])
    shares = defined_in("clark2019", "shares_right")
    found = shares(table, systems={"nearest": "nearest mention"}).table.set_index("kind")
    assert found.loc["all", "value"] == pytest.approx(100 * table["nearest"].mean())
    for _, row in found.iterrows():
        assert row["low"] == pytest.approx(row["value"]) == pytest.approx(row["high"])


def test_links_are_compared_with_dependencies_pair_by_pair() -> None:
    table = answers(20)
    arcs = pd.DataFrame(
        {"document": list("aabb"), "length": [1, 3, 1, 12], "n": [4, 2, 1, 1]},
    )
    found = defined_in("clark2019", "link_lengths")(table, arcs).findings
    number = found["coref.longer_than_dependency"]
    lengths = [
        length for length, n in zip(arcs["length"], arcs["n"], strict=True) for _ in range(n)
    ]
    pairs = [(link, arc) for link in table["distance"] for arc in lengths]
    longer = sum((link > arc) + (link == arc) / 2 for link, arc in pairs) / len(pairs)
    assert number.value == pytest.approx(longer) and number.low < longer < number.high


def test_lengths_of_dependencies_leave_out_punctuation_and_roots() -> None:
    heads, labels = (2, 2, -1, 2, 2), ("det", "amod", "root", "punct", "acl")
    tree = Tree("1", tuple("abcde"), heads, labels, ("X",) * 5, document="d")
    found = dependency_lengths(Corpus("toy", "tree", (tree, tree), {}, "", "")).table
    assert found.values.tolist() == [["d", 2, 4], ["d", 1, 2]]


# --- rules ----------------------------------------------------------------------------------------


def test_baselines_make_sense_on_the_reader() -> None:
    documents = load_corpus("reader-coref").examples
    share = {}
    for name, choose in BASELINES.items():
        right, asked = accuracy(documents, choose)["all"]
        assert asked > 900
        share[name] = right / asked
    assert share["nearest"] < share["head match"] < share["rule-based"]
    assert 0.15 < share["nearest"] < 0.45 and 0.5 < share["rule-based"] < 0.8


# --- antecedents, by hand ------------------------------------------------------------------------


def mara() -> CorefDocument:
    """Mara met her sister . Mara greeted the woman . She smiled ."""
    text = "Mara met her sister . Mara greeted the woman . She smiled ."
    words = text.split()
    she = (Span(0, 1), Span(2, 3), Span(5, 6), Span(10, 11))
    sister = (Span(2, 4), Span(7, 9))
    return CorefDocument(
        id="hand",
        words=tuple(words),
        sentences=(Span(0, 5), Span(5, 10), Span(10, 13)),
        clusters=(she, sister),
        mention_heads=((0, 2, 5, 10), (3, 8)),
        mention_types=(("proper", "pronoun", "proper", "pronoun"), ("nominal", "nominal")),
    )


def test_questions_have_an_antecedent_and_look_back_only() -> None:
    asked = {m.head: [o.head for o in before] for m, before in questions(mara())}
    assert asked == {2: [0], 5: [3, 2, 0], 8: [5, 3, 2, 0], 10: [8, 5, 3, 2, 0]}


@pytest.mark.parametrize(
    ("name", "right"),
    [("nearest", {2}), ("head match", {5}), ("rule-based", {2, 5})],
)
def test_baselines_by_hand(name: str, right: set[int]) -> None:
    choose = BASELINES[name]
    found = set()
    for mention, before in questions(mara()):
        chosen = choose(mention, before)
        if chosen is not None and chosen.entity == mention.entity:
            found.add(mention.head)
    assert found == right


def test_accuracy_counts_by_type() -> None:
    assert accuracy([mara()], nearest) == {
        "all": (1, 4),
        "pronoun": (1, 2),
        "proper": (0, 1),
        "nominal": (0, 1),
    }
