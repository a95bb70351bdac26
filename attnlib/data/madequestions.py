"""Questions made from plain paragraphs of Wikipedia, without any annotator (see `clozes.py`).

The context is a window of whole sentences of one paragraph, and the sentence that was made into the
question stays in it, at any place of the window. So the words of a question mostly stand next to
its answer: these questions are easier than SQuAD's.
"""

from __future__ import annotations

import hashlib
import random
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnlib.data import clauses
from attnlib.data import clozes as phrases
from attnlib.data.assets import resolve
from attnlib.data.clozes import Cloze, clozes
from attnlib.data.examples import Answer, Question, sentence_starts
from attnlib.data.parse import PARSER, keep_rows, kept_rows, parse_digest
from attnlib.data.wikitext import Paragraph
from attnlib.errors import BadValue

PER_PARAGRAPH = 3
PER_SENTENCE = 2
NOUNS_PER_PARAGRAPH = 1  # of the questions that ask for a common noun; the others ask for names
CONTEXT_WORDS = (36, 74)  # fewest and most of a window, punctuation counted
QUESTION_WORDS = (5, 20)
ANSWER_WORDS = 6
SENTENCE_WORDS = 45  # parsers lose their way in longer ones
NO_WINDOW = "no two sentences of the right length"
NO_QUESTION = "no readable question"
_BATCH = 16  # windows that are parsed at once, and so at most that many too many


@cache
def pipeline() -> Any:
    """The parser's pipeline with the names, which `parse.pipeline` leaves out."""
    import spacy

    return spacy.load(resolve(PARSER))


def made_questions(
    paragraphs: Sequence[Paragraph],
    *,
    n: int | None = None,
    seed: int = 0,
    kept: Path | None = None,
) -> tuple[list[Question], Counter[str]]:
    """At most `n` questions, and the paragraphs that gave none by reason.

    Paragraphs are taken in random order by `seed`, one of each article in turn, and no more are
    parsed than needed. The questions on a paragraph depend on nothing but the paragraph: at most
    `PER_PARAGRAPH`, each in a window of its own. They come back in the order of the paragraphs,
    and a smaller `n` gives a subset of a larger one's.

    kept  a file of what was made before, which grows by what is made now. Its name must hold the
          `questions_digest` of the paragraphs. One that is damaged is made again.
    """
    if n is not None and n < 1:
        raise BadValue(f"{n} questions asked for; expected 1 or more, or None for all.")
    known = _read(kept) if kept is not None else {}
    order = spread_order([paragraph.article for paragraph in paragraphs], seed)
    fresh = _made(paragraphs[place] for place in order if place not in known)
    found: list[tuple[int, Question]] = []
    skipped: Counter[str] = Counter()
    n_known = len(known)
    for place in order:
        room = None if n is None else n - len(found)
        if room == 0:
            break
        if place not in known:
            known[place] = next(fresh)
        made = known[place]
        if isinstance(made, str):
            skipped[made] += 1
        else:
            found += [(place, question) for question in made[:room]]
    if kept is not None and len(known) > n_known:
        _keep(kept, known)
    return [question for _, question in sorted(found, key=lambda item: item[0])], skipped


def questions_digest(paragraphs: Iterable[Paragraph]) -> str:
    """What the questions on these paragraphs depend on, as a short name: texts, parser, code."""
    digest = hashlib.sha256()
    for module in (__file__, phrases.__file__, clauses.__file__):
        digest.update(Path(module).read_bytes())
    texts = [(f"{item.article}#{item.index}", item.text) for item in paragraphs]
    digest.update(parse_digest(texts).encode())
    return digest.hexdigest()[:12]


def spread_order(articles: Sequence[str], seed: int) -> list[int]:
    """Every place once: rounds in which each article that has one left gives one, at random."""
    rng = random.Random(seed)
    places: dict[str, list[int]] = {}
    for place, article in enumerate(articles):
        places.setdefault(article, []).append(place)
    queues = [rng.sample(own, len(own)) for own in places.values()]
    order: list[int] = []
    while queues:
        order += [queue.pop() for queue in rng.sample(queues, len(queues))]
        queues = [queue for queue in queues if queue]
    return order


@dataclass(frozen=True, slots=True)
class _Text:
    """A paragraph cut into sentences: sentence k is text[bounds[k] : bounds[k + 1]]."""

    paragraph: Paragraph
    text: str
    bounds: tuple[int, ...]
    sizes: tuple[int, ...]
    rng: random.Random  # by the paragraph's name, so nothing else changes its questions

    def part(self, first: int, last: int) -> str:
        return self.text[self.bounds[first] : self.bounds[last]].rstrip()


def windows(sizes: Sequence[int], sentence: int) -> list[tuple[int, int]]:
    """The windows around a sentence: (first, last) with first <= sentence < last.

    sizes    the words of each sentence of the paragraph
    returns  for each possible first sentence the window that reaches as far as it can; it has two
             sentences or more, and `CONTEXT_WORDS`
    """
    fewest, most = CONTEXT_WORDS
    found: list[tuple[int, int]] = []
    for first in range(sentence, -1, -1):
        last = sentence + 1
        if sum(sizes[first:last]) > most:
            break
        while last < len(sizes) and sum(sizes[first : last + 1]) <= most:
            last += 1
        if last - first > 1 and sum(sizes[first:last]) >= fewest:
            found.append((first, last))
    return found


