"""Plain text, or given words -> dependency trees with Stanford-style labels, by spaCy.

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

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from attnlib.data.assets import resolve
from attnlib.data.examples import Part, Tree
from attnlib.errors import BadValue
from attnlib.files import written_whole

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
_BATCH = 32  # texts that are parsed at once; the trees do not depend on it
_Parse = tuple[list[Tree], int]  # the trees of one text, and how many sentences were too short


@cache
def pipeline() -> Any:
    """The English pipeline, loaded once; names and similar words are not needed here."""
    import spacy

    return spacy.load(resolve(PARSER), exclude=["ner"])


def tagger() -> Callable[[Sequence[str]], list[str]]:
    """A function from the words of a sentence to their universal tags."""
    from spacy.tokens import Doc

    nlp = pipeline()

    def tags(words: Sequence[str]) -> list[str]:
        parsed = nlp(Doc(nlp.vocab, words=list(words)))
        return [token.pos_ for token in parsed]

    return tags


def parsed(texts: Iterable[tuple[str, str]], skipped: Counter[str] | None = None) -> Iterator[Tree]:
    """One tree per sentence that the parser finds in (id, text) pairs.

    A tree is named `<id>.<n>`, n counted from 1 in its text, and its `document` is the id. Runs
    of white space count as one blank, so none is a word. Sentences of fewer than 3 words have no
    syntax to speak of (headings, initials): they are left out, and counted in `skipped`.
    """
    for trees, n_short in _parses(texts):
        if skipped is not None and n_short:
            skipped[TOO_SHORT] += n_short
        yield from trees


def parsed_words(sentences: Iterable[tuple[str, Sequence[str]]]) -> Iterator[Tree]:
    """One tree for each (id, words), over just those words, however few.

    Where the parser sees several sentences (about 3 of 100 in EWT and GUM), its first root is the
    root and each later one depends on it as `dep`, Stanford's label for what has no better one:
    no other arc changes. To forbid the parser to see them is worse: it then makes up a clause
    (mostly a `ccomp`), and fewer of its heads are those of the treebank.
    """
    for (tree,), _ in _parses((name, tuple(words)) for name, words in sentences):
        yield tree


def _parses(texts: Iterable[tuple[str, Part]]) -> Iterator[_Parse]:
    """The trees of each text in turn; a tuple of words is one sentence."""
    nlp = pipeline()
    made = ((_doc(nlp, name, text), (name, isinstance(text, str))) for name, text in texts)
    stream = nlp.pipe(made, as_tuples=True, batch_size=_BATCH, disable=["lemmatizer"])
    for doc, (name, is_text) in stream:
        if not is_text:
            yield [tree_of(list(doc), name)], 0
            continue
        sentences = list(doc.sents)
        trees = [
            tree_of(list(sentence), f"{name}.{number}", sentence.text.strip(), name)
            for number, sentence in enumerate(sentences, start=1)
            if len(sentence) >= SHORTEST
        ]
        yield trees, len(sentences) - len(trees)


def _doc(nlp: Any, name: str, text: Part) -> Any:
    from spacy.tokens import Doc

    if isinstance(text, str):
        text = " ".join(text.split())
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
    start = tokens[0].i
    heads = [-1 if token.head.i == token.i else token.head.i - start for token in tokens]
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


# --- the texts of a corpus: no more is parsed than asked for, and nothing twice ---------------


def parse_digest(texts: Iterable[tuple[str, Part]]) -> str:
    """What the trees of these texts depend on, as a short name: texts, parser, and this code."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(f"{resolve(PARSER).name} {version('spacy')}\n".encode())
    for text in texts:
        digest.update(repr(text).encode() + b"\n")
    return digest.hexdigest()[:12]


def parsed_in_order(
    texts: Sequence[tuple[str, Part]],
    order: Iterable[int],
    *,
    limit: int | None = None,
    kept: Path | None = None,
) -> tuple[list[tuple[int, Tree]], dict[str, int]]:
    """(place, tree) of texts taken in `order` until there are `limit` trees; what was left out.

    texts  (id, text) or (id, words); a place is an index of it
    order  places, each once; the trees come back in the order of `texts` whatever it is, and a
           smaller limit gives a subset of a larger one's trees
    kept   a file of what was parsed before, which grows by what is parsed now. Its name must
           hold the `parse_digest` of the texts. One that is damaged is made again.
    """
    order = list(order)
    parses = _read_parses(kept) if kept is not None else {}
    missing = [place for place in order if place not in parses]
    fresh = _parses(texts[place] for place in missing) if missing else iter(())
    found: list[tuple[int, Tree]] = []
    skipped: Counter[str] = Counter()
    grown = False
    for place in order:
        room = None if limit is None else limit - len(found)
        if room == 0:
            break
        if place not in parses:
            parses[place] = next(fresh)
            grown = True
        trees, n_short = parses[place]
        found += [(place, tree) for tree in trees[:room]]
        skipped[TOO_SHORT] += n_short
    if kept is not None and grown:
        _write_parses(kept, parses)
    found.sort(key=lambda item: item[0])
    return found, dict(+skipped)


def _write_parses(path: Path, parses: dict[int, _Parse]) -> None:
    rows = (
        {"place": place, "short": n_short, "trees": [asdict(tree) for tree in trees]}
        for place, (trees, n_short) in sorted(parses.items())
    )
    keep_rows(path, rows)


def _read_parses(path: Path) -> dict[int, _Parse]:
    rows = kept_rows(path)
    return {row["place"]: ([_tree(tree) for tree in row["trees"]], row["short"]) for row in rows}


def keep_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """A line per row, then the sha256 of the lines; the file appears only when it is whole.

    Nothing is kept in a folder that cannot be written: what was made is made again then.
    """
    body = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as draft:
            draft.write_bytes(body + hashlib.sha256(body).hexdigest().encode() + b"\n")


def kept_rows(path: Path) -> list[dict[str, Any]]:
    """What `keep_rows` left, or nothing if the file is not there or is not what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        return []
    body, checksum = content[:-65], content[-65:]
    if checksum != hashlib.sha256(body).hexdigest().encode() + b"\n":
        return []
    return [json.loads(line) for line in body.decode().split("\n")[:-1]]


def _tree(values: dict[str, Any]) -> Tree:
    fields: dict[str, Any] = {k: tuple(v) if type(v) is list else v for k, v in values.items()}
    return Tree(**fields)
