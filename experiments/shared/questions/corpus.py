"""Questions made from plain paragraphs of Wikipedia, without any annotator (see `clozes.py`).

The context is a window of whole sentences of one paragraph, and the sentence that was made into the
question stays in it, at any place of the window. So the words of a question mostly stand next to
its answer: these questions are easier than SQuAD's. They are the corpora `wiki-questions:train` and
`wiki-questions:dev`, which `import experiments` adds to the list.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnlib.data.corpora import CorpusInfo, Options, Read, register_corpus
from attnlib.data.examples import Answer, Question, sentence_starts
from attnlib.data.kept import kept_file, made_in_order
from attnlib.data.parser import parser_digest, pipeline
from attnlib.data.tasks import DEV_SHARE, goes_to_dev
from attnlib.data.wikipedia import Paragraph, sample_paragraphs
from experiments.shared.questions.clozes import Cloze, clozes

VERSION = 1
"""Of these rules and of those in `clozes.py`; raise it when they are meant to ask otherwise."""

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


def register() -> None:
    """Add the two corpora to the list."""
    for split in ("train", "dev"):
        what = (
            f"questions made from the 99 articles of wiki-sample, without an annotator ({split}); "
            f"an article goes to dev if the sha256 of its title is divisible by {DEV_SHARE}, else "
            "to train"
        )
        name, assets, read = f"wiki-questions:{split}", ("wiki-sample",), partial(_read, split)
        register_corpus(CorpusInfo(name, "question", assets, what, read, draws=True))


def _read(split: str, folder: Path, options: Options) -> Read:
    """Questions on one side of the articles; what was made is kept where the options say."""
    paragraphs, left_out = sample_paragraphs(folder, options.cache)
    items = [item for item in paragraphs if goes_to_dev(item.article) == (split == "dev")]
    texts = [(item.id, item.text) for item in items]
    name = f"questions/wiki-{split}"
    kept = kept_file(options.cache, name, VERSION, parser_digest(), texts)
    made, skipped = made_questions(items, n=options.limit, seed=options.seed, kept=kept)
    return made, skipped + left_out


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
    and a smaller `n` gives a subset of a larger one's. `kept` is a file of what was made before.
    """
    found, skipped = made_in_order(
        spread_order([paragraph.article for paragraph in paragraphs], seed),
        lambda places: _made(paragraphs[place] for place in places),
        limit=n,
        kept=kept,
        load=_loaded,
    )
    return [question for _, question in found], skipped


def _loaded(fields: dict[str, Any]) -> Question:
    answers = tuple(Answer(**answer) for answer in fields["answers"])
    return Question(**{**fields, "answers": answers})


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


class _Text:
    """A paragraph cut into sentences: sentence k is text[bounds[k] : bounds[k + 1]]."""

    def __init__(self, paragraph: Paragraph) -> None:
        self.paragraph = paragraph
        self.text = " ".join(paragraph.text.split())
        self.bounds = (*sentence_starts(self.text), len(self.text))
        self.sizes = [_n_words(self.text[a:b]) for a, b in pairwise(self.bounds)]
        self.rng = random.Random(paragraph.id)  # so nothing else changes its questions

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


def _parsed_window(text: _Text) -> tuple[int, int] | None:
    """The window that is parsed: around a sentence drawn at random."""
    sentences = range(len(text.sizes))
    for sentence in text.rng.sample(sentences, len(sentences)):
        if around := windows(text.sizes, sentence):
            return text.rng.choice(around)
    return None


def _made(paragraphs: Iterable[Paragraph]) -> Iterator[tuple[list[Question], dict[str, int]]]:
    """The questions on each paragraph in turn, or why there is none."""

    def parts() -> Iterator[tuple[str, tuple[_Text, int]]]:
        for text in map(_Text, paragraphs):
            around = _parsed_window(text)
            yield (text.part(*around), (text, around[0])) if around else ("", (text, 0))

    nlp = pipeline(names=True)
    stream = nlp.pipe(parts(), as_tuples=True, batch_size=_BATCH, disable=["lemmatizer"])
    for doc, (text, first) in stream:
        made = _chosen(doc, text, first) if len(doc) else []
        reason = NO_QUESTION if len(doc) else NO_WINDOW
        yield made, {} if made else {reason: 1}


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
    lemmatizer = pipeline(names=True).get_pipe("lemmatizer")
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
        id=f"{text.paragraph.id}{name}",
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