def _text(paragraph: Paragraph) -> _Text:
    text = " ".join(paragraph.text.split())
    bounds = (*sentence_starts(text), len(text))
    sizes = tuple(_n_words(text[a:b]) for a, b in pairwise(bounds))
    name = f"{paragraph.article}#{paragraph.index}"
    return _Text(paragraph, text, bounds, sizes, random.Random(name))


def _parsed_window(text: _Text) -> tuple[int, int] | None:
    """The window that is parsed: around a sentence drawn at random."""
    sentences = range(len(text.sizes))
    for sentence in text.rng.sample(sentences, len(sentences)):
        if around := windows(text.sizes, sentence):
            return text.rng.choice(around)
    return None


def _made(paragraphs: Iterable[Paragraph]) -> Iterator[list[Question] | str]:
    """The questions on each paragraph in turn, or why there is none."""

    def parts() -> Iterator[tuple[str, tuple[_Text, int]]]:
        for text in map(_text, paragraphs):
            around = _parsed_window(text)
            yield (text.part(*around), (text, around[0])) if around else ("", (text, 0))

    stream = pipeline().pipe(parts(), as_tuples=True, batch_size=_BATCH, disable=["lemmatizer"])
    for doc, (text, first) in stream:
        yield (_chosen(doc, text, first) or NO_QUESTION) if len(doc) else NO_WINDOW


def _chosen(doc: Any, text: _Text, first: int) -> list[Question]:
    """At most so many questions on a parsed window: names and numbers first, then by chance."""
    shift = text.bounds[first]
    found = list(_found(doc, text, shift))
    found = text.rng.sample(found, len(found))
    found.sort(key=lambda item: (item[1].kind == "NOUN", not item[1].fronted))
    chosen: list[tuple[int, Cloze]] = []
    made: list[Question] = []
    for sentence, cloze in found:
        if len(made) == PER_PARAGRAPH or not _is_other(sentence, cloze, chosen):
            continue
        question = _placed(cloze, text, sentence, shift, f".{len(made) + 1}")
        if question is not None:
            chosen.append((sentence, cloze))
            made.append(question)
    return made


def _is_other(sentence: int, cloze: Cloze, chosen: list[tuple[int, Cloze]]) -> bool:
    """Whether a question asks for something else than those before it."""
    kinds = [other.kind for _, other in chosen]
    return (
        [number for number, _ in chosen].count(sentence) < PER_SENTENCE
        and (cloze.kind != "NOUN" or kinds.count("NOUN") < NOUNS_PER_PARAGRAPH)
        and all(cloze.end <= other.start or other.end <= cloze.start for _, other in chosen)
    )


def _found(doc: Any, text: _Text, shift: int) -> Iterator[tuple[int, Cloze]]:
    """(sentence of the paragraph, question) where parser and splitter agree on the sentence."""
    lemmatizer = pipeline().get_pipe("lemmatizer")
    for sentence in doc.sents:
        start = shift + sentence.start_char
        end = shift + (doc[sentence.end].idx if sentence.end < len(doc) else len(doc.text) + 1)
        number = bisect_right(text.bounds, start) - 1
        ends = end in text.bounds or end > len(text.text)
        if start == text.bounds[number] and ends and len(sentence) <= SENTENCE_WORDS:
            for cloze in clozes(sentence, lambda verb: str(lemmatizer.lemmatize(verb)[0])):
                if _is_fit(cloze, doc.text[cloze.start : cloze.end]):
                    yield number, cloze


def _is_fit(cloze: Cloze, answer: str) -> bool:
    fewest, most = QUESTION_WORDS
    return (
        fewest <= len(cloze.question.split()) <= most
        and len(answer.split()) <= ANSWER_WORDS
        and not _n_times(answer, cloze.question)
    )


def _placed(cloze: Cloze, text: _Text, sentence: int, shift: int, name: str) -> Question | None:
    """The question in a window of its own, so that its sentence stands anywhere in the context.

    None if each window around the sentence has the answer more than once.
    """
    start, end = shift + cloze.start, shift + cloze.end
    answer = text.text[start:end]
    around = windows(text.sizes, sentence)
    once = [window for window in around if _n_times(answer, text.part(*window)) == 1]
    if not once:
        return None
    # The first sentence of a paragraph can only come first: the others come later more often.
    weights = [1 + sentence - first for first, _ in once]
    first, last = text.rng.choices(once, weights)[0]
    return Question(
        id=f"{text.paragraph.article}#{text.paragraph.index}{name}",
        question=cloze.question,
        context=text.part(first, last),
        answers=(Answer(answer, start - text.bounds[first]),),
        article=text.paragraph.article,
    )


def _n_times(words: str, text: str) -> int:
    """How often words stand in a text as a whole, in any case."""
    return len(re.findall(rf"(?<!\w){re.escape(words)}(?!\w)", text, re.IGNORECASE))


def _n_words(text: str) -> int:
    """Words and marks: about 0.93 of the pieces that Wikipedia's text has in BERT's vocabulary."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def _keep(path: Path, known: dict[int, list[Question] | str]) -> None:
    rows = []
    for place, made in sorted(known.items()):
        values = made if isinstance(made, str) else [asdict(question) for question in made]
        rows.append({"place": place, "made": values})
    keep_rows(path, rows)


def _read(path: Path) -> dict[int, list[Question] | str]:
    known: dict[int, list[Question] | str] = {}
    for row in kept_rows(path):
        made = row["made"]
        known[row["place"]] = made if isinstance(made, str) else [_question(v) for v in made]
    return known


def _question(values: dict[str, Any]) -> Question:
    answers = tuple(Answer(**answer) for answer in values["answers"])
    return Question(**{**values, "answers": answers})
