"""Wikipedia: a dump to plain paragraphs of prose, and two paragraphs to an input as Clark's.

`segments` makes the inputs of Clark 2019 (sec. 2), cut to a number of pieces.
"""

from __future__ import annotations

import bz2
import calendar
import html
import random
import re
import tomllib
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from attnlib.data.examples import Segment
from attnlib.data.kept import keep_rows, kept_file, kept_rows
from attnlib.data.textfiles import field, find_file, read_examples
from attnlib.errors import BadValue, CorpusError
from attnlib.files import sha256_of

VERSION = 1
"""Of the extraction of paragraphs; raise it when it is meant to give other paragraphs."""

DUMPS = (
    "enwiki-sample.xml.bz2",
    "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2",
)
_HOLE = "\ufffc"  # stands where content was lost; a paragraph that holds it is dropped
_SOUND = "\ue001"  # a pronunciation: not missed inside brackets, a hole elsewhere
_MARKUP = tomllib.loads(Path(__file__).with_name("wikitext.toml").read_text(encoding="utf-8"))
_SIGNS = {name: sign for sign, names in _MARKUP["signs"].items() for name in names}
_SHOWN = {
    **dict.fromkeys(_MARKUP["templates"]["shows_first"], 0),
    **dict.fromkeys(_MARKUP["templates"]["shows_last"], -1),
}


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph and its place in its article; a gap in `index` means that prose was left out."""

    article: str
    index: int
    text: str

    @property
    def id(self) -> str:
        return f"{self.article}#{self.index}"


Paragraphs = tuple[list[Paragraph], Counter[str]]
"""Paragraphs in article order, and what was left out by reason."""


def sample_paragraphs(folder: Path, cache: Path | None) -> Paragraphs:
    """The prose of the dump in a folder. Extraction takes some seconds, so it is kept."""
    dump = find_file(folder, *DUMPS)
    parser = f"mwparserfromhell {version('mwparserfromhell')}"
    kept = kept_file(cache, "paragraphs/wiki-sample", VERSION, parser, sha256_of(dump))
    if rows := kept_rows(kept):
        return [Paragraph(**row) for row in rows[1:]], Counter(rows[0])
    found, skipped = paragraphs_of_dump(dump)
    if kept is not None:
        keep_rows(kept, [skipped, *map(asdict, found)])
    return found, skipped


def squad_paragraphs(folder: Path) -> Paragraphs:
    """The paragraphs that SQuAD asks about: a jsonl file of them, or SQuAD's own table."""
    path = find_file(folder, "wiki_paragraphs.jsonl", "dev.parquet")
    articles: dict[str, dict[str, None]] = {}  # SQuAD's table repeats a context per question
    read = read_examples(lambda _, row: (field(row, "title"), field(row, "text", "context")), path)
    for title, text in read[0]:
        articles.setdefault(title, {})[text] = None
    found: list[Paragraph] = []
    for title, texts in articles.items():
        found += [Paragraph(title, index, text) for index, text in enumerate(texts)]
    return found, Counter()


def read_dump(path: Path) -> Iterator[tuple[str, str]]:
    """Title and wikitext of every article of a MediaWiki XML dump (.xml or .xml.bz2)."""
    try:
        with bz2.open(path) if path.suffix == ".bz2" else path.open("rb") as stream:
            for _, page in ElementTree.iterparse(stream):
                if page.tag.rpartition("}")[2] != "page":
                    continue
                title, text = page.findtext("{*}title"), page.findtext("{*}revision/{*}text")
                redirect = page.find("{*}redirect") is not None
                if title and text and page.findtext("{*}ns") == "0" and not redirect:
                    yield title, text
                page.clear()
    except (ElementTree.ParseError, EOFError, OSError) as error:
        raise CorpusError(f"{path} is no MediaWiki dump, or cut short ({error}).") from error


def paragraphs_of_dump(path: Path, *, min_words: int = 20) -> Paragraphs:
    """The prose of every article of a dump."""
    found: list[Paragraph] = []
    skipped: Counter[str] = Counter()
    for title, wikitext in read_dump(path):
        found += article_paragraphs(title, wikitext, min_words=min_words, skipped=skipped)
    return found, skipped


def article_paragraphs(
    title: str, wikitext: str, *, min_words: int = 20, skipped: Counter[str] | None = None
) -> list[Paragraph]:
    """The paragraphs of one article: prose of at least `min_words` words, whole sentences.

    Tables, lists, headings, captions, references and the closing sections go. Where a dropped
    template or formula leaves a hole in a sentence, the whole paragraph goes and is counted.
    """
    import mwparserfromhell  # heavy, and only needed here

    code = mwparserfromhell.parse(wikitext, skip_style_tags=True)
    kept: list[Paragraph] = []
    counts: Counter[str] = Counter() if skipped is None else skipped
    index = 0
    for block in re.split(r"\n\s*\n|\n(?=[*#:;|!{])", _plain(code)):
        text = _clean(block)
        reason = _unfit(text, min_words)
        if reason == "no prose":
            continue
        if reason:
            counts[reason] += 1
        else:
            kept.append(Paragraph(title, index, text))
        index += 1
    return kept


