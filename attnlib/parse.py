"""Words -> part-of-speech tags, by the spaCy pipeline that comes as an asset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from attnlib.assets import resolve


@cache
def pipeline() -> Any:
    """The English pipeline, loaded once; names and similar words are not needed here."""
    import spacy

    return spacy.load(resolve("spacy-en"), exclude=["ner"])


def tagger() -> Callable[[Sequence[str]], list[str]]:
    """A function from the words of a sentence to their universal tags."""
    from spacy.tokens import Doc

    nlp = pipeline()

    def tags(words: Sequence[str]) -> list[str]:
        parsed = nlp(Doc(nlp.vocab, words=list(words)))
        return [token.pos_ for token in parsed]

    return tags
