"""Rows of the annotated corpora as examples: OntoGUM (coreference), FrameNet (frames)."""

from __future__ import annotations

import re
from itertools import pairwise

from attnlib.data.examples import CorefDocument, FrameExample, Span
from attnlib.data.textfiles import Fields, field


def ontogum_document(number: int, row: Fields) -> CorefDocument:
    """A document of OntoGUM; the file's inclusive mention spans become half-open ones."""
    words = tuple(field(row, "tokens", kind=list))
    ends = field(row, "sent_ends", kind=list)
    layers = {name: tuple(field(row, name, kind=list)) for name in ("head", "deprel", "upos")}
    clusters = tuple(
        tuple(sorted(Span(first, last + 1) for first, last in cluster))
        for cluster in field(row, "clusters", kind=list)
    )
    reach = max((span.end for cluster in clusters for span in cluster), default=0)
    short = [name for name, layer in layers.items() if len(layer) != len(words)]
    if short or reach > len(words) or not ends or ends[-1] != len(words):
        what = f"'{short[0]}'" if short else "a mention" if reach > len(words) else "'sent_ends'"
        raise ValueError(f"{what} does not fit the {len(words)} tokens.")
    return CorefDocument(
        id=field(row, "doc"),
        words=words,
        sentences=tuple(Span(start, end) for start, end in pairwise([0, *ends])),
        clusters=clusters,
        genre=field(row, "genre"),
        heads=layers["head"],
        relations=layers["deprel"],
        tags=layers["upos"],
    )


def frame_example(number: int, row: Fields) -> FrameExample | str:
    """An annotation set of FrameNet, or one of the list of Kovaleva 2019 (sec. 4.2).

    Spans of characters become spans of the text's words, which FrameNet separates by blanks; a set
    whose spans cut through a word is left out, and so is a target of several parts (Kovaleva takes
    exactly one). The links of Kovaleva's list are core elements by choice.
    """
    text, links = field(row, "text", "sentence"), field(row, "fes", "links", kind=list)
    targets = field(row, "target_span", "target", kind=list)
    if len(targets) != 1:
        return "target of several parts"
    words = list(re.finditer(r"\S+", text))
    starts = {match.start(): index for index, match in enumerate(words)}
    ends = {match.end(): index + 1 for index, match in enumerate(words)}
    given = [targets[0], *((link["start"], link["end"]) for link in links)]
    spans = [(starts.get(start, len(words)), ends.get(end, 0)) for start, end in given]
    if any(start >= end for start, end in spans):
        return "span cuts through a word"
    target, *others = (Span(start, end) for start, end in spans)
    names = [link.get("name") or link["fe"] for link in links]
    doc = row.get("doc")
    return FrameExample(
        id=f"{doc}:{field(row, 'sent_id')}:{number}" if doc else f"kovaleva-{number}",
        words=tuple(match[0] for match in words),
        frame=field(row, "frame"),
        target=target,
        elements=tuple(zip(names, others, strict=True)),
        core=tuple(link.get("core", "Core") == "Core" for link in links),
    )
