"""Sec. 4.2, Fig. 4: heads that link the word of a frame with its core elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from attnlib.data.assets import resolve
from attnlib.data.corpora import Corpus, examples_digest
from attnlib.data.examples import (
    LEAST_DISTANCE,
    LONGEST_ELEMENT,
    LONGEST_SENTENCE,
    FrameExample,
)
from attnlib.errors import CorpusError
from attnlib.measuring.head_tables import head_rows, layer_means, rank_correlation
from attnlib.measuring.significance import benjamini_hochberg, one_sided
from attnlib.measuring.stream import measure
from attnlib.metrics.links import control_metric, found_links, frame_links, link_metric
from attnlib.models import Encoder
from attnlib.plots.lines import Lines, as_table
from bookkit.claims import Finding
from bookkit.store import Found, experiment
from experiments.kovaleva2019.patterns import MAX_LENGTH, all_maps
from experiments.shared.intervals import columns_of, drawn, drawn_places, mean_ends

ASSET, REFERENCE = "kovaleva-reference", "kovaleva_heads_digitised.tsv"
DEVIATIONS = 3
"""A head stands out if its mean exceeds the mean over heads by so many standard deviations."""
HALVES = 200
AUTHORS_MAPS = {
    "framenet_mean_max_attention_pretrained": "frames",
    "cosine_pretrained_vs_finetuned_QQP": "cosine",
}
BESIDE = {"frames": "frames.layer_correlation", "cosine": "cosine.authors_layers"}
"""The finding that each of the authors' maps leads to."""
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


@experiment(version=1)
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
    findings = {"sentences": Finding(float(passing)), **_standing_out(scores, lead, seed)}
    facts = {
        "inputs": found.n_examples,
        "passes": found.n_examples,
        "controlled": int((~np.isnan(lead).any((1, 2))).sum()),
        "passing": passing,
        "frames": len({example.frame for example in corpus.examples}),
        "direction": direction,
    }
    return Found(table, {f"{name}.{key}": one for key, one in findings.items()}, facts)


def _standing_out(scores: np.ndarray, lead: np.ndarray, seed: int) -> dict[str, Finding]:
    """Heads far above the others, the lead of the best, and of the best chosen on other data."""
    generator = np.random.default_rng(seed)
    strong, best, clean = [], [], []

    def lead_of_best(chosen_on: np.ndarray, tested_on: np.ndarray) -> float:
        best = np.nanmean(scores[chosen_on], axis=0).argmax()
        return float(np.nanmean(lead[tested_on], axis=0).ravel()[best])

    for at in drawn_places(len(scores), generator):
        mean = np.nanmean(scores[at], axis=0)
        strong.append(float((mean >= mean.mean() + DEVIATIONS * mean.std()).sum()))
        best.append(lead_of_best(at, at))
    for _ in range(HALVES):
        order = generator.permutation(len(scores))
        clean.append(lead_of_best(*np.split(order, [len(order) // 2])))
    return {
        "strong_heads": drawn(strong),
        "best_lead": drawn(best),
        "clean_lead": drawn([float(np.nanmean(clean)), *clean]),
    }


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


@experiment(version=1, reads=["kovaleva-reference"])
def beside_authors(*tables: pd.DataFrame, columns: Sequence[str], seed: int = 0) -> Found:
    """Layer profiles, ours and those of the authors' maps, with their rank correlation.

    tables   of ours; `columns` names of each the column to compare, and theirs, as "mean:frames"
    table    what, layer, ours, authors, rho, p (layers permuted), rho_heads
    Heads of two models have no common numbering: `rho_heads`, over heads, is only for a run on the
    authors' own model.
    """
    theirs = authors_map()
    names = ["what", "layer", "ours", "authors", "rho", "p", "rho_heads"]
    rows, found = [], {}
    for table, pair in zip(tables, columns, strict=True):
        own, other = pair.split(":")
        ours, profile = layer_means(table, own), layer_means(theirs, other)
        if len(ours) != len(profile):
            continue
        rho, p = rank_correlation(ours.to_numpy(), profile.to_numpy(), seed)
        joint = table.merge(theirs, on=["layer", "head"], suffixes=("", "_theirs"))
        known = joint[f"{other}_theirs" if other in table else other]
        heads = rank_correlation(joint[own].to_numpy(), known.to_numpy(), seed)[0]
        found[BESIDE[other]] = Finding(rho)
        rows += [
            (other, layer, ours[layer], profile[layer], rho, p, heads) for layer in profile.index
        ]
    return Found(pd.DataFrame(rows, columns=names), found)
