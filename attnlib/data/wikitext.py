"""Wikipedia: a MediaWiki dump to plain paragraphs of prose (segments are cut in `segments.py`)."""

from __future__ import annotations

import bz2
import calendar
import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from attnlib.errors import CorpusError

_HOLE = "\ufffc"  # stands where content was lost; a paragraph that holds it is dropped
_APOSTROPHE = "\ue000"  # kept apart from the apostrophes that mark italics
_SOUND = "\ue001"  # a pronunciation: not missed inside brackets, a hole elsewhere
_END_SECTIONS = re.compile(
    r"^(see also|references?|notes|footnotes|external links?|further reading|bibliography|sources"
    r"|citations|works cited|gallery|publications|discography|filmography|(selected )?works)\b",
    re.IGNORECASE,
)
_NAMESPACE = re.compile(
    r"^\s*:?\s*(file|image|category|media|template|wikipedia|portal|help)\s*:", re.I
)
_LANGUAGE_LINK = re.compile(r"^\s*[a-z]{2,3}(-[a-z-]+)?\s*:", re.IGNORECASE)
_DROPPED_TAGS = re.compile(
    r"ref|references|table|gallery|timeline|imagemap|poem|blockquote|div|center|noinclude"
    r"|includeonly|section|hiero|score"
)
_LOST_TAGS = re.compile(r"math|chem|ce|source|syntaxhighlight|pre|code|graph")
# Templates that a reader does not miss: citations, notes, pronunciation, banners, maintenance.
_SILENT = re.compile(
    r"^(cite|citation|cn$|fact$|sfn|harv|efn|ref|rp$|r$|page|by whom|who|when|which|clarify|vague"
    r"|according|better|disputed|dubious|update|fact|full|verif|failed|unreliable|original|specify"
    r"|weasel|pov|npov|further|main|see|about|for$|redirect|other|hatnote|distinguish|use |pp-|good"
    r"|featured|infobox|sidebar|navbox|portal|commons|wikt|sister|audio|listen"
    r"|refn|note|nb|anchor|clear|toc|multiple|double|image|css|wide|coord|details|flagicon|start|end|defaultsort"
    r"|authority|persondata|taxobox|quote|cquote|rquote|blockquote|quotation|campaign|shortcut|legend"
    r"|multi|tooltip|tone|contradict|expand|unref|more|missing|incomplete|outdated|time|where|why"
    r"|how|attrib|nonspecific|not in|dead|primary|synthesis|inline|undue|cleanup|inconsist)",
    re.IGNORECASE,
)
_SIGNS = {
    **dict.fromkeys(("ndash", "en dash", "–"), "–"),
    **dict.fromkeys(("mdash", "em dash", "mdashb", "—"), "—"),
    **dict.fromkeys(("spaced ndash", "snd", "spnd", "spaced en dash"), " – "),
    **dict.fromkeys(("spaced mdash", "spaced em dash"), " — "),
    **dict.fromkeys(("nbsp", "space", "thinsp", "spaces", "·", "•"), " "),
    **dict.fromkeys(("'", "`", "apos"), _APOSTROPHE),
    "'s": _APOSTROPHE + "s",
    **dict.fromkeys(("!", "pipe"), "|"),
    **dict.fromkeys(("shy", "wbr", "zwj", "zwnj"), ""),
}
# Templates that wrap text: which unnamed parameter is shown.
_SHOWN = {
    **dict.fromkeys(("nowrap", "nobr", "nobreak", "mvar", "var", "em", "strong", "smallcaps"), 1),
    **dict.fromkeys(("small", "smaller", "big", "midsize", "flag", "nihongo", "angbr"), 1),
    **dict.fromkeys(("abbr", "abbrlink", "sc", "unicode", "polytonic", "hebrew", "linktext"), 1),
    **dict.fromkeys(
        ("lang", "transl", "transliteration", "script", "ill", "interlanguage link"), -1
    ),
    **dict.fromkeys(("ship", "hms", "uss", "rws", "not a typo", "sic", "proper name", "okina"), 1),
    **dict.fromkeys(
        ("grc", "gr", "arabic", "color", "font color", "visible anchor", "vanchor"), -1
    ),
}


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph and its place in its article; a gap in `index` means that prose was left out."""

    article: str
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraphs:
    """Paragraphs in article order, and what was left out by reason."""

    items: tuple[Paragraph, ...]
    skipped: dict[str, int]


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
    items: list[Paragraph] = []
    skipped: Counter[str] = Counter()
    for title, wikitext in read_dump(path):
        items += article_paragraphs(title, wikitext, min_words=min_words, skipped=skipped)
    return Paragraphs(tuple(items), dict(skipped))


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
            if _END_SECTIONS.match(str(node.title).strip()) and node.level <= 2:
                break
            parts.append("\n\n")
        else:
            parts.append(_node_text(node))
    return "".join(parts)


def _node_text(node: Any) -> str:
    kind = type(node).__name__
    if kind == "Text":
        return str(node.value)
    if kind == "HTMLEntity":
        return str(node.normalize())
    if kind == "Wikilink":
        return _link_text(node)
    if kind == "ExternalLink":
        return _plain(node.title) if node.title is not None and node.brackets else ""
    if kind == "Tag":
        return _tag_text(node)
    if kind == "Template":
        return _template_text(node)
    return ""


def _link_text(node: Any) -> str:
    title = str(node.title)
    if _NAMESPACE.match(title) or (node.text is None and _LANGUAGE_LINK.match(title)):
        return ""
    shown = _plain(node.text) if node.text is not None else title.lstrip(": ")
    return shown.replace("_", " ") if node.text is None else shown


def _tag_text(node: Any) -> str:
    tag = str(node.tag).strip().lower()
    if _DROPPED_TAGS.fullmatch(tag):
        return ""
    if _LOST_TAGS.fullmatch(tag):
        return _HOLE
    if node.wiki_markup in ("*", "#", ":", ";"):
        return str(node.wiki_markup)
    if tag in ("br", "hr"):
        return " "
    return _plain(node.contents) if node.contents is not None else ""


def _template_text(node: Any) -> str:
    name = re.sub(r"[\s_]+", " ", str(node.name)).strip().lower()
    if name in _SIGNS:
        return _SIGNS[name]
    values = [_plain(p.value).strip() for p in node.params if not p.showkey]
    if name in ("convert", "cvt") and len(values) >= 2:
        return _converted(values)
    if name in ("circa", "c."):
        return " ".join(["c.", *values[:1]])
    if name == "as of":
        return _as_of(node, values)
    if re.match("ipa|respell|pron", name):
        return _SOUND
    shown = _SHOWN.get(name) or (-1 if name.startswith("lang-") else None)
    if shown and values:
        return values[shown - 1 if shown > 0 else shown] or _HOLE
    return "" if _SILENT.match(name) else _HOLE


_UNITS = {"C": "°C", "F": "°F", "sqmi": "square miles", "sqft": "square feet", "acre": "acres"}
_UNIT = re.compile(
    r"°[CF]|[kcm]?m[23]?|mi|ft|in|yd|nmi|[km]?g|lb|oz|t|ha|[kKGM]?W|mph|(?:km|mi)/h|m/s|ft/s"
)


def _converted(values: list[str]) -> str:
    """`{{convert|5|km|mi}}` as "5 km", a range `{{convert|5|-|7|km}}` as "5–7 km"."""
    joins = {"-": "–", "–": "–", "x": " × ", **{w: f" {w} " for w in ("to", "and", "or", "by")}}
    amount, unit = values[0], values[1]
    if len(values) >= 4 and unit in joins:
        amount, unit = f"{amount}{joins[unit]}{values[2]}", values[3]
    shown = _UNITS.get(unit, unit if _UNIT.fullmatch(unit) else _HOLE)  # a code is no word
    return f"{amount}{'' if shown[0] == '°' else ' '}{shown}"


def _as_of(node: Any, values: list[str]) -> str:
    """`{{As of|2013|7}}` as "As of July 2013"; a text of its own (`alt`) wins."""
    if node.has("alt"):
        return _plain(node.get("alt").value).strip()
    month = values[1] if len(values) > 1 else ""
    name = calendar.month_name[int(month)] if month.isdigit() and 0 < int(month) < 13 else month
    return " ".join(["as of" if node.has("lc") else "As of", *filter(None, (name, *values[:1]))])


_EMPTY_INSIDE = (
    r"(?:\s|[,;:/–—-]|\b(?:or|and|pronounced|from|also|IPA|listen|either|lit|meaning)\b\.?)*"
)
_FIXES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"'{2,}", ""),  # italics and bold
        (_APOSTROPHE, "'"),
        (r"__[A-Z]+__", ""),
        (r"</?[a-zA-Z][^<>]*>", ""),
        (r"[\u200b-\u200f\u2060\ufeff\u00ad]", ""),
        (r"\s+", " "),
        (r"\(" + _EMPTY_INSIDE + r"\)", ""),
        (r"\[\s*\]", ""),
        (r"\(\s*(?:[,;:]\s*)+", "("),
        (r"(?:\s*[,;:])+\s*\)", ")"),
        (r"([,;])(?:\s*[,;])+", r"\1"),
        (r"\(\s+", "("),
        (r"\s+\)", ")"),
        (r"\s+([,;:.!?])(?=\s|$)", r"\1"),
        (r"\s{2,}", " "),
    )
)


def _clean(block: str) -> str:
    """One line of text: decoded, no leftovers of markup, no empty brackets, single blanks."""
    text = unicodedata.normalize("NFC", html.unescape(html.unescape(block)))
    text = re.sub(r"\([^()]*\)", _without_sounds, text).replace(_SOUND, _HOLE)
    for pattern, replacement in _FIXES:
        text = pattern.sub(replacement, text)
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
