"""Dependency trees laid over the texts of a corpus, which stay as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnlib.data.corpora import Corpus, examples_digest
from attnlib.data.examples import Example, ParsedText, Part, Starts
from attnlib.data.parse import pipeline, stanford_label

_BATCH = 64  # texts that are parsed at once; the trees do not depend on it


def with_trees(corpus: Corpus) -> Corpus:
    """The same inputs with the parser's tree over each sentence; gold trees are kept.

    Pieces are counted to the parser's words by where they begin in the text, so a model reads
    just what it would have read without the trees.
    """
    bare = [example for example in corpus.examples if getattr(example, "heads", None) is None]
    if not bare:
        return corpus
    found = _parsed_texts(bare)
    examples = tuple(
        example if getattr(example, "heads", None) is not None else next(found)
        for example in corpus.examples
    )
    return replace(corpus, examples=examples, digest=examples_digest(examples))


def _parsed_texts(examples: list[Example]) -> Iterator[ParsedText]:
    """Every part of every example through the parser, in order, then laid together again."""
    docs = _docs(part for example in examples for part in example.parts)
    for example in examples:
        trees = [_tree(next(docs), part) for part in example.parts]
        base = [0, *(len(heads) for _, heads, *_ in trees)]
        starts: Starts = tuple(begin for begin, *_ in trees)
        yield ParsedText(
            id=example.id,
            text=example.parts[0],
            pair=example.parts[1] if len(example.parts) > 1 else None,
            label=getattr(example, "label", None),
            word_starts=starts if isinstance(example.parts[0], str) else None,
            heads=tuple(
                head if head < 0 else head + base[part]
                for part, (_, heads, *_) in enumerate(trees)
                for head in heads
            ),
            relations=tuple(label for _, _, labels, _ in trees for label in labels),
            tags=tuple(tag for *_, tags in trees for tag in tags),
            starts=example.sentence_starts,
        )


def _docs(parts: Iterator[Part]) -> Iterator[Any]:
    from spacy.tokens import Doc

    nlp = pipeline()
    made = (
        nlp.make_doc(part) if isinstance(part, str) else Doc(nlp.vocab, words=list(part))
        for part in parts
    )
    return iter(nlp.pipe(made, batch_size=_BATCH, disable=["lemmatizer"]))


def _tree(
    doc: Any, part: Part
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], tuple[str, ...]]:
    """Where each word of a part begins, its head, its label and its tag.

    The parser counts runs of white space in a text as words: they are no words here. None of them
    has a dependant.
    """
    tokens = [token for token in doc if not (isinstance(part, str) and token.is_space)]
    place = {token.i: index for index, token in enumerate(tokens)}
    heads = tuple(
        -1 if token.head.i == token.i else place.get(token.head.i, -1) for token in tokens
    )
    return (
        tuple(token.idx for token in tokens),
        heads,
        tuple(stanford_label(token) for token in tokens),
        tuple(token.pos_ for token in tokens),
    )
