"""Texts, or given words -> dependency trees with Stanford-style labels, by spaCy.

Clark 2019 (sec. 4.2, Table 1) scores heads on Stanford Dependencies. spaCy's English labels are
of that family (the ClearNLP set). Of Table 1's row names

    prep pobj det nsubj amod dobj advmod aux poss auxpass ccomp mark prt

are spaCy's own, and `nn` is its `compound`. Renamed to the Stanford name beyond that, because
each is the same thing: see `RENAMED` and `stanford_label`.

What stays different from the Stanford trees of the paper (and cannot be mended by a name):

- A form of "be" with a predicate heads its clause here (tall is `acomp` or `attr` of is); there
  the predicate heads it and the verb is `cop`. So `nsubj`, `aux`, `advmod`, `mark` and `ccomp` of
  such clauses point to, or come from, another word.
- `acl` covers `partmod` and `infmod`, `npadvmod` covers `tmod`, `mark` covers `complm`.
- spaCy splits words at hyphens ("well", "-", "known"), the Penn Treebank does not. Given words
  are never split.
- The trees are a parser's, not an annotator's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attnlib.data.assets import resolve
from attnlib.data.examples import Example, ParsedText, Part, Tree
from attnlib.data.kept import made_in_order
from attnlib.errors import BadValue

VERSION = 1
"""Of the rules below; raise it when they are meant to give other trees."""

PARSER = "spacy-en"
SHORTEST = 3
TOO_SHORT = f"sentence of fewer than {SHORTEST} words"
RENAMED = {  # spaCy's name: Stanford's
    "ROOT": "root",
    "compound": "nn",
    "nummod": "num",
    "relcl": "rcmod",
    "case": "possessive",  # 's and ', nothing else
    "agent": "prep",  # the "by" of a passive; its noun is pobj in both
}


@cache
def pipeline(*, names: bool = False) -> Any:
    """The English pipeline, loaded once; with the recogniser of names only where asked for."""
    import spacy

    return spacy.load(resolve(PARSER), exclude=[] if names else ["ner"])


def parser_digest() -> str:
    """What a parse depends on besides the text: spaCy, and the parser's files by their content."""
    return f"spacy {version('spacy')}, {PARSER} {resolve(PARSER).name}"


def tagger() -> Callable[[Sequence[str]], list[str]]:
    """A function from the words of a sentence to their universal tags."""
    nlp = pipeline()
    return lambda words: [token.pos_ for token in nlp(_doc(nlp, "", tuple(words)))]


# --- sentences to trees -----------------------------------------------------------------------


def parsed_in_order(
    texts: Sequence[tuple[str, Part]],
    order: Iterable[int],
    *,
    limit: int | None = None,
    kept: Path | None = None,
) -> tuple[list[tuple[int, Tree]], Counter[str]]:
    """(place, tree) of texts taken in `order` until there are `limit` trees; what was left out.

    texts  (id, text) or (id, words); a place is an index of it. A text gives a tree for each
           sentence that the parser finds, `<id>.<n>` with n counted from 1, and its `document` is
           the id. Runs of white space count as one blank, so none is a word. Sentences of fewer
           than 3 words have no syntax to speak of (headings, initials): they are left out, and
           counted. Given words are one tree, see `parsed_words`.
    order, limit, kept
           see `kept.made_in_order`
    """
    return made_in_order(
        order,
        lambda places: _parses(texts[place] for place in places),
        limit=limit,
        kept=kept,
        load=_loaded,
    )


def _loaded(fields: dict[str, Any]) -> Tree:
    """A tree from its fields in a kept file, where tuples have become lists."""
    values: dict[str, Any] = {k: tuple(v) if type(v) is list else v for k, v in fields.items()}
    return Tree(**values)


def parsed_words(sentences: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Tree]:
    """One tree for each (id, words), over just those words, however few.

    Where the parser sees several sentences (about 3 of 100 in EWT and GUM), its first root is the
    root and each later one depends on it as `dep`, Stanford's label for what has no better one:
    no other arc changes. To forbid the parser to see them is worse: it then makes up a clause
    (mostly a `ccomp`), and fewer of its heads are those of the treebank.
    """
    for (tree,), _ in _parses((name, tuple(words)) for name, words in sentences):
        yield tree