def _plain(code: Any) -> str:
    """The text of parsed wikitext up to the closing sections; lists keep their marks."""
    parts: list[str] = []
    for node in code.nodes:
        if type(node).__name__ == "Heading":
            if node.level <= 2 and _begins(_MARKUP["end_sections"], node.title, r"\b"):
                break
            parts.append("\n\n")
        else:
            parts.append(_node_text(node))
    return "".join(parts)


def _begins(names: str, given: Any, after: str = "") -> bool:
    """Whether what is given begins with one of the names, in any case."""
    return re.match(f"({names}){after}", str(given).strip(), re.IGNORECASE) is not None


def _node_text(node: Any) -> str:
    match type(node).__name__:
        case "Text":
            return str(node.value)
        case "HTMLEntity":
            return str(node.normalize())
        case "Wikilink":
            return _link_text(node)
        case "ExternalLink":
            return _plain(node.title) if node.title is not None and node.brackets else ""
        case "Tag":
            return _tag_text(node)
        case "Template":
            return _template_text(node)
    return ""


def _link_text(node: Any) -> str:
    title = str(node.title)
    if _begins(_MARKUP["namespaces"], title.lstrip(" :"), r"\s*:"):
        return ""
    if node.text is not None:
        return _plain(node.text)
    other_language = _begins(r"[a-z]{2,3}(-[a-z-]+)?\s*:", title)
    return "" if other_language else title.lstrip(": ").replace("_", " ")


def _tag_text(node: Any) -> str:
    tag = str(node.tag).strip().lower()
    if re.fullmatch(_MARKUP["tags"]["dropped"], tag):
        return ""
    if re.fullmatch(_MARKUP["tags"]["lost"], tag):
        return _HOLE
    if node.wiki_markup in ("*", "#", ":", ";"):
        return str(node.wiki_markup)
    if tag in ("br", "hr"):
        return " "
    return _plain(node.contents) if node.contents is not None else ""


def _template_text(node: Any) -> str:
    name = re.sub(r"[\s_]+", " ", str(node.name)).strip().lower()
    if name in _SIGNS:
        return str(_SIGNS[name])
    values = [_plain(p.value).strip() for p in node.params if not p.showkey]
    if name in ("convert", "cvt") and len(values) >= 2:
        return _converted(values)
    if name in ("circa", "c."):
        return " ".join(["c.", *values[:1]])
    if name == "as of":
        return _as_of(node, values)
    if re.match("ipa|respell|pron", name):
        return _SOUND
    if values and (name in _SHOWN or name.startswith("lang-")):
        return values[_SHOWN.get(name, -1)] or _HOLE
    return "" if _begins(_MARKUP["templates"]["silent"], name) else _HOLE


def _converted(values: list[str]) -> str:
    """`{{convert|5|km|mi}}` as "5 km", a range `{{convert|5|-|7|km}}` as "5–7 km"."""
    units = _MARKUP["units"]
    amount, unit = values[0], values[1]
    if len(values) >= 4 and unit in units["joins"]:
        amount, unit = f"{amount}{units['joins'][unit]}{values[2]}", values[3]
    is_word = re.fullmatch(units["plain"], unit)  # other codes are none
    shown = units["renamed"].get(unit, unit if is_word else _HOLE)
    return f"{amount}{'' if shown[0] == '°' else ' '}{shown}"


def _as_of(node: Any, values: list[str]) -> str:
    """`{{As of|2013|7}}` as "As of July 2013"; a text of its own (`alt`) wins."""
    if node.has("alt"):
        return _plain(node.get("alt").value).strip()
    month = values[1] if len(values) > 1 else ""
    name = calendar.month_name[int(month)] if month.isdigit() and 0 < int(month) < 13 else month
    return " ".join(["as of" if node.has("lc") else "As of", *filter(None, (name, *values[:1]))])


def _clean(block: str) -> str:
    """One line of text: decoded, no leftovers of markup, no empty brackets, single blanks."""
    text = unicodedata.normalize("NFC", html.unescape(html.unescape(block)))
    text = re.sub(r"\([^()]*\)", _without_sounds, text).replace(_SOUND, _HOLE)
    for pattern, replacement in _MARKUP["clean"]["fixes"]:
        text = re.sub(pattern, replacement, text)
    return text.strip()


