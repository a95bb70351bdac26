"""Sec. 4.2, Fig. 3: heads that link the word of a frame with its core elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnlib.data.assets import resolve
from attnlib.data.corpora import Corpus, examples_digest
from attnlib.data.examples import (
    LEAST_DISTANCE,
    LONGEST_ELEMENT,
    LONGEST_SENTENCE,
    FrameExample,
    Span,
)
from attnlib.errors import CorpusError
from attnlib.measuring.head_tables import head_rows
from attnlib.measuring.significance import benjamini_hochberg, one_sided
from attnlib.measuring.stream import measure
from attnlib.metrics.links import control_metric, found_links, frame_links, link_metric
from attnlib.models import Encoder
from attnlib.plots.lines import Lines, as_table
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.kovaleva2019.patterns import MAX_LENGTH, all_maps
from experiments.shared.intervals import (
    columns_of,
    drawn,
    drawn_counts,
    elsewhere,
    halved,
    mean_ends,
    means,
    settled,
    smallest_of,
)

ASSET, REFERENCE = "kovaleva-reference", "kovaleva_heads_digitised.tsv"
TOP, NEAR = 2, 0.8
"""The paper's two heads; heads near the strongest have at least this share of its score."""
EXAMPLE, ASKS, ANSWER = ("He", "was", "becoming", "agitated", "."), 3, 0
"""The sentence of Fig. 3, its word that evokes a frame, and the core element of that frame."""
AUTHORS_MAPS = {
    "framenet_mean_max_attention_pretrained": "frames",
    "cosine_pretrained_vs_finetuned_QQP": "cosine",
}
OWN_LIST = "framenet-473"


def passes_filter(example: FrameExample) -> bool:
    """The paper's filter: short sentences, short core elements, and no linked neighbours."""
    elements = [span for _, span in example.core_elements]
    return bool(elements) and all(map(example.passes_filter, elements))


def chosen_frames(corpus: Corpus) -> Corpus:
    """The authors' own list as it is; of any other corpus what passes the paper's filter."""
    return corpus if corpus.name == OWN_LIST else filtered(corpus)


def filtered(corpus: Corpus, but: Corpus | None = None) -> Corpus:
    """The sentences that pass the paper's filter; a sentence with several frames counts once.

    but  sentences of this corpus are left out
    """
    seen = {example.words for example in but.examples} if but else set()  # type: ignore[attr-defined]
    kept = []
    for example in corpus.examples:
        if example.words not in seen and passes_filter(example):
            seen.add(example.words)
            kept.append(example)
    if not kept:
        raise CorpusError(
            f"no sentence of {corpus.name} passes the filter: at most {LONGEST_SENTENCE} words, "
            f"core elements of at most {LONGEST_ELEMENT} words, {LEAST_DISTANCE} words apart."
        )
    return replace(corpus, examples=tuple(kept), digest=examples_digest(tuple(kept)))


@experiment(version=2)
def frame_scores(
    corpus: Corpus,
    *,
    encoder: Encoder,
    name: str = "frames",
    direction: str = "both",
    seed: int = 0,
) -> Found:
    """Each head's largest weight along a link, mean over sentences, and along pairs as far apart.

    name   of the findings: "frames" are those that the claims ask for
    table  layer, head, mean, low, high, control, lead, lead_low, lead_high, q (of a lead > 0)
    facts  layers: the mean score of every layer on all sentences, then on sentences drawn again
           and heads drawn again within each layer
    """
    links = found_links("frame", corpus.examples, frame_links)
    metrics = [link(links, direction=direction) for link in (link_metric, control_metric)]
    length = min(MAX_LENGTH, encoder.max_length)
    found = measure(encoder, corpus, metrics, max_length=length)
    scores, controls = (found.values(metric.key) for metric in metrics)
    lead = scores - controls
    mean = mean_ends(scores, seed)
    grids = {"mean": mean.mean, "low": mean.low, "high": mean.high}
    grids["control"] = np.nanmean(controls, axis=0)
    grids |= columns_of("lead", mean_ends(lead, seed))
    table = head_rows(**grids, q=benjamini_hochberg(one_sided(lead, 0.0).p))
    passing = sum(passes_filter(example) for example in corpus.examples)  # type: ignore[arg-type]
    shown = [corpus.examples[at].words == EXAMPLE for at in found.shard.index]  # type: ignore[attr-defined]
    others = np.where(np.array(shown)[:, None, None], np.nan, scores)
    counts = drawn_counts(len(scores), seed)
    again = means(counts, scores)
    findings = {
        "sentences": Finding(float(passing) if corpus.name == OWN_LIST else math.nan),
        **standing_out(scores, lead, counts, seed),
        "agitated_smaller_lead": _smaller(means(counts, others), example_lead(encoder)),
    }
    generator = np.random.default_rng(seed)
    picks = generator.integers(0, encoder.n_heads, again.shape)
    picks[0] = np.arange(encoder.n_heads)
    facts = {
        "inputs": found.n_examples,
        "passes": found.n_examples,
        "controlled": int((~np.isnan(lead).any((1, 2))).sum()),
        "passing": passing,
        "frames": len({example.frame for example in corpus.examples}),
        "direction": direction,
        "layers": np.take_along_axis(again, picks, 2).mean(2).round(6).tolist(),
    }
    return Found(table, {f"{name}.{key}": one for key, one in findings.items()}, facts)


