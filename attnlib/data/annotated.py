"""Readers of the annotated corpora: OntoGUM and GAP (coreference), FrameNet (frames)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from attnlib.data.examples import CorefDocument, FrameExample, GapExample, Span
from attnlib.data.textfiles import Row, field, find_file, read_jsonl, read_table
from attnlib.errors import CorpusError


def read_ontogum(folder: Path, files: Sequence[str]) -> tuple[list[CorefDocument], Counter[str]]:
    """OntoGUM documents; the file's inclusive mention spans become half-open ones."""
    path = find_file(folder, *files)
    return [_document(row, path) for row in read_jsonl(path)], Counter()


def _document(row: Row, path: Path) -> CorefDocument:
    words = tuple(field(row, path, "tokens", kind=list))
    ends = field(row, path, "sent_ends", kind=list)
    layers = {name: tuple(field(row, path, name, kind=list)) for name in ("head", "deprel", "upos")}
    try:
        clusters = tuple(
            tuple(sorted(Span(first, last + 1) for first, last in cluster))
            for cluster in field(row, path, "clusters", kind=list)
        )
        sentences = tuple(Span(start, end) for start, end in pairwise([0, *ends]))
    except (TypeError, ValueError) as error:
        raise CorpusError(f"{path}:{row[0]}: a span that is none ({error}).") from error
    reach = max((span.end for cluster in clusters for span in cluster), default=0)
    short = [name for name, layer in layers.items() if len(layer) != len(words)]
    if short or reach > len(words) or not ends or ends[-1] != len(words):
        what = f"'{short[0]}'" if short else "a mention" if reach > len(words) else "'sent_ends'"
        raise CorpusError(f"{path}:{row[0]}: {what} does not fit the {len(words)} tokens.")
    return CorefDocument(
        id=field(row, path, "doc"),
        words=words,
        sentences=sentences,
        clusters=clusters,
        genre=field(row, path, "genre"),
        heads=layers["head"],
        relations=layers["deprel"],
        tags=layers["upos"],
    )


def read_gap(folder: Path, files: Sequence[str]) -> tuple[list[GapExample], Counter[str]]:
    """GAP examples; a row whose stated offsets do not hit the stated words is counted."""
    path = find_file(folder, *files)
    examples: list[GapExample] = []
    skipped: Counter[str] = Counter()
    for row in read_table(path):
        text = field(row, path, "Text")
        spans = [_named_span(row, path, text, name) for name in ("Pronoun", "A", "B")]
        if None in spans:
            skipped["offset does not hit the word"] += 1
            continue
        pronoun, a, b = (span for span in spans if span is not None)
        coref = [_truth(row, path, name) for name in ("A-coref", "B-coref")]
        name, url = field(row, path, "ID"), field(row, path, "URL")
        examples.append(GapExample(name, text, pronoun, a, b, coref[0], coref[1], url))
    return examples, skipped


def _named_span(row: Row, path: Path, text: str, name: str) -> Span | None:
    word, offset = field(row, path, name), field(row, path, f"{name}-offset")
    if not offset.isdigit():
        raise CorpusError(f"{path}:{row[0]}: '{name}-offset' is '{offset}', expected a number.")
    start = int(offset)
    return Span(start, start + len(word)) if word and text.startswith(word, start) else None


def _truth(row: Row, path: Path, name: str) -> bool:
    value = field(row, path, name).strip().upper()
    if value not in ("TRUE", "FALSE"):
        raise CorpusError(f"{path}:{row[0]}: '{name}' is '{value}', expected TRUE or FALSE.")
    return bool(value == "TRUE")


def read_framenet(folder: Path, files: Sequence[str]) -> tuple[list[FrameExample], Counter[str]]:
    """Annotation sets of FrameNet, or the list of Kovaleva 2019 (sec. 4.2), from all of the files.

    A target of several parts is left out (Kovaleva takes exactly one), and so is a set whose spans
    cut through a word. The links of Kovaleva's list are core elements by choice.
    """
    examples: list[FrameExample] = []
    skipped: Counter[str] = Counter()
    for path in [find_file(folder, name) for name in files]:
        for row in read_jsonl(path):
            targets = field(row, path, "target_span", "target", kind=list)
            links = field(row, path, "fes", "links", kind=list)
            text = field(row, path, "text", "sentence")
            ends = [targets[0], *((link["start"], link["end"]) for link in links)]
            spans = _word_spans(text, ends)
            if len(targets) != 1:
                skipped["target of several parts"] += 1
            elif None in spans:
                skipped["span cuts through a word"] += 1
            else:
                target, *others = (span for span in spans if span is not None)
                names = [link.get("name") or link["fe"] for link in links]
                doc = row[1].get("doc")
                example = FrameExample(
                    id=f"{doc}:{row[1]['sent_id']}:{row[0]}" if doc else f"kovaleva-{row[0]}",
                    words=tuple(text.split()),
                    frame=field(row, path, "frame"),
                    target=target,
                    elements=tuple(zip(names, others, strict=True)),
                    core=tuple(link.get("core", "Core") == "Core" for link in links),
                )
                examples.append(example)
    return examples, skipped


def _word_spans(text: str, spans: Sequence[Sequence[int]]) -> list[Span | None]:
    """Spans of characters as spans of words, which FrameNet separates by blanks."""
    words = list(re.finditer(r"\S+", text))
    starts = {match.start(): index for index, match in enumerate(words)}
    ends = {match.end(): index + 1 for index, match in enumerate(words)}
    found = ((starts.get(start), ends.get(end, 0)) for start, end in spans)
    return [None if a is None or a >= b else Span(a, b) for a, b in found]