def _without_sounds(bracket: re.Match[str]) -> str:
    """A bracket less the clauses that are pronunciations: "(UK x, plural y)" to "(plural y)"."""
    if _SOUND not in bracket[0]:
        return bracket[0]
    clauses = re.findall(r"[^,;]+[,;]?", bracket[0][1:-1])
    return f"({''.join(clause for clause in clauses if _SOUND not in clause)})"


def _unfit(text: str, min_words: int) -> str | None:
    """Why a block is no paragraph to keep: "no prose", or a reason worth counting."""
    if len(text.split()) < min_words or text[0] in "*#:;|!{=" or text.lower().startswith("thumb"):
        return "no prose"
    if _HOLE in text:
        return "a formula or template is missing in it"
    if re.search(r"\[\[|\]\]|\{\{|\}\}|\||https?://|<|>", text):
        return "left-over markup"
    if not re.search(r"[.!?][\"'”’)\]]*$", text):
        return "does not end like a sentence"
    return None


# --- segments --------------------------------------------------------------------------------

Length = Callable[[str], int]
SPECIAL_TOKENS = 3  # [CLS] a [SEP] b [SEP]


def piece_length(tokenizer: Any) -> Length:
    """How many pieces a text has for a tokenizer, or a function to pieces; no special tokens."""
    pieces = getattr(tokenizer, "tokenize", tokenizer)
    return lambda text: len(pieces(text))


def segments(
    paragraphs: Iterable[Paragraph],
    length: Length,
    *,
    max_length: int = 128,
    n: int | None = None,
    seed: int = 0,
) -> tuple[list[Segment], Counter[str]]:
    """At most `n` segments drawn at random without overlap, and what was left out by reason.

    A segment is two consecutive paragraphs (Clark 2019, sec. 2); the longer side loses its last
    words until `[CLS] a [SEP] b [SEP]` has at most `max_length` pieces. The same seed gives the
    same segments, and a smaller `n` a subset of a larger one's.

    Differs from the authors' code, which gathers lines until they have `max_length - 3` pieces,
    splits them at a random line, and cuts single pieces from either end.
    """
    if max_length < SPECIAL_TOKENS + 2:
        raise BadValue(f"max_length {max_length} leaves no room for two texts; at least 5 needed.")
    skipped: Counter[str] = Counter()
    pairs = _neighbours(paragraphs)
    made: dict[int, Segment] = {}
    for place in random.Random(seed).sample(range(len(pairs)), len(pairs)):
        if n is not None and len(made) == n:
            break
        first, second = pairs[place]
        fitted = _fit(first.text, second.text, length, max_length - SPECIAL_TOKENS)
        if all(fitted):
            made[place] = Segment(first.id, *fitted)
        else:
            skipped["one side has no word that fits"] += 1
    return [made[place] for place in sorted(made)], skipped


def _neighbours(paragraphs: Iterable[Paragraph]) -> list[tuple[Paragraph, Paragraph]]:
    """Disjoint pairs of neighbours, greedily from the start of each article."""
    pairs: list[tuple[Paragraph, Paragraph]] = []
    for first, second in pairwise(paragraphs):
        neighbours = second.article == first.article and second.index == first.index + 1
        if neighbours and not (pairs and pairs[-1][1] is first):
            pairs.append((first, second))
    return pairs


def _fit(first: str, second: str, length: Length, room: int) -> tuple[str, str]:
    """Both texts with at most `room` pieces together; a side may be empty then.

    Cutting the longer side until the pair fits leaves the shorter whole if it has at most half of
    the room, else both about half.
    """
    first, second = _words(first, room + 1), _words(second, room + 1)
    n_first, n_second = length(first), length(second)
    if n_first + n_second <= room:
        return first, second
    half = room // 2
    if n_first <= n_second:
        first = _cut(first, max(room - n_second, half), length)
        return first, _cut(second, room - length(first), length)
    second = _cut(second, max(room - n_first, half), length)
    return _cut(first, room - length(second), length), second


def _words(text: str, n_words: int) -> str:
    """The text, or its first words; a word has at least one piece, so that no more can stay."""
    words = text.split(maxsplit=n_words)
    return text if len(words) <= n_words else " ".join(words[:n_words])


def _cut(text: str, room: int, length: Length) -> str:
    """The most words of the text, from its start, that have at most `room` pieces."""
    if length(text) <= room:
        return text
    words = text.split()
    too_many = range(1, len(words) + 1)  # of these numbers of words, the first that does not fit
    n = bisect_left(too_many, True, key=lambda k: length(" ".join(words[:k])) > room)
    return " ".join(words[:n])
