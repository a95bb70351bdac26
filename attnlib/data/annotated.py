"""Readers of the annotated corpora: OntoGUM and GAP (coreference), FrameNet (frames)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from attnlib.data.examples import CorefDocument, FrameExample, GapExample, Span
from attnlib.data.textfiles import Row, field, find_file, read_jsonl, read_table
from attnlib.errors import CorpusError


def read_ontogum(split: str, folder: Path) -> tuple[list[CorefDocument], Counter[str]]:
    """OntoGUM documents; the file's inclusive mention spans become half-open ones."""
    path = find_file(folder, f"ontogum-{split}.jsonl")
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


def read_gap(split: str, folder: Path) -> tuple[list[GapExample], Counter[str]]:
    """GAP examples; a row whose stated offsets do not hit the stated words is counted."""
    path = find_file(folder, f"gap-{split}.tsv")
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


# (id, text, frame, spans of the target, (element, span, whether it is core)); spans of characters
_Annotation = tuple[str, str, str, list[list[int]], list[tuple[str, list[int], bool]]]


def read_framenet(folder: Path) -> tuple[list[FrameExample], Counter[str]]:
    """FrameNet 1.7 annotation sets of at most 12 tokens with a core element.

    Exemplars first, then full text. A target of several parts is left out (Kovaleva 2019 takes
    exactly one), and so is a set whose spans cut through a word.
    """

    def annotations() -> Iterator[_Annotation]:
        for name in ("exemplars_core_le12.jsonl", "fulltext_core_le12.jsonl"):
            path = find_file(folder, name)
            for row in read_jsonl(path):
                text, frame = field(row, path, "text"), field(row, path, "frame")
                targets = field(row, path, "target", kind=list)
                elements = [
                    (element["name"], [element["start"], element["end"]], element["core"] == "Core")
                    for element in field(row, path, "fes", kind=list)
                ]
                identity = f"{field(row, path, 'doc')}:{field(row, path, 'sent_id')}:{row[0]}"
                yield identity, text, frame, targets, elements

    return _frames(annotations())


def read_framenet_473(folder: Path) -> tuple[list[FrameExample], Counter[str]]:
    """The 473 sentences of Kovaleva 2019 (sec. 4.2); their links are core elements by choice."""
    path = find_file(folder, "kovaleva_framenet_473.jsonl")

    def annotations() -> Iterator[_Annotation]:
        for row in read_jsonl(path):
            text, frame = field(row, path, "sentence"), field(row, path, "frame")
            targets = field(row, path, "target_span", kind=list)
            links = field(row, path, "links", kind=list)
            elements = [(link["fe"], [link["start"], link["end"]], True) for link in links]
            yield f"kovaleva-{row[0]}", text, frame, targets, elements

    return _frames(annotations())


def _frames(annotations: Iterable[_Annotation]) -> tuple[list[FrameExample], Counter[str]]:
    """Spans of characters to spans of the text's words, which FrameNet separates by blanks."""
    examples: list[FrameExample] = []
    skipped: Counter[str] = Counter()
    for identity, text, frame, targets, elements in annotations:
        if len(targets) != 1:
            skipped["target of several parts"] += 1
            continue
        words = list(re.finditer(r"\S+", text))
        starts = {match.start(): index for index, match in enumerate(words)}
        ends = {match.end(): index + 1 for index, match in enumerate(words)}
        spans = [(starts.get(a), ends.get(b)) for a, b in (targets[0], *(e[1] for e in elements))]
        whole = [Span(a, b) for a, b in spans if a is not None and b is not None and a < b]
        if len(whole) < len(spans):
            skipped["span cuts through a word"] += 1
            continue
        target, *others = whole
        names, core = tuple(name for name, _, _ in elements), tuple(c for _, _, c in elements)
        examples.append(
            FrameExample(
                id=identity,
                words=tuple(match[0] for match in words),
                frame=frame,
                target=target,
                elements=tuple(zip(names, others, strict=True)),
                core=core,
            )
        )
    return examples, skipped