def _parses(texts: Iterable[tuple[str, Part]]) -> Iterator[tuple[list[Tree], dict[str, int]]]:
    """The trees of each text in turn, and how many sentences were too short."""
    plain = (
        (name, " ".join(text.split()) if isinstance(text, str) else text) for name, text in texts
    )
    for doc, name, text in _docs(plain, batch_size=32):
        if not isinstance(text, str):
            yield [tree_of(list(doc), name)], {}
            continue
        sentences = list(doc.sents)
        trees = [
            tree_of(list(sentence), f"{name}.{number}", sentence.text.strip(), name)
            for number, sentence in enumerate(sentences, start=1)
            if len(sentence) >= SHORTEST
        ]
        n_short = len(sentences) - len(trees)
        yield trees, {TOO_SHORT: n_short} if n_short else {}


def _docs(texts: Iterable[tuple[str, Part]], *, batch_size: int) -> Iterator[tuple[Any, str, Part]]:
    """The parsed document of each (id, text); it does not depend on the size of a batch."""
    nlp = pipeline()
    made = ((_doc(nlp, name, text), (name, text)) for name, text in texts)
    stream = nlp.pipe(made, as_tuples=True, batch_size=batch_size, disable=["lemmatizer"])
    for doc, (name, text) in stream:
        yield doc, name, text


def _doc(nlp: Any, name: str, text: Part) -> Any:
    from spacy.tokens import Doc

    if isinstance(text, str):
        if len(text) > nlp.max_length:
            raise BadValue(
                f"text '{name}' has {len(text):,} characters; the parser takes at most "
                f"{nlp.max_length:,}. Split it into paragraphs."
            )
        return nlp.make_doc(text)
    if not text or not all(word.strip() for word in text):
        state = "has a word that is blank" if text else "has no word"
        raise BadValue(f"sentence '{name}' {state}. Give at least one word, and no blank ones.")
    return Doc(nlp.vocab, words=list(text))


def tree_of(
    tokens: Sequence[Any], name: str, text: str | None = None, document: str | None = None
) -> Tree:
    """The tree of the tokens of one parsed sentence; see `parsed_words` on several roots."""
    heads = _heads(tokens)
    relations = [stanford_label(token) for token in tokens]
    root, *others = (word for word, head in enumerate(heads) if head == -1)
    for word in others:
        heads[word], relations[word] = root, "dep"
    return Tree(
        id=name,
        words=tuple(token.text for token in tokens),
        heads=tuple(heads),
        relations=tuple(relations),
        tags=tuple(token.pos_ for token in tokens),
        text=text,
        document=document,
    )


def stanford_label(token: Any) -> str:
    """The Stanford name of a spaCy token's relation to its head.

    Two of spaCy's labels are two Stanford ones each, told apart by the tags: `compound` is
    `number` between numerals ("3" in "3 million"), else `nn`; `dative` is `prep` if the word is
    an adposition ("gave it to him"), else `iobj` ("gave him").
    """
    label = token.dep_ or "dep"
    if label == "compound" and token.pos_ == token.head.pos_ == "NUM":
        return "number"
    if label == "dative":
        return "prep" if token.pos_ == "ADP" else "iobj"
    return RENAMED.get(label, label)


# --- trees laid over texts, which stay as they were written ------------------------------------


def parsed_texts(examples: Sequence[Example]) -> Iterator[ParsedText]:
    """Each example with the parser's trees laid over all of its parts.

    Pieces are counted to the parser's words by where they begin in the text, so a model reads
    just what it would have read without the trees.
    """
    parts = ((example.id, part) for example in examples for part in example.parts)
    docs = _docs(parts, batch_size=64)
    for example in examples:
        words = [_words(*next(docs)) for _ in example.parts]
        base = [0, *map(len, words)]  # a second part's heads count on from the first part's words
        yield ParsedText(
            id=example.id,
            text=example.parts[0],
            pair=example.parts[1] if len(example.parts) > 1 else None,
            label=getattr(example, "label", None),
            word_starts=tuple(tuple(token.idx for token in part) for part in words)
            if isinstance(example.parts[0], str)
            else None,
            heads=tuple(
                head + base[number] if head >= 0 else head
                for number, part in enumerate(words)
                for head in _heads(part)
            ),
            relations=tuple(stanford_label(token) for part in words for token in part),
            tags=tuple(token.pos_ for part in words for token in part),
            starts=example.sentence_starts,
        )


def _words(doc: Any, name: str, part: Part) -> list[Any]:
    """The tokens that are words: the parser counts runs of white space in a text as words, too."""
    return [token for token in doc if not (isinstance(part, str) and token.is_space)]


def _heads(tokens: Sequence[Any]) -> list[int]:
    """The place of each word's head, -1 for a root; no run of white space has a dependant."""
    place = {token.i: index for index, token in enumerate(tokens)}
    return [-1 if token.head.i == token.i else place.get(token.head.i, -1) for token in tokens]