def standing_out(
    scores: np.ndarray, lead: np.ndarray, counts: np.ndarray, seed: int
) -> dict[str, Finding]:
    """How far the strongest heads are above the others, and their lead over moved pairs.

    scores, lead  (sentence, layer, head);  counts  how often each sentence is drawn

    Heads are sorted anew in every draw: gap_after_second is (2nd - 3rd) / 2nd. The heads of
    `clean_smaller_lead_of_two` are chosen on one half of the sentences, tested on the other.
    """
    flat, ahead = (values.reshape(len(values), -1) for values in (scores, lead))
    mean = means(counts, flat)
    ranked = -np.sort(-mean, axis=1)
    leads = np.take_along_axis(means(counts, ahead), (-mean).argsort(1)[:, :TOP], 1)
    halves = halved(counts, seed)
    clean = settled(elsewhere(means(halves, flat), means(halves, ahead), top=TOP))
    return {
        "heads_near_strongest": drawn((mean >= NEAR * ranked[:, :1]).sum(1)),
        "gap_after_second": drawn((ranked[:, 1] - ranked[:, 2]) / ranked[:, 1]),
        "lead_of_two": drawn(leads.mean(1)),
        "clean_smaller_lead_of_two": smallest_of(list(clean.T)),
    }


def example_lead(encoder: Encoder) -> Float[np.ndarray, "layer head"]:
    """Fig. 3: the weight from "agitated" to "He" less the largest from it to another word.

    Of words of several pieces the largest weight of any two counts; punctuation is no word.
    """
    text = " ".join(EXAMPLE)
    maps, batch = all_maps(encoder, FrameExample(text, EXAMPLE, "", Span(ASKS, ASKS + 1), (), ()))
    place = [np.flatnonzero(batch.word[0].cpu().numpy() == word) for word in range(len(EXAMPLE))]
    weights = maps.cpu().numpy()[:, :, place[ASKS]].max(2)
    to = {word: weights[..., place[word]].max(-1) for word in range(len(EXAMPLE) - 1)}
    rest = [own for word, own in to.items() if word not in (ASKS, ANSWER)]
    return np.asarray(to[ANSWER] - np.max(rest, axis=0))


def _smaller(scores: np.ndarray, leads: np.ndarray) -> Finding:
    """The smaller lead of the two heads with the highest score, chosen anew in every draw."""
    strongest = (-scores.reshape(len(scores), -1)).argsort(1)[:, :TOP]
    return drawn(leads.ravel()[strongest].min(1))


@experiment(version=1)
def frame_portraits(corpus: Corpus, *, encoder: Encoder, names: Sequence[str]) -> Found:
    """Some heads on the first sentence: lines from the word that evokes its frame are marked.

    table  the rows of `attnlib.plots.lines.as_table`
    """
    example: Any = corpus.examples[0]
    maps, batch = all_maps(encoder, example)
    pieces = encoder.tokenizer.convert_ids_to_tokens(batch.ids[0].tolist())
    evoking = range(example.target.start, example.target.end)
    marked = tuple(piece for piece, w in enumerate(batch.word[0].tolist()) if w in evoking)
    panels = []
    for name in names:
        layer, head = (int(part) - 1 for part in name.split("-"))
        one = maps[layer, head].numpy()
        panels.append(Lines(pieces, one, name, f"frame {example.frame}", marked))
    return Found(as_table(panels), facts={"inputs": 1})


# --- the authors' maps ----------------------------------------------------------------------------


def authors_map() -> pd.DataFrame:
    """The authors' published maps, read off the colours: layer, head (from 1), frames, cosine."""
    table = pd.read_csv(resolve(ASSET) / REFERENCE, sep="\t").rename(columns=AUTHORS_MAPS)
    return table.assign(layer=table["layer"] + 1, head=table["head"] + 1)
